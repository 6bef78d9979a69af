"""Imports are bounded: by rows, by bytes, by projects and by time, whatever a file says."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError, OperationFailed
from claude_mem.domain.export_format import ObservationRecord, ProjectRecord, SessionRecord
from claude_mem.storage import external_db
from claude_mem.storage.sqlite import export as rows
from claude_mem.transfer import import_, legacy
from tests.storage.test_portable import ALL, saved
from tests.support import proof
from tests.support.moving import Home, write
from tests.support.olderdb import CLOCK, OlderDb

COMMAND = "python -m pytest tests/security/test_hostile_imports.py"
YEAR_2096 = 3_976_214_400_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "ours")


def note(name: str, *, measured: object, ok: bool, goal: str = "0", unit: str = "") -> None:
    proof.record(f"hostile imports: {name}", of="S17", goal=goal, measured=measured, ok=ok, unit=unit, command=COMMAND)


def read_all(path: Path) -> list[Any]:
    """Every batch of an older database, as the job reads them one by one."""
    batches, position = [], ""
    while True:
        batches.append(legacy.read_batch(path, position, project="", config=Config()))
        if batches[-1].position is None:
            return batches
        assert batches[-1].position != position
        position = batches[-1].position


def filled(path: Path) -> OlderDb:
    """One session with one of everything."""
    older_db = OlderDb(path)
    row_id = older_db.session("s1")
    older_db.prompt(row_id, 1, "Fix it", session="s1")
    older_db.observation("It was fixed", session="s1")
    older_db.summary(session="s1")
    return older_db


# --- what a session may hold ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["observations", "session_summaries", "user_prompts"])
@pytest.mark.parametrize("orphaned", [False, True])
def test_a_large_session_is_read_in_parts_and_every_row_once(tmp_path: Path, table: str, orphaned: bool) -> None:
    older_db = OlderDb(tmp_path / "large.db")
    older_db.session("before")
    older_db.session("large")
    older_db.session("after")
    if table == "user_prompts":
        sql = "insert into user_prompts (session_db_id, content_session_id, prompt_number, prompt_text, created_at, created_at_epoch)"
        values = "select 2, 'large', n, 'prompt ' || n, 'x', ? + n"
    elif table == "observations":
        sql = "insert into observations (memory_session_id, project, type, title, created_at, created_at_epoch)"
        values = "select 'm-large', 'shop', 'change', 'title ' || n, 'x', ? + n"
    else:
        sql = "insert into session_summaries (memory_session_id, project, request, prompt_number, created_at, created_at_epoch)"
        values = "select 'm-large', 'shop', 'request ' || n, n, 'x', ? + n"
    count = 1_700
    numbers = f"with recursive c(n) as (select 10 union all select n + 1 from c where n < {count + 9})"
    older_db.conn.execute(f"{sql} {numbers} {values} from c", (CLOCK,))
    if orphaned:
        older_db.conn.execute("delete from sdk_sessions where id = 2")
    batches = read_all(older_db.close())
    assert max(len(batch.records) for batch in batches) <= 3 * legacy.BATCH_ROWS
    kind = {"observations": "observation", "session_summaries": "summary", "user_prompts": "prompt"}[table]
    keys = [
        (getattr(record, "title", None), getattr(record, "text", None), getattr(record, "request", None))
        for batch in batches
        for record in batch.records
        if record.__struct_config__.tag == kind
    ]
    assert len(keys) == len(set(keys))
    mine = [key for key in keys if any(part and part.split()[-1].isdigit() for part in key if part)]
    if table == "user_prompts" and orphaned:
        assert sum(batch.aside["no session", "prompt"] for batch in batches) >= count
    else:
        assert len(mine) >= count
    sessions = [record.session for batch in batches for record in batch.records if isinstance(record, SessionRecord)]
    assert len(sessions) == len(set(sessions))


def test_of_one_session_only_so_many_prompts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    monkeypatch.setattr(legacy, "MAX_ROWS", 600)
    older_db = OlderDb(tmp_path / "large.db")
    older_db.session("large")
    numbers = "with recursive c(n) as (select 10 union all select n + 1 from c where n < 1009)"
    older_db.conn.execute(
        "insert into user_prompts (session_db_id, content_session_id, prompt_number, prompt_text, created_at,"
        f" created_at_epoch) {numbers} select 1, 'large', n, 'p', 'x', 1 from c"
    )
    found = home.bring(older_db.close())
    assert found.error is None
    prompts = sum(kinds.get("prompt", 0) for kinds in found.counts.values())
    assert found.counts[legacy.TOO_MANY]["prompt"] >= 400
    assert found.counts["added"]["prompt"] == 600
    assert prompts >= 1000


def test_live_turns_wait_for_one_part_only(home: Home, tmp_path: Path) -> None:
    """Between two parts the runner takes whatever else is due: a part is a job of its own."""
    older_db = OlderDb(tmp_path / "large.db")
    older_db.session("large")
    numbers = "with recursive c(n) as (select 1 union all select n + 1 from c where n < 1300)"
    older_db.conn.execute(
        "insert into observations (memory_session_id, project, type, title, created_at, created_at_epoch)"
        f" {numbers} select 'm-large', 'shop', 'change', 'title ' || n, 'x', ? + n from c",
        (CLOCK,),
    )
    found = home.bring(older_db.close())
    assert found.error is None
    assert found.counts["added"]["observation"] >= 1300
    again = home.bring(tmp_path / "large.db")
    assert again.counts["known"]["observation"] == found.counts["added"]["observation"]
    assert "added" not in again.counts or not again.counts["added"].get("observation")


def test_rows_of_many_megabytes_are_read_one_after_the_other(tmp_path: Path) -> None:
    older_db = OlderDb(tmp_path / "wide.db")
    older_db.session("wide")
    numbers = "with recursive c(n) as (select 1 union all select n + 1 from c where n < 12)"
    older_db.conn.execute(
        "insert into observations (memory_session_id, project, type, title, narrative, created_at, created_at_epoch)"
        f" {numbers} select 'm-wide', 'shop', 'change', 'title ' || n, printf('%.*c', 6000000, 'x'), 'x', ? + n from c",
        (CLOCK,),
    )
    path = older_db.close()
    with external_db.open_read_only(path) as conn:
        page = external_db.LegacyDatabase(conn).list_session_items("observations", "m-wide", after=0, limit=500)
    assert page.more
    assert len(page.rows) < 6


# --- what a file computes or hides ------------------------------------------------------------------------------------


HOSTILE: dict[str, str] = {
    "a generated column": "alter table observations add column x blob as (zeroblob(900000000))",
    "a generated column of sessions": "alter table sdk_sessions add column x blob as (zeroblob(900000000))",
    "a column that is called rowid": "drop table user_prompts; create table user_prompts (rowid text, session_db_id"
    " integer, prompt_text text, prompt_number integer); insert into user_prompts values ('x', 1, 'Fix it', 1)",
    "columns of all its names": "drop table user_prompts; create table user_prompts (rowid text, _rowid_ text, oid text,"
    " session_db_id integer, prompt_text text); insert into user_prompts values ('x', 'x', 'x', 1, 'Fix it')",
    "a view": "create view more as select * from observations",
    "a trigger": "create trigger t after insert on observations begin select 1; end",
    "an index that computes": "create index more on observations (length(printf('%.*c', 100000, 'x')))",
    "a view of prompts": "drop table user_prompts; create view user_prompts as with recursive c(n) as (select 1 union all"
    " select n + 1 from c) select n as session_db_id, 'x' as prompt_text, n as prompt_number from c",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_database_computes_is_not_read(home: Home, tmp_path: Path, name: str) -> None:
    older_db = filled(tmp_path / "hostile.db")
    older_db.conn.execute(HOSTILE[name])
    path = older_db.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = home.bring(path)
    risen = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert found.error is None
    assert found.counts["added"]["observation"] >= 1
    note("memory for what a database computes", measured=risen, ok=risen <= 150, goal="≤ 150 MB", unit="MB")
    assert risen <= 150


def test_a_value_that_is_too_large_ends_the_import_in_words(home: Home, tmp_path: Path) -> None:
    older_db = filled(tmp_path / "hostile.db")
    older_db.conn.execute("update observations set narrative = printf('%.*c', 40000000, 'x')")
    found = home.bring(older_db.close())
    assert "more than 32 MB" in (found.error or "")


# --- how many projects ------------------------------------------------------------------------------------------------


def test_a_database_of_too_many_projects_is_refused(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy, "MAX_PROJECTS", 50)
    found = home.bring(_with_projects(tmp_path / "many.db", 60))
    assert "more than 50 projects" in (found.error or "")
    assert home.rows("select count(*) from projects") == [(0,)]


def test_many_projects_are_read_in_parts(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "BATCH_PROJECTS", 7)
    path = _with_projects(tmp_path / "many.db", 30)
    assert max(sum(isinstance(record, ProjectRecord) for record in batch.records) for batch in read_all(path)) == 7
    found = home.bring(path)
    assert found.error is None
    ((count,),) = home.rows("select count(*) from projects")
    assert count >= 30


def _with_projects(path: Path, count: int) -> Path:
    older_db = OlderDb(path)
    older_db.session("s1")
    numbers = f"with recursive c(n) as (select 1 union all select n + 1 from c where n < {count})"
    older_db.conn.execute(
        "insert into observations (memory_session_id, project, type, title, created_at, created_at_epoch)"
        f" {numbers} select 'm-s1', 'project ' || n, 'change', 'title ' || n, 'x', ? + n from c",
        (CLOCK,),
    )
    return older_db.close()


def test_an_export_of_too_many_projects_is_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_, "MAX_PROJECTS", 50)
    listed = [ProjectRecord(project=f"name:p{n}", name=f"p{n}", created_at=1) for n in range(60)]
    found = home.bring(write(tmp_path / "x.jsonl", [*listed, *ALL]))
    assert "more than 50 projects" in (found.error or "")
    assert home.rows("select count(*) from projects") == [(0,)]


def test_projects_that_only_records_name_are_bounded_too(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_IMPORTED_PROJECTS", 20)
    listed = [saved(f"Note {n}", project=f"name:p{n}") for n in range(60)]
    found = home.bring(write(tmp_path / "x.jsonl", listed))
    assert found.error is None
    assert home.rows("select count(*) from projects") == [(20,)]
    assert found.counts["can't be stored"]["observation"] == 40
    assert any("20 projects already" in said for said in found.notes)


def test_a_batch_of_an_export_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_, "BATCH_BYTES", 10_000)
    home = Home(tmp_path / "ours")
    long = [saved(f"Note {n}", narrative="some words " * 300) for n in range(20)]
    sizes: list[int] = []
    seen = import_.read_batch

    def counted(*given: Any) -> Any:
        batch = seen(*given)
        sizes.append(len(batch.records))
        return batch

    monkeypatch.setattr(import_, "read_batch", counted)
    found = home.bring(write(tmp_path / "x.jsonl", long))
    assert found.counts["added"]["observation"] == 20
    assert max(sizes) < 6


# --- time -------------------------------------------------------------------------------------------------------------


def _dated(record: Any, at: int) -> Any:
    names = [name for name in record.__struct_fields__ if name.endswith("_at") and getattr(record, name) is not None]
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return type(record)(**{**fields, **dict.fromkeys(names, at)})


TIMED: dict[str, tuple[str, ...]] = {
    "observations": ("created_at", "updated_at"), "session_summaries": ("created_at", "updated_at"),
    "user_prompts": ("created_at",), "sdk_sessions": ("started_at", "last_event_at", "ended_at"),
    "projects": ("created_at",), "turns": ("opened_at", "last_at", "closed_at"),
}  # fmt: skip


def times(home: Home) -> list[int]:
    return [
        at
        for table, columns in TIMED.items()
        for row in home.rows(f"select {', '.join(columns)} from {table}")
        for at in row
        if at is not None
    ]


def test_what_an_export_dates_in_the_future_is_of_the_time_of_the_import(home: Home, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [_dated(record, YEAR_2096) for record in ALL])
    first = home.bring(path)
    assert first.counts["added"]["observation"] >= 1
    late = [at for at in times(home) if at > ids.now_ms()]
    note("times after the import", measured=len(late), ok=not late)
    assert late == []
    again = home.bring(path)
    assert not again.counts.get("changed")


def test_what_an_older_database_dates_in_the_future_is_too(home: Home, tmp_path: Path) -> None:
    older_db = filled(tmp_path / "x.db")
    for table in ("observations", "session_summaries", "user_prompts"):
        older_db.conn.execute(f"update {table} set created_at_epoch = ?", (YEAR_2096,))
    older_db.conn.execute("update sdk_sessions set started_at_epoch = ?, completed_at_epoch = ?", (YEAR_2096,) * 2)
    assert home.bring(older_db.close()).error is None
    assert [at for at in times(home) if at > ids.now_ms()] == []


def test_times_of_the_past_stay_what_they_are(home: Home, tmp_path: Path) -> None:
    home.bring(write(tmp_path / "x.jsonl", ALL))
    stored = {row[0] for row in home.rows("select created_at from observations")}
    assert stored == {record.created_at for record in ALL if isinstance(record, ObservationRecord)}


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(ClaudeMemError):
        import_.detect_source(path)


def test_sqlite_takes_no_value_larger_than_ours(tmp_path: Path) -> None:
    path = OlderDb(tmp_path / "x.db").close()
    with external_db.open_read_only(path) as conn:
        with pytest.raises(apsw.TooBigError):
            conn.execute("select zeroblob(900000000)").fetchall()
        with pytest.raises(OperationFailed), external_db.translate_sqlite_errors(path):
            conn.execute("select zeroblob(900000000)").fetchall()
