"""Find the checks that a plan leaves to a person: what is to be tried by hand, in a browser or on real data.

A plan lists such checks under a heading like "Verification", between commands that the agent runs itself. A check that
nobody made is an open step: the next session cannot know otherwise that the work was never tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from claude_mem.digest import prose
from claude_mem.digest.evidence import Command, unique
from claude_mem.digest.markdown import Statement

PROMPT_CHARS = 40_000
CHECK_CHARS = 280
MAX_CHECKS = 2

_HEADING = re.compile(r"^(?P<marks>#{1,4}) +(?P<text>\S.{0,160})$", re.M)
_VERIFICATION = re.compile(r"(?i)\b(?:verif\w*|testing|test plan|test strategy|manual|validation)\b")
_ITEM = re.compile(r"^(?P<indent>[ \t]{0,12})(?:[-*]|\d{1,3}\.)[ \t]{1,4}(?:\[ \] )?(?P<text>\S.{3,500})$")

_BY_HAND = re.compile(
    r"(?i)\bmanual(?:ly)?\b|\bvisual(?:ly)?\b|\bby hand\b|\bin (?:the |a )?browser\b|\bdev(?:elopment)? server\b|\b(?:bun|npm|yarn|pnpm) (?:run )?(?:dev|start)\b"
    r"|\bclick(?:s|ing)?\b|\bnavigate\b|\bvisit\b|\bopen (?:the |a |an )?(?:\w+ ){0,3}(?:browser|app|page|tab|modal|dialog|site|ui)\b|\bui\b|\btoggle\b|\bbadges?\b|\bmodals?\b|\bbutton\b|\bdropdown\b|\bbanner\b"
    r"|\bselect (?:the |a |an |some |different |[\"'>])|\brefresh (?:the )?page\b|\bon (?:a|an|the) (?:real|sample|live|staging|production|github)\b|\breal (?:run|data|evaluation|device|world)\b|\brun (?:a|an|the) real\b|\ba/b test\b|\bend[- ]to[- ]end by\b"
)
# What the agent runs or reads itself.
_AUTOMATIC = re.compile(
    r"(?i)^\W*(?:\*\*)?(?:run |re-?run |ensure |execute )?(?:the )?(?:all |existing |full )?(?:unit |integration |e2e |frontend |backend )?(?:`[^`]*\b(?:test|lint|typecheck|tsc|build|fmt|format|vet|check)\b[^`]*`|tests?\b|lint\w*\b|type.?check\w*\b|build\b)|^\W*(?:read|review the diff)\b"
)
_TRIED = re.compile(
    r"(?i)\bmanual(?:ly)? (?:verif|test|check)\w*|\bverified (?:in|by hand|manually|visually)|\bvisually (?:verified|checked|confirmed)|\bscreenshots?\b"
)
_DRIVEN = re.compile(r"(?i)playwright|puppeteer|browser|chrome|selenium")
_OWN_LABEL = re.compile(
    r"(?i)^\W*(?:manual(?:ly)?(?: (?:test\w*|check\w*|verif\w*|review\w*|qa))?|(?:test|check|verify) manually)\s{0,2}[:–—-][\s–—-]{0,3}"
)

_STARTS_ONLY = re.compile(r"(?i)^(?:start|run|launch) (?:the )?(?:dev(?:elopment)? server\b.{0,30}|`[^`]{3,40}`)\W*$")
_READS_ONLY = re.compile(r"(?i)^(?:read|review|skim)\b")


@dataclass
class _Check:
    """An item of the list of checks, with the items below it."""

    text: str
    indent: int
    below: list[str] = field(default_factory=list)

    @property
    def is_by_hand(self) -> bool:
        if _READS_ONLY.match(_OWN_LABEL.sub("", self.text)):
            return False
        if _AUTOMATIC.match(self.text) and not _BY_HAND.search(self.text):
            return False
        return any(_BY_HAND.search(line) for line in (self.text, *self.below))

    @property
    def is_labelled(self) -> bool:
        return bool(_OWN_LABEL.match(self.text))


def untried(
    prompt: str, statements: Iterable[Statement], commands: Sequence[Command], lookups: Iterable[str]
) -> Iterator[str]:
    """Yield the checks of the prompt's plan that were not made, each as one line; consecutive steps are one check."""
    if any(_TRIED.search(one.text) for one in statements) or any(_DRIVEN.search(text) for text in lookups):
        return
    groups: list[list[_Check]] = []
    open_group = False
    for check in _checks(prompt[:PROMPT_CHARS]):
        if not check.is_by_hand or _was_run(check.text, commands):
            open_group = open_group and not _AUTOMATIC.match(check.text) and not check.is_labelled
            if open_group:
                groups[-1].append(check)
            continue
        if open_group and not check.is_labelled:
            groups[-1].append(check)
        else:
            groups.append([check])
        open_group = not check.is_labelled
    for group in groups[:MAX_CHECKS]:
        yield f"Not tried by hand yet: {_as_line(group)}"


def _checks(prompt: str) -> Iterator[_Check]:
    """Yield the checks listed under the headings about verification, and those that say "manual" elsewhere."""
    for is_about_checks, body in _sections(prompt):
        check: _Check | None = None
        for line in body.splitlines():
            if match := _ITEM.match(line):
                text, indent = match["text"].replace("**", ""), len(match["indent"].expandtabs(4))
                if check is not None and indent > check.indent:
                    check.below.append(text)
                    continue
                if check is not None:
                    yield check
                check = _Check(text, indent) if is_about_checks or _says_manual(text) else None
        if check is not None:
            yield check


_MANUAL = re.compile(
    r"(?i)\bmanual(?:ly)?\b\W{0,4}(?:visual )?(?:test|verif|check|confirm|try)|\b(?:test|verif|check|confirm)\w*\b.{0,40}\bmanually\b"
)


def _says_manual(text: str) -> bool:
    return bool(_MANUAL.search(text))


def _sections(prompt: str) -> Iterator[tuple[bool, str]]:
    """Yield the sections of a plan, and whether each is about verification. A heading below such a one belongs to it."""
    headings = list(_HEADING.finditer(prompt))
    depth = 0  # of the heading about verification, while below it
    for number, heading in enumerate(headings):
        level = len(heading["marks"])
        if depth and level <= depth:
            depth = 0
        if not depth and _VERIFICATION.search(heading["text"]):
            depth = level
        end = headings[number + 1].start() if number + 1 < len(headings) else len(prompt)
        yield bool(depth), prompt[heading.end() : end]


def _was_run(line: str, commands: Sequence[Command]) -> bool:
    """Return whether a command named in the line was run."""
    texts = [command.text for command in commands]
    return any(name in text for name in re.findall(r"`([^`]{4,80})`", line) for text in texts if " " in name)


def _as_line(group: Sequence[_Check]) -> str:
    """Return consecutive checks as one line: as many whole parts as fit."""
    parts: list[str] = []
    group = [check for check in group if check.below or not _STARTS_ONLY.match(check.text)] or group
    for check in group:
        text = _OWN_LABEL.sub("", check.text).rstrip(" .;")
        leads_on = text.endswith((":", "-", "—", "–")) or (bool(check.below) and len(text) < 60)
        if leads_on and check.below:
            parts.append(f"{text.rstrip(' :–—-')}: {check.below[0].rstrip(' .;')}")
            parts += [line.rstrip(" .;") for line in check.below[1:]]
        else:
            parts += [text.rstrip(":"), *(line.rstrip(" .;") for line in check.below)]
    line = prose.as_title(parts[0], CHECK_CHARS)
    for part in unique(parts[1:]):
        longer = f"{line}; {part}"
        if len(longer) > CHECK_CHARS:
            break
        line = longer
    return line
