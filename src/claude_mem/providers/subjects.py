"""The story of a turn, and the subject of a title: the question, request, names and heading that an isolated sentence lacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from claude_mem.providers import prose
from claude_mem.providers.asked import Asked
from claude_mem.providers.evidence import Evidence
from claude_mem.providers.markdown import Statement
from claude_mem.providers.words import content_words, names

VAGUE = re.compile(r"(?i)\b(?:it|this|that|these|those|them|they|here|there|same|something|everything|stuff|things?)\b")
_ASKING = re.compile(
    r"(?i)^(?:(?:can|could) you )?(?:please )?(?:(?:double[- ]?|re)?check|verify|see|tell me|explain|help me understand|understand|show me|look|find out|investigate|describe|know|confirm)\b"
    r"(?: (?:me|us|again|fully|also|now|quickly|briefly|into|out|at|for))*(?: (?:if|whether|that)\b)?[\s,:]*"
)
_BROKEN = re.compile(
    r"(?i)\b(?:bugs?|errors?|fail(?:s|ed|ing|ure|ures)?|broken|wrong|incorrect\w*|doesn't|does not|didn't|isn't|not working|no longer|crash\w*|panic\w*|unexpected\w*|still (?:see|get|have|shows?)|stuck|hang\w*|missing|lacks?|never)\b"
)
# "check if …" names a condition, "ensure …" a goal: neither states what was done.
_LOOKED = re.compile(r"(?i)^(?:checked|verified|ensured|made sure|tested|confirmed)\b")
_PERSON = re.compile(r"(?i)^(?:i|i'm|i've|i'd|you|we|my|our|your|or|option|go with)\b")
_TAG = re.compile(r"(?i),? ?\b(?:yeah|right|or|no|correct|please|or not|is it|isn't it)$")

CHANGE_START = re.compile(
    r"(?i)^(?:\d+\.\s*)?(?:add|creat|implement|fix|remov|delet|renam|mov|extract|refactor|simplif|consolidat|replac|chang|updat|switch|improv|introduc|support|dropp?)\w*\b"
)
_TEST = re.compile(r"(?i)(?:^|[/_.-])(?:tests?|spec)(?:[/_.-]|$)|_test\.|\.test\.|\.spec\.|(?:^|/)test_")


@dataclass(frozen=True)
class Story:
    """Everything known about a turn when its record is written."""

    request: Asked
    evidence: Evidence
    statements: Sequence[Statement]
    prompt: str = ""
    earlier: tuple[str, ...] = ()  # prompts of the session before this one

    @cached_property
    def asked_words(self) -> frozenset[str]:
        return content_words(self.request.text)

    @cached_property
    def work_words(self) -> frozenset[str]:
        """Words of the edited and committed things: files, symbols, subjects."""
        symbols = [name for edit in self.evidence.edits for name in (*edit.change.added, *edit.change.changed)]
        files = [PurePosixPath(edit.path).stem for edit in self.evidence.edits]
        return content_words(" ".join([*files, *symbols, *(commit.subject for commit in self.evidence.commits)]))

    @cached_property
    def message_words(self) -> frozenset[str]:
        """Words that the closing message uses more than once, and so is about."""
        word_counts: dict[str, int] = {}
        for statement in self.statements:
            for word in content_words(statement.labelled):
                word_counts[word] = word_counts.get(word, 0) + 1
        return frozenset(word for word, times in word_counts.items() if times > 1)

    @cached_property
    def all_words(self) -> frozenset[str]:
        return frozenset(word for one in self.statements for word in content_words(one.labelled))

    @cached_property
    def name_counts(self) -> Counter[str]:
        """Number of statements of the closing message that mention each name."""
        return Counter(name for one in self.statements for name in names(f"{one.labelled} {one.section}"))

    @cached_property
    def edited_names(self) -> frozenset[str]:
        """The definitions and files that were edited."""
        edits = self.evidence.edits
        symbols = {name for edit in edits for name in (*edit.change.added, *edit.change.changed, *edit.change.removed)}
        return frozenset(symbols | {PurePosixPath(edit.path).name for edit in edits})

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """Possible topics of a sentence, each in a few words, the most certain first."""
        candidates = (topic_of(self), talked_about(self))
        return tuple(dict.fromkeys(topic for topic in candidates if topic))

    @cached_property
    def subject(self) -> str:
        return asked_subject(self)

    @cached_property
    def first_claim(self) -> int:
        """Position of the first statement with information: not chat, a status, a heading or a lead-in."""
        for one in self.statements:
            bare = prose.without_chat(one.text)
            if (
                one.kind in ("prose", "item")
                and len(content_words(bare)) >= 3
                and not prose.is_chat(bare)
                and not prose.is_status(bare)
            ):
                return one.position
        return 0

    @cached_property
    def worked(self) -> bool:
        evidence = self.evidence
        if evidence.edits or evidence.commits or evidence.moves or evidence.creations:
            return not self.planned
        # A plan may be carried out where events do not show it, for example by a subagent; then the agent's statement counts.
        claims = [one.text for one in self.statements if one.kind != "heading"]
        return bool(self.request.plan) and any(CHANGE_START.match(prose.without_chat(claim)) for claim in claims)

    @cached_property
    def planned(self) -> bool:
        """Whether nothing but a plan was written."""
        evidence = self.evidence
        return bool(evidence.edits) and not evidence.commits and all(map(is_plan, evidence.edited))

    @cached_property
    def place(self) -> str:
        """The file with most of the work, without its directories; "" if the work is spread out."""
        lines: dict[str, int] = {}
        for edit in self.evidence.edits:
            lines[edit.path] = lines.get(edit.path, 0) + edit.change.added_lines + edit.change.removed_lines + 1
        lines = {path: number for path, number in lines.items() if not is_test(path)} or lines
        if not lines:
            return ""
        path, most = max(lines.items(), key=lambda item: item[1])
        return PurePosixPath(path).name if len(lines) == 1 or most * 2 >= sum(lines.values()) else ""


def is_plan(path: str) -> bool:
    """Return whether the path is a file of the agent's own plans."""
    return bool(re.search(r"(?:^|/)(?:\.claude/)?plans?/[^/]+\.md$", path))


def is_test(path: str) -> bool:
    return bool(_TEST.search(path))


def asked_subject(story: Story) -> str:
    """Return the question or the request as the beginning of a title: an answer alone often lacks its subject."""
    request = story.request
    whole = _TAG.sub("", _ASKING.sub("", request.text) if request.is_question else request.text)
    whole = re.sub(r"(?i)\b(?:I|we) have (?=an?\b)", "one has ", whole)
    short = prose.fit(whole, 90).strip(" ,.;:-")
    if request.plan or len(content_words(short)) < 3 or VAGUE.search(short[:40]) or prose.is_fragment(short):
        return ""
    if short.count('"') % 2:
        return ""
    if len(content_words(whole)) > 2 * len(content_words(short)) or _PERSON.match(short):
        return ""
    short = short[:1].upper() + short[1:]
    if request.is_question:
        return f"{short}?"
    past_request = prose.past(short)
    if _LOOKED.match(past_request):
        return ""
    return f"{past_request}:" if story.worked and (past_request != short or _BROKEN.search(short)) else ""


_TOPIC = re.compile(
    r"(?![0-9a-f/-]{6,}\Z|[0-9a-f]{8}-|Users/|home/|opt/|usr/|var/|/|https?:|e\.g|\d)[\w.@:#/-]+(?: [\w.-]+){0,2}(?:\(\))?"
)
_COMMON = frozenset(
    [
        "API",
        "CLI",
        "CI",
        "UI",
        "PR",
        "ID",
        "JSON",
        "YAML",
        "HTTP",
        "URL",
        "OK",
        "TODO",
        "README",
        "NOT",
        "AND",
        "OR",
        "DO",
        "MIT",
        "SQL",
        "HTML",
        "CSS",
        "e.g",
        "i.e",
        "true",
        "false",
        "nil",
        "null",
    ]
)


def topic_of(story: Story) -> str:
    """Return the topic of the request in a few words: the plan's heading, the pull request under review, else a name in
    the request that the answer mentions."""
    if story.request.plan:
        return prose.fit(story.request.plan, 60)
    if story.request.review:
        return story.request.review
    if _REVIEWED.search(story.request.text) and (branch := _reviewed_branch(story)):
        return f"Review of `{branch}`"
    spoken = story.message_words | story.work_words
    matching_names = [
        name
        for name in names(story.request.text)
        if len(name) > 2 and content_words(name) & spoken and _TOPIC.fullmatch(name) and name not in _COMMON
    ]
    return next((name for name in matching_names if len(name) <= 45), "")


_REVIEWED = re.compile(r"(?i)\breview")
_BRANCH = re.compile(r"(?i)`(?P<before>[\w./-]{3,80})` branch\b|\bbranch:? `(?P<after>[\w./-]{3,80})`")


def _reviewed_branch(story: Story) -> str:
    for one in story.statements[:12]:
        if match := _BRANCH.search(one.labelled):
            return match["before"] or match["after"]
    return ""


def talked_about(story: Story) -> str:
    """Return the name that the message mentions most, if earlier prompts mention it, too, or it is mentioned often."""
    earlier = " ".join([story.prompt[:2_000], *story.earlier])
    counts = {
        name: count for name, count in story.name_counts.items() if 3 < len(name) <= 45 and _TOPIC.fullmatch(name)
    }
    best = max(counts, key=lambda name: (counts[name] + 2 * (name in earlier), -len(name)), default="")
    if not best or best in _COMMON:
        return ""
    return best if counts[best] >= 4 or (counts[best] >= 2 and best in earlier) else ""


_GENERIC_SECTION = re.compile(
    r"(?i)^(?:\W*(?:the|key|main|what|how|why|when|it|this|i|was|were|is|are|my|a|an|of|in|for|to|and|your|other|minor|important|critical|current|files?|changes?|changed|made|found|did|done|fix|fixed|fixes|summary|overview|details?|results?|tests?|testing|verification|notes?|"
    r"modified|new|committed|logic|scenario|applied|updated|user|experience|passed|checks?|pre-commit|complete|edge|cases?|quick|full|final|next|proposed|plan|revised|additional|remaining|analysis|background|context|problem|issues?|solution|root|cause|answer|short|conclusion|recommendations?|options?|usage|examples?|behavior|behaviour|implementation|findings?|works?|structure|flow|step|steps|\d+|before|after|strengths?|assessment|review|code|report|status|output|impact|benefits?|section|response)\b\W*)+$"
)


_LEADS_ON = re.compile(
    r"(?i)^(?:his|her|their|what|which|how|so|and|but|if|for|day|option|approach|pr \d)\b|\b(?:has|have|could|when|with|is|are)$"
)


def section_of(one: Statement) -> str:
    """Return the heading above a statement, if it names something."""
    bare = re.sub(
        r"(?i)^(?:summary(?: of (?:the |all )?)?|section \d+|step \d+|\d+\.?)\s*[:.)–-]?\s*", "", one.section
    ).strip()
    if not bare or len(bare) > 60 or _GENERIC_SECTION.match(bare) or len(content_words(bare)) < 2 or bare.endswith("?"):
        return ""
    return "" if prose.is_pointing(bare) or prose.is_status(bare) or _LEADS_ON.search(bare) else bare
