"""The words in which every agent's events are stored: Claude Code's, since most others borrowed them.

A host that speaks otherwise is translated into these (`hosts/<host>.py`); other editors that post to the session routes
use them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from claude_mem.records import Event, ToolUsed
from claude_mem.text import LATEST, storable

Fields = dict[str, Any]

_NOT_SAID = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>", "<bash-stdout>",
    "<bash-stderr>", "<task-notification", "Caveat: The messages below were generated", "[Request interrupted by user",
)  # fmt: skip
# Large parts of a tool's response that repeat what is in its input or on disk.
_NOT_KEPT = ("originalFile", "content", "base64", "oldString", "newString", "originalFileContents")


def is_said(text: str) -> bool:
    """Was it the user who said this? The client puts its own notices where prompts stand."""
    return not text.lstrip().startswith(_NOT_SAID)


def tool_used(name: str, given: Any, output: Any, *, failed: bool, agent_id: str = "") -> ToolUsed:
    """A tool call as hooks and transcripts tell it, without what would only be a copy."""
    arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
    # Of a server's answer nothing is on disk; what is read is dropped later, once it is known whose file it is.
    whole = name.startswith("mcp__") or name in READERS
    return ToolUsed(name[:200], arguments, output if whole else lean(output), failed, agent_id[:200])


READERS = ("Read", "NotebookRead", "Grep")


def lean(output: Any) -> Any:
    """The response of a tool without what would only be a copy."""
    if not isinstance(output, dict):
        return output
    rest = {key: item for key, item in output.items() if key not in _NOT_KEPT}
    if isinstance(file := rest.get("file"), dict):
        rest["file"] = {key: item for key, item in file.items() if key not in _NOT_KEPT}
    return rest


def string(found: Any) -> str:
    """What is there, if it is text."""
    return found if isinstance(found, str) else ""


def string_of(record: Fields, name: str) -> str:
    return storable(string(record.get(name)))


def milliseconds(timestamp: Any) -> int:
    """0 for what is no time, or none of ours: some programs write the year 1 for nothing."""
    try:
        at = int(datetime.fromisoformat(str(timestamp).replace("Z", "+00:00")).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
    return at if 0 < at < LATEST else 0


# --- transcripts -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """What a transcript tells, in order. `closings` are the agent's last words of each prompt, by prompt id."""

    content_session_id: str = ""
    cwd: str = ""  # where it began
    events: list[Event] = field(default_factory=list)
    closings: dict[str, Event] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    lines: dict[str, int] = field(default_factory=dict)  # where each prompt, or what is left of its turn, begins
    offset: int = 0
    bad_lines: int = 0  # that could not be understood
    problem: str = ""  # why reading ended before the file did: one of `PROBLEMS`


# What can be wrong with a file, in the words in which it is counted, and what to do about it.
PROBLEMS = {
    "gone": "it is no longer there",
    "unreadable": "give yourself the right to read it",
    "not_a_file": "only ordinary files can be read",
    "truncated": "it ends in the middle; what stands before that was taken. Copy it again from where it came",
    "broken": "it is damaged; what could be read was taken. Copy it again from where it came",
    "format": "none of it could be understood; a newer claude-mem may know this format",
    "foreign": "it is not the record of any agent we know",
    "empty": "there is no prompt and no tool call in it",
    "not_yours": "it belongs to another user; make a copy that is yours, and have that read",
    "huge": "it is too large: 2 GB of a file are read at most, 512 MB of a packed one, 32 MB of one that can only be"
    " read whole; what could be read was taken",
    "project_off": "memory is switched off in its project (`.claude-mem.toml` or `excluded_projects`)",
    "ours": "it is a conversation of claude-mem's own with a model",
}


@dataclass(frozen=True, slots=True)
class Head:
    """Whose session it is, where it was, and from when to when, as far as a quick look can tell."""

    content_session_id: str = ""
    cwd: str = ""
    began: int = 0
    ended: int = 0


class Reader(Protocol):
    def __call__(
        self,
        path: Path,
        *,
        host: str,
        content_session_id: str = "",
        offset: int = 0,
        agent_id: str = "",
        over: bool = False,
    ) -> Found:
        """From `offset` to the last whole line. With `agent_id` it is a subagent's file: only its tool calls count.

        Without `content_session_id` it is the one that the file names. A file that can't be read tells nothing, and its
        offset stays; nothing in it raises. `problem` says what was wrong with the file.

        `over`: nobody writes to it any more. Its last line need not have an end; if that line can't be understood, the
        file is truncated. It is read whole, as far as memory allows.
        """


class PartReader(Protocol):
    def __call__(
        self,
        path: Path,
        *,
        host: str,
        mark: str = "",
        most: int,
        content_session_id: str = "",
        offset: int = 0,
        agent_id: str = "",
        over: bool = True,
    ) -> tuple[Found, str]:
        """About `most` bytes of it, from a mark of the reader's own on, and the mark to go on from: "" at the end.

        Without a mark it begins at `offset`. All parts together tell what the whole does, whoever reads them and
        however often. The last words of a turn that goes on in the next part are told there. See `Reader` for the rest.
        """


def no_agents(_: Path) -> Iterator[tuple[str, Path]]:
    """Of a host whose subagents have no files of their own."""
    return iter(())
