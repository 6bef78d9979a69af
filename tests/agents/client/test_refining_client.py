"""The real Claude Code works a turn, and the real Claude Code writes its memory: no Agent SDK, no other package.

The worker runs in an interpreter that has everything but the SDK. The scripted server holds the answer back, so that what is
remembered before it and after it can be compared.
"""

import json
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import proof
from tests.support.waiting import wait_for

from .harness import ROOT, Lab, open_lab
from .model_server import Hold, Json, Text
from .test_real_client import BINARY, SUBJECT, assert_balanced, assert_healthy, rows, work

pytestmark = pytest.mark.client

TITLE = "The flux capacitor is charged before the jump, in capacitor.py"
ANSWER = f"""
<observation><type>feature</type><title>{TITLE}</title>
<facts><fact>capacitor.py charges to 1.21 gigawatts</fact></facts>
<narrative>The jump needs all of it at once.</narrative></observation>
<summary><request>Build the capacitor</request><completed>It is built and committed</completed><outcome>done</outcome></summary>
"""
REQUEST = "Now write down what is worth keeping"
MINUTE = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path / "lab", binary=BINARY) as lab:
        lab.install("claude")
        env_file = lab.root / "claude.env"
        env_file.write_text(f"ANTHROPIC_BASE_URL={lab.server.url}\nANTHROPIC_API_KEY=dummy-key\n")
        for name, value in {"provider": "claude", "claude_path": BINARY, "claude_env_file": env_file}.items():
            lab.mem("config", "set", name, str(value))
        yield lab
        assert_balanced(lab.wait_digested())


def without_sdk(folder: Path) -> Path:
    """An interpreter with all that this one has, but for the SDK."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.startswith("claude_agent_sdk"):
            (packages / entry.name).symlink_to(entry)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "borrowed.pth").write_text(f"{packages}\n{ROOT / 'src'}\n")
    python = folder / "bin" / "python"
    probe = "import claude_mem, importlib.util, sys; sys.exit(importlib.util.find_spec('claude_agent_sdk') is not None)"
    subprocess.run([python, "-c", probe], check=True)
    return python


def restart_worker(lab: Lab, python: Path) -> None:
    lab.mem("stop")
    subprocess.run([python, "-m", "claude_mem", "start"], env=lab.env, cwd=lab.project, check=True, capture_output=True)
    (worker,) = [command for command in lab.processes().values() if "serve" in command]
    assert str(python.parent.parent) in worker


def memory(lab: Lab, by: str) -> Json | None:
    """What is remembered of the capacitor, if that is who wrote it."""
    found = [row for row in rows(lab, "/api/observations") if row["provider"] == by and row["commit_id"]]
    return found[0] if found else None


def test_the_program_alone_refines_a_memory_in_place_within_a_minute(lab: Lab, tmp_path: Path) -> None:
    lab.server.play(REQUEST, [Hold("memory"), Text(ANSWER)])
    lab.server.play("JOB-ONE", *work(lab))
    restart_worker(lab, without_sdk(tmp_path / "bare"))
    assert_healthy(lab.claude("JOB-ONE: build the capacitor and commit it"))
    ended = time.monotonic()
    lab.server.wait_held("memory")
    assert time.monotonic() - ended <= MINUTE or not proof.long()  # a figure of a quiet machine
    draft = wait_for(lambda: memory(lab, "local"), "nothing was remembered while the model was asked")
    lab.server.release("memory")
    refined = wait_for(lambda: memory(lab, "claude"), lambda: f"not refined: {rows(lab, '/api/observations')}")
    assert time.monotonic() - ended <= MINUTE or not proof.long()  # a figure of a quiet machine
    assert (refined["id"], refined["title"]) == (draft["id"], TITLE)
    assert refined["commit_id"] == draft["commit_id"], "the evidence stays"
    (summary,) = rows(lab, "/api/summaries")
    assert summary["completed"] == "It is built and committed"
    assert_nothing_left(lab)
    assert len([seen for seen in lab.server.requests if REQUEST in seen.text]) == 1, "one request a turn"


def assert_nothing_left(lab: Lab) -> None:
    """No transcript and no temporary file of the question or its answer; and our own hooks did not see it."""
    wait_for(lambda: len(lab.processes()) == 1, lambda: f"left running: {lab.processes()}")
    for path in lab.home.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert REQUEST.encode() not in content, path
            assert TITLE.encode() not in content, path
    assert list((lab.data / "observer").iterdir()) == []
    assert [row["text"] for row in rows(lab, "/api/prompts")] == ["JOB-ONE: build the capacitor and commit it"]


def test_a_program_that_is_gone_leaves_the_record_and_one_plain_line(lab: Lab) -> None:
    lab.mem("config", "set", "claude_path", str(lab.root / "nowhere" / "claude"))
    lab.mem("restart")
    lab.server.play("JOB-ONE", *work(lab))
    assert_healthy(lab.claude("JOB-ONE: build the capacitor and commit it"))
    lab.wait_digested()
    draft = memory(lab, "local")
    assert draft is not None
    assert SUBJECT in draft["title"]
    found = json.loads(lab.mem("status", "--json").stdout)
    assert found["refining"] == f"{lab.root / 'nowhere' / 'claude'} is not an executable file: correct `claude_path`"
