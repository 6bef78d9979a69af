"""From every version a database may have been left at to the newest: every row, whatever happens on the way, and back.

The earlier databases have the same rows as the newest one, in the tables they had (tests/support/upgrading.py).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from claude_mem.domain.errors import DatabaseTooNew, OperationFailed
from claude_mem.storage.records import DeletionScope, TextCleaner, Tombstone
from claude_mem.storage.sqlite import backup, former_names, repair
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.deletion import deletions, keyed_hash, redaction, tombstones
from claude_mem.storage.sqlite.deletion.scopes import find_affected_rows
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_value, open_writer
from tests.reliability.test_io_errors import TROUBLE, failing
from tests.support import proof, upgrading
from tests.support.embedder import FakeEmbedder
from tests.support.lab import Lab
from tests.support.moving import Home
from tests.support.upgrading import NEWEST, VERSIONS, Place, columns, earlier, said, tables

pytestmark = [
    # What fails while SQLite closes a file it can tell no one; apsw reports it on the side.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/storage/test_upgrades.py"
EARLIER = VERSIONS[:-1] if proof.long() else (1, 11, VERSIONS[-2])
HARDLY = EARLIER if proof.long() else (11,)
# At every statement from the version that was released and from the last one. From the others, which run mostly the same
# statements, at every 7th, each version at others: all of them took two hours.
RELEASED = 16


def _steps(number: int) -> tuple[int, int]:
    """Return from which statement to which a kill moves on, and from which call to which a full disk does."""
    if not proof.long():
        return 29, 211
    return (1, 3) if number in (RELEASED, VERSIONS[-2]) else (7, 21)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("numpy", reason="the extra `vectors` is not installed")
    lab = Lab(tmp_path_factory.mktemp("newest"))
    config = Home(lab.data).config
    asyncio.run(upgrading.fill(lab, config, FakeEmbedder()))
    return config.database


@pytest.fixture
def place(newest: Path, tmp_path: Path, number: int) -> Iterator[Place]:
    yield Place(earlier(newest, number, tmp_path / "old.db"), tmp_path / "place")


def note(name: str, *, goal: str, measured: int, ok: bool, unit: str = "", note: str = "") -> None:
    proof.record(name, of="R13", goal=goal, measured=measured, ok=ok, unit=unit, note=note, tally=True, command=COMMAND)


def test_no_table_is_empty(newest: Path) -> None:
    """Else it would be no news that nothing of it is lost."""
    conn = apsw.Connection(str(newest), flags=apsw.SQLITE_OPEN_READONLY)
    counts = {table: conn.execute(f"select count(*) from {table}").fetchall()[0][0] for table in upgrading.tables(conn)}
    conn.close()
    assert [table for table, count in counts.items() if not count] == []


@pytest.mark.parametrize("number", EARLIER)
def test_every_row_comes_through_and_the_way_back_is_open(place: Place) -> None:
    place.put_back()
    place.upgrade()
    wrong = [*place.wrong(), *place.wrong_before()]
    rows = upgrading.count(place.old)
    note("earlier versions brought to the newest", goal=f"{len(VERSIONS) - 1}", measured=1, ok=not wrong)
    note("rows that came through with the same hash", goal="all", measured=rows if not wrong else 0, ok=not wrong)
    assert wrong == []
    made = place.backups / f"before-{NEWEST:04d}.db"
    with upgrading.program_of(place.version):  # the program before the upgrade, with its backup
        Database(made, backups=place.backups).close()
    assert said(made) == (place.shape, place.before)


@pytest.mark.parametrize("number", EARLIER)
def test_an_older_program_refuses_it_and_changes_nothing(place: Place) -> None:
    place.put_back()
    place.upgrade()
    before = place.path.read_bytes()
    with upgrading.program_of(place.version), pytest.raises(DatabaseTooNew, match=f"up to {place.version}$"):
        place.upgrade()
    same = place.path.read_bytes() == before
    note("older programs that refused the newest tables", goal=f"{len(VERSIONS) - 1}", measured=1, ok=same)
    assert same


@pytest.mark.parametrize("number", HARDLY)
def test_killed_at_any_statement_it_is_whole_afterwards(place: Place) -> None:
    step, _ = _steps(place.version)
    first = 1 + place.version % step
    words = [sys.executable, "-m", "tests.support.upgrading", str(place.old.parent), str(step), str(first)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1_200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    kills, *wrong = done.stdout.splitlines()
    note(
        "kills during an upgrade, each before another statement",
        goal="100 % of the rows, in the old version or the newest, and the old one in the backup",
        measured=int(kills),
        ok=not wrong,
    )
    assert wrong == []
    assert int(kills) > 0


@pytest.mark.parametrize("number", HARDLY)
def test_a_disk_that_is_full_at_any_call_costs_nothing(place: Place) -> None:
    _, step = _steps(place.version)
    at, runs, wrong = 1 + place.version % step, 0, list[str]()
    while True:
        place.put_back()
        with failing(at, lasting=True, error=apsw.FullError) as counter:
            try:
                place.upgrade()
            except TROUBLE:
                pass
        if not counter.hit:
            break
        if upgrading.version(place.path) not in (place.version, NEWEST):
            wrong.append(f"call {at}: left in between")
        place.upgrade()
        wrong += [f"call {at}: {each}" for each in place.wrong()]
        if runs % 10 == 0:
            wrong += [f"call {at}: {each}" for each in place.wrong_before()]
        at, runs = at + step, runs + 1
    note(
        "upgrades on a disk that was full from a call on, each from another",
        goal="100 % of the rows, in the old version or the newest, and the old one in the backup",
        measured=runs,
        ok=not wrong,
    )
    assert wrong == []
    assert runs > 0


# --- copies from before the tables were renamed ----------------------------------------------------------------------

WORD = "quarterdeck"
BEFORE_RENAMING = upgrading.RENAMED - 1
PLANTED = f"""
    update put_away set content = '{{"text": "{WORD}"}}';
    update attic set content = json_set(content, '$.narrative', '{WORD}');
    update tellings set about = '{WORD}';
    update told set what = 'file:{WORD}';
    delete from unsealed; delete from seals where id % 16 = 8;
"""


@pytest.fixture
def copy(newest: Path, tmp_path: Path) -> Iterator[Connection]:
    """A copy with the word in every table that has another name now."""
    path = earlier(newest, BEFORE_RENAMING, tmp_path / "old.db")
    conn = open_writer(path)
    keyed_hash.register_keyed_hash(conn, tmp_path)
    conn.execute(PLANTED)
    yield conn
    conn.close()


def planted(conn: Connection) -> dict[str, int]:
    places = {"put_away": "content", "attic": "content", "tellings": "about", "told": "what"}
    return {
        table: int(fetch_value(conn, f"select count(*) from {table} where instr({column}, ?)", (WORD,)))
        for table, column in places.items()
    }


def test_no_name_of_before_is_left_in_the_newest_tables(newest: Path) -> None:
    conn = apsw.Connection(str(newest), flags=apsw.SQLITE_OPEN_READONLY)
    there = {table: columns(conn, table) for table in tables(conn)}
    conn.close()
    assert there.keys() & set(former_names.FORMER_TABLES.values()) == set()
    assert [name for name, former in former_names.FORMER_COLUMNS.items() if name[1] not in there[name[0]]] == []
    assert [name for name, former in former_names.FORMER_COLUMNS.items() if former in there[name[0]]] == []


def test_a_text_is_erased_from_a_copy_of_the_version_before(copy: Connection) -> None:
    assert planted(copy) == {"put_away": 1, "attic": 1, "tellings": 1, "told": 1}
    affected = find_affected_rows(copy, DeletionScope(matching=WORD), erase=True)
    deletions.erase_rows_from_copy(copy, affected)
    deletions.erase_mentions(copy, lambda text: WORD in text, quotes=lambda text: WORD in text)
    assert planted(copy) == {"put_away": 0, "attic": 0, "tellings": 0, "told": 0}


def test_a_copy_of_the_version_before_is_redacted(copy: Connection) -> None:
    def clean(text: str) -> str:
        return text.replace(WORD, "[redacted]")

    changed = redaction.redact_copy(copy, clean=TextCleaner(clean, clean), write=True)
    assert changed == {"deleted_observations": 1, "deleted_rows": 1, "injections": 1}
    assert planted(copy) == {"put_away": 0, "attic": 0, "tellings": 0, "told": 1}


@pytest.mark.parametrize("number", [BEFORE_RENAMING])
def test_a_copy_of_the_version_before_is_checked_by_its_own_checksums(place: Place) -> None:
    assert backup.examine_backup(place.old).version == BEFORE_RENAMING
    conn = open_writer(place.old)
    assert tombstones.find_missing_tombstones(conn, [Tombstone(1, "mark"), Tombstone(2, "mark")]) == [
        Tombstone(2, "mark")
    ]
    conn.execute("update attic set content = '{}'")
    conn.execute("delete from unsealed")
    conn.execute("insert into seals select observation_id * 16 + 8, 5 from attic")
    conn.close()
    with pytest.raises(OperationFailed, match="deleted_observations 2 does not match its checksum"):
        backup.examine_backup(place.old)


@pytest.mark.parametrize("number", [BEFORE_RENAMING])
def test_rows_of_a_damaged_database_of_the_version_before_are_salvaged(place: Place, tmp_path: Path) -> None:
    db = Database(tmp_path / "fresh" / "claude-mem.db", backups=tmp_path / "backups")
    damaged = repair._connect_to_damaged(place.old)
    salvaged = db.write_without_fk_checks(lambda conn: repair._salvage_rows(damaged, conn, now=9))
    damaged.close()
    db.close()
    assert salvaged.lost == {}
    _, after = said(db.path, like=place.shape)
    recounted = {"tally", "receipts", "documents", "passages", "signals", "vectors", "vectors_gone", "known_files"}
    wrong = {table for table, rows in place.before.items() if after[table] != rows}
    assert wrong - recounted - {"checks", "stale", "seals", "unsealed"} == set()
    assert salvaged.copied["deleted_rows"] == salvaged.copied["injected_items"] == salvaged.copied["tombstones"] == 1


@pytest.mark.parametrize("number", [BEFORE_RENAMING])
def test_a_deletion_of_the_version_before_can_be_undone_after_the_upgrade(place: Place) -> None:
    injection = {"host": "claude", "content_session_id": "s9", "moment": "file", "about": "x.py", "at": 5, "tokens": 3}
    conn = open_writer(place.old)
    conn.execute("delete from put_away")
    conn.execute(
        "insert into put_away values (1, 'telling', 77, null, null, 5, ?)",
        (json.dumps({"id": 77, "names": "[]", **injection}),),
    )
    conn.close()
    place.put_back()
    place.upgrade()
    db = Database(place.path, backups=place.backups)
    restored = db.write_now(deletions.restore_deletion, 1, now=9)
    rows = db.read_now(fetch_all, 'select host, "trigger", about from injections where id = 77')
    db.close()
    assert restored.counts["telling"] == 1
    assert rows == [{"host": "claude", "trigger": "file", "about": "x.py"}]
