"""LoCoMo, read for measuring only: its licence forbids to ship any of it, so nothing of it is kept but figures."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    id: str
    session: int
    at: int  # milliseconds
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    turns: list[Said]
    questions: list[Asked]

    @property
    def sessions(self) -> dict[int, list[Said]]:
        found: dict[int, list[Said]] = {}
        for turn in self.turns:
            found.setdefault(turn.session, []).append(turn)
        return found


def load(folder: Path) -> list[Conversation]:
    raw = json.loads(gzip.decompress((folder / "locomo10.json.gz").read_bytes()))
    return [_conversation(item, f"conversation-{number}") for number, item in enumerate(raw, start=1)]


def _conversation(item: dict[str, Any], name: str) -> Conversation:
    talk, turns, number = item["conversation"], [], 1
    while f"session_{number}" in talk:
        start = _milliseconds(talk[f"session_{number}_date_time"])
        for minute, turn in enumerate(talk[f"session_{number}"]):
            seen = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{seen}"
            turns.append(Said(turn["dia_id"], number, start + minute * 20_000, text))
        number += 1
    known = {turn.id for turn in turns}
    asked = [Asked(qa["question"], _evidence(qa, known), qa["category"]) for qa in item["qa"]]
    return Conversation(name, turns, [question for question in asked if question.evidence])


def _milliseconds(text: str) -> int:
    when = datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return int(when.timestamp() * 1000)


def _evidence(qa: dict[str, Any], known: set[str]) -> frozenset[str]:
    """Some citations are written in another way (`D:11:26`, `D30:05`, two in one): read what is meant."""
    cited = re.findall(r"D:?(\d+):(\d+)", " ".join(str(item) for item in qa.get("evidence", [])))
    return frozenset({f"D{int(session)}:{int(turn)}" for session, turn in cited} & known)
