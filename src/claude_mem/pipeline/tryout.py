"""Previews the refining of one turn: the request, the model's answer, and the draft, side by side."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from claude_mem.config import Config, check_providers
from claude_mem.errors import CannotDo, NotFound
from claude_mem.hosts import registry
from claude_mem.pipeline import ingest
from claude_mem.pipeline.budget import Refused
from claude_mem.pipeline.refine import Asked, Refiner, merged
from claude_mem.pipeline.transcripts import whole
from claude_mem.projects import resolve
from claude_mem.providers import local, request
from claude_mem.providers.base import Model, Request
from claude_mem.providers.chain import Chain
from claude_mem.records import Digest, Event, Prompted, Turn
from claude_mem.store import sessions, turns
from claude_mem.store.database import Row

MOST_BYTES = 64 << 20  # of a transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    session: str = ""
    path: str = ""
    number: int = 0  # 0: the last turn with work in it
    provider: str = ""
    dry_run: bool = False


async def tried(options: Wanted, *, refiner: Refiner) -> Row:
    """Return the request for a turn and its draft and, unless `dry_run`, send the request and add the answer."""
    turn, name = await _find_turn(options, refiner)
    prepared = await refiner.prepare(turn, project=name)
    preview = show(turn, prepared)
    if options.dry_run:
        return preview
    model = await _first_model(_chain(options, refiner))
    exchange = await refiner.ask(turn, model, purpose="compress", prepared=prepared)
    if isinstance(exchange, Refused):
        raise CannotDo(f"nothing was sent: {exchange.reason}", hint="raise the cap, or use `--dry-run`")
    return {**preview, **_answer_row(turn, exchange)}


def show(turn: Turn, prepared: Request) -> Row:
    """Return the request that would be sent, and the draft."""
    request_row = {"system": prepared.system, "prompt": prepared.prompt, "tokens_at_most": request.size(prepared)}
    return {
        "turn": turn.number,
        "prompt": turn.prompt,
        "request": request_row,
        "local": _digest_row(local.digest(turn)),
    }


def _answer_row(turn: Turn, exchange: Asked) -> Row:
    refined = merged(turn, exchange)
    return {
        "provider": exchange.model.provider,
        "model": exchange.reply.model or exchange.model.model,
        "verdict": exchange.verdict,
        "message": exchange.reply.message,
        "answer": exchange.reply.text,
        "usage": asdict(exchange.usage),
        "cost": exchange.cost,
        "refined": _digest_row(refined) if refined else None,
    }


def _digest_row(digest: Digest) -> Row:
    return {
        "title": digest.title,
        "subtitle": digest.subtitle,
        "summary": asdict(digest.summary) if digest.summary else None,
        "observations": [asdict(draft) for draft in digest.observations],
    }


def _chain(options: Wanted, refiner: Refiner) -> Chain:
    if not options.provider:
        return refiner.chain
    check_providers(options.provider, "--provider")
    return refiner.chain.with_provider(options.provider)


async def _first_model(chain: Chain) -> Model:
    models = await chain.models()
    if not models:
        raise CannotDo("no model is configured", hint="choose one with `--provider`, or use `--dry-run`")
    return models[0]


# --- finding the turn ------------------------------------------------------------------------------------------------


async def _find_turn(options: Wanted, refiner: Refiner) -> tuple[Turn, str]:
    """Return the turn and, if it is not in the database, the name of its project."""
    if options.path:
        candidates, name = await asyncio.to_thread(read, Path(options.path), refiner.config)
    else:
        session = await refiner.db.read(sessions.named, options.session)
        loaded = [await refiner.db.read(turns.load, row["id"]) for row in await refiner.db.read(turns.listing, session)]
        candidates, name = [turn for turn in loaded if turn is not None and turn.bodies], ""
    if not candidates:
        raise NotFound("no turn found", hint="give a session (`claude-mem list sessions`) or a transcript")
    return _pick(candidates, options.number), name


def _pick(candidates: list[Turn], number: int) -> Turn:
    if not number:
        return next((turn for turn in reversed(candidates) if len(turn.bodies) > 2), candidates[-1])
    match = next((turn for turn in candidates if turn.number == number), None)
    if match is None:
        raise NotFound(
            f"there is no turn {number}",
            hint=f"the session has turns {candidates[0].number} to {candidates[-1].number}",
        )
    return match


def read(path: Path, config: Config) -> tuple[list[Turn], str]:
    """Return the turns of a transcript and the name of its project."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the full path of a transcript")
    if path.stat().st_size > MOST_BYTES:
        raise CannotDo(f"{path} is larger than {MOST_BYTES >> 20} MB", hint="give a shorter transcript, or a session")
    host = registry.whose(path)
    if host is None or host.transcripts is None:
        raise NotFound(f"{path} is not a known transcript format", hint="give a transcript that an agent wrote")
    clean, cwd = list[Event](), ""
    for part in whole(host.transcripts, path, host=host.name):
        cwd = cwd or part.cwd
        events = [*part.events, *part.closings.values()]
        clean += [ingest.clean(event, config) for event in events if not event.private]
    project = resolve(cwd, excluded=config.excluded_projects)
    return list(_split_into_turns(sorted(clean, key=lambda event: event.at), project.root)), project.name


def _split_into_turns(events: list[Event], root: str) -> list[Turn]:
    """Group events into turns as the database does: each prompt begins one."""
    turn_number = 0
    numbered = []
    for event in events:
        turn_number += isinstance(event.body, Prompted)
        numbered.append((turn_number, event))
    grouped = [(number, [event for _, event in rows]) for number, rows in groupby(numbered, key=lambda pair: pair[0])]
    return [_as_turn(number, turn_events, root) for number, turn_events in grouped if number]


def _as_turn(number: int, events: list[Event], root: str) -> Turn:
    bodies = tuple(event.body for event in events)
    return Turn(
        id=0,
        session_id=0,
        project_id=0,
        number=number,
        prompt=next((body.text for body in bodies if isinstance(body, Prompted)), ""),
        root=root,
        started_at=events[0].at,
        ended_at=events[-1].at,
        bodies=bodies,
        seqs=tuple(range(1, len(bodies) + 1)),
    )
