"""Private parts and keys that run over several texts: the lines of a patch, blocks, cells, edits, values one after another."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_mem import hook
from claude_mem.agents import claude as claude_agent
from claude_mem.agents import codex as codex_agent
from claude_mem.agents import copilot as copilot_agent
from claude_mem.agents import gemini as gemini_agent
from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.domain.records import Event, ToolUsed
from claude_mem.privacy import tags
from claude_mem.privacy.secrets import redact_json, redact_lines
from claude_mem.privacy.tags import strip_private, strip_private_fields, strip_private_json
from tests.security.test_privacy import CANARY, NEVER, files_with, note, spellings
from tests.storage.test_portable import observation
from tests.support.amounts import many
from tests.support.lab import HOOK, Lab
from tests.support.moving import write
from tests.support.secret_corpus import Maker, pieces
from tests.worker.test_reconcile import Transcript

OPEN = "λμν"  # what anyone may read
Shape = Callable[[list[str]], Any]


# --- shapes ----------------------------------------------------------------------------------------------------------


def _patch(texts: list[str]) -> Any:
    signs = "+- "
    lines = [f"{signs[number % 3]}{line}" for number, text in enumerate(texts) for line in text.split("\n")]
    return {"filePath": "/shop/a.py", "structuredPatch": [{"oldStart": 1, "newLines": len(lines), "lines": lines}]}


def _hunks(texts: list[str]) -> Any:
    return {"structuredPatch": [{"oldStart": number, "lines": [f" {text}"]} for number, text in enumerate(texts)]}


def _edits(texts: list[str]) -> Any:
    return {
        "file_path": "/shop/a.py",
        "edits": [{"old_string": "a", "new_string": text, "replace_all": False} for text in texts],
    }


def _cells(texts: list[str]) -> Any:
    return {"cells": [{"cell_type": "code", "source": [text, "\n"], "outputs": []} for text in texts]}


def _streams(texts: list[str]) -> Any:
    middle = len(texts) // 2
    return {"stdout": "\n".join(texts[:middle]), "stderr": "\n".join(texts[middle:]), "interrupted": False}


def _nested(texts: list[str]) -> Any:
    value: Any = []
    for text in reversed(texts):
        value = {"content": [{"type": "text", "text": text}, value]}
    return value


SHAPES: dict[str, Shape] = {
    "list": list,
    "patch": _patch,
    "hunks": _hunks,
    "blocks": lambda texts: [{"type": "text", "text": text} for text in texts],
    "blocks in a result": lambda texts: {"content": [{"type": "text", "text": text} for text in texts]},
    "cells": _cells,
    "edits": _edits,
    "old and new": lambda texts: {"file_path": "/a", "old_string": texts[0], "new_string": "\n".join(texts[1:])},
    "streams": _streams,
    "values": lambda texts: {f"part{number}": text for number, text in enumerate(texts)},
    "nested": _nested,
    "mixed": lambda texts: {"a": texts[:1], "b": [{"c": text} for text in texts[1:]]},
    "parts": lambda texts: {"llmContent": [{"text": text} for text in texts], "returnDisplay": "done"},
    "lists in lists": lambda texts: [[text] for text in texts],
    "rows": lambda texts: {"rows": [[number, text, None] for number, text in enumerate(texts)]},
}
TAGS = (
    "<private>",
    "< Private reason='x'>",
    "&lt;private&gt;",
    "\\u003cprivate\\u003e",
    "<\x1b[01;31m\x1b[Kprivate\x1b[m>",
)
ENDS = ("</private>", "</ PRIVATE >", "&lt;/private&gt;", "\\u003c/private\\u003e", "</\x1b[01;31mprivate\x1b[m>")


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Texts that follow each other, and those of their words that must be left. What is hidden has the canary in it."""
    texts: list[str] = []
    left: list[str] = []

    def say(text: str) -> None:
        texts.append(text) if not texts or draw(st.booleans()) else texts.append(f"{texts.pop()}\n{text}")

    for number in range(draw(st.integers(1, 3))):
        left.append(f"{OPEN}{number}")
        say(left[-1])
        say(draw(st.sampled_from(TAGS)))
        for _ in range(draw(st.integers(1, 3))):
            say(CANARY)
        say(draw(st.sampled_from(ENDS)))
    if draw(st.booleans()):
        left.append(f"{OPEN}last")
        say(left[-1])
    else:
        say(draw(st.sampled_from(TAGS)))
        say(CANARY)
    return texts, left


def test_a_private_part_that_runs_over_several_texts_is_hidden_and_nothing_else() -> None:
    seen = set()

    @settings(NEVER, max_examples=many(5_200))
    @given(st.sampled_from(sorted(SHAPES)), documents())
    def each(shape: str, document: tuple[list[str], list[str]]) -> None:
        texts, left = document
        value = SHAPES[shape](texts)
        seen.add((shape, *texts))
        kept = json.dumps(strip_private_json(value), ensure_ascii=False)
        assert CANARY not in kept
        assert [word for word in left if word not in kept] == []
        assert "tool_use_id" in strip_private_fields({"tool_response": value, "tool_use_id": "toolu_1"})

    each()
    assert len(seen) >= many(3_000)
    note("private parts over lists, blocks, cells and edits: leaks, or open text that was cut", len(seen), goal="0")


def test_without_a_tag_a_value_stays_as_it_is() -> None:
    for shape in SHAPES.values():
        value = shape(["a", "b > c", "`</privately>`"])
        assert strip_private_json(value) == value


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tag_that_is_never_closed_hides_the_rest_of_its_field_and_no_other(shape: str) -> None:
    fields = {"tool_input": SHAPES[shape](["<private>", CANARY, CANARY]), "tool_use_id": "t1", "prompt": OPEN}
    kept = strip_private_fields(fields)
    assert CANARY not in json.dumps(kept)
    assert (kept["tool_use_id"], kept["prompt"]) == ("t1", OPEN)


@pytest.mark.parametrize("names", [("tool_input", "tool_response"), ("input", "output"), ("tool_input", "tool_result")])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_tag_that_is_never_closed_hides_the_rest_of_its_event(names: tuple[str, str], swapped: bool) -> None:
    given, answered = names
    fields = {
        given: {"command": f"{OPEN} <private> {CANARY}"},
        answered: {"stdout": CANARY, "n": 1},
        "session_id": "s1",
    }
    kept = strip_private_fields(dict(reversed(fields.items())) if swapped else fields)
    assert CANARY not in json.dumps(kept)
    assert OPEN in json.dumps(kept, ensure_ascii=False)
    assert kept["session_id"] == "s1"
    closed = strip_private_fields({**fields, answered: {"stdout": f"{CANARY}</private>{OPEN} 2"}})
    assert CANARY not in json.dumps(closed)
    assert closed[answered] == {"stdout": f"{OPEN} 2"}


@pytest.mark.parametrize("shape", ["list", "blocks", "cells", "edits", "values", "lists in lists"])
@pytest.mark.parametrize("at", range(1, 9))
def test_a_tag_that_begins_in_one_text_and_ends_in_the_next_is_one(shape: str, at: int) -> None:
    begin, end = "<private>", "</private>"
    if shape == "edits":  # another text stands between them
        value: Any = {"a": begin[:at], "b": {"c": f"{begin[at:]}{CANARY}", "d": CANARY, "e": end[:at], "f": end[at:]}}
    else:
        value = SHAPES[shape]([begin[:at], f"{begin[at:]}{CANARY}", CANARY, f"{CANARY}{end[:at]}", f"{end[at:]}"])
    if shape == "cells":
        value = {"cells": [{"source": cell["source"][:1]} for cell in value["cells"]]}
    if shape == "blocks":
        value = [{"text": block["text"]} for block in value]
    assert CANARY not in json.dumps(strip_private_json(value))


def test_keys_and_numbers_in_a_hidden_part_are_hidden() -> None:
    value = {"a": "<private>", CANARY: 1, "pin": 4711, "list": [4711.5, True], "z": f"</private>{OPEN}"}
    kept = json.dumps(strip_private_json(value), ensure_ascii=False)
    assert CANARY not in kept
    assert "4711" not in kept
    assert OPEN in kept


def test_after_a_hundred_tags_the_rest_of_a_list_is_hidden() -> None:
    assert strip_private_json(["<private></private>" * 60, CANARY]) == ["", ""]


# --- tags that are split between texts -------------------------------------------------------------------------------

BRACKETS = (
    ("<", ">"), ("＜", "＞"), ("&lt;", "&gt;"), ("&#60;", "&#62;"), ("&#0060;", "&#0062;"), ("&#x3C;", "&#x3E;"), ("\\u003c", "\\u003e"),
    ("\\uff1c", "\\uff1e"), ("\\x3c", "\\x3e"), ("%3C", "%3E"),
)  # fmt: skip
SLASHES = ("/", "／", "\\/", "\\u002f", "%2F")
NAMES = (
    "private", " PRIVATE", "private note='x'", "pri\x1b[01;31mvate", "pr\\u001b[0mivate", "p\u200brivate", "prívate", "ｐｒｉｖａｔｅ", "рrivаtе",
    'private note="</private>"',
)  # fmt: skip
SIGNS = "ΩΨΞ"  # any of them must not be left, in whatever piece it is
PARTED_SHAPES = ("list", "blocks", "blocks in a result", "values", "nested", "lists in lists", "rows", "mixed")


def _pieces(text: str, at: set[int]) -> list[str]:
    cuts = [0, *sorted(at), len(text)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


@st.composite
def split_parts(draw: st.DrawFn) -> list[str]:
    """A text with a private part, in pieces."""
    (left, right), (end_left, end_right) = draw(st.sampled_from(BRACKETS)), draw(st.sampled_from(BRACKETS))
    opening = f"{left}{draw(st.sampled_from(NAMES))}{right}"
    closing = f"{end_left}{draw(st.sampled_from(SLASHES))}{draw(st.sampled_from(NAMES[:-1]))}{end_right}"
    before = draw(st.sampled_from(("", OPEN, f"{OPEN} < ", "<p ", "&", "\\")))
    text = f"{before}{opening}{SIGNS}\n{SIGNS}{draw(st.sampled_from((closing + OPEN, '')))}"
    return _pieces(text, draw(st.sets(st.integers(0, len(text)), max_size=len(text))))


@settings(NEVER, max_examples=many(5_000))
@given(st.sampled_from(PARTED_SHAPES), split_parts())
def test_no_split_of_a_tag_shows_a_private_part(shape: str, texts: list[str]) -> None:
    value = SHAPES[shape](texts)
    payload = {"tool_input": value, "session_id": "s1"}
    for kept in (strip_private_json(value), strip_private_fields(payload)):
        assert not set(SIGNS) & set(json.dumps(kept, ensure_ascii=False))
    for written in (json.dumps(payload), json.dumps(payload, ensure_ascii=False)):
        assert hook.may_contain_private_tag(written.encode())


@pytest.mark.parametrize(("left", "right"), BRACKETS)
@pytest.mark.parametrize("name", NAMES)
def test_a_tag_of_which_each_character_is_a_text_is_one(left: str, right: str, name: str) -> None:
    opening, closing = f"{left}{name}{right}", f"{left}/private{right}"
    assert strip_private_json([*opening, *CANARY])[len(opening) :] == [""] * len(CANARY)
    texts = [*opening, *CANARY, *closing, *OPEN]
    assert "".join(strip_private_json(texts)[len(opening) :]).endswith(OPEN)
    assert strip_private_json({"a": f"{CANARY}{closing[:-3]}", "b": closing[-3:], "c": OPEN})["a"] == ""


@pytest.mark.parametrize("at", range(1, 9))
def test_what_two_texts_join_to_does_not_open_what_one_text_hides(at: int) -> None:
    assert strip_private_json(["<private", "ly", CANARY, "</private>", OPEN]) == ["", "", "", "", OPEN]
    parts = ["<private>a", *_pieces("</private", {at}), f"x{CANARY}</private>"]
    assert CANARY not in str(strip_private_json(parts))


def test_a_number_between_the_texts_of_a_hidden_part_is_hidden() -> None:
    value = {"a": 1, "b": "<pri", "c": "vate>x", "pin": 4711, "d": "</pri", "e": "vate>", "f": 2}
    kept = strip_private_json(value)
    assert (kept["a"], kept["f"]) == (1, 2)
    assert "4711" not in str(kept)


def test_many_split_tags_take_linear_time() -> None:
    def seconds(count: int) -> float:
        texts = [*"&lt;private&gt;x&lt;/private&gt;"] * count + ["</private "] * count + ["<" + " " * 60] * count
        begin = time.process_time()
        strip_private_json(texts)
        return time.process_time() - begin

    seconds(10)
    # Ten times the input: a quadratic scan takes a hundred times as long. Each is the best of three, for a busy machine.
    large, small = (min(seconds(count) for _ in range(3)) for count in (4_000, 400))
    assert large < max(0.5, 30 * small)


# --- a closing tag that nothing opened -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (f"{CANARY}\n</private>\n{OPEN}", f"\n{OPEN}"),
        (f"    12→{CANARY}\n    13→</private>\n    14→{OPEN}", f"\n    14→{OPEN}"),
        ([CANARY, "</private>", OPEN], ["", "", OPEN]),
        ([{"lines": [CANARY]}, {"lines": ["</private>", OPEN]}], [{"lines": [""]}, {"lines": ["", OPEN]}]),
        (f"{CANARY} <private>b</private> {CANARY} </private> {OPEN}", f" {OPEN}"),
        ({"file_path": "/a", "old_string": f"{CANARY}</private>"}, {"file_path": "/a", "old_string": ""}),
        (f"It ends with `</private>`, {OPEN}", f"It ends with ``, {OPEN}"),
        (f"{OPEN} </claude-mem-context>", f"{OPEN} "),
    ],
)
def test_a_closing_tag_that_nothing_opened_hides_what_stands_before_it(value: Any, kept: Any) -> None:
    assert strip_private_json(value) == kept


@pytest.mark.parametrize("shape", ["list", "patch", "hunks", "blocks", "cells", "edits", "lists in lists", "rows"])
def test_a_list_that_begins_within_a_private_part_is_hidden_up_to_its_end(shape: str) -> None:
    kept = json.dumps(
        strip_private_json({"x": SHAPES[shape]([CANARY, CANARY, "</private>", OPEN])}), ensure_ascii=False
    )
    assert CANARY not in kept
    assert OPEN in kept


def test_a_closing_tag_that_moved_in_a_patch_hides_what_it_hid_before_or_hides_now() -> None:
    for lines in (
        [" <private>", " a", "-</private>", f" {CANARY}", "+</private>"],
        [" <private>", " a", "+</private>", f" {CANARY}", "-</private>"],
        ["-<private>", f" {CANARY}", "+<private>", f" {CANARY}", " </private>"],
    ):
        assert CANARY not in str(strip_private_json({"structuredPatch": [{"lines": lines}]}))


# --- tags as people see them -----------------------------------------------------------------------------------------

DISGUISED = (
    "<\x1b[01;31m\x1b[Kprivate\x1b[m\x1b[K>", "<\x1b[1mpriv\x1b[0mate>", "\x1b[31m<private\x1b[0m>", "<\\u001b[31mprivate\\u001b[0m>",
    "<ｐｒｉｖａｔｅ>", "＜ＰＲＩＶＡＴＥ＞", "<prívate>", "<PRÏVÄTÉ>", "<prıvate>".replace("ı", "ì"), "<privaté>", "<pri\u0301vate>",
    "<рrivаtе>", "<prινate>", "<𝐩𝐫𝐢𝐯𝐚𝐭𝐞>", "<ⓟⓡⓘⓥⓐⓣⓔ>", "<private note=\"</private>\">", "<private note='until </private> comes'>",
)  # fmt: skip


@pytest.mark.parametrize("tag", DISGUISED)
def test_a_tag_that_only_looks_like_one_is_one(tag: str) -> None:
    before = tag.partition("<")[0] if "<" in tag else ""  # a colour that begins before it
    assert strip_private(f"{OPEN} {tag}{CANARY}</private> {OPEN}") == f"{OPEN} {before} {OPEN}"
    assert all(map(hook.may_contain_private_tag, spellings(f"{tag}{CANARY}")))


def test_the_hook_knows_the_letters_that_the_scanner_knows() -> None:
    assert hook.LOOKALIKES == tags.LOOKALIKES
    for letter, others in tags.LOOKALIKES.items():
        for other in others:
            text = f"<{'private'.replace(letter, other)}>{CANARY}"
            assert strip_private(text) == "", other
            assert all(map(hook.may_contain_private_tag, spellings(text))), other


@pytest.mark.parametrize(
    "text", ["naïve café", "привет <b>мир</b>", "\x1b[31mred\x1b[0m < 3", "全角：ＡＢ", "→ ✓ ok", "e\u0301"]
)
def test_other_letters_and_colours_are_left_alone(text: str) -> None:
    assert strip_private(text) == text
    assert text == "全角：ＡＢ" or not any(map(hook.may_contain_private_tag, spellings(text)[:2]))


# --- keys ------------------------------------------------------------------------------------------------------------


def keys() -> list[str]:
    make = Maker(5)
    return [make.pem("RSA "), make.pem("OPENSSH "), make.pem("PGP ", block=" BLOCK")]


LINED: dict[str, Shape] = {
    name: SHAPES[name] for name in ("list", "patch", "blocks", "blocks in a result", "cells", "edits", "parts")
}


@pytest.mark.parametrize("shape", LINED)
@pytest.mark.parametrize("number", range(3))
def test_a_key_whose_lines_are_texts_of_a_list_is_replaced_whole(number: int, shape: str) -> None:
    key = keys()[number]
    lines = [f"{OPEN}1", *key.split("\n"), f"{OPEN}2"]
    if shape == "cells":
        value: Any = {"cells": [{"cell_type": "code", "source": [f"{line}\n" for line in lines]}]}
    else:
        value = LINED[shape](lines)
    kept = json.dumps(redact_json(value), ensure_ascii=False)
    assert [piece for piece in pieces(key) if piece in kept] == []
    assert "[redacted private-key]" in kept
    assert f"{OPEN}1" in kept
    assert f"{OPEN}2" in kept


def test_texts_that_are_redacted_together_stay_as_many_and_in_their_places() -> None:
    key = keys()[0].split("\n")
    token = "gh" + "p_" + Maker(2).some(36)
    lines = ["a", "", f"x {token} y", "b\nc", *key, f"{key[-1]} d", "e [redacted] f", f"{token}", "", "g"]
    new = redact_lines(lines)
    assert len(new) == len(lines)
    assert [new[at] for at in (0, 1, 2, 3)] == ["a", "", "x [redacted github-token] y", "b\nc"]
    assert new[-4:] == ["e [redacted] f", "[redacted github-token]", "", "g"]
    assert redact_lines(["a", "b\n", ""]) == ["a", "b\n", ""]
    todo = ["Add the auth token:", "Refactor2 the parser", "Tokens:", "model-3-5 used 1200"]
    assert redact_lines(todo) == todo
    assert redact_lines(["--token", "x9fQ2vLm77", "--all"]) == ["--token", "[redacted]", "--all"]


@settings(NEVER, max_examples=many(1_000))
@given(
    st.lists(
        st.sampled_from(("a", "", "\n", "[redacted]", "password=x9fQ2vLm77", "b\nc", *keys()[0].split("\n")[:3])),
        max_size=9,
    )
)
def test_any_texts_can_be_redacted_together(texts: list[str]) -> None:
    new = redact_lines(texts)
    assert len(new) == len(texts)
    assert "x9fQ2vLm77" not in "".join(new)


# --- the whole way ---------------------------------------------------------------------------------------------------

PARTED = [f"{OPEN} before", "<private>", CANARY, CANARY, "</private>", f"{OPEN} after"]


def check_nowhere(lab: Lab) -> None:
    """In no file of the data folder: spool, database, write-ahead log, backup."""
    assert files_with(lab, CANARY) == []
    lab.mem("drain")
    assert lab.status()["queued"] == 0
    assert files_with(lab, CANARY) == []
    assert lab.status()["set_aside"] == 0
    lab.mem("backup")
    lab.mem("stop")
    assert files_with(lab, CANARY) == []


def run_hook(lab: Lab, command: str, host: str, payload: dict[str, Any]) -> None:
    lab.no_worker()
    done = subprocess.run(
        [*HOOK, command, "", host],
        input=json.dumps(payload).encode(),
        env=lab.env(),
        cwd=lab.project,
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert done.stderr == b""


@pytest.mark.parametrize("shape", ["patch", "hunks", "blocks in a result", "cells", "streams", "values"])
def test_no_part_of_an_edits_answer_reaches_a_file(lab: Lab, shape: str) -> None:
    given = {"file_path": str(lab.project / "a.py"), "old_string": "a", "new_string": "\n".join(PARTED)}
    called = {"session_id": "s1", "hook_event_name": "PostToolUse", "cwd": str(lab.project), "tool_name": "Edit"}
    response = SHAPES[shape](PARTED)
    run_hook(lab, "save", "claude", {**called, "tool_input": given, "tool_response": response, "tool_use_id": "t1"})
    many_edits = {**called, "tool_name": "MultiEdit", "tool_input": _edits(PARTED), "tool_response": {"ok": True}}
    run_hook(lab, "save", "claude", {**many_edits, "tool_use_id": "t2"})
    check_nowhere(lab)
    assert lab.rows("select count(*) from events where kind = 'tool'") == [(2,)]
    assert files_with(lab, f"{OPEN} after")


def dialects(project: str) -> dict[str, dict[str, Any]]:
    """A private part over several texts, as each agent tells of a call."""
    blocks = [{"type": "text", "text": text} for text in PARTED]
    claude = {"session_id": "s1", "hook_event_name": "PostToolUse", "cwd": project, "tool_use_id": "t1"}
    edits = [{"old_string": "a", "new_string": text} for text in PARTED]
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n" + "\n".join(f"+{text}" for text in PARTED)
    parts = [{"text": text} for text in PARTED]
    replaced = {"file_path": "a.py", "old_string": PARTED[0], "new_string": PARTED[-1]}
    return {
        "claude": {**claude, "tool_name": "mcp__x__y", "tool_input": {"q": 1}, "tool_response": blocks},
        "codex": {
            **claude, "tool_name": "mcp__x__y", "tool_input": {"list": PARTED}, "tool_response": {"content": blocks}
        },
        "gemini": {
            **claude, "hook_event_name": "AfterTool", "tool_name": "replace", "tool_input": replaced,
            "tool_response": {"llmContent": parts, "returnDisplay": {"fileDiff": diff}},
        },
        "qwen": {
            **claude, "tool_name": "read_many", "tool_input": {"paths": PARTED}, "tool_response": {"llmContent": parts}
        },
        "cursor": {
            "conversation_id": "s1", "generation_id": "g1", "hook_event_name": "afterFileEdit",
            "workspace_roots": [project], "file_path": f"{project}/a.py", "edits": edits,
        },
        "windsurf": {
            "trajectory_id": "s1", "agent_action_name": "post_write_code",
            "tool_info": {"file_path": f"{project}/a.py", "edits": edits},
        },
        "copilot": {
            **claude, "tool_name": "edit", "timestamp": "2026-01-02T03:04:05Z",
            "tool_input": {"path": "a.py", "old_str": "\n".join(PARTED[:2]), "new_str": "\n".join(PARTED[2:])},
            "tool_result": {"result_type": "success", "text_result_for_llm": "ok"},
        },
        "opencode": {
            **claude, "tool_name": "edit", "tool_input": {"filePath": "a.py", "edits": edits}, "tool_response": PARTED
        },
    }  # fmt: skip


@pytest.mark.parametrize("host", sorted(dialects("/")))
def test_no_agents_way_to_tell_of_a_call_lets_a_private_part_through(lab: Lab, host: str) -> None:
    run_hook(lab, "save", host, dialects(str(lab.project))[host])
    check_nowhere(lab)
    assert lab.rows("select count(*) from events where kind = 'tool'") == [(1,)]


@pytest.mark.parametrize(
    "texts", [["<pri", "va", f"te>{CANARY}"], ["&l", f"t;private>{CANARY}"], ["＜", f"private＞{CANARY}"]]
)
def test_the_hook_hides_a_part_whose_tag_is_split(lab: Lab, texts: list[str]) -> None:
    claude = {"session_id": "s1", "hook_event_name": "PostToolUse", "cwd": str(lab.project), "tool_use_id": "t1"}
    run_hook(
        lab, "save", "claude", {**claude, "tool_name": "x", "tool_input": {}, "tool_response": SHAPES["blocks"](texts)}
    )
    check_nowhere(lab)


@pytest.mark.parametrize("host", sorted(dialects("/")))
def test_ingest_hides_it_too_if_no_hook_did(lab: Lab, host: str) -> None:
    header = f"command save\nhost {host}\nproject_dir {lab.project}\n\n"
    lab.raw_spool(header.encode() + json.dumps(dialects(str(lab.project))[host]).encode())
    assert files_with(lab, CANARY)
    lab.mem("drain")
    assert files_with(lab, CANARY) == []
    assert lab.rows("select count(*) from events where kind = 'tool'") == [(1,)]


def test_no_transcript_brings_it_back(lab: Lab, tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "talk.jsonl")
    where = {"transcript_path": str(transcript.path), "prompt_id": "p1"}
    lab.spool("UserPromptSubmit", at=int(transcript.clock * 1000), prompt="go", **where)
    transcript.prompt("go", "p1")
    for name, shape in SHAPES.items():
        transcript.use(name, "Edit", file_path=str(lab.project / "a.py"), edits=_edits(PARTED)["edits"])
        block = {"type": "tool_result", "tool_use_id": name, "content": "ok"}
        message = {"role": "user", "content": [block]}
        transcript._write("user", message, toolUseResult=shape(PARTED), promptId="p1")
    lab.spool("Stop", at=int(transcript.clock * 1000) + 1, last_assistant_message="Done.", **where)
    lab.mem("drain")
    assert lab.rows("select count(*) from events where kind = 'tool'") == [(len(SHAPES),)]
    assert files_with(lab, CANARY) == []


def _told(found: Any) -> str:
    assert found.events
    return repr(found.events)


def transcripts() -> dict[str, list[dict[str, Any]]]:
    """The records of a call with a private part over several texts, as each agent writes them."""
    blocks = [{"type": "text", "text": text} for text in PARTED]
    claude = [
        {
            "type": "assistant",
            "uuid": "1",
            "message": {"content": [{"type": "tool_use", "id": "c", "name": "X", "input": {}}]},
        },
        {
            "type": "user",
            "uuid": "2",
            "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": blocks}]},
            "toolUseResult": {"content": PARTED[:3], "more": PARTED[3:]},  # the part that opens it is not kept
        },
    ]
    codex = [
        {"type": "session_meta", "payload": {"id": "s", "cwd": "/shop"}},
        {"type": "response_item", "payload": {"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": blocks}},
    ]
    copilot = [
        {"type": "session.start", "id": "1", "data": {"sessionId": "s"}},
        {
            "type": "tool.execution_start",
            "id": "2",
            "data": {"toolCallId": "c", "toolName": "x", "arguments": {"a": PARTED}},
        },
        {
            "type": "tool.execution_complete",
            "id": "3",
            "data": {"toolCallId": "c", "success": True, "result": {"content": "k"}},
        },
    ]
    return {"claude": claude, "codex": codex, "copilot": copilot}


def test_no_reader_of_transcripts_keeps_it(tmp_path: Path) -> None:
    readers = {"claude": claude_agent, "codex": codex_agent, "copilot": copilot_agent}
    for name, records in transcripts().items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert CANARY not in _told(readers[name].read(path, host=name, over=True)), name


def test_the_reader_of_a_chat_file_does_not_keep_it(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": text} for text in PARTED]
    gemini = {
        "projectHash": "h",
        "sessionId": "s",
        "messages": [
            {"id": "1", "type": "user", "content": "go"},
            {
                "id": "2",
                "type": "gemini",
                "content": "",
                "toolCalls": [{"id": "c", "name": "x", "args": {"a": PARTED}, "status": "success", "result": blocks}],
            },
        ],
    }
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps(gemini))
    assert CANARY not in _told(gemini_agent.read(path, host="gemini"))


def test_an_import_and_a_scrub_read_lists_as_one_document(lab: Lab, tmp_path: Path) -> None:
    key = keys()[0]
    odd = observation("A fact", facts=(*PARTED, *key.split("\n"), f"{OPEN} end"))
    lab.mem("import", str(write(tmp_path / "theirs.jsonl", [odd])))
    lab.mem("stop")
    assert files_with(lab, CANARY) == []
    stored = str(lab.rows("select facts from observations"))
    assert [piece for piece in pieces(key) if piece in stored] == []
    assert f"{OPEN} end" in json.loads(lab.rows("select facts from observations")[0][0])


def test_scrub_hides_tags_that_were_not_known_as_such(lab: Lab) -> None:
    lab.spool("PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_response={"stdout": "fine"})
    lab.mem("drain")
    kept = [f"<\x1b[01;31mprivate\x1b[m>{CANARY}", CANARY, f"</private>{OPEN}"]
    (before,) = lab.rows("select body from events where kind = 'tool'")
    body = {**json.loads(before[0]), "output": {"lines": kept}}
    conn = apsw.Connection(str(lab.data / "claude-mem.db"))
    conn.execute("update events set body = ? where kind = 'tool'", (json.dumps(body),))
    conn.close()
    lab.mem("scrub", "--yes")
    lab.mem("stop")
    (after,) = lab.rows("select body from events where kind = 'tool'")
    assert CANARY not in after[0]
    assert json.loads(after[0])["output"] == {"lines": ["", "", OPEN]}


def test_a_tool_call_is_cleaned_as_a_whole() -> None:
    """A key in a patch, and a private part in it, on the way in."""
    key = keys()[1]
    given = {"file_path": "/shop/a.py", "old_string": "a", "new_string": "b"}
    lines = [*(f"+{line}" for line in key.split("\n")), *(f" {text}" for text in PARTED)]
    body = ToolUsed("Edit", given, {"structuredPatch": [{"oldStart": 3, "lines": lines}]})
    event = Event(id="e1", host="claude", content_session_id="s1", at=0, body=body)
    kept = sanitize.clean_event(event, Config()).body
    assert isinstance(kept, ToolUsed)
    told = repr(kept.output)
    assert CANARY not in told
    assert [piece for piece in pieces(key) if piece in told] == []
    assert len(kept.output["structuredPatch"][0]["lines"]) == len(lines)
    assert f" {OPEN} before" in kept.output["structuredPatch"][0]["lines"]
    assert re.search(r"\[redacted private-key\]", told)
