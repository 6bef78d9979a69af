"""What tools print may look like anything, also like a report about a command, again and again: reading it takes as long
as it is, and no longer."""

from __future__ import annotations

import pytest

from claude_mem.agents import gemini, qwen
from tests.support.waiting import SECONDS

REPORT = "\nDirectory: d\nOutput: o\nError: e"
MANY = 20_000


@pytest.mark.timeout(SECONDS)  # the patterns that were here before took hours
@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("qwen", "Command: x" + REPORT * MANY),
        ("qwen", "Command: x" + REPORT * MANY + "\nExit Code: 0"),
        ("gemini", " " * 1_000_000 + "</hook_context>"),
        ("gemini", "<untrusted_context>" + "</untrusted_context> " * MANY + "x"),
        ("gemini", "<hook_context>" * MANY + " " * 100_000 + "</hook_context>"),
    ],
)
def test_nothing_that_is_printed_holds_the_worker_up(host: str, text: str) -> None:
    if host == "qwen":
        qwen.translate({"tool_name": "read_file", "tool_response": text, "hook_event_name": "PostToolUse"})
    else:
        gemini.translate_call(gemini.GeminiCall("read_file", {}, text))


def test_a_report_is_still_read() -> None:
    told = qwen.translate(
        {
            "tool_name": "run_shell_command",
            "hook_event_name": "PostToolUse",
            "tool_response": "Command: ls\nDirectory: /x\nOutput: a\nError: b\nExit Code: 0\nSignal: (none)\nPIDs: 1",
        }
    )
    assert told["tool_response"] == "a\nb"
