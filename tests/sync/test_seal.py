"""Sealed entries, keys and the list of machines: what was changed, moved or forged is refused, and the error says what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.sync import keys as keyring
from claude_mem.sync import manifest as manifests
from claude_mem.sync import seal
from claude_mem.sync.errors import ForeignSpace, Forged, NewerFormat, Reordered, Revoked, TwoWriters, WrongKey
from claude_mem.sync.keys import SpaceKeys, create_keys
from claude_mem.sync.manifest import Manifest

SPACE, OTHER = "5a" * 16, "6b" * 16
BODY = b'{"kind":"record","title":"the WAL grew because a reader never closed"}'


def place(index: int = 1, previous: bytes = seal.START, space: str = SPACE, device: str = "d1" * 8) -> seal.Place:
    return seal.Place(space, device, index, previous)


def seal_for(keys: SpaceKeys, where: seal.Place, body: bytes = BODY) -> bytes:
    return seal.seal(where, body, epoch=keys.epoch, key=keys.key, signing_key=keys.signing_key)


def opened(keys: SpaceKeys, where: seal.Place, sealed: bytes) -> bytes:
    return seal.open_(where, sealed, keys=keys.epochs, public_key=keys.signing_public(), machine="laptop")


@pytest.fixture(scope="module")
def keys() -> SpaceKeys:
    return create_keys(SPACE, "mine", "laptop")


@pytest.mark.parametrize("size", [0, 1, 251, 252, 253, 1_000, 70_000, seal.MAX_BODY_BYTES])
def test_an_entry_comes_back_and_its_length_is_that_of_a_class(keys: SpaceKeys, size: int) -> None:
    sealed = seal_for(keys, place(), b"x" * size)
    assert opened(keys, place(), sealed) == b"x" * size
    assert len(sealed) <= seal.MAX_SEALED_BYTES
    assert len(sealed) == len(seal_for(keys, place(), b"x" * min(size + 1, seal.MAX_BODY_BYTES))) or size in (
        252,
        70_000,
    )


def test_what_is_too_large_is_not_sealed(keys: SpaceKeys) -> None:
    with pytest.raises(OperationFailed, match="too large"):
        seal_for(keys, place(), b"x" * (seal.MAX_BODY_BYTES + 1))


def test_the_same_entry_is_never_sealed_alike_and_shows_no_text(keys: SpaceKeys) -> None:
    first, second = (seal_for(keys, place()) for _ in range(2))
    assert first[105:-64] != second[105:-64]
    assert b"WAL" not in first


def test_every_flipped_byte_is_refused(keys: SpaceKeys) -> None:
    sealed = seal_for(keys, place())
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(OperationFailed):
            opened(keys, place(), bytes(changed))


@pytest.mark.parametrize("end", [0, 3, 104, 300])
def test_a_cut_or_extended_entry_is_refused(keys: SpaceKeys, end: int) -> None:
    sealed = seal_for(keys, place())
    for changed in (sealed[:end], sealed[:-1], sealed + b"\0"):
        with pytest.raises(Forged):
            opened(keys, place(), changed)


def test_reordered_repeated_retagged_and_foreign_entries_are_told_apart(keys: SpaceKeys) -> None:
    first = seal_for(keys, place())
    second = seal_for(keys, place(2, seal.hash_sealed(first)))
    third = seal_for(keys, place(3, seal.hash_sealed(second)))
    after_first = place(2, seal.hash_sealed(first))
    assert opened(keys, after_first, second) == BODY
    with pytest.raises(Reordered, match="entry 2 of laptop was repeated: entry 1 is in its place"):
        opened(keys, after_first, first)
    with pytest.raises(Reordered, match="entry 2 of laptop is missing: entry 3 is in its place"):
        opened(keys, after_first, third)
    with pytest.raises(Forged, match="another machine"):
        opened(keys, place(device="d2" * 8), first)
    with pytest.raises(ForeignSpace):
        opened(keys, place(space=OTHER), first)
    other_second = seal_for(keys, place(2, seal.hash_sealed(seal_for(keys, place()))))
    with pytest.raises(TwoWriters, match="two machines write as this one") as caught:
        opened(keys, after_first, other_second)
    assert caught.value.machine == "laptop"


def test_a_member_cannot_write_in_the_name_of_another(keys: SpaceKeys) -> None:
    other = create_keys(SPACE, "mine", "desktop", key=keys.key)
    with pytest.raises(Forged):
        opened(keys, place(), seal_for(other, place()))


def test_another_key_and_a_newer_format_are_named(keys: SpaceKeys) -> None:
    sealed = seal_for(keys, place())
    with pytest.raises(WrongKey):
        seal.open_(place(), sealed, keys={1: bytes(32)}, public_key=keys.signing_public())
    with pytest.raises(WrongKey):
        seal.open_(place(), sealed, keys={2: keys.key}, public_key=keys.signing_public())
    with pytest.raises(NewerFormat):
        opened(keys, place(), sealed[:4] + b"\2" + sealed[5:])


# --- keys ------------------------------------------------------------------------------------------------------------


def test_the_phrase_of_24_words_is_the_key(keys: SpaceKeys) -> None:
    phrase = keyring.phrase_of(keys.key)
    assert len(phrase.split()) == 24
    assert keyring.key_of_phrase(f"  {phrase.upper()}\n") == keys.key


def test_a_mistyped_phrase_is_named() -> None:
    words = keyring.phrase_of(bytes(range(32))).split()
    with pytest.raises(InvalidRequest, match="24 words, not 23"):
        keyring.key_of_phrase(" ".join(words[:-1]))
    with pytest.raises(InvalidRequest, match="word 3 is not"):
        keyring.key_of_phrase(" ".join([*words[:2], "claudemem", *words[3:]]))
    swapped = [words[1], words[0], *words[2:]]
    with pytest.raises(InvalidRequest, match="checksum"):
        keyring.key_of_phrase(" ".join(swapped))


def test_keys_are_in_a_private_file_and_survive_a_change_of_device(tmp_path: Path, keys: SpaceKeys) -> None:
    keyring.save_keys(tmp_path, keys)
    path = keyring.key_path(tmp_path, SPACE)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert keyring.load_keys(tmp_path, SPACE) == keys
    fresh = create_keys(SPACE, "mine", "laptop")
    keyring.save_keys(tmp_path, fresh, is_next=True)
    assert keyring.load_device_keys(tmp_path, SPACE, keys.device) == keys
    assert keyring.load_device_keys(tmp_path, SPACE, fresh.device) == fresh
    assert keyring.load_keys(tmp_path, SPACE) == fresh
    with pytest.raises(OperationFailed, match="those of device"):
        keyring.load_device_keys(tmp_path, SPACE, "00" * 8)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 2000])
def test_a_damaged_or_missing_key_file_says_how_to_get_it_back(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(NotFound) as missing:
        keyring.load_keys(tmp_path, SPACE)
    assert "space join" in missing.value.hint
    keyring.key_path(tmp_path, SPACE).parent.mkdir()
    keyring.key_path(tmp_path, SPACE).write_bytes(content)
    with pytest.raises(OperationFailed) as damaged:
        keyring.load_keys(tmp_path, SPACE)
    assert "space join" in damaged.value.hint


def test_without_the_extra_the_error_has_the_install_command() -> None:
    """In a process of its own: modules that are imported a second time here would be others than the first."""
    probe = """
import sys
from claude_mem.domain.errors import OperationFailed
sys.modules["mnemonic"] = None
try:
    import claude_mem.sync.keys
except OperationFailed as problem:
    print(problem.hint)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "pip install 'claude-mem-py[sync]'" in done.stdout


# --- the list of machines --------------------------------------------------------------------------------------------


def joined(manifest: Manifest, name: str, key: bytes | None = None) -> tuple[Manifest, SpaceKeys]:
    member = create_keys(SPACE, "mine", name, key=key or manifest.keys[manifest.epoch], epoch=manifest.epoch)
    return manifests.join(manifest, member, now=2), member


@pytest.fixture
def laptop() -> SpaceKeys:
    return create_keys(SPACE, "mine", "laptop")


def test_machines_join_and_everyone_reads_the_same_list(laptop: SpaceKeys) -> None:
    manifest, desktop = joined(manifests.create(laptop, now=1), "desktop")
    raw = manifests.encode(manifest, "desktop")
    for reader in (laptop, desktop):
        seen = manifests.decode(raw, reader)
        assert [member.name for member in seen.members.values()] == ["laptop", "desktop"]
    assert manifests.continues(manifest, manifests.create(laptop, now=1))
    assert not manifests.continues(manifests.create(laptop, now=1), manifest)
    assert b"mine" not in raw
    assert b"laptop" not in raw  # only the writer's name is in the clear


def test_the_wrong_key_names_the_machine_that_has_the_right_one(laptop: SpaceKeys) -> None:
    raw = manifests.encode(manifests.create(laptop, now=1), "laptop")
    stranger = create_keys(SPACE, "", "desktop")
    with pytest.raises(WrongKey, match="the machine 'laptop' has the right one") as caught:
        manifests.decode(raw, stranger)
    assert caught.value.machine == "laptop"
    with pytest.raises(ForeignSpace):
        manifests.decode(raw, create_keys(OTHER, "", "desktop", key=laptop.key))


def test_a_revoked_machine_cannot_read_the_new_key_and_the_others_can(laptop: SpaceKeys) -> None:
    manifest, desktop = joined(manifests.create(laptop, now=1), "desktop")
    manifest, tablet = joined(manifest, "tablet")
    changed = manifests.rotate(manifest, laptop, revoked=tablet.device, last_index=7, now=3)
    raw = manifests.encode(changed, "laptop")
    seen = manifests.decode(raw, desktop)
    assert (seen.epoch, seen.keys[1], len(seen.keys[2])) == (2, desktop.key, 32)
    assert (seen.members[tablet.device].is_active, seen.members[tablet.device].last_index) == (False, 7)
    with pytest.raises(Revoked) as caught:
        manifests.decode(raw, tablet)
    assert caught.value.machine == "laptop"
    newcomer = create_keys(SPACE, "", "phone", key=seen.keys[2], epoch=2)
    assert manifests.decode(raw, newcomer).keys[1] == laptop.key  # and with it everything older


def test_every_flipped_byte_of_a_manifest_is_refused(laptop: SpaceKeys) -> None:
    raw = manifests.encode(manifests.create(laptop, now=1), "laptop")
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        with pytest.raises(OperationFailed):
            if manifests.decode(bytes(changed), laptop):
                pytest.fail(f"byte {at} can be changed: {raw[max(0, at - 20) : at + 20]!r}")


def _tampered(manifest: Manifest, number: int, **fields: Any) -> Manifest:
    changes = list(manifest.changes)
    changes[number] = msgspec.structs.replace(changes[number], **fields)
    return Manifest(manifest.space, manifest.name, tuple(changes), manifest.keys, manifest.members)


def test_changes_that_no_machine_made_are_refused(laptop: SpaceKeys) -> None:
    manifest, desktop = joined(manifests.create(laptop, now=1), "desktop")
    changed = manifests.rotate(manifest, laptop, revoked=desktop.device, last_index=7, now=3)
    assert manifests.verify(changed).members == changed.members
    for bad in (
        _tampered(changed, 1, name="laptop 2"),
        _tampered(changed, 2, last_index=9),
        _tampered(changed, 2, device=laptop.device),
        Manifest(SPACE, "mine", changed.changes[1:], changed.keys),
        Manifest(SPACE, "mine", (changed.changes[0], changed.changes[2]), changed.keys),
    ):
        with pytest.raises(Forged):
            manifests.verify(bad)


def test_who_does_not_know_the_key_or_was_removed_cannot_change_the_list(laptop: SpaceKeys) -> None:
    manifest, desktop = joined(manifests.create(laptop, now=1), "desktop")
    changed = manifests.rotate(manifest, laptop, revoked=desktop.device, last_index=0, now=3)
    with pytest.raises(Forged):
        manifests.rotate(changed, desktop, now=4)
    with pytest.raises(Forged):
        manifests.rotate(changed, desktop, revoked=laptop.device, now=4)
    stranger = create_keys(SPACE, "mine", "stranger")
    forged = Manifest(SPACE, "mine", manifest.changes, {1: stranger.key}, manifest.members)
    with pytest.raises(Forged):
        manifests.verify(Manifest(SPACE, "mine", _self_added(forged, stranger), manifest.keys))


def _self_added(manifest: Manifest, stranger: SpaceKeys) -> tuple[manifests.Change, ...]:
    """The changes with a joining that was proved with a key of the stranger's own."""
    own = manifests.create(stranger, now=1).changes[0]
    return (*manifest.changes, own)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b'{"format":1}', b"[" * 5000, b"x" * (2 << 20)])
def test_garbage_in_place_of_a_manifest_is_refused(laptop: SpaceKeys, raw: bytes) -> None:
    with pytest.raises(Forged):
        manifests.decode(raw, laptop)


def test_a_manifest_of_a_newer_version_is_named(laptop: SpaceKeys) -> None:
    with pytest.raises(NewerFormat):
        manifests.decode(b'{"format":2,"new":true}', laptop)


def test_keys_are_not_in_what_is_printed_or_logged(laptop: SpaceKeys) -> None:
    for value in (laptop, manifests.create(laptop, now=1)):
        assert repr(laptop.key) not in repr(value)
        assert repr(laptop.signing_key) not in repr(value)
