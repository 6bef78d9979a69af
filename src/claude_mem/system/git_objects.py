"""Read commits, trees and blobs of a repository by git's plumbing, without running anything that the repository names.

Commands that look at a work tree (`git status`, `git diff`) run filters, hooks and file system monitors that the
repository's own settings name. The commands used here (`cat-file`, `rev-list`, `ls-tree`, `rev-parse`) only read
objects. Settings that could still run a program are switched off: missing objects of a partial clone are not fetched,
and the user's and the system's settings are not read. Everything is bounded in time and size: a commit of a megabyte
may decompress to gigabytes, and an included settings file may be a FIFO. Where git is missing, too slow or fails, the
answer is "nothing known".
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from claude_mem.system.untrusted_files import is_owned_by_user_or_root

PROGRAM_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin", "/bin")
TIMEOUT_SECONDS = 5.0
MAX_OUTPUT_BYTES = 64 << 20
MAX_PATHS_BYTES = 16 << 20
MAX_GIT_BYTES = 192 << 20  # memory that git may allocate; files that it maps do not count
# Set before git starts: it allocates the size that an object claims to have before it reads the object.
_LIMITED = ("/bin/sh", "-c", f'ulimit -d {MAX_GIT_BYTES >> 10}; exec "$@"', "sh")
MAX_BLOB_BYTES = 1 << 20
MAX_PATHS = 300_000
PORTION_BYTES = 8 << 20  # of blobs that are read at once
_SWITCHED_OFF = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.sshCommand=false",
    "core.pager=cat",
    "protocol.allow=never",
    "gc.auto=0",
)
DEFAULT_BRANCHES = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master", "refs/heads/trunk")


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """A commit: its id, its time in milliseconds as its author's clock had it, its subject and its parents."""

    id: str
    at: int
    subject: str
    parents: tuple[str, ...] = ()


def find_git() -> str:
    """Return the path of the installed git; "" if there is none. A project's PATH has no say."""
    for folder in PROGRAM_FOLDERS:
        path = Path(folder, "git")
        if path.is_file() and os.access(path, os.X_OK) and is_owned_by_user_or_root(path):
            return str(path)
    return ""


class GitObjects:
    """The objects of the repository that a work tree belongs to. The caller has checked that `.git` is trusted."""

    def __init__(self, root: str, program: str | None = None) -> None:
        self.git_dir = f"{root}/.git"
        self.program = find_git() if program is None else program  # "" once a call took too long

    def resolve(self, *names: str) -> list[str]:
        """Return the commit that each name stands for; "" if there is none."""
        lines = self._batch("--batch-check=%(objectname) %(objecttype)", [f"{name}^{{commit}}" for name in names])
        words = [line.split(b" ") for line in lines.splitlines()]
        ids = [parts[0].decode() if parts[-1] == b"commit" else "" for parts in words]
        return ids if len(ids) == len(names) else [""] * len(names)

    def head(self) -> tuple[str, str]:
        """Return the commit and the branch of the work tree; "" for what is unknown."""
        (commit,) = self.resolve("HEAD")
        branch = self._run("rev-parse", "--abbrev-ref", "HEAD").decode("utf-8", "replace").strip() if commit else ""
        return commit, "" if branch == "HEAD" else branch[:200]

    def is_incomplete(self) -> bool:
        """Return whether objects may be missing: the repository is a shallow or a partial clone."""
        folder = self._run("rev-parse", "--git-common-dir").decode("utf-8", "replace").strip()
        if not folder:
            return True
        common = Path(self.git_dir).parent / folder
        return (common / "shallow").exists() or any((common / "objects" / "pack").glob("*.promisor"))

    def default_branch(self) -> str:
        """Return the newest commit of the default branch; "" if it is unknown."""
        return next((commit for commit in self.resolve(*DEFAULT_BRANCHES) if commit), "")

    def read_blobs(self, specs: Sequence[str]) -> dict[str, bytes]:
        """Return the content of each blob (`COMMIT:PATH`) that exists and is not too large; those of an answer that is
        too large are left out."""
        blobs = self.find_blobs(specs)
        sizes, total = dict[str, int](), 0
        for blob_id, size in blobs.values():
            total += size if blob_id not in sizes else 0
            if total > MAX_OUTPUT_BYTES // 2:
                break
            sizes[blob_id] = size
        contents = self._contents(list(sizes))
        return {spec: contents[blob_id] for spec, (blob_id, _) in blobs.items() if blob_id in contents}

    def find_blobs(self, specs: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return the id and size of each blob (`COMMIT:PATH`) that exists and is not too large."""
        specs = [spec for spec in dict.fromkeys(specs) if "\n" not in spec]
        lines = self._batch("--batch-check=%(objectname) %(objecttype) %(objectsize)", specs).splitlines()
        if len(lines) != len(specs):
            return {}
        answers = zip(specs, (line.decode("utf-8", "replace").rsplit(" ", 2) for line in lines), strict=True)
        return {
            spec: (parts[0], int(parts[2]))
            for spec, parts in answers  # of what is missing: `NAME missing`
            if len(parts) == 3 and parts[1] == "blob" and parts[2].isdigit() and int(parts[2]) <= MAX_BLOB_BYTES
        }

    def read_contents(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield the contents of blobs, given with their sizes, in portions: one answer of git is limited in size."""
        portion, total = list[str](), 0
        for blob_id, size in sizes.items():
            if portion and total + size > PORTION_BYTES:
                yield from self._contents(portion).items()
                portion, total = [], 0
            portion.append(blob_id)
            total += size
        yield from self._contents(portion).items()

    def _contents(self, names: Sequence[str]) -> dict[str, bytes]:
        data = self._batch("--batch", names)
        contents: dict[str, bytes] = {}
        at = 0
        while at < len(data):
            end = data.find(b"\n", at)
            header = data[at:end].split(b" ")
            if end < 0 or len(header) != 3 or not header[2].isdigit():
                break
            size = int(header[2])
            contents[header[0].decode()] = data[end + 1 : end + 1 + size]
            at = end + 2 + size
        return contents

    def list_commits(self, *revisions: str, most: int) -> list[CommitInfo]:
        """Return the newest commits that `git rev-list` finds for these arguments."""
        output = self._run("rev-list", f"--max-count={most}", "--format=%H%x09%ct%x09%P%x09%s", *revisions)
        lines = [line.split("\t", 3) for line in output.decode("utf-8", "replace").split("\n")]
        return [
            CommitInfo(parts[0], int(parts[1]) * 1000, parts[3], tuple(parts[2].split()))
            for parts in lines
            if len(parts) == 4 and parts[1].isdigit()
        ]

    def list_paths(self, commit: str) -> list[str]:
        """Return the files of a commit's tree, at most `MAX_PATHS`; none if their names are too long."""
        output = self._run("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, most=MAX_PATHS_BYTES)
        return [path.decode("utf-8", "replace") for path in output.split(b"\0", MAX_PATHS)[:MAX_PATHS] if path]

    def list_blobs(self, commit: str) -> dict[str, str]:
        """Return the files of a commit's tree with the ids of their contents."""
        output = self._run("ls-tree", "-r", "-z", "--full-tree", commit).decode("utf-8", "replace")
        entries = [entry.partition("\t") for entry in output.split("\0") if " blob " in entry]
        return {path: about.split(" ")[2] for about, _, path in entries}

    def list_changes(self, commit: str, path: str, *, most: int) -> list[CommitInfo]:
        """Return the newest commits up to this one that changed a file or a directory, or removed it."""
        return self.list_commits(commit, "--", path, most=most)

    def _batch(self, option: str, names: Sequence[str]) -> bytes:
        return self._run("cat-file", option, stdin="".join(f"{name}\n" for name in names)) if names else b""

    def _run(self, *args: str, stdin: str = "", most: int = MAX_OUTPUT_BYTES) -> bytes:
        """Return what a git command prints; nothing if it fails, takes too long or prints too much."""
        if not self.program:
            return b""
        settings = [word for setting in _SWITCHED_OFF for word in ("-c", setting)]
        options = ["--no-pager", "--no-replace-objects", "--literal-pathspecs", f"--git-dir={self.git_dir}"]
        command = [self.program, *options, *settings, *args]
        with tempfile.TemporaryFile() as source:
            source.write(stdin.encode("utf-8", "replace"))
            source.seek(0)
            try:
                return _read_output(command, source.fileno(), most)
            except subprocess.TimeoutExpired:
                self.program = ""  # the next call would take as long
            except OSError:
                pass
            return b""


def _environment() -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": "none",  # no transport: a missing object is missing, not fetched
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
    }


def _read_output(command: Sequence[str], stdin: int, most: int) -> bytes:
    with subprocess.Popen(
        [*_LIMITED, *command],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
        cwd="/",
    ) as process:
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(TIMEOUT_SECONDS, expire)
        timer.start()
        try:
            assert process.stdout is not None
            output = process.stdout.read(most + 1)
            if len(output) > most:
                process.kill()
                output = b""
            status = process.wait()
        finally:
            timer.cancel()
    if expired.is_set():
        raise subprocess.TimeoutExpired(command, TIMEOUT_SECONDS)
    return output if status == 0 else b""
