"""A week of work in the real Claude Code: the next session's request has what holds, and none of what does not.

Its days: a commit that is reverted, a decision that is overturned, an attempt that is abandoned, a file that is deleted, a
folder that is renamed, and a correction by the user.
"""

import pytest

from .harness import Lab
from .model_server import Reply, Text, Tool
from .test_real_client import assert_healthy, bash, lab  # noqa: F401 -- the fixture

pytestmark = pytest.mark.client


def code(name: str, verb: str) -> str:
    """A file of nine lines that occur nowhere else."""
    return "".join(
        f"def {name}_{number}(engine): return engine.{verb}({number}, limit={number}00)\n" for number in range(9)
    )


def work(lab: Lab, marker: str, path: str, text: str, *, commit: str = "", said: str = "Done.") -> None:  # noqa: F811
    """A session that writes a file, perhaps commits it, and says what it did."""
    replies: list[Reply] = [[Tool("Write", {"file_path": str(lab.project / path), "content": text})]]
    if commit:
        replies.append([bash(f"git add -A && git commit -q -m '{commit}'")])
    lab.server.play(marker, *replies, [Text(said)])
    assert_healthy(lab.claude(f"{marker}: please change {path}"))
    lab.wait_digested()


def talk(lab: Lab, marker: str, prompt: str, said: str) -> None:  # noqa: F811
    """A session in which nothing is edited."""
    lab.server.play(marker, [Text(said)])
    assert_healthy(lab.claude(f"{marker}: {prompt}"))
    lab.wait_digested()


def brief(lab: Lab, marker: str) -> str:  # noqa: F811
    """What a new session is given in its first request."""
    lab.server.play(marker, [Text("I know.")])
    run = lab.claude(f"{marker}: hello")
    assert_healthy(run)
    return "\n".join(lab.server.of(run.session)[0].contexts)


CORRECTION = "We use tabs instead of spaces here"
HOLDS = {
    "the renamed folder": "Added the gauge driver with nine sensors",
    "the decision that took over": "Use sqlite instead of redis for the queue",
    "the user's correction": CORRECTION,
}
GONE = {
    "the reverted commit": "Added the turbo injector with nine stages",
    "the abandoned attempt": "The plasma mixer stirs the fuel in nine turns",
    "the deleted file": "Added the tea machine for nine officers",
    "the decision that was overturned": "Use redis for the queue",
    "what the user corrected": "We use spaces here",
}


def test_a_week_later_a_session_is_given_what_holds_and_none_of_what_does_not(lab: Lab) -> None:  # noqa: F811
    work(lab, "MONDAY", "drivers/gauge.py", code("gauge", "read"), commit="Add the gauge driver with nine sensors")
    work(lab, "TUESDAY", "turbo.py", code("turbo", "press"), commit="Add the turbo injector with nine stages")
    work(lab, "WEDNESDAY", "tea.py", code("tea", "brew"), commit="Add the tea machine for nine officers")
    work(lab, "THURSDAY", "mixer.py", code("mixer", "stir"), said=f"{GONE['the abandoned attempt']}, since it clotted.")
    lab.mem("save", GONE["the decision that was overturned"])
    talk(lab, "FRIDAY", "look at the mixer. We use spaces here.", "It is indented with four spaces.")
    before = brief(lab, "BEFORE")
    assert [what for what, words in GONE.items() if words not in before] == [], "all of it held once"
    assert HOLDS["the renamed folder"] in before

    lab.git("revert", "--no-edit", "HEAD~1")  # the turbo
    (lab.project / "mixer.py").unlink()  # the attempt was never committed
    lab.git("rm", "-q", "tea.py")
    lab.git("mv", "drivers", "instruments")
    lab.git("commit", "-q", "-m", "Remove the tea machine, rename the drivers")
    lab.mem("save", HOLDS["the decision that took over"])
    talk(lab, "SATURDAY", f"look at the mixer again. {CORRECTION}.", "Tabs from now on.")
    after = brief(lab, "SUNDAY")
    assert [what for what, words in HOLDS.items() if words not in after] == []
    assert [what for what, words in GONE.items() if words in after] == []
