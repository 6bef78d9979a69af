"""Paths that come from outside lead nowhere they should not: what lies in another file is neither told nor kept.

A path may come in by a route, in a hook's payload, as the name of a mode or of a project. Whoever holds the token may
name any file for an import or a back-fill; then only what has the form of one is taken.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

import claude_mem
from claude_mem.config import Config
from claude_mem.digest import modes
from claude_mem.worker.app import Service
from claude_mem.worker.http import api
from tests.support import proof
from tests.support.lab import Lab
from tests.worker.test_reconcile import Transcript
from tests.worker.test_schema import PORT, TOKEN, _ask

CANARY = "kanarie5a17"
SOURCE = Path(claude_mem.__file__).parent


@dataclass(frozen=True)
class Outside:
    """A folder with what is nobody's business, and one beside it from which all ways begin."""

    folder: Path
    base: Path

    def targets(self) -> list[Path]:
        return sorted(self.folder.iterdir())


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    folder, base = tmp_path / "outside", tmp_path / "inside" / "base"
    folder.mkdir()
    base.mkdir(parents=True)
    line = json.dumps({"text": CANARY, "user": CANARY, "key": CANARY})
    held = {
        "secret.txt": f"password {CANARY}\n", "secret.json": line, "secret.jsonl": f"{line}\n{line}\n", "id_rsa": CANARY,
        "secret.toml": f'description = "{CANARY}"\n{CANARY} = 1\n',
    }  # fmt: skip
    for name, text in held.items():
        (folder / name).write_text(text)
    return Outside(folder, base)


def ways(there: Outside) -> list[str]:
    """Two hundred ways from the one to the other, by signs that someone might forget, and by links."""
    found = list(dict.fromkeys(way for target in there.targets() for way in _ways(there, target)))
    return found if proof.long() else found[::9]


def _ways(there: Outside, target: Path) -> Iterator[str]:
    near, whole = f"../../outside/{target.name}", str(target)
    for dots in (
        "../",
        "..%2f",
        "%2e%2e/",
        "%2e%2e%2f",
        "..%252f",
        "..\\",
        "....//",
        "..;/",
        "%c0%ae%c0%ae/",
        "．．/",
        "‥/",
        ".%00./",
        "..%5c",
    ):
        yield near.replace("../", dots)
        yield "app.js/" + dots * 3 + f"outside/{target.name}"
        yield "../" * 20 + whole.lstrip("/") if dots == "../" else dots * 12 + whole.lstrip("/")
    yield from (
        whole,
        f"/{whole}",
        f"//{whole}",
        f"file://{whole}",
        f"file:{whole}",
        f"/.{whole}",
        f"/proc/self/root{whole}",
    )
    yield from (
        f"{whole}\0.js",
        f"{whole}%00.js",
        f"{whole}?.js",
        f"{whole}#.js",
        f"{whole}.",
        f"{whole} ",
        f"{whole}/",
        f"{whole}/.",
    )
    yield from (f"{there.base}/{near}", f"{there.base}/./../base/{near}", f"~/../..{whole}", f"$HOME/../..{whole}")
    link, far, folder = (there.base / f"{kind}-{target.name}" for kind in ("link", "far", "folder"))
    for path, to in ((link, target), (far, link), (folder, there.folder)):
        if not path.is_symlink():
            path.symlink_to(to)
    yield from (str(link), str(far), f"{folder}/{target.name}", link.name, far.name, f"{folder.name}/{target.name}")


def told(answers: list[bytes]) -> int:
    return sum(CANARY.encode() in answer for answer in answers)


def kept(folder: Path) -> int:
    """In how many of our files it lies."""
    return sum(CANARY.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def note(door: str, escaped: int, tried: int) -> None:
    goal = "0 of 200"
    proof.record(
        f"ways out by {door}", of="S9", goal=goal, measured=escaped, ok=not escaped and tried >= 200, unit=f"of {tried}"
    )
    assert escaped == 0
    assert tried >= (200 if proof.long() else 5)


def test_the_ways_do_lead_there(outside: Outside) -> None:
    found = ways(outside)
    assert len(found) >= (200 if proof.long() else 20)
    assert sum("\0" not in way and os.path.isfile(os.path.join(outside.base, way)) for way in found) >= len(found) // 5


def test_the_viewers_files_lead_nowhere_else(config: Config, outside: Outside) -> None:
    async def ask() -> tuple[list[bytes], set[int]]:
        service = Service(config)
        app = api.build_app(service, token=TOKEN, port=PORT)
        try:
            tried = [*ways(outside), *(os.path.relpath(path, SOURCE / "data" / "viewer") for path in outside.targets())]
            asked = [
                await _ask(app, "GET", f"/static/{way if coded else quote(way)}", b"")
                for way in tried
                for coded in (0, 1)
            ]
        finally:
            service.close()
        return [body for _, body in asked], {status for status, _ in asked}

    answers, statuses = asyncio.run(ask())
    assert 200 not in statuses
    note("the viewer's files", told(answers), len(answers))


def test_what_an_import_or_a_back_fill_is_not_is_neither_told_nor_kept(config: Config, outside: Outside) -> None:
    async def ask() -> list[bytes]:
        service = Service(config)
        app = api.build_app(service, token=TOKEN, port=PORT)
        answers = []
        try:
            for way in ways(outside):
                for route in ("/api/import", "/api/backfill"):
                    answers.append((await _ask(app, "POST", route, json.dumps({"path": way}).encode()))[1])
            answers.append(
                (
                    await _ask(
                        app,
                        "POST",
                        "/api/backfill",
                        json.dumps({"paths": [w for w in ways(outside) if w[0] == "/"]}).encode(),
                    )
                )[1]
            )
            await service.run_until_idle()
            for path in (
                "/api/backfill",
                "/api/jobs",
                "/api/observations",
                "/api/sessions",
                "/api/logs",
                "/api/health",
                "/api/import/1",
            ):
                answers.append((await _ask(app, "GET", path, b""))[1])
        finally:
            service.close()
        return answers

    answers = asyncio.run(ask())
    note("an import or a back-fill", told(answers) + kept(config.data_dir), len(answers))


def test_a_transcript_that_is_none_is_not_kept(lab: Lab, outside: Outside) -> None:
    found = ways(outside)[:: 1 if proof.long() else 5]
    for number, way in enumerate(found):
        said = {"session_id": f"s{number}", "transcript_path": way, "prompt_id": "p"}
        lab.spool("UserPromptSubmit", prompt="Go", **said)
        lab.spool("SessionEnd", reason="other", **said)
    talk = Transcript(outside.folder / "talk.jsonl")
    talk.prompt("this one is a transcript", "p2")
    lab.spool("UserPromptSubmit", prompt="Go", session_id="real", transcript_path=str(talk.path), prompt_id="p1")
    lab.spool("SessionEnd", reason="other", session_id="real", transcript_path=str(talk.path))
    lab.mem("drain")
    assert lab.status()["stored"] >= len(found)
    assert lab.rows("select count(*) from user_prompts where text = 'this one is a transcript'") == [(1,)]
    note("a transcript's path", kept(lab.data), len(found))


def test_the_name_of_a_mode_is_no_path(tmp_path: Path, outside: Outside) -> None:
    (outside.folder / "evil.toml").write_text(
        (modes.BUILTIN_MODES / "code.toml").read_text().replace('description = "', f'description = "{CANARY}')
    )
    found = ways(outside)
    (tmp_path / "modes").mkdir()
    loaded = [
        modes.load_mode_lenient(name, tmp_path / "modes") for way in found for name in (way, way.removesuffix(".toml"))
    ]
    assert all(problem is not None for _, problem in loaded)
    note(
        "the name of a mode",
        sum(CANARY in f"{mode} {problem} {problem and problem.hint}" for mode, problem in loaded),
        len(loaded),
    )


def test_what_a_project_says_of_itself_brings_no_other_file_in(lab: Lab, outside: Outside) -> None:
    """`.claude-mem.toml` and `.git` may be links, or name another place."""
    tried = 0
    for number, way in enumerate(ways(outside)):
        folder = lab.folder / "projects" / str(number)
        folder.mkdir(parents=True)
        whole = way.replace("\0", "")
        if number % 2:
            (folder / ".git").write_text(f"gitdir: {whole}\n")
        else:
            (folder / ".claude-mem.toml").symlink_to(whole)
        lab.spool("UserPromptSubmit", session_id=f"s{number}", prompt="Go", cwd=str(folder))
        lab.spool("Stop", session_id=f"s{number}", cwd=str(folder), last_assistant_message="Done.")
        tried += 1
    lab.mem("drain")
    assert lab.status()["queued"] == 0
    note("a project's own files", kept(lab.data), tried)


# --- calls that nobody may make --------------------------------------------------------------------------------------

FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execl", "os.execv", "os.execvp", "os.spawnl", "yaml.load",
    "yaml.unsafe_load", "marshal.loads", "marshal.load", "tempfile.mktemp", "input", "breakpoint",
    "asyncio.create_subprocess_shell", "subprocess.getoutput", "subprocess.getstatusoutput", "ssl._create_unverified_context",
}  # fmt: skip
MODULES = {"pickle", "cPickle", "dill", "shelve", "marshal", "yaml", "jsonpickle", "joblib"}


def forbidden(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield from FORBIDDEN & {_called(node.func)}
            yield from ("shell=" for word in node.keywords if word.arg == "shell")
            yield from (
                "verify=" for word in node.keywords if word.arg == "verify" and ast.unparse(word.value) == "False"
            )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            yield from (name for name in names if name.partition(".")[0] in MODULES)


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_no_forbidden_call_is_made() -> None:
    bad = (
        "eval('1')",
        "import pickle",
        "subprocess.run('x', shell=True)",
        "from yaml import load",
        "httpx.get(u, verify=False)",
    )
    assert all(list(forbidden(text)) for text in bad)
    files = [*SOURCE.rglob("*.py")]
    found = [f"{path.relative_to(SOURCE)}: {name}" for path in files for name in forbidden(path.read_text("utf-8"))]
    proof.record("forbidden calls", of="S9", goal="0", measured=len(found), ok=not found, unit=f"in {len(files)} files")
    assert found == []


def test_no_tool_of_an_agent_opens_a_file() -> None:
    """What agents may ask for comes out of the database."""
    for name in (
        "worker/mcp.py",
        "worker/mcp.py",
        "worker/http/routes/observations.py",
        "worker/http/routes/context.py",
    ):
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse((SOURCE / name).read_text()))
            if isinstance(node, ast.Call)
        }
        opening = {
            call for call in calls if call.endswith(("open", "read_text", "read_bytes", "iterdir", "glob", "rglob"))
        }
        assert opening <= {"service.config.backups.glob"}, name  # counts backups, opens none


def test_the_checker_finds_nothing_but_what_is_said_to_be_fine() -> None:
    """`S` is among the rules. Which of them are ignored, and why, stands in pyproject.toml; for a single line, beside it."""
    words = [
        str(Path(sys.executable).with_name("ruff")),
        "check",
        "--no-cache",
        "--output-format",
        "json",
        "src",
    ]
    done = subprocess.run(words, cwd=SOURCE.parents[1], capture_output=True, text=True, check=False)
    found = [each for each in json.loads(done.stdout) if str(each["code"]).startswith("S")]
    lines = sum(
        "noqa: S" in line and "noqa: SIM" not in line
        for path in SOURCE.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
    )
    proof.record(
        "findings of ruff's security rules", of="S9", goal="0", measured=len(found), ok=not found,
        note=f"ignored: S101 and S603 everywhere, S608 in store/ (values are bound), S110 in the hook; {lines} single lines with a reason",
    )  # fmt: skip
    assert found == []
