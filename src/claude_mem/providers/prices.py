"""What tokens cost, by a data file that anyone can correct."""

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
    """Dollars for a million tokens, which is millionths of a dollar for one."""

    models: str
    input: float
    output: float
    cached: float
    written: float

    def cost(self, usage: Usage) -> int:
        """In millionths of a dollar, rounded up."""
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
    """One's own table before ours. If it can't be read, `problem` says so: the worker must not stop over it."""

    def __init__(self, data_dir: Path) -> None:
        self.table = read(SHIPPED)
        self.problem: BadSetting | None = None
        own = data_dir / "prices.toml"
        try:
            self.table = [*(read(own) if own.exists() else ()), *self.table]
        except BadSetting as problem:
            self.problem = problem

    def of(self, model: str) -> Price:
        names = (model.lower(), model.lower().rpartition("/")[2])
        return next(price for price in self.table if any(fnmatchcase(name, price.models) for name in names))


def read(path: Path) -> list[Price]:
    try:
        rows = tomllib.loads(untrusted_files.read_settings(path).decode("utf-8"))["price"]
        return [_price(row) for row in rows]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadSetting(f"{path}: {error}", hint=f"compare it with {SHIPPED}, or delete it") from error


def _price(row: dict[str, object]) -> Price:
    given = {name: float(str(row[name])) for name in ("input", "output", "cached", "written") if name in row}
    fresh = given["input"]
    if not all(math.isfinite(price) and price >= 0 for price in given.values()):
        raise ValueError(f"a price of {row['models']} is no price")
    return Price(str(row["models"]), fresh, given["output"], given.get("cached", fresh), given.get("written", fresh))
