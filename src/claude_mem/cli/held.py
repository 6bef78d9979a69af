"""Mark records that are based on external content and not approved, wherever a command prints them.

An agent that runs the command has then read external content, and capture must detect that (`origins.py`). So the note
is part of the output, and if stdout is not a terminal it is also on stderr, where a pipe such as `| head` can't cut it.
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
    """Return whether the record or its closing message waits for approval."""
    return is_held(item) or bool(closing_trust(item))


def warn(items: Sequence[Item]) -> None:
    """Print the note to stderr before the records, so that it is there even if only the beginning is read."""
    warn_of(HELD_NOTE if any(map(_is_any, items)) else "")


def warn_of(text: str) -> None:
    """Like `warn`, for text that the worker formatted."""
    if HELD_NOTE in text and not sys.stdout.isatty():
        output.say(HELD_NOTE)
        sys.stderr.flush()


def note(items: Sequence[Item]) -> None:
    """Print the note below the records."""
    if any(map(_is_any, items)):
        output.line(HELD_NOTE)


def json_lines(items: Sequence[Item]) -> None:
    warn(items)
    output.json_lines({**item, "held": HELD_NOTE} if _is_any(item) else item for item in items)
