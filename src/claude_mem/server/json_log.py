"""Log records as JSON, one object a line. Neither bodies nor tokens are ever given to a log call.

Messages of database errors are left out as well: PostgreSQL quotes the row that it refuses.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType

import msgspec

FIELDS = "fields"  # attribute of a record with what belongs into the object besides the message


class JsonFormatter(logging.Formatter):
    """Formats a record as an object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
            line["trace"] = _places(record.exc_info[2])
        return msgspec.json.encode(line).decode()


def _places(trace: TracebackType | None) -> list[str]:
    """Return where an error went through, without its message and without source lines."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send all records of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # The pool logs the text of connection errors, which may contain the address and the user.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
