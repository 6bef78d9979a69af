"""The list of sessions, and one of them as a story, in a real browser."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from claude_mem import hook
from tests.support.lab import Lab
from tests.support.waiting import SECONDS
from tests.viewer.conftest import OpenPage
from tests.viewer.history import settled


def number(memory: Lab, name: str) -> int:
    found = memory.client().get("/api/sessions", limit=100)["items"]
    return next(int(row["id"]) for row in found if row["content_session_id"] == name)


def say(memory: Lab, event: str, **fields: Any) -> None:
    """Something happens in the session `live`, in the project shop."""
    memory.spool(event, session_id="live", **fields)
    hook.wake_or_start_worker(str(memory.data))


def told_at_start(memory: Lab, session_id: str) -> None:
    """As the hook asks at a session's start, but with all the patience that a busy machine needs."""
    given = {"session_id": session_id, "hook_event_name": "SessionStart", "cwd": str(memory.project)}
    record = f"command session-start\nhost claude\nproject_dir {memory.project}\n\n{json.dumps(given)}"
    worker = memory.client().worker
    answer = httpx2.post(
        f"http://127.0.0.1:{worker.port}/api/context/inject",
        content=record.encode(),
        headers={"Authorization": f"Bearer {worker.token}", "Content-Type": "application/octet-stream"},
        timeout=SECONDS,
    )
    assert answer.status_code == 200


@pytest.fixture(scope="module")
def long_session(memory: Lab) -> int:
    """One of 34 turns; its start was told by the worker, one turn is private, one prompt is very long."""
    memory.spool("SessionStart", session_id="long", source="startup")
    hook.wake_or_start_worker(str(memory.data))
    settled(memory.client())  # what a session is told is noted for one that is known
    told_at_start(memory, "long")
    for turn in range(1, 35):
        who = {"session_id": "long", "prompt_id": f"l{turn}"}
        if turn == 3:
            memory.spool("UserPromptSubmit", header="private yes\n", prompt="", **who)
            continue
        memory.spool("UserPromptSubmit", prompt=f"Step {turn}: " + ("word " * 400 if turn == 2 else "go on"), **who)
        failed = {"tool_name": "Bash", "tool_input": {"command": "make build"}, **who}
        if turn == 1:
            memory.spool("PostToolUseFailure", error="make: error: no rule", **failed)
        edit = {"file_path": str(memory.project / "shop/voucher.py"), "old_string": "a", "new_string": "b"}
        memory.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, **who)
        if turn == 2:
            memory.spool("PostToolUse", tool_response={"stdout": "built"}, **failed)
        memory.spool("Stop", last_assistant_message=f"Step {turn} is done.", **who)
    memory.spool("SessionEnd", session_id="long", reason="other")
    hook.wake_or_start_worker(str(memory.data))
    settled(memory.client())
    return number(memory, "long")


def test_sessions_are_listed_filtered_and_opened(memory: Lab, page: Page) -> None:
    page.goto("/sessions")
    cards = page.locator("article.session")
    expect(cards.filter(has_text="An empty basket crashes")).to_contain_text("2 turns")
    expect(cards.filter(has_text="An empty basket crashes")).to_contain_text("shop")
    page.get_by_label("Agent").select_option("gemini")
    expect(cards).to_have_count(1)
    assert "host=gemini" in page.url
    page.reload()
    expect(cards).to_have_count(1)
    page.get_by_label("Agent").select_option("qwen")
    expect(page.get_by_text("No session matches these filters")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    cards.get_by_role("link", name="Maps load slowly").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Maps load slowly, find out why")


def test_a_session_reads_as_a_story(memory: Lab, page: Page) -> None:
    page.goto(f"/session/{number(memory, 'totals')}")
    first = page.locator("#turn-1")
    expect(first.locator("blockquote")).to_have_text("An empty basket crashes, please fix it")
    expect(first).to_contain_text("shop/basket.py")
    expect(first).to_contain_text("edited 1×")
    expect(first.locator(".part", has_text="Failed")).to_contain_text("pytest -q passed later")
    expect(first.locator(".observations .card").first).to_be_visible()
    expect(page.locator("#turn-2")).to_contain_text("4f1c2ab Add up the prices of a basket")
    expect(page.get_by_text("No injection at session start is recorded.")).to_be_visible()
    first.get_by_text("Raw events: 5").click()
    expect(first.locator(".raw > li")).to_have_count(5)
    first.locator(".raw summary").nth(1).click()
    expect(first.locator(".raw pre:visible")).to_contain_text('"command": "pytest -q"')
    page.locator(".observations a").first.click()
    page.wait_for_url("**/observation/*")


def test_a_long_session_is_found_one_s_way_in(long_session: int, page: Page) -> None:
    page.goto(f"/session/{long_session}#turn-30")
    turn = page.locator("#turn-30")
    expect(turn).to_be_in_viewport()
    expect(page.locator("#turn-1")).to_have_count(0)
    page.get_by_role("button", name="Show earlier turns").click()
    expect(page.locator("#turn-20")).to_have_count(1)
    expect(turn).to_be_in_viewport()
    page.get_by_role("navigation", name="Turns").get_by_role("link", name="Step 1:").click()
    expect(page.locator("#turn-1")).to_be_in_viewport()
    expect(page.locator("#turn-1")).to_be_focused()
    expect(page.locator("#turn-1")).to_contain_text("passed in turn 2")
    expect(page.locator("#turn-3")).to_contain_text("Private: nothing was stored.")
    page.locator("#turn-2").get_by_role("button", name="Show the whole prompt").click()
    assert len(page.locator("#turn-2 blockquote").inner_text()) > 1900
    told = page.locator(".story > div > div > details.injection")
    told.locator("summary").click()
    expect(told).to_contain_text("file edited")


def test_a_session_at_work_grows_while_it_is_looked_at(memory: Lab, page: Page) -> None:
    memory.hook("UserPromptSubmit", session_id="live", prompt="Show the total in bold", prompt_id="v1")
    settled(memory.client())
    page.goto(f"/session/{number(memory, 'live')}")
    expect(page.locator("#turn-1")).to_contain_text("running")
    expect(page.locator("#live")).to_have_text("live")
    say(memory, "Stop", last_assistant_message="Totals are bold now, as they were asked to be.", prompt_id="v1")
    expect(page.locator("#turn-1")).to_contain_text("Totals are bold now")
    say(memory, "UserPromptSubmit", prompt="And <img src=x onerror=alert(1)> in red", prompt_id="v2")
    expect(page.locator("#turn-2 blockquote")).to_have_text("And <img src=x onerror=alert(1)> in red")
    expect(page.get_by_role("navigation", name="Turns").get_by_role("link")).to_have_count(2)
    say(memory, "UserPromptSubmit", prompt="", header="private yes\n", prompt_id="v2")
    expect(page.locator("#turn-2")).to_contain_text("Private: nothing was stored.")
    assert "onerror" not in page.content()


def test_all_that_came_while_nobody_looked_is_told(memory: Lab, page: Page) -> None:
    memory.hook("UserPromptSubmit", session_id="busy", prompt="Knock 1", prompt_id="b1")
    settled(memory.client())
    page.goto(f"/session/{number(memory, 'busy')}")
    expect(page.locator("#turn-1")).to_be_visible()
    expect(page.locator("#live")).to_have_text("live")
    for turn in range(2, 16):
        memory.spool("UserPromptSubmit", session_id="busy", prompt=f"Knock {turn}", prompt_id=f"b{turn}")
    hook.wake_or_start_worker(str(memory.data))
    expect(page.locator("#turn-15")).to_contain_text("Knock 15")
    expect(page.locator("li.turn")).to_have_count(15)


def test_it_fits_a_narrow_window(memory: Lab, long_session: int, open_page: OpenPage) -> None:
    page = open_page(width=400, theme="dark")
    for path in ("/sessions", f"/session/{long_session}"):
        page.goto(path)
        expect(page.locator(".turn, article.session").first).to_be_visible()
        widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], json.dumps(widths)


CLOSING = """# Vouchers work now

The field takes **one `code`** a basket, *never two*. See [the page](https://x.example/a) and <img src=x onerror=alert(1)>.

| check | result |
|---|---|
| unit | 4 passed |

1. Deploy it
   - on Monday
2. Tell Ann

```sh
make <b>deploy</b>
```

> It is done.
"""


@pytest.fixture(scope="module")
def closed_session(memory: Lab) -> int:
    """One whose agent ended with a message in Markdown; in its second turn it had read a page."""
    for turn in (1, 2):
        who = {"session_id": "closed", "prompt_id": f"c{turn}"}
        memory.spool("UserPromptSubmit", prompt=f"Vouchers, part {turn}", **who)
        if turn == 2:
            page = {"tool_name": "WebFetch", "tool_input": {"url": "https://x.example"}, "tool_response": "x"}
            memory.spool("PostToolUse", tool_use_id="cw", **page, **who)
        edit = {"file_path": str(memory.project / "shop/field.py"), "old_string": "a", "new_string": "b"}
        memory.spool("PostToolUse", tool_name="Edit", tool_use_id=f"ce{turn}", tool_input=edit, tool_response={}, **who)
        memory.spool("Stop", last_assistant_message=CLOSING, **who)
    memory.spool("SessionEnd", session_id="closed", reason="other")
    hook.wake_or_start_worker(str(memory.data))
    settled(memory.client())
    return number(memory, "closed")


def test_a_closing_message_is_shown_as_the_markdown_it_is(page: Page, closed_session: int) -> None:
    page.goto(f"/session/{closed_session}")
    closing = page.locator("#turn-1 details.closing")
    closing.locator("summary").first.click()
    shown = closing.locator(".markdown")
    expect(shown.locator("h3")).to_have_text("Vouchers work now")
    expect(shown.locator("strong")).to_have_text("one code")
    expect(shown.locator("strong code")).to_have_text("code")
    expect(shown.locator("em")).to_have_text("never two")
    expect(shown.locator("table td")).to_have_text(["unit", "4 passed"])
    expect(shown.locator("ol > li")).to_have_count(2)
    expect(shown.locator("ol > li ul > li")).to_have_text("on Monday")
    expect(shown.locator("pre code")).to_have_text("make <b>deploy</b>")
    expect(shown.locator("blockquote")).to_have_text("It is done.")
    expect(shown).to_contain_text("the page (https://x.example/a)")
    expect(shown).to_contain_text("<img src=x onerror=alert(1)>")
    expect(shown.locator("a, img, b")).to_have_count(0)  # data never chooses where a link leads
    expect(closing.locator(".badge")).to_have_count(0)


def test_a_closing_message_that_may_repeat_a_page_says_so(page: Page, closed_session: int) -> None:
    page.goto(f"/session/{closed_session}")
    expect(page.locator("#turn-2 details.closing > summary .badge")).to_contain_text("external")


def test_an_odd_closing_message_is_shown_at_once(page: Page, closed_session: int) -> None:
    """However it is made up, nobody waits for it."""
    odd = [
        "`" * 240_000,
        "[" * 240_000,
        "**a" * 80_000,
        "|" * 240_000,
        " " * 240_000 + "x",
        "- " * 120_000,
        "#" * 240_000,
        "# a" + " " * 240_000 + "x",
    ]
    odd += ["\n".join(f"{' ' * (2 * n % 40)}- item {n}" for n in range(3_000)), "*a " * 80_000, "a |\n" + " " * 240_000]
    page.goto(f"/session/{closed_session}")
    slowest = page.evaluate(
        """async (texts) => {
             const { markdown } = await import("/static/markdown.js");
             let slowest = 0;
             for (const text of texts) {
               const begun = performance.now();
               document.createElement("div").append(...markdown(text));
               slowest = Math.max(slowest, performance.now() - begun);
             }
             return slowest;
           }""",
        odd,
    )
    assert slowest < 2_000, slowest  # linear takes tens of milliseconds, quadratic many seconds
