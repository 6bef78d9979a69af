"""A model that says what the test tells it to, on loopback, in the Anthropic Messages dialect.

The real client runs against it, so that a test decides which tools are called and sees every byte the
client would have sent to a model. A *play* is a marker and the replies that follow a prompt containing
it: the first reply answers the prompt, the next one the tool results of the first, and so on. The server
keeps no state of a conversation; it reads from each request how far that conversation is, so retries,
resumed sessions, subagents and parallel clients need no special case.
"""

import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.support.waiting import SECONDS

Json = dict[str, Any]

FENCE = re.compile(r"<claude-mem-context>(.*?)</claude-mem-context>", re.DOTALL)
REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
COMPACTION = "an <analysis> block followed by a <summary> block"  # stands in the client's request for a summary
OFF_SCRIPT_WORDS = "Nothing was scripted for this request."
OFF_SCRIPT = f"<summary>{OFF_SCRIPT_WORDS}</summary>"  # the tag makes it an answer to a compaction too
CHUNK_CHARS = 200  # of an answer in one piece of a stream


# A turn with a remark on the way and an answer of several chunks: only the answer is its last message.
REMARK = "I look at the code first."
LONG_REMARK = "Now I change it, and the test with it. " * 8
LONG_ANSWER = (
    "The capacitor is charged to 1.21 gigawatts now: `charge` returns what it was given, with all its decimals.\n\n"
    "I decided to keep the value as a `Decimal`, because sums of floats were off by a hundredth. The root cause was that"
    " `int` cut the value off, so every jump began with too little energy in it.\n\n"
    "- [ ] Next: the gauge in `gauge.py` still prints whole gigawatts; it has to be changed to show two decimals."
)


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool call. Several in one reply are what the client runs in parallel."""

    name: str
    input: Json


@dataclass(frozen=True, slots=True)
class Tokens:
    """The prompt size to report; a large one makes the client compact by itself."""

    input_tokens: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """An HTTP error instead of an answer; 400 is one the client does not try again."""

    status: int = 400


@dataclass(frozen=True, slots=True)
class Hold:
    """Say nothing until `release(name)`: the moment in which a test kills something."""

    name: str


Block = Text | Tool | Tokens | Refuse | Hold
Reply = Sequence[Block]
Plays = Mapping[str, Sequence[Reply]]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it went out, with the id the client will report it under."""

    id: str
    name: str
    input: Json
    marker: str


@dataclass(frozen=True, slots=True)
class Request:
    """One message request: what the model was shown, and which reply of which play it got."""

    body: Json
    session: str
    marker: str | None
    turn: int

    @property
    def text(self) -> str:
        """Everything the model could read, in order, one string a line."""
        return "\n".join(strings([self.body.get("system", ""), self.body.get("messages", [])]))

    @property
    def contexts(self) -> list[str]:
        """What claude-mem put in. Apart from the rest, since the client itself tells of recent commits."""
        return FENCE.findall(self.text)


def strings(value: Any) -> Iterator[str]:
    """Each string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def prompt_text(message: Json) -> str:
    """What the user typed in this message: no tool results, no reminders that the client added."""
    if message.get("role") != "user":
        return ""
    content = message.get("content", "")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    joined = "\n".join(block["text"] for block in blocks if block.get("type") == "text")
    return REMINDER.sub("", joined).strip()


def place(messages: Sequence[Json], markers: Sequence[str]) -> tuple[str | None, int]:
    """Which play the newest prompt belongs to, and how many replies it has had so far."""
    replies = 0
    for message in reversed(messages):
        replies += message.get("role") == "assistant"
        text = prompt_text(message)
        if text:
            return next((marker for marker in markers if marker in text), None), replies
    return None, replies


def usage(blocks: Reply) -> Json:
    """The figures a reply reports; made up unless the play says otherwise."""
    tokens = next((block.input_tokens for block in blocks if isinstance(block, Tokens)), 100)
    return {
        "input_tokens": tokens,
        "output_tokens": 20,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def content(blocks: Reply, marker: str) -> tuple[list[Json], list[Call]]:
    """A reply as API content blocks, and the tool calls among them under fresh ids."""
    said: list[Json] = []
    calls: list[Call] = []
    for block in blocks:
        if isinstance(block, Text):
            said.append({"type": "text", "text": block.text})
        elif isinstance(block, Tool):
            call = Call(f"toolu_{uuid.uuid4().hex[:20]}", block.name, block.input, marker)
            calls.append(call)
            said.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input})
    return said, calls


def message(model: str, said: list[Json], figures: Json) -> Json:
    """A whole answer, as the API gives it when nothing is streamed."""
    calls = any(block["type"] == "tool_use" for block in said)
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": said,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": figures,
    }


def pieces(text: str) -> list[str]:
    """The chunks in which a text is streamed: a long one comes in several, cut in the middle of a word too."""
    return [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)] or [text]


def opening_and_deltas(block: Json) -> tuple[Json, list[Json]]:
    """How a block starts in the stream, and the pieces that fill it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    filled = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return {**block, "input": {}}, [filled]


def stream(answer: Json) -> Iterator[Json]:
    """The same answer as the events of a stream."""
    start = {**answer, "content": [], "stop_reason": None, "usage": {**answer["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(answer["content"]):
        opening, deltas = opening_and_deltas(block)
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": answer["usage"]}
    yield {"type": "message_stop"}


class Gate:
    """A reply that waits: `reached` when the client asks for it, `opened` when the test lets go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()


@dataclass
class Script:
    """What is to be said and what was asked; shared by the threads that answer."""

    plays: dict[str, Sequence[Reply]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    gates: dict[str, Gate] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, body: Json, session: str) -> Request:
        """Record a request and find its place in the plays."""
        with self.lock:
            marker, turn = place(body.get("messages", []), list(self.plays))
            request = Request(body, session, marker, turn)
            self.requests.append(request)
            return request

    def reply(self, request: Request) -> Reply:
        """The scripted reply; past the end of a play, or outside any, a short text that ends the turn."""
        replies = self.plays.get(request.marker or "", [])
        return replies[request.turn] if request.turn < len(replies) else [Text(OFF_SCRIPT)]

    def gate(self, name: str) -> Gate:
        with self.lock:
            return self.gates.setdefault(name, Gate())

    def say(self, blocks: Reply, marker: str) -> list[Json]:
        """Turn a reply into content blocks and remember the calls made."""
        said, calls = content(blocks, marker)
        with self.lock:
            self.calls.extend(calls)
        return said


class Handler(BaseHTTPRequestHandler):
    """One connection of the client; every path it is known to probe gets a harmless answer."""

    protocol_version = "HTTP/1.1"
    script: ClassVar[Script]

    def log_message(self, format: str, *args: object) -> None:
        """Be silent: requests are recorded, not printed."""

    def do_HEAD(self) -> None:
        self.answer(200, b"")

    def do_GET(self) -> None:
        self.send_json(200, {"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if "count_tokens" in self.path:
            self.send_json(200, {"input_tokens": 100})
        else:
            self.play(body)

    def play(self, body: Json) -> None:
        """Answer a message request with the reply its play has for it."""
        request = self.script.note(body, self.headers.get("X-Claude-Code-Session-Id", ""))
        blocks = self.script.reply(request)
        for hold in (block for block in blocks if isinstance(block, Hold)):
            gate = self.script.gate(hold.name)
            gate.reached.set()
            gate.opened.wait(SECONDS)
        refusal = next((block for block in blocks if isinstance(block, Refuse)), None)
        if refusal:
            self.send_json(refusal.status, error("the test refuses this request"))
        else:
            said = self.script.say(blocks, request.marker or "")
            self.send_answer(body, message(str(body.get("model", "")), said, usage(blocks)))

    def send_answer(self, body: Json, whole: Json) -> None:
        if not body.get("stream"):
            self.send_json(200, whole)
            return
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream(whole)]
        self.answer(200, "".join(lines).encode(), kind="text/event-stream")

    def send_json(self, status: int, value: Json) -> None:
        self.answer(status, json.dumps(value).encode())

    def answer(self, status: int, payload: bytes, *, kind: str = "application/json") -> None:
        """Write a response; a client that was killed meanwhile is what some tests are about."""
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def error(text: str) -> Json:
    """An API error body."""
    return {"type": "error", "error": {"type": "invalid_request_error", "message": text}}


class Listener(ThreadingHTTPServer):
    """The socket. A reset while a connection idles is a client that ended, nothing to print."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet: what matters to a test is in the recorded requests."""


class ModelServer:
    """The scripted model: `with ModelServer(plays) as server: … server.url`."""

    def __init__(self, plays: Plays | None = None) -> None:
        self.script = Script(plays=dict(plays or {}))
        handler = type("BoundHandler", (Handler,), {"script": self.script})
        self.listener = Listener(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.server_address[1]}"

    @property
    def requests(self) -> list[Request]:
        """Every message request so far, oldest first."""
        with self.script.lock:
            return list(self.script.requests)

    def play(self, marker: str, *replies: Reply) -> None:
        """Add a play: what to answer to prompts that contain this marker."""
        with self.script.lock:
            self.script.plays[marker] = replies

    def of(self, session: str) -> list[Request]:
        """The requests of one client session."""
        return [request for request in self.requests if request.session == session]

    def seen(self, text: str, *, session: str | None = None) -> bool:
        """Was this text shown to the model (in that session)?"""
        chosen = self.requests if session is None else self.of(session)
        return any(text in request.text for request in chosen)

    def calls(self, marker: str | None = None) -> list[Call]:
        """The tool calls made so far (in one play): what must be stored, each once."""
        with self.script.lock:
            return [call for call in self.script.calls if marker in (None, call.marker)]

    def wait_held(self, name: str) -> None:
        """Until the client waits for the reply held under this name."""
        if not self.script.gate(name).reached.wait(SECONDS):
            raise TimeoutError(f"the client never asked for the reply held as {name!r}")

    def release(self, name: str) -> None:
        self.script.gate(name).opened.set()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.script.gates):
            self.release(name)
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join()
