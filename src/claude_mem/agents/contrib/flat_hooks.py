"""Shared code for Cursor and Windsurf: the handlers of an event are a plain list, an edit is a list of replacements."""

from __future__ import annotations

from collections.abc import Mapping

from claude_mem.agents.canonical import Fields
from claude_mem.agents.files import Settings, runs_launcher


def add_handlers(settings: Settings, handlers: Mapping[str, Settings]) -> None:
    """Add our handlers beside existing ones. Raise `TypeError` if those do not have the expected form."""
    hooks = settings.setdefault("hooks", {})
    if not all(isinstance(entries, list) for entries in hooks.values()):
        raise TypeError
    for event, handler in handlers.items():
        hooks.setdefault(event, []).append(handler)


def drop_handlers(settings: Settings) -> None:
    """Remove our handlers and the keys that only they needed. Entries of an unknown form are not ours and stay."""
    hooks = settings.get("hooks", {})
    changed = False
    for event, entries in list(hooks.items()):
        remaining = [entry for entry in entries if not _is_ours(entry)] if isinstance(entries, list) else entries
        if remaining != entries:
            changed = True
            hooks[event] = remaining
            if not remaining:
                del hooks[event]
    if changed and not hooks:
        del settings["hooks"]
        if settings == {"version": 1}:
            del settings["version"]


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and runs_launcher(entry.get("command"))


def translate_edit(fields: Fields) -> Fields:
    """Translate a file with replacements to an `Edit` or `MultiEdit` call."""
    path, edits = fields.get("file_path"), fields.get("edits")
    if isinstance(edits, list) and len(edits) == 1 and isinstance(edits[0], dict):
        replacement = {key: edits[0].get(key) for key in ("old_string", "new_string")}
        return {"tool_name": "Edit", "tool_input": {"file_path": path, **replacement}}
    return {"tool_name": "MultiEdit", "tool_input": {"file_path": path, "edits": edits}}
