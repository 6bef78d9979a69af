"""How many processes the kill tests have killed: a promise with a figure in it. Told by `conftest` when all is done."""

from __future__ import annotations

from typing import Any

from tests.support import proof

GOAL = 600


def report(stats: dict[str, list[Any]]) -> str:
    """One line, or none where nobody was killed."""
    done = [(_kills(report), report.duration) for report in stats.get("passed", []) if _kills(report)]
    kills, seconds = sum(count for count, _ in done), sum(taken for _, taken in done)
    failed = [report.nodeid for report in stats.get("failed", []) if "kills" in report.keywords]
    if not kills:
        return ""
    if kills >= GOAL:
        measured = {"kills": kills, "lost": 0, "doubled": 0, "seconds of tests": round(seconds), "failed": len(failed)}
        goal = f"0 lost, 0 doubled in {GOAL} kills or more"
        proof.record(
            "kill -9 anywhere", of="R1 R2", goal=goal, measured=measured, ok=not failed, command="make test-crash"
        )
    found = f"{len(failed)} tests found something" if failed else "0 lost, 0 doubled"
    return f"kills: {kills:,} at named points and random moments in {seconds:.0f} s of tests, {found}"


def _kills(report: Any) -> int:
    return sum(value for name, value in report.user_properties if name == "kills")
