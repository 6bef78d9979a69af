"""How a browser is let in, for tests that have none."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import SECONDS


def enter(url: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """Present the code of a link, as the page does; return the status and the answer (`credential`, `path`)."""
    link = urlsplit(url)
    with closing(HTTPConnection("127.0.0.1", link.port, timeout=SECONDS)) as connection:
        sent = {"Origin": f"http://{link.netloc}", "Content-Type": "application/json", **headers}
        connection.request("POST", link.path, json.dumps({"code": link.fragment}), sent)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def logged_in(url: str) -> dict[str, str]:
    """The headers with which a page that came by this link asks for something."""
    status, entry = enter(url)
    assert status == 200, entry
    return {"Authorization": f"Viewer {entry['credential']}"}


def storage(origin: str, url: str) -> Any:
    """What a browser that came by this link keeps, as Playwright takes it."""
    credential = logged_in(url)["Authorization"].partition(" ")[2]
    return {"origins": [{"origin": origin, "localStorage": [{"name": "credential", "value": credential}]}]}
