"""Which models may refine, in the order they are tried. Made from the settings and from nothing else: no key is taken from
the environment or from a project."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from claude_mem import untrusted_files
from claude_mem.config import Config
from claude_mem.providers.base import Model
from claude_mem.providers.prices import FREE, Price, Prices

log = logging.getLogger(__name__)

OWN_SERVERS = ("ollama", "lmstudio", "vllm")  # they cost nothing, wherever they stand
# How long the answer to "can your Claude plan be used" is believed; shorter if it was no, which a person may have changed.
CHECK_SECONDS, AGAIN_SECONDS = 900.0, 30.0
PATIENCE_SECONDS = 2.0  # for that answer, when a person waits


@dataclass(frozen=True, slots=True)
class Link:
    """One name of the setting `provider`, with the model it asks for."""

    provider: str
    model: str


def links(config: Config) -> list[Link]:
    named = [part.strip().partition(":") for part in config.provider.split(",") if part.strip()]
    return [Link(name.lower(), model or config.model) for name, _, model in named if name.lower() != "local"]


def read_key(value: str) -> str:
    """A key, or the content of the file that the setting names. Nothing if that can't be read: the provider says so."""
    if not value.startswith("file:"):
        return value.strip()
    try:
        named = Path(value.removeprefix("file:").strip()).expanduser()
        return untrusted_files.read_settings(named).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Chain:
    def __init__(self, config: Config, *, models: Sequence[Model] | None = None) -> None:
        self.config = config
        self.prices = Prices(config.data_dir)
        self.made: dict[Link, Model] = {}  # each is made once, so that there never are two children
        self.given = models
        self.present: bool | None = None  # are the SDK and a program there?
        self.claude_checked = -CHECK_SECONDS
        self.claude_problem = ""
        self.checking: asyncio.Task[str] | None = None

    def of(self, provider: str) -> Chain:
        """Another order over the same models, for trying one out."""
        other = Chain(replace(self.config, provider=provider))
        other.made = self.made
        return other

    def possible(self) -> bool:
        """Might there be a model? Answered without asking anyone, since a memory must not wait for it."""
        if self.given is not None:
            return bool(self.given)
        return any(link.provider != "auto" or self._claude_present() for link in links(self.config))

    def _claude_present(self) -> bool:
        if self.present is None:
            from claude_mem.providers.claude_program import find_program

            sdk = importlib.util.find_spec("claude_agent_sdk")
            self.present = sdk is not None and bool(find_program(self.config.claude_path))
        return self.present

    async def models(self) -> Sequence[Model]:
        """Those that may be asked, first choice first."""
        if self.given is not None:
            return self.given
        found = []
        for link in links(self.config):
            if link.provider != "auto":
                found.append(self._model(link))
            elif self._claude_present() and not await self._why_not_claude():
                found.append(self._model(Link("claude", link.model)))
        return found

    async def _why_not_claude(self) -> str:
        from claude_mem.providers import claude

        believed = AGAIN_SECONDS if self.claude_problem else CHECK_SECONDS
        if time.monotonic() - self.claude_checked >= believed:
            c = self.config
            self.claude_problem = await claude.usable(c.claude_path, c.claude_env_file, sdk=c.claude_sdk)
            self.claude_checked = time.monotonic()
        return self.claude_problem

    async def problem(self) -> str:
        """Return why the first choice can't be used, for people; empty if it can, or if only a request would show it."""
        if self.given is not None or [link.provider for link in links(self.config)[:1]] != ["claude"]:
            return ""
        if self.checking is None or self.checking.done():
            self.checking = asyncio.create_task(self._why_not_claude())
        await asyncio.wait({self.checking}, timeout=PATIENCE_SECONDS)  # a program that hangs is no reason to
        return self.claude_problem

    def _model(self, link: Link) -> Model:
        if link not in self.made:
            self.made[link] = make(link, self.config)
        return self.made[link]

    def price(self, model: Model) -> Price:
        """What is on this machine is free, and so is a plan that is paid already."""
        if model.provider == "claude":
            return self.prices.of(model.model) if self.config.claude_env_file else FREE
        here = urlsplit(self.config.openai_base_url).hostname in ("127.0.0.1", "localhost", "::1")
        own = model.provider in OWN_SERVERS or (model.provider == "openai" and here)
        return FREE if own else self.prices.of(model.model)

    def fingerprint(self, model: Model) -> str:
        """What the model was set up with: when it changes, an old failure says nothing any more."""
        c = self.config
        secrets = (read_key(c.anthropic_api_key), read_key(c.openai_api_key), c.claude_env_file)
        program = (c.claude_path, str(c.claude_sdk))
        addresses = (c.anthropic_base_url, c.openai_base_url, c.proxy)
        parts = (model.provider, c.provider, c.model, *addresses, *secrets, *program)
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

    async def tidy(self, keep: Collection[str] = ()) -> None:
        """Delete the transcripts of the model's own sessions, but those that may still be resumed."""
        if self.config.claude_resume:
            from claude_mem.providers import claude

            folder, env_file = self.config.observer, self.config.claude_env_file
            try:
                await asyncio.to_thread(claude.forget_sessions, folder, keep, env_file=env_file)
            except OSError as error:  # nothing depends on it
                log.warning("transcripts of %s could not be deleted: %s", folder, error)

    async def close(self) -> None:
        if self.checking is not None:
            self.checking.cancel()
        for model in self.made.values():
            await model.close()
        await self.tidy()


def make(link: Link, config: Config) -> Model:
    """Imported where it is used: a worker without a model loads none of it."""
    if link.provider == "claude":
        from claude_mem.providers.claude import Claude

        return Claude(
            model=link.model,
            folder=config.observer,
            env_file=config.claude_env_file,
            cli_path=config.claude_path,
            keep_sessions=config.claude_resume,
            sdk=config.claude_sdk,
        )
    from claude_mem.providers.http import Http

    http = Http(proxy=config.proxy)
    if link.provider == "anthropic":
        from claude_mem.providers.anthropic import Anthropic

        key = read_key(config.anthropic_api_key)
        return Anthropic(http, key=key, base_url=config.anthropic_base_url, model=link.model)
    from claude_mem.providers.openai import OpenAI

    key = _kin_key(link.provider, config)
    return OpenAI(http, provider=link.provider, key=key, base_url=config.openai_base_url, model=link.model)


def _kin_key(provider: str, config: Config) -> str:
    """Nobody is sent the key of another: one's own, else the common one if no other vendor in the chain could mean it,
    and none to a server of one's own."""
    own = read_key(getattr(config, f"{provider}_api_key", ""))
    vendors = {link.provider for link in links(config)} & {"openai", "openrouter", "gemini"}
    if own or config.openai_base_url or (provider in vendors and len(vendors) == 1):
        return own or read_key(config.openai_api_key)
    return ""
