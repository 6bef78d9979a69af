"""Replaces what looks like a secret before it is stored anywhere.

Literal first: a rule is tried only where its literal occurs, and every pattern has bounded repeats behind that
literal, so the time grows with the text alone. What is wrapped (base64, percent signs) is unwrapped and looked at too.

Our own rules, because no library in Python does it: `bench/secret_rules.py` compares, docs/secrets.md has the figures.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import unquote

# What may stand before a token: no letter, unless it is that of an escaped newline or the like (text of text), or the
# end of a terminal's colour.
_BEFORE = (
    r"\\[nrtbf]", r"\\[0-7]{3}", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}", r"\[m", r"[\[;][0-9]m",
    r"[\[;][0-9]{2}m",
)  # fmt: skip


def _begins(prefix: str = "") -> str:
    """A token's first letters, and only then what stands before them: a search that begins with letters is quick."""
    return rf"{prefix}(?:(?<![A-Za-z0-9_]{prefix}){''.join(f'|(?<={before}{prefix})' for before in _BEFORE)})"


_END = r"(?![A-Za-z0-9_\-])"


def _no_base64(prefix: str) -> str:
    """For a beginning of letters alone: base64 of a picture holds it by chance, after a sign of its own."""
    return rf"(?<![+/]{prefix})" if prefix.isalpha() else ""


# Tokens that say whose they are.
_PREFIXES = (
    # DigitalOcean, Shopify, Stripe's webhooks, Google, Vault, Groq, xAI, Replicate, Linear, Notion
    "dop_v1_", "doo_v1_", "dor_v1_", "shpat_", "shpss_", "shpca_", "shppa_", "whsec_", "ya29.", "GOCSPX-", "hvs.",
    "hvb.", "gsk_", "xai-", "r8_", "lin_api_", "lin_oauth_", "ntn_",
    # Docker, GitLab, Grafana, Figma, Supabase, Tailscale, New Relic, Postman
    "dckr_pat_", "dckr_oat_", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glsoat-", "glagent-", "glsa_", "glc_",
    "figd_", "sbp_", "tskey-", "NRAK-", "PMAK-",
    # Atlassian, Bitbucket, PlanetScale, Fly, Slack's apps, Square, Brevo, Doppler, Dynatrace, Heroku, HubSpot
    "ATATT3x", "ATCTT3x", "ATBB", "pscale_tkn_", "pscale_pw_", "pscale_oauth_", "fo1_", "fm1_", "fm2_", "xapp-",
    "sq0atp-", "sq0csp-", "xkeysib-", "dp.pt.", "dp.st.", "dt0c01.", "HRKU-", "pat-na1-", "pat-eu1-",
    # Netlify, PostHog, Pulumi, RubyGems, Sentry, Perplexity, NVIDIA, Pinecone, Tavily, Jina
    "nfp_", "phx_", "pul-", "rubygems_", "sntrys_", "sntryu_", "pplx-", "nvapi-", "pcsk_", "tvly-", "jina_",
    # Alibaba, Artifactory, 1Password, Sourcegraph, Typeform, Buildkite, CircleCI, Flutterwave
    "LTAI", "AKCp", "sgp_", "tfp_", "bkua_", "CCIPAT_", "FLWSECK-",
    # Bitbucket's server, Contentful, Together, LlamaCloud, SonarQube, Nylas, WakaTime, Riot, Vercel, WunderGraph
    "BBDC-", "CFPAT-", "tgp_v1_", "llx-", "squ_", "sqp_", "sqa_", "nyk_v0_", "waka_", "RGAPI-", "vcp_", "cosmo_",
    # Docker's swarms, Clojars, Amazon, Vault again, Cloudflare, Instagram, PASETO
    "SWMTKN-1-", "SWMKEY-1-", "CLOJARS_", "amzn.mws.", "hvr.", "cfk_", "GR1348941", "PMAT-", "phs_", "dp.scim.",
    "NRJS-", "dnkey-", "akab-", "IGQV", "v2.local.", "v3.local.", "v4.local.",
)  # fmt: skip

Rule = tuple[str, str, re.Pattern[str]]


def _rules(*given: tuple[str, str, str]) -> tuple[Rule, ...]:
    """What it is, a literal that must occur for the pattern to be tried, the pattern. `named`: what its name says."""
    return tuple((name, literal, re.compile(pattern)) for name, literal, pattern in given)


# Secrets that are one long word: looked for only among the long words of a text, which are few.
_LONG = re.compile(r"(?<![A-Za-z0-9+/_\-.~])[A-Za-z0-9+/_\-.~]{20,}+")
_TOKENS = _rules(
    ("anthropic-key", "sk-ant-", _begins("sk-ant-") + r"[A-Za-z0-9_\-]{16,256}"),
    # With a digit in it: `sk-` also begins the class names of style sheets.
    ("openai-key", "sk-", _begins("sk-") + r"(?!ant-)(?=[A-Za-z_\-]{0,64}+[0-9])[A-Za-z0-9_\-]{20,256}"),
    *(("aws-key-id", prefix, rf"{_begins(prefix)}[A-Z0-9]{{16}}{_END}") for prefix in ("AKIA", "ASIA", "ABIA", "ACCA")),
    ("google-key", "AIza", _begins("AIza") + r"[A-Za-z0-9_\-]{35}" + _END),
    *(
        ("github-token", prefix, rf"{_begins(prefix)}[A-Za-z0-9_]{{30,255}}{_END}")
        for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
    ),
    ("github-token", "github_pat_", _begins("github_pat_") + r"[A-Za-z0-9_]{22,255}"),
    ("gitlab-token", "glpat-", _begins("glpat-") + r"[A-Za-z0-9_\-]{20,64}"),
    ("slack-token", "xox", _begins("xox") + r"[abeoprs][.\-][A-Za-z0-9.\-]{16,250}"),
    *(("stripe-key", f"k_{mode}_", rf"{_begins()}[psr]k_{mode}_[A-Za-z0-9]{{16,255}}") for mode in ("live", "test")),
    ("npm-token", "npm_", _begins("npm_") + r"[A-Za-z0-9]{36}" + _END),
    ("pypi-token", "pypi-", _begins("pypi-") + r"[A-Za-z0-9_\-]{40,255}"),
    ("huggingface-token", "hf_", _begins("hf_") + r"[A-Za-z0-9]{30,64}" + _END),
    ("sendgrid-key", "SG.", _begins(r"SG\.") + r"[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{16,64}"),
    # Not after a character it may itself contain: `eyJ-eyJ-eyJ-…` would be read again from each of them.
    ("jwt", "eyJ", _begins() + r"(?<!-)eyJ[A-Za-z0-9_\-]{8,4096}+\.eyJ[A-Za-z0-9_\-]{8,8192}+\.[A-Za-z0-9_\-]{8,4096}"),
    (
        "slack-webhook",
        "hooks.slack.com/",
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9_\-/]{20,100}",
    ),
    ("discord-webhook", "/api/webhooks/", r"(?<=/api/webhooks/)[0-9]{15,22}/[A-Za-z0-9_\-]{40,100}"),
    ("twilio-key", "SK", _begins("SK") + r"[0-9a-f]{32}" + _END),
    ("mailgun-key", "key-", _begins("key-") + r"[0-9a-f]{32}" + _END),
    ("mailchimp-key", "-us", _begins() + r"[0-9a-f]{32}-us[0-9]{1,2}" + _END),
    # The lookbehind second: beginning with a class of three letters, the search passes over the others quickly.
    (
        "discord-token",
        ".",
        r"[MNO](?<![A-Za-z0-9_\-.][MNO])[A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,40}" + _END,
    ),
    ("azure-secret", "Q~", r"(?<![\w.~\-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}"),
    ("databricks-token", "dapi", _begins("dapi") + r"[0-9a-f]{32}(?:-[0-9])?" + _END),
    ("terraform-token", ".atlasv1.", _begins() + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{60,70}"),
    ("airtable-token", "pat", _begins("pat") + r"[A-Za-z0-9]{14}\.[0-9a-f]{64}" + _END),
    ("google-refresh-token", "1//0", r"(?<![\w/])1//0[A-Za-z0-9_\-]{40,200}"),
    ("dropbox-token", "sl.", _begins(r"sl\.") + r"[A-Za-z0-9_\-]{100,200}"),
    ("nuget-key", "oy2", _begins("oy2") + r"[a-z0-9]{43}" + _END),
    ("appsync-key", "da2-", _begins("da2-") + r"[a-z0-9]{26}" + _END),
    ("artifactory-token", "cmVmd", _begins("cmVmd") + r"[A-Za-z0-9]{59}" + _END),
    ("facebook-token", "EAA", _begins("EAA") + _no_base64("EAA") + r"[A-Za-z0-9]{60,400}(?![\w\-+/])"),
    *(
        ("vendor-token", prefix, rf"{_begins(prefix)}[A-Za-z0-9+/]{{40,4096}}={{0,2}}(?:_[A-Za-z0-9+/]{{20,128}})?")
        for prefix in ("ops_eyJ", "sntrys_eyJ", "ABSK")
    ),
    ("age-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}"),
    *(
        ("vendor-token", prefix, rf"{_begins(re.escape(prefix))}{_no_base64(prefix)}[A-Za-z0-9_\-.]{{20,512}}")
        for prefix in _PREFIXES
    ),
)

# A literal, the program, and its option that has a password after it.
_TAKE_PASSWORDS = (
    ("-user", "curl", r"--(?:proxy-)?user[ =][\"']?[\w.@\-]{1,128}:"),
    ("login ", r"(?:docker|podman|nerdctl|helm|registry|oc|az|skopeo|buildah|cf) login", "(?:-p|--password)[ =]"),
    ("redis-cli ", "redis-cli", r"-a\s{1,4}"),
    ("mongo", "mongo[a-z]{0,8}", r"-u\s?\S{1,64}\s-p\s{1,4}"),
    ("ldap", "ldap[a-z]{0,8}", r"-w\s{1,4}"),
    ("gh secret set ", "gh secret set", "(?:-b|--body)[ =]"),
    ("http", "https?", r"(?:-a|--auth)[ =][\"']?[\w.@\-]{1,128}:"),
)

# Secrets that are known by where they stand.
_PLACES = _rules(
    # To its end, or as far as it can reach if that is missing; but code that only names the line is no key.
    (
        "private-key",
        "-----BEGIN ",
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"(?=(?:(?!-----)[^\x00]){0,200}?[A-Za-z0-9+/]{24})(?:(?!-----)[^\x00]){0,16384}+"
        r"(?:-----END [A-Z0-9 ]{0,32}KEY(?: BLOCK)?-----)?",
    ),
    ("telegram-token", ":AA", _begins() + r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{32,34}" + _END),
    ("azure-key", "AccountKey=", r"(?<=AccountKey=)[A-Za-z0-9+/]{40,100}={0,2}"),
    ("signature", "sig=", r"(?<=[?&;]sig=)[A-Za-z0-9%+/=_\-]{40,128}"),
    *(
        ("signature", f"X-{who}-Signature=", rf"(?<=X-{who}-Signature=)[A-Za-z0-9%+/=]{{40,1024}}")
        for who in ("Amz", "Goog")
    ),
    ("password-in-url", "://", r"(?<=://)[^\s/:@'\"<>]{0,128}:(?P<word>[^\s/'\"<>?#]{3,256})(?=@[A-Za-z0-9\[])"),
    # A name in place of a password: of the kind that only a machine has.
    (
        "password-in-url",
        "://",
        r"(?<=://)(?:[0-9a-f]{32,64}|(?=[a-zA-Z]{0,64}+[0-9])(?=[a-z0-9]{0,64}+[A-Z])[A-Za-z0-9]{24,256})(?=@[A-Za-z0-9\[])",
    ),
    (
        "authorization",
        "uthorization",
        r"(?i)(?<=authorization)\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}\\{0,4}[\"']?(?:(?:bearer|basic|token|digest|apikey|negotiate|"
        r"ntlm|hawk|key)\s{1,4}(?!(?:[a-z]{1,24}[_\-]){1,8}[a-z]{1,24}(?![\w.~+/=\-]))[A-Za-z0-9._~+/=\-]{8,4096}|(?=(?:[a-z_\-./+~]{0,64}+[0-9]){4})[a-z0-9._~+/=\-]{20,4096}+(?![(\[]))",
    ),
    ("signature", "Signature=", r"(?<=[ ,]Signature=)[0-9a-f]{32,128}"),
    # With a digit among the letters: `Bearer token` is prose.
    ("bearer-token", "earer ", r"\b[Bb]earer (?=[A-Za-z_\-./+~]{0,64}+[0-9])[A-Za-z0-9._~+/=\-]{20,4096}"),
    # To the end of the line or the text it stands in, if any of its values is long enough to be a session.
    (
        "cookie",
        "ookie",
        r"(?<=[Cc]ookie)\\{0,4}[\"']?[:=\s]\s{0,4}\\{0,4}[\"']?(?=[^\r\n\"'\\]{0,300}?=[^;=\s\"'\\$<{(][^;=\s\"'\\]{15})"
        r"[^\r\n\"'\\]{1,8192}",
    ),
    # The same as an option, where an equals sign tells it from the name of a file.
    (
        "cookie",
        "curl ",
        r"(?P<keep>\bcurl(?=\s)[^\n|;&]{0,200}?\s(?:-b|--cookie)[ =]\s{0,4}[\"']?)"
        r"(?=[^\s\"']{0,64}?=[^\s\"';$<{]{12})[^\s\"']{13,4096}",
    ),
    # What stands before a password is kept.
    ("password", "login ", r"(?P<keep>\blogin [^\s\"']{1,128}\s{1,64}password\s{1,8})(?P<word>[^\s\"'\\]{3,256})"),
    ("password", " -u", r"(?P<keep> -u[ =]?[\"']?[\w.@\-]{1,128}:)[^\s\"'$<{:][^\s\"'$<{]{2,256}"),
    *(
        (
            "password",
            literal,
            rf"(?P<keep>\b{program}(?=\s)[^\n|;&]{{0,200}}?\s{option}[\"']?)(?P<word>[^\s\"'$<{{\-][^\s\"']{{2,255}})",
        )
        for literal, program, option in _TAKE_PASSWORDS
    ),
    (
        "password",
        "DENTIFIED ",
        r"(?P<keep>\bIDENTIFIED (?:WITH \S{1,64} )?BY [\"']?)(?P<word>[^\s\"';:?@$%<{\\]{3,256})",
    ),
    (
        "password",
        "dentified by",
        r"(?P<keep>\b[Ii]dentified by [\"'])(?=[A-Za-z]{0,64}+[^A-Za-z\s\"'])[^\s\"';:?@$%<{\\]{6,256}",
    ),
    # A connection string: between semicolons any sign may stand.
    *(
        (
            "password",
            f"{name[1:]}=",
            rf"(?P<keep>;\s{{0,4}}[{name[0].upper()}{name[0]}]{name[1:]}=)(?=[A-Za-z._\-]{{0,64}}+[^A-Za-z._\-;\s\"'])"
            r"(?P<word>[^;\s\"'\\]{3,256})",
        )
        for name in ("password", "pwd")
    ),
    ("password", " pass:", r"(?P<keep>\s-pass(?:in|out)?\s{1,4}[\"']?pass:)(?P<word>[^\s\"'$<{][^\s\"']{2,255})"),
    (
        "named",
        "configure set ",
        r"(?P<keep>\bconfigure set (?:[\w.\-]{1,64}\.)?aws_(?:secret_access_key|session_token)\s{1,4}[\"']?)"
        r"(?P<word>[^\s\"'$<{][^\s\"']{7,2048})",
    ),
    (
        "named",
        "set -",
        r"(?P<keep>\bset -[gUux]{1,3} [A-Z0-9_]{0,48}(?:PASSWORD|TOKEN|SECRET|API_KEY)\s{1,4}[\"']?)"
        r"(?=[A-Za-z]{0,64}+[^A-Za-z\s\"'])(?P<word>[^\s\"'$<{(][^\s\"']{7,512})",
    ),
    (
        "named",
        "define(",
        r"(?P<keep>\bdefine\(\s{0,4}[\"'][A-Z0-9_]{0,48}(?:PASSWORD|PASSWD|SECRET|TOKEN|KEY|SALT)[\"']\s{0,4},\s{0,32}[\"'])"
        r"(?=[^\"'\n]{0,255}[0-9])(?=[^\"'\n]{0,255}[A-Za-z])(?P<word>[^\"'\s][^\"'\n]{5,255})(?=[\"'])",
    ),
    ("password", "sshpass ", r"(?P<keep>\bsshpass -p\s{0,4}[\"']?)(?![\"']?\$)[^\s\"']{3,256}"),
    ("password", "mysql", r"(?P<keep>\bmysql(?:dump|admin)?\s[^\n|;&]{0,200}?\s-p[\"']?)(?![\"']?\$)[^\s\"']{3,256}"),
)

# What a secret is called: `DB_PASSWORD`, `apiKey`, `token_v2`; not `tokenizer` or `author`.
_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|(?<![A-Za-z])pass|pwd|secret|token|credentials?|auth|"
    r"(?:api|app|access|account|private|secret|signing|signature|encryption|crypt|master|shared|service|consumer|deploy|"
    r"storage|admin|session|auth|jwt|hmac)[_\-]?key)"
)
_REST = r"(?:s|[0-9]{1,4}|[_\-][A-Za-z0-9_\-]{0,32}|(?-i:[A-Z][A-Za-z0-9]{0,32}))?(?![A-Za-z0-9])"
# … and what is only about it: `token_type`, `secretName`, `password-file`.
_ABOUT = re.compile(
    r"(?i)[_\-]?(?:name|type|id|path|file|dir|url|uri|host|endpoint|length|len|size|field|column|label|hint|input|ttl|expiry|"
    r"expires(?:[_\-]?(?:in|at))?|count|limit|ref|arn|prefix|suffix|policy|rules?|regex|pattern|version|algorithm|algo|alias|"
    r"stdin|env|var|method|provider|store|manager|mode|scheme|scopes?|class|error|errors|usage|cost|budget|status|state|message|msg|text|prompt|"
    r"help|placeholder|title|description)\Z"
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
    r"\s{0,4}[:=]\s{0,4}\\{0,4}[\"']?)(?P<value>[^\s\"'\\<>\x00-\x1f]{6,512})"
)
_NAMED = re.compile(rf"(?i){_NAMES}{_REST}\Z")
_OPTION = re.compile(r"(?:\A|[\s\"'(,])--?[A-Za-z0-9_\-]{0,40}\Z")
_PASSWORD = re.compile(r"(?i)pass(?:word|wd|phrase|code)?|pwd")
_SHORTEST = 9  # no rule fits less: `://:abc@x`. Most strings of a tool call are as short as that
_ASSIGNED_LITERALS = ("pass", "pwd", "secret", "token", "key", "auth", "credential")

# What may be something else in another writing. Not after a sign of its own kind, or it would be read again from each.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_\-=%])[A-Za-z0-9+/_\-]{20,65536}+(?:\r?\n[ \t+]{0,9}+[A-Za-z0-9+/]{40,1024}+){0,256}+"
    r"(?:\r?\n[ \t+]{0,9}+[A-Za-z0-9+/]{1,1024}+(?==))?={0,2}"
)
_PERCENT = re.compile(r"(?<![\w.~%+*\-])[\w.~+*\-]{0,512}+(?:%[0-9A-Fa-f]{2}[\w.~+*\-]{0,512}+){1,4096}+")
_IS_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_TEXT = re.compile(rb"[^\t\n\r -~\x80-\xff]")
_UNFOLD = re.compile(r"[^A-Za-z0-9+/]")
_URLSAFE = str.maketrans("-_", "+/")
_DEEPEST = 2  # base64 in base64


_OURS: set[str] = set()
_COLOURS = ("\x1b[", "1b[", "033[", "\\e[")  # as it is, or escaped: text of text
_COLOUR = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,16}[mK]")


def know(secret: str) -> None:
    """A secret of our own, which no rule could know by its looks: from now on it is replaced wherever it stands."""
    if len(secret) >= _SHORTEST:
        _OURS.add(secret)


def redact(text: str) -> str:
    for secret in _OURS:
        text = text.replace(secret, "[redacted]")
    text = _redact(text, _DEEPEST)
    if not any(begin in text for begin in _COLOURS) or (plain := _COLOUR.sub("", text)) == text:
        return text
    cleaned = _redact(plain, _DEEPEST)  # a colour may begin in the middle of a secret
    return text if cleaned == plain else cleaned


def _redact(text: str, deep: int) -> str:
    if len(text) < _SHORTEST:
        return text
    text = _apply(_PLACES, text, among=text)
    if words := "\n".join(_LONG.findall(text)):
        text = _apply(_TOKENS, text, among=words)
    text = _redact_assigned(text)
    return _unwrapped(text, words, deep) if deep else text


def _apply(rules: tuple[Rule, ...], text: str, *, among: str) -> str:
    for name, literal, pattern in rules:
        if literal in among:
            text = pattern.sub(partial(_known, name), text)
    return text


def _known(name: str, found: re.Match[str]) -> str:
    """A group `word` is what may be no secret after all, a group `keep` what is none."""
    groups = found.groupdict("")
    word, keep = groups.get("word", ""), groups.get("keep", "")
    made_up = _is_trivial(word) if word else _is_made_up(found[0])
    mark = "[redacted]" if name == "named" else f"[redacted {name}]"
    return found[0] if made_up or found[0].startswith("[redacted", len(keep)) else f"{keep}{mark}"


def _is_made_up(token: str) -> bool:
    """An example in a text: `ghp_xxxxxxxx…`, or one that says so at its end."""
    return len(set(token[-16:])) <= 2 or token.removesuffix("KEY").endswith("EXAMPLE") or "-your-" in token


# --- what is named a secret ------------------------------------------------------------------------------------------


def _redact_assigned(text: str) -> str:
    """The names are found as literals, and only there the pattern is tried: much faster than to search with it."""
    kept: list[str] = []
    position = 0
    for at in _name_places(text):
        for pattern, decide in _NAMED_SHAPES if at >= position else ():
            if (found := pattern.match(text, at)) and (replaced := decide(found)) and not _names_a_test(found):
                kept += (text[position:at], replaced)
                position = found.end()
                break
    return "".join([*kept, text[position:]]) if kept else text


_TEST_LINE = re.compile(
    r"(?:\A|[\n\"']|\\n)[ \t+\-]{0,32}(?:=== [A-Z]{3,5} {1,4}|--- [A-Z]{4,5}: |test )[^\s\"']{1,256}\Z"
)


def _names_a_test(match: re.Match[str]) -> bool:
    """Whether it stands in the name of a test that a runner reports: `--- PASS: TestAuth/token=expired_1 (0.00s)`."""
    goes_on = not any(char.isspace() for char in match[0])
    return goes_on and _TEST_LINE.search(match.string, max(0, match.start() - 320), match.start()) is not None


def _name_places(text: str) -> list[int]:
    lower = text.lower()
    if len(lower) != len(text):  # `İ` becomes two
        return [found.start() for found in _NAME.finditer(text)]
    places: set[int] = set()
    for literal in _ASSIGNED_LITERALS:
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
        at = lower.find(literal, at + len(literal))


_NAME = re.compile(rf"(?i){_NAMES}")
_BEFORE_KEY = re.compile(
    r"(?:api|app|access|account|private|secret|signing|signature|encryption|crypt|master|shared|service|consumer|deploy|"
    r"storage|admin|session|auth|jwt|hmac)[_\-]?\Z"
)


# --- JSON ------------------------------------------------------------------------------------------------------------


def redact_all(value: Any) -> Any:
    """Return a JSON value without secrets: none in a text, in the texts of a list taken together, or under a key that
    names one."""
    return redact_named(_redact_texts(value))


def _redact_texts(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): _redact_texts(item) for key, item in value.items()}
    return _redact_list(value) if isinstance(value, list) else value


def _redact_list(items: list[Any]) -> list[Any]:
    """Texts that follow each other in a list may be the lines of one: of a patch, a cell, blocks of an answer. So its
    texts are redacted together, and so are those that its objects have under the same key."""
    runs: dict[Any, list[tuple[int, str]]] = {}
    for number, item in enumerate(items):
        texts = {None: item} if isinstance(item, str) else item if isinstance(item, dict) else {}
        for key, text in texts.items():
            if isinstance(text, str):
                runs.setdefault(key, []).append((number, text))
    new = {
        (number, key): text
        for key, run in runs.items()
        for (number, _), text in zip(run, redact_lines([text for _, text in run]), strict=True)
    }
    return [
        new[number, None]
        if isinstance(item, str)
        else {
            redact(str(key)): new[number, key] if isinstance(part, str) else _redact_texts(part)
            for key, part in item.items()
        }
        if isinstance(item, dict)
        else _redact_texts(item)
        for number, item in enumerate(items)
    ]


def redact_lines(texts: list[str]) -> list[str]:
    """Redact texts as if they were the lines of one. Return as many; those that a longer secret covered are empty."""
    whole = "\n".join(texts)
    new = redact(whole)
    return texts if new == whole else _split_again(texts, whole, new)


_MARK = re.compile(r"\[redacted(?: [a-z0-9\-]{1,32})?\]")


def _split_again(texts: list[str], whole: str, new: str) -> list[str]:
    """Cut the redacted text where the texts met: whatever is taken for the place, every part of it is redacted."""
    kept = _kept_parts(whole, new)
    parts: list[str] = []
    at = begin = end = 0
    for text in texts[:-1]:
        end += len(text)  # the newline between this text and the next
        while at < len(kept) and kept[at][0] + kept[at][2] <= end:
            at += 1
        old, start, size = kept[at] if at < len(kept) else (len(whole), len(new), 0)
        cut = start + max(end - old, 0)
        parts.append(new[begin:cut] if cut >= begin else "")
        begin = max(begin, cut + (old <= end < old + size))
        end += 1
    return [*parts, new[begin:]]


def _kept_parts(whole: str, new: str) -> list[tuple[int, int, int]]:
    """Where each part that was not replaced stands in the text, where in the redacted one, and how long it is."""
    found: list[tuple[int, int, int]] = []
    old = start = 0
    for mark in [*_MARK.finditer(new), None]:
        end = mark.start() if mark else len(new)
        part = new[start:end]
        place = whole.find(part, old) if mark else max(old, len(whole) - len(part))
        if place < 0:
            break  # colours went too: the rest stays together
        found.append((place, start, len(part)))
        old, start = place + len(part), mark.end() if mark else end
    return found


def redact_named(value: Any) -> Any:
    """JSON in which a key says what its value is: `{"password": "…"}` holds no line that says both."""
    if isinstance(value, dict):
        told = _named_by(value)
        return {key: _under(told if told and str(key).lower() in _VALUES else key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_named(item) for item in value]
    return value


_KEYS = ("name", "key", "variable", "parameterkey")
_VALUES = ("value", "parametervalue")


def _named_by(value: dict[Any, Any]) -> str:
    """The name that stands beside a value: `{"name": "DB_PASSWORD", "value": "…"}`."""
    return next((name for key, name in value.items() if str(key).lower() in _KEYS and isinstance(name, str)), "")


def _under(key: Any, item: Any) -> Any:
    name = str(key)[-64:]
    if isinstance(item, str) and (found := _NAMED.search(name)) and _looks_secret(item, found[0], env=False):
        return "[redacted]"
    return redact_named(item)


def _assigned(match: re.Match[str]) -> str:
    """What to put in its place; nothing if it is no secret. (Then its value may be the name of one.)"""
    value, name, between = match["quoted"] or match["bare"], match["name"], match["between"]
    if between.isspace() and not _may_follow(match):
        return ""
    alone = bool(match["quote"]) or _REST_OF_LINE.match(match.string, match.end())
    if "\n" in between and (_NEXT_LINE.match(value) or not alone):
        return ""
    if between == ">" and not match.string.startswith("</", match.end()):
        return ""
    if _is_result(match) or (match["bare"] and _is_expression(match)) or _PUBLIC.search(match.string, *_near(match)):
        return ""
    env = name.isupper() and between == "="
    return f"{name}{between}{match['quote'] or ''}[redacted]" if _looks_secret(value, name, env=env) else ""


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
_URN = re.compile(r"\burn:[\w:.\-]{0,64}\Z")
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
    if value.startswith("&") or (_CHAIN.search(value) and _EXPRESSION.match(value)) or _CODE.match(value.lstrip("!*")):
        return True
    if _CAMEL_CASE.match(value) and text[match.end() : match.end() + 1] in (",", ";", ")"):
        return True
    if (
        _CJK.search(value)
        or _URN.search(text, *_near(match))
        or (_YAML_TAG.match(value) and text.startswith(" ", match.end()))
    ):
        return True
    if between.startswith(" ") and between.endswith("= ") and _IDENTIFIER.match(value):
        return bool(_DECLARED.search(text, *_near(match)))
    if ":" in between and _SLUG.match(value):
        prose = between.endswith(" ") and _GOES_ON.match(text, match.end())
        return bool(prose or _NAMED_ONE.search(text, *_near(match)))
    return False


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
    return _looks_secret(value.translate(_BRACKETS).replace(" ", ""), name, env=True)


def _paired(match: re.Match[str]) -> str:
    name = match["name"]
    secret = _looks_secret(match["value"], name, env=name.isupper())
    return f"{name}{match['between']}[redacted]" if secret else ""


def _in_block(match: re.Match[str]) -> str:
    first = match["value"].partition("\n")[0].strip()
    secret = _looks_secret(first, match["name"], env=False)
    return f"{match['name']}{match['between']}[redacted]" if secret else ""


_NAMED_SHAPES = ((_LINE, _in_line), (_BLOCK, _in_block), (_TICKED, _paired), (_PAIR, _paired), (_ASSIGNED, _assigned))
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


# What fetches a secret is none: `os.environ`, `boto3.client`, `$(…)`, a path, an address; nor is the name of its kind.
_CODE = re.compile(
    r"(?:process|os|env|config|settings|self|this)\.|\$[A-Za-z_({]|[a-z][a-z0-9+.\-]{1,16}://|(?:file|urn|arn|vault|ssm|sops|keyring|keychain):|[A-Za-z]:\\|\[redacted|<|\{|%[sd]|@[\w./\-]{1,64}\Z|"
    r"[a-z:]{0,16}`|[A-Za-z]{1,16}\?\Z|/?\^|%\(|(?:[a-z]{1,24}\.)?(?:[A-Z]{2,32}[0-9]{0,2}_){1,8}[A-Z]{1,32}[0-9]{0,2}\Z|(?:~|\.{0,2})/(?:[\w.@+\-]{0,24}/){0,16}[\w.@+\-]{0,24}\Z|"
    r"(?:[A-Za-z_]+[0-9]{0,3}\.)+[A-Za-z_]+[0-9]{0,3}(?:[(\[]|\Z)|[A-Za-z_]+[0-9]{0,3}[(\[]|"
    r"[\w.]{1,64}(?<=[a-z0-9])(?:Keys?|Types?|Token|Secret|Password|Auth|Str|String|Config|Provider|Credentials?)\Z|"
    r"[a-z][a-z0-9_.\-]{0,40}(?:/[a-z0-9][a-z0-9_.\-]{0,40})+\Z"
)
# What people write who don't want to give one away.
_MADE_UP = re.compile(
    r"(?i)(?:your|insert|enter|replace|put)[_\-]|.{0,40}?(?:change[_\-]?(?:me|it)|[_\-]your[_\-]|example|placeholder|dummy|xxxx|\*\*\*|\.\.\.|\u2026|\{\{[^}]{1,64}\}\}|\$\{[^}]{1,64}\})"
)
_TRIVIAL = frozenset({
    "password", "passwd", "pass", "pwd", "secret", "token", "postgres", "root", "admin", "user", "username", "guest",
    "example", "changeme", "test", "mysql", "redis", "mongo",
})  # fmt: skip


def _is_trivial(word: str) -> bool:
    return word.lower() in _TRIVIAL or len(set(word)) <= 2 or bool(_CODE.match(word) or _MADE_UP.match(word))


def _looks_secret(value: str, name: str, *, env: bool) -> bool:
    """Letters with digits or signs, no spaces, and no shape of code: `abc12345xyz` yes, `os.environ` or `string` no.

    What has letters alone may be a word. It is taken for a secret in `PASSWORD=…` of an environment, and if nobody
    could say it aloud.
    """
    password = bool(_PASSWORD.match(name))
    if len(value) < (6 if password else 8) or any(char.isspace() for char in value):
        return False
    letters = _TERMS.sub("", value.rstrip("`*")).translate(_JOINTS)
    if not letters or letters.isalpha():  # asked first: most are words, and it is quickly done
        spoken = _CONSONANTS.search(value) is None
        if spoken and not (env and password and letters.islower() and len(value) >= 8):
            return False
    elif not password and not any(char.isalpha() for char in value):
        return False
    is_about = _ABOUT.search(name) and not _PASSWORD.fullmatch(name)
    return not is_about and not _is_trivial(value) and _PLAIN.match(value) is None


_JOINTS = dict.fromkeys(map(ord, "_-.:"))
# Words of the trade that have a digit in them: `Uint8Array`, `base64-encoded`, `OAuth2Client`; short ones only alone.
_TERMS = re.compile(
    r"(?i)o?auth[02]|sha-?(?:224|256|384|512)|base(?:16|32|58|64)|utf-?(?:8|16|32)|u?int(?:8|16|32|64|128|256)(?:_t)?|float(?:32|64)|"
    r"bytes(?:16|32|64)|x509(?:certificate2)?|ed25519|curve25519|secp256[kr]1|argon2|pbkdf2|aes-?(?:128|192|256)|pkcs-?(?:1|7|8|12)|amd64|arm64|win32|"
    r"(?<![A-Za-z0-9])(?:sha-?1|md5|[hre]s(?:256|384|512)|http[123]|ipv?[46]|i18n|l10n|k8s|s3|ec2|e2e|2fa|h264|mp[34]|x86|[iuf](?:8|16|32|64))(?![A-Za-z0-9])"
)
# What is plainly something else: a version, a time, a size or another number with its unit, a pointer, a file.
_PLAIN = re.compile(
    r"(?:[\^~v=]{0,2}[0-9]{1,5}(?:\.[0-9]{1,9}){1,3}(?:[\-+.](?:alpha|beta|rc|dev|next|canary|post|pre|snapshot|build)[0-9A-Za-z.\-]{0,24})?|"
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]{4,16}(?:Z|[+\-][0-9:]{4,5})?)?|"
    r"[0-9][0-9.,_]{0,16}(?:[kKmMgGtT]i?[bB]?|ms|[smhd]|min|%|x|px|pt|r?em|tps|tok(?:ens)?(?:/s(?:ec)?)?)(?:/[0-9.]{1,9}[kKmMgG]?)?|"
    r"0x[0-9A-Fa-f]{1,16}|[0-9]{1,3}-[a-z]{2,16}|"
    r"(?:[\w.@\-]{1,64}/){0,16}[\w.@\-]{1,64}\.(?:py|pyi|js|mjs|cjs|jsx|ts|tsx|vue|go|rs|rb|java|kt|cs|php|c|h|cc|cpp|hpp|swift|m|scala|"
    r"ex|exs|lua|sh|md|mdx|rst|txt|json|ya?ml|toml|ini|cfg|conf|lock|sql|proto|html|css|scss|xml|log|pem|crt|key|snap)(?::[0-9]{1,6}){0,2})\Z"
)
_CONSONANTS = re.compile(r"(?<![A-Z])[bcdfghjklmnpqrstvwxz]{5}")


# --- what is wrapped -------------------------------------------------------------------------------------------------


def _unwrapped(text: str, words: str, deep: int) -> str:
    """Looked at where there is a long word that may be base64 of text, and in lines with percent signs."""
    if any(_begins_text(found[0]) or _begins_text(found[0][1:]) for found in _BASE64.finditer(words)):
        text = _BASE64.sub(lambda found: _in_base64(found, deep), text)
    if "%" in text and _IS_PERCENT.search(text):
        lines = text.split("\n")
        text = "\n".join(_PERCENT.sub(lambda found: _in_percent(found[0], deep), line) for line in lines)
    return text


def _begins_text(run: str) -> bool:
    """The first bytes tell almost always that it is none: of hashes, names and pictures."""
    plain = _decoded(run[:32])
    return bool(plain) and plain[:6].isascii() and _NOT_TEXT.search(plain) is None


def _in_base64(found: re.Match[str], deep: int) -> str:
    after_escape = found[0][0] in "nrt" and found.string.startswith("\\", found.start() - 1) and found.start() > 0
    first = found[0][:1] if after_escape else ""  # the `n` of `\\n` is none of it
    run = found[0].removeprefix(first)
    if not _begins_text(run):
        return found[0]
    text = _decoded(run).decode("utf-8", "replace")
    return found[0] if _redact(text, deep - 1) == text else f"{first}[redacted base64]"


def _decoded(run: str) -> bytes:
    letters = _UNFOLD.sub("", run.translate(_URLSAFE))
    try:
        return base64.b64decode(letters[: len(letters) // 4 * 4] + _padded(letters), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _padded(letters: str) -> str:
    """The last letters, if they are not four: without padding they would not be read."""
    rest = letters[len(letters) // 4 * 4 :]
    return rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""


def _in_percent(run: str, deep: int) -> str:
    text = unquote(run, errors="replace")
    return run if _redact(text, deep - 1) == text else "[redacted url-encoded]"
