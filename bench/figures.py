"""Figures, the goals they must reach, and how they are shown."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """`goal` is None where a figure only helps to understand the others."""

    name: str
    value: float
    unit: str
    samples: int
    goal: Goal | None = None
    of: str = ""  # which promise it speaks for, if not that of all the others

    @property
    def missed(self) -> bool:
        return self.goal is not None and not self.goal.met(self.value)

    @property
    def verdict(self) -> str:
        return "" if self.goal is None else "MISSED" if self.missed else "met"


def at_most(limit: float) -> Goal:
    return Goal(limit)


def at_least(limit: float) -> Goal:
    return Goal(limit, at_least=True)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not exceeded by so many of a hundred: never better than a real sample."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


_HEAD = ("figure", "value", "unit", "goal", "", "samples")


def _cells(figure: Figure) -> tuple[str, ...]:
    goal = str(figure.goal) if figure.goal else ""
    return (figure.name, f"{figure.value:,.2f}", figure.unit, goal, figure.verdict, f"{figure.samples:,}")


def as_text(figures: Sequence[Figure]) -> str:
    rows = [_HEAD, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    aligned = [
        "  ".join(cell.rjust(width) if at in (1, 5) else cell.ljust(width) for at, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(line.rstrip() for line in aligned)


def write(path: Path, title: str, figures: Sequence[Figure], setting: dict[str, Any]) -> None:
    """`path` without its ending: one file for people, one for programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".md").write_text(as_markdown(title, figures, setting), "utf-8")
    path.with_suffix(".json").write_text(as_json(figures, setting), "utf-8")


def note(suite: str, figures: Sequence[Figure], *, of: str) -> None:
    """For the page that `make proof` writes: those that have a goal. `of`: the promises they speak for, "R1 R2"."""
    if folder := os.environ.get("CLAUDE_MEM_PROOF"):
        lines = [_noted(figure, of, f"python bench/{suite}.py") for figure in figures if figure.goal]
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{suite}.json").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def _noted(figure: Figure, of: str, command: str) -> dict[str, Any]:
    return {
        "name": figure.name,
        "of": (figure.of or of).split(),
        "goal": str(figure.goal),
        "measured": round(figure.value, 2),
        "unit": figure.unit,
        "ok": not figure.missed,
        "note": "",
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def as_markdown(title: str, figures: Sequence[Figure], setting: dict[str, Any]) -> str:
    lines = [f"# {title}", "", "Written by `make bench`.", ""]
    lines += [f"- {name}: {value}" for name, value in setting.items()]
    lines += ["", "| figure | value | unit | goal | | samples |", "|---|--:|---|---|---|--:|"]
    lines += ["| " + " | ".join(_cells(figure)) + " |" for figure in figures]
    return "\n".join(lines) + "\n"


def as_json(figures: Sequence[Figure], setting: dict[str, Any]) -> str:
    found = [
        {
            "name": figure.name,
            "value": round(figure.value, 3),
            "unit": figure.unit,
            "samples": figure.samples,
            "goal": str(figure.goal) if figure.goal else None,
            "met": not figure.missed if figure.goal else None,
        }
        for figure in figures
    ]
    return json.dumps({**setting, "figures": found}, indent=2, ensure_ascii=False) + "\n"


def setting(folder: Path) -> dict[str, Any]:
    """What one must know to compare two results. Nothing that tells whose machine it was."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": _filesystem(folder),
        "load before": round(os.getloadavg()[0], 2),  # others at work: the ratios hold, the milliseconds do not
    }


def _cpu() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def _filesystem(folder: Path) -> str:
    """Its type: a hook syncs to the disk, and on a disk in memory that costs nothing."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    under = [(fields[1], fields[2]) for fields in mounts if folder.is_relative_to(fields[1])]
    return max(under, key=lambda mount: len(mount[0]))[1] if under else "unknown"
