"""Routes of cost and worth: the requests to models, a preview of one, and what memory is worth."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import asdict

from claude_mem.curate import refine_on_demand
from claude_mem.digest import refine
from claude_mem.domain import ids
from claude_mem.domain.errors import NotFound
from claude_mem.domain.reports import LedgerLine, TurnPreview
from claude_mem.domain.worth import Worth
from claude_mem.inject.worth import measure_worth
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import Page, page
from claude_mem.worker.http.route import AnyRoute, Route
from claude_mem.worker.http.schemas.health import (
    COMPRESS,
    LIST_LEDGER,
    SHOW_COST,
    SHOW_DAILY_COST,
    SHOW_WORTH,
    CompressRequest,
    CostQuery,
    CostReport,
    DailyCost,
    DailyCostQuery,
    LedgerQuery,
    WorthQuery,
)


async def show_cost(service: Service, request: CostQuery) -> CostReport:
    """Requests to providers and their cost: `by` (day, month, project, model, session, verdict), `days`."""
    now = ids.now_ms()
    since = now - request.days * 86_400_000
    items = await service.db.read(lambda tx: tx.journal.summarize_ledger(by=request.by, since=since))
    return CostReport(**asdict(await service.refiner.status(now)), items=items)


async def show_daily_cost(service: Service, request: DailyCostQuery) -> DailyCost:
    """Cost per day for a chart: the last `days` days, and the requests of each day split `by` model or project."""
    now = ids.now_ms()
    today = refine.day_start(now)
    days = [today - timedelta(days=back) for back in range(request.days - 1, -1, -1)]
    items = await service.db.read(lambda tx: tx.journal.list_daily_usage(by=request.by, since=refine.to_ms(days[0])))
    state = await service.refiner.status(now)
    return DailyCost(**asdict(state), days=[f"{day:%Y-%m-%d}" for day in days], items=items)


async def list_ledger(service: Service, request: LedgerQuery) -> Page[LedgerLine]:
    """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
    rows = await service.db.read(
        lambda tx: tx.journal.list_ledger_entries(
            limit=request.limit + 1, offset=request.offset, project=request.project
        )
    )
    return page(rows, offset=request.offset, limit=request.limit)


async def preview_refining(service: Service, request: CompressRequest) -> TurnPreview:
    """Try a provider on one turn: `{session or path, turn?, provider?, dry_run?}` → the request, the reply and the
    local draft. Nothing is stored except the entry in the ledger."""
    selection = refine_on_demand.PreviewOptions(
        session=request.session,
        path=request.path,
        number=request.turn,
        provider=request.provider,
        dry_run=request.dry_run,
    )
    return await refine_on_demand.preview_refining(selection, refiner=service.refiner)


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


ROUTES: tuple[AnyRoute, ...] = (
    Route(LIST_LEDGER, list_ledger),
    Route(SHOW_COST, show_cost),
    Route(SHOW_DAILY_COST, show_daily_cost),
    Route(COMPRESS, preview_refining),
    Route(SHOW_WORTH, show_worth),
)
