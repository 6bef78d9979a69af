"""`claude-mem context`, `save`, `new` …: hooks when an agent hands over a payload, ordinary commands otherwise."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.__main__ import SHARED_COMMANDS
from claude_mem.cli.main import ALSO_FOR_PEOPLE
from tests.support.lab import HOOK, MEM, Lab
from tests.worker.test_cli_recall import fill, rows, terminal
from tests.worker.test_hook import check_answer, nothing, payload, spooled, tool

ONLY_HOOKS = tuple(command for command in hook.COMMANDS if command not in SHARED_COMMANDS)
# Nothing is on stdin, in all the ways a script, a CI step or an editor has of saying so.
SILENCE = {
    "the null device": '"$@" </dev/null',
    "an empty pipe": 'true | "$@"',
    "white space": 'printf " \\n\\t\\r\\n " | "$@"',
    "an empty line": '"$@" <<END\n\nEND',
    "closed": '"$@" <&-',
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A worker with two sessions of the project `shop`."""
    lab = Lab(tmp_path_factory.mktemp("commands"))
    try:
        fill(lab)
        yield lab
    finally:
        lab.close()


def shell(lab: Lab, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *words],
        env=lab.env(), cwd=lab.project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def piped(lab: Lab, command: str, sent: str | bytes) -> subprocess.CompletedProcess[bytes]:
    raw = sent.encode() if isinstance(sent, str) else sent
    return subprocess.run(
        [*MEM, command], input=raw, env=lab.env(), cwd=lab.project, capture_output=True, timeout=60, check=False
    )


def account(lab: Lab) -> dict[str, Any]:
    found = lab.status()
    return {name: found[name] for name in ("captured", "set_aside", "set_aside_by")}


def test_both_sides_agree_which_commands_people_run() -> None:
    assert SHARED_COMMANDS == ALSO_FOR_PEOPLE


# --- nothing on stdin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silence", SILENCE)
def test_context_in_a_script_prints_the_context_of_this_folder(shop: Lab, silence: str) -> None:
    before = account(shop)
    done = shell(shop, SILENCE[silence], *MEM, "context")
    assert (done.returncode, done.stderr) == (0, "")
    assert "what earlier sessions did in [shop]" in done.stdout
    assert done.stdout == shop.mem("context", "--project", "shop").stdout
    assert account(shop) == before


@pytest.mark.parametrize("silence", SILENCE)
def test_save_in_a_script_without_a_text_is_a_usage_error(shop: Lab, silence: str) -> None:
    before = account(shop)
    done = shell(shop, SILENCE[silence], *MEM, "save")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing to save" in done.stderr
    assert account(shop) == before


@pytest.mark.parametrize("silence", SILENCE)
def test_a_hook_without_a_payload_explains_itself_and_nothing_is_captured(lab: Lab, silence: str) -> None:
    for command in ONLY_HOOKS:
        done = shell(lab, SILENCE[silence], *MEM, command)
        assert (done.returncode, done.stdout) == (0, ""), command
        assert "JSON" in done.stderr
        assert command in done.stderr
    assert not lab.data.exists()


@pytest.mark.parametrize("command", ONLY_HOOKS)
def test_a_hook_explains_itself_on_a_terminal_and_when_asked(lab: Lab, command: str) -> None:
    code, shown = terminal(lab, command)
    assert (code, "JSON" in shown) == (0, True)
    assert "JSON" in lab.mem(command, "--help").stdout
    assert not lab.data.exists()


@pytest.mark.parametrize("silence", SILENCE)
@pytest.mark.parametrize("host", ["", "claude", "codex", "gemini", "cursor"])
def test_an_agent_that_sends_nothing_is_answered_and_nothing_is_counted(lab: Lab, silence: str, host: str) -> None:
    for command in hook.COMMANDS:
        done = shell(lab, SILENCE[silence], *HOOK, command, str(lab.data), host)
        assert (done.returncode, done.stderr) == (0, ""), command
        if host in ("", "claude"):
            check_answer(command, done.stdout.encode())
        else:
            assert json.loads(done.stdout) == {}
    assert spooled(lab) == []
    assert not (lab.data / "missed").exists()


# --- a payload on stdin ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [tool(), b"\n  " + tool(), b'{"session_id": "s1"}', b'{"hook_event_name": "Stop"}'])
@pytest.mark.parametrize("command", ["context", "save", "new"])
def test_a_payload_makes_it_a_hook(lab: Lab, command: str, sent: bytes) -> None:
    lab.no_worker()
    done = piped(lab, command, sent)
    assert (done.returncode, done.stdout, done.stderr) == (0, nothing(command), b"")
    (file,) = spooled(lab)
    assert file.read_bytes().endswith(b"\n\n" + sent)


GARBLED = {
    "after a byte order mark": b"\xef\xbb\xbf" + tool(),
    "cut": tool()[:-20],
    "two at once": tool() + tool(),
    "a stray byte": tool().replace(b"make", b"m\xffke"),
    "too deep": tool()[:-1] + b', "x": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("garbled", GARBLED)
def test_what_is_left_of_a_payload_is_an_event_and_no_note(lab: Lab, garbled: str) -> None:
    lab.no_worker()
    done = piped(lab, "save", GARBLED[garbled])
    assert (done.returncode, done.stdout, done.stderr) == (0, hook.EMPTY_ANSWER, b"")
    assert len(spooled(lab)) == 1


@pytest.mark.parametrize("sent", [b"Usage: claude [options]", b"null", b"{}", b"[1]", bytes(100)])
def test_what_an_agents_own_command_can_not_read_is_still_counted(lab: Lab, sent: bytes) -> None:
    lab.no_worker()
    assert piped(lab, "new", sent).stdout == hook.EMPTY_ANSWER
    lab.mem("drain")
    assert account(lab)["set_aside"] == 1


def test_a_hook_that_never_gets_the_end_of_its_payload_keeps_what_came(lab: Lab) -> None:
    lab.no_worker()
    with subprocess.Popen([*MEM, "save"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.env()) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(tool()[:-1])
        running.stdin.flush()
        assert running.stdout.read() == hook.EMPTY_ANSWER
    (file,) = spooled(lab)
    assert b"\ncut yes\n" in file.read_bytes()


# --- a text on stdin -------------------------------------------------------------------------------------------------

NOTES = {
    "a line": "Staging is rebuilt every night.\n",
    "several lines": "Staging is rebuilt.\n\n- at night\n- by Ann\n",
    "json of its own": '{"deploys": "fridays"}',
    "json that only mentions a payload": '{"note": "a payload has a \\"session_id\\"", "inner": {"session_id": 1}}',
    "a list": '["one", "two"]',
    "a text about payloads": 'A payload is {"session_id": …}, in one line.',
}


@pytest.mark.parametrize("note", NOTES)
def test_a_text_that_is_piped_in_is_saved(shop: Lab, note: str) -> None:
    before = account(shop)
    done = piped(shop, "save", NOTES[note])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"saved as ")
    (saved,) = rows(shop, "show", done.stdout.split()[2].decode())
    assert (saved["narrative"].strip(), saved["project"]) == (NOTES[note].strip(), "shop")
    assert account(shop) == before


@pytest.mark.parametrize("sent", ["a line\n", '{"a": 1}', "[]", "null"])
def test_context_ignores_what_is_no_payload(shop: Lab, sent: str) -> None:
    before = account(shop)
    done = piped(shop, "context", sent)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"what earlier sessions did in [shop]" in done.stdout
    assert account(shop) == before


@pytest.mark.parametrize("sent", [b"\xff\xfe caf\xe9", "Staging.".encode("utf-16"), b"a\0b"])
def test_what_is_no_text_is_not_saved(shop: Lab, sent: bytes) -> None:
    done = piped(shop, "save", sent)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"nothing was saved" in done.stderr


@pytest.mark.parametrize(
    ("words", "sent", "code", "says"),
    [
        (("save",), b"", 2, "nothing to save"),
        (("save",), b"half a note", 2, "nothing was saved"),
        (("save", "--title", "T"), b"", 2, "nothing to save"),
        (("context",), b"", 0, "what earlier sessions did"),
        (("context",), b"text", 0, "what earlier sessions did"),
        (("new",), b"", 0, "JSON"),
    ],
)
def test_a_pipe_that_is_never_closed_holds_nobody_up(
    shop: Lab, words: tuple[str, ...], sent: bytes, code: int, says: str
) -> None:
    before = account(shop)
    with subprocess.Popen(
        [*MEM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=shop.env(), cwd=shop.project,
    ) as running:  # fmt: skip
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(sent)
        running.stdin.flush()
        shown = running.stdout.read().decode()  # its end: the command has ended, and stdin is still open
        assert running.wait(20) == code
    assert says in shown
    assert account(shop) == before


def test_a_dash_waits_for_a_slow_pipe(shop: Lab, tmp_path: Path) -> None:
    """The text comes only after the time in which a hook must have its payload."""
    script = f'{{ sleep {hook.READ_SECONDS + 0.5}; echo "Backups are weekly."; }} | "$@"'
    done = shell(shop, script, *MEM, "save", "-")
    assert (done.returncode, "Backups are weekly." in done.stdout) == (0, True)


def test_the_payload_fields_are_those_of_every_event() -> None:
    assert {"session_id", "hook_event_name"} <= json.loads(payload("Stop")).keys()
