"""The logs of a space: entries 1, 2, 3 … of each device, appended only."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from claude_mem.domain.errors import LogConflict
from claude_mem.storage.postgres.engine import TeamTransaction

MAX_READ_BYTES = 4 << 20  # of one answer, unless its first entry alone is larger
MAX_READ_ENTRIES = 1000


async def heads(tx: TeamTransaction, space_id: UUID) -> dict[str, int]:
    """Return the index of each device's last entry."""
    rows = await tx.conn.execute(
        "select device, head from log_heads where org_id = %s and space_id = %s and head > 0 order by device",
        (tx.org_id, space_id),
    )
    return dict(await rows.fetchall())


async def read(tx: TeamTransaction, space_id: UUID, device: str, *, after: int, limit: int) -> list[bytes]:
    """Return the entries that follow the index `after`, as many as fit into one answer."""
    rows = await tx.conn.execute(
        """
        select body from (
          select idx, body, sum(octet_length(body) + 4) over (order by idx) as bytes from (
            select idx, body from log_entries
             where org_id = %s and space_id = %s and device = %s and idx > %s order by idx limit %s
          ) as page
        ) as sized
         where bytes <= %s or idx = %s order by idx
        """,
        (tx.org_id, space_id, device, after, min(limit, MAX_READ_ENTRIES), MAX_READ_BYTES, after + 1),
        binary=True,
    )
    return [body for (body,) in await rows.fetchall()]


async def append(tx: TeamTransaction, space_id: UUID, device: str, *, after: int, bodies: Sequence[bytes]) -> int:
    """Append entries that follow the index `after` and return the new head.

    Entries that are stored already are skipped, so that a request can be repeated. Raises `LogConflict` if they would
    leave a gap or differ from what is stored.
    """
    head = await _lock_head(tx, space_id, device)
    if after > head:
        raise LogConflict(f"the log ends with entry {head}, so entry {after + 1} would leave a gap", head=head)
    repeated = bodies[: head - after]
    if repeated and not await _are_stored(tx, space_id, device, after, repeated):
        raise LogConflict("an entry with this index and another content is stored", head=head)
    if new := bodies[head - after :]:
        await tx.conn.execute(
            """
            insert into log_entries (org_id, space_id, device, idx, body)
            select %s, %s, %s, %s + position, body from unnest(%b::bytea[]) with ordinality as given (body, position)
            """,
            (tx.org_id, space_id, device, head, list(new)),
        )
        await tx.conn.execute(
            "update log_heads set head = %s where org_id = %s and space_id = %s and device = %s",
            (head + len(new), tx.org_id, space_id, device),
        )
    return head + len(new)


async def _lock_head(tx: TeamTransaction, space_id: UUID, device: str) -> int:
    key = (tx.org_id, space_id, device)
    select = "select head from log_heads where org_id = %s and space_id = %s and device = %s for update"
    if not (row := await (await tx.conn.execute(select, key)).fetchone()):
        await tx.conn.execute(
            "insert into log_heads (org_id, space_id, device, head) values (%s, %s, %s, 0) on conflict do nothing", key
        )
        row = await (await tx.conn.execute(select, key)).fetchone()
    assert row
    head: int = row[0]
    return head


async def _are_stored(tx: TeamTransaction, space_id: UUID, device: str, after: int, bodies: Sequence[bytes]) -> bool:
    rows = await tx.conn.execute(
        """
        select count(*) from unnest(%b::bytea[]) with ordinality as given (body, position)
          join log_entries e on e.org_id = %s and e.space_id = %s and e.device = %s
           and e.idx = %s + given.position and e.body = given.body
        """,
        (list(bodies), tx.org_id, space_id, device, after),
    )
    return await rows.fetchone() == (len(bodies),)
