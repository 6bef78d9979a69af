"""The real Claude Code asks memory: a scripted model calls the tools, and reads the answer in its next request."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from claude_mem.worker.mcp import INSTRUCTIONS, TOOLS
from tests.support.lab import BRIDGE

from .harness import Lab, Run, find_client, open_lab
from .model_server import Json, Request, Text, Tool

found, reason = find_client()
if found is None:
    pytest.skip(reason, allow_module_level=True)
BINARY: Path = found

pytestmark = pytest.mark.client

FACT = "The flux capacitor needs 1.21 gigawatts, because the pump stalls below that."
PREFIX = "mcp__claude-mem__"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path / "lab", binary=BINARY) as lab:
        lab.install("claude")
        yield lab


def two_sessions(lab: Lab) -> None:
    """One that found something out, and one about something else."""
    module = {"file_path": str(lab.project / "capacitor.py"), "content": "GIGAWATTS = 1.21\n"}
    lab.server.play("JOB-ONE", [Tool("Write", module)], [Text(FACT)])
    lab.server.play("JOB-TWO", [Text("The weather is fine.")])
    for prompt in ("JOB-ONE: find out what the capacitor needs", "JOB-TWO: how is the weather?"):
        assert lab.claude(prompt).returncode == 0
    lab.wait_digested()


def by_http(lab: Lab) -> Json:
    worker = lab.worker()
    headers = {"Authorization": f"Bearer {worker['token']}"}
    return {"type": "http", "url": f"http://127.0.0.1:{worker['port']}/mcp", "headers": headers, "alwaysLoad": True}


def by_bridge(_: Lab) -> Json:
    return {"command": BRIDGE[0], "args": BRIDGE[1:], "alwaysLoad": True}


def third_session(lab: Lab, server: Json) -> Run:
    """It asks memory first for a list, then for one of its entries in full."""
    config = lab.root / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"claude-mem": server}}))
    number = next(
        row["id"] for row in lab.api("/api/observations?limit=100")["items"] if "gigawatts" in json.dumps(row)
    )
    lab.server.play(
        "JOB-THREE",
        [Tool(f"{PREFIX}search", {"query": "capacitor gigawatts"})],
        [Tool(f"{PREFIX}get_observations", {"ids": [number]})],
        [Text("Now I know.")],
    )
    run = lab.claude("JOB-THREE: what was that again?", "--mcp-config", str(config))
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run


def results(request: Request) -> list[str]:
    """What the tools answered, as the model reads it."""
    blocks = [block for message in request.body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [json.dumps(block["content"]) for block in blocks if block.get("type") == "tool_result"]


def bodies(lab: Lab, session: str) -> list[str]:
    """What is stored of a session's events, straight from the database."""
    conn = apsw.Connection(str(lab.data / "claude-mem.db"), flags=apsw.SQLITE_OPEN_READONLY)
    sql = "select e.body from events e join sdk_sessions s on s.id = e.session_id where s.content_session_id = ?"
    try:
        return [str(body) for (body,) in conn.execute(sql, (session,))]
    finally:
        conn.close()


def assert_found(lab: Lab, run: Run) -> None:
    first, second, third = (request for request in lab.server.of(run.session) if request.marker == "JOB-THREE")
    offered = {tool["name"] for tool in first.body["tools"]}
    assert {PREFIX + name for name in TOOLS} <= offered  # from the first request on, without a search for tools
    assert INSTRUCTIONS in first.text
    (listed,) = results(second)
    assert re.search(r"\d+ \d\d:\d\d .*1\.21 gigawatts.*\[project\] ~\d+", listed)
    assert "because the pump stalls" in results(third)[1]


def test_a_later_session_finds_what_an_earlier_one_learned(lab: Lab) -> None:
    two_sessions(lab)
    assert_found(lab, third_session(lab, by_http(lab)))


def test_what_memory_says_does_not_become_a_memory_again(lab: Lab) -> None:
    two_sessions(lab)
    run = third_session(lab, by_http(lab))
    lab.wait_digested()
    lab.mem("stop")
    stored = bodies(lab, run.session)
    assert any(f"{PREFIX}get_observations" in body for body in stored)
    assert not any("the pump stalls" in body for body in stored)


def test_the_bridge_does_the_same(lab: Lab) -> None:
    two_sessions(lab)
    assert_found(lab, third_session(lab, by_bridge(lab)))
