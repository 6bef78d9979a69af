"""Memories from evidence alone: no model, no network, the same answer every time.

The evidence is the prompt, the agent's last message (it *is* a summary, most of the time), what was edited,
what was committed, and which commands failed and then passed. That alone is a working memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from claude_mem.records import Digest, Draft, Stopped, Summary, ToolUsed, Turn, Type
from claude_mem.text import clip, first_sentence, shorten

_EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
_READS = ("Read", "NotebookRead")
_SEARCHES = ("Grep", "Glob", "WebSearch", "WebFetch")

_COMMITTED = re.compile(r"^\[(?P<branch>\S+)(?: \(root-commit\))? (?P<id>[0-9a-f]{7,40})\] (?P<subject>.+)$", re.M)
# `git commit -q -m "…"` says nothing; then the command itself tells what was committed.
_QUIET_COMMIT = re.compile(
    r"git commit\b[^\n]*?(?:-\w*m|--message)[ =]?(?P<quote>[\"'])(?:\$\(cat <<'?EOF'?\n)?(?P<subject>[^\n\"']{3,200})"
)
_STAT = re.compile(r"^ ?(\d+ files? changed.*)$", re.M)
_ERROR = re.compile(r"error|exception|fatal|failed|failure|panic|not found|denied|refused|undefined|cannot|can't", re.I)
_NAMED_ERROR = re.compile(r"(?:E\s+)?[A-Za-z_.]*(?:Error|Exception|panic|fatal|error\[\w+\])\b ?: ?\S", re.I)
_LEARNED = re.compile(
    r"\b(because|turns? out|turned out|root cause|the (?:problem|issue|bug|reason|cause) (?:was|is)|caused by|"
    r"discovered|learned|note that|it seems)\b",
    re.I,
)
_NEXT = re.compile(
    r"\b(next step|still (?:need|to do|open|missing)|remaining|todo|to do next|follow-?up|left to do|not yet|"
    r"you (?:can|may|should) now)\b",
    re.I,
)
_NEXT_HEADING = re.compile(r"\b(next|remaining|to.?do|follow|open)\b", re.I)
_LEARNED_HEADING = re.compile(r"\b(learned|findings?|root cause|why|cause|insights?|discover)", re.I)

# What the words of a request or a commit say about its kind; the first that fits decides.
_KINDS = tuple(
    (kind, re.compile(rf"\b(?:{words})\b", re.I))
    for kind, words in (
        (Type.BUGFIX, r"fix\w*|bug\w*|repair\w*|broken|crash\w*|regression|failing"),
        (Type.REFACTOR, r"refactor\w*|renam\w*|clean ?up|simplif\w*|restructur\w*|extract\w*|move\w*"),
        (Type.FEATURE, r"feat|feature|add\w*|implement\w*|creat\w*|introduc\w*|support\w*|new|writ\w*|build"),
    )
)


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command and how it went."""

    text: str
    output: str
    failed: bool
    place: int

    @property
    def key(self) -> str:
        """The same attempt again: without a leading `cd`, and with one space where there were many."""
        return " ".join(re.sub(r"^cd \S+ *(&&|;) *", "", self.text).split())


@dataclass(frozen=True, slots=True)
class Commit:
    id: str
    subject: str
    stat: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A command that failed, and later passed."""

    failed: Command
    passed: Command


@dataclass(frozen=True, slots=True)
class Evidence:
    message: str
    read: tuple[str, ...]
    edited: tuple[str, ...]
    searched: tuple[str, ...]
    commands: tuple[Command, ...]
    commits: tuple[Commit, ...]
    fixes: tuple[Fix, ...]
    unsolved: tuple[Command, ...]


class LocalCompressor:
    name = "local"

    async def compress(self, turn: Turn) -> Digest:
        return digest(turn)


def digest(turn: Turn) -> Digest:
    found = gather(turn)
    return Digest(summarise(turn, found), tuple(observe(turn, found)))


# --- evidence --------------------------------------------------------------------------------------------------------


def gather(turn: Turn) -> Evidence:
    tools = [(place, body) for place, body in enumerate(turn.bodies) if isinstance(body, ToolUsed)]
    done = [body for _, body in tools if not body.failed]
    commands = tuple(_commands(tools))
    fixes = tuple(_fixes(commands))
    solved = {fix.failed.key for fix in fixes}
    last_failures = {command.key: command for command in commands if command.failed}
    return Evidence(
        message=next((body.message for body in reversed(turn.bodies) if isinstance(body, Stopped)), "").strip(),
        read=_unique(_path(body, turn.root) for body in done if body.name in _READS),
        edited=_unique(_path(body, turn.root) for body in done if body.name in _EDITS),
        searched=_unique(_searched(body) for body in done if body.name in _SEARCHES),
        commands=commands,
        commits=tuple(commit for command in commands if not command.failed for commit in _commits(command)),
        fixes=fixes,
        unsolved=tuple(command for key, command in last_failures.items() if key not in solved),
    )


def _commands(tools: Iterable[tuple[int, ToolUsed]]) -> Iterator[Command]:
    for place, body in tools:
        text = body.input.get("command")
        if body.name == "Bash" and isinstance(text, str):
            yield Command(text, _output(body.output), body.failed, place)


def _output(output: Any) -> str:
    if isinstance(output, dict):
        return "\n".join(str(output[name]) for name in ("stdout", "stderr") if output.get(name))
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return str(output or "")


def _commits(command: Command) -> Iterator[Commit]:
    if "commit" not in command.text:
        return
    told = list(_COMMITTED.finditer(command.output))
    for match in told:
        stat = _STAT.search(command.output, match.end())
        yield Commit(match["id"], match["subject"].strip(), stat[1] if stat else "")
    if not told and (quiet := _QUIET_COMMIT.search(command.text)):
        yield Commit("", quiet["subject"].strip(), "")


def _fixes(commands: tuple[Command, ...]) -> Iterator[Fix]:
    failed: dict[str, Command] = {}
    for command in commands:
        if command.failed:
            failed.setdefault(command.key, command)
        elif command.key in failed:
            yield Fix(failed.pop(command.key), command)


def _path(body: ToolUsed, root: str) -> str:
    path = body.input.get("file_path") or body.input.get("notebook_path")
    if not isinstance(path, str):
        return ""
    return path.removeprefix(root.rstrip("/") + "/") if root else path


def _searched(body: ToolUsed) -> str:
    for name in ("pattern", "query", "url"):
        if isinstance(found := body.input.get(name), str) and found:
            return shorten(found, 60)
    return ""


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in items if item))


def error_line(output: str) -> str:
    """The line that says what went wrong: a named exception, else what sounds like an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("Exit code")]
    named = [line for line in lines if _NAMED_ERROR.match(line)]
    telling = [line for line in lines if _ERROR.search(line)]
    return shorten((named or telling or lines or [""])[-1], 160)


# --- the summary -----------------------------------------------------------------------------------------------------


def summarise(turn: Turn, found: Evidence) -> Summary:
    sections = dict(_sections(found.message))
    return Summary(
        request=clip(turn.prompt.strip(), 600),
        investigated=_investigated(found),
        learned=_section(sections, _LEARNED_HEADING) or _sentences(found.message, _LEARNED),
        completed=_completed(found),
        next_steps=_section(sections, _NEXT_HEADING) or _sentences(found.message, _NEXT),
        notes="\n".join(f"`{shorten(c.key, 80)}` failed: {error_line(c.output)}" for c in found.unsolved[:3]),
        files_read=found.read[:50],
        files_edited=found.edited[:50],
    )


def _investigated(found: Evidence) -> str:
    parts = []
    if found.read:
        parts.append("Read " + _names(found.read, 8))
    if found.searched:
        parts.append("searched for " + _names(found.searched, 4))
    return "; ".join(parts)


def _completed(found: Evidence) -> str:
    """The agent's own account without its plans; else what the tools show."""
    if text := _account(found.message):
        return text
    parts = [f"Committed {commit.id[:9]} {commit.subject}" for commit in found.commits]
    if found.edited:
        parts.append("Edited " + _names(found.edited, 8))
    return "; ".join(parts)


def _account(message: str) -> str:
    kept = [
        body if not heading else f"{heading}: {body}"
        for heading, body in _sections(message)
        if not (_NEXT_HEADING.search(heading) or _LEARNED_HEADING.search(heading))
    ]
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`*\d-])", " ".join(" ".join(kept).split()))
    return clip(" ".join(sentence for sentence in sentences if not _NEXT.search(sentence)), 700).strip()


def _sections(message: str) -> Iterator[tuple[str, str]]:
    """The message under its own headings; what stands before the first has none."""
    heading, lines = "", list[str]()
    for line in message.splitlines():
        if found := re.match(r"\s*(?:#{1,6}\s+(.+?)|\*\*(.{2,60}?):?\*\*:?)\s*$", line):
            if any(text.strip() for text in lines):
                yield heading, "\n".join(lines).strip()
            heading, lines = plain_markdown(found[1] or found[2]), []
        else:
            lines.append(plain_markdown(line))
    if any(text.strip() for text in lines):
        yield heading, "\n".join(lines).strip()


def _section(sections: dict[str, str], wanted: re.Pattern[str]) -> str:
    return next((clip(body, 600) for heading, body in sections.items() if heading and wanted.search(heading)), "")


def _sentences(message: str, wanted: re.Pattern[str]) -> str:
    text = plain_markdown(" ".join(message.split()))
    found = [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if wanted.search(sentence)]
    return clip(" ".join(found[:3]), 500)


def plain_markdown(line: str) -> str:
    """The words without the marks."""
    line = re.sub(r"^\s*(?:[-*+]|\d+\.)\s+(?:\[[ x]\]\s+)?", "- ", line)
    line = re.sub(r"\[([^\]]{1,200})\]\([^)]{1,500}\)", r"\1", line)
    return re.sub(r"\*\*|__|^#{1,6} ", "", line).strip()


def _names(items: tuple[str, ...], most: int) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


# --- observations ----------------------------------------------------------------------------------------------------


def observe(turn: Turn, found: Evidence) -> Iterator[Draft]:
    """What the evidence shows, each thing once. Routine work that left no trace makes none."""
    yield from (_commit(turn, found, commit) for commit in found.commits)
    yield from (_fix(found, fix) for fix in found.fixes)
    if found.edited and not found.commits:
        yield _edits(turn, found)
    if not found.edited and not found.commits and _is_answer(found):
        yield _answer(turn, found)
    yield from (_open_failure(found, command) for command in found.unsolved[-1:] if found.edited)


def _commit(turn: Turn, found: Evidence, commit: Commit) -> Draft:
    named = f"Commit {commit.id[:9]}".strip()
    facts = [f"{named}: {commit.subject}", commit.stat, *(f"Edited {path}" for path in found.edited[:8])]
    return Draft(
        key=f"commit:{commit.id or _short_hash(commit.subject)}",
        type=_kind(commit.subject, turn.prompt),
        title=shorten(re.sub(r"^\w+(?:\([^)]*\))?!?: ", "", commit.subject), 100),
        subtitle=shorten(turn.prompt, 140),
        narrative=_account(found.message),
        facts=tuple(fact for fact in facts if fact),
        concepts=("what-changed",),
        files_read=found.read[:20],
        files_modified=found.edited[:20],
        commit=commit.id,
    )


def _fix(found: Evidence, fix: Fix) -> Draft:
    error = error_line(fix.failed.output)
    command = shorten(fix.failed.key, 80)
    how = f" after editing {_names(found.edited, 4)}" if found.edited else ""
    return Draft(
        key=f"fix:{_short_hash(fix.failed.key)}",
        type=Type.BUGFIX,
        title=shorten(f"`{command}` failed ({error}), then passed", 140),
        narrative=f"`{command}` failed with: {error}. It passed{how}. {_sentences(found.message, _LEARNED)}".strip(),
        facts=(f"Error: {error}", f"Passes: {command}"),
        concepts=("problem-solution",),
        files_modified=found.edited[:20],
    )


def _edits(turn: Turn, found: Evidence) -> Draft:
    said = first_sentence(plain_markdown(found.message.strip().split("\n\n")[0])) if found.message else ""
    title = said if len(said) >= 25 else shorten(turn.prompt, 100) or f"Edited {_names(found.edited, 3)}"
    return Draft(
        key="edits",
        type=_kind(turn.prompt, found.message[:300]),
        title=shorten(title, 120),
        subtitle=shorten(turn.prompt, 140),
        narrative=_account(found.message),
        facts=tuple(f"Edited {path}" for path in found.edited[:12]),
        concepts=("what-changed",),
        files_read=found.read[:20],
        files_modified=found.edited[:20],
    )


def _is_answer(found: Evidence) -> bool:
    """Something was looked into and something was said about it."""
    return len(found.message) >= 200 and bool(found.read or found.searched or found.commands)


def _answer(turn: Turn, found: Evidence) -> Draft:
    account = _account(found.message)
    return Draft(
        key="answer",
        type=Type.DISCOVERY,
        title=first_sentence(account, 120) or shorten(turn.prompt, 100),
        subtitle=shorten(turn.prompt, 140),
        narrative=account,
        facts=tuple(fact for fact in (_sentences(found.message, _LEARNED),) if fact),
        concepts=("how-it-works",),
        files_read=found.read[:20],
    )


def _open_failure(found: Evidence, command: Command) -> Draft:
    error = error_line(command.output)
    return Draft(
        key=f"open:{_short_hash(command.key)}",
        type=Type.DISCOVERY,
        title=shorten(f"`{command.key}` still fails: {error}", 140),
        facts=(f"Error: {error}",),
        concepts=("gotcha",),
        files_modified=found.edited[:20],
    )


def _kind(*texts: str) -> str:
    for text in texts:
        for kind, words in _KINDS:
            if words.search(text):
                return kind
    return Type.CHANGE


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
