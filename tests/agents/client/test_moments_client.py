"""Memory that speaks by itself, in the real Claude Code: what the model is shown at a prompt, before a file and after a
failure is in its requests, once, and nothing is held up by it."""

from pathlib import Path

import pytest

from claude_mem import client as memory
from tests.support import forks
from tests.support.waiting import SECONDS, wait_for

from .harness import Lab, Run
from .model_server import Reply, Text, Tool
from .test_real_client import assert_healthy, bash, lab  # noqa: F401 -- the fixture

pytestmark = pytest.mark.client

FILE = "warp.py"
LESSON = "The warp coil must be degaussed before each jump"
ERROR = "CoilError: coil 7 is magnetised"


def coil(lab: Lab) -> list[Reply]:  # noqa: F811
    """Run into an error, mend it in a file, see it pass."""
    (lab.project / "jump.sh").write_text(f"test -f degaussed || {{ echo '{ERROR}'; exit 3; }}\n")
    (lab.project / FILE).write_text("COIL = 7\n")
    edit = {"file_path": str(lab.project / FILE), "old_string": "COIL = 7", "new_string": "COIL = degauss(7)"}
    return [
        [bash("sh jump.sh")],
        [Tool("Read", {"file_path": str(lab.project / FILE)})],
        [Tool("Edit", edit), bash("touch degaussed")],
        [bash("sh jump.sh")],
        [Text(f"{LESSON}, because a magnetised coil stops the ship. `{FILE}` does it now.")],
    ]


def told(run: Run, lab: Lab, words: str) -> list[int]:  # noqa: F811
    """In which of the session's requests the words stand inside our fence, by number."""
    return [
        n for n, request in enumerate(lab.server.of(run.session)) if any(words in text for text in request.contexts)
    ]


def test_a_prompt_is_shown_what_is_remembered_about_it_and_only_once(lab: Lab) -> None:  # noqa: F811
    """Session B runs from before the work of session A was there, so that its start can't have told it."""
    lab.server.play("FIRST-ASK", [Text("Nothing yet.")])
    lab.server.play("SECOND-ASK", [Text("Degauss it.")])
    lab.server.play("THIRD-ASK", [Text("As I said.")])
    lab.server.play("COIL-JOB", *coil(lab))
    client = lab.start_claude(None)
    client.say("FIRST-ASK: hello there, who are you today?")
    client.wait_results(1)
    assert_healthy(lab.claude("COIL-JOB: make the jump work"))
    lab.wait_digested()
    client.say("SECOND-ASK: what must be done with the warp coil before each jump?")
    client.wait_results(2)
    client.say("THIRD-ASK: and why must the warp coil be degaussed before each jump?")
    client.wait_results(3)
    client.hang_up()
    run = client.finish()
    assert_healthy(run)
    asked = [
        request for request in lab.server.of(run.session) if request.marker in ("FIRST-ASK", "SECOND-ASK", "THIRD-ASK")
    ]
    counts = [sum(LESSON in text for text in request.contexts) for request in asked]
    assert counts == [0, 1, 1], "it came with the second prompt, and the third request only repeats the conversation"


def test_an_error_met_before_brings_up_what_solved_it(lab: Lab) -> None:  # noqa: F811
    client = lab.start_claude(None)
    lab.server.play("EARLY", [Text("Here.")])
    client.say("EARLY: wait for me here, please, will you?")
    client.wait_results(1)
    lab.server.play("COIL-JOB", *coil(lab))
    assert_healthy(lab.claude("COIL-JOB: make the jump work"))
    lab.wait_digested()
    (lab.project / "degaussed").unlink()
    lab.server.play("AGAIN", [bash("sh jump.sh")], [Text("I see.")])
    client.say("AGAIN: please run it")
    client.wait_results(2)
    client.hang_up()
    run = client.finish()
    assert_healthy(run)
    assert told(run, lab, "this error was met before")


def test_a_file_about_to_be_read_is_introduced(lab: Lab) -> None:  # noqa: F811
    client = lab.start_claude(None)
    lab.server.play("EARLY", [Text("Here.")])
    client.say("EARLY: wait for me here, please, will you?")
    client.wait_results(1)
    lab.server.play("COIL-JOB", *coil(lab))
    assert_healthy(lab.claude("COIL-JOB: make the jump work"))
    lab.wait_digested()
    read = Tool("Read", {"file_path": str(lab.project / FILE)})
    lab.server.play("READ-IT", [read], [read], [Text("I see.")])
    client.say("READ-IT: look")
    client.wait_results(2)
    client.hang_up()
    run = client.finish()
    assert_healthy(run)
    last = lab.server.of(run.session)[-1]
    assert sum(f"known about {FILE}" in text for text in last.contexts) == 1
    assert Path(lab.project / FILE).read_text() == "COIL = degauss(7)\n"


def test_a_command_that_failed_in_an_earlier_session_is_met_with_what_works(lab: Lab) -> None:  # noqa: F811
    """Session B runs from before session A failed. The line comes with the command's result: a hook holds nothing up."""
    client = lab.start_claude(None)
    lab.server.play("EARLY", [Text("Here.")])
    client.say("EARLY: wait for me here, please, will you?")
    client.wait_results(1)
    wrong, right = [bash("launchit sh warp.sh")], [bash("sh warp.sh")]
    (lab.project / "warp.sh").write_text("echo warped\n")
    lab.server.play("FAIL-JOB", wrong, right, [Text("`warp.sh` runs without a launchiter.")])
    assert_healthy(lab.claude("FAIL-JOB: run the warp"))
    lab.wait_digested()
    lab.server.play("AGAIN", wrong, wrong, [Text("I see.")])
    client.say("AGAIN: please run the warp")
    client.wait_results(2)
    client.hang_up()
    run = client.finish()
    assert_healthy(run)
    line = "`launchit` is not installed here; `sh warp.sh` works"
    counts = [sum(line in text for text in request.contexts) for request in lab.server.of(run.session)]
    assert counts[-1] == 1, "once, though the command ran twice"
    hint = next(text for text in lab.server.of(run.session)[-1].contexts if line in text)
    assert "about this command" in hint, "before the command, not only after its failure"


def test_what_was_shown_and_then_used_is_told_with_the_session(lab: Lab) -> None:  # noqa: F811
    """Session B is shown the work of session A at its start, and then opens its file."""
    lab.server.play("COIL-JOB", *coil(lab))
    assert_healthy(lab.claude("COIL-JOB: make the jump work"))
    lab.wait_digested()
    lab.server.play(
        "LOOK-JOB", [Tool("Read", {"file_path": str(lab.project / FILE)})], [Text("It is degaussed there.")]
    )
    run = lab.claude("LOOK-JOB: where is that?")
    assert_healthy(run)
    assert told(run, lab, LESSON)
    lab.wait_digested()
    sessions = lab.api("/api/sessions")["items"]
    (number,) = [row["id"] for row in sessions if row["content_session_id"] == run.session]
    story = lab.api(f"/api/session/{number}/story")
    items = [item for told_once in story["told_at_start"] for item in told_once["items"]]
    assert ("observation", True, "opened") in {(item["kind"], item["used"], item["how"]) for item in items}
    worth = lab.api("/api/worth")
    assert worth["used"] >= 1
    assert worth["sessions_used"] == 1


def test_a_long_file_that_was_read_before_is_outlined_before_it_is_read_again(lab: Lab) -> None:  # noqa: F811
    """The outline is in the request that follows the read, once, and the read itself is not changed."""
    lab.mem("stop")
    change = f"from claude_mem.inject import service; service.COMMAND_SECONDS = {SECONDS}"  # for a busy machine
    worker = forks.start(["serve"], {**lab.env, "CLAUDE_MEM_READ_OUTLINES": "true"}, lab.root, change=change)
    lab.wait_worker()
    long = "".join(f"def jump_{number}():\n    return {number}\n\n" for number in range(60))
    (lab.project / "jumps.py").write_text(long)
    read = Tool("Read", {"file_path": str(lab.project / "jumps.py")})
    lab.server.play("READ-JOB", [read], [Text("`jumps.py` has sixty jumps, and each of them returns its number.")])
    assert_healthy(lab.claude("READ-JOB: what does the file of jumps do?"))
    lab.wait_digested()
    wait_for(lambda: not memory.Client.of(lab.data).get("/api/index")["busy"])  # its files are known from the index
    lab.server.play("AGAIN", [read], [read], [Text("I see.")])
    run = lab.claude("AGAIN: look at the file of jumps")
    assert_healthy(run)
    last = lab.server.of(run.session)[-1]
    outlines = [text for text in last.contexts if "Outline, unchanged since" in text]
    assert len(outlines) == 1
    assert "jump_0 1, jump_1 4" in outlines[0]
    assert (lab.project / "jumps.py").read_text() == long
    lab.mem("stop")
    worker.wait()
