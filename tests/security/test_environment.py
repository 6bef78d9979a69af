"""Neither the environment nor the working folder of an agent chooses what is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claude_mem import hook
from claude_mem.agents import claude
from claude_mem.domain.errors import OperationFailed
from claude_mem.system import process
from tests.support import proof
from tests.support.lab import LAUNCH, Lab
from tests.support.waiting import wait_for

COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/security/test_environment.py"

SOMEONE = 4321  # no user of this machine
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
EVENT = json.dumps({"session_id": "s1", "hook_event_name": "PostToolUse", "tool_name": "Read", "cwd": "/"}).encode()


def program(path: Path, marker: Path) -> Path:
    """A program that leaves a file when it is run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho run >> '{marker}'\n")
    path.chmod(0o700)
    return path


def _record(name: str) -> None:
    proof.record(name, of="S16", goal="all", measured=1, ok=True, tally=True, command=COMMAND)


# --- the interpreter -------------------------------------------------------------------------------------------------

ASK = f"import sys; sys.path.insert(0, {str(Path(hook.__file__).parents[1])!r}); from claude_mem import hook; print(hook.interpreter())"


@pytest.mark.parametrize("flags", [["-I", "-S"], ["-E", "-P", "-S"], ["-S"]])
@pytest.mark.parametrize("named", ["/nowhere/evil", "evil", "", "./evil"])
def test_the_interpreter_is_the_one_that_runs(tmp_path: Path, flags: list[str], named: str) -> None:
    env = {"PATH": str(Path(sys.executable).parent), "PYTHONEXECUTABLE": named}
    for start in (sys.executable, Path(sys.executable).name):
        done = subprocess.run(
            [start, *flags, "-c", ASK], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == sys.executable
    _record("values of PYTHONEXECUTABLE: ignored")


@pytest.mark.parametrize("way", ["launch", "launcher"])
def test_a_hook_starts_its_own_interpreter_as_the_worker(lab: Lab, tmp_path: Path, way: str) -> None:
    evil = program(tmp_path / "evil", tmp_path / "was-run")
    command = [*LAUNCH, "save", str(lab.data)]
    if way == "launcher":
        command = [str(process.write_launcher(lab.data)), "save", "claude"]
    env = lab.env(PYTHONEXECUTABLE=str(evil), CLAUDE_MEM_DATA_DIR=str(tmp_path / "theirs"))
    subprocess.run(command, input=EVENT, env=env, cwd=tmp_path, capture_output=True, check=True)
    wait_for(lambda: process.running_worker(lab.data))
    assert not (tmp_path / "was-run").exists()
    assert not (tmp_path / "theirs").exists()
    assert str(evil) not in process.launcher_path(lab.data).read_text(), "nor is it written down for later"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at a process in /proc")
def test_the_home_folder_of_the_worker_is_the_one_it_was_installed_in(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for `claude` there."""
    monkeypatch.setenv("HOME", str(lab.folder / "home"))
    launcher = process.write_launcher(lab.data)
    for home in (str(tmp_path / "evil"), "evil"):
        command = [str(launcher), "save", "claude"]
        subprocess.run(command, input=EVENT, env=lab.env(HOME=home), cwd=tmp_path, capture_output=True, check=True)
        worker = wait_for(lambda: process.running_worker(lab.data))
        names = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
        assert f"HOME={lab.folder / 'home'}".encode() in names
        process.stop_worker(lab.data)
        (lab.data / "worker.starting").unlink(missing_ok=True)
    assert launcher.read_text() == process.write_launcher(lab.data).read_text()


# --- who may change a program ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "folder", "group", "expected"),
    [
        (0o755, 0o755, None, ""),
        (0o700, 0o700, None, ""),
        (0o757, 0o755, None, "anyone can change it"),
        (0o755, 0o777, None, "anyone can change it"),
        (0o755, 0o1777, None, ""),
        (0o775, 0o755, SOMEONE, "its group can change it"),
        (0o775, 0o775, os.geteuid(), ""),
    ],
)
def test_a_program_that_others_may_change_is_not_run(
    tmp_path: Path, mode: int, folder: int, group: int | None, expected: str
) -> None:
    path = program(tmp_path / "bin" / "python3", tmp_path / "was-run")
    if group is not None:
        try:
            os.chown(path, -1, group)
        except PermissionError:
            pytest.skip("not a member of that group")
    path.chmod(mode)
    path.parent.chmod(folder)
    assert hook.program_problem(str(path)) == expected
    path.parent.chmod(0o700)
    _record("programs with an unsafe or safe owner, mode or folder: classified correctly")


@as_root
@pytest.mark.parametrize("whose", ["program", "link"])
def test_a_program_or_link_of_another_user_is_not_run(tmp_path: Path, whose: str) -> None:
    path = program(tmp_path / "python3.x", tmp_path / "was-run")
    link = tmp_path / "python3"
    link.symlink_to(path)
    os.chown(path if whose == "program" else link, SOMEONE, -1, follow_symlinks=False)
    assert hook.program_problem(str(link)) == "it belongs to another user"
    assert hook.program_problem(str(tmp_path / "gone")) == "No such file or directory"


def test_no_worker_is_started_by_a_program_that_others_may_change(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path / "python3", tmp_path / "was-run")
    python.chmod(0o707)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(PermissionError, match="anyone can change it"):
        hook.start_worker(str(lab.data))
    monkeypatch.setattr(process, "PYTHON_COMMAND", (str(python), "-I", "-S"))
    with pytest.raises(OperationFailed, match="anyone can change it"):
        process.ensure_worker(lab.data)
    assert not (tmp_path / "was-run").exists()


def test_doctor_names_a_launcher_that_others_may_change_and_a_plugin_without_one(lab: Lab) -> None:
    settings = lab.folder / "home" / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"enabledPlugins": {claude.PLUGIN_NAME: True}}))
    launcher = process.write_launcher(lab.data)
    launcher.chmod(0o777)
    said = lab.mem("doctor", ok=False).stdout
    fixed = lab.folder / "home" / ".claude-mem" / process.LAUNCHER
    assert f"hooks run {launcher}, but anyone can change it" in said
    assert f"the plugin runs {fixed}, which does not exist" in said
    launcher.chmod(0o700)
    fixed.parent.mkdir()
    fixed.write_text("#!/bin/sh\n")
    said = lab.mem("doctor", ok=False).stdout
    assert "anyone can change it" not in said
    assert f"the plugin runs {fixed}, which uses another data directory" in said


# --- the plugin ------------------------------------------------------------------------------------------------------


def _plugin_commands() -> list[str]:
    hooks = json.loads((claude.PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    servers = json.loads((claude.PLUGIN / ".mcp.json").read_text())["mcpServers"]
    lines = [entry["hooks"][0]["command"] for entries in hooks.values() for entry in entries]
    return [*lines, *(server["args"][-1] for server in servers.values())]


@pytest.mark.parametrize("named", [".cm", "{folder}/.cm", "../work/.cm"])
@pytest.mark.parametrize("line", _plugin_commands())
def test_no_variable_names_what_the_plugin_runs(tmp_path: Path, line: str, named: str) -> None:
    work = tmp_path / "work"
    for name in (".cm/claude-mem-hook", "claude-mem-hook", ".claude-mem/claude-mem-hook"):
        program(work / name, tmp_path / "was-run")
    env = {"HOME": str(tmp_path / "home"), "CLAUDE_MEM_DATA_DIR": named.format(folder=work), "PATH": f"{work}:/bin"}
    subprocess.run(["/bin/sh", "-c", line], input=b"{}", env=env, cwd=work, capture_output=True, check=False)
    assert not (tmp_path / "was-run").exists()
    own = program(tmp_path / "home" / ".claude-mem" / "claude-mem-hook", tmp_path / "own-run")
    subprocess.run(["/bin/sh", "-c", line], input=b"{}", env=env, cwd=work, capture_output=True, check=False)
    assert (tmp_path / "own-run").exists(), own
    _record("commands of the plugin with a variable that names another program: it is not run")


@as_root
@pytest.mark.parametrize("line", _plugin_commands()[:2])
def test_the_plugin_runs_no_program_of_another_user(tmp_path: Path, line: str) -> None:
    theirs = program(tmp_path / ".claude-mem" / "claude-mem-hook", tmp_path / "was-run")
    theirs.chmod(0o755)
    os.chown(theirs, SOMEONE, -1)
    env = {"HOME": str(tmp_path), "PATH": "/bin"}
    subprocess.run(["/bin/sh", "-c", line], input=b"{}", env=env, capture_output=True, check=False)
    assert not (tmp_path / "was-run").exists()


def test_a_start_lets_the_plugin_use_another_folder_and_uninstall_takes_that_back(lab: Lab) -> None:
    home = lab.folder / "home"
    lab.mem("start")
    fixed = home / ".claude-mem" / process.LAUNCHER
    assert fixed.stat().st_mode & 0o777 == 0o700
    assert fixed.parent.stat().st_mode & 0o777 == 0o700
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run([str(fixed), "save", "plugin"], input=EVENT, env=env, capture_output=True, check=True)
    lab.wait_digested()
    assert lab.status()["captured"] == 1
    assert [path.name for path in fixed.parent.iterdir()] == [process.LAUNCHER], "all else is in the folder it names"
    lab.mem("uninstall", "--yes")
    assert not fixed.parent.exists()


def test_another_installations_launcher_is_left_alone(lab: Lab) -> None:
    fixed = lab.folder / "home" / ".claude-mem" / process.LAUNCHER
    fixed.parent.mkdir(parents=True)
    for text in ("#!/bin/sh\n", "'", f"#!/bin/sh\nexec python3 -I -S /x/launch.py save {lab.folder}/other\n"):
        fixed.write_text(text)
        lab.mem("start")
        lab.mem("stop")
        assert fixed.read_text() == text
    lab.mem("uninstall", "--yes")
    assert fixed.read_text() == text


def test_the_plugins_launcher_is_brought_up_to_date(lab: Lab) -> None:
    lab.mem("start")
    lab.mem("stop")
    fixed = lab.folder / "home" / ".claude-mem" / process.LAUNCHER
    current = fixed.read_text()
    fixed.write_text(current.replace(sys.executable, "/gone/python3"))
    lab.mem("status")
    lab.start()
    assert fixed.read_text() == current


def test_a_home_folder_that_can_not_be_written_to_keeps_nothing_from_starting(lab: Lab) -> None:
    home = lab.folder / "no-folder"
    home.write_text("")
    lab.mem("start", HOME=str(home))
    assert process.running_worker(lab.data)
