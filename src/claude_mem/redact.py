"""Replaces what looks like a secret before it is stored anywhere.

Literal first: a rule is tried only where its literal occurs, and every pattern has bounded repeats behind that
literal, so the time grows with the text alone. This is the first line of defence, with the formats met most
often.
"""

from __future__ import annotations

import re
from typing import Any

_END = r"(?![A-Za-z0-9_\-])"

# Tokens that say whose they are: DigitalOcean, Shopify, Stripe's webhooks, Google, Vault, Groq, xAI, Replicate, Linear,
# Notion, Docker, Grafana, Figma, Supabase, Tailscale, New Relic, Postman, Atlassian, PlanetScale, Fly.
_PREFIXES = (
    "dop_v1_", "doo_v1_", "shpat_", "shpss_", "whsec_", "ya29.", "GOCSPX-", "hvs.", "gsk_", "xai-", "r8_", "lin_api_",
    "ntn_", "dckr_pat_", "glsa_", "figd_", "sbp_", "tskey-", "NRAK-", "PMAK-", "ATATT3x", "pscale_tkn_", "fo1_",
)  # fmt: skip

# (what it is, a literal that must occur for the pattern to be tried, the pattern)
_RULES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (name, literal, re.compile(pattern))
    for name, literal, pattern in (
        ("anthropic-key", "sk-ant-", r"\bsk-ant-[A-Za-z0-9_\-]{16,256}"),
        # With a digit in it: `sk-` also begins the class names of style sheets.
        ("openai-key", "sk-", r"\bsk-(?!ant-)(?=[A-Za-z_\-]{0,64}+[0-9])[A-Za-z0-9_\-]{20,256}"),
        ("aws-key-id", "AKIA", r"\bAKIA[A-Z0-9]{16}" + _END),
        ("aws-key-id", "ASIA", r"\bASIA[A-Z0-9]{16}" + _END),
        ("google-key", "AIza", r"\bAIza[A-Za-z0-9_\-]{35}" + _END),
        ("github-token", "gh", r"\bgh[pousr]_[A-Za-z0-9]{30,255}" + _END),
        ("github-token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,255}"),
        ("gitlab-token", "glpat-", r"\bglpat-[A-Za-z0-9_\-]{20,64}"),
        ("slack-token", "xox", r"\bxox[abeoprs]-[A-Za-z0-9\-]{10,250}"),
        ("stripe-key", "k_", r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
        ("npm-token", "npm_", r"\bnpm_[A-Za-z0-9]{36}" + _END),
        ("pypi-token", "pypi-", r"\bpypi-[A-Za-z0-9_\-]{40,255}"),
        ("huggingface-token", "hf_", r"\bhf_[A-Za-z0-9]{30,64}" + _END),
        ("sendgrid-key", "SG.", r"\bSG\.[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{16,64}"),
        # Not after a character it may itself contain: `eyJ-eyJ-eyJ-…` would be read again from each of them.
        (
            "jwt",
            "eyJ",
            r"(?<![\w\-])eyJ[A-Za-z0-9_\-]{8,4096}+\.eyJ[A-Za-z0-9_\-]{8,8192}+\.[A-Za-z0-9_\-]{8,4096}",
        ),
        # To its end, or as far as it can reach if that is missing.
        (
            "private-key",
            "-----BEGIN ",
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----)[^\x00]){0,16384}+"
            r"(?:-----END [A-Z ]{0,32}KEY(?: BLOCK)?-----)?",
        ),
        ("slack-webhook", "hooks.slack.com/", r"(?<=hooks\.slack\.com/)services/[A-Za-z0-9/]{20,100}"),
        ("twilio-key", "SK", r"\bSK[0-9a-f]{32}" + _END),
        ("telegram-token", ":AA", r"\b[0-9]{8,10}:AA[A-Za-z0-9_\-]{32,34}" + _END),
        ("discord-token", ".", r"\b[MNO][A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,40}" + _END),
        ("azure-key", "AccountKey=", r"(?<=AccountKey=)[A-Za-z0-9+/]{40,100}={0,2}"),
        ("databricks-token", "dapi", r"\bdapi[0-9a-f]{32}(?:-[0-9])?" + _END),
        ("age-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}"),
        *(("vendor-token", prefix, rf"\b{re.escape(prefix)}[A-Za-z0-9_\-]{{20,256}}") for prefix in _PREFIXES),
        ("password-in-url", "://", r"(?<=://)[^\s/:@'\"<>]{0,128}:[^\s/:@'\"<>]{3,256}(?=@[A-Za-z0-9\[])"),
        (
            "authorization",
            "uthorization",
            r"(?i)(?<=authorization)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|basic|token)\s{1,4}[A-Za-z0-9._~+/=\-]{8,4096}",
        ),
    )
)

# What a secret is called: `DB_PASSWORD`, `apiKey`, `token_v2`; not `tokenizer` or `author`.
_NAMES = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|token|credentials?|auth|"
    r"(?:api|access|private|secret|signing|encryption)[_\-]?key)"
)
_REST = r"(?:s|[0-9]{1,4}|[_\-][A-Za-z0-9_\-]{0,32}|(?-i:[A-Z][A-Za-z0-9]{0,32}))?(?![A-Za-z0-9])"

# NAME=value where the name says that it is a secret and the value looks like one, not like code that fetches it.
# Quotes may be escaped: text of text. Between quotes any sign may stand.
_ASSIGNED = re.compile(
    rf"(?i)({_NAMES}{_REST}\\{{0,4}}[\"']?\s{{0,4}}(?:=>|=|:)\s{{0,4}}\\{{0,4}})"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\s\"'\\]{8,512})|(?P<bare>[^\s\"',;(){}\[\]<>$\\]{8,512}+(?![(\[])))"
)
_NAMED = re.compile(rf"(?i){_NAMES}{_REST}\Z")
_SHORTEST = 9  # no rule fits less: `://:abc@x`. Most strings of a tool call are as short as that
_ASSIGNED_LITERALS = ("pass", "pwd", "secret", "token", "key", "auth")


def redact(text: str) -> str:
    if len(text) < _SHORTEST:
        return text
    for name, literal, pattern in _RULES:
        if literal in text:
            text = pattern.sub(f"[redacted {name}]", text)
    lower = text.lower() if "=" in text or ":" in text else ""
    if any(literal in lower for literal in _ASSIGNED_LITERALS):
        text = _ASSIGNED.sub(_assigned, text)
    return text


def redact_named(value: Any) -> Any:
    """JSON in which a key says what its value is: `{"password": "…"}` holds no line that says both."""
    if isinstance(value, dict):
        return {key: _under(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_named(item) for item in value]
    return value


def _under(key: Any, item: Any) -> Any:
    if isinstance(item, str) and _NAMED.search(str(key)[-64:]) and len(item) >= 8 and _looks_secret(item):
        return "[redacted]"
    return redact_named(item)


def _assigned(match: re.Match[str]) -> str:
    value = match["quoted"] or match["bare"]
    return f"{match[1]}{match['quote'] or ''}[redacted]" if _looks_secret(value) else match[0]


# What fetches a secret is none: `os.environ`, `boto3.client`, `$(…)`, a path, an address.
_CODE = re.compile(
    r"(?:process|os|env|config|settings|self)\.|\$|https?://|\.{0,2}/|\[redacted|<|\{|"
    r"(?:[A-Za-z_]+[0-9]{0,3}\.)+[A-Za-z_]+[0-9]{0,3}(?:[(\[]|\Z)|[A-Za-z_]+[0-9]{0,3}[(\[]"
)


def _looks_secret(value: str) -> bool:
    """Letters with digits or signs, no spaces, and no shape of code: `abc12345xyz` yes, `os.environ` or `string` no."""
    mixed = any(char.isalpha() for char in value) and not value.replace("_", "").replace("-", "").isalpha()
    return mixed and not any(char.isspace() for char in value) and not _CODE.match(value)
