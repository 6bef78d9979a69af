"""The words and patterns of `data/rules.toml`, read once."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

_FILE = tomllib.loads((Path(__file__).parent / "data" / "rules.toml").read_text("utf-8"))
_NAME = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of a rule; `kind` says what else must hold for a sentence of that shape."""

    kind: str
    pattern: re.Pattern[str]
    example: str


def _filled(text: str) -> str:
    """Return a pattern with its named parts filled in. The ends of lines count for nothing."""
    return _NAME.sub(lambda part: _filled(_FILE["parts"][part[1]]), text.replace("\n", ""))


def part(name: str) -> re.Pattern[str]:
    """Return a named part as a pattern."""
    return re.compile(_filled(_FILE["parts"][name]), re.I)


WORDS = {name: frozenset(words.split()) for name, words in _FILE["words"].items()}
SHAPES = tuple(
    Shape(item["kind"], re.compile(_filled(item["pattern"]), re.I), item["example"]) for item in _FILE["patterns"]
)
