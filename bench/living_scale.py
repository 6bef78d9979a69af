"""What a look at the code adds to the start of a session, with 10,000 memories and a repository of 10,000 files.

    python bench/living_scale.py [--records 10000] [--files 10000] [--starts 60]

Each memory is anchored at 20 lines of each of two files. A start reads the anchors of the newest memories, compares
their files with the last look, and loads the states of the memories that a brief is composed from. Measured are starts
after nothing changed, after ten files changed, and after a tenth of all files changed (another branch). Needs no data.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
from living import anchors_size

from claude_mem.config import Config
from claude_mem.domain import anchors
from claude_mem.domain.anchors import Anchor
from claude_mem.inject import brief, freshness
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.memory import anchors as store
from claude_mem.storage.sqlite.memory import observations

RESULTS = Path(__file__).with_name("results")
LINES, FILES_PER_RECORD, CHANGED = 20, 2, 10
PHRASES = anchors.MAX_PHRASES // FILES_PER_RECORD
STATES = brief.RECENT + brief.DECISIONS + brief.PINNED  # rows whose states a brief needs


def path_of(number: int) -> str:
    return f"src/part{number % 100}/module{number}.py"


def lines_of(number: int) -> list[str]:
    return [f"def step_{number}_{line}(basket): return basket.total({line})" for line in range(40)]


def fill(conn: Connection, records: int, files: int) -> None:
    """Store memories with anchors, the newest last."""
    chance = random.Random(17)
    conn.execute("insert into projects values (1, 'shop', '/p', 0)")
    for number in range(records):
        row_id = observations.save_observation(
            conn, project_id=1, title=f"Work {number}", text="Done.", key=f"k{number}", trust="agent", now=number + 1
        )
        chosen = chance.sample(range(files), FILES_PER_RECORD)
        new_anchors = [
            Anchor(
                path_of(one),
                anchors.EDIT,
                anchors.choose_lines(texts := lines_of(one), most=LINES),
                anchors.choose_phrases(texts[:LINES], PHRASES),
            )
            for one in chosen
        ]
        store.replace_anchors(conn, row_id, new_anchors, now=number)


async def start(db: Database, root: str, states: int) -> tuple[float, float]:
    """Return the milliseconds of what a session start does about the code, and those of the processor."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    looks = await freshness.refresh_at_start(db, 1, root)
    await db.read(store.load_states, list(range(db_newest(db) - states + 1, db_newest(db) + 1)), root, looks)
    return (time.perf_counter() - begin) * 1000, (time.process_time() - begin_cpu) * 1000


def db_newest(db: Database) -> int:
    return db.read_now(observations.get_newest_observation_id)


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    root = folder / "shop"
    for number in range(options.files):
        path = root / path_of(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines_of(number)) + "\n", "utf-8")
    config = Config(data_dir=folder / "data")
    db = Database(config.database, backups=config.backups)
    try:
        db.write_now(fill, options.records, options.files)
        await freshness.refresh_project(db, 1, str(root))
        results: dict[str, Any] = {"records": options.records, "files": options.files}
        size, count = db.read_now(anchors_size)
        results["bytes of anchors for each record"] = round(size / count)
        results |= await _sample(db, root, options, "nothing changed", 0)
        results |= await _sample(db, root, options, f"{CHANGED} files changed", CHANGED)
        results |= await _sample(db, root, options, "a tenth of all files changed", options.files // 10)
        return results
    finally:
        db.close()


async def _sample(db: Database, root: Path, options: argparse.Namespace, name: str, changed: int) -> dict[str, Any]:
    """Time starts; before each, some files change."""
    chance = random.Random(3)
    times: list[tuple[float, float]] = []
    for number in range(options.starts):
        for one in chance.sample(range(options.files), changed):
            (root / path_of(one)).write_text("\n".join(lines_of(one)) + f"\n# {number}\n", "utf-8")
        times.append(await start(db, str(root), STATES))
        if changed:  # the look after a turn
            await freshness.refresh_project(db, 1, str(root))
    walls, processor = zip(*times, strict=True)
    return {
        f"{name}: ms, p50": round(figures.median(walls), 2),
        f"{name}: ms, p95": round(figures.percentile(walls, 95), 2),
        f"{name}: ms of the processor, p50": round(figures.median(processor), 2),
        f"{name}: ms of the processor, p95": round(figures.percentile(processor, 95), 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what a look at the code adds to a session start.")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--starts", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(measure(options, Path(folder)))
    setting = figures.setting(Path(tempfile.gettempdir()))
    lines = ["# What a look at the code adds to a session start", "", "Written by `python bench/living_scale.py`.", ""]
    lines += [f"- {name}: {value}" for name, value in {**setting, **results}.items()]
    text = "\n".join(lines) + "\n"
    print(text)
    (RESULTS / "living_scale.md").write_text(text, "utf-8")
    (RESULTS / "living_scale.json").write_text(json.dumps({**setting, **results}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
