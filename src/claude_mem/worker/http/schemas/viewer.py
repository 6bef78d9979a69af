"""The viewer's feed and filters, and how a browser logs in."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.project_reports import ProjectSummary
from claude_mem.worker.http.endpoints import MAX_STRANGER_BODY, Date, EndDate, Endpoint, NoFields, PageSize, Wire
from claude_mem.worker.http.schemas.context import Validities

# --- feed ------------------------------------------------------------------------------------------------------------


class FeedQuery(msgspec.Struct, frozen=True):
    """Which memories to show: those before the `next` of the previous page, and what they have to be."""

    limit: PageSize = 30
    before: str = ""
    project: Annotated[int, Meta(ge=0, le=10**15)] = 0
    kind: str = ""
    type: str = ""
    concept: str = ""
    validity: Validities = ()
    host: str = ""
    since: Date | None = None
    until: EndDate | None = None


class Feed(msgspec.Struct, frozen=True):
    """A part of the feed. `next`: the `before` of the next part; "" if there is none."""

    items: list[MemoryItem]
    next: str


class TypeFacet(msgspec.Struct, frozen=True):
    """A type of observations."""

    name: str
    icon: str


class HostFacet(msgspec.Struct, frozen=True):
    """An agent."""

    name: str
    title: str


class Facets(msgspec.Struct, frozen=True):
    """Values to filter by."""

    types: list[TypeFacet]
    concepts: list[str]
    hosts: list[HostFacet]
    projects: list[ProjectSummary]


# --- logging in ------------------------------------------------------------------------------------------------------

Secret = Annotated[str, Wire(limit=200)]


class LinkRequest(msgspec.Struct, frozen=True):
    """The page that a link leads to. `printed`: the link is pasted by hand, so it is valid longer."""

    path: Annotated[str, Wire(limit=2_000)] = "/"
    printed: bool = False


class Link(msgspec.Struct, frozen=True):
    """A link that logs in one browser, once and within `seconds`."""

    id: str
    url: str
    seconds: int


class LinkId(msgspec.Struct, frozen=True):
    """A request about a link."""

    id: str


class LinkState(msgspec.Struct, frozen=True):
    """The state of a link. `misused`: its code was used by someone else."""

    state: Literal["waiting", "used", "expired", "misused"]


class LogIn(msgspec.Struct, frozen=True):
    """The code of a link."""

    code: Secret


class Admission(msgspec.Struct, frozen=True):
    """The credential of a browser that has logged in, and the page it asked for."""

    credential: str
    path: str


class Renewal(msgspec.Struct, frozen=True):
    """What an open page needs to log in by itself after a restart of the worker."""

    id: str  # its expiry time and a random part
    key: str


class Challenge(msgspec.Struct, frozen=True):
    """The challenge that a page signs to log in again."""

    challenge: str


class LogInAgain(msgspec.Struct, frozen=True):
    """The id of a renewal, and the proof that the page has its key."""

    id: Secret
    proof: Secret


class RenewedLogin(msgspec.Struct, frozen=True):
    """The credential of a page that has logged in by its renewal."""

    credential: str
    proof: str  # that this worker issued the credential


class TokenRotated(msgspec.Struct, frozen=True):
    """Whether the token was replaced."""

    rotated: bool


SHOW_FEED = Endpoint("GET", "/api/feed", FeedQuery, Feed)
SHOW_FACETS = Endpoint("GET", "/api/facets", NoFields, Facets)
CREATE_LINK = Endpoint("POST", "/api/open", LinkRequest, Link)
ROTATE_TOKEN = Endpoint("POST", "/api/token/rotate", NoFields, TokenRotated)
SHOW_LINK = Endpoint("GET", "/api/open/{id}", LinkId, LinkState)
LOG_IN = Endpoint("POST", "/open", LogIn, Admission, max_body=MAX_STRANGER_BODY)
SHOW_CHALLENGE = Endpoint("GET", "/open/again", NoFields, Challenge)
LOG_IN_AGAIN = Endpoint("POST", "/open/again", LogInAgain, RenewedLogin, max_body=MAX_STRANGER_BODY)
CREATE_RENEWAL = Endpoint("GET", "/api/renewal", NoFields, Renewal)
