"""The worker's HTTP: no one gets in who should not, everyone gets in who should, and the routes do what they say."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from claude_mem.client import Client
from claude_mem.config import Config
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import ROUTES, build_app
from claude_mem.worker.http.endpoints import MAX_BODY
from tests.support.lab import Lab
from tests.support.waiting import SECONDS

TOKEN = "t" * 43
PORT = 37777
BASE = f"http://127.0.0.1:{PORT}"
GOOD = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def service(config: Config) -> Iterator[Service]:
    async def build() -> Service:
        return Service(config)

    service = asyncio.run(build())
    yield service
    service.close()


@pytest.fixture
def http(service: Service) -> Iterator[TestClient]:
    with TestClient(build_app(service, token=TOKEN, port=PORT), base_url=BASE) as client:
        yield client


def test_healthz_says_ok_and_nothing_else(http: TestClient) -> None:
    answer = http.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok")


def test_a_path_that_does_not_exist_is_shut_too(http: TestClient) -> None:
    assert http.get("/nowhere").status_code == 401
    answer = http.get("/nowhere", headers=GOOD)
    assert answer.status_code == 404
    assert answer.json()["hint"]


@pytest.mark.parametrize("origin", [f"http://127.0.0.1:{PORT}", f"http://localhost:{PORT}"])
def test_our_own_page_is_let_in(http: TestClient, origin: str) -> None:
    assert http.get("/api/health", headers={**GOOD, "Origin": origin}).status_code == 200


def test_bad_requests_get_a_clear_error(http: TestClient) -> None:
    def ask(method: str, path: str, **more: Any) -> tuple[int, str]:
        answer = http.request(method, path, headers=GOOD, **more)
        return answer.status_code, answer.json()["error"]

    assert ask("POST", "/api/sessions/init", content=b"{")[0] == 400
    assert ask("POST", "/api/sessions/init", content=b"[]") == (400, "the body is not a JSON object")
    assert ask("POST", "/api/sessions/init", json={}) == (400, "`contentSessionId` is missing")
    assert ask("POST", "/api/sessions/init", content=b"[" * 10_000)[0] == 400
    assert ask("GET", "/api/observations?limit=0")[0] == 400
    assert ask("GET", "/api/observations?limit=101")[0] == 400
    assert ask("GET", "/api/observations?offset=x")[0] == 400
    assert ask("GET", "/api/observation/abc")[0] == 400
    assert ask("GET", "/api/observation/7") == (404, "there is no observation 7")
    assert ask("GET", "/api/context/inject")[0] == 400
    assert ask("POST", "/api/observations/batch", json={"ids": ["1"]})[0] == 400
    assert ask("POST", "/api/context/inject", content=b"rubbish")[0] == 400
    assert ask("DELETE", "/sessions/5")[0] == 404
    assert ask("POST", "/api/sessions/observations", content=b" " * (MAX_BODY + 1))[0] == 413


def test_private_parts_that_come_by_http_do_not_even_reach_the_spool(http: TestClient, config: Config) -> None:
    tool = {"contentSessionId": "e1", "tool_name": "Bash", "tool_input": {"command": "<private>canary-word</private>"}}
    assert http.post("/api/sessions/observations", headers=GOOD, json=tool).json()["status"] == "queued"
    (kept,) = config.spool.iterdir()  # no loop runs here: it lies as it was put
    assert b"canary-word" not in kept.read_bytes()


# --- with a real worker ---------------------------------------------------------------------------------------------


def _session(client: Client, session: str = "e1", **more: Any) -> Any:
    return client.post(
        "/api/sessions/init", {"contentSessionId": session, "project": "blog", "prompt": "Add tags", **more}
    )


def test_another_editor_can_use_the_session_routes(lab: Lab) -> None:
    client = lab.start()
    begun = _session(client)
    assert (begun["promptNumber"], begun["skipped"]) == (1, False)
    number = begun["sessionDbId"]
    tool = {"tool_name": "Write", "tool_input": json.dumps({"file_path": "/x/tags.py"}), "tool_output": "ok"}
    assert client.post(f"/sessions/{number}/observations", tool)["status"] == "queued"
    client.post(
        f"/sessions/{number}/summarize", {"last_assistant_message": "Posts can have tags now, stored in tags.py."}
    )
    lab.wait_digested()
    status = client.get(f"/sessions/{number}/status")
    assert (status["contentSessionId"], status["project"], status["queueLength"]) == ("e1", "blog", 0)
    (found,) = client.get("/api/observations")["items"]
    assert (found["content_session_id"], found["files_modified"]) == ("e1", ["/x/tags.py"])
    assert _session(client)["promptNumber"] == 2
    client.post("/api/sessions/complete", {"contentSessionId": "e1"})
    lab.wait_digested()
    assert client.get(f"/sessions/{number}")["status"] == "completed"
    assert "Posts can have tags now" in client.get("/api/context/inject", project="blog")


def test_sessions_survive_a_restart_of_the_worker(lab: Lab) -> None:
    number = _session(lab.start())["sessionDbId"]
    lab.mem("restart")
    client = Client.of(lab.data)
    tool = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": "x"}
    assert client.post(f"/sessions/{number}/observations", tool)["status"] == "queued"
    assert client.post(f"/sessions/{number}/summarize", {})["status"] == "queued"
    lab.wait_digested()
    assert [event["kind"] for event in client.get(f"/api/session/{number}")["events"]] == ["prompt", "tool", "stop"]


def test_deleting_a_session_marks_it_and_loses_nothing(lab: Lab) -> None:
    client = lab.start()
    number = _session(client)["sessionDbId"]
    for call in range(50):
        client.post(f"/sessions/{number}/observations", {"tool_name": "Bash", "tool_use_id": str(call)})
    worker = client.worker
    request = urllib.request.Request(
        f"http://127.0.0.1:{worker.port}/sessions/{number}",
        method="DELETE",
        headers={"Authorization": f"Bearer {worker.token}"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        assert json.load(answer)["status"] == "failed"
    lab.wait_digested()
    found = client.get(f"/api/session/{number}")
    assert len([event for event in found["events"] if event["kind"] == "tool"]) == 50
    assert found["status"] == "failed"
    assert len(found["summaries"]) == 1


def test_a_private_prompt_by_http_is_skipped(lab: Lab) -> None:
    client = lab.start()
    begun = _session(client, prompt="<private>call Bob</private>")
    assert (begun["skipped"], begun["reason"]) == (True, "private")
    assert client.get("/api/prompts")["items"] == []


def test_observations_can_be_saved_corrected_and_forgotten(lab: Lab) -> None:
    client = lab.start()
    saved = client.post("/api/memory/save", {"text": "Deploys happen on Fridays.", "project": "blog"})
    assert "Deploys happen on Fridays." in client.get("/api/context/inject", project="blog")
    assert client.post("/api/observations/batch", {"ids": [saved["id"], 99]})["items"][0]["provider"] == "user"
    path = f"/api/observation/{saved['id']}"
    assert client._ask("PATCH", path, b'{"title": "Deploys on Mondays"}')["title"] == "Deploys on Mondays"
    with pytest.raises(InvalidRequest):
        client._ask("PATCH", path, b'{"id": 3}')
    assert client._ask("DELETE", path)["status"] == "forgotten"
    with pytest.raises(NotFound):
        client.get(path)
    assert "Deploys" not in client.get("/api/context/inject", project="blog")


def test_what_a_person_corrected_stays_corrected(lab: Lab) -> None:
    client = lab.start()
    number = _session(client)["sessionDbId"]
    client.post(f"/sessions/{number}/observations", {"tool_name": "Write", "tool_input": {"file_path": "a.py"}})
    client.post(f"/sessions/{number}/summarize", {"last_assistant_message": "Posts can have tags now, in a.py."})
    lab.wait_digested()
    (found,) = client.get("/api/observations")["items"]
    client._ask("PATCH", f"/api/observation/{found['id']}", b'{"title": "Only drafts can have tags"}')
    client.post(f"/sessions/{number}/observations", {"tool_name": "Write", "tool_input": {"file_path": "b.py"}})
    client.post(f"/sessions/{number}/summarize", {"last_assistant_message": "Also in b.py, as it should be."})
    lab.wait_digested()
    assert [row["title"] for row in client.get("/api/observations")["items"]] == ["Only drafts can have tags"]


def test_private_parts_that_come_by_http_reach_no_file(lab: Lab) -> None:
    client = lab.start()
    secret = "<private>canary-word</private>"
    number = _session(client, prompt=f"Do it {secret}")["sessionDbId"]
    tool = {"tool_name": "Bash", "tool_input": {"command": secret}, "tool_response": secret}
    client.post(f"/sessions/{number}/observations", tool)
    client.post(f"/sessions/{number}/summarize", {"last_assistant_message": f"Done {secret}"})
    saved = client.post("/api/memory/save", {"text": f"Remember {secret} this", "title": secret + "A title"})
    client._ask(
        "PATCH", f"/api/observation/{saved['id']}", json.dumps({"narrative": f"x {secret}", "facts": [secret]}).encode()
    )
    with pytest.raises(InvalidRequest):
        client.post("/api/memory/save", {"text": secret})
    lab.wait_digested()
    kept = b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())
    assert b"canary-word" not in kept


def test_the_stream_tells_what_happens(lab: Lab) -> None:
    client = lab.start()
    seen: list[str] = []
    done = threading.Event()

    def listen() -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{client.worker.port}/stream", headers={"Authorization": f"Bearer {client.worker.token}"}
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    seen.append(json.loads(line[6:])["type"])
                    if seen[-1] == "connected":
                        done.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert done.wait(SECONDS)
    number = _session(client)["sessionDbId"]
    client.post(f"/sessions/{number}/observations", {"tool_name": "Write", "tool_input": {"file_path": "a.py"}})
    client.post(f"/sessions/{number}/summarize", {"last_assistant_message": "Done."})
    lab.wait_digested()
    lab.mem("stop")  # an open stream must not keep the worker alive
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert {"new_prompt", "turn_ended", "new_summary", "new_observation"} <= set(seen)


def test_the_routes_command_lists_the_app_itself(lab: Lab) -> None:
    listed = json.loads(lab.mem("routes", "--json").stdout)
    assert {row["path"]: row["methods"] for row in listed} == {path: sorted(by) for path, by in ROUTES.items()}


def test_stats_queue_settings_logs_and_health_answer(lab: Lab) -> None:
    client = lab.start()
    assert client.get("/api/stats")["database"]["observations"] == 0
    assert client.get("/api/queue")["jobs"] == []
    assert client.get("/api/settings")["worker_port"]["value"] == "0"
    assert any("starts" in line for line in client.get("/api/logs")["lines"])
    assert client.get("/api/health")["status"] == "ok"
    assert client.get("/api/readiness")["status"] == "ready"
    assert client.get("/api/projects")["items"] == []
    assert client.get("/api/context/preview", project="x").startswith("<claude-mem-context>")
    assert client.post("/api/processing", {"isProcessing": True, "project": "blog"})["isProcessing"] is True
    flag = json.loads((lab.data / "activity.flag").read_bytes())
    assert (flag["active"], flag["project"], sorted(flag)) == (True, "blog", ["active", "project", "timestamp"])
