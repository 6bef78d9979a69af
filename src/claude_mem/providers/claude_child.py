"""The child process that runs the `claude` program for one question and exits.

`providers/claude.py` starts it in its own process session and writes one JSON line, an `Ask`. The child answers with
JSON lines, each a `Line`: the id of the model's session as soon as it is known, then the reply. The worker keeps the
child's stdin open; when stdin closes, the worker is gone, and the child kills itself and the program.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec

from claude_mem.providers import claude_sdk
from claude_mem.providers.base import Reply, Verdict
from claude_mem.providers.claude_program import Ask, command, question
from claude_mem.providers.claude_stream import UNKNOWN_FORMAT, ProgramRun, failure_reply, reply_from_run
from claude_mem.text import plain

MAX_OUTPUT = 8 << 20  # bytes; the longest answer we request takes a tenth of this, including its events
MAX_ERRORS = 2_000  # bytes kept from the end of stderr
CHUNK = 1 << 16
_OUT_OF_RESOURCES = (
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
)  # temporary: the machine is busy


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of output: either a session id or a reply."""

    session_id: str = ""
    reply: Reply | None = None


Say = Callable[[Line], None]


class TooMuch(Exception):
    """The program printed more than any answer needs."""


class Ended(Exception):
    """The program exited; the message is its stderr output, or its exit status."""


async def answer(ask: Ask, say: Say) -> None:
    """Run one question and report the session id and the reply as soon as each is known."""
    run, errors = ProgramRun(), deque[str](maxlen=20)
    source = claude_sdk.lines(ask, errors.append) if ask.sdk else program_lines(ask)
    try:
        async with aclosing(source) as lines:
            async for line in lines:
                session_id, was_finished = run.session_id, run.finished
                run.add_line(line)
                if run.session_id != session_id:
                    say(Line(session_id=run.session_id))
                if run.finished and not was_finished:
                    say(Line(reply=reply_from_run(run, resumed=bool(ask.resume))))
    except Exception as error:  # outermost frame: every error is reported to the worker
        if not run.finished:  # after an error result the SDK also raises, and the program exits with 1
            say(Line(reply=_reply_to_error(run, error, errors)))


def _reply_to_error(run: ProgramRun, error: Exception, errors: deque[str]) -> Reply:
    match error:
        case ImportError():
            return Reply(verdict=Verdict.PERMANENT, message=f"{claude_sdk.INSTALL} ({error})")
        case TooMuch():
            return Reply(verdict=Verdict.UNPARSEABLE, message=f"{UNKNOWN_FORMAT} ({error})")
        case Ended():
            return failure_reply(run, str(error))
        case OSError():
            verdict = Verdict.TRANSIENT if error.errno in _OUT_OF_RESOURCES else Verdict.PERMANENT
            return Reply(verdict=verdict, message=f"cannot run the `claude` program: {error.strerror or error}")
        case _:
            words = " ".join([*(getattr(error, "errors", None) or [str(error)]), *errors])
            failed_reply = failure_reply(
                run, f"{type(error).__name__}: {words}", status=getattr(error, "api_error_status", None)
            )
            missing = type(error).__name__ == "CLINotFoundError"
            return Reply(verdict=Verdict.PERMANENT, message=failed_reply.message) if missing else failed_reply


async def program_lines(ask: Ask) -> AsyncGenerator[Any]:
    """Run the program and yield its output line by line, decoded; None for a line that is not JSON.

    Always raises `Ended` when the program exits. The caller ignores that if a result was printed before.
    """
    process = await asyncio.create_subprocess_exec(
        *command(ask), cwd=ask.folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_OUTPUT
    )
    errors = asyncio.create_task(_tail(process))
    asking = asyncio.create_task(_write_question(process, question(ask)))
    async for raw in _output_lines(process):
        yield _decode(raw)
    await asking
    status, words = await process.wait(), await errors
    raise Ended(words or f"the `claude` program ended without an answer (exit status {status})")


async def _output_lines(process: Process) -> AsyncGenerator[bytes]:
    assert process.stdout is not None
    remaining_bytes = MAX_OUTPUT
    try:
        while raw := await process.stdout.readline():
            remaining_bytes -= len(raw)
            if remaining_bytes < 0:
                break
            if raw.strip():
                yield raw
    except ValueError:  # a line longer than the limit
        remaining_bytes = -1
    if remaining_bytes < 0:
        raise TooMuch(f"it printed more than {MAX_OUTPUT >> 20} MB")


async def _write_question(process: Process, line: bytes) -> None:
    """Write the question to the program. Runs concurrently with reading: otherwise a program that prints before it
    reads would deadlock with us."""
    assert process.stdin is not None
    try:
        process.stdin.write(line)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the program has exited; stderr has the reason


async def _tail(process: Process) -> str:
    """Return the end of stderr as one line. Reads to end of file, because a full pipe would block the program."""
    assert process.stderr is not None
    tail = b""
    while chunk := await process.stderr.read(CHUNK):
        tail = (tail + chunk)[-MAX_ERRORS:]
    return " ".join(plain(tail.decode("utf-8", "replace")).split())


def _decode(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _send_line(line: Line) -> None:
    data = msgspec.json.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _exit_with_worker() -> None:
    """Wait until the worker closes stdin, then kill this process group."""
    while os.read(0, 4096):
        pass
    _kill_group()


def _kill_group() -> None:
    if os.getpgrp() == os.getpid():  # when run by hand, the group is the shell's and must not be killed
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(1)  # the worker died while writing
    threading.Thread(target=_exit_with_worker, daemon=True).start()
    asyncio.run(answer(msgspec.json.decode(line, type=Ask), _send_line))
    os._exit(0)  # skip interpreter shutdown: unloading the SDK takes as long as the answer


if __name__ == "__main__":
    main()
