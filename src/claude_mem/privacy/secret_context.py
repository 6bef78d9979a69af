"""Values judged by the words before them: `bindpw …`, `mot de passe : …`, `user admin insecure-password …`.

The patterns of `secret_names.py` know a number of syntaxes. This module knows none: it starts from a value that does not
look like a word, reads backwards to the noun that names it, and adds up how sure the value, the noun and the position
are. A value is named by the nearest noun: if that is the noun of another thing (`id`, `sha256`, `path`), the value is not a
secret, whatever stands further away; and a name that is bound to the value by `=` or `:` counts against every noun before
it. Only the neighbourhood of nouns is read. The vocabulary and the weights are data: `[context]` in `data/secrets.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from claude_mem.privacy.secret_grades import LONG_RANDOM, PASSPHRASE, PASSWORD, RANDOM, grade
from claude_mem.privacy.secret_rules import RULES_FILE, LiteralIndex, Literals

Edit = tuple[int, int, str]  # start, end, replacement

_CONTEXT: dict[str, Any] = RULES_FILE["context"]
_THRESHOLD: float = _CONTEXT["threshold"]
_DISTANCE: float = _CONTEXT["distance"]
_BOUND_ELSEWHERE: float = _CONTEXT["bound_elsewhere"]
_BOUND: float = _CONTEXT["bound"]
_QUOTED: float = _CONTEXT["quoted"]
_STRENGTH: dict[str, float] = _CONTEXT["strength"]
_VOCABULARY: dict[str, Any] = _CONTEXT["nouns"]
_PHRASES = {kind: tuple(phrases) for kind, phrases in _CONTEXT["phrases"].items()}
_NOUNS = {noun: kind for kind in _STRENGTH for noun in _VOCABULARY[kind].split()}


def _words(name: str) -> frozenset[str]:
    return frozenset(_VOCABULARY[name].split())


_NOT_JOINED = _words("not_joined")
_JOINED = tuple(noun for noun in _NOUNS if noun not in _NOT_JOINED)
_CJK_NOUNS = tuple(noun for noun in _NOUNS if ord(noun[0]) > 0x2E80)
_SECRET_KEYS, _HARMLESS_KEYS, _HARMLESS_TOKENS = map(_words, ("secret_keys", "harmless_keys", "harmless_tokens"))
_FILLER, _CARRIERS, _COPULAS, _PREPOSITIONS = map(_words, ("filler", "carriers", "copulas", "prepositions"))
_OTHER = _words("other")
_FREE = _FILLER | _PREPOSITIONS
_SUFFIXES = _FILLER - _OTHER - _NOUNS.keys()  # `password_default`, but not `password_name`


# --- where nouns stand -----------------------------------------------------------------------------------------------

_CHARS_BEFORE, _CHARS_AFTER, _LINES_AFTER = 100, 240, 2
_SKIPPED = 24  # characters after a noun in which another noun changes nothing
_RARE = ("pat", "sid", "otp")  # parts of many words: only `_pat` is searched
_OPTIONS = (" -p ", "'-p'", '"-p"', " -u", "'-u'", '"-u"', " --user", " -l ", " -d ", "/user:", " -user", " /p ")


def _minimal(words: list[str]) -> tuple[str, ...]:
    """Return the words that contain no other of them."""
    return tuple(word for word in words if not any(other in word for other in words if other != word))


# Every noun and phrase contains one of these.
_ROOTS = (
    *_minimal(
        [noun for noun in _NOUNS if noun not in _RARE]
        + [phrase for phrases in _PHRASES.values() for phrase in phrases]
        + [f"_{noun}" for noun in _RARE]
    ),
    *_OPTIONS,
)
_ALL_ROOTS, _ASCII_ROOTS = LiteralIndex(_ROOTS), LiteralIndex(root for root in _ROOTS if root.isascii())


def _regions(text: str, literals: Literals) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text that are near a noun: merged, in order."""
    literals = literals if literals.text is text else Literals(text)
    places: list[int] = []
    for root, first in literals.select_lower(_ASCII_ROOTS if text.isascii() else _ALL_ROOTS):
        at = first
        while at >= 0:
            places.append(at)
            at = literals.lower.find(root, at + _SKIPPED)
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


# --- nouns -----------------------------------------------------------------------------------------------------------

_UPPER = "A-Z\u00c0-\u00de\u0410-\u042f"
_PART = re.compile(rf"[{_UPPER}]?[^\W\d_{_UPPER}]+|[{_UPPER}]+(?![^\W\d_{_UPPER}])|[0-9]+")
_KEYWORD = re.compile(r"(?<=[{\s(]:)[Pp]ass [\"']")  # `:pass "…"`
_PASSES = ("pass", "Pass", "PASS", "passes")  # also a verb, and the result of a test
_MIN_RANDOM = 16  # random letters, some of which may spell a noun


def noun_strength(word: str) -> float | None:
    """Return how surely a word names a secret: 0 if it names nothing, None if it names something else."""
    parts = [part.lower() for part in _PART.findall(word)]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _SUFFIXES):
        parts.pop()
    if not parts:
        return 0
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in ("key", "keys"):
        strength = key_strength(before)
        return _STRENGTH["token"] if strength == _STRENGTH["key"] and before.isalpha() else strength
    is_other = last in _OTHER and not (len(parts) == 1 and last in _FILLER)
    if is_other or (last in ("token", "tokens") and before in _HARMLESS_TOKENS):
        return None
    if kind := _kind(last):
        return _STRENGTH[kind]
    if any(part.isdigit() and len(part) > 2 for part in parts[:-1]):
        return 0  # the number of an article: `PW-78238-TK`
    inner = [kind for part in parts[:-1] if (kind := _kind(part))]
    return _STRENGTH[inner[-1]] - _DISTANCE if inner else 0


def key_strength(kind: str) -> float | None:
    """Return the strength of the noun `key`, which depends on the word before it."""
    if kind == "send":
        return 0  # `find("password").send_keys("…")`
    if kind in _HARMLESS_KEYS:
        return None
    return _STRENGTH["secret" if kind in _SECRET_KEYS else "key"]


def _kind(part: str) -> str | None:
    if kind := _NOUNS.get(part):
        return kind
    if not part.isascii():
        return next((_NOUNS[noun] for noun in _CJK_NOUNS if noun in part), None)
    return next((_NOUNS[noun] for noun in _JOINED if part.endswith(noun)), None)


def _strength(word: re.Match[str], before: re.Match[str] | None) -> float | None:
    """Return the strength of a word in its text: phrases, and keys whose kind is a word of its own, count too."""
    if phrase := _phrase_strength(word.string, word.end()):
        return phrase
    if word[0] in _PASSES:
        is_key = word.string[word.end() : word.end() + 1] in (":", "=", '"', "'", "[")
        is_key = is_key or _KEYWORD.match(word.string, word.start()) is not None
        return _STRENGTH["password" if is_key else "token"] if word[0].islower() else 0
    strength = noun_strength(word[0])
    if strength and len(word[0]) >= _MIN_RANDOM and grade(word[0]) >= RANDOM:
        return 0
    if strength == _STRENGTH["key"] and before and word.string[before.end() : word.start()] == " ":
        return key_strength(before[0].lower())
    return strength


_SPACED = dict.fromkeys(map(ord, "_-"), " ")


def _phrase_strength(text: str, end: int) -> float:
    near = text[max(0, end - 16) : end].lower().translate(_SPACED)
    return max((_STRENGTH[kind] for kind, phrases in _PHRASES.items() if near.endswith(phrases)), default=0)


# --- the noun that names a value -------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W_](?:[\w.\-]{0,62}\w)?")
_MAX_LEFT, _MAX_WORDS = 160, 9
# Between a name and its value: bound by a separator, which an opening quote or bracket may follow.
_TIGHT = re.compile(
    r"[\"'`\])*\\]{0,6}[\s\u00b7]{0,24}(?:[:=]{1,2}>?|=>|->|<-|\u2192|\uff1a|>|<<<| /(?= )|\u300c| \|(?= ))"
    r"[\s\u00b7]{0,8}(?:- )?[\"'`\\(\[{&!*|]{0,6}(?:[A-Za-z@]{1,2}(?=[\"']))?[\"'`\\]{0,4}\Z"
)
# A default, which follows what it replaces: `os.getenv("X") || "…"`.
# The type of a dumped value: `string(16) "…"`.
_DUMPED_TYPE = re.compile(r"\s{0,64}\b(?:string|bytes)\([0-9]{1,4}\) (?=[\"']\Z)")
# What was redacted before, in a list or a change: `token = "[redacted]" -> "…"`.
_REDACTED_BEFORE = re.compile(r"\[redacted(?: [a-z\-]{1,32})?\][\"'`]{0,3}\s{0,4}(?:->|,|to\b)\s{0,4}[\"'`]{0,3}\Z")
_REMARK = re.compile(r" \([\"'`]?\Z")
_CHANGED_FROM = re.compile(r" from(?= [\"'`]?\Z)")
_CHANGED_TO = re.compile(r"\S{6,512} to ")
# A user and a password in a note: `wifi: office / …`.
_NOTED_PAIR = re.compile(
    r"(?i)\b(?:wi-?fi|wlan|log-?in|creds?|credentials|account|zugang\w{0,8})\b[^\n:/]{0,32}: ?[\w.@\\\-]{1,64} / [\"'`]?\Z"
)
_DEFAULT = re.compile(r"[\"'`\])\s]{0,6}(?:\|\||\?\?|:-)\s{0,4}[\"'`]{0,2}\Z")
_STOP = re.compile(r"\x00|-----|[;&|]|\}\s|\)\s{0,4}[{;]|\n\s{0,64}\n\s{0,64}\n")
_LIST = re.compile(r"[,(\[]")
_NO_NAME = re.compile(
    r"\b(?i:mask|redact|obfuscate|scrub)\w{0,24}\([\"']?\Z|\b[au]rn:[\w:.\-/]{0,128}\Z|\bENC[\[(][^\])\n]{0,128}\Z|\bchecksum/[\w.\-]{1,64}: \Z|"
    r"\bpubkey\b[^\n]{0,80}\n\Z"
)
_FOLDER = re.compile(r"(?:[A-Za-z]:|~|[\w.\-]{1,64})(?:\\{1,2}[\w.\- ]{1,64}){2,16}\\{1,2}\Z")  # a path of Windows
_QUOTE_END = re.compile(r"[\"'`\u300c\u201c]\Z")
_LINE_BEGIN = re.compile(r"(?:\A|\n)[ \t>*\-#]{0,16}(?:[^\W\d_]{1,12} ){0,3}\Z")
_SETS = frozenset({"set", "-gx", "-x", "-ux", "export", "define", "setenv", "setx", "env", "put", "add", "declare"})


class Name(NamedTuple):
    """The noun that names a value: its strength, the cost of the words between, and its position."""

    strength: float
    cost: float = 0
    bound: bool = True
    quoted: bool = False
    same_line: bool = True
    next: bool = False  # the value follows at once


def _name_of(text: str, start: int) -> Name | None:
    """Return the noun that names the value at `start`; None if another word does, or none."""
    head = text[max(0, start - _MAX_LEFT) : start]
    if ") " in head[-3:]:
        head = _DUMPED_TYPE.sub(" ", head)
    if "[redacted" in head[-64:]:
        head = _REDACTED_BEFORE.sub("", head)
    if " from " in head[-7:] and _CHANGED_FROM.search(head) and _CHANGED_TO.match(text, start):
        head = _CHANGED_FROM.sub(" is", head)
    if _NO_NAME.search(head) or _FOLDER.search(head) or is_user(text, start):
        return None
    if _PASSWORD_OPTION.search(head):
        line = text[max(0, start - _CHARS_AFTER) : start].rpartition("\n")[2]
        return Name(_STRENGTH["password"] if _LOGS_IN.search(line) else _STRENGTH["key"] + _DISTANCE)
    if " / " in head[-4:] and _NOTED_PAIR.search(head):
        return Name(_STRENGTH["password"])
    return _tag_name(head) if head.endswith(">") else _nearest_noun(head)


def _nearest_noun(head: str) -> Name | None:
    """Return the noun nearest to the end of a text, if it names what follows."""
    words = list(_WORD.finditer(head))[-_MAX_WORDS:]
    tail = head[words[-1].end() :] if words else "("
    if _REMARK.match(tail):  # `the password (Velvet62!)`
        strength = _strength(words[-1], words[-2] if len(words) > 1 else None)
        return Name(strength, bound=False) if strength else None
    is_default = _DEFAULT.match(tail) is not None
    if tail.endswith("(") or ("|" in tail and not is_default and not _is_table_row(head)):
        return None  # an argument in code, or another command
    bound = is_default or _TIGHT.match(tail) is not None
    copula = not bound and tail.isspace() and words[-1][0].lower() in _COPULAS
    cost = elsewhere = 0.0
    end, after = len(head), ""
    for number, word in enumerate(reversed(words)):
        gap = head[word.end() : end]
        if (number or not bound or "\x00" in gap) and _STOP.search(gap):
            return None
        if number and elsewhere and "\n" not in tail and gap.strip() != "(" and _LIST.search(gap):
            return None
        before = words[-number - 2] if number + 1 < len(words) else None
        strength = _strength(word, before)
        if strength is None:
            return None
        if strength:
            if elsewhere and (after in _PREPOSITIONS or gap.strip() == "(" or _begins_phrase(head, word.start())):
                cost -= elsewhere  # `Password for staging: …`, `Password (staging): …`
            bound = bound or copula or (number > 0 and _TIGHT.match(gap) is not None) or _is_set(head, word, before)
            return _named(head, word, strength, cost=cost, bound=bound)
        if number == 0 and bound and not is_default and word[0].lower() not in _CARRIERS and not word[0].isdigit():
            is_pair = " / " in tail or _is_user_of_pair(head, word, before)
            elsewhere = 0.0 if is_pair else _BOUND_ELSEWHERE
            cost = -2 * _DISTANCE if is_pair else elsewhere
        is_free = word[0].lower() in _FREE or len(word[0]) == 1 or word[0][0].isdigit()
        cost += 0 if is_free else _DISTANCE / 2 if copula else _DISTANCE
        end, after = word.start(), word[0].lower()
    return None


def _named(head: str, noun: re.Match[str], strength: float, *, cost: float, bound: bool) -> Name:
    between = head[noun.end() :]
    same_line = "\n" not in between
    return Name(
        strength,
        cost=max(cost, 0.0) if same_line else min(max(cost, 0.0), 2 * _DISTANCE),
        bound=bound,
        quoted=_QUOTE_END.search(between) is not None,
        same_line=same_line,
        next=between.isspace() or between.replace(" ", "").isdigit(),
    )


def _is_table_row(head: str) -> bool:
    return head.rpartition("\n")[2].lstrip().startswith("|")


def _begins_phrase(head: str, noun: int) -> bool:
    """Return whether a noun is near the start of its line and only words follow it: `Das Passwort fürs WLAN: …`."""
    words = head[noun:].rpartition(":")[0]
    return words.replace(" ", "").isalpha() and _LINE_BEGIN.search(head, 0, noun) is not None


def _is_set(head: str, noun: re.Match[str], before: re.Match[str] | None) -> bool:
    """Return whether the value follows its name as an argument: `--token …`, `setenv TOKEN …`."""
    between = head[noun.end() :]
    if not between.isspace() or "\n" in between:
        return False
    return head.startswith("-", noun.start() - 1) or (before is not None and before[0] in _SETS)


def _is_user_of_pair(head: str, word: re.Match[str], before: re.Match[str] | None) -> bool:
    r"""Return whether a word is the user in `creds: admin:…` or `creds: OFFICE\jane:…`."""
    start = word.start()
    if before is not None and head[before.end() : start] in ("\\", "@", "/"):
        start = before.start()
        before = next(reversed(list(_WORD.finditer(head, 0, start))), None)
    if before is None or _TIGHT.match(head[before.end() : start]) is None:
        return False
    return bool(_phrase_strength(head, before.end()) or noun_strength(before[0]))


# --- names of options, elements, and behind the value ----------------------------------------------------------------

_USER_OPTION = re.compile(r"(?<=\s)(?:-[ulUD]|--?user(?:name)?|--login|--host(?:name)?|-h)[ =][\"']?\Z")
_PASSWORD_OPTION = re.compile(
    r"(?<=[\s'\"])-(?:[pPwWaAkKXN]|pw|pass)(?: |[\"'],\s{0,4}(?=[\"']))[\"']?\Z|(?<=\s)-[pP][\"']?\Z|"
    r"\s/p(?:ass(?:word)?)? \Z"
)
# The program is given a user, a host or something that is locked: then `-p` is no port.
_LOGS_IN = re.compile(
    r"(?i:login|keychain|p12|pfx|rcon|unlock|passw|encrypt|decrypt|openssl enc)|(?:^|\s)(?:-[hH]|--host)[ =][\w.]|"
    r"(?:^|[\s'\"])(?:-[uUDl]|--?user(?:name)?|--login)(?=[ =\w'\"])|/user:"
)
_TAG = re.compile(r"<(?P<tag>[\w:.\-]{1,64})(?P<rest>(?:\s[^<>]{0,128})?)>\s{0,16}\Z")
_ATTRIBUTE = re.compile(r"\b(?:name|key|id|n)=[\"'](?P<name>[^\"'<>]{1,64})")
_TEXT_ELEMENT = re.compile(r"<(?:key|name)>(?P<name>[^<>]{1,64})</(?:key|name)>\s{0,64}<[a-z]{1,16}>\Z")
# Between a value and the noun behind it: `… is the new password`, `use … as the password`, `…  # signing key`.
_BEHIND = re.compile(
    r"=?[\"'`)\]}*]{0,4}[,;.]?\s{1,4}"
    r"(?:(?:is|as|was|ist|est|es|als|como|comme|==?|!=|is not)\s|#|//|--\s|\(|(?=!=))"
)
_COMPARED = re.compile(r"\b(?:assert|expect)[\w.!]{0,24}[( ]\s{0,4}[\"']?\Z")
_COMPARED_WITH = re.compile(r"[\"']?\s{0,4}(?:,|==)\s{1,4}(?P<name>[\w.\[\]()]{3,64})")
_WORDS_BEHIND = 5


def is_user(text: str, start: int) -> bool:
    """Return whether the argument at `start` is a user name: `-u jane`."""
    return _USER_OPTION.search(text, max(0, start - 24), start) is not None


def _tag_name(head: str) -> Name | None:
    """Return the name of an element's text: `<password>…`, `<string name="api_key">…`, `<key>Secret</key><string>…`."""
    if match := _TEXT_ELEMENT.search(head):
        names = [match["name"]]
    elif match := _TAG.search(head):
        tag = match["tag"].rpartition(":")[2]
        names = [tag, *(each["name"] for each in _ATTRIBUTE.finditer(match["rest"]))]
        if tag.lower() in _CARRIERS and (outer := _TAG.search(head, 0, match.start())):
            names.append(outer["tag"].rpartition(":")[2])
    else:
        return None
    strength = max(noun_strength(name) or _phrase_strength(name, len(name)) for name in names)
    return Name(strength) if strength else None


def _name_behind(text: str, start: int, end: int) -> Name | None:
    """Return the noun behind a value, if one of the next few words of the line is one."""
    compared = _COMPARED_WITH.match(text, end)
    if compared and _COMPARED.search(text, max(0, start - 40), start):
        return Name(noun_strength(compared["name"]) or 0, bound=False, quoted=True)
    match = _BEHIND.match(text, end)
    line = text[match.end() : match.end() + 64].partition("\n")[0] if match else ""
    before = None
    for word in list(_WORD.finditer(line))[:_WORDS_BEHIND]:
        strength = _strength(word, before)
        if strength is None:
            return None
        if strength:
            return Name(strength, bound=False, quoted=True)
        before = word
    return None


# --- values ----------------------------------------------------------------------------------------------------------

_VALUE = re.compile(
    r"(?<![!#$%&*+\-./0-9?@A-Z^_a-z~])(?![A-Za-z_\-./]{0,9}+(?![!#$%&*+\-./0-9?@A-Z^_a-z~]))"  # a short word is none
    r"[!#$%&*+\-./0-9?@A-Z^_a-z~]{6,512}+(?:==(?=[\"'])|={1,2}(?![\w=\"'{$(\[/]))?"
)
_NEXT_PARAMETER = re.compile(r"[?&][\w.\-]{1,40}\Z")  # of a query
_NO_VALUE = re.compile(
    r"\.\.\.|\u2026|[\"']\s{0,4}:|[(\[]|=(?=[\w$({\[<])|\s{1,4}=\s|\s[*&]\w"
)  # shortened, code, or a name
# Random characters in quotes, one of which is `=`: no name with its value.
_QUOTED_PAIR = re.compile(
    r"(?<=[\"'])(?P<value>[^\s\"'`,;&(){}\[\]<>|\\=$]{2,64}=[^\s\"'`,;&(){}\[\]<>|\\=]{2,64})(?=[\"'])"
)
# The next item of a list, or the next part of a text in several parts.
_CONTINUES = re.compile(r"[\"'`]{0,3}\s{0,4}(?:[,+.\\]{0,2}|->)\s{0,4}\\?(?:\r?\n[ \t+]{0,32}(?:- )?)?[\"'`]{0,3}\Z")
_MAX_GAP = 80
_PROSE_CONTINUES = re.compile(r"[ \t]{1,4}(?:[a-z(]|\.\.\.|- )|, [a-z]{1,16}[ %]")
_ITEM = re.compile(r"\n[ \t+]{0,32}- [\"']?\Z")
# All that may stand in a line before a value that is alone: the prompt of an interpreter or debugger, a line number.
_ALONE_BEFORE = re.compile(
    r"(?:\A|\n)[ \t+\-]{0,32}(?:(?:=>|[0-9]{1,6}[\u2192:|]|Out\[[0-9]{1,6}\]:|\$[0-9]{1,4} = (?:0x[0-9a-f]{1,16} )?|"
    r"value[:=]|default[:=])[ \t]{0,8})?[\"'`]?\Z"
)
_LABEL_BEFORE = re.compile(r"\n {1,8}[\w.\-]{1,24} {2,16}\Z")  # an entry of a list under a heading
_ALONE_AFTER = re.compile(r"[\"'`,;.]{0,3}[ \t]{0,8}(?:\r?\n|\Z)")
_MORE = re.compile(r"[^\s\"'`,;<>)\]}|\\\x00-\x1f]{1,512}")
_MORE_PARAMETERS = re.compile(r"[^\s&?]{0,8}[&?][\w.\-]{1,40}=")
_MAX_VALUE = 512
_MIN_KEY_LINE = 32
PUBLIC_BLOCK = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}(?:PUBLIC|CERT|PARAM)")


def context_edits(
    text: str, literals: Literals | None = None, unsure: list[tuple[int, int]] | None = None
) -> Iterator[Edit]:
    """Yield edits that redact values which the words around them name as secrets. The other values near nouns that look
    like no word are appended to `unsure`."""
    last_end, last_name = 0, None
    for begin, end in _regions(text, literals or Literals(text)):
        for match in _VALUE.finditer(text, begin, end):
            start, value = match.start(), _value(match)
            value_grade = grade(value) if value else 0
            if not value_grade:
                continue
            is_continued = start - last_end < _MAX_GAP and _CONTINUES.match(text[last_end:start])
            name = last_name if last_name and is_continued else _name_of(text, start)
            name = name or (_name_behind(text, start, match.end()) if value_grade >= PASSWORD else None)
            if name and _is_secret(match, name, value_grade) and not is_in_test_name(text, start):
                last_end, last_name = _value_end(text, start, start + len(value)), name
                yield start, last_end, "[redacted]"
            elif unsure is not None:
                unsure.append((start, start + len(value)))


def _value(match: re.Match[str]) -> str:
    """Return the value of a match without what follows it; "" if it is a name, code or shortened."""
    value, end = match[0].rstrip(".?"), match.end()
    if _is_public(match.string, match.start(), value):
        return ""
    if value.startswith("Ag") and "encryptedData" in match.string[max(0, match.start() - 4_000) : match.start()]:
        return ""  # a sealed secret, which may be public
    if match.string.startswith("=", match.start() + len(value)) and (query := _NEXT_PARAMETER.search(value)):
        return value[: query.start()]
    if match[0].endswith("...") or _NO_VALUE.match(match.string, end):
        quoted = _QUOTED_PAIR.match(match.string, match.start())
        return quoted["value"] if quoted and grade(quoted["value"]) >= RANDOM else ""
    return value


def _is_public(text: str, start: int, value: str) -> bool:
    """Return whether a value is the header of a JSON Web Token, or a line of a public key or certificate."""
    if value.startswith("eyJhbGci") and "." not in value and len(value) < 64:
        return True
    if len(value) < _MIN_KEY_LINE or not value[0].isalnum():
        return False
    begin = text.rfind("-----BEGIN ", max(0, start - 4_000), start)
    return begin >= 0 and PUBLIC_BLOCK.match(text, begin) is not None and text.find("-----END", begin, start) < 0


def _is_secret(match: re.Match[str], name: Name, value_grade: float) -> bool:
    text, start, end = match.string, match.start(), match.end()
    is_next = name.next and (name.strength > _STRENGTH["token"] or value_grade >= LONG_RANDOM)
    position = _BOUND if name.bound else _QUOTED if name.quoted or is_next else 0
    if value_grade + name.strength + position - name.cost < _THRESHOLD:
        return False
    if not name.same_line:
        is_item = name.bound and _ITEM.search(text, max(0, start - 64), start)
        is_labelled = value_grade >= LONG_RANDOM and _LABEL_BEFORE.search(text, max(0, start - 48), start)
        return bool(is_item or is_labelled) or (value_grade >= PASSPHRASE and _is_alone(text, start, end))
    is_prose = value_grade < PASSPHRASE and name.bound and not name.quoted
    return not (is_prose and _PROSE_CONTINUES.match(text, end))


_TEST_LINE = re.compile(
    r"(?:\A|[\n\"']|\\n)[ \t+\-]{0,32}(?:=== [A-Z]{3,5} {1,4}|--- [A-Z]{4,5}: |test )[^\s\"']{1,256}\Z|<test[a-z]{0,8} name=[\"'][^\"'\n]{0,128}\Z"
)


def is_in_test_name(text: str, start: int) -> bool:
    """Return whether the name of a test in a report goes on at `start`: `--- PASS: TestAuth/token=…`."""
    return _TEST_LINE.search(text, max(0, start - 320), start) is not None


def _is_alone(text: str, start: int, end: int) -> bool:
    """Return whether a value is all that stands in its line."""
    before = _ALONE_BEFORE.search(text, max(0, start - 64), start)
    return before is not None and _ALONE_AFTER.match(text, end) is not None


def _value_end(text: str, start: int, end: int) -> int:
    """Return the end of a value whose first part ends at `end`: up to the quote it began with, or to a separator."""
    quote = text[start - 1 : start]
    if quote and quote in "\"'`":
        close = text.find(quote, end, end + _MAX_VALUE)
        if close >= 0 and not any(map(str.isspace, text[end:close])):
            return close
    more = _MORE.match(text, end)
    return more.end() if more and not _MORE_PARAMETERS.match(text, end) else end


# --- names and values that are known apart ---------------------------------------------------------------------------

_MAX_COMMAND = 400


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a name is that of a secret and a value bound to it looks like one."""
    strength = noun_strength(name)
    return bool(strength) and grade(value) + (strength or 0) + _BOUND >= _THRESHOLD


def is_shown_secret(command: str, word: str) -> bool:
    """Return whether a word that a command printed is a secret: it looks random, and the command speaks of a secret."""
    if grade(word) < RANDOM:
        return False
    nouns = (noun_strength(part[0]) or 0 for part in _WORD.finditer(command[-_MAX_COMMAND:]))
    return max(nouns, default=0) >= _STRENGTH["token"]
