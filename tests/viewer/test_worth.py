"""The page of what memory is worth, over sessions that were really asked for by the hooks, a third of their moments silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from claude_mem.config import load
from claude_mem.worker.app import Service
from tests.support.desk import Desk
from tests.support.lab import Lab
from tests.viewer import views
from tests.viewer.conftest import OpenPage

PICTURES = Path(__file__).parents[2] / "build" / "screenshots"
SESSIONS = 36
HOLDOUT = {"CLAUDE_MEM_HOLDOUT": "0.5"}
TOPICS = ("basket", "voucher", "parcel")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("worth"))
    try:
        with ThreadPoolExecutor(1) as pool:  # the browser has an event loop in this thread
            pool.submit(replay, lab).result()
        lab.start(**HOLDOUT)
        yield lab
    finally:
        lab.close()


def replay(lab: Lab) -> None:
    """Three pieces of work, and many sessions that go on with one of them; a session that is told of its piece opens the
    file more often than one that is not."""

    async def build() -> Service:
        return Service(load({**lab.env(), **HOLDOUT}))

    desk = Desk(lab, asyncio.run(build()))
    try:
        for topic in TOPICS:
            desk.prompt(f"Fix the rounding of the {topic} please", topic)
            path = f"{lab.project}/src/{topic}.py"
            desk.tool(
                "Edit", {"file_path": path, "old_string": "a", "new_string": "def total(): ..."}, {}, session=topic
            )
            desk.stop(f"The {topic} totals are rounded once at the end, because lines added up to a cent.", topic)
            desk.lab.spool("SessionEnd", session_id=topic, reason="other")
        desk.digest()
        for number in range(SESSIONS):
            follow_up(desk, f"s{number}", TOPICS[number % len(TOPICS)], number)
        desk.digest()
    finally:
        desk.service.close()


def follow_up(desk: Desk, name: str, topic: str, number: int) -> None:
    desk.lab.spool("SessionStart", session_id=name, source="startup")
    told = desk.say("SessionStart", session_id=name, source="startup")
    words = f"Why are the {topic} totals rounded once at the end, number {number}?"
    desk.prompt(words, name)
    told += desk.say("UserPromptSubmit", session_id=name, prompt=words)
    opens = topic if topic in told or number % 4 == 0 else "readme"
    desk.tool("Read", {"file_path": f"{desk.lab.project}/src/{opens}.py"}, "text " * 40, session=name)
    desk.stop("Because lines added up to a cent.", name)
    desk.lab.spool("SessionEnd", session_id=name, reason="other")
    if number % 6 == 5:
        desk.digest()


def test_the_page_shows_the_figures_of_the_route(open_page: OpenPage, memory: Lab) -> None:
    page = open_page()
    views.show(page, "/worth")
    worth = memory.client().get("/api/worth")
    assert worth["sessions_used"] > 0
    assert worth["lift"]["p"] is not None
    assert worth["holdout"]["silent"] > 0
    expect(page.get_by_role("heading", name="What memory is worth here")).to_be_visible()
    sessions = page.locator(".panel").filter(has=page.get_by_role("heading", name="Sessions", exact=True))
    expect(sessions).to_contain_text(f"in all{worth['sessions']}")
    lift = page.locator(".panel").filter(has=page.get_by_role("heading", name="Lift over other sessions"))
    expect(lift).to_contain_text(f"p = {worth['lift']['p']:.3f}")
    effect = page.locator(".panel").filter(has=page.get_by_role("heading", name="Effect of speaking"))
    expect(effect).to_contain_text(f"kept silent{worth['holdout']['silent']}")
    expect(effect).to_contain_text("Characters read before the first edit: too little to say")
    table = page.get_by_role("table", name="What was shown and used, by trigger")
    expect(table.get_by_role("row")).to_have_count(len(worth["triggers"]) + 1)


def test_a_period_and_a_project_can_be_chosen(open_page: OpenPage, memory: Lab) -> None:
    page = open_page()
    views.show(page, "/worth")
    page.get_by_label("Over").select_option("7")
    page.wait_for_url("**/worth?days=7**")
    page.get_by_label("Project").select_option(label=memory.project.name)
    page.wait_for_url("**project_id=1**")
    views.quiet(page)
    expect(page.get_by_role("heading", name="Lift over other sessions")).to_be_visible()


def test_a_session_says_what_was_held_back_and_what_was_used(open_page: OpenPage, memory: Lab) -> None:
    page = open_page()
    told = {
        row["id"]: each
        for row in memory.client().get("/api/sessions", limit=50)["items"]
        for turn in memory.client().get(f"/api/session/{row['id']}/story")["turns"]
        for each in turn["told"]
    }
    shown = next(
        number
        for number, each in told.items()
        if not each["held_out"] and any(item["how"] == "opened" for item in each["items"])
    )
    views.show(page, f"/session/{shown}")
    page.get_by_text("Injected at the prompt").first.click()
    expect(page.get_by_text("file opened").first).to_be_visible()
    silent = next(number for number, each in told.items() if each["held_out"])
    views.show(page, f"/session/{silent}")
    expect(page.get_by_text("Held back, for comparison, at the prompt").first).to_be_visible()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 400)])
def test_pictures_to_look_at(open_page: OpenPage, theme: Any, width: int) -> None:
    page = open_page(theme=theme, width=width)
    PICTURES.mkdir(parents=True, exist_ok=True)
    views.show(page, "/worth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=PICTURES / f"worth-{theme}-{width}.png", full_page=True)
