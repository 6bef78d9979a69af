"""No one gets in without the token or our cookie, under a name that is not ours, or from another page.

A web page can reach a loopback port: by DNS rebinding it may even look like the same origin and send no Origin
header at all. Then the Host header is the only one that still names the attacker. So all three are checked,
exactly, on every route and before any handler runs. Only the bare `/healthz` needs no token, and tells nothing; and
`/open`, which asks for the code of a link that works once. What is to be changed with the cookie must be said in JSON.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from claude_mem.worker import wire
from claude_mem.worker.visits import Visits

OPEN_PATHS = ("/healthz", "/open")
CREDENTIAL = "claude_mem.credential"  # in the scope of a request: "token", or "cookie" for a browser's

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
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>claude-mem</title>
<h1>{title}</h1>
<p>{text}</p>
<p>Type <code>claude-mem open</code> in a terminal: it opens this page with a link that works once.</p>
"""


class Guard:
    def __init__(self, app: ASGIApp, *, visits: Visits) -> None:
        self.app = app
        self.visits = visits
        self.hosts = {f"{name}:{visits.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers) if scope["type"] == "http" else refused(headers, 403, "no")
        is_known = refusal is None and scope["path"] not in OPEN_PATHS
        if is_known:
            scope.get(wire.RECOGNISE, _ignore)()
        await (refusal or self.app)(scope, receive, _with_headers(send, last=not is_known))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return refused(headers, 403, "unknown host", "use http://127.0.0.1 and the port in worker.json")
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if len(origins) > 1 or not self.origins.issuperset(origins) or not OWN_SITES.issuperset(sites):
            return refused(headers, 403, "foreign origin")
        scope[CREDENTIAL] = "token" if self._has_token(headers) else "cookie"
        if scope["path"] in OPEN_PATHS or scope[CREDENTIAL] == "token":
            return None
        if self._has_cookie(scope["method"], headers):
            return None if scope["method"] in SAFE_METHODS or _is_json(headers) else refused(headers, 415, "not JSON")
        return refused(headers, 401, "no valid token", "send `Authorization: Bearer <token>`; worker.json has it")

    def _has_token(self, headers: Headers) -> bool:
        given = headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.visits.token.encode())

    def _has_cookie(self, method: str, headers: Headers) -> bool:
        """A cookie comes by itself, so whoever wants to change something has to show that it is our page."""
        given = headers.getlist("cookie")
        if len(given) != 1 or not self.visits.knows(given[0]):
            return False
        return method in SAFE_METHODS or len(headers.getlist("origin")) == 1


def _is_json(headers: Headers) -> bool:
    """A form or a plain text that a page sends must never be read as JSON, not even when it is our own page's."""
    given = headers.getlist("content-type")
    return len(given) == 1 and given[0].partition(";")[0].strip().lower() == "application/json"


def refused(headers: Headers, status: int, error: str, hint: str = "") -> Response:
    """In words for a person who looks at it in a browser, as JSON for everyone else."""
    if is_page(headers):
        title = "This browser is not known here yet" if status == 401 else "This is not for you"
        return HTMLResponse(_PAGE.format(title=title, text="The memory of your agents is for you alone."), status)
    return JSONResponse({"error": error, "hint": hint}, status_code=status)


def is_page(headers: Headers) -> bool:
    """Is it a person who looks?"""
    return headers.get("sec-fetch-dest") == "document"


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
