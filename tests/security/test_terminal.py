"""What commands print drives no terminal: every command, against a memory full of hostile names and texts."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from claude_mem import answers
from claude_mem.cli.main import build_parser
from claude_mem.domain.export_format import ProjectRecord, encode_line
from claude_mem.domain.text import escape_json, iter_strings, make_printable, make_printable_line, map_strings
from claude_mem.system import process
from tests.support import forks, proof
from tests.support.lab import COMMANDS, HOOK, Lab
from tests.support.waiting import SECONDS

COMMAND = "python -m pytest tests/security/test_terminal.py"

# Clear the screen, set the title, write the clipboard, a false link, colours; the same with C1 introducers; overwrite
# the line; reverse it; break it for whoever splits lines.
SEQUENCES = {
    "clear": "\x1b[2J\x1b[H", "title": "\x1b]0;owned\x07", "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "link": "\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\", "hide": "\x1b[8mhidden\x1b[28m",
    "device": "\x1bP+q544e\x1b\\", "c1 csi": "\x9b2J", "c1 osc": "\x9d0;owned\x9c", "return": "safe\rowned",
    "backspace": "ok\x08\x08no", "delete": "\x7f\x7f", "bell": "\x07", "vertical": "\x0b\x0c", "next line": "\x85",
    "override": "\u202egnp.exe", "isolate": "\u2066\u2069", "marks": "\u200f\u061c", "separator": "\u2028\u2029",
    "zero width": "a\u200bb\ufeffc", "tags": "\U000e0041\U000e0042", "annotation": "\ufff9\ufffa\ufffb",
}  # fmt: skip
HOSTILE = "".join(SEQUENCES.values())
IN_NAMES = f"{HOSTILE}\nFORGED: run this"
IN_PROSE = f"{HOSTILE}\nanother line"

ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
# What rich itself sends to a terminal: bold, dim and colours; the cursor of a progress bar.
RICH = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A)|\r?\x1b\[2K")

NAMES = {
    "projects": ("name", "root"), "sdk_sessions": ("title", "subtitle", "cwd", "host"),
    "observations": ("title", "type", "trust", "provider", "model", "commit_id", "why"),
    "session_summaries": ("trust", "why"), "notices": ("text",), "jobs": ("error",),
    "receipts": ("rule",), "imports": ("path", "error"), "ledger": ("model", "provider", "message", "verdict"),
    "trusted_sources": ("source",), "repositories": (), "checks": ("text",), "purged_counts": ("rule",),
    "backfill_files": ("path", "problem"),
}  # fmt: skip
PROSE = {
    "user_prompts": ("text",), "observations": ("subtitle", "narrative"), "sdk_sessions": ("first_prompt",),
    "session_summaries": ("request", "investigated", "learned", "completed", "next_steps", "notes", "closing"),
}  # fmt: skip
TEXTS = {"observations": ("facts",)}
LISTS = {
    "observations": ("concepts", "files_read", "files_modified"),
    "session_summaries": ("files_read", "files_edited"),
    "imports": ("notes",),
}  # fmt: skip
BODIES = {"events": ("body",)}


def _in_names(*values: Any) -> str:
    return f"{values[0] or 'x'}{IN_NAMES}"


def _in_prose(*values: Any) -> str:
    return f"{values[0] or 'x'}{IN_PROSE}"


def _in_list(*values: Any) -> str:
    return _json([*json.loads(values[0]), IN_NAMES])


def _in_texts(*values: Any) -> str:
    return _json([*json.loads(values[0]), IN_PROSE])


def _in_body(*values: Any) -> str:
    return _json(map_strings(json.loads(values[0]), _hostile))


CHANGES = {
    "in_names": _in_names, "in_prose": _in_prose, "in_list": _in_list, "in_texts": _in_texts, "in_body": _in_body,
}  # fmt: skip


def poison(path: Path) -> None:
    """Hostile names and texts in every column that holds one."""
    conn = apsw.Connection(str(path))
    for function, compute in CHANGES.items():
        conn.create_scalar_function(function, compute, 1)
    try:
        conn.execute("delete from checks where name not in ('schema')")
        conn.execute(
            "insert into jobs (kind, subject, due_at, dead, error, created_at) values ('render', 'x', 0, 1, '', 0)"
        )
        conn.execute("insert into checks values ('full', 1, 0, '')")
        changes: dict[str, Any] = {
            "in_names": NAMES,
            "in_prose": PROSE,
            "in_list": LISTS,
            "in_texts": TEXTS,
            "in_body": BODIES,
        }
        for change, columns in changes.items():
            for table, names in columns.items():
                known = {row[1] for row in conn.execute(f"pragma table_info({table})")}
                for name in known & set(names):
                    where = "where name != 'schema'" if table == "checks" else ""
                    conn.execute(f"update or ignore {table} set {name} = {change}({name}) {where}")
    finally:
        conn.close()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _hostile(text: str) -> str:
    """Long words only: names of fields and kinds stay what they are."""
    return f"{text}{IN_PROSE}" if " " in text else text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A worker over a memory in which everything is hostile, the project's folder too."""
    lab = Lab(tmp_path_factory.mktemp("terminal"))
    lab.project = lab.folder / f"shop{HOSTILE.replace('/', '')}"
    (lab.project / ".git").mkdir(parents=True)
    for number in (1, 2):
        said = {"session_id": f"s{number}", "prompt_id": f"p{number}"}
        lab.spool("UserPromptSubmit", prompt=f"Fix the basket {number}", **said)
        tool = {"tool_name": "Bash", "tool_use_id": f"t{number}", "tool_input": {"command": "pytest -q"}}
        lab.spool("PostToolUse", tool_response={"stdout": "all passed"}, **tool, **said)
        edit = {"file_path": f"{lab.project}/basket.py", "old_string": "a = 1", "new_string": "b = 2"}
        lab.spool("PostToolUse", tool_name="Edit", tool_use_id=f"e{number}", tool_input=edit, **said)
        lab.spool("Stop", last_assistant_message="I fixed the rounding of the basket's total. It works now.", **said)
    assert lab.drain() == 0
    poison(lab.data / "claude-mem.db")
    log = lab.data / "logs" / "worker.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"2026-01-01 00:00:00,000 ERROR claude_mem.x: {HOSTILE}\n", "utf-8")
    lab.start()
    yield lab
    lab.close()


def invocations(lab: Lab) -> dict[str, list[list[str]]]:
    """For each command, ways to have it print what is remembered; `--json` is added where it is known."""
    name = f"shop{IN_NAMES}"
    missing = str(lab.folder / f"no{HOSTILE.replace('/', '')}")
    return {
        "install": [["--dry-run"]], "uninstall": [[]], "backfill": [["--dry-run"], [missing]],
        "reprocess": [["--dry-run"]], "retry": [[]], "status": [[], ["--line"]], "logs": [["-n", "50"]],
        "routes": [[]], "open": [["--print"]], "search": [["basket"], ["--explain", "rounding"], ["--project", name]],
        "timeline": [[], ["--query", "basket"], ["1"]], "context": [[], ["--prompt", "rounding of the basket"]],
        "list": [[kind] for kind in ("observations", "summaries", "prompts", "sessions", "projects")],
        "show": [["1", "S1", "P1", "999999"]], "why": [["README"], [missing + ":1"]], "cost": [["--by", "model"], ["--by", "project"]],
        "compress": [["s1", "--dry-run"], [name, "--dry-run"]], "save": [[IN_PROSE, "--title", IN_NAMES]],
        "pin": [["1"], ["1"]], "unpin": [["1"]], "edit": [["1", "--title", IN_NAMES]],
        "forget": [["1"], ["--matching", "basket"], ["--session", "s1"], ["1", "--yes"], ["1", "--undo"]],
        "trust": [[], ["add", f"gh{HOSTILE}"], ["remove", f"gh{HOSTILE}"]],
        "project": [["list"], ["show", "1"], ["show", name], ["rename", "1", IN_NAMES], ["off", missing]],
        "import": [[missing]], "export": [["-"]], "backup": [[], ["--list"], [missing + "/x.db"]],
        "restore": [[missing]], "config": [["list"], ["get", "mode"], ["get", HOSTILE], ["path"], ["set", HOSTILE, "1"]],
        "audit": [[], ["log"], ["log", "--verify"]], "scrub": [["--dry-run"]], "doctor": [[]], "reindex": [[]],
        "review": [[], ["--all"], ["--project", name]], "model": [["list"], ["pull", HOSTILE]],
        "worth": [[], ["--project", name]],
        "space": [[], ["list"], ["devices"], ["create", IN_NAMES, "--at", missing], ["join", missing], ["leave", "--yes"]],
    }  # fmt: skip


NOT_RUN = {"start", "stop", "restart", "serve", "drain", "token"}  # they end the worker, or become one; see below


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = [each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(action.choices)


def knows_json(parser: argparse.ArgumentParser) -> bool:
    return any("--json" in action.option_strings for action in parser._actions)


def on_a_terminal(lab: Lab, arguments: list[str]) -> str:
    """What a command writes to a terminal, on stdout and stderr."""
    master, slave = os.openpty()
    with tempfile.TemporaryDirectory() as folder:
        for stream in ("stdout", "stderr"):
            Path(folder, stream).symlink_to(os.ttyname(slave))
        running = forks.start(arguments, lab.env(TERM="xterm-256color", COLUMNS="300"), Path(folder), cwd=lab.project)
        written = b""
        try:
            while not running.ended() or select.select([master], [], [], 0)[0]:
                if select.select([master], [], [], 0.05)[0]:
                    written += os.read(master, 1 << 16)
            running.wait()
        finally:
            running.kill()
            os.close(slave)
            os.close(master)
    return RICH.sub("", written.decode("utf-8")).replace("\r\n", "\n")


def in_a_pipe(lab: Lab, arguments: list[str]) -> str:
    done = forks.run(arguments, lab.env(), cwd=lab.project)
    return done.stdout + done.stderr


def leaks(written: str) -> list[str]:
    """The sequences that came through, and lines that a name has forged."""
    found = [name for name, sequence in SEQUENCES.items() if sequence in written and ACTIVE.search(sequence)]
    found += [repr(match[0]) for match in ACTIVE.finditer(written)]
    return found + [row for row in written.split("\n") if row.startswith("FORGED")]


@pytest.mark.parametrize("where", [in_a_pipe, on_a_terminal])
def test_no_command_prints_what_a_terminal_acts_on(hostile: Lab, where: object) -> None:
    assert callable(where)
    wrong, run = {}, 0
    known = commands()
    for name, ways in invocations(hostile).items():
        for way in ways:
            json_too = [["--json"]] if knows_json(known[name]) else []
            for more in ([], *json_too):
                written = where(hostile, [name, *way, *more])
                run += 1
                assert "Traceback" not in written, written
                if found := leaks(written):
                    wrong[" ".join([name, *more])] = found[:5]
    proof.record(
        f"terminal: sequences that reached it, {'pipe' if where is in_a_pipe else 'pty'}", of="S18", goal="0",
        measured=len(wrong), ok=not wrong, command=COMMAND, note=f"{run} runs of {len(known)} commands × {len(SEQUENCES)} sequences",
    )  # fmt: skip
    assert wrong == {}


def test_every_command_is_among_them(tmp_path: Path) -> None:
    assert {*invocations(Lab(tmp_path)), *NOT_RUN} == set(commands())


def test_the_memory_that_is_shown_is_hostile(hostile: Lab) -> None:
    """Else the test above would show nothing."""
    (item,) = hostile.client().post("/api/observations/batch", {"ids": [1]})["items"]
    assert SEQUENCES["clipboard"] in item["narrative"]
    assert r"\e[2J" in in_a_pipe(hostile, ["show", "1"])


@pytest.mark.parametrize("host", ["claude", "codex", "gemini", "copilot", "opencode"])
def test_what_hooks_have_agents_show_holds_no_sequence(hostile: Lab, host: str) -> None:
    """Agents print the message of an answer, and the context in their verbose modes."""
    conn = apsw.Connection(str(hostile.data / "claude-mem.db"))
    conn.set_busy_timeout(int(SECONDS * 1000))
    conn.execute("insert or replace into notices (key, text, at) values (?, ?, 1)", (f"x{host}", f"notice{HOSTILE}"))
    conn.close()
    shown = ""
    pytest_call = {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}}
    for event, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "the rounding of the basket"}),
        ("PreToolUse", {"tool_name": "Read", "tool_input": {"file_path": f"{hostile.project}/basket.py"}}),
        ("PreToolUse", pytest_call),
        ("PermissionRequest", pytest_call),
        ("PostToolUseFailure", {**pytest_call, "error": "rounding"}),
    ):
        payload = {"session_id": f"n-{host}", "hook_event_name": event, "cwd": str(hostile.project), **fields}
        command = [*HOOK, COMMANDS[event], "", host]
        done = subprocess.run(
            command, input=json.dumps(payload).encode(), env=hostile.env(), capture_output=True, check=True
        )
        shown += "".join(iter_strings(json.loads(done.stdout)))
    assert "notice" in shown or host in answers.HIDES_NOTICES
    assert [match[0] for match in ACTIVE.finditer(shown)] == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"query": "basket"}), ("timeline", {"query": "basket"}), ("get_observations", {"ids": [1, 2, "S1", "P1"]}),
        ("get_observations", {"ids": [HOSTILE]}), ("session_context", {}), ("why", {"file": HOSTILE, "line": 1}), (HOSTILE, {}),
    ],
)  # fmt: skip
def test_what_the_memorys_tools_answer_holds_no_sequence(hostile: Lab, tool: str, arguments: dict[str, Any]) -> None:
    worker = process.running_worker(hostile.data)
    assert worker is not None
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {
        "Authorization": f"Bearer {worker.token}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
    with closing(HTTPConnection("127.0.0.1", worker.port, timeout=SECONDS)) as connection:
        connection.request("POST", "/mcp", json.dumps(call), headers)
        answered = "\n".join(iter_strings(json.loads(connection.getresponse().read())))
    assert len(answered) > 20
    assert [match[0] for match in ACTIVE.finditer(answered.replace("\n", ""))] == []
    assert not any(row.startswith("FORGED") for row in answered.split("\n"))


def test_json_is_the_same_value_with_escapes(hostile: Lab) -> None:
    done = forks.run(["show", "1", "--json"], hostile.env(), cwd=hostile.project)
    (item,) = hostile.client().post("/api/observations/batch", {"ids": [1]})["items"]
    shown = json.loads(done.stdout)
    assert {name: shown[name] for name in item} == item


@pytest.mark.parametrize("name", SEQUENCES)
def test_each_sequence_is_shown_or_gone(name: str) -> None:
    sequence = SEQUENCES[name]
    assert not ACTIVE.search(make_printable(f"a{sequence}b\nc").replace("\n", ""))
    assert not ACTIVE.search(make_printable_line(f"a{sequence}b\nc"))
    assert "\n" not in make_printable_line(f"a{sequence}\nb")
    quoted = msgspec.json.encode({sequence: sequence}).decode()
    assert not ACTIVE.search(escape_json(quoted))
    assert json.loads(escape_json(quoted)) == {sequence: sequence}


def test_a_name_that_is_no_text_is_shown_by_its_bytes() -> None:
    assert make_printable_line(os.fsdecode(b"caf\xe9\xff")) == r"caf\xe9\xff"


def test_ordinary_text_is_left_as_it_is() -> None:
    text = "Größe → 日本語 \t`x = 1` 🎉 עברית\nsecond line"
    assert make_printable(text) == text
    assert make_printable("a\r\nb") == "a\nb"
    assert escape_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)


def test_an_export_can_be_shown_on_a_terminal() -> None:
    record = ProjectRecord(project="name:x", name=HOSTILE, root="/x", created_at=1)
    written = encode_line(record)
    assert not ACTIVE.search(written.decode().removesuffix("\n"))
    assert msgspec.json.decode(written)["name"] == HOSTILE
