"""No organisation sees, changes or can guess at a row of another, whatever a query forgets: the database refuses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import ConnectionPool

from claude_mem.storage.postgres import logs, people, spaces
from claude_mem.storage.postgres.engine import TeamDatabase, TeamTransaction
from claude_mem.storage.postgres.people import Caller
from tests.support import proof
from tests.support.postgres import NodeProcess, Postgres
from tests.support.team import Machine, Team, run

QUERIES = 20_000 if proof.long() else 2_000
ORGANISATIONS = 4
ROLES = ("app", "operator", "owner")
# Without an organisation, because it is the same for all: what was migrated.
SHARED_TABLES = {"schema_migrations"}

pytestmark = pytest.mark.timeout(1800 if proof.long() else 600)


@dataclass
class Tenant:
    """An organisation with rows in every table, and a canary in its bodies."""

    team: Team
    machine: Machine
    space: str
    canary: bytes

    @property
    def org_id(self) -> UUID:
        return self.team.org_id


@pytest.fixture(scope="module")
def tenants(postgres: Postgres, node: NodeProcess) -> list[Tenant]:
    result = []
    for number in range(ORGANISATIONS):
        team = Team.create(node.url, postgres.dsn("operator"), f"Org {number}")
        machine = team.machine("ada", "maintainer")
        other = team.enrol(machine.member_id)
        canary = f"canary-{team.org_id.hex}".encode()
        space = machine.create_space("team")
        machine.append(space, 0, [canary] * 5)
        other.append(space, 0, [canary] * 3)
        machine.call("PUT", f"/spaces/{space}/manifest", content=canary, headers={"If-None-Match": "*"})
        team.code(machine.member_id)
        result.append(Tenant(team, machine, space, canary))
    return result


def tables(postgres: Postgres) -> list[str]:
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        rows = conn.execute(
            """
            select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = 'claude_mem' and c.relkind in ('r', 'p', 'v', 'm', 'f') order by 1
            """
        )
        return [name for (name,) in rows]


# --- the tables themselves ---------------------------------------------------------------------------------------------


def unprotected(conn: psycopg.Connection[Any]) -> dict[str, str]:
    """What is wrong with each table, view or function of the schema; empty if nothing is."""
    rows = conn.execute(
        """
        select c.relname, c.relkind::text, c.relrowsecurity and c.relforcerowsecurity, pg_get_userbyid(c.relowner),
               exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id' and a.attnotnull),
               (select count(*) from pg_policy p where p.polrelid = c.oid),
               coalesce((select bool_and(
                   pg_get_expr(p.polqual, p.polrelid) like '%current_org()%'
                   and (p.polcmd = 'r' or pg_get_expr(p.polwithcheck, p.polrelid) like '%current_org()%'))
                 from pg_policy p where p.polrelid = c.oid), false),
               (select a.attname from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
                 where i.indrelid = c.oid and i.indisprimary),
               (select count(*) from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
                 where i.indrelid = c.oid and i.indisunique and a.attname <> 'org_id')
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'claude_mem' and c.relkind in ('r', 'p', 'v', 'm', 'f')
        """
    )
    problems = {}
    for name, kind, forced, owner, has_org, policies, tied, first_key, other_unique in rows:
        wrong = {
            "not a table": kind not in ("r", "p"),
            "not forced": not forced,
            "another owner": owner != "claude_mem_owner",
            "no policy": not policies,
        }
        if name not in SHARED_TABLES:
            wrong |= {
                "no org_id": not has_org,
                "a policy without the organisation": not tied,
                "the key does not begin with org_id": first_key != "org_id",
                "a unique index that does not begin with org_id": bool(other_unique),
            }
        if any(wrong.values()):
            problems[name] = ", ".join(what for what, is_so in wrong.items() if is_so)
    return problems


def test_every_table_has_a_forced_policy(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        assert unprotected(conn) == {}
        assert len(tables(postgres)) > 20


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        ("create table notes (org_id uuid primary key)", "not forced, no policy, a policy without the organisation"),
        ("create table notes (org_id uuid primary key); alter table notes enable row level security; "
         "create policy p on notes using (org_id = (select current_org()))", "not forced"),
        ("create table notes (org_id uuid primary key, body text); call protect('notes'); create policy q on notes using (true)",
         "a policy without the organisation"),
        ("create table notes (id int primary key, org_id uuid not null); call protect('notes')",
         "the key does not begin with org_id, a unique index that does not begin with org_id"),
        ("create table notes (id int primary key); alter table notes enable row level security; "
         "alter table notes force row level security; create policy p on notes using (true)",
         "no org_id, a policy without the organisation"),
        ("create view notes as select * from members", "not a table, not forced, no policy"),
    ],
)  # fmt: skip
def test_the_check_notices_an_unprotected_table(postgres: Postgres, statements: str, problem: str) -> None:
    with psycopg.connect(postgres.dsn("owner")) as conn:
        conn.execute(statements)
        assert problem in unprotected(conn).get("notes", "")
        conn.rollback()


def test_the_roles_cannot_step_around_the_policies(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        rows = conn.execute(
            """
            select rolname from pg_roles where rolname like 'claude_mem_%' and
             (rolsuper or rolbypassrls or rolcreaterole or rolreplication
              or exists (select from pg_auth_members m where m.member = pg_roles.oid))
            """
        )
        assert rows.fetchall() == []
    for role in ("app", "operator"):
        for statement in (
            "alter table claude_mem.members no force row level security",
            "alter table claude_mem.members disable row level security",
            "create policy q on claude_mem.members using (true)",
            "drop table claude_mem.audit",
            "create table claude_mem.mine (n int)",
            "create temporary table members (n int)",
            "set role claude_mem_owner",
            "set session authorization claude_mem_owner",
        ):
            with pytest.raises(errors.InsufficientPrivilege), psycopg.connect(postgres.dsn(role)) as conn:
                conn.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from log_entries",
        "update log_entries set body = 'x'",
        "update audit set facts = '{}'",
        "delete from audit",
        "delete from audit_heads",
        "update members set role = 'maintainer'",
        "insert into members (org_id, member_id, name, role) select current_org(), gen_random_uuid(), 'x', 'maintainer'",
        "update spaces set kind = 'team'",
        "delete from spaces",
        "insert into organisations (org_id, name) values (current_org(), 'x')",
        "insert into schema_migrations values (9, 'x', 'expand', 'x')",
        "select * from log_entries_00",
    ],
)
def test_a_node_may_not_do_what_no_route_needs(postgres: Postgres, tenants: list[Tenant], statement: str) -> None:
    with psycopg.connect(postgres.dsn("app")) as conn:
        conn.execute("select set_config('claude_mem.org_id', %s, true)", (str(tenants[0].org_id),))
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute(statement)


# --- queries -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=ROLES)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pool(role: str, postgres: Postgres) -> Iterator[ConnectionPool]:
    with ConnectionPool(postgres.dsn(role), min_size=1, max_size=3, open=True) as pool:
        yield pool


def test_without_an_organisation_every_table_is_empty(
    postgres: Postgres, role: str, pool: ConnectionPool, tenants: list[Tenant]
) -> None:
    """The operator's role sees the names of the organisations: an exception, made by a policy for this role alone."""
    counts = {}
    for table in tables(postgres):
        try:
            with pool.connection() as conn:
                counts[table] = (conn.execute(f"select count(*) from {table}").fetchone() or (0,))[0]
        except errors.InsufficientPrivilege:
            counts[table] = 0
    expected = SHARED_TABLES | ({"organisations"} if role == "operator" else set())
    assert {table for table, count in counts.items() if count} == expected


@dataclass
class Outcome:
    """What a statement read or changed."""

    own: int = 0
    foreign: int = 0
    refused: int = 0


REFUSALS = (
    errors.InsufficientPrivilege, errors.CheckViolation, errors.NotNullViolation, errors.ForeignKeyViolation,
    errors.UniqueViolation, errors.QueryCanceled,
)  # fmt: skip


def test_randomised_queries_find_no_foreign_row(
    postgres: Postgres, role: str, pool: ConnectionPool, tenants: list[Tenant]
) -> None:
    """Statements that forget the organisation, name a foreign one, or run after another tenant's on a connection."""
    chance = random.Random(role)
    names = [name for name in tables(postgres) if name not in SHARED_TABLES]

    def query(_: int) -> Outcome:
        tenant, other, table = chance.choice([*tenants, None]), chance.choice(tenants), chance.choice(names)
        if tenant is None and table == "organisations" and role == "operator":
            return Outcome()  # the exception: see above
        own = tenant.org_id if tenant else None
        try:
            # What a tenant does to its own rows is taken back, so that the test can go on with them.
            with pool.connection() as conn, conn.transaction(force_rollback=own == other.org_id):
                if own is not None:
                    _set_tenant(conn, own, chance)
                rows = _random_statement(conn, table, other.org_id, chance)
        except REFUSALS:
            return Outcome(refused=1)
        mine = sum(1 for org_id in rows if org_id == own)
        return Outcome(own=mine, foreign=len(rows) - mine)

    with ThreadPoolExecutor(3) as threads:
        outcomes = list(threads.map(query, range(QUERIES // len(ROLES) + 1)))
    foreign = sum(outcome.foreign for outcome in outcomes)
    assert foreign == 0
    assert sum(outcome.own for outcome in outcomes) > 100  # the statements do find rows
    assert sum(outcome.refused for outcome in outcomes) > 10
    _assert_untouched(tenants)


def _set_tenant(conn: psycopg.Connection[Any], org_id: UUID, chance: random.Random) -> None:
    if chance.random() < 0.5:
        conn.execute("select set_config('claude_mem.org_id', %s, true)", (str(org_id),))
    else:
        conn.execute(f"set local claude_mem.org_id = '{org_id}'")


def _random_statement(conn: psycopg.Connection[Any], table: str, other: UUID, chance: random.Random) -> list[UUID]:
    """Run a statement and return the organisations of the rows that it read or changed."""
    statement = chance.choice(
        [
            f"select org_id from {table}",
            f"select org_id from {table} where org_id = %(other)s",
            f"select org_id from {table} where org_id = %(other)s or true limit 50",
            f"select t.org_id from {table} t left join members m on true limit 50",
            f"select m.org_id from members m where exists (select from {table} t where t.org_id <> m.org_id)",
            f"select org_id from (select org_id, row_number() over () from {table}) as t union all select org_id from spaces",
            f"with t as (select * from {table}) select org_id from t order by org_id desc limit 5",
            f"update {table} set org_id = %(other)s returning org_id",
            f"update {table} set org_id = org_id where org_id = %(other)s returning org_id",
            f"delete from {table} where org_id = %(other)s returning org_id",
            f"insert into {table} select * from {table} returning org_id",
            "insert into log_heads (org_id, space_id, device, head) values (%(other)s, gen_random_uuid(), '0000000000000000', 1) returning org_id",
            "insert into audit_heads values (%(other)s, 9, 'x') on conflict (org_id) do update set n = 9 returning org_id",
        ]
    )
    return [org_id for (org_id,) in conn.execute(statement, {"other": other}).fetchall()]


def _assert_untouched(tenants: list[Tenant]) -> None:
    for tenant in tenants:
        entries = tenant.machine.read(tenant.space, tenant.machine.device)
        assert entries == [tenant.canary] * 5
        assert tenant.machine.call("GET", f"/spaces/{tenant.space}/manifest").content == tenant.canary


def test_a_setting_of_the_session_does_not_outlive_its_transaction(postgres: Postgres, tenants: list[Tenant]) -> None:
    with ConnectionPool(postgres.dsn("app"), min_size=1, max_size=1, open=True) as pool:
        for tenant in tenants:
            with pool.connection() as conn, conn.transaction():
                _set_tenant(conn, tenant.org_id, random.Random(1))
                assert conn.execute("select distinct org_id from spaces").fetchall() == [(tenant.org_id,)]
            with pool.connection() as conn:
                assert conn.execute("select count(*) from spaces").fetchone() == (0,)


def test_the_pool_of_a_node_forgets_the_organisation(postgres: Postgres, tenants: list[Tenant]) -> None:
    async def ask() -> list[Any]:
        db = TeamDatabase(postgres.dsn("app"), max_size=1, wait_seconds=30)
        await db.open()
        try:
            spaces_of_own = await db.run(tenants[0].org_id, lambda tx: tx.conn.execute("select org_id from spaces"))
            with pytest.raises(ZeroDivisionError):
                await db.run(tenants[0].org_id, _fail)
            async with db._pool.connection() as conn:
                later = await (await conn.execute("select org_id from spaces")).fetchall()
            return [await spaces_of_own.fetchall(), later]
        finally:
            await db.close()

    assert asyncio.run(ask()) == [[(tenants[0].org_id,)], []]


async def _fail(tx: TeamTransaction) -> None:
    await tx.conn.execute("select 1")
    raise ZeroDivisionError


def test_functions_given_foreign_ids_find_nothing(postgres: Postgres, tenants: list[Tenant]) -> None:
    """As a route would call them with ids of another organisation that leaked."""
    mine, other = tenants[:2]
    space_id, device = UUID(other.space), other.machine.device
    caller = Caller(mine.org_id, mine.machine.device, mine.machine.member_id, "maintainer", b"")

    def ask(work: Any) -> Any:
        return run(postgres.dsn("app"), mine.org_id, work)

    assert ask(lambda tx: logs.heads(tx, space_id)) == {}
    assert ask(lambda tx: logs.read(tx, space_id, device, after=0, limit=100)) == []
    assert ask(lambda tx: spaces.read_manifest(tx, space_id)) is None
    assert ask(lambda tx: people.find_caller(tx, device)) is None
    assert other.space not in {each.space for each in ask(lambda tx: spaces.list_of(tx, caller))}
    with pytest.raises(errors.ForeignKeyViolation):
        ask(lambda tx: logs.append(tx, space_id, mine.machine.device, after=0, bodies=[b"x"]))


def test_a_connection_whose_organisation_is_not_an_id_fails(postgres: Postgres) -> None:
    for text in ("x", str(uuid4()) + "'", "0"):
        with psycopg.connect(postgres.dsn("app")) as conn:
            conn.execute("select set_config('claude_mem.org_id', %s, true)", (text,))
            with pytest.raises(errors.InvalidTextRepresentation):
                conn.execute("select * from members")
