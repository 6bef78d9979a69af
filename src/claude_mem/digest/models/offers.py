"""The model the installer may offer for refining memories: the user's Claude plan, or a running Ollama.

Detection costs nothing: `claude auth status` sends no request, and Ollama is only asked for its list of models.
"""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from claude_mem.config import Config
from claude_mem.digest.models import claude
from claude_mem.digest.models.claude_program import find_in_terminal, find_program
from claude_mem.digest.models.openai import PRESETS
from claude_mem.domain.errors import OperationFailed

# Request and answer of an ordinary turn, as `bench/spending.py` measures them (bench/results/spending.md).
TURN_TOKENS = 5_000
OLLAMA_SECONDS = 1.0
MAX_LISTING = 1 << 20
SMALLEST, LARGEST, ROOMY = (
    3.0,
    40.0,
    15.0,
)  # billions of parameters: smaller models write poorly, larger ones are too slow
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that could refine memories: the question to the user, and the settings to write if accepted."""

    about: str
    question: str
    settings: Mapping[str, str]


def find_offer(config: Config, *, search_path: str, folder: Path) -> Offer | None:
    """Return the best offer on this machine, if any. `search_path` and `folder` are those of the terminal."""
    return _claude(config, search_path, folder) or _ollama(config)


def _claude(config: Config, search_path: str, folder: Path) -> Offer | None:
    """Offer Claude only with a plan: pay-per-request billing must be chosen by the user in the settings."""
    program = find_program(config.claude_path) if config.claude_path else find_in_terminal(search_path, project=folder)
    try:
        login = asyncio.run(claude.check_login(program, config.claude_env_file)) if program else None
    except OperationFailed:
        return None
    if login is None or not login.has_plan:
        return None
    return Offer(
        about="Memories are written by rules on this machine, at no cost. Claude writes better ones: each finished"
        f" turn is sent to it through your own login ({program}).",
        question=f"Let Claude write the memories? About {TURN_TOKENS:,} tokens a turn on your plan, at most"
        f" {config.daily_tokens:,} a day.",
        settings={"provider": "claude", "claude_path": program},
    )


# --- Ollama ----------------------------------------------------------------------------------------------------------


class _Details(msgspec.Struct):
    family: str = ""
    parameter_size: str = ""


class _Model(msgspec.Struct):
    name: str
    details: _Details = msgspec.field(default_factory=_Details)
    remote_host: str = ""  # set if it runs in the cloud


class _Listing(msgspec.Struct):
    models: list[_Model] = []


def _ollama(config: Config) -> Offer | None:
    sizes = {model.name: _billions(model) for model in _installed(config)}
    fitting = {name: size for name, size in sizes.items() if SMALLEST <= size <= LARGEST}
    if not fitting:
        return None
    name = max(fitting, key=lambda each: (fitting[each] <= ROOMY, fitting[each], each))
    return Offer(
        about="Memories are written by rules, at no cost. A model writes better ones.",
        question=f"Let {name} in your Ollama write the memories? About {TURN_TOKENS:,} tokens a turn, at most"
        f" {config.daily_tokens:,} a day, all on this machine.",
        settings={"provider": f"ollama:{name}"},
    )


def _installed(config: Config) -> list[_Model]:
    """Return the models of the Ollama on this machine; empty if it does not run."""
    address = urlsplit(config.openai_base_url or PRESETS["ollama"].base_url)
    if address.scheme != "http" or address.hostname not in _LOOPBACK:
        return []
    connection = http.client.HTTPConnection(address.hostname, address.port or 80, timeout=OLLAMA_SECONDS)
    try:
        connection.request("GET", "/api/tags")
        listing = msgspec.json.decode(connection.getresponse().read(MAX_LISTING), type=_Listing)
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return []
    finally:
        connection.close()
    return [model for model in listing.models if not _is_unfit(model)]


def _is_unfit(model: _Model) -> bool:
    embeds = "bert" in model.details.family or "embed" in model.name
    return embeds or bool(model.remote_host) or model.name.endswith("cloud") or len(model.name) > 100


def _billions(model: _Model) -> float:
    size = re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?)B", model.details.parameter_size)
    return float(size[1]) if size else 0.0
