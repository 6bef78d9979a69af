"""A program is only as safe as the directories on the way to it, and to what it links to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from claude_mem import hook
from claude_mem.digest.models import claude_program
from tests.security.test_environment import SOMEONE, as_root, program


@pytest.mark.parametrize("place", ["bin", "deep/er/bin"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_claude_below_a_directory_of_everyone_is_not_run(tmp_path: Path, place: str, linked: bool) -> None:
    shared = tmp_path / "shared"
    path = program(shared / place / "claude", tmp_path / "was-run")
    named = path
    if linked:
        named = tmp_path / "own" / "claude"
        named.parent.mkdir()
        named.symlink_to(path)
    assert claude_program.find_program(str(named)) == str(named)
    shared.chmod(0o777)
    assert claude_program.find_program(str(named)) == ""
    assert str(shared) in claude_program.find_safety_problem(str(named))
    shared.chmod(0o1777)  # as /tmp: nobody else can rename what is in it
    assert claude_program.find_program(str(named)) == str(named)


@as_root
@pytest.mark.parametrize("whose", ["bin", "."])
def test_a_program_in_a_directory_of_another_user_is_not_run(tmp_path: Path, whose: str) -> None:
    path = program(tmp_path / "theirs" / "bin" / "claude", tmp_path / "was-run")
    os.chown(tmp_path / "theirs" / whose, SOMEONE, -1)
    assert claude_program.find_program(str(path)) == ""
    if whose == "bin":
        assert hook.program_problem(str(path)) == "its directory belongs to another user"
