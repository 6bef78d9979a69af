"""Cost, health, logs and settings in a real browser: what they say, and what can be done there."""

from __future__ import annotations

import re
import time

import apsw
import pytest
from playwright.sync_api import Page, expect

from tests.support.lab import Lab
from tests.viewer.conftest import Faults, OpenPage

DAY = 86_400_000


@pytest.fixture(scope="module")
def troubled(memory: Lab) -> Lab:
    """The same worker after a bad day: money was spent, two jobs were given up, a file could not be read."""
    memory.mem("stop")
    memory.raw_spool(b"<script>rubbish</script>")
    now = time.time_ns() // 1_000_000
    conn = apsw.Connection(str(memory.data / "claude-mem.db"))
    for days, model, tokens, cost in (
        (0, "small", 120_000, 120_000),
        (0, "large", 60_000, 900_000),
        (3, "small", 9_000, 9_000),
    ):
        conn.execute(
            "insert into ledger (at, ended_at, purpose, project_id, provider, model, input_tokens, output_tokens, cost,"
            " verdict) values (?, ?, 'refine', 1, 'anthropic', ?, ?, 500, ?, 'ok')",
            (now - days * DAY, now, model, tokens, cost),
        )
    turn, session = next(iter(conn.execute("select id, session_id from turns where digested_at is not null limit 1")))
    conn.execute("update turns set digested_at = null where id = ?", (turn,))
    for kind, subject in (("compress", f"{turn}.999999"), ("render", "1.x")):
        conn.execute(
            "insert into jobs (kind, subject, due_at, attempts, dead, error, created_at) values (?, ?, ?, 3, 1, ?, ?)",
            (kind, subject, now, "RuntimeError: <img src=x onerror=alert(1)>", now - DAY),
        )
    conn.execute("update sdk_sessions set title = '<b>Bold</b> title' where id = ?", (session,))
    conn.close()
    memory.start()
    return memory


def no_sideways(page: Page) -> None:
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= seen, page.url


def test_without_a_model_cost_teaches_and_health_is_one_sentence(memory: Lab, page: Page) -> None:
    for file in (memory.data / "aside").iterdir():
        file.unlink()  # someone has looked at what the history left there
    page.goto("/cost")
    expect(page.get_by_text("claude-mem config set provider ollama:qwen3")).to_be_visible()
    page.goto("/health")
    expect(page.get_by_text(re.compile(r"No problems: \d+ events captured, all accounted for\."))).to_be_visible()
    figures = [int(text.replace(",", "")) for text in page.locator(".equation dd").all_inner_texts()]
    assert figures[0] == sum(figures[1:]) > 0
    page.get_by_role("button", name="Back up now").click()
    expect(page.get_by_text(re.compile(r"is valid: \d+ observations"))).to_be_visible()
    expect(page.get_by_text("memory-")).not_to_have_count(0)


def test_what_was_spent_is_drawn_and_told_and_split(troubled: Lab, page: Page) -> None:
    page.goto("/cost")
    picture = page.get_by_role("img", name=re.compile("Tokens per day over 30 days: 190,500 in all"))
    expect(picture).to_be_visible()
    expect(picture.locator(".limit")).to_have_count(1)
    expect(picture.locator("rect.bar")).to_have_count(3)
    expect(page.get_by_role("row", name=re.compile("anthropic large 1 0 60,000 0 500 \\$0.90"))).to_be_visible()
    page.get_by_label("Split by").select_option("project")
    expect(page.get_by_role("link", name="shop").first).to_be_visible()
    page.get_by_role("combobox", name="Over").select_option("7")
    expect(page).to_have_url(re.compile(r"/cost\?days=7&by=project"))
    page.reload()
    expect(page.get_by_role("img", name=re.compile("over 7 days"))).to_have_count(2)


def test_what_is_wrong_is_said_and_mended(troubled: Lab, page: Page) -> None:
    page.goto("/health")
    expect(page.get_by_text("2 jobs failed three times")).to_be_visible()
    expect(page.get_by_text("set aside (garbage)")).to_be_visible()
    expect(page.get_by_text("digest turn 1 of “<b>Bold</b> title”")).to_be_visible()
    job = page.get_by_role("row", name=re.compile("write the brief"))
    job.get_by_role("button", name="Drop").click()
    expect(page.get_by_role("dialog")).to_contain_text("stays as it is")
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_text("1 job failed three times")).to_be_visible()
    page.get_by_role("row", name=re.compile("digest turn")).get_by_role("button", name="Retry").click()
    expect(page.get_by_text("failed three times")).to_have_count(0)
    figures = [int(text.replace(",", "")) for text in page.locator(".equation dd").all_inner_texts()]
    assert figures[0] == sum(figures[1:])
    expect(page.get_by_role("row", name=re.compile("^hook")).get_by_role("cell").first).to_have_text(re.compile("ms|–"))


def test_the_log_is_filtered_in_the_address_and_followed(troubled: Lab, page: Page, faults: Faults) -> None:
    faults.expect("503.*/api/readiness")  # the frame asks whether the worker is there while it restarts
    page.goto("/logs?text=worker")
    expect(page.locator(".log li").first).to_contain_text("worker")
    expect(page.get_by_label("Containing")).to_have_value("worker")
    before = page.locator(".log li").count()
    client = troubled.client()
    assert client.patch("/api/settings", {"context_tokens": 1100})["restarts"] is True
    expect(page.locator(".log li", has_text="worker restarts with the current settings")).to_have_count(1)
    assert page.locator(".log li").count() > before
    page.get_by_label("Level").select_option("ERROR")
    expect(page).to_have_url(re.compile("level=ERROR"))
    expect(page.get_by_text("No log entry matches")).to_be_visible()


def test_settings_are_changed_refused_beside_their_field_and_put_back(memory: Lab, page: Page, faults: Faults) -> None:
    faults.expect("400.*/api/settings|503.*/api/readiness")
    file = memory.data / "config.toml"
    page.goto("/settings#silence_minutes")
    silence = page.get_by_label("Silence minutes")
    expect(silence).to_be_focused()
    expect(page.get_by_label("Provider", exact=True)).to_be_disabled()
    expect(page.get_by_text("CLAUDE_MEM_PROVIDER is set")).to_be_visible()
    silence.fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#set-silence_minutes-fault")).to_have_text(
        "silence_minutes = 0 is out of range. use 1 to 1440"
    )
    expect(silence).to_have_attribute("aria-invalid", "true")
    silence.fill("20")
    expect(page.get_by_label("OpenAI API key")).to_be_disabled()
    expect(page.get_by_text("claude-mem config set openai_api_key -", exact=True)).to_be_visible()
    page.get_by_label("Skip tools").fill("Bash\nRead")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The worker has restarted with the new settings")).to_be_visible()
    expect(page.locator("#live")).to_have_text("live")
    text = file.read_text()
    assert all(line in text for line in ("silence_minutes = 20", '["Bash", "Read"]'))
    page.get_by_role("button", name="Reset silence_minutes").click()
    page.get_by_role("button", name="Reset skip_tools").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The worker has restarted with the new settings")).to_be_visible()
    assert not {"silence_minutes", "skip_tools"} & {line.split(" ")[0] for line in file.read_text().splitlines()}


def test_every_setting_belongs_to_a_group(memory: Lab, page: Page) -> None:
    page.goto("/settings")
    expect(page.locator(".setting")).to_have_count(len(memory.client().get("/api/settings")))
    expect(page.get_by_role("heading", name="Retention")).to_be_visible()
    expect(page.get_by_role("heading", name="Other", exact=True)).to_have_count(0)


@pytest.mark.parametrize("width", [400, 2560])
def test_every_width_has_room(troubled: Lab, open_page: OpenPage, width: int) -> None:
    page = open_page(width=width, theme="dark")
    for path in ("/cost", "/health", "/logs", "/settings"):
        page.goto(path)
        expect(page.locator("#view[aria-busy]")).to_have_count(0)
        no_sideways(page)
