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
    """A form in which rules are stated; `kind` selects the further conditions for a sentence of this form."""

    kind: str
    pattern: re.Pattern[str]
    example: str


def _expand(text: str) -> str:
    """Return a pattern with its named parts expanded and line breaks removed."""
    return _NAME.sub(lambda part: _expand(_FILE["parts"][part[1]]), text.replace("\n", ""))


def part(name: str) -> re.Pattern[str]:
    """Compile a named part of `data/rules.toml`."""
    return re.compile(_expand(_FILE["parts"][name]), re.I)


WORDS = {name: frozenset(words.split()) for name, words in _FILE["words"].items()}
SHAPES = tuple(
    Shape(item["kind"], re.compile(_expand(item["pattern"]), re.I), item["example"]) for item in _FILE["patterns"]
)
