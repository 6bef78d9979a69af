"""Install, use, uninstall: a home under git tells what is left. The real client changes files of its own, so a home in
which only the client ran is the measure."""

from pathlib import Path

import pytest

from .harness import Lab, find_client, open_lab
from .model_server import Text, Tool

found, reason = find_client()
if found is None:
    pytest.skip(reason, allow_module_level=True)
BINARY: Path = found

pytestmark = pytest.mark.client

SETTINGS = '{\n   "model": "opus",\n   "cleanupPeriodDays": 99\n}'


def use(lab: Lab) -> None:
    assert lab.claude("JOB-ONE: write it down").returncode == 0


def prepared(lab: Lab) -> None:
    """A home that has been in use: the client's own files, the user's own settings, all committed."""
    lab.server.play(
        "JOB-ONE",
        [Tool("Write", {"file_path": str(lab.project / "a.py"), "content": "A = 1\n"})],
        [Text("Written.")],
    )
    use(lab)
    lab.settings.parent.mkdir(exist_ok=True)
    lab.settings.write_text(SETTINGS)
    home_git(lab, "init", "--quiet", "--initial-branch=main")
    home_git(lab, "add", "--all", "--force")
    home_git(
        lab, "-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "--quiet", "--message", "as it is"
    )


def home_git(lab: Lab, *words: str) -> str:
    return lab.run(["git", "-C", str(lab.home), *words]).stdout


def changed(lab: Lab) -> set[str]:
    """The files that are not as they were; of those that have another name in every session, their folder."""
    lines = home_git(lab, "status", "--porcelain", "--untracked-files=all", "--ignored").splitlines()
    return {line[3:].partition("/-")[0] for line in lines}


def test_nothing_is_left_in_the_home(tmp_path: Path) -> None:
    with open_lab(tmp_path / "alone", binary=BINARY) as lab:
        prepared(lab)
        use(lab)
        alone = changed(lab)
    with open_lab(tmp_path / "with-us", binary=BINARY) as lab:
        prepared(lab)
        lab.mem("install", "--yes", "--host", "claude")
        assert ".claude/settings.json" in changed(lab)
        use(lab)
        lab.wait_digested()
        said = lab.mem("uninstall", "--yes", "--delete-data").stdout
        assert "agents still connected: none" in said
        assert "worker running: no" in said
        assert changed(lab) <= alone
        assert lab.settings.read_text() == SETTINGS
        assert not lab.data.exists()
        assert lab.processes() == {}
        left = [path for path in lab.home.rglob("*") if path.is_file() and b"claude-mem-hook" in path.read_bytes()]
        kept = [path for path in left if ".claude/projects" in str(path) or ".git/" in str(path)]
        assert left == kept  # the client's own record of what its hooks were
