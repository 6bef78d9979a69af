"""A backup brings rows, never schema: whatever else stands in the file is not put back, and is never run."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from claude_mem.domain.errors import ClaudeMemError, DatabaseDamaged, InvalidRequest, OperationFailed
from claude_mem.storage import external_db
from claude_mem.storage.sqlite import backup, engine
from claude_mem.storage.sqlite.database import Database
from claude_mem.worker import startup
from tests.storage.test_portable import ALL, saved
from tests.support import proof
from tests.support.moving import Home, write

COMMAND = "python -m pytest tests/security/test_hostile_backups.py"
Wound = Callable[[apsw.Connection], object]


def sql(text: str) -> Wound:
    return lambda conn: conn.execute(text)


def _rewrite(kind: str, name: str, old: str, new: str) -> Wound:
    """Change a definition behind SQLite's back."""

    def wound(conn: apsw.Connection) -> None:
        conn.execute("pragma writable_schema = on")
        conn.execute(
            "update sqlite_schema set sql = replace(sql, ?, ?) where type = ? and name = ?", (old, new, kind, name)
        )
        assert conn.changes() == 1
        conn.execute("pragma writable_schema = reset")

    return wound


APPROVE = "update observations set verdict = 'approved'"
# What is in the file beside the rows. None of it may be in what is put back, and the rows must all be there.
LEFT_OUT: dict[str, Wound] = {
    "a trigger that approves": sql(f"create trigger t after insert on user_prompts begin {APPROVE}; end"),
    "a trigger on jobs": sql(f"create trigger t after update on jobs begin {APPROVE}; end"),
    "a trigger that deletes tombstones": sql(
        "create trigger t after insert on tombstones begin delete from tombstones; end"
    ),
    "a trigger instead of ours": lambda conn: (
        conn.execute("drop trigger observations_added"),
        conn.execute(f"create trigger observations_added after insert on observations begin {APPROVE}; end"),
    ),
    "a trigger that is missing": sql("drop trigger observations_checksum_outdated"),
    "a temporary name": sql("create trigger jobs_checksum_added after insert on jobs begin select 1; end"),
    "a view": sql("create view v as with recursive c(n) as (select 1 union all select n + 1 from c) select n from c"),
    "a table": sql("create table more (x); insert into more values (zeroblob(100))"),
    "a virtual table": sql("create virtual table more using fts5(x)"),
    "an index": sql("create unique index more on observations (id)"),
    "an index that computes": sql("create index more on observations (length(printf('%.*c', 1000000, 'x')))"),
    "an index that is missing": sql("drop index jobs_due"),
    "a generated column": sql("alter table observations add column x blob as (zeroblob(900000000))"),
    "a check that computes": _rewrite(
        "table", "observations", "check (verdict in", "check (length(zeroblob(900000000)) or verdict in"
    ),
    "a check that is gone": _rewrite("table", "sdk_sessions", "check (status in", "check (1 or status in"),
    "a default that is another": _rewrite("table", "observations", "default 'agent'", "default 'userr'"),
}
# What can't be rows of ours: the restore is refused in words, and nothing has changed.
REFUSED: dict[str, Wound] = {
    "a column less": sql("alter table ledger drop column message"),
    "a table less": sql("drop table tombstones"),
    "a view instead of a table": sql("drop table notices; create view notices as select 1 as key"),
    "a generated column instead of a column": sql(
        "alter table ledger drop column message; alter table ledger add column message text as ('x')"
    ),
    "wrong types": lambda conn: (
        _rewrite("table", "projects", ") strict", ")")(conn),
        conn.execute("update projects set created_at = 'yesterday', name = x'00ff'"),
    ),
    "the same key twice": sql(
        "drop table notices; create table notices (key text, text text, at integer, shown_at integer);"
        "insert into notices values ('k', 'a', 1, null), ('k', 'b', 1, null)"
    ),
    "a value that is too large": sql("update user_prompts set text = printf('%.*c', 40000000, 'x')"),
    "a reference to nothing": sql("update user_prompts set session_id = 99999"),
    "a version that its tables do not have": lambda conn: conn.pragma(
        "user_version", engine.read_schema_version(conn) - 1
    ),
    "no version": lambda conn: conn.pragma("user_version", 0),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound backup with something in it that is held."""
    home = Home(tmp_path_factory.mktemp("hostile") / "data")
    home.bring(write(home.folder.parent / "x.jsonl", [*ALL, *(saved(f"Note {n}") for n in range(20))]), untrusted=True)
    return Path(backup.write_backup(home.config.database, home.config.backups).path)


@pytest.fixture
def hostile(made: Path, tmp_path: Path) -> Callable[[Wound], Path]:
    def wounded(wound: Wound) -> Path:
        path = tmp_path / "memory-hostile.db"
        shutil.copyfile(made, path)
        conn = apsw.Connection(str(path))
        if wound is not REFUSED["a version that its tables do not have"]:
            conn.execute("delete from checks where name = 'schema'")  # what would tell that the schema has changed
        wound(conn)
        conn.close()
        return path

    return wounded


def objects(path: Path) -> dict[tuple[str, str], str]:
    with external_db.open_read_only(path) as conn:
        return backup.read_schema(conn).objects


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of every table that is ours and is not changed by opening it."""
    conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = [
            name
            for name in backup.expected_schema(engine.read_schema_version(conn)).columns
            if name not in ("jobs", "checks")
        ]
        columns = backup.expected_schema(engine.read_schema_version(conn)).columns
        return {
            table: sorted(conn.execute(f"select {', '.join(columns[table])} from {table}"), key=repr)
            for table in tables
        }
    finally:
        conn.close()


@pytest.mark.parametrize("name", LEFT_OUT)
def test_nothing_but_rows_is_put_back(hostile: Callable[[Wound], Path], made: Path, tmp_path: Path, name: str) -> None:
    path = hostile(LEFT_OUT[name])
    with backup.prepare_restore(path, tmp_path) as fresh:
        assert objects(fresh) == objects(made)
        assert contents(fresh) == contents(made)
        conn = apsw.Connection(str(fresh), flags=apsw.SQLITE_OPEN_READONLY)
        assert conn.execute("select count(*) from observations where verdict != ''").fetchall() == [(0,)]
        conn.close()
    if "missing" not in name:
        assert backup.examine_backup(path).strange
    proof.record(
        "hostile backups: schema that came along", of="S17", goal="0", measured=0, ok=True, command=COMMAND, tally=True,
        note=f"{len(LEFT_OUT)} kinds of schema, {len(REFUSED)} kinds of rows that can't be",
    )  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_can_not_be_are_refused(hostile: Callable[[Wound], Path], tmp_path: Path, name: str) -> None:
    path = hostile(REFUSED[name])
    with (
        pytest.raises((OperationFailed, InvalidRequest, DatabaseDamaged)) as refused,
        backup.prepare_restore(path, tmp_path),
    ):
        pass
    assert str(path) in str(refused.value) or "claude-mem.db" in str(refused.value)
    assert list(tmp_path.glob(f"{backup.RESTORE_FOLDER_PREFIX}*")) == []
    proof.record(
        "hostile backups: rows that can't be, put back", of="S17", goal="0", measured=0, ok=True, command=COMMAND, tally=True
    )  # fmt: skip


def test_a_sound_backup_has_nothing_strange(made: Path) -> None:
    assert backup.examine_backup(made).strange == []


def test_numbers_of_rows_that_are_gone_are_not_given_again(hostile: Callable[[Wound], Path], tmp_path: Path) -> None:
    path = hostile(sql("update sqlite_sequence set seq = 5000 where name = 'observations'"))
    with backup.prepare_restore(path, tmp_path) as fresh:
        conn = apsw.Connection(str(fresh), flags=apsw.SQLITE_OPEN_READONLY)
        assert conn.execute("select seq from sqlite_sequence where name = 'observations'").fetchall() == [(5000,)]
        conn.close()


@pytest.mark.parametrize("number", [number for number, _ in engine.load_migrations()])
def test_every_version_is_what_its_own_migrations_make(tmp_path: Path, number: int) -> None:
    """A backup of an earlier version has nothing strange in it, and restores."""
    if number == 1 or number % 6 == 0 or number > engine.load_migrations()[-1][0] - 2:
        path = tmp_path / "memory-old.db"
        conn = apsw.Connection(str(path))
        for version, script in engine.load_migrations()[:number]:
            conn.execute(script)
            conn.pragma("user_version", version)
        conn.execute("insert into projects (name, root, created_at) values ('old', '', 1)")
        conn.close()
        assert backup.examine_backup(path).strange == []
        with backup.prepare_restore(path, tmp_path) as fresh:
            assert backup.examine_backup(fresh).version == engine.load_migrations()[-1][0]
            assert contents(fresh)["projects"] == [(1, "old", "", 1)]


def test_a_database_whose_schema_is_not_noted_is_made_again_of_its_rows(made: Path, tmp_path: Path) -> None:
    """Put in place by hand, with a trigger: the worker does not open it as it is, and no row is lost."""
    home = Home(tmp_path / "data")
    home.folder.mkdir(mode=0o700)
    shutil.copyfile(made, home.config.database)
    conn = apsw.Connection(str(home.config.database))
    conn.execute("delete from checks where name = 'schema'")
    LEFT_OUT["a trigger that approves"](conn)
    conn.close()
    with pytest.raises(DatabaseDamaged):
        Database(home.config.database, backups=home.config.backups)
    startup.open_service(home.config).close()
    assert objects(home.config.database) == objects(made)
    assert contents(home.config.database)["observations"] == contents(made)["observations"]


def test_what_a_file_computes_costs_no_memory(hostile: Callable[[Wound], Path], tmp_path: Path) -> None:
    path = hostile(LEFT_OUT["a generated column"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    backup.examine_backup(path)
    with backup.prepare_restore(path, tmp_path):
        pass
    risen = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    proof.record(
        "hostile backups: memory for a generated column of 900 MB", of="S17", goal="≤ 100 MB", measured=risen, unit="MB",
        ok=risen <= 100, command=COMMAND,
    )  # fmt: skip
    assert risen <= 100


@pytest.mark.parametrize("name", ["/dev/zero", "folder", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    path = Path(name) if name.startswith("/") else tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name == "fifo":
        os.mkfifo(path)
    with pytest.raises(ClaudeMemError):
        backup.examine_backup(path)
