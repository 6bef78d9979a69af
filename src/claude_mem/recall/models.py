"""Embedding models: the built-in one and those that can be downloaded; which one is used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.recall import embed, static
from claude_mem.recall.embed import Embedder, Progress
from claude_mem.recall.static import StaticEmbedder

DEFAULT = embed.DEFAULT
BUILT_IN, WORDS_ONLY = "static", "none"  # values of the setting `embedding_model` besides the names of encoders
NAMES = tuple(embed.MODELS)
INSTALL = "pip install 'claude-mem-py[vectors]'"
_ABOUT = {
    "arctic-s": "34 MB; the best all-round",
    "gte-small": "133 MB; best on code, twice as slow",
    "minilm": "23 MB; the quickest, but finds least",
}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    name: str
    stored_as: str  # the name its vectors have
    dimensions: int
    about: str
    bytes: int  # on disk; 0 if not downloaded completely


def list_models(folder: Path) -> list[ModelInfo]:
    """Return the known embedding models, with the size of those that were fetched."""
    about = f"{static.FILE.stat().st_size / 1e6:.0f} MB; built in, used unless another is installed"
    built_in = ModelInfo(BUILT_IN, static.NAME, static.DIMENSIONS, about, static.FILE.stat().st_size)
    return [
        built_in,
        *(
            ModelInfo(
                model.name, model.name, model.dimensions, _ABOUT.get(model.name, ""), _bytes(folder / model.name, model)
            )
            for model in embed.MODELS.values()
        ),
    ]


def open_embedder(folder: Path, name: str) -> Embedder | None:
    """Return the encoder of this name if it is downloaded, otherwise the built-in embedding; None for `none`."""
    if name == WORDS_ONLY:
        return None
    encoder = embed.load_embedder(folder, name) if name in embed.MODELS else None
    return encoder or StaticEmbedder()


def _bytes(folder: Path, model: embed.EmbeddingModel) -> int:
    paths = [folder / file.name for file in model.files]
    return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else 0


def check_available(name: str) -> None:
    """Raise an error if this model does not exist or cannot run here."""
    if name not in embed.MODELS:
        raise InvalidRequest(f"there is no model {name!r}", hint="use one of " + ", ".join(embed.MODELS))
    if not embed.is_installed():
        raise OperationFailed(
            "searching by meaning needs the extra `vectors`, which is not installed",
            hint=f"{INSTALL} (with pipx: pipx inject claude-mem-py onnxruntime numpy), then run this command again",
        )


def fetch(folder: Path, name: str, *, progress: Progress) -> Path:
    """Download and verify a model, unless it exists already. A partial download is never used."""
    check_available(name)
    return embed.fetch_model(folder, name, progress=progress)
