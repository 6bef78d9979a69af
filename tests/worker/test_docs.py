"""The pages say what is so: printed parts are fresh, commands that are shown exist, links lead somewhere."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from claude_mem.cli.main import GROUPS, HOOKS, build_parser
from claude_mem.hook import COMMANDS
from tests.support.lab import Lab

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_printed_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        env={**os.environ, "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_command_that_a_page_shows_exists() -> None:
    help_text = build_parser().format_help()
    known = set(re.findall(r"^  (\w+)", help_text, re.MULTILINE)) | set(HOOKS)
    for page in PAGES:
        shown = set(re.findall(r"`claude-mem ([a-z]+)", page.read_text("utf-8")))
        shown |= set(re.findall(r"^claude-mem ([a-z]+)", page.read_text("utf-8"), re.MULTILINE))
        assert shown <= known, page.name


def test_the_help_lists_every_command_once() -> None:
    (action,) = [each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(action.choices)


def test_the_hook_commands_in_the_help_are_the_hook_commands() -> None:
    assert tuple(HOOKS) == COMMANDS


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_nothing_names_a_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    own = re.compile(
        "|".join(re.escape(name) for name in (str(ROOT) + "/", str(Path.home()) + "/.cache") if len(name) > 3)
    )
    for name in listed.stdout.split():
        path = ROOT / name
        if path.is_file():
            assert not own.search(path.read_text("utf-8", "replace")), name


def test_the_recipe_for_editor_extensions_works(lab: Lab) -> None:
    """Each request as the page has it, but in a folder that is there."""
    page = (ROOT / "docs" / "agents.md").read_text("utf-8").replace("/home/me/shop", str(lab.project))
    posts = re.findall(r"^post (/\S+)\s+'(\{.*?\})'$", page, re.MULTILINE | re.DOTALL)
    assert len(posts) == 4
    lab.mem("start")
    for path, body in posts:
        lab.client().post(path, json.loads(body))
    lab.wait_digested()
    (session,) = lab.client().get("/api/sessions")["items"]
    assert (session["host"], session["status"], session["first_prompt"]) == ("my-editor", "completed", "Fix the total")
    (found,) = lab.client().get("/api/search", query="total")["items"][:1]
    assert "total" in found["title"]
