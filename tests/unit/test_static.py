"""The built-in embedding: what it makes of texts, what it needs, and how stored vectors follow it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from array import array
from collections.abc import Sequence
from dataclasses import replace
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.config import Config
from claude_mem.recall import embed, models
from claude_mem.recall.codes import CodeMatrix
from claude_mem.recall.matrix import quantize
from claude_mem.recall.models import StaticEmbedder, split_text_words
from claude_mem.storage.records import StoredVector
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.memory import edits
from claude_mem.worker.app import Service
from tests.storage.test_search import NOW, save
from tests.unit.test_recall import ask, ready, titles

LARGEST_BYTES = 10_000_000


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(mul, one, other)))


def stored(service: Service) -> list[tuple[str, int]]:
    """The model and the document of every vector."""

    def read(conn: Connection) -> list[tuple[str, int]]:
        query = "select v.model, d.row_id from vectors v join documents d on d.id = v.document_id order by 1, 2"
        return [(row["model"], row["row_id"]) for row in conn.execute(query)]

    return service.db.read_now(read)


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserById", ["get", "user", "by", "id"]),
        ("user_session_token", ["user", "session", "token"]),
        ("src/auth/HTTPServer.py", ["src", "auth", "http", "server", "py"]),
        ("Café 数据", ["cafe", "数", "据"]),
        ("", []),
    ],
)
def test_identifiers_and_paths_are_split(text: str, words: list[str]) -> None:
    assert split_text_words(text) == words


def test_texts_about_the_same_are_closer() -> None:
    embedder = StaticEmbedder()
    question = embedder.embed_query("authentication of users")
    near, far = embedder.embed(["signInUser checks the login of an account", "The pasta was overcooked again"])
    assert dot(question, near) > dot(question, far) + 0.15
    assert dot(near, near) == pytest.approx(1, abs=1e-5)
    assert len(near) == embedder.dimensions


@pytest.mark.parametrize("text", ["", "  \n", "!?…", "\x00"])
def test_a_text_without_words_is_near_nothing(text: str) -> None:
    assert not any(StaticEmbedder().embed_query(text))


@given(st.text(max_size=300))
def test_any_text_has_a_vector(text: str) -> None:
    vector = StaticEmbedder().embed_query(text)
    assert dot(vector, vector) == pytest.approx(1, abs=1e-4) or not any(vector)


def test_a_long_text_is_cut() -> None:
    long = "word " * 100_000
    assert StaticEmbedder().embed_query(long) == StaticEmbedder().embed_query(long[: models._CHARS])


def test_it_needs_neither_numpy_nor_a_runtime() -> None:
    program = (
        "import sys; from claude_mem.recall.models import StaticEmbedder; StaticEmbedder().embed_query('a text');"
        "assert not {'numpy', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_file_says_what_it_is_and_where_it_comes_from() -> None:
    with models.FILE.open("rb") as file:
        header = json.loads(file.readline())
    assert (header["name"], header["dimensions"]) == (models.NAME, models.DIMENSIONS)
    assert "snowflake-arctic-embed-s" in header["about"] and "Apache License 2.0" in header["about"]
    size = models.FILE.stat().st_size
    assert size < LARGEST_BYTES
    head = len(json.dumps(header).encode()) + 1
    assert size == head + header["vocabulary_bytes"] + header["pieces"] * header["dimensions"]


# --- the matrix ------------------------------------------------------------------------------------------------------


def _row(
    document: int, vector: array[float], *, project: int = 1, session: int = 1, length: int = 5_000
) -> StoredVector:
    return StoredVector(document, 0, project, document, session, NOW, length, quantize(vector))


def test_a_short_turn_borrows_from_its_neighbours() -> None:
    embedder, matrix = StaticEmbedder(), CodeMatrix(models.DIMENSIONS)
    texts = ["The gateway rejects long headers", "yes", "Pasta for lunch", "yes"]
    rows = zip(range(1, 5), embedder.embed(texts), [1, 1, 2, 2], strict=True)
    matrix.add([_row(number, vector, session=session, length=3) for number, vector, session in rows])
    question = embedder.embed_query("gateway headers")
    alone, together = matrix.nearest(question), matrix.nearest(question, near_share=1.0)
    assert alone.scores[2] == alone.scores[4]
    assert together.scores[2] > together.scores[4]


def test_only_what_is_in_scope_is_compared() -> None:
    embedder, matrix = StaticEmbedder(), CodeMatrix(models.DIMENSIONS)
    (vector,) = embedder.embed(["The gateway rejects long headers"])
    matrix.add([_row(1, vector, project=1, session=-1), _row(2, vector, project=2, session=-2)])
    question = embedder.embed_query("gateway")
    assert set(matrix.nearest(question, project_ids=[2]).raw) == {2}
    assert set(matrix.nearest(question, document_ids=[1], also_groups=[1, 2]).raw) == {1}
    assert not matrix.nearest(question, project_ids=[3]).raw
    matrix.move(2, 3)
    matrix.add([_row(4, vector, project=2, session=-2)])
    assert set(matrix.nearest(question, project_ids=[3]).raw) == {2, 4}
    assert set(matrix.nearest(question, project_ids=[3]).threads.values()) == {-3}
    matrix.add([StoredVector(5, 0, 1, 5, 1, NOW, 10, b"short")])
    assert len(matrix) == 3


def test_the_closest_of_many_are_found_by_their_signs() -> None:
    embedder, matrix = StaticEmbedder(), CodeMatrix(models.DIMENSIONS)
    texts = [
        f"the {word} of the {other}" for word in ["cart", "gateway", "login", "pasta"] for other in ["shop", "lab"]
    ]
    vectors = embedder.embed([*texts, *(f"entry number {number}" for number in range(300))])
    matrix.add([_row(number, vector, session=number) for number, vector in enumerate(vectors, 1)])
    question = embedder.embed_query("login of the lab")
    near = matrix.nearest(question, limit=5)
    best = max(range(len(vectors)), key=lambda place: dot(vectors[place], question)) + 1
    assert near.scores[best] == max(near.scores.values()) == 1.0
    assert len(near.raw) < 50


# --- which embedding is used -----------------------------------------------------------------------------------------


def test_the_built_in_one_is_used_until_an_encoder_is_there(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(models.open_embedder(config.models, "arctic-s"), StaticEmbedder)
    assert isinstance(models.open_embedder(config.models, "no such model"), StaticEmbedder)
    assert models.open_embedder(config.models, "none") is None
    encoder = embed.OnnxEmbedder(embed.MODELS["arctic-s"], config.models)
    monkeypatch.setattr(embed, "load_embedder", lambda *_: encoder)
    assert models.open_embedder(config.models, "arctic-s") is encoder
    assert isinstance(models.open_embedder(config.models, "static"), StaticEmbedder)


def test_a_new_installation_searches_by_meaning(config: Config) -> None:
    service = Service(config)
    service.db.write_now(save, "The automobile needs new tyres")
    service.db.write_now(save, "Gateway rejects long headers")
    (hit, *_) = ask(ready(service), "which vehicles were repaired")
    assert hit.title == "The automobile needs new tyres"
    assert hit.explanation["meaning"] > 0
    service.close()


# --- stored vectors --------------------------------------------------------------------------------------------------


def _words_only(config: Config, count: int) -> None:
    """A database as it was before there were vectors."""
    service = Service(replace(config, embedding_model="none"))
    for number in range(count):
        service.db.write_now(save, f"note number {number}", at=NOW + number)
    ready(service).close()


def test_an_older_database_gets_its_vectors_newest_first_and_goes_on_after_a_stop(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    _words_only(config, 9)
    monkeypatch.setattr(StaticEmbedder, "batch", 4)
    service = Service(config)
    assert asyncio.run(service.indexer.step())
    assert [row for _, row in stored(service)] == [6, 7, 8, 9]
    service.close()
    service = Service(config)
    assert asyncio.run(service.indexer.step())
    assert [row for _, row in stored(service)] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert len(stored(ready(service))) == 9
    assert asyncio.run(service.indexer.counts()).owed is False
    service.close()


def test_another_version_of_the_vectors_replaces_the_former_one(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(config)
    service.db.write_now(save, "Gateway rejects long headers")
    ready(service).close()
    monkeypatch.setattr(models, "NAME", "static-2")
    service = ready(Service(config))
    assert stored(service) == [("static-2", 1)]
    assert service.indexer.matrix is not None and len(service.indexer.matrix) == 1
    service.close()


def test_vectors_of_an_encoder_stay_when_the_built_in_one_is_used(config: Config) -> None:
    pytest.importorskip("numpy", reason="the extra `vectors` is not installed")
    from tests.support.embedder import FakeEmbedder

    service = Service(config, embedder=FakeEmbedder())
    service.db.write_now(save, "The automobile needs new tyres")
    ready(service).close()
    service = ready(Service(config))
    assert stored(service) == [("fake", 1), ("static-1", 1)]
    assert titles(ask(service, "vehicles")) == ["The automobile needs new tyres"]
    service.close()
    service = ready(Service(config, embedder=FakeEmbedder()))
    assert service.indexer.ready and len(stored(service)) == 2
    service.close()


def test_forgetting_erases_the_vector_and_its_copy_in_memory(config: Config) -> None:
    service = Service(config)
    row = service.db.write_now(save, "The automobile needs new tyres")
    service.db.write_now(save, "Gateway rejects long headers")
    assert len(stored(ready(service))) == 2
    service.db.write_now(edits.delete_observation, row, now=NOW)
    ready(service)
    assert stored(service) == [("static-1", 2)]
    assert service.indexer.matrix is not None and len(service.indexer.matrix) == 1
    assert titles(ask(service, "vehicles with tyres")) == []
    service.close()
