"""What has to be known about an agent to be its memory. One module each fills this in; `registry.py` lists them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem.hosts.dialect import Fields, Head, PartReader, Reader, no_agents
from claude_mem.hosts.edits import Edit


def home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or Path.home())


def place(env: Mapping[str, str], variable: str, usual: str) -> Path:
    """Where an agent keeps its things: what its variable names, or the usual folder in the home."""
    named = env.get(variable)
    return Path(named) if named else home(env) / usual


def is_here(folder: Path, program: str, env: Mapping[str, str]) -> bool:
    """Is it on this machine? It has been used, or it can be started."""
    return folder.is_dir() or shutil.which(program, path=env.get("PATH")) is not None


@dataclass(frozen=True, slots=True)
class Ours:
    """What an agent is to be told to run. The launcher keeps its name, so that no one has to trust it twice."""

    launcher: Path
    env: Mapping[str, str]

    def hook(self, command: str, host: str) -> str:
        """The line that the host hands to a shell.

        `|| true`: should the launcher be gone (uninstalled by hand), the shell would exit with 127, or with 2 in the
        middle of an upgrade, and 2 blocks the user's prompt.
        """
        return shlex.join([str(self.launcher), command, host]) + " 2>/dev/null || true"

    def mcp(self) -> list[str]:
        """The program for agents that want to start one for their tools."""
        return [str(self.launcher), "mcp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcripts:
    """The agent's own record of its sessions."""

    read: Reader
    # Its files in their usual place, and what they are: is this the first record of one of them?
    find: Callable[[Mapping[str, str]], Iterator[Path]]
    owns: Callable[[Mapping[str, Any]], bool]
    head: Callable[[Path], Head]  # a quick look
    agents: Callable[[Path], Iterator[tuple[str, Path]]] = no_agents
    # Does each line name its session? Then the reader passes over the lines of others. Else a file belongs to the
    # sessions that it names, or to the one that `head` tells.
    named_by_line: bool = False
    sessions: Callable[[Path], frozenset[str]] | None = None
    # Do its hooks call a tool call what its transcript calls it? Else nothing would tell one from its double.
    named: bool = True
    # Is a closing message only exact in the transcript? Then it replaces the one that the hook reported.
    corrects_closing: bool = False
    late_seconds: float = 0  # how long after a hook its own record of it may be written
    # For files of any size: without it they are read whole, and of a huge one only the beginning.
    part: PartReader | None = None

    def is_of(self, path: Path, content_session_id: str) -> bool:
        """Whether a file that a payload names is this session's, as far as the file tells."""
        if self.named_by_line:
            return True
        known = self.sessions(path) if self.sessions else frozenset({self.head(path).content_session_id}) - {""}
        return not known or content_session_id in known


def _same(fields: Fields) -> Fields:
    return fields


def _nothing(_: Ours) -> Sequence[Edit]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    name: str
    label: str  # for people
    # A payload of its hooks in our dialect. `Noise` if it tells nothing.
    translate: Callable[[Fields], Fields] = _same
    # Is it on this machine? Then the files to change, so that it runs us.
    present: Callable[[Mapping[str, str]], bool] = lambda _: False
    edits: Callable[[Ours], Sequence[Edit]] = _nothing
    # Does it run us already by some other way, such as a plugin? Then our edits would make everything happen twice.
    elsewhere: Callable[[Mapping[str, str]], str] = lambda _: ""
    # Connected, and still something is in the way that only the user can see to: what it is.
    waits_for: Callable[[Mapping[str, str]], str] = lambda _: ""
    transcripts: Transcripts | None = None
    # Folders in which it notes things about us by itself, such as a log of our tools. They go when we go.
    traces: Callable[[Mapping[str, str]], Iterator[Path]] = lambda _: iter(())
    greets: bool = False  # does a line for the person stand where it is in nobody's way, also in scripts?
    note: str = ""  # what a person has to know or do after the installation
    tested: bool = True  # with the real program
