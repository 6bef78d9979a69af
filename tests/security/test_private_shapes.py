"""`<private>` as tools print it, in every field and key of a call, and in transcripts: nothing of it is stored."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.agents import registry
from claude_mem.privacy import tags
from claude_mem.privacy.tags import strip_private, strip_private_fields, strip_private_json
from tests.security.test_privacy import CANARY, spellings

ESC = "\x1b"
TAGS = {
    "escaped several times": ["&amp;lt;private&amp;gt;", "&amp;amp;lt;private&gt;", "%253Cprivate%253E", "\\\\u003cprivate>"],
    "an entity without its end": ["&lt private&gt", "&#60 private>", "&LT;private&GT;", "&#000000060;private>"],
    "escapes of languages": ["\\074private\\076", "\\u{3c}private\\u{3e}", "\\x3Cprivate\\x3E", "=3Cprivate=3E"],
    "other angle brackets": ["‹private›", "⟨private⟩", "﹤private﹥", "〈private〉"],
    "terminal sequences": [
        f"<{ESC}[4;38;2;1;2;3mpriv{ESC}[24mate>", f"<{ESC}[Cprivate>", f"<{ESC}(Bprivate{ESC}(B>", "<\x9b31mprivate\x9b0m>",
        f"<{ESC}]8;;http://x\x07private{ESC}]8;;\x07>", f"<pri{ESC}]0;title{ESC}\\vate>", "<\\033[31mprivate\\033[0m>",
        "<\\e[1mprivate\\e[0m>", "<\\x1b[1mprivate>",
    ],
    "overstruck": ["<p\bprivate>", "<p\bpr\bri\biv\bva\bat\bte\be>", "<_\bp_\br_\bi_\bv_\ba_\bt_\be>"],
    "control characters": ["<pri\x00vate>", "<pri\x01vate>", "<pri\x7fvate>", "<\rprivate>", "<pri\x85vate>"],
    "invisible": [
        "<\u202eprivate>", "<\u2066private\u2069>", "<pri\ufe0fvate>", "<pri\U000e0020vate>", "<pri\u180evate>",
        "<pri\u3164vate>", "<\u2800private>", "<pri\ufffdvate>", "<pri\ud800vate>",
    ],
    "broken over lines": ["<pri\nvate>", "<\n  private\n>", "<p r i v a t e>"],
    "letters that look alike": [
        "<prıvate>", "<PRİVATE>", "<Ꮲrivate>", "<prⅰⅴate>", "<ℙrivate>", "<ᵖʳⁱᵛᵃᵗᵉ>", "<ᴘʀɪᴠᴀᴛᴇ>", "<⒫⒭⒤⒱⒜⒯⒠>", "<🄿🅁🄸🅅🄰🅃🄴>",
        "<🅟🅡🅘🅥🅐🅣🅔>", "<🅿🆁🅸🆅🅰🆃🅴>", "<🇵🇷🇮🇻🇦🇹🇪>", "<ρгivаτe>",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", TAGS)
def test_a_tag_is_one_however_a_tool_prints_it(kind: str) -> None:
    for tag in TAGS[kind]:
        assert CANARY not in strip_private(f"open {tag}{CANARY}"), tag
        assert all(map(hook.may_contain_private_tag, spellings(f"{tag}{CANARY}")[:2])), tag
        closing = tag.replace("p", "/p", 1).replace("P", "/P", 1)
        assert CANARY not in strip_private(f"{tag}{CANARY}{closing}"), tag


@pytest.mark.parametrize(
    "text",
    [
        f"{ESC}[<private", "a < b\nprivate int c;", "60 private rooms", "#3c private", "\\n.join(x)", "< pr\n iv", "🇯🇵 private",
        "‹prev› private", "if (a <\n b) private_ = 1", "\\bprivate\\b", f"{ESC}]0;private\x07",
    ],
)  # fmt: skip
def test_ordinary_text_with_such_signs_is_left_alone(text: str) -> None:
    if text.startswith(f"{ESC}[<"):
        assert strip_private(text) == f"{ESC}["  # a tag within a sequence is still one
    else:
        assert strip_private(text) == text


# Ordinary text that looks like an opening or closing tag: nothing of it is hidden.
LIKE_TAGS = (
    "wg pubkey < private.key > public.key; ls", "openssl rsa <private.pem -out b", "cat <private.key.pem", "sort < private/list.txt | uniq",
    "sort < /private/tmp/a.txt > b", "diff </private/var/a b", "#include <private.h>\nint x;", "#include <private/impl.hpp>\nint x;",
    "let x: Vec<Private> = y", "fn f(x: Box<Private>) {}", "Vec<Vec<Private>> x", "List<Private>::new()", "Box<private::Key> x",
    "Jane <private@example.org> wrote", "create [--visibility <private|public|internal>] name", "<private | public> x",
    "<PrivateRoute path='/a'>", "<privateKey>x</privateKey>", "a <private_count b", "List<privateKey, x>",
)  # fmt: skip
# The same signs, but a tag, a look-alike of one, or not certain: the rest is hidden.
STILL_TAGS = (
    "<private.", "<private. ", "<private.\n", "<private.note>", "< private >", "<private|note>", "<private@home>", "a<private>;", "a<PRIVATE>;",
    "A<Private> ", "A<Private>\n", "A< Private>;", "<private/>", "< private/ ", "<private:key>", "&lt;private.key ", "\uff1cprivate.key ",
    "<pr\u0456vate.key ", "<private\u200b.key ", "<private\n.key ",
)  # fmt: skip


@pytest.mark.parametrize("text", LIKE_TAGS)
def test_ordinary_text_that_looks_like_a_tag_is_left_alone(text: str) -> None:
    assert strip_private(text) == text
    assert strip_private(f"{text} <private>{CANARY}</private> c") == f"{text}  c"
    assert CANARY not in strip_private(f"{text} {CANARY}</private>"), "a closing tag hides what stands before it"
    assert CANARY not in strip_private(f"<private>{text} {CANARY}</private> c")
    assert strip_private_json({"a": [text, "b"]}) == {"a": [text, "b"]}


@pytest.mark.parametrize("text", STILL_TAGS)
def test_what_is_not_certainly_ordinary_text_hides_the_rest(text: str) -> None:
    assert CANARY not in strip_private(f"open {text}{CANARY}")
    assert CANARY not in json.dumps(strip_private_json(["open", text, CANARY]))


@pytest.mark.parametrize("text", LIKE_TAGS)
def test_ordinary_text_that_is_split_may_be_hidden_and_never_shows_more(text: str) -> None:
    for at in range(1, len(text)):
        for rest in (CANARY, f">{CANARY}", f"|{CANARY}>"):
            left = json.dumps(strip_private_json([text[:at], text[at:], "<private", rest]))
            assert CANARY not in left, (text[:at], text[at:], rest)


CALL = {"session_id": "s1", "hook_event_name": "PostToolUse", "tool_use_id": "t1"}
PAYLOADS: dict[str, dict[str, Any]] = {
    "Copilot": {"toolName": "bash", "toolArgs": {"command": "cat <private>"}, "toolResult": {"textResultForLlm": CANARY}},
    "Copilot, as text": {"toolName": "bash", "toolArgs": '{"command": "cat <private>"}', "toolResult": {"text": CANARY}},
    "Cursor": {"file_path": "/x<private>", "edits": [{"old_string": CANARY, "new_string": CANARY}]},
    "Gemini's record": {"name": "shell", "args": {"command": "cat <private>"}, "result": [{"output": CANARY}]},
    "another field": {"tool_name": "Bash", "tool_input": {"command": "<private>"}, "toolUseResult": {"stdout": CANARY}},
    "a field of the future": {"tool_name": "Bash", "tool_input": {"command": "<private>"}, "stdout_delta": CANARY},
    "the tool's name": {"tool_name": "mcp__x__<private>", "tool_input": {"a": CANARY}},
    "keys": {"tool_name": "X", "tool_input": {"<pri": 1, f"vate>{CANARY}": 2, CANARY: 3}},
    "a key and a text": {"tool_name": "X", "tool_input": {"<pri": "vate>", "x": CANARY}},
    "a key of a result": {"tool_name": "X", "tool_input": {}, "tool_response": {"rows": [{"<private>": 1}, {"b": CANARY}]}},
}  # fmt: skip


@pytest.mark.parametrize("agent", PAYLOADS)
def test_a_tag_in_one_field_hides_the_rest_of_the_call(agent: str) -> None:
    kept = hook._record("save", "claude", json.dumps({**CALL, **PAYLOADS[agent]}).encode(), True)
    assert CANARY.encode() not in kept
    fields = strip_private_fields({**CALL, **PAYLOADS[agent]})
    assert CANARY not in json.dumps(fields)
    assert (fields["session_id"], fields["tool_use_id"]) == ("s1", "t1")


def test_the_hook_and_ingest_know_the_same_invisible_characters() -> None:
    known = {code for first, last in hook.INVISIBLE for code in range(first, last + 1)} | {0x1B}
    assert {ord(character) for character in _in_class(tags.INVISIBLE)} ^ known == set()


def _in_class(text: str) -> set[str]:
    """The characters of a character class of a pattern."""
    pieces, characters = text.split("-"), set(text.replace("-", ""))
    for left, right in itertools.pairwise(pieces):
        characters |= {chr(code) for code in range(ord(left[-1]), ord(right[0]) + 1)}
    return characters


# --- transcripts -----------------------------------------------------------------------------------------------------

COMMAND = "echo '<private>'; cat keys"
TRANSCRIPTS: dict[str, list[dict[str, Any]]] = {
    "claude": [
        {"type": "user", "promptId": "p1", "sessionId": "s1", "cwd": "/shop", "message": {"content": "look at the keys"}},
        {
            "type": "assistant", "sessionId": "s1", "uuid": "1",
            "message": {"content": [{"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": COMMAND}}]},
        },
        {
            "type": "user", "sessionId": "s1", "uuid": "2", "toolUseResult": {"stdout": CANARY},
            "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": CANARY}]},
        },
    ],
    "codex": [
        {"type": "session_meta", "payload": {"id": "s1", "cwd": "/shop"}},
        {
            "type": "response_item",
            "payload": {
                "type": "function_call", "call_id": "c", "name": "shell",
                "arguments": json.dumps({"command": ["bash", "-lc", COMMAND]}),
            },
        },
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": CANARY}},
    ],
    "gemini": [
        {"sessionId": "s1", "projectHash": "h", "startTime": "2026-01-05T10:00:00Z"},
        {"id": "1", "type": "user", "content": "look at the keys"},
        {
            "id": "2", "type": "gemini", "content": "",
            "toolCalls": [
                {
                    "id": "c", "name": "run_shell_command", "args": {"command": COMMAND}, "status": "success",
                    "result": [{"functionResponse": {"response": {"output": CANARY}}}], "resultDisplay": CANARY,
                }
            ],
        },
    ],
    "copilot": [
        {"type": "session.start", "id": "1", "data": {"sessionId": "s1", "producer": "copilot-agent", "context": {"cwd": "/shop"}}},
        {"type": "user.message", "id": "2", "data": {"content": "look at the keys", "messageId": "m"}},
        {"type": "tool.execution_start", "id": "3", "data": {"toolCallId": "c", "toolName": "bash", "arguments": {"command": COMMAND}}},
        {"type": "tool.execution_complete", "id": "4", "data": {"toolCallId": "c", "success": True, "result": {"content": CANARY}}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("host", TRANSCRIPTS)
def test_a_tag_in_a_calls_input_hides_its_output_in_transcripts_too(tmp_path: Path, host: str) -> None:
    path = tmp_path / "talk.jsonl"
    records = ({"timestamp": "2026-01-05T10:00:00Z", **record} for record in TRANSCRIPTS[host])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    transcripts = registry.get_agent(host).transcripts
    assert transcripts is not None
    events = transcripts.read(path, host=host).events
    assert any(event.body.__class__.__name__ == "ToolUsed" for event in events)
    assert CANARY not in repr(events)
