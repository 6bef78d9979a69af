"""A tiny server of spaces over real HTTP, as `docs/sync.md` describes its routes: for tests of the client."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from claude_mem.domain import frames
from claude_mem.sync.transports.base import take_page

TOKEN = "token-of-this-device"


class SpaceServer(ThreadingHTTPServer):
    """`answer`: what to send instead of the right answer, for tests of a server that misbehaves."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.manifests: dict[str, bytes] = {}
        self.logs: dict[tuple[str, str], list[bytes]] = {}
        self.seen: list[str] = []
        self.revoked: list[str] = []
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SpaceServer

    def do_GET(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_DELETE(self) -> None:
        self._handle()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(f"{self.command} {self.path}")
        with self.server.lock:
            status, headers, answer = self.server.answer or self._answer(body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer if status != 204 else b"")

    def _answer(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(self.path)
        query = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
        if self.command == "POST" and parts.path == "/v1/devices":
            if json.loads(body)["code"] != "one-time-code":
                return 403, {}, b'{"error": "not_found", "message": "the code was used or is wrong"}'
            return 200, {}, json.dumps({"token": TOKEN}).encode()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {}, b'{"error": "unauthorized", "message": "no such token"}'
        if self.command == "DELETE":
            self.server.revoked.append(parts.path.rpartition("/")[2])
            return 204, {}, b""
        if parts.path == "/v1/spaces":
            return 201, {}, b"{}"
        match = re.fullmatch(r"/v1/spaces/([0-9a-f]{32})/(manifest|heads|logs/([0-9a-f]{16}))", parts.path)
        if not match:
            return 404, {}, b'{"error": "no such route"}'
        space, what, device = match.groups()
        if what == "manifest":
            return self._manifest(space, body)
        if what == "heads":
            heads = {each: len(log) for (owner, each), log in self.server.logs.items() if owner == space}
            return 200, {}, json.dumps({"heads": heads}).encode()
        return self._log((space, device), query, body)

    def _manifest(self, space: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        current = self.server.manifests.get(space)
        tag = f'"{hashlib.sha256(current).hexdigest()}"' if current is not None else None
        if self.command == "GET":
            return (200, {"ETag": tag}, current) if current is not None and tag else (404, {}, b"{}")
        if (self.headers.get("If-None-Match") == "*" and tag) or self.headers.get("If-Match", tag) != tag:
            return 412, {}, b"{}"
        self.server.manifests[space] = body
        return 204, {}, b""

    def _log(self, key: tuple[str, str], query: dict[str, int], body: bytes) -> tuple[int, dict[str, str], bytes]:
        log = self.server.logs.setdefault(key, [])
        if self.command == "GET":
            return 200, {}, frames.encode(take_page(log[query["after"] :], query["limit"]))
        entries, after = frames.decode(body), query["after"]
        present = log[after : after + len(entries)]
        if after > len(log) or present != entries[: len(present)]:
            return 409, {}, json.dumps({"head": len(log)}).encode()
        log += entries[len(present) :]
        return 204, {}, b""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def space_server() -> Iterator[SpaceServer]:
    server = SpaceServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
