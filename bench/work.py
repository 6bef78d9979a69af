"""Made-up work, shaped like the real thing: sessions of prompts, tool calls of about 4 KB, and stops.

The same seed gives the same work, so two runs measure the same. The field names are those that Claude Code 2.1 sends.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from claude_mem.system.spool import Spool

EVENT_BYTES = 4096
TURNS = 4
TOOLS = ("Read", "Grep", "Edit", "Bash", "Read", "Edit", "Bash", "Write", "Bash", "Edit")
EVENTS_PER_SESSION = 2 + TURNS * (2 + len(TOOLS))

# fmt: off
_WORDS = (
    "order", "invoice", "customer", "retry", "queue", "total", "amount", "parse", "render", "cache", "token",
    "index", "session", "worker", "budget", "query", "column", "migrate", "commit", "branch", "release", "error",
    "handler", "request", "response", "timeout", "header", "payload", "schema",
)
# fmt: on
_ASKS = (
    "Fix the rounding error in the {} total of the {} page",
    "Add a {} to the {} screen and cover it with tests",
    "Why does the {} fail when the {} is empty?",
    "Refactor the {} module so that {} no longer imports it",
)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a hook is given: its command and its payload."""

    command: str
    payload: bytes


class Session:
    """One conversation. Iterate over it for its events, in order."""

    def __init__(self, project: Path, transcripts: Path, *, seed: int) -> None:
        self.dice = random.Random(seed)
        self.project = project
        self.id = self._uuid()
        self.transcript = transcripts / f"{self.id}.jsonl"
        self.prompt_id = ""

    def __iter__(self) -> Iterator[Sent]:
        yield self.started()
        for _ in range(TURNS):
            yield from self.turn()
        yield self._sent("cleanup", "SessionEnd", reason="prompt_input_exit")

    def started(self) -> Sent:
        return self._sent("context", "SessionStart", source="startup")

    def turn(self) -> Iterator[Sent]:
        self.prompt_id = self._uuid()
        yield self._sent("new", "UserPromptSubmit", prompt=self.dice.choice(_ASKS).format(*self._some(2)))
        for name in TOOLS:
            yield self.tool(name)
        yield self._sent("summary", "Stop", stop_hook_active=False, last_assistant_message=self._message())

    def tool(self, name: str) -> Sent:
        """A tool call of about `EVENT_BYTES`, most of which is what the tool put out."""
        given, output = self._given(name), self._lines(EVENT_BYTES - 1100)
        facts: dict[str, Any] = {
            "tool_name": name,
            "tool_input": given,
            "tool_response": _response(name, given, output),
            "tool_use_id": f"toolu_{self.dice.getrandbits(96):024x}",
            "duration_ms": self.dice.randrange(5, 900),
        }
        return self._sent("save", "PostToolUse", **facts)

    def _given(self, name: str) -> dict[str, Any]:
        path = str(self.project / "src" / f"{self.dice.choice(_WORDS)}.py")
        match name:
            case "Bash":
                return {
                    "command": f"pytest -q tests/test_{self.dice.choice(_WORDS)}.py",
                    "description": "Run the tests",
                }
            case "Grep":
                return {
                    "pattern": f"def {self.dice.choice(_WORDS)}",
                    "path": str(self.project),
                    "output_mode": "content",
                }
            case "Edit":
                return {"file_path": path, "old_string": self._lines(150), "new_string": self._lines(200)}
            case "Write":
                return {"file_path": path, "content": self._lines(400)}
        return {"file_path": path, "offset": 1, "limit": 200}

    def _sent(self, command: str, event: str, **facts: Any) -> Sent:
        common = {
            "session_id": self.id,
            "transcript_path": str(self.transcript),
            "cwd": str(self.project),
            "hook_event_name": event,
            "permission_mode": "acceptEdits",
        }
        prompt = {"prompt_id": self.prompt_id} if self.prompt_id else {}
        return Sent(command, json.dumps({**common, **prompt, **facts}).encode())

    def _message(self) -> str:
        what, where, then = self._some(3)
        return (
            f"I fixed the {what} in `src/{where}.py`: the {then} was rounded before the sum, because the parser"
            f" turned it into a float.\n\n**Changes:**\n- `src/{where}.py` keeps the {what} as a decimal\n- a test"
            f" covers the empty {then}\n\n**Next steps:**\n- the {then} of old invoices is still to be migrated\n"
        )

    def _lines(self, size: int) -> str:
        """Text that looks like code, because redaction and privacy look at every character of it."""
        lines: list[str] = []
        length = 0
        while length < size:
            left, verb, right = self._some(3)
            lines.append(f"    {left}_{verb} = {verb}({right}, limit={self.dice.randrange(1000)})  # {left}: {right}")
            length += len(lines[-1]) + 2
        return "\n".join(lines)[:size]

    def _some(self, count: int) -> list[str]:
        return self.dice.choices(_WORDS, k=count)

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.dice.getrandbits(128), version=4))


def _response(name: str, given: dict[str, Any], output: str) -> dict[str, Any]:
    match name:
        case "Bash":
            return {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        case "Grep":
            return {"mode": "content", "numFiles": 3, "filenames": [], "content": output, "numLines": 40}
        case "Edit" | "Write":
            return {
                "filePath": given["file_path"],
                "originalFile": output,
                "structuredPatch": [],
                "userModified": False,
            }
    file = {"filePath": given["file_path"], "content": output, "numLines": 60, "startLine": 1, "totalLines": 60}
    return {"type": "text", "file": file}


def transcript(sent: Sent) -> bytes:
    """The lines that the host itself writes about the event, which the worker reads to find what hooks missed."""
    fields = json.loads(sent.payload)
    match fields["hook_event_name"]:
        case "UserPromptSubmit":
            lines = [_line(fields, "user", fields["prompt"])]
        case "PostToolUse":
            call = {"type": "tool_use", "id": fields["tool_use_id"], "name": fields["tool_name"]}
            result = {"type": "tool_result", "tool_use_id": fields["tool_use_id"], "content": "done"}
            lines = [
                _line(fields, "assistant", [{**call, "input": fields["tool_input"]}]),
                _line(fields, "user", [result], toolUseResult=fields["tool_response"]),
            ]
        case "Stop":
            lines = [_line(fields, "assistant", [{"type": "text", "text": fields["last_assistant_message"]}])]
        case _:
            lines = []
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _line(fields: dict[str, Any], role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": role,
        "isSidechain": False,
        "promptId": fields["prompt_id"],
        "message": {"role": role, "content": content},
        "uuid": str(uuid.uuid4()),
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **more,
    }


def at_once(sessions: list[Session]) -> Iterator[tuple[Session, Sent]]:
    """Sessions that run side by side: each keeps its order, their events are shuffled together."""
    dice = random.Random(0)
    running = [(session, iter(session)) for session in sessions]
    while running:
        session, events = pair = dice.choice(running)
        sent = next(events, None)
        if sent is None:
            running.remove(pair)
        else:
            yield session, sent


def put(spool: Spool, session: Session, sent: Sent) -> str:
    """Into the spool, as the hook would write it, and into the host's transcript if there is to be one. Its name."""
    header = {"command": sent.command, "host": "claude", "project_dir": str(session.project)}
    name = spool.put(header, sent.payload)
    if session.transcript.parent.is_dir():
        with session.transcript.open("ab") as file:
            file.write(transcript(sent))
    return name
