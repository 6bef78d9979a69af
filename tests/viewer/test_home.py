"""Home and search, in the browser."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Page, Route, expect

from claude_mem import hook
from tests.support.lab import Lab
from tests.viewer import views
from tests.viewer.conftest import Faults
from tests.viewer.history import settled


def _turn(lab: Lab, session: str, prompt: str, said: str) -> None:
    lab.spool("UserPromptSubmit", session_id=session, prompt=prompt)
    lab.spool("Stop", session_id=session, last_assistant_message=said)
    lab.client().get("/api/health")


def opened(page: Page, lab: Lab) -> None:
    """Open home when nothing is on its way any more: whatever comes now comes after all that is shown."""
    settled(lab.client())
    views.show(page, "/")


def test_home_shows_what_happens_and_what_was_remembered(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Recent memory")
    expect(page.locator("#live")).to_have_text("live")
    now = page.get_by_role("complementary", name="Now")
    expect(now).to_contain_text("City names overlap")
    expect(now).to_contain_text("turn 2 running")
    expect(now).to_contain_text("set aside")
    feed = page.locator(".feed")
    expect(feed.locator("h2").first).to_have_text("Today")
    expect(feed.locator(".card.observation").first).to_be_visible()
    expect(feed.locator(".card.summary").first).to_be_visible()
    expect(feed.locator(".card.prompt").first).to_be_visible()


def test_filters_are_in_the_address_and_come_back_with_it(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Type").select_option("bugfix")
    page.wait_for_url("**/?type=bugfix")
    expect(page.locator(".card.prompt")).to_have_count(0)
    marks = page.locator(".feed .card .mark").evaluate_all("all => all.map(mark => mark.dataset.type)")
    assert set(marks) == {"bugfix"}
    page.reload()
    expect(page.get_by_label("Type")).to_have_value("bugfix")
    assert page.locator(".feed .card").count() == len(marks)
    page.get_by_label("Agent").select_option("codex")
    page.get_by_label("Concept").select_option("trade-off")
    expect(page.locator(".empty")).to_contain_text("Nothing matches these filters")
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_url(re.compile(r"/$"))
    expect(page.locator(".card.prompt").first).to_be_visible()


def test_what_is_new_waits_for_a_click_and_moves_nothing(page: Page, memory: Lab) -> None:
    opened(page, memory)
    first = page.locator(".feed .card").first
    place, before = first.bounding_box(), first.get_attribute("data-id")
    _turn(memory, "news", "Please rename the harbour to port", "Renamed the harbour to port.")
    new = page.get_by_role("button", name=re.compile(r"new · show"))
    expect(new).to_be_visible()
    assert (first.bounding_box(), first.get_attribute("data-id")) == (place, before)
    new.click()
    expect(page.locator(".feed")).to_contain_text("rename the harbour")
    expect(new).to_have_count(0)


def test_what_is_saved_by_hand_is_told_at_once(page: Page, memory: Lab) -> None:
    opened(page, memory)
    memory.client().post("/api/memory/save", {"text": "The lift stops at nine.", "project": "shop"})
    page.get_by_role("button", name=re.compile(r"new · show")).click()
    expect(page.locator(".feed")).to_contain_text("The lift stops at nine.")


def test_what_was_done_before_the_newest_is_new_as_well(page: Page, memory: Lab) -> None:
    opened(page, memory)
    then = int(time.time() * 1000) - 60 * 60_000
    memory.spool("UserPromptSubmit", session_id="slow", prompt="Please paint the lighthouse", at=then)
    memory.spool("Stop", session_id="slow", last_assistant_message="The lighthouse is white now.", at=then + 1000)
    hook.wake_or_start_worker(str(memory.data))
    page.get_by_role("button", name=re.compile(r"new · show")).click()
    expect(page.locator(".feed")).to_contain_text("paint the lighthouse")


def test_what_is_taken_back_leaves_every_list_that_shows_it(page: Page, memory: Lab) -> None:
    client = memory.client()
    first, second = (
        client.post("/api/memory/save", {"text": f"The {what} is closed in winter.", "project": "shop"})["id"]
        for what in ("pier", "ferry")
    )
    page.goto("/search?q=closed+in+winter")
    expect(page.locator(f"[data-id=observation-{first}]")).to_be_visible()
    page.get_by_role("link", name="Home").click()
    expect(page.locator(f"[data-id=observation-{second}]")).to_be_visible()
    expect(page.locator("#live")).to_have_text("live")
    views.quiet(page)
    client.patch(f"/api/observation/{second}", {"title": "The ferry rests in winter"})
    expect(page.locator(f"[data-id=observation-{second}]")).to_contain_text("The ferry rests in winter")
    page.locator(f"[data-id=observation-{first}] h3 a").click()
    page.get_by_role("button", name="Forget…").click()
    page.get_by_role("button", name="Forget (undo within 30 days)").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Observation {first} is forgotten")
    page.go_back()
    expect(page.locator(f"[data-id=observation-{second}]")).to_be_visible()
    expect(page.locator(f"[data-id=observation-{first}]")).to_have_count(0)
    page.go_back()
    page.wait_for_url("**/search*")
    expect(page.locator(f"[data-id=observation-{second}]")).to_be_visible()
    expect(page.locator(f"[data-id=observation-{first}]")).to_have_count(0)


def test_a_prompt_that_was_private_after_all_leaves_the_feed(page: Page, memory: Lab) -> None:
    memory.hook("UserPromptSubmit", session_id="shy", prompt="The diary is under the bed", prompt_id="d1")
    page.goto("/")
    expect(page.locator(".feed")).to_contain_text("diary is under the bed")
    expect(page.locator("#live")).to_have_text("live")
    memory.spool("UserPromptSubmit", session_id="shy", prompt="", header="private yes\n", prompt_id="d1")
    hook.wake_or_start_worker(str(memory.data))
    expect(page.locator("main")).not_to_contain_text("diary")


def test_search_from_the_keyboard_alone(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("expired vouch")
    page.wait_for_url("**/search?q=expired+vouch")
    card = page.locator(".feed .card").first
    expect(card).to_contain_text("voucher")
    expect(card.locator("mark").first).to_be_visible()
    expect(card.locator(".why")).to_contain_text("Found by")
    expect(page.get_by_text("for “expired vouch”")).to_be_visible()  # what is there now is the answer to all of it
    page.keyboard.press("ArrowDown")
    expect(page.locator(".feed .card h3 a").first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".feed .card h3 a").nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/(observation|session)/\d+"))
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("expired vouch")


def test_enter_never_opens_what_an_older_question_found(page: Page) -> None:
    page.goto("/search?q=voucher")
    expect(page.locator(".feed .card").first).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/search?*", hold, times=1)  # the answer takes its time
    page.get_by_role("searchbox").fill("border of Chile")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=border+of+Chile")
    held[0].continue_()
    expect(page.locator(".feed .card").first).to_contain_text("border", ignore_case=True)
    assert page.url.endswith("/search?q=border+of+Chile")


def test_results_are_grouped_by_session(page: Page) -> None:
    page.goto("/search?q=voucher")
    expect(page.locator(".feed .card").first).to_be_visible()
    page.get_by_label("Group by").select_option("session")
    page.wait_for_url("**group=session*")
    heading = page.locator("section.feed h3.group").first
    expect(heading).to_contain_text("record")
    expect(page.locator("section.feed .card").first).to_be_visible()
    heading.get_by_role("link").click()
    page.wait_for_url("**/session/*")


def test_a_search_can_be_shared_and_finds_nothing_in_words(page: Page) -> None:
    page.goto("/search?q=border+of+Chile&type=bugfix")
    expect(page.locator(".feed .card").first).to_contain_text("border", ignore_case=True)
    page.goto("/search?q=zzqxv")
    expect(page.locator(".empty")).to_contain_text("Nothing is remembered about “zzqxv”")
    page.goto("/search")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_a_page_that_is_none_says_so(page: Page, faults: Faults) -> None:
    faults.expect("404")
    page.goto("/observation/999999")
    expect(page.get_by_role("heading", level=1)).to_contain_text("there is no observation 999999", ignore_case=True)


def test_the_theme_is_kept(page: Page) -> None:
    page.goto("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_it_comes_back_by_itself_when_the_worker_does(page: Page, memory: Lab, faults: Faults) -> None:
    faults.expect("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|status of 401")
    opened(page, memory)
    port = memory.client().worker.port
    memory.mem("stop")
    expect(page.locator("#live")).to_have_text("reconnecting…")
    _spooled(memory)
    memory.mem("start", CLAUDE_MEM_WORKER_PORT=str(port))
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("button", name=re.compile("new · show")).click()
    expect(page.locator(".feed")).to_contain_text("while it was away")


def _spooled(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", session_id="away", prompt="Done while it was away")
    lab.spool("Stop", session_id="away", last_assistant_message="It was done while it was away.")


def test_going_back_finds_the_list_as_it_was_left(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 500})
    page.goto("/")
    expect(page.locator(".card").nth(10)).to_be_visible()
    link = page.locator(".card.observation h3 a").nth(4)
    link.scroll_into_view_if_needed()
    depth, count = page.evaluate("scrollY"), page.locator(".card").count()
    assert depth > 0
    link.click()
    page.wait_for_url("**/observation/*")
    page.go_back()
    page.wait_for_url(re.compile(r"/$"))
    expect(page.locator(".card")).to_have_count(count)
    assert page.evaluate("scrollY") == depth
    page.go_forward()
    page.wait_for_url("**/observation/*")


def test_going_back_to_other_filters_finds_what_they_found(page: Page) -> None:
    cards, kind = page.locator(".feed .card"), page.get_by_label("Type")
    page.goto("/?type=bugfix")
    expect(cards.first).to_be_visible()
    count = cards.count()
    page.get_by_role("link", name="Home").click()
    expect(page.locator(".card.prompt").first).to_be_visible()
    expect(kind).to_have_value("")
    page.go_back()
    expect(cards).to_have_count(count)
    expect(kind).to_have_value("bugfix")


def test_a_question_does_not_outlive_the_page_that_asked_it(page: Page) -> None:
    page.goto("/")
    page.locator(".card.observation h3 a").first.click()
    page.get_by_role("button", name="Forget…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
