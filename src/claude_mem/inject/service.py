"""Injections: compose the text a session is given at its start, at a prompt, before a file or after a failure, and
record that it was given.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial

from claude_mem.agents.payload import Trigger
from claude_mem.config import Config
from claude_mem.digest import modes
from claude_mem.domain import ids
from claude_mem.domain.project_reports import Project
from claude_mem.domain.records import Session
from claude_mem.domain.text import estimate_tokens
from claude_mem.inject import at_tool, brief, freshness, triggers
from claude_mem.inject.brief import ComposedContext
from claude_mem.inject.triggers import Injection, Line
from claude_mem.inject.worth import Holdout
from claude_mem.maintain.audit import AuditRecorder
from claude_mem.recall.matrix import Indexer
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.journal_records import GREETING, InjectionRecord
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import ResolvedProject, identify_project_in_thread

MAX_CACHED_SESSIONS = 500
AT_COMMAND = ("command", "permission")
COMMAND_SECONDS = 0.03  # that a command, or a read for an outline, waits for an answer


@dataclass(slots=True)
class SessionInjections:
    """What was injected into one session. `is_loaded`: the ids stored in the database are included."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    injected_ids: set[str] = field(default_factory=set)
    is_loaded: bool = False


class InjectionCache:
    """What was injected into recent sessions, available without waiting for the database."""

    def __init__(self) -> None:
        self.sessions: OrderedDict[tuple[str, str], SessionInjections] = OrderedDict()

    def get(self, host: str, content_session_id: str) -> SessionInjections:
        """Return the entry of a session, new or existing, and drop the entries used least recently."""
        entry = self.sessions.setdefault((host, content_session_id), SessionInjections())
        self.sessions.move_to_end((host, content_session_id))
        while len(self.sessions) > MAX_CACHED_SESSIONS:
            self.sessions.popitem(last=False)
        return entry


class ContextService:
    """Composes and records injections.

    `ready` is awaited before a start context is composed, so that events captured just before are included.
    """

    def __init__(
        self,
        db: Database,
        config: Config,
        indexer: Indexer,
        recorder: AuditRecorder,
        icons: modes.Icons,
        *,
        holdout: Holdout,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self.db, self.config, self.indexer, self.recorder, self.icons = db, config, indexer, recorder, icons
        self.ready = ready
        self.injection_cache = InjectionCache()
        self.holdout = holdout

    # --- session start ---------------------------------------------------------------------------------------

    async def start_context(
        self, project: ResolvedProject, *, host: str, content_session_id: str, source: str
    ) -> tuple[ComposedContext, int]:
        """Return the start context of a session and the newest observation id that it takes into account."""
        await self.ready()
        upto = await self.db.read(lambda tx: tx.memory.get_newest_observation_id())
        session = await self.db.read(lambda tx: tx.memory.find_session(host, content_session_id))
        if source == "fork":
            return ComposedContext(""), upto  # a fork starts with a copy of another session, including its injections
        start = await self._start_text(project, session if source == "resume" else None)
        if not (start.item_names and content_session_id):
            return start, upto
        # The moment is named by the newest observation: another start of the session is another moment.
        is_silent = self.holdout.is_silent(host, content_session_id, "start", f"{source} {upto}")
        return replace(start, holdout=self.holdout.share, held_out=is_silent), upto

    async def record_start(
        self,
        host: str,
        content_session_id: str,
        upto: int,
        *,
        start: ComposedContext = brief.NO_CONTEXT,
        is_new_conversation: bool = True,
        notice_keys: Sequence[str] = (),
    ) -> None:
        """Record that a session was given its start context, covering observations up to `upto`, and these notices."""
        injection_ids = ["start", *dict.fromkeys((*start.item_names, *start.repeated_names))]
        entry = self.injection_cache.get(host, content_session_id)
        if is_new_conversation:  # empty or compacted: earlier injections are gone
            entry.injected_ids, entry.is_loaded = set(), True
        entry.injected_ids.update(injection_ids)
        failpoint("inject.noted")
        records = list(_records(start, trigger="start", now=ids.now_ms()))
        write = partial(
            _store_start,
            injection_ids=injection_ids,
            is_new_conversation=is_new_conversation,
            upto=upto,
            notice_keys=notice_keys,
        )
        await self.db.write(write, (host, content_session_id), records, now=ids.now_ms())
        for record in records:
            await self._audit_injection(host, content_session_id, record)

    async def _start_text(self, project: ResolvedProject, resumed: Session | None) -> ComposedContext:
        """Compose the start context; for a resumed session only what is new since its last one."""
        limit, budget = self.config.context_observations, self.config.context_tokens
        if resumed is not None:
            after, own = resumed.informed_upto, resumed.id
            gather = partial(brief.gather_memory, limit=limit, after_id=after, but_session=own)
            news = await self.db.read(gather, [resumed.project_id])
            if news is None:
                return ComposedContext("")
            return await asyncio.to_thread(brief.compose_update, news, budget_tokens=budget, icons=self.icons)
        project_id = await self.db.read(lambda tx: tx.memory.find_project_id(project))
        return await self.compose_start(project_id, project.name, budget=budget, limit=limit, root=project.root)

    async def compose_start(
        self, project_id: int | None, name: str, *, budget: int, limit: int, root: str = ""
    ) -> ComposedContext:
        """Compose the start context for a new session of this project, in the work tree at `root`."""
        memory = None
        if project_id:
            looks = await freshness.refresh_at_start(self.db, project_id, root)
            gather = partial(brief.gather_memory, limit=limit, root=root, looks=looks)
            memory = await self.db.read(gather, [project_id])
        memory = memory or brief.ProjectMemory(name)
        return await asyncio.to_thread(brief.compose_brief, memory, budget_tokens=budget, icons=self.icons)

    async def compose_at_commit(self, project_id: int, root: str, name: str) -> tuple[str, ComposedContext]:
        """Return the id of a commit, and the start context of a session whose work tree is at that commit."""
        commit, looks = await freshness.look_at_root_commit(self.db, project_id, root, name)
        limit, budget = self.config.context_observations, self.config.context_tokens
        gather = partial(brief.gather_memory, limit=limit, root=f"commit {commit}", looks=looks)
        memory = await self.db.read(gather, [project_id])
        assert memory is not None  # the project exists: its memories were just looked at
        return commit, await asyncio.to_thread(brief.compose_brief, memory, budget_tokens=budget, icons=self.icons)

    # --- during a session ------------------------------------------------------------------------------------

    async def inject(self, trigger: Trigger) -> Injection:
        """Return the injection for a trigger; usually it is empty. A command must not wait: what takes longer than
        `COMMAND_SECONDS` is not said."""
        if trigger.kind not in AT_COMMAND:
            return await self._inject(trigger)
        if not self.config.command_hints:
            return triggers.NO_INJECTION
        try:
            return await asyncio.wait_for(self._inject(trigger), COMMAND_SECONDS)
        except TimeoutError:
            return triggers.NO_INJECTION

    async def _inject(self, trigger: Trigger) -> Injection:
        """Return the injection for a trigger.

        Calls for one session run one at a time: two tools that run at once must not be given the same text.
        """
        project = await identify_project_in_thread(trigger.cwd, excluded=self.config.excluded_projects)
        project_id = await self.db.read(lambda tx: tx.memory.find_project_id(project)) if project.enabled else None
        row = await self.db.read(lambda tx: tx.memory.find_project(project_id)) if project_id else None
        if row is None or not trigger.text.strip():
            return triggers.NO_INJECTION
        entry = self.injection_cache.get(trigger.host, trigger.content_session_id)
        async with entry.lock:
            injection = await self._compose(
                trigger, row, frozenset(await self._injected_ids(trigger, row.id, entry)), project.root
            )
            entry.injected_ids.update(injection.item_names)
        return self._with_holdout(trigger, injection)

    def _with_holdout(self, trigger: Trigger, injection: Injection) -> Injection:
        """Return the injection with the decision whether its moment stays silent. What is decided only once in a
        session, such as a file, is the same moment whenever it comes up."""
        if not injection.item_names or not self.holdout.share:
            return injection
        moment = trigger.text if trigger.kind in ("prompt", "failure") else " ".join(injection.item_names)
        is_silent = self.holdout.is_silent(trigger.host, trigger.content_session_id, trigger.kind, moment)
        return replace(injection, holdout=self.holdout.share, held_out=is_silent)

    async def _compose(self, trigger: Trigger, project: Project, seen_ids: frozenset[str], root: str) -> Injection:
        if trigger.kind == "permission":
            hint = await self.db.read(at_tool.permission_hint, trigger, project.id)
            return Injection(hint)
        if trigger.kind == "file":
            outline = await self._outline(trigger, project, root)
            at_file = partial(triggers.inject_at_file, injected_names=seen_ids, icons=self.icons, root=root)
            return await self.db.read(at_file, trigger, project, hints=self.config.command_hints, outline=outline)
        session = await self.db.read(lambda tx: tx.memory.find_session(trigger.host, trigger.content_session_id))
        own = session.id if session else 0
        if trigger.kind == "command":
            about_call = partial(at_tool.inject_at_command, injected_names=seen_ids, session_id=own)
            return await self.db.read(about_call, trigger, project.id)
        if trigger.kind == "failure":
            at_failure = partial(at_tool.inject_at_failure, injected_names=seen_ids, icons=self.icons)
            hints = self.config.command_hints
            return await self.db.read(at_failure, trigger, project.id, session_id=own, hints=hints)
        return await self.at_prompt(trigger, project.id, seen_ids, session_id=own, root=root)

    async def _outline(self, trigger: Trigger, project: Project, root: str) -> list[Line]:
        """Return the outline of a file that is about to be read, unless that takes longer than a read may wait."""
        if not self.config.read_outlines or not at_tool.is_whole_read(trigger):
            return []
        try:
            outline = self.db.read(at_tool.outline_at_read, trigger, project, root)
            return await asyncio.wait_for(outline, COMMAND_SECONDS)
        except TimeoutError:
            return []

    async def at_prompt(
        self,
        trigger: Trigger,
        project_id: int,
        seen_ids: frozenset[str] = frozenset(),
        *,
        session_id: int = 0,
        root: str = "",
    ) -> Injection:
        """Return the injection for a prompt, without items of `seen_ids` or of the session itself."""
        return await triggers.inject_at_prompt(
            trigger,
            project_id,
            db=self.db,
            indexer=self.indexer,
            injected_names=seen_ids,
            icons=self.icons,
            session_id=session_id,
            root=root,
        )

    async def _injected_ids(self, trigger: Trigger, project_id: int, entry: SessionInjections) -> set[str]:
        """Return the ids injected into the session.

        If the worker did not serve its start, the hook used the file on disk: the current start context is assumed.
        """
        if not entry.is_loaded:
            entry.injected_ids |= await self.db.read(
                lambda tx: tx.journal.list_injected_items(trigger.host, trigger.content_session_id)
            )
            entry.is_loaded = True
        if "start" not in entry.injected_ids and trigger.kind not in AT_COMMAND:
            limit, budget = self.config.context_observations, self.config.context_tokens
            start = await self.db.read(brief.gather_memory, [project_id], limit=limit)
            if start:
                composed = await asyncio.to_thread(brief.compose_brief, start, budget_tokens=budget)
                entry.injected_ids.update((*composed.item_names, *composed.repeated_names))
            entry.injected_ids.add("start")
        return entry.injected_ids

    async def record_injection(self, trigger: Trigger, injection: Injection) -> None:
        """Record an injection after the response was sent: a busy database must not delay the session."""
        about = triggers.injected_file(injection)
        records = list(_records(injection, trigger=trigger.kind, now=ids.now_ms(), about=about))
        await self.db.write(_store_injection, trigger, injection, records, now=ids.now_ms())
        for record in records:
            await self._audit_injection(trigger.host, trigger.content_session_id, record)

    async def _audit_injection(self, host: str, content_session_id: str, record: InjectionRecord) -> None:
        """Write the ids of what was said to the audit log. Files are only counted, since their names may be
        confidential."""
        if record.held_out:
            return
        session = await self.db.read(lambda tx: tx.memory.find_session(host, content_session_id))
        numbers = [name for name in record.names if name[1:].isdigit()]
        await self.recorder.record(
            "injection",
            moment=record.trigger,
            session=session.id if session else None,
            names=numbers,
            others=len(record.names) - len(numbers),
            tokens=record.tokens,
        )

    # --- messages for the user -------------------------------------------------------------------------------

    async def notice(self) -> tuple[str, list[str]]:
        """Return the pending notices as one text, and their keys."""
        pending = await self.db.read(lambda tx: tx.journal.list_unshown_notices())
        messages = list(pending.values())
        account = await self.db.read(lambda tx: tx.journal.count_event_account(in_spool=0))
        if dead_count := account.set_aside_by.get("dead_job"):
            messages.append(f"claude-mem could not process {dead_count} events. `claude-mem doctor` shows why.")
        return " ".join(messages), list(pending)

    async def greeting(self, project: ResolvedProject) -> tuple[str, list[str]]:
        """Return a greeting once a day, otherwise "", and its key."""
        text = await self.db.read(_greeting, project, now=ids.now_ms()) if self.config.greeting else ""
        return text, [GREETING] if text else []


# --- database --------------------------------------------------------------------------------------------------------


def _store_start(
    tx: Transaction,
    session_key: tuple[str, str],
    records: Sequence[InjectionRecord],
    *,
    injection_ids: Sequence[str],
    is_new_conversation: bool,
    upto: int,
    notice_keys: Sequence[str],
    now: int,
) -> None:
    if is_new_conversation:
        tx.journal.clear_injected_items(*session_key)
    tx.journal.record_injected_items(*session_key, injection_ids, trigger="start", now=now)
    for record in records:
        tx.journal.add_injection_record(*session_key, record)
    if session := tx.memory.find_session(*session_key):
        tx.journal.record_informed_up_to(session.id, upto)
    tx.journal.mark_notices_shown(notice_keys, now=now)
    if GREETING in notice_keys:
        tx.journal.mark_greeted(now=now)


def _store_injection(
    tx: Transaction, trigger: Trigger, injection: Injection, records: Sequence[InjectionRecord], *, now: int
) -> None:
    session_key = (trigger.host, trigger.content_session_id)
    tx.journal.record_injected_items(*session_key, injection.item_names, trigger=trigger.kind, now=now)
    for record in records:
        tx.journal.add_injection_record(*session_key, record)


def _records(
    composed: Injection | ComposedContext, *, trigger: str, now: int, about: str = ""
) -> Iterator[InjectionRecord]:
    """Yield the records of an injection. Where moments may be held out, what is said in any case has its own record: it
    is no part of the comparison."""
    tokens, always_tokens = estimate_tokens(composed.text), estimate_tokens(composed.always_text)
    record = partial(InjectionRecord, trigger=trigger, at=now, about=about)
    if not composed.holdout:
        if composed.text:
            yield record(tokens=tokens, names=composed.item_names)
        return
    if composed.always_names:
        yield record(tokens=always_tokens, names=composed.always_names)
    if others := tuple(name for name in composed.item_names if name not in composed.always_names):
        yield record(
            tokens=0 if composed.held_out else max(0, tokens - always_tokens),
            names=others,
            holdout=composed.holdout,
            held_out=composed.held_out,
        )


def _greeting(tx: Transaction, project: ResolvedProject, *, now: int) -> str:
    """Return one line a day that tells the user that claude-mem works and how much it remembers."""
    before = tx.journal.get_greeted_at()
    if date.fromtimestamp(before / 1000) == date.fromtimestamp(now / 1000):
        return ""
    project_id = tx.memory.find_project_id(project)
    total, new = tx.memory.count_observations_since(project_id, before) if project_id else (0, 0)
    if not total:
        return "" if before else "claude-mem is on: the next session will remember what is done here."
    more = f", {new:,} of them new since {date.fromtimestamp(before / 1000):%d %b}" if before and new else ""
    return (
        f"claude-mem remembers {total:,} thing{'s' * (total != 1)} about {project.name}{more}. `claude-mem open` shows"
        f" {'them' if total != 1 else 'it'}."
    )
