"""The hook as the agent runs it: what it writes, what it answers, whom it asks, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.agents import claude
from claude_mem.domain import ids
from claude_mem.system import process, spool
from tests.support.lab import HOOK, LAUNCH, MEM, Lab
from tests.support.waiting import SECONDS, wait_for

CAPTURING = tuple(command for command in hook.COMMANDS if command not in hook.CONTEXT_ROUTES)
KEEPING = tuple(command for command in hook.COMMANDS if command != hook.CONTEXT_ONLY_COMMAND)
NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
# All that Claude Code accepts from these hooks; anything else is an error on the user's screen.
ANSWER_KEYS = {"continue", "suppressOutput", "systemMessage", "hookSpecificOutput"}


# --- used by the other tests of the hook as well ---------------------------------------------------------------------


def run(
    lab: Lab, command: str, payload: bytes, *, worker: bool = False, program: Sequence[str] = HOOK, **env: str
) -> bytes:
    """The real process. It must be silent and exit 0; what it printed."""
    if not worker:
        lab.no_worker()
    done = subprocess.run(
        [*program, command], input=payload, env=lab.env(**env), capture_output=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    check_answer(command, done.stdout)
    return done.stdout


def check_answer(command: str, raw: bytes) -> dict[str, Any]:
    """Exactly one JSON object, nothing in it that the client does not know, and context at no other moment."""
    answer = json.loads(raw)
    assert isinstance(answer, dict)
    if command == "compact":  # whatever is said here becomes part of the instructions for the summary
        assert answer == {}
        return answer
    assert answer.keys() <= ANSWER_KEYS
    assert answer["continue"] is True
    assert answer["suppressOutput"] is True
    if command != "context":  # at a stop, an answer would make the model go on
        assert answer.keys() == {"continue", "suppressOutput"}
    if "hookSpecificOutput" in answer:
        assert answer["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
        assert answer["hookSpecificOutput"]["hookEventName"] == "SessionStart"
        assert isinstance(answer["hookSpecificOutput"]["additionalContext"], str)
    return answer


def nothing(command: str) -> bytes:
    """What a hook says that has nothing to say."""
    return hook.PLAIN_EMPTY_ANSWER if command == "compact" else hook.EMPTY_ANSWER


def payload(event: str, **fields: Any) -> bytes:
    return json.dumps({"session_id": "s1", "hook_event_name": event, **fields}).encode()


def tool(**fields: Any) -> bytes:
    called = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_response": {"stdout": "ok"}}
    return payload("PostToolUse", **{**called, **fields})


def spooled(lab: Lab) -> list[Path]:
    """What the hooks wrote, oldest first, unfinished files included."""
    folder = lab.data / "spool"
    return sorted(folder.iterdir()) if folder.exists() else []


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", KEEPING)
def test_one_spool_file_holds_the_command_and_the_payload_as_it_came(lab: Lab, command: str) -> None:
    sent = b' {"session_id":  "s1", "odd": "\xc3\xa4 \\u00e4 \xff"}\n\n\n'
    assert run(lab, command, sent) == nothing(command)
    (file,) = spooled(lab)
    assert NAME.fullmatch(file.name)
    assert file.read_bytes() == f"command {command}\nhost claude\nproject_dir {lab.project}\n\n".encode() + sent
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_the_environment_says_can_not_forge_a_header_line(lab: Lab) -> None:
    odd = "/tmp/100%\n\nwithheld yes\nprivate yes/\udcff"
    run(lab, "save", tool(), CLAUDE_PROJECT_DIR=odd, CLAUDE_PID="4711")
    (file,) = spooled(lab)
    envelope = spool.parse_envelope(file.name, file.read_bytes())
    assert dict(envelope.header) == {"command": "save", "host": "claude", "project_dir": odd, "pid": "4711"}
    assert envelope.payload == tool()


def test_ids_sort_by_time(lab: Lab) -> None:
    before, between = ids.now_ms(), []
    for number in range(6):
        run(lab, "save", tool(tool_use_id=str(number)))
        between.append(ids.new_event_id())
    after = ids.now_ms()
    files = spooled(lab)
    assert [json.loads(file.read_bytes().partition(b"\n\n")[2])["tool_use_id"] for file in files] == list("012345")
    mixed = sorted([*(file.name for file in files), *between])
    assert mixed[1::2] == between  # the worker's own ids fall between the hook's
    moments = [ids.created_at_ms(file.name) or 0 for file in files]
    assert moments == sorted(moments)
    assert before <= moments[0]
    assert moments[-1] <= after


def test_hooks_that_run_at_once_do_not_meet(lab: Lab) -> None:
    lab.no_worker()
    running = [
        subprocess.Popen([*HOOK, "save"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.env())
        for _ in range(12)
    ]
    for number, one in enumerate(running):
        assert one.communicate(tool(tool_use_id=str(number)), timeout=SECONDS)[0] == hook.EMPTY_ANSWER
    found = {json.loads(file.read_bytes().partition(b"\n\n")[2])["tool_use_id"] for file in spooled(lab)}
    assert found == {str(number) for number in range(12)}


def test_of_a_giant_the_beginning_is_kept_and_it_is_marked(lab: Lab) -> None:
    sent = tool(tool_response="x" * (hook.MAX_PAYLOAD_BYTES + 4_000_000))
    run(lab, "save", sent)
    (file,) = spooled(lab)
    envelope = spool.parse_envelope(file.name, file.read_bytes())
    assert envelope.header["cut"] == "yes"
    assert 1000 < len(envelope.payload) <= hook.MAX_PAYLOAD_BYTES
    assert sent.startswith(envelope.payload)


def test_the_largest_payload_that_is_allowed_is_kept_whole(lab: Lab) -> None:
    sent = tool(tool_response="")
    sent = tool(tool_response="x" * (hook.MAX_PAYLOAD_BYTES - len(sent)))
    run(lab, "save", sent)
    (file,) = spooled(lab)
    assert len(file.read_bytes()) < spool.MAX_BYTES
    envelope = spool.parse_envelope(file.name, file.read_bytes())
    assert "cut" not in envelope.header
    assert envelope.payload == sent


def test_a_payload_that_comes_in_pieces_is_waited_for(lab: Lab) -> None:
    lab.no_worker()
    with subprocess.Popen([*HOOK, "save"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.env()) as one:
        assert one.stdin is not None
        for piece in (tool()[:20], tool()[20:]):
            one.stdin.write(piece)
            one.stdin.flush()
            time.sleep(0.05)
        assert one.communicate(timeout=SECONDS)[0] == hook.EMPTY_ANSWER
    (file,) = spooled(lab)
    assert file.read_bytes().endswith(b"\n\n" + tool())
    assert b"cut yes" not in file.read_bytes()


def test_the_console_command_writes_what_the_fast_path_writes(lab: Lab) -> None:
    for command in KEEPING:
        lab.no_worker()
        for program in (LAUNCH, MEM):
            done = subprocess.run(
                [*program, command], input=tool(), env=lab.env(CLAUDE_PID="9"), capture_output=True, check=True
            )
            assert (done.stdout, done.stderr) == (nothing(command), b"")
    written = [file.read_bytes() for file in spooled(lab)]
    assert written[::2] == written[1::2]
    assert len(set(written)) == len(KEEPING)


# --- where it is written ---------------------------------------------------------------------------------------------


def test_the_installed_folder_comes_before_the_variable_and_that_before_home(lab: Lab, tmp_path: Path) -> None:
    """A launcher always names a folder, so no project's environment chooses whose settings a worker goes by."""
    named, installed = tmp_path / "named", tmp_path / "installed"
    home = tmp_path / "home" / ".claude-mem"
    for folder in (named, installed, home):
        folder.mkdir(mode=0o700)
        (folder / "worker.starting").touch()
    env = lab.env()
    del env["CLAUDE_MEM_DATA_DIR"]
    for number, (arguments, more, expected) in enumerate(
        (
            ([str(installed)], {"CLAUDE_MEM_DATA_DIR": str(named)}, installed),
            ([str(installed)], {"CLAUDE_MEM_DATA_DIR": ".cm"}, installed),
            ([str(installed)], {}, installed),
            ([], {"CLAUDE_MEM_DATA_DIR": str(named)}, named),
            ([], {}, home),
        )
    ):
        subprocess.run(
            [*HOOK, "save", *arguments],
            input=tool(),
            env={**env, **more},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        assert len(list((expected / "spool").iterdir())) == (number + 1 if expected == installed else 1)
    assert not (tmp_path / ".cm").exists()


def test_a_relative_folder_is_below_the_folder_it_was_named_in(lab: Lab, tmp_path: Path) -> None:
    lab.no_worker()
    done = subprocess.run(
        [*HOOK, "save"],
        input=tool(),
        env=lab.env(CLAUDE_MEM_DATA_DIR="data"),
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert done.stdout == hook.EMPTY_ANSWER
    assert len(spooled(lab)) == 1


# --- when it does nothing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", hook.COMMANDS)
def test_inside_our_own_model_calls_nothing_is_captured(lab: Lab, command: str) -> None:
    assert run(lab, command, tool(), worker=True, CLAUDE_MEM_INTERNAL="1") == nothing(command)
    assert not lab.data.exists()


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["SAVE"], [""], ["-h"]])
def test_an_unknown_command_is_answered_and_nothing_is_captured(lab: Lab, arguments: list[str]) -> None:
    done = subprocess.run([*HOOK, *arguments], input=tool(), env=lab.env(), capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (hook.EMPTY_ANSWER, b"")
    assert not lab.data.exists()


def test_only_a_session_start_says_that_nothing_can_be_written(lab: Lab) -> None:
    lab.data.write_text("a file where the folder should be")
    for command in CAPTURING:
        assert run(lab, command, tool(), worker=True) == nothing(command)
    message = check_answer("context", run(lab, "context", payload("SessionStart"), worker=True))["systemMessage"]
    assert str(lab.data) in message
    assert "claude-mem doctor" in message


@pytest.mark.parametrize("pieces", ["missing", "empty", "half", "other", "a folder"])
@pytest.mark.parametrize("command", hook.COMMANDS)
def test_while_an_upgrade_has_the_hook_in_pieces_there_is_still_an_answer(lab: Lab, pieces: str, command: str) -> None:
    folder = lab.folder / "package"
    folder.mkdir()
    shutil.copy(LAUNCH[-1], folder)
    source = Path(hook.__file__).read_text()
    if pieces == "a folder":
        (folder / "hook.py").mkdir()
    elif pieces != "missing":
        (folder / "hook.py").write_text(
            {"empty": "", "half": source[: len(source) // 2], "other": "main = None"}[pieces]
        )
    for redirect in ("", " >&-"):
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@"{redirect}', "sh", *LAUNCH[:-1], str(folder / Path(LAUNCH[-1]).name), command],
            input=tool(), env=lab.env(), capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert redirect or check_answer(command, done.stdout) is not None


# --- what it loads ---------------------------------------------------------------------------------------------------


def loaded(lab: Lab, command: str, sent: bytes) -> set[str]:
    """The modules a hook imports beyond those that a bare interpreter has."""
    lab.no_worker()
    told = [
        subprocess.run(
            [LAUNCH[0], "-X", "importtime", *arguments], input=sent, env=lab.env(), capture_output=True, check=True
        ).stderr.decode()
        for arguments in ([*LAUNCH[1:], command], ["-I", "-S", "-c", "pass"])
    ]
    hooked, bare = ({line.rpartition("|")[2].strip() for line in text.splitlines()} for text in told)
    assert "posix" in bare
    return hooked - bare


@pytest.mark.parametrize("command", CAPTURING)
def test_capturing_imports_nothing_the_interpreter_has_not_loaded(lab: Lab, command: str) -> None:
    assert loaded(lab, command, tool()) == set()
    assert len(spooled(lab)) == 1


def test_a_tag_loads_the_scanner_and_nothing_else_of_ours(lab: Lab) -> None:
    found = loaded(lab, "new", payload("UserPromptSubmit", prompt="a <private>b</private>"))
    assert {name for name in found if name.startswith("claude_mem")} == {
        "claude_mem",
        "claude_mem.privacy",
        "claude_mem.privacy.tags",
        "claude_mem.domain",
        "claude_mem.domain.text",
    }
    assert not found & {"socket", "pathlib", "asyncio", "sqlite3", "subprocess", "msgspec", "apsw"}


def test_the_word_private_alone_does_not_load_the_scanner(lab: Lab) -> None:
    source = "class Basket {\n  private int total;\n  private final List<Item> items;\n}\n" * 50
    assert loaded(lab, "save", tool(tool_response={"stdout": source})) == set()


def test_a_session_start_without_a_worker_loads_no_network(lab: Lab) -> None:
    found = loaded(lab, "context", payload("SessionStart", source="startup"))
    assert not found & {"_socket", "socket", "pathlib", "asyncio", "sqlite3", "subprocess"}
    assert not {name for name in found if name.startswith("claude_mem")}


def test_hook_and_worker_agree_on_how_long_the_host_waits() -> None:
    assert hook.READ_SECONDS + hook.WORK_SECONDS < claude.TIMEOUT_SECONDS <= 5
    assert hook.ASK_SECONDS < 0.3


# --- the start of a session ------------------------------------------------------------------------------------------


def leave(lab: Lab, folder: Path | str, text: str) -> bytes:
    """What the worker leaves on disk for the next session in a folder."""
    starts = lab.data / "starts"
    starts.mkdir(parents=True, exist_ok=True, mode=0o700)
    context = {"hookEventName": "SessionStart", "additionalContext": text}
    answer = json.dumps({"continue": True, "suppressOutput": True, "hookSpecificOutput": context}).encode()
    (starts / hook.brief_filename(str(folder))).write_bytes(answer)
    return answer


@pytest.mark.parametrize("source", ["startup", "clear", "compact", None])
def test_a_session_start_is_answered_from_disk_when_no_worker_lives(lab: Lab, source: str | None) -> None:
    left = leave(lab, lab.project, "the basket was mended")
    given = {"source": source} if source else {}
    assert run(lab, "context", payload("SessionStart", **given)) == left
    assert len(spooled(lab)) == 1


@pytest.mark.parametrize("source", ["resume", "fork", "something-new", 7])
def test_what_is_new_to_a_resumed_session_only_a_worker_knows(lab: Lab, source: Any) -> None:
    leave(lab, lab.project, "the basket was mended")
    assert run(lab, "context", payload("SessionStart", source=source)) == hook.EMPTY_ANSWER
    assert len(spooled(lab)) == 1


def test_the_project_folder_of_the_host_counts_more_than_the_current_one(lab: Lab) -> None:
    mine, other = leave(lab, lab.project, "mine"), leave(lab, "/somewhere/else", "another's")
    start = payload("SessionStart", cwd="/somewhere/else")
    assert run(lab, "context", start) == mine
    assert run(lab, "context", start, CLAUDE_PROJECT_DIR="") == other


@pytest.mark.parametrize("damaged", [b"", b"\0" * 200, b'{"continue": true, "suppress', b"[1]", b"\xff\xfe", b"null"])
def test_a_damaged_start_on_disk_is_not_shown(lab: Lab, damaged: bytes) -> None:
    leave(lab, lab.project, "the basket was mended")
    (lab.data / "starts" / hook.brief_filename(str(lab.project))).write_bytes(damaged)
    assert run(lab, "context", payload("SessionStart")) == hook.EMPTY_ANSWER


@pytest.mark.parametrize("command", CAPTURING)
def test_no_other_moment_is_given_context(lab: Lab, command: str) -> None:
    leave(lab, lab.project, "the basket was mended")
    assert run(lab, command, payload("SessionStart", source="startup")) == nothing(command)


# --- a worker to talk to ---------------------------------------------------------------------------------------------


@contextmanager
def pretended_worker(
    lab: Lab, pieces: Iterable[bytes] = (), *, pause: float = 0.0, answers: bool = True
) -> Iterator[list[bytes]]:
    """Holds the pipe and listens on a port. Answers each request with `pieces`; what it was asked is in the list."""
    lab.data.mkdir(exist_ok=True, mode=0o700)
    os.mkfifo(lab.data / "worker.fifo", 0o600)
    fifo = os.open(lab.data / "worker.fifo", os.O_RDWR | os.O_NONBLOCK)
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = {"pid": os.getpid(), "port": listener.getsockname()[1], "token": "t" * 43}
        (lab.data / "worker.json").write_text(json.dumps({**where, "version": "0", "started_at": 0}))
        thread = threading.Thread(target=_answer, args=(listener, asked, pieces, pause))
        if answers:
            thread.start()
        try:
            yield asked
        finally:
            if answers:
                with socket.create_connection(listener.getsockname()) as last:
                    last.sendall(b"GET /enough HTTP/1.0\r\n\r\n")
                thread.join(SECONDS)
            os.close(fifo)


def _answer(listener: socket.socket, asked: list[bytes], pieces: Iterable[bytes], pause: float) -> None:
    while True:
        channel, _ = listener.accept()
        with channel:
            request = b""
            while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < _length(request):
                request += channel.recv(1 << 16)
            if request.startswith(b"GET /enough"):
                return
            asked.append(request)
            for piece in pieces:
                time.sleep(pause)
                try:
                    channel.sendall(piece)
                except OSError:
                    break  # the hook has given up on us


def _length(request: bytes) -> int:
    found = re.search(rb"Content-Length: (\d+)", request)
    return int(found[1]) if found else 0


def reply(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\r\n".encode() + body


def test_a_living_worker_is_asked_with_the_token_and_the_record(lab: Lab) -> None:
    leave(lab, lab.project, "old")
    told = hook.EMPTY_ANSWER[:-1] + b', "systemMessage": "hello"}'
    with pretended_worker(lab, [reply(told)]) as asked:
        assert run(lab, "context", payload("SessionStart", source="resume"), worker=True) == told
    (file,) = spooled(lab)
    head, _, body = asked[0].partition(b"\r\n\r\n")
    port = json.loads((lab.data / "worker.json").read_text())["port"]
    assert head.startswith(b"POST /api/context/inject HTTP/1.0\r\n")
    assert f"\r\nHost: 127.0.0.1:{port}\r\n".encode() in head
    assert f"\r\nAuthorization: Bearer {'t' * 43}\r\n".encode() in head
    assert body == file.read_bytes()
    assert not (lab.data / "worker.starting").exists()


@pytest.mark.parametrize(
    "said",
    [
        reply(b'{"error": "busy"}', "503 Service Unavailable"),
        reply(b"<html>", "200 OK"),
        reply(b""),
        b"",
        b"\xff\xfe\0",
        b"HTTP/1.1 200 OK",
    ],
)
def test_a_bad_answer_of_the_worker_is_replaced_by_the_one_on_disk(lab: Lab, said: bytes) -> None:
    left = leave(lab, lab.project, "the basket was mended")
    with pretended_worker(lab, [said]):
        assert run(lab, "context", payload("SessionStart"), worker=True) == left


@pytest.mark.parametrize("drips", [False, True])
def test_a_hung_worker_does_not_hold_a_session_up(lab: Lab, drips: bool) -> None:
    left = leave(lab, lab.project, "the basket was mended")
    endless = chain([reply(hook.EMPTY_ANSWER)[:10]], repeat(b" "))  # the promise is 0.3 s, and the bench measures it
    with pretended_worker(lab, endless, pause=0.05, answers=drips):
        assert run(lab, "context", payload("SessionStart"), worker=True, program=LAUNCH) == left


@pytest.mark.parametrize("text", ["", "{", "[]", '{"port": "x"}', '{"port": 1}', '{"port": 99999, "token": ""}', "\0"])
def test_a_bad_worker_file_is_as_good_as_none(lab: Lab, text: str) -> None:
    left = leave(lab, lab.project, "the basket was mended")
    with pretended_worker(lab, answers=False):
        (lab.data / "worker.json").write_text(text)
        assert run(lab, "context", payload("SessionStart"), worker=True) == left


@pytest.mark.parametrize("command", CAPTURING)
def test_capturing_nudges_the_worker_and_asks_it_nothing(lab: Lab, command: str) -> None:
    with pretended_worker(lab, [reply(hook.EMPTY_ANSWER)]) as asked:
        fifo = os.open(lab.data / "worker.fifo", os.O_RDONLY | os.O_NONBLOCK)
        assert run(lab, command, tool(), worker=True) == nothing(command)
        assert os.read(fifo, 100) == b"\n"
        os.close(fifo)
    assert asked == []
    assert not (lab.data / "worker.starting").exists()


def test_a_worker_that_reads_no_nudges_holds_no_one_up(lab: Lab) -> None:
    with pretended_worker(lab, answers=False):
        fifo = os.open(lab.data / "worker.fifo", os.O_WRONLY | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(fifo, b"\n" * 4096)
        os.close(fifo)
        run(lab, "save", tool(), worker=True)
    assert len(spooled(lab)) == 1


# --- starting one ----------------------------------------------------------------------------------------------------


def test_the_first_hook_starts_a_worker_and_the_next_ones_do_not(lab: Lab) -> None:
    keys = {"ANTHROPIC_API_KEY": "not-for-us", "GITHUB_TOKEN": "nor-this", "LD_PRELOAD": "", "PYTHONPATH": "/nowhere"}
    for number in range(3):
        run(lab, "save", tool(tool_use_id=str(number)), worker=True, **keys)
    worker = wait_for(lambda: process.running_worker(lab.data))
    run(lab, "save", tool(tool_use_id="3"), worker=True, **keys)
    wait_for(lambda: not spooled(lab))
    log = (lab.data / "logs" / "worker.log").read_text()
    assert log.count(" starts, process ") == 1
    assert (lab.data / "logs" / "start.log").read_bytes() == b""
    found = lab.status()
    assert (found["worker"], found["pid"], found["captured"], found["stored"]) == ("running", worker.pid, 4, 4)
    if sys.platform == "linux":
        env = Path(f"/proc/{worker.pid}/environ").read_bytes()
        assert b"CLAUDE_MEM_DATA_DIR=" in env
        assert not [name for name in (*keys, "CLAUDE_PROJECT_DIR") if name.encode() + b"=" in env]
        assert Path(f"/proc/{worker.pid}/cwd").resolve() == lab.data
        assert os.getsid(worker.pid) == worker.pid  # it outlives the agent's terminal


def test_a_worker_that_was_started_moments_ago_is_waited_for(lab: Lab) -> None:
    run(lab, "save", tool())  # with a fresh stamp
    assert not (lab.data / "logs" / "start.log").exists()
    long_ago = time.time() - hook.START_PAUSE_SECONDS - 1
    os.utime(lab.data / "worker.starting", (long_ago, long_ago))
    run(lab, "save", tool(), worker=True)
    assert (lab.data / "logs" / "start.log").exists()
    wait_for(lambda: process.running_worker(lab.data))


def test_a_stamp_from_the_future_does_not_keep_the_worker_away(lab: Lab) -> None:
    lab.no_worker()
    tomorrow = time.time() + 86_400
    os.utime(lab.data / "worker.starting", (tomorrow, tomorrow))
    run(lab, "save", tool(), worker=True)
    wait_for(lambda: process.running_worker(lab.data))


def test_a_link_in_place_of_the_stamp_does_not_lead_anywhere(lab: Lab, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.utime(victim, (1, 1))
    lab.data.mkdir(mode=0o700)
    (lab.data / "worker.starting").symlink_to(victim)
    run(lab, "save", tool(), worker=True)
    assert victim.read_text() == "precious"
    assert victim.stat().st_mtime == 1
    assert len(spooled(lab)) == 1
