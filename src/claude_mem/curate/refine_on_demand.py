"""Refine turns on request: preview the refining of one turn, or refine the turns of a back-fill.

A preview shows the request, the model's answer and the draft side by side. A back-fill is refined only when the user
asks for it, after the maximum cost was shown. All these requests use the same job queue, ledger and caps as any other
request to a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import msgspec

from claude_mem.agents import registry
from claude_mem.agents.base import Transcripts
from claude_mem.capture.transcripts import read_allowed_events, read_in_parts
from claude_mem.config import Config, validate_providers
from claude_mem.digest import request, writer
from claude_mem.digest.compress import is_worth_refining
from claude_mem.digest.models.base import Model, Request, Usage
from claude_mem.digest.models.chain import ProviderChain
from claude_mem.digest.refine import ON_REQUEST, BudgetRefusal, ModelExchange, Refiner, merge_exchange
from claude_mem.domain import ids
from claude_mem.domain.errors import NotFound, OperationFailed
from claude_mem.domain.records import Digest, Event, Prompted, Turn
from claude_mem.domain.reports import PreviewedDigest, PreviewedRequest, RefiningEstimate, TurnPreview, UsageDetails
from claude_mem.storage.base import Transaction
from claude_mem.storage.journal_records import REFINE_JOB
from claude_mem.system.project_folders import identify_project

MAX_TRANSCRIPT_BYTES = 64 << 20
SAMPLE_SIZE = 100  # requests actually built; with more turns, the estimate is extrapolated from these


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewOptions:
    """Which turn to preview, of a session or a transcript, and with which provider."""

    session: str = ""
    path: str = ""
    number: int = 0  # 0: the last turn with work in it
    provider: str = ""
    dry_run: bool = False


async def preview_refining(options: PreviewOptions, *, refiner: Refiner) -> TurnPreview:
    """Return the request for a turn and its draft and, unless `dry_run`, send the request and add the answer."""
    turn, name = await _find_turn(options, refiner)
    prepared = await refiner.prepare(turn, project=name)
    preview = preview_request(turn, prepared)
    if options.dry_run:
        return preview
    model = await _first_model(_select_chain(options, refiner))
    exchange = await refiner.ask(turn, model, purpose="compress", prepared=prepared)
    if isinstance(exchange, BudgetRefusal):
        raise OperationFailed(f"nothing was sent: {exchange.reason}", hint="raise the cap, or use `--dry-run`")
    return _with_answer(preview, turn, exchange)


def preview_request(turn: Turn, prepared: Request) -> TurnPreview:
    """Return the request that would be sent, and the draft."""
    return TurnPreview(
        turn=turn.number,
        prompt=turn.prompt,
        request=PreviewedRequest(
            system=prepared.system, prompt=prepared.prompt, tokens_at_most=request.max_total_tokens(prepared)
        ),
        local=_preview_digest(writer.compose_digest(turn)),
    )


def _with_answer(preview: TurnPreview, turn: Turn, exchange: ModelExchange) -> TurnPreview:
    refined = merge_exchange(turn, exchange)
    return msgspec.structs.replace(
        preview,
        provider=exchange.model.provider,
        model=exchange.reply.model or exchange.model.model,
        verdict=exchange.verdict,
        message=exchange.reply.message,
        answer=exchange.reply.text,
        usage=UsageDetails(**asdict(exchange.usage)),
        cost=exchange.cost,
        refined=_preview_digest(refined) if refined else None,
    )


def _preview_digest(digest: Digest) -> PreviewedDigest:
    return PreviewedDigest(
        title=digest.title, subtitle=digest.subtitle, summary=digest.summary, observations=digest.observations
    )


def _select_chain(options: PreviewOptions, refiner: Refiner) -> ProviderChain:
    if not options.provider:
        return refiner.chain
    validate_providers(options.provider, "--provider")
    return refiner.chain.with_provider(options.provider)


async def _first_model(chain: ProviderChain) -> Model:
    models = await chain.models()
    if not models:
        raise OperationFailed("no model is configured", hint="choose one with `--provider`, or use `--dry-run`")
    return models[0]


# --- finding the turn to preview -------------------------------------------------------------------------------------


async def _find_turn(options: PreviewOptions, refiner: Refiner) -> tuple[Turn, str]:
    """Return the turn and, if it is not in the database, the name of its project."""
    if options.path:
        candidates, name = await asyncio.to_thread(read_transcript, Path(options.path), refiner.config)
    else:
        session = await refiner.db.read(lambda tx: tx.memory.resolve_session_id(options.session))
        loaded = [
            await refiner.db.read(lambda tx, row: tx.journal.load_turn(row.id), row)
            for row in await refiner.db.read(lambda tx: tx.journal.list_turns(session))
        ]
        candidates, name = [turn for turn in loaded if turn is not None and turn.bodies], ""
    if not candidates:
        raise NotFound("no turn found", hint="give a session (`claude-mem list sessions`) or a transcript")
    return _pick_turn(candidates, options.number), name


def _pick_turn(candidates: list[Turn], number: int) -> Turn:
    if not number:
        return next((turn for turn in reversed(candidates) if len(turn.bodies) > 2), candidates[-1])
    match = next((turn for turn in candidates if turn.number == number), None)
    if match is None:
        raise NotFound(
            f"there is no turn {number}",
            hint=f"the session has turns {candidates[0].number} to {candidates[-1].number}",
        )
    return match


def read_transcript(path: Path, config: Config) -> tuple[list[Turn], str]:
    """Return the turns of a transcript, as far as they may be stored, and the name of its project."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the full path of a transcript")
    if path.stat().st_size > MAX_TRANSCRIPT_BYTES:
        raise OperationFailed(
            f"{path} is larger than {MAX_TRANSCRIPT_BYTES >> 20} MB", hint="give a shorter transcript, or a session"
        )
    host = registry.identify_agent(path)
    if host is None or host.transcripts is None:
        raise NotFound(f"{path} is not a known transcript format", hint="give a transcript that an agent wrote")
    cwd = _transcript_directory(host.transcripts, path, host=host.name)
    project = identify_project(cwd, excluded=config.excluded_projects)
    if not project.enabled:
        raise OperationFailed(
            f"memory is switched off in {cwd}; its transcripts are not read",
            hint="see `.claude-mem.toml` there and the setting `excluded_projects`",
        )
    events = read_allowed_events(host.transcripts, path, project, config, host=host.name)
    return list(_split_into_turns(sorted(events, key=lambda event: event.at), project.root)), project.name


def _transcript_directory(transcripts: Transcripts, path: Path, *, host: str) -> str:
    """Return the directory of a transcript's session. The whole file is read only if its ends do not name it."""
    parts = read_in_parts(transcripts, path, host=host)
    return transcripts.head(path).cwd or next((part.cwd for part in parts if part.cwd), "")


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


# --- refining a back-fill --------------------------------------------------------------------------------------------


async def estimate_cost(refiner: Refiner, paths: Sequence[str]) -> RefiningEstimate:
    """Return the maximum cost of refining the turns of these files' sessions, and the days it takes under the caps."""
    models = await refiner.chain.models()
    if not models or not refiner.is_available():
        raise OperationFailed("no model is configured", hint="set `provider` (docs/refining.md), or omit `--refine`")
    turn_seqs = await _find_turns_to_refine(refiner, paths)
    usages = [await _max_usage(refiner, turn_id) for turn_id, _ in turn_seqs[:: max(1, len(turn_seqs) // SAMPLE_SIZE)]]
    share = len(turn_seqs) / len(usages) if usages else 0
    price = refiner.chain.price(models[0])
    tokens = round(share * sum(usage.input_tokens + usage.output_tokens for usage in usages))
    daily = refiner.config.daily_tokens
    return RefiningEstimate(
        turns=len(turn_seqs),
        tokens=tokens,
        cost=round(share * sum(price.cost(usage) for usage in usages)),
        model=f"{models[0].provider} {models[0].model}".strip(),
        daily_tokens=daily,
        monthly_cost=round(refiner.config.monthly_cost * 1_000_000),
        days=-(-tokens // daily),
    )


async def enqueue_turns(refiner: Refiner, paths: Sequence[str]) -> int:
    """Enqueue refine jobs for the turns of these files' sessions. Return the number of turns."""
    turn_seqs = await _find_turns_to_refine(refiner, paths)
    await refiner.db.write(_enqueue_jobs, turn_seqs, now=ids.now_ms())
    return len(turn_seqs)


def _enqueue_jobs(tx: Transaction, turn_seqs: Sequence[tuple[int, int]], *, now: int) -> None:
    """Enqueue the turns. The queue takes the newest job first, so current turns never wait for these."""
    for turn_id, seq in turn_seqs:
        tx.journal.enqueue_job(REFINE_JOB, f"{turn_id}.{seq}.{ON_REQUEST}", now=now)


async def _find_turns_to_refine(refiner: Refiner, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Return (turn id, newest seq) of each turn. Turns are not kept in memory: there may be many large ones."""
    turn_seqs = []
    for turn_id, seq in await refiner.db.read(lambda tx: tx.journal.list_unrefined_turns(paths)):
        turn = await refiner.load(turn_id)
        if turn is None or not is_worth_refining(turn):
            continue
        if (await refiner.db.read(lambda tx, turn_id: tx.journal.get_refine_attempts(turn_id), turn_id)).may_retry:
            turn_seqs.append((turn_id, seq))
    return turn_seqs


async def _max_usage(refiner: Refiner, turn_id: int) -> Usage:
    turn = await refiner.load(turn_id)
    if turn is None:
        return Usage()
    prepared = await refiner.prepare(turn)
    return Usage(
        input_tokens=request.max_total_tokens(prepared) - prepared.max_tokens, output_tokens=prepared.max_tokens
    )
