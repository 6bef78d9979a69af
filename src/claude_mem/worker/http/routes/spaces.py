"""Routes for spaces. What changes one must come from a terminal, because it decides where memory is sent."""

from __future__ import annotations

from claude_mem.domain.errors import OperationFailed
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.route import AnyRoute, Caller, Route
from claude_mem.worker.http.schemas.spaces import (
    ADD_SPACE,
    CREATE_SPACE,
    LEAVE_SPACE,
    LIST_SPACES,
    REVOKE_MACHINE,
    ROTATE_KEY,
    SELECT_PROJECTS,
    SHOW_SPACE,
    SYNC_SPACE,
    AddSpace,
    BySpace,
    CreateSpace,
    Left,
    RevokeMachine,
    SelectProjects,
    SpaceStatus,
    SyncSpace,
)


async def list_spaces(service: Service, _: NoFields) -> list[SpaceStatus]:
    """All spaces, with the machines of each, the counts on both sides and what is wrong."""
    return await service.spaces.list()


async def show_space(service: Service, request: BySpace) -> SpaceStatus:
    """One space, and the progress of its exchange."""
    return await service.spaces.status(await service.spaces.get(request.space))


async def create_space(service: Service, request: CreateSpace, caller: Caller) -> SpaceStatus:
    """Create a space: `{name, url, machine?, code?}`. The keys are written to the data directory."""
    _require_terminal(caller)
    space = await service.spaces.create(request.name, request.url, machine=request.machine, code=request.code)
    return await service.spaces.status(space)


async def add_space(service: Service, request: AddSpace, caller: Caller) -> SpaceStatus:
    """Add a space whose keys `claude-mem space join` has written to the data directory."""
    _require_terminal(caller)
    return await service.spaces.status(await service.spaces.add_joined(request.space, request.url))


async def sync_space(service: Service, request: SyncSpace, caller: Caller) -> SpaceStatus:
    """Start an exchange; GET shows the progress. `restore`: also upload to a transport that has lost the space."""
    if request.restore:
        _require_terminal(caller)
    space = await service.spaces.get(request.space)
    service.spaces.start(space, restore=request.restore)
    return await service.spaces.status(space)


async def revoke_machine(service: Service, request: RevokeMachine, caller: Caller) -> SpaceStatus:
    """Remove a machine, and give the space a new key that it does not get."""
    _require_terminal(caller)
    space = await service.spaces.rotate(request.space, revoked=request.device)
    return await service.spaces.status(await service.spaces.get(space.id))


async def rotate_key(service: Service, request: BySpace, caller: Caller) -> SpaceStatus:
    """Give the space a new key. Machines that belong to it get it; the recovery phrase is another one from then on."""
    _require_terminal(caller)
    space = await service.spaces.rotate(request.space)
    return await service.spaces.status(await service.spaces.get(space.id))


async def select_projects(service: Service, request: SelectProjects, caller: Caller) -> SpaceStatus:
    """Set which projects are shared, by their identities; an empty list for all."""
    _require_terminal(caller)
    space = await service.spaces.select_projects(request.space, request.projects)
    return await service.spaces.status(await service.spaces.get(space.id))


async def leave_space(service: Service, request: BySpace, caller: Caller) -> Left:
    """Forget the space and its keys here. The memory stays, and the other machines keep what was shared."""
    _require_terminal(caller)
    return await service.spaces.leave(request.space)


def _require_terminal(caller: Caller) -> None:
    caller.require_user()
    if not caller.by_token:
        raise OperationFailed("spaces are changed in a terminal only", hint="use `claude-mem space`")


ROUTES: tuple[AnyRoute, ...] = (
    Route(LIST_SPACES, list_spaces),
    Route(CREATE_SPACE, create_space),
    Route(ADD_SPACE, add_space),
    Route(SHOW_SPACE, show_space),
    Route(SYNC_SPACE, sync_space),
    Route(REVOKE_MACHINE, revoke_machine),
    Route(ROTATE_KEY, rotate_key),
    Route(SELECT_PROJECTS, select_projects),
    Route(LEAVE_SPACE, leave_space),
)
