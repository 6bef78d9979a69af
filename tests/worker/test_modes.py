"""Modes are data: inherited, added to, replaced; a broken one is a clear error and `code` is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from claude_mem.digest import modes
from claude_mem.domain.errors import InvalidSetting
from claude_mem.domain.records import ObservationType

NOWHERE = Path("/nowhere")
WHOLE = """
description = "Cooking"
[types.recipe]
icon = "R"
means = "a dish that worked"
[concepts]
taste = "how it tasted"
[texts]
role = "You keep the memory of a kitchen."
record = "Dishes."
skip = "Washing up."
"""


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.toml").write_text(text, "utf-8")


@pytest.mark.parametrize("name", ["code", "research"])
def test_the_shipped_modes_can_be_used(name: str) -> None:
    mode = modes.load_mode(name, NOWHERE)
    assert mode.types
    assert mode.concepts
    assert set(mode.texts) == set(modes.TEXT_PARTS)


def test_code_has_the_types_that_drafts_are_made_of() -> None:
    assert set(modes.load_mode("code", NOWHERE).types) == set(ObservationType)


def test_research_inherits_and_drops() -> None:
    mode = modes.load_mode("research", NOWHERE)
    assert "finding" in mode.types
    assert "decision" in mode.types
    assert "bugfix" not in mode.types
    assert "gotcha" in mode.concepts
    assert set(modes.type_icons(mode)) >= {"bugfix", "finding"}


def test_a_mode_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, "kitchen", WHOLE)
    mode = modes.load_mode("kitchen", tmp_path)
    assert dict(mode.concepts) == {"taste": "how it tasted"}
    assert mode.types["recipe"].icon == "R"
    assert modes.mode_names(tmp_path) == ["code", "kitchen", "research"]


def test_one_may_change_a_shipped_mode_under_its_own_name(tmp_path: Path) -> None:
    write(tmp_path, "code", 'inherits = "code"\n[types.security]\nicon = "!"\nmeans = "a hole"\n')
    mode = modes.load_mode("code", tmp_path)
    assert {"security", "bugfix"} <= set(mode.types)


def test_inheriting_in_a_circle_ends(tmp_path: Path) -> None:
    write(tmp_path, "a", 'inherits = "b"')
    write(tmp_path, "b", 'inherits = "a"')
    with pytest.raises(InvalidSetting, match="no mode 'a'"):
        modes.load_mode("a", tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("types = [", "kitchen.toml"),
        ('inherits = "nothing"', "no mode 'nothing'"),
        (WHOLE.replace('icon = "R"', ""), "icon"),
        (WHOLE.replace('icon = "R"', "icon = 5"), "is not a string"),
        (WHOLE.replace("[types.recipe]", '[types."Bad Name"]'), "is not a valid name"),
        (WHOLE.replace('"Dishes."', '"' + "x" * 900 + '"'), "at most 800"),
        (WHOLE.replace("[concepts]\ntaste", "[concepts]\n[other]\ntaste"), "1 to 12 concepts"),
        ("types = 3\nconcepts = 4\ntexts = 5", "is invalid"),
    ],
)
def test_a_broken_mode_says_what_is_wrong_and_code_is_used(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path, "kitchen", text)
    mode, problem = modes.load_mode_lenient("kitchen", tmp_path)
    assert mode.name == "code"
    assert says in str(problem)
    assert problem is not None
    assert problem.hint


@pytest.mark.parametrize("name", ["../code", "Code", "", "a b", "x" * 60])
def test_a_name_is_not_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSetting):
        modes.load_mode(name, tmp_path)
