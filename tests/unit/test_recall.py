"""Questions find what they should, say why, and stay silent when there is nothing to say."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import mul
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from claude_mem.config import Config
from claude_mem.recall import likely_files, rank
from claude_mem.recall.codes import CodeMatrix
from claude_mem.recall.documents import split_text
from claude_mem.recall.matrix import VectorMatrix, quantize
from claude_mem.recall.nearness import Matrix, Nearness
from claude_mem.recall.rank import Hit, SearchCandidate, SearchEvidence, SearchQuery, fuse_rankings
from claude_mem.storage.records import DOCUMENT_KINDS, PassageMatch, SearchFilter, StoredVector, WordScores
from claude_mem.storage.sqlite.memory import edits
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import build_app
from tests.storage.test_search import DAY, MINUTE, NOW, _session, save
from tests.support.embedder import FakeEmbedder
from tests.support.growth import LIMIT, growth
from tests.support.lab import Lab

TOKEN = "t" * 43


@pytest.fixture
def service(config: Config) -> Iterator[Service]:
    service = Service(config)
    yield service
    service.close()


@pytest.fixture
def meaning(config: Config) -> Iterator[Service]:
    """A service with vectors."""
    pytest.importorskip("numpy", reason="the extra `vectors` is not installed")
    service = Service(config, embedder=FakeEmbedder())
    yield service
    service.close()


def ready(service: Service) -> Service:
    async def work() -> None:
        await service.run_until_idle()
        while await service.indexer.step():
            pass

    asyncio.run(work())
    return service


def ask(service: Service, text: str, **how: Any) -> list[Hit]:
    where = SearchFilter(**{name: how.pop(name) for name in list(how) if name in SearchFilter.__dataclass_fields__})
    return asyncio.run(rank.find_hits(service.db, service.indexer, SearchQuery(text=text, where=where, **how)))


def titles(hits: Sequence[Hit]) -> list[str]:
    return [hit.title for hit in hits]


# --- on words alone --------------------------------------------------------------------------------------------------


def test_a_question_in_other_words_than_a_phrase_finds_it(lab: Lab, config: Config) -> None:
    _session(lab, "s1", "the login uses a jwt that expires too early", file="auth.py", at=NOW)
    service = ready(Service(config))
    (hit, *_) = ask(service, "jwt login")
    assert hit.row["content_session_id"] == "s1"
    assert hit.row["files"] == ["auth.py"]
    service.close()


def test_a_turn_takes_one_place_however_many_of_its_texts_match(lab: Lab, config: Config) -> None:
    _session(lab, "s1", "fix the cart total", file="cart.py", at=NOW)
    _session(lab, "s2", "fix the cart of the shop", file="cart.py", at=NOW + DAY)
    service = ready(Service(config))
    hits = ask(service, "cart")
    assert [hit.row["content_session_id"] for hit in hits] in (["s1", "s2"], ["s2", "s1"])
    assert {hit.kind for hit in hits} == {"observation"}
    assert {hit.kind for hit in ask(service, "cart", kinds=("prompt",))} == {"prompt"}
    service.close()


@pytest.mark.parametrize("part", ["W", "a.", "a-", "é/", "_"])
def test_a_pasted_key_is_no_long_question(service: Service, part: str) -> None:
    service.db.write_now(save, "The branch feature/login-form is old.")

    def find(text: str) -> None:
        asyncio.run(rank.find_hits(service.db, service.indexer, SearchQuery(text=text)))

    assert growth(find, part * 20_000) <= LIMIT


def test_old_memories_are_found_as_well_as_new_ones(service: Service) -> None:
    service.db.write_now(save, "The gateway rejects long headers", at=NOW - 3000 * DAY)
    service.db.write_now(save, "Lunch is at noon", at=NOW)
    assert titles(ask(ready(service), "gateway headers")) == ["The gateway rejects long headers"]


def test_of_two_equal_memories_the_newer_comes_first(service: Service) -> None:
    for age in (400, 0):
        service.db.write_now(save, "The gateway rejects headers", title=f"{age} days old", at=NOW - age * DAY)
    assert titles(ask(ready(service), "gateway"))[0] == "0 days old"


def test_nothing_is_said_about_what_is_not_there(meaning: Service) -> None:
    meaning.db.write_now(save, "The gateway rejects long headers")
    ready(meaning)
    assert ask(meaning, "qwertz zxcvb") == []
    assert ask(meaning, "???") == []


def test_every_hit_says_why(config: Config) -> None:
    service = Service(replace(config, embedding_model="none"))
    service.db.write_now(save, "The gateway rejects long headers")
    (hit,) = ask(ready(service), "why are headers rejected by the frobnicator")
    assert hit.explanation["words"] == 1.0
    assert hit.explanation["terms"] == ["headers", "rejected"]
    assert "explain" in hit.as_item(explain=True)
    assert "explain" not in hit.as_item()
    service.close()


def test_an_exact_error_a_file_and_a_commit_are_found_by_themselves(lab: Lab, config: Config) -> None:
    _session(lab, "s1", "make the checks pass", file="src/shop/cart.py", at=NOW)
    for number in range(5):
        _session(lab, f"n{number}", f"unrelated work {number}", file=f"other{number}.py", at=NOW + number * MINUTE)
    service = ready(Service(config))
    for question, signal in (
        ("abc1234", "commit abc1234"),
        ("shop/cart.py", "edited src/shop/cart.py"),
        ("what was on fix/total-of-nothing?", "branch fix/total-of-nothing"),
    ):
        (hit, *_) = ask(service, question)
        assert signal in hit.explanation["signals"]
    assert "s1" in {hit.row["content_session_id"] for hit in ask(service, "E KeyError: 'total'")}
    service.close()


def test_pages_do_not_overlap_and_dates_sort(service: Service) -> None:
    for number in range(25):
        service.db.write_now(save, f"note {number} about the gateway", at=NOW + number * DAY)
    ready(service)
    pages = [titles(ask(service, "gateway", limit=10, offset=offset)) for offset in (0, 10, 20)]
    assert sum(map(len, pages)) == len({title for page in pages for title in page}) == 25
    by_date = ask(service, "gateway", order="date_asc", limit=25)
    assert [hit.row["created_at"] for hit in by_date] == sorted(hit.row["created_at"] for hit in by_date)


def test_without_a_question_there_is_what_is_newest(service: Service) -> None:
    for number in range(3):
        service.db.write_now(save, f"note {number}", at=NOW + number * DAY)
    assert titles(ask(ready(service), "")) == ["note 2", "note 1", "note 0"]
    assert titles(ask(service, " ", order="date_asc", limit=1)) == ["note 0"]


# --- with meaning ----------------------------------------------------------------------------------------------------


def test_meaning_finds_what_words_miss(meaning: Service) -> None:
    meaning.db.write_now(save, "automobile insurance", at=NOW)
    meaning.db.write_now(save, "gateway headers", at=NOW - DAY)
    ready(meaning)
    (hit, *_) = ask(meaning, "vehicle")
    assert hit.title == "automobile insurance"
    assert hit.explanation["words"] == 0.0 and hit.explanation["meaning"] > 0


def test_until_vectors_are_there_words_answer(meaning: Service) -> None:
    meaning.db.write_now(save, "gateway headers")
    asyncio.run(meaning.indexer.catch_up())
    assert not meaning.indexer.ready
    assert titles(ask(meaning, "gateway")) == ["gateway headers"]


def test_the_matrix_follows_what_is_stored(meaning: Service) -> None:
    row = meaning.db.write_now(save, "automobile insurance")
    meaning.db.write_now(save, "gateway headers")
    ready(meaning)
    assert meaning.indexer.matrix is not None and len(meaning.indexer.matrix) == 2
    meaning.db.write_now(edits.delete_observation, row, now=NOW)
    assert titles(ask(meaning, "vehicle")) == []
    ready(meaning)
    assert len(meaning.indexer.matrix) == 1


def test_a_restart_reads_the_vectors_back_and_makes_none_again(config: Config) -> None:
    pytest.importorskip("numpy")
    before = Service(config, embedder=FakeEmbedder())
    before.db.write_now(save, "automobile insurance")
    ready(before).close()

    class Lazy(FakeEmbedder):
        def embed(self, given: Sequence[str]) -> list[array[float]]:
            assert given == ["vehicle"], "nothing but the question needs a vector"
            return super().embed(given)

    again = ready(Service(config, embedder=Lazy()))
    assert titles(ask(again, "vehicle")) == ["automobile insurance"]
    again.close()


def test_a_model_that_breaks_leaves_words(config: Config) -> None:
    pytest.importorskip("numpy")
    from claude_mem.domain.errors import OperationFailed

    class Broken(FakeEmbedder):
        def embed(self, given: Sequence[str]) -> list[array[float]]:
            raise OperationFailed("out of memory")

    service = Service(config, embedder=Broken())
    service.db.write_now(save, "gateway headers")
    assert titles(ask(ready(service), "gateway")) == ["gateway headers"]
    assert service.indexer.embedder is None
    service.close()


def test_filters_hold_for_meaning_too(meaning: Service) -> None:
    meaning.db.write_now(save, "automobile insurance", project=1, at=NOW)
    meaning.db.write_now(save, "automobile repair", project=2, at=NOW + DAY)
    ready(meaning)
    assert titles(ask(meaning, "vehicle", project_ids=(2,))) == ["automobile repair"]
    assert titles(ask(meaning, "vehicle", until=NOW + 1)) == ["automobile insurance"]
    assert ask(meaning, "vehicle", project_ids=()) == []


MATRICES: dict[str, Callable[[int], Matrix]] = {"numpy": VectorMatrix, "codes": CodeMatrix}


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(mul, one, other)))


def make_matrix(kind: str, dimensions: int) -> Matrix:
    if kind == "numpy":
        pytest.importorskip("numpy", reason="the extra `vectors` is not installed")
    return MATRICES[kind](dimensions)


@pytest.mark.parametrize("kind", MATRICES)
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=30))
def test_the_matrix_is_right_after_any_adding_and_removing(kind: str, steps: list[tuple[int, bool]]) -> None:
    fake, matrix = FakeEmbedder(), make_matrix(kind, 256)
    there: dict[int, array[float]] = {}
    for number, (document, adding) in enumerate(steps):
        matrix.remove([document])
        there.pop(document, None)
        if adding:
            vector = fake.embed([f"word{number}"])[0]
            there[document] = vector
            matrix.add([StoredVector(document, 0, 1, -document, -1, NOW, 5000, quantize(vector))])
    assert len(matrix) == len(there)
    question = fake.embed_query("word0")
    near = matrix.nearest(question)
    assert set(near.raw) == {-document for document in there}
    for document, vector in there.items():
        assert near.raw[-document] == pytest.approx(dot(vector, question), abs=0.02)


def test_long_texts_are_read_in_parts_and_short_ones_whole(meaning: Service) -> None:
    meaning.db.write_now(save, "Short and good.")
    meaning.db.write_now(
        save, "Minutes of the meeting.\n" + "One sentence. " * 400 + "The vehicle is parked.", at=NOW + DAY
    )
    ready(meaning)
    assert meaning.indexer.matrix is not None and len(meaning.indexer.matrix) > 10
    (hit, *_) = ask(meaning, "automobile parked")
    assert hit.title.startswith("Minutes of the meeting")
    assert "".join(split_text("x" * 1234)).replace("\n", "") == "x" * 1234


# --- fusing ----------------------------------------------------------------------------------------------------------


def test_the_best_session_lends_to_its_other_turns() -> None:
    found = WordScores(
        {1: PassageMatch(9.0, 1, 7, 1), 2: PassageMatch(3.0, 2, 7, 1), 3: PassageMatch(3.1, 3, 8, 1)}, ["a"], [1.0]
    )
    assert [
        candidate.group for candidate in fuse_rankings(SearchEvidence(found, found.by_group(), [], None), None, floor=0)
    ] == [
        1,
        2,
        3,
    ]


def test_scores_are_added_not_ranks() -> None:
    found = WordScores({1: PassageMatch(10.0, 1, 1, 1), 2: PassageMatch(9.0, 2, 2, 1)}, ["a"], [1.0])
    near = Nearness({1: 0.0, 2: 1.0}, {1: 0.5, 2: 0.9}, {1: 1, 2: 2})
    (first, second) = fuse_rankings(SearchEvidence(found, found.by_group(), [], None), near, floor=0)
    assert (first.group, second.group) == (2, 1)
    assert first.words + first.meaning == pytest.approx(
        (1 - rank.ENCODER_WEIGHTS.share) * 0.9 + rank.ENCODER_WEIGHTS.share
    )


# --- files and what is said ------------------------------------------------------------------------------------------


def test_a_prompt_brings_up_the_files_that_such_work_touched(lab: Lab, config: Config) -> None:
    for number, (prompt, file) in enumerate(
        [("fix the cart total", "cart.py"), ("speed up the tax rules", "tax.py"), ("rename the user page", "user.py")]
    ):
        _session(lab, f"s{number}", prompt, file=file, at=NOW + number * DAY)
    service = ready(Service(config))

    def files(prompt: str) -> list[str]:
        about = rank.find_for_prompt(service.db, service.indexer, prompt, SearchFilter(), items=5)
        _, ranked = asyncio.run(about)
        if not likely_files.is_predictable(ranked):
            return []
        history = service.db.read_now(likely_files.gather_history, SearchFilter())
        return likely_files.predict(likely_files.signs_of(prompt, ranked, ""), history, limit=10)

    assert files("the tax rules are wrong")[0] == "tax.py"
    assert files("the cart shows a wrong total")[0] == "cart.py"
    assert "tax.py" not in files("the tax rules in tax.py are wrong")
    assert files("") == []
    service.close()


def test_scores_are_finite_and_kinds_known() -> None:
    assert set(rank.KIND_BONUS) == set(DOCUMENT_KINDS)
    assert math.isfinite(SearchCandidate(1).score)


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture
def http(service: Service) -> TestClient:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return TestClient(build_app(service, token=TOKEN, port=37777), base_url="http://127.0.0.1:37777", headers=headers)


def test_what_was_saved_a_moment_ago_is_found_over_http(http: TestClient) -> None:
    http.post("/api/memory/save", json={"text": "The gateway rejects long headers", "project": "shop"})
    (item,) = http.get("/api/search", params={"query": "gateway", "explain": "true"}).json()["items"]
    assert {"id", "kind", "content_session_id", "project", "title", "score", "created_at", "files"} <= set(item)
    assert item["explain"]["terms"] == ["gateway"]
    assert "gateway" in http.get("/api/search", params={"query": "gateway", "format": "text"}).text
    for narrow in ({"project": "other"}, {"type": "prompts"}, {"dateEnd": "2020-01-01"}, {"obs_type": "bugfix"}):
        assert http.get("/api/search", params={"query": "gateway", **narrow}).json()["items"] == [], narrow


@pytest.mark.parametrize(
    "wrong", [{"limit": "0"}, {"orderBy": "mood"}, {"dateStart": "soon"}, {"kind": "dream"}, {"offset": "-1"}]
)
def test_a_misused_search_is_told_so(http: TestClient, wrong: dict[str, str]) -> None:
    answer = http.get("/api/search", params={"query": "x", **wrong})
    assert answer.status_code == 400 and answer.json()["error"]
