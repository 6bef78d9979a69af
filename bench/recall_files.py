"""Prompt → files: a replay in order of time. At each session's first prompt, with only what was there before, which files
does the text name that would be given to the agent?

In process, through the very functions that answer the hooks: the start of a session, then its prompt. `hidden@10` as the data's README defines it: of the files that the
session goes on to edit and the prompt does not name, the share among the first ten that the text names.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from pathlib import Path
from typing import Any

from claude_mem.agents.payload import Trigger
from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.recall import embed
from claude_mem.system.project_folders import identify_project
from claude_mem.worker.app import Service

BUDGET = 4_000
ROOT = "/home/dev/cli"  # the folder that all sessions of the data set were renamed to


def measure(folder: Path, data: Path, model: Path | None) -> list[tuple[str, float]]:
    tasks = json.loads((folder / "tasks.json").read_text())
    found = [("words", asyncio.run(_replay(tasks, folder, data / "words", None)))]
    if model is not None:
        found.append(("words + vectors", asyncio.run(_replay(tasks, folder, data / "both", model))))
    rows = [(f"{name}, at the prompt", hidden) for name, (hidden, _) in found]
    return rows + [(f"{name}, start and prompt", after) for name, (_, after) in found]


async def _replay(tasks: dict[str, Any], folder: Path, data: Path, model: Path | None) -> tuple[float, float]:
    embedder = embed.OnnxEmbedder(embed.MODELS[embed.DEFAULT], model) if model else None
    service = Service(Config(data_dir=data, embedding_model="none"), embedder=embedder)
    alone: list[float] = []
    after: list[float] = []
    try:
        for task in tasks["prompt_to_files"]:
            if "ingest" in task:
                path = folder / "transcripts" / f"{task['ingest']}.jsonl.gz"
                service.db.write_now(backfill.enqueue_files, path, now=0)
                await service.run_until_idle()
                while await service.indexer.step():
                    pass
            elif gold := set(task["gold"]) - set(task["given"]):
                said, start = await _said(service, task["prompt"], f"new-{len(alone)}")
                alone.append(_hidden(said[:BUDGET], gold, tasks["repository_files"], task["given"]))
                after.append(_hidden(f"{start}\n{said}"[:BUDGET], gold, tasks["repository_files"], task["given"]))
    finally:
        service.close()
    return statistics.mean(alone), statistics.mean(after)


async def _said(service: Service, prompt: str, session: str) -> tuple[str, str]:
    """What is said at the prompt, and what was said at the start."""
    who: Any = {"host": "claude", "content_session_id": session}
    start, upto = await service.context_service.start_context(identify_project(ROOT), **who, source="startup")
    await service.context_service.record_start(**who, upto=upto, start=start)
    moment = Trigger(**who, cwd=ROOT, event="UserPromptSubmit", text=prompt)
    return (await service.context_service.inject(moment)).text, start.text


def _hidden(text: str, gold: set[str], repository: list[str], given: list[str]) -> float:
    named = [path for path in named_files(text, repository) if path not in given]
    return len(gold & set(named[:10])) / len(gold)


def named_files(text: str, repository: list[str]) -> list[str]:
    """By the whole path, or by an end that only one file has; in the order of the text."""
    ends: dict[str, list[str]] = {}
    for path in repository:
        parts = path.split("/")
        for begin in range(len(parts)):
            ends.setdefault("/".join(parts[begin:]), []).append(path)
    found: dict[str, None] = {}
    for token in re.findall(r"[\w@.~+-]+(?:/[\w@.~+-]+)*", text):
        paths = ends.get(token.strip("."), [])
        if len(paths) == 1:
            found.setdefault(paths[0])
    return list(found)
