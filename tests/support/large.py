"""Transcripts of any size, as three agents write them, and files that pretend to be one."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]
_WORDS = [f"word{number}" for number in range(500)]


def _claude(session: str, number: int, outputs: list[str], said: str) -> Iterator[Record]:
    about = {"sessionId": session, "cwd": "/", "promptId": f"{session}-p{number}"}

    def assistant(block: Record, name: str, reason: str) -> Record:
        return {**about, "type": "assistant", "uuid": name, "message": {"content": [block], "stop_reason": reason}}

    yield {**about, "type": "user", "uuid": f"{session}-u{number}", "message": {"content": said}}
    calls = [f"{session}-c{number}-{n}" for n in range(len(outputs))]
    for call in calls:  # all at once, and answered one after the other
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"make {call}"}}
        yield assistant(block, f"a-{call}", "tool_use")
    yield assistant({"type": "text", "text": "They run."}, f"{session}-w{number}", "end_turn")
    for call, output in zip(calls, outputs, strict=True):
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        told = {"toolUseResult": {"stdout": output}}
        yield {**about, "type": "user", "uuid": f"r-{call}", "message": {"content": [result]}, **told}
    block = {"type": "text", "text": f"Thing {number} is done."}
    yield assistant(block, f"{session}-e{number}", "end_turn")


def _codex(session: str, number: int, outputs: list[str], said: str) -> Iterator[Record]:
    turn = {"internal_chat_message_metadata_passthrough": {"turn_id": f"{session}-p{number}"}}

    def item(**fields: Any) -> Record:
        return {"type": "response_item", "payload": {**fields, **turn}}

    yield item(type="message", role="user", content=[{"text": said}])
    calls = [f"{session}-c{number}-{n}" for n in range(len(outputs))]
    for call in calls:
        given = json.dumps({"command": ["bash", "-lc", f"make {call}"]})
        yield item(type="function_call", call_id=call, name="shell", arguments=given)
    for call, output in zip(calls, outputs, strict=True):
        yield item(type="function_call_output", call_id=call, output=output)
    for call in calls[::3]:
        yield {"type": "event_msg", "payload": {"type": "exec_command_end", "call_id": call, "exit_code": 1}}
    yield item(type="message", role="assistant", content=[{"text": f"Thing {number} is done."}])


def _copilot(session: str, number: int, outputs: list[str], said: str) -> Iterator[Record]:
    def told(kind: str, **data: Any) -> Record:
        return {"type": kind, "id": f"{session}-{kind}-{number}-{data.get('toolCallId', '')}", "data": data}

    at = 1767607200000 + number * 1000
    yield told("hook.start", hookType="userPromptSubmitted", input={"timestamp": at})
    yield told("user.message", content=said)
    calls = [f"{session}-c{number}-{n}" for n in range(len(outputs))]
    for call in calls:
        yield told("tool.execution_start", toolCallId=call, toolName="bash", arguments={"command": f"make {call}"})
    for n, (call, output) in enumerate(zip(calls, outputs, strict=True)):
        given = {"timestamp": at + n + 1, "toolName": "bash", "toolArgs": {"command": f"make {call}"}}
        yield told("hook.start", hookType="postToolUse", input=given)
        yield told("tool.execution_complete", toolCallId=call, success=n % 3 > 0, result={"content": output})
    yield told("assistant.message", content=f"Thing {number} is done.")


_START: dict[str, Callable[[str], list[Record]]] = {
    "claude": lambda _: [],
    "codex": lambda session: [{"type": "session_meta", "payload": {"id": session, "cwd": "/"}}],
    "copilot": lambda session: [
        {
            "type": "session.start",
            "id": "1",
            "data": {"sessionId": session, "producer": "copilot-agent", "context": {"cwd": "/"}},
        }
    ],
}
TURNS = {"claude": _claude, "codex": _codex, "copilot": _copilot}


def write(path: Path, host: str, *, size: int, session: str = "s1", calls: int = 10, chars: int = 20_000) -> int:
    """Write at least `size` bytes of turns, every fifth of them private, and return how many tool calls are not."""
    dice = random.Random(1)
    written = open_calls = number = seconds = 0
    with path.open("w") as file:
        records = iter(_START[host](session))
        while True:
            for record in records:
                seconds += 1
                at = f"2026-01-05T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
                written += file.write(json.dumps({"timestamp": at, **record}) + "\n")
            if written >= size:
                return open_calls
            number += 1
            private = number % 5 == 0
            said = f"<private>secret {number}</private>" if private else f"please do thing number {number}"
            outputs = [" ".join(dice.choices(_WORDS, k=dice.randrange(1, chars // 4))) for _ in range(calls)]
            open_calls += 0 if private else calls
            records = TURNS[host](session, number, outputs, said)


# --- what no honest agent writes -------------------------------------------------------------------------------------


def _call(name: str, given: bytes) -> bytes:
    block = b'{"type":"tool_use","name":"Bash","id":"%b","input":{"x":%b}}' % (name.encode(), given)
    result = b'{"type":"tool_result","tool_use_id":"%b","content":"ok"}' % name.encode()
    return (
        b'{"type":"assistant","message":{"content":[%b],"stop_reason":"tool_use"}}\n' % block
        + b'{"type":"user","uuid":"r-%b","message":{"content":[%b]}}\n' % (name.encode(), result)
    )


def endless_line(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 << 20)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def wide_lines(path: Path) -> None:
    path.write_bytes(b"".join(_call(f"wide{n}", b"[" + b"[]," * 2_500_000 + b"[]]") for n in range(2)))


def many_keys(path: Path) -> None:
    keys = b",".join(b'"%d":%d' % (n, n) for n in range(400_000))
    path.write_bytes(_call("keys", b"{" + keys + b"}"))


def deep_lines(path: Path) -> None:
    depths = (50, 99, 101, 300, 500, 900, 990, 100_000)
    path.write_bytes(b"".join(_call(f"deep{depth}", b"[" * depth + b"]" * depth) for depth in depths))


def wide_characters(path: Path) -> None:
    """One character makes each of the others take four bytes."""
    path.write_bytes(b"".join(_call(f"emoji{n}", '"😀'.encode() + b"x" * (7 << 20) + b'"') for n in range(4)))


def unanswered_calls(path: Path) -> None:
    """Each would have to be remembered until its answer comes."""
    path.write_bytes(
        b"".join(_call(f"open{n}", b'"' + b"y" * (7 << 20) + b'"').split(b"\n")[0] + b"\n" for n in range(9))
    )


def packed_line(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b"0" * (1 << 20))


HOSTILE: dict[str, Callable[[Path], None]] = {
    "endless.jsonl": endless_line,
    "sparse.jsonl": sparse,
    "wide.jsonl": wide_lines,
    "keys.jsonl": many_keys,
    "deep.jsonl": deep_lines,
    "emoji.jsonl": wide_characters,
    "open.jsonl": unanswered_calls,
    "packed.jsonl.gz": packed_line,
}
