"""The real Codex, with our hooks as `claude-mem install` registers them, against a scripted model."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.client.harness import ROOT, Lab, find_client
from tests.agents.client.model_server import (
    LONG_ANSWER,
    LONG_REMARK,
    REMARK,
    Hold,
    ModelServer,
    Reply,
    Request,
    Text,
    Tokens,
    Tool,
)
from tests.support.waiting import SECONDS, wait_for

from .codex_lab import VERSION, CodexLab, find_codex, once, open_codex_lab, thread
from .responses_server import patch

found, reason = find_codex()
if found is None:
    pytest.skip(reason, allow_module_level=True)
BINARY: Path = found

pytestmark = pytest.mark.client

SUBJECT = "Charge the flux capacitor before the jump"
DONE = (Text("The capacitor is charged and committed."),)
# A model that it knows may patch files, but has to search for most tools first; one that it does not know has them all.
UNKNOWN = ("-m", "scripted")
AGAIN = """*** Begin Patch
*** Update File: capacitor.py
@@
 def charge():
-    return 1.21
+    return 2
*** End Patch"""
PATCH = """*** Begin Patch
*** Add File: capacitor.py
+def charge():
+    return 1.21
*** Update File: README.md
*** Move to: READ.md
@@
-A project to work on.
+A flux capacitor.
*** End Patch"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[CodexLab]:
    """A lab with claude-mem installed. Whatever a test did, at its end the books must balance."""
    with open_codex_lab(tmp_path / "lab", binary=BINARY) as lab:
        lab.install("codex")
        yield lab
        status = lab.wait_digested()
        places = ("stored", "queued", "set_aside", "filtered")
        assert status["captured"] == sum(status[place] for place in places), status
        assert status["set_aside"] == 0, status


def sh(command: str) -> Tool:
    return Tool("exec_command", {"cmd": command})


def work(lab: CodexLab, *, last: Reply = DONE) -> list[Reply]:
    """A small job: edit two files, run a check that fails, mend it, see the same check pass, commit."""
    (lab.project / "check.sh").write_text("test -f charged || { echo 'not charged'; exit 3; }\n")
    commit = sh(f"git add --all && git commit --message '{SUBJECT}'")
    return [
        [Text("First the module."), patch(PATCH)],
        [sh("sh check.sh")],
        [sh("touch charged")],
        [sh("sh check.sh")],
        [commit],
        last,
    ]


def do_work(lab: CodexLab) -> str:
    """A whole session that did the job, digested: the past that a later session may know of."""
    lab.server.play("JOB-ONE", *work(lab))
    run = lab.codex("JOB-ONE: build the capacitor and commit it")
    lab.wait_digested()
    return thread(run)


def ask(lab: CodexLab, *words: str) -> str:
    """A session that only asks; what it was given to know is in the recorded requests."""
    lab.server.play("JOB-ASK", [Text("I know.")])
    return thread(lab.codex(*words, "JOB-ASK: what was done with the capacitor here?"))


def known(request: Request, text: str = SUBJECT) -> int:
    """In how many of the contexts that we injected does this text stand?"""
    return sum(text in context for context in request.contexts)


def developer_texts(request: Request) -> list[str]:
    items = [item for item in request.body["input"] if item.get("role") == "developer"]
    return [part["text"] for item in items for part in item["content"] if "claude-mem-context" in part["text"]]


def test_the_program_is_the_pinned_version() -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    out = subprocess.run([BINARY, "--version"], env=env, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert out.stdout.split()[-1] == VERSION


def test_a_session_is_captured_with_its_files_commands_and_failures(lab: CodexLab) -> None:
    session = lab.session(do_work(lab))
    assert (session["host"], session["status"], session["project"]) == ("codex", "completed", "project")
    assert [turn["closed_by"] for turn in session["turns"]] == ["stop"]
    assert lab.stored_calls(session["content_session_id"]) == once(lab.server.calls())
    tools = [event for event in session["events"] if event["kind"] == "tool"]
    assert [event["tool"] for event in tools] == ["apply_patch", "Bash", "Bash", "Bash", "Bash"]
    assert [event["failed"] for event in tools] == [0, 1, 0, 0, 0]  # the exit code is from the rollout
    commit = next(row for row in session["observations"] if row["commit_id"])
    assert commit["title"].startswith(SUBJECT.replace("Charge", "Charged")) or commit["title"].startswith(SUBJECT)
    assert set(commit["files_modified"]) == {"capacitor.py", "READ.md", "README.md"}
    facts = " ".join(commit["facts"])
    assert "Created capacitor.py (+2 −0): added charge" in facts


def test_the_last_message_is_kept_as_it_was_however_it_was_streamed(lab: CodexLab) -> None:
    lab.server.play(
        "JOB-LONG", [Text(REMARK), sh("cat README.md")], [Text(LONG_REMARK), patch(PATCH)], [Text(LONG_ANSWER)]
    )
    lab.codex("JOB-LONG: charge the capacitor with all its decimals")
    lab.wait_digested()
    assert lab.closing_messages() == [LONG_ANSWER]


def test_the_next_session_knows_it_and_codex_takes_every_answer(lab: CodexLab) -> None:
    do_work(lab)
    lab.server.play("JOB-ASK", [patch(AGAIN)], [sh("ls")], [Text("I know.")])
    shown = lab.show_codex("JOB-ASK: what was done with the capacitor here?")
    ends = Counter(shown.hooks)
    assert ends == {
        ("SessionStart", "Completed"): 1,
        ("UserPromptSubmit", "Completed"): 1,
        ("PreToolUse", "Completed"): 2,
        ("PostToolUse", "Completed"): 2,
        ("Stop", "Completed"): 1,
    }
    first, *_, last = lab.server.of(shown.session)
    start, prompt = developer_texts(first)
    assert SUBJECT in start
    assert "capacitor.py" in prompt
    assert developer_texts(last) == [start, prompt]  # nothing is told twice
    lab.wait_digested()
    assert [row["text"] for row in lab.rows("prompts")].count("JOB-ASK: what was done with the capacitor here?") == 1
    assert not any(
        "claude-mem-context" in json.dumps(row) for what in ("prompts", "summaries") for row in lab.rows(what)
    )


def test_before_a_file_is_edited_it_is_told_what_is_known_about_it(lab: CodexLab) -> None:
    lab.server.play("JOB-EARLY", [Hold("early"), patch(AGAIN)], [Text("Edited.")])
    client = lab.start_codex("JOB-EARLY: change it")
    lab.server.wait_held("early")
    do_work(lab)  # after the other one has begun: at its start there was nothing to tell
    lab.server.release("early")
    session = thread(client.finish())
    *_, said = developer_texts(lab.server.of(session)[-1])
    assert "known about capacitor.py" in said
    assert SUBJECT in said


def test_a_resumed_session_stays_one_and_is_not_told_twice(lab: CodexLab) -> None:
    do_work(lab)
    first = ask(lab)
    lab.wait_digested()
    assert ask(lab, "resume", first) == first
    lab.wait_digested()
    session = lab.session(first)
    assert [turn["number"] for turn in session["turns"]] == [1, 2]
    kinds = Counter(event["kind"] for event in session["events"])
    assert (kinds["prompt"], kinds["stop"], kinds["session_start"]) == (2, 2, 2)
    assert [known(request) for request in lab.server.of(first)] == [1, 1]


def test_a_killed_worker_costs_nothing_and_comes_back(lab: CodexLab) -> None:
    lab.server.play("JOB-ONE", *work(lab, last=[Hold("last"), Text("Committed.")]))
    client = lab.start_codex("JOB-ONE: build the capacitor and commit it")
    lab.server.wait_held("last")
    lab.kill_worker()
    lab.server.release("last")
    run = client.finish()
    assert (run.returncode, run.of("turn.failed")) == (0, [])
    lab.wait_digested()
    assert lab.stored_calls(thread(run)) == once(lab.server.calls())
    assert known(lab.server.of(ask(lab))[0])


def test_a_session_starts_informed_even_with_a_hung_worker(lab: CodexLab) -> None:
    do_work(lab)
    with lab.hung_worker():
        session = ask(lab)
    assert known(lab.server.of(session)[0]) == 1


def test_nothing_of_a_private_turn_is_stored_and_a_private_part_is_cut(lab: CodexLab) -> None:
    lab.server.play("JOB-SECRET", [sh("echo CANARY-TOOL")], [Text("CANARY-ANSWER")])
    session = thread(lab.codex("<private>JOB-SECRET: about CANARY-PROMPT</private>"))
    lab.wait_digested()
    assert lab.server.seen("CANARY-PROMPT", session=session)  # the model does get it
    lab.mem("restart")  # its rollout is looked at again
    lab.wait_digested()
    assert lab.files_with("CANARY", "JOB-SECRET") == []
    assert lab.rows("prompts") == lab.rows("observations") == lab.rows("summaries") == []
    lab.server.play("JOB-HALF", [Text("Done.")])
    lab.codex("JOB-HALF: open <private>CANARY</private> words")
    lab.wait_digested()
    assert [row["text"] for row in lab.rows("prompts")] == ["JOB-HALF: open  words"]
    assert lab.files_with("CANARY") == []


def test_what_no_hook_tells_is_read_back_once(lab: CodexLab) -> None:
    """A patch through the shell, one that does not fit, a tool that is not there: none of them has a PostToolUse."""
    through_shell = f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"
    misfit = "*** Begin Patch\n*** Update File: READ.md\n@@\n-not in it\n+x\n*** End Patch"
    lab.server.play("JOB-BAD", [sh(through_shell)], [patch(misfit)], [Tool("nosuch", {})], [Text("So it is.")])
    session = thread(lab.codex("JOB-BAD: try some things that are odd"))
    lab.wait_digested()
    assert lab.stored_calls(session) == once(lab.server.calls())
    tools = [event for event in lab.session(session)["events"] if event["kind"] == "tool"]
    assert [(event["tool"], event["failed"], event["source"]) for event in tools] == [
        ("apply_patch", 0, "transcript"),
        ("apply_patch", 1, "transcript"),
        ("nosuch", 1, "transcript"),
    ]
    assert {path for row in lab.rows("observations") for path in row["files_modified"]} >= {"capacitor.py", "READ.md"}


def test_a_killed_session_whose_tools_no_hook_told_is_read_back(lab: CodexLab) -> None:
    lab.drop_hooks("PostToolUse")
    lab.server.play("JOB-ONE", *work(lab, last=[Hold("never")]))
    client = lab.start_codex("JOB-ONE: build the capacitor and commit it")
    lab.server.wait_held("never")
    last = lab.server.calls()[-1].id
    (rollout,) = lab.rollouts()
    wait_for(lambda: rollout.read_text().count(last) > 1, "no result was written")
    session = thread(client.kill())
    calls = once(lab.server.calls())
    for _ in range(2):  # the second time there is nothing left to add
        ask(lab)
        lab.mem("restart")
        wait_for(lambda: lab.stored_calls(session) >= calls, "tool calls not read back")
        lab.wait_digested()
        assert lab.stored_calls(session) == calls


def test_after_a_compaction_the_context_is_given_again(lab: CodexLab) -> None:
    do_work(lab)
    lab.server.play("JOB-LONG", [Tokens(200_000), sh("echo long")], [Text("Done.")])
    run = lab.codex("-c", "model_auto_compact_token_limit=100000", "JOB-LONG: fill the room with words")
    requests = lab.server.of(thread(run))
    assert [known(request) for request in requests] == [1, 1, 1, 1][: len(requests)]
    assert len(requests) == 3  # the last one goes on with a summary and nothing else
    lab.wait_digested()
    session = lab.session(thread(run))
    assert [turn["closed_by"] for turn in session["turns"]] == ["stop"]
    assert [event["kind"] for event in session["events"]].count("compact") == 1


def test_a_subagent_works_for_the_turn_that_started_it(lab: CodexLab) -> None:
    spawn = Tool("multi_agent_v1/spawn_agent", {"message": "JOB-SUB: look around"})
    lab.server.play("JOB-MAIN", [spawn], [Hold("main"), Text("Main is done.")])
    lab.server.play("JOB-SUB", [sh("cat README.md")], [sh("exit 3")], [Text("Nothing odd here.")])
    client = lab.start_codex(*UNKNOWN, "JOB-MAIN: have someone look around")
    lab.server.wait_held("main")
    wait_for(lambda: lab.status()["captured"] >= 7, "the subagent did not end")
    lab.server.release("main")
    session = thread(client.finish())
    lab.wait_digested()
    stored = lab.session(session)
    assert [row["text"] for row in lab.rows("prompts")] == ["JOB-MAIN: have someone look around"]
    assert lab.stored_calls(session) == once(lab.server.calls())
    assert len({event["turn_id"] for event in stored["events"] if event["turn_id"]}) == 1
    assert [event["kind"] for event in stored["events"]].count("subagent_stop") == 1
    assert len(stored["turns"]) == 1


def test_the_model_can_ask_memory_by_its_tools(lab: CodexLab) -> None:
    do_work(lab)
    lab.server.play("JOB-TOOL", [Tool("mcp__claude_mem/search", {"query": "flux capacitor"})], [Text("Now I know.")])
    session = thread(lab.codex(*UNKNOWN, "JOB-TOOL: look it up in memory"))
    *_, last = lab.server.of(session)
    answer = next(item for item in last.body["input"] if item["type"] == "function_call_output")
    assert SUBJECT in json.dumps(answer)
    assert "mem-search" in last.text  # the skill is listed


def test_old_rollouts_are_remembered_once(lab: CodexLab, tmp_path: Path) -> None:
    lab.mem("uninstall", "--yes")
    lab.server.play("JOB-ONE", *work(lab))
    session = thread(lab.codex("JOB-ONE: build the capacitor and commit it"))
    for _ in range(2):
        lab.mem("backfill", str(lab.codex_home / "sessions"))
    stored = lab.session(session)
    assert (stored["host"], stored["project"], len(stored["turns"])) == ("codex", "project", 1)
    assert [prompt["text"] for prompt in stored["prompts"]] == ["JOB-ONE: build the capacitor and commit it"]
    assert lab.stored_calls(session) == once(lab.server.calls())
    assert any(row["title"] == SUBJECT for row in stored["observations"])


def test_untrusted_hooks_do_not_run_and_doctor_says_so(lab: CodexLab) -> None:
    lab.mem("install", "--yes", "--host", "codex")  # the hooks as people have them
    lab.server.play("JOB-ONE", [Text("Done.")])
    lab.codex("JOB-ONE: nobody hears this", trust=False)
    assert lab.status()["captured"] == 0
    (line,) = [line for line in lab.mem("doctor").stdout.splitlines() if "Trust all and continue" in line]
    assert line.startswith("warn hooks ")


def home(lab: CodexLab) -> dict[str, bytes]:
    """Its files, but for Codex's databases."""
    files = [path for path in lab.home.rglob("*") if path.is_file() and ".sqlite" not in path.name]
    return {path.name: path.read_bytes() for path in files}


def test_a_command_that_failed_in_an_earlier_session_is_met_with_what_works(lab: CodexLab) -> None:
    (lab.project / "warp.sh").write_text("echo warped\n")
    wrong, right = [sh("launchit sh warp.sh")], [sh("sh warp.sh")]
    lab.server.play("JOB-FAIL", wrong, right, [Text("It runs without a launchiter.")])
    lab.codex("JOB-FAIL: run the warp")
    lab.wait_digested()
    lab.server.play("JOB-AGAIN", wrong, wrong, [Text("I see.")])
    *_, last = lab.server.of(thread(lab.codex("JOB-AGAIN: please run the warp")))
    assert known(last, "`launchit` is not installed here; `sh warp.sh` works") == 1, (
        "once, though the command ran twice"
    )


def test_after_an_uninstallation_nothing_tells_that_we_were_there(tmp_path: Path) -> None:
    with open_codex_lab(tmp_path / "lab", binary=BINARY) as lab:
        theirs = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
        (lab.codex_home / "hooks.json").write_text(json.dumps(theirs))
        lab.server.play("JOB-ONE", [sh("ls")], [Text("Done.")])
        lab.codex("JOB-ONE: before")
        before = home(lab)
        lab.mem("install", "--yes", "--host", "codex")
        lab.codex("JOB-ONE: with it")
        lab.run([str(BINARY), "mcp", "add", "other", "--", "true"])  # Codex writes its settings anew
        assert "claude-mem >>>" not in (lab.codex_home / "config.toml").read_text()  # and loses a mark of ours
        lab.mem("uninstall", "--yes")
        lab.run([str(BINARY), "mcp", "remove", "other"])
        after = home(lab)
    assert before["config.toml"].rstrip() == after.pop("config.toml").replace(b"# <<< claude-mem <<<", b"").rstrip()
    assert [name for name, text in before.items() if name != "config.toml" and after.get(name) != text] == []
    assert [name for name, text in after.items() if b"claude-mem" in text and not name.startswith("rollout-")] == []


def test_the_plugin_of_claude_code_serves_codex_too(tmp_path: Path) -> None:
    """No `install`: only the program, running, and the plugin."""
    with open_codex_lab(tmp_path / "lab", binary=BINARY) as lab:
        lab.mem("start")
        lab.run([str(BINARY), "plugin", "marketplace", "add", str(ROOT)])
        lab.run([str(BINARY), "plugin", "add", "mem@mem"])
        lab.server.play("JOB-ONE", *work(lab))
        shown = lab.show_codex("JOB-ONE: build the capacitor and commit it")
        ends = Counter(shown.hooks)
        assert ends == {
            ("SessionStart", "Completed"): 1,
            ("UserPromptSubmit", "Completed"): 1,
            ("PreToolUse", "Completed"): 5,  # it takes `Edit` for its patches, and `Bash`
            ("PostToolUse", "Completed"): 5,
            ("Stop", "Completed"): 1,
        }
        assert {
            line for line in shown.talk.splitlines() if line.startswith("warning") and "hook-trust" not in line
        } == set()
        lab.wait_digested()
        assert (lab.session(shown.session)["host"], lab.session(shown.session)["status"]) == ("codex", "completed")
        lab.server.play("JOB-TOOL", [Tool("mcp__claude_mem/search", {"query": "flux capacitor"})], [Text("I know.")])
        *_, last = lab.server.of(thread(lab.codex(*UNKNOWN, "JOB-TOOL: look it up in memory")))
        assert known(last)
        assert "mem:mem-search" in last.text
        answer = next(item for item in last.body["input"] if item["type"] == "function_call_output")
        assert SUBJECT in json.dumps(answer)
        assert "by its plugin" in lab.mem("doctor").stdout


def test_a_session_in_codex_is_known_to_the_next_session_in_claude_code(lab: CodexLab) -> None:
    binary, why = find_client()
    if binary is None:
        pytest.skip(why)
    do_work(lab)
    with ModelServer() as server:
        claude = Lab(lab.root, server, binary, port=lab.port, clients=lab.clients)
        claude.mem("install", "--yes", "--host", "claude")
        server.play("JOB-ASK", [Text("I know.")])
        run = claude.claude("JOB-ASK: what was done with the capacitor here?")
        assert run.returncode == 0, run.stderr
        (request,) = server.of(run.session)
        assert known(request)
        lab.wait_digested()
    hosts = {row["content_session_id"]: row["host"] for row in lab.rows("sessions")}
    assert hosts[run.session] == "claude"
    assert sorted(hosts.values()) == ["claude", "codex"]
