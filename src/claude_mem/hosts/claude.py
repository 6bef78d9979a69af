"""Claude Code. Its words are our dialect, so there is next to nothing to translate.

Timeouts are seconds, and small: whatever happens, the user waits no longer. Hooks are synchronous, because asynchronous
ones are killed when a headless client exits.
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
# The plugin is the other way in; what people and the model find in it, they find here too.
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
    """Where it keeps its tool servers: beside its folder, unless that was moved."""
    return place(env, "CLAUDE_CONFIG_DIR", "") / ".claude.json"


def hook_lines(ours: Ours) -> dict[str, HookLine]:
    return {
        event: HookLine(ours.hook(command, NAME), TIMEOUTS.get(event, TIMEOUT_SECONDS), MATCHERS.get(event))
        for event, command in EVENTS.items()
    }


def server(ours: Ours) -> Settings:
    """`alwaysLoad`: else the model is shown names only, and has to look the tools up before it can use them."""
    program, *arguments = ours.mcp()
    return {"type": "stdio", "command": program, "args": arguments, "alwaysLoad": True}


def edits(ours: Ours) -> Sequence[Edit]:
    at = folder(ours.env)
    return (
        JsonEdit(
            at / "settings.json",
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
        *(FileEdit(at / name, what, (PLUGIN / name).read_text("utf-8")) for name, what in TEXTS.items()),
    )


def translate(fields: Fields) -> Fields:
    """Cursor can be told to run Claude Code's hooks too; it has its own, and everything would happen twice."""
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
        if not path.name.startswith("agent-"):  # a subagent's file is part of its session's
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
