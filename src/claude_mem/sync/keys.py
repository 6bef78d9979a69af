"""The keys of a space on this machine, and the recovery phrase.

They are in one file per space that only its owner can read, not in the database: a backup or an export does not contain
them. The recovery phrase is the current key of the space in 24 words of the BIP-39 list, whose checksum finds a word
that was mistyped.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from claude_mem import hook
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.sync.crypto import (
    KEY_BYTES,
    NONCE,
    ChaCha20Poly1305,
    Ed25519PrivateKey,
    InvalidTag,
    Mnemonic,
    X25519PrivateKey,
    X25519PublicKey,
    derive_key,
)
from claude_mem.sync.segments import read_plain_file
from claude_mem.system.spool import sync_directory, write_private
from claude_mem.system.untrusted_files import is_owned_by_user_or_root

FOLDER = "spaces"
WORDS = 24
NEXT = ".next"
MAX_KEY_FILE_BYTES = 1 << 20


class SpaceKeys(msgspec.Struct, kw_only=True):
    """What this machine holds of a space: the keys of all epochs that it knows, and its own two keys."""

    format: int = 1
    space: str
    name: str
    device: str
    device_name: str
    epochs: dict[int, bytes]
    signing_key: bytes
    exchange_key: bytes
    token: str = ""  # for the server, if the transport is one
    token_device: str = ""  # whose token it is, while this machine has no token yet under a new id; "": its own

    def __repr__(self) -> str:
        return f"<keys of {self.device_name!r} for space {self.space[:8]}>"  # for logs and tracebacks

    @property
    def epoch(self) -> int:
        """The newest epoch whose key this machine has."""
        return max(self.epochs)

    @property
    def key(self) -> bytes:
        """The newest key."""
        return self.epochs[self.epoch]

    def signing_public(self) -> bytes:
        """Return the public key that verifies this device's signatures."""
        return Ed25519PrivateKey.from_private_bytes(self.signing_key).public_key().public_bytes_raw()

    def exchange_public(self) -> bytes:
        """Return the public key with which new keys are wrapped for this device."""
        return X25519PrivateKey.from_private_bytes(self.exchange_key).public_key().public_bytes_raw()


def create_keys(space: str, name: str, device_name: str, *, epoch: int = 1, key: bytes | None = None) -> SpaceKeys:
    """Return the keys of a new device. `key`: of the space, a new one if not given."""
    return SpaceKeys(
        space=space,
        name=name,
        device=os.urandom(8).hex(),
        device_name=device_name,
        epochs={epoch: key or os.urandom(KEY_BYTES)},
        signing_key=os.urandom(32),
        exchange_key=os.urandom(32),
    )


_DECODE = msgspec.json.Decoder(SpaceKeys)  # made at import: two threads that first decode a type at once crash msgspec


# --- the file --------------------------------------------------------------------------------------------------------


def key_path(data_dir: Path, space: str) -> Path:
    """Return the path of the keys of a space."""
    return data_dir / FOLDER / f"{space}.key"


def save_keys(data_dir: Path, keys: SpaceKeys, *, is_next: bool = False) -> None:
    """Write the keys so that they survive a power failure. Only this user can read them. `is_next`: they are those of a
    device id that the database does not have yet."""
    hook.make_private_dir(str(data_dir / FOLDER))
    path = key_path(data_dir, keys.space)
    write_private(path.with_suffix(NEXT) if is_next else path, msgspec.json.encode(keys), sync=True)
    sync_directory(data_dir / FOLDER)


def load_device_keys(data_dir: Path, space: str, device: str) -> SpaceKeys:
    """Return the keys of the device that the database names. A change of the device id may have been cut off."""
    keys = load_keys(data_dir, space)
    if keys.device == device:
        return keys
    path = key_path(data_dir, space)
    with suppress(OSError):
        next_keys = _read_keys(path.with_suffix(NEXT), space)
        if next_keys.device == device:
            path.with_suffix(NEXT).replace(path)
            return next_keys
    raise OperationFailed(
        f"the keys in {path} are those of device {keys.device}, but this machine is {device} in its database",
        hint="restore them together, or run `claude-mem space leave` and join again",
    )


def load_keys(data_dir: Path, space: str) -> SpaceKeys:
    """Return the keys of a space, or raise an error that says how to get them back."""
    path = key_path(data_dir, space)
    try:
        return _read_keys(path, space)
    except FileNotFoundError:
        raise NotFound(f"the keys of space {space[:8]} are not on this machine", hint=_REJOIN) from None
    except OSError as error:
        raise OperationFailed(f"{path} can't be read: {error.strerror}", hint=_REJOIN) from error


def _read_keys(path: Path, space: str) -> SpaceKeys:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not is_owned_by_user_or_root(path):
            raise OperationFailed(f"{path} belongs to another user", hint=_REJOIN)
        raw = file.read(MAX_KEY_FILE_BYTES)
    try:
        keys = _DECODE.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationFailed(f"{path} is damaged: {error}", hint=_REJOIN) from error
    sizes = {len(keys.signing_key), len(keys.exchange_key), *map(len, keys.epochs.values())}
    if keys.space != space or sizes != {KEY_BYTES}:
        raise OperationFailed(f"{path} is damaged", hint=_REJOIN)
    return keys


_REJOIN = "run `claude-mem space leave`, then join again with the recovery phrase: `claude-mem space join URL`"


class _Enrolment(msgspec.Struct):
    server: str
    keys: SpaceKeys


_DECODE_ENROLMENT = msgspec.json.Decoder(_Enrolment)


def _enrolment_path(data_dir: Path, space: str) -> Path:
    return data_dir / FOLDER / f"{space}.joining"


def save_enrolment(data_dir: Path, server: str, keys: SpaceKeys) -> None:
    """Keep the token that a server has given until this machine has joined. Only this user can read it."""
    hook.make_private_dir(str(data_dir / FOLDER))
    raw = msgspec.json.encode(_Enrolment(server, keys))
    write_private(_enrolment_path(data_dir, keys.space), raw, sync=True)


def load_enrolment(data_dir: Path, server: str, space: str) -> SpaceKeys | None:
    """Return what was kept for this space at this server, or None. A token is never sent to another server."""
    raw = read_plain_file(_enrolment_path(data_dir, space), MAX_KEY_FILE_BYTES)
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        enrolment = _DECODE_ENROLMENT.decode(raw or b"")
        return enrolment.keys if (enrolment.server, enrolment.keys.space) == (server, space) else None
    return None


def forget_enrolment(data_dir: Path, space: str) -> None:
    """Delete what was kept."""
    _enrolment_path(data_dir, space).unlink(missing_ok=True)


# --- the recovery phrase ---------------------------------------------------------------------------------------------


def phrase_of(key: bytes) -> str:
    """Return the recovery phrase of a key."""
    return Mnemonic("english").to_mnemonic(key)


def key_of_phrase(phrase: str) -> bytes:
    """Return the key of a recovery phrase, or raise an error that names what is wrong with it."""
    words = phrase.lower().split()
    if len(words) != WORDS:
        raise InvalidRequest(f"a recovery phrase has {WORDS} words, not {len(words)}", hint=_SHOW)
    language = Mnemonic("english")
    vocabulary = set(language.wordlist)
    for number, word in enumerate(words, start=1):
        if word not in vocabulary:
            raise InvalidRequest(f"word {number} is not a word of recovery phrases", hint=_SHOW)
    if not language.check(" ".join(words)):
        raise InvalidRequest("the recovery phrase is mistyped: its checksum is wrong", hint=_SHOW)
    return bytes(language.to_entropy(words))


_SHOW = "`claude-mem space phrase` shows it on a machine that belongs to the space"


# --- keys of epochs --------------------------------------------------------------------------------------------------


def key_id(key: bytes, space: str) -> str:
    """Return an id by which a key can be compared without being known."""
    return derive_key(key, b"claude-mem key id " + space.encode())[:8].hex()


def item_key(keys: SpaceKeys) -> bytes:
    """Return the key of the hashes by which tombstones name items. It stays the same when the space gets a new key."""
    return derive_key(keys.epochs[1], b"claude-mem item")


def wrap_for_device(key: bytes, exchange_public: bytes, context: bytes) -> bytes:
    """Encrypt a key so that only the holder of this exchange key can read it."""
    ephemeral = X25519PrivateKey.generate()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(exchange_public))
    public = ephemeral.public_key().public_bytes_raw()
    wrapping = derive_key(shared, b"claude-mem wrap", public + exchange_public)
    return public + ChaCha20Poly1305(wrapping).encrypt(NONCE, key, context)


def unwrap_for_device(wrapped: bytes, exchange_key: bytes, context: bytes) -> bytes | None:
    """Return the key that was wrapped for this device, or None if it was not."""
    own = X25519PrivateKey.from_private_bytes(exchange_key)
    public = wrapped[:32]
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(public))
        wrapping = derive_key(shared, b"claude-mem wrap", public + own.public_key().public_bytes_raw())
        return ChaCha20Poly1305(wrapping).decrypt(NONCE, wrapped[32:], context)
    except (InvalidTag, ValueError):
        return None


def wrap_older(key: bytes, newer: bytes, context: bytes) -> bytes:
    """Encrypt the key of an epoch with the key of the next one."""
    salt = os.urandom(32)
    return salt + ChaCha20Poly1305(derive_key(newer, b"claude-mem older key", salt)).encrypt(NONCE, key, context)


def unwrap_older(wrapped: bytes, newer: bytes, context: bytes) -> bytes | None:
    """Return the key of the epoch before, or None if `newer` does not fit."""
    try:
        cipher = ChaCha20Poly1305(derive_key(newer, b"claude-mem older key", wrapped[:32]))
        return cipher.decrypt(NONCE, wrapped[32:], context)
    except (InvalidTag, ValueError):
        return None
