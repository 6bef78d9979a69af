"""`claude-mem review` and its routes: what has changed under the memories, and a person's word on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claude_mem.client import Client
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.storage.sqlite.engine import open_writer
from claude_mem.storage.sqlite.memory import anchors
from tests.support.lab import Lab
from tests.support.repositories import Repository, classes, functions, work
from tests.support.terminal import Terminal
from tests.support.waiting import SECONDS, wait_for

PRICES_SAID = "Prices are now computed by nine price functions in the basket module, one for each customer group."
TAXES_SAID = "Taxes are now looked up in a table of nine tax functions, so that a new country needs one more line."
CLASS_SAID = "Replaced the nine tax functions with basket classes, because countries differ in more than the tax."


@pytest.fixture
def shop(lab: Lab) -> Iterator[Lab]:
    """A worker with one memory whose code somebody replaced, and one that a later session superseded."""
    repository = Repository(lab.project)
    work(lab, "a", "src/prices.py", functions("price"), PRICES_SAID)
    work(lab, "b", "src/taxes.py", functions("tax"), TAXES_SAID)
    client = lab.start()
    lab.wait_digested()
    repository.commit("Add prices and taxes")
    client.post("/api/review", {"cwd": str(lab.project)})
    (lab.project / "src" / "prices.py").write_text(classes("Price"))
    repository.commit("Use price classes", in_days=3)  # what is taken back within a day was reverted
    work(lab, "c", "src/taxes.py", classes("Tax"), CLASS_SAID)
    lab.wait_digested()
    yield lab


def reviewed(client: Client, lab: Lab, **query: str) -> dict[str, dict[str, Any]]:
    """The items to review by the word `price` or `tax` of their titles."""
    client.post("/api/review", {"cwd": str(lab.project)})
    items = client.get("/api/review", cwd=str(lab.project), **query)["items"]
    return {"price" if "price" in item["title"].lower() else "tax": item for item in items}


def brief(lab: Lab) -> str:
    return str(lab.client().get("/api/context/inject", cwd=str(lab.project)))


def is_in(text: str, item: dict[str, Any]) -> bool:
    """Whether the text names the memory, in a line of its own or beside another of the same work."""
    return bool(re.search(rf"\b{item['id']}\b", text))


def test_what_is_outdated_and_what_was_superseded_is_listed_with_what_replaced_it(shop: Lab) -> None:
    items = reviewed(shop.client(), shop)
    assert {name: item["validity"] for name, item in items.items()} == {"price": "outdated", "tax": "superseded"}
    assert "basket classes" in items["tax"]["successor"]["title"]
    assert items["price"]["successor"] is None
    assert len(items["price"]["head"]) == 40
    page = shop.client().get("/api/review", cwd=str(shop.project), limit=1)
    assert (len(page["items"]), page["hasMore"]) == (1, True)
    assert page["counts"]["outdated"] == page["counts"]["superseded"] == 1
    assert shop.client().get("/api/review", cwd=str(shop.folder))["items"] == []


def test_the_command_lists_in_a_pipe_and_as_json(shop: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.project)
    text = shop.mem("review").stdout
    assert "its code was replaced since" in text
    assert "superseded by #" in text
    assert "[k]eep" not in text
    items = [json.loads(line) for line in shop.mem("review", "--json").stdout.splitlines()]
    assert {item["validity"] for item in items} == {"outdated", "superseded"}
    monkeypatch.chdir(shop.folder)
    assert "nothing to review" in shop.mem("review").stderr


@pytest.mark.parametrize("name", ["price", "tax"])
def test_a_kept_memory_is_injected_again_until_its_code_changes_again(shop: Lab, name: str) -> None:
    client = shop.client()
    item = reviewed(client, shop)[name]
    assert not is_in(brief(shop), item)
    row = client.post(f"/api/observation/{item['id']}/keep")
    assert (row["validity"], row["superseded_by"]) == ("kept", None)
    assert is_in(brief(shop), item)
    assert name not in reviewed(client, shop)
    assert is_in(brief(shop), item), "another look at the same code changes nothing"
    answer = shop.hook("SessionStart", session_id="later", source="startup")
    assert is_in(answer["hookSpecificOutput"]["additionalContext"], item)
    path = shop.project / "src" / {"price": "prices.py", "tax": "taxes.py"}[name]
    path.write_text("\n".join(functions(name).splitlines()[:3]) + "\n")  # some lines come back
    assert reviewed(client, shop)[name]["validity"] == "outdated"
    assert not is_in(brief(shop), item)


def test_keeping_can_be_taken_back(shop: Lab) -> None:
    client = shop.client()
    for name, item in reviewed(client, shop).items():
        client.post(f"/api/observation/{item['id']}/keep")
        row = client.delete(f"/api/observation/{item['id']}/keep")
        assert (row["validity"], row["superseded_by"]) == (item["validity"], item["superseded_by"])
        assert name in reviewed(client, shop)
        with pytest.raises(OperationFailed, match="was not kept"):
            client.delete(f"/api/observation/{item['id']}/keep")


def test_a_kept_memory_is_not_superseded_by_the_same_one_again(shop: Lab) -> None:
    client = shop.client()
    items = reviewed(client, shop)
    kept, other, successor = items["tax"]["id"], items["price"]["id"], items["tax"]["superseded_by"]
    client.post(f"/api/observation/{kept}/keep")
    shop.mem("stop")
    conn = open_writer(shop.data / "claude-mem.db")
    anchors.supersede(conn, [kept, other], successor)  # as when the turn of the successor is digested again
    conn.close()
    links = dict(shop.rows("select id, superseded_by from observations"))
    assert (links[kept], links[other]) == (None, successor)


def test_a_kept_rule_stays_although_a_later_one_contradicts_it(lab: Lab) -> None:
    client = lab.start()
    where = {"cwd": str(lab.project)}
    first = client.post("/api/memory/save", {"text": "We use npm here.", "type": "rule", **where})["id"]
    client.post("/api/memory/save", {"text": "Always use pnpm instead of npm.", "type": "rule", **where})
    client.post("/api/review", where)
    (item,) = client.get("/api/review", **where)["items"]
    assert (item["id"], item["validity"]) == (first, "superseded")
    client.post(f"/api/observation/{first}/keep")
    client.post("/api/memory/save", {"text": "Never commit to the main branch.", "type": "rule", **where})
    assert client.get(f"/api/observation/{first}")["superseded_by"] is None
    assert "We use npm here" in brief(lab)


def test_only_a_person_keeps(shop: Lab) -> None:
    item = reviewed(shop.client(), shop)["price"]
    agent = Client(shop.client().worker, by="agent")
    for send in (agent.post, agent.delete):
        with pytest.raises(OperationFailed, match="only the user"):
            send(f"/api/observation/{item['id']}/keep")
    with pytest.raises(NotFound):
        shop.client().post("/api/observation/999/keep")
    with pytest.raises(InvalidRequest, match="`validity` must be of changed"):
        shop.client().get("/api/review", validity="rotten")
    with pytest.raises(InvalidRequest, match="missing"):
        shop.client().post("/api/review")


def test_what_was_seen_when_is_told_with_the_commit_and_the_successor(shop: Lab) -> None:
    client = shop.client()
    items = reviewed(client, shop)
    changes = client.get(f"/api/observation/{items['price']['id']}/page")["validity"]
    assert [change["validity"] for change in changes] == ["outdated", "current"]
    assert all(len(change["head"]) == 40 for change in changes)
    assert changes[0]["head"] != changes[1]["head"]
    (seen, *_) = client.get(f"/api/observation/{items['tax']['id']}/page")["validity"]
    assert (seen["validity"], seen["superseded_by"]) == ("superseded", items["tax"]["superseded_by"])
    assert "basket classes" in seen["successor"]


def test_forgetting_leaves_nothing_of_it(shop: Lab) -> None:
    client = shop.client()
    for item in reviewed(client, shop).values():
        client.post(f"/api/observation/{item['id']}/keep")
        client.delete(f"/api/observation/{item['id']}")
    assert reviewed(client, shop) == {}
    shop.mem("stop")
    forgotten = "(select id from observations where forgotten)"
    for table in ("confirmations", "validity_changes"):
        assert shop.rows(f"select * from {table} where observation_id in {forgotten}") == []


# --- at a terminal ---------------------------------------------------------------------------------------------------


KEYS = "[k]eep"


def test_one_key_keeps_and_one_skips(shop: Lab) -> None:
    terminal = Terminal(shop, "review")
    terminal.answer(KEYS, "k")
    assert "1 of 2" in terminal.shown
    terminal.answer(KEYS, "\n")
    assert "kept" in terminal.shown
    assert "1 kept, 0 corrected, 0 forgotten" in terminal.finish()
    assert len(reviewed(shop.client(), shop)) == 1


def test_an_unknown_key_is_asked_for_again_and_decides_nothing(shop: Lab) -> None:
    terminal = Terminal(shop, "review")
    terminal.answer(KEYS, "x")
    assert "2 of 2" not in terminal.shown
    terminal.answer(KEYS, "k")
    assert "'x' is none of the keys" in terminal.shown
    terminal.answer(KEYS, "q")
    assert "1 kept, 0 corrected, 0 forgotten" in terminal.finish()


def test_forgetting_asks_with_no_as_the_default_and_can_be_undone(shop: Lab) -> None:
    terminal = Terminal(shop, "review")
    terminal.answer(KEYS, "f")
    terminal.answer("[y/N]", "\n")
    terminal.answer(KEYS, "f")
    assert "forgotten" not in terminal.shown
    terminal.answer("[y/N]", "y\n")
    text = terminal.finish()
    assert "forget --undo" in text
    assert "1 forgotten" in text
    (number,) = [word.strip("`)\r\n") for line in text.splitlines() if "--undo" in line for word in line.split()[-1:]]
    assert len(reviewed(shop.client(), shop)) == 1
    shop.mem("forget", "--undo", number)
    assert shop.client().get(f"/api/observation/{number}")["title"]


def test_correcting_opens_the_editor_and_keeps_what_was_corrected(shop: Lab) -> None:
    script = shop.folder / "editor"
    script.write_text('#!/bin/sh\nsed -i \'s/^title = .*/title = "Corrected by hand"/\' "$1"\n')
    script.chmod(0o755)
    terminal = Terminal(shop, "review", EDITOR=str(script))
    terminal.answer(KEYS, "c")
    terminal.answer(KEYS, "q")
    assert "corrected" in terminal.shown
    assert "1 corrected" in terminal.finish()
    assert "Corrected by hand" in brief(shop)


def test_an_agent_that_runs_it_gets_the_list(shop: Lab) -> None:
    terminal = Terminal(shop, "review", CLAUDECODE="1")
    text = terminal.finish()
    assert "superseded by #" in text
    assert KEYS not in text


# --- a person's word lasts ---------------------------------------------------------------------------------------------


def validity_of(lab: Lab, row_id: int) -> str:
    """What is known of a memory after another look."""
    lab.client().post("/api/review", {"cwd": str(lab.project)})
    return str(lab.client().get(f"/api/observation/{row_id}")["validity"])


@pytest.mark.parametrize("by", ["memory", "session"])
@pytest.mark.parametrize("name", ["price", "tax"])
def test_a_kept_memory_that_was_forgotten_and_restored_is_kept(shop: Lab, name: str, by: str) -> None:
    client = shop.client()
    item = reviewed(client, shop)[name]
    client.post(f"/api/observation/{item['id']}/keep")
    if by == "memory":
        shop.mem("forget", str(item["id"]), "--yes")
        shop.mem("forget", "--undo", str(item["id"]))
    else:
        shop.mem("forget", "--session", {"price": "a", "tax": "b"}[name], "--yes")
        shop.mem("forget", "--undo", "F1")
    wait_for(lambda: validity_of(shop, item["id"]) == "kept")
    assert client.get(f"/api/observation/{item['id']}")["superseded_by"] is None
    path = shop.project / "src" / {"price": "prices.py", "tax": "taxes.py"}[name]
    path.write_text("\n".join(functions(name).splitlines()[:3]) + "\n")
    wait_for(lambda: validity_of(shop, item["id"]) == "outdated")


def test_a_kept_memory_is_kept_on_another_machine(shop: Lab, tmp_path: Path) -> None:
    client = shop.client()
    items = reviewed(client, shop)
    client.post(f"/api/observation/{items['price']['id']}/keep")
    file = shop.folder / "moved.jsonl"
    shop.mem("export", str(file))
    for options, expected in (((), {"price": "kept", "tax": ""}), (("--untrusted",), {"price": "", "tax": ""})):
        (tmp_path / f"other{len(options)}").mkdir()
        other = Lab(tmp_path / f"other{len(options)}")
        try:
            other.start()
            other.mem("import", *options, str(file))
            rows = other.client().get("/api/observations")["items"]
            states = {"price" if "price" in row["title"].lower() else "tax": row["validity"] for row in rows[1:]}
            assert states == expected, options
        finally:
            other.close()


def test_a_word_that_has_ended_is_not_exported(shop: Lab) -> None:
    client = shop.client()
    item = reviewed(client, shop)["price"]
    client.post(f"/api/observation/{item['id']}/keep")
    (shop.project / "src" / "prices.py").write_text("\n".join(functions("price").splitlines()[:3]) + "\n")
    assert validity_of(shop, item["id"]) == "outdated"
    assert set(re.findall(r'"kept_at":(\w+)', shop.mem("export", "-").stdout)) == {"null"}


def test_a_kept_rule_is_not_superseded_when_both_are_imported(lab: Lab, tmp_path: Path) -> None:
    client = lab.start()
    where = {"project": "shop"}
    first = client.post("/api/memory/save", {"text": "Always use npm.", "type": "rule", **where})["id"]
    client.post("/api/memory/save", {"text": "Always use pnpm instead of npm.", "type": "rule", **where})
    assert client.get(f"/api/observation/{first}")["validity"] == "superseded"
    client.post(f"/api/observation/{first}/keep")
    file = lab.folder / "moved.jsonl"
    lab.mem("export", str(file))
    (tmp_path / "other").mkdir()
    other = Lab(tmp_path / "other")
    try:
        other.start()
        for _ in range(2):  # again: nothing changes
            other.mem("import", str(file))
            rows = {row["title"]: row for row in other.client().get("/api/observations")["items"]}
            assert rows["Always use npm."]["validity"] == "kept"
            assert rows["Always use npm."]["superseded_by"] is None
    finally:
        other.close()


# --- instruction files -------------------------------------------------------------------------------------------------


def test_lines_of_instruction_files_that_no_longer_hold_are_listed(shop: Lab) -> None:
    repository = Repository.__new__(Repository)
    repository.root = shop.project
    client, where = shop.client(), {"cwd": str(shop.project)}
    assert client.get("/api/review/instructions", **where) == {"files": [], "statements": 0, "items": []}
    repository.put("AGENTS.md", "# The shop\n\nTaxes are in `src/taxes.py`.\n- `src/prices.py`: nine functions\n")
    repository.commit("Explain it")
    repository.git("mv", "src/taxes.py", "src/duties.py")
    commit = repository.commit("Rename the taxes")
    report = client.get("/api/review/instructions", project="shop")
    assert (report["files"], report["statements"]) == (["AGENTS.md"], 2)
    (item,) = report["items"]
    assert item == {
        "file": "AGENTS.md",
        "line": 3,
        "text": "Taxes are in `src/taxes.py`.",
        "problems": [
            {
                "kind": "path",
                "name": "src/taxes.py",
                "was": "src/taxes.py",
                "now": "src/duties.py",
                "commit": commit,
                "subject": "Rename the taxes",
            }
        ],
        "has_proposal": True,
        "replacement": "Taxes are in `src/duties.py`.",
    }
    assert (shop.project / "AGENTS.md").read_text().count("src/taxes.py") == 1, "it is only read"
    with pytest.raises(InvalidRequest, match="is missing"):
        client.get("/api/review/instructions")


def test_the_instruction_files_of_an_excluded_project_are_not_read(shop: Lab) -> None:
    (shop.project / "AGENTS.md").write_text("Taxes are in `src/taxes.py`.\n")
    assert shop.client().get("/api/review/instructions", project="shop")["files"] == ["AGENTS.md"]
    (shop.project / ".claude-mem.toml").write_text("enabled = false\n")
    assert shop.client().get("/api/review/instructions", project="shop")["files"] == []


# --- every face marks what does not hold -------------------------------------------------------------------------------


def test_search_lists_and_tools_mark_what_does_not_hold(shop: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    client = shop.client()
    items = reviewed(client, shop)
    marks = {items["price"]["id"]: "⟨outdated⟩", items["tax"]["id"]: f"⟨superseded by {items['tax']['superseded_by']}⟩"}
    monkeypatch.chdir(shop.project)
    for row_id, mark in marks.items():
        assert mark in shop.mem("show", str(row_id)).stdout
        assert mark in tool(client, "get_observations", {"ids": [row_id]})
        assert mark in tool(client, "timeline", {"anchor": row_id})
    texts = {
        "list": shop.mem("list").stdout,
        "search": shop.mem("search", "functions", "--kind", "observation").stdout,
        "timeline": shop.mem("timeline", "--before", "20").stdout,
        "tool": tool(client, "search", {"query": "functions", "kind": "observation"}),
        "text": str(client.get("/api/search", query="functions", kind="observation", format="text")),
    }
    for face, text in texts.items():
        assert [mark for mark in marks.values() if mark not in " ".join(text.split())] == [], f"{face}: {text}"


def tool(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """The text that an agent's tool returns."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"Authorization": f"Bearer {client.worker.token}", "Accept": "application/json, text/event-stream"}
    address = f"http://127.0.0.1:{client.worker.port}/mcp"
    answer = httpx2.post(address, json=call, headers=headers, timeout=SECONDS).json()
    return str(answer["result"]["content"][0]["text"])


def test_listings_are_filtered_by_validity(shop: Lab) -> None:
    client = shop.client()
    outdated = reviewed(client, shop)["price"]["id"]
    for path in ("/api/search", "/api/observations", "/api/feed"):
        assert [item["id"] for item in client.get(path, validity="outdated")["items"]] == [outdated], path
        assert len(client.get(path, validity="changed")["items"]) == 2, path
    found = client.get("/api/search", query="price functions", validity="superseded,gone")["items"]
    assert [item["validity"] for item in found] == ["superseded"]
    (line,) = shop.mem("search", "price", "--validity", "outdated", "--json").stdout.splitlines()
    assert json.loads(line)["id"] == outdated
    assert f" {outdated} " in f" {shop.mem('list', '--validity', 'outdated').stdout} "
    assert "have no validity" in shop.mem("list", "prompts", "--validity", "gone", ok=False).stderr


def test_the_page_of_a_session_and_of_a_file_mark_them(shop: Lab) -> None:
    client = shop.client()
    reviewed(client, shop)
    (item,) = client.get("/api/observations/by-file?project=shop&path=src/prices.py")["items"]
    assert item["validity"] == "outdated"
    story = client.get(f"/api/session/{item['session_id']}/story")
    assert [row["validity"] for turn in story["turns"] for row in turn["observations"]] == ["outdated"]
    session = client.get(f"/api/session/{item['session_id']}")
    assert [row["validity"] for row in session["observations"]] == ["outdated"]


# --- the brief at a commit -------------------------------------------------------------------------------------------


def at(lab: Lab, commit: str) -> str:
    done = lab.mem("context", "--project", "shop", "--at", commit, "--json")
    answer = json.loads(done.stdout)
    assert answer["project"] == "shop"
    assert len(answer["commit"]) == 40
    return str(answer["context"])


def test_the_brief_at_a_commit_has_what_holds_there(shop: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.__new__(Repository)
    repository.root = shop.project
    price = reviewed(shop.client(), shop)["price"]
    assert not is_in(at(shop, "HEAD"), price)
    assert is_in(at(shop, "HEAD~1"), price), "the commit before the classes"
    assert not is_in(at(shop, "HEAD~2"), price), "there was no such file yet"
    repository.git("checkout", "-q", "-b", "renamed", "HEAD~1")
    repository.git("mv", "src/prices.py", "src/sums.py")
    repository.commit("Rename it")
    repository.git("checkout", "-q", "main")
    assert is_in(at(shop, "renamed"), price), "its lines are in another file there"
    monkeypatch.chdir(shop.project)
    done = shop.mem("context", "--at", "HEAD~1")
    assert "one for each customer group" in done.stdout
    assert "shop at " in done.stderr
    assert not is_in(brief(shop), price), "looking at a commit changes nothing"


@pytest.mark.parametrize("name", ["nothing", "HEAD:README", "", "HEAD\nHEAD", "--all", "x" * 5000])
def test_a_commit_that_does_not_exist_is_a_clear_error(shop: Lab, name: str) -> None:
    with pytest.raises((NotFound, InvalidRequest), match=r"there is no commit|missing"):
        shop.client().get("/api/context/at", project="shop", at=name)


def test_nothing_is_claimed_about_a_file_that_git_can_not_read(shop: Lab) -> None:
    repository = Repository.__new__(Repository)
    repository.root = shop.project
    price = reviewed(shop.client(), shop)["price"]
    blob = repository.git("rev-parse", "HEAD:src/prices.py")
    (shop.project / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    assert is_in(at(shop, "HEAD"), price)


def test_without_a_repository_there_are_no_commits(lab: Lab) -> None:
    (lab.project / ".git").rmdir()
    work(lab, "a", "src/prices.py", functions("price"), PRICES_SAID)
    lab.start()
    lab.wait_digested()
    assert "commits can't be read" in lab.mem("context", "--project", "shop", "--at", "HEAD", ok=False).stderr
    assert "exclude each other" in lab.mem("context", "--at", "HEAD", "--prompt", "x", ok=False).stderr
    assert "there is no project" in lab.mem("context", "--project", "nowhere", "--at", "HEAD", ok=False).stderr
