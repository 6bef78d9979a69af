"""No one gets in without the token or a browser's credential, under a name that is not ours, or from another page.

A web page can reach a loopback port: by DNS rebinding it may even look like the same origin and send no Origin
header at all. Then the Host header is the only one that still names the attacker. So all three are checked,
exactly, on every route and before any handler runs.

A browser sends no header of ours when it loads a page, so the viewer's own files (which hold no data) and the bare
`/healthz` need no credential. `POST /open` takes the code of a one-time link instead, `POST /open/again` the proof of
an open page that it was let in before. Only loading the page `/open` may be started from elsewhere (the private file
that `claude-mem open` hands to the browser); that changes nothing, and the page then presents its code like any other
request of ours, with exactly our Origin.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from claude_mem.worker import wire
from claude_mem.worker.visits import Visits

log = logging.getLogger(__name__)

OPEN, AGAIN = "/open", "/open/again"
CREDENTIAL = "claude_mem.credential"  # in the scope of a request: "token", "viewer" (a browser's) or "none"
# What a stolen credential of a browser must not do: let others in, read files by their paths, speak as an agent.
TERMINAL_ONLY = frozenset(
    (
        "/api/open", "/api/open/{id}", "/api/token/rotate", "/api/import", "/api/backfill", "/api/backfill/look",
        "/api/backfill/refine", "/api/compress", "/mcp",
    )
)  # fmt: skip
SAFE_METHODS = ("GET", "HEAD")
OWN_SITES = frozenset(("same-origin", "none"))
# Nothing but our own files, no inline script or style, nothing that turns text into markup, no frame around us.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
# A page that someone else served on this port may have left a service worker in the browser, which would answer in our
# place and see every login. A browser asks for its script again after each visit: this one takes its place and goes.
_GOES = """addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(leave()));
async function leave() {
  await clients.claim();
  await registration.unregister();
  for (const client of await clients.matchAll({ type: "window" })) client.navigate(client.url);
}
"""
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>claude-mem</title><link rel="stylesheet" href="/static/style.css">
<main><h1>{title}</h1>
<p>The memory of your agents is for you alone.</p>
<p>Type <code>claude-mem open</code> in a terminal: it opens the viewer and lets this browser in. If you are logged in
already, <a href="/">the viewer begins here</a>.</p></main>
"""


class Guard:
    """`public`: patterns of the paths that anyone may GET, as starlette writes them."""

    def __init__(self, app: ASGIApp, *, visits: Visits, public: Iterable[str]) -> None:
        self.app = app
        self.visits = visits
        self.hosts = {f"{name}:{visits.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.public = [compile_path(pattern)[0] for pattern in public]
        self.terminal_only = [compile_path(pattern)[0] for pattern in sorted(TERMINAL_ONLY)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers) if scope["type"] == "http" else refused(headers, 403, "no")
        is_known = refusal is None and scope[CREDENTIAL] != "none"
        if is_known:
            scope.get(wire.RECOGNISE, _ignore)()
        await (refusal or self.app)(scope, receive, _with_headers(send, last=not is_known))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return refused(headers, 403, "unknown host", "use http://127.0.0.1 and the port in worker.json")
        if not self._is_own_page(scope, headers):
            return refused(headers, 403, "foreign origin")
        if headers.get("service-worker") == "script":
            log.warning("a service worker that is not ours was in a browser; it is being removed")
            return Response(_GOES, media_type="text/javascript", headers={"Service-Worker-Allowed": "/"})
        scope[CREDENTIAL] = credential = self._credential(headers)
        if credential == "token":
            return None
        return self._refusal_of_browser(scope, headers, credential)

    def _refusal_of_browser(self, scope: Scope, headers: Headers, credential: str) -> Response | None:
        method, path = scope["method"], scope["path"]
        if method in SAFE_METHODS and any(pattern.match(path) for pattern in self.public):
            return None
        if credential != "viewer" and not (method == "POST" and path in (OPEN, AGAIN)):
            return refused(headers, 401, "no valid token", "send `Authorization: Bearer <token>`; worker.json has it")
        if any(pattern.match(path) for pattern in self.terminal_only):
            return refused(headers, 403, "a browser may not do that", "use `claude-mem` in a terminal")
        if method in SAFE_METHODS:
            return None
        if not headers.getlist("origin"):
            return refused(headers, 403, "no origin")
        return None if _is_json(headers) else refused(headers, 415, "not JSON")

    def _is_own_page(self, scope: Scope, headers: Headers) -> bool:
        """Return whether it was our own page that asks, a person who typed the address, or no browser at all."""
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if len(origins) > 1 or not self.origins.issuperset(origins):
            return False
        is_arrival = scope["method"] in SAFE_METHODS and scope["path"] == OPEN and is_page(headers)
        return is_arrival or OWN_SITES.issuperset(sites)

    def _credential(self, headers: Headers) -> str:
        values = headers.getlist("authorization")
        scheme, _, secret = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        scheme, secret = scheme.lower(), secret.strip()
        if scheme == "bearer" and hmac.compare_digest(secret.encode(), self.visits.token.encode()):
            return "token"
        return "viewer" if scheme == "viewer" and self.visits.knows(secret) else "none"


def credential_of(headers: Headers) -> str:
    """Return the credential that a browser sends; "" if there is none."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "viewer" else ""


def _is_json(headers: Headers) -> bool:
    """A form or a plain text that a page sends must never be read as JSON, not even when it is our own page's."""
    content_types = headers.getlist("content-type")
    return len(content_types) == 1 and content_types[0].partition(";")[0].strip().lower() == "application/json"


def refused(headers: Headers, status: int, error: str, hint: str = "") -> Response:
    """In words for a person who looks at it in a browser, as JSON for everyone else."""
    if is_page(headers):
        title = "There is nothing to see at this address" if status == 401 else "This is not for you"
        return HTMLResponse(_PAGE.format(title=title), status)
    return JSONResponse({"error": error, "hint": hint}, status_code=status)


def is_page(headers: Headers) -> bool:
    """Is it a person who looks?"""
    return headers.getlist("sec-fetch-dest") == ["document"]


def _ignore() -> None:
    """Do nothing: in a test there may be no connection."""


def _with_headers(send: Send, *, last: bool) -> Send:
    """Add our headers to each answer. `last`: close the connection after it, whatever the peer still wants to send."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if last:
                headers["Connection"] = "close"
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
