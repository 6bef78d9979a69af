"""Detect whether a person or an agent runs the command: only a person's input is trusted as the user's own.

Otherwise an agent that runs `claude-mem save` in its shell would be recorded as the user. An agent is recognised by the
environment variables agents set for their commands, and by the absence of a terminal. This is no protection against a
malicious program: any program that runs as you can imitate you.
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
    """Return `user` or `agent`. One terminal stream is enough: the input may be piped, the output redirected."""
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return USER if has_terminal and not any(os.environ.get(name) for name in AGENT_VARIABLES) else AGENT
