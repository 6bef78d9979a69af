"""Browser sessions. Programs authenticate with the token; a browser gets a credential for a one-time code.

There is no cookie: a browser sends cookies to every port of a host, so any local web server would receive it. The
page keeps its credential in `localStorage`, which belongs to one port, and sends it as `Authorization: Viewer …`.
Credentials are kept in memory only and end with the worker's process. If they outlived it, another program that takes
the port in between could serve a page of its own there, and that page could read the browser's storage.

To survive a restart of the worker, an open page keeps a renewal in its own memory, which no other page can read: a key
with which it proves to the next worker that it was logged in, and with which that worker proves itself to the page. The
key is never sent again, is valid for one port, and ends with the token.

A code is valid once and for seconds. If it is used again, either browser could be the owner's: all browsers are logged
out, and the owner is notified (`alerts`).
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic
from typing import Any, Literal

OPENED_SECONDS = 30  # for a link that is handed to a browser at once
PRINTED_SECONDS = 60  # for a link that a person has to paste
LOGIN_SECONDS = 30 * 86_400
RENEWAL_SECONDS = 7 * 86_400
MOST_LINKS = 100
MOST_LOGINS = 100
MOST_ALERTS = 20

State = Literal["waiting", "used", "expired", "misused"]


@dataclass(slots=True)
class Link:
    id: str  # identifies the link but does not log in
    path: str
    until: float
    browser: str = ""  # the browser that has used it
    misused: bool = False

    @property
    def state(self) -> State:
        if self.misused or self.browser:
            return "misused" if self.misused else "used"
        return "waiting" if self.until > monotonic() else "expired"


@dataclass(frozen=True, slots=True)
class Login:
    browser: str  # the same for all logins of one browser
    until: float


@dataclass(frozen=True, slots=True)
class Entry:
    credential: str
    path: str


@dataclass(frozen=True, slots=True)
class Renewal:
    id: str  # its expiry time and a random part
    key: str


@dataclass(frozen=True, slots=True)
class Renewed:
    credential: str
    proof: str  # that this worker issued the credential


@dataclass(frozen=True, slots=True)
class Alert:
    """A misuse of a login link that the owner should know about."""

    id: str
    text: str


@dataclass(slots=True)
class Visits:
    token: str
    port: int
    alerts: list[Alert] = field(default_factory=list)
    challenge: str = field(default_factory=lambda: secrets.token_hex(16))  # signed by pages; different in every process
    _links: dict[str, Link] = field(default_factory=dict)  # by digest of the code, oldest first
    _logins: dict[str, Login] = field(default_factory=dict)  # by digest of the credential, oldest first

    def replace_token(self, token: str) -> None:
        """Replace the token, which invalidates all links, logins and renewals."""
        self.token = token
        self._links = {digest: link for digest, link in self._links.items() if link.misused}  # `state` is still queried
        self._logins.clear()

    def create_link(self, path: str, *, seconds: float = OPENED_SECONDS) -> tuple[str, str]:
        """Return the id and the code of a new link to that page."""
        code, link_id = secrets.token_urlsafe(32), str(1 + secrets.randbelow(1 << 53))
        _make_room(self._links, MOST_LINKS)
        self._links[_digest(code)] = Link(link_id, path, monotonic() + seconds)
        return link_id, code

    def state(self, link_id: str) -> State:
        """Return the state of a link."""
        return next((link.state for link in self._links.values() if link.id == link_id), "expired")

    def redeem(self, code: str, *, credential: str = "", stranger: str = "") -> Entry | Alert | None:
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
            return Entry(self._admit(link.browser), link.path)
        if login and login.browser == link.browser:
            return Entry(credential, link.path)
        return self._alert(link, "A viewer link was used twice; only one of the two browsers can be yours.")

    def is_valid(self, credential: str) -> bool:
        """Return whether this is the credential of a logged-in browser."""
        return self._login(credential) is not None

    def create_renewal(self) -> Renewal:
        """Return a renewal for a logged-in page."""
        renewal_id = f"{int(time.time()) + RENEWAL_SECONDS}.{secrets.token_hex(16)}"
        return Renewal(renewal_id, self._key(renewal_id))

    def renew(self, renewal_id: str, proof: str) -> Renewed | None:
        """Return a new credential for a page that proves it has the key of its renewal."""
        key, until = self._key(renewal_id), renewal_id.partition(".")[0]
        if not hmac.compare_digest(proof.encode("utf-8", "surrogatepass"), mac(key, f"page {self.challenge}").encode()):
            return None
        if not until.isdecimal() or int(until) < time.time():
            return None
        credential = self._admit(secrets.token_hex(8))
        return Renewed(credential, mac(key, f"worker {self.challenge} {credential}"))

    def _key(self, renewal_id: str) -> str:
        return mac(self.token, f"viewer {self.port} {renewal_id}")

    def _login(self, credential: str) -> Login | None:
        login = self._logins.get(_digest(credential))
        return login if login and login.until > monotonic() else None

    def _admit(self, browser: str) -> str:
        credential = secrets.token_urlsafe(32)
        _make_room(self._logins, MOST_LOGINS)
        self._logins[_digest(credential)] = Login(browser, monotonic() + LOGIN_SECONDS)
        return credential

    def _alert(self, link: Link, text: str) -> Alert:
        self._logins.clear()
        link.misused = True
        alert = Alert(link.id, f"{text} All browsers were logged out; `claude-mem open` logs yours in again.")
        self.alerts = [*self.alerts, alert][-MOST_ALERTS:]
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
