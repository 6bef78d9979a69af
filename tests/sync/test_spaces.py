"""Two machines with real workers and one memory: what one remembered, the other finds, and the transport learns nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab
from tests.support.waiting import wait_for

REMOTE = "git@example.org:shop/shop.git"
SECRET_WORD = "zanzibar-cassette"


def machine(folder: Path, name: str) -> Lab:
    """A machine with its own clone of the same repository."""
    (folder / name).mkdir()
    lab = Lab(folder / name)
    subprocess.run(["git", "init", "--quiet", str(lab.project)], check=True)
    subprocess.run(["git", "-C", str(lab.project), "remote", "add", "origin", REMOTE], check=True)
    return lab


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Lab]:
    with closing(machine(tmp_path, "laptop")) as lab:
        lab.start()
        yield lab


@pytest.fixture
def desktop(tmp_path: Path) -> Iterator[Lab]:
    with closing(machine(tmp_path, "desktop")) as lab:
        lab.start()
        yield lab


@pytest.fixture(params=["folder", "git"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "place"
    if request.param == "git":
        subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    else:
        path.mkdir()
    return path


def create(lab: Lab, place: Path) -> str:
    """Create the space and return its phrase."""
    made = json.loads(lab.mem("space", "create", "mine", "--at", str(place), "--machine", "laptop", "--json").stdout)
    assert len(made["phrase"].split()) == 24
    sync(lab)
    return str(made["phrase"])


def join(lab: Lab, place: Path, phrase: str, name: str = "desktop", ok: bool = True) -> Any:
    return mem(lab, "space", "join", str(place), "--machine", name, stdin=phrase + "\n", ok=ok)


def mem(lab: Lab, *arguments: str, stdin: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """A command with something typed into it."""
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "claude_mem", *arguments],
        input=stdin, env=lab.env(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not ok or done.returncode == 0, done.stderr + done.stdout
    return done


def sync(lab: Lab, ok: bool = True) -> dict[str, Any]:
    done = lab.mem("space", "sync", "--json", ok=False)
    assert not ok or done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def status(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.mem("space", "status", "--json").stdout)
    return found


def save(lab: Lab, title: str, text: str) -> None:
    lab.client().post("/api/memory/save", {"text": text, "title": title, "cwd": str(lab.project)})


def found(lab: Lab, words: str) -> list[str]:
    lines = lab.mem("search", words, "--json").stdout.splitlines()
    return [json.loads(line)["title"] for line in lines]


def test_what_one_machine_remembered_the_other_finds(laptop: Lab, desktop: Lab, place: Path) -> None:
    save(laptop, f"Deploys need the {SECRET_WORD}", f"Without the {SECRET_WORD} the deploy fails.")
    phrase = create(laptop, place)
    join(desktop, place, phrase)
    assert found(desktop, SECRET_WORD) == [f"Deploys need the {SECRET_WORD}"]
