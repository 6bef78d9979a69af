"""Whether a person is at the keyboard: only then is what a command says a person's own word.

An agent that runs `claude-mem save` in its shell would otherwise speak as the user. It is known by the variables that
agents set for their commands, and by there being no terminal at all. Whoever wants to lie can, as any program can that
runs as you.
"""

from __future__ import annotations

import os
import sys

from claude_mem.origins import AGENT, USER

AGENT_VARIABLES = (
    "CLAUDECODE", "CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "COPILOT_CLI",
    "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE", "QWEN_CODE", "AI_AGENT",
)  # fmt: skip


def speaker() -> str:
    """`user` or `agent`. One of the three is enough: the text may come from a pipe, the answer may go into a file."""
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return USER if has_terminal and not any(os.environ.get(name) for name in AGENT_VARIABLES) else AGENT
