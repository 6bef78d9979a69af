"""What every transport promises, by the real parts: a folder, git with a real remote, HTTP with a real server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from claude_mem.domain import frames
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.sync import git_remote, keys
from claude_mem.sync.errors import Conflict, SpaceUnavailable
from claude_mem.sync.segments import SegmentLog, decode_frames, encode_frame, segment_name
from claude_mem.sync.transports import git as git_transport
from claude_mem.sync.transports.address import normalize, open_for
from claude_mem.sync.transports.base import Transport
from claude_mem.sync.transports.folder import FolderTransport
from claude_mem.sync.transports.git import GitTransport
from claude_mem.sync.transports.server import ServerTransport
from tests.support.space_server import TOKEN, SpaceServer, space_server

SPACE = "5a" * 16
LAPTOP, DESKTOP = "d1" * 8, "d2" * 8
Open = Callable[[str], Transport]


def entries(*numbers: int, size: int = 300) -> list[bytes]:
    return [f"{number:08d}".encode() * (size // 8) for number in numbers]


def bare(folder: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--bare", str(folder)], check=True)
    return folder


@pytest.fixture
def server() -> Iterator[SpaceServer]:
    with space_server() as running:
        yield running


@pytest.fixture(params=["folder", "git", "server"])
def open_transport(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the transport as the machine of that name sees it."""
    with ExitStack() as stack:
        remote = bare(tmp_path / "remote.git") if request.param == "git" else tmp_path / "share"
        remote.mkdir(exist_ok=True)
        url = stack.enter_context(space_server()).url if request.param == "server" else ""

        def open_(machine: str) -> Transport:
            if url:
                return stack.enter_context(closing(ServerTransport(url, SPACE, TOKEN)))
            if request.param == "git":
                return GitTransport(tmp_path / machine / "git", str(remote), SPACE)
            return FolderTransport(remote, SPACE)

        yield open_


def test_the_manifest_is_replaced_only_by_who_has_read_it(open_transport: Open) -> None:
    one, two = open_transport("one"), open_transport("two")
    assert one.read_manifest() is None
    one.write_manifest(b"first", expected=None)
    with pytest.raises(Conflict):
        two.write_manifest(b"also first", expected=None)
    body, tag = two.read_manifest() or pytest.fail("nothing there")
    assert body == b"first"
    two.write_manifest(b"second", expected=tag)
    with pytest.raises(Conflict):
        one.write_manifest(b"third", expected=tag)
    assert (one.read_manifest() or (b"", ""))[0] == b"second"


def test_entries_arrive_in_order_once_and_in_pages(open_transport: Open) -> None:
    writer, reader = open_transport("one"), open_transport("two")
    writer.write_manifest(b"manifest", expected=None)
    writer.append_entries(LAPTOP, after=0, entries=entries(*range(1, 8)))
    writer.append_entries(LAPTOP, after=7, entries=entries(8, 9))
    writer.append_entries(LAPTOP, after=5, entries=entries(6, 7, 8, 9, 10))  # the first four again
    reader.read_manifest()
    assert reader.heads() == {LAPTOP: 10}
    assert reader.read_entries(LAPTOP, after=0, limit=4) == entries(1, 2, 3, 4)
    assert reader.read_entries(LAPTOP, after=4, limit=100) == entries(*range(5, 11))
    assert reader.read_entries(LAPTOP, after=10, limit=5) == []
    assert reader.read_entries(DESKTOP, after=0, limit=5) == []


def test_other_bytes_or_a_gap_are_a_conflict_that_tells_the_head(open_transport: Open) -> None:
    transport = open_transport("one")
    transport.write_manifest(b"manifest", expected=None)
    transport.append_entries(LAPTOP, after=0, entries=entries(1, 2))
    for after, wrong in ((1, entries(7)), (1, entries(2, 3)[::-1]), (5, entries(6))):
        with pytest.raises(Conflict) as caught:
            transport.append_entries(LAPTOP, after=after, entries=wrong)
        assert caught.value.head == 2
    assert transport.read_entries(LAPTOP, after=0, limit=9) == entries(1, 2)


def test_two_machines_write_at_the_same_time(open_transport: Open) -> None:
    open_transport("one").write_manifest(b"manifest", expected=None)
    failures: list[BaseException] = []

    def write(machine: str, device: str) -> None:
        try:
            transport = open_transport(machine)
            for number in range(1, 6):
                transport.append_entries(device, after=number - 1, entries=entries(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=args) for args in (("one", LAPTOP), ("two", DESKTOP))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    reader = open_transport("three")
    reader.read_manifest()
    assert reader.heads() == {LAPTOP: 5, DESKTOP: 5}


def test_a_page_has_a_limit_of_bytes_and_large_entries_arrive(open_transport: Open) -> None:
    transport = open_transport("one")
    transport.write_manifest(b"manifest", expected=None)
    large = entries(*range(1, 9), size=1_000_000)
    transport.append_entries(LAPTOP, after=0, entries=large)
    transport.read_manifest()
    page = transport.read_entries(LAPTOP, after=0, limit=100)
    assert 1 <= len(page) < 8
    assert page == large[: len(page)]
    assert transport.heads() == {LAPTOP: 8}
    assert transport.read_entries(LAPTOP, after=7, limit=100) == large[7:]


@pytest.mark.parametrize("device", ["", "..", "../../etc", "D1" * 8, "d1" * 9, "d1\n" * 8])
def test_only_ids_become_paths_and_addresses(open_transport: Open, device: str) -> None:
    transport = open_transport("one")
    for call in (
        lambda: transport.append_entries(device, after=0, entries=entries(1)),
        lambda: transport.read_entries(device, after=0, limit=1),
    ):
        with pytest.raises(OperationFailed, match="not the id of a machine"):
            call()


@pytest.mark.parametrize(
    "data", [b"\0", b"\0\0\0\0", b"\0\0\0\5abc", b"\xff\xff\xff\xffx", frames.encode(entries(1))[:-1]]
)
def test_frames_that_are_not_complete_are_refused(data: bytes) -> None:
    assert frames.decode(frames.encode(entries(1, 2))) == entries(1, 2)
    with pytest.raises(InvalidRequest):
        frames.decode(frames.encode(entries(1)) + data)


# --- the folder, and what copies it ----------------------------------------------------------------------------------


@pytest.fixture
def share(tmp_path: Path) -> FolderTransport:
    (tmp_path / "share").mkdir()
    transport = FolderTransport(tmp_path / "share", SPACE)
    transport.write_manifest(b"manifest", expected=None)
    transport.append_entries(LAPTOP, after=0, entries=entries(*range(1, 11)))
    return transport


def log_folder(share: FolderTransport) -> Path:
    return share.folder / "logs" / LAPTOP


def test_a_file_that_was_copied_in_part_hides_only_its_end(share: FolderTransport) -> None:
    path = log_folder(share) / segment_name(1)
    whole = path.read_bytes()
    for size in (0, 1, 11, 12, 13, len(whole) // 2, len(whole) - 1):
        for tail in (b"", b"\0" * 500):
            path.write_bytes(whole[:size] + tail)
            got = FolderTransport(share.base, SPACE).read_entries(LAPTOP, after=0, limit=100)
            assert got == entries(*range(1, 11))[: len(got)]
            assert FolderTransport(share.base, SPACE).heads().get(LAPTOP, 0) == len(got) == size // 308


def test_segments_that_arrive_in_another_order_wait_for_those_before(
    share: FolderTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claude_mem.sync.segments.MAX_SEGMENT_BYTES", 1_000)
    share.append_entries(LAPTOP, after=10, entries=entries(*range(11, 21)))
    names = sorted(path.name for path in log_folder(share).iterdir())
    assert len(names) >= 4
    assert share.heads() == {LAPTOP: 20}
    (log_folder(share) / names[1]).rename(share.base / "late")
    late = FolderTransport(share.base, SPACE)
    assert late.heads() == {LAPTOP: 10}
    assert late.read_entries(LAPTOP, after=0, limit=100) == entries(*range(1, 11))
    (share.base / "late").rename(log_folder(share) / names[1])
    assert late.heads() == {LAPTOP: 20}
    for after in range(20):
        assert late.read_entries(LAPTOP, after=after, limit=3) == entries(*range(after + 1, min(after + 4, 21)))


def test_what_a_crash_left_at_the_end_is_overwritten(share: FolderTransport) -> None:
    path = log_folder(share) / segment_name(1)
    path.write_bytes(path.read_bytes() + encode_frame(entries(11)[0])[:50])
    share.append_entries(LAPTOP, after=10, entries=entries(11, 12))
    assert share.read_entries(LAPTOP, after=9, limit=9) == entries(10, 11, 12)
    assert decode_frames(path.read_bytes())[1] == path.stat().st_size


def test_links_pipes_and_foreign_names_in_the_folder_are_not_read(share: FolderTransport, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"".join(map(encode_frame, entries(1, 2))))
    for device, make in (
        ("a1" * 8, lambda path: path.symlink_to(secret)),
        ("a2" * 8, os.mkfifo),
        ("a3" * 8, lambda path: path.mkdir()),
    ):
        folder = share.folder / "logs" / device
        folder.mkdir()
        make(folder / segment_name(1))
    (share.folder / "logs" / ("a4" * 8)).symlink_to(log_folder(share))
    (share.folder / "logs" / "strange name").mkdir()
    (log_folder(share) / "0000000011 (conflicted copy).seg").write_bytes(encode_frame(entries(11)[0]))
    assert share.heads() == {LAPTOP: 10}
    (share.folder / "manifest").unlink()
    (share.folder / "manifest").symlink_to(secret)
    assert share.read_manifest() is None
    (share.folder / "manifest").unlink()
    (share.folder / "manifest").write_bytes(b"x" * (2 << 20))
    assert share.read_manifest() is None


def test_a_disk_that_is_not_mounted_or_not_writable_is_unavailable(share: FolderTransport, tmp_path: Path) -> None:
    share.base.rename(tmp_path / "elsewhere")
    for call in (share.read_manifest, share.heads, lambda: share.append_entries(LAPTOP, after=10, entries=entries(11))):
        with pytest.raises(SpaceUnavailable, match="is not there"):
            call()


KILLED = """
import sys, os
from pathlib import Path
from claude_mem.sync.segments import SegmentLog
import claude_mem.sync.segments as segments
segments.MAX_SEGMENT_BYTES = 2_000
log = SegmentLog(Path(sys.argv[1]))
at = log.head()
left = int(sys.argv[2])
def die(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
for name in ("fsync", "open"):
    real = getattr(os, name)
    setattr(os, name, lambda *args, real=real, **more: (die(), real(*args, **more))[1])
for number in range(at + 1, 26):
    log.append([f"{number:08d}".encode() * 40], after=number - 1)
"""


def test_killed_at_each_step_the_log_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    kills = 0
    for step in range(1, 40):
        done = subprocess.run([sys.executable, "-c", KILLED, str(folder), str(step)], check=False)
        kills += done.returncode == -signal.SIGKILL
        head = SegmentLog(folder).head()
        assert SegmentLog(folder).read(after=0, most_bytes=1 << 30, limit=100) == entries(*range(1, head + 1), size=320)
    assert kills > 5
    assert SegmentLog(folder).head() == 25


# --- git -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return bare(tmp_path / "remote.git")


def git(remote: Path, *args: str, **more: str) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={remote}", "-c", "user.name=x", "-c", "user.email=x@y", *args],
        input=more.get("stdin"),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def on_git(tmp_path: Path, remote: Path) -> GitTransport:
    transport = GitTransport(tmp_path / "one" / "git", str(remote), SPACE)
    transport.write_manifest(b"manifest", expected=None)
    transport.append_entries(LAPTOP, after=0, entries=entries(1, 2, 3))
    return transport


def test_git_uses_one_branch_of_its_own_and_leaves_the_others_alone(tmp_path: Path, remote: Path) -> None:
    tree = git(remote, "mktree", stdin="")
    main = git(remote, "commit-tree", "-m", "theirs", tree)
    git(remote, "update-ref", "refs/heads/main", main)
    transport = GitTransport(tmp_path / "one" / "git", str(remote), SPACE)
    transport.write_manifest(b"manifest", expected=None)
    branches = git(remote, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    assert f"refs/heads/main {main}" in branches
    assert [line.split()[0] for line in branches] == [f"refs/heads/claude-mem/{SPACE}", "refs/heads/main"]
    assert not (tmp_path / "one" / "git" / ".git").exists()


def test_segments_of_git_stay_small_and_nothing_is_lost_at_the_border(on_git: GitTransport, remote: Path) -> None:
    for first in range(4, 304, 60):
        on_git.append_entries(LAPTOP, after=first - 1, entries=entries(*range(first, first + 60), size=1_600))
    fresh = GitTransport(on_git.git.folder.parent / "other", str(remote), SPACE)
    assert fresh.heads() == {LAPTOP: 303}
    got: list[bytes] = []
    while page := fresh.read_entries(LAPTOP, after=len(got), limit=70):
        got += page
    assert [int(entry[:8]) for entry in got] == list(range(1, 304))
    sizes = git(remote, "ls-tree", "-r", "-l", f"claude-mem/{SPACE}").splitlines()
    assert len(sizes) > 5
    assert max(int(line.split()[3]) for line in sizes) < 70_000


def test_a_branch_that_was_lost_or_rewound_is_seen_so(on_git: GitTransport, remote: Path) -> None:
    before = git(remote, "rev-parse", f"claude-mem/{SPACE}~1")
    git(remote, "update-ref", f"refs/heads/claude-mem/{SPACE}", before)
    assert on_git.read_manifest() is not None
    assert on_git.heads() == {}
    on_git.append_entries(LAPTOP, after=0, entries=entries(1, 2, 3, 4))
    assert on_git.heads() == {LAPTOP: 4}
    git(remote, "update-ref", "-d", f"refs/heads/claude-mem/{SPACE}")
    assert on_git.read_manifest() is None
    assert on_git.heads() == {}


def commit_tree(remote: Path, listing: str) -> None:
    tree = git(remote, "mktree", stdin=listing)
    git(remote, "update-ref", f"refs/heads/claude-mem/{SPACE}", git(remote, "commit-tree", "-m", "hostile", tree))


def test_a_hostile_remote_with_links_bad_names_and_huge_files(on_git: GitTransport, remote: Path) -> None:
    huge = git(remote, "hash-object", "-w", "--stdin", stdin="0" * (8 << 20))
    link = git(remote, "hash-object", "-w", "--stdin", stdin="/etc/passwd")
    junk = git(remote, "hash-object", "-w", "--stdin", stdin="junk")
    device = git(remote, "mktree", stdin=f"100644 blob {huge}\t{segment_name(1)}\n100644 blob {junk}\t-rf\n")
    linked = git(remote, "mktree", stdin=f"120000 blob {link}\t{segment_name(1)}\n")
    skipped = git(remote, "mktree", stdin=f"100644 blob {junk}\t{segment_name(7)}\n")
    logs = git(
        remote,
        "mktree",
        stdin=f"040000 tree {device}\t{LAPTOP}\n040000 tree {linked}\t{DESKTOP}\n040000 tree {skipped}\t{'d3' * 8}\n"
        f"040000 tree {device}\tnot a device\n",
    )
    commit_tree(remote, f"100644 blob {huge}\tmanifest\n040000 tree {logs}\tlogs\n100755 blob {junk}\thook\n")
    assert on_git.read_manifest() is None
    assert on_git.heads() == {}
    assert on_git.read_entries(LAPTOP, after=0, limit=9) == []
    assert not list(on_git.git.folder.rglob("passwd"))


def test_a_remote_that_refuses_hangs_or_is_missing_is_unavailable(
    on_git: GitTransport, remote: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no space left for you >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SpaceUnavailable):
        on_git.append_entries(LAPTOP, after=3, entries=entries(4))
    started = tmp_path / "started"
    hook.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 1000\n")
    monkeypatch.setattr(git_transport, "REMOTE_SECONDS", 1.0)
    with pytest.raises(SpaceUnavailable, match="longer than 1 s"):
        on_git.append_entries(LAPTOP, after=3, entries=entries(4))
    hook.unlink()
    on_git.append_entries(LAPTOP, after=3, entries=entries(4))
    assert on_git.read_entries(LAPTOP, after=2, limit=9) == entries(3, 4)
    shutil.move(remote, remote.with_name("gone"))
    with pytest.raises(SpaceUnavailable, match="does not answer"):
        on_git.read_manifest()


def test_a_pack_larger_than_a_file_may_be_is_not_stored(
    on_git: GitTransport, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = os.urandom(3 << 20).hex()
    blob = git(remote, "hash-object", "-w", "--stdin", stdin=noise)
    commit_tree(remote, f"100644 blob {blob}\tmanifest\n")
    script = git_remote._LIMITED[2].replace(str(git_remote.MAX_FILE_BYTES >> 9), "1024")
    monkeypatch.setattr(git_remote, "_LIMITED", (*git_remote._LIMITED[:2], script, "sh"))
    with pytest.raises(SpaceUnavailable):
        on_git.read_manifest()


def test_neither_hooks_nor_programs_that_a_repository_names_are_run(on_git: GitTransport, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    hooks = on_git.git.folder / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-push", "reference-transaction", "post-commit", "pre-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {touched}\n")
        (hooks / name).chmod(0o755)
    on_git.append_entries(LAPTOP, after=3, entries=entries(4))
    assert not touched.exists()
    for url in (f"ext::sh -c touch% {touched}", "--upload-pack=touch"):
        with pytest.raises(OperationFailed):
            GitTransport(tmp_path / "ext", url, SPACE).read_manifest()
    assert not touched.exists()


# --- the server ------------------------------------------------------------------------------------------------------


def test_the_server_enrols_with_a_code_and_takes_tokens_away(server: SpaceServer) -> None:
    transport = ServerTransport(server.url, SPACE, "")
    with pytest.raises(OperationFailed, match="the code was used"):
        transport.enrol("guess", device=LAPTOP, name="laptop")
    assert transport.enrol("one-time-code", device=LAPTOP, name="laptop") == TOKEN
    with pytest.raises(OperationFailed, match="refuses this machine") as caught:
        transport.heads()
    assert "one-time code" in caught.value.hint
    with closing(ServerTransport(server.url, SPACE, TOKEN)) as own:
        own.revoke_device(DESKTOP)
    assert server.revoked == [DESKTOP]
    transport.close()


def test_a_token_that_is_kept_until_the_phrase_fits_goes_to_no_other_server(tmp_path: Path) -> None:
    kept = keys.create_keys(SPACE, "", "laptop")
    kept.token = TOKEN
    keys.save_enrolment(tmp_path, "https://one.example.org", kept)
    (path,) = (tmp_path / keys.FOLDER).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.load_enrolment(tmp_path, "https://one.example.org", SPACE) == kept
    assert keys.load_enrolment(tmp_path, "https://two.example.org", SPACE) is None
    assert keys.load_enrolment(tmp_path, "https://one.example.org", SPACE[::-1]) is None
    path.write_bytes(b"damaged")
    assert keys.load_enrolment(tmp_path, "https://one.example.org", SPACE) is None
    keys.forget_enrolment(tmp_path, SPACE)
    assert list((tmp_path / keys.FOLDER).iterdir()) == []


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}, b"{}"),
        (503, {}, b"not json"),
        (302, {"Location": "http://127.0.0.1:1/"}, b""),
        (200, {}, b"[]"),
        (200, {}, b'{"heads": {"../../x": 3}}'),
        (200, {}, b'{"heads": {"d1d1d1d1d1d1d1d1": -1}}'),
        (200, {}, b"\0" * (8 << 20)),
        (200, {"Content-Length": "100"}, b"{}"),
        (200, {"Content-Encoding": "gzip"}, b"{}"),
    ],
)
def test_a_server_that_misbehaves_is_unavailable(
    server: SpaceServer, answer: tuple[int, dict[str, str], bytes]
) -> None:
    transport = ServerTransport(server.url, SPACE, TOKEN)
    server.answer = (
        answer if "Content-Length" not in answer[1] else (*answer[:1], {**answer[1], "Connection": "close"}, answer[2])
    )
    for call in (transport.heads, lambda: transport.read_entries(LAPTOP, after=0, limit=5)):
        try:
            assert call() == []  # an empty page, for an answer that is one
        except OperationFailed as error:
            assert isinstance(error, SpaceUnavailable)
    transport.close()


def test_a_server_that_is_off_is_unavailable() -> None:
    with space_server() as server:
        url = server.url
    with pytest.raises(SpaceUnavailable, match="does not answer"):
        ServerTransport(url, SPACE, TOKEN).heads()


# --- addresses -------------------------------------------------------------------------------------------------------


def test_addresses_become_transports(tmp_path: Path) -> None:
    bare(tmp_path / "mem.git")
    (tmp_path / "my folder").mkdir()
    for text, url, kind in (
        ("my folder", f"file://{tmp_path}/my%20folder", FolderTransport),
        (f"file://{tmp_path}/x", f"file://{tmp_path}/x", FolderTransport),
        ("mem.git", f"git+file://{tmp_path}/mem.git", GitTransport),
        ("git@example.org:me/mem.git", "git+ssh://git@example.org/me/mem.git", GitTransport),
        ("ssh://git@example.org/me/mem", "git+ssh://git@example.org/me/mem", GitTransport),
        ("https://example.org/me/mem.git", "git+https://example.org/me/mem.git", GitTransport),
        ("https://mem.example.org", "https://mem.example.org", ServerTransport),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", ServerTransport),
    ):
        assert normalize(text, base=tmp_path) == url
        assert isinstance(open_for(url, tmp_path, SPACE), kind)
    assert open_for(f"file://{tmp_path}/my%20folder", tmp_path, SPACE).name.endswith("my folder")


@pytest.mark.parametrize(
    "text",
    ["", "http://example.org", "ftp://example.org", "ext::sh", "git+ext://x", "https://", "https://u:p@example.org",
     "file://host/x", "git+ssh://-oProxyCommand=x/y", "a\nb", "https://[", "x" * 3000],
)  # fmt: skip
def test_other_addresses_are_refused(text: str, tmp_path: Path) -> None:
    if text == "ext::sh":
        assert normalize(text, base=tmp_path).startswith("file://")  # a folder of that name, never a program
        return
    with pytest.raises(InvalidRequest):
        normalize(text, base=tmp_path)
