"""A thousand inputs, most of them bad, through the real hook: it never complains, and not one is lost.

`make test-long` sends five thousand, `make proof` ten thousand, and more from odd surroundings.
Every input follows from the number of its chunk, so a failure can be had again: `-k chunk07`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from claude_mem import hook
from tests.support import proof
from tests.support.amounts import LONG
from tests.support.lab import HOOK, LAUNCH, Lab
from tests.support.waiting import SECONDS
from tests.worker.test_hook import check_answer, spooled

CHUNKS = 10
EACH = 1_000 if proof.long() else 500 if LONG else 30
# Every reason for which an event may be set aside. Anything else is a fault of ours.
REASONS = {
    "cut", "empty", "garbage", "no_session", "no_tool", "not_an_object", "not_json", "too_deep", "too_many_values", "unknown_event",
    "unreadable", "withheld",
}  # fmt: skip

EVENTS = (
    "SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop", "PreCompact",
    "SessionEnd",
)  # fmt: skip
UNKNOWN = ("PreToolUse", "Notification", "PostToolBatch", "", "\ud800", "Stop\0")
SHELL = (
    "$(touch /tmp/owned)",
    "`id`",
    "; rm -rf ~",
    "| sh",
    "&& true",
    "'\"",
    "\\",
    "%s%n",
    "../../etc/passwd",
    "-rf",
    "*",
)
TAGS = (
    "<private>", "</private>", "<PRIVATE >", "< private", "<private/>", "&lt;private&gt;", "\\u003cprivate\\u003e",
    "<claude-mem-context>", "</claude-mem-context>", "<privately>", "<private a='>'>", "%3cprivate%3e",
)  # fmt: skip
ODD = ("\0", "\ud800", "\udfff\ud800", "\ufeff", "\u202e", "\u2028", "\x1b[2J", "\r\n", "\x7f", "\U0001f984", "e\u0301")
WORDS = ("mend", "the", "basket", "total", "src/shop/basket.py", "assert 0 == 1", "ok", "[main 1a2b3c4] Mend it")
NUMBERS = (
    "0",
    "-0",
    "1e999",
    "-1e999",
    "1E-999",
    "9" * 30,
    "-" + "9" * 300,
    "9" * 5000,
    "0.1",
    "NaN",
    "Infinity",
    "1.",
)
FIELDS = (
    "session_id", "transcript_path", "cwd", "prompt_id", "hook_event_name", "prompt", "tool_name", "tool_input",
    "tool_response", "tool_use_id", "last_assistant_message", "source", "reason", "trigger", "error", "agent_id",
)  # fmt: skip


def text(chance: random.Random) -> str:
    tags = TAGS if chance.random() < 0.04 else ()  # rarely: a payload with a tag in it goes another way
    parts = chance.choices((*WORDS, *SHELL, *ODD, *tags), k=chance.choice((0, 1, 2, 5, 12)))
    return chance.choice(("", " ", "\n")).join(parts)


def value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.randrange(8 if depth else 6)
    if kind < 3:
        return text(chance)
    if kind == 6:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 7:
        return {text(chance): value(chance, depth - 1) for _ in range(chance.randrange(4))}
    return chance.choice((None, True, False, 0, -1, 2**63, -(2**63), 2**64, 10**40, 1.5, float("inf"), float("nan")))


def event(chance: random.Random) -> dict[str, Any]:
    """Much as the client sends it."""
    fields: dict[str, Any] = {
        "session_id": f"session-{chance.randrange(6)}",
        "transcript_path": chance.choice(("/nowhere/t.jsonl", "/dev/null", "/", "", "t\0.jsonl", "/" + "t" * 5000)),
        "cwd": chance.choice(("/nowhere/shop", "/", "", "shop", "~", "/a\0b", "/\ud800", "/" + "d" * 300, "/d" * 3000)),
        "prompt_id": f"prompt-{chance.randrange(20)}",
        "permission_mode": "default",
        "hook_event_name": chance.choice(EVENTS if chance.random() < 0.9 else UNKNOWN),
        "prompt": text(chance),
        "tool_name": chance.choice(("Bash", "Edit", "Read", "Write", "Task", "mcp__a__b", "TodoWrite", "", "\0")),
        "tool_input": {"command": text(chance), "file_path": text(chance), "content": text(chance)},
        "tool_response": {"stdout": text(chance), "stderr": "", "interrupted": False, "file": value(chance)},
        "tool_use_id": f"toolu_{chance.randrange(400)}",
        "last_assistant_message": text(chance),
        "duration_ms": chance.randrange(9999),
    }
    return {name: item for name, item in fields.items() if chance.random() > 0.03}


def encoded(chance: random.Random, fields: Any) -> bytes:
    raw = json.dumps(fields, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, None, 1)))
    return raw.encode("utf-8", chance.choice(("surrogatepass", "replace")))


def good(chance: random.Random) -> bytes:
    return encoded(chance, event(chance))


def wrong_types(chance: random.Random) -> bytes:
    fields = event(chance)
    for name in chance.sample(FIELDS, k=chance.randrange(1, 6)):
        fields[name] = value(chance)
    return encoded(chance, fields)


def mutated(chance: random.Random) -> bytes:
    raw = bytearray(good(chance))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(raw) + 1)
        raw[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return bytes(raw)


def truncated(chance: random.Random) -> bytes:
    raw = good(chance)
    return raw[: chance.randrange(len(raw))]


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 2, 10, 100, 3000)))


def deep(chance: random.Random) -> bytes:
    levels = chance.choice((10, 90, 150, 480, 520, 700, 990, 2000, 10_000, 50_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inside = opening * levels + b"1" + closing * chance.choice((levels, levels, 0, levels - 1))
    return inside if chance.random() < 0.3 else good(chance)[:-1] + b', "tool_input": {"a": ' + inside + b"}}"


def not_an_object(chance: random.Random) -> bytes:
    return chance.choice(
        (
            b"",
            b" ",
            b"\n",
            b"null",
            b"true",
            b"1",
            b'"text"',
            b"[]",
            b'[{"session_id": "s"}]',
            b"{}",
            b"{} {}",
            b"\0" * 50,
        )
    )


def other_encoding(chance: random.Random) -> bytes:
    raw = json.dumps(event(chance))
    return raw.encode(chance.choice(("utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-7", "latin-1", "cp037")))


def numbers(chance: random.Random) -> bytes:
    many = ",".join(chance.choices(NUMBERS, k=6))
    return good(chance)[:-1] + f', "tool_input": {{"n": [{many}]}}, "duration_ms": {chance.choice(NUMBERS)}}}'.encode()


def long(chance: random.Random) -> bytes:
    unit = chance.choice((*WORDS, *SHELL, *TAGS, *ODD))
    return encoded(
        chance, {**event(chance), chance.choice(FIELDS): unit * (chance.choice((10_000, 200_000)) // len(unit))}
    )


def doubled(chance: random.Random) -> bytes:
    return chance.choice((good(chance) * 2, good(chance)[:-1] + b"," + good(chance)[1:]))


MOMENTS = [command for command in hook.COMMANDS for _ in range(1 if command == "context" else 2)]
KINDS: dict[Callable[[random.Random], bytes], int] = {
    good: 4, wrong_types: 3, mutated: 4, truncated: 2, noise: 1, deep: 1, not_an_object: 1, other_encoding: 1,
    numbers: 1, long: 1, doubled: 1,
}  # fmt: skip


def environment(chance: random.Random, lab: Lab) -> dict[str, str]:
    env = lab.env()
    place = chance.choice((None, None, str(lab.project), "/tmp/\udcff\n\n%0A", "relative", "$HOME", "/" + "p" * 300))
    if place is None:
        del env["CLAUDE_PROJECT_DIR"]
    else:
        env["CLAUDE_PROJECT_DIR"] = place
    if chance.random() < 0.2:
        env["CLAUDE_PID"] = chance.choice(("1", "-1", "99999999", "9" * 40, "x", "1\nprivate yes"))
    return env


@pytest.mark.parametrize("chunk", [f"chunk{number:02}" for number in range(CHUNKS)])
def test_whatever_it_is_given_the_hook_is_polite_and_nothing_is_lost(lab: Lab, chunk: str) -> None:
    chance = random.Random(chunk)
    lab.no_worker()
    kept = polite = 0
    for number in range(EACH):
        (kind,) = chance.choices(list(KINDS), weights=list(KINDS.values()))
        command, sent, env = chance.choice(MOMENTS), kind(chance), environment(chance, lab)
        kept += command != hook.CONTEXT_ONLY_COMMAND and bool(sent.strip())  # no payload, no event
        os.utime(lab.data / "worker.starting")
        done = subprocess.run([*HOOK, command], input=sent, env=env, capture_output=True, timeout=SECONDS, check=False)
        where = f"{chunk}, input {number}: {kind.__name__} for {command}: {sent[:200]!r}"
        assert (done.returncode, done.stderr) == (0, b""), where
        check_answer(command, done.stdout)
        polite += 1
        if number % 100 == 0:
            assert len(spooled(lab)) == kept, where
    files = spooled(lab)
    assert len(files) == kept
    assert not [file for file in files if file.name.startswith(".")]

    assert lab.mem("drain").stderr == ""
    assert spooled(lab) == []
    found = lab.status()
    assert found["captured"] == found["stored"] + found["queued"] + found["set_aside"] + found["filtered"]
    assert found["captured"] >= kept > EACH // 2
    assert found["queued"] == 0
    assert found["stored"] > EACH // 10  # there is something good in it, too
    assert found["set_aside_by"].keys() <= REASONS
    assert len(list((lab.data / "aside").iterdir())) == found["set_aside"]
    assert not os.path.exists("/tmp/owned")
    note("odd inputs: exit 0 and an answer the client accepts, none lost", polite, least=EACH, goal="10,000 of 10,000")


def note(name: str, count: int, *, least: int, goal: str) -> None:
    proof.record(name, of="H4", goal=goal, measured=count, ok=count >= least, tally=True)


# --- odd surroundings ------------------------------------------------------------------------------------------------

# Lines of shell that set the world up; `"$@"` is the hook.
AROUND = {
    "no home": 'unset HOME; exec "$@"',
    "no path": 'PATH= exec "$@"',
    "hardly any environment": 'exec env -i CLAUDE_MEM_DATA_DIR="$CLAUDE_MEM_DATA_DIR" "$@"',
    "locale C": 'LC_ALL=C LANG=C LC_CTYPE=C PYTHONUTF8=0 exec "$@"',
    "a locale that is none": 'LC_ALL=xx_YY.utf9 exec "$@"',
    "no temporary folder": 'TMPDIR=/nowhere TMP=/nowhere exec "$@"',
    "a folder that was deleted": 'mkdir gone && cd gone && rmdir ../gone && exec "$@"',
    "a folder that can't be read": 'mkdir -p shut && cd shut && chmod 0 . && exec "$@"',
    "no room for a single byte": 'ulimit -f 0; exec "$@"',
    "few files may be open": 'ulimit -n 6; exec "$@"',
    "no data folder, and none can be made": 'CLAUDE_MEM_DATA_DIR=/proc/nowhere/data exec "$@"',
    "a file for a data folder": 'touch a-file; CLAUDE_MEM_DATA_DIR="$PWD/a-file" exec "$@"',
    "a data folder of someone else": 'mkdir -p theirs && chown 65534 theirs; CLAUDE_MEM_DATA_DIR="$PWD/theirs" exec "$@"',
    "a data folder that is full": 'CLAUDE_MEM_DATA_DIR=/dev/full exec "$@"',
    "nobody reads the answer": 'exec "$@" | true',
}


@pytest.mark.parametrize("around", AROUND)
def test_wherever_it_is_started_the_hook_is_polite(lab: Lab, around: str) -> None:
    chance, polite = random.Random(around), 0
    for command in hook.COMMANDS if proof.long() else ("context", "save"):
        for kind in (good, wrong_types, truncated, noise)[: 4 if proof.long() else 1]:
            lab.no_worker()
            sent = kind(chance)
            done = subprocess.run(
                ["/bin/sh", "-c", AROUND[around], "sh", *HOOK, command],
                input=sent, env=lab.env(), cwd=lab.folder, capture_output=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, b""), f"{command}: {sent[:200]!r}"
            if around != "nobody reads the answer":
                check_answer(command, done.stdout)
            polite += 1
    note(
        "odd surroundings: exit 0 and an answer the client accepts", polite, least=1, goal=f"{len(AROUND)} surroundings"
    )


def test_a_pipe_that_no_one_closes_holds_no_one_up(lab: Lab) -> None:
    """At every moment at once, each with half a payload and an open pipe behind it."""
    lab.no_worker()
    started = []
    for command in hook.COMMANDS if proof.long() else ("new",):
        one = subprocess.Popen([*LAUNCH, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lab.env())
        assert one.stdin is not None
        one.stdin.write(good(random.Random(command))[:-3])
        one.stdin.flush()
        started.append((command, one))
    for command, one in started:
        assert one.stdout is not None
        check_answer(command, one.stdout.read())
        assert one.wait(SECONDS) == 0
        assert one.stdin is not None
        one.stdin.close()
        one.stdout.close()
    note("pipes never closed: exit 0 and an answer", len(started), least=1, goal="every moment")


def test_a_hook_that_is_killed_midway_leaves_no_half_event(lab: Lab) -> None:
    """What is there is whole, and the next one is stored as if nothing had happened."""
    chance, rounds = random.Random(7), 100 if proof.long() else 6
    lab.no_worker()
    sent = json.dumps({**event(chance), "hook_event_name": "Stop", "session_id": "s", "prompt": "x" * 300_000}).encode()
    for _ in range(rounds):
        with subprocess.Popen([*HOOK, "save"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=lab.env()) as one:
            assert one.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                one.stdin.write(sent[: chance.randrange(len(sent))])
                one.stdin.flush()
            time.sleep(chance.uniform(0, 0.03))
            one.kill()
            with contextlib.suppress(BrokenPipeError):
                one.stdin.close()
    whole = [file for file in spooled(lab) if not file.name.startswith(".")]
    half = [file for file in whole if b"\n\n" not in file.read_bytes()]
    done = subprocess.run([*HOOK, "save"], input=sent, env=lab.env(), capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    check_answer("save", done.stdout)
    lab.mem("drain")
    assert lab.status()["stored"] >= 1
    proof.record(
        "killed midway: half events", of="H4", goal="0", measured=len(half), ok=not half, note=f"{rounds} kills"
    )
    assert half == []
