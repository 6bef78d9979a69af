"""Every setting, its default and its reason. Defaults, then `config.toml`, then `CLAUDE_MEM_*`; of these a worker that
a hook starts is given only what `hook.HARMLESS` names.

Loaded once by whoever starts (command line, worker) and passed on by hand; nothing else reads the environment. The
worker looks again when it is asked what is set, or to change it.
The hook reads none of it: where the data lies is all it needs to know.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from claude_mem import hook, untrusted_files
from claude_mem.errors import BadSetting
from claude_mem.text import storable

PREFIX = "CLAUDE_MEM_"


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
VERBOSITIES = ("minimal", "normal", "verbose")
FOREIGN_TEXTS = ("strict", "balanced", "open")
PROVIDERS = (
    "auto", "local", "claude", "anthropic", "openai", "openrouter", "gemini", "ollama", "lmstudio", "vllm",
)  # fmt: skip
URLS = ("anthropic_base_url", "openai_base_url", "proxy")
# Who is given which secret: each address, the proxy on the way there, and the program that reads a file of tokens.
_KIN = ("openai_api_key", "openrouter_api_key", "gemini_api_key")
TAKES = {
    "anthropic_base_url": ("anthropic_api_key",),
    "openai_base_url": _KIN,
    "proxy": ("anthropic_api_key", *_KIN),
    "claude_path": ("claude_env_file",),
}
MOST_CHARS = 4_000
HIDDEN, MASK = "(set, not shown)", "…"


def setting(
    default: Any,
    reason: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    cautious: Any = None,
    terminal_only: bool = False,
) -> Any:
    """`low` and `high` bound a number, `high` the length of a text. `cautious` stands in for a value that makes no
    sense, where the default could cost someone something. `terminal_only`: it names a program that is run, an address
    that data is sent to, who gets it, or a key, so the credential of a browser is not enough to change it."""
    factory = {"default_factory": lambda: default} if isinstance(default, tuple) else {"default": default}
    meta = {"reason": reason, "low": low, "high": high, "choices": choices, "secret": secret, "cautious": cautious}
    meta["terminal_only"] = terminal_only or secret
    return field(**factory, metadata=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    data_dir: Path = setting(Path("~/.claude-mem"), "Where everything we own lies. Moving it moves everything.")
    worker_port: int = setting(37777, "Port of the worker on 127.0.0.1. If it is taken, a free one.", low=0, high=65535)
    context_tokens: int = setting(800, "Room for the context at a session's start, in tokens.", low=300, high=2000)
    context_observations: int = setting(50, "The most observations that context may list.", low=1, high=500)
    skip_tools: tuple[str, ...] = setting(
        ("ListMcpResourcesTool", "SlashCommand", "Skill", "TodoWrite", "AskUserQuestion"),
        "Tools whose calls say nothing worth remembering.",
    )
    excluded_projects: tuple[str, ...] = setting(
        (), "Folders that are never captured, as globs: `~/secret/**`. A project's own switch is `.claude-mem.toml`."
    )
    redact_secrets: bool = setting(True, "Replace what looks like a key or a password before anything is stored.")
    withheld_files: tuple[str, ...] = setting(
        (),
        "More files whose content is never kept, as globs: `*.secret`, `vault/*`; `!*.pem` takes one of ours out. Keys,"
        " `.env` and their kin are among them anyway (docs/secrets.md).",
    )
    event_chars: int = setting(20_000, "The most characters kept of one text of a tool call.", low=500, high=1_000_000)
    silence_minutes: int = setting(
        10, "After this long without an event an open turn counts as over.", low=1, high=1440
    )
    session_hours: int = setting(
        24, "After this long without an event a session counts as interrupted.", low=1, high=720
    )
    provider: str = setting(
        "auto",
        "Who refines memories: `auto` (your Claude plan if the extra `claude` is installed, else nobody), `local`"
        " (nobody), `claude` (your Claude plan, through your installed `claude` program), `anthropic`, `openai`,"
        " `openrouter`, `gemini`, `ollama`, `lmstudio`, `vllm`. Several, with commas, are tried in that order;"
        " `ollama:qwen3` names a model too.",
        cautious="local",
        terminal_only=True,
    )
    model: str = setting("", "Model of the provider. Empty: a small one that fits.")
    anthropic_base_url: str = setting("", "Where `anthropic` is reached. Empty: api.anthropic.com.", terminal_only=True)
    anthropic_api_key: str = setting("", "Key for `anthropic`, or `file:PATH` of a file that holds it.", secret=True)
    openai_base_url: str = setting(
        "", "Where `openai` and its kin are reached. Empty: each one's usual address.", terminal_only=True
    )
    openai_api_key: str = setting(
        "", "Key for `openai` and its kin, or `file:PATH` of a file that holds it.", secret=True
    )
    openrouter_api_key: str = setting("", "Key for `openrouter`, if `openai_api_key` is another's.", secret=True)
    gemini_api_key: str = setting("", "Key for `gemini`, if `openai_api_key` is another's.", secret=True)
    claude_path: str = setting(
        "",
        "The `claude` program that the provider `claude` runs. Empty: one in the usual places (`~/.local/bin`,"
        " `/usr/local/bin` and the like), never one that is only on `PATH`.",
        terminal_only=True,
    )
    claude_sdk: bool = setting(
        False,
        "Have the Agent SDK (the extra `claude`) run that program, instead of running it directly.",
        terminal_only=True,
    )
    claude_env_file: str = setting(
        "",
        "File of NAME=value lines for that program, such as a token. Empty: the login of your `claude`.",
        terminal_only=True,
    )
    claude_resume: bool = setting(
        False, "Let `claude` go on with its own conversation within a session. Costs more: it reads it all again."
    )
    proxy: str = setting(
        "", "HTTP proxy for requests to models, as http://host:port. Nothing is inherited.", terminal_only=True
    )
    daily_tokens: int = setting(
        300_000, "The most tokens a day for refining, in and out. 0: none.", low=0, high=1_000_000_000, cautious=0
    )
    monthly_cost: float = setting(
        5.0, "The most dollars a month for refining. 0: only what is free.", low=0, high=1e6, cautious=0.0
    )
    request_tokens: int = setting(
        8_000, "The most tokens of one request and its answer together.", low=4_000, high=32_000
    )
    foreign_text: str = setting(
        "balanced",
        "What is told of an agent's words after it read what strangers wrote (packages, clones, logs, pages …):"
        " `balanced` leaves out sentences that repeat it; `strict` leaves out all words of such a turn; `open` compares"
        " only with trackers and forges (docs/trust.md).",
        choices=FOREIGN_TEXTS,
    )
    verbosity: str = setting("normal", "How much a model should keep: minimal, normal or verbose.", choices=VERBOSITIES)
    mode: str = setting("code", "What is worth keeping: `code`, `research`, or a file of yours in `modes/`.")
    language: str = setting("", "Language a model writes memories in, such as `Deutsch`. Empty: English.", high=40)
    greeting: bool = setting(
        True, "Once a day, at a session's start, one line for you: how much is remembered here, and what is new."
    )
    keep_events_days: int = setting(
        7,
        "So long raw events are kept after memories were made of them. 0: they go at once, and then no model can"
        " put them in better words later.",
        low=0,
        high=3650,
    )
    keep_dead_days: int = setting(
        30, "So long events and jobs that failed are kept, to be looked at or tried again.", low=1, high=3650
    )
    keep_log_days: int = setting(14, "So long the lines of the worker's log are kept.", low=1, high=3650)
    disk_quota_mb: int = setting(
        2048,
        "The most that all of it may take on the disk, in MB, but for models and exports. Above it the oldest raw"
        " events go, then the oldest backups; never a memory.",
        low=50,
        high=10_000_000,
    )
    log_level: str = setting("INFO", "How much the worker's log says: DEBUG, INFO, WARNING or ERROR.", choices=LEVELS)
    embedding_model: str = setting(
        "arctic-s", "Model for searching by meaning, once it has been fetched: arctic-s, gte-small or minilm."
    )

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
    def exports(self) -> Path:
        """Where an export goes that was given no name."""
        return self.data_dir / "exports"

    @property
    def quarantine(self) -> Path:
        """Where a damaged database is kept."""
        return self.data_dir / "quarantine"

    @property
    def ballast(self) -> Path:
        """Room that is given up when the disk is full, so that forgetting still works."""
        return self.data_dir / "ballast"

    @property
    def modes(self) -> Path:
        return self.data_dir / "modes"

    @property
    def observer(self) -> Path:
        """Where the `claude` program stands while it refines: a folder without anyone's project in it."""
        return self.data_dir / "observer"

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


def load(env: Mapping[str, str] | None = None) -> Config:
    """The settings, or `BadSetting` with the file and line."""
    loaded = load_forgiving(env)
    if loaded.problems:
        raise loaded.problems[0]
    return loaded.config


def load_forgiving(env: Mapping[str, str] | None = None, *, data_dir: Path | None = None) -> Loaded:
    """The same, but a bad value becomes its default: capturing must not stop over a typing error. Whoever has moved to
    another folder since the start says where the data lies: what the environment says may be relative to the first."""
    env = os.environ if env is None else env
    data_dir = data_dir or (Path(hook.data_dir()) if env is os.environ else _data_dir(env))
    values: dict[str, Any] = {"data_dir": data_dir}
    sources = dict.fromkeys(names(), "default")
    sources["data_dir"] = "environment" if env.get("CLAUDE_MEM_DATA_DIR") else "default"
    problems: list[BadSetting] = []
    filed: dict[str, Any] = {}
    for origin, found in (_from_file(data_dir / "config.toml", problems), _from_env(env)):
        filed = dict(values)  # at the environment's turn: what the file says
        for name, (raw, where) in found.items():
            try:
                values[name] = check(name, raw, where)
                sources[name] = origin
            except BadSetting as problem:
                problem.name = name
                problems.append(problem)
                if (cautious := _field(name).metadata["cautious"]) is not None:
                    values[name] = cautious
    problems += _kept_together(values, sources, filed)
    return Loaded(Config(**values), sources, tuple(problems))


def _kept_together(values: dict[str, Any], sources: dict[str, str], filed: Mapping[str, Any]) -> Iterator[BadSetting]:
    """A key from the file goes to no address and no program out of the environment, which may be a project's."""
    for taker, keys in TAKES.items():
        mine = [key for key in keys if values.get(key) and sources[key] not in ("environment", "default")]
        said = filed.get(taker, "")  # not always the usual address: the file may name another
        if mine and sources[taker] == "environment" and values.get(taker, "") != said:
            values[taker] = said
            sources[taker] = sources[mine[0]] if taker in filed else "default"
            yield BadSetting(
                f"{PREFIX}{taker.upper()} is not used: `{mine[0]}` stands in {sources[mine[0]]}",
                hint=f"put `{taker}` and `{mine[0]}` in the same place",
                name=taker,
            )


def only_here(env: Mapping[str, str] | None = None) -> list[str]:
    """What this environment sets and a worker that a hook starts has otherwise, since it takes it from the file."""
    env = os.environ if env is None else env
    here = load_forgiving(env).config
    passed = {name: value for name, value in env.items() if not name.startswith(PREFIX) or is_passed_on(name)}
    there = load_forgiving(passed, data_dir=here.data_dir).config
    return [name for name in names() if getattr(here, name) != getattr(there, name)]


def is_passed_on(variable: str) -> bool:
    """Does a worker that a hook starts take this from the environment, too?"""
    return variable.encode("utf-8", "surrogateescape") in hook.HARMLESS


def names() -> list[str]:
    return [item.name for item in dataclasses.fields(Config)]


def reason(name: str) -> str:
    return str(_field(name).metadata["reason"])


def kind(name: str) -> str:
    """What a setting is, in a word, for whoever draws a field for it."""
    default, meta = getattr(Config(), name), _field(name).metadata
    if meta["secret"]:
        return "secret"
    if meta["choices"]:
        return "choice"
    kinds = {bool: "switch", int: "whole number", float: "number", tuple: "list"}
    return kinds.get(type(default), "text")


def limits(name: str) -> tuple[float | None, float | None, tuple[str, ...]]:
    """The least and the most it may be, and what it may be chosen from."""
    meta = _field(name).metadata
    return meta["low"], meta["high"], meta["choices"]


def is_terminal_only(name: str) -> bool:
    """Whether only the token may change it, never the credential of a browser: see `setting`."""
    return bool(_field(name).metadata["terminal_only"])


def _field(name: str) -> dataclasses.Field[Any]:
    return next(item for item in dataclasses.fields(Config) if item.name == name)


def _data_dir(env: Mapping[str, str]) -> Path:
    named = env.get("CLAUDE_MEM_DATA_DIR")
    return Path(named).absolute() if named else Path(env.get("HOME") or hook.home_dir()) / ".claude-mem"


def _from_file(path: Path, problems: list[BadSetting]) -> tuple[str, dict[str, tuple[Any, str]]]:
    origin = str(path)
    try:
        text = untrusted_files.read_settings(path).decode("utf-8")
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
            found[name] = (parse(name, env[variable]), f"the environment variable {variable}")
    return "environment", found


def parse(name: str, text: str) -> Any:
    """What comes as text, in the shape the setting has."""
    default = getattr(Config(), name)
    if isinstance(default, bool):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower(), text)
    if isinstance(default, float):
        return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text.strip()) else text
    if isinstance(default, int):
        return int(text) if re.fullmatch(r"-?\d{1,12}", text.strip()) else text
    if isinstance(default, tuple):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def check(name: str, raw: Any, where: str) -> Any:
    default, meta = getattr(Config(), name), _field(name).metadata
    wanted, value = _wanted(default), raw
    if isinstance(default, tuple):
        fits = isinstance(raw, list) and all(isinstance(item, str) for item in raw)
        value = tuple(raw) if fits else raw
    elif isinstance(default, bool) or isinstance(raw, bool):
        fits = isinstance(raw, bool) and isinstance(default, bool)
    elif isinstance(default, int | float):
        fits = isinstance(raw, int if isinstance(default, int) else int | float)
        value = float(raw) if fits and isinstance(default, float) else raw
        if fits and not _within(raw, meta["low"], meta["high"]):
            raise BadSetting(f"{where}: {name} = {raw} is out of range", hint=f"use {meta['low']} to {meta['high']}")
    else:
        fits = isinstance(raw, str)
    if not fits:
        raw = HIDDEN if meta["secret"] else raw
        raise BadSetting(f"{where}: {name} = {raw!r} is not {wanted}", hint=f"for example: {name} = {as_toml(default)}")
    if meta["choices"] and value not in meta["choices"]:
        raise BadSetting(f"{where}: {name} = {raw!r} is not known", hint="use one of " + ", ".join(meta["choices"]))
    if name == "provider":
        check_providers(value, where)
    for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
        _check_text(name, text, where, most=meta["high"] or MOST_CHARS)
    return value


def _check_text(name: str, value: str, where: str, *, most: float) -> None:
    if storable(value) != value:
        raise BadSetting(f"{where}: {name} is not text in UTF-8", hint="type it again")
    if len(value) > most:
        raise BadSetting(f"{where}: {name} is too long", hint=f"use at most {most:g} characters")
    if name in URLS and value and not _is_address(value):
        raise BadSetting(f"{where}: {name} is no address", hint="for example: http://127.0.0.1:8080")


def _is_address(value: str) -> bool:
    try:
        return bool(re.fullmatch(r"https?://[^\s/]\S*", value)) and urlsplit(value).port != 0
    except ValueError:
        return False


def check_providers(value: str, where: str) -> None:
    """Every name in the list is one we know."""
    for part in value.split(","):
        given = part.partition(":")[0].strip().lower()
        if given not in PROVIDERS:
            raise BadSetting(f"{where}: there is no provider {given!r}", hint="use one of " + ", ".join(PROVIDERS))


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _wanted(default: Any) -> str:
    if isinstance(default, tuple):
        return "a list of texts"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(type(default), "a text")


def shown(config: Config, name: str) -> str:
    """A setting as people may see it."""
    value = showable(config, name)
    return HIDDEN if value == HIDDEN else as_toml(value)


def showable(config: Config, name: str) -> Any:
    """Its value without what no one may see: a secret is only said to be there, and so is a password in an address."""
    value = getattr(config, name)
    if _field(name).metadata["secret"] and value and not value.startswith("file:"):
        return HIDDEN
    return re.sub(r"//[^/@]*@", f"//{MASK}@", value) if name in URLS else value


def as_toml(value: Any) -> str:
    """A value as it would stand in config.toml."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'
