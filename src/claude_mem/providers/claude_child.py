"""The process that asks Claude through the Agent SDK: one question, one answer, and it is gone.

`providers/claude.py` starts it in a session of its own and writes one JSON line, an `Ask`. It answers with JSON lines, each a
`Line`: the id of the model's session as soon as there is one, then the reply. Its stdin stays open as long as the worker
lives; when it closes, nobody waits for an answer any more, and everything here ends at once.

The SDK (68 MB) is imported here and nowhere else. What is known about the client below was seen with Claude Code 2.1.325 and
claude-agent-sdk 0.2.182 against a scripted server.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from claude_mem.providers.base import Reply, Usage, Verdict

INSTALL = "the Claude Agent SDK is not installed: `pip install 'claude-mem-py[claude]'`"
RATE_SECONDS = 60.0  # the client does not pass `retry-after` on
# The client goes on by itself after `max_tokens` (three more requests), an empty answer (one more) or a refusal, and
# `max_turns` does not count those. What it does look at after each answer is its budget: with less than any answer costs, the
# first one is the last. It then reports `error_max_budget_usd` instead of success.
BUDGET_DOLLARS = 1e-9
OUR_LIMITS = ("error_max_budget_usd", "error_max_turns")
# A built-in plugin that reads AGENTS.md writes what it has read to `plugins/store` in the user's folder, and the client does
# not wait for that when it ends: half of a file stayed there after every few questions. It has nothing to read here.
SETTINGS = {"enabledPlugins": {"agents-md@builtin": False, "cc-plugin-agents-md@builtin": False}}
SYNTHETIC = "<synthetic>"  # the "model" of words the client puts in itself: "API Error: 500 …"

_STOPPED = {
    "max_tokens": Verdict.TRUNCATED,
    "refusal": Verdict.REFUSED,
    "model_context_window_exceeded": Verdict.TOO_LONG,
}
# `AssistantMessage.error`; `invalid_request` and `unknown` say nothing by themselves.
_KINDS = {
    "authentication_failed": Verdict.AUTH,  # 401, 403, and without any request: "Not logged in · Please run /login"
    "oauth_org_not_allowed": Verdict.AUTH,
    "account_on_hold": Verdict.AUTH,
    "verification_required": Verdict.AUTH,
    "cloud_credential_error": Verdict.AUTH,
    "billing_error": Verdict.QUOTA,  # 400 "Credit balance is too low"
    "rate_limit": Verdict.RATE_LIMITED,  # 429, of a plan too: "You've hit your limit · resets 3:24pm (UTC)"
    "overloaded": Verdict.TRANSIENT,
    "server_error": Verdict.TRANSIENT,  # 500, 529, and no connection at all
    "model_not_found": Verdict.PERMANENT,  # 404
    "max_output_tokens": Verdict.TRUNCATED,
}
_STATUS = {
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
_SPENT = re.compile(
    r"hit your .{0,60}limit|usage limit|spend limit|out of (?:extra )?usage|credit balance|(?:weekly|monthly) limit",
    re.I,
)
_NO_LOGIN = re.compile(r"please run /login|not logged in|invalid api key", re.I)
_TOO_OLD = re.compile(r"unknown option", re.I)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that comes in. How much may be said stands in the environment, where the client looks for it."""

    system: str
    prompt: str
    model: str
    folder: str
    client: str
    resume: str = ""
    keep: bool = False


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that goes out: the one or the other."""

    session_id: str = ""
    reply: Reply | None = None


Say = Callable[[Line], None]


@dataclass(slots=True)
class Heard:
    """What the client has said so far."""

    session_id: str = ""
    texts: list[str] = field(default_factory=list)
    model: str = ""
    stop: str = ""
    kind: str = ""
    words: str = ""
    status: int | None = None
    subtype: str = ""
    failed: bool = False
    over: bool = False
    resets_at: float | None = None
    counted: list[dict[str, Any]] = field(default_factory=list)
    dollars: float | None = None
    paid: bool = False  # by the request, not by a plan
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    def note(self, message: Any) -> None:
        """Take in a message of the SDK."""
        match type(message).__name__:
            case "SystemMessage" if message.subtype == "init":
                self.session_id = str(message.data.get("session_id") or "")
                self.paid = message.data.get("apiKeySource") not in (None, "none")
            case "SystemMessage" if message.subtype.startswith("model_refusal"):
                self.stop = "refusal"  # the end of a refused answer is not among the events
            case "StreamEvent":
                self._note_event(message.event)
            case "AssistantMessage":
                self._note_words(message)
            case "RateLimitEvent" if message.rate_limit_info.status == "rejected":
                self.resets_at = message.rate_limit_info.resets_at
            case "ResultMessage":
                self._note_result(message)

    def _note_event(self, event: dict[str, Any]) -> None:
        """The only place with this answer's figures and end: the result has zeros for a budget that is used up, and the
        sum of all its turns for a session that went on."""
        if event.get("type") == "message_start":
            self.counted.append(dict(event["message"].get("usage") or {}))
        elif event.get("type") == "message_delta":
            self.stop = event["delta"].get("stop_reason") or self.stop
            if self.counted:
                self.counted[-1] |= {key: value for key, value in (event.get("usage") or {}).items() if value}

    def _note_words(self, message: Any) -> None:
        said = [block.text for block in message.content if type(block).__name__ == "TextBlock"]
        if message.model == SYNTHETIC:
            self.kind, self.words = message.error or "unknown", " ".join(said)
        else:
            self.model = message.model
            self.texts += said

    def _note_result(self, message: Any) -> None:
        self.over = True
        self.failed, self.subtype, self.status = message.is_error, message.subtype, message.api_error_status
        self.words = self.words or " ".join(message.errors or ()) or message.result or ""
        self.stop = self.stop or message.stop_reason or ""
        self.dollars = message.total_cost_usd
        if not self.counted and message.usage:
            self.counted.append(message.usage)


def reply(heard: Heard, *, resumed: bool = False) -> Reply:
    """What a finished run means."""
    verdict = judge(heard)
    spoke = verdict in (Verdict.OK, Verdict.TRUNCATED, Verdict.REFUSED)
    return Reply(
        verdict=verdict,
        text="".join(heard.texts) if spoke else "",
        usage=usage(heard, resumed=resumed),
        model=heard.model,
        message=heard.stop if spoke and not heard.kind else heard.words,
        retry_seconds=wait(heard, verdict, now=time.time()),
    )


def judge(heard: Heard) -> Verdict:
    if heard.stop in _STOPPED:
        return _STOPPED[heard.stop]
    if not heard.failed or (heard.subtype in OUR_LIMITS and heard.stop):
        return Verdict.OK
    return blame(heard.words, kind=heard.kind, status=heard.status)


def blame(words: str, *, kind: str = "", status: int | None = None) -> Verdict:
    """Whose fault an error is. First the words, which are more exact than the rest: 413 is "invalid_request" and a plan
    that is used up is "rate_limit"."""
    if _TOO_LONG.search(words):
        return Verdict.TOO_LONG
    if _SPENT.search(words):
        return Verdict.QUOTA
    if _NO_LOGIN.search(words):
        return Verdict.AUTH
    if kind in _KINDS:
        return _KINDS[kind]
    if status is not None and status < 500:
        return _STATUS.get(status, Verdict.PERMANENT)
    return Verdict.TRANSIENT  # 5xx, or no status: "Stream ended without receiving any events"


def wait(heard: Heard, verdict: Verdict, *, now: float) -> float | None:
    """How long it is pointless to ask again, in seconds."""
    if heard.resets_at and verdict in (Verdict.QUOTA, Verdict.RATE_LIMITED):
        return max(heard.resets_at - now, 1.0)
    return RATE_SECONDS if verdict is Verdict.RATE_LIMITED else None


def usage(heard: Heard, *, resumed: bool) -> Usage | None:
    if not heard.counted:
        return None
    new, cached, written, out = (
        sum(_count(one.get(name)) for one in heard.counted)
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    )
    # What a resumed session tells is its cost since it began; what a plan tells is not paid.
    dollars = heard.dollars if heard.paid and not resumed else None
    return Usage(
        input_tokens=new + cached + written,
        cached_tokens=cached,
        written_tokens=written,
        output_tokens=out,
        cost=dollars,
    )


def _count(given: Any) -> int:
    return given if isinstance(given, int) and given > 0 else 0


def failure(error: Exception, heard: Heard) -> Reply:
    """A run without a result: the client could not be started, refused its arguments, or died."""
    words = " ".join([*(getattr(error, "errors", None) or [str(error)]), *heard.stderr])
    if _NO_SESSION.search(words):
        return Reply(verdict=Verdict.PERMANENT, message=f"resume: {words}")
    name = type(error).__name__
    if name == "CLINotFoundError" or _TOO_OLD.search(words):
        return Reply(verdict=Verdict.PERMANENT, message=words)
    return Reply(verdict=blame(words, status=getattr(error, "api_error_status", None)), message=f"{name}: {words}")


def options(sdk: Any, ask: Ask, heard: Heard) -> Any:
    """Nothing but the question: no tools, settings, CLAUDE.md, plugins, servers or, unless it is to go on, transcript."""
    return sdk.ClaudeAgentOptions(
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        permission_mode="dontAsk",
        system_prompt=ask.system,
        # Without it `@/path` in the text of a turn would make the client read that file, and `/name` run a command.
        verbatim_prompts=True,
        max_turns=1,
        max_budget_usd=BUDGET_DOLLARS,
        thinking={"type": "disabled"},
        include_partial_messages=True,
        model=ask.model,
        cwd=ask.folder,
        cli_path=ask.client,
        resume=ask.resume or None,
        settings=json.dumps(SETTINGS),
        extra_args={} if ask.keep else {"no-session-persistence": None},
        stderr=heard.stderr.append,
    )


async def _prompts(text: str) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "session_id": ""}


async def answer(ask: Ask, say: Say) -> None:
    """Ask, and say what is heard as soon as it is."""
    heard = Heard()
    try:
        sdk = importlib.import_module("claude_agent_sdk")
        async for message in sdk.query(prompt=_prompts(ask.prompt), options=options(sdk, ask, heard)):
            known, over = heard.session_id, heard.over
            heard.note(message)
            if heard.session_id != known:
                say(Line(session_id=heard.session_id))
            if heard.over and not over:
                say(Line(reply=reply(heard, resumed=bool(ask.resume))))
    except ImportError as error:
        say(Line(reply=Reply(verdict=Verdict.PERMANENT, message=f"{INSTALL} ({error})")))
    except Exception as error:  # outermost: whatever it is, the worker is told
        if not heard.over:  # after an error result the SDK raises as well
            say(Line(reply=failure(error, heard)))


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
