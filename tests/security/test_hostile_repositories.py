"""A repository may hold objects that decompress to gigabytes, trees without end, settings that block, and odd names."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from claude_mem.domain import anchors
from claude_mem.inject.outcomes import LineVersions
from claude_mem.storage.records import StoredAnchor
from claude_mem.system import git_files, git_objects, project_folders
from claude_mem.system.git_objects import GitObjects
from claude_mem.system.project_folders import identify_project
from tests.storage.test_repositories import commit, git, make
from tests.support.lab import Lab

MOST_KB = 250 << 10
WHO = b"author a <a@example.org> 1 +0000\ncommitter a <a@example.org> 1 +0000\n\n"


def put_object(git_dir: Path, kind: str, start: bytes, *, filler: int = 0) -> str:
    """Write a loose object that ends in `filler` times the letter a; it takes a thousandth of that on disk."""
    head = f"{kind} {len(start) + filler}".encode() + b"\0" + start
    digest, packer = hashlib.sha1(head), zlib.compressobj(9)
    packed = [packer.compress(head)]
    for _ in range(filler >> 20):
        digest.update(b"a" * (1 << 20))
        packed.append(packer.compress(b"a" * (1 << 20)))
    name = digest.hexdigest()
    path = git_dir / "objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join([*packed, packer.flush()]))
    return name


def point_head_at(git_dir: Path, name: str) -> None:
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    (git_dir / "refs" / "heads" / "main").write_text(f"{name}\n")


LOOK = """
import resource, sys
from claude_mem.system.git_objects import GitObjects
git = GitObjects(sys.argv[1])
head = git.resolve("HEAD")[0] or "HEAD"
git.head(), git.default_branch(), git.list_commits("--all", most=5), git.read_blobs([f"{head}:a.txt"])
print(len(git.list_paths(head)))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // (1024 if sys.platform == "darwin" else 1))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def peaks(folder: Path) -> tuple[int, int, int]:
    """The number of paths found, and the peaks of git and of the process that asks it, in KB. The latter is not
    `ru_maxrss`, which begins with what the parent process had."""
    done = subprocess.run([sys.executable, "-c", LOOK, str(folder)], capture_output=True, text=True, check=True)
    paths, child, own = map(int, done.stdout.split())
    return paths, child, own


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory works there")
def test_a_commit_that_decompresses_to_a_gigabyte_takes_no_memory(tmp_path: Path) -> None:
    git_dir = make(tmp_path / "shop", commits=0) / ".git"
    tree = put_object(git_dir, "tree", b"")
    point_head_at(git_dir, put_object(git_dir, "commit", f"tree {tree}\n".encode() + WHO, filler=1 << 30))
    _, child, own = peaks(tmp_path / "shop")
    assert max(child, own) <= MOST_KB


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_a_tree_that_contains_itself_a_million_times_takes_no_memory(tmp_path: Path) -> None:
    git_dir = make(tmp_path / "shop", commits=0) / ".git"
    tree, mode = put_object(git_dir, "blob", b"x"), b"100644"
    for _ in range(7):
        entries = b"".join(mode + b" %d\0" % number + bytes.fromhex(tree) for number in range(10))
        tree, mode = put_object(git_dir, "tree", entries), b"40000"
    point_head_at(git_dir, put_object(git_dir, "commit", f"tree {tree}\n".encode() + WHO))
    paths, child, own = peaks(tmp_path / "shop")
    assert paths == 0, "too many to be of use"
    assert max(child, own) <= MOST_KB


def test_after_a_call_that_blocked_git_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = make(tmp_path / "shop")
    assert GitObjects(str(shop)).head()[0]
    os.mkfifo(tmp_path / "fifo")
    git(shop, "config", "include.path", str(tmp_path / "fifo"))
    monkeypatch.setattr(git_objects, "TIMEOUT_SECONDS", 0.2)
    asked = GitObjects(str(shop))
    assert asked.resolve("HEAD") == [""]
    assert asked.program == ""
    assert (asked.head(), asked.list_commits("--all", most=5), asked.list_paths("HEAD")) == (("", ""), [], [])


def test_of_many_versions_of_a_file_only_the_anchored_lines_are_held(tmp_path: Path) -> None:
    shop = make(tmp_path / "shop", commits=0)
    for version in range(3):
        (shop / "a.txt").write_text("".join(f"line {version} {number} of many\n" for number in range(1_000)))
        git(shop, "add", "a.txt")
        git(shop, "commit", "-q", "-m", str(version))
    line = anchors.hash_line("line 1 7 of many")
    item = StoredAnchor(id=1, observation_id=1, path="a.txt", kind="edit", lines=(line,))
    asked = GitObjects(str(shop))
    commits = asked.list_commits("--all", most=9)
    lines = LineVersions(asked, [item]).read([commit.id for commit in commits], {"a.txt"})
    assert [files["a.txt"] for files in lines.values()] == [set(), {line}, set()]


def test_a_name_with_thousands_of_dots_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing it takes the square of its length."""
    shop = make(tmp_path / "shop")
    parsed: list[str] = []

    def parse(text: str) -> dict[str, str]:
        parsed.append(text)
        return {}

    monkeypatch.setattr("claude_mem.system.project_folders.tomllib.loads", parse)
    for text in ("a." * 4_000 + "b = 1\n", f"[{'a.' * 4_000}b]\n", f"x = {{ {'a.' * 4_000}b = 1 }}\n"):
        (shop / ".claude-mem.toml").write_text(text)
        assert not identify_project(str(shop)).enabled, "its author wanted to change something"
        assert "too many dots" in project_folders.override_problem(str(shop))
    assert parsed == []
    (shop / ".claude-mem.toml").write_text('skip_tools = ["mcp__a.b", "c.d"]\n')
    assert identify_project(str(shop)).enabled
    assert len(parsed) == 1


def test_of_a_folder_of_countless_packs_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = make(tmp_path / "shop")
    packs = shop / ".git" / "objects" / "pack"
    for number in range(git_files.MAX_PACK_FILES * 3):
        (packs / f"pack-{number}.idx").touch()
    looked: list[Path] = []

    def look(path: Path, _: bytes) -> bool:
        looked.append(path)
        return False

    monkeypatch.setattr(git_files, "_in_pack", look)
    assert not git_files.contains_commit(shop / ".git", "0" * 40)
    assert len(looked) == git_files.MAX_PACKS
    commit(shop)


def test_a_folder_whose_name_is_not_utf8_is_remembered_and_is_not_another(lab: Lab) -> None:
    """A link with an ordinary name may lead there."""
    for name in (b"bad\xff", b"bad\xfe"):
        (folder := lab.folder / os.fsdecode(name)).mkdir()
        link = lab.folder / f"link-{name[-1]}"
        link.symlink_to(folder)
        lab.project = link
        lab.spool("UserPromptSubmit", prompt=f"hello {name[-1]}", prompt_id="p", session_id=link.name)
    lab.mem("drain")
    assert lab.status()["set_aside"] == 0
    lab.mem("stop", ok=False)
    assert [name for (name,) in lab.rows("select name from projects order by id")] == ["bad\\xff", "bad\\xfe"]
