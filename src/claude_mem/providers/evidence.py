"""What a turn shows, apart from what anyone says about it: files, commands, commits, tests, lookups.

Every piece knows the events it comes from, so that whatever is made of it can be traced back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from claude_mem import patches
from claude_mem.providers import symbols
from claude_mem.providers.symbols import Change
from claude_mem.records import Stopped, SubagentStopped, ToolUsed, Turn
from claude_mem.text import shorten

_EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
_READS = ("Read", "NotebookRead")
_SEARCHES = ("Grep", "Glob")
_LOOKUPS = ("WebSearch", "WebFetch")
_AGENTS = ("Task", "Agent")

_COMMITTED = re.compile(r"^\[(?P<branch>\S+)(?: \(root-commit\))? (?P<id>[0-9a-f]{7,40})\] (?P<subject>.+)$", re.M)
# `git commit -q -m "…"` says nothing; then the command itself tells what was committed.
_QUIET_COMMIT = re.compile(
    r"git commit\b[^\n]{0,400}?(?:-\w*m|--message)[ =]?(?P<quote>[\"'])(?:\$\(cat <<[\"'\\]*EOF[\"']?\s*\n)?(?P<subject>[^\n\"']{3,200})"
)
_STAT = re.compile(r"^ ?(\d+ files? changed.*)$", re.M)
_ERROR = re.compile(r"error|exception|fatal|failed|failure|panic|not found|denied|refused|undefined|cannot|can't", re.I)
_NAMED_ERROR = re.compile(r"(?:E\s+)?(?:[A-Za-z_][\w.]*(?:Error|Exception)|panic|fatal|error(?:\[\w+\])?) ?: ?\S")
_AT_LINE = re.compile(r"(?<!\S)\S+\.\w{1,5}:\d+(?::\d+)?:? \S")
_NOISE = re.compile(
    r"^(?:Exit code|\[[\w:.-]+\] (?:ERROR|\$)|make: \*\*\*|npm ERR!|error Command failed|FAIL\s|exit status)"
)

# A command is tried again when these are all that differs.
_WRAPPING = (
    re.compile(r"^(?:cd \S+ *(?:&&|;) *|[A-Z_][A-Z0-9_]*=\S* +|timeout \d+\w? +|time +)+"),
    re.compile(
        r"(?:(?<! ) *+(?:2>&1|[|;] *(?:head|tail|grep|cat|tee|sed|awk|wc)\b.*|(?:&&|\|\||;) *echo\b.*|>&? ?/dev/null)){1,8}$",
        re.S,
    ),
)
_CHECKS = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|go test|go vet|go build|cargo (?:test|build|check|clippy)|"
    r"npm (?:test|run)|yarn|pnpm|make|mvn|gradle|tsc|mypy|ruff|eslint|golangci-lint|mise run|just|bazel)\b"
)
_STYLE = re.compile(r"\b(?:fmt|format|gofmt|prettier|lint|golangci-lint|eslint|ruff|black|clippy)\b")
_FAILING = re.compile(r"\b[1-9]\d* (?:failed|errors?\b)|^--- FAIL|^FAIL\b|\bFAILED\b|\berrors?=[1-9]|✗|✖", re.M)
_COUNTED = re.compile(r"\b\d+ passed\b[^\n]{0,40}|\bRan \d+ tests\b|\bTests:\s+\d+ passed[^\n]{0,40}|^ok\s+\S+", re.M)


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command and how it went."""

    text: str
    output: str
    failed: bool
    seq: int

    @property
    def key(self) -> str:
        """The same attempt again, whatever was wrapped around it."""
        bare = " ".join(self.text.split())
        for wrapping in _WRAPPING:
            bare = wrapping.sub("", bare)
        return bare

    @property
    def is_check(self) -> bool:
        return bool(_CHECKS.search(self.key))

    @property
    def is_style(self) -> bool:
        return bool(_STYLE.search(self.key))


@dataclass(frozen=True, slots=True)
class Edit:
    path: str
    change: Change
    seq: int


@dataclass(frozen=True, slots=True)
class Commit:
    id: str
    subject: str
    stat: str
    seq: int
    branch: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """A command that failed, and later passed."""

    failed: Command
    passed: Command


@dataclass(frozen=True, slots=True)
class Found:
    """Something looked up or reported: what, and where it came from."""

    text: str
    seq: int


@dataclass(frozen=True, slots=True)
class Evidence:
    message: str
    message_seq: int
    opened: tuple[Found, ...]  # every time that a file was read
    edits: tuple[Edit, ...]
    searched: tuple[Found, ...]
    looked_up: tuple[Found, ...]
    reported: tuple[Found, ...]  # by subagents
    commands: tuple[Command, ...]
    commits: tuple[Commit, ...]
    fixes: tuple[Fix, ...]
    unsolved: tuple[Command, ...]

    @property
    def read(self) -> tuple[Found, ...]:
        """Each file the first time."""
        return _found((found.seq, found.text) for found in self.opened)

    @property
    def edited(self) -> tuple[str, ...]:
        return unique(edit.path for edit in self.edits)

    @property
    def files_read(self) -> tuple[str, ...]:
        return unique(found.text for found in self.read)

    @property
    def checks(self) -> tuple[Command, ...]:
        """The last run of each test, build or lint command."""
        return tuple({command.key: command for command in self.commands if command.is_check}.values())


def gather(turn: Turn, *, symbols: bool = True) -> Evidence:
    """Without `symbols`, which definitions an edit touched is left out: finding that takes half of the time."""
    events = list(zip(turn.seqs, turn.bodies, strict=True))
    tools = [(seq, body) for seq, body in events if isinstance(body, ToolUsed)]
    done = [(seq, body) for seq, body in tools if not body.failed]
    commands = tuple(_commands(tools))
    fixes = tuple(_fixes(commands))
    message, message_seq = next(
        (
            (body.message.strip(), seq)
            for seq, body in reversed(events)
            if isinstance(body, Stopped) and body.message.strip()
        ),
        ("", 0),
    )
    return Evidence(
        message=message,
        message_seq=message_seq,
        opened=tuple(Found(path, seq) for seq, body in done if body.name in _READS and (path := _path(body, turn))),
        edits=tuple(edit for seq, body in done for edit in _edits(seq, body, turn, symbols)),
        searched=_found((seq, _wanted(body)) for seq, body in done if body.name in _SEARCHES),
        looked_up=_found(
            (seq, _wanted(body)) for seq, body in done if body.name in _LOOKUPS or body.name.startswith("mcp__")
        ),
        reported=tuple(_reports(events)),
        commands=commands,
        commits=tuple(commit for command in commands if not command.failed for commit in _commits(command)),
        fixes=fixes,
        unsolved=_unsolved(commands, fixes),
    )


def _commands(tools: Iterable[tuple[int, ToolUsed]]) -> Iterator[Command]:
    for seq, body in tools:
        text = body.input.get("command")
        if body.name == "Bash" and isinstance(text, str):
            command = Command(text, output_text(body.output), body.failed, seq)
            # `pytest | tail` ends well whatever pytest says: believe its words.
            yield Command(
                text,
                command.output,
                command.failed or (command.is_check and bool(_FAILING.search(command.output))),
                seq,
            )


def output_text(output: Any) -> str:
    """What a tool printed, in whatever shape the host tells it."""
    if isinstance(output, dict):
        said = [output[name] for name in ("stdout", "stderr", "content", "result") if output.get(name)]
        return "\n".join(item if isinstance(item, str) else output_text(item) for item in said)
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return str(output or "")


def _commits(command: Command) -> Iterator[Commit]:
    if "commit" not in command.text:
        return
    told = list(_COMMITTED.finditer(command.output))
    for match in told:
        stat = _STAT.search(command.output, match.end())
        yield Commit(match["id"], match["subject"].strip(), stat[1] if stat else "", command.seq, match["branch"])
    if not told and (quiet := _QUIET_COMMIT.search(command.text)):
        yield Commit("", quiet["subject"].strip(), "", command.seq)


def _fixes(commands: tuple[Command, ...]) -> Iterator[Fix]:
    failed: dict[str, Command] = {}
    for command in commands:
        if command.failed:
            failed.setdefault(command.key, command)
        elif command.key in failed:
            yield Fix(failed.pop(command.key), command)


def _unsolved(commands: tuple[Command, ...], fixes: tuple[Fix, ...]) -> tuple[Command, ...]:
    """What failed and was never seen to pass: the last failure of each."""
    passed = {command.key: command.seq for command in commands if not command.failed}
    last = {command.key: command for command in commands if command.failed}
    solved = {fix.failed.key for fix in fixes}
    return tuple(command for key, command in last.items() if passed.get(key, -1) < command.seq and key not in solved)


def _reports(events: list[tuple[int, Any]]) -> Iterator[Found]:
    for seq, body in events:
        if isinstance(body, SubagentStopped) and body.message.strip():
            yield Found(body.message.strip(), seq)
        elif (
            isinstance(body, ToolUsed)
            and body.name in _AGENTS
            and not body.failed
            and (text := output_text(body.output).strip())
        ):
            yield Found(text, seq)


def _edits(seq: int, body: ToolUsed, turn: Turn, closely: bool) -> Iterator[Edit]:
    """One a file; a file that was moved is known by both its names."""
    if body.name == patches.TOOL:
        for patch in patches.changes(body.input):
            where, *before = patch.paths
            yield Edit(_inside(where, turn), symbols.of_lines(patch.lines) if closely else Change(), seq)
            yield from (Edit(_inside(path, turn), Change(), seq) for path in before)
    elif body.name in _EDITS and (path := _path(body, turn)):
        yield Edit(path, symbols.of(body) if closely else Change(), seq)


def _path(body: ToolUsed, turn: Turn) -> str:
    path = body.input.get("file_path") or body.input.get("notebook_path")
    return _inside(path, turn) if isinstance(path, str) else ""


def _inside(path: str, turn: Turn) -> str:
    """Within the project, as people name it."""
    bases = [base.rstrip("/") + "/" for base in (turn.root, turn.cwd) if base]
    return next((path[len(base) :] for base in bases if path.startswith(base)), path)


def _wanted(body: ToolUsed) -> str:
    for name in ("pattern", "query", "url", "prompt", "question", "q"):
        if isinstance(found := body.input.get(name), str) and found.strip():
            what = shorten(found, 80)
            return f"{body.name.removeprefix('mcp__')}: {what}" if body.name.startswith("mcp__") else what
    return body.name.removeprefix("mcp__") if body.name.startswith("mcp__") else ""


def _found(items: Iterable[tuple[int, str]]) -> tuple[Found, ...]:
    first = {text: seq for seq, text in reversed(list(items)) if text}
    return tuple(sorted((Found(text, seq) for text, seq in first.items()), key=lambda found: found.seq))


def unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in items if item))


def error_line(output: str) -> str:
    """The line that says what went wrong: a named exception, else a place in a file, else what sounds like an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _NOISE.match(line.strip())]
    for fits in (_NAMED_ERROR.match, _AT_LINE.search, _ERROR.search):
        if telling := [line for line in lines if fits(line)]:
            return shorten(telling[-1] if fits is _NAMED_ERROR.match else telling[0], 160)
    return shorten((lines or [""])[-1], 160)


def is_specific(error: str) -> bool:
    """Does the line name something that could be met again?"""
    return bool(_NAMED_ERROR.match(error) or _AT_LINE.search(error))


def count(command: Command) -> str:
    """`4 passed`, if the output says so."""
    match = _COUNTED.search(command.output)
    return shorten(match[0], 60) if match else ""
