"""Apply the numbered migrations of a team server, and say whether a node may run on what is applied.

Nodes of two versions run at once during an upgrade. Each migration therefore names its phase in its first line:
`expand` adds what old nodes ignore, `migrate` fills it while both versions write, and `contract` removes what only old
nodes use. A node accepts a newer schema unless a `contract` migration that it does not know was applied.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, cast

import psycopg

from claude_mem.domain.errors import OperationFailed

SCHEMA = "claude_mem"
LOCK = 0x636D656D  # "cmem": two processes that migrate at once take turns
PHASE = re.compile(r"-- phase: (expand|migrate|contract)\n")

Phase = Literal["expand", "migrate", "contract"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    phase: Phase
    statements: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the statements."""
        return hashlib.sha256(self.statements.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A row of `schema_migrations`."""

    number: int
    name: str
    phase: str
    checksum: str


def read_sql(name: str) -> str:
    """Return the text of a file of this package."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def list_migrations() -> list[Migration]:
    """Return all migrations of this version, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql"))
    return [_parse(name, text) for name, text in files]


def _parse(name: str, text: str) -> Migration:
    phase = PHASE.match(text)
    assert phase, f"{name} does not begin with its phase"
    number, _, title = name.removesuffix(".sql").partition("_")
    return Migration(int(number), title, cast(Phase, phase[1]), text)


def migrate(dsn: str, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply the missing migrations, each in its own transaction, and return them."""
    missing = []
    with psycopg.connect(dsn, autocommit=True) as conn:
        _require_owner(conn)
        conn.execute("select pg_advisory_lock(%s)", (LOCK,))
        _create_schema(conn)
        applied = {row.number: row for row in applied_migrations(conn)}
        for migration in list_migrations() if migrations is None else migrations:
            if (row := applied.get(migration.number)) is None:
                _apply(conn, migration)
                missing.append(migration)
            elif row.checksum != migration.checksum:
                raise OperationFailed(
                    f"migration {migration.number} ({migration.name}) was applied with other contents",
                    hint="this database was migrated by a modified or unreleased version",
                )
    return missing


def _require_owner(conn: psycopg.Connection) -> None:
    row = conn.execute(
        "select current_user, rolsuper or rolbypassrls from pg_roles where rolname = current_user"
    ).fetchone()
    assert row
    if row[1]:
        raise OperationFailed(
            f"the role {row[0]} is a superuser or has BYPASSRLS and must not own the tables",
            hint="connect as claude_mem_owner; `claude-mem-server roles` prints the statements that create the role",
        )


def _create_schema(conn: psycopg.Connection) -> None:
    with conn.transaction():
        conn.execute(f"create schema if not exists {SCHEMA}")
        conn.execute(f"set local search_path = {SCHEMA}, pg_temp")
        conn.execute(f"grant usage on schema {SCHEMA} to claude_mem_app, claude_mem_operator")
        conn.execute(
            """
            create table if not exists schema_migrations (
              number integer primary key,
              name text not null,
              phase text not null check (phase in ('expand', 'migrate', 'contract')),
              checksum text not null,
              applied_at timestamptz not null default now()
            )
            """
        )
        conn.execute("alter table schema_migrations enable row level security")
        conn.execute("alter table schema_migrations force row level security")
        conn.execute("drop policy if exists shared on schema_migrations")
        conn.execute("create policy shared on schema_migrations using (true)")
        conn.execute("grant select on schema_migrations to claude_mem_app, claude_mem_operator")


def _apply(conn: psycopg.Connection, migration: Migration) -> None:
    with conn.transaction():
        conn.execute(f"set local search_path = {SCHEMA}, pg_temp")
        conn.execute(migration.statements)
        conn.execute(
            "insert into schema_migrations (number, name, phase, checksum) values (%s, %s, %s, %s)",
            (migration.number, migration.name, migration.phase, migration.checksum),
        )


def applied_migrations(conn: psycopg.Connection) -> list[AppliedMigration]:
    """Return what is applied, in order."""
    rows = conn.execute(f"select number, name, phase, checksum from {SCHEMA}.schema_migrations order by number")
    return [AppliedMigration(*row) for row in rows]


def why_incompatible(applied: Sequence[AppliedMigration], own: Sequence[Migration] | None = None) -> str:
    """Return why this version cannot run on the schema, or an empty string if it can."""
    numbers = {migration.number for migration in (list_migrations() if own is None else own)}
    missing = numbers - {row.number for row in applied}
    if missing:
        return f"migration {min(missing)} is missing; run `claude-mem-server migrate`"
    contracted = [row for row in applied if row.phase == "contract" and row.number not in numbers]
    if contracted:
        return f"migration {contracted[0].number} of a newer version removed what this version uses; upgrade this node"
    return ""
