"""Passwords that people choose: words, which only their place tells from other words (`password: "Elbe_Tunnel"`).

A value counts here only in a place where a password is expected: bound to an unmistakable name (`password`, `Kennwort`,
`mot de passe`, `пароль`), in quotes or as the whole value of a setting, or in a sentence that states it. Labels, types,
messages, references and the dummies of tests stay. Every search starts at a noun, and every repeat is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from claude_mem.privacy.secret_rules import (
    CODE_EXPRESSION,
    RULES_FILE,
    TRIVIAL_VALUES,
    LiteralIndex,
    Literals,
    is_hex_or_uuid,
    is_not_secret,
    is_placeholder,
    without_terms,
)

Edit = tuple[int, int, str]  # start, end, replacement

_COMMON = frozenset(RULES_FILE["words"]["not_chosen"].split())

# --- values ----------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]{1,64}")
_WORDS_OF_NAME = re.compile(r"[A-ZÀ-ÞА-Я]?[a-zß-ÿа-яё]{1,48}|[A-ZÀ-ÞА-Я]{1,48}")
_ABOUT = re.compile(
    r"(?i)password|passwd|passwort|passphrase|passcode|pass(?![a-z0-9])|secret|token|credential|kennwort|contrase|парол|schema|schlüssel|clave|geheim|"
    r"(?<![a-z])(?:auth|login|key|pw|pwd)(?![a-z])"
)
_NEVER = re.compile(
    r"[$<{%\[|#@(*=./~\-]|HTTP/[0-9]|\w{1,24}\(|[a-z][a-z0-9+.\-]{1,16}://|[A-Za-z]:\\|\*{3}|&[a-z#]|(?:os|env|process|config|settings|self|this|var|local|data|module|params?|req|request|form|user|args?|opts?|options)\.|[^\n]{0,60}(?:\.\.\.|\u2026|[{}()\[\]<>]|::|->|\?\.)"
)
_FILE = re.compile(r"(?:[\w.@\-]{1,64}[/\\]){2,16}|[\w.\-]{1,64}\.[a-z]{2,4}\Z(?<!\.[aeiou][a-z]{3})")
_MIXED = re.compile(r"[^\W\d_][0-9]|[0-9][^\W\d_]")
_IN_WORD = re.compile(r"[^\W\d_][0-9]{1,8}[^\W\d_]{2}")  # `gr8tWall`
_INNER_CAPITAL = re.compile(r"[a-zß-ÿа-яё][A-ZÀ-ÞА-Я]")
_SYMBOL = re.compile(r"[\w][!$%&*+?@#^~](?=\w)|[0-9][!?]")
_JOINED = re.compile(r"\w[\-.](?=\w)")
_UPPER_OR_DIGIT = re.compile(r"[A-ZÀ-ÞА-Я0-9]")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uff01-\uff60]")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z")
_LEAST, _MOST = 6, 64


def is_chosen(value: str) -> bool:
    """Return whether a person may have chosen a value as a password, where one is expected: it is no placeholder, label,
    type, message, reference, file or hash."""
    if not _LEAST <= len(value) <= _MOST or _NEVER.match(value) or _ABOUT.search(value) or _CJK.search(value):
        return False
    if any(map(str.isspace, value)) or len(set(value)) < 4 or value.lower() in TRIVIAL_VALUES:
        return False
    words = [word.lower() for word in _WORDS_OF_NAME.findall(value)]
    if not words or "".join(words) in _COMMON or all(word in _COMMON for word in words):
        return False
    if not _IN_WORD.search(value) and (words[0] in _COMMON or words[-1] in _COMMON):
        return False
    if is_placeholder(value) or is_not_secret(value) or is_hex_or_uuid(value) or _CONSTANT.match(value):
        return False
    return not _FILE.match(value) and not (CODE_EXPRESSION.match(value) and not _is_dotted_name(value))


def _is_dotted_name(value: str) -> bool:
    """Return whether a value has the form of words with dots, one of them a noun: `Delfin.Pascal`, not `form.field`."""
    parts = value.split(".")
    is_name = value.replace(".", "").isalpha() or all(part.rstrip("0123456789").isalpha() for part in parts)
    is_name = is_name and (value[-1].isalpha() or len(parts) > 2 or all(part[0].isupper() for part in parts))
    return is_name and _UPPER_OR_DIGIT.search(value) is not None


def common_share(value: str) -> int:
    """Return how many quarters of the words in a value are types, states or labels."""
    words = [word.lower() for word in _WORDS_OF_NAME.findall(value)]
    return 4 * sum(word in _COMMON for word in words) // len(words) if words else 0


def is_structured(value: str) -> bool:
    """Return whether a value is no ordinary word of a sentence: it has digits, capitals or signs inside."""
    rest = without_terms(value)
    if rest != value and len(rest) < _LEAST:
        return False
    if _MIXED.search(rest) or _SYMBOL.search(rest) or _INNER_CAPITAL.search(rest) or "_" in rest.strip("_"):
        return True
    return _JOINED.search(rest) is not None and _UPPER_OR_DIGIT.search(rest[1:]) is not None


# --- nouns -----------------------------------------------------------------------------------------------------------

_ROOTS = LiteralIndex(
    [
        "pass",
        "pw",
        "kennwort",
        "contrase",
        "парол",
        "mdp",
        "shared",
        "senha",
        "wachtwoord",
        "parola",
        "psk",
        "hasło",
        "heslo",
        "salasana",
        "lösenord",
        "adgangskode",
        "şifre",
    ]
)
_NOUN = re.compile(
    r"(?i)(?:password|passwd|passphrase|passcode|passwort|passe|pass|pwd|pw|kennwort|contrase[ñn]a|пароль|пароля|паролем|"
    r"mdp|senha|wachtwoord|parola|psk|hasło|heslo|salasana|lösenord|adgangskode|şifre|(?:pre-?)?shared[_\-]?(?:secret|key))[0-9]{0,2}(?![^\W\d_])"
)
_LAST_NOUN = re.compile(rf"({_NOUN.pattern.removeprefix('(?i)')})\Z", re.IGNORECASE)
_SHORT = frozenset({"pass", "pw", "mdp", "psk"})
_MOT = re.compile(r"(?i)mot[ _\-]?de[ _\-]?\Z")
# `pass` and `pw` alone also mean other things: the neighbourhood must speak of a login.
_LOGIN = re.compile(
    r"(?i)user|usr|login|account|admin|mail|smtp|dsn|database|wi-?fi|wlan|benutzer|konto|usuario|identifiant|логин|\bname\b"
)
_PREFIX = re.compile(
    r"(?i)(?:smtp|imap|mail|db|sql|mysql|pg|redis|mq|mqtt|ssh|sudo|become|root|admin|default|user|ftp|ldap|bind|vpn|wifi|rpc|proxy|key|store|trust|my|new|old|app|server|http|web|secret)_?\Z"
)
# The text is a test: its passwords are dummies.
_IN_TEST = re.compile(
    r"\bassert|\bexpect\(|\bdescribe\(|\bit\(|def test_|@pytest|\b[Mm]ock|[Ff]ixture|func Test|#\[test\]|@Test\b|\bfake|\btest\(|"
    r"\bfactory\b|/tests?/|_test\.|\.test\.|\.spec\."
)
_AROUND = 400


def word_edits(text: str, literals: Literals | None = None) -> Iterator[Edit]:
    """Yield edits that redact passwords which are words."""
    literals = literals if literals is not None and literals.text is text else Literals(text)
    edits: list[Edit] = []
    table_end = 0
    for noun in places(literals):
        edits += _edits_at(text, noun)
        if noun.start() >= table_end:  # no row is the header of another table
            table_end = _add_column(text, noun, edits)
    yield from sorted(edits)


def places(literals: Literals) -> Iterator[re.Match[str]]:
    """Yield the nouns of passwords in a text."""
    text = literals.text
    for root, first in literals.select_lower(_ROOTS):
        at = first
        while at >= 0:
            noun = _NOUN.match(text, at)
            if noun and _is_noun(text, noun):
                yield noun
            at = literals.lower.find(root, at + len(root))


def _is_noun(text: str, noun: re.Match[str]) -> bool:
    word, before = noun[0].lower().rstrip("0123456789"), text[max(0, noun.start() - 16) : noun.start()]
    if word == "passe":
        return _MOT.search(before) is not None
    if word not in _SHORT:
        return True
    if before[-1:].isalpha() and not (before[-1:].islower() and noun[0][0].isupper()):
        return before[-1:].isupper() and before[-3:] in ("SSH", "_DB", "SQL")
    if word not in ("pass", "mdp"):
        return True
    if noun[0].isupper() and not (before[-1:].isalpha() or before[-1:] == "_" or text.startswith("=", noun.end())):
        return False  # the result of a test
    around = text[max(0, noun.start() - 120) : noun.end() + 120]
    return _PREFIX.search(before) is not None or (before[-1:] != "_" and _LOGIN.search(around) is not None)


def is_named_password(name: str, value: str) -> bool:
    """Return whether a JSON key names a password and its value may be one that a person chose."""
    noun = _LAST_NOUN.search(name)
    if noun is None or noun[1].lower().rstrip("0123456789") in (*_SHORT, "passe"):
        return False
    return is_chosen(value) or is_phrase(value)


# --- places ----------------------------------------------------------------------------------------------------------

_Q = r"(?:\\{0,4}[\"'`]|&(?:quot|apos|#34|#39);|[\u00ab\u201e\u201c]\s?)"
_END = r"(?=\\{0,4}[\"'`]|&(?:quot|apos|#34|#39);|\s?[\u00bb\u201d\u201c])"
_QUOTED = re.compile(
    rf"(?:{_Q}?[\])]{{0,2}}(?: As String|: &?[Ss]tr(?:ing)?)?\s{{0,4}}(?:=>|:=|->|=|:(?!:))\s{{0,32}}"
    rf"(?:(?:string|bytes)\([0-9]{{1,4}}\) )?(?P<bound>)|(?P<call>\()\s{{0,4}}|(?P<space>{_Q}? {{1,2}})|"
    rf"{_Q}\s{{0,4}},?\s{{0,16}}{_Q}?value{_Q}?[=:]\s{{0,4}}(?P<pair>)|{_Q},\s{{0,4}}(?P<listed>))"
    rf"(?:[NbrufLE@](?=[\"']))?{_Q}(?P<value>(?:(?!&(?:quot|apos|#3[49]);)[^\s\"'`\\\u00bb\u201d\u201c\x00-\x1f]){{6,64}}){_END}"
)
_BARE = re.compile(
    r"(?P<separator>[\"']?[ \t]{0,8}(?:=|:(?!:)|=>)[ \t]{0,8})(?P<value>[^\s\"'`,;(){}\[\]<>|&\\\x00-\x1f]{6,64})(?P<after>[ \t]{0,8}(?:[,}\];&\r\n]|\\n|#|//|\Z)?)"
)
_KEY = re.compile(r"(?:\A|\n|\\n)(?P<indent>[ \t+\-]{0,24})(?:- )?(?:export |ENV |ARG )?[\"']?[\w.\-]{0,48}\Z")
_FLOW = re.compile(
    r"(?:\A|\n|\\n)[ \t\-]{0,24}(?:[\w.\-]{1,40}: )?\{[^{}\n;()]{0,160}[,{] {0,2}[\w\-]{0,32}\Z|\bmap\[[^\]\n]{0,160}\Z"
)
_AFTER_USER = re.compile(
    r"(?i)\b(?:login|user(?:name)?|usuario|benutzer|identifiant|логин|e?-?mail)\s?[:=] ?[^\s,;(){}]{1,64}[ ,;/|]{1,8}\Z"
)
_NAME_OF_VARIABLE = re.compile(r"[A-Za-z_]{1,64}\Z")
_NAME_OF_TYPE = re.compile(r"[A-Z][A-Za-z]{1,64}\Z")
_SECTION = re.compile(r"(?:\A|\n)\[[\w.\- :\"]{1,48}\][ \t]{0,4}\r?\n")
_PAIRS = re.compile(
    r"(?:\A|[\s?&\"';,])(?:[\w.\-]{1,32}|User Id)=[^\s,;()\"']{1,64}[ &;,\n][\w.\-]{0,32}\Z|\s--set(?:-string)? [\w.\-]{0,48}\Z|\s-e [\w.]{0,48}\Z"
)
_OPTION_BARE = re.compile(r"[= ][\"']?(?P<value>[^\s\"'`,;(){}\[\]<>|&\\\x00-\x1f]{6,64})(?=[\"']?(?:[\s;&|]|\Z))")
_LONG_OPTION = re.compile(r"(?:\A|[\s\"'\[])--[\w\-]{0,32}\Z")
_USER_OPTION = re.compile(r"\s(?:--?(?:u|user|username)|--login|-U|-l)[ =]?\S")
_ELEMENT = re.compile(r"(?:[\"'][^<>\n]{0,60}(?P<attribute>))?>(?P<value>[^\s<>]{6,64})</")
_SETTING = re.compile(
    r"[ \t+\-]{0,24}(?:- )?[\w.\-\u00c0-\u04ff]{1,48} ?[:=] {0,4}(?P<value>[\"']?[^\s,;(){}<>|]{1,80})[ \t]{0,8}\Z"
)
_SETTER = re.compile(
    r"\b(?:define|[sS]et[eE]nv|putenv|setdefault|setProperty|put|set|append|add)\(\s{0,4}[\"'][\w.\-]{0,40}\Z"
)
_OPTION = re.compile(r"(?:\A|[\s(\[{,])[:\-]{1,2}[\w\-]{0,32}\Z")

_CODE_ENDS = (",", "{", "(", ";", ")", "}")
_TYPES = frozenset(
    {"string", "str", "int", "integer", "number", "bool", "boolean", "any", "text", "float", "object", "unknown"}
)

_LIGHT = r"(?:now|still|always|also|again|just|actually|currently|changed|jetzt|noch|immer|übrigens|aktuell|nun|einfach|toujours|encore|ahora|maintenant|теперь|today)"
_STATED = re.compile(
    rf"(?P<about>(?: (?:for|of|on|in|at|to|the|is|vom|von|für|fürs|zum|der|des|dem|im|de|du|del|do|da|dos|das|della|dello|di|van|voor|til|för|dla|para|pour|nueva|nouveau|changed|от|для|к|на|я)\b[^\n.;!?\"'`(){{}}=<>|:]{{0,60}}?)?)(?: (?P<copula>is|was|ist|war|lautet|est|es|era|è|é|jest|это|to|auf|на|en|a|in|par|por|con)(?: {_LIGHT}){{0,4}}|"
    rf"(?: {_LIGHT}){{0,3}}\s?(?P<arrow>[\u2192:]|->|=>)) {{1,2}}(?P<quote>{_Q})?(?P<value>[^\s\"'`,;()<>|\u00ab\u00bb\u201c\u201d]{{6,64}})(?![^\s\"'`,;()<>|\u00bb\u201c\u201d])"
)
_IS = frozenset({"is", "ist", "lautet", "est", "es", "è", "é", "jest", "это", None})
_CLAUSE_END = re.compile(r"[\"'`\u00bb\u201c\u201d]?\s{0,2}(?:[,;!)]|[.?](?!\w)|\r?\n|\n|\Z|\u2014|\()")
_LOWER_SNAKE = re.compile(r"[a-z]{1,24}(?:_[a-z0-9]{1,24}){1,8}\Z")
_DIRECT = re.compile(r" (?P<value>[^\s\"'`,;:()<>|{}=\[\]\\]{8,64})(?=[\s,.;)\"'\\]|\Z)")
_LOGIN_BEFORE = re.compile(
    r"(?i)(?:user(?:name)?|login|logged in|connected|benutzer|account|konto|usuario|utilisateur|identifiant|логин|zugangsdaten|zugang|admin)\b[^\n]{0,60}\Z"
)
_PHRASE_TO = re.compile(
    r"[^\n.;!?\"'`(){}=<>|]{0,40}?(?P<bound>\s?[:=]\s{0,2}|\s(?:is|ist|lautet|est|es|war|was|это)(?: now| jetzt| still)?)?\s"
    r"(?P<quote>[\"'`\u00ab\u201e])\s?(?P<value>[^\n\"'`\u00bb\u201c\u201d.:;?!(){}<>=$]{11,100}?)\s?(?=[\"'`\u00bb\u201c\u201d])"
)
# A passphrase in quotes or up to the end of the line: `"password": "…"`, `--passphrase '…'`, `RESTIC_PASSWORD=…`.
_PHRASE_BOUND = re.compile(
    r"(?:(?P<close>\\{0,4}[\"'])?\s{0,4}(?:=>|[:=])\s{0,4}|(?P<space> ))(?:\\{0,4}[\"'](?P<value>[^\"'\\\n]{11,100})\\{0,4}[\"']|"
    r"(?<=[=])(?:\[redacted\] )?(?P<bare>[^\W\d_][^\n\"'`=:;(){}<>$]{10,99})(?=\r?\n|\Z))"
)
_VALUE_TO_END = re.compile(r"(?P<value>[^\n]{11,100})")
_UPPER_NAME = re.compile(r"(?<=[ \t])[A-Z0-9_]{0,48}\Z")
_ENV_NAME = re.compile(r"(?:\A|\n)(?:export )?[A-Z0-9_]{0,48}\Z")
_ASKED = re.compile(r"(?i)(?:\A|\n)[^\n:]{0,40}\benter [^\n:]{0,40}\Z")
_TYPED = re.compile(r"[^\n:]{0,60}: (?P<value>[^\n:]{11,100})(?=\r?\n|\Z)")
_SENTENCE_WORDS = frozenset(RULES_FILE["words"]["of_sentences"].split())
_QUESTION = re.compile(
    r"[^\n?]{0,80}\?[ \t]{0,4}\r?\n(?P<value>[^\s\"'`,;:(){}\[\]<>|\\]{6,64})(?=\.?[ \t]{0,4}(?:\r?\n|\Z| \())"
)
_BEHIND = re.compile(
    r"(?i)(?P<quote>[\"'`\u00ab\u201e\u201c])\s?(?P<value>[^\s\"'`\u00ab\u00bb\u201c\u201d\u201e]{6,64})\s?[\"'`\u00bb\u201d\u201c] "
    r"(?:is|as|comme|als|como|ist|est|es|как)(?: [^\W\d_]{1,12}){0,3} (?:mot de )?\Z"
)
_CELL = re.compile(r"<t[dh](?: [^<>]{0,80})?>\s{0,8}(?P<value>[^<>]{0,200}?)\s{0,8}</t[dh]>")
_ROW = re.compile(r"</tr>\s{0,16}(?:<tbody>\s{0,16})?<tr[^<>]{0,80}>")
_MAX_ROWS, _MAX_HEADER = 200, 600
_AFTER_HEADER = (",", ";", "\t", "|", " ", "\n", "\r", '"', "")
_OF_LOGIN = re.compile(
    r"(?i)user|login|e?-?mail|host|account|name|benutzer|konto|usuario|identifiant|логин|device|client"
)
_ALIGNED = re.compile(r" {2,40}|\t{1,4}")


def _edits_at(text: str, noun: re.Match[str]) -> Iterator[Edit]:
    start, end = noun.span()
    ways = (_bound_phrase, _quoted, _bare, _option, _in_prose, _behind)
    match = next((match for way in ways if (match := way(text, noun))), None)
    if match is not None and not is_in_test(text, start, end):
        value = match["value"].rstrip(".,;:")
        yield match.start("value"), match.start("value") + len(value), "[redacted]"
    if text[end : end + 1] in (",", ")", '"', "`", " "):
        yield from _inserted(text, noun)


def _add_column(text: str, noun: re.Match[str], edits: list[Edit]) -> int:
    """Add the edits for the cells under the noun, if it is the header of a column, and return the end of the table."""
    if text.startswith(("</th>", "</td>"), noun.end()):
        return _add_html_column(text, noun.start(), edits)
    if text[noun.end() : noun.end() + 1] in _AFTER_HEADER:
        return _add_text_column(text, noun.start(), noun.end(), edits)
    return 0


def is_in_test(text: str, start: int, end: int) -> bool:
    """Return whether the neighbourhood of a place is a test, whose passwords are dummies."""
    return _IN_TEST.search(text, max(0, start - _AROUND), end + _AROUND) is not None


def _quoted(text: str, noun: re.Match[str]) -> re.Match[str] | None:
    """Return a literal that belongs to the noun: `password => 'x'`, `:password "x"`, `PASSWORD('x')`."""
    match = _QUOTED.match(text, noun.end())
    if match is None or not is_chosen(match["value"]):
        return None
    if match["bound"] is not None or match["pair"] is not None:
        return match
    before = max(0, noun.start() - 48), noun.start()
    if match["listed"] is not None:
        return match if _SETTER.search(text, *before) else None
    is_named = _OPTION.search(text, *before) or noun[0].isupper()
    if match["call"]:
        is_named = (
            is_named
            or text[noun.start() - 1 : noun.start()] == "."
            or text[: noun.start()].endswith(("set", "with", "set_"))
        )
    elif noun[0].lower() == "pass":
        return None
    return match if is_named or is_structured(match["value"]) else None


def _bare(text: str, noun: re.Match[str]) -> re.Match[str] | None:
    """Return the value of a setting without quotes: alone in its line, in a flow of pairs, or in a log."""
    match = _BARE.match(text, noun.end())
    if match is None or not is_chosen(match["value"].rstrip(".")):
        return None
    if _is_code_line(text, noun.start()):
        return None
    before = max(0, noun.start() - 180), noun.start()
    after = match["after"].strip(" \t")[:1]
    if ":" in match["separator"] and _FLOW.search(text, *before):
        return match if after in (",", "}", "]") or match["after"] else None
    is_pair = match["separator"] == "=" and (_PAIRS.search(text, *before) or _is_assignment(text, noun, match))
    if is_pair or _AFTER_USER.search(text, *before):
        return match if after not in (")", "}") and not (after == "," and text.startswith(" ", match.end())) else None
    ends = after in ("\n", "\r", "#") if after else match.end() == len(text)
    key = _KEY.search(text, *before) if ends else None
    return match if key and _is_value_of_setting(text, noun, match, key) else None


def _is_assignment(text: str, noun: re.Match[str], match: re.Match[str]) -> bool:
    """Return whether an argument of a command sets a variable to a value with a number: `deploy MAIL_PW=…`."""
    before = max(0, noun.start() - 60), noun.start()
    is_structured_value = any(map(str.isdigit, match["value"])) and is_structured(match["value"])
    return noun[0].isupper() and is_structured_value and _UPPER_NAME.search(text, *before) is not None


def _is_value_of_setting(text: str, noun: re.Match[str], match: re.Match[str], key: re.Match[str]) -> bool:
    """Return whether the value in a line `name: value` or `name=value` is a password and no name of a variable."""
    value, is_tight = match["value"], match["separator"] == "="
    if not _NAME_OF_VARIABLE.match(value):
        return is_structured(value) or noun[0].isupper() or is_tight or _is_among_settings(text, noun, match)
    if (noun[0].isupper() and key[0][-1:] == "_") or (is_tight and (noun[0].isupper() or not key["indent"])):
        return True
    if match["separator"].strip() == "=" and not is_tight:
        return _SECTION.search(text, max(0, noun.start() - _AROUND), noun.start()) is not None
    return _is_among_settings(text, noun, match)


def _is_code_line(text: str, at: int) -> bool:
    line = text[max(0, at - 300) : at].rpartition("\n")[2]
    if line.count("(") <= line.count(")"):
        return False
    argument = line.rpartition("(")[2]
    return argument.count('"') % 2 == 0 and argument.count("'") % 2 == 0  # else in a text of its own


def _option(text: str, noun: re.Match[str]) -> re.Match[str] | None:
    """Return the argument of an option, `--password=…`, or the text of an element, `<password>…`."""
    before = max(0, noun.start() - 160), noun.start()
    if _LONG_OPTION.search(text, *before):
        match = _OPTION_BARE.match(text, noun.end())
        if match is None or not is_chosen(match["value"]):
            return None
        line = text[max(0, match.start() - 160) : match.end() + 80]
        is_given = match[0].startswith("=") or is_structured(match["value"]) or _USER_OPTION.search(line)
        return match if is_given else None
    match = _ELEMENT.match(text, noun.end())
    if match is None or not is_chosen(match["value"]) or "<" not in text[slice(*before)]:
        return None
    is_label = match["attribute"] is not None and match["value"].isalpha() and match["value"][0].isupper()
    return None if is_label else match


_INSERTED = re.compile(r"(?i)\binsert (?:or \w{1,8} )?into [^\s(]{1,80} {0,2}\((?P<names>[^()]{0,300})\Z")
_VALUES = re.compile(r"(?i)[^()]{0,300}\)\s{0,8}values\s{0,8}\(")
_ITEM = re.compile(
    r"\s{0,8}(?:N?'(?P<value>[^'\n]{0,200})'|[^\s,()']{1,80}(?:\([^()\n]{0,80}\))?)\s{0,4}(?P<end>[,)])(?:\s{0,8},?\s{0,8}\()?"
)


def _inserted(text: str, noun: re.Match[str]) -> Iterator[Edit]:
    """Yield edits for the values of a column in `INSERT INTO users (name, password) VALUES ('jo', '…')`."""
    match = _INSERTED.search(text, max(0, noun.start() - 400), noun.start())
    values = _VALUES.match(text, noun.end()) if match else None
    if match is None or values is None or match["names"].rpartition(",")[2].strip(' "`\n'):
        return
    column, number, at = match["names"].count(","), 0, values.end()
    for _ in range(_MAX_ROWS * 8):
        item = _ITEM.match(text, at)
        if item is None:
            return
        if number == column and item["value"] and is_chosen(item["value"]):
            yield item.start("value"), item.end("value"), "[redacted]"
        number, at = (0 if item["end"] == ")" else number + 1), item.end()


def _is_among_settings(text: str, noun: re.Match[str], match: re.Match[str]) -> bool:
    """Return whether the line before or after is another setting, whose value is no type and no name of a variable."""
    begin = text.rfind("\n", max(0, noun.start() - 80), noun.start())
    before = text[max(0, begin - 160) : max(begin, 0)].rpartition("\n")[2]
    end = text.find("\n", match.end() - 1, match.end() + 80)
    after = text[end + 1 : end + 161].partition("\n")[0] if end >= 0 else ""
    if any(line.rstrip()[-1:] in _CODE_ENDS for line in (before, after) if line.strip()):
        return False
    is_type = _NAME_OF_TYPE.match(match["value"]) is not None
    return any(_is_setting(line, is_type=is_type) for line in (before, after))


def _is_setting(line: str, *, is_type: bool) -> bool:
    match = _SETTING.match(line)
    if match is None or _NEVER.match(match["value"]) or match["value"].lower() in _TYPES:
        return False
    return not (is_type and _NAME_OF_TYPE.match(match["value"]))


def _behind(text: str, noun: re.Match[str]) -> re.Match[str] | None:
    """Return the quoted value of which the sentence says behind it that it is the password."""
    match = _BEHIND.search(text, max(0, noun.start() - 140), noun.start())
    return match if match and is_chosen(match["value"]) and is_structured(match["value"]) else None


def _in_prose(text: str, noun: re.Match[str]) -> re.Match[str] | None:
    """Return the password that a sentence states: `the password of the NAS is …`, `login jo, password …`."""
    end = noun.end()
    match = _PHRASE_TO.match(text, end) if noun[0].lower() != "pass" else None
    if match and (match["bound"] or noun[0].lower() == "passphrase") and is_phrase(match["value"]):
        return match
    if (match := _QUESTION.match(text, end)) and _is_named_in_prose(match):
        return match
    if (match := _STATED.match(text, end)) and _is_stated(match, noun):
        return match
    match = _DIRECT.match(text, end)
    if match and _is_named_in_prose(match) and not _LOWER_SNAKE.match(match["value"].rstrip(".")):
        return match if _LOGIN_BEFORE.search(text, max(0, noun.start() - 100), noun.start()) else None
    return None


def _bound_phrase(text: str, noun: re.Match[str]) -> re.Match[str] | None:
    """Return the passphrase of several words that is the value of a setting or was typed at a prompt."""
    before = max(0, noun.start() - 80), noun.start()
    typed = _TYPED.match(text, noun.end())
    if typed and is_phrase(typed["value"]) and _ASKED.search(text, *before):
        return typed
    match = _PHRASE_BOUND.match(text, noun.end())
    if match is None or not is_phrase(match["value"] or match["bare"]):
        return None
    if match["bare"] is not None:
        is_bound = noun[0].isupper() and _ENV_NAME.search(text, *before) is not None
        return _VALUE_TO_END.match(text, match.start("bare")) if is_bound else None
    if match["space"] is not None and not _LONG_OPTION.search(text, *before):
        return None
    return match


def _is_stated(match: re.Match[str], noun: re.Match[str]) -> bool:
    value, is_definition = match["value"].rstrip(".,?!"), match["copula"] in _IS
    if noun[0].lower() == "pass" and not is_definition:
        return False  # the verb: `pass the name to …`
    ends = _CLAUSE_END.match(match.string, match.start("value") + len(value)) is not None
    if match["quote"] and is_definition and ends and is_chosen(value):
        return True
    return _is_named_in_prose(match) and (ends or not _LOWER_SNAKE.match(value))


def _is_named_in_prose(match: re.Match[str]) -> bool:
    value = match["value"].rstrip(".,?!")
    return is_structured(value) and is_chosen(value)


def is_phrase(value: str) -> bool:
    """Return whether words in quotes are a passphrase and no sentence or label."""
    words = value.split()
    plain = [word for word in words if word.replace("-", "").replace("'", "").rstrip(",").isalpha()]
    if not 3 <= len(words) <= 12 or len(plain) < len(words) - 1 or len(plain) < 2 or _ABOUT.search(value):
        return False
    if any((word not in plain and not word.isalnum()) or word[0] == "-" for word in words) or _NOUN.search(value):
        return False
    if sum(word.lower() in _COMMON for word in words) > 1:
        return False
    return not _SENTENCE_WORDS.intersection(map(str.lower, words))


def _add_html_column(text: str, at: int, edits: list[Edit]) -> int:
    """Add edits for the cells under a header that is the noun alone."""
    begin = text.rfind("<tr", max(0, at - 1_000), at)
    row_end = text.find("</tr>", at, at + 1_000)
    if begin < 0 or row_end < 0:
        return 0
    header = list(_CELL.finditer(text, begin, row_end))
    columns = [number for number, cell in enumerate(header) if _NOUN.fullmatch(cell["value"])]
    for _ in range(_MAX_ROWS):
        row = _ROW.match(text, row_end)
        next_end = text.find("</tr>", row.end(), row.end() + 4_000) if row else -1
        if row is None or next_end < 0:
            break
        cells, row_end = list(_CELL.finditer(text, row.end(), next_end)), next_end
        for number in columns:
            if number < len(cells) and is_chosen(cells[number]["value"]):
                edits.append((cells[number].start("value"), cells[number].end("value"), "[redacted]"))
    return row_end


def _add_text_column(text: str, at: int, noun_end: int, edits: list[Edit]) -> int:
    """Add edits for the cells under a header that is the noun alone, in a table that names users or hosts too."""
    begin = text.rfind("\n", max(0, at - _MAX_HEADER), at) + 1
    end = text.find("\n", noun_end, noun_end + _MAX_HEADER)
    if end < 0 or (begin == 0 and at >= _MAX_HEADER) or not _OF_LOGIN.search(text, begin, end):
        return 0
    for split in (",", ";", "\t", "|", _ALIGNED):
        cells = list(_cells(text[begin:end], split))
        number = next((number for number, (start, _) in enumerate(cells) if begin + start == at), None)
        if number is not None and len(cells) > 1 and begin + cells[number][1] == noun_end:
            return _add_cells(text, end, split, count=len(cells), number=number, edits=edits)
    return 0


def _cells(line: str, split: str | re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the cells of a row, without spaces and quotes."""
    at = 0
    for part in split.split(line) if isinstance(split, re.Pattern) else line.split(split):
        start = line.index(part, at)
        inner = part.strip(" \"'`*\r")
        inner_start = start + (part.index(inner) if inner else 0)
        yield inner_start, inner_start + len(inner)
        at = start + len(part)


def _add_cells(text: str, end: int, split: str | re.Pattern[str], *, count: int, number: int, edits: list[Edit]) -> int:
    """Add the edits for one column of the rows after `end`, and return the end of the last row."""
    for _ in range(_MAX_ROWS):
        begin, row_end = end + 1, text.find("\n", end + 1, end + 4 * _MAX_HEADER)
        row_end = row_end if row_end >= 0 else min(len(text), begin + 4 * _MAX_HEADER)
        cells = list(_cells(text[begin:row_end], split))
        if begin >= row_end or len(cells) != count:
            break
        start, stop = begin + cells[number][0], begin + cells[number][1]
        if is_chosen(text[start:stop]):
            edits.append((start, stop, "[redacted]"))
        end = row_end
    return end
