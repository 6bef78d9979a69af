"""`claude-mem cost` and `claude-mem compress`: what models cost, and what they make of a turn, seen from outside."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from claude_mem.config import Config
from claude_mem.curate import refine_on_demand
from claude_mem.domain.errors import OperationFailed
from tests.models.server import Answer, Say, Server, error
from tests.support.lab import Lab
from tests.support.refining import GOOD, spool_turn
from tests.support.waiting import wait_for
from tests.worker.test_backfill import Old


def settings(server: Server) -> Any:
    return {
        "CLAUDE_MEM_PROVIDER": "anthropic",
        "CLAUDE_MEM_ANTHROPIC_BASE_URL": server.url,
        "CLAUDE_MEM_ANTHROPIC_API_KEY": "key-of-the-test",
    }


def transcript(lab: Lab) -> Path:
    path = lab.folder / "one.jsonl"
    path.unlink(missing_ok=True)
    old = Old(path, "old-1", lab.project)
    old.prompt("Add a voucher field", "")
    old.call("v1", "Write", file_path=str(lab.project / "voucher.py"), content="class Voucher: ...")
    old.say("Vouchers are a module of their own now, with one class.")
    old.prompt("Where are totals rounded?", "")
    old.call("v2", "Read", file_path=str(lab.project / "total.py"))
    old.say("Totals are rounded in `total.py`, once, at the very end. " * 4)
    return old.path


def wait_refined(lab: Lab, count: int, **env: Any) -> list[dict[str, Any]]:
    def refined() -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in lab.mem("cost", "--by", "verdict", "--json", **env).stdout.splitlines()]
        return rows if sum(row["requests"] for row in rows if row["name"] != "no answer") >= count else []

    return wait_for(refined, step=0.05)


def test_a_refined_turn_shows_in_the_cost_of_day_project_model_and_session(lab: Lab) -> None:
    with Server(Say(GOOD, model="claude-haiku-4-5", input_tokens=3000, cached_tokens=1000)) as server:
        env = settings(server)
        lab.mem("start", **env)
        spool_turn(lab)
        wait_refined(lab, 1, **env)
        for by, name in (
            ("day", time.strftime("%Y-%m-%d", time.gmtime())),
            ("month", time.strftime("%Y-%m", time.gmtime())),
            ("project", "shop"),
            ("model", "anthropic claude-haiku-4-5"),
            ("session", 1),
            ("verdict", "ok"),
        ):
            (row,) = [json.loads(line) for line in lab.mem("cost", "--by", by, "--json").stdout.splitlines()]
            assert row == {
                "name": name, "requests": 1, "input_tokens": 3000, "cached_tokens": 1000, "output_tokens": 300,
                "cost": 2000 * 1 + 100 + 300 * 5, "failed": 0,
            }  # fmt: skip
        table = lab.mem("cost").stdout
        assert "$0.0036" in table
        assert "of 300,000 tokens" in table
        (session,) = [json.loads(line) for line in lab.mem("list", "sessions", "--json").stdout.splitlines()]
        assert (session["model_tokens"], session["cost"]) == (3300, 3600)
        assert (session["title"], session["subtitle"]) == ("Basket totals", "Rounding is done once")


def test_with_no_model_it_says_so(lab: Lab) -> None:
    shown = lab.mem("cost").stdout
    assert "no requests to a model in the last 30 days" in shown
    assert "off (no model configured" in shown


def test_a_key_is_shown_nowhere(lab: Lab) -> None:
    with Server(Answer(401, error("authentication_error", "invalid x-api-key: key-of-the-test"))) as server:
        env = settings(server)
        client = lab.mem("start", **env)
        spool_turn(lab)
        wait_refined(lab, 1, **env)
        shown = "".join(
            lab.mem(*words, ok=False, **env).stdout
            for words in (("config",), ("config", "--json"), ("doctor",), ("cost",), ("logs", "-n", "1000"))
        )
        shown += (
            client.stdout + json.dumps(lab.client().get("/api/settings")) + json.dumps(lab.client().get("/api/ledger"))
        )
        assert "invalid x-api-key" in shown
        assert "key-of-the-test" not in shown
        assert "(set, not shown)" in shown


def test_a_failing_provider_shows_in_doctor_and_at_the_next_start_once(lab: Lab) -> None:
    with Server(Answer(402, error("billing", "Your credit balance is too low"))) as server:
        env = settings(server)
        lab.mem("start", **env)
        spool_turn(lab)
        wait_refined(lab, 1, **env)
        doctor = lab.mem("doctor", ok=False, **env).stdout
        assert "anthropic is paused: quota" in doctor
        first = lab.hook("SessionStart", source="startup", session_id="s8")
        second = lab.hook("SessionStart", source="startup", session_id="s9")
        assert "Your credit balance is too low" in first["systemMessage"]
        assert "systemMessage" not in second
        assert lab.status()["set_aside"] == 0
        assert len(lab.mem("list", "--json").stdout.splitlines()) == 1, "it costs nobody a memory"


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(lab: Lab) -> None:
    with Server(Say(GOOD)) as server:
        shown = lab.mem("compress", "--dry-run", str(transcript(lab)), **settings(server)).stdout
        assert "whole request and reply: at most" in shown
        assert "Where are totals rounded?" in shown
        assert "1. Read: total.py" in shown
        assert "written without a model" in shown
        assert server.requests == []
        first = lab.mem("compress", "--dry-run", "--turn", "1", "--json", str(transcript(lab))).stdout
        found = json.loads(first)
        assert found["prompt"] == "Add a voucher field"
        assert found["request"]["tokens_at_most"] <= 8000
        assert found["local"]["observations"][0]["files_modified"] == ["voucher.py"]


def _shown_of(lab: Lab, path: Path, turn: int = 1) -> str:
    return lab.mem("compress", "--dry-run", "--turn", str(turn), "--json", str(path)).stdout


def test_what_a_capture_rule_excludes_is_not_sent(lab: Lab) -> None:
    path = transcript(lab)
    assert "Write: voucher.py" in _shown_of(lab, path)
    (lab.project / ".claude-mem.toml").write_text('skip_tools = ["Write"]\n')
    assert "Write: voucher.py" not in _shown_of(lab, path)
    excluding = Config(excluded_projects=(str(lab.project),))
    with pytest.raises(OperationFailed, match="switched off"):
        refine_on_demand.read_transcript(path, excluding)
    (lab.project / ".claude-mem.toml").write_text("enabled = false\n")
    done = lab.mem("compress", "--dry-run", str(path), ok=False)
    assert done.returncode == 1
    assert "memory is switched off" in done.stderr
    assert "voucher" not in done.stdout


def test_a_private_turn_is_not_sent_although_only_its_end_says_so(lab: Lab) -> None:
    path = lab.folder / "two.jsonl"
    old = Old(path, "old-2", lab.project)
    old.prompt("Add a voucher field", "p1")
    old.call("v1", "Write", prompt="p1", file_path=str(lab.project / "voucher.py"), content="class Voucher: ...")
    old.prompt("Where are totals rounded?", "p2")
    old.call("v2", "Read", prompt="p2", file_path=str(lab.project / "total.py"))
    old.prompt("<private>about vouchers</private>", "p1")
    shown = _shown_of(lab, path)
    assert "Where are totals rounded?" in shown
    assert "oucher" not in shown


def test_compressing_a_session_shows_both_side_by_side_and_keeps_nothing(lab: Lab) -> None:
    with Server(Say(GOOD, model="claude-haiku-4-5")) as server:
        env = settings(server)
        lab.mem("start")
        spool_turn(lab)
        lab.wait_digested()
        before = lab.mem("list", "--json").stdout
        lab.mem("restart", **env)
        found = json.loads(lab.mem("compress", "1", "--provider", "anthropic", "--json").stdout)
        assert found["verdict"] == "ok"
        assert found["refined"]["observations"][0]["title"] == "Basket totals are rounded once, at the end"
        assert found["local"]["observations"][0]["title"] != found["refined"]["observations"][0]["title"]
        shown = lab.mem("compress", "s1", "--provider", "anthropic").stdout
        assert "without a model" in shown
        assert "Basket totals are rounded once" in shown
        assert lab.mem("list", "--json").stdout == before
        (row,) = [json.loads(line) for line in lab.mem("cost", "--json").stdout.splitlines()]
        assert row["requests"] == 2, "it is booked like any other request"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compress", "77"), "no session '77'"),
        (("compress", "/etc/hostname"), "not a known transcript"),
        (("compress", "--provider", "nobody", "{transcript}"), "no provider 'nobody'"),
        (("compress", "--turn", "9", "--dry-run", "{transcript}"), "no turn 9"),
        (("compress", "{transcript}"), "no model is configured"),
    ],
)
def test_what_cannot_be_tried_says_why(lab: Lab, words: tuple[str, ...], says: str) -> None:
    given = [word.replace("{transcript}", str(transcript(lab))) for word in words]
    done = lab.mem(*given, ok=False)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "hint:" in done.stderr


def test_a_failed_try_says_what_the_provider_said(lab: Lab) -> None:
    with Server(Answer(404, error("not_found_error", "model: claude-none"))) as server:
        lab.start(**settings(server))
        done = lab.mem("compress", str(transcript(lab)), ok=False)
        assert done.returncode == 1
        assert "permanent" in done.stdout
        assert "model: claude-none" in done.stdout
        assert "the draft is kept" in done.stdout


# --- old sessions ----------------------------------------------------------------------------------------------------


def test_old_sessions_are_sent_to_a_model_only_after_someone_has_agreed(lab: Lab) -> None:
    path = str(transcript(lab))
    none = lab.mem("backfill", path, "--refine", ok=False)
    assert (none.returncode, "no model is configured" in none.stderr) == (1, True)
    with Server(Say(GOOD, model="claude-haiku-4-5")) as server:
        env = settings(server)
        lab.mem("restart", **env)
        asked = lab.mem("backfill", path, "--refine", ok=False, **env)
        assert asked.returncode == 1
        assert "2 turns: at most" in asked.stderr
        assert "$0.0" in asked.stderr
        assert "nothing was sent" in asked.stderr
        assert server.asked == []
        agreed = lab.mem("backfill", path, "--refine", "--yes", **env)
        assert "refining 2 turns" in agreed.stderr
        wait_refined(lab, 2, **env)
        assert len(server.asked) == 2
