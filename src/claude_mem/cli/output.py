"""The only module that prints: results to stdout, talk to stderr, no colour in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec


def line(text: str = "") -> None:
    print(text)


def say(text: str) -> None:
    """Talk that is not a result."""
    print(text, file=sys.stderr)


def error(message: str, hint: str = "") -> None:
    say(f"error: {message}")
    if hint:
        say(f"hint:  {hint}")


def json(value: Any) -> None:
    print(msgspec.json.encode(value).decode())


def json_lines(values: Iterable[Any]) -> None:
    for value in values:
        json(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(str(cell)) for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(drawn)


def beside(left: tuple[str, str], right: tuple[str, str]) -> None:
    """Two texts next to each other, each under its title."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for title, _ in (left, right):
        drawn.add_column(title, ratio=1, overflow="fold")
    drawn.add_row(Text(left[1]), Text(right[1]))
    (Console() if sys.stdout.isatty() else Console(width=160)).print(drawn)


def dollars(millionths: int) -> str:
    return f"${millionths / 1_000_000:,.4f}" if 0 < millionths < 10_000 else f"${millionths / 1_000_000:,.2f}"


def when(milliseconds: int | None) -> str:
    """How long ago, as people say it."""
    if not milliseconds:
        return "never"
    seconds = int(datetime.now().timestamp() - milliseconds / 1000)
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


def ask(question: str) -> bool:
    """Yes, unless the answer is no. Where nobody can answer, it is no."""
    if not sys.stdin.isatty():
        return False
    say(f"{question} [Y/n] ")
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")
