"""The scripted model in the Chat Completions dialect, for the agents that speak it.

Plays, holds and recorded requests are those of `tests/agents/client/model_server.py`. What differs: tool results are messages
of their own, agents put notices of theirs into user messages beside the prompt, and they ask side questions (a title
for the session) in requests without tools, which no play answers.
"""

import html
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from tests.agents.client.model_server import (
    FENCE,
    Call,
    Handler,
    Hold,
    Json,
    ModelServer,
    Plays,
    Refuse,
    Reply,
    Request,
    Script,
    Text,
    Tokens,
    Tool,
    pieces,
    prompt_text,
)
from tests.support.waiting import SECONDS

__all__ = ["ChatServer", "Hold", "Refuse", "Request", "Text", "Tokens", "Tool"]

SIDE = "A quiet title"


def place(messages: Sequence[Json], markers: Sequence[str]) -> tuple[str | None, int]:
    """Which play the newest prompt belongs to, and how many replies it has had. Other user messages are the agent's."""
    replies = 0
    for message in reversed(messages):
        replies += message.get("role") == "assistant"
        text = FENCE.sub("", html.unescape(prompt_text(message)))  # ours may quote an earlier prompt
        found = next((marker for marker in markers if marker in text), None)
        if found:
            return found, replies
    return None, replies


class ChatRequest(Request):
    @property
    def contexts(self) -> list[str]:
        """What we put in. Some agents escape its brackets."""
        return FENCE.findall(html.unescape(self.text))


class ChatScript(Script):
    def note(self, body: Json, session: str) -> Request:
        with self.lock:
            marker, turn = place(body.get("messages", []), list(self.plays)) if body.get("tools") else (None, 0)
            request = ChatRequest(body, session, marker, turn)
            self.requests.append(request)
            return request

    def chat(self, blocks: Reply, marker: str) -> Json:
        """A reply as the API's message, its tool calls under fresh ids."""
        text = "".join(block.text for block in blocks if isinstance(block, Text))
        calls = [
            Call(f"call_{uuid.uuid4().hex[:20]}", block.name, block.input, marker)
            for block in blocks
            if isinstance(block, Tool)
        ]
        with self.lock:
            self.calls.extend(calls)
        said: Json = {"role": "assistant", "content": text or None}
        if calls:
            said["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.input)},
                }
                for call in calls
            ]
        return said


class ChatHandler(Handler):
    script: ChatScript  # type: ignore[misc]  # of the server's own kind

    def do_GET(self) -> None:
        self.send_json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if not self.path.endswith("/chat/completions"):
            self.send_json(404, {"error": {"message": f"no {self.path} here"}})
            return
        request = self.script.note(body, self.headers.get("X-Session-Id", ""))
        blocks = self.script.reply(request) if request.marker else [Text(SIDE)]
        for hold in (block for block in blocks if isinstance(block, Hold)):
            gate = self.script.gate(hold.name)
            gate.reached.set()
            gate.opened.wait(SECONDS)
        refusal = next((block for block in blocks if isinstance(block, Refuse)), None)
        if refusal:
            self.send_json(refusal.status, {"error": {"message": "the test refuses this request"}})
        else:
            self.complete(body, self.script.chat(blocks, request.marker or ""), figures(blocks))

    def complete(self, body: Json, said: Json, used: Json) -> None:
        finish = "tool_calls" if said.get("tool_calls") else "stop"
        head = {"id": f"chatcmpl-{uuid.uuid4().hex[:20]}", "created": 1, "model": str(body.get("model", ""))}
        if body.get("stream"):
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(head, said, finish, used)]
            self.answer(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), kind="text/event-stream")
        else:
            choice = {"index": 0, "message": said, "finish_reason": finish}
            self.send_json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": used})


def figures(blocks: Reply) -> Json:
    tokens = next((block.input_tokens for block in blocks if isinstance(block, Tokens)), 100)
    return {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}


def chunks(head: Json, said: Json, finish: str, used: Json) -> Iterator[Json]:
    """The same answer as a stream: the words, each call, the end, the figures."""

    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**head, "object": "chat.completion.chunk", "choices": [choice]}

    first, *more = pieces(said["content"] or "")
    yield chunk({"role": "assistant", "content": first})
    for piece in more:
        yield chunk({"content": piece})
    for index, call in enumerate(said.get("tool_calls", [])):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, finish)
    yield {**chunk({}), "choices": [], "usage": used}


class ChatServer(ModelServer):
    def __init__(self, plays: Plays | None = None) -> None:
        super().__init__(plays)
        self.script: ChatScript = ChatScript(plays=dict(plays or {}))
        self.listener.RequestHandlerClass = type("BoundChat", (ChatHandler,), {"script": self.script})
