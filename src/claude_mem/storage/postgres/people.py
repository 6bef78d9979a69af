"""Organisations, their members, the members' devices, and the codes with which devices enrol."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

import msgspec
from psycopg import errors

from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.storage.postgres import audit
from claude_mem.storage.postgres.engine import TeamDatabase, TeamTransaction

Role = Literal["reader", "writer", "maintainer"]
ROLES: tuple[Role, ...] = ("reader", "writer", "maintainer")
OPERATOR = "operator"  # actor of the audit lines of the command line
NO_ORGANISATION = UUID(int=0)


class Organisation(msgspec.Struct, frozen=True):
    """A tenant."""

    org_id: str
    name: str
    created_at: datetime


class Member(msgspec.Struct, frozen=True):
    """A person in an organisation."""

    member_id: str
    name: str
    role: str
    created_at: datetime
    removed_at: datetime | None


class Device(msgspec.Struct, frozen=True):
    """A device as it is listed: without its token's hash."""

    device: str
    member: str
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The device that sent a request, and its member."""

    org_id: UUID
    device: str
    member_id: UUID
    role: str
    token_hash: bytes


async def create_organisation(db: TeamDatabase, name: str) -> UUID:
    """Create an organisation and return its id."""
    org_id = uuid4()

    async def create(tx: TeamTransaction) -> UUID:
        await tx.conn.execute("insert into organisations (org_id, name) values (%s, %s)", (org_id, name))
        await audit.append(tx, OPERATOR, "org.create", org_id.hex)
        return org_id

    return await db.run(org_id, create, is_idempotent=False)


async def list_organisations(db: TeamDatabase) -> list[Organisation]:
    """Return all organisations. Only the operator's role may, and only while no organisation is set."""

    async def select(tx: TeamTransaction) -> list[Organisation]:
        await tx.conn.execute("select set_config('claude_mem.org_id', '', true)")
        rows = await tx.conn.execute("select org_id, name, created_at from organisations order by name, org_id")
        return [Organisation(org_id.hex, name, at) for org_id, name, at in await rows.fetchall()]

    return await db.run(NO_ORGANISATION, select)


async def find_organisation(db: TeamDatabase, id_or_name: str) -> UUID:
    """Return the id of the organisation with this id or name."""
    matches = [each for each in await list_organisations(db) if id_or_name in (each.org_id, each.name)]
    if not matches:
        raise NotFound(f"no organisation {id_or_name!r}", hint="`claude-mem-server org list` lists them")
    if len(matches) > 1:
        raise InvalidRequest(f"{len(matches)} organisations are called {id_or_name!r}", hint="name one by its id")
    return UUID(matches[0].org_id)


async def add_member(tx: TeamTransaction, name: str, role: Role, *, actor: str = OPERATOR) -> UUID:
    """Add a member and return the member's id."""
    member_id = uuid4()
    try:
        await tx.conn.execute(
            "insert into members (org_id, member_id, name, role) values (%s, %s, %s, %s)",
            (tx.org_id, member_id, name, role),
        )
    except errors.UniqueViolation as error:
        raise OperationFailed(f"the organisation has a member {name!r} already") from error
    await audit.append(tx, actor, "member.add", member_id.hex, role=role)
    return member_id


async def find_member(tx: TeamTransaction, id_or_name: str, *, with_removed: bool = False) -> UUID:
    """Return the id of the member with this id or name; of several with a name, the one added last."""
    rows = await tx.conn.execute(
        """
        select member_id from members
         where org_id = %s and (removed_at is null or %s) and (name = %s or replace(member_id::text, '-', '') = %s)
         order by removed_at is not null, created_at desc limit 1
        """,
        (tx.org_id, with_removed, id_or_name, id_or_name),
    )
    if not (row := await rows.fetchone()):
        raise NotFound(f"no member {id_or_name!r}", hint="`claude-mem-server member list ORG` lists them")
    member_id: UUID = row[0]
    return member_id


async def list_members(tx: TeamTransaction) -> list[Member]:
    """Return all members, those who were removed too."""
    rows = await tx.conn.execute(
        "select member_id, name, role, created_at, removed_at from members where org_id = %s order by created_at, name",
        (tx.org_id,),
    )
    return [Member(member_id.hex, *row) for member_id, *row in await rows.fetchall()]


async def set_role(tx: TeamTransaction, member_id: UUID, role: Role) -> None:
    """Change a member's role. It holds from the next request on."""
    await tx.conn.execute(
        "update members set role = %s where org_id = %s and member_id = %s", (role, tx.org_id, member_id)
    )
    await audit.append(tx, OPERATOR, "member.role", member_id.hex, role=role)


async def remove_member(tx: TeamTransaction, member_id: UUID) -> None:
    """Refuse every device of the member from the next request on. What the member shared stays."""
    where = "where org_id = %s and member_id = %s"
    key = (tx.org_id, member_id)
    await tx.conn.execute(f"update members set removed_at = now() {where} and removed_at is null", key)
    await tx.conn.execute(f"update devices set revoked_at = now() {where} and revoked_at is null", key)
    await tx.conn.execute(f"delete from enrolment_codes {where}", key)
    await tx.conn.execute(f"delete from space_members {where}", key)
    await audit.append(tx, OPERATOR, "member.remove", member_id.hex)


async def create_code(
    tx: TeamTransaction, member_id: UUID, code_hash: bytes, *, seconds: int, actor: str = OPERATOR
) -> None:
    """Store the hash of a new enrolment code, and delete codes that have expired."""
    await tx.conn.execute("delete from enrolment_codes where org_id = %s and expires_at < now()", (tx.org_id,))
    await tx.conn.execute(
        """
        insert into enrolment_codes (org_id, code_hash, member_id, expires_at)
        values (%s, %s, %s, now() + make_interval(secs => %s))
        """,
        (tx.org_id, code_hash, member_id, seconds),
    )
    await audit.append(tx, actor, "code.create", member_id.hex, seconds=seconds)


async def enrol(tx: TeamTransaction, code_hash: bytes, device: str, name: str, token_hash: bytes) -> None:
    """Use a code up and register the device. A device of the same member that is not revoked receives a new token."""
    rows = await tx.conn.execute(
        """
        update enrolment_codes c set used_at = now()
          from members m
         where c.org_id = %s and c.code_hash = %s and c.used_at is null and c.expires_at > now()
           and m.org_id = c.org_id and m.member_id = c.member_id and m.removed_at is null
        returning c.member_id
        """,
        (tx.org_id, code_hash),
    )
    if not (row := await rows.fetchone()):
        raise NotFound("the code is unknown, expired or used", hint="ask for a new code")
    rows = await tx.conn.execute(
        """
        insert into devices as d (org_id, device, member_id, name, token_hash) values (%s, %s, %s, %s, %s)
        on conflict (org_id, device) do update set token_hash = excluded.token_hash, name = excluded.name
          where d.member_id = excluded.member_id and d.revoked_at is null
        returning device
        """,
        (tx.org_id, device, row[0], name, token_hash),
    )
    if not await rows.fetchone():
        raise OperationFailed("this device is revoked, or belongs to another member", hint="enrol with a new device id")
    await audit.append(tx, device, "device.enrol", device, member=row[0].hex)


async def find_caller(tx: TeamTransaction, device: str) -> Caller | None:
    """Return the device with its member, or None if one of the two is unknown, revoked or removed."""
    rows = await tx.conn.execute(
        """
        select d.member_id, m.role, d.token_hash
          from devices d join members m on m.org_id = d.org_id and m.member_id = d.member_id
         where d.org_id = %s and d.device = %s and d.revoked_at is null and d.token_hash is not null
           and m.removed_at is null
        """,
        (tx.org_id, device),
    )
    row = await rows.fetchone()
    return Caller(tx.org_id, device, *row) if row else None


async def revoke(tx: TeamTransaction, device: str, *, member_id: UUID | None, actor: str) -> None:
    """Refuse a device from the next request on. `member_id`: only if it is this member's device."""
    rows = await tx.conn.execute(
        """
        update devices set revoked_at = coalesce(revoked_at, now())
         where org_id = %s and device = %s and (%s::uuid is null or member_id = %s)
        returning revoked_at = now()
        """,
        (tx.org_id, device, member_id, member_id),
    )
    if not (row := await rows.fetchone()):
        raise NotFound("no such device")
    if row[0]:
        await audit.append(tx, actor, "device.revoke", device)


async def list_devices(tx: TeamTransaction, member_id: UUID | None = None) -> list[Device]:
    """Return the devices of a member, or of all."""
    rows = await tx.conn.execute(
        """
        select d.device, m.name, d.name, d.created_at, d.revoked_at
          from devices d join members m on m.org_id = d.org_id and m.member_id = d.member_id
         where d.org_id = %s and (%s::uuid is null or d.member_id = %s) order by d.created_at, d.device
        """,
        (tx.org_id, member_id, member_id),
    )
    return [Device(*row) for row in await rows.fetchall()]
