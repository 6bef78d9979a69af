"""The behaviours that every store of the memory shows: the specification of `storage.memory`.

Each behaviour takes a function that opens an empty database, and fails with an `AssertionError` if the database behaves
otherwise. `tests/storage/test_conformance.py` runs the list against SQLite; another store passes when it passes here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from claude_mem.domain.anchors import Anchor, Freshness, Outcome
from claude_mem.domain.errors import LogDiffers, LogGap, NotFound
from claude_mem.domain.export_format import RECORD_TYPES, ContentRecord
from claude_mem.domain.memory_items import (
    Copy,
    HistoryEntry,
    IndexEntries,
    MemoryItem,
    ObservationOrigin,
    ValidityChange,
)
from claude_mem.domain.records import LOCAL, Author, Draft, Fact, Session, Status, Summary, Turn
from claude_mem.domain.validity import Validity
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.records import (
    Document,
    FeedFilter,
    Look,
    Passage,
    SearchFilter,
    StoredAnchor,
    TimelinePoint,
)
from claude_mem.storage.spaces import NewEntry, Space
from claude_mem.system.project_folders import ResolvedProject

OpenDatabase = Callable[[], Database]
Behaviour = Callable[[OpenDatabase], None]
NOW = 1_700_000_000_000
ROOT = "/home/user/shop"
SHOP = ResolvedProject(name="shop", root=ROOT, identities=(f"dir:{ROOT}",))
OTHER = ResolvedProject(name="other", root="/home/user/other", identities=("dir:/home/user/other",))
MINE = Space(id="5" * 32, name="mine", kind="personal", device="a" * 16, transport="file:///exchange", created_at=NOW)
DRAFT = Draft(
    key="edit:cart.py",
    type="bugfix",
    title="The cart rounded prices twice",
    narrative="Prices were rounded per item and again in the total.",
    facts=(Fact("round only the total"),),
    concepts=("gotcha",),
    files_modified=("src/cart.py",),
)


@dataclass(frozen=True, slots=True)
class Work:
    """A project with a session and a turn."""

    project_id: int
    session: Session
    turn: Turn


# --- projects and sessions -------------------------------------------------------------------------------------------


def a_project_is_found_by_each_of_its_identities(open_database: OpenDatabase) -> None:
    """Registering a project again, from another folder, returns the same project and adds what is new."""
    db = open_database()
    by_remote = replace(SHOP, identities=("remote:example.org/shop", *SHOP.identities))
    moved = replace(SHOP, root="/elsewhere/shop", identities=("remote:example.org/shop", "dir:/elsewhere/shop"))
    ids = [
        db.write_now(lambda tx, one: tx.memory.register_project(one, one.root, now=NOW), p) for p in (by_remote, moved)
    ]
    assert ids[0] == ids[1]
    assert db.read_now(lambda tx: tx.memory.find_project_id(SHOP)) == ids[0]
    assert db.read_now(lambda tx: tx.memory.find_project_id(OTHER)) is None
    folders = db.read_now(lambda tx: tx.memory.list_project_folders(ids[0]))
    assert set(folders) == {ROOT, "/elsewhere/shop"}


def merging_projects_moves_everything(open_database: OpenDatabase) -> None:
    """After a merge the target has the observations and identities of the source, which is gone."""
    db = open_database()
    source, target = db.write_now(_add_work, OTHER, name="s2"), db.write_now(_add_work, SHOP)
    moved = db.write_now(_add_observation, source, DRAFT)
    db.write_now(lambda tx: tx.memory.merge_project_into(source.project_id, target.project_id))
    assert db.read_now(lambda tx: tx.memory.get_memory("observation", moved))["project_id"] == target.project_id
    assert db.read_now(lambda tx: tx.memory.find_project_id(OTHER)) == target.project_id
    assert db.read_now(lambda tx: tx.memory.find_project(source.project_id)) is None


def a_session_is_opened_once(open_database: OpenDatabase) -> None:
    """Opening a session again returns it; two agents may use the same id."""
    db = open_database()
    project_id = db.write_now(lambda tx: tx.memory.register_project(SHOP, ROOT, now=NOW))

    def open_session(tx: Transaction, host: str) -> int:
        return tx.memory.open_session(host, "s1", project_id=project_id, at=NOW).id

    first, again, other = (db.write_now(open_session, host) for host in ("claude-code", "claude-code", "codex"))
    assert first == again != other
    session = db.read_now(lambda tx: tx.memory.find_session("codex", "s1"))
    assert session is not None
    assert session.id == other


def a_session_keeps_the_names_of_its_branches(open_database: OpenDatabase) -> None:
    """Each is stored once, and a name that contains a secret is not. Work in a directory counts for its sessions."""
    db = open_database()
    session = db.write_now(_add_work, SHOP).session
    elsewhere = db.write_now(_add_work, OTHER, "s2").session
    secret = "ann/ghp_" + "a1B2c3D4e5F6" * 3
    for names in (["ann/prices", "main"], ["main", secret]):
        db.write_now(lambda tx, names: tx.memory.record_session_branches(session.id, names), names)
    here = {"root": ROOT, "branch": "ann/taxes"}
    db.write_now(lambda tx: tx.memory.record_branch_of_recent_work(session.project_id, **here, since=NOW))
    branches = db.read_now(lambda tx: tx.memory.list_session_branches([session.id, elsewhere.id]))
    assert branches == {session.id: ["ann/prices", "main", "ann/taxes"]}


def a_finished_session_has_an_end(open_database: OpenDatabase) -> None:
    """The end is never before the start, whatever the clock says."""
    db = open_database()
    session = db.write_now(_add_work, SHOP).session
    db.write_now(lambda tx: tx.memory.set_session_status(session.id, Status.COMPLETED, at=NOW - 5_000))
    details = db.read_now(lambda tx: tx.memory.get_session_details(session.id))
    assert details.status == Status.COMPLETED
    assert details.ended_at is not None
    assert details.ended_at >= details.started_at


def sessions_are_paged_newest_first(open_database: OpenDatabase) -> None:
    """Pages do not overlap and leave nothing out."""
    db = open_database()
    opened = [db.write_now(_add_work, SHOP, name=f"s{number}", at=NOW + number).session.id for number in range(5)]
    pages = [
        db.read_now(lambda tx, offset: tx.memory.list_sessions_with_counts(limit=2, offset=offset), offset)
        for offset in (0, 2, 4)
    ]
    assert [item.id for page in pages for item in page] == opened[::-1]


# --- writing and reading ---------------------------------------------------------------------------------------------


def an_observation_is_read_as_it_was_written(open_database: OpenDatabase) -> None:
    """Every field comes back, lists as lists."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    item = db.read_now(lambda tx: tx.memory.get_memory("observation", row_id))
    assert (item["type"], item["title"], item["narrative"]) == (DRAFT.type, DRAFT.title, DRAFT.narrative)
    assert (item["facts"], item["concepts"]) == (["round only the total"], ["gotcha"])
    assert (item["files_modified"], item["files_read"]) == (["src/cart.py"], [])
    assert (item["project"], item["prompt_number"], item["trust"]) == ("shop", work.turn.number, "agent")
    assert db.read_now(lambda tx: tx.memory.get_newest_observation_id()) == row_id


def the_same_evidence_updates_an_observation(open_database: OpenDatabase) -> None:
    """Digesting a turn again changes the observation with the same key, and adds none."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    first = db.write_now(_add_observation, work, DRAFT)
    second = db.write_now(_add_observation, work, replace(DRAFT, title="Prices are rounded once"))
    assert first == second
    assert db.read_now(lambda tx: tx.memory.get_memory("observation", first))["title"] == "Prices are rounded once"
    assert db.read_now(lambda tx: tx.memory.count_observations()) == 1


def observations_of_a_turn_without_evidence_are_removed(open_database: OpenDatabase) -> None:
    """Only the given keys remain, and what a person pinned."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    current, outdated, pinned = (
        db.write_now(_add_observation, work, replace(DRAFT, key=key)) for key in ("current", "outdated", "pinned")
    )
    db.write_now(lambda tx: tx.memory.set_pinned(pinned, pinned=True, now=NOW))
    db.write_now(lambda tx: tx.memory.delete_observations_except(work.turn.id, ("current",)))
    items = db.read_now(lambda tx: tx.memory.load_observations([current, outdated, pinned]))
    assert [item["id"] for item in items] == [current, pinned]


def a_summary_is_read_as_it_was_written(open_database: OpenDatabase) -> None:
    """One summary per turn: writing it again updates it."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    summary = Summary(request="Fix the cart", completed="Rounded once.", files_edited=("src/cart.py",))
    first = db.write_now(lambda tx: tx.memory.upsert_summary(work.turn, summary, by=LOCAL, now=NOW))
    again = replace(summary, completed="Rounded once, with a test.")
    assert db.write_now(lambda tx: tx.memory.upsert_summary(work.turn, again, by=Author("openai"), now=NOW)) == first
    item = db.read_now(lambda tx: tx.memory.get_memory("summary", first))
    assert (item["request"], item["completed"]) == ("Fix the cart", "Rounded once, with a test.")
    assert (item["provider"], item["files_edited"]) == ("openai", ["src/cart.py"])
    last = db.read_now(lambda tx: tx.memory.find_last_summary([work.project_id]))
    assert last is not None
    assert last["id"] == first


def a_prompt_grows(open_database: OpenDatabase) -> None:
    """Text that the user adds while the agent works is appended, and repeated text is not."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    assert db.write_now(lambda tx: tx.memory.append_to_prompt(work.turn.id, "and add a test"))
    assert not db.write_now(lambda tx: tx.memory.append_to_prompt(work.turn.id, "and add a test"))
    (item,) = db.read_now(lambda tx: tx.memory.list_session_memories("prompt", work.session.id))
    assert item["text"].startswith("Fix the cart")
    assert item["text"].endswith("and add a test")


def items_have_the_fields_of_their_type(open_database: OpenDatabase) -> None:
    """Whatever lists items, each has only fields of `MemoryItem`, and values of their types."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    summary = Summary(request="Fix the cart", completed="Rounded once.", closing="Done.")
    db.write_now(lambda tx: tx.memory.upsert_summary(work.turn, summary, by=LOCAL, now=NOW))
    document_id = db.write_now(_index, work, row_id, "the cart")

    def list_all(tx: Transaction) -> list[MemoryItem]:
        kinds = ("observation", "summary", "prompt")
        point = tx.memory.get_timeline_point("observation", row_id)
        return [
            *(item for kind in kinds for item in tx.memory.list_memories(kind=kind, limit=9, offset=0)),
            *(item for kind in kinds for item in tx.memory.list_session_memories(kind, work.session.id)),
            *tx.memory.add_states([tx.memory.get_memory("observation", row_id)]),
            *tx.memory.load_feed_page(FeedFilter(), before=None, limit=9)[0],
            *tx.memory.list_timeline(point, before=9, after=9),
            *tx.memory.list_last_turns([work.project_id], limit=9),
            *tx.search.load_hits([document_id]).values(),
        ]

    items = db.read_now(list_all)
    assert len(items) >= 14
    for item in items:
        assert set(item) <= set(MemoryItem.__annotations__), set(item) - set(MemoryItem.__annotations__)
        _check_type(item, MemoryItem)


def what_is_said_of_an_observation_has_its_type(open_database: OpenDatabase) -> None:
    """Its history, its origin, its changes of validity and its copies have every field of their types."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    old, new = (db.write_now(_add_observation, work, replace(DRAFT, key=key)) for key in ("old", "new"))
    db.write_now(lambda tx: tx.memory.edit_observation(old, {"title": "Round the total only"}, now=NOW))
    db.write_now(lambda tx: tx.memory.supersede_observations([old], new))
    db.write_now(lambda tx: tx.memory.queue_validity_checks([old]))
    db.write_now(lambda tx: tx.memory.record_validity_changes(now=NOW))
    item = db.read_now(lambda tx: tx.memory.get_memory("observation", old))
    turn_id = work.turn.id
    copies = db.read_now(lambda tx: tx.memory.find_copies(item, turn_id=turn_id, exclude_ids=[old]))
    _check_type(db.read_now(lambda tx: tx.memory.list_observation_history(old)), list[HistoryEntry])
    _check_type(db.read_now(lambda tx: tx.memory.list_validity_changes(old)), list[ValidityChange])
    _check_type(db.read_now(lambda tx: tx.memory.get_observation_origin(old)), ObservationOrigin)
    _check_type(db.read_now(lambda tx: tx.search.count_index_entries(old)), IndexEntries)
    _check_type(copies, list[Copy])
    assert [copy["id"] for copy in copies] == [new]


def what_is_missing_is_not_found(open_database: OpenDatabase) -> None:
    """Asking for an unknown item, session or project by id raises `NotFound`."""
    db = open_database()
    questions: Sequence[Callable[[Transaction], object]] = (
        lambda tx: tx.memory.get_memory("observation", 7),
        lambda tx: tx.memory.get_memory("summary", 7),
        lambda tx: tx.memory.get_session(7),
        lambda tx: tx.memory.get_project(7),
        lambda tx: tx.memory.get_timeline_point("prompt", 7),
    )
    for question in questions:
        try:
            answer = db.read_now(question)
        except NotFound:
            continue
        raise AssertionError(f"found {answer!r} in an empty database")


def a_failed_transaction_leaves_nothing(open_database: OpenDatabase) -> None:
    """Neither memory nor journal keeps what was written before the error."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)

    def fail(tx: Transaction) -> None:
        _add_observation(tx, work, DRAFT)
        tx.journal.enqueue_job("render", "1", now=NOW)
        raise ZeroDivisionError

    try:
        db.write_now(fail)
    except ZeroDivisionError:
        pass
    assert db.read_now(lambda tx: tx.memory.count_observations()) == 0
    assert db.read_now(lambda tx: tx.journal.count_jobs("render")) == 0


def a_savepoint_undoes_its_own_writes_only(open_database: OpenDatabase) -> None:
    """What failed in a savepoint is undone; what was written before it is kept."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)

    def write(tx: Transaction) -> None:
        _add_observation(tx, work, replace(DRAFT, key="before"))
        try:
            with tx.savepoint():
                _add_observation(tx, work, replace(DRAFT, key="inside"))
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        with tx.savepoint(undo=True):
            _add_observation(tx, work, replace(DRAFT, key="tried"))

    db.write_now(write)
    assert db.read_now(lambda tx: tx.memory.count_observations()) == 1


# --- a person's word -------------------------------------------------------------------------------------------------


def an_edit_belongs_to_the_person(open_database: OpenDatabase) -> None:
    """No digest changes an observation that a person edited, and its history says what it was."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    db.write_now(lambda tx: tx.memory.edit_observation(row_id, {"title": "Round the total only"}, now=NOW))
    db.write_now(_add_observation, work, replace(DRAFT, title="Something else"))
    item = db.read_now(lambda tx: tx.memory.get_memory("observation", row_id))
    assert (item["title"], item["trust"]) == ("Round the total only", "user")
    assert db.read_now(lambda tx: tx.memory.list_user_owned_keys(work.turn.id)) == {DRAFT.key}
    (entry,) = db.read_now(lambda tx: tx.memory.list_observation_history(row_id))
    assert (entry["what"], entry["by"]) == ("edited", "user")
    assert entry["before"] is not None
    assert entry["before"]["title"] == DRAFT.title


def what_is_wrong_is_not_injected(open_database: OpenDatabase) -> None:
    """A verdict takes an observation out of what sessions are shown, and taking it back restores it."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)

    def shown() -> list[int]:
        items = db.read_now(lambda tx: tx.memory.list_recent_observations([work.project_id], limit=10))
        return [item["id"] for item in items]

    assert shown() == [row_id]
    db.write_now(lambda tx: tx.memory.set_verdict("observation", row_id, "wrong", now=NOW))
    assert shown() == []
    db.write_now(lambda tx: tx.memory.set_verdict("observation", row_id, "right", now=NOW))
    assert shown() == [row_id]


def external_text_waits_for_approval(open_database: OpenDatabase) -> None:
    """An external observation is listed in the queue, and is shown to sessions once a person approved it."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, replace(DRAFT, trust="external", why="example.org"))

    def state() -> tuple[list[int], list[int]]:
        queue = db.read_now(lambda tx: tx.memory.list_approval_queue(limit=10, offset=0))
        recent = db.read_now(lambda tx: tx.memory.list_recent_observations([work.project_id], limit=10))
        return [item["id"] for item in queue], [item["id"] for item in recent]

    assert state() == ([row_id], [])
    db.write_now(lambda tx: tx.memory.set_verdict("observation", row_id, "approved", now=NOW))
    assert state() == ([], [row_id])


def pinned_observations_are_listed_apart(open_database: OpenDatabase) -> None:
    """A pin puts an observation among the pinned, and unpinning takes it out."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    for pinned in (True, False):
        db.write_now(lambda tx, pinned: tx.memory.set_pinned(row_id, pinned=pinned, now=NOW), pinned)
        items = db.read_now(lambda tx: tx.memory.list_pinned_observations([work.project_id], limit=10))
        assert [item["id"] for item in items] == [row_id] * pinned


def merging_observations_keeps_their_facts(open_database: OpenDatabase) -> None:
    """The result has the facts of all, and the others are deleted."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    first = db.write_now(_add_observation, work, DRAFT)
    second = db.write_now(_add_observation, work, replace(DRAFT, key="other", facts=(Fact("use Decimal"),)))
    merged = db.write_now(lambda tx: tx.memory.merge_observations(first, [second], now=NOW))
    assert merged["facts"] == ["round only the total", "use Decimal"]
    assert db.read_now(lambda tx: tx.memory.list_merged_into(first)) == [second]
    assert db.read_now(lambda tx: tx.memory.count_observations()) == 1


# --- deleting --------------------------------------------------------------------------------------------------------


def a_deleted_observation_is_gone_and_comes_back(open_database: OpenDatabase) -> None:
    """A deletion hides the content from every listing; undoing it restores the content."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    db.write_now(_forget, row_id)
    assert db.read_now(lambda tx: tx.memory.load_observations([row_id])) == []
    assert db.read_now(lambda tx: tx.memory.list_memories(kind="observation", limit=10, offset=0)) == []
    deleted = db.read_now(lambda tx: tx.memory.find_deleted_observation(row_id))
    assert deleted is not None
    assert deleted["id"] == row_id
    assert "narrative" not in deleted
    db.write_now(lambda tx: tx.deletions.undo_observation_change(row_id, (), now=NOW + 1, by="user"))
    assert db.read_now(lambda tx: tx.memory.get_memory("observation", row_id))["title"] == DRAFT.title


def a_deleted_observation_is_not_written_again(open_database: OpenDatabase) -> None:
    """Digesting the turn again does not bring it back."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    db.write_now(_forget, row_id)
    db.write_now(_add_observation, work, DRAFT)
    assert db.read_now(lambda tx: tx.memory.count_observations()) == 0


# --- paging ----------------------------------------------------------------------------------------------------------


def items_are_paged_newest_first(open_database: OpenDatabase) -> None:
    """Pages by offset do not overlap, also for items of the same millisecond."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    ids = [db.write_now(_add_observation, work, replace(DRAFT, key=f"k{number}")) for number in range(5)]
    pages = [
        db.read_now(lambda tx, offset: tx.memory.list_memories(kind="observation", limit=2, offset=offset), offset)
        for offset in (0, 2, 4)
    ]
    assert [item["id"] for page in pages for item in page] == ids[::-1]


def the_feed_is_read_by_cursor(open_database: OpenDatabase) -> None:
    """Each page continues where the last one ended, whatever was added since."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    ids = [db.write_now(_add_observation, work, replace(DRAFT, key=f"k{number}")) for number in range(5)]
    only = FeedFilter(kind="observation")
    first, cursor = db.read_now(lambda tx: tx.memory.load_feed_page(only, before=None, limit=3))
    assert cursor is not None
    db.write_now(_add_observation, work, replace(DRAFT, key="later"))
    second, end = db.read_now(lambda tx: tx.memory.load_feed_page(only, before=cursor, limit=3))
    assert [item["id"] for item in (*first, *second)] == ids[::-1]
    assert end is None


def the_timeline_shows_both_sides_of_a_point(open_database: OpenDatabase) -> None:
    """Before and after the point, in the order of time, and only of the point's project."""
    db = open_database()
    works = [db.write_now(_add_work, SHOP, name=f"s{number}", at=NOW + number * 1000) for number in range(5)]
    foreign = db.write_now(_add_work, OTHER, name="foreign", at=NOW + 2_500)
    ids = [db.write_now(_add_observation, work, DRAFT) for work in works]
    db.write_now(_add_observation, foreign, DRAFT)
    point = db.read_now(lambda tx: tx.memory.get_timeline_point("observation", ids[2]))
    assert point == TimelinePoint(works[2].turn.ended_at, works[2].project_id, "observation", ids[2])
    items = db.read_now(lambda tx: tx.memory.list_timeline(point, before=3, after=3))
    times = [item["created_at"] for item in items]
    assert times == sorted(times)
    row_ids = {item["id"] for item in items if item["kind"] == "observation"}
    assert ids[2] in row_ids
    assert row_ids <= set(ids)


# --- anchors and validity --------------------------------------------------------------------------------------------


def anchors_are_read_as_they_were_written(open_database: OpenDatabase) -> None:
    """Replacing anchors keeps the rows of those that did not change."""
    db = open_database()
    row_id = db.write_now(_add_observation, db.write_now(_add_work, SHOP), DRAFT)
    cart = Anchor("src/cart.py", "edit", (b"12345678", b"abcdefgh"))
    before = db.write_now(_put_anchors, row_id, [cart])
    after = db.write_now(_put_anchors, row_id, [cart, replace(cart, path="src/tax.py")])
    assert [(item.path, item.kind, item.lines) for item in after[:1]] == [("src/cart.py", "edit", cart.lines)]
    assert [item.id for item in after[:1]] == [item.id for item in before]
    assert len(after) == 2


def a_look_decides_freshness(open_database: OpenDatabase) -> None:
    """An observation is current while its lines are there, and not when they are gone."""
    db = open_database()
    row_id = db.write_now(_add_observation, db.write_now(_add_work, SHOP), DRAFT)
    lines = tuple(b"line %03d" % number for number in range(4))
    (anchor,) = db.write_now(_put_anchors, row_id, [Anchor("src/cart.py", "edit", lines)])

    def freshness(present: int) -> Freshness:
        db.write_now(lambda tx: tx.memory.record_looks(ROOT, [Look(anchor.id, str(present), present)]))
        return db.read_now(lambda tx: tx.memory.load_states([row_id], ROOT))[row_id].freshness

    assert freshness(anchor.all_lines) == Freshness.CURRENT
    assert freshness(0) == Freshness.OUTDATED


def a_superseded_observation_says_by_what(open_database: OpenDatabase) -> None:
    """The state names the successor, and sessions are not shown what was superseded."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    old, new = (db.write_now(_add_observation, work, replace(DRAFT, key=key)) for key in ("old", "new"))
    db.write_now(lambda tx: tx.memory.supersede_observations([old], new))
    (item,) = db.read_now(lambda tx: tx.memory.add_states(tx.memory.load_observations([old])))
    assert (item["superseded_by"], item["validity"]) == (new, Validity.SUPERSEDED)
    items = db.read_now(lambda tx: tx.memory.list_recent_observations([work.project_id], limit=10))
    assert [item["id"] for item in items] == [new]


def a_change_of_validity_is_listed_for_review(open_database: OpenDatabase) -> None:
    """The change is recorded once, with its time, and a person's confirmation takes it off the list."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    old, new = (db.write_now(_add_observation, work, replace(DRAFT, key=key)) for key in ("old", "new"))
    db.write_now(lambda tx: tx.memory.supersede_observations([old], new))

    def review(tx: Transaction) -> list[int]:
        tx.memory.queue_validity_checks([old, new])
        while tx.memory.record_validity_changes(now=NOW):
            pass
        items = tx.memory.list_changed_observations([work.project_id], [Validity.SUPERSEDED], limit=10, offset=0)
        return [item["id"] for item in items]

    assert db.write_now(review) == [old]
    assert db.write_now(review) == [old]
    changes = db.read_now(lambda tx: tx.memory.list_validity_changes(old))
    assert [change["validity"] for change in changes] == [Validity.SUPERSEDED]
    db.write_now(lambda tx: tx.memory.confirm_observation(old, now=NOW))
    assert db.write_now(review) == []


def undone_work_supersedes_nothing(open_database: OpenDatabase) -> None:
    """When the work of the successor was reverted, what it had superseded holds again."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    old, new = (db.write_now(_add_observation, work, replace(DRAFT, key=key)) for key in ("old", "new"))
    for row_id in (old, new):
        db.write_now(_put_anchors, row_id, [Anchor("src/cart.py", "edit", (b"%08d" % row_id,))])
    db.write_now(lambda tx: tx.memory.supersede_observations([old], new))
    db.write_now(lambda tx: tx.memory.record_outcome(new, Outcome.REVERTED, commit="", now=NOW))
    assert db.read_now(lambda tx: tx.memory.get_memory("observation", old))["superseded_by"] is None


# --- search ----------------------------------------------------------------------------------------------------------


def words_find_documents(open_database: OpenDatabase) -> None:
    """Every passage with one of the words has a score; the one with both words, of which one is rare, has the best."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    texts = ("the cart rounds prices", "the cart is empty", "the tax of prices in a cart")
    ids = [db.write_now(_index, work, row_id, text) for row_id, text in enumerate(texts, 1)]
    scores = db.read_now(lambda tx: tx.search.score_by_words(["cart", "empty"], SearchFilter()))
    assert len(scores.matches) == len(texts)
    best = max(scores.matches.values(), key=lambda match: match.score)
    assert set(scores.matched_terms(best.terms)) == {"cart", "empty"}
    hits = db.read_now(lambda tx: tx.search.load_hits(ids))
    assert [hits[document_id]["body"] for document_id in ids] == list(texts)
    assert db.read_now(lambda tx: tx.search.score_by_words(["zebra"], SearchFilter())).matches == {}


def a_search_keeps_to_its_filter(open_database: OpenDatabase) -> None:
    """Other projects, kinds and times are neither scored nor listed."""
    db = open_database()
    here, there = db.write_now(_add_work, SHOP), db.write_now(_add_work, OTHER, name="s2", at=NOW + 1000)
    own, foreign = (db.write_now(_index, work, row_id, "the cart") for row_id, work in enumerate((here, there), 1))
    filters = (
        SearchFilter(project_ids=(here.project_id,)),
        SearchFilter(until=there.turn.ended_at - 1),
        SearchFilter(exclude_session_id=there.session.id),
    )
    for where in filters:
        scores = db.read_now(lambda tx, where: tx.search.score_by_words(["cart"], where), where)
        assert [match.thread for match in scores.matches.values()] == [here.session.id], where
        newest = db.read_now(lambda tx, where: tx.search.list_documents_by_date(where, limit=9, offset=0), where)
        assert newest == [own], where
    assert (
        db.read_now(lambda tx: tx.search.list_documents_by_date(SearchFilter(kinds=("turn",)), limit=9, offset=0)) == []
    )
    newest = db.read_now(lambda tx: tx.search.list_documents_by_date(SearchFilter(), limit=9, offset=0))
    assert newest == [foreign, own]


def signals_find_documents_exactly(open_database: OpenDatabase) -> None:
    """A signal is compared as a whole, by kind and value."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    document_id = db.write_now(_index, work, 1, "the cart", signals=(("edited", "src/cart.py", 2),))

    def find(kind: str, value: str) -> list[int]:
        matches = db.read_now(lambda tx: tx.search.find_by_signal(SearchFilter(), kinds=(kind,), values=[value]))
        return [match.id for match in matches]

    assert find("edited", "src/cart.py") == [document_id]
    assert find("read", "src/cart.py") == find("edited", "cart.py") == []


def a_document_is_replaced_and_removed(open_database: OpenDatabase) -> None:
    """Indexing an item again replaces its words; removing it leaves none."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    first = db.write_now(_index, work, 1, "the cart")
    assert db.write_now(_index, work, 1, "the basket") == first

    def found(word: str) -> int:
        return len(db.read_now(lambda tx: tx.search.score_by_words([word], SearchFilter())).matches)

    assert (found("cart"), found("basket")) == (0, 1)
    db.write_now(lambda tx: tx.search.delete_document("observation", 1))
    assert found("basket") == 0


def what_was_written_waits_to_be_indexed(open_database: OpenDatabase) -> None:
    """A new observation is in the index queue until it is taken out."""
    db = open_database()
    row_id = db.write_now(_add_observation, db.write_now(_add_work, SHOP), DRAFT)
    queue = db.read_now(lambda tx: tx.search.list_index_queue(limit=100))
    assert ("observation", row_id) in queue
    for kind, item_id in queue:
        db.write_now(lambda tx, kind, item_id: tx.search.remove_from_index_queue(kind, item_id), kind, item_id)
    assert ("observation", row_id) not in db.read_now(lambda tx: tx.search.list_index_queue(limit=100))


def vectors_are_read_in_pages(open_database: OpenDatabase) -> None:
    """Each passage without a vector is listed once, and each stored vector is read once."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    for number in range(1, 4):
        db.write_now(_index, work, number, f"the cart {number}")
    pending = db.read_now(lambda tx: tx.search.list_passages_without_vector("m", limit=10))
    assert len(pending) == 3
    for item in pending:
        db.write_now(
            lambda tx, item: tx.search.store_vector(item.id, item.part, model="m", hash_="h", vector=b"1234"), item
        )
    first = db.read_now(lambda tx: tx.search.load_vectors("m", after=(0, -1), limit=2))
    after = (first[-1].document, first[-1].part)
    second = db.read_now(lambda tx: tx.search.load_vectors("m", after=after, limit=2))
    assert sorted(row.document for row in (*first, *second)) == sorted(item.id for item in pending)
    assert db.read_now(lambda tx: tx.search.list_passages_without_vector("m", limit=10)) == []


def vectors_of_other_versions_are_found(open_database: OpenDatabase) -> None:
    """Vectors of another version of a model are listed and deleted; those of this version and of other models stay."""
    db = open_database()
    db.write_now(_index, db.write_now(_add_work, SHOP), 1, "the cart")
    (item,) = db.read_now(lambda tx: tx.search.list_passages_without_vector("m-2", limit=10))
    for model in ("m-1", "m-2", "other"):
        db.write_now(
            lambda tx, model: tx.search.store_vector(item.id, item.part, model=model, hash_="h", vector=b"1234"), model
        )
    outdated = db.read_now(lambda tx: tx.search.list_outdated_vectors("m-", current="m-2", limit=10))
    assert outdated == [(item.id, "m-1", item.part)]
    db.write_now(lambda tx: tx.search.delete_vectors(outdated))
    counts = {
        model: len(db.read_now(lambda tx, model: tx.search.load_vectors(model, after=(0, -1), limit=9), model))
        for model in ("m-1", "m-2", "other")
    }
    assert counts == {"m-1": 0, "m-2": 1, "other": 1}


# --- moving ----------------------------------------------------------------------------------------------------------


def an_export_restores_the_memory(open_database: OpenDatabase) -> None:
    """Importing the records of one database into an empty one gives the same items, and once more changes nothing."""
    source, target = open_database(), open_database()
    work = source.write_now(_add_work, SHOP)
    source.write_now(_add_observation, work, DRAFT)
    summary = Summary(request="Fix the cart", completed="Rounded once.")
    source.write_now(lambda tx: tx.memory.upsert_summary(work.turn, summary, by=LOCAL, now=NOW))

    records = source.read_now(_export)
    assert len(records) == 5

    def import_all(tx: Transaction) -> None:
        for record in records:
            tx.memory.import_record(record, now=NOW)

    for _ in range(2):
        target.write_now(import_all)
        assert target.read_now(_export) == records


BEHAVIOURS: tuple[Behaviour, ...] = (
    a_project_is_found_by_each_of_its_identities,
    merging_projects_moves_everything,
    a_session_is_opened_once,
    a_session_keeps_the_names_of_its_branches,
    a_finished_session_has_an_end,
    sessions_are_paged_newest_first,
    an_observation_is_read_as_it_was_written,
    the_same_evidence_updates_an_observation,
    observations_of_a_turn_without_evidence_are_removed,
    a_summary_is_read_as_it_was_written,
    a_prompt_grows,
    items_have_the_fields_of_their_type,
    what_is_said_of_an_observation_has_its_type,
    what_is_missing_is_not_found,
    a_failed_transaction_leaves_nothing,
    a_savepoint_undoes_its_own_writes_only,
    an_edit_belongs_to_the_person,
    what_is_wrong_is_not_injected,
    external_text_waits_for_approval,
    pinned_observations_are_listed_apart,
    merging_observations_keeps_their_facts,
    a_deleted_observation_is_gone_and_comes_back,
    a_deleted_observation_is_not_written_again,
    items_are_paged_newest_first,
    the_feed_is_read_by_cursor,
    the_timeline_shows_both_sides_of_a_point,
    anchors_are_read_as_they_were_written,
    a_look_decides_freshness,
    a_superseded_observation_says_by_what,
    a_change_of_validity_is_listed_for_review,
    undone_work_supersedes_nothing,
    words_find_documents,
    a_search_keeps_to_its_filter,
    signals_find_documents_exactly,
    a_document_is_replaced_and_removed,
    what_was_written_waits_to_be_indexed,
    vectors_are_read_in_pages,
    vectors_of_other_versions_are_found,
    an_export_restores_the_memory,
)


# --- spaces ----------------------------------------------------------------------------------------------------------


def a_space_is_found_by_its_name_and_left_without_trace(open_database: OpenDatabase) -> None:
    """Rows are noted only while there is a space. Leaving it keeps the memory."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    db.write_now(lambda tx: tx.spaces.create_space(MINE))
    assert db.read_now(lambda tx: tx.spaces.get_space("mine")) == db.read_now(lambda tx: tx.spaces.get_space(MINE.id))
    assert db.read_now(lambda tx: tx.spaces.list_spaces()) == [MINE]
    noted = db.read_now(lambda tx: tx.spaces.read_changes(MINE.id, limit=100))
    assert ("observation", row_id) in {(change.kind, change.row_id) for change in noted}
    db.write_now(lambda tx: tx.spaces.leave_space(MINE.id))
    assert db.read_now(lambda tx: tx.spaces.list_spaces()) == []
    try:
        db.read_now(lambda tx: tx.spaces.get_space("mine"))
    except NotFound:
        return
    raise AssertionError("a space that was left is found")


def a_log_has_no_gaps_and_no_second_version(open_database: OpenDatabase) -> None:
    """The same entries again are ignored; a gap and another entry under a known index are refused."""
    db = open_database()
    db.write_now(lambda tx: tx.spaces.create_space(MINE))

    def append(after: int, *bodies: bytes) -> int:
        return db.write_now(lambda tx: tx.spaces.append_foreign(MINE.id, "b" * 16, after=after, bodies=bodies))

    assert append(0, b"1", b"2") == append(1, b"2") == 2
    assert append(1, b"2", b"3") == 3
    for refused in ((4, b"5"), (0, b"1", b"other")):
        try:
            append(*refused)
        except LogGap as error:
            assert error.head == 3
        except LogDiffers as error:
            assert error.idx == 2
        else:
            raise AssertionError(f"{refused} was appended")
    log = db.read_now(lambda tx: tx.spaces.read_log(MINE.id, "b" * 16, after=1, limit=10))
    assert log == [(2, b"2"), (3, b"3")]


def an_older_database_continues_as_another_device(open_database: OpenDatabase) -> None:
    """Its unpublished entries move to a log of their own; those that others have stay under the old id."""
    db = open_database()
    db.write_now(lambda tx: tx.spaces.create_space(MINE))
    db.write_now(lambda tx: tx.spaces.append_own(MINE.id, [b"1", b"mine"]))

    def confirm(*bodies: bytes) -> str:
        return db.write_now(
            lambda tx: tx.spaces.confirm_published(MINE.id, after=0, bodies=bodies, new_device="c" * 16)
        )

    assert confirm(b"1") == MINE.device
    assert db.read_now(lambda tx: tx.spaces.get_space("mine")).published == 1
    assert confirm(b"1", b"other", b"more") == "c" * 16
    assert db.read_now(lambda tx: tx.spaces.heads(MINE.id)) == {MINE.device: 3, "c" * 16: 1}
    assert db.read_now(lambda tx: tx.spaces.read_log(MINE.id, "c" * 16, after=0, limit=9)) == [(1, b"mine")]


def a_row_that_changes_empties_its_entries(open_database: OpenDatabase) -> None:
    """What the memory no longer holds is in no log either, before anything is collected."""
    db = open_database()
    work = db.write_now(_add_work, SHOP)
    row_id = db.write_now(_add_observation, work, DRAFT)
    db.write_now(lambda tx: tx.spaces.create_space(MINE))
    entry = NewEntry(body=b"{}", item_hash="1" * 32, version=1, at=NOW, content="text")
    db.write_now(lambda tx: tx.spaces.append_entry(MINE.id, entry, kind="observation", row_id=row_id))
    assert db.read_now(lambda tx: tx.spaces.list_emptied(MINE.id, MINE.device)) == []
    db.write_now(_forget, row_id)
    assert db.read_now(lambda tx: tx.spaces.list_emptied(MINE.id, MINE.device)) == [1]
    item = db.read_now(lambda tx: tx.spaces.find_item(MINE.id, "observation", row_id))
    assert item is not None
    assert item.dirty


SPACE_BEHAVIOURS: tuple[Behaviour, ...] = (
    a_space_is_found_by_its_name_and_left_without_trace,
    a_log_has_no_gaps_and_no_second_version,
    an_older_database_continues_as_another_device,
    a_row_that_changes_empties_its_entries,
)


# --- what the behaviours are shown with ------------------------------------------------------------------------------


def _add_work(tx: Transaction, project: ResolvedProject, name: str = "s1", at: int = NOW) -> Work:
    """Add a project, a session in it, and a turn with a prompt."""
    project_id = tx.memory.register_project(project, project.root, now=at)
    session = tx.memory.open_session("claude-code", name, project_id=project_id, at=at, cwd=project.root)
    opened = tx.journal.open_turn(session.id, at=at, prompt_id=f"{name}.p1")
    text = "Fix the cart"
    tx.memory.set_first_prompt(session.id, text, title=text)
    tx.memory.touch_session(session.id, at=at + 500, transcript_path="", host_pid=None)
    tx.memory.add_prompt(session_id=session.id, turn_id=opened.id, number=opened.number, text=text, at=at)
    turn = Turn(
        id=opened.id,
        session_id=session.id,
        project_id=project_id,
        number=opened.number,
        prompt=text,
        root=project.root,
        started_at=at,
        ended_at=at + 500,
        bodies=(),
        seqs=(),
    )
    return Work(project_id, session, turn)


def _add_observation(tx: Transaction, work: Work, draft: Draft) -> int:
    return tx.memory.upsert_observation(work.turn, draft, by=LOCAL, now=NOW)


def _put_anchors(tx: Transaction, row_id: int, anchors: Sequence[Anchor]) -> list[StoredAnchor]:
    tx.memory.replace_anchors(row_id, anchors, now=NOW)
    return sorted(tx.memory.list_anchors([row_id], ROOT), key=lambda item: item.path)


def _check_type(value: object, type_: object) -> None:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise AssertionError(f"{value}: {error}") from error


def _forget(tx: Transaction, row_id: int) -> None:
    """Delete an observation the way a person does."""
    deletion_id = tx.deletions.begin_deletion(erased=False, now=NOW)
    tx.deletions.forget_observation(row_id, (), deletion_id=deletion_id, now=NOW, by="user")


def _export(tx: Transaction) -> list[ContentRecord]:
    scope = tx.memory.build_export_scope()
    pages = [tx.memory.read_export_page(kind, scope, after=0, limit=100) for kind in RECORD_TYPES]
    return [record for page in pages for _, record in page]


def _index(tx: Transaction, work: Work, row_id: int, body: str, signals: tuple[tuple[str, str, int], ...] = ()) -> int:
    document = Document(
        kind="observation",
        row_id=row_id,
        project_id=work.project_id,
        session_id=work.session.id,
        turn_id=work.turn.id,
        created_at=work.turn.ended_at,
        passages=(Passage("", body, ""),),
        around="",
        signals=signals,
    )
    return tx.search.upsert_document(document)
