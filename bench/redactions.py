"""Which lines of real sessions the rules for secrets alter, and how many of those hold no secret.

    python bench/redactions.py [--list] [--project sessions|evaluator] [--data FOLDER]

Every text of every record of two projects' transcripts goes through the rules of `redact.py`: prompts, answers, tool inputs and
outputs, subagents' progress. That is more than the pipeline stores, so the figures are upper bounds. The altered lines were
read by people; the values that are secrets by their form stand in `SECRETS`, as hashes. A replaced value that is not in
that list makes its line an innocent one. `--list` prints the replaced values with their lines, for reading them again.

The data is not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); without it nothing is measured.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures
from figures import Figure, at_most

from claude_mem.privacy import secrets

HERE = Path(__file__).parent
DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", HERE.parent.parent / "shared" / "data"))
PROJECTS = {"sessions": "Go, 115 sessions", "evaluator": "TypeScript, 98 sessions"}
PARTS = ("message", "toolUseResult", "data", "content")  # where a transcript's records hold texts
MARK = re.compile(r"\[redacted(?: ([a-z0-9-]+))?\]")

# sha256, first 16 digits, of replaced values that were read and have the form of a secret.
SECRETS = frozenset({
    "9f017043ed200059",  # API_KEY=sk_live_…, in an error message
    "fcf730b6d95236ec",  # "api_key": "…", in a test's config.local.json
    "0e9fddeb8691c6c6", "c6811a1fe9dcb23d",  # JSON Web Tokens in links of a review
})  # fmt: skip
# Altered and innocent lines by the rules of 0.1.0, by this script.
BEFORE = {"sessions": (449, 442), "evaluator": (753, 753)}


@dataclass(frozen=True, slots=True)
class Alteration:
    """A value that a rule replaced: which rule, the value, and the line it stood in."""

    rule: str
    value: str
    line: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.value.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def innocent(self) -> bool:
        return self.digest not in SECRETS


@dataclass(slots=True)
class Tally:
    """Of one project: lines read, lines altered, those of them without a secret, and the alterations by rule."""

    lines: int = 0
    altered: int = 0
    innocent: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    seen: Counter[Alteration] = field(default_factory=Counter)

    def add(self, before: str, after: str) -> None:
        self.lines += before.count("\n") + 1
        if before == after:
            return
        lines: dict[int, list[Alteration]] = {}
        for at, alteration in alterations(before, after):
            lines.setdefault(at, []).append(alteration)
            self.seen[alteration] += 1
            self.rules[alteration.rule] += 1
        self.altered += len(lines)
        self.innocent += sum(any(each.innocent for each in some) for some in lines.values())


def alterations(before: str, after: str) -> Iterator[tuple[int, Alteration]]:
    """The replaced values of a text with the starts of their lines, found by what stands between the marks."""
    position, kept = 0, 0
    for mark in MARK.finditer(after):
        position += mark.start() - kept
        kept = mark.end()
        if before.startswith(mark[0], position):  # it stood there already
            position += len(mark[0])
            continue
        following = MARK.split(after[kept:], maxsplit=1)[0]
        end = before.find(following, position + 1) if following else len(before)
        end = end if end >= 0 else len(before)
        start = before.rfind("\n", 0, position) + 1
        line = before[start:].partition("\n")[0]
        yield start, Alteration(mark[1] or "named", before[position:end], line)
        position = end


def records(project: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((project / "transcripts").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            record = json.loads(line)
            yield {name: record[name] for name in PARTS if name in record}


def pairs(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """Each text of a JSON value with what became of it."""
    if isinstance(before, str):
        yield before, after
    elif isinstance(before, dict):
        for old, new in zip(before.values(), after.values(), strict=True):
            yield from pairs(old, new)
    elif isinstance(before, list):
        for old, new in zip(before, after, strict=True):
            yield from pairs(old, new)


def measure(project: Path) -> Tally:
    tally = Tally()
    for record in records(project):
        for before, after in pairs(record, secrets.redact_json(record)):
            tally.add(before, after)
    return tally


def rows(name: str, tally: Tally) -> list[Figure]:
    about = f"{name} ({PROJECTS[name]})"
    found = [
        Figure(f"{about}: lines read", tally.lines, "lines", tally.lines),
        Figure(f"{about}: lines altered", tally.altered, "lines", tally.lines),
        Figure(f"{about}: innocent lines altered", tally.innocent, "lines", tally.lines, at_most(0)),
    ]
    if name in BEFORE:
        altered, innocent = BEFORE[name]
        found += [
            Figure(f"{about}: lines altered by 0.1.0", altered, "lines", tally.lines),
            Figure(f"{about}: innocent lines altered by 0.1.0", innocent, "lines", tally.lines),
        ]
    rules = sorted(tally.rules.items())
    return found + [Figure(f"{about}: values replaced, {rule}", count, "values", tally.lines) for rule, count in rules]


def show(tally: Tally) -> None:
    for each, times in sorted(tally.seen.items(), key=lambda item: (item[0].rule, item[0].value)):
        at = each.line.find(each.value[:40])
        near = each.line[max(0, at - 80) : at + len(each.value) + 40]
        print(f"{'innocent' if each.innocent else 'secret'} {each.digest} {times}x {each.rule}: {near[:240]!r}")


def main() -> int:
    options = _options()
    names = [name for name in PROJECTS if options.project in ("", name)]
    absent = [name for name in names if not (options.data / name / "transcripts").is_dir()]
    if absent:
        print(f"no transcripts in {options.data.name}/{absent[0]}: nothing measured (set CLAUDE_MEM_BENCH_DATA)")
        return 0
    found: list[Figure] = []
    for name in names:
        tally = measure(options.data / name)
        found += rows(name, tally)
        if options.list:
            show(tally)
    if not options.project:
        setting = {"date": figures.setting(HERE)["date"], "data": "every text of the records, line by line"}
        figures.write(HERE / "results" / "redactions", "Lines altered by redaction", found, setting)
        figures.note("redactions", found, of="P1b")
    print(figures.as_text(found))
    return int(any(figure.missed for figure in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count the lines of real sessions that the rules for secrets alter.")
    parser.add_argument("--list", action="store_true", help="print every replaced value with its line")
    parser.add_argument("--project", choices=list(PROJECTS), default="", help="one project; writes no results")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with sessions/ and evaluator/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
