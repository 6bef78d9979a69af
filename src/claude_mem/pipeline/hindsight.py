"""Let a model put old turns in better words: only when a person asks for it, after saying what it may cost.

What is asked for here goes through the same lane, ledger and caps as everything else that is sent to a model.
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

SAMPLE = 100  # requests that are really built; of more turns, these speak for the rest


async def estimate(refiner: Refiner, paths: Sequence[str]) -> Row:
    """The most that refining the turns of these files' sessions may cost, and how long the caps make it take."""
    models = await refiner.chain.models()
    if not models or not refiner.possible():
        raise CannotDo("no model is set up", hint="choose a `provider` (docs/refining.md), or leave out `--refine`")
    wanted = await _wanted(refiner, paths)
    used = [await _most(refiner, turn_id) for turn_id, _ in wanted[:: max(1, len(wanted) // SAMPLE)]]
    share = len(wanted) / len(used) if used else 0
    price = refiner.chain.price(models[0])
    tokens = round(share * sum(usage.input_tokens + usage.output_tokens for usage in used))
    daily = refiner.config.daily_tokens
    return {
        "turns": len(wanted),
        "tokens": tokens,
        "cost": round(share * sum(price.cost(usage) for usage in used)),
        "model": f"{models[0].provider} {models[0].model}".strip(),
        "daily_tokens": daily,
        "monthly_cost": round(refiner.config.monthly_cost * 1_000_000),
        "days": -(-tokens // daily),
    }


async def ask(refiner: Refiner, paths: Sequence[str]) -> Row:
    wanted = await _wanted(refiner, paths)
    await refiner.db.write(_ask, wanted, now=ids.now())
    return {"turns": len(wanted)}


def _ask(conn: Connection, wanted: Sequence[tuple[int, int]], *, now: int) -> None:
    """The lane takes what was asked for last, so that a turn of today never waits for these."""
    for turn_id, seq in wanted:
        jobs.ask(conn, jobs.REFINE, f"{turn_id}.{seq}.{ASKED}", now=now)


async def _wanted(refiner: Refiner, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Turns by their number and newest event: there may be many, and each may be large."""
    found = []
    for turn_id, seq in await refiner.db.read(backfills.unrefined, paths):
        turn = await refiner.load(turn_id)
        if turn is not None and worth_refining(turn) and (await refiner.db.read(ledger.tries, turn_id)).left:
            found.append((turn_id, seq))
    return found


async def _most(refiner: Refiner, turn_id: int) -> Usage:
    turn = await refiner.load(turn_id)
    if turn is None:
        return Usage()
    sent = await refiner.prepare(turn)
    return Usage(input_tokens=request.size(sent) - sent.max_tokens, output_tokens=sent.max_tokens)
