"""Checks of a database in use: its pages, its references, its rows against their checksums, and its index.

All checks except that of the index use a separate read-only connection. They end early when `should_stop` returns True.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from claude_mem.storage.records import CheckInterrupted, StopCheck
from claude_mem.storage.sqlite import backup, checksums, damage, self_check
from claude_mem.storage.sqlite.backup import PROGRESS_STEPS
from claude_mem.storage.sqlite.binding import BoundFunctions, bound
from claude_mem.storage.sqlite.engine import Connection, fetch_all, open_reader
from claude_mem.storage.sqlite.memory import search

SAMPLE_SIZE = 1_000
PAGE_BYTES = 4096


def quick_check_database(path: Path, *, should_stop: StopCheck, rng: random.Random | None = None) -> list[str]:
    """Check the pages quickly and a random sample of the rows. Return the problems."""
    rng = rng or random.Random()  # noqa: S311 -- chooses a sample
    with _open_snapshot(path, should_stop) as conn:
        problems = _page_problems(conn, "quick_check")
        return problems or _problems_or_unreadable(
            lambda: checksums.sample_checksum_mismatches(conn, count=SAMPLE_SIZE, rng=rng)
        )


def check_database(path: Path, *, should_stop: StopCheck) -> list[str]:
    """Check all pages, references and rows. Return the problems of the first check that finds any."""
    with _open_snapshot(path, should_stop) as conn:
        return (
            _page_problems(conn, "integrity_check")
            or _problems_or_unreadable(lambda: backup.find_dangling_references(conn))
            or _problems_or_unreadable(lambda: backup.find_all_checksum_mismatches(conn))
        )


def check_closed_database(path: Path) -> list[str]:
    """Run the full check on a database that no process has open. Return the problems."""
    try:
        return check_database(path, should_stop=backup.never_stop)
    except Exception as error:
        if damage.is_database_damage(error):
            return [str(error)]
        raise


def count_free_bytes(conn: Connection) -> int:
    """Return the size of the pages of the file that hold no data."""
    return int(conn.pragma("freelist_count")) * int(conn.pragma("page_size"))


def is_index_intact(conn: Connection, should_stop: StopCheck) -> bool:
    """Return whether the full-text index matches its content table. Must run on the writer connection."""
    conn.set_progress_handler(should_stop, PROGRESS_STEPS)
    try:
        search.check_word_index(conn)
    except apsw.CorruptError:
        return False
    except apsw.InterruptError as error:
        raise CheckInterrupted from error
    finally:
        conn.set_progress_handler(None)
    return True


def count_stray_bits(path: Path) -> int:
    """Count pages that have a single bit set in unused space. It does no harm, but indicates a failing disk."""
    page_count = 0
    with path.open("rb") as file:
        while page := file.read(PAGE_BYTES):
            rest = _unused_bytes(page, 100 if page.startswith(damage.SQLITE_MAGIC) else 0).strip(b"\0")
            page_count += len(rest) == 1 and rest[0].bit_count() == 1
    return page_count


def _unused_bytes(page: bytes, start: int) -> bytes:
    """Return the bytes between a page's cell list and its first cell; for a page that was never used, all its bytes."""
    kind = page[start]
    if kind not in (2, 5, 10, 13):
        return page if not kind else b""
    head = start + (12 if kind in (2, 5) else 8)
    cells, content = (int.from_bytes(page[start + at : start + at + 2], "big") for at in (3, 5))
    return page[head + 2 * cells : content or len(page)]


@contextmanager
def _open_snapshot(path: Path, should_stop: StopCheck) -> Iterator[Connection]:
    conn = open_reader(path)
    conn.set_progress_handler(should_stop, PROGRESS_STEPS)
    try:
        conn.execute("begin")  # one snapshot: a row changed during the check would not match its checksum
        yield conn
    except apsw.InterruptError as error:
        raise CheckInterrupted from error
    finally:
        conn.close()


def _page_problems(conn: Connection, pragma: str) -> list[str]:
    """Run SQLite's own check of pages and indexes. An error that means damage is returned as a problem."""
    try:
        lines = [str(next(iter(row.values()))) for row in fetch_all(conn, f"pragma {pragma}(5)")]
    except damage.DAMAGE_ERRORS as error:
        return [str(error)]
    return [problem for problem in lines if problem != "ok"]


def _problems_or_unreadable(check: Callable[[], list[str]]) -> list[str]:
    """Run a check that returns problems. An error that means damage is returned as a problem."""
    try:
        return check()
    except damage.DAMAGE_ERRORS as error:
        return [str(error)]


# --- what rooms can ask ----------------------------------------------------------------------------------------------


class IntegrityChecks(BoundFunctions):
    """Checksums, the word index and the self-check."""

    # checksums
    has_queued_checksums = bound(checksums.has_queued_checksums)
    store_checksums = bound(checksums.store_checksums)

    # file and word index
    count_free_bytes = bound(count_free_bytes)
    is_index_intact = bound(is_index_intact)

    # self-check
    check_full_text_index = bound(self_check.check_full_text_index)
    find_altered_observations = bound(self_check.find_altered_observations)
    get_audit_head = bound(self_check.get_audit_head)
    run_quick_checks = bound(self_check.run_quick_checks)
    run_thorough_checks = bound(self_check.run_thorough_checks)
    set_audit_head = bound(self_check.set_audit_head)
