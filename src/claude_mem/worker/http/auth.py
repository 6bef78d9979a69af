"""Access control: every request needs a credential, a known Host header, and no foreign Origin.

Programs authenticate with the token; a browser gets a credential of its own for the code of a one-time link. `Guard`
checks every request before any handler runs, `BrowserSessions` keeps the links and logins, and `foreign_user` detects
that another user of this machine has connected.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from claude_mem.worker.http import limits
from claude_mem.worker.http.schemas.viewer import Admission, Renewal, RenewedLogin

log = logging.getLogger(__name__)

# --- requests --------------------------------------------------------------------------------------------------------

OPEN, OPEN_AGAIN = "/open", "/open/again"
CREDENTIAL = "claude_mem.credential"  # key in the request's scope: "token", "viewer" (a browser) or "none"
# What a stolen browser credential must not allow: logging in others, reading files by path, acting as an agent.
TERMINAL_ONLY = frozenset(
    (
        "/api/open", "/api/open/{id}", "/api/token/rotate", "/api/import", "/api/backfill", "/api/backfill/look",
        "/api/backfill/refine", "/api/compress", "/api/why", "/mcp",
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
    """Refuses unauthorized requests. `public`: starlette path patterns that need no credential to GET.

    A web page can reach a loopback port: by DNS rebinding it may even look like the same origin and send no Origin
    header at all. Then the Host header is the only one that still names the attacker. So credential, Host and Origin
    are all checked, exactly, on every route.

    A browser cannot send our header when it loads a page, so the viewer's own files (which contain no data) and
    `/healthz` need no credential. `POST /open` takes the code of a one-time link instead, and `POST /open/again` the
    proof of an open page that it was logged in before. Only loading the page `/open` may be initiated from elsewhere
    (by the private file that `claude-mem open` hands to the browser); that changes no state, and the page then sends
    its code like any other request of the viewer, with exactly our Origin.
    """

    def __init__(self, app: ASGIApp, *, browser_sessions: BrowserSessions, public: Iterable[str]) -> None:
        self.app = app
        self.browser_sessions = browser_sessions
        self.hosts = {f"{name}:{browser_sessions.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.public = [compile_path(pattern)[0] for pattern in public]
        self.terminal_only = [compile_path(pattern)[0] for pattern in sorted(TERMINAL_ONLY)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_http = scope["type"] == "http"
        refusal = self._refuse(scope, headers) if is_http else refuse(headers, 403, "only HTTP is supported")
        is_known = refusal is None and scope[CREDENTIAL] != "none"
        if is_known:
            mark_known = scope.get(limits.MARK_KNOWN)  # None in tests that have no connection
            if mark_known:
                mark_known()
        await (refusal or self.app)(scope, receive, _with_headers(send, last=not is_known))

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response that refuses a request, or None if it is allowed. Sets `CREDENTIAL` in the scope."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return refuse(headers, 403, "unknown host", "use http://127.0.0.1 and the port in worker.json")
        if not self._is_own_page(scope, headers):
            return refuse(headers, 403, "foreign origin")
        if headers.get("service-worker") == "script":
            log.warning("a browser has a foreign service worker for this port; it is being removed")
            return Response(_UNREGISTER, media_type="text/javascript", headers={"Service-Worker-Allowed": "/"})
        scope[CREDENTIAL] = credential = self._credential(headers)
        if credential == "token":
            return None
        return self._refuse_browser(scope, headers, credential)

    def _refuse_browser(self, scope: Scope, headers: Headers, credential: str) -> Response | None:
        method, path = scope["method"], scope["path"]
        if method in SAFE_METHODS and any(pattern.match(path) for pattern in self.public):
            return None
        if credential != "viewer" and not (method == "POST" and path in (OPEN, OPEN_AGAIN)):
            return refuse(headers, 401, "no valid token", "send `Authorization: Bearer <token>`; worker.json has it")
        if any(pattern.match(path) for pattern in self.terminal_only):
            return refuse(headers, 403, "not allowed with a browser's credential", "use `claude-mem` in a terminal")
        if method in SAFE_METHODS:
            return None
        if not headers.getlist("origin"):
            return refuse(headers, 403, "the Origin header is missing")
        return None if _is_json(headers) else refuse(headers, 415, "the content type must be application/json")

    def _is_own_page(self, scope: Scope, headers: Headers) -> bool:
        """Return whether the request comes from the viewer, from a typed address, or not from a browser."""
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if len(origins) > 1 or not self.origins.issuperset(origins):
            return False
        is_arrival = scope["method"] in SAFE_METHODS and scope["path"] == OPEN and is_page_load(headers)
        return is_arrival or OWN_SITES.issuperset(sites)

    def _credential(self, headers: Headers) -> str:
        values = headers.getlist("authorization")
        scheme, _, secret = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        scheme, secret = scheme.lower(), secret.strip()
        if scheme == "bearer" and hmac.compare_digest(secret.encode(), self.browser_sessions.token.encode()):
            return "token"
        return "viewer" if scheme == "viewer" and self.browser_sessions.is_valid(secret) else "none"


def credential_of(headers: Headers) -> str:
    """Return the credential that a browser sends; "" if there is none."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "viewer" else ""


def _is_json(headers: Headers) -> bool:
    """Return whether the body is declared as JSON. Forms and plain text are never parsed as JSON."""
    content_types = headers.getlist("content-type")
    return len(content_types) == 1 and content_types[0].partition(";")[0].strip().lower() == "application/json"


def refuse(headers: Headers, status: int, error: str, hint: str = "") -> Response:
    """Return the refusal as a page for a person using a browser, otherwise as JSON."""
    if is_page_load(headers):
        title = "Not logged in" if status == 401 else "Access denied"
        return HTMLResponse(_PAGE.format(title=title), status)
    return JSONResponse({"error": error, "hint": hint}, status_code=status)


def is_page_load(headers: Headers) -> bool:
    """Return whether a browser loads this as a page."""
    return headers.getlist("sec-fetch-dest") == ["document"]


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


# --- browser sessions ------------------------------------------------------------------------------------------------

OPENED_SECONDS = 30  # for a link that is handed to a browser at once
PRINTED_SECONDS = 60  # for a link that a person has to paste
LOGIN_SECONDS = 30 * 86_400
RENEWAL_SECONDS = 7 * 86_400
MAX_LINKS = 100
MAX_LOGINS = 100
MAX_ALERTS = 20

State = Literal["waiting", "used", "expired", "misused"]


@dataclass(slots=True)
class Link:
    """A one-time link that logs in a browser."""

    id: str  # identifies the link but does not log in
    path: str
    until: float
    browser: str = ""  # the browser that has used it
    misused: bool = False

    @property
    def state(self) -> State:
        """Whether the link can still be used, and if not, why."""
        if self.misused or self.browser:
            return "misused" if self.misused else "used"
        return "waiting" if self.until > monotonic() else "expired"


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    """One login of a browser."""

    browser: str  # the same for all logins of one browser
    until: float


@dataclass(frozen=True, slots=True)
class Alert:
    """A misuse of a login link that the owner should know about."""

    id: str
    text: str


@dataclass(slots=True)
class BrowserSessions:
    """The links by which browsers log in, and the browsers that are logged in.

    There is no cookie: a browser sends cookies to every port of a host, so any local web server would receive it. The
    page keeps its credential in `localStorage`, which belongs to one port, and sends it as `Authorization: Viewer …`.
    Credentials are kept in memory only and end with the worker's process. If they outlived it, another program that
    takes the port in between could serve a page of its own there, and that page could read the browser's storage.

    To survive a restart of the worker, an open page keeps a renewal in its own memory, which no other page can read: a
    key with which it proves to the next worker that it was logged in, and with which that worker proves itself to the
    page. The key is never sent again, is valid for one port, and ends with the token.

    A code is valid once and for seconds. If it is used again, either browser could be the owner's: all browsers are
    logged out, and the owner is notified (`alerts`).
    """

    token: str
    port: int
    alerts: list[Alert] = field(default_factory=list)
    challenge: str = field(default_factory=lambda: secrets.token_hex(16))  # signed by pages; different in every process
    _links: dict[str, Link] = field(default_factory=dict)  # by digest of the code, oldest first
    _logins: dict[str, BrowserLogin] = field(default_factory=dict)  # by digest of the credential, oldest first

    def replace_token(self, token: str) -> None:
        """Replace the token, which invalidates all links, logins and renewals."""
        self.token = token
        self._links = {digest: link for digest, link in self._links.items() if link.misused}  # `state` is still queried
        self._logins.clear()

    def create_link(self, path: str, *, seconds: float = OPENED_SECONDS) -> tuple[str, str]:
        """Return the id and the code of a new link to that page."""
        code, link_id = secrets.token_urlsafe(32), str(1 + secrets.randbelow(1 << 53))
        _make_room(self._links, MAX_LINKS)
        self._links[_digest(code)] = Link(link_id, path, monotonic() + seconds)
        return link_id, code

    def state(self, link_id: str) -> State:
        """Return the state of a link."""
        return next((link.state for link in self._links.values() if link.id == link_id), "expired")

    def redeem(self, code: str, *, credential: str = "", stranger: str = "") -> Admission | Alert | None:
        """Return a credential for the code, an alert if someone else used it as well, or None if it is not valid.

        `credential`: the browser's current credential. The browser that has used the code may use it again.
        `stranger`: a description of the other user of this machine whose program sends the code.
        """
        link = self._links.get(_digest(code))
        if link is None or link.state in ("expired", "misused"):
            return None
        if stranger:
            return self._alert(link, f"{stranger} sent the code of a viewer link and was refused.")
        login = self._login(credential)
        if link.state == "waiting":
            link.browser = login.browser if login else secrets.token_hex(8)
            return Admission(self._admit(link.browser), link.path)
        if login and login.browser == link.browser:
            return Admission(credential, link.path)
        return self._alert(link, "A viewer link was used twice; only one of the two browsers can be yours.")

    def is_valid(self, credential: str) -> bool:
        """Return whether this is the credential of a logged-in browser."""
        return self._login(credential) is not None

    def create_renewal(self) -> Renewal:
        """Return a renewal for a logged-in page."""
        renewal_id = f"{int(time.time()) + RENEWAL_SECONDS}.{secrets.token_hex(16)}"
        return Renewal(renewal_id, self._key(renewal_id))

    def renew(self, renewal_id: str, proof: str) -> RenewedLogin | None:
        """Return a new credential for a page that proves it has the key of its renewal."""
        key, until = self._key(renewal_id), renewal_id.partition(".")[0]
        if not hmac.compare_digest(proof.encode("utf-8", "surrogatepass"), mac(key, f"page {self.challenge}").encode()):
            return None
        if not until.isdecimal() or int(until) < time.time():
            return None
        credential = self._admit(secrets.token_hex(8))
        return RenewedLogin(credential, mac(key, f"worker {self.challenge} {credential}"))

    def _key(self, renewal_id: str) -> str:
        return mac(self.token, f"viewer {self.port} {renewal_id}")

    def _login(self, credential: str) -> BrowserLogin | None:
        login = self._logins.get(_digest(credential))
        return login if login and login.until > monotonic() else None

    def _admit(self, browser: str) -> str:
        credential = secrets.token_urlsafe(32)
        _make_room(self._logins, MAX_LOGINS)
        self._logins[_digest(credential)] = BrowserLogin(browser, monotonic() + LOGIN_SECONDS)
        return credential

    def _alert(self, link: Link, text: str) -> Alert:
        self._logins.clear()
        link.misused = True
        alert = Alert(link.id, f"{text} All browsers were logged out; `claude-mem open` logs yours in again.")
        self.alerts = [*self.alerts, alert][-MAX_ALERTS:]
        return alert


def mac(key: str, text: str) -> str:
    """Return the HMAC of a text, in hexadecimal digits."""
    return hmac.new(key.encode(), text.encode("utf-8", "surrogatepass"), sha256).hexdigest()


def _digest(secret: str) -> str:
    """Return the hash used for lookup, so that its timing reveals nothing about the secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _make_room(entries: dict[str, Any], limit: int) -> None:
    """Drop the oldest entries until one more fits."""
    while len(entries) >= limit:
        del entries[next(iter(entries))]


# --- users of this machine -------------------------------------------------------------------------------------------

CONNECTION_TABLE = Path("/proc/net/tcp")  # on Linux only; elsewhere no user counts as foreign
Address = tuple[str, int]


def foreign_user(client: Address | None, server: Address | None) -> str:
    """Return a description of the connecting user if it is a different user; "" for the same user, root or unknown.

    Root can read the data directory anyway, and forwards the user's own connections (WSL, containers).
    """
    uid = _find_uid(client, server) if client and server else None
    return "" if uid in (None, 0, os.getuid()) else f"A program of another user of this machine (uid {uid})"


def _find_uid(client: Address, server: Address) -> int | None:
    try:
        ends = [_format_address(*client), _format_address(*server)]
        lines = CONNECTION_TABLE.read_text("ascii").splitlines()[1:]
    except (OSError, ValueError):
        return None
    for columns in map(str.split, lines):
        if columns[1:3] == ends:
            return int(columns[7])
    return None


def _format_address(host: str, port: int) -> str:
    """Format an address as /proc/net/tcp does: the IPv4 address as a native-endian number, and the port."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
