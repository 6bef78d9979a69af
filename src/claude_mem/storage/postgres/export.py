"""Everything of an organisation for an export, and the erasure of a member."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from claude_mem.storage.postgres import audit
from claude_mem.storage.postgres.engine import TeamTransaction
from claude_mem.storage.postgres.people import OPERATOR

PAGE = 50  # entries in memory at once: at most 50 MB
# Tables with the columns that an export has, and their key. Hashes of tokens and codes are credentials and stay.
TABLES = {
    "organisations": ("org_id, name, created_at", "org_id"),
    "members": ("member_id, name, role, created_at, removed_at", "member_id"),
    "devices": ("device, member_id, name, created_at, revoked_at", "device"),
    "spaces": ("space_id, kind, owner_id, created_at", "space_id"),
    "space_members": ("space_id, member_id", "space_id, member_id"),
    "manifests": ("space_id, etag, body, written_by, written_at", "space_id"),
    "log_heads": ("space_id, device, head", "space_id, device"),
    "log_entries": ("space_id, device, idx, body, received_at", "space_id, device, idx"),
    "audit_heads": ("n, hash", "n"),
    "audit": ("n, at, actor, action, subject, facts, previous_hash, hash", "n"),
}


async def rows(tx: TeamTransaction) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield all rows of the organisation with the names of their tables. Use it with `run_snapshot`."""
    for table, (columns, key) in TABLES.items():
        async with tx.conn.cursor(f"export_{table}", scrollable=False) as cursor:
            cursor.itersize = PAGE
            await cursor.execute(
                f"select {columns} from {table} where org_id = %s order by {key}",
                (tx.org_id,),
            )
            names = [column.name for column in cursor.description or ()]
            async for row in cursor:
                yield table, dict(zip(names, row, strict=True))


async def erase_member(tx: TeamTransaction, member_id: UUID) -> dict[str, int]:
    """Delete what a removed member wrote, and the member's name. Return counts.

    Personal spaces are deleted. In the logs of team spaces the bodies become empty and the indices stay, because other
    devices would take a shorter log for a server that lost data. The audit chain contains ids only and stays.
    """
    of_member, key = "org_id = %s and member_id = %s", (tx.org_id, member_id)
    spaces = "select space_id from spaces where org_id = %s and owner_id = %s and kind = 'personal'"
    counts = {}
    for table in ("log_entries", "log_heads", "manifests", "space_members", "spaces"):
        deletion = await tx.conn.execute(
            f"delete from {table} where org_id = %s and space_id in ({spaces})",
            (tx.org_id, *key),
        )
        counts[f"{table} of personal spaces"] = deletion.rowcount
    emptied = await tx.conn.execute(
        f"""
        update log_entries set body = '' where org_id = %s and octet_length(body) > 0
           and device in (select device from devices where {of_member})
        """,
        (tx.org_id, *key),
    )
    counts["entries of team spaces"] = emptied.rowcount
    await tx.conn.execute(f"delete from enrolment_codes where {of_member}", key)
    await tx.conn.execute(f"delete from space_members where {of_member}", key)
    await tx.conn.execute(
        f"update devices set token_hash = null, name = '', revoked_at = coalesce(revoked_at, now()) where {of_member}",
        key,
    )
    await tx.conn.execute(
        f"update members set name = 'erased ' || member_id, removed_at = coalesce(removed_at, now()) where {of_member}",
        key,
    )
    await audit.append(tx, OPERATOR, "member.erase", member_id.hex)
    return counts
