"""Refines the draft of a turn with one bounded request to a model.

Refining cannot lose memory: whatever the model answers, or if it does not answer, the draft remains. There is one
exception: the draft of a turn that only answered a question is removed if the model read it and found nothing worth
remembering. Each step sends one request; `ACTIONS` defines the reaction to each verdict. A turn is attempted at most
three times in total, as counted by the ledger. A request is checked against the spending caps and booked in one
transaction before it is sent, so a cap is never exceeded by more than one request, even if a process is killed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from claude_mem.config import Config
from claude_mem.digest import provenance, request, writer
from claude_mem.digest.compress import store_digest
from claude_mem.digest.merge import ANSWER, add_pending, add_pending_repeats, merge_reply
from claude_mem.digest.models import base
from claude_mem.digest.models.base import Model, Reply, Request, SessionCallback, Usage, Verdict
from claude_mem.digest.models.chain import ProviderChain
from claude_mem.digest.modes import Mode
from claude_mem.digest.reply import ParsedReply, parse_reply
from claude_mem.domain import ids
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.records import Author, Digest, Job, StreamEvent, Turn
from claude_mem.domain.reports import RefiningState
from claude_mem.storage.base import Commit, Database, Transaction, write_nothing
from claude_mem.storage.journal_records import REFINE_JOB, UNSEEN_VERDICTS, Breaker, LedgerEntry, RefineAttempts
from claude_mem.storage.records import MemorySession
from claude_mem.system.failpoints import failpoint

log = logging.getLogger(__name__)

NO_TRIES = RefineAttempts()
MAX_AGE_MS = 3 * 86_400_000  # older drafts are not refined, unless the user asked for it
ON_REQUEST = "asked"
TRUSTED_WAITS = 5  # consecutive failures for which the provider's own waiting time is used
SECOND, HOUR = 1000, 3_600_000


@dataclass(frozen=True, slots=True)
class Action:
    """The reaction to a failure: whether the turn is retried, and how the circuit breaker counts it."""

    retry: bool
    opens_after: int = 0  # consecutive failures that open the breaker; 0: the failure is not the provider's
    first_pause_ms: int = 0  # doubles with each further failure, up to `longest_ms`
    longest_ms: int = 6 * HOUR


ACTIONS = {
    Verdict.UNPARSEABLE: Action(retry=True, opens_after=9, first_pause_ms=HOUR),  # three turns with three attempts each
    Verdict.TRUNCATED: Action(retry=True),
    Verdict.TOO_LONG: Action(retry=True),
    Verdict.REFUSED: Action(retry=False),
    Verdict.RATE_LIMITED: Action(retry=True, opens_after=1, first_pause_ms=60 * SECOND, longest_ms=HOUR),
    Verdict.TRANSIENT: Action(retry=True, opens_after=3, first_pause_ms=60 * SECOND, longest_ms=HOUR),
    Verdict.PERMANENT: Action(retry=False, opens_after=3, first_pause_ms=HOUR),
    Verdict.AUTH: Action(retry=True, opens_after=1, first_pause_ms=HOUR),
    Verdict.QUOTA: Action(retry=True, opens_after=1, first_pause_ms=HOUR),
}
_ADVICE = {
    Verdict.AUTH: "Check the key or log in again (`claude-mem doctor` shows the provider).",
    Verdict.QUOTA: "It is retried automatically; or choose another `provider`.",
    Verdict.PERMANENT: "Check `provider` and `model` (`claude-mem config`).",
    Verdict.UNPARSEABLE: "Check `provider` and `model` (`claude-mem config`); it is retried automatically.",
    Verdict.TRANSIENT: "It is retried automatically.",
    Verdict.RATE_LIMITED: "It is retried automatically, at growing intervals.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelExchange:
    """One request to a model and its result."""

    request: Request
    model: Model
    verdict: Verdict
    reply: Reply
    parsed: ParsedReply | None
    memory_session_id: str
    usage: Usage
    cost: int
    resumed: bool = False


async def _unrecorded(_: bytes, **__: object) -> None:
    """The default recorder, used in tests: records nothing."""


class Refiner:
    """Sends requests to models and stores the refined records. `runtime` identifies this run of the worker."""

    def __init__(self, db: Database, chain: ProviderChain, config: Config, mode: Mode, *, runtime: str) -> None:
        self.db = db
        self.chain = chain
        self.config = config
        self.runtime = runtime
        self.outgoing_recorder: Callable[..., Awaitable[None]] = _unrecorded
        self.must_not_resume: set[int] = set()  # sessions whose next request starts a new conversation
        self.options = request.RequestOptions(
            mode=mode,
            verbosity=config.verbosity,
            language=config.language,
            request_tokens=config.request_tokens,
        )

    async def load(self, turn_id: int) -> Turn | None:
        """Return a turn with the setting `foreign_text` applied; None if the turn no longer exists."""
        turn = await self.db.read(lambda tx: tx.journal.load_turn(turn_id))
        return replace(turn, foreign_text=self.config.foreign_text) if turn else None

    def is_available(self) -> bool:
        """Return whether the settings allow requests and there may be a model."""
        return self.config.daily_tokens > 0 and self.chain.is_available()

    async def refine(self, job: Job) -> Commit:
        """Run one refine job: the stage of the job queue."""
        turn_id, seq, *flags = job.subject.split(".")
        turn = await self.load(int(turn_id))
        if turn is None or not turn.bodies or str(turn.newest_seq) != seq:
            return write_nothing  # deleted, or it has grown: then another job refines it
        tries = await self.db.read(lambda tx: tx.journal.get_refine_attempts(turn.id))
        if not tries.may_retry or (ids.now_ms() - turn.ended_at > MAX_AGE_MS and ON_REQUEST not in flags):
            return write_nothing
        models = await self.chain.models()
        model, until = await self._choose_model(models, tries)
        if model is None:
            return partial(_postpone, job, until) if until else write_nothing
        exchange = await self.ask(turn, model, tries, purpose="refine")
        if isinstance(exchange, BudgetRefusal):
            return partial(_over_budget, job, exchange)
        settled_keys = await self.db.read(lambda tx: tx.memory.list_user_owned_keys(turn.id))
        read_external = exchange.resumed and await self.db.read(
            lambda tx: tx.journal.has_external_read(since=0, session_id=turn.session_id)
        )
        digest = await asyncio.to_thread(merge_exchange, turn, exchange, settled_keys, read_external=read_external)
        return partial(
            self._store_result,
            job=job,
            turn=turn,
            exchange=exchange,
            digest=digest,
            settled_keys=settled_keys,
            has_others=len(models) > 1,
        )

    async def _choose_model(self, models: Sequence[Model], tries: RefineAttempts) -> tuple[Model | None, int]:
        """Return the first model whose circuit breaker is closed, or (None, time when the first breaker closes).

        Without any model, that time is 0. The provider that failed at this turn last is tried last.
        """
        now, until = ids.now_ms(), 0
        for model in sorted(models, key=lambda model: model.provider == tries.last_provider):
            breaker = await self.db.read(lambda tx, model: tx.journal.get_breaker(model.provider), model)
            if breaker.until <= now or breaker.settings != self.chain.fingerprint(model):
                return model, 0
            until = min(until or breaker.until, breaker.until)
        return None, until

    async def status(self, now: int) -> RefiningState:
        """Return the state of refining: providers, spending against the caps, and open circuit breakers."""
        today = await self.db.read(lambda tx: tx.journal.get_spending_since(since=to_ms(day_start(now))))
        month = await self.db.read(lambda tx: tx.journal.get_spending_since(since=to_ms(month_start(now))))
        return RefiningState(
            providers=[f"{model.provider} {model.model}".strip() for model in await self.chain.models()],
            today_tokens=today.tokens,
            daily_tokens=self.config.daily_tokens,
            month_cost=month.cost,
            monthly_cost=round(self.config.monthly_cost * 1_000_000),
            waiting=await self.db.read(lambda tx: tx.journal.count_jobs(REFINE_JOB)),
            paused=await self.db.read(lambda tx: tx.journal.list_breakers()),
            prices_problem=str(self.chain.prices.problem or ""),
            problem=await self.chain.problem(),
        )

    # --- sending requests --------------------------------------------------------------------------------------------

    async def prepare(self, turn: Turn, tries: RefineAttempts = NO_TRIES, *, project: str = "") -> Request:
        """Build the request for a turn, adapted to the verdicts of earlier attempts."""
        known_titles = await self.db.read(
            lambda tx: tx.memory.list_earlier_titles(turn, limit=3 * request.MAX_KNOWN_TITLES)
        )
        row = await self.db.read(lambda tx: tx.memory.find_project(turn.project_id))
        name = project or (row.name if row else "unknown")
        strict = tries.verdicts[-1:] == (Verdict.UNPARSEABLE,)
        options = _shrunk(self.options, tries.verdicts)
        return await asyncio.to_thread(
            request.build_request, turn, options, project=name, known_titles=known_titles, strict=strict
        )

    async def ask(
        self,
        turn: Turn,
        model: Model,
        tries: RefineAttempts = NO_TRIES,
        *,
        purpose: str,
        prepared: Request | None = None,
    ) -> ModelExchange | BudgetRefusal:
        """Reserve the maximum cost in the ledger, send the request, then book the actual cost."""
        model_request = prepared or await self.prepare(turn, tries)
        resume_session_id, history = await self._session_to_resume(turn, model, request.max_total_tokens(model_request))
        entry = self._ledger_entry(turn, model, model_request, purpose, history)
        entry_id = await self.db.write(reserve, entry, self.config, now=ids.now_ms())
        if isinstance(entry_id, BudgetRefusal):
            return entry_id
        failpoint("refine.booked")
        session_ids: list[str] = []

        async def record_session(memory_session_id: str) -> None:
            session_ids.append(memory_session_id)
            await self.db.write(self._record_session, turn, model, memory_session_id, entry_id)

        answer = await self._send(turn, model, model_request, resume=resume_session_id, on_session=record_session)
        failpoint("refine.answered")
        parsed = self._parse(answer, model_request)
        usage = answer.usage or _assumed_usage(answer.verdict, entry)
        exchange = ModelExchange(
            request=model_request,
            model=model,
            verdict=parsed.verdict if parsed else answer.verdict,
            reply=answer,
            parsed=parsed,
            memory_session_id=session_ids[-1] if session_ids else "",
            usage=usage,
            cost=self.chain.price(model).cost(usage),
            resumed=bool(resume_session_id),
        )
        await self.db.write(_book, entry_id, exchange, now=ids.now_ms())
        failpoint("refine.closed")
        self._update_must_not_resume(turn, exchange)
        await self.chain.tidy(
            keep=await self.db.read(lambda tx: tx.journal.list_resumable_memory_sessions(self.runtime))
        )
        return exchange

    async def _send(
        self, turn: Turn, model: Model, model_request: Request, *, resume: str, on_session: SessionCallback
    ) -> Reply:
        """Send a request. It is recorded before it is sent, and not sent if it cannot be recorded."""

        async def record(body: bytes) -> None:
            await self.outgoing_recorder(
                body,
                provider=model.provider,
                model=model.model,
                session=turn.session_id or None,
                turn=turn.id or None,
                redacted=model_request.prompt.lower().count("[redacted"),
            )

        token = base.outgoing_recorder.set(record)
        try:
            return await model.ask(model_request, resume=resume, on_session=on_session)
        except OperationFailed as problem:
            return Reply(verdict=Verdict.TRANSIENT, message=f"not sent: {problem}", usage=Usage())
        finally:
            base.outgoing_recorder.reset(token)

    def _ledger_entry(
        self, turn: Turn, model: Model, model_request: Request, purpose: str, history: int
    ) -> LedgerEntry:
        max_usage = Usage(
            input_tokens=request.max_total_tokens(model_request) - model_request.max_tokens + history,
            output_tokens=model_request.max_tokens,
        )
        return LedgerEntry(
            purpose=purpose,
            session_id=turn.session_id or None,
            turn_id=turn.id or None,
            project_id=turn.project_id or None,
            provider=model.provider,
            model=model.model,
            input_tokens=max_usage.input_tokens,
            output_tokens=max_usage.output_tokens,
            cost=self.chain.price(model).cost(max_usage),
        )

    def _parse(self, answer: Reply, model_request: Request) -> ParsedReply | None:
        mode = self.options.mode
        if answer.verdict is not Verdict.OK:
            return None
        return parse_reply(answer.text, model_request, types=tuple(mode.types), concepts=tuple(mode.concepts))

    # --- the model's own sessions ------------------------------------------------------------------------------------

    async def _session_to_resume(self, turn: Turn, model: Model, size: int) -> tuple[str, int]:
        """Return the model's session to resume and the tokens of its history, or ("", 0)."""
        if not self.config.claude_resume or model.provider != "claude" or not turn.session_id:
            return "", 0
        memory = await self.db.read(lambda tx: tx.journal.find_memory_session(turn.session_id))
        if memory is not None and memory.provider != model.provider:
            memory = None
        session_id = session_to_resume(
            memory,
            runtime=self.runtime,
            prompt_number=turn.number,
            must_restart=turn.session_id in self.must_not_resume,
        )
        history = await self.db.read(lambda tx: tx.journal.count_session_tokens(session_id)) if session_id else 0
        return (session_id, history) if history + size <= self.config.request_tokens else ("", 0)

    def _record_session(self, tx: Transaction, turn: Turn, model: Model, memory_session_id: str, entry_id: int) -> None:
        tx.journal.set_entry_memory_session(entry_id, memory_session_id)
        if turn.session_id:
            now = ids.now_ms()
            tx.journal.record_memory_session(
                turn.session_id, memory_session_id, provider=model.provider, runtime=self.runtime, now=now
            )

    def _update_must_not_resume(self, turn: Turn, exchange: ModelExchange) -> None:
        """After a failure that a long conversation may have caused, make the next request begin a new one."""
        if exchange.verdict in (Verdict.TOO_LONG, Verdict.TRUNCATED, Verdict.PERMANENT):
            self.must_not_resume.add(turn.session_id)
        elif exchange.memory_session_id:
            self.must_not_resume.discard(turn.session_id)

    # --- storing the result ------------------------------------------------------------------------------------------

    def _store_result(
        self,
        tx: Transaction,
        *,
        job: Job,
        turn: Turn,
        exchange: ModelExchange,
        digest: Digest | None,
        settled_keys: frozenset[str],
        has_others: bool,
    ) -> Sequence[StreamEvent]:
        now, provider = ids.now_ms(), exchange.model.provider
        if digest is not None:
            tx.journal.reset_breaker(provider)
            tx.journal.clear_notices(f"refine:{provider}:")
            return self._store_digest(tx, turn, exchange, digest, settled_keys, now=now)
        action = ACTIONS[exchange.verdict]
        log.warning("%s could not refine turn %d: %s: %s", provider, turn.id, exchange.verdict, _failure_text(exchange))
        if action.opens_after:
            self._count_failure(tx, exchange, action, now=now)
        tries = tx.journal.get_refine_attempts(turn.id)
        if tries.may_retry and (action.retry or _may_succeed_elsewhere(exchange, has_others=has_others)):
            due = now + retry_delay_ms(len(tries.verdicts))
            tx.journal.enqueue_job(REFINE_JOB, job.subject, now=now, due=due)
        return ()

    def _store_digest(
        self,
        tx: Transaction,
        turn: Turn,
        exchange: ModelExchange,
        digest: Digest,
        settled_keys: frozenset[str],
        *,
        now: int,
    ) -> Sequence[StreamEvent]:
        """Store the digest, unless the turn changed during the request: new events, a correction or a deletion."""
        is_outdated = not tx.journal.is_turn_current(turn) or tx.memory.list_user_owned_keys(turn.id) != settled_keys
        if is_outdated:
            return ()
        if exchange.verdict is Verdict.EMPTY:
            self._drop_answer(tx, turn, digest, now=now)
            return ()
        author = replace(digest.author, memory_session_id=self._author_session_id(tx, turn, exchange))
        return store_digest(tx, turn, replace(digest, author=author), now=now)

    def _drop_answer(self, tx: Transaction, turn: Turn, digest: Digest, *, now: int) -> None:
        """Remove the draft of a mere answer in which the model found nothing. Drafts with evidence stay."""
        has_answer = any(draft.key == ANSWER for draft in digest.observations)
        if not has_answer and tx.memory.delete_local_draft(turn.id, ANSWER):
            tx.journal.enqueue_job("render", f"{turn.project_id}.{turn.id}.{turn.newest_seq}", now=now)

    def _author_session_id(self, tx: Transaction, turn: Turn, exchange: ModelExchange) -> str:
        """Return the id of the model's own session. A model without sessions gets one generated id per session."""
        if exchange.memory_session_id:
            return exchange.memory_session_id
        memory, provider = tx.journal.find_memory_session(turn.session_id), exchange.model.provider
        if memory is not None and memory.provider == provider:
            return memory.id
        memory_session_id = f"{provider}-{turn.session_id}-{ids.now_ms()}"
        tx.journal.record_memory_session(
            turn.session_id, memory_session_id, provider=provider, runtime=self.runtime, now=ids.now_ms()
        )
        return memory_session_id

    def _count_failure(self, tx: Transaction, exchange: ModelExchange, action: Action, *, now: int) -> None:
        """Count the failure. After enough of them, open the circuit breaker and add a notice for the user."""
        provider, settings = exchange.model.provider, self.chain.fingerprint(exchange.model)
        previous = tx.journal.get_breaker(provider)
        failures = previous.failures + 1 if previous.settings == settings else 1
        pause = breaker_pause_ms(action, failures, exchange.reply.retry_seconds)
        is_open = failures >= action.opens_after or previous.until > 0  # a failed probe opens it again
        tx.journal.save_breaker(
            Breaker(
                provider=provider,
                failures=failures,
                until=now + pause if is_open else 0,
                verdict=exchange.verdict,
                message=_failure_text(exchange),
                settings=settings,
            ),
        )
        if is_open and (exchange.verdict is not Verdict.RATE_LIMITED or failures > TRUSTED_WAITS):
            tx.journal.add_notice(f"refine:{provider}:{exchange.verdict}", _notice(provider, exchange), now=now)


def _may_succeed_elsewhere(exchange: ModelExchange, *, has_others: bool) -> bool:
    """Return whether another provider or a new conversation may avoid a permanent failure."""
    return exchange.verdict is Verdict.PERMANENT and (has_others or exchange.reply.message.startswith("resume:"))


def session_to_resume(memory: MemorySession | None, *, runtime: str, prompt_number: int, must_restart: bool) -> str:
    """Return the session to resume: only one captured in this run of the worker, and never for a first prompt."""
    if memory is None or memory.runtime != runtime or prompt_number <= 1 or must_restart:
        return ""
    return memory.id


def breaker_pause_ms(action: Action, failures: int, retry_seconds: float | None) -> int:
    """Return the pause the provider asked for; if it names none, or fails repeatedly, a pause that keeps growing."""
    requested_ms = int((retry_seconds or 0) * SECOND)
    if requested_ms and failures <= TRUSTED_WAITS:
        return requested_ms
    times: int = min(max(failures - max(action.opens_after, TRUSTED_WAITS if requested_ms else 0), 0), 20)
    return max(requested_ms, min(action.first_pause_ms << times, action.longest_ms))


def retry_delay_ms(tries: int) -> int:
    """Return the delay before the next attempt: growing, with jitter."""
    return int(SECOND * 4 ** min(tries, 5) * random.uniform(0.5, 1.0))  # noqa: S311 -- not a secret


def _shrunk(options: request.RequestOptions, tries: Sequence[str]) -> request.RequestOptions:
    """After a request or an answer that was too long, halve the limit and ask for a shorter answer."""
    times = tries.count(Verdict.TOO_LONG) + tries.count(Verdict.TRUNCATED)
    if not times:
        return options
    smaller = max(options.request_tokens >> times, request.MIN_REQUEST_TOKENS)
    return replace(options, request_tokens=smaller, verbosity="minimal")


def _assumed_usage(verdict: Verdict, entry: LedgerEntry) -> Usage:
    """Return the usage to book if none was reported: zero if the request was rejected unread, else the maximum."""
    if verdict in UNSEEN_VERDICTS or verdict in (Verdict.TOO_LONG, Verdict.PERMANENT):
        return Usage()
    return Usage(input_tokens=entry.input_tokens, output_tokens=entry.output_tokens)


def _failure_text(exchange: ModelExchange) -> str:
    return (exchange.parsed.message if exchange.parsed else "") or exchange.reply.message


def _notice(provider: str, exchange: ModelExchange) -> str:
    reason = _failure_text(exchange) or exchange.verdict
    advice = _ADVICE.get(exchange.verdict, "")
    return f"claude-mem: {provider} no longer refines memory ({reason}). Drafts are still stored. {advice}".strip()


# --- spending caps ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """A request that would exceed a cap: the reason, for display, and when to try again."""

    reason: str
    until: int
    key: str  # of the notice, which is shown once a month, not every day


def reserve(tx: Transaction, entry: LedgerEntry, config: Config, *, now: int) -> int | BudgetRefusal:
    """Book the maximum cost of the request. Returns the id of the ledger entry, or the refusal."""
    today, month = day_start(now), month_start(now)
    tokens = tx.journal.get_spending_since(since=to_ms(today)).tokens + entry.input_tokens + entry.output_tokens
    if tokens > config.daily_tokens:
        reason = f"another request would exceed today's {config.daily_tokens:,} tokens (`daily_tokens`)"
        return BudgetRefusal(reason, to_ms(next_day(today)), f"daily:{month:%Y-%m}")
    cost = tx.journal.get_spending_since(since=to_ms(month)).cost + entry.cost
    if entry.cost and cost > config.monthly_cost * 1_000_000:
        reason = f"another request would exceed this month's ${config.monthly_cost:g} (`monthly_cost`)"
        return BudgetRefusal(reason, to_ms(next_month(month)), f"monthly:{month:%Y-%m}")
    return tx.journal.open_ledger_entry(entry, now=now)


def day_start(now: int) -> datetime:
    """Return local midnight as a naive datetime: with daylight saving, its UTC offset may differ from the present
    one."""
    return datetime.fromtimestamp(now / 1000).replace(hour=0, minute=0, second=0, microsecond=0)


def month_start(now: int) -> datetime:
    """Return local midnight of the first day of the month."""
    return day_start(now).replace(day=1)


def next_day(day: datetime) -> datetime:
    """Return the start of the next day."""
    return day + timedelta(days=1)


def next_month(month: datetime) -> datetime:
    """Return the start of the next month."""
    return (month + timedelta(days=32)).replace(day=1)


def to_ms(moment: datetime) -> int:
    """Return a naive local time in milliseconds since 1970, UTC."""
    return int(moment.timestamp() * 1000)


# --- database writes -------------------------------------------------------------------------------------------------


def _book(tx: Transaction, entry_id: int, exchange: ModelExchange, *, now: int) -> None:
    usage = exchange.usage
    tx.journal.close_ledger_entry(
        entry_id, verdict=exchange.verdict, message=_failure_text(exchange), model=exchange.reply.model, now=now
    )
    tx.journal.record_actual_usage(
        entry_id,
        input_tokens=usage.input_tokens,
        cached=usage.cached_tokens,
        written=usage.written_tokens,
        output_tokens=usage.output_tokens,
        cost=exchange.cost,
    )


def _postpone(job: Job, until: int, tx: Transaction) -> Sequence[StreamEvent]:
    tx.journal.enqueue_job(REFINE_JOB, job.subject, now=ids.now_ms(), due=until)
    return ()


def _over_budget(job: Job, refused: BudgetRefusal, tx: Transaction) -> Sequence[StreamEvent]:
    text = f"claude-mem: memory is stored but not refined: {refused.reason}. `claude-mem cost` shows the details."
    tx.journal.add_notice(f"budget:{refused.key}", text, now=ids.now_ms())
    return _postpone(job, refused.until, tx)


def merge_exchange(
    turn: Turn, exchange: ModelExchange, settled_keys: frozenset[str] = frozenset(), *, read_external: bool = False
) -> Digest | None:
    """Return the digest to store after this reply; None if the reply was not usable.

    Records that a person corrected or deleted (`settled_keys`) are not written again. The digest gets the lowest trust
    of everything the model was shown and of its own text.
    """
    if exchange.parsed is None or exchange.verdict not in (Verdict.OK, Verdict.EMPTY):
        return None
    author = Author(exchange.model.provider, exchange.reply.model or exchange.model.model)
    draft = writer.compose_digest(turn)
    if taint := provenance.find_taint(turn) or provenance.find_reply_taint(
        exchange.parsed, exchange.reply.text, outside=read_external
    ):
        return add_pending(turn, draft, exchange.parsed, author, taint, settled=settled_keys)
    if foreign := provenance.find_foreign_text(turn):
        remainder, repeats = provenance.split_repeats(exchange.parsed, foreign)
        digest = merge_reply(turn, draft, remainder, author, settled=settled_keys)
        return add_pending_repeats(turn, digest, repeats, foreign, settled=settled_keys)
    return merge_reply(turn, draft, exchange.parsed, author, settled=settled_keys)
