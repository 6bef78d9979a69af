"""Databases as each earlier version has left them, with rows in every table; and a process that is killed while it upgrades them.

`python -m tests.support.upgrading FOLDER STEP` upgrades FOLDER/old.db again and again, killed at every STEPth statement.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from claude_mem.config import Config
from claude_mem.storage.sqlite import backup, checksums, engine, former_names, integrity
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.memory import edits
from claude_mem.worker.app import Service
from tests.support import wounds
from tests.support.lab import Lab

VERSIONS = [number for number, _ in engine.load_migrations()]
NEWEST = VERSIONS[-1]
RENAMED = 22  # the version that gave tables and columns the names they have now
DERIVED = (  # of `passages` and of files of work trees, and made again
    "words", "words_data", "words_idx", "words_docsize", "words_config", "sightings",
)  # fmt: skip
OWED = (
    "index_queue",
    "checksums",
    "checksum_queue",
    "validity_queue",
    "validity_changes",
)  # what is still to be indexed or sealed: an upgrade may ask for more
DROPPED = {("anchors", "removed")}  # columns that a later version no longer has
# What a history of a few sessions leaves empty.
MORE = """
insert into sightings (anchor_id, root, stamp, present) select id, '/p', '1:1', 1 from anchors limit 1;
insert into confirmations select observation_id, 1, 'x', null from anchors limit 1;
insert into ledger (at, ended_at, purpose, turn_id, provider, model, input_tokens, output_tokens, cost, verdict)
    values (1, 2, 'refine', 1, 'anthropic', 'm', 10, 5, 7, 'ok');
insert into memory_sessions values ('m1', 1, 'claude', 'r', 1);
insert into breakers values ('anthropic', 3, 99, 'quota', 'spent', 's');
insert into notices values ('key', 'words', 1, null);
insert into injected_items values ('claude', 's0', 'o1', 'start', 1);
insert into injections (host, content_session_id, trigger, at, tokens, names) values ('claude', 's0', 'start', 1, 9, '["o1"]');
insert into uses (injection_id, turn_id, item, use, at) select max(id), 1, 'o1', 'edited', 1 from injections;
insert or replace into turn_reading values (1, 10, 5, 2, 7);
insert into imports (path, file_signature, source, started_at) values ('/x', 'm', 'export', 1);
insert into backfills (requested_at, sessions, turns, events, observations) values (1, 1, 1, 1, 1);
insert into backfill_files (backfill_id, path, size, changed_at, state) values (1, '/t', 1, 1, 'read');
insert into jobs (kind, subject, due_at, created_at) values ('render', '1.later', 9e15, 1);
insert into index_queue values ('turn', 1) on conflict do nothing;
insert into checksum_queue values (17) on conflict do nothing;
insert into deleted_vectors values (77);
insert into purged_counts values ('stored', '', 3);
insert into purged_event_hashes values (12345);
insert into deletions (at, counts) values (1, '{}');
insert into deleted_rows values (1, 'prompt', 999, 1, 1, 1, '{}');
insert into tombstones values ('mark', 1, 0, 9);
insert into trusted_sources values (1, 'gh', 1);
insert or replace into audit_head values (1, 3, 'h');
insert into spaces (id, name, kind, device, transport, created_at) values ('s', 'mine', 'personal', 'd', 'file:///x', 1);
insert into space_devices values ('s', 'd', 1);
insert into space_log (space_id, device, idx, body, hash, item_hash, state) values ('s', 'd', 1, x'7b', 'h', 'i', 'own');
insert into space_replaced values ('s', 'former');
insert into space_items (space_id, item_hash, state, version, at, device, idx) values ('s', 'i', 'live', 1, 1, 'd', 1);
insert into space_changes (kind, row_id) values ('summary', 1) on conflict do nothing;
"""


async def fill(lab: Lab, config: Config, embedder: Any) -> None:
    """Some of everything, at the newest version."""
    wounds.tell(lab, sessions=2, turns=2)
    service = Service(config, embedder=embedder)
    try:
        await service.run_until_idle()
        while await service.indexer.step():
            pass
        await service.db.write(edits.edit_observation, 1, {"narrative": "By hand"}, now=5)
        await service.db.write(edits.delete_observation, 2, now=6)
        await service.maintenance.store_checksums()
        await service.db.write(lambda conn: list(conn.execute(MORE)))
    finally:
        service.close()


# --- names -----------------------------------------------------------------------------------------------------------


def current_table(table: str) -> str:
    return next((now for now, then in former_names.FORMER_TABLES.items() if then == table), table)


def current_column(table: str, column: str) -> str:
    """Of a table and a column of any version."""
    known = former_names.FORMER_COLUMNS.items()
    return next((now for (of, now), then in known if of == current_table(table) and then == column), column)


# --- earlier ones ----------------------------------------------------------------------------------------------------


def tables(conn: Connection) -> list[str]:
    """Those with rows of their own."""
    found = conn.execute(
        "select name from sqlite_schema where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
    )
    return sorted(name for (name,) in found if name not in DERIVED)


def columns(conn: Connection, table: str) -> list[str]:
    names = [row[1] for row in conn.execute(f"pragma table_info({table})")]
    return [name for name in names if (table, name) not in DROPPED]


def earlier(newest: Path, number: int, path: Path) -> Path:
    """The same rows in the tables of an earlier version, as far as it had them."""
    path.unlink(missing_ok=True)
    conn = apsw.Connection(str(path))
    conn.pragma("journal_mode", "wal")
    for each, sql in engine.load_migrations()[:number]:
        with conn:
            conn.execute(sql)
            conn.pragma("user_version", each)
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    tables_ = tables(conn)
    conn.execute("attach ? as newest", (str(newest),))
    with conn:
        for table in [*tables_, "sqlite_sequence"]:
            then = columns(conn, table)
            now = [current_column(table, name) for name in then]
            conn.execute(f"delete from main.{table}")
            conn.execute(
                f"insert into main.{table} ({', '.join(then)})"
                f" select {', '.join(now)} from newest.{current_table(table)}"
            )
        for current, former in former_names.FORMER_TABLES.items() if number < RENAMED else ():
            conn.execute("update main.sqlite_sequence set name = ? where name = ?", (former, current))
        if "words" in dict(conn.execute("select name, 1 from main.sqlite_schema")):
            conn.execute("insert into main.words (words) values ('rebuild')")
        engine._note_schema(conn, number)
    conn.execute("detach newest")
    conn.row_trace = lambda cursor, row: dict(zip((name for name, *_ in cursor.get_description()), row, strict=True))
    if {"seals", "checksums"} & {*tables_}:
        with conn:
            _seal_again(conn)
    conn.close()
    return path


def _seal_again(conn: Connection) -> None:
    """As the program of that version sealed its rows: it knew fewer columns."""
    table = former_names.stored_table(conn, "checksums")
    known = [row["id"] for row in conn.execute(f"select id from {table}")]
    conn.executemany(
        f"update {table} set sum = ?2 where id = ?1", list(checksums.compute_checksums(conn, known).items())
    )


def said(path: Path, *, like: dict[str, list[str]] | None = None) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Its tables with their columns, and of each a hash of all rows; `like`: only these tables and columns."""
    conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        shape = like or {table: columns(conn, table) for table in tables(conn)}
        return shape, {table: _hash(conn, table, names) for table, names in shape.items()}
    finally:
        conn.close()


def _hash(conn: Connection, table: str, names: list[str]) -> str:
    """Of a database that may have been upgraded since: by the names of then, or by those of now."""
    but = "where name != 'schema'" if table == "checks" else ""  # which says what the tables are
    but = "where kind != 'anchor'" if table == "jobs" else but  # which an upgrade may add
    there = table if columns(conn, table) else current_table(table)
    known = columns(conn, there)
    asked = [name if name in known else current_column(table, name) for name in names]
    found = sorted(map(repr, conn.execute(f"select {', '.join(asked)} from {there} {but}")))
    return hashlib.sha256("\n".join(found).encode("utf-8", "surrogateescape")).hexdigest()


def count(path: Path) -> int:
    conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return sum(len(list(conn.execute(f"select 1 from {table}"))) for table in tables(conn))
    finally:
        conn.close()


class Place:
    """A folder where one database is upgraded, again and again."""

    def __init__(self, old: Path, folder: Path) -> None:
        self.old, self.folder = old, folder
        self.path, self.backups = folder / "claude-mem.db", folder / "backups"
        self.shape, self.before = said(old)
        self.version = version(old)

    def put_back(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        shutil.copyfile(self.old, self.path)
        self.path.chmod(0o600)

    def upgrade(self) -> None:
        Database(self.path, backups=self.backups).close()

    def wrong(self) -> list[str]:
        """After an upgrade: what is not as it was, in words."""
        _, after = said(self.path, like=self.shape)
        found = [
            f"{table} differs"
            for table, rows in self.before.items()
            if after[table] != rows and current_table(table) not in OWED
        ]
        if version(self.path) != NEWEST:
            found.append(f"version {version(self.path)}")
        return found + [
            f"damaged: {each}" for each in integrity.check_database(self.path, should_stop=backup.never_stop)
        ]

    def wrong_before(self) -> list[str]:
        """Of the backup that was made before: it must be the old database, whatever has happened since."""
        made = self.backups / f"before-{NEWEST:04d}.db"
        if not made.exists():
            return ["no backup"]
        shape, rows = said(made)
        found = ["the backup has other tables"] if shape != self.shape else []
        found += ["the backup has other rows"] if rows != self.before else []
        found += [f"the backup is of version {version(made)}"] if version(made) != self.version else []
        problem = backup.verify_backup(made, self.folder)
        return [*found, problem] if problem else found


def version(path: Path) -> int:
    conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return engine.read_schema_version(conn)
    finally:
        conn.close()


@contextmanager
def program_of(number: int) -> Iterator[None]:
    """The upgrades that an earlier program knew."""
    known = engine.load_migrations()
    right = engine.load_migrations
    engine.load_migrations = lambda: known[:number]
    try:
        yield
    finally:
        engine.load_migrations = right


# --- killed at every statement ---------------------------------------------------------------------------------------


def _killed_at(place: Place, nth: int) -> bool:
    """In a process of its own, before the nth statement of the upgrade; False if there are not so many."""
    place.put_back()
    child = os.fork()
    if child == 0:
        try:
            _count_down(nth)
            place.upgrade()
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def _count_down(nth: int) -> None:
    left, right = nth, engine.migrate_database

    def trace(*_: Any) -> bool:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def traced(conn: Connection, *, backups: Path) -> None:
        conn.exec_trace = trace
        right(conn, backups=backups)
        conn.exec_trace = None

    vars(engine)["migrate_database"] = traced


def main() -> None:
    """Prints how often it was killed, and then what was wrong, a line each."""
    folder, step, nth = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    place = Place(folder / "old.db", folder / "place")
    kills, wrong = 0, []
    while _killed_at(place, nth):
        kills += 1
        between = version(place.path)
        if between not in (place.version, NEWEST):
            wrong.append(f"statement {nth}: left at version {between}")
        place.upgrade()
        wrong += [f"statement {nth}: {each}" for each in place.wrong()]
        if kills % 10 == 1:
            wrong += [f"statement {nth}: {each}" for each in place.wrong_before()]
        nth += step
    sys.stdout.write("\n".join([str(kills), *wrong]) + "\n")


if __name__ == "__main__":
    main()
