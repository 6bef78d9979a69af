"""Memory as tools: the official client against a real worker, over HTTP and over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp
import pytest
from mcp import types
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from starlette.testclient import TestClient

from claude_mem import bridge, hook
from claude_mem.config import Config
from claude_mem.recall import rank
from claude_mem.system import process
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import build_app
from claude_mem.worker.mcp import INSTRUCTIONS, MAX_RESULT_CHARS, TOOLS, Tools, _hit_lines, argument_schema
from tests.support.lab import BRIDGE, Lab
from tests.support.waiting import SECONDS

TOKEN = "t" * 43
PORT = 37777
GOOD = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HOUR = 3_600_000

Talk = Callable[[mcp.Client], Awaitable[Any]]


def remember(lab: Lab) -> None:
    """Two sessions on two days: a login that was mended, and a basket."""
    now = int(time.time() * 1000)
    _session(
        lab, "s1", now - 30 * HOUR, "Fix the jwt login", "auth.py", "The jwt login works: <b>30 s</b> of clock skew."
    )
    _session(
        lab, "s2", now - 1 * HOUR, "Make the basket round", "basket.py", "The basket rounds to cents, not to euros."
    )


def _session(lab: Lab, session: str, at: int, prompt: str, file: str, said: str) -> None:
    given = {"file_path": str(lab.project / file), "content": "x = 1\n"}
    lab.spool("UserPromptSubmit", at=at, session_id=session, prompt=prompt)
    tool = {"tool_name": "Write", "tool_input": given, "tool_response": {}, "tool_use_id": f"t-{session}"}
    lab.spool("PostToolUse", at=at + 1000, session_id=session, **tool)
    lab.spool("Stop", at=at + 2000, session_id=session, last_assistant_message=said)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One worker for all tests that only ask, or add what no other test looks at."""
    lab = Lab(tmp_path_factory.mktemp("mcp"))
    remember(lab)
    lab.start()
    lab.wait_digested()
    yield lab
    lab.close()


# --- talking ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http(lab: Lab, *, mode: Any = "legacy", **headers: str) -> AsyncIterator[mcp.Client]:
    worker = lab.client().worker
    headers = {"Authorization": f"Bearer {worker.token}", **headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
        mcp.Client(
            streamable_http_client(f"http://127.0.0.1:{worker.port}/mcp", http_client=http), mode=mode
        ) as client,
    ):
        yield client


def ask(lab: Lab, name: str, **arguments: Any) -> str:
    """What a tool says when all is well."""
    failed, text = call(lab, name, **arguments)
    assert not failed, text
    return text


def refusal(lab: Lab, name: str, **arguments: Any) -> str:
    failed, text = call(lab, name, **arguments)
    assert failed, text
    return text


def call(lab: Lab, name: str, **arguments: Any) -> tuple[bool, str]:
    async def talk() -> tuple[bool, str]:
        async with over_http(lab, **{"X-Claude-Mem-Folder": str(lab.project)}) as client:
            return said(await client.call_tool(name, arguments))

    return asyncio.run(talk())


def said(result: types.CallToolResult) -> tuple[bool, str]:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return result.is_error, content.text


def found(text: str) -> list[str]:
    """The IDs in a listing."""
    return re.findall(r"^→? *([SPT]?\d+) (?:\d{4}-\d\d-\d\d )?\d\d:\d\d ", text, re.MULTILINE)


# --- the protocol ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_is_told_when_to_search_and_what_the_tools_take(shared: Lab, mode: str) -> None:
    async def talk() -> None:
        async with over_http(shared, mode=mode) as client:
            assert client.instructions == INSTRUCTIONS
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == list(TOOLS)
            for tool in listed:
                assert tool.description
                assert tool.input_schema == argument_schema(tool.name)
                assert tool.annotations
                assert tool.annotations.read_only_hint == (tool.name not in ("save_memory", "forget"))

    asyncio.run(talk())


def test_the_instructions_are_short_and_name_the_three_layers() -> None:
    assert len(INSTRUCTIONS) <= 700
    layers = [INSTRUCTIONS.index(f"`{name}`") for name in ("search", "timeline", "get_observations")]
    assert layers == sorted(layers)


def test_the_schemas_say_what_is_needed_and_what_is_too_much() -> None:
    assert argument_schema("search")["required"] == ["query"]
    assert argument_schema("search")["properties"]["limit"] == {
        "description": "How many at most.",
        "type": "integer",
        "minimum": 1,
        "maximum": 50,
        "default": 20,
    }
    assert argument_schema("search")["properties"]["kind"]["enum"] == ["observation", "prompt", "summary", "turn"]
    assert argument_schema("get_observations")["properties"]["ids"]["maxItems"] == 50
    assert all(argument_schema(name)["additionalProperties"] is False for name in TOOLS)


def test_there_is_no_stream_to_hold_the_worker_up(shared: Lab) -> None:
    worker = shared.client().worker
    for method in ("GET", "DELETE"):
        headers = {"Authorization": f"Bearer {worker.token}", "Accept": "text/event-stream"}
        assert httpx2.request(method, f"http://127.0.0.1:{worker.port}/mcp", headers=headers).status_code == 405


# --- the tools -------------------------------------------------------------------------------------------------------


def test_search_lists_a_line_per_hit_with_its_date_and_what_reading_it_costs(shared: Lab) -> None:
    text = ask(shared, "search", query="jwt login")
    assert text.startswith("<claude-mem-context>\n")
    assert text.endswith("\n</claude-mem-context>")
    assert re.search(r"^\d+ \d{4}-\d\d-\d\d \d\d:\d\d . The jwt login works.* \[shop\] ~\d+$", text, re.MULTILINE)
    assert "<b>" not in text  # what looks like a tag is shown, not meant
    assert "‹b>30 s" in text
    assert "###" not in text


@pytest.mark.parametrize("order", [(0, 1, 2, 0, 1), (2, 0, 2, 1, 0), (0, 0, 1, 0)])
def test_search_keeps_the_order_of_rank_whatever_the_days(order: tuple[int, ...]) -> None:
    """The best hits of one day may stand above and below those of another."""
    day_ms = 86_400_000
    same: Any = {"type": "bugfix", "project": "shop", "tokens": 10, "trust": "user"}
    hits = [
        rank.Hit(number, "observation", "A hit", 1 / number, same | {"created_at": day * day_ms}, {})
        for number, day in enumerate(order, start=1)
    ]
    lines = list(_hit_lines(hits, {}, more=False))[1:-1]
    assert [line.split()[0] for line in lines] == [str(number) for number in range(1, len(order) + 1)]
    assert [line.split()[1] for line in lines] == [f"1970-01-0{day + 1}" for day in order]


def test_search_finds_in_the_same_order_as_the_http_api(shared: Lab) -> None:
    marks = {"observation": "", "summary": "S", "prompt": "P", "turn": "T"}
    for query in ("jwt login basket", "tests pass", ""):
        items = shared.client().get("/api/search", query=query, limit=50)["items"]
        assert found(ask(shared, "search", query=query, limit=50)) == [f"{marks[i['kind']]}{i['id']}" for i in items]


def test_search_groups_by_file_and_by_session(shared: Lab) -> None:
    text = ask(shared, "search", query="jwt login basket", group="file")
    assert re.search(r"^basket\.py \(\d+\)\n- \S+ \d{4}-", text, re.MULTILINE)
    alone = ask(shared, "search", query="jwt login basket", group="session", limit=1)
    assert len(re.findall(r"^\S+ \(\d+\)$", alone, re.MULTILINE)) == 1
    assert "There are more" in alone
    assert "No records match" in ask(shared, "search", query="xylophone quartz", group="file")


def test_search_filters(shared: Lab) -> None:
    assert found(ask(shared, "search", query="", kind="prompt")) == ["P2", "P1"]
    assert found(ask(shared, "search", query="", kind="prompt", limit=1)) == ["P2"]
    assert "There are more" in ask(shared, "search", query="", kind="prompt", limit=1)
    assert found(ask(shared, "search", query="", kind="prompt", project="shop", limit="2")) == ["P2", "P1"]
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 30 * 3600))
    assert found(ask(shared, "search", query="", kind="prompt", date_start=day, date_end=day)) == ["P1"]
    assert len(found(ask(shared, "search", query="", kind="observation", files=["basket.py"]))) == 1
    assert "No records match" in ask(shared, "search", query="", concepts=["no such concept"])
    assert "No records match" in ask(shared, "search", query="xylophone quartz")
    assert found(ask(shared, "search", query="login", type="bugfix", project=None, files=None))


def test_a_timeline_goes_around_its_anchor(shared: Lab) -> None:
    whole = found(ask(shared, "timeline", anchor="P2", depth_before=50, depth_after=50))
    assert {"P1", "S1", "P2", "S2"} <= set(whole)
    at = whole.index("P2")
    assert found(ask(shared, "timeline", anchor="P2", depth_before=1, depth_after=1)) == whole[at - 1 : at + 2]
    assert "→" in ask(shared, "timeline", anchor="S1")
    number = next(name for name in whole if name.isdigit())
    assert number in found(ask(shared, "timeline", anchor=int(number)))
    assert "basket" in ask(shared, "timeline", query="basket rounds")
    assert found(ask(shared, "timeline", anchor="T1", depth_before=0, depth_after=50, project="shop"))
    assert found(ask(shared, "timeline", anchor="2020-01-01"))


def test_every_id_that_is_listed_can_be_read_in_full(shared: Lab) -> None:
    listed = found(ask(shared, "search", query="jwt login basket", limit=50))
    for kind in ("observation", "summary", "prompt", "turn"):
        listed += found(ask(shared, "search", query="", kind=kind, limit=50))
    text = ask(shared, "get_observations", ids=[*listed, "#1", 99_999])
    assert set(re.findall(r"^## ([SPT]?\d+) ", text, re.MULTILINE)) == set(listed)
    assert "files modified: auth.py" in text
    assert "‹b>30 s‹/b>" in text
    assert "from agent" in text
    assert "Not found: 99999" in text


def test_what_is_saved_is_found_and_what_is_forgotten_is_gone(shared: Lab) -> None:
    kept = ask(shared, "save_memory", text="Deploys are frozen on Fridays.\n    indented <private>hush</private>")
    number = int(re.findall(r"Saved as (\d+) in project shop: Deploys are frozen", kept)[0])
    assert str(number) in found(ask(shared, "search", query="frozen deploys"))
    text = ask(shared, "get_observations", ids=[number])
    assert "\n    indented" in text
    assert "hush" not in text
    assert "forgotten" in ask(shared, "forget", id=number)
    assert "there is no observation" in refusal(shared, "forget", id=number)
    assert refusal(shared, "get_observations", ids=[number])
    assert str(number) not in found(ask(shared, "search", query="frozen deploys"))


def test_a_memory_may_have_a_title_and_a_project_of_its_own(shared: Lab) -> None:
    kept = ask(shared, "save_memory", text="Use the blue key.", title="Keys", project="house")
    assert re.fullmatch(r"Saved as \d+ in project house: Keys", kept)
    assert "Keys" in ask(shared, "session_context", project="house")
    assert "Keys" in ask(shared, "search", query="blue key")
    assert "Keys" not in ask(shared, "search", query="blue key", project="shop")


def test_a_session_is_told_about_the_folder_it_works_in(shared: Lab) -> None:
    text = ask(shared, "session_context")
    assert "what earlier sessions did in [shop]" in text
    assert text == ask(shared, "session_context", project="shop")


def test_without_a_folder_a_session_is_told_about_the_last_project(shared: Lab) -> None:
    async def talk() -> None:
        async with over_http(shared) as client:
            assert "[shop]" in said(await client.call_tool("session_context"))[1]

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("name", "arguments", "hint"),
    [
        ("search", {}, "query"),
        ("search", {"query": 3.5}, "`search` takes query"),
        ("search", {"query": "x", "limit": 51}, "<= 50"),
        ("search", {"query": "x", "limit": 0}, ">= 1"),
        ("search", {"query": "x", "kind": "song"}, "song"),
        ("search", {"query": "x", "type": "song"}, "bugfix"),
        ("search", {"query": "x", "sort": "up"}, "sort"),
        ("search", {"query": "x", "project": "nowhere"}, "shop"),
        ("search", {"query": "x", "date_start": "soon"}, "2026-01-31"),
        ("search", {"query": "x", "files": "a.py"}, "array"),
        ("timeline", {}, "`anchor` or `query`"),
        ("timeline", {"anchor": "S99999"}, "there is no summary"),
        ("timeline", {"anchor": "T99999"}, "there is no turn"),
        ("timeline", {"anchor": "soon"}, "2026-01-31"),
        ("timeline", {"anchor": 1, "depth_before": 51}, "<= 50"),
        ("timeline", {"query": "xylophone quartz"}, "other words"),
        ("get_observations", {"ids": []}, ">= 1"),
        ("get_observations", {"ids": [1] * 51}, "<= 50"),
        ("get_observations", {"ids": ["x"]}, "S12"),
        ("get_observations", {"ids": [10**30]}, "ID"),
        ("get_observations", {"ids": [99_999]}, "`search` lists"),
        ("save_memory", {"text": ""}, ">= 1"),
        ("save_memory", {"text": "<private>all of it</private>"}, "nothing was saved"),
        ("save_memory", {"text": "x" * 20_001}, "20000"),
        ("forget", {"id": "all"}, "int"),
        ("forget", {"id": 1 << 60}, "<="),
        ("session_context", {"project": "nowhere"}, "shop"),
        ("read_file", {"path": "/etc/passwd"}, "there is no tool"),
    ],
)
def test_bad_arguments_are_answered_with_a_hint(shared: Lab, name: str, arguments: Any, hint: str) -> None:
    assert hint in refusal(shared, name, **arguments)


def test_text_that_no_database_takes_is_no_trouble(shared: Lab) -> None:
    assert "No records match" in ask(shared, "search", query="zz\x00zz", files=["\x00"])
    assert refusal(shared, "timeline", anchor="\x00")


# --- inside, without a process ---------------------------------------------------------------------------------------


@pytest.fixture
def service(config: Config) -> Iterator[Service]:
    async def build() -> Service:
        return Service(config)

    service = asyncio.run(build())
    yield service
    service.close()


def test_a_switched_off_folder_keeps_nothing_and_is_told_nothing(service: Service, tmp_path: Path) -> None:
    (tmp_path / ".claude-mem.toml").write_text("enabled = false\n")
    tools = Tools(service, str(tmp_path))

    async def talk() -> None:
        with pytest.raises(Exception, match="switched off"):
            await tools.call("save_memory", {"text": "A secret of this folder."})
        assert "switched off" in await tools.call("session_context", {})

    asyncio.run(talk())


def test_an_answer_stays_within_what_hosts_take(service: Service) -> None:
    async def talk() -> str:
        tools = Tools(service)
        for number in range(5):
            await tools.call("save_memory", {"text": f"{number} " + "word " * 3_900})
        return await tools.call("get_observations", {"ids": [1, 2, 3, 4, 5]})

    text = asyncio.run(talk())
    assert len(text) < MAX_RESULT_CHARS + 500
    assert "request again: 4, 5" in text
    assert "project general" in text


def test_no_one_gets_to_a_tool_without_the_token_or_from_elsewhere(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    async def call(_: Tools, name: str, arguments: Any) -> str:
        ran.append(name)
        return "ran"

    monkeypatch.setattr(Tools, "call", call)
    http = TestClient(build_app(service, token=TOKEN, port=PORT), base_url=f"http://127.0.0.1:{PORT}")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {}}}
    for headers, status in (
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer " + "x" * 43}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Host": f"127.0.0.1:{PORT + 1}"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 400),
    ):
        assert http.post("/mcp", json=message, headers={**GOOD, **headers}).status_code == status, headers
    assert ran == []
    for headers in ({}, {"Origin": f"http://localhost:{PORT}"}, {"Host": f"localhost:{PORT}"}):
        answer = http.post("/mcp", json=message, headers={**GOOD, **headers})
        assert answer.json()["result"]["content"][0]["text"] == "ran"
    assert ran == ["search"] * 3


def test_a_tool_that_breaks_says_so_and_nothing_more(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(*_: Any) -> str:
        raise RuntimeError("the inside of it")

    monkeypatch.setattr(Tools, "call", call)
    http = TestClient(build_app(service, token=TOKEN, port=PORT), base_url=f"http://127.0.0.1:{PORT}")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {}}}
    answer = http.post("/mcp", json=message, headers=GOOD)
    assert answer.json()["result"]["isError"] is True
    assert "the inside of it" not in answer.text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"\xff"])
def test_rubbish_is_refused_and_the_next_one_is_served(service: Service, body: bytes) -> None:
    http = TestClient(build_app(service, token=TOKEN, port=PORT), base_url=f"http://127.0.0.1:{PORT}")
    headers = {**GOOD, "Content-Type": "application/json"}
    assert http.post("/mcp", content=body, headers=headers).status_code == 400
    assert http.post("/mcp", json=INITIALIZE, headers=headers).json()["result"]["instructions"] == INSTRUCTIONS


def test_the_sdk_is_not_imported_before_someone_asks() -> None:
    probe = (
        "import sys, claude_mem.worker.serve; print([n for n in ('mcp', 'mcp_types', 'pydantic') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nobody_waits_while_the_sdk_is_imported_nor_when_the_worker_stops(lab: Lab) -> None:
    lab.mem("start")  # a new process, which has imported nothing
    worker = lab.client().worker
    headers = {**GOOD, "Authorization": f"Bearer {worker.token}"}
    base = f"http://127.0.0.1:{worker.port}"

    async def talk() -> None:
        async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
            assert not sdk_in(worker.pid)
            first = asyncio.create_task(http.post(f"{base}/mcp", json=INITIALIZE))
            answered = 0
            while not first.done():
                assert (await http.get(f"{base}/api/readiness")).status_code == 200
                answered += 1
            assert (await first).status_code == 200
            assert sdk_in(worker.pid)
            assert answered > 3  # whoever had waited for the import would have been answered once
            assert await asyncio.to_thread(process.stop_worker, lab.data)  # though we still hold a connection

    asyncio.run(talk())
    log = (lab.data / "logs" / "worker.log").read_text()
    assert "WARNING" not in log
    assert "ERROR" not in log


def sdk_in(pid: int) -> bool:
    """The SDK's compiled part shows in the process's map."""
    return "pydantic_core" in Path(f"/proc/{pid}/maps").read_text()


# --- the bridge ------------------------------------------------------------------------------------------------------


def over_stdio(lab: Lab, *, mode: Any = "legacy") -> mcp.Client:
    environ = {**lab.env(), "CLAUDE_PROJECT_DIR": str(lab.project)}
    return mcp.Client(StdioServerParameters(command=BRIDGE[0], args=BRIDGE[1:], env=environ), mode=mode)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_bridge_carries_everything_and_knows_the_folder(shared: Lab, mode: str) -> None:
    async def talk() -> None:
        async with over_stdio(shared, mode=mode) as client:
            assert client.instructions == INSTRUCTIONS
            assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)
            failed, text = said(await client.call_tool("search", {"query": "jwt login ‹ü›"}))
            assert not failed
            assert "The jwt login works" in text
            assert "[shop]" in said(await client.call_tool("session_context"))[1]
            assert said(await client.call_tool("nothing"))[0]

    asyncio.run(talk())


def test_the_bridge_starts_a_worker_and_finds_the_next_one(lab: Lab) -> None:
    remember(lab)

    async def talk() -> None:
        async with over_stdio(lab) as client:
            first = lab.client().worker
            assert said(await client.call_tool("save_memory", {"text": "The moon is made of rock."}))[1]
            lab.mem("restart")
            assert "moon" in said(await client.call_tool("search", {"query": "moon rock"}))[1]
            lab.mem("stop")
            assert "moon" in said(await client.call_tool("search", {"query": "moon rock"}))[1]
            assert lab.client().worker.pid != first.pid

    asyncio.run(talk())


def test_the_bridge_survives_whatever_comes_in(shared: Lab) -> None:
    lines = [
        b"no json",
        b"",
        b"[" * 100_000,
        b"\xff\xfe",
        b"[]",
        b"17",
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"id": 7, "method": "search"}',
        b'{"jsonrpc": "2.0", "id": 8, "result": {}}',
        b'{"jsonrpc": "2.0", "id": "nine", "method": "nothing/such"}',
        json.dumps(INITIALIZE).encode(),
        b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}',  # and no end of line
    ]
    done = subprocess.run(
        BRIDGE, input=b"\n".join(lines), env=shared.env(), capture_output=True, timeout=SECONDS, check=True
    )
    assert done.stderr == b""
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    errors = {answer["id"]: answer["error"]["code"] for answer in answers if "error" in answer and answer["id"]}
    assert [answer["id"] for answer in answers] == [None] * 5 + [7, "nine", 1, 2]
    assert errors.keys() == {7, "nine"}
    assert errors["nine"] == -32601
    assert answers[-1]["result"] == {}


def test_the_bridge_says_what_to_do_when_no_worker_can_be_had(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.no_worker()
    monkeypatch.setattr(bridge, "START_SECONDS", 0.2)
    spoken = bridge.Bridge(str(lab.data))
    answer = spoken.answer(json.dumps(INITIALIZE).encode())
    assert answer
    assert answer["id"] == 1
    assert "claude-mem doctor" in json.dumps(answer)
    assert spoken.answer(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None


def test_a_message_the_worker_may_have_acted_on_is_not_sent_twice(lab: Lab) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            channel, _ = listener.accept()
            with channel:
                heard.append(channel.recv(1 << 16))

        thread = threading.Thread(target=hang_up)
        thread.start()
        lab.data.mkdir(mode=0o700)
        port = listener.getsockname()[1]
        (lab.data / "worker.json").write_text(json.dumps({"port": port, "token": "x"}))
        os.mkfifo(lab.data / "worker.fifo")
        pipe = os.open(lab.data / "worker.fifo", os.O_RDONLY | os.O_NONBLOCK)
        answer = bridge.Bridge(str(lab.data)).answer(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}')
        os.close(pipe)
        thread.join()
    assert len(heard) == 1
    assert answer
    assert "closed the connection" in json.dumps(answer)


def test_the_token_is_not_shown_to_whoever_has_a_dead_workers_port(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "START_SECONDS", 0.2)
    monkeypatch.setattr(hook, "start_worker", lambda *_, **__: False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        lab.data.mkdir(mode=0o700)
        (lab.data / "worker.json").write_text(json.dumps({"port": listener.getsockname()[1], "token": "secret"}))
        os.mkfifo(lab.data / "worker.fifo")
        answer = bridge.Bridge(str(lab.data)).answer(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}')
        with pytest.raises(TimeoutError):
            listener.accept()
    assert "does not answer" in json.dumps(answer)


def test_a_bridge_that_outlives_us_starts_nothing(lab: Lab) -> None:
    lab.mem("install", "--yes", "--host", "claude")
    with subprocess.Popen(BRIDGE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.env()) as left:
        assert left.stdin and left.stdout
        left.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        left.stdin.flush()
        left.stdout.readline()
        lab.mem("uninstall", "--yes", "--delete-data")
        left.stdin.write(b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "search"}}\n')
        left.stdin.flush()
        assert b"uninstalled" in left.stdout.readline()
    assert not lab.data.exists()


ASKED = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",'
    b' "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}\n'
    b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}\n'
)


def spoken(lab: Lab, **env: str) -> list[Any]:
    done = subprocess.run(BRIDGE, input=ASKED, env=lab.env(**env), capture_output=True, timeout=SECONDS, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_client_does_not_wait_for_a_worker_that_hangs_or_is_gone(lab: Lab) -> None:
    lab.mem("start")
    first = spoken(lab)
    assert [answer["id"] for answer in first] == [1, 2]
    pid = process.lock_holder(lab.data)
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert spoken(lab) == first  # a question to the worker would end in an error
    finally:
        os.kill(pid, signal.SIGCONT)
    lab.mem("stop")
    assert spoken(lab) == first
    assert process.lock_holder(lab.data) is None
    kept = lab.data / bridge.CACHE_FILE
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text(kept.read_text().replace('"search"', '"of another version"').replace('"of": "', '"of": "9'))
    assert spoken(lab) == first


def test_an_agent_that_works_for_us_gets_no_tools_and_no_worker(lab: Lab) -> None:
    assert spoken(lab, CLAUDE_MEM_INTERNAL="1") == []
    assert process.lock_holder(lab.data) is None


def test_the_bridge_loads_next_to_nothing() -> None:
    source = str(Path(bridge.__file__).parents[1])
    probe = f"import sys; sys.path.insert(0, {source!r}); import claude_mem.bridge; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert [name for name in loaded if name.startswith("claude_mem")] == [
        "claude_mem",
        "claude_mem.hook",
        "claude_mem.bridge",
    ]
    assert len(loaded) < 70
