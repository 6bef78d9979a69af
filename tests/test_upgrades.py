"""From every version a database may have been left at to the newest: every row, whatever happens on the way, and back.

The earlier databases have the same rows as the newest one, in the tables they had (tests/upgrading.py).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from claude_mem.domain.errors import DatabaseTooNew
from claude_mem.storage.sqlite.engine import Database
from tests import proof, upgrading
from tests.lab import Lab
from tests.moving import Home
from tests.test_io_errors import TROUBLE, failing
from tests.test_recall import FakeEmbedder
from tests.upgrading import NEWEST, Place, earlier, said

pytestmark = [
    # What fails while SQLite closes a file it can tell no one; apsw reports it on the side.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/test_upgrades.py"
EARLIER = range(1, NEWEST) if proof.long() else (1, 11, NEWEST - 1)
HARDLY = EARLIER if proof.long() else (11,)
KILL_STEP = 1 if proof.long() else 29
FULL_STEP = 3 if proof.long() else 211


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
    note("earlier versions brought to the newest", goal=f"{NEWEST - 1}", measured=1, ok=not wrong)
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
    note("older programs that refused the newest tables", goal=f"{NEWEST - 1}", measured=1, ok=same)
    assert same


@pytest.mark.parametrize("number", HARDLY)
def test_killed_at_any_statement_it_is_whole_afterwards(place: Place) -> None:
    words = [sys.executable, "-m", "tests.upgrading", str(place.old.parent), str(KILL_STEP)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
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
    at, runs, wrong = 1, 0, list[str]()
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
        at, runs = at + FULL_STEP, runs + 1
    note(
        "upgrades on a disk that was full from a call on, each from another",
        goal="100 % of the rows, in the old version or the newest, and the old one in the backup",
        measured=runs,
        ok=not wrong,
    )
    assert wrong == []
    assert runs > 0
