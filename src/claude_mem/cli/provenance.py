"""Mark records that are based on external content and not approved, wherever a command prints them.

An agent that runs the command has then read external content, and capture must detect that (`origins.py`). So the note
is part of the output, and if stdout is not a terminal it is also on stderr, where a pipe such as `| head` can't cut it.

Detect whether a person or an agent runs the command: only a person's input is trusted as the user's own.

Otherwise an agent that runs `claude-mem save` in its shell would be recorded as the user. An agent is recognised by the
environment variables agents set for their commands, and by the absence of a terminal. This is no protection against a
malicious program: any program that runs as you can imitate you.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from claude_mem.cli import output
from claude_mem.domain.rules import superseded_suffix
from claude_mem.privacy.trust import AGENT, EXTERNAL_NOTE, USER, held_closing_origin, is_held

Item = dict[str, Any]


def trust_mark(item: Item) -> str:
    return (f" ⟨{item['trust']}⟩" if is_held(item) else "") + superseded_suffix(item)


def closing_trust_mark(item: Item) -> str:
    return f" ⟨{trust}⟩" if (trust := held_closing_origin(item)) else ""


def _is_any(item: Item) -> bool:
    """Return whether the record or its closing message waits for approval."""
    return is_held(item) or bool(held_closing_origin(item))


def warn_if_held(items: Sequence[Item]) -> None:
    """Print the note to stderr before the records, so that it is there even if only the beginning is read."""
    warn_if_noted(EXTERNAL_NOTE if any(map(_is_any, items)) else "")


def warn_if_noted(text: str) -> None:
    """Like `warn`, for text that the worker formatted."""
    if EXTERNAL_NOTE in text and not sys.stdout.isatty():
        output.info(EXTERNAL_NOTE)
        sys.stderr.flush()


def print_note(items: Sequence[Item]) -> None:
    """Print the note below the records."""
    if any(map(_is_any, items)):
        output.line(EXTERNAL_NOTE)


def json_lines(items: Sequence[Item]) -> None:
    warn_if_held(items)
    output.json_lines({**item, "held": EXTERNAL_NOTE} if _is_any(item) else item for item in items)


# --- person ----------------------------------------------------------------------------------------------------------


AGENT_VARIABLES = (
    "CLAUDECODE", "CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "COPILOT_CLI",
    "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE", "QWEN_CODE", "AI_AGENT",
)  # fmt: skip


def detect_actor() -> str:
    """Return `user` or `agent`. One terminal stream is enough: the input may be piped, the output redirected."""
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return USER if has_terminal and not any(os.environ.get(name) for name in AGENT_VARIABLES) else AGENT
