"""The user's own Claude, asked through the installed `claude` program by a child that lives for one question.

For each question the worker starts `claude_child.py`, which runs the program (or, if `claude_sdk` is set, has the Agent SDK run
it), both in a process group of their own; whatever happens (an answer, the deadline, a cancelled task, a crash, even SIGKILL of
this very worker), the group is gone within two seconds. There is never more than one.

The environment of both is built from nothing: no key, address or switch of the agent that our hooks run in reaches them. What
the program needs beyond its own login stands in a file that the user names.
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

from claude_mem import hook, untrusted_files
from claude_mem.errors import CannotDo
from claude_mem.providers.base import Captured, Reply, Request, Verdict, leaves
from claude_mem.providers.claude_child import Line
from claude_mem.providers.claude_program import Ask, find_program, path_for, unsafe
from claude_mem.providers.claude_sdk import INSTALL
from claude_mem.redact import redact
from claude_mem.text import plain, shorten

MODEL = "haiku"
CALL_SECONDS = 60.0
# From the answer to the end of both: 0.05 to 0.3 s were seen, more on a busy machine. What the client writes, it writes at
# the very end: killed before that, it leaves half a file in the user's folder.
EXIT_SECONDS = 1.5
REAP_SECONDS = 1.0
STATUS_SECONDS = 10.0
MAX_LINE = 1 << 20
MESSAGE_CHARS = 300
SLUG_CHARS = 200

# What a program needs to find itself, its user and its certificates.
_KEEP = ("HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "CLAUDE_CONFIG_DIR")
_KEEP_PREFIXES = ("LC_", "XDG_")
# Ours win over the user's file: each is part of a promise. Seen with Claude Code 2.1.325:
_OURS = {
    "CLAUDE_MEM_INTERNAL": "1",  # our own hooks return at once (hook.py)
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # One question is one request. 429 and 5xx are tried up to ten times otherwise, and a 400 three times, without one
    # experimental part after the other.
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_NO_MODEL_FALLBACK": "1",
    "DISABLE_COMPACT": "1",
    # The question and nothing else; also keeps "USD budget: $1e-9 remaining" from the model (claude_program.py).
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # No socket in $TMPDIR/cc-socks over which the user's other sessions can talk to this one.
    "CLAUDE_CODE_RESTRICTED": "1",
    # The newest models think even when they are told not to, and what they think counts as output.
    "CLAUDE_CODE_EFFORT_LEVEL": "low",
}
# With one of these in the user's file, the client needs no login.
_CREDENTIALS = {
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
}
_NO_PROGRAM = (
    "the `claude` program was not found in the usual places: install Claude Code, or name it with"
    ' `claude-mem config set claude_path "$(command -v claude)"`'
)
_NO_LOGIN = "Claude Code is not logged in: run `claude` and `/login`, or name a file with a token in `claude_env_file`"
_PLANS = ("claude.ai", "oauth_token")  # `authMethod` of a subscription
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
        self._one = asyncio.Lock()
        self._running: Process | None = None
        self._closed = False

    @property
    def provider(self) -> str:
        return "claude"

    @property
    def model(self) -> str:
        return self._model

    async def ask(self, request: Request, *, resume: str = "", captured: Captured) -> Reply:
        """The deadline begins when the child does: waiting for another question does not count."""
        async with self._one:
            if self._closed:
                return Reply(verdict=Verdict.TRANSIENT, message="the provider is closed")
            program = find_program(self.cli_path)
            if not program:
                return Reply(verdict=Verdict.PERMANENT, message=_missing(self.cli_path))
            try:
                env = environment(os.environ, self.env_file, program=program, max_tokens=request.max_tokens)
            except CannotDo as error:
                return Reply(verdict=Verdict.AUTH, message=str(error))
            ask = Ask(
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
            await leaves(body)  # what the program makes of it is its own; this is all that it is given
            reply = await self._run(body, env, captured)
        return replace(reply, message=shorten(redact(plain(reply.message)), MESSAGE_CHARS))

    async def _run(self, ask: bytes, env: Mapping[str, str], captured: Captured) -> Reply:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            command = (hook.interpreter(), "-E", "-P", "-m", "claude_mem.providers.claude_child")
            process = await _start(*command, cwd=self.folder, env=env, stdin=PIPE)
        except OSError as error:
            return Reply(verdict=Verdict.TRANSIENT, message=f"can't start a process: {error}")
        self._running, patience = process, 0.0
        if self._closed:  # while it was being started
            _kill(process)
        try:
            async with asyncio.timeout(self.seconds) as deadline:
                reply = await _talk(process, ask, captured)
            patience = EXIT_SECONDS
        except TimeoutError:
            if not deadline.expired():
                raise  # not ours: it came out of `captured`
            reply = Reply(verdict=Verdict.TRANSIENT, message=f"no answer within {self.seconds:g} seconds")
        finally:
            self._running = None
            await _end(process, patience)
        return reply

    async def close(self) -> None:
        """End the question that is being asked, and take no more."""
        self._closed = True
        if self._running is not None:
            _kill(self._running)
        async with self._one:
            pass


async def usable(cli_path: str = "", env_file: str = "", *, sdk: bool = False) -> str:
    """Return why it can't be used, with what to do about it; empty if it can. No model is asked."""
    if sdk and importlib.util.find_spec("claude_agent_sdk") is None:
        return INSTALL
    program = find_program(cli_path)
    if not program:
        return _missing(cli_path)
    try:
        return "" if (await login(program, env_file)).logged_in else _NO_LOGIN
    except CannotDo as error:
        return str(error)


def _missing(cli_path: str) -> str:
    if not cli_path:
        return _NO_PROGRAM
    problem = unsafe(cli_path)
    if problem:
        return f"{cli_path} is not run, because {problem}: correct its owner and mode, or `claude_path`"
    return f"{cli_path} is not a program: correct `claude_path`"


# --- the environment -------------------------------------------------------------------------------------------------


def environment(
    inherited: Mapping[str, str], env_file: str = "", *, program: str = "", max_tokens: int = 0
) -> dict[str, str]:
    """All that the child and the program get to see. Raises if the user's file can't be read."""
    path = {"PATH": path_for(program)} if program else {}
    kept = {name: value for name, value in inherited.items() if name in _KEEP or name.startswith(_KEEP_PREFIXES)}
    named = read_env_file(Path(env_file).expanduser()) if env_file else {}
    most = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens)} if max_tokens else {}
    return {**path, **kept, **named, **_OURS, **most}


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=value lines. What is wrong with one is told by its number, never by its text: it may hold a key."""
    try:
        lines = untrusted_files.read_settings(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CannotDo(f"can't read {path}: {why}; correct `claude_env_file`") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assignment = _ASSIGNMENT.fullmatch(line.strip())
        if assignment is None or "\0" in line:
            raise CannotDo(f"{path}, line {number}: not NAME=value; correct the file")
        found[assignment[1]] = _unquoted(assignment[2])
    return found


def _unquoted(value: str) -> str:
    """`"a b"  # why` is `a b`, and so is `a b  # why`; a `#` inside a word belongs to it."""
    quoted = re.fullmatch(r"""(["'])(.*)\1(?:\s+#.*)?""", value)
    return quoted[2] if quoted else re.split(r"(?<!\S)#", value, maxsplit=1)[0].rstrip()


# --- processes -------------------------------------------------------------------------------------------------------


async def _start(*command: str, cwd: Path, env: Mapping[str, str], stdin: int = DEVNULL) -> Process:
    """A process that leads its own group: `_end` ends all of it."""
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


async def _talk(process: Process, ask: bytes, captured: Captured) -> Reply:
    assert process.stdin is not None
    process.stdin.write(ask)  # and leave it open: its end tells the child that we are gone
    try:
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has died already; there is nothing to read either
    while (line := await _next(process)) is not None:
        if line.session_id:
            await captured(line.session_id)
        if line.reply is not None:
            return line.reply
    return Reply(verdict=Verdict.TRANSIENT, message="the child ended without an answer")


async def _next(process: Process) -> Line | None:
    """The next line of the child; none after its last, or after one that makes no sense."""
    assert process.stdout is not None
    try:
        raw = await process.stdout.readline()
        return msgspec.json.decode(raw, type=Line) if raw else None
    except (ValueError, msgspec.MsgspecError):  # longer than MAX_LINE, or cut off in the middle
        return None


async def _end(process: Process, patience: float = 0.0) -> None:
    """Let it end by itself for a moment, then make sure that nothing of its group is left."""
    try:
        if patience:
            async with asyncio.timeout(patience):
                await process.wait()
    except TimeoutError:
        pass
    finally:  # a second cancellation must not get in between
        _kill(process)
        if process.stdin is not None:
            process.stdin.close()
        await _reap(process)


async def _reap(process: Process) -> None:
    try:
        async with asyncio.timeout(REAP_SECONDS):
            await process.wait()
    except TimeoutError:
        pass  # stuck in the kernel: the loop reaps it when it comes out


def _kill(process: Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # all gone; macOS says EPERM of a group of which only the dead are left


@dataclass(frozen=True, slots=True)
class Login:
    logged_in: bool
    has_plan: bool = False  # else every request is billed


class _Status(msgspec.Struct):
    """What `claude auth status` prints. It exits with 1 when nobody is logged in; 0.2 s, no request."""

    loggedIn: bool
    authMethod: str = ""


async def login(program: str, env_file: str = "") -> Login:
    """Return whether the program is logged in, as it reports itself. Raises if that can't be found out."""
    env = environment(os.environ, env_file, program=program)
    if named := _CREDENTIALS & env.keys():
        return Login(logged_in=True, has_plan=named == {"CLAUDE_CODE_OAUTH_TOKEN"})
    try:
        process = await _start(program, "auth", "status", cwd=Path("/"), env=env)
    except OSError as error:
        raise CannotDo(f"can't run {program}: {error.strerror}") from error
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STATUS_SECONDS):
            printed = await process.stdout.read(MAX_LINE)
    except TimeoutError as error:
        raise CannotDo(f"`{program} auth status` does not answer: check that `claude` starts in a terminal") from error
    finally:
        await _end(process)
    try:
        status = msgspec.json.decode(printed, type=_Status)
    except msgspec.MsgspecError as error:
        raise CannotDo(f"`{program} auth status` was not understood: update Claude Code") from error
    return Login(status.loggedIn, status.loggedIn and status.authMethod in _PLANS)


# --- transcripts -----------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    """What we look at in a line of a transcript, or in the note that a running client makes of itself."""

    cwd: str = ""
    pid: int = 0


def forget_sessions(folder: Path, but: Collection[str] = (), *, env_file: str = "") -> int:
    """Delete the transcripts that the client has written for us, and of nobody else. How many there were.

    Without `keep_sessions` there are none, only the note of a client that had to be killed: it goes as well. A folder of
    transcripts is named after ours, with a dash for each other sign, so that two of ours and theirs can share a name: what a
    transcript tells inside decides.
    """
    ours = _normal(str(folder.resolve()))
    config = _config_folder(env_file)
    for note in (config / "sessions").glob("*.json"):
        if (found := _first(note)).cwd == ours and not _runs(found.pid):
            note.unlink(missing_ok=True)
    count = 0
    for place in _places(config / "projects", ours):
        for transcript in place.glob("*.jsonl"):
            if transcript.stem not in but and _first(transcript).cwd in ("", ours):
                transcript.unlink(missing_ok=True)
                shutil.rmtree(transcript.with_suffix(""), ignore_errors=True)
                count += 1
        try:
            place.rmdir()
        except OSError:
            pass  # there is more in it, or it never was
    return count


def _config_folder(env_file: str) -> Path:
    try:
        env = environment(os.environ, env_file)
    except CannotDo:
        env = environment(os.environ)
    return Path(env.get("CLAUDE_CONFIG_DIR") or Path(env.get("HOME") or "/") / ".claude")


def _places(projects: Path, ours: str) -> list[Path]:
    slug = "".join(sign if re.match("[a-zA-Z0-9]", sign) else "-" * (1 + (ord(sign) > 0xFFFF)) for sign in ours)
    if len(slug) <= SLUG_CHARS:
        return [projects / slug]
    return list(projects.glob(f"{slug[:SLUG_CHARS]}-*"))  # cut, and behind it a hash that we do not know


def _first(path: Path) -> _Entry:
    """The first line that tells a folder; an empty one, if the client died before it wrote that."""
    try:
        with untrusted_files.opened_transcript(path) as file:
            for line in islice(iter(lambda: file.readline(1 << 20), b""), 1_000):
                try:
                    if (found := msgspec.json.decode(line, type=_Entry)).cwd:
                        return _Entry(_normal(found.cwd), found.pid)
                except msgspec.MsgspecError:
                    continue  # cut off
    except OSError:
        return _Entry("?")  # not for us
    return _Entry()


def _normal(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
