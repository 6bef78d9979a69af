"""Memories that 0.1.0 wrote are written again by the present writer: whose words they are is respected, IDs stay, nothing
is asked of a model, and whatever happens on the way, it happens once."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from claude_mem.cli import worker
from claude_mem.config import Config
from claude_mem.curate.reprocess import TranscriptReader, count_reprocessable
from claude_mem.digest.writer import LocalCompressor
from claude_mem.domain import ids
from claude_mem.domain.errors import NotFound
from claude_mem.domain.memory_items import ObservationEdit
from claude_mem.domain.records import WRITER_VERSION, Digest, Draft, Turn
from claude_mem.maintain.maintenance import DAY
from claude_mem.privacy.trust import USER
from claude_mem.storage.journal_records import REPROCESS_JOB, TranscriptSource
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_value
from claude_mem.storage.sqlite.journal import jobs, reprocessing
from claude_mem.storage.sqlite.memory import edits
from claude_mem.worker.app import Service
from claude_mem.worker.http.auth import BrowserSessions
from claude_mem.worker.http.endpoints import NoFields, decode_request
from claude_mem.worker.http.route import Caller
from claude_mem.worker.http.routes import status, transfer
from claude_mem.worker.http.schemas.transfer import SHOW_REPROCESS
from tests.support import upgrading, wounds
from tests.support.lab import Lab
from tests.support.moving import Home
from tests.worker.test_reconcile import Transcript

VERSION = 18  # of the tables that 0.1.0 had
COMMIT = "[main abc1234] Round totals once\n 1 file changed, 2 insertions(+)"
POINTS = ("jobs.claimed", "rewrite.drafted", "store.summary", "store.observation", "store.swept", "rewrite.kept", "jobs.finished")  # fmt: skip


def as_it_was(conn: Connection) -> None:
    """Memories in the words and under the keys of an earlier writer."""
    conn.execute(
        "update observations set title = 'Old words ' || id, narrative = 'Old narrative',"
        " key = iif(commit_id is null, 'old:' || id, key)"
    )
    conn.execute("update session_summaries set completed = 'Old summary'")
    conn.execute("update turns set digested_at = digested_at - 60000")


@pytest.fixture
def old(lab: Lab, tmp_path: Path) -> Lab:
    """A database as 0.1.0 left it: two sessions of two turns, and one with a commit in it."""
    wounds.tell(lab, sessions=2, turns=2)
    said = {"session_id": "c", "prompt_id": "c-p"}
    lab.spool("UserPromptSubmit", prompt="Round totals once", **said)
    call = {"tool_name": "Bash", "tool_input": {"command": "git commit -m 'Round totals once'"}, "tool_use_id": "c-1"}
    lab.spool("PostToolUse", tool_response={"stdout": COMMIT}, **call, **said)
    lab.spool("Stop", last_assistant_message="Totals are rounded once now.", **said)
    home = Home(lab.data)

    async def fill(service: Service) -> None:
        await service.run_until_idle()
        await service.db.write(as_it_was)

    home.work(fill)
    older = upgrading.earlier(home.config.database, VERSION, tmp_path / "older.db")
    for file in lab.data.glob("claude-mem.db*"):
        file.unlink()
    shutil.copyfile(older, home.config.database)
    home.config.database.chmod(0o600)
    return lab


def state(lab: Lab) -> dict[str, Any]:
    """What is remembered, by everything but the time at which it was written."""
    home = Home(lab.data)
    return {
        "observations": home.rows(
            "select id, turn_id, key, title, narrative, facts, trust from observations order by id"
        ),
        "summaries": home.rows(
            "select id, turn_id, completed, closing, closing_trust from session_summaries order by id"
        ),
        "turns": home.rows("select id, writer, digested_at, events_purged from turns order by id"),
        "jobs": home.rows("select kind, dead from jobs where kind = 'rewrite'"),
    }


def rewritten(lab: Lab) -> dict[str, Any]:
    Home(lab.data).work(Service.run_until_idle)
    return state(lab)


def write(lab: Lab, *statements: str) -> None:
    async def inside(service: Service) -> None:
        await service.db.write(lambda conn: list(conn.execute(";".join(statements))))

    Home(lab.data).work(inside)


# --- what becomes of them --------------------------------------------------------------------------------------------


def test_after_an_upgrade_old_memories_are_rewritten_under_their_ids(old: Lab) -> None:
    before = state(old)
    assert {writer for _, writer, *_ in before["turns"]} == {0}
    after = rewritten(old)
    assert {writer for _, writer, *_ in after["turns"]} == {WRITER_VERSION}
    assert "Old" not in json.dumps(after["observations"] + after["summaries"])
    assert all(closing for _, _, _, closing, _ in after["summaries"])
    first = {turn: min(row[0] for row in before["observations"] if row[1] == turn) for turn in range(1, 6)}
    assert set(first.values()) <= {row[0] for row in after["observations"]}
    assert after["jobs"] == []


def test_when_it_was_digested_stays_so_that_raw_events_are_kept_no_longer(old: Lab) -> None:
    before = [digested for _, _, digested, _ in state(old)["turns"]]
    assert [digested for _, _, digested, _ in rewritten(old)["turns"]] == before


def test_a_second_time_changes_nothing(old: Lab) -> None:
    once = rewritten(old)
    assert rewritten(old) == once


def test_what_a_person_touched_stays_as_it_is(old: Lab) -> None:
    by_turn = {row[1]: row[0] for row in reversed(state(old)["observations"])}

    async def touch(service: Service) -> None:
        now = ids.now_ms()
        await service.db.write(edits.edit_observation, by_turn[1], {"narrative": "By hand"}, now=now)
        await service.db.write(edits.set_pinned, by_turn[2], pinned=True, now=now)
        await service.db.write(edits.delete_observation, by_turn[3], now=now)
        (summary,) = await service.db.read(fetch_all, "select id from session_summaries where turn_id = 4")
        await service.db.write(edits.set_verdict, "summary", summary["id"], "wrong", now=now)

    Home(old.data).work(touch)
    before = state(old)
    after = rewritten(old)
    for kind in ("observations", "summaries"):
        assert [row for row in after[kind] if row[1] < 5] == [row for row in before[kind] if row[1] < 5]
        assert [row for row in after[kind] if row[1] == 5] != [row for row in before[kind] if row[1] == 5]
    assert {writer for _, writer, *_ in after["turns"]} == {WRITER_VERSION}


def test_what_was_dropped_or_forgotten_as_a_whole_does_not_come_back(old: Lab) -> None:
    """A turn of which nothing is left to rewrite: someone gave its job up, or has forgotten it."""
    write(old, "delete from observations where turn_id = 1", "delete from session_summaries where turn_id = 1")
    after = rewritten(old)
    assert [row for kind in ("observations", "summaries") for row in after[kind] if row[1] == 1] == []


def test_what_an_agent_changed_at_a_persons_word_stays(old: Lab) -> None:
    async def change(service: Service) -> None:
        (row,) = await service.db.read(fetch_all, "select min(id) as id from observations where turn_id = 1")
        given: ObservationEdit = {"narrative": "As asked"}
        await service.db.write(edits.edit_observation, row["id"], given, now=ids.now_ms(), by="agent", trust="agent")

    Home(old.data).work(change)
    before = [row for row in state(old)["observations"] if row[1] == 1]
    assert [row for row in rewritten(old)["observations"] if row[1] == 1] == before


@pytest.mark.parametrize(
    "said", ["pinned = 1", "forgotten = 1, title = null", "trust = 'user'", "verdict = 'approved'"]
)
def test_what_an_import_says_is_a_persons_is_theirs(old: Lab, said: str) -> None:
    """It has no history here."""
    write(old, f"update observations set {said} where turn_id = 1")
    before = [row for row in state(old)["observations"] if row[1] == 1]
    assert [row for row in rewritten(old)["observations"] if row[1] == 1] == before


def test_what_a_model_put_into_words_keeps_them_and_gets_the_closing_message(old: Lab) -> None:
    write(
        old,
        "update observations set provider = 'anthropic' where turn_id = 1",
        "update session_summaries set provider = 'anthropic' where turn_id = 2",
    )
    before, after = state(old), rewritten(old)
    assert [row for row in after["observations"] if row[1] < 3] == [row for row in before["observations"] if row[1] < 3]
    assert [(row[2], bool(row[3])) for row in after["summaries"] if row[1] < 3] == [("Old summary", True)] * 2


def test_where_the_events_are_gone_it_stays_and_is_counted(old: Lab) -> None:
    async def fade(service: Service) -> Row:
        gone = "update turns set digested_at = 1 where id = 1"
        await service.db.write(lambda conn: list(conn.execute(gone)))
        while await service.indexer.catch_up():
            pass
        await service.maintenance.apply_retention(now=ids.now_ms())
        return asdict(await service.db.read(reprocessing.count_reprocessable_turns))

    counted = Home(old.data).work(fade)
    assert counted == {"rewritable": 4, "events_gone": 1, "a_persons": 0, "a_models": 0}
    after = rewritten(old)
    assert all(row[3].startswith("Old words") for row in after["observations"] if row[1] == 1)
    assert [writer for _, writer, *_ in after["turns"]] == [-WRITER_VERSION, *[WRITER_VERSION] * 4]
    assert Home(old.data).work(lambda service: count_reprocessable(service.db, reprocessing.ALL_TURNS)).events_gone == 1


def test_raw_events_wait_for_the_writer_within_reason(old: Lab) -> None:
    """Else a machine that was off for weeks would lose them before anything is made of them."""

    async def retain(service: Service) -> tuple[int, int]:
        while await service.indexer.catch_up():
            pass
        now = ids.now_ms()
        await service.maintenance.apply_retention(now=now + 8 * DAY)
        kept = await service.db.read(fetch_value, "select count(*) from events where turn_id is not null")
        await service.maintenance.apply_retention(now=now + (service.config.keep_dead_days + 8) * DAY)
        return kept, await service.db.read(fetch_value, "select count(*) from events where turn_id is not null")

    kept, later = Home(old.data).work(retain)
    assert (kept > 0, later) == (True, 0)


def test_nobody_waits_for_it(old: Lab) -> None:
    async def ask(service: Service) -> tuple[int, int]:
        await service.db.write(reprocessing.enqueue_reprocessing, reprocessing.ALL_TURNS, now=ids.now_ms())
        return await service.db.read(jobs.count_urgent_jobs), await service.db.read(jobs.count_jobs, REPROCESS_JOB)

    assert Home(old.data).work(ask) == (0, 5)


def test_no_model_is_asked(old: Lab) -> None:
    rewritten(old)
    home = Home(old.data)
    assert home.rows("select count(*) from jobs where kind = 'refine'") == [(0,)]
    assert home.rows("select count(*) from ledger") == [(0,)]


def test_nothing_is_rewritten_while_something_is_forgotten(old: Lab) -> None:
    async def inside(service: Service) -> list[bool]:
        await service.sweep()
        async with service.deletion_service.lock:
            locked = await service.reprocess_runner.step()
        return [locked, await service.reprocess_runner.step()]

    assert Home(old.data).work(inside) == [False, True]


def test_a_few_at_a_time(old: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reprocessing, "REPROCESS_BATCH_SIZE", 2)

    async def counts(service: Service) -> list[int]:
        await service.sweep()
        seen = [await service.db.read(jobs.count_jobs, REPROCESS_JOB)]
        while await service.reprocess_runner.step():
            seen.append(await service.db.read(jobs.count_jobs, REPROCESS_JOB))
        return seen

    seen = [count for count, _ in groupby(Home(old.data).work(counts))]  # other jobs of the runner change nothing
    assert seen == [2, 1, 2, 1, 0]


# --- from a transcript -----------------------------------------------------------------------------------------------

KEY = "ghp_" + "Zq8wErTyUiOpAsDfGhJkLzXcVbNm1234QwEr"


@pytest.fixture
def faded(lab: Lab, tmp_path: Path) -> Lab:
    """A session of two turns whose raw events are no longer kept; in the second one a page was read."""
    talk = Transcript(tmp_path / "talk.jsonl")
    for prompt_id, web in (("p1", False), ("p2", True)):
        said = {"prompt_id": prompt_id, "transcript_path": str(talk.path)}
        lab.spool("UserPromptSubmit", prompt="Round totals once", **said)
        talk.prompt("Round totals once", prompt_id)
        edit: dict[str, Any] = {
            "file_path": f"{lab.project}/{prompt_id}.py",
            "old_string": "a",
            "new_string": f"def total_{prompt_id}(): ...",
        }
        lab.spool("PostToolUse", tool_name="Edit", tool_use_id=prompt_id, tool_input=edit, tool_response={}, **said)
        talk.call(prompt_id, "Edit", prompt=prompt_id, **edit)
        if web:
            page = {"url": "https://x.example"}
            lab.spool("PostToolUse", tool_name="WebFetch", tool_use_id="w", tool_input=page, tool_response="x", **said)
        lab.spool("Stop", last_assistant_message=f"Totals of {prompt_id} are rounded once. {KEY}", **said)
        talk.say(f"Totals of {prompt_id} are rounded once. {KEY}")

    async def fade(service: Service) -> None:
        await service.run_until_idle()
        await service.maintenance.apply_retention(now=ids.now_ms() + 8 * DAY)
        assert await service.db.read(fetch_value, "select count(*) from events where turn_id is not null") == 0
        await service.db.write(as_it_was)
        old_ = "update turns set writer = 0; update session_summaries set closing = '', outcome = ''"
        await service.db.write(lambda conn: list(conn.execute(old_)))

    Home(lab.data).work(fade)
    return lab


def counted(lab: Lab) -> Row:
    return asdict(Home(lab.data).work(lambda service: count_reprocessable(service.db, reprocessing.ALL_TURNS)))


def test_where_the_events_are_gone_the_transcript_tells(faded: Lab) -> None:
    before = state(faded)
    assert counted(faded) == {"rewritable": 1, "events_gone": 1, "a_persons": 0, "a_models": 0}
    after = rewritten(faded)
    assert [row[2] for row in after["summaries"] if row[1] == 1] != ["Old summary"]
    ((closing,),) = [(row[3],) for row in after["summaries"] if row[1] == 1]
    assert closing.startswith("Totals of p1 are rounded once. [redacted")
    assert min(row[0] for row in after["observations"]) == min(row[0] for row in before["observations"])
    assert "total_p1" in str([row[5] for row in after["observations"] if row[1] == 1])
    found = Home(faded.data).rows("select sources from observations where turn_id = 1")
    assert all(
        set(map(tuple, json.loads(sources))) <= {()} for (sources,) in found
    )  # no event is named that is not there
    assert Home(faded.data).rows("select count(*) from events where turn_id is not null") == [(0,)]


def test_a_turn_in_which_something_came_from_outside_is_not_told_again(faded: Lab) -> None:
    """What a subagent read is not in the file."""
    before = state(faded)
    after = rewritten(faded)
    for kind in ("observations", "summaries"):
        assert [row for row in after[kind] if row[1] == 2] == [row for row in before[kind] if row[1] == 2]
    assert [writer for _, writer, *_ in after["turns"]] == [WRITER_VERSION, -WRITER_VERSION]
    assert counted(faded) == {"rewritable": 0, "events_gone": 1, "a_persons": 0, "a_models": 0}


@pytest.mark.parametrize("how", ["gone", "off", "cut", "private", "forgotten", "last words forgotten"])
def test_a_transcript_that_may_not_be_used_is_not(faded: Lab, tmp_path: Path, how: str) -> None:
    talk = tmp_path / "talk.jsonl"
    if how == "gone":
        talk.unlink()
    if how == "off":
        (faded.project / ".claude-mem.toml").write_text("enabled = false\n")
    if how == "cut":
        talk.write_text("".join(talk.read_text().splitlines(keepends=True)[:2]))
    if how == "private":
        talk.write_text(talk.read_text().replace("Round totals once", "<private>Round totals once</private>"))
    if how == "forgotten":
        faded.mem("forget", "--matching", "Round totals once", "--now", "--yes")
        faded.mem("stop")
    if how == "last words forgotten":
        faded.mem("forget", "--matching", "are rounded once", "--now", "--yes")
        faded.mem("stop")
    before = state(faded)
    after = rewritten(faded)
    for kind in ("observations", "summaries"):
        assert after[kind] == before[kind]
    assert "rounded once" not in json.dumps(after)


def test_a_prompt_that_a_later_part_marks_private_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_mem.capture.transcripts.PART_BYTES", 300)
    talk = Transcript(tmp_path / "talk.jsonl")
    for prompt_id in ("p1", "p2"):
        talk.prompt("Round totals once", prompt_id)
        talk.call(prompt_id, prompt=prompt_id)
        talk.say("Totals are rounded once.")
    source = TranscriptSource(str(talk.path), "claude", "s1", str(tmp_path))
    assert len(TranscriptReader(Config()).events(source, "p1")) == 3
    talk.prompt("<private>Round totals once</private>", "p1")
    assert TranscriptReader(Config()).events(source, "p1") == ()
    assert len(TranscriptReader(Config()).events(source, "p2")) == 3


# --- IDs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "made", "taken"),
    [
        ([("edits", ""), ("decision", "")], [("main", "")], {"main": 1}),  # the first
        ([("edits", ""), ("commit:a", "a")], [("main", "a")], {"main": 2}),  # the same commit
        ([("commit:a", "a"), ("edits", "")], [("commit:a", "a"), ("main", "")], {"commit:a": 1, "main": 2}),
        ([("edits", "")], [("edits", "")], {"edits": 1}),
    ],
)
def test_the_main_record_takes_over_an_id(
    old: Lab, there: list[tuple[str, str]], made: list[tuple[str, str]], taken: dict[str, int]
) -> None:
    def take(conn: Connection) -> dict[str, int]:
        first = int(fetch_value(conn, "select max(id) + 1 from observations"))
        conn.execute("delete from observations where turn_id = 1")
        for number, (key, commit) in enumerate(there):
            conn.execute(
                "insert into observations (id, turn_id, session_id, project_id, key, type, commit_id, provider, created_at,"
                " updated_at, hash) values (?, 1, 1, 1, ?, 'change', nullif(?, ''), 'local', 1, 1, '')",
                (first + number, key, commit),
            )
        drafts = [Draft(key=key, type="change", title=key, commit=commit) for key, commit in made]
        reprocessing.reuse_observation_rows(conn, 1, drafts)
        found = fetch_all(conn, "select id, key from observations where turn_id = 1")
        return {row["key"]: row["id"] - first + 1 for row in found}

    async def inside(service: Service) -> dict[str, int]:
        return await service.db.write(take)

    assert taken.items() <= Home(old.data).work(inside).items()


# --- killed, failed --------------------------------------------------------------------------------------------------


@pytest.mark.kills
def test_killed_at_any_point_the_memory_is_that_of_one_clean_run(old: Lab, tmp_path: Path) -> None:
    kept = tmp_path / "kept.db"
    shutil.copyfile(old.data / "claude-mem.db", kept)
    clean = rewritten(old)
    for point in POINTS:
        for file in old.data.glob("claude-mem.db*"):
            file.unlink()
        shutil.copyfile(kept, old.data / "claude-mem.db")
        (old.data / "claude-mem.db").chmod(0o600)
        assert old.drain(CLAUDE_MEM_FAILPOINT=f"{point}:2") == -signal.SIGKILL, point
        assert rewritten(old) == clean, point


class Failing(LocalCompressor):
    async def compress(self, turn: Turn) -> Digest:
        if turn.id == 2:
            raise ValueError("no way")
        return await super().compress(turn)


def test_a_turn_that_fails_is_given_up_and_the_others_go_on(old: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOB_ATTEMPTS", 1)
    monkeypatch.setattr(reprocessing, "REPROCESS_BATCH_SIZE", 1)  # it must not be asked for instead of the others

    async def tried(service: Service) -> Row:
        await service.run_until_idle()
        await service.run_until_idle()  # a sweep goes on after one that was given up
        await service.sweep()
        assert await service.db.read(jobs.count_jobs, REPROCESS_JOB) == 0  # nobody asks for it again and again
        progress = await service.db.read(reprocessing.get_reprocess_progress)
        return msgspec.to_builtins(progress)  # type: ignore[no-any-return]

    async def inside() -> Row:
        service = Service(Home(old.data).config, compressor=Failing())
        try:
            return await tried(service)
        finally:
            service.close()

    found = asyncio.run(inside())
    assert found == {"left": 0, "failed": [{"turn": 2, "error": "ValueError: no way"}]}
    after = state(old)
    assert [writer for _, writer, *_ in after["turns"]] == [WRITER_VERSION, 0, *[WRITER_VERSION] * 3]

    async def again(service: Service) -> Row:
        await service.reprocess(reprocessing.ALL_TURNS)
        await service.run_until_idle()
        progress = await service.db.read(reprocessing.get_reprocess_progress)
        return msgspec.to_builtins(progress)  # type: ignore[no-any-return]

    assert Home(old.data).work(again) == {"left": 0, "failed": []}


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_rewrites_and_says_how_many(old: Lab) -> None:
    write(old, "update observations set pinned = 1 where turn_id = 1")
    found = json.loads(old.mem("reprocess", "--json").stdout)
    kept = {"events_gone": 0, "a_persons": 1, "a_models": 0}
    assert found["failed"] == []
    assert found["rewritten"] == found["rewritable"] <= 4  # the worker may have begun by itself
    assert all(found["kept"][name] <= kept[name] for name in kept)
    again = old.mem("reprocess").stdout
    assert again == "rewrote 0 turns\n"
    old.mem("stop")
    assert {writer for _, writer, *_ in state(old)["turns"]} == {WRITER_VERSION}


def test_the_command_refuses_what_it_does_not_understand(old: Lab) -> None:
    assert old.mem("reprocess", "--since", "soon", ok=False).returncode == 2
    assert old.mem("reprocess", "--since", "2026-13-44", ok=False).returncode == 2
    unknown = old.mem("reprocess", "--project", "nowhere", ok=False)
    assert (unknown.returncode, "no project nowhere" in unknown.stderr.replace("'", "")) == (1, True)


async def ask(service: Service, **given: Any) -> Row:
    """As the route does it, without a worker's loops."""
    request = decode_request(SHOW_REPROCESS, path={}, query=given, body={})
    wanted = await transfer._reprocess_selection(service, request)
    return asdict(await service.db.read(reprocessing.count_reprocessable_turns, wanted))


def test_it_is_narrowed_down_by_project_and_time(old: Lab) -> None:
    async def inside(service: Service) -> list[int]:
        by_name = await ask(service, project="shop")
        by_folder = await ask(service, cwd=str(old.project))
        later = await ask(service, since="2999-01-01")
        with pytest.raises(NotFound):
            await ask(service, project="other")
        return [found["rewritable"] for found in (by_name, by_folder, later)]

    assert Home(old.data).work(inside) == [5, 5, 0]


def test_status_says_how_much_is_left(old: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    caller = Caller(USER, True, "", (None, None), BrowserSessions("token", 1))
    assert Home(old.data).work(lambda service: status.show_status(service, NoFields(), caller)).to_rewrite == 5
    told: Row = {
        "pid": None,
        "worker": "running",
        "outdated": "",
        "data_dir": "d",
        "captured": 0,
        "audit": None,
        "damage": [],
        "refining": "",
        "door": [],
    }
    counts = dict.fromkeys(("stored", "queued", "set_aside", "filtered"), 0)
    for number, shown in ((5, True), (0, False)):
        worker._show_status({**told, **counts, "to_rewrite": number, "problem": ""})
        assert ("reprocess" in capsys.readouterr().out) is shown
