"""The port: every route under every name, from every page, by every method, with every kind of body and every
credential. Refused before a handler runs, or let in; an oracle that shares nothing with the guard says which.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message

from claude_mem.worker.http import api
from claude_mem.worker.http.auth import BrowserSessions
from claude_mem.worker.http.route import RawRoute
from claude_mem.worker.http.schemas.viewer import Admission
from tests.support import proof

TOKEN, PORT = "t" * 43, 37777
HERE = f"127.0.0.1:{PORT}"
# What anyone may look at: files without data. Written out here, so that a route that becomes public is noticed.
PUBLIC = {
    "/", "/search", "/sessions", "/session/{id}", "/observation/{id}", "/projects", "/project/{id}", "/context", "/cost",
    "/health", "/logs", "/settings", "/quarantine", "/changes", "/open", "/open/again", "/static/{name:path}", "/healthz",
}  # fmt: skip
BY_CODE = {"/open", "/open/again"}  # the body has to hold a code, or a proof
BY_TOKEN_ONLY = {
    "/api/open", "/api/open/{id}", "/api/token/rotate", "/api/import", "/api/backfill", "/api/backfill/look",
    "/api/backfill/refine", "/api/compress", "/api/why", "/mcp",
}  # fmt: skip
PARTS = 8 if proof.long() else 1

# Each as the headers that are sent: name and value, in order.
Lines = tuple[tuple[str, str], ...]
GOOD_HOSTS: dict[str, Lines] = {
    "address": (("host", HERE),),
    "localhost": (("host", f"localhost:{PORT}"),),
    "ipv6": (("host", f"[::1]:{PORT}"),),
}
BAD_HOSTS: dict[str, Lines] = {
    "missing": (),
    "empty": (("host", ""),),
    "foreign": (("host", f"evil.example:{PORT}"),),
    "look-alike address": (("host", f"127.0.0.1.evil.example:{PORT}"),),
    "look-alike name": (("host", f"localhost.evil.example:{PORT}"),),
    "trailing dot": (("host", f"localhost.:{PORT}"),),
    "capitals": (("host", f"LOCALHOST:{PORT}"),),
    "any address": (("host", f"0.0.0.0:{PORT}"),),
    "any address, ipv6": (("host", f"[::]:{PORT}"),),
    "mapped address": (("host", f"[::ffff:127.0.0.1]:{PORT}"),),
    "short address": (("host", f"127.1:{PORT}"),),
    "decimal address": (("host", f"2130706433:{PORT}"),),
    "hexadecimal address": (("host", f"0x7f000001:{PORT}"),),
    "another port": (("host", "127.0.0.1:80"),),
    "no port": (("host", "127.0.0.1"),),
    "twice": (("host", HERE), ("host", HERE)),
    "comma": (("host", f"{HERE},evil.example"),),
    "user": (("host", f"{HERE}@evil.example"),),
    "underscore": (("host", f"127.0.0.1_:{PORT}"),),
    "unicode dot": (("host", f"127\u30020\u30020\u30021:{PORT}"),),
    "8 KB": (("host", "a" * 8192),),
    "space": (("host", f" {HERE}"),),
    "tab": (("host", f"{HERE}\t"),),
    "forwarded": (("host", "evil.example"), ("x-forwarded-host", HERE)),
}
HOSTS = {**GOOD_HOSTS, **BAD_HOSTS}
OWN_ORIGINS: dict[str, Lines] = {"absent": (), "exact": (("origin", f"http://{HERE}"),)}
BAD_ORIGINS: dict[str, Lines] = {
    "another port": (("origin", "http://127.0.0.1:3000"),),
    "null": (("origin", "null"),),
    "file": (("origin", "file://"),),
    "https": (("origin", f"https://{HERE}"),),
    "look-alike": (("origin", f"http://{HERE}.evil.example"),),
    "trailing dot": (("origin", f"http://localhost.:{PORT}"),),
    "capitals": (("origin", f"HTTP://LOCALHOST:{PORT}"),),
    "with a path": (("origin", f"http://{HERE}/"),),
    "two": (("origin", f"http://{HERE}"), ("origin", f"http://{HERE}")),
    "extension": (("origin", "chrome-extension://abcdefghijklmnop"),),
    "no Origin, but cross-site": (("sec-fetch-site", "cross-site"),),
    "no Origin, but another port": (("sec-fetch-site", "same-site"),),
    "a page of ours in a frame": (("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "iframe")),
    "null, as a page": (("origin", "null"), ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")),
    "preflight": (("origin", "https://evil.example"), ("access-control-request-method", "POST")),
}
# A navigation that began elsewhere: from a private file of ours, or on any page of the web.
ARRIVAL: dict[str, Lines] = {"arrival": (("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document"))}
ORIGINS = {**OWN_ORIGINS, **ARRIVAL, **BAD_ORIGINS}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
TYPES = {
    "json": b"application/json",
    "text": b"text/plain;charset=UTF-8",
    "form": b"application/x-www-form-urlencoded",
    "multipart": b"multipart/form-data; boundary=x",
}


def _let_in() -> tuple[BrowserSessions, str]:
    """Who was let in, and the credential of a browser that was."""
    visits = BrowserSessions(TOKEN, PORT)
    entry = visits.redeem(visits.create_link("/")[1])
    assert isinstance(entry, Admission)
    return visits, entry.credential


VISITS, CREDENTIAL = _let_in()
CREDENTIALS: dict[str, Lines] = {
    "none": (),
    "wrong token": (("authorization", "Bearer " + "x" * 43),),
    "another worker's browser": (("authorization", f"Viewer {_let_in()[1]}"),),
    "as a cookie": (("cookie", f"credential={CREDENTIAL}; claude_mem_{PORT}={CREDENTIAL}; token={TOKEN}"),),
    "the token as a browser's": (("authorization", f"Viewer {TOKEN}"),),
    "a browser's as the token": (("authorization", f"Bearer {CREDENTIAL}"),),
    "twice": (("authorization", f"Viewer {CREDENTIAL}"), ("authorization", f"Bearer {TOKEN}")),
    "browser": (("authorization", f"Viewer {CREDENTIAL}"),),
    "token": (("authorization", f"Bearer {TOKEN}"),),
}
RAW = [
    {name: [(key.encode(), value.encode()) for key, value in lines] for name, lines in some.items()}
    for some in (HOSTS, ORIGINS, CREDENTIALS)
]
PATHS = {path: path.replace("{id}", "1").replace("{name:path}", "app.js") for path in api.ROUTES} | {"nowhere": "/x/y"}


def _taken(address: str) -> set[str]:
    """The methods for which there is a handler; of two routes that fit, the one that has it answers."""
    fitting = {path: re.escape(path).replace(r"\{id\}", "[^/]+").replace(r"\{name:path\}", ".*") for path in api.ROUTES}
    return {
        method for path, pattern in fitting.items() if re.fullmatch(pattern, address) for method in api.ROUTES[path]
    }


TAKEN = {path: _taken(address) for path, address in PATHS.items()}


class Case(NamedTuple):
    host: str
    origin: str
    method: str
    kind: str
    credential: str


def expected(path: str, case: Case) -> int | None:
    """The status of the refusal, or None for who is let in."""
    reads = case.method in ("GET", "HEAD")
    if case.host in BAD_HOSTS or case.origin in BAD_ORIGINS:
        return 403
    if case.origin == "arrival" and not (path == "/open" and reads):
        return 403
    if case.credential == "token" or (path in PUBLIC and reads):
        return None
    if case.credential != "browser" and not (path in BY_CODE and case.method == "POST"):
        return 401
    if path in BY_TOKEN_ONLY:
        return 403
    if reads:
        return None
    if case.origin != "exact":
        return 403
    return None if case.kind == "json" else 415


# --- asking the app, without a client or a loop between ----------------------------------------------------------------


@dataclass
class Door:
    app: ASGIApp
    entered: int = 0  # how often a handler ran

    def ask(self, path: str, case: Case) -> tuple[int, dict[bytes, bytes]]:
        said: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Message) -> None:
            said.append(message)

        raw = [*RAW[0][case.host], *RAW[1][case.origin], *RAW[2][case.credential], (b"content-type", TYPES[case.kind])]
        scope = {"type": "http", "method": case.method, "path": path, "raw_path": path.encode(), "query_string": b"",
                 "headers": raw, "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", PORT), "root_path": "",
                 "client": ("127.0.0.1", 1)}  # fmt: skip
        _finish(self.app(scope, receive, send))
        return said[0]["status"], dict(said[0]["headers"])


def _finish(asked: Awaitable[None]) -> None:
    """Nothing in here waits, so that it needs no loop: thousands of answers a second."""
    try:
        next(asked.__await__())
    except StopIteration:
        return
    raise AssertionError("it waits for something")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """The real app and the real guard, over handlers that only count."""

    async def handler(_: Any, __: Any) -> Response:
        counting.entered += 1
        return JSONResponse({})

    counted = {
        path: {method: RawRoute(method, path, handler) for method in handlers} for path, handlers in api.ROUTES.items()
    }
    monkeypatch.setattr(api, "ROUTES", counted)
    service: Any = None
    counting = Door(api.build_app(service, token=TOKEN, port=PORT, browser_sessions=VISITS))
    return counting


def _all_pairs(shift: int) -> Iterator[Case]:
    """Each value of one thing with each value of each other thing, at least once."""
    lists = (HOSTS, ORIGINS, METHODS, TYPES, CREDENTIALS)
    hosts, origins, methods, kinds, credentials = (list(values) for values in lists)
    for (h, host), (o, origin) in itertools.product(enumerate(hosts), enumerate(origins)):
        m, k, c = h + o + shift, h // 7 + o + shift, h + 2 * o + shift
        yield Case(host, origin, methods[m % len(methods)], kinds[k % len(kinds)], credentials[c % len(credentials)])


def _check(door: Door, path: str, cases: Iterator[Case]) -> tuple[int, int]:
    """How many were refused and let in, each as it should be."""
    refused = let_in = 0
    for case in cases:
        door.entered, wanted = 0, expected(path, case)
        status, headers = door.ask(PATHS[path], case)
        assert b"access-control-allow-origin" not in headers
        if wanted is None:
            method = "GET" if case.method == "HEAD" else case.method
            runs = method in TAKEN[path]
            assert (status, door.entered) == ((200, 1) if runs else (404 if path == "nowhere" else 405, 0)), (
                path,
                case,
            )
            let_in += 1
        else:
            assert (status, door.entered) == (wanted, 0), (path, case)
            refused += 1
    return refused, let_in


def test_the_lists_are_as_long_as_they_should_be() -> None:
    assert (len(HOSTS), len(ORIGINS), len(METHODS), len(TYPES)) >= (24, 14, 7, 4)
    for shift in range(3):
        cases = list(_all_pairs(shift))
        for one, other in itertools.combinations(range(5), 2):
            values = (HOSTS, ORIGINS, METHODS, TYPES, CREDENTIALS)
            seen = {(case[one], case[other]) for case in cases}
            assert len(seen) == len(values[one]) * len(values[other]), (shift, one, other)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_one_comes_in_who_should_not_and_everyone_who_should(door: Door, part: int) -> None:
    """In `make test` every pair of values at every route, in `make proof` the whole product."""
    counts = []
    for number, path in list(enumerate(PATHS))[part::PARTS]:
        whole = (Case(*case) for case in itertools.product(HOSTS, ORIGINS, METHODS, TYPES, CREDENTIALS))
        counts.append(_check(door, path, whole if proof.long() else _all_pairs(number)))
        if path == "/stream":
            proof.record("the live stream: requests refused before it began", of="S8", goal="0 exceptions", measured=counts[-1][0],
                         ok=True, note="the same Hosts, Origins, methods and credentials as every route")  # fmt: skip
    refused, let_in = (sum(column) for column in zip(*counts, strict=True))
    assert refused > 10 * let_in > 0
    proof.record(
        "requests refused before any handler ran",
        of="S1 S2 S4",
        goal="every route × 24 Hosts × 14 Origins × 7 methods × 4 content types; 0 exceptions",
        measured=refused,
        ok=True,
        tally=True,
        note=f"{len(HOSTS)} Hosts, {len(ORIGINS)} Origins, {len(CREDENTIALS)} credentials",
    )
    proof.record(
        "requests let in, each as it should be", of="S1 S2 S4", goal="> 0", measured=let_in, ok=let_in > 0, tally=True
    )
