"""Which rules are found in real sessions, to be read by a person: nothing but reading says whether one is true.

Writes them to `build/rules.md`, with the other sentences that have a cue word. The data is not part of this project
(`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); without it this says so and measures nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from turns import PROJECTS, missing, sessions

from claude_mem.digest.user_rules import rejection, rules
from claude_mem.domain.records import Prompted, ToolUsed, Turn

HERE = Path(__file__).parent
READING = HERE.parent / "build" / "rules.md"  # made of other people's words, so never committed
LONGEST = 4_000  # characters of a prompt whose sentences are listed; a longer one is a document
CUE = re.compile(
    r"\b(?:always|never|don'?t|do not|from now on|going forward|in (?:the )?future|stop \w+ing|we use|prefer|must not|"
    r"avoid|whenever|every time|convention|remember)\b",
    re.I,
)


def texts(turn: Turn) -> Iterator[str]:
    """What the user said in a turn: prompts, and the words of rejected calls."""
    for body in turn.bodies:
        if isinstance(body, Prompted):
            yield body.text
        elif isinstance(body, ToolUsed) and (words := rejection(body)):
            yield words


def report(project: str) -> str:
    known = [turn for _, session in sessions(project) for turn in session]
    said = [text for turn in known for text in texts(turn)]
    found = [draft.title for turn in known for draft in rules(turn)]
    sentences = [part for text in said if len(text) <= LONGEST for part in re.split(r"\n+|(?<=[.!?])\s+", text)]
    others = [part.strip() for part in sentences if CUE.search(part) and not any(title in part for title in found)]
    print(f"{project}: {len(said)} texts of users, {len(found)} rules, {len(others)} other sentences with a cue word")
    lines = [f"# {project}", "", *(f"- **{title}**" for title in found), "", *(f"- {part}" for part in others)]
    return "\n".join(lines) + "\n"


def main() -> int:
    if why := missing():
        print(why)
        return 0
    READING.parent.mkdir(exist_ok=True)
    READING.write_text("\n".join(map(report, PROJECTS)), "utf-8")
    print(f"to be read: {READING.relative_to(HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
