"""How quick the viewer is with 100,000 observations, in a real browser: first paint, and the time from an action to its
result on the screen.

    python bench/viewer.py [--size N] [--out FOLDER]

A time is taken in the page, from the event to the picture after the change. Searching waits 60 ms for the next letter
before it asks; that is in the figure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import figures
from figures import Figure, at_most, percentile
from lab import Broken, Home, Lab
from playwright.sync_api import Browser, Page, Response, sync_playwright
from recall_scale import Words, fill

from claude_mem.client import Client
from claude_mem.storage.sqlite.engine import Connection

SIZE, LOADS, ACTIONS, WARM_UP = 100_000, 20, 30, 3
PAINT_MS, ACTION_MS, PAGE_BYTES = 300, 100, 150 * 1024
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")
TYPES = ("change", "bugfix", "feature", "decision", "discovery", "refactor")
# Do something, wait until it shows, and for the picture: how long it took.
TIMED = """async ([act, shown]) => {
  const began = performance.now();
  const done = new Function(`return ${shown}`), start = new Function(act);
  start();
  while (!done()) {
    if (performance.now() - began > 10000) throw new Error(`never: ${shown}`);
    await new Promise(requestAnimationFrame);
  }
  await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
  return performance.now() - began;
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
THERE = "document.querySelectorAll('.feed .card').length"


def main() -> int:
    options = _options()
    with Lab() as lab:
        setting = figures.setting(lab.root)
        found = _measure(lab, options.size)
    print(figures.as_text(found))
    if folder := options.out or (Path(__file__).with_name("results") if options.size == SIZE else None):
        figures.write(folder / "viewer", f"The viewer with {options.size:,} observations", found, setting)
    return int(any(figure.missed for figure in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the viewer against its goals.")
    parser.add_argument("--size", type=int, default=SIZE, help="observations")
    parser.add_argument("--out", type=Path, help="write the results there")
    return parser.parse_args()


def _measure(lab: Lab, size: int) -> list[Figure]:
    home = lab.home("viewer")
    home.data.mkdir(parents=True, mode=0o700)
    print(f"making {size:,} observations …", file=sys.stderr, flush=True)
    fill(home, size, then=_varied)
    home.start()
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        raise Broken("no Chromium: run `make browser`")
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(FLAGS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        found = [*_loads(browser, home), *_actions(browser, home)]
        browser.close()
    home.end()
    return found


def _varied(conn: Connection) -> None:
    """Types, concepts and files of many kinds, as a grown memory has them."""
    kinds = ", ".join(f"({number}, '{name}')" for number, name in enumerate(TYPES))
    conn.execute(
        f"with kinds (number, name) as (values {kinds}) update observations set"
        f" type = (select name from kinds where number = id % {len(TYPES)}),"
        " concepts = json_array('pattern', 'topic-' || (id % 40)),"
        " files_modified = json_array(printf('src/part%d/file%d.py', id % 30, id % 900))"
    )


def _enter(browser: Browser, home: Home) -> Page:
    """In a browser that has never been here: nothing is kept from before. The page's rules would keep us from asking it
    things in words, so they are left out; they cost nothing."""
    client = Client.of(home.data)
    origin, link = f"http://127.0.0.1:{client.worker.port}", client.post("/api/open")["url"]
    context = browser.new_context(base_url=origin, viewport={"width": 1280, "height": 800}, bypass_csp=True)
    code = link.partition("#")[2]
    entry = context.request.post("/open", headers={"Origin": origin}, data={"code": code}).json()
    context.add_init_script(f"localStorage.setItem('credential', '{entry['credential']}')")
    return context.new_page()


# --- the first look --------------------------------------------------------------------------------------------------


def _loads(browser: Browser, home: Home) -> list[Figure]:
    print("first paint …", file=sys.stderr, flush=True)
    paints, feeds, weights = [], [], []
    for number in range(LOADS + WARM_UP):
        page = _enter(browser, home)
        answers: list[Response] = []
        page.on("response", _into(answers))
        page.goto("/")
        page.wait_for_function(f"{THERE} > 5")
        shown: float = page.evaluate("performance.now()")
        if number >= WARM_UP:
            paints.append(float(page.evaluate(PAINTED)))
            feeds.append(shown)
            weights.append(sum(_size(answer) for answer in answers))
        page.context.close()
    return [
        *_figures("first contentful paint", paints, PAINT_MS),
        *_figures("the feed is there", feeds, None),
        Figure("page weight, home", max(weights) / 1024, "KB", len(weights), at_most(PAGE_BYTES / 1024)),
    ]


def _into(answers: list[Response]) -> Callable[[Response], None]:
    def note(answer: Response) -> None:
        if not answer.url.endswith("/stream"):
            answers.append(answer)

    return note


def _size(answer: Response) -> int:
    return answer.request.sizes()["responseBodySize"]


# --- doing something -------------------------------------------------------------------------------------------------


def _actions(browser: Browser, home: Home) -> list[Figure]:
    print("interactions …", file=sys.stderr, flush=True)
    page = _enter(browser, home)
    page.goto("/")
    page.wait_for_function(f"{THERE} > 5")
    found = [
        *_figures("a letter typed into the search", _type(page), ACTION_MS),
        *_figures("a filter chosen", _filter(page), ACTION_MS),
        *_figures("the next page", _more(page), ACTION_MS),
        *_figures(
            "an observation opened", _open(page, "/observation/", ".feed .card h3 a[href^='/observation']"), ACTION_MS
        ),
        *_figures("a session opened", _open(page, "/session/", ".feed .meta a[href^='/session']"), ACTION_MS),
        *_figures("a project opened", _open(page, "/project/", ".feed .meta a[href^='/project']"), ACTION_MS),
    ]
    page.context.close()
    return found


def _timed(page: Page, act: str, shown: str) -> float:
    return float(page.evaluate(TIMED, [act, shown]))


def _type(page: Page) -> list[float]:
    """Letter by letter, each until its own results are there."""
    words = Words(1)
    times: list[float] = []
    while len(times) < ACTIONS + WARM_UP:
        question = words.question()[:14]
        for end in range(3, len(question), 3):
            said = question[:end].strip()
            act = f"const box = document.getElementById('find'); box.focus(); box.value = {said!r}; box.dispatchEvent(new Event('input', {{bubbles: true}}))"
            page.evaluate("document.querySelectorAll('#view .card, #view .empty').forEach(one => one.dataset.old = 1)")
            shown = f"location.search.includes(new URLSearchParams({{q: {said!r}}})) && document.querySelector('#view .card:not([data-old]), #view .empty:not([data-old])')"
            times.append(_timed(page, act, shown))
    return times[WARM_UP:]


def _home(page: Page) -> None:
    page.evaluate("document.querySelector('.brand').click()")
    page.wait_for_function(f"location.pathname === '/' && !document.querySelector('#view[aria-busy]') && {THERE} > 5")


def _filter(page: Page) -> list[float]:
    times = []
    _home(page)
    for number in range(ACTIONS + WARM_UP):
        kind = TYPES[number % len(TYPES)]
        act = f"const box = [...document.querySelectorAll('#view select')].find(one => [...one.options].some(option => option.value === {kind!r})); box.value = {kind!r}; box.dispatchEvent(new Event('change', {{bubbles: true}}))"
        shown = f"(marks => marks.length > 5 && marks.every(mark => mark.dataset.type === {kind!r}))([...document.querySelectorAll('.feed .card .mark')])"
        times.append(_timed(page, act, shown))
    return times[WARM_UP:]


def _more(page: Page) -> list[float]:
    times = []
    page.goto("/")
    page.wait_for_function(f"{THERE} > 5")
    for _ in range(ACTIONS + WARM_UP):
        page.wait_for_timeout(50)
        before = page.evaluate(THERE)
        times.append(_timed(page, "document.querySelector('button.more').click()", f"{THERE} > {before}"))
    return times[WARM_UP:]


def _open(page: Page, path: str, link: str) -> list[float]:
    times = []
    for number in range(ACTIONS + WARM_UP):
        page.goto("/")
        page.wait_for_function(f"document.querySelector({link!r})")
        if number:  # its script has been loaded once, as in a tab that is kept open
            page.evaluate(f"import('/static/views/{path.strip('/')}.js')")
        links = f"document.querySelectorAll({link!r})"
        act = f"const links = {links}; links[{number} % links.length].click()"
        shown = f"location.pathname.startsWith({path!r}) && !document.querySelector('#view[aria-busy]') && document.querySelector('#view > *')"
        times.append(_timed(page, act, shown))
    return times[WARM_UP:]


def _figures(name: str, times: Sequence[float], goal: float | None) -> list[Figure]:
    return [
        Figure(f"{name}, p{percent}", percentile(times, percent), "ms", len(times), at_most(goal) if goal else None)
        for percent in (50, 95)
    ]


if __name__ == "__main__":
    sys.exit(main())
