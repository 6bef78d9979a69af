"""Spaces, who sees them, and their manifests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from claude_mem.domain.errors import ManifestConflict, NotFound, NotPermitted, OperationFailed
from claude_mem.storage.postgres import audit
from claude_mem.storage.postgres.engine import TeamTransaction
from claude_mem.storage.postgres.people import Caller

Kind = Literal["personal", "team"]
NO_SPACE = "no such space, or it is not yours to see"


class SpaceEntry(msgspec.Struct, frozen=True):
    """A space as it is listed."""

    space: str
    kind: str
    is_owner: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """A sealed manifest and its version tag."""

    body: bytes
    etag: str


async def create(tx: TeamTransaction, caller: Caller, space_id: UUID, kind: Kind) -> bool:
    """Create a space of the caller's member. Return False if it exists like that already."""
    if kind == "team" and caller.role == "reader":
        raise NotPermitted("a reader may not create a team space")
    rows = await tx.conn.execute(
        """
        insert into spaces (org_id, space_id, kind, owner_id) values (%s, %s, %s, %s)
        on conflict do nothing returning space_id
        """,
        (tx.org_id, space_id, kind, caller.member_id),
    )
    if not await rows.fetchone():
        rows = await tx.conn.execute(
            "select kind, owner_id from spaces where org_id = %s and space_id = %s", (tx.org_id, space_id)
        )
        if await rows.fetchone() != (kind, caller.member_id):
            raise OperationFailed("this space id is taken", hint="create the space with another random id")
        return False
    await _admit(tx, space_id, caller.member_id)
    await audit.append(tx, caller.device, "space.create", space_id.hex, kind=kind)
    return True


async def _admit(tx: TeamTransaction, space_id: UUID, member_id: UUID) -> None:
    await tx.conn.execute(
        "insert into space_members (org_id, space_id, member_id) values (%s, %s, %s) on conflict do nothing",
        (tx.org_id, space_id, member_id),
    )


async def list_of(tx: TeamTransaction, caller: Caller) -> list[SpaceEntry]:
    """Return the spaces that the caller's member belongs to."""
    rows = await tx.conn.execute(
        """
        select s.space_id, s.kind, s.owner_id = m.member_id
          from space_members m join spaces s on s.org_id = m.org_id and s.space_id = m.space_id
         where m.org_id = %s and m.member_id = %s order by s.created_at, s.space_id
        """,
        (tx.org_id, caller.member_id),
    )
    return [SpaceEntry(space_id.hex, *row) for space_id, *row in await rows.fetchall()]


async def require(tx: TeamTransaction, caller: Caller, space_id: UUID, *, writes: bool = False) -> None:
    """Raise an error unless the caller's member belongs to the space and, if `writes`, may write to it."""
    rows = await tx.conn.execute(
        """
        select s.kind from spaces s
          join space_members m on m.org_id = s.org_id and m.space_id = s.space_id and m.member_id = %s
         where s.org_id = %s and s.space_id = %s
        """,
        (caller.member_id, tx.org_id, space_id),
    )
    if not (row := await rows.fetchone()):
        raise NotFound(NO_SPACE)
    if writes and row[0] == "team" and caller.role == "reader":
        raise NotPermitted("a reader may not write to a team space")


async def set_membership(
    tx: TeamTransaction, caller: Caller, space_id: UUID, member_id: UUID, *, belongs: bool
) -> None:
    """Let a member of the organisation see a team space, or no longer. Its owner and maintainers may."""
    await require(tx, caller, space_id)
    rows = await tx.conn.execute(
        "select kind, owner_id from spaces where org_id = %s and space_id = %s", (tx.org_id, space_id)
    )
    kind, owner_id = await rows.fetchone() or ("", None)
    if kind != "team":
        raise NotPermitted("a personal space has one member")
    if caller.role != "maintainer" and caller.member_id != owner_id:
        raise NotPermitted("only the owner of a team space and maintainers may change who belongs to it")
    rows = await tx.conn.execute(
        "select 1 from members where org_id = %s and member_id = %s and removed_at is null", (tx.org_id, member_id)
    )
    if belongs and not await rows.fetchone():
        raise NotFound("no such member")
    if belongs:
        await _admit(tx, space_id, member_id)
    else:
        await tx.conn.execute(
            "delete from space_members where org_id = %s and space_id = %s and member_id = %s",
            (tx.org_id, space_id, member_id),
        )
    await audit.append(
        tx, caller.device, "space.admit" if belongs else "space.expel", space_id.hex, member=member_id.hex
    )


def etag_of(body: bytes) -> str:
    """Return the version tag of a manifest. It depends on the body alone, so that a restored backup cannot repeat it."""
    return hashlib.sha256(body).hexdigest()[:32]


async def read_manifest(tx: TeamTransaction, space_id: UUID) -> Manifest | None:
    """Return the manifest, or None if none was written."""
    rows = await tx.conn.execute(
        "select body, etag from manifests where org_id = %s and space_id = %s", (tx.org_id, space_id)
    )
    row = await rows.fetchone()
    return Manifest(*row) if row else None


async def write_manifest(
    tx: TeamTransaction, caller: Caller, space_id: UUID, body: bytes, *, expected: str | None
) -> str:
    """Replace the manifest with the tag `expected` (None: there is none) and return the new tag.

    Writing what is stored already succeeds, so that a request whose answer was lost can be repeated.
    """
    etag = etag_of(body)
    if expected is None:
        statement = """
            insert into manifests (etag, body, written_by, org_id, space_id) values (%s, %s, %s, %s, %s)
            on conflict do nothing returning etag
            """
    else:
        statement = """
            update manifests set etag = %s, body = %s, written_by = %s, written_at = now()
             where org_id = %s and space_id = %s and etag = %s returning etag
            """
    key = (etag, body, caller.device, tx.org_id, space_id)
    rows = await tx.conn.execute(statement, key if expected is None else (*key, expected))
    if not await rows.fetchone():
        stored = await read_manifest(tx, space_id)
        if stored is None or stored.body != body:
            raise ManifestConflict("the manifest is not the one that was read", hint="read it again")
    elif etag != expected:
        await audit.append(tx, caller.device, "manifest.write", space_id.hex, etag=etag)
    return etag
