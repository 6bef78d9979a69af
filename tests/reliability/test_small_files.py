"""Damage to our own small files keeps no worker from starting, is told, and costs nothing that protects the user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from claude_mem import hook
from claude_mem.domain import ids
from claude_mem.domain.errors import OperationFailed
from claude_mem.storage.records import Tombstone
from claude_mem.storage.sqlite import backup
from claude_mem.storage.sqlite.deletion import keyed_hash, tombstones
from claude_mem.storage.sqlite.journal import notices
from claude_mem.system import data_directory, process
from claude_mem.worker import startup
from claude_mem.worker.serve import create_fifo
from tests.storage.test_forget import WORD, digest, forget, spool_session
from tests.storage.test_forget import found as found_word
from tests.storage.test_portable import ALL
from tests.support import proof
from tests.support.lab import Lab
from tests.support.moving import Home, write

COMMAND = "python -m pytest tests/reliability/test_small_files.py"
CANARY = b"someone's own words\n"


# --- what may stand in their place -------------------------------------------------------------------------------------


def _folder(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def _link_to(where: str) -> Callable[[Path], None]:
    def wound(path: Path) -> None:
        target = path.parent / where
        if where == "target":
            target.write_bytes(CANARY)
        path.symlink_to(target)

    return wound


def _socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as opened:
        opened.bind(os.path.relpath(path))  # the path of a socket may have about a hundred characters


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 << 30)


KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": _folder,
    "a link to a file": _link_to("target"),
    "a link to nowhere": _link_to("nowhere/at-all"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "empty": Path.touch,
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage" * 40),
    "one byte": lambda path: path.write_bytes(b"x"),
    "a socket": _socket,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "deeply nested": lambda path: path.write_bytes(b'{"a":' * 200_000),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "gigabytes": _sparse,
}
FOLDER_KINDS = {name: KINDS[name] for name in ("a link to a file", "a pipe", "garbage")}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with some of everything in it, and something that was forgotten."""
    home = Home(tmp_path_factory.mktemp("small") / "data")
    home.bring(write(home.folder.parent / "x.jsonl", ALL))
    start_all(home)
    tombstones.append_tombstones(home.folder, [Tombstone(1, "m" * 32, 0, 5, at=5)])
    keyed_hash.make_keyed_hash(home.folder)("x")
    return home.folder


def start_all(home: Home) -> None:
    """Everything that `claude-mem serve` does with files before it listens."""
    lock = process.take_lock(home.folder)
    try:
        (home.folder / "worker.json").unlink(missing_ok=True)
        process.write_launcher(home.folder)
        hook.make_private_dir(str(home.folder / "logs"))
        os.close(
            data_directory.open_for_append(
                str(home.folder / "logs" / "worker.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
            )
        )
        service = startup.open_service(home.config)
        try:
            os.close(create_fifo(home.folder))
            token = process.get_or_create_token(home.folder)
            process.write_worker_info(home.folder, process.WorkerInfo(os.getpid(), 1, token, "x"))
            for stamp in ("worker.starting", hook.WARNING_STAMP):
                (home.folder / stamp).unlink(missing_ok=True)
            service.write_activity_flag(True, "shop")
        finally:
            service.close()
    finally:
        lock.release()


@pytest.fixture
def home(lived_in: Path, tmp_path: Path) -> Home:
    shutil.copytree(lived_in, tmp_path / "data", symlinks=True, ignore=shutil.ignore_patterns("worker.fifo"))
    return Home(tmp_path / "data")


def replace(path: Path, wound: Callable[[Path], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    wound(path)


def told(home: Home) -> str:
    return home.work(lambda service: _untold(service.db))


async def _untold(db: object) -> str:
    return " ".join((await db.read(notices.list_unshown_notices)).values())  # type: ignore[attr-defined]


CASES = [
    *((name, kind, KINDS[kind]) for name in data_directory.SMALL_FILES for kind in KINDS),
    *((name, kind, FOLDER_KINDS[kind]) for name in data_directory.FOLDERS for kind in FOLDER_KINDS),
]


def test_no_small_file_keeps_a_worker_from_starting(lived_in: Path, tmp_path: Path) -> None:
    """Each of them replaced by each kind of thing; what stood there is kept, and no link is written through."""
    failed, cases = (
        {},
        CASES if proof.long() else CASES[::7],
    )  # 7 and 13 have no divisor in common: all kinds, all files
    for number, (name, kind, wound) in enumerate(cases):
        folder = tmp_path / str(number)
        shutil.copytree(lived_in, folder, ignore=shutil.ignore_patterns("worker.fifo"))
        replace(folder / name, wound)
        home = Home(folder)
        try:
            start_all(home)
            target = (folder / name).parent / "target"
            if target.exists():
                assert target.read_bytes() == CANARY
            if kind.startswith(("a folder", "a link", "a pipe", "a socket", "a loop")) and (name, kind) != (
                "worker.fifo",
                "a pipe",
            ):
                moved = {each.name: each for each in data_directory.list_quarantined(folder)}
                assert name in moved or not os.path.lexists(folder / name), "not reported"
                assert os.path.lexists(folder / moved[name].moved_to)
        except Exception as error:
            failed[name, kind] = f"{type(error).__name__}: {error}"
        shutil.rmtree(folder)
    proof.record(
        "own small files: damage with which a worker starts", of="R17", goal=f"{len(cases)} of {len(cases)}",
        measured=len(cases) - len(failed), ok=not failed, command=COMMAND,
    )  # fmt: skip
    assert failed == {}


def test_what_was_moved_aside_is_told_once_and_shown_as_long_as_it_is_kept(home: Home) -> None:
    replace(home.folder / "token", _folder)
    start_all(home)
    assert "token was a directory" in told(home)
    (moved,) = data_directory.list_quarantined(home.folder)
    assert (home.folder / moved.moved_to / "inside").is_dir()
    assert stat.S_IMODE((home.folder / "quarantine").stat().st_mode) == 0o700
    start_all(home)
    assert len(data_directory.list_quarantined(home.folder)) == 1
    shutil.rmtree(home.folder / moved.moved_to)
    assert data_directory.list_quarantined(home.folder) == []


@pytest.mark.parametrize("name", ["forgotten.jsonl", "audit.jsonl", "forgetting.json", "worker.json"])
@pytest.mark.parametrize("kind", ["gigabytes", "deeply nested", "a loop of links", "a socket"])
def test_what_is_read_at_the_start_is_read_within_bounds(home: Home, name: str, kind: str) -> None:
    replace(home.folder / name, KINDS[kind])
    start_all(home)
    if kind == "gigabytes" and name != "worker.json":  # which is made anew
        assert "was larger than 64 MB" in str(data_directory.list_quarantined(home.folder))


@pytest.mark.parametrize("side", ["-wal", "-shm"])
@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a socket"])
def test_what_stands_in_the_place_of_the_databases_own_files_is_moved_aside(home: Home, side: str, kind: str) -> None:
    replace(home.folder / f"claude-mem.db{side}", KINDS[kind])
    start_all(home)
    assert f"claude-mem.db{side}" in {moved.name for moved in data_directory.list_quarantined(home.folder)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("name", data_directory.SMALL_FILES)
def test_a_small_file_of_another_user_is_moved_aside_unread(home: Home, name: str) -> None:
    """As `sudo` leaves them."""
    replace(home.folder / name, lambda path: path.write_bytes(CANARY))
    os.chown(home.folder / name, 4321, -1)
    start_all(home)
    moved = {each.name: each for each in data_directory.list_quarantined(home.folder)}
    assert moved[name].why == "belonged to another user"
    assert (home.folder / moved[name].moved_to).read_bytes() == CANARY


def test_a_link_that_leads_nowhere_for_now_is_left(home: Home) -> None:
    """A folder of ours on a disk that is not there: no second one is begun in its place."""
    replace(home.folder / "backups", lambda path: path.symlink_to("/nowhere/at/all"))
    data_directory.quarantine_damaged(home.folder)
    assert (home.folder / "backups").is_symlink()


def test_a_link_in_the_place_of_the_database_is_refused(home: Home) -> None:
    database = home.config.database
    database.rename(home.folder.parent / "elsewhere.db")
    database.symlink_to(home.folder.parent / "elsewhere.db")
    with pytest.raises(OperationFailed, match="is a symbolic link"):
        process.take_lock(home.folder)


# --- by the real hook and the real worker ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("worker.starting", "a folder"), ("worker.starting", "a pipe"), ("logs/start.log", "a folder"),
        ("logs", "garbage"), ("spool", "garbage"), ("worker.lock", "a pipe"),
    ],
)  # fmt: skip
def test_a_hook_starts_a_worker_all_the_same(lab: Lab, name: str, kind: str) -> None:
    hook.make_private_dir(str(lab.data))
    (lab.data / name).parent.mkdir(exist_ok=True, mode=0o700)
    KINDS[kind](lab.data / name)
    if name == "worker.starting":
        os.utime(lab.data / name, (1, 1), follow_symlinks=False)
    lab.hook("UserPromptSubmit", prompt="go on", prompt_id="p1")
    found = lab.wait_digested()
    assert found["captured"] == found["stored"] == 1
    assert len(json.loads(lab.mem("status", "--json").stdout)["damage"]) >= 1


@pytest.mark.parametrize("name", [b"a\xff\xfe b", b"new\nline\x1b[2J"])
def test_a_data_directory_of_any_name_works(lab: Lab, name: bytes) -> None:
    lab.data = lab.folder / os.fsdecode(name)
    lab.hook("UserPromptSubmit", prompt="go on", prompt_id="p1")
    found = lab.wait_digested()
    assert found["captured"] == found["stored"] == 1
    assert lab.mem("status").stdout.isprintable() or "\x1b" not in lab.mem("status").stdout
    lab.mem("backup")
    lab.mem("doctor", ok=False)
    lab.mem("stop")


# --- the key, and what was forgotten -----------------------------------------------------------------------------------


@pytest.fixture
def forgetful(lab: Lab) -> Iterator[Lab]:
    """Something was remembered, copied, and then forgotten."""
    spool_session(lab, "lit", secret=WORD)
    spool_session(lab, "other")
    digest(lab)
    backup.write_backup(lab.data / "claude-mem.db", lab.data / "backups", prefix=backup.MANUAL_PREFIX)
    forget(lab, session="lit")
    yield lab


LOST_KEY: dict[str, Callable[[Path], object]] = {
    "gone": lambda _: None,
    **{name: KINDS[name] for name in ("a folder", "a link to nowhere", "garbage")},
}


@pytest.mark.parametrize("kind", LOST_KEY)
def test_a_lost_key_keeps_forgotten_things_forgotten(forgetful: Lab, kind: str) -> None:
    lab = forgetful
    replace(lab.data / keyed_hash.HASH_KEY_FILE, LOST_KEY[kind])
    spool_session(lab, "dark")
    assert lab.drain() == 0  # it starts, and takes in what came
    assert lab.rows("select count(*) from sdk_sessions where content_session_id = 'dark'") == [(1,)]
    (copy,) = (lab.data / "backups").glob("memory-*.db")
    refused = lab.mem("restore", copy.name, "--yes", ok=False)
    assert refused.returncode == 1
    assert "forget.key is lost" in refused.stderr
    assert "--with-forgotten" in refused.stderr
    (lab.data / "claude-mem.db").unlink()
    for side in ("-wal", "-shm"):
        (lab.data / f"claude-mem.db{side}").unlink(missing_ok=True)
    assert lab.drain() == 0  # no backup is put in place by itself either
    assert not found_word(lab, WORD)


def test_it_is_told_and_lifted_by_a_person(forgetful: Lab) -> None:
    lab = forgetful
    (lab.data / keyed_hash.HASH_KEY_FILE).unlink()
    lab.start()
    said = json.dumps(lab.hook("SessionStart", source="startup", session_id="next"))
    assert "forget.key was lost" in said
    (copy,) = (lab.data / "backups").glob("memory-*.db")
    assert lab.mem("restore", copy.name, "--yes", ok=False).returncode == 1
    lab.mem("forget", "--undo", "F0")
    lab.mem("restore", copy.name, "--yes")
    lab.mem("stop")
    assert tombstones.read_uncheckable_tombstones(lab.data) == []


def test_imports_of_that_time_are_refused_and_later_ones_are_not(home: Home, tmp_path: Path) -> None:
    tombstones.append_tombstones(home.folder, [Tombstone(2, "x" * 32, 0, ids.now_ms(), at=ids.now_ms())])
    (home.folder / keyed_hash.HASH_KEY_FILE).unlink()
    start_all(home)
    fresh = Home(tmp_path / "other")
    fresh.rows("select 1")
    shutil.copyfile(home.folder / tombstones.TOMBSTONE_FILE, fresh.folder / tombstones.TOMBSTONE_FILE)
    found = fresh.bring(write(tmp_path / "again.jsonl", ALL))
    assert found.counts["forgotten"]["observation"] >= 1
    assert not found.counts.get("added", {}).get("observation")
    assert fresh.rows("select count(*) from observations") == [(0,)]


def test_a_lost_key_bars_nothing_where_nothing_was_forgotten(tmp_path: Path) -> None:
    home = Home(tmp_path / "data")
    start_all(home)
    (home.folder / keyed_hash.HASH_KEY_FILE).write_bytes(b"ab")
    start_all(home)
    assert home.rows("select count(*) from tombstones") == [(0,)]
    assert home.bring(write(tmp_path / "x.jsonl", ALL)).counts["added"]["observation"] >= 1


@pytest.mark.parametrize("kind", ["a folder", "garbage", "gone"])
def test_lost_tombstones_are_written_again_from_the_database(forgetful: Lab, kind: str) -> None:
    lab = forgetful
    before = {(stone.mark, stone.n) for stone in tombstones.read_tombstones(lab.data)}
    assert before
    replace(lab.data / tombstones.TOMBSTONE_FILE, (lambda _: None) if kind == "gone" else KINDS[kind])
    assert lab.drain() == 0
    assert {(stone.mark, stone.n) for stone in tombstones.read_tombstones(lab.data)} == before
    (copy,) = (lab.data / "backups").glob("memory-*.db")
    lab.mem("restore", copy.name, "--yes")
    lab.wait_digested()
    lab.mem("stop")
    assert not found_word(lab, WORD)


def test_both_lost_together_bar_what_the_database_still_knows(forgetful: Lab) -> None:
    lab = forgetful
    for name in (keyed_hash.HASH_KEY_FILE, tombstones.TOMBSTONE_FILE):
        (lab.data / name).unlink()
    assert lab.drain() == 0
    assert tombstones.read_uncheckable_tombstones(lab.data)
    (copy,) = (lab.data / "backups").glob("memory-*.db")
    assert lab.mem("restore", copy.name, "--yes", ok=False).returncode == 1


def test_a_line_that_was_cut_off_is_no_damage(home: Home) -> None:
    with (home.folder / tombstones.TOMBSTONE_FILE).open("ab") as file:
        file.write(b'{"n":2,"mark":"half')
    start_all(home)
    assert data_directory.list_quarantined(home.folder) == []
