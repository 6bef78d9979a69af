"""A summary's fields are shown under labels: a label of their own would stand there twice."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from claude_mem.digest import writer
from claude_mem.domain.records import Author, Prompted, Stopped, Summary, ToolUsed, Turn
from claude_mem.domain.text import single_line, strip_labels
from claude_mem.inject import brief
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.memory import observations
from tests.support.lab import Lab

REST = "the **CSV** writer: use `quantize`"
NEXT = (
    "Next:", "Next", "next steps:", "Next step:", "TODO:", "To do:", "To-do:", "Open:", "Still open:", "Remaining:",
    "Remaining work:", "Follow-up:", "Pending:", "Left to do:", "What's next:", "Next up:", "Next: Next:", "Next steps: TODO:",
)  # fmt: skip
AS = ("{}", "**{}**", "- {}", "- **{}**", "* [ ] {}", "1. {}", "__{}__", "### {}", "_{}_", "➡️ {}", "-  **{}**")
LABELS = {"completed": "Done", "learned": "Learned", "request": "Asked", "next_steps": "Next", "notes": "Open"}


@pytest.mark.parametrize("form", AS)
@pytest.mark.parametrize("label", NEXT)
def test_a_label_is_removed_however_it_is_written(label: str, form: str) -> None:
    first, colon, more = label.partition(":")
    written = [f"{form.format(label)} {REST}"] if colon else []
    written += [f"{form.format(first)}:{more} {REST}", f"{form.format(first)} – {REST}"][: 1 if more else 2]
    written += [f"{form.format(first)}\n{REST}"] if form.strip("{}") and not more else []
    assert {strip_labels("next_steps", text) for text in written} == {REST}


@pytest.mark.parametrize("field", LABELS)
def test_every_field_of_a_summary_loses_its_own_label(field: str) -> None:
    label = LABELS[field]
    for text in (f"{label}: {REST}", f"**{label}:** {REST}", f"{label}: {label}: {REST}", f"**{label}**\n{REST}"):
        assert strip_labels(field, text) == REST
    assert strip_labels(field, f"{label}:") == ""


@pytest.mark.parametrize(
    "text",
    [
        "Open the file in `export.py`", "Next the writer", "Nextcloud: sync it", "Remaining budget: 3", "`TODO:` marks stay",
        "Doneness: check", "*Nothing* is left", "a\n- b", "- a\n- b", "", "-", "1.5 times faster", "todo", "__init__: done",
    ],
)  # fmt: skip
def test_what_is_no_label_stays(text: str) -> None:
    for field in LABELS:
        assert strip_labels(field, text) == text


def test_a_list_is_told_in_one_line() -> None:
    assert (
        single_line("next_steps", "**Next steps:**\n- write it\n- [ ] test it.\n- ship it")
        == "write it; test it. ship it"
    )
    assert single_line("next_steps", "- write it") == "write it"
    assert single_line("request", "- one\n- two") == "- one - two"
    assert single_line("notes", "one\ntwo") == "one two"


def test_old_rows_are_told_without_their_labels() -> None:
    steps = "**Next steps:**\n- Next: wash the doors\n- **TODO:** dry the roofs"
    row: Any = {"id": 1, "session_id": 1, "created_at": 0, "request": "**Request:** paint the fence", "completed": "",
           "next_steps": steps, "notes": "Open: sweep the yard", "outcome": "partly", "provider": "local"}  # fmt: skip
    told = brief.render_brief(brief.ProjectMemory("shop", turns=[row]), budget_tokens=1500).splitlines()
    assert told[told.index("### Last session (1970-01-01): partly done") + 1 :][:4] == [
        "Asked: paint the fence",
        "Open: wash the doors",
        "Open: dry the roofs",
        "Open: sweep the yard",
    ]


def _turn(message: str) -> Turn:
    edit = ToolUsed("Edit", {"file_path": "/p/a.py", "old_string": "a", "new_string": "b"}, {})
    bodies = (Prompted("Paint it"), edit, Stopped(message))
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt="Paint it", root="/p", started_at=0, ended_at=1,
        bodies=bodies, seqs=(1, 2, 3),
    )  # fmt: skip


@pytest.mark.parametrize("label", ["Next:", "**Next steps:**", "TODO:", "Remaining:", "- [ ] Next:", "## Next\n"])
def test_what_the_agent_said_is_summed_up_without_its_labels(label: str) -> None:
    made = writer.compose_digest(
        _turn(f"The fence is painted white now.\n\n{label} the gate still needs a second coat.")
    )
    assert made.summary is not None
    assert made.summary.next_steps == "The gate still needs a second coat"


def test_no_field_is_stored_with_a_label(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt="Paint it", prompt_id="p1")
    lab.spool("Stop", prompt_id="p1", last_assistant_message="The fence is painted white now, on both sides.")
    assert lab.drain() == 0
    fields: dict[str, Any] = {name: f"{label}: so" for name, label in LABELS.items()}
    made = Summary(**fields, investigated="Looked into: so")

    def put(conn: Any) -> None:
        turn = Turn(
            id=1, session_id=1, project_id=1, number=1, prompt="", root="", started_at=0, ended_at=1, bodies=(), seqs=()
        )
        observations.upsert_summary(conn, turn, made, by=Author(), now=1)

    with closing(Database(lab.data / "claude-mem.db", backups=lab.data / "backups")) as db:
        db.write_now(put)
    assert lab.rows("select request, investigated, learned, completed, next_steps, notes from session_summaries") == [
        ("so",) * 6
    ]
