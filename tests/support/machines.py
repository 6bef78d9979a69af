"""Two machines of one person: labs with a clone each of the same repository, and the commands of spaces on them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.lab import Lab

REMOTE = "git@example.org:shop/shop.git"
SECRET_WORD = "zanzibar-cassette"


def machine(folder: Path, name: str) -> Lab:
    """A machine with its own clone of the same repository."""
    (folder / name).mkdir()
    lab = Lab(folder / name)
    subprocess.run(["git", "init", "--quiet", str(lab.project)], check=True)
    subprocess.run(["git", "-C", str(lab.project), "remote", "add", "origin", REMOTE], check=True)
    return lab


def mem(lab: Lab, *arguments: str, stdin: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """A command with something typed into it."""
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
