"""How a browser is let in, and who is not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest
from starlette.testclient import TestClient

from claude_mem.cli.view import page_of
from claude_mem.config import Config
from claude_mem.worker import visits
from claude_mem.worker.api import build_app
from claude_mem.worker.service import Service
from claude_mem.worker.visits import Visits
from tests.lab import Lab

TOKEN = "t" * 43
PORT = 37777
BASE = f"http://127.0.0.1:{PORT}"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
OURS = {"Origin": BASE}


@pytest.fixture
def http(config: Config) -> Iterator[TestClient]:
    async def build() -> Service:
        return Service(config)

    service = asyncio.run(build())
    yield TestClient(build_app(service, token=TOKEN, port=PORT), base_url=BASE, follow_redirects=False)
    service.close()


def _link(http: TestClient, path: str = "/") -> str:
    url: str = http.post("/api/open", headers=GOOD, json={"path": path}).json()["url"]
    assert url.startswith(f"{BASE}/open?code=")
    return url.removeprefix(BASE)


def test_a_link_becomes_a_cookie_once(http: TestClient) -> None:
    link = _link(http, "/search?q=x")
    answer = http.get(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/search?q=x")
    said = answer.headers["set-cookie"]
    assert "HttpOnly" in said
    assert "SameSite=strict" in said
    assert TOKEN not in said
    assert http.get("/api/health").status_code == 200  # the client keeps cookies, as a browser does
    http.cookies.clear()
    assert http.get(link).status_code == 401
    assert http.get("/api/health").status_code == 401


def test_looking_ahead_does_not_use_a_link_up(http: TestClient) -> None:
    link = _link(http)
    assert http.head(link).status_code == 401
    assert http.get(link).status_code == 303


@pytest.mark.parametrize("code", ["", "x", "?", "é", "x" * 5000])
def test_a_made_up_code_opens_nothing(http: TestClient, code: str) -> None:
    _link(http)
    answer = http.get("/open", params={"code": code})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_link_ends(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "LINK_SECONDS", -1)
    assert http.get(_link(http)).status_code == 401


@pytest.mark.parametrize("path", ["//evil.example/", "https://evil.example/", "evil", "/\\evil.example"])
def test_a_link_leads_to_no_one_else(http: TestClient, path: str) -> None:
    assert http.post("/api/open", headers=GOOD, json={"path": path}).status_code == 400


def test_only_our_own_page_changes_anything_with_the_cookie(http: TestClient) -> None:
    http.get(_link(http))
    body = {"text": "x", "project": "p"}
    assert http.post("/api/memory/save", json=body).status_code == 401
    assert http.post("/api/memory/save", json=body, headers={"Origin": "http://127.0.0.1:3000"}).status_code == 403
    assert http.post("/api/memory/save", json=body, headers={**OURS, "Sec-Fetch-Site": "same-site"}).status_code == 403
    assert http.post("/api/memory/save", json=body, headers=OURS).status_code == 200


def test_a_cookie_is_ours_whole_and_not_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Visits(TOKEN, PORT)
    good = f"{ours.cookie_name}={ours.cookie()}"
    assert ours.knows(good)
    assert Visits(TOKEN, PORT).knows(f"other=1; {good}")  # after a restart, among others
    assert not Visits("u" * 43, PORT).knows(good)
    assert not Visits(TOKEN, PORT + 1).knows(good)
    until, rest = good.split("=")[1].split(".", 1)
    assert not ours.knows(f"{ours.cookie_name}={int(until) + 1}.{rest}")
    for bad in (
        "",
        "=",
        "a",
        f"{ours.cookie_name}=",
        f"{ours.cookie_name}=..",
        f"{ours.cookie_name}=1.x.é",
        "\0;=" * 9,
    ):
        assert not ours.knows(bad)
    monkeypatch.setattr(visits, "COOKIE_SECONDS", -1)
    assert not ours.knows(f"{ours.cookie_name}={ours.cookie()}")


def test_a_browser_that_is_not_known_is_told_what_to_do(http: TestClient) -> None:
    answer = http.get("/", headers={"Sec-Fetch-Dest": "document"})
    assert answer.status_code == 401
    assert "claude-mem open" in answer.text


def test_an_address_that_is_none_is_told_in_words_by_the_page(http: TestClient) -> None:
    http.get(_link(http))
    assert http.get("/nowhere").json()["error"] == "not found"
    answer = http.get("/nowhere", headers={"Sec-Fetch-Dest": "document"})
    assert answer.headers["content-type"].startswith("text/html")


def test_every_answer_forbids_what_is_not_ours(http: TestClient) -> None:
    for path in ("/", "/static/app.js", "/api/health", "/nowhere", "/healthz", "/open"):
        for headers in (GOOD, {}):
            policy = http.get(path, headers=headers).headers["content-security-policy"]
            assert policy.startswith("default-src 'none';")
            assert not re.search(r"unsafe|\*|http", policy)


@pytest.mark.parametrize(
    "name", ["../guard.py", "..%2fguard.py", "%2e%2e/guard.py", "/etc/passwd", "views", "", "x.js"]
)
def test_no_file_but_the_viewers_own_is_served(http: TestClient, name: str) -> None:
    assert http.get(f"/static/{name}", headers=GOOD).status_code == 404


def test_an_unchanged_file_is_not_sent_again(http: TestClient) -> None:
    first = http.get("/static/app.js", headers=GOOD)
    assert first.status_code == 200
    again = http.get("/static/app.js", headers={**GOOD, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_open_prints_a_link_that_works(lab: Lab) -> None:
    link = lab.mem("open", "--print", "why", "rounding").stdout.strip()
    port = lab.client().worker.port
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", link.removeprefix(f"http://127.0.0.1:{port}"))
        answer = connection.getresponse()
    assert (answer.status, answer.getheader("location")) == (303, "/search?q=why+rounding")


def test_what_is_asked_for_is_the_page_that_opens() -> None:
    assert page_of([]) == "/"
    assert page_of(["#12"]) == page_of(["12"]) == "/observation/12"
    assert page_of(["why", "12"]) == "/search?q=why+12"
