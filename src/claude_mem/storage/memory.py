"""The interfaces of the memory and of its index: what a store other than SQLite has to implement.

They speak in records; no connection, row or statement is seen. `storage/conformance.py` has the behaviours that every
implementation shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from claude_mem.domain.anchors import Anchor, Outcome
from claude_mem.domain.export_format import ContentRecord, ProjectRecord
from claude_mem.domain.memory_items import (
    ApprovalCount,
    Copy,
    DocumentSource,
    HistoryEntry,
    IndexEntries,
    MemoryItem,
    MemoryState,
    ObservationEdit,
    ObservationOrigin,
    SavedNeighbour,
    ValidityChange,
)
from claude_mem.domain.project_reports import (
    ActiveDay,
    FileEntry,
    MergePreview,
    Project,
    ProjectHere,
    ProjectSummary,
    ProjectTotals,
    RelatedProject,
    SessionLane,
)
from claude_mem.domain.records import Author, Draft, ObservationType, Session, Status, Summary, Turn
from claude_mem.domain.reports import IndexCounts
from claude_mem.domain.session_reports import SessionDetails
from claude_mem.storage.records import (
    PERSON,
    Document,
    ExportScope,
    FeedCursor,
    FeedFilter,
    FileTouch,
    Look,
    PendingPassage,
    Replaced,
    SearchFilter,
    SignalMatch,
    StoredAnchor,
    StoredOutcome,
    StoredVector,
    TimelinePoint,
    WordScores,
)
from claude_mem.system.git_files import Repository
from claude_mem.system.project_folders import ResolvedProject


class MemoryStore(Protocol):
    """What a person moves to another machine, and what a team shares."""

    # --- projects -----------------------------------------------------------------------------------------------------

    def describe_project_here(self, project: ResolvedProject) -> ProjectHere:
        """Return the id of a folder's project, if it is known yet, and the projects it may have to be merged with."""

    def find_project(self, project_id: int) -> Project | None:
        """Return the project, or None."""

    def find_project_id(self, project: ResolvedProject) -> int | None:
        """Return the id of the project if it is known by an identity or by its name."""

    def get_project(self, project_id: int) -> Project:
        """Return the project; raise `NotFound` if there is none."""

    def list_all_folders(self) -> list[str]:
        """Return the known folders of all projects."""

    def list_project_aliases(self, project_id: int) -> list[str]:
        """Return every identity by which the project is recognised."""

    def list_project_folders(self, project_id: int) -> list[str]:
        """Return the known folders of the project."""

    def list_project_ids_by_name(self, name: str) -> list[int]:
        """Return the ids of all projects with this name, oldest first."""

    def list_projects_with_counts(self) -> list[ProjectSummary]:
        """List the projects with their counts, the most recently active first."""

    def list_projects_with_folders(self) -> list[int]:
        """Return the ids of projects whose brief is cached on disk."""

    def list_related_projects(self, project_id: int, repository: Repository | None = None) -> list[RelatedProject]:
        """Return other projects with the `same` remote or first commit, each with the command that merges the two."""

    def merge_project_into(self, source: int, target: int) -> MergePreview:
        """Move everything of the source project to the target, including its identities, and delete the source."""

    def preview_project_merge(self, source: int, target: int) -> MergePreview:
        """Preview a merge: both projects, and how many rows of each kind would move."""

    def register_project(self, project: ResolvedProject, folder: str, *, now: int) -> int:
        """Return the id of the project, creating it if none of its identities is known. Every identity is stored."""

    def rename_project(self, project_id: int, name: str) -> Project:
        """Change the name of a project and return the project."""

    # --- sessions -----------------------------------------------------------------------------------------------------

    def advance_last_event(self, session_id: int, at: int, *, opened_by_us: bool) -> None:
        """Advance the time of the last event to what the transcript shows.

        A session that may still be running is left unchanged, because its transcript may lag behind.
        """

    def find_session(self, host: str, content_session_id: str) -> Session | None:
        """Return the session with the agent's own id, or None."""

    def get_last_activity(self, project_id: int) -> int:
        """Return the time of the last event in any session of a project; 0 if it has none."""

    def get_session(self, session_id: int) -> Session:
        """Return the session by row id; raise `NotFound` if there is none."""

    def get_session_details(self, session_id: int) -> SessionDetails:
        """Return a session with its counts; raise `NotFound` if there is none."""

    def list_sessions_with_counts(
        self, *, limit: int, offset: int, project: str = "", project_id: int = 0, host: str = ""
    ) -> list[SessionDetails]:
        """List sessions, the most recently active first.

        The page is selected first; counts are computed only for its rows.
        """

    def open_session(self, host: str, content_session_id: str, *, project_id: int, at: int, cwd: str = "") -> Session:
        """Return the session, creating it at its first event."""

    def resolve_session_id(self, name: str) -> int:
        """Return the row id of a session given its row id or the id its agent gave it."""

    def set_first_prompt(self, session_id: int, text: str, *, title: str) -> None:
        """Store the first prompt and the title made from it. Later prompts change neither."""

    def set_session_status(self, session_id: int, status: Status, *, at: int | None = None) -> None:
        """Set the session's status. `ended_at` is never before `started_at`, whatever the clock says."""

    def set_session_subtitle(self, session_id: int, subtitle: str, *, at: int) -> None:
        """Set the subtitle to what the newest turn did, whatever the order in which turns are digested."""

    def set_session_title(self, session_id: int, title: str) -> None:
        """Replace the session's title."""

    def touch_session(self, session_id: int, *, at: int, transcript_path: str, host_pid: int | None) -> None:
        """Record activity.

        An interrupted session becomes active again; a completed or failed one stays so until the next prompt.
        """

    # --- prompts, observations and summaries --------------------------------------------------------------------------

    def add_prompt(self, *, session_id: int, turn_id: int, number: int, text: str, at: int) -> None:
        """Add the prompt of a turn, unless the turn has one."""

    def append_to_prompt(self, turn_id: int, text: str) -> bool:
        """Append text that the user sent later in the same turn; return False if the prompt already contains it."""

    def count_agent_saves(self, *, since: int) -> int:
        """Count the observations that agents saved since then.

        All projects count: otherwise an agent could evade the limit by naming another project each time.
        """

    def count_observations(self) -> int:
        """Return how many observations there are in all projects."""

    def count_observations_since(self, project_id: int, at: int) -> tuple[int, int]:
        """Return how many observations a project has, and how many of them are about work after `at`."""

    def delete_local_draft(self, turn_id: int, key: str) -> bool:
        """Remove a draft written without a model, unless a person corrected or pinned it.

        Return whether a row was removed.
        """

    def delete_observations_except(self, turn_id: int, keys: tuple[str, ...]) -> None:
        """Remove the observations of the turn that the current digest no longer produces.

        Observations that a person edited, judged or pinned stay.
        """

    def find_last_summary(self, project_ids: list[int], *, exclude_session_id: int = 0) -> MemoryItem | None:
        """Return the newest injectable summary of these projects."""

    def get_memory(self, kind: str, row_id: int) -> MemoryItem:
        """Return one item in full; an observation also has the id of its turn's summary.

        Raise `NotFound` if there is none.
        """

    def get_newest_observation_id(self) -> int:
        """Return the highest id of an observation; 0 if there is none."""

    def has_summary_by_other_provider(self, turn_id: int, provider: str) -> bool:
        """Return whether the turn has a summary that another provider wrote."""

    def has_turn_statement(self, turn_id: int) -> bool:
        """Return whether the turn stated a rule or a decision."""

    def hold_agent_saves(self, *, since: int) -> set[int]:
        """Move the observations that agents saved since then to the approval queue, because they came too fast.

        Return the ids of their projects.
        """

    def is_rule_stated(self, turn: Turn, draft: Draft) -> bool:
        """Return whether the same words are already a current rule or were judged wrong.

        Rules of other turns and rules saved by hand count.
        """

    def is_turn_refined(self, turn_id: int) -> bool:
        """Return whether a model has worded this turn, and the result is trusted, approved or marked external or suspect.

        Imported and team text does not count: our own draft from the events is as good.
        """

    def link_statements(self, project_id: int) -> None:
        """Store for each rule and decision of a project which later one superseded it, replacing the previous links."""

    def list_current_rules(self, project_ids: list[int]) -> list[MemoryItem]:
        """Return the current injectable rules, the latest first: id, title, trust and time."""

    def list_decisions_and_gotchas(
        self, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
    ) -> list[MemoryItem]:
        """Return the newest injectable decisions and gotchas, without pinned ones."""

    def list_earlier_titles(self, turn: Turn, *, limit: int) -> list[str]:
        """Return titles of earlier injectable observations.

        Those of the turn's own session come before the others, each newest first.
        """

    def list_injectable_rules(
        self, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
    ) -> list[MemoryItem]:
        """Return the current injectable rules: pinned ones first, then the newest."""

    def list_last_turns(self, project_ids: list[int], *, limit: int, exclude_session_id: int = 0) -> list[MemoryItem]:
        """Return request, result and open steps from the newest injectable summaries of these projects, newest first."""

    def list_memories(
        self, *, kind: str, limit: int, offset: int, project: str = "", type_: str = "", validities: Sequence[str] = ()
    ) -> list[MemoryItem]:
        """List items of one kind, newest first. Only observations have a type and a validity."""

    def list_observations_by_file(
        self, project_id: int, path: str, *, exclude_content_session_id: str = "", limit: int
    ) -> list[MemoryItem]:
        """Return injectable observations about a file.

        Those that changed the file come before those that only read it, each newest first.
        """

    def list_pinned_observations(
        self, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
    ) -> list[MemoryItem]:
        """Return the newest injectable pinned observations, without rules."""

    def list_recent_observations(
        self, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
    ) -> list[MemoryItem]:
        """Return the newest injectable observations of these projects, without pinned ones and rules."""

    def list_session_memories(self, kind: str, session_id: int) -> list[MemoryItem]:
        """List a session's items of one kind in full, oldest first."""

    def list_solutions(self, turn_ids: list[int]) -> list[MemoryItem]:
        """Return injectable observations that say how an error in one of these turns was solved, newest first."""

    def list_user_owned_keys(self, turn_id: int) -> frozenset[str]:
        """Return the keys of the turn's observations that a person corrected, judged or deleted.

        No digest may replace them.
        """

    def load_observations(self, ids: list[int]) -> list[MemoryItem]:
        """Return observations in the order of `ids`; ids that do not exist are skipped."""

    def mark_burst(self, project_id: int, why: str, *, since: int, min_count: int) -> None:
        """Mark external observations of one source as a burst if at least `min_count` were created since then.

        The person who approves them sees the mark.
        """

    def save_observation(
        self,
        *,
        project_id: int,
        title: str,
        text: str,
        key: str,
        now: int,
        trust: str = "user",
        by: str = "user",
        why: str = "",
        type_: str = ObservationType.DISCOVERY,
    ) -> int:
        """Store text that a person (`by="user"`) or an agent (`by="agent"`) asked to be remembered, and return its id."""

    def upsert_observation(self, turn: Turn, draft: Draft, *, by: Author, now: int) -> int:
        """Add an observation, or update the one made from the same evidence. Return its id, or 0 if nothing was written.

        A deleted observation is not added again, and one that a person edited or judged is left unchanged.
        """

    def upsert_summary(self, turn: Turn, summary: Summary, *, by: Author, now: int) -> int:
        """Add or update the summary of a turn. Return its id, or 0 if it was deleted before or a person has judged it."""

    # --- corrections and history --------------------------------------------------------------------------------------

    def count_approval_queue(self) -> list[ApprovalCount]:
        """Count the approval queue by trust and project."""

    def edit_observation(
        self, row_id: int, fields: ObservationEdit, *, now: int, by: str = PERSON, trust: str = PERSON, why: str = ""
    ) -> MemoryItem:
        """Edit columns of an observation and return the result.

        After a person's edit the observation is the user's own, and no digest changes it. After an agent's edit it gets the
        lower of the agent's trust and its own, and an earlier approval is dropped, because the new text was not approved.
        """

    def erase_expired_deletions(self, *, now: int, limit: int = 500) -> int:
        """Erase deleted content that has passed its 30 days. Return how many rows changed."""

    def find_copies(self, row: MemoryItem, *, turn_id: int | None, exclude_ids: list[int]) -> list[Copy]:
        """Return the rows of the observation's turn that would stay after its deletion, most similar first.

        Only rows that share at least half of the observation's words are returned, with the number of shared words.
        """

    def find_deleted_content(self, row_id: int) -> MemoryItem | None:
        """Return the content of a deleted observation, while the deletion can be undone."""

    def find_deleted_observation(self, row_id: int) -> MemoryItem | None:
        """Return what is still known about a deleted observation, or None if it is not deleted."""

    def find_observation_turn_id(self, row_id: int) -> int | None:
        """Return the turn of an observation, or None if it was saved by hand."""

    def get_observation_origin(self, row_id: int) -> ObservationOrigin:
        """Return the observation's project, session, turn and prompt, and the events its facts come from."""

    def get_observation_project_id(self, row_id: int) -> int:
        """Return the project of an observation."""

    def has_expired_deletions(self, *, now: int) -> bool:
        """Return whether anything has passed its 30 days of being restorable."""

    def list_approval_queue(self, *, limit: int, offset: int) -> list[MemoryItem]:
        """List the approval queue, newest first. Each kind is read along its own index."""

    def list_approval_queue_ids(self, *, trust: str, project_id: int, limit: int) -> list[tuple[str, int]]:
        """Return kind and id of the queued items with this trust in one project."""

    def list_ids_to_erase(self, row_id: int) -> list[int]:
        """Return the ids that erasing this observation covers.

        These are its own and those of the observations merged into it, which have no other copy.
        """

    def list_merged_into(self, row_id: int) -> list[int]:
        """Return the restorable observations that were merged into this one, directly or through others."""

    def list_observation_history(self, row_id: int) -> list[HistoryEntry]:
        """Return an observation's history, newest first. `undo` is true for the entry that undoing would revert."""

    def list_observations_sharing_files(self, row_id: int, *, limit: int) -> list[MemoryItem]:
        """Return observations of the project about the same files, those that share the most files first."""

    def merge_observations(self, row_id: int, other_ids: list[int], *, now: int, by: str = PERSON) -> MemoryItem:
        """Merge other observations into one and delete them. The result is the user's own, like an edited observation."""

    def set_pinned(self, row_id: int, *, pinned: bool, now: int, by: str = PERSON) -> MemoryItem:
        """Pin or unpin. Pinned observations come first in every brief."""

    def set_verdict(self, kind: str, row_id: int, verdict: str, *, now: int, by: str = PERSON) -> MemoryItem:
        """Set a person's verdict.

        `wrong`: neither injected nor found. `approved`: injected although it is external. `right`: takes `wrong` back and
        restores the verdict before it.
        """

    # --- timeline and feed --------------------------------------------------------------------------------------------

    def get_project_totals(self, project_id: int) -> ProjectTotals:
        """Return how much is stored, for which period, and from which agents."""

    def get_timeline_point(self, kind: str, item_id: int) -> TimelinePoint:
        """Return the point of an item; raise `NotFound` if there is none."""

    def list_active_days(self, project_id: int, year: int) -> list[ActiveDay]:
        """Return what was done on each day of a year, in local time; days without activity are left out."""

    def list_known_files(self, project_id: int, under: str) -> list[FileEntry]:
        """Return one level of the tree of known files: folders first, each with the totals of everything below it."""

    def list_sessions_in_range(
        self, project_id: int, *, since: int, until: int, limit: int, offset: int
    ) -> list[SessionLane]:
        """List the sessions of a time range, the most recently active first."""

    def list_timeline(
        self, point: TimelinePoint, *, before: int, after: int, project_ids: list[int] | None = None
    ) -> list[MemoryItem]:
        """Return up to `before` items before the point and `after` items after it, in chronological order.

        If the point is an item, it is included.
        """

    def load_feed_page(
        self, feed_filter: FeedFilter, *, before: FeedCursor | None, limit: int
    ) -> tuple[list[MemoryItem], FeedCursor | None]:
        """Return one page and the cursor of the next page. Each kind is one query along its index."""

    def parse_timeline_point(self, text: str) -> TimelinePoint:
        """Parse a point: `12` or `#12` is an observation, `S12` a summary, `P12` a prompt; anything else must be a date."""

    # --- anchors and outcomes -----------------------------------------------------------------------------------------

    def add_states(self, rows: Sequence[MemoryItem]) -> list[MemoryItem]:
        """Return rows, those of observations with their validity, freshness in the project's own work tree, the outcome of
        the work and its commit, and where the code has moved.

        Each is "" if it is unknown.
        """

    def find_line_authors(self, project_id: int, path: str) -> list[tuple[int, frozenset[bytes]]]:
        """Return the observations of a project that are anchored at a file, under its present or a former name, each with
        its lines: those that edited the file first, each newest first."""

    def find_replaced_observations(
        self, project_id: int, successor: int, dropped: Mapping[str, Collection[bytes]]
    ) -> list[Replaced]:
        """Return the earlier observations of a project most of whose lines are among the dropped ones, given by path.

        Observations that a person wrote, judged or pinned are left out, and those of which only a line or two are known.
        """

    def find_undone_work(self, project_id: int, path: str, added: frozenset[bytes]) -> list[int]:
        """Return the injectable observations whose work on a file was dropped or reverted, and at least half of whose lines
        there are among the added ones; the newest first."""

    def list_anchored_ids(self, project_id: int, *, limit: int) -> list[int]:
        """Return the newest observations of a project that have anchors in files and are not superseded."""

    def list_anchors(self, observation_ids: Sequence[int], root: str) -> list[StoredAnchor]:
        """Return the anchors of these observations with what the last look at this work tree found."""

    def list_outcomes(self, observation_ids: Sequence[int]) -> list[StoredOutcome]:
        """Return the outcomes of these observations."""

    def list_unanchored_observations(self, turn_id: int) -> list[MemoryItem]:
        """Return the observations of a turn that have no anchors, with the outcome of the turn."""

    def load_explained(self, observation_ids: Sequence[int]) -> list[MemoryItem]:
        """Return observations with their states and the prompts that asked for the work."""

    def load_states(
        self, observation_ids: Sequence[int], root: str, looks: Iterable[Look] = ()
    ) -> dict[int, MemoryState]:
        """Return the states of these observations in a work tree, with looks that are not stored yet.

        Observations of which nothing is known are missing from the result.
        """

    def record_committed_lines(self, items: Iterable[StoredAnchor]) -> None:
        """Store which lines of these anchors commits have had, in addition to what is stored."""

    def list_session_branches(self, session_ids: Sequence[int]) -> dict[int, list[str]]:
        """Return the branches on which these sessions worked, by session; sessions without any are left out."""

    def record_branch_of_recent_work(self, project_id: int, root: str, branch: str, *, since: int) -> None:
        """Store the branch of a work tree for the sessions that were started in it and have worked since a time."""

    def record_session_branches(self, session_id: int, branches: Iterable[str]) -> None:
        """Store that a session worked on these branches, in addition to those that are known. A name that contains a
        secret is left out."""

    def record_head(self, project_id: int, *, head: str, branch: str, since: int) -> None:
        """Store the commit and branch of the work tree with the work that was just done there."""

    def record_looks(self, root: str, looks: Iterable[Look], *, commit: str = "") -> None:
        """Store what a look at a work tree found, replacing the last one. Anchors that no longer exist are skipped."""

    def record_outcome(self, observation_id: int, outcome: Outcome, *, commit: str, now: int) -> None:
        """Store what became of an observation's work. Work that did not last has replaced nothing."""

    def replace_anchors(
        self,
        observation_id: int,
        new_anchors: Sequence[Anchor],
        *,
        blob_ids: Mapping[str, str] = MappingProxyType({}),
        outcome: Outcome = Outcome.TRIED,
        now: int,
    ) -> None:
        """Store the anchors of an observation in place of earlier ones. Anchors that did not change keep their rows."""

    def supersede_observations(self, observation_ids: Sequence[int], successor: int) -> None:
        """Link observations to the one that replaced them."""

    # --- validity -----------------------------------------------------------------------------------------------------

    def confirm_observation(self, row_id: int, *, now: int) -> MemoryItem:
        """Record that a person says that an observation holds, and return it. It is injected again, and its code counts as
        seen: only when that changes again does the confirmation end. What had superseded it does not do so any more."""

    def count_changed_observations(self, project_ids: Sequence[int] | None) -> dict[str, int]:
        """Return how many observations of these projects have each validity."""

    def find_command_observations(self, project_id: int) -> list[int]:
        """Return the observations of a project about commands. They change with later calls, which no trigger follows."""

    def has_validity_checks(self) -> bool:
        """Return whether the validity of any observation may have changed."""

    def list_changed_observations(
        self, project_ids: Sequence[int] | None, validities: Sequence[str], *, limit: int, offset: int
    ) -> list[MemoryItem]:
        """Return the observations with one of these validities, the last changed first, each with the change (`changed_at`,
        `head`) and its successor. Those that were marked wrong are left out."""

    def list_validity_changes(self, row_id: int) -> list[ValidityChange]:
        """Return what was seen of an observation, the newest first, each with the title of the one that superseded it."""

    def queue_validity_checks(self, observation_ids: Sequence[int]) -> None:
        """Have the validity of these observations examined."""

    def record_validity_changes(self, *, now: int) -> int:
        """Record which queued observations have changed, up to `RECORD_BATCH`. Return the number of those examined."""

    def withdraw_confirmation(self, row_id: int, *, now: int) -> MemoryItem:
        """Take a confirmation back and return the observation, superseded again if it was."""

    # --- export and import --------------------------------------------------------------------------------------------

    def build_export_scope(
        self,
        *,
        project_ids: tuple[int, ...] | None = None,
        since: int | None = None,
        until: int | None = None,
        item_ids: Mapping[str, tuple[int, ...]] | None = None,
    ) -> ExportScope:
        """Return the scope of an export of the rows that exist now."""

    def find_items_of_turns(self, turn_ids: list[int]) -> dict[str, list[int]]:
        """Return the ids of the prompts, observations and summaries of these turns, by kind."""

    def find_project_folders(self, records: Sequence[ProjectRecord]) -> dict[str, str]:
        """Return the root folders of those projects that are known here, by their identity in the import file."""

    def import_record(self, record: ContentRecord, *, now: int) -> str:
        """Store a record. Return `added`, `changed`, `known` or `forgotten`."""

    def read_export_page(
        self, kind: str, export: ExportScope, *, after: int, limit: int
    ) -> list[tuple[int, ContentRecord]]:
        """Return the next records of a kind, each with its row id."""


class SearchIndex(Protocol):
    """The index of the memory: words, exact signals and vectors. It can be rebuilt from the memory and the journal."""

    def count_index_entries(self, row_id: int) -> IndexEntries:
        """Count the index rows of an observation, which are removed together with it."""

    def complete_last_word(self, text: str) -> str:
        """Complete a query that is still being typed.

        The last word is replaced by up to three indexed words that start with it, or removed if there are none.
        """

    def count_documents_in_scope(self, search_filter: SearchFilter) -> int:
        """Return how many documents are in scope.

        The excluded session is counted: it hardly changes how rare a word is, and without that condition the index alone
        can count.
        """

    def count_index(self, model: str) -> IndexCounts:
        """Return how complete the index is."""

    def delete_document(self, kind: str, row_id: int) -> None:
        """Remove a row from the index."""

    def delete_vectors(self, keys: Sequence[tuple[int, str, int]]) -> None:
        """Delete these vectors."""

    def find_by_signal(
        self, search_filter: SearchFilter, *, kinds: Sequence[str], values: Iterable[str]
    ) -> list[SignalMatch]:
        """Return documents that have exactly one of these files, errors, commands, commits or branches."""

    def find_commits_by_prefix(self, prefixes: Sequence[str]) -> list[str]:
        """Return known commit ids with these prefixes."""

    def find_paths_by_suffix(self, suffixes: Sequence[str]) -> list[str]:
        """Return known files with these path suffixes: `jwt.py` matches `src/auth/jwt.py`.

        Looked up by bare file name, which is a signal of its own; comparing suffixes would scan every path.
        """

    def get_document_source(self, kind: str, row_id: int) -> DocumentSource | None:
        """Return the row a document is made from, or None if it must not be indexed."""

    def get_passage_text(self, document_id: int, part: int) -> tuple[str, str] | None:
        """Return title and body of a passage, or None."""

    def has_index_queue(self) -> bool:
        """Return whether anything can be indexed now."""

    def list_documents_by_date(
        self, search_filter: SearchFilter, *, limit: int, offset: int, oldest_first: bool = False
    ) -> list[int]:
        """Return document ids by date, for a listing without a query.

        Turns are left out unless requested: their text only serves to find what they produced.
        """

    def list_documents_in_scope(self, search_filter: SearchFilter) -> list[int]:
        """Return the ids of all documents that the filter covers."""

    def list_index_queue(self, *, limit: int) -> list[tuple[str, int]]:
        """Return what has to be indexed, newest first. A turn that is still open is skipped until it closes."""

    def list_neighbour_saves(self, row: DocumentSource | SavedNeighbour) -> list[SavedNeighbour]:
        """Return the observations saved by hand directly before and after this one, within ten minutes."""

    def list_neighbour_turns(self, turn_id: int) -> list[tuple[int, str, str]]:
        """Return id, prompt and last message of the turns directly before and after.

        If their events were purged, the message comes from the index.
        """

    def list_outdated_vectors(self, family: str, *, current: str, limit: int) -> list[tuple[int, str, int]]:
        """Return the keys of vectors of other versions of a model; the names of its versions begin with `family`."""

    def list_passages_without_vector(self, model: str, *, limit: int) -> list[PendingPassage]:
        """Return passages that have no vector of this model, newest first.

        Turns and observations are enough: a turn's text contains its prompt and its summary, and its observations say the
        rest. A prompt is embedded only if its turn has no document.
        """

    def list_touched_files(self, search_filter: SearchFilter, *, most_turns: int) -> list[FileTouch]:
        """Return which of the newest turns touched which files, oldest first, to predict where work will continue."""

    def find_last_touch(self, project_id: int, path: str, *, exclude_content_session_id: str, host: str) -> int:
        """Return when another session of a project last edited or read a file; 0 if none did."""

    def list_turn_documents(
        self, groups: Sequence[int], search_filter: SearchFilter
    ) -> dict[int, list[tuple[int, str]]]:
        """Return all documents of these turns that are in scope: by turn, their ids and kinds."""

    def list_turn_trust_levels(self, turn_id: int) -> list[str]:
        """Return the trust levels of all observations and summaries of a turn."""

    def load_hits(self, document_ids: Sequence[int]) -> dict[int, MemoryItem]:
        """Return what a hit displays, by document id."""

    def load_vectors(self, model: str, *, after: tuple[int, int], limit: int) -> list[StoredVector]:
        """Return a page of vectors."""

    def queue_full_reindex(self) -> None:
        """Queue everything for indexing (`claude-mem reindex`)."""

    def rebuild_word_index(self) -> None:
        """Rebuild the FTS index from the passages."""

    def remove_from_index_queue(self, kind: str, row_id: int) -> None:
        """Remove a row from the index queue after it was indexed."""

    def score_by_words(self, terms: Sequence[str], search_filter: SearchFilter) -> WordScores:
        """Score passages by BM25, with word weights computed within the scope.

        A name that is everywhere in this project carries no information here, however rare it is in other projects.
        """

    def set_saved_surroundings(self, row_id: int, around: str) -> None:
        """Set the surrounding text of an observation that was saved by hand."""

    def set_turn_surroundings(self, turn_id: int, around: str) -> None:
        """Set the surrounding text of a turn's documents. Observations are excluded: theirs is the turn's own prompt."""

    def store_vector(self, document_id: int, part: int, *, model: str, hash_: str, vector: bytes) -> None:
        """Store the vector of a passage, with the hash of the text it was computed from."""

    def take_deleted_vectors(self) -> list[int]:
        """Return, and clear, the documents whose vectors were deleted since the last call."""

    def upsert_document(self, document: Document) -> int:
        """Add or replace a document and return its id.

        Unchanged passages are not written, so that their vectors stay valid.
        """
