"""What goes on beside the work, each in a thread of its own: people who search, and who look on."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from lab import Home

from claude_mem.client import Client

LOCKED = b"database is locked"


class Beside:
    """Until it is told to stop. `problems`: no answer, one of 5xx, or one that speaks of a lock."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.worker = Client.of(home.data).worker
        self.over = threading.Event()
        self.searches: list[float] = []  # milliseconds
        self.answers = 0
        self.heard = 0
        self.problems: list[str] = []
        self._threads: list[threading.Thread] = []

    def start(self, *work: Callable[[], None], viewers: int) -> None:
        self._threads = [threading.Thread(target=one, daemon=True) for one in work]
        for thread in [*self._threads, *(threading.Thread(target=self._look, daemon=True) for _ in range(viewers))]:
            thread.start()

    def stop(self) -> None:
        """All but the viewers, who stay until the worker goes."""
        self.over.set()
        for thread in self._threads:
            thread.join()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """The status and the answer; 0 where there was none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.worker.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.worker.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, said = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            status, said = 0, str(error).encode()
        finally:
            connection.close()
        self.answers += 1
        if status == 0 or status >= 500 or LOCKED in said:
            self.problems.append(f"{method} {path}: {status} {said[:200]!r}")
        return status, said

    def search(self, question: Callable[[], str], *, every: float) -> None:
        taken = 0.0
        while not self.over.wait(max(0.0, every - taken)):
            begun = time.perf_counter()
            self.ask("GET", f"/api/search?query={quote(question())}")
            taken = time.perf_counter() - begun
            self.searches.append(taken * 1000)

    def _look(self) -> None:
        """As a viewer does that is open in a browser."""
        connection = http.client.HTTPConnection("127.0.0.1", self.worker.port, timeout=60)
        with contextlib.suppress(OSError, http.client.HTTPException):  # it ends with the worker
            connection.request("GET", "/stream", headers={"Authorization": f"Bearer {self.worker.token}"})
            for line in connection.getresponse():
                self.heard += line.startswith(b"data:")
