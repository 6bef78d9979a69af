"""Any bytes at all: a few hundred inputs a reader here, ten thousand and more in `make proof`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import fuzz, proof

COUNT = 10_000 if proof.long() else 200
SETTINGS = settings(max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck))

# The words that our readers know, in the spellings that they have been given, and noise between them.
TAGS = [
    f"{mark}{space}{name}{end}"
    for mark in ("<", "</", "&lt;", "&lt;/", "\\u003c", "%3C", "&#60;", "&#x3c;/", "<\u200b", "‹")
    for space in ("", " ", "\n")
    for name in ("private", "PRIVATE", "claude-mem-context", "observation", "title", "summary", "system-reminder")
    for end in (">", "/>", ' a="b">', "&gt;", "", "\\u003e")
]
SIGNS = [
    "\0",
    "\u200b",
    "\u202e",
    "\x1b[31m",
    "\ufeff",
    "\\",
    '"',
    "{",
    "}",
    "]]>",
    "<![CDATA[",
    "<!--",
    "`",
    "\r",
    "\u2028",
]
PIECE = st.one_of(st.sampled_from(TAGS), st.sampled_from(SIGNS), st.text(max_size=20))
SOUP = st.lists(PIECE, max_size=25).map(lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass"))
BYTES = st.one_of(st.binary(max_size=400), st.lists(SOUP, min_size=1, max_size=6).map(b"\xff".join))

# What looks like a hook's record: some keys that hosts use, with anything under them.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(TAGS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("session_id", "sessionId", "conversation_id", "trajectory_id", "hook_event_name", "hookEventName", "prompt", "cwd", "tool_name",
        "tool_input", "tool_response", "toolName", "toolArgs", "tool_use_id", "transcript_path", "agent_action_name", "tool_info", "source",
        "workspace_roots", "timestamp", "last_assistant_message", "reason", "llm_request", "sessionID", "event", "type", "input")  # fmt: skip
EVENTS = st.sampled_from(["SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PreToolUse", "Stop", "SessionEnd",
                          "BeforeAgent", "AfterTool", "beforeSubmitPrompt", "afterFileEdit", "stop", "pre_user_prompt"])  # fmt: skip
FIELDS = st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=8)
NAMED = st.fixed_dictionaries(
    {}, optional={"session_id": st.just("s"), "hook_event_name": EVENTS, "tool_name": st.just("Bash")}
)
ODD = st.one_of(st.text(max_size=12), st.sampled_from(["²", "1" * 30, "yes", "%0A", "/", "٣", "-1"]))
HEADERS = st.fixed_dictionaries(
    {"command": st.sampled_from(["save", "new", "summary", "x"])},
    optional=dict.fromkeys(("pid", "private", "withheld", "cut", "project_dir", "project", "source"), ODD)
    | {"host": st.sampled_from(["claude", "codex", "gemini", "²"])},
)


def _record(head: dict[str, str], fields: dict[str, Any], named: dict[str, str], whole: bool) -> bytes:
    """A spool file, or its inside alone: then the reader's own headers of every host stand above it."""
    body = json.dumps({**fields, **named}).encode()
    lines = "".join(f"{key} {value}\n" for key, value in head.items()).encode("utf-8", "surrogatepass")
    return lines + b"\n" + body if whole else body


RECORDS = st.builds(_record, HEADERS, FIELDS, NAMED, st.booleans())
INPUTS = {"scanner": BYTES, "parser": BYTES, "reader": st.one_of(BYTES, RECORDS, RECORDS), "renderer": BYTES}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_no_bytes_break_it(name: str) -> None:
    for seed in fuzz.SEEDS[name]:
        fuzz.TARGETS[name](seed)
    count = 0

    @SETTINGS
    @given(INPUTS[name])
    def tried(data: bytes) -> None:
        nonlocal count
        count += 1
        fuzz.TARGETS[name](data)

    tried()
    assert count >= COUNT
    proof.record(
        f"{name}: inputs that broke it",
        of="I8",
        goal="0 of ≥ 10,000",
        measured=0,
        ok=True,
        unit=f"of {count} (hypothesis)",
    )
