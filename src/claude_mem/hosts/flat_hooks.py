"""What Cursor and Windsurf have in common: an event's handlers are a plain list, an edit is a list of replacements."""

from __future__ import annotations

from collections.abc import Mapping

from claude_mem.hosts.dialect import Fields
from claude_mem.hosts.edits import Settings, is_ours


def add(settings: Settings, handlers: Mapping[str, Settings]) -> None:
    """Beside theirs, which have to be in the shape that the host reads."""
    hooks = settings.setdefault("hooks", {})
    if not all(isinstance(entries, list) for entries in hooks.values()):
        raise TypeError
    for event, handler in handlers.items():
        hooks.setdefault(event, []).append(handler)


def drop(settings: Settings) -> None:
    """Ours, and what only they had needed. Anything in a shape we do not know is not ours and stays."""
    hooks = settings.get("hooks", {})
    touched = False
    for event, entries in list(hooks.items()):
        kept = [entry for entry in entries if not _is_ours(entry)] if isinstance(entries, list) else entries
        if kept != entries:
            touched = True
            hooks[event] = kept
            if not kept:
                del hooks[event]
    if touched and not hooks:
        del settings["hooks"]
        if settings == {"version": 1}:
            del settings["version"]


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and is_ours(entry.get("command"))


def edited(told: Fields) -> Fields:
    """A file and its replacements as a call of the tool that does such a thing."""
    path, found = told.get("file_path"), told.get("edits")
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        only = {key: found[0].get(key) for key in ("old_string", "new_string")}
        return {"tool_name": "Edit", "tool_input": {"file_path": path, **only}}
    return {"tool_name": "MultiEdit", "tool_input": {"file_path": path, "edits": found}}
