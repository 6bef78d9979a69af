"""Settings."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from claude_mem.worker.http.endpoints import Endpoint, NoFields, Wire


class Setting(msgspec.Struct, frozen=True):
    """One setting. `value` is written as in config.toml, `current` as JSON; a secret is only `set` or not."""

    value: str
    current: Any
    set: bool
    reason: str
    source: str
    default: Any
    kind: str
    low: float | None
    high: float | None
    choices: list[str]
    problem: str
    hint: str
    fixed: str
    waits: bool


class ChangeSettings(msgspec.Struct, frozen=True):
    """New values by name; null resets a setting to its default."""

    changes: Annotated[dict[str, Any], Wire(place="whole body")]


class SettingsChanged(msgspec.Struct, frozen=True):
    """The settings that changed, whether the worker restarts with them, and when it was started."""

    changed: list[str]
    restarts: bool
    started_at: int


SHOW_SETTINGS = Endpoint("GET", "/api/settings", NoFields, dict[str, Setting])
CHANGE_SETTINGS = Endpoint("PATCH", "/api/settings", ChangeSettings, SettingsChanged)
