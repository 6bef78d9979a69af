"""Routes for self-checks and the audit log of provider requests, injections and deletions."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from claude_mem import auditlog, ids
from claude_mem.worker import watch
from claude_mem.worker.requests import number
from claude_mem.worker.service import Service


async def show(service: Service, _: Request) -> Any:
    """Run all self-checks now → `{ok, items: [{name, ok, found, hint}]}`."""
    findings = await watch.thorough(service.db, service.config, service.spool)
    return {"at": ids.now(), "ok": all(item.ok for item in findings), "items": [asdict(item) for item in findings]}


async def show_log(service: Service, request: Request) -> Any:
    """The last `limit` entries of the audit log, and a check of its whole hash chain → `{items, lines, wrong}`."""
    limit = number(request, "limit", 50, high=100_000)
    folder = service.config.data_dir
    entries = await asyncio.to_thread(lambda: [line for _, line in auditlog.lines(folder) if line])
    count, wrong = await watch.verified(service.db, service.config)
    return {"items": entries[-limit:] if limit else [], "lines": count, "wrong": wrong}
