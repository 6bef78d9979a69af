"""What the user insists on in one session stands first in the next one's request, in the real Claude Code."""

import pytest

from .harness import Lab
from .model_server import Text, Tool
from .test_real_client import assert_healthy, lab  # noqa: F401 -- the fixture

pytestmark = pytest.mark.client

RULE = "Always run make fmt before a commit"


def test_the_next_session_is_told_the_rule_and_the_work(lab: Lab) -> None:  # noqa: F811
    (lab.project / "pump.py").write_text("PUMP = 1\n")
    edit = {"file_path": str(lab.project / "pump.py"), "old_string": "PUMP = 1", "new_string": "PUMP = 2"}
    read = Tool("Read", {"file_path": str(lab.project / "pump.py")})
    said = "Perfect! All tests pass.\n\nThe pump in `pump.py` runs with two strokes now, because one stalled.\n\nAnything else?"
    lab.server.play("PUMP-JOB", [read], [Tool("Edit", edit)], [Text(said)])
    assert_healthy(lab.claude(f"PUMP-JOB: make the pump stronger. {RULE}."))
    lab.wait_digested()
    lab.server.play("NEXT-JOB", [Text("I know.")])
    run = lab.claude("NEXT-JOB: what now?")
    assert_healthy(run)
    (brief,) = [text for text in lab.server.of(run.session)[0].contexts if "### What the user asked for" in text]
    assert RULE in brief
    assert "two strokes now" in brief
    assert brief.index(RULE) < brief.index("two strokes now")
    assert "All tests pass" not in brief
