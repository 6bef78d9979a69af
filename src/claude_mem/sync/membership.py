"""Create a space, find one at a transport, and join it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.storage.spaces import Space
from claude_mem.sync import manifest as manifests
from claude_mem.sync.errors import Conflict, Revoked, WrongKey
from claude_mem.sync.git_remote import GitRemote
from claude_mem.sync.keys import (
    FOLDER,
    SpaceKeys,
    create_keys,
    forget_enrolment,
    key_id,
    load_enrolment,
    save_enrolment,
    save_keys,
)
from claude_mem.sync.manifest import Envelope
from claude_mem.sync.state import SpaceState, save_state
from claude_mem.sync.transports.address import open_for, open_transport
from claude_mem.sync.transports.server import ServerTransport

MAX_NAME_CHARS = 80
MAX_CANDIDATES = 50
SPACE_ID_CHARS = 32
_NAME_THE_SPACE = "the address of a server must name the space"
_ADDRESS = "use the address that `create` printed, with its #…"


@dataclass(frozen=True, slots=True)
class FoundSpace:
    """A space at a transport, as its manifest shows it to anyone."""

    url: str
    envelope: Envelope
    raw: bytes


def default_machine_name() -> str:
    """Return the name of this machine, without its domain."""
    return (socket.gethostname().partition(".")[0] or "machine")[:MAX_NAME_CHARS]


def create_space(data_dir: Path, space_id: str, name: str, url: str, *, machine: str, code: str = "") -> Space:
    """Write the keys of a new space here and its first manifest to the transport. Blocks. Return the row to store."""
    keys = create_keys(space_id, name, machine)
    transport = open_transport(url, data_dir, keys)
    if isinstance(transport, ServerTransport):
        transport.close()
        keys.token = transport.enrol(code, device=keys.device, name=machine)
        transport = ServerTransport(url, space_id, keys.token)
        transport.create_space(space_id)
    try:
        manifest = manifests.create(keys, now=ids.now_ms())
        raw = manifests.encode(manifest, machine)
        save_keys(data_dir, keys)  # first: without the key, the space could not be used again
        try:
            transport.write_manifest(raw, expected=None)
        except Conflict:
            raise InvalidRequest(
                "there is a space in this place already", hint="join it, or use another place"
            ) from None
        save_state(data_dir, space_id, SpaceState(manifest=raw))
    finally:
        transport.close()
    return space_of(keys, url)


def space_of(keys: SpaceKeys, url: str) -> Space:
    """Return the row of a space whose keys are here."""
    return Space(
        id=keys.space,
        name=keys.name,
        kind="personal",
        device=keys.device,
        transport=url,
        epoch=keys.epoch,
        created_at=ids.now_ms(),
    )


# --- joining ---------------------------------------------------------------------------------------------------------


def find_spaces(url: str, data_dir: Path, *, keys: SpaceKeys | None = None) -> list[FoundSpace]:
    """Return the spaces at an address. Blocks. `keys`: for a server, which only answers a device that has a token."""
    base, _, space_id = url.partition("#")
    candidates = []
    for space in [space_id] if space_id else _list_ids(base, data_dir):
        transport = open_for(base, data_dir, check_id(space), keys.token if keys else "")
        try:
            if manifest := transport.read_manifest():
                candidates.append(FoundSpace(base, manifests.read_envelope(manifest[0]), manifest[0]))
        finally:
            transport.close()
    if not candidates:
        raise NotFound(f"there is no space at {base}", hint="create one: `claude-mem space create NAME --at URL`")
    return candidates


def check_id(space: str) -> str:
    """Return the id of a space, or raise an error if it is none. It becomes part of paths and URLs."""
    if len(space) != SPACE_ID_CHARS or not set(space) <= set("0123456789abcdef"):
        raise InvalidRequest(f"{space[:40]!r} is not the id of a space", hint="use the address that `create` printed")
    return space


def _list_ids(url: str, data_dir: Path) -> list[str]:
    """Return the ids of the spaces at an address; those of a server are not refs."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        names = [path.name.removeprefix("claude-mem-") for path in folder.glob("claude-mem-*") if path.is_dir()]
    elif parts.scheme.startswith("git+"):
        names = _list_branches(url, data_dir)
    else:
        raise InvalidRequest(_NAME_THE_SPACE, hint=_ADDRESS)
    return sorted(name for name in names if len(name) == SPACE_ID_CHARS and set(name) <= set("0123456789abcdef"))[
        :MAX_CANDIDATES
    ]


def _list_branches(url: str, data_dir: Path) -> list[str]:
    parts = urlsplit(url)
    address = unquote(parts.path) if parts.scheme == "git+file" else url.removeprefix("git+")
    git = GitRemote(data_dir / FOLDER, address)
    refs = git.run_remote("ls-remote", "--quiet", "--", address, "refs/heads/claude-mem/*", in_repo=False)
    return [line.rpartition("/")[2] for line in refs.decode("ascii", "replace").splitlines()]


def choose_space(candidates: Sequence[FoundSpace], key: bytes) -> FoundSpace:
    """Return the space that this key opens, or raise an error that names the machine with the right one."""
    for candidate in candidates:
        if (key_id(key, candidate.envelope.space),) == candidate.envelope.key_ids[-1:]:
            return candidate
    older = [
        candidate for candidate in candidates if key_id(key, candidate.envelope.space) in candidate.envelope.key_ids
    ]
    writers = ", ".join(sorted({repr(candidate.envelope.writer) for candidate in older or candidates}))
    text = "the recovery phrase is from before the key was replaced" if older else "the recovery phrase does not fit"
    raise WrongKey(
        f"{text}; the machine {writers} has the right one",
        hint="run `claude-mem space phrase` there; nothing was uploaded",
        machine=(older or list(candidates))[0].envelope.writer,
    )


def join_space(data_dir: Path, url: str, key: bytes, *, machine: str, code: str = "") -> Space:
    """Check the key against the manifest and write the keys of this machine. Blocks. Nothing is uploaded: the first
    exchange adds this machine to the manifest. Return the row to store."""
    keys = _enrol(data_dir, url, machine, code) if is_server(url) else create_keys("", "", machine)
    try:
        candidate = choose_space(find_spaces(url, data_dir, keys=keys), key)
    except Revoked:  # a token from an earlier attempt, which was revoked since: the next attempt needs a new code
        forget_enrolment(data_dir, keys.space)
        raise
    keys.space, keys.epochs = candidate.envelope.space, {candidate.envelope.epoch: key}
    manifest = manifests.decode(candidate.raw, keys)
    keys.name, keys.epochs = manifest.name, dict(manifest.keys)
    save_keys(data_dir, keys)
    forget_enrolment(data_dir, keys.space)
    save_state(data_dir, keys.space, SpaceState(manifest=candidate.raw))
    return space_of(keys, candidate.url)


def is_server(url: str) -> bool:
    """Return whether the space is at a server, which gives out a one-time code for each machine."""
    return urlsplit(url).scheme in ("http", "https")


def _enrol(data_dir: Path, url: str, machine: str, code: str) -> SpaceKeys:
    """Return keys with a token of the server. They are kept, so that a wrong phrase does not cost another code."""
    base, _, space_id = url.partition("#")
    if keys := find_enrolment(data_dir, url):
        keys.device_name = machine
        return keys
    keys = create_keys(check_id(space_id), "", machine)
    keys.epochs = {}
    with closing(ServerTransport(base, space_id, "")) as server:
        keys.token = server.enrol(code, device=keys.device, name=machine)
    save_enrolment(data_dir, base, keys)
    return keys


def find_enrolment(data_dir: Path, url: str) -> SpaceKeys | None:
    """Return the keys of an attempt to join that got a token from this server, but did not have the right phrase."""
    base, mark, space_id = url.partition("#")
    if not mark:
        raise InvalidRequest(_NAME_THE_SPACE, hint=_ADDRESS)
    return load_enrolment(data_dir, base, check_id(space_id))
