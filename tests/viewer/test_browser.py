"""The laboratory itself: what a page may not do is seen, and fails the test."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.viewer.conftest import Faults

BAD = b"""<!doctype html><title>bad</title>
<script>console.error("said aloud")</script>
<script>setTimeout(() => { throw new Error("thrown") })</script>
<script>alert("a dialog")</script>
<img src="http://example.com/pixel.png">
<h1>Ready</h1>"""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A page that does all of it, from a server that is not ours."""

    class Bad(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if "strict" in self.path:
                self.send_header("Content-Security-Policy", "script-src 'none'")
            self.end_headers()
            self.wfile.write(BAD)

        def log_message(self, *_: object) -> None:
            """Not into the test's output."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bad)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_logged_in_page_opens_and_text_has_a_width(page: Page) -> None:
    answer = page.goto("/")
    assert answer is not None
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    wide, narrow = page.evaluate(
        """() => ["MMMM", "iiii"].map(text => {
             const pen = document.createElement("canvas").getContext("2d");
             pen.font = getComputedStyle(document.body).font;
             return pen.measureText(text).width;
           })"""
    )
    assert wide > narrow > 0  # without a font, nothing is drawn and every letter is a box


def test_what_a_page_may_not_do_is_seen(page: Page, faults: Faults, elsewhere: str) -> None:
    page.goto(elsewhere)
    page.goto(f"{elsewhere}/strict")
    for wanted in (
        "said aloud",
        "thrown",
        "a dialog",
        "example.com",
        "request to elsewhere",
        "policy broken: script-src",
    ):
        assert any(wanted in fault for fault in faults.seen), (wanted, faults.seen)
    assert faults.unexpected()
    faults.expect("")
