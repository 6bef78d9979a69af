"""A patch of several files: each of them is edited, each with its own definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.digest.evidence import gather_evidence
from claude_mem.digest.request import _input_parts
from claude_mem.domain import patches
from claude_mem.domain.records import Event, Prompted, ToolUsed, Turn
from claude_mem.recall.documents import tool_text

PATCH = """*** Begin Patch
*** Add File: notes.txt
+One line.
*** Update File: src/cart.py
*** Move to: src/basket.py
@@ class Basket:
     def total(self):
-        return 0
+        return self.sum
+
+    def clear(self):
+        self.items = []
*** Update File: ./README.md
@@
-old
+new
*** End of File
*** Delete File: old.py
*** End Patch
"""


def turn(body: ToolUsed) -> Turn:
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt="go", root="/shop", started_at=1, ended_at=2,
        bodies=(Prompted("go"), body), seqs=(1, 2),
    )  # fmt: skip


def test_every_file_of_a_patch_is_edited_with_its_own_definitions() -> None:
    found = gather_evidence(turn(ToolUsed(patches.PATCH_TOOL, patches.as_tool_input(PATCH, "/shop"))))
    assert found.edited_paths == ("notes.txt", "src/basket.py", "src/cart.py", "README.md", "old.py")
    basket = next(edit.change for edit in found.edits if edit.path == "src/basket.py")
    assert (basket.added_lines, basket.removed_lines) == (4, 1)
    assert (basket.added, set(basket.changed)) == (("clear",), {"Basket", "total"})
    assert {edit.seq for edit in found.edits} == {2}


@pytest.mark.parametrize("name", ["command", "input", "patch", "patchText"])
def test_a_patch_that_nobody_took_apart_is_understood(name: str) -> None:
    found = gather_evidence(turn(ToolUsed(patches.PATCH_TOOL, {name: PATCH})))
    assert found.edited_paths == ("notes.txt", "src/basket.py", "src/cart.py", "./README.md", "old.py")


def test_a_failed_patch_has_edited_nothing() -> None:
    assert (
        gather_evidence(
            turn(ToolUsed(patches.PATCH_TOOL, patches.as_tool_input(PATCH, "/shop"), "no", failed=True))
        ).edited_paths
        == ()
    )


def test_a_giant_patch_loses_lines_and_no_file(config: Config) -> None:
    lines = "\n".join(f"+line {n}" for n in range(20_000))
    text = "*** Begin Patch\n" + "".join(f"*** Add File: f{n}.py\n{lines}\n" for n in range(5)) + "*** End Patch"
    body = ToolUsed(patches.PATCH_TOOL, patches.as_tool_input(text, "/shop"))
    event = Event(id="1", host="codex", content_session_id="s", at=1, body=body)
    kept = sanitize.clean_event(event, config).body
    assert isinstance(kept, ToolUsed)
    assert gather_evidence(turn(kept)).edited_paths == tuple(f"f{n}.py" for n in range(5))


def test_it_can_be_found_by_its_paths_and_by_what_it_added() -> None:
    told = tool_text([ToolUsed(patches.PATCH_TOOL, patches.as_tool_input(PATCH, "/shop"))], root="/shop")
    assert {"notes.txt", "src/basket.py", "src/cart.py", "old.py"} <= set(told.splitlines())
    assert "def clear(self):" in told
    assert "return 0" not in told


def test_a_model_is_shown_what_was_changed_where() -> None:
    shown = "\n".join(_input_parts(patches.as_tool_input(PATCH, "/shop"), "/shop"))
    assert "update /shop/src/cart.py → /shop/src/basket.py" in shown
    assert "+        return self.sum" in shown


@given(st.text(alphabet="*+- @abFile:\n", max_size=200), st.text(max_size=20))
def test_any_text_is_taken_apart_without_a_crash(text: str, cwd: str) -> None:
    stored = patches.as_tool_input(f"{patches.BEGIN_PATCH}\n{text}", cwd)
    assert len(list(patches.stored_patches(stored))) == len(patches.parse_patch(f"{patches.BEGIN_PATCH}\n{text}"))


@pytest.mark.parametrize("odd", [{}, {"changes": None}, {"changes": [1, {}, {"file_path": 3}]}, {"command": 5}])
def test_what_is_no_patch_changes_nothing(odd: dict[str, Any]) -> None:
    assert list(patches.stored_patches(odd)) == []
