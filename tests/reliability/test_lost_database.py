"""The database is gone and something shows that there was one: a backup is put back, or the loss is said aloud."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from claude_mem.config import Config, load
from claude_mem.storage.records import Tombstone
from claude_mem.storage.sqlite import backup, damage, repair
from claude_mem.storage.sqlite.deletion import keyed_hash, tombstones
from claude_mem.system import audit_log
from claude_mem.worker.app import Service
from tests.reliability.test_damage import _sessions, open_and_tell
from tests.storage.test_forget import WORD, audited, digest, forget, found, spool_session, work
from tests.storage.test_stones import _backed_up
from tests.support import wounds
from tests.support.lab import Lab
from tests.support.moving import Home
from tests.support.waiting import wait_for

SIDES = ("", "-wal", "-shm")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with memories, a backup of half of them, and an audit log."""
    folder = tmp_path_factory.mktemp("whole")
    lab, config = Lab(folder), Home(folder / "data").config
    wounds.tell(lab, sessions=1)
    asyncio.run(wounds.settle(config))
    backup.write_backup(config.database, config.backups)
    wounds.tell(lab, sessions=1, name="later", chance=random.Random(8))
    asyncio.run(wounds.settle(config))
    audit_log.AuditLog(config.data_dir).append("told", count=1)
    return config.data_dir


@pytest.fixture
def config(whole: Path, tmp_path: Path) -> Config:
    config = Home(tmp_path / "data").config
    shutil.copytree(whole, config.data_dir)
    return config


def delete(database: Path) -> None:
    for side in SIDES:
        database.with_name(database.name + side).unlink(missing_ok=True)


def delete_alone(database: Path) -> None:
    """Its log is left, as by someone who deletes `*.db` under a worker that was killed."""
    database.with_name(f"{database.name}-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(5000))
    database.unlink()


def move_away(database: Path) -> None:
    database.rename(database.with_name("my-own-copy.db"))


def empty(database: Path) -> None:
    delete(database)
    database.touch()


LOSSES: dict[str, Callable[[Path], None]] = {
    "deleted": delete,
    "deleted without its log": delete_alone,
    "moved away": move_away,
    "emptied": empty,
}


def remembered(config: Config) -> int:
    return len(_sessions(config.database))


# --- put back --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_the_newest_good_backup_takes_its_place_and_it_is_said(config: Config, loss: str) -> None:
    (copy,) = config.backups.glob("*.db")
    LOSSES[loss](config.database)
    told = open_and_tell(config)
    assert told["observations"] > 0
    assert _sessions(config.database) == _sessions(copy)
    (done,) = repair.list_repairs(config.quarantine)
    assert (done.backup, bool(done.ended_at)) == (copy.name, True)
    (notice,) = told["notices"].values()
    assert copy.name in notice
    assert "claude-mem backfill" in notice or loss == "emptied"
    lines = [line for _, line in audit_log.read_lines(config.data_dir) if line]
    assert [(line["what"], line["backup"]) for line in lines if line["what"] == "repaired"] == [("repaired", copy.name)]
    assert audit_log.verify_chain(config.data_dir, audit_log.ChainHead())[1] == []
    assert open_and_tell(config)["observations"] == told["observations"]  # and that is the end of it
    assert len(repair.list_repairs(config.quarantine)) == 1


def test_a_log_without_its_database_is_kept(config: Config) -> None:
    delete_alone(config.database)
    log = config.database.with_name(f"{config.database.name}-wal").read_bytes()
    open_and_tell(config)
    (done,) = repair.list_repairs(config.quarantine)
    assert Path(done.folder, f"{config.database.name}-wal").read_bytes() == log


def test_a_backup_that_is_broken_is_passed_over(config: Config) -> None:
    (good,) = config.backups.glob("*.db")
    newer = config.backups / "daily-20990101-000000-0000.db"
    newer.write_bytes(good.read_bytes()[: wounds.PAGE * 3])
    delete(config.database)
    open_and_tell(config)
    assert repair.list_repairs(config.quarantine)[0].backup == good.name


def test_what_a_person_gave_up_comes_back_only_if_there_is_nothing_else(config: Config) -> None:
    """Someone has put an older state back; what it took the place of is newer, and not wanted."""
    (chosen,) = config.backups.glob("*.db")
    given_up = config.backups / f"{backup.REPLACED_PREFIX}20990101-000000-1.db"
    shutil.copyfile(config.database, given_up)
    delete(config.database)
    open_and_tell(config)
    assert repair.list_repairs(config.quarantine)[0].backup == chosen.name
    chosen.unlink()
    delete(config.database)
    open_and_tell(config)
    assert given_up.name in {
        loss.backup for loss in repair.list_repairs(config.quarantine)
    }  # both may be of one second


def test_what_was_forgotten_since_the_backup_stays_forgotten(lab: Lab) -> None:
    spool_session(lab, "lit", secret=WORD)
    spool_session(lab, "dark")
    digest(lab)
    assert work(lab, _backed_up) == ""
    forget(lab, session="lit")
    delete(load(lab.env()).database)
    assert lab.drain() == 0
    assert found(lab, WORD) == []
    assert found(lab, "harbour") != []
    assert lab.rows(f"select count(*) from events where instr(body, '{WORD}')") == [(0,)]
    assert audited(lab) == []


@pytest.mark.parametrize("point", ["repair.moved", "repair.salvaged"])
def test_killed_in_the_middle_of_it_the_next_start_goes_on(lab: Lab, whole: Path, point: str) -> None:
    shutil.copytree(whole, lab.data)
    delete(lab.data / "claude-mem.db")
    assert lab.drain(CLAUDE_MEM_FAILPOINT=point) == -9
    assert lab.drain() == 0
    (done,) = repair.list_repairs(lab.data / "quarantine")
    assert done.ended_at
    assert lab.status()["stored"] > 0


def test_people_are_told_everywhere(lab: Lab, whole: Path) -> None:
    shutil.copytree(whole, lab.data)
    delete(lab.data / "claude-mem.db")
    before = lab.mem("status", ok=False)
    assert (before.returncode, "is missing" in before.stderr) == (1, True)
    doctor = {
        check["name"]: check for check in map(json.loads, lab.mem("doctor", "--json", ok=False).stdout.splitlines())
    }
    assert not doctor["database"]["ok"]
    lab.start()
    assert "was missing" in _start_of_a_session(lab)
    # Once, as soon as the worker has noted it: it does so after it has answered, so that nobody waits for the disk.
    wait_for(lambda: "was missing" not in _start_of_a_session(lab))
    assert "was missing" in lab.mem("status").stdout
    assert "was missing" in lab.mem("doctor", ok=False).stdout
    page = lab.client().get("/api/health/page")
    assert any("was missing" in concern["text"] for concern in page["concerns"])


def _start_of_a_session(lab: Lab) -> str:
    """What the worker answers a hook, however long that takes on a busy machine."""
    fields = {"session_id": "next", "hook_event_name": "SessionStart", "cwd": str(lab.project), "source": "startup"}
    record = b"command context\nhost claude\n\n" + json.dumps(fields).encode()
    worker = lab.client().worker
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=20)
    headers = {"Authorization": f"Bearer {worker.token}", "Content-Type": "application/octet-stream"}
    connection.request("POST", "/api/context/inject", record, headers)
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


# --- lost ------------------------------------------------------------------------------------------------------------


def tombstone(config: Config) -> None:
    tombstones.append_tombstones(config.data_dir, [Tombstone(n=1, mark="0" * 32, until=1)])
    keyed_hash.make_keyed_hash(config.data_dir)()  # with its key: one without is barred for good


def leave_log(config: Config) -> None:
    (config.data_dir / "claude-mem.db-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(5000))


TRACES: dict[str, Callable[[Config], Any]] = {
    "1 audit record": lambda config: audit_log.AuditLog(config.data_dir).append("told", count=1),
    "1 tombstone": tombstone,
    "claude-mem.db-wal": leave_log,
    "1 backup": lambda config: (config.backups / "daily-20260101-000000-0000.db").write_bytes(b"not a database"),
}


@pytest.mark.parametrize("trace", TRACES)
def test_without_a_good_backup_an_empty_one_is_begun_and_the_loss_is_said_aloud(tmp_path: Path, trace: str) -> None:
    config = Home(tmp_path / "data").config
    config.backups.mkdir(parents=True, mode=0o700)
    TRACES[trace](config)
    told = open_and_tell(config)
    assert told["observations"] == 0
    (notice,) = told["notices"].values()
    assert "LOST" in notice
    assert trace in notice
    (done,) = repair.list_repairs(config.quarantine)
    assert (done.was_missing, done.backup) == (True, "")
    lines = [line for _, line in audit_log.read_lines(config.data_dir) if line]
    assert [line["gone"] for line in lines if line["what"] == "repaired"] == [True]


# --- the backups from before are kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("usable", [True, False])
def test_no_rotation_and_no_quota_takes_the_newest_backup_from_before(config: Config, usable: bool) -> None:
    (made,) = config.backups.glob("*.db")
    last = config.backups / "daily-20260101-000000-0000.db"
    made.rename(last)
    if not usable:
        last.write_bytes(b"not a database")
    delete(config.database)
    open_and_tell(config)
    for day in range(60):
        name = f"daily-{datetime.fromtimestamp(1_800_000_000 + 86_400 * day):%Y%m%d-%H%M%S}-abcd.db"
        shutil.copyfile(config.database, config.backups / name)

    async def inside() -> None:
        service = Service(config)
        try:
            await service.maintenance.rotate_backups()
            await service.maintenance._drop_backups_down_to(0)
        finally:
            service.close()

    asyncio.run(inside())
    left = {path.name for path in config.backups.glob("daily-*.db")}
    assert last.name in left
    assert len(left) < 4
    shutil.rmtree(config.quarantine)  # the person has seen to it
    assert repair.list_pinned_backups(config.quarantine) == set()


# --- what is no loss -------------------------------------------------------------------------------------------------


def test_a_new_folder_is_no_loss(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt="go", prompt_id="p1")
    assert lab.drain() == 0
    assert not (lab.data / "quarantine").exists()
    assert lab.status()["damage"] == []


def test_a_folder_that_was_deleted_as_a_whole_is_no_loss(lab: Lab, whole: Path) -> None:
    shutil.copytree(whole, lab.data)
    lab.mem("start")
    lab.mem("stop")
    shutil.rmtree(lab.data)
    lab.hook("SessionStart", source="startup")
    lab.wait_digested()
    lab.mem("stop")
    assert lab.status()["damage"] == []
    assert lab.rows("select count(*) from observations") == [(0,)]


def test_another_folder_is_no_loss(lab: Lab, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, lab.data)
    lab.drain()
    lab.data = tmp_path / "elsewhere"
    lab.drain()
    assert lab.status()["damage"] == []


def test_taken_out_and_put_in_again_is_no_loss(lab: Lab, whole: Path) -> None:
    shutil.copytree(whole, lab.data)
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    lab.mem("install", "--yes", "--host", "claude")
    lab.mem("uninstall", "--yes")
    lab.mem("install", "--yes", "--host", "claude")
    lab.mem("stop")
    found = lab.status()
    assert (found["damage"], found["stored"] > 0) == ([], True)


def test_what_was_deleted_on_request_does_not_come_back_even_if_an_agents_file_could_not_be_cleaned(
    lab: Lab, whole: Path
) -> None:
    shutil.copytree(whole, lab.data)
    settings = lab.folder / "home" / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    lab.mem("install", "--yes", "--host", "claude")
    settings.write_text("{ not json")
    assert lab.mem("uninstall", "--yes", "--delete-data", ok=False).returncode == 1
    assert (lab.data / "connected.json").exists()
    assert list(lab.data.rglob("*.db")) == []
    lab.drain()
    assert lab.status()["damage"] == []
    assert lab.rows("select count(*) from observations") == [(0,)]


def test_traces_of_nothing_are_none(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").touch()
    (tmp_path / "forgotten.jsonl").touch()
    (tmp_path / "claude-mem.db-wal").touch()
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "another-programs.db").touch()
    (tmp_path / "backups" / "agents").mkdir()
    assert damage.describe_memory_traces(tmp_path / "claude-mem.db", backups=tmp_path / "backups") == ""


def test_one_that_was_killed_at_its_very_first_start_begins_again(lab: Lab) -> None:
    for point in ("write.begun", "write.before_commit", "serve.opened"):
        lab.spool("UserPromptSubmit", prompt="go", prompt_id=point)
        assert lab.drain(CLAUDE_MEM_FAILPOINT=point) == -9
        assert lab.drain() == 0
        assert not (lab.data / "quarantine").exists()
        shutil.rmtree(lab.data)
