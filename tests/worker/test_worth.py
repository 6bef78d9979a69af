"""Shown → used, from the hooks to the figures: judged when a turn ends, learnt from, erased, and compared with silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from claude_mem.config import load
from claude_mem.domain.reports import DeletionProgress
from claude_mem.storage.sqlite.deletion import scopes
from claude_mem.storage.sqlite.engine import fetch_all
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.storage.sqlite.journal import uses as store
from claude_mem.worker.app import Service
from tests.support.desk import Desk
from tests.support.lab import Lab

WORDS = "Basket totals are rounded once, at the very end, because rounding each line added up to a cent."


def open_desk(lab: Lab, **settings: str) -> Desk:
    async def build() -> Service:
        return Service(load({**lab.env(), **{f"CLAUDE_MEM_{name.upper()}": value for name, value in settings.items()}}))

    return Desk(lab, asyncio.run(build()))


@pytest.fixture
def desk(lab: Lab) -> Iterator[Desk]:
    made = open_desk(lab)
    yield made
    made.service.close()


def rows(desk: Desk, sql: str) -> list[dict[str, Any]]:
    return desk.db.read_now(fetch_all, sql)


def session(desk: Desk, name: str, *, opens: str = "src/basket.py", source: str = "startup") -> str:
    """A session that is shown the start context, reads one file and is over. What it was shown."""
    desk.lab.spool("SessionStart", session_id=name, source=source)
    text = desk.say("SessionStart", session_id=name, source=source)
    desk.prompt("Where is the rounding of the basket?", name)
    desk.tool("Read", {"file_path": f"{desk.lab.project}/{opens}"}, "text", session=name)
    desk.stop("It is at the end of the file.", name)
    desk.lab.spool("SessionEnd", session_id=name, reason="other")
    desk.digest()
    return text


def test_the_use_of_what_was_shown_is_stored_when_the_turn_ends(desk: Desk) -> None:
    desk.work("a", WORDS)
    session(desk, "b")
    session(desk, "c", opens="README.md")
    found = rows(desk, "select s.content_session_id as name, u.use from uses u join turns t on t.id = u.turn_id"
                       " join sdk_sessions s on s.id = t.session_id where u.item = 'o1' order by u.id")  # fmt: skip
    assert found == [{"name": "b", "use": "opened"}, {"name": "c", "use": "none"}]


def test_a_turn_that_is_digested_again_is_judged_again_and_counted_once(desk: Desk) -> None:
    desk.work("a", WORDS)
    session(desk, "b")
    everything = "select injection_id, turn_id, item, use, at from uses order by injection_id, item, turn_id, use"
    before = rows(desk, everything)
    assert before
    (turn,) = rows(desk, "select turn_id from uses limit 1")
    for number in range(2):
        desk.db.write_now(jobs.enqueue_job, "compress", f"{turn['turn_id']}.again{number}", now=1)
        desk.digest()
    assert rows(desk, everything) == before


def test_uses_go_with_the_memory_and_with_the_session(desk: Desk) -> None:
    desk.work("a", WORDS)
    session(desk, "b")
    session(desk, "c")
    assert {row["item"] for row in rows(desk, "select item from uses")} >= {"o1"}
    assert desk.http.delete("/api/observation/1").status_code == 200
    assert "o1" not in {row["item"] for row in rows(desk, "select item from uses")}
    assert rows(desk, "select * from turn_reading")

    async def erase() -> None:
        scope = await desk.db.read(lambda conn: scopes.resolve_deletion_scope(conn, session="b"))
        await desk.service.deletion_service.forget(scope, DeletionProgress(erased=True))

    asyncio.run(erase())
    kept = rows(desk, "select distinct s.content_session_id as name from turn_reading r join turns t on t.id = r.turn_id"
                      " join sdk_sessions s on s.id = t.session_id")  # fmt: skip
    assert {row["name"] for row in kept} == {"a", "c"}
    orphans = "select * from uses where injection_id not in (select id from injections) or turn_id not in (select id from turns)"
    assert rows(desk, orphans) == []


def test_nothing_is_kept_of_a_private_turn(desk: Desk) -> None:
    desk.work("a", WORDS)
    session(desk, "b")
    assert rows(desk, "select 1 from uses")
    desk.db.write_now(lambda conn: conn.execute("update turns set private = 1 where session_id = 2"))
    assert rows(desk, "select * from uses where turn_id in (select id from turns where session_id = 2)") == []
    assert rows(desk, "select * from turn_reading where turn_id in (select id from turns where session_id = 2)") == []


def vain_sessions(desk: Desk, count: int) -> None:
    """As many earlier injections of observation 1 that no turn used."""

    def plant(conn: Any) -> None:
        for _ in range(count):
            conn.execute("insert into injections (host, content_session_id, trigger, at, tokens, names)"
                         " values ('claude', 'a', 'start', 1, 9, '[\"o1\"]')")  # fmt: skip
        conn.execute("insert into uses (injection_id, turn_id, item, use, at) select id, 1, 'o1', 'none', 1 from injections"
                     " where content_session_id = 'a' and not exists (select 1 from uses where injection_id = injections.id)")  # fmt: skip

    desk.db.write_now(plant)


def test_what_was_shown_often_and_never_used_leaves_the_brief_unless_it_is_pinned(desk: Desk) -> None:
    desk.work("a", WORDS)
    vain_sessions(desk, 7)
    assert "rounded once" in desk.say("SessionStart", session_id="x1", source="startup")
    vain_sessions(desk, 1)
    assert "rounded once" not in desk.say("SessionStart", session_id="x2", source="startup")
    (item,) = desk.http.post("/api/observations/batch", json={"ids": [1]}).json()["items"]
    assert item["uses"] | {"shown": 8, "used": 0, "left": True} == item["uses"]
    assert item["uses"]["triggers"] == [{"trigger": "start", "shown": 8, "used": 0, "kinds": []}]
    assert desk.http.post("/api/observation/1/pin").status_code == 200
    assert "rounded once" in desk.say("SessionStart", session_id="x3", source="startup")
    (item,) = desk.http.post("/api/observations/batch", json={"ids": [1]}).json()["items"]
    assert not item["uses"]["left"]


def test_a_rule_of_the_user_never_leaves(desk: Desk) -> None:
    rule = {"text": "Always run the linter before a commit.", "cwd": str(desk.lab.project), "type": "rule"}
    assert desk.http.post("/api/memory/save", json=rule).json()["id"] == 1
    desk.work("a", WORDS)
    vain_sessions(desk, 30)
    assert "run the linter" in desk.say("SessionStart", session_id="x", source="startup")


def test_the_figures_add_up_and_say_when_there_is_too_little(desk: Desk) -> None:
    desk.work("a", WORDS)
    session(desk, "b")
    session(desk, "c", opens="README.md")
    worth = desk.get("/api/worth")
    assert (worth["sessions"], worth["sessions_shown"], worth["sessions_used"]) == (3, 2, 1)
    assert worth["used"] < worth["shown"] == sum(row["shown"] for row in worth["triggers"])
    assert worth["tokens"] == sum(row["tokens"] for row in worth["triggers"]) > 0
    assert worth["characters_read"] == 8
    assert worth["lift"]["difference"] == {"samples": 2, "needed": 10, "value": None, "low": None, "high": None}
    assert worth["holdout"]["used"]["needed"] == 30
    later = desk.get("/api/worth", since=4_000_000_000_000)
    assert (later["sessions"], later["shown"], later["tokens"]) == (0, 0, 0)
    assert desk.http.get("/api/worth", params={"project": "nowhere"}).status_code == 404


# --- silent moments --------------------------------------------------------------------------------------------------


def some_silent(desk: Desk, *, at_least: int) -> list[str]:
    """What sessions were shown, as many as it takes until one was silent and one was not: each is drawn at random."""
    texts: list[str] = []
    while len(texts) < at_least or (len({"rounded once" in text for text in texts}) < 2 and len(texts) < 64):
        texts.append(session(desk, f"s{len(texts)}"))
    return texts


def test_a_silent_moment_says_nothing_but_rules_and_is_recorded(lab: Lab) -> None:
    desk = open_desk(lab, holdout="0.5")
    try:
        rule = {"text": "Always run the linter before a commit.", "cwd": str(lab.project), "type": "rule"}
        desk.http.post("/api/memory/save", json=rule)
        desk.work("a", WORDS)
        texts = some_silent(desk, at_least=12)
        silent = [text for text in texts if "rounded once" not in text]
        assert 0 < len(silent) < len(texts)
        assert all("run the linter" in text for text in texts), "what the user said is always shown"
        found = rows(desk, "select content_session_id as name, held_out, tokens, names, holdout from injections"
                           " where trigger = 'start' and holdout > 0")  # fmt: skip
        held = [row for row in found if row["held_out"]]
        assert len(held) == len(silent)
        assert {row["tokens"] for row in held} == {0}
        assert all(row["holdout"] == 0.5 and "o1" not in row["names"] for row in found), "rules are no part of it"
        assert any("o2" in row["names"] for row in held)
        again = desk.say("SessionStart", session_id="s0", source="startup")
        assert ("rounded once" in again) == ("rounded once" in texts[0])
        worth = desk.get("/api/worth")["holdout"]
        assert (worth["setting"], worth["spoken"] + worth["silent"]) == (0.5, len(found))
        assert worth["used"]["value"] is None
        counts = desk.db.read_now(store.count_uses, ["o2"])["o2"]
        assert counts.shown == len(texts) - len(silent), "it was not shown in silence"
        for name in {row["name"] for row in held}:
            (of,) = rows(desk, f"select id from sdk_sessions where content_session_id = '{name}'")
            story = desk.story(of["id"])
            told = [each for each in story["told_at_start"] if each["held_out"]]
            assert told
            assert told[0]["tokens"] == 0
    finally:
        desk.service.close()


def test_switching_it_off_stops_silence_and_keeps_what_was_recorded(lab: Lab) -> None:
    desk = open_desk(lab, holdout="0.5")
    try:
        desk.work("a", WORDS)
        some_silent(desk, at_least=8)
        before = desk.get("/api/worth")["holdout"]
        assert before["silent"]
    finally:
        desk.service.close()
    desk = open_desk(lab)
    try:
        assert all("rounded once" in session(desk, f"t{number}") for number in range(4))
        after = desk.get("/api/worth")["holdout"]
        assert after | {"setting": 0.0} == before | {"setting": 0.0}, "moments of other times are not compared"
    finally:
        desk.service.close()


def test_a_clock_that_was_set_back_makes_no_use_unseen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The injection seems to be an hour later than all events: nothing is concluded from it."""
    from claude_mem.domain import ids

    desk.work("a", WORDS)
    real = ids.now_ms
    monkeypatch.setattr(ids, "now_ms", lambda: real() + 3_600_000)
    desk.say("SessionStart", session_id="b", source="startup")
    monkeypatch.undo()
    desk.prompt("Where is the rounding?", "b")
    desk.tool("Read", {"file_path": f"{desk.lab.project}/README.md"}, "text", session="b")
    desk.stop("There.", "b")
    desk.digest()
    assert rows(desk, "select names from injections where content_session_id = 'b'")
    assert rows(desk, "select * from uses") == []
    assert desk.get("/api/worth")["shown"] == 0


def test_the_command_prints_what_the_route_says(lab: Lab) -> None:
    desk = open_desk(lab)
    desk.work("a", WORDS)
    session(desk, "b")
    desk.service.close()
    lab.start()
    text = lab.mem("worth").stdout
    assert "items shown" in text
    assert "too little to say: 1 of at least 10 sessions" in text
    assert "claude-mem config set holdout 0.1" in text
    report = json.loads(lab.mem("worth", "--json", "--since", "2020-01-01").stdout)
    assert report["used"] >= 1
    assert "shown to sessions 1 times, used 1 times: 1 at start (opened)" in lab.mem("show", "1").stdout
