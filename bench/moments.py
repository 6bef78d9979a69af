"""What is said at the right moment, and whether it helps, replayed over the sessions of two real projects.

    python bench/moments.py [--project sessions|evaluator] [--show]

Every session is replayed in order of time through the functions that answer the hooks; see `replay.py`. Measured are:

* Before a command: of the commands that fail by the same mistake about a tool or a place as a command of an earlier
  session, the share before which the line was said; and how many lines were said before commands that then worked. The
  reference does not use the shipped reading of commands: it compares the line of the output that reports the mistake.
* Uses of what was injected, as the shipped code records them, and their lift over the same items given to sessions that
  did not get them.
* Files that are read although an earlier session read the same lines: what could be saved at most, and what a summary
  before the read would cost.

The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); where they are absent, this says
so and measures nothing. `--show` prints every miss and every false alarm, for reading: the words are other people's, so
they are never written to the results.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import figures
import replay
import turns
from figures import Figure, at_least, at_most

from claude_mem.digest.evidence import EDIT_TOOLS, output_text
from claude_mem.digest.user_rules import rejection
from claude_mem.domain.records import Stopped, ToolUsed

RESULTS = Path(__file__).with_name("results")
NAMES = {"sessions": "cli", "evaluator": "evaluator"}
ROUNDS = 2_000
SHORT_OUTPUT = 2_000  # characters; a longer output of a command that did not fail is not searched for a mistake
KNOWN_SHARE = 0.95  # of the lines of a read that earlier sessions must have seen in the file, for it to be unchanged
OUTLINE_CHARS, SHOWN_CHARS = 600, 300  # of a summary of a file: its definitions, and what earlier sessions learnt

# How programs report that a word, a program or a place does not exist. Wider than what is shipped.
_MISTAKE = re.compile(
    r"command not found|: not found$|unknown (?:sub)?command|unrecognized|unknown (?:shorthand )?(?:flag|option|argument)"
    r"|no such (?:file|option|command)|invalid option|illegal option|bad option|missing script|is not an? [\w ]*command"
    r"|No module named|unexpected argument|cannot access|no rule to make|script not found|flag provided but not defined"
    r"|invalid choice|ENOENT|does not exist|unknown json field",
    re.I,
)
_DEFINITION = re.compile(
    r"^\s*(?:export |public |async |default )*(?:func|class|def|function|type|interface|const|struct|enum)\s+[\w(*]"
)


# --- before a command ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of a session: how it went, and what was said before it by each system."""

    text: str
    mistake: str  # the line of the output that reports a mistake, numbers made equal
    failed: bool
    said: str
    names: tuple[str, ...]
    milliseconds: float


@dataclass(slots=True)
class Session:
    """The commands of one session. A system says a thing once per session; `repeats` are the commands that fail like one
    of an earlier session."""

    id: str
    begin: int
    end: int
    commands: list[Ran] = field(default_factory=list)
    at_start: tuple[str, ...] = ()  # what was said at the start
    earlier: frozenset[str] = frozenset()  # mistakes of the sessions that had ended before

    @property
    def repeats(self) -> list[int]:
        return [place for place, ran in enumerate(self.commands) if ran.mistake and ran.mistake in self.earlier]


Said = dict[int, frozenset[str]]  # the items that a system says before each command


def by_exact_words(session: Session, past: Iterable[Session]) -> Said:
    """Baseline: the same command line failed when it last ran."""
    return _baseline(session, past, lambda text: " ".join(text.split()))


def by_head(session: Session, past: Iterable[Session]) -> Said:
    """Baseline: a command with the same first two words failed when it last ran."""
    return _baseline(session, past, lambda text: " ".join(text.split()[:2]))


def _baseline(session: Session, past: Iterable[Session], key: Callable[[str], str]) -> Said:
    last = {key(ran.text): bool(ran.mistake) for earlier in past for ran in earlier.commands}
    first: dict[str, int] = {}
    for place, ran in enumerate(session.commands):
        if last.get(key(ran.text)):
            first.setdefault(key(ran.text), place)
    return {place: frozenset({name}) for name, place in first.items()}


def as_shipped(session: Session, _past: Iterable[Session]) -> Said:
    said = {place: frozenset(ran.names) for place, ran in enumerate(session.commands) if ran.names}
    for name in session.at_start:  # what is said at the start counts as said before the first command that it concerns
        first = (place for place, ran in enumerate(session.commands) if _is_about(name, ran.text))
        if name.startswith("call:") and (place := next(first, None)) is not None:
            said[place] = said.get(place, frozenset()) | {name}
    return said


@dataclass(frozen=True, slots=True)
class Score:
    """Of one session: repeats, those before which something was said that concerns them, and false alarms."""

    repeats: int
    forestalled: int
    alarms: int
    commands: int


def score(session: Session, said: Said) -> Score:
    forestalled = sum(_concerns(session, said, place) for place in session.repeats)
    alarms = sum(_is_alarm(session.commands[place], names) for place, names in said.items())
    return Score(len(session.repeats), forestalled, alarms, len(session.commands))


def _concerns(session: Session, said: Said, place: int) -> bool:
    """Whether a line that was said up to this command concerns it: it is about words of this command."""
    spoken = (name for before, names in said.items() if before <= place for name in names)
    return any(_is_about(name, session.commands[place].text) for name in spoken)


def _is_about(name: str, text: str) -> bool:
    words = name.removeprefix("call:").split()
    bare = " ".join(text.split())
    if words and words[-1].startswith("-"):
        return " ".join(words[:-1]) in bare and any(word.startswith(words[-1]) for word in bare.split())
    return " ".join(words) in bare


def _is_alarm(ran: Ran, names: frozenset[str]) -> bool:
    return not ran.failed and not all(name.startswith("rule:") for name in names)


def ratio(scores: Sequence[Score], above: str, below: str, times: float = 1) -> float:
    total = sum(getattr(one, below) for one in scores)
    return times * sum(getattr(one, above) for one in scores) / total if total else 0.0


def interval(scores: Sequence[Score], above: str, below: str, times: float = 1) -> tuple[float, float]:
    """95 % by resampling sessions."""
    draw = random.Random(1)
    values = sorted(ratio(draw.choices(scores, k=len(scores)), above, below, times) for _ in range(ROUNDS))
    return values[int(0.025 * ROUNDS)], values[int(0.975 * ROUNDS)]


def mistake_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("Exit code")]
    for line in (*lines[:5], *lines[-5:]):
        if len(line) < 300 and _MISTAKE.search(line):
            return re.sub(r"\d+", "0", line)
    return ""


def _ran(answer: replay.Answer) -> Ran | None:
    tool = answer.tool
    if tool is None or (tool.failed and rejection(tool) is not None):
        return None
    output = output_text(tool.output)
    is_hidden = bool(re.search(r"[|;\n]", answer.trigger.text)) and len(output) <= SHORT_OUTPUT
    mistake = mistake_line(output) if tool.failed or is_hidden else ""
    failed = tool.failed or bool(mistake)
    injection = answer.injection
    return Ran(answer.trigger.text, mistake, failed, injection.text, injection.item_names, answer.milliseconds)


# --- files that are read again ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rereading:
    """Reads of lines that an earlier session read already."""

    characters: int = 0  # of everything that tools returned
    read: int = 0  # of all reads of files
    again: int = 0  # of first reads in a session whose text an earlier session got as well
    needed: int = 0  # of these, where the session then edits the file or writes one of its lines
    summaries: int = 0  # that a summary before each of these would cost
    reads: int = 0


class Reader:
    """What was read in earlier sessions of a project."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, int]] = defaultdict(dict)  # of a file, each line: when its session ended
        self.totals = Rereading()

    def take(self, session: replay.Recorded) -> None:
        bodies = [event.body for event in session.events]
        tools = [body for body in bodies if isinstance(body, ToolUsed)]
        seen: dict[str, set[str]] = defaultdict(set)
        for place, tool in enumerate(tools):
            text = _returned(tool)
            self.totals.characters += len(text)
            path = str(tool.input.get("file_path", ""))
            if tool.name != "Read" or tool.failed or not path:
                continue
            self.totals.read += len(text)
            lines = {line for raw in text.splitlines() if (line := _bare(raw))}
            if lines - seen[path] and self._is_known(path, lines, session.begin):
                self.totals.reads += 1
                self.totals.again += len(text)
                self.totals.needed += len(text) * _is_needed(path, text, tools[place + 1 :], bodies)
                self.totals.summaries += min(len(text), SHOWN_CHARS + _outline_chars(text))
            seen[path] |= lines
        for path, lines in seen.items():
            for line in lines:
                self.known[path].setdefault(line, session.end)

    def _is_known(self, path: str, lines: set[str], before: int) -> bool:
        known = self.known[path]
        return sum(known.get(line, before + 1) <= before for line in lines) >= KNOWN_SHARE * len(lines) > 0


def _returned(tool: ToolUsed) -> str:
    file = tool.output.get("file") if isinstance(tool.output, dict) else None
    return str(file.get("content", "")) if isinstance(file, dict) else output_text(tool.output)


def _bare(line: str) -> str:
    return re.sub(r"^\s*\d+(?:→|\t|: )", "", line).strip()


def _is_needed(path: str, text: str, later: Sequence[ToolUsed], bodies: Sequence[object]) -> bool:
    if any(tool.name in EDIT_TOOLS and tool.input.get("file_path") == path for tool in later):
        return True
    words = "\n".join(str(value) for tool in later for value in tool.input.values())
    words += "\n".join(body.message for body in bodies if isinstance(body, Stopped))
    return any(len(line := _bare(raw)) >= 30 and line in words for raw in text.splitlines())


def _outline_chars(text: str) -> int:
    names = [_bare(line)[:80] for line in text.splitlines() if _DEFINITION.match(_bare(line))]
    return min(OUTLINE_CHARS, sum(len(name) + 1 for name in names))


# --- one project -----------------------------------------------------------------------------------------------------


async def measure(project: str, data: Path, *, show: bool) -> list[Figure]:
    name, past, reader = NAMES[project], list[Session](), Reader()
    systems = {"ours": as_shipped, "same words": by_exact_words, "same head": by_head}
    scores: dict[str, list[Score]] = defaultdict(list)
    times: list[float] = []
    kinds: Counter[str] = Counter()
    playing = replay.open_replay(project, data)
    try:
        async for recorded, answers in playing.run():
            reader.take(recorded)
            session = Session(recorded.id, recorded.begin, recorded.end)
            asked = [answer for answer in answers if answer.trigger.kind == "command"]
            session.commands = [ran for answer in asked if (ran := _ran(answer))]
            session.at_start = answers[0].injection.item_names
            times += [answer.milliseconds for answer in asked]
            kinds.update(item.partition(":")[0] for answer in answers for item in answer.injection.item_names)
            before = [earlier for earlier in past if earlier.end <= session.begin]
            session.earlier = frozenset(ran.mistake for one in before for ran in one.commands if ran.mistake)
            for system, says in systems.items():
                said = says(session, before)
                scores[system].append(score(session, said))
                if show and system == "ours":
                    _show(session, said)
            past.append(session)
    finally:
        playing.service.close()
    return [*_command_figures(name, scores, past, times), *_reading_figures(name, reader.totals)]


def _command_figures(
    name: str, scores: dict[str, list[Score]], past: Sequence[Session], times: Sequence[float]
) -> list[Figure]:
    ours = scores["ours"]
    repeats, commands = sum(one.repeats for one in ours), sum(one.commands for one in ours)
    found: list[Figure] = []
    for system, rows in scores.items():
        goals = (at_least(0.7), at_most(2)) if system == "ours" else (None, None)
        parts = (("repeats forestalled", "forestalled", "repeats", 1.0, "share", repeats),
                 ("false alarms per 100 commands", "alarms", "commands", 100.0, "", commands))  # fmt: skip
        for (label, above, below, factor, unit, samples), goal in zip(parts, goals, strict=True):
            value = ratio(rows, above, below, factor)
            low, high = interval(rows, above, below, factor)
            title = f"{name}: {label}, {system} [{low:.2f}, {high:.2f}]"
            found.append(Figure(title, value, unit, samples, goal if samples else None))
    common = Counter(one.commands[place].mistake for one in past for place in one.repeats).most_common(1)
    most = common[0][1] if common else 0
    found.append(Figure(f"{name}: repeats that are one and the same mistake", most, "", repeats))
    found.append(Figure(f"{name}: sessions with a repeat", sum(bool(one.repeats) for one in past), "", len(past)))
    found.append(
        Figure(f"{name}: answer before a command, p95", figures.percentile(times, 95), "ms", len(times), at_most(20))
    )
    slow = sum(one > 30 for one in times)
    found.append(Figure(f"{name}: answers over 30 ms, which are not given", slow, "", len(times)))
    return found


def _reading_figures(name: str, totals: Rereading) -> list[Figure]:
    total = max(1, totals.characters)
    share, spare, cost = totals.again / total, (totals.again - totals.needed) / total, totals.summaries / total
    return [
        Figure(f"{name}: tool output that is files", totals.read / total, "share", totals.reads),
        Figure(f"{name}: tool output that is unchanged text of a file an earlier session read", share, "share", totals.reads),
        Figure(f"{name}: of this, not edited or quoted afterwards", spare, "share", totals.reads),
        Figure(f"{name}: what a summary before each of these reads would add", cost, "share", totals.reads),
    ]  # fmt: skip


def _show(session: Session, said: Said) -> None:
    for place in session.repeats:
        if not _concerns(session, said, place):
            ran = session.commands[place]
            print(f"MISS {session.id[:8]} {ran.text[:160]!r} → {ran.mistake[:160]!r}")
    for place, names in said.items():
        ran = session.commands[place]
        word = "ALARM" if _is_alarm(ran, names) else "said"
        print(f"{word} {session.id[:8]} {ran.text[:160]!r}: {ran.said.partition(chr(10))[2][:240]!r}")


# --- the program -----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--project", choices=turns.PROJECTS, action="append")
    parser.add_argument("--show", action="store_true", help="print misses and false alarms")
    options = parser.parse_args()
    if problem := turns.missing():
        print(problem)
        return 0
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        setting = figures.setting(Path(folder))
        for project in options.project or turns.PROJECTS:
            found += asyncio.run(measure(project, Path(folder, project), show=options.show))
    print(figures.as_text(found))
    if not options.project:
        figures.write(RESULTS / "moments", "The right word at the right moment", found, setting)
    return int(any(figure.missed for figure in found))


if __name__ == "__main__":
    sys.exit(main())
