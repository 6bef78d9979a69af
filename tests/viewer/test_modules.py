"""The viewer's modules by themselves: `node --test` runs the tests in js/, without a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import SECONDS

TESTS = sorted((Path(__file__).parent / "js").glob("*.test.mjs"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_the_unit_tests_of_a_module_pass(path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    result = subprocess.run(
        [node, "--test", str(path)],
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout
