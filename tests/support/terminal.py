"""A person at a real terminal."""

from __future__ import annotations

import os
import select
import subprocess

from tests.support.lab import MEM, Lab
from tests.support.waiting import SECONDS


class Terminal:
    """A person at a real terminal, who reads a question before answering it."""

    def __init__(self, lab: Lab, *words: str, **env: str) -> None:
        self.ours, theirs = os.openpty()
        self.running = subprocess.Popen(
            [*MEM, *words], env=lab.env(TERM="dumb", **env), stdin=theirs, stdout=theirs, stderr=theirs, cwd=lab.project
        )
        os.close(theirs)
        self.text = ""

    def answer(self, question: str, keys: str) -> None:
        """Wait for the question, type the keys, and forget what was shown."""
        while question not in self.text:
            assert self._read(), f"it ended without asking: {self.text}"
        self.shown, self.text = self.text, ""
        os.write(self.ours, keys.encode())

    def _read(self) -> bool:
        ready, _, _ = select.select([self.ours], [], [], SECONDS)
        assert ready, self.text
        try:
            self.text += os.read(self.ours, 65536).decode()
        except OSError:  # the other side is closed
            return False
        return True

    def finish(self) -> str:
        """Return the rest of what was shown."""
        while self._read():
            pass
        os.close(self.ours)
        assert self.running.wait(SECONDS) == 0, self.text
        return self.text
