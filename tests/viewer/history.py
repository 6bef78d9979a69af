"""Two weeks of work in two small projects by three agents, told to a real worker in each agent's own words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem.client import Client
from tests.lab import COMMANDS, Lab

DAY, MINUTE = 86_400_000, 60_000
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ran:
    command: str
    printed: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Turn:
    """`said` is what the agent says at the end; without it the turn is still going on."""

    prompt: str
    steps: tuple[Ran | Changed, ...]
    said: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    name: str
    project: str
    agent: str
    days_ago: float
    turns: tuple[Turn, ...]


SESSIONS = (
    Session("totals", "shop", "claude", 13, (
        Turn("An empty basket crashes, please fix it", (
            Ran("pytest -q", "E   KeyError: 'total'\n1 failed, 3 passed", failed=True),
            Changed("shop/basket.py", "def total(items):\n    return items['total']\n",
                    "def total(items):\n    return sum(item.price for item in items)\n"),
            Ran("pytest -q", "4 passed"),
        ), "Fixed: `total` read a key that an empty basket does not have. It now adds up the prices."),
        Turn("Good. Commit it", (
            Ran("git commit -qam 'Add up the prices of a basket'", "[main 4f1c2ab] Add up the prices of a basket"),
        ), "Committed as 4f1c2ab. Next: the same for discounts."),
    )),
    Session("tax", "shop", "codex", 6, (
        Turn("Prices are shown without tax. Why?", (
            Ran("rg -n tax shop", "shop/price.py:12: TAX = 0"),
            Changed("shop/price.py", "TAX = 0\n", "TAX = 0.19\n"),
            Ran("pytest -q", "9 passed"),
        ), "The rate was 0, a leftover from the first version. It is 19 % now, because all our customers are in one country."),
    )),
    Session("tiles", "atlas", "gemini", 5, (
        Turn("Maps load slowly, find out why", (
            Ran("python bench/tiles.py", "tile 0/0/0 took 812 ms"),
            Changed("atlas/tiles.py", "def tile(z, x, y):\n    return draw(z, x, y)\n",
                    "@lru_cache(maxsize=4096)\ndef tile(z, x, y):\n    return draw(z, x, y)\n"),
            Ran("python bench/tiles.py", "tile 0/0/0 took 3 ms"),
        ), "Every tile was drawn again for each request. They are kept now: 812 ms became 3 ms."),
        Turn("Commit", (Ran("git commit -qam 'Keep drawn tiles'", "[main 9d0e7c1] Keep drawn tiles"),), "Done: 9d0e7c1."),
    )),
    Session("border", "atlas", "claude", 2, (
        Turn("The border of Chile is drawn twice", (
            Ran("pytest tests/test_borders.py -q", "E   AssertionError: 2 != 1\n1 failed", failed=True),
            Changed("atlas/borders.py", "lines = outer + inner\n", "lines = list(dict.fromkeys(outer + inner))\n"),
            Ran("pytest tests/test_borders.py -q", "11 passed"),
            Ran("git commit -qam 'Draw each border once'", "[main 77ab310] Draw each border once"),
        ), "Shared borders came from both countries. We decided to keep the first and drop the rest."),
    )),
    Session("checkout", "shop", "claude", 1, (
        Turn("Add a field for a voucher at the checkout", (
            Changed("shop/checkout.py", "fields = [name, street]\n", "fields = [name, street, voucher]\n"),
            Changed("tests/test_checkout.py", "", "def test_a_voucher_lowers_the_price():\n    assert True\n"),
            Ran("pytest -q", "10 passed"),
        ), "There is a voucher field now. Still open: vouchers that have expired."),
        Turn("And let it refuse vouchers that have expired", (
            Ran("pytest -q", "E   TypeError: can't compare offset-naive and offset-aware datetimes", failed=True),
            Changed("shop/voucher.py", "return until > datetime.now()\n", "return until > datetime.now(UTC)\n"),
            Ran("pytest -q", "12 passed"),
        ), "Expired vouchers are refused; times are compared in UTC everywhere."),
    )),
    Session("labels", "atlas", "codex", 0.02, (
        Turn("City names overlap at zoom 4", (
            Changed("atlas/labels.py", "GAP = 0\n", "GAP = 6\n"),
            Ran("pytest -q", "31 passed"),
        ), "Labels keep six pixels from each other."),
        Turn("Now the same for rivers", (Ran("rg -n river atlas", "atlas/rivers.py:3: def river(line):"),)),
    )),
)  # fmt: skip


def tell(lab: Lab) -> Client:
    """A running worker that knows it all, with one memory a person wrote and the newest three pinned."""
    for session in SESSIONS:
        _spool(lab, session)
    lab.raw_spool(b"no header here")  # one to be set aside
    client = lab.start()
    settled(client)
    client.post(
        "/api/memory/save", {"text": "Deploy on Tuesdays only: the bank is closed on Mondays.", "project": "shop"}
    )
    for item in client.get("/api/observations", limit=3)["items"]:
        client.post(f"/api/observation/{item['id']}/pin")
    return client


def settled(client: Client, seconds: float = 20) -> Fields:
    """Wait until nothing waits any more."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found: Fields = client.get("/api/health")
        if found["captured"] and not found["queued"]:
            return found
        time.sleep(0.02)
    raise AssertionError(f"still queued: {found}")


def _spool(lab: Lab, session: Session) -> None:
    root = lab.folder / session.project
    (root / ".git").mkdir(parents=True, exist_ok=True)
    clock = int(time.time() * 1000 - session.days_ago * DAY)
    agent = AGENTS[session.agent]
    for count, (command, fields) in enumerate(agent(session, root)):
        common = {"session_id": session.name, "cwd": str(root)}
        header = f"command {command}\nhost {session.agent}\nproject_dir {root}\n\n"
        lab.raw_spool(header.encode() + json.dumps({**common, **fields}).encode(), at=clock + count * MINUTE // 4)


# --- the agents' own words -------------------------------------------------------------------------------------------

Told = Iterator[tuple[str, Fields]]


def _claude(session: Session, root: Path) -> Told:
    yield from _steps(session, root, _claude_tool, lambda name: {"prompt_id": name})


def _claude_tool(step: Ran | Changed, root: Path) -> tuple[str, Fields]:
    if isinstance(step, Changed):
        given: Fields = {"file_path": str(root / step.path), "old_string": step.old, "new_string": step.new}
        return "PostToolUse", {
            "tool_name": "Edit",
            "tool_input": given,
            "tool_response": {"filePath": given["file_path"]},
        }
    call = {"tool_name": "Bash", "tool_input": {"command": step.command}}
    if step.failed:
        return "PostToolUseFailure", {**call, "error": step.printed}
    return "PostToolUse", {**call, "tool_response": {"stdout": step.printed, "stderr": ""}}


def _codex(session: Session, root: Path) -> Told:
    yield from _steps(session, root, _codex_tool, lambda name: {"turn_id": name})


def _codex_tool(step: Ran | Changed, _: Path) -> tuple[str, Fields]:
    if isinstance(step, Ran):
        return "PostToolUse", {
            "tool_name": "Bash",
            "tool_input": {"command": step.command},
            "tool_response": step.printed,
        }
    lines = [f"-{line}" for line in step.old.splitlines()] + [f"+{line}" for line in step.new.splitlines()]
    patch = "\n".join(["*** Begin Patch", f"*** Update File: {step.path}", "@@", *lines, "*** End Patch"])
    done = f"Success. Updated the following files:\nM {step.path}"
    return "PostToolUse", {"tool_name": "apply_patch", "tool_input": {"command": patch}, "tool_response": done}


def _gemini(session: Session, root: Path) -> Told:
    names = {"UserPromptSubmit": "BeforeAgent", "PostToolUse": "AfterTool", "Stop": "AfterAgent"}
    for command, fields in _steps(session, root, _gemini_tool, lambda _: {}):
        event = fields["hook_event_name"]
        said = {"prompt_response": fields.pop("last_assistant_message")} if event == "Stop" else {}
        yield command, {**fields, **said, "hook_event_name": names.get(event, event)}


def _gemini_tool(step: Ran | Changed, root: Path) -> tuple[str, Fields]:
    if isinstance(step, Ran):
        call: Fields = {"tool_name": "run_shell_command", "tool_input": {"command": step.command}}
        return "PostToolUse", {**call, "tool_response": {"llmContent": f"Output: {step.printed}"}}
    given = {"file_path": str(root / step.path), "old_string": step.old, "new_string": step.new}
    return "PostToolUse", {"tool_name": "replace", "tool_input": given, "tool_response": {"llmContent": "done"}}


def _steps(
    session: Session,
    root: Path,
    tool: Callable[[Ran | Changed, Path], tuple[str, Fields]],
    prompt_id: Callable[[str], Fields],
) -> Told:
    """The course of a session, the same for all; how a tool call is told is the agent's own."""
    yield "context", {"hook_event_name": "SessionStart", "source": "startup"}
    for number, turn in enumerate(session.turns):
        said = prompt_id(f"{session.name}-{number}")
        yield "new", {"hook_event_name": "UserPromptSubmit", "prompt": turn.prompt, **said}
        for count, step in enumerate(turn.steps):
            event, fields = tool(step, root)
            call = {"hook_event_name": event, "tool_use_id": f"{session.name}-{number}-{count}"}
            yield COMMANDS[event], {**call, **fields, **said}
        if turn.said:
            yield "summary", {"hook_event_name": "Stop", "last_assistant_message": turn.said, **said}
    if all(turn.said for turn in session.turns):
        yield "cleanup", {"hook_event_name": "SessionEnd", "reason": "other"}


AGENTS = {"claude": _claude, "codex": _codex, "gemini": _gemini}
