"""The power goes: whatever was acknowledged is there when it is back, and the database is sound.

`make test` looks at a hundred images of the disk, `make test-crash` at a thousand. With `synchronous=normal`, or without
a hook's `fsync`, the same test finds losses: it can.
"""

from __future__ import annotations

import asyncio
import os
import posix
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem import hook
from claude_mem.capture import drain
from claude_mem.config import Config, load
from claude_mem.storage.sqlite.database import Database
from claude_mem.system.spool import Spool, parse_envelope
from tests.support import powerloss, proof
from tests.support.lab import Lab
from tests.support.powerloss import Disk, Image, Safe

ACKS, FEW = 250 if proof.long() else 25, 25
TORN = 3  # beside the strict one


@dataclass(slots=True)
class Found:
    images: int = 0
    losses: int = 0
    corrupt: int = 0


class Outage:
    """Events are drained one by one; a drained event has left the spool, so only the database has it."""

    def __init__(self, lab: Lab, config: Config, disk: Disk) -> None:
        self.lab, self.config, self.disk = lab, config, disk
        self.spool = Spool(config.spool, config.aside)
        self.chance = random.Random(7)
        self.acknowledged: list[str] = []
        self.found = Found()
        self.kept: list[Image] = []  # torn ones, from the middle of the write that is now going on
        disk.before_sync = self._tear

    def _tear(self) -> None:
        """Just before a sync there is the most to lose. Of those of one write, any three."""
        for _ in range(TORN):
            self.kept.append(self.disk.torn(self.chance))

    def run(self, db: Database, acks: int) -> Found:
        for number in range(acks):
            self.kept.clear()
            name = self.lab.spool(
                "PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_use_id=f"c{number}"
            )
            count, _ = asyncio.run(drain.drain_spool(db, self.spool, self.config))
            assert (count, self.spool.pending()) == (1, [])
            if number % 50 == 20:
                asyncio.run(db.truncate_wal())  # a checkpoint
            torn = self.kept or [self.disk.torn(self.chance)]
            for image in (self.chance.choice(torn) for _ in range(TORN)):
                self._judge(image)  # the new one may be there or not
            self.acknowledged.append(name)
            self._judge(self.disk.strict())
        return self.found

    def _judge(self, image: Image) -> None:
        path = powerloss.put(image, self.lab.folder / "after", self.config.database.name)
        self.found.images += 1
        try:
            there = _look(path)
        except apsw.Error:
            self.found.corrupt += 1
            return
        self.found.losses += not there.issuperset(self.acknowledged)


def _look(path: Path) -> set[str]:
    """As it is found: opening it works the log off."""
    conn = apsw.Connection(str(path), vfs="unix")
    try:
        if list(conn.execute("pragma integrity_check")) != [("ok",)]:
            raise apsw.CorruptError("integrity_check")
        return {name for (name,) in conn.execute("select event_id from events")}
    finally:
        conn.close()


@pytest.mark.parametrize("synchronous", ["full", "normal"])
def test_a_power_cut_loses_nothing_that_was_committed(lab: Lab, synchronous: str) -> None:
    """With anything less than what we ask of SQLite, this very test finds losses."""
    config, acks = load(), ACKS if synchronous == "full" else FEW
    with powerloss.disk() as disk:
        db = Database(config.database, backups=config.backups)
        try:
            if synchronous != "full":
                db._writing.submit(db._writer.pragma, "synchronous", synchronous).result()
            found = Outage(lab, config, disk).run(db, acks)
        finally:
            db.close()
    assert found.images == acks * (1 + TORN)
    if synchronous != "full":
        assert found.losses > acks // 2
        return
    assert (found.losses, found.corrupt) == (0, 0)
    measured = {"images": found.images, "lost": found.losses, "corrupt": found.corrupt}
    goal = "0 lost, 0 corrupt in 1,000 images"
    proof.record("power loss, database", of="R2b", goal=goal, measured=measured, ok=True, command="make test-crash")


# --- the spool -------------------------------------------------------------------------------------------------------


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, safe: Safe, *, deaf: str = "") -> Iterator[None]:
    """Every `fsync` of ours, the hook's too, makes safe what it is given; but for the kind that is left out."""
    real = posix.fsync

    def fsync(fd: Any) -> None:
        real(fd)
        number = fd if isinstance(fd, int) else fd.fileno()
        kind = "folder" if os.path.isdir(f"/proc/self/fd/{number}") else "file"
        if kind != deaf:
            safe.synced(number)

    with monkeypatch.context() as patch:
        patch.setattr(posix, "fsync", fsync)
        patch.setattr(os, "fsync", fsync)
        yield


def _write_events(how: str, count: int, safe: Safe, chance: random.Random) -> tuple[int, int]:
    """How many acknowledged events are lost, and how many half ones there are, over all images."""
    config = load()
    spool = Spool(config.spool, config.aside)
    acknowledged: dict[str, bytes] = {}
    lost = half = 0
    for number in range(count):
        payload = b'{"session_id": "s%d"}' % number * chance.randrange(1, 400)
        before = set(spool.pending())
        if how == "hook":
            hook._write_event(str(config.data_dir), b"command save\n\n" + payload)
        else:
            spool.put({"command": "save"}, payload)
        (name,) = set(spool.pending()) - before
        acknowledged[name] = payload
        for late in (lambda: False, lambda: True, lambda: chance.random() < 0.5, lambda: chance.random() < 0.5):
            image = {name: raw for name, raw in safe.image(spool.folder, late=late).items() if name[0] != "."}
            lost += sum(name not in image for name in acknowledged)
            half += sum(
                not raw or parse_envelope(name, raw).payload != acknowledged.get(name) for name, raw in image.items()
            )
    return lost, half


@pytest.mark.parametrize("how", ["hook", "api"])
@pytest.mark.parametrize("deaf", ["", "file", "folder"])
def test_a_power_cut_loses_nothing_that_a_hook_has_answered_for(
    monkeypatch: pytest.MonkeyPatch, how: str, deaf: str
) -> None:
    safe, events = Safe(), 250 if proof.long() else 20
    with watched(monkeypatch, safe, deaf=deaf):
        lost, half = _write_events(how, events, safe, random.Random(3))
    if deaf:
        assert half if deaf == "file" else lost  # the test can see it
        return
    assert (lost, half) == (0, 0)
    measured = {"images": 4 * events, "lost": lost, "half": half}
    goal = "0 lost, 0 half written"
    proof.record(
        f"power loss, spool ({how})", of="R2b", goal=goal, measured=measured, ok=True, command="make test-crash"
    )
