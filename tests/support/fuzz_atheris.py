"""`python -m tests.support.fuzz_atheris TARGET SECONDS`: inputs that reach new lines of our code are kept and changed again.

What it finds lies in `build/fuzz`; what breaks something ends it with the input and the traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import proof

CORPUS = Path("build/fuzz")


def main(name: str, seconds: str) -> int:
    """In a process of its own, because libFuzzer ends the one that it runs in."""
    if importlib.util.find_spec("atheris") is None:
        sys.stdout.write(f"{name}: no atheris here, only hypothesis fuzzes it\n")
        return 0
    words = [sys.executable, "-m", "tests.support.fuzz_atheris", name, seconds, "inside"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    runs = re.search(r"Done (\d+) runs", done.stdout + done.stderr)
    if done.returncode or not runs:
        sys.stderr.write((done.stdout + done.stderr)[-20_000:])
        return 1
    unit = f"of {runs[1]} (atheris, {seconds} s)"
    proof.record(
        f"{name}: inputs that broke it", of="I8", goal="0", measured=0, ok=True, unit=unit, command="make fuzz"
    )
    sys.stdout.write(f"{name}: {runs[1]} inputs in {seconds} s, none broke it\n")
    return 0


def fuzz(name: str, seconds: str) -> None:
    atheris: Any = importlib.import_module("atheris")  # installed by `make fuzz`, where there is a wheel of it
    with atheris.instrument_imports(include=["claude_mem"]):
        targets = importlib.import_module("tests.support.fuzz")
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(targets.SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    prefix = f"-artifact_prefix={CORPUS}/{name}-"
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-timeout=10", prefix, str(corpus)], targets.TARGETS[name]
    )
    atheris.Fuzz()


if __name__ == "__main__":
    ours = importlib.import_module("tests.support.fuzz_atheris")  # by its name, under which its figures are kept
    if sys.argv[3:] == ["inside"]:
        ours.fuzz(sys.argv[1], sys.argv[2])
    else:
        sys.exit(ours.main(sys.argv[1], sys.argv[2]))
