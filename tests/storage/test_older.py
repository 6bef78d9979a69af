"""The older claude-mem's memories come over: from any of its ages, once, without what must not be kept, and without a
byte of its own being touched."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.storage import external_db
from claude_mem.storage.external_db import is_foreign_database, resolve_database_path
from claude_mem.storage.journal_records import ImportRun
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.memory import projects
from claude_mem.system import process
from claude_mem.system.project_folders import identify_project
from claude_mem.transfer import import_, legacy
from claude_mem.worker.app import Service
from tests.support.lab import Lab
from tests.support.moving import Home
from tests.support.olderdb import CLOCK, MIDDLE, NARROW, OlderDb, files, iso, names
from tests.worker.test_backfill import Old

SECRET = "ghp_" + "a1B2c3D4" * 5


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> OlderDb:
    """One session of the newest kind, still in use."""
    older = OlderDb(tmp_path / "theirs" / "claude-mem.db")
    row_id = older.session()
    older.prompt(row_id, 1, "Fix the empty basket")
    older.prompt(row_id, 2, "Now round the totals", at=CLOCK + 20_000)
    older.observation("Empty baskets no longer fail")
    older.observation("Totals are rounded once", type="decision", prompt_number=2, at=CLOCK + 25_000)
    older.summary()
    older.summary(prompt_number=2, request="Round the totals", completed="Rounded at the end.", at=CLOCK + 29_000)
    return older


def added(found: ImportRun) -> dict[str, int]:
    return found.counts.get("added", {})


def aside(found: ImportRun) -> dict[str, dict[str, int]]:
    return {
        reason: kinds
        for reason, kinds in found.counts.items()
        if reason not in ("added", "known", "changed", "forgotten")
    }


# --- what comes over -------------------------------------------------------------------------------------------------


def test_everything_of_the_newest_kind_comes_over_with_its_own_times(home: Home, theirs: OlderDb) -> None:
    found = home.bring(theirs.path)
    assert added(found) == {"project": 1, "session": 1, "prompt": 2, "observation": 2, "summary": 2}
    assert aside(found) == {}
    assert home.rows(
        "select host, content_session_id, status, title, subtitle, started_at, ended_at from sdk_sessions"
    ) == [("claude", "old-1", "completed", "Fix the empty basket", "Rounded at the end.", CLOCK, CLOCK + 60_000)]
    assert home.rows("select prompt_number, text, created_at from user_prompts order by 1") == [
        (1, "Fix the empty basket", CLOCK),
        (2, "Now round the totals", CLOCK + 20_000),
    ]
    assert home.rows(
        "select prompt_number, type, title, narrative, facts, concepts, model, trust, created_at from observations"
    ) == [
        (
            1,
            "bugfix",
            "Empty baskets no longer fail",
            "Empty baskets no longer fail, and why.",
            '["One fact","Another fact"]',
            '["problem-solution"]',
            "claude-haiku-4-5",
            "agent",
            CLOCK + 5000,
        ),
        (
            2,
            "decision",
            "Totals are rounded once",
            "Totals are rounded once, and why.",
            '["One fact","Another fact"]',
            '["problem-solution"]',
            "claude-haiku-4-5",
            "agent",
            CLOCK + 25_000,
        ),
    ]
    assert home.rows("select prompt_number, request, next_steps, created_at from session_summaries order by 1") == [
        (1, "Fix the empty basket", "Round the totals.", CLOCK + 9000),
        (2, "Round the totals", "Round the totals.", CLOCK + 29_000),
    ]


def test_a_second_time_adds_nothing_and_what_is_new_there_comes_later(home: Home, theirs: OlderDb) -> None:
    home.bring(theirs.path)
    assert added(home.bring(theirs.path)) == {}
    theirs.observation("Coupons are checked twice", prompt_number=2, at=CLOCK + 26_000)
    assert added(home.bring(theirs.path)) == {"observation": 1}


def test_a_copy_of_it_is_the_same_memory(home: Home, theirs: OlderDb, tmp_path: Path) -> None:
    """Rows may have other numbers there, and the observer's session another name."""
    home.bring(theirs.path)
    copy = OlderDb(tmp_path / "elsewhere" / "x.db")
    row_id = copy.session(id=70, memory_session_id="m-other")
    copy.prompt(row_id, 1, "Fix the empty basket")
    copy.observation("Empty baskets no longer fail", id=900, memory_session_id="m-other")
    assert added(home.bring(copy.close())) == {}


def test_the_first_tables_with_one_text_each(home: Home, tmp_path: Path) -> None:
    older = OlderDb(tmp_path / "v4.db", NARROW, version=4)
    common = {"sdk_session_id": "sdk-1", "project": "shop", "created_at": iso(CLOCK), "created_at_epoch": CLOCK}
    older.add(
        "sdk_sessions",
        claude_session_id="first",
        sdk_session_id="sdk-1",
        project="shop",
        user_prompt="Start the shop",
        started_at=iso(CLOCK),
        started_at_epoch=CLOCK,
        status="active",
    )
    older.add("observations", text="The shop has one module. It is called cart.", type="feature", **common)
    older.add("session_summaries", summary="A module was made.", **common)
    assert added(home.bring(older.close())) == {"project": 1, "session": 1, "observation": 1, "summary": 1}
    assert home.rows("select title, narrative, prompt_number, created_at from observations") == [
        ("The shop has one module.", "The shop has one module. It is called cart.", 1, CLOCK)
    ]
    assert home.rows("select completed from session_summaries") == [("A module was made.",)]
    assert home.rows("select first_prompt, status from sdk_sessions") == [("Start the shop", "interrupted")]


@pytest.mark.parametrize(
    ("epoch", "text"),
    [(CLOCK, None), (None, iso(CLOCK)), (CLOCK // 1000, None), (None, "2025-10-09T08:53:20"), (str(CLOCK), "rubbish")],
)
def test_times_by_number_or_by_text_in_tables_of_the_middle(home: Home, tmp_path: Path, epoch: Any, text: Any) -> None:
    older = OlderDb(tmp_path / "v11.db", MIDDLE, version=11)
    older.add(
        "sdk_sessions",
        claude_session_id="mid",
        sdk_session_id="sdk-1",
        project="shop",
        started_at=text,
        started_at_epoch=epoch,
        status="completed",
    )
    when = {"created_at": text, "created_at_epoch": epoch}
    older.add("user_prompts", claude_session_id="mid", prompt_number=3, prompt_text="Why?", **when)
    older.add("observations", sdk_session_id="sdk-1", project="shop", type="discovery", title="Because", **when)
    assert added(home.bring(older.close())) == {"project": 1, "session": 1, "prompt": 1, "observation": 1}
    assert home.rows("select created_at, prompt_number from observations") == [(CLOCK, 3)]
    assert home.rows("select started_at from sdk_sessions") == [(CLOCK,)]


def test_two_summaries_of_one_prompt_are_both_kept(home: Home, theirs: OlderDb) -> None:
    theirs.summary(completed="And the tests pass.", at=CLOCK + 11_000)
    assert added(home.bring(theirs.path))["summary"] == 3
    assert added(home.bring(theirs.path)) == {}


def test_what_has_lost_its_session_is_kept_under_the_observers_own(home: Home, theirs: OlderDb) -> None:
    theirs.observation("Orphan", session="gone")
    theirs.summary(session="gone")
    theirs.add(
        "user_prompts",
        session_db_id=999,
        content_session_id="gone",
        prompt_number=1,
        prompt_text="Hello?",
        created_at=iso(CLOCK),
        created_at_epoch=CLOCK,
    )
    found = home.bring(theirs.path)
    assert (added(found)["observation"], added(found)["summary"]) == (3, 3)
    assert aside(found) == {"no session": {"prompt": 1}}
    assert ("claude-mem", "m-gone") in home.rows("select host, content_session_id from sdk_sessions")
    assert added(home.bring(theirs.path)) == {}


def test_what_was_saved_by_hand_belongs_to_no_session(home: Home, theirs: OlderDb) -> None:
    theirs.session("manual-content-shop", memory_session_id="manual-shop", user_prompt=None)
    theirs.observation("Deploys happen on Tuesdays", memory_session_id="manual-shop", concepts="[]")
    home.bring(theirs.path)
    assert home.rows("select title, turn_id from observations where session_id is null") == [
        ("Deploys happen on Tuesdays", None)
    ]
    assert added(home.bring(theirs.path)) == {}


def test_an_unknown_type_is_a_change_and_other_hosts_keep_their_name(home: Home, theirs: OlderDb) -> None:
    theirs.session("c-1", platform_source="codex", memory_session_id="m-c-1")
    theirs.observation("Keys lie open", session="c-1", type="security_note", concepts=None)
    home.bring(theirs.path)
    assert home.rows(
        "select s.host, o.type, o.concepts from observations o join sdk_sessions s on s.id = o.session_id"
        " where o.title = 'Keys lie open'"
    ) == [("codex", "change", '["security_note"]')]


def test_only_one_project_if_asked(home: Home, theirs: OlderDb) -> None:
    theirs.session("old-2", project="bank")
    theirs.observation("Interest is rounded", session="old-2", project="bank")
    found = home.bring(theirs.path, project="bank")
    assert added(found) == {"project": 1, "session": 1, "observation": 1}
    assert home.rows("select name from projects") == [("bank",)]


def test_a_dry_run_counts_the_same_and_keeps_nothing(home: Home, theirs: OlderDb) -> None:
    for number in range(45):  # more than two batches
        theirs.session(f"s-{number}")
        theirs.observation(f"Thing {number}", session=f"s-{number}")
    counted = home.bring(theirs.path, dry_run=True)
    assert home.rows("select (select count(*) from observations) + (select count(*) from projects)") == [(0,)]
    assert home.bring(theirs.path).counts == counted.counts
    assert added(counted)["session"] == 46


# --- projects --------------------------------------------------------------------------------------------------------


def test_a_project_is_the_repository_its_files_lie_in(home: Home, theirs: OlderDb, tmp_path: Path) -> None:
    repository = tmp_path / "code" / "shop"
    (repository / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run(["git", "-C", str(repository), "remote", "add", "origin", "git@host:me/shop.git"], check=True)
    changed, gone = str(repository / "src" / "cart.py"), "/does/not/exist/shop/x.py"
    theirs.observation("Carts have a file", files_modified=json.dumps([gone, changed]), files_read='["README.md"]')
    theirs.observation("In a worktree", project="shop/feature-x")
    theirs.observation("Merged", project="other/feature-y", merged_into_project="shop")
    home.bring(theirs.path)
    assert home.rows("select name, root from projects") == [("shop", str(repository))]
    assert ("remote:host/me/shop",) in home.rows("select identity from project_aliases")
    assert home.rows("select files_modified from observations where title = 'Carts have a file'") == [
        (f'["{gone}","src/cart.py"]',)
    ]


def test_a_project_known_by_name_only_becomes_the_first_repository_of_that_name(lab: Lab) -> None:
    older = OlderDb(lab.folder / "theirs.db")
    older.session()
    older.observation("Empty baskets no longer fail")
    lab.mem("import", str(older.close()))
    assert "Empty baskets no longer fail" in lab.client().get("/api/context/inject", cwd=str(lab.project))
    started = lab.hook("SessionStart", source="startup")  # its very first session here already knows
    assert "Empty baskets no longer fail" in json.dumps(started)
    lab.hook("UserPromptSubmit", prompt="Go on")
    lab.wait_digested()
    lab.mem("stop")
    assert lab.rows("select name, root from projects") == [("shop", str(lab.project))]


def test_a_folder_where_memory_is_switched_off_stays_off(home: Home, theirs: OlderDb, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / ".claude-mem.toml").write_text("enabled = false\n")
    theirs.observation("Hush", files_read=json.dumps([str(folder / "x.py")]))
    found = home.bring(theirs.path)
    assert added(found) == {}
    assert aside(found) == {"project switched off": {"session": 1}}


# --- what must not come over -----------------------------------------------------------------------------------------


def test_a_project_that_is_known_here_and_switched_off_gets_nothing(
    home: Home, theirs: OlderDb, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)

    async def capture(service: Service) -> None:
        await service.db.write(projects.register_project, identify_project(str(folder)), str(folder), now=CLOCK)

    home.work(capture)
    (folder / ".claude-mem.toml").write_text("enabled = false\n")
    found = home.bring(theirs.path)
    assert set(found.counts) == {"project switched off"}
    assert home.rows("select 1 from observations") == []


def test_private_parts_and_secrets_stay_out(home: Home, theirs: OlderDb) -> None:
    hidden = theirs.session("hush", user_prompt="<private>canary-one</private>")
    theirs.prompt(hidden, 2, "Then <PRIVATE>canary-two</private> go on", session="hush")
    theirs.prompt(hidden, 3, "<private>canary-three", session="hush")
    theirs.observation("canary-four", session="hush", prompt_number=1)
    theirs.observation("canary-five", session="hush", prompt_number=3)
    theirs.observation("Tokens", facts=json.dumps([f"The token is {SECRET}"]), files_read='["<private>canary-six"]')
    theirs.summary(session="hush", prompt_number=3, completed="canary-seven")
    found = home.bring(theirs.path)
    theirs.close()
    kept = b"".join(path.read_bytes() for path in home.folder.rglob("*") if path.is_file())
    assert b"canary" not in kept
    assert SECRET.encode() not in kept
    assert aside(found) == {"private": {"prompt": 1, "observation": 2, "summary": 1}}
    assert b"Then" in kept


def test_what_was_forgotten_here_does_not_come_back(lab: Lab) -> None:
    older = OlderDb(lab.folder / "theirs.db")
    older.session()
    older.observation("Empty baskets no longer fail")
    path = str(older.close())
    lab.mem("import", path)
    lab.mem("forget", "1", "--yes")
    again = json.loads(lab.mem("import", path, "--json").stdout)
    assert again["counts"]["forgotten"] == {"observation": 1}
    assert lab.mem("list", "--json").stdout == ""


def test_a_session_that_was_captured_here_is_not_doubled(lab: Lab) -> None:
    older = OlderDb(lab.folder / "theirs.db")
    row_id = older.session("old-1")
    for number, at in ((1, CLOCK), (2, CLOCK + 3_600_000)):
        older.prompt(row_id, number, f"Prompt {number}", at=at)
        older.observation(f"Made by the older one of prompt {number}", prompt_number=number, at=at + 30_000)
        older.summary(prompt_number=number, at=at + 40_000)
    # Here the hooks were installed only before the second prompt, and counted it as the first.
    lab.spool("UserPromptSubmit", at=CLOCK + 3_600_010, session_id="old-1", prompt="Prompt 2")
    lab.spool("Stop", at=CLOCK + 3_620_000, session_id="old-1", last_assistant_message="It was done, as it should be.")
    lab.drain()
    found = json.loads(lab.mem("import", str(older.close()), "--json").stdout)
    assert found["counts"]["added"] == {"prompt": 1, "observation": 1, "summary": 1}
    again = json.loads(lab.mem("import", str(older.path), "--json").stdout)
    assert "added" not in again["counts"]
    lab.mem("stop")
    assert lab.rows("select text from user_prompts order by created_at") == [("Prompt 1",), ("Prompt 2",)]
    assert ("Made by the older one of prompt 1",) in lab.rows("select title from observations")
    assert ("Made by the older one of prompt 2",) not in lab.rows("select title from observations")


def test_reading_the_transcripts_afterwards_keeps_what_a_model_made_of_them(lab: Lab) -> None:
    older = OlderDb(lab.folder / "theirs.db")
    row_id = older.session("old-1")
    older.prompt(row_id, 1, "Add a voucher field")
    older.observation("Vouchers, told by a model")
    lab.mem("import", str(older.close()))
    transcript = Old(lab.folder / "one.jsonl", "old-1", lab.project)
    transcript.prompt("Add a voucher field", "")
    transcript.call("v1", "Write", file_path=str(lab.project / "voucher.py"))
    transcript.say("Vouchers are a module of their own now, with one class.")
    lab.mem("backfill", str(transcript.path))
    lab.mem("stop")
    assert lab.rows("select title from observations") == [("Vouchers, told by a model",)]
    assert lab.rows("select count(*) from turns") == [(1,)]
    assert lab.rows("select count(*) from events where turn_id is not null") == [(3,)]


# --- theirs stays as it is -------------------------------------------------------------------------------------------


def test_while_it_is_in_use_and_afterwards_not_a_byte_is_changed(home: Home, theirs: OlderDb) -> None:
    folder = theirs.path.parent
    assert "claude-mem.db-wal" in names(folder)
    before, listed = files(folder), names(folder)
    home.bring(theirs.path)
    assert (files(folder), names(folder)) == (before, listed)
    theirs.observation("It can still be written")
    theirs.close()
    before, listed = files(folder), names(folder)
    assert listed == ["claude-mem.db"]
    assert added(home.bring(theirs.path)) == {"observation": 1}
    assert (files(folder), names(folder)) == (before, listed)


def test_a_log_that_was_left_or_copied_along_is_read_too(
    theirs: OlderDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    theirs.session("old-2")
    theirs.conn.pragma("wal_autocheckpoint", 0)
    theirs.observation("Only in the log")
    for with_index in (False, True):
        copy = tmp_path / f"copy-{with_index}"
        copy.mkdir()
        for side in ("", "-wal", "-shm") if with_index else ("", "-wal"):
            shutil.copyfile(f"{theirs.path}{side}", copy / f"x.db{side}")
        before, listed = files(copy), names(copy)
        fresh = Home(tmp_path / f"ours-{with_index}")
        monkeypatch.setattr(legacy, "BATCH_SESSIONS", 1)  # several batches
        assert added(fresh.bring(copy / "x.db"))["observation"] == 3
        assert (files(copy), names(copy)) == (before, listed)
        assert names(scratch) == []  # no copy is left
        assert not list(fresh.folder.glob(f"{external_db.COPY_FOLDER_PREFIX}*"))


def test_a_folder_that_cannot_be_written(home: Home, theirs: OlderDb) -> None:
    theirs.close()
    theirs.path.chmod(0o400)
    theirs.path.parent.chmod(0o500)
    try:
        assert added(home.bring(theirs.path))["observation"] == 2
    finally:
        theirs.path.parent.chmod(0o700)


def test_theirs_lies_where_ours_would_and_both_go_on(lab: Lab) -> None:
    older = OlderDb(lab.data / "claude-mem.db")
    older.session()
    older.observation("Empty baskets no longer fail")
    before = files(lab.data)
    assert "claude-mem import" in lab.mem("install", "--yes", "--host", "claude").stdout
    lab.hook("UserPromptSubmit", prompt="Where are totals rounded?")
    lab.hook("Stop", last_assistant_message="Totals are rounded in `total.py`, at the very end. " * 4)
    lab.wait_digested()
    assert json.loads(lab.mem("import", "--json").stdout)["counts"]["added"]["observation"] == 1  # found by itself
    assert "memory.db" in lab.mem("doctor", ok=False).stdout
    lab.mem("restart")
    assert "Empty baskets no longer fail" in lab.mem("list").stdout
    assert "Where are totals rounded?" in lab.mem("list", "prompts").stdout
    lab.mem("backup", "--drill")
    lab.mem("stop")
    assert lab.status()["stored"] == 2
    assert {name: data for name, data in files(lab.data).items() if name in before} == before
    older.observation("Theirs goes on, too")
    older.close()
    lab.mem("uninstall", "--yes", "--delete-data")
    assert names(lab.data) == ["claude-mem.db"]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_uninstalling_leaves_what_the_older_one_put_into_the_same_folder(lab: Lab) -> None:
    for name in ("settings.json", "worker.pid", "logs/claude-mem-2025-10-09.log", "backups/theirs.db", "modes/x.json"):
        (lab.data / name).parent.mkdir(parents=True, exist_ok=True)
        (lab.data / name).write_text("theirs")
    before = files_of(lab.data)
    lab.data.chmod(0o700)
    lab.start()
    lab.mem("backup")
    lab.mem("uninstall", "--yes", "--delete-data")
    assert files_of(lab.data) == before


def test_ours_is_found_by_its_tables_and_never_opens_anothers(tmp_path: Path) -> None:
    path = tmp_path / "claude-mem.db"
    assert resolve_database_path(path) == path
    Database(path, backups=tmp_path).close()
    assert resolve_database_path(path) == path
    path.unlink()
    OlderDb(path, wal=False).close()
    before = files(tmp_path)
    assert is_foreign_database(path)
    assert resolve_database_path(path) == tmp_path / "memory.db"
    with pytest.raises(OperationFailed, match="another program"):
        Database(path, backups=tmp_path)
    assert files(tmp_path) == before
    Database(resolve_database_path(path), backups=tmp_path).close()
    path.unlink()
    assert resolve_database_path(path) == tmp_path / "memory.db"  # theirs is gone; ours stays where it is


def left_by_a_crash(theirs: OlderDb, path: Path) -> Path:
    """A copy with a log that was not worked into it, and without the log's index."""
    theirs.conn.pragma("wal_autocheckpoint", 0)
    theirs.observation("Only in the log")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for side in ("", "-wal"):
        shutil.copyfile(f"{theirs.path}{side}", f"{path}{side}")
    return path


def test_anothers_log_is_not_worked_into_its_database(theirs: OlderDb, tmp_path: Path) -> None:
    path = left_by_a_crash(theirs, tmp_path / "left" / "claude-mem.db")
    before = files(path.parent)
    with pytest.raises(OperationFailed, match="another program"):
        Database(path, backups=tmp_path)
    assert files(path.parent) == before


def test_looking_at_old_sessions_changes_nothing_of_anyones(lab: Lab, theirs: OlderDb) -> None:
    left_by_a_crash(theirs, lab.data / "claude-mem.db")
    transcript = Old(lab.folder / "one.jsonl", "old-1", lab.project)
    transcript.prompt("Add a voucher field", "")
    transcript.say("Vouchers are a module of their own now, with one class.")
    look = ("backfill", "--dry-run", "--json", str(transcript.path))

    def waits() -> int:
        """How many are to be read; and nothing but the lock has been touched."""
        before = files(lab.data)
        found = json.loads(lab.mem(*look).stdout)["projects"][0]["new"]
        assert {**files(lab.data), "worker.lock": b""} == {**before, "worker.lock": b""}
        return int(found)

    assert waits() == 1
    lab.mem("backfill", str(transcript.path))
    lab.mem("stop")
    assert waits() == 0
    own = apsw.Connection(str(lab.data / "memory.db"))
    own.execute("drop table backfill_files; pragma user_version = 5")  # as an earlier version left it
    own.close()
    assert waits() == 1


def test_no_copy_of_it_is_left_whatever_happens(
    home: Home, theirs: OlderDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    path = left_by_a_crash(theirs, tmp_path / "left" / "x.db")
    seen: list[list[str]] = []

    def fail(*_: object, **__: object) -> None:
        seen.append([path.name[:9] for path in home.folder.glob(".*")])
        raise OperationFailed("by design")

    monkeypatch.setattr(legacy.LegacyReader, "sessions", fail)
    assert home.bring(path).error == "by design"
    assert seen[0] == [external_db.COPY_FOLDER_PREFIX]
    assert not list(home.folder.glob(".*"))
    assert import_.detect_source(path) == "older"
    assert names(scratch) == []
    assert not list(home.folder.glob(".*"))
    (home.folder / f"{external_db.COPY_FOLDER_PREFIX}killed").mkdir()
    home.rows("select 1")
    assert not list(home.folder.glob(".*"))


# --- files that are something else, or broken ------------------------------------------------------------------------


def test_our_own_database_is_refused_with_a_hint(lab: Lab) -> None:
    lab.start()
    done = lab.mem("import", str(lab.data / "claude-mem.db"), ok=False)
    assert done.returncode == 2
    assert "claude-mem restore" in done.stderr


@pytest.mark.parametrize(
    "content", [b"", b"garbage" * 500, b"{}\n", b'{"record": "project"}\n', b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_what_is_neither_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises((InvalidRequest, OperationFailed)):
        import_.detect_source(path)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    conn = apsw.Connection(str(tmp_path / "x.db"))
    conn.execute("create table recipes (id integer primary key, title text)")
    conn.close()
    with pytest.raises(InvalidRequest, match="another program"):
        import_.detect_source(tmp_path / "x.db")


def test_a_truncated_database_ends_the_import_with_a_reason_and_what_could_be_read_stays(
    lab: Lab, theirs: OlderDb
) -> None:
    for number in range(400):
        theirs.session(f"s-{number}")
        theirs.observation(f"Thing {number}", session=f"s-{number}", narrative="x" * 500)
    path = theirs.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = lab.mem("import", str(path), ok=False)
    assert done.returncode == 1
    assert "can't be read" in done.stderr
    assert lab.mem("status").returncode == 0
    assert json.loads(lab.mem("status", "--json").stdout)["queued"] == 0


@pytest.mark.parametrize("missing", ["sdk_sessions", "observations", "session_summaries", "user_prompts"])
def test_a_missing_table_costs_only_what_was_in_it(home: Home, theirs: OlderDb, missing: str) -> None:
    theirs.conn.execute(f"drop table {missing}")
    found = home.bring(theirs.path)
    kinds = {"observations": "observation", "session_summaries": "summary", "user_prompts": "prompt"}
    wanted = {"observation": 2, "summary": 2, "prompt": 2}
    if missing == "sdk_sessions":
        del wanted["prompt"]
        assert aside(found) == {"no session": {"prompt": 2}}
    else:
        del wanted[kinds[missing]]
    assert {kind: count for kind, count in added(found).items() if kind in wanted} == wanted
    assert set(added(found)) == {"project", "session", *wanted}


LOOSE = """
create table schema_versions (id, version, applied_at);
create table sdk_sessions (id integer primary key, content_session_id, memory_session_id, project, platform_source,
    user_prompt, started_at, started_at_epoch, completed_at, completed_at_epoch, status, custom_title);
create table observations (id integer primary key, memory_session_id, project, type, title, subtitle, narrative, text,
    facts, concepts, files_read, files_modified, prompt_number, created_at, created_at_epoch);
create table session_summaries (id integer primary key, memory_session_id, project, request, completed, prompt_number,
    created_at, created_at_epoch);
create table user_prompts (id integer primary key, session_db_id, content_session_id, prompt_number, prompt_text,
    created_at, created_at_epoch);
"""


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "",
        0,
        -1,
        1 << 62,
        3.5,
        float("inf"),
        b"\xff\xfe\x00",
        "\0",
        "NaN",
        '[1, {"a": null}',
        "{}",
        "null",
        "x" * 50_000,
    ],
    ids=lambda odd: repr(odd)[:12],
)
def test_a_value_of_any_kind_in_any_column_is_survived(home: Home, tmp_path: Path, odd: Any) -> None:
    older = OlderDb(tmp_path / "odd.db", LOOSE)
    older.session("good")
    tables = ("sdk_sessions", "observations", "session_summaries", "user_prompts")
    for table in tables:
        columns = sorted(external_db.read_table_columns(older.conn)[table] - {"id"})
        older.add(table, **dict.fromkeys(columns, odd))
        for column in columns:  # and each of them alone, in a row that is fine otherwise
            whole: dict[str, Any] = {name: f"{name} of {column}" for name in columns}
            whole |= {name: CLOCK for name in columns if name.endswith("_epoch")}
            belongs = {"sdk_sessions": {}, "user_prompts": {"session_db_id": 1}}
            whole |= belongs.get(table, {"memory_session_id": "m-good"})
            older.add(table, **{**whole, column: odd})
    found = home.bring(older.close())
    assert found.error is None
    assert added(found)["observation"] >= 5
    assert added(home.bring(older.path)) == {}


def test_a_broken_list_gives_what_can_still_be_read(home: Home, theirs: OlderDb) -> None:
    theirs.observation("Broken", facts='["one", "two', concepts="gotcha", files_read='"x.py"', files_modified="{")
    home.bring(theirs.path)
    assert home.rows("select facts, concepts, files_read, files_modified from observations where title = 'Broken'") == [
        ('["one"]', '["gotcha"]', '["x.py"]', '["{"]')
    ]


# --- on the command line, and killed ---------------------------------------------------------------------------------


def test_the_command_says_what_came_and_what_did_not(lab: Lab, theirs: OlderDb) -> None:
    theirs.observation("", narrative=None, facts=None)
    done = lab.mem("import", str(theirs.path))
    assert "added:              1 project, 1 session, 2 prompts, 2 observations, 2 summaries" in done.stdout
    assert "set aside:          1 observation (empty)" in done.stdout
    found = lab.mem("search", "empty baskets").stdout
    assert "Empty baskets no longer fail" in found
    assert lab.mem("import", ok=False).returncode == 1  # none in the usual place
    assert lab.mem("import", "/does/not/exist", ok=False).returncode == 1


def test_a_worker_that_is_killed_goes_on_where_it_was(lab: Lab, theirs: OlderDb) -> None:
    for number in range(50):
        theirs.session(f"s-{number}")
        theirs.observation(f"Thing {number}", session=f"s-{number}")
    lab.no_worker()
    client = lab.start()
    import_id = client.post("/api/import", {"path": str(theirs.path)})["id"]
    lab.mem("stop")
    for place in ("import.read", "import.batch:1", "write.before_commit:3", "import.batch:2"):
        lab.drain(CLAUDE_MEM_FAILPOINT=place)
    assert lab.drain() == 0
    assert process.lock_holder(lab.data) is None
    assert lab.rows("select count(*), count(distinct key) from observations") == [(52, 52)]
    ((counts, ended),) = lab.rows("select counts, ended_at from imports where id = ?", import_id)
    assert ended is not None
    assert json.loads(counts)["added"] == {"project": 1, "session": 51, "prompt": 2, "observation": 52, "summary": 2}
