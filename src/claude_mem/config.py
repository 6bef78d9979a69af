"""All settings with their defaults and descriptions.

Values come from the defaults, then `config.toml`, then `CLAUDE_MEM_*` environment variables. A worker that was started
by a hook inherits only the variables listed in `hook.INHERITABLE_ENV`.

The command line and the worker load the settings once, at start, and pass them as arguments; no other code reads the
environment. The worker reloads them when a client reads or changes the settings. The hook does not use this module: it
only needs the path of the data directory.
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

from claude_mem import hook
from claude_mem.domain.errors import InvalidSetting
from claude_mem.domain.text import make_storable
from claude_mem.system import untrusted_files

ENV_PREFIX = "CLAUDE_MEM_"


LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
VERBOSITIES = ("minimal", "normal", "verbose")
FOREIGN_TEXT_CHOICES = ("strict", "balanced", "open")
PROVIDERS = (
    "auto", "local", "claude", "anthropic", "openai", "openrouter", "gemini", "ollama", "lmstudio", "vllm",
)  # fmt: skip
URL_SETTINGS = ("anthropic_base_url", "openai_base_url", "proxy")
# Which secrets each receiver is given: the base URLs, the proxy in between, and the program that reads a token file.
_OPENAI_COMPATIBLE_KEYS = ("openai_api_key", "openrouter_api_key", "gemini_api_key")
SECRETS_BY_RECEIVER = {
    "anthropic_base_url": ("anthropic_api_key",),
    "openai_base_url": _OPENAI_COMPATIBLE_KEYS,
    "proxy": ("anthropic_api_key", *_OPENAI_COMPATIBLE_KEYS),
    "claude_path": ("claude_env_file",),
}
MAX_TEXT_CHARS = 4_000
HIDDEN_VALUE, MASK = "(set, not shown)", "…"


def setting(
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    if_invalid: Any = None,
    terminal_only: bool = False,
) -> Any:
    """Declare a setting.

    `low` and `high` bound a number; `high` bounds the length of a text. `if_invalid` replaces an invalid value where
    the default could cost money. `terminal_only` marks a setting that holds a key or decides which program is run or
    where data is sent: it cannot be changed with the credential of a browser.
    """
    factory = {"default_factory": lambda: default} if isinstance(default, tuple) else {"default": default}
    meta = {
        "description": description,
        "low": low,
        "high": high,
        "choices": choices,
        "secret": secret,
        "if_invalid": if_invalid,
    }
    meta["terminal_only"] = terminal_only or secret
    return field(**factory, metadata=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    data_dir: Path = setting(
        Path("~/.claude-mem"), "Directory that holds everything claude-mem stores: database, spool, logs, backups."
    )
    worker_port: int = setting(
        37777,
        "TCP port of the worker on 127.0.0.1. If the port is in use, the worker picks a free one. 0: always pick a"
        " free port.",
        low=0,
        high=65535,
    )
    context_tokens: int = setting(
        800, "Maximum size of the brief, the text injected at session start, in tokens.", low=300, high=2000
    )
    context_observations: int = setting(50, "Maximum number of observations listed in the brief.", low=1, high=500)
    skip_tools: tuple[str, ...] = setting(
        ("ListMcpResourcesTool", "SlashCommand", "Skill", "TodoWrite", "AskUserQuestion"),
        "Names of tools whose calls are not captured because they contain nothing worth remembering.",
    )
    excluded_projects: tuple[str, ...] = setting(
        (),
        "Directories that are never captured, as glob patterns such as `~/secret/**`. A project can also opt out"
        " itself with a `.claude-mem.toml`.",
    )
    redact_secrets: bool = setting(
        True, "Replace text that looks like a key, token or password before anything is stored."
    )
    withheld_files: tuple[str, ...] = setting(
        (),
        "Additional files whose content is never stored, as glob patterns such as `*.secret` or `vault/*`. Key files,"
        " `.env` and similar files are always on the list (docs/secrets.md); a pattern with `!`, such as `!*.pem`,"
        " removes a built-in one.",
    )
    event_chars: int = setting(
        20_000, "Maximum number of characters stored of each text in a tool call.", low=500, high=1_000_000
    )
    silence_minutes: int = setting(
        10, "Minutes without an event after which an open turn counts as ended.", low=1, high=1440
    )
    session_hours: int = setting(
        24, "Hours without an event after which a session counts as interrupted.", low=1, high=720
    )
    provider: str = setting(
        "auto",
        "Which model service refines observations and summaries: `auto` (your Claude plan if the extra `claude` is"
        " installed, otherwise none), `local` (none), `claude` (your Claude plan, through the installed `claude`"
        " program), `anthropic`, `openai`, `openrouter`, `gemini`, `ollama`, `lmstudio`, `vllm`. Several names,"
        " separated by commas, are tried in that order; `ollama:qwen3` also selects a model.",
        if_invalid="local",
        terminal_only=True,
    )
    model: str = setting("", "Model that the provider uses. Empty: a small model suited to the task.")
    anthropic_base_url: str = setting(
        "", "Base URL of the provider `anthropic`. Empty: api.anthropic.com.", terminal_only=True
    )
    anthropic_api_key: str = setting(
        "", "API key for `anthropic`, or `file:PATH` to read the key from a file.", secret=True
    )
    openai_base_url: str = setting(
        "",
        "Base URL of the provider `openai` and of the OpenAI-compatible providers. Empty: the default address of each.",
        terminal_only=True,
    )
    openai_api_key: str = setting(
        "",
        "API key for `openai` and the OpenAI-compatible providers, or `file:PATH` to read the key from a file.",
        secret=True,
    )
    openrouter_api_key: str = setting(
        "", "API key for `openrouter`. Needed only if `openai_api_key` belongs to another provider.", secret=True
    )
    gemini_api_key: str = setting(
        "", "API key for `gemini`. Needed only if `openai_api_key` belongs to another provider.", secret=True
    )
    claude_path: str = setting(
        "",
        "Path of the `claude` program that the provider `claude` runs. Empty: searched for in the usual places"
        " (`~/.local/bin`, `/usr/local/bin` and similar); a program that is only on `PATH` is never used.",
        terminal_only=True,
    )
    claude_sdk: bool = setting(
        False,
        "Run the `claude` program through the Agent SDK (the extra `claude`) instead of directly.",
        terminal_only=True,
    )
    claude_env_file: str = setting(
        "",
        "File with NAME=value lines that are set in the environment of the `claude` program, such as a token. Empty:"
        " the program uses its own login.",
        terminal_only=True,
    )
    claude_resume: bool = setting(
        False,
        "Refine all turns of a session in one `claude` conversation. This costs more, because every request reads the"
        " whole conversation again.",
    )
    proxy: str = setting(
        "",
        "HTTP proxy for requests to providers, as `http://host:port`. Empty: no proxy; proxy variables in the"
        " environment are ignored.",
        terminal_only=True,
    )
    daily_tokens: int = setting(
        300_000,
        "Maximum number of tokens per day for refining, input and output together. 0: no refining.",
        low=0,
        high=1_000_000_000,
        if_invalid=0,
    )
    monthly_cost: float = setting(
        5.0,
        "Maximum cost per calendar month for refining, in US dollars. 0: only requests that cost nothing.",
        low=0,
        high=1e6,
        if_invalid=0.0,
    )
    request_tokens: int = setting(
        8_000, "Maximum number of tokens of one request and its reply together.", low=4_000, high=32_000
    )
    foreign_text: str = setting(
        "balanced",
        "What may be injected of an agent's own words after it read external text (packages, clones, logs, web pages"
        " …): `balanced` omits sentences that repeat that text; `strict` omits all words of such a turn; `open`"
        " compares only with text from issue trackers and code forges (docs/trust.md).",
        choices=FOREIGN_TEXT_CHOICES,
    )
    verbosity: str = setting(
        "normal", "How much detail a provider keeps when it refines: minimal, normal or verbose.", choices=VERBOSITIES
    )
    mode: str = setting(
        "code",
        "What counts as worth remembering: `code`, `research`, or the name of a `.toml` file of your own in `modes/`.",
    )
    language: str = setting(
        "",
        "Language in which a provider writes observations and summaries, such as `Deutsch`. Empty: English.",
        high=40,
    )
    greeting: bool = setting(
        True,
        "Show one line to the user at the first session start of the day: how much is remembered for the project, and"
        " what is new.",
    )
    command_hints: bool = setting(
        True,
        "Say before a command that it failed here before, what worked instead, and which rule of yours forbids it. One"
        " line, once per session. Commands are never changed or blocked.",
    )
    holdout: float = setting(
        0.0,
        "Share of moments, chosen at random, at which nothing is injected, so that `claude-mem worth` can compare them"
        " with the others. Your rules and pinned memories are always shown. 0: never; 0.1: one in ten.",
        low=0,
        high=0.5,
    )
    read_outlines: bool = setting(
        False,
        "Say before a file is read again, unchanged, where in it what is defined, so that a part can be read instead."
        " Once per session and file. Off: measured on two projects, it saves little (docs/recall.md).",
    )
    keep_events_days: int = setting(
        7,
        "Days to keep raw events after they were summarized. 0: delete them immediately; refining them later is then"
        " impossible.",
        low=0,
        high=3650,
    )
    keep_dead_days: int = setting(
        30, "Days to keep events that were set aside and jobs that failed, for inspection or retry.", low=1, high=3650
    )
    keep_log_days: int = setting(14, "Days to keep lines of the worker's log.", low=1, high=3650)
    disk_quota_mb: int = setting(
        2048,
        "Maximum disk space for the data directory, in MB, not counting models and exports. Above it the oldest raw"
        " events are deleted, then the oldest backups; observations and summaries are never deleted.",
        low=50,
        high=10_000_000,
    )
    log_level: str = setting(
        "INFO", "Least severe messages that the worker logs: DEBUG, INFO, WARNING or ERROR.", choices=LOG_LEVELS
    )
    embedding_model: str = setting(
        "arctic-s",
        "Encoder for search by meaning, used once it is downloaded: arctic-s, gte-small or minilm. Until then, and with"
        " `static`, the built-in embedding is used; with `none`, search is by words only.",
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
        """Default directory for exports."""
        return self.data_dir / "exports"

    @property
    def quarantine(self) -> Path:
        """Directory for damaged databases."""
        return self.data_dir / "quarantine"

    @property
    def ballast(self) -> Path:
        """Reserve file that is deleted when the disk is full, so that `forget` still works."""
        return self.data_dir / "ballast"

    @property
    def modes(self) -> Path:
        return self.data_dir / "modes"

    @property
    def observer(self) -> Path:
        """Working directory of the `claude` program while it refines; it contains no project."""
        return self.data_dir / "observer"

    @property
    def models(self) -> Path:
        return self.data_dir / "models"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "logs" / "worker.log"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings, the source of each, and the problems with values that were replaced by a default."""

    config: Config
    sources: Mapping[str, str]
    problems: tuple[InvalidSetting, ...]


def load(env: Mapping[str, str] | None = None) -> Config:
    """Load the settings. Raise `InvalidSetting`, with file and line, for the first invalid value."""
    loaded = load_lenient(env)
    if loaded.problems:
        raise loaded.problems[0]
    return loaded.config


def load_lenient(env: Mapping[str, str] | None = None, *, data_dir: Path | None = None) -> LoadedConfig:
    """Load the settings and replace invalid values by their defaults: a typing error must not stop capturing.

    A process that has changed its working directory must pass `data_dir`, because `CLAUDE_MEM_DATA_DIR` may be a
    relative path.
    """
    env = os.environ if env is None else env
    data_dir = data_dir or (Path(hook.data_dir()) if env is os.environ else _data_dir(env))
    values: dict[str, Any] = {"data_dir": data_dir}
    sources = dict.fromkeys(list_setting_names(), "default")
    sources["data_dir"] = "environment" if env.get("CLAUDE_MEM_DATA_DIR") else "default"
    problems: list[InvalidSetting] = []
    from_file: dict[str, Any] = {}
    for origin, entries in (_from_file(data_dir / "config.toml", problems), _from_env(env)):
        from_file = dict(values)  # in the second round, for the environment: the values of the file
        for name, (raw, where) in entries.items():
            try:
                values[name] = validate(name, raw, where)
                sources[name] = origin
            except InvalidSetting as problem:
                problem.name = name
                problems.append(problem)
                if (if_invalid := _field(name).metadata["if_invalid"]) is not None:
                    values[name] = if_invalid
    problems += _separate_file_secrets_from_env(values, sources, from_file)
    return LoadedConfig(Config(**values), sources, tuple(problems))


def _separate_file_secrets_from_env(
    values: dict[str, Any], sources: dict[str, str], from_file: Mapping[str, Any]
) -> Iterator[InvalidSetting]:
    """Reset receivers that the environment sets while their key comes from the file.

    The environment may belong to a project, which must not be able to redirect the user's keys to its own address or
    program.
    """
    for receiver, keys in SECRETS_BY_RECEIVER.items():
        file_keys = [key for key in keys if values.get(key) and sources[key] not in ("environment", "default")]
        file_value = from_file.get(receiver, "")  # the file may set another address than the default
        if file_keys and sources[receiver] == "environment" and values.get(receiver, "") != file_value:
            values[receiver] = file_value
            sources[receiver] = sources[file_keys[0]] if receiver in from_file else "default"
            yield InvalidSetting(
                f"{ENV_PREFIX}{receiver.upper()} is ignored because `{file_keys[0]}` is set in {sources[file_keys[0]]}",
                hint=f"set `{receiver}` and `{file_keys[0]}` in the same place",
                name=receiver,
            )


def settings_not_inherited(env: Mapping[str, str] | None = None) -> list[str]:
    """Return the settings that this environment changes but a worker started by a hook would not inherit."""
    env = os.environ if env is None else env
    own_config = load_lenient(env).config
    inherited = {
        name: value
        for name, value in env.items()
        if not name.startswith(ENV_PREFIX) or is_inherited_by_hook_worker(name)
    }
    inherited_config = load_lenient(inherited, data_dir=own_config.data_dir).config
    return [name for name in list_setting_names() if getattr(own_config, name) != getattr(inherited_config, name)]


def is_inherited_by_hook_worker(variable: str) -> bool:
    """Return whether a worker started by a hook inherits this environment variable."""
    return variable.encode("utf-8", "surrogateescape") in hook.INHERITABLE_ENV


def list_setting_names() -> list[str]:
    """Return the names of all settings."""
    return [item.name for item in dataclasses.fields(Config)]


def setting_description(name: str) -> str:
    """Return the description of a setting."""
    return str(_field(name).metadata["description"])


def input_kind(name: str) -> str:
    """Return the kind of input field that the viewer shows for a setting."""
    default, meta = getattr(Config(), name), _field(name).metadata
    if meta["secret"]:
        return "secret"
    if meta["choices"]:
        return "choice"
    kinds = {bool: "switch", int: "whole number", float: "number", tuple: "list"}
    return kinds.get(type(default), "text")


def value_limits(name: str) -> tuple[float | None, float | None, tuple[str, ...]]:
    """Return a setting's lower bound, upper bound and choices."""
    meta = _field(name).metadata
    return meta["low"], meta["high"], meta["choices"]


def is_terminal_only(name: str) -> bool:
    """Return whether changing the setting requires the token, not just a browser's credential; see `setting`."""
    return bool(_field(name).metadata["terminal_only"])


def _field(name: str) -> dataclasses.Field[object]:
    return next(item for item in dataclasses.fields(Config) if item.name == name)


def _data_dir(env: Mapping[str, str]) -> Path:
    path = env.get("CLAUDE_MEM_DATA_DIR")
    return Path(path).absolute() if path else Path(env.get("HOME") or hook.home_dir()) / ".claude-mem"


def _from_file(path: Path, problems: list[InvalidSetting]) -> tuple[str, dict[str, tuple[object, str]]]:
    origin = str(path)
    try:
        text = untrusted_files.read_settings(path).decode("utf-8")
        table = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return origin, {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(InvalidSetting(f"{path}: {error}", hint="correct the file, or move it away"))
        return origin, {}
    entries = {}
    for name, raw in table.items():
        where = f"{path}, line {_line_of(text, name)}"
        if name not in list_setting_names() or name == "data_dir":
            problems.append(
                InvalidSetting(f"{where}: there is no setting `{name}`", hint="`claude-mem config` lists them")
            )
        else:
            entries[name] = (raw, where)
    return origin, entries


def _line_of(text: str, name: str) -> int:
    match = re.search(rf"^\s*\"?{re.escape(name)}\"?\s*=", text, re.MULTILINE)
    return text.count("\n", 0, match.end()) + 1 if match else 1


def _from_env(env: Mapping[str, str]) -> tuple[str, dict[str, tuple[object, str]]]:
    entries = {}
    for name in list_setting_names():
        variable = ENV_PREFIX + name.upper()
        if name != "data_dir" and variable in env:
            entries[name] = (parse_text(name, env[variable]), f"the environment variable {variable}")
    return "environment", entries


def parse_text(name: str, text: str) -> object:
    """Convert text to the setting's type. Text that cannot be converted is returned as is, for `validate` to reject."""
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


def validate(name: str, raw: Any, where: str) -> Any:
    """Return the validated value of a setting, or raise `InvalidSetting` naming `where` the value comes from."""
    default, meta = getattr(Config(), name), _field(name).metadata
    expected_type, value = _expected_type(default), raw
    if isinstance(default, tuple):
        fits = isinstance(raw, list) and all(isinstance(item, str) for item in raw)
        value = tuple(raw) if fits else raw
    elif isinstance(default, bool) or isinstance(raw, bool):
        fits = isinstance(raw, bool) and isinstance(default, bool)
    elif isinstance(default, int | float):
        fits = isinstance(raw, int if isinstance(default, int) else int | float)
        value = float(raw) if fits and isinstance(default, float) else raw
        low, high = meta["low"], meta["high"]
        # `not` of both comparisons, because NaN satisfies none.
        if fits and not ((low is None or raw >= low) and (high is None or raw <= high)):
            raise InvalidSetting(f"{where}: {name} = {raw} is out of range", hint=f"use {low} to {high}")
    else:
        fits = isinstance(raw, str)
    if not fits:
        raw = HIDDEN_VALUE if meta["secret"] else raw
        raise InvalidSetting(
            f"{where}: {name} = {raw!r} is not {expected_type}", hint=f"for example: {name} = {format_toml(default)}"
        )
    if meta["choices"] and value not in meta["choices"]:
        raise InvalidSetting(
            f"{where}: {name} = {raw!r} is not a valid choice", hint="use one of " + ", ".join(meta["choices"])
        )
    if name == "provider":
        validate_providers(value, where)
    for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
        _check_text(name, text, where, most=meta["high"] or MAX_TEXT_CHARS)
    return value


def _check_text(name: str, value: str, where: str, *, most: float) -> None:
    if make_storable(value) != value:
        raise InvalidSetting(f"{where}: {name} is not valid UTF-8 text", hint="enter the value again")
    if len(value) > most:
        raise InvalidSetting(f"{where}: {name} is too long", hint=f"use at most {most:g} characters")
    if name in URL_SETTINGS and value and not _is_address(value):
        raise InvalidSetting(f"{where}: {name} is not a valid URL", hint="for example: http://127.0.0.1:8080")


def _is_address(value: str) -> bool:
    try:
        return bool(re.fullmatch(r"https?://[^\s/]\S*", value)) and urlsplit(value).port != 0
    except ValueError:
        return False


def validate_providers(value: str, where: str) -> None:
    """Raise `InvalidSetting` if the comma-separated list contains an unknown provider."""
    for part in value.split(","):
        provider = part.partition(":")[0].strip().lower()
        if provider not in PROVIDERS:
            raise InvalidSetting(
                f"{where}: there is no provider {provider!r}", hint="use one of " + ", ".join(PROVIDERS)
            )


def _expected_type(default: Any) -> str:
    if isinstance(default, tuple):
        return "a list of strings"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(type(default), "a string")


def masked_toml(config: Config, name: str) -> str:
    """Return a setting's value as TOML, with secrets masked."""
    value = masked_value(config, name)
    return HIDDEN_VALUE if value == HIDDEN_VALUE else format_toml(value)


def masked_value(config: Config, name: str) -> object:
    """Return a setting's value with secrets, and passwords in URLs, masked."""
    value = getattr(config, name)
    if _field(name).metadata["secret"] and value and not value.startswith("file:"):
        return HIDDEN_VALUE
    return re.sub(r"//[^/@]*@", f"//{MASK}@", value) if name in URL_SETTINGS else value


def format_toml(value: Any) -> str:
    """Format a value as in `config.toml`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'
