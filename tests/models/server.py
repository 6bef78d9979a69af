"""A model on loopback that does what a test tells it to, in both HTTP dialects: well, badly or not at all.

A test gives one behaviour a request; the last one is repeated. Everything that arrives is recorded, also what is on no known path,
so that a test can say what was *not* sent. Threads are daemons and nothing is printed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpcore2

from tests.support.waiting import SECONDS

Json = dict[str, Any]

UNRESOLVED = "http://model.invalid"  # a name that no resolver may know (RFC 2606)
PATIENCE = SECONDS  # what hangs ends by itself before the test's own timeout
ANTHROPIC, OPENAI = "anthropic", "openai"
_OPENAI_STOPS = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter"}


# --- behaviours ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """A whole answer in the dialect of the path. `stop` is in Anthropic's words."""

    text: str
    stop: str = "end_turn"
    model: str = "scripted-1"
    input_tokens: int = 1200
    cached_tokens: int = 0
    output_tokens: int = 300


@dataclass(frozen=True, slots=True)
class Mirror:
    """A whole answer made of the question."""

    make: Callable[[Seen], str]


@dataclass(frozen=True, slots=True)
class Answer:
    """Any status, headers and body."""

    status: int = 200
    body: bytes | Json = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that need not be HTTP; then the connection ends."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Hang:
    """Not one byte, until the client or the test has had enough."""


@dataclass(frozen=True, slots=True)
class Dribble:
    """A right answer, one byte at a time: each arrives in time, all of them together do not."""

    text: str = "slow " * 200
    pause: float = 0.02


@dataclass(frozen=True, slots=True)
class Trickle:
    """The head of a right answer and so many bytes of it, and no more; `reached` when they are sent."""

    text: str
    most: int
    reached: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Reset:
    """A right answer of which the first part arrives; then the connection is reset."""

    text: str = "broken off " * 100


@dataclass(frozen=True, slots=True)
class Close:
    """The connection ends without an answer."""


@dataclass(frozen=True, slots=True)
class Hold:
    """An answer that waits: `reached` when it is asked for, given when the test sets `released`."""

    text: str
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


Behaviour = Say | Mirror | Answer | Raw | Hang | Dribble | Trickle | Reset | Close | Hold

EMPTY = Answer(200, b"")
BLANK = Answer(200, b" \r\n\t\n ")
NOT_JSON = Answer(200, b"<html><body>Bad gateway</body></html>", {"content-type": "text/html"})


def error(kind: str, words: str) -> Json:
    """An error body that both dialects could have sent."""
    return {"type": "error", "error": {"type": kind, "message": words}}


def error_inside(code: object, words: str) -> Answer:
    """How some routers fail: all is well, says the status."""
    return Answer(200, {"error": {"code": code, "message": words}})


# --- what was asked --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived. `body` is decoded; what is not JSON stays as text."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def dialect(self) -> str:
        if self.path.endswith("/v1/messages"):
            return ANTHROPIC
        return OPENAI if self.path.endswith("/chat/completions") else ""

    @property
    def system(self) -> str:
        if self.dialect == ANTHROPIC:
            return "".join(block["text"] for block in self.body["system"])
        return "".join(part["content"] for part in self.body["messages"] if part["role"] == "system")

    @property
    def prompt(self) -> str:
        return "".join(part["content"] for part in self.body["messages"] if part["role"] == "user")

    @property
    def max_tokens(self) -> int:
        (limit,) = [self.body[name] for name in ("max_tokens", "max_completion_tokens") if name in self.body]
        return int(limit)

    @property
    def everything(self) -> str:
        """All of it as one text, to look for what must not be there."""
        return json.dumps([self.method, self.path, self.headers, self.body], ensure_ascii=False)


def answer(dialect: str, said: Say) -> Json:
    return _message(said) if dialect == ANTHROPIC else _completion(said)


def _message(said: Say) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": [{"type": "text", "text": said.text}],
        "stop_reason": said.stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": said.input_tokens - said.cached_tokens,
            "cache_read_input_tokens": said.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": said.output_tokens,
        },
    }


def _completion(said: Say) -> Json:
    message = {"role": "assistant", "content": said.text, "refusal": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": said.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _OPENAI_STOPS[said.stop]}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "prompt_tokens_details": {"cached_tokens": said.cached_tokens},
        },
    }


# --- the server ------------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    disable_nagle_algorithm = True  # head and body are two writes, and the second would wait 40 ms for an answer
    server: _Listener

    def log_message(self, format: str, *args: object) -> None:
        """Be silent: requests are recorded, not printed."""

    def serve(self) -> None:
        seen = Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self._body())
        behaviour = self.server.script.note(seen)
        try:
            self._do(seen, behaviour)
        except OSError:  # the client has had enough, which is what some tests are about
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_HEAD = do_CONNECT = do_OPTIONS = serve

    def _body(self) -> Any:
        raw = self.rfile.read(int(self.headers.get("content-length", "0")))
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            return raw.decode("utf-8", "replace")

    def _do(self, seen: Seen, behaviour: Behaviour | None) -> None:
        script = self.server.script
        match behaviour:
            case None:
                self._send(200 if seen.path.endswith("/models") else 404, {"data": [{"id": script.model}]})
            case Say():
                self._send(200, answer(seen.dialect, behaviour))
            case Mirror():
                self._send(200, answer(seen.dialect, Say(behaviour.make(seen))))
            case Answer():
                self._send(behaviour.status, behaviour.body, behaviour.headers)
            case Hold():
                behaviour.reached.set()
                script.wait(behaviour.released)
                self._send(200, answer(seen.dialect, Say(behaviour.text)))
            case _:
                self._fail(seen, behaviour)

    def _fail(self, seen: Seen, behaviour: Raw | Hang | Dribble | Trickle | Reset | Close) -> None:
        self.close_connection = True
        script = self.server.script
        match behaviour:
            case Raw():
                self.wfile.write(behaviour.data)
            case Hang():
                script.closing.wait(PATIENCE)
            case Dribble():
                body = self._head(seen, behaviour.text)
                for index in range(len(body)):
                    self.wfile.write(body[index : index + 1])
                    if script.closing.wait(behaviour.pause):
                        break
            case Trickle():
                self.wfile.write(self._head(seen, behaviour.text)[: behaviour.most])
                behaviour.reached.set()
                script.closing.wait(PATIENCE)
            case Reset():
                body = self._head(seen, behaviour.text)
                self.wfile.write(body[: len(body) // 2])
                self._reset()
            case Close():
                pass

    def _head(self, seen: Seen, text: str) -> bytes:
        """Send the head of a whole answer; its body, for the caller to send as far as it likes."""
        body = json.dumps(answer(seen.dialect, Say(text))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def _reset(self) -> None:
        """Without lingering, closing is a reset. Detached, since the file objects around it would keep it open."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket(fileno=self.connection.detach()).close()

    def _send(self, status: int, body: bytes | Json, headers: Mapping[str, str] | None = None) -> None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        given = {"content-type": "application/json", "content-length": str(len(payload)), **(headers or {})}
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    script: Script

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet: what matters to a test is in the recorded requests."""


class Script:
    """What is to be done and what was asked; shared by the threads that answer."""

    def __init__(self, behaviours: Sequence[Behaviour], model: str) -> None:
        self.behaviours = list(behaviours)
        self.model = model
        self.seen: list[Seen] = []
        self.asked = 0
        self.closing = threading.Event()
        self.lock = threading.Lock()

    def note(self, seen: Seen) -> Behaviour | None:
        """Record it. None for what is not a question to a model: those take no behaviour away."""
        with self.lock:
            self.seen.append(seen)
            if not seen.dialect:
                return None
            self.asked += 1
            return self.behaviours[min(self.asked, len(self.behaviours)) - 1]

    def wait(self, event: threading.Event) -> None:
        for _ in range(int(PATIENCE * 50)):
            if event.wait(0.02) or self.closing.is_set():
                return


class Server:
    """`with Server(Say("…"), Hang()) as server: … server.url`."""

    def __init__(self, *behaviours: Behaviour, model: str = "loaded-1") -> None:
        self.script = Script(behaviours or (Say(""),), model)
        self.listener = _Listener(("127.0.0.1", 0), _Handler)
        self.listener.script = self.script
        self.thread = threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self.listener.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Seen]:
        """Everything that arrived, oldest first."""
        with self.script.lock:
            return list(self.script.seen)

    @property
    def asked(self) -> list[Seen]:
        """The questions to a model among them: those that cost something."""
        return [seen for seen in self.requests if seen.dialect]

    def then(self, *behaviours: Behaviour) -> None:
        """From now on, whatever has been asked so far."""
        with self.script.lock:
            self.script.behaviours, self.script.asked = list(behaviours), 0

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.script.closing.set()
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join()


# --- to save time ----------------------------------------------------------------------------------------------------

same_tls_context = functools.cache(
    httpcore2.default_ssl_context
)  # reading the certificates takes 30 ms for each client


# --- addresses where nobody answers ----------------------------------------------------------------------------------


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """A port that is taken, so that nobody else gets it, and refuses."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextlib.contextmanager
def unreachable() -> Iterator[str]:
    """A port whose queue is full: a connection is neither accepted nor refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
