"""A history with a bit of everything in it, and the checker: what was sent against what is there afterwards."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.memory import edits
from tests.support.lab import Lab

HOUR = 3_600_000


@dataclass(slots=True)
class Sent:
    """What was handed over: the name of each spool file, and what must become of it."""

    stored: list[str] = field(default_factory=list)
    filtered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    from_transcript: list[str] = field(default_factory=list)


def send(lab: Lab) -> Sent:
    """Three sessions an hour ago: one whole, one private, one whose agent fell silent; and some rubbish."""
    sent = Sent()
    clock = int(time.time() * 1000) - HOUR
    transcript = _transcript(lab, clock)
    sent.from_transcript.append("t-missed-1")
    steps: list[tuple[str, str, dict[str, Any]]] = [
        ("stored", "SessionStart", {"source": "startup"}),
        ("stored", "UserPromptSubmit", {"prompt": "Fix the empty basket", "prompt_id": "p1"}),
        ("stored", "PostToolUseFailure", _bash("pytest -q", "c1", error="E  KeyError: 'total'")),
        ("stored", "PostToolUse", _edit(lab, "basket.py", "c2")),
        (
            "filtered",
            "PostToolUse",
            {"tool_name": "TodoWrite", "tool_input": {}, "tool_use_id": "c3", "prompt_id": "p1"},
        ),
        ("stored", "PostToolUse", _bash("pytest -q", "c4", stdout="4 passed")),
        ("filtered", "PostToolUse", _bash("pytest -q", "c4", stdout="4 passed")),
        ("stored", "Stop", {"last_assistant_message": "An empty basket now has a total of 0.", "prompt_id": "p1"}),
        ("stored", "UserPromptSubmit", {"prompt": "Now commit it", "prompt_id": "p2"}),
        (
            "stored",
            "PostToolUse",
            _bash("git commit -am x", "c5", stdout="[main abc1234] Fix empty basket", prompt="p2"),
        ),
        ("stored", "Stop", {"last_assistant_message": "Committed as abc1234.", "prompt_id": "p2"}),
        ("stored", "SessionEnd", {"reason": "other"}),
    ]
    for what, event, fields in steps:
        clock += 1000
        name = lab.spool(event, at=clock, session_id="whole", transcript_path=str(transcript), **fields)
        getattr(sent, what).append(name)
    _send_private(lab, sent, clock)
    _send_silent(lab, sent, clock)
    sent.refused += [lab.raw_spool(b"", at=clock + 1), lab.raw_spool(b"no header here", at=clock + 2)]
    return sent


def _send_private(lab: Lab, sent: Sent, clock: int) -> None:
    hidden = {"session_id": "hush", "prompt_id": "h1"}
    sent.filtered.append(lab.spool("UserPromptSubmit", at=clock + 10, header="private yes\n", prompt="", **hidden))
    tool = {"tool_name": "Bash", "tool_input": {"command": "cat secret"}, "tool_use_id": "h2"}
    sent.filtered.append(lab.spool("PostToolUse", at=clock + 20, **tool, **hidden))
    sent.filtered.append(lab.spool("Stop", at=clock + 30, last_assistant_message="The secret is 42.", **hidden))


def _send_silent(lab: Lab, sent: Sent, clock: int) -> None:
    """No Stop ever comes: the sweep has to close it."""
    said = {"session_id": "silent", "prompt_id": "q1"}
    sent.stored.append(lab.spool("UserPromptSubmit", at=clock + 40, prompt="Rename the basket module", **said))
    edit = {"tool_name": "Write", "tool_input": {"file_path": str(lab.project / "cart.py")}, "tool_use_id": "q2"}
    sent.stored.append(lab.spool("PostToolUse", at=clock + 50, **edit, **said))


def _bash(command: str, call: str, *, error: str = "", stdout: str = "", prompt: str = "p1") -> dict[str, Any]:
    result: dict[str, Any] = {"error": error} if error else {"tool_response": {"stdout": stdout, "stderr": ""}}
    return {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call, "prompt_id": prompt, **result}


def _edit(lab: Lab, name: str, call: str) -> dict[str, Any]:
    given = {"file_path": str(lab.project / name), "old_string": "a", "new_string": "b"}
    return {"tool_name": "Edit", "tool_input": given, "tool_use_id": call, "prompt_id": "p1"}


def _transcript(lab: Lab, clock: int) -> Path:
    """The agent's own record. One tool call in it was never seen by a hook."""
    path = lab.folder / "whole.jsonl"
    stamp = datetime.fromtimestamp((clock + 2500) / 1000, UTC).isoformat()  # between the prompt and the first command
    call = {"type": "tool_use", "id": "missed-1", "name": "Read", "input": {"file_path": str(lab.project / "total.py")}}
    result = {"type": "tool_result", "tool_use_id": "missed-1", "content": "1\tx = 1"}
    records = [
        {
            "type": "user",
            "uuid": "u1",
            "promptId": "p1",
            "message": {"role": "user", "content": "Fix the empty basket"},
        },
        {"type": "assistant", "uuid": "u2", "message": {"role": "assistant", "content": [call]}},
        {"type": "user", "uuid": "u3", "promptId": "p1", "message": {"role": "user", "content": [result]}},
    ]
    path.write_text("".join(json.dumps({**record, "timestamp": stamp}) + "\n" for record in records))
    return path


def check(lab: Lab, sent: Sent) -> list[str]:
    """Everything that is wrong, in words. Nothing lost, nothing doubled, everything in its place and in order."""
    wrong: list[str] = []
    receipts = dict(lab.rows("select event_id, outcome from receipts"))
    for outcome, names in (("stored", sent.stored), ("filtered", sent.filtered), ("set_aside", sent.refused)):
        for name in names:
            if receipts.get(name) != outcome:
                wrong.append(f"{name}: {receipts.get(name)} instead of {outcome}")
    events = Counter(row[0] for row in lab.rows("select event_id from events"))
    expected = {*sent.stored, *sent.from_transcript}
    wrong += [f"lost: {name}" for name in sorted(expected - set(events))]
    wrong += [f"doubled: {name}" for name, count in events.items() if count > 1]
    wrong += [f"from nowhere: {name}" for name in sorted(set(events) - expected)]
    left = sorted(path.name for path in (lab.data / "spool").iterdir() if not path.name.startswith("."))
    wrong += [f"left in the spool: {name}" for name in left]
    aside = sorted(path.name for path in (lab.data / "aside").iterdir())
    if aside != sorted(sent.refused):
        wrong.append(f"aside: {aside}")
    return wrong


def state(lab: Lab) -> dict[str, Any]:
    """What is remembered, without ids and clocks: the same whatever happened on the way."""
    return {
        "events": lab.rows(
            "select s.content_session_id, t.number, e.kind, e.tool_use_id, e.source from events e"
            " join sdk_sessions s on s.id = e.session_id left join turns t on t.id = e.turn_id"
            " order by s.content_session_id, e.at, e.kind"
        ),
        "turns": lab.rows(
            "select s.content_session_id, t.number, t.private, t.closed_by, t.digested_at is not null from turns t"
            " join sdk_sessions s on s.id = t.session_id order by 1, 2"
        ),
        "prompts": lab.rows("select prompt_number, text from user_prompts order by text"),
        "summaries": lab.rows("select prompt_number, request, completed from session_summaries order by request"),
        "observations": lab.rows("select prompt_number, key, type, title from observations order by key, title"),
        "sessions": lab.rows("select content_session_id, status, prompt_counter, title from sdk_sessions order by 1"),
        "jobs": lab.rows("select kind, subject, dead, error from jobs"),
        "starts": sorted(len(path.read_bytes()) > 300 for path in lab.data.glob("starts/*")),
    }


def erase_with_merged(conn: Connection, row_id: int, *, now: int) -> None:
    """Erase an observation and those merged into it from the tables, without the deletion's own records."""
    for erased_id in edits.list_ids_to_erase(conn, row_id):
        edits.erase_observation(conn, erased_id, now=now)
