"""The process that runs the `claude` program: one question, one answer, and it is gone.

`providers/claude.py` starts it in a session of its own and writes one JSON line, an `Ask`. It answers with JSON lines, each a
`Line`: the id of the model's session as soon as there is one, then the reply. Its stdin stays open as long as the worker
lives; when it closes, nobody waits for an answer any more, and everything here ends at once, the program included.
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
from claude_mem.providers.claude_stream import NOT_THE_PROGRAM, Run, failure, reply
from claude_mem.text import plain

MAX_OUTPUT = 8 << 20  # bytes; the longest answer that may be asked for takes a tenth, with all its events
MAX_ERRORS = 2_000  # of what is printed on stderr, the end
CHUNK = 1 << 16
_FULL = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # the machine is busy, and will not always be


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that goes out: the one or the other."""

    session_id: str = ""
    reply: Reply | None = None


Say = Callable[[Line], None]


class TooMuch(Exception):
    """The program printed more than any answer takes."""


class Ended(Exception):
    """The program ended; its message is what it printed on stderr, or how it ended."""


async def answer(ask: Ask, say: Say) -> None:
    """Ask, and report what is heard as soon as it is."""
    run, errors = Run(), deque[str](maxlen=20)
    source = claude_sdk.lines(ask, errors.append) if ask.sdk else program_lines(ask)
    try:
        async with aclosing(source) as lines:
            async for line in lines:
                known, over = run.session_id, run.over
                run.note(line)
                if run.session_id != known:
                    say(Line(session_id=run.session_id))
                if run.over and not over:
                    say(Line(reply=reply(run, resumed=bool(ask.resume))))
    except Exception as error:  # outermost: whatever it is, the worker is told
        if not run.over:  # after an error result the SDK raises as well, and the program exits with 1
            say(Line(reply=_failed(run, error, errors)))


def _failed(run: Run, error: Exception, errors: deque[str]) -> Reply:
    match error:
        case ImportError():
            return Reply(verdict=Verdict.PERMANENT, message=f"{claude_sdk.INSTALL} ({error})")
        case TooMuch():
            return Reply(verdict=Verdict.UNPARSEABLE, message=f"{NOT_THE_PROGRAM} ({error})")
        case Ended():
            return failure(run, str(error))
        case OSError():
            verdict = Verdict.TRANSIENT if error.errno in _FULL else Verdict.PERMANENT
            return Reply(verdict=verdict, message=f"can't run the `claude` program: {error.strerror or error}")
        case _:
            words = " ".join([*(getattr(error, "errors", None) or [str(error)]), *errors])
            found = failure(run, f"{type(error).__name__}: {words}", status=getattr(error, "api_error_status", None))
            missing = type(error).__name__ == "CLINotFoundError"
            return Reply(verdict=Verdict.PERMANENT, message=found.message) if missing else found


async def program_lines(ask: Ask) -> AsyncGenerator[Any]:
    """Run the program and yield what it prints, line by line; None for a line that is no JSON. Raises `Ended` at its end:
    after a result nobody minds, and without one that is all there is to say."""
    process = await asyncio.create_subprocess_exec(
        *command(ask), cwd=ask.folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_OUTPUT
    )
    errors = asyncio.create_task(_tail(process))
    asking = asyncio.create_task(_ask(process, question(ask)))
    async for raw in _printed(process):
        yield _decoded(raw)
    await asking
    status, words = await process.wait(), await errors
    raise Ended(words or f"the `claude` program ended without an answer (exit status {status})")


async def _printed(process: Process) -> AsyncGenerator[bytes]:
    assert process.stdout is not None
    left = MAX_OUTPUT
    try:
        while raw := await process.stdout.readline():
            left -= len(raw)
            if left < 0:
                break
            if raw.strip():
                yield raw
    except ValueError:  # a line without an end
        left = -1
    if left < 0:
        raise TooMuch(f"it printed more than {MAX_OUTPUT >> 20} MB")


async def _ask(process: Process, line: bytes) -> None:
    """Beside the reading: a program that prints without having read must not hold both of us up."""
    assert process.stdin is not None
    try:
        process.stdin.write(line)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has ended, and says why elsewhere


async def _tail(process: Process) -> str:
    """The end of what is printed on stderr, on one line. Read to its end: a full pipe would stop the program."""
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(CHUNK):
        kept = (kept + chunk)[-MAX_ERRORS:]
    return " ".join(plain(kept.decode("utf-8", "replace")).split())


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _say(line: Line) -> None:
    data = msgspec.json.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _end_with_the_worker() -> None:
    """Wait until the worker is gone, then take everything along that was started here."""
    while os.read(0, 4096):
        pass
    _end()


def _end() -> None:
    if os.getpgrp() == os.getpid():  # not somebody's shell, when it is run by hand
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(1)  # the worker died while it wrote
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    asyncio.run(answer(msgspec.json.decode(line, type=Ask), _say))
    os._exit(0)  # taking the SDK's modules down would cost as much as the answer


if __name__ == "__main__":
    main()
