"""Our lines in Claude Code's user settings: put in, found again, taken out, and nothing else touched.

A line is ours if its command runs our launcher. Timeouts are seconds, and small: whatever happens, the user
waits no longer. Hooks are synchronous, because asynchronous ones are killed when a headless client exits.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claude_mem import hook
from claude_mem.errors import CannotDo
from claude_mem.spool import write_private

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
LAUNCHER = Path(hook.__file__).resolve().with_name("launch.py")
_MATCHERS = {"PreToolUse": "Read|Edit|MultiEdit|Write|NotebookEdit", "PostToolUse": "*", "PostToolUseFailure": "*"}
_MARK = "claude_mem/launch.py"

Settings = dict[str, Any]


def path(env: Mapping[str, str]) -> Path:
    folder = env.get("CLAUDE_CONFIG_DIR")
    return (
        Path(folder) / "settings.json"
        if folder
        else Path(env.get("HOME") or hook.home_dir()) / ".claude" / "settings.json"
    )


def words(name: str, data_dir: Path | None) -> list[str]:
    """Absolute paths, `-I -S`: no shim, no site packages, no surprise. `data_dir` only if it is not the usual one."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), name, *([str(data_dir)] if data_dir else [])]


def command(name: str, data_dir: Path | None) -> str:
    """The line that the host hands to a shell.

    `|| true`: should Python or the launcher be gone (in the middle of an upgrade, or uninstalled by hand), the
    interpreter would exit with 2, and that blocks the user's prompt.
    """
    return shlex.join(words(name, data_dir)) + " 2>/dev/null || true"


def read(settings_path: Path) -> Settings:
    try:
        raw = settings_path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(raw.decode("utf-8") or "{}")
    except ValueError as error:
        raise CannotDo(
            f"{settings_path} is not valid JSON: {error}", hint="mend it first; nothing was changed"
        ) from error
    if not isinstance(found, dict) or not _has_known_shape(found):
        raise CannotDo(f"{settings_path} has an unexpected shape", hint="mend it first; nothing was changed")
    return found


def _has_known_shape(found: Settings) -> bool:
    """Hooks by event, each a list of entries with a list of handlers; the rest is not our business."""
    hooks = found.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(listed, list) for listed in hooks.values()):
        return False
    entries = [entry for listed in hooks.values() for entry in listed]
    return all(isinstance(entry, dict) and isinstance(entry.get("hooks"), list) for entry in entries)


def with_ours(settings: Settings, data_dir: Path | None) -> Settings:
    """The settings with our lines in them, each once, wherever older ones of ours were."""
    changed = without_ours(settings)
    hooks = changed.setdefault("hooks", {})
    for event, name in EVENTS.items():
        entry: dict[str, Any] = {"matcher": _MATCHERS[event]} if event in _MATCHERS else {}
        entry["hooks"] = [{"type": "command", "command": command(name, data_dir), "timeout": TIMEOUT_SECONDS}]
        hooks.setdefault(event, []).append(entry)
    return changed


def without_ours(settings: Settings) -> Settings:
    """The settings without our lines, and without what only they had needed."""
    changed: Settings = json.loads(json.dumps(settings))
    hooks = changed.get("hooks", {})
    touched = False
    for event in list(hooks):
        kept = [entry for entry in (_without(entry) for entry in hooks[event]) if entry is not None]
        if kept != hooks[event]:
            touched = True
            hooks[event] = kept
            if not kept:
                del hooks[event]
    if touched and not hooks:
        del changed["hooks"]
    return changed


def _without(entry: Any) -> Any:
    kept = [item for item in entry["hooks"] if not is_ours(item)]
    if len(kept) == len(entry["hooks"]):
        return entry
    return {**entry, "hooks": kept} if kept else None


def is_ours(item: Any) -> bool:
    return isinstance(item, dict) and _MARK in str(item.get("command", ""))


def installed(settings: Settings) -> list[str]:
    """The events that have a line of ours."""
    found = []
    for event, entries in settings.get("hooks", {}).items():
        if any(is_ours(item) for entry in entries for item in entry["hooks"]):
            found.append(event)
    return found


def write(settings_path: Path, settings: Settings, *, backup: Path) -> None:
    """All at once, keeping the file's mode and, if it is a link, the link. The old one is kept beside our data."""
    target = Path(os.path.realpath(settings_path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600
    if target.exists():
        mode = target.stat().st_mode & 0o777
        hook.make_private(str(backup.parent))
        write_private(backup, target.read_bytes())
    temp = target.with_name(f".{target.name}.claude-mem")
    temp.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(temp, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temp.chmod(mode)
    temp.rename(target)
