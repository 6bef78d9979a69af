"""Spaces: a person's machines that share one memory. Keys are in no request and no answer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from claude_mem.sync.errors import Problem
from claude_mem.worker.http.endpoints import Endpoint, Name, NoFields, Wire

SpaceRef = Annotated[str, Meta(min_length=1, max_length=80), Wire(expects="the id or the name of a space")]
Device = Annotated[str, Meta(pattern="^[0-9a-f]{16}$"), Wire(expects="the id of a machine: 16 hexadecimal digits")]
Url = Annotated[str, Meta(max_length=2_000), Wire(expects="the address of a folder, a git remote or a server")]
MachineName = Annotated[str, Meta(max_length=80)]


class CreateSpace(msgspec.Struct, frozen=True):
    """`url`: where it is exchanged. `machine`: the name of this machine for the others. `code`: a server's one-time
    code."""

    name: Annotated[str, Meta(min_length=1, max_length=80)]
    url: Url
    machine: MachineName = ""
    code: Name = ""


class AddSpace(msgspec.Struct, frozen=True):
    """A space whose keys were written to the data directory before, by `claude-mem space join`."""

    space: SpaceRef
    url: Url


class BySpace(msgspec.Struct, frozen=True):
    """A request about one space."""

    space: SpaceRef


class SyncSpace(msgspec.Struct, frozen=True):
    """`restore`: upload this machine's part to a transport that has lost the space."""

    space: SpaceRef
    restore: bool = False


class RevokeMachine(msgspec.Struct, frozen=True):
    """The machine to remove, by its id."""

    space: SpaceRef
    device: Device


class SelectProjects(msgspec.Struct, frozen=True):
    """The identities of the projects to share; empty for all."""

    space: SpaceRef
    projects: Annotated[list[str], Meta(max_length=1_000)] = []


class Machine(msgspec.Struct, frozen=True):
    """A machine of the space. `here` and `there`: its entries in this database and at the transport. `until`: when it
    was removed or left."""

    device: str
    name: str
    own: bool
    here: int
    there: int
    since: int
    until: int | None = None


class SpaceStatus(msgspec.Struct, frozen=True):
    """A space as this machine sees it. `offline`: why the last attempt did not reach the transport. `busy`: an exchange
    is running, in `phase`, with the entries `done` of `total` so far by machine."""

    id: str
    name: str
    kind: str
    transport: str
    device: str
    machine: str
    epoch: int
    projects: list[str]
    created_at: int
    attempted_at: int
    exchanged_at: int
    offline: str
    machines: list[Machine]
    problems: list[Problem]
    notes: list[Problem]
    conflicts: int
    refused: dict[str, int]
    busy: bool
    phase: str
    done: dict[str, int]
    total: dict[str, int]


class Left(msgspec.Struct, frozen=True):
    """Whether the other machines were told; if not, the reason."""

    told: bool
    problem: str = ""


LIST_SPACES = Endpoint("GET", "/api/spaces", NoFields, list[SpaceStatus])
CREATE_SPACE = Endpoint("POST", "/api/spaces", CreateSpace, SpaceStatus)
ADD_SPACE = Endpoint("POST", "/api/spaces/{space}/joined", AddSpace, SpaceStatus)
SHOW_SPACE = Endpoint("GET", "/api/spaces/{space}", BySpace, SpaceStatus)
SYNC_SPACE = Endpoint("POST", "/api/spaces/{space}/sync", SyncSpace, SpaceStatus)
REVOKE_MACHINE = Endpoint("POST", "/api/spaces/{space}/revoke", RevokeMachine, SpaceStatus)
ROTATE_KEY = Endpoint("POST", "/api/spaces/{space}/rotate", BySpace, SpaceStatus)
SELECT_PROJECTS = Endpoint("POST", "/api/spaces/{space}/projects", SelectProjects, SpaceStatus)
LEAVE_SPACE = Endpoint("DELETE", "/api/spaces/{space}", BySpace, Left)
