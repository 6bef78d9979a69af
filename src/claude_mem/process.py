"""Is a worker running? Start it, stop it.

The lock decides, never a pid file: `flock` is held as long as its process lives and not a moment longer, so
nothing can be stale. `worker.json` (0600) says where the holder listens.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import logging
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

from claude_mem import __version__, answers, box, config, hook, own_files, untrusted_files
from claude_mem.errors import CannotDo, WorkerHeld
from claude_mem.spool import write_private

log = logging.getLogger(__name__)

START_SECONDS = 10.0
STOP_SECONDS = 10.0
END_SECONDS = 2.0
STOPPED_SECONDS = 0.5
RENEW_SECONDS = 15.0  # for a worker to see that an upgrade is complete, finish its work and begin again
HEALTH_SECONDS = 2.0
ZOMBIE = "Z"  # it has ended, and whoever started it has not looked yet; in a container that may take seconds
STOPPED = ("T", "t")  # by a signal, or by a debugger
LAUNCHER = "claude-mem-hook"
PYTHON = (hook.interpreter(), "-I", "-S")


class Worker(msgspec.Struct, frozen=True):
    """`worker.json`."""

    pid: int
    port: int
    token: str
    version: str = ""
    started_at: int = 0


@dataclass(slots=True)
class Lock:
    """Held from `take` to the end of the process, or `release`."""

    fd: int
    path: Path

    def release(self) -> None:
        os.close(self.fd)

    def is_in_place(self) -> bool:
        """False once its file was moved or removed: the data directory is not the one that was locked any more, and
        another worker may have locked the one that is there."""
        try:
            return os.path.samestat(os.fstat(self.fd), self.path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # a disk that fails for a moment moves nothing


def take_lock(data_dir: Path) -> Lock:
    """Become the one process that may open the database."""
    box.shut(data_dir)
    own_files.clear(data_dir, own_files.LOCK)
    path = data_dir / own_files.LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not _lock_exclusive(fd):
        os.close(fd)
        raise WorkerHeld("another claude-mem process is using this data directory", hint="`claude-mem status` shows it")
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    own_files.tidy(data_dir)
    return Lock(fd, path)


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
        fd = os.open(data_dir / "worker.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
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
        with untrusted_files.opened(data_dir / "worker.json") as file:
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
        known = untrusted_files.read_start(data_dir / box.TOKEN, 1000).decode("ascii", "replace").strip()
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
    """Start a worker if none runs, and wait until it listens; one of another version of this installation is replaced.
    Who has not `asked` for one gets the same that a hook would start."""
    if problem := hook.program_problem(PYTHON[0]):
        raise CannotDo(
            f"{PYTHON[0]} is not run as the worker: {problem}",
            hint="`chmod go-w` it and its folder, or install claude-mem again as yourself",
        )
    replace_outdated(data_dir)
    deadline = time.monotonic() + seconds
    pid = hook.start_worker(str(data_dir), pause=0, asked=asked) if holder(data_dir) is None else 0
    while time.monotonic() < deadline:
        ended = bool(pid) and _has_ended(pid)  # looked at first: another worker may have the lock that it did not get
        if worker := running(data_dir):
            return worker
        if ended and holder(data_dir) is None:
            break
        time.sleep(0.02)
    raise CannotDo("the worker did not start", hint=f"its last words are in {data_dir / 'logs' / 'start.log'}")


def _has_ended(pid: int) -> bool:
    """Whether a child of ours has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # it was waited for already


# --- another version -------------------------------------------------------------------------------------------------


def is_outdated(data_dir: Path, worker: Worker) -> bool:
    """Is it of another version than this program, and ours to replace? Not if agents are told to run another
    installation that is still there: two of them would replace each other's workers for ever."""
    return worker.version != __version__ and _is_in_charge(data_dir)


def _is_in_charge(data_dir: Path) -> bool:
    """Does the launcher run this installation, or one that is gone?"""
    try:
        words = shlex.split(_text(launcher(data_dir)), comments=True)
    except ValueError:
        return False  # not as we write it
    programs = [word for word in words if word.endswith("/launch.py")]
    return bool(programs) and (hook_words()[-1] in programs or not Path(programs[0]).exists())


def replace_outdated(data_dir: Path, *, seconds: float = RENEW_SECONDS) -> bool:
    """Bring the worker to this program's version, if it is ours to do so. True if it was of another version.

    A worker that knows of upgrades renews itself when it is woken, with the settings it was started with; it is ended
    only if it does not. One of a version that knew nothing of this is stopped and started again here."""
    worker = running(data_dir)
    if worker is None or worker.version == __version__:
        return False
    if not is_outdated(data_dir, worker):
        log.warning("the worker runs %s of another installation, this is %s", worker.version, __version__)
        return False
    if _renews_itself(worker) and hook.wake(str(data_dir)):
        _until(lambda: _is_current(data_dir), seconds)
    if not _is_current(data_dir):
        settings = _settings_of(worker.pid)
        stop(data_dir)
        hook.start_worker(str(data_dir), pause=0, settings=settings)
        _until(lambda: _is_current(data_dir), START_SECONDS)
    return True


def _is_current(data_dir: Path) -> bool:
    worker = running(data_dir)
    return worker is not None and worker.version == __version__


def _renews_itself(worker: Worker) -> bool:
    """Does it say which version is installed in its place?"""
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", "/api/health", headers={"Authorization": f"Bearer {worker.token}"})
        return b'"installed_version"' in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _settings_of(pid: int) -> dict[bytes, bytes]:
    """The settings that a worker was given by its environment, where the system tells."""
    try:
        pairs = [pair.partition(b"=") for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    except OSError:
        return {}
    names = {f"{config.PREFIX}{name.upper()}".encode() for name in config.names()}
    return {name: given for name, _, given in pairs if name in names}


# --- the launcher ----------------------------------------------------------------------------------------------------


def write_launcher(data_dir: Path) -> Path:
    """Write the program that agents are told to run, and return its path. Its name never changes; what it runs may,
    when Python or we move. The one that the plugin runs is brought up to date too, if it is for this data directory."""
    path = _write_launcher(launcher(data_dir), data_dir)
    with contextlib.suppress(OSError):
        if runs_for(plugin_launcher(), data_dir):
            _write_launcher(plugin_launcher(), data_dir)
    return path


def plugin_launcher() -> Path:
    """The one path that the plugin's hooks run. It has no installer that could write another into them, and nothing in
    an agent's environment may name one."""
    return launcher(Path(_home()) / ".claude-mem")


def _home() -> str:
    try:
        return hook.home_dir()
    except KeyError:
        return "/"  # in a container, a user without a name and without `HOME`


def write_plugin_launcher(data_dir: Path) -> None:
    """Let the plugin use a data directory elsewhere, unless it has a launcher already. `doctor` says if it has none."""
    with contextlib.suppress(OSError):  # a home folder in which nothing can be written is no reason not to start
        if not os.path.lexists(plugin_launcher()):
            _write_launcher(plugin_launcher(), data_dir)


def remove_plugin_launcher(data_dir: Path) -> None:
    """Remove it, and its folder if nothing else is in there, if it is for this data directory."""
    if runs_for(plugin_launcher(), data_dir):
        plugin_launcher().unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            plugin_launcher().parent.rmdir()


def runs_for(path: Path, data_dir: Path) -> bool:
    """Whether a launcher is there and keeps what it hears of in this data directory."""
    try:
        return str(data_dir) in shlex.split(_text(path), comments=True)
    except ValueError:
        return False  # not as we write it


def _write_launcher(path: Path, data_dir: Path) -> Path:
    text = _launcher_text(data_dir)
    hook.make_private(str(path.parent))
    if _text(path) != text:
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.write_bytes(os.fsencode(text))  # a folder's name is bytes, and need not be text
        temp.chmod(0o700)
        temp.rename(path)  # all at once: an agent may be running it this moment
    return path


def _launcher_text(data_dir: Path) -> str:
    """A shell script. It also answers when our Python or our package is gone, since nothing else can say so then. The
    worker looks for `claude` in the home folder: the one of the installation, whatever an agent's environment says."""
    bridge = Path(hook.__file__).resolve().with_name("bridge.py")
    where, python, program = shlex.quote(str(data_dir)), shlex.quote(PYTHON[0]), shlex.quote(hook_words()[-1])
    run = shlex.join(hook_words())
    return f"""#!/bin/sh
# claude-mem: what agents run. Written anew whenever the worker starts.
unset PYTHONEXECUTABLE
HOME={shlex.quote(_home())}; export HOME
warn() {{
case "$1" in
{_warnings()}
esac
}}
case "$1" in mcp) exec {shlex.join([*PYTHON, str(bridge)])} {where} ;; esac
if [ ! -x {python} ]; then why={_json_words(f"its Python ({PYTHON[0]}) is gone")}
elif [ ! -f {program} ]; then why={_json_words(f"its program ({hook_words()[-1]}) is gone, or is being upgraded")}
elif [ "$1" != context ]; then exec {run} "$1" {where} "$2"
elif {run} context {where} "$2"; then exit 0
else why={_json_words(f"its Python ({PYTHON[0]}) does not run")}
fi
case "$1,$2" in
context,*) warn "$2" ;;
compact,*) printf '%s' {shlex.quote(answers.PLAIN_NOD.decode())} ;;
*,claude | *,) printf '%s' {shlex.quote(answers.NOD.decode())} ;;
*) printf '%s' {shlex.quote(answers.PLAIN_NOD.decode())} ;;
esac
exit 0
"""


def _warnings() -> str:
    """The branches of a `case` over the agents: how each is told, at a session's start, that the hook can't run."""
    text = (
        "claude-mem: @WHY@; nothing is being remembered."
        " Reinstall it (`pipx reinstall claude-mem-py`), then run `claude-mem start`."
    )
    branches = []
    for host in ("claude", *answers.SHOWS_NOTHING, "*"):
        before, _, after = answers.with_warning(host, b"", text).decode().partition("@WHY@")
        words = f"""printf '%s%s%s' {shlex.quote(before)} "$why" {shlex.quote(after)}"""
        names = "claude | ''" if host == "claude" else host  # no name means Claude Code
        branches.append(f"{names}) {words} ;;")
    return "\n".join(branches)


def _json_words(text: str) -> str:
    """A text for the inside of a JSON string, quoted for the shell. Agents refuse JSON with half a character in it."""
    whole = os.fsencode(text).decode("utf-8", "replace")
    return shlex.quote(json.dumps(whole)[1:-1])


def hook_words() -> list[str]:
    """The hook itself, as the launcher runs it: absolute paths, no shim, no site packages, no surprise."""
    return [*PYTHON, str(Path(hook.__file__).resolve().with_name("launch.py"))]


def launcher(data_dir: Path) -> Path:
    return data_dir / LAUNCHER


def _text(path: Path) -> str:
    try:
        return os.fsdecode(untrusted_files.read(path, most=1 << 20))
    except OSError:
        return ""


# --- stopping --------------------------------------------------------------------------------------------------------


def was_stopped_meanwhile(data_dir: Path) -> bool:
    """Return whether someone has stopped the worker since a hook or command asked for this process. Not if a person
    runs `claude-mem serve`, or if the clock was set back after that stop."""
    try:
        asked = float(os.environ.get(os.fsdecode(hook.SPAWNED_AT), "nan"))
        return asked < (data_dir / hook.STOPPED).lstat().st_mtime <= time.time()
    except (OSError, ValueError):
        return False


def _note_stop(data_dir: Path) -> None:
    """Leave a mark for workers that were asked for before and have not come up yet: they are not wanted any more."""
    try:
        fd = os.open(data_dir / hook.STOPPED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return  # no data directory, or one that nothing can be written to: then no worker comes up either
    os.utime(fd)
    os.close(fd)


def stop(data_dir: Path, *, seconds: float = STOP_SECONDS) -> bool:
    """Ask the holder of the lock to stop; if it can't hear us any more, end it. True if one was running."""
    _note_stop(data_dir)
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
