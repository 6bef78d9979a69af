"""What is told about the worker's health adds up, and what can be done about it is done."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.records import Digest, Turn
from claude_mem.storage.journal_records import BACKFILL_JOB, IMPORT_JOB, LedgerEntry
from claude_mem.storage.sqlite.journal import imports, job_details, jobs, ledger
from claude_mem.system.spool import Spool
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import build_app
from claude_mem.worker.http.routes import health
from claude_mem.worker.http.routes.health import LogFilter, parse_entries, percentiles, read_entries
from claude_mem.worker.http.schemas.health import Health, LogPage
from tests.support.lab import Lab

TOKEN, PORT = "t" * 43, 37777


class Broken:
    name = "broken"

    async def compress(self, turn: Turn) -> Digest:
        raise RuntimeError("no words")


@pytest.fixture
def service(config: Config, lab: Lab) -> Any:
    """A turn that could not be digested, an event that could not be read, and one that nobody wanted."""

    async def build() -> Service:
        service = Service(config, compressor=Broken())
        lab.spool("UserPromptSubmit", prompt="Where is the total?", prompt_id="p1")
        lab.spool("PostToolUse", tool_name="TodoWrite", tool_input={}, tool_use_id="t")
        lab.raw_spool(b"rubbish")
        lab.spool("Stop", prompt_id="p1")
        for _ in range(3):
            await service.run_until_idle()
        return service

    service = asyncio.run(build())
    yield service
    service.close()


class Http:
    def __init__(self, service: Service) -> None:
        app = build_app(service, token=TOKEN, port=PORT)
        self.client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers={"Authorization": f"Bearer {TOKEN}"})

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(path, params=query).json()

    def ask(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        answer = self.client.request(method, path, json=body)
        return answer.status_code, answer.json()

    def page(self) -> Any:
        found = self.get("/api/health/page")
        account = found["account"]
        assert account["adds_up"] is True
        assert account["captured"] == sum(account[name] for name in ("stored", "queued", "set_aside", "filtered"))
        assert account["set_aside"] == sum(account["set_aside_by"].values())
        assert account["filtered"] == sum(account["filtered_by"].values())
        return found


@pytest.fixture
def http(service: Service) -> Http:
    return Http(service)


def test_the_page_tells_where_every_event_is_and_what_is_wrong(http: Http, service: Service) -> None:
    found = http.page()
    assert found["account"]["filtered_by"] == {"skip_tool": 1}
    assert found["account"]["set_aside_by"] == {"garbage": 1, "dead_job": 2}
    (job,) = found["jobs"]
    assert job["about"] == "digest turn 1 of “Where is the total?” (shop)"
    assert (job["dead"], job["attempts"], job["error"]) == (True, 3, "RuntimeError: no words")
    assert job["session_id"] == 1
    assert [(row["reason"], row["size"]) for row in found["aside"]["newest"]] == [("garbage", 7)]
    assert found["aside"]["count"] == 1
    assert [row["level"] for row in found["concerns"]] == ["bad", "warn"]
    assert "1 job failed three times" in found["concerns"][0]["text"]
    assert found["disk"]["parts"]["database"] == service.db.path.stat().st_size
    assert found["disk"]["all"] == sum(found["disk"]["parts"].values())
    assert found["process"]["memory"] > 10 << 20
    assert found["backup"] == {"count": 0, "size": 0, "newest": None, "drills": {}, "last": None}
    assert found["refining"]["providers"] == []


def test_a_job_that_was_given_up_gets_another_try_and_then_all_is_well(http: Http, service: Service) -> None:
    job = http.page()["jobs"][0]["id"]
    assert http.ask("POST", f"/api/queue/{job}/retry") == (200, {"retried": job})
    found = http.page()
    assert (found["queue"]["waiting"], found["queue"]["dead"]) == (1, 0)
    assert found["account"]["queued"] == 2
    status, said = http.ask("POST", f"/api/queue/{job}/retry")
    assert (status, said["error"]) == (400, f"job {job} is not a dead letter")
    assert http.ask("DELETE", f"/api/queue/{job}")[0] == 400, "it is only dropped when it was given up"
    assert http.ask("POST", "/api/queue/999/retry")[0] == 404
    assert http.ask("DELETE", "/api/queue/999")[0] == 404


def test_a_dropped_turn_is_waited_for_by_nobody_and_the_account_adds_up(http: Http, service: Service, lab: Lab) -> None:
    job = http.page()["jobs"][0]
    assert "No memory is made" in job["dropping"]
    status, said = http.ask("DELETE", f"/api/queue/{job['id']}")
    assert (status, said["means"]) == (200, job["dropping"])
    found = http.page()
    assert found["jobs"] == []
    assert (found["account"]["stored"], found["account"]["set_aside_by"]) == (2, {"garbage": 1})
    asyncio.run(service.run_until_idle())
    assert http.page()["jobs"] == [], "nor does it come back by itself"


@pytest.mark.parametrize("kind", [*job_details.DROP_CONSEQUENCES, BACKFILL_JOB, "unheard of"])
def test_every_kind_of_job_can_be_told_and_dropping_it_is_honest(http: Http, service: Service, kind: str) -> None:
    service.db.write_now(lambda conn: conn.execute("delete from jobs"))
    if kind == IMPORT_JOB:
        service.db.write_now(
            imports.create_import, Path(__file__), source="export", project="", untrusted=False, dry_run=False, now=1
        )
        service.db.write_now(lambda conn: conn.execute("delete from jobs"))
    service.db.write_now(jobs.enqueue_job, kind, "1.1", now=1)
    service.db.write_now(lambda conn: conn.execute("update jobs set dead = 1, attempts = 3, error = 'no'"))
    (job,) = http.page()["jobs"]
    assert job["about"]
    status, said = http.ask("DELETE", f"/api/queue/{job['id']}")
    if kind not in job_details.DROP_CONSEQUENCES:
        assert (status, job["dropping"]) == (400, "")
        assert http.page()["jobs"] != []
        return
    assert (status, said["means"]) == (200, job["dropping"])
    found = http.page()
    if kind == "reconcile":
        assert [row["kind"] for row in found["jobs"]] == ["compress"], "the turn is digested without its transcript"
        assert found["account"]["queued"] == 2
    else:
        assert found["jobs"] == []
    if kind == IMPORT_JOB:
        assert service.db.read_now(imports.get_import, 1).error == "dropped: no"


def test_a_job_about_what_is_gone_is_still_told(http: Http, service: Service) -> None:
    for kind in (*job_details.DROP_CONSEQUENCES, BACKFILL_JOB):
        service.db.write_now(jobs.enqueue_job, kind, "77.1", now=1)
    about = {row["kind"]: row["about"] for row in http.page()["jobs"] if not row["dead"]}
    assert all("deleted" in text for text in about.values())
    assert len(about) == len(job_details.DROP_CONSEQUENCES) + 1


def test_a_backup_is_made_shown_and_checked(http: Http, service: Service) -> None:
    made = http.ask("POST", "/api/backup")[1]
    newest = http.page()["backup"]["newest"]
    assert (newest["size"], http.page()["backup"]["count"]) == (made["size"], 1)
    assert Path(made["path"]).name == newest["name"]
    status, checked = http.ask("POST", "/api/backup/check", name=newest["name"])
    assert (status, checked["counts"]["events"]) == (200, 2)
    for name in ("../claude-mem.db", "/etc/passwd", "none.db"):
        assert http.ask("POST", "/api/backup/check", name=name)[0] == 404
    Path(made["path"]).write_bytes(b"not a database at all")
    assert http.ask("POST", "/api/backup/check", name=newest["name"])[0] == 409


# --- how long things take --------------------------------------------------------------------------------------------


def test_percentiles_are_times_that_were_measured() -> None:
    def measured(milliseconds: Iterable[float]) -> tuple[float | None, ...]:
        times = percentiles(milliseconds)
        return times.count, times.p50, times.p95, times.p99

    assert measured([]) == (0, None, None, None)
    assert measured([7]) == (1, 7, 7, 7)
    assert measured(range(1, 101)) == (100, 50, 95, 99)
    assert measured(range(1, 21)) == (20, 10, 19, 20)


def test_a_hooks_time_is_measured_from_its_name_to_its_rename(lab: Lab) -> None:
    lab.no_worker()
    begun = time.time_ns()
    lab.hook("UserPromptSubmit", prompt="go", prompt_id="p1")
    whole = (time.time_ns() - begun) / 1e6
    spool = Spool(lab.data / "spool", lab.data / "aside")
    lab.spool("Stop", prompt_id="p1", at=ids.now_ms() - 3_600_000)
    spool.put({"command": "save", "source": "api"}, b"{}")
    lab.raw_spool(b"command save\n\n{}", at=ids.now_ms() + 5_000)
    for name in spool.pending():
        spool.load(name)
    hook, ahead = spool.delays
    assert 0 <= hook < whole, "neither an old copy nor what came by HTTP is a hook's doing"
    assert ahead == 0


def test_answers_are_timed_by_moment(http: Http, lab: Lab) -> None:
    for path, event in (("inject", "SessionStart"), ("prompt", "UserPromptSubmit"), ("file", "PreToolUse")):
        body = {
            "session_id": "s2",
            "hook_event_name": event,
            "cwd": str(lab.project),
            "prompt": "total",
            "source": "startup",
        }
        command = {"inject": "context", "prompt": "new", "file": "file"}[path]
        record = f"command {command}\nhost claude\nproject_dir {lab.project}\n\n{json.dumps(body)}"
        assert http.client.post(f"/api/context/{path}", content=record).status_code == 200
    assert http.client.post("/api/context/failure", content=b"rubbish").status_code == 400
    times = {row["name"]: row for row in http.page()["times"]}
    assert {name: row["count"] for name, row in times.items()} == {
        "hook": 3, "start": 1, "prompt": 1, "file": 1, "failure": 0,
    }  # fmt: skip
    assert times["start"]["p50"] > 0
    assert all(row["what"] for row in times.values())


# --- what is wrong ---------------------------------------------------------------------------------------------------


def test_each_concern_has_words(http: Http) -> None:
    found = http.page()
    found["account"]["adds_up"] = False
    found["disk"]["free"] = 0
    found["settings"] = ["silence_minutes = 0 is out of range"]
    found["refining"]["paused"] = [
        {"provider": "anthropic", "failures": 1, "until": found["at"] + 1, "verdict": "quota", "message": "no credit"},
        {"provider": "openai", "failures": 1, "until": found["at"] - 1, "verdict": "auth", "message": "over"},
    ]
    found["refining"]["prices_problem"] = "prices.toml is not TOML"
    found["refining"]["problem"] = "Claude Code is not logged in"
    said = [row.text for row in health.health_issues(msgspec.convert(found, Health))]
    for words in (
        "add up",
        "failed three times",
        "nearly full",
        "1 event could not be read this week and was set aside (garbage)",
        "silence_minutes",
        "no credit",
        "No model refines memories: Claude Code is not logged in.",
        "prices",
    ):
        assert any(words in text for text in said), words
    assert len(said) == 8
    found["aside"]["newest"][0]["at"] -= 8 * 86_400_000
    assert len(list(health.health_issues(msgspec.convert(found, Health)))) == 7, "what was long ago is no news"


# --- cost ------------------------------------------------------------------------------------------------------------


def test_cost_comes_day_by_day_and_by_model_or_project(http: Http, service: Service) -> None:
    now = ids.now_ms()
    for days, model, cost in ((0, "small", 10), (0, "large", 200), (2, "small", 30), (40, "small", 1)):
        entry = LedgerEntry(
            purpose="refine", session_id=1, turn_id=1, project_id=1, provider="anthropic", model=model,
            input_tokens=1000, output_tokens=100, cost=cost,
        )  # fmt: skip
        service.db.write_now(ledger.open_ledger_entry, entry, now=now - days * 86_400_000)
    found = http.get("/api/cost/days", days=7)
    assert len(found["days"]) == 7
    assert found["days"][-1] == f"{datetime.now():%Y-%m-%d}"
    shown = [(found["days"].index(row["day"]), row["name"], row["cost"]) for row in found["items"]]
    assert shown == [(4, "anthropic small", 30), (6, "anthropic large", 200), (6, "anthropic small", 10)]
    assert found["daily_tokens"] == 300_000
    (first, second) = http.get("/api/cost/days", days=7, by="project")["items"]
    assert (second["name"], second["id"], second["requests"], second["input_tokens"]) == ("shop", 1, 2, 2000)
    assert first["day"] < second["day"]
    assert http.ask("GET", "/api/cost/days?by=colour")[0] == 400


# --- logs ------------------------------------------------------------------------------------------------------------

LOG = """2026-03-01 10:00:00,001 INFO claude_mem.worker.serve: worker starts
2026-03-01 10:00:01,250 ERROR claude_mem.worker.runner: compress 1.2 failed
Traceback (most recent call last):
  File "x.py", line 1, in <module>
ValueError: not today

2026-03-01 10:00:01,250 DEBUG claude_mem.digest.refine: nothing
2026-03-01 10:00:02,000 WARNING claude_mem.worker.serve: port 1 is taken
"""


def test_a_traceback_stays_with_its_entry() -> None:
    found = list(parse_entries("the end of something older\n" + LOG))[::-1]
    assert [entry.level for entry in found] == ["INFO", "ERROR", "DEBUG", "WARNING"]
    assert found[1].message.startswith("compress 1.2 failed\nTraceback")
    assert found[1].message.endswith("ValueError: not today")
    assert found[1].at - found[0].at == 1249
    assert (found[3].logger, found[3].message) == ("claude_mem.worker.serve", "port 1 is taken")
    assert [*parse_entries(""), *parse_entries("no entry\nat all")] == []


def test_the_log_is_filtered_paged_and_read_on_into_older_files(tmp_path: Path) -> None:
    file = tmp_path / "worker.log"
    file.write_text(LOG)
    (tmp_path / "worker.log.1").write_text(LOG.replace("03-01", "02-02"))
    (tmp_path / "worker.log.10").write_text(LOG.replace("03-01", "01-01"))
    (tmp_path / "worker.log.2").write_text(LOG.replace("03-01", "02-01"))
    whole = read_entries(file, LogFilter(), 100)
    assert [entry.at for entry in whole.items] == sorted((e.at for e in whole.items), reverse=True)
    assert (len(whole.items), whole.has_more) == (16, False)
    assert "\n".join(whole.lines[-7:]) == "\n".join(line for line in LOG.splitlines() if line)
    first = read_entries(file, LogFilter(), 2)
    assert (len(first.items), first.has_more) == (3, True), "two of the same instant are not torn apart"
    second = read_entries(file, LogFilter(before=first.items[-1].at), 2)
    assert second.items[0].message == "worker starts"
    assert [entry.level for entry in read_entries(file, LogFilter(level="ERROR"), 9).items] == ["ERROR"] * 4
    assert len(read_entries(file, LogFilter(text="not today"), 9).items) == 4
    assert len(read_entries(file, LogFilter(text="worker.serve"), 9).items) == 8
    assert read_entries(tmp_path / "none.log", LogFilter(), 9) == LogPage(lines=[], items=[], has_more=False)


def test_the_log_answers_over_http(http: Http, service: Service) -> None:
    file = service.config.log_file
    file.parent.mkdir()
    file.write_text(LOG)
    found = http.get("/api/logs", level="warning", lines=1)
    assert [entry["message"] for entry in found["items"]] == ["port 1 is taken"]
    assert found["hasMore"] is True
    assert len(http.get("/api/logs", before=found["items"][0]["at"])["items"]) == 3
    assert http.ask("GET", "/api/logs?level=LOUD")[0] == 400
    assert http.ask("GET", "/api/logs?before=soon")[0] == 400
