"""The records of the memory and its index: what their functions take and return, whatever the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import msgspec

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Sighting
from claude_mem.domain.errors import InvalidRequest

DOCUMENT_KINDS = ("observation", "summary", "prompt", "turn")
# Most passages per document. A passage's id is its document's id times this, plus its part.
PASSAGES_PER_DOCUMENT = 1_000
# The letter that people and agents write before the id of an item of each kind.
ID_PREFIXES = {"observation": "", "summary": "S", "prompt": "P"}
STATE_FIELDS = ("validity", "freshness", "work_outcome", "work_commit", "moved_to")  # of a listed observation
PERSON = "user"
RowKey = int | str
StopCheck = Callable[[], bool]  # whether a long check is to end early
BATCH_SIZE = 500  # of a deletion
UNDO_WINDOW_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """Which documents to search. An empty field means no restriction."""

    project_ids: tuple[int, ...] | None = None
    kinds: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    validities: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    host: str = ""
    session: str = ""  # the agent's own session id
    exclude_session_id: int = 0  # row id of a session to exclude: a session knows what it did itself
    injectable_only: bool = False  # only what may be injected without being asked for

    @property
    def only_projects(self) -> bool:
        """Whether projects are the only restriction, so that the matrix can apply the filter itself.

        Excluding a session does not matter here: the caller removes its documents from the result.
        """
        return self == SearchFilter(
            project_ids=self.project_ids,
            exclude_session_id=self.exclude_session_id,
            injectable_only=self.injectable_only,
        )


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document that is indexed and ranked on its own."""

    title: str
    body: str
    hints: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A searchable item, before it has a row."""

    kind: str
    row_id: int
    project_id: int
    session_id: int | None
    turn_id: int | None
    created_at: int
    passages: tuple[Passage, ...]
    around: str
    signals: tuple[tuple[str, str, int], ...] = ()  # kind, value, count
    trust: str = ""  # set for a turn that must not be injected without approval


@dataclass(slots=True)
class PassageMatch:
    """A passage that contains some of the words.

    Its group is its turn (or itself if it has none), its thread is its session.
    """

    score: float
    group: int
    thread: int
    terms: int  # bit mask: bit n is set if the passage contains word n


@dataclass(slots=True)
class WordScores:
    """The score of each passage in scope that contains any of the words."""

    matches: dict[int, PassageMatch] = field(default_factory=dict)
    terms: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)  # BM25 weight of each word

    def matched_terms(self, bits: int) -> list[str]:
        """Return the words whose bits are set."""
        return [term for number, term in enumerate(self.terms) if bits >> number & 1]

    def weight(self, bits: int) -> float:
        """Return the share of the query's total weight that these words carry."""
        matched_weight = sum(weight for number, weight in enumerate(self.weights) if bits >> number & 1)
        return matched_weight / (sum(self.weights) or 1.0)

    def by_group(self) -> dict[int, float]:
        """Return the score of the best passage of each group."""
        best: dict[int, float] = {}
        for match in self.matches.values():
            if match.score > best.get(match.group, 0.0):
                best[match.group] = match.score
        return best


@dataclass(frozen=True, slots=True)
class SignalMatch:
    """A document that has a signal. `group` is its turn, `thread` its session, negative without one."""

    id: int
    group: int
    thread: int
    kind: str
    value: str


class FileTouch(NamedTuple):
    """How often a turn edited or read a file."""

    turn_id: int
    session_id: int
    kind: str
    value: str
    times: int


@dataclass(frozen=True, slots=True)
class PendingPassage:
    """A passage that has no vector."""

    id: int
    part: int
    kind: str
    project_id: int
    session_id: int | None
    turn_id: int | None
    created_at: int
    title: str
    body: str


class StoredVector(NamedTuple):
    """The vector of a passage. Without a turn or session, `turn` and `session` are negative."""

    document: int
    part: int
    project: int
    turn: int
    session: int
    created_at: int
    length: int
    vector: bytes


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """A point on the timeline: an item, or only a time."""

    at: int
    project_id: int | None = None
    kind: str = ""
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFilter:
    """Which items to list. An empty field means no restriction; only observations have a type, a concept or a
    validity."""

    project_id: int = 0
    kind: str = ""
    type: str = ""
    concept: str = ""
    validities: tuple[str, ...] = ()
    host: str = ""
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """A cursor in the feed. The next page has the items older than this one."""

    at: int
    kind: str
    id: int

    @classmethod
    def parse(cls, text: str) -> FeedCursor:
        """Parse the text form of a cursor; raise `InvalidRequest` if it is not one."""
        at, _, rest = text.partition(".")
        kind, _, row_id = rest.partition(".")
        if not (at.isascii() and at.isdigit() and len(at) < 16 and row_id.isascii() and row_id.isdigit()):
            raise InvalidRequest("`before` is not a valid cursor", hint="pass the `next` value of the previous page")
        return cls(int(at), kind, int(row_id[:15]))

    def __str__(self) -> str:
        return f"{self.at}.{self.kind}.{self.id}"


NOT_LOOKED_FOR = -1  # the last look was at an anchor without phrases


@dataclass(frozen=True, slots=True)
class StoredAnchor:
    """An anchor with what the last look at a work tree found. `stamp` is None if it was not looked at.

    `present`, `committed` and `landed` are bit sets of the lines that were there, that some commit has had, and that a
    commit of the default branch has had; `phrases_present` is one of the phrases that were there, or `NOT_LOOKED_FOR`.
    """

    id: int
    observation_id: int
    path: str
    kind: str
    lines: tuple[bytes, ...]
    stamp: str | None = None
    present: int = 0
    moved_to: str = ""
    committed: int = 0
    landed: int = 0
    phrases: tuple[int, ...] = ()
    phrases_present: int = NOT_LOOKED_FOR

    @property
    def all_lines(self) -> int:
        """Return the bit set of all lines."""
        return (1 << len(self.lines)) - 1

    def sight(self, lines: int) -> Sighting:
        """Return what the last look found of these lines, a bit set."""
        missing = lines & ~self.present if self.phrases_present != NOT_LOOKED_FOR else 0
        phrases = anchors.select_phrases(self.phrases, len(self.lines), missing)
        return Sighting(
            lines.bit_count(),
            (lines & self.present).bit_count(),
            bool(self.stamp),
            self.moved_to,
            phrases.bit_count(),
            (phrases & self.phrases_present).bit_count(),
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a work tree found of one anchor. `present` is a bit set of its lines, `phrases` one of its phrases
    if it had any. `stamp` is None if its file has changed and was not read."""

    anchor_id: int
    stamp: str | None
    present: int
    moved_to: str = ""
    phrases: int = NOT_LOOKED_FOR


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """What became of the work that an observation describes. `own_commit` and `own_subject`: the commit that the turn
    itself reported; "" if it reported none."""

    observation_id: int
    outcome: str
    head: str
    created_at: int
    commit_id: str = ""
    branch: str = ""
    own_commit: str = ""
    own_subject: str = ""


@dataclass(frozen=True, slots=True)
class Replaced:
    """An observation whose code a later turn replaced, its text, and the phrases of its lines."""

    id: int
    text: str
    phrases: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MemorySession:
    """A session that a model provider keeps about one agent session."""

    id: str
    session_id: int
    provider: str
    runtime: str
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportScope:
    """What to export, and up to which row of each table. Sessions and projects are exported if an item needs them."""

    upto: Mapping[str, int]
    project_ids: tuple[int, ...] | None = None
    since: int | None = None
    until: int | None = None
    item_ids: Mapping[str, tuple[int, ...]] | None = None  # row ids by kind; None: all
    whole: bool = True  # no condition is set


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionScope:
    """What a deletion covers.

    Sessions and projects are identified by names that are the same in every copy of the database; their row ids may
    differ between copies.
    """

    ids: tuple[int, ...] = ()
    sessions: tuple[tuple[str, str], ...] = ()
    projects: tuple[str, ...] = ()
    after: int | None = None
    before: int | None = None
    source: str = ""
    matching: str = ""

    @property
    def by_time(self) -> bool:
        """Whether the scope covers everything in some sessions within some period, whatever the content."""
        return not self.ids and not self.matching and not self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedRows:
    """Ids of the rows that a deletion affects.

    `derived_*`: rows composed from deleted rows. They are deleted too, and composed again for the turns that keep some
    events (`turns_to_redigest`). `indexed_turns`: turns whose search index contains the text. `whole_sessions`:
    sessions of which nothing remains. `restorable`: rows of earlier deletions that can still be restored, as (kind,
    row id, deletion id).
    """

    events: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)
    observations: list[int] = field(default_factory=list)
    derived_observations: list[int] = field(default_factory=list)
    derived_summaries: list[int] = field(default_factory=list)
    injections: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    indexed_turns: list[int] = field(default_factory=list)
    turns_to_redigest: list[int] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    whole_sessions: list[int] = field(default_factory=list)
    restorable: list[tuple[str, int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, item.name) for item in fields(self))

    def size(self) -> int:
        """Return the number of affected rows."""
        return sum(len(getattr(self, item.name)) for item in fields(self))

    def batches(self) -> Iterator[AffectedRows]:
        """Split into batches, sessions last. Each is small enough for a transaction that delays no other writer."""
        for name in ("derived_observations", "derived_summaries", "observations", "summaries", "prompts", "events",
                     "injections", "turns", "indexed_turns", "restorable", "sessions", "whole_sessions"):  # fmt: skip
            row_ids = getattr(self, name)
            for start in range(0, len(row_ids), BATCH_SIZE):
                yield replace(AffectedRows(), **{name: row_ids[start : start + BATCH_SIZE]})


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the file.

    `n` is the id of the deletion. A line with `back` revokes earlier lines: all of deletion `n`, or only those with
    this `mark`.
    """

    n: int
    mark: str = ""
    since: int = 0
    until: int = 0
    erased: bool = False
    at: int = 0
    back: bool = False


@dataclass(frozen=True, slots=True)
class TextCleaner:
    """Functions that remove secrets and private parts.

    They clean a text, the body of an event (JSON), and the texts of a list.
    """

    text: Callable[[str], str]
    body: Callable[[str], str]
    texts: Callable[[list[str]], list[str]] | None = None  # None: apply `text` to each


@dataclass(frozen=True, slots=True)
class RedactionStep:
    """The key to continue after (None at the end), the number of rows read, and the number of rows changed."""

    after: RowKey | None
    rows_read: int
    rows_changed: int


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with its key column and the columns that contain text.

    `plain`: columns with a text. `lists`: with a JSON list of texts. `columns`: with a JSON object of the columns of
    another table's row. `label`: the name in the report, if it differs.
    """

    table: str
    key: str
    plain: Sequence[str] = ()
    lists: Sequence[str] = ()
    columns: Sequence[str] = ()
    label: str = ""


class CheckInterrupted(Exception):
    """A check of the database was ended early and has no result."""


def apply_looks(items: Sequence[StoredAnchor], looks: Iterable[Look]) -> list[StoredAnchor]:
    """Return the anchors with what a new look found."""
    by_id = {look.anchor_id: look for look in looks}
    return [
        replace(item, stamp=look.stamp, present=look.present, moved_to=look.moved_to, phrases_present=look.phrases)
        if (look := by_id.get(item.id))
        else item
        for item in items
    ]


def is_committed(items: Sequence[StoredAnchor]) -> bool:
    """Return whether commits have had enough of the lines of an observation's anchors."""
    return anchors.is_committed((len(item.lines), item.committed.bit_count()) for item in items)


def is_in_work_tree(items: Sequence[StoredAnchor]) -> bool:
    """Return whether the last look found at least half of the lines of an observation's anchors."""
    return sum(item.present.bit_count() for item in items) * 2 >= sum(len(item.lines) for item in items)
