"""Named points where a test may kill the process. In production a point costs one comparison.

`CLAUDE_MEM_FAILPOINT=drain.committed:3` dies at the third pass. `POINTS` is the list the kill test works through; the
points of the hook are in `hook.POINTS`, because the hook imports nothing.

An agent's environment may be a project's, so an installed package ignores the variable: `hook.armed_failpoint` reads
it in a source checkout only.
"""

from __future__ import annotations

import os
import signal

from claude_mem import hook

POINTS = (
    "drain.listed",
    "drain.read",
    "drain.receipt",
    "drain.event",
    "drain.batch",
    "drain.committed",
    "drain.unlinked",
    "drain.all_unlinked",
    "drain.refused",
    "drain.put_aside",
    "jobs.claimed",
    "jobs.finished",
    "jobs.asked",
    "reconcile.read",
    "reconcile.added",
    "reconcile.offset",
    "backfill.read",
    "backfill.added",
    "compress.loaded",
    "compress.drafted",
    "rewrite.drafted",
    "rewrite.kept",
    "store.summary",
    "store.observation",
    "store.swept",
    "store.digested",
    "write.begun",
    "write.before_commit",
    "write.committed",
    "refine.booked",
    "refine.answered",
    "refine.closed",
    "render.read",
    "render.written",
    "sweep.closed",
    "sweep.stale",
    "serve.opened",
    "serve.stopping",
    "migrate.applied",
    "import.read",
    "import.batch",
    "repair.moved",
    "repair.salvaged",
    "retention.faded",
    "index.words",
    "index.vectors",
    "inject.composed",
    "inject.noted",
    "checkpoint.begun",
    "checkpoint.done",
    "backup.step",
    "backup.copied",
    "backup.made",
    "forget.put_away",
    "forget.erased",
    "forget.part",
)

_armed, _left = "", 0


def arm(place: str) -> None:
    """`NAME` or `NAME:PASS`; nothing disarms."""
    global _armed, _left  # noqa: PLW0603 -- they belong to the process, like the death they announce
    _armed, _, count = place.partition(":")
    _left = int(count) if count.isdigit() else 1


def failpoint(name: str) -> None:
    global _left  # noqa: PLW0603
    if name != _armed:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(hook.armed_failpoint().decode())
