"""A worker's inside with scripted models, for tests of what models may do to memories and what they may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from claude_mem.config import load
from claude_mem.digest.models.base import Model
from claude_mem.digest.models.chain import ProviderChain
from claude_mem.domain import ids
from claude_mem.recall.embed import Embedder
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.journal import ledger, notices
from claude_mem.storage.sqlite.memory import observations
from claude_mem.worker.app import Service
from tests.support.lab import Lab

GOOD = """
<observation><type>bugfix</type><title>Basket totals are rounded once, at the end</title>
<facts><fact>round() was called for each line of src/basket.py</fact></facts>
<narrative>Rounding each line added up to a cent too much.</narrative>
<concepts><concept>problem-solution</concept></concepts>
<files_modified><file>src/basket.py</file><file>src/never_touched.py</file></files_modified></observation>
<summary><request>Fix the totals</request><completed>Totals are right</completed>
<next_steps>Round tax too</next_steps></summary>
<session><title>Basket totals</title><subtitle>Rounding is done once</subtitle></session>
"""


def spool_turn(
    lab: Lab, session: str = "s1", *, prompt: str = "Fix the basket totals", output: str = "1 passed"
) -> None:
    """A prompt, a look, an edit, a test, an answer."""
    path = str(lab.project / "src/basket.py")
    edit = {"file_path": path, "old_string": "round(x)", "new_string": "def total(lines):\n    return sum(lines)"}
    said = {"session_id": session}
    lab.spool("UserPromptSubmit", prompt=prompt, **said)
    for name, given, answer in (
        ("Read", {"file_path": path}, "def total(): ..."),
        ("Edit", edit, {"filePath": path}),
        ("Bash", {"command": "pytest -q"}, {"stdout": output}),
    ):
        lab.spool("PostToolUse", tool_name=name, tool_input=given, tool_response=answer, **said)
    lab.spool("Stop", last_assistant_message="I fixed the rounding in `total`. Tests pass.", **said)


class Place:
    """One service over a lab's data directory."""

    def __init__(self, lab: Lab, service: Service) -> None:
        self.lab = lab
        self.service = service
        self.db = service.db

    def turn(self, session: str = "s1", **more: str) -> None:
        spool_turn(self.lab, session, **more)

    async def digest(self) -> None:
        await self.service.run_until_idle()

    async def refine(self, most: int = 50) -> int:
        """Let the refine lane work until nothing is due; how many steps that took."""
        await self.hurry()
        steps = 0
        while steps < most and await self.service.refine_runner.step():
            await self.hurry(only_short=True)
            steps += 1
        return steps

    async def hurry(self, *, only_short: bool = False) -> None:
        """Nobody waits for a back-off of seconds here; longer pauses stay, unless asked otherwise."""
        await self.db.write(_make_due, 60_000 if only_short else 3_000)

    async def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return await self.db.read(lambda conn: [dict(row) for row in conn.execute(sql, values)])

    async def observations(self) -> list[Any]:
        return await self.db.read(observations.list_memories, kind="observation", limit=50, offset=0)

    async def summaries(self) -> list[Any]:
        return await self.db.read(observations.list_memories, kind="summary", limit=50, offset=0)

    async def ledger(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return [asdict(row) for row in await self.db.read(ledger.list_ledger_entries, limit=100, offset=0)][::-1]

    async def untold(self) -> list[str]:
        return list((await self.db.read(notices.list_unshown_notices)).values())

    async def tell(self) -> None:
        """A person reads the notices."""
        await self.db.write(
            notices.mark_notices_shown, list(await self.db.read(notices.list_unshown_notices)), now=ids.now_ms()
        )

    async def check_account(self) -> None:
        found = await self.service.event_account()
        assert found.captured == found.stored + found.queued + found.set_aside + found.filtered, found
        assert found.queued == found.set_aside == 0, found


def _make_due(conn: Connection, within: int) -> None:
    conn.execute("update jobs set due_at = 0 where kind = 'refine' and due_at < ?", (ids.now_ms() + within,))


@asynccontextmanager
async def place(
    folder: Path,
    *models: Model,
    chain: bool = True,
    settings: Mapping[str, str] | None = None,
    embedder: Embedder | None = None,
) -> AsyncIterator[Place]:
    """With `chain=False` the models are those of the settings."""
    lab = Lab(folder)
    env = lab.env(**{f"CLAUDE_MEM_{name.upper()}": value for name, value in (settings or {}).items()})
    config = load(env)
    service = Service(config, chain=ProviderChain(config, models=models) if chain else None, embedder=embedder)
    try:
        yield Place(lab, service)
    finally:
        await service.chain.close()
        service.close()
