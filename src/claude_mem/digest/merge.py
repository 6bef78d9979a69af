"""Merge a model's reply about a turn with the evidence. The wording is the model's; the evidence always wins.

A refined observation replaces the draft about the same work and keeps its key, so that its id stays valid. Files are
listed only if a tool touched them. Facts taken from commits, edits and commands are kept, with their events. A decision
that the model does not repeat is kept. A rule must be in the user's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from claude_mem.digest import provenance
from claude_mem.digest.evidence import Evidence, gather_evidence
from claude_mem.digest.prose import as_title, is_decision
from claude_mem.digest.provenance import Foreign, Taint
from claude_mem.digest.reply import ParsedObservation, ParsedReply
from claude_mem.digest.user_rules import quoted_rule
from claude_mem.domain.records import Author, Digest, Draft, Fact, ObservationType, Summary, Turn
from claude_mem.domain.text import normalize_title
from claude_mem.privacy.trust import EXTERNAL

ANSWER = "answer"  # key of a draft about an answer, in a turn without any work
MAX_FACTS = 14
MAX_EVIDENCE = 8
_UNDONE = ("failed", "abandoned", "proposed")  # outcomes that evidence shows
REPEATED = 0.6  # share of a decision's words in a reply that repeats it
_COMMON = frozenset(
    """
    about after also always and any are because been before but can could decid does don don't for from had has have
    here instead into its more must never not now off only other our out over rather should since some than that the
    their them then there these they this those too use user using very was were what when which will with would you
    your
    """.split()  # noqa: SIM905 -- a literal list would be much longer
)


def merge_reply(
    turn: Turn, draft: Digest, reply: ParsedReply, author: Author, *, settled: frozenset[str] = frozenset()
) -> Digest:
    """Return the merged digest. `settled` are the keys of observations that a person has corrected or forgotten; the
    model's version of these is discarded."""
    evidence = gather_evidence(turn)
    observations = provenance.weigh_all(_observations(turn, draft, reply, evidence, settled), turn)
    return Digest(
        summary=provenance.weigh_summary(_summary(draft.summary, reply.summary, evidence), turn, observations),
        observations=tuple(observations),
        author=author,
        title=reply.title,
        subtitle=reply.subtitle,
    )


def add_pending(
    turn: Turn,
    draft: Digest,
    reply: ParsedReply,
    author: Author,
    taint: Taint,
    *,
    settled: frozenset[str] = frozenset(),
) -> Digest:
    """Return the draft unchanged, with the model's observations added as pending approval, because the reply can't be
    trusted."""
    evidence = gather_evidence(turn)
    joined = [_join(item, (), evidence, turn, number, alone=False) for number, item in enumerate(reply.observations)]
    pending = [_hold(item, taint.trust, taint.why, turn) for item in joined]
    draft_items = [item for item in draft.observations if item.key != "said" or not pending]
    return Digest(draft.summary, (*draft_items, *(item for item in pending if item.key not in settled)), author)


def add_pending_repeats(
    turn: Turn,
    digest: Digest,
    repeats: Sequence[ParsedObservation],
    foreign: Foreign,
    *,
    settled: frozenset[str] = frozenset(),
) -> Digest:
    """Return the digest with the observations in which the model repeats the team's own sources added as pending
    approval."""
    evidence = gather_evidence(turn)
    joined = [_join(item, (), evidence, turn, number, alone=False) for number, item in enumerate(repeats)]
    pending = [_hold(replace(item, key=f"repeats:{item.key}"), EXTERNAL, foreign.why, turn) for item in joined]
    return replace(digest, observations=(*digest.observations, *(item for item in pending if item.key not in settled)))


def _hold(item: Draft, level: str, why: str, turn: Turn) -> Draft:
    return provenance.weigh(replace(item, trust=level, why=why), turn)


def _summary(draft: Summary | None, reply: Summary | None, evidence: Evidence) -> Summary | None:
    """Merge the summaries field by field: fields that the model left empty are taken from the draft. If the model
    states an outcome, its empty fields mean that nothing was completed or is open. Files come from the tools, and the
    closing message from the agent."""
    if reply is None or draft is None:
        return draft
    names = ("investigated", "learned", "completed", "next_steps", "notes")
    words = {name: getattr(reply, name) or getattr(draft, name) for name in names}
    if reply.outcome:
        words |= {"completed": reply.completed, "next_steps": _with_failures(reply.next_steps, draft.next_steps)}
    outcome = _outcome(draft.outcome, reply.outcome, evidence)
    return replace(draft, **words, request=reply.request or draft.request, outcome=outcome)


_FAILS = re.compile(r"`(?P<command>[^`\n]{1,200})` fails: ")


def _with_failures(reply_steps: str, draft_steps: str) -> str:
    """Return the model's open steps, and the checks that failed at the end and that it does not mention."""
    failing_lines = [
        line
        for line in draft_steps.splitlines()
        if (fails := _FAILS.search(line)) and fails["command"] not in reply_steps
    ]
    return "\n".join([*reply_steps.splitlines(), *failing_lines])


def _outcome(draft: str, claimed: str, evidence: Evidence) -> str:
    """Return the model's outcome, unless it claims "done" against the evidence."""
    if claimed != "done":
        return claimed or draft
    if draft in _UNDONE:
        return draft
    return claimed if evidence.edits or evidence.commits or evidence.commands else draft or "answered"


def _observations(
    turn: Turn, draft: Digest, reply: ParsedReply, evidence: Evidence, settled: frozenset[str]
) -> Iterator[Draft]:
    fresh = [item for item in reply.observations if normalize_title(item.title) not in turn.known_titles]
    rules = _rules(turn, draft, fresh)
    items = [item for item in fresh if not _repeats_rule(item, rules)]
    if not items:
        results = [rest for rest in draft.observations if reply.observations or not is_mere_answer(rest)]
        yield from {rest.key: rest for rest in (*rules, *results)}.values()
        return
    yield from rules
    mine = [rest for rest in draft.observations if rest.trust != EXTERNAL and rest.type != ObservationType.RULE]
    unrepeated = {rest.key: remainder for rest in mine if (remainder := _unrepeated_decision(rest, items))}
    partners = [(rest, _partner(rest, items)) for rest in mine if rest.key not in unrepeated]
    files: set[str] = set()
    for number, item in enumerate(items):
        own = [rest for rest, partner in partners if partner == number]
        results = [_join(item, own, evidence, turn, number, alone=len(items) == 1)]
        if number == 0:
            results = [replace(results[0], facts=(*results[0].facts, *_decided(mine, items))[:MAX_FACTS])]
        if any(rest.key in settled for rest in own):
            results = own
        files |= {path for each in results for path in each.files_modified}
        yield from results
    yield from (rest for rest, partner in partners if partner is None and _was_seen(rest, files))
    yield from unrepeated.values()
    pending = [rest for rest in draft.observations if rest.trust == EXTERNAL and rest.type != ObservationType.RULE]
    yield from pending  # not injected


def is_mere_answer(draft: Draft) -> bool:
    """Return whether a draft is based only on the agent's words. If a model read these and found nothing, the draft is
    dropped."""
    has_evidence = draft.commit or draft.files_modified
    return (
        draft.key == ANSWER
        and draft.type == ObservationType.DISCOVERY
        and not has_evidence
        and draft.trust not in ("user", EXTERNAL)
    )


def _rules(turn: Turn, draft: Digest, items: Sequence[ParsedObservation]) -> list[Draft]:
    """Return the rules of the draft, and those that the model found in the user's own words."""
    stated = [rest for rest in draft.observations if rest.type == ObservationType.RULE]
    quoted = [quoted_rule(turn, item.title) for item in items if item.type == ObservationType.RULE]
    new = [rule for rule in quoted if rule and not any(_repeats(rule.title, _roots([own.narrative])) for own in stated)]
    return list({rule.key: rule for rule in (*stated, *new)}.values())


def _repeats_rule(item: ParsedObservation, rules: Sequence[Draft]) -> bool:
    """Return whether an observation of the model only repeats, as a rule or a decision, what the user's own words
    state."""
    words = _roots([item.title, item.narrative, *item.facts])
    stated = [rule for rule in rules if _repeats(rule.title, words)]
    if item.type == ObservationType.DECISION and not item.files_modified:
        return any(_repeats(item.title, _roots([rule.narrative])) for rule in stated)
    return item.type == ObservationType.RULE and bool(stated)


def _decided(mine: Sequence[Draft], items: Sequence[ParsedObservation]) -> Iterator[Fact]:
    """Yield the decisions among the draft's facts that the reply does not repeat."""
    answers = [_roots([item.title, item.subtitle, item.narrative, *item.facts]) for item in items]
    for fact in (fact for draft in mine if draft.type != ObservationType.DECISION for fact in draft.facts):
        if is_decision(fact.text) and not any(_repeats(fact.text, words) for words in answers):
            yield fact


def _was_seen(draft: Draft, files: set[str]) -> bool:
    """Return whether a draft that the reply does not mention is kept: it has evidence, and nothing else covers it."""
    return draft.key == "work" and (bool(draft.commit) or files.isdisjoint(draft.files_modified))


def _unrepeated_decision(draft: Draft, items: Sequence[ParsedObservation]) -> Draft | None:
    """Return the part of a decision, the user's or the agent's, that the reply does not repeat. Naming the same file is
    not a repetition."""
    if draft.type != ObservationType.DECISION and draft.trust != "user":
        return None
    answers = [_roots([item.title, item.subtitle, item.narrative, *item.facts]) for item in items]
    facts = draft.facts or (Fact(draft.title),)
    unrepeated_facts = [fact for fact in facts if not any(_repeats(fact.text, words) for words in answers)]
    if not unrepeated_facts or len(unrepeated_facts) == len(facts):
        return draft if unrepeated_facts else None
    narrative = " ".join(fact.text for fact in unrepeated_facts)
    return replace(draft, title=as_title(unrepeated_facts[0].text), narrative=narrative, facts=tuple(unrepeated_facts))


def _repeats(text: str, answer: set[str]) -> bool:
    """Return whether the reply contains most of the content words of a sentence."""
    words = _roots([text]) - _COMMON
    return bool(words) and len(words & answer) / len(words) >= REPEATED


def _roots(texts: Iterable[str]) -> set[str]:
    """Return the words without the endings in which two wordings of the same sentence usually differ."""
    return {re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in _words(texts)}


def _partner(draft: Draft, items: Sequence[ParsedObservation]) -> int | None:
    """Return the index of the model's observation about the same work as the draft, or None."""
    best, number = max((_alike(draft, item), -number) for number, item in enumerate(items))
    return -number if best > 0.12 else None


def _alike(draft: Draft, item: ParsedObservation) -> float:
    """Return the share of common words; files count as words."""
    ours = _words([draft.title, draft.narrative, *(fact.text for fact in draft.facts), *draft.files_modified])
    theirs = _words([item.title, item.narrative, *item.facts, *item.files_modified])
    return len(ours & theirs) / (min(len(ours), len(theirs)) or 1)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[^\W_]{3,}", text.lower())}


def _join(
    item: ParsedObservation, own: Sequence[Draft], evidence: Evidence, turn: Turn, number: int, *, alone: bool
) -> Draft:
    changed = _real_paths(item.files_modified, evidence.edited_paths)
    changed += tuple(path for draft in own for path in draft.files_modified if path not in changed)
    if alone and not changed:
        changed = evidence.edited_paths
    return Draft(
        key=own[0].key if own else f"model:{number}",
        type=ObservationType.DECISION
        if item.type == ObservationType.RULE
        else item.type,  # only the user can state a rule
        title=item.title,
        subtitle=item.subtitle,
        narrative=item.narrative,
        facts=_facts(item, own, evidence, turn),
        concepts=item.concepts or (own[0].concepts if own else ()),
        files_read=_real_paths(item.files_read, evidence.files_read)[:20],
        files_modified=changed[:20],
        commit=next((draft.commit for draft in own if draft.commit), ""),
    )


def _real_paths(claimed: Iterable[str], real: Sequence[str]) -> tuple[str, ...]:
    """Return the files named by the model that a tool touched, under their real paths."""
    names = [path for claim in claimed for path in real if path == claim or path.endswith("/" + claim.lstrip("./"))]
    names += [path for claim in claimed for path in real if claim.endswith("/" + path)]
    return tuple(dict.fromkeys(names))


def _facts(item: ParsedObservation, own: Sequence[Draft], evidence: Evidence, turn: Turn) -> tuple[Fact, ...]:
    tool_facts = [
        fact for draft in own for fact in draft.facts if fact.events and tuple(fact.events) != (evidence.message_seq,)
    ]
    tool_facts = list({fact.text: fact for fact in tool_facts}.values())[:MAX_EVIDENCE]
    model_facts = [
        Fact(text, _sources(text, evidence, turn))
        for text in item.facts
        if text not in {fact.text for fact in tool_facts}
    ]
    return (*model_facts[: MAX_FACTS - len(tool_facts)], *tool_facts)


def _sources(text: str, evidence: Evidence, turn: Turn) -> tuple[int, ...]:
    """Return the events that support a fact: those of the files and commands it names, else the closing message."""
    seqs = [edit.seq for edit in evidence.edits if _mentions(text, edit.path)]
    seqs += [item.seq for item in evidence.first_reads if _mentions(text, item.text)]
    seqs += [command.seq for command in evidence.commands if command.key and command.key in text]
    if evidence.message_seq:
        seqs = seqs or [evidence.message_seq]
    return tuple(sorted(set(seqs or turn.seqs[-1:])))


def _mentions(text: str, path: str) -> bool:
    return path in text or path.rpartition("/")[2] in text
