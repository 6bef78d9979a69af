"""`make bench`, the part on finding: what is shipped, asked over HTTP, on public data and on real coding sessions.

    python bench/recall.py [--only locomo|sessions|files|scale] [--data FOLDER] [--model FOLDER] [--keep FOLDER]

The data is not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`), nor is the model (fetched into
`build/models`); where one is absent, this says so and measures the rest. What is measured is recorded in `results/recall.{md,json}`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import figures
import locomo
import recall_files
import recall_scale
from lab import Broken, Home, Lab, wait_until

from claude_mem.client import Client
from claude_mem.domain.errors import OperationFailed
from claude_mem.recall import embed, models

HERE = Path(__file__).parent
DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", HERE.parent.parent / "shared" / "data"))
MODELS = HERE.parent / "build" / "models"
INDEX_SECONDS = 1800.0
SAVED = "saved.json"  # which memory is which session
PROJECTS = {"sessions": "cli, 115 sessions", "evaluator": "evaluator, 98 sessions"}
WORDS, BUILT_IN, ENCODER = "words", "words + built-in embedding", "words + encoder"


@dataclass
class Table:
    """One table of the results: ours and what others reach, in the same columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, tuple[float | None, ...]]] = field(default_factory=list)
    goals: tuple[str, ...] = ()
    notes: str = ""


# --- LoCoMo ----------------------------------------------------------------------------------------------------------


def fill_locomo(home: Home, talks: Sequence[locomo.Conversation]) -> None:
    """Each turn as a prompt of its session, at its time; each session once more as one saved memory."""
    home.spool.mkdir(parents=True, exist_ok=True, mode=0o700)
    for talk in talks:
        for session, turns in talk.sessions.items():
            for turn in turns:
                _spool(home, talk.name, session, "UserPromptSubmit", "new", turn.at, prompt=turn.text)
            _spool(home, talk.name, session, "SessionEnd", "cleanup", turns[-1].at + 1000)
    home.start()
    wait_until(home.digested, INDEX_SECONDS, "the conversations are not digested", every=0.5)
    client, saved = Client.of(home.data, seconds=60), {}
    for talk in talks:
        for session, turns in talk.sessions.items():
            day = time.strftime("%d %B %Y", time.gmtime(turns[0].at / 1000))
            text = f"{day}\n" + "\n".join(turn.text for turn in turns)
            answer = client.post("/api/memory/save", {"text": text, "project": f"{talk.name} whole"})
            saved[answer["id"]] = str(session)
    (home.data / SAVED).write_text(json.dumps(saved))


def _spool(home: Home, project: str, session: int, event: str, command: str, at: int, **fields: str) -> None:
    payload = {"session_id": f"{project}/{session}", "hook_event_name": event, **fields}
    header = f"command {command}\nhost api\nsource api\nproject {project}\n\n"
    name = f"{at * 1_000_000:016x}-{os.urandom(4).hex()}"
    (home.spool / name).write_bytes(header.encode() + json.dumps(payload).encode())


def ask_locomo(home: Home, talks: Sequence[locomo.Conversation]) -> dict[str, list[float]]:
    """Every question once in the conversation's turns and once in its sessions."""
    client = Client.of(home.data, seconds=60)
    saved: dict[str, str] = json.loads((home.data / SAVED).read_text())
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for talk in talks:
        known = _turn_ids(talk)
        for asked in talk.questions:
            items = client.get("/api/search", query=asked.text, project=talk.name, limit=50)["items"]
            turns = list(dict.fromkeys(known[item["content_session_id"], item["prompt_number"]] for item in items))
            if asked.category <= 4:
                note("R@5", _recall(turns[:5], asked.evidence))
                note("R@10", _recall(turns[:10], asked.evidence))
                note("MRR", _reciprocal(turns, asked.evidence))
            gold = frozenset(name.partition(":")[0][1:] for name in asked.evidence)
            items = client.get("/api/search", query=asked.text, project=f"{talk.name} whole", limit=50)["items"]
            sessions = [saved[str(item["id"])] for item in items]
            for name in ("", " 1–4") if asked.category <= 4 else ("",):
                note(f"recall@10{name}", _recall(sessions[:10], gold))
                note(f"recall@5{name}", _recall(sessions[:5], gold))
                note(f"any@5{name}", float(bool(gold & set(sessions[:5]))))
    return found


def _turn_ids(talk: locomo.Conversation) -> dict[tuple[str, int], str]:
    return {
        (f"{talk.name}/{session}", number): turn.id
        for session, turns in talk.sessions.items()
        for number, turn in enumerate(turns, start=1)
    }


def _recall(found: Sequence[str], gold: frozenset[str]) -> float:
    return len(gold & set(found)) / len(gold)


def _reciprocal(found: Sequence[str], gold: frozenset[str]) -> float:
    return next((1 / rank for rank, name in enumerate(found, start=1) if name in gold), 0.0)


def measure_locomo(lab: Lab, options: argparse.Namespace) -> list[Table]:
    talks = locomo.load(options.data / "locomo")
    home = _home(lab, options, "locomo")
    turns = Table(
        "LoCoMo, turns as documents (1,536 questions of categories 1–4)",
        ("R@5", "R@10", "MRR"),
        [
            ("plain FTS5", (0.530, 0.610, 0.459)),
            ("MiniLM + BM25 by reciprocal ranks, the usual recipe", (0.480, 0.574, 0.406)),
            ("arctic + two-column FTS5 by convex sum", (0.688, 0.772, 0.609)),
            ("the same with a window embedding", (0.704, 0.782, 0.612)),
        ],
        ("", "built-in ≥ .77, encoder ≥ .80", "≥ .62"),
    )
    whole = Table(
        "LoCoMo, sessions as documents (all 1,982 questions; categories 1–4 beside it)",
        ("recall@10", "any@5", "recall@5", "recall@10 1–4", "any@5 1–4"),
        [
            ("plain FTS5", (0.933, 0.916, None, None, None)),
            ("MiniLM", (0.607, 0.489, None, None, None)),
            ("best published without a model", (0.924, None, None, None, None)),
        ],
        ("≥ .95", "≥ .93", "", "", ""),
    )
    for name, found in _systems(home, options, lambda: fill_locomo(home, talks), lambda: ask_locomo(home, talks)):
        for table in (turns, whole):
            table.rows.append((name, tuple(statistics.mean(found[column]) for column in table.columns)))
    return [turns, whole]


# --- real sessions ---------------------------------------------------------------------------------------------------


def without_subjects(folder: Path, target: Path) -> Path:
    """The same transcripts without the subjects of the commits that are searched for, wherever they are quoted."""
    subjects = {task["query"] for task in json.loads((folder / "tasks.json").read_text())["commit_to_session"]}
    quoted = (re.escape(json.dumps(text, ensure_ascii=False)[1:-1]) for text in sorted(subjects, key=len, reverse=True))
    pattern = re.compile("|".join(quoted), re.I)
    (target / "transcripts").mkdir(parents=True)
    for path in (folder / "transcripts").glob("*.jsonl.gz"):
        text = pattern.sub("", gzip.decompress(path.read_bytes()).decode())
        (target / "transcripts" / path.name).write_bytes(gzip.compress(text.encode(), 1))
    return target


def fill_sessions(home: Home, folder: Path) -> None:
    home.start()
    client = Client.of(home.data, seconds=60)
    for path in sorted((folder / "transcripts").glob("*.jsonl.gz")):
        client.post("/api/backfill", {"path": str(path.resolve())})
    wait_until(home.digested, INDEX_SECONDS, "the sessions are not digested", every=0.5)


def ask_sessions(home: Home, tasks: dict[str, Any]) -> dict[str, list[float]]:
    client = Client.of(home.data, seconds=60)
    found: dict[str, list[float]] = {name: [] for name in ("R@1", "R@5", "R@10", "MRR", "R@5 hits", "R@10 hits")}
    for task in tasks["commit_to_session"]:
        items = client.get("/api/search", query=task["query"], limit=100)["items"]
        hits = [item["content_session_id"] for item in items]
        sessions, gold = list(dict.fromkeys(hits)), frozenset(task["gold"])
        for most in (1, 5, 10):
            found[f"R@{most}"].append(float(bool(gold & set(sessions[:most]))))
        for most in (5, 10):
            found[f"R@{most} hits"].append(float(bool(gold & set(hits[:most]))))
        found["MRR"].append(_reciprocal(sessions, gold))
    return found


def measure_sessions(lab: Lab, options: argparse.Namespace) -> list[Table]:
    tables = []
    for name in PROJECTS:
        tables += [_measure_project(lab, options, name, leak_free=False)]
        tables += [_measure_project(lab, options, name, leak_free=True)]
    return tables


_BASELINES: dict[tuple[str, bool], list[tuple[str, tuple[float | None, ...]]]] = {
    ("sessions", False): [
        ("recency", (None, 0.05, None, 0.029, None, None)),
        ("FTS5, prompts + answers", (None, 0.86, None, 0.747, None, None)),
        ("FTS5, + tool inputs", (None, 0.88, None, 0.757, None, None)),
        ("MiniLM alone", (None, 0.84, None, 0.662, None, None)),
        ("FTS5 tool inputs + MiniLM, fused", (None, 0.93, None, 0.794, None, None)),
    ],
    ("evaluator", False): [
        ("recency", (None, 0.06, None, 0.040, None, None)),
        ("FTS5, prompts + answers", (None, 0.97, None, 0.950, None, None)),
        ("FTS5, + tool inputs", (None, 0.985, None, 0.965, None, None)),
        ("0.1.0, words", (None, 0.985, None, 0.977, None, None)),
    ],
    ("evaluator", True): [
        ("FTS5, prompts + answers", (None, 0.95, None, 0.915, None, None)),
        ("FTS5, + tool inputs", (None, 0.94, None, 0.908, None, None)),
        ("0.1.0, words", (None, 0.954, None, 0.897, None, None)),
    ],
}
_GOALS = {
    ("sessions", False): ("", "built-in ≥ .92, encoder ≥ .96", "", "built-in ≥ .81, encoder ≥ .86", "", ""),
    ("sessions", True): ("", "", "", "encoder ≥ .84", "", ""),
}


def _measure_project(lab: Lab, options: argparse.Namespace, project: str, *, leak_free: bool) -> Table:
    folder = options.data / project
    tasks = json.loads((folder / "tasks.json").read_text())
    home = _home(lab, options, f"{project}-free" if leak_free else project)
    table = Table(
        f"{PROJECTS[project]}: the subject of a commit → the session that made it"
        f" ({len(tasks['commit_to_session'])} commits{'; leak-free' if leak_free else ''})",
        ("R@1", "R@5", "R@10", "MRR", "R@5 hits", "R@10 hits"),
        list(_BASELINES.get((project, leak_free), ())),
        _GOALS.get((project, leak_free), ()),
        "`hits`: among the first hits as they come, without counting a session once."
        + (" Leak-free: the subjects were removed from all transcripts before." if leak_free else ""),
    )

    def fill() -> None:
        fill_sessions(home, without_subjects(folder, lab.root / f"{project}-free") if leak_free else folder)

    words: list[float] = []
    for name, found in _systems(home, options, fill, lambda: ask_sessions(home, tasks)):
        table.rows.append((name, tuple(statistics.mean(found[column]) for column in table.columns)))
        words = words or found["MRR"]
        low, high = _interval(found["MRR"], words)
        table.notes += f" MRR, {name} minus words: 95 % between {low:+.3f} and {high:+.3f}." if name != WORDS else ""
    return table


def _interval(found: Sequence[float], words: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean difference by a paired bootstrap over the questions."""
    dice, differences = random.Random(1), [one - other for one, other in zip(found, words, strict=True)]
    means = sorted(statistics.fmean(dice.choices(differences, k=len(differences))) for _ in range(2_000))
    return means[50], means[-51]


def measure_files(lab: Lab, options: argparse.Namespace) -> list[Table]:
    rows = recall_files.measure(options.data / "sessions", lab.root / "files", options.model)
    table = Table(
        "Real sessions: a session's first prompt → the files it goes on to edit (4,000 characters)",
        ("hidden@10",),
        [
            ("random", (0.088,)),
            ("recency, as the old system does", (0.215,)),
            ("most often edited", (0.252,)),
            ("FTS5 turns → their files", (0.364,)),
            ("turns and recency fused → files", (0.399,)),
            ("oracle", (0.977,)),
            *((name, (value,)) for name, value in rows),
        ],
        ("≥ .50",),
    )
    return [table]


def measure_scale(lab: Lab, options: argparse.Namespace) -> list[Table]:
    table = Table(
        "Search over HTTP",
        ("p50 ms", "p95 ms", "processor ms", "at a prompt, p95 ms", "at a start, p95 ms", "worker MB"),
        recall_scale.measure(lab, options.model),
        ("", "≤ 20 at 10,000, ≤ 40 at 100,000", "", "≤ 40 at 10,000, ≤ 80 at 100,000", "≤ 20", "≤ 350"),
        "The machine was shared while this was measured (see the load); processor time does not depend on that.",
    )
    return [table]


# --- running ---------------------------------------------------------------------------------------------------------


def _home(lab: Lab, options: argparse.Namespace, name: str) -> Home:
    home = lab.home(name)
    if options.keep:
        home.data = options.keep / name
        home.env["CLAUDE_MEM_DATA_DIR"] = str(home.data)
    home.env["TZ"] = "UTC"
    home.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    return home


def _systems(
    home: Home, options: argparse.Namespace, fill: Callable[[], None], ask: Callable[[], dict[str, list[float]]]
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Once on words alone, once with the built-in embedding and, where there is a model, once with the encoder."""
    home.env["CLAUDE_MEM_EMBEDDING_MODEL"] = "none"
    if (home.data / "filled").exists():
        home.start()
    else:
        fill()
        (home.data / "filled").touch()
    _indexed(home)
    yield WORDS, ask()
    home.end()
    home.env["CLAUDE_MEM_EMBEDDING_MODEL"] = models.BUILT_IN
    home.start()
    _indexed(home)
    yield BUILT_IN, ask()
    home.end()
    if options.model is None:
        return
    shutil.copytree(options.model, home.data / "models" / embed.DEFAULT, dirs_exist_ok=True)
    home.env["CLAUDE_MEM_EMBEDDING_MODEL"] = embed.DEFAULT
    home.start()
    _indexed(home)
    yield ENCODER, ask()
    home.end()


def _indexed(home: Home) -> None:
    def done() -> bool:
        about = home.ask("/api/stats")["index"]
        return about["stale"] == 0 and (about["model"] is None or (about["ready"] and not about["owed"]))

    wait_until(done, INDEX_SECONDS, "the index is not complete", every=0.5)


PARTS = {"locomo": measure_locomo, "sessions": measure_sessions, "files": measure_files, "scale": measure_scale}
NEEDS = {"locomo": "locomo/locomo10.json.gz", "sessions": "sessions/tasks.json", "files": "sessions/tasks.json"}


def main() -> int:
    options = _options()
    options.model = _model(options.model)
    found: dict[str, Any] = {}
    with Lab() as lab:
        setting = figures.setting(lab.root)
        for name in [options.only] if options.only else PARTS:
            if name in NEEDS and not (options.data / NEEDS[name]).exists():
                print(f"{name}: no data in {options.data.name} (set CLAUDE_MEM_BENCH_DATA): not measured")
                continue
            print(f"{name} …", file=sys.stderr, flush=True)
            tables = PARTS[name](lab, options)
            found[name] = {"setting": setting, "tables": [asdict(table) for table in tables]}
            print(as_markdown(tables), flush=True)
    _record(found)
    return 0


def _record(found: dict[str, Any]) -> None:
    """What was measured replaces what was known of it; the rest stays."""
    path = HERE / "results" / "recall.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    parts = {name: {**known, **found}[name] for name in PARTS if name in {**known, **found}}
    path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n", "utf-8")
    text = "# Search quality and speed\n\nWritten by `python bench/recall.py`. Rows in bold are ours.\n"
    for part in parts.values():
        tables = [Table(**{**table, "rows": [tuple(row) for row in table["rows"]]}) for table in part["tables"]]
        about = ", ".join(f"{name} {value}" for name, value in part["setting"].items())
        text += f"\n{as_markdown(tables)}\n<sub>{about}</sub>\n"
    (HERE / "results" / "recall.md").write_text(text, "utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how well memories are found.")
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with locomo/ and sessions/")
    parser.add_argument("--model", type=Path, help="a folder with a fetched model")
    parser.add_argument("--keep", type=Path, help="keep the data directories there, for asking again")
    return parser.parse_args()


def _model(given: Path | None) -> Path | None:
    if not embed.is_installed():
        print("no vectors: onnxruntime and numpy are not installed (the extra `vectors`); words alone are measured")
        return None
    if given:
        return given
    try:
        return embed.fetch_model(MODELS)
    except OperationFailed as problem:
        print(f"no vectors: {problem}; words alone are measured")
        return None


def as_markdown(tables: Sequence[Table]) -> str:
    lines: list[str] = []
    for table in tables:
        lines += [f"## {table.title}", "", f"| | {' | '.join(table.columns)} |", "|---|" + "--:|" * len(table.columns)]
        for name, values in table.rows:
            ours = name.startswith(WORDS) or table.title.startswith("Search")
            cells = ["" if value is None else f"{value:,.3f}" if value < 1.5 else f"{value:,.1f}" for value in values]
            lines.append(f"| {f'**{name}**' if ours else name} | {' | '.join(cells)} |")
        if table.goals:
            lines.append(f"| goal | {' | '.join(table.goals)} |")
        lines += ["", *([table.notes, ""] if table.notes else [])]
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as problem:
        sys.exit(f"could not be measured: {problem}")
