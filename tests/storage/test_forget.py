"""What is forgotten is gone: from what is told and found, from every file, and by no door does it come back."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from claude_mem.capture import backfill
from claude_mem.config import Config, load
from claude_mem.curate import redaction
from claude_mem.curate.erasure import ErasedContent, erase_from_logs, find_waiting_files
from claude_mem.digest.writer import LocalCompressor
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.records import Digest, Turn
from claude_mem.domain.reports import BackupCopy, DeletionProgress
from claude_mem.domain.text_pattern import TextPattern
from claude_mem.inject import brief
from claude_mem.recall import rank
from claude_mem.storage import external_db
from claude_mem.storage.records import DeletionScope
from claude_mem.storage.sqlite import backup, engine, self_check
from claude_mem.storage.sqlite.deletion import deletions, scopes, tombstones
from claude_mem.storage.sqlite.engine import fetch_all, fetch_value
from claude_mem.storage.sqlite.journal import retention
from claude_mem.worker.app import Service
from tests.support import proof
from tests.support.lab import Lab
from tests.support.moving import Home
from tests.support.upgrading import current_column
from tests.worker.test_backfill import Old

T = TypeVar("T")
WORD = "ZanzibarLantern7Qx93"  # a canary: mixed letters, so that the index's own small ones are another form of it
HOUR = 3_600_000
COMMAND = "pytest tests/storage/test_forget.py"


# --- a memory with the canary in it ----------------------------------------------------------------------------------


def work(lab: Lab, do: Callable[[Service], Awaitable[T]]) -> T:
    async def inside() -> T:
        service = Service(load(lab.env()))
        try:
            return await do(service)
        finally:
            service.close()

    return asyncio.run(inside())


def digest(lab: Lab) -> None:
    work(lab, lambda service: service.run_until_idle())


def spool_session(lab: Lab, session: str, *, secret: str = "", transcript: str = "", at: int = 0, **more: Any) -> None:
    """Two turns; `secret` is in a prompt, a command, its output, an edit and the last words of the first."""
    clock = at or int(time.time() * 1000) - HOUR
    say = f" {secret}" if secret else ""
    path = str(lab.project / f"src/{session}.py")
    edit = {"file_path": path, "old_string": "x = 1", "new_string": f"x = '{secret or 2}'"}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("UserPromptSubmit", {"prompt": f"Explain the lamp{say} to {session}", "prompt_id": f"{session}-p1"}),
        ("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": f"echo{say}"}, "tool_use_id": f"{session}-c1",
                         "tool_response": {"stdout": f"it said{say}"}, "prompt_id": f"{session}-p1"}),
        ("PostToolUse", {"tool_name": "Edit", "tool_input": edit, "tool_response": {}, "tool_use_id": f"{session}-c2",
                         "prompt_id": f"{session}-p1"}),
        ("Stop", {"last_assistant_message": f"The lamp{say} of {session} is lit. It was decided to keep it so.",
                  "prompt_id": f"{session}-p1"}),
        ("UserPromptSubmit", {"prompt": f"And the harbour of {session}?", "prompt_id": f"{session}-p2"}),
        ("PostToolUse", {"tool_name": "Read", "tool_input": {"file_path": path}, "tool_use_id": f"{session}-c3",
                         "tool_response": "x = 1", "prompt_id": f"{session}-p2"}),
        ("Stop", {"last_assistant_message": f"The harbour of {session} is open all night, and it has always been so. " * 5,
                  "prompt_id": f"{session}-p2"}),
        ("SessionEnd", {"reason": "other"}),
    ]  # fmt: skip
    for number, (event, fields) in enumerate(steps):
        lab.spool(event, at=clock + number * 1000, session_id=session, transcript_path=transcript, **fields, **more)


def forms(word: str) -> dict[str, bytes]:
    raw = word.encode()
    coded = {f"base64+{n}": base64.b64encode(b"\0" * n + raw)[[0, 2, 3][n] : -4] for n in range(3)}
    utf16 = {"utf-16-le": word.encode("utf-16-le"), "utf-16-be": word.encode("utf-16-be")}
    return {"raw": raw, "lower": word.lower().encode(), **utf16, **coded}


def traces(folder: Path, word: str = WORD) -> list[str]:
    """Every file of the folder in which a form of it stands: free pages, logs and hidden files too."""
    return [
        f"{path.relative_to(folder)}: {form}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
        for form, mark in forms(word).items()
        if mark in path.read_bytes()
    ]


def forget(lab: Lab, *, now: bool = False, **given: Any) -> DeletionProgress:
    async def do(service: Service) -> DeletionProgress:
        scope = await service.db.read(lambda conn: scopes.resolve_deletion_scope(conn, **given))
        progress = DeletionProgress(erased=now)
        await service.deletion_service.forget(scope, progress)
        await service.run_until_idle()
        assert not progress.error
        return progress

    return work(lab, do)


def known(lab: Lab) -> list[str]:
    """Everything that is remembered, but for when it was last touched."""
    lines = [json.loads(line) for line in Home(lab.data).export()]
    return sorted(json.dumps({**line, "updated_at": 0, "exported_at": 0}) for line in lines)


def audited(lab: Lab) -> list[str]:
    async def do(service: Service) -> list[str]:
        quick = await service.db.read(self_check.run_quick_checks, in_spool=0)
        full = await service.db.write(lambda conn: list(self_check.run_thorough_checks(conn)))
        return [f"{item.name}: {item.detail}" for item in (*quick, *full) if not item.ok]

    return work(lab, do)


def found(lab: Lab, text: str) -> list[str]:
    async def do(service: Service) -> list[str]:
        while await service.indexer.catch_up():
            pass
        return [
            f"{hit.kind} {hit.id}"
            for hit in await rank.find_hits(service.db, service.indexer, rank.SearchQuery(text=text))
        ]

    return work(lab, do)


@pytest.fixture
def told(lab: Lab) -> Lab:
    """Two sessions, one of which says the word, both digested."""
    spool_session(lab, "lit", secret=WORD)
    spool_session(lab, "dark")
    digest(lab)
    assert traces(lab.data)
    return lab


# --- gone ------------------------------------------------------------------------------------------------------------


def test_forgetting_for_good_leaves_not_a_byte_in_any_file(lab: Lab) -> None:
    """T26. By the real command, with a worker that runs."""
    spool_session(lab, "lit", secret=WORD)
    spool_session(lab, "dark")
    lab.raw_spool(f"no header here {WORD}".encode())
    digest(lab)
    shop = lab.start()
    saved = shop.post(
        "/api/memory/save", {"text": f"Remember {WORD} well.", "title": f"About {WORD}", "cwd": str(lab.project)}
    )
    shop.patch(f"/api/observation/{saved['id']}", {"title": "Nothing to see"})
    gone = shop.post("/api/memory/save", {"text": f"Away with {WORD}", "title": WORD, "cwd": str(lab.project)})
    shop.delete(f"/api/observation/{gone['id']}")  # softly: it is in the attic
    shop.post("/api/backup", {})
    (lab.data / "quarantine" / "then").mkdir(parents=True)
    shutil.copy(next(lab.data.glob("backups/*.db")), lab.data / "quarantine/then/claude-mem.db")
    (lab.data / "quarantine/then/broken.db").write_bytes(b"SQLite format 3\0" + WORD.encode() * 9)
    with (lab.data / "logs/worker.log").open("a") as file:
        file.write(f"2026-01-01 00:00:00,000 ERROR x: a provider said {WORD}\n")
    lab.hook("SessionStart", source="startup", session_id="next")
    lab.wait_digested()
    held = {trace.split("/")[0].split(":")[0] for trace in traces(lab.data)}
    assert {"claude-mem.db", "backups", "quarantine", "logs", "aside", "starts"} <= held
    shown = lab.mem("forget", "--matching", WORD.lower(), "--now", ok=False)
    assert "observations" in shown.stderr and "backups" in shown.stderr
    begun = time.perf_counter()
    done = json.loads(lab.mem("forget", "--matching", WORD.lower(), "--now", "--yes", "--json").stdout)
    seconds = time.perf_counter() - begun
    left = traces(lab.data)
    proof.record(
        "forget --now: traces in any file", of="P3", goal="0", measured=len(left), ok=not left, command=COMMAND,
        note=f"raw, lower case, base64, UTF-16; {len(list(lab.data.rglob('*')))} files; {seconds:.2f} s by the command",
    )  # fmt: skip
    assert left == []
    assert done["left"] == []
    assert set(done["copies"]) == {"rewritten", "deleted"}
    lab.wait_digested()
    lab.mem("stop")
    assert traces(lab.data) == []
    backup.examine_backup(next(lab.data.glob("backups/*.db")))
    assert audited(lab) == []
    assert found(lab, "harbour of dark")


def test_a_thousand_records_are_erased_with_every_copy(config: Config) -> None:
    count = 1_000 if proof.long() else 60

    async def do(service: Service) -> tuple[float, float]:
        await service.db.write(_plant, count)
        while await service.indexer.catch_up():
            pass
        await asyncio.to_thread(backup.write_backup, service.db.path, config.backups)
        begun, cpu, progress = time.perf_counter(), time.process_time(), DeletionProgress(erased=True)
        await service.deletion_service.forget(DeletionScope(matching=WORD), progress)
        assert progress.left == []
        assert progress.counts["observations"] == count
        return time.perf_counter() - begun, time.process_time() - cpu

    seconds, cpu = Home(config.data_dir).work(do)
    assert traces(config.data_dir) == []
    note = f"with index, one backup and a look at every file afterwards; {cpu:.2f} s of one core"
    proof.record(
        "forget --now: 1,000 records", of="P3", goal="≤ 5 s", measured=round(seconds, 2), unit="s", ok=seconds <= 5,
        command=f"CLAUDE_MEM_PROOF=build/proof {COMMAND}", note=note,
    )  # fmt: skip


def _plant(conn: Any, count: int) -> None:
    from claude_mem.storage.sqlite.memory import observations, projects
    from claude_mem.system.project_folders import ResolvedProject

    project = projects.register_project(conn, ResolvedProject("shop", "/nowhere", ("name:shop",)), "", now=1)
    for number in range(count):
        text = f"Lamp {number} hangs over the {WORD} quay and is lit at dusk by whoever passes. " * 3
        observations.save_observation(
            conn, project_id=project, title=f"Lamp {number} {WORD}", text=text, key=f"k{number}", now=number + 1
        )


def test_the_text_is_found_in_every_guise() -> None:
    needle = TextPattern(WORD)
    coded = [base64.b64encode(b"abc"[:n] + WORD.encode() + b"and more") for n in range(3)]
    assert all(needle.is_in_bytes(b"before " + form + b" after") for form in coded)
    assert all(needle.is_in_bytes(form) for name, form in forms(WORD).items() if "base64" not in name)
    assert needle.is_in(json.dumps(f'say "{WORD.upper()}"'))
    assert TextPattern('a "quoted"\nline').is_in(json.dumps('with A "Quoted"\nline in it'))
    assert not needle.is_in_bytes(WORD[:-1].encode())


def test_words_of_events_that_are_past_keeping_leave_the_index(lab: Lab) -> None:
    spool_session(lab, "lit", secret=WORD)
    digest(lab)
    later = ids.now_ms() + HOUR
    assert work(lab, lambda service: service.db.write(retention.purge_turn_events, before=later, deadline=later)) == 2
    left = work(
        lab,
        lambda service: service.db.read(
            lambda conn: fetch_value(conn, "select count(*) from events where kind = 'tool'")
        ),
    )
    assert left == 0
    assert found(lab, WORD)
    forget(lab, matching=WORD, now=True)
    assert traces(lab.data) == []


def test_a_copy_of_an_older_version_is_rewritten_and_stays_of_that_version(told: Lab) -> None:
    path = told.data / "backups" / "before-0012.db"
    path.parent.mkdir(exist_ok=True)
    conn = apsw.Connection(str(path))
    for number, sql in engine.load_migrations():
        if number <= 10:
            conn.execute(sql)
            conn.pragma("user_version", number)
    conn.execute("attach ? as now", (str(told.data / "claude-mem.db"),))
    for table in ("projects", "project_aliases", "sdk_sessions", "turns", "user_prompts", "events", "observations",
                  "session_summaries", "documents", "passages"):  # fmt: skip
        names = [row[1] for row in conn.execute(f"pragma main.table_info({table})")]
        now = [current_column(table, name) for name in names]
        conn.execute(f"insert or ignore into {table} ({', '.join(names)}) select {', '.join(now)} from now.{table}")
    conn.close()
    assert "backups/before-0012.db: raw" in traces(told.data)
    forget(told, matching=WORD, now=True)
    assert traces(told.data) == []
    with external_db.open_read_only(path) as copy:
        assert engine.read_schema_version(copy) == 10
        assert fetch_value(copy, "select count(*) from events") == 12
        assert fetch_value(copy, "select count(*) from sdk_sessions") == 2
    assert backup.examine_backup(path).version == 10


# --- it does not come back -------------------------------------------------------------------------------------------


DOORS = ("digest", "restore", "import", "backfill", "transcript")
WAYS = [(door, {"matching": WORD}) for door in DOORS]
WAYS += [(door, {"session": "lit"}) for door in DOORS if proof.long() or door not in ("digest", "restore")]


@pytest.mark.parametrize(("door", "scope"), WAYS)
def test_what_was_erased_comes_back_by_no_door(lab: Lab, door: str, scope: dict[str, Any]) -> None:
    old = Old(lab.folder / "lit.jsonl", "lit", lab.project)
    old.clock = time.time() - 3600
    old.prompt(f"Explain the lamp {WORD} to lit", "lit-p1")
    old.call("lit-c1", "Bash", command=f"echo {WORD}")
    old.call("lit-c9", "Bash", command="echo nobody saw this")
    old.say(f"The lamp {WORD} of lit is lit. It was decided to keep it so.")
    spool_session(lab, "lit", secret=WORD, transcript=str(old.path))
    spool_session(lab, "dark")
    digest(lab)
    copy, lines = lab.folder / "copy.db", lab.folder / "export.jsonl"
    shutil.copy(work(lab, _copied).path, copy)
    lines.write_bytes(b"\n".join(Home(lab.data).export()) + b"\n")
    assert WORD.encode() in lines.read_bytes()
    forget(lab, now=True, **scope)
    assert traces(lab.data) == []
    before = known(lab)
    _DOORS[door](lab, old, copy, lines)
    digest(lab)
    assert [trace for trace in traces(lab.data) if not trace.startswith("backups/before-restore")] == []
    assert found(lab, WORD) == []
    assert audited(lab) == []
    if door == "restore":
        assert known(lab) == before
    proof.record(
        f"resurrections by {door}", of="P3", goal="0", measured=0, ok=True, command=COMMAND, note=f"after {scope}"
    )


async def _copied(service: Service) -> BackupCopy:
    return await asyncio.to_thread(backup.write_backup, service.db.path, service.config.backups)


def _digest_again(lab: Lab, *_: Any) -> None:
    """Everything there is is digested anew."""

    def again(conn: Any) -> None:
        for row in fetch_all(
            conn, "select t.id, max(e.seq) as seq from turns t join events e on e.turn_id = t.id group by 1"
        ):
            conn.execute("update turns set digested_at = null where id = ?", (row["id"],))
            conn.execute(
                "insert into jobs (kind, subject, due_at, created_at) values ('compress', ?, 0, 0)",
                (f"{row['id']}.{row['seq']}.x",),
            )

    work(lab, lambda service: service.db.write(again))


def _restore(lab: Lab, _: Any, copy: Path, __: Any) -> None:
    lab.mem("restore", str(copy), "--yes")
    lab.mem("stop")


def _import(lab: Lab, _: Any, __: Any, lines: Path) -> None:
    assert "added" not in Home(lab.data).bring(lines).counts


def _backfill(lab: Lab, old: Old, *_: Any) -> None:
    work(lab, lambda service: service.db.write(lambda conn: backfill.enqueue_files(conn, old.path, now=ids.now_ms())))


def _transcript(lab: Lab, old: Old, *_: Any) -> None:
    """The session is resumed, and its transcript read from the beginning."""
    work(
        lab,
        lambda service: service.db.write(lambda conn: conn.execute("update sdk_sessions set transcript_offset = 0")),
    )
    lab.spool("UserPromptSubmit", session_id="lit", prompt="Go on", prompt_id="lit-p3", transcript_path=str(old.path))
    lab.spool(
        "Stop", session_id="lit", last_assistant_message="Went on.", prompt_id="lit-p3", transcript_path=str(old.path)
    )


_DOORS: dict[str, Callable[..., None]] = {
    "digest": _digest_again, "restore": _restore, "import": _import, "backfill": _backfill, "transcript": _transcript,
}  # fmt: skip


def test_an_observation_erased_by_its_number_is_not_digested_again(told: Lab) -> None:
    drafts = work(
        told,
        lambda service: service.db.read(
            lambda conn: fetch_all(conn, "select id, title from observations where title like '%lamp%'")
        ),
    )
    number, title = drafts[0]["id"], drafts[0]["title"]
    work(told, lambda service: service.erase(number))
    _digest_again(told)
    digest(told)
    titles = work(
        told,
        lambda service: service.db.read(
            lambda conn: [row["title"] for row in fetch_all(conn, "select title from observations")]
        ),
    )
    assert title not in titles
    assert audited(told) == []


def test_whoever_dies_while_forgetting_goes_on_at_the_next_start(told: Lab) -> None:
    async def die(service: Service) -> None:
        scope = DeletionScope(matching=WORD)
        rest = await service.db.read(scopes.find_affected_rows, scope, erase=True)
        number = await service.db.write(deletions.begin_deletion, erased=True, now=ids.now_ms())
        made = await service.db.read(
            lambda conn: deletions.build_tombstones(
                conn, scope, rest, deletion_id=number, erased=True, now=ids.now_ms()
            )
        )
        tombstones.append_tombstones(service.config.data_dir, made)  # and here it ends

    work(told, die)
    assert traces(told.data)
    digest(told)
    assert [trace for trace in traces(told.data) if "starts" not in trace] == []
    assert audited(told) == []


def test_a_digest_that_was_under_way_does_not_bring_it_back(lab: Lab) -> None:
    """The turn was read before, and what was made of it would be written after."""

    class Slow(LocalCompressor):
        async def compress(self, turn: Turn) -> Digest:
            made = await super().compress(turn)
            if any(WORD in draft.narrative + draft.title for draft in made.observations) or WORD in str(made.summary):
                await service.deletion_service.forget(DeletionScope(matching=WORD), DeletionProgress(erased=True))
            return made

    async def do() -> None:
        await service.run_until_idle()
        service.close()

    spool_session(lab, "lit", secret=WORD)
    service = Service(load(lab.env()), compressor=Slow())
    asyncio.run(do())
    assert traces(lab.data) == []
    assert audited(lab) == []


# --- softly ----------------------------------------------------------------------------------------------------------


SOFTLY: list[dict[str, Any]] = [{"matching": WORD}, {"session": "lit"}, {"project": "shop"}, {"source": "claude"}]


@pytest.mark.parametrize("scope", SOFTLY if proof.long() else SOFTLY[:2])
def test_what_was_forgotten_softly_is_neither_told_nor_found_and_comes_back_whole(
    told: Lab, scope: dict[str, Any]
) -> None:
    before = known(told)
    done = forget(told, **scope)
    assert found(told, WORD) == []
    start = work(told, lambda service: service.db.read(brief.gather_memory, [1], limit=50))
    assert start is None or WORD not in brief.render_brief(start, budget_tokens=2000)
    assert not [trace for trace in traces(told.data) if trace.startswith("starts")]
    assert known(told) != before
    assert audited(told) == []
    digest(told)
    back = work(told, lambda service: service.deletion_service.undo(done.number))
    assert sum(back.counts.values()) > 3
    digest(told)
    assert known(told) == before
    assert found(told, WORD)
    assert audited(told) == []
    with pytest.raises(OperationFailed, match="nothing left"):
        work(told, lambda service: service.deletion_service.undo(done.number))


def test_after_thirty_days_it_is_gone(told: Lab) -> None:
    forget(told, matching=WORD)

    async def later(service: Service) -> None:
        await service.db.write(lambda conn: conn.execute("update deletions set at = 0"))
        await service.db.write(lambda conn: conn.execute("update deleted_observations set at = 0"))
        await service.sweep()
        with pytest.raises(OperationFailed):
            await service.deletion_service.undo(1)

    work(told, later)
    assert traces(told.data) == []


def test_a_soft_forgetting_is_applied_to_a_restored_backup_and_can_still_be_undone(told: Lab) -> None:
    copy = told.folder / "copy.db"
    shutil.copy(work(told, _copied).path, copy)
    before = known(told)
    number = forget(told, session="lit").number
    _restore(told, None, copy, None)
    digest(told)
    assert found(told, WORD) == []
    work(told, lambda service: service.deletion_service.undo(number))
    digest(told)
    assert known(told) == before


def test_a_session_that_goes_on_is_remembered_from_then_on(told: Lab) -> None:
    forget(told, session="lit", now=True)
    told.spool("UserPromptSubmit", session_id="lit", prompt="A new beginning", prompt_id="lit-p9")
    told.spool(
        "Stop", session_id="lit", last_assistant_message="It began anew, and all of that is kept.", prompt_id="lit-p9"
    )
    digest(told)
    assert found(told, "a new beginning")
    assert audited(told) == []


# --- scopes ----------------------------------------------------------------------------------------------------------


def preview(lab: Lab, *, now: bool = False, **given: Any) -> dict[str, int]:
    async def do(service: Service) -> dict[str, int]:
        scope = await service.db.read(lambda conn: scopes.resolve_deletion_scope(conn, **given))
        counts: dict[str, int] = (await service.deletion_service.preview(scope, erase=now))[0].counts
        return counts

    return work(lab, do)


def test_scopes_add_up_and_the_preview_tells_exactly_what_goes(told: Lab) -> None:
    whole = preview(told, project="shop")
    lit = preview(told, session="lit")
    assert whole["sessions"] == 2 and lit["sessions"] == 1
    assert whole["events"] == 2 * lit["events"] == 16
    assert preview(told, session="lit", matching=WORD)["events"] == 4
    assert preview(told, session="dark", matching=WORD)["events"] == 0
    assert preview(told, source="codex")["events"] == 0
    later = work(told, lambda service: service.db.read(lambda conn: fetch_value(conn, "select max(at) from events")))
    assert preview(told, session="lit", before=later - 3000)["sessions"] == 0
    assert 0 < preview(told, session="lit", before=later - 3000)["events"] < lit["events"]
    assert preview(told, source=str(told.project / "src/lit.py"))["events"] == 2
    before = work(told, lambda service: service.db.read(lambda conn: fetch_value(conn, "select count(*) from events")))
    done = forget(told, session="lit", matching=WORD, now=True)
    after = work(told, lambda service: service.db.read(lambda conn: fetch_value(conn, "select count(*) from events")))
    assert before - after == done.counts["events"] == 4
    assert traces(told.data) == []


def test_what_makes_no_sense_is_refused(told: Lab) -> None:
    for given, error in (({}, InvalidRequest), ({"matching": "ab"}, InvalidRequest), ({"session": "nobody"}, NotFound),
                         ({"project": "nobody"}, NotFound), ({"after": 2, "before": 1}, InvalidRequest)):  # fmt: skip
        with pytest.raises(error):
            preview(told, **given)
    with pytest.raises(NotFound):
        work(told, lambda service: service.deletion_service.undo(99))


def test_the_rest_of_a_turn_is_digested_again_without_what_went(told: Lab) -> None:
    forget(told, matching=WORD, now=True)
    left = work(
        told,
        lambda service: service.db.read(
            lambda conn: fetch_all(conn, "select title, narrative, facts from observations where not forgotten")
        ),
    )
    assert left and WORD not in json.dumps(left)
    owed = work(
        told,
        lambda service: service.db.read(
            lambda conn: fetch_value(conn, "select count(*) from turns where digested_at is null")
        ),
    )
    assert owed == 0


def test_the_command_forgets_by_scope_and_undoes_by_number(told: Lab) -> None:
    client = told.start()
    refused = told.mem("forget", "--session", "lit", ok=False)
    assert refused.returncode == 1 and "to be deleted: " in refused.stderr and "session" in refused.stderr
    assert told.mem("forget", ok=False).returncode == 2
    done = told.mem("forget", "--session", "lit", "--yes")
    assert done.stdout == "forgotten: F1\n"
    assert [row["content_session_id"] for row in client.get("/api/sessions")["items"]] == ["dark"]
    assert "restored: F1" in told.mem("forget", "--undo", "F1").stdout
    assert len(client.get("/api/sessions")["items"]) == 2
    assert told.mem("forget", "--matching", "nothing says this", "--yes", ok=False).returncode == 1
    assert told.mem("forget", "--before", "2020-01-31", "--yes", ok=False).returncode == 1
    shown = told.mem("forget", "--after", "2020-01-31", "--before", "2099-01-31T12:00", ok=False).stderr
    assert "16 events, 2 sessions" in shown
    assert told.mem("forget", "--before", "yesterday", ok=False).returncode == 2


# --- large files -----------------------------------------------------------------------------------------------------

ENTRY = b"2026-01-01 00:00:00,000 ERROR x: "


def test_no_line_of_a_large_log_is_lost_and_memory_stays_bounded(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path)
    config.log_file.parent.mkdir(parents=True)
    size = 66 << 20
    with config.log_file.open("wb") as file:
        file.write(ENTRY + b"a provider said " + WORD.encode() + b"\n" + ENTRY + b"first\n")
        file.write(ENTRY + b"x" * size + b"\n")
        file.write(ENTRY + b"y" * (3 << 20) + WORD.encode() + b"\n" + ENTRY + b"last " + WORD.encode() + b"\nno break")
    content = ErasedContent(TextPattern(WORD), frozenset())
    tracemalloc.start()
    count = erase_from_logs(config, content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3
    assert peak < 16 << 20
    lines = config.log_file.read_bytes().split(b"\n")
    gone = ENTRY + b"[forgotten]"
    assert lines == [gone, ENTRY + b"first", ENTRY + b"x" * size, gone, gone, b"no break"]
    assert erase_from_logs(config, content) == 0


@pytest.mark.parametrize("text", ["abc", "said abc", "abc\n", "abc\nabc\nother\n", "[forgotten]\nabc", ""])
def test_a_short_line_of_a_log_is_erased_without_a_trace(tmp_path: Path, text: str) -> None:
    config = Config(data_dir=tmp_path)
    config.log_file.parent.mkdir(parents=True)
    config.log_file.write_text(text)
    erase_from_logs(config, ErasedContent(TextPattern("abc"), frozenset()))
    left = config.log_file.read_text()
    assert "abc" not in left
    assert left.count("\n") == text.count("\n")
    assert ("other" in left) == ("other" in text)


def test_the_end_of_a_large_waiting_file_is_searched_too(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path)
    config.aside.mkdir(parents=True)
    path = config.aside / "18e92a517755b25a-5aaa7148"
    path.write_bytes(b"x" * (65 << 20) + WORD.encode())
    scope = DeletionScope(matching=WORD)
    assert find_waiting_files(config, scope, until=1 << 60) == [path]


def test_redacting_a_large_log_drops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "MAX_FILE_BYTES", 100)
    token = "gh" + "p_" + "Zq8wErTyUiOpAsDfGhJkLzXcVbNm1234QwEr"
    lines = [f"line {number} {token if number % 7 == 0 else ''}\n" for number in range(100)]
    cleaned = redaction._redact_log("".join(lines)).splitlines()
    assert len(cleaned) == 100
    assert token not in "".join(cleaned)
