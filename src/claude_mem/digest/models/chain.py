"""The models that may refine, in the order they are tried, and the prices of their tokens.

The chain is built from the settings only: no key is taken from the environment or from a project. Prices come from a
data file that users can override.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
import math
import time
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from claude_mem.config import Config
from claude_mem.digest.models.base import Model, Usage
from claude_mem.domain.errors import InvalidSetting
from claude_mem.system import untrusted_files

log = logging.getLogger(__name__)

SHIPPED = Path(__file__).parents[2] / "data" / "prices.toml"
OWN_SERVERS = ("ollama", "lmstudio", "vllm")  # free, wherever they run
# How long the result of the Claude login check stays valid; shorter after a failure, which the user may have fixed.
CHECK_SECONDS, RECHECK_SECONDS = 900.0, 30.0
MAX_CHECK_WAIT_SECONDS = 2.0  # how long a waiting user is kept for that check


# --- prices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, which equals millionths of a dollar per token."""

    models: str
    input: float
    output: float
    cached: float
    cache_write: float

    def cost(self, usage: Usage) -> int:
        """Return the cost in millionths of a dollar, rounded up."""
        if usage.cost is not None:
            return round(usage.cost * 1_000_000)
        fresh = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
        parts = (
            fresh * self.input,
            usage.cached_tokens * self.cached,
            usage.written_tokens * self.cache_write,
            usage.output_tokens * self.output,
        )
        return -int(-sum(parts) // 1)


FREE = Price("*", 0.0, 0.0, 0.0, 0.0)


class Prices:
    """The price table; the user's entries come before the built-in ones.

    If the user's file is invalid, `problem` has the error: the worker must not stop for that reason.
    """

    def __init__(self, data_dir: Path) -> None:
        self.table = read_prices(SHIPPED)
        self.problem: InvalidSetting | None = None
        own = data_dir / "prices.toml"
        try:
            self.table = [*(read_prices(own) if own.exists() else ()), *self.table]
        except InvalidSetting as problem:
            self.problem = problem

    def find(self, model: str) -> Price:
        """Return the first price that matches a model's name."""
        names = (model.lower(), model.lower().rpartition("/")[2])
        return next(price for price in self.table if any(fnmatchcase(name, price.models) for name in names))


def read_prices(path: Path) -> list[Price]:
    """Read a price table, or raise `InvalidSetting`."""
    try:
        rows = tomllib.loads(untrusted_files.read_settings(path).decode("utf-8"))["price"]
        return [_price(row) for row in rows]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSetting(f"{path}: {error}", hint=f"compare it with {SHIPPED}, or delete it") from error


def _price(row: dict[str, object]) -> Price:
    prices = {name: float(str(row[name])) for name in ("input", "output", "cached", "written") if name in row}
    fresh = prices["input"]
    if not all(math.isfinite(price) and price >= 0 for price in prices.values()):
        raise ValueError(f"a price of {row['models']} is not a finite, non-negative number")
    return Price(str(row["models"]), fresh, prices["output"], prices.get("cached", fresh), prices.get("written", fresh))


# --- the chain -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """One entry of the setting `provider`, with its model."""

    provider: str
    model: str


def parse_chain(config: Config) -> list[ChainEntry]:
    """Parse the setting `provider` ("claude, openai:gpt-5-mini"); `local` means no model and is left out."""
    parts = [part.strip().partition(":") for part in config.provider.split(",") if part.strip()]
    return [ChainEntry(name.lower(), model or config.model) for name, _, model in parts if name.lower() != "local"]


def read_key(value: str) -> str:
    """Return the key, or the content of the file a `file:` setting names.

    Returns "" if the file cannot be read; the provider then reports the missing key.
    """
    if not value.startswith("file:"):
        return value.strip()
    try:
        path = Path(value.removeprefix("file:").strip()).expanduser()
        return untrusted_files.read_settings(path).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class ProviderChain:
    def __init__(self, config: Config, *, models: Sequence[Model] | None = None) -> None:
        self.config = config
        self.prices = Prices(config.data_dir)
        self._models: dict[
            ChainEntry, Model
        ] = {}  # each is created once, so that two child processes never run at a time
        self.fixed_models = models
        self.claude_present: bool | None = (
            None  # whether the SDK and a `claude` program are installed; None: not checked yet
        )
        self._checked_at = -CHECK_SECONDS
        self._claude_problem = ""
        self._check_task: asyncio.Task[str] | None = None

    def with_provider(self, provider: str) -> ProviderChain:
        """Return a chain with another provider setting that shares the models already created."""
        other = ProviderChain(replace(self.config, provider=provider))
        other._models = self._models
        return other

    def is_available(self) -> bool:
        """Return whether there may be a model. Makes no request: storing memory must not wait for the answer."""
        if self.fixed_models is not None:
            return bool(self.fixed_models)
        return any(link.provider != "auto" or self._claude_present() for link in parse_chain(self.config))

    def _claude_present(self) -> bool:
        if self.claude_present is None:
            from claude_mem.digest.models.claude_program import find_program

            sdk = importlib.util.find_spec("claude_agent_sdk")
            self.claude_present = sdk is not None and bool(find_program(self.config.claude_path))
        return self.claude_present

    async def models(self) -> Sequence[Model]:
        """Return the usable models in the order they are tried."""
        if self.fixed_models is not None:
            return self.fixed_models
        usable = []
        for link in parse_chain(self.config):
            if link.provider != "auto":
                usable.append(self._model(link))
            elif self._claude_present() and not await self._why_not_claude():
                usable.append(self._model(ChainEntry("claude", link.model)))
        return usable

    async def _why_not_claude(self) -> str:
        from claude_mem.digest.models import claude

        valid_seconds = RECHECK_SECONDS if self._claude_problem else CHECK_SECONDS
        if time.monotonic() - self._checked_at >= valid_seconds:
            c = self.config
            self._claude_problem = await claude.find_problem(c.claude_path, c.claude_env_file, sdk=c.claude_sdk)
            self._checked_at = time.monotonic()
        return self._claude_problem

    async def problem(self) -> str:
        """Return why the first provider cannot be used, for display.

        Empty if it can be used, or if only a request would tell.
        """
        if self.fixed_models is not None or [link.provider for link in parse_chain(self.config)[:1]] != ["claude"]:
            return ""
        if self._check_task is None or self._check_task.done():
            self._check_task = asyncio.create_task(self._why_not_claude())
        await asyncio.wait({self._check_task}, timeout=MAX_CHECK_WAIT_SECONDS)  # do not hang if the program hangs
        return self._claude_problem

    def _model(self, link: ChainEntry) -> Model:
        if link not in self._models:
            self._models[link] = make_model(link, self.config)
        return self._models[link]

    def price(self, model: Model) -> Price:
        """Return the price of a model. Servers on this machine and a prepaid Claude plan are free."""
        if model.provider == "claude":
            return self.prices.find(model.model) if self.config.claude_env_file else FREE
        is_local = urlsplit(self.config.openai_base_url).hostname in ("127.0.0.1", "localhost", "::1")
        is_own_server = model.provider in OWN_SERVERS or (model.provider == "openai" and is_local)
        return FREE if is_own_server else self.prices.find(model.model)

    def fingerprint(self, model: Model) -> str:
        """Return a hash of the settings that affect the model. When it changes, earlier failures no longer count."""
        c = self.config
        secrets = (read_key(c.anthropic_api_key), read_key(c.openai_api_key), c.claude_env_file)
        program = (c.claude_path, str(c.claude_sdk))
        addresses = (c.anthropic_base_url, c.openai_base_url, c.proxy)
        parts = (model.provider, c.provider, c.model, *addresses, *secrets, *program)
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

    async def tidy(self, keep: Collection[str] = ()) -> None:
        """Delete the transcripts of the model's own sessions, except those that may still be resumed."""
        if self.config.claude_resume:
            from claude_mem.digest.models import claude

            folder, env_file = self.config.observer, self.config.claude_env_file
            try:
                await asyncio.to_thread(claude.delete_sessions, folder, keep, env_file=env_file)
            except OSError as error:  # nothing depends on the deletion
                log.warning("transcripts of %s could not be deleted: %s", folder, error)

    async def close(self) -> None:
        if self._check_task is not None:
            self._check_task.cancel()
        for model in self._models.values():
            await model.close()
        await self.tidy()


def make_model(link: ChainEntry, config: Config) -> Model:
    """Create the model of a link. Imports are local: a worker without a model loads none of these modules."""
    if link.provider == "claude":
        from claude_mem.digest.models.claude import Claude

        return Claude(
            model=link.model,
            folder=config.observer,
            env_file=config.claude_env_file,
            cli_path=config.claude_path,
            keep_sessions=config.claude_resume,
            sdk=config.claude_sdk,
        )
    from claude_mem.digest.models.http import HttpClient

    http = HttpClient(proxy=config.proxy)
    if link.provider == "anthropic":
        from claude_mem.digest.models.anthropic import Anthropic

        key = read_key(config.anthropic_api_key)
        return Anthropic(http, key=key, base_url=config.anthropic_base_url, model=link.model)
    from claude_mem.digest.models.openai import OpenAI

    key = _openai_compatible_key(link.provider, config)
    return OpenAI(http, provider=link.provider, key=key, base_url=config.openai_base_url, model=link.model)


def _openai_compatible_key(provider: str, config: Config) -> str:
    """Return the key for an OpenAI-compatible provider, never one that belongs to another vendor.

    The provider's own key comes first. `openai_api_key` is the fallback if no other vendor in the chain could be
    meant by it, or if `openai_base_url` is set. A local server gets no key.
    """
    own_key = read_key(getattr(config, f"{provider}_api_key", ""))
    vendors = {link.provider for link in parse_chain(config)} & {"openai", "openrouter", "gemini"}
    if own_key or config.openai_base_url or (provider in vendors and len(vendors) == 1):
        return own_key or read_key(config.openai_api_key)
    return ""
