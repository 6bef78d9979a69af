"""Values of which no rule is sure, judged by weights that were learned from examples.

`secret_context.py` and the pattern rules decide what their authors thought of. This module judges what they leave: values
that look like no word near any noun of a secret, and words that may be a password near a noun of a password. Each is
described by named features (its form, what stands before and behind it, the kind of its line) and their weights are
added. The weights are data: `data/secret_weights.txt`, written by `bench/secret_score.py` from the sets of texts in
`tests/support/shapes`. A feature without a weight counts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from claude_mem.privacy import secret_words
from claude_mem.privacy.secret_context import PUBLIC_BLOCK, is_in_test_name, key_strength, noun_strength
from claude_mem.privacy.secret_grades import PASSWORD, RANDOM, grade
from claude_mem.privacy.secret_rules import LETTER_PAIRS, Literals, is_hex_or_uuid, is_mostly_words

Edit = tuple[int, int, str]  # start, end, replacement
Span = tuple[int, int]

FILE = Path(__file__).parents[1] / "data" / "secret_weights.txt"


def _read_weights() -> dict[str, float]:
    """Return the weights by feature. A line of the file is a weight, a space and a feature; `#` begins a comment."""
    lines = (line for line in FILE.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return {feature: float(weight) for weight, _, feature in (line.partition(" ") for line in lines)}


WEIGHTS = _read_weights()
_THRESHOLD = WEIGHTS.get("threshold", float("inf"))


def score_edits(text: str, unsure: Iterable[Span], literals: Literals | None = None) -> Iterator[Edit]:
    """Yield edits that redact values whose features add up to the threshold. `unsure`: values that look like no word."""
    end = 0
    for start, stop in candidates(text, unsure, literals):
        if start >= end and score(features(text, start, stop)) >= _THRESHOLD and not is_in_test_name(text, start):
            end = stop
            yield start, stop, "[redacted]"


def score(names: Iterable[str]) -> float:
    return WEIGHTS.get("bias", 0) + sum(WEIGHTS.get(name, 0) for name in names)


# --- values that are judged ------------------------------------------------------------------------------------------

_BEFORE, _AFTER = 80, 140  # characters around the noun of a password in which words are judged
_WORD = re.compile(
    r"(?<![^\s\"'`,;(){}\[\]<>|\\=:\u00ab\u201e\u201c])[^\s\"'`,;(){}\[\]<>|\\=:\x00-\x1f\u00ab\u00bb\u201c\u201d\u201e]{6,64}"
)
_OF_GIT = re.compile(r"\bgit [^\n]{0,72}\Z")
_QUOTED = re.compile(
    r"(?P<quote>[\"'`])(?P<value>[^\"'`\n\\]{10,90})(?P=quote)|[\u00ab\u201c\u201e](?P<other>[^\u00ab\u00bb\u201c\u201d\u201e\n]{10,90})[\u00bb\u201d\u201c]"
)


def candidates(text: str, unsure: Iterable[Span], literals: Literals | None = None) -> list[Span]:
    """Return the values that are judged: those given, and words and passphrases near the noun of a password."""
    spans = {span for span in unsure if not _is_no_value(text, *span)}
    literals = literals if literals is not None and literals.text is text else Literals(text)
    for noun in secret_words.places(literals):
        begin = max(text.rfind("\n", 0, noun.start()) + 1, noun.start() - _BEFORE)
        end = min(len(text), noun.end() + _AFTER)
        spans.update(_words(text, begin, end))
        if noun[0].lower() != "pass":  # also a verb: pass `mise run lint`
            spans.update(_phrases(text, begin, end))
    return sorted(spans, key=lambda span: (span[0], -span[1]))


def _is_no_value(text: str, start: int, end: int) -> bool:
    """Return whether a value is an increment, an operand, the id of an object of git, or only the first part of a word."""
    if text[end : end + 1].isalnum():
        return True
    is_operand = text[start] in "+&*" or text.startswith("++", end - 2)
    return is_operand or (end - start == 40 and _OF_GIT.search(text, max(0, start - 80), start) is not None)


def _words(text: str, begin: int, end: int) -> Iterator[Span]:
    for match in _WORD.finditer(text, begin, end):
        value = match[0].rstrip(".,:;?")
        following = text[match.end() : match.end() + 1]
        is_cut_or_called = following.isalnum() or following in ("(", "[")
        if not is_cut_or_called and secret_words.is_chosen(value):
            yield match.start(), match.start() + len(value)


def _phrases(text: str, begin: int, end: int) -> Iterator[Span]:
    for match in _QUOTED.finditer(text, begin, end):
        group = "value" if match["value"] else "other"
        if secret_words.is_phrase(match[group].strip()):
            yield match.span(group)


# --- features --------------------------------------------------------------------------------------------------------

_KINDS = {3.5: "password", 3.0: "secret", 2.0: "token", 1.0: "key"}
_NOUNS = ("password", "secret", "joined", "token", "pass", "key")
_NAME = re.compile(r"[^\W_][\w.\-]*")
_PART = re.compile(r"[^\W\d_]+")
_SEPARATOR = re.compile(r"\W{0,160}\Z")
_LINE = re.compile(
    r"\s{0,64}(\$ |# |// ?|\* |- |\+|-(?!-)|\| |<|\"|export |set |SET |:|@|\[|[\w.\-]{1,64}\s?[:=](?!=)|[A-Za-z]{1,64} )?"
)
_SETTING = re.compile(r"\s{0,64}(?:- )?[\w.\-\"']{1,64}\s?[:=]")
_OPTION = re.compile(r"(?:\A|[\s'\",\[])(--?[A-Za-z][\w\-]{0,48})[=\s'\",]{1,4}\Z")
_CODE = re.compile(r"[;{}]\s{0,64}\Z|\)\s{0,64}\Z|=>|\(\)|\bdef |\bfunc |\bif |return ")
_USER = re.compile(r"(?i)\b(?:user(?:name|id)?|uid|login|benutzer|usuario|account|email)\b[^\n]{0,60}\Z")
_USER_LINE = re.compile(r"(?i)\b(?:user(?:name)?|login)\s?[:=]")
_PUBLIC = re.compile(r"(?i)public|pubkey|fingerprint|sha\d|digest|checksum|cert|integrity|commit|\bmd5")
_PREFIX = re.compile(r"([A-Za-z]{2,6})[_\-.:]")
_STYLES = {
    "snake": re.compile(r"[a-z]{1,48}(?:_[a-z0-9]{1,48}){1,16}\Z"),
    "constant": re.compile(r"[A-Z]{1,48}(?:_[A-Z0-9]{1,48}){1,16}\Z"),
    "kebab": re.compile(r"[a-z]{1,48}(?:-[a-z0-9]{1,48}){1,16}\Z"),
    "camel": re.compile(r"[a-z]{1,48}(?:[A-Z][a-z0-9]{0,48}){1,16}\Z"),
    "pascal": re.compile(r"(?:[A-Z][a-z0-9]{1,48}){2,16}\Z"),
    "dotted": re.compile(r"(?:[\w\-]{1,48}\.){1,16}[a-z]{1,48}\Z"),
}
_CLASSES = {"a": re.compile("[a-z]"), "A": re.compile("[A-Z]"), "9": re.compile("[0-9]"), "*": re.compile(r"[!#$%^&*?~+@]"), "_": re.compile(r"[_\-]"), ".": re.compile(r"\."), "/": re.compile("/"), ":": re.compile(":"), " ": re.compile(r"\s"), "L": re.compile(r"[^\W\d_a-zA-Z]")}  # fmt: skip
_LENGTHS = (8, 10, 13, 17, 25, 33, 41, 65)


class _Context(NamedTuple):
    """What surrounds a value: kinds of nouns and of separators."""

    before: str
    after: str
    previous: str  # the line before
    separator: str
    kind: str  # the separator, roughly
    names: list[str]
    nouns: list[str]  # the kinds of the names before the value, on its line

    @property
    def last(self) -> str:
        return self.nouns[-1] if self.nouns else "-"

    @property
    def best(self) -> str:
        return next((noun for noun in _NOUNS if noun in self.nouns), "-")

    @property
    def near(self) -> str:
        """The nearest noun that names anything, with its distance in words."""
        for distance, noun in enumerate(reversed(self.nouns)):
            if noun != "none":
                return f"{noun}{min(distance, 4)}"
        return "-"

    @property
    def whole(self) -> bool:
        return not self.after.strip(" \t\"',;`)]}")


def features(text: str, start: int, end: int) -> list[str]:
    """Return the names of the features of a value in its text."""
    value = text[start:end]
    form, context = _form(value), _context(text, start, end)
    place = f"{context.kind}{' whole' if context.whole else ''}"
    user = "user" if _USER.search(context.before) or _USER_LINE.search(context.previous) else ""
    behind = next((noun for noun in _noun_kinds(_NAME.findall(context.after[:60])[:4]) if noun in _NOUNS[:4]), "-")
    above = next((noun for noun in _NOUNS if noun in _noun_kinds(_NAME.findall(context.previous)[:12])), "-")
    line = _line_kind(text, start)
    code = "code" if _CODE.search(context.before + context.after) else ""
    test = "test" if secret_words.is_in_test(text, start, end) else ""
    public = _is_public(text, start, context)
    names = [f"value {name}" for name in _value_features(value)]
    names += [f"before {name}" for name in _place_features(text, start, end, context)]
    names += [f"line {line}", f"behind {behind}", f"above {above}", f"user {user}", f"code {code}", f"test {test}"]
    names += [f"public {public}"] if public else []
    near, last, best = context.near, context.last, context.best
    pairs = (
        f"last {last}", f"near {near}", f"last {last} {context.kind}", f"near {near} {context.kind}", place, f"best {best} {user}",
        f"behind {behind}", f"above {above} {place}", f"{test} {code}", f"line {line} {near}", *([f"public {public}"] if public else []),
        *(f"name {part}" for part in _last_parts(context)[-2:]), *(f"option {name}" for name in _option(context)),
    )  # fmt: skip
    return [*names, f"form {form}", f"last {last} {place}", *(f"form {form} + {pair}" for pair in pairs)]


def _form(value: str) -> str:
    """Return the form of a value, roughly."""
    value_grade = grade(value)
    if " " in value:
        return "phrase"
    if is_hex_or_uuid(value):
        return "long hex" if len(value) >= 32 else "hex"
    if value_grade >= PASSWORD:
        return "random" if value_grade >= RANDOM else "mixed"
    if secret_words.is_chosen(value):
        return "structured" if secret_words.is_structured(value) else "word"
    return "name"


def _value_features(value: str) -> Iterator[str]:
    yield f"length {sum(len(value) >= length for length in _LENGTHS)}"
    yield f"classes {''.join(name for name, pattern in _CLASSES.items() if pattern.search(value))}"
    yield f"grade {grade(value)}"
    yield f"first {value[0] if not value[0].isalnum() else 'x'}"
    yield f"last {value[-1] if not value[-1].isalnum() else 'x'}"
    letters = value.lower()
    rare = sum(second not in LETTER_PAIRS.get(first, second) for first, second in pairwise(letters) if second.isalpha())
    yield f"rare {min(9, 12 * rare // len(value))}"
    yield f"common {secret_words.common_share(value)}"
    if is_mostly_words(value):
        yield "words"
    if prefix := _PREFIX.match(value):
        yield f"prefix {prefix[1].lower()}"
    yield from (name for name, pattern in _STYLES.items() if pattern.match(value))


def _place_features(text: str, start: int, end: int, context: _Context) -> Iterator[str]:
    yield f"separator {context.separator}"
    yield context.kind
    yield f"last {context.last}"
    yield f"near {context.near}"
    yield f"best {context.best}"
    yield f"next {_quote(context.after[:1]) or 'end'}"
    yield from (f"name {part}" for part in _last_parts(context))
    yield from (f"option {name}" for name in _option(context))
    if context.kind == "begin":
        yield f"begin {'whole' if not context.after.strip() else ''}"
    following = text[end + len(context.after) + 1 : end + len(context.after) + 120].partition("\n")[0]
    yield f"settings {_SETTING.match(context.previous) is not None} {_SETTING.match(following) is not None}"
    if "[redacted" in text[max(0, start - 200) : end + 200]:
        yield "redacted"


def _context(text: str, start: int, end: int) -> _Context:
    begin = max(text.rfind("\n", max(0, start - 400), start) + 1, start - 160, 0)
    stop = text.find("\n", end, end + 200)
    previous = text[max(0, begin - 201) : max(begin - 1, 0)].rpartition("\n")[2]
    before, after = text[begin:start], text[end : stop if stop >= 0 else end + 200]
    names = _NAME.findall(before)[-8:]
    match = _SEPARATOR.search(before)
    separator = "begin" if not before.strip() else _quote(match[0][-5:]) if match and match[0] else "joined"
    quoted = " quoted" if text[start - 1 : start] in tuple("\"'`\u00ab\u201e\u201c") else ""
    kind = next((name for sign, name in _SEPARATORS if sign in separator), "other") + quoted
    return _Context(before, after, previous, separator, kind, names, _noun_kinds(names))


_SEPARATORS = (
    ("begin", "begin"),
    ("=", "="),
    (":", ":"),
    ("(", "("),
    (",", ","),
    (">", ">"),
    ("|", "|"),
    (" ", "space"),
)
_SPACES = re.compile(r"[ \t]{2,}")


def _quote(separator: str) -> str:
    return _SPACES.sub("  ", separator).replace("`", "'").replace('"', "'").replace("\\'", "'")


def _noun_kinds(names: list[str]) -> list[str]:
    return [_noun_kind(name, before) for before, name in zip(["", *names], names, strict=False)]


def _noun_kind(name: str, before: str) -> str:
    if name in ("pass", "Pass", "PASS"):
        return "pass"
    strength = noun_strength(name)
    if strength == 1.0 and before:
        strength = key_strength(before.lower())
    if strength is None:
        return "other"
    if not strength:
        return "none"
    return _KINDS.get(strength, "joined" if strength > 2 else "token")


def _last_parts(context: _Context) -> list[str]:
    return [part.lower() for part in _PART.findall(context.names[-1])[-3:]] if context.names else []


def _option(context: _Context) -> list[str]:
    match = _OPTION.search(context.before[-64:])
    return [match[1]] if match else []


def _line_kind(text: str, start: int) -> str:
    begin = text.rfind("\n", max(0, start - 400), start) + 1
    match = _LINE.match(text, begin, begin + 80)
    sign = (match[1] or "?") if match else "?"
    if sign[0].isalpha() and sign not in ("export ", "set ", "SET "):
        return "key:" if sign[-1] == ":" else "key=" if sign[-1] == "=" else "word"
    return sign


def _is_public(text: str, start: int, context: _Context) -> str:
    begin = text.rfind("-----BEGIN ", max(0, start - 3_000), start)
    if begin >= 0 and text.find("-----END", begin, start) < 0:
        return "block" if PUBLIC_BLOCK.match(text, begin) else "key block"
    return "near" if _PUBLIC.search(context.before[-80:] + " " + context.previous[-60:]) else ""
