"""How much longer twice the text takes: about twice if the work is linear, four times if it is quadratic.

CPU time depends on who else uses the machine: caches and cores are shared. So what counts is the least of several runs,
taken in turns, and a result above the limit is measured again and again before it is believed: a busy machine spoils some
measurements, while work that is quadratic is slow in every one. `make proof` measures on a quiet machine and holds the
work to the limit that docs/goals.toml names; here the limit lies between 2 and 4.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from tests.support import proof

LIMIT = 2.5 if proof.long() else 3.0
ROUNDS, MOST_ROUNDS = 3, 40
TOO_QUICK_SECONDS = 0.004  # quadratic work would take seconds for texts that are this long


def growth(work: Callable[[str], object], text: str, longer: str = "") -> float:
    """Return CPU seconds for the longer text (twice the text, if none is given) per CPU second for the text; 0 if both
    take next to nothing."""
    longer = longer or text * 2
    once = twice = float("inf")
    for number in range(1, MOST_ROUNDS + 1):
        once, twice = min(once, seconds(work, text)), min(twice, seconds(work, longer))
        if twice < TOO_QUICK_SECONDS:
            return 0.0
        if number >= ROUNDS and twice <= LIMIT * once:
            break
    return twice / once


def seconds(work: Callable[[str], object], text: str) -> float:
    """CPU seconds of this thread, without the garbage collector, which looks at everything that any test has left."""
    gc.disable()
    try:
        begin = time.thread_time()
        work(text)
        return time.thread_time() - begin
    finally:
        gc.enable()
