"""Where text comes from: marks on records that are based on external content, and whether a person runs a command.

An agent that runs a command which prints unapproved external content has then read it, and capture must detect that
(`privacy/trust.py`). So a note is part of the output, and if stdout is not a terminal it is also on stderr, where a
pipe such as `| head` can't cut it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from claude_mem.cli import output
from claude_mem.domain.validity import mark
from claude_mem.privacy.trust import AGENT, EXTERNAL_NOTE, USER, held_closing_origin, is_held

Item = Mapping[str, Any]

AGENT_VARIABLES = (
    "CLAUDECODE", "CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "COPILOT_CLI",
    "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE", "QWEN_CODE", "AI_AGENT",
)  # fmt: skip


def trust_mark(item: Item) -> str:
    """Return the marks of a record: its trust if it is held, and its validity if it does not hold."""
    trust = f" ⟨{item['trust']}⟩" if is_held(item) else ""
    return trust + mark(item.get("validity") or "", item.get("superseded_by"))


def closing_trust_mark(item: Item) -> str:
    """Return the mark of a summary whose closing message is held."""
    return f" ⟨{trust}⟩" if (trust := held_closing_origin(item)) else ""


def _is_held_at_all(item: Item) -> bool:
    """Return whether the record or its closing message waits for approval."""
    return is_held(item) or bool(held_closing_origin(item))


def warn_if_held(items: Sequence[Item]) -> None:
    """Print the note to stderr before the records, so that it is there even if only the beginning is read."""
    warn_if_noted(EXTERNAL_NOTE if any(map(_is_held_at_all, items)) else "")


def warn_if_noted(text: str) -> None:
    """Like `warn_if_held`, for text that the worker formatted."""
    if EXTERNAL_NOTE in text and not sys.stdout.isatty():
        output.info(EXTERNAL_NOTE)
        sys.stderr.flush()


def print_note(items: Sequence[Item]) -> None:
    """Print the note below the records."""
    if any(map(_is_held_at_all, items)):
        output.line(EXTERNAL_NOTE)


def json_lines(items: Sequence[Item]) -> None:
    """Print records as JSON lines, those that are held with the note."""
    warn_if_held(items)
    output.json_lines(map(_with_note, items))


def json_group_lines(groups: Sequence[Item]) -> None:
    """Print groups of records as JSON lines, the records that are held with the note."""
    warn_if_held([item for group in groups for item in group["items"]])
    output.json_lines({**group, "items": list(map(_with_note, group["items"]))} for group in groups)


def _with_note(item: Item) -> Item:
    return {**item, "held": EXTERNAL_NOTE} if _is_held_at_all(item) else item


# --- who runs the command --------------------------------------------------------------------------------------------


def detect_actor() -> str:
    """Return `user` or `agent`: only a person's input is trusted as the user's own.

    An agent is recognised by the variables that agents set for their commands, and by the absence of a terminal. One
    terminal stream is enough for a person: the input may be piped, the output redirected. This is no protection against
    a malicious program: any program that runs as you can imitate you.
    """
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return USER if has_terminal and not any(os.environ.get(name) for name in AGENT_VARIABLES) else AGENT
