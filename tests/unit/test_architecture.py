"""Imports point down, there are no cycles, and the hook loads next to nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import claude_mem
from claude_mem import hook
from claude_mem.system import failpoints

ROOT = Path(claude_mem.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))

# The rooms in the order in which data passes through them: each may import those before it, and itself.
ROOMS = (
    "domain", "system", "privacy", "storage", "agents", "digest", "recall", "capture", "maintain", "inject", "curate", "transfer",
    "sync", "worker", "cli", "server",
)  # fmt: skip
# Modules at the top. The hook and its launcher stay there because the settings of installed agents name them by path.
# The team server is a program of its own: nobody imports it, and it shares only these rooms with the local product, and
# the one module that prints.
SERVER_MAY_IMPORT = {"domain", "system", "privacy", "storage", "server", "base"}
SERVER_PRINTS_WITH = {"claude_mem.cli.output"}
TOP: dict[str, set[str]] = {
    "hook": {"privacy"},
    "launch": set(),
    "answers": set(),
    "bridge": set(),
    "config": {"domain", "system"},
    "client": {"domain", "system", "privacy", "worker"},  # the types of `worker.http.schemas`
    "__main__": {"cli"},
    "base": set(),
}
# What the capture path may load beyond what `python -I -S -c pass` has loaded already.
HOOK_MAY_LOAD = {"_signal", "posix", "time", "sys", "__main__"}


def room(name: str) -> str:
    """Return the room of `claude_mem.storage.sqlite.engine` (`storage`), or the module's own name at the top."""
    first = name.split(".")[1] if "." in name else ""
    return first if first in ROOMS or first in TOP else "base"


def may_import(name: str) -> set[str]:
    own = room(name)
    if own == "server":
        return SERVER_MAY_IMPORT
    if own in TOP:
        return TOP[own] | set(TOP)
    return {*ROOMS[: ROOMS.index(own) + 1], *TOP} - {"__main__"}


def module(path: Path) -> str:
    relative = path.relative_to(ROOT.parent).with_suffix("")
    return ".".join(relative.parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("claude_mem")}


@pytest.mark.parametrize("path", SOURCES, ids=module)
def test_imports_point_to_earlier_rooms(path: Path) -> None:
    allowed = may_import(module(path))
    beyond = {name for name in imports(path) if room(name) not in allowed}
    assert beyond - (SERVER_PRINTS_WITH if room(module(path)) == "server" else set()) == set()


def test_only_storage_contains_sql() -> None:
    """A statement is recognised by its first words; other rooms name functions of `storage`."""
    statement = re.compile(r"\s*(select .+ from|insert (or \w+ )?into|update \w+ set|delete from) ", re.I | re.S)
    elsewhere = {
        module(path)
        for path in SOURCES
        if room(module(path)) not in ("storage", "domain")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and statement.match(node.value)
    }
    assert elsewhere == set()


def test_only_storage_mentions_a_connection() -> None:
    """Other rooms are given a transaction, whose stores take and return records."""
    elsewhere = {
        f"{module(path)}:{node.lineno}"
        for path in SOURCES
        if room(module(path)) != "storage"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Name) and node.id in ("Connection", "Cursor", "SqliteTransaction"))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in ("apsw.Connection", "apsw.Cursor"))
    }
    assert elsewhere == set()


def test_only_the_wiring_imports_sqlite() -> None:
    """`worker.app` opens the database. Files that are not open go through `storage.files`."""
    users = {
        module(path)
        for path in SOURCES
        if room(module(path)) != "storage"
        if any(name.startswith("claude_mem.storage.sqlite") for name in imports(path))
    }
    assert users == {"claude_mem.worker.app"}


def test_only_the_team_server_imports_postgresql() -> None:
    """The local product runs without the extra `server`."""
    foreign = ("claude_mem.storage.postgres", "claude_mem.server", "psycopg")
    users = {
        module(path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if name.startswith(foreign)
    }
    assert {name for name in users if not name.startswith(foreign)} == set()


def test_there_are_no_import_cycles() -> None:
    modules = {module(path) for path in SOURCES}
    graph = {module(path): {_owner(name, modules) for name in imports(path)} - {module(path)} for path in SOURCES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail, name))
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def _owner(name: str, modules: set[str]) -> str:
    """`claude_mem.domain.text.clip` is in the module `claude_mem.domain.text`."""
    return name if name in modules else name.rpartition(".")[0]


def test_the_hook_imports_ours_only_where_it_must() -> None:
    assert imports(ROOT / "hook.py") == {"claude_mem.privacy.tags", "claude_mem.answers"}


def test_the_capture_path_loads_no_module_beyond_a_short_list(tmp_path: Path) -> None:
    probe = f"""
import sys
before = set(sys.modules)
import posix
leave = posix._exit
posix._exit = lambda code: (sys.stderr.write(" ".join(sorted(set(sys.modules) - before))), leave(code))
sys.argv = ["hook.py", "save"]
code = compile(open({str(ROOT / "launch.py")!r}).read(), "launch.py", "exec")
exec(code, dict(__name__="__main__", __file__={str(ROOT / "launch.py")!r}))
"""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "worker.starting").touch()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe],
        input=b'{"session_id": "s1", "hook_event_name": "PostToolUse", "tool_name": "Bash"}',
        env={"CLAUDE_MEM_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        check=True,
    )
    assert done.stdout == hook.EMPTY_ANSWER
    assert set(done.stderr.decode().split()) <= HOOK_MAY_LOAD
    assert len(list((tmp_path / "data" / "spool").iterdir())) == 1


def test_only_output_prints() -> None:
    printing = [
        module(path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert set(printing) == {"claude_mem.cli.output"}


def test_every_failpoint_is_in_the_list_and_in_the_code() -> None:
    called = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("failpoint", "_failpoint")
            ):
                argument = node.args[0]
                if isinstance(argument, ast.Constant):
                    name = argument.value
                    called.add(name.decode() if isinstance(name, bytes) else name)
    assert called == {*failpoints.FAILPOINTS, *failpoints.SERVER_FAILPOINTS, *hook.FAILPOINTS}
