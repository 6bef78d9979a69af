"""What refining costs, and that it can't run away.

    python bench/spending.py [--kills 100] [--out FOLDER]

A real worker and a scripted model on loopback, which counts for itself. First the work on which the old system was measured:
100 tool events of 10 KB in five turns (124 calls, 5.0 million input tokens there). Then the worker is killed, again and
again, while the model is thinking.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
from figures import Figure, at_least, at_most

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from claude_mem.domain.text import estimate_tokens, estimate_tokens_high
from claude_mem.system import process
from tests.models.server import Hang, Say, Server
from tests.support.lab import Lab
from tests.support.refining import GOOD, spool_turn

RESULTS = Path(__file__).with_name("results")
OLD_CALLS, OLD_TOKENS = 124, 5_000_000  # the old system's newest version, for the same events
TURNS, EVENTS, EVENT_BYTES = 5, 20, 10_000
WAIT_SECONDS = 60.0


def main() -> int:
    options = _options()
    found = [*_tokens(), *_kills(options.kills)]
    print(figures.as_text(found))
    if folder := options.out or (RESULTS if options.kills >= 100 else None):
        figures.write(folder / "spending", "What refining costs", found, figures.setting(folder))
    missed = [figure for figure in found if figure.missed]
    for figure in missed:
        print(f"missed: {figure.name}", file=sys.stderr)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what refining costs, and that it can't run away.")
    parser.add_argument("--kills", type=int, default=100, help="how often the worker is killed (default: 100)")
    parser.add_argument("--out", type=Path, help="write the results there")
    return parser.parse_args()


@contextmanager
def _lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="spending-") as folder:
        lab = Lab(Path(folder))
        try:
            yield lab
        finally:
            lab.close()


def _settings(server: Server) -> Any:
    return {
        "CLAUDE_MEM_PROVIDER": "anthropic",
        "CLAUDE_MEM_ANTHROPIC_BASE_URL": server.url,
        "CLAUDE_MEM_ANTHROPIC_API_KEY": "bench",
        "CLAUDE_MEM_DAILY_TOKENS": "100000000",
    }


# --- tokens ----------------------------------------------------------------------------------------------------------


def _tokens() -> Iterator[Figure]:
    with Server(Say(GOOD)) as server, _lab() as lab:
        for turn in range(TURNS):
            _spool_large(lab, turn)
        lab.mem("start", **_settings(server))
        _wait(lambda: len(server.asked) >= TURNS and _waiting(lab) == 0, "the turns were not refined")
        sent = [f"{seen.system}{seen.prompt}" for seen in server.asked]
    work = TURNS * EVENTS
    yield Figure("requests for 100 tool events in 5 turns", len(sent), "", work, at_most(6))
    most = sum(map(estimate_tokens_high, sent))
    yield Figure("input tokens for them, at 3 bytes a token", most, "", work, at_most(50_000))
    yield Figure("the same at 4 bytes a token", sum(map(estimate_tokens, sent)), "", work)
    yield Figure("share of the old system's requests", 100 * len(sent) / OLD_CALLS, "%", work)
    yield Figure("share of the old system's input tokens", 100 * most / OLD_TOKENS, "%", work, at_most(1))
    yield Figure(
        "largest request, answer included", max(map(estimate_tokens_high, sent)) + 2000, "tokens", TURNS, at_most(8000)
    )


def _spool_large(lab: Lab, turn: int) -> None:
    said = {"session_id": "large"}
    lab.spool("UserPromptSubmit", prompt=f"Work through part {turn}", **said)
    for number in range(EVENTS):
        output = f"line {number} of part {turn}: some output of a tool\n" * (EVENT_BYTES // 45)
        given = {"command": f"make part-{turn}-{number}"}
        lab.spool("PostToolUse", tool_name="Bash", tool_input=given, tool_response={"stdout": output}, **said)
    lab.spool("Stop", last_assistant_message=f"Part {turn} is done; all of it builds.", **said)


# --- kills -----------------------------------------------------------------------------------------------------------


def _kills(count: int) -> Iterator[Figure]:
    turns = count // 3 + 5  # each may be tried three times, and some are left to be refined in peace
    with Server(Hang()) as server, _lab() as lab:
        env = _settings(server)
        for number in range(turns):
            spool_turn(lab, f"s{number}", prompt=f"Fix the totals of shelf {number}")
        for kill in range(count):
            lab.mem("start", **env)
            _wait(lambda asked=kill: len(server.asked) > asked, "the worker asked nothing")
            _kill_worker(lab)
        server.then(Say(GOOD))
        lab.mem("start", **env)
        _wait(lambda: _waiting(lab) == 0, "the rest was not worked off")
        status = lab.status()
        asked, booked = len(server.asked), _requests(lab)
        lab.mem("stop")
        remembered = lab.rows("select count(distinct turn_id) from observations where not forgotten")[0][0]
        most = lab.rows("select max(n) from (select count(*) n from ledger group by turn_id)")[0][0]
        open_ = lab.rows("select count(*) from ledger where verdict is null")[0][0]
    yield Figure("kills in the middle of a request", count, "", count)
    yield Figure("requests beyond one a turn", asked - turns, "", asked, at_most(count))
    yield Figure("turns without a memory afterwards", turns - remembered, "", turns, at_most(0))
    yield Figure("events neither stored nor filtered", status["queued"] + status["set_aside"], "", turns, at_most(0))
    yield Figure("ledger entries more or less than the server counted", abs(booked - asked), "", asked, at_most(0))
    yield Figure("entries whose answer never came, of as many kills", open_, "", count, at_least(count))
    yield Figure("most requests for one turn", most, "", turns, at_most(3))


def _kill_worker(lab: Lab) -> None:
    pid = process.lock_holder(lab.data)
    assert pid, "no worker runs"
    os.kill(pid, signal.SIGKILL)
    _wait(lambda: process.lock_holder(lab.data) is None, "the worker did not die")


def _waiting(lab: Lab) -> int:
    found = lab.client().get("/api/queue")
    return int(found["queued"]) + len(found["jobs"])


def _requests(lab: Lab) -> int:
    return sum(int(row["requests"]) for row in lab.client().get("/api/cost")["items"])


def _wait(done: Any, problem: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
