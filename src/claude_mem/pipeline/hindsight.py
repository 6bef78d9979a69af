"""Refines back-filled turns, only when the user asks for it and after showing the maximum cost.

These requests use the same job queue, ledger and caps as all other requests to a model.
"""

from __future__ import annotations

from collections.abc import Sequence

from claude_mem import ids
from claude_mem.errors import CannotDo
from claude_mem.pipeline.compress import worth_refining
from claude_mem.pipeline.refine import ASKED, Refiner
from claude_mem.providers import request
from claude_mem.providers.base import Usage
from claude_mem.store import backfills, jobs, ledger
from claude_mem.store.database import Connection, Row

SAMPLE = 100  # requests actually built; with more turns, the estimate is extrapolated from these


async def estimate(refiner: Refiner, paths: Sequence[str]) -> Row:
    """Return the maximum cost of refining the turns of these files' sessions, and the days it takes under the caps."""
    models = await refiner.chain.models()
    if not models or not refiner.possible():
        raise CannotDo("no model is configured", hint="set `provider` (docs/refining.md), or omit `--refine`")
    turn_seqs = await _turns_to_refine(refiner, paths)
    usages = [await _max_usage(refiner, turn_id) for turn_id, _ in turn_seqs[:: max(1, len(turn_seqs) // SAMPLE)]]
    share = len(turn_seqs) / len(usages) if usages else 0
    price = refiner.chain.price(models[0])
    tokens = round(share * sum(usage.input_tokens + usage.output_tokens for usage in usages))
    daily = refiner.config.daily_tokens
    return {
        "turns": len(turn_seqs),
        "tokens": tokens,
        "cost": round(share * sum(price.cost(usage) for usage in usages)),
        "model": f"{models[0].provider} {models[0].model}".strip(),
        "daily_tokens": daily,
        "monthly_cost": round(refiner.config.monthly_cost * 1_000_000),
        "days": -(-tokens // daily),
    }


async def ask(refiner: Refiner, paths: Sequence[str]) -> Row:
    """Enqueue refine jobs for the turns of these files' sessions."""
    turn_seqs = await _turns_to_refine(refiner, paths)
    await refiner.db.write(_enqueue, turn_seqs, now=ids.now())
    return {"turns": len(turn_seqs)}


def _enqueue(conn: Connection, turn_seqs: Sequence[tuple[int, int]], *, now: int) -> None:
    """Enqueue the turns. The queue takes the newest job first, so current turns never wait for these."""
    for turn_id, seq in turn_seqs:
        jobs.ask(conn, jobs.REFINE, f"{turn_id}.{seq}.{ASKED}", now=now)


async def _turns_to_refine(refiner: Refiner, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Return (turn id, newest seq) of each turn. Turns are not kept in memory: there may be many large ones."""
    turn_seqs = []
    for turn_id, seq in await refiner.db.read(backfills.unrefined, paths):
        turn = await refiner.load(turn_id)
        if turn is not None and worth_refining(turn) and (await refiner.db.read(ledger.tries, turn_id)).may_retry:
            turn_seqs.append((turn_id, seq))
    return turn_seqs


async def _max_usage(refiner: Refiner, turn_id: int) -> Usage:
    turn = await refiner.load(turn_id)
    if turn is None:
        return Usage()
    prepared = await refiner.prepare(turn)
    return Usage(input_tokens=request.size(prepared) - prepared.max_tokens, output_tokens=prepared.max_tokens)
