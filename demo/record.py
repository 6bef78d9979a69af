"""Records the session that `replay.py` plays: the real Claude Code, a scripted model, and a hook that writes down
what it is given. Run it again when the client has changed: `python -m demo.record` (needs `make client`).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from claude_mem.agents.claude import EVENTS
from tests.agents.client.harness import find_client, open_lab
from tests.agents.client.model_server import Reply, Text, Tool

HERE = Path(__file__).parent
RECORDER = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' ' + sys.stdin.read().strip() + chr(10))"
TESTS = {"command": "python3 -m unittest -q", "description": "Run the tests"}
BEFORE = "    return max(cents) and sum(cents) / 100\n"
AFTER = "    return sum(cents) / 100\n"

FIX = "An empty price list crashes tally, please fix and commit"
ASK = "How does tally avoid rounding errors?"


def plays(project: Path) -> dict[str, list[Reply]]:
    tally = str(project / "tally.py")
    commit = "git add -A && git commit -m 'Fix the total of an empty price list'"
    return {
        FIX: [
            [
                Text("I'll look at the code and run the tests first."),
                Tool("Read", {"file_path": tally}),
                Tool("Bash", TESTS),
            ],
            [Tool("Edit", {"file_path": tally, "old_string": BEFORE, "new_string": AFTER})],
            [Tool("Bash", TESTS)],
            [Tool("Bash", {"command": commit, "description": "Commit the fix"})],
            [
                Text(
                    "Perfect! All tests pass.\n\nAn empty price list now costs 0.00 and the fix is committed.\n\n**Root cause:**\n"
                    "`total()` called `max()` on an empty list to guard against zero, and `max()` of nothing raises."
                    "\n\n"
                    "**Next steps:**\n- A file with a word in it still ends in a traceback; it should name the line."
                )
            ],
        ],
        ASK: [
            [
                Tool("Bash", {"command": "grep -n round *.py", "description": "Find the rounding"}),
                Tool("Read", {"file_path": tally}),
            ],
            [
                Text(
                    "Each price is turned into whole cents with `round(float(line) * 100)` before anything is added, so "
                    "the sum is a sum of integers. It is divided by 100 only once, at the end, because adding floats "
                    "would let errors pile up. Half cents follow Python's rounding to even."
                )
            ],
        ],
    }


def main() -> int:
    binary, why = find_client()
    if binary is None:
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder), binary=binary) as lab:
        for path in (HERE / "project").iterdir():
            shutil.copy(path, lab.project)
        lab.git("add", "-A")
        lab.git("commit", "-qm", "Add tally")
        log = lab.home / "hooks.log"
        _use_recorder(lab.settings, log)
        for marker, replies in plays(lab.project).items():
            lab.server.play(marker, *replies)
        lab.talk(FIX, ASK)
        _write(log, lab.project, lab.home)
    return 0


def _use_recorder(settings: Path, log: Path) -> None:
    hooks = {
        event: [{"hooks": [{"type": "command", "command": sys.executable, "args": ["-c", RECORDER, str(log), name]}]}]
        for event, name in EVENTS.items()
    }
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"hooks": hooks}))


def _write(log: Path, project: Path, home: Path) -> None:
    """With names in the place of folders: `replay.py` puts its own in."""
    text = log.read_text().replace(str(project), "{project}").replace(str(home), "{home}")
    text = re.sub(r"\{home\}/\.claude/projects/[^\"]+\.jsonl", "{home}/transcript.jsonl", text)
    (HERE / "session.txt").write_text(text)


if __name__ == "__main__":
    main()
