"""Choose the title among the candidates: a linear model over named features.

The weights are learned from judged turns by `bench/train_writer.py` and stored, readable, in `data/writer.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from claude_mem.digest import prose
from claude_mem.digest.candidates import TitleCandidate
from claude_mem.digest.markdown import Statement
from claude_mem.digest.prose import content_words, names
from claude_mem.digest.subjects import Story, is_test

WEIGHTS = Path(__file__).parents[1] / "data" / "writer.toml"
_CHANGED = re.compile(
    r"(?i)\W{0,3}(?:\S{1,60}: )?(?:add|creat|implement|introduc|support|enabl|allow|fix|resolv|correct|repair|prevent|handl|remov|delet|drop|renam|mov|extract|refactor|simplif|"
    r"consolidat|replac|chang|updat|switch|set|us|mak|made|convert|migrat|increas|reduc|improv|bump|upgrad|document|writ|wrote|test|mark|hid|show|pass|return|stor|track|expos|export|merg|rebas|revert|disabl|wrap|split|clean|unif|restor|validat|check|ensur|cover|rework|tighten)\w*\b"
)
_CAUSE = re.compile(
    r"(?i)\b(?:because|root cause|caused|causes|due to|the (?:issue|problem|bug|cause|reason)\b|turns? out|instead of|no longer|was missing|were missing|missing|never|doesn't|does not|didn't|only|was (?:not|never|being))\b"
)
_OPEN = re.compile(
    r"(?i)\b(?:could|would|should|might|may|can be|option|recommend|suggest|propos|consider|next|todo|remaining|plan to|want)\w*\b"
)
_STATE = re.compile(
    r"(?i)\b(?:is|are|was|were|now|has|have|will|uses?|returns?|shows?|stores?|works?|needs?|requires?|means?|contains?|creates?|calls?|runs?|reads?|writes?)\b"
)
_NEXT_SECTION = re.compile(
    r"(?i)next|remaining|to.?do|follow.?up|option|recommend|question|future|alternativ|usage|example|how to|test plan|testing|verif|before\b|notes?$"
)
_DONE_SECTION = re.compile(
    r"(?i)summary|changes?|done|fix|root cause|what (?:was|changed|i)|implement|solution|result|overview|findings?|conclusion|verdict|issue|problem"
)
_CONDITIONAL = re.compile(
    r"(?i)^\W*(?:if|when|for|since|given|after|before|once|although|while|in (?:this|these|that|your|the)|at|on|as|without|with|to)\b"
)
_ADDRESSED = re.compile(r"(?i)\b(?:you|your|you're|i|i'd|i'm|me|my|let's|please)\b")
_VAGUE = re.compile(
    r"(?i)\b(?:it|this|that|these|those|them|they|here|there|above|same|such|something|everything|stuff|things?|the (?:fix|changes?|issue|problem|bug|code|tests?|file|comments?))\b"
)
_TEST = re.compile(r"(?i)\btests?\b|Test[A-Z_]\w+|test_\w+")
_ABOUT_FIX = re.compile(r"(?i)^\W*(?:the (?:fix|solution|change|problem|issue|bug)|fixed by|finding)\b")
# A number refers to a list in this conversation.
_POINT = re.compile(
    r"(?i)^\W*(?:the |actual |real |key |main |short |core |\d\. ?)*(?:root cause|cause|issue|problem|bug|bug fix(?:ed)?|finding|verdict|bottom line|conclusion|answer|tl;?dr|insight|takeaway|summary|result|mystery|reason|why|fix|solution|recommendation)s?\b"
)
_IS_POINT = re.compile(
    r"(?i)\b(?:(?:root |real |actual )cause|the (?:bug|issue|problem|reason|answer|difference|key|actual (?:bug|issue|problem)) (?:is|was|happens|happened)|bug is|this is (?:a|the) (?:bug|problem|cause)|turns out|that's why|misdiagnos\w+|too (?:aggressive|eager)\w*|race condition|is (?:actually|not|never|purely|only)|isn't|doesn't|won't|no longer|still)\b"
)
_CONCLUDES = re.compile(
    r"(?i)^\W*(?:so|therefore|thus|in short|overall|bottom line|this means|that means|in other words|in summary|essentially|basically|the result)\b"
)
_MORE = re.compile(r" and \d{1,3} more$")
_NUMBERED = re.compile(
    r"(?i)\b(?:option|approach|test|step|phase|section|bug|problem|issue|item|point|line|comment|question|part|task|case|scenario|fix)s? #?(?:\d{1,3}|[A-E])\b|(?<![\w/])#\d{1,2}\b|\b(?:first|second|third|former|latter) (?:one|two|three|test|option|case|call|issue|approach|point)s?\b"
)
_THE_THING = re.compile(
    r"(?i)^\W*(?:the|both|all|each|these|those|this|that|your|our)(?: \w+){0,2} (?:is|are|was|were|has|have|will|would|now|can|does|do|should|must|gets?|shows?|uses?|works?)\b"
)
_TALK = re.compile(
    r"(?i)\b(?:above|below|earlier|previously|as (?:discussed|mentioned|requested|expected)|yeah|actually|simply|basically|currently|already|perfect|clean|good|great|nice|exactly|good idea|makes sense|looks? (?:good|right|correct))\b"
)
_EXAMPLE = re.compile(r"(?i)\bfor example\b|\be\.g\.|\bexample\b|→|❯|\$ ")


def features(candidate: TitleCandidate, story: Story) -> dict[str, float]:
    """Return the features of a candidate by name. All values are between -1 and about 2."""
    place = " after work" if story.worked else " in an answer"
    values = {
        f"bias of {candidate.source}{place}": 1.0,
        **_of_words(candidate, story),
        **_of_form(candidate, story),
        **_of_names(candidate, story),
    }
    if candidate.source == "wish":
        values |= _of_wish(candidate, story)
    if candidate.statement:
        values |= _of_statement(candidate, candidate.statement, story)
    return values


def _of_words(candidate: TitleCandidate, story: Story) -> dict[str, float]:
    """Return how much the title names, and which share belongs to the request, the work and the message."""
    title, words = candidate.title, content_words(candidate.title)
    count = max(1, len(words))
    return {
        "names": min(len(names(title)), 5) / 3,
        "no name": float(not names(title)),
        "words": min(count, 16) / 10,
        "short": float(count < 5),
        "long": float(len(title) > 110),
        "very long": float(len(title) > 140),
        "asked about": len(words & story.asked_words) / max(3, min(len(story.asked_words), 8)),
        "asked about, share": len(words & story.asked_words) / count,
        "worked on": min(len(words & story.work_words), 6) / 4,
        "worked on, share": len(words & story.work_words) / count,
        "theme": min(len(words & story.message_words), 8) / 5,
        "theme, share": len(words & story.message_words) / count,
    }


def _of_form(candidate: TitleCandidate, story: Story) -> dict[str, float]:
    """Return what kind of sentence the title is, and what was added to it."""
    title, one, worked = candidate.title, candidate.statement, story.worked
    text = one.text if one else title
    return {
        "chat": float(prose.is_chat(text)),
        "status": float(prose.is_status(text)),
        "offer": float(prose.is_offer(text)),
        "points back": float(prose.is_pointing(title)),
        "placed": float(candidate.placed),
        "topical": float(candidate.topical),
        "asked, after work": float(candidate.with_request and worked),
        "asked, in an answer": float(candidate.with_request and not worked),
        "asked, of a sentence that points back": float(
            candidate.with_request and bool(one) and prose.is_pointing(text)
        ),
        "asked, of a sentence without names": float(candidate.with_request and not names(text)),
        "a change, after work": float(worked and bool(_CHANGED.match(title))),
        "a change, in an answer": float(not worked and bool(_CHANGED.match(title))),
        "a state": float(bool(_STATE.search(title))),
        "a cause, after work": float(worked and bool(_CAUSE.search(title))),
        "a cause, in an answer": float(not worked and bool(_CAUSE.search(title))),
        "open, after work": float(worked and bool(_OPEN.search(title))),
        "open, in an answer": float(not worked and bool(_OPEN.search(title))),
        "example": float(bool(_EXAMPLE.search(title))),
        "conditional": float(bool(_CONDITIONAL.match(title))),
        "speaks to someone": float(bool(_ADDRESSED.search(title))),
        "vague": float(bool(_VAGUE.search(title))),
        "joined": float("; " in title),
        "cut": float(candidate.is_cut),
        "about tests only": float(
            worked and bool(_TEST.search(title)) and not all(is_test(path) for path in story.evidence.edited_paths)
        ),
        "about the fix": float(bool(_ABOUT_FIX.match(title))),
        "question": float(title.endswith("?")),
        "sectioned": float(candidate.sectioned),
        "topical, in an answer": float(candidate.topical and not worked),
        "topical, of a sentence without names": float(candidate.topical and not names(text)),
        "exclaims": float(text.endswith("!")),
        "about nothing asked, in an answer": float(
            not worked
            and not (candidate.with_request or candidate.topical)
            and not content_words(title) & story.asked_words
        ),
        "called by its number": float(bool(_NUMBERED.search(title))),
        "the thing": float(bool(_THE_THING.match(title)) and not names(title[:40])),
        "talk": float(bool(_TALK.search(title))),
        "ends in a list": float(bool(_MORE.search(title))),
    }


def _of_names(candidate: TitleCandidate, story: Story) -> dict[str, float]:
    """Return whether the title names the subject of the turn: what was edited, asked about and mentioned most."""
    title, place = candidate.title, " after work" if story.worked else " in an answer"
    own = names(title)
    counts = story.name_counts
    most = max(counts.values(), default=0)
    spoken = max((counts[name] for name in own), default=0)
    return {
        f"names what is spoken of most{place}": spoken / most if most > 1 else 0.0,
        f"names what was asked about{place}": float(any(name in story.prompt for name in own)),
        f"names what earlier prompts speak of{place}": float(
            any(name in text for text in story.earlier for name in own)
        ),
        "names what was edited": float(any(name.rstrip("()") in story.edited_names for name in own)),
        "begins with a name": float(bool(names(title[:30]))),
        "many names": float(len(own) > 4),
    }


def _of_wish(candidate: TitleCandidate, story: Story) -> dict[str, float]:
    title = candidate.title
    return {
        "wish for a change": float(bool(_CHANGED.match(title))),
        "vague wish": float(bool(_VAGUE.search(title) or not names(title))),
        "long wish": float(len(title) > 90),
        "pointed prompt": float(story.request.refers_back),
        "question prompt": float(story.request.is_question),
    }


def _of_statement(candidate: TitleCandidate, one: Statement, story: Story) -> dict[str, float]:
    """Return the position of the title's sentence in the closing message."""
    title, worked = candidate.title, story.worked
    return {
        "first claim": float(one.position == story.first_claim),
        "first claim, a change after work": float(
            one.position == story.first_claim and worked and bool(_CHANGED.match(title))
        ),
        "begins the summary": float(
            one.kind == "prose" and one.first and bool(re.match(r"(?i)summary|overview|tl;dr|conclusion", one.section))
        ),
        "before any heading": float(not one.section and one.depth == 0),
        "first": float(one.position <= 2),
        "early": float(2 < one.position <= 6),
        "late": min(one.position, 40) / 40,
        "deep": float(one.depth > 1),
        "item": float(one.depth == 1),
        "labelled as the point, after work": float(worked and bool(_POINT.match(one.label or one.section))),
        "labelled as the point, in an answer": float(not worked and bool(_POINT.match(one.label or one.section))),
        "says what the point is": float(bool(_IS_POINT.search(one.text))),
        "concludes, after work": float(worked and bool(_CONCLUDES.match(one.text))),
        "concludes, in an answer": float(not worked and bool(_CONCLUDES.match(one.text))),
        "first claim, in an answer": float(one.position == story.first_claim and not worked),
        "right after a heading": float(one.first and one.depth == 0 and bool(one.section)),
        "labelled": float(bool(one.label) and title.startswith(one.label[:10])),
        "bold inside": float(len(one.strong) >= 8),
        "mostly bold, in an answer": float(not worked and len(one.strong) >= 0.5 * len(one.text)),
        "bold inside, in an answer": float(not worked and len(one.strong) >= 8),
        "later in its item": float(bool(one.depth) and not one.first),
        "under what is next": float(bool(_NEXT_SECTION.search(one.section) or _NEXT_SECTION.search(one.lead))),
        "under what was done": float(bool(_DONE_SECTION.search(one.section))),
        "of a summary of the session": float(story.tells_everything),
        "alone in its message": float(len(story.statements) <= 4),
    }


def score(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weights.get(name, 0.0) * value for name, value in values.items())


@lru_cache(maxsize=1)
def weights(path: Path = WEIGHTS) -> Mapping[str, Mapping[str, float]]:
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def names_a_cause(text: str) -> bool:
    return bool(_CAUSE.search(text))


# Files that come and go while something is tried are no piece of work.
_MOVES = re.compile(r"(?i)\b(?:delet|remov|mov|renam|clean|drop|get rid)\w*\b")

# Evidence takes precedence: a commit or a plan names the whole piece of work, in words chosen for that.
_SURE = {"commit": 3, "plan": 2, "task": 1}


def sureness(candidate: TitleCandidate, story: Story) -> int:
    """Return how strongly evidence alone supports a candidate."""
    evidence = story.evidence
    if candidate.source == "moved":
        old_paths = {move.old for move in evidence.moves}
        is_asked = _MOVES.search(story.request.text) or any(_MOVES.search(one.text) for one in story.statements[:3])
        return int(bool(is_asked) and not evidence.commits and old_paths.issuperset(evidence.edited_paths))
    if candidate.source == "plan" and story.planned:
        return _SURE["plan"]
    if candidate.source == "replaced":
        return _SURE["commit"]
    if candidate.source in ("plan", "planned"):
        return _SURE["plan"] if evidence.edits and story.request.plan and not story.request.refers_back else 0
    return _SURE.get(candidate.source, 0) if evidence.edits or candidate.source == "commit" else 0


def rank_candidates(items: Sequence[TitleCandidate], story: Story) -> list[tuple[float, TitleCandidate]]:
    """Return the candidates with their scores, best first."""
    title = weights().get("title", {})
    scored = [(score(features(item, story), title), item) for item in items]
    return sorted(scored, key=lambda pair: (-sureness(pair[1], story), -pair[0]))
