"""Files that someone else may have prepared: nothing is followed, waited for or read without end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from claude_mem.agents import registry
from claude_mem.agents.claude import read as read_transcript
from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.system import process, project_folders, untrusted_files
from claude_mem.system.project_folders import disabled_reason, identify_project, override_problem
from claude_mem.system.untrusted_files import FileRefused
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import build_app
from tests.storage.test_repositories import commit, git, make
from tests.support import forks
from tests.support.lab import Lab

SOMEONE = 4321  # no user of this machine
MOST_GROWTH = 150 << 20  # bytes a worker may grow by


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_fifo(path: Path) -> None:
    fifo(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def link_to_file(path: Path) -> None:
    path.with_name("elsewhere").write_text("enabled = true\n")
    path.symlink_to(path.with_name("elsewhere"))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def slightly_too_large(path: Path) -> None:
    path.write_text("#" * (untrusted_files.MAX_BYTES + 1))


def folder(path: Path) -> None:
    path.mkdir()


def listening(path: Path) -> None:
    here = os.getcwd()  # the name of a socket must be short
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(path.name)
    os.chdir(here)


Prepare = Callable[[Path], None]
PREPARED: list[Prepare] = [
    link_to_zero, link_to_fifo, link_to_file, fifo, sparse, slightly_too_large, folder, listening,
]  # fmt: skip


# --- one file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", PREPARED)
def test_what_is_no_small_regular_file_is_refused(tmp_path: Path, prepare: Prepare) -> None:
    prepare(tmp_path / "x")
    with pytest.raises(FileRefused):
        untrusted_files.read(tmp_path / "x")


def test_a_small_file_is_read_to_its_last_byte(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * untrusted_files.MAX_BYTES)
    assert len(untrusted_files.read(tmp_path / "x")) == untrusted_files.MAX_BYTES
    (tmp_path / "folder").symlink_to(tmp_path)
    assert untrusted_files.read(tmp_path / "folder" / "x"), "a link on the way is the person's own"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    os.chown(tmp_path / "x", SOMEONE, -1)
    with pytest.raises(FileRefused) as refused:
        untrusted_files.read(tmp_path / "x")
    assert refused.value.foreign
    assert untrusted_files.read(tmp_path / "x", owner=SOMEONE) == b""


# --- .claude-mem.toml ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", PREPARED)
def test_a_project_file_that_can_not_be_read_switches_off_and_is_named(tmp_path: Path, prepare: Prepare) -> None:
    prepare(tmp_path / ".claude-mem.toml")
    found = identify_project(str(tmp_path / "deep"))
    assert (found.enabled, found.name) == (False, "deep")
    assert override_problem(str(tmp_path)).startswith(f"{tmp_path}/.claude-mem.toml is ")
    assert disabled_reason(str(tmp_path), ()) == ("problem", override_problem(str(tmp_path)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("prepare", [*PREPARED, lambda path: path.write_text('enabled = false\nproject = "x"\n')])
def test_a_project_file_of_another_user_says_nothing(tmp_path: Path, prepare: Prepare) -> None:
    """Anyone may put one into /tmp."""
    (tmp_path / "work").mkdir()
    prepare(tmp_path / ".claude-mem.toml")
    os.chown(tmp_path / ".claude-mem.toml", SOMEONE, -1, follow_symlinks=False)
    found = identify_project(str(tmp_path / "work"))
    assert (found.enabled, found.name, found.identities) == (True, "work", (f"dir:{tmp_path}/work",))
    assert override_problem(str(tmp_path / "work")) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_whom_a_folder_belongs_to_may_switch_it_off(tmp_path: Path) -> None:
    """A folder of the host that is mounted in a container keeps its owner there."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / ".claude-mem.toml").write_text("enabled = false\n")
    for path in (mounted, mounted / ".claude-mem.toml"):
        os.chown(path, SOMEONE, -1)
    assert identify_project(str(mounted)).enabled is False


# --- .git ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", PREPARED)
def test_settings_of_git_that_can_not_be_read_name_no_remote(tmp_path: Path, prepare: Prepare) -> None:
    shop = make(tmp_path / "shop", commits=0)
    (shop / ".git" / "config").unlink()
    prepare(shop / ".git" / "config")
    assert identify_project(str(shop)).identities == (f"git:{shop}/.git",)


@pytest.mark.parametrize("prepare", [fifo, sparse, slightly_too_large, listening, link_to_zero, link_to_fifo])
@pytest.mark.parametrize("name", [".git", ".git/HEAD", ".git/logs/HEAD", ".git/description", ".git/packed-refs"])
def test_no_file_of_git_is_waited_for_or_read_without_end(tmp_path: Path, prepare: Prepare, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    if name == ".git/packed-refs":
        (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    prepare(tmp_path / name)
    found = identify_project(str(tmp_path))
    assert set(found.identities) <= {f"dir:{tmp_path}", f"git:{tmp_path}/.git"}


# --- transcripts -----------------------------------------------------------------------------------------------------

ODD_TRANSCRIPTS = ["/dev/zero", "/proc/kmsg", "/proc/kcore", "/proc/self/mem", "/sys/kernel/notes", "/dev/tty", "/"]


@pytest.mark.parametrize("path", ODD_TRANSCRIPTS)
def test_no_file_of_the_kernel_is_a_transcript(path: str) -> None:
    assert read_transcript(Path(path), host="claude").problem in ("not_a_file", "unreadable", "gone")
    assert registry.identify_agent(Path(path)) is None
    assert backfill._read_problem(Path(path)) in ("not_a_file", "unreadable", "gone")


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json"])
def test_a_pipe_or_a_link_to_a_device_is_no_transcript(tmp_path: Path, name: str) -> None:
    fifo(tmp_path / name)
    (tmp_path / f"link-{name}").symlink_to("/dev/zero")
    for path in (tmp_path / name, tmp_path / f"link-{name}"):
        assert read_transcript(path, host="claude").problem == "not_a_file"
        assert registry.identify_agent(path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_transcript_of_another_user_tells_nothing(lab: Lab) -> None:
    path = lab.folder / "theirs.jsonl"
    record = {"type": "user", "uuid": "u1", "sessionId": "s1", "timestamp": "2026-01-01T00:00:00Z"}
    path.write_text(json.dumps({**record, "message": {"role": "user", "content": "planted words"}}) + "\n")
    os.chown(path, SOMEONE, -1)
    lab.spool("UserPromptSubmit", prompt="hello", prompt_id="p1", transcript_path=str(path))
    lab.spool("Stop", prompt_id="p1", transcript_path=str(path))
    assert lab.drain() == 0
    assert lab.rows("select text from user_prompts") == [("hello",)]


# --- a worker that meets all of it -----------------------------------------------------------------------------------


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(name)


def _cloned_with_link(top: Path) -> Path:
    """What a plain `git clone` brings."""
    origin = make(top / "origin", commits=0)
    (origin / ".claude-mem.toml").symlink_to("/dev/zero")
    git(origin, "add", ".claude-mem.toml")
    commit(origin)
    git(top, "clone", "-q", str(origin), "clone")
    assert (top / "clone" / ".claude-mem.toml").is_symlink()
    return top / "clone"


def _with(prepare: Prepare, name: str) -> Callable[[Path], Path]:
    def unpack(top: Path) -> Path:
        shop = make(top / "unpacked")
        (shop / name).unlink(missing_ok=True)
        prepare(shop / name)
        return shop

    return unpack


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "clone": (_cloned_with_link, "filtered"),
    "fifo": (_with(fifo, ".claude-mem.toml"), "filtered"),
    "sparse": (_with(sparse, ".claude-mem.toml"), "filtered"),
    "config-link": (_with(link_to_zero, ".git/config"), "stored"),
    "config-fifo": (_with(fifo, ".git/config"), "stored"),
    "config-sparse": (_with(sparse, ".git/config"), "stored"),
}


def _turn(lab: Lab, session: str, place: Path, **more: Any) -> None:
    common = {"session_id": session, "cwd": str(place), **more}
    lines = f"host claude\nproject_dir {place}\n\n".encode()
    for command, event, fields in (
        ("context", "SessionStart", {"source": "startup"}),
        ("new", "UserPromptSubmit", {"prompt": f"work of {session}", "prompt_id": session}),
        ("summary", "Stop", {"last_assistant_message": f"Done by {session}.", "prompt_id": session}),
    ):
        payload = json.dumps({"hook_event_name": event, **common, **fields}).encode()
        lab.raw_spool(f"command {command}\n".encode() + lines + payload)


def _healthy(lab: Lab) -> bool:
    found = process.running_worker(lab.data)
    assert found is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{found.port}/healthz", timeout=20) as answer:
        return bool(answer.status == 200)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_folder_stops_nobody(lab: Lab, tmp_path: Path, kind: str) -> None:
    unpack, outcome = HOSTILE[kind]
    hostile = unpack(tmp_path)
    client = lab.start()
    (pid,) = [worker.pid for worker in lab.workers]
    before = _status(pid, "VmRSS")
    limit = _status(pid, "VmSize") + (1 << 30)  # so that a failure does not take the machine with it
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
    _turn(lab, "hostile", hostile, transcript_path="/proc/kmsg")
    _turn(lab, "other", lab.project)
    assert _healthy(lab)
    assert "claude-mem" in client.get("/api/context/inject", cwd=str(hostile))
    client.post("/api/context/semantic", {"q": "what did the work of hostile do", "project": "x"})
    client.get("/api/line", cwd=str(hostile))
    found = lab.wait_digested()
    assert (found["set_aside"], found["queued"]) == (0, 0)
    assert (found["stored"], found["filtered"]) == ((3, 3) if outcome == "filtered" else (6, 0))
    assert "other" in client.get("/api/context/inject", cwd=str(lab.project))
    assert _healthy(lab)
    assert _status(pid, "VmHWM") - before < MOST_GROWTH


def test_doctor_names_what_is_wrong(lab: Lab) -> None:
    (lab.project / ".claude-mem.toml").symlink_to("/dev/zero")
    said = forks.run(["doctor"], lab.env(), cwd=lab.project).stdout
    assert (
        f"{lab.project}/.claude-mem.toml is a symbolic link, which is not followed; nothing is captured in this directory"
        in said
    )


def test_a_slow_disk_does_not_keep_the_worker_from_answering(
    lab: Lab, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each route that names a folder looks at it off the event loop."""
    on_loop: list[str] = []
    real = project_folders.identify_project

    def watched(place: str, **more: Any) -> project_folders.ResolvedProject:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return real(place, **more)
        on_loop.append(place)
        return real(place, **more)

    monkeypatch.setattr(project_folders, "identify_project", watched)

    async def build() -> Service:
        return Service(config)

    service = asyncio.run(build())
    http = TestClient(build_app(service, token="t" * 43, port=37777), base_url="http://127.0.0.1:37777")
    headers = {"Authorization": f"Bearer {'t' * 43}"}
    start = {"session_id": "s", "hook_event_name": "SessionStart", "cwd": str(lab.project), "source": "startup"}
    prompt = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "cwd": str(lab.project), "prompt": "a b c d e"}
    octets = {**headers, "Content-Type": "application/octet-stream"}
    try:
        for path in ("/api/context/inject", "/api/line", "/api/projects"):
            assert http.get(path, params={"cwd": str(lab.project)}, headers=headers).status_code == 200
        for path, command, fields in (
            ("/api/context/inject", "context", start),
            ("/api/context/prompt", "new", prompt),
        ):
            record = f"command {command}\nhost claude\n\n".encode() + json.dumps(fields).encode()
            assert http.post(path, content=record, headers=octets).status_code == 200
        saved = http.post("/api/memory/save", json={"text": "x", "cwd": str(lab.project)}, headers=headers)
        assert saved.status_code == 200
    finally:
        service.close()
    assert on_loop == []
