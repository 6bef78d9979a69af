"""A session's transcript is its own: another session's file that a payload names is not read as this one's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claude_mem.agents import registry
from claude_mem.agents.gemini import last_message
from tests.agents import test_readers
from tests.support import proof
from tests.support.lab import Lab

COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/security/test_ownership.py"

Record = dict[str, Any]


def _claude(session: str, cwd: str) -> list[Record]:
    about = {"sessionId": session, "cwd": cwd, "promptId": f"{session}-p", "isSidechain": False}
    use = {"type": "tool_use", "id": f"{session}-c", "name": "Bash", "input": {"command": f"make {session}"}}
    result = {"type": "tool_result", "tool_use_id": f"{session}-c", "content": "ok"}
    messages: list[tuple[str, Any]] = [
        ("user", test_readers.SAID),
        ("assistant", [use]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": "It is mended."}]),
    ]
    return [
        {
            **about,
            "uuid": f"{session}-{number}",
            "type": kind,
            "message": {"role": kind, "content": content},
            "timestamp": f"2026-01-05T10:00:0{number}Z",
        }
        for number, (kind, content) in enumerate(messages)
    ]


WRITERS: dict[str, Callable[[str, str], list[Record]]] = {"claude": _claude, **test_readers.WRITERS}
every_host = pytest.mark.parametrize("host", WRITERS)


def text(*records: Record) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def transcript(lab: Lab, host: str, session: str, name: str = "") -> Path:
    path = lab.folder / "talks" / (name or f"{session}.jsonl")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text(*WRITERS[host](session, str(lab.project))))
    return path


def stop(lab: Lab, host: str, session: str, path: Path) -> None:
    """As the hook of an agent tells it when a turn ends."""
    fields = {"session_id": session, "cwd": str(lab.project), "transcript_path": str(path)}
    for event, command, more in (("SessionStart", "context", {"source": "startup"}), ("Stop", "summary", {})):
        told = json.dumps({**fields, "hook_event_name": event, **more}).encode()
        lab.raw_spool(f"command {command}\nhost {host}\n\n".encode() + told)
    assert lab.drain() == 0


def commands(lab: Lab) -> list[str]:
    """What was run, by the sessions that did."""
    found = lab.rows(
        "select s.content_session_id, json_extract(e.body, '$.input.command') from events e"
        " join sdk_sessions s on s.id = e.session_id where e.kind = 'tool' order by 1, 2"
    )
    return [f"{session}: {command}" for session, command in found]


@every_host
def test_what_a_hook_missed_is_read_from_the_sessions_own_file(lab: Lab, host: str) -> None:
    stop(lab, host, "mine", transcript(lab, host, "mine"))
    assert commands(lab) == ["mine: make mine"]


def linked(path: Path) -> Path:
    link = path.with_name("mine.jsonl")
    link.symlink_to(path)
    return link


def in_its_place(path: Path) -> Path:
    return path.rename(path.with_name("mine.jsonl"))


def as_it_is(path: Path) -> Path:
    return path


@pytest.mark.parametrize(
    ("host", "way"), [*((host, as_it_is) for host in WRITERS), ("claude", linked), ("codex", in_its_place)]
)
def test_another_sessions_file_tells_nothing_of_this_one(lab: Lab, host: str, way: Callable[[Path], Path]) -> None:
    stop(lab, host, "mine", way(transcript(lab, host, "other")))
    assert commands(lab) == []
    assert lab.rows("select text from user_prompts") == []
    assert lab.rows("select 1 from events where body like '%mended%'") == []
    proof.record(
        "transcripts of other sessions that a payload names: lines read as this session's", of="S19", goal="0",
        measured=0, ok=True, tally=True, command=COMMAND,
    )  # fmt: skip


GARBAGE = {
    "a line that is no JSON": "not json\n",
    "empty lines": "\n\n  \n",
    "a byte order mark": "\ufeff",
    "a list": "[1, 2]\n",
    "a very long line": json.dumps({"type": "note", "text": "x" * 3_000_000}) + "\n",
    "a line that names no session": '{"type": "note"}\n',
    "many lines that name no session": '{"type": "note", "payload": {}}\n' * 2_000,
    "a session of a wrong kind": '{"sessionId": ["mine"], "type": "session_meta", "payload": {"id": ["mine"]}}\n',
    "an empty session": '{"sessionId": "", "type": "session_meta", "payload": {"id": ""}}\n',
}


@pytest.mark.parametrize("before", GARBAGE)
def test_what_stands_before_another_sessions_lines_does_not_make_them_this_ones(lab: Lab, before: str) -> None:
    """The owner of a file is looked for in its first lines; what cannot be read there must not open the rest."""
    for host in WRITERS:
        path = transcript(lab, host, f"other-{host}")
        path.write_text(GARBAGE[before] + path.read_text(), "utf-8")
        stop(lab, host, f"mine-{host}", path)
    assert commands(lab) == []
    assert lab.rows("select 1 from events where body like '%mended%'") == []


def test_a_damaged_first_line_does_not_take_a_sessions_own_file_from_it(lab: Lab) -> None:
    path = transcript(lab, "codex", "mine")
    path.write_text("not json\n" + path.read_text())
    stop(lab, "codex", "mine", path)
    assert commands(lab) == ["mine: make mine"]


def test_no_agent_reads_another_sessions_file_of_another_agent(lab: Lab) -> None:
    paths = {writer: transcript(lab, writer, f"other-{writer}") for writer in WRITERS}
    for host in WRITERS:
        for writer, path in paths.items():
            stop(lab, host, f"mine-{host}-{writer}", path)
    assert commands(lab) == []
    assert lab.rows("select 1 from events where body like '%mended%'") == []


EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreCompact",
    "PostToolUse",
    "SubagentStop",
    "Notification",
    "Stop",
    "SessionEnd",
)


@every_host
def test_no_event_and_no_field_of_a_payload_brings_another_sessions_file_in(lab: Lab, host: str) -> None:
    path = transcript(lab, host, "other")
    hard = path.with_name("mine.jsonl")
    hard.hardlink_to(path)
    for number, (event, file) in enumerate((event, file) for event in EVENTS for file in (path, hard)):
        fields: dict[str, Any] = {
            name: str(file)
            for name in ("transcript_path", "agent_transcript_path", "transcriptPath", "session_file", "chat_path")
        }
        told: dict[str, object] = {
            "hook_event_name": event,
            "session_id": f"mine-{number}",
            "cwd": str(lab.project),
            **fields,
        }
        told |= {"agent_id": "one", "prompt": "hello", "tool_name": "Read", "tool_input": {}, "source": "resume"}
        command = {"SessionStart": "context", "UserPromptSubmit": "session-init", "PostToolUse": "observation"}
        header = f"command {command.get(event, 'summary')}\nhost {host}\n\n"
        lab.raw_spool(header.encode() + json.dumps(told).encode())
    assert lab.drain() == 0
    assert not [line for line in commands(lab) if "make" in line]
    assert lab.rows("select 1 from events where body like '%mended%'") == []
    assert {text for (text,) in lab.rows("select text from user_prompts")} <= {"hello"}


@every_host
def test_a_session_that_names_another_file_later_keeps_to_its_own(lab: Lab, host: str) -> None:
    stop(lab, host, "mine", transcript(lab, host, "mine"))
    longer = transcript(lab, host, "other")
    longer.write_text(longer.read_text() * 3)  # so that what was read of the other file is only its beginning
    stop(lab, host, "mine", longer)
    assert commands(lab) == ["mine: make mine"]


@every_host
def test_the_other_session_still_has_its_file(lab: Lab, host: str) -> None:
    path = transcript(lab, host, "other")
    stop(lab, host, "mine", path)
    stop(lab, host, "other", path)
    assert commands(lab) == ["other: make other"]


def test_a_line_that_names_no_session_is_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    unnamed = [{name: found for name, found in each.items() if name != "sessionId"} for each in _claude("x", "/shop")]
    for before, expected in (((), 2), (_claude("mine", "/")[:1], 3), (_claude("other", "/")[:1], 0)):
        path.write_text(text(*before, *unnamed))
        assert len(_read("claude", path, content_session_id="mine").events) == expected


def test_a_file_that_goes_on_from_another_session_tells_its_own_part(tmp_path: Path) -> None:
    """Some clients begin the file of a resumed session with the lines of the earlier one, under the earlier name."""
    path = tmp_path / "talk.jsonl"
    path.write_text(text(*_claude("earlier", "/shop"), *_claude("mine", "/shop")))
    own = _read("claude", path, content_session_id="mine")
    assert [event.tool_use_id for event in own.events if event.tool_use_id] == ["mine-c"]
    assert list(own.closings) == ["mine-p"]
    assert own.offset == path.stat().st_size
    both = [event.tool_use_id for event in _read("claude", path).events if event.tool_use_id]
    assert both == ["earlier-c", "mine-c"], "a person who names a file has all of it read"


def test_a_subagents_file_of_another_session_tells_nothing(lab: Lab) -> None:
    path = transcript(lab, "claude", "mine")
    folder = path.with_name("mine") / "subagents"
    folder.mkdir(parents=True)
    for name, session in (("one", "mine"), ("two", "other")):
        sidechain = [{**record, "isSidechain": True} for record in _claude(session, str(lab.project))]
        lines = text(*sidechain).replace(f"{session}-c", f"{name}-c").replace(f"make {session}", f"make {name}")
        (folder / f"agent-{name}.jsonl").write_text(lines)
    told = {"session_id": "mine", "cwd": str(lab.project), "transcript_path": str(path)}
    for event in ("SessionStart", "Stop", "SessionEnd"):
        lab.spool(event, **told)
    assert lab.drain() == 0
    assert commands(lab) == ["mine: make mine", "mine: make one"]


def test_a_rollout_of_a_subagent_is_its_parents_too(tmp_path: Path) -> None:
    path = tmp_path / "rollout-1.jsonl"
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "parent"}}}
    path.write_text(text({"type": "session_meta", "payload": {"id": "child", "source": source}}))
    transcripts = registry.get_agent("codex").transcripts
    assert transcripts is not None
    assert [transcripts.belongs_to_session(path, name) for name in ("child", "parent", "other")] == [True, True, False]


def test_last_words_come_from_the_sessions_own_chat(tmp_path: Path) -> None:
    path = tmp_path / "session-1.jsonl"
    path.write_text(text(*test_readers.WRITERS["gemini"]("other", "/shop")))
    assert last_message(str(path), "It is mended.", session="other") == "It is mended."
    assert last_message(str(path), "It is mended.", session="mine") == ""
    path.write_text("not json\n" + "".join(path.read_text().splitlines(keepends=True)[1:]))
    assert last_message(str(path), "It is mended.", session="mine") == "", "a chat that names no session"


def _read(host: str, path: Path, **more: Any) -> Any:
    transcripts = registry.get_agent(host).transcripts
    assert transcripts is not None
    return transcripts.read(path, host=host, **more)
