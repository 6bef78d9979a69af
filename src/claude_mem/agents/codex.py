"""Codex CLI. Its hooks adopted Claude Code's vocabulary; the differences are translated here.

Hooks do not report calls that failed, MCP errors, patches applied through the shell, or exit codes: the transcript,
called rollout, has all of these. Its call ids and turn ids equal those of the hooks. A subagent has a rollout of its
own, which names its parent's session and turn; its prompt comes from the agent, not from the user.

New or changed hooks run only after the user has trusted them. Only the user may do that: we never write the trust entry
ourselves, and our hook command stays the same from one version to the next.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
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
from claude_mem.agents.claude import PLUGIN, PLUGIN_NAME, SKILL, TIMEOUT_SECONDS, TIMEOUTS
from claude_mem.agents.files import (
    SERVER_NAME,
    BlockEdit,
    FileEdit,
    HookEntry,
    JsonEdit,
    SettingsEdit,
    add_hooks,
    remove_hooks,
    runs_launcher,
    strip_markers,
)
from claude_mem.domain import patches
from claude_mem.domain.errors import IgnoredEvent, OperationFailed
from claude_mem.domain.records import Event, Prompted, Stopped, ToolUsed
from claude_mem.privacy import tags
from claude_mem.system import untrusted_files

NAME = "codex"
EVENTS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "PreToolUse": "file",
    "PostToolUse": "save",
    "Stop": "summary",
    "SubagentStop": "summary",
    "PreCompact": "compact",
    "SessionEnd": "cleanup",
}
# No reads: files are read by shell commands, which do not name them.
MATCHERS = {"PreToolUse": f"{patches.PATCH_TOOL}|Bash", "PostToolUse": "*"}
NOTE = (
    "Codex asks once whether these hooks may run: start `codex` and choose “Trust all and continue”."
    " Until then Codex runs none of them, and `codex exec` gives no warning."
)


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return agent_dir(env, "CODEX_HOME", ".codex")


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    translated = {name: value for name, value in fields.items() if name != "turn_id"}
    event = fields.get("hook_event_name")
    if string_or_empty(fields.get("agent_id")):
        if event == "UserPromptSubmit":
            raise IgnoredEvent
        translated.pop("transcript_path", None)  # the subagent's own
    else:
        translated["prompt_id"] = string_or_empty(fields.get("turn_id"))
    if event == "UserPromptSubmit" and not is_user_text(string_or_empty(fields.get("prompt")) or "?"):
        raise IgnoredEvent
    return translated | _tool(fields) if string_or_empty(fields.get("tool_name")) else translated


def _tool(fields: Fields) -> Fields:
    name, before = string_or_empty(fields["tool_name"]), fields.get("hook_event_name") == "PreToolUse"
    if is_noise(name):
        raise IgnoredEvent
    call = translate_call(
        name, fields.get("tool_input"), fields.get("tool_response"), cwd=string_or_empty(fields.get("cwd")), ran=True
    )
    if before:
        first = next(iter(patches.stored_patches(call.input)), None)
        added = "\n".join(line[1:] for line in first.lines if line.startswith("+")) if first else ""
        edit = {"file_path": first.paths[-1], "old_string": "", "new_string": added} if first else call.input
        return {"tool_name": call.name, "tool_input": edit}
    if call.failed:
        failure = {"hook_event_name": "PostToolUseFailure", "error": call.output}
        return {"tool_name": call.name, "tool_input": call.input, **failure}
    return {"tool_name": call.name, "tool_input": call.input, "tool_response": call.output}


# --- tool calls ------------------------------------------------------------------------------------------------------


# The shell is called `Bash` in hooks, and `exec_command`, `shell_command`, `shell` or `local_shell_call` in rollouts.
# The output of a command is text below a few header lines; only a rollout has the exit code in them. Edits are patches.

# Planning, waiting and tool discovery: these calls say nothing about the work.
NOISE = frozenset({
    "update_plan", "write_stdin", "wait", "wait_agent", "close_agent", "resume_agent", "list_agents", "send_input",
    "send_message", "followup_task", "interrupt_agent", "get_goal", "create_goal", "update_goal",
    "tool_search", "request_user_input", "list_mcp_resources", "list_mcp_resource_templates",
})  # fmt: skip
_SHELLS = ("Bash", "exec_command", "shell_command", "shell", "local_shell", "container.exec")
_AGENTS = "multi_agent"  # prefix of the names of subagent tools, without a separator
_HEADER = re.compile(
    r"^(?:(?:Chunk ID|Wall time|Original token count|Total output lines): [^\n]*\n|Exit code: -?\d+\n"
    r"|Process (?:exited with code -?\d+|running with session ID \d+)\n)+(?:Output:\n)?",
    re.M,
)
_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)$", re.M)
_REFUSED = re.compile(r"unsupported call|[\w ]{1,40} (?:failed|rejected)\b|(?:[^\n]*\n)?aborted by user")
_PATCHED = "Success. Updated"


@dataclass(frozen=True, slots=True)
class CodexToolCall:
    """A translated tool call."""

    name: str
    input: Any
    output: Any
    failed: bool


def is_noise(name: str) -> bool:
    """Return whether calls of a tool say nothing about the work."""
    return name in NOISE or name.startswith(_AGENTS)


def translate_call(
    name: str, raw_input: Any, output: Any, *, cwd: str, ran: bool = False, failed: bool = False
) -> CodexToolCall:
    """Translate a tool call. `ran`: the call was carried out, and the output is exactly what it printed. `failed`: the
    call is known to have failed."""
    arguments: Fields = raw_input if isinstance(raw_input, dict) else {"input": raw_input} if raw_input else {}
    if name in _SHELLS:
        name, arguments = "Bash", {"command": command_line(arguments)}
    if name in ("Bash", patches.PATCH_TOOL) and (text := patches.raw_patch(arguments)):
        return _patch(text, output, cwd=cwd, failed=failed)
    if name == "Bash":
        return CodexToolCall(name, arguments, output, failed) if ran else _shell(arguments, output, failed=failed)
    if name == "view_image":
        name, arguments = "Read", {"file_path": arguments.get("path")}
    is_error = isinstance(output, dict) and output.get("isError") is True
    return CodexToolCall(name, arguments, _answer(output), failed or is_error or (not ran and _is_refused(output)))


def command_line(arguments: Fields) -> str:
    """Return the command line. Some versions put the shell and its flag in front."""
    value = next((arguments[name] for name in ("command", "cmd") if arguments.get(name)), "")
    if not isinstance(value, list):
        return string_or_empty(value)
    words = [word for word in value if isinstance(word, str)]
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)


def _patch(text: str, output: Any, *, cwd: str, failed: bool) -> CodexToolCall:
    output_text = _HEADER.sub("", _text(output))
    refused = bool(output_text) and _PATCHED not in output_text
    return CodexToolCall(patches.PATCH_TOOL, patches.as_tool_input(text, cwd), output_text, failed or refused)


def _shell(arguments: Fields, output: Any, *, failed: bool) -> CodexToolCall:
    text = _text(output)
    header = _HEADER.match(text)
    output_text = text[header.end() :] if header else text
    code = int(match[1]) if header and (match := _CODE.search(header[0])) else None
    failed = failed or bool(code) or (header is None and _is_refused(text))
    return CodexToolCall("Bash", arguments, f"Exit code {code}\n{output_text}" if code else output_text, failed)


def _is_refused(output: Any) -> bool:
    """Return whether Codex itself reports that it did not carry out the call."""
    return isinstance(output, str) and bool(_REFUSED.match(output))


def _answer(output: Any) -> object:
    """Return the output without the note on how long the call took."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        return output[1:] if _HEADER.match(f"{string_or_empty(output[0].get('text'))}\n") else output
    return output


def _text(output: Any) -> str:
    """Return the output as text. Older versions wrap it as `{"output": "…", "metadata": {"exit_code": 1}}`, either as
    an object or as JSON text."""
    if isinstance(output, str) and output.startswith("{") and '"metadata"' in output:
        try:
            output = msgspec.json.decode(output)
        except (msgspec.MsgspecError, RecursionError):
            return str(output)
    if isinstance(output, dict):
        metadata = output.get("metadata")
        code = metadata.get("exit_code") if isinstance(metadata, dict) else None
        text = string_or_empty(output.get("output")) or string_or_empty(output.get("content"))
        return f"Exit code: {code}\nOutput:\n{text}" if isinstance(code, int) else text
    if isinstance(output, list):
        return "\n".join(string_or_empty(part.get("text")) for part in output if isinstance(part, dict))
    return string_or_empty(output)


# --- rollouts --------------------------------------------------------------------------------------------------------


# Each line of a rollout is one JSON object, `{timestamp, type, payload}`; before autumn 2025 it was the payload alone.
# Text that Codex inserts in the user's place: the directory, AGENTS.md, a skill, a subagent's end, an interruption.
_CODEX_PREFIXES = (
    "<environment_context>", "# AGENTS.md instructions", "<user_instructions>", "<INSTRUCTIONS>", "<skill>",
    "<subagent_notification>", "<turn_aborted>", "<user_shell_command>", "<user_action>", "<hook_prompt",
    "<ide_context>", "<recommended_plugins>", "<codex_internal_context",
)  # fmt: skip
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ENDS = ("exec_command_end", "patch_apply_end", "mcp_tool_call_end")
_IN_EARLIER_PART = 1 << 62  # index of a prompt in an earlier part: what the user adds after it is a separate prompt
_MAX_RUNNING = 8  # calls with an output whose end may still be reported
MAX_DAYS = 30  # day directories that are searched for a session's subagents, starting with its own
SETTLED_SECONDS = 2  # a directory changed more recently may have files that its mtime misses or that are still empty


@dataclass(frozen=True, slots=True)
class _PendingCodexCall:
    """A tool call whose output has not been read yet."""

    name: str
    input: Any
    cwd: str
    line: int


class _CodexMark(transcript_lines.Mark):
    turn_id: str = ""
    at: int = 0
    prompted: bool = False
    failed: list[str] = msgspec.field(default_factory=list)


_DECODE_MARK = msgspec.json.Decoder(_CodexMark)


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> TranscriptContent:
    """Read a transcript; see `canonical.Reader`."""
    reader = _CodexReader(host, content_session_id, agent_id)
    if offset:
        reader.begin(_meta(path))  # the first line applies to the whole file
    return transcript_lines.read_from(path, reader, offset=offset, over=over)


def read_part(
    path: Path,
    *,
    host: str,
    mark: str = "",
    most: int,
    content_session_id: str = "",
    offset: int = 0,
    agent_id: str = "",
    over: bool = True,
) -> tuple[TranscriptContent, str]:
    """Read one part of a transcript; see `canonical.PartReader`."""
    start = transcript_lines.decode_mark(_DECODE_MARK, mark, offset=offset, session=content_session_id)
    reader = _CodexReader(host, start.session, agent_id)
    if start.offset:
        reader.begin(_meta(path))
    return transcript_lines.read_part(path, reader, start, session=content_session_id, most=most, over=over)


def read_head(path: Path) -> TranscriptHead:
    """Read session id, directory, start and end from the first and last lines."""
    return transcript_lines.read_head(path, _learn)


def _learn(transcript: TranscriptContent, record: Fields) -> None:
    meta = payload if isinstance(payload := record.get("payload"), dict) else record
    if not transcript.content_session_id:
        reader = _CodexReader("", "", "")
        reader.begin(meta)
        transcript.content_session_id = reader.content_session_id
    transcript.cwd = transcript.cwd or string_field(meta, "cwd")


def session_ids(path: Path) -> frozenset[str]:
    """Return the sessions a rollout belongs to: its own thread and, for a subagent, that of its parent."""
    meta = _meta(path)
    ids = {string_field(meta, "id"), string_field(meta, "session_id"), parent_thread(meta)} - {""}
    return frozenset(ids or {read_head(path).content_session_id} - {""})  # the first line may be damaged


def is_user_text(text: str) -> bool:
    """Return whether a text was written by the user, not inserted by Codex."""
    return bool(text.strip()) and is_user_prompt(text) and not text.lstrip().startswith(_CODEX_PREFIXES)


def subagent_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the id and file of each subagent of a session. Their rollouts start after its own, maybe on another day."""
    session = string_or_empty(_meta(path).get("id"))
    for day in _days(path.parent) if session else ():
        with contextlib.suppress(OSError, ValueError):
            yield from _agents_in(day).get(session, ())


def _days(folder: Path) -> list[Path]:
    """Return the directory of a session, `year/month/day`, and those of the following days. For a directory of any
    other form, return only that."""
    try:
        first = date.fromisoformat("-".join(folder.parts[-3:]))
        days = [first + timedelta(days=number) for number in range(1, MAX_DAYS)]
    except (ValueError, OverflowError):
        days = []
    return [folder, *(folder.parents[2] / f"{day:%Y/%m/%d}" for day in days)]


def _agents_in(folder: Path) -> dict[str, list[tuple[str, Path]]]:
    changed = folder.stat().st_mtime_ns
    settled = time.time_ns() - changed > SETTLED_SECONDS * 10**9
    return _by_session(folder, changed) if settled else _by_session.__wrapped__(folder, changed)


@lru_cache(maxsize=1024)
def _by_session(folder: Path, _: int) -> dict[str, list[tuple[str, Path]]]:
    """Return the subagents in a directory by session; cached until the directory changes."""
    by_parent: dict[str, list[tuple[str, Path]]] = {}
    for file in sorted([*folder.glob("rollout-*.jsonl"), *folder.glob("rollout-*.jsonl.gz")]):
        meta = _meta(file)
        if started_by := parent_thread(meta):
            for session in {string_or_empty(meta.get("session_id")), started_by}:
                by_parent.setdefault(session, []).append((string_or_empty(meta.get("id")), file))
    return by_parent


def parent_thread(meta: Fields) -> str:
    """Return the thread that started this subagent; "" if this is not a subagent, "unknown" if it is not named."""
    source = meta.get("source")
    inner = source.get("subagent") if isinstance(source, dict) else None
    spawned = inner.get("thread_spawn") if isinstance(inner, dict) else None
    spawn_parent = string_or_empty(spawned.get("parent_thread_id")) if isinstance(spawned, dict) else ""
    return string_or_empty(meta.get("parent_thread_id")) or spawn_parent or ("unknown" if inner else "")


def _meta(path: Path) -> Fields:
    """Return the first record of a rollout."""
    meta: Fields = {}
    with transcript_lines.record_problems(TranscriptContent()), transcript_lines.open_transcript(path) as file:
        first = next(transcript_lines.iter_lines(file, over=True), transcript_lines.Line(0, b""))
        meta = transcript_lines.parse_record(first.raw) or {}
    return payload if isinstance(payload := meta.get("payload"), dict) else meta


class _CodexReader:
    """Collects events from the records of a rollout."""

    def __init__(self, host: str, content_session_id: str, agent_id: str) -> None:
        self.host = host
        self.content_session_id = content_session_id
        self.agent_id = agent_id
        self.transcript = TranscriptContent()
        self.calls: dict[str, _PendingCodexCall] = {}
        self.failed: set[str] = set()  # ids of calls that are known to have failed
        self.running: dict[str, Event] = {}  # calls that have an output but may still fail
        self.running_lines: dict[str, tuple[int, int]] = {}  # offsets of the call and of its output
        self.closing_line = -1
        self.prompts: dict[str, int] = {}  # index of each turn's prompt among the events
        self.turn_id = ""
        self.cwd = ""
        self.at = 0
        self.has_meta = False

    def resume(self, mark: _CodexMark, unfinished: Iterable[tuple[int, Fields]]) -> None:
        """Continue where a part ended, after reading its unfinished lines again."""
        self.failed = set(mark.failed)
        for start, record in unfinished:
            self._restore(mark)
            self.take(start, record)
        self._restore(mark)
        self.transcript.events.clear()
        self.transcript.lines.clear()
        self.prompts.clear()
        if mark.prompted:
            self.prompts[mark.turn_id] = _IN_EARLIER_PART

    def drop_open_closing(self) -> None:
        """Drop the closing message of a turn that continues in the next part."""
        self.transcript.closings.pop(self.turn_id, None)

    def _restore(self, mark: _CodexMark) -> None:
        self.turn_id, self.cwd, self.at = mark.turn_id, mark.cwd or self.cwd, mark.at
        if mark.private:
            self.transcript.private.add(mark.turn_id)

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first tool call without an output."""
        return transcript_lines.resume_offset(place, [call.line for call in self.calls.values()])

    def mark(self, place: transcript_lines.ReadPosition) -> _CodexMark:
        """Return the mark from which the next part continues."""
        running = [line for offsets in list(self.running_lines.values())[-_MAX_RUNNING:] for line in offsets]
        unfinished = {*running, *(call.line for call in self.calls.values()), self.closing_line}
        return _CodexMark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            turn_id=self.turn_id,
            cwd=self.cwd,
            at=self.at,
            private=self.turn_id in self.transcript.private,
            prompted=self.turn_id in self.prompts,
            lines=sorted(unfinished - {-1})[-transcript_lines.MAX_REREAD_LINES :],
            failed=sorted(self.failed & self.calls.keys()),
        )

    def take(self, start: int, record: Fields) -> None:
        """Process the record at offset `start`."""
        self.at = parse_timestamp(record.get("timestamp")) or self.at
        payload = record.get("payload")
        kind = string_or_empty(record.get("type"))
        if not isinstance(payload, dict):  # the format of the first versions
            payload, kind = record, "response_item" if kind else "session_meta"
        match kind:
            case "session_meta" if not self.has_meta and "id" in payload:
                self.begin(payload)
            case "turn_context":
                self._turn(payload)
                self.cwd = string_field(payload, "cwd") or self.cwd
            case "event_msg":
                self._notice(payload)
            case "response_item":
                self._turn(_item_metadata(payload))
                self._item(payload, record, start)
                self.transcript.lines.setdefault(self.turn_id, start)

    def begin(self, meta: Fields) -> None:
        """Take session, directory and parent from the first record of the rollout."""
        self.has_meta = True
        if parent_thread(meta) and not self.agent_id:
            # A subagent's rollout that is read on its own still belongs to its parent's session.
            self.agent_id = string_field(meta, "id")
        session_id = (
            string_field(meta, "session_id")
            or (parent_thread(meta) if self.agent_id else "")
            or string_field(meta, "id")
        )
        self.transcript.content_session_id = self.content_session_id = self.content_session_id or session_id
        self.transcript.cwd = self.cwd = string_field(meta, "cwd")

    def _turn(self, fields: Fields) -> None:
        """Set the current turn. A subagent works for a turn of its parent; the turn ids of its own items are unknown to
        us."""
        name = "root_turn_id" if self.agent_id else "turn_id"
        self._belongs_to(string_field(fields, name) or self.turn_id)

    def _belongs_to(self, turn_id: str) -> None:
        if turn_id != self.turn_id:
            self.turn_id, self.closing_line = turn_id, -1

    # --- items -------------------------------------------------------------------------------------------------------

    def _item(self, item: Fields, record: Fields, start: int) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            self._call(item, start)
        elif kind in _OUTPUTS:
            self._output(item, start)
        elif kind == "web_search_call":
            self._searched(item)
        elif kind == "message" and not self.agent_id:
            if item.get("role") == "user":
                self._prompt(item, start)
            elif item.get("role") == "assistant":
                self._agent_message(item, record, start)

    def _call(self, item: Fields, start: int) -> None:
        self.transcript.closings.pop(self.turn_id, None)  # a message before a call does not close the turn
        self.closing_line = -1
        if call_id := string_or_empty(item.get("call_id")) or string_or_empty(item.get("id")):
            space, name = string_or_empty(item.get("namespace")), string_or_empty(item.get("name")) or "local_shell"
            name = f"{space}__{name}" if space.startswith("mcp__") else name
            arguments = _arguments(item)
            folder = string_or_empty(arguments.get("workdir")) if isinstance(arguments, dict) else ""
            self.calls[call_id] = _PendingCodexCall(
                name, arguments, str(Path(self.cwd, folder)) if folder else self.cwd, start
            )

    def _output(self, item: Fields, start: int) -> None:
        call_id = string_or_empty(item.get("call_id"))
        call = self.calls.pop(call_id, None)
        if call is None or is_noise(call.name):
            return
        failed = call_id in self.failed
        tool_call = translate_call(call.name, call.input, item.get("output"), cwd=call.cwd, failed=failed)
        event = self._tool(tool_call, call_id)
        self.transcript.events.append(event)
        if not tool_call.failed:
            self.running[call_id] = event
            self.running_lines[call_id] = (call.line, start)

    def _searched(self, item: Fields) -> None:
        action = item.get("action")
        query = string_or_empty(action.get("query")) if isinstance(action, dict) else ""
        if query and (search_id := string_or_empty(item.get("id"))):
            tool_call = CodexToolCall("WebSearch", {"query": query}, None, failed=False)
            self.transcript.events.append(self._tool(tool_call, search_id))

    def _prompt(self, item: Fields, start: int) -> None:
        text = _item_text(item)
        kinds = _item_metadata(item).get("content_item_kinds")
        by_user = not isinstance(kinds, list) or any(string_or_empty(kind).startswith("user.") for kind in kinds)
        if not by_user or not is_user_text(text):
            return
        has_turn_id = bool(string_field(_item_metadata(item), "turn_id"))
        if not has_turn_id and (not self.turn_id or self.turn_id in self.prompts):
            # The older format has no turn ids: each prompt starts a turn.
            self._belongs_to(f"{self.content_session_id}.{start}")
        if tags.is_entirely_private(text):
            self.transcript.private.add(self.turn_id)
        self._add_prompt(tags.strip_private(text), string_or_empty(item.get("id")) or str(start))

    def _add_prompt(self, text: str, name: str) -> None:
        """Add a prompt. More input while the agent works is appended to the prompt of the turn."""
        before = self.prompts.setdefault(self.turn_id, len(self.transcript.events))
        earlier = self.transcript.events[before:]
        if earlier and isinstance(earlier_prompt := earlier[0].body, Prompted):
            extended = self._event(Prompted(f"{earlier_prompt.text}\n{text}"), name)
            self.transcript.events[before] = replace(earlier[0], body=extended.body, private=extended.private)
        else:
            self.transcript.events.append(self._event(Prompted(text), name))

    def _agent_message(self, item: Fields, record: Fields, start: int) -> None:
        metadata = record.get("metadata")
        text = _item_text(item)
        if text.strip() and not (isinstance(metadata, dict) and metadata.get("compaction_output")):
            last = self._event(Stopped(tags.strip_private(text)), string_or_empty(item.get("id")) or str(start))
            self.transcript.closings[self.turn_id] = last
            self.closing_line = start

    # --- notices -----------------------------------------------------------------------------------------------------

    def _notice(self, payload: Fields) -> None:
        """Process a notice: a turn starts, or a call has ended. Only the notice says for sure whether a call failed;
        the call may already have been added as successful."""
        if payload.get("type") == "task_started":
            self._turn(payload)
        item = payload.get("item") if payload.get("type") == "item_completed" else None
        if isinstance(item, dict):
            call_id, failed = string_or_empty(item.get("id")), item.get("status") in ("failed", "declined")
        elif payload.get("type") in _ENDS:
            call_id, failed = string_or_empty(payload.get("call_id")), _is_failure(payload)
        else:
            return
        event = self.running.pop(call_id, None)
        self.running_lines.pop(call_id, None)
        if failed:
            self.failed.add(call_id)
            if event is not None and isinstance(event.body, ToolUsed):
                body = msgspec.structs.replace(event.body, failed=True)
                self.transcript.events.append(self._event(body, f"{call_id}-failed", tool_use_id=call_id))

    # --- events ------------------------------------------------------------------------------------------------------

    def _tool(self, tool_call: CodexToolCall, call_id: str) -> Event:
        # Private parts first: `make_tool_used` leaves out parts of the output, possibly half of a private one.
        arguments, output = tags.strip_private_call(tool_call.input, tool_call.output)
        body = make_tool_used(tool_call.name, arguments, output, failed=tool_call.failed, agent_id=self.agent_id)
        return self._event(body, call_id, tool_use_id=call_id)

    def _event(self, body: Any, name: str, *, tool_use_id: str = "") -> Event:
        return Event(
            id=f"t-{self.content_session_id}.{name}",  # with the session: some models number their calls from 1
            host=self.host,
            content_session_id=self.content_session_id,
            at=self.at,
            body=body,
            prompt_id=self.turn_id,
            tool_use_id=tool_use_id,
            private=self.turn_id in self.transcript.private,
        )


def _item_metadata(item: Fields) -> Fields:
    """Return Codex's metadata of an item: its turn and the kinds of text in it."""
    metadata = item.get("internal_chat_message_metadata_passthrough")
    return metadata if isinstance(metadata, dict) else {}


def _arguments(item: Fields) -> object:
    """Return the arguments of a call: JSON in a string, plain text, or an action with a command."""
    if isinstance(action := item.get("action"), dict):
        return action
    arguments = item.get("arguments", item.get("input"))
    if item.get("type") == "function_call" and isinstance(arguments, str):
        try:
            return msgspec.json.decode(arguments)
        except (msgspec.MsgspecError, RecursionError):
            return {"input": arguments}
    return arguments


def _is_failure(payload: Fields) -> bool:
    code, result = payload.get("exit_code"), payload.get("result")
    failed = isinstance(result, dict) and ("Err" in result or result.get("isError") is True)
    return bool(code) or payload.get("success") is False or failed


def _item_text(item: Fields) -> str:
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(text for part in parts if isinstance(part, dict) and (text := string_or_empty(part.get("text"))))


# --- installing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerTable(BlockEdit):
    """Our MCP server in Codex's settings, a hand-written TOML file: everything else keeps its formatting.

    Codex also changes the file and may remove or move our markers. So our table is recognised by its name and by the
    program it runs.
    """

    def apply(self, text: str) -> str:
        """Return the settings with our server; unchanged if it is there."""
        current_table, our_table = (_table(_servers(self._read(source)), SERVER_NAME) for source in (text, self.block))
        if current_table | our_table == current_table:  # keys that the user added, such as approval settings, stay
            return text
        bare = self.revert(text)
        if SERVER_NAME in _servers(self._read(bare)):
            raise OperationFailed(
                f"{self.path}: another MCP server is already called {SERVER_NAME!r}", hint="rename it, then try again"
            )
        changed = BlockEdit.apply(self, bare)
        self._read(changed)
        return changed

    def revert(self, text: str) -> str:
        """Return the settings without our server."""
        settings = self._read(text)
        entry = _servers(settings).get(SERVER_NAME)
        if not isinstance(entry, dict) or not runs_launcher([entry.get("command"), *_list(entry.get("args"))]):
            return text
        bare = _without_table(strip_markers(text), f"mcp_servers.{SERVER_NAME}")
        expected = settings | {
            "mcp_servers": {name: one for name, one in _servers(settings).items() if name != SERVER_NAME}
        }
        if _drop_empty_servers(self._read(bare)) != _drop_empty_servers(expected):
            raise OperationFailed(
                f"{self.path} cannot be changed safely", hint=f"remove [mcp_servers.{SERVER_NAME}] from it by hand"
            )
        return bare

    def _read(self, text: str) -> Fields:
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise OperationFailed(
                f"{self.path} is not valid TOML: {error}", hint="correct it, then try again"
            ) from error


def _without_table(text: str, name: str) -> str:
    """Remove a table with its subtables; it ends at the next table, comment or empty line."""
    kept_lines: list[str] = []
    in_table = False
    for line in text.splitlines(keepends=True):
        if not line.strip() or line.lstrip().startswith("#"):
            in_table = False
        elif line.lstrip().startswith("["):
            header = line.strip().strip("[]").replace('"', "").replace("'", "")
            in_table = header == name or header.startswith(f"{name}.")
        if not in_table:
            kept_lines.append(line)
    return "".join(kept_lines)


def _servers(settings: Fields) -> Fields:
    return _table(settings, "mcp_servers")


def _drop_empty_servers(settings: Fields) -> Fields:
    return {name: one for name, one in settings.items() if name != "mcp_servers" or one}


def _list(value: Any) -> list[object]:
    return value if isinstance(value, list) else []


def _table(settings: Any, name: str) -> Fields:
    inner = settings.get(name) if isinstance(settings, dict) else None
    return inner if isinstance(inner, dict) else {}


def hook_lines(ours: LauncherCommands) -> dict[str, HookEntry]:
    """Return our hook of each event."""
    return {
        event: HookEntry(ours.hook(command, NAME), TIMEOUTS.get(event, TIMEOUT_SECONDS), MATCHERS.get(event))
        for event, command in EVENTS.items()
    }


def server_table(ours: LauncherCommands) -> str:
    """Return the TOML table of our MCP server."""
    program, *arguments = ours.mcp()
    entry = {"command": program, "args": arguments}
    # A JSON string is also a valid TOML string.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
    return "\n".join([f"[mcp_servers.{SERVER_NAME}]", *lines])


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    return (
        JsonEdit(
            directory / "hooks.json",
            f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s",
            lambda settings: add_hooks(settings, hook_lines(ours)),
            remove_hooks,
        ),
        ServerTable(directory / "config.toml", "the memory's tools", server_table(ours)),
        FileEdit(directory / SKILL, "a skill: when and how to search", (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), "codex", env)


def _settings(env: Mapping[str, str]) -> Fields:
    try:
        return tomllib.loads(untrusted_files.read_settings(config_dir(env) / "config.toml").decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _by_plugin(env: Mapping[str, str]) -> str:
    enabled = _table(_table(_settings(env), "plugins"), PLUGIN_NAME).get("enabled")
    return "by its plugin" if enabled is True else ""


def _untrusted(env: Mapping[str, str]) -> str:
    """Return what the user must do before the hooks run, or "". Codex notes in its settings whether the user has
    trusted the hooks in `hooks.json`."""
    hook_states = _table(_table(_settings(env), "hooks"), "state")
    path = str(config_dir(env) / "hooks.json")
    trusted = any(key.startswith(f"{path}:") and "trusted_hash" in _table(hook_states, key) for key in hook_states)
    return "" if trusted else "its hooks are not trusted yet: start `codex` and choose “Trust all and continue”"


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    yield from sorted((config_dir(env) / "sessions").glob("*/*/*/rollout-*.jsonl"))


def _owns(record: Mapping[str, Any]) -> bool:
    payload = record.get("payload")
    if record.get("type") == "session_meta" and isinstance(payload, dict):
        return isinstance(payload.get("id"), str)
    return {"id", "timestamp", "instructions"} <= set(record)  # the format of the first versions


AGENT = Agent(
    name=NAME,
    label="Codex",
    translate=translate,
    present=_present,
    edits=edits,
    connected_via=_by_plugin,
    pending_user_action=_untrusted,
    transcripts=Transcripts(
        read=read,
        find=_find,
        owns=_owns,
        head=read_head,
        subagents=subagent_files,
        sessions=session_ids,
        part=read_part,
    ),
    note=NOTE,
)
