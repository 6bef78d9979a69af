"""The feed of all kinds, and questions that are still being typed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from claude_mem.client import Client
from claude_mem.domain.errors import InvalidRequest
from claude_mem.recall.rank import snippet
from tests.support.lab import Lab
from tests.viewer import history


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    lab = Lab(tmp_path_factory.mktemp("feed"))
    try:
        history.tell(lab)
        yield lab.client()
    finally:
        lab.close()


def _all(client: Client, limit: int, **given: Any) -> list[dict[str, Any]]:
    found, place = [], ""
    while True:
        page = client.get("/api/feed", limit=limit, before=place, **given)
        assert len(page["items"]) <= limit
        found += page["items"]
        if not (place := page["next"]):
            return found


def _names(items: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(item["kind"], item["id"]) for item in items]


def test_pages_give_everything_once_and_newest_first(client: Client) -> None:
    whole = client.get("/api/feed", limit=100)["items"]
    assert {item["kind"] for item in whole} == {"observation", "summary", "prompt"}
    times = [item["created_at"] for item in whole]
    assert times == sorted(times, reverse=True)
    for limit in (1, 2, 7):
        assert _names(_all(client, limit)) == _names(whole)
    counted = {kind: len(client.get(f"/api/{path}", limit=100)["items"]) for kind, path in _LISTS.items()}
    assert {kind: sum(item["kind"] == kind for item in whole) for kind in _LISTS} == counted


_LISTS = {"observation": "observations", "summary": "summaries", "prompt": "prompts"}


def test_each_filter_leaves_what_fits_and_nothing_else(client: Client) -> None:
    whole = client.get("/api/feed", limit=100)["items"]
    atlas = next(item["project_id"] for item in whole if item["project"] == "atlas")
    middle = whole[len(whole) // 2]["created_at"]
    for given, fits in (
        ({"project": atlas}, lambda item: item["project_id"] == atlas),
        ({"kind": "summary"}, lambda item: item["kind"] == "summary"),
        ({"type": "bugfix"}, lambda item: item.get("type") == "bugfix"),
        ({"host": "codex"}, lambda item: item["host"] == "codex"),
        ({"concept": "problem-solution"}, lambda item: "problem-solution" in item.get("concepts", [])),
        ({"since": middle}, lambda item: item["created_at"] >= middle),
        ({"until": middle}, lambda item: item["created_at"] < middle),
        ({"kind": "prompt", "type": "bugfix"}, lambda item: False),
    ):
        wanted = [name for name, item in zip(_names(whole), whole, strict=True) if fits(item)]
        assert _names(_all(client, 5, **given)) == wanted
        assert wanted or given.get("kind") == "prompt"


@pytest.mark.parametrize("place", ["x", "1", "1.observation", "1.observation.x", ".", "-1.observation.2", "é.é.é"])
def test_a_place_that_is_none_is_refused(client: Client, place: str) -> None:
    with pytest.raises(InvalidRequest):
        client.get("/api/feed", before=place)


def test_what_there_is_to_filter_by(client: Client) -> None:
    found = client.get("/api/facets")
    assert {"bugfix", "discovery"} <= {item["name"] for item in found["types"]}
    assert {"claude", "codex", "gemini"} <= {item["name"] for item in found["hosts"]}
    assert {"shop", "atlas"} <= {item["name"] for item in found["projects"]}
    assert "problem-solution" in found["concepts"]


@pytest.mark.parametrize("typed", ["vou", "expired vouch", "Vouchers", "voucher zzqx"])
def test_a_question_finds_while_it_is_typed(client: Client, typed: str) -> None:
    found = client.get("/api/search", query=typed, typing=1, explain=1)["items"]
    assert any("voucher" in item["title"].lower() + item["snippet"].lower() for item in found[:3])


def test_without_that_half_a_word_is_no_word(client: Client) -> None:
    assert not any(item["explain"]["terms"] for item in client.get("/api/search", query="vou", explain=1)["items"])


def test_a_project_is_named_by_its_number(client: Client) -> None:
    for project in client.get("/api/projects")["items"]:
        found = client.get("/api/search", query="pytest passed tests", project_id=project["id"])["items"]
        assert {item["project"] for item in found} <= {project["name"]}
    assert client.get("/api/search", query="pytest", project_id=999)["items"] == []


def test_a_snippet_begins_a_little_before_the_word() -> None:
    text = (
        "Some words that lead up to it, and many of them, so that they do not fit. " * 3 + "Here is the needle. Rest."
    )
    said = snippet(text, ["needle"])
    assert said.startswith("… ")
    assert "the needle" in said
    assert snippet("Short needle", ["needle"]) == "Short needle"
    assert snippet("", ["x"]) == ""
    assert snippet("No word of it (*", ["(*"])
