"""The entries of a device's log: what a device tells the other devices of a space.

An entry is one change of one item. A record states what the item is now; a withdrawal states that the device no longer
has it, until a later version does; a tombstone states that a person deleted it, for ever. Which of two versions of an
item counts is decided by `version_order` alone, so that every device decides alike, in whatever order entries arrive.

The body of an entry is dropped once the memory no longer holds that text: after a later version, a deletion or a
redaction. What remains is an empty body, which `decode_entry` reports as `DROPPED`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Literal

import msgspec

from claude_mem.domain.errors import UnreadableEvent
from claude_mem.domain.export_format import (
    ContentRecord,
    ObservationRecord,
    ProjectRecord,
    SessionRecord,
    Time,
    record_kind,
)

ENTRY_FORMAT = 1
MAX_ENTRY_BYTES = 1_000_000  # of a body; sealed, it must fit into the 1 MB that a server accepts
MAX_VERSION = 1_000_000_000
ITEM_HASH_CHARS = 32
TOMBSTONE_CONTENT = "tombstone"  # in place of the hash of a content
# Reasons of `UnreadableEvent`. An entry of a newer format is kept and read after an upgrade, the others are set aside.
DROPPED, NEWER, BAD = "dropped", "newer format", "bad entry"
_IMPORTED_PROMPT = "import:"  # the prompt id of a turn that got another number when it was imported

ItemHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
EntryHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`at` is the wall clock of the device in ms, which never decides alone. `item` is the keyed hash of the name that
    the item had when it was first shared: a name may quote text, and may differ between machines later. `parents` are
    the hashes of the entries that this one replaces. `erased`: the deletion of a tombstone can't be undone.
    `generation` counts the deletions of the item that were undone: after each, it continues as another item."""

    format: int = ENTRY_FORMAT
    kind: Literal["record", "withdrawal", "tombstone"]
    at: Time
    item: ItemHash
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
    parents: Annotated[tuple[EntryHash, ...], msgspec.Meta(max_length=100)] = ()
    generation: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    erased: bool = False
    record: ContentRecord | None = None

    def __post_init__(self) -> None:
        if (self.record is not None) != (self.kind == "record"):
            raise ValueError("a record has content; a withdrawal and a tombstone have none")


class _EntryFormat(msgspec.Struct):
    format: int


_ENCODE = msgspec.json.Encoder()
_DECODE: msgspec.json.Decoder[LogEntry] = msgspec.json.Decoder(LogEntry)
_DECODE_FORMAT: msgspec.json.Decoder[_EntryFormat] = msgspec.json.Decoder(_EntryFormat)


def encode_entry(entry: LogEntry) -> bytes:
    """Encode an entry as the body that is sealed and sent."""
    return _ENCODE.encode(entry)


def decode_entry(raw: bytes) -> LogEntry:
    """Decode a body. Raises `UnreadableEvent` with `DROPPED`, `NEWER` or `BAD` as its reason."""
    if not raw:
        raise UnreadableEvent(DROPPED)
    if len(raw) > MAX_ENTRY_BYTES:
        raise UnreadableEvent(BAD, "larger than an entry may be")
    try:
        if _DECODE_FORMAT.decode(raw).format > ENTRY_FORMAT:
            raise UnreadableEvent(NEWER)
        return _DECODE.decode(raw)
    except RecursionError:
        raise UnreadableEvent(BAD, "nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableEvent(BAD, str(error)) from error


def entry_hash(body: bytes) -> str:
    """Return the hash by which a later entry names the one it replaces."""
    return hashlib.sha256(body).hexdigest()


def content_hash(record: ContentRecord) -> str:
    """Return the hash of what a record says. Two machines that read the same transcript have the same."""
    times = {name: 0 for name in ("updated_at", "last_event_at") if name in record.__struct_fields__}
    text = _ENCODE.encode(msgspec.structs.replace(record, **times))
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def item_name(record: ContentRecord) -> str:
    """Return the name of a record that is the same on every machine. A turn is named by the agent's id of its prompt,
    where there is one: its number may differ."""
    kind = record_kind(record)
    if isinstance(record, ProjectRecord):
        return f"project:{record.project}"
    if isinstance(record, SessionRecord):
        return session_name(record.host, record.session)
    if record.host is None or record.session is None:
        assert isinstance(record, ObservationRecord)
        return f"saved:{record.key}"
    turn = (record.prompt_id or str(record.prompt_number)).removeprefix(_IMPORTED_PROMPT)
    key = record.key if isinstance(record, ObservationRecord) else ""
    return _join(kind, record.host, record.session, turn) + (f":{key}" if key else "")


def session_name(host: str, session: str) -> str:
    """Return the name of a session."""
    return _join("session", host, session)


def hash_item(item_key: bytes, item: str, generation: int = 0) -> str:
    """Return the keyed hash of an item's name, by which a tombstone names it.

    The key is derived from the first key of the space and stays the same when the space gets another key.
    """
    text = f"{generation}\0{item}".encode("utf-8", "surrogatepass")
    return hmac.digest(item_key, text, "sha256")[: ITEM_HASH_CHARS // 2].hex()


def version_order(version: int, at: int, device: str) -> tuple[int, int, str]:
    """Return the sort key of versions of an item: the highest counts."""
    return version, at, device


def _join(*parts: str) -> str:
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)
