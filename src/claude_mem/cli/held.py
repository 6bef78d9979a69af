"""What came from outside and is not approved is marked wherever a command prints it.

An agent that runs the command has then read something from outside, and our capture must know it (`origins.py`). So the
note stands in what is printed; and where no person looks also on stderr, which stays when a pipe cuts the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from claude_mem.cli import output
from claude_mem.origins import HELD_NOTE, closing_trust, is_held
from claude_mem.rule_topics import superseded_mark

Item = dict[str, Any]


def mark(item: Item) -> str:
    return (f" ⟨{item['trust']}⟩" if is_held(item) else "") + superseded_mark(item)


def closing_mark(item: Item) -> str:
    return f" ⟨{trust}⟩" if (trust := closing_trust(item)) else ""


def _is_any(item: Item) -> bool:
    """Whether the record or the closing message in it is held."""
    return is_held(item) or bool(closing_trust(item))


def warn(items: Sequence[Item]) -> None:
    """Before they are printed: who reads only the beginning should have it."""
    warn_of(HELD_NOTE if any(map(_is_any, items)) else "")


def warn_of(text: str) -> None:
    """Likewise, of what the worker has put into words."""
    if HELD_NOTE in text and not sys.stdout.isatty():
        output.say(HELD_NOTE)
        sys.stderr.flush()


def note(items: Sequence[Item]) -> None:
    """Below them."""
    if any(map(_is_any, items)):
        output.line(HELD_NOTE)


def json_lines(items: Sequence[Item]) -> None:
    warn(items)
    output.json_lines({**item, "held": HELD_NOTE} if _is_any(item) else item for item in items)
