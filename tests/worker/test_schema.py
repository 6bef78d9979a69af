"""The OpenAPI document tells the truth, and whatever a request says, no route breaks.

Here every route gets a few dozen odd values; `make proof` lets schemathesis make up thousands, against a real worker.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from starlette.types import ASGIApp, Message

from claude_mem.config import Config
from claude_mem.worker.app import Service
from claude_mem.worker.http import api, openapi
from claude_mem.worker.http.api import ROUTES
from claude_mem.worker.http.routes import sessions
from tests.support import proof
from tests.support.lab import Lab

TOKEN, PORT = "t" * 43, 37777
SKIPPED = ("/stream", "/api/token/rotate")  # the one never ends; after the other every request is refused


# --- the document ----------------------------------------------------------------------------------------------------


def test_every_route_is_in_the_document() -> None:
    document = openapi.build_document(ROUTES)
    found = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    assert found == {(path.replace(":path", ""), method) for path, handlers in ROUTES.items() for method in handlers}
    names = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(set(names)) == len(names)


def test_the_command_prints_it(lab: Lab) -> None:
    document = json.loads(lab.mem("routes", "--openapi").stdout)
    limit = document["paths"]["/api/observations"]["get"]["parameters"][0]
    assert limit == {"name": "limit", "in": "query", "required": False,
                     "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}}  # fmt: skip
    body = document["paths"]["/api/observations/batch"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (body["required"], body["properties"]["ids"]["maxItems"]) == (["ids"], 200)
    answer = document["paths"]["/api/line"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    counts = document["components"]["schemas"][answer["$ref"].rpartition("/")[2]]
    assert counts["required"] == ["known", "today", "all", "queued", "set_aside"]
    assert {item["type"] for item in counts["properties"].values()} == {"integer"}


# --- odd values ------------------------------------------------------------------------------------------------------

IDS = ["0", "1", "-1", "99999999999999999999", "٣", "1e3", "%00", "%FF", "%ED%A0%80", "é", "1;2", "a" * 300]
VALUES = ["", "0", "-1", "1" * 30, "NaN", "\0", "\ud800", "\udcff", "😀" * 50, "'\"--", "9999-99-99", "253402300800000",
          "%", "a" * 5000, "{}", "[1]", "../..", "2026-02-30", "true"]  # fmt: skip
BODIES = [b"", b"[]", b"null", b"1e999", b'"x"', b"{", b"\xff", b'{"\\ud800": "\\ud800"}', b"[" * 5000, b"{}"]
THINGS: list[Any] = [None, True, -1, 1 << 63, 1 << 200, 1.5, 1e308, "", "\0", "\ud800", "/", "/dev/null", "x" * 5000, [], [[]], ["x"],
                     [None], [1 << 62], {}, {"a": {"b": []}}]  # fmt: skip


def _requests() -> Iterator[tuple[str, str, bytes]]:
    """Method, address, body: one odd thing at a time."""
    for path, item in openapi.build_document(ROUTES)["paths"].items():
        if path in SKIPPED:
            continue
        plain = re.sub(r"{\w+}", "1", path)
        for method, operation in item.items():
            for odd in IDS if "{" in path else ():
                yield method, re.sub(r"{\w+}", odd, path), b"{}"
            names = [part["name"] for part in operation["parameters"] if part["in"] == "query"]
            for number, odd in enumerate(VALUES):
                for name in names if len(names) < 4 else names[number % 3 :: 3]:
                    yield method, f"{plain}?{name}={quote(odd, errors='surrogatepass')}", b"{}"
            if "requestBody" in operation:
                yield from ((method, plain, body) for body in BODIES)
                schema = next(iter(operation["requestBody"]["content"].values()))["schema"]
                full = dict.fromkeys(schema.get("required", ()), "x")
                for number, odd in enumerate(THINGS):
                    for name in list(schema.get("properties", {}))[number % 2 :: 2]:
                        yield method, plain, json.dumps({**full, name: odd}).encode()


def test_no_odd_value_breaks_a_route(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "INIT_SECONDS", 0)  # no loop runs here that would take it in
    counts, broken = asyncio.run(_sweep(config))
    assert broken == []
    assert sum(counts.values()) > 2500
    assert {200, 400, 404} <= counts.keys()
    proof.record(
        "odd values: answers of 5xx",
        of="I6 I2",
        goal="0",
        measured=0,
        ok=True,
        unit=f"of {sum(counts.values())} requests",
    )


async def _sweep(config: Config) -> tuple[Counter[int], list[str]]:
    """Straight to the app: a client in between would take most of the time."""
    service, counts, broken = Service(config), Counter[int](), []
    app = api.build_app(service, token=TOKEN, port=PORT)
    try:
        for method, address, body in _requests():
            if not address.startswith(("/mcp", "/api/backup")):  # schemathesis asks these
                status, said = await _ask(app, method.upper(), address, body)
                counts[status] += 1
                if status >= 500 or (status >= 400 and set(json.loads(said)) != {"error", "hint"}):
                    broken.append(f"{method} {address[:200]} {body[:200]!r}: {status} {said!r}")
    finally:
        service.close()
    return counts, broken


async def _ask(app: ASGIApp, method: str, address: str, body: bytes) -> tuple[int, bytes]:
    sent: list[Message] = []
    asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return asked.pop() if asked else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    path, _, query = address.partition("?")
    headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "scheme": "http",
             "query_string": query.encode(), "headers": headers, "http_version": "1.1", "root_path": "",
             "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1)}  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


# --- schemathesis ----------------------------------------------------------------------------------------------------

EXAMPLES = 150  # an operation
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not proof.long(), reason="made-up requests by the thousand: `make proof`")
def test_schemathesis_finds_nothing(lab: Lab, tmp_path: Path) -> None:
    worker = _filled(lab)
    document, report = tmp_path / "openapi.json", tmp_path / "report.ndjson"
    document.write_text(lab.mem("routes", "--openapi").stdout)
    words = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(document)),
        *("--url", f"http://127.0.0.1:{worker.port}", "-H", f"Authorization: Bearer {worker.token}"),
        *("--checks", CHECKS, "--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing,stateful"),
        *("--workers", "2"),
        *(word for path in SKIPPED for word in ("--exclude-path", path)),
        *("--report", "ndjson", "--report-ndjson-path", str(report), "--generation-database", "none", "--no-color"),
        *("--continue-on-failure", "--warnings", "off"),
    ]
    done = subprocess.run(words, cwd=tmp_path, env=lab.env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
    cases = re.search(r"(\d+) generated", done.stdout)
    count = int(cases[1]) if cases else 0
    assert count >= 2000, done.stdout[-2000:]
    assert "Traceback" not in (lab.data / "logs" / "worker.log").read_text()
    proof.record(
        "schemathesis: answers of 5xx or against the document", of="I6", goal="0 over ≥ 2,000 requests", measured=0,
        ok=True, unit=f"of {count} requests to {sum(map(len, ROUTES.values()))} operations", note=f"{EXAMPLES} examples an operation; stateful, too",
    )  # fmt: skip


def _filled(lab: Lab) -> Any:
    """A worker that knows something, so that not every number leads nowhere."""
    lab.spool("SessionStart", source="startup")
    lab.spool("UserPromptSubmit", prompt="paint the lighthouse")
    edit = {"file_path": str(lab.project / "paint.py"), "old_string": "red", "new_string": "white"}
    lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, tool_use_id="t1")
    lab.spool("Stop", last_assistant_message="Painted the lighthouse white in paint.py.")
    client = lab.start()
    lab.wait_digested()
    for number in range(5):
        client.post("/api/memory/save", {"text": f"memory {number} of the lighthouse", "cwd": str(lab.project)})
    return client.worker
