"""A real worker: what is said on its socket, who reaches it, all five clients with the token on, and another token."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from claude_mem.client import Client
from claude_mem.domain.errors import OperationFailed
from claude_mem.system import process
from claude_mem.system.process import WorkerInfo
from tests.support import login, proof
from tests.support.lab import BRIDGE, Lab
from tests.support.waiting import SECONDS

# {host} and {token} are whole lines that are right: only the shape is wrong.
SHAPES = {
    "two hosts, both ours": "GET /api/health HTTP/1.1\r\n{host}{host}{token}\r\n",
    "two hosts, one foreign": "GET /api/health HTTP/1.1\r\nHost: evil\r\n{host}{token}\r\n",
    "no host, HTTP/1.0": "GET /api/health HTTP/1.0\r\n{token}\r\n",
    "no host, HTTP/1.1": "GET /api/health HTTP/1.1\r\n{token}\r\n",
    "a foreign address, our host": "GET http://evil.example/api/health HTTP/1.1\r\n{host}{token}\r\n",
    "our address, a foreign host": "GET http://127.0.0.1:{port}/api/health HTTP/1.1\r\nHost: evil\r\n{token}\r\n",
    "an address without a scheme": "GET //evil.example/api/health HTTP/1.1\r\n{host}{token}\r\n",
    "a tunnel": "CONNECT 127.0.0.1:{port} HTTP/1.1\r\n{host}{token}\r\n",
    "no path": "OPTIONS * HTTP/1.1\r\n{host}{token}\r\n",
    "a host of 8 KB": "GET /api/health HTTP/1.1\r\nHost: {8k}\r\n{token}\r\n",
    "a head of 80 KB": "GET /api/health HTTP/1.1\r\n{host}{token}X: {80k}\r\n\r\n",
    "a head without an end": "GET /api/health HTTP/1.1\r\n{host}{token}X: {80k}{80k}{80k}{80k}",
    "a space before the colon": "GET /api/health HTTP/1.1\r\nHost : 127.0.0.1:{port}\r\n{token}\r\n",
    "a header over two lines": "GET /api/health HTTP/1.1\r\nHost:\r\n 127.0.0.1:{port}\r\n{token}\r\n",
    "NUL": "GET /api/health HTTP/1.1\r\nHost: 127.0.0.1:{port}\0\r\n{token}\r\n",
    "LF alone": "GET /api/health HTTP/1.1\nHost: 127.0.0.1:{port}\n\n",
    "CR alone": "GET /api/health HTTP/1.1\rHost: 127.0.0.1:{port}\r\r",
    "length and chunks": "POST /api/processing HTTP/1.1\r\n{host}{token}Content-Length: 4\r\n"
    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /api/health HTTP/1.1\r\n{host}{token}\r\n",
    "two encodings": "POST /api/processing HTTP/1.1\r\n{host}{token}Transfer-Encoding: chunked\r\n"
    "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an encoding that looks alike": "POST /api/processing HTTP/1.1\r\n{host}{token}Transfer-Encoding: xchunked\r\n\r\n",
    "two lengths": "POST /api/processing HTTP/1.1\r\n{host}{token}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length with a sign": "POST /api/processing HTTP/1.1\r\n{host}{token}Content-Length: +2\r\n\r\n{}",
    "a length below zero": "POST /api/processing HTTP/1.1\r\n{host}{token}Content-Length: -1\r\n\r\n{}",
    "a length beyond numbers": "POST /api/processing HTTP/1.1\r\n{host}{token}Content-Length: 99999999999999999999\r\n\r\n",
    "a chunk beyond numbers": "POST /api/processing HTTP/1.1\r\n{host}{token}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9": "GET /api/health HTTP/9.9\r\n{host}{token}\r\n",
    "a web socket": "GET /stream HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n\r\n",
    "the token after the body": "POST /api/processing HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n"
    "Trailer: Authorization\r\n\r\n2\r\n{}\r\n0\r\n{token}\r\n",
    "the host after the body": "POST /api/processing HTTP/1.1\r\n{token}Transfer-Encoding: chunked\r\n"
    "Trailer: Host\r\n\r\n2\r\n{}\r\n0\r\n{host}\r\n",
    "two tokens": "GET /api/health HTTP/1.1\r\n{host}{token}Authorization: Bearer x\r\n\r\n",
    "an open path, and back": "GET /healthz/../api/health HTTP/1.1\r\n{host}\r\n",
    "an open path, escaped": "GET /healthz%2f..%2fapi%2fhealth HTTP/1.1\r\n{host}\r\n",
    "an open path, with more": "GET /healthz;/api/health HTTP/1.1\r\n{host}\r\n",
    "a shut path, escaped": "GET /%61pi/health HTTP/1.1\r\n{host}\r\n",
}


def said(worker: WorkerInfo, text: str, *, answers: int = 1) -> list[int]:
    """The statuses that come back."""
    for name, line in (
        ("host", f"Host: 127.0.0.1:{worker.port}\r\n"), ("token", f"Authorization: Bearer {worker.token}\r\n"),
        ("port", str(worker.port)), ("8k", "a" * 8192), ("80k", "a" * 80_000),
    ):  # fmt: skip
        text = text.replace("{" + name + "}", line)
    with socket.create_connection(("127.0.0.1", worker.port), timeout=SECONDS) as connection:
        heard = b""
        try:
            connection.sendall(text.encode())
            while heard.count(b"HTTP/1.1 ") < answers and (chunk := connection.recv(65536)):
                heard += chunk
        except (BrokenPipeError, ConnectionResetError):
            pass  # it would not hear the rest
    return [int(part[:3]) for part in heard.split(b"HTTP/1.1 ")[1:]]


def test_no_shape_of_a_request_slips_through(lab: Lab) -> None:
    worker = lab.start().worker
    found = {name: said(worker, text) for name, text in SHAPES.items()}
    assert {name: statuses for name, statuses in found.items() if not set(statuses) <= {400, 401, 403, 404}} == {}
    assert sum(map(len, found.values())) >= len(SHAPES) - 2
    second = (
        "GET /api/health HTTP/1.1\r\n{host}{token}\r\nGET /api/health HTTP/1.1\r\n"  # the first opens no door to it
    )
    assert said(worker, second + "Host: evil\r\n{token}\r\n", answers=2) == [200, 403]
    assert said(worker, second + "{host}\r\n", answers=2) == [200, 401]
    proof.record(
        "raw requests: shapes that got through", of="S1 S2", goal="0", measured=0, ok=True,
        unit=f"of {len(SHAPES) + 2} (two Hosts, none, whole addresses, smuggling, upgrades, trailers)",
    )  # fmt: skip


# --- loopback only ---------------------------------------------------------------------------------------------------


def listening(pid: int) -> set[str]:
    """The addresses at which a process listens, of every family, as the kernel tells them."""
    sockets: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if "socket:" in str(target := link.readlink()):
                sockets.add(target.name)
    found = set()
    for family in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            local, state, inode = line.split()[1], line.split()[3], line.split()[9]
            if f"socket:[{inode}]" in sockets and (state == "0A" or family.startswith("udp")):
                found.add(f"{family} {local}")
    return found


def test_it_listens_on_the_loopback_address_and_nowhere_else(lab: Lab) -> None:
    if not Path("/proc/net/tcp").exists():
        pytest.skip("only Linux tells what a process listens on")
    worker = lab.start().worker
    assert listening(worker.pid) == {f"tcp 0100007F:{worker.port:04X}"}
    others = {"127.0.0.2", *_own_addresses()}
    for address in others:
        with pytest.raises(OSError):
            socket.create_connection((address, worker.port), timeout=2)
    proof.record(
        "sockets that listen", of="S3", goal="127.0.0.1 only", measured=1, ok=True,
        unit=f"(127.0.0.1); {len(others)} other address(es) of this machine refuse",
    )  # fmt: skip


def _own_addresses() -> set[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the kernel picks the address it would send from
        except OSError:
            return set()
        own = str(probe.getsockname()[0])
    return {own} - {"127.0.0.1"}


# --- the five clients, with the token on -----------------------------------------------------------------------------


class Browser:
    """What the page does: it presents the code once, sends its credential, and an Origin when it changes something."""

    def __init__(self, lab: Lab) -> None:
        self.port = lab.client().worker.port
        link = lab.mem("open", "--print").stdout.strip()
        self.credential = login.logged_in(link)
        self.page = {**self.credential, "Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, headers: dict[str, str], body: Any = None) -> tuple[int, Any, bytes]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read() if path != "/stream" else b""

    def sees(self) -> int:
        return self.ask("GET", "/api/health", self.credential)[0]

    def listens(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        lines = [f"Host: 127.0.0.1:{self.port}", *(f"{name}: {value}" for name, value in self.credential.items())]
        connection.sendall("\r\n".join(["GET /stream HTTP/1.1", *lines, "", ""]).encode())
        return connection


class Agent:
    """An MCP client: the bridge, as a program of its own, one line in and one out."""

    def __init__(self, lab: Lab) -> None:
        self.program = subprocess.Popen(BRIDGE, env=lab.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0

    def works(self) -> bool:
        self.number += 1
        call = {"name": "search", "arguments": {"query": "lighthouse"}}
        message = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": call}
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(json.dumps(message).encode() + b"\n")
        self.program.stdin.flush()
        return b"lighthouse" in self.program.stdout.readline()

    def close(self) -> None:
        self.program.communicate(timeout=SECONDS)


def told(lab: Lab) -> bool:
    """Is a session told, at its start, what is known? From the worker: what lies on disk is taken away before."""
    for path in (lab.data / "starts").glob("*"):
        path.unlink()
    answer = lab.hook("SessionStart", source="startup")
    return "lighthouse" in json.dumps(answer)


def heard(connection: socket.socket, word: bytes) -> bool:
    text = b""
    while word not in text and (chunk := connection.recv(65536)):
        text += chunk
    return word in text


def test_all_five_clients_get_in_and_go_on_with_another_token(lab: Lab) -> None:
    client = lab.start()
    client.post("/api/memory/save", {"text": "the lighthouse needs new paint", "cwd": str(lab.project)})
    browser = Browser(lab)
    with closing(Agent(lab)) as agent, closing(browser.listens()) as stream:
        assert heard(stream, b"connected")
        assert told(lab)
        assert works(lab, agent) == {"command line": True, "MCP": True}
        assert browser.sees() == 200
        assert browser.ask("POST", "/api/processing", browser.page, {"isProcessing": True})[0] == 200
        assert heard(stream, b"processing_status")

        old = (lab.data / "token").read_text()
        lab.mem("token", "rotate")
        assert (lab.data / "token").read_text() != old
        assert {(lab.data / name).stat().st_mode & 0o777 for name in ("token", "worker.json")} == {0o600}
        assert browser.sees() == 401
        assert not heard(stream, b"no such thing")  # whoever listens is let go
        with pytest.raises(OperationFailed, match="no valid token"):
            client.get("/api/health")
        after = works(lab, agent)
        assert after == {"command line": True, "MCP": True}
    assert told(lab)
    again = Browser(lab)
    assert again.sees() == 200
    with closing(again.listens()) as stream:
        assert heard(stream, b"connected")
    proof.record(
        "token rotation: failed calls of a client that lives on",
        of="S4",
        goal="≤ 1 each",
        measured=list(after.values()).count(False),
        ok=True,
        note="command line, MCP bridge and hook read worker.json anew; the old token, login and stream end at once",
    )


def works(lab: Lab, agent: Agent) -> dict[str, bool]:
    found = "lighthouse" in lab.mem("search", "lighthouse").stdout
    return {"command line": found, "MCP": agent.works()}


KINDS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "")


def test_our_own_page_too_must_say_json(lab: Lab) -> None:
    """So that what a form sends is never understood, should anyone ever get one past the Origin."""
    lab.start()
    browser = Browser(lab)
    for kind in KINDS:
        asked = {**browser.page, "Content-Type": kind}
        assert browser.ask("POST", "/api/processing", asked, {"isProcessing": True})[0] == 415
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        asked = {**browser.page, "Content-Type": kind}
        assert browser.ask("POST", "/api/processing", asked, {"isProcessing": True})[0] == 200


def test_a_token_can_be_changed_while_nothing_runs_and_outlives_a_restart(lab: Lab) -> None:
    lab.mem("token", "rotate")
    first = (lab.data / "token").read_text()
    assert len(first) >= 43
    assert lab.start().worker.token == first
    lab.mem("token", "rotate")
    second = process.read_worker_info(lab.data)
    assert second is not None and second.token != first
    lab.mem("restart")
    assert lab.client().worker.token == second.token
    assert Client.of(lab.data).get("/api/health")["status"] == "ok"
