"""Runs the person's own git on our bare repository, to fetch and push one branch of a remote.

Unlike `system.git_objects`, which reads repositories that others made, this needs the person's settings and keys to
reach the remote: `~/.gitconfig` is read, the system's settings are not. What the remote sends is not trusted: there is
no work tree, no hook runs, only few protocols are allowed, nothing asks a question, and time, memory and the size of
each file that git writes are bounded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from claude_mem import hook
from claude_mem.domain.errors import OperationFailed
from claude_mem.sync.errors import SpaceUnavailable
from claude_mem.system.git_objects import find_git

LOCAL_SECONDS, REMOTE_SECONDS = 30.0, 120.0
MAX_OUTPUT_BYTES = 64 << 20
MAX_FILE_BYTES = 512 << 20  # of a pack that the remote sends
MAX_MEMORY_BYTES = 768 << 20
ERROR_CHARS = 300
# Set before git starts. In `sh`, the unit of `-f` is 512 bytes, that of `-d` is 1,024.
_LIMITED = (
    "/bin/sh", "-c", f'ulimit -f {MAX_FILE_BYTES >> 9}; ulimit -d {MAX_MEMORY_BYTES >> 10}; exec "$@"', "sh",
)  # fmt: skip
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.bigFileThreshold=1m",  # larger ones are not held in memory
    "core.askPass=/bin/false",
    "credential.interactive=false",
    "fetch.fsckObjects=true",
    "fetch.unpackLimit=1",  # a pack is one file, whose size is limited
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "push.followTags=false",
    "push.gpgSign=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
    "user.name=claude-mem",
    "user.email=claude-mem@localhost",
    "user.useConfigOnly=true",
)
_PASSED_ON = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "TMPDIR")


class GitFailed(OperationFailed):
    """`output` is what git printed as its error."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class GitRemote:
    """A bare repository in our data directory, and the URL that it exchanges with."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.program = find_git()

    def create(self) -> None:
        """Create the repository if it does not exist."""
        if not self.program:
            raise SpaceUnavailable("git is not installed", hint="install git")
        if (self.folder / "HEAD").is_file():
            return
        hook.make_private_dir(str(self.folder))
        self.run("init", "--quiet", "--bare", "--template=", "--initial-branch=unused", str(self.folder), in_repo=False)

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        seconds: float = LOCAL_SECONDS,
        env: Mapping[str, str] | None = None,
        in_repo: bool = True,
    ) -> bytes:
        """Return what git prints, or raise `GitFailed`. A command that takes too long is ended with its children."""
        options = ["--no-pager", "--no-replace-objects", "--literal-pathspecs"]
        options += [f"--git-dir={self.folder}"] if in_repo else []
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = [*_LIMITED, self.program, *options, *settings, *args]
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            source.write(stdin)
            source.seek(0)
            status = _run(command, (source, output, errors), seconds, {**_environment(), **(env or {})})
            errors.seek(0)
            message = errors.read(1 << 16).decode("utf-8", "replace").strip()
            if status is None:
                raise GitFailed(f"git {args[0]} took longer than {seconds:.0f} s", "timeout")
            if status:
                last = ([line for line in message.splitlines() if line.strip()] or [f"exit code {status}"])[-1]
                raise GitFailed(f"git {args[0]} failed: {last[:ERROR_CHARS]}", message)
            if os.fstat(output.fileno()).st_size > MAX_OUTPUT_BYTES:
                raise GitFailed(f"git {args[0]} printed too much", "")
            output.seek(0)
            return output.read()

    def run_remote(self, *args: str, in_repo: bool = True) -> bytes:
        """Run a command that talks to the remote; raise `SpaceUnavailable` if that fails."""
        try:
            return self.run(*args, seconds=REMOTE_SECONDS, in_repo=in_repo)
        except GitFailed as error:
            hint = "check the network, the address, and that git reaches it without asking for a password"
            raise SpaceUnavailable(f"the git remote does not answer: {error}", hint=hint) from error


def _environment() -> dict[str, str]:
    own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **own,
        "HOME": own.get("HOME") or hook.home_dir(),
        "PATH": "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "file:ssh:https:http",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=15",
        "GIT_NO_LAZY_FETCH": "1",
    }


def _run(command: Sequence[str], files: tuple[Any, Any, Any], seconds: float, env: dict[str, str]) -> int | None:
    """Return the exit code, or None if the time ran out. The command gets a group of its own, so that `ssh` and the
    helpers that git starts end with it."""
    source, output, errors = files
    process = subprocess.Popen(
        command,
        stdin=source,
        stdout=output,
        stderr=errors,
        env=env,
        cwd="/",
        start_new_session=True,
    )
    try:
        return int(process.wait(seconds))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
