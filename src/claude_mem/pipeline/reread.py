"""Reads turns from the transcript of their session after their raw events were purged.

The file is the agent's own log. It is read by the same rules as in reconciling: sanitized, nothing from a project that
is switched off, nothing from a private turn. No event is stored; the turn is only digested again. Subagent transcripts
contain no prompt id and are not read, so only turns without external text are eligible (`rewrites.source`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from claude_mem import untrusted_files
from claude_mem.config import Config
from claude_mem.hosts import registry
from claude_mem.pipeline import ingest
from claude_mem.pipeline.transcripts import whole
from claude_mem.projects import resolve
from claude_mem.records import Event, Prompted, Stopped
from claude_mem.store.rewrites import Source

MOST_BYTES = 64 << 20  # of a file
MOST_EVENTS = 20_000  # of a file; they are all held in memory, and later ones are ignored

Told = Mapping[str, Sequence[Event]]


class Transcripts:
    """Reads transcripts and caches the last one, because turns of one session are processed in sequence."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._last: tuple[Source | None, Told] = None, {}

    def events(self, source: Source, prompt_id: str) -> Sequence[Event]:
        """Return the events of the turn in order; none unless the transcript has both its prompt and its end."""
        if self._last[0] != source:
            self._last = source, _events_by_prompt(source, self.config)
        turn_events = self._last[1].get(prompt_id, ())
        kinds = {type(event.body) for event in turn_events}
        return turn_events if {Prompted, Stopped} <= kinds else ()


def is_there(source: Source) -> bool:
    """Return whether the transcript belongs to the user and has a size we read."""
    path = Path(source.path)
    try:
        return untrusted_files.is_own(path) and 0 < path.stat().st_size <= MOST_BYTES
    except (OSError, ValueError):
        return False


def _events_by_prompt(source: Source, config: Config) -> Told:
    """Return the events of a transcript by prompt id, after capture rules and sanitizing."""
    transcripts = registry.of(source.host).transcripts
    if transcripts is None or not is_there(source):
        return {}
    project = resolve(source.cwd, excluded=config.excluded_projects)
    if not project.enabled or not transcripts.is_of(Path(source.path), source.content_session_id):
        return {}
    by_prompt: defaultdict[str, list[Event]] = defaultdict(list)
    remaining = MOST_EVENTS
    session_id, private_prompts = source.content_session_id, set[str]()
    for part in whole(transcripts, Path(source.path), host=source.host, content_session_id=session_id):
        private_prompts |= part.private
        for event in [*part.events, *part.closings.values()][:remaining]:
            allowed = ingest.kept(event, project, config)
            if allowed is None or not allowed.prompt_id or allowed.private or allowed.prompt_id in private_prompts:
                continue
            by_prompt[allowed.prompt_id].append(ingest.clean(allowed, config))
        remaining -= min(remaining, len(part.events) + len(part.closings))
    return by_prompt
