"""Replaces what looks like a secret before it is stored anywhere.

Literal first: a rule is tried only where its literal occurs, and every pattern has bounded repeats behind that
literal, so the time grows with the text alone. This is the first line of defence, with the formats met most
often.
"""

from __future__ import annotations

import re

_END = r"(?![A-Za-z0-9_\-])"

# (what it is, a literal that must occur for the pattern to be tried, the pattern)
_RULES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (name, literal, re.compile(pattern))
    for name, literal, pattern in (
        ("anthropic-key", "sk-ant-", r"\bsk-ant-[A-Za-z0-9_\-]{16,256}"),
        ("openai-key", "sk-", r"\bsk-(?!ant-)[A-Za-z0-9_\-]{20,256}"),
        ("aws-key-id", "A", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}" + _END),
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
        ("jwt", "eyJ", r"\beyJ[A-Za-z0-9_\-]{8,4096}\.eyJ[A-Za-z0-9_\-]{8,8192}\.[A-Za-z0-9_\-]{8,4096}"),
        (
            "private-key",
            "-----BEGIN ",
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[^\x00]{0,16384}?(?:-----END [A-Z ]{0,32}KEY-----|\Z)",
        ),
        ("password-in-url", "://", r"(?<=://)[^\s/:@'\"<>]{0,128}:[^\s/:@'\"<>]{3,256}(?=@[A-Za-z0-9\[])"),
        (
            "authorization",
            "uthorization",
            r"(?i)(?<=authorization)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:bearer|basic|token)\s{1,4}[A-Za-z0-9._~+/=\-]{8,4096}",
        ),
    )
)

# NAME=value where the name says that it is a secret and the value looks like one, not like code that fetches it.
_ASSIGNED = re.compile(
    r"(?i)((?:password|passwd|pwd|secret|token|api_?key|access_?key|private_?key|client_?secret|auth(?!or))[a-z0-9_\-]{0,32}"
    r"[\"']?\s{0,4}(?:=|:|=>)\s{0,4}[\"']?)([^\s\"',;(){}\[\]<>$]{8,256})"
)
_ASSIGNED_LITERALS = ("pass", "pwd", "secret", "token", "key", "auth")


def redact(text: str) -> str:
    for name, literal, pattern in _RULES:
        if literal in text:
            text = pattern.sub(f"[redacted {name}]", text)
    lower = text.lower() if "=" in text or ":" in text else ""
    if any(literal in lower for literal in _ASSIGNED_LITERALS):
        text = _ASSIGNED.sub(_assigned, text)
    return text


def _assigned(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    return f"{name}[redacted]" if _looks_secret(value) else match[0]


_CODE = re.compile(
    r"(?:process|os|env|config|settings|self)\.|\$|https?://|\.{0,2}/|\[redacted|[A-Za-z_]\w*\.[A-Za-z_]"
)


def _looks_secret(value: str) -> bool:
    """Letters with digits or signs, and no shape of code: `abc12345xyz` yes, `os.environ` or `string` no."""
    mixed = any(char.isalpha() for char in value) and not value.replace("_", "").replace("-", "").isalpha()
    return mixed and not _CODE.match(value)
