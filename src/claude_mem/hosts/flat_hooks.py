"""Hook files in which an event has its handlers as a plain list: Cursor's and Windsurf's."""

from __future__ import annotations

from collections.abc import Mapping

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
