"""How far a turn's words may be trusted: as far as the least trusted text that was read in it.

What tools show (edits, commands and how they ended, commits) is our own evidence and keeps its trust. Words are
another thing: an agent that has read a page repeats what the page says, and so does a model. So in a turn in which
something came from outside, or spoke to whoever read it, the words are held, and the evidence is told without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from claude_mem import origins, suspicion
from claude_mem.origins import AGENT, EXTERNAL, SUSPECT, TRUSTED
from claude_mem.providers.reply import Read
from claude_mem.records import Body, Draft, Stopped, SubagentStopped, Summary, ToolUsed, Turn
from claude_mem.text import strings

MOST_NAMED = 3
_FIELDS = ("investigated", "learned", "completed", "next_steps", "notes")


@dataclass(frozen=True, slots=True)
class Taint:
    """Why words can't be told unasked, and the events of the turn that no evidence is taken from either."""

    trust: str
    why: str
    seqs: frozenset[int] = frozenset()


def of(turn: Turn) -> Taint | None:
    """None if nothing in the turn is below the line."""
    outside = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED}
    speaking = {seq: rule for seq, body, _ in _events(turn) if (rule := speaks(body))}
    if not outside and not speaking:
        return None
    seqs = frozenset({*outside, *speaking})
    if speaking:
        return Taint(SUSPECT, next(iter(speaking.values())), seqs)
    named = dict.fromkeys(origins.named(body) for body in outside.values() if isinstance(body, ToolUsed))
    return Taint(origins.lowest(_origins(turn)), ", ".join(list(named)[:MOST_NAMED]), seqs)


def of_reply(said: Read, raw: str, *, outside: bool) -> Taint | None:
    """Of a model's words: all of them or none. `outside`: its conversation had read something from outside before."""
    if rule := suspicion.imitates(raw) or suspicion.rule("\n".join(_told(said))):
        return Taint(SUSPECT, rule)
    return Taint(EXTERNAL, "an earlier turn of the session") if outside else None


def _events(turn: Turn) -> Iterable[tuple[int, Body, str]]:
    return zip(turn.seqs, turn.bodies, _origins(turn), strict=True)


def _origins(turn: Turn) -> Sequence[str]:
    return turn.origins or [origins.of(body, cwd=turn.cwd or turn.root) for body in turn.bodies]


def speaks(body: Body) -> str:
    """Does it speak to whoever reads it? What the agent itself said last is judged as what would be told."""
    if isinstance(body, Stopped | SubagentStopped):
        return suspicion.rule(body.message) if body.message else ""
    return suspicion.addresses("\n".join(strings(body.output))) if isinstance(body, ToolUsed) and body.output else ""


def _told(said: Read) -> Iterable[str]:
    yield from (said.title, said.subtitle)
    for item in said.observations:
        yield from (item.title, item.subtitle, item.narrative, *item.facts, *item.concepts)
    if said.summary:
        yield from (getattr(said.summary, name) for name in ("request", *_FIELDS))


# --- weighing what was made ------------------------------------------------------------------------------------------


def weigh_all(drafts: Iterable[Draft], turn: Turn) -> list[Draft]:
    """Each by itself; and those that may be told also together, since what is split over several is read as one."""
    weighed = [weigh(draft, turn) for draft in drafts]
    may = [draft for draft in weighed if draft.trust in TRUSTED]
    if len(may) > 1 and suspicious(["\n".join(draft.title for draft in may)], prompt=turn.prompt):
        return [replace(draft, trust=SUSPECT, why="split") if draft in may else draft for draft in weighed]
    return weighed


def weigh(draft: Draft, turn: Turn) -> Draft:
    """With the lowest trust of the events it cites; and held if its own words are suspicious."""
    if draft.trust not in TRUSTED:
        return draft
    known = {seq: origin for seq, _, origin in _events(turn)}
    cited = [known[seq] for fact in draft.facts for seq in fact.events if seq in known]
    words = [
        draft.title,
        draft.narrative,
        *(fact.text for fact in draft.facts),
        *draft.files_modified,
        *draft.files_read,
    ]
    rule = suspicious(words, prompt=turn.prompt) or suspicious([draft.subtitle], prompt=turn.prompt)
    return replace(draft, trust=SUSPECT, why=rule) if rule else replace(draft, trust=origins.lowest([AGENT, *cited]))


def weigh_summary(summary: Summary | None, turn: Turn, beside: Iterable[Draft]) -> Summary | None:
    """`beside` are the weighed drafts of the turn: what was split over them, it puts together again."""
    if summary is None or summary.trust not in TRUSTED:
        return summary
    if any(draft.why == "split" for draft in beside):
        return replace(summary, trust=SUSPECT, why="split")
    words = [getattr(summary, name) for name in _FIELDS]
    rule = suspicious([summary.request, *words, *summary.files_edited, *summary.files_read], prompt=turn.prompt)
    return replace(summary, trust=SUSPECT, why=rule) if rule else summary


def suspicious(words: Iterable[str], *, prompt: str) -> str:
    """What the user asked for is the user's: it may wish, but not pretend."""
    asked = " ".join(prompt.split()).casefold()
    texts = [" ".join(text.split()) for text in words if text]
    own = [text for text in texts if text.casefold().removeprefix("the user: ").rstrip("….:;, ") in asked]
    others = [text for text in texts if text not in own]
    return suspicion.rule("\n".join(others)) or suspicion.rule("\n".join(own), by_user=True)
