"""The rules that recognise secrets: those of `data/secrets.toml`, those of the user, and the form of a value itself.

A built-in rule may be any pattern with bounded repeats: the tests measure each of them. A user's rule (`secrets.toml` in
the data directory) is checked when it is read: it must have a literal, repeats must not be nested, and it is matched
only against a few hundred characters around its literal. A rule that violates this is skipped and reported by
`claude-mem doctor`. The last part looks at a value alone; its callers also consider the value's name and position.
"""

from __future__ import annotations

import logging
import math
import re
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from claude_mem.system import untrusted_files

# Python's own regular-expression parser.
sre, _parser = re._constants, re._parser  # type: ignore[attr-defined]

log = logging.getLogger(__name__)

R = TypeVar("R")
Rule = tuple[str, str, re.Pattern[str]]  # name, a literal that must occur for the rule to be tried, pattern

RULES_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "secrets.toml").read_text("utf-8"))

# Text that may precede a token although it ends in a letter or digit: an escaped newline or similar (text quoted in
# other text), or the end of a terminal colour code.
_ALLOWED_BEFORE = (
    r"\\[nrtbf]", r"\\[0-7]{3}", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}", r"\[m", r"[\[;][0-9]m",
    r"[\[;][0-9]{2}m",
)  # fmt: skip
_PART = re.compile(r"\{\{([a-z0-9_]{1,32})\}\}")


def token_start(prefix: str = "") -> str:
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
        "literal": token_start(prefix),
        "begin": token_start(),
        "nobase64": _not_in_base64(prefix),
        "end": r"(?![A-Za-z0-9_\-])",
    }
    parts = {**RULES_FILE["parts"], **built_in}
    for _ in range(3):  # parts may be nested
        pattern = _PART.sub(lambda part: parts[part[1]], pattern)
    return pattern


def _rules(place: str) -> tuple[Rule, ...]:
    return tuple(
        (rule["name"], literal, re.compile(_expand(rule["pattern"], literal)))
        for rule in RULES_FILE["rule"]
        if rule["in"] == place
        for literal in rule["literals"]
    )


_SMALL_TEXT, _LARGE_TEXT = 200, 500_000
Group = tuple[str, str, str]


class LiteralIndex:
    """Literals by one group of three characters in each, so that a text's groups tell which of them it may contain."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(literals)
        self.numbers: dict[Group, list[int]] = {}
        self.too_short: list[int] = []
        for number, literal in enumerate(self.literals):
            group = _rarest_group(literal)
            (self.too_short if group is None else self.numbers.setdefault(group, [])).append(number)


class Literals:
    """Tells which literals a text contains. There are hundreds, so a literal is searched only if a group of three of its
    characters, in lower case, occurs in the text's distinct words. In the largest texts the groups would take too much
    memory."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.replace("İ", "i").lower()  # the only character whose lower case has two characters
        self._groups: Set[Group] | None = None
        if len(text) < _SMALL_TEXT:
            self._groups = _groups_of(self.lower)
        elif len(text) < _LARGE_TEXT:
            self._groups = _groups_of("\n".join(set(self.lower.split())))

    def possible(self, index: LiteralIndex) -> list[int]:
        """Return the numbers of the literals that the text may contain, in order."""
        if self._groups is None:
            return list(range(len(index.literals)))
        groups = index.numbers.keys() & self._groups
        return sorted([*index.too_short, *(number for group in groups for number in index.numbers[group])])

    def select(self, index: LiteralIndex, rules: Sequence[R]) -> list[R]:
        """Return the rules whose literal the text contains. The index has one literal for each rule."""
        return [rules[number] for number in self.possible(index) if index.literals[number] in self.text]

    def select_lower(self, index: LiteralIndex) -> list[tuple[str, int]]:
        """Return the literals that the text contains in lower case, each with its first place."""
        places = ((index.literals[number], self.lower.find(index.literals[number])) for number in self.possible(index))
        return [(literal, at) for literal, at in places if at >= 0]


def _groups_of(text: str) -> Set[Group]:
    return set(zip(text, text[1:], text[2:], strict=False))


def _rarest_group(literal: str) -> Group | None:
    """Return the group of three characters in the words of a literal that occurs least in text: one with few letters."""
    groups = {group for word in literal.lower().split() for group in _groups_of(word)}
    return min(groups, key=lambda group: (sum(map(str.isalpha, group)), group), default=None)


_LINE_BACK, _LINE_ON = 1_000, 8_192


def matches_in_lines(pattern: re.Pattern[str], literal: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern in lines that contain a literal, including the line break before each line."""
    at, searched_to = text.find(literal), 0
    while at >= 0:
        begin = max(searched_to, text.rfind("\n", max(0, at - _LINE_BACK), at), at - _LINE_BACK, 0)
        end = text.find("\n", at + len(literal), at + _LINE_ON)
        end = min(len(text), at + _LINE_ON) if end < 0 else end + 1
        yield from pattern.finditer(text, begin, end)
        searched_to = end - 1
        at = text.find(literal, max(end - 1, at + 1))


PREFIXES = tuple(RULES_FILE["prefixes"]["vendors"].split())
# Secrets that are one long word: searched only among the long words of a text, of which there are few.
TOKEN_RULES: tuple[Rule, ...] = (
    *_rules("words"),
    *(
        ("vendor-token", prefix, re.compile(_expand("{{literal}}{{nobase64}}" + r"[A-Za-z0-9_\-.]{20,512}", prefix)))
        for prefix in PREFIXES
    ),
)
# Secrets that are recognized by their context.
TEXT_RULES = _rules("text")
# The same, for matches within one line.
LINE_RULES = _rules("line")
# The same, but the value must also look machine-generated.
IDIOM_RULES = _rules("idiom")
# Commands that print a secret: a single one and nothing else, or several with their names (`every`).
SECRET_PRINTING_COMMANDS = tuple(
    (rule["literal"], re.compile(rule["pattern"]), rule.get("every", False)) for rule in RULES_FILE["printer"]
)
# Commands that take a secret as an argument; `plain`: hexadecimal values count too.
SECRET_TAKING_COMMANDS = tuple(
    (literal, re.compile(rule["pattern"]), rule.get("plain", False))
    for rule in RULES_FILE["command"]
    for literal in rule["literals"]
)
TEXT_INDEX, LINE_INDEX, IDIOM_INDEX, TOKEN_INDEX = (
    LiteralIndex(literal for _, literal, _ in rules) for rules in (TEXT_RULES, LINE_RULES, IDIOM_RULES, TOKEN_RULES)
)
COMMAND_INDEX = LiteralIndex(literal for literal, _, _ in SECRET_TAKING_COMMANDS)
# For each letter, the letters that follow it in words.
LETTER_PAIRS = {row[0]: frozenset(row[1:]) for row in RULES_FILE["words"]["pairs"].split()}
TRIVIAL_VALUES = frozenset(RULES_FILE["words"]["trivial"].split())


# --- the user's rules ------------------------------------------------------------------------------------------------

FILE_NAME = "secrets.toml"
MAX_BYTES, MAX_RULES, MAX_PATTERN_CHARS, MAX_REPEATS = 64 << 10, 100, 500, 4
MAX_REPEAT_COMBINATIONS = 5_000  # ways in which the repeats of a pattern may divide the same characters among them
CHARS_BEFORE, CHARS_AFTER = 64, 448  # characters before and after the literal that a user's rule is matched against
MAX_OCCURRENCES = 1_000  # occurrences of one literal that are checked in one text
MAX_SECONDS = 0.25  # CPU time for one text; a rule that takes longer is disabled until the worker restarts
_NAME = re.compile(r"[a-z0-9][a-z0-9\-]{0,31}\Z")


@dataclass(slots=True)
class UserRule:
    """A rule of the user. The group `secret` of a match is redacted; without such a group, the whole match."""

    name: str
    literal: str
    pattern: re.Pattern[str]
    is_disabled: bool = False


@dataclass(frozen=True, slots=True)
class UserRules:
    """The rules of the user's file, and the problems of those that were skipped."""

    rules: tuple[UserRule, ...] = ()
    problems: list[str] = field(default_factory=list)


def read_user_rules(folder: Path) -> UserRules:
    """Return the rules of the user's file; none if the file does not exist."""
    path = folder / FILE_NAME
    if not path.exists() and not path.is_symlink():
        return UserRules()
    try:
        items = tomllib.loads(untrusted_files.read_text(path, most=MAX_BYTES)).get("rule", [])
    except OSError as error:
        return UserRules((), [f"{FILE_NAME} is ignored: {error}"])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        return UserRules((), [f"{FILE_NAME} is ignored because it is not valid TOML: {error}"])
    if not isinstance(items, list):
        return UserRules((), [f"{FILE_NAME}: write each rule as [[rule]]"])
    problems: list[str] = []
    rules: list[UserRule] = []
    for number, item in enumerate(items, start=1):
        try:
            if number > MAX_RULES:
                raise ValueError(f"only {MAX_RULES} rules are read")
            rules += _parse_rules(item)
        except ValueError as problem:
            problems.append(f"{FILE_NAME}: rule {number} is skipped: {problem}")
    return UserRules(tuple(rules), problems[:20])


def _parse_rules(item: Any) -> list[UserRule]:
    if not isinstance(item, dict):
        raise ValueError("it is not a table")
    name, literals, pattern = item.get("name"), item.get("literals"), item.get("pattern")
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError("`name` must be 1 to 32 lowercase letters, digits and hyphens")
    if (
        not isinstance(literals, list)
        or not 0 < len(literals) <= 20
        or not all(isinstance(item, str) and 3 <= len(item) <= 64 for item in literals)
    ):
        raise ValueError("`literals` must be a list of strings of 3 to 64 characters; every match must contain one")
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN_CHARS:
        raise ValueError(f"`pattern` must be a string of at most {MAX_PATTERN_CHARS} characters")
    return [UserRule(name, literal, compile_user_pattern(pattern)) for literal in literals]


def compile_user_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a user's pattern. Raises `ValueError` if it is invalid or could be slow."""
    try:
        parts = _parser.parse(pattern)
        repeats = list(_repeats(parts))
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern is not a valid regular expression: {error}") from error
    if compiled.match(""):
        raise ValueError("the pattern matches the empty string")
    if len(repeats) > MAX_REPEATS or math.prod(sorted(repeats)[:-1]) > MAX_REPEAT_COMBINATIONS:
        raise ValueError(f"the pattern has more than {MAX_REPEATS} repeats of variable length, or too long ones")
    return compiled


def _repeats(parts: Any) -> list[int]:
    """Return the lengths of all variable repeats. Each must repeat a single character, or be optional (`?`)."""
    lengths: list[int] = []
    for kind, value in parts:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = value
            if high > 1 and (len(body) != 1 or body[0][0] not in _SINGLE):
                raise ValueError("a repeat may apply to one character or character class only: `[a-z0-9]{20,40}`")
            lengths += [min(int(high), CHARS_AFTER)] if low != high else []
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
_active = [UserRules()]  # the rules in use: always one item


def load_user_rules(folder: Path) -> UserRules:
    """Load the rules of the user's file, use them from now on, and return them."""
    _active[0] = read_user_rules(folder)
    for problem in _active[0].problems:
        log.warning("%s", problem)
    return _active[0]


def active_user_rules() -> UserRules:
    """Return the user's rules that are in use."""
    return _active[0]


def user_rule_spans(text: str) -> list[tuple[int, int, str]]:
    """Return the spans that the user's rules match in a text: start, end, rule name."""
    spans: list[tuple[int, int, str]] = []
    for rule in _active[0].rules:
        if not rule.is_disabled and rule.literal in text:
            spans += _rule_spans(rule, text)
    return spans


def _rule_spans(rule: UserRule, text: str) -> list[tuple[int, int, str]]:
    spans: list[tuple[int, int, str]] = []
    start_time, at, searched_to = time.thread_time(), text.find(rule.literal), 0
    for _ in range(MAX_OCCURRENCES):
        if at < 0:
            break
        start = max(searched_to, at - CHARS_BEFORE)
        window = text[start : at + CHARS_AFTER]
        if match := rule.pattern.search(window):
            group = "secret" if "secret" in rule.pattern.groupindex and match["secret"] else 0
            spans.append((start + match.start(group), start + match.end(group), rule.name))
            searched_to = start + match.end()
        if time.thread_time() - start_time > MAX_SECONDS:
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


# --- values: a likely secret, a random string, or clearly something else ---------------------------------------------


# Words are distinguished from random letters by the letter pairs that occur in words (`LETTER_PAIRS`), so a token is
# recognised even if it contains no digit.

# Code that fetches a secret is not a secret: `os.environ`, `boto3.client`, `$(…)`, a path, a URL, the name of a type.
CODE_EXPRESSION = re.compile(
    r"(?:process|os|env|config|settings|self|this)\.|\$[A-Za-z_({]|[a-z][a-z0-9+.\-]{1,16}://|(?:file|urn|arn|vault|ssm|sops|keyring|keychain):|[A-Za-z]:\\|\[redacted|<|\{|%[sd]|@[\w./\-]{1,64}\Z|\((?:sensitive|known|hidden|redacted|none|empty|null|unset|not)\b|"
    r"[a-z:]{0,16}`|[A-Za-z]{1,16}\?\Z|/?\^|%\(|(?:[a-z]{1,24}\.)?(?:[A-Z]{2,32}[0-9]{0,2}_){1,8}[A-Z]{1,32}[0-9]{0,2}\Z|(?:~|\.{0,2})/(?:[\w.@+\-]{0,24}/){0,16}[\w.@+\-]{0,24}\Z|"
    r"(?:[A-Za-z_]+[0-9]{0,3}\.)+[A-Za-z_]+[0-9]{0,3}(?:[(\[]|\Z)|[A-Za-z_]+[0-9]{0,3}[(\[]|"
    r"[\w.]{1,64}(?<=[a-z0-9])(?:Keys?|Types?|Token|Secret|Password|Auth|Str|String|Config|Provider|Credentials?)\Z|"
    r"[a-z][a-z0-9_.\-]{0,40}(?:/[a-z0-9][a-z0-9_.\-]{0,40})+\Z"
)
# Placeholders that people write instead of a secret.
_PLACEHOLDER = re.compile(
    r"(?i)\[[a-z _\-]{3,24}\]\Z|(?:your|insert|enter|replace|put|votre|ihr|dein|vostro|seu)[_\-]|.{0,40}?(?:change[_\-]?(?:me|it)|[_\-]your[_\-]|example|placeholder|dummy|redacted|xxxx|\*\*\*|\.\.\.|\u2026|\{\{[^}]{1,64}\}\}|\$\{[^}]{1,64}\})|"
    r"(?:[a-z0-9]{1,24}[_\-.:]){0,4}(?:tests?|testing|fake|mock(?:ed)?|sample|stub|demo|foo|bar|baz|invalid|wrong|bogus)(?:[_\-.:0-9][a-z0-9_\-.:]{0,40})?\Z"
)
# Technical terms with digits: `Uint8Array`, `base64-encoded`, `OAuth2Client`; short ones only as whole words.
_TERMS = re.compile(
    r"(?i)o?auth[02]|sha-?(?:224|256|384|512)|base(?:16|32|58|64)|utf-?(?:8|16|32)|u?int(?:8|16|32|64|128|256)(?:_t)?|float(?:32|64)|"
    r"bytes(?:16|32|64)|x509(?:certificate2)?|ed25519|curve25519|secp256[kr]1|argon2|pbkdf2|aes-?(?:128|192|256)|pkcs-?(?:1|7|8|12)|amd64|arm64|win32|"
    r"(?<![A-Za-z0-9])(?:sha-?1|md5|[hre]s(?:256|384|512)|http[123]|ipv?[46]|i18n|l10n|k8s|s3|ec2|e2e|2fa|h264|mp[34]|x86|[iuf](?:8|16|32|64))(?![A-Za-z0-9])"
)
# Values that are clearly something else: a version, a time, a size or another number with a unit, a pointer, a file.
_NOT_SECRET = re.compile(
    r"(?:(?:String|ID|Int|Float|Boolean)!|[\^~v=]{0,2}[0-9]{1,5}(?:\.[0-9]{1,9}){1,3}(?:[\-+.](?:alpha|beta|rc|dev|next|canary|post|pre|snapshot|build)[0-9A-Za-z.\-]{0,24})?|"
    r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}[\w.\-]{0,24}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]{4,16}(?:Z|[+\-][0-9:]{4,5})?)?|"
    r"[0-9][0-9.,_]{0,16}(?:[kKmMgGtT]i?[bB]?|ms|[smhd]|min|%|x|px|pt|r?em|tps|tok(?:ens)?(?:/s(?:ec)?)?)(?:/[0-9.]{1,9}[kKmMgG]?)?|"
    r"0x[0-9A-Fa-f]{1,16}[uUlL]{0,3}|[0-9]{1,3}-[a-z]{2,16}|(?:[a-z][a-z0-9\-]{0,24}:){2,6}[a-z0-9\-]{1,24}|"
    r"(?:[\w.@\-]{1,64}/){0,16}[\w.@\-]{1,64}\.(?:py|pyi|js|mjs|cjs|jsx|ts|tsx|vue|go|rs|rb|java|kt|cs|php|c|h|cc|cpp|hpp|swift|m|scala|"
    r"ex|exs|lua|sh|md|mdx|rst|txt|json|ya?ml|toml|ini|cfg|conf|lock|sql|proto|html|css|scss|xml|log|pem|crt|key|snap)(?::[0-9]{1,6}){0,2})\Z"
)
_JOINTS = dict.fromkeys(map(ord, "_-.:"))
_CONSONANTS = re.compile(r"(?<![A-Z])[bcdfghjklmnpqrstvwxz]{5}")
_CHUNK = re.compile(r"[A-Z]?[a-z]{1,64}|[A-Z]{1,64}(?![a-z])")
_UNIFORM = re.compile(
    r"(?:0x)?(?:[0-9a-f]{4,512}|[0-9A-F]{4,512})\Z|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z"
)
_GUESSABLE = re.compile(
    r"(?i)(?:(?:tests?|pass|password|passwd|passw0rd|p[4a@]ssw[0o]rd|pwd|secret|token|admin|user|root|abc|foo|bar|key|api|my|qwerty|"
    r"letmein|welcome|hello|super|default|guest|login|jwt|access|refresh|auth)[_\-.]?){1,4}[0-9]{0,8}[!@#$.]?\Z"
)


def is_trivial(word: str) -> bool:
    """Return whether a value is a placeholder, a well-known default, or code that fetches a secret."""
    return (
        word.lower() in TRIVIAL_VALUES
        or len(set(word)) <= 2
        or bool(CODE_EXPRESSION.match(word))
        or is_placeholder(word)
    )


def is_placeholder(word: str) -> bool:
    """Return whether a value is a placeholder, or can be guessed: people write both instead of a secret."""
    return bool(_PLACEHOLDER.match(word) or _GUESSABLE.match(word)) or _is_sequence(word)


def _is_sequence(word: str) -> bool:
    """Return whether a value is a sequence of letters followed by a sequence of digits: `abcdef123456`, `12345678`."""
    letters = word.rstrip("0123456789")
    digits = word[len(letters) :]
    return letters.lower() in "abcdefghijklmnopqrstuvwxyz" and digits in "012345678901234567890" and len(word) <= 20


def is_mostly_words(value: str) -> bool:
    """Return whether most of a value is words: chunks of three letters or more with letter pairs common in words."""
    letters = sum(map(len, _CHUNK.findall(value)))
    words = sum(len(chunk) for chunk in _CHUNK.findall(value) if len(chunk) > 2 and _is_word(chunk.lower()))
    return words >= 0.6 * letters and words >= 0.4 * len(value)


def _is_word(chunk: str) -> bool:
    rare = sum(second not in LETTER_PAIRS.get(first, "") for first, second in pairwise(chunk))
    return rare <= len(chunk) // 6


_SLUG = re.compile(r"[a-z]{1,24}(?:[_\-./:][a-z]{1,24}){0,8}[_\-./:]?v?[0-9]{0,4}\Z")
_ANY_CODE = re.compile(r"\$[A-Za-z_({]|[a-z][a-z0-9+.\-]{1,16}://|\[redacted|<|\{|%[sd(]|\.{0,2}/")


def is_random(value: str, *, least: int = 8, quoted: bool = False) -> bool:
    """Return whether a value looks machine-generated: long enough, no words, not clearly something else. `quoted`: the
    value is in quotes, so a part that looks like a function call may be coincidence."""
    if quoted and len(value) >= 16 and is_certainly_random(value) and not _ANY_CODE.match(value):
        return True
    if _SLUG.match(value) and _CONSONANTS.search(value) is None:
        return False
    if not least <= len(value) <= 4096 or any(char.isspace() for char in value):
        return False
    rest = _TERMS.sub("", value)
    if rest != value and (len(rest) < least or is_mostly_words(rest)):
        return False
    if value.isalpha() and value.istitle() and len(value) < 14:
        return False  # a word of another language
    alphabets = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    if alphabets < 2 and _CONSONANTS.search(value.lower()) is None:
        return False
    if is_mostly_words(value) or is_trivial(value) or _NOT_SECRET.match(value):
        return False
    return any(map(str.isalpha, value)) and len(set(value)) >= min(6, len(value) - 2)


def is_certainly_random(value: str) -> bool:
    """Return whether a value is certainly random: no words, and three character classes, or two in a long value."""
    if len(value) < 8 or any(char.isspace() for char in value) or is_mostly_words(value) or is_placeholder(value):
        return False
    alphabets = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    return (
        (alphabets == 3 or (alphabets == 2 and len(value) >= 20))
        and _NOT_SECRET.match(value) is None
        and "/" not in value[:1]
    )


_LABEL = re.compile(r"(?i)pass(?:word)?|secret|token|auth|key|jwt|cred|login|expected|missing|required")


def is_label(value: str) -> bool:
    """Return whether a value is a label: words of which one is about secrets (`x-auth-token-2`)."""
    return bool(_LABEL.search(value)) and is_mostly_words(value)


def is_not_secret(value: str) -> bool:
    """Return whether a value is clearly something else: a version, a time, a size, a pointer, the name of a file."""
    return _NOT_SECRET.match(value) is not None


def without_terms(value: str) -> str:
    """Return a value without technical terms that contain digits: `Uint8`, `base64`."""
    return _TERMS.sub("", value)


def is_hex_or_uuid(value: str) -> bool:
    """Return whether a value is hexadecimal or a UUID: as likely a hash or an id as a secret."""
    return _UNIFORM.match(value) is not None


def looks_secret(value: str, *, password: bool, env: bool) -> bool:
    """Return whether a value has letters with digits or symbols, no spaces and not the form of code: `abc12345xyz` does,
    `os.environ` and `string` do not.

    A value of letters only may be a word. It counts as a secret in `PASSWORD=…` of an environment, and if it is
    unpronounceable.
    """
    if len(value) < (6 if password else 8) or any(char.isspace() for char in value):
        return False
    letters = _TERMS.sub("", value.rstrip("`*")).translate(_JOINTS)
    if not letters or letters.isalpha():  # checked first: cheap, and true of most values
        pronounceable = _CONSONANTS.search(value) is None and not (len(value) >= 16 and is_random(value))
        if pronounceable and not (env and password and letters.islower() and len(value) >= 8):
            return False
    elif not password and not any(char.isalpha() for char in value):
        return False
    return not is_trivial(value) and _NOT_SECRET.match(value) is None
