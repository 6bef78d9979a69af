"""Values identified as secrets by their name: `DB_PASSWORD=…`, `"clientSecret": "…"`, `the password is …`.

Names are located as literals, and patterns are tried only there. A tight form (`NAME=value`) accepts almost any value;
a loose form (an argument after the name, a table, prose) accepts only values that look machine-generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from claude_mem.privacy.secret_context import is_in_test_name
from claude_mem.privacy.secret_grades import PASSPHRASE, PASSWORD, grade
from claude_mem.privacy.secret_rules import (
    CODE_EXPRESSION,
    is_hex_or_uuid,
    is_label,
    is_mostly_words,
    is_random,
    looks_secret,
)

Edit = tuple[int, int, str]  # start, end, replacement

# Names of secrets: `DB_PASSWORD`, `apiKey`, `token_v2`; not `tokenizer` or `author`. Whether a key is secret depends on
# the word before it; other keys (`STRIPE_KEY`) are weak names: their values must look random.
_KEY_KINDS = (
    "api|app|access|account|private|priv|secret|signing|signature|encryption|decryption|validation|crypt|master|shared|preshared|"
    "service|consumer|deploy|client|storage|admin|session|auth|jwt|hmac"
)
_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|(?:(?<![A-Za-z])|(?<=store)|(?<=key)|(?<=ssh)|(?<=require))pass|pwd|psk|(?<=_)salt|secret|token|credentials?|auth(?:tok|(?!0))|"
    rf"(?:{_KEY_KINDS})[_\-]?key|api key|(?<=[A-Za-z0-9][_\-.])key|(?-i:(?<=[a-z0-9])Key))"
)
_REST = r"(?:s|[0-9]{1,4}|[_\-][A-Za-z0-9_\-]{0,32}|(?-i:[A-Z][A-Za-z0-9]{0,32}))?(?![A-Za-z0-9])"
# Names of things related to a secret, not of the secret: `token_type`, `secretName`, `password-file`.
_ABOUT = re.compile(
    r"(?i)[_\-]?(?:name|type|id|path|file|dir|url|uri|host|endpoint|length|len|size|field|column|label|hint|input|ttl|expiry|"
    r"expires(?:[_\-]?(?:in|at))?|count|limit|ref|arn|prefix|suffix|policy|rules?|regex|pattern|version|algorithm|algo|alias|"
    r"stdin|env|var|method|provider|store|manager|mode|scheme|scopes?|class|error|errors|usage|cost|budget|status|state|message|msg|text|prompt|"
    r"help|placeholder|title|description|header|kind|format|encoding|hash(?:er)?s?|timeout|interval|days|hours|minutes|seconds|age|attempts|retries|expiration|stages|service|server|proxy|controller|handler|module|worker)\Z"
)

# NAME=value where the name is that of a secret and the value looks like one, not like code that fetches it. Quotes may
# be escaped (text quoted in other text). Between quotes any character is allowed. For a value after only a space see
# `_replace_assigned`. Some programs display a space as `\u00b7`.
_ASSIGNED = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>\\{0,4}[\"']?\s{0,4}(?:=>|=|:\s{0,4}&?(?:'static\s)?[A-Za-z_][\w.\[\]]{0,40}\s{0,4}=|:(?!:))[\s\u00b7]{0,4}(?P<slash>\\{1,4})?|"
    r"(?<=[\w\-])>|\s{1,4})"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:[^\s\"'\\\x00-\x1f]|(?(slash)(?!)|\\[\"'/])){6,512})|"
    r"(?P<bare>[^\s\"',;(){}\[\]<>$\\\x00-\x1f\u00b7]{6,512}+(?![(\[])))"
)
# A printed environment: the value extends to the end of the line and may contain any character; in quotes also spaces.
_LINE = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})(?P<between>=| ?:= ?)"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\\\x00-\x1f]{6,256})(?P=quote)|"
    r"(?P<bare>(?-i:[a-z]{4}(?: [a-z]{4}){3}(?=\s|\Z))|(?:[^\s\\;,\x00-\x1f]|,(?!\w{1,64}=)|\\(?![nrt\"'\\])){6,512}+))"
)
_LINE_HEAD = re.compile(
    r"(?:\A|(?P<quote>[\"'`])|[\r\n]|\\n)[ \t+\-]{0,16}"
    r"(?:(?:export|set|setx|declare -x|ENV|ARG|-e|--env)[ \t]{1,4}|\$env:)?[A-Z0-9_]{0,48}\Z"
)
# A YAML block: `token: |`, with the value in the following lines.
_BLOCK = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>[\"']?:[ \t]{0,4}[|>][+\-0-9]{0,2}[ \t]{0,4}\r?\n[+\-]?[ \t]{1,32}+)"
    r"(?P<value>[^\s\"'\\<>\x00-\x1f:]{8,512}+"
    r"(?:\r?\n[+\-]?[ \t]{1,32}+[A-Za-z0-9+/=_\-.]{16,512}+(?![^\r\n])){0,64}+)(?=\s|\Z)"
)
_TICKED = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})(?P<between>(?::\s{{0,4}}string)?\s{{0,4}}=\s{{0,4}}`)(?P<value>[^\s`$\\]{{8,512}}+)(?=`)"
)
# Name and value as a pair: `- name: DB_PASSWORD`, and in the next line `value: …`.
_PAIR = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>\\{0,4}[\"']?\s{0,4}+[,;]?\s{0,64}+\\{0,4}[\"']?(?:parameter)?value\\{0,4}[\"']?"
    r"\s{0,4}[:=]\s{0,4}(?:[|>][+\-]?\s{1,64})?\\{0,4}[\"']?)(?P<value>[^\s\"'\\<>\x00-\x1f]{6,512})"
)
# A value nested under its name: `"db_password": {"sensitive": true, "value": "…"}`, `variable "x" { default = "…" }`.
_NESTED = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>\\{0,4}[\"']\s{0,4}:?\s{0,4}\{(?:[^{}\x00]{0,200}?[\s\"'n{])??(?:value|default|plaintext|data)\\{0,4}[\"']?\s{0,8}[:=]\s{0,4}\\{0,4}[\"'])"
    r"(?P<value>[^\s\"'\\<>\x00-\x1f]{6,512})"
)
# A value at some distance from its name: an argument, a default, a wrapper, a table cell, prose.
_LOOSE = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>(?:\\{0,4}[\"'`\])]|\*\*|\[\]){0,4}(?P<by>"
    r"\s{0,4},\s{0,32}"
    r"|\s{0,4}:\s{0,4}[\w&'<>\[\]., ]{1,40}=\s{0,4}|\s{1,4}As\s{1,4}\w{1,16}\s{0,4}=\s{0,4}"
    r"|\s{0,16}(?:[:=]{1,2}[>\-]?|<<<|\|\||\?\?)[\s\u00b7]{0,32}"
    r"|\s{1,3}(?:is|was)\s{1,3}|[ \t]{0,16}\|[ \t]{0,16}|[ \t]{1,32}|\s?\(|\{"
    r"|</[\w:]{1,32}>\s{0,16}<[\w:]{1,32}>|(?:\s[^<>\n]{0,100})?>|\s{1,4}value=|=%[sq](?:\\n)?[\"'] )"
    r"(?:[&!][\w!]{1,24}\s{1,4}|- )?"
    r"(?:[A-Za-z_][\w:.<>&\[\]]{0,40}[(\[{]\s{0,4}(?:\\{0,4}[\"'][\w.\-]{1,64}\\{0,4}[\"']\s{0,4},\s{0,4})?|\[\]byte\(|[\[({]{1,2}\s{0,16}|q[qw]?[{(\[])?"
    r"(?:[brunq@]{1,2}(?=[\"'{]))?)"
    r"(?:(?P<quote>(?:\\{0,4}[\"'`]){1,3})(?P<quoted>[^\s\"'`\\\x00-\x1f]{8,512})(?=\\{0,4}[\"'`])"
    r"|(?P<bare>[^\s\"'`,;(){}\[\]<>|$\\\x00-\x1f]{8,512}+(?![(\[])))"
)
_COLUMN = re.compile(rf"(?i)(?P<name>{_NAMES}{_REST}|(?:secret|private|api)(?: access)? key)\Z")
_NAMED = re.compile(rf"(?i)(?P<name>{_NAMES}{_REST})\Z")
_OPTION = re.compile(r"(?:\A|[\s\"'(,])--?[A-Za-z0-9_\-]{0,40}\Z")
_LITERALS = ("pass", "pwd", "psk", "salt", "secret", "token", "key", "auth", "credential")
_PASSWORD = re.compile(r"(?i)pass(?:word|wd|phrase|code)?|pwd")


# --- values with the name of a secret --------------------------------------------------------------------------------


def named_value_edits(text: str) -> list[Edit]:
    """Return edits that redact values identified by their name. Names are located as literals, and the patterns are
    tried only there, which is much faster than searching with them."""
    places = _name_places(text)
    all_edits = table_edits(text, places)
    position = 0
    for at in places:
        for pattern, decide in _NAMED_SHAPES if at >= position else ():
            if (match := pattern.match(text, at)) and (replacement := decide(match)) and not _names_a_test(match):
                all_edits.append((at, match.end(), replacement))
                all_edits += _more_items(text, match)
                position = all_edits[-1][1]
                break
    return sorted(all_edits)


_CELL_SEPARATORS = ("|", "\t", ",", ";")
_MAX_LINE, _MAX_ROWS, _MAX_COLUMNS = 300, 200, 12
_HEADER_CELL = re.compile(r"[\s\"'`]{0,8}[\w .#/\-]{0,40}[\s\"'`]{0,8}\Z")


def table_edits(text: str, places: list[int]) -> list[Edit]:
    """Return edits that redact the cells of table columns with the name of a secret."""
    all_edits: list[Edit] = []
    after = 0
    for at in places:
        begin, end = _line_at(text, at) if at >= after else (0, 0)
        for separator in _CELL_SEPARATORS if end else ():
            count = text.count(separator, begin, end)
            next_line = _RULE_LINE.match(text, end + 1)
            next_at = next_line.end() if next_line else end
            if not count or text.count(separator, next_at, _line_end(text, next_at + 1)) != count:
                continue
            cells = text[begin:end].split(separator)
            columns = {number for number, cell in enumerate(cells) if len(cells) > 1 and _heads_column(cell)}
            if columns and (separator in "|\t" or all(map(_HEADER_CELL.match, cells))):
                all_edits += _column_edits(text, end, separator, len(cells), columns)
                break
        else:
            all_edits += _aligned_edits(text, begin, end) if end else ()
        after = max(after, end)
    return all_edits


_ALIGNED_CELL = re.compile(r"[^\s\"'`#;][^\s\"'`]{0,511}(?: [^\s\"'`]{1,512}){0,4}")


def _aligned_edits(text: str, begin: int, end: int) -> Iterator[Edit]:
    """Yield edits for a table whose columns are separated by spaces: `# client  server  secret`."""
    if text.count("  ", begin, end) < 2 and "\t" not in text[begin:end]:
        return
    names = _ALIGNED_CELL.findall(text, begin, end)
    columns = {number for number, name in enumerate(names) if _heads_column(name)}
    if not columns or not 2 < len(names) <= _MAX_COLUMNS:
        return
    for _ in range(_MAX_ROWS):
        begin, end = end + 1, _line_end(text, end + 1)
        cells = list(_ALIGNED_CELL.finditer(text, begin, end))
        if not columns.issubset(range(len(cells))):
            return
        for number in columns:
            if grade(cells[number][0]) >= PASSWORD:
                yield cells[number].start(), cells[number].end(), "[redacted]"


def _line_at(text: str, at: int) -> tuple[int, int]:
    """Return the start and end of a line; (0, 0) if it is too long to be the header of a table."""
    begin, end = text.rfind("\n", max(0, at - _MAX_LINE), at) + 1, text.find("\n", at, at + _MAX_LINE)
    return (begin, end) if end > 0 and (begin > 0 or at < _MAX_LINE) else (0, 0)


def _heads_column(cell: str) -> bool:
    name = cell.strip(" \t\r*`\"'")
    match = _COLUMN.search(name) if len(name) <= 40 else None
    return match is not None and not _has_weak_name(match) and not _is_about_secret(match["name"])


def _line_end(text: str, begin: int) -> int:
    end = text.find("\n", begin, begin + 4 * _MAX_LINE)
    return end if end >= 0 else min(len(text), begin + 4 * _MAX_LINE)


_RULE_LINE = re.compile(r"[ \t|+\-=:]{3,300}+(?=\r?\n|\Z)")  # between the header of a table and its rows


def _column_edits(text: str, end: int, separator: str, count: int, columns: set[int]) -> Iterator[Edit]:
    for _ in range(_MAX_ROWS):
        begin, end = end + 1, _line_end(text, end + 1)
        if _RULE_LINE.match(text, begin):
            continue
        cells = text[begin:end].split(separator)
        if len(cells) != count:
            return
        for number, cell in enumerate(cells):
            value = cell.strip(" \t\r*`\"'")
            if number in columns and (is_random(value) or grade(value) >= PASSPHRASE):
                start = begin + sum(map(len, cells[:number])) + number + cell.index(value)
                yield start, start + len(value), "[redacted]"


# The next item of a list: `["…", "…"]`, or a line that begins with `- `.
_ITEM = re.compile(
    r"\\{0,4}[\"'`]?\s{0,4}(?:,\s{0,32}|\n[ \t+]{0,32}- )\\{0,4}[\"'`]?(?P<value>[^\s\"'`,;\[\](){}<>\\\x00-\x1f]{8,512})"
)
_IN_LIST = re.compile(r"[\[({]\s{0,32}\\{0,4}[\"'`]?\Z|\n[ \t+]{0,32}- [\"']?\Z")


def _more_items(text: str, match: re.Match[str]) -> list[Edit]:
    """Return edits for the following items of a list whose first item is a secret."""
    item_edits: list[Edit] = []
    if not _IN_LIST.search(match["between"] + (match.groupdict().get("quote") or "")):
        return item_edits
    at = match.end()
    while (item := _ITEM.match(text, at)) and is_random(item["value"]) and len(item_edits) < 1_000:
        item_edits.append((item.start("value"), item.end("value"), "[redacted]"))
        at = item.end()
    return item_edits


def _names_a_test(match: re.Match[str]) -> bool:
    """Return whether a match is part of a test name in a test report: `--- PASS: TestAuth/token=expired_1 (0.00s)`."""
    goes_on = not any(char.isspace() for char in match[0])
    return goes_on and is_in_test_name(match.string, match.start())


def _name_places(text: str) -> list[int]:
    lower = text.replace("İ", "i").lower()  # the only character whose lower case has two characters
    places: set[int] = set()
    for literal in _LITERALS:
        places.update(_places(lower, literal))
    return sorted(places)


def _places(lower: str, literal: str) -> Iterator[int]:
    """Yield where a name may begin. The name of a key includes the word before it: `api_key`."""
    at = lower.find(literal)
    while at >= 0:
        if literal != "key":
            yield at
        elif before := _BEFORE_KEY.search(lower, max(0, at - 12), at):
            yield before.start()
        elif lower[at - 1 : at] in ("_", "-", ".") or lower[at - 1 : at].isalnum():
            yield at
        at = lower.find(literal, at + len(literal))


_BEFORE_KEY = re.compile(rf"(?:(?:{_KEY_KINDS})[_\-]?|api )\Z")


def _replace_assigned(match: re.Match[str]) -> str:
    """Return the replacement for a match of `_ASSIGNED`; "" if it is no secret. (Its value may then be a name.)"""
    value, name, between = match["quoted"] or match["bare"], match["name"], match["between"]
    if between.isspace() and not _may_follow(match):
        return ""
    alone = bool(match["quote"]) or _REST_OF_LINE.match(match.string, match.end())
    if "\n" in between and (_NEXT_LINE.match(value) or not alone):
        return ""
    if match["bare"] and ":" in between and _ANOTHER.match(value):
        return ""
    if between == ">" and not match.string.startswith("</", match.end()):
        return ""
    if (
        _is_test_result(match)
        or _is_sealed(match.string, match.start(), value)
        or (match["bare"] and _is_expression(match))
        or _PUBLIC.search(match.string, *_range_before(match))
    ):
        return ""
    env = name.isupper() and between == "="
    return f"{name}{between}{match['quote'] or ''}[redacted]" if _is_secret(value, name, env=env) else ""


def _is_sealed(text: str, at: int, value: str) -> bool:
    """Return whether a value is the ciphertext of a sealed secret, which may be public."""
    return len(value) > 80 and value.startswith("Ag") and "encryptedData" in text[max(0, at - 4_000) : at]


_ANOTHER = re.compile(r"[A-Za-z_][\w.\-]{0,64}=(?!=)\S")  # another assignment: `TokenFilter : token=valid`
_NEXT_LINE = re.compile(r"\w{1,64}[=:]")  # the value is empty: the next line is another assignment


# `pass` alone may also be a test result, a count of passed tests, or one of several passes over data.
_BARE_PASS = re.compile(r"[Pp]ass(?![a-z])|PASS(?![A-Za-z])")
_ABOUT_PASS = re.compile(
    r"(?i)[_\-]?(?:rates?|ratio|counts?|percent(?:age)?|thresholds?|total|through|over|by|results?|tests?|criteria|number|"
    r"num|index|no|manager|kind|stats?|info|desc(?:riptor)?|builder|encoder|pipeline|timings?)\Z"
)
_RUN = re.compile(
    r"(?i)(?:render|shadow|depth|light(?:ing)?|geometry|color|colour|compute|blit|post|pre|first|second|third|last|next|"
    r"one|two|three|single|multi|each|every|this|forward|backward|by|low|high|band|all|compiler|optimi[sz]er|analysis|"
    r"module|function|loop|lint|build|dry|test|[0-9])[_\- ]?\Z"
)
_KEY_PLACE = re.compile(r"(?:(?:\A|[\r\n]|\\n)[ \t+\-]{0,32}(?:[0-9]{1,6}[\u2192:|][ \t]{0,16})?(?:- )?|[{,]\s{0,4})\Z")
_TEST = re.compile(
    r"(?i)_{0,2}(?:tests?|spec|bench(?:mark)?|example|fuzz|case|suite)(?![a-z])|[\w.\-]{1,64}[/:]|(?-i:Test[A-Z])|[0-9]{1,16}\Z"
)


def _is_test_result(match: re.Match[str]) -> bool:
    """Return whether `pass` does not mean a password: `--- PASS: TestLogin (0.00s)`, `pass_rate = …`, `render_pass: …`.

    Alone and before a colon it means one only as a key: in quotes, before quotes, or if nothing follows its value.
    """
    text, name, between = match.string, match["name"], match["between"]
    if not _BARE_PASS.match(name):
        return False
    before = text[max(0, match.start() - 48) : match.start()]
    if _ABOUT_PASS.match(name, 4) or _RUN.search(before):
        return True
    if before[-1:].isalpha():  # `keystorePass`
        return False
    if before[-1:] in ("_", "-") or ":" not in between or "=" in between or between.lstrip("\\")[:1] in ("'", '"'):
        return False
    if name.isupper() or match["quote"]:
        return name.isupper()
    alone = _KEY_PLACE.search(before) and _REST_OF_LINE.match(text, match.end())
    return not alone or bool(_TEST.match(match["bare"]))


_REST_OF_LINE = re.compile(r"[ \t]{0,16}(?:[,}\r\n#]|\\n|\Z)")


# Unquoted code: access through `?.` or `::`, an address-of operator, another variable.
_EXPRESSION = re.compile(
    r"&|[*!]{0,2}(?:[A-Za-z_$][\w$]{0,64}(?:\?\.|!\.|::|\.)){1,16}+[A-Za-z_$][\w$]{0,64}[?!]?\Z(?<=[A-Za-z0-9_$?!])"
)
_URN = re.compile(r"\b[au]rn:[\w:.\-/]{0,96}\Z")
_CAMEL_CASE = re.compile(r"[A-Za-z][a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{1,2}\Z")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uff01-\uff60]")  # prose in scripts without spaces
_YAML_TAG = re.compile(r"![A-Za-z:]{2,24}\Z")
_PUBLIC = re.compile(
    r"(?i)(?:checksum/|public[_\-]?key|(?<![A-Za-z])(?:next|next[_\-]?page|page|continuation|request|cancellation|sync|resume|starting|clientrequest))[_\-]?\Z"
)
_CHAIN = re.compile(r"\?\.|!\.|::")
_DECLARED = re.compile(r"(?:\b(?:const|let|var|val|auto|mut)\s{1,4}|\b(?:self|this|cls)\.)[\w$]{0,48}\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$.]{0,64}\Z")
# The value is the name of an object: `existingSecret: shop-db-2`, `auth: login-v2 works`.
_NAMES_OBJECT = re.compile(r"(?i)(?:existing|image[_\-]?pull|pull|tls|external|sealed)[_\-]?\Z")
_SLUG = re.compile(r"[a-z]{2,24}(?:-[a-z]{1,24}){0,8}-?v?[0-9]{0,2}\Z")
_NAME_OF_OBJECT = re.compile(
    r"(?:[a-z]{2,12}-){0,2}(?:prod|production|staging|stage|dev|db|app|web|tls|cert|creds|server|cluster)(?:-[a-z]{2,12}){0,2}-[0-9]\Z"
)  # `secret: prod-db-2`
_SENTENCE_CONTINUES = re.compile(r"[ \t]{1,4}(?:[a-z(]|\.\.\.|- )")


def _range_before(match: re.Match[str]) -> tuple[int, int]:
    """Return the range that is searched for text before a name."""
    return max(0, match.start() - 64), match.start()


def _is_expression(match: re.Match[str]) -> bool:
    text, value, between = match.string, match["bare"], match["between"]
    if (
        value.startswith("&")
        or (_CHAIN.search(value) and _EXPRESSION.match(value))
        or CODE_EXPRESSION.match(value.lstrip("!*"))
    ):
        return True
    if _CAMEL_CASE.match(value) and text[match.end() : match.end() + 1] in (",", ";", ")"):
        return True
    if (
        _CJK.search(value)
        or _URN.search(text, max(0, match.start() - 100), match.start())
        or (_YAML_TAG.match(value) and text.startswith(" ", match.end()))
    ):
        return True
    if between.startswith(" ") and between.endswith("= ") and _IDENTIFIER.match(value):
        return bool(_DECLARED.search(text, *_range_before(match)))
    if ":" in between and "=" not in between and is_mostly_words(value) and _is_prose(match):
        return True
    if ":" in between and match["name"] == "secret" and _NAME_OF_OBJECT.match(value):
        return True
    if ":" in between and _SLUG.match(value):
        prose = between.endswith(" ") and _SENTENCE_CONTINUES.match(text, match.end())
        return bool(prose or _NAMES_OBJECT.search(text, *_range_before(match)))
    return False


_TYPE = re.compile(r"[A-Z][a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{0,2}\Z")
_PLACE_OF_KEY = re.compile(
    r"(?:(?:\A|[\r\n\"'`]|\\n)[ \t+\-]{0,32}(?:[0-9]{1,6}[\u2192:|][ \t]{0,16})?(?:- |>+ |[;/*]{1,2} )?|[{,(]\s{0,4}|::|export |env\.)[\w.\-]{0,48}[\"']?\Z"
)


def _is_prose(match: re.Match[str]) -> bool:
    """Return whether words after a colon are prose or a type: `invalid token: expected-identifier2`,
    `password: SecretStr2 }`."""
    text, value = match.string, match["bare"]
    if _TYPE.match(value) and text[match.end() : match.end() + 3].strip()[:1] in ("}", ",", ")", ";", "="):
        return True
    before = text[match.start() - 1 : match.start()]
    if before in ("'", '"', "`") and text.startswith(before, match.end()) and not _PASSWORD.match(match["name"]):
        return True
    return not _PLACE_OF_KEY.search(text, *_range_before(match)) or bool(_PROSE_CONTINUES.match(text, match.end()))


_PROSE_CONTINUES = re.compile(r"[ \t]{1,4}(?:[a-z0-9(]|\.\.\.)|, [a-z]{1,16}[ %]")


def _replace_env_line(match: re.Match[str]) -> str:
    """Return the replacement for `NAME=value` at the start of a line, as in `env` output and environment files."""
    text, name = match.string, match["name"]
    head = _LINE_HEAD.search(text, max(0, match.start() - 80), match.start()) if name.isupper() else None
    if head is None:
        return ""
    if match["quoted"]:
        value = match["quoted"]
        is_secret = not _SENTENCE.search(value) and _is_env_secret(value.replace(" ", ""), name, "")
        return f"{name}{match['between']}{match['quote']}[redacted]{match['quote']}" if is_secret else ""
    value, quote, rest = match["bare"].partition(head["quote"] or "\n")
    line = text[match.end() : match.end() + 512].partition("\n")[0]
    return f"{name}{match['between']}[redacted]{quote}{rest}" if _is_env_secret(value, name, line) else ""


def _is_env_secret(value: str, name: str, line: str) -> bool:
    """Return whether a value of an environment is a secret and not code that fetches one: it has no variable, and no
    bracket that is closed later or left open at the end."""
    if value[:1] in "<{[($" or value[-1:] in "([{," or _REFERS.search(value) or _DRIVE.match(value):
        return False
    bracket = re.search(r"[(\[{]", value)
    if bracket and re.search(r"[)\]}]", value[bracket.end() :] + line):
        return False
    return _is_secret(value.translate(_BRACKETS).replace(" ", ""), name, env=True)


_NOT_SECRET_KEY = re.compile(
    r"(?i)(?:public|publishable|cache|primary|foreign|sort|partition|idempotency|host|object|hash|map|hot|short|group|unique|index|row|"
    r"query|lookup|route|routing|record|node|linux|config|commit|dedup|translation|i18n|message|event|job|trace|build|"
    r"artifact|s3|blob|file|item|data|cursor|page|field|column|sub|pub|ssh|id|by|the|a|this|each|for|in|of|with|every)[_\-. ]?\Z"
)


def _has_weak_name(match: re.Match[str]) -> bool:
    return match["name"][:3].lower() == "key"


def _may_be_weak_secret(match: re.Match[str], value: str) -> bool:
    """Return whether the value of a weak name like `STRIPE_KEY` may be a secret: random, long, no hash and no id."""
    is_other = _NOT_SECRET_KEY.search(match.string, max(0, match.start() - 24), match.start())
    return not is_other and not is_hex_or_uuid(value) and is_random(value, least=16)


_MASKS = re.compile(r"(?i)\b(?:mask|redact|obfuscate|scrub|sanitize)_?\Z")  # `maskToken('…')`: an example
_PROSE = ("is", "was", "")


def _replace_loose(match: re.Match[str]) -> str:
    """Return the replacement for a value at some distance from its name: it must look random and, unless quoted, must
    not be a hash."""
    value, by = match["quoted"] or match["bare"], match["by"].strip()
    is_masked = _MASKS.search(match.string, *_range_before(match)) is not None
    if is_masked or match["between"].endswith(("ENC(", "ENC[")) or _is_sealed(match.string, match.start(), value):
        return ""
    if match["bare"] and (by == "," or is_hex_or_uuid(value) or value.endswith((":", ".")) or _ANOTHER.match(value)):
        return ""
    alphabets = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    if match["bare"] and by in _PROSE and alphabets < 3 and len(value) < 16:
        return ""
    if _has_weak_name(match) and not _may_be_weak_secret(match, value):
        return ""
    if _URN.search(match.string, max(0, match.start() - 100), match.start()) or _NAMES_OBJECT.search(
        match.string, *_range_before(match)
    ):
        return ""
    if (
        not is_random(value, quoted=bool(match["quote"]))
        or _is_test_result(match)
        or _is_about_secret(match["name"])
        or _PUBLIC.search(match.string, *_range_before(match))
    ):
        return ""
    return f"{match['name']}{match['between']}{match['quote'] or ''}[redacted]"


def _is_about_secret(name: str) -> bool:
    return bool(_ABOUT.search(name)) and not _PASSWORD.fullmatch(name)


def _is_secret(value: str, name: str, *, env: bool) -> bool:
    if is_label(value):
        return False
    if name[:3].lower() == "key":
        return False  # a weak name: see `_replace_loose`
    if _is_key_id(name, value):
        return False
    return not _is_about_secret(name) and looks_secret(value, password=bool(_PASSWORD.match(name)), env=env)


def _is_key_id(name: str, value: str) -> bool:
    """Return whether a value is the id or fingerprint of a key rather than the key: `user.signingkey=94B5…`."""
    return "key" in name.lower() and len(value) in (16, 40) and value.isupper() and is_hex_or_uuid(value)


def _replace_pair(match: re.Match[str]) -> str:
    name = match["name"]
    weak = _has_weak_name(match) and _may_be_weak_secret(match, match["value"])
    secret = weak or _is_secret(match["value"], name, env=name.isupper())
    return f"{name}{match['between']}[redacted]" if secret else ""


def _replace_block(match: re.Match[str]) -> str:
    first = match["value"].partition("\n")[0].strip()
    secret = _is_secret(first, match["name"], env=False)
    return f"{match['name']}{match['between']}[redacted]" if secret else ""


_NAMED_SHAPES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_LINE, _replace_env_line), (_BLOCK, _replace_block), (_TICKED, _replace_pair), (_PAIR, _replace_pair), (_NESTED, _replace_pair), (_ASSIGNED, _replace_assigned), (_LOOSE, _replace_loose),
)  # fmt: skip
_REFERS = re.compile(r"\$[({]|\$[A-Z_]{3}|`|\{\{|%\(|[\"'][\])]")
_SENTENCE = re.compile(r"\A[A-Z][a-z]+,? [a-z]|[.:?]\Z|: |, |(?: \S+){6}|\A[^0-9]*\Z")
_DRIVE = re.compile(r"[\"']?[A-Za-z]:\\")
_BRACKETS = dict.fromkeys(map(ord, "()[]{}<>$"))


def _may_follow(match: re.Match[str]) -> bool:
    """Return whether a value may follow its name after only a space: `--password hunter2…`, `with password '…'`."""
    if match["quote"]:
        return len(match["name"]) > len("pass") and bool(_PASSWORD.match(match["name"]))
    is_option = _OPTION.search(match.string, max(0, match.start() - 48), match.start())
    return bool(is_option) and not match["bare"].startswith("-")


_HEADER = re.compile(r"(?i)(?:proxy-)?authorization\Z")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|digest|negotiate|apikey)\s{1,4}(?P<word>\S{8,4096})\Z")
_COOKIE = re.compile(r"(?i)(?:set-)?cookie\Z")
_SESSION = re.compile(r"(?i)(?:[\w\-]{0,24}[_\-])?(?:sess(?:ion)?[_\-]?id|session|[jp]?h?p?sess?ionid|sid)\Z")
_PLAIN_KEY = re.compile(r"(?i)(?:primary|secondary)?key[0-9]?\Z")
_LONG_PAIR = re.compile(r"=[^;=\s$<{(]{16}")


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a JSON key is the name of a secret and its value looks like one."""
    if _HEADER.match(name):
        scheme = _SCHEME.match(value)
        return is_random(scheme["word"] if scheme else value, least=12)
    if _COOKIE.match(name):
        return _LONG_PAIR.search(value) is not None
    if _SESSION.match(name):
        return is_random(value, least=20) and not is_hex_or_uuid(value)
    if _PLAIN_KEY.match(name):
        return is_random(value, least=32) and not is_hex_or_uuid(value)
    match = _NAMED.search(name) or (_NAMED.search(name.rpartition("/")[0]) if "/" in name else None)
    if match is None:
        return False
    if _has_weak_name(match):
        return _may_be_weak_secret(match, value)
    return _is_secret(value, match[0], env=False)
