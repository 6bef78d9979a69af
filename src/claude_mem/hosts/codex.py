"""Codex CLI. Its hooks adopted Claude Code's vocabulary; the differences are translated here.

Hooks do not report failed tool calls, so there is no hook for them: the rollout says afterwards what failed. Hooks of a
subagent carry the session of its parent, but its own turn and its own rollout; its prompt comes from the agent, not
from the user. New or changed hooks run only after the user has trusted them. Only the user may do that: we never write
the trust entry ourselves, and our hook command stays the same from one version to the next.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem import patches, untrusted_files
from claude_mem.errors import CannotDo, Noise
from claude_mem.hosts import codex_tools, codex_transcript
from claude_mem.hosts.claude import PLUGIN, PLUGIN_NAME, TIMEOUT_SECONDS, TIMEOUTS
from claude_mem.hosts.dialect import Fields, string
from claude_mem.hosts.edits import (
    SERVER,
    BlockEdit,
    Edit,
    FileEdit,
    HookLine,
    JsonEdit,
    add_hooks,
    drop_hooks,
    is_ours,
    unmarked,
)
from claude_mem.hosts.host import Host, Ours, Transcripts, is_here, place

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
# Only edits: files are read by shell commands, which do not name them.
MATCHERS = {"PreToolUse": patches.TOOL, "PostToolUse": "*"}
SKILL = "skills/mem-search/SKILL.md"
NOTE = (
    "Codex asks once whether these hooks may run: start `codex` and choose “Trust all and continue”."
    " Until then Codex runs none of them, and `codex exec` gives no warning."
)


def folder(env: Mapping[str, str]) -> Path:
    return place(env, "CODEX_HOME", ".codex")


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    translated = {name: value for name, value in fields.items() if name != "turn_id"}
    event = fields.get("hook_event_name")
    if string(fields.get("agent_id")):
        if event == "UserPromptSubmit":
            raise Noise
        translated.pop("transcript_path", None)  # the subagent's own
    else:
        translated["prompt_id"] = string(fields.get("turn_id"))
    if event == "UserPromptSubmit" and not codex_transcript.said_by_user(string(fields.get("prompt")) or "?"):
        raise Noise
    return translated | _tool(fields) if string(fields.get("tool_name")) else translated


def _tool(fields: Fields) -> Fields:
    name, before = string(fields["tool_name"]), fields.get("hook_event_name") == "PreToolUse"
    if codex_tools.is_noise(name):
        raise Noise
    call = codex_tools.tell(
        name, fields.get("tool_input"), fields.get("tool_response"), cwd=string(fields.get("cwd")), ran=True
    )
    if before:
        paths = [path for patch in patches.changes(call.input) for path in patch.paths[-1:]]
        return {"tool_name": call.name, "tool_input": {"file_path": paths[0]} if paths else call.input}
    if call.failed:
        failure = {"hook_event_name": "PostToolUseFailure", "error": call.output}
        return {"tool_name": call.name, "tool_input": call.input, **failure}
    return {"tool_name": call.name, "tool_input": call.input, "tool_response": call.output}


# --- installing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerTable(BlockEdit):
    """Our MCP server in Codex's settings, a hand-written TOML file: everything else keeps its formatting.

    Codex also changes the file and may remove or move our markers. So our table is recognised by its name and by the
    program it runs.
    """

    def with_ours(self, text: str) -> str:
        current_table, our_table = (_table(_servers(self._read(source)), SERVER) for source in (text, self.block))
        if current_table | our_table == current_table:  # keys that the user added, such as approval settings, stay
            return text
        bare = self.without_ours(text)
        if SERVER in _servers(self._read(bare)):
            raise CannotDo(
                f"{self.path}: another MCP server is already called {SERVER!r}", hint="rename it, then try again"
            )
        changed = BlockEdit.with_ours(self, bare)
        self._read(changed)
        return changed

    def without_ours(self, text: str) -> str:
        settings = self._read(text)
        entry = _servers(settings).get(SERVER)
        if not isinstance(entry, dict) or not is_ours([entry.get("command"), *_list(entry.get("args"))]):
            return text
        bare = _without_table(unmarked(text), f"mcp_servers.{SERVER}")
        expected = settings | {"mcp_servers": {name: one for name, one in _servers(settings).items() if name != SERVER}}
        if _drop_empty_servers(self._read(bare)) != _drop_empty_servers(expected):
            raise CannotDo(
                f"{self.path} cannot be changed safely", hint=f"remove [mcp_servers.{SERVER}] from it by hand"
            )
        return bare

    def _read(self, text: str) -> Fields:
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise CannotDo(f"{self.path} is not valid TOML: {error}", hint="correct it, then try again") from error


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


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(settings: Any, name: str) -> Fields:
    inner = settings.get(name) if isinstance(settings, dict) else None
    return inner if isinstance(inner, dict) else {}


def hook_lines(ours: Ours) -> dict[str, HookLine]:
    return {
        event: HookLine(ours.hook(command, NAME), TIMEOUTS.get(event, TIMEOUT_SECONDS), MATCHERS.get(event))
        for event, command in EVENTS.items()
    }


def server(ours: Ours) -> str:
    program, *arguments = ours.mcp()
    entry = {"command": program, "args": arguments}
    # A JSON string is also a valid TOML string.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
    return "\n".join([f"[mcp_servers.{SERVER}]", *lines])


def edits(ours: Ours) -> Sequence[Edit]:
    directory = folder(ours.env)
    return (
        JsonEdit(
            directory / "hooks.json",
            f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s",
            lambda settings: add_hooks(settings, hook_lines(ours)),
            drop_hooks,
        ),
        ServerTable(directory / "config.toml", "the memory's tools", server(ours)),
        FileEdit(directory / SKILL, "a skill: when and how to search", (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_here(folder(env), "codex", env)


def _settings(env: Mapping[str, str]) -> Fields:
    try:
        return tomllib.loads(untrusted_files.read_settings(folder(env) / "config.toml").decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _by_plugin(env: Mapping[str, str]) -> str:
    enabled = _table(_table(_settings(env), "plugins"), PLUGIN_NAME).get("enabled")
    return "by its plugin" if enabled is True else ""


def _untrusted(env: Mapping[str, str]) -> str:
    """Return what the user must do before the hooks run, or "". Codex notes in its settings whether the user has
    trusted the hooks in `hooks.json`."""
    hook_states = _table(_table(_settings(env), "hooks"), "state")
    path = str(folder(env) / "hooks.json")
    trusted = any(key.startswith(f"{path}:") and "trusted_hash" in _table(hook_states, key) for key in hook_states)
    return "" if trusted else "its hooks are not trusted yet: start `codex` and choose “Trust all and continue”"


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    yield from sorted((folder(env) / "sessions").glob("*/*/*/rollout-*.jsonl"))


def _owns(record: Mapping[str, Any]) -> bool:
    payload = record.get("payload")
    if record.get("type") == "session_meta" and isinstance(payload, dict):
        return isinstance(payload.get("id"), str)
    return {"id", "timestamp", "instructions"} <= set(record)  # the format of the first versions


HOST = Host(
    name=NAME,
    label="Codex",
    translate=translate,
    present=_present,
    edits=edits,
    elsewhere=_by_plugin,
    waits_for=_untrusted,
    transcripts=Transcripts(
        read=codex_transcript.read,
        find=_find,
        owns=_owns,
        head=codex_transcript.head,
        agents=codex_transcript.agents,
        sessions=codex_transcript.sessions,
        part=codex_transcript.part,
    ),
    note=NOTE,
)
