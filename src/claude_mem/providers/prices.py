"""Prices of tokens, from a data file that users can override."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from claude_mem import untrusted_files
from claude_mem.errors import BadSetting
from claude_mem.providers.base import Usage

SHIPPED = Path(__file__).parents[1] / "data" / "prices.toml"


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, which equals millionths of a dollar per token."""

    models: str
    input: float
    output: float
    cached: float
    written: float

    def cost(self, usage: Usage) -> int:
        """Return the cost in millionths of a dollar, rounded up."""
        if usage.cost is not None:
            return round(usage.cost * 1_000_000)
        fresh = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
        parts = (
            fresh * self.input,
            usage.cached_tokens * self.cached,
            usage.written_tokens * self.written,
            usage.output_tokens * self.output,
        )
        return -int(-sum(parts) // 1)


FREE = Price("*", 0.0, 0.0, 0.0, 0.0)


class Prices:
    """The price table; the user's entries come before the built-in ones.

    If the user's file is invalid, `problem` has the error: the worker must not stop because of it.
    """

    def __init__(self, data_dir: Path) -> None:
        self.table = read(SHIPPED)
        self.problem: BadSetting | None = None
        own = data_dir / "prices.toml"
        try:
            self.table = [*(read(own) if own.exists() else ()), *self.table]
        except BadSetting as problem:
            self.problem = problem

    def find(self, model: str) -> Price:
        names = (model.lower(), model.lower().rpartition("/")[2])
        return next(price for price in self.table if any(fnmatchcase(name, price.models) for name in names))


def read(path: Path) -> list[Price]:
    try:
        rows = tomllib.loads(untrusted_files.read_settings(path).decode("utf-8"))["price"]
        return [_price(row) for row in rows]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadSetting(f"{path}: {error}", hint=f"compare it with {SHIPPED}, or delete it") from error


def _price(row: dict[str, object]) -> Price:
    prices = {name: float(str(row[name])) for name in ("input", "output", "cached", "written") if name in row}
    fresh = prices["input"]
    if not all(math.isfinite(price) and price >= 0 for price in prices.values()):
        raise ValueError(f"a price of {row['models']} is not a finite, non-negative number")
    return Price(str(row["models"]), fresh, prices["output"], prices.get("cached", fresh), prices.get("written", fresh))
