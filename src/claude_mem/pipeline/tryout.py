"""One turn, shown side by side: what would be sent to a model, what comes back, and what is kept without it."""

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


async def tried(wanted: Wanted, *, refiner: Refiner) -> Row:
    turn, name = await _turn(wanted, refiner)
    prepared = await refiner.prepare(turn, project=name)
    shown = show(turn, prepared)
    if wanted.dry_run:
        return shown
    model = await _first(_chain(wanted, refiner))
    asked = await refiner.ask(turn, model, purpose="compress", prepared=prepared)
    if isinstance(asked, Refused):
        raise CannotDo(f"nothing was sent: {asked.why}", hint="raise the cap, or use `--dry-run`")
    return {**shown, **_answer(turn, asked)}


def show(turn: Turn, prepared: Request) -> Row:
    """What would be sent, and what is kept anyway."""
    sent = {"system": prepared.system, "prompt": prepared.prompt, "tokens_at_most": request.size(prepared)}
    return {"turn": turn.number, "prompt": turn.prompt, "request": sent, "local": _digest(local.digest(turn))}


def _answer(turn: Turn, asked: Asked) -> Row:
    refined = merged(turn, asked)
    return {
        "provider": asked.model.provider,
        "model": asked.reply.model or asked.model.model,
        "verdict": asked.verdict,
        "message": asked.reply.message,
        "answer": asked.reply.text,
        "usage": asdict(asked.usage),
        "cost": asked.cost,
        "refined": _digest(refined) if refined else None,
    }


def _digest(made: Digest) -> Row:
    return {
        "title": made.title,
        "subtitle": made.subtitle,
        "summary": asdict(made.summary) if made.summary else None,
        "observations": [asdict(draft) for draft in made.observations],
    }


def _chain(wanted: Wanted, refiner: Refiner) -> Chain:
    if not wanted.provider:
        return refiner.chain
    check_providers(wanted.provider, "--provider")
    return refiner.chain.of(wanted.provider)


async def _first(chain: Chain) -> Model:
    models = await chain.models()
    if not models:
        raise CannotDo("no model is set up", hint="name one with `--provider`, or use `--dry-run`")
    return models[0]


# --- which turn ------------------------------------------------------------------------------------------------------


async def _turn(wanted: Wanted, refiner: Refiner) -> tuple[Turn, str]:
    """The turn and the name of its project, if it is not in the database."""
    if wanted.path:
        found, name = await asyncio.to_thread(read, Path(wanted.path), refiner.config)
    else:
        session = await refiner.db.read(sessions.named, wanted.session)
        loaded = [await refiner.db.read(turns.load, row["id"]) for row in await refiner.db.read(turns.listing, session)]
        found, name = [turn for turn in loaded if turn is not None and turn.bodies], ""
    if not found:
        raise NotFound("there is no turn in it", hint="give a session (`claude-mem list sessions`) or a transcript")
    return _pick(found, wanted.number), name


def _pick(found: list[Turn], number: int) -> Turn:
    if not number:
        return next((turn for turn in reversed(found) if len(turn.bodies) > 2), found[-1])
    chosen = next((turn for turn in found if turn.number == number), None)
    if chosen is None:
        raise NotFound(f"there is no turn {number}", hint=f"it has turns {found[0].number} to {found[-1].number}")
    return chosen


def read(path: Path, config: Config) -> tuple[list[Turn], str]:
    """The turns of a transcript, and the name of its project."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the whole path of a transcript")
    if path.stat().st_size > MOST_BYTES:
        raise CannotDo(f"{path} is larger than {MOST_BYTES >> 20} MB", hint="give a shorter transcript, or a session")
    host = registry.whose(path)
    if host is None or host.transcripts is None:
        raise NotFound(f"{path} is no transcript that we know", hint="give one of an agent's own records of a session")
    clean, cwd = list[Event](), ""
    for part in whole(host.transcripts, path, host=host.name):
        cwd = cwd or part.cwd
        told = [*part.events, *part.closings.values()]
        clean += [ingest.clean(event, config) for event in told if not event.private]
    project = resolve(cwd, excluded=config.excluded_projects)
    return list(_turns(sorted(clean, key=lambda event: event.at), project.root)), project.name


def _turns(told: list[Event], root: str) -> list[Turn]:
    """As the database would have them: each prompt begins one."""
    begun = 0
    numbered = []
    for event in told:
        begun += isinstance(event.body, Prompted)
        numbered.append((begun, event))
    grouped = [(number, [event for _, event in rows]) for number, rows in groupby(numbered, key=lambda pair: pair[0])]
    return [_as_turn(number, events, root) for number, events in grouped if number]


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
