"""Every place that reads a file: either through the one reader, or on this list with its reason.

What a stranger may have prepared (a repository, an archive, another user, an agent) goes through `untrusted_files`:
regular files, opened without blocking, up to a limit. A file of our own data directory was written by us, and `box.shut`
refuses what is not the person's; `store/` and imports of databases have limits of their own.
"""

from __future__ import annotations

import ast
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import claude_mem
from claude_mem import config
from claude_mem.agents import claude, codex, installer, transcript_lines
from claude_mem.digest import modes
from claude_mem.digest.models import chain
from claude_mem.digest.models.claude import read_env_file
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.system import untrusted_files
from claude_mem.system.disk import DroppedEventCounter

ROOT = Path(claude_mem.__file__).parent
READING = ("open", "read_text", "read_bytes", "fdopen", "GzipFile", "ZipFile", "decompress", "decompressobj")
PACKAGED = {"DATA", "PLUGIN", "PROMPTS", "SHIPPED", "__file__"}  # names of folders in the package itself

OWN, KERNEL, WRITTEN, IMPORTED = (
    "the data directory: written by us, nobody else may write there",
    "a small file of the kernel about a process",
    "opened for writing, or made by this call",
    "an import or a backup that the person named, with limits of its own",
)
# Module -> why it may read by itself. Nothing of a project, a transcript or another program's folder belongs here.
EXCEPTIONS = {
    "system.untrusted_files": "the one reader",
    "agents.transcript_lines": "unpacks what the one reader has opened",
    "system.git_files": "unpacks the first bytes of what the one reader has opened",
    "system.audit_log": OWN,
    "system.data_directory": f"{WRITTEN}; {OWN}",
    "bridge": OWN,
    "hook": OWN,
    "system.process": f"{OWN}; {KERNEL}",
    "system.spool": OWN,
    "cli.observations": "a file that this command made for the editor",
    "cli.transfer": IMPORTED,
    "cli.worker": OWN,
    "agents.installer": f"{OWN}: the record of what was changed; {WRITTEN}",
    "transfer.import_": IMPORTED,
    "curate.redaction": OWN,
    "recall.embed": "models, whose checksums are pinned; a model's vocabulary, checked before",
    "digest.ranking": "weights that come with the package",
    "privacy.secret_score": "weights that come with the package",
    "storage.sqlite.damage": OWN,
    "storage.sqlite.integrity": f"{OWN}; {IMPORTED}",
    "storage.external_db": IMPORTED,
    "storage.sqlite.backup": WRITTEN,
    "worker.http.auth": KERNEL,
    "storage.sqlite.engine": "migrations that come with the package; a copy made before",
    "storage.sqlite.repair": OWN,
    "storage.sqlite.deletion.tombstones": OWN,
    "worker.http.routes.health": f"{KERNEL}; {OWN}",
    "maintain.maintenance": OWN,
    "system.disk": WRITTEN,
    "worker.serve": f"{WRITTEN}; the FIFO that we made",
    "curate.erasure": OWN,
    "worker.http.routes.viewer": "files that come with the package",
    "recall.models": "a file that comes with the package",
    "server.cli": f"{WRITTEN}; opens the pool of connections",
    "server.serve": "opens the pool of connections, no file",
    "storage.postgres.engine": "opens the pool of connections, no file",
    "storage.postgres.migrate": "migrations that come with the package",
    "sync.keys": OWN,
    "sync.segments": f"a space's folder, which others write: regular files only, their size limited; {WRITTEN}",
}  # fmt: skip


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _reads(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in READING and not _is_reader(node.func):
            yield node


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_reader(function: ast.expr) -> bool:
    """`untrusted_files.read_text(…)`; and what opens no file at all."""
    owner = function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
    return owner in ("untrusted_files", "webbrowser", "damage", "service", "self")


def _is_packaged(call: ast.Call) -> bool:
    return any(isinstance(node, ast.Name) and node.id in PACKAGED for node in ast.walk(call.func))


def _by_itself(path: Path) -> list[int]:
    tree = ast.parse(path.read_text("utf-8"))
    return [call.lineno for call in _reads(tree) if not _is_packaged(call)]


def test_every_place_that_reads_by_itself_is_known() -> None:
    reading = {module(path): lines for path in ROOT.rglob("*.py") if (lines := _by_itself(path))}
    assert {name: lines for name, lines in reading.items() if name not in EXCEPTIONS} == {}
    assert set(EXCEPTIONS) - set(reading) == set(), "these read nothing by themselves any more"


def test_no_reader_of_transcripts_or_projects_is_an_exception() -> None:
    foreign = [
        name
        for name in EXCEPTIONS
        if name.startswith("agents.") or name in ("system.project_folders", "config", "digest.modes")
    ]
    assert foreign == ["agents.transcript_lines", "agents.installer"]


# --- settings that someone named -------------------------------------------------------------------------------------


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def _folder(path: Path) -> None:
    path.mkdir()


ODD = [_fifo, _link_to_zero, _sparse, _folder]
NAMED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "settings": (".claude-mem/config.toml", lambda path: config.load_lenient(data_dir=path.parent)),
    "mode": ("modes/own.toml", lambda path: modes.load_mode("own", path.parent)),
    "prices": ("prices.toml", chain.read_prices),
    "key": ("key", lambda path: chain.read_key(f"file:{path}")),
    "environment": ("env", read_env_file),
    "claude": ("settings.json", lambda path: claude._by_plugin({"CLAUDE_CONFIG_DIR": str(path.parent)})),
    "codex": ("config.toml", lambda path: codex._settings({"CODEX_HOME": str(path.parent)})),
    "install": ("hooks.json", installer._read),
}


@pytest.mark.parametrize("prepare", ODD)
@pytest.mark.parametrize("name", NAMED)
def test_no_file_that_settings_name_is_waited_for_or_read_without_end(
    tmp_path: Path, name: str, prepare: Callable[[Path], None]
) -> None:
    place, read = NAMED[name]
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    prepare(path)
    try:
        assert not isinstance(read(path), bytes)
    except (ClaudeMemError, OSError) as error:
        assert str(error)


def test_a_link_to_settings_is_followed(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_text("log_level = 'DEBUG'\n")
    (tmp_path / "config.toml").symlink_to(tmp_path / "dotfiles")
    assert untrusted_files.read_settings(tmp_path / "config.toml") == b"log_level = 'DEBUG'\n"
    assert config.load_lenient(data_dir=tmp_path).config.log_level == "DEBUG"


# --- packed ----------------------------------------------------------------------------------------------------------


def test_a_packed_file_of_many_empty_parts_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"") * (transcript_lines.MAX_MEMBERS + 1))
    with (
        path.open("rb") as file,
        transcript_lines.GzipReader(file) as found,
        pytest.raises(untrusted_files.FileTooLarge),
    ):
        found.read()


def test_parts_and_zeros_of_a_packed_file_are_read_as_gzip_does(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    for content in (
        gzip.compress(b"a" * 100_000) + gzip.compress(b"b\n") + bytes(700),
        gzip.compress(os.urandom(300_000)),
        gzip.compress(b""),
        b"",
    ):
        path.write_bytes(content)
        with path.open("rb") as file, transcript_lines.GzipReader(file) as found:
            whole = found.read()
            assert whole == gzip.decompress(content)
            for place in (5, 0, 99_999, len(whole)):
                found.seek(place)
                assert (found.tell(), found.read(10)) == (min(place, len(whole)), whole[place : place + 10])


# --- what is counted of events that were missed ----------------------------------------------------------------------


def test_missed_events_are_counted_once(tmp_path: Path) -> None:
    missed = DroppedEventCounter(tmp_path / "missed")
    missed.make()
    assert ((tmp_path / "missed").read_bytes(), missed.take()) == (b"\n", 0)
    with (tmp_path / "missed").open("ab") as file:
        file.write(b"...")
    assert (missed.take(), missed.take(), (tmp_path / "missed").read_bytes()) == (3, 0, b"\n")


@pytest.mark.parametrize("kind", ["link", "second name", "fifo", "folder"])
def test_nothing_but_our_own_file_is_cut_short(tmp_path: Path, kind: str) -> None:
    theirs, path = tmp_path / "diary", tmp_path / "missed"
    theirs.write_text("dear diary")
    prepare: dict[str, Callable[[], None]] = {
        "link": lambda: path.symlink_to(theirs),
        "second name": lambda: path.hardlink_to(theirs),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    prepare[kind]()
    assert DroppedEventCounter(path).take() == 0
    assert theirs.read_text() == "dear diary"
