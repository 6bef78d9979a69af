"""The page of figures: what it is made of, and that it hides nothing."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GIVEN = tomllib.loads((ROOT / "docs" / "goals.toml").read_text("utf-8"))
GOALS = {name for part in GIVEN["part"] for name in part["goals"]}


def figure(name: str, **about: Any) -> str:
    told = {"name": name, "of": ["R1"], "goal": "0", "measured": 0, "ok": True, "unit": "", "note": "", "command": "c"}
    return json.dumps({**told, "date": "2026-01-02", **about})


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    about = importlib.util.spec_from_file_location("prove", ROOT / "docs" / "prove.py")
    assert about
    assert about.loader
    prove = importlib.util.module_from_spec(about)
    monkeypatch.setitem(sys.modules, "prove", prove)
    about.loader.exec_module(prove)
    (tmp_path / "goals.toml").write_text((ROOT / "docs" / "goals.toml").read_text("utf-8"), "utf-8")
    monkeypatch.setattr(prove, "DOCS", tmp_path)
    monkeypatch.setattr(prove, "FOUND", tmp_path / "found")
    monkeypatch.setattr(prove, "RESULTS", tmp_path)
    for file in {figure["file"] for figure in GIVEN["figure"]}:
        figures = [
            {"name": each["name"], "value": each.get("least", each.get("most")), "unit": "ms"}
            for each in GIVEN["figure"]
            if each["file"] == file
        ]
        (tmp_path / f"{file}.json").write_text(json.dumps({"date": "2026-01-02", "figures": figures}))
    (tmp_path / "found").mkdir()
    return prove


def test_every_figure_speaks_for_a_goal_that_there_is() -> None:
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/*.py")]
    named = {
        (path.name, name)
        for path in sources
        if path != Path(__file__)
        for said in re.findall(r'\bof(?:: str)?(?: = |=)"([A-Z][^"]*)"', path.read_text("utf-8"))
        for name in said.split()
    }
    assert len(named) > 20
    assert {(file, name) for file, name in named if name not in GOALS} == set()
    benched = {name for figure in GIVEN["figure"] for name in figure["of"].split()}
    assert benched <= GOALS
    told = {name for part in GIVEN["part"] for name, about in part["goals"].items() if "why" in about}
    assert GOALS - benched - told - {name for _, name in named} == set(), "nobody speaks for them"


def test_what_is_tallied_is_added_up_and_of_the_rest_the_last_counts(page: ModuleType, tmp_path: Path) -> None:
    lines = [
        figure("refused", measured=5, tally=True), figure("refused", measured=7, tally=True),
        figure("left", measured=3, ok=False), figure("left", measured=0),
    ]  # fmt: skip
    (tmp_path / "found" / "kills.json").write_text("\n".join(lines))
    page.main()
    text = (tmp_path / "proof.md").read_text("utf-8")
    assert "| R1 | refused | 0 | 12 |" in text
    assert "| R1 | left | 0 | 0 |" in text


def test_a_miss_is_shown_at_its_goal_and_one_of_many_is_enough(
    page: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [figure("half of it", measured=1, ok=False, tally=True), figure("half of it", measured=1, tally=True)]
    (tmp_path / "found" / "kills.json").write_text("\n".join(lines))
    assert page.main() == 1
    row = next(line for line in (tmp_path / "proof.md").read_text("utf-8").splitlines() if line.startswith("| R1 |"))
    assert row.endswith("| **in part**: half of it: 2 |")
    assert "nobody says why of R1, R2" in capsys.readouterr().out


def test_a_miss_of_which_it_is_said_why_is_no_failure(page: ModuleType, tmp_path: Path) -> None:
    told = next(name for part in GIVEN["part"] for name, about in part["goals"].items() if "why" in about)
    lines = [figure("all", of=sorted(GOALS - {told})), figure("big", of=[told], measured=9, ok=False)]
    (tmp_path / "found" / "kills.json").write_text("\n".join(lines))
    assert page.main() == 0
    assert "**missed**" in (tmp_path / "proof.md").read_text("utf-8")


def test_a_goal_that_nobody_measured_is_called_that(page: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "found" / "kills.json").write_text(figure("fine"))
    page.main()
    rows = (tmp_path / "proof.md").read_text("utf-8").splitlines()
    assert next(row for row in rows if row.startswith("| R1 |")).endswith("| reached |")
    assert next(row for row in rows if row.startswith("| R2b |")).endswith("| **not measured** |")
    assert "no model could be reached" in next(row for row in rows if row.startswith("| S10b |"))


def test_suites_that_were_not_run_again_keep_their_figures_and_their_date(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills, powerloss = tmp_path / "found" / "kills.json", tmp_path / "found" / "powerloss.json"
    kills.write_text(figure("a | b", measured=7, unit="kills", note="all of them", date="2026-01-03"))
    powerloss.write_text(figure("images", measured=1, ok=False, date="2026-01-04"))
    page.main()
    whole = (tmp_path / "proof.md").read_text("utf-8")
    kills.unlink()
    powerloss.write_text(figure("images", measured=2, date="2026-01-05"))
    monkeypatch.setattr(sys, "argv", ["prove.py", "--keep"])
    page.main()
    text = (tmp_path / "proof.md").read_text("utf-8")
    row = r"| R1 | a \| b | 0 | 7 kills | all of them |"
    assert row in whole
    assert row in text
    assert "Measured 2026-01-03; kept from the page before" in text
    assert "| R1 | images | 0 | 2 |" in text
    assert "Measured 2026-01-05." in text
    monkeypatch.setattr(sys, "argv", ["prove.py"])
    page.main()
    assert row not in (tmp_path / "proof.md").read_text("utf-8")
