"""SQLite shows every behaviour of a store, and each behaviour fails for a store with a fault that it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claude_mem.domain.records import LOCAL
from claude_mem.storage.conformance import BEHAVIOURS, SPACE_BEHAVIOURS, Behaviour, OpenDatabase
from claude_mem.storage.records import SearchFilter
from claude_mem.storage.sqlite.binding import BoundFunctions, bound
from claude_mem.storage.sqlite.database import Database, SqliteTransaction
from claude_mem.storage.sqlite.deletion.store import Deletions
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.memory import anchors, browse, edits, observations, search, sessions
from claude_mem.storage.sqlite.memory.store import SqliteMemory, SqliteSearch
from claude_mem.storage.sqlite.spaces import logs
from claude_mem.storage.sqlite.spaces.store import SqliteSpaces

Function = Callable[..., Any]


@pytest.fixture
def open_database(tmp_path: Path) -> Iterator[OpenDatabase]:
    opened: list[Database] = []

    def open_one() -> Database:
        folder = tmp_path / f"db{len(opened)}"
        opened.append(Database(folder / "memory.db", backups=folder / "backups"))
        return opened[-1]

    yield open_one
    for db in opened:
        db.close()


@pytest.mark.parametrize("behaviour", (*BEHAVIOURS, *SPACE_BEHAVIOURS), ids=lambda behaviour: behaviour.__name__)
def test_sqlite_behaves(behaviour: Behaviour, open_database: OpenDatabase) -> None:
    behaviour(open_database)


def _answers(value: object = None) -> Function:
    """A function that does nothing and returns the same always."""
    return lambda *_, **__: value


def _with(function: Function, **options: object) -> Function:
    """The function, called with other options than asked for."""
    return lambda *given, **named: function(*given, **{**named, **options})


def _with_draft(**changes: Any) -> Function:
    return lambda conn, turn, draft, **named: observations.upsert_observation(
        conn, turn, replace(draft, **changes), **named
    )


def _key_by_title(conn: Connection, turn: Any, draft: Any, **named: Any) -> int:
    return observations.upsert_observation(conn, turn, replace(draft, key=draft.title), **named)


def _commit_at_once(conn: Connection, *given: Any, **named: Any) -> int:
    row_id = observations.upsert_observation(conn, *given, **named)
    conn.execute("commit; begin immediate")
    return row_id


def _remove_row(conn: Connection, row_id: int, *_: Any, **__: Any) -> None:
    conn.execute("delete from observations where id = ?", (row_id,))


def _any_project(conn: Connection, point: Any, **named: Any) -> Any:
    return browse.list_timeline(conn, replace(point, project_id=None), **named)


def _append_anything(conn: Connection, space_id: str, device: str, *, after: int, bodies: Any) -> int:
    return logs.append_foreign(conn, space_id, f"{device[1:]}{after}", after=0, bodies=bodies) + after


def _see_everything(conn: Connection, root: str, looks: Any, **named: Any) -> None:
    anchors.record_looks(conn, root, [replace(look, present=0b1111) for look in looks], **named)


# What is wrong with a store for which the behaviour fails.
FAULTS: dict[str, tuple[type[BoundFunctions], str, Function]] = {
    "a_project_is_found_by_each_of_its_identities": (SqliteMemory, "find_project_id", _answers()),
    "merging_projects_moves_everything": (SqliteMemory, "merge_project_into", _answers()),
    "a_session_is_opened_once": (
        SqliteMemory,
        "open_session",
        lambda conn, _, name, **named: sessions.open_session(conn, "codex", name, **named),
    ),
    "a_session_keeps_the_names_of_its_branches": (SqliteMemory, "record_branch_of_recent_work", _answers()),
    "a_finished_session_has_an_end": (SqliteMemory, "set_session_status", _answers()),
    "sessions_are_paged_newest_first": (
        SqliteMemory,
        "list_sessions_with_counts",
        _with(sessions.list_sessions_with_counts, offset=0),
    ),
    "an_observation_is_read_as_it_was_written": (SqliteMemory, "upsert_observation", _with_draft(concepts=())),
    "the_same_evidence_updates_an_observation": (SqliteMemory, "upsert_observation", _key_by_title),
    "observations_of_a_turn_without_evidence_are_removed": (SqliteMemory, "delete_observations_except", _answers()),
    "a_summary_is_read_as_it_was_written": (
        SqliteMemory,
        "upsert_summary",
        _with(observations.upsert_summary, by=LOCAL),
    ),
    "a_prompt_grows": (SqliteMemory, "append_to_prompt", _answers(True)),
    "items_have_the_fields_of_their_type": (SqliteMemory, "list_timeline", _answers([{"id": "1"}])),
    "what_is_said_of_an_observation_has_its_type": (SqliteMemory, "list_observation_history", _answers([{"id": 1}])),
    "what_is_missing_is_not_found": (SqliteMemory, "get_memory", _answers({})),
    "a_failed_transaction_leaves_nothing": (SqliteMemory, "upsert_observation", _commit_at_once),
    "an_edit_belongs_to_the_person": (
        SqliteMemory,
        "edit_observation",
        _with(edits.edit_observation, by="agent", trust="agent"),
    ),
    "what_is_wrong_is_not_injected": (SqliteMemory, "set_verdict", _answers()),
    "external_text_waits_for_approval": (SqliteMemory, "list_approval_queue", _answers([])),
    "pinned_observations_are_listed_apart": (SqliteMemory, "set_pinned", _answers()),
    "merging_observations_keeps_their_facts": (
        SqliteMemory,
        "merge_observations",
        lambda conn, row_id, *_, **__: observations.get_memory(conn, "observation", row_id),
    ),
    "a_deleted_observation_is_gone_and_comes_back": (Deletions, "forget_observation", _answers()),
    "a_deleted_observation_is_not_written_again": (Deletions, "forget_observation", _remove_row),
    "items_are_paged_newest_first": (SqliteMemory, "list_memories", _with(observations.list_memories, offset=0)),
    "the_feed_is_read_by_cursor": (SqliteMemory, "load_feed_page", _with(browse.load_feed_page, before=None)),
    "the_timeline_shows_both_sides_of_a_point": (SqliteMemory, "list_timeline", _any_project),
    "anchors_are_read_as_they_were_written": (SqliteMemory, "list_anchors", _answers([])),
    "a_look_decides_freshness": (SqliteMemory, "record_looks", _see_everything),
    "a_superseded_observation_says_by_what": (SqliteMemory, "supersede_observations", _answers()),
    "a_change_of_validity_is_listed_for_review": (SqliteMemory, "confirm_observation", _answers()),
    "undone_work_supersedes_nothing": (SqliteMemory, "record_outcome", _answers()),
    "words_find_documents": (
        SqliteSearch,
        "score_by_words",
        lambda conn, terms, where: search.score_by_words(conn, terms[:1], where),
    ),
    "a_search_keeps_to_its_filter": (
        SqliteSearch,
        "score_by_words",
        lambda conn, terms, _: search.score_by_words(conn, terms, SearchFilter()),
    ),
    "signals_find_documents_exactly": (
        SqliteSearch,
        "find_by_signal",
        _with(search.find_by_signal, kinds=("edited", "read")),
    ),
    "a_document_is_replaced_and_removed": (SqliteSearch, "delete_document", _answers()),
    "what_was_written_waits_to_be_indexed": (SqliteSearch, "remove_from_index_queue", _answers()),
    "vectors_are_read_in_pages": (SqliteSearch, "load_vectors", _with(search.load_vectors, after=(0, -1))),
    "vectors_of_other_versions_are_found": (
        SqliteSearch,
        "list_outdated_vectors",
        _with(search.list_outdated_vectors, current="other"),
    ),
    "an_export_restores_the_memory": (SqliteMemory, "import_record", _answers("added")),
    "a_space_is_found_by_its_name_and_left_without_trace": (SqliteSpaces, "leave_space", _answers()),
    "a_log_has_no_gaps_and_no_second_version": (SqliteSpaces, "append_foreign", _append_anything),
    "an_older_database_continues_as_another_device": (SqliteSpaces, "confirm_published", _answers("a" * 16)),
    "a_row_that_changes_empties_its_entries": (SqliteSpaces, "list_emptied", _answers([])),
}


@pytest.mark.parametrize("behaviour", (*BEHAVIOURS, *SPACE_BEHAVIOURS), ids=lambda behaviour: behaviour.__name__)
def test_a_fault_is_found(behaviour: Behaviour, open_database: OpenDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    if behaviour.__name__ in FAULTS:
        store, name, function = FAULTS[behaviour.__name__]
        assert name in vars(store)
        monkeypatch.setattr(store, name, bound(function))
    else:
        assert behaviour.__name__ == "a_savepoint_undoes_its_own_writes_only"
        monkeypatch.setattr(SqliteTransaction, "savepoint", lambda *_, **__: nullcontext())
    with pytest.raises(AssertionError):
        behaviour(open_database)
