"""Gemini CLI. It has Claude Code's hooks under other names, with timeouts in milliseconds.

Some events are not registered: BeforeTool accepts no context, PreCompress fires before every request, BeforeModel and
AfterModel carry the whole conversation. Every shell command runs the `fail` hook, whether it failed or not: only the
worker can tell. The closing message in AfterAgent is distorted, so it is compared with the transcript, the chat file.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.agents import transcript_lines
from claude_mem.agents.base import Agent, LauncherCommands, Transcripts, agent_dir, is_installed
from claude_mem.agents.canonical import (
    Fields,
    TranscriptContent,
    TranscriptHead,
    is_user_prompt,
    make_tool_used,
    parse_timestamp,
    string_field,
    string_or_empty,
)
from claude_mem.agents.claude import PLUGIN, SKILL, TEXTS
from claude_mem.agents.files import (
    FileEdit,
    HookEntry,
    JsonEdit,
    Settings,
    SettingsEdit,
    add_hooks,
    add_server,
    remove_hooks,
    remove_server,
)
from claude_mem.domain.errors import IgnoredEvent
from claude_mem.domain.records import Body, Event, Prompted, Stopped
from claude_mem.privacy import tags
from claude_mem.system import untrusted_files

NAME = "gemini"
TIMEOUT_MILLISECONDS = 5000
SHELL = "run_shell_command"
EVENTS = {
    "SessionStart": "context",
    "BeforeAgent": "new",
    "AfterTool": "save",
    "AfterAgent": "summary",
    "SessionEnd": "cleanup",
}
NO_RESPONSE = "[no response text]"  # AfterAgent's placeholder for an empty response

_NAMES = {"BeforeAgent": "UserPromptSubmit", "AfterTool": "PostToolUse", "AfterAgent": "Stop"}
_NOISE = {
    "BeforeTool", "BeforeModel", "AfterModel", "BeforeToolSelection", "PreCompress", "Notification",
}  # fmt: skip


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return agent_dir(env, "GEMINI_CLI_HOME", "") / ".gemini"


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    event = string_or_empty(fields.get("hook_event_name"))
    if event in _NOISE:
        raise IgnoredEvent
    translated = {**fields, "hook_event_name": _NAMES.get(event, event)}
    if isinstance(prompt := fields.get("prompt"), str):
        translated["prompt"] = tags.strip_gemini_additions(prompt)
    if event == "AfterAgent":
        translated["last_assistant_message"] = _closing_message(fields)
    if event == "AfterTool":
        translated |= _tool_used(fields)
    return translated


def _closing_message(fields: Fields) -> str:
    """Return the turn's last message as the chat file has it, or else the hook's text without its repetitions."""
    reported = string_or_empty(fields.get("prompt_response"))
    if reported == NO_RESPONSE:
        return ""
    path, at = string_or_empty(fields.get("transcript_path")), parse_timestamp(fields.get("timestamp"))
    session = string_or_empty(fields.get("session_id"))
    return last_message(path, reported, at=at, session=session) or remove_repetition(reported)


def _tool_used(fields: Fields) -> Fields:
    arguments, response = fields.get("tool_input"), fields.get("tool_response")
    response = response if isinstance(response, dict) else {"llmContent": response}
    call = GeminiCall(
        name=tool_name(string_or_empty(fields.get("tool_name")), fields.get("mcp_context")),
        input=arguments,
        text=text_of(response.get("llmContent")),
        display=response.get("returnDisplay"),
        error=_error(response.get("error")),
    )
    used = translate_call(call, cwd=string_or_empty(fields.get("cwd")))
    event = "PostToolUseFailure" if used.failed else "PostToolUse"
    result_fields = {"error": used.output} if used.failed else {"tool_response": used.output}
    return {"hook_event_name": event, "tool_name": used.name, "tool_input": used.input, **result_fields}


def _error(error: Any) -> str:
    return (
        string_or_empty(error.get("message")) or string_or_empty(error.get("type"))
        if isinstance(error, dict)
        else string_or_empty(error)
    )


def tool_name(name: str, context: Any) -> str:
    """Return the name of a tool. `mcp_<server>_<tool>` is ambiguous when either part contains `_`; `mcp_context` names
    both."""
    if isinstance(context, dict) and context.get("server_name") and context.get("tool_name"):
        return f"mcp__{context['server_name']}__{context['tool_name']}"
    return name


# --- the closing message in a payload --------------------------------------------------------------------------------


# AfterAgent reports every remark of the turn, not only the last message. It joins the chunks of a streamed answer with
# spaces, after the first chunk has already become the whole answer: the text is followed by its own tail, with spaces
# in the middle of words (0.61.0). The chat file has each message unchanged; without it, the repetition can be removed.

MIN_TAIL = 12  # non-blank characters; shorter texts may legitimately occur twice
MAX_OCCURRENCES = 100  # occurrences of a text that are tried
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\ufeff"))
# The call that follows a remark is a chunk without words, joined with one space. (Two are a line break of Markdown.)
_REMARK_END = re.compile(r"(?<=\S) \n")


def ends_with_message(reported: str, message: str) -> bool:
    """Return whether the reported text ends with this message, or with this message and a repetition of its tail."""
    bare_reported, bare_message = _bare(reported), _bare(message)
    if not bare_message:
        return False
    at = bare_reported.find(bare_message, max(0, len(bare_reported) - 2 * len(bare_message)))
    for _ in range(MAX_OCCURRENCES):
        if at < 0 or bare_message.endswith(bare_reported[at + len(bare_message) :]):
            break
        at = bare_reported.find(bare_message, at + 1)
    return at >= 0 and bare_message.endswith(bare_reported[at + len(bare_message) :])


def has_most_words(reported: str, message: str) -> bool:
    """Return whether nearly all words of this message were reported."""
    words = set(message.split())
    return len(words & set(reported.split())) >= 0.8 * len(words)


def remove_repetition(reported: str) -> str:
    """Return the reported text without its repeated tail and without the remarks before it, as far as they show."""
    text = "".join(reported.split())
    remaining = _first_signs(reported, len(text) - _repeated_tail(text)).rstrip()
    return _REMARK_END.split(remaining)[-1].strip()


def _repeated_tail(text: str) -> int:
    """Return the length of the longest tail that occurs twice at the end of a text, or 0."""
    probe = text[-MIN_TAIL:]
    at, longest = len(text) - len(probe), 0
    for _ in range(MAX_OCCURRENCES):
        at = text.rfind(probe, 0, max(0, at + len(probe) - 1))
        length = len(text) - len(probe) - at
        if at < 0 or 2 * length > len(text):
            break
        if length >= MIN_TAIL and text.endswith(text[-length:], 0, len(text) - length):
            longest = length
    return longest


def _first_signs(text: str, count: int) -> str:
    """Return the beginning of a text up to its `count`-th non-blank character."""
    for end, sign in enumerate(text):
        if not sign.isspace():
            count -= 1
        if count < 0:
            return text[:end]
    return text


def _bare(text: str) -> str:
    """Return a text without what differs between chat file and hook: blanks, invisible characters, comments."""
    return "".join(_without_comments(text).translate(_INVISIBLE).split())


def _without_comments(text: str) -> str:
    """Return a text without HTML comments. A pattern would take quadratic time for comments that are never closed."""
    parts: list[str] = []
    rest = text
    while True:
        before, opened, after = rest.partition("<!--")
        _, closed, beyond = after.partition("-->")
        if not opened or not closed:
            return "".join([*parts, rest])
        parts.append(before)
        rest = beyond


# --- transcripts -----------------------------------------------------------------------------------------------------


# Each line is one JSON object: first the description of the session, then its messages, each written again when it
# grows. Snapshots (`$set`) repeat existing messages with new times, and rewound messages (`$rewindTo`) did happen: both
# kinds of record are skipped. Older versions wrote a single JSON object. A message does not name its prompt, so a file
# is always read completely.

Record = dict[str, Any]

MAX_LIST_BYTES = 4 << 20  # the largest list of projects that is read
_TAIL = 1 << 20
_MAX_MESSAGES = 50_000
_OVER = ("success", "error", "cancelled")
# Text that the program inserts in the user's place.
_NOT_SAID = ("<session_context>", "<state_snapshot>", "System: Potential loop detected", "Please continue.")


class _Projects(msgspec.Struct):
    """Gemini's list of projects: directory names by root."""

    projects: dict[str, str]


def is_session_record(record: Mapping[str, Any]) -> bool:
    """Return whether this is the first record of a session's file. Subagent files belong to their session."""
    has_ids = isinstance(record.get("sessionId"), str) and isinstance(record.get("projectHash"), str)
    return has_ids and record.get("kind") != "subagent"


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = True
) -> TranscriptContent:
    """Read the whole file, as if it were finished. It is read whole each time, so reading it early loses nothing."""
    transcript = TranscriptContent(content_session_id=content_session_id, offset=offset)
    if agent_id:
        return transcript
    session_record, messages = _gather(path, transcript, over=over)
    if offset and offset == transcript.offset:
        return transcript
    transcript.content_session_id = content_session_id or string_field(session_record, "sessionId")
    transcript.cwd = _project_root(path, string_field(session_record, "projectHash"))
    builder = _EventBuilder(transcript, host)
    for message in messages:
        builder.add(message)
    return transcript


def read_head(path: Path) -> TranscriptHead:
    """Return the session, directory and time range. A file of the older form must be read completely."""
    if path.name.removesuffix(".gz").endswith(".json"):
        transcript = read(path, host="")
        times = [event.at for event in transcript.events if event.at]
        return TranscriptHead(
            transcript.content_session_id, transcript.cwd, min(times, default=0), max(times, default=0)
        )
    return transcript_lines.read_head(path, partial(_learn, path))


def _learn(path: Path, transcript: TranscriptContent, record: Record) -> None:
    if is_session_record(record) and not transcript.content_session_id:
        transcript.content_session_id = string_field(record, "sessionId")
        transcript.cwd = _project_root(path, string_field(record, "projectHash"))


def last_message(path: str, reported: str, *, at: int = 0, session: str = "") -> str:
    """Return the last message of the turn that a hook reports at this time; "" if the chat file does not have it or
    belongs to another session.

    The file may have grown since: messages later than the hook belong to another turn.
    """
    if session and read_head(Path(path)).content_session_id != session:
        return ""
    messages = [message for message in _newest(Path(path)) if not at or parse_timestamp(message.get("timestamp")) <= at]
    if at:
        messages = _since_prompt(messages)
    texts = [tags.strip_private(text_of(message.get("content"))).strip() for message in messages]
    agent_texts = [text for message, text in zip(messages, texts, strict=True) if message.get("type") == "gemini"]
    if closing := next((text for text in reversed(agent_texts) if ends_with_message(reported, text)), ""):
        return closing
    is_answer = at and messages and messages[-1].get("type") == "gemini" and not messages[-1].get("toolCalls")
    return texts[-1] if is_answer and has_most_words(reported, texts[-1]) else ""


def _newest(path: Path) -> list[Record]:
    """Return the messages of user and agent at the end of a chat file, each in its latest version."""
    gathered = _Messages()
    try:
        with transcript_lines.open_transcript(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            records = [
                record for line in file.read(_TAIL).splitlines() if (record := transcript_lines.parse_record(line))
            ]
        for record in records or [_document(path, TranscriptContent())]:
            gathered.take(0, record)
    except (OSError, ValueError, transcript_lines.ReadLimitExceeded):
        return []
    return [message for message in gathered.messages.values() if message.get("type") in ("user", "gemini")]


def _since_prompt(messages: list[Record]) -> list[Record]:
    """Return the messages after the newest prompt. Tool results are user messages too, but not prompts."""
    prompts = [number for number, message in enumerate(messages) if _is_prompt(message)]
    return messages[max(prompts, default=-1) + 1 :]


def _is_prompt(message: Record) -> bool:
    text = _prompt(message) if message.get("type") == "user" else ""
    return bool(text.strip()) and not text.lstrip().startswith(_NOT_SAID) and is_user_prompt(text)


def _gather(path: Path, transcript: TranscriptContent, *, over: bool) -> tuple[Record, list[Record]]:
    """Return the description of the session and its messages, each in its latest version."""
    gathered = _Messages()
    transcript_lines.read_records(path, transcript, gathered.take, over=over)
    if not gathered.session_record and (whole := _document(path, transcript)):
        transcript.problem, transcript.bad_lines = "", 0
        with transcript_lines.record_problems(transcript):
            gathered.take(0, whole)
    return gathered.session_record, list(gathered.messages.values())


def _document(path: Path, transcript: TranscriptContent) -> Record:
    """Return a whole file as one record, or {} if it is not one."""
    with transcript_lines.record_problems(transcript), transcript_lines.open_transcript(path) as file:
        text = file.read(transcript_lines.MAX_DOCUMENT_BYTES + 1)
        if len(text) > transcript_lines.MAX_DOCUMENT_BYTES:
            raise transcript_lines.ReadLimitExceeded
        whole = transcript_lines.parse_record(text) or {}
        return whole if is_session_record(whole) else {}
    return {}


class _Messages:
    """The session record of a chat file and its messages, each in its latest version."""

    def __init__(self) -> None:
        self.session_record: Record = {}
        self.messages: dict[str, Record] = {}

    def take(self, _: int, record: Record) -> None:
        """Add a record; a record of the older form has all messages in it."""
        messages = [record]
        if is_session_record(record):
            self.session_record = self.session_record or record
            nested = record.get("messages")
            messages = [item for item in nested if isinstance(item, dict)] if isinstance(nested, list) else []
        self.messages |= {message["id"]: message for message in messages if isinstance(message.get("id"), str)}
        if len(self.messages) > _MAX_MESSAGES:
            raise transcript_lines.ReadLimitExceeded


def _project_root(path: Path, project_hash: str) -> str:
    """Return the directory of a session: from the file beside the chats, or from the list of all projects."""
    try:
        return untrusted_files.read_text(path.parent.parent / ".project_root").strip()
    except (OSError, ValueError):
        pass
    try:
        content = untrusted_files.read(path.parents[3] / "projects.json", most=MAX_LIST_BYTES)
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
    """Turns messages of a chat file into events."""

    def __init__(self, transcript: TranscriptContent, host: str) -> None:
        self.transcript = transcript
        self.host = host
        self.prompt_id = ""

    def add(self, message: Record) -> None:
        """Add the events of one message."""
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
        if tags.is_entirely_private(text):
            self.transcript.private.add(self.prompt_id)
        self._add_event(message, Prompted(tags.strip_private(text)))

    def _gemini(self, message: Record) -> None:
        calls = message.get("toolCalls")
        calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        for call in calls:
            self._call(message, call)
        text = text_of(message.get("content")).strip()
        if text and not calls and self.prompt_id:
            self.transcript.closings[self.prompt_id] = self._event(message, Stopped(tags.strip_private(text)))

    def _call(self, message: Record, call: Record) -> None:
        name, call_id = string_or_empty(call.get("name")), string_or_empty(call.get("id"))
        if not name or not call_id or call.get("status") not in _OVER:
            return
        stripped_call = tags.strip_private_fields(
            {**call, "timestamp": call.get("timestamp") or message.get("timestamp")}
        )
        used = translate_call(_as_call(name, stripped_call), cwd=self.transcript.cwd)
        body = make_tool_used(used.name, used.input, used.output, failed=used.failed)
        self._add_event(stripped_call, body, tool_use_id=f"{self.transcript.content_session_id}.{call_id}"[:200])

    def _add_event(self, record: Record, body: Body, *, tool_use_id: str = "") -> None:
        self.transcript.events.append(self._event(record, body, tool_use_id=tool_use_id))

    def _event(self, record: Record, body: Body, *, tool_use_id: str = "") -> Event:
        return Event(
            id=f"t-{tool_use_id or record['id']}",
            host=self.host,
            content_session_id=self.transcript.content_session_id,
            at=parse_timestamp(record.get("timestamp")),
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
    return tags.strip_gemini_additions("".join(text for text in texts if not _is_hooks(text)))


def _is_hooks(text: str) -> bool:
    return text.startswith("<hook_context>") and text.rstrip().endswith("</hook_context>")


def _as_call(name: str, call: Record) -> GeminiCall:
    result = call.get("result")
    parts = [part for part in result if isinstance(part, dict)] if isinstance(result, list) else []
    answers = [
        part["functionResponse"].get("response") for part in parts if isinstance(part.get("functionResponse"), dict)
    ]
    answer = next((item for item in answers if isinstance(item, dict)), {})
    failed = call.get("status") != "success"
    error = (
        string_or_empty(answer.get("error"))
        or string_or_empty(call.get("resultDisplay"))
        or string_or_empty(call.get("status"))
    )
    return GeminiCall(
        name, call.get("args"), text_of(answer.get("output")), call.get("resultDisplay"), error if failed else ""
    )


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield all session transcripts. Subagent transcripts are one directory deeper and are not listed: they belong to
    their session."""
    paths = (config_dir(env) / "tmp").glob("*/chats/session-*")
    yield from sorted(path for path in paths if path.suffix in (".jsonl", ".json"))


# --- installing ------------------------------------------------------------------------------------------------------


def _line(ours: LauncherCommands, command: str, matcher: str | None = None) -> HookEntry:
    return HookEntry(ours.hook(command, NAME), TIMEOUT_MILLISECONDS, matcher, {"name": "claude-mem"})


def _add(settings: Settings, ours: LauncherCommands) -> None:
    lines = {event: _line(ours, command) for event, command in EVENTS.items()}
    add_hooks(settings, {**lines, "AfterTool": _line(ours, "save", f"^(?!{SHELL}$)")})
    add_hooks(settings, {"AfterTool": _line(ours, "fail", f"^{SHELL}$")})
    program, *arguments = ours.mcp()
    add_server(settings, {"command": program, "args": arguments})


def _drop(settings: Settings) -> None:
    remove_hooks(settings)
    remove_server(settings)


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    description = f"{len(EVENTS) + 1} hooks, each at most {TIMEOUT_MILLISECONDS // 1000} s, and the memory's tools"
    return (
        JsonEdit(directory / "settings.json", description, lambda settings: _add(settings, ours), _drop),
        FileEdit(directory / SKILL, TEXTS[SKILL], (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), "gemini", env)


AGENT = Agent(
    name=NAME,
    label="Gemini CLI",
    translate=translate,
    present=_present,
    edits=edits,
    transcripts=Transcripts(
        read=read,
        find=_find,
        owns=is_session_record,
        head=read_head,
        shares_tool_ids=False,
        corrects_closing=True,
    ),
)


# --- tool calls ------------------------------------------------------------------------------------------------------


_TOOLS = {
    "run_shell_command": "Bash",
    "read_file": "Read",
    "write_file": "Write",
    "replace": "Edit",
    "glob": "Glob",
    "grep_search": "Grep",
    "search_file_content": "Grep",
    "list_directory": "LS",
    "web_fetch": "WebFetch",
    "google_web_search": "WebSearch",
    "write_todos": "TodoWrite",
    "ask_user": "AskUserQuestion",
    "activate_skill": "Skill",
    "invoke_agent": "Task",
    "list_mcp_resources": "ListMcpResourcesTool",
}
_KEYS = {"dir_path": "path", "absolute_path": "file_path", "include_pattern": "glob"}
_HOOKED, _FENCE = ("<hook_context>", "</hook_context>"), ("<untrusted_context>", "</untrusted_context>")
# The lines below a command's output, from the last one up.
_FOOT = ("Process Group PGID", "Background PIDs", "Signal", "Exit Code")
_CANCELLED = ("Command was automatically cancelled", "Command was cancelled by user")


@dataclass(frozen=True, slots=True)
class GeminiCall:
    """A tool call as Gemini reports it: `text` is for the model, `display` for the user, `error` is set if the tool
    itself failed."""

    name: str
    input: Any
    text: str
    display: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class GeminiToolCall:
    name: str
    input: Any
    output: Any
    failed: bool


def translate_call(call: GeminiCall, *, cwd: str = "") -> GeminiToolCall:
    """Translate a tool call into the names and the form of Claude Code."""
    name, arguments = _name(call.name), _input(call.input, cwd)
    text = _unfenced(call.text)
    if call.error:
        return GeminiToolCall(name, arguments, call.error, failed=True)
    if name == "Bash":
        output, failure = _shell(text)
        return GeminiToolCall(
            name, arguments, f"{failure}\n{output}".strip() if failure else output, failed=bool(failure)
        )
    if name in ("Edit", "Write") and (patch := _patch(call.display)):
        return GeminiToolCall(name, arguments, patch, failed=False)
    return GeminiToolCall(name, arguments, text, failed=False)


def _name(name: str) -> str:
    if name.startswith("mcp_") and not name.startswith("mcp__"):
        return f"mcp__{name[4:]}"
    return _TOOLS.get(name, name)


def _input(arguments: Any, cwd: str) -> object:
    if not isinstance(arguments, dict):
        return arguments
    translated = {_KEYS.get(key, key): item for key, item in arguments.items()}
    if isinstance(path := translated.get("file_path"), str) and path and cwd:
        translated["file_path"] = posixpath.join(cwd, path)
    return translated


def text_of(content: Any) -> str:
    """Return the text of a string, a part, or a list of these."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in content if not isinstance(part, list))
    return string_or_empty(content.get("text")) if isinstance(content, dict) else string_or_empty(content)


def _unfenced(text: str) -> str:
    """Return the text without Gemini's fence around external content and without what hooks added."""
    bare = text.strip()
    if bare.endswith(_HOOKED[1]) and _HOOKED[0] in bare:
        text = bare = bare[: bare.index(_HOOKED[0])].rstrip()
    if bare.startswith(_FENCE[0]) and bare.endswith(_FENCE[1]):
        return bare.removeprefix(_FENCE[0]).removesuffix(_FENCE[1]).removeprefix("\n").removesuffix("\n")
    return text


def _shell(text: str) -> tuple[str, str]:
    """Return the output of a command and how it failed. Gemini reports an exit code only if it is not 0."""
    if text.startswith(_CANCELLED):
        return text, "Cancelled"
    lines = text.removeprefix("Output: ").split("\n")
    foot = {}
    for name in _FOOT:
        if lines and lines[-1].startswith(f"{name}: "):
            foot[name] = lines.pop().partition(": ")[2]
    output = "\n".join(lines)
    failure = f"Exit code {foot['Exit Code']}" if "Exit Code" in foot else ""
    failure = failure or (f"Signal {foot['Signal']}" if "Signal" in foot else "")
    return "" if output == "(empty)" else output, failure


def _patch(display: Any) -> dict[str, object]:
    """Return the lines of a diff in the form that Claude Code uses."""
    diff = string_or_empty(display.get("fileDiff")) if isinstance(display, dict) else ""
    head, marker, hunks = diff.partition("\n@@")
    lines = [line for line in hunks.splitlines()[1:] if line[:1] in ("+", "-", " ")]
    return {"structuredPatch": [{"lines": lines}]} if head and marker and lines else {}
