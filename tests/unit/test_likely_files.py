"""Which files a prompt is about: what each view knows, and what must never be named."""

from __future__ import annotations

import pytest

from claude_mem.recall import likely_files, rank
from claude_mem.recall.likely_files import FileHistory, PromptSigns, arrange, predict, score_views
from claude_mem.storage.records import FileTouch


def history(*sessions: list[str], branches: dict[int, list[str]] | None = None) -> FileHistory:
    """Return the history of sessions 1, 2 …, oldest first, each with one turn that edited these files."""
    touches = [FileTouch(n, n, "edited", path, 1) for n, paths in enumerate(sessions, start=1) for path in paths]
    arranged = arrange(touches)
    arranged.branches = branches or {}
    return arranged


def likely(prompt: str, known: FileHistory, *, similar: dict[int, float] | None = None, branch: str = "") -> list[str]:
    return predict(PromptSigns(prompt, similar or {}, branch), known, limit=10)


def test_every_view_has_a_weight() -> None:
    known = history(["a.py"])
    assert score_views(PromptSigns("a", {}), known, named_paths=()).keys() == rank.FILE_WEIGHTS.keys()


def test_the_files_of_the_newest_session_come_first_when_nothing_else_is_known() -> None:
    assert likely("go on", history(["old.py"], ["middle.py"], ["new.py"])) == ["new.py", "middle.py", "old.py"]


def test_similar_work_outweighs_recent_work() -> None:
    known = history(["tax.py"], ["cart.py"], ["user.py"])
    assert likely("the rules are wrong", known, similar={1: 1.0, 3: 0.2})[0] == "tax.py"


def test_a_session_in_the_future_counts_as_one_session() -> None:
    """A clock that jumped puts one session last for ever; the order of all others stays."""
    assert likely("go on", history(["a.py"], ["b.py"], ["jumped.py"])) == ["jumped.py", "b.py", "a.py"]


def test_files_edited_together_with_a_named_one_come_first() -> None:
    known = history(["api.py", "schema.py"], ["api.py", "schema.py"], ["page.py"], ["style.py"])
    assert likely("change the answer in api.py", known)[0] == "schema.py"


def test_the_test_of_a_named_file_is_likely() -> None:
    known = history(["src/rates.py"], ["tests/test_rates.py"], ["a.py"], ["b.py"])
    assert likely("round in src/rates.py", known)[0] == "tests/test_rates.py"


@pytest.mark.parametrize("name", ["SelectionBar", "selection_bar", "selection-bar"])
def test_a_name_in_the_prompt_finds_the_file_of_that_name(name: str) -> None:
    known = history(["ui/SelectionBar.tsx"], ["a.py"], ["b.py"])
    assert likely(f"why is {name} empty?", known)[0] == "ui/SelectionBar.tsx"


def test_work_on_the_same_branch_comes_before_newer_work() -> None:
    known = history(["trailer.go"], ["other.go"], branches={1: ["ann/trailers"], 2: ["main"]})
    assert likely("review this branch", known, branch="ann/trailers")[0] == "trailer.go"
    assert likely("review this branch", known)[0] == "other.go"


def test_the_words_of_a_branch_find_the_files_with_these_words() -> None:
    known = history(["cmd/telemetry.go"], ["cmd/setup.go"])
    assert likely("fix it", known)[0] == "cmd/setup.go"
    assert likely("fix it", known, branch="ann/telemetry")[0] == "cmd/telemetry.go"


def test_a_branch_with_a_similar_name_counts_too() -> None:
    known = history(["x.go"], ["a.go"], ["b.go"], branches={1: ["bob/add-telemetry"], 2: ["bob/new-setup"]})
    ranked = likely("fix it", known, branch="ann/fix-telemetry")
    assert ranked.index("x.go") < ranked.index("a.go")


def test_the_default_branch_says_nothing() -> None:
    assert likely_files.signs_of("review", [], "main").branch == ""
    assert likely_files.signs_of("review", [], "ann/x").branch == "ann/x"


@pytest.mark.parametrize("text", ["fix src/cart.py", "fix cart.py", r"fix src\cart.py", r"fix C:\shop\src\cart.py"])
def test_a_file_that_the_prompt_names_is_not_named_again(text: str) -> None:
    known = history(["src/cart.py"], ["src/tax.py"])
    signs = likely_files.signs_of(text, [], "")
    assert predict(signs, known, limit=10) == ["src/tax.py"]


@pytest.mark.parametrize("path", ["/etc/hosts", "~/.profile", "../other/a.py", r"C:\Windows\a.ini", "C:/a.ini"])
def test_a_file_outside_the_project_is_never_named(path: str) -> None:
    assert likely("go on", history([path, "a.py"])) == ["a.py"]


def test_a_prompt_of_100_kb_is_read_to_its_beginning() -> None:
    signs = likely_files.signs_of("the cart total " + "x/y." * 25_000, [], "")
    assert len(signs.prompt) == rank.MAX_PROMPT_CHARS
    known = history(["shop/cart/total.py"], ["a/b.py"], ["c/d.py"])
    assert predict(signs, known, limit=10).index("shop/cart/total.py") < 2


def test_nothing_is_named_where_nothing_is_known() -> None:
    assert likely("go on", history()) == []
