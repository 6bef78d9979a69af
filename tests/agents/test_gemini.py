"""The real Gemini CLI, with our hooks as `claude-mem install` registers them, against a scripted model."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_mem.domain.text import single_line
from tests.agents.client.harness import Run
from tests.agents.client.model_server import (
    LONG_ANSWER,
    LONG_REMARK,
    REMARK,
    Hold,
    Json,
    Refuse,
    Reply,
    Request,
    Text,
    Tool,
)

from .gemini_lab import VERSION, GeminiLab, find_gemini, gemini_version, open_gemini_lab, session_of
from .gemini_server import read_file, shell

found, reason = find_gemini()
if found is None:
    pytest.skip(reason, allow_module_level=True)
SCRIPT: Path = found


SUBJECT = "Charge the flux capacitor before the jump"
FILE = "capacitor.py"
DONE = (Text(f"{FILE} is written, checked and committed, so that the jump can begin."),)
ERROR = "ChargeError: the capacitor holds 0.4 gigawatts"


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[GeminiLab]:
    with open_gemini_lab(tmp_path / "lab", script=SCRIPT) as lab:
        yield lab


@pytest.fixture
def lab(bare: GeminiLab) -> GeminiLab:
    bare.mem("install", "--yes", "--host", "gemini")
    return bare


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeminiLab]:
    """Connected, and one session is remembered; for tests that only add to it."""
    with open_gemini_lab(tmp_path_factory.mktemp("gemini") / "lab", script=SCRIPT) as lab:
        lab.mem("install", "--yes", "--host", "gemini")
        do_work(lab)
        yield lab
        status = lab.wait_digested()
        places = ("stored", "queued", "set_aside", "filtered")
        assert status["captured"] == sum(status[place] for place in places), status
        assert status["set_aside"] == 0, status


def healthy(run: Run) -> Run:
    assert run.returncode == 0, run.stderr
    said = [line for line in run.stderr.lower().splitlines() if "hook" in line]
    assert all(line.startswith("hook system message: claude-mem") for line in said), run.stderr
    return run


def work(lab: GeminiLab, *, last: Reply = DONE) -> list[Reply]:
    """Write a file, run a check that fails, mend it, see the check pass, commit."""
    (lab.project / "check.sh").write_text(f"test -f charged || {{ echo '{ERROR}'; exit 3; }}\n")
    module = {"file_path": str(lab.project / FILE), "content": "def charge():\n    return 1.21\n"}
    return [
        [Text("First the module."), Tool("write_file", module)],
        [shell("sh check.sh")],
        [shell("touch charged")],
        [shell("sh check.sh"), read_file("README.md")],
        [shell(f"git add --all && git commit --message '{SUBJECT}'")],
        last,
    ]


def do_work(lab: GeminiLab) -> Run:
    lab.server.play("JOB-ONE", *work(lab))
    run = healthy(lab.gemini("JOB-ONE: build the capacitor and commit it"))
    lab.wait_digested()
    return run


def ask(lab: GeminiLab, prompt: str = "JOB-ASK: what was done here?", *flags: str) -> Run:
    lab.server.play("JOB-ASK", [Text("I know.")])
    return healthy(lab.gemini(prompt, *flags))


def known(request: Request, text: str = SUBJECT) -> int:
    return sum(text in context for context in request.contexts)


def rows(lab: GeminiLab, path: str) -> list[Json]:
    listing = lab.api(f"{path}?limit=100")
    found = listing["items"] if isinstance(listing, dict) else listing
    assert isinstance(found, list)
    return found


def detail(lab: GeminiLab, session: str) -> Json:
    (row,) = [row for row in rows(lab, "/api/sessions") if row["content_session_id"] == session]
    assert row["host"] == "gemini"
    found = lab.api(f"/api/session/{row['id']}")
    assert isinstance(found, dict)
    return found


def tools(lab: GeminiLab, session: str) -> list[str]:
    """The stored tool calls in the order in which they came."""
    return [event["tool"] for event in detail(lab, session)["events"] if event["kind"] == "tool"]


DONE_TOOLS = ["Bash", "Bash", "Bash", "Bash", "Read", "Write"]


def test_the_program_is_the_pinned_version() -> None:
    assert gemini_version(SCRIPT) == VERSION


def test_a_session_is_captured(worked: GeminiLab) -> None:
    (prompt,) = [row for row in rows(worked, "/api/prompts") if "JOB-ONE" in row["text"]]
    assert prompt["text"] == "JOB-ONE: build the capacitor and commit it"
    session = rows(worked, "/api/sessions")[-1]["content_session_id"]
    about = detail(worked, session)
    assert sorted(tools(worked, session)) == DONE_TOOLS
    assert (about["status"], [turn["closed_by"] for turn in about["turns"]]) == ("completed", ["stop"])
    summary = rows(worked, "/api/summaries")[-1]
    assert FILE in json.dumps(summary["files_edited"])
    assert "First the module" not in json.dumps(summary)  # its last words, not all that it said
    (fix,) = [row for row in rows(worked, "/api/observations") if row["type"] == "bugfix"]
    assert "sh check.sh" in json.dumps(fix)
    assert worked.wait_digested()["filtered"] == 0


def test_the_last_message_is_stored_as_it_was_however_it_was_streamed(lab: GeminiLab) -> None:
    """Nothing is committed, so that the title comes from words. What the agent said on the way is no part of them."""
    module = {"file_path": str(lab.project / FILE), "content": "def charge():\n    return 1.21\n"}
    lab.server.play(
        "JOB-LONG",
        [Text(REMARK), read_file("README.md")],
        [Text(LONG_REMARK), Tool("write_file", module)],
        [shell("echo checked")],
        [Text(LONG_ANSWER)],
    )
    healthy(lab.gemini("JOB-LONG: charge the capacitor with all its decimals"))
    lab.wait_digested()
    titles = [row["title"] for row in rows(lab, "/api/observations")]
    assert titles
    assert not any(REMARK.rstrip(".") in title or "Now I change it" in title for title in titles)
    (summary,) = rows(lab, "/api/summaries")
    steps = "the gauge in `gauge.py` still prints whole gigawatts; it has to be changed to show two decimals."
    assert single_line("next_steps", summary["next_steps"]) == steps
    assert single_line("completed", summary["completed"]) in LONG_ANSWER.replace("\n\n", " ")
    ask(lab)
    assert "JOB-LONG: charge the capacitor with all its decimals" in lab.server.requests[-1].contexts[0]
    lab.wait_digested()
    assert lab.closing_messages()[:1] == [LONG_ANSWER]


def test_the_next_session_knows_and_has_our_tools(worked: GeminiLab) -> None:
    ask(worked)
    request = worked.server.requests[-1]
    assert known(request) == 1
    names = [tool["name"] for group in request.body["tools"] for tool in group["functionDeclarations"]]
    assert "mcp_claude-mem_search" in names
    assert "mem-search" in request.text


def test_a_prompt_is_answered_from_memory_once_and_stored_without_it(worked: GeminiLab) -> None:
    """What the start tells need not be told again, so it is given no room."""
    lesson = "The warp coil has to be degaussed before each jump"
    worked.mem("save", lesson)
    for number in range(6):
        worked.mem("save", f"Tomatoes of row {number} want water in the morning")
    (worked.data / "config.toml").write_text("context_observations = 1\n")
    worked.mem("restart")
    prompt = "JOB-ASK: what has to be done with the warp coil before each jump?"
    session = session_of(ask(worked, prompt))
    start, *at_prompt = worked.server.requests[-1].contexts
    assert lesson not in start
    assert sum(lesson in context for context in at_prompt) == 1, at_prompt
    again = "JOB-ASK: and why has the warp coil to be degaussed before each jump?"
    ask(worked, again, "-r", session)
    assert known(worked.server.requests[-1], lesson) <= 1  # the conversation has it; it is not said again
    worked.wait_digested()
    assert [row["text"] for row in rows(worked, "/api/prompts")][:2] == [again, prompt]
    (worked.data / "config.toml").unlink()
    worked.mem("restart")


def test_an_error_that_was_met_before_is_answered_with_what_solved_it(bare: GeminiLab) -> None:
    """The session began before the other did its work, so that its start can't have told it."""
    bare.mem("install", "--yes", "--host", "gemini")
    bare.server.play("JOB-WAIT", [Hold("work"), shell("rm charged; sh check.sh")], [Text("It failed.")])
    client = bare.start_gemini("JOB-WAIT: go")
    bare.server.wait_held("work")
    do_work(bare)
    bare.server.release("work")
    healthy(client.finish())
    told = bare.server.requests[-1].contexts
    assert sum("this error was met before" in context for context in told) == 1, told


def test_a_resumed_session_stays_one_and_nothing_is_doubled(lab: GeminiLab) -> None:
    session = session_of(do_work(lab))
    lab.server.play("JOB-TWO", [shell("echo two")], [Text("Two is done.")])
    again = healthy(lab.gemini("JOB-TWO: go on", "-r", "latest"))
    lab.wait_digested()
    assert session_of(again) == session
    lab.mem("restart")
    (file,) = lab.chats()
    assert json.loads(lab.mem("backfill", "--json", str(file)).stdout)["events"] == 0
    lab.wait_digested()
    assert sorted(tools(lab, session)) == sorted([*DONE_TOOLS, "Bash"])
    assert len(detail(lab, session)["turns"]) == 2


def test_old_sessions_are_read_back_once(bare: GeminiLab) -> None:
    bare.server.play("JOB-ONE", *work(bare))
    session = session_of(healthy(bare.gemini("JOB-ONE: build the capacitor and commit it")))
    bare.server.play("JOB-HID", [shell("echo CANARY")], [Text("CANARY")])
    healthy(bare.gemini("<private>JOB-HID</private>", "-r", "latest"))
    (file,) = bare.chats()
    told = json.loads(bare.mem("backfill", "--json", str(file)).stdout)
    assert (told["sessions"], told["turns"]) == (1, 2)
    assert json.loads(bare.mem("backfill", "--json", str(file)).stdout)["events"] == 0
    assert sorted(tools(bare, session)) == DONE_TOOLS
    assert files_with(bare, "CANARY", "JOB-HID") == []
    (project,) = {row["project"] for row in rows(bare, "/api/observations")}
    assert project == bare.project.name
    # Then it is connected, and the same session goes on.
    bare.mem("install", "--yes", "--host", "gemini")
    bare.server.play("JOB-TWO", [shell("echo two")], [Text("Two is done.")])
    healthy(bare.gemini("JOB-TWO: go on", "-r", "latest"))
    bare.wait_digested()
    assert len(detail(bare, session)["turns"]) == 3
    assert sorted(tools(bare, session)) == sorted([*DONE_TOOLS, "Bash"])


def test_what_a_session_did_before_it_was_connected_is_read_back_when_it_goes_on(bare: GeminiLab) -> None:
    bare.server.play("JOB-ONE", *work(bare))
    session = session_of(healthy(bare.gemini("JOB-ONE: build the capacitor and commit it")))
    bare.mem("install", "--yes", "--host", "gemini")
    bare.server.play("JOB-TWO", [shell("echo two")], [Text("Two is done.")])
    healthy(bare.gemini("JOB-TWO: go on", "-r", "latest"))
    bare.wait_digested()
    assert sorted(tools(bare, session)) == sorted([*DONE_TOOLS, "Bash"])
    assert len(detail(bare, session)["turns"]) == 2


def test_a_worker_killed_in_the_middle_of_a_turn_loses_nothing(lab: GeminiLab) -> None:
    lab.server.play("JOB-ONE", *work(lab, last=[Hold("last"), *DONE]))
    client = lab.start_gemini("JOB-ONE: build the capacitor and commit it")
    lab.server.wait_held("last")
    lab.wait_worker()
    lab.kill_worker()
    lab.server.release("last")
    session = session_of(healthy(client.finish()))
    lab.wait_digested()
    assert sorted(tools(lab, session)) == DONE_TOOLS
    assert detail(lab, session)["turns"][0]["closed_by"] == "stop"
    ask(lab)
    assert known(lab.server.requests[-1]) == 1


def test_a_killed_session_keeps_what_it_did(lab: GeminiLab) -> None:
    lab.server.play("JOB-ONE", *work(lab, last=[Hold("never")]))
    client = lab.start_gemini("JOB-ONE: build the capacitor and commit it")
    lab.server.wait_held("never")
    session = session_of(client.kill())
    ask(lab)
    for file in lab.chats():
        lab.mem("backfill", str(file))
    lab.wait_digested()
    assert sorted(tools(lab, session)) == DONE_TOOLS


def test_a_request_that_fails_costs_nothing_of_what_was_done(worked: GeminiLab) -> None:
    worked.server.play("JOB-REFUSED", [shell("echo one")], [Refuse(400)])
    run = worked.gemini("JOB-REFUSED: go")
    assert run.returncode != 0
    worked.wait_digested()
    assert tools(worked, session_of(run)) == ["Bash"]


def files_with(lab: GeminiLab, *canaries: str) -> list[str]:
    files = [path for path in lab.data.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(canary.encode() in path.read_bytes() for canary in canaries)]


@pytest.mark.parametrize("more", ["", " @README.md"])
def test_nothing_of_a_private_turn_is_stored(worked: GeminiLab, more: str) -> None:
    """Its prompt comes with a context before it, and a file after it."""
    before = len(rows(worked, "/api/prompts"))
    worked.server.play("JOB-SECRET", [shell("echo CANARY-TOOL")], [Text("CANARY-ANSWER")])
    healthy(worked.gemini(f"<private>JOB-SECRET: about CANARY-PROMPT{more}</private>"))
    worked.wait_digested()
    assert worked.server.seen("CANARY-PROMPT")
    assert known(worked.server.requests[-1]) == 1
    for file in worked.chats():
        worked.mem("backfill", str(file))
    worked.wait_digested()
    assert files_with(worked, "CANARY", "JOB-SECRET") == []
    assert len(rows(worked, "/api/prompts")) == before


def test_a_private_part_is_cut_and_the_rest_is_kept(worked: GeminiLab) -> None:
    worked.server.play("JOB-PART", [Text("Fine.")])
    healthy(worked.gemini("JOB-PART: the port is <private>CANARY-PORT</private> as always, see @README.md"))
    worked.wait_digested()
    assert files_with(worked, "CANARY") == []
    assert rows(worked, "/api/prompts")[0]["text"] == "JOB-PART: the port is  as always, see @README.md"


def test_what_it_did_is_known_in_claude_code(worked: GeminiLab) -> None:
    start = {"session_id": "other", "hook_event_name": "SessionStart", "source": "startup", "cwd": str(worked.project)}
    done = subprocess.run(
        [worked.data / "claude-mem-hook", "context", "claude"],
        input=json.dumps(start).encode(),
        env=worked.env,
        capture_output=True,
        check=True,
    )
    assert SUBJECT in json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_after_uninstalling_the_home_is_as_if_we_had_never_been_there(bare: GeminiLab) -> None:
    settings = bare.settings.read_bytes()
    bare.mem("install", "--yes", "--host", "gemini")
    assert b"claude-mem-hook" in bare.settings.read_bytes()
    do_work(bare)
    bare.mem("uninstall", "--yes", "--delete-data")
    assert bare.settings.read_bytes() == settings
    mine = {name for name in tree(bare.home) if not name.startswith((".gemini/tmp/", ".gemini/history/"))}
    assert mine <= {".gemini/settings.json", ".gemini/projects.json", ".gemini/installation_id"}
    assert not (bare.gemini_home / "skills").exists()
    healthy(bare.gemini("JOB-ONE: again"))
    assert not bare.data.exists()
