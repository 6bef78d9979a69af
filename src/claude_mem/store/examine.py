"""A close look at a database that is in use: its pages, its references, its rows against their seals, its index.

All but the index is read through a connection of its own, which can't write, and ends early if someone is in a hurry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from claude_mem.store import backup, damage, seals, search
from claude_mem.store.backup import STEPS, Halted
from claude_mem.store.database import Connection, open_reader, rows

SAMPLE = 1_000
PAGE = 4096


class Hurried(Exception):
    """Someone was in a hurry: nothing is known."""


def start(path: Path, *, halted: Halted, chance: random.Random | None = None) -> list[str]:
    """What is wrong, as far as a quick look tells."""
    with _looking(path, halted) as conn:
        found = _pages(conn, "quick_check")
        return found or _readable(lambda: seals.sample(conn, count=SAMPLE, chance=chance or random.Random()))  # noqa: S311


def full(path: Path, *, halted: Halted) -> list[str]:
    with _looking(path, halted) as conn:
        return (
            _pages(conn, "integrity_check")
            or _readable(lambda: _dangling(conn))
            or _readable(lambda: backup.broken_seals(conn))
        )


def stray(path: Path) -> int:
    """Pages with a single bit set where nothing is: it does no harm, but a sound disk does not do that."""
    found = 0
    with path.open("rb") as file:
        while page := file.read(PAGE):
            rest = _unused(page, 100 if page.startswith(damage.MAGIC) else 0).strip(b"\0")
            found += len(rest) == 1 and rest[0].bit_count() == 1
    return found


def _unused(page: bytes, start: int) -> bytes:
    """Between the list of a page's cells and the first of them; all of a page that was never used."""
    kind = page[start]
    if kind not in (2, 5, 10, 13):
        return page if not kind else b""
    head = start + (12 if kind in (2, 5) else 8)
    cells, content = (int.from_bytes(page[start + at : start + at + 2], "big") for at in (3, 5))
    return page[head + 2 * cells : content or len(page)]


def index(conn: Connection, halted: Halted) -> bool:
    """Does it say what the texts say? For the one who writes: only he can ask."""
    conn.set_progress_handler(halted, STEPS)
    try:
        search.check(conn)
    except apsw.CorruptError:
        return False
    except apsw.InterruptError as error:
        raise Hurried from error
    finally:
        conn.set_progress_handler(None)
    return True


@contextmanager
def _looking(path: Path, halted: Halted) -> Iterator[Connection]:
    conn = open_reader(path)
    conn.set_progress_handler(halted, STEPS)
    try:
        conn.execute("begin")  # one moment of it: a row that is changed meanwhile would not fit its seal
        yield conn
    except apsw.InterruptError as error:
        raise Hurried from error
    finally:
        conn.close()


def _pages(conn: Connection, pragma: str) -> list[str]:
    """The pages, and that all is where the indexes say. What is read may itself be too damaged to be read."""
    try:
        found = [str(next(iter(row.values()))) for row in rows(conn, f"pragma {pragma}(5)")]
    except damage.SIGNS as error:
        return [str(error)]
    return [problem for problem in found if problem != "ok"]


def _readable(look: Callable[[], list[str]]) -> list[str]:
    """What it finds, or that it can't be read."""
    try:
        return look()
    except damage.SIGNS as error:
        return [str(error)]


def _dangling(conn: Connection) -> list[str]:
    found = rows(conn, "pragma foreign_key_check")
    return [f"{row['table']} {row['rowid']} names what is not there" for row in found]


def closely(path: Path) -> list[str]:
    """Everything, of a database that nobody has open. Nothing: it is sound."""
    try:
        return full(path, halted=backup.never)
    except Exception as error:
        if damage.is_damage(error):
            return [str(error)]
        raise
