"""Tokens of devices and enrolment codes. The database has their hashes only.

Both begin with the organisation's id, because without it no row of the database is visible. The secret part has 256
bits (a code: 128), so that a plain SHA-256 is enough and guessing is hopeless.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from uuid import UUID

TOKEN = re.compile(r"cmt_([0-9a-f]{32})_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
CODE = re.compile(r"cme_([0-9a-f]{32})_[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, slots=True)
class TokenParts:
    """The readable parts of a token. They prove nothing until the hash was compared."""

    org_id: UUID
    device: str
    hash: bytes


@dataclass(frozen=True, slots=True)
class CodeParts:
    """The readable part of an enrolment code, and its hash."""

    org_id: UUID
    hash: bytes


def hash_secret(text: str) -> bytes:
    """Return the hash that is stored instead of a token or a code."""
    return hashlib.sha256(text.encode()).digest()


def new_token(org_id: UUID, device: str) -> str:
    """Return a new token of a device."""
    return f"cmt_{org_id.hex}_{device}_{secrets.token_urlsafe(32)}"


def new_code(org_id: UUID) -> str:
    """Return a new enrolment code."""
    return f"cme_{org_id.hex}_{secrets.token_urlsafe(16)}"


def parse_token(text: str) -> TokenParts | None:
    """Return the parts of a token, or None if the text is not one."""
    match = TOKEN.fullmatch(text)
    return TokenParts(UUID(match[1]), match[2], hash_secret(text)) if match else None


def parse_code(text: str) -> CodeParts | None:
    """Return the parts of an enrolment code, or None if the text is not one."""
    match = CODE.fullmatch(text)
    return CodeParts(UUID(match[1]), hash_secret(text)) if match else None


def is_same(one: bytes, other: bytes) -> bool:
    """Compare two hashes in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)
