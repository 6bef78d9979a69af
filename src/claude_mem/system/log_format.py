"""Formats log records: one line each, without characters that control a terminal.

Messages contain names of files and projects, and errors of other programs. A line break in a name must not forge a
second record, and `tail -f worker.log` must be as safe as `claude-mem logs`.
"""

from __future__ import annotations

import logging
from typing import Any

from claude_mem.domain.text import make_printable, make_printable_line


class LogFormatter(logging.Formatter):
    """Formatter that keeps the message on one line; a traceback follows on separate lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return make_printable_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return make_printable(super().formatException(ei))
