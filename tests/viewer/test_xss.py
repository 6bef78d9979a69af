"""Nothing that is stored can run: sixty payloads in every field, every view opened, nothing executed, no rule broken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from playwright.sync_api import Page

from tests.support import proof
from tests.support.lab import Lab
from tests.viewer import history, views
from tests.viewer.conftest import Faults
from tests.viewer.payloads import PAYLOADS
from tests.viewer.views import VIEWS

EACH = 5  # payloads a session, and so pages of each kind that need to be opened
# What the worker has to be able to read itself; everything else that is text is poisoned.
OWN = {
    ("sdk_sessions", "status"), ("sdk_sessions", "content_session_id"), ("observations", "key"),
    ("observations", "hash"), ("observations", "sources"), ("observations", "verdict"), ("session_summaries", "verdict"), ("session_summaries", "outcome"),
    ("turns", "prompt_id"), ("events", "event_id"), ("events", "tool_use_id"), ("events", "body"), ("events", "kind"),
    ("jobs", "kind"), ("jobs", "subject"), ("history", "what"), ("injections", "trigger"), ("injections", "host"),
    ("injections", "content_session_id"), ("sdk_sessions", "host"), ("sdk_sessions", "transcript_path"),
    ("projects", "root"), ("sdk_sessions", "cwd"), ("history", "before"),
}  # fmt: skip
TABLES = (
    "projects", "sdk_sessions", "turns", "user_prompts", "events", "jobs", "observations", "session_summaries",
    "ledger", "history", "injections",
)  # fmt: skip


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A worker whose memory is full of it."""
    lab = Lab(tmp_path_factory.mktemp("poisoned"))
    try:
        lab.data.mkdir(mode=0o700)
        (lab.data / "config.toml").write_text(_settings(), "utf-8")
        for number in range(0, len(PAYLOADS), EACH):
            _work(lab, number)
        client = lab.start()
        history.settled(client)
        for text in PAYLOADS:
            _keep(lab, text)
        lab.mem("stop")
        _poison(lab.data / "claude-mem.db")
        _log(lab.data / "logs" / "worker.log")
        lab.start()
        yield lab
    finally:
        lab.close()


# --- filling it ------------------------------------------------------------------------------------------------------


def _settings() -> str:
    texts = json.dumps([text for text in PAYLOADS if text.isprintable()], ensure_ascii=False)
    return f"excluded_projects = {texts}\nskip_tools = {texts}\nlanguage = {json.dumps(PAYLOADS[0][:40])}\n"


def _work(lab: Lab, first: int) -> None:
    """A session with a few turns; each text is a prompt, a command, an error, a file, a commit, an answer, a name."""
    session = PAYLOADS[first]
    root = lab.folder / re.sub(r"[/\x00-\x1f]", "_", PAYLOADS[first + 1])
    (root / ".git").mkdir(parents=True)
    for number in range(first, first + EACH):
        text = PAYLOADS[number]
        said = {"session_id": session, "cwd": str(root), "prompt_id": f"p{number}"}
        call = {"tool_name": "Bash", "tool_input": {"command": text}, "tool_use_id": f"c{number}"}
        edit = {"file_path": f"{root}/{text}", "old_string": text, "new_string": f"def {text}():\n    {text}\n"}
        lab.spool("UserPromptSubmit", prompt=text, **said)
        lab.spool("PostToolUseFailure", error=f"E  {text}", **call, **said)
        lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_use_id=f"e{number}", tool_response={}, **said)
        lab.spool("PostToolUse", **{**call, "tool_use_id": f"d{number}"}, tool_response={"stdout": text}, **said)
        commit = {"command": f"git commit -m {text}"}
        done = {"stdout": f"[main abc{number:04}] {text}"}
        lab.spool(
            "PostToolUse", **{**call, "tool_use_id": f"g{number}", "tool_input": commit}, tool_response=done, **said
        )
        lab.spool("Stop", last_assistant_message=f"{text}\n\nWe decided {text} because {text}.\n\nNext: {text}", **said)


def _keep(lab: Lab, text: str) -> None:
    """By hand: in a project of that name, then corrected in every field that can be."""
    client = lab.client()
    row = client.post("/api/memory/save", {"text": text, "title": text, "project": text})["id"]
    fields = dict.fromkeys(("title", "subtitle", "narrative"), text)
    client.patch(f"/api/observation/{row}", {**fields, "facts": [text, *PAYLOADS[:20]], "concepts": [text]})


def _poison(path: Path) -> None:
    """Every column with text in it that nothing but people read."""
    conn = apsw.Connection(str(path))
    conn.create_scalar_function("poison", _nth, 1)
    conn.execute("begin")
    for number, text in enumerate(PAYLOADS):
        conn.execute(
            "insert into jobs (kind, subject, due_at, dead, error, created_at) values ('compress', ?, strftime('%s') * 1000, 1, ?, 0)",
            (f"{number}.{number}", text),
        )
        conn.execute(
            "insert into ledger (at, ended_at, purpose, provider, model, input_tokens, output_tokens, cost, verdict,"
            " message) values (strftime('%s') * 1000, 1, ?, ?, ?, 1, 1, 1, ?, ?)",
            (text, text, text, text, text),
        )
    for table in TABLES:
        for column, default in _texts(conn, table):
            value = "json_array(poison(rowid), poison(rowid + 1))" if default == "'[]'" else "poison(rowid)"
            conn.execute(f"update {table} set {column} = {value}")
    conn.execute("commit")
    conn.close()


def _nth(*given: Any) -> str:
    return PAYLOADS[int(given[0]) % len(PAYLOADS)]


def _texts(conn: apsw.Connection, table: str) -> list[tuple[str, Any]]:
    columns: list[Any] = conn.execute(f"pragma table_info({table})").fetchall()
    return [(name, default) for _, name, kind, _, default, _ in columns if kind == "TEXT" and (table, name) not in OWN]


def _poisoned(lab: Lab, table: str) -> list[tuple[str, Any]]:
    conn = apsw.Connection(str(lab.data / "claude-mem.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return _texts(conn, table)
    finally:
        conn.close()


def _log(path: Path) -> None:
    with path.open("a", encoding="utf-8") as file:
        for text in PAYLOADS:
            file.write(f"2026-01-01 00:00:00,000 WARNING claude_mem.{text}: {text}\n")


# --- looking at it ---------------------------------------------------------------------------------------------------

CANARY = "window.hits = []; window.xss = number => { window.hits.push(number); };"
MARKUP = """() => {
  const bad = [];
  for (const one of document.querySelectorAll("*")) {
    const ours = one.localName === "script" && one.getAttribute("src") === "/static/app.js";
    if (!ours && /^(script|iframe|frame|object|embed|base|style|form|marquee|math|template)$/.test(one.localName) && !one.matches(".find, form:not([action])"))
      bad.push(one.outerHTML);
    for (const {name, value} of one.attributes)
      if (/^on|^data-evil$|^style$/.test(name) || (/(href|src|action)$/.test(name) && !/^[/#][^/]|^[/#]?$/.test(value))) bad.push(one.outerHTML);
  }
  return [bad.map(text => text.slice(0, 200)), window.hits];
}"""
GO = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"


def _looked_at(page: Page, path: str) -> str:
    """Open it without loading everything again; what one can read there."""
    page.evaluate(GO, path)
    views.quiet(page)
    assert page.evaluate(MARKUP) == [[], []], path
    text: str = page.evaluate("document.getElementById('view').textContent")
    assert "Something went wrong" not in page.locator("#heading").inner_text(), path
    assert "[native code]" not in text, path  # `table[name]` of a name that every object has
    return text


def _pages(memory: Lab) -> Iterator[str]:
    yield from VIEWS.values()
    client = memory.client()
    yield from (f"/search?q={word}" for word in ("xss", "script", "img", "constructor"))
    for kind, route in (
        ("session", "/api/sessions"),
        ("observation", "/api/observations"),
        ("project", "/api/projects"),
    ):
        rows = [item["id"] for item in client.get(route, limit=100)["items"]]
        yield from (f"/{kind}/{row}" for row in sorted(rows)[:: 1 if kind == "session" else EACH])
    project = client.get("/api/projects")["items"][0]["id"]
    yield from (f"/project/{project}?tab={tab}" for tab in ("files", "timeline", "manage"))


def test_nothing_that_is_stored_can_run(page: Page, memory: Lab) -> None:
    page.add_init_script(CANARY)
    views.show(page, "/")
    paths = list(_pages(memory))
    fields = sum(len(_poisoned(memory, table)) for table in TABLES) + 8  # eight more come in by the hook
    for path in paths:
        text = _looked_at(page, path)
        if path.startswith(("/observation/", "/session/", "/search?q=xss", "/sessions", "/logs", "/health")):
            assert "xss(" in text or "__proto__" in text or "constructor" in text, path
    while page.locator("button.more:visible").count():
        page.locator("button.more:visible").first.click()
        views.quiet(page)
    memory.spool("UserPromptSubmit", session_id="news", prompt=PAYLOADS[7])
    memory.spool("Stop", session_id="news", last_assistant_message=PAYLOADS[0])
    _looked_at(page, "/")
    page.get_by_role("button", name=re.compile("new")).click()
    _looked_at(page, "/")
    proof.record(
        "payloads that ran, became markup or broke a rule", of="S7", goal="0 of 60", measured=0, ok=len(PAYLOADS) >= 60,
        unit=f"of {len(PAYLOADS)} in {fields} columns and fields, {len(paths)} pages",
    )  # fmt: skip


def test_the_payloads_do_run_where_nothing_stops_them(page: Page, faults: Faults) -> None:
    faults.expect("")
    page.goto("about:blank")
    page.evaluate(CANARY)
    page.evaluate(
        "texts => texts.forEach(text => document.body.appendChild(document.createElement('div')).innerHTML = text)",
        PAYLOADS,
    )
    page.wait_for_function("window.hits.length >= 8")
    bad, _ = page.evaluate(MARKUP)
    assert len(bad) > 40
