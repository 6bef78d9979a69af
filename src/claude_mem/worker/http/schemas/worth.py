"""What memory is worth on this machine."""

from __future__ import annotations

import msgspec

from claude_mem.domain.worth import Worth
from claude_mem.worker.http.endpoints import Date, Endpoint, Name, Offset


class WorthQuery(msgspec.Struct, frozen=True):
    """The project, by name or id (all if it is left out), and the beginning of the period."""

    project: Name = ""
    project_id: Offset = 0
    since: Date | None = None


SHOW_WORTH = Endpoint("GET", "/api/worth", WorthQuery, Worth)
