"""A project's page, the list of projects, and what the next session is told, in the browser."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import apsw
import pytest
from playwright.sync_api import Page, expect

from tests.support.lab import Lab
from tests.viewer.conftest import Faults

ANEW = "ERR_CONNECTION_RESET|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_REFUSED"  # it opens anew


@pytest.fixture
def shop(memory: Lab) -> dict[str, Any]:
    (found,) = [row for row in memory.client().get("/api/projects")["items"] if row["name"] == "shop"]
    return dict(found)


@pytest.fixture
def outcomes(memory: Lab) -> None:
    """Where it is not known how a turn ended, nothing of it is called open."""
    conn = apsw.Connection(str(memory.data / "claude-mem.db"))
    conn.set_busy_timeout(10_000)
    # What an earlier turn left open was worked on in the demo: only the newest turn of a project says what is open.
    conn.execute("update session_summaries set outcome = 'partly', next_steps = '- Log refused vouchers by reason'")
    conn.close()


@pytest.mark.usefixtures("outcomes")
def test_a_project_is_seen_from_above_by_day_by_session_and_by_file(page: Page, shop: dict[str, Any]) -> None:
    page.goto("/projects")
    page.get_by_role("link", name="shop").click()
    page.wait_for_url(f"**/project/{shop['id']}")
    expect(page.get_by_role("heading", level=1)).to_have_text("shop")
    expect(page.locator(".figures div").first).to_have_text(f"observations{shop['observations']}")
    expect(page.locator(".steps li").first).to_be_visible()
    days = page.locator(".plot .pick")
    expect(days).to_have_count(4)
    expect(days.first.locator("title")).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d: \d+ observations?, \d+ turns?$"))

    days.first.click()
    page.wait_for_url("**?tab=timeline")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("An empty basket crashes")
    page.get_by_label("Period").select_option("30 days")
    page.get_by_role("button", name="Later ›").click()
    expect(page.locator(".plot .lane")).to_have_count(2)
    page.locator(".plot .lane").last.click()
    expect(page.locator(".story")).to_be_visible()
    page.go_back()
    expect(page.locator(".plot .lane").first).to_be_visible()  # when it is drawn, the tabs listen

    page.get_by_role("tab", name="Timeline").press("ArrowLeft")
    expect(page.get_by_role("tab", name="Files")).to_be_focused()
    page.locator("summary", has_text="shop/").press("Enter")
    page.locator("summary", has_text="voucher.py").press("Enter")
    memory = page.get_by_role("link", name="Expired vouchers are refused")
    expect(memory).to_be_visible()
    memory.click()
    page.wait_for_url("**/observation/*")


def test_the_next_context_is_live_as_settings_change(
    page: Page, memory: Lab, shop: dict[str, Any], faults: Faults
) -> None:
    faults.expect(ANEW)
    page.goto(f"/context?project={shop['id']}")
    text = page.locator(".context")
    client = memory.client()
    shown = client.get(f"/api/project/{shop['id']}/context")
    assert (text.text_content() or "").rstrip("\n") == shown["text"]
    links = page.locator(".context a[href^='/observation/']")
    expect(links).to_have_count(sum(item["kind"] == "observation" for item in shown["told"]))
    page.get_by_label("Maximum number of observations", exact=True).fill("2")
    expect(links).to_have_count(2)
    assert client.get(f"/api/project/{shop['id']}/context") == shown  # tried, not kept
    page.get_by_label("Limit in tokens", exact=True).fill("400")
    expect(page.locator(".gauge")).to_contain_text("of 400 tokens, 2 observations")
    page.reload()
    expect(links).to_have_count(2)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    kept = tomllib.loads((memory.data / "config.toml").read_text())
    assert kept == {"context_tokens": 400, "context_observations": 2}
    expect(links).to_have_count(2)
    page.get_by_role("button", name="Undo").click()
    expect(links).to_have_count(len([item for item in shown["told"] if item["kind"] == "observation"]))


def test_a_project_is_switched_off_renamed_and_merged(
    page: Page, memory: Lab, shop: dict[str, Any], faults: Faults
) -> None:
    faults.expect(ANEW)
    page.goto(f"/project/{shop['id']}?tab=manage")
    page.get_by_role("button", name="Switch off").click()
    expect(page.get_by_text("Off: nothing is stored")).to_be_visible()
    expect(page.get_by_text("is off because of the setting excluded_projects")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()  # the worker uses it now
    assert "hookSpecificOutput" not in memory.hook("SessionStart", session_id="later", source="startup")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("On: the work of agents here")).to_be_visible()

    page.get_by_label("Name of the project").fill("Market")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Market")

    page.get_by_role("button", name="Merge…").click()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("Everything in Market becomes part of atlas")
    expect(question).to_contain_text(f"{shop['sessions']} sessions")
    question.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Market")
    page.get_by_role("button", name="Merge…").click()
    question.get_by_role("button", name="Merge", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("atlas")
    page.get_by_role("tab", name="Manage").click()
    expect(page.get_by_text("git folder")).to_have_count(2)
    page.goto("/projects")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_page_that_comes_too_late_leaves_the_address_alone(page: Page, memory: Lab) -> None:
    known = memory.client().get("/api/projects")["items"][0]["id"]
    slow = "const ask = fetch; window.fetch = (...given) => new Promise((done) => setTimeout(done, 100)).then(() => ask(...given))"
    for path in (f"/project/{known}", f"/context?project={known}"):
        page.goto("/projects")
        page.evaluate(f"() => {{ {slow} }}")
        page.evaluate(f"import('/static/app.js').then(({{ go }}) => (go('{path}'), go('/cost')))")
        expect(page.get_by_role("heading", level=1)).to_have_text("Cost of refining")
        page.wait_for_timeout(300)
        assert page.evaluate("location.pathname") == "/cost"
