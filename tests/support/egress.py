"""A whole session with the real hook, worker, search and viewer page; run by test_egress.py where someone watches.

`python -m tests.support.egress FOLDER [model]`; prints one JSON object. With `model`, a scripted provider on this machine.
"""

from __future__ import annotations

import http.client
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from claude_mem.system import process
from tests.models.server import Say, Server
from tests.support import login
from tests.support.lab import Lab
from tests.support.refining import GOOD
from tests.support.waiting import SECONDS, wait_for


class Here(Lab):
    more: dict[str, str]

    def env(self, **more: str) -> dict[str, str]:
        return super().env(**{**self.more, **more})


def main(folder: Path, model: bool) -> dict[str, Any]:
    with Server(Say(GOOD)) if model else nullcontext() as server:
        folder.mkdir()
        lab = Here(folder)
        lab.more = _settings(server) if server else {}
        try:
            return _session(lab, server)
        finally:
            lab.close()


def _settings(server: Server) -> dict[str, str]:
    return {
        "CLAUDE_MEM_PROVIDER": "openai:m1",
        "CLAUDE_MEM_OPENAI_BASE_URL": f"{server.url}/v1",
        "CLAUDE_MEM_OPENAI_API_KEY": "k" * 20,
    }


def _session(lab: Lab, server: Server | None) -> dict[str, Any]:
    client = lab.start()
    lab.hook("SessionStart", source="startup")
    lab.hook("UserPromptSubmit", prompt="Fix the basket totals", prompt_id="p1")
    edit = {"file_path": str(lab.project / "basket.py"), "old_string": "a", "new_string": "b"}
    lab.hook("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, tool_use_id="c1", prompt_id="p1")
    lab.hook("Stop", last_assistant_message="Totals are rounded once, at the very end of it.", prompt_id="p1")
    lab.wait_digested()
    if server is not None:
        wait_for(lambda: server.requests, "the model was not asked")
    start = lab.hook("SessionStart", source="startup", session_id="s2")
    found = client.get("/api/search", query="basket totals")["items"]
    worker = process.running_worker(lab.data)
    assert worker is not None
    return {
        "told": "basket" in json.dumps(start).lower(),
        "found": len(found),
        "page": _page(worker.port, client.post("/api/open", {})["url"]),
        "worker": worker.port,
        "provider": server.port if server else None,
        "asked": len(server.requests) if server else 0,
    }


def _page(port: int, url: str) -> int:
    """As a browser opens it: the page, the code of the link that works once, then what the page asks for."""
    credential = login.logged_in(url)
    statuses = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    for path in ("/", "/api/feed"):
        connection.request("GET", path, headers=credential)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()
    return max(statuses)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), "model" in sys.argv[2:])))
