"""What holds for every view: anyone can read it, on any screen and by keyboard alone; it is light; it stays calm."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Response, expect

from claude_mem.system import process
from claude_mem.worker.http.routes import viewer
from tests.support.lab import Lab
from tests.support.waiting import SECONDS, wait_for
from tests.viewer import views
from tests.viewer.conftest import Faults, OpenPage
from tests.viewer.views import VIEWS

ROOT = Path(__file__).parent.parent.parent
AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "build" / "screenshots"
PAGE_BYTES = 150 * 1024
TAB_STOPS = 250
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@dataclass
class Shown:
    """A view, opened once for all that is asked of it, and what it fetched."""

    name: str
    page: Page
    bytes: dict[str, int]


@pytest.fixture(params=VIEWS)
def shown(request: pytest.FixtureRequest, open_page: OpenPage) -> Shown:
    page = open_page()
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108 -- Playwright marks what it is given
    views.show(page, VIEWS[request.param])
    fetched = {answer.url: _size(answer) for answer in answers if not answer.url.endswith("/stream")}
    return Shown(request.param, page, fetched)


def _size(answer: Response) -> int:
    return answer.request.sizes()["responseBodySize"]


def test_every_route_of_the_viewer_is_tested_here() -> None:
    tested = {path.partition("?")[0] for path in VIEWS.values()}
    for route in viewer.PATHS:
        pattern = re.compile(route.replace("{id}", r"\d+"))
        assert any(pattern.fullmatch(path) for path in tested), route


def test_a_view_is_for_everyone(shown: Shown) -> None:
    page = shown.page
    assert sum(shown.bytes.values()) <= PAGE_BYTES, shown.bytes
    assert _broken(page) == []
    assert _without_landmark(page) == []
    _picture(page, f"{shown.name}-light")
    page.emulate_media(color_scheme="dark")
    assert _broken(page, only=["color-contrast"]) == []
    _picture(page, f"{shown.name}-dark")
    assert _unreached(page) == []
    for width in (400, 2560):
        page.set_viewport_size({"width": width, "height": 800})
        views.quiet(page)
        assert _too_wide(page) == []
        _picture(page, f"{shown.name}-{width}")


# --- what is asked of a view -----------------------------------------------------------------------------------------


def _broken(page: Page, *, only: list[str] | None = None) -> list[str]:
    """What axe finds against the rules, each with where it is."""
    if not AXE.exists():
        pytest.skip(f"no axe-core at {AXE}: run `make axe`")
    if not page.evaluate("!!window.axe"):
        page.evaluate(AXE.read_text("utf-8"))
    which: dict[str, Any] = {"type": "rule", "values": only} if only else {"type": "tag", "values": list(RULES)}
    found = page.evaluate("only => axe.run({runOnly: only, resultTypes: ['violations']})", which)
    return [
        f"{rule['id']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def _without_landmark(page: Page) -> list[str]:
    """What a screen reader jumps to."""
    wanted = ("banner", "search", "navigation", "main")
    lost = [role for role in wanted if page.get_by_role(role).count() < 1]  # type: ignore[arg-type]
    return lost + ["one h1"] * (page.locator("h1").count() != 1)


WATCH_FOCUS = """() => {
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
  const stops = [...all].filter(one => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true}));
  const missed = new Set(stops), dark = new Set();
  addEventListener("focusin", ({target}) => {
    const style = getComputedStyle(target);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
    if (!ring && missed.has(target)) dark.add(target);
    missed.delete(target);
  });
  const there = one => one.isConnected && one.checkVisibility({visibilityProperty: true});
  const told = set => [...set].filter(there).map(one => one.outerHTML.slice(0, 160));
  window.__focus = () => [told(missed), told(dark)];
  window.__missed = () => [...missed].filter(there).length;
  document.activeElement.blur();
}"""


def _unreached(page: Page) -> list[str]:
    """What Tab does not come to, and what does not show that it has come."""
    page.evaluate(WATCH_FOCUS)
    pressed = 0
    while (left := page.evaluate("window.__missed()")) and pressed < TAB_STOPS:
        for _ in range(left):
            page.keyboard.press("Tab")
        pressed += left
    missed, dark = page.evaluate("window.__focus()")
    return _without_groups(missed) + [f"no ring: {text}" for text in dark]


def _without_groups(stops: list[str]) -> list[str]:
    """Of radio buttons and of tabs only one is a stop; arrows lead to the rest."""
    return [
        text for text in stops if 'type="radio"' not in text and not ('role="tab"' in text and 'tabindex="-1"' in text)
    ]


TOO_WIDE = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const out = [...document.body.querySelectorAll("*")].filter(one => one.getBoundingClientRect().right > wide + 1);
  return ["wider than the screen", ...out.slice(0, 5).map(one => one.outerHTML.slice(0, 160))];
}"""


def _too_wide(page: Page) -> list[str]:
    found: list[str] = page.evaluate(TOO_WIDE)
    return found


def _picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


# --- calm ------------------------------------------------------------------------------------------------------------

SHIFTS = """() => {
  window.__shifts = [];
  new PerformanceObserver(list => list.getEntries().forEach(entry => window.__shifts.push(
    [entry.value, entry.sources.map(source => source.node?.outerHTML?.slice(0, 100))]))).observe({type: "layout-shift"});
}"""


def test_news_do_not_move_what_is_being_read(page: Page, memory: Lab) -> None:
    views.show(page, "/")
    page.evaluate(SHIFTS)
    page.mouse.wheel(0, 300)
    for number in range(3):
        said = {"session_id": f"news-{number}", "prompt_id": f"n{number}"}
        memory.spool("UserPromptSubmit", prompt=f"Something new, number {number}", **said)
        memory.spool("Stop", last_assistant_message=f"Made number {number} because it was wanted.", **said)
    memory.client().post("/api/processing")
    page.get_by_role("button", name=re.compile("new")).wait_for()
    views.quiet(page)
    assert page.evaluate("window.__shifts") == []


@pytest.fixture
def restarted(memory: Lab) -> Iterator[Lab]:
    """Leaves a worker running for the tests that come after."""
    yield memory
    memory.start()


def test_it_comes_back_by_itself_after_the_worker_was_killed(page: Page, restarted: Lab, faults: Faults) -> None:
    faults.expect("net::ERR_|status of 401")  # nobody answers for a while, and the next worker does not know us
    worker = restarted.client().worker
    views.show(page, "/")
    live = page.locator("#live")
    os.kill(worker.pid, signal.SIGKILL)
    expect(live).to_have_text("reconnecting…")
    restarted.mem("start", CLAUDE_MEM_WORKER_PORT=str(worker.port))
    again = process.running_worker(restarted.data)
    assert again is not None
    assert again.port == worker.port
    expect(live).to_have_text("live")
    page.get_by_role("link", name="Search", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")


def listener_on(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None  # a killed process takes a moment to end


def test_a_request_that_is_never_answered_does_not_stop_it_from_trying_again(
    page: Page, restarted: Lab, faults: Faults
) -> None:
    faults.expect("net::ERR_|status of 401")
    worker = restarted.client().worker
    views.show(page, "/")
    os.kill(worker.pid, signal.SIGKILL)
    expect(page.locator("#live")).to_have_text("reconnecting…")
    with contextlib.ExitStack() as silent:
        with wait_for(lambda: listener_on(worker.port), "the killed worker still has its port") as mute:
            mute.settimeout(SECONDS)
            request = b""
            while b"GET /stream" not in request:
                connection, _ = mute.accept()
                silent.enter_context(connection)
                request = connection.recv(1 << 16)
        restarted.mem("start", CLAUDE_MEM_WORKER_PORT=str(worker.port))
        again = process.running_worker(restarted.data)
        assert again is not None
        assert again.port == worker.port
        expect(page.locator("#live")).to_have_text("live")
