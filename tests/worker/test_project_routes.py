"""A project as it is seen and changed: by file, by day, by session; renamed, merged, switched off; and what it tells."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from starlette.testclient import TestClient

from claude_mem import hook
from claude_mem.config import Config, load
from claude_mem.recall.matrix import VectorMatrix, quantize
from claude_mem.storage.records import StoredVector
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_value
from claude_mem.storage.sqlite.memory import browse, projects
from claude_mem.system.project_folders import ResolvedProject, disabled_reason
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import build_app
from tests.support.lab import Lab

TOKEN = "t" * 43
DAY = 86_400_000
NOON = int(datetime(2026, 3, 10, 12).timestamp() * 1000)


class Page:
    """The routes over a service in this process."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http = TestClient(build_app(service, token=TOKEN, port=37777), base_url="http://127.0.0.1:37777")

    def ask(self, method: str, path: str, body: Any = None, /, *, status: int = 200, **query: Any) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = self.http.request(method, path, headers=headers, json=body, params=query or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, /, **query: Any) -> Any:
        return self.ask("GET", path, **query)

    def project(self, name: str) -> int:
        (found,) = [row["id"] for row in self.get("/api/projects")["items"] if row["name"] == name]
        return int(found)


def _turn(
    lab: Lab, folder: Path, session: str, prompt: str, files: dict[str, str], *, at: int, host: str = "claude"
) -> None:
    """A prompt, a few tool calls, and what the agent said."""
    common = {"session_id": session, "cwd": str(folder), "prompt_id": f"{session}.{at}"}
    steps: list[tuple[str, dict[str, Any]]] = [("UserPromptSubmit", {"prompt": prompt})]
    for number, (name, tool) in enumerate(files.items()):
        given = {"file_path": name if name.startswith("/") else str(folder / name)}
        given |= {"old_string": "a", "new_string": "def f(): pass"} if tool == "Edit" else {}
        steps.append(
            ("PostToolUse", {"tool_name": tool, "tool_input": given, "tool_use_id": f"{session}.{at}.{number}"})
        )
    steps.append(("Stop", {"last_assistant_message": f"{prompt}: done. Next: look at the totals of {session} again."}))
    for number, (event, fields) in enumerate(steps):
        lines = f"command {_COMMANDS[event]}\nhost {host}\nproject_dir {folder}\n\n"
        payload = {"hook_event_name": event, **common, **fields}
        lab.raw_spool(lines.encode() + json.dumps(payload).encode(), at=at + number * 1000)


_COMMANDS = {"UserPromptSubmit": "new", "PostToolUse": "save", "Stop": "summary"}


def _repository(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def page(lab: Lab, config: Config) -> Iterator[Page]:
    """Two projects, `shop` with three turns on two days and `basket` with one."""
    basket = _repository(lab.folder / "basket")
    _turn(
        lab,
        lab.project,
        "s1",
        "Fix the empty basket",
        {"src/shop/basket.py": "Edit", "src/shop/total.py": "Read"},
        at=NOON,
    )
    _turn(
        lab, lab.project, "s1", "Round the totals", {"src/shop/total.py": "Edit", "README.md": "Edit"}, at=NOON + 60_000
    )
    _turn(
        lab, lab.project, "s2", "Tidy the tests", {"tests/test_a.py": "Edit", "/etc/hosts.d/x": "Edit"}, at=NOON + DAY
    )
    _turn(lab, basket, "b1", "Weigh the basket", {"src/shop/basket.py": "Edit", "weigh.py": "Edit"}, at=NOON + 2 * DAY)

    async def build() -> Service:
        service = Service(config)
        await service.run_until_idle()
        return service

    service = asyncio.run(build())
    yield Page(service)
    service.close()


# --- seeing ----------------------------------------------------------------------------------------------------------


def test_a_project_tells_what_it_knows_and_what_it_is_known_by(page: Page, lab: Lab) -> None:
    page.service.db.write_now(lambda conn: conn.execute("update session_summaries set outcome = 'partly'"))
    found = page.get(f"/api/project/{page.project('shop')}")
    assert (found["name"], found["root"], found["folders"]) == ("shop", str(lab.project), [str(lab.project)])
    assert found["aliases"] == [
        {"identity": f"git:{lab.project}/.git", "kind": "git folder", "what": f"{lab.project}/.git"}
    ]
    assert (found["counts"]["sessions"], found["counts"]["turns"], found["counts"]["summaries"]) == (2, 3, 3)
    assert found["counts"]["observations"] >= 3
    assert found["counts"]["files"] == 5
    assert found["first_at"] == NOON
    assert found["last_at"] >= NOON + DAY
    assert [(row["host"], row["sessions"]) for row in found["agents"]] == [("claude", 2)]
    assert found["switch"] == {"on": True, "off": [], "folders": 1}
    assert found["last_summary"]["request"] == "Tidy the tests"
    assert any("totals of s1" in step for step in found["open"])


def test_a_project_that_is_not_there_is_not_found(page: Page) -> None:
    for path in ("", "/files", "/days", "/lanes", "/context"):
        assert "there is no project 99" in page.ask("GET", f"/api/project/99{path}", status=404)["error"]
    page.ask("PATCH", "/api/project/99", {"name": "x"}, status=404)
    page.ask("POST", "/api/project/99/off", status=404)
    page.ask("POST", f"/api/project/{page.project('shop')}/merge", {"into": 99}, status=404)


def _tree(page: Page, project_id: int, under: str = "") -> dict[str, tuple[int, int, int]]:
    items = page.get(f"/api/project/{project_id}/files", under=under)["items"]
    return {item["name"]: (item.get("files", 0), item["edited"], item["read"]) for item in items}


def test_the_tree_of_files_opens_level_by_level(page: Page) -> None:
    shop = page.project("shop")
    tree = _tree(page, shop)
    assert list(tree) == ["src/shop/", "tests/", "/etc/hosts.d/", "README.md"]  # folders first, what is outside last
    assert tree["src/shop/"][0] == 2
    below = _tree(page, shop, "src/shop/")
    assert list(below) == ["basket.py", "total.py"]
    edited, read = below["total.py"][1:]
    memories = page.get("/api/observations/by-file", path="src/shop/total.py", project_id=shop)["items"]
    assert edited == sum("src/shop/total.py" in item["files_modified"] for item in memories) > 0
    assert read == sum("src/shop/total.py" in item["files_read"] for item in memories) > 0
    assert tree["src/shop/"][1] == sum(counts[1] for counts in below.values())
    assert _tree(page, shop, "nowhere/") == {}
    assert "a slash" in page.ask("GET", f"/api/project/{shop}/files?under=src", status=400)["hint"]


def _recounted(conn: Connection) -> list[Any]:
    return fetch_all(
        conn,
        """
        select d.project_id, f.value as path, sum(f.kind = 'edited') as edited, sum(f.kind = 'read') as read,
               max(d.created_at) as newest_at
          from signals f join documents d on d.id = f.document_id
         where f.kind in ('edited', 'read') and d.kind = 'observation' group by 1, 2
        """,
    )


def _counted(page: Page) -> list[Any]:
    found = page.service.db.read_now(fetch_all, "select * from known_files order by project_id, path")
    assert found == page.service.db.read_now(_recounted)
    return found


def test_files_are_counted_whatever_happens_to_what_speaks_of_them(page: Page, lab: Lab) -> None:
    shop = page.project("shop")
    before = _counted(page)
    assert before
    newest = page.get("/api/observations/by-file", path="README.md", project_id=shop)["items"]
    for item in newest:
        page.ask("DELETE", f"/api/observation/{item['id']}")
    assert "README.md" not in _tree(page, shop)
    assert len(_counted(page)) < len(before)
    page.service.db.write_now(_touches_only, "src/shop/total.py", "moved.py")
    assert "moved.py" in _tree(page, shop)
    assert "total.py" not in _tree(page, shop, "src/shop/")
    _counted(page)
    page.ask("POST", "/api/reindex")
    _turn(lab, lab.project, "s3", "Read the totals", {"src/shop/total.py": "Read"}, at=NOON + 3 * DAY)
    asyncio.run(page.service.run_until_idle())
    assert _counted(page)
    with pytest.raises(ZeroDivisionError):
        page.service.db.write_now(_delete_session_and_fail, "s1", page)


def _touches_only(conn: Connection, before: str, after: str) -> None:
    """Digested again, what spoke of one file speaks of another."""
    for name in ("files_read", "files_modified"):
        conn.execute(f"update observations set {name} = replace({name}, ?, ?)", (before, after))


def _delete_session_and_fail(conn: Connection, name: str, page: Page) -> None:
    """A session goes with all that was learnt in it; rolled back, for the other tests."""
    conn.execute("delete from sdk_sessions where content_session_id = ?", (name,))
    assert fetch_all(conn, "select * from known_files order by project_id, path") == _recounted(conn) != []
    _ = 1 // 0


def test_the_calendar_counts_each_local_day(page: Page) -> None:
    shop = page.project("shop")
    found = {row["day"]: row for row in page.get(f"/api/project/{shop}/days", year=2026)["items"]}
    assert list(found) == ["2026-03-10", "2026-03-11"]
    assert (found["2026-03-10"]["sessions"], found["2026-03-10"]["turns"]) == (1, 2)
    assert (found["2026-03-11"]["sessions"], found["2026-03-11"]["turns"]) == (1, 1)
    total = sum(row["observations"] for row in found.values())
    assert total == page.get(f"/api/project/{shop}")["counts"]["observations"]
    assert page.get(f"/api/project/{shop}/days", year=2025)["items"] == []
    page.ask("GET", f"/api/project/{shop}/days?year=20260", status=400)


def test_a_day_is_what_it_is_where_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        starts = browse._midnights(2026)
        assert len(starts) == 366
        lengths = {(b - a) // 3_600_000 for a, b in pairwise(starts)}
        assert lengths == {23, 24, 25}
    finally:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()


def test_sessions_are_drawn_within_a_stretch_of_time_page_by_page(page: Page) -> None:
    path = f"/api/project/{page.project('shop')}/lanes"
    found = page.get(path, **{"from": NOON - DAY, "to": NOON + 9 * DAY})
    assert [(item["title"], item["turns"], item["host"]) for item in found["items"]] == [
        ("Tidy the tests", 1, "claude"),
        ("Fix the empty basket", 2, "claude"),
    ]
    first = found["items"][1]
    assert first["start_at"] == NOON < first["end_at"] < NOON + DAY
    assert first["observations"] > 0
    assert [
        len(page.get(path, **{"from": "2026-03-11", "to": to})["items"]) for to in ("2026-03-11", "2026-03-20")
    ] == [1, 1]
    one = page.get(path, **{"from": NOON - DAY, "limit": 1})
    assert one["hasMore"] and len(one["items"]) == 1
    rest = page.get(path, **{"from": NOON - DAY, "limit": 1, "offset": 1})
    assert not rest["hasMore"] and rest["items"][0]["id"] == first["id"]


# --- renaming and merging --------------------------------------------------------------------------------------------


def _start(page: Page, folder: Path) -> str:
    path = page.service.config.starts / hook.brief_filename(str(folder))
    return str(json.loads(path.read_bytes())["hookSpecificOutput"]["additionalContext"])


def test_a_project_can_be_renamed_and_is_recognised_all_the_same(page: Page, lab: Lab) -> None:
    shop = page.project("shop")
    assert page.ask("PATCH", f"/api/project/{shop}", {"name": " Märkte "})["name"] == "Märkte"
    _turn(lab, lab.project, "s4", "Go on", {"src/shop/new.py": "Edit"}, at=NOON + 4 * DAY)
    asyncio.run(page.service.run_until_idle())
    assert page.project("Märkte") == shop
    assert page.get(f"/api/project/{shop}")["counts"]["sessions"] == 3
    assert "[Märkte]" in _start(page, lab.project)
    for bad in ("", "x" * 101, "a\nb", 7):
        page.ask("PATCH", f"/api/project/{shop}", {"name": bad}, status=400)


def _everything(conn: Connection) -> dict[str, dict[Any, int]]:
    """Of every table that names projects: how many rows each has."""
    tables = [
        row["name"]
        for row in fetch_all(
            conn,
            "select distinct t.name from pragma_table_list t, pragma_table_info(t.name) c"
            " where t.type = 'table' and c.name = 'project_id' and t.schema = 'main'",
        )
    ]
    return {
        table: {
            row["id"]: row["n"]
            for row in fetch_all(conn, f"select project_id as id, count(*) as n from {table} group by 1")
        }
        for table in tables
    }


def test_every_table_that_names_a_project_is_merged(page: Page) -> None:
    """A new one must be added to `BELONGS`."""
    named = set(page.service.db.read_now(_everything))
    apart = {"known_files", "deleted_rows", "trusted_sources"}  # added up, changed inside, not handed on
    assert named == {*projects.PROJECT_TABLES.values(), *apart}


def test_two_projects_become_one(page: Page, lab: Lab) -> None:
    shop, basket = page.project("shop"), page.project("basket")
    page.service.db.write_now(_book, basket)
    before = page.service.db.read_now(_everything)
    told = page.ask("POST", f"/api/project/{basket}/merge?dry_run=1", {"into": shop})
    assert told["dry_run"]
    assert told["moves"]["sessions"] == told["moves"]["folders"] == told["moves"]["requests"] == 1
    assert page.service.db.read_now(_everything) == before

    done = page.ask("POST", f"/api/project/{shop}/merge", {"from": basket})
    assert (done["moves"], done["into"]["id"]) == (told["moves"], shop)
    assert page.service.db.read_now(fetch_value, "select count(*) from index_queue") == 0  # nothing to index again
    after = page.service.db.read_now(_everything)
    for table, counts in before.items():
        assert basket not in after[table], table
        if table != "known_files":
            assert after[table].get(shop, 0) == counts.get(shop, 0) + counts.get(basket, 0), table
    page.ask("GET", f"/api/project/{basket}", status=404)
    assert len(page.get(f"/api/project/{shop}")["aliases"]) == 2
    assert _tree(page, shop, "src/shop/")["basket.py"][1] >= 2
    _counted(page)

    asyncio.run(page.service.run_until_idle())
    assert "Weigh the basket" in _start(page, lab.folder / "basket") == _start(page, lab.project)
    _turn(lab, lab.folder / "basket", "b2", "Weigh it again", {"weigh.py": "Edit"}, at=NOON + 5 * DAY)
    asyncio.run(page.service.run_until_idle())
    assert [row["name"] for row in page.get("/api/projects")["items"]] == ["shop"]
    hits = page.get("/api/search", query="weigh", project="shop")["items"]
    assert hits


def _book(conn: Connection, project_id: int) -> None:
    conn.execute(
        "insert into ledger (at, purpose, project_id, provider, model, input_tokens, output_tokens, cost)"
        " values (1, 'refine', ?, 'x', 'y', 1, 1, 1)",
        (project_id,),
    )


def test_what_waits_for_the_index_still_waits_after_a_merge(page: Page) -> None:
    shop, basket = page.project("shop"), page.project("basket")
    waiting = page.service.db.write_now(_stale_one_each, shop, basket)
    page.ask("POST", f"/api/project/{basket}/merge", {"into": shop})
    found = page.service.db.read_now(fetch_all, "select kind, row_id from index_queue order by row_id")
    assert [(row["kind"], row["row_id"]) for row in found] == waiting


def _stale_one_each(conn: Connection, *project_ids: int) -> list[tuple[str, int]]:
    found = [fetch_value(conn, "select min(id) from observations where project_id = ?", (id_,)) for id_ in project_ids]
    conn.executemany("insert into index_queue values ('observation', ?)", [(row_id,) for row_id in found])
    return [("observation", row_id) for row_id in sorted(found)]


def test_a_merge_that_makes_no_sense_is_refused(page: Page) -> None:
    path = f"/api/project/{page.project('shop')}/merge"
    for body in ({}, {"into": "x"}, {"into": 1, "from": 2}, {"into": page.project("shop")}):
        assert page.ask("POST", path, body, status=400)["hint"]


def test_a_named_project_of_an_older_memory_gets_the_root_it_is_merged_with(config: Config, lab: Lab) -> None:
    db = Database(config.database, backups=config.backups)
    named = db.write_now(projects.register_project, ResolvedProject("shop", "", ("older:shop",)), "", now=7)
    real = db.write_now(_insert, str(lab.project))
    db.write_now(projects.merge_project_into, real, named)
    assert asdict(db.read_now(projects.get_project, named)) == {
        "id": named,
        "name": "shop",
        "root": str(lab.project),
        "created_at": 5,
    }
    db.close()


def _insert(conn: Connection, root: str) -> int:
    return int(
        fetch_value(conn, "insert into projects (name, root, created_at) values ('other', ?, 5) returning id", (root,))
    )


def test_vectors_in_memory_move_too_even_those_that_come_later() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: no vectors here")
    matrix = VectorMatrix(4)
    blob = quantize(numpy.array([1, 0, 0, 0], numpy.float32))
    row = StoredVector(1, 0, 7, 1, 1, 0, 10, blob)
    matrix.add([row])
    matrix.move(7, 3)
    matrix.move(3, 4)
    matrix.add([StoredVector(2, 0, 7, 2, -7, 0, 10, blob)])
    question = numpy.array([1, 0, 0, 0], numpy.float32)
    assert set(matrix.nearest(question, project_ids=[4]).raw) == {1, 2}
    assert not matrix.nearest(question, project_ids=[7, 3]).raw


# --- on and off ------------------------------------------------------------------------------------------------------


def _excluded(config: Config) -> list[str]:
    return list(tomllib.loads((config.data_dir / "config.toml").read_text("utf-8")).get("excluded_projects", []))


def test_what_turns_a_folder_off_is_told(lab: Lab) -> None:
    folder = str(lab.project)
    assert disabled_reason(folder, ()) is None
    assert disabled_reason(folder, ("/x", f"{lab.folder}/**")) == ("setting", f"{lab.folder}/**")
    said = lab.folder / ".claude-mem.toml"
    said.write_text("enabled = false\n")
    assert disabled_reason(folder, ()) == ("file", str(said))
    said.write_text("enabled = maybe\n")
    assert disabled_reason(folder, ()) == ("problem", f"{said} is not valid TOML")


def test_a_project_is_switched_off_and_on_again_and_nothing_else_is(page: Page, lab: Lab) -> None:
    odd = _repository(lab.folder / "shop [old]*")
    _turn(lab, odd, "o1", "Give the basket a lid", {"a.py": "Edit"}, at=NOON)
    _turn(lab, odd / "inner", "o2", "Look further", {"b.py": "Edit"}, at=NOON)
    asyncio.run(page.service.run_until_idle())
    config = page.service.config
    path = f"/api/project/{page.project('shop [old]*')}"
    switch = page.ask("POST", f"{path}/off")["switch"]
    assert not (config.starts / hook.brief_filename(str(odd))).exists()  # the hook would tell it without asking anyone
    assert _start(page, lab.project)
    (pattern,) = _excluded(config)  # the folder in it needs no pattern of its own
    assert {row["folder"] for row in switch["off"]} == {str(odd), str(odd / "inner")}
    assert {(row["by"], row["what"]) for row in switch["off"]} == {("setting", pattern)}
    assert not switch["on"]
    assert disabled_reason(str(odd / "inner"), load().excluded_projects) == ("setting", pattern)
    assert disabled_reason(str(lab.folder / "shop oX"), load().excluded_projects) is None
    page.service.config = load()
    assert page.ask("POST", f"{path}/off")["switch"] == switch
    assert _excluded(config) == [pattern]
    assert page.ask("POST", f"{path}/on")["switch"]["on"]
    assert _excluded(config) == []
    assert "basket a lid" in _start(page, odd)


def test_what_is_switched_off_by_others_is_told_and_left(page: Page, lab: Lab) -> None:
    wide = f"{lab.folder}/*"
    (lab.data / "config.toml").write_text(f'# mine\nexcluded_projects = ["{wide}"]\n')
    page.service.config = load()
    shop = page.project("shop")
    switch = page.ask("POST", f"/api/project/{shop}/on")["switch"]
    assert switch["off"] == [{"folder": str(lab.project), "by": "setting", "what": wide}]
    assert (lab.data / "config.toml").read_text() == f'# mine\nexcluded_projects = ["{wide}"]\n'
    assert page.get(f"/api/project/{shop}/context")["switch"] == switch


def test_a_project_without_a_folder_has_no_switch(page: Page) -> None:
    page.ask("POST", "/api/memory/save", {"text": "Buy milk", "project": "errands"})
    errands = page.project("errands")
    assert page.get(f"/api/project/{errands}")["switch"] == {"on": True, "off": [], "folders": 0}
    assert "no folder" in page.ask("POST", f"/api/project/{errands}/off", status=409)["error"]


# --- what the next session is told -----------------------------------------------------------------------------------


def test_other_values_are_tried_and_not_kept(page: Page) -> None:
    page.service.db.write_now(lambda conn: conn.execute("update session_summaries set outcome = 'partly'"))
    path = f"/api/project/{page.project('shop')}/context"
    full = page.get(path)
    assert full["settings"] == full["stored"] == {"context_tokens": 800, "context_observations": 50}
    assert full["tokens"] + full["room"] == 800
    summaries = [item["title"] for item in full["told"] if item["kind"] == "summary"]
    assert summaries[0].startswith("Tidy the tests: done.")
    assert "ook at the totals of s2 again" in full["text"]
    one = page.get(path, context_observations=1, context_tokens=2000)
    assert [item["kind"] for item in one["told"]] == ["observation", *("summary" for _ in summaries)]
    assert (one["settings"]["context_observations"], one["stored"]) == (1, full["stored"])
    for item in full["told"]:
        if item["kind"] == "observation":
            assert f"\n{item['id']} " in full["text"]
    assert page.get(path) == full
    for bad in ({"context_tokens": 5}, {"context_tokens": "x"}, {"context_observations": 0}):
        assert page.ask("GET", path, status=400, **bad)["error"]


def test_a_session_is_told_what_was_shown_to_the_byte(lab: Lab) -> None:
    _turn(lab, lab.project, "s1", "Fix the ünusual basket", {"basket.py": "Edit"}, at=int(time.time() * 1000) - DAY)
    client = lab.start()
    lab.wait_digested()
    (project,) = client.get("/api/projects")["items"]
    shown = client.get(f"/api/project/{project['id']}/context")
    told = lab.hook("SessionStart", session_id="next", source="startup")
    assert told["hookSpecificOutput"]["additionalContext"] == shown["text"]
    assert "ünusual" in shown["text"]


def test_projects_on_the_command_line(lab: Lab) -> None:
    basket = _repository(lab.folder / "basket")
    _turn(lab, lab.project, "s1", "Fix the basket", {"basket.py": "Edit"}, at=int(time.time() * 1000) - DAY)
    _turn(lab, basket, "b1", "Weigh the basket", {"weigh.py": "Edit"}, at=int(time.time() * 1000) - 2 * DAY)
    lab.start()
    lab.wait_digested()
    listed = [json.loads(line) for line in lab.mem("project", "--json").stdout.splitlines()]
    assert [row["name"] for row in listed] == ["shop", "basket"]
    assert f"git folder {basket}/.git" in lab.mem("project", "show", str(basket)).stdout
    assert "renamed basket to scales" in lab.mem("project", "rename", "basket", "scales").stdout
    off = lab.mem("project", "off", "scales").stdout
    assert off.splitlines() == ["memory is off for scales", f"off in    {basket}, by setting: {basket}"]
    assert "hookSpecificOutput" not in lab.hook(
        "SessionStart", cwd=str(basket), env={"CLAUDE_PROJECT_DIR": str(basket)}
    )
    assert lab.mem("project", "on", "scales").stdout == "memory is on for scales\n"
    refused = lab.mem("project", "merge", "scales", "shop", ok=False)
    assert (refused.returncode, "nothing was changed" in refused.stderr) == (1, True)
    assert "merged scales into shop" in lab.mem("project", "merge", "scales", "shop", "--yes").stdout
    assert lab.mem("project", "show", "scales", ok=False).returncode == 1
    assert "Weigh the basket" in lab.mem("list", "prompts", "--project", "shop").stdout
