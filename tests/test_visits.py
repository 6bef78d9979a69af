"""How a browser is let in, and who is not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse

import pytest
from starlette.testclient import TestClient

from claude_mem.cli.view import page_of
from claude_mem.config import Config, is_terminal_only, names
from claude_mem.worker import visits
from claude_mem.worker.api import ROUTES, build_app
from claude_mem.worker.service import Service
from claude_mem.worker.visits import Visits
from tests import proof
from tests.lab import Lab
from tests.waiting import SECONDS

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


POWERFUL = [name for name in names() if is_terminal_only(name)]


@pytest.mark.parametrize("value", ["http://127.0.0.1:1", "/elsewhere/program", "file:/etc/hostname", None])
@pytest.mark.parametrize("name", POWERFUL)
def test_the_cookie_changes_no_setting_that_names_a_program_an_address_or_a_key(
    http: TestClient, config: Config, name: str, value: str | None
) -> None:
    """A stolen cookie must not decide what is run or where memories and keys are sent."""
    http.get(_link(http))
    refused = http.patch("/api/settings", json={"context_tokens": 900, name: value}, headers=OURS)
    assert refused.status_code == 400
    assert f"claude-mem config set {name}" in refused.json()["error"]
    assert not (config.data_dir / "config.toml").exists()


def test_the_page_says_which_settings_need_a_terminal_and_the_token_changes_them(
    http: TestClient, config: Config
) -> None:
    http.get(_link(http))
    shown = http.get("/api/settings", headers=OURS).json()
    assert {name for name, item in shown.items() if "claude-mem config set" in item["fixed"]} == set(POWERFUL)
    shown = http.get("/api/settings", headers=GOOD).json()
    assert not any(shown[name]["fixed"] for name in POWERFUL)
    assert http.patch("/api/settings", json={"claude_path": "/x/claude"}, headers=GOOD).status_code == 200
    assert "/x/claude" in (config.data_dir / "config.toml").read_text()


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


# What was set before anything was built; ours may only be stricter.
POLICY = {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:", "connect-src": "'self'",
    "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
}  # fmt: skip
ALSO = {
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}  # fmt: skip


def test_every_answer_of_every_route_carries_the_whole_policy(http: TestClient) -> None:
    asked, short = 0, []
    for path in ROUTES:
        if path == "/stream":
            continue  # it never ends; test_the_stream_… looks at it
        for headers in (GOOD, {}, {"Sec-Fetch-Dest": "document"}):
            answer = http.get(re.sub(r"{[^}]*}", "1", path), headers=headers)
            asked += 1
            said = dict(
                part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";")
            )
            strict = all(set(said.get(name, "*").split()) <= set(wanted.split()) for name, wanted in POLICY.items())
            if not strict or any(answer.headers.get(name) != wanted for name, wanted in ALSO.items()):
                short.append(path)
    proof.record(
        "answers without the whole policy", of="S7", goal="0", measured=len(short), ok=not short, unit=f"of {asked}"
    )
    assert short == []


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
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request("GET", link.removeprefix(f"http://127.0.0.1:{port}"))
        answer = connection.getresponse()
    assert (answer.status, answer.getheader("location")) == (303, "/search?q=why+rounding")


def test_the_token_and_what_lets_a_browser_in_are_in_no_log_and_in_no_address_that_stays(lab: Lab) -> None:
    client = lab.start(CLAUDE_MEM_LOG_LEVEL="DEBUG")
    port, token = client.worker.port, client.worker.token
    link: str = client.post("/api/open", {"path": "/search?q=x"})["url"]
    seen: list[str] = []  # every address, as a history or a Referer would keep it, after the link itself
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        entered = _asked(connection, link.removeprefix(f"http://127.0.0.1:{port}"))
        cookie = (entered.getheader("set-cookie") or "").partition(";")[0]
        seen.append(entered.getheader("location") or "")
        for path in (seen[-1], "/", "/static/app.js", "/api/health", "/nowhere", "/open?code=used", "/logs"):
            answer = _asked(connection, path, Cookie=cookie)
            seen += [path, answer.getheader("location") or ""]
        for wrong in ({}, {"Cookie": cookie + "x"}, {"Authorization": f"Bearer {token}x"}):
            assert _asked(connection, "/stream", **wrong).status == 401
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request("GET", "/stream", headers={"Cookie": cookie})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        assert answer.getheader("content-security-policy", "").startswith("default-src 'none'")
    lab.mem("stop")
    secrets = [token, cookie.partition("=")[2], link.partition("code=")[2]]
    assert all(len(secret) > 30 for secret in secrets)
    logs = [*(lab.data / "logs").iterdir(), *lab.folder.glob("worker-*/*")]
    text = "\n".join(path.read_text("utf-8", "replace") for path in logs if path.is_file())
    assert "DEBUG" in text or "INFO" in text
    found = sum(secret in text for secret in secrets) + sum(secret in path for secret in secrets for path in seen)
    proof.record(
        "token, cookie or code in a log, or in an address after the link",
        of="S8",
        goal="0",
        measured=found,
        ok=not found,
    )
    assert found == 0


def _asked(connection: HTTPConnection, path: str, **headers: str) -> HTTPResponse:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer


def test_what_is_asked_for_is_the_page_that_opens() -> None:
    assert page_of([]) == "/"
    assert page_of(["#12"]) == page_of(["12"]) == "/observation/12"
    assert page_of(["why", "12"]) == "/search?q=why+12"
    assert page_of(["9" * 5000]).startswith("/search?q=999")
    assert page_of(["#"]) == "/search?q=%23"


def test_a_page_that_does_not_exist_is_not_opened(lab: Lab) -> None:
    kept = lab.start().post("/api/memory/save", {"text": "Deploys run on Fridays.", "project": "ops"})["id"]
    for number in (99999, 0):
        done = lab.mem("open", str(number), "--print", ok=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"there is no observation {number}" in done.stderr
    assert "http://" in lab.mem("open", str(kept), "--print").stdout
    lab.mem("forget", str(kept), "--yes")
    assert "http://" in lab.mem("open", f"#{kept}", "--print").stdout  # its page can bring it back
