"""What every reader of transcripts promises: bounded memory, damage that is named, and nothing lost to weak ids."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claude_mem.agents import codex, registry, transcript_lines
from claude_mem.agents.canonical import TranscriptContent, TranscriptHead
from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.domain.records import Prompted, Stopped, ToolUsed
from claude_mem.storage.journal_records import BackfillFile
from tests.support.lab import Lab

Record = dict[str, Any]
SAID = "please mend the till in here"
BEGAN, ENDED = 1767607200000, 1767607260000


def _stamped(records: list[Record]) -> list[Record]:
    """A minute from the first to the last."""
    times = ["2026-01-05T10:00:00Z"] * (len(records) - 1) + ["2026-01-05T10:01:00Z"]
    return [{"timestamp": time, **record} for time, record in zip(times, records, strict=True)]


def _codex(session: str, cwd: str) -> list[Record]:
    given = json.dumps({"command": ["bash", "-lc", f"make {session}"]})
    items: list[Record] = [
        {"type": "message", "role": "user", "content": [{"text": SAID}]},
        {"type": "function_call", "call_id": "call_0", "name": "shell", "arguments": given},
        {"type": "function_call_output", "call_id": "call_0", "output": "ok"},
        {"type": "message", "role": "assistant", "content": [{"text": "It is mended."}]},
    ]
    meta = {"type": "session_meta", "payload": {"id": session, "cwd": cwd}}
    return _stamped([meta, *({"type": "response_item", "payload": item} for item in items)])


def _gemini(session: str, _: str) -> list[Record]:
    call = {"id": "call_0", "name": "run_shell_command", "args": {"command": f"make {session}"}, "status": "success"}
    return _stamped(
        [
            {"sessionId": session, "projectHash": "h", "startTime": "2026-01-05T10:00:00Z"},
            {"id": f"{session}-1", "type": "user", "content": SAID},
            {"id": f"{session}-2", "type": "gemini", "content": "On it.", "toolCalls": [call]},
            {"id": f"{session}-3", "type": "gemini", "content": "It is mended."},
        ]
    )


def _copilot(session: str, cwd: str) -> list[Record]:
    start = {"sessionId": session, "producer": "copilot-agent", "context": {"cwd": cwd}}
    call = {"toolCallId": "call_0", "toolName": "bash", "arguments": {"command": f"make {session}"}}
    result = {"toolCallId": "call_0", "success": True, "result": {"content": "ok"}}
    return _stamped(
        [
            {"type": "session.start", "id": "1", "data": start},
            {"type": "user.message", "id": "2", "data": {"content": SAID, "messageId": f"{session}-m"}},
            {"type": "tool.execution_start", "id": "3", "data": call},
            {"type": "tool.execution_complete", "id": "4", "data": result},
            {"type": "assistant.message", "id": "5", "data": {"content": "It is mended."}},
        ]
    )


WRITERS: dict[str, Callable[[str, str], list[Record]]] = {"codex": _codex, "gemini": _gemini, "copilot": _copilot}
every_host = pytest.mark.parametrize("host", WRITERS)


def text(host: str, session: str = "s1", cwd: str = "/shop") -> bytes:
    return "".join(json.dumps(record) + "\n" for record in WRITERS[host](session, cwd)).encode()


def read(host: str, path: Path, **more: Any) -> TranscriptContent:
    transcripts = registry.get_agent(host).transcripts
    assert transcripts is not None
    return transcripts.read(path, host=host, **more)


def kinds(found: TranscriptContent) -> list[type]:
    return [type(event.body) for event in found.events]


# --- the last message ------------------------------------------------------------------------------------------------

REMARKS = ["I look at the code first.", "Now I change it, and the test with it. " * 8]
ANSWER = "The till is mended.\n\nI chose a drawer instead of a box.\n- Next: the *bell*.  \nREMARK: I look at the code first."


def _claude(said: str, call: str) -> list[Record]:
    """One record for each block of a message, and one for the result."""
    about = {"sessionId": "s1", "cwd": "/shop", "promptId": "p1", "isSidechain": False}
    reason = "tool_use" if call else "end_turn"

    def assistant(block: Record) -> Record:
        return {**about, "type": "assistant", "message": {"content": [block], "stop_reason": reason}}

    records = [assistant({"type": "text", "text": said})]
    if call:
        result = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
        records.append(assistant({"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "make"}}))
        records.append({**about, "type": "user", "message": {"content": [result]}})
    return records


def _codex_said(said: str, call: str) -> list[Record]:
    items: list[Record] = [{"type": "message", "role": "assistant", "content": [{"text": said}]}]
    if call:
        given = json.dumps({"command": ["bash", "-lc", "make"]})
        items.append({"type": "function_call", "call_id": call, "name": "shell", "arguments": given})
        items.append({"type": "function_call_output", "call_id": call, "output": "ok"})
    return [{"type": "response_item", "payload": item} for item in items]


def _gemini_said(said: str, call: str) -> list[Record]:
    message: Record = {"id": f"m-{said[:30]}-{call}", "type": "gemini", "content": said}
    if not call:
        return [message]
    calls = [{"id": call, "name": "run_shell_command", "args": {"command": "make"}, "status": "success"}]
    answered = {"id": f"u-{call}", "type": "user", "content": [{"functionResponse": {"name": "run_shell_command"}}]}
    return [message, {**message, "toolCalls": calls}, answered]


def _copilot_said(said: str, call: str) -> list[Record]:
    asked = [{"toolCallId": call, "name": "bash"}] if call else []
    records: list[Record] = [
        {"type": "assistant.message", "id": f"a-{call}", "data": {"content": said, "toolRequests": asked}}
    ]
    if call:
        given = {"toolCallId": call, "toolName": "bash", "arguments": {"command": "make"}}
        records.append({"type": "tool.execution_start", "id": f"b-{call}", "data": given})
        result = {"toolCallId": call, "success": True, "result": {"content": "ok"}}
        records.append({"type": "tool.execution_complete", "id": f"c-{call}", "data": result})
    return records


CLAUDE_PROMPT = {
    "sessionId": "s1", "cwd": "/shop", "promptId": "p1", "uuid": "u1", "type": "user", "message": {"content": SAID},
}  # fmt: skip
SPEAKERS: dict[str, tuple[list[Record], Callable[[str, str], list[Record]]]] = {
    "claude": ([CLAUDE_PROMPT], _claude),
    "codex": (_codex("s1", "/shop")[:2], _codex_said),
    "gemini": (_gemini("s1", "/shop")[:2], _gemini_said),
    "copilot": (_copilot("s1", "/shop")[:2], _copilot_said),
}


@pytest.mark.parametrize("host", SPEAKERS)
def test_the_last_words_of_a_turn_are_its_last_message_and_nothing_else(tmp_path: Path, host: str) -> None:
    """What the agent said on the way is no part of them, and nothing of them is left out or repeated."""
    records, speak = SPEAKERS[host]
    for number, remark in enumerate(REMARKS):
        records = [*records, *speak(remark, f"call_{number}")]
    records = [*records, *speak(ANSWER, "")]
    times = [f"2026-01-05T10:00:{second:02}Z" for second in range(len(records))]
    path = tmp_path / "session.jsonl"
    stamped = [{**record, "timestamp": at} for record, at in zip(records, times, strict=True)]
    path.write_text("".join(json.dumps(record) + "\n" for record in stamped))
    (closing,) = read(host, path, over=True).closings.values()
    assert closing.body == Stopped(ANSWER)


# --- memory ----------------------------------------------------------------------------------------------------------

MEASURE = """
import sys
from pathlib import Path
from claude_mem.config import load_lenient
from claude_mem.agents import transcript_lines, registry
from claude_mem.capture import backfill
from claude_mem.storage.sqlite.journal.backfills import BackfillFile
path, transcript_lines.MAX_BYTES = Path(sys.argv[1]), 100 << 20
about = dict(host="", size=0, session_id=None, opened=False, parts=1, agent="")
mark, bad_lines, problem = "", 0, ""
while not problem:
    found = backfill.read_part(BackfillFile(id=1, path=str(path), mark=mark, **about), load_lenient().config)
    mark, bad_lines, problem = found.mark, bad_lines + found.bad_lines, found.problem
    if not mark:
        break
registry.read_head(registry.get_agent(found.host), path)
# Not `ru_maxrss`: that begins with what the process that started this one had.
most = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(problem or "-", bad_lines, int(most.split()[1]) >> 10)
"""


def measured(path: Path) -> tuple[str, int, int]:
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    problem, bad_lines, megabytes = done.stdout.split()
    return problem, int(bad_lines), int(megabytes)


@every_host
def test_a_packed_file_that_is_huge_unpacked_is_given_up_in_bounded_memory(tmp_path: Path, host: str) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(text(host))
        for _ in range(200):
            file.write(b"0" * (1 << 20))
    problem, _, megabytes = measured(path)
    assert (problem, megabytes < 200) == ("huge", True)


def test_a_line_that_would_fill_the_memory_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    said = {"type": "user", "sessionId": "s1", "uuid": "1", "cwd": "/shop", "message": {"content": SAID}}
    wide = b'{"type":"assistant","sessionId":"s1","message":{"content":[' + b"{}," * (8 << 20) + b"{}]}}\n"
    path.write_bytes(json.dumps(said).encode() + b"\n" + wide)
    problem, bad_lines, megabytes = measured(path)
    assert (problem, bad_lines, megabytes < 250) == ("-", 1, True)


@every_host
def test_of_a_huge_file_the_beginning_is_taken(tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(text(host) + b'{"id": "more"}\n' * 10)
    monkeypatch.setattr(transcript_lines, "MAX_WHOLE_FILE_BYTES", len(text(host)) + 20)
    found = read(host, path, over=True)
    assert (found.problem, kinds(found)) == ("huge", [Prompted, ToolUsed])


def test_a_file_of_one_record_is_huge_sooner(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "session-old.json"
    head, *messages = _gemini("g1", "")
    path.write_text(json.dumps({**head, "messages": messages}, indent=1))

    def problem() -> str:
        return backfill.read_part(
            BackfillFile(
                id=1, path=str(path), host="", size=0, session_id=None, opened=False, parts=1, agent="", mark=""
            ),
            config,
        ).problem

    assert (problem(), kinds(read("gemini", path))) == ("", [Prompted, ToolUsed])
    monkeypatch.setattr(transcript_lines, "MAX_DOCUMENT_BYTES", 200)
    assert (problem(), read("gemini", path).problem) == ("huge", "huge")


@every_host
@pytest.mark.parametrize("packed", [False, True])
def test_a_quick_look_tells_whose_it_is_and_its_times(tmp_path: Path, host: str, packed: bool) -> None:
    path = tmp_path / "chats" / ("a.jsonl.gz" if packed else "a.jsonl")
    path.parent.mkdir()
    (tmp_path / ".project_root").write_text("/shop")
    path.write_bytes(gzip.compress(text(host)) if packed else text(host))
    assert registry.read_head(registry.get_agent(host), path) == TranscriptHead("s1", "/shop", BEGAN, ENDED)


# --- damage ----------------------------------------------------------------------------------------------------------


@every_host
def test_a_last_line_that_is_cut_off_is_named(tmp_path: Path, host: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text(host)[:-20])
    found = read(host, path, over=True)
    assert (found.problem, found.bad_lines, kinds(found)) == ("truncated", 1, [Prompted, ToolUsed])
    assert found.closings == {}


@every_host
def test_a_last_line_without_an_end_is_taken_if_it_is_whole(tmp_path: Path, host: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text(host)[:-1])
    found = read(host, path, over=True)
    assert (found.problem, found.bad_lines, kinds(found)) == ("", 0, [Prompted, ToolUsed])
    assert len(found.closings) == 1


@pytest.mark.parametrize("host", ["codex", "copilot"])
def test_of_a_session_at_work_it_is_left_until_it_has_one(tmp_path: Path, host: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(text(host)[:-1])
    found = read(host, path)
    assert (found.problem, found.bad_lines, found.closings) == ("", 0, {})
    path.write_bytes(text(host))
    found = read(host, path, content_session_id="s1", offset=found.offset)
    assert len(found.closings) == 1
    assert read(host, path, content_session_id="s1", offset=path.stat().st_size).offset == path.stat().st_size


@every_host
def test_lines_that_can_not_be_understood_are_counted(tmp_path: Path, host: str) -> None:
    path = tmp_path / "a.jsonl"
    first, *rest = text(host).splitlines(keepends=True)
    path.write_bytes(first + b"{broken json\n" * 4 + b"\n" + b"".join(rest))
    found = read(host, path, over=True)
    assert (found.problem, found.bad_lines, kinds(found)) == ("", 4, [Prompted, ToolUsed])


@every_host
def test_a_packed_file_is_read_and_its_damage_named(tmp_path: Path, host: str) -> None:
    path = tmp_path / "a.jsonl.gz"
    packed = gzip.compress(text(host))
    path.write_bytes(packed)
    assert kinds(read(host, path, over=True)) == [Prompted, ToolUsed]
    for damaged, problem in ((packed[:-30], "truncated"), (packed[:-6] + b"\0\0" + packed[-4:], "broken")):
        path.write_bytes(damaged)
        assert read(host, path, over=True).problem == problem


# --- ids -------------------------------------------------------------------------------------------------------------


def _calls(lab: Lab) -> list[tuple[str, str]]:
    return lab.rows(
        "select s.content_session_id, json_extract(e.body, '$.input.command') from events e"
        " join sdk_sessions s on s.id = e.session_id where e.kind = 'tool' order by 1, 2"
    )


@every_host
def test_calls_that_are_only_numbered_are_kept_in_each_session(lab: Lab, host: str) -> None:
    for session in ("s1", "s2"):
        path = lab.folder / "old" / f"{session}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text(host, session, str(lab.project)).replace(b"T10:", b"T1" + session[-1:].encode() + b":"))
    lab.mem("backfill", str(lab.folder / "old"))
    lab.mem("stop")
    assert _calls(lab) == [("s1", "make s1"), ("s2", "make s2")]
    assert lab.rows("select count(*) from events where kind = 'stop'") == [(2,)]


def test_a_forked_rollout_does_not_repeat_what_it_was_forked_from(lab: Lab) -> None:
    """Its copies may have new times; then the input tells."""
    for session, hour in (("s1", b"T10:"), ("s2", b"T12:")):
        copied = text("codex", "s1", str(lab.project)).replace(b'"id": "s1"', f'"id": "{session}"'.encode())
        own = text("codex", session, str(lab.project)).replace(b"call_0", f"call-of-{session}".encode())
        path = lab.folder / "old" / f"{session}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(copied.replace(b"T10:", hour) + own)
    lab.mem("backfill", str(lab.folder / "old"))
    lab.mem("stop")
    assert _calls(lab) == [("s1", "make s1"), ("s1", "make s1"), ("s2", "make s2")]


# --- subagents of Codex ----------------------------------------------------------------------------------------------


def _rollout(folder: Path, day: str, name: str, **meta: Any) -> Path:
    path = folder / "sessions" / day / f"rollout-{day.replace('/', '-')}T10-00-00-{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"type": "session_meta", "payload": {"id": name, **meta}}) + "\n")
    return path


def test_subagents_are_found_however_many_sessions_came_later(tmp_path: Path) -> None:
    main = _rollout(tmp_path, "2026/01/31", "s1")
    agents = {
        "a1": _rollout(tmp_path, "2026/01/31", "a1", parent_thread_id="s1"),
        "a2": _rollout(tmp_path, "2026/02/01", "a2", session_id="s1", parent_thread_id="a1"),
    }
    for number in range(250):
        _rollout(tmp_path, "2026/03/01", f"later-{number}")
    assert dict(codex.subagent_files(main)) == agents
    agents["a3"] = _rollout(tmp_path, "2026/02/02", "a3", parent_thread_id="s1")
    assert dict(codex.subagent_files(main)) == agents


def test_each_rollout_is_looked_at_once_for_all_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = [_rollout(tmp_path, f"2026/01/{number % 5 + 10}", f"s{number}") for number in range(40)]
    for path in rollouts:
        os.utime(path.parent, (BEGAN / 1000, BEGAN / 1000))
    looks: list[Path] = []
    opened = transcript_lines.open_transcript

    def counted(path: Path) -> Any:
        looks.append(path)
        return opened(path)

    monkeypatch.setattr(transcript_lines, "open_transcript", counted)
    for path in rollouts:
        assert list(codex.subagent_files(path)) == []
    assert len(looks) <= 2 * len(rollouts)  # as one that asks for its own, and as one that might be another's


def test_beside_a_rollout_that_lies_elsewhere_only_its_own_folder_is_looked_at(tmp_path: Path) -> None:
    other = _rollout(tmp_path, "a/b/c", "a1", parent_thread_id="s1")
    main = _rollout(tmp_path, "x/y/z", "s1")
    assert dict(codex.subagent_files(main)) == {}
    beside = other.rename(main.with_name(other.name))
    assert dict(codex.subagent_files(main)) == {"a1": beside}
