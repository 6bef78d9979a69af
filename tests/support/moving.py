"""A memory in this process: what goes in and what comes out, without a worker's process around it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from claude_mem.config import Config
from claude_mem.domain import export_format, ids
from claude_mem.storage.journal_records import ImportRun
from claude_mem.storage.sqlite.journal import imports
from claude_mem.transfer import export, import_
from claude_mem.worker.app import Service

T = TypeVar("T")


class Home:
    """A data directory of its own."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.config = dataclasses.replace(Config(), data_dir=folder, provider="local", **settings)

    def work(self, do: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        async def inside() -> T:
            service = Service(self.config)
            try:
                return await do(service)
            finally:
                service.close()

        return asyncio.run(inside())

    def bring(self, path: Path, **how: Any) -> ImportRun:
        """Import it to the end."""
        given = {"project": "", "untrusted": False, "dry_run": False, **how}

        async def inside(service: Service) -> ImportRun:
            source = import_.detect_source(path)
            import_id = await service.db.write(imports.create_import, path, source=source, now=ids.now_ms(), **given)
            await service.run_until_idle()
            found = await service.db.read(imports.get_import, import_id)
            assert found.ended_at is not None
            return found

        return self.work(inside)

    def export(self, *, project: str = "", query: str = "", since: Any = None, until: Any = None) -> list[bytes]:
        async def inside(service: Service) -> list[bytes]:
            wanted = await export.resolve_scope(
                service.db, service.indexer, project=project, query=query, since=since, until=until
            )
            return b"".join([part async for part in export.export_lines(service.db, wanted)]).splitlines()

        return self.work(inside)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        async def inside(service: Service) -> list[tuple[Any, ...]]:
            return await service.db.read(lambda conn: [tuple(row.values()) for row in conn.execute(sql, values)])

        return self.work(inside)


def write(path: Path, records: Iterable[export_format.ExportRecord], *, end: bool = True) -> Path:
    listed = list(records)
    head = export_format.encode_line(export_format.ExportHeader(format=export_format.FORMAT))
    tail = export_format.encode_line(export_format.ExportEnd(records=len(listed))) if end else b""
    path.write_bytes(head + b"".join(map(export_format.encode_line, listed)) + tail)
    return path
