"""No prompt destroys or sends anything on Enter, at the end of input, or when nobody can answer."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import select
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import claude_mem.cli
from claude_mem.cli import output
from claude_mem.digest.models import offers
from tests.models.server import Say, Server
from tests.support.lab import MEM, Lab
from tests.support.refining import GOOD, spool_turn
from tests.support.waiting import wait_for
from tests.worker.test_backfill import Old
from tests.worker.test_cost import settings as model_settings

SECONDS = 60.0
ENTER, END = b"\n", b"\x04"
MOST_ANSWERS = 8  # then the end of input: a prompt that asks again must not go on for ever
PROMPT = re.compile(rb"\[(?:Y/n|y/N|\d+)\] ")
SECRET = "ghp_" + "q7Rz2Lm9" * 4 + "Wt4x"


# --- a person at a terminal ------------------------------------------------------------------------------------------


def converse(
    lab: Lab, words: Sequence[str], answers: Sequence[bytes], *, typed: bytes = b"", env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run a command on a terminal, answer its prompts one by one, the last answer again and again: exit code, screen."""
    ours, theirs = os.openpty()
    running = subprocess.Popen(
        [*MEM, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env or person(lab), cwd=lab.project
    )
    os.close(theirs)
    shown, answered, deadline = b"", 0, time.monotonic() + SECONDS
    os.write(ours, typed)
    try:
        while chunk := _read(ours, deadline):
            shown += chunk
            while len(PROMPT.findall(shown)) > answered:
                os.write(ours, answers[min(answered, len(answers) - 1)] if answered < MOST_ANSWERS else END)
                answered += 1
        return running.wait(timeout=10), shown.decode("utf-8", "replace").replace("\r\n", "\n")
    finally:
        running.kill()
        running.wait()
        os.close(ours)


def _read(terminal: int, deadline: float) -> bytes:
    ready = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))[0]
    assert ready, "the command waits for something nobody has asked for"
    with contextlib.suppress(OSError):  # how a terminal says that nobody is left
        return os.read(terminal, 1 << 16)
    return b""


def unheard(lab: Lab, words: Sequence[str], *, env: dict[str, str] | None = None) -> tuple[int, str]:
    """The same with stdin closed."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *MEM, *words],
        env=env or person(lab), cwd=lab.project, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def person(lab: Lab, **more: str) -> dict[str, str]:
    """The environment of a new user: no provider is set by it."""
    env = lab.env(TERM="xterm", COLUMNS="160", **more)
    del env["CLAUDE_MEM_PROVIDER"]
    return env


# --- a memory, and every prompt about it -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two projects, a backup, a secret of old. No case may change any of it."""
    lab = Lab(tmp_path_factory.mktemp("prompts"))
    try:
        fill(lab)
        yield lab
    finally:
        lab.close()


@pytest.fixture(scope="module")
def before(memory: Lab) -> dict[str, Any]:
    return content(memory)


def fill(lab: Lab) -> None:
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    spool_turn(lab, "s1", prompt=f"Fix the basket totals, the token is {SECRET}")
    assert lab.drain(CLAUDE_MEM_REDACT_SECRETS="false") == 0
    client = lab.start()
    wait_for(lambda: (found := client.get("/api/health"))["captured"] and not found["queued"])
    client.post("/api/memory/save", {"text": "Deploys run on Fridays only.", "project": "ops"})
    lab.mem("backup")
    broken = lab.folder / "broken.py"
    broken.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text('title = \"')\n")


def content(lab: Lab) -> dict[str, Any]:
    """Everything that could be lost."""
    with contextlib.suppress(FileNotFoundError):
        (lab.data / "worker.starting").unlink()  # it was stopped on purpose
    lab.start()
    return {
        "memories": lab.mem("export", "-").stdout,
        "backups": {path.name: path.stat().st_size for path in (lab.data / "backups").glob("*.db")},
        "secret": SECRET in lab.mem("search", "token", "--json").stdout,
        "projects": [row["name"] for row in lab.client().get("/api/projects")["items"]],
    }


@dataclass
class Case:
    """A command, what it asks at the point of interest, and the answers that lead there."""

    words: tuple[str, ...]
    asks: str
    before: tuple[bytes, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


YES, NO = b"y\n", b"n\n"
CASES = {
    "install": Case(("install", "--host", "claude"), "Change these files? [Y/n]"),
    "uninstall": Case(("uninstall",), "stop the worker? [Y/n]"),
    "uninstall, memories": Case(("uninstall",), "Delete this data, too? [y/N]", (YES,)),
    "uninstall, export": Case(("uninstall",), "first? [Y/n]", (YES, YES)),
    "uninstall, last question": Case(("uninstall",), "Permanently delete", (YES, YES, NO)),
    "uninstall with data": Case(("uninstall", "--delete-data"), "stop the worker? [Y/n]"),
    "uninstall with data, last question": Case(("uninstall", "--delete-data"), "Permanently delete", (YES, NO)),
    "forget": Case(("forget", "1"), "Forget it? (undo within 30 days) [y/N]"),
    "erase": Case(("forget", "1", "--now"), "Erase it permanently? [y/N]"),
    "forget a project": Case(("forget", "--project", "shop"), "Forget all of this? (undo within 30 days) [y/N]"),
    "erase a text": Case(("forget", "--matching", "basket", "--now"), "Erase all of this permanently? [y/N]"),
    "restore": Case(
        ("restore", "BACKUP"), "Replace the current memory by this backup? (the current one is kept) [y/N]"
    ),
    "scrub": Case(("scrub",), "Redact the secrets in these records? (can't be undone) [y/N]"),
    "merge projects": Case(("project", "merge", "shop", "ops"), "Merge the projects? (can't be undone) [y/N]"),
    "edit": Case(("edit", "1"), "Edit it again? [Y/n]", env={"EDITOR": "BROKEN"}),
}


@pytest.mark.parametrize("key", ["enter", "end of input", "closed"])
@pytest.mark.parametrize("name", CASES)
def test_no_prompt_destroys_anything_by_default(memory: Lab, before: dict[str, Any], name: str, key: str) -> None:
    case = CASES[name]
    (backup,) = before["backups"]
    words = [backup if word == "BACKUP" else word for word in case.words]
    broken = f"{sys.executable} {memory.folder / 'broken.py'}"
    env = person(memory, **{name: broken if text == "BROKEN" else text for name, text in case.env.items()})
    if "install" in case.words:  # as a new user meets it
        memory.mem("uninstall", "--yes")
        (memory.data / "config.toml").unlink(missing_ok=True)
    if key == "closed":
        _, shown = unheard(memory, words, env=env)
        assert "Traceback" not in shown
    else:
        _, shown = converse(memory, words, [*case.before, ENTER if key == "enter" else END], env=env)
        assert case.asks in shown, shown
    assert content(memory) == before


@pytest.mark.parametrize(("key", "prompts"), [(ENTER, ["Paint the shed green"]), (END, [])])
def test_old_sessions_are_read_on_enter_and_not_at_the_end_of_input(lab: Lab, key: bytes, prompts: list[str]) -> None:
    folder = lab.folder / "home" / ".claude" / "projects" / "-shop"
    folder.mkdir(parents=True)
    old = Old(folder / "11111111-1111-1111-1111-111111111111.jsonl", "old-1", lab.project)
    old.prompt("Paint the shed green", "")
    old.say("The shed is green.")
    _, shown = converse(lab, ("install", "--host", "claude"), [YES, key], env=lab.env())
    assert "of these agents? [Y/n]" in shown
    assert [row["text"] for row in lab.client().get("/api/prompts")["items"]] == prompts


def test_a_key_is_not_overwritten_with_nothing(memory: Lab) -> None:
    memory.mem("config", "set", "anthropic_api_key", "key-of-the-test")
    words = ("config", "set", "anthropic_api_key", "-")
    for typed in (END, ENTER + END):
        code, shown = converse(memory, words, [END], typed=typed)
        assert (code, "was not changed" in shown) == (2, True)
    assert unheard(memory, words)[0] == 2
    assert memory.mem("config", "get", "anthropic_api_key").stdout == "(set, not shown)\n"
    memory.mem("config", "unset", "anthropic_api_key")


# --- whether a model may write the memories --------------------------------------------------------------------------

QUESTION = "Let Claude write the memories? About 5,000 tokens a turn on your plan, at most 300,000 a day. [Y/n]"
LOGGED_IN = '{"loggedIn": true, "authMethod": "claude.ai", "subscriptionType": "max", "email": "ann@example.org"}'


def put_claude(lab: Lab, status: str = LOGGED_IN, place: str = "home/.local/bin") -> Path:
    """A `claude` that says this of its login, and notes whatever it was run for."""
    path = lab.folder / place / "claude"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho \"$*\" >> {lab.folder}/claude-was-run\necho '{status}'\n")
    path.chmod(0o700)
    return path


def settings_of(lab: Lab) -> str:
    path = lab.data / "config.toml"
    return path.read_text() if path.exists() else ""


def install_as(lab: Lab, *answers: bytes, **env: str) -> str:
    """What `install` shows; the first question is about the agent's files."""
    (lab.folder / "home" / ".claude").mkdir(parents=True, exist_ok=True)
    return converse(lab, ("install", "--host", "claude"), [YES, *answers], env=person(lab, **env))[1]


@pytest.mark.parametrize("answer", [ENTER, YES])
def test_a_plan_is_used_after_a_yes_and_asked_for_once(lab: Lab, answer: bytes) -> None:
    program = put_claude(lab)
    shown = install_as(lab, answer)
    assert QUESTION in shown
    assert "ann@example.org" not in shown, "whose login it is, is nobody's business here"
    assert settings_of(lab) == f'provider = "claude"\nclaude_path = "{program}"\n'
    assert (lab.folder / "claude-was-run").read_text() == "auth status\n", "no model was asked"
    assert QUESTION not in install_as(lab, ENTER)


@pytest.mark.parametrize(
    ("answer", "kept"), [(NO, 'provider = "local"\n'), (b"x\n", 'provider = "local"\n'), (END, "")]
)
def test_any_other_answer_leaves_the_rules(lab: Lab, answer: bytes, kept: str) -> None:
    put_claude(lab)
    assert QUESTION in install_as(lab, answer)
    assert settings_of(lab) == kept


def test_keys_typed_before_the_question_are_no_answer(lab: Lab) -> None:
    put_claude(lab)
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    words = ("install", "--host", "claude")
    _, shown = converse(lab, words, [END], typed=b"y\n\n\n\n", env=person(lab))
    assert QUESTION in shown
    assert settings_of(lab) == ""


@pytest.mark.parametrize("words", [("--yes",), ()], ids=["yes", "closed stdin"])
def test_without_a_person_nothing_is_spent(lab: Lab, words: tuple[str, ...]) -> None:
    put_claude(lab)
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    _, shown = unheard(lab, ("install", "--host", "claude", *words))
    assert "write the memories" not in shown
    assert settings_of(lab) == ""
    assert not (lab.folder / "claude-was-run").exists()


def test_a_question_that_nobody_sees_is_not_asked(lab: Lab) -> None:
    put_claude(lab)
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    ours, theirs = os.openpty()
    os.write(ours, b"y\n\n\n")
    command = [*MEM, "install", "--host", "claude"]
    done = subprocess.run(
        command, stdin=theirs, capture_output=True, text=True, env=person(lab), timeout=SECONDS, check=False
    )
    os.close(theirs)
    os.close(ours)
    assert "connected" in done.stdout
    assert "write the memories" not in done.stderr
    assert settings_of(lab) == ""


@pytest.mark.parametrize(
    "status",
    ['{"loggedIn": false}', '{"loggedIn": true, "authMethod": "api_key"}', "hello", ""],
    ids=["logged out", "billed by the request", "nonsense", "nothing"],
)
def test_without_a_plan_nothing_is_asked(lab: Lab, status: str) -> None:
    put_claude(lab, status)
    assert "write the memories" not in install_as(lab, ENTER)
    assert settings_of(lab) == ""


def test_a_claude_inside_the_project_is_not_even_run(lab: Lab) -> None:
    program = put_claude(lab, place=f"{lab.project.name}/node_modules/.bin")
    assert program.is_relative_to(lab.project)
    shown = install_as(lab, ENTER, PATH=f"{program.parent}:./node_modules/.bin:{os.environ['PATH']}")
    assert "write the memories" not in shown
    assert not (lab.folder / "claude-was-run").exists()


def test_a_claude_on_the_terminals_path_is_recorded(lab: Lab) -> None:
    program = put_claude(lab, place="tools")
    assert QUESTION in install_as(lab, ENTER, PATH=f"{program.parent}:{os.environ['PATH']}")
    assert f'claude_path = "{program}"' in settings_of(lab)


OLLAMA = {
    "models": [
        {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert", "parameter_size": "137M"}},
        {"name": "tiny:latest", "details": {"family": "llama", "parameter_size": "1.2B"}},
        {"name": "qwen3:8b", "details": {"family": "qwen3", "parameter_size": "8.2B"}},
        {"name": "llama3.1:70b", "details": {"family": "llama", "parameter_size": "70.6B"}},
        {"name": "qwen3:32b", "details": {"family": "qwen3", "parameter_size": "32.8B"}},
        {"name": "somewhere:14b", "remote_host": "https://ollama.com", "details": {"parameter_size": "14.8B"}},
        {"name": "gpt-oss:14b-cloud", "details": {"family": "gptoss", "parameter_size": "14.8B"}},
        {"name": "qwen3-embedding:8b", "details": {"family": "qwen3", "parameter_size": "8.9B"}},
    ]
}


@pytest.mark.parametrize(("answer", "kept"), [(ENTER, 'provider = "ollama:qwen3:8b"\n'), (NO, 'provider = "local"\n')])
def test_a_running_ollama_with_a_fitting_model_is_offered(lab: Lab, answer: bytes, kept: str) -> None:
    with listening(OLLAMA) as address:
        shown = install_as(lab, answer, CLAUDE_MEM_OPENAI_BASE_URL=f"{address}/v1")
    assert "Let qwen3:8b in your Ollama write the memories?" in shown
    assert settings_of(lab) == kept


@pytest.mark.parametrize("models", [{"models": []}, {"models": OLLAMA["models"][:2]}, {"models": 1}, []])
def test_an_ollama_without_a_fitting_model_is_not(lab: Lab, models: Any) -> None:
    with listening(models) as address:
        assert "write the memories" not in install_as(lab, ENTER, CLAUDE_MEM_OPENAI_BASE_URL=f"{address}/v1")
    assert settings_of(lab) == ""


@contextlib.contextmanager
def listening(models: Any) -> Iterator[str]:
    """A server that has these models, as Ollama lists them."""

    class Tags(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(models).encode() if self.path == "/api/tags" else b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Tags)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_question_says_what_was_measured() -> None:
    """`bench/spending.py` counts what a turn takes at most; the question rounds it."""
    results = json.loads((Path(__file__).parents[2] / "bench" / "results" / "spending.json").read_text())
    figures = {figure["name"]: figure["value"] for figure in results["figures"]}
    sent = figures["the same at 4 bytes a token"] / figures["requests for 100 tool events in 5 turns"]
    assert sent <= offers.TURN_TOKENS <= figures["largest request, answer included"]


@pytest.mark.parametrize("key", [ENTER, END])
def test_nothing_is_sent_to_a_model_by_default(lab: Lab, key: bytes) -> None:
    old = Old(lab.folder / "one.jsonl", "old-1", lab.project)
    old.prompt("Add a voucher field", "")
    old.call("v1", "Write", file_path=str(lab.project / "voucher.py"), content="class Voucher: ...")
    old.say("Vouchers are a module of their own now, with one class.")
    with Server(Say(GOOD)) as server:
        env = lab.env(TERM="xterm", **model_settings(server))
        lab.start(**model_settings(server))
        _, shown = converse(lab, ("backfill", str(old.path), "--refine"), [key], env=env)
        assert "Send them to the model? [y/N]" in shown
        assert "nothing was sent" in shown
        assert server.asked == []


# --- uninstall -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(lab: Lab) -> Lab:
    """A memory that may go: one turn, one note, one backup. No worker runs."""
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    spool_turn(lab)
    client = lab.start()
    wait_for(lambda: (found := client.get("/api/health"))["captured"] and not found["queued"])
    client.post("/api/memory/save", {"text": "Deploys run on Fridays only.", "project": "ops"})
    lab.mem("backup")
    lab.mem("stop")
    return lab


def exports(lab: Lab) -> list[Path]:
    return sorted((lab.folder / "home").glob("*.jsonl"))


@pytest.mark.parametrize("running", [True, False])
def test_uninstall_says_how_much_would_go(own: Lab, running: bool) -> None:
    if running:
        own.start()
    stats = own.start().get("/api/stats")["database"] if running else counted(own)
    _, shown = converse(own, ("uninstall",), [ENTER])
    assert f"contains {stats['observations']} observations, {stats['sdk_sessions']} session" in shown
    assert "and 1 backup\n" in shown
    assert stats["observations"] > 1


def counted(lab: Lab) -> dict[str, int]:
    (row,) = lab.rows(
        "select (select count(*) from observations where not forgotten), (select count(*) from sdk_sessions)"
    )
    return dict(zip(("observations", "sdk_sessions"), row, strict=True))


def test_uninstall_counts_what_is_not_processed_yet_and_a_database_nobody_can_read(own: Lab) -> None:
    spool_turn(own, "s2")
    (own.data / "claude-mem.db").write_bytes(b"no database at all" * 1000)
    _, shown = converse(own, ("uninstall",), [ENTER])
    assert "an unknown number of memories" in shown
    assert "5 unprocessed events and 1 backup" in shown


def test_memories_are_exported_and_deleted_after_an_explicit_yes(own: Lab) -> None:
    told = own.mem("export", "-").stdout
    code, shown = converse(own, ("uninstall",), [YES, YES, ENTER, YES])
    assert code == 0
    (path,) = exports(own)
    assert str(path) in shown
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == told
    assert not own.data.exists()


def test_an_export_that_fails_means_that_nothing_is_deleted(own: Lab) -> None:
    env = person(own, HOME="/proc/nowhere")
    code, shown = converse(own, ("uninstall",), [YES, YES, ENTER, YES], env=env)
    assert code == 1
    assert "the export failed, so nothing was deleted" in shown
    assert counted(own)["observations"] > 1


def test_an_earlier_export_is_not_replaced(own: Lab) -> None:
    for _ in range(2):
        converse(own, ("uninstall",), [YES, YES, ENTER, NO])
        (own.data / "worker.starting").unlink(missing_ok=True)
    assert len(exports(own)) == 2


def test_deleting_without_asking_takes_both_words(own: Lab) -> None:
    assert own.mem("uninstall", "--delete-data", ok=False).returncode == 1
    assert counted(own)["observations"] > 1
    own.mem("uninstall", "--yes")
    assert counted(own)["observations"] > 1
    own.mem("uninstall", "--delete-data", "--yes")
    assert not own.data.exists()


def test_an_empty_memory_is_not_exported(lab: Lab) -> None:
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    _, shown = converse(lab, ("uninstall",), [YES, YES, YES])
    assert "contains no memories" in shown
    assert "export" not in shown
    assert exports(lab) == []


# --- the questions themselves ----------------------------------------------------------------------------------------


class Typed:
    """A terminal on which these lines are typed."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.lines.pop(0) if self.lines else ""


@pytest.mark.parametrize(
    ("line", "default", "answer"),
    [
        ("\n", True, True), ("\n", False, False), ("", True, False), ("", False, False), ("  ", True, False),
        ("y\n", False, True), ("YES\n", False, True), ("y", False, True), ("n\n", True, False), ("maybe\n", True, False),
    ],
)  # fmt: skip
def test_an_answer_is_yes_or_the_default_of_an_empty_line(
    monkeypatch: pytest.MonkeyPatch, line: str, default: bool, answer: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Typed(line))
    assert output.ask("well?", default=default) is answer


def test_a_question_defaults_to_no_and_a_closed_stdin_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Typed("\n"))
    assert output.ask("well?") is False
    monkeypatch.setattr("sys.stdin", None)
    assert output.ask("well?", default=True) is False


# What an empty line may agree to: each can be undone, and none sends anything.
HARMLESS = {
    "Change these files?",
    "Import {} of these agents?",
    "Remove claude-mem from every agent and stop the worker?",
    "Export the memories to {} first?",
    "Edit it again?",
}


def test_only_harmless_questions_default_to_yes() -> None:
    """A new question that does is decided here, and tried above."""
    found = {_text(call, tree) for tree, call in _calls("ask") if _defaults_to_yes(call)}
    assert found == HARMLESS


def test_only_the_module_that_asks_reads_lines() -> None:
    readers = {"readline", "input", "getpass"}
    for path in sorted(Path(claude_mem.cli.__file__).parent.glob("*.py")):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        # `transfer` reads a file's first line
        allowed = {"output.py": {"readline", "getpass"}, "transfer.py": {"readline"}}.get(path.name, set())
        assert names & readers <= allowed, path.name


def _calls(name: str) -> Iterator[tuple[ast.Module, ast.Call]]:
    for path in sorted(Path(claude_mem.cli.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                yield tree, node


def _defaults_to_yes(call: ast.Call) -> bool:
    return any(word.arg == "default" and ast.unparse(word.value) != "False" for word in call.keywords)


def _text(call: ast.Call, tree: ast.Module) -> str:
    """The question as it is written; if it has a name, what was put under that name before."""
    asked: ast.expr = call.args[0]
    if isinstance(asked, ast.Name):
        lines = {node.lineno: node.value for node in ast.walk(tree)
                 if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == asked.id}  # fmt: skip
        asked = lines[max(line for line in lines if line < call.lineno)]
    if isinstance(asked, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in asked.values)
    assert isinstance(asked, ast.Constant)
    return str(asked.value)
