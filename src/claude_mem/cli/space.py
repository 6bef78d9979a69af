"""space: your own machines as one memory, end-to-end encrypted."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from claude_mem.cli import output
from claude_mem.cli.projects import find_project
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.system import process
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.schemas.health import InFolder
from claude_mem.worker.http.schemas.projects import LIST_PROJECTS, SHOW_PROJECT
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
    Machine,
    RevokeMachine,
    SelectProjects,
    SpaceStatus,
    SyncSpace,
)

SECONDS = 600.0  # for one response: a removal exchanges before and after
LOOK_SECONDS = 0.1
ACTIONS = {
    "create": "create a space (`create NAME --at URL`) and show its recovery phrase",
    "join": "add this machine to a space (`join URL`); asks for the recovery phrase",
    "list": "list the spaces of this machine",
    "status": "machines, entries on both sides, last exchange, problems",
    "sync": "exchange now",
    "devices": "list the machines of the space",
    "revoke": "remove a lost machine (`revoke MACHINE`) and replace the key",
    "rotate": "replace the key",
    "phrase": "show the recovery phrase",
    "projects": "share only these projects (`projects PROJECT …`), or all (`projects all`)",
    "leave": "forget the space on this machine; the memory stays",
}
CONFIRM_WORD = "show"


def add_commands(commands: Any) -> None:
    """Add `space`."""
    space_ = commands.add_parser(
        "space",
        help="share the memory of your own machines, end-to-end encrypted",
        epilog="; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
        + ". URL: a folder that both machines see, a git remote, or a server. The space is the only one if --space is"
        " not given.",
    )
    space_.add_argument("what", nargs="?", choices=tuple(ACTIONS), default="status", help="default: status")
    space_.add_argument("names", nargs="*", metavar="NAME", help="create: the name; join: URL; revoke: the machine")
    space_.add_argument("--at", default="", metavar="URL", help="create: where the space is exchanged")
    space_.add_argument("--space", default="", metavar="SPACE", help="name or id, if there is more than one space")
    space_.add_argument("--machine", default="", metavar="NAME", help="create, join: what to call this machine")
    space_.add_argument("--restore", action="store_true", help="sync: upload to a place that has lost the space")
    space_.add_argument("--yes", action="store_true", help="revoke, rotate, leave: do not ask for confirmation")
    space_.add_argument("--json", action="store_true", help="print JSON, one object per line")
    space_.set_defaults(run=space)


def space(options: argparse.Namespace) -> int:
    """Create or join a space, or show or change one."""
    config = load_lenient().config
    client = Client(process.ensure_worker(config.data_dir), seconds=SECONDS)
    run = {
        "create": _create,
        "join": _join,
        "list": _list,
        "status": _status,
        "sync": _sync,
        "devices": _devices,
        "revoke": _revoke,
        "rotate": _rotate,
        "phrase": _phrase,
        "projects": _projects,
        "leave": _leave,
    }[options.what]
    options.data_dir = config.data_dir
    return run(client, options)


def _argument(options: argparse.Namespace, usage: str) -> str:
    if len(options.names) != 1:
        raise InvalidRequest("one argument is needed", hint=f"usage: claude-mem space {usage}")
    return str(options.names[0])


def _find(client: Client, options: argparse.Namespace) -> SpaceStatus:
    """Return the space that is meant: the one that is named, or the only one."""
    if options.space:
        return client.call(SHOW_SPACE, BySpace(options.space))
    spaces = client.call(LIST_SPACES, NoFields())
    if not spaces:
        raise NotFound("this machine is in no space", hint="`claude-mem space create NAME --at URL`, or `join URL`")
    if len(spaces) > 1:
        raise InvalidRequest(
            f"this machine is in {len(spaces)} spaces",
            hint=f"--space {' or --space '.join(each.name for each in spaces)}",
        )
    return spaces[0]


# --- create and join -------------------------------------------------------------------------------------------------


def _create(client: Client, options: argparse.Namespace) -> int:
    from claude_mem.sync.keys import load_keys, phrase_of
    from claude_mem.sync.transports.address import normalize

    name = _argument(options, "create NAME --at URL")
    if not options.at:
        raise InvalidRequest("--at is missing", hint="usage: claude-mem space create NAME --at URL")
    url = normalize(options.at, base=Path.cwd())
    code = _ask_for_code(url)
    status = client.call(CREATE_SPACE, CreateSpace(name, url, machine=options.machine, code=code))
    phrase = phrase_of(load_keys(options.data_dir, status.id).key)
    if options.json:
        output.json({"id": status.id, "name": status.name, "transport": status.transport, "phrase": phrase})
        return 0
    output.line(f"created the space {status.name!r} at {status.transport}; this machine is {status.machine!r}")
    output.line("recovery phrase:")
    _show_phrase(phrase)
    output.info("write it down and keep it off this machine: it is the only way to read the space if all machines are")
    output.info("lost, and anyone who has it can read everything. To add a machine, run there:")
    output.info(f"  claude-mem space join {_join_address(status)}")
    return 0


def _join_address(status: SpaceStatus) -> str:
    is_server = status.transport.startswith(("http://", "https://"))
    return f"{status.transport}#{status.id}" if is_server else status.transport


def _show_phrase(phrase: str) -> None:
    words = phrase.split()
    for start in range(0, len(words), 6):
        output.line("  " + " ".join(words[start : start + 6]))


def _ask_for_code(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        return ""
    return output.read_secret("one-time code of the server:")


def _join(client: Client, options: argparse.Namespace) -> int:
    """Check the phrase against the manifest before anything is uploaded, then add the space."""
    from claude_mem.sync import membership
    from claude_mem.sync.keys import key_of_phrase
    from claude_mem.sync.transports.address import normalize

    typed = _argument(options, "join URL")
    place, mark, reference = typed.partition("#")
    url = normalize(place, base=Path.cwd()) + mark + reference
    is_enrolled = membership.is_server(url) and membership.find_enrolment(options.data_dir, url)
    code = "" if is_enrolled else _ask_for_code(url)
    key = key_of_phrase(output.read_secret("recovery phrase (24 words):"))
    joined = membership.join_space(
        options.data_dir, url, key, machine=options.machine or membership.default_machine_name(), code=code
    )
    status = client.call(ADD_SPACE, AddSpace(joined.id, joined.transport))
    if not options.json:
        output.line(f"the phrase fits: this machine, {status.machine!r}, is in the space {status.name!r}")
    return _finish(_watch(client, status.id), options)


# --- show and exchange -----------------------------------------------------------------------------------------------


def _list(client: Client, options: argparse.Namespace) -> int:
    spaces = client.call(LIST_SPACES, NoFields())
    if options.json:
        output.json_lines(spaces)
    elif not spaces:
        output.info("this machine is in no space; `claude-mem space create NAME --at URL` creates one")
    else:
        columns = ("name", "machines", "last exchange", "problems", "at")
        rows = [
            (each.name, _count_active(each), output.format_age(each.exchanged_at), _summarize(each), each.transport)
            for each in spaces
        ]
        output.table(columns, rows)
    return 0


def _count_active(status: SpaceStatus) -> int:
    return sum(machine.until is None for machine in status.machines)


def _summarize(status: SpaceStatus) -> str:
    if status.problems:
        return output.plural(len(status.problems), "problem")
    return "offline" if status.offline else ""


def _status(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    if options.json:
        output.json(status)
        return 0
    output.line(f"{status.name}  {status.transport}")
    output.line(f"this machine: {status.machine} ({status.device}), key {status.epoch}")
    output.line(f"last exchange: {output.format_age(status.exchanged_at)}")
    if status.offline:
        output.line(f"not reached {output.format_age(status.attempted_at)}: {status.offline}")
    if status.projects:
        output.line(f"shared: only {', '.join(status.projects)}")
    _show_machines(status.machines)
    _show_problems(status)
    return 0


def _show_machines(machines: list[Machine]) -> None:
    columns = ("machine", "id", "here", "at the transport", "since", "until")
    rows = [
        (
            f"{machine.name}{' (this one)' if machine.own else ''}",
            machine.device,
            f"{machine.here:,}",
            f"{machine.there:,}",
            output.format_age(machine.since),
            output.format_age(machine.until) if machine.until else "",
        )
        for machine in machines
    ]
    output.table(columns, rows)


def _show_problems(status: SpaceStatus) -> None:
    for problem in status.problems:
        output.line(f"problem: {problem.message}")
        if problem.hint:
            output.line(f"  {problem.hint}")
    for note in status.notes:
        output.line(f"note ({output.format_age(note.at)}): {note.message}")
    for reason, count in sorted(status.refused.items()):
        output.line(f"not taken: {count:,} ({reason})")
    if status.conflicts:
        output.line(f"conflicts: {status.conflicts:,} edited on two machines at once; the later one counts")


def _sync(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    client.call(SYNC_SPACE, SyncSpace(status.id, restore=options.restore))
    return _finish(_watch(client, status.id), options)


def _watch(client: Client, space_id: str) -> SpaceStatus:
    """Draw the progress of an exchange by machine until it ended."""
    with output.progress() as advance:
        while True:
            status = client.call(SHOW_SPACE, BySpace(space_id))
            for machine, total in status.total.items():
                if total:
                    advance(machine, status.done.get(machine, 0), total, status.phase)
            if not status.busy:
                return status
            time.sleep(LOOK_SECONDS)


def _finish(status: SpaceStatus, options: argparse.Namespace) -> int:
    """Show the result of an exchange. Exit with 1 if it did not take place or something is wrong."""
    if options.json:
        output.json(status)
    elif not status.offline:
        for machine in status.machines:
            if machine.until is None:
                output.line(f"{machine.name}: {machine.here:,} entries here, {machine.there:,} at the transport")
        _show_problems(status)
    if status.offline:
        raise OperationFailed(status.offline, hint="nothing is lost; the next exchange continues")
    return 1 if status.problems else 0


def _devices(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    if options.json:
        output.json_lines(status.machines)
    else:
        _show_machines(status.machines)
    return 0


# --- change ----------------------------------------------------------------------------------------------------------


def _revoke(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    reference = _argument(options, "revoke MACHINE")
    active = [machine for machine in status.machines if machine.until is None]
    matches = [machine for machine in active if reference in (machine.device, machine.name)]
    if not matches:
        raise NotFound(f"no machine {reference!r} belongs to the space", hint="`claude-mem space devices` lists them")
    if len(matches) > 1:
        ids = ", ".join(machine.device for machine in matches)
        raise InvalidRequest(f"{len(matches)} machines are named {reference!r}", hint=f"use an id: {ids}")
    machine = matches[0]
    output.info(f"{machine.name} keeps what it has, but gets nothing that is shared from now on; the key is replaced")
    if not _confirm(f"Remove {machine.name} ({machine.device}) from {status.name}?", options):
        return 1
    changed = client.call(REVOKE_MACHINE, RevokeMachine(status.id, device=machine.device))
    output.line(f"removed {machine.name}; the space has key {changed.epoch}")
    output.info("the recovery phrase changed: `claude-mem space phrase` shows the new one")
    return 0


def _rotate(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    output.info("the other machines get the new key at their next exchange; the old recovery phrase is void")
    if not _confirm(f"Replace the key of {status.name}?", options):
        return 1
    changed = client.call(ROTATE_KEY, BySpace(status.id))
    output.line(f"the space has key {changed.epoch}; `claude-mem space phrase` shows the new recovery phrase")
    return 0


def _phrase(client: Client, options: argparse.Namespace) -> int:
    """Show the recovery phrase, which is read from the key file: it never passes through HTTP."""
    from claude_mem.sync.keys import load_keys, phrase_of

    status = _find(client, options)
    output.info("anyone who sees the recovery phrase can read everything in the space")
    if output.can_ask():
        if output.read_answer(f"Type `{CONFIRM_WORD}` to show it:") != CONFIRM_WORD:
            output.info("not shown")
            return 1
    elif not options.yes:
        raise InvalidRequest("the phrase is only shown on a terminal", hint="add --yes to print it anyway")
    phrase = phrase_of(load_keys(options.data_dir, status.id).key)
    if options.json:
        output.json({"id": status.id, "phrase": phrase})
    else:
        _show_phrase(phrase)
    return 0


def _projects(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    if not options.names:
        output.line(", ".join(status.projects) if status.projects else "all projects are shared")
        return 0
    identities: list[str] = []
    if options.names != ["all"]:
        items = client.call(LIST_PROJECTS, InFolder()).items
        for name in options.names:
            page = client.call(SHOW_PROJECT, ById(find_project(client, items, name).id))
            identities += [f"{alias.kind}:{alias.what}" for alias in page.aliases]
    changed = client.call(SELECT_PROJECTS, SelectProjects(status.id, identities))
    output.line(f"shared: {', '.join(changed.projects) if changed.projects else 'all projects'}")
    output.info("what was shared before stays on the other machines; `claude-mem forget` deletes it everywhere")
    return 0


def _leave(client: Client, options: argparse.Namespace) -> int:
    status = _find(client, options)
    output.info("the memory stays here and what was shared stays with the other machines; the keys are deleted")
    if _count_active(status) == 1:
        output.info("this is the only machine: without the recovery phrase nobody can read the space afterwards")
    if not _confirm(f"Leave the space {status.name}?", options):
        return 1
    result = client.call(LEAVE_SPACE, BySpace(status.id))
    output.line(f"left {status.name}")
    if not result.told:
        output.info(f"the other machines could not be told ({result.problem}); remove this one there:")
        output.info(f"  claude-mem space revoke {status.device}")
    return 0


def _confirm(question: str, options: argparse.Namespace) -> bool:
    if options.yes or output.ask(question):
        return True
    output.info("nothing was changed (use `--yes` to skip the question)")
    return False
