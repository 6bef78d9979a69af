"""What a title is about: the question, the wish, the names and the heading that a sentence out of its place lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from claude_mem.providers import prose
from claude_mem.providers.words import content_words, names

if TYPE_CHECKING:
    from claude_mem.providers.candidates import Story
    from claude_mem.providers.markdown import Statement

VAGUE = re.compile(r"(?i)\b(?:it|this|that|these|those|them|they|here|there|same|something|everything|stuff|things?)\b")
_ASKING = re.compile(
    r"(?i)^(?:(?:can|could) you )?(?:please )?(?:(?:double[- ]?|re)?check|verify|see|tell me|explain|help me understand|understand|show me|look|find out|investigate|describe|know|confirm)\b"
    r"(?: (?:me|us|again|fully|also|now|quickly|briefly|into|out|at|for))*(?: (?:if|whether|that)\b)?[\s,:]*"
)
_BROKEN = re.compile(
    r"(?i)\b(?:bugs?|errors?|fail(?:s|ed|ing|ure|ures)?|broken|wrong|incorrect\w*|doesn't|does not|didn't|isn't|not working|no longer|crash\w*|panic\w*|unexpected\w*|still (?:see|get|have|shows?)|stuck|hang\w*|missing|lacks?|never)\b"
)
# "check if …" names a condition, "ensure …" what should be so: neither tells what was done.
_LOOKED = re.compile(r"(?i)^(?:checked|verified|ensured|made sure|tested|confirmed)\b")
_PERSON = re.compile(r"(?i)^(?:i|i'm|i've|i'd|you|we|my|our|your|or|option|go with)\b")
_TAG = re.compile(r"(?i),? ?\b(?:yeah|right|or|no|correct|please|or not|is it|isn't it)$")


def asked_subject(story: Story) -> str:
    """Return the question or the wish as the beginning of a title: an answer alone often lacks its subject."""
    asked = story.asked
    whole = _TAG.sub("", _ASKING.sub("", asked.text) if asked.is_question else asked.text)
    whole = re.sub(r"(?i)\b(?:I|we) have (?=an?\b)", "one has ", whole)
    short = prose.fit(whole, 90).strip(" ,.;:-")
    if asked.plan or len(content_words(short)) < 3 or VAGUE.search(short[:40]) or prose.is_fragment(short):
        return ""
    if short.count('"') % 2:
        return ""
    if len(content_words(whole)) > 2 * len(content_words(short)) or _PERSON.match(short):
        return ""
    short = short[:1].upper() + short[1:]
    if asked.is_question:
        return f"{short}?"
    done = prose.past(short)
    if _LOOKED.match(done):
        return ""
    return f"{done}:" if story.worked and (done != short or _BROKEN.search(short)) else ""


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
    """Return what was asked about in a few words: the plan's heading, the pull request under review, else a name in the
    wish that the answer speaks of."""
    if story.asked.plan:
        return prose.fit(story.asked.plan, 60)
    if story.asked.review:
        return story.asked.review
    if _REVIEWED.search(story.asked.text) and (branch := _reviewed_branch(story)):
        return f"Review of `{branch}`"
    spoken = story.message_words | story.work_words
    named = [
        name
        for name in names(story.asked.text)
        if len(name) > 2 and content_words(name) & spoken and _TOPIC.fullmatch(name) and name not in _COMMON
    ]
    return next((name for name in named if len(name) <= 45), "")


_REVIEWED = re.compile(r"(?i)\breview")
_BRANCH = re.compile(r"(?i)`(?P<before>[\w./-]{3,80})` branch\b|\bbranch:? `(?P<after>[\w./-]{3,80})`")


def _reviewed_branch(story: Story) -> str:
    for one in story.statements[:12]:
        if match := _BRANCH.search(one.labelled):
            return match["before"] or match["after"]
    return ""


def talked_about(story: Story) -> str:
    """Return the name that the message speaks of most, if the prompts before speak of it, too, or it is said often."""
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
