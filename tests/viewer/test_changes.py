"""What changed under the memories: badges, the filter, the history of one, and the page where each is decided."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.lab import Lab
from tests.support.repositories import Repository, classes, functions, work
from tests.viewer import views
from tests.viewer.conftest import OpenPage

PICTURES = Path(__file__).parent.parent.parent / "build" / "screenshots"
SAID = {
    "prices": "Prices are now computed by nine price functions in the basket module, one for each customer group.",
    "taxes": "Taxes are now looked up in a table of nine tax functions, so that a new country needs one more line.",
    "stock": "Stock levels are now kept by nine stock functions, one for each warehouse of the shop.",
    "labels": "Labels are now printed by nine label functions, one for each size of parcel.",
    "mails": "Mails are now written by nine mail functions, one for each language of our customers.",
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A worker whose memories have met every kind of change."""
    lab = Lab(tmp_path_factory.mktemp("changes"))
    try:
        _live(lab)
        yield lab
    finally:
        lab.close()


def _live(lab: Lab) -> None:
    repository = Repository(lab.project)
    for name, said in SAID.items():
        work(lab, name, f"{name}/{name}.py", functions(name), said)
    client = lab.start()
    lab.wait_digested()
    repository.put("AGENTS.md", "# The shop\n\n- `labels/labels.py` prints labels for `prices/prices.py`.\n")
    repository.commit("Add all of it")
    client.post("/api/review", {"project": "shop"})
    (lab.project / "prices" / "prices.py").write_text(classes("Price"))  # outdated
    half = functions("stock").splitlines()[:6] + classes("Stock").splitlines()[:3]
    (lab.project / "stock" / "stock.py").write_text("\n".join(half) + "\n")  # changed in part
    repository.git("mv", "labels", "parcels")  # moved
    repository.git("rm", "-rq", "mails")  # gone
    repository.commit("Change nearly all of it", in_days=3)
    work(lab, "again", "taxes/taxes.py", classes("Tax"), "Replaced the nine tax functions with classes of taxes.")
    lab.wait_digested()
    client.post("/api/review", {"project": "shop"})


def item(memory: Lab, word: str) -> dict[str, Any]:
    items = memory.client().get("/api/review", validity="changed")["items"]
    return next(each for each in items if f"{word} functions" in each["narrative"] + each["title"])


@pytest.fixture
def changes(page: Page) -> Page:
    return views.show(page, "/changes?project=1")


def card(page: Page, word: str) -> Any:
    return page.locator(".feed .card").filter(has=page.locator("h3", has_text=re.compile(f"{word} functions")))


def test_all_that_changed_is_listed_with_what_replaced_it(changes: Page) -> None:
    expect(changes.get_by_role("heading", level=1)).to_have_text("What changed under your memories")
    expect(changes.locator(".feed .card")).to_have_count(5)
    expect(changes.get_by_text("1 superseded, 1 outdated, 1 gone, 1 partly, 1 moved.")).to_be_visible()
    expect(card(changes, "tax").locator(".why")).to_contain_text("Replaced by")
    expect(card(changes, "label").locator(".why")).to_contain_text("Now in parcels/labels.py")
    expect(card(changes, "price").locator(".badge.bad")).to_contain_text("outdated")
    expect(card(changes, "price").locator(".why code")).to_have_text(re.compile("^[0-9a-f]{10}$"))
    card(changes, "tax").locator(".why a").click()
    expect(changes.get_by_role("heading", level=1)).to_contain_text("classes of taxes")


def test_the_list_is_filtered_by_validity(changes: Page) -> None:
    changes.get_by_label("Validity").select_option("gone")
    expect(changes.locator(".feed .card")).to_have_count(1)
    expect(changes).to_have_url(re.compile("validity=gone"))
    views.show(changes, "/search?q=functions&validity=outdated")
    expect(changes.locator(".feed .card")).to_have_count(1)
    views.show(changes, "/?validity=changed")
    expect(changes.locator(".feed .card.observation")).to_have_count(5)
    expect(changes.locator(".feed .card.prompt")).to_have_count(0)


def test_lines_of_instruction_files_that_no_longer_hold_are_shown(changes: Page) -> None:
    panel = changes.locator(".panel", has=changes.get_by_role("heading", name="Instruction files"))
    expect(panel.locator("li")).to_have_count(1)
    expect(panel.locator("li p")).to_contain_text("AGENTS.md:3 names labels/labels.py, gone since ")
    expect(panel.locator("li p")).to_contain_text("(Change nearly all of it): now parcels/labels.py.")
    expect(panel.locator("pre")).to_have_text(re.compile("^- .*`labels/labels.py`.*\n\\+ .*`parcels/labels.py`"))
    views.show(changes, "/changes")
    expect(panel).to_have_count(0)


def test_keeping_takes_it_off_the_list_and_undo_brings_it_back(changes: Page, memory: Lab) -> None:
    row_id = item(memory, "price")["id"]
    card(changes, "price").get_by_role("button", name="Keep").click()
    expect(card(changes, "price")).to_have_count(0)
    assert memory.client().get(f"/api/observation/{row_id}")["validity"] == "kept"
    assert changes.evaluate("document.activeElement.closest('.card') !== null"), "the focus is on what comes next"
    changes.get_by_role("button", name="Undo").click()
    expect(card(changes, "price")).to_have_count(1)
    assert memory.client().get(f"/api/observation/{row_id}")["validity"] == "outdated"


def test_keeping_a_superseded_one_makes_it_current_and_undo_supersedes_it_again(changes: Page, memory: Lab) -> None:
    before = item(memory, "tax")
    card(changes, "tax").get_by_role("button", name="Keep").click()
    expect(card(changes, "tax")).to_have_count(0)
    changes.get_by_role("button", name="Undo").click()
    expect(card(changes, "tax").get_by_text(f"superseded by {before['superseded_by']}")).to_be_visible()


def test_it_is_corrected_in_place_and_undo_restores_the_text(changes: Page, memory: Lab) -> None:
    before = item(memory, "mail")
    card(changes, "mail").get_by_role("button", name="Correct").click()
    form = changes.get_by_role("form", name="Edit")
    expect(form.get_by_label("Title", exact=True)).to_be_focused()
    form.get_by_label("Title", exact=True).press("Escape")
    expect(card(changes, "mail").get_by_role("button", name="Correct")).to_be_focused()
    card(changes, "mail").get_by_role("button", name="Correct").click()
    form.get_by_label("Title", exact=True).fill("Mails are sent by a service of their own")
    form.get_by_role("button", name="Save").click()
    expect(changes.get_by_text("Corrected.")).to_be_visible()
    expect(card(changes, "mail")).to_have_count(0)
    row = memory.client().get(f"/api/observation/{before['id']}")
    assert (row["validity"], row["title"]) == ("kept", "Mails are sent by a service of their own")
    changes.get_by_role("button", name="Undo").click()
    expect(card(changes, "mail")).to_have_count(1)
    row = memory.client().get(f"/api/observation/{before['id']}")
    assert (row["validity"], row["title"]) == ("gone", before["title"])


def test_one_key_decides_on_the_card_with_the_focus(changes: Page, memory: Lab) -> None:
    card(changes, "price").get_by_role("button", name="Keep").focus()
    changes.keyboard.press("x")
    changes.keyboard.press("k")
    expect(card(changes, "price")).to_have_count(0)
    changes.get_by_role("button", name="Undo").click()
    card(changes, "price").locator("h3 a").focus()
    changes.keyboard.press("c")
    expect(changes.get_by_role("form", name="Edit")).to_be_visible()
    changes.keyboard.type("k")  # a letter of the text
    expect(changes.get_by_role("form", name="Edit")).to_be_visible()
    changes.keyboard.press("Escape")


def test_the_focus_stays_on_its_card_when_the_list_is_drawn_again(changes: Page, memory: Lab) -> None:
    card(changes, "stock").locator("h3 a").focus()
    changes.evaluate("document.querySelectorAll('.feed .card').forEach((node) => node.classList.add('earlier'))")
    row_id = item(memory, "tax")["id"]
    memory.client().patch(f"/api/observation/{row_id}", {"subtitle": "Seen by another page"})
    expect(changes.locator(".feed .card.earlier")).to_have_count(0)
    expect(card(changes, "stock").locator("h3 a")).to_be_focused()
    changes.keyboard.press("c")
    expect(changes.get_by_role("form", name="Edit")).to_be_visible()
    changes.keyboard.press("Escape")


def test_undo_puts_the_focus_on_the_card_that_returns(changes: Page) -> None:
    card(changes, "price").get_by_role("button", name="Keep").focus()
    changes.keyboard.press("k")
    expect(card(changes, "price")).to_have_count(0)
    changes.get_by_role("button", name="Undo").focus()
    changes.keyboard.press("Enter")
    expect(card(changes, "price").get_by_role("button", name="Keep")).to_be_focused()


def test_what_is_being_typed_stays_when_the_list_is_loaded_meanwhile(changes: Page, memory: Lab) -> None:
    waiting: list[Route] = []
    changes.route(re.compile("/api/review"), lambda route: route.continue_() if waiting else waiting.append(route))
    with changes.expect_request(re.compile("/api/review")):
        row_id = item(memory, "tax")["id"]
        memory.client().patch(f"/api/observation/{row_id}", {"subtitle": "Seen by a third page"})
    card(changes, "price").get_by_role("button", name="Correct").click()
    title = changes.get_by_role("form", name="Edit").get_by_label("Title", exact=True)
    title.fill("Half a sentence")
    with changes.expect_response(re.compile("/api/review")):
        waiting[0].continue_()
    views.quiet(changes)
    expect(title).to_have_value("Half a sentence")
    title.press("Escape")


def test_the_page_of_one_says_what_was_seen_when_and_lets_it_be_kept(page: Page, memory: Lab) -> None:
    row = item(memory, "label")
    views.show(page, f"/observation/{row['id']}")
    expect(page.locator(".observation > .meta")).to_contain_text("moved")
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Does it still hold?"))
    expect(panel.locator("li").first).to_contain_text("moved")
    expect(panel.locator("li").first.locator("code")).to_have_text(row["head"][:10])
    expect(panel.locator("li").last).to_contain_text("current")
    expect(panel.get_by_text("Now in parcels/labels.py")).to_be_visible()
    views.show(page, f"/observation/{item(memory, 'price')['id']}")
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.locator(".observation > .meta")).to_contain_text("kept")
    page.get_by_role("button", name="Do not keep").click()
    expect(page.locator(".observation > .meta")).to_contain_text("outdated")
    views.show(page, f"/observation/{item(memory, 'tax')['id']}")
    expect(panel.locator("li").first.get_by_role("link")).to_contain_text("classes of taxes")


def test_the_story_of_a_session_has_the_badges(page: Page, memory: Lab) -> None:
    views.show(page, f"/session/{item(memory, 'mail')['session_id']}")
    expect(page.locator(".observations .card .badge.bad")).to_contain_text("gone")


def test_forgetting_can_be_undone(changes: Page, memory: Lab) -> None:
    row_id = item(memory, "stock")["id"]
    card(changes, "stock").get_by_role("button", name="Forget").click()
    expect(card(changes, "stock")).to_have_count(0)
    changes.get_by_role("button", name="Undo").click()
    views.show(changes, f"/observation/{row_id}")
    expect(changes.get_by_role("heading", level=1)).to_contain_text("stock functions")


def test_another_look_finds_what_has_changed_since(changes: Page, memory: Lab) -> None:
    path = memory.project / "prices" / "prices.py"
    before = path.read_text()
    path.write_text(functions("prices"))
    changes.get_by_role("button", name="Look again").click()
    expect(card(changes, "price")).to_have_count(0)
    path.write_text(before)
    changes.get_by_role("button", name="Look again").click()
    expect(card(changes, "price")).to_have_count(1)


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400)])
def test_pictures_to_look_at(open_page: OpenPage, memory: Lab, theme: Any, width: int) -> None:
    page = open_page(theme=theme, width=width)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, path in {
        "changed": "/changes?project=1",
        "changed-one": f"/observation/{item(memory, 'price')['id']}",
    }.items():
        views.show(page, path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=PICTURES / f"{name}-{theme}-{width}.png", full_page=True)
