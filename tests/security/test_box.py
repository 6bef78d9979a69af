"""The box: other users of the machine, what they may have planted, and whom we signal."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from claude_mem import bridge, hook
from claude_mem.domain.errors import OperationFailed
from claude_mem.system import data_directory, process
from tests.support import proof
from tests.support.lab import HOOK, MEM, Lab
from tests.support.waiting import SECONDS

SOURCE = Path(hook.__file__).parent
NOBODY = 65534
CANARY = b"what was there before"


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be someone else")


# --- no one else reads it --------------------------------------------------------------------------------------------


def _payload(lab: Lab, event: str) -> bytes:
    fields = {
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_response": {"stdout": "x"},
        "source": "startup",
    }
    return json.dumps({"session_id": "s1", "hook_event_name": event, "cwd": str(lab.project), **fields}).encode()


def live(lab: Lab, umask: int) -> None:
    """Whatever writes files: hooks, the worker, the bridge, commands."""

    def run(words: list[str], given: bytes = b"") -> None:
        subprocess.run(words, input=given, env=lab.env(), umask=umask, capture_output=True, timeout=SECONDS, check=True)

    run([*HOOK, "context"], _payload(lab, "SessionStart"))
    run([*HOOK, "save"], _payload(lab, "PostToolUse"))
    run([*MEM, "start"])
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": "x"}},
    }
    asked = [call, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}]
    run(
        [sys.executable, "-I", "-S", str(Path(bridge.__file__))],
        b"".join(json.dumps(one).encode() + b"\n" for one in asked),
    )
    run([*MEM, "config", "set", "log_level", "DEBUG"])
    run([*MEM, "token", "rotate"])
    run([*MEM, "backup"])
    run([*HOOK, "summary"], _payload(lab, "Stop"))
    lab.wait_digested()


def loose(folder: Path) -> dict[str, str]:
    """What anyone but its owner may do anything with."""
    found = {path: path.lstat().st_mode for path in [folder, *folder.rglob("*")] if not path.is_symlink()}
    return {str(path): oct(stat.S_IMODE(mode)) for path, mode in found.items() if mode & 0o077}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077] if proof.long() else [0o000, 0o077], ids=oct)
def test_every_file_is_its_owners_alone_under_any_umask(lab: Lab, umask: int) -> None:
    live(lab, umask)
    names = {path.name for path in lab.data.rglob("*")}
    assert {
        "token",
        "worker.json",
        "claude-mem.db",
        "worker.log",
        "mcp-answers.json",
        "config.toml",
        "backups",
    } <= names
    assert loose(lab.data) == {}
    proof.record(
        f"files others could open, umask {umask:03o}", of="S5", goal="0", measured=0, ok=True,
        unit=f"of {len(list(lab.data.rglob('*')))} files and folders",
    )  # fmt: skip


def test_a_folder_that_was_open_is_closed_and_what_others_could_read_is_no_secret(lab: Lab) -> None:
    lab.data.mkdir(mode=0o777)
    for name in ("spool", "logs", "backups"):
        (lab.data / name).mkdir()
        (lab.data / name).chmod(0o777)
    known = "k" * 43
    for name, text in (("token", known), ("config.toml", 'log_level = "DEBUG"\n'), ("backups/memory-x.db", "x")):
        (lab.data / name).write_text(text)
        (lab.data / name).chmod(0o666)
    lab.data.chmod(0o777)
    assert lab.start().worker.token != known
    assert loose(lab.data) == {}
    assert "DEBUG" in (lab.data / "config.toml").read_text()


@pytest.fixture
def public() -> Iterator[Lab]:
    """A place whose way in is open to all, as a home directory's often is."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    lab = Lab(folder)
    yield lab
    lab.close()
    shutil.rmtree(folder)


SPY = """
import os, pathlib, socket, sys
data, port, pid, token = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
got = []
def attempt(what, act):
    try:
        got.append(f"{what}: {act()!r}"[:200])
    except OSError:
        pass
for name in sys.argv[5:]:
    attempt(name, lambda: (data / name).read_bytes() if (data / name).is_file() else os.listdir(data / name))
    attempt("write " + name, lambda: os.open(data / name, os.O_WRONLY))
attempt("environment", lambda: pathlib.Path("/proc", pid, "environ").read_bytes())
words = pathlib.Path("/proc", pid, "cmdline").read_bytes()
if token.encode() in words:
    got.append("the token is in the command line")
with socket.socket() as line:
    line.connect(("127.0.0.1", port))
    line.sendall(b"GET /api/health HTTP/1.0\\r\\nHost: 127.0.0.1:%d\\r\\n\\r\\n" % port)
    got.append(line.recv(12).decode())
print("\\n".join(got))
"""


def test_another_user_gets_nothing(public: Lab) -> None:
    as_root()
    live(public, 0o000)
    worker = public.client().worker
    names = [str(path.relative_to(public.data)) for path in public.data.rglob("*") if "models" not in path.parts]
    words = [str(public.data), str(worker.port), str(worker.pid), worker.token, *names]
    spying = [sys.executable, "-I", "-S", "-c", SPY, *words]
    done = subprocess.run(spying, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stderr == ""
    assert done.stdout.split("\n") == ["HTTP/1.1 401", ""]
    proof.record(
        "files that another user could read or write", of="S5", goal="0, and 401 at the port", measured=0, ok=True,
        unit=f"of {len(names)}, as uid {NOBODY}",
    )  # fmt: skip


# --- what someone may have planted -----------------------------------------------------------------------------------


def refusal(lab: Lab) -> str:
    """What a worker that does not start says."""
    done = lab.mem("serve", ok=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("name", [*data_directory.FILES, "logs/worker.log"])
def test_a_link_in_place_of_a_file_of_ours_is_not_written_through(lab: Lab, name: str) -> None:
    lab.data.mkdir(mode=0o700)
    (lab.data / "logs").mkdir(mode=0o700)
    target, missing = lab.folder / "target", lab.folder / "missing"
    target.write_bytes(CANARY)
    for where in (target, missing):
        (lab.data / name).unlink(missing_ok=True)
        (lab.data / name).symlink_to(where)
        if name in data_directory.DATABASES:
            said = refusal(lab)
            assert f"{lab.data / name} is a symbolic link" in said
            assert "hint" in said
        else:  # it is moved aside, as it is, and reported
            assert lab.drain() == 0
            assert [moved.name for moved in data_directory.list_quarantined(lab.data)] == [name] * (
                1 + (where == missing)
            )
    assert target.read_bytes() == CANARY
    assert not missing.exists()


def test_the_log_of_a_start_is_a_file_of_its_own(lab: Lab) -> None:
    target = lab.folder / "target"
    target.write_bytes(CANARY)
    (lab.data / "logs").mkdir(parents=True, mode=0o700)
    (lab.data / "logs" / "start.log").symlink_to(target)
    lab.mem("start")
    assert target.read_bytes() == CANARY
    assert not (lab.data / "logs" / "start.log").is_symlink()


def test_a_log_with_a_second_name_is_not_written_to(lab: Lab) -> None:
    target = lab.folder / "target"
    target.write_bytes(CANARY)
    (lab.data / "logs").mkdir(parents=True, mode=0o700)
    (lab.data / "logs" / "worker.log").hardlink_to(target)
    lab.start()
    assert "has a second hard link" in lab.mem("status").stdout
    assert target.read_bytes() == CANARY


def test_a_persons_own_links_are_followed(lab: Lab) -> None:
    """Settings in a repository, folders on another disk: that is theirs to choose."""
    lab.data.mkdir(mode=0o700)
    settings = lab.folder / "dotfiles.toml"
    settings.write_text('log_level = "DEBUG"  # mine\n')
    (lab.data / "config.toml").symlink_to(settings)
    for name in ("spool", "backups", "logs"):
        (lab.folder / f"disk-{name}").mkdir(mode=0o700)
        (lab.data / name).symlink_to(lab.folder / f"disk-{name}")
    client = lab.start()
    assert client.get("/api/settings")
    lab.mem("config", "set", "context_tokens", "1000")
    assert (lab.data / "config.toml").is_symlink()
    assert settings.read_text() == 'log_level = "DEBUG"  # mine\ncontext_tokens = 1000\n'
    lab.mem("backup")
    assert len(list((lab.folder / "disk-backups").glob("*.db"))) == 1


PLANTED: dict[str, Callable[[Path], Any]] = {
    "config.toml": lambda path: path.write_bytes(b'log_level = "DEBUG"\n'),
    "claude-mem.db": lambda path: path.touch(),
    "spool": lambda path: path.mkdir(),
    "logs": lambda path: path.mkdir(),
    "modes": lambda path: path.symlink_to("/tmp"),
    "spool/0000000000000001-00000000": lambda path: path.write_bytes(b"command new\n\n{}"),
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_what_another_user_put_there_is_refused(lab: Lab, name: str) -> None:
    as_root()
    (lab.data / "spool").mkdir(parents=True, mode=0o700) if "/" in name else lab.data.mkdir(mode=0o700)
    path = lab.data / name
    PLANTED[name](path)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    before = None if path.is_dir() else path.read_bytes()
    assert f"{path} belongs to another user" in refusal(lab)
    assert before == (None if path.is_dir() else path.read_bytes())
    if path.is_dir() and not path.is_symlink():
        assert list(path.iterdir()) == []


def test_a_data_directory_of_another_user_is_refused(lab: Lab) -> None:
    as_root()
    lab.data.mkdir(mode=0o777)
    os.chown(lab.data, NOBODY, NOBODY)
    for command in ("serve", "drain"):
        done = lab.mem(command, ok=False)
        assert done.returncode == 1
        assert "belongs to another user" in done.stderr
    assert list(lab.data.iterdir()) == []


def _hang_up(listener: socket.socket) -> None:
    channel, _ = listener.accept()
    channel.close()


def test_a_hook_follows_no_one_elses_link_and_calls_no_one_elses_port(lab: Lab) -> None:
    as_root()
    lab.no_worker()
    (lab.folder / "theirs").mkdir(mode=0o777)
    (lab.data / "spool").symlink_to(lab.folder / "theirs")
    os.chown(lab.data / "spool", NOBODY, NOBODY, follow_symlinks=False)
    lab.hook("UserPromptSubmit", prompt="a secret plan")
    assert list((lab.folder / "theirs").iterdir()) == []

    (lab.data / "spool").unlink()
    (lab.data / "spool").mkdir(mode=0o700)
    os.mkfifo(lab.data / "worker.fifo", 0o600)
    pipe = os.open(lab.data / "worker.fifo", os.O_RDWR | os.O_NONBLOCK)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        told = {"pid": os.getpid(), "port": trap.getsockname()[1], "token": "t", "version": "0", "started_at": 0}
        (lab.data / "worker.json").write_text(json.dumps(told))
        trap.settimeout(0.01)
        os.chown(lab.data / "worker.json", NOBODY, NOBODY)
        lab.hook("UserPromptSubmit", prompt="a secret plan")
        assert process.read_worker_info(lab.data) is None
        with pytest.raises(TimeoutError):
            trap.accept()
        os.chown(lab.data / "worker.json", 0, 0)  # the trap works: if it is ours, it is called
        trap.settimeout(SECONDS)
        with ThreadPoolExecutor() as pool:
            called = pool.submit(_hang_up, trap)
            lab.hook("UserPromptSubmit", prompt="a secret plan")
            called.result()
    os.close(pipe)


def test_a_parent_in_which_anyone_may_replace_it_is_reported(public: Lab) -> None:
    public.mem("start")
    assert '"folder"' not in _failed(public)
    public.folder.chmod(0o777)
    assert "other users can replace" in _failed(public)
    public.folder.chmod(0o1777)  # like /tmp: there it is safe
    assert '"folder"' not in _failed(public)


def _failed(lab: Lab) -> str:
    lines = lab.mem("doctor", "--json", ok=False).stdout.splitlines()
    return "\n".join(line for line in lines if not json.loads(line)["ok"])


# --- whom we signal --------------------------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        yield sleeper
        sleeper.kill()


@pytest.mark.parametrize("command", ["stop", "restart"])
def test_a_stranger_with_the_number_of_a_worker_is_not_signalled(
    lab: Lab, stranger: subprocess.Popen[bytes], command: str
) -> None:
    """The lock is really held, by something that copied or backs up our folder; its text is of a worker long gone."""
    lab.data.mkdir(mode=0o700)
    fd = os.open(lab.data / "worker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, str(stranger.pid).encode())
    done = lab.mem(command, ok=False)
    os.close(fd)
    assert done.returncode == 1
    assert f"names process {stranger.pid}, but another process" in done.stderr
    assert stranger.poll() is None
    proof.record(f"strangers signalled by `{command}`", of="S6", goal="0", measured=0, ok=True, unit="of 1")


@pytest.mark.parametrize("becomes", ["free", "ours"])
def test_a_lock_whose_number_is_about_to_change_is_not_reported(
    tmp_path: Path, stranger: subprocess.Popen[bytes], becomes: str
) -> None:
    """A new worker has taken the lock, and the file still names its predecessor."""
    fd = os.open(tmp_path / "worker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, str(stranger.pid).encode())
    looked = threading.Event()

    def change() -> None:
        looked.wait()
        if becomes == "free":
            fcntl.flock(fd, fcntl.LOCK_UN)
        else:
            os.pwrite(fd, str(os.getpid()).encode().ljust(len(str(stranger.pid))), 0)

    real = process._has_open

    def has_open(*arguments: Any) -> bool:
        is_open = real(*arguments)
        looked.set()
        return is_open

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setattr(process, "_has_open", has_open)
        changing = pool.submit(change)
        process._signal(tmp_path, stranger.pid, signal.SIGTERM)
        changing.result()
    os.close(fd)
    assert stranger.poll() is None


def test_our_own_worker_is_ended_even_if_it_does_not_listen(lab: Lab) -> None:
    worker = lab.start().worker
    os.kill(worker.pid, signal.SIGSTOP)
    assert process.stop_worker(lab.data, seconds=0.2)
    assert process.lock_holder(lab.data) is None


def test_a_number_that_changed_hands_gets_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the signal: the handle is of the process that was looked at."""
    sleeper = subprocess.Popen(["sleep", "60"])
    handle = process._open_pidfd(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    if handle is None:
        pytest.skip("this kernel has no handles of processes")
    signalled = []
    with monkeypatch.context() as patch:
        patch.setattr(process, "_open_pidfd", lambda _: handle)
        patch.setattr(process, "lock_holder", lambda _: os.getpid())
        patch.setattr(process, "_has_open", lambda *_: True)
        patch.setattr(os, "kill", lambda *words: signalled.append(words))
        process._signal(tmp_path, os.getpid(), signal.SIGTERM)  # by its number it would be this very process
    assert signalled == []


KILLS = {
    "system/process.py": 2,  # to the verified holder of the lock; and 0, which only asks
    "system/failpoints.py": 1,  # ourselves
    "hook.py": 1,  # ourselves, at a point of the kill tests
    "digest/models/claude.py": 2,  # the group of our own child; and 0
    "digest/models/claude_child.py": 1,  # its own group
    "storage/sqlite/backup.py": 1,  # 0
    "capture/timeouts.py": 1,  # 0
    "sync/git_remote.py": 1,  # the group of our own git
}


def test_every_place_that_can_signal_is_known() -> None:
    found = {
        str(path.relative_to(SOURCE)): len(re.findall(r"\b(?:os|posix)\.kill(?:pg)?\(", path.read_text()))
        for path in SOURCE.rglob("*.py")
    }
    assert {name: count for name, count in found.items() if count} == KILLS
    everything = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert not re.search(r"\b(pkill|killall|pgrep)\b|taskkill|send_signal\((?!pidfd)|\.terminate\(", everything)


def test_shutting_refuses_with_words(tmp_path: Path) -> None:
    (tmp_path / "claude-mem.db").symlink_to(tmp_path / "x")
    with pytest.raises(OperationFailed, match="is a symbolic link") as caught:
        data_directory.secure_data_dir(tmp_path)
    assert caught.value.hint


def test_a_data_directory_behind_a_link_works(lab: Lab) -> None:
    """Where `/home` is a link, or the folder was moved to another disk."""
    (lab.folder / "disk").mkdir(mode=0o755)
    lab.data.symlink_to(lab.folder / "disk")
    lab.hook("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response={"stdout": "x"})
    lab.mem("start")
    assert lab.client().post("/api/memory/save", {"text": "kept behind a link", "project": "p"})["id"]
    assert loose(lab.folder / "disk") == {}
    assert lab.wait_digested()["set_aside"] == 0
