"""The audit chain of an organisation: who did what, by id, without content.

Each line has the hash of the previous line, and the last number and hash are stored apart, so that changed, removed and
inserted lines are detected, and a shortened chain too. A line is written in the transaction of what it tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from claude_mem.domain import ids
from claude_mem.storage.postgres.engine import TeamTransaction

FIRST_HASH = "0" * 64
PAGE = 500


@dataclass(frozen=True, slots=True)
class AuditLine:
    """`actor`: a device, or `operator`. `subject`: an id. `facts`: JSON."""

    n: int
    at: int
    actor: str
    action: str
    subject: str
    facts: str
    previous_hash: str
    hash: str


def line_hash(org_id: str, line: AuditLine) -> str:
    """Return the hash over everything in the line but the hash itself."""
    hashed = [org_id, line.n, line.at, line.actor, line.action, line.subject, line.facts, line.previous_hash]
    return hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()


async def append(tx: TeamTransaction, actor: str, action: str, subject: str, **facts: str | int) -> None:
    """Append a line. Transactions of one organisation that append take turns."""
    await tx.conn.execute(
        "insert into audit_heads (org_id, n, hash) values (%s, 0, %s) on conflict do nothing", (tx.org_id, FIRST_HASH)
    )
    rows = await tx.conn.execute("select n, hash from audit_heads where org_id = %s for update", (tx.org_id,))
    n, previous_hash = await rows.fetchone() or (0, FIRST_HASH)
    encoded = msgspec.json.encode(facts, order="deterministic").decode()
    draft = AuditLine(n + 1, ids.now_ms(), actor, action, subject, encoded, previous_hash, "")
    hash_ = line_hash(str(tx.org_id), draft)
    await tx.conn.execute(
        """
        insert into audit (org_id, n, at, actor, action, subject, facts, previous_hash, hash)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (tx.org_id, draft.n, draft.at, actor, action, subject, encoded, previous_hash, hash_),
    )
    await tx.conn.execute("update audit_heads set n = %s, hash = %s where org_id = %s", (draft.n, hash_, tx.org_id))


async def lines(tx: TeamTransaction) -> AsyncIterator[AuditLine]:
    """Yield the chain from its beginning."""
    after = 0
    while True:
        rows = await tx.conn.execute(
            """
            select n, at, actor, action, subject, facts, previous_hash, hash from audit
             where org_id = %s and n > %s order by n limit %s
            """,
            (tx.org_id, after, PAGE),
        )
        page = [AuditLine(*row) for row in await rows.fetchall()]
        for line in page:
            yield line
        if len(page) < PAGE:
            return
        after = page[-1].n


async def first_fault(tx: TeamTransaction) -> str:
    """Check the chain. Return what is wrong first, or an empty string."""
    n, hash_ = 0, FIRST_HASH
    async for line in lines(tx):
        if line.n != n + 1:
            return f"line {n + 1} is missing"
        if line.previous_hash != hash_ or line.hash != line_hash(str(tx.org_id), line):
            return f"line {line.n} was changed"
        n, hash_ = line.n, line.hash
    rows = await tx.conn.execute("select n, hash from audit_heads where org_id = %s", (tx.org_id,))
    head = await rows.fetchone() or (0, FIRST_HASH)
    return "" if tuple(head) == (n, hash_) else f"the chain ends with line {n}, but line {head[0]} was written last"
