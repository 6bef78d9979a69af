"""Bad input and a bad world: the hook stays polite, what it was given is counted, and the next good event is stored."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.client import Client
from claude_mem.domain.records import Job
from claude_mem.storage.base import Commit
from claude_mem.system import data_directory, process
from claude_mem.worker.http.api import build_app
from tests.models.server import Mirror, Server
from tests.support import forks, proof
from tests.support.lab import HOOK, LAUNCH, Lab
from tests.support.refining import place, spool_turn
from tests.support.waiting import SECONDS, wait_for
from tests.worker.test_hook import check_answer, payload, run, spooled, tool
from tests.worker.test_schema import PORT, _ask

Checks = dict[str, dict[str, Any]]


def doctor(lab: Lab) -> Checks:
    """Every line is a check, whatever state things are in: it is what people are told to run when nothing works."""
    done = lab.mem("doctor", "--json", ok=False)
    assert done.stderr == ""
    checks = {check["name"]: check for check in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == (0 if all(check["ok"] for check in checks.values()) else 1)
    assert {"settings", "folder", "disk", "worker", "account"} <= checks.keys()
    return checks


def complaints(lab: Lab) -> str:
    """What doctor finds wrong, but for the hooks: nobody has installed any here."""
    wrong = [check for name, check in doctor(lab).items() if not check["ok"] and name != "hooks"]
    return "\n".join(f"{check['name']}: {check['found']}" for check in wrong)


def status(lab: Lab) -> dict[str, Any]:
    """As JSON, even when there is little to tell."""
    found: dict[str, Any] = json.loads(lab.mem("status", "--json", ok=False).stdout)
    assert found["captured"] == found["stored"] + found["queued"] + found["set_aside"] + found["filtered"], found
    return found


def assert_a_good_event_is_stored(lab: Lab) -> dict[str, Any]:
    lab.close()  # a worker that a hook has started would take it before it is counted
    if spooled(lab):
        lab.mem("drain")
    before = lab.status()["stored"]
    assert run(lab, "save", tool(tool_use_id=f"good{before}")) == hook.EMPTY_ANSWER
    lab.mem("drain")
    found = lab.status()
    assert (found["stored"], found["queued"]) == (before + 1, 0)
    return found


# --- the payload -----------------------------------------------------------------------------------------------------


def nested(levels: int, *, named: bool = False) -> bytes:
    inside = (b'{"a":' * levels + b"1" + b"}" * levels) if named else b"[" * levels + b"]" * levels
    return tool()[:-1] + b', "tool_input": {"a": ' + inside + b"}}"


BAD: dict[str, tuple[str, bytes, str]] = {
    "truncated": ("save", tool()[:-20], "not_json"),
    "not json": ("new", b"Usage: claude [options]", "not_json"),
    "two payloads": ("save", tool() + tool(), "not_json"),
    "another encoding": ("save", tool().decode().encode("utf-16"), "not_json"),
    "zeros": ("save", bytes(4096), "not_json"),
    "a number of 5,000 digits": ("save", tool()[:-1] + b', "n": ' + b"9" * 5000 + b"}", "not_json"),
    "null": ("save", b"null", "not_an_object"),
    "a list": ("save", b"[" + tool() + b"]", "not_an_object"),
    "a text": ("save", b'"PostToolUse"', "not_an_object"),
    "no fields": ("save", b"{}", "no_session"),
    "no session": ("save", b'{"hook_event_name": "Stop"}', "no_session"),
    "a session that is no text": ("save", payload("Stop", session_id=7), "no_session"),
    "a session of spaces": ("save", payload("Stop", session_id="  "), "no_session"),
    "an unknown event": ("save", payload("CoffeeBreak"), "unknown_event"),
    "an event that is no text": ("save", payload("Stop", hook_event_name={"a": []}), "unknown_event"),
    "no tool": ("save", payload("PostToolUse"), "no_tool"),
    "a tool that is no text": ("save", tool(tool_name=["Bash"]), "no_tool"),
    "10,000 levels": ("save", nested(10_000), "too_deep"),
    "10,000 named levels": ("save", nested(10_000, named=True), "too_deep"),
    "2,000,000 empty lists": ("save", b'{"session_id": "s1", "x": [' + b"[]," * 2_000_000 + b"[]]}", "too_many_values"),
    "700 levels": ("save", nested(700), "too_deep"),
    "500 levels": ("save", nested(500, named=True), "too_deep"),
    "levels without end": ("save", b"[" * 100_000, "not_json|too_deep"),
    "a giant": ("save", tool(tool_response="x" * (50 << 20)), "cut"),
    "a private part in half a payload": ("new", payload("UserPromptSubmit", prompt="<private>a")[:-2], "withheld"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_can_not_be_read_is_set_aside_and_counted(lab: Lab, case: str) -> None:
    command, sent, reason = BAD[case]
    assert run(lab, command, sent) == hook.EMPTY_ANSWER
    assert len(spooled(lab)) == 1
    lab.mem("drain")
    found = lab.status()
    assert (found["captured"], found["set_aside"], found["queued"]) == (1, 1, 0)
    (named,) = found["set_aside_by"]
    assert named in reason.split("|")
    assert named in doctor(lab)["set aside"]["found"]
    assert len(list((lab.data / "aside").iterdir())) == 1
    assert assert_a_good_event_is_stored(lab)["set_aside"] == 1
    note("what can't be read is set aside at the first look, and the next is stored", of="I3", goal=f"{len(BAD)} cases")


def note(name: str, *, of: str, goal: str) -> None:
    """One more that went well, or no one would come here."""
    proof.record(name, of=of, goal=goal, measured=1, ok=True, tally=True)


ODD: dict[str, bytes] = {
    "lone surrogates": tool(tool_input={"\ud800": "\udfff"}, session_id="\ud800", prompt_id="\udead", tool_use_id="\udbff"),
    "a lone surrogate as bytes": tool(tool_input={"a": "@"}).replace(b"@", b"\xed\xa0\x80"),
    "nul": tool(tool_input={"\0": "\0"}, session_id="a\0b", prompt_id="\0", tool_use_id="\0", transcript_path="\0"),
    "nul in the folder": tool(cwd="/tmp/a\0b"),
    "a lone surrogate in the folder": tool(cwd="/tmp/\ud800"),
    "a folder with too long a name": tool(cwd="/" + "a" * 5000),
    "a folder far too deep": tool(cwd="/a" * 2000),
    "a folder that is no text": tool(cwd={"a": 1}),
    "not utf-8": tool(tool_input={"a": "@"}).replace(b"@", b"\xff\xfe\x80"),
    "a byte order mark": b"\xef\xbb\xbf" + tool(),
    "missing fields": payload("Stop"),
    "fields of other types": tool(tool_input=[1], tool_response=7, prompt_id=[], tool_use_id={}, transcript_path=1),
    "endless numbers": tool()[:-1] + b', "tool_input": {"a": [1e999, -1e999, 1e-999, 99999999999999999999, NaN, -Infinity]}}',
    "twenty levels": nested(20),
    "a transcript that is a folder": payload("Stop", transcript_path="/tmp"),
    "a transcript at the top": payload("SessionEnd", transcript_path="/"),
    "a transcript with too long a name": payload("SessionEnd", transcript_path="/" + "a" * 5000),
    "a transcript that is a device": payload("SessionEnd", transcript_path="/dev/null"),
    "the same number for a prompt": payload("UserPromptSubmit", prompt="Go on", tool_use_id="good1"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_is_only_odd_is_stored(lab: Lab, case: str) -> None:
    assert run(lab, "save", ODD[case], CLAUDE_PROJECT_DIR="") == hook.EMPTY_ANSWER
    assert lab.mem("drain").stderr == ""
    found = lab.status()
    if case == "a byte order mark":  # no client sends one; it may be refused, but it must be counted
        assert found["captured"] == 1
    else:
        assert (found["captured"], found["stored"], found["queued"]) == (1, 1, 0)
    assert_a_good_event_is_stored(lab)
    note("what is only odd is stored", of="I2", goal=f"{len(ODD)} cases")


# Text as it comes from terminals, from files that are none, from whoever wants to be misread.
ODD_TEXTS = {
    "lone surrogates": "\ud800 \udfff\ud83e",
    "nul and controls": "\0\x01\x7f\x85",
    "direction": "\u202egnp.exe\u202c \u2066x\u2069 \u200f",
    "ansi": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "nothing to see": "\u200b\u200d\ufeff\u2060\u00ad",
    "replacement and private use": "\ufffd\ue000\U0010ffff\ufffe",
    "combining": "e" + "\u0301" * 200,
    "ends of lines": "a\rb\r\nc\u2028d\u2029e\x0b\x0c",
    "wide": "\U0001f984漢字\u3000",
    "numbers": f"NaN Infinity -1e999 {'9' * 5_000}",
    "json and markup": '\\" \\u0000 {"a":[}] <![CDATA[ ]]> <!-- &#0; <observation>',
    "latin-1 as utf-8": "Ã¤\udce4\udcff",
}


def _spool_turn(lab: Lab, number: int, text: str) -> None:
    said = {"session_id": f"odd{number}", "prompt_id": f"p{number}"}
    word = f"zebra{number}"
    edit = {
        "file_path": f"{lab.project}/{word}.py",
        "old_string": text,
        "new_string": f"def {word}(): {text}",
    }
    lab.spool("UserPromptSubmit", prompt=f"Fix {word} {text}", **said)
    lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={text: [text, 1e308]}, **said)
    lab.spool(
        "PostToolUse",
        tool_name="Bash",
        tool_input={"command": text},
        tool_response={"stdout": text},
        **said,
    )
    lab.spool("Stop", last_assistant_message=f"We fixed {word} because {text}", **said)


def test_odd_text_is_stored_found_shown_and_sent(tmp_path: Path) -> None:
    """In everything that is said in a turn; what the model is sent is JSON that any reader takes, and so is every answer."""

    async def all_of_it(server: Server) -> tuple[int, list[str]]:
        settings = {"provider": "anthropic", "anthropic_api_key": "k", "anthropic_base_url": server.url}
        found, bad = 0, list[str]()
        async with place(tmp_path, chain=False, settings=settings) as there:
            for number, text in enumerate(ODD_TEXTS.values()):
                _spool_turn(there.lab, number, text)
            await there.digest()
            while await there.refine():
                pass
            await there.digest()
            await there.check_account()
            app = build_app(there.service, token="t" * 43, port=PORT)
            for number in range(len(ODD_TEXTS)):
                for path in (
                    f"/api/search?query=zebra{number}",
                    f"/api/session/{number + 1}",
                    f"/api/observation/{number + 1}",
                ):
                    status, answer = await _ask(app, "GET", path, b"")
                    if status >= 500 or not _is_strict(json.loads(answer)):
                        bad.append(f"{path}: {status}")
                    found += path.startswith("/api/search") and f"zebra{number}".encode() in answer
        return found, bad

    echo = "<observation><type>change</type><title>Echo</title><narrative>{}</narrative></observation>"
    with Server(Mirror(lambda seen: echo.format(seen.prompt[:3000]))) as server:
        found, bad = asyncio.run(all_of_it(server))
        sent = [seen.body for seen in server.requests]
    bad += [
        f"request {number}" for number, body in enumerate(sent) if not isinstance(body, dict) or not _is_strict(body)
    ]
    about = f"{len(ODD_TEXTS)} kinds of text in prompt, call, output and answer; {len(sent)} requests to a model"
    proof.record(
        "odd text: exceptions, answers of 5xx, requests that are no JSON",
        of="I2",
        goal="0",
        measured=len(bad),
        ok=not bad,
        note=about,
    )
    assert bad == []
    assert len(sent) >= 9  # so many answers in a row that can't be read, and the provider is left alone
    assert found == len(ODD_TEXTS)


def _is_strict(value: Any) -> bool:
    """Can it be written as JSON in UTF-8, without any leniency?"""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        return False
    return True


# --- one bad turn ----------------------------------------------------------------------------------------------------


def test_a_turn_that_can_not_be_digested_is_given_up_and_the_next_is_done_at_once(tmp_path: Path) -> None:
    took: list[float] = []

    async def go() -> int:
        async with place(tmp_path) as here:
            here.turn("poison")
            here.turn("next")
            runner, attempts, failed = here.service.runner, 0, 0.0
            digest = runner.stages["compress"]

            async def poisoned(job: Job) -> Commit:
                nonlocal attempts, failed
                (turn,) = await here.rows(
                    "select s.content_session_id as id from turns t join sdk_sessions s on s.id = t.session_id where t.id = ?",
                    int(job.subject.partition(".")[0]),
                )
                if turn["id"] == "poison":
                    attempts, failed = attempts + 1, time.monotonic()
                    raise ValueError("this turn is poison")
                took.append(time.monotonic() - failed)
                return await digest(job)

            runner.stages = {**runner.stages, "compress": poisoned}
            await here.digest()
            for _ in range(10):
                await here.db.write(lambda conn: conn.execute("update jobs set due_at = 0 where not dead") and None)
                await here.digest()
            (dead,) = await here.rows("select error from jobs where dead")
            assert dead["error"] == "ValueError: this turn is poison"
            assert [row["n"] for row in await here.rows("select count(*) as n from session_summaries")] == [1]
            return attempts

    attempts = asyncio.run(go())
    proof.record("attempts at a turn that always fails", of="I3", goal="≤ 3", measured=attempts, ok=attempts <= 3)
    seconds = round(max(took), 3)
    proof.record(
        "from its failure to the next turn", of="I3", goal="≤ 1 s", measured=seconds, unit="s", ok=seconds <= 1
    )
    assert (attempts, len(took)) == (3, 1)


def test_a_turn_that_kills_the_worker_does_so_three_times_at_most(lab: Lab) -> None:
    spool_turn(lab, "poison")
    deaths = 0
    while lab.drain(CLAUDE_MEM_FAILPOINT="compress.loaded") < 0 and deaths < 10:
        deaths += 1
    spool_turn(lab, "next")
    lab.mem("drain")
    assert lab.rows("select count(*) from session_summaries") == [(1,)]
    assert lab.rows("select error from jobs where dead") == [("the worker died while running this job",)]
    proof.record("times a turn may kill the worker", of="I3", goal="≤ 3", measured=deaths, ok=deaths <= 3)
    assert deaths == 3


def test_a_transcript_that_is_a_pipe_is_not_waited_for(lab: Lab, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.jsonl")
    run(lab, "cleanup", payload("SessionEnd", transcript_path=str(tmp_path / "t.jsonl")))
    lab.mem("drain")
    assert_a_good_event_is_stored(lab)


def test_many_bad_events_do_not_hold_up_a_good_one_between_them(lab: Lab) -> None:
    for _, sent, _ in BAD.values():
        if len(sent) < 1_000_000:
            lab.raw_spool(b"command save\nhost claude\n\n" + sent)
    lab.spool("PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_response={})
    for sent in ODD.values():
        lab.raw_spool(b"command save\nhost claude\n\n" + sent)
    for content in (b"", b"\0", b"\n\n", b"command save", b"host claude\n\n{}", b"\xff\n\n\xff"):
        lab.raw_spool(content)
    lab.mem("drain")
    found = lab.status()
    assert found["queued"] == 0
    assert found["stored"] >= 1
    assert_a_good_event_is_stored(lab)


def test_a_pipe_that_is_never_closed_is_left_in_time(lab: Lab) -> None:
    lab.no_worker()
    with subprocess.Popen([*LAUNCH, "save"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.env()) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        one.stdin.write(tool()[:-1])
        one.stdin.flush()
        assert one.stdout.read() == hook.EMPTY_ANSWER
        assert one.wait(SECONDS) == 0
    (file,) = spooled(lab)
    assert b"\ncut yes\n" in file.read_bytes()
    lab.mem("drain")
    assert lab.status()["set_aside_by"] == {"cut": 1}
    assert_a_good_event_is_stored(lab)


# --- the process around it -------------------------------------------------------------------------------------------


def raw(lab: Lab, shell: str, *, cwd: Path | None = None, env: dict[str, str] | None = None, umask: int = -1) -> bytes:
    """The hook behind a line of shell that sets its world up; `"$@"` is the hook."""
    lab.no_worker()
    done = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *HOOK, "save"],
        input=tool(),
        env=lab.env() if env is None else env,
        cwd=cwd,
        umask=umask,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_a_folder_that_was_deleted_is_no_trouble(lab: Lab, tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    assert raw(lab, 'rmdir "$PWD" && exec "$@"', cwd=doomed) == hook.EMPTY_ANSWER
    assert len(spooled(lab)) == 1
    assert_a_good_event_is_stored(lab)


def test_from_a_deleted_folder_a_worker_can_be_started(lab: Lab, tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *HOOK, "save"],
        input=tool(), env=lab.env(), cwd=doomed, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: process.running_worker(lab.data))
    wait_for(lambda: not spooled(lab))
    assert lab.status()["stored"] == 1


@pytest.mark.parametrize("missing", [["HOME"], ["PATH"], ["HOME", "PATH", "TZ", "CLAUDE_PROJECT_DIR"]])
def test_hardly_any_environment_is_needed(lab: Lab, missing: list[str]) -> None:
    env = {name: value for name, value in lab.env().items() if name not in missing}
    assert raw(lab, 'exec "$@"', env=env) == hook.EMPTY_ANSWER
    assert raw(lab, 'exec "$@"', env={**env, "PATH": ""}) == hook.EMPTY_ANSWER
    assert len(spooled(lab)) == 2


def test_without_home_the_system_is_asked_where_it_is() -> None:
    """In a process of its own, which looks and does nothing."""
    look = f"import sys; sys.path.insert(0, {str(Path(hook.__file__).parents[1])!r}); from claude_mem import hook; "
    program = (
        look + "import os; import pwd; print(hook.data_dir() == pwd.getpwuid(os.getuid()).pw_dir + '/.claude-mem')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize("shell", ['exec "$@" >&-', 'exec "$@" >/dev/full', 'exec "$@" 2>&-', 'exec "$@" >&- 2>&-'])
def test_nobody_has_to_listen(lab: Lab, shell: str) -> None:
    raw(lab, shell)
    assert len(spooled(lab)) == 1
    assert spooled(lab)[0].read_bytes().endswith(tool())
    assert_a_good_event_is_stored(lab)


def test_without_stdin_there_is_an_answer_and_nothing_else(lab: Lab) -> None:
    assert raw(lab, 'exec "$@" <&-') == hook.EMPTY_ANSWER
    assert_a_good_event_is_stored(lab)


def test_a_reader_that_went_away_does_no_harm(lab: Lab) -> None:
    lab.no_worker()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*HOOK, "save"], input=tool(), stdout=writer, stderr=subprocess.PIPE, env=lab.env(), check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(spooled(lab)) == 1


# --- the data directory ----------------------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    found = {str(path.relative_to(folder)): path.lstat().st_mode for path in [folder, *folder.rglob("*")]}
    return {name: stat.S_IMODE(mode) for name, mode in found.items() if not stat.S_ISLNK(mode)}


def test_a_missing_folder_is_made_for_the_user_alone(lab: Lab, tmp_path: Path) -> None:
    lab.data = tmp_path / "not" / "yet" / "there"
    done = subprocess.run(
        [*HOOK, "save"], input=tool(), env=lab.env(), umask=0, capture_output=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, hook.EMPTY_ANSWER, b"")
    wait_for(lambda: process.running_worker(lab.data))
    wait_for(lambda: not spooled(lab))
    lab.mem("status")
    found = modes(tmp_path / "not")
    assert {"yet/there/worker.json", "yet/there/claude-mem.db", "yet/there/token"} <= found.keys()
    run = {name for name in found if (tmp_path / "not" / name).is_dir() or name.endswith("/claude-mem-hook")}
    assert {name: oct(mode) for name, mode in found.items() if mode != (0o700 if name in run else 0o600)} == {}


@pytest.fixture
def disk(lab: Lab) -> Iterator[Lab]:
    """A data directory with a small file system of its own, which can be filled or made read-only."""
    lab.data.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(lab.data)]
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can mount a small file system")
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield lab
    finally:
        lab.close()  # also one that a hook has only just started
        subprocess.run(["umount", str(lab.data)], check=True)


def assert_it_says_so_at_a_session_start(lab: Lab) -> None:
    for command in hook.COMMANDS:
        raw = run(lab, command, payload("SessionStart", source="startup"), worker=True)
        message = check_answer(command, raw).get("systemMessage", "")
        assert (str(lab.data) in message) == (command == "context")


@pytest.mark.parametrize("used", [True, False])
def test_a_read_only_folder_is_reported_and_later_used_again(disk: Lab, used: bool) -> None:
    if used:
        assert_a_good_event_is_stored(disk)
        (disk.data / "worker.starting").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk.data)], check=True)
    assert_it_says_so_at_a_session_start(disk)
    assert "Read-only" in complaints(disk)
    assert status(disk)["queued"] == 0
    subprocess.run(["mount", "-o", "remount,rw", str(disk.data)], check=True)
    assert "Read-only" not in complaints(disk)
    assert_a_good_event_is_stored(disk)


@pytest.mark.parametrize("used", [True, False])
def test_a_full_disk_is_reported_and_no_half_event_takes_the_last_room(disk: Lab, used: bool) -> None:
    if used:
        assert_a_good_event_is_stored(disk)
        (disk.data / "worker.starting").unlink()
    filler = disk.data / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    with filler.open("r+b") as file:
        file.truncate(filler.stat().st_size - 65_536)
    large = tool(tool_response="x" * 1_000_000)
    assert run(disk, "save", large, worker=True) == hook.EMPTY_ANSWER
    assert spooled(disk) == []
    with filler.open("ab", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(1024))
    assert_it_says_so_at_a_session_start(disk)
    assert spooled(disk) == []
    assert "No space left" in complaints(disk)
    assert status(disk)["queued"] == 0
    filler.unlink()
    assert_a_good_event_is_stored(disk)


def test_without_permission_it_is_reported(lab: Lab) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only disk is the test for root")
    lab.no_worker()
    lab.data.chmod(0o500)
    assert_it_says_so_at_a_session_start(lab)
    assert "Permission denied" in complaints(lab)
    lab.data.chmod(0o700)
    assert_a_good_event_is_stored(lab)


def test_nothing_is_written_into_a_folder_of_someone_else(lab: Lab) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    lab.data.mkdir(mode=0o777)
    (lab.data / "spool").mkdir(mode=0o777)
    os.chown(lab.data, 65534, 65534)
    assert_it_says_so_at_a_session_start(lab)
    assert [path.name for path in lab.data.rglob("*")] == ["spool"]
    assert "belongs to another user" in complaints(lab)
    os.chown(lab.data, 0, 0)
    lab.data.chmod(0o700)
    assert_a_good_event_is_stored(lab)


def test_a_file_in_place_of_the_spool_is_moved_aside(lab: Lab) -> None:
    lab.data.mkdir(mode=0o700)
    (lab.data / "spool").write_text("a file")
    assert run(lab, "save", tool()) == hook.EMPTY_ANSWER
    lab.mem("drain")
    assert lab.status()["stored"] == 1
    (moved,) = data_directory.list_quarantined(lab.data)
    assert moved.name == "spool"
    assert (lab.data / moved.moved_to).read_text() == "a file"


def test_a_spool_that_was_moved_to_another_disk_is_followed(lab: Lab, tmp_path: Path) -> None:
    lab.data.mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (lab.data / "spool").symlink_to(tmp_path / "elsewhere")
    assert_a_good_event_is_stored(lab)


def test_a_link_that_leads_nowhere_in_place_of_the_spool_is_reported(lab: Lab, tmp_path: Path) -> None:
    lab.data.mkdir(mode=0o700)
    (lab.data / "spool").symlink_to(tmp_path / "nowhere")
    assert_it_says_so_at_a_session_start(lab)
    assert not (tmp_path / "nowhere").exists()
    assert str(lab.data / "spool") in complaints(lab)
    (lab.data / "spool").unlink()
    assert_a_good_event_is_stored(lab)


def test_a_link_in_place_of_an_event_is_not_followed(lab: Lab, tmp_path: Path) -> None:
    lab.no_worker()
    outside = tmp_path / "outside"
    outside.write_bytes(b"command save\nhost claude\n\n" + tool(tool_input={"command": "echo canary"}))
    (lab.data / "spool").mkdir(mode=0o700)
    (lab.data / "spool" / f"{time.time_ns():016x}-00000000").symlink_to(outside)
    lab.mem("drain")
    assert outside.exists()
    assert lab.status()["set_aside_by"] == {"unreadable": 1}
    assert b"canary" not in (lab.data / "claude-mem.db").read_bytes()
    assert_a_good_event_is_stored(lab)


def test_what_is_no_file_in_the_spool_is_set_aside(lab: Lab) -> None:
    lab.no_worker()
    folder = lab.data / "spool"
    folder.mkdir(mode=0o700)
    stamp = time.time_ns()
    (folder / f"{stamp:016x}-00000001").mkdir()
    os.mkfifo(folder / f"{stamp:016x}-00000002")
    (folder / f"{stamp:016x}-00000003").touch()
    (folder / "README.txt").write_text("what is this folder for?")
    (folder / "name\udcff").write_bytes(b"")
    lab.mem("drain")
    found = lab.status()
    assert (found["captured"], found["set_aside"], found["queued"]) == (5, 5, 0)
    assert_a_good_event_is_stored(lab)


# --- the worker ------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_left_to_its_owner(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        lab.mem("start", CLAUDE_MEM_WORKER_PORT=str(taken))
        told = json.loads((lab.data / "worker.json").read_text())
        assert told["port"] != taken
        assert lab.status()["port"] == told["port"]
        assert Client.of(lab.data).get("/api/health")["captured"] == 0
        assert run(lab, "save", tool(), worker=True) == hook.EMPTY_ANSWER
        wait_for(lambda: lab.status()["stored"] == 1)
        answer = check_answer("context", run(lab, "context", payload("SessionStart"), worker=True))
        assert "hookSpecificOutput" in answer
        check = json.loads(
            next(
                line
                for line in lab.mem("doctor", "--json", ok=False, CLAUDE_MEM_WORKER_PORT=str(taken)).stdout.splitlines()
                if '"worker"' in line
            )
        )
        assert check["ok"]
        assert str(taken) in check["hint"]
        stranger.settimeout(0.1)
        with pytest.raises(TimeoutError):  # nobody has knocked at the wrong door
            stranger.accept()


@pytest.mark.parametrize("count", [2, 20])
def test_of_many_workers_exactly_one_serves(lab: Lab, count: int) -> None:
    folders = [lab.folder / f"rival{number}" for number in range(count)]
    for folder in folders:
        folder.mkdir()
        lab.workers.append(forks.start(["serve"], lab.env(), folder))
    wait_for(lambda: sum(not one.ended() for one in lab.workers) == 1 and process.running_worker(lab.data))
    (left,) = [one for one in lab.workers if not one.ended()]
    worker = process.running_worker(lab.data)
    assert worker is not None
    assert worker.pid == left.pid
    for one, folder in zip(lab.workers, folders, strict=True):
        if one is not left:
            assert (one.wait(), (folder / "stdout").read_text()) == (0, "")
            assert (folder / "stderr").read_text() == "a worker is running already\n"
    assert run(lab, "save", tool(), worker=True) == hook.EMPTY_ANSWER
    wait_for(lambda: lab.status()["stored"] == 1)
    assert lab.mem("stop").stdout == "worker stopped\n"
    assert left.wait() == 0


def stranger_pid() -> int:
    """A process that lives and has nothing to do with us."""
    return os.getppid()


@pytest.mark.parametrize("whose", ["dead", "recycled"])
def test_what_a_killed_worker_left_behind_is_believed_by_no_one(lab: Lab, whose: str) -> None:
    lab.mem("start")
    worker = process.running_worker(lab.data)
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: process.lock_holder(lab.data) is None)
    assert (lab.data / "worker.json").exists()
    if whose == "recycled":
        told = {**json.loads((lab.data / "worker.json").read_text()), "pid": stranger_pid()}
        (lab.data / "worker.json").write_text(json.dumps(told))
        (lab.data / "worker.lock").write_text(str(stranger_pid()))
    assert lab.status()["worker"] == "stopped"
    assert lab.mem("stop").stdout == "no worker was running\n"
    os.kill(stranger_pid(), 0)  # still there
    assert run(lab, "context", payload("SessionStart")) == hook.EMPTY_ANSWER
    assert_a_good_event_is_stored(lab)
    (lab.data / "worker.starting").unlink()
    run(lab, "save", tool(tool_use_id="again"), worker=True)
    new = wait_for(lambda: process.running_worker(lab.data))
    assert new.pid not in (worker.pid, stranger_pid())
    wait_for(lambda: lab.status()["stored"] == 3)


def test_a_new_worker_takes_the_old_address_away_before_it_does_anything(lab: Lab) -> None:
    """Its port may be a stranger's by now, and a hook would hand it the token."""
    broken(lab, "a newer version")
    (lab.data / "worker.json").write_text('{"pid": 1, "port": 9, "token": "t", "version": "0", "started_at": 0}')
    assert lab.mem("serve", ok=False).returncode == 1
    assert not (lab.data / "worker.json").exists()


def broken(lab: Lab, how: str) -> None:
    """A database that no worker may open. (One that is only damaged is put right: see test_damage.py.)"""
    lab.data.mkdir(mode=0o700)
    database = lab.data / "claude-mem.db"
    if how == "a link":
        database.symlink_to(lab.folder / "elsewhere.db")
        (lab.folder / "elsewhere.db").touch()
    else:
        lab.mem("drain")
        newer = "import apsw, sys; apsw.Connection(sys.argv[1]).pragma('user_version', 9999)"
        subprocess.run([sys.executable, "-c", newer, str(database)], check=True)


@pytest.mark.parametrize("how", ["a link", "a newer version"])
def test_a_worker_that_can_not_start_costs_no_event_and_is_not_tried_each_time(lab: Lab, how: str) -> None:
    broken(lab, how)
    for number in range(5):
        assert run(lab, "save", tool(tool_use_id=str(number)), worker=True) == hook.EMPTY_ANSWER
    linked = how == "a link"  # which is seen before anything is opened, even the log
    log = lab.data / "logs" / ("start.log" if linked else "worker.log")
    wait_for(lambda: log.exists() and ("worker failed" in log.read_text() or "is a symbolic link" in log.read_text()))
    wait_for(lambda: process.lock_holder(lab.data) is None)
    run(lab, "save", tool(tool_use_id="5"), worker=True)
    assert check_answer("context", run(lab, "context", payload("SessionStart"), worker=True))
    assert log.read_text().count("error: " if linked else " starts, process ") == 1
    assert len(spooled(lab)) == 7

    found = status(lab)
    assert found["worker"] == "stopped"
    assert (found["captured"], found["queued"]) == (7, 7)
    assert "database" in complaints(lab) or "claude-mem.db" in complaints(lab)
    assert lab.mem("drain", ok=False).returncode == 1
    assert len(spooled(lab)) == 7

    database = lab.data / "claude-mem.db"
    database.rename(lab.folder / "broken.db")
    for rest in ("-wal", "-shm"):
        database.with_name(database.name + rest).unlink(missing_ok=True)
    lab.mem("drain")
    assert (lab.status()["stored"], lab.status()["queued"]) == (7, 0)
    assert_a_good_event_is_stored(lab)


def test_a_hung_worker_is_reported_and_can_be_replaced(lab: Lab) -> None:
    lab.mem("start")
    worker = process.running_worker(lab.data)
    assert worker is not None
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        for command, sent in (("save", tool()), ("context", payload("SessionStart"))):
            check_answer(command, run(lab, command, sent, worker=True, program=LAUNCH))
        found = status(lab)
        assert (found["worker"], found["queued"]) == ("hung", 2)
        assert "worker: hung" in complaints(lab)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    wait_for(lambda: lab.status()["stored"] == 2)
    assert lab.mem("restart").returncode == 0
    assert lab.status()["pid"] != worker.pid
