"""Named points at which a test can kill the process. In production a failpoint costs one comparison.

`CLAUDE_MEM_FAILPOINT=drain.committed:3` kills the process at the third pass. `FAILPOINTS` lists the failpoints that the
kill test runs through; those of the hook are in `hook.FAILPOINTS`, because the hook imports nothing.

A project may set an agent's environment, so an installed package ignores the variable: `hook.armed_failpoint` reads it
only in a source checkout.
"""

from __future__ import annotations

import os
import signal

from claude_mem import hook

FAILPOINTS = (
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
    "sync.manifest",
    "sync.sealed",
    "sync.committed",
    "sync.uploaded",
    "sync.new_device",
    "sync.downloaded",
    "sync.stored",
    "space.read",
    "space.appended",
    "space.collected",
    "space.applied",
    "space.deleted",
)

# Those of the team server, which the kill test of the worker does not run through.
SERVER_FAILPOINTS = ("team.received", "team.appended", "team.committed")

_armed, _remaining_passes = "", 0


def arm(place: str) -> None:
    """Arm the failpoint given as `NAME` or `NAME:PASS`; an empty string disarms."""
    global _armed, _remaining_passes  # noqa: PLW0603 -- the state belongs to the process
    _armed, _, count = place.partition(":")
    _remaining_passes = int(count) if count.isdigit() else 1


def failpoint(name: str) -> None:
    global _remaining_passes  # noqa: PLW0603
    if name != _armed:
        return
    _remaining_passes -= 1
    if _remaining_passes <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(hook.armed_failpoint().decode())
