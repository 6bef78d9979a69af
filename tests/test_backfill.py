"""Old transcripts become memories: once, with their own times, and beside what the hooks captured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.test_reconcile import Transcript


class Old(Transcript):
    """As clients wrote them: the session and the folder in every record."""

    def __init__(self, path: Path, session: str, folder: Path) -> None:
        super().__init__(path)
        self.common = {"sessionId": session, "cwd": str(folder)}
        self.clock = 1_700_000_000.0

    def _write(self, kind: str, message: dict[str, Any], **more: Any) -> None:
        super()._write(kind, message, **self.common, **more)


@pytest.fixture
def old(lab: Lab) -> Old:
    (lab.folder / "old").mkdir()
    transcript = Old(lab.folder / "old" / "one.jsonl", "old-1", lab.project)
    transcript.prompt("Add a voucher field", "")
    transcript.call("v1", "Write", file_path=str(lab.project / "voucher.py"))
    transcript.say("Vouchers are a module of their own now, with one class.")
    transcript.prompt("Where are totals rounded?", "")
    transcript.call("v2", "Read", file_path=str(lab.project / "total.py"))
    transcript.say("Totals are rounded in `total.py`, once, at the very end. " * 4)
    return transcript


def _added(lab: Lab, path: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads(lab.mem("backfill", str(path), "--json").stdout)
    return found


def test_an_old_session_is_remembered_with_its_own_times(lab: Lab, old: Old) -> None:
    assert _added(lab, old.path) == {"files": 1, "sessions": 1, "turns": 2, "events": 6, "observations": 2}
    client_rows = [json.loads(line) for line in lab.mem("list", "--json").stdout.splitlines()]
    assert {row["title"] for row in client_rows} == {
        "Vouchers are a module of their own now, with one class",
        "Totals are rounded in `total.py`, once, at the very end",
    }
    assert {row["content_session_id"] for row in client_rows} == {"old-1"}
    assert all(1_700_000_000_000 < row["created_at"] < 1_700_000_100_000 for row in client_rows)
    (session,) = [json.loads(line) for line in lab.mem("list", "sessions", "--json").stdout.splitlines()]
    assert (session["status"], session["project"], session["title"]) == ("completed", "shop", "Add a voucher field")
    assert lab.status()["queued"] == 0


def test_a_second_time_adds_nothing(lab: Lab, old: Old) -> None:
    _added(lab, old.path)
    assert _added(lab, old.path) == {"files": 1, "sessions": 0, "turns": 0, "events": 0, "observations": 0}
    old.prompt("And now?", "")
    old.say("Nothing more is to be done here, as far as anyone knows.")
    assert _added(lab, old.path.parent)["turns"] == 1


def test_a_folder_of_packed_files_is_read_and_subagents_are_not_sessions(lab: Lab, old: Old) -> None:
    packed = old.path.with_name("two.jsonl.gz")
    packed.write_bytes(
        gzip.compress(
            old.path.read_bytes().replace(b"old-1", b"old-2").replace(b'"v', b'"w').replace(b'"one-', b'"two-')
        )
    )
    old.path.with_name("agent-x.jsonl").write_text("{}\n")
    old.path.with_name("notes.txt").write_text("no")
    assert _added(lab, old.path.parent) == {"files": 2, "sessions": 2, "turns": 4, "events": 12, "observations": 4}


def test_what_the_hooks_captured_is_not_doubled_and_a_live_turn_not_closed(lab: Lab, old: Old) -> None:
    lab.spool("UserPromptSubmit", session_id="old-1", prompt="Where are totals rounded?")
    lab.spool("PostToolUse", session_id="old-1", tool_name="Read", tool_input={}, tool_use_id="v2")
    lab.drain()
    added = _added(lab, old.path)
    assert (added["sessions"], added["turns"]) == (0, 1)
    lab.mem("stop")
    assert lab.rows("select tool_use_id from events where kind = 'tool' order by tool_use_id") == [("v1",), ("v2",)]
    assert lab.rows("select status from sdk_sessions") == [("active",)]


def test_private_parts_and_secrets_stay_out(lab: Lab, old: Old) -> None:
    old.prompt("<private>canary-one</private>", "")
    old.call("v3", command="echo canary-two")
    old.prompt("Use ghp_" + "a1B2c3D4" * 5, "")
    _added(lab, old.path)
    lab.mem("stop")
    kept = b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())
    assert b"canary" not in kept
    assert b"a1B2c3D4a1B2" not in kept


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bnot gzip", b"{}\nrubbish\n[1]\n"])
def test_a_file_that_is_no_transcript_adds_nothing(lab: Lab, content: bytes) -> None:
    (lab.folder / "x.jsonl.gz").write_bytes(content)
    assert _added(lab, lab.folder / "x.jsonl.gz")["sessions"] == 0


def test_a_path_that_does_not_exist_is_said_so(lab: Lab) -> None:
    done = lab.mem("backfill", "/does/not/exist", ok=False)
    assert done.returncode == 1
    assert "no transcripts" in done.stderr
