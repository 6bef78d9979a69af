"""The token; and how a browser is let in: a link that works once becomes a cookie.

The token itself is never given to a browser: a URL stays in histories and a page's storage is open to its scripts. The
cookie is signed with the token, so it outlives a restart of the worker and ends with the token.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie

LINK_SECONDS = 300
COOKIE_SECONDS = 30 * 86_400
MOST_LINKS = 100


@dataclass(slots=True)
class Visits:
    token: str
    port: int
    _links: dict[str, tuple[float, str]] = field(default_factory=dict)  # code → until when, and where it leads

    @property
    def cookie_name(self) -> str:
        """With the port: browsers send cookies to every port of a host, so two workers would overwrite each other's."""
        return f"claude_mem_{self.port}"

    def change(self, token: str) -> None:
        """Another token: no link and no cookie of the old one is good any more."""
        self.token = token
        self._links.clear()

    def link(self, path: str) -> str:
        """The code of a new link to that page."""
        now = time.time()
        self._links = {code: found for code, found in self._links.items() if found[0] > now}
        while len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(32)
        self._links[code] = (now + LINK_SECONDS, path)
        return code

    def enter(self, code: str) -> str | None:
        """Where the link leads; it does so once."""
        until, path = self._links.pop(code, (0.0, ""))
        return path if until > time.time() else None

    def cookie(self) -> str:
        until = f"{int(time.time()) + COOKIE_SECONDS}.{secrets.token_urlsafe(16)}"
        return f"{until}.{self._signed(until)}"

    def knows(self, header: str) -> bool:
        """Is there a cookie of ours among those of a request?"""
        try:
            given = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return False
        until, _, signature = given.value.rpartition(".") if given else ("", "", "")
        end = until.partition(".")[0]
        ours = hmac.compare_digest(signature.encode(), self._signed(until).encode())
        return ours and end.isdecimal() and int(end) > time.time()

    def _signed(self, text: str) -> str:
        return hmac.new(self.token.encode(), f"viewer {self.port} {text}".encode(), sha256).hexdigest()
