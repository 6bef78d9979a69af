"""Killed at the rarer work: a start that is told, forgetting, erasing, a checkpoint, a backup, a vector. What was
acknowledged holds; what was not is asked for again, and in the end everything is as if nothing had happened."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from claude_mem.client import Client
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.storage.sqlite import backup
from claude_mem.system import process
from tests.support.embedder import FakeEmbedder
from tests.support.history import check, send, state
from tests.support.lab import Lab
from tests.support.waiting import SECONDS, wait_for

pytestmark = pytest.mark.kills

ROUNDS = int(os.environ.get("CLAUDE_MEM_KILL_ROUNDS", "1"))
POINTS = [
    "inject.composed", "inject.noted", "forget.put_away", "forget.erased", "forget.part", "checkpoint.begun", "checkpoint.done",
    "backup.step", "backup.copied", "backup.made",
]  # fmt: skip
SOFT, HARD = "The marmalade decision", "The tangerine password"


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Any]:
    """Some sessions, digested, and two things that were saved by hand."""
    lab = Lab(tmp_path_factory.mktemp("known"))
    sent = send(lab)
    assert lab.drain() == 0
    client = lab.start()
    for title in (SOFT, HARD):
        client.post("/api/memory/save", {"title": title, "text": f"{title} is what it says", "cwd": str(lab.project)})
    _settle(lab)
    return lab, sent


class Chores:
    """What a person and an agent ask for, one after the other, until each was acknowledged."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        wanted = "select id from observations where title = ?"
        ((self.soft,),), ((self.hard,),) = lab.rows(wanted, SOFT), lab.rows(wanted, HARD)
        self.left: list[Callable[[Client], Any]] = [self.inject, self.forget, self.erase, self.backup]

    def inject(self, client: Client) -> None:
        fields = {"session_id": "next", "hook_event_name": "SessionStart", "source": "startup"}
        record = b"command context\nhost claude\n\n" + json.dumps({**fields, "cwd": str(self.lab.project)}).encode()
        line = http.client.HTTPConnection("127.0.0.1", client.worker.port, timeout=SECONDS)
        line.request("POST", "/api/context/inject", record, {"Authorization": f"Bearer {client.worker.token}"})
        answer = line.getresponse()
        assert answer.status == 200
        assert b"additionalContext" in answer.read()
        line.close()

    def forget(self, client: Client) -> None:
        self._once(client, f"/api/observation/{self.soft}")

    def erase(self, client: Client) -> None:
        self._once(client, f"/api/observation/{self.hard}?now=1")

    def _once(self, client: Client, path: str) -> None:
        """It may have been done before the worker died: then a second time is refused."""
        try:
            client.delete(path)
        except ClaudeMemError as error:
            if type(error).__name__ not in ("NotFound", "CannotDo"):
                raise

    def backup(self, client: Client) -> None:
        client.post("/api/backup", {})

    def do(self, client: Client) -> None:
        while self.left:
            self.left[0](client)
            self.left.pop(0)


def _copied(known: tuple[Lab, Any], folder: Path) -> Lab:
    """The same data elsewhere; the project stays where it was."""
    lab = Lab(folder)
    shutil.copytree(known[0].data, lab.data)
    lab.project = known[0].project
    return lab


def _end(lab: Lab) -> dict[str, Any]:
    return {
        **state(lab),
        "starts": None,  # looked at below
        "forgotten": lab.rows("select id, forgotten, title from observations order by id"),
        "attic": lab.rows("select observation_id from deleted_observations order by 1"),
        "history": lab.rows("select observation_id, what from history order by 1, 2"),
        "told": lab.rows("select item from injected_items order by 1"),
    }


def _wrong(lab: Lab, sent: Any) -> list[str]:
    found = check(lab, sent)
    found += [f"quick_check: {text}" for (text,) in lab.rows("pragma quick_check") if text != "ok"]
    for path in lab.data.glob("backups/*"):
        if path.suffix != ".db":
            found.append(f"left over: {path.name}")
        else:
            backup.examine_backup(path)
    for path in (lab.data / "starts").iterdir():
        text = path.read_text("utf-8")
        found += [f"still told: {title}" for title in (SOFT, HARD) if title in text]
    erased = [path for path in lab.data.glob("claude-mem.db*") if HARD.encode() in path.read_bytes()]
    return found + [f"not erased from {path.name}" for path in erased]


@pytest.fixture(scope="session")
def expected(known: tuple[Lab, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lab = _copied(known, tmp_path_factory.mktemp("expected"))
    chores = Chores(lab)
    chores.do(lab.start())
    _settle(lab)
    assert _wrong(lab, known[1]) == []
    return _end(lab)


def _settle(lab: Lab) -> None:
    """Whatever still waits is done."""
    lab.close()
    lab.workers.clear()
    assert lab.drain() == 0


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_chore_it_is_done_in_the_end(
    known: tuple[Lab, Any],
    expected: dict[str, Any],
    tmp_path: Path,
    point: str,
    round_: int,
    record_property: Callable[[str, Any], None],
) -> None:
    lab = _copied(known, tmp_path)
    chores = Chores(lab)
    try:
        with suppress(ClaudeMemError, OSError, http.client.HTTPException):
            chores.do(lab.start(CLAUDE_MEM_FAILPOINT=point))
        wait_for(lambda: process.lock_holder(lab.data) is None)
        assert lab.workers.pop().wait() == -signal.SIGKILL, f"{point} was never reached"
        chores.do(lab.start())
        _settle(lab)
    finally:
        lab.close()
    assert _wrong(lab, known[1]) == []
    found = _end(lab)
    if point == "inject.noted":  # after the answer, on purpose: at worst something is told a second time
        found["told"] = expected["told"]
    assert found == expected
    record_property("kills", 1)


def test_killed_right_after_something_was_erased_it_is_not_told_from_the_disk(
    known: tuple[Lab, Any], tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    """It is gone from the database; the start contexts that lie ready are made again although nobody asks twice."""
    lab = _copied(known, tmp_path)
    assert any(HARD in path.read_text("utf-8") for path in (lab.data / "starts").iterdir())
    try:
        with suppress(ClaudeMemError):
            Chores(lab).erase(lab.start(CLAUDE_MEM_FAILPOINT="checkpoint.begun"))
        assert lab.workers.pop().wait() == -signal.SIGKILL
        _settle(lab)
    finally:
        lab.close()
    assert _wrong(lab, known[1]) == [f"still told: {SOFT}"]  # that one was left alone
    record_property("kills", 1)


VECTORS = """
import asyncio
from claude_mem.config import load
from claude_mem.worker.app import Service
from tests.support.embedder import FakeEmbedder
async def work():
    service = Service(load(), embedder=FakeEmbedder())
    await service.run_until_idle()
    while await service.indexer.step():
        pass
    service.close()
asyncio.run(work())
"""


def _make_vectors(lab: Lab, **env: str) -> int:
    here = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-c", VECTORS], env=lab.env(**env), cwd=here, check=False).returncode


def _vectors(lab: Lab) -> list[Any]:
    return lab.rows("select model, document_id, part, hash, vector from vectors order by 1, 2, 3")


def test_killed_at_a_vector_each_text_has_one_in_the_end(
    known: tuple[Lab, Any], tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    undisturbed, killed = _copied(known, tmp_path / "undisturbed"), _copied(known, tmp_path / "killed")
    before = _vectors(killed)  # as many as the worker before had time for, of the built-in embedding
    assert _make_vectors(undisturbed) == 0
    assert _make_vectors(killed, CLAUDE_MEM_FAILPOINT="index.vectors:3") == -signal.SIGKILL
    assert _vectors(killed) == before
    assert _make_vectors(killed) == 0
    assert _vectors(killed) == _vectors(undisturbed)
    assert FakeEmbedder.name in {row[0] for row in _vectors(killed)}
    assert killed.rows("pragma quick_check") == [("ok",)]
    record_property("kills", 1)
