"""A program: end a session for each transcript that no hook has told of, read them back, and print what that took.

`python -m tests.support.peak HOST TRANSCRIPT…` with CLAUDE_MEM_DATA_DIR set: one JSON object a line, `peak` in megabytes. It is a
process of its own, so that its memory is that of the reading alone; nothing is digested.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claude_mem.config import Config, load
from claude_mem.storage.sqlite.engine import Connection, fetch_value
from claude_mem.system.spool import Spool
from claude_mem.worker.app import Service
from claude_mem.worker.runner import Runner


def megabytes() -> float:
    """The largest memory since `forget_peak`. Not `ru_maxrss`: that begins with what the parent process had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def end_of(session: str, host: str, transcript: str, config: Config) -> None:
    """What hooks say at the end of a session, through the spool."""
    spool = Spool(config.spool, config.aside)
    for command, event, fields in (
        ("new", "UserPromptSubmit", {"prompt": "the last thing", "prompt_id": f"{session}-last"}),
        ("summary", "Stop", {"prompt_id": f"{session}-last", "last_assistant_message": "Done."}),
        ("cleanup", "SessionEnd", {"reason": "exit"}),
    ):
        payload = {"session_id": session, "hook_event_name": event, "cwd": "/", "transcript_path": transcript, **fields}
        spool.put({"command": command, "host": host}, json.dumps(payload).encode())


async def told(_: Sequence[Any]) -> None:
    """Nobody listens."""


async def read_back(service: Service, lane: Runner) -> int:
    """Return how many parts it took."""
    parts = 0
    while await service.drain_once():
        pass
    while await lane.step():
        parts += 1
    return parts


def _counts(conn: Connection, session: str) -> dict[str, Any]:
    of_it = "select id from sdk_sessions where content_session_id = ?"
    return {
        kind: fetch_value(
            conn, f"select count(*) from events where kind = '{kind}' and session_id in ({of_it})", (session,)
        )
        for kind in ("tool", "prompt")
    } | {"waiting": fetch_value(conn, "select count(*) from jobs where kind = 'reconcile'")}


async def main(host: str, transcripts: list[str]) -> None:
    config = load()
    service = Service(config)
    lane = Runner(service.db, {"reconcile": service.runner.stages["reconcile"]}, told)
    try:
        for number, path in enumerate(["", *transcripts]):  # the first: what a worker needs anyway
            forget_peak()
            end_of(f"s{number}", host, path, config)
            began = time.monotonic()
            parts = await read_back(service, lane)
            seconds = round(time.monotonic() - began, 1)
            counts = await service.db.read(_counts, f"s{number}")
            sys.stdout.write(
                json.dumps({"path": path, "peak": megabytes(), "parts": parts, "seconds": seconds, **counts}) + "\n"
            )
    finally:
        service.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
