"""Access control: every request needs a credential, a known Host header, and no foreign Origin.

A web page can reach a loopback port: by DNS rebinding it may even look like the same origin and send no Origin
header at all. Then the Host header is the only one that still names the attacker. So all three are checked,
exactly, on every route and before any handler runs.

A browser cannot send our header when it loads a page, so the viewer's own files (which contain no data) and `/healthz`
need no credential. `POST /open` takes the code of a one-time link instead, and `POST /open/again` the proof of an open
page that it was logged in before. Only loading the page `/open` may be initiated from elsewhere (by the private file
that `claude-mem open` hands to the browser); that changes no state, and the page then sends its code like any other
request of the viewer, with exactly our Origin.
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
CREDENTIAL = "claude_mem.credential"  # key in the request's scope: "token", "viewer" (a browser) or "none"
# What a stolen browser credential must not allow: logging in others, reading files by path, acting as an agent.
TERMINAL_ONLY = frozenset(
    (
        "/api/open", "/api/open/{id}", "/api/token/rotate", "/api/import", "/api/backfill", "/api/backfill/look",
        "/api/backfill/refine", "/api/compress", "/mcp",
    )
)  # fmt: skip
SAFE_METHODS = ("GET", "HEAD")
OWN_SITES = frozenset(("same-origin", "none"))
# Only the viewer's own files, no inline script or style, no text turned into markup, no embedding in a frame.
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
# A page that another program served on this port may have left a service worker in the browser, which would answer
# in our place and see every login. The browser requests its script again after each visit: this script replaces the
# service worker and unregisters itself.
_UNREGISTER = """addEventListener("install", () => skipWaiting());
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
<p>Only you can read the memory of your agents.</p>
<p>Type <code>claude-mem open</code> in a terminal: it opens the viewer and logs this browser in. If you are logged in
already, <a href="/">go to the viewer</a>.</p></main>
"""


class Guard:
    """Refuses unauthorized requests. `public`: starlette path patterns that need no credential to GET."""

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
        refusal = (
            self._refusal(scope, headers)
            if scope["type"] == "http"
            else refused(headers, 403, "only HTTP is supported")
        )
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
            log.warning("a browser has a foreign service worker for this port; it is being removed")
            return Response(_UNREGISTER, media_type="text/javascript", headers={"Service-Worker-Allowed": "/"})
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
            return refused(headers, 403, "not allowed with a browser's credential", "use `claude-mem` in a terminal")
        if method in SAFE_METHODS:
            return None
        if not headers.getlist("origin"):
            return refused(headers, 403, "the Origin header is missing")
        return None if _is_json(headers) else refused(headers, 415, "the content type must be application/json")

    def _is_own_page(self, scope: Scope, headers: Headers) -> bool:
        """Return whether the request comes from the viewer, from a typed address, or not from a browser."""
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
        return "viewer" if scheme == "viewer" and self.visits.is_valid(secret) else "none"


def credential_of(headers: Headers) -> str:
    """Return the credential that a browser sends; "" if there is none."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "viewer" else ""


def _is_json(headers: Headers) -> bool:
    """Return whether the body is declared as JSON. Forms and plain text are never parsed as JSON."""
    content_types = headers.getlist("content-type")
    return len(content_types) == 1 and content_types[0].partition(";")[0].strip().lower() == "application/json"


def refused(headers: Headers, status: int, error: str, hint: str = "") -> Response:
    """Return the refusal as a page for a person using a browser, otherwise as JSON."""
    if is_page(headers):
        title = "Not logged in" if status == 401 else "Access denied"
        return HTMLResponse(_PAGE.format(title=title), status)
    return JSONResponse({"error": error, "hint": hint}, status_code=status)


def is_page(headers: Headers) -> bool:
    """Return whether a browser loads this as a page."""
    return headers.getlist("sec-fetch-dest") == ["document"]


def _ignore() -> None:
    """Do nothing: tests may have no connection."""


def _with_headers(send: Send, *, last: bool) -> Send:
    """Add the security headers to each response. `last`: close the connection after it."""

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
