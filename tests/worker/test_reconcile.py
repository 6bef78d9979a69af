"""What a hook missed is read back from the transcript: exactly once, in order, and never what is private."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab


class Transcript:
    """Writes what Claude Code writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.clock = time.time() - 60

    def _write(self, kind: str, message: dict[str, Any], **more: Any) -> None:
        self.count += 1
        self.clock += 1
        stamp = datetime.fromtimestamp(self.clock, UTC).isoformat().replace("+00:00", "Z")
        record = {
            "type": kind,
            "uuid": f"{self.path.stem}-{self.count}",
            "timestamp": stamp,
            "message": message,
            **more,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def prompt(self, text: str, prompt_id: str, **more: Any) -> None:
        self._write("user", {"role": "user", "content": text}, **({"promptId": prompt_id} if prompt_id else {}), **more)

    def call(
        self,
        call: str,
        name: str = "Bash",
        /,
        *,
        result: str = "ok",
        prompt: str = "",
        failed: bool = False,
        **given: Any,
    ) -> None:
        self.use(call, name, **given)
        self.result(call, result=result, prompt=prompt, failed=failed)

    def use(self, call: str, name: str = "Bash", **given: Any) -> None:
        block = {"type": "tool_use", "id": call, "name": name, "input": given or {"command": call}}
        self._write("assistant", {"role": "assistant", "content": [block]})

    def result(self, call: str, *, result: str = "ok", prompt: str = "", failed: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": result, "is_error": failed}
        more = {"promptId": prompt} if prompt else {}
        self._write("user", {"role": "user", "content": [block]}, toolUseResult={"stdout": result}, **more)

    def say(self, text: str) -> None:
        self._write("assistant", {"role": "assistant", "content": [{"type": "text", "text": text}]})


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "talk.jsonl")


def _tools(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.rows(
        "select t.number, e.tool_use_id, e.source from events e join turns t on t.id = e.turn_id"
        " where e.kind = 'tool' order by e.at, e.seq"
    )


def test_tool_calls_that_no_hook_told_are_added_once_and_in_order(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    lab.spool("UserPromptSubmit", at=int((transcript.clock + 0.5) * 1000), prompt="go", **where)
    transcript.prompt("go", "p1")
    transcript.call("c1", prompt="p1")
    transcript.call("c2", prompt="p1")
    lab.spool(
        "PostToolUse", at=int(transcript.clock * 1000), tool_name="Bash", tool_input={}, tool_use_id="c2", **where
    )
    transcript.call("c3", prompt="p1", failed=True)
    transcript.say("All done.")
    lab.spool("Stop", at=int(transcript.clock * 1000) + 1, last_assistant_message="All done.", **where)
    lab.drain()
    expected = [(1, "c1", "transcript"), (1, "c2", "hook"), (1, "c3", "transcript")]
    assert _tools(lab) == expected
    lab.spool("SessionEnd", **where)
    lab.drain()
    assert _tools(lab) == expected
    assert lab.rows("select closed_by, digested_at is not null from turns") == [("stop", 1)]


def test_a_stop_that_waits_longer_than_the_transcript_is_kept_once(lab: Lab, transcript: Transcript) -> None:
    """While much is in the spool, a turn before has the transcript read, and with it the last words of this one."""
    where = {"transcript_path": str(transcript.path)}
    for number in (1, 2, 3):
        transcript.prompt(f"step {number}", f"p{number}")
        transcript.call(f"c{number}", prompt=f"p{number}")
        transcript.say(f"Step {number} is done.")
    for number in (1, 2, 3):
        lab.spool("Stop", prompt_id=f"p{number}", last_assistant_message=f"Step {number} is done.", **where)
        lab.drain()
    told = lab.rows("select body ->> 'message' from events where kind = 'stop' order by 1")
    assert told == [("Step 1 is done.",), ("Step 2 is done.",), ("Step 3 is done.",)]
    lab.spool("Stop", prompt_id="p3", last_assistant_message="And something else.", **where)  # it was made to go on
    lab.drain()
    assert lab.rows("select count(*) from events where kind = 'stop'") == [(4,)]


def test_a_session_that_was_killed_is_healed(lab: Lab, transcript: Transcript) -> None:
    """Only its start was ever told; the agent's process is gone."""
    transcript.prompt("Write the parser", "p1")
    transcript.call("c1", "Write", prompt="p1", file_path=str(lab.project / "parser.py"))
    transcript.say("The parser is written and handles quotes.")
    lab.spool(
        "UserPromptSubmit",
        header="pid 999999999\n",
        prompt="Write the parser",
        prompt_id="p1",
        transcript_path=str(transcript.path),
    )
    lab.drain()
    assert _tools(lab) == [(1, "c1", "transcript")]
    assert lab.rows("select completed from session_summaries") == [("The parser is written and handles quotes.",)]
    assert lab.rows("select files_modified from observations") == [('["parser.py"]',)]
    lab.drain()
    assert lab.rows("select count(*) from events where kind = 'stop'") == [(1,)]


def test_a_prompt_that_was_missed_is_filled_in(lab: Lab, transcript: Transcript) -> None:
    transcript.prompt("What was asked", "p1")
    transcript.call("c1", prompt="p1")
    lab.spool("Stop", prompt_id="p1", last_assistant_message="Yes.", transcript_path=str(transcript.path))
    lab.drain()
    assert lab.rows("select prompt_number, text from user_prompts") == [(1, "What was asked")]
    assert _tools(lab) == [(1, "c1", "transcript")]


def test_a_private_prompt_hides_its_turn_even_when_the_hooks_missed_it(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path)}
    lab.spool(
        "PostToolUse", prompt_id="p1", tool_name="Bash", tool_input={"command": "canary-1"}, tool_use_id="c1", **where
    )
    lab.drain()
    transcript.prompt("<private>canary-2</private>", "p1")
    transcript.call("c1", prompt="p1", command="canary-1")
    transcript.call("c2", prompt="p1", command="canary-3")
    transcript.say("canary-4")
    transcript.prompt("open again", "p2")
    transcript.call("c3", prompt="p2")
    lab.spool("SessionEnd", **where)
    lab.drain()
    assert lab.rows("select text from user_prompts") == [("open again",)]
    assert _tools(lab) == [(2, "c3", "transcript")]
    kept = b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())
    assert b"canary" not in kept
    lab.status()


def test_a_forked_session_does_not_repeat_what_it_was_forked_from(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    transcript.prompt("go", "p1")
    transcript.call("c1", prompt="p1")
    lab.spool("UserPromptSubmit", prompt="go", **where)
    lab.spool("Stop", **where)
    lab.drain()
    fork = Transcript(transcript.path.with_name("fork.jsonl"))
    fork.path.write_text(transcript.path.read_text())
    fork.prompt("go on", "p2")
    fork.call("c2", prompt="p2")
    lab.spool("Stop", session_id="s2", prompt_id="p2", transcript_path=str(fork.path))
    lab.drain()
    assert lab.rows(
        "select s.content_session_id, e.tool_use_id from events e join sdk_sessions s on s.id = e.session_id"
        " where e.kind = 'tool' order by 1"
    ) == [("s1", "c1"), ("s2", "c2")]
    assert lab.rows("select text from user_prompts order by id") == [("go",), ("go on",)]


def test_clients_without_prompt_ids_are_matched_by_words(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path)}
    transcript.prompt("go", "")
    transcript.call("c1")
    lab.spool("UserPromptSubmit", prompt="go", **where)
    lab.spool("Stop", last_assistant_message="ok", **where)
    transcript.prompt("again", "")
    transcript.call("c2")
    lab.spool("UserPromptSubmit", prompt="again", **where)
    lab.spool("Stop", last_assistant_message="ok", **where)
    lab.drain()
    assert lab.rows("select number from turns order by 1") == [(1,), (2,)]
    assert _tools(lab) == [(1, "c1", "transcript"), (2, "c2", "transcript")]


def test_a_result_that_is_still_to_come_is_read_later(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    transcript.prompt("go", "p1")
    transcript.use("c1")
    lab.spool("UserPromptSubmit", prompt="go", **where)
    lab.spool("Stop", **where)
    lab.drain()
    assert _tools(lab) == []
    transcript.result("c1", prompt="p1")
    with transcript.path.open("a") as file:
        file.write('{"type": "user", "half a li')
    lab.spool("Stop", **where)
    lab.drain()
    assert _tools(lab) == [(1, "c1", "transcript")]


def test_lines_that_nobody_said_are_not_prompts(lab: Lab, transcript: Transcript) -> None:
    for text in (
        "<command-name>/exit</command-name>",
        "<local-command-stdout>x</local-command-stdout>",
        "<bash-input>ls</bash-input>",
    ):
        transcript.prompt(text, "p0")
    transcript.prompt("a summary of before", "p0", isCompactSummary=True)
    transcript.prompt("a reminder", "p0", isMeta=True)
    transcript.prompt("said by a helper", "p0", isSidechain=True)
    with transcript.path.open("a") as file:
        file.write('not json\n[]\n{"type": "user"}\n{"type": "user", "message": {"content": 5}}\n')
    lab.spool("SessionEnd", transcript_path=str(transcript.path))
    lab.drain()
    assert lab.rows("select count(*) from user_prompts") == [(0,)]


def _subagent_at_work(lab: Lab, transcript: Transcript) -> dict[str, str]:
    """It looks something up, and only its own file tells."""
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    folder = transcript.path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    helper = Transcript(folder / "agent-a1.jsonl")
    helper._write("user", {"role": "user", "content": "your task"}, isSidechain=True, promptId="p1")
    block = {"type": "tool_use", "id": "h1", "name": "Grep", "input": {"pattern": "x"}}
    helper._write("assistant", {"role": "assistant", "content": [block]}, isSidechain=True)
    result = {"type": "tool_result", "tool_use_id": "h1", "content": "found"}
    helper._write("user", {"role": "user", "content": [result]}, isSidechain=True, promptId="p1")
    lab.spool("UserPromptSubmit", prompt="go", **where)
    lab.spool("SubagentStop", agent_id="a1", last_assistant_message="found it", **where)
    lab.drain()
    return where


def test_subagents_are_read_too(lab: Lab, transcript: Transcript) -> None:
    where = _subagent_at_work(lab, transcript)
    assert _tools(lab) == [(1, "h1", "transcript")]
    assert lab.rows("select json_extract(body, '$.agent_id') from events where kind = 'tool'") == [("a1",)]
    lab.spool("SessionEnd", **where)
    lab.drain()
    assert len(_tools(lab)) == 1


def test_subagents_are_not_read_where_they_are_not_wanted(lab: Lab, transcript: Transcript) -> None:
    (lab.project / ".claude-mem.toml").write_text("subagents = false\n")
    _subagent_at_work(lab, transcript)
    assert _tools(lab) == []


def test_of_what_is_not_wanted_it_is_read_back_that_it_came_from_outside(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    lab.spool("UserPromptSubmit", prompt="go", **where)
    transcript.prompt("go", "p1")
    block = {"type": "tool_use", "id": "w1", "name": "WebFetch", "input": {"url": "https://x.example"}}
    transcript._write("assistant", {"role": "assistant", "content": [block]})
    result = {"type": "tool_result", "tool_use_id": "w1", "content": "osprey"}
    transcript._write("user", {"role": "user", "content": [result]}, promptId="p1")
    lab.spool("Stop", **where)
    lab.drain(CLAUDE_MEM_SKIP_TOOLS="WebFetch")
    told = (
        "select json_extract(body, '$.input'), json_extract(body, '$.output'), origin from events where kind = 'tool'"
    )
    assert lab.rows(told) == [("{}", None, "external")]


def test_a_worker_that_starts_looks_for_what_was_said_while_none_ran(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    lab.spool("UserPromptSubmit", prompt="go", **where)
    lab.drain()
    transcript.prompt("go", "p1")
    transcript.call("c1", prompt="p1")
    lab.drain()
    assert _tools(lab) == [(1, "c1", "transcript")]
    assert lab.rows("select closed_by from turns") == [(None,)]


def test_a_transcript_that_is_gone_or_a_folder_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    for number, path in enumerate((tmp_path / "gone.jsonl", tmp_path)):
        lab.spool("UserPromptSubmit", session_id=f"x{number}", prompt="go", transcript_path=str(path), prompt_id="p1")
        lab.spool("Stop", session_id=f"x{number}", transcript_path=str(path), prompt_id="p1")
    lab.drain()
    assert lab.rows("select count(*) from session_summaries") == [(2,)]


def test_what_was_said_while_a_project_was_switched_off_is_not_read_back(lab: Lab, transcript: Transcript) -> None:
    where = {"transcript_path": str(transcript.path)}
    transcript.prompt("go", "p1")
    lab.spool("UserPromptSubmit", prompt="go", prompt_id="p1", **where)
    lab.drain()
    (lab.project / ".claude-mem.toml").write_text("enabled = false\n")
    transcript.prompt("off the record", "p2")
    transcript.call("c2", prompt="p2")
    lab.drain()
    (lab.project / ".claude-mem.toml").unlink()
    transcript.prompt("on again", "p3")
    lab.spool("Stop", prompt_id="p3", **where)
    lab.drain()
    assert lab.rows("select text from user_prompts order by text") == [("go",), ("on again",)]
    assert _tools(lab) == []


def test_last_words_are_found_even_if_the_turn_was_still_open_when_they_were_read(
    lab: Lab, transcript: Transcript
) -> None:
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    lab.spool("UserPromptSubmit", prompt="go", **where)
    lab.drain()
    transcript.prompt("go", "p1")
    transcript.call("c1", prompt="p1")
    transcript.say("The parser handles quotes now.")
    lab.drain()  # a worker that starts reads it; the turn is open
    lab.spool("SessionEnd", **where)
    lab.drain()
    assert lab.rows("select closing from session_summaries") == [("The parser handles quotes now.",)]


def test_a_missed_turn_is_added_beside_the_one_that_runs(lab: Lab, transcript: Transcript) -> None:
    """All hooks of the second prompt were missed; the third is at work when the transcript is read."""
    where = {"transcript_path": str(transcript.path)}
    transcript.prompt("one", "p1")
    lab.spool("UserPromptSubmit", at=int(transcript.clock * 1000), prompt="one", prompt_id="p1", **where)
    transcript.prompt("two", "p2")
    transcript.call("c2", prompt="p2")
    transcript.say("Two is done and dusted, in a module.")
    transcript.prompt("three", "p3")
    lab.spool("UserPromptSubmit", at=int(transcript.clock * 1000), prompt="three", prompt_id="p3", **where)
    lab.spool("SubagentStop", prompt_id="p3", agent_id="a", agent_type="x", **where)
    lab.drain()
    assert lab.rows("select prompt_id, closed_by from turns order by opened_at") == [
        ("p1", "prompt"),
        ("p2", "prompt"),
        ("p3", None),
    ]
    assert lab.rows("select closing from session_summaries where request = 'two'") == [
        ("Two is done and dusted, in a module.",)
    ]


def test_a_known_tool_call_under_a_new_prompt_opens_no_turn(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt="one", prompt_id="p1")
    lab.spool("PostToolUse", prompt_id="p1", tool_name="Bash", tool_input={}, tool_use_id="c1")
    lab.spool("PostToolUse", prompt_id="p9", tool_name="Bash", tool_input={}, tool_use_id="c1")
    lab.spool("Stop", prompt_id="p1", last_assistant_message="ok")
    lab.drain()
    assert lab.rows("select prompt_id from turns") == [("p1",)]
    assert lab.status()["filtered_by"] == {"duplicate": 1}
