"""`python -m tests.fuzz_atheris TARGET [libFuzzer's own words]`: inputs that reach new lines are kept and changed again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    atheris: Any = importlib.import_module("atheris")  # installed by `make fuzz`, where there is a wheel of it
    with atheris.instrument_imports(include=["claude_mem"]):
        fuzz = importlib.import_module("tests.fuzz")
    name, words = sys.argv[1], sys.argv[2:]
    corpus = Path("build/fuzz") / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(fuzz.SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *words, str(corpus)], fuzz.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
