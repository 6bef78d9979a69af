"""Classification of values: a likely secret, a random string, or clearly something else.

The callers also consider the name and the position of a value; this module looks at the value alone. Words are
distinguished from random letters by the letter pairs that occur in words (`data/secrets.toml`), so a token is
recognized even if it contains no digit.
"""

from __future__ import annotations

import re
from itertools import pairwise

from claude_mem.secret_rules import FOLLOWERS, TRIVIAL

# Code that fetches a secret is not a secret: `os.environ`, `boto3.client`, `$(…)`, a path, a URL, the name of a type.
CODE = re.compile(
    r"(?:process|os|env|config|settings|self|this)\.|\$[A-Za-z_({]|[a-z][a-z0-9+.\-]{1,16}://|(?:file|urn|arn|vault|ssm|sops|keyring|keychain):|[A-Za-z]:\\|\[redacted|<|\{|%[sd]|@[\w./\-]{1,64}\Z|"
    r"[a-z:]{0,16}`|[A-Za-z]{1,16}\?\Z|/?\^|%\(|(?:[a-z]{1,24}\.)?(?:[A-Z]{2,32}[0-9]{0,2}_){1,8}[A-Z]{1,32}[0-9]{0,2}\Z|(?:~|\.{0,2})/(?:[\w.@+\-]{0,24}/){0,16}[\w.@+\-]{0,24}\Z|"
    r"(?:[A-Za-z_]+[0-9]{0,3}\.)+[A-Za-z_]+[0-9]{0,3}(?:[(\[]|\Z)|[A-Za-z_]+[0-9]{0,3}[(\[]|"
    r"[\w.]{1,64}(?<=[a-z0-9])(?:Keys?|Types?|Token|Secret|Password|Auth|Str|String|Config|Provider|Credentials?)\Z|"
    r"[a-z][a-z0-9_.\-]{0,40}(?:/[a-z0-9][a-z0-9_.\-]{0,40})+\Z"
)
# Placeholders that people write instead of a secret.
_PLACEHOLDER = re.compile(
    r"(?i)\[[a-z _\-]{3,24}\]\Z|(?:your|insert|enter|replace|put)[_\-]|.{0,40}?(?:change[_\-]?(?:me|it)|[_\-]your[_\-]|example|placeholder|dummy|xxxx|\*\*\*|\.\.\.|\u2026|\{\{[^}]{1,64}\}\}|\$\{[^}]{1,64}\})|"
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
    r"(?:[\^~v=]{0,2}[0-9]{1,5}(?:\.[0-9]{1,9}){1,3}(?:[\-+.](?:alpha|beta|rc|dev|next|canary|post|pre|snapshot|build)[0-9A-Za-z.\-]{0,24})?|"
    r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}[\w.\-]{0,24}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]{4,16}(?:Z|[+\-][0-9:]{4,5})?)?|"
    r"[0-9][0-9.,_]{0,16}(?:[kKmMgGtT]i?[bB]?|ms|[smhd]|min|%|x|px|pt|r?em|tps|tok(?:ens)?(?:/s(?:ec)?)?)(?:/[0-9.]{1,9}[kKmMgG]?)?|"
    r"0x[0-9A-Fa-f]{1,16}|[0-9]{1,3}-[a-z]{2,16}|"
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
    return word.lower() in TRIVIAL or len(set(word)) <= 2 or bool(CODE.match(word)) or is_made_up(word)


def is_made_up(word: str) -> bool:
    return bool(_PLACEHOLDER.match(word) or _GUESSABLE.match(word)) or _is_sequence(word)


def _is_sequence(word: str) -> bool:
    """Return whether a value is a sequence of letters followed by a sequence of digits: `abcdef123456`, `12345678`."""
    letters = word.rstrip("0123456789")
    digits = word[len(letters) :]
    return letters.lower() in "abcdefghijklmnopqrstuvwxyz" and digits in "012345678901234567890" and len(word) <= 20


def is_spoken(value: str) -> bool:
    """Return whether most of a value is words: chunks of three letters or more with letter pairs common in words."""
    letters = sum(map(len, _CHUNK.findall(value)))
    words = sum(len(chunk) for chunk in _CHUNK.findall(value) if len(chunk) > 2 and _is_word(chunk.lower()))
    return words >= 0.6 * letters and words >= 0.4 * len(value)


def _is_word(chunk: str) -> bool:
    rare = sum(second not in FOLLOWERS.get(first, "") for first, second in pairwise(chunk))
    return rare <= len(chunk) // 6


_SLUG = re.compile(r"[a-z]{1,24}(?:[_\-./][a-z]{1,24}){0,8}[_\-./]?v?[0-9]{0,4}\Z")
_ANY_CODE = re.compile(r"\$[A-Za-z_({]|[a-z][a-z0-9+.\-]{1,16}://|\[redacted|<|\{|%[sd(]|\.{0,2}/")


def is_random(value: str, *, least: int = 8, quoted: bool = False) -> bool:
    """Return whether a value looks machine-generated: long enough, no words, not clearly something else. `quoted`: the
    value is in quotes, so a part that looks like a function call may be coincidence."""
    if quoted and len(value) >= 16 and is_strong(value) and not _ANY_CODE.match(value):
        return True
    if _SLUG.match(value) and _CONSONANTS.search(value) is None:
        return False
    if not least <= len(value) <= 4096 or any(char.isspace() for char in value):
        return False
    rest = _TERMS.sub("", value)
    if rest != value and (len(rest) < least or is_spoken(rest)):
        return False
    alphabets = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    if alphabets < 2 and _CONSONANTS.search(value.lower()) is None:
        return False
    if is_spoken(value) or is_trivial(value) or _NOT_SECRET.match(value):
        return False
    return any(map(str.isalpha, value)) and len(set(value)) >= min(6, len(value) - 2)


def is_strong(value: str) -> bool:
    """Return whether a value is certainly random: no words, and three character classes, or two in a long value."""
    if len(value) < 8 or any(char.isspace() for char in value) or is_spoken(value) or is_made_up(value):
        return False
    alphabets = sum(any(map(test, value)) for test in (str.islower, str.isupper, str.isdigit))
    return (
        (alphabets == 3 or (alphabets == 2 and len(value) >= 20))
        and _NOT_SECRET.match(value) is None
        and "/" not in value[:1]
    )


def is_uniform(value: str) -> bool:
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
