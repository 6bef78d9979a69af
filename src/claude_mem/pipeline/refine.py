"""Turn → one bounded request → the draft in better words. Nothing here can cost a memory: whatever the model answers,
or whether it answers at all, the draft stands. Only the draft of a mere answer, in words alone, goes where a model has
read it and finds nothing worth keeping.

One request a step. How each verdict is met stands in `ACTIONS`; a turn is attempted at most three times ever, counted
by the ledger, which is written before a request is sent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from claude_mem import ids
from claude_mem.config import Config
from claude_mem.errors import CannotDo
from claude_mem.failpoints import failpoint
from claude_mem.modes import Mode
from claude_mem.pipeline import budget
from claude_mem.pipeline.budget import Refused
from claude_mem.pipeline.compress import keep
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.providers import base, local, request, trust
from claude_mem.providers.base import Captured, Model, Reply, Request, Usage, Verdict
from claude_mem.providers.chain import Chain
from claude_mem.providers.merge import ANSWER, beside, merge, with_repeats
from claude_mem.providers.reply import Read, read
from claude_mem.records import Author, Digest, Job, News, Turn
from claude_mem.store import breakers, events, jobs, ledger, notices, observations, projects, sessions, turns
from claude_mem.store.breakers import Breaker
from claude_mem.store.database import Connection, Database, Row
from claude_mem.store.sessions import MemorySession

log = logging.getLogger(__name__)

NO_TRIES = ledger.Tries()
MAX_AGE_MS = 3 * 86_400_000  # then the draft is what there is, unless a person has asked for more
ASKED = "asked"
PATIENCE = 5  # failures in a row for which a provider may say how long to wait
SECOND, HOUR = 1000, 3_600_000


@dataclass(frozen=True, slots=True)
class Action:
    """What a failure means: is the turn tried again, and how long is the provider left alone?"""

    again: bool
    opens_after: int = 0  # failures in a row that open the breaker; 0: it says nothing about the provider
    pause_ms: int = 0  # doubled with each failure more, up to `longest_ms`
    longest_ms: int = 6 * HOUR


ACTIONS = {
    Verdict.UNPARSEABLE: Action(again=True, opens_after=9, pause_ms=HOUR),  # three turns with three attempts each
    Verdict.TRUNCATED: Action(again=True),
    Verdict.TOO_LONG: Action(again=True),
    Verdict.REFUSED: Action(again=False),
    Verdict.RATE_LIMITED: Action(again=True, opens_after=1, pause_ms=60 * SECOND, longest_ms=HOUR),
    Verdict.TRANSIENT: Action(again=True, opens_after=3, pause_ms=60 * SECOND, longest_ms=HOUR),
    Verdict.PERMANENT: Action(again=False, opens_after=3, pause_ms=HOUR),
    Verdict.AUTH: Action(again=True, opens_after=1, pause_ms=HOUR),
    Verdict.QUOTA: Action(again=True, opens_after=1, pause_ms=HOUR),
}
_WHAT_NOW = {
    Verdict.AUTH: "Check the key or log in again (`claude-mem doctor` shows the provider).",
    Verdict.QUOTA: "It is tried again by itself; or choose another `provider`.",
    Verdict.PERMANENT: "Check `provider` and `model` (`claude-mem config`).",
    Verdict.UNPARSEABLE: "Check `provider` and `model` (`claude-mem config`); it is tried again by itself.",
    Verdict.TRANSIENT: "It is tried again by itself.",
    Verdict.RATE_LIMITED: "It is tried again by itself, less and less often.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request and what came of it."""

    request: Request
    model: Model
    verdict: Verdict
    reply: Reply
    read: Read | None
    memory_session_id: str
    usage: Usage
    cost: int
    resumed: bool = False


async def _unrecorded(_: bytes, **__: object) -> None:
    """Where there is no one to keep a record: in tests."""


class Refiner:
    """Everything refining needs. `runtime` names this life of the worker."""

    async def load(self, turn_id: int) -> Turn | None:
        """Return a turn as the settings want it to be judged; None if it has vanished."""
        turn = await self.db.read(turns.load, turn_id)
        return replace(turn, foreign_text=self.config.foreign_text) if turn else None

    def __init__(self, db: Database, chain: Chain, config: Config, mode: Mode, *, runtime: str) -> None:
        self.db = db
        self.chain = chain
        self.config = config
        self.runtime = runtime
        self.leaving: Callable[..., Awaitable[None]] = _unrecorded
        self.forced: set[int] = set()  # sessions whose next request must not resume
        self.wanted = request.Wanted(
            mode=mode,
            verbosity=config.verbosity,
            language=config.language,
            request_tokens=config.request_tokens,
        )

    def possible(self) -> bool:
        return self.config.daily_tokens > 0 and self.chain.possible()

    async def refine(self, job: Job) -> Commit:
        """The stage."""
        turn_id, seq, *asked_for = job.subject.split(".")
        turn = await self.load(int(turn_id))
        if turn is None or not turn.bodies or str(turn.newest_seq) != seq:
            return nothing  # gone, or grown: then another job asks for it
        tries = await self.db.read(ledger.tries, turn.id)
        if not tries.left or (ids.now() - turn.ended_at > MAX_AGE_MS and ASKED not in asked_for):
            return nothing
        models = await self.chain.models()
        model, until = await self._choose(models, tries)
        if model is None:
            return partial(_later, job, until) if until else nothing
        asked = await self.ask(turn, model, tries, purpose="refine")
        if isinstance(asked, Refused):
            return partial(_over_budget, job, asked)
        settled = await self.db.read(observations.settled, turn.id)
        outside = asked.resumed and await self.db.read(events.read_outside, since=0, session_id=turn.session_id)
        made = await asyncio.to_thread(merged, turn, asked, settled, outside=outside)
        return partial(
            self._settle, job=job, turn=turn, asked=asked, made=made, settled=settled, others=len(models) > 1
        )

    async def _choose(self, models: Sequence[Model], tries: ledger.Tries) -> tuple[Model | None, int]:
        """The first provider that is not left alone, one that has just failed at this turn last; or until when."""
        now, until = ids.now(), 0
        for model in sorted(models, key=lambda model: model.provider == tries.last_provider):
            breaker = await self.db.read(breakers.get, model.provider)
            if breaker.until <= now or breaker.settings != self.chain.fingerprint(model):
                return model, 0
            until = min(until or breaker.until, breaker.until)
        return None, until

    async def standing(self, now: int) -> Row:
        """Where refining stands: who is asked, what is spent of what may be, who is left alone and why."""
        today = await self.db.read(ledger.spent, since=budget.ms(budget.day_start(now)))
        month = await self.db.read(ledger.spent, since=budget.ms(budget.month_start(now)))
        return {
            "providers": [f"{model.provider} {model.model}".strip() for model in await self.chain.models()],
            "today_tokens": today.tokens,
            "daily_tokens": self.config.daily_tokens,
            "month_cost": month.cost,
            "monthly_cost": round(self.config.monthly_cost * 1_000_000),
            "waiting": await self.db.read(jobs.count, jobs.REFINE),
            "paused": await self.db.read(breakers.listing),
            "prices_problem": str(self.chain.prices.problem or ""),
            "problem": await self.chain.problem(),
        }

    # --- asking ------------------------------------------------------------------------------------------------------

    async def prepare(self, turn: Turn, tries: ledger.Tries = NO_TRIES, *, project: str = "") -> Request:
        known = await self.db.read(observations.titles_before, turn, limit=3 * request.MOST_KNOWN)
        row = await self.db.read(projects.get, turn.project_id)
        name = project or (row["name"] if row else "unknown")
        strict = tries.verdicts[-1:] == (Verdict.UNPARSEABLE,)
        wanted = _shrunk(self.wanted, tries.verdicts)
        return await asyncio.to_thread(request.build, turn, wanted, project=name, known=known, strict=strict)

    async def ask(
        self,
        turn: Turn,
        model: Model,
        tries: ledger.Tries = NO_TRIES,
        *,
        purpose: str,
        prepared: Request | None = None,
    ) -> Asked | Refused:
        """Book it, send it, book what it really cost."""
        sent = prepared or await self.prepare(turn, tries)
        memory, history = await self._resumable(turn, model, request.size(sent))
        entry = self._entry(turn, model, sent, purpose, history)
        booked = await self.db.write(budget.reserve, entry, self.config, now=ids.now())
        if isinstance(booked, Refused):
            return booked
        failpoint("refine.booked")
        captured: list[str] = []

        async def note(memory_session_id: str) -> None:
            captured.append(memory_session_id)
            await self.db.write(self._capture, turn, model, memory_session_id, booked)

        answer = await self._send(turn, model, sent, resume=memory, captured=note)
        failpoint("refine.answered")
        told = self._read(answer, sent)
        usage = answer.usage or _unknown(answer.verdict, entry)
        asked = Asked(
            request=sent,
            model=model,
            verdict=told.verdict if told else answer.verdict,
            reply=answer,
            read=told,
            memory_session_id=captured[-1] if captured else "",
            usage=usage,
            cost=self.chain.price(model).cost(usage),
            resumed=bool(memory),
        )
        await self.db.write(_book, booked, asked, now=ids.now())
        failpoint("refine.closed")
        self._note_session(turn, asked)
        await self.chain.tidy(keep=await self.db.read(sessions.resumable, self.runtime))
        return asked

    async def _send(self, turn: Turn, model: Model, sent: Request, *, resume: str, captured: Captured) -> Reply:
        """On record before it leaves; what can't be put on record does not leave."""

        async def leaving(body: bytes) -> None:
            await self.leaving(
                body,
                provider=model.provider,
                model=model.model,
                session=turn.session_id or None,
                turn=turn.id or None,
                redacted=sent.prompt.lower().count("[redacted"),
            )

        before = base.leaving.set(leaving)
        try:
            return await model.ask(sent, resume=resume, captured=captured)
        except CannotDo as problem:
            return Reply(verdict=Verdict.TRANSIENT, message=f"not sent: {problem}", usage=Usage())
        finally:
            base.leaving.reset(before)

    def _entry(self, turn: Turn, model: Model, sent: Request, purpose: str, history: int) -> ledger.Entry:
        most = Usage(input_tokens=request.size(sent) - sent.max_tokens + history, output_tokens=sent.max_tokens)
        return ledger.Entry(
            purpose=purpose,
            session_id=turn.session_id or None,
            turn_id=turn.id or None,
            project_id=turn.project_id or None,
            provider=model.provider,
            model=model.model,
            input_tokens=most.input_tokens,
            output_tokens=most.output_tokens,
            cost=self.chain.price(model).cost(most),
        )

    def _read(self, answer: Reply, sent: Request) -> Read | None:
        mode = self.wanted.mode
        if answer.verdict is not Verdict.OK:
            return None
        return read(answer.text, sent, types=tuple(mode.types), concepts=tuple(mode.concepts))

    # --- sessions of the model's own ---------------------------------------------------------------------------------

    async def _resumable(self, turn: Turn, model: Model, size: int) -> tuple[str, int]:
        """The session to go on with and the tokens it will read again; or neither."""
        if not self.config.claude_resume or model.provider != "claude" or not turn.session_id:
            return "", 0
        memory = await self.db.read(sessions.memory, turn.session_id)
        if memory is not None and memory.provider != model.provider:
            memory = None
        chosen = resume_id(
            memory, runtime=self.runtime, prompt_number=turn.number, forced=turn.session_id in self.forced
        )
        history = await self.db.read(ledger.history, chosen) if chosen else 0
        return (chosen, history) if history + size <= self.config.request_tokens else ("", 0)

    def _capture(self, conn: Connection, turn: Turn, model: Model, memory_session_id: str, entry_id: int) -> None:
        ledger.name_session(conn, entry_id, memory_session_id)
        if turn.session_id:
            now = ids.now()
            sessions.capture(
                conn, turn.session_id, memory_session_id, provider=model.provider, runtime=self.runtime, now=now
            )

    def _note_session(self, turn: Turn, asked: Asked) -> None:
        """After a failure that a long conversation may have caused, the next request begins a new one."""
        if asked.verdict in (Verdict.TOO_LONG, Verdict.TRUNCATED, Verdict.PERMANENT):
            self.forced.add(turn.session_id)
        elif asked.memory_session_id:
            self.forced.discard(turn.session_id)

    # --- what comes of it --------------------------------------------------------------------------------------------

    def _settle(
        self,
        conn: Connection,
        *,
        job: Job,
        turn: Turn,
        asked: Asked,
        made: Digest | None,
        settled: frozenset[str],
        others: bool,
    ) -> Sequence[News]:
        now, provider = ids.now(), asked.model.provider
        if made is not None:
            breakers.reset(conn, provider)
            notices.clear(conn, f"refine:{provider}:")
            return self._keep(conn, turn, asked, made, settled, now=now)
        action = ACTIONS[asked.verdict]
        log.warning("%s could not refine turn %d: %s: %s", provider, turn.id, asked.verdict, _why(asked))
        if action.opens_after:
            self._break(conn, asked, action, now=now)
        tries = ledger.tries(conn, turn.id)
        if tries.left and (action.again or _is_another_way(asked, others=others)):
            due = now + back_off_ms(len(tries.verdicts))
            jobs.ask(conn, jobs.REFINE, job.subject, now=now, due=due)
        return ()

    def _keep(
        self, conn: Connection, turn: Turn, asked: Asked, made: Digest, settled: frozenset[str], *, now: int
    ) -> Sequence[News]:
        """Unless something has changed meanwhile: more came in, or a person has corrected or forgotten a part."""
        stale = not turns.is_current(conn, turn) or observations.settled(conn, turn.id) != settled
        if stale:
            return ()
        if asked.verdict is Verdict.EMPTY:
            self._drop_answer(conn, turn, made, now=now)
            return ()
        named = replace(made.author, memory_session_id=self._author(conn, turn, asked))
        return keep(conn, turn, replace(made, author=named), now=now)

    def _drop_answer(self, conn: Connection, turn: Turn, made: Digest, *, now: int) -> None:
        """A model that finds nothing worth keeping in an answer is right; what rests on evidence stays."""
        kept = any(draft.key == ANSWER for draft in made.observations)
        if not kept and observations.drop_draft(conn, turn.id, ANSWER):
            jobs.ask(conn, "render", f"{turn.project_id}.{turn.id}.{turn.newest_seq}", now=now)

    def _author(self, conn: Connection, turn: Turn, asked: Asked) -> str:
        """The model's own session. One that keeps none is given one name for the whole session."""
        if asked.memory_session_id:
            return asked.memory_session_id
        memory, provider = sessions.memory(conn, turn.session_id), asked.model.provider
        if memory is not None and memory.provider == provider:
            return memory.id
        made = f"{provider}-{turn.session_id}-{ids.now()}"
        sessions.capture(conn, turn.session_id, made, provider=provider, runtime=self.runtime, now=ids.now())
        return made

    def _break(self, conn: Connection, asked: Asked, action: Action, *, now: int) -> None:
        """Count the failure; when there are enough of them, leave the provider alone and tell people."""
        provider, settings = asked.model.provider, self.chain.fingerprint(asked.model)
        before = breakers.get(conn, provider)
        failures = before.failures + 1 if before.settings == settings else 1
        pause = pause_ms(action, failures, asked.reply.retry_seconds)
        opened = failures >= action.opens_after or before.until > 0  # a failed probe closes the door again
        breakers.put(
            conn,
            Breaker(
                provider=provider,
                failures=failures,
                until=now + pause if opened else 0,
                verdict=asked.verdict,
                message=_why(asked),
                settings=settings,
            ),
        )
        if opened and (asked.verdict is not Verdict.RATE_LIMITED or failures > PATIENCE):
            notices.put(conn, f"refine:{provider}:{asked.verdict}", _notice(provider, asked), now=now)


def _is_another_way(asked: Asked, *, others: bool) -> bool:
    """What is final for one provider need not be for the next, nor for a new conversation with the same."""
    return asked.verdict is Verdict.PERMANENT and (others or asked.reply.message.startswith("resume:"))


def resume_id(memory: MemorySession | None, *, runtime: str, prompt_number: int, forced: bool) -> str:
    """Go on only with a captured session of the model's own, of this very runtime, and never at a first prompt."""
    if memory is None or memory.runtime != runtime or prompt_number <= 1 or forced:
        return ""
    return memory.id


def pause_ms(action: Action, failures: int, asked_seconds: float | None) -> int:
    """As long as the provider asks for; where it does not say, or says the same again and again, ever longer."""
    asked = int((asked_seconds or 0) * SECOND)
    if asked and failures <= PATIENCE:
        return asked
    times: int = min(max(failures - max(action.opens_after, PATIENCE if asked else 0), 0), 20)
    return max(asked, min(action.pause_ms << times, action.longest_ms))


def back_off_ms(tries: int) -> int:
    """Longer each time, and never for all at the same moment."""
    return int(SECOND * 4 ** min(tries, 5) * random.uniform(0.5, 1.0))  # noqa: S311 -- not a secret


def _shrunk(wanted: request.Wanted, tries: Sequence[str]) -> request.Wanted:
    """What was too long is asked for again in less room and with fewer words to answer."""
    times = tries.count(Verdict.TOO_LONG) + tries.count(Verdict.TRUNCATED)
    if not times:
        return wanted
    smaller = max(wanted.request_tokens >> times, request.LEAST_TOKENS)
    return replace(wanted, request_tokens=smaller, verbosity="minimal")


def _unknown(verdict: Verdict, entry: ledger.Entry) -> Usage:
    """No figures came back. What was refused unseen cost nothing; anything else may have cost the most."""
    if verdict in ledger.UNSEEN or verdict in (Verdict.TOO_LONG, Verdict.PERMANENT):
        return Usage()
    return Usage(input_tokens=entry.input_tokens, output_tokens=entry.output_tokens)


def _why(asked: Asked) -> str:
    return (asked.read.message if asked.read else "") or asked.reply.message


def _notice(provider: str, asked: Asked) -> str:
    why = _why(asked) or asked.verdict
    now = _WHAT_NOW.get(asked.verdict, "")
    return f"claude-mem: {provider} no longer refines memories ({why}). They are kept without it. {now}".strip()


# --- what is written -------------------------------------------------------------------------------------------------


def _book(conn: Connection, entry_id: int, asked: Asked, *, now: int) -> None:
    usage = asked.usage
    ledger.close(conn, entry_id, verdict=asked.verdict, message=_why(asked), model=asked.reply.model, now=now)
    ledger.count(
        conn,
        entry_id,
        input_tokens=usage.input_tokens,
        cached=usage.cached_tokens,
        written=usage.written_tokens,
        output_tokens=usage.output_tokens,
        cost=asked.cost,
    )


def _later(job: Job, until: int, conn: Connection) -> Sequence[News]:
    jobs.ask(conn, jobs.REFINE, job.subject, now=ids.now(), due=until)
    return ()


def _over_budget(job: Job, refused: Refused, conn: Connection) -> Sequence[News]:
    text = f"claude-mem: memories are kept but not refined: {refused.why}. `claude-mem cost` shows the rest."
    notices.put(conn, f"budget:{refused.key}", text, now=ids.now())
    return _later(job, refused.until, conn)


def merged(turn: Turn, asked: Asked, settled: frozenset[str] = frozenset(), *, outside: bool = False) -> Digest | None:
    """What should stand after this answer; None if it was no answer. What is a person's is not spoken for again. The
    answer has the lowest trust of everything that the model was shown, and of its own words."""
    if asked.read is None or asked.verdict not in (Verdict.OK, Verdict.EMPTY):
        return None
    author = Author(asked.model.provider, asked.reply.model or asked.model.model)
    draft = local.digest(turn)
    if taint := trust.of(turn) or trust.of_reply(asked.read, asked.reply.text, outside=outside):
        return beside(turn, draft, asked.read, author, taint, settled=settled)
    if foreign := trust.of_foreign(turn):
        told, repeats = trust.unrepeated(asked.read, foreign)
        made = merge(turn, draft, told, author, settled=settled)
        return with_repeats(turn, made, repeats, foreign, settled=settled)
    return merge(turn, draft, asked.read, author, settled=settled)
