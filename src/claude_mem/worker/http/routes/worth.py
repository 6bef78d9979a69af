"""The route of what memory is worth."""

from __future__ import annotations

from claude_mem.domain.errors import NotFound
from claude_mem.domain.worth import Worth
from claude_mem.inject.worth import measure_worth
from claude_mem.worker.app import Service
from claude_mem.worker.http.route import AnyRoute, Route
from claude_mem.worker.http.schemas.worth import SHOW_WORTH, WorthQuery


async def show_worth(service: Service, request: WorthQuery) -> Worth:
    """What was shown to sessions, what they used, the lift over other sessions, and the effect of silent moments:
    `project` or `project_id`, `since`."""
    project_id = request.project_id
    if request.project:
        (project_id, *_) = await service.db.read(lambda tx: tx.memory.list_project_ids_by_name(request.project)) or [0]
        if not project_id:
            raise NotFound(f"there is no project {request.project!r}", hint="`claude-mem list projects` shows them")
    return await measure_worth(
        service.db, project_id=project_id, since=request.since or 0, holdout=service.config.holdout
    )


ROUTES: tuple[AnyRoute, ...] = (Route(SHOW_WORTH, show_worth),)
