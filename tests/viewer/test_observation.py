"""The page of one observation, and the quarantine, in the browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from claude_mem.domain import export_format
from claude_mem.domain.errors import NotFound
from tests.support.lab import Lab
from tests.support.moving import write
from tests.viewer.conftest import Faults


def _saved(lab: Lab, text: str) -> int:
    return int(lab.client().post("/api/memory/save", {"text": text, "project": "shop"})["id"])


def _item(lab: Lab, row_id: int) -> dict[str, Any]:
    found: dict[str, Any] = lab.client().get(f"/api/observation/{row_id}")
    return found


def _toast(page: Page, text: str) -> None:
    expect(page.locator(".toast").last).to_contain_text(text)


def test_a_page_says_all_and_where_it_comes_from(page: Page, memory: Lab) -> None:
    (found, *_) = memory.client().get("/api/search", query="expired vouchers UTC", kind="observation")["items"]
    page.goto(f"/observation/{found['id']}")
    expect(page.get_by_role("heading", level=1)).to_have_text(found["title"])
    origin = page.locator(".panel", has=page.get_by_role("heading", name="Origin"))
    expect(origin).to_contain_text("let it refuse vouchers")
    expect(origin).to_contain_text("shop/voucher.py")
    expect(origin.locator("li code").first).to_be_visible()
    expect(
        page.locator(".panel", has=page.get_by_role("heading", name="Related")).get_by_role("link").first
    ).to_be_visible()
    origin.get_by_role("link", name=re.compile("Turn")).click()
    page.wait_for_url(re.compile(r"/session/\d+#turn-2"))


def test_editing_with_the_keyboard_validates_saves_and_can_be_undone(page: Page, memory: Lab, faults: Faults) -> None:
    row_id = _saved(memory, "Invoices are sent on the first of the month.")
    page.goto(f"/observation/{row_id}")
    title = page.get_by_label("Title", exact=True)
    expect(page.get_by_role("button", name="Edit")).to_be_visible()
    page.locator("h1").click()
    page.keyboard.press("e")
    expect(title).to_be_focused()
    page.keyboard.type("never kept")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Edit")).to_be_focused()
    page.keyboard.press("Enter")
    title.fill("  ")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("The title is empty")
    title.fill("Invoices go out on the second")
    page.get_by_label("Facts").fill("The bank is slow\nFirst of May is a holiday")
    page.get_by_label("Concepts").fill("gotcha, trade-off")
    page.get_by_label("Type").select_option("decision")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Invoices go out on the second")
    kept = _item(memory, row_id)
    assert (kept["type"], kept["facts"]) == ("decision", ["The bank is slow", "First of May is a holiday"])
    assert (kept["concepts"], kept["narrative"]) == (
        ["gotcha", "trade-off"],
        "Invoices are sent on the first of the month.",
    )
    history = page.locator(".history")
    history.get_by_text("Earlier version").click()
    expect(history).to_contain_text("Invoices are sent on the first of the month")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Invoices are sent on the first of the month.")
    expect(history).to_contain_text("Edited, undone")
    assert _item(memory, row_id)["facts"] == []
    faults.expect("400")
    page.route(
        "**/api/observation/*",
        lambda route: route.fulfill(status=400, json={"error": "no such thing", "hint": "try x"}),
    )
    page.get_by_role("button", name="Edit").click()
    title.fill("Something else")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_have_text("no such thing. try x")


def test_pinning_and_marking_wrong(page: Page, memory: Lab) -> None:
    row_id = _saved(memory, "The kiosk prints receipts in duplicate.")
    page.goto(f"/observation/{row_id}")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Unpin")).to_be_focused()
    assert _item(memory, row_id)["pinned"] == 1
    page.get_by_role("button", name="Mark wrong").click()
    expect(page.locator(".observation > .bad")).to_contain_text("no search finds it")
    assert memory.client().get("/api/search", query="kiosk duplicate receipts")["items"] == []
    page.get_by_role("button", name="Mark right").click()
    expect(page.get_by_role("button", name="Mark wrong")).to_be_focused()
    assert memory.client().get("/api/search", query="kiosk duplicate receipts")["items"][0]["id"] == row_id


def test_what_others_do_to_it_is_seen_and_takes_nobody_from_their_place(page: Page, memory: Lab) -> None:
    row_id = _saved(memory, "The cellar floods in March.")
    page.goto(f"/observation/{row_id}")
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("button", name="Edit").focus()
    memory.client().patch(f"/api/observation/{row_id}", {"title": "The cellar floods in April"})
    expect(page.get_by_role("heading", level=1)).to_have_text("The cellar floods in April")
    expect(page.get_by_role("button", name="Edit")).to_be_focused()


def test_a_type_of_another_mode_stays_when_something_else_is_edited(page: Page, memory: Lab) -> None:
    given: dict[str, Any] = {"project": "name:zoo", "provider": "x", "created_at": 1, "updated_at": 1, "trust": "agent"}
    record = export_format.ObservationRecord(**given, key="bats", title="Bats sleep by day", type="habit")
    memory.mem("import", str(write(memory.folder / "bats.jsonl", [record])))
    (found,) = memory.client().get("/api/search", query="bats sleep", kind="observation")["items"]
    page.goto(f"/observation/{found['id']}")
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Type")).to_have_value("habit")
    page.get_by_label("Title", exact=True).fill("Bats sleep till dusk")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Bats sleep till dusk")
    assert _item(memory, found["id"])["type"] == "habit"


def test_merging_with_what_a_search_finds(page: Page, memory: Lab) -> None:
    first, second = _saved(memory, "Parcels leave at noon."), _saved(memory, "Parcels to islands leave on Fridays.")
    page.goto(f"/observation/{first}")
    page.get_by_role("button", name="Merge…").click()
    page.get_by_label("Search shop").fill("islands fridays")
    page.get_by_role("checkbox", name=re.compile("islands leave")).check()
    page.get_by_role("button", name="Merge", exact=True).click()
    expect(page.locator(".prose")).to_contain_text("Parcels to islands leave on Fridays.")
    page.locator(".history").get_by_role("link", name=str(second)).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Observation {second} is forgotten")
    expect(page.locator("#view")).to_contain_text(f"merged into observation {first}")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Parcels leave at noon.")  # the other has an Undo as well
    page.locator(".history").get_by_role("button", name="Undo").click()
    expect(page.locator(".prose")).to_have_text("Parcels leave at noon.")
    assert _item(memory, second)["title"] == "Parcels to islands leave on Fridays."


def test_forgetting_says_what_goes_and_can_be_undone_or_is_final(page: Page, memory: Lab) -> None:
    (found, *_) = memory.client().get("/api/search", query="drawn tiles kept", kind="observation")["items"]
    row_id = found["id"]
    page.goto(f"/observation/{row_id}")
    page.get_by_role("button", name="Forget…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("of the search index")
    expect(dialog.get_by_role("table")).to_contain_text("summary")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert _item(memory, row_id)
    page.get_by_role("button", name="Forget…").click()
    dialog.get_by_role("button", name="Forget (undo within 30 days)").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Observation {row_id} is forgotten")
    with pytest.raises(NotFound):
        _item(memory, row_id)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(found["title"])
    page.get_by_role("button", name="Forget…").click()
    dialog.get_by_role("button", name="Erase now").click()
    expect(page.locator("#view")).to_contain_text("Only its number is left")
    expect(page.get_by_role("button", name="Restore")).to_have_count(0)


def test_the_quarantine_teaches_then_holds_until_someone_decides(page: Page, memory: Lab) -> None:
    page.goto("/quarantine")
    expect(page.locator(".empty")).to_contain_text("claude-mem import FILE --untrusted")
    given: dict[str, Any] = {"project": "name:zoo", "type": "note", "provider": "x", "updated_at": 1, "trust": "agent"}
    birds = ("Parrots", "Owls", "Storks", "Ducks")
    records = [
        export_format.ObservationRecord(**given, key=bird, title=f"{bird} are fed at ten", created_at=9 - at)
        for at, bird in enumerate(birds)
    ]
    memory.mem("import", str(write(memory.folder / "birds.jsonl", records)), "--untrusted")
    page.goto("/quarantine")
    expect(page.locator("#approval-count")).to_have_text("4")
    expect(page.locator(".card")).to_have_count(4)
    expect(page.locator(".card").first).to_contain_text("marked as untrusted")
    page.get_by_role("button", name="Approve: Parrots").click()
    expect(page.locator(".card")).to_have_count(3)
    expect(page.get_by_role("button", name="Approve: Owls")).to_be_focused()  # not the one that approves all
    expect(page.locator("#approval-count")).to_have_text("3")
    assert "Parrots" in memory.client().get("/api/context/inject", project="zoo")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".card")).to_have_count(4)
    page.get_by_role("button", name="Forget: Owls").click()
    expect(page.locator(".card")).to_have_count(3)
    page.get_by_role("button", name="Approve all of zoo").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(".empty")).to_contain_text("Nothing awaits approval")
    told = memory.client().get("/api/context/inject", project="zoo")
    assert "Storks" in told
    assert "Owls" not in told


def test_a_source_is_trusted_once_in_the_quarantine(page: Page, memory: Lab) -> None:
    said = (
        "Rounding is done half to even by the till, says the page; the basket adds up its lines in cents before that."
    )
    who = {"session_id": "reader"}
    memory.spool("UserPromptSubmit", prompt="How does the till round?", **who)
    given = {"tool_name": "WebFetch", "tool_input": {"url": "https://docs.example.org/a"}, "tool_response": "x"}
    memory.spool("PostToolUse", **given, **who)
    memory.spool(
        "Stop", last_assistant_message=f"{said} That is why the totals differ by a cent from time to time.", **who
    )
    memory.wait_digested()
    page.goto("/quarantine")
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator(".card")).to_contain_text("Based on external content (docs.example.org)")
    page.get_by_role("button", name="Always trust docs.example.org in").click()
    page.get_by_role("button", name="Trust", exact=True).click()
    expect(page.locator(".card")).to_have_count(0)
    expect(page.locator("#view")).to_contain_text("Trusted sources")
    page.get_by_role("button", name="Stop trusting docs.example.org in").click()
    expect(page.get_by_role("button", name="Stop trusting")).to_have_count(0)
    assert memory.client().get("/api/trust")["items"] == []
