"""The database: migrations with a backup, transactions that are whole, jobs that are done once."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from claude_mem.config import Config
from claude_mem.domain.errors import DatabaseTooNew, LeaseLost, OperationFailed
from claude_mem.domain.records import Job
from claude_mem.storage.journal_records import ClaimOrder
from claude_mem.storage.sqlite import engine
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_value
from claude_mem.storage.sqlite.journal import jobs

SCHEMA = Path(__file__).parents[2] / "docs" / "schema.sql"


@pytest.fixture
def db(config: Config) -> Database:
    return Database(config.database, backups=config.backups)


def test_the_schema_page_is_what_the_migrations_make(db: Database) -> None:
    printed = db.read_now(
        lambda conn: fetch_all(conn, "select sql from sqlite_schema where sql is not null order by rowid")
    )
    db.close()
    for row in printed:
        assert row["sql"] in SCHEMA.read_text("utf-8"), "run `make docs`"


def test_every_table_is_strict_and_synced_to_disk(db: Database) -> None:
    tables = db.read_now(
        lambda conn: fetch_all(
            conn, "select name, strict from pragma_table_list where type = 'table' and name not like 'sqlite_%'"
        )
    )
    assert all(row["strict"] for row in tables)
    assert db.write_now(lambda conn: fetch_value(conn, "select 1")) == 1
    writer = db._writer
    assert db._writing.submit(
        lambda: (writer.pragma("journal_mode"), writer.pragma("synchronous"), writer.pragma("foreign_keys"))
    ).result() == ("wal", 2, 1)
    db.close()


def test_readers_cannot_write(db: Database) -> None:
    with pytest.raises(apsw.ReadOnlyError):
        db.read_now(lambda conn: conn.execute("delete from jobs"))
    db.close()


def test_a_transaction_that_fails_leaves_nothing(db: Database) -> None:
    def half(conn: Connection) -> None:
        jobs.enqueue_job(conn, "compress", "1.1", now=0)
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        db.write_now(half)
    assert db.read_now(jobs.count_urgent_jobs) == 0
    db.close()


def test_a_migration_is_preceded_by_a_backup(db: Database, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    db.write_now(jobs.enqueue_job, "compress", "1.1", now=0)
    db.close()
    now = engine.load_migrations()[-1][0]
    newer = [*engine.load_migrations(), (now + 1, "create table later (x integer) strict;")]
    monkeypatch.setattr(engine, "load_migrations", lambda: newer)
    again = Database(config.database, backups=config.backups)
    assert again.read_now(engine.read_schema_version) == now + 1
    assert again.read_now(jobs.count_urgent_jobs) == 1
    again.close()
    (copy,) = config.backups.iterdir()
    assert copy.stat().st_mode & 0o777 == 0o600
    old = apsw.Connection(str(copy))
    assert (old.pragma("user_version"), old.execute("select count(*) from jobs").fetchone()) == (now, (1,))
    old.close()


def test_a_migration_that_fails_changes_nothing(db: Database, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    db.close()
    now = engine.load_migrations()[-1][0]
    broken = [*engine.load_migrations(), (now + 1, "create table later (x integer) strict; nonsense;")]
    monkeypatch.setattr(engine, "load_migrations", lambda: broken)
    with pytest.raises(apsw.SQLError):
        Database(config.database, backups=config.backups)
    conn = apsw.Connection(str(config.database))
    assert conn.pragma("user_version") == now
    assert conn.execute("select count(*) from sqlite_schema where name = 'later'").fetchone() == (0,)
    conn.close()


def test_a_database_from_the_future_is_refused(db: Database, config: Config) -> None:
    db.write_now(lambda conn: conn.execute("pragma user_version = 999"))
    db.write_now(lambda conn: conn.execute("update checks set text = '999:theirs' where name = 'schema'"))
    db.close()
    with pytest.raises(DatabaseTooNew, match="version 999"):
        Database(config.database, backups=config.backups)


def test_a_file_that_is_no_database_is_named(config: Config) -> None:
    config.data_dir.mkdir()
    config.database.write_bytes(b"this is not SQLite" * 100)
    with pytest.raises(OperationFailed, match=r"claude-mem\.db"):
        Database(config.database, backups=config.backups)


# --- jobs ------------------------------------------------------------------------------------------------------------


def test_asking_twice_is_asking_once(db: Database) -> None:
    for _ in range(2):
        db.write_now(jobs.enqueue_job, "compress", "1.1", now=0)
    assert db.read_now(jobs.count_urgent_jobs) == 1
    db.close()


def test_a_render_job_that_has_not_started_serves_every_later_change(db: Database) -> None:
    for project_id in (1, 1, 11, 1):
        db.write_now(jobs.enqueue_render, project_id, now=0)
    assert [row.subject.split(".")[0] for row in db.read_now(jobs.list_jobs)] == ["1", "11"]
    claimed = db.write_now(jobs.claim_job, ["render"], now=1, lease=100)
    assert claimed is not None
    db.write_now(jobs.enqueue_render, 1, now=2)  # the claimed job may have read the rows before this change
    db.write_now(jobs.enqueue_render, 1, now=3)
    assert db.read_now(jobs.count_urgent_jobs) == 3
    db.write_now(jobs.finish_job, claimed)
    db.close()


def test_a_job_whose_worker_died_falls_due_again(db: Database) -> None:
    db.write_now(jobs.enqueue_job, "compress", "1.1", now=0)
    first = db.write_now(jobs.claim_job, ["compress"], now=1, lease=100)
    assert first is not None
    assert db.write_now(jobs.claim_job, ["compress"], now=50, lease=100) is None
    second = db.write_now(jobs.claim_job, ["compress"], now=101, lease=100)
    assert second == Job(first.id, "compress", "1.1", 2)
    with pytest.raises(LeaseLost):
        db.write_now(jobs.finish_job, first)
    db.write_now(jobs.finish_job, second)
    assert db.read_now(jobs.count_urgent_jobs) == 0
    db.close()


def test_a_job_that_fails_three_times_is_buried_with_its_reason(db: Database) -> None:
    db.write_now(jobs.enqueue_job, "compress", "1.1", now=0)
    now = 0
    for attempt in (1, 2, 3):
        now += 10_000_000
        job = db.write_now(jobs.claim_job, ["compress"], now=now, lease=100)
        assert job is not None
        assert db.write_now(jobs.release_failed_job, job, error="no luck", now=now) is (attempt == 3)
    assert db.write_now(jobs.claim_job, ["compress"], now=now * 10, lease=100) is None
    (row,) = db.read_now(jobs.list_jobs)
    assert (row.dead, row.error) == (1, "no luck")
    assert db.write_now(jobs.retry_dead_jobs, now=0) == 1
    assert db.write_now(jobs.claim_job, ["compress"], now=1, lease=1) is not None
    db.close()


def test_a_lane_takes_only_its_own_kinds_and_may_take_the_newest_first(db: Database) -> None:
    for number in (1, 2):
        db.write_now(jobs.enqueue_job, "refine", f"{number}.1", now=0)
    assert db.write_now(jobs.claim_job, ["compress"], now=1, lease=1) is None
    newest = db.write_now(jobs.claim_job, ["refine"], now=1, lease=100, order=ClaimOrder.NEWEST)
    assert newest is not None
    assert newest.subject == "2.1"
    assert db.read_now(jobs.get_next_due_time, ["refine"]) == 0
    assert db.read_now(jobs.get_next_due_time, ["compress"]) is None
    assert db.read_now(jobs.count_urgent_jobs) == 0, "nobody waits for a model"
    db.close()


def test_a_database_of_the_version_before_is_brought_up_to_date_and_backed_up(config: Config) -> None:
    config.data_dir.mkdir(mode=0o700)
    old = apsw.Connection(str(config.database))
    old.pragma("journal_mode", "wal")
    (number, first), *later = engine.load_migrations()
    with old:
        old.execute(first)
        old.pragma("user_version", number)
        old.execute("insert into jobs (kind, subject, due_at, created_at) values ('compress', '1.1', 0, 0)")
    old.close()
    db = Database(config.database, backups=config.backups)
    assert db.read_now(jobs.count_urgent_jobs) == 1
    assert db.read_now(engine.read_schema_version) == later[-1][0]
    assert db.read_now(fetch_value, "select count(*) from ledger") == 0
    db.close()
    (backup,) = config.backups.iterdir()
    kept = apsw.Connection(str(backup))
    assert (kept.pragma("user_version"), kept.execute("select count(*) from jobs").fetchone()) == (1, (1,))
    kept.close()


def test_turns_from_before_are_marked_by_what_is_left_of_them() -> None:
    conn = apsw.Connection(":memory:")
    *before, (_, last) = [script for script in engine.load_migrations() if script[0] <= 15]
    for _, sql in before:
        conn.execute(sql)
    conn.execute("""
        insert into projects (id, name, root, created_at) values (1, 'shop', '/shop', 0);
        insert into sdk_sessions (id, project_id, host, content_session_id, cwd, started_at, last_event_at)
        values (1, 1, 'claude', 's1', '/shop', 0, 0);
        insert into turns (id, session_id, number, opened_at, last_at) values (1, 1, 1, 0, 0), (2, 1, 2, 0, 0), (3, 1, 3, 0, 0);
        insert into observations (project_id, session_id, turn_id, key, type, title, provider, trust, hash, created_at, updated_at)
        values (1, 1, 1, 'said', 'discovery', 'x', 'local', 'external', '', 0, 0),
               (1, 1, 2, 'said', 'discovery', 'x', 'local', 'tool', '', 0, 0);
        insert into events (event_id, session_id, turn_id, kind, at, source, body, origin)
        values ('e1', 1, 3, 'tool', 0, 'hook', '{}', 'external');
        insert into documents (kind, row_id, project_id, session_id, turn_id, created_at)
        values ('turn', 1, 1, 1, 1, 0), ('turn', 2, 1, 1, 2, 0), ('turn', 3, 1, 1, 3, 0);
        delete from stale;
    """)
    conn.execute(last)
    assert [trust for (trust,) in conn.execute("select trust from documents order by id")] == [
        "external",
        "",
        "external",
    ]
    assert list(conn.execute("select * from stale")) == [("turn", 3)], "those that have events are looked at again"
