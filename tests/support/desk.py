"""A worker in this process, its HTTP, and the hooks that ask it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.testclient import TestClient

from claude_mem.worker.app import Service
from claude_mem.worker.http.api import build_app
from tests.support.lab import COMMANDS, Lab

TOKEN, PORT = "t" * 43, 37777
ROUTES = {"SessionStart": "inject", "UserPromptSubmit": "prompt", "PreToolUse": "file", "PostToolUseFailure": "failure"}


class Desk:
    """A worker's inside and its HTTP, in this process; events come by the spool, as always."""

    def __init__(self, lab: Lab, service: Service) -> None:
        self.lab, self.service, self.db = lab, service, service.db
        app = build_app(service, token=TOKEN, port=PORT)
        self.http = TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers={"Authorization": f"Bearer {TOKEN}"})

    def get(self, path: str, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def story(self, session_id: int, **params: Any) -> Any:
        return self.get(f"/api/session/{session_id}/story", **params)

    def digest(self) -> None:
        asyncio.run(self.service.run_until_idle())

    def say(self, event: str, /, **fields: Any) -> str:
        """Memory is asked at a moment, as the hook asks; what it says."""
        given = {"session_id": "b", "hook_event_name": event, "cwd": str(self.lab.project), **fields}
        head = f"command {COMMANDS[event]}\nhost claude\nproject_dir {self.lab.project}\n\n"
        content = head + json.dumps(given)
        answer = self.http.post(f"/api/context/{ROUTES[event]}", content=content).json()
        return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))

    def tool(
        self, name: str, given: Any, output: Any = "", *, error: str = "", session: str = "b", **more: Any
    ) -> None:
        event, result = (
            ("PostToolUseFailure", {"error": error}) if error else ("PostToolUse", {"tool_response": output})
        )
        self.lab.spool(event, session_id=session, tool_name=name, tool_input=given, **result, **more)

    def bash(self, command: str, output: str = "", **more: Any) -> None:
        self.tool("Bash", {"command": command}, {"stdout": output}, **more)

    def prompt(self, text: str, session: str = "b", **more: Any) -> None:
        self.lab.spool("UserPromptSubmit", session_id=session, prompt=text, **more)

    def stop(self, words: str, session: str = "b", **more: Any) -> None:
        self.lab.spool("Stop", session_id=session, last_assistant_message=words, **more)

    def work(self, session: str, words: str) -> None:
        """A session that mends the rounding of baskets, with an error on the way, and is over."""
        self.prompt("The basket total is off by one cent, please fix the rounding", session)
        self.bash("pytest -q", error="E  decimal.DecimalError: quantize result has too many digits", session=session)
        edit = {"file_path": f"{self.lab.project}/src/basket.py", "old_string": "a", "new_string": "def total(): ..."}
        self.tool("Edit", edit, {}, session=session)
        self.bash("pytest -q", "4 passed", session=session)
        self.stop(words, session)
        self.lab.spool("SessionEnd", session_id=session, reason="other")
        self.digest()
