"""What came from outside and is not approved is marked wherever a command prints it.

An agent that runs the command has then read something from outside, and our capture must know it (`origins.py`). So the
note stands in what is printed; and where no person looks also on stderr, which stays when a pipe cuts the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from claude_mem.cli import output
from claude_mem.origins import HELD_NOTE, is_held
from claude_mem.rule_topics import superseded_mark

Item = dict[str, Any]


def mark(item: Item) -> str:
    return (f" ⟨{item['trust']}⟩" if is_held(item) else "") + superseded_mark(item)


def warn(items: Sequence[Item]) -> None:
    """Before they are printed: who reads only the beginning should have it."""
    warn_of(HELD_NOTE if any(map(is_held, items)) else "")


def warn_of(text: str) -> None:
    """Likewise, of what the worker has put into words."""
    if HELD_NOTE in text and not sys.stdout.isatty():
        output.say(HELD_NOTE)
        sys.stderr.flush()


def note(items: Sequence[Item]) -> None:
    """Below them."""
    if any(map(is_held, items)):
        output.line(HELD_NOTE)


def json_lines(items: Sequence[Item]) -> None:
    warn(items)
    output.json_lines({**item, "held": HELD_NOTE} if is_held(item) else item for item in items)
