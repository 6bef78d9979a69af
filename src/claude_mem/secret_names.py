"""Finds values that their name gives away: `DB_PASSWORD=…`, `"clientSecret": "…"`, `the password is …`.

The names are found as literals, and only there the patterns are tried. A tight shape (`NAME=value`) asks little of its
value; a loose one (an argument after the name, a table, prose) takes only what looks as if a machine had made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from claude_mem.secret_values import CODE, is_random, is_spoken, is_uniform, looks_secret

Edit = tuple[int, int, str]  # begin, end, what comes in its place

# What a secret is called: `DB_PASSWORD`, `apiKey`, `token_v2`; not `tokenizer` or `author`. A key is named by what stands
# before it; other keys (`STRIPE_KEY`) are weak names: their values must look random.
_KEY_KINDS = (
    "api|app|access|account|private|priv|secret|signing|signature|encryption|decryption|validation|crypt|master|shared|preshared|"
    "service|consumer|deploy|client|storage|admin|session|auth|jwt|hmac"
)
_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|(?:(?<![A-Za-z])|(?<=store)|(?<=key)|(?<=ssh)|(?<=require))pass|pwd|psk|(?<=_)salt|secret|token|credentials?|auth(?:tok)?|"
    rf"(?:{_KEY_KINDS})[_\-]?key|api key|(?<=[A-Za-z0-9][_\-.])key|(?-i:(?<=[a-z0-9])Key))"
)
_REST = r"(?:s|[0-9]{1,4}|[_\-][A-Za-z0-9_\-]{0,32}|(?-i:[A-Z][A-Za-z0-9]{0,32}))?(?![A-Za-z0-9])"
# … and what is only about it: `token_type`, `secretName`, `password-file`.
_ABOUT = re.compile(
    r"(?i)[_\-]?(?:name|type|id|path|file|dir|url|uri|host|endpoint|length|len|size|field|column|label|hint|input|ttl|expiry|"
    r"expires(?:[_\-]?(?:in|at))?|count|limit|ref|arn|prefix|suffix|policy|rules?|regex|pattern|version|algorithm|algo|alias|"
    r"stdin|env|var|method|provider|store|manager|mode|scheme|scopes?|class|error|errors|usage|cost|budget|status|state|message|msg|text|prompt|"
    r"help|placeholder|title|description|header|kind|format|encoding|hash(?:er)?s?|timeout|interval|days|hours|minutes|seconds|age|attempts|retries|expiration|stages|service|server|proxy|controller|handler|module|worker)\Z"
)

# NAME=value where the name says that it is a secret and the value looks like one, not like code that fetches it.
# Quotes may be escaped: text of text. Between quotes any sign may stand. After a space alone: see `_assigned`. Some
# programs show a space as `\u00b7`.
_ASSIGNED = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>\\{0,4}[\"']?\s{0,4}(?:=>|=|:\s{0,4}&?(?:'static\s)?[A-Za-z_][\w.\[\]]{0,40}\s{0,4}=|:(?!:))[\s\u00b7]{0,4}(?P<slash>\\{1,4})?|"
    r"(?<=[\w\-])>|\s{1,4})"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:[^\s\"'\\\x00-\x1f]|(?(slash)(?!)|\\[\"'/])){6,512})|"
    r"(?P<bare>[^\s\"',;(){}\[\]<>$\\\x00-\x1f\u00b7]{6,512}+(?![(\[])))"
)
# An environment as it is printed: to the end of the line, since any sign may stand in it; between quotes also spaces.
_LINE = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})(?P<between>=| ?:= ?)"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\\\x00-\x1f]{6,256})(?P=quote)|"
    r"(?P<bare>(?-i:[a-z]{4}(?: [a-z]{4}){3}(?=\s|\Z))|(?:[^\s\\;,\x00-\x1f]|,(?!\w{1,64}=)|\\(?![nrt\"'\\])){6,512}+))"
)
_LINE_HEAD = re.compile(
    r"(?:\A|(?P<quote>[\"'`])|[\r\n]|\\n)[ \t+\-]{0,16}"
    r"(?:(?:export|set|setx|declare -x|ENV|ARG|-e|--env)[ \t]{1,4}|\$env:)?[A-Z0-9_]{0,48}\Z"
)
# A block of YAML: `token: |`, and the value in the lines below.
_BLOCK = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>[\"']?:[ \t]{0,4}[|>][+\-0-9]{0,2}[ \t]{0,4}\r?\n[+\-]?[ \t]{1,32}+)"
    r"(?P<value>[^\s\"'\\<>\x00-\x1f:]{8,512}+"
    r"(?:\r?\n[+\-]?[ \t]{1,32}+[A-Za-z0-9+/=_\-.]{16,512}+(?![^\r\n])){0,64}+)(?=\s|\Z)"
)
_TICKED = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})(?P<between>(?::\s{{0,4}}string)?\s{{0,4}}=\s{{0,4}}`)(?P<value>[^\s`$\\]{{8,512}}+)(?=`)"
)
# A name here and its value there: `- name: DB_PASSWORD`, and in the next line `value: …`.
_PAIR = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>\\{0,4}[\"']?\s{0,4}+[,;]?\s{0,64}+\\{0,4}[\"']?(?:parameter)?value\\{0,4}[\"']?"
    r"\s{0,4}[:=]\s{0,4}(?:[|>][+\-]?\s{1,64})?\\{0,4}[\"']?)(?P<value>[^\s\"'\\<>\x00-\x1f]{6,512})"
)
# A name outside, and its value inside: `"db_password": {"sensitive": true, "value": "…"}`, `variable "x" { default = "…" }`.
_NESTED = re.compile(
    rf"(?i)(?P<name>{_NAMES}{_REST})"
    r"(?P<between>\\{0,4}[\"']\s{0,4}:?\s{0,4}\{(?:[^{}\x00]{0,200}?[\s\"'n{])??(?:value|default|plaintext|data)\\{0,4}[\"']?\s{0,8}[:=]\s{0,4}\\{0,4}[\"'])"
    r"(?P<value>[^\s\"'\\<>\x00-\x1f]{6,512})"
)
# A name, and its value some steps away: an argument, a default, a wrapper, a cell of a table, prose.
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


# --- what is named a secret ------------------------------------------------------------------------------------------


def edits(text: str) -> list[Edit]:
    """What to put in the place of values that their name gives away. The names are found as literals, and only there
    the patterns are tried: much faster than to search with them."""
    places = _name_places(text)
    found = table_edits(text, places)
    position = 0
    for at in places:
        for pattern, decide in _NAMED_SHAPES if at >= position else ():
            if (match := pattern.match(text, at)) and (replaced := decide(match)) and not _names_a_test(match):
                found.append((at, match.end(), replaced))
                found += _more_items(text, match)
                position = found[-1][1]
                break
    return sorted(found)


_CELLS = ("|", "\t", ",", ";")
_MOST_LINE, _MOST_ROWS = 300, 200


def table_edits(text: str, places: list[int]) -> list[Edit]:
    """What to put in the place of values in a table, one of whose columns is named as a secret."""
    found: list[Edit] = []
    after = 0
    for at in places:
        begin, end = _line_at(text, at) if at >= after else (0, 0)
        for sign in _CELLS if end else ():
            count = text.count(sign, begin, end)
            if not count or text.count(sign, end, text.find("\n", end + 1, end + 1 + 4 * _MOST_LINE)) != count:
                continue
            cells = text[begin:end].split(sign)
            columns = {number for number, cell in enumerate(cells) if len(cells) > 1 and _heads_column(cell)}
            if columns:
                found += _column_edits(text, end, sign, len(cells), columns)
                break
        after = max(after, end)
    return found


def _line_at(text: str, at: int) -> tuple[int, int]:
    """Where a line begins and ends; nowhere if it is too long to be the head of a table."""
    begin, end = text.rfind("\n", max(0, at - _MOST_LINE), at) + 1, text.find("\n", at, at + _MOST_LINE)
    return (begin, end) if end > 0 and (begin > 0 or at < _MOST_LINE) else (0, 0)


def _heads_column(cell: str) -> bool:
    name = cell.strip(" \t\r*`\"'")
    match = _COLUMN.search(name) if len(name) <= 40 else None
    return match is not None and not _is_weak(match) and not _is_about(match["name"])


def _column_edits(text: str, end: int, sign: str, count: int, columns: set[int]) -> Iterator[Edit]:
    for _ in range(_MOST_ROWS):
        begin, end = end + 1, text.find("\n", end + 1, end + 1 + 4 * _MOST_LINE)
        end = end if end >= 0 else min(len(text), begin + 4 * _MOST_LINE)
        cells = text[begin:end].split(sign)
        if len(cells) != count:
            return
        for number, cell in enumerate(cells):
            value = cell.strip(" \t\r*`\"'")
            if number in columns and is_random(value):
                start = begin + sum(map(len, cells[:number])) + number + cell.index(value)
                yield start, start + len(value), "[redacted]"


# A list goes on with its next item: `["…", "…"]`, or a line that begins with `- `.
_ITEM = re.compile(
    r"\\{0,4}[\"'`]?\s{0,4}(?:,\s{0,32}|\n[ \t+]{0,32}- )\\{0,4}[\"'`]?(?P<value>[^\s\"'`,;\[\](){}<>\\\x00-\x1f]{8,512})"
)
_IN_LIST = re.compile(r"[\[({]\s{0,32}\\{0,4}[\"'`]?\Z|\n[ \t+]{0,32}- [\"']?\Z")


def _more_items(text: str, match: re.Match[str]) -> list[Edit]:
    found: list[Edit] = []
    if not _IN_LIST.search(match["between"] + (match.groupdict().get("quote") or "")):
        return found
    at = match.end()
    while (item := _ITEM.match(text, at)) and is_random(item["value"]) and len(found) < 1_000:
        found.append((item.start("value"), item.end("value"), "[redacted]"))
        at = item.end()
    return found


_TEST_LINE = re.compile(
    r"(?:\A|[\n\"']|\\n)[ \t+\-]{0,32}(?:=== [A-Z]{3,5} {1,4}|--- [A-Z]{4,5}: |test )[^\s\"']{1,256}\Z|<test[a-z]{0,8} name=[\"'][^\"'\n]{0,128}\Z"
)


def _names_a_test(match: re.Match[str]) -> bool:
    """Whether it stands in the name of a test that a runner reports: `--- PASS: TestAuth/token=expired_1 (0.00s)`."""
    goes_on = not any(char.isspace() for char in match[0])
    return goes_on and _TEST_LINE.search(match.string, max(0, match.start() - 320), match.start()) is not None


def _name_places(text: str) -> list[int]:
    lower = text.replace("İ", "i").lower()  # the one character that becomes two
    places: set[int] = set()
    for literal in _LITERALS:
        places.update(_places(lower, literal))
    return sorted(places)


def _places(lower: str, literal: str) -> Iterator[int]:
    """Where a name may begin. A key is named by what stands before: `api_key`."""
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


def _assigned(match: re.Match[str]) -> str:
    """What to put in its place; nothing if it is no secret. (Then its value may be the name of one.)"""
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
    if _is_result(match) or (match["bare"] and _is_expression(match)) or _PUBLIC.search(match.string, *_near(match)):
        return ""
    env = name.isupper() and between == "="
    return f"{name}{between}{match['quote'] or ''}[redacted]" if _is_secret(value, name, env=env) else ""


_ANOTHER = re.compile(r"[A-Za-z_][\w.\-]{0,64}=(?!=)\S")  # a name of its own: `TokenFilter : token=valid`
_NEXT_LINE = re.compile(r"\w{1,64}[=:]")  # nothing was assigned: what follows is the next name


# `pass` alone is also what a test did, how many did, and one run of several over something.
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


def _is_result(match: re.Match[str]) -> bool:
    """Whether `pass` is no password here: `--- PASS: TestLogin (0.00s)`, `pass_rate = …`, `render_pass: …`.

    Alone and before a colon it names one only as a key: in quotes, before quotes, or with nothing after its value.
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


# Without quotes, code: what is fetched through `?.` or `::`, an address, what another name holds.
_EXPRESSION = re.compile(
    r"&|[*!]{0,2}(?:[A-Za-z_$][\w$]{0,64}(?:\?\.|!\.|::|\.)){1,16}+[A-Za-z_$][\w$]{0,64}[?!]?\Z(?<=[A-Za-z0-9_$?!])"
)
_URN = re.compile(r"\b[au]rn:[\w:.\-/]{0,96}\Z")
_CAMEL_CASE = re.compile(r"[A-Za-z][a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{1,2}\Z")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uff01-\uff60]")  # prose, without spaces
_YAML_TAG = re.compile(r"![A-Za-z:]{2,24}\Z")
_PUBLIC = re.compile(r"(?i)public[_\-]?key[_\-]?\Z")
_CHAIN = re.compile(r"\?\.|!\.|::")
_DECLARED = re.compile(r"(?:\b(?:const|let|var|val|auto|mut)\s{1,4}|\b(?:self|this|cls)\.)[\w$]{0,48}\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$.]{0,64}\Z")
# The name of something: `existingSecret: shop-db-2`, `auth: login-v2 works`.
_NAMED_ONE = re.compile(r"(?i)(?:existing|image[_\-]?pull|pull|tls|external|sealed)[_\-]?\Z")
_SLUG = re.compile(r"[a-z]{2,24}(?:-[a-z]{1,24}){0,8}-?v?[0-9]{0,2}\Z")
_GOES_ON = re.compile(r"[ \t]{1,4}(?:[a-z(]|\.\.\.|- )")


def _near(match: re.Match[str]) -> tuple[int, int]:
    """Where to look for what stands before a name."""
    return max(0, match.start() - 64), match.start()


def _is_expression(match: re.Match[str]) -> bool:
    text, value, between = match.string, match["bare"], match["between"]
    if value.startswith("&") or (_CHAIN.search(value) and _EXPRESSION.match(value)) or CODE.match(value.lstrip("!*")):
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
        return bool(_DECLARED.search(text, *_near(match)))
    if ":" in between and "=" not in between and is_spoken(value) and _is_prose(match):
        return True
    if ":" in between and _SLUG.match(value):
        prose = between.endswith(" ") and _GOES_ON.match(text, match.end())
        return bool(prose or _NAMED_ONE.search(text, *_near(match)))
    return False


_TYPE = re.compile(r"[A-Z][a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{0,2}\Z")
_PLACE_OF_KEY = re.compile(
    r"(?:(?:\A|[\r\n\"'`]|\\n)[ \t+\-]{0,32}(?:[0-9]{1,6}[\u2192:|][ \t]{0,16})?(?:- |>+ |[;/*]{1,2} )?|[{,(]\s{0,4}|::|export |env\.)[\w.\-]{0,48}[\"']?\Z"
)


def _is_prose(match: re.Match[str]) -> bool:
    """Whether words after a colon are prose, or a type: `invalid token: expected-identifier2`, `password: SecretStr2 }`."""
    text, value = match.string, match["bare"]
    if _TYPE.match(value) and text[match.end() : match.end() + 3].strip()[:1] in ("}", ",", ")", ";", "="):
        return True
    before = text[match.start() - 1 : match.start()]
    if before in ("'", '"', "`") and text.startswith(before, match.end()) and not _PASSWORD.match(match["name"]):
        return True
    return not _PLACE_OF_KEY.search(text, *_near(match)) or bool(_SPEAKS_ON.match(text, match.end()))


_SPEAKS_ON = re.compile(r"[ \t]{1,4}(?:[a-z0-9(]|\.\.\.)|, [a-z]{1,16}[ %]")


def _in_line(match: re.Match[str]) -> str:
    """Of `NAME=value` where a line begins, as `env` prints it and files of an environment have it."""
    text, name = match.string, match["name"]
    head = _LINE_HEAD.search(text, max(0, match.start() - 80), match.start()) if name.isupper() else None
    if head is None:
        return ""
    if match["quoted"]:
        value = match["quoted"]
        is_secret = not _SENTENCE.search(value) and _is_odd(value.replace(" ", ""), name, "")
        return f"{name}{match['between']}{match['quote']}[redacted]{match['quote']}" if is_secret else ""
    value, quote, rest = match["bare"].partition(head["quote"] or "\n")
    line = text[match.end() : match.end() + 512].partition("\n")[0]
    return f"{name}{match['between']}[redacted]{quote}{rest}" if _is_odd(value, name, line) else ""


def _is_odd(value: str, name: str, line: str) -> bool:
    """No code that fetches it: no variable, and no bracket that is closed again or left open at the end."""
    if value[:1] in "<{[($" or value[-1:] in "([{," or _REFERS.search(value) or _DRIVE.match(value):
        return False
    opened = re.search(r"[(\[{]", value)
    if opened and re.search(r"[)\]}]", value[opened.end() :] + line):
        return False
    return _is_secret(value.translate(_BRACKETS).replace(" ", ""), name, env=True)


_NOT_SECRET_KEY = re.compile(
    r"(?i)(?:public|cache|primary|foreign|sort|partition|idempotency|host|object|hash|map|hot|short|group|unique|index|row|"
    r"query|lookup|route|routing|record|node|linux|config|commit|dedup|translation|i18n|message|event|job|trace|build|"
    r"artifact|s3|blob|file|item|data|cursor|page|field|column|sub|pub|ssh|id|by|the|a|this|each|for|in|of|with|every)[_\-. ]?\Z"
)


def _is_weak(match: re.Match[str]) -> bool:
    return match["name"][:3].lower() == "key"


def _may_be_weak(match: re.Match[str], value: str) -> bool:
    """Whether a value may be a secret after a name like `STRIPE_KEY`: random, long, no hash and no id."""
    is_other = _NOT_SECRET_KEY.search(match.string, max(0, match.start() - 24), match.start())
    return not is_other and not is_uniform(value) and is_random(value, least=16)


_LOOKS_TYPED = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*[0-9]{0,2}\Z")
_PROSE = ("is", "was", "")


def _loosely(match: re.Match[str]) -> str:
    """Of a value some steps away from its name: only what looks random, and without quotes only what is no hash."""
    value, by = match["quoted"] or match["bare"], match["by"].strip()
    if match["bare"] and (by == "," or is_uniform(value) or value.endswith((":", ".")) or _ANOTHER.match(value)):
        return ""
    alphabets = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    if match["bare"] and by in _PROSE and alphabets < 3 and len(value) < 16:
        return ""
    if _is_weak(match) and not _may_be_weak(match, value):
        return ""
    if _URN.search(match.string, max(0, match.start() - 100), match.start()) or _NAMED_ONE.search(
        match.string, *_near(match)
    ):
        return ""
    if (
        not is_random(value, quoted=bool(match["quote"]))
        or _is_result(match)
        or _is_about(match["name"])
        or _PUBLIC.search(match.string, *_near(match))
    ):
        return ""
    return f"{match['name']}{match['between']}{match['quote'] or ''}[redacted]"


def _is_about(name: str) -> bool:
    return bool(_ABOUT.search(name)) and not _PASSWORD.fullmatch(name)


_LABEL = re.compile(r"(?i)pass(?:word)?|secret|token|auth|key|jwt|cred|login|expected|missing|required")


def _is_label(value: str) -> bool:
    """Whether a value is the name of something: words, one of which is about secrets (`x-auth-token-2`)."""
    return bool(_LABEL.search(value)) and is_spoken(value)


def _is_secret(value: str, name: str, *, env: bool) -> bool:
    if _is_label(value):
        return False
    if name[:3].lower() == "key":
        return False  # a weak name: see `_loosely`
    return not _is_about(name) and looks_secret(value, password=bool(_PASSWORD.match(name)), env=env)


def _paired(match: re.Match[str]) -> str:
    name = match["name"]
    weak = _is_weak(match) and _may_be_weak(match, match["value"])
    secret = weak or _is_secret(match["value"], name, env=name.isupper())
    return f"{name}{match['between']}[redacted]" if secret else ""


def _in_block(match: re.Match[str]) -> str:
    first = match["value"].partition("\n")[0].strip()
    secret = _is_secret(first, match["name"], env=False)
    return f"{match['name']}{match['between']}[redacted]" if secret else ""


_NAMED_SHAPES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_LINE, _in_line), (_BLOCK, _in_block), (_TICKED, _paired), (_PAIR, _paired), (_NESTED, _paired), (_ASSIGNED, _assigned), (_LOOSE, _loosely),
)  # fmt: skip
_REFERS = re.compile(r"\$[({]|\$[A-Z_]{3}|`|\{\{|%\(|[\"'][\])]")
_SENTENCE = re.compile(r"\A[A-Z][a-z]+,? [a-z]|[.:?]\Z|: |, |(?: \S+){6}|\A[^0-9]*\Z")
_DRIVE = re.compile(r"[\"']?[A-Za-z]:\\")
_BRACKETS = dict.fromkeys(map(ord, "()[]{}<>$"))


def _may_follow(match: re.Match[str]) -> bool:
    """After nothing but a space: `--password hunter2…`, `with password 'hunter2…'`."""
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


def names_secret(name: str, value: str) -> bool:
    """Whether a key of JSON says that its value is a secret, and the value looks like one."""
    if _HEADER.match(name):
        scheme = _SCHEME.match(value)
        return is_random(scheme["word"] if scheme else value, least=12)
    if _COOKIE.match(name):
        return _LONG_PAIR.search(value) is not None
    if _SESSION.match(name):
        return is_random(value, least=20) and not is_uniform(value)
    if _PLAIN_KEY.match(name):
        return is_random(value, least=32) and not is_uniform(value)
    match = _NAMED.search(name) or (_NAMED.search(name.rpartition("/")[0]) if "/" in name else None)
    if match is None:
        return False
    if _is_weak(match):
        return _may_be_weak(match, value)
    return _is_secret(value, match[0], env=False)
