"""Forgetting in bad company: damaged copies, kills in between, sessions that go on, readers that do not let go."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.config import load
from claude_mem.curate import erasure
from claude_mem.domain import ids
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.reports import DeletionProgress
from claude_mem.domain.text_pattern import MAX_WORDS, rare_words
from claude_mem.storage.records import DeletionScope
from claude_mem.storage.sqlite import backup, engine, self_check
from claude_mem.storage.sqlite.deletion import deletions, tombstones
from claude_mem.storage.sqlite.engine import fetch_all, fetch_value, open_reader
from claude_mem.storage.sqlite.journal import notices, retention
from claude_mem.system import process
from claude_mem.system.project_folders import identify_project
from claude_mem.worker import serve
from claude_mem.worker.app import Service
from tests.storage.test_forget import WORD, audited, digest, forget, found, known, spool_session, traces, work
from tests.storage.test_forget import told as told  # noqa: PLC0414 - a fixture
from tests.support.lab import Lab

DAY = 86_400_000

# --- copies ----------------------------------------------------------------------------------------------------------


def quarantined(lab: Lab) -> Path:
    """A copy of the database as it is, in quarantine; and a sound one among the backups."""
    config = load(lab.env())
    made = Path(backup.write_backup(config.database, config.backups).path)
    folder = config.quarantine / "20260101-000000-aaaa"
    folder.mkdir(parents=True, mode=0o700)
    return Path(shutil.copy(made, folder / "claude-mem.db"))


UNREADABLE = "insert into notices (key, text, at) values ('k', cast(x'61e162' as text), 1)"
DANGLING = "insert into user_prompts (session_id, turn_id, prompt_number, text, created_at) values (2, 9999, 7, 'x', 1)"


@pytest.mark.parametrize(("wound", "becomes"), [(UNREADABLE, "deleted"), (DANGLING, "rewritten")])
def test_a_damaged_copy_keeps_nothing_of_it_and_keeps_no_worker_from_starting(
    told: Lab, wound: str, becomes: str
) -> None:
    copy = quarantined(told)
    conn = apsw.Connection(str(copy))
    conn.pragma("foreign_keys", "off")
    conn.execute(wound)
    conn.close()
    done = forget(told, session="lit", now=True)
    assert copy.name in done.copies[becomes]
    assert "failed" not in done.copies
    assert len(done.copies["rewritten"]) >= 1
    assert traces(told.data) == []
    assert copy.exists() == (becomes == "rewritten")
    digest(told)


def test_what_one_that_was_killed_left_half_made_goes_too(told: Lab) -> None:
    copy = quarantined(told)
    left = [
        told.data / "backups/.restoring-4194999/claude-mem.db",
        told.data / ".restoring-4194998/claude-mem.db",
        copy.with_name(f"claude-mem.db.0190{engine.PARTIAL_SUFFIX}"),
    ]
    for path in left:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(copy, path)
    mine = told.data / "backups" / f".restoring-{os.getppid()}"  # of a process that runs
    mine.mkdir()

    async def do(service: Service) -> None:
        assert not any(path.exists() for path in left)  # at the start; and once more:
        shutil.copy(copy, left[2])
        await service.deletion_service.forget(
            DeletionScope(sessions=(("claude", "lit"),)), DeletionProgress(erased=True)
        )

    work(told, do)
    assert traces(told.data) == []
    assert not any(path.exists() for path in left) and mine.is_dir()
    backup.examine_backup(copy)


def test_a_log_that_a_reader_holds_on_to_is_told_and_emptied_later(told: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_TRUNCATE_TRIES", 2)

    async def do(service: Service) -> DeletionProgress:
        reader = open_reader(service.db.path)
        reader.execute("begin")
        reader.execute("select count(*) from events").fetchall()
        progress = DeletionProgress(erased=True)
        await service.deletion_service.forget(DeletionScope(sessions=(("claude", "lit"),)), progress)
        assert traces(told.data)
        reader.close()
        await service.sweep()
        assert traces(told.data) == []
        return progress

    assert work(told, do).left == ["claude-mem.db-wal"]


# --- killed in between -----------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


async def _killed(*_: Any, **__: Any) -> Any:
    raise Killed


async def killed_at(service: Service, step: str, scope: DeletionScope) -> None:
    setattr(service.deletion_service, step, _killed)
    with pytest.raises(Killed):
        await service.deletion_service.forget(scope, DeletionProgress(erased=True))


@pytest.mark.parametrize("step", ["_store_tombstones", "delete_rows", "_erase_files"])
def test_an_erasure_that_was_broken_off_goes_on_with_all_that_was_asked_for(told: Lab, step: str) -> None:
    forget(told, session="lit")  # softly: its rows lie where they can be brought back from
    spool_session(told, "third", secret=WORD)
    told.raw_spool(f"no header here {WORD}".encode())
    digest(told)
    quarantined(told)
    (told.data / "logs").mkdir(mode=0o700, exist_ok=True)
    (told.data / "logs/worker.log").write_text(f"2026-01-01 00:00:00,000 ERROR x: a provider said {WORD}\n")
    work(told, lambda service: killed_at(service, step, DeletionScope(matching=WORD)))
    assert (told.data / erasure.ERASURE_REQUEST_FILE).stat().st_mode & 0o777 == 0o600
    digest(told)
    assert traces(told.data) == []
    assert not (told.data / erasure.ERASURE_REQUEST_FILE).exists()
    assert audited(told) == []
    work(told, lambda service: service.deletion_service.undo(1))
    digest(told)
    assert found(told, WORD) == []


def test_a_session_that_went_on_after_a_kill_keeps_what_is_new(told: Lab) -> None:
    scope = DeletionScope(sessions=(("claude", "lit"),))

    async def die(service: Service) -> None:
        await killed_at(service, "delete_rows", scope)
        await asyncio.sleep(0.01)
        told.spool("UserPromptSubmit", session_id="lit", prompt="A new beginning", prompt_id="lit-p9")
        assert await service.drain_once() == 1

    work(told, die)
    digest(told)
    assert traces(told.data) == []
    assert found(told, "a new beginning")
    assert audited(told) == []


def test_a_wish_that_can_not_be_read_is_shredded_and_the_stones_tell_what_goes(told: Lab) -> None:
    work(told, lambda service: killed_at(service, "delete_rows", DeletionScope(matching=WORD)))
    (told.data / erasure.ERASURE_REQUEST_FILE).write_bytes(b"{" + WORD.encode())
    digest(told)
    assert not (told.data / erasure.ERASURE_REQUEST_FILE).exists()
    assert found(told, WORD) == []


def test_an_erasure_that_is_cut_off_says_so_and_the_next_worker_tells_how_it_ends(told: Lab) -> None:
    quarantined(told)

    async def cut_off(service: Service) -> DeletionProgress:
        begun, never = asyncio.Event(), asyncio.Event()

        async def tidy() -> None:
            begun.set()
            await never.wait()

        service.deletion_service.tidy = tidy
        progress = service.deletion_service.start(DeletionScope(matching=WORD), erase=True)
        await begun.wait()
        await service.deletion_service.stop()
        return progress

    async def next_one(service: Service) -> tuple[DeletionProgress, bool]:
        await service.prepare()
        told_ = service.deletion_service.progress
        busy = told_.busy
        await service.deletion_service.finish()
        return told_, busy

    progress = work(told, cut_off)
    assert "interrupted" in progress.error and not progress.busy
    after, busy = work(told, next_one)
    assert busy and not after.busy and not after.error
    assert after.number == progress.number and after.counts["events"] == progress.counts["events"] > 0
    assert len(after.copies["rewritten"]) == 2
    assert traces(told.data) == []
    assert '"erased"' in (told.data / "audit.jsonl").read_text()


def test_an_undo_that_was_broken_off_is_not_undone(told: Lab) -> None:
    before = known(told)
    number = forget(told, session="lit").number

    async def die(service: Service) -> None:
        service.db.write = _killed  # type: ignore[method-assign]
        with pytest.raises(Killed):
            await service.deletion_service.undo(number)

    work(told, die)
    assert (
        tombstones.read_tombstones(told.data) == []
    )  # else it would be forgotten anew, were it killed after the commit
    digest(told)
    work(told, lambda service: service.deletion_service.undo(number))
    digest(told)
    assert known(told) == before


def test_an_undo_of_which_the_file_was_not_told_stays(told: Lab) -> None:
    before = known(told)
    number = forget(told, session="lit").number
    work(told, lambda service: service.db.write(deletions.restore_deletion, number, now=ids.now_ms()))
    digest(told)
    assert known(told) == before
    assert tombstones.read_tombstones(told.data) == []
    with pytest.raises(OperationFailed, match="nothing left"):
        work(told, lambda service: service.deletion_service.undo(number))


def test_a_database_that_was_put_back_forgets_before_anyone_can_ask(told: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(told.env())
    copy = shutil.copy(backup.write_backup(config.database, told.folder).path, told.folder / "copy.db")
    forget(told, session="lit", now=True)
    shutil.copy(copy, config.database)
    life, seen = serve.WorkerProcess(config), []

    def announced(*_: Any) -> None:
        assert life.service is not None
        seen.append(life.service.db.read_now(lambda conn: fetch_value(conn, "select count(*) from sdk_sessions")))
        life.end()

    monkeypatch.setattr(process, "write_worker_info", announced)
    asyncio.run(life.run())
    assert seen == [1]


# --- sessions that go on meanwhile -----------------------------------------------------------------------------------


@pytest.mark.parametrize("erase", [True, False])
def test_what_comes_in_while_its_session_is_forgotten_is_kept(told: Lab, erase: bool) -> None:
    """One event is older than the wish and was late, the others are newer: in the tables, and still in the spool."""

    async def do(service: Service) -> list[str]:
        delete_rows, waiting = service.deletion_service.delete_rows, service.deletion_service._erase_waiting_files

        async def late(*given: Any, **more: Any) -> None:
            await asyncio.sleep(0.01)
            told.spool("UserPromptSubmit", session_id="lit", prompt="A new beginning", prompt_id="lit-p9")
            told.spool("Stop", session_id="lit", last_assistant_message="It began anew.", prompt_id="lit-p9")
            await service.drain_once()
            await delete_rows(*given, **more)

        async def later(*given: Any) -> None:
            told.spool("UserPromptSubmit", session_id="lit", prompt="And on it goes", prompt_id="lit-p10")
            await waiting(*given)

        service.deletion_service.delete_rows = late  # type: ignore[method-assign]
        service.deletion_service._erase_waiting_files = later  # type: ignore[assignment,method-assign]
        await service.deletion_service.forget(
            DeletionScope(sessions=(("claude", "lit"),)), DeletionProgress(erased=erase)
        )
        assert [item for item in await service.db.read(self_check.run_quick_checks, in_spool=0) if not item.ok] == []
        await service.run_until_idle()
        return [row["text"] for row in await service.db.read(lambda conn: fetch_all(conn, _PROMPTS))]

    assert work(told, do) == ["A new beginning", *(["And on it goes"] if erase else [])]
    assert found(told, WORD) == []
    assert audited(told) == []
    assert told.rows("select forgotten from sdk_sessions where content_session_id = 'lit'") == [(0,)]
    if erase:
        assert traces(told.data) == []


_PROMPTS = """select p.text from user_prompts p join sdk_sessions s on s.id = p.session_id
               where s.content_session_id = 'lit' order by p.id"""


# --- undone as it was ------------------------------------------------------------------------------------------------


def test_the_account_adds_up_after_an_undo_on_the_last_day(lab: Lab) -> None:
    spool_session(lab, "lit", secret=WORD, at=ids.now_ms() - 6 * DAY)
    spool_session(lab, "dark")
    digest(lab)
    number = forget(lab, session="lit").number

    async def later(service: Service) -> int:
        gone, _ = await service.db.write(retention.compact_receipts, before=ids.now_ms())
        await service.deletion_service.undo(number)
        await service.db.write(retention.compact_receipts, before=ids.now_ms())
        return gone

    assert work(lab, later) == 0
    assert audited(lab) == []


def test_a_session_forgotten_twice_gets_back_both_its_titles(told: Lab) -> None:
    first = forget(told, session="lit").number
    told.spool("UserPromptSubmit", session_id="lit", prompt="A new beginning of the tale", prompt_id="lit-p9")
    told.spool("Stop", session_id="lit", last_assistant_message="It began anew, and is kept.", prompt_id="lit-p9")
    digest(told)
    named = "select title, subtitle, first_prompt from sdk_sessions where content_session_id = 'lit'"
    before = told.rows(named)
    second = forget(told, session="lit").number
    assert told.rows(named) == [(None, None, None)]
    work(told, lambda service: service.deletion_service.undo(second))
    assert told.rows(named) == before
    work(told, lambda service: service.deletion_service.undo(first))
    assert WORD in str(told.rows(named))


def test_what_is_erased_from_what_was_put_away_comes_back_neither_by_undoing_nor_by_a_door(told: Lab) -> None:
    first = forget(told, session="lit").number
    forget(told, matching=WORD, now=True)
    work(told, lambda service: service.deletion_service.undo(first))
    spool_session(told, "lit", secret=WORD)  # its transcript, a second hook
    digest(told)
    assert found(told, WORD) == []
    assert traces(told.data) == []
    assert audited(told) == []


def test_what_was_forgotten_by_its_number_goes_for_good_with_its_time(told: Lab) -> None:
    """One that was saved by itself: no session takes it along."""
    other = WORD[::-1]

    async def do(service: Service) -> None:
        project = await asyncio.to_thread(identify_project, str(told.project))
        row_id, _ = await service.save(project, f"About {other}", f"Remember {other} well.")
        await service.forget(row_id)
        await service.deletion_service.forget(
            DeletionScope(projects=project.identities, after=ids.now_ms() - DAY // 48), DeletionProgress(erased=True)
        )

    work(told, do)
    assert traces(told.data, other) == []


def test_an_observation_forgotten_by_its_number_stays_forgotten_after_a_restore_and_can_be_undone(told: Lab) -> None:
    config = load(told.env())
    copy = shutil.copy(backup.write_backup(config.database, told.folder).path, told.folder / "copy.db")
    number, title = told.rows("select id, title from observations where title like '%lamp%'")[0]
    work(told, lambda service: service.forget(number))
    assert audited(told) == []
    shutil.copy(copy, config.database)
    digest(told)
    assert told.rows("select title from observations where id = ?", number) == [(None,)]
    back = work(told, lambda service: service.deletion_service.undo_one(number, by="user"))
    assert back == {"undone": "forgotten", "ids": [number]}
    assert tombstones.read_tombstones(told.data) == []
    shutil.copy(copy, config.database)
    digest(told)
    assert told.rows("select title from observations where id = ?", number) == [(title,)]
    assert audited(told) == []


# --- scopes and words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [True, False])
def test_the_uses_of_an_item_that_names_the_text_go_with_it(told: Lab, now: bool) -> None:
    """In an injection of a session that stays, and in the backups."""

    def tell(conn: Any) -> None:
        conn.execute(
            "insert into injections (host, content_session_id, trigger, at, tokens, names)"
            " select host, content_session_id, 'prompt', 1, 1, ? from sdk_sessions where content_session_id = 'dark'",
            (json.dumps([f"file:src/{WORD}.py"]),),
        )
        conn.execute(
            "insert into uses (injection_id, turn_id, item, use, at) select i.id, t.id, ?, 'opened', 1"
            " from injections i join turns t on t.session_id = (select id from sdk_sessions"
            " where content_session_id = 'dark') where i.tokens = 1",
            (f"file:src/{WORD}.py",),
        )

    work(told, lambda service: service.db.write(tell))
    work(told, lambda service: asyncio.to_thread(backup.write_backup, service.db.path, service.config.backups))
    assert told.rows("select count(*) from uses") == [(2,)]
    forget(told, matching=WORD, now=now)
    assert told.rows("select count(*) from uses") == [(0,)]
    assert told.rows("select count(*) from sdk_sessions where content_session_id = 'dark'") == [(1,)]
    if now:
        assert traces(told.data) == []
    assert audited(told) == []


def test_a_text_in_one_session_leaves_the_titles_and_tellings_of_others(told: Lab) -> None:
    told.spool("UserPromptSubmit", session_id="other", prompt=f"More of {WORD} here", prompt_id="o-p1")
    told.spool("Stop", session_id="other", last_assistant_message="It is done and over.", prompt_id="o-p1")
    digest(told)

    def tell(conn: Any) -> None:
        for session in ("lit", "other"):
            conn.execute(
                "insert into injections (host, content_session_id, trigger, about, at, tokens)"
                " values ('claude', ?, 'file', ?, 1, 1)",
                (session, WORD),
            )

    work(told, lambda service: service.db.write(tell))
    named = "select title, first_prompt from sdk_sessions where content_session_id = 'other'"
    before = told.rows(named)
    assert WORD in str(before)
    forget(told, session="lit", matching=WORD)
    assert told.rows(named) == before
    assert told.rows("select content_session_id from injections where about = ?", WORD) == [("other",)]
    assert audited(told) == []


def test_common_words_of_what_is_erased_take_no_notice_and_no_log_with_them(told: Lab) -> None:
    told.spool(
        "UserPromptSubmit", session_id="chat", prompt="Has claude-mem's connection documentation?", prompt_id="c1"
    )
    told.spool("Stop", session_id="chat", last_assistant_message="It says /srv/7/quay-ledger.txt.", prompt_id="c1")
    digest(told)
    text = "claude-mem's connection to its documentation was damaged: /srv/7/quay-ledger.txt"

    async def put(service: Service) -> None:
        await service.db.write(notices.mark_greeted, now=1)
        await service.db.write(notices.add_notice, "damage:1", text, now=1)

    async def left(service: Service) -> tuple[dict[str, str], int]:
        return await service.db.read(notices.list_unshown_notices), await service.db.read(notices.get_greeted_at)

    work(told, put)
    (told.data / "logs").mkdir(exist_ok=True, mode=0o700)
    ours = "2026-01-01 00:00:00,000 ERROR x: the connection to the provider failed: HTTP 529\n"
    quoting = "2026-01-01 00:00:00,000 ERROR x: can't read /srv/7/quay-ledger.txt\n"
    (told.data / "logs/worker.log").write_text(ours + quoting)
    forget(told, session="chat", now=True)
    assert (told.data / "logs/worker.log").read_text() == ours + quoting[:33] + "[forgotten]\n"
    assert work(told, left) == ({"damage:1": text}, 1)


def test_no_more_words_are_kept_in_mind_than_there_is_room_for() -> None:
    texts = (f"{number:020x} {number:010x}" for number in range(2 * MAX_WORDS))
    assert len(rare_words(texts)) == MAX_WORDS
    assert next(texts, None) is not None  # the rest is not read
