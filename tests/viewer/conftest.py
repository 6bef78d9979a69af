"""A real browser on a real worker. Whatever a page may not do fails the test that made it do it.

`page` is logged in and blank: `page.goto("/search?q=tax")` opens a view. `open_page(theme=…, width=…)` gives more of
them. `memory` is the laboratory behind them, with the history of history.py, shared by the tests of one file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

from tests.support import login
from tests.support.lab import Lab
from tests.support.waiting import SECONDS
from tests.viewer import history

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP localhost 127.0.0.1, MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing outside
)  # fmt: skip
# Runs before the page's own: it reports broken rules, and counts the answers that are still awaited.
WATCH = """addEventListener("securitypolicyviolation", event =>
  console.error(`policy broken: ${event.violatedDirective} by ${event.blockedURI} ${event.sample}`));
const ask = window.fetch;
window.__asking = 0;
window.fetch = (...given) => (window.__asking++, ask(...given).finally(() => setTimeout(() => window.__asking--)));"""
expect.set_options(timeout=SECONDS * 1000)
Theme = Literal["light", "dark"]
OpenPage = Callable[..., Page]


@dataclass
class Faults:
    """What pages did that they may not do: errors, broken rules, requests to elsewhere."""

    seen: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def expect(self, pattern: str) -> None:
        """This test wants it to happen."""
        self.expected.append(pattern)

    def unexpected(self) -> list[str]:
        return [fault for fault in self.seen if not any(re.search(known, fault) for known in self.expected)]

    def watch(self, context: BrowserContext, origin: str) -> None:
        context.add_init_script(WATCH)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.seen.append(f"error: {error.error}"))
        context.on("dialog", self._dialog)
        context.on("request", lambda request: self._request(request, origin))
        context.on("page", lambda page: page.on("crash", lambda _: self.seen.append("crash")))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.seen.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _dialog(self, dialog: Dialog) -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request, origin: str) -> None:
        if not request.url.startswith((f"{origin}/", "data:", "blob:", "about:")):
            self.seen.append(f"request to elsewhere: {request.url}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for each file: as long as it runs, so does an event loop, and other tests could not run their own."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: run `make browser`")
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(FLAGS)
    env: dict[str, str | float | bool] = {"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("browser"))}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags, env=env)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A worker that runs and knows two projects."""
    lab = Lab(tmp_path_factory.mktemp("viewer"))
    try:
        history.tell(lab)
        yield lab
    finally:
        lab.close()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def open_page(browser: Browser, memory: Lab, faults: Faults) -> Iterator[OpenPage]:
    """Opens logged-in pages, each in a browser that has never been here; afterwards nothing wrong may have happened."""
    contexts: list[BrowserContext] = []

    def opened(*, theme: Theme = "light", width: int = 1280, height: int = 800) -> Page:
        client = memory.client()
        origin = f"http://127.0.0.1:{client.worker.port}"
        context = browser.new_context(
            base_url=origin,
            color_scheme=theme,
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
            storage_state=login.storage(origin, client.post("/api/open")["url"]),
        )
        contexts.append(context)
        context.set_default_timeout(SECONDS * 1000)
        faults.watch(context, origin)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()
    assert faults.unexpected() == []


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page()
