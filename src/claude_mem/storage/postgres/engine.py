"""Connections to PostgreSQL: every statement runs in a transaction that belongs to one organisation.

`TeamDatabase.run` is the only way to the tables. It sets the organisation for the transaction alone, so that a pooled
connection carries nothing from one request to the next. A database that restarts or fails over breaks connections at any
moment, also between a commit and its confirmation; therefore the functions that write are idempotent and are tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from claude_mem.domain.errors import DatabaseUnavailable, OperationFailed
from claude_mem.storage.postgres.migrate import AppliedMigration, why_incompatible

log = logging.getLogger(__name__)

T = TypeVar("T")
TRIES = 3
RECONNECT_SECONDS = 5  # then the pool gives up; the next request makes it try again, with short pauses at first
CONNECT_OPTIONS: dict[str, Any] = {"connect_timeout": 5, "application_name": "claude-mem-server"}
# Another try cannot succeed soon, or would only repeat the wait.
FINAL_ERRORS = (PoolTimeout, errors.QueryCanceled, errors.DiskFull)


@dataclass(frozen=True, slots=True)
class TeamTransaction:
    """A transaction that sees one organisation. The functions of this package take it and never commit."""

    conn: AsyncConnection[Any]
    org_id: UUID


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """What a node finds when it asks the database how it is."""

    problem: str = ""  # why requests cannot be served; empty if they can
    is_read_only: bool = False


class TeamDatabase:
    """A pool of connections with one role."""

    def __init__(self, dsn: str, *, min_size: int = 1, max_size: int = 8, wait_seconds: float = 5) -> None:
        self._dsn = dsn
        self._pool = AsyncConnectionPool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            timeout=wait_seconds,
            max_idle=300,
            reconnect_timeout=RECONNECT_SECONDS,
            kwargs=CONNECT_OPTIONS,
            open=False,
        )

    async def open(self) -> None:
        """Open the pool without waiting for the database, which may be starting."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    @property
    def statistics(self) -> dict[str, int]:
        """Sizes and counts of the pool, for the metrics."""
        return dict(self._pool.get_stats())

    async def run(
        self, org_id: UUID, work: Callable[[TeamTransaction], Awaitable[T]], *, is_idempotent: bool = True
    ) -> T:
        """Run `work` in a transaction of this organisation and return its result.

        Raises `DatabaseUnavailable` if the database does not answer or accepts no writes.
        """
        for tries_left in reversed(range(TRIES if is_idempotent else 1)):
            try:
                return await self._run_once(org_id, work)
            except psycopg.OperationalError as error:
                if isinstance(error, FINAL_ERRORS) or not tries_left:
                    raise _unavailable(error) from error
                log.warning("the database failed (%s); trying again", type(error).__name__)
                await self._discard_broken_connections()
            except errors.ReadOnlySqlTransaction as error:
                raise _unavailable(error) from error
        raise AssertionError("unreachable")

    async def run_snapshot(self, org_id: UUID, work: Callable[[TeamTransaction], Awaitable[T]]) -> T:
        """Run `work` in a transaction that cannot write and sees all tables as they are at one moment."""
        try:
            async with self._pool.connection() as conn, conn.transaction():
                await conn.execute("set transaction isolation level repeatable read read only")
                await conn.execute("select set_config('claude_mem.org_id', %s, true)", (str(org_id),))
                return await work(TeamTransaction(conn, org_id))
        except psycopg.OperationalError as error:
            raise _unavailable(error) from error

    async def _run_once(self, org_id: UUID, work: Callable[[TeamTransaction], Awaitable[T]]) -> T:
        async with self._pool.connection() as conn:  # commits at the end, or rolls back
            async with conn.pipeline():  # BEGIN goes along: one round trip instead of two
                await conn.execute("select set_config('claude_mem.org_id', %s, true)", (str(org_id),))
            return await work(TeamTransaction(conn, org_id))

    async def _discard_broken_connections(self) -> None:
        try:
            await self._pool.check()
        except psycopg.OperationalError:
            pass  # the next try reports it

    async def check(self) -> DatabaseState:
        """Return whether a node can serve requests with this database."""
        try:
            async with self._pool.connection() as conn:
                return await _check(conn)
        except psycopg.OperationalError as error:
            await self._discard_broken_connections()
            return DatabaseState(f"the database does not answer ({type(error).__name__})")

    async def require_least_privilege(self) -> None:
        """Raise an error if the database does not answer, or if row-level security would not apply to this role."""
        try:
            async with await AsyncConnection.connect(self._dsn, **CONNECT_OPTIONS) as conn:
                problem = await _excess_privilege(conn)
        except psycopg.OperationalError as error:  # not through the pool, which would hide the reason
            raise DatabaseUnavailable(f"cannot connect to the database: {str(error).splitlines()[0]}") from error
        if problem:
            raise OperationFailed(problem, hint="use claude_mem_app or claude_mem_operator; see docs/server.md, Roles")


def _unavailable(error: psycopg.Error) -> DatabaseUnavailable:
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return DatabaseUnavailable("the database accepts no writes at the moment", is_read_only=True)
    return DatabaseUnavailable(f"the database does not answer ({type(error).__name__})")


async def _check(conn: AsyncConnection[Any]) -> DatabaseState:
    exists = await (await conn.execute("select to_regclass('claude_mem.schema_migrations')")).fetchone()
    if not exists or exists[0] is None:
        return DatabaseState("the database is empty; run `claude-mem-server migrate`")
    rows = await conn.execute("select number, name, phase, checksum from schema_migrations order by number")
    if problem := why_incompatible([AppliedMigration(*row) for row in await rows.fetchall()]):
        return DatabaseState(problem)
    row = await (await conn.execute("select current_setting('transaction_read_only') = 'on'")).fetchone()
    return DatabaseState(is_read_only=bool(row and row[0]))


async def _excess_privilege(conn: AsyncConnection[Any]) -> str:
    role = await (
        await conn.execute(
            """
            select rolname, rolsuper or rolbypassrls,
                   exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                            where n.nspname = 'claude_mem' and pg_has_role(current_user, c.relowner, 'member'))
              from pg_roles where rolname = current_user
            """
        )
    ).fetchone()
    assert role
    if role[1]:
        return f"the role {role[0]} is a superuser or has BYPASSRLS: row-level security would not apply"
    if role[2]:
        return f"the role {role[0]} owns the tables or may act as their owner"
    unprotected = await (
        await conn.execute(
            """
            select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = 'claude_mem' and c.relkind in ('r', 'p')
               and not (c.relrowsecurity and c.relforcerowsecurity)
            """
        )
    ).fetchone()
    return f"row-level security is not forced on the table {unprotected[0]}" if unprotected else ""
