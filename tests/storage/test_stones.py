"""What keeps the forgotten away outlives torn writes, flipped bits and repairs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.config import load
from claude_mem.domain import ids
from claude_mem.storage.records import Tombstone
from claude_mem.storage.sqlite.deletion import keyed_hash, tombstones
from claude_mem.system.spool import append_private
from claude_mem.worker import startup
from claude_mem.worker.app import Service
from tests.storage.test_forget import WORD, audited, digest, forget, found, spool_session, work
from tests.support.lab import Lab


def test_a_line_that_was_cut_off_does_not_swallow_the_next(tmp_path: Path) -> None:
    tombstones.append_tombstones(tmp_path, [Tombstone(1, "a")])
    with (tmp_path / tombstones.TOMBSTONE_FILE).open("ab") as file:
        file.write(b'{"n":2,"mark":"half of')  # killed here
    tombstones.append_tombstones(tmp_path, [Tombstone(3, "c"), Tombstone(4, "d")])
    assert [stone.n for stone in tombstones.read_tombstones(tmp_path)] == [1, 3, 4]
    assert (tmp_path / tombstones.TOMBSTONE_FILE).read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("before", [b"", b"one\n", b"x" * 200_000 + b"\n", b"one\n" + b"y" * 200_000, b"z" * 200_000])
def test_what_does_not_fit_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(before)
    whole = before[: before.rfind(b"\n") + 1]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", full)
        append_private(path, b"two\n")
    assert path.read_bytes() == whole
    append_private(path, b"two\n")
    assert path.read_bytes() == whole + b"two\n"


def test_a_flipped_bit_in_the_key_changes_nothing(tmp_path: Path) -> None:
    before = keyed_hash.make_keyed_hash(tmp_path)("event", "x")
    path = tmp_path / keyed_hash.HASH_KEY_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    for place in range(0, len(content), 5):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert not keyed_hash.is_hash_key_lost(tmp_path)
        assert keyed_hash.make_keyed_hash(tmp_path)("event", "x") == before, place


def test_a_key_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    (tmp_path / keyed_hash.HASH_KEY_FILE).write_text("ab" * 32)
    old = keyed_hash.make_keyed_hash(tmp_path)("event", "x")
    (tmp_path / keyed_hash.HASH_KEY_FILE).write_text("ab" * 32 + "\n")
    assert keyed_hash.make_keyed_hash(tmp_path)("event", "x") == old


@pytest.mark.parametrize("content", [b"", b"ab", b"\xff" * 64, b"not hexadecimal\n" * 2, b"ab" * 31 + b"\n"])
def test_no_event_is_blamed_for_a_key_that_cannot_be_read(lab: Lab, content: bytes) -> None:
    spool_session(lab, "lit", secret=WORD)
    digest(lab)
    forget(lab, session="lit")
    (lab.data / keyed_hash.HASH_KEY_FILE).write_bytes(content)
    spool_session(lab, "dark")
    digest(lab)
    assert not list((lab.data / "spool").iterdir())
    assert lab.rows("select count(*) from receipts where outcome = 'set_aside'") == [(0,)]
    assert tombstones.read_uncheckable_tombstones(
        lab.data
    )  # what was forgotten stays so: what can't be checked is refused


def test_a_repair_does_not_bring_back_what_was_forgotten_since_the_backup(lab: Lab) -> None:
    spool_session(lab, "lit", secret=WORD)
    spool_session(lab, "dark")
    digest(lab)
    assert work(lab, _backed_up) == ""
    forget(lab, session="lit")
    work(lab, lambda service: service.maintenance.store_checksums())
    config = load(lab.env())
    conn = apsw.Connection(str(config.database))
    conn.execute("pragma wal_checkpoint(truncate)")
    conn.close()
    content = bytearray(config.database.read_bytes())
    content[content.find(b"harbour of dark is open")] ^= 1
    config.database.write_bytes(content)
    startup.verify_damage(config, "met")
    digest(lab)
    assert found(lab, WORD) == []
    assert lab.rows(f"select count(*) from events where instr(body, '{WORD}')") == [(0,)]
    assert audited(lab) == []
    digest(lab)
    assert found(lab, WORD) == []


async def _backed_up(service: Service) -> Any:
    await service.maintenance.store_checksums()
    return await service.maintenance.back_up(now=ids.now_ms())
