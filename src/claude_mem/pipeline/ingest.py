"""Turns spool files into event rows, and enqueues a job when a turn ends.

`read` parses a file without using the database; `take` decides inside a transaction what becomes of the event. Every
event gets exactly one receipt: stored, filtered by a named rule, or set aside.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from glob import escape
from pathlib import Path
from typing import Any

import apsw
import msgspec

from claude_mem import foreign, ids, origins, privacy, sources, withheld
from claude_mem.config import Config
from claude_mem.errors import BadRecord, Noise
from claude_mem.failpoints import failpoint
from claude_mem.hosts import payload
from claude_mem.hosts.dialect import READERS, lean
from claude_mem.origins import EXTERNAL, SUSPECT, TRUSTED
from claude_mem.projects import Project, named, resolve
from claude_mem.providers import trust
from claude_mem.records import (
    OVER,
    STORED,
    Body,
    Compacting,
    Event,
    News,
    Noticed,
    Outcome,
    Prompted,
    Session,
    SessionEnded,
    SessionStarted,
    Status,
    Stopped,
    SubagentStopped,
    ToolUsed,
)
from claude_mem.redact import redact, redact_fields
from claude_mem.secret_commands import redact_printed
from claude_mem.spool import Spool
from claude_mem.store import events, jobs, observations, projects, sessions, stones, turns
from claude_mem.store.database import Connection, Database
from claude_mem.store.savepoint import savepoint
from claude_mem.text import CLOSING_CHARS, clip, map_strings, shorten, storable, strings

log = logging.getLogger(__name__)

BATCH = 100
PROMPT_CHARS = 8_000
MOST_BYTES = 1 << 20  # the largest event that is stored as it is, regardless of how many texts it consists of
PART_CHARS, MOST_PARTS, SHORT_KEY = 8_000, 20, 200  # limits for the parts of a larger event
_PERSISTED_OUTPUT = "<persisted-output>"  # marks output too long for the client: the agent reads it from a file
TEAM_TIMES = 3  # keep three times as much text from an issue tracker: the agent's words are compared with all of it
HIDDEN = "turn_hidden"


# Failures of the disk or the database, such as a full disk. The event that was being stored did not cause them.
_STORAGE_ERRORS = (
    apsw.FullError, apsw.IOError, apsw.BusyError, apsw.LockedError, apsw.CorruptError, apsw.NotADBError,
    apsw.CantOpenError, apsw.ReadOnlyError, apsw.NoMemError, apsw.InterruptError, apsw.PermissionsError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that may be stored, already cleaned, with its project."""

    event: Event
    project: Project
    source: str = "hook"


@dataclass(frozen=True, slots=True)
class Refused:
    """The id of an event that may not be stored, with the reason."""

    event_id: str
    outcome: Outcome


Taken = Accepted | Refused


async def drain(db: Database, spool: Spool, config: Config) -> tuple[int, list[News]]:
    """Ingest the next batch of spool files in order of arrival: commit first, then remove the files.

    Return the number of files and the news to publish.
    """
    names = await asyncio.to_thread(spool.arrivals, BATCH)
    failpoint("drain.listed")
    if not names:
        return 0, []
    items = await asyncio.to_thread(_read_batch, spool, names, config)
    failpoint("drain.read")
    news, outcomes = await db.write(take_batch, items, now=ids.now())
    failpoint("drain.committed")
    # After the commit: a crash in between only causes the files to be read a second time.
    await asyncio.to_thread(_remove_files, spool, names, outcomes, config)
    failpoint("drain.all_unlinked")
    return len(names), news


def _read_batch(spool: Spool, names: list[str], config: Config) -> list[Taken]:
    """Read a batch of spool files.

    The project of a directory is looked up once per batch: often enough to notice that memory was switched off, and
    rarely enough to be cheap.
    """
    resolve_once = cache(partial(resolve, excluded=config.excluded_projects))
    return [_read_safely(spool, name, config, resolve_once) for name in names]


def _read_safely(spool: Spool, name: str, config: Config, resolve_project: Callable[[str], Project]) -> Taken:
    """Read one spool file; set it aside on any error, so that a bad file never blocks the next one."""
    try:
        return read(spool, name, config, resolve_project)
    except RecursionError:
        return Refused(name, Outcome("set_aside", "too_deep"))
    except Exception:
        log.exception("spool file %s cannot be read; it is set aside", name)
        return Refused(name, Outcome("set_aside", "error"))


def _remove_files(spool: Spool, names: list[str], outcomes: list[Outcome], config: Config) -> None:
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome.what == "set_aside":
            failpoint("drain.refused")
            spool.set_aside(name, clean=partial(clean_aside, config=config))
            failpoint("drain.put_aside")
        else:
            spool.remove(name)
            failpoint("drain.unlinked")


def clean_aside(text: str, config: Config) -> str:
    """Return the redacted text of a spool file that could not be read as an event.

    If the text mentions a file of secrets, only the header lines are kept.
    """
    if withheld.mentions(text, withheld_files(config)):
        head, blank, _ = text.partition("\n\n")
        text = f"{head if blank else ''}\n\n{withheld.NOTE}"
    return redact(privacy.strip(text))


def withheld_files(config: Config) -> tuple[str, ...]:
    """Return patterns of files whose content is never stored, in addition to the built-in list: our own data directory
    and the files named in the settings."""
    folder = config.data_dir.expanduser()
    home = os.path.expanduser("~")  # noqa: PTH111 -- Path.home() raises when HOME cannot be determined
    folders = [folder, *([Path("~") / folder.relative_to(home)] if folder.is_relative_to(home) else [])]
    return (*(f"{escape(str(path))}/*" for path in folders), *config.withheld_files)


def read(spool: Spool, name: str, config: Config, resolve_project: Callable[[str], Project]) -> Taken:
    """Return the file as a cleaned event, or the reason why it is not stored."""
    try:
        envelope = spool.load(name)
        event = payload.read(envelope)
    except Noise:
        return Refused(name, Outcome("filtered", "noise"))
    except BadRecord as problem:
        return Refused(name, Outcome("set_aside", problem.reason))
    if event.cwd and Path(event.cwd).is_relative_to(config.data_dir):  # our own sessions with a model run there
        return Refused(name, Outcome("filtered", "observer"))
    project = named(event.project) if event.project else resolve_project(event.cwd)
    if not project.enabled:
        return Refused(name, Outcome("filtered", "project_off"))
    cleaned_event = filter_and_clean(event, project, config)
    if cleaned_event is None:
        return Refused(name, Outcome("filtered", unwanted(event.body, project, config)))
    return Accepted(cleaned_event, project, "api" if envelope.header.get("source") == "api" else "hook")


def filter_and_clean(event: Event, project: Project, config: Config) -> Event | None:
    """Apply the capture rules to an event, then clean it. Return `None` if a rule excludes the event.

    The rules come first: they judge the whole text, and cleaning clips the middle of a long one. Hooks, reconciling and
    back-fill all use this function, so the same event is treated the same way wherever it comes from.
    """
    filtered_event = kept(event, project, config)
    return None if filtered_event is None else clean(filtered_event, config)


def kept(event: Event, project: Project, config: Config) -> Event | None:
    """Return the event, or `None` if a capture rule excludes it.

    An excluded event from an external origin becomes an empty placeholder: otherwise a repository could use
    `skip_tools` in its own settings file to hide that a turn read untrusted content, and the agent's words about that
    content would be injected as trusted.
    """
    body = event.body
    if not unwanted(body, project, config):
        return event
    origin = SUSPECT if trust.speaks(body) else event.origin or origins.of(body, cwd=event.cwd)
    if origin in TRUSTED or not isinstance(body, ToolUsed | SubagentStopped):
        return None
    agent_id = body.agent_id
    empty: Body = SubagentStopped(agent_id=agent_id)
    if isinstance(body, ToolUsed):
        empty = ToolUsed(body.name, {}, agent_id=agent_id)
    return replace(event, body=empty, origin=origin)


def unwanted(body: Body, project: Project, config: Config) -> str:
    """Return the name of the capture rule that excludes an event; "" if none does."""
    if isinstance(body, ToolUsed) and body.name in (*config.skip_tools, *project.skip_tools):
        return "skip_tool"
    of_subagent = isinstance(body, SubagentStopped) or (isinstance(body, ToolUsed) and body.agent_id)
    return "subagent" if of_subagent and not project.subagents else ""


def clean(event: Event, config: Config) -> Event:
    """Remove the content of files of secrets, private parts and secrets, replace unstorable characters, and clip long
    texts, in this order: a secret that was cut in half would not be recognised."""
    origin = event.origin or origins.of(event.body, cwd=event.cwd)  # needs the whole text
    event = replace(event, body=_remove_own_content(event.body, event.cwd))
    team = isinstance(event.body, ToolUsed) and origin == EXTERNAL and sources.may_be_team(event.body)
    most = _char_limit(event.body, config, team=team)
    visible = _remove_hidden(event.body, config, withhold=config.redact_secrets)
    scan_chars = max(config.event_chars * 10, most * 2)
    parts = map_strings(msgspec.to_builtins(visible), lambda text: clip(storable(text), scan_chars))
    parts = redact_fields(parts) if config.redact_secrets else parts
    body = msgspec.convert(map_strings(parts, lambda text: clip(text, most)), Body)
    bounded = _limit_size(body)
    hidden = event.stripped or visible != event.body
    if team and isinstance(bounded, ToolUsed) and bounded is body and not hidden and not _is_incomplete(visible, most):
        bounded = msgspec.structs.replace(bounded, whole=True)
    return replace(
        event,
        body=bounded,
        origin=origin,
        content_session_id=storable(event.content_session_id),
        prompt_id=storable(event.prompt_id),
        tool_use_id=storable(event.tool_use_id),
        transcript_path=storable(event.transcript_path),
    )


def _remove_own_content(body: Body, cwd: str) -> Body:
    """Remove the content of the project's own files, which is on disk anyway.

    The content of external files stays: later texts are compared with it.
    """
    if not isinstance(body, ToolUsed) or body.name not in READERS or not isinstance(body.output, dict):
        return body
    is_foreign = foreign.name(body, foreign.Here(cwd, cwd)) or foreign.is_nested(body, cwd)
    return body if is_foreign else msgspec.structs.replace(body, output=lean(body.output))


def _char_limit(body: Body, config: Config, *, team: bool) -> int:
    """Return how many characters are kept of each text of an event."""
    if isinstance(body, Stopped):
        return max(config.event_chars, CLOSING_CHARS)
    return config.event_chars * (TEAM_TIMES if team else 1)


def _is_incomplete(body: Body, most: int) -> bool:
    """Return whether a tool may have shown the agent more than is stored: the middle of a long text, output that was
    written to a file, or output that a rule removed."""
    assert isinstance(body, ToolUsed)
    texts = list(strings(body.output))
    return not texts or any(len(text) > most or _PERSISTED_OUTPUT in text for text in texts)


def _limit_size(body: Body) -> Body:
    """Limit the size of an event whose texts are clipped but too numerous: keep the beginning and the end of each part,
    as text."""
    if not isinstance(body, ToolUsed) or len(msgspec.json.encode(body)) <= MOST_BYTES:
        return body
    arguments = {key[:SHORT_KEY]: _clip_part(part) for key, part in list(body.input.items())[:MOST_PARTS]}
    return msgspec.structs.replace(body, input=arguments, output=_clip_part(body.output))


def _clip_part(part: Any) -> Any:
    text = part if isinstance(part, str) else msgspec.json.encode(part).decode()
    return clip(text, PART_CHARS) if len(text) > PART_CHARS else part


def without_secrets(body: Body, config: Config) -> Body:
    """Return the body without private parts, the content of files of secrets, and secrets, by the current rules."""
    visible = msgspec.to_builtins(_remove_hidden(body, config, withhold=True))
    result: Body = msgspec.convert(redact_fields(visible), Body)
    return result


def _remove_hidden(body: Body, config: Config, *, withhold: bool) -> Body:
    """Return the body without private parts and, with `withhold`, without the content of files of secrets."""
    if isinstance(body, ToolUsed) and withhold:
        body = withheld.hide(body, withheld_files(config))
        printed = redact_printed(withheld.commands(body), body.output)
        body = body if printed == body.output else msgspec.structs.replace(body, output=printed)
    result: Body = msgspec.convert(privacy.strip_fields(msgspec.to_builtins(body)), Body)
    return result


def take_batch(conn: Connection, batch: Sequence[Taken], *, now: int) -> tuple[list[News], list[Outcome]]:
    """Store a batch. Return the news to publish and the outcome of each item."""
    news: list[News] = []
    outcomes = [_record_safely(conn, item, news, now=now) for item in batch]
    failpoint("drain.batch")
    return news, outcomes


def _record_safely(conn: Connection, item: Taken, news: list[News], *, now: int) -> Outcome:
    """Store one event. If that fails, set the event aside and undo its partial writes."""
    news_count = len(news)
    outcome = Outcome("set_aside", "error")
    event_id = storable(item.event.id if isinstance(item, Accepted) else item.event_id)
    try:
        with savepoint(conn):
            outcome = take(conn, item, news, now=now)
    except _STORAGE_ERRORS:
        raise
    except Exception:
        log.exception("event %s cannot be stored; it is set aside", event_id)
        del news[news_count:]
        events.acknowledge(conn, event_id, outcome, at=now)
    return outcome


def take(conn: Connection, item: Taken, news: list[News], *, now: int) -> Outcome:
    """Store or refuse one event and write its receipt. An event that already has one (the worker died between commit
    and unlink) keeps its outcome."""
    event_id = item.event.id if isinstance(item, Accepted) else item.event_id
    event_id = storable(event_id)
    if before := events.receipt(conn, event_id):
        return before
    outcome = store(conn, item, news, now=now) if isinstance(item, Accepted) else item.outcome
    events.acknowledge(conn, event_id, outcome, at=now)
    return outcome


def _event_time(conn: Connection, session: Session, item: Accepted) -> int:
    """Return the time at which an event counts as having happened.

    A live event is never earlier than the events reported before it, even if the clock was set back. An event from a
    transcript keeps its own time.
    """
    at = item.event.at
    return at if item.source == "transcript" else turns.not_before(conn, session.id, at)


def store(conn: Connection, item: Accepted, news: list[News], *, now: int) -> Outcome:
    """Store an event in its session and turn, opening them if necessary."""
    event = item.event
    if stones.bars_event(conn, event, live=item.source != "transcript"):
        return Outcome("filtered", "forgotten")
    session = sessions.find(conn, event.host, event.content_session_id)
    if session is None:
        project_id = projects.know(conn, item.project, event.cwd, now=now)
        name, cwd = event.content_session_id, event.cwd
        session = sessions.open_(conn, event.host, name, project_id=project_id, at=event.at, cwd=cwd)
    elif isinstance(event.body, SessionStarted):
        projects.know(conn, item.project, event.cwd, now=now)
    if item.source != "transcript":  # an event from a transcript does not show that the session is alive
        path, pid = event.transcript_path, event.host_pid
        sessions.touch(conn, session.id, at=event.at, transcript_path=path, host_pid=pid)
    match event.body:
        case SessionStarted():
            return _store_session_start(conn, session, item, now=now)
        case Prompted():
            return _store_prompt(conn, session, item, news, now=now)
        case Noticed():
            return _store_notice(conn, session, item)
        case Compacting():  # belongs to no turn: it may come between two turns, with a prompt id of its own
            events.add(conn, event, session_id=session.id, turn_id=None, source=item.source)
            return STORED
        case SessionEnded():
            return _store_session_end(conn, session, item, news, now=now)
        case _:
            return _store_in_turn(conn, session, item, news, now=now)


def _store_session_start(conn: Connection, session: Session, item: Accepted, *, now: int) -> Outcome:
    event, body = item.event, item.event.body
    assert isinstance(body, SessionStarted)
    seq = events.add(conn, event, session_id=session.id, turn_id=None, source=item.source)
    if body.source != "compact" and session.prompt_counter:  # compaction happens in the middle of a turn
        turns.close_open(conn, session.id, by="session_start", at=_event_time(conn, session, item))
        ask_reconcile(conn, session.id, seq, now=now)
    if body.source in ("startup", "clear", "compact"):
        sessions.informed(conn, session.id, observations.newest_id(conn))
    return STORED


def _store_prompt(conn: Connection, session: Session, item: Accepted, news: list[News], *, now: int) -> Outcome:
    event, body = item.event, item.event.body
    assert isinstance(body, Prompted)
    turn = turns.by_prompt(conn, session.id, event.prompt_id)
    if turn is None:
        turn = _open_turn(conn, session, item, now=now)
    elif event.private:
        hide(conn, session, turn, news, now=now)
    elif turn.private:
        return Outcome("filtered", "private")
    elif events.has_kind(conn, turn.id, "prompt"):
        return _append_to_prompt(conn, session, turn, item)
    if item.source != "transcript":
        sessions.set_status(conn, session.id, Status.ACTIVE)
    if event.private:
        return Outcome("filtered", "private")
    text = clip(body.text, PROMPT_CHARS)
    events.add(conn, event, session_id=session.id, turn_id=turn.id, source=item.source)
    at = _event_time(conn, session, item)
    observations.add_prompt(conn, session_id=session.id, turn_id=turn.id, number=turn.number, text=text, at=at)
    sessions.note_first_prompt(conn, session.id, text, title=shorten(text, 80))
    news.append(_make_news(conn, "new_prompt", session, prompt_number=turn.number, text=text))
    return STORED


def _append_to_prompt(conn: Connection, session: Session, turn: turns.TurnState, item: Accepted) -> Outcome:
    """Append to a turn's prompt: some agents accept more input while they work. Repeated text is a duplicate."""
    assert isinstance(item.event.body, Prompted)
    text = clip(item.event.body.text, PROMPT_CHARS)
    if not observations.add_to_prompt(conn, turn.id, text):
        return Outcome("filtered", "duplicate")
    events.add(conn, item.event, session_id=session.id, turn_id=turn.id, source=item.source)
    return STORED


def _store_notice(conn: Connection, session: Session, item: Accepted) -> Outcome:
    """Store a notice that the agent program, not the user, put in the prompt's place. If it continues a private turn,
    everything that follows is private too."""
    latest = turns.latest(conn, session.id)
    if latest is not None and latest.private:
        if turns.by_prompt(conn, session.id, item.event.prompt_id) is None:
            at = _event_time(conn, session, item)
            turns.open_(conn, session.id, at=at, prompt_id=item.event.prompt_id, private=True)
        return Outcome("filtered", "private")
    events.add(conn, item.event, session_id=session.id, turn_id=None, source=item.source)
    return STORED


def hide(conn: Connection, session: Session, turn: turns.TurnState, news: list[News], *, now: int) -> None:
    """Hide a turn whose prompt turned out to be private. Receivers of the news must erase it from files too."""
    turns.hide(conn, turn.id)
    jobs.ask(conn, "render", f"{session.project_id}.{turn.id}.hidden", now=now)
    news.append(News(HIDDEN, {"turn_id": turn.id}))


def _store_in_turn(conn: Connection, session: Session, item: Accepted, news: list[News], *, now: int) -> Outcome:
    """Store an event that happens within a turn: a tool call or a stop."""
    event = item.event
    if event.tool_use_id and events.has_tool_use_here(conn, session.id, event.tool_use_id):
        return Outcome("filtered", "duplicate")
    turn = _turn_of(conn, session, item, now=now)
    at = _event_time(conn, session, item)
    if event.private or (turn is not None and turn.private):
        if isinstance(event.body, Stopped) and turn is not None:
            turns.close(conn, turn.id, by="stop", at=at)
        return Outcome("filtered", "private")
    if turn is not None and item.source != "transcript" and _is_stop_known(conn, turn.id, event.body):
        ask_reconcile(conn, session.id, events.newest(conn, session.id), now=now)
        return Outcome("filtered", "duplicate")
    seq = events.add(conn, event, session_id=session.id, turn_id=turn.id if turn else None, source=item.source)
    if item.source == "transcript":  # the reader of the transcript closes turns and enqueues jobs itself
        if turn is not None:
            turns.add_late(conn, turn.id, at=event.at)
        return STORED
    if turn is not None:
        _keep_open(conn, session, turn, event, now=now)
    if isinstance(event.body, Stopped):
        if turn is not None:
            turns.close(conn, turn.id, by="stop", at=at)
        ask_reconcile(conn, session.id, seq, now=now)
        news.append(_make_news(conn, "turn_ended", session))
    if isinstance(event.body, SubagentStopped):
        ask_reconcile(conn, session.id, seq, now=now, subagents=f"agent-{event.body.agent_id}")
    return STORED


def _is_stop_known(conn: Connection, turn_id: int, body: Body) -> bool:
    """Return whether a Stop waited in the spool for so long that its message was already read from the transcript."""
    return isinstance(body, Stopped) and bool(body.message) and events.was_read(conn, turn_id, body.message)


def _turn_of(conn: Connection, session: Session, item: Accepted, *, now: int) -> turns.TurnState | None:
    """Return the turn of an event: by prompt id, else the newest turn; for an event from a transcript, the turn at its
    time.

    If the prompt was missed, open the turn without it; the prompt is read from the transcript later.
    """
    event = item.event
    if turn := turns.by_prompt(conn, session.id, event.prompt_id):
        return _resume_after_purge(conn, session, item, now=now) if turn.faded else turn
    if event.prompt_id:
        return _open_turn(conn, session, item, now=now)
    turn = turns.at(conn, session.id, event.at) if item.source == "transcript" else turns.latest(conn, session.id)
    if turn is not None and turn.faded:
        return _resume_after_purge(conn, session, item, now=now)
    return _open_turn(conn, session, item, now=now) if turn is None and isinstance(event.body, ToolUsed) else turn


def _resume_after_purge(conn: Connection, session: Session, item: Accepted, *, now: int) -> turns.TurnState:
    """Return the turn that continues a turn whose events were purged, as on a machine that slept for weeks: the newest
    turn if its events remain, else a new one."""
    latest = turns.latest(conn, session.id)
    if latest is not None and not latest.faded:
        return latest
    without_prompt_id = replace(item, event=replace(item.event, prompt_id=""))
    return _open_turn(conn, session, without_prompt_id, now=now)


def _open_turn(conn: Connection, session: Session, item: Accepted, *, now: int) -> turns.TurnState:
    """Open a turn, closing any open turn before it. A turn from a transcript is closed at once if later turns exist."""
    event, live, at = item.event, item.source != "transcript", _event_time(conn, session, item)
    if turns.close_open(conn, session.id, by="prompt", at=at) and live:
        ask_reconcile(conn, session.id, events.newest(conn, session.id), now=now)
    turn = turns.open_(conn, session.id, at=at, prompt_id=event.prompt_id, private=event.private)
    if not live and turns.is_past(conn, turn.id):
        turns.close(conn, turn.id, by="prompt", at=at)
    return turn


def _keep_open(conn: Connection, session: Session, turn: turns.TurnState, event: Event, *, now: int) -> None:
    """Keep the newest turn open after an event. An event for an older turn, or in a session that is over, comes late:
    the turn is digested again without waiting for more events."""
    newest = turns.latest(conn, session.id)
    if session.status not in OVER and (newest is None or newest.id == turn.id):
        turns.touch(conn, turn.id, at=event.at)
    else:
        turns.add_late(conn, turn.id, at=event.at)
        ask_reconcile(conn, session.id, events.newest(conn, session.id), now=now)


def _store_session_end(conn: Connection, session: Session, item: Accepted, news: list[News], *, now: int) -> Outcome:
    event = item.event
    seq = events.add(conn, event, session_id=session.id, turn_id=None, source=item.source)
    at = _event_time(conn, session, item)
    turns.close_open(conn, session.id, by="session_end", at=at)
    sessions.set_status(conn, session.id, Status.COMPLETED, at=at)
    ask_reconcile(conn, session.id, seq, now=now, subagents="agents")
    news.append(_make_news(conn, "session_completed", session))
    return STORED


def _make_news(conn: Connection, type_: str, session: Session, **fields: int | str) -> News:
    project = projects.get(conn, session.project_id)
    return News(type_, {"session_id": session.id, "project": project["name"] if project else "", **fields})


def ask_reconcile(conn: Connection, session_id: int, seq: int | None, *, now: int, subagents: str = "") -> None:
    """Enqueue reading the transcript for missed events, then digesting. The job is keyed by the event that caused it.

    `subagents` names the subagent files to read as well: `agent-<id>` for one, `agents` for all.
    """
    jobs.ask(conn, "reconcile", f"{session_id}.{seq or 0}.{subagents}".rstrip("."), now=now)
