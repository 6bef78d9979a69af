"""Save memories stated by the user or an agent: sanitize the text and classify its trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claude_mem import ids, privacy, quarantine, suspicion
from claude_mem.origins import BURST, BURST_MS, EXTERNAL, SUSPECT, TRUSTED
from claude_mem.projects import Project
from claude_mem.records import Type
from claude_mem.redact import redact, redact_lines
from claude_mem.store import events, observations, projects, rules
from claude_mem.store.database import Connection
from claude_mem.text import storable


def keepable(text: str) -> str:
    """Return the text without private parts and secrets."""
    return redact(privacy.strip(storable(text)))


def keepable_lines(texts: list[str]) -> list[str]:
    """Return the texts without private parts and secrets, including those that span several texts."""
    return redact_lines(list(privacy.strip_all([storable(text) for text in texts])))


@dataclass(frozen=True, slots=True)
class Saved:
    id: int
    pending_reason: str  # why it needs approval; "" if it does not
    project_ids: frozenset[int]  # whose start context changes


def save(
    conn: Connection,
    project: Project,
    title: str,
    text: str,
    *,
    by: str,
    place: Project | None,
    type_: str = Type.DISCOVERY,
) -> Saved:
    """Save a memory for `project`. `place` is the project its author works in, if that is known."""
    now = ids.now()
    project_ids = [] if project.root else projects.by_name(conn, project.name)
    project_id = project_ids[0] if project_ids else projects.know(conn, project, "", now=now)
    key = f"saved:{ids.new()}"
    trust, why = whose(conn, _read_project_ids(conn, project_id, place), f"{title}\n{text}", by, now=now)
    words = {"title": title, "text": text, "key": key, "type_": type_}
    observation_id = observations.save(conn, project_id=project_id, **words, trust=trust, by=by, why=why, now=now)
    if type_ == Type.RULE:
        rules.link(conn, project_id)
    held_project_ids = observations.hold_saved(conn, since=now - BURST_MS) if why == "burst" else set()
    pending_reason = quarantine.why(trust, why) if trust not in TRUSTED else ""
    return Saved(observation_id, pending_reason, frozenset({project_id, *held_project_ids}))


def _read_project_ids(conn: Connection, project_id: int, place: Project | None) -> list[int] | None:
    """Return the projects whose recent external reads may have influenced this memory; None means any project."""
    own = projects.find(conn, place) if place else None
    return [project_id, own] if own else None


def whose(conn: Connection, reads: Sequence[int] | None, words: str, by: str, *, now: int) -> tuple[str, str]:
    """Return the trust of a saved text, and the reason if it needs approval.

    An agent that has just read external text may have been instructed to save this, and a burst of saves is suspect.
    """
    if rule := suspicion.rule(words, by_user=by == "user"):
        return SUSPECT, rule
    if by == "agent" and events.read_outside(conn, since=now - BURST_MS, project_ids=reads):
        return EXTERNAL, "what was read just before"
    if by == "agent" and observations.count_saved(conn, since=now - BURST_MS) >= BURST - 1:
        return SUSPECT, "burst"
    return by, ""
