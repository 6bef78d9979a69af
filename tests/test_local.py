"""The local compressor: memories from evidence alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from claude_mem.providers.local import digest, error_line
from claude_mem.records import Body, Prompted, Stopped, ToolUsed, Turn


def _turn(*bodies: Body, prompt: str = "Fix the empty basket") -> Turn:
    every = (Prompted(prompt), *bodies)
    return Turn(
        id=1,
        session_id=1,
        project_id=1,
        number=1,
        prompt=prompt,
        root="/shop",
        started_at=1,
        ended_at=2,
        bodies=every,
        newest_seq=9,
    )


def _bash(command: str, output: Any = "", *, failed: bool = False) -> ToolUsed:
    return ToolUsed("Bash", {"command": command}, output, failed)


def _edit(path: str) -> ToolUsed:
    return ToolUsed("Edit", {"file_path": path})


def test_a_commit_becomes_an_observation_with_its_files() -> None:
    made = digest(
        _turn(
            _edit("/shop/src/basket.py"),
            _bash(
                "git commit -qm x",
                {"stdout": "[main 1a2b3c4] fix: total of an empty basket\n 1 file changed, 2 insertions(+)"},
            ),
            Stopped("The total of an empty basket is now 0."),
        )
    )
    (found,) = made.observations
    assert (found.type, found.title, found.commit) == ("bugfix", "total of an empty basket", "1a2b3c4")
    assert found.files_modified == ("src/basket.py",)
    assert "1 file changed, 2 insertions(+)" in found.facts


def test_a_command_that_failed_and_then_passed_is_a_solved_problem() -> None:
    made = digest(
        _turn(
            _bash("cd /shop && pytest -q", "Exit code 1\nE   KeyError: 'total'\n1 failed", failed=True),
            _edit("/shop/basket.py"),
            _bash("pytest  -q", {"stdout": "4 passed"}),
            Stopped("Fixed. The problem was that a missing key was not handled."),
        )
    )
    fix = next(item for item in made.observations if item.key.startswith("fix:"))
    assert fix.concepts == ("problem-solution",)
    assert "KeyError" in fix.narrative or "1 failed" in fix.narrative
    assert "basket.py" in fix.narrative
    assert made.summary is not None
    assert made.summary.notes == ""


def test_a_failure_that_stays_is_noted() -> None:
    made = digest(_turn(_edit("/shop/a.py"), _bash("make", "cc: fatal error: no input files", failed=True)))
    assert made.summary is not None
    assert "no input files" in made.summary.notes
    assert any("still fails" in item.title for item in made.observations)


def test_the_summary_is_the_agents_own_account_split_by_its_headings() -> None:
    made = digest(
        _turn(
            ToolUsed("Read", {"file_path": "/shop/basket.py"}),
            ToolUsed("Grep", {"pattern": "total"}),
            _edit("/shop/basket.py"),
            Stopped(
                "Baskets without items have a total of **0** now.\n\n## Root cause\nThe sum started at None.\n\n"
                "### Next steps\n- Add a test for vouchers\n- Deploy"
            ),
        )
    )
    summary = made.summary
    assert summary is not None
    assert summary.request == "Fix the empty basket"
    assert summary.investigated == "Read basket.py; searched for total"
    assert summary.learned == "The sum started at None."
    assert summary.completed == "Baskets without items have a total of 0 now."
    assert summary.next_steps == "- Add a test for vouchers\n- Deploy"
    assert (summary.files_read, summary.files_edited) == (("basket.py",), ("basket.py",))


def test_an_answer_after_looking_around_is_a_discovery() -> None:
    said = "The basket is stored in the session cookie. It is signed, not encrypted. " * 4
    made = digest(
        _turn(ToolUsed("Read", {"file_path": "/shop/web.py"}), Stopped(said), prompt="Where is the basket stored?")
    )
    (found,) = made.observations
    assert (found.type, found.title) == ("discovery", "The basket is stored in the session cookie.")


def test_routine_work_makes_no_observation() -> None:
    made = digest(_turn(_bash("ls", {"stdout": "a b"}), Stopped("There are two files.")))
    assert made.observations == ()
    assert made.summary is not None


def test_failed_edits_do_not_count_as_edits() -> None:
    made = digest(_turn(ToolUsed("Edit", {"file_path": "/shop/a.py"}, "not found", True)))
    assert made.summary is not None
    assert made.summary.files_edited == ()


def test_the_telling_line_of_an_error_is_found() -> None:
    trace = 'Exit code 1\nTraceback (most recent call last):\n  File "x.py"\nValueError: no such item\n\n'
    assert error_line(trace) == "ValueError: no such item"
    assert error_line("ValueError: no such item\n\nFAILED (errors=1)") == "ValueError: no such item"
    assert error_line("") == ""


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda leaf: st.lists(leaf) | st.dictionaries(st.text(), leaf),
)
_names = st.sampled_from(["Bash", "Edit", "Write", "Read", "Grep", "Task", "mcp__x__y"])
_fields = st.dictionaries(st.sampled_from(["command", "file_path", "pattern", "query", "x"]), _json)
_tools = st.builds(ToolUsed, _names, _fields, _json, st.booleans())


@given(st.lists(_tools | st.builds(Stopped, st.text())), st.text())
def test_no_turn_is_too_strange(bodies: list[Body], prompt: str) -> None:
    turn = _turn(*bodies, prompt=prompt)
    made = digest(turn)
    assert digest(turn) == made
    assert len({item.key for item in made.observations}) <= len(made.observations)
    assert all(item.title for item in made.observations)
