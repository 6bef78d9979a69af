"""How a browser is let in, and who is not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from starlette.testclient import TestClient

from claude_mem.cli.viewer import viewer_path
from claude_mem.config import Config, is_terminal_only, list_setting_names
from claude_mem.storage.sqlite.journal import notices
from claude_mem.system import process
from claude_mem.worker.app import Service
from claude_mem.worker.http import auth
from claude_mem.worker.http.api import ROUTES, build_app
from claude_mem.worker.http.auth import BrowserSessions, mac
from claude_mem.worker.http.routes import viewer
from claude_mem.worker.http.schemas.viewer import Admission
from tests.support import login, proof
from tests.support.lab import Lab
from tests.support.waiting import SECONDS

COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/security/test_visits.py"

TOKEN = "t" * 43
PORT = 37777
BASE = f"http://127.0.0.1:{PORT}"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
OURS = {"Origin": BASE}


@pytest.fixture
def service(config: Config) -> Iterator[Service]:
    async def build() -> Service:
        return Service(config)

    service = asyncio.run(build())
    yield service
    service.close()


@pytest.fixture
def http(service: Service) -> TestClient:
    return TestClient(build_app(service, token=TOKEN, port=PORT), base_url=BASE, follow_redirects=False)


def _link(http: TestClient, path: str = "/") -> dict[str, Any]:
    link: dict[str, Any] = http.post("/api/open", headers=GOOD, json={"path": path}).json()
    assert link["url"].startswith(f"{BASE}/open#")
    return link


def _present(http: TestClient, link: dict[str, Any] | str, **headers: str) -> Any:
    code = link if isinstance(link, str) else link["url"].partition("#")[2]
    return http.post("/open", headers={**OURS, **headers}, json={"code": code})


def _browser(http: TestClient) -> dict[str, str]:
    """The headers of a page whose browser was let in."""
    return {"Authorization": f"Viewer {_present(http, _link(http)).json()['credential']}", **OURS}


def test_a_link_lets_one_browser_in_once(http: TestClient) -> None:
    link = _link(http, "/search?q=x")
    answer = _present(http, link)
    assert (answer.status_code, answer.json()["path"]) == (200, "/search?q=x")
    assert TOKEN not in answer.text
    browser = {"Authorization": f"Viewer {answer.json()['credential']}"}
    assert http.get("/api/health", headers=browser).status_code == 200
    assert _present(http, link).status_code == 409
    assert http.get("/api/health").status_code == 401


def test_nothing_is_kept_in_a_cookie(http: TestClient) -> None:
    """A cookie would go to every port of this machine."""
    link = _link(http)
    answers = [
        _present(http, link),
        _present(http, link),
        *(http.get(path) for path in ("/", "/open", "/static/app.js")),
    ]
    assert not any("set-cookie" in answer.headers for answer in answers)
    assert not http.cookies
    proof.record(
        "cookies set while a browser is let in",
        of="S15",
        goal="0",
        measured=len(http.cookies),
        ok=True,
        command=COMMAND,
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_looking_at_the_page_does_not_use_a_link_up(http: TestClient, method: str) -> None:
    link = _link(http)
    code = link["url"].partition("#")[2]
    assert http.request(method, "/open", params={"code": code}).status_code == 200
    assert _present(http, link).status_code == 200


@pytest.mark.parametrize("code", ["", "x", "?", "é", "\ud800", "x" * 5000])
def test_a_made_up_code_opens_nothing_and_alarms_nobody(http: TestClient, code: str) -> None:
    _link(http)
    answer = http.post(
        "/open", headers={**OURS, "Content-Type": "application/json"}, content=json.dumps({"code": code})
    )
    assert answer.status_code in (400, 409, 413)
    assert "credential" not in answer.json()
    assert http.get("/api/health", headers=GOOD).json()["door"] == []


@pytest.mark.parametrize("printed", [False, True])
def test_a_link_works_for_seconds(http: TestClient, monkeypatch: pytest.MonkeyPatch, printed: bool) -> None:
    link = http.post("/api/open", headers=GOOD, json={"printed": printed}).json()
    assert 0 < link["seconds"] <= 60
    later = time.monotonic() + link["seconds"]
    monkeypatch.setattr(auth, "monotonic", lambda: later)
    assert http.get(f"/api/open/{link['id']}", headers=GOOD).json() == {"state": "expired"}
    assert _present(http, link).status_code == 409


@pytest.mark.parametrize("path", ["//evil.example/", "https://evil.example/", "evil", "/\\evil.example"])
def test_a_link_leads_to_no_one_else(http: TestClient, path: str) -> None:
    assert http.post("/api/open", headers=GOOD, json={"path": path}).status_code == 400


# --- a code that someone else has, too ---------------------------------------------------------------------------------


def _new_token(config: Config) -> dict[str, str]:
    token = process.read_token(config.data_dir)
    assert token not in ("", TOKEN)
    return {"Authorization": f"Bearer {token}"}


def test_a_code_that_is_used_twice_locks_everyone_out_and_its_owner_is_told(
    http: TestClient, service: Service, config: Config
) -> None:
    """Nobody knows which of the two is the owner's, nor what the other has taken."""
    link = _link(http)
    first = {"Authorization": f"Viewer {_present(http, link).json()['credential']}"}
    other, renewal = _browser(http), http.get("/api/renewal", headers=first).json()
    assert http.get(f"/api/open/{link['id']}", headers=GOOD).json() == {"state": "used"}
    refused = _present(http, link)
    assert refused.status_code == 409
    assert "used twice" in refused.json()["hint"]
    for headers in (first, other, GOOD):
        assert http.get("/api/health", headers=headers).status_code == 401
    assert _renew(http, renewal).status_code == 409
    good = _new_token(config)
    assert http.get(f"/api/open/{link['id']}", headers=good).json() == {"state": "misused"}
    assert (
        "used twice" in service.db.read_now(notices.list_unshown_notices)[f"door:{link['id']}"]
    )  # at the next session's start
    assert "used twice" in http.get("/api/health", headers=good).json()["door"][0]  # in `claude-mem status`
    shown = http.get("/api/health/page", headers=good).json()["concerns"]  # in the viewer
    assert any("used twice" in concern["text"] for concern in shown)
    assert _present(http, link).status_code == 409
    assert len(http.get("/api/health", headers=good).json()["door"]) == 1  # said once


def test_the_same_browser_may_come_by_its_link_again(http: TestClient) -> None:
    """A tab that was restored, or the way back: no reason to alarm anyone, even after it came by another link."""
    first = _link(http)
    browser = {"Authorization": f"Viewer {_present(http, first).json()['credential']}"}
    again = _present(http, first, **browser)
    assert (again.status_code, f"Viewer {again.json()['credential']}") == (200, browser["Authorization"])
    later = {"Authorization": f"Viewer {_present(http, _link(http), **browser).json()['credential']}"}
    assert later != browser
    assert _present(http, first, **later).status_code == 200
    assert http.get("/api/health", headers=GOOD).json()["door"] == []


def test_a_browser_that_was_let_in_before_does_not_hide_that_someone_else_used_its_link(http: TestClient) -> None:
    """The owner is logged in already, and a thief uses the new link first."""
    owner, link = _browser(http), _link(http)
    thief = {"Authorization": f"Viewer {_present(http, link).json()['credential']}"}
    assert _present(http, link, **owner).status_code == 409
    assert http.get("/api/health", headers=thief).status_code == 401


def test_another_user_of_the_machine_can_not_use_a_link_and_its_owner_is_told(
    http: TestClient, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = _link(http)
    monkeypatch.setattr(auth, "foreign_user", lambda *_: "A program of another user of this machine (uid 1234)")
    assert _present(http, link).status_code == 409
    monkeypatch.undo()
    assert "uid 1234" in http.get("/api/health", headers=_new_token(config)).json()["door"][0]
    assert _present(http, link).status_code == 409  # who knows the code once is too many


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9391 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:9391 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:9391 01 00000000:00000000 00:00000000 00000000  {uid}        0 3 1 0 20 4 30 10 -1
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a little-endian machine")
@pytest.mark.parametrize(("uid", "stranger"), [(1000, False), (0, False), (1001, True), (65534, True)])
def test_who_is_at_the_other_end_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, stranger: bool
) -> None:
    (tmp_path / "tcp").write_text(TABLE.format(uid=uid))
    monkeypatch.setattr(auth, "CONNECTION_TABLE", tmp_path / "tcp")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert (f"uid {uid}" in auth.foreign_user(("127.0.0.1", 50000), ("127.0.0.1", 37777))) is stranger
    for client, server in (
        (("127.0.0.1", 50001), ("127.0.0.1", 37777)),
        (("::1", 50000), ("::1", 37777)),
        (None, None),
    ):
        assert auth.foreign_user(client, server) == ""
    (tmp_path / "tcp").unlink()
    assert auth.foreign_user(("127.0.0.1", 50000), ("127.0.0.1", 37777)) == ""


# --- an open page and the next worker ----------------------------------------------------------------------------------


def _renew(http: TestClient, renewal: dict[str, str], **changed: str) -> Any:
    challenge = changed.get("challenge") or http.get("/open/again").json()["challenge"]
    proof = mac(changed.get("key", renewal["key"]), f"page {challenge}")
    sent = {"id": changed.get("id", renewal["id"]), "proof": changed.get("proof", proof)}
    return http.post("/open/again", headers=OURS, json=sent)


def _next_worker(service: Service, *, token: str = TOKEN, port: int = PORT) -> TestClient:
    return TestClient(build_app(service, token=token, port=port), base_url=f"http://127.0.0.1:{port}")


def test_an_open_page_comes_back_to_the_next_worker_and_nobody_else_does(http: TestClient, service: Service) -> None:
    browser = _browser(http)
    renewal = http.get("/api/renewal", headers=browser).json()
    again = _next_worker(service)
    assert again.get("/api/health", headers=browser).status_code == 401  # what the storage keeps has ended
    answer = _renew(again, renewal)
    assert answer.status_code == 200
    credential, challenge = answer.json()["credential"], again.get("/open/again").json()["challenge"]
    assert answer.json()["proof"] == mac(renewal["key"], f"worker {challenge} {credential}")
    assert again.get("/api/health", headers={"Authorization": f"Viewer {credential}"}).status_code == 200
    assert renewal["key"] not in answer.text


def test_a_proof_is_for_one_worker_one_port_and_one_token(http: TestClient, service: Service) -> None:
    """What a program on our port gets out of an open page is good for nothing."""
    renewal = http.get("/api/renewal", headers=_browser(http)).json()
    until, _, rest = renewal["id"].partition(".")
    before = http.get("/open/again").json()["challenge"]
    again = _next_worker(service)
    for changed in (
        {"challenge": before},
        {"challenge": "0" * 32},
        {"key": "0" * 64},
        {"id": f"{int(until) + 1}.{rest}"},
        {"id": "9" * 5000},
        {"id": f"0.{rest}", "key": mac(TOKEN, f"viewer {PORT} 0.{rest}")},  # rightly signed, and too old
        {"id": f"x.{rest}", "key": mac(TOKEN, f"viewer {PORT} x.{rest}")},
        {"id": ""},
        {"proof": ""},
        {"proof": "é"},
        {"proof": again.get("/open/again").json()["challenge"]},
    ):
        assert _renew(again, renewal, **changed).status_code in (400, 409, 413), changed
    assert _renew(_next_worker(service, token="u" * 43), renewal).status_code == 409
    elsewhere = _next_worker(service, port=PORT + 1)
    proof = mac(renewal["key"], f"page {elsewhere.get('/open/again').json()['challenge']}")
    sent = {"id": renewal["id"], "proof": proof}
    origin = {"Origin": f"http://127.0.0.1:{PORT + 1}"}
    assert elsewhere.post("/open/again", headers=origin, json=sent).status_code == 409
    assert http.get("/api/renewal").status_code == 401


# --- what a browser may do ---------------------------------------------------------------------------------------------


def test_only_our_own_page_changes_anything_with_a_browsers_credential(http: TestClient) -> None:
    browser = _browser(http)
    credential = {"Authorization": browser["Authorization"]}
    body = {"text": "x", "project": "p"}
    for headers in ({}, {"Origin": "http://127.0.0.1:3000"}, {**OURS, "Sec-Fetch-Site": "same-site"}):
        assert http.post("/api/memory/save", json=body, headers={**credential, **headers}).status_code == 403
    assert http.post("/api/memory/save", json=body, headers=browser).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/open", {}),
        ("/api/token/rotate", {}),
        ("/api/import", {"path": "/etc/hostname"}),
        ("/api/backfill", {"path": "/etc/hostname"}),
        ("/api/compress", {"path": "/etc/hostname"}),
        ("/mcp", {}),
    ],
)
def test_a_browser_lets_no_one_else_in_and_reads_no_file(http: TestClient, path: str, body: dict[str, str]) -> None:
    answer = http.post(path, json=body, headers=_browser(http))
    assert (answer.status_code, answer.json()["error"]) == (403, "not allowed with a browser's credential")


POWERFUL = [name for name in list_setting_names() if is_terminal_only(name)]


@pytest.mark.parametrize("value", ["http://127.0.0.1:1", "/elsewhere/program", "file:/etc/hostname", None])
@pytest.mark.parametrize("name", POWERFUL)
def test_a_browser_changes_no_setting_that_names_a_program_an_address_or_a_key(
    http: TestClient, config: Config, name: str, value: str | None
) -> None:
    """A stolen credential must not decide what is run or where memories and keys are sent."""
    refused = http.patch("/api/settings", json={"context_tokens": 900, name: value}, headers=_browser(http))
    assert refused.status_code == 400
    assert f"claude-mem config set {name}" in refused.json()["error"]
    assert not (config.data_dir / "config.toml").exists()
    proof.record(
        "changes of a program, an address or a key with a browser's credential: refused", of="S15", goal="all",
        measured=1, ok=True, tally=True, command=COMMAND,
    )  # fmt: skip


def test_the_page_says_which_settings_need_a_terminal_and_the_token_changes_them(
    http: TestClient, config: Config
) -> None:
    shown = http.get("/api/settings", headers=_browser(http)).json()
    assert {name for name, item in shown.items() if "claude-mem config set" in item["fixed"]} == set(POWERFUL)
    shown = http.get("/api/settings", headers=GOOD).json()
    assert not any(shown[name]["fixed"] for name in POWERFUL)
    assert http.patch("/api/settings", json={"claude_path": "/x/claude"}, headers=GOOD).status_code == 200
    assert "/x/claude" in (config.data_dir / "config.toml").read_text()


def test_a_credential_is_ours_whole_and_not_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = BrowserSessions(TOKEN, PORT)
    entry = ours.redeem(ours.create_link("/")[1])
    assert isinstance(entry, Admission)
    good = entry.credential
    assert ours.is_valid(good)
    assert not BrowserSessions(TOKEN, PORT).is_valid(good)  # it ends with the worker
    for bad in ("", "x", TOKEN, good[:-1], good + "x", good.swapcase(), "é", "\ud800", "\0" * 9):
        assert not ours.is_valid(bad)
    ours.replace_token("u" * 43)
    assert not ours.is_valid(good)
    monkeypatch.setattr(auth, "LOGIN_SECONDS", -1)
    late = ours.redeem(ours.create_link("/")[1])
    assert isinstance(late, Admission)
    assert not ours.is_valid(late.credential)


def test_the_number_of_links_and_browsers_is_bounded() -> None:
    ours = BrowserSessions(TOKEN, PORT)
    entries = [ours.redeem(ours.create_link("/")[1]) for _ in range(auth.MAX_LOGINS + 1)]
    known = [ours.is_valid(entry.credential) for entry in entries if isinstance(entry, Admission)]
    assert known == [False] + [True] * auth.MAX_LOGINS
    links = [ours.create_link("/") for _ in range(auth.MAX_LINKS + 1)]
    assert [ours.state(link_id) for link_id, _ in links] == ["expired"] + ["waiting"] * auth.MAX_LINKS


def test_a_browser_that_is_not_known_gets_the_page_without_data(http: TestClient) -> None:
    """Its script says what to do: a browser sends no credential before it has a page."""
    for path in ("/", "/observation/1", "/open"):
        answer = http.get(path, headers={"Sec-Fetch-Dest": "document"})
        assert (answer.status_code, answer.text) == (200, (viewer.FILES / "index.html").read_text())


@pytest.mark.parametrize("path", ["/nowhere", "/api/export", "/stream"])
def test_an_address_that_is_no_page_is_told_in_words_to_a_person(http: TestClient, path: str) -> None:
    answer = http.get(path, headers={"Sec-Fetch-Dest": "document"})
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert "claude-mem open" in answer.text
    assert http.get("/nowhere", headers=GOOD).json()["error"] == "not found"


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


def test_a_service_worker_of_someone_else_is_replaced_by_one_that_goes(http: TestClient) -> None:
    """Whatever its script was called. It tells nothing, so no credential is asked for; Host and Origin are."""
    for path in ("/sw.js", "/static/sw.js", "/api/export", "/"):
        answer = http.get(path, headers={"Service-Worker": "script", "Sec-Fetch-Site": "same-origin"})
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["service-worker-allowed"] == "/"
        assert "unregister" in answer.text
    for headers in ({"Host": f"evil.example:{PORT}"}, {"Origin": "http://127.0.0.1:3000"}):
        assert http.get("/sw.js", headers={"Service-Worker": "script", **headers}).status_code == 403


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
    assert login.enter(link)[1]["path"] == "/search?q=why+rounding"


BROWSER = """#!{python}
import json, os, sys, urllib.parse, urllib.request
arguments = "\\0".join(sys.argv[1:])
file = urllib.parse.urlsplit(sys.argv[1])
assert file.scheme == "file", arguments
text = open(file.path).read()
mode = oct(os.stat(file.path).st_mode & 0o777)
link = text.partition("url=")[2].partition('"')[0]
page, _, code = link.partition("#")
assert code and code not in arguments
origin = page.removesuffix("/open")
json.dump({{"arguments": arguments, "mode": mode, "code": code}}, open({seen!r}, "w"))
headers = {{"Origin": origin, "Content-Type": "application/json"}}
for _ in range({times}):
    asked = urllib.request.Request(page, json.dumps({{"code": code}}).encode(), headers, method="POST")
    try:
        urllib.request.urlopen(asked).read()
    except urllib.error.HTTPError as error:
        error.read()
"""


def _browse(lab: Lab, *, times: int) -> tuple[CompletedProcess[str], dict[str, str]]:
    """`claude-mem open` with a browser that presents the code so many times; and what the browser saw."""
    program, seen = lab.folder / "browser", lab.folder / "seen.json"
    program.write_text(BROWSER.format(python=sys.executable, seen=str(seen), times=times))
    program.chmod(0o700)
    done = lab.mem("open", ok=False, BROWSER=f"{program} %s", DISPLAY=":0")
    return done, json.loads(seen.read_text())


def test_the_code_is_in_no_command_line_but_in_a_private_file_that_goes(lab: Lab) -> None:
    lab.start()
    done, seen = _browse(lab, times=1)
    assert done.returncode == 0, done.stderr
    assert "opened http://127.0.0.1:" in done.stderr
    assert seen["mode"] == "0o600"
    assert seen["arguments"].startswith(f"file://{lab.data}/open-")
    assert list(lab.data.glob("open-*.html")) == []
    assert seen["code"] not in done.stdout + done.stderr


def test_the_terminal_says_that_someone_else_used_the_link(lab: Lab) -> None:
    lab.start()
    done, _ = _browse(lab, times=2)
    assert done.returncode == 1
    assert "the link was used more than once" in done.stderr
    assert "used twice" in lab.mem("status").stdout


def test_the_token_and_what_lets_a_browser_in_are_in_no_log_and_in_no_address_that_is_sent(lab: Lab) -> None:
    client = lab.start(CLAUDE_MEM_LOG_LEVEL="DEBUG")
    port, token = client.worker.port, client.worker.token
    link: str = client.post("/api/open", {"path": "/search?q=x"})["url"]
    credential = login.logged_in(link)
    secret = credential["Authorization"].partition(" ")[2]
    assert login.enter(link, Authorization="Viewer x")[0] == 409  # warned about in the log, and the token is another
    credential = login.logged_in(lab.client().post("/api/open")["url"])
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        for path in ("/", "/static/app.js", "/api/health", "/nowhere", "/open", "/logs"):
            assert not _asked(connection, path, **credential).getheader("location")
        for wrong in ({}, {"Authorization": f"Viewer {secret}"}, {"Authorization": f"Bearer {token}x"}):
            assert _asked(connection, "/stream", **wrong).status == 401
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request("GET", "/stream", headers=credential)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        assert answer.getheader("content-security-policy", "").startswith("default-src 'none'")
    lab.mem("stop")
    before, _, code = link.partition("#")  # a browser never sends what is behind it
    secrets = [token, (lab.data / "token").read_text(), secret, credential["Authorization"].partition(" ")[2], code]
    assert all(len(each) > 30 and each not in before for each in secrets)
    logs = [*(lab.data / "logs").iterdir(), *lab.folder.glob("worker-*/*")]
    text = "\n".join(path.read_text("utf-8", "replace") for path in logs if path.is_file())
    assert "used twice" in text
    count = sum(each in text for each in secrets)
    proof.record(
        "token, credential or code in a log, or in an address that is sent",
        of="S8",
        goal="0",
        measured=count,
        ok=not count,
    )
    assert count == 0


def _asked(connection: HTTPConnection, path: str, **headers: str) -> HTTPResponse:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer


def test_what_is_asked_for_is_the_page_that_opens() -> None:
    assert viewer_path([]) == "/"
    assert viewer_path(["#12"]) == viewer_path(["12"]) == "/observation/12"
    assert viewer_path(["why", "12"]) == "/search?q=why+12"
    assert viewer_path(["9" * 5000]).startswith("/search?q=999")
    assert viewer_path(["#"]) == "/search?q=%23"


def test_a_page_that_does_not_exist_is_not_opened(lab: Lab) -> None:
    kept = lab.start().post("/api/memory/save", {"text": "Deploys run on Fridays.", "project": "ops"})["id"]
    for number in (99999, 0):
        done = lab.mem("open", str(number), "--print", ok=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"no observation {number}" in done.stderr
    assert "http://" in lab.mem("open", str(kept), "--print").stdout
    lab.mem("forget", str(kept), "--yes")
    assert "http://" in lab.mem("open", f"#{kept}", "--print").stdout  # its page can bring it back


@pytest.mark.parametrize("path", ["/open", "/open/again"])
def test_a_browser_that_is_not_logged_in_sends_no_more_than_a_code(http: TestClient, path: str) -> None:
    """Sixty-four strangers with eight megabytes each would fill the memory."""
    assert http.post(path, headers=OURS, json={"code": "x" * 5_000, "id": "1", "proof": "x"}).status_code == 413
    link = _link(http)
    assert _present(http, link).status_code == 200
