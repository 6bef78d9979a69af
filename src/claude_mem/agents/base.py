"""The description of an agent. One module per agent provides it; `registry.py` lists them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem.agents.canonical import Fields, PartReader, Reader, TranscriptHead, no_subagents
from claude_mem.agents.files import SettingsEdit


def home_dir(env: Mapping[str, str]) -> Path:
    """Return the home directory, taken from `env` if it names one."""
    return Path(env.get("HOME") or Path.home())


def agent_dir(env: Mapping[str, str], variable: str, default: str) -> Path:
    """Return an agent's directory: the value of its variable, or the default in the home directory."""
    path = env.get(variable)
    return Path(path) if path else home_dir(env) / default


def is_installed(folder: Path, program: str, env: Mapping[str, str]) -> bool:
    """Return whether an agent is on this machine: it has been used before, or its program can be started."""
    return folder.is_dir() or shutil.which(program, path=env.get("PATH")) is not None


@dataclass(frozen=True, slots=True)
class LauncherCommands:
    """The commands to configure in an agent. The launcher's path never changes, so that the user approves it once."""

    launcher: Path
    env: Mapping[str, str]

    def hook(self, command: str, host: str) -> str:
        """Return the command line that the agent passes to a shell.

        `|| true`: without the launcher (deleted by hand) the shell would exit with 127, or with 2 during an upgrade,
        and 2 blocks the user's prompt.
        """
        return shlex.join([str(self.launcher), command, host]) + " 2>/dev/null || true"

    def mcp(self) -> list[str]:
        """Return the command for agents that start an MCP server as a program."""
        return [str(self.launcher), "mcp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcripts:
    """How to find and read an agent's transcripts."""

    read: Reader
    # `find` yields the transcripts in their default place; `owns` recognizes a record of one.
    find: Callable[[Mapping[str, str]], Iterator[Path]]
    owns: Callable[[Mapping[str, Any]], bool]
    head: Callable[[Path], TranscriptHead]  # reads only the beginning and the end
    subagents: Callable[[Path], Iterator[tuple[str, Path]]] = no_subagents
    # Whether each line names its session; the reader then skips the lines of other sessions. Otherwise a file belongs
    # to the sessions that `sessions` returns, or to the one that `head` returns.
    session_in_each_line: bool = False
    sessions: Callable[[Path], frozenset[str]] | None = None
    # Whether hooks and transcripts use the same tool-call ids. If not, events cannot be deduplicated by id.
    shares_tool_ids: bool = True
    # Whether only the transcript has the exact closing message, which then replaces the one from the hook.
    corrects_closing: bool = False
    late_seconds: float = 0  # how long after a hook the agent may write the transcript's record
    # Reader for files of any size. Without it files are read as a whole, and of a huge one only the beginning.
    part: PartReader | None = None

    def belongs_to_session(self, path: Path, content_session_id: str) -> bool:
        """Return whether a transcript named by a payload belongs to this session. If it names none, it does not."""
        if self.session_in_each_line:
            return True
        session_ids = self.sessions(path) if self.sessions else frozenset({self.head(path).content_session_id}) - {""}
        return content_session_id in session_ids


def _identity(fields: Fields) -> Fields:
    return fields


def _no_edits(_: LauncherCommands) -> Sequence[SettingsEdit]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A supported agent: how it is recognised, connected, and its payloads and transcripts read."""

    name: str  # as stored in `host` columns
    label: str  # display name
    # Translates a payload of its hooks into our format. Raises `IgnoredEvent` if there is nothing to store.
    translate: Callable[[Fields], Fields] = _identity
    # Whether the agent is on this machine, and the edits that make it run claude-mem.
    present: Callable[[Mapping[str, str]], bool] = lambda _: False
    edits: Callable[[LauncherCommands], Sequence[SettingsEdit]] = _no_edits
    # Another way, such as a plugin, by which the agent already runs claude-mem. Our edits would then duplicate events.
    connected_via: Callable[[Mapping[str, str]], str] = lambda _: ""
    # What the user still has to do after the agent is connected, if anything.
    pending_user_action: Callable[[Mapping[str, str]], str] = lambda _: ""
    transcripts: Transcripts | None = None
    # Directories in which the agent itself stores data about claude-mem, such as a log of our tools. Removed on
    # uninstall.
    traces: Callable[[Mapping[str, str]], Iterator[Path]] = lambda _: iter(())
    shows_greeting: bool = False  # whether a line for the user can be shown without disturbing scripts
    note: str = ""  # what the user must know or do after the installation
    tested: bool = True  # against the real program
