"""Runs the `claude` program through the Agent SDK, if the extra is installed and `claude_sdk` is set.

SDK messages are converted to the lines that the program prints, so that `claude_child.py` reads both. The SDK (68 MB
of modules) is imported only here. Observed with claude-agent-sdk 0.2.182.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from claude_mem.digest.models.claude_program import BUDGET_DOLLARS, SETTINGS, ProgramRequest

INSTALL_HINT = (
    "the Claude Agent SDK is not installed: `pip install 'claude-mem-py[claude]'`, or set `claude_sdk = false`"
)


async def sdk_lines(ask: ProgramRequest, stderr: Callable[[str], None]) -> AsyncGenerator[dict[str, object]]:
    """Send the question and yield the program's lines. Raises ImportError without the SDK, and any error of the SDK."""
    sdk = importlib.import_module("claude_agent_sdk")
    async for message in sdk.query(prompt=_prompts(ask.prompt), options=sdk_options(sdk, ask, stderr)):
        yield as_line(message)


async def _prompts(text: str) -> AsyncGenerator[dict[str, object]]:
    yield {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "session_id": ""}


def as_line(message: Any) -> dict[str, object]:
    """Convert an SDK message to the line that the program printed."""
    match type(message).__name__:
        case "SystemMessage":
            return {**message.data, "type": "system", "subtype": message.subtype}
        case "StreamEvent":
            return {"type": "stream_event", "event": message.event}
        case "AssistantMessage":
            texts = [block.text for block in message.content if type(block).__name__ == "TextBlock"]
            content = [{"type": "text", "text": text} for text in texts]
            return {
                "type": "assistant",
                "message": {"model": message.model, "content": content},
                "error": message.error,
            }
        case "RateLimitEvent":
            limit = message.rate_limit_info
            return {
                "type": "rate_limit_event",
                "rate_limit_info": {"status": limit.status, "resetsAt": limit.resets_at},
            }
        case "ResultMessage":
            names = ("is_error", "subtype", "api_error_status", "errors", "result", "stop_reason", "total_cost_usd")
            return {"type": "result", "usage": message.usage, **{name: getattr(message, name) for name in names}}
        case name:
            return {"type": name}


def sdk_options(sdk: Any, ask: ProgramRequest, stderr: Callable[[str], None]) -> object:
    """Return the options equivalent to `claude_program.command`."""
    return sdk.ClaudeAgentOptions(
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        permission_mode="dontAsk",
        system_prompt=ask.system,
        verbatim_prompts=True,
        max_turns=1,
        max_budget_usd=BUDGET_DOLLARS,
        thinking={"type": "disabled"},
        include_partial_messages=True,
        model=ask.model,
        cwd=ask.folder,
        cli_path=ask.program,
        resume=ask.resume or None,
        settings=SETTINGS,
        extra_args={} if ask.keep else {"no-session-persistence": None},
        stderr=stderr,
    )
