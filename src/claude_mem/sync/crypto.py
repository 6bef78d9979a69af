"""The cryptography of spaces, from the libraries of the extra `sync`. Without them, the import says how to get them."""

from __future__ import annotations

from claude_mem.domain.errors import OperationFailed

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from mnemonic import Mnemonic
except ImportError as error:
    raise OperationFailed(
        "spaces need the extra `sync`, which is not installed",
        hint="install it with `pip install 'claude-mem-py[sync]'`, then restart the worker: `claude-mem restart`",
    ) from error

__all__ = [
    "KEY_BYTES",
    "NONCE",
    "ChaCha20Poly1305",
    "Ed25519PrivateKey",
    "Ed25519PublicKey",
    "InvalidSignature",
    "InvalidTag",
    "Mnemonic",
    "X25519PrivateKey",
    "X25519PublicKey",
    "derive_key",
]

KEY_BYTES = 32
NONCE = bytes(12)  # constant, because each key is used once


def derive_key(key: bytes, info: bytes, salt: bytes | None = None) -> bytes:
    """Return a key for one purpose."""
    return HKDF(SHA256(), KEY_BYTES, salt, info).derive(key)
