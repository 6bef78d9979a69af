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
    is_mostly_words,
    is_not_secret,
    is_random,
    is_trivial,
    without_terms,
)

Edit = tuple[int, int, str]  # start, end, replacement

_CONTEXT: dict[str, Any] = RULES_FILE["context"]
_THRESHOLD: float = _CONTEXT["threshold"]
_DISTANCE: float = _CONTEXT["distance"]
_BOUND: float = _CONTEXT["bound"]
_QUOTED: float = _CONTEXT["quoted"]
_STRENGTH: dict[str, float] = _CONTEXT["strength"]
_VOCABULARY: dict[str, Any] = _CONTEXT["nouns"]
_NOUNS = {noun: kind for kind in _STRENGTH for noun in _VOCABULARY[kind].split()}
_PHRASES: tuple[str, ...] = tuple(_VOCABULARY["phrases"])
_LOGIN: tuple[str, ...] = tuple(_VOCABULARY["login"])
_NOT_JOINED = frozenset(_VOCABULARY["not_joined"].split())
_JOINED = tuple(noun for noun in _NOUNS if noun not in _NOT_JOINED)
_CJK_NOUNS = tuple(noun for noun in _NOUNS if ord(noun[0]) > 0x2E80)
_SECRET_KEYS, _HARMLESS_KEYS, _HARMLESS_TOKENS, _FILLER, _CARRIERS, _COPULAS, _PREPOSITIONS, _OTHER = (
    frozenset(_VOCABULARY[name].split()) for name in ("secret_keys", "harmless_keys", "harmless_tokens", "filler", "carriers", "copulas", "prepositions", "other")
)
_FREE = _FILLER | _PREPOSITIONS


# --- where nouns stand -----------------------------------------------------------------------------------------------

_CHARS_BEFORE, _CHARS_AFTER, _LINES_AFTER = 100, 240, 2


def _minimal(words: list[str]) -> tuple[str, ...]:
    """Return the words that contain no other of them."""
    return tuple(word for word in words if not any(other in word for other in words if other != word))


# Every noun and phrase contains one of these.
_RARE = ("pat", "sid", "otp")  # parts of many words; `_pat` is searched instead
_OPTIONS = (" -p ", "'-p'", '"-p"', " -u", "'-u'", '"-u"', " --user", " -l ", " -d ", "/user:", " -user", " /p ")
_ROOTS = (
    *_minimal([noun for noun in (*_NOUNS, *_PHRASES, *_LOGIN) if noun not in _RARE] + [f"_{noun}" for noun in _RARE]),
    *_OPTIONS,
)
_ASCII_ROOTS = tuple(root for root in _ROOTS if root.isascii())


def _regions(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that are near a noun: merged, in order."""
    lower = text.replace("İ", "i").lower()  # the only character whose lower case has two characters
    places: list[int] = []
    for root in _ASCII_ROOTS if text.isascii() else _ROOTS:
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

_VALUE = re.compile(r"(?<![!#$%&*+\-./0-9?@A-Z^_a-z~])[!#$%&*+\-./0-9?@A-Z^_a-z~]{6,512}+(?:==(?=[\"'])|={1,2}(?![\w=\"'{$(\[/]))?")
_WHOLE_VALUE = re.compile(r"[^\s\"'`,;(){}\[\]<>|\\\x00-\x1f\u2026]{6,4096}\Z")
_SYMBOL = re.compile(r"[!#$%^&*?~+@]")
# Names with a number: `shop-db-2`, `SecretStr2`, `login_v2`, `HTTP2Server`.
_IDENTIFIER = re.compile(r"[A-Za-z]{1,32}[0-9]?(?:[_\-./]{1,2}[A-Za-z0-9]{1,24}){1,8}[?!]?\Z|[A-Za-z]{1,48}[0-9][A-Za-z]{0,32}[?!]?\Z|[A-Z]?[a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{2}\Z")
_SNAKE = re.compile(r"[a-z]{1,24}[0-9]{0,3}(?:[_\-](?:[a-z]{1,24}[0-9]{0,3}|[0-9]{1,4})){1,8}\Z")
_PASSPHRASE = re.compile(r"[a-z]{4,12}(?:-[a-z]{4,12}){1,6}-[0-9]{2,4}\Z")
_ENDS_IN_DIGITS = re.compile(r"[A-Za-z]{3,}[_\-]?[0-9]{2,8}[!#*$%.?]?\Z")
_ADDRESS = re.compile(r"[\w.+\-]{1,64}@[\w.\-]{1,64}\Z")
_DATED = re.compile(r"(?:19|20)[0-9]{2}[\-./]?[01][0-9][\-./]?[0-3][0-9](?![0-9])")
_HASH_END = re.compile(r"[A-Za-z0-9_]{1,24}(?:[\-_.][A-Za-z0-9]{1,24}){0,6}[\-_.](?:[0-9a-f]{16}|[0-9a-f]{32,64})\Z")
_CLASS = re.compile(r"a-z|A-Z|0-9")  # a regular expression
_POINTER = re.compile(r"[&*]{1,2}[\w.]{1,256}\Z")
_CODE = re.compile(r"\A[&*]|\A!(?=[a-z])|[?!]\.|::")
_PATH = re.compile(r"(?:[~.]{0,2}/)?(?:[\w.@+\-]{1,48}/){1,16}[\w.@+\-]{0,48}\Z")


def grade(value: str) -> float:
    """Return how sure it is, by its form alone, that a value is a secret: 0 (a word, code, an id) to 4 (random)."""
    if _WHOLE_VALUE.match(value) is None:
        return 0
    plain = value.translate(_NO_JOINTS)
    if plain.isalpha():
        return _letters_grade(value) if len(value) >= 10 and len(set(plain)) > 4 else 0
    plain = without_terms(plain)
    if not any(map(str.isalpha, plain)) or len(set(plain)) < 4 or is_trivial(value) or is_not_secret(value):
        return 0
    if is_hex_or_uuid(value.lstrip("#")) or _HASH_END.match(value):
        return 2.5 if len(value) >= 32 else 1.5 if len(value) >= 16 and "-" not in value else 0
    if _ADDRESS.match(value) or _DATED.match(value) or value.startswith(("--", "//")):
        return 0
    if _POINTER.match(value) or _CLASS.search(value) or (_CODE.search(value) and not is_certainly_random(value)):
        return 0
    if _PATH.match(value) and not is_certainly_random(value.replace("/", "")):
        return 0
    if _SNAKE.match(value):
        return 1.5 if _PASSPHRASE.match(value) else 0.5
    if is_certainly_random(value) or any(len(_CHANGE.findall(run)) >= 4 for run in _RUN.findall(value)):
        return 3 if len(value) < 16 or not _mixes(value) else 4 if len(value) < 32 else 5
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


def _letters_grade(value: str) -> float:
    if len(value) >= 16 and (is_random(value) or (_GROUPS.match(value) and not is_mostly_words(value))):
        return 3
    return 1.5 if len(value) >= 10 and value.islower() and value.isalpha() and is_random(value) else 0


_GROUPS = re.compile(r"[a-z]{4}(?:-[a-z]{4}){3}\Z")  # an application's password


def _mixes(value: str) -> bool:
    return any(map(str.isupper, value)) and any(map(str.islower, value)) and any(map(str.isdigit, value))


# Between letters and digits: words with a number have one or two.
_RUN = re.compile(r"[A-Za-z0-9]{8,512}")
_CHANGE = re.compile(r"(?=[A-Za-z][0-9]|[0-9][A-Za-z])")
_NO_JOINTS = dict.fromkeys(map(ord, "_-./"))


# --- names -----------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_](?:[\w.\-]{0,62}\w)?")
_UPPER = "A-Z\u00c0-\u00de\u0410-\u042f"
_PART = re.compile(rf"[{_UPPER}]?[^\W\d_{_UPPER}]+|[{_UPPER}]+(?![^\W\d_{_UPPER}])|[0-9]+")
_MAX_LEFT, _MAX_WORDS = 160, 9
# Between a name and its value: bound by a separator, which an opening quote or bracket may follow.
_TIGHT = re.compile(
    r"[\"'`\])*\\]{0,6}[\s\u00b7]{0,24}(?:[:=]{1,2}>?|=>|->|<-|\u2192|\uff1a|>|<<<| /(?= )|\u300c| \|(?= ))[\s\u00b7]{0,8}(?:- )?"
    r"[\"'`\\(\[{&!*|]{0,6}(?:[A-Za-z@]{1,2}(?=[\"']))?[\"'`\\]{0,4}\Z"
)
# A default, which follows what it replaces: `os.getenv("X") or "…"`.
_DEFAULT = re.compile(r"[\"'`\])\s]{0,6}(?:\|\||\?\?|:-)\s{0,4}[\"'`]{0,2}\Z")
_STOP = re.compile(r"\x00|-----|[;&|]|\}\s|\)\s{0,4}[{;]|\n\s{0,64}\n\s{0,64}\n")
_NO_NAME = re.compile(r"\b[au]rn:[\w:.\-/]{0,128}\Z|\bENC[\[(][^\])\n]{0,128}\Z")
_QUOTE_END = re.compile(r"[\"'`\u300c\u201c]\Z")
_TAG = re.compile(r"<(?P<tag>[\w:.\-]{1,64})(?P<rest>(?:\s[^<>]{0,128})?)>\s{0,16}\Z")
_ATTRIBUTE = re.compile(r"\b(?:name|key|id|n)=[\"'](?P<name>[^\"'<>]{1,64})")
_TEXT_ELEMENT = re.compile(r"<(?:key|name)>(?P<name>[^<>]{1,64})</(?:key|name)>\s{0,64}<[a-z]{1,16}>\Z")
_SETS = frozenset({"set", "-gx", "-x", "-ux", "export", "setenv", "setx", "env", "put", "add", "declare"})
_USER_OPTION = re.compile(r"(?<=\s)(?:-[ulUD]|--?user(?:name)?|--login|--host(?:name)?|-h)[ =][\"']?\Z")
# A program is given a user, a host or something that is locked: then `-p` is not a port.
_HAS_USER = re.compile(r"(?i:login|keychain|p12|pfx|rcon|unlock|passw|encrypt|decrypt)|(?:^|\s)(?:-[hH]|--host)[ =][\w.]|(?:^|[\s'\"])(?:-[uUDl]|--?user(?:name)?|--login)(?=[ =\w'\"])|/user:")
_PASSWORD_OPTION = re.compile(r"(?<=[\s'\"])-(?:[pPwWaAkKXN]|pw|pass)(?: |[\"'],\s{0,4}(?=[\"']))[\"']?\Z|(?<=\s)-[pP][\"']?\Z|\s/p(?:ass(?:word)?)? \Z")


class Name(NamedTuple):
    """The noun that names a value: its strength, the cost of the words between, and its position."""

    strength: float
    cost: float
    bound: bool
    quoted: bool
    same_line: bool
    next: bool = False  # the value follows at once


def is_user(text: str, start: int) -> bool:
    """Return whether the argument at `start` is a user name: `-u jane`."""
    return _USER_OPTION.search(text, max(0, start - 24), start) is not None


def noun_strength(word: str) -> float | None:
    """Return how surely a word names a secret: 0 if it names nothing, None if it names something else."""
    parts = [part.lower() for part in _PART.findall(word)]
    while len(parts) > 1 and (parts[-1].isdigit() or (parts[-1] in _FILLER and parts[-1] not in _NOUNS)):
        parts.pop()
    if not parts:
        return 0
    last = parts[-1]
    if last in ("token", "tokens") and len(parts) > 1 and parts[-2] in _HARMLESS_TOKENS:
        return None
    if last in ("key", "keys"):
        return _key_strength(parts[-2] if len(parts) > 1 else "")
    if last in _OTHER and not (len(parts) == 1 and last in _FILLER):
        return None
    if kind := _kind(last):
        return _STRENGTH[kind]
    inner = [kind for part in parts[:-1] if (kind := _kind(part))]
    return _STRENGTH[inner[-1]] - 0.5 if inner else 0


def _key_strength(kind: str) -> float | None:
    if kind in _HARMLESS_KEYS:
        return None
    return _STRENGTH["secret" if kind in _SECRET_KEYS else "key"]


def _kind(part: str) -> str | None:
    if kind := _NOUNS.get(part):
        return kind
    if not part.isascii():
        return next((_NOUNS[noun] for noun in _CJK_NOUNS if noun in part), None)
    return next((_NOUNS[noun] for noun in _JOINED if part.endswith(noun)), None)


def _name_of(text: str, start: int) -> Name | None:
    """Return the noun that names the value at `start`; None if another word does, or none."""
    left = text[max(0, start - _MAX_LEFT) : start]
    if _NO_NAME.search(left) or is_user(text, start):
        return None
    if _PASSWORD_OPTION.search(left):
        line = text[max(0, start - _CHARS_AFTER) : start].rpartition("\n")[2]
        is_login = _HAS_USER.search(line)
        return Name(_STRENGTH["password"] if is_login else _STRENGTH["key"] + 0.5, 0, True, False, True)
    if left.endswith(">"):
        return _tag_name(left)
    return _nearest_noun(left)


def _tag_name(left: str) -> Name | None:
    """Return the name of an element's text: `<password>…`, `<string name="api_key">…`, `<key>Secret</key><string>…`."""
    if match := _TEXT_ELEMENT.search(left):
        names = [match["name"]]
    elif match := _TAG.search(left):
        tag = match["tag"].rpartition(":")[2]
        names = [tag, *(each["name"] for each in _ATTRIBUTE.finditer(match["rest"]))]
        if tag.lower() in _CARRIERS and (outer := _TAG.search(left, 0, match.start())):
            names.append(outer["tag"].rpartition(":")[2])
    else:
        return None
    strength = max(noun_strength(name) or 0 for name in names)
    return Name(strength, 0, True, False, True) if strength else None


def _nearest_noun(left: str) -> Name | None:
    words = list(_WORD.finditer(left))[-_MAX_WORDS:]
    if not words:
        return None
    tail = left[words[-1].end() :]
    is_default = _DEFAULT.match(tail) is not None
    if tail.endswith("("):
        return None  # an argument in code
    bound, quoted = is_default or _TIGHT.match(tail) is not None, _QUOTE_END.search(tail) is not None
    copula = not bound and tail.isspace() and words[-1][0].lower() in _COPULAS
    if "|" in tail and not is_default and not left.rpartition("\n")[2].lstrip().startswith("|"):
        return None
    cost, other, end, after = 0.0, 0.0, len(left), ""
    for number, word in enumerate(reversed(words)):
        gap = left[word.end() : end]
        if (number or not bound or "\x00" in gap) and _STOP.search(gap):
            return None
        before = words[-number - 2] if number + 1 < len(words) else None
        strength = _phrase_strength(left, word.end()) or _strength(word, before)
        if strength is None:
            return None
        if strength:
            if other and (after in _PREPOSITIONS or gap.strip() == "(" or _begins_line(left, word.start(), end)):
                cost -= other  # `Password for staging: …`, `Password (staging): …`
            bound = bound or copula or (number > 0 and _TIGHT.match(gap) is not None) or _is_set(left, tail, word, before)
            same_line = "\n" not in left[word.end() :]
            cost = max(cost, 0.0) if same_line else min(max(cost, 0.0), 1.0)
            between = left[word.end() :]
            return Name(strength, cost, bound, quoted, same_line, between.isspace() or between.replace(" ", "").isdigit())
        if number == 0 and bound and not is_default and word[0].lower() not in _CARRIERS and not word[0].isdigit():
            is_pair = " / " in tail or _is_user_of_pair(left, word, before)
            other = 0.0 if is_pair else 2.0
            cost = -2 * _DISTANCE if is_pair else other
        if other and "\n" not in tail and ("," in gap or "(" in gap or "[" in gap):
            return None
        cost += 0 if word[0].lower() in _FREE or len(word[0]) == 1 or word[0][0].isdigit() else _DISTANCE / 2 if copula else _DISTANCE
        end, after = word.start(), word[0].lower()
    return None


def _begins_line(left: str, noun: int, end: int) -> bool:
    """Return whether a noun begins its line and only words follow it: `Passwort fürs WLAN: …`."""
    return _LINE_BEGIN.search(left, 0, noun) is not None and left[noun : left.rfind(":") if ":" in left[noun:] else 0].replace(" ", "").isalpha()


_LINE_BEGIN = re.compile(r"(?:\A|\n)[ \t>*\-#]{0,16}\Z")
_PASSES = ("pass", "Pass", "PASS", "passes")  # also a verb, and the result of a test


def _strength(word: re.Match[str], before: re.Match[str] | None) -> float | None:
    strength = noun_strength(word[0])
    if strength and len(word[0]) >= 16 and grade(word[0]) >= 3:
        return 0  # random letters, some of which spell a noun
    if word[0] in _PASSES:
        is_key = word.string[word.end() : word.end() + 1] in (":", "=", '"', "'")
        return _STRENGTH["password" if is_key else "token"] if word[0].islower() else 0
    if strength == _STRENGTH["key"] and before and word.string[before.end() : word.start()] == " ":
        return _key_strength(before[0].lower())
    return strength


# Between a value and the noun behind it: `… is the new password`, `use … as the password`, `…  # signing key`.
_AFTER = re.compile(r"=?[\"'`)\]}*]{0,4}[,;.]?\s{1,4}(?:(?:is|as|was|ist|est|es|als|como|comme|==?|!=|is not)\s|#|//|--\s|\(|(?=!=))")
_AFTER_WORDS = 5


def _name_after(text: str, end: int) -> Name | None:
    """Return the noun behind a value, if one of the next few words of the line is one."""
    match = _AFTER.match(text, end)
    line = text[match.end() : match.end() + 64].partition("\n")[0] if match else ""
    before = None
    for word in list(_WORD.finditer(line))[:_AFTER_WORDS]:
        strength = _strength(word, before)
        before = word
        if strength is None:
            return None
        if strength:
            return Name(strength, 0, False, True, True)
    return None


def _is_set(left: str, tail: str, word: re.Match[str], before: re.Match[str] | None) -> bool:
    """Return whether a value follows its name as an argument: `--token …`, `setenv TOKEN …`."""
    if not tail.isspace() or "\n" in tail:
        return False
    return left.startswith("-", word.start() - 1) or (before is not None and before[0] in _SETS)


def _is_user_of_pair(left: str, word: re.Match[str], before: re.Match[str] | None) -> bool:
    """Return whether a word is the user in `creds: admin:…` or `creds: OFFICE\\jane:…`."""
    start = word.start()
    if before is not None and left[before.end() : start] in ("\\", "@", "/"):
        start = before.start()
        before = next((each for each in reversed(list(_WORD.finditer(left, 0, start)))), None)
    return before is not None and _TIGHT.match(left[before.end() : start]) is not None and bool(
        noun_strength(before[0]) or _phrase_strength(left, before.end())
    )


def _phrase_strength(left: str, end: int) -> float:
    near = left[max(0, end - 16) : end].lower()
    if near.endswith(_PHRASES):
        return _STRENGTH["password"]
    return _STRENGTH["token"] if near.endswith(_LOGIN) else 0


# --- together --------------------------------------------------------------------------------------------------------


def context_edits(text: str) -> Iterator[Edit]:
    """Yield edits that redact values which the words before them name as secrets."""
    last_end, last_name = 0, None
    for begin, end in _regions(text):
        for match in _VALUE.finditer(text, begin, end):
            start, value = match.start(), match[0].rstrip(".?")
            if text.startswith("=", start + len(value)) and (query := _QUERY.search(value)):
                value = value[: query.start()]
                end_of_value = start + len(value)
            else:
                end_of_value = match.end()
            if not (value_grade := grade(value)) or (end_of_value == match.end() and _is_no_value(text, end_of_value)):
                continue
            name = last_name if last_name and _CONTINUES.match(text[last_end:start]) else _name_of(text, start)
            name = name or (_name_after(text, match.end()) if value_grade >= 2 else None)
            if name and _is_secret(text, match, name, value_grade):
                last_end, last_name = _value_end(text, start, start + len(value)), name
                yield start, last_end, "[redacted]"


_QUERY = re.compile(r"[?&][\w.\-]{1,40}\Z")  # the next parameter of a query


# The next item of a list, or the next part of a text in several parts.
_CONTINUES = re.compile(r"[\"'`]{0,3}\s{0,4}[,+.\\]{0,2}\s{0,4}\\?(?:\r?\n[ \t+]{0,32}(?:- )?)?[\"'`]{0,3}\Z")


_GOES_ON = re.compile(r"\.\.\.|\u2026|[\"']\s{0,4}:|[(\[]|=(?=[\w$({\[<])|\s{1,4}=\s|\s[*&]\w")  # shortened, code, or itself a name


def _is_no_value(text: str, end: int) -> bool:
    return "..." in text[end - 3 : end] or _GOES_ON.match(text, end) is not None


def _is_secret(text: str, match: re.Match[str], name: Name, value_grade: float) -> bool:
    is_next = name.next and (name.strength > _STRENGTH["token"] or value_grade >= 4)
    position = _BOUND if name.bound else _QUOTED if name.quoted or is_next else 0
    if value_grade + name.strength + position - name.cost < _THRESHOLD:
        return False
    if not name.same_line:
        is_item = name.bound and _ITEM.search(text, max(0, match.start() - 64), match.start())
        return bool(is_item) or (value_grade >= 2 and _is_alone(text, match.start(), match.end()))
    prose = value_grade < 1.5 and name.bound and not name.quoted and _PROSE_CONTINUES.match(text, match.end())
    return not prose


_PROSE_CONTINUES = re.compile(r"[ \t]{1,4}(?:[a-z(]|\.\.\.|- )|, [a-z]{1,16}[ %]")
_ITEM = re.compile(r"\n[ \t+]{0,32}- [\"']?\Z")
_ALONE_BEFORE = re.compile(
    r"(?:\A|\n)[ \t+\-]{0,32}(?:(?:=>|[0-9]{1,6}[\u2192:|]|Out\[[0-9]{1,6}\]:|\$[0-9]{1,4} = (?:0x[0-9a-f]{1,16} )?|value:|default:)"
    r"[ \t]{0,8})?[\"'`]?\Z"
)
_ALONE_AFTER = re.compile(r"[\"'`,;.]{0,3}[ \t]{0,8}(?:\r?\n|\Z)")


def _is_alone(text: str, start: int, end: int) -> bool:
    """Return whether a value is all that stands in its line."""
    before = _ALONE_BEFORE.search(text, max(0, start - 64), start)
    return before is not None and _ALONE_AFTER.match(text, end) is not None


_QUERY_NEXT = re.compile(r"[^\s&?]{0,8}[&?][\w.\-]{1,40}=")
_MORE = re.compile(r"[^\s\"'`,;<>)\]}|\\\x00-\x1f]{1,512}")


def _value_end(text: str, start: int, end: int) -> int:
    """Return the end of a value whose first part ends at `end`: up to the quote it began with, or to a separator."""
    quote = text[start - 1 : start]
    if quote and quote in "\"'`":
        close = text.find(quote, end, end + 512)
        if close >= 0 and not any(map(str.isspace, text[end:close])):
            return close
    more = _MORE.match(text, end)
    return more.end() if more and not _QUERY_NEXT.match(text, end) else end


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a name is that of a secret and a value bound to it looks like one."""
    strength = noun_strength(name)
    return bool(strength) and grade(value) + (strength or 0) + _BOUND >= _THRESHOLD


def is_shown_secret(command: str, word: str) -> bool:
    """Return whether a word that a command printed is a secret: it looks random, and the command speaks of a secret."""
    return grade(word) >= 3 and any((noun_strength(part[0]) or 0) >= 2 for part in _WORD.finditer(command[-_MAX_COMMAND:]))


_MAX_COMMAND = 400

# A format that no rule knows: a short prefix, and a long random part. Ids have such a form too, but are shorter.
_PREFIXED = re.compile(r"(?:[a-z]{2,12}_|[a-z]{4,12}[\-.])(?P<random>[A-Za-z0-9][A-Za-z0-9_\-.]{23,512})\Z")
_HARMLESS_PREFIX = re.compile(r"(?:sha[0-9]{1,3}|md5|toolu|msg|req|chatcmpl|run|thread|asst|file|call|resp|rs|fc|h1|pk|pub|public)[_\-.]")


def is_prefixed_token(word: str) -> bool:
    """Return whether a word has the form of a vendor's token: `acme_live_` and thirty random characters or more."""
    match = _PREFIXED.match(word)
    if match is None or ".." in word or _HARMLESS_PREFIX.match(word):
        return False
    letters = match["random"].translate(_NO_JOINTS)
    return len(letters) >= 30 and _mixes(letters) and len(_CHANGE.findall(letters)) >= 6 and is_certainly_random(letters)
