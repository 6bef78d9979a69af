"""The only module that prints: results to stdout, messages to stderr, no colour in a pipe.

Printed text may come from a memory, a file name or another program, so everything passes one filter. `line`, `info`,
`error`, the cells of `table` and log records are always single lines. `text` may have several lines; `first` prefixes
only the first. No control character that a terminal would interpret is printed, not even in JSON.
"""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from claude_mem.domain.text import escape_json, make_printable, make_printable_line, map_strings


class ProgressCallback(Protocol):
    def __call__(self, label: str, completed: int, total: int, note: str = "") -> None:
        """Report progress of the task `label`. `total` is 0 if unknown; `note` is shown after the numbers."""


def line(text: str = "") -> None:
    """Print one line of a result. Line breaks are escaped, so that no name can forge a second line."""
    print(make_printable_line(text))


def text(content: str, *, indent: str = "", first: str | None = None) -> None:
    """Print a result of several lines, each prefixed with `indent`; the first with `first`, if given."""
    head, *rest = make_printable(content).split("\n")
    print(
        "\n".join(
            [f"{indent if first is None else make_printable_line(first)}{head}", *(f"{indent}{row}" for row in rest)]
        )
    )


def info(text: str) -> None:
    """Print a one-line message that is not a result, to stderr."""
    print(make_printable_line(text), file=sys.stderr)


def error(message: str, hint: str = "") -> None:
    """Print an error and, if given, a hint, to stderr."""
    info(f"error: {message}")
    if hint:
        info(f"hint:  {hint}")


def json(value: Any) -> None:
    """Print a value as one line of JSON."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a path that is not UTF-8
        encoded = msgspec.json.encode(map_strings(msgspec.to_builtins(value), _encodable))
    print(escape_json(encoded.decode()))


def _encodable(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def json_lines(values: Iterable[Any]) -> None:
    """Print each value as a line of JSON."""
    for value in values:
        json(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """Print a table. Long cells are wrapped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=make_printable_line(title) or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(make_printable_line(str(cell))) for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(drawn)


def side_by_side(left_column: tuple[str, str], right_column: tuple[str, str]) -> None:
    """Print two texts side by side, each given as (title, text)."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for title, _ in (left_column, right_column):
        drawn.add_column(title, ratio=1, overflow="fold")
    drawn.add_row(Text(make_printable(left_column[1])), Text(make_printable(right_column[1])))
    (Console() if sys.stdout.isatty() else Console(width=160)).print(drawn)


@contextmanager
def progress(*, count: Callable[[float], str] = "{:,.0f}".format) -> Iterator[ProgressCallback]:
    """Draw a progress bar on stderr for each task, with amount, speed and remaining time. Draws nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    what_, how_ = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[how]"))
    columns = (what_, BarColumn(), how_, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task_ids: dict[str, Any] = {}

        def advance(label: str, completed: int, total: int, note: str = "") -> None:
            label, note = make_printable_line(label), make_printable_line(note)
            task_id = task_ids.get(label)
            if task_id is None:
                task_id = task_ids[label] = bars.add_task(label, total=None, how="")
            speed = next(task.speed for task in bars.tasks if task.id == task_id)
            detail = f"{count(completed)} of {count(total)}" if total else ""
            detail += f", {count(speed)}/s" if speed else ""
            detail += f", {note}" if note else ""
            bars.update(task_id, completed=completed, total=total or None, how=detail)

        yield advance


def format_dollars(millionths: int) -> str:
    """Format millionths of a dollar; small amounts with four digits."""
    return f"${millionths / 1_000_000:,.4f}" if 0 < millionths < 10_000 else f"${millionths / 1_000_000:,.2f}"


def format_age(milliseconds: int | None) -> str:
    """Format a time as its age: "3 hours ago"."""
    if not milliseconds:
        return "never"
    seconds = int(datetime.now().timestamp() - milliseconds / 1000)
    for unit_seconds, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit_seconds:
            return f"{plural(seconds // unit_seconds, unit)} ago"
    return "just now"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: "1 file", "1,200 files"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_size(count: float) -> str:
    """Format a number of bytes: "12 MB"."""
    amount = float(count)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


def format_path(file: Path) -> str:
    """Format a path, with the home directory as `~`."""
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) and file != home else str(file)


# --- questions -------------------------------------------------------------------------------------------------------
# Anything that can't be undone, or that sends data from this machine, is confirmed with `ask(…)`, whose default is no.


def can_ask() -> bool:
    """Return whether a person can answer: stdin is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def can_show_questions() -> bool:
    """Return whether a person can see the question and answer it: stderr and stdin are terminals."""
    return can_ask() and sys.stderr.isatty()


def ask_to_spend(question: str) -> bool | None:
    """Ask for consent to future requests that send data or cost money; None means no answer. An empty line means yes,
    but only to a question that was seen: anything typed before the question appeared is discarded."""
    if not can_show_questions():
        return None
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    answer = read_answer(f"{question} [Y/n]")
    return None if answer is None else answer.lower() in ("", "y", "yes")


def read_answer(question: str) -> str | None:
    """Return the typed line, stripped; None at the end of input (^D, a closed stdin)."""
    info(f"{question} ")
    try:
        typed = sys.stdin.readline() if sys.stdin is not None else ""
    except UnicodeDecodeError:
        typed = "\ufffd\n"  # never taken for a yes
    return typed.strip() if typed.strip() or typed.endswith("\n") else None


def read_secret(question: str) -> str:
    """Return a typed line, without showing it on a terminal; from a pipe, the first line."""
    import getpass

    if can_show_questions():
        return getpass.getpass(f"{question} ").strip()
    return sys.stdin.readline().strip() if sys.stdin is not None else ""


def ask(question: str, *, default: bool = False) -> bool:
    """Return whether the answer is yes. `default` is the meaning of an empty line. The end of input and a stdin that is
    not a terminal always mean no."""
    if not can_ask():
        return False
    answer = read_answer(f"{question} {'[Y/n]' if default else '[y/N]'}")
    if answer is None:
        return False
    return answer.lower() in ("y", "yes") or (default and not answer)
