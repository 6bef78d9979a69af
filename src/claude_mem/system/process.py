"""Find, start, replace and stop the worker, and write the launcher that agents run.

Whether a worker runs is decided by a lock, not by a pid file: the kernel releases an `flock` when its process ends, so
it cannot be out of date. `worker.json` (mode 0600) holds the port and token of the worker.
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

from claude_mem import __version__, answers, config, hook
from claude_mem.domain.errors import DataDirLocked, OperationFailed
from claude_mem.system import data_directory, untrusted_files
from claude_mem.system.spool import write_private

log = logging.getLogger(__name__)

START_SECONDS = 10.0
STOP_SECONDS = 10.0
EXIT_SECONDS = 2.0
PID_WRITE_SECONDS = 2.0  # between taking the lock and writing the pid into it, on a busy machine
SUSPENDED_STOP_SECONDS = 0.5
RESTART_SECONDS = 15.0  # for a worker to notice a completed upgrade, finish its work and restart
HEALTH_SECONDS = 2.0
ZOMBIE_STATE = "Z"  # ended but not yet reaped by its parent; in a container that may take seconds
SUSPENDED_STATES = ("T", "t")  # suspended by a signal, or by a debugger
LAUNCHER = "claude-mem-hook"
PYTHON_COMMAND = (hook.interpreter(), "-I", "-S")


class WorkerInfo(msgspec.Struct, frozen=True):
    """The content of `worker.json`."""

    pid: int
    port: int
    token: str
    version: str = ""
    started_at: int = 0


@dataclass(slots=True)
class DataDirLock:
    """The lock of a data directory, held until `release` or the end of the process."""

    fd: int
    path: Path

    def release(self) -> None:
        """Release the lock."""
        os.close(self.fd)

    def is_in_place(self) -> bool:
        """Return False if the lock file was moved or removed.

        The path then leads to another data directory than the one that was locked, and another worker may hold its
        lock.
        """
        try:
            return os.path.samestat(os.fstat(self.fd), self.path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # a temporary disk error does not mean that the file was moved


def take_lock(data_dir: Path) -> DataDirLock:
    """Acquire the lock, which makes this the only process that may open the database."""
    data_directory.secure_data_dir(data_dir)
    data_directory.clear_path(data_dir, data_directory.LOCK_FILE)
    path = data_dir / data_directory.LOCK_FILE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not _lock_exclusive(fd):
        os.close(fd)
        raise DataDirLocked(
            "another claude-mem process is using this data directory", hint="run `claude-mem status` to see it"
        )
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    data_directory.quarantine_damaged(data_dir)
    return DataDirLock(fd, path)


def _lock_exclusive(fd: int) -> bool:
    """Try for a fifth of a second, because every call of `lock_holder` holds the lock for an instant."""
    for _ in range(10):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def lock_holder(data_dir: Path) -> int | None:
    """Return the pid of the process that holds the lock, 0 if it is unknown, or None if the lock is free."""
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


def read_worker_info(data_dir: Path) -> WorkerInfo | None:
    """Read `worker.json`. Its content may be trusted only while the lock is held."""
    try:
        with untrusted_files.open_regular(data_dir / "worker.json") as file:
            if not data_directory.is_owned_by_user(os.fstat(file.fileno())):
                return None  # another user's file would lead to that user's port
            return msgspec.json.decode(file.read(), type=WorkerInfo)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def write_worker_info(data_dir: Path, worker: WorkerInfo) -> None:
    """Publish the address of the running worker."""
    write_private(data_dir / "worker.json", msgspec.json.encode(worker))


def get_or_create_token(data_dir: Path) -> str:
    """Return the worker's token; create it if there is none. The caller must hold the lock.

    The token is permanent, so that clients which have it still work after a restart.
    """
    return read_token(data_dir) or create_token(data_dir)


def read_token(data_dir: Path) -> str:
    """Return the existing token, or "" if there is no valid one."""
    try:
        text = untrusted_files.read_start(data_dir / data_directory.TOKEN_FILE, 1000).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return text if len(text) >= 43 and text.isascii() else ""


def create_token(data_dir: Path) -> str:
    """Write a new access token, which makes the old one invalid, and return it."""
    token = secrets.token_urlsafe(32)
    write_private(data_dir / data_directory.TOKEN_FILE, token.encode())
    return token


def running_worker(data_dir: Path) -> WorkerInfo | None:
    """Return the worker that holds the lock, once it has written its address to `worker.json`."""
    pid = lock_holder(data_dir)
    worker = read_worker_info(data_dir)
    if pid is None or worker is None or worker.pid != pid:
        return None
    # A new worker holds the lock for a moment before it writes its pid; until then both files name its predecessor.
    return worker if _has_open(pid, data_dir / data_directory.LOCK_FILE) else None


def ensure_worker(data_dir: Path, *, seconds: float = START_SECONDS, by_user: bool = False) -> WorkerInfo:
    """Start a worker if none runs, wait until it listens, and return it.

    A worker of another version of this installation is replaced. With `by_user` the worker inherits all
    `CLAUDE_MEM_*` variables; otherwise it is started like one that a hook starts.
    """
    if problem := hook.program_problem(PYTHON_COMMAND[0]):
        raise OperationFailed(
            f"the worker was not started: {PYTHON_COMMAND[0]} is not safe to run: {problem}",
            hint="run `chmod go-w` on it and its directory, or reinstall claude-mem as your own user",
        )
    replace_outdated(data_dir)
    deadline = time.monotonic() + seconds
    pid = hook.start_worker(str(data_dir), pause=0, by_user=by_user) if lock_holder(data_dir) is None else 0
    while time.monotonic() < deadline:
        ended = bool(pid) and _has_ended(pid)  # before `running`: another worker may have got the lock
        if worker := running_worker(data_dir):
            return worker
        if ended and lock_holder(data_dir) is None:
            break
        time.sleep(0.02)
    raise OperationFailed(
        "the worker did not start", hint=f"see its error messages in {data_dir / 'logs' / 'start.log'}"
    )


def _has_ended(pid: int) -> bool:
    """Return whether a child process has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # already reaped


# --- another version -------------------------------------------------------------------------------------------------


def should_replace(data_dir: Path, worker: WorkerInfo) -> bool:
    """Return whether the worker has another version than this program and may be replaced by it.

    It may not if the launcher runs another installation that still exists: the two installations would replace each
    other's workers forever.
    """
    return worker.version != __version__ and _launcher_runs_this_installation(data_dir)


def _launcher_runs_this_installation(data_dir: Path) -> bool:
    """Return whether the launcher runs this installation, or one that no longer exists."""
    try:
        words = shlex.split(_read_text(launcher_path(data_dir)), comments=True)
    except ValueError:
        return False  # not written by claude-mem
    programs = [word for word in words if word.endswith("/launch.py")]
    return bool(programs) and (hook_command()[-1] in programs or not Path(programs[0]).exists())


def replace_outdated(data_dir: Path, *, seconds: float = RESTART_SECONDS) -> bool:
    """Replace the worker if it has another version than this program and may be replaced. Return whether it was.

    Newer workers restart themselves after an upgrade when they are woken, and keep their settings; such a worker is
    stopped only if it does not. A worker of a version without this feature is stopped and started again here.
    """
    worker = running_worker(data_dir)
    if worker is None or worker.version == __version__:
        return False
    if not should_replace(data_dir, worker):
        log.warning(
            "the running worker belongs to another installation (version %s); this is %s", worker.version, __version__
        )
        return False
    if _can_restart_itself(worker) and hook.wake_worker(str(data_dir)):
        _wait_until(lambda: _is_current(data_dir), seconds)
    if not _is_current(data_dir):
        settings = _settings_of(worker.pid)
        stop_worker(data_dir)
        hook.start_worker(str(data_dir), pause=0, settings=settings)
        _wait_until(lambda: _is_current(data_dir), START_SECONDS)
    return True


def _is_current(data_dir: Path) -> bool:
    worker = running_worker(data_dir)
    return worker is not None and worker.version == __version__


def _can_restart_itself(worker: WorkerInfo) -> bool:
    """Return whether the worker restarts itself after an upgrade: then its health report has `installed_version`."""
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", "/api/health", headers={"Authorization": f"Bearer {worker.token}"})
        return b'"installed_version"' in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _settings_of(pid: int) -> dict[bytes, bytes]:
    """Return the settings in a worker's environment, on systems that have `/proc`."""
    try:
        pairs = [pair.partition(b"=") for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    except OSError:
        return {}
    names = {f"{config.ENV_PREFIX}{name.upper()}".encode() for name in config.list_setting_names()}
    return {name: value for name, _, value in pairs if name in names}


# --- the launcher ----------------------------------------------------------------------------------------------------


def write_launcher(data_dir: Path) -> Path:
    """Write the launcher, the program that agents run, and return its path.

    The path of the launcher never changes; the paths inside it change when Python or this package moves. The plugin's
    launcher is updated too, if it uses this data directory.
    """
    path = _write_launcher(launcher_path(data_dir), data_dir)
    with contextlib.suppress(OSError):
        if launcher_uses(plugin_launcher_path(), data_dir):
            _write_launcher(plugin_launcher_path(), data_dir)
    return path


def plugin_launcher_path() -> Path:
    """Return the fixed path that the plugin's hooks run.

    It is fixed because a plugin has no installer that could insert another path, and an agent's environment must not
    be able to name one.
    """
    return launcher_path(Path(_home()) / ".claude-mem")


def _home() -> str:
    try:
        return hook.home_dir()
    except KeyError:
        return "/"  # in a container: a user without a passwd entry and without `HOME`


def write_plugin_launcher(data_dir: Path) -> None:
    """Make the plugin use this data directory, unless it already has a launcher. `doctor` reports a missing one."""
    with contextlib.suppress(OSError):  # a read-only home directory must not prevent the start
        if not os.path.lexists(plugin_launcher_path()):
            _write_launcher(plugin_launcher_path(), data_dir)


def remove_plugin_launcher(data_dir: Path) -> None:
    """Remove the plugin's launcher if it uses this data directory, and its directory if that is then empty."""
    if launcher_uses(plugin_launcher_path(), data_dir):
        plugin_launcher_path().unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            plugin_launcher_path().parent.rmdir()


def launcher_uses(path: Path, data_dir: Path) -> bool:
    """Return whether the launcher at this path exists and uses this data directory."""
    try:
        return str(data_dir) in shlex.split(_read_text(path), comments=True)
    except ValueError:
        return False  # not written by claude-mem


def _write_launcher(path: Path, data_dir: Path) -> Path:
    text = _launcher_text(data_dir)
    hook.make_private_dir(str(path.parent))
    if _read_text(path) != text:
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.write_bytes(os.fsencode(text))  # the path of a directory need not be valid UTF-8
        temp.chmod(0o700)
        temp.rename(path)  # atomic: an agent may be running the launcher now
    return path


def _launcher_text(data_dir: Path) -> str:
    """Return the launcher, a shell script.

    The script also answers when Python or this package is missing, because nothing else can report that. It sets `HOME`
    to the home directory at installation, whatever the agent's environment says, because the worker looks for `claude`
    there.
    """
    bridge = Path(hook.__file__).resolve().with_name("bridge.py")
    home, python, program = shlex.quote(str(data_dir)), shlex.quote(PYTHON_COMMAND[0]), shlex.quote(hook_command()[-1])
    run = shlex.join(hook_command())
    return f"""#!/bin/sh
# claude-mem: the program that agents run. Rewritten whenever the worker starts.
unset PYTHONEXECUTABLE
HOME={shlex.quote(_home())}; export HOME
warn() {{
case "$1" in
{_warning_branches()}
esac
}}
case "$1" in mcp) exec {shlex.join([*PYTHON_COMMAND, str(bridge)])} {home} ;; esac
if [ ! -x {python} ]; then why={_quote_json_text(f"its Python ({PYTHON_COMMAND[0]}) is missing")}
elif [ ! -f {program} ]; then why={_quote_json_text(f"its program ({hook_command()[-1]}) is missing or being upgraded")}
elif [ "$1" != context ]; then exec {run} "$1" {home} "$2"
elif {run} context {home} "$2"; then exit 0
else why={_quote_json_text(f"its Python ({PYTHON_COMMAND[0]}) does not run")}
fi
case "$1,$2" in
context,*) warn "$2" ;;
compact,*) printf '%s' {shlex.quote(answers.PLAIN_EMPTY_ANSWER.decode())} ;;
*,claude | *,) printf '%s' {shlex.quote(answers.EMPTY_ANSWER.decode())} ;;
*) printf '%s' {shlex.quote(answers.PLAIN_EMPTY_ANSWER.decode())} ;;
esac
exit 0
"""


def _warning_branches() -> str:
    """Return the branches of a shell `case` that print, per agent, the warning that the hook cannot run."""
    text = (
        "claude-mem: @WHY@; nothing is being remembered."
        " Reinstall it (`pipx reinstall claude-mem-py`), then run `claude-mem start`."
    )
    branches = []
    for host in ("claude", *answers.HIDES_NOTICES, "*"):
        before, _, after = answers.add_warning(host, b"", text).decode().partition("@WHY@")
        command = f"""printf '%s%s%s' {shlex.quote(before)} "$why" {shlex.quote(after)}"""
        names = "claude | ''" if host == "claude" else host  # no name means Claude Code
        branches.append(f"{names}) {command} ;;")
    return "\n".join(branches)


def _quote_json_text(text: str) -> str:
    """Quote text for the inside of a JSON string and for the shell. Agents reject JSON with incomplete characters."""
    valid_text = os.fsencode(text).decode("utf-8", "replace")
    return shlex.quote(json.dumps(valid_text)[1:-1])


def hook_command() -> list[str]:
    """Return the command line of the hook as the launcher runs it: absolute paths, no shim, no site packages."""
    return [*PYTHON_COMMAND, str(Path(hook.__file__).resolve().with_name("launch.py"))]


def launcher_path(data_dir: Path) -> Path:
    """Return the path of the launcher that agents run."""
    return data_dir / LAUNCHER


def _read_text(path: Path) -> str:
    try:
        return os.fsdecode(untrusted_files.read(path, most=1 << 20))
    except OSError:
        return ""


# --- stopping --------------------------------------------------------------------------------------------------------


def was_stopped_since_spawn(data_dir: Path) -> bool:
    """Return whether the worker was stopped after a hook or command requested this process.

    False if the user runs `claude-mem serve`, or if the clock was set back after the stop.
    """
    try:
        requested_at = float(os.environ.get(os.fsdecode(hook.SPAWNED_AT), "nan"))
        return requested_at < (data_dir / hook.STOP_STAMP).lstat().st_mtime <= time.time()
    except (OSError, ValueError):
        return False


def _touch_stop_stamp(data_dir: Path) -> None:
    """Touch the stamp that tells workers which were requested earlier, and have not started yet, to exit."""
    try:
        fd = os.open(data_dir / hook.STOP_STAMP, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return  # the data directory is missing or read-only, so that no worker can start either
    os.utime(fd)
    os.close(fd)


def stop_worker(data_dir: Path, *, seconds: float = STOP_SECONDS) -> bool:
    """Stop the worker: send SIGTERM, and SIGKILL if it does not react. Return True if one was running."""
    _touch_stop_stamp(data_dir)
    pid = lock_holder(data_dir)
    if not pid:
        return False
    if _state(pid) in SUSPENDED_STATES:
        seconds = min(seconds, SUSPENDED_STOP_SECONDS)  # only SIGKILL reaches it, and its data is safe on disk
    for signum, wait_seconds in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        _signal(data_dir, pid, signum)
        if _wait_until_gone(data_dir, pid, wait_seconds):
            return True
    raise OperationFailed(
        f"process {pid} did not exit after SIGKILL",
        hint="it may be blocked on disk I/O; check the disk, then run `claude-mem start`",
    )


def _signal(data_dir: Path, pid: int, signum: signal.Signals) -> None:
    """Send a signal to the process that holds the lock, and to no other.

    The pid in the lock file may have been reused. Where the kernel supports it, a pidfd is opened before the check, so
    that the pid cannot be reused in between.
    """
    pidfd = _open_pidfd(pid)
    try:
        lock_file = data_dir / "worker.lock"
        # A new worker holds the lock for a moment before it writes its pid; until then the file names its predecessor.
        if not _wait_until(lambda: lock_holder(data_dir) != pid or _has_open(pid, lock_file), PID_WRITE_SECONDS):
            raise OperationFailed(
                f"the lock file names process {pid}, but another process holds the lock; nothing was stopped",
                hint=f"find out which process has {lock_file} open, for example with `lsof`",
            )
        if lock_holder(data_dir) != pid or not _has_open(pid, lock_file):
            return  # it has released the lock
        if pidfd is None:
            os.kill(pid, signum)
        else:
            signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        pass  # it has ended
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid) if sys.platform == "linux" else None
    except (OSError, AttributeError):
        return None  # it has ended, or this kernel has no pidfds


def _has_open(pid: int, path: Path) -> bool:
    """Return whether the process has the file open. Without `/proc` this cannot be checked and counts as true."""
    listing = Path(f"/proc/{pid}/fd")
    if not Path("/proc/self/fd").exists():
        return True
    try:
        target = path.stat()
        return any(os.path.samestat(target, status) for fd in listing.iterdir() if (status := _stat_or_none(fd)))
    except OSError:
        return False  # the process has ended or belongs to another user, or the file was removed


def _stat_or_none(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None  # closed in the meantime


def _wait_until_gone(data_dir: Path, pid: int, seconds: float) -> bool:
    """Wait until the process releases the lock; return False on timeout.

    Then also wait briefly for the process to end, but a process that takes longer for that is not killed.
    """
    if not _wait_until(lambda: lock_holder(data_dir) != pid, seconds):
        return False
    _wait_until(lambda: not _exists(pid), EXIT_SECONDS)
    return True


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
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
        return False  # another user's process, which has reused the pid
    return _state(pid) != ZOMBIE_STATE


def _state(pid: int) -> str:
    """Return the process state as one letter, or "" if it cannot be determined."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return ""
