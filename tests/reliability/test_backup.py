"""A copy while the worker runs, checked before it is trusted; put back without ever losing what was there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from claude_mem.cli.main import main
from claude_mem.domain.errors import DatabaseTooNew, InvalidRequest, OperationFailed
from claude_mem.storage.sqlite import backup, engine
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import open_reader
from tests.storage.test_portable import ALL, saved
from tests.support.lab import Lab
from tests.support.moving import Home, write
from tests.support.olderdb import OlderDb


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "ours")
    home.bring(write(tmp_path / "x.jsonl", [*ALL, *(saved(f"Note {number}") for number in range(300))]))
    return home


@pytest.fixture
def copy(home: Home) -> Path:
    return Path(backup.write_backup(home.config.database, home.config.backups).path)


def titles(lab: Lab) -> set[str]:
    return {json.loads(line)["title"] for line in lab.mem("list", "--json").stdout.splitlines()}


# --- making and checking ---------------------------------------------------------------------------------------------


def test_a_backup_is_one_private_file_with_every_row_in_it(lab: Lab) -> None:
    lab.mem("save", "Deploys happen on Tuesdays")
    found = json.loads(lab.mem("backup", "--json").stdout)
    path = Path(found["path"])
    assert path.parent == lab.data / "backups"
    assert path.stat().st_mode & 0o777 == 0o600
    assert found["counts"]["observations"] == 1
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]  # no log beside it
    listed = [json.loads(line) for line in lab.mem("backup", "--list", "--json").stdout.splitlines()]
    assert [(row["name"], row["observations"]) for row in listed] == [(path.name, 1)]


def test_it_is_one_state_of_the_database_whatever_is_written_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer comes between counting and copying, and in the middle of copying."""
    db = Database(home.config.database, backups=home.config.backups)
    right = engine.copy_database

    def late(conn: apsw.Connection, path: Path, **how: bool) -> None:
        db.write_now(lambda conn: conn.execute("delete from observations where id > 100"))
        right(conn, path, **how)

    monkeypatch.setattr(engine, "copy_database", late)
    made = backup.write_backup(home.config.database, home.config.backups, digest=True)
    assert db.read_now(backup.count_rows)["observations"] == 100
    db.close()
    assert made.counts["observations"] == 302
    assert backup.examine_backup(Path(made.path)).counts == made.counts
    conn = open_reader(Path(made.path))
    assert backup.digest_memory(conn) == made.digest
    conn.close()


def test_a_backup_goes_where_it_is_told_and_over_nothing(lab: Lab, tmp_path: Path) -> None:
    target = tmp_path / "safe"
    target.mkdir()
    os.umask(0o022)
    first = json.loads(lab.mem("backup", str(target), "--json").stdout)["path"]
    assert Path(first).parent == target
    lab.mem("backup", str(target / "mine.db"))
    assert (target / "mine.db").stat().st_mode & 0o777 == 0o600
    assert lab.mem("backup", str(target / "mine.db"), ok=False).returncode == 2
    assert lab.mem("backup", str(tmp_path / "nowhere" / "x.db"), ok=False).returncode == 1
    assert list((lab.data / "backups").iterdir()) == []


def test_several_at_the_same_time_are_several(home: Home) -> None:
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: backup.write_backup(home.config.database, home.config.backups), range(3)))
    assert len({copy.path for copy in made}) == 3
    for copy in made:
        assert backup.examine_backup(Path(copy.path)).counts == copy.counts


@pytest.mark.parametrize("problem", [apsw.FullError, apsw.IOError, KeyboardInterrupt])
def test_one_that_fails_leaves_nothing_and_says_why(
    home: Home, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    class Failing(apsw.Connection):
        def pragma(self, *_: object, **__: object) -> None:
            raise problem("by design")

    monkeypatch.setattr("claude_mem.storage.sqlite.engine.apsw.Connection", Failing)
    with pytest.raises(
        (OperationFailed, KeyboardInterrupt), match="disk is full" if problem is apsw.FullError else "by design"
    ):
        backup.write_backup(home.config.database, home.config.backups)
    assert list(home.config.backups.iterdir()) == []


def test_what_a_killed_one_has_left_is_gone_at_the_next_start(home: Home) -> None:
    home.config.backups.mkdir(mode=0o700)
    for name in ("memory-1.db.x.part", "memory-1.db.x.part-journal", "before-0007.part", "theirs.part"):
        (home.config.backups / name).touch()
    home.rows("select 1")
    assert [path.name for path in home.config.backups.iterdir()] == ["theirs.part"]


def test_every_kind_of_damage_is_noticed(copy: Path) -> None:
    assert backup.examine_backup(copy).counts["observations"] == 302
    whole = copy.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:50], b"", b"x" * 5000, whole[:8192] + bytes(8192) + whole[16384:]):
        copy.write_bytes(broken)
        with pytest.raises((OperationFailed, InvalidRequest)):
            backup.examine_backup(copy)
    place = whole.index(b"bugfixNote 77") + 6  # one letter of one memory, on a page that is fine otherwise
    copy.write_bytes(whole[:place] + b"Mote" + whole[place + 4 :])
    with pytest.raises(OperationFailed, match="does not match its"):
        backup.examine_backup(copy)
    copy.write_bytes(whole)
    conn = apsw.Connection(str(copy))
    conn.execute("update observations set title = 'Altered' where title = 'Note 78'")
    conn.close()
    with pytest.raises(OperationFailed, match="does not match its"):
        backup.examine_backup(copy)


def test_what_is_not_ours_or_too_new_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="older"):
        backup.examine_backup(OlderDb(tmp_path / "theirs.db").close())
    conn = apsw.Connection(str(copy))
    conn.pragma("user_version", 9999)
    conn.close()
    with pytest.raises(DatabaseTooNew):
        backup.examine_backup(copy)


# --- putting back ----------------------------------------------------------------------------------------------------


def test_the_drill_into_a_fresh_folder_everything_that_is_remembered_comes_back(lab: Lab, tmp_path: Path) -> None:
    lab.mem("import", str(write(tmp_path / "x.jsonl", [*ALL, *(saved(f"Note {number}") for number in range(300))])))
    assert "all memories came back" in lab.mem("backup", "--drill").stdout
    kept, before = tmp_path / "kept.db", lab.mem("export", "-").stdout
    lab.mem("backup", str(kept))
    folder = tmp_path / "fresh"
    folder.mkdir()
    fresh = Lab(folder)
    try:
        fresh.mem("restore", str(kept), "--yes")
        assert fresh.mem("export", "-").stdout == before
        assert "Note 299" in fresh.mem("search", "note 299").stdout
        assert fresh.status()["worker"] == "running"
    finally:
        fresh.close()
    left = [path.name for path in lab.data.rglob("*") if ".restoring" in path.name]
    assert left == []


def test_the_drill_notices_what_does_not_come_back(lab: Lab) -> None:
    lab.mem("save", "Deploys happen on Tuesdays")
    forged = lab.folder / "sitecustomize.py"
    forged.write_text(
        "import claude_mem.storage.sqlite.backup as backup\nbackup.digest_memory = lambda conn: 'something else'\n"
    )
    lab.start()
    done = lab.mem("backup", "--drill", ok=False, PYTHONPATH=str(lab.folder))
    assert done.returncode == 1
    assert "does not restore all memories" in done.stderr


def test_restoring_keeps_the_present_database_and_starts_the_worker_again(lab: Lab) -> None:
    lab.mem("save", "From before the backup")
    name = Path(json.loads(lab.mem("backup", "--json").stdout)["path"]).name
    lab.mem("save", "From after the backup")
    assert lab.mem("restore", name, ok=False).returncode == 1  # nobody can be asked
    assert titles(lab) == {"From before the backup", "From after the backup"}
    said = lab.mem("restore", name, "--yes").stdout
    assert lab.status()["worker"] == "running"
    assert titles(lab) == {"From before the backup"}
    assert "before" in lab.mem("search", "backup").stdout
    (kept,) = (lab.data / "backups").glob("before-restore-*.db")
    assert str(kept) in said
    assert kept.stat().st_mode & 0o777 == 0o600
    lab.mem("restore", kept.name, "--yes")
    assert titles(lab) == {"From before the backup", "From after the backup"}
    assert (lab.data / "claude-mem.db").stat().st_mode & 0o777 == 0o600


def test_what_a_session_is_told_at_its_start_is_of_the_restored_state(lab: Lab) -> None:
    lab.hook("SessionStart", source="startup")
    lab.hook("UserPromptSubmit", prompt="Hello")
    lab.wait_digested()
    name = Path(json.loads(lab.mem("backup", "--json").stdout)["path"]).name
    lab.mem("save", "From after the backup", "--project", "shop")
    lab.mem("restore", name, "--yes")
    lab.mem("stop")
    lab.drain()
    assert b"From after" not in b"".join(path.read_bytes() for path in (lab.data / "starts").iterdir())


def test_what_lay_ready_to_be_told_is_gone_before_the_worker_starts_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.hook("SessionStart", source="startup")
    lab.hook("UserPromptSubmit", prompt="Hello")
    lab.wait_digested()
    name = Path(json.loads(lab.mem("backup", "--json").stdout)["path"]).name
    lab.mem("save", "From after the backup", "--project", "shop")
    lab.mem("stop")
    started: list[list[Path]] = []
    monkeypatch.setattr(
        "claude_mem.system.process.ensure_worker", lambda _: started.append(list((lab.data / "starts").iterdir()))
    )
    monkeypatch.setattr("os.environ", lab.env())
    assert list((lab.data / "starts").iterdir())
    assert main(["restore", name, "--yes"]) == 0
    assert started == [[]]


def test_a_restore_that_fails_leaves_everything_as_it_was(lab: Lab) -> None:
    lab.mem("save", "Still here")
    name = Path(json.loads(lab.mem("backup", "--json").stdout)["path"]).name
    path = lab.data / "backups" / name
    path.write_bytes(path.read_bytes()[:5000])
    pid = lab.status()["pid"]
    for given in (str(path), str(lab.folder / "missing.db"), str(lab.data / "config.toml")):
        assert lab.mem("restore", given, "--yes", ok=False).returncode == 1
    assert lab.status()["pid"] == pid  # not even the worker was stopped
    assert titles(lab) == {"Still here"}
    assert [file.name for file in (lab.data / "backups").iterdir()] == [name]


def test_a_damaged_database_is_kept_with_its_log_and_replaced(lab: Lab) -> None:
    lab.mem("save", "Deploys happen on Tuesdays")
    name = Path(json.loads(lab.mem("backup", "--json").stdout)["path"]).name
    lab.mem("stop")
    (lab.data / "claude-mem.db").write_bytes(b"garbage" * 1000)
    (lab.data / "claude-mem.db-wal").write_bytes(b"more garbage")
    lab.mem("restore", name, "--yes")
    assert titles(lab) == {"Deploys happen on Tuesdays"}
    kept = {file.name.partition(".")[2]: file.read_bytes()[:7] for file in (lab.data / "backups").glob("before-*")}
    assert kept == {"db": b"garbage", "db-wal": b"more ga"}


def test_the_log_of_what_was_there_is_not_applied_to_what_takes_its_place(
    home: Home, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = home.config.database
    sides = [database.with_name(database.name + side) for side in ("", "-wal", "-shm")]
    conn = apsw.Connection(str(database))
    conn.pragma("wal_autocheckpoint", 0)
    conn.execute("update observations set title = 'From the log'")
    left = {path: path.read_bytes() for path in sides}
    conn.close()
    for path, data in left.items():  # as a crash would leave them
        path.write_bytes(data)

    def refuse(*_: object, **__: object) -> None:
        raise OperationFailed("damaged")

    with backup.prepare_restore(copy, home.folder) as fresh:
        monkeypatch.setattr(backup, "Engine", refuse)
        kept = backup.replace_database(fresh, database, home.config.backups)
    assert kept is not None
    assert [kept.with_name(kept.name + side).read_bytes() for side in ("", "-wal", "-shm")] == list(left.values())
    assert home.rows("select count(*) from observations where title = 'From the log'") == [(0,)]


def test_a_backup_of_an_earlier_version_is_brought_up_to_date(home: Home, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    conn = apsw.Connection(str(old))
    for number, sql in engine.load_migrations()[:4]:
        conn.execute(sql)
        conn.pragma("user_version", number)
    conn.execute("insert into projects (name, root, created_at) values ('old', '', 1)")
    conn.close()
    before = old.read_bytes()
    with backup.prepare_restore(old, tmp_path) as fresh:
        assert backup.examine_backup(fresh).version == engine.load_migrations()[-1][0]
        backup.replace_database(fresh, home.config.database, home.config.backups)
    assert home.rows("select name from projects") == [("old",)]
    assert old.read_bytes() == before


def test_a_second_name_of_the_present_database_is_no_copy_of_it(home: Home, copy: Path) -> None:
    first = backup._keep(home.config.database, home.config.backups)  # and then it was killed
    assert first.samefile(home.config.database)
    older = home.config.backups / "before-restore-20250101-000000-1.db"
    shutil.copy(copy, older)
    with backup.prepare_restore(copy, home.folder) as fresh:
        kept = backup.replace_database(fresh, home.config.database, home.config.backups)
    assert kept is not None
    assert sorted(home.config.backups.glob("before-*")) == sorted({older, kept})


def test_a_restore_leaves_another_that_goes_on_alone(copy: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as living, subprocess.Popen(["true"]) as dead:
        dead.wait()
        for pid in (living.pid, dead.pid):
            (tmp_path / f".restoring-{pid}").mkdir()
        (tmp_path / ".restoring-unknown").mkdir()
        with backup.prepare_restore(copy, tmp_path):
            pass
        left = [path.name for path in tmp_path.glob(".restoring-*")]
        living.terminate()
    assert left == [f".restoring-{living.pid}"]


def test_where_links_cannot_be_made_the_present_one_is_copied(
    home: Home, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with backup.prepare_restore(copy, home.folder) as fresh:
        kept = backup.replace_database(fresh, home.config.database, home.config.backups)
    assert kept is not None
    assert backup.examine_backup(kept).counts["observations"] == 302


def test_forgetting_says_that_backups_remember(lab: Lab) -> None:
    lab.mem("save", "Not for ever")
    assert "backup" not in lab.mem("forget", "1", "--yes").stderr
    lab.mem("save", "Not for ever, either")
    lab.mem("backup")
    assert "claude-mem backup --list" in lab.mem("forget", "2", "--yes").stderr
