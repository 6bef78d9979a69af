"""Claude Code. Events are stored in its vocabulary, so there is almost nothing to translate.

Timeouts are short and in seconds: the user never waits longer. Hooks are synchronous, because asynchronous ones are
killed when a headless client exits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_mem import untrusted_files
from claude_mem.errors import Noise
from claude_mem.hosts import claude_transcript
from claude_mem.hosts.dialect import Fields
from claude_mem.hosts.edits import (
    SERVER,
    Edit,
    FileEdit,
    HookLine,
    JsonEdit,
    Settings,
    add_hooks,
    add_server,
    drop_hooks,
    drop_server,
)
from claude_mem.hosts.host import Host, Ours, Transcripts, is_here, place

NAME = "claude"
TIMEOUT_SECONDS = 5
TIMEOUTS = {"SessionEnd": 3}  # Codex, which runs the same plugin, complains about more
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
MATCHERS = {"PreToolUse": "Read|Edit|MultiEdit|Write|NotebookEdit", "PostToolUse": "*", "PostToolUseFailure": "*"}


def folder(env: Mapping[str, str]) -> Path:
    return place(env, "CLAUDE_CONFIG_DIR", ".claude")


def _state(env: Mapping[str, str]) -> Path:
    """Return the file that lists MCP servers: beside the configuration directory, or inside it if that was moved."""
    return place(env, "CLAUDE_CONFIG_DIR", "") / ".claude.json"


def hook_lines(ours: Ours) -> dict[str, HookLine]:
    return {
        event: HookLine(ours.hook(command, NAME), TIMEOUTS.get(event, TIMEOUT_SECONDS), MATCHERS.get(event))
        for event, command in EVENTS.items()
    }


def server(ours: Ours) -> Settings:
    """Return our MCP server entry. Without `alwaysLoad` the model sees only tool names and must look the tools up
    before using them."""
    program, *arguments = ours.mcp()
    return {"type": "stdio", "command": program, "args": arguments, "alwaysLoad": True}


def edits(ours: Ours) -> Sequence[Edit]:
    directory = folder(ours.env)
    return (
        JsonEdit(
            directory / "settings.json",
            f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s",
            lambda settings: add_hooks(settings, hook_lines(ours)),
            drop_hooks,
        ),
        JsonEdit(
            _state(ours.env),
            "the memory's tools",
            lambda settings: add_server(settings, server(ours)),
            drop_server,
        ),
        *(
            FileEdit(directory / name, description, (PLUGIN / name).read_text("utf-8"))
            for name, description in TEXTS.items()
        ),
    )


def translate(fields: Fields) -> Fields:
    """Ignore hooks run by Cursor. Cursor can run Claude Code's hooks besides its own, and every event would arrive
    twice."""
    if "cursor_version" in fields:
        raise Noise
    return fields


def _present(env: Mapping[str, str]) -> bool:
    return is_here(folder(env), "claude", env)


def _by_plugin(env: Mapping[str, str]) -> str:
    try:
        enabled = json.loads(untrusted_files.read_settings(folder(env) / "settings.json"))["enabledPlugins"][
            PLUGIN_NAME
        ]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return "by its plugin" if enabled is True else ""


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    for path in sorted((folder(env) / "projects").glob("*/*.jsonl")):
        if not path.name.startswith("agent-"):  # subagent files are read together with their session
            yield path


def _owns(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("sessionId"), str) and ("uuid" in record or "type" in record)


def _traces(env: Mapping[str, str]) -> Iterator[Path]:
    cache = place(env, "XDG_CACHE_HOME", ".cache")
    yield from (cache / "claude-cli-nodejs").glob(f"*/mcp-logs-{SERVER}")


HOST = Host(
    name=NAME,
    label="Claude Code",
    translate=translate,
    present=_present,
    edits=edits,
    elsewhere=_by_plugin,
    traces=_traces,
    greets=True,
    transcripts=Transcripts(
        read=claude_transcript.read,
        find=_find,
        owns=_owns,
        agents=claude_transcript.agents,
        part=claude_transcript.part,
        head=claude_transcript.head,
        named_by_line=True,
    ),
)
