"""The registry of supported agents."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from claude_mem.agents import claude, codex, copilot, gemini, opencode, qwen, transcript_lines
from claude_mem.agents.base import Agent
from claude_mem.agents.canonical import TranscriptHead
from claude_mem.agents.contrib import cursor, windsurf

# In the order in which they are shown.
_ALL = (
    claude.AGENT, codex.AGENT, gemini.AGENT, opencode.AGENT, copilot.AGENT, qwen.AGENT, cursor.AGENT, windsurf.AGENT,
)  # fmt: skip
AGENTS: dict[str, Agent] = {agent.name: agent for agent in _ALL}
MAX_HEAD_BYTES, MAX_HEAD_LINES = 1 << 20, 1_000


def get_agent(name: str) -> Agent:
    """Return an agent by name. An unknown name means a client that posts our event format over HTTP."""
    return AGENTS.get(name) or Agent(name=name, label=name)


def identify_agent(path: Path) -> Agent | None:
    """Return the agent that wrote a transcript, by its first records, or None if no agent recognizes it."""
    for record in _first_records(path):
        for agent in AGENTS.values():
            if agent.transcripts is not None and agent.transcripts.owns(record):
                return agent
    return None


def read_head(agent: Agent, path: Path) -> TranscriptHead:
    """Return the head of a transcript; an empty one for an agent without transcripts."""
    return agent.transcripts.head(path) if agent.transcripts is not None else TranscriptHead()


def _first_records(path: Path) -> Iterator[dict[str, object]]:
    """Yield the first records. Many are needed: a continued conversation begins with those of the earlier one."""
    try:
        for line in _first_lines(path):
            if (record := transcript_lines.parse_record(line)) is not None:
                yield record
    except (OSError, EOFError, ValueError, zlib.error):
        return  # the records before the damage have been yielded


def _first_lines(path: Path) -> Iterator[bytes]:
    with transcript_lines.open_transcript(path) as file:
        if path.name.removesuffix(".gz").endswith(".json"):  # one record over many lines
            yield file.read(transcript_lines.MAX_DOCUMENT_BYTES)
            return
        remaining = MAX_HEAD_BYTES
        for _ in range(MAX_HEAD_LINES):
            line = file.readline(remaining)
            remaining -= len(line)
            if not line or remaining <= 0:
                return
            yield line
