"""Save memories stated by the user or an agent: sanitize the text and classify its trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claude_mem.digest.line_anchors import find_command_anchors
from claude_mem.domain import ids
from claude_mem.domain.records import ObservationType
from claude_mem.domain.text import make_storable
from claude_mem.privacy import injection_rules, tags
from claude_mem.privacy.secrets import redact, redact_lines
from claude_mem.privacy.trust import BURST_MS, BURST_RECORDS, EXTERNAL, SUSPECT, TRUSTED, reason_held
from claude_mem.storage.base import Transaction
from claude_mem.system.project_folders import ResolvedProject


def sanitize_user_text(text: str) -> str:
    """Return the text without private parts and secrets."""
    return redact(tags.strip_private(make_storable(text)))


def sanitize_user_lines(texts: list[str]) -> list[str]:
    """Return the texts without private parts and secrets, including those that span several texts."""
    return redact_lines(list(tags.strip_private_json([make_storable(text) for text in texts])))


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """The result of saving a memory."""

    id: int
    pending_reason: str  # why it needs approval; "" if it does not
    project_ids: frozenset[int]  # whose start context changes


def save_memory(
    tx: Transaction,
    project: ResolvedProject,
    title: str,
    text: str,
    *,
    by: str,
    place: ResolvedProject | None,
    type_: str = ObservationType.DISCOVERY,
) -> SavedMemory:
    """Save a memory for `project`. `place` is the project its author works in, if that is known."""
    now = ids.now_ms()
    project_ids = [] if project.root else tx.memory.list_project_ids_by_name(project.name)
    project_id = project_ids[0] if project_ids else tx.memory.register_project(project, "", now=now)
    trust, why = classify_trust(tx, _influencing_project_ids(tx, project_id, place), f"{title}\n{text}", by, now=now)
    observation_id = tx.memory.save_observation(
        project_id=project_id,
        title=title,
        text=text,
        key=f"saved:{ids.new_event_id()}",
        type_=type_,
        trust=trust,
        by=by,
        why=why,
        now=now,
    )
    if command_anchors := find_command_anchors(title):
        tx.memory.replace_anchors(observation_id, command_anchors, now=now)
    tx.memory.link_statements(project_id)
    held_project_ids = tx.memory.hold_agent_saves(since=now - BURST_MS) if why == "burst" else set()
    pending_reason = reason_held(trust, why) if trust not in TRUSTED else ""
    return SavedMemory(observation_id, pending_reason, frozenset({project_id, *held_project_ids}))


def _influencing_project_ids(tx: Transaction, project_id: int, place: ResolvedProject | None) -> list[int] | None:
    """Return the projects whose recent external reads may have influenced this memory; None means any project."""
    own = tx.memory.find_project_id(place) if place else None
    return [project_id, own] if own else None


def classify_trust(tx: Transaction, reads: Sequence[int] | None, words: str, by: str, *, now: int) -> tuple[str, str]:
    """Return the trust of a saved text, and the reason if it needs approval.

    An agent that has just read external text may have been instructed to save this, and a burst of saves is suspect.
    """
    if rule := injection_rules.injection_rule(words, by_user=by == "user"):
        return SUSPECT, rule
    if by == "agent" and tx.journal.has_external_read(since=now - BURST_MS, project_ids=reads):
        return EXTERNAL, "what was read just before"
    if by == "agent" and tx.memory.count_agent_saves(since=now - BURST_MS) >= BURST_RECORDS - 1:
        return SUSPECT, "burst"
    return by, ""
