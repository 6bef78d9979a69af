"""Back-fill, reprocessing, import, export and backup."""

from __future__ import annotations

import msgspec

from claude_mem.domain.reports import (
    BackfillProgress,
    BackfillRequested,
    BackupCopy,
    BackupFile,
    Drill,
    RefiningEstimate,
    ReprocessCounts,
    ReprocessProgress,
    TurnsQueued,
)
from claude_mem.worker.http.endpoints import ById, Date, EndDate, Endpoint, Name, NoFields, Path, Paths

# --- back-fill -------------------------------------------------------------------------------------------------------


class BackfillRequest(msgspec.Struct, frozen=True):
    """Transcripts to read: one `path` or several `paths`, absolute ones on this machine."""

    path: Path = ""
    paths: Paths | None = None


class BackfillQueued(BackfillRequested, frozen=True):
    """What was enqueued."""

    status: str


class Cancelled(msgspec.Struct, frozen=True):
    """The number of files that were skipped."""

    dropped: int


class TranscriptPaths(msgspec.Struct, frozen=True):
    """Transcripts, by absolute paths on this machine."""

    paths: Paths


class Unchanged(msgspec.Struct, frozen=True):
    """The files that were read before and have not changed."""

    unchanged: list[str]


class RefineBackfill(msgspec.Struct, frozen=True):
    """Transcripts whose turns to refine; with `dry_run` only the cost is estimated."""

    paths: Paths
    dry_run: bool = False


# --- reprocessing ----------------------------------------------------------------------------------------------------


class ReprocessQuery(msgspec.Struct, frozen=True):
    """Which memories: of the project with that name or of that folder, and of turns since then. Default: all."""

    project: Name = ""
    cwd: Path = ""
    since: Date | None = None


class ReprocessRequest(ReprocessQuery, frozen=True):
    """Which memories to reprocess; with `dry_run` they are only counted."""

    dry_run: bool = False


class ReprocessQueued(ReprocessCounts, frozen=True):
    """The counts, and how many jobs were enqueued."""

    asked: int


# --- export, import and backup ---------------------------------------------------------------------------------------


class ExportQuery(msgspec.Struct, frozen=True):
    """Which memories to export. Default: all."""

    project: str = ""
    query: str = ""
    since: Date | None = None
    until: EndDate | None = None


class ImportRequest(msgspec.Struct, frozen=True):
    """The file to import. `untrusted`: its memories need approval."""

    path: Path
    project: Name = ""
    untrusted: bool = False
    dry_run: bool = False


class ImportStarted(msgspec.Struct, frozen=True):
    """The id of the import, and what the file is."""

    id: int
    source: str


class ImportStatus(msgspec.Struct, frozen=True):
    """Progress or result of an import. `counts`: by outcome or reason, then by kind."""

    id: int
    path: str
    mark: str
    source: str
    project: str
    untrusted: bool
    dry_run: bool
    position: str
    done: int
    total: int
    counts: dict[str, dict[str, int]]
    notes: list[str]
    error: str | None
    started_at: int
    ended_at: int | None


class ListedBackup(BackupFile, frozen=True):
    """A backup and its test restore, null if there was none."""

    drill: Drill | None = None


class BackupRequest(msgspec.Struct, frozen=True):
    """`digest`: also compute a hash of all memory."""

    digest: bool = False


START_BACKFILL = Endpoint("POST", "/api/backfill", BackfillRequest, BackfillQueued)
SHOW_BACKFILL = Endpoint("GET", "/api/backfill", NoFields, BackfillProgress)
CANCEL_BACKFILL = Endpoint("DELETE", "/api/backfill", NoFields, Cancelled)
LIST_UNCHANGED = Endpoint("POST", "/api/backfill/look", TranscriptPaths, Unchanged)
ESTIMATE_BACKFILL = Endpoint("POST", "/api/backfill/refine", RefineBackfill, RefiningEstimate)  # with `dry_run`
REFINE_BACKFILL = Endpoint("POST", "/api/backfill/refine", RefineBackfill, TurnsQueued, others=(RefiningEstimate,))
START_REPROCESS = Endpoint("POST", "/api/reprocess", ReprocessRequest, ReprocessQueued)
SHOW_REPROCESS = Endpoint("GET", "/api/reprocess", ReprocessQuery, ReprocessProgress)
EXPORT = Endpoint("GET", "/api/export", ExportQuery, bytes, media_type="application/x-ndjson")
START_IMPORT = Endpoint("POST", "/api/import", ImportRequest, ImportStarted)
SHOW_IMPORT = Endpoint("GET", "/api/import/{id}", ById, ImportStatus)
LIST_BACKUPS = Endpoint("GET", "/api/backup", NoFields, list[ListedBackup])
CREATE_BACKUP = Endpoint("POST", "/api/backup", BackupRequest, BackupCopy)
