"""Values judged by the words before them: `bindpw …`, `mot de passe : …`, `user admin insecure-password …`.

The patterns of `secret_names.py` know a number of syntaxes. This module knows none: it starts from a value that does not
look like a word, reads backwards to the word that names it, and adds up how sure the value, the name and their position
are. A value is named by the nearest noun: if that is the noun of another thing (`id`, `sha256`, `path`), or another name that
is bound to the value by `=` or `:`, the value is not a secret, whatever stands further away. Only the neighbourhood of nouns
that name a secret is read. The vocabulary and the weights are data: `[context]` in `data/secrets.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from claude_mem.privacy.secret_rules import (
    RULES_FILE,
    is_certainly_random,
    is_hex_or_uuid,
    is_label,
    is_not_secret,
    is_random,
    is_trivial,
    without_terms,
)

Edit = tuple[int, int, str]  # start, end, replacement

_CONTEXT: dict[str, Any] = RULES_FILE["context"]
_THRESHOLD: float = _CONTEXT["threshold"]
_STRENGTH: dict[str, float] = _CONTEXT["strength"]
_VOCABULARY: dict[str, Any] = _CONTEXT["nouns"]
_NOUNS = {noun: kind for kind in _STRENGTH for noun in _VOCABULARY[kind].split()}
_PHRASES: tuple[str, ...] = tuple(_VOCABULARY["phrases"])
_NOT_JOINED = frozenset(_VOCABULARY["not_joined"].split())
_JOINED = tuple(noun for noun in _NOUNS if noun not in _NOT_JOINED)
_SECRET_KEYS, _HARMLESS_KEYS, _FILLER, _CARRIERS, _OTHER = (
    frozenset(_VOCABULARY[name].split()) for name in ("secret_keys", "harmless_keys", "filler", "carriers", "other")
)


# --- where nouns stand -----------------------------------------------------------------------------------------------

_CHARS_BEFORE, _CHARS_AFTER, _LINES_AFTER = 60, 240, 2


def _minimal(words: list[str]) -> tuple[str, ...]:
    """Return the words that contain no other of them."""
    return tuple(word for word in words if not any(other in word for other in words if other != word))


# Every noun and phrase contains one of these. Those that are searched as whole words occur inside many other words.
_WHOLE_ROOTS = tuple(noun for noun in _NOT_JOINED if noun in ("pat", "sid", "otp", "pw", "auth", "cred", "pass", "key"))
_ROOTS = _minimal([noun for noun in (*_NOUNS, *_PHRASES) if noun not in ("pat", "sid", "otp")])


_USER_OPTIONS = (" -u", " --user", " -l ", " -d ", "/user:", " -user")
_HAS_USER = re.compile(r"(?:^|\s)(?:-[uUDl]|--?user(?:name)?|--login)(?=[ =\w])|/user:")
_USER_OPTION = re.compile(r"(?<=\s)(?:-[ulUD]|--?user(?:name)?|--login|--host(?:name)?|-h)[ =][\"']?\Z")
_PASSWORD_OPTION = re.compile(r"(?<=\s)-(?:[pPwWaAkKXNc]|pw|pass) [\"']?\Z|(?<=\s)-[pP][\"']?\Z")


def _regions(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that are near a noun: merged, in order."""
    lower = text.replace("İ", "i").lower()  # the only character whose lower case has two characters
    places: list[int] = []
    for root in (*_ROOTS, *_USER_OPTIONS):
        at = lower.find(root)
        while at >= 0:
            places.append(at)
            at = lower.find(root, at + 24)
    begin = stop = -1
    for at in sorted(places):
        start, end = _near(text, at)
        if start > stop:
            if stop > 0:
                yield begin, stop
            begin = start
        stop = max(stop, end)
    if stop > 0:
        yield begin, stop


def _near(text: str, at: int) -> tuple[int, int]:
    end, limit = at, min(len(text), at + _CHARS_AFTER)
    for _ in range(_LINES_AFTER + 1):
        line_end = text.find("\n", end, limit)
        if line_end < 0:
            end = limit
            break
        end = line_end + 1
    return max(0, at - _CHARS_BEFORE), end


# --- values ----------------------------------------------------------------------------------------------------------

_VALUE = re.compile(r"(?<![!#$%&*+\-./0-9?@A-Z^_a-z~])[!#$%&*+\-./0-9?@A-Z^_a-z~]{6,512}+(?:={1,2}(?![\w=\"'{$(\[/]))?")
_SYMBOL = re.compile(r"[!#$%^&*?~+@]")
# Names with a number: `shop-db-2`, `SecretStr2`, `login_v2`, `HTTP2Server`.
_IDENTIFIER = re.compile(r"[A-Za-z]{1,32}[0-9]?(?:[_\-./]{1,2}[A-Za-z0-9]{1,24}){1,8}[?!]?\Z|[A-Za-z]{1,48}[0-9][A-Za-z]{0,32}[?!]?\Z|[A-Z]?[a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{2}\Z")
_PASSPHRASE = re.compile(r"[a-z]{4,12}(?:-[a-z]{4,12}){1,6}-[0-9]{2,4}\Z")
_ENDS_IN_DIGITS = re.compile(r"[A-Za-z]{3,}[_\-]?[0-9]{2,8}[!#*$%.?]?\Z")
_ADDRESS = re.compile(r"[\w.+\-]{1,64}@[\w.\-]{1,64}\Z")
_DATED = re.compile(r"(?:19|20)[0-9]{2}[\-./]?[01][0-9][\-./]?[0-3][0-9](?![0-9])")
_HASH_END = re.compile(r"[A-Za-z0-9_]{1,24}(?:[\-_.][A-Za-z0-9]{1,24}){0,6}[\-_.](?:[0-9a-f]{16}|[0-9a-f]{32,64})\Z")
_CODE = re.compile(r"\A[&*]|\A!(?=[a-z])|[?!]\.|::")
_PATH = re.compile(r"(?:[~.]{0,2}/)?(?:[\w.@+\-]{1,48}/){1,16}[\w.@+\-]{0,48}\Z")


def grade(value: str) -> float:
    """Return how sure it is, by its form alone, that a value is a secret: 0 (a word, code, an id) to 4 (random)."""
    plain = without_terms(value).translate(_NO_JOINTS)
    if plain.isalpha():
        return 3 if len(value) >= 16 and is_random(value) else 0
    if not any(map(str.isalpha, plain)) or len(set(plain)) < 4 or is_trivial(value) or is_not_secret(value):
        return 0
    if is_hex_or_uuid(value) or _HASH_END.match(value):
        return 2 if len(value) >= 32 else 0
    if _ADDRESS.match(value) or _DATED.match(value) or value.startswith("--"):
        return 0
    if _CODE.search(value) and not is_certainly_random(value):
        return 0
    if _PATH.match(value) and not is_certainly_random(value.replace("/", "")):
        return 0
    if is_certainly_random(value) or any(len(_CHANGE.findall(run)) >= 4 for run in _RUN.findall(value)):
        return 4 if len(value) >= 16 and _mixes(value) else 3
    if is_random(value):
        return 3 if len(value) >= 12 else 2
    if is_label(value):
        return 0.5
    if _PASSPHRASE.match(value):
        return 1.5
    if _IDENTIFIER.match(value):
        return 0.5
    if _SYMBOL.search(value.rstrip("?+")):
        return 2.5 if any(map(str.isdigit, value)) else 0
    return 2 if _ENDS_IN_DIGITS.match(value) or _mixes(value) else 1


def _mixes(value: str) -> bool:
    return any(map(str.isupper, value)) and any(map(str.islower, value)) and any(map(str.isdigit, value))


# Between letters and digits: words with a number have one or two.
_RUN = re.compile(r"[A-Za-z0-9]{8,512}")
_CHANGE = re.compile(r"(?=[A-Za-z][0-9]|[0-9][A-Za-z])")
_NO_JOINTS = dict.fromkeys(map(ord, "_-./"))


# --- names -----------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_](?:[\w.\-]{0,62}\w)?")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_a-zA-Z]+")
_MAX_LEFT, _MAX_WORDS = 160, 9
_TIGHT = re.compile(r"[\s\u00b7]{0,8}(?:[:=]{1,2}>?|=>|->|\u2192|\uff1a|>|<<<)[\s\u00b7]{0,8}[\"'`\\(\[{&!]{0,6}(?:[A-Za-z@]{1,2}(?=[\"']))?[\"'`\\]{0,4}\Z")
_STOP = re.compile(r"\x00|-----|[;&|]|[{}]\s|\)\s{0,4}[{;]|\n\s{0,64}\n\s{0,64}\n")
_NO_NAME = re.compile(r"\b[au]rn:[\w:.\-/]{0,128}\Z|\bENC[\[(][^\])\n]{0,128}\Z")
_QUOTE_END = re.compile(r"[\"'`\u300c\u201c]\Z")


class Name(NamedTuple):
    """The noun that names a value: its strength, the words between, and whether it is bound to the value."""

    strength: float
    distance: int
    bound: bool
    quoted: bool
    same_line: bool


def noun_strength(word: str) -> float | None:
    """Return how surely a word names a secret: 0 if it names nothing, None if it names something else."""
    parts = [part.lower() for part in _PART.findall(word)]
    while len(parts) > 1 and (parts[-1] in _FILLER or parts[-1].isdigit()):
        parts.pop()
    if not parts:
        return 0
    last = parts[-1]
    if last in ("key", "keys"):
        before = parts[-2] if len(parts) > 1 else ""
        if before in _HARMLESS_KEYS:
            return None
        return _STRENGTH["secret"] if before in _SECRET_KEYS else _STRENGTH["key"]
    if last in _OTHER:
        return None
    kind = _kind(last)
    if kind:
        return _STRENGTH[kind]
    inner = [kind for part in parts[:-1] if (kind := _kind(part))]
    return _STRENGTH[inner[-1]] - 0.5 if inner else 0


def _kind(part: str) -> str | None:
    if kind := _NOUNS.get(part):
        return kind
    for noun in _JOINED:
        if part.endswith(noun) and len(part) > len(noun) + 1:
            return _NOUNS[noun]
    return None


def _name_of(text: str, start: int) -> Name | None:
    """Return the noun that names the value at `start`; None if another word does, or none."""
    begin = max(0, start - _MAX_LEFT)
    left = text[begin:start]
    words = list(_WORD.finditer(left))[-_MAX_WORDS:]
    if _PASSWORD_OPTION.search(left):
        has_user = _HAS_USER.search(text[max(0, start - _CHARS_AFTER) : start].rpartition("\n")[2])
        return Name(_STRENGTH["password" if has_user else "key"], 0, True, False, True)
    if not words or _NO_NAME.search(left) or _USER_OPTION.search(left):
        return None
    tail = left[words[-1].end() :]
    tight, quoted = _TIGHT.match(tail) is not None, _QUOTE_END.search(tail) is not None
    is_option = tail == " " and left.startswith("-", words[-1].start() - 1) if words[-1].start() else False
    distance, end = 0, len(left)
    for number, word in enumerate(reversed(words)):
        gap = left[word.end() : end]
        if _STOP.search(gap):
            return None
        strength = _phrase_strength(left, word.end()) or noun_strength(word[0])
        if strength is None:
            return None
        if strength:
            return Name(strength, distance, tight or is_option, quoted, "\n" not in left[word.end() :])
        is_filler = word[0].lower() in _FILLER
        if number == 0 and tight and word[0].lower() not in _CARRIERS:
            distance += 4
        if distance >= 4 and ("," in gap or "(" in gap or "[" in gap):
            return None
        distance += not is_filler
        end = word.start()
    return None


def _phrase_strength(left: str, end: int) -> float:
    near = left[max(0, end - 16) : end].lower()
    return _STRENGTH["password"] if near.endswith(_PHRASES) else 0


# --- together --------------------------------------------------------------------------------------------------------


def context_edits(text: str) -> Iterator[Edit]:
    """Yield edits that redact values which the words before them name as secrets."""
    for begin, end in _regions(text):
        for match in _VALUE.finditer(text, begin, end):
            value = match[0].rstrip(".?")
            start = match.start()
            if not (value_grade := grade(value)):
                continue
            name = _name_of(text, start)
            if name is None or text.startswith(("...", "\u2026"), match.end()) or match[0].endswith("...") or score(value_grade, name) < _THRESHOLD:
                continue
            if not name.same_line and (value_grade < 3 or not _is_alone(text, start, match.end())):
                continue
            if value_grade < 3 and not name.quoted and _PROSE_CONTINUES.match(text, match.end()) and name.bound:
                continue
            if True:
                yield start, _value_end(text, start, start + len(value)), "[redacted]"


_PROSE_CONTINUES = re.compile(r"[ \t]{1,4}(?:[a-z(]|\.\.\.|- )|, [a-z]{1,16}[ %]")
_ALONE_BEFORE = re.compile(r"(?:\A|\n)[ \t+\-]{0,32}(?:(?:=>|[0-9]{1,6}[\u2192:|]|Out\[[0-9]{1,6}\]:|\$[0-9]{1,4} = (?:0x[0-9a-f]{1,16} )?|value:|default:)[ \t]{0,8})?[\"'`]?\Z")
_ALONE_AFTER = re.compile(r"[\"'`,;.]{0,3}[ \t]{0,8}(?:\r?\n|\Z)")


def _is_alone(text: str, start: int, end: int) -> bool:
    """Return whether a value is all that stands in its line."""
    before = _ALONE_BEFORE.search(text, max(0, start - 64), start)
    return before is not None and _ALONE_AFTER.match(text, end) is not None


def score(value_grade: float, name: Name) -> float:
    """Return how sure it is that a value is a secret."""
    position = _CONTEXT["bound"] if name.bound else _CONTEXT["quoted"] if name.quoted else 0
    total: float = value_grade + name.strength + position - _CONTEXT["distance"] * name.distance
    return total


_MORE = re.compile(r"[^\s\"'`,;<>)\]}|\\\x00-\x1f]{1,512}")


def _value_end(text: str, start: int, end: int) -> int:
    """Return the end of a value whose first part ends at `end`: up to the quote it began with, or to a separator."""
    quote = text[start - 1 : start]
    if quote and quote in "\"'`":
        close = text.find(quote, end, end + 512)
        if close >= 0 and not any(map(str.isspace, text[end:close])):
            return close
    more = _MORE.match(text, end)
    return more.end() if more and "&" not in more[0] else end
