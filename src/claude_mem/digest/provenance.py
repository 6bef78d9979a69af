"""Determines how far the text of a turn can be trusted: as far as the least trusted text that was read in it.

Tool results (edits, commands and their exit status, commits) are our own evidence and keep their trust. Prose is
different: an agent that has read a page repeats what the page says, and so does a model. So in a turn that read
something from the open web, or text that reads like an instruction to an agent, the prose waits for approval, and the
evidence is shown without it. If only the team's own forge and trackers were read, prose is shown unless it repeats what
was read there. Error lines are reduced to words that may be shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from claude_mem.digest.evidence import Evidence, Fix, error_line
from claude_mem.digest.reply import ParsedObservation, ParsedReply
from claude_mem.domain.records import Body, Draft, EarlierReads, Stopped, SubagentStopped, Summary, ToolUsed, Turn
from claude_mem.domain.text import iter_strings
from claude_mem.privacy import external, injection_rules, phrases, sources, trust
from claude_mem.privacy.trust import AGENT, EXTERNAL, SUSPECT, TOOL, TRUSTED

_FIELDS = ("investigated", "learned", "completed", "next_steps", "notes")
_EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "apply_patch")
# Pages about agents and their memory are full of such sentences, and text based on a page waits for approval anyway.
_OF_PAGES = ("memory", "trigger")
_ERROR = 200  # an error of at most this many characters only states the cause
OPEN, BALANCED, STRICT = "open", "balanced", "strict"  # the choices of the setting `foreign_text`
_MAX_KNOWN = 200_000  # characters of previously known text that are compared


@dataclass(frozen=True, slots=True)
class Taint:
    """Why prose can't be injected without approval, and the events of the turn that are not used as evidence either."""

    trust: str
    why: str
    seqs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Foreign:
    """External text that the agent has read: the events that are not used as evidence, its sources, its text."""

    seqs: frozenset[int]
    why: str
    source: phrases.ReadTexts


def find_taint(turn: Turn) -> Taint | None:
    """Return why all prose of the turn waits for approval; None if nothing was read that requires it."""
    outside = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED}
    far = {seq for seq, body in outside.items() if not _is_team(turn, body)}
    speaking = {seq: rule for seq, body, _ in _events(turn) if (rule := instruction_rule(body))}
    speaking = {seq: rule for seq, rule in speaking.items() if seq not in far or rule not in _OF_PAGES}
    if not far and not speaking:
        strict = turn.foreign_text == STRICT and find_foreign_text(turn)
        return Taint(EXTERNAL, strict.why, strict.seqs) if strict else None
    seqs = frozenset({*outside, *speaking})
    if speaking:
        return Taint(SUSPECT, next(iter(speaking.values())), seqs)
    return Taint(trust.least_trusted(_origins(turn)), _source_names(turn, outside.values()), seqs)


def find_foreign_text(turn: Turn) -> Foreign | None:
    """Return the external text that was read in the turn and earlier in the session; None if there was none. Only
    meaningful if `find_taint` returns None."""
    team = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED and _is_team(turn, body)}
    local = {} if turn.foreign_text == OPEN else _local(turn)
    carried = EarlierReads() if turn.foreign_text == OPEN else turn.earlier_reads
    paths = [path for body in turn.bodies if (path := _sentence(body))]
    quoted = () if turn.foreign_text == OPEN else (*phrases.pasted_lines(turn.prompt), *paths)
    if not team and not local and not quoted and not carried.foreign and not carried.built:
        return None
    carried = replace(carried, foreign=(*carried.foreign, "\n".join(quoted))) if quoted else carried
    read = {**team, **{seq: body for seq, (body, _) in local.items()}}
    built = {seq for seq, (_, name) in local.items() if name == external.BUILD}
    source = _source(turn, read, carried, team=team.keys(), built=built)
    source_names = [*([_source_names(turn, team.values())] if team else []), *(name for _, name in local.values())]
    return Foreign(frozenset(team), trust.format_sources(source_names or ["an earlier turn"]), source)


def _sentence(body: Body) -> str:
    """Return the path of a file whose name reads like a sentence; a stranger may have named it."""
    path = body.input.get("file_path") if isinstance(body, ToolUsed) else ""
    return path if isinstance(path, str) and path and injection_rules.neutralize_path(path) != path else ""


def _source(
    turn: Turn, read: Mapping[int, Body], carried: EarlierReads, *, team: Collection[int], built: Collection[int]
) -> phrases.ReadTexts:
    """Return the text of these events and of earlier turns for comparison, without what was known before."""
    place, first = _place(turn), min(read, default=0)
    tools = [(seq, body) for seq, body, _ in _events(turn) if seq not in read and isinstance(body, ToolUsed)]
    own = [(seq, body) for seq, body in tools if not _sentence(body)]
    before = [
        phrases.own_words(turn.prompt),
        *carried.own,
        *(text for seq, body in own if seq < first for text in _texts(body)),
    ]
    names = [text for _, body in own for text in _texts(body)]
    names += [text for body in read.values() if isinstance(body, ToolUsed) for text in iter_strings(body.input)]
    direct_seqs = [seq for seq in read if seq not in built]
    return phrases.ReadTexts(
        [
            *carried.foreign,
            *(text for seq in direct_seqs for text in external.foreign_texts(read[seq], whole=seq in team)),
        ],
        weak=[*carried.built, *(text for seq in built for text in external.foreign_texts(read[seq]))],
        known_texts=_bounded(before),
        known_names=_bounded(names),
        is_ours=lambda name: "://" in name and sources.is_own_page(name, place),
    )


def _local(turn: Turn) -> dict[int, tuple[Body, str]]:
    """Return the events in which a local tool showed external text, each with its source."""
    here = external.Workspace(turn.root, turn.cwd, turn.earlier_reads.fetched | external.find_fetched(turn.bodies))
    named_events = (
        (seq, body, external.foreign_kind(body, here)) for seq, body, origin in _events(turn) if origin in TRUSTED
    )
    return {seq: (body, name) for seq, body, name in named_events if name and name not in turn.trusted_sources}


def grounded_message(evidence: Evidence, turn: Turn, taint: Taint) -> str:
    """Return the sentences of the closing message that may be shown although pages were read: those that name a file
    which the turn edited and no page mentions, and that repeat none of the pages. All pages must be available."""
    if taint.trust != EXTERNAL or turn.foreign_text == STRICT or not evidence.edits:
        return ""
    read = {seq: body for seq, body, origin in _events(turn) if origin not in TRUSTED}
    page_text = "\n".join(text for body in read.values() for text in external.foreign_texts(body, whole=True))
    if not page_text.strip() or _LEFT_OUT.search(page_text):
        return ""
    read |= {seq: body for seq, (body, _) in _local(turn).items()}
    source = _source(turn, read, turn.earlier_reads, team=read.keys(), built=())
    files = {PurePosixPath(path).name for path in evidence.edited_paths}
    files = {name for name in files if name not in page_text}
    lines = phrases.remove_repeats(evidence.message, source).split("\n")
    grounded_lines = (
        "".join(part for part in phrases.split_sentences(line) if any(name in part for name in files)) for line in lines
    )
    return "\n".join(line for line in grounded_lines if line.strip())


_LEFT_OUT = re.compile(r"… [\d,]{1,12} characters left out …|<persisted-output>")


def _is_team(turn: Turn, body: Body) -> bool:
    """Return whether the text was read from the team's own sources and is completely available for comparison."""
    if (
        not isinstance(body, ToolUsed)
        or not body.whole
        or not (text := "".join(phrases.output_texts(body.output)).strip())
    ):
        return False
    if body.failed and body.name != "Bash" and len(text) <= _ERROR:
        return True  # only the cause of the failure was shown
    return sources.is_team_source(body, _place(turn))


def _place(turn: Turn) -> sources.ProjectRepository:
    return sources.ProjectRepository(turn.remotes, PurePosixPath(turn.root).name)


def _source_names(turn: Turn, bodies: Iterable[Body]) -> str:
    """Return the names of the sources. A forge that was queried about another repository is a separate source."""
    all_names = []
    for body in bodies:
        if isinstance(body, ToolUsed):
            ours = sources.is_team_source(body, _place(turn))
            body_names = trust.source_names(body)
            all_names += [
                name if ours or name not in sources.FORGES else f"{name} {trust.OTHER_REPOSITORY}"
                for name in body_names
            ]
    return trust.format_sources(all_names)


def _texts(body: ToolUsed) -> Iterator[str]:
    yield from iter_strings(body.input)
    yield from iter_strings(external.known_output(body))


def _bounded(texts: Iterable[str]) -> Iterator[str]:
    remaining = _MAX_KNOWN
    for text in texts:
        if remaining <= 0:
            return
        yield text[:remaining]
        remaining -= len(text)


def find_reply_taint(reply: ParsedReply, raw: str, *, outside: bool) -> Taint | None:
    """Return why a model's reply, as a whole, waits for approval; None if it does not. `outside`: its conversation has
    read external text before."""
    if rule := injection_rules.imitation_rule(raw) or injection_rules.injection_rule("\n".join(_reply_texts(reply))):
        return Taint(SUSPECT, rule)
    return Taint(EXTERNAL, "an earlier turn of the session") if outside else None


def _events(turn: Turn) -> Iterable[tuple[int, Body, str]]:
    return zip(turn.seqs, turn.bodies, _origins(turn), strict=True)


def _origins(turn: Turn) -> Sequence[str]:
    return with_origins(turn).origins


def with_origins(turn: Turn) -> Turn:
    """Return the turn with the origin of each event; a turn from the journal has them already."""
    if turn.origins:
        return turn
    return replace(turn, origins=tuple(trust.origin_of(body, cwd=turn.cwd or turn.root) for body in turn.bodies))


def instruction_rule(body: Body) -> str:
    """Return the rule by which the text reads like an instruction to an agent, or "". The agent's closing message is
    judged as text that would be injected. The output of an edit is the agent's own text."""
    if isinstance(body, Stopped | SubagentStopped):
        return injection_rules.injection_rule(body.message) if body.message else ""
    if not isinstance(body, ToolUsed) or not body.output or body.name in _EDITS:
        return ""
    return injection_rules.addressing_rule("\n".join(iter_strings(body.output)))


def split_repeats(reply: ParsedReply, team: Foreign) -> tuple[ParsedReply, tuple[ParsedObservation, ...]]:
    """Return a model's reply without the parts that repeat external text, and the observations that do."""
    fresh = [
        item
        for item in reply.observations
        if not any(_repeats(text, team) for text in (item.title, item.subtitle, item.narrative))
    ]
    kept_items = [replace(item, facts=tuple(fact for fact in item.facts if not _repeats(fact, team))) for item in fresh]
    summary = reply.summary
    if summary:
        repeating = [name for name in ("request", *_FIELDS) if _repeats(getattr(summary, name), team)]
        changes: dict[str, Any] = dict.fromkeys(repeating, "")
        summary = replace(summary, **changes)
    title, subtitle = ("" if _repeats(text, team) else text for text in (reply.title, reply.subtitle))
    cleaned_reply = replace(reply, observations=tuple(kept_items), summary=summary, title=title, subtitle=subtitle)
    return cleaned_reply, tuple(item for item in reply.observations if item not in fresh)


def _repeats(text: str, team: Foreign) -> bool:
    return team.source.is_repeated_in(text)


def _reply_texts(reply: ParsedReply) -> Iterable[str]:
    yield from (reply.title, reply.subtitle)
    for item in reply.observations:
        yield from (item.title, item.subtitle, item.narrative, *item.facts, *item.concepts)
    if reply.summary:
        yield from (getattr(reply.summary, name) for name in ("request", *_FIELDS))


# --- trust of drafts and summaries -----------------------------------------------------------------------------------


def weigh_all(drafts: Iterable[Draft], turn: Turn) -> list[Draft]:
    """Weigh each draft by itself, and the titles of the trusted ones also together, since an instruction may be split
    over several."""
    weighed = [weigh(draft, turn) for draft in drafts]
    may = [draft for draft in weighed if draft.trust in TRUSTED]
    if len(may) > 1 and suspicious_rule(["\n".join(draft.title for draft in may)], prompt=turn.prompt):
        return [replace(draft, trust=SUSPECT, why="split") if draft in may else draft for draft in weighed]
    return weighed


def weigh(draft: Draft, turn: Turn) -> Draft:
    """Return the draft with the lowest trust of the events it cites; suspect if its own text is suspicious."""
    if draft.trust not in (*TRUSTED, EXTERNAL):
        return draft
    origin_by_seq = {seq: TOOL if _is_team(turn, body) else origin for seq, body, origin in _events(turn)}
    cited = [origin_by_seq[seq] for fact in draft.facts for seq in fact.events if seq in origin_by_seq]
    facts = [fact.text for fact in draft.facts]
    words = [draft.title, draft.narrative, *facts, *draft.files_modified, *draft.files_read]
    rule = suspicious_rule(words, prompt=turn.prompt) or suspicious_rule([draft.subtitle], prompt=turn.prompt)
    if rule:
        return replace(draft, trust=SUSPECT, why=rule)
    return replace(draft, trust=trust.least_trusted([AGENT, draft.trust, *cited]))


def weigh_summary(summary: Summary | None, turn: Turn, beside: Iterable[Draft]) -> Summary | None:
    """Return the summary with its trust. `beside` are the weighed drafts of the turn: the summary joins what was split
    over them."""
    if summary is None or summary.trust not in TRUSTED:
        return summary
    if any(draft.why == "split" for draft in beside):
        return replace(summary, trust=SUSPECT, why="split")
    words = [getattr(summary, name) for name in _FIELDS]
    rule = suspicious_rule([summary.request, *words, *summary.files_edited, *summary.files_read], prompt=turn.prompt)
    return replace(summary, trust=SUSPECT, why=rule) if rule else summary


def suspicious_rule(words: Iterable[str], *, prompt: str) -> str:
    """Return the rule by which a text is suspicious, or "". The user's own words may request anything, but must not
    imitate markup."""
    prompt_text = " ".join(prompt.split()).casefold()
    texts = [" ".join(text.split()) for text in words if text]
    own = [text for text in texts if text.casefold().removeprefix("the user: ").rstrip("….:;, ") in prompt_text]
    others = [text for text in texts if text not in own]
    return injection_rules.injection_rule("\n".join(others)) or injection_rules.injection_rule(
        "\n".join(own), by_user=True
    )


# --- error lines -----------------------------------------------------------------------------------------------------


# A package or a server may have written an error line. Only words that error messages usually consist of
# (`data/foreign.toml`), or that the project's own text contains, are kept.

LEFT_OUT = "…"
MAX_FIGURES = 6  # digits of a number
MAX_OWN = 100_000  # characters of the project's own text that are examined

_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "foreign.toml").read_text("utf-8"))
_ERROR_WORDS = frozenset(_FILE["error_words"].split())
_KIND = re.compile(
    r"(?:E\s+)?(?:[A-Za-z_][\w.]{0,80}(?:Error|Exception|Warning)|panic|fatal|error(?:\[\w{1,10}\])?)\b ?:?"
)
_PLAIN = re.compile(r"\W*\d[\d.,:]{0,12}\W*|\W+")


def with_plain_errors(evidence: Evidence, turn: Turn) -> Evidence:
    """Return the evidence with the output of each failure reduced to what may be shown."""
    failed = [command for command in evidence.commands if command.failed]
    if not failed:
        return evidence
    own = _own_words(turn)
    plain = {command: replace(command, output=plain_error(error_line(command.output), own)) for command in failed}
    return replace(
        evidence,
        commands=tuple(plain.get(command, command) for command in evidence.commands),
        fixes=tuple(Fix(plain.get(fix.failed, fix.failed), fix.passed) for fix in evidence.fixes),
        unsolved=tuple(plain.get(command, command) for command in evidence.unsolved),
    )


def plain_error(line: str, own: Set[str]) -> str:
    """Return an error line with `…` in place of words that neither error messages nor the project's own text
    contain."""
    kind = _KIND.match(line)
    begin = kind[0] if kind else ""
    chunks: list[str] = []

    def is_known(word: str) -> bool:
        return word in _ERROR_WORDS or word in own or (word.isdigit() and len(word) <= MAX_FIGURES)

    for chunk in line[len(begin) :].split():
        plain = _PLAIN.fullmatch(chunk) or all(map(is_known, phrases.folded_words(chunk)))
        chunks.append(chunk if plain else LEFT_OUT)
    if chunks.count(LEFT_OUT) * 2 > len(chunks):
        chunks = []  # too little is left to be useful
    chunks = [chunk for chunk, before in zip(chunks, ["", *chunks], strict=False) if not chunk == before == LEFT_OUT]
    return " ".join([*([begin] if begin else []), *chunks]).rstrip(": ")


def _own_words(turn: Turn) -> frozenset[str]:
    """Return the words of the prompt, of the project's own files and of the agent's edits in the turn."""
    here = external.Workspace(turn.root, turn.cwd, turn.earlier_reads.fetched | external.find_fetched(turn.bodies))
    texts = [phrases.own_words(turn.prompt)]
    for body in turn.bodies:
        if isinstance(body, ToolUsed) and not body.name.startswith("mcp__") and not body.failed:
            shows_own = body.name != "Bash" and not external.foreign_kind(body, here)
            texts += iter_strings(body.input) if not shows_own else _texts(body)
    return frozenset().union(*map(phrases.folded_words, _within_limit(texts)))


def _within_limit(texts: Iterable[str]) -> Iterable[str]:
    remaining = MAX_OWN
    for text in texts:
        if remaining <= 0:
            return
        yield text[:remaining]
        remaining -= len(text)
