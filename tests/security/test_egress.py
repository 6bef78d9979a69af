"""We talk only to whom we say: without a model to no one beyond this machine, with one to that address alone (T27).

A whole session runs in a network namespace that has nothing but loopback, and a tracer writes down every address that
any of its processes asks to be connected with. Where one of the two is not to be had, the other has to do; where
neither is, the test says so.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import proof
from tests.support.waiting import SECONDS

ROOT = Path(__file__).parents[2]
_ADDRESS = re.compile(r"sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )\"([^\"]+)\"")
_NAMESPACE = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
_TRACER = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o"]


def works(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def addresses(log: Path) -> set[tuple[str, int]]:
    return {(found[2], int(found[1])) for line in log.read_text().splitlines() if (found := _ADDRESS.search(line))}


def run(folder: Path, *mode: str) -> tuple[dict[str, Any], set[tuple[str, int]] | None, str]:
    """What the session tells, whom it talked to (None: nobody watched), and who watched."""
    alone, log = works(*_NAMESPACE), folder / "trace"
    watched = works(*_TRACER, str(log))
    if not alone and not watched:
        pytest.skip("neither a network namespace (unshare -n) nor a tracer (strace) can be had here")
    command = [*(_NAMESPACE if alone else []), *([*_TRACER, str(log)] if watched else [])]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.support.egress", str(folder / "place"), *mode],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    how = " + ".join([*(["unshare -n"] if alone else []), *(["strace -f"] if watched else [])])
    return json.loads(done.stdout), addresses(log) if watched else None, how


def test_without_a_model_nobody_outside_is_talked_to(tmp_path: Path) -> None:
    told, talked, how = run(tmp_path)
    assert told["told"] and told["found"] and told["page"] == 200
    outside = {address for address in talked or () if address != ("127.0.0.1", told["worker"])}
    proof.record(
        "outbound connections without a model", of="P5", goal="0", measured=len(outside), ok=not outside,
        command="pytest tests/security/test_egress.py", note=f"hook, worker, start, search, viewer page; {how}",
    )  # fmt: skip
    assert outside == set()


@pytest.mark.skipif(not proof.long(), reason="only `make proof` runs it: the other one takes the same way")
def test_with_a_model_only_its_address_is_talked_to(tmp_path: Path) -> None:
    told, talked, how = run(tmp_path, "model")
    assert told["told"] and told["asked"]
    ours = {("127.0.0.1", told["worker"]), ("127.0.0.1", told["provider"])}
    outside = set() if talked is None else talked - ours
    proof.record(
        "outbound connections beside the provider's", of="P5", goal="0", measured=len(outside), ok=not outside,
        command="pytest tests/security/test_egress.py", note=how,
    )  # fmt: skip
    assert talked is None or ("127.0.0.1", told["provider"]) in talked
    assert outside == set()
