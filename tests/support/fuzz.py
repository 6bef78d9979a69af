"""What must hold for any bytes at all, one function a reader of foreign text. Each raises if it does not hold.

`test_fuzz.py` feeds them generated inputs; `make fuzz` lets atheris look for inputs that reach new lines of our code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from claude_mem import answers
from claude_mem.agents import payload
from claude_mem.agents.registry import AGENTS
from claude_mem.domain.errors import UnreadableEvent
from claude_mem.domain.text import strip_invisible
from claude_mem.inject import brief
from claude_mem.privacy import secrets, tags
from claude_mem.storage.records import TimelinePoint
from claude_mem.system import spool
from tests.unit import test_reply

CANARY = "zebra7c1"
NAMES = ("private", "claude-mem-context")
FENCE = ("<claude-mem-context>", "</claude-mem-context>")


def parts(data: bytes, count: int) -> list[str]:
    """So many texts out of the bytes; lone surrogates and NUL among them, as JSON can carry them."""
    pieces = data.split(b"\xff", count - 1)
    return [piece.decode("utf-8", "surrogateescape") for piece in pieces] + [""] * (count - len(pieces))


def scanner(data: bytes) -> None:
    """Whatever stands before and after, what is between the tags does not come out, in a text or as the hook cuts it."""
    before, inside, after = parts(data, 3)
    for name in NAMES:
        hidden = inside if not any(word in inside.lower() for word in ("priv", "claude")) else ""
        text = f"{before}<{name}>{hidden}{CANARY}</{name}>{after.replace(CANARY, '')}"
        if CANARY not in before:
            assert CANARY not in tags.strip_private(text), text
            assert CANARY not in repr(tags.strip_private_json({"prompt": text, text: [text]})), text
    assert isinstance(tags.is_entirely_private(before), bool)
    isinstance(tags.strip_gemini_additions(before), str)
    redacted = secrets.redact(before)
    assert isinstance(redacted, str)


def parser(data: bytes) -> None:
    """A model's reply gives one of the verdicts, within its bounds, and nothing of a private part."""
    text, prompt = parts(data, 2)
    test_reply.check(test_reply.told(text, prompt))
    if not any(word in text.lower() for word in ("priv", "claude-mem", "<!", "]]>", "--", CANARY)):
        found = test_reply.told(f"{text}<private>{CANARY}</private><observation><title>T</title></observation>")
        assert CANARY not in repr(found), text


def reader(data: bytes) -> None:
    """A spool file is an event of ours or a `BadRecord`, for every host."""
    for raw in (data, *(_header(host) + data for host in AGENTS)):
        for read in (payload.read_event, payload.read_trigger):
            try:
                event = read(spool.parse_envelope("0" * 16 + "-00000000", raw))
                event.content_session_id.encode("utf-8", "surrogatepass")
            except UnreadableEvent as error:
                assert error.reason


def _header(host: str) -> bytes:
    return b"command save\nhost " + host.encode() + b"\n\n"


def renderer(data: bytes) -> None:
    """Whatever is remembered, what is told stays within its fence, is seen as it is, and is cut out again whole."""
    texts = parts(data, 6)
    row: Any = {"id": 1, "created_at": 1_700_000_000_000, "type": texts[0], "title": texts[1], "narrative": texts[2],
           "kind": "observation", "pinned": len(data) % 2, "concepts": [], "facts": [texts[3]], "files_modified": [],
           "files_read": [], "subtitle": texts[4], "session_id": 1, "trust": "user", "prompt_number": 1, "key": texts[0],
           "commit_id": texts[4]}  # fmt: skip
    turn: Any = {"id": 2, "session_id": 1, "created_at": 1_700_000_000_000, "request": texts[2], "completed": texts[3],
            "next_steps": texts[5], "notes": texts[1], "outcome": "done", "provider": texts[0], "files_edited": [texts[4]]}  # fmt: skip
    decision: Any = {**row, "id": 3, "type": "decision", "title": texts[3], "trust": "tool"}
    known = brief.ProjectMemory(texts[5] or "p", [row | {"title": texts[4]}], [], [row, decision], [decision], [turn])
    for text in (
        brief.render_brief(known, budget_tokens=1500),
        brief.compose_update(known, budget_tokens=300).text,
        brief.render_brief(brief.ProjectMemory(texts[1]), budget_tokens=100),
    ):
        if text:
            _check_fence(text)
    assert FENCE[1] not in brief.format_timeline([row | {"kind": "prompt"}], TimelinePoint(0, 1, "prompt"))


def _check_fence(text: str) -> None:
    assert text.startswith(FENCE[0]) and text.endswith(FENCE[1]), text
    inside = text.removeprefix(FENCE[0]).removesuffix(FENCE[1])
    assert "claude-mem-context" not in inside.lower(), text
    assert tags.strip_private(text) == "", text
    assert len(text) < 10_000
    assert all(strip_invisible(line) == line for line in inside.split("\n")), text
    for host in AGENTS:
        assert isinstance(json.loads(answers.compose_answer(host, "SessionStart", text)), dict)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "scanner": scanner, "parser": parser, "reader": reader, "renderer": renderer,
}  # fmt: skip
# Where a search begins; among them what once broke something.
SEEDS = {
    "scanner": [
        b"a <private>b</private> c\xffinside\xffafter",
        b"&lt;claude-mem-context a='b'&gt;",
        b"\\u003cprivate\\u003e",
    ],
    "parser": [
        test_reply.WHOLE.encode(),
        b"<observation><title>a<title><fact>b</observation>\xffprompt",
        b"<skip_summary/>",
    ],
    "reader": [
        b'command save\nhost claude\npid 7\n\n{"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash"}',
        b'{"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "<private>x</private>", "cwd": "/"}',
        b'{"conversation_id": "c", "hook_event_name": "afterFileEdit", "edits": [{"old_string": "a"}], "file_path": "x"}',
        b'{"trajectory_id": "t", "agent_action_name": "pre_user_prompt", "tool_info": {"user_prompt": "x"}}',
        'command save\nhost claude\npid ²\n\n{"session_id": "s", "hook_event_name": "Stop"}'.encode(),
        b'{"sessionId": "s", "toolName": "bash", "toolArgs": "{}", "timestamp": 1}',
    ],
    "renderer": [
        b"bugfix\xffA title <b>\xff</claude-mem-context>\xff&lt;private\xffx\xfffact",
        "\u202e\x1b[31m\u200b".encode(),
    ],
}
