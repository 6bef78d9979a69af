"""Claude Code. Events are stored in its vocabulary, so there is almost nothing to translate.

A transcript has one JSON object per line; an assistant message takes one line per block. A tool call is a `tool_use`
block followed, some lines later, by the `tool_result` with the same id. The position is stored as an offset, so each
line is read once, and a file of any size can be read in parts.

Hook timeouts are short and in seconds: the user never waits longer. Hooks are synchronous, because asynchronous ones
are killed when a headless client exits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from claude_mem.agents.files import (
    SERVER_NAME,
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
from claude_mem.domain.records import Event, Prompted, Stopped
from claude_mem.privacy import tags
from claude_mem.system import untrusted_files

NAME = "claude"
TIMEOUT_SECONDS = 5
TIMEOUTS = {"SessionEnd": 3}  # Codex, which runs the same plugin, complains about more
EVENTS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "PreToolUse": "file",
    "PermissionRequest": "file",
    "PostToolUse": "save",
    "PostToolUseFailure": "fail",
    "Stop": "summary",
    "SubagentStop": "summary",
    "PreCompact": "compact",
    "SessionEnd": "cleanup",
}
# The plugin is the other way to install; it provides the same skill and commands.
PLUGIN = Path(__file__).parents[1] / "data" / "plugin"
PLUGIN_NAME = "mem@mem"
SKILL = "skills/mem-search/SKILL.md"
TEXTS = {
    SKILL: "a skill: when and how to search",
    "commands/mem.md": "the command /mem",
    "commands/remember.md": "the command /remember",
    "commands/forget.md": "the command /forget",
}
MATCHERS = {
    "PreToolUse": "Read|Edit|MultiEdit|Write|NotebookEdit|Bash",
    "PermissionRequest": "Bash",
    "PostToolUse": "*",
    "PostToolUseFailure": "*",
}


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return agent_dir(env, "CLAUDE_CONFIG_DIR", ".claude")


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Ignore hooks run by Cursor. Cursor can run Claude Code's hooks besides its own, and every event would arrive
    twice."""
    if "cursor_version" in fields:
        raise IgnoredEvent
    return fields


# --- transcripts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PendingClaudeCall:
    """A tool call whose result has not been read yet."""

    name: str
    input: Any
    line: int


class _ClaudeMark(transcript_lines.Mark):
    line_session: str = ""
    prompt_id: str = ""
    at: int = 0


_DECODE_MARK = msgspec.json.Decoder(_ClaudeMark)


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> TranscriptContent:
    """Read a transcript; see `canonical.Reader`."""
    reader = _ClaudeReader(host, content_session_id, agent_id, own=content_session_id)
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
    reader = _ClaudeReader(host, start.session, agent_id, own=content_session_id)
    return transcript_lines.read_part(path, reader, start, session=content_session_id, most=most, over=over)


def read_head(path: Path) -> TranscriptHead:
    """Read session id, directory, start and end from the first and last lines."""
    return transcript_lines.read_head(path, _learn)


def _learn(transcript: TranscriptContent, record: Fields) -> None:
    transcript.content_session_id = transcript.content_session_id or string_field(record, "sessionId")
    transcript.cwd = transcript.cwd or string_field(record, "cwd")


def subagent_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the id and file of each subagent of a session. Older clients put all of them beside the session files."""
    name = _stem(path)
    try:
        beside = _by_session(path.parent, path.parent.stat().st_mtime_ns).get(name, ())
        files = [*_agent_files(path.with_name(name) / "subagents"), *beside]
    except (OSError, ValueError):
        return
    for file in files:
        yield _stem(file).removeprefix("agent-"), file


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _agent_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("agent-*.jsonl*") if file.name.endswith((".jsonl", ".jsonl.gz")))


@lru_cache(maxsize=16)
def _by_session(folder: Path, _: int) -> dict[str, list[Path]]:
    """Return the subagent files in a directory by session; cached until the directory changes."""
    files: dict[str, list[Path]] = {}
    for file in _agent_files(folder):
        files.setdefault(read_head(file).content_session_id, []).append(file)
    return files


class _ClaudeReader:
    """Collects events from the records of a transcript.

    `own` is the session to which a hook's payload says the file belongs; lines of other sessions are skipped. It is
    empty if the user named the file: then all lines count.
    """

    def __init__(self, host: str, content_session_id: str, agent_id: str, *, own: str = "") -> None:
        self.host = host
        self.own = own
        self.line_session = ""  # the session of the previous line
        self.content_session_id = content_session_id
        self.agent_id = agent_id
        self.transcript = TranscriptContent()
        self.calls: dict[str, _PendingClaudeCall] = {}
        self.prompt_id = ""
        self.closing_line = -1
        self.at = 0

    def resume(self, mark: _ClaudeMark, unfinished: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Continue where a part ended, after reading its unfinished lines again."""
        self.transcript.content_session_id, self.transcript.cwd = mark.session, mark.cwd
        self.transcript.offset = mark.offset
        self.prompt_id, self.at, self.line_session = mark.prompt_id, mark.at, mark.line_session
        if mark.private:
            self.transcript.private.add(mark.prompt_id)
        for line, record in unfinished:
            if isinstance(record.get("message"), dict):
                self._assistant(record, line)

    def drop_open_closing(self) -> None:
        """Drop the closing message of a turn that continues in the next part."""
        self.transcript.closings.pop(self.prompt_id, None)

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first tool call without a result."""
        return transcript_lines.resume_offset(place, [call.line for call in self.calls.values()])

    def mark(self, place: transcript_lines.ReadPosition) -> _ClaudeMark:
        """Return the mark from which the next part continues."""
        unfinished = {call.line for call in self.calls.values()} | {self.closing_line}
        return _ClaudeMark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            line_session=self.line_session,
            cwd=self.transcript.cwd,
            prompt_id=self.prompt_id,
            private=self.prompt_id in self.transcript.private,
            at=self.at,
            lines=sorted(unfinished - {-1})[-transcript_lines.MAX_REREAD_LINES :],
        )

    def take(self, start: int, record: dict[str, Any]) -> None:
        """Process the record at offset `start`."""
        if not isinstance(record.get("message"), dict):
            self.transcript.bad_lines += record.get("type") in ("user", "assistant")
            return
        self.line_session = string_field(record, "sessionId") or self.line_session
        if self.own and self.line_session not in ("", self.own):
            return
        self.transcript.content_session_id = self.content_session_id = self.content_session_id or string_field(
            record, "sessionId"
        )
        self.transcript.cwd = self.transcript.cwd or string_field(record, "cwd")
        if branch := string_field(record, "gitBranch"):
            self.transcript.branches.setdefault(branch)
        if bool(record.get("isSidechain")) != bool(self.agent_id) or record.get("isMeta"):
            return
        if record.get("type") == "assistant":
            self._assistant(record, start)
        elif record.get("type") == "user" and not record.get("isCompactSummary"):
            self._user(record)
        self.transcript.lines.setdefault(self.prompt_id, start)

    def _assistant(self, record: dict[str, Any], start: int) -> None:
        for block in _blocks(record):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                self.calls[block["id"]] = _PendingClaudeCall(str(block.get("name", "")), block.get("input"), start)
            elif block.get("type") == "text" and self._is_closing(record, block):
                self.closing_line = start
                self.transcript.closings[self.prompt_id] = self._event(
                    record, Stopped(tags.strip_private(block["text"]))
                )

    def _is_closing(self, record: dict[str, Any], block: dict[str, Any]) -> bool:
        """Return whether a text ends a turn: no tool call follows, and it is not the client's own error message."""
        is_not_last = record["message"].get("stop_reason") == "tool_use" or record.get("isApiErrorMessage")
        return not is_not_last and not self.agent_id and bool(string_or_empty(block.get("text")).strip())

    def _user(self, record: dict[str, Any]) -> None:
        blocks = _blocks(record)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if isinstance(prompt_id := record.get("promptId"), str) and results:
            self._belongs_to(prompt_id)
        for block in results:
            self._result(record, block)
        if not results and not self.agent_id:
            texts = [string_or_empty(block.get("text")) for block in blocks if block.get("type") == "text"]
            self._prompt(record, "\n".join(texts))

    def _belongs_to(self, prompt_id: str) -> None:
        if prompt_id != self.prompt_id:
            self.prompt_id, self.closing_line = prompt_id, -1

    def _result(self, record: dict[str, Any], block: dict[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            return
        call = self.calls.pop(call_id, None)
        if call is None or not call.name:
            return
        failed = bool(block.get("is_error"))
        output = block.get("content") if failed else record.get("toolUseResult", block.get("content"))
        # Private parts first: `make_tool_used` leaves out parts of the output, possibly half of a private one.
        arguments, output = tags.strip_private_call(call.input, output)
        body = make_tool_used(call.name, arguments, output, failed=failed, agent_id=self.agent_id)
        self.transcript.events.append(self._event(record, body, tool_use_id=call_id))

    def _prompt(self, record: dict[str, Any], text: str) -> None:
        before = self.prompt_id
        self._belongs_to(str(record.get("promptId") or record.get("uuid") or ""))
        is_user_text = bool(text.strip()) and is_user_prompt(text)
        if tags.is_entirely_private(text) or (not is_user_text and before in self.transcript.private):
            self.transcript.private.add(self.prompt_id)  # a notice after a private turn belongs to it
        if is_user_text:
            self.transcript.events.append(self._event(record, Prompted(tags.strip_private(text))))

    def _event(self, record: dict[str, Any], body: Any, *, tool_use_id: str = "") -> Event:
        # A record without a time gets that of the previous one.
        self.at = parse_timestamp(record.get("timestamp")) or self.at
        return Event(
            id=f"t-{tool_use_id or record.get('uuid') or f'{self.content_session_id}-{self.transcript.offset}'}",
            host=self.host,
            content_session_id=self.content_session_id,
            at=self.at,
            body=body,
            prompt_id=self.prompt_id,
            tool_use_id=tool_use_id,
            private=self.prompt_id in self.transcript.private,
        )


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"].get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    for path in sorted((config_dir(env) / "projects").glob("*/*.jsonl")):
        if not path.name.startswith("agent-"):  # subagent files are read together with their session
            yield path


def _owns(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("sessionId"), str) and ("uuid" in record or "type" in record)


# --- installing ------------------------------------------------------------------------------------------------------


def _state(env: Mapping[str, str]) -> Path:
    """Return the file that lists MCP servers: beside the configuration directory, or inside it if that was moved."""
    return agent_dir(env, "CLAUDE_CONFIG_DIR", "") / ".claude.json"


def hook_lines(ours: LauncherCommands) -> dict[str, HookEntry]:
    """Return our hook of each event."""
    return {
        event: HookEntry(ours.hook(command, NAME), TIMEOUTS.get(event, TIMEOUT_SECONDS), MATCHERS.get(event))
        for event, command in EVENTS.items()
    }


def server_entry(ours: LauncherCommands) -> Settings:
    """Return our MCP server entry. Without `alwaysLoad` the model sees only tool names and must look the tools up
    before using them."""
    program, *arguments = ours.mcp()
    return {"type": "stdio", "command": program, "args": arguments, "alwaysLoad": True}


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    return (
        JsonEdit(
            directory / "settings.json",
            f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s",
            lambda settings: add_hooks(settings, hook_lines(ours)),
            remove_hooks,
        ),
        JsonEdit(
            _state(ours.env),
            "the memory's tools",
            lambda settings: add_server(settings, server_entry(ours)),
            remove_server,
        ),
        *(
            FileEdit(directory / name, description, (PLUGIN / name).read_text("utf-8"))
            for name, description in TEXTS.items()
        ),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), "claude", env)


def _by_plugin(env: Mapping[str, str]) -> str:
    """Return "by its plugin" if the plugin is enabled, else ""."""
    try:
        settings = json.loads(untrusted_files.read_settings(config_dir(env) / "settings.json"))
        enabled = settings["enabledPlugins"][PLUGIN_NAME]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return "by its plugin" if enabled is True else ""


def _traces(env: Mapping[str, str]) -> Iterator[Path]:
    cache = agent_dir(env, "XDG_CACHE_HOME", ".cache")
    yield from (cache / "claude-cli-nodejs").glob(f"*/mcp-logs-{SERVER_NAME}")


AGENT = Agent(
    name=NAME,
    label="Claude Code",
    translate=translate,
    present=_present,
    edits=edits,
    connected_via=_by_plugin,
    traces=_traces,
    shows_greeting=True,
    transcripts=Transcripts(
        read=read,
        find=_find,
        owns=_owns,
        subagents=subagent_files,
        part=read_part,
        head=read_head,
        session_in_each_line=True,
    ),
)
