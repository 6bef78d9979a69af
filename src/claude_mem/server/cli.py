"""The command line of the server. Commands ask and show; the database's functions decide."""

from __future__ import annotations

import argparse
import asyncio
import base64
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from claude_mem import __version__
from claude_mem.cli import output
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, OperationFailed
from claude_mem.server import settings as server_settings
from claude_mem.server import tokens
from claude_mem.server.settings import ServerSettings
from claude_mem.storage.postgres import audit, export, migrate, people
from claude_mem.storage.postgres.engine import TeamDatabase, TeamTransaction
from claude_mem.storage.postgres.people import OPERATOR, ROLES

T = TypeVar("T")
Run = Callable[[argparse.Namespace, ServerSettings], int]

DESCRIPTION = """\
The server of a team: it stores the logs of spaces, which are sealed, and knows who may read them.

Every command needs the address of a PostgreSQL database (15 or newer): `--dsn`, or CLAUDE_MEM_SERVER_DSN. Use the role
that fits: claude_mem_owner for `migrate`, claude_mem_app for `serve`, claude_mem_operator for the other commands."""

EXAMPLES = """\
examples:
  claude-mem-server roles | psql "$ADMIN_DSN"         create the three roles
  claude-mem-server migrate --dsn "$OWNER_DSN"
  claude-mem-server serve --dsn "$APP_DSN" --port 8787
  claude-mem-server org create Acme
  claude-mem-server member add Acme ada --role maintainer
  claude-mem-server code Acme ada                     ada types it on her machine, within minutes

`claude-mem-server COMMAND --help` describes a command and its options."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage."""
    options = build_parser().parse_args(arguments)
    if not hasattr(options, "run"):
        build_parser().print_help()
        return 0
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # the command reports the error itself
    try:
        flags = {name: getattr(options, name, None) for name in ("dsn", "host", "port", "pool_size")}
        settings = server_settings.load(os.environ, **flags)
        run: Run = options.run
        return run(options, settings)
    except ClaudeMemError as problem:
        output.error(str(problem), problem.hint)
        return 2 if isinstance(problem, InvalidRequest) else 1
    except OSError as problem:
        output.error(str(problem))
        return 1
    except KeyboardInterrupt:
        return 130


# --- running in the database -----------------------------------------------------------------------------------------


def _require_dsn(settings: ServerSettings) -> str:
    if not settings.dsn:
        raise InvalidRequest("which database?", hint="give --dsn, or set CLAUDE_MEM_SERVER_DSN")
    return settings.dsn


def _with_database(settings: ServerSettings, work: Callable[[TeamDatabase], Awaitable[T]]) -> T:
    async def run() -> T:
        db = TeamDatabase(_require_dsn(settings), max_size=1)
        await db.require_least_privilege()
        await db.open()
        try:
            return await work(db)
        finally:
            await db.close()

    return asyncio.run(run())


def _in_organisation(settings: ServerSettings, name: str, work: Callable[[TeamTransaction], Awaitable[T]]) -> T:
    """Run `work` once in a transaction of the organisation with this id or name."""

    async def run(db: TeamDatabase) -> T:
        return await db.run(await people.find_organisation(db, name), work, is_idempotent=False)

    return _with_database(settings, run)


def _of_member(
    options: argparse.Namespace, settings: ServerSettings, work: Callable[[TeamTransaction, UUID], Awaitable[T]]
) -> T:
    """Run `work` with the id of the member that the options name."""

    async def run(tx: TeamTransaction) -> T:
        return await work(tx, await people.find_member(tx, options.member))

    return _in_organisation(settings, options.org, run)


# --- the node and its schema -----------------------------------------------------------------------------------------


def run_roles(_options: argparse.Namespace, _settings: ServerSettings) -> int:
    """Print the statements that create the roles."""
    output.text(migrate.read_sql("roles.sql"))
    return 0


def run_migrate(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Apply missing migrations."""
    applied = migrate.migrate(_require_dsn(settings))
    _show(options, [{"number": each.number, "name": each.name, "phase": each.phase} for each in applied])
    if not applied:
        output.info("the schema is up to date")
    return 0


def run_serve(_options: argparse.Namespace, settings: ServerSettings) -> int:
    """Run a node."""
    from claude_mem.server.serve import serve

    _require_dsn(settings)
    serve(settings)
    return 0


# --- organisations, members, devices ---------------------------------------------------------------------------------


def run_org_create(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Create an organisation."""
    org_id = _with_database(settings, partial(people.create_organisation, name=options.name))
    _show(options, [{"org_id": org_id.hex, "name": options.name}])
    return 0


def run_org_list(options: argparse.Namespace, settings: ServerSettings) -> int:
    """List the organisations."""
    _show(options, _with_database(settings, people.list_organisations))
    return 0


def run_member_add(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Add a member."""
    member_id = _in_organisation(
        settings, options.org, partial(people.add_member, name=options.name, role=options.role)
    )
    _show(options, [{"member_id": member_id.hex, "name": options.name, "role": options.role}])
    return 0


def run_member_list(options: argparse.Namespace, settings: ServerSettings) -> int:
    """List the members."""
    _show(options, _in_organisation(settings, options.org, people.list_members))
    return 0


def run_member_role(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Change a member's role."""
    _of_member(options, settings, partial(people.set_role, role=options.role))
    output.info(f"{options.member} is a {options.role} from the next request on")
    return 0


def run_member_remove(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Remove a member."""
    _of_member(options, settings, people.remove_member)
    output.info(f"no device of {options.member} is accepted from the next request on; what was shared stays")
    output.info(f"hint:  `claude-mem-server erase-member {options.org} {options.member}` deletes it too")
    return 0


def run_code(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Print an enrolment code."""

    async def create(tx: TeamTransaction, member_id: UUID) -> str:
        code = tokens.new_code(tx.org_id)
        await people.create_code(tx, member_id, tokens.hash_secret(code), seconds=settings.code_minutes * 60)
        return code

    code = _of_member(options, settings, create)
    if options.json:
        output.json({"code": code, "seconds": settings.code_minutes * 60})
    else:
        output.line(code)
        output.info(f"valid once, for {settings.code_minutes} minutes")
    return 0


def run_devices(options: argparse.Namespace, settings: ServerSettings) -> int:
    """List devices, or revoke one."""
    if options.revoke:
        revocation = partial(people.revoke, device=options.revoke, member_id=None, actor=OPERATOR)
        _in_organisation(settings, options.org, revocation)
        output.info(f"{options.revoke} is refused from the next request on")
        return 0
    _show(options, _in_organisation(settings, options.org, people.list_devices))
    return 0


# --- export, erasure, audit ------------------------------------------------------------------------------------------


def run_export(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Write everything of an organisation into a file that only this user can read."""
    path = Path(options.to)
    part = path.with_name(f"{path.name}.part")
    counts: dict[str, int] = {}

    async def write(db: TeamDatabase) -> None:
        org_id = await people.find_organisation(db, options.org)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:

            async def write_rows(tx: TeamTransaction) -> None:
                async for table, row in export.rows(tx):
                    file.write(msgspec.json.encode({"table": table, **row}, enc_hook=_encode) + b"\n")
                    counts[table] = counts.get(table, 0) + 1

            await db.run_snapshot(org_id, write_rows)
            file.flush()
            os.fsync(file.fileno())

    if path.exists():
        raise OperationFailed(f"{path} exists already", hint="name another file")
    try:
        _with_database(settings, write)
        part.rename(path)  # a file with this name is complete
    finally:
        part.unlink(missing_ok=True)
    _show(options, [{"table": table, "rows": count} for table, count in counts.items()])
    return 0


def _encode(value: Any) -> Any:
    """Return a value of PostgreSQL that JSON lacks as text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview) else str(value)


def run_erase_member(options: argparse.Namespace, settings: ServerSettings) -> int:
    """Delete what a member wrote, and the member's name."""
    if options.confirm != options.member:
        raise InvalidRequest("this cannot be undone", hint=f"repeat the name to confirm: --confirm {options.member!r}")

    async def erase(tx: TeamTransaction) -> dict[str, int]:
        return await export.erase_member(tx, await people.find_member(tx, options.member, with_removed=True))

    counts = _in_organisation(settings, options.org, erase)
    _show(options, [{"deleted": what, "rows": count} for what, count in counts.items()])
    output.info("backups of the database still contain it until they expire")
    return 0


def run_audit(options: argparse.Namespace, settings: ServerSettings) -> int:
    """List the audit chain, after checking it."""

    async def read(tx: TeamTransaction) -> tuple[str, list[audit.AuditLine]]:
        return await audit.first_fault(tx), [line async for line in audit.lines(tx)]

    fault, lines = _in_organisation(settings, options.org, read)
    if options.json:
        output.json_lines(lines)
    else:
        columns = ("n", "at", "actor", "action", "subject", "facts")
        cells = [
            (
                each.n,
                datetime.fromtimestamp(each.at / 1000).astimezone(),
                each.actor,
                each.action,
                each.subject,
                each.facts,
            )
            for each in lines
        ]
        output.table(columns, cells)
    if fault:
        output.error(f"the audit chain is broken: {fault}", "compare it with a backup")
        return 1
    output.info(f"the chain of {len(lines)} lines is intact")
    return 0


def _show(options: argparse.Namespace, rows: Sequence[Any]) -> None:
    """Print rows as a table, or as JSON."""
    values = [msgspec.to_builtins(row, builtin_types=(datetime,)) for row in rows]
    if options.json:
        output.json_lines(values)
    elif values:
        output.table(list(values[0]), [[_cell(cell) for cell in row.values()] for row in values])


def _cell(value: object) -> str:
    return "" if value is None else value.isoformat(" ", "seconds") if isinstance(value, datetime) else str(value)


# --- the parser ------------------------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="claude-mem-server",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_node_commands(commands)
    _add_people_commands(commands)
    _add_record_commands(commands)
    return parser


def _command(commands: Any, name: str, run: Run, text: str, *arguments: str) -> argparse.ArgumentParser:
    """Add a command with these positional arguments."""
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text[0].lower() + text[1:].partition(".")[0], description=text
    )
    command.set_defaults(run=run)
    for argument in arguments:
        command.add_argument(argument, help=ARGUMENTS[argument])
    command.add_argument("--dsn", help="address of the database; default: CLAUDE_MEM_SERVER_DSN")
    command.add_argument("--json", action="store_true", help="one JSON object per line")
    return command


ARGUMENTS = {
    "org": "id or name of the organisation",
    "member": "id or name of the member",
    "name": "a name, for people only",
}


def _add_node_commands(commands: Any) -> None:
    _command(
        commands, "roles", run_roles, "Print the SQL that creates the database roles. An administrator runs it once."
    )
    _command(
        commands,
        "migrate",
        run_migrate,
        "Create or upgrade the tables, as claude_mem_owner. Nodes may serve meanwhile: see docs/server.md, Upgrade.",
    )
    serve = _command(
        commands,
        "serve",
        run_serve,
        "Run a node, as claude_mem_app. Nodes keep nothing: start as many as you like behind a load balancer, which "
        "also does TLS. Every setting has a variable CLAUDE_MEM_SERVER_…; see docs/server.md.",
    )
    serve.add_argument("--host", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (8787); 0: any free one, see the log")
    serve.add_argument("--pool-size", type=int, help="connections to PostgreSQL (8)")


def _add_people_commands(commands: Any) -> None:
    org = commands.add_parser("org", help="create and list organisations").add_subparsers(
        required=True, metavar="ACTION"
    )
    _command(org, "create", run_org_create, "Create an organisation: a tenant that shares nothing with others.", "name")
    _command(org, "list", run_org_list, "List the organisations.")
    member = commands.add_parser("member", help="add, list, change and remove members").add_subparsers(
        required=True, metavar="ACTION"
    )
    add = _command(member, "add", run_member_add, "Add a member to an organisation.", "org", "name")
    role = _command(
        member, "role", run_member_role, "Change a member's role. It holds from the next request on.", "org", "member"
    )
    add.add_argument("--role", choices=ROLES, default="writer", help="reader, writer (default) or maintainer")
    role.add_argument("role", choices=ROLES, help="reader: reads team spaces; writer: shares; maintainer: also manages")
    _command(member, "list", run_member_list, "List the members, with those who were removed.", "org")
    _command(
        member,
        "remove",
        run_member_remove,
        "Remove a member: none of the member's devices is accepted from the next request on. What was shared stays.",
        "org",
        "member",
    )
    _command(
        commands,
        "code",
        run_code,
        "Print a code with which one device of the member can enrol, once and within minutes.",
        "org",
        "member",
    )
    devices = _command(commands, "devices", run_devices, "List the devices of an organisation, or revoke one.", "org")
    devices.add_argument("--revoke", metavar="DEVICE", help="refuse this device from the next request on")


def _add_record_commands(commands: Any) -> None:
    export_ = _command(
        commands,
        "export",
        run_export,
        "Write everything of an organisation into a file, one JSON object per line.",
        "org",
    )
    export_.add_argument("--to", metavar="FILE", required=True, help="a new file; only you can read it")
    erase = _command(
        commands,
        "erase-member",
        run_erase_member,
        "Delete what a member wrote, personal spaces and the name. The logs of team spaces keep empty entries.",
        "org",
        "member",
    )
    erase.add_argument("--confirm", metavar="MEMBER", default="", help="the member again, as typed before")
    _command(commands, "audit", run_audit, "Check the audit chain of an organisation and list it.", "org")
