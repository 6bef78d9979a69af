"""What a model said of a turn, joined with what the turn shows. The words are the model's; the evidence always wins.

A refined observation takes the place of the draft it speaks of and keeps its key, so that whoever has seen its ID still
finds it. Files are named only if a tool touched them. Facts taken from commits, edits and commands stay, with
their events. A decision that the model does not repeat stays as it was. A rule is the user's own words or it is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from claude_mem.origins import EXTERNAL
from claude_mem.providers import rules as rules_
from claude_mem.providers import trust
from claude_mem.providers.evidence import Evidence, gather
from claude_mem.providers.prose import as_title, is_decision
from claude_mem.providers.reply import Read, Said
from claude_mem.providers.trust import Foreign, Taint
from claude_mem.records import Author, Digest, Draft, Fact, Summary, Turn, Type
from claude_mem.text import normal_title

ANSWER = "answer"  # the key of a draft that tells what was said, where nothing was done
MOST_FACTS = 14
MOST_EVIDENCE = 8
_UNDONE = ("failed", "abandoned", "proposed")  # outcomes that are seen, not said
REPEATED = 0.6  # of a decision's words are in an answer that repeats it
_COMMON = frozenset(
    """
    about after also always and any are because been before but can could decid does don don't for from had has have
    here instead into its more must never not now off only other our out over rather should since some than that the
    their them then there these they this those too use user using very was were what when which will with would you
    your
    """.split()  # noqa: SIM905 -- a list of so many words can't be read
)


def merge(turn: Turn, draft: Digest, said: Read, author: Author, *, settled: frozenset[str] = frozenset()) -> Digest:
    """The digest as it should stand. `settled` are the keys a person has corrected or forgotten: what the model says of
    those is not kept."""
    found = gather(turn)
    made = trust.weigh_all(_observations(turn, draft, said, found, settled), turn)
    return Digest(
        summary=trust.weigh_summary(_summary(draft.summary, said.summary, found), turn, made),
        observations=tuple(made),
        author=author,
        title=said.title,
        subtitle=said.subtitle,
    )


def beside(
    turn: Turn, draft: Digest, said: Read, author: Author, taint: Taint, *, settled: frozenset[str] = frozenset()
) -> Digest:
    """The same for words that can't be trusted: the evidence stands as it is, and the model's words are held beside it."""
    found = gather(turn)
    told = [_join(item, (), found, turn, number, alone=False) for number, item in enumerate(said.observations)]
    held = [_hold(item, taint.trust, taint.why, turn) for item in told]
    stands = [item for item in draft.observations if item.key != "said" or not held]
    return Digest(draft.summary, (*stands, *(item for item in held if item.key not in settled)), author)


def with_repeats(
    turn: Turn, made: Digest, repeats: Sequence[Said], foreign: Foreign, *, settled: frozenset[str] = frozenset()
) -> Digest:
    """The digest, and held beside it what a model only repeats of what was read from the team's own sources."""
    found = gather(turn)
    joined = [_join(item, (), found, turn, number, alone=False) for number, item in enumerate(repeats)]
    held = [_hold(replace(item, key=f"repeats:{item.key}"), EXTERNAL, foreign.why, turn) for item in joined]
    return replace(made, observations=(*made.observations, *(item for item in held if item.key not in settled)))


def _hold(item: Draft, level: str, why: str, turn: Turn) -> Draft:
    return trust.weigh(replace(item, trust=level, why=why), turn)


def _summary(draft: Summary | None, said: Summary | None, found: Evidence) -> Summary | None:
    """Field by field: what the model left empty, the draft has. A model that says how the turn ended also says by an
    empty field that nothing was completed or is open. The files are the tools' own, and the closing message is the
    agent's."""
    if said is None or draft is None:
        return draft
    names = ("investigated", "learned", "completed", "next_steps", "notes")
    words = {name: getattr(said, name) or getattr(draft, name) for name in names}
    if said.outcome:
        words |= {"completed": said.completed, "next_steps": _with_failures(said.next_steps, draft.next_steps)}
    outcome = _outcome(draft.outcome, said.outcome, found)
    return replace(draft, **words, request=said.request or draft.request, outcome=outcome)


_FAILS = re.compile(r"`(?P<command>[^`\n]{1,200})` fails: ")


def _with_failures(said: str, draft: str) -> str:
    """Return a model's open steps, and the checks that were seen to fail at the end and that it does not speak of."""
    seen = [line for line in draft.splitlines() if (fails := _FAILS.search(line)) and fails["command"] not in said]
    return "\n".join([*said.splitlines(), *seen])


def _outcome(draft: str, said: str, found: Evidence) -> str:
    """Return how the turn ended: as the model says, unless it calls done what the evidence shows to be otherwise."""
    if said != "done":
        return said or draft
    if draft in _UNDONE:
        return draft
    return said if found.edits or found.commits or found.commands else draft or "answered"


def _observations(turn: Turn, draft: Digest, said: Read, found: Evidence, settled: frozenset[str]) -> Iterator[Draft]:
    fresh = [item for item in said.observations if normal_title(item.title) not in turn.known]
    rules = _rules(turn, draft, fresh)
    told = [item for item in fresh if not _repeats_rule(item, rules)]
    if not told:
        kept = [rest for rest in draft.observations if said.observations or not is_mere_answer(rest)]
        yield from {rest.key: rest for rest in (*rules, *kept)}.values()
        return
    yield from rules
    mine = [rest for rest in draft.observations if rest.trust != EXTERNAL and rest.type != Type.RULE]
    left_out = {rest.key: left for rest in mine if (left := _left_out(rest, told))}
    partners = [(rest, _partner(rest, told)) for rest in mine if rest.key not in left_out]
    files: set[str] = set()
    for number, item in enumerate(told):
        own = [rest for rest, partner in partners if partner == number]
        kept = [_join(item, own, found, turn, number, alone=len(told) == 1)]
        if number == 0:
            kept = [replace(kept[0], facts=(*kept[0].facts, *_decided(mine, told))[:MOST_FACTS])]
        if any(rest.key in settled for rest in own):
            kept = own
        files |= {path for each in kept for path in each.files_modified}
        yield from kept
    yield from (rest for rest, partner in partners if partner is None and _was_seen(rest, files))
    yield from left_out.values()
    held = [rest for rest in draft.observations if rest.trust == EXTERNAL and rest.type != Type.RULE]
    yield from held  # no part of what is told


def is_mere_answer(draft: Draft) -> bool:
    """Return whether a draft rests on the agent's words alone: a model that read them and found nothing knows better."""
    seen = draft.commit or draft.files_modified
    return draft.key == ANSWER and draft.type == Type.DISCOVERY and not seen and draft.trust not in ("user", EXTERNAL)


def _rules(turn: Turn, draft: Digest, told: Sequence[Said]) -> list[Draft]:
    """Return the rules of the draft, and those that a model has found in the user's own words."""
    stated = [rest for rest in draft.observations if rest.type == Type.RULE]
    quoted = [rules_.quoted(turn, item.title) for item in told if item.type == Type.RULE]
    new = [rule for rule in quoted if rule and not any(_repeats(rule.title, _roots([own.narrative])) for own in stated)]
    return list({rule.key: rule for rule in (*stated, *new)}.values())


def _repeats_rule(item: Said, rules: Sequence[Draft]) -> bool:
    """Return whether a model states again, as a rule or a decision, what the user's own words state and nothing else."""
    words = _roots([item.title, item.narrative, *item.facts])
    stated = [rule for rule in rules if _repeats(rule.title, words)]
    if item.type == Type.DECISION and not item.files_modified:
        return any(_repeats(item.title, _roots([rule.narrative])) for rule in stated)
    return item.type == Type.RULE and bool(stated)


def _decided(mine: Sequence[Draft], told: Sequence[Said]) -> Iterator[Fact]:
    """Return the decisions among the facts of the draft that no answer repeats."""
    answers = [_roots([item.title, item.subtitle, item.narrative, *item.facts]) for item in told]
    for fact in (fact for draft in mine if draft.type != Type.DECISION for fact in draft.facts):
        if is_decision(fact.text) and not any(_repeats(fact.text, words) for words in answers):
            yield fact


def _was_seen(draft: Draft, files: set[str]) -> bool:
    """Return whether a draft that no answer speaks of stays: it rests on something seen, and nothing else tells it."""
    return draft.key == "work" and (bool(draft.commit) or files.isdisjoint(draft.files_modified))


def _left_out(draft: Draft, told: Sequence[Said]) -> Draft | None:
    """Return a decision, the user's or the agent's, as far as no answer repeats it. Its file alone is no repetition."""
    if draft.type != Type.DECISION and draft.trust != "user":
        return None
    answers = [_roots([item.title, item.subtitle, item.narrative, *item.facts]) for item in told]
    facts = draft.facts or (Fact(draft.title),)
    left = [fact for fact in facts if not any(_repeats(fact.text, words) for words in answers)]
    if not left or len(left) == len(facts):
        return draft if left else None
    narrative = " ".join(fact.text for fact in left)
    return replace(draft, title=as_title(left[0].text), narrative=narrative, facts=tuple(left))


def _repeats(text: str, answer: set[str]) -> bool:
    """Return whether an answer has most of the words that a sentence is about."""
    words = _roots([text]) - _COMMON
    return bool(words) and len(words & answer) / len(words) >= REPEATED


def _roots(texts: Iterable[str]) -> set[str]:
    """Return words without the endings in which two tellings of the same differ most."""
    return {re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in _words(texts)}


def _partner(draft: Draft, told: Sequence[Said]) -> int | None:
    """Which of the told ones speaks of the same, if any does."""
    best, number = max((_alike(draft, item), -number) for number, item in enumerate(told))
    return -number if best > 0.12 else None


def _alike(draft: Draft, item: Said) -> float:
    """Words in common, in proportion; files count like words."""
    ours = _words([draft.title, draft.narrative, *(fact.text for fact in draft.facts), *draft.files_modified])
    theirs = _words([item.title, item.narrative, *item.facts, *item.files_modified])
    return len(ours & theirs) / (min(len(ours), len(theirs)) or 1)


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[^\W_]{3,}", text.lower())}


def _join(item: Said, own: Sequence[Draft], found: Evidence, turn: Turn, number: int, *, alone: bool) -> Draft:
    changed = _touched(item.files_modified, found.edited)
    changed += tuple(path for draft in own for path in draft.files_modified if path not in changed)
    if alone and not changed:
        changed = found.edited
    return Draft(
        key=own[0].key if own else f"model:{number}",
        type=Type.DECISION if item.type == Type.RULE else item.type,  # nobody but the user states a rule
        title=item.title,
        subtitle=item.subtitle,
        narrative=item.narrative,
        facts=_facts(item, own, found, turn),
        concepts=item.concepts or (own[0].concepts if own else ()),
        files_read=_touched(item.files_read, found.files_read)[:20],
        files_modified=changed[:20],
        commit=next((draft.commit for draft in own if draft.commit), ""),
    )


def _touched(claimed: Iterable[str], real: Sequence[str]) -> tuple[str, ...]:
    """Of the files a model names, those that a tool touched, under their real names."""
    names = [path for claim in claimed for path in real if path == claim or path.endswith("/" + claim.lstrip("./"))]
    names += [path for claim in claimed for path in real if claim.endswith("/" + path)]
    return tuple(dict.fromkeys(names))


def _facts(item: Said, own: Sequence[Draft], found: Evidence, turn: Turn) -> tuple[Fact, ...]:
    shown = [
        fact for draft in own for fact in draft.facts if fact.events and tuple(fact.events) != (found.message_seq,)
    ]
    shown = list({fact.text: fact for fact in shown}.values())[:MOST_EVIDENCE]
    told = [Fact(text, _sources(text, found, turn)) for text in item.facts if text not in {fact.text for fact in shown}]
    return (*told[: MOST_FACTS - len(shown)], *shown)


def _sources(text: str, found: Evidence, turn: Turn) -> tuple[int, ...]:
    """The events a fact may be checked against: those of the files and commands it names, else the last words."""
    named = [edit.seq for edit in found.edits if _mentions(text, edit.path)]
    named += [item.seq for item in found.read if _mentions(text, item.text)]
    named += [command.seq for command in found.commands if command.key and command.key in text]
    if found.message_seq:
        named = named or [found.message_seq]
    return tuple(sorted(set(named or turn.seqs[-1:])))


def _mentions(text: str, path: str) -> bool:
    return path in text or path.rpartition("/")[2] in text
