"""How sure it is, by the form of a value alone, that the value is a secret.

The grades are the scale of `[context]` in `data/secrets.toml`: `secret_context.py` adds the strength of the name and of the
position. Words, code, paths, addresses and names of things have grade 0, or half a grade if a person might choose such
a password; what is mostly words with a number has one or two, and random characters have three to five.
"""

from __future__ import annotations

import re

from claude_mem.privacy.secret_rules import (
    is_certainly_random,
    is_hex_or_uuid,
    is_label,
    is_mostly_words,
    is_not_secret,
    is_random,
    is_trivial,
    without_terms,
)

NOTHING, NAME, PASSPHRASE, PASSWORD, SYMBOLS, RANDOM, LONG_RANDOM, VERY_LONG_RANDOM = 0, 0.5, 1.5, 2, 2.5, 3, 4, 5

_VALUE = re.compile(r"[^\s\"'`,;(){}\[\]<>|\\\x00-\x1f\u2026]{6,4096}\Z")
_JOINT = re.compile(r"[_\-.+]")
_LETTER = re.compile(r"[A-Za-z]")
_SYMBOL = re.compile(r"[!#$%^&*?~+@]")
_NO_JOINTS = dict.fromkeys(map(ord, "_-./"))
# Names with a number: `shop-db-2`, `SecretStr2`, `login_v2`, `HTTP2Server`.
_IDENTIFIER = re.compile(
    r"[A-Za-z]{1,32}[0-9]?(?:[_\-./]{1,2}[A-Za-z0-9]{1,24}){1,8}(?:(?<![0-9])[?!])?\Z|"
    r"[A-Za-z]{1,48}[0-9][A-Za-z]{0,32}(?:(?<![0-9])[?!])?\Z|"
    r"[A-Z]?[a-z]{1,24}(?:[A-Z][a-z]{1,24}){1,8}[0-9]{2}\Z"
)
_SNAKE = re.compile(r"[a-z]{1,24}[0-9]{0,3}(?:[_\-](?:[a-z]{1,24}[0-9]{0,3}|[0-9]{1,4})){1,8}\Z")
_PASSPHRASE = re.compile(r"[a-z]{4,12}(?:-[a-z]{4,12}){1,6}-[0-9]{2,4}\Z")  # `velvet-harbor-62`
# The same in title case: `Velvet-Harbor-62`. If the joints differ, as in `Velvet_Harbor.62`, it is hardly a name.
_TITLE_PASSPHRASE = re.compile(
    r"(?:[A-Z][a-z]{2,14}[_\-.+]){2,5}[0-9]{2,4}\Z|[0-9]{2,4}(?:[_\-.+][A-Z][a-z]{2,14}){2,5}\Z"
)
_TITLE_NUMBER = re.compile(r"(?:[A-Z][a-z]{3,14}){2,4}[_\-.][0-9]{2,4}\Z")  # `VelvetHarbor_62`
_WORDS_AND_NUMBERS = re.compile(r"(?:[A-Z][a-z]{2,14}[0-9]{2,4}){2,4}\Z")  # `Velvet62Harbor41`
_GROUPS = re.compile(r"[a-z]{4}(?:-[a-z]{4}){3}\Z")  # the password of an application
_ENDS_IN_DIGITS = re.compile(r"[A-Za-z]{3,}[_\-]?[0-9]{2,8}[!#*$%.?]?\Z")
# Clearly something else: an address, a name that begins with a date, a regular expression, code, a path.
_OTHER = re.compile(
    r"[\w.+\-]{1,64}@[\w.\-]{1,64}\Z|(?:19|20)[0-9]{2}[\-./]?[01][0-9][\-./]?[0-3][0-9](?![0-9])|--|//|[&*]{1,2}[\w.]{1,256}\Z"
)
_CLASS = re.compile(r"a-z|A-Z|0-9")
_CODE = re.compile(r"\A[&*]|\A!(?=[a-z])|[?!]\.|::")
_PATH = re.compile(r"(?:[~.]{0,2}/)?(?:[\w.@+\-]{1,48}/){1,16}[\w.@+\-]{0,48}\Z")
_HASH_END = re.compile(
    r"[\-_.]?[A-Za-z0-9_]{1,24}(?:[\-_.][A-Za-z0-9]{1,24}){0,6}[\-_.](?:[0-9a-f]{16}|[0-9a-f]{32,64})\Z"
)
# Changes between letters and digits: words with a number have one or two.
_MIN_LETTERS, _MIN_CASE_CHANGES = 8, 4
_CASE_CHANGE = re.compile(r"(?=[a-z][A-Z]|[A-Z][a-z])")
_RUN = re.compile(r"[A-Za-z0-9]{8,512}")
_CHANGE = re.compile(r"(?=[A-Za-z][0-9]|[0-9][A-Za-z])")


def grade(value: str) -> float:
    """Return the grade of a value, from 0 (a word, code, an id) to 5 (long and random)."""
    if _VALUE.match(value) is None:
        return NOTHING
    plain = value.translate(_NO_JOINTS)
    if plain.isalpha():
        return _letters_grade(value) if len(value) >= _MIN_LETTERS and len(set(plain)) > 4 else NOTHING
    plain = without_terms(plain)
    if plain.isalpha() or _LETTER.search(plain) is None or len(set(plain)) < 4:
        return NOTHING
    if is_trivial(value) or is_not_secret(value):
        return NOTHING
    if is_hex_or_uuid(value.lstrip("#")) or _HASH_END.match(value):
        return SYMBOLS if len(value) >= 32 else _short_hex_grade(value)
    if _is_other(value):
        return NOTHING
    return _mixed_grade(value)


def _is_other(value: str) -> bool:
    if _OTHER.match(value) or _CLASS.search(value):
        return True
    if _CODE.search(value):
        return not is_certainly_random(value)
    return _PATH.match(value) is not None and not is_certainly_random(value.replace("/", ""))


def _letters_grade(value: str) -> float:
    if len(value) >= 16 and (is_random(value) or (_GROUPS.match(value) and not is_mostly_words(value))):
        return RANDOM
    if not value.isalpha() or not is_random(value):
        return NOTHING
    return PASSPHRASE if value.islower() or len(_CASE_CHANGE.findall(value)) >= _MIN_CASE_CHANGES else NOTHING


def _mixed_grade(value: str) -> float:
    if _SNAKE.match(value):
        return PASSPHRASE if _PASSPHRASE.match(value) else NAME
    if is_certainly_random(value) or any(len(_CHANGE.findall(run)) >= 4 for run in _RUN.findall(value)):
        if len(value) < 16 or not (_has_all_classes(value) or len(value) >= 20):
            return RANDOM
        return LONG_RANDOM if len(value) < 32 else VERY_LONG_RANDOM
    if is_random(value):
        return RANDOM if len(value) >= 12 else PASSWORD
    if _TITLE_PASSPHRASE.match(value):
        return PASSPHRASE if len(set(_JOINT.findall(value))) == 1 else SYMBOLS
    if _WORDS_AND_NUMBERS.match(value):
        return SYMBOLS
    if _TITLE_NUMBER.match(value) and not is_label(value):
        return PASSPHRASE
    if is_label(value) or _IDENTIFIER.match(value):
        return NAME
    if _SYMBOL.search(value.rstrip("?+")):
        return SYMBOLS if any(map(str.isdigit, value)) else NOTHING
    return PASSWORD if _ENDS_IN_DIGITS.match(value) or _has_all_classes(value) else 1


def _short_hex_grade(value: str) -> float:
    """Return the grade of a short hexadecimal value: with 16 digits the id of a key or a trace is as likely."""
    if len(value) < 16 or "-" in value:
        return NOTHING
    return PASSPHRASE if len(value) > 16 else 1


def _has_all_classes(value: str) -> bool:
    return any(map(str.isupper, value)) and any(map(str.islower, value)) and any(map(str.isdigit, value))


# A format that no rule knows: a short prefix, and a long random part. Ids have such a form too, but are shorter.
_PREFIXED = re.compile(r"(?:[a-z]{2,12}_|[a-z]{4,12}[\-.])(?P<random>[A-Za-z0-9][A-Za-z0-9_\-.]{23,512})\Z")
_HARMLESS_PREFIX = re.compile(
    r"(?:sha[0-9]{1,3}|md5|toolu|msg|req|chatcmpl|run|thread|asst|file|call|resp|rs|fc|h1|pk|pub|public)[_\-.]"
)


def is_prefixed_token(word: str) -> bool:
    """Return whether a word has the form of a vendor's token: `acme_live_` and thirty random characters or more."""
    match = _PREFIXED.match(word)
    if match is None or ".." in word or _HARMLESS_PREFIX.match(word) or _HASH_END.match(word):
        return False
    letters = match["random"].translate(_NO_JOINTS)
    if len(letters) < 30 or not _has_all_classes(letters) or not is_certainly_random(letters):
        return False
    return len(_CHANGE.findall(letters)) >= 6
