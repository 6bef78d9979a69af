"""Every setting, its default and its reason. Defaults, then `config.toml`, then `CLAUDE_MEM_*`.

Loaded once by whoever starts (command line, worker) and passed on by hand; nothing else reads the environment.
The hook reads none of it: where the data lies is all it needs to know.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claude_mem import hook
from claude_mem.errors import BadSetting

PREFIX = "CLAUDE_MEM_"


def setting(default: Any, reason: str, *, low: int | None = None, high: int | None = None) -> Any:
    factory = {"default_factory": lambda: default} if isinstance(default, tuple) else {"default": default}
    return field(**factory, metadata={"reason": reason, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    data_dir: Path = setting(Path("~/.claude-mem"), "Where everything we own lies. Moving it moves everything.")
    worker_port: int = setting(37777, "Port of the worker on 127.0.0.1. If it is taken, a free one.", low=0, high=65535)
    context_tokens: int = setting(1500, "Room for the context at a session's start, in tokens.", low=300, high=3000)
    context_observations: int = setting(50, "The most observations that context may list.", low=1, high=500)
    skip_tools: tuple[str, ...] = setting(
        ("ListMcpResourcesTool", "SlashCommand", "Skill", "TodoWrite", "AskUserQuestion"),
        "Tools whose calls say nothing worth remembering.",
    )
    excluded_projects: tuple[str, ...] = setting(
        (), "Folders that are never captured, as globs: `~/secret/**`. A project's own switch is `.claude-mem.toml`."
    )
    redact_secrets: bool = setting(True, "Replace what looks like a key or a password before anything is stored.")
    event_chars: int = setting(20_000, "The most characters kept of one text of a tool call.", low=500, high=1_000_000)
    silence_minutes: int = setting(
        10, "After this long without an event an open turn counts as over.", low=1, high=1440
    )
    session_hours: int = setting(
        24, "After this long without an event a session counts as interrupted.", low=1, high=720
    )
    model: str = setting("", "Model that may refine memories. Not used yet: this version works without any.")
    embedding_model: str = setting(
        "arctic-s", "Model for searching by meaning, once it has been fetched: arctic-s, gte-small or minilm."
    )
    log_level: str = setting("INFO", "How much the worker's log says: DEBUG, INFO, WARNING or ERROR.")

    @property
    def database(self) -> Path:
        return self.data_dir / "claude-mem.db"

    @property
    def spool(self) -> Path:
        return self.data_dir / "spool"

    @property
    def aside(self) -> Path:
        return self.data_dir / "aside"

    @property
    def starts(self) -> Path:
        return self.data_dir / "starts"

    @property
    def backups(self) -> Path:
        return self.data_dir / "backups"

    @property
    def models(self) -> Path:
        return self.data_dir / "models"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "logs" / "worker.log"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, where each came from, and what was wrong with the ones that fell back to their default."""

    config: Config
    sources: Mapping[str, str]
    problems: tuple[BadSetting, ...]


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def load(env: Mapping[str, str] | None = None) -> Config:
    """The settings, or `BadSetting` with the file and line."""
    loaded = load_forgiving(env)
    if loaded.problems:
        raise loaded.problems[0]
    return loaded.config


def load_forgiving(env: Mapping[str, str] | None = None) -> Loaded:
    """The same, but a bad value becomes its default: capturing must not stop over a typing error."""
    env = os.environ if env is None else env
    data_dir = Path(hook.data_dir()) if env is os.environ else _data_dir(env)
    values: dict[str, Any] = {"data_dir": data_dir}
    sources = dict.fromkeys(names(), "default")
    sources["data_dir"] = "environment" if env.get("CLAUDE_MEM_DATA_DIR") else "default"
    problems: list[BadSetting] = []
    for origin, found in (_from_file(data_dir / "config.toml", problems), _from_env(env)):
        for name, (raw, where) in found.items():
            try:
                values[name] = _check(name, raw, where)
                sources[name] = origin
            except BadSetting as problem:
                problems.append(problem)
    return Loaded(Config(**values), sources, tuple(problems))


def names() -> list[str]:
    return [item.name for item in dataclasses.fields(Config)]


def reason(name: str) -> str:
    return str(_field(name).metadata["reason"])


def _field(name: str) -> dataclasses.Field[Any]:
    return next(item for item in dataclasses.fields(Config) if item.name == name)


def _data_dir(env: Mapping[str, str]) -> Path:
    named = env.get("CLAUDE_MEM_DATA_DIR")
    return Path(named).absolute() if named else Path(env.get("HOME") or hook.home_dir()) / ".claude-mem"


def _from_file(path: Path, problems: list[BadSetting]) -> tuple[str, dict[str, tuple[Any, str]]]:
    origin = str(path)
    try:
        text = path.read_text("utf-8")
        table = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return origin, {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(BadSetting(f"{path}: {error}", hint="mend the file, or move it away"))
        return origin, {}
    found = {}
    for name, raw in table.items():
        where = f"{path}, line {_line_of(text, name)}"
        if name not in names() or name == "data_dir":
            problems.append(BadSetting(f"{where}: there is no setting `{name}`", hint="`claude-mem config` lists them"))
        else:
            found[name] = (raw, where)
    return origin, found


def _line_of(text: str, name: str) -> int:
    match = re.search(rf"^\s*\"?{re.escape(name)}\"?\s*=", text, re.MULTILINE)
    return text.count("\n", 0, match.end()) + 1 if match else 1


def _from_env(env: Mapping[str, str]) -> tuple[str, dict[str, tuple[Any, str]]]:
    found = {}
    for name in names():
        variable = PREFIX + name.upper()
        if name != "data_dir" and variable in env:
            found[name] = (_parse(name, env[variable]), f"the environment variable {variable}")
    return "environment", found


def _parse(name: str, text: str) -> Any:
    """Environment variables are text; give them the shape the setting has."""
    default = getattr(Config(), name)
    if isinstance(default, bool):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if re.fullmatch(r"-?\d{1,12}", text.strip()) else text
    if isinstance(default, tuple):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _check(name: str, raw: Any, where: str) -> Any:
    default, meta = getattr(Config(), name), _field(name).metadata
    wanted, value = _wanted(default), raw
    if isinstance(default, tuple):
        fits = isinstance(raw, list) and all(isinstance(item, str) for item in raw)
        value = tuple(raw) if fits else raw
    elif isinstance(default, bool) or isinstance(raw, bool):
        fits = isinstance(raw, bool) and isinstance(default, bool)
    elif isinstance(default, int):
        fits = isinstance(raw, int)
        if fits and not _within(raw, meta["low"], meta["high"]):
            raise BadSetting(f"{where}: {name} = {raw} is out of range", hint=f"use {meta['low']} to {meta['high']}")
    else:
        fits = isinstance(raw, str)
    if not fits:
        raise BadSetting(f"{where}: {name} = {raw!r} is not {wanted}", hint=f"for example: {name} = {as_toml(default)}")
    if name == "log_level" and value not in LEVELS:
        raise BadSetting(f"{where}: log_level = {raw!r} is not a level", hint="use one of " + ", ".join(LEVELS))
    return value


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _wanted(default: Any) -> str:
    if isinstance(default, tuple):
        return "a list of texts"
    return {bool: "true or false", int: "a whole number"}.get(type(default), "a text")


def as_toml(value: Any) -> str:
    """A value as it would stand in config.toml."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'
