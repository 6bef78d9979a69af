"""Who may come in: programs by the token, a browser by a credential that it gets for a one-time code.

There is no cookie: a browser sends cookies to every port of a host, so any local web server would be given it. The
page keeps its credential in `localStorage`, which belongs to one port, and sends it as `Authorization: Viewer …`.
Credentials are kept in memory only and end with the worker's process. If they outlived it, another program that takes
the port in between could serve a page of its own there, and that page could read the browser's storage.

A code works once and for seconds. When it is presented again, it is not known which of the two browsers is the owner's:
the credential that was given for it ends, and the owner is told (`alerts`).
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

OPENED_SECONDS = 30  # for a link that is handed to a browser at once
PRINTED_SECONDS = 60  # for a link that a person has to paste
BROWSER_SECONDS = 30 * 86_400
MOST_LINKS = 100
MOST_BROWSERS = 100
MOST_ALERTS = 20

State = Literal["waiting", "used", "expired", "misused"]


@dataclass(slots=True)
class Link:
    id: str  # names the link without opening anything
    path: str
    until: float
    browser: str = ""  # digest of the credential that was given for it
    misused: bool = False

    @property
    def state(self) -> State:
        if self.misused or self.browser:
            return "misused" if self.misused else "used"
        return "waiting" if self.until > time.monotonic() else "expired"


@dataclass(frozen=True, slots=True)
class Entry:
    credential: str
    path: str


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
    _links: dict[str, Link] = field(default_factory=dict)  # by the digest of the code, the oldest first
    _browsers: dict[str, float] = field(default_factory=dict)  # digest of a credential → until when it is good

    def change(self, token: str) -> None:
        """Take another token; no link and no browser of the old one is good any more."""
        self.token = token
        self._links.clear()
        self._browsers.clear()

    def link(self, path: str, *, seconds: float = OPENED_SECONDS) -> tuple[str, str]:
        """Return the id and the code of a new link to that page."""
        code, link_id = secrets.token_urlsafe(32), secrets.token_hex(8)
        _make_room(self._links, MOST_LINKS)
        self._links[_digest(code)] = Link(link_id, path, time.monotonic() + seconds)
        return link_id, code

    def state(self, link_id: str) -> State:
        """Return what became of a link."""
        return next((link.state for link in self._links.values() if link.id == link_id), "expired")

    def enter(self, code: str, *, credential: str = "", stranger: str = "") -> Entry | Alert | None:
        """Return a credential for the code; an alert if someone else has the code, too; None if it opens nothing.

        `credential`: what the browser has already; if it came by this very code, that browser is the same and goes on.
        `stranger`: in words, the other user of this machine whose program presents the code.
        """
        link = self._links.get(_digest(code))
        if link is None or link.state in ("expired", "misused"):
            return None
        if stranger:
            return self._alert(link, f"{stranger} presented the code of a viewer link and was refused.")
        if link.state == "waiting":
            return self._admit(link)
        if self.knows(credential) and _digest(credential) == link.browser:
            return Entry(credential, link.path)
        said = "A viewer link was used twice, and only one of the two browsers can be yours. Both are locked out."
        return self._alert(link, said)

    def knows(self, credential: str) -> bool:
        """Return whether this is the credential of a browser that was let in."""
        return self._browsers.get(_digest(credential), 0.0) > time.monotonic()

    def _admit(self, link: Link) -> Entry:
        credential = secrets.token_urlsafe(32)
        link.browser = _digest(credential)
        _make_room(self._browsers, MOST_BROWSERS)
        self._browsers[link.browser] = time.monotonic() + BROWSER_SECONDS
        return Entry(credential, link.path)

    def _alert(self, link: Link, text: str) -> Alert:
        self._browsers.pop(link.browser, None)
        link.misused = True
        alert = Alert(link.id, f"{text} If that was not you: `claude-mem token rotate` locks out everyone else.")
        self.alerts = [*self.alerts, alert][-MOST_ALERTS:]
        return alert


def _digest(secret: str) -> str:
    """What is looked up instead of a secret, so that the time it takes tells nothing about the secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _make_room(kept: dict[str, Any], most: int) -> None:
    """Drop the oldest until one more fits."""
    while len(kept) >= most:
        del kept[next(iter(kept))]
