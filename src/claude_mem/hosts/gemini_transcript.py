"""Reads Gemini CLI's transcript of a session.

Each line is one JSON object: first the description of the session, then its messages, each written again when it grows.
Snapshots (`$set`) repeat existing messages with new times, and rewound messages (`$rewindTo`) did happen: both kinds of
record are skipped. Older versions wrote a single JSON object. A message does not name its prompt, so a file is always
read completely.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import privacy, untrusted_files
from claude_mem.hosts import lines
from claude_mem.hosts.dialect import Found, Head, is_said, milliseconds, string, string_of, tool_used
from claude_mem.hosts.gemini_closing import closes, resembles
from claude_mem.hosts.gemini_tools import Call, in_our_words, text_of
from claude_mem.records import Body, Event, Prompted, Stopped

Record = dict[str, Any]

MOST_LIST_BYTES = 4 << 20  # the largest list of projects that is read
_TAIL = 1 << 20
_MOST_MESSAGES = 50_000
_OVER = ("success", "error", "cancelled")
# Text that the program inserts in the user's place.
_NOT_SAID = ("<session_context>", "<state_snapshot>", "System: Potential loop detected", "Please continue.")


class _Projects(msgspec.Struct):
    projects: dict[str, str]


def owns(record: Mapping[str, Any]) -> bool:
    """Return whether this is the first record of a session's file. Subagent files belong to their session."""
    has_ids = isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str)
    return has_ids and record.get("kind") != "subagent"


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = True
) -> Found:
    """Read the whole file, as if it were finished. It is read whole each time, so reading it early loses nothing."""
    transcript = Found(content_session_id=content_session_id, offset=offset)
    if agent_id:
        return transcript
    session_record, messages = _gather(path, transcript, over=over)
    if offset and offset == transcript.offset:
        return transcript
    transcript.content_session_id = content_session_id or string_of(session_record, "sessionId")
    transcript.cwd = _project_root(path, string_of(session_record, "projectHash"))
    builder = _EventBuilder(transcript, host)
    for message in messages:
        builder.add(message)
    return transcript


def head(path: Path) -> Head:
    """Return the session, directory and time range. A file of the older form must be read completely."""
    if path.name.removesuffix(".gz").endswith(".json"):
        transcript = read(path, host="")
        times = [event.at for event in transcript.events if event.at]
        return Head(transcript.content_session_id, transcript.cwd, min(times, default=0), max(times, default=0))
    return lines.head(path, partial(_learn, path))


def _learn(path: Path, transcript: Found, record: Record) -> None:
    if owns(record) and not transcript.content_session_id:
        transcript.content_session_id = string_of(record, "sessionId")
        transcript.cwd = _project_root(path, string_of(record, "projectHash"))


def last_message(path: str, reported: str, *, at: int = 0, session: str = "") -> str:
    """Return the last message of the turn that a hook reports at this time; "" if the chat file does not have it or
    belongs to another session.

    The file may have grown since: messages later than the hook belong to another turn.
    """
    if session and head(Path(path)).content_session_id not in ("", session):
        return ""
    messages = [message for message in _newest(Path(path)) if not at or milliseconds(message.get("timestamp")) <= at]
    if at:
        messages = _since_prompt(messages)
    texts = [privacy.strip(text_of(message.get("content"))).strip() for message in messages]
    agent_texts = [text for message, text in zip(messages, texts, strict=True) if message.get("type") == "gemini"]
    if closing := next((text for text in reversed(agent_texts) if closes(reported, text)), ""):
        return closing
    is_answer = at and messages and messages[-1].get("type") == "gemini" and not messages[-1].get("toolCalls")
    return texts[-1] if is_answer and resembles(reported, texts[-1]) else ""


def _newest(path: Path) -> list[Record]:
    """Return the messages of user and agent at the end of a chat file, each in its latest version."""
    gathered = _Messages()
    try:
        with lines.opened(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            records = [record for line in file.read(_TAIL).splitlines() if (record := lines.record(line))]
        for record in records or [_document(path, Found())]:
            gathered.take(0, record)
    except (OSError, ValueError, lines.TooMuch):
        return []
    return [message for message in gathered.messages.values() if message.get("type") in ("user", "gemini")]


def _since_prompt(messages: list[Record]) -> list[Record]:
    """Return the messages after the newest prompt. Tool results are user messages too, but not prompts."""
    prompts = [number for number, message in enumerate(messages) if _is_prompt(message)]
    return messages[max(prompts, default=-1) + 1 :]


def _is_prompt(message: Record) -> bool:
    text = _prompt(message) if message.get("type") == "user" else ""
    return bool(text.strip()) and not text.lstrip().startswith(_NOT_SAID) and is_said(text)


def _gather(path: Path, transcript: Found, *, over: bool) -> tuple[Record, list[Record]]:
    """Return the description of the session and its messages, each in its latest version."""
    gathered = _Messages()
    lines.read(path, transcript, gathered.take, over=over)
    if not gathered.session_record and (whole := _document(path, transcript)):
        transcript.problem, transcript.bad_lines = "", 0
        with lines.problems(transcript):
            gathered.take(0, whole)
    return gathered.session_record, list(gathered.messages.values())


def _document(path: Path, transcript: Found) -> Record:
    """Return a whole file as one record, or {} if it is not one."""
    with lines.problems(transcript), lines.opened(path) as file:
        text = file.read(lines.MAX_DOCUMENT + 1)
        if len(text) > lines.MAX_DOCUMENT:
            raise lines.TooMuch
        whole = lines.record(text) or {}
        return whole if owns(whole) else {}
    return {}


class _Messages:
    def __init__(self) -> None:
        self.session_record: Record = {}
        self.messages: dict[str, Record] = {}

    def take(self, _: int, record: Record) -> None:
        messages = [record]
        if owns(record):
            self.session_record = self.session_record or record
            nested = record.get("messages")
            messages = [item for item in nested if isinstance(item, dict)] if isinstance(nested, list) else []
        self.messages |= {message["id"]: message for message in messages if isinstance(message.get("id"), str)}
        if len(self.messages) > _MOST_MESSAGES:
            raise lines.TooMuch


def _project_root(path: Path, project_hash: str) -> str:
    """Return the directory of a session: from the file beside the chats, or from the list of all projects."""
    try:
        return untrusted_files.read_text(path.parent.parent / ".project_root").strip()
    except (OSError, ValueError):
        pass
    try:
        content = untrusted_files.read(path.parents[3] / "projects.json", most=MOST_LIST_BYTES)
        names_by_root = msgspec.json.decode(content, type=_Projects).projects
    except (OSError, ValueError, LookupError):
        return ""
    directory_name = path.parent.parent.name
    return next(
        (root for root, name in names_by_root.items() if name == directory_name or _hash(root) == project_hash), ""
    )


def _hash(root: str) -> str:
    return hashlib.sha256(root.encode("utf-8", "surrogateescape")).hexdigest()


class _EventBuilder:
    def __init__(self, transcript: Found, host: str) -> None:
        self.transcript = transcript
        self.host = host
        self.prompt_id = ""

    def add(self, message: Record) -> None:
        if message.get("type") == "user":
            self._user(message)
        elif message.get("type") == "gemini":
            self._gemini(message)

    def _user(self, message: Record) -> None:
        text = _prompt(message)
        if not _is_prompt(message):
            return
        self.prompt_id = message["id"]
        self.transcript.lines[self.prompt_id] = 0
        if privacy.hides_all(text):
            self.transcript.private.add(self.prompt_id)
        self._add_event(message, Prompted(privacy.strip(text)))

    def _gemini(self, message: Record) -> None:
        calls = message.get("toolCalls")
        calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        for call in calls:
            self._call(message, call)
        text = text_of(message.get("content")).strip()
        if text and not calls and self.prompt_id:
            self.transcript.closings[self.prompt_id] = self._event(message, Stopped(privacy.strip(text)))

    def _call(self, message: Record, call: Record) -> None:
        name, call_id = string(call.get("name")), string(call.get("id"))
        if not name or not call_id or call.get("status") not in _OVER:
            return
        stripped_call = privacy.strip_fields({**call, "timestamp": call.get("timestamp") or message.get("timestamp")})
        used = in_our_words(_as_call(name, stripped_call), cwd=self.transcript.cwd)
        body = tool_used(used.name, used.input, used.output, failed=used.failed)
        self._add_event(stripped_call, body, tool_use_id=f"{self.transcript.content_session_id}.{call_id}"[:200])

    def _add_event(self, record: Record, body: Body, *, tool_use_id: str = "") -> None:
        self.transcript.events.append(self._event(record, body, tool_use_id=tool_use_id))

    def _event(self, record: Record, body: Body, *, tool_use_id: str = "") -> Event:
        return Event(
            id=f"t-{tool_use_id or record['id']}",
            host=self.host,
            content_session_id=self.transcript.content_session_id,
            at=milliseconds(record.get("timestamp")),
            body=body,
            prompt_id=self.prompt_id,
            tool_use_id=tool_use_id,
            private=self.prompt_id in self.transcript.private,
        )


def _prompt(message: Record) -> str:
    """Return what the user typed. Text added by hooks and tool results are separate parts and are left out."""
    content = message.get("displayContent") or message.get("content")
    parts = content if isinstance(content, list) else [content]
    if any(isinstance(part, dict) and "functionResponse" in part for part in parts):
        return ""
    texts = [text_of(part) for part in parts if not isinstance(part, list)]
    return privacy.said("".join(text for text in texts if not _is_hooks(text)))


def _is_hooks(text: str) -> bool:
    return text.startswith("<hook_context>") and text.rstrip().endswith("</hook_context>")


def _as_call(name: str, call: Record) -> Call:
    result = call.get("result")
    parts = [part for part in result if isinstance(part, dict)] if isinstance(result, list) else []
    answers = [
        part["functionResponse"].get("response") for part in parts if isinstance(part.get("functionResponse"), dict)
    ]
    answer = next((item for item in answers if isinstance(item, dict)), {})
    failed = call.get("status") != "success"
    error = string(answer.get("error")) or string(call.get("resultDisplay")) or string(call.get("status"))
    return Call(
        name, call.get("args"), text_of(answer.get("output")), call.get("resultDisplay"), error if failed else ""
    )
