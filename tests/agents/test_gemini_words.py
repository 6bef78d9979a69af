"""Gemini CLI's payloads, settings and transcripts, without the program."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_mem import answers
from claude_mem.agents import gemini, registry
from claude_mem.agents.base import LauncherCommands
from claude_mem.agents.installer import plan_connection
from claude_mem.domain.errors import IgnoredEvent, OperationFailed, UnreadableEvent
from claude_mem.domain.records import Prompted, Stopped, ToolUsed
from claude_mem.privacy import tags
from tests.agents.wild import payloads
from tests.support.lab import HOOK, Lab

OURS = "<hook_context>&lt;claude-mem-context&gt;\n# claude-mem\n&lt;/claude-mem-context&gt;</hook_context>\n\n"
FILES = "\n--- Content from referenced files ---\nContent from @a.txt:\nalpha\n--- End of content ---"


def shell(text: str, **more: Any) -> dict[str, Any]:
    return {
        "session_id": "g1",
        "hook_event_name": "AfterTool",
        "cwd": "/shop",
        "tool_name": "run_shell_command",
        "tool_input": {"command": "make", "description": "build"},
        "tool_response": {"llmContent": f"<untrusted_context>\n{text}\n</untrusted_context>", "returnDisplay": "x"},
        **more,
    }


# --- payloads --------------------------------------------------------------------------------------------------------


def test_a_command_that_failed_is_told_as_failed() -> None:
    found = gemini.translate(shell("Output: no rule\nExit Code: 2\nProcess Group PGID: 7"))
    assert (found["hook_event_name"], found["tool_name"]) == ("PostToolUseFailure", "Bash")
    assert found["error"] == "Exit code 2\nno rule"
    assert found["tool_input"]["command"] == "make"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("Output: done\nProcess Group PGID: 7", "done"),
        ("Output: (empty)", ""),
        ("Output: Exit Code: 3\nthat was a quotation\nBackground PIDs: 8\nProcess Group PGID: 7", "Exit Code: 3\nthat was a quotation"),
    ],
)  # fmt: skip
def test_a_command_that_went_well_is_told_as_it_printed(text: str, output: str) -> None:
    found = gemini.translate(shell(text))
    assert (found["hook_event_name"], found["tool_response"]) == ("PostToolUse", output)


@pytest.mark.parametrize(
    "text", ["Output: x\nSignal: 9\nProcess Group PGID: 7", "Command was cancelled by user before it could complete."]
)
def test_a_command_that_was_killed_has_failed(text: str) -> None:
    assert gemini.translate(shell(text))["hook_event_name"] == "PostToolUseFailure"


def test_a_tool_that_could_not_do_it_has_failed() -> None:
    response = {
        "llmContent": "Could not read",
        "error": {"message": "File not found: /shop/x", "type": "file_not_found"},
    }
    found = gemini.translate(shell("", tool_name="read_file", tool_input={"file_path": "x"}, tool_response=response))
    assert (found["hook_event_name"], found["error"]) == ("PostToolUseFailure", "File not found: /shop/x")
    assert found["tool_input"] == {"file_path": "/shop/x"}


def test_an_edit_keeps_its_diff_and_not_the_whole_file() -> None:
    display = {
        "fileDiff": "Index: m.py\n===\n--- m.py\tCurrent\n+++ m.py\tProposed\n@@ -1,2 +1,2 @@\n def f():\n-    1\n+    2\n",
        "newContent": "all of it",
    }
    edit = {"file_path": "/shop/m.py", "old_string": "1", "new_string": "2"}
    response = {"llmContent": "Successfully modified", "returnDisplay": display}
    found = gemini.translate(shell("", tool_name="replace", tool_input=edit, tool_response=response))
    assert (found["tool_name"], found["tool_input"]) == ("Edit", edit)
    assert found["tool_response"] == {"structuredPatch": [{"lines": [" def f():", "-    1", "+    2"]}]}


def test_a_tool_of_a_server_is_called_as_claude_code_calls_it() -> None:
    context = {"server_name": "a_b", "tool_name": "c_d"}
    found = gemini.translate(
        shell("", tool_name="mcp_a_b_c_d", mcp_context=context, tool_response={"llmContent": [{"text": "hit"}]})
    )
    assert (found["tool_name"], found["tool_response"]) == ("mcp__a_b__c_d", "hit")
    assert gemini.translate(shell("", tool_name="mcp_a_b"))["tool_name"] == "mcp__a_b"


@pytest.mark.parametrize("event", ["BeforeTool", "PreCompress", "AfterModel", "BeforeModel", "Notification"])
def test_what_tells_nothing_is_noise(event: str) -> None:
    with pytest.raises(IgnoredEvent):
        gemini.translate({"session_id": "g1", "hook_event_name": event})


def test_our_own_dialect_stays_as_it_is() -> None:
    fields = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    assert gemini.translate(fields) == fields


@pytest.mark.parametrize("prompt", ["go on", "go on\nwith <hook_context>", ""])
def test_a_prompt_is_what_the_user_typed(prompt: str) -> None:
    for before in ("", OURS, "<hook_context>a</hook_context>\n<hook_context>b</hook_context>\n\n"):
        for after in ("", FILES):
            found = gemini.translate({"hook_event_name": "BeforeAgent", "prompt": f"{before}{prompt}{after}"})
            assert (found["hook_event_name"], found["prompt"]) == ("UserPromptSubmit", prompt)


def test_nothing_said_is_nothing_said() -> None:
    found = gemini.translate({"hook_event_name": "AfterAgent", "prompt_response": "[no response text]"})
    assert (found["hook_event_name"], found["last_assistant_message"]) == ("Stop", "")


def test_the_last_words_begin_where_the_transcript_says(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    said = {
        "hook_event_name": "AfterAgent",
        "prompt_response": "First this.\nDone.\n\nAll of it.",
        "transcript_path": str(chat),
    }
    assert gemini.translate(said)["last_assistant_message"] == "First this.\nDone.\n\nAll of it."
    messages = [
        {"id": "1", "type": "gemini", "content": "First this."},
        {"id": "2", "type": "gemini", "content": "Done.\n\nAll of it."},
        {"id": "3", "type": "gemini", "content": "Of another turn."},
    ]
    chat.write_text("".join(json.dumps(message) + "\n" for message in messages) + '{"half')
    assert gemini.translate(said)["last_assistant_message"] == "Done.\n\nAll of it."


REMARK = "I look at the code first."
ANSWER = (
    "German prices are parsed now: `parse_price` drops the thousands dots.  \nI return `Decimal`, because sums of floats"
    " were off by a cent.\n\n- The root cause was that `float` refuses a comma.\n- Next: the CSV writer still formats with"
    " `%.2f`; it has to be changed to `quantize`."
)


def reported(*messages: str, chunk: int, first_is_whole: bool = True) -> str:
    """What the hook reports of a turn's messages: chunks joined with spaces, of which the first is the whole message.
    A call that follows a message is a chunk without words."""
    said = []
    for number, text in enumerate(messages):
        chunks = [text[at : at + chunk] for at in range(0, len(text), chunk)]
        if first_is_whole:
            chunks[0] = text
        said.append(" ".join([*chunks, *[""] * (number + 1 < len(messages))]))
    return "\n".join(said)


def after_agent(path: Path, text: str, **more: Any) -> str:
    fields = {"hook_event_name": "AfterAgent", "prompt": "go", "prompt_response": text, "transcript_path": str(path)}
    found = gemini.translate({**fields, "timestamp": "2026-01-01T10:00:30.000Z", **more})["last_assistant_message"]
    assert isinstance(found, str)
    return found


def written(path: Path, *messages: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in (HEAD, *messages)))
    return path


CHUNKS = pytest.mark.parametrize("chunk", [7, 40, 200, 10_000])


@CHUNKS
@pytest.mark.parametrize("first_is_whole", [True, False])
@pytest.mark.parametrize("answer", [ANSWER, "Done.", REMARK, f"{REMARK} {REMARK}", "It is so. It is so. It is so."])
def test_the_chat_file_has_the_last_message_of_the_turn(
    tmp_path: Path, chunk: int, first_is_whole: bool, answer: str
) -> None:
    call = called(3, "glob", {"pattern": "*"}, {"output": "a"})
    chat = written(
        tmp_path / "chat.jsonl",
        message(1, "user", "earlier"),
        message(2, "gemini", f"Of an earlier turn. {answer}"),
        message(3, "user", "go"),
        message(4, "gemini", REMARK),
        message(4, "gemini", REMARK, toolCalls=[call]),
        message(5, "user", [{"functionResponse": {"name": "glob"}}]),
        message(6, "gemini", answer),
        message(40, "user", "go on"),
        message(41, "gemini", "Of a later turn."),
    )
    text = reported(REMARK, answer, chunk=chunk, first_is_whole=first_is_whole)
    assert after_agent(chat, text) == answer


def test_an_answer_that_is_reported_in_another_way_is_still_the_one_in_the_chat_file(tmp_path: Path) -> None:
    chat = written(tmp_path / "chat.jsonl", message(3, "user", "go"), message(4, "gemini", ANSWER))
    assert after_agent(chat, f"{ANSWER[100:]}\n{ANSWER[:200]} [cut]") == ANSWER
    assert after_agent(chat, "Something else entirely was said here.") == "Something else entirely was said here."


def test_a_remark_is_not_the_answer_that_the_chat_file_does_not_have_yet(tmp_path: Path) -> None:
    call = called(3, "glob", {"pattern": "*"}, {"output": "a"})
    chat = written(
        tmp_path / "chat.jsonl",
        message(2, "gemini", ANSWER[-30:]),
        message(3, "user", "go"),
        message(4, "gemini", REMARK, toolCalls=[call]),
        message(5, "user", [{"functionResponse": {"name": "glob"}}]),
    )
    assert after_agent(chat, reported(REMARK, ANSWER, chunk=200)) == ANSWER


def test_an_older_versions_chat_file_is_read_too(tmp_path: Path) -> None:
    chat = tmp_path / "session-1.json"
    messages = [message(3, "user", "go"), message(4, "gemini", ANSWER)]
    chat.write_text(json.dumps({**HEAD, "messages": messages}, indent=2))
    assert after_agent(chat, reported(REMARK, ANSWER, chunk=40)) == ANSWER


@CHUNKS
@pytest.mark.parametrize("remarks", [[], [REMARK], [REMARK, "Now the tests, all of them, one after the other."]])
def test_without_a_chat_file_the_repetition_is_removed(tmp_path: Path, chunk: int, remarks: list[str]) -> None:
    assert after_agent(tmp_path / "gone", reported(*remarks, ANSWER, chunk=chunk)) == ANSWER


@pytest.mark.parametrize("text", ["", "No, no, no.", "ha ha", ANSWER, "a\n\nb", "=" * 10_000, "ab " * 20_000])
def test_what_is_not_a_repeated_tail_stays(tmp_path: Path, text: str) -> None:
    found = after_agent(tmp_path / "gone", text)
    assert text.startswith(found)
    assert found == text or len(set(text)) < 4


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_no_words_break_the_search_for_the_last_message(text: str, message: str) -> None:
    assert gemini.ends_with_message(text + message, message) == bool(gemini._bare(message))
    assert gemini.remove_repetition(text) in text


NAMES = (
    "session_id", "cwd", "prompt", "prompt_response", "transcript_path", "tool_name", "tool_input", "tool_response",
    "llmContent", "returnDisplay", "error", "fileDiff", "mcp_context", "server_name", "file_path", "text", "source",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(payloads(NAMES, [*gemini.EVENTS, "BeforeTool", "PostToolUse"]))
def test_no_payload_breaks_it(fields: dict[str, Any]) -> None:
    try:
        assert isinstance(gemini.translate(fields), dict)
    except UnreadableEvent:
        pass


@settings(max_examples=150)
@given(st.text(alphabet="<>/hok_cntex \n-", max_size=60))
def test_what_was_said_is_part_of_what_came(text: str) -> None:
    assert tags.strip_gemini_additions(text) in text


def test_an_answer_names_the_event_as_the_program_does() -> None:
    names = {"SessionStart": "SessionStart", "UserPromptSubmit": "BeforeAgent", "PostToolUseFailure": "AfterTool"}
    for ours, theirs in names.items():
        found = json.loads(answers.compose_answer("gemini", ours, "text"))
        assert found == {"hookSpecificOutput": {"hookEventName": theirs, "additionalContext": "text"}}


# --- privacy ---------------------------------------------------------------------------------------------------------


def run_hook(lab: Lab, command: str, host: str, fields: Any, *, cwd: Path | None = None) -> bytes:
    """Run the real hook, with no worker to take its record; the record."""
    lab.no_worker()
    before = set((lab.data / "spool").glob("*")) if (lab.data / "spool").exists() else set()
    done = subprocess.run(
        [*HOOK, command, "", host],
        input=json.dumps(fields).encode(),
        env=lab.env(),
        cwd=cwd,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == {}
    (record,) = set((lab.data / "spool").glob("*")) - before
    return record.read_bytes()


@pytest.mark.parametrize("before", ["", OURS, "<hook_context>of &lt;private&gt; things</hook_context>\n\n"])
@pytest.mark.parametrize("after", ["", FILES])
def test_a_prompt_that_is_wholly_private_hides_its_turn(lab: Lab, before: str, after: str) -> None:
    prompt = f"{before}<private>CANARY</private>{after}"
    common = {"session_id": "g1", "cwd": str(lab.project)}
    record = run_hook(lab, "new", "gemini", {**common, "hook_event_name": "BeforeAgent", "prompt": prompt})
    assert b"private yes" in record.partition(b"\n\n")[0]
    assert b"CANARY" not in record
    run_hook(lab, "save", "gemini", {**shell("Output: CANARY"), **common})
    said = {**common, "hook_event_name": "AfterAgent", "prompt": prompt, "prompt_response": "CANARY"}
    run_hook(lab, "summary", "gemini", said)
    lab.drain()
    assert lab.rows("select count(*) from events") == [(0,)]
    assert lab.rows("select private, closed_by from turns") == [(1, "stop")]
    assert b"CANARY" not in b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())


def test_a_prompt_with_something_public_in_it_is_kept(lab: Lab) -> None:
    prompt = f"{OURS}use port <private>CANARY</private> as always{FILES}"
    fields = {"session_id": "g1", "cwd": str(lab.project), "hook_event_name": "BeforeAgent", "prompt": prompt}
    record = run_hook(lab, "new", "gemini", fields)
    assert b"private yes" not in record
    lab.drain()
    assert lab.rows("select text from user_prompts") == [("use port  as always",)]


def test_the_last_words_of_a_private_prompt_that_was_not_heard_are_not_kept(lab: Lab) -> None:
    common = {"session_id": "g1", "cwd": str(lab.project)}
    run_hook(lab, "context", "gemini", {**common, "hook_event_name": "SessionStart", "source": "startup"})
    said = {**common, "hook_event_name": "AfterAgent", "prompt": "<private>x</private>", "prompt_response": "CANARY"}
    run_hook(lab, "summary", "gemini", said)
    lab.drain()
    assert lab.rows("select kind from events") == [("session_start",)]
    assert lab.rows("select outcome, rule from receipts where rule != ''") == [("filtered", "private")]


# --- transcripts -----------------------------------------------------------------------------------------------------

HEAD = {"sessionId": "g1", "projectHash": "0" * 64, "startTime": "2026-01-01T10:00:00.000Z", "kind": "main"}


def message(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": f"m{number}",
        "timestamp": f"2026-01-01T10:00:{number:02}.000Z",
        "type": kind,
        "content": content,
        **more,
    }


def called(number: int, name: str, args: Any, response: Any, status: str = "success") -> dict[str, Any]:
    result = [{"functionResponse": {"id": f"c{number}", "name": name, "response": response}}]
    return {"id": f"c{number}", "name": name, "args": args, "result": result, "status": status}


MESSAGES = [
    message(0, "user", [{"text": "<session_context>\nToday\n</session_context>"}]),
    message(1, "user", [{"text": f"{OURS}mend the till"}, {"text": "<hook_context>more</hook_context>"}]),
    message(2, "gemini", "On it.", toolCalls=[
        called(2, "run_shell_command", {"command": "make"}, {"output": "Output: no\nExit Code: 1\n\n<hook_context>hint</hook_context>"}),
        called(3, "replace", {"file_path": "till.py", "old_string": "a", "new_string": "b"}, {"output": "ok"}),
        called(4, "read_file", {"file_path": "gone"}, {"error": "File not found: gone"}, "error"),
        called(5, "glob", {"pattern": "*"}, {}, "executing"),
    ]),
    message(3, "user", [{"functionResponse": {"name": "replace"}}]),
    message(4, "gemini", "It is mended."),
    message(5, "info", "Update available"),
    message(6, "user", "<private>CANARY</private>"),
    message(7, "gemini", "CANARY", toolCalls=[called(6, "run_shell_command", {"command": "echo CANARY"}, {"output": "CANARY"})]),
    message(8, "user", "Please continue."),
    message(9, "gemini", "CANARY"),
]  # fmt: skip


def chat(folder: Path, name: str = "session-2026-01-01T10-00-g1.jsonl", *, root: str = "/shop") -> Path:
    path = folder / ".gemini" / "tmp" / "shop" / "chats" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent.parent / ".project_root").write_text(root)
    if name.endswith(".json"):
        path.write_text(json.dumps({**HEAD, "messages": MESSAGES}, indent=2))
        return path
    snapshot = {"$set": {"messages": [{**one, "timestamp": "2027-01-01T00:00:00Z"} for one in MESSAGES]}}
    first = {**MESSAGES[2], "toolCalls": []}  # a message is written again when something came to it
    lines = [HEAD, *MESSAGES[:2], first, *MESSAGES[2:], snapshot, {"$rewindTo": "m1"}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "not json\n[]\n" + '{"id": "half'
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["session-a.jsonl", "session-a.json", "session-a.jsonl.gz"])
def test_a_session_is_read_back(tmp_path: Path, name: str) -> None:
    path = chat(tmp_path, name)
    assert registry.identify_agent(path) is gemini.AGENT
    found = gemini.read(path, host="gemini")
    assert (found.content_session_id, found.cwd, found.private) == ("g1", "/shop", {"m6"})
    bodies = [event.body for event in found.events if not event.private]
    assert bodies == [
        Prompted("mend the till"),
        ToolUsed("Bash", {"command": "make"}, "Exit code 1\nno", True),
        ToolUsed("Edit", {"file_path": "/shop/till.py", "old_string": "a", "new_string": "b"}, "ok"),
        ToolUsed("Read", {"file_path": "/shop/gone"}, "File not found: gone", True),
    ]
    assert found.closings["m1"].body == Stopped("It is mended.")
    assert all(event.private for event in found.events if "CANARY" in repr(event))
    assert {event.tool_use_id for event in found.events if event.tool_use_id} == {f"g1.c{n}" for n in (2, 3, 4, 6)}
    again = gemini.read(path, host="gemini", content_session_id="g1", offset=found.offset)
    assert (again.events, again.offset) == ([], found.offset)


def test_the_project_is_found_by_its_name_or_by_its_hash(tmp_path: Path) -> None:
    path = chat(tmp_path)
    (path.parent.parent / ".project_root").unlink()
    assert gemini.read(path, host="gemini").cwd == ""
    listed = tmp_path / ".gemini" / "projects.json"
    listed.write_text(json.dumps({"projects": {"/other": "other", "/market": "shop"}}))
    assert gemini.read(path, host="gemini").cwd == "/market"
    old = chat(tmp_path).rename(tmp_path / ".gemini" / "tmp" / "shop" / "chats" / "x.jsonl")
    (old.parent.parent / ".project_root").unlink()
    digest = hashlib.sha256(b"/stall").hexdigest()
    old.write_text(old.read_text().replace("0" * 64, digest))
    listed.write_text(json.dumps({"projects": {"/stall": "else"}}))
    assert gemini.read(old, host="gemini").cwd == "/stall"
    listed.write_text("[]")
    assert gemini.read(old, host="gemini").cwd == ""


def test_a_subagents_file_is_nobodys_session(tmp_path: Path) -> None:
    path = chat(tmp_path)
    path.write_text(path.read_text().replace('"main"', '"subagent"'))
    assert registry.identify_agent(path) is None


def test_old_sessions_are_found_where_they_lie(tmp_path: Path) -> None:
    path, older = chat(tmp_path), chat(tmp_path, "session-older.json")
    (path.parent / "g1").mkdir()
    (path.parent / "g1" / "sub.jsonl").touch()
    assert gemini.AGENT.transcripts is not None
    for env in ({"HOME": str(tmp_path)}, {"HOME": "/nowhere", "GEMINI_CLI_HOME": str(tmp_path)}):
        assert set(gemini.AGENT.transcripts.find(env)) == {path, older}


@pytest.mark.parametrize("what", ["gone", "folder", "pipe", "empty", "bytes"])
def test_a_file_that_tells_nothing_is_no_trouble(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what != "gone":
        path.write_bytes(b"\xff\x00\n" if what == "bytes" else b"")
    assert gemini.read(path, host="gemini").events == []
    assert gemini.last_message(str(path), "x") == ""


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        payloads(
            (
                "id",
                "timestamp",
                "toolCalls",
                "content",
                "displayContent",
                "result",
                "args",
                "functionResponse",
                "response",
                "status",
                "name",
                "sessionId",
                "projectHash",
                "messages",
                "text",
            ),
            ["user", "gemini", "success", "main"],
            event_name="type",
        ),
        max_size=6,
    )
)
def test_no_transcript_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, records: list[Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "wild.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in [HEAD, *records]), errors="surrogatepass")
    gemini.read(path, host="gemini")


def test_what_hooks_told_is_not_told_again_by_the_transcript(lab: Lab) -> None:
    """The prompt and a call were heard; the same are in the file, and an older turn that was not."""
    path = chat(lab.folder, root=str(lab.project))
    heard = {"session_id": "g1", "cwd": str(lab.project), "transcript_path": str(path)}
    records = [
        ("context", {"hook_event_name": "SessionStart", "source": "resume"}),
        ("new", {"hook_event_name": "BeforeAgent", "prompt": "count the stock"}),
        ("fail", shell("Output: 12")),
        ("summary", {"hook_event_name": "AfterAgent", "prompt": "count the stock", "prompt_response": "Twelve."}),
    ]
    for command, fields in records:
        run_hook(lab, command, "gemini", {**fields, **heard})
    now = "2099-01-01T00:00:00Z"
    later = [
        {**message(20, "user", "count the stock"), "timestamp": now},
        {
            **message(
                21,
                "gemini",
                "",
                toolCalls=[
                    {**called(9, "run_shell_command", {"command": "make"}, {"output": "Output: 12"}), "timestamp": now}
                ],
            ),
            "timestamp": now,
        },
        {**message(22, "gemini", "Twelve."), "timestamp": now},
    ]
    with path.open("a") as file:
        file.write("\n" + "".join(json.dumps(line) + "\n" for line in later))
    lab.drain()
    wanted = "select kind, count(*) from events where source = ? group by kind order by kind"
    live = [("prompt", 1), ("session_start", 1), ("stop", 1), ("tool", 1)]
    for _ in range(2):
        assert lab.rows(wanted, "hook") == live
        assert lab.rows(wanted, "transcript") == [("prompt", 1), ("stop", 1), ("tool", 3)]
        assert lab.rows("select count(*), sum(private) from turns") == [(3, 1)]
        lab.mem("backfill", str(path))
        lab.mem("stop")


def test_a_last_message_that_is_written_after_the_hook_replaces_what_the_hook_said(lab: Lab) -> None:
    """Once before anything is made of the turn, and once when it has been digested: by the next hook's look."""
    path = chat(lab.folder, root=str(lab.project))
    heard = {"session_id": "g1", "cwd": str(lab.project), "transcript_path": str(path)}

    def turn(number: int, answer: str) -> None:
        prompt = f"count the stock, part {number}"
        run_hook(lab, "new", "gemini", {**heard, "hook_event_name": "BeforeAgent", "prompt": prompt})
        run_hook(lab, "save", "gemini", {**shell("Output: 12"), **heard})
        with path.open("a") as file:
            file.write("\n" + json.dumps(message(20 + 2 * number, "user", prompt, timestamp=clock())) + "\n")
        text = f"{REMARK}\n{reported(answer, chunk=40)}"  # no sign of where the answer begins
        said = {"hook_event_name": "AfterAgent", "prompt": prompt, "prompt_response": text}
        answers.append(message(21 + 2 * number, "gemini", answer, timestamp=clock()))
        run_hook(lab, "summary", "gemini", {**heard, **said, "timestamp": clock()})

    def clock() -> str:
        return datetime.now(UTC).isoformat().replace("+00:00", "Z")

    def write() -> None:
        with path.open("a") as file:
            file.write(json.dumps(answers.pop()) + "\n")

    answers: list[dict[str, Any]] = []
    run_hook(lab, "context", "gemini", {**heard, "hook_event_name": "SessionStart", "source": "startup"})
    turn(1, ANSWER)
    assert lab.drain() == 0
    said = "select body ->> 'message' from events where kind = 'stop' and source = 'hook' order by at"
    assert lab.rows(said) == [(f"{REMARK}\n{ANSWER}",)]
    write()
    turn(2, f"{ANSWER} Twice.")
    assert lab.drain() == 0
    assert lab.rows(said) == [(ANSWER,), (f"{REMARK}\n{ANSWER} Twice.",)]
    write()
    run_hook(lab, "cleanup", "gemini", {**heard, "hook_event_name": "SessionEnd", "reason": "exit"})
    assert lab.drain() == 0
    assert lab.rows(said) == [(ANSWER,), (f"{ANSWER} Twice.",)]
    assert lab.rows("select count(*) from observations where title like 'I look%' or narrative like 'I look%'") == [
        (0,)
    ]
    assert lab.rows("select count(*) from session_summaries where completed like '%I look%'") == [(0,)]
    lab.status()


# --- settings --------------------------------------------------------------------------------------------------------


def ours(folder: Path, **env: str) -> LauncherCommands:
    return LauncherCommands(folder / "claude-mem-hook", {"HOME": str(folder), **env})


def test_settings_with_comments_are_named_and_left_alone(lab: Lab) -> None:
    path = lab.folder / "home" / ".gemini" / "settings.json"
    path.parent.mkdir(parents=True)
    text = '{\n  // mine\n  "ui": {"theme": "dark"}\n}\n'
    path.write_text(text)
    done = lab.mem("install", "--yes", "--host", "gemini", ok=False)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "comments" in done.stderr
    assert path.read_text() == text
    assert not (path.parent / "skills").exists()


def test_timeouts_are_milliseconds_and_every_tool_is_heard_once(tmp_path: Path) -> None:
    change = plan_connection(gemini.AGENT, ours(tmp_path))[0]
    assert change.path == tmp_path / ".gemini" / "settings.json"
    found = json.loads(change.after or "")
    handlers = [handler for entries in found["hooks"].values() for entry in entries for handler in entry["hooks"]]
    assert {handler["timeout"] for handler in handlers} == {5000}
    assert set(found["hooks"]) == set(gemini.EVENTS)
    matchers = [entry["matcher"] for entry in found["hooks"]["AfterTool"]]
    for tool in ("run_shell_command", "read_file", "mcp_x_run_shell_command", "run_shell_command_2"):
        assert sum(bool(re.search(matcher, tool)) for matcher in matchers) == 1
    assert found["mcpServers"]["claude-mem"]["args"] == ["mcp"]


def test_the_folder_may_lie_elsewhere(tmp_path: Path) -> None:
    changes = plan_connection(gemini.AGENT, ours(tmp_path, GEMINI_CLI_HOME=str(tmp_path / "job")))
    assert {change.path.relative_to(tmp_path / "job").parts[0] for change in changes} == {".gemini"}


def test_a_server_of_our_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text('{"mcpServers": {"claude-mem": {"command": "npx"}}}')
    with pytest.raises(OperationFailed, match="another MCP server"):
        plan_connection(gemini.AGENT, ours(tmp_path))
