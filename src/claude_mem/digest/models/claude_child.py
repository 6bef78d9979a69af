"""The child process that runs the `claude` program for one question, parses its output, and exits.

`digest/models/claude.py` starts it in its own process session and writes one JSON line, a `ProgramRequest`. The child
answers with JSON lines, each a `ChildMessage`: the id of the model's session as soon as it is known, then the reply.
The worker keeps the child's stdin open; when stdin closes, the worker is gone, and the child kills itself and the
program. `ProgramRun` collects the lines of one run (`--output-format stream-json`, as observed with Claude Code 2.1.325
against a scripted server); `reply_from_run` turns it into a verdict with text, token counts and reset time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from claude_mem.digest.models import claude_sdk
from claude_mem.digest.models.base import Reply, Usage, Verdict
from claude_mem.digest.models.claude_program import ProgramRequest, build_command, question_line
from claude_mem.domain.text import strip_invisible

MAX_TEXT = 150_000  # characters of an answer: more than we ever request, less than the line limit to the worker
MAX_WORDS = 2_000
MAX_OUTPUT = 8 << 20  # bytes; the longest answer we request takes a tenth of this, including its events
MAX_ERRORS = 2_000  # bytes kept from the end of stderr
CHUNK = 1 << 16
_OUT_OF_RESOURCES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # temporary: the machine is busy
RATE_SECONDS = 60.0  # the program does not report `retry-after`
EXPECTED_LIMIT_ERRORS = ("error_max_budget_usd", "error_max_turns")
SYNTHETIC = "<synthetic>"  # the model name of messages the program writes itself: "API Error: 500 …"
UNKNOWN_FORMAT = (
    "the `claude` program did not answer in the requested format: update Claude Code, or correct `claude_path`"
)

_STOP_VERDICTS = {
    "max_tokens": Verdict.TRUNCATED,
    "refusal": Verdict.REFUSED,
    "model_context_window_exceeded": Verdict.TOO_LONG,
}
# `error` of an assistant message. `invalid_request` and `unknown` are missing: they determine no verdict.
_ERROR_VERDICTS = {
    "authentication_failed": Verdict.AUTH,  # 401, 403, or before any request: "Not logged in · Please run /login"
    "oauth_org_not_allowed": Verdict.AUTH,
    "account_on_hold": Verdict.AUTH,
    "verification_required": Verdict.AUTH,
    "cloud_credential_error": Verdict.AUTH,
    "billing_error": Verdict.QUOTA,  # 400 "Credit balance is too low"
    "rate_limit": Verdict.RATE_LIMITED,  # 429, also for a plan: "You've hit your limit · resets 3:24pm (UTC)"
    "overloaded": Verdict.TRANSIENT,
    "server_error": Verdict.TRANSIENT,  # 500, 529, and no connection at all
    "model_not_found": Verdict.PERMANENT,  # 404
    "max_output_tokens": Verdict.TRUNCATED,
}
_STATUS_VERDICTS = {
    401: Verdict.AUTH,
    402: Verdict.QUOTA,
    403: Verdict.AUTH,
    408: Verdict.TRANSIENT,
    409: Verdict.TRANSIENT,
    413: Verdict.TOO_LONG,
    429: Verdict.RATE_LIMITED,
}
_NO_SESSION = re.compile(r"no conversation found|--resume requires a valid session", re.I)
_TOO_LONG = re.compile(r"prompt is too long|request too large|context window", re.I)
_QUOTA = re.compile(
    r"hit your .{0,60}limit|usage limit|spend limit|out of (?:extra )?usage|credit balance|(?:weekly|monthly) limit",
    re.I,
)
_NO_LOGIN = re.compile(r"please run /login|not logged in|invalid api key", re.I)
_TOO_OLD = re.compile(r"unknown option", re.I)


@dataclass(slots=True)
class ProgramRun:
    """The state of one run, as far as the program has printed it."""

    session_id: str = ""
    texts: list[str] = field(default_factory=list)
    model: str = ""
    stop: str = ""
    kind: str = ""
    words: str = ""
    status: int | None = None
    subtype: str = ""
    failed: bool = False
    finished: bool = False
    resets_at: float | None = None
    usage_counts: list[dict[str, Any]] = field(default_factory=list)
    dollars: float | None = None
    is_billed: bool = False  # billed by request, not covered by a plan
    has_unknown_lines: bool = False  # the output contained a line of unknown form

    def add_line(self, line: Any) -> None:
        """Process one line. Never raises, whatever was printed."""
        match line:
            case {"type": "system", "subtype": "init"}:
                self.session_id = _text(line.get("session_id"))
                self.is_billed = line.get("apiKeySource") not in (None, "none")
            case {"type": "system", "subtype": str(subtype)}:
                if subtype.startswith("model_refusal"):
                    self.stop = "refusal"  # a refused answer has no stop event
            case {"type": "stream_event", "event": dict(event)}:
                self._add_event(event)
            case {"type": "assistant", "message": dict(message)}:
                self._add_message(message, _text(line.get("error")))
            case {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": int(at)}}:
                self.resets_at = float(at)
            case {"type": "result"}:
                self._add_result(line)
            case {"type": str()}:
                pass  # a line type that does not concern the answer
            case _:
                self.has_unknown_lines = True

    def _add_event(self, event: dict[str, Any]) -> None:
        """Read token counts and the stop reason. Only stream events have them for this answer: the result line has
        zeros when the budget is used up, and the sum over all turns for a resumed session."""
        match event:
            case {"type": "message_start", "message": {"usage": dict(counts)}}:
                self.usage_counts.append(dict(counts))
            case {"type": "message_start"}:
                self.usage_counts.append({})
            case {"type": "message_delta", "delta": dict(delta)}:
                self.stop = _text(delta.get("stop_reason")) or self.stop
                new = event.get("usage")
                if self.usage_counts and isinstance(new, dict):
                    self.usage_counts[-1] |= {key: value for key, value in new.items() if value}

    def _add_message(self, message: dict[str, Any], error: str) -> None:
        blocks = message.get("content")
        texts = [
            text
            for block in (blocks if isinstance(blocks, list) else ())
            if isinstance(block, dict) and block.get("type") == "text" and (text := _text(block.get("text")))
        ]
        if message.get("model") == SYNTHETIC:
            self.kind, self.words = error or "unknown", " ".join(texts)
        else:
            self.model = _text(message.get("model"))
            self.texts += texts

    def _add_result(self, line: dict[str, Any]) -> None:
        self.finished = True
        status, errors, result = line.get("api_error_status"), line.get("errors"), _text(line.get("result"))
        self.failed, self.subtype = line.get("is_error") is True, _text(line.get("subtype"))
        self.status = status if isinstance(status, int) else None
        error_text = " ".join(map(_text, errors)) if isinstance(errors, list) else ""
        self.words = self.words or error_text or result
        self.stop = self.stop or _text(line.get("stop_reason"))
        dollars, counts = line.get("total_cost_usd"), line.get("usage")
        self.dollars = float(dollars) if isinstance(dollars, int | float) else None
        if not self.usage_counts and isinstance(counts, dict):
            self.usage_counts.append(counts)
        if not self.texts and not self.failed and result:
            self.texts.append(result)  # some versions print only the result


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def reply_from_run(run: ProgramRun, *, resumed: bool = False) -> Reply:
    """Return the reply for a finished run."""
    if run.failed and _NO_SESSION.search(run.words):
        return failure_reply(run, run.words)
    verdict = verdict_from_run(run)
    has_answer = verdict in (Verdict.OK, Verdict.TRUNCATED, Verdict.REFUSED)
    return Reply(
        verdict=verdict,
        text="".join(run.texts)[:MAX_TEXT] if has_answer else "",
        usage=usage_from_run(run, resumed=resumed),
        model=run.model,
        message=(run.stop if has_answer and not run.kind else run.words)[:MAX_WORDS],
        retry_seconds=seconds_to_wait(run, verdict, now=time.time()),
    )


def verdict_from_run(run: ProgramRun) -> Verdict:
    """Return the verdict of a run that printed a result."""
    if run.stop in _STOP_VERDICTS:
        return _STOP_VERDICTS[run.stop]
    if not run.failed or (run.subtype in EXPECTED_LIMIT_ERRORS and run.stop):
        return Verdict.OK
    return classify_error(run.words, kind=run.kind, status=run.status)


def classify_error(words: str, *, kind: str = "", status: int | None = None) -> Verdict:
    """Return the verdict for an error. The message text is checked first because it is more precise than kind and
    status: 413 is reported as "invalid_request", and a used-up plan as "rate_limit"."""
    if _TOO_LONG.search(words):
        return Verdict.TOO_LONG
    if _QUOTA.search(words):
        return Verdict.QUOTA
    if _NO_LOGIN.search(words):
        return Verdict.AUTH
    if kind in _ERROR_VERDICTS:
        return _ERROR_VERDICTS[kind]
    if status is not None and status < 500:
        return _STATUS_VERDICTS.get(status, Verdict.PERMANENT)
    return Verdict.TRANSIENT  # 5xx, or no status: "Stream ended without receiving any events"


def seconds_to_wait(run: ProgramRun, verdict: Verdict, *, now: float) -> float | None:
    """Return the number of seconds to wait before another request makes sense."""
    if run.resets_at and verdict in (Verdict.QUOTA, Verdict.RATE_LIMITED):
        return max(run.resets_at - now, 1.0)
    return RATE_SECONDS if verdict is Verdict.RATE_LIMITED else None


def usage_from_run(run: ProgramRun, *, resumed: bool) -> Usage | None:
    """Return the tokens and the cost that the program reported; None if it reported none."""
    if not run.usage_counts:
        return None
    new, cached, written, out = (
        sum(_count(counts.get(name)) for counts in run.usage_counts)
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    )
    # A resumed session reports its cost since it began; with a plan, the reported cost is not charged.
    dollars = run.dollars if run.is_billed and not resumed else None
    return Usage(
        input_tokens=new + cached + written,
        cached_tokens=cached,
        written_tokens=written,
        output_tokens=out,
        cost=dollars,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def failure_reply(run: ProgramRun, words: str, *, status: int | None = None) -> Reply:
    """Return the reply for a run without a result: the program rejected its options, crashed, or is another program."""
    if _NO_SESSION.search(words):
        return Reply(verdict=Verdict.PERMANENT, message=f"resume: {words}")
    if _TOO_OLD.search(words):
        return Reply(verdict=Verdict.PERMANENT, message=f"{words}: update Claude Code")
    verdict = classify_error(words, status=status)
    if run.has_unknown_lines and verdict is Verdict.TRANSIENT:
        return Reply(verdict=Verdict.UNPARSEABLE, message=UNKNOWN_FORMAT)
    return Reply(verdict=verdict, message=words)


# --- running the program ---------------------------------------------------------------------------------------------


class ChildMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of output: either a session id or a reply."""

    session_id: str = ""
    reply: Reply | None = None


SendMessage = Callable[[ChildMessage], None]


class OutputTooLarge(Exception):
    """The program printed more than any answer needs."""


class ProgramExited(Exception):
    """The program exited; the message is its stderr output, or its exit status."""


async def answer_question(ask: ProgramRequest, say: SendMessage) -> None:
    """Run one question and report the session id and the reply as soon as each is known."""
    run, errors = ProgramRun(), deque[str](maxlen=20)
    source = claude_sdk.sdk_lines(ask, errors.append) if ask.sdk else program_lines(ask)
    try:
        async with aclosing(source) as lines:
            async for line in lines:
                session_id, was_finished = run.session_id, run.finished
                run.add_line(line)
                if run.session_id != session_id:
                    say(ChildMessage(session_id=run.session_id))
                if run.finished and not was_finished:
                    say(ChildMessage(reply=reply_from_run(run, resumed=bool(ask.resume))))
    except Exception as error:  # outermost frame: every error is reported to the worker
        if not run.finished:  # after an error result the SDK also raises, and the program exits with 1
            say(ChildMessage(reply=_reply_to_error(run, error, errors)))


def _reply_to_error(run: ProgramRun, error: Exception, errors: deque[str]) -> Reply:
    match error:
        case ImportError():
            return Reply(verdict=Verdict.PERMANENT, message=f"{claude_sdk.INSTALL_HINT} ({error})")
        case OutputTooLarge():
            return Reply(verdict=Verdict.UNPARSEABLE, message=f"{UNKNOWN_FORMAT} ({error})")
        case ProgramExited():
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


async def program_lines(ask: ProgramRequest) -> AsyncGenerator[object]:
    """Run the program and yield its output line by line, decoded; None for a line that is not JSON.

    Always raises `ProgramExited` when the program exits. The caller ignores that if a result was printed before.
    """
    process = await asyncio.create_subprocess_exec(
        *build_command(ask), cwd=ask.folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_OUTPUT
    )
    errors = asyncio.create_task(_tail(process))
    asking = asyncio.create_task(_write_question(process, question_line(ask)))
    async for raw in _output_lines(process):
        yield _decode(raw)
    await asking
    status, words = await process.wait(), await errors
    raise ProgramExited(words or f"the `claude` program ended without an answer (exit status {status})")


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
        raise OutputTooLarge(f"it printed more than {MAX_OUTPUT >> 20} MB")


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
    return " ".join(strip_invisible(tail.decode("utf-8", "replace")).split())


def _decode(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _send_line(line: ChildMessage) -> None:
    data = msgspec.json.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _exit_with_worker() -> None:
    """Wait until the worker closes stdin, then kill this process group."""
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():  # when run by hand, the group is the shell's and must not be killed
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Read one request from stdin, answer it on stdout, and exit."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(1)  # the worker died while writing
    threading.Thread(target=_exit_with_worker, daemon=True).start()
    asyncio.run(answer_question(msgspec.json.decode(line, type=ProgramRequest), _send_line))
    os._exit(0)  # skip interpreter shutdown: unloading the SDK takes as long as the answer


if __name__ == "__main__":
    main()
