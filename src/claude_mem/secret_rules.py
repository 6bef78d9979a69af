"""The rules of `data/secrets.toml`, read once, and the rules a user adds in `secrets.toml` of the data directory.

A built-in rule may be any pattern with bounded repeats: the tests measure each of them. A user's rule is checked when
it is read: it must have a literal, repeats must not be nested, and it is matched only against a few hundred characters
around its literal. A rule that violates this is skipped and reported by `claude-mem doctor`.
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

# Python's own regular-expression parser.
sre, _parser = re._constants, re._parser  # type: ignore[attr-defined]

log = logging.getLogger(__name__)

Rule = tuple[str, str, re.Pattern[str]]  # name, a literal that must occur for the rule to be tried, pattern

_FILE = tomllib.loads((Path(__file__).parent / "data" / "secrets.toml").read_text("utf-8"))

# Text that may precede a token although it ends in a letter or digit: an escaped newline or similar (text quoted in
# other text), or the end of a terminal colour code.
_ALLOWED_BEFORE = (
    r"\\[nrtbf]", r"\\[0-7]{3}", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}", r"\[m", r"[\[;][0-9]m",
    r"[\[;][0-9]{2}m",
)  # fmt: skip
_PART = re.compile(r"\{\{([a-z0-9_]{1,32})\}\}")


def begins(prefix: str = "") -> str:
    """Return a pattern for the start of a token. The prefix comes before the look-behinds, because a search for a
    pattern that starts with literal letters is fast."""
    return rf"{prefix}(?:(?<![A-Za-z0-9_]{prefix}){''.join(f'|(?<={before}{prefix})' for before in _ALLOWED_BEFORE)})"


def _not_in_base64(prefix: str) -> str:
    """Return a look-behind for prefixes of letters only, which occur by chance in base64 of an image after `+` or `/`."""
    return rf"(?<![+/]{prefix})" if prefix.isalpha() else ""


def _expand(pattern: str, literal: str) -> str:
    """Return a pattern with its `{{parts}}` expanded."""
    prefix = re.escape(literal)
    built_in = {
        "literal": begins(prefix),
        "begin": begins(),
        "nobase64": _not_in_base64(prefix),
        "end": r"(?![A-Za-z0-9_\-])",
    }
    parts = {**_FILE["parts"], **built_in}
    for _ in range(3):  # parts may be nested
        pattern = _PART.sub(lambda part: parts[part[1]], pattern)
    return pattern


def _rules(place: str) -> tuple[Rule, ...]:
    return tuple(
        (rule["name"], literal, re.compile(_expand(rule["pattern"], literal)))
        for rule in _FILE["rule"]
        if rule["in"] == place
        for literal in rule["literals"]
    )


_LINE_BACK, _LINE_ON = 1_000, 8_192


def in_lines(pattern: re.Pattern[str], literal: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern in lines that contain a literal, including the line break before each line."""
    at, searched_to = text.find(literal), 0
    while at >= 0:
        begin = max(searched_to, text.rfind("\n", max(0, at - _LINE_BACK), at), at - _LINE_BACK, 0)
        end = text.find("\n", at + len(literal), at + _LINE_ON)
        end = min(len(text), at + _LINE_ON) if end < 0 else end + 1
        yield from pattern.finditer(text, begin, end)
        searched_to = end - 1
        at = text.find(literal, max(end - 1, at + 1))


PREFIXES = tuple(_FILE["prefixes"]["vendors"].split())
# Secrets that are one long word: searched only among the long words of a text, of which there are few.
TOKENS: tuple[Rule, ...] = (
    *_rules("words"),
    *(
        ("vendor-token", prefix, re.compile(_expand("{{literal}}{{nobase64}}" + r"[A-Za-z0-9_\-.]{20,512}", prefix)))
        for prefix in PREFIXES
    ),
)
# Secrets that are recognized by their context.
PLACES = _rules("text")
# The same, for matches within one line.
LINES = _rules("line")
# The same, but the value must also look machine-generated.
IDIOMS = _rules("idiom")
# Commands that print a secret: a single one and nothing else, or several with their names (`every`).
PRINTERS = tuple((rule["literal"], re.compile(rule["pattern"]), rule.get("every", False)) for rule in _FILE["printer"])
# Commands that take a secret as an argument; `plain`: hexadecimal values count too.
COMMANDS = tuple(
    (literal, re.compile(rule["pattern"]), rule.get("plain", False))
    for rule in _FILE["command"]
    for literal in rule["literals"]
)
# For each letter, the letters that follow it in words.
FOLLOWERS = {row[0]: frozenset(row[1:]) for row in _FILE["words"]["pairs"].split()}
TRIVIAL = frozenset(_FILE["words"]["trivial"].split())


# --- rules of the user -----------------------------------------------------------------------------------------------

FILE_NAME = "secrets.toml"
MOST_BYTES, MOST_RULES, MOST_PATTERN, MOST_REPEATS = 64 << 10, 100, 500, 4
MOST_WAYS = 5_000  # ways in which the repeats of a pattern may divide the same characters among them
LOOKS_BACK, LOOKS_ON = 64, 448  # characters before and after the literal that a user's rule is matched against
MOST_PLACES = 1_000  # occurrences of one literal that are checked in one text
MOST_SECONDS = 0.25  # CPU time for one text; a rule that takes longer is disabled until the worker restarts
_NAME = re.compile(r"[a-z0-9][a-z0-9\-]{0,31}\Z")


@dataclass(slots=True)
class OwnRule:
    """A rule of the user. The group `secret` of a match is redacted; without such a group, the whole match."""

    name: str
    literal: str
    pattern: re.Pattern[str]
    is_disabled: bool = False


@dataclass(frozen=True, slots=True)
class OwnRules:
    """The rules of the user's file, and the problems of those that were skipped."""

    rules: tuple[OwnRule, ...] = ()
    problems: list[str] = field(default_factory=list)


def read_own(folder: Path) -> OwnRules:
    """Return the rules of the user's file; none if the file does not exist."""
    path = folder / FILE_NAME
    if not path.exists() and not path.is_symlink():
        return OwnRules()
    try:
        items = tomllib.loads(untrusted_files.read_text(path, most=MOST_BYTES)).get("rule", [])
    except OSError as error:
        return OwnRules((), [f"{FILE_NAME} is ignored: {error}"])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        return OwnRules((), [f"{FILE_NAME} is ignored because it is not valid TOML: {error}"])
    if not isinstance(items, list):
        return OwnRules((), [f"{FILE_NAME}: write each rule as [[rule]]"])
    problems: list[str] = []
    rules: list[OwnRule] = []
    for number, item in enumerate(items, start=1):
        try:
            if number > MOST_RULES:
                raise ValueError(f"only {MOST_RULES} rules are read")
            rules += _parse_rules(item)
        except ValueError as problem:
            problems.append(f"{FILE_NAME}: rule {number} is skipped: {problem}")
    return OwnRules(tuple(rules), problems[:20])


def _parse_rules(item: Any) -> list[OwnRule]:
    if not isinstance(item, dict):
        raise ValueError("it is not a table")
    name, literals, pattern = item.get("name"), item.get("literals"), item.get("pattern")
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError("`name` must be 1 to 32 lowercase letters, digits and hyphens")
    if not isinstance(literals, list) or not 0 < len(literals) <= 20 or not all(map(_is_literal, literals)):
        raise ValueError("`literals` must be a list of strings of 3 to 64 characters; every match must contain one")
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MOST_PATTERN:
        raise ValueError(f"`pattern` must be a string of at most {MOST_PATTERN} characters")
    return [OwnRule(name, literal, checked(pattern)) for literal in literals]


def _is_literal(item: object) -> bool:
    return isinstance(item, str) and 3 <= len(item) <= 64


def checked(pattern: str) -> re.Pattern[str]:
    """Compile a user's pattern. Raises `ValueError` if it is invalid or could be slow."""
    try:
        parts = _parser.parse(pattern)
        repeats = list(_repeats(parts))
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern is not a valid regular expression: {error}") from error
    if compiled.match(""):
        raise ValueError("the pattern matches the empty string")
    if len(repeats) > MOST_REPEATS or math.prod(sorted(repeats)[:-1]) > MOST_WAYS:
        raise ValueError(f"the pattern has more than {MOST_REPEATS} repeats of variable length, or too long ones")
    return compiled


def _repeats(parts: Any) -> list[int]:
    """Return the lengths of all variable repeats. Each must repeat a single character, or be optional (`?`)."""
    lengths: list[int] = []
    for kind, value in parts:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = value
            if high > 1 and (len(body) != 1 or body[0][0] not in _SINGLE):
                raise ValueError("a repeat may apply to one character or character class only: `[a-z0-9]{20,40}`")
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
            raise ValueError("the pattern uses an unsupported construct, such as a back-reference or a conditional")
    return lengths


_SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_active = [OwnRules()]  # the rules in use: always one item


def use_own(folder: Path) -> OwnRules:
    """Load the rules of the user's file, use them from now on, and return them."""
    _active[0] = read_own(folder)
    for problem in _active[0].problems:
        log.warning("%s", problem)
    return _active[0]


def own_rules() -> OwnRules:
    return _active[0]


def own_spans(text: str) -> list[tuple[int, int, str]]:
    """Return the spans that the user's rules match in a text: start, end, rule name."""
    spans: list[tuple[int, int, str]] = []
    for rule in _active[0].rules:
        if not rule.is_disabled and rule.literal in text:
            spans += _rule_spans(rule, text)
    return spans


def _rule_spans(rule: OwnRule, text: str) -> list[tuple[int, int, str]]:
    spans: list[tuple[int, int, str]] = []
    start_time, at, searched_to = time.thread_time(), text.find(rule.literal), 0
    for _ in range(MOST_PLACES):
        if at < 0:
            break
        start = max(searched_to, at - LOOKS_BACK)
        window = text[start : at + LOOKS_ON]
        if match := rule.pattern.search(window):
            group = "secret" if "secret" in rule.pattern.groupindex and match["secret"] else 0
            spans.append((start + match.start(group), start + match.end(group), rule.name))
            searched_to = start + match.end()
        if time.thread_time() - start_time > MOST_SECONDS:
            rule.is_disabled = True
            problem = (
                f"{FILE_NAME}: the rule {rule.name} takes too long and is disabled until the worker restarts; "
                "simplify its pattern"
            )
            _active[0].problems.append(problem)
            log.warning("%s", problem)
            break
        at = text.find(rule.literal, max(at + len(rule.literal), searched_to))
    return spans
