"""A small memory with some of everything in it, ways to damage its files, and what anyone can see of it."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

from claude_mem.config import Config
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.storage.sqlite import backup, checksums, integrity
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection, fetch_all
from claude_mem.worker.app import Service
from tests.support.lab import Lab

PAGE = 4096
WORDS = ("basket", "total", "rounding", "invoice", "parser", "timeout", "migration", "socket", "retry", "index")
Wound = Callable[[Path, random.Random], None]


def tell(lab: Lab, *, sessions: int = 3, turns: int = 4, name: str = "s", chance: random.Random | None = None) -> int:
    """Sessions as hooks tell of them; how many events that were."""
    chance, sent = chance or random.Random(7), 0
    for number in range(sessions):
        session = f"{name}{number}"
        for turn in range(turns):
            said = {"session_id": session, "prompt_id": f"{session}-p{turn}"}
            words = " ".join(chance.choices(WORDS, k=12))
            lab.spool("UserPromptSubmit", prompt=f"Look into {words}, {session} turn {turn}", **said)
            for call in range(3):
                tool = {"tool_name": "Bash", "tool_use_id": f"{session}-{turn}-{call}"}
                given = {"command": f"pytest -k {chance.choice(WORDS)}"}
                output = {"stdout": "\n".join(" ".join(chance.choices(WORDS, k=15)) for _ in range(20))}
                lab.spool("PostToolUse", tool_input=given, tool_response=output, **tool, **said)
            edit = {
                "file_path": f"{lab.project}/{session}_{turn}.py",
                "old_string": "a = 1",
                "new_string": f"b = {words!r}",
            }
            lab.spool("PostToolUse", tool_name="Edit", tool_use_id=f"{session}-{turn}-e", tool_input=edit, **said)
            lab.spool("Stop", last_assistant_message=f"The {words} works now. Done in {session} turn {turn}.", **said)
            sent += 6
    return sent


async def settle(config: Config) -> None:
    """Taken in, digested, indexed, sealed."""
    service = Service(config)
    try:
        await service.run_until_idle()
        await service.maintenance.store_checksums()
    finally:
        service.close()


def seen(path: Path, folder: Path) -> str:
    """What anyone can see of a memory: everything that is remembered, every event, and the answers to questions. In a
    copy, since SQLite writes beside what it reads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for side in backup.DATABASE_FILE_SUFFIXES[:2]:
        if (file := path.with_name(path.name + side)).is_file():
            shutil.copyfile(file, folder / file.name)
    conn = Connection(str(folder / path.name))
    conn.row_trace = lambda cursor, row: {
        column[0]: item for column, item in zip(cursor.get_description(), row, strict=True)
    }
    try:
        found = [backup.digest_memory(conn)]
        found += [
            str(fetch_all(conn, f"select {', '.join(each.columns)} from {each.table}"))
            for each in checksums.CHECKSUMMED_TABLES
        ]
        found += [str(fetch_all(conn, "select rowid, rank from words where words match ?", (word,))) for word in WORDS]
        found += [
            str(fetch_all(conn, "select * from signals")),
            str(fetch_all(conn, "select event_id, outcome from receipts")),
        ]
        return hashlib.sha256("".join(found).encode("utf-8", "surrogateescape")).hexdigest()
    except Exception as error:  # whatever it does to those who read it
        return f"error: {error}"
    finally:
        conn.close()


def noticed(path: Path, *, backups: Path) -> str:
    """What the worker finds wrong when it opens it, right afterwards, and when it is idle; '' if nothing."""
    try:
        db = Database(path, backups=backups)
    except (ClaudeMemError, apsw.Error) as problem:
        return f"open: {problem}"
    try:
        if found := integrity.quick_check_database(path, should_stop=backup.never_stop):
            return f"start: {found[0]}"
        if not db.write_now(integrity.is_index_intact, backup.never_stop):
            return "index"
        if found := integrity.check_database(path, should_stop=backup.never_stop):
            return f"full: {found[0]}"
        if integrity.count_stray_bits(path):
            return "stray"
    except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as problem:
        return f"read: {problem}"
    finally:
        db.close()
    return ""


# --- wounds ----------------------------------------------------------------------------------------------------------


def flip_anywhere(path: Path, chance: random.Random) -> None:
    _flip(path, chance.randrange(path.stat().st_size), chance)


def _flip(path: Path, place: int, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes((byte ^ (1 << chance.randrange(8)),)))


def flip_in_what_is_kept(path: Path, chance: random.Random) -> None:
    """In the text of an event, a prompt, a summary or an observation."""
    data, conn = path.read_bytes(), Connection(str(path))
    try:
        texts = [
            text
            for sql in (
                "select body from events",
                "select text from user_prompts",
                "select completed from session_summaries where completed is not null",
                "select closing from session_summaries where closing != ''",
                "select narrative from observations where narrative is not null",
                "select title from observations where title is not null",
            )
            for (text,) in conn.execute(sql)
        ]
    finally:
        conn.close()
    while True:
        text = chance.choice(texts).encode()
        start = chance.randrange(max(len(text) - 24, 1))
        place = data.find(text[start : start + 24])
        if place > 0:
            _flip(path, place + chance.randrange(min(24, len(text))), chance)
            return


def zero_page(path: Path, chance: random.Random) -> None:
    _overwrite(path, chance.randrange(path.stat().st_size // PAGE) * PAGE, bytes(PAGE))


def _overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def truncate(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(chance.randrange(size))


def swap_pages(path: Path, chance: random.Random) -> None:
    one, other = chance.sample(range(path.stat().st_size // PAGE), 2)
    data = path.read_bytes()
    _overwrite(path, one * PAGE, data[other * PAGE : (other + 1) * PAGE])
    _overwrite(path, other * PAGE, data[one * PAGE : (one + 1) * PAGE])


def garble_log(path: Path, chance: random.Random) -> None:
    """Some bytes of it, or its end."""
    log = path.with_name(f"{path.name}-wal")
    size = log.stat().st_size
    if chance.random() < 0.5:
        with log.open("r+b") as file:
            file.truncate(chance.randrange(size))
    else:
        _overwrite(log, chance.randrange(size - 64), chance.randbytes(64))


def delete_notes(path: Path, _: random.Random) -> None:
    path.with_name(f"{path.name}-shm").unlink()


def garble_header(path: Path, chance: random.Random) -> None:
    place = chance.randrange(100)
    _overwrite(path, place, chance.randbytes(1))


def wrong_page_size(path: Path, chance: random.Random) -> None:
    _overwrite(path, 16, chance.choice((512, 1024, 2048, 8192, 16384, 32768)).to_bytes(2, "big"))


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def folder_instead(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


WOUNDS: dict[str, Wound] = {
    "zeroed page": zero_page,
    "truncated tail": truncate,
    "swapped pages": swap_pages,
    "garbled log": garble_log,
    "deleted notes (-shm)": delete_notes,
    "header bytes": garble_header,
    "wrong page size": wrong_page_size,
    "empty file": empty,
    "folder instead of a file": folder_instead,
}
IN_THE_LOG = (garble_log, delete_notes)  # as a worker that was killed leaves its files
