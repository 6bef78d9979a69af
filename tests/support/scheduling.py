"""Which tests run in one process, one after the other: those of a file that share something costly, or one program.

The mark `xdist_group` of pytest-xdist 3.8 does nothing with pytest 9.2: it writes the group's name into an attribute that
pytest no longer reads, and each of three processes made every shared fixture for itself. So the groups stand here, by
file. The largest go first; all other tests are handed out one by one after them, which fills every process to the end.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

WHOLE_FOLDERS = ("tests/server",)  # one PostgreSQL for all files
FOLDERS = ("tests/viewer",)  # a browser and a worker with a history for each file
FILES = (
    "tests/worker/test_audit.py",
    "tests/worker/test_change_settings.py",
    "tests/reliability/test_chores.py",
    "tests/worker/test_cli_recall.py",
    "tests/reliability/test_clock.py",
    "tests/reliability/test_damage.py",
    "tests/storage/test_feed.py",
    "tests/worker/test_mcp.py",
    "tests/storage/test_search.py",
    "tests/storage/test_upgrades.py",
    "tests/agents/test_codex.py",
    "tests/agents/test_copilot.py",
    "tests/agents/test_gemini.py",
    "tests/agents/test_opencode.py",
    "tests/agents/test_qwen.py",
)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out files that are kept together as one piece of work, and every other test by itself."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """Return the name of the piece of work to which a test belongs."""
    path = nodeid.partition("::")[0]
    if (folder := str(PurePosixPath(path).parent)) in WHOLE_FOLDERS:
        return folder
    return path if path in FILES or folder in FOLDERS else nodeid
