"""The real Claude Code, with our hooks as `claude-mem install` registers them, against a scripted model.

What the unit tests assume about the client is proved here: that it calls the hooks, accepts their answers
and shows the model what we hand over. Each test owns its home, repository, worker and model. Contexts are
looked for inside our fence only, because the client itself tells the model about recent commits.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

from .harness import VERSION, Lab, Run, client_version, find_client, open_lab
from .model_server import (
    COMPACTION,
    LONG_ANSWER,
    LONG_REMARK,
    REMARK,
    Call,
    Hold,
    Json,
    Refuse,
    Reply,
    Request,
    Text,
    Tokens,
    Tool,
)

found, reason = find_client()
if found is None:
    pytest.skip(reason, allow_module_level=True)
BINARY: Path = found

pytestmark = pytest.mark.client

SUBJECT = "Charge the flux capacitor before the jump"
FILE = "capacitor.py"
CHECK = "sh check.sh"
DONE = (Text(f"{FILE} is written, checked and committed."),)
ANSWER_KEYS = {"continue", "suppressOutput", "systemMessage", "hookSpecificOutput"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab with claude-mem installed. Whatever a test did, at its end the books must balance."""
    with open_lab(tmp_path / "lab", binary=BINARY) as lab:
        lab.install("claude")
        yield lab
        assert_balanced(lab.wait_digested())


def assert_balanced(status: Json) -> None:
    """Nothing lost, nothing twice: each captured event is in exactly one place."""
    places = ("stored", "queued", "set_aside", "filtered")
    assert status["captured"] == sum(status[place] for place in places), status
    assert status["filtered"] == sum(status["filtered_by"].values()), status


def assert_healthy(run: Run) -> None:
    """The client had nothing to complain about: not of a hook, not of its answer, not of its cost."""
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    for hook in run.hooks:
        assert (hook.outcome, hook.exit_code, hook.stderr) == ("success", 0, ""), hook
        assert set(hook.answer) <= ANSWER_KEYS, hook
        assert hook.answer.get("hookSpecificOutput", {}).get("hookEventName", hook.event) == hook.event, hook


def bash(command: str) -> Tool:
    return Tool("Bash", {"command": command, "description": "A step of the test"})


def work(lab: Lab, *, last: Reply = DONE) -> list[Reply]:
    """A small job: write a file, run a check that fails, mend it, see the same check pass, commit.

    The check exits with 3, because the client takes 1 from `test` and `grep` for an answer, not a failure.
    """
    (lab.project / "check.sh").write_text("test -f charged || { echo 'not charged'; exit 3; }\n")
    module = {"file_path": str(lab.project / FILE), "content": "GIGAWATTS = 1.21\n"}
    return [
        [Text("First the module."), Tool("Write", module)],
        [bash(CHECK)],
        [bash("touch charged")],
        [bash(CHECK)],
        [bash(f"git add --all && git commit --message '{SUBJECT}'")],
        last,
    ]


def do_work(lab: Lab) -> Run:
    """A whole session that did the job, digested: the past that a later session may know of."""
    lab.server.play("JOB-ONE", *work(lab))
    run = lab.claude("JOB-ONE: build the capacitor and commit it")
    assert_healthy(run)
    lab.wait_digested()
    return run


def ask(lab: Lab, *flags: str) -> Run:
    """A session that only asks; what it was given to know is in the recorded requests."""
    lab.server.play("JOB-ASK", [Text("I know.")])
    run = lab.claude("JOB-ASK: what was done here?", *flags)
    assert_healthy(run)
    return run


def known(request: Request, text: str = SUBJECT) -> int:
    """In how many of the contexts that we injected does this text stand?"""
    return sum(text in context for context in request.contexts)


def sessions(lab: Lab) -> dict[str, Json]:
    """The stored sessions by the client's id; an id with two rows would be a session torn in two."""
    found = rows(lab, "/api/sessions")
    ids = [row["content_session_id"] for row in found]
    assert len(ids) == len(set(ids)), ids
    return dict(zip(ids, found, strict=True))


def rows(lab: Lab, path: str) -> list[Json]:
    """The items of a listing."""
    listing = lab.api(f"{path}?limit=100")
    found = listing["items"] if isinstance(listing, dict) else listing
    assert isinstance(found, list)
    return found


def session_detail(lab: Lab, session: str) -> Json:
    """A session with its turns and events."""
    found = lab.api(f"/api/session/{sessions(lab)[session]['id']}")
    assert isinstance(found, dict)
    return found


def events(lab: Lab, session: str) -> list[Json]:
    """What is stored of a session, in order."""
    found = session_detail(lab, session)["events"]
    assert isinstance(found, list)
    return found


def stored_calls(lab: Lab, session: str) -> Counter[str]:
    """How often each tool call of a session is stored."""
    return Counter(event["tool_use_id"] for event in events(lab, session) if event.get("tool_use_id"))


def once(calls: list[Call]) -> Counter[str]:
    """Each of these calls exactly one time, and no other."""
    return Counter(call.id for call in calls)


def test_the_client_is_the_pinned_version() -> None:
    assert client_version(BINARY) == VERSION


def test_the_next_session_knows_what_the_last_one_did(lab: Lab) -> None:
    do_work(lab)
    (request,) = lab.server.of(ask(lab).session)
    assert known(request, SUBJECT)
    assert known(request, FILE)


def test_the_last_message_is_kept_as_it_was_however_it_was_streamed(lab: Lab) -> None:
    lab.server.play("JOB-LONG", [Text(REMARK), bash("ls")], [Text(LONG_REMARK), bash("echo go")], [Text(LONG_ANSWER)])
    assert_healthy(lab.claude("JOB-LONG: charge the capacitor with all its decimals"))
    lab.wait_digested()
    assert lab.closing_messages() == [LONG_ANSWER]


def test_every_hook_of_a_session_succeeds_and_is_stored_once(lab: Lab) -> None:
    run = do_work(lab)
    expected = {"SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop"}
    assert expected <= {hook.event for hook in run.hooks}
    assert stored_calls(lab, run.session) == once(lab.server.calls())
    assert sessions(lab)[run.session]["status"] == "completed"


def test_a_stop_hook_never_makes_the_model_go_on(lab: Lab) -> None:
    run = do_work(lab)
    assert len(lab.server.of(run.session)) == 6
    assert all("hookSpecificOutput" not in hook.answer for hook in run.hooks_of("Stop"))


def test_a_hook_starts_the_worker_when_none_runs(lab: Lab) -> None:
    lab.mem("stop")
    run = do_work(lab)
    assert lab.status()["worker"] == "running"
    assert stored_calls(lab, run.session) == once(lab.server.calls())


def test_a_worker_killed_before_the_stop_loses_nothing(lab: Lab) -> None:
    lab.server.play("JOB-ONE", *work(lab, last=[Hold("last"), Text("Committed.")]))
    client = lab.start_claude("JOB-ONE: build the capacitor and commit it")
    lab.server.wait_held("last")
    lab.wait_worker()
    lab.kill_worker()
    lab.server.release("last")
    run = client.finish()
    assert_healthy(run)
    lab.wait_digested()
    assert stored_calls(lab, run.session) == once(lab.server.calls())
    (request,) = lab.server.of(ask(lab).session)
    assert known(request)


def interrupted_unheard(lab: Lab) -> str:
    """A session killed in the middle of a turn whose tool calls no hook reported; its id."""
    lab.drop_hooks("PostToolUse", "PostToolUseFailure")
    lab.server.play("JOB-ONE", *work(lab, last=[Hold("never")]))
    client = lab.start_claude("JOB-ONE: build the capacitor and commit it")
    lab.server.wait_held("never")
    session = lab.server.requests[-1].session
    last = lab.server.calls()[-1].id
    written = f'"tool_use_id":"{last}"'  # the result; the client writes its transcript with a short delay
    wait_for(lambda: written in lab.transcript(session).read_text(), "no result written")
    client.kill()
    return session


def test_a_killed_session_is_read_back_from_its_transcript_when_the_worker_starts(lab: Lab) -> None:
    session = interrupted_unheard(lab)
    calls = once(lab.server.calls())
    for _ in range(2):  # the second start has nothing left to add
        lab.mem("restart")
        wait_for(lambda: stored_calls(lab, session) >= calls, "tool calls not read back")
        lab.wait_digested()
        assert stored_calls(lab, session) == calls
    (request,) = lab.server.of(ask(lab).session)
    assert known(request)


def test_a_killed_session_is_read_back_when_the_next_one_starts(lab: Lab) -> None:
    session = interrupted_unheard(lab)
    calls = once(lab.server.calls())
    ask(lab)
    wait_for(lambda: stored_calls(lab, session) >= calls, "tool calls not read back")
    lab.wait_digested()
    assert stored_calls(lab, session) == calls
    assert known(lab.server.of(ask(lab).session)[0])


def test_a_resumed_session_stays_one_and_is_not_told_twice(lab: Lab) -> None:
    do_work(lab)
    first = ask(lab)
    lab.wait_digested()
    row = sessions(lab)[first.session]
    again = ask(lab, "--resume", first.session)
    lab.wait_digested()
    assert again.session == first.session
    assert (sessions(lab)[first.session]["id"], row["prompt_counter"]) == (row["id"], 1)
    assert sessions(lab)[first.session]["prompt_counter"] == 2
    assert [known(request) for request in lab.server.of(first.session)] == [1, 1]


def test_a_forked_session_does_not_repeat_the_history_it_was_copied_from(lab: Lab) -> None:
    first = do_work(lab)
    fork = ask(lab, "--resume", first.session, "--fork-session")
    lab.wait_digested()
    lab.mem("restart")
    lab.wait_digested()
    assert fork.session != first.session
    assert stored_calls(lab, first.session) == once(lab.server.calls())
    assert stored_calls(lab, fork.session) == Counter()
    assert sessions(lab)[fork.session]["prompt_counter"] == 1


def test_after_clear_a_new_session_knows_what_the_cleared_one_did(lab: Lab) -> None:
    lab.server.play("JOB-ONE", *work(lab))
    lab.server.play("JOB-ASK", [Text("I know.")])
    client = lab.start_claude(None)
    client.say("JOB-ONE: build the capacitor and commit it")
    client.wait_results(1)
    lab.wait_digested()
    client.say("/clear")
    client.wait_results(2)
    client.say("JOB-ASK: what was done here?")
    client.wait_results(3)
    client.hang_up()
    run = client.finish()
    assert_healthy(run)
    before, after = run.sessions
    assert known(lab.server.of(after)[0]) == 1
    lab.wait_digested()
    assert {sessions(lab)[session]["status"] for session in (before, after)} == {"completed"}


@pytest.mark.parametrize("how", ["by hand", "by itself"])
def test_after_compaction_the_context_is_given_again(lab: Lab, how: str) -> None:
    do_work(lab)
    full = Tokens(190_000 if how == "by itself" else 100)
    lab.server.play("JOB-TWO", [full, bash("echo two")], [full, Text("Two is done.")])
    lab.server.play("JOB-ASK", [Text("I know.")])
    compact = ["/compact"] if how == "by hand" else []
    run = lab.talk("JOB-TWO", *compact, "JOB-ASK: what was done?", flags=("--autocompact", "100000"))
    assert_healthy(run)
    starts = [hook.name.partition(":")[2] for hook in run.hooks_of("SessionStart")]
    assert starts == ["startup", "compact"]
    last = lab.server.of(run.session)[-1]
    assert (last.marker, known(last)) == ("JOB-ASK", 1)
    lab.wait_digested()
    assert sessions(lab)[run.session]["prompt_counter"] == 2


def compacted(lab: Lab, prompt: str) -> Run:
    """A session with one turn, compacted by hand. The client reports its own summarising as a subagent."""
    lab.server.play("JOB-TWO", [bash("echo CANARY-TOOL")], [Text("Two is done.")])
    lab.server.play(COMPACTION, [Text("<summary>CANARY-COMPACTED</summary>")])
    run = lab.talk(prompt, "/compact")
    assert_healthy(run)
    assert lab.server.seen(COMPACTION, session=run.session)
    lab.wait_digested()
    return run


def test_a_compaction_is_not_remembered_as_work(lab: Lab) -> None:
    run = compacted(lab, "JOB-TWO")
    assert [turn["closed_by"] for turn in session_detail(lab, run.session)["turns"]] == ["stop"]
    assert len(rows(lab, "/api/summaries")) == 1
    assert known(lab.server.of(ask(lab).session)[0], "CANARY-COMPACTED") == 0


def test_a_compaction_gets_no_instructions_from_us(lab: Lab) -> None:
    compacted(lab, "JOB-TWO")
    assert not lab.server.seen("suppressOutput")  # the client takes whatever PreCompact prints for some


def test_the_compaction_of_a_private_turn_is_not_stored(lab: Lab) -> None:
    compacted(lab, "<private>JOB-TWO</private>")
    assert files_with(lab, "CANARY") == []


def test_a_subagent_is_captured_once(lab: Lab) -> None:
    task = {"description": "A side job", "prompt": "JOB-SUB: look", "subagent_type": "general-purpose"}
    agent = Tool("Agent", {**task, "run_in_background": False})
    lab.server.play("JOB-MAIN", [agent], [Text("Main is done.")])
    lab.server.play("JOB-SUB", [bash("ls")], [bash("cat README.md")], [Text("Nothing odd here.")])
    run = lab.claude("JOB-MAIN: have someone look around")
    assert_healthy(run)
    lab.wait_digested()
    assert len(lab.server.calls("JOB-SUB")) == 2
    assert stored_calls(lab, run.session) == once(lab.server.calls())
    assert [event["kind"] for event in events(lab, run.session)].count("subagent_stop") == 1


def test_parallel_tools_are_all_stored_once(lab: Lab) -> None:
    three = [bash(f"sleep 0.{3 - n}; echo {n}") for n in range(3)]  # the first to start is the last to end
    lab.server.play("JOB-THREE", three, [Text("All three ran.")])
    run = lab.claude("JOB-THREE: run three at once")
    assert_healthy(run)
    lab.wait_digested()
    assert len(run.hooks_of("PostToolUse")) == 3
    assert stored_calls(lab, run.session) == once(lab.server.calls())


def test_refused_calls_that_no_hook_reports_are_read_back_once(lab: Lab) -> None:
    edit = {"file_path": str(lab.project / "README.md"), "old_string": "not in it", "new_string": "x"}
    lab.server.play("JOB-BAD", [Tool("Edit", edit)], [Tool("NoSuchTool", {})], [Text("Neither was possible.")])
    run = lab.claude("JOB-BAD: try two things that can't be done")
    assert_healthy(run)
    lab.wait_digested()
    assert run.hooks_of("PostToolUse") + run.hooks_of("PostToolUseFailure") == []
    assert stored_calls(lab, run.session) == once(lab.server.calls())


def test_two_sessions_at_once_keep_apart(lab: Lab) -> None:
    clients = {}
    for marker in ("JOB-LEFT", "JOB-RIGHT"):
        lab.server.play(marker, *[[bash(f"echo {n}")] for n in range(4)], [Text("Done.")])
        clients[marker] = lab.start_claude(f"{marker}: count")
    runs = {marker: client.finish() for marker, client in clients.items()}
    lab.wait_digested()
    for marker, run in runs.items():
        assert_healthy(run)
        assert stored_calls(lab, run.session) == once(lab.server.calls(marker))


def test_a_hung_worker_neither_holds_the_client_up_nor_costs_the_context(lab: Lab) -> None:
    do_work(lab)
    with lab.hung_worker():
        run = ask(lab)
    assert known(lab.server.of(run.session)[0]) == 1
    lab.wait_digested()
    assert sessions(lab)[run.session]["prompt_counter"] == 1


def test_the_end_of_a_background_task_is_not_a_prompt(lab: Lab) -> None:
    task = {"command": "sleep 1", "description": "A task in the background", "run_in_background": True}
    lab.server.play("JOB-LATER", [Tool("Bash", task)], [Text("It was started.")])
    run = lab.claude("JOB-LATER: start something")
    assert_healthy(run)
    lab.wait_digested()
    assert len(run.hooks_of("UserPromptSubmit")) == 2  # the client hands the notice over as one
    assert [row["text"] for row in rows(lab, "/api/prompts")] == ["JOB-LATER: start something"]
    assert "task-notification" not in json.dumps(rows(lab, "/api/summaries"))


def test_our_own_observer_is_not_observed(lab: Lab) -> None:
    lab.mem("stop")
    lab.server.play("JOB-ONE", *work(lab))
    run = lab.claude("JOB-ONE: build the capacitor and commit it", env={"CLAUDE_MEM_INTERNAL": "1"})
    assert_healthy(run)
    assert len(run.hooks) > 5  # the client did call them
    assert lab.status()["captured"] == 0
    assert lab.processes() == {}  # nor was a worker started for it


def files_with(lab: Lab, *canaries: str) -> list[str]:
    """The files of the data directory, database and logs included, that contain any of these texts."""
    files = [path for path in lab.data.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(canary.encode() in path.read_bytes() for canary in canaries)]


def private_turn(lab: Lab) -> Run:
    """A turn that the user kept to himself: the prompt, and with it all that the model did and said."""
    lab.server.play("JOB-SECRET", [bash("echo CANARY-TOOL")], [Text("CANARY-ANSWER")])
    run = lab.claude("<private>JOB-SECRET: about CANARY-PROMPT</private>")
    assert_healthy(run)
    lab.wait_digested()
    return run


CANARIES = ("CANARY-PROMPT", "CANARY-TOOL", "CANARY-ANSWER", "JOB-SECRET")


def test_nothing_of_a_private_turn_is_stored(lab: Lab) -> None:
    run = private_turn(lab)
    assert lab.server.seen("CANARY-PROMPT", session=run.session)  # the model does get it
    assert files_with(lab, *CANARIES) == []
    assert rows(lab, "/api/prompts") == []
    assert rows(lab, "/api/observations") == []
    assert rows(lab, "/api/summaries") == []


def test_a_private_prompt_does_not_even_reach_the_spool(lab: Lab) -> None:
    with lab.hung_worker():
        run = lab.claude("<private>JOB-SECRET: about CANARY-PROMPT</private>")
        assert list((lab.data / "spool").iterdir())  # nobody has taken them in yet
        assert files_with(lab, "CANARY-PROMPT", "JOB-SECRET") == []
    assert_healthy(run)


def test_a_private_turn_whose_prompt_was_not_heard_leaves_no_trace(lab: Lab) -> None:
    lab.drop_hooks("UserPromptSubmit")
    run = private_turn(lab)
    assert stored_calls(lab, run.session) == Counter()
    assert files_with(lab, *CANARIES) == []


def test_reading_the_transcript_leaves_a_private_turn_out(lab: Lab) -> None:
    run = private_turn(lab)
    lab.server.play("JOB-OPEN", [bash("echo in the open")], [Text("Said openly.")])
    assert_healthy(lab.claude("JOB-OPEN: this may be known", "--resume", run.session))
    lab.wait_digested()
    lab.mem("restart")
    lab.wait_digested()
    assert stored_calls(lab, run.session) == once(lab.server.calls("JOB-OPEN"))
    assert len(rows(lab, "/api/prompts")) == 1
    assert files_with(lab, *CANARIES) == []


def test_a_turn_that_ends_in_an_api_error_is_closed_and_remembered(lab: Lab) -> None:
    lab.server.play("JOB-ONE", *work(lab, last=[Refuse(400)]))
    run = lab.claude("JOB-ONE: build the capacitor and commit it")
    assert run.returncode == 1
    assert run.hooks_of("Stop") == []
    lab.wait_digested()
    assert stored_calls(lab, run.session) == once(lab.server.calls())
    detail = session_detail(lab, run.session)
    assert (detail["status"], [turn["closed_by"] for turn in detail["turns"]]) == ("completed", ["session_end"])
    assert len(rows(lab, "/api/summaries")) == 1
    (request,) = lab.server.of(ask(lab).session)
    assert known(request)
    assert not known(request, "API Error")  # the client's words, not what was done
