"""The browser's door, with a real browser: what reaches another port of this machine, and what can be done with it."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import apsw
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from claude_mem.cli import viewer
from claude_mem.system import process
from tests.support import login
from tests.support.lab import Lab
from tests.support.waiting import SECONDS, wait_for
from tests.viewer import views
from tests.viewer.conftest import Faults, OpenPage

# What a page on another port can try: all of it is sent with whatever the browser gives along by itself.
PROBE = """<!doctype html><title>other</title>
<img src="/pixel"><img src="{viewer}/static/mark.svg"><iframe src="/frame"></iframe>
<script>
  const own = ["/fetch", "/included"];
  Promise.allSettled([
    fetch(own[0]), fetch(own[1], {{ credentials: "include" }}),
    fetch("{viewer}/api/export", {{ credentials: "include" }}), fetch("{viewer}/api/feed", {{ mode: "no-cors" }}),
    new Promise((resolve) => (new EventSource("{viewer}/stream").onerror = resolve)),
  ]).then(() => (document.title = "done"));
</script>
<p id="kept"></p>
<script>document.getElementById("kept").textContent = JSON.stringify([document.cookie, {{ ...localStorage }}]);</script>
"""


@dataclass
class Elsewhere:
    """A web server of someone else on this machine. It keeps every request as it came."""

    viewer: str
    port: int = 0
    seen: list[str] = field(default_factory=list)


def _serve(answer: Callable[[http.server.BaseHTTPRequestHandler], None], port: int = 0) -> http.server.HTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Not into the test's output."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _reply(handler: http.server.BaseHTTPRequestHandler, text: str, kind: str = "text/html") -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.end_headers()
    handler.wfile.write(text.encode())


@pytest.fixture
def elsewhere(memory: Lab) -> Iterator[Elsewhere]:
    there = Elsewhere(f"http://127.0.0.1:{memory.client().worker.port}")

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        there.seen.append(f"{handler.requestline}\n{handler.headers}")
        _reply(handler, PROBE.format(viewer=there.viewer))

    server = _serve(answer)
    there.port = server.server_port
    yield there
    server.shutdown()
    server.server_close()


def _logged_in(context: BrowserContext, lab: Lab) -> Page:
    """A page that came in by a link, with all that the browser does on the way."""
    page = context.new_page()
    page.goto(lab.client().post("/api/open")["url"])
    page.locator("#live[data-state=live]").wait_for()
    return page


def _kept(page: Page) -> str:
    credential: str = page.evaluate("localStorage.getItem('credential')")
    assert len(credential) > 30
    return credential


def test_another_port_gets_no_credential_in_any_request(
    stranger: BrowserContext, memory: Lab, elsewhere: Elsewhere, faults: Faults
) -> None:
    faults.expect("")  # it is all foreign
    page = _logged_in(stranger, memory)
    credential = _kept(page)
    assert page.context.cookies() == []
    page.goto(f"http://127.0.0.1:{elsewhere.port}/")
    expect(page).to_have_title("done")
    assert page.locator("#kept").inner_text() == '["",{}]'
    assert len(elsewhere.seen) >= 5
    text = "\n".join(elsewhere.seen).lower()
    assert "cookie:" not in text
    assert "authorization:" not in text
    assert credential.lower() not in text


def test_what_another_port_saw_opens_nothing_when_it_is_replayed(
    stranger: BrowserContext, elsewhere: Elsewhere, memory: Lab, faults: Faults
) -> None:
    """Not by a page, but by the server: it may send whatever it likes, a forged Origin too."""
    faults.expect("")
    page = _logged_in(stranger, memory)
    page.goto(f"http://127.0.0.1:{elsewhere.port}/")
    expect(page).to_have_title("done")
    config = memory.data / "config.toml"
    before = config.read_text() if config.exists() else ""
    for request in elsewhere.seen:
        pairs = [line.partition(": ")[::2] for line in request.splitlines()[1:] if line]
        replayed = {
            name: value for name, value in pairs if name.lower() not in ("host", "connection", "sec-fetch-site")
        }
        replayed |= {"Origin": elsewhere.viewer, "Content-Type": "application/json"}
        for method, path, body in (
            ("GET", "/api/export", None),
            ("GET", "/api/settings", None),
            ("POST", "/api/memory/save", {"text": "x", "project": "p"}),
            ("PATCH", "/api/settings", {"provider": "claude", "claude_path": "/tmp/evil"}),
        ):
            connection = HTTPConnection("127.0.0.1", memory.client().worker.port, timeout=SECONDS)
            connection.request(method, path, json.dumps(body) if body else None, replayed)
            assert connection.getresponse().status == 401, (method, path)
            connection.close()
    assert (config.read_text() if config.exists() else "") == before


@pytest.fixture
def stranger(browser: Browser, memory: Lab, faults: Faults) -> Iterator[BrowserContext]:
    """A browser that has never been here."""
    origin = f"http://127.0.0.1:{memory.client().worker.port}"
    context = browser.new_context(base_url=origin, reduced_motion="reduce")
    context.set_default_timeout(SECONDS * 1000)
    faults.watch(context, origin)
    yield context
    context.close()


def test_the_private_file_lets_a_browser_in_and_no_code_stays_anywhere(
    stranger: BrowserContext, memory: Lab, faults: Faults
) -> None:
    """From `file:`, as `claude-mem open` hands it over: another origin, and the only way in that starts elsewhere."""
    faults.expect("request to elsewhere: file:")
    link = memory.client().post("/api/open", {"path": "/search?q=tax"})
    asked: list[str] = []
    stranger.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer', '')}"))
    page = stranger.new_page()
    with viewer._redirect_file(memory.data, link["url"]) as file:
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_url("**/search?q=tax")
        page.locator("#live[data-state=live]").wait_for()
    code = link["url"].partition("#")[2]
    assert memory.client().get(f"/api/open/{link['id']}") == {"state": "used"}
    assert not [address for address in asked if code in address.partition("#")[0]]
    assert code not in page.url
    assert code not in page.evaluate("JSON.stringify({...localStorage})")
    page.go_back(wait_until="commit")  # to what was there before the file
    assert code not in page.url
    again = stranger.new_page()
    views.show(again, "/")  # every tab of this browser is let in
    expect(again.get_by_role("heading", level=1)).to_have_text("Recent memory")


def test_a_browser_that_is_not_known_is_told_what_to_do_and_comes_in_with_another_tab(
    stranger: BrowserContext, memory: Lab
) -> None:
    page = stranger.new_page()
    page.goto("/sessions")
    expect(page.get_by_role("heading", level=1)).to_have_text("Access denied")
    expect(page.locator("#view")).to_contain_text("claude-mem open")
    expect(page.locator("#live")).to_contain_text("not logged in")
    other = stranger.new_page()
    other.goto(memory.client().post("/api/open")["url"])
    expect(other.get_by_role("heading", level=1)).to_have_text("Recent memory")
    expect(other.locator(".tag[data-agent=claude]").first).to_have_text("Claude Code")  # labels need the login
    expect(other.locator(".mark[data-type=bugfix]").first).not_to_have_text("·")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")


def test_a_link_that_someone_else_has_used_is_told_to_its_owner_and_locks_the_other_out(
    stranger: BrowserContext, memory: Lab, faults: Faults
) -> None:
    faults.expect("status of 409")
    url = memory.client().post("/api/open")["url"]
    thief = login.logged_in(url)
    page = stranger.new_page()
    page.goto(url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Someone else used this link as well.")
    expect(page.locator("#view")).to_contain_text("used twice")
    connection = HTTPConnection("127.0.0.1", memory.client().worker.port, timeout=SECONDS)
    connection.request("GET", "/api/export", headers=thief)
    assert connection.getresponse().status == 401
    connection.close()
    assert "used twice" in json.dumps(memory.hook("SessionStart", source="startup", session_id="told"))
    assert "used twice" in memory.mem("status").stdout


# --- someone else on our port ------------------------------------------------------------------------------------------

IMPOSTOR = (
    '{"challenge": "00000000000000000000000000000000", "credential": "x", "proof": "x", "error": "x", "hint": "x"}'
)


def test_whoever_takes_the_port_gets_nothing_of_use_from_an_open_page(
    open_page: OpenPage, memory: Lab, faults: Faults
) -> None:
    """An open page calls its worker by itself, and someone else may have the port by then."""
    faults.expect("")
    page, before = open_page(), memory.client().worker
    views.show(page, "/")
    page.wait_for_function("performance.getEntriesByName(`${location.origin}/api/renewal`).length")
    renewed = threading.Event()
    seen: list[str] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0)).decode()
        seen.append(f"{handler.requestline}\n{handler.headers}\n{body}")
        if handler.path == "/open/again":
            renewed.set() if handler.command == "POST" else None
            _reply(handler, IMPOSTOR, "application/json")
        else:
            handler.send_error(401)

    os.kill(before.pid, signal.SIGKILL)
    server = _taken(answer, before.port)
    try:
        assert renewed.wait(SECONDS)  # the page has tried to prove itself to the impostor
        expect(page.locator("#live")).to_contain_text("not logged in")
        assert page.evaluate("localStorage.getItem('credential')") is None
    finally:
        server.shutdown()
        server.server_close()
        memory.start(CLAUDE_MEM_WORKER_PORT=str(before.port))
    worker = process.running_worker(memory.data)
    assert worker is not None and worker.port == before.port
    expect(page.locator("#live")).to_have_text("live")  # it comes back to its own
    for request in seen:  # and nothing that was sent to the other opens it
        head, _, body = request.partition("\n\n")
        lines = dict(line.partition(": ")[::2] for line in head.splitlines()[1:])
        sent = {
            name: value for name, value in lines.items() if name.lower() in ("authorization", "origin", "content-type")
        }
        for method, path in (("GET", "/api/export"), ("POST", "/open/again")):
            connection = HTTPConnection("127.0.0.1", before.port, timeout=SECONDS)
            connection.request(method, path, body if method == "POST" else None, sent)
            assert connection.getresponse().status >= 400
            connection.close()


LEFT = """<!doctype html><title>left</title><h1>not the viewer</h1>
<script>navigator.serviceWorker.register("/left.js").then(() => navigator.serviceWorker.ready).then(() => (document.title = "ready"));</script>"""
LEFT_SCRIPT = """addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => event.respondWith(new Response("<h1>not the viewer</h1>", { headers: { "Content-Type": "text/html" } })));"""


def test_a_service_worker_that_someone_left_on_our_port_goes(browser: Browser, tmp_path: Path) -> None:
    """It answers in our place until the browser asks for its script again."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path == "/left.js":
            _reply(handler, LEFT_SCRIPT, "text/javascript")
        else:
            _reply(handler, LEFT)

    server = _serve(answer)
    port, lab = server.server_port, Lab(tmp_path)
    context = browser.new_context(base_url=f"http://127.0.0.1:{port}")
    context.set_default_timeout(SECONDS * 1000)
    try:
        page = context.new_page()
        page.goto("/")
        expect(page).to_have_title("ready")
        server.shutdown()
        server.server_close()
        assert lab.start(CLAUDE_MEM_WORKER_PORT=str(port)).worker.port == port
        page.goto("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Access denied")
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
    finally:
        context.close()
        server.server_close()
        lab.close()


def _taken(answer: Callable[[http.server.BaseHTTPRequestHandler], None], port: int) -> http.server.HTTPServer:
    """A server on the port as soon as its owner is gone."""

    def attempt() -> http.server.HTTPServer | None:
        try:
            return _serve(answer, port)
        except OSError:
            return None

    return wait_for(attempt, "the port is not free")


# --- a hostile page ----------------------------------------------------------------------------------------------------

# Everything a page can do to a viewer of another origin, in a browser that is logged in there. It returns what it could
# read, by attempt; what it could change is looked for in the database.
ATTACKS = """async (viewer) => {
  const got = {};
  const soon = (work) => Promise.race([work, new Promise((done) => setTimeout(done, 5000, "never"))]);
  const attempt = async (name, work) => {
    try { const found = await soon(work()); if (found !== undefined && found !== "never") got[name] = String(found).slice(0, 200); } catch {}
  };
  const paths = ["/", "/api/export", "/api/settings", "/api/feed", "/api/health", "/healthz", "/open/again", "/static/mark.svg"];
  const bodies = { "application/json": '{"text": "planted", "project": "shop"}', "text/plain": '{"text": "planted"}',
    "application/x-www-form-urlencoded": "text=planted&claude_path=/tmp/evil" };
  for (const path of paths) for (const mode of ["cors", "no-cors", "same-origin"])
    await attempt(`read ${mode} ${path}`, async () => {
      const answer = await fetch(viewer + path, { mode, credentials: "include" });
      return (await answer.text()) || undefined;
    });
  for (const path of ["/api/memory/save", "/api/settings", "/open/again", "/api/open", "/api/token"])
    for (const method of ["POST", "PATCH", "PUT", "DELETE"]) for (const [type, body] of Object.entries(bodies))
      for (const mode of ["cors", "no-cors"])
        await attempt(`${method} ${mode} ${type} ${path}`, async () => {
          const headers = { "Content-Type": type };
          const answer = await fetch(viewer + path, { method, mode, body, headers, credentials: "include" });
          return answer.type === "opaque" ? undefined : answer.status;
        });
  await attempt("beacon", async () => void navigator.sendBeacon(viewer + "/api/memory/save", new Blob([bodies["text/plain"]])));
  await attempt("service worker of the viewer", () => navigator.serviceWorker.register(viewer + "/static/app.js"));
  await attempt("service worker for the viewer", () => navigator.serviceWorker.register("/worker.js", { scope: viewer + "/" }));
  await attempt("worker", () => new Promise((done, no) => { const it = new Worker(viewer + "/static/app.js"); it.onerror = no; it.onmessage = done; }));
  await attempt("socket", () => new Promise((done, no) => {
    const it = new WebSocket(viewer.replace("http", "ws") + "/stream"); it.onopen = () => done("open"); it.onerror = no; }));
  await attempt("stream", () => new Promise((done, no) => {
    const it = new EventSource(viewer + "/stream", { withCredentials: true }); it.onmessage = () => done("message"); it.onerror = no; }));
  await attempt("script", () => new Promise((done, no) => {
    const it = document.createElement("script"); it.src = viewer + "/api/settings"; it.onload = () => done("loaded"); it.onerror = no;
    document.head.append(it); }));
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    for (const path of ["/api/memory/save", "/api/settings", "/open/again"])
      await attempt(`form ${type} ${path}`, () => new Promise((done) => {
        const frame = document.createElement("iframe"), form = document.createElement("form"), field = document.createElement("input");
        frame.name = `f${type}${path}`; document.body.append(frame, form);
        Object.assign(form, { method: "post", action: viewer + path, target: frame.name, enctype: type });
        Object.assign(field, { name: '{"text": "planted", "x": "', value: '"}' }); form.append(field);
        frame.onload = () => { try { done(frame.contentDocument.body.innerText || undefined); } catch { done(); } };
        form.submit();
      }));
  await attempt("frame", () => new Promise((done) => {
    const frame = document.createElement("iframe"); frame.src = viewer + "/"; document.body.append(frame);
    frame.onload = () => { try { done(frame.contentWindow.localStorage.credential || frame.contentDocument.body.innerText || undefined); } catch { done(); } };
  }));
  await attempt("frames of the frame", async () => frames[frames.length - 1].length || undefined);
  await attempt("window", async () => {
    const other = window.open(viewer + "/", "viewer");
    await new Promise((done) => setTimeout(done, 500));
    other.postMessage({ credential: "evil", type: "login" }, "*");
    const found = other.closed ? undefined : other.localStorage.credential;
    return found;
  });
  await attempt("cookies", async () => document.cookie || undefined);
  await attempt("storage", async () => localStorage.credential);
  return got;
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "rebound.example"])
def test_a_hostile_page_in_a_known_browser_reads_and_changes_nothing(
    stranger: BrowserContext, memory: Lab, faults: Faults, host: str
) -> None:
    faults.expect("")
    page = _logged_in(stranger, memory)
    credential, before = _kept(page), _content(memory)
    seen: list[str] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(f"{handler.requestline}\n{handler.headers}")
        _reply(handler, "<!doctype html><title>hostile</title><body>", "text/html")

    server = _serve(answer)
    try:
        hostile = stranger.new_page()
        hostile.goto(f"http://{host}:{server.server_port}/")
        viewer_origin = f"http://127.0.0.1:{memory.client().worker.port}"
        got = hostile.evaluate(ATTACKS, viewer_origin)
        assert got == {}
        reading = "(viewer) => fetch(viewer + '/healthz').then((answer) => answer.text())"
        assert page.evaluate(reading, viewer_origin), "what is refused above can be read by the viewer itself"
        opened = [each for each in stranger.pages if each not in (page, hostile)]
        for each in opened:
            each.wait_for_load_state()
            assert each.evaluate("window.opener") is None, "the viewer must not know who opened it"
    finally:
        server.shutdown()
        server.server_close()
    assert _content(memory) == before
    assert credential not in "".join(seen)
    assert _kept(page) == credential
    views.show(page, "/sessions")
    expect(page.locator("#live")).to_have_text("live")


@pytest.mark.parametrize("host", ["rebound.example"])
def test_the_viewer_under_another_name_is_no_viewer(
    stranger: BrowserContext, memory: Lab, faults: Faults, host: str
) -> None:
    """As with DNS rebinding: a name of the attacker that leads to our port is an origin of the attacker."""
    faults.expect("")
    page = _logged_in(stranger, memory)
    credential, port = _kept(page), memory.client().worker.port
    other = stranger.new_page()
    answer = other.goto(f"http://{host}:{port}/")
    assert answer is not None and answer.status >= 400
    assert other.evaluate("localStorage.getItem('credential')") is None
    statuses = other.evaluate(
        """async (credential) => Promise.all(["/api/export", "/api/settings", "/healthz", "/static/app.js", "/"].map(
            async (path) => (await fetch(path, { headers: { Authorization: `Bearer ${credential}` } })).status))""",
        credential,
    )
    assert min(statuses) >= 400, "not even with a credential"


def _content(lab: Lab) -> tuple[object, ...]:
    """What a request may change: memories, sessions, settings, the token."""
    config, token = lab.data / "config.toml", lab.data / "token"
    with closing(apsw.Connection(str(lab.data / "claude-mem.db"), flags=apsw.SQLITE_OPEN_READONLY)) as conn:
        tables = ("observations", "sdk_sessions", "user_prompts")
        counts = [list(conn.execute(f"select count(*) from {table}")) for table in tables]
    return (str(counts), config.read_text() if config.exists() else "", token.read_text())
