"""The scripted model in the dialect of Gemini's API.

A request is turned into the form in which `tests/agents/client/model_server.py` reads conversations, so plays work as they do
there. What hooks put in is kept apart from what the user said, and its escaped signs are put back.
"""

import html
import json
import re
from typing import Any

from tests.agents.client.model_server import (
    Handler,
    Hold,
    Json,
    ModelServer,
    Plays,
    Refuse,
    Text,
    Tool,
    error,
    pieces,
)
from tests.support.waiting import SECONDS

HOOKED = re.compile(r"<hook_context>(.*?)</hook_context>", re.DOTALL)


def shell(command: str) -> Tool:
    return Tool("run_shell_command", {"command": command, "description": "A step of the test"})


def read_file(path: str) -> Tool:
    return Tool("read_file", {"file_path": path})


def blocks(part: Json) -> list[Json]:
    """A part of a message as the plays' reader knows it."""
    if "functionResponse" in part:
        found = part["functionResponse"]["response"]
        text = json.dumps(found, ensure_ascii=False)
        return [{"type": "tool_result", "content": [found, *map(html.unescape, HOOKED.findall(text))]}]
    if "functionCall" in part:
        return [{"type": "tool_use", "input": part["functionCall"]}]
    text = str(part.get("text", ""))
    if text.startswith("<session_context>"):  # the program's own
        return [{"type": "context", "text": text}]
    hooked = [{"type": "context", "text": html.unescape(found)} for found in HOOKED.findall(text)]
    return [*hooked, {"type": "text", "text": HOOKED.sub("", text)}]


def messages(body: Json) -> list[Json]:
    found = []
    for content in body.get("contents", []):
        role = "assistant" if content.get("role") == "model" else "user"
        found.append({"role": role, "content": [block for part in content["parts"] for block in blocks(part)]})
    return found


def part_of(block: Any) -> Json:
    return (
        {"text": block.text} if isinstance(block, Text) else {"functionCall": {"name": block.name, "args": block.input}}
    )


def split(part: Json) -> list[Json]:
    """The chunks in which a part is streamed."""
    return [{"text": piece} for piece in pieces(part["text"])] if "text" in part else [part]


def answer(*parts: Json, last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    figures = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    return {"candidates": [candidate], "usageMetadata": figures}


class GeminiHandler(Handler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if "countTokens" in self.path:
            self.send_json(200, {"totalTokens": 100})
        else:
            self.play({**body, "stream": "streamGenerateContent" in self.path})

    def play(self, body: Json) -> None:
        shown = {
            "system": body.get("systemInstruction", ""),
            "messages": messages(body),
            "tools": body.get("tools", []),
        }
        request = self.script.note(shown, "")
        reply = self.script.reply(request)
        for hold in (block for block in reply if isinstance(block, Hold)):
            gate = self.script.gate(hold.name)
            gate.reached.set()
            gate.opened.wait(SECONDS)
        if refusal := next((block for block in reply if isinstance(block, Refuse)), None):
            self.send_json(refusal.status, error("the test refuses this request"))
            return
        self.script.say(reply, request.marker or "")
        parts = [part_of(block) for block in reply if isinstance(block, Text | Tool)]
        self.send_parts(parts, stream=bool(body["stream"]))

    def send_parts(self, parts: list[Json], *, stream: bool) -> None:
        if stream:
            *chunks, last = [chunk for part in parts or [{"text": ""}] for chunk in split(part)]
            replies = [*(answer(chunk, last=False) for chunk in chunks), answer(last, last=True)]
            lines = [f"data: {json.dumps(piece)}\r\n\r\n" for piece in replies]
            self.answer(200, "".join(lines).encode(), kind="text/event-stream")
        else:
            self.send_json(200, answer(*parts, last=True))


class GeminiServer(ModelServer):
    def __init__(self, plays: Plays | None = None) -> None:
        super().__init__(plays)
        self.listener.RequestHandlerClass = type("BoundHandler", (GeminiHandler,), {"script": self.script})
