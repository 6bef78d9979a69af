"""GitHub's Copilot CLI. With Claude Code's event names, it sends payloads much like Claude Code's.

The differences: tools have other inputs; a failed shell command is reported as a success with the exit code in its
text; a subagent appears as a session of its own; prompts and tool calls have no ids; and the closing message is only in
the transcript. Ids are therefore derived from the time at which the hook was called, which the transcript records too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_mem.errors import Noise
from claude_mem.hosts import copilot_transcript
from claude_mem.hosts.copilot_words import call_id, outcome, prompt_id, tool
from claude_mem.hosts.dialect import Fields, milliseconds, string
from claude_mem.hosts.edits import Edit, FileEdit, JsonEdit, Settings, add_server, drop_server
from claude_mem.hosts.host import Host, Ours, Transcripts, is_here, place
from claude_mem.process import LAUNCHER

NAME = "copilot"
TIMEOUT_SECONDS = 5
EVENTS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "PreToolUse": "file",
    "PostToolUse": "save",
    "PostToolUseFailure": "fail",
    "Stop": "summary",
    "SubagentStop": "summary",
    "PreCompact": "compact",
    "SessionEnd": "cleanup",
}
MATCHERS = {"PreToolUse": "Read|Edit|Write"}
SKILL = "skills/mem-search/SKILL.md"
DATA = Path(__file__).parents[1] / "data"


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    translated = {**fields, **_speaker(fields)}
    match fields.get("hook_event_name"):
        case "SessionStart":
            return {**translated, "source": "startup"}  # a resumed session no longer has its brief
        case "UserPromptSubmit":
            return {**translated, "prompt_id": prompt_id(milliseconds(fields.get("timestamp")))}
        case "PreToolUse" | "PostToolUse" | "PostToolUseFailure":
            return {**translated, **_tool(fields)}
    return translated


def _speaker(fields: Fields) -> Fields:
    """Assign the events of a subagent to its parent's session. Its prompt and its closing message are ignored: they
    are part of the parent's tool call."""
    parent = string(fields.get("parent_agent_id"))
    if not parent:
        return {}
    if fields.get("hook_event_name") in ("UserPromptSubmit", "Stop", "SessionStart", "SessionEnd"):
        raise Noise
    return {"session_id": parent}


def _tool(fields: Fields) -> Fields:
    name, arguments = tool(string(fields.get("tool_name")), fields.get("tool_input"), string(fields.get("cwd")))
    result = fields.get("tool_result")
    result = result if isinstance(result, dict) else {}
    text, failed = outcome(string(result.get("text_result_for_llm")), string(result.get("result_type")) or "success")
    translated: Fields = {"tool_name": name, "tool_input": arguments, "tool_response": text}
    if fields.get("hook_event_name") != "PreToolUse":
        translated["tool_use_id"] = call_id(milliseconds(fields.get("timestamp")), fields.get("tool_input"))
    if failed and fields.get("hook_event_name") == "PostToolUse":
        translated |= {"hook_event_name": "PostToolUseFailure", "error": text}
    return translated


# --- installing ------------------------------------------------------------------------------------------------------


def folder(env: Mapping[str, str]) -> Path:
    return place(env, "COPILOT_HOME", ".copilot")


def hooks(ours: Ours) -> Settings:
    def handler(event: str, command: str) -> Settings:
        matcher = {"matcher": MATCHERS[event]} if event in MATCHERS else {}
        return {**matcher, "type": "command", "bash": ours.hook(command, NAME), "timeoutSec": TIMEOUT_SECONDS}

    return {"version": 1, "hooks": {event: [handler(event, command)] for event, command in EVENTS.items()}}


def server(ours: Ours) -> Settings:
    program, *arguments = ours.mcp()
    return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}


def edits(ours: Ours) -> Sequence[Edit]:
    directory = folder(ours.env)
    return (
        FileEdit(
            directory / "hooks" / "claude-mem.json",
            f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s",
            json.dumps(hooks(ours), indent=2) + "\n",
            mark=LAUNCHER,
            needed=True,
        ),
        JsonEdit(
            directory / "mcp-config.json",
            "the memory's tools",
            lambda settings: add_server(settings, server(ours)),
            drop_server,
        ),
        FileEdit(directory / SKILL, "a skill: when and how to search", (DATA / "plugin" / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_here(folder(env), NAME, env)


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    yield from sorted((folder(env) / "session-state").glob("*/events.jsonl"))


def _owns(record: Mapping[str, Any]) -> bool:
    data = record.get("data")
    return record.get("type") == "session.start" and isinstance(data, dict) and data.get("producer") == "copilot-agent"


HOST = Host(
    name=NAME,
    label="Copilot CLI",
    translate=translate,
    present=_present,
    edits=edits,
    transcripts=Transcripts(
        read=copilot_transcript.read,
        find=_find,
        owns=_owns,
        head=copilot_transcript.head,
        late_seconds=0.3,
        part=copilot_transcript.part,
    ),
)
