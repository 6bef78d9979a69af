"""What the transcript of a session still tells of turns whose raw events are no longer kept.

The file is the agent's own record, read as reconciling reads it: cleaned by the same rules, nothing of a project that
is switched off, nothing of a private turn. Nothing is stored; the turn is only digested again. Subagents' files name no
prompt and are not read, so only turns in which nothing came from outside are told again (`rewrites.source`).
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
MOST_EVENTS = 20_000  # of a file, which are all kept: what comes after them is not told again

Told = Mapping[str, Sequence[Event]]


class Transcripts:
    """Reads transcripts, and keeps what the last one told: turns of one session come one after the other."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._last: tuple[Source | None, Told] = None, {}

    def events(self, source: Source, prompt_id: str) -> Sequence[Event]:
        """What happened in the turn of that prompt, in order; nothing if not both its prompt and its end are told."""
        if self._last[0] != source:
            self._last = source, _read(source, self.config)
        told = self._last[1].get(prompt_id, ())
        kinds = {type(event.body) for event in told}
        return told if {Prompted, Stopped} <= kinds else ()


def is_there(source: Source) -> bool:
    """Whether a file can be looked at for what it tells."""
    path = Path(source.path)
    try:
        return untrusted_files.is_own(path) and 0 < path.stat().st_size <= MOST_BYTES
    except (OSError, ValueError):
        return False


def _read(source: Source, config: Config) -> Told:
    """By prompt."""
    transcripts = registry.of(source.host).transcripts
    if transcripts is None or not is_there(source):
        return {}
    project = resolve(source.cwd, excluded=config.excluded_projects)
    if not project.enabled or not transcripts.is_of(Path(source.path), source.content_session_id):
        return {}
    told: defaultdict[str, list[Event]] = defaultdict(list)
    left = MOST_EVENTS
    name, private = source.content_session_id, set[str]()
    for part in whole(transcripts, Path(source.path), host=source.host, content_session_id=name):
        private |= part.private
        for event in [*part.events, *part.closings.values()][:left]:
            wanted = ingest.kept(event, project, config)
            if wanted is not None and wanted.prompt_id and not wanted.private and wanted.prompt_id not in private:
                told[wanted.prompt_id].append(ingest.clean(wanted, config))
        left -= min(left, len(part.events) + len(part.closings))
    return told
