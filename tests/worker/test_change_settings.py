"""Settings over HTTP: seen without secrets, changed altogether or not at all, and counting without a new process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claude_mem.client import Client
from claude_mem.config import list_setting_names
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, OperationFailed
from claude_mem.system import config_file, process
from claude_mem.system.spool import Spool
from claude_mem.worker.stream import Stream
from tests.support.lab import MEM, Lab
from tests.support.waiting import SECONDS, wait_for

THEIRS = "# mine\nlog_level = 'DEBUG'  # for now\n\ncontext_tokens = 900\n"


def opened_anew(client: Client, before: int) -> dict[str, Any]:
    """The worker as soon as it has opened anew. It is never refused meanwhile: calls wait."""

    def opened() -> dict[str, Any]:
        found: dict[str, Any] = client.get("/api/health")
        return found if found["started_at"] != before else {}

    return wait_for(opened, "it has not opened anew")


@pytest.fixture
def file(lab: Lab) -> Path:
    lab.data.mkdir(parents=True, exist_ok=True)
    path = lab.data / "config.toml"
    path.write_text(THEIRS)
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One worker for all refusals: they leave no trace."""
    lab = Lab(tmp_path_factory.mktemp("settings"))
    lab.start()
    yield lab
    lab.close()


def test_everything_about_each_setting_is_told_but_its_secret(lab: Lab, file: Path) -> None:
    client = lab.start()
    file.write_text(
        THEIRS + 'anthropic_api_key = "hush-hush"\ngemini_api_key = "file:~/key"\nproxy = "http://me:hush@host:1"\n'
        'silence_minutes = 0\nmode = ""\n'
    )
    found = client.get("/api/settings")
    assert list(found) == list_setting_names()
    assert "hush" not in str(found)
    tokens = {name: found["context_tokens"][name] for name in ("current", "source", "default", "kind", "low", "high")}
    assert tokens == {
        "current": 900,
        "source": "file",
        "default": 800,
        "kind": "whole number",
        "low": 300,
        "high": 2000,
    }
    assert found["provider"]["fixed"].startswith("CLAUDE_MEM_PROVIDER")
    assert found["provider"]["source"] == "environment"
    assert found["data_dir"]["fixed"]
    assert found["context_tokens"]["fixed"] == ""
    assert (found["anthropic_api_key"]["set"], found["anthropic_api_key"]["kind"]) == (True, "secret")
    assert found["gemini_api_key"]["current"] == "file:~/key"
    assert found["openai_api_key"]["set"] is False
    assert found["proxy"]["current"] == "http://…@host:1"
    assert found["log_level"]["choices"] == ["DEBUG", "INFO", "WARNING", "ERROR"]
    assert "silence_minutes = 0 is out of range" in found["silence_minutes"]["problem"]
    assert (found["silence_minutes"]["current"], found["silence_minutes"]["source"]) == (10, "default")
    kinds = {row["kind"] for row in found.values()}
    assert kinds == {"switch", "whole number", "number", "choice", "list", "text", "secret"}


def test_a_change_counts_in_the_same_process_under_the_same_address(lab: Lab, file: Path) -> None:
    client = lab.start()
    first = client.get("/api/health")
    done = client.patch("/api/settings", {"context_tokens": 1200, "skip_tools": ["Bash"], "log_level": None})
    assert done == {
        "changed": ["context_tokens", "skip_tools", "log_level"], "restarts": True, "started_at": first["started_at"],
    }  # fmt: skip
    second = opened_anew(client, first["started_at"])
    assert second["pid"] == first["pid"]
    worker = process.running_worker(lab.data)
    assert worker is not None
    assert (worker.port, worker.token) == (client.worker.port, client.worker.token)
    assert worker.started_at == second["started_at"]
    assert file.read_text() == '# mine\n\ncontext_tokens = 1200\nskip_tools = ["Bash"]\n'
    assert file.stat().st_mode & 0o777 == 0o600
    client.post("/api/sessions/init", {"contentSessionId": "a", "prompt": "go", "cwd": str(lab.project)})
    skipped = client.post("/api/sessions/observations", {"contentSessionId": "a", "tool_name": "Bash"})
    assert skipped["status"] == "skipped", "the new settings count"
    again = client.patch("/api/settings", {"context_tokens": 1200})
    assert (again["changed"], again["restarts"]) == ([], False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"context_tokens": 1000, "silence_minutes": 0}, "silence_minutes = 0 is out of range"),
        ({"context_tokens": "many"}, "context_tokens = 'many' is not a whole number"),
        ({"context_tokens": 1000, "nope": 1}, "no setting `nope`"),
        ({"context_tokens": 1000, "data_dir": "/elsewhere"}, "CLAUDE_MEM_DATA_DIR"),
        ({"context_tokens": 1000, "provider": "local"}, "CLAUDE_MEM_PROVIDER"),
        ({"redact_secrets": 1}, "redact_secrets = 1 is not true or false"),
        ({"log_level": "LOUD"}, "log_level = 'LOUD' is not a valid choice"),
        ({"skip_tools": ["Bash", 1]}, "skip_tools"),
        ({"proxy": "http://[half"}, "proxy is not a valid URL"),
        ({"proxy": "http://…@host:1"}, "`proxy` still has its secret masked"),
        ({"anthropic_api_key": 77777}, "anthropic_api_key = '(set, not shown)' is not a string"),
        ({"anthropic_api_key": "(set, not shown)"}, "`anthropic_api_key` still has its secret masked"),
        ({"language": "x" * 41}, "language is too long"),
        ({"model": "a\x00b"}, "model is not valid UTF-8 text"),
    ],
)
def test_what_makes_no_sense_changes_nothing_and_is_named(shared: Lab, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        shared.client().patch("/api/settings", given)
    assert says in str(refused.value)
    assert "77777" not in str(refused.value)
    assert not (shared.data / "config.toml").exists()


@pytest.mark.parametrize("given", [{"silence_minutes": 0}, {"data_dir": "/elsewhere"}, {"nope": 1}])
def test_an_error_names_the_setting_as_its_field(shared: Lab, given: dict[str, Any]) -> None:
    worker = shared.client().worker
    answer = httpx2.patch(
        f"http://127.0.0.1:{worker.port}/api/settings",
        json=given,
        headers={"Authorization": f"Bearer {worker.token}"},
        timeout=SECONDS,
    )
    assert (answer.status_code, answer.json()["field"]) == (400, next(iter(given)))


def test_a_file_that_is_not_toml_is_left_alone(lab: Lab, file: Path) -> None:
    client = lab.start()
    file.write_text("= nonsense")
    with pytest.raises(OperationFailed, match="not valid TOML"):
        client.patch("/api/settings", {"context_tokens": 1000})
    assert file.read_text() == "= nonsense"


def test_a_secret_can_be_replaced_and_removed_and_is_never_told(lab: Lab, file: Path) -> None:
    client = lab.start()
    done = client.patch("/api/settings", {"openai_api_key": "hush-hush"})
    opened_anew(client, done["started_at"])
    assert 'openai_api_key = "hush-hush"' in file.read_text()
    found = client.get("/api/settings")
    assert found["openai_api_key"]["set"] is True
    assert "hush" not in str(found) + str(done)
    done = client.patch("/api/settings", {"openai_api_key": None})
    opened_anew(client, done["started_at"])
    assert client.get("/api/settings")["openai_api_key"]["set"] is False
    assert file.read_text() == THEIRS
    assert "hush" not in "".join(client.get("/api/logs", lines=1000)["lines"])


def test_nothing_is_lost_while_it_opens_anew_again_and_again(lab: Lab) -> None:
    """Events come by files and by HTTP all the time, and every one is there once in the end."""
    client = lab.start()
    sent: list[str] = []
    failed: list[BaseException] = []
    over = threading.Event()
    spool, files = Spool(lab.data / "spool", lab.data / "aside"), list[str]()
    header = {"command": "save", "host": "claude", "project_dir": str(lab.project)}

    def pour() -> None:
        client.post("/api/sessions/init", {"contentSessionId": "b", "prompt": "go", "cwd": str(lab.project)})
        while not over.is_set():
            number = len(sent)
            event = {
                "session_id": "s1",
                "hook_event_name": "PostToolUse",
                "tool_name": "Bash",
                "tool_use_id": f"f{number}",
            }
            files.append(spool.put(header, json.dumps(event).encode()))
            call = {"contentSessionId": "b", "tool_name": "Bash", "tool_use_id": f"h{number}", "cwd": str(lab.project)}
            try:
                client.post("/api/sessions/observations", call)
            except ClaudeMemError as error:
                failed.append(error)
                continue  # it was not acknowledged: it need not be there
            sent.append(f"h{number}")

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        for tokens in (1000, 1001, 1002, 1003):
            done = client.patch("/api/settings", {"context_tokens": tokens})
            opened_anew(client, done["started_at"])
    finally:
        over.set()
        thread.join()
    assert len(sent) > 10
    assert failed == [], "no call was refused"
    lab.wait_digested()
    lab.mem("stop")
    calls = lab.rows("select event_id, tool_use_id from events where kind = 'tool' order by seq")
    assert [event_id for event_id, call in calls if call.startswith("f")] == files
    assert [call for _, call in calls if call.startswith("h")] == sent


def test_listeners_are_sent_home_so_that_they_come_back(lab: Lab) -> None:
    client = lab.start()
    token = {"Authorization": f"Bearer {client.worker.token}"}
    address = f"http://127.0.0.1:{client.worker.port}/stream"
    with urllib.request.urlopen(urllib.request.Request(address, headers=token), timeout=SECONDS) as listening:
        assert b"connected" in listening.readline()
        client.patch("/api/settings", {"context_tokens": 1000})
        assert listening.read().strip() == b"", "the stream ends, and does not hang"

    def greeting() -> bytes:
        with urllib.request.urlopen(urllib.request.Request(address, headers=token), timeout=SECONDS) as listening:
            line: bytes = listening.readline()
            return line

    assert b"connected" in wait_for(greeting)  # the one that closes sends newcomers home, too


def test_a_bad_value_from_elsewhere_does_not_stop_it(lab: Lab, file: Path) -> None:
    client = lab.start()
    file.write_text(THEIRS + "silence_minutes = 'soon'\nembedding_model = 'none such'\nmode = 'none such'\n")
    done = client.patch("/api/settings", {"context_tokens": 1000})
    opened_anew(client, done["started_at"])
    assert "is not a whole number" in client.get("/api/settings")["silence_minutes"]["problem"]
    assert any("using the default" in line for line in client.get("/api/logs")["lines"])


@pytest.mark.parametrize("wait", [0.0, 0.15])
def test_a_signal_while_it_opens_anew_ends_it(lab: Lab, wait: float) -> None:
    client = lab.start()
    client.patch("/api/settings", {"context_tokens": 1000})
    time.sleep(wait)
    os.kill(client.worker.pid, signal.SIGTERM)
    wait_for(lambda: process.lock_holder(lab.data) is None)
    assert not (lab.data / "worker.json").exists()
    assert not (lab.data / "worker.fifo").exists()
    log = (lab.data / "logs" / "worker.log").read_text()
    assert "worker stopped" in log
    assert "worker failed" not in log


def test_it_opens_anew_where_its_folder_was_named_in_relation_to_another(lab: Lab) -> None:
    worker = subprocess.Popen([*MEM, "serve"], cwd=lab.folder, env=lab.env(CLAUDE_MEM_DATA_DIR="data"))
    try:
        wait_for(lambda: process.running_worker(lab.data))
        client = lab.client()
        done = client.patch("/api/settings", {"context_tokens": 1000})
        opened_anew(client, done["started_at"])
        assert client.get("/api/settings")["context_tokens"]["value"] == "1000"
        assert not (lab.data / "data").exists()
    finally:
        worker.terminate()
        worker.wait(SECONDS)


def test_the_file_keeps_what_is_not_ours_to_change(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("redact_secrets = 1\n\n[theirs]\nmode = 'x'  # kept\n")
    assert config_file.apply_changes(path, {"redact_secrets": True, "mode": "research", "skip_tools": ("a\nb", 'c"')})
    text = path.read_text()
    assert text.startswith("redact_secrets = true\n")
    assert "[theirs]\nmode = 'x'  # kept" in text
    assert config_file.apply_changes(path, {"redact_secrets": True, "language": None}) is False
    assert path.read_text() == text


def test_who_comes_to_listen_while_it_closes_is_sent_home_too() -> None:
    async def go() -> list[bytes]:
        stream = Stream()
        stream.close()
        return [said async for said in stream.listen()]

    assert asyncio.run(asyncio.wait_for(go(), SECONDS)) == []


def test_another_port_waits_for_another_process(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.data.mkdir(parents=True, exist_ok=True)
    (lab.data / "config.toml").write_text("worker_port = 0\n")
    env = {name: value for name, value in lab.env().items() if name != "CLAUDE_MEM_WORKER_PORT"}
    monkeypatch.setattr(lab, "env", lambda **more: {**env, **more})
    client = lab.start()
    assert client.patch("/api/settings", {"worker_port": 1})["restarts"] is False
    done = client.patch("/api/settings", {"context_tokens": 1000})
    opened_anew(client, done["started_at"])
    found = client.get("/api/settings")["worker_port"]
    assert (found["current"], found["waits"]) == (1, True)
