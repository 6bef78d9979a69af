"""How far a turn's words may be trusted: as far as the least trusted text that was read in it.

What tools show (edits, commands and how they ended, commits) is our own evidence and keeps its trust. Words are
another thing: an agent that has read a page repeats what the page says, and so does a model. So in a turn in which
something came from the open web, or spoke to whoever read it, the words are held, and the evidence is told without them.
Where nothing was read from outside but the team's own forge and trackers, words are told unless they repeat what was
read there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from claude_mem import foreign, origins, pasted, phrases, sources, suspicion
from claude_mem.origins import AGENT, EXTERNAL, SUSPECT, TOOL, TRUSTED
from claude_mem.providers.evidence import Evidence
from claude_mem.providers.reply import Read, Said
from claude_mem.records import Body, Carried, Draft, Stopped, SubagentStopped, Summary, ToolUsed, Turn
from claude_mem.text import strings

_FIELDS = ("investigated", "learned", "completed", "next_steps", "notes")
_EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "apply_patch")
# Pages about agents and their memory are full of such sentences; and words that rest on a page are held anyway.
_OF_PAGES = ("memory", "trigger")
_ERROR = 200  # characters that say no more than what went wrong
OPEN, BALANCED, STRICT = "open", "balanced", "strict"  # the choices of the setting `foreign_text`
_MOST_KNOWN = 200_000  # characters of what was known before that are compared


@dataclass(frozen=True, slots=True)
class Taint:
    """Why words can't be told unasked, and the events of the turn that no evidence is taken from either."""

    trust: str
    why: str
    seqs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Foreign:
    """What strangers wrote and the agent has read: which events of the turn give no evidence, from where, what it said."""

    seqs: frozenset[int]
    why: str
    source: phrases.Source


def of(turn: Turn) -> Taint | None:
    """Why the turn's words are held, all of them; None if nothing was read but what may be reported."""
    outside = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED}
    far = {seq for seq, body in outside.items() if not _is_team(turn, body)}
    speaking = {seq: rule for seq, body, _ in _events(turn) if (rule := speaks(body))}
    speaking = {seq: rule for seq, rule in speaking.items() if seq not in far or rule not in _OF_PAGES}
    if not far and not speaking:
        strict = turn.foreign_text == STRICT and of_foreign(turn)
        return Taint(EXTERNAL, strict.why, strict.seqs) if strict else None
    seqs = frozenset({*outside, *speaking})
    if speaking:
        return Taint(SUSPECT, next(iter(speaking.values())), seqs)
    return Taint(origins.lowest(_origins(turn)), _source_names(turn, outside.values()), seqs)


def of_foreign(turn: Turn) -> Foreign | None:
    """What was read that strangers wrote, in the turn and before it in the session; None if nothing was. To be asked if
    `of` has no objection."""
    team = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED and _is_team(turn, body)}
    local = {} if turn.foreign_text == OPEN else _local(turn)
    carried = Carried() if turn.foreign_text == OPEN else turn.carried
    quoted = () if turn.foreign_text == OPEN else (*pasted.others_words(turn.prompt), *_sentences(turn))
    if not team and not local and not quoted and not carried.foreign and not carried.built:
        return None
    carried = replace(carried, foreign=(*carried.foreign, "\n".join(quoted))) if quoted else carried
    read = {**team, **{seq: body for seq, (body, _) in local.items()}}
    built = {seq for seq, (_, name) in local.items() if name == foreign.BUILD}
    source = _source(turn, read, carried, team=team.keys(), built=built)
    source_names = [*([_source_names(turn, team.values())] if team else []), *(name for _, name in local.values())]
    return Foreign(frozenset(team), origins.reason(source_names or ["an earlier turn"]), source)


def _sentence(body: Body) -> str:
    """The path of a file whose name says more than names do: whoever named it may be a stranger."""
    path = body.input.get("file_path") if isinstance(body, ToolUsed) else ""
    return path if isinstance(path, str) and path and suspicion.neutral(path) != path else ""


def _sentences(turn: Turn) -> tuple[str, ...]:
    return tuple(path for body in turn.bodies if (path := _sentence(body)))


def _source(
    turn: Turn, read: Mapping[int, Body], carried: Carried, *, team: Collection[int], built: Collection[int]
) -> phrases.Source:
    """What these events and the earlier turns show, to be compared with; without what was known before it."""
    place, first = _place(turn), min(read, default=0)
    tools = [(seq, body) for seq, body, _ in _events(turn) if seq not in read and isinstance(body, ToolUsed)]
    own = [(seq, body) for seq, body in tools if not _sentence(body)]
    before = [
        pasted.own_words(turn.prompt),
        *carried.own,
        *(text for seq, body in own if seq < first for text in _texts(body)),
    ]
    names = [text for _, body in own for text in _texts(body)]
    names += [text for body in read.values() if isinstance(body, ToolUsed) for text in strings(body.input)]
    direct_seqs = [seq for seq in read if seq not in built]
    return phrases.Source(
        [*carried.foreign, *(text for seq in direct_seqs for text in foreign.texts(read[seq], whole=seq in team))],
        weak=[*carried.built, *(text for seq in built for text in foreign.texts(read[seq]))],
        known_texts=_bounded(before),
        known_names=_bounded(names),
        is_ours=lambda name: "://" in name and sources.owns_page(name, place),
    )


def _local(turn: Turn) -> dict[int, tuple[Body, str]]:
    """The events of the turn by which a local tool showed what strangers wrote, each with what it was."""
    here = foreign.Here(turn.root, turn.cwd, turn.carried.fetched | foreign.fetched(turn.bodies))
    named_events = ((seq, body, foreign.name(body, here)) for seq, body, origin in _events(turn) if origin in TRUSTED)
    return {seq: (body, name) for seq, body, name in named_events if name and name not in turn.trusted}


def grounded(evidence: Evidence, turn: Turn, taint: Taint) -> str:
    """The sentences of the closing message that may be told although pages were read: those that name a file which the
    turn edited and no page speaks of, and that repeat none of the pages. All of the pages have to be there."""
    if taint.trust != EXTERNAL or turn.foreign_text == STRICT or not evidence.edits:
        return ""
    read = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED}
    page_text = "\n".join(text for body in read.values() for text in foreign.texts(body, whole=True))
    if not page_text.strip() or _LEFT_OUT.search(page_text):
        return ""
    read |= {seq: body for seq, (body, _) in _local(turn).items()}
    source = _source(turn, read, turn.carried, team=read.keys(), built=())
    files = {PurePosixPath(path).name for path in evidence.edited}
    files = {name for name in files if name not in page_text}
    lines = phrases.without_repeats(evidence.message, source).split("\n")
    grounded_lines = (
        "".join(part for part in phrases.sentences(line) if any(name in part for name in files)) for line in lines
    )
    return "\n".join(line for line in grounded_lines if line.strip())


_LEFT_OUT = re.compile(r"… [\d,]{1,12} characters left out …|<persisted-output>")


def _is_team(turn: Turn, body: Body) -> bool:
    """Was it read from the team's own sources, and is all of it here to be compared with?"""
    if not isinstance(body, ToolUsed) or not body.whole or not (text := "".join(phrases.shown(body.output)).strip()):
        return False
    if body.failed and body.name != "Bash" and len(text) <= _ERROR:
        return True  # nothing was shown but why
    return sources.is_team(body, _place(turn))


def _place(turn: Turn) -> sources.Place:
    return sources.Place(turn.remotes, PurePosixPath(turn.root).name)


def _source_names(turn: Turn, bodies: Iterable[Body]) -> str:
    """The sources by name; a forge that was asked about another repository is another source."""
    all_names = []
    for body in bodies:
        if isinstance(body, ToolUsed):
            ours = sources.is_team(body, _place(turn))
            body_names = origins.all_named(body)
            all_names += [
                name if ours or name not in sources.FORGES else f"{name} {origins.ELSEWHERE}" for name in body_names
            ]
    return origins.reason(all_names)


def _texts(body: ToolUsed) -> Iterator[str]:
    yield from strings(body.input)
    yield from strings(body.output)


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    remaining = _MOST_KNOWN
    for text in texts:
        if remaining <= 0:
            return
        yield text[:remaining]
        remaining -= len(text)


def of_reply(reply: Read, raw: str, *, outside: bool) -> Taint | None:
    """Of a model's words: all of them or none. `outside`: its conversation had read something from outside before."""
    if rule := suspicion.imitates(raw) or suspicion.rule("\n".join(_reply_texts(reply))):
        return Taint(SUSPECT, rule)
    return Taint(EXTERNAL, "an earlier turn of the session") if outside else None


def _events(turn: Turn) -> Iterable[tuple[int, Body, str]]:
    return zip(turn.seqs, turn.bodies, _origins(turn), strict=True)


def _origins(turn: Turn) -> Sequence[str]:
    return turn.origins or [origins.of(body, cwd=turn.cwd or turn.root) for body in turn.bodies]


def speaks(body: Body) -> str:
    """Does it speak to whoever reads it? What the agent itself said last is judged as what would be told; and what an
    edit shows is what the agent wrote."""
    if isinstance(body, Stopped | SubagentStopped):
        return suspicion.rule(body.message) if body.message else ""
    if not isinstance(body, ToolUsed) or not body.output or body.name in _EDITS:
        return ""
    return suspicion.addresses("\n".join(strings(body.output)))


def unrepeated(reply: Read, team: Foreign) -> tuple[Read, tuple[Said, ...]]:
    """A model's words without those that repeat what was read; and the observations that do."""
    fresh = [item for item in reply.observations if not _is_repeated(item, team)]
    kept_items = [replace(item, facts=tuple(fact for fact in item.facts if not _repeats(fact, team))) for item in fresh]
    summary = reply.summary
    if summary:
        repeating = [name for name in ("request", *_FIELDS) if _repeats(getattr(summary, name), team)]
        changes: dict[str, Any] = dict.fromkeys(repeating, "")
        summary = replace(summary, **changes)
    title, subtitle = ("" if _repeats(text, team) else text for text in (reply.title, reply.subtitle))
    cleaned_reply = replace(reply, observations=tuple(kept_items), summary=summary, title=title, subtitle=subtitle)
    return cleaned_reply, tuple(item for item in reply.observations if item not in fresh)


def _is_repeated(item: Said, team: Foreign) -> bool:
    return any(_repeats(text, team) for text in (item.title, item.subtitle, item.narrative))


def _repeats(text: str, team: Foreign) -> bool:
    return team.source.is_repeated_in(text)


def _reply_texts(reply: Read) -> Iterable[str]:
    yield from (reply.title, reply.subtitle)
    for item in reply.observations:
        yield from (item.title, item.subtitle, item.narrative, *item.facts, *item.concepts)
    if reply.summary:
        yield from (getattr(reply.summary, name) for name in ("request", *_FIELDS))


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
    if draft.trust not in (*TRUSTED, EXTERNAL):
        return draft
    origin_by_seq = {seq: TOOL if _is_team(turn, body) else origin for seq, body, origin in _events(turn)}
    cited = [origin_by_seq[seq] for fact in draft.facts for seq in fact.events if seq in origin_by_seq]
    words = [
        draft.title,
        draft.narrative,
        *(fact.text for fact in draft.facts),
        *draft.files_modified,
        *draft.files_read,
    ]
    rule = suspicious(words, prompt=turn.prompt) or suspicious([draft.subtitle], prompt=turn.prompt)
    if rule:
        return replace(draft, trust=SUSPECT, why=rule)
    return replace(draft, trust=origins.lowest([AGENT, draft.trust, *cited]))


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
    prompt_text = " ".join(prompt.split()).casefold()
    texts = [" ".join(text.split()) for text in words if text]
    own = [text for text in texts if text.casefold().removeprefix("the user: ").rstrip("….:;, ") in prompt_text]
    others = [text for text in texts if text not in own]
    return suspicion.rule("\n".join(others)) or suspicion.rule("\n".join(own), by_user=True)
