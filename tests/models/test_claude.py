"""The provider `claude`, with the real Claude Code against a scripted model: run directly, and by the real Agent SDK.

What must hold: one question is one request, which shows the model the question and nothing else; no key but the one the user
named; and whatever happens, nothing of it runs two seconds later.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import apsw
import pytest
import uvloop

from claude_mem.digest.models import claude, claude_child, claude_program
from claude_mem.digest.models.base import Model, Reply, Request, Usage, Verdict
from claude_mem.digest.models.claude import Claude, build_environment, delete_sessions, find_problem, read_env_file
from claude_mem.digest.models.claude_child import ChildMessage, ProgramRun, classify_error
from claude_mem.digest.models.claude_program import ProgramRequest
from claude_mem.domain.errors import OperationFailed
from tests.agents.client.harness import alive, find_client, running
from tests.agents.client.model_server import Handler, Hold, Json, ModelServer, Text, message, usage
from tests.agents.client.model_server import Reply as Scripted
from tests.support import forks, proof
from tests.support.amounts import LONG
from tests.support.lab import HOOK
from tests.support.waiting import SECONDS, wait_for

T = TypeVar("T")
BINARY, NO_CLIENT = find_client()
NO_SDK = "" if importlib.util.find_spec("claude_agent_sdk") else "no claude-agent-sdk: `pip install claude-agent-sdk`"
GONE_SECONDS = 2.0
KEY = "dummy-key-of-the-users-file"
SYSTEM = "You are the one who remembers."
MARKER = "zebra-4711"
QUESTIONS = 5
LOOPS = [uvloop.new_event_loop, *([asyncio.new_event_loop] if LONG else [])]  # the worker's own, and the usual one


# --- the laboratory --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of the API, as it is spelled there."""

    status: int
    kind: str
    words: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stop:
    """An answer that ends for another reason than being finished."""

    reason: str
    text: str


class OddHandler(Handler):
    """Keeps the headers of each request, and can answer as a play can't."""

    headers_seen: ClassVar[list[dict[str, str]]]
    odd: ClassVar[dict[str, Fail | Stop]]

    def play(self, body: Json) -> None:
        self.headers_seen.append({name.lower(): value for name, value in self.headers.items()})
        match next((odd for marker, odd in self.odd.items() if marker in json.dumps(body)), None):
            case Fail() as fail:
                self.script.note(body, "")
                self.fail(fail)
            case Stop() as stop:
                self.script.note(body, "")
                said = [{"type": "text", "text": stop.text}] if stop.text else []
                self.send_answer(body, {**message(str(body["model"]), said, usage([])), "stop_reason": stop.reason})
            case None:
                super().play(body)

    def fail(self, fail: Fail) -> None:
        payload = json.dumps({"type": "error", "error": {"type": fail.kind, "message": fail.words}}).encode()
        self.send_response(fail.status)
        for name, value in {**fail.headers, "Content-Length": str(len(payload))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)


class OddServer(ModelServer):
    def __init__(self) -> None:
        super().__init__()
        self.headers: list[dict[str, str]] = []
        self.odd: dict[str, Fail | Stop] = {}
        bound = {"script": self.script, "headers_seen": self.headers, "odd": self.odd}
        self.listener.RequestHandlerClass = type("BoundOddHandler", (OddHandler,), bound)


def zombies() -> frozenset[str]:
    """The ids of our children that are dead and that nobody has waited for."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.add(path.parent.name)
    return frozenset(found)


@dataclass
class Lab:
    """A home with nothing in it, a file with a key, and a model."""

    home: Path
    folder: Path
    env_file: Path
    server: OddServer
    sdk: bool = False
    earlier: frozenset[str] = field(default_factory=zombies)  # of other tests in this process

    def claude(self, **changes: Any) -> Claude:
        given = {"model": "", "folder": self.folder, "env_file": str(self.env_file), "cli_path": str(BINARY)}
        given |= {"sdk": self.sdk}
        return Claude(**{**given, **changes})

    def key(self, *lines: str) -> None:
        self.env_file.write_text("\n".join([f"ANTHROPIC_BASE_URL={self.server.url}", *lines]) + "\n")

    def processes(self) -> dict[int, str]:
        """What runs with this lab's home, by pid: the child and the client, unless they changed it."""
        mark = f"HOME={self.home}\0".encode()
        return {pid: command for pid, environ, command in running() if mark in environ and pid != os.getpid()}

    def one(self, part: str) -> int:
        (pid,) = [pid for pid, command in self.processes().items() if part in command]
        return pid

    def assert_gone(self, since: float) -> None:
        wait_for(lambda: not self.processes(), lambda: f"left running: {self.processes()}")
        assert time.monotonic() - since <= GONE_SECONDS or not LONG  # a figure of a quiet machine
        assert zombies() <= self.earlier


def group(pid: int) -> int:
    """Whose process group it is in: one for each child with all it has started."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture
def sdk() -> bool:
    """How the program is run; overridden where both ways are tested."""
    return False


both = pytest.mark.parametrize("sdk", [False, True], ids=["program", "sdk"])


@pytest.fixture
def lab(tmp_path: Path, sdk: bool) -> Iterator[Lab]:
    if NO_CLIENT or (sdk and NO_SDK):
        pytest.skip(NO_CLIENT or NO_SDK)
    with OddServer() as server:
        lab = Lab(tmp_path / "home", tmp_path / "data" / "observer", tmp_path / "claude.env", server, sdk)
        lab.key(f"ANTHROPIC_API_KEY={KEY}")
        yield lab
        left = lab.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == {}


def request(prompt: str = f"Remember {MARKER}.", *, max_tokens: int = 900) -> Request:
    return Request(system=SYSTEM, prompt=prompt, fence="f", max_tokens=max_tokens)


async def ignored(session: str) -> None:
    """A caller that does not want to know the session."""


def run(work: Coroutine[Any, Any, T], loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> T:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)


def ask(model: Claude, prompt: str = f"Remember {MARKER}.", *, resume: str = "") -> Reply:
    return run(model.ask(request(prompt), resume=resume, on_session=ignored))


async def held(lab: Lab, name: str) -> None:
    await asyncio.to_thread(lab.server.wait_held, name)


def said(lab: Lab, *replies: Scripted, marker: str = MARKER) -> None:
    lab.server.play(marker, *replies)


def every_file(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def program(path: Path, *lines: str) -> Path:
    """A shell script in the place of the client."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# --- the answer ------------------------------------------------------------------------------------------------------


class TestAnswer:
    pytestmark: ClassVar = [pytest.mark.client, both]

    @pytest.mark.parametrize("loop", LOOPS)
    def test_it_comes_back_with_its_usage(self, lab: Lab, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        said(lab, [Text("<memory>zebras "), Text("have stripes</memory>")])
        model: Model = lab.claude()
        reply = run(model.ask(request(), on_session=ignored), loop)
        assert (model.provider, model.model) == ("claude", "haiku")
        assert (reply.verdict, reply.text) == (Verdict.OK, "<memory>zebras have stripes</memory>")
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (100, 20)
        assert reply.usage.cost
        assert "haiku" in reply.model
        assert len(lab.server.requests) == 1

    def test_the_session_is_told_before_the_answer(self, lab: Lab) -> None:
        said(lab, [Hold("answer"), Text("late")])
        told: list[str] = []

        async def scene() -> Reply:
            known = asyncio.Event()

            async def captured(session: str) -> None:
                told.append(session)
                known.set()

            asking = asyncio.create_task(lab.claude().ask(request(), on_session=captured))
            await held(lab, "answer")
            await asyncio.wait_for(known.wait(), SECONDS)
            assert not asking.done()
            lab.server.release("answer")
            return await asking

        assert run(scene()).text == "late"
        assert told == [lab.server.requests[0].session]

    def test_the_model_is_shown_the_question_and_nothing_else(self, lab: Lab) -> None:
        fired = lab.home / "fired"
        touch = [{"hooks": [{"type": "command", "command": f"touch {fired}"}]}]
        hooks = {"hooks": dict.fromkeys(("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"), touch)}
        for folder in (lab.home, lab.folder):
            (folder / ".claude").mkdir(parents=True)
            (folder / ".claude" / "settings.json").write_text(json.dumps(hooks))
            for name in ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md"):
                (folder / name).write_text("canary-in-a-file\n")
        (lab.home / "secret.txt").write_text("canary-in-a-file\n")
        prompt = f"/compact {MARKER} @{lab.home}/secret.txt"
        assert ask(lab.claude(), prompt).verdict is Verdict.OK
        (seen,) = lab.server.requests
        assert seen.body["tools"] == []
        assert seen.body["max_tokens"] == 900
        assert SYSTEM in seen.text
        assert prompt in seen.text
        assert "canary" not in json.dumps(seen.body)
        assert "budget" not in json.dumps(seen.body)
        assert not fired.exists()

    def test_no_key_of_the_worker_reaches_the_model(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        with OddServer() as foreign:
            for name in (
                "ANTHROPIC_API_KEY",
                "ANTHROPIC_AUTH_TOKEN",
                "CLAUDE_CODE_OAUTH_TOKEN",
                "AWS_SECRET_ACCESS_KEY",
            ):
                monkeypatch.setenv(name, "foreign-key")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", foreign.url)
            monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-foreign: foreign-key")
            monkeypatch.setenv("ANTHROPIC_MODEL", "foreign-model")
            monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
            assert ask(lab.claude()).verdict is Verdict.OK
            assert foreign.requests == []
        (headers,) = lab.server.headers
        assert headers["x-api-key"] == KEY
        assert "authorization" not in headers
        assert "foreign" not in json.dumps([headers, lab.server.requests[0].body])

    def test_nothing_of_the_question_or_the_answer_stays_on_the_disk(self, lab: Lab) -> None:
        said(lab, [Text("answer-0815")])
        assert ask(lab.claude()).text == "answer-0815"
        for path in (*every_file(lab.home), *every_file(lab.folder)):
            content = path.read_bytes()
            assert MARKER.encode() not in content, path
            assert b"answer-0815" not in content, path
        assert list(lab.home.rglob("*.jsonl")) == []

    @pytest.mark.parametrize("keep_sessions", [False, True])
    def test_many_questions_leave_no_file_in_the_users_folder(self, lab: Lab, keep_sessions: bool) -> None:
        """But for the client's own copies of its settings, of which it keeps a few for whoever starts it."""
        folder = lab.home / ".claude"
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text("{}")
        (lab.home / "AGENTS.md").write_text("Be kind.\n")
        model = lab.claude(keep_sessions=keep_sessions)
        for number in range(QUESTIONS):
            assert ask(model, f"Remember {MARKER} {number}.").verdict is Verdict.OK
            delete_sessions(lab.folder)
        left = {str(path.relative_to(folder)) for path in every_file(folder)}
        assert {name for name in left if not name.startswith("backups/")} == {"settings.json"}


class TestResume:
    pytestmark: ClassVar = [pytest.mark.client, both]

    def test_a_kept_session_goes_on_and_can_be_forgotten(self, lab: Lab) -> None:
        said(lab, [Text("first-answer")], marker="first-question")
        said(lab, [Text("second-answer")], marker="second-question")
        told: list[str] = []

        async def captured(session: str) -> None:
            told.append(session)

        model = lab.claude(keep_sessions=True)
        run(model.ask(request("first-question"), on_session=captured))
        reply = run(model.ask(request("second-question"), resume=told[0], on_session=captured))
        assert (reply.verdict, reply.text) == (Verdict.OK, "second-answer")
        assert reply.usage == Usage(
            input_tokens=100, output_tokens=20
        )  # its own figures; the cost would be that of both
        assert told == [told[0]] * 2
        first, second = lab.server.requests
        assert first.session == second.session
        assert "first-question" in second.text
        assert "first-answer" in second.text
        (transcript,) = lab.home.rglob("*.jsonl")
        assert delete_sessions(lab.folder, keep_ids=[transcript.stem]) == 0
        assert delete_sessions(lab.folder) == 1
        assert list(lab.home.rglob("*.jsonl")) == []

    @pytest.mark.parametrize("unknown", ["11111111-2222-3333-4444-555555555555", "--dangerously-skip-permissions"])
    def test_an_unknown_session_is_told_as_such(self, lab: Lab, unknown: str) -> None:
        reply = ask(lab.claude(keep_sessions=True), resume=unknown)
        assert reply.verdict is Verdict.PERMANENT
        assert reply.message.startswith("resume:")
        assert lab.server.requests == []


# --- what can go wrong -----------------------------------------------------------------------------------------------

ERRORS = [
    (Verdict.PERMANENT, Fail(400, "invalid_request_error", "the test refuses this")),
    (Verdict.AUTH, Fail(401, "authentication_error", "invalid x-api-key")),
    (Verdict.AUTH, Fail(403, "permission_error", "Your account may not use this")),
    (Verdict.TOO_LONG, Fail(413, "request_too_large", "Request exceeds the maximum size")),
    (Verdict.TOO_LONG, Fail(400, "invalid_request_error", "prompt is too long: 213423 tokens > 200000 maximum")),
    (Verdict.QUOTA, Fail(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.")),
    (Verdict.RATE_LIMITED, Fail(429, "rate_limit_error", "This request would exceed your rate limit")),
    (Verdict.TRANSIENT, Fail(500, "api_error", "Internal server error")),
    (Verdict.TRANSIENT, Fail(529, "overloaded_error", "Overloaded")),
]
STOPS = [
    (Verdict.TRUNCATED, Stop("max_tokens", "half an ans")),
    (Verdict.REFUSED, Stop("refusal", "")),
    (Verdict.OK, Stop("end_turn", "")),
]


class TestVerdicts:
    pytestmark: ClassVar = [pytest.mark.client, both]

    @pytest.mark.parametrize(("verdict", "odd"), [*ERRORS, *STOPS])
    def test_each_has_one_and_costs_one_request(self, lab: Lab, verdict: Verdict, odd: Fail | Stop) -> None:
        lab.server.odd[MARKER] = odd
        reply = ask(lab.claude())
        assert (reply.verdict, len(lab.server.requests)) == (verdict, 1), reply
        assert reply.message
        assert "budget" not in reply.message
        assert reply.text == (odd.text if isinstance(odd, Stop) else "")
        assert (reply.retry_seconds is not None) == (verdict is Verdict.RATE_LIMITED)

    def test_a_plan_that_is_used_up_tells_when_it_is_renewed(self, lab: Lab) -> None:
        lab.key("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-test")
        limit = "anthropic-ratelimit-unified"
        headers = {f"{limit}-status": "rejected", f"{limit}-reset": str(int(time.time()) + 7200)}
        headers[f"{limit}-representative-claim"] = "five_hour"
        lab.server.odd[MARKER] = Fail(429, "rate_limit_error", "This would exceed your account's rate limit.", headers)
        reply = ask(lab.claude())
        assert (reply.verdict, len(lab.server.requests)) == (Verdict.QUOTA, 1), reply
        assert reply.retry_seconds is not None
        assert 7000 < reply.retry_seconds <= 7200

    def test_what_a_plan_answers_costs_nothing(self, lab: Lab) -> None:
        lab.key("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-test")
        reply = ask(lab.claude())
        assert reply.verdict is Verdict.OK
        assert reply.usage is not None
        assert reply.usage.cost is None
        assert lab.server.headers[0]["authorization"] == "Bearer sk-ant-oat01-test"

    def test_without_any_login_nothing_is_sent(self, lab: Lab) -> None:
        lab.key()
        reply = ask(lab.claude())
        assert reply.verdict is Verdict.AUTH
        assert "login" in reply.message
        assert lab.server.requests == []

    def test_no_connection_is_for_later(self, lab: Lab) -> None:
        lab.env_file.write_text(f"ANTHROPIC_API_KEY={KEY}\nANTHROPIC_BASE_URL=http://127.0.0.1:9\n")
        assert ask(lab.claude()).verdict is Verdict.TRANSIENT

    def test_a_program_that_is_not_the_client_is_for_later(self, lab: Lab) -> None:
        reply = ask(lab.claude(cli_path="/bin/false"))
        assert reply.verdict is Verdict.TRANSIENT
        assert reply.message

    def test_a_client_that_does_not_know_our_options_is_too_old(self, lab: Lab, tmp_path: Path) -> None:
        old = program(tmp_path / "old", "echo \"error: unknown option '--thinking'\" >&2", "exit 1")
        reply = ask(lab.claude(cli_path=str(old)))
        assert reply.verdict is Verdict.PERMANENT
        assert "--thinking" in reply.message


# --- programs that are not what they should be -------------------------------------------------------------------------

RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "<memory>x</memory>"}
LOGGED_OUT = {"type": "result", "subtype": "success", "is_error": True, "result": "Not logged in · Please run /login"}
SPENT = {**LOGGED_OUT, "result": "You've hit your 5-hour limit · resets 7:25pm (UTC)"}


def printing(*lines: object, code: int = 0) -> list[str]:
    return [f"printf '%s\\n' {shlex.quote(json.dumps(line))}" for line in lines] + [f"exit {code}"]


def limit(at: float) -> dict[str, Any]:
    return {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": int(at)}}


BAD = {
    "logged out": (printing(LOGGED_OUT, code=1), Verdict.AUTH, "/login"),
    "out of quota": (printing(limit(time.time() + 7200), SPENT, code=1), Verdict.QUOTA, "5-hour limit"),
    "rubbish": (["echo hello", "echo '{\"a\": '", "echo '[1, null]'"], Verdict.UNPARSEABLE, "update Claude Code"),
    "rubbish and an error": (["echo hello", "echo boom >&2", "exit 3"], Verdict.UNPARSEABLE, "update Claude Code"),
    "nothing": ([":"], Verdict.TRANSIENT, "exit status 0"),
    "an error": (["echo 'the disk is full' >&2", "exit 3"], Verdict.TRANSIENT, "the disk is full"),
    "too old": (["echo \"error: unknown option '--thinking'\" >&2", "exit 1"], Verdict.PERMANENT, "update Claude Code"),
    "100 MB in a line": (["exec head -c 100000000 /dev/zero"], Verdict.UNPARSEABLE, "8 MB"),
    "lines without end": (["exec yes '{\"type\": \"x\"}'"], Verdict.UNPARSEABLE, "8 MB"),
    "100 MB of errors": (["head -c 100000000 /dev/zero >&2", "echo the end >&2", "exit 1"], Verdict.TRANSIENT, "the end"),
    "a shape of its own": (printing({**RESULT, "is_error": True, "errors": 7, "usage": [], "result": {}}), Verdict.TRANSIENT, ""),
    "a signal": (["kill -9 $$"], Verdict.TRANSIENT, "exit status -9"),
    "no program": ([], Verdict.PERMANENT, "claude_path"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_program_that_fails_has_one_plain_verdict(tmp_path: Path, name: str) -> None:
    lines, verdict, words = BAD[name]
    script = program(tmp_path / "claude", *lines) if lines else tmp_path / "nowhere"
    reply = ask(Claude(model="", folder=tmp_path / "observer", cli_path=str(script)))
    assert reply.verdict is verdict, reply
    assert words in reply.message
    assert len(reply.message) <= claude.MESSAGE_CHARS
    assert "\n" not in reply.message
    assert reply.text == ""
    if verdict is Verdict.QUOTA:
        assert reply.retry_seconds == pytest.approx(7200, abs=600)


def test_a_program_that_can_not_be_executed_is_told_as_such(tmp_path: Path) -> None:
    script = tmp_path / "claude"
    script.write_bytes(b"\x7fELF nonsense")
    script.chmod(0o700)
    reply = ask(Claude(model="", folder=tmp_path / "observer", cli_path=str(script)))
    assert reply.verdict is Verdict.PERMANENT
    assert "cannot run" in reply.message


def test_warnings_and_an_exit_code_do_not_spoil_an_answer(tmp_path: Path) -> None:
    told = {**RESULT, "usage": {"input_tokens": 7, "output_tokens": 3}, "total_cost_usd": 0.5}
    init = {"type": "system", "subtype": "init", "session_id": "s", "apiKeySource": "ANTHROPIC_API_KEY"}
    script = program(tmp_path / "claude", "echo 'a warning' >&2", "echo not json", *printing(init, told, code=1))
    reply = ask(Claude(model="", folder=tmp_path / "observer", cli_path=str(script)))
    assert (reply.verdict, reply.text) == (Verdict.OK, "<memory>x</memory>")
    assert reply.usage == Usage(input_tokens=7, output_tokens=3, cost=0.5)


def test_the_question_is_on_stdin_and_not_among_the_arguments(tmp_path: Path) -> None:
    script = program(
        tmp_path / "claude",
        f"printf '%s\\n' \"$@\" > {tmp_path}/arguments",
        f"cat > {tmp_path}/stdin",
        f"env > {tmp_path}/environment",
        f"pwd > {tmp_path}/folder",
        *printing(RESULT),
    )
    folder = tmp_path / "observer"
    assert ask(Claude(model="", folder=folder, cli_path=str(script))).verdict is Verdict.OK
    assert MARKER in (tmp_path / "stdin").read_text()
    assert MARKER not in (tmp_path / "arguments").read_text()
    assert "CLAUDE_MEM_INTERNAL=1\n" in (tmp_path / "environment").read_text()
    assert (tmp_path / "folder").read_text() == f"{folder}\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["trap '' TERM INT HUP", "while :; do sleep 1; done"],
        [*printing(RESULT)[:-1], "trap '' TERM", "sleep 600 & wait"],
    ],
    ids=["without an answer", "after its answer"],
)
def test_a_program_that_does_not_want_to_end_is_ended(tmp_path: Path, lines: list[str]) -> None:
    script = program(tmp_path / "claude", f"echo $$ > {tmp_path}/pid", *lines)
    reply = ask(Claude(model="", folder=tmp_path / "observer", cli_path=str(script), seconds=2.0))
    assert reply.verdict is (Verdict.OK if reply.text else Verdict.TRANSIENT)
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())), "it still runs")


# --- the end of everything -------------------------------------------------------------------------------------------

DRIVER = """
import asyncio, sys
from pathlib import Path
from claude_mem.digest.models.base import Request
from claude_mem.digest.models.claude import Claude

async def captured(session): pass

async def main():
    model = Claude(model="", folder=Path(sys.argv[1]), env_file=sys.argv[2], cli_path=sys.argv[3])
    await model.ask(Request(system="s", prompt=sys.argv[4], fence="f", max_tokens=100), on_session=captured)

asyncio.run(main())
"""


class TestEnd:
    """The model holds its answer back; then something happens, and nothing may be left."""

    pytestmark = pytest.mark.client

    @pytest.fixture(autouse=True)
    def _hold(self, lab: Lab) -> None:
        said(lab, [Hold("answer"), Text("too late")])

    def during(
        self,
        lab: Lab,
        act: Callable[[Claude, asyncio.Task[Reply]], Awaitable[None]],
        loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> tuple[Reply | None, float]:
        """Act while the client waits for its answer. The reply, if there is one, and the moment of the act."""

        async def scene() -> tuple[Reply | None, float]:
            model = lab.claude()
            asking = asyncio.create_task(model.ask(request(), on_session=ignored))
            await held(lab, "answer")
            assert len(lab.processes()) == 2
            assert (
                list(lab.home.rglob("*.key")) == []
            )  # each comes with a socket for other sessions to talk to this one
            began = time.monotonic()
            await act(model, asking)
            try:
                reply = await asking
            except asyncio.CancelledError:
                reply = None
            lab.assert_gone(began)
            wait_for(lambda: not self.notes(lab), "the note of a killed client is left")
            return reply, began

        return run(scene(), loop)

    def notes(self, lab: Lab) -> list[Path]:
        delete_sessions(lab.folder)  # once init has taken the dead one away
        return list((lab.home / ".claude" / "sessions").iterdir())

    @pytest.mark.parametrize("loop", LOOPS)
    def test_a_deadline(self, lab: Lab, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        async def scene() -> Reply:
            began = time.monotonic()
            reply = await lab.claude(seconds=3.0).ask(request(), on_session=ignored)
            lab.assert_gone(began + 3.0)
            return reply

        reply = run(scene(), loop)
        assert len(lab.server.requests) <= 1
        assert (reply.verdict, reply.message) == (Verdict.TRANSIENT, "no answer within 3 seconds")

    @pytest.mark.parametrize("loop", LOOPS)
    def test_a_cancelled_task(self, lab: Lab, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        async def cancel(_: Claude, asking: asyncio.Task[Reply]) -> None:
            asking.cancel()

        reply, _ = self.during(lab, cancel, loop)
        assert reply is None

    @pytest.mark.parametrize("pause", [0.0, 0.05, 0.3, 0.9])
    def test_a_task_that_is_cancelled_early(self, lab: Lab, pause: float) -> None:
        """Before there is a process, before the child has read its line, while it imports, while the client starts."""

        async def scene() -> None:
            asking = asyncio.create_task(lab.claude().ask(request(), on_session=ignored))
            await asyncio.sleep(pause)
            began = time.monotonic()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            lab.assert_gone(began)

        run(scene())

    @pytest.mark.parametrize("part", ["claude_child", "stream-json"])
    def test_a_killed_child_or_client(self, lab: Lab, part: str) -> None:
        async def kill(_: Claude, asking: asyncio.Task[Reply]) -> None:
            os.kill(lab.one(part), signal.SIGKILL)

        reply, _ = self.during(lab, kill)
        assert reply is not None
        assert reply.verdict is Verdict.TRANSIENT
        assert reply.usage is None

    def test_a_closed_provider(self, lab: Lab) -> None:
        async def close(model: Claude, asking: asyncio.Task[Reply]) -> None:
            await model.close()
            assert (await model.ask(request(), on_session=ignored)).verdict is Verdict.TRANSIENT

        reply, _ = self.during(lab, close)
        assert reply is not None
        assert reply.verdict is Verdict.TRANSIENT
        assert len(lab.server.requests) == 1

    def test_a_caller_that_fails(self, lab: Lab) -> None:
        async def captured(session: str) -> None:
            raise RuntimeError(session)

        async def scene() -> None:
            with pytest.raises(RuntimeError):
                await lab.claude().ask(request(), on_session=captured)
            lab.assert_gone(time.monotonic())

        run(scene())

    @pytest.mark.parametrize("busy", [False, True], ids=["while the child starts", "while the model is asked"])
    def test_a_worker_that_is_killed(self, lab: Lab, busy: bool) -> None:
        command = [sys.executable, "-c", DRIVER, lab.folder, lab.env_file, BINARY, MARKER]
        env = {"HOME": str(lab.home), "PATH": os.environ["PATH"]}
        with subprocess.Popen([str(part) for part in command], env=env) as worker:
            if busy:
                lab.server.wait_held("answer")
                assert len(lab.processes()) == 3
            else:
                wait_for(lambda: len(lab.processes()) == 2, "no child")
            others = set(lab.processes()) - {worker.pid}
            began = time.monotonic()
            worker.kill()
            wait_for(lambda: not any(map(alive, others)), "it outlived the worker")
            assert time.monotonic() - began <= GONE_SECONDS or not LONG  # a figure of a quiet machine


class TestNumbers:
    pytestmark = pytest.mark.client

    def test_there_is_never_more_than_one_child(self, lab: Lab) -> None:
        counts: list[int] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.01):
                counts.append(len({group(pid) for pid in lab.processes()} - {0}))

        async def scene() -> list[Reply]:
            model = lab.claude()
            return await asyncio.gather(*(model.ask(request(), on_session=ignored) for _ in range(3)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            replies = run(scene())
        finally:
            over.set()
            watcher.join()
        assert [reply.verdict for reply in replies] == [Verdict.OK] * 3
        assert max(counts) == 1

    def test_none_is_left_after_four(self, lab: Lab) -> None:
        self.batches(lab, 4)

    @pytest.mark.skipif(not LONG, reason="takes minutes: `make test-long` runs it")
    @pytest.mark.timeout(900)
    def test_none_is_left_after_a_hundred(self, lab: Lab, record_property: Callable[[str, object], None]) -> None:
        record_property("seconds", self.batches(lab, 100))

    def batches(self, lab: Lab, count: int) -> float:
        async def scene() -> float:
            model = lab.claude()
            began = time.monotonic()
            for _ in range(count):
                assert (await model.ask(request(), on_session=ignored)).verdict is Verdict.OK
                lab.assert_gone(time.monotonic())
            return time.monotonic() - began

        descriptors = len(os.listdir("/proc/self/fd"))
        seconds = run(scene())
        wait_for(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "descriptors left open")
        assert len(lab.server.requests) == count
        assert list(lab.home.rglob("*.jsonl")) == []
        return seconds


# --- it does not observe itself --------------------------------------------------------------------------------------

OURS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "Stop": "summary",
    "SessionEnd": "cleanup",
}  # of a session
ITSELF = "CLAUDE_MEM_PROOF=build/proof pytest tests/models/test_claude.py -k itself"


def hook_of(event: str, data: Path) -> list[str]:
    """As the installer writes it: the folder is part of the command, for the environment may be anyone's."""
    return [*HOOK, OURS[event], str(data)]


def spooled(data: Path) -> list[Path]:
    return list(data.glob("spool/*"))


class TestItself:
    def observe(self, folder: Path, data: Path, env: dict[str, str]) -> None:
        """All that our hooks would be told of one compression, with what the client was given."""
        for event in OURS:
            told = {
                "session_id": "own",
                "hook_event_name": event,
                "cwd": str(folder),
                "prompt": MARKER,
                "source": "startup",
            }
            done = subprocess.run(
                hook_of(event, data),
                input=json.dumps(told).encode(),
                cwd=folder,
                env=env,
                capture_output=True,
                check=True,
            )
            assert done.stdout == b'{"continue": true, "suppressOutput": true}'

    def test_itself_it_never_observes(self, tmp_path: Path) -> None:
        count = 1000 if proof.long() else 3
        data, file = tmp_path / "data", tmp_path / "claude.env"
        folder = data / "observer"
        folder.mkdir(parents=True, mode=0o700)
        file.write_text("CLAUDE_MEM_INTERNAL=\nANTHROPIC_API_KEY=k\n")
        env = build_environment(os.environ, str(file), max_tokens=900)
        for _ in range(count):
            self.observe(folder, data, env)
        own = len(spooled(data))
        proof.record(
            "events of its own that the hooks captured", of="R9", goal="0 in 1,000 compressions", measured=own, ok=not own,
            command=ITSELF, note=f"{count:,} × the {len(OURS)} hooks of a session, in the folder and environment of ours",
        )  # fmt: skip
        assert own == 0
        (data / "worker.starting").touch()  # no hook starts a worker
        self.observe(folder, data, {name: value for name, value in env.items() if name != "CLAUDE_MEM_INTERNAL"})
        assert len(spooled(data)) == len(OURS), "else the mark is not what kept them away"
        self.second_guard(data, count)

    def second_guard(self, data: Path, count: int) -> None:
        """What came into the spool all the same is known by its folder."""
        (record,) = [path.read_bytes() for path in spooled(data) if b"command new" in path.read_bytes()]
        for number in range(count):
            (data / "spool" / f"{time.time_ns():016x}-{number:08x}").write_bytes(record)
        drained = forks.run(["drain"], {"PATH": os.environ["PATH"], "CLAUDE_MEM_DATA_DIR": str(data)})
        assert drained.returncode == 0, drained.stderr
        conn = apsw.Connection(str(data / "claude-mem.db"), flags=apsw.SQLITE_OPEN_READONLY)
        ((events, filtered),) = conn.execute(
            "select (select count(*) from events), (select count(*) from receipts where rule = 'observer')"
        )
        conn.close()
        proof.record(
            "events of its own that were kept, had they been captured", of="R9", goal="0", measured=events, ok=not events,
            command=ITSELF, note=f"{filtered:,} told apart by their folder",
        )  # fmt: skip
        assert (events, filtered) == (0, count + len(OURS))


class TestItselfForReal:
    pytestmark = pytest.mark.client

    def test_itself_the_real_client_has_no_hook_of_ours(self, lab: Lab, tmp_path: Path) -> None:
        """Though they are installed for this user."""
        data, count = tmp_path / "data", 60 if proof.long() else 1
        data.mkdir()
        (data / "worker.starting").touch()
        hooks = {
            event: [{"hooks": [{"type": "command", "command": shlex.join(hook_of(event, data)), "timeout": 5}]}]
            for event in OURS
        }
        (lab.home / ".claude").mkdir(exist_ok=True)
        (lab.home / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))

        async def scene() -> list[Verdict]:
            model = lab.claude()
            return [(await model.ask(request(), on_session=ignored)).verdict for _ in range(count)]

        assert run(scene()) == [Verdict.OK] * count
        own = len(spooled(data))
        proof.record(
            "events of its own, with the real client and our hooks installed", of="R9", goal="0", measured=own, ok=not own,
            command=ITSELF, note=f"{count} compressions",
        )  # fmt: skip
        assert own == 0
        assert len(lab.server.requests) == count


# --- can it be used --------------------------------------------------------------------------------------------------


class TestUsable:
    @pytest.fixture(autouse=True)
    def _sdk_is_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        spec = importlib.util.spec_from_loader("claude_agent_sdk", loader=None, is_package=True)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
        monkeypatch.setattr(claude_program, "_IN_SYSTEM", ())

    def test_the_sdk_is_needed_only_by_those_who_have_chosen_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        script = program(tmp_path / "claude", """echo '{"loggedIn": true}'""")
        assert run(find_problem(str(script))) == ""
        assert "pip install 'claude-mem-py[claude]'" in run(find_problem(str(script), sdk=True))

    def test_not_without_the_program(self, tmp_path: Path) -> None:
        assert "install Claude Code" in run(find_problem())
        assert "claude_path" in run(find_problem(str(tmp_path / "nowhere")))

    @pytest.mark.parametrize("place", ["home/.claude/local/claude", "home/.local/bin/claude"])
    def test_the_program_is_found_in_the_usual_places(self, tmp_path: Path, place: str) -> None:
        script = program(tmp_path / place, """echo '{"loggedIn": true, "other": 1}'""")
        assert claude_program.find_program() == str(script)
        assert run(find_problem()) == ""

    def test_a_program_that_is_only_on_the_path_is_not_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker's `PATH` is that of whatever project the hook was run in."""
        monkeypatch.setenv("PATH", f"{tmp_path / 'project' / 'bin'}:{os.environ['PATH']}")
        program(tmp_path / "project" / "bin" / "claude", f"touch {tmp_path}/was-run")
        assert "not found" in run(find_problem())
        reply = ask(Claude(model="", folder=tmp_path / "observer"))
        assert (reply.verdict, reply.usage) == (Verdict.PERMANENT, None)
        assert "claude_path" in reply.message
        assert not (tmp_path / "was-run").exists()

    @pytest.mark.parametrize("mode", [0o702, 0o600])
    def test_a_program_that_others_may_change_or_nobody_may_run_is_not(self, tmp_path: Path, mode: int) -> None:
        program(tmp_path / "home" / ".local" / "bin" / "claude").chmod(mode)
        assert claude_program.find_program() == ""

    def test_not_even_if_the_settings_name_it(self, tmp_path: Path) -> None:
        script = program(tmp_path / "bin" / "claude", f"touch {tmp_path}/was-run")
        script.chmod(0o707)
        said = run(find_problem(str(script)))
        assert "anyone can change it" in said
        assert "claude_path" in said
        assert ask(Claude(model="", folder=tmp_path / "observer", cli_path=str(script))).message == said
        assert not (tmp_path / "was-run").exists()

    def test_what_the_program_runs_is_not_the_projects_either(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An npm installation begins with `#!/usr/bin/env node`."""
        monkeypatch.setenv("PATH", f"{tmp_path / 'project'}:{os.environ['PATH']}")
        own = program(tmp_path / "own" / "node", """echo '{"loggedIn": true}'""")
        program(tmp_path / "project" / "node", f"touch {tmp_path}/was-run")
        script = own.with_name("claude")
        script.write_text("#!/usr/bin/env node\n")
        script.chmod(0o700)
        assert run(find_problem(str(script))) == ""
        assert not (tmp_path / "was-run").exists()

    def test_the_program_that_came_with_the_sdk_is_the_last_resort(self, tmp_path: Path) -> None:
        spec = importlib.util.find_spec("claude_agent_sdk")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        spec.submodule_search_locations.append(str(tmp_path / "sdk"))
        bundled = program(tmp_path / "sdk" / "_bundled" / "claude")
        assert claude_program.find_program() == str(bundled)

    def test_not_without_a_login(self, tmp_path: Path) -> None:
        script = program(tmp_path / "bin" / "claude", """echo '{"loggedIn": false}'; exit 1""")
        assert "/login" in run(find_problem(str(script)))

    def test_a_credential_in_the_users_file_is_enough(self, tmp_path: Path) -> None:
        script = program(tmp_path / "bin" / "claude", "exit 1")
        (tmp_path / "env").write_text("CLAUDE_CODE_OAUTH_TOKEN=x\n")
        assert run(find_problem(str(script), str(tmp_path / "env"))) == ""
        assert "claude_env_file" in run(find_problem(str(script), str(tmp_path / "missing")))

    def test_the_login_is_asked_for_in_a_clean_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "foreign")
        script = program(
            tmp_path / "bin" / "claude",
            """echo "{\\"loggedIn\\": ${ANTHROPIC_API_KEY:+true}${ANTHROPIC_API_KEY:-false}}" """,
        )
        assert "/login" in run(find_problem(str(script)))

    def test_a_program_that_hangs_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(claude, "STATUS_SECONDS", 0.3)
        script = program(tmp_path / "bin" / "claude", f"echo $$ > {tmp_path}/pid", "while :; do :; done")
        assert "did not answer" in run(find_problem(str(script)))
        assert not alive(int((tmp_path / "pid").read_text()))

    def test_a_program_that_says_something_else_is_too_old(self, tmp_path: Path) -> None:
        script = program(tmp_path / "bin" / "claude", "echo hello")
        assert "update" in run(find_problem(str(script)))


class TestRealStatus:
    pytestmark = pytest.mark.client

    def test_the_real_client_is_asked_whether_it_is_logged_in(self, lab: Lab) -> None:
        lab.env_file.write_text("\n")
        assert "/login" in run(find_problem(str(BINARY), str(lab.env_file)))
        lab.key("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-test")
        assert run(find_problem(str(BINARY), str(lab.env_file))) == ""
        assert lab.server.requests == []


# --- the environment -------------------------------------------------------------------------------------------------


def test_the_environment_is_built_from_nothing() -> None:
    inherited = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "XDG_RUNTIME_DIR": "/run",
        "CLAUDE_CONFIG_DIR": "/c",
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_OAUTH_TOKEN": "k",
        "CLAUDECODE": "1",
        "AWS_PROFILE": "k",
        "HTTPS_PROXY": "http://p",
        "NODE_OPTIONS": "--require evil",
        "LD_PRELOAD": "evil.so",
        "PYTHONPATH": "/evil",
        "CLAUDE_MEM_FAILPOINT": "x",
    }
    built = build_environment(inherited, program="/opt/claude/bin/claude", max_tokens=700)
    assert built["PATH"] == "/opt/claude/bin:/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
    assert {name for name in built if name in inherited} == {
        "PATH",
        "HOME",
        "LC_ALL",
        "XDG_RUNTIME_DIR",
        "CLAUDE_CONFIG_DIR",
    }
    assert built["CLAUDE_MEM_INTERNAL"] == "1"
    assert built["CLAUDE_CODE_MAX_RETRIES"] == "0"
    assert built["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "700"


def test_the_users_file_adds_but_does_not_undo_our_promises(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("HTTPS_PROXY=http://p\nHOME=/other\nCLAUDE_CODE_MAX_RETRIES=10\nCLAUDE_MEM_INTERNAL=\n")
    built = build_environment({"HOME": "/h"}, str(file))
    assert (built["HTTPS_PROXY"], built["HOME"]) == ("http://p", "/other")
    assert (built["CLAUDE_CODE_MAX_RETRIES"], built["CLAUDE_MEM_INTERNAL"]) == ("0", "1")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=b", {"A": "b"}),
        ("  A = b  ", {"A": "b"}),
        ("export A=b", {"A": "b"}),
        ("A=", {"A": ""}),
        ("A=b=c#d", {"A": "b=c#d"}),
        ("A=b c # why", {"A": "b c"}),
        ("A=# why", {"A": ""}),
        ("A='b # c'", {"A": "b # c"}),
        ('A="b \' c" # why', {"A": "b ' c"}),
        ('A="b', {"A": '"b'}),
        ("# A=b", {}),
        ("", {}),
        ("\ufeffA=b", {"A": "b"}),
        ("A=b\r\nB=c", {"A": "b", "B": "c"}),
    ],
)
def test_a_line_of_the_users_file(tmp_path: Path, line: str, expected: dict[str, str]) -> None:
    (tmp_path / "env").write_bytes(line.encode())
    assert read_env_file(tmp_path / "env") == expected


@pytest.mark.parametrize("line", ["sk-ant-secret", "1A=sk-ant-secret", "A-B=sk-ant-secret", "A=sk-ant-secret\0"])
def test_a_line_that_makes_no_sense_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "env").write_text(f"A=b\n{line}\n")
    with pytest.raises(OperationFailed, match="line 2") as caught:
        read_env_file(tmp_path / "env")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"A=\xff\xfe"])
def test_a_users_file_that_cannot_be_read_is_a_matter_of_login(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "env"
    if content is not None:
        file.write_bytes(content)
    reply = ask(Claude(model="", folder=tmp_path / "observer", env_file=str(file), cli_path="/bin/false"))
    assert reply.verdict is Verdict.AUTH
    assert str(file) in reply.message
    assert not (tmp_path / "observer").exists()


def test_without_the_program_there_is_no_point_in_asking_again(tmp_path: Path) -> None:
    reply = ask(Claude(model="", folder=tmp_path / "observer", cli_path=str(tmp_path / "nowhere")))
    assert reply.verdict is Verdict.PERMANENT


# --- the two sides ---------------------------------------------------------------------------------------------------


def test_the_worker_does_not_import_the_sdk() -> None:
    probe = "import sys, claude_mem.digest.models.claude; sys.exit('claude_agent_sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_a_child_without_the_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    lines: list[ChildMessage] = []
    run(
        claude_child.answer_question(
            ProgramRequest(system="s", prompt="p", model="m", folder="/", program="/bin/false", sdk=True), lines.append
        )
    )
    (line,) = lines
    assert line.reply is not None
    assert line.reply.verdict is Verdict.PERMANENT
    assert "pip install" in line.reply.message


@pytest.mark.parametrize("program", ["print('x' * 2**21)", "print('{\"reply\"')", "print('[]')", "pass"])
def test_a_child_that_talks_nonsense_is_for_later(tmp_path: Path, program: str) -> None:
    async def scene() -> Reply:
        process = await claude._start(sys.executable, "-c", program, cwd=tmp_path, env={}, stdin=subprocess.PIPE)
        try:
            return await claude._talk(process, b"x" * 2**20 + b"\n", ignored)
        finally:
            await claude._end(process)

    assert run(scene()).verdict is Verdict.TRANSIENT


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("You've hit your session limit · resets 3pm", Verdict.QUOTA),
        ("You've hit your limit · resets 3:24pm (UTC)", Verdict.QUOTA),
        ("You've hit your monthly spend limit.", Verdict.QUOTA),
        ("You're out of extra usage", Verdict.QUOTA),
        ("Claude AI usage limit reached|1794756257", Verdict.QUOTA),
        ("Login expired · Please run /login", Verdict.AUTH),
        ("API Error: 401 Invalid API key · Please run /login", Verdict.AUTH),
        ("API Error: Stream ended without receiving any events", Verdict.TRANSIENT),
        ("API Error: Request timed out.", Verdict.TRANSIENT),
    ],
)
def test_the_clients_own_words_decide_where_it_gives_no_status(words: str, verdict: Verdict) -> None:
    assert classify_error(words, kind="unknown") is verdict


def test_a_limit_of_ours_without_an_answer_is_no_answer() -> None:
    heard = ProgramRun(finished=True, failed=True, subtype="error_max_budget_usd", words="Reached maximum budget")
    assert claude_child.reply_from_run(heard).verdict is Verdict.TRANSIENT


# --- transcripts -----------------------------------------------------------------------------------------------------


def transcript(folder: Path, name: str, *lines: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_only_our_transcripts_are_forgotten(tmp_path: Path) -> None:
    ours = tmp_path / "data" / "obs.erver"
    projects = tmp_path / "home" / ".claude" / "projects"
    slug = str(ours).translate(dict.fromkeys(map(ord, "/._"), "-"))
    place = projects / slug
    told = transcript(place, "told", {"type": "queue-operation"}, {"cwd": str(ours)})
    silent = transcript(place, "silent", {"type": "queue-operation", "content": "a question"})
    kept = transcript(place, "kept", {"cwd": str(ours)})
    twin = transcript(place, "twin", {"cwd": str(tmp_path / "data" / "obs-erver")})
    other = transcript(projects / f"{slug}-more", "other", {"cwd": str(ours / "more")})
    (place / "told" / "subagents").mkdir(parents=True)
    assert delete_sessions(ours, keep_ids={"kept"}) == 2
    assert [path.exists() for path in (told, silent, kept, twin, other)] == [False, False, True, True, True]
    assert not (place / "told").exists()
    kept.unlink()
    twin.unlink()
    assert delete_sessions(ours) == 0
    assert not place.exists()


def test_transcripts_are_looked_for_where_the_client_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tmp_path / "d"
    slug = str(ours).translate(dict.fromkeys(map(ord, "/._"), "-"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    transcript(tmp_path / "config" / "projects" / slug, "a", {"cwd": str(ours)})
    assert delete_sessions(ours) == 1
    (tmp_path / "env").write_text(f"CLAUDE_CONFIG_DIR={tmp_path / 'named'}\n")
    transcript(tmp_path / "named" / "projects" / slug, "a", {"cwd": str(ours)})
    assert delete_sessions(ours) == 0
    assert delete_sessions(ours, env_file=str(tmp_path / "env")) == 1


def test_a_long_folder_has_a_name_we_can_only_begin(tmp_path: Path) -> None:
    ours = tmp_path / ("x" * 120) / ("y" * 120)
    slug = str(ours).translate(dict.fromkeys(map(ord, "/._"), "-"))[:200]
    projects = tmp_path / "home" / ".claude" / "projects"
    mine = transcript(projects / f"{slug}-1a2b", "a", {"cwd": str(ours)})
    other = transcript(projects / f"{slug}-3c4d", "a", {"cwd": f"{ours}z"})
    assert delete_sessions(ours) == 1
    assert (mine.exists(), other.exists()) == (False, True)
