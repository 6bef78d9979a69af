"""What a person or an agent wants kept: cleaned, and marked with whose word it is."""

from __future__ import annotations

from claude_mem import ids, privacy, quarantine, suspicion
from claude_mem.origins import BURST, BURST_MS, EXTERNAL, SUSPECT, TRUSTED
from claude_mem.projects import Project
from claude_mem.redact import redact
from claude_mem.store import events, observations, projects
from claude_mem.store.database import Connection
from claude_mem.text import storable


def keepable(text: str) -> str:
    """What a person or an agent wants kept, without its private parts and secrets."""
    return redact(privacy.strip(storable(text)))


def save(conn: Connection, project: Project, title: str, text: str, by: str) -> tuple[int, int, str]:
    now = ids.now()
    known = [] if project.root else projects.by_name(conn, project.name)
    project_id = known[0] if known else projects.know(conn, project, "", now=now)
    key = f"saved:{ids.new()}"
    trust, why = _trust(conn, project_id, f"{title}\n{text}", by, now=now)
    words = {"title": title, "text": text, "key": key}
    saved = observations.save(conn, project_id=project_id, **words, trust=trust, by=by, why=why, now=now)
    if why == "burst":
        observations.hold_saved(conn, project_id, since=now - BURST_MS)
    return project_id, saved, quarantine.why(trust, why) if trust not in TRUSTED else ""


def _trust(conn: Connection, project_id: int, words: str, by: str, *, now: int) -> tuple[str, str]:
    """Whose word it is. An agent that has just read something from outside may have been told to save this; and nobody
    has five things to save at once."""
    if rule := suspicion.rule(words, by_user=by == "user"):
        return SUSPECT, rule
    if by == "agent" and events.read_outside(conn, since=now - BURST_MS, project_id=project_id):
        return EXTERNAL, "what was read just before"
    if by == "agent" and observations.count_saved(conn, project_id, since=now - BURST_MS) >= BURST - 1:
        return SUSPECT, "burst"
    return by, ""
