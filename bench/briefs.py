"""What sessions of two real projects would have been told at their start, printed for reading.

    python bench/briefs.py [--moments 10] [--data FOLDER] [--out FOLDER]

The sessions of a project are ingested in the order in which they began. At moments spread evenly over them, the brief
that the next session would get is written to `build/briefs/PROJECT-NN.md`, for people or judges to read: would you want
each line, and is each one true? The command prints how much room each brief takes and how many of its lines change when
one note is saved a year later. The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or
`../shared/data`); where they are absent, this says so. The briefs are other people's words: they are never committed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.domain.text import estimate_tokens
from claude_mem.inject import brief
from claude_mem.storage.sqlite.database import SqliteTransaction
from claude_mem.storage.sqlite.engine import fetch_value
from claude_mem.storage.sqlite.memory import observations
from claude_mem.worker.app import Service

HERE = Path(__file__).parent
DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", HERE.parents[1] / "shared" / "data"))
OUT = HERE.parent / "build" / "briefs"
PROJECTS = {"cli": "sessions", "evaluator": "evaluator"}  # the project's name and its folder of the data
YEAR = 366 * 86_400_000
NOTE = "Releases are signed on the machine in the cellar"


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    for project, folder in PROJECTS.items():
        files = sorted((options.data / folder / "transcripts").glob("*.jsonl.gz"), key=_began)
        if not files:
            print(f"no transcripts in {options.data.name}/{folder}: {project} is left out", file=sys.stderr)
            continue
        asyncio.run(_replay(project, files, options))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Print the briefs at moments of real projects.")
    parser.add_argument("--moments", type=int, default=10, help="briefs of each project (default: 10)")
    parser.add_argument("--data", type=Path, default=DATA, help="where the real sessions are")
    parser.add_argument("--out", type=Path, default=OUT, help="write the briefs there (default: build/briefs)")
    return parser.parse_args()


def _began(path: Path) -> str:
    """The time of a transcript's first record that has one."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return next((at for line in lines if (at := json.loads(line).get("timestamp"))), "")


async def _replay(project: str, files: Sequence[Path], options: argparse.Namespace) -> None:
    moments = {max(1, round(len(files) * n / options.moments)) for n in range(1, options.moments + 1)}
    with tempfile.TemporaryDirectory(prefix="claude-mem-bench-") as folder:
        service = Service(Config(data_dir=Path(folder), embedding_model="none"))
        try:
            for number, path in enumerate(files, 1):
                service.db.write_now(backfill.enqueue_files, path, now=0)
                await service.run_until_idle()
                if number in moments:
                    _write(service, project, number, options.out)
        finally:
            service.close()


def _write(service: Service, project: str, sessions: int, out: Path) -> None:
    text = service.db.read_now(_brief, service.config)
    path = out / f"{project}-{sessions:03}.md"
    path.write_text(f"<!-- {project}: told to the session after the first {sessions} -->\n\n{text}\n", "utf-8")
    new, gone = _changes(text, service.db.read_now(_brief, service.config, NOTE))
    size = f"{estimate_tokens(text)} tokens, {sum(1 for _ in _told(text))} lines"
    print(f"{path.name}: {size}; with one note more, {new} new and {gone} gone")


def _brief(conn: SqliteTransaction, config: Config, note: str = "") -> str:
    """The brief of the project with most sessions; with a note, as if that had been saved a year after the last one."""
    project_id = fetch_value(conn, "select project_id from sdk_sessions group by 1 order by count(*) desc limit 1")
    known = brief.gather_memory(conn, [project_id], limit=config.context_observations)
    assert known is not None
    if note:
        row: Any = dict(known.recent[0]) if known.recent else {}
        own: Any = {
            "id": observations.get_newest_observation_id(conn) + 1,
            "title": note,
            "session_id": None,
            "key": "saved:1",
        }
        at = row.get("created_at", 0) + YEAR
        fields: Any = {"type": "discovery", "trust": "user", "files_modified": [], "files_read": [], "concepts": []}
        known = replace(known, recent=[row | own | fields | {"created_at": at}, *known.recent])
    return brief.render_brief(known, budget_tokens=config.context_tokens)


def _told(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line and not line.startswith(("#", "<")))


def _changes(before: str, after: str) -> tuple[int, int]:
    old, now = set(_told(before)), set(_told(after))
    return len(now - old), len(old - now)


if __name__ == "__main__":
    sys.exit(main())
