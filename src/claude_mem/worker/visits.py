"""Who may come in: programs by the token, a browser by a credential that it gets for a one-time code.

There is no cookie: a browser sends cookies to every port of a host, so any local web server would be given it. The
page keeps its credential in `localStorage`, which belongs to one port, and sends it as `Authorization: Viewer …`.
Credentials are kept in memory only and end with the worker's process. If they outlived it, another program that takes
the port in between could serve a page of its own there, and that page could read the browser's storage.

So that an open page outlives a restart of the worker all the same, it has a renewal in its memory, where no other page
can look: a key with which it proves to the next worker that it was let in by the one before, and with which that worker
proves itself to the page. The key is never sent again, holds for one port, and ends with the token.

A code works once and for seconds. When it is presented again, nobody knows which of the two browsers is the owner's:
everyone is locked out, and the owner is told (`alerts`).
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
    id: str  # names the link without opening anything
    path: str
    until: float
    browser: str = ""  # which browser has used it
    misused: bool = False

    @property
    def state(self) -> State:
        if self.misused or self.browser:
            return "misused" if self.misused else "used"
        return "waiting" if self.until > monotonic() else "expired"


@dataclass(frozen=True, slots=True)
class Login:
    browser: str  # the same for all logins of a browser that had one already
    until: float


@dataclass(frozen=True, slots=True)
class Entry:
    credential: str
    path: str


@dataclass(frozen=True, slots=True)
class Renewal:
    id: str  # until when it is good, and a random part
    key: str


@dataclass(frozen=True, slots=True)
class Renewed:
    credential: str
    proof: str  # that it was this worker who gave the credential


@dataclass(frozen=True, slots=True)
class Alert:
    """Something about the door that the owner should know."""

    id: str
    text: str


@dataclass(slots=True)
class Visits:
    token: str
    port: int
    alerts: list[Alert] = field(default_factory=list)
    challenge: str = field(default_factory=lambda: secrets.token_hex(16))  # what a page signs; another in every process
    _links: dict[str, Link] = field(default_factory=dict)  # by the digest of the code, the oldest first
    _logins: dict[str, Login] = field(default_factory=dict)  # by the digest of the credential, the oldest first

    def change(self, token: str) -> None:
        """Take another token; no link, browser or renewal of the old one is good any more."""
        self.token = token
        self._links = {digest: link for digest, link in self._links.items() if link.misused}  # `state` is asked for
        self._logins.clear()

    def link(self, path: str, *, seconds: float = OPENED_SECONDS) -> tuple[str, str]:
        """Return the id and the code of a new link to that page."""
        code, link_id = secrets.token_urlsafe(32), str(1 + secrets.randbelow(1 << 53))
        _make_room(self._links, MOST_LINKS)
        self._links[_digest(code)] = Link(link_id, path, monotonic() + seconds)
        return link_id, code

    def state(self, link_id: str) -> State:
        """Return what became of a link."""
        return next((link.state for link in self._links.values() if link.id == link_id), "expired")

    def enter(self, code: str, *, credential: str = "", stranger: str = "") -> Entry | Alert | None:
        """Return a credential for the code; an alert if someone else has the code, too; None if it opens nothing.

        `credential`: what the browser has already. The browser that has used the code may present it again.
        `stranger`: in words, the other user of this machine whose program presents the code.
        """
        link = self._links.get(_digest(code))
        if link is None or link.state in ("expired", "misused"):
            return None
        if stranger:
            return self._alert(link, f"{stranger} presented the code of a viewer link and was refused.")
        login = self._login(credential)
        if link.state == "waiting":
            link.browser = login.browser if login else secrets.token_hex(8)
            return Entry(self._admit(link.browser), link.path)
        if login and login.browser == link.browser:
            return Entry(credential, link.path)
        return self._alert(link, "A viewer link was used twice, and only one of the two browsers can be yours.")

    def knows(self, credential: str) -> bool:
        """Return whether this is the credential of a browser that was let in."""
        return self._login(credential) is not None

    def renewal(self) -> Renewal:
        """Return a renewal for an open page that was let in."""
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
        alert = Alert(link.id, f"{text} All browsers were locked out; `claude-mem open` lets yours in again.")
        self.alerts = [*self.alerts, alert][-MOST_ALERTS:]
        return alert


def mac(key: str, text: str) -> str:
    """Return the HMAC of a text, in hexadecimal digits."""
    return hmac.new(key.encode(), text.encode("utf-8", "surrogatepass"), sha256).hexdigest()


def _digest(secret: str) -> str:
    """What is looked up instead of a secret, so that the time it takes tells nothing about the secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _make_room(entries: dict[str, Any], limit: int) -> None:
    """Drop the oldest until one more fits."""
    while len(entries) >= limit:
        del entries[next(iter(entries))]
