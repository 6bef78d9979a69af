"""Forgetting in bad company: damaged copies, kills in between, sessions that go on, readers that do not let go."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from claude_mem.config import load
from claude_mem.store import backup
from tests.lab import Lab
from tests.test_forget import digest, forget, traces
from tests.test_forget import told as told  # noqa: PLC0414 - a fixture

# --- copies ----------------------------------------------------------------------------------------------------------


def quarantined(lab: Lab) -> Path:
    """A copy of the database as it is, in quarantine; and a sound one among the backups."""
    config = load(lab.env())
    made = Path(backup.make(config.database, config.backups).path)
    folder = config.quarantine / "20260101-000000-aaaa"
    folder.mkdir(parents=True, mode=0o700)
    return Path(shutil.copy(made, folder / "claude-mem.db"))


UNREADABLE = "insert into notices (key, text, at) values ('k', cast(x'61e162' as text), 1)"
DANGLING = "insert into user_prompts (session_id, turn_id, prompt_number, text, created_at) values (2, 9999, 7, 'x', 1)"


@pytest.mark.parametrize(("wound", "becomes"), [(UNREADABLE, "deleted"), (DANGLING, "rewritten")])
def test_a_damaged_copy_keeps_nothing_of_it_and_keeps_no_worker_from_starting(
    told: Lab, wound: str, becomes: str
) -> None:
    copy = quarantined(told)
    conn = apsw.Connection(str(copy))
    conn.pragma("foreign_keys", "off")
    conn.execute(wound)
    conn.close()
    done = forget(told, session="lit", now=True)
    assert copy.name in done.copies[becomes]
    assert "failed" not in done.copies
    assert len(done.copies["rewritten"]) >= 1
    assert traces(told.data) == []
    assert copy.exists() == (becomes == "rewritten")
    digest(told)
