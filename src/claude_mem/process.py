"""Is a worker running? Start it, stop it.

The lock decides, never a pid file: `flock` is held as long as its process lives and not a moment longer, so
nothing can be stale. `worker.json` (0600) says where the holder listens.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from claude_mem import box, hook
from claude_mem.errors import CannotDo, WorkerHeld
from claude_mem.spool import write_private

START_SECONDS = 10.0
STOP_SECONDS = 10.0
END_SECONDS = 2.0
STOPPED_SECONDS = 0.5
ZOMBIE = "Z"  # it has ended, and whoever started it has not looked yet; in a container that may take seconds
STOPPED = ("T", "t")  # by a signal, or by a debugger
LAUNCHER = "claude-mem-hook"
PYTHON = (sys.executable, "-I", "-S")


class Worker(msgspec.Struct, frozen=True):
    """`worker.json`."""

    pid: int
    port: int
    token: str
    version: str
    started_at: int


@dataclass(slots=True)
class Lock:
    """Held from `take` to the end of the process, or `release`."""

    fd: int

    def release(self) -> None:
        os.close(self.fd)


def take_lock(data_dir: Path) -> Lock:
    """Become the one process that may open the database."""
    box.shut(data_dir)
    fd = os.open(data_dir / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not _lock_exclusive(fd):
        os.close(fd)
        raise WorkerHeld("another claude-mem process is using this data directory", hint="`claude-mem status` shows it")
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return Lock(fd)


def _lock_exclusive(fd: int) -> bool:
    """Try for a fifth of a second: whoever asks `holder` has the lock for an instant too."""
    for _ in range(10):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def holder(data_dir: Path) -> int | None:
    """The pid of the process that holds the lock, if one does."""
    try:
        fd = os.open(data_dir / "worker.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0)
        return int(text) if text.isdigit() and len(text) < 10 else 0
    finally:
        os.close(fd)
    return None


def read_worker(data_dir: Path) -> Worker | None:
    """Where the worker says it listens; trust it only while the lock is held."""
    try:
        with (data_dir / "worker.json").open("rb") as file:
            if not box.is_mine(os.fstat(file.fileno())):
                return None  # another user's: it would lead us to their port
            return msgspec.json.decode(file.read(), type=Worker)
    except (OSError, msgspec.MsgspecError):
        return None


def announce(data_dir: Path, worker: Worker) -> None:
    write_private(data_dir / "worker.json", msgspec.json.encode(worker))


def token(data_dir: Path) -> str:
    """Made once, so that clients which were given it go on working after a restart. Only for the holder of the lock."""
    return known_token(data_dir) or new_token(data_dir)


def known_token(data_dir: Path) -> str:
    """The one that there is; "" if there is none that could be used."""
    try:
        known = (data_dir / box.TOKEN).read_bytes()[:1000].decode("ascii", "replace").strip()
    except OSError:
        return ""
    return known if len(known) >= 43 and known.isascii() else ""


def new_token(data_dir: Path) -> str:
    fresh = secrets.token_urlsafe(32)
    write_private(data_dir / box.TOKEN, fresh.encode())
    return fresh


def running(data_dir: Path) -> Worker | None:
    """The worker that holds the lock and has said where it listens."""
    pid = holder(data_dir)
    worker = read_worker(data_dir)
    return worker if pid is not None and worker is not None and worker.pid == pid else None


def start(data_dir: Path, *, seconds: float = START_SECONDS, asked: bool = False) -> Worker:
    """Start a worker if none runs, and wait until it listens. Who has not `asked` for one gets the same that a hook
    would start."""
    deadline = time.monotonic() + seconds
    if holder(data_dir) is None:
        hook.start_worker(str(data_dir), pause=0, asked=asked)
    while time.monotonic() < deadline:
        if worker := running(data_dir):
            return worker
        time.sleep(0.02)
    raise CannotDo("the worker did not start", hint=f"its last words are in {data_dir / 'logs' / 'start.log'}")


def write_launcher(data_dir: Path) -> Path:
    """The program that agents are told to run. Its name never changes; what it runs may, when Python or we move."""
    bridge = Path(hook.__file__).resolve().with_name("bridge.py")
    where = shlex.quote(str(data_dir))
    text = f"""#!/bin/sh
# claude-mem: what agents run. Written anew whenever the worker starts.
case "$1" in
mcp) exec {shlex.join([*PYTHON, str(bridge)])} {where} ;;
*) exec {shlex.join(hook_words())} "$1" {where} "$2" ;;
esac
"""
    path = launcher(data_dir)
    hook.make_private(str(data_dir))
    if _text(path) != text:
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.write_bytes(os.fsencode(text))  # a folder's name is bytes, and need not be text
        temp.chmod(0o700)
        temp.rename(path)  # all at once: an agent may be running it this moment
    return path


def hook_words() -> list[str]:
    """The hook itself, as the launcher runs it: absolute paths, no shim, no site packages, no surprise."""
    return [*PYTHON, str(Path(hook.__file__).resolve().with_name("launch.py"))]


def launcher(data_dir: Path) -> Path:
    return data_dir / LAUNCHER


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""


def stop(data_dir: Path, *, seconds: float = STOP_SECONDS) -> bool:
    """Ask the holder of the lock to stop; if it can't hear us any more, end it. True if one was running."""
    pid = holder(data_dir)
    if not pid:
        return False
    if _state(pid) in STOPPED:
        seconds = min(seconds, STOPPED_SECONDS)  # it hears nothing but the last signal, and what it holds is safe
    for sign, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        _signal(data_dir, pid, sign)
        if _gone(data_dir, pid, patience):
            return True
    raise CannotDo(f"process {pid} does not end", hint="it may be stuck in the kernel; look at its disk")


def _signal(data_dir: Path, pid: int, sign: signal.Signals) -> None:
    """To the very process that has our lock and to no other: the number that it left there may be a stranger's by now.
    Where the kernel can, the process is held by a handle first, so that its number can't change hands in between."""
    handle = _handle(pid)
    try:
        if holder(data_dir) != pid:
            return  # it has let go
        if not _has_open(pid, data_dir / "worker.lock"):
            raise CannotDo(
                f"the lock is held, but not by process {pid}, which its file names; nothing was ended",
                hint=f"find out who has {data_dir / 'worker.lock'} open",
            )
        if handle is None:
            os.kill(pid, sign)
        else:
            signal.pidfd_send_signal(handle, sign)
    except ProcessLookupError:
        pass  # it has ended
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid) if sys.platform == "linux" else None
    except (OSError, AttributeError):
        return None  # it has ended, or this kernel has no handles


def _has_open(pid: int, path: Path) -> bool:
    """Has this process that file open? Where the system does not tell, what the file says must do."""
    wanted, listing = path.stat(), Path(f"/proc/{pid}/fd")
    if not Path("/proc/self/fd").exists():
        return True
    try:
        return any(os.path.samestat(wanted, found) for fd in listing.iterdir() if (found := _about(fd)))
    except OSError:
        return False  # gone, or another user's


def _about(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None  # closed meanwhile


def _gone(data_dir: Path, pid: int, seconds: float) -> bool:
    """Has it let go of the lock? What it then still needs to end is waited for too, but is no reason to kill it."""
    if not _until(lambda: holder(data_dir) != pid, seconds):
        return False
    _until(lambda: not _exists(pid), END_SECONDS)
    return True


def _until(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # a stranger's, who got its number
    return _state(pid) != ZOMBIE


def _state(pid: int) -> str:
    """One letter; empty where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return ""
