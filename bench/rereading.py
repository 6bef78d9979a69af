"""What could an outline before a read save? Counted over the sessions of two real projects.

    python bench/rereading.py

A *repeated read* is the read of a whole file, all lines of which earlier sessions had got from that file. Before such a
read the shipped code would give the outline. How much of the file the session then used is told by what it did next:

* edited: it edited the file. Agents must read a file before they edit it, so nothing is saved, whatever the outline says.
* quoted: it wrote one of the file's longer lines. The outline spares the rest of the file, if it names the definition
  that contains each of these lines, so that only these have to be read.
* neither: the outline and what is remembered may have been enough; nothing here can show that they are.

"At most" counts every read that the outline might have spared as spared. The sessions are not part of this project
(`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); where they are absent, this says so and measures nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import figures
import replay
import turns
from figures import Figure
from moments import KNOWN_SHARE, NAMES, _bare, _returned

from claude_mem.digest.evidence import EDIT_TOOLS
from claude_mem.digest.symbols import Definition, find_definitions
from claude_mem.domain.records import Stopped, ToolUsed
from claude_mem.domain.text import estimate_tokens
from claude_mem.inject.at_tool import MIN_LINES, describe_outline

RESULTS = Path(__file__).with_name("results")
MIN_QUOTE = 30  # characters of a line that a session must write again for it to be a quotation


@dataclass(slots=True)
class Count:
    """Of one kind of reads: how many, and their characters."""

    reads: int = 0
    characters: int = 0

    def add(self, characters: int) -> None:
        self.reads += 1
        self.characters += characters


@dataclass(slots=True)
class Totals:
    kinds: defaultdict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    all_output: int = 0
    outline_characters: int = 0
    outline_tokens: int = 0
    spared: int = 0  # characters outside the definitions that were quoted


def count(project: str) -> Totals:
    totals, known = Totals(), defaultdict[str, dict[str, int]](dict)
    for session in replay.recorded_sessions(project):
        tools = [event.body for event in session.events if isinstance(event.body, ToolUsed)]
        closings = "\n".join(event.body.message for event in session.events if isinstance(event.body, Stopped))
        seen: defaultdict[str, set[str]] = defaultdict(set)
        for place, tool in enumerate(tools):
            text = _returned(tool)
            totals.all_output += len(text)
            path = str(tool.input.get("file_path", ""))
            if tool.name != "Read" or tool.failed or not path:
                continue
            lines = [_bare(raw) for raw in text.splitlines()]
            distinct = {line for line in lines if line}
            is_first = not (distinct & seen[path])
            seen[path] |= distinct
            totals.kinds["all"].add(len(text))
            if is_first and _is_known(known[path], distinct, session.begin):
                totals.kinds["repeated"].add(len(text))
                if not tool.input.get("offset") and not tool.input.get("limit"):
                    _count_repeated(totals, path, text, tools[place + 1 :], closings)
        for path, seen_lines in seen.items():
            for line in seen_lines:
                known[path].setdefault(line, session.end)
    return totals


def _is_known(known: dict[str, int], lines: set[str], before: int) -> bool:
    return sum(known.get(line, before + 1) <= before for line in lines) >= KNOWN_SHARE * len(lines) > 0


def _count_repeated(totals: Totals, path: str, text: str, later: Sequence[ToolUsed], closings: str) -> None:
    lines = [raw.partition("→")[2] if raw.partition("→")[0].strip().isdigit() else raw for raw in text.splitlines()]
    definitions = find_definitions(lines)
    outline = describe_outline(definitions) if len(lines) >= MIN_LINES else ""
    if not outline:
        return
    totals.kinds["outline"].add(len(text))
    totals.outline_characters += len(outline)
    totals.outline_tokens += estimate_tokens(outline)
    if any(tool.name in EDIT_TOOLS and tool.input.get("file_path") == path for tool in later):
        totals.kinds["edited"].add(len(text))
        return
    words = "\n".join([closings, *(str(value) for tool in later for value in tool.input.values())])
    used = [number for number, line in enumerate(lines, 1) if len(line.strip()) >= MIN_QUOTE and line.strip() in words]
    if not used:
        totals.kinds["neither"].add(len(text))
        return
    totals.kinds["quoted"].add(len(text))
    if needed := _needed_characters(lines, definitions, used, outline):
        totals.kinds["quoted and located"].add(len(text))
        totals.spared += len(text) - needed


def _needed_characters(
    lines: Sequence[str], definitions: Sequence[Definition], used: Sequence[int], outline: str
) -> int:
    """Return the length of the definitions that contain these lines; 0 if the outline does not lead to all of them."""
    named = {int(part.rpartition(" ")[2]) for part in outline.split(", ")}
    needed: set[int] = set()
    for number in used:
        block = next((block for block in _blocks(definitions, len(lines)) if number in block), None)
        if block is None or block.start not in named:
            return 0
        needed |= set(block)
    return sum(len(lines[number - 1]) + 1 for number in needed)


def _blocks(definitions: Sequence[Definition], end: int) -> Iterator[range]:
    """Yield the lines of each definition: up to the next one."""
    starts = [item.line for item in definitions]
    yield from (range(start, after) for start, after in zip(starts, [*starts[1:], end + 1], strict=True))


def measure(project: str) -> list[Figure]:
    name, totals = NAMES[project], count(project)
    kinds, output = totals.kinds, max(1, totals.all_output)
    reads = kinds["outline"].reads

    def share(kind: str, of: str, title: str) -> Figure:
        return Figure(f"{name}: {title}", kinds[kind].reads / max(1, kinds[of].reads), "share", kinds[of].reads)

    saved = kinds["neither"].characters + totals.spared
    by_kind = Counter({kind: kinds[kind].reads for kind in ("edited", "quoted", "neither")})
    return [
        share("repeated", "all", "reads of files that repeat what an earlier session read"),
        Figure(f"{name}: their part of all tool output", kinds["repeated"].characters / output, "share", kinds["repeated"].reads),
        share("outline", "repeated", "of these, whole files of which an outline would be given"),
        *(share(kind, "outline", f"of those, {kind} afterwards") for kind in by_kind),
        share("quoted and located", "quoted", "of the quoted, all quoted lines in definitions that the outline names"),
        Figure(f"{name}: tool output that outlines would spare, at most", 100 * saved / output, "%", reads),
        Figure(f"{name}: what the outlines would add", 100 * totals.outline_characters / output, "%", reads),
        Figure(f"{name}: tokens of an outline, mean", totals.outline_tokens / max(1, reads), "", reads),
    ]  # fmt: skip


def main() -> int:
    if problem := turns.missing():
        print(problem)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        setting = figures.setting(Path(folder))
    found = [figure for project in turns.PROJECTS for figure in measure(project)]
    print(figures.as_text(found))
    figures.write(RESULTS / "rereading", "Before a file is read again", found, setting)
    return 0


if __name__ == "__main__":
    sys.exit(main())
