"""Routes to show and change settings. Secrets can be set but are never returned.

Settings that name a program, an address, a proxy, a key or the provider (`config.is_terminal_only`) can only be changed
with the token, as `claude-mem config set` does: a stolen browser credential must not decide what is run or where
memories are sent. The response to a change is sent first, then the worker restarts with the new settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.background import BackgroundTask

from claude_mem.config import (
    ENV_PREFIX,
    HIDDEN_VALUE,
    MASK,
    URL_SETTINGS,
    Config,
    LoadedConfig,
    input_kind,
    is_terminal_only,
    list_setting_names,
    load_lenient,
    masked_toml,
    masked_value,
    setting_description,
    validate,
    value_limits,
)
from claude_mem.domain.errors import InvalidRequest, InvalidSetting
from claude_mem.system import config_file
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.route import AnyRoute, Caller, Reply, Route
from claude_mem.worker.http.schemas.settings import (
    CHANGE_SETTINGS,
    SHOW_SETTINGS,
    ChangeSettings,
    Setting,
    SettingsChanged,
)

ONLY_AT_START = ("worker_port",)  # a restart in the same process keeps the port
_DEFAULTS = Config()
B = TypeVar("B", bound=SettingsChanged)


async def show_settings(service: Service, _: NoFields, caller: Caller) -> dict[str, Setting]:
    """All settings: `value` as written in config.toml, `current` as JSON (for a secret only whether it is `set`),
    `reason`, `source` (default, file, environment), `default`, `kind`, `low`, `high`, `choices`, any error (`problem`,
    `hint`), why it cannot be changed here (`fixed`), whether it takes effect at a restart (`waits`)."""
    current = await load_settings(service)
    settings = {
        name: _describe(current, service.config, name, by_token=caller.by_token) for name in list_setting_names()
    }
    if problem := service.mode_problem:  # the name may be valid and its file not
        settings["mode"] = msgspec.structs.replace(settings["mode"], problem=str(problem), hint=problem.hint)
    return settings


async def load_settings(service: Service) -> LoadedConfig:
    """Load the settings from the file and the environment as they are now."""
    return await asyncio.to_thread(load_lenient, data_dir=service.config.data_dir)


def _describe(loaded: LoadedConfig, active: Config, name: str, *, by_token: bool) -> Setting:
    low, high, choices = value_limits(name)
    source = loaded.sources[name]
    problem = next((problem for problem in loaded.problems if problem.name == name), None)
    return Setting(
        value=masked_toml(loaded.config, name),
        current=_to_json(masked_value(loaded.config, name)),
        set=bool(getattr(loaded.config, name)),
        reason=setting_description(name),
        source=source if source in ("default", "environment") else "file",
        default=_to_json(getattr(_DEFAULTS, name)),
        kind=input_kind(name),
        low=low,
        high=high,
        choices=list(choices),
        problem=str(problem) if problem else "",
        hint=problem.hint if problem else "",
        fixed=_fixed_reason(loaded, name, by_token=by_token),
        waits=getattr(loaded.config, name) != getattr(active, name),
    )


def _to_json(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _fixed_reason(loaded: LoadedConfig, name: str, *, by_token: bool) -> str:
    """Return why the setting cannot be changed here; "" if it can."""
    if name == "data_dir":
        return "hooks read no settings file; set CLAUDE_MEM_DATA_DIR instead"
    if _in_environment(loaded, name):
        return f"{ENV_PREFIX}{name.upper()} is set and overrides the file"
    if is_terminal_only(name) and not by_token:
        value = "-" if input_kind(name) == "secret" else "VALUE"
        command = f"claude-mem config set {name} {value}"
        return f"it decides what is run or where data is sent; use `{command}` in a terminal"
    return ""


def _in_environment(loaded: LoadedConfig, name: str) -> bool:
    is_invalid = any(problem.name == name and ENV_PREFIX in str(problem) for problem in loaded.problems)
    return loaded.sources[name] == "environment" or is_invalid


async def change_settings(service: Service, request: ChangeSettings, caller: Caller) -> Reply[SettingsChanged]:
    """Change settings, `{name: value}`; null resets one to its default. All are changed or none → `{changed, restarts,
    started_at}`. The worker then restarts with them; `started_at` in /api/health changes when it has."""
    answer, _ = await store_settings(service, request.changes, by_token=caller.by_token)
    return respond_and_restart(service, answer)


async def store_settings(
    service: Service, changes: Mapping[str, object], *, by_token: bool
) -> tuple[SettingsChanged, Config]:
    """Write settings to the file. Return the response and the settings now in effect."""
    before = await load_settings(service)
    values = {name: _validate(before, name, raw, by_token=by_token) for name, raw in changes.items()}
    await asyncio.to_thread(config_file.apply_changes, service.config.data_dir / "config.toml", values)
    after = await load_settings(service)
    changed = [name for name in list_setting_names() if getattr(before.config, name) != getattr(after.config, name)]
    answer = SettingsChanged(
        changed=changed,
        restarts=_effective_values(after.config) != _effective_values(service.config),
        started_at=service.started_at,
    )
    await service.recorder.record("settings", names=changed)
    return answer, after.config


def respond_and_restart(service: Service, answer: B) -> Reply[B]:
    """Return the reply; the worker restarts after it if a changed setting requires that."""
    return Reply(answer, then=BackgroundTask(_request_restart, service) if answer.restarts else None)


async def _request_restart(service: Service) -> None:
    service.request_restart()


def _effective_values(config: Config) -> list[object]:
    return [getattr(config, item.name) for item in fields(config) if item.name not in ONLY_AT_START]


def _validate(loaded: LoadedConfig, name: str, raw: object, *, by_token: bool) -> object:
    """Return the checked value, or raise `InvalidSetting` with the setting's name for the API's error response."""
    try:
        return _check(loaded, name, raw, by_token=by_token)
    except InvalidRequest as error:
        raise InvalidSetting(str(error), hint=error.hint, name=name) from error


def _check(loaded: LoadedConfig, name: str, raw: object, *, by_token: bool) -> object:
    if name not in list_setting_names():
        raise InvalidRequest(f"there is no setting `{name}`", hint="GET /api/settings lists them")
    if why := _fixed_reason(loaded, name, by_token=by_token):
        raise InvalidRequest(f"`{name}` cannot be changed here: {why}")
    if raw is None:
        return None
    value = validate(name, raw, "not changed")
    if value == HIDDEN_VALUE or (name in URL_SETTINGS and f"//{MASK}@" in str(value)):
        raise InvalidRequest(f"`{name}` still has its secret masked", hint="enter the complete value")
    return value


ROUTES: tuple[AnyRoute, ...] = (
    Route(SHOW_SETTINGS, show_settings),
    Route(CHANGE_SETTINGS, change_settings),
)
