"""A session as a story: what it was told, what it did, what failed and was mended; and what is happening now."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claude_mem.config import load
from claude_mem.digest.uses import fetched_names
from claude_mem.domain.records import Job, ToolUsed
from claude_mem.storage.sqlite.journal import jobs, turns
from claude_mem.storage.sqlite.journal.store import Journal
from claude_mem.worker.app import Service
from tests.support.desk import Desk
from tests.support.lab import Lab

SECRET = "hushhush"


@pytest.fixture
def desk(lab: Lab) -> Iterator[Desk]:
    async def build() -> Service:
        return Service(load(lab.env()))

    service = asyncio.run(build())
    yield Desk(lab, service)
    service.close()


def told_session(desk: Desk) -> int:
    """A session that was told something at every moment, and used some of it. Its number."""
    desk.work("a", "Basket totals are rounded once, at the very end, because rounding each line added up to a cent.")
    desk.lab.spool("SessionStart", session_id="b", source="startup")
    assert "rounded once" in desk.say("SessionStart", source="startup")
    desk.work("c", "Vouchers are taken off before the rounding of the basket total, as the shop wants it.")
    path = f"{desk.lab.project}/src/basket.py"
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).touch()  # files that are gone are not named
    desk.prompt("Why is the rounding of the basket total done at the end?")
    assert "src/basket.py" in desk.say(
        "UserPromptSubmit", prompt="Why is the rounding of the basket total done at the end?"
    )
    assert desk.say("PreToolUse", tool_name="Read", tool_input={"file_path": path})
    desk.tool("Read", {"file_path": path}, "text")
    desk.stop("It is done at the end because of the cents.")
    desk.lab.spool("SessionEnd", session_id="b", reason="other")
    desk.digest()
    (row,) = [row for row in desk.get("/api/sessions")["items"] if row["content_session_id"] == "b"]
    return int(row["id"])


def test_a_session_is_told_with_what_it_was_told_and_whether_it_helped(desk: Desk) -> None:
    found = desk.story(told_session(desk))
    (start,) = found["told_at_start"]
    assert (start["moment"], start["about"]) == ("start", "")
    assert start["tokens"] > 50
    titles = [item["title"] for item in start["items"] if item["kind"] == "observation"]
    assert any("rounded once" in title for title in titles), titles
    assert {item["used"] for item in start["items"] if item["kind"] == "observation"} == {True}, "its file was read"
    (turn,) = found["turns"]
    said = {telling["moment"]: telling for telling in turn["told"]}
    assert said["prompt"]["items"][0] | {"used": True, "how": "opened"} == said["prompt"]["items"][0]
    assert said["prompt"]["items"][0]["path"] == "src/basket.py"
    assert said["file"]["about"] == "src/basket.py"
    assert {(item["used"], item["how"]) for item in said["file"]["items"]} == {(False, "")}, "it was opened anyway"
    assert turn["prompt"]["text"].startswith("Why is the rounding")
    assert turn["files"] == [{"path": "src/basket.py", "edited": 0, "read": 1}]
    assert turn["summary"]["request"].startswith("Why is the rounding")
    assert found["session"]["counts"] | {"turns": 1, "private": 0} == found["session"]["counts"]
    assert found["outline"][0]["text"] == turn["prompt"]["text"]


def test_what_was_told_and_not_used_is_so_only_if_that_is_known(desk: Desk) -> None:
    desk.work("a", "Basket totals are rounded once, at the very end, because rounding each line added up to a cent.")
    desk.lab.spool("SessionStart", session_id="b", source="startup")
    desk.say("SessionStart", source="startup")
    desk.prompt("Write the readme of the shop, please")
    desk.tool("Write", {"file_path": f"{desk.lab.project}/README.md", "content": "# Shop"}, {})
    desk.stop("The readme is written.")
    desk.digest()

    def uses() -> set[tuple[bool | None, str]]:
        return {(item["used"], item["how"]) for item in desk.story(2)["told_at_start"][0]["items"]}

    assert uses() == {(None, "")}, "it goes on, and may yet"
    desk.lab.spool("SessionEnd", session_id="b", reason="other")
    desk.digest()
    assert uses() == {(False, "")}
    ids = [item["id"] for item in desk.story(2)["told_at_start"][0]["items"] if item["kind"] == "observation"]
    desk.prompt("What did it say about rounding?")
    desk.tool("mcp__mem__get_observations", {"ids": ids}, "…")
    desk.stop("That it is done once.")
    desk.lab.spool("SessionEnd", session_id="b", reason="other")
    desk.digest()
    assert (True, "fetched") in uses()
    assert desk.story(2, limit=1)["told_at_start"] == desk.story(2)["told_at_start"], "by turns beyond the page too"


@pytest.mark.parametrize(
    ("tool", "given", "names"),
    [
        ("mcp__mem__get_observations", {"ids": [12, "S3", "#4", "x"]}, ["o12", "s3", "o4"]),
        (
            "Bash",
            {"command": "cd x && claude-mem show 12 S3 --json && claude-mem show 7 | head -5"},
            ["o12", "s3", "o7"],
        ),
        ("Bash", {"command": "echo claude-mem"}, []),
        ("get_observations", {"ids": "12"}, []),
    ],
)
def test_what_a_tool_call_fetched(tool: str, given: Any, names: list[str]) -> None:
    assert list(fetched_names(ToolUsed(tool, given))) == names
    assert list(fetched_names(ToolUsed(tool, given, failed=True))) == []


def test_what_is_forgotten_leaves_no_words_in_what_was_told(desk: Desk) -> None:
    session = told_session(desk)
    for item in desk.get("/api/observations")["items"]:
        assert desk.http.delete(f"/api/observation/{item['id']}").status_code == 200
    items = desk.story(session)["told_at_start"][0]["items"]
    forgotten = [item for item in items if item["kind"] == "observation"]
    assert forgotten
    assert {(item["id"], item["title"], item["used"]) for item in forgotten} == {(None, "(forgotten)", None)}
    kept = desk.db.read_now(lambda conn: list(conn.execute("select names from injections")))
    assert all("rounded" not in row["names"] for row in kept)


def test_nothing_is_kept_of_a_private_turn(desk: Desk) -> None:
    desk.work("a", "Basket totals are rounded once, at the very end, because rounding each line added up to a cent.")
    desk.lab.spool("SessionStart", session_id="b", source="startup")
    desk.say("SessionStart", source="startup")
    desk.work("c", "Vouchers are taken off before the rounding of the basket total, as the shop wants it.")
    path = f"{desk.lab.project}/src/basket.py"
    desk.prompt("", header="private yes\n", prompt_id="p1")
    assert desk.say("PreToolUse", tool_name="Read", tool_input={"file_path": path})
    assert len(notes(desk)) == 2, "noted before anyone knew that it is private"
    desk.tool("Bash", {"command": f"cat {SECRET}"}, SECRET, prompt_id="p1")
    desk.digest()
    assert len(notes(desk)) == 1
    assert desk.say("SessionStart", source="compact")
    desk.stop(SECRET, prompt_id="p1")
    desk.digest()
    assert len(notes(desk)) == 1, "nor afterwards"
    found = desk.story(2)
    (turn,) = found["turns"]
    assert turn["private"]
    assert turn.keys() & {"prompt", "summary", "observations", "files", "failures"} == set()
    assert (turn["told"], len(found["told_at_start"])) == ([], 1)
    assert SECRET not in json.dumps(found) + json.dumps(desk.get("/api/now"))
    assert desk.get("/api/session/2/events", turn=1)["items"] == []


def notes(desk: Desk) -> list[Any]:
    return desk.db.read_now(lambda conn: list(conn.execute("select * from injections where content_session_id = 'b'")))


def test_a_turn_that_turns_out_to_be_private_takes_what_it_was_told_with_it(desk: Desk) -> None:
    session = told_session(desk)
    assert desk.story(session)["turns"][0]["told"]
    turn_id = desk.story(session)["turns"][0]["id"]
    assert len(notes(desk)) > 1
    desk.db.write_now(turns.make_turn_private, turn_id)
    assert [row["trigger"] for row in notes(desk)] == ["start"]
    found = desk.story(session)
    assert found["turns"][0]["told"] == []
    assert found["told_at_start"], "what came before it is not private"
    assert {item["used"] for item in found["told_at_start"][0]["items"]} == {None}, "now nobody can know"
    assert found["outline"][0]["text"] is None


def test_what_could_not_be_noted_is_told_all_the_same_and_logged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.work("a", "Basket totals are rounded once, at the very end, because rounding each line added up to a cent.")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Journal, "add_injection_record", fail)
    assert "rounded once" in desk.say("SessionStart", source="startup")
    assert "an injection could not be recorded" in caplog.text


def test_failures_and_what_mended_them(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(time.time_ns(), 1000)
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks))  # all of it in the same millisecond, or nearly
    desk.prompt("Make the checks pass")
    desk.bash("mypy src", error="src/a.py:3: error: Name 'x' is not defined")
    desk.bash("make build", error="make: error: no rule to make target")
    desk.bash("cargo test", error="error[E0432]: unresolved import")
    desk.bash("cd /x && mypy src 2>&1 | tail -3", "Success")
    desk.bash("git commit -m 'Name x'", "[main abc1234] Name x\n 1 file changed")
    desk.stop("Typed.")
    desk.prompt("And the build")
    desk.bash("make build", "done")
    desk.stop("Built.")
    desk.digest()
    for limit in (1, 20):
        turn = desk.story(1, limit=limit)["turns"][0]
        fixed = {item["command"]: item["fixed"] and item["fixed"]["turn"] for item in turn["failures"]}
        assert fixed == {"mypy src": 1, "make build": 2, "cargo test": None}
        assert turn["failures"][0]["error"] == "src/a.py:3: error: Name 'x' is not defined"
        assert turn["commits"] == [{"id": "abc1234", "subject": "Name x", "branch": "main"}]


def test_turns_and_events_come_in_pages_in_the_order_of_time(desk: Desk) -> None:
    began = int(time.time() * 1000) - 1_000_000
    for number in range(5):
        at = began + number * 10_000
        desk.prompt(f"Step {number}", at=at)
        desk.bash(f"echo {number}", str(number), at=at + 1000)
        desk.stop(f"Step {number} is done.", at=at + 2000)
    desk.digest()
    first, second = desk.story(1, limit=3), desk.story(1, limit=3, **{"from": 3})
    assert [turn["prompt"]["text"] for turn in first["turns"]] == ["Step 0", "Step 1", "Step 2"]
    assert (first["hasMore"], second["hasMore"]) == (True, False)
    assert [turn["number"] for turn in second["turns"]] == [4, 5]
    assert len(first["outline"]) == 5
    assert "outline" not in second
    page = desk.get("/api/session/1/events", turn=2, limit=2)
    assert [event["kind"] for event in page["items"]] == ["prompt", "tool"]
    assert page["items"][1]["body"]["input"] == {"command": "echo 1"}
    assert page["hasMore"]
    assert [e["kind"] for e in desk.get("/api/session/1/events", turn=2, limit=2, **{"from": 2})["items"]] == ["stop"]
    assert len(desk.get("/api/session/1/events", limit=200)["items"]) == 15


def test_one_damaged_event_does_not_cost_the_story(desk: Desk) -> None:
    desk.prompt("Make the checks pass")
    desk.bash("mypy src", "Success")
    desk.bash("git commit -m 'Name x'", "[main abc1234] Name x")
    desk.stop("Done.")
    desk.digest()
    desk.db.write_now(lambda conn: conn.execute("update events set body = '{\"claude-mem show' where seq = 2") and None)
    turn = desk.story(1)["turns"][0]
    assert (turn["events"], turn["commits"][0]["id"]) == (4, "abc1234")
    assert desk.get("/api/session/1/events")["items"][1]["body"]["type"] == "damaged"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/session/9/story", 404),
        ("/api/session/x/story", 400),
        ("/api/session/1/story?limit=51", 400),
        ("/api/session/1/story?from=-1", 400),
        ("/api/session/9/events", 404),
        ("/api/session/1/events?turn=7", 404),
        ("/api/session/1/events?limit=0", 400),
        ("/api/sessions?project_id=x", 400),
    ],
)
def test_what_makes_no_sense_is_said_to(desk: Desk, path: str, status: int) -> None:
    desk.prompt("Hello there")
    desk.digest()
    answer = desk.http.get(path)
    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)


def test_the_list_of_sessions_by_project_and_agent(desk: Desk) -> None:
    desk.prompt("One here", "x")
    desk.lab.raw_spool(b"command new\nhost codex\n\n" + json.dumps({
        "session_id": "y", "hook_event_name": "UserPromptSubmit", "prompt": "One there", "cwd": "/nowhere/blog"
    }).encode())  # fmt: skip
    desk.digest()
    both = desk.get("/api/sessions")["items"]
    ids = {row["host"]: (row["id"], row["project_id"], row["project"]) for row in both}
    assert len(both) == 2
    for given in ({"host": "codex"}, {"project_id": ids["codex"][1]}, {"project": ids["codex"][2]}):
        assert [row["id"] for row in desk.get("/api/sessions", **given)["items"]] == [ids["codex"][0]], given
    assert desk.get("/api/sessions", host="codex", project_id=ids["claude"][1])["items"] == []
    assert desk.get("/api/sessions", project="nothing")["items"] == []


def test_what_is_happening_now(desk: Desk) -> None:
    desk.prompt("Fix the basket")
    desk.bash("pytest -q", "4 passed")
    asyncio.run(desk.service.drain_once())
    found = desk.get("/api/now")
    (session,) = found["sessions"]
    assert session | {"turn": 1, "open": True, "private": False, "title": "Fix the basket"} == session
    assert session["last_event"] | {"kind": "tool", "tool": "Bash"} == session["last_event"]
    assert (found["working"], found["queue"]["kinds"], found["backfill"]) == ([], [], None)
    desk.stop("Fixed.")
    assert desk.get("/api/now")["spool"] == 1
    asyncio.run(desk.service.drain_once())
    assert desk.get("/api/now")["queue"]["kinds"] == [{"kind": "reconcile", "waiting": 1, "retrying": 0, "dead": 0}]
    desk.service.refine_runner.job = Job(1, "refine", "1.2", 1)
    desk.db.write_now(jobs.enqueue_job, "compress", "1.9", now=0)
    desk.db.write_now(jobs.release_failed_job, Job(2, "compress", "1.9", 0), error="KeyError: x", now=0)
    found = desk.get("/api/now")
    desk.service.refine_runner.job = None
    (working,) = found["working"]
    assert working == {"kind": "refine", "attempts": 1, "session_id": 1, "turn": 1, "title": "Fix the basket"}
    assert found["queue"] | {"waiting": 1, "retrying": 1, "dead": 0, "running": 1} == found["queue"]
    assert [row["error"] for row in found["troubles"]] == ["KeyError: x"]


def test_a_lane_says_what_it_is_at_while_it_is_at_it(desk: Desk) -> None:
    seen: list[Any] = []
    digest = desk.service.runner.stages["compress"]

    async def watched(job: Job) -> Any:
        seen.append((job, list(desk.service.running_jobs)))
        return await digest(job)

    desk.service.runner.stages = {**desk.service.runner.stages, "compress": watched}
    desk.prompt("Fix the basket")
    desk.bash("pytest -q", "4 passed")
    desk.stop("The basket is fixed now, and every test passes.")
    desk.digest()
    assert seen
    assert all(at_work == [job] for job, at_work in seen)
    assert desk.service.running_jobs == []
