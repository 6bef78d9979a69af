"""The common event format: Claude Code's, because most other agents have adopted it.

Payloads of agents with another format are translated into this one by the agent's module. Other editors that post to
the session routes use this format directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from claude_mem.domain.records import Event, ToolUsed
from claude_mem.domain.text import MAX_TIME_MS, make_storable

Fields = dict[str, Any]

_NOTICE_PREFIXES = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>", "<bash-stdout>",
    "<bash-stderr>", "<task-notification", "Caveat: The messages below were generated", "[Request interrupted by user",
    "Operation stopped by hook:",
)  # fmt: skip
READING_TOOLS = ("Read", "NotebookRead", "Grep")
# Large fields of a tool's response that repeat its input or the content of a file.
_REDUNDANT_FIELDS = ("originalFile", "content", "base64", "oldString", "newString", "originalFileContents")


def is_user_prompt(text: str) -> bool:
    """Return whether a prompt was written by the user. The agent program puts its own notices in the same place."""
    return not text.lstrip().startswith(_NOTICE_PREFIXES)


def make_tool_used(name: str, tool_input: Any, output: Any, *, failed: bool, agent_id: str = "") -> ToolUsed:
    """Return a tool call from a hook or transcript, without redundant parts of its output."""
    arguments = tool_input if isinstance(tool_input, dict) else {} if tool_input is None else {"input": tool_input}
    # The output of an MCP server is nowhere on disk. Content that was read is dropped later, once its origin is known.
    whole = name.startswith("mcp__") or name in READING_TOOLS
    return ToolUsed(name[:200], arguments, output if whole else drop_redundant_fields(output), failed, agent_id[:200])


def drop_redundant_fields(output: Any) -> object:
    """Return the response of a tool without redundant fields."""
    if not isinstance(output, dict):
        return output
    rest = {key: item for key, item in output.items() if key not in _REDUNDANT_FIELDS}
    if isinstance(file := rest.get("file"), dict):
        rest["file"] = {key: item for key, item in file.items() if key not in _REDUNDANT_FIELDS}
        if isinstance(content := file.get("content"), str):
            rest["file"]["contentChars"] = len(content)  # what was read is measured later, from the stored event
    return rest


def string_or_empty(value: Any) -> str:
    """Return the value if it is a string, otherwise ""."""
    return value if isinstance(value, str) else ""


def string_field(record: Fields, name: str) -> str:
    """Return a string field of a record with only storable characters; "" if it is missing or not a string."""
    return make_storable(string_or_empty(record.get(name)))


def parse_timestamp(timestamp: Any) -> int:
    """Parse an ISO timestamp. Return 0 if it is invalid or out of range: some programs write year 1 for "none"."""
    try:
        at = int(datetime.fromisoformat(str(timestamp).replace("Z", "+00:00")).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
    return at if 0 < at < MAX_TIME_MS else 0


# --- transcripts -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TranscriptContent:
    """The content of a transcript, in order. `closings` are the closing messages by prompt id."""

    content_session_id: str = ""
    cwd: str = ""  # where it began
    events: list[Event] = field(default_factory=list)
    closings: dict[str, Event] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    branches: dict[str, None] = field(default_factory=dict)  # that were checked out, in order
    lines: dict[str, int] = field(default_factory=dict)  # offset at which each prompt, or the rest of its turn, begins
    offset: int = 0
    bad_lines: int = 0  # lines that could not be parsed
    problem: str = ""  # why reading stopped before the end of the file: a key of `TRANSCRIPT_PROBLEMS`


# Problems with a transcript, by the word under which they are counted, and what to do.
TRANSCRIPT_PROBLEMS = {
    "gone": "the file no longer exists",
    "unreadable": "the file cannot be read; check its permissions",
    "not_a_file": "it is not a regular file",
    "truncated": "the file is incomplete; everything before the end was read. Copy it again from its source",
    "broken": "the file is damaged; everything readable was read. Copy it again from its source",
    "format": "nothing in the file could be parsed; a newer version of claude-mem may support its format",
    "foreign": "it is not a transcript of a supported agent",
    "empty": "the file contains no prompt and no tool call",
    "not_yours": "the file belongs to another user; make a copy that you own and read that",
    "huge": "the file is too large; only the beginning was read. The limits are 2 GB per file, 512 MB for the content"
    " of a compressed file, and 32 MB for a format that can only be read as a whole",
    "project_off": "memory is disabled in its project (`.claude-mem.toml` or `excluded_projects`)",
    "ours": "it is a conversation of claude-mem itself with a model",
}


@dataclass(frozen=True, slots=True)
class TranscriptHead:
    """Session id, working directory, start and end of a transcript, from its first and last lines."""

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
    ) -> TranscriptContent:
        """Read a transcript from `offset` to its last complete line.

        With `agent_id` the file is a subagent's, and only its tool calls count. Without `content_session_id` the
        session is the one that the file names. Never raises for a bad file: the result is then empty, its offset
        unchanged, and `problem` says what is wrong.

        `over` means that no process writes to the file any more. Its last line then need not end with a newline; if
        that line cannot be parsed, the file is truncated. It is read as a whole, as far as memory allows.
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
    ) -> tuple[TranscriptContent, str]:
        """Read about `most` bytes, and return the mark from which to continue, or "" at the end.

        Reading starts at `mark`, an opaque position of this reader, or at `offset`. All parts together yield the same
        as the whole file, regardless of which process reads them and how often. The closing message of a turn that
        continues in the next part is returned with that part. See `Reader` for the rest.
        """


def no_subagents(_: Path) -> Iterator[tuple[str, Path]]:
    """Yield nothing: for agents whose subagents have no transcripts of their own."""
    return iter(())
