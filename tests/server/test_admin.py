"""The command line of the server: organisations, members, codes, export, erasure, the audit chain, migrations."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from claude_mem.domain.errors import OperationFailed
from claude_mem.server import cli
from claude_mem.server.__main__ import main
from claude_mem.storage.postgres import migrate
from claude_mem.storage.postgres.migrate import AppliedMigration, Migration
from tests.support import waiting
from tests.support.postgres import SERVER, Postgres, running_node
from tests.support.team import Machine, Team, enrol


class Admin:
    """The real command, as the operator's role."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres

    def __call__(self, *arguments: str, role: str = "operator", code: int = 0, dsn: str = "") -> str:
        env = {"PATH": os.environ["PATH"], "CLAUDE_MEM_SERVER_DSN": dsn or self.postgres.dsn(role)}
        done = subprocess.run(
            [*SERVER, *arguments], capture_output=True, text=True, env=env, check=False, timeout=waiting.SECONDS
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]


@pytest.fixture
def admin(postgres: Postgres) -> Admin:
    return Admin(postgres)


def test_an_organisation_from_its_creation_to_a_members_first_entry(admin: Admin, team: Team) -> None:
    (org,) = admin.json("org", "create", "Globex")
    assert org in [{"org_id": each["org_id"], "name": each["name"]} for each in admin.json("org", "list")]
    (ada,) = admin.json("member", "add", "Globex", "ada", "--role", "maintainer")
    assert "has a member 'ada' already" in admin("member", "add", "Globex", "ada", code=1)
    code = admin("code", "Globex", "ada").strip()
    answer = enrol(team.url, code, name="laptop").json()
    machine = Machine(team.url, UUID(org["org_id"]), UUID(ada["member_id"]), answer["device"], answer["token"])
    space = machine.create_space()
    assert machine.append(space, 0, [b"first"]).status_code == 204
    (device,) = admin.json("devices", org["org_id"])
    assert (device["device"], device["member"], device["name"]) == (answer["device"], "ada", "laptop")
    admin("member", "role", "Globex", "ada", "reader")
    assert admin.json("member", "list", "Globex")[0]["role"] == "reader"
    admin("devices", "Globex", "--revoke", machine.device)
    assert machine.call("GET", "/spaces").status_code == 401
    admin("member", "remove", "Globex", "ada")
    assert "no member 'ada'" in admin("code", "Globex", "ada", code=1)
    actions = [line["action"] for line in admin.json("audit", "Globex")]
    assert actions == [
        "org.create", "member.add", "code.create", "device.enrol", "space.create", "member.role", "device.revoke",
        "member.remove",
    ]  # fmt: skip


def test_errors_say_what_to_do(admin: Admin, postgres: Postgres) -> None:
    assert "no organisation 'Nobody'" in admin("member", "list", "Nobody", code=1)
    assert "cannot connect" in admin("org", "list", dsn="host=/nowhere dbname=x", code=1)
    assert "superuser" in admin("org", "list", role="postgres", code=1)
    assert "owns the tables" in admin("org", "list", role="owner", code=1)
    done = subprocess.run([*SERVER, "org", "list"], capture_output=True, text=True, env={}, check=False)
    assert done.returncode == 2
    assert "--dsn" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "roles",
        "migrate",
        "serve",
        "org create",
        "member add",
        "member role",
        "code",
        "devices",
        "export",
        "erase-member",
        "audit",
    ],
)
def test_help_describes_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.partition(" ")[0] in cli.build_parser().format_help()
    with pytest.raises(SystemExit):
        cli.build_parser().parse_args([*command.split(), "--help"])
    shown = capsys.readouterr().out
    assert f"usage: claude-mem-server {command} " in shown
    assert "--dsn" in shown


def test_without_its_libraries_the_command_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"claude-mem-py\[server\]"):
        main()


def test_an_export_has_everything_of_one_organisation(admin: Admin, postgres: Postgres, tmp_path: Path) -> None:
    with running_node(postgres.dsn("app")) as node:
        mine, other = (Team.create(node.url, postgres.dsn("operator"), name) for name in ("Mine-1", "Other-1"))
        machines = [team.machine() for team in (mine, other)]
        for machine in machines:
            space = machine.create_space()
            machine.append(space, 0, [f"body of {machine.org_id}".encode()] * 120)
            headers = {"If-None-Match": "*"}
            machine.call("PUT", f"/spaces/{space}/manifest", content=b"sealed", headers=headers)
    path = tmp_path / "mine.jsonl"
    counts = {row["table"]: row["rows"] for row in admin.json("export", "Mine-1", "--to", str(path))}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert counts == {
        "organisations": 1, "members": 1, "devices": 1, "spaces": 1, "space_members": 1, "manifests": 1,
        "log_heads": 1, "log_entries": 120, "audit_heads": 1, "audit": 6,
    }  # fmt: skip
    assert len(rows) == sum(counts.values())
    bodies = {base64.b64decode(row["body"]) for row in rows if row["table"] == "log_entries"}
    assert bodies == {f"body of {mine.org_id}".encode()}
    text = path.read_text()
    assert other.org_id.hex not in text.replace("-", "")
    assert machines[0].token.rpartition("_")[2] not in text
    assert "exists already" in admin("export", "Mine-1", "--to", str(path), code=1)


def test_an_erased_member_leaves_ids_and_empty_entries(admin: Admin, team: Team, postgres: Postgres) -> None:
    ada, bob = team.machine("ada"), team.machine("bob-the-erased")
    shared, own = ada.create_space("team"), bob.create_space()
    ada.call("PUT", f"/spaces/{shared}/members/{bob.member_id.hex}")
    bob.append(shared, 0, [b"bob's words"] * 3)
    bob.append(own, 0, [b"bob's secret"])
    ada.append(shared, 0, [b"ada's words"])
    org = team.org_id.hex
    assert "cannot be undone" in admin("erase-member", org, "bob-the-erased", code=2)
    admin("member", "remove", org, "bob-the-erased")
    admin("erase-member", org, "bob-the-erased", "--confirm", "bob-the-erased")
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        for table in ("log_entries", "members", "devices", "audit", "spaces", "manifests"):
            rows = conn.execute(
                f"select t::text from claude_mem.{table} t where org_id = %s", (team.org_id,)
            ).fetchall()
            assert "bob" not in str(rows)
            assert b"bob".hex() not in str(rows)
    assert ada.heads(shared) == {ada.device: 1, bob.device: 3}
    assert ada.call("GET", f"/spaces/{shared}/logs/{bob.device}?after=0").content == b"\0\0\0\0" * 3
    assert ada.read(shared, ada.device) == [b"ada's words"]
    assert admin.json("audit", org)[-1]["action"] == "member.erase"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("update claude_mem.audit set facts = '{}' where n = 2 and org_id = %s", "line 2 was changed"),
        ("delete from claude_mem.audit where n = 2 and org_id = %s", "line 2 is missing"),
        ("delete from claude_mem.audit where n = 3 and org_id = %s", "the chain ends with line 2, but line 3"),
        ("update claude_mem.audit set subject = 'x' where n = 3 and org_id = %s", "line 3 was changed"),
    ],
)
def test_a_changed_audit_chain_is_noticed(
    admin: Admin, team: Team, postgres: Postgres, damage: str, message: str
) -> None:
    team.add_member("ada")
    team.add_member("bob")
    assert len(admin.json("audit", team.org_id.hex)) == 3
    with psycopg.connect(postgres.dsn("postgres")) as conn:
        conn.execute(damage, (team.org_id,))
    assert message in admin("audit", team.org_id.hex, code=1)


def test_lines_that_are_appended_at_once_make_one_chain(admin: Admin, team: Team) -> None:
    ada = team.machine()
    with ThreadPoolExecutor(6) as pool:
        assert {answer.status_code for answer in pool.map(lambda _: ada.call("POST", "/codes"), range(24))} == {201}
    lines = admin.json("audit", team.org_id.hex)
    assert [line["n"] for line in lines] == list(range(1, 4 + 24 + 1))


# --- migrations --------------------------------------------------------------------------------------------------------


def test_migrations_are_numbered_without_gaps_and_name_their_phase() -> None:
    assert [each.number for each in migrate.list_migrations()] == list(range(1, len(migrate.list_migrations()) + 1))


def test_migrating_twice_or_at_once_applies_everything_once(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn("postgres", "postgres"), autocommit=True) as conn:
        conn.execute("create database twice")
    with psycopg.connect(postgres.dsn("postgres", "twice"), autocommit=True) as conn:
        conn.execute(migrate.read_sql("roles.sql"))
    dsn = postgres.dsn("owner", "twice")
    with ThreadPoolExecutor(3) as pool:
        applied = list(pool.map(lambda _: migrate.migrate(dsn), range(3)))
    assert sorted(len(each) for each in applied) == [0, 0, len(migrate.list_migrations())]
    own = migrate.list_migrations()
    with pytest.raises(OperationFailed, match="other contents"):
        migrate.migrate(dsn, [replace(own[0], statements="select 1")])
    with pytest.raises(psycopg.errors.UndefinedTable):
        migrate.migrate(dsn, [*own, Migration(99, "bad", "expand", "create table half (n int); select * from nothing")])
    with psycopg.connect(postgres.dsn("postgres", "twice")) as conn:
        assert conn.execute("select to_regclass('claude_mem.half')").fetchone() == (None,)


def test_a_superuser_does_not_migrate(postgres: Postgres) -> None:
    with pytest.raises(OperationFailed, match="must not own the tables"):
        migrate.migrate(postgres.dsn("postgres"))


@pytest.mark.parametrize(
    ("newer", "reason"),
    [([], ""), ([("expand", 3)], ""), ([("expand", 3), ("migrate", 4)], ""), ([("contract", 3)], "upgrade this node")],
)
def test_a_node_runs_on_a_newer_schema_until_it_contracts(newer: list[tuple[str, int]], reason: str) -> None:
    own = [Migration(1, "a", "expand", ""), Migration(2, "b", "contract", "")]
    applied = [AppliedMigration(each.number, each.name, each.phase, "") for each in own]
    applied += [AppliedMigration(number, "later", phase, "") for phase, number in newer]
    assert reason in migrate.why_incompatible(applied, own)
    assert bool(migrate.why_incompatible(applied, own)) == bool(reason)
    assert "migration 2 is missing" in migrate.why_incompatible(applied[:1], own)


def test_make_team_starts_two_nodes_that_share_what_was_written(postgres: Postgres) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo.team", "--once"],
        capture_output=True, text=True, check=False, timeout=waiting.SECONDS, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("token cmt_") == 3
    assert "logs/" in done.stdout
