"""Decide the type of a turn's record, and whether it is worth keeping.

Both are decided from evidence first (what was edited, created, committed; what failed and then passed), then from the
words of the request and the title, by learned weights (`data/writer.toml`).
"""

from __future__ import annotations

import re

from claude_mem.digest import open_steps, prose, ranking
from claude_mem.digest.prose import content_words, names
from claude_mem.digest.subjects import Story, is_test
from claude_mem.domain.records import ObservationType

TYPES = (
    ObservationType.BUGFIX,
    ObservationType.FEATURE,
    ObservationType.REFACTOR,
    ObservationType.CHANGE,
    ObservationType.DISCOVERY,
    ObservationType.DECISION,
)

_DOCS = re.compile(r"(?i)\.(?:md|mdx|rst|txt|adoc)$|(?:^|/)(?:docs?|license|changelog|readme|codeowners)(?:[/.]|$)")
_CONFIG = re.compile(r"(?i)\.(?:ya?ml|toml|json|ini|cfg|lock|env|properties)$|(?:^|/)(?:\.\w+|makefile|dockerfile)$")
_WORDS = {
    "fix": re.compile(
        r"(?i)\b(?:fix\w*|bug\w*|broken|crash\w*|regression|fail(?:s|ed|ing|ure)?|wrong\w*|incorrect\w*|error\w*|doesn't|does not|not work\w*|hang\w*|leak\w*|race|missing|panic\w*|prevent\w*|no longer|root cause|caused|issue)\b"
    ),
    "add": re.compile(
        r"(?i)\b(?:add\w*|implement\w*|creat\w*|introduc\w*|support\w*|new|build|allow\w*|feat\w*|enabl\w*|now (?:shows?|records?|has|supports?))\b"
    ),
    "refactor": re.compile(
        r"(?i)\b(?:refactor\w*|renam\w*|clean\w*|simplif\w*|restructur\w*|extract\w*|mov(?:e|ed|ing)|dedup\w*|duplicat\w*|consolidat\w*|dead code|unused|redundant|reuse\w*|unif\w*|typed?|instead of|replac\w*|split)\b"
    ),
    "change": re.compile(
        r"(?i)\b(?:updat\w*|chang\w*|bump\w*|set|document\w*|readme|changelog|comment\w*|text|wording|rename\w*|label\w*|message|delet\w*|remov\w*|timeout|config\w*|version|license|default\w*|hid(?:e|den)|increas\w*|rebas\w*|test\w*)\b"
    ),
    "test": re.compile(r"(?i)\btests?\b"),
    "decide": re.compile(
        r"(?i)\b(?:decid\w*|cho(?:se|ose|ice)|instead|prefer\w*|keep|kept|won't|trade-?offs?|reject\w*|propos\w*|recommend\w*|options?|approach|design|should we|plan)\b"
    ),
}
_VERBS = {
    "fix": re.compile(
        r"(?i)\W{0,3}(?:fix|resolv|correct|repair|prevent|handl|avoid|root cause|the (?:bug|issue|problem|fix))"
    ),
    "add": re.compile(
        r"(?i)\W{0,3}(?:add|creat|implement|introduc|support|allow|enabl|new\b|build|show|display|expos|propagat|highlight)"
    ),
    "refactor": re.compile(
        r"(?i)\W{0,3}(?:refactor|renam|mov|extract|simplif|consolidat|replac|convert|split|unif|dedup|clean|reus|switch|merg|import|us(?:e|ed|es)\b)"
    ),
    "change": re.compile(
        r"(?i)\W{0,3}(?:updat|chang|set\b|bump|increas|reduc|hid|mak|made|mark|rename|swap|wrap|prefix|document|clarif|improv|reword|disabl|default)"
    ),
    "remove": re.compile(r"(?i)\W{0,3}(?:remov|delet|drop)"),
    "test": re.compile(r"(?i)\W{0,3}(?:add\w* (?:\w+ ){0,4}tests?|tests?\b|cover)"),
}
_BROKEN = re.compile(
    r"(?i)\b(?:bugs?|errors?|fail(?:s|ed|ing|ure)?|broken|wrong|incorrect\w*|doesn't|does not|don't (?:see|work)|didn't|isn't|not working|no longer|crash\w*|panic\w*|issue|problem|unexpected\w*|warning|"
    r"still (?:see|get|have|shows?)|why (?:is|does|do|are)|should(?:n't| not) (?:be|have)|stuck|hang\w*|missing)\b"
)
_COMMIT_TYPE = re.compile(r"^(?P<type>feat|fix|refactor|docs|test|chore|style|ci|build|perf)\b")
_ROUTINE = re.compile(
    r"(?ix)^\W*(?:(?:ok(?:ay)?|yes|please|now|then|and|great|good|perfect|can\ you|could\ you|let's|also)\W+)*"
    r"(?:comm?it|push|merge|rebase|pull|stage|amend|squash|open|create|make|update|post|reply|respond)\b[^.]{0,60}"
    r"\b(?:it|this|these|that|all|now|again|changes?|pr|pull\ request|branch|everything|main|remote|upstream|comments?)?\W*$"
)
_COMMIT_ONLY = re.compile(
    r"(?i)^\W*(?:(?:ok(?:ay)?|yes|please|now|then|and|great|good|perfect|looks good|can you|let's|also)\W+)*(?:comm?it|push)\b.{0,50}$"
)


def is_document(path: str) -> bool:
    """Return whether a file is documentation, such as a changelog."""
    return bool(_DOCS.search(path))


def features(story: Story, title: str) -> dict[str, float]:
    """Return the features that decide the type, by name."""
    evidence = story.evidence
    paths = evidence.edited_paths
    source = [path for path in paths if not _DOCS.search(path) and not _CONFIG.search(path) and not is_test(path)]
    created = [edit.path for edit in evidence.edits if edit.created]
    commit = next((match["type"] for one in evidence.commits if (match := _COMMIT_TYPE.match(one.subject))), "")
    worked = story.worked
    values = {
        "work" if worked else "no work": 1.0,
        "asked a question": float(story.request.is_question),
        "only documents": float(bool(paths) and all(_DOCS.search(path) for path in paths)),
        "only tests": float(bool(paths) and all(is_test(path) for path in paths)),
        "only settings": float(bool(paths) and all(_CONFIG.search(path) or _DOCS.search(path) for path in paths)),
        "new source file": float(any(path in source for path in created)),
        "new definitions": float(any(edit.change.added for edit in evidence.edits if edit.path in source)),
        "removed definitions": float(any(edit.change.removed for edit in evidence.edits)),
        "moved or deleted": float(bool(evidence.moves)),
        "many files": float(len(paths) > 4),
        "failed before": float(bool(evidence.fixes) and worked),
        "names a cause": float(
            any(
                re.match(r"(?i)(?:the )?(?:root )?(?:cause|problem|bug|issue)", f"{one.label or one.section}")
                for one in story.statements
            )
        ),
        "proposal": float(open_steps.is_proposal(story, ["open"])),
        "plan": float(bool(story.request.plan or evidence.plan)),
        **({f"commit {commit}": 1.0} if commit else {}),
    }
    claims = [one.text for one in story.statements if one.kind != "heading"][:40]
    added = sum(edit.change.added_lines for edit in evidence.edits)
    removed = sum(edit.change.removed_lines for edit in evidence.edits)
    values["more lines gone than new"] = float(removed > added)
    values["mostly new lines"] = float(added > 3 * removed + 5)
    values["small"] = float(worked and added + removed < 12)
    values["asked about something broken"] = float(bool(_BROKEN.search(story.prompt[:2_000])))
    for name, pattern in _WORDS.items():
        kind = "work" if worked else "answer"
        values[f"asked: {name} ({kind})"] = float(bool(pattern.search(story.request.text)))
        values[f"title: {name} ({kind})"] = float(bool(pattern.search(title)))
    if worked:
        for name, pattern in _VERBS.items():
            values[f"wish begins: {name}"] = float(bool(pattern.match(story.request.text)))
            values[f"title begins: {name}"] = float(bool(pattern.match(re.sub(r"^[\w./`-]{2,40}: ", "", title))))
            values[f"claims begin: {name}"] = (
                sum(bool(pattern.match(claim)) for claim in claims) / max(3, len(claims)) * 3
            )
    return values


def record_type(story: Story, title: str) -> str:
    """Return the type of the turn's record."""
    if story.planned:
        return ObservationType.DISCOVERY  # the result of a plan is a separate record
    if story.worked and _FIXED.match(title) and not _only_changes_texts(story):
        return ObservationType.BUGFIX
    values, weights = features(story, title), ranking.weights()
    possible = [one for one in TYPES if story.worked or one in (ObservationType.DISCOVERY, ObservationType.DECISION)]
    if not _WORDS["decide"].search(f"{title} {story.request.text}"):
        possible.remove(ObservationType.DECISION)  # requires a choice between alternatives
    return max(possible, key=lambda one: ranking.score(values, weights.get(f"type {one}", {})))


_FIXED = re.compile(r"Fixed\b(?!:? (?:typos?|lint\w*|formatting|style|comments?|review|feedback|wording))")


def _only_changes_texts(story: Story) -> bool:
    paths = story.evidence.edited_paths
    return bool(paths) and all(_DOCS.search(path) or is_test(path) for path in paths)


def worth_features(story: Story, title: str, rank: float) -> dict[str, float]:
    """Return the features that decide whether a record is kept, by name."""
    evidence = story.evidence
    claims = [one for one in story.statements if not prose.is_chat(one.text) and not prose.is_status(one.text)]
    prompt = story.request.text
    return {
        "bias": 1.0,
        "edits": float(bool(evidence.edits)),
        "commits": float(bool(evidence.commits)),
        "made or moved": float(bool(evidence.creations or evidence.moves)),
        "routine": float(is_routine(story)),
        "nothing said": float(not claims),
        "little said": float(len(evidence.message) < 200),
        "much said": float(len(evidence.message) > 700),
        "statements": min(len(claims), 12) / 8,
        "names in the title": min(len(names(title)), 3) / 2,
        "title words": min(len(content_words(title)), 12) / 8,
        "looked": float(bool(evidence.reads or evidence.searches or evidence.reports)),
        "looked nowhere": float(not (evidence.reads or evidence.searches or evidence.commands or evidence.edits)),
        "pointed prompt": float(story.request.refers_back),
        "question": float(story.request.is_question),
        "asked words": min(len(content_words(prompt)), 10) / 8,
        "rank": max(-3.0, min(rank, 6.0)) / 3,
        "rejected": float(bool(evidence.rejections)),
    }


def is_routine(story: Story) -> bool:
    """Return whether the turn only committed, pushed or passed on earlier work."""
    return not story.evidence.edits and bool(_COMMIT_ONLY.match(story.prompt) or _ROUTINE.match(story.prompt))


def is_worth_keeping(story: Story, title: str, rank: float) -> bool:
    """Return whether there is anything to remember. Edits and commits count, unless they only record earlier work
    ("commit and update the changelog"); otherwise learned weights decide."""
    if (story.evidence.edits or story.evidence.commits) and not _COMMIT_ONLY.match(story.prompt):
        return True
    return ranking.score(worth_features(story, title, rank), ranking.weights().get("worth", {})) > 0
