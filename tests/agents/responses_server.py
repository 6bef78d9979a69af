"""The scripted model in OpenAI's Responses dialect, as Codex speaks it.

Plays work as in `tests/agents/client/model_server.py`: the first reply answers the prompt, the next one the results of its
tool calls. How far a conversation is, is read from the ids of the calls in it.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.agents.client.model_server import (
    Call,
    Handler,
    Hold,
    Json,
    ModelServer,
    Plays,
    Refuse,
    Reply,
    Request,
    Text,
    Tool,
    pieces,
    strings,
    usage,
)
from tests.support.waiting import SECONDS

# What Codex itself says in the user's place.
OF_THE_CLIENT = ("<environment_context>", "# AGENTS.md instructions", "<user_instructions>", "<skill", "<hook_")
PATCH = "apply_patch"


@dataclass(frozen=True, slots=True)
class ResponsesRequest(Request):
    @property
    def text(self) -> str:
        """Everything the model could read, in order."""
        return "\n".join(strings([self.body.get("instructions", ""), self.body.get("input", [])]))

    @property
    def tools(self) -> list[Json]:
        found = self.body.get("tools", [])
        return [tool for tool in found if isinstance(tool, dict)]


def patch(text: str) -> Tool:
    """An edit: the one tool whose input is a text."""
    return Tool(PATCH, {"input": text})


def prompt_text(item: Json) -> str:
    """What the user typed in this item, if it is the user's."""
    if item.get("type") != "message" or item.get("role") != "user":
        return ""
    texts = [str(part.get("text", "")) for part in item.get("content", []) if isinstance(part, dict)]
    return "\n".join(text for text in texts if not text.startswith(OF_THE_CLIENT)).strip()


def place(items: Sequence[Json], markers: Sequence[str]) -> tuple[str | None, int]:
    """Which play the newest prompt belongs to, and how many replies it has had so far."""
    replies = set()
    for item in reversed(items):
        if str(item.get("type", "")).endswith("_call"):
            replies.add(str(item.get("call_id", "")).rpartition("_")[0])
        if text := prompt_text(item):
            return next((marker for marker in markers if marker in text), None), len(replies)
    return None, len(replies)


def output_items(blocks: Reply, marker: str) -> tuple[list[Json], list[Call]]:
    """A reply as output items, and the tool calls among them; those of one reply share the beginning of their ids."""
    said: list[Json] = []
    calls: list[Call] = []
    reply = uuid.uuid4().hex[:16]
    for block in blocks:
        if isinstance(block, Text):
            text = {"type": "output_text", "text": block.text}
            said.append({"type": "message", "role": "assistant", "id": f"msg_{uuid.uuid4().hex}", "content": [text]})
        elif isinstance(block, Tool):
            call = Call(f"call_{reply}_{len(calls)}", block.name, block.input, marker)
            calls.append(call)
            said.append(_call(call))
    return said, calls


def _call(call: Call) -> Json:
    if call.name == PATCH:
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, **call.input}
    namespace, _, name = call.name.rpartition("/")
    more = {"namespace": namespace} if namespace else {}
    return {"type": "function_call", "call_id": call.id, "name": name, **more, "arguments": json.dumps(call.input)}


def _deltas(item: Json, index: int) -> Iterator[Json]:
    """What comes of a message before it is done: its text in chunks."""
    if item["type"] != "message":
        return
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}}
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    for piece in pieces(item["content"][0]["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": piece}


def stream(said: list[Json], figures: Json) -> Iterator[Json]:
    name = f"resp_{uuid.uuid4().hex[:16]}"
    yield {"type": "response.created", "response": {"id": name}}
    for index, item in enumerate(said):
        yield from _deltas(item, index)
        yield {"type": "response.output_item.done", "item": item}
    counted = {name: figures[name] for name in ("input_tokens", "output_tokens")}
    total = {**counted, "total_tokens": sum(counted.values())}
    yield {"type": "response.completed", "response": {"id": name, "usage": total}}


class ResponsesHandler(Handler):
    def play(self, body: Json) -> None:
        """Answer with the reply that the prompt's play has for it."""
        request = self.note(body)
        blocks = self.script.reply(request)
        for hold in (block for block in blocks if isinstance(block, Hold)):
            gate = self.script.gate(hold.name)
            gate.reached.set()
            gate.opened.wait(SECONDS)
        refusal = next((block for block in blocks if isinstance(block, Refuse)), None)
        if refusal:
            self.send_json(refusal.status, {"error": {"message": "the test refuses this", "type": "invalid_request"}})
            return
        said, calls = output_items(blocks, request.marker or "")
        with self.script.lock:
            self.script.calls.extend(calls)
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream(said, usage(blocks))]
        self.answer(200, "".join(lines).encode(), kind="text/event-stream")

    def note(self, body: Json) -> Request:
        session = self.headers.get("session_id", "") or self.headers.get("session-id", "")
        with self.script.lock:
            marker, turn = place(body.get("input", []), list(self.script.plays))
            request = ResponsesRequest(body, session, marker, turn)
            self.script.requests.append(request)
            return request


class ResponsesServer(ModelServer):
    def __init__(self, plays: Plays | None = None) -> None:
        super().__init__(plays)
        self.listener.RequestHandlerClass = type("BoundHandler", (ResponsesHandler,), {"script": self.script})
