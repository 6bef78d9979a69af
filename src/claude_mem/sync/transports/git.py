"""A git remote as transport: a branch of its own, without a work tree and without a server.

The branch `claude-mem/SPACE` contains the manifest and, per device, segments as in a folder. Each upload is one commit
on top of what was fetched; if another machine pushed in between, git refuses ours, and it is made again on top of
theirs. Since each device writes only its own files, this never meets a conflict of content, except in the manifest,
whose writer is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from claude_mem.domain.errors import OperationFailed
from claude_mem.sync.errors import Conflict, SpaceUnavailable
from claude_mem.sync.git_remote import REMOTE_SECONDS, GitFailed, GitRemote
from claude_mem.sync.manifest import MAX_MANIFEST_BYTES
from claude_mem.sync.seal import MAX_SEALED_BYTES
from claude_mem.sync.segments import decode_frames, encode_frame, first_index, segment_name
from claude_mem.sync.transports.base import MAX_DEVICES, MAX_PAGE_BYTES, MAX_PAGE_ENTRIES, check_device
from claude_mem.system.failpoints import failpoint

MAX_SEGMENT_BYTES = 64 << 10  # small, because a segment is stored again with each upload until it is full
MAX_BLOB_BYTES = MAX_SEGMENT_BYTES + 2 * MAX_SEALED_BYTES
MAX_FILES = 200_000
ATTEMPTS = 6
_LOG_PATH = re.compile(r"logs/([0-9a-f]{16})/(\d{10}\.seg)")


@dataclass(frozen=True, slots=True)
class Tree:
    """What a commit contains: the manifest's blob, and per device the blobs of its segments by first index."""

    commit: str
    manifest: str
    logs: Mapping[str, Mapping[int, str]]


class GitTransport:
    def __init__(self, folder: Path, url: str, space: str) -> None:
        self.git = GitRemote(folder, url)
        self.name = f"the git remote {url}"
        self.branch = f"refs/heads/claude-mem/{space}"
        self._tree: Tree | None = None
        self._blobs: dict[str, bytes] = {}

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_manifest(self) -> tuple[bytes, str] | None:
        """Fetch, and return the manifest and its blob, or None if the branch does not exist."""
        tree = self._fetch()
        body = self._read_blob(tree.manifest, MAX_MANIFEST_BYTES) if tree.manifest else b""
        return (body, tree.manifest) if body else None

    def heads(self) -> dict[str, int]:
        """Return the index of each device's last entry, as of the last fetch."""
        logs = self._current().logs
        return {device: head for device in sorted(logs)[:MAX_DEVICES] if (head := self._contiguous(logs[device])[1])}

    def read_entries(self, device: str, *, after: int, limit: int) -> list[bytes]:
        """Return the entries after an index, as of the last fetch."""
        segments = self._current().logs.get(check_device(device), {})
        firsts, head = self._contiguous(segments)
        page: list[bytes] = []
        size = 0
        for number, first in enumerate(firsts):
            if number + 1 < len(firsts) and firsts[number + 1] <= after + 1:
                continue
            for index, entry in enumerate(self._entries(segments[first]), start=first):
                size += len(entry) if after < index <= head else 0
                if page and (size > MAX_PAGE_BYTES or len(page) >= min(limit, MAX_PAGE_ENTRIES)):
                    return page
                if after < index <= head:
                    page.append(entry)
        return page

    def _contiguous(self, segments: Mapping[int, str]) -> tuple[list[int], int]:
        """Return the segments that follow each other without a gap, and the last index. Only the last is read: git does
        not change a part of a tree, and what a hostile remote makes of it fails the check of the entries."""
        firsts = sorted(segments)
        if not firsts or firsts[0] != 1:
            return [], 0
        return firsts, firsts[-1] - 1 + len(self._entries(segments[firsts[-1]]))

    def _entries(self, blob: str) -> list[bytes]:
        return decode_frames(self._read_blob(blob, MAX_BLOB_BYTES))[0]

    def _read_blob(self, blob: str, most: int) -> bytes:
        """Return a blob; nothing if it is too large or not a blob. Its size is known before it is read."""
        if blob not in self._blobs:
            header = self._run("cat-file", "--batch-check=%(objecttype) %(objectsize)", stdin=f"{blob}\n".encode())
            kind, _, size = header.decode("ascii", "replace").strip().partition(" ")
            fits = kind == "blob" and size.isdigit() and int(size) <= most
            if len(self._blobs) >= 4:
                self._blobs.clear()
            self._blobs[blob] = self._run("cat-file", "blob", blob) if fits else b""
        return self._blobs[blob]

    def _current(self) -> Tree:
        return self._tree if self._tree is not None else self._fetch()

    def _fetch(self) -> Tree:
        """Fetch the branch and return its tree. A branch that was rewound or deleted at the remote is so here, too."""
        self.git.create()
        refs = self.git.run_remote("ls-remote", "--quiet", "--", self.git.url, self.branch).decode("ascii", "replace")
        if not refs.strip():
            self._tree = Tree("", "", {})
            return self._tree
        if self._tree is not None and refs.split()[0] == self._tree.commit:
            return self._tree
        self.git.run_remote(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=",
            "--", self.git.url, f"+{self.branch}:{self.branch}",
        )  # fmt: skip
        commit = self._run("rev-parse", "--verify", "--end-of-options", f"{self.branch}^{{commit}}").decode().strip()
        self._tree = self._read_tree(commit)
        return self._tree

    def _read_tree(self, commit: str) -> Tree:
        """Return the files of a commit that have our names and are regular files; everything else is ignored."""
        listing = self._run("ls-tree", "-r", "-z", "--full-tree", commit)
        manifest = ""
        logs: dict[str, dict[int, str]] = {}
        for entry in listing.split(b"\0", MAX_FILES)[:MAX_FILES]:
            about, _, path = entry.decode("utf-8", "replace").partition("\t")
            mode, _, rest = about.partition(" ")
            if mode != "100644":
                continue
            blob = rest.rpartition(" ")[2]
            if path == "manifest":
                manifest = blob
            elif (match := _LOG_PATH.fullmatch(path)) and (first := first_index(match[2])):
                logs.setdefault(match[1], {})[first] = blob
        return Tree(commit, manifest, logs)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write_manifest(self, body: bytes, *, expected: str | None) -> None:
        """Push a commit with this manifest."""

        def change(tree: Tree) -> dict[str, bytes]:
            if (tree.manifest or None) != expected:
                raise Conflict("another machine changed the manifest at the same time")
            return {"manifest": body}

        self._commit(change, "manifest")

    def append_entries(self, device: str, *, after: int, entries: Sequence[bytes]) -> None:
        """Push a commit with these entries."""
        check_device(device)

        def change(tree: Tree) -> dict[str, bytes]:
            return self._extend(tree, device, after, entries)

        self._commit(change, device)

    def _extend(self, tree: Tree, device: str, after: int, entries: Sequence[bytes]) -> dict[str, bytes]:
        """Return the segments to write: the last one with more entries, and new ones."""
        segments = tree.logs.get(device, {})
        firsts, head = self._contiguous(segments)
        if after > head:
            raise Conflict(f"the log ends at entry {head:,}, not at {after:,}", head=head)
        present: list[bytes] = []
        while after + len(present) < head and len(present) < len(entries):
            present += self.read_entries(device, after=after + len(present), limit=len(entries) - len(present))
        if present != list(entries[: len(present)]):
            raise Conflict(f"other entries follow entry {after:,}", head=head)
        first = firsts[-1] if firsts else 1
        content = b"".join(map(encode_frame, self._entries(segments[first]))) if firsts else b""
        files: dict[str, bytes] = {}
        for entry in entries[len(present) :]:
            if len(content) >= MAX_SEGMENT_BYTES:
                first, content = head + 1, b""
            content += encode_frame(entry)
            head += 1
            files[f"logs/{device}/{segment_name(first)}"] = content
        return files

    def _commit(self, change: Callable[[Tree], dict[str, bytes]], subject: str) -> None:
        """Commit and push a change; make it again on top of what others pushed in between."""
        for _ in range(ATTEMPTS):
            tree = self._current()
            files = change(tree)
            if not files:
                return
            commit = self._write_commit(tree, files, subject)
            failpoint("sync.committed")
            lease = f"--force-with-lease={self.branch}:{tree.commit}"
            try:
                self.git.run(
                    "push", "--quiet", "--no-verify", lease, "--", self.git.url, f"{commit}:{self.branch}",
                    seconds=REMOTE_SECONDS,
                )  # fmt: skip
            except GitFailed as error:
                if not any(
                    word in error.output for word in ("stale info", "rejected", "fetch first", "cannot lock ref")
                ):
                    raise SpaceUnavailable(f"the git remote refused the upload: {error}", hint=_PUSH_HINT) from error
                self._fetch()
                continue
            self._tree = self._read_tree(commit)
            return
        raise SpaceUnavailable("other machines push all the time; the next exchange tries again")

    def _write_commit(self, tree: Tree, files: Mapping[str, bytes], subject: str) -> str:
        index = self.git.folder / "index.claude-mem"
        env = {"GIT_INDEX_FILE": str(index)}
        index.unlink(missing_ok=True)
        self._run("read-tree", *([tree.commit] if tree.commit else ["--empty"]), env=env)
        for path, content in files.items():
            blob = self._run("hash-object", "-w", "--stdin", "-t", "blob", stdin=content).decode().strip()
            self._run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=env)
        root = self._run("write-tree", env=env).decode().strip()
        parents = ["-p", tree.commit] if tree.commit else []
        return self._run("commit-tree", *parents, "-m", subject, root).decode().strip()

    def _run(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        try:
            return self.git.run(*args, stdin=stdin, env=env)
        except GitFailed as error:
            raise OperationFailed(f"{error}", hint=f"delete {self.git.folder}; it is made again") from error

    def revoke_device(self, device: str) -> None:
        """Do nothing: who may reach it is decided elsewhere."""

    def change_device(self, device: str, name: str) -> str:  # noqa: ARG002 - of all transports
        """Do nothing: there are no tokens here."""
        return ""

    def close(self) -> None:
        """Forget what was read."""
        self._tree = None
        self._blobs.clear()


_PUSH_HINT = "check that you may push to the branch `claude-mem/…` of this remote"
