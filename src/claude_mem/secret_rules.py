"""The rules of `data/secrets.toml`, read once, and those that a user adds in `secrets.toml` of the data directory.

A rule of ours may be any pattern with bounded repeats: the tests measure each. A user's rule is checked when it is
read: it must begin with a literal, no repeat may stand within another, and it sees only a few hundred characters around
its literal. A rule that breaks this is skipped, and `doctor` says so.
"""

from __future__ import annotations

import logging
import math
import re
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claude_mem import untrusted_files

# The parts of a pattern, as Python itself reads them.
sre, _parser = re._constants, re._parser  # type: ignore[attr-defined]

log = logging.getLogger(__name__)

Rule = tuple[str, str, re.Pattern[str]]  # what it is, a literal that must occur for it to be tried, the pattern

_FILE = tomllib.loads((Path(__file__).parent / "data" / "secrets.toml").read_text("utf-8"))

# What may stand before a token: no letter, unless it is that of an escaped newline or the like (text of text), or the
# end of a terminal's colour.
_BEFORE = (
    r"\\[nrtbf]", r"\\[0-7]{3}", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}", r"\[m", r"[\[;][0-9]m",
    r"[\[;][0-9]{2}m",
)  # fmt: skip
_PART = re.compile(r"\{\{([a-z0-9_]{1,32})\}\}")


def begins(prefix: str = "") -> str:
    """A token's first letters, and only then what stands before them: a search that begins with letters is quick."""
    return rf"{prefix}(?:(?<![A-Za-z0-9_]{prefix}){''.join(f'|(?<={before}{prefix})' for before in _BEFORE)})"


def _no_base64(prefix: str) -> str:
    """For a beginning of letters alone: base64 of a picture holds it by chance, after a sign of its own."""
    return rf"(?<![+/]{prefix})" if prefix.isalpha() else ""


def _filled(pattern: str, literal: str) -> str:
    """Return a pattern with its `{{parts}}` filled in."""
    prefix = re.escape(literal)
    own = {"literal": begins(prefix), "begin": begins(), "nobase64": _no_base64(prefix), "end": r"(?![A-Za-z0-9_\-])"}
    parts = {**_FILE["parts"], **own}
    for _ in range(3):  # a part may hold another one
        pattern = _PART.sub(lambda part: parts[part[1]], pattern)
    return pattern


def _rules(place: str) -> tuple[Rule, ...]:
    return tuple(
        (rule["name"], literal, re.compile(_filled(rule["pattern"], literal)))
        for rule in _FILE["rule"]
        if rule["in"] == place
        for literal in rule["literals"]
    )


_LINE_BACK, _LINE_ON = 1_000, 8_192


def in_lines(pattern: re.Pattern[str], literal: str, text: str) -> Iterator[re.Match[str]]:
    """Search a pattern in the lines that have a literal in them, with the end of the line before."""
    at, done = text.find(literal), 0
    while at >= 0:
        begin = max(done, text.rfind("\n", max(0, at - _LINE_BACK), at), at - _LINE_BACK, 0)
        end = text.find("\n", at + len(literal), at + _LINE_ON)
        end = min(len(text), at + _LINE_ON) if end < 0 else end + 1
        yield from pattern.finditer(text, begin, end)
        done = end - 1
        at = text.find(literal, max(end - 1, at + 1))


PREFIXES = tuple(_FILE["prefixes"]["vendors"].split())
# Secrets that are one long word are looked for only among the long words of a text, which are few.
TOKENS: tuple[Rule, ...] = (
    *_rules("words"),
    *(
        ("vendor-token", prefix, re.compile(_filled("{{literal}}{{nobase64}}" + r"[A-Za-z0-9_\-.]{20,512}", prefix)))
        for prefix in PREFIXES
    ),
)
# Secrets that are known by where they stand.
PLACES = _rules("text")
# The same, where a match stands in one line.
LINES = _rules("line")
# The same, but what was written in the place must look as if a machine had made it.
IDIOMS = _rules("idiom")
# Commands that print a secret: one and nothing else, or several with their names (`every`).
PRINTERS = tuple((rule["literal"], re.compile(rule["pattern"]), rule.get("every", False)) for rule in _FILE["printer"])
# Commands that are given a secret as an argument; `plain`: hexadecimal is one as well.
COMMANDS = tuple(
    (literal, re.compile(rule["pattern"]), rule.get("plain", False))
    for rule in _FILE["command"]
    for literal in rule["literals"]
)
# By letter: which letters follow it in words.
FOLLOWERS = {row[0]: frozenset(row[1:]) for row in _FILE["words"]["pairs"].split()}
TRIVIAL = frozenset(_FILE["words"]["trivial"].split())


# --- a user's own ----------------------------------------------------------------------------------------------------

FILE_NAME = "secrets.toml"
MOST_BYTES, MOST_RULES, MOST_PATTERN, MOST_REPEATS = 64 << 10, 100, 500, 4
MOST_WAYS = 5_000  # in which the repeats of a pattern may share the same letters
LOOKS_BACK, LOOKS_ON = 64, 448  # how much of a text a user's rule sees around its literal
MOST_PLACES = 1_000  # of one literal in one text
MOST_SECONDS = 0.25  # of CPU for one text; a rule that takes longer is switched off until the worker starts again
_NAME = re.compile(r"[a-z0-9][a-z0-9\-]{0,31}\Z")


@dataclass(slots=True)
class OwnRule:
    """A rule of the user's: the part of a match that is called `secret` is cut out, else all of it."""

    name: str
    literal: str
    pattern: re.Pattern[str]
    off: bool = False


@dataclass(frozen=True, slots=True)
class OwnRules:
    """What a user's file holds: its rules, and what is wrong with those that are skipped."""

    rules: tuple[OwnRule, ...] = ()
    problems: list[str] = field(default_factory=list)


def read_own(folder: Path) -> OwnRules:
    """Return the rules of the user's file; none if there is no such file."""
    path = folder / FILE_NAME
    if not path.exists() and not path.is_symlink():
        return OwnRules()
    try:
        listed = tomllib.loads(untrusted_files.read_text(path, most=MOST_BYTES)).get("rule", [])
    except OSError as error:
        return OwnRules((), [f"{FILE_NAME} is not used: {error}"])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        return OwnRules((), [f"{FILE_NAME} is not used, since it is no TOML: {error}"])
    if not isinstance(listed, list):
        return OwnRules((), [f"{FILE_NAME}: write each rule as [[rule]]"])
    own = OwnRules()
    rules: list[OwnRule] = []
    for number, item in enumerate(listed, start=1):
        try:
            rules += _own_rule(item) if number <= MOST_RULES else _refuse(f"only {MOST_RULES} rules are read")
        except ValueError as problem:
            own.problems.append(f"{FILE_NAME}: rule {number} is skipped: {problem}")
    return OwnRules(tuple(rules), own.problems[:20])


def _refuse(reason: str) -> list[OwnRule]:
    raise ValueError(reason)


def _own_rule(item: Any) -> list[OwnRule]:
    if not isinstance(item, dict):
        raise ValueError("it is no table")
    name, literals, pattern = item.get("name"), item.get("literals"), item.get("pattern")
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError("`name` must be up to 32 small letters, digits and hyphens")
    if not isinstance(literals, list) or not 0 < len(literals) <= 20 or not all(map(_is_literal, literals)):
        raise ValueError("`literals` must be a list of texts of 3 to 64 characters, one of which stands in every match")
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MOST_PATTERN:
        raise ValueError(f"`pattern` must be a text of at most {MOST_PATTERN} characters")
    return [OwnRule(name, literal, checked(pattern)) for literal in literals]


def _is_literal(item: object) -> bool:
    return isinstance(item, str) and 3 <= len(item) <= 64


def checked(pattern: str) -> re.Pattern[str]:
    """Return a user's pattern, compiled. A pattern that could take long is refused."""
    try:
        parts = _parser.parse(pattern)
        repeats = list(_repeats(parts))
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern can't be read: {error}") from error
    if compiled.match(""):
        raise ValueError("the pattern fits an empty text")
    if len(repeats) > MOST_REPEATS or math.prod(sorted(repeats)[:-1]) > MOST_WAYS:
        raise ValueError(f"the pattern has more than {MOST_REPEATS} repeats of variable length, or too long ones")
    return compiled


def _repeats(parts: Any) -> list[int]:
    """The lengths of all repeats; each must repeat one character, or be an option."""
    lengths: list[int] = []
    for kind, value in parts:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = value
            if high > 1 and (len(body) != 1 or body[0][0] not in _SINGLE):
                raise ValueError("a repeat may repeat one character or one class only: `[a-z0-9]{20,40}`")
            lengths += [min(int(high), LOOKS_ON)] if low != high else []
            lengths += _repeats(body)
        elif kind is sre.SUBPATTERN:
            lengths += _repeats(value[3])
        elif kind is sre.BRANCH:
            for branch in value[1]:
                lengths += _repeats(branch)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            lengths += _repeats(value[1])
        elif kind not in (*_SINGLE, sre.AT):
            raise ValueError("the pattern has a part that is not supported: references and conditions are not")
    return lengths


_SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_used = [OwnRules()]  # one item: the rules in use


def use_own(folder: Path) -> OwnRules:
    """Use the rules of the user's file from now on, and return them."""
    _used[0] = read_own(folder)
    for problem in _used[0].problems:
        log.warning("%s", problem)
    return _used[0]


def own_rules() -> OwnRules:
    return _used[0]


def own_spans(text: str) -> list[tuple[int, int, str]]:
    """Where a text holds what a user's rule calls a secret: begin, end, name."""
    spans: list[tuple[int, int, str]] = []
    for rule in _used[0].rules:
        if not rule.off and rule.literal in text:
            spans += _spans(rule, text)
    return spans


def _spans(rule: OwnRule, text: str) -> list[tuple[int, int, str]]:
    spans: list[tuple[int, int, str]] = []
    began, at, after = time.thread_time(), text.find(rule.literal), 0
    for _ in range(MOST_PLACES):
        if at < 0:
            break
        start = max(after, at - LOOKS_BACK)
        window = text[start : at + LOOKS_ON]
        if match := rule.pattern.search(window):
            group = "secret" if "secret" in rule.pattern.groupindex and match["secret"] else 0
            spans.append((start + match.start(group), start + match.end(group), rule.name))
            after = start + match.end()
        if time.thread_time() - began > MOST_SECONDS:
            rule.off = True
            problem = (
                f"{FILE_NAME}: the rule {rule.name} takes too long and is switched off until the worker starts again"
            )
            _used[0].problems.append(problem)
            log.warning("%s", problem)
            break
        at = text.find(rule.literal, max(at + len(rule.literal), after))
    return spans
