"""`make demo KEEP=1`: some days of history, a link, and a command that leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from demo import story
from tests.support import login
from tests.support.waiting import SECONDS

ROOT = Path(__file__).parents[2]


def test_a_play_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "play.txt"
    path.write_text(
        "project: shop\nagent: claude\ndays ago: 2.5\n\n> Fix it\n  please\n$! make\n  two\n  lines\n"
        "~ a.py\n-old\n+new\n+\n+more\n= Done.\n\n  **Next:** nothing\n> Commit\n$ git commit\n"
    )
    steps = (story.Ran("make", "two\nlines", failed=True), story.Changed("a.py", "old\n", "new\n\nmore\n"))
    turns = (
        story.Turn("Fix it\nplease", steps, "Done.\n\n**Next:** nothing"),
        story.Turn("Commit", (story.Ran("git commit", ""),)),
    )
    assert story.read(path) == story.Session("play", "shop", "claude", 2.5, turns)


def test_the_kept_demo_lets_a_browser_in_and_goes_without_a_trace() -> None:
    words = [sys.executable, "-m", "demo.replay", "--keep"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    (folder,) = set(re.findall(r"\S+/claude-mem-demo-\w+(?=$)", said, re.M))
    (end,) = re.findall(r"^  (.* stop; rm -rf .*)$", said, re.M)
    try:
        (link,) = re.findall(r"http://127\.0\.0\.1:\d+/open#\S+", said)
        assert login.enter(link)[1]["credential"]
        command = end.partition(" stop;")[0]
        listed = subprocess.run(["sh", "-c", f"{command} status"], capture_output=True, text=True, check=True).stdout
        assert re.search(r"queued +0 ", listed)
        assert re.search(r"set aside +0 ", listed)
    finally:
        subprocess.run(["sh", "-c", end], check=True, capture_output=True)
    assert not Path(folder).exists()
