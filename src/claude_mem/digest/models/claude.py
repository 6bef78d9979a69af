"""The provider that uses the user's installed `claude` program, through a child process that lives for one request.

For each request the worker starts `claude_child.py`, which runs the program (or, if `claude_sdk` is set, lets the Agent
SDK run it). Both are in their own process group. Whatever happens (an answer, the deadline, a cancelled task, a crash,
even SIGKILL of the worker), the group is gone within two seconds. There is never more than one such group.

The environment of both processes is built from scratch: no key, address or switch of the agent that runs our hooks
reaches them. Anything the program needs beyond its own login comes from the file named by `claude_env_file`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import unicodedata
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from claude_mem import hook
from claude_mem.digest.models.base import Reply, Request, SessionCallback, Verdict, record_outgoing
from claude_mem.digest.models.claude_child import ChildMessage
from claude_mem.digest.models.claude_program import (
    ProgramRequest,
    find_program,
    find_safety_problem,
    program_search_path,
)
from claude_mem.digest.models.claude_sdk import INSTALL_HINT
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.text import shorten, strip_invisible
from claude_mem.privacy.secrets import redact
from claude_mem.system import untrusted_files

MODEL = "haiku"
CALL_SECONDS = 60.0
# Both processes were observed to exit 0.05 to 0.3 s after the answer, later on a busy machine. The client writes its
# files at the very end: if it is killed before that, it leaves a partial file in the user's folder.
EXIT_SECONDS = 1.5
REAP_SECONDS = 1.0
STATUS_SECONDS = 10.0
MAX_LINE = 1 << 20
MESSAGE_CHARS = 300
SLUG_CHARS = 200

# Variables the program needs to find itself, its user and its certificates.
_INHERITED_NAMES = ("HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "CLAUDE_CONFIG_DIR")
_INHERITED_PREFIXES = ("LC_", "XDG_")
# These override the user's file, because the documented guarantees depend on them. Observed with Claude Code 2.1.325:
_FIXED_ENV = {
    "CLAUDE_MEM_INTERNAL": "1",  # makes our own hooks return immediately (hook.py)
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # One question is one request. By default the program retries 429 and 5xx up to ten times, and a 400 three times,
    # dropping one experimental feature each time.
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_NO_MODEL_FALLBACK": "1",
    "DISABLE_COMPACT": "1",
    # Send only the question. This also hides "USD budget: $1e-9 remaining" from the model (claude_program.py).
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # Do not open a socket in $TMPDIR/cc-socks through which the user's other sessions could reach this one.
    "CLAUDE_CODE_RESTRICTED": "1",
    # The newest models think even if thinking is disabled, and thinking counts as output.
    "CLAUDE_CODE_EFFORT_LEVEL": "low",
}
# If the user's file sets one of these, the client needs no login.
_CREDENTIALS = {
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
}
_NO_PROGRAM = (
    "the `claude` program was not found in the usual places: install Claude Code, or set its path with"
    ' `claude-mem config set claude_path "$(command -v claude)"`'
)
_NO_LOGIN = "Claude Code is not logged in: run `claude` and `/login`, or set `claude_env_file` to a file with a token"
_PLANS = ("claude.ai", "oauth_token")  # values of `authMethod` for a subscription
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


class Claude:
    def __init__(
        self,
        *,
        model: str,
        folder: Path,
        env_file: str = "",
        cli_path: str = "",
        keep_sessions: bool = False,
        sdk: bool = False,
        seconds: float = CALL_SECONDS,
    ) -> None:
        self.folder = folder
        self.env_file = env_file
        self.cli_path = cli_path
        self.keep_sessions = keep_sessions
        self.sdk = sdk
        self.seconds = seconds
        self._model = model or MODEL
        self._request_lock = asyncio.Lock()
        self._running: Process | None = None
        self._closed = False

    @property
    def provider(self) -> str:
        return "claude"

    @property
    def model(self) -> str:
        return self._model

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
        """Send one request. The deadline starts with the child process; time spent waiting for an earlier request does
        not count."""
        async with self._request_lock:
            if self._closed:
                return Reply(verdict=Verdict.TRANSIENT, message="the provider is closed")
            program = find_program(self.cli_path)
            if not program:
                return Reply(verdict=Verdict.PERMANENT, message=_program_problem(self.cli_path))
            try:
                env = build_environment(os.environ, self.env_file, program=program, max_tokens=request.max_tokens)
            except OperationFailed as error:
                return Reply(verdict=Verdict.AUTH, message=str(error))
            ask = ProgramRequest(
                system=request.system,
                prompt=request.prompt,
                model=self.model,
                folder=str(self.folder),
                program=program,
                resume=resume,
                keep=self.keep_sessions,
                sdk=self.sdk,
            )
            body = msgspec.json.encode(ask) + b"\n"
            await record_outgoing(
                body
            )  # everything the program receives; the bytes it sends itself are not visible here
            reply = await self._run(body, env, on_session)
        return replace(reply, message=shorten(redact(strip_invisible(reply.message)), MESSAGE_CHARS))

    async def _run(self, ask: bytes, env: Mapping[str, str], on_session: SessionCallback) -> Reply:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            command = (hook.interpreter(), "-E", "-P", "-m", "claude_mem.digest.models.claude_child")
            process = await _start(*command, cwd=self.folder, env=env, stdin=PIPE)
        except OSError as error:
            return Reply(verdict=Verdict.TRANSIENT, message=f"cannot start a process: {error}")
        self._running, grace_seconds = process, 0.0
        if self._closed:  # closed while the process was starting
            _kill(process)
        try:
            async with asyncio.timeout(self.seconds) as deadline:
                reply = await _talk(process, ask, on_session)
            grace_seconds = EXIT_SECONDS
        except TimeoutError:
            if not deadline.expired():
                raise  # not this deadline: raised by `on_session`
            reply = Reply(verdict=Verdict.TRANSIENT, message=f"no answer within {self.seconds:g} seconds")
        finally:
            self._running = None
            await _end(process, grace_seconds)
        return reply

    async def close(self) -> None:
        """Cancel the current request and refuse further ones."""
        self._closed = True
        if self._running is not None:
            _kill(self._running)
        async with self._request_lock:
            pass


async def find_problem(cli_path: str = "", env_file: str = "", *, sdk: bool = False) -> str:
    """Return why the provider cannot be used and what to do about it; empty if it can. Sends no request."""
    if sdk and importlib.util.find_spec("claude_agent_sdk") is None:
        return INSTALL_HINT
    program = find_program(cli_path)
    if not program:
        return _program_problem(cli_path)
    try:
        return "" if (await check_login(program, env_file)).logged_in else _NO_LOGIN
    except OperationFailed as error:
        return str(error)


def _program_problem(cli_path: str) -> str:
    if not cli_path:
        return _NO_PROGRAM
    problem = find_safety_problem(cli_path)
    if problem:
        return f"refused to run {cli_path}, because {problem}: fix its owner and mode, or change `claude_path`"
    return f"{cli_path} is not an executable file: correct `claude_path`"


# --- the environment -------------------------------------------------------------------------------------------------


def build_environment(
    inherited: Mapping[str, str], env_file: str = "", *, program: str = "", max_tokens: int = 0
) -> dict[str, str]:
    """Build the complete environment of the child and the program. Raises if the user's file cannot be read."""
    path_env = {"PATH": program_search_path(program)} if program else {}
    user_env = {
        name: value
        for name, value in inherited.items()
        if name in _INHERITED_NAMES or name.startswith(_INHERITED_PREFIXES)
    }
    file_env = read_env_file(Path(env_file).expanduser()) if env_file else {}
    limit_env = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens)} if max_tokens else {}
    return {**path_env, **user_env, **file_env, **_FIXED_ENV, **limit_env}


def read_env_file(path: Path) -> dict[str, str]:
    """Parse NAME=value lines. Errors name the line number, never the text, which may contain a key."""
    try:
        lines = untrusted_files.read_settings(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise OperationFailed(f"cannot read {path}: {reason}; correct `claude_env_file`") from error
    values = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assignment = _ASSIGNMENT.fullmatch(line.strip())
        if assignment is None or "\0" in line:
            raise OperationFailed(f"{path}, line {number}: not NAME=value; correct the file")
        values[assignment[1]] = _unquoted(assignment[2])
    return values


def _unquoted(value: str) -> str:
    """Strip quotes and a trailing comment: `"a b"  # why` and `a b  # why` give `a b`. A `#` inside a word is kept."""
    match = re.fullmatch(r"""(["'])(.*)\1(?:\s+#.*)?""", value)
    return match[2] if match else re.split(r"(?<!\S)#", value, maxsplit=1)[0].rstrip()


# --- processes -------------------------------------------------------------------------------------------------------


async def _start(*command: str, cwd: Path, env: Mapping[str, str], stdin: int = DEVNULL) -> Process:
    """Start a process that leads its own group, so that `_end` can kill the whole group."""
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=PIPE,
        stderr=DEVNULL,
        start_new_session=True,
        limit=MAX_LINE,
    )


async def _talk(process: Process, ask: bytes, on_session: SessionCallback) -> Reply:
    assert process.stdin is not None
    process.stdin.write(ask)  # stdin stays open: end of file tells the child that the worker is gone
    try:
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the child is dead; the read below returns end of file
    while (line := await _read_line(process)) is not None:
        if line.session_id:
            await on_session(line.session_id)
        if line.reply is not None:
            return line.reply
    return Reply(verdict=Verdict.TRANSIENT, message="the child ended without an answer")


async def _read_line(process: Process) -> ChildMessage | None:
    """Return the next line of the child; None at end of file or after an invalid line."""
    assert process.stdout is not None
    try:
        raw = await process.stdout.readline()
        return msgspec.json.decode(raw, type=ChildMessage) if raw else None
    except (ValueError, msgspec.MsgspecError):  # longer than MAX_LINE, or truncated
        return None


async def _end(process: Process, grace_seconds: float = 0.0) -> None:
    """Wait up to `grace_seconds` for the process to exit, then kill what remains of its group."""
    try:
        if grace_seconds:
            async with asyncio.timeout(grace_seconds):
                await process.wait()
    except TimeoutError:
        pass
    finally:  # also runs if the task is cancelled a second time
        _kill(process)
        if process.stdin is not None:
            process.stdin.close()
        await _reap(process)


async def _reap(process: Process) -> None:
    try:
        async with asyncio.timeout(REAP_SECONDS):
            await process.wait()
    except TimeoutError:
        pass  # blocked in the kernel: the event loop reaps it later


def _kill(process: Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # the group is gone; macOS raises EPERM for a group of zombies


@dataclass(frozen=True, slots=True)
class ClaudeLogin:
    logged_in: bool
    has_plan: bool = False  # a subscription; without one every request is billed


class _Status(msgspec.Struct):
    """Output of `claude auth status`. It takes 0.2 s, sends no request, and exits with 1 if no user is logged in."""

    loggedIn: bool
    authMethod: str = ""


async def check_login(program: str, env_file: str = "") -> ClaudeLogin:
    """Return the login state that the program reports. Raises if it cannot be determined."""
    env = build_environment(os.environ, env_file, program=program)
    if credentials := _CREDENTIALS & env.keys():
        return ClaudeLogin(logged_in=True, has_plan=credentials == {"CLAUDE_CODE_OAUTH_TOKEN"})
    try:
        process = await _start(program, "auth", "status", cwd=Path("/"), env=env)
    except OSError as error:
        raise OperationFailed(f"cannot run {program}: {error.strerror}") from error
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STATUS_SECONDS):
            output = await process.stdout.read(MAX_LINE)
    except TimeoutError as error:
        raise OperationFailed(
            f"`{program} auth status` did not answer: check that `claude` starts in a terminal"
        ) from error
    finally:
        await _end(process)
    try:
        status = msgspec.json.decode(output, type=_Status)
    except msgspec.MsgspecError as error:
        raise OperationFailed(f"`{program} auth status` printed an unknown format: update Claude Code") from error
    return ClaudeLogin(status.loggedIn, status.loggedIn and status.authMethod in _PLANS)


# --- transcripts -----------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    """The fields read from a transcript line, or from the state file of a running client."""

    cwd: str = ""
    pid: int = 0


def delete_sessions(folder: Path, keep_ids: Collection[str] = (), *, env_file: str = "") -> int:
    """Delete the transcripts the client wrote for our requests, and no others. Returns how many were deleted.

    Without `keep_sessions` there are none, only the state file of a client that had to be killed; it is deleted as
    well. The client names a transcript folder after the working directory, with a dash for every other character, so
    two directories can share a name. The `cwd` inside a transcript decides whether it is ours.
    """
    own_path = _nfc(str(folder.resolve()))
    config = _config_folder(env_file)
    for note_path in (config / "sessions").glob("*.json"):
        if (entry := _first_entry(note_path)).cwd == own_path and not _is_running(entry.pid):
            note_path.unlink(missing_ok=True)
    count = 0
    for transcript_dir in _transcript_dirs(config / "projects", own_path):
        for transcript in transcript_dir.glob("*.jsonl"):
            if transcript.stem not in keep_ids and _first_entry(transcript).cwd in ("", own_path):
                transcript.unlink(missing_ok=True)
                shutil.rmtree(transcript.with_suffix(""), ignore_errors=True)
                count += 1
        try:
            transcript_dir.rmdir()
        except OSError:
            pass  # not empty, or does not exist
    return count


def _config_folder(env_file: str) -> Path:
    try:
        env = build_environment(os.environ, env_file)
    except OperationFailed:
        env = build_environment(os.environ)
    return Path(env.get("CLAUDE_CONFIG_DIR") or Path(env.get("HOME") or "/") / ".claude")


def _transcript_dirs(projects: Path, own_path: str) -> list[Path]:
    slug = "".join(char if re.match("[a-zA-Z0-9]", char) else "-" * (1 + (ord(char) > 0xFFFF)) for char in own_path)
    if len(slug) <= SLUG_CHARS:
        return [projects / slug]
    return list(projects.glob(f"{slug[:SLUG_CHARS]}-*"))  # the client truncates long names and appends a hash


def _first_entry(path: Path) -> _Entry:
    """Return the first entry with a `cwd`; an empty entry if the client died before it wrote one."""
    try:
        with untrusted_files.open_transcript(path) as file:
            for line in islice(iter(lambda: file.readline(1 << 20), b""), 1_000):
                try:
                    if (entry := msgspec.json.decode(line, type=_Entry)).cwd:
                        return _Entry(_nfc(entry.cwd), entry.pid)
                except msgspec.MsgspecError:
                    continue  # truncated line
    except OSError:
        return _Entry("?")  # not readable: matches no folder
    return _Entry()


def _nfc(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
