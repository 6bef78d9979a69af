"""What happened around a moment, in the order it happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from claude_mem.config import Config
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.journal import turns
from claude_mem.storage.sqlite.memory import browse, projects, sessions
from claude_mem.system.project_folders import project_from_name


def fill(conn: Connection) -> None:
    """Ten turns in one project, a prompt, an observation and a summary each; and one observation elsewhere."""
    here = projects.register_project(conn, project_from_name("shop"), "", now=0)
    there = projects.register_project(conn, project_from_name("till"), "", now=0)
    session = sessions.open_session(conn, "claude", "s1", project_id=here, at=0)
    for number in range(1, 11):
        turn = turns.open_turn(conn, session.id, at=number * 100)
        at = number * 100
        conn.execute(
            "insert into user_prompts (session_id, turn_id, prompt_number, text, created_at) values (?, ?, ?, ?, ?)",
            (session.id, turn.id, number, f"ask {number}", at),
        )
        common = (session.id, here, turn.id, number)
        conn.execute(
            "insert into observations (session_id, project_id, turn_id, prompt_number, key, type, title, files_modified,"
            " provider, hash, created_at, updated_at) values (?, ?, ?, ?, 'k', 'change', ?, '[\"a.py\"]', 'local', '', ?, 0)",
            (*common, f"did {number}", at + 50),
        )
        conn.execute(
            "insert into session_summaries (session_id, project_id, turn_id, prompt_number, completed, provider, created_at,"
            " updated_at) values (?, ?, ?, ?, ?, 'local', ?, 0)",
            (*common, f"sum {number}", at + 50),
        )
    conn.execute(
        "insert into observations (project_id, key, type, title, provider, hash, created_at, updated_at)"
        " values (?, 'x', 'change', 'elsewhere', 'user', '', 555, 0)",
        (there,),
    )


@pytest.fixture
def db(tmp_path: Path) -> Database:
    config = Config(data_dir=tmp_path)
    made = Database(config.database, backups=config.backups)
    made.write_now(fill)
    return made


def titles(db: Database, anchor: str, before: int, after: int, project_ids: list[int] | None = None) -> list[str]:
    def look(conn: Connection) -> list[str]:
        middle = browse.parse_timeline_point(conn, anchor)
        rows = browse.list_timeline(conn, middle, before=before, after=after, project_ids=project_ids)
        return [row["title"] or "" for row in rows]

    found: list[str] = db.read_now(look)
    db.close()
    return found


def test_kinds_are_interleaved_as_they_came(db: Database) -> None:
    assert titles(db, "5", 3, 3) == ["did 4", "sum 4", "ask 5", "did 5", "sum 5", "ask 6", "did 6"]


@pytest.mark.parametrize(("anchor", "middle"), [("S5", "sum 5"), ("P5", "ask 5"), ("#5", "did 5"), ("s5", "sum 5")])
def test_each_kind_can_be_an_anchor(db: Database, anchor: str, middle: str) -> None:
    assert titles(db, anchor, 0, 0) == [middle]


def test_the_ends_have_nothing_beyond_them(db: Database) -> None:
    assert titles(db, "1", 9, 1) == ["ask 1", "did 1", "sum 1"]


def test_another_project_is_not_in_it_unless_asked_for(db: Database) -> None:
    assert "elsewhere" not in titles(db, "5", 2, 2)


def test_a_date_is_a_moment_in_all_projects(db: Database) -> None:
    found = titles(db, "1970-01-01T00:00:00.552+00:00", 1, 1)
    assert found == ["sum 5", "elsewhere"]


def test_files_and_names_come_along(db: Database) -> None:
    def look(conn: Connection) -> list[MemoryItem]:
        return browse.list_timeline(conn, browse.parse_timeline_point(conn, "5"), before=0, after=0)

    (row,) = db.read_now(look)
    db.close()
    assert (row["files"], row["project"], row["content_session_id"]) == (["a.py"], "shop", "s1")


@pytest.mark.parametrize(
    ("anchor", "error"), [("99", NotFound), ("S99", NotFound), ("soon", InvalidRequest), ("", InvalidRequest)]
)
def test_what_is_no_anchor_says_so(db: Database, anchor: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        titles(db, anchor, 1, 1)
    db.close()
