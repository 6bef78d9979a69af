"""Decides which events are stored, and with what content: capture rules first, then private parts, secrets and sizes.

Hooks, reconciling and back-fill all go through `filter_and_clean`, so that the same event is treated the same way
wherever it comes from. Nothing here uses the database.
"""

from __future__ import annotations

import os
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.agents.canonical import READING_TOOLS, drop_redundant_fields
from claude_mem.config import Config
from claude_mem.digest import provenance
from claude_mem.domain.records import Body, Event, Stopped, SubagentStopped, ToolUsed
from claude_mem.domain.text import CLOSING_CHARS, clip, iter_strings, make_storable, map_strings
from claude_mem.privacy import external, files, sources, tags, trust
from claude_mem.privacy.secrets import redact, redact_fields, redact_printed_secrets
from claude_mem.privacy.trust import EXTERNAL, SUSPECT, TRUSTED
from claude_mem.system import git_files
from claude_mem.system.project_folders import ResolvedProject

PROMPT_CHARS = 8_000
MAX_EVENT_BYTES = 1 << 20  # the largest event that is stored as it is, regardless of how many texts it consists of
PART_CHARS, MAX_PARTS, MAX_KEY_CHARS = 8_000, 20, 200  # limits for the parts of a larger event
_PERSISTED_OUTPUT = "<persisted-output>"  # marks output too long for the client: the agent reads it from a file
# Text from an issue tracker is kept at three times the usual length, because the agent's words are compared with it.
TRACKER_CHARS_FACTOR = 3


def clean_set_aside(text: str, config: Config) -> str:
    """Return the redacted text of a spool file that could not be read as an event.

    If the text mentions a file of secrets, only the header lines are kept.
    """
    if files.mentions_withheld_file(text, withheld_patterns(config)):
        head, blank, _ = text.partition("\n\n")
        text = f"{head if blank else ''}\n\n{files.WITHHELD_NOTE}"
    return redact(tags.strip_private(text))


def withheld_patterns(config: Config) -> tuple[str, ...]:
    """Return patterns of files whose content is never stored, in addition to the built-in list: our own data directory
    and the files named in the settings."""
    folder = config.data_dir.expanduser()
    home = os.path.expanduser("~")  # noqa: PTH111 -- Path.home() raises when HOME cannot be determined
    folders = [folder, *([Path("~") / folder.relative_to(home)] if folder.is_relative_to(home) else [])]
    return (*(f"{escape(str(path))}/*" for path in folders), *config.withheld_files)


def filter_and_clean(event: Event, project: ResolvedProject, config: Config) -> Event | None:
    """Apply the capture rules to an event, then clean it. Return `None` if a rule excludes the event.

    The rules come first: they judge the whole text, and cleaning clips the middle of a long one.
    """
    filtered_event = apply_capture_rules(event, project, config)
    return None if filtered_event is None else clean_event(filtered_event, config)


def apply_capture_rules(event: Event, project: ResolvedProject, config: Config) -> Event | None:
    """Return the event, or `None` if a capture rule excludes it.

    An excluded event from an external origin becomes an empty placeholder: otherwise a repository could use
    `skip_tools` in its own settings file to hide that a turn read untrusted content, and the agent's words about that
    content would be injected as trusted.
    """
    body = event.body
    if not skip_reason(body, project, config):
        return event
    origin = SUSPECT if provenance.instruction_rule(body) else event.origin or trust.origin_of(body, cwd=event.cwd)
    if origin in TRUSTED or not isinstance(body, ToolUsed | SubagentStopped):
        return None
    agent_id = body.agent_id
    empty: Body = SubagentStopped(agent_id=agent_id)
    if isinstance(body, ToolUsed):
        empty = ToolUsed(body.name, {}, agent_id=agent_id)
    return replace(event, body=empty, origin=origin)


def skip_reason(body: Body, project: ResolvedProject, config: Config) -> str:
    """Return the name of the capture rule that excludes an event; "" if none does."""
    if isinstance(body, ToolUsed) and body.name in (*config.skip_tools, *project.skip_tools):
        return "skip_tool"
    of_subagent = isinstance(body, SubagentStopped) or (isinstance(body, ToolUsed) and body.agent_id)
    return "subagent" if of_subagent and not project.subagents else ""


def clean_event(event: Event, config: Config) -> Event:
    """Remove the content of files of secrets, private parts and secrets, replace unstorable characters, and clip long
    texts, in this order: a secret that was cut in half would not be recognised."""
    origin = event.origin or trust.origin_of(event.body, cwd=event.cwd)  # needs the whole text
    event = replace(event, body=_remove_own_content(event.body, event.cwd))
    team = isinstance(event.body, ToolUsed) and origin == EXTERNAL and sources.may_be_team_source(event.body)
    most = _char_limit(event.body, config, team=team)
    visible = _remove_hidden(event.body, config, withhold=config.redact_secrets)
    scan_chars = max(config.event_chars * 10, most * 2)
    parts = map_strings(msgspec.to_builtins(visible), lambda text: clip(make_storable(text), scan_chars))
    parts = redact_fields(parts) if config.redact_secrets else parts
    body = msgspec.convert(map_strings(parts, lambda text: clip(text, most)), Body)
    bounded = _limit_size(body)
    hidden = event.stripped or visible != event.body
    if team and isinstance(bounded, ToolUsed) and bounded is body and not hidden and not _is_incomplete(visible, most):
        bounded = msgspec.structs.replace(bounded, whole=True)
    return replace(
        event,
        body=bounded,
        origin=origin,
        content_session_id=make_storable(event.content_session_id),
        prompt_id=make_storable(event.prompt_id),
        tool_use_id=make_storable(event.tool_use_id),
        transcript_path=make_storable(event.transcript_path),
    )


def _remove_own_content(body: Body, cwd: str) -> Body:
    """Remove the content of the project's own files, which is on disk anyway.

    The content of external files stays: later texts are compared with it. So does that of files that git does not
    track, because they may have been downloaded earlier in the session.
    """
    if not isinstance(body, ToolUsed) or body.name not in READING_TOOLS or not isinstance(body.output, dict):
        return body
    is_foreign = external.foreign_kind(body, external.Workspace(cwd, cwd)) or external.reads_nested_repository(
        body, cwd
    )
    return (
        body
        if is_foreign or _is_untracked(body, cwd)
        else msgspec.structs.replace(body, output=drop_redundant_fields(body.output))
    )


def _is_untracked(body: ToolUsed, cwd: str) -> bool:
    """Return whether the file that was read is in a repository and unknown to git."""
    path = body.input.get("file_path") or body.input.get("notebook_path") or body.input.get("path")
    if not cwd or not isinstance(path, str) or "\0" in path + cwd:
        return False
    real = Path(os.path.realpath(os.path.join(cwd, path)))  # noqa: PTH118 -- `/` would fail for a relative `cwd`
    tree = git_files.find_work_tree(real.parent)
    if tree is None or tree.git_dir is None or tree.linked:  # the index of a linked worktree is elsewhere
        return False
    return not git_files.is_tracked(tree.git_dir, str(real.relative_to(tree.root)))


def _char_limit(body: Body, config: Config, *, team: bool) -> int:
    """Return how many characters are kept of each text of an event."""
    if isinstance(body, Stopped):
        return max(config.event_chars, CLOSING_CHARS)
    return config.event_chars * (TRACKER_CHARS_FACTOR if team else 1)


def _is_incomplete(body: Body, most: int) -> bool:
    """Return whether a tool may have shown the agent more than is stored: the middle of a long text, output that was
    written to a file, or output that a rule removed."""
    assert isinstance(body, ToolUsed)
    texts = list(iter_strings(body.output))
    return not texts or any(len(text) > most or _PERSISTED_OUTPUT in text for text in texts)


def _limit_size(body: Body) -> Body:
    """Limit the size of an event whose texts are clipped but too numerous: keep the beginning and the end of each part,
    as text."""
    if not isinstance(body, ToolUsed) or len(msgspec.json.encode(body)) <= MAX_EVENT_BYTES:
        return body
    arguments = {key[:MAX_KEY_CHARS]: _clip_part(part) for key, part in list(body.input.items())[:MAX_PARTS]}
    return msgspec.structs.replace(body, input=arguments, output=_clip_part(body.output))


def _clip_part(part: Any) -> object:
    text = part if isinstance(part, str) else msgspec.json.encode(part).decode()
    return clip(text, PART_CHARS) if len(text) > PART_CHARS else part


def remove_secrets(body: Body, config: Config) -> Body:
    """Return the body without private parts, the content of files of secrets, and secrets, by the current rules."""
    visible = msgspec.to_builtins(_remove_hidden(body, config, withhold=True))
    result: Body = msgspec.convert(redact_fields(visible), Body)
    return result


def _remove_hidden(body: Body, config: Config, *, withhold: bool) -> Body:
    """Return the body without private parts and, with `withhold`, without the content of files of secrets."""
    if isinstance(body, ToolUsed) and withhold:
        body = files.withhold_content(body, withheld_patterns(config))
        printed = redact_printed_secrets(files.commands_of(body), body.output)
        body = body if printed == body.output else msgspec.structs.replace(body, output=printed)
    result: Body = msgspec.convert(tags.strip_private_fields(msgspec.to_builtins(body)), Body)
    return result
