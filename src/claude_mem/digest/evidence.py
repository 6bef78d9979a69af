"""The observable facts of a turn, independent of what anyone says about it: files, commands, commits, tests, lookups.

Each piece of evidence names the events it comes from, so that every record can be traced back to events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from claude_mem.digest import symbols, user_rules
from claude_mem.digest.symbols import Change
from claude_mem.domain import patches
from claude_mem.domain.records import Body, Stopped, SubagentStopped, ToolUsed, Turn
from claude_mem.domain.text import shorten
from claude_mem.privacy import injection_rules, shell

EDIT_TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
READ_TOOLS = ("Read", "NotebookRead")
_SEARCHES = ("Grep", "Glob")
_LOOKUPS = ("WebSearch", "WebFetch")
_AGENTS = ("Task", "Agent")
# An MCP tool that changes something is not a lookup.
_CHANGES = re.compile(
    r"(?:^|_)(create|update|add|post|send|save|delete|remove|close|merge|set|write|publish)(?:_|$)", re.I
)
_SCRATCH = (
    "/tmp/",  # noqa: S108 -- read in commands, never written to
    "/private/tmp/",
    "/var/folders/",
    "/private/var/folders/",
)

_COMMITTED = re.compile(r"^\[(?P<branch>\S+)(?: \(root-commit\))? (?P<id>[0-9a-f]{7,40})\] (?P<subject>.+)$", re.M)
# `git commit -q -m "…"` prints nothing, so the subject is taken from the command itself.
_QUIET_COMMIT = re.compile(
    r"git commit\b[^\n]{0,400}?(?:-\w*m|--message)[ =]?(?P<quote>[\"'])(?:\$\(cat <<[\"'\\]*EOF[\"']?\s*\n)?(?P<subject>[^\n\"']{3,200})"
)
_STAT = re.compile(r"^ ?(\d+ files? changed.*)$", re.M)
_ERROR = re.compile(r"error|exception|fatal|failed|failure|panic|not found|denied|refused|undefined|cannot|can't", re.I)
_NAMED_ERROR = re.compile(r"(?:E\s+)?(?:[A-Za-z_][\w.]*(?:Error|Exception)|panic|fatal|error(?:\[\w+\])?) ?: ?\S")
_AT_LINE = re.compile(r"(?<!\S)\S+\.\w{1,5}:\d+(?::\d+)?:? \S")
_NOISE = re.compile(
    r"^(?:.{0,200}\b(?:INFO|DEBUG|TRACE)\b|Exit code|\[[\w:.-]+\] (?:ERROR|\$)|make: \*\*\*|npm ERR!|error Command failed|FAIL\s|exit status)"
)

# Two commands are attempts at the same thing if they differ only in these parts.
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
_PASSING = re.compile(
    r"\b\d+ passed\b|^ok\s+\S|^PASS\b|^OK\b|\b0 (?:issues|errors|failures|failed|problems)\b|\bRan \d+ tests|test result: ok|"
    r"\bAll checks passed|^Success: |\bno issues found",
    re.M | re.I,
)
_PIPED = re.compile(r"(?<!\|)\|(?!\|)|\|\| *(?:true|echo|:)")
# How common test runners name a failed test.
_FAILED_TEST = re.compile(
    r"^[ \t]*+--- FAIL: (\S+)|^FAILED (\S+::\S+)|^[ \t]*+(?:●|✕|✗|×) (.{3,160})$|^test (\S+) \.\.\. FAILED|^not ok \d+ -? ?(.{3,160})$|"
    r"^(?:FAIL|ERROR): (\w+ \([\w.]+\))",
    re.M,
)
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
        """The command without its wrapping, so that a repeated attempt has the same key."""
        bare = " ".join(self.text.split())
        for wrapping in _WRAPPING:
            bare = wrapping.sub("", bare)
        return bare

    @property
    def passed(self) -> bool:
        """Return whether the command certainly succeeded. In a pipe the exit status is another program's, so the output
        decides."""
        if self.failed or _FAILING.search(self.output):
            return False
        return not _PIPED.search(self.text) or bool(_PASSING.search(self.output))

    @property
    def is_check(self) -> bool:
        """Whether the command runs tests, a build or a linter."""
        return bool(_CHECKS.search(self.key))

    @property
    def is_style(self) -> bool:
        """Whether the command only checks or changes formatting."""
        return bool(_STYLE.search(self.key))


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file by a tool call."""

    path: str
    change: Change
    seq: int
    created: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that a command reported."""

    id: str
    subject: str
    stat: str
    seq: int
    branch: str = ""
    body: str = ""  # of the commit message
    scratch: bool = False  # made in a repository in a temporary directory

    @property
    def lines(self) -> int:
        """Number of changed lines, as far as git reported them."""
        return sum(int(number) for number in re.findall(r"(?<!\d)(\d{1,9}) (?:insertion|deletion)", self.stat))


@dataclass(frozen=True, slots=True)
class Move:
    """A file that was moved or, if `new` is empty, deleted."""

    old: str
    new: str
    seq: int


@dataclass(frozen=True, slots=True)
class Task:
    """An entry of the agent's own task list."""

    subject: str
    is_done: bool


@dataclass(frozen=True, slots=True)
class Fix:
    """A command that failed, and later passed."""

    failed: Command
    passed: Command


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text that was looked up or reported, and the event it comes from."""

    text: str
    seq: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts of a turn, in the order in which they happened."""

    message: str  # the closing message
    message_seq: int
    reads: tuple[FoundText, ...]  # one entry per read of a file
    edits: tuple[Edit, ...]
    searches: tuple[FoundText, ...]
    lookups: tuple[FoundText, ...]
    reports: tuple[FoundText, ...]  # by subagents
    commands: tuple[Command, ...]
    commits: tuple[Commit, ...]
    fixes: tuple[Fix, ...]
    unsolved: tuple[Command, ...]
    moves: tuple[Move, ...] = ()
    creations: tuple[FoundText, ...] = ()  # issues, pull requests and documents that a tool created or changed
    tasks: tuple[Task, ...] = ()
    plan: str = ""  # the heading of the plan that was presented or written
    answers: tuple[FoundText, ...] = ()  # the user's answers to questions: "question: answer"
    rejections: tuple[FoundText, ...] = ()  # tool calls that the user rejected, with the user's words

    @property
    def first_reads(self) -> tuple[FoundText, ...]:
        """Each file that was read, at its first occurrence."""
        return _first_occurrences((item.seq, item.text) for item in self.reads)

    @property
    def edited_paths(self) -> tuple[str, ...]:
        """The files that were edited, each once."""
        return unique(edit.path for edit in self.edits)

    @property
    def files_read(self) -> tuple[str, ...]:
        """The files that were read, each once."""
        return unique(item.text for item in self.first_reads)

    @property
    def checks(self) -> tuple[Command, ...]:
        """The last run of each test, build or lint command."""
        return tuple({command.key: command for command in self.commands if command.is_check}.values())


def gather_evidence(turn: Turn, *, symbols: bool = True) -> Evidence:
    """Collect the evidence of a turn. `symbols=False` skips finding the definitions that edits touch, which takes half
    of the time."""
    events = list(zip(turn.seqs, turn.bodies, strict=True))
    tools = [(seq, body) for seq, body in events if isinstance(body, ToolUsed)]
    tools, rejections = _without_rejected(tools)
    successes = [(seq, body) for seq, body in tools if not body.failed]
    commands = tuple(gather_commands(tools))
    fixes = tuple(_fixes(commands))
    message = closing_message(turn.bodies)
    message_seq = next(
        (seq for seq, body in reversed(events) if isinstance(body, Stopped) and body.message.strip() == message), 0
    )
    return Evidence(
        message=message,
        message_seq=message_seq if message else 0,
        reads=tuple(
            FoundText(path, seq)
            for seq, body in successes
            if body.name in READ_TOOLS and (path := path_in_project(body, turn))
        ),
        edits=tuple(
            sorted(
                [
                    *(edit for seq, body in successes for edit in _edits(seq, body, turn, symbols)),
                    *(edit for command in commands if not command.failed for edit in _shell_edits(command, turn)),
                ],
                key=lambda edit: edit.seq,
            )
        ),
        searches=_first_occurrences((seq, _query_text(body)) for seq, body in successes if body.name in _SEARCHES),
        lookups=_first_occurrences(
            (seq, _query_text(body))
            for seq, body in successes
            if body.name in _LOOKUPS or (body.name.startswith("mcp__") and not _CHANGES.search(_tool(body)))
        ),
        reports=tuple(_reports(events)),
        commands=commands,
        commits=tuple(commit for command in commands if not command.failed for commit in _commits(command)),
        fixes=fixes,
        unsolved=_unsolved(commands, fixes),
        moves=tuple(_moves(successes, commands, turn)),
        creations=tuple(_created_things(successes)),
        tasks=tuple(_tasks(successes)),
        plan=next((plan for _, body in reversed(successes) if (plan := _plan(body))), ""),
        answers=tuple(_answers(successes)),
        rejections=rejections,
    )


def closing_message(bodies: Sequence[Body]) -> str:
    """Return the agent's last message in a turn."""
    messages = (body.message.strip() for body in reversed(bodies) if isinstance(body, Stopped))
    return next((message for message in messages if message), "")


def _without_rejected(tools: list[tuple[int, ToolUsed]]) -> tuple[list[tuple[int, ToolUsed]], tuple[FoundText, ...]]:
    """Split off the calls that the user rejected: they did not run, so they neither did anything nor failed."""
    rejections = {seq: user_rules.rejection(body) for seq, body in tools}
    ran = [(seq, body) for seq, body in tools if rejections[seq] is None]
    return ran, tuple(FoundText(words, seq) for seq, words in rejections.items() if words is not None)


def _moves(successes: list[tuple[int, ToolUsed]], commands: Iterable[Command], turn: Turn) -> Iterator[Move]:
    """Yield the project's files that were deleted or moved, by patches or by `rm` and `mv`."""
    for seq, body in successes:
        if body.name == patches.PATCH_TOOL:
            for patch in patches.stored_patches(body.input):
                if patch.kind == "delete":
                    yield Move(_inside(patch.paths[0], turn), "", seq)
    for command in commands:
        if not command.failed and re.search(r"\b(?:rm|mv)\b", command.text):
            yield from _shell_moves(command, turn)


def _shell_moves(command: Command, turn: Turn) -> Iterator[Move]:
    for call in shell.parse_calls(command.text[:4_000]):
        words = [word for word in call.words if not word.startswith("-")]
        program = f"{call.program} {words.pop(0)}" if call.program == "git" and words else call.program
        paths = [_inside(word, turn) for word in words]
        if not all(_is_project_path(path) for path in paths) or any(_in_scratch(word) for word in call.before):
            continue
        if program in ("rm", "git rm"):
            yield from (Move(path, "", command.seq) for path in paths[:10])
        elif program in ("mv", "git mv") and len(paths) == 2:
            yield Move(paths[0], paths[1], command.seq)


_PASSING_PATH = re.compile(r"^(?:/|~|\$|\.\.|\.git(?:/|$)|tmp/|build/|dist/|node_modules/)|[*?$`{}\s]")


def _is_project_path(path: str) -> bool:
    """Return whether a path is a file that people keep: inside the project, with an extension, not a lock file or build
    product."""
    return bool(path) and not _PASSING_PATH.search(path) and ("/" in path or "." in path[1:])


def _in_scratch(text: str) -> bool:
    return any(folder in text for folder in _SCRATCH)


def _tool(body: ToolUsed) -> str:
    """Return the tool's own name, without the name of its server."""
    return body.name.rpartition("__")[2]


def _created_things(successes: list[tuple[int, ToolUsed]]) -> Iterator[FoundText]:
    for seq, body in successes:
        if body.name.startswith("mcp__") and (match := _CHANGES.search(_tool(body))):
            title = next((str(body.input[name]) for name in ("title", "name", "subject") if body.input.get(name)), "")
            yield FoundText(_line_about(match[1].lower(), _tool(body), title), seq)
        command = body.input.get("command") if body.name == "Bash" else None
        if isinstance(command, str) and re.search(r"\bgh (?:pr|issue|release) create\b", command):
            title_match = re.search(r"--title[ =](?P<quote>[\"'])(?P<title>.{3,200}?)(?P=quote)", command)
            kind = "pull request" if "gh pr" in command else "issue" if "gh issue" in command else "release"
            yield FoundText(f"Created {kind}: {title_match['title']}" if title_match else f"Created {kind}", seq)


def _line_about(verb: str, tool: str, title: str) -> str:
    thing = _CHANGES.sub(" ", tool).replace("_", " ").replace("-", " ").strip()
    past = verb + ("d" if verb.endswith("e") else "ed")
    past = {"sended": "sent", "seted": "set", "writed": "wrote", "write": "wrote", "posted": "posted"}.get(past, past)
    return f"{past.capitalize()} {thing}{f': {shorten(title, 120)}' if title else ''}".strip()


def _tasks(successes: list[tuple[int, ToolUsed]]) -> Iterator[Task]:
    """Yield the agent's task list as the turn left it, from whichever tool maintains it."""
    todos: list[Any] = []
    done_before: set[str] | None = None  # finished in an earlier turn: the list is carried over
    tasks: dict[str, Task] = {}
    for _, body in successes:
        if body.name == "TodoWrite" and isinstance(body.input.get("todos"), list):
            todos = body.input["todos"]
            if done_before is None:
                done_before = set(_finished(_todos_before(body)))
        elif body.name == "TaskCreate" and isinstance(subject := body.input.get("subject"), str):
            created = body.output.get("task") if isinstance(body.output, dict) else None
            number = str(created.get("id")) if isinstance(created, dict) else str(len(tasks) + 1)
            tasks[number] = Task(subject, False)
        elif body.name == "TaskUpdate" and (number := str(body.input.get("taskId"))) in tasks:
            tasks[number] = Task(tasks[number].subject, body.input.get("status") in ("completed", "deleted"))
    for item in todos:
        if isinstance(item, dict) and isinstance(subject := item.get("content"), str):
            is_done = item.get("status") == "completed"
            if not (is_done and subject in (done_before or ())):
                yield Task(subject, is_done)
    yield from tasks.values()


def _todos_before(body: ToolUsed) -> list[object]:
    """Return the task list as it was before a call, as far as the tool reports it."""
    before = body.output.get("oldTodos") if isinstance(body.output, dict) else None
    return before if isinstance(before, list) else []


def _finished(todos: Iterable[Any]) -> Iterator[str]:
    for item in todos:
        if isinstance(item, dict) and item.get("status") == "completed" and isinstance(item.get("content"), str):
            yield item["content"]


def _plan(body: ToolUsed) -> str:
    text = body.input.get("plan") if body.name == "ExitPlanMode" else None
    if body.name == "Write" and re.search(r"plan[^/]*\.md$", str(body.input.get("file_path", "")), re.I):
        text = body.input.get("content")
    return plan_heading(text) if isinstance(text, str) else ""


def plan_heading(text: str) -> str:
    """Return the subject of a plan: its first heading without the word "plan"."""
    match = re.search(r"^#{1,3} +(?P<heading>\S.{3,200})$", text, re.M)
    if not match:
        return ""
    bare = re.sub(
        r"(?i)\A(?:(?:implementation|design|refactor(?:ing)?) )?plan\b[^:–—-]{0,30}[:–—-] {0,3}| {0,2}[-–—:]? {0,2}\b(?:implementation )?plan\Z",
        "",
        match["heading"].strip(),
    )
    return (
        ""
        if re.fullmatch(r"(?i)\W*(?:implementation plan|plan|summary|context|overview|goal|problem)\W*", bare or "plan")
        else bare
    )


def _answers(successes: list[tuple[int, ToolUsed]]) -> Iterator[FoundText]:
    for seq, body in successes:
        if body.name != "AskUserQuestion" or not isinstance(body.output, dict):
            continue
        answers = body.output.get("answers")
        for question, answer in answers.items() if isinstance(answers, dict) else ():
            if isinstance(answer, str) and answer.strip():
                yield FoundText(f"{shorten(str(question), 160)} {shorten(answer, 160)}", seq)


def gather_commands(tools: Iterable[tuple[int, ToolUsed]]) -> Iterator[Command]:
    """Yield the shell commands among tool calls."""
    for seq, body in tools:
        text = body.input.get("command")
        if body.name == "Bash" and isinstance(text, str):
            command = Command(text, output_text(body.output), body.failed, seq)
            # `pytest | tail` exits with 0 even if pytest fails, so the output decides.
            yield Command(
                text,
                command.output,
                command.failed or (command.is_check and bool(_FAILING.search(command.output))),
                seq,
            )


def output_text(output: Any) -> str:
    """Return the text that a tool printed, whatever shape the agent reports it in."""
    if isinstance(output, dict):
        parts = [output[name] for name in ("stdout", "stderr", "content", "result") if output.get(name)]
        return "\n".join(item if isinstance(item, str) else output_text(item) for item in parts)
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return str(output or "")


def _commits(command: Command) -> Iterator[Commit]:
    if "commit" not in command.text:
        return
    matches = list(_COMMITTED.finditer(command.output))
    scratch = _in_scratch(command.text) or bool(re.search(r"mktemp|TMPDIR", command.text))
    for match in matches:
        stat = _STAT.search(command.output, match.end())
        subject = match["subject"].strip()
        body = _commit_body(command.text, subject)
        lines = stat[1] if stat else ""
        yield Commit(match["id"], subject, lines, command.seq, match["branch"], body, scratch)
    if not matches and (quiet := _QUIET_COMMIT.search(command.text)):
        subject = quiet["subject"].strip()
        yield Commit("", subject, "", command.seq, "", _commit_body(command.text, subject), scratch)


def _commit_body(command: str, subject: str) -> str:
    """Return the paragraphs below the subject of the commit message in a command, without trailers."""
    _, separator, rest = command.partition(subject)
    if not separator:
        return ""
    text = re.split(r"^EOF\b|\"\s*$|\n\)\"", rest, maxsplit=1, flags=re.M)[0]
    lines = [line for line in text.splitlines() if not re.match(r"[A-Z][\w-]+-[Bb]y: |🤖|Generated with", line.strip())]
    return "\n".join(lines).strip()[:2_000]


def _fixes(commands: tuple[Command, ...]) -> Iterator[Fix]:
    failed: dict[str, Command] = {}
    for command in commands:
        if command.failed:
            failed.setdefault(command.key, command)
        elif command.key in failed:
            yield Fix(failed.pop(command.key), command)


def _unsolved(commands: tuple[Command, ...], fixes: tuple[Fix, ...]) -> tuple[Command, ...]:
    """Return the last failure of each command that failed and was not seen to pass afterwards."""
    passed = {command.key: command.seq for command in commands if not command.failed}
    last = {command.key: command for command in commands if command.failed}
    solved = {fix.failed.key for fix in fixes}
    return tuple(command for key, command in last.items() if passed.get(key, -1) < command.seq and key not in solved)


def _reports(events: list[tuple[int, Any]]) -> Iterator[FoundText]:
    for seq, body in events:
        if isinstance(body, SubagentStopped) and body.message.strip():
            yield FoundText(body.message.strip(), seq)
        elif (
            isinstance(body, ToolUsed)
            and body.name in _AGENTS
            and not body.failed
            and (text := output_text(body.output).strip())
        ):
            yield FoundText(text, seq)


def _edits(seq: int, body: ToolUsed, turn: Turn, with_symbols: bool) -> Iterator[Edit]:
    """Yield one edit per file. A file that was moved appears under both names."""
    if body.name == patches.PATCH_TOOL:
        for patch in patches.stored_patches(body.input):
            where, *before = patch.paths
            change = symbols.change_of_lines(patch.lines) if with_symbols else Change()
            yield Edit(_inside(where, turn), change, seq, created=patch.kind == "add")
            yield from (Edit(_inside(path, turn), Change(), seq) for path in before)
    elif body.name in EDIT_TOOLS and (path := path_in_project(body, turn)):
        created = isinstance(body.output, dict) and body.output.get("type") == "create"
        yield Edit(path, symbols.change_of_call(body) if with_symbols else Change(), seq, created)


_SHELL_EDIT = re.compile(r"\bsed\b[^\n|;&]{0,40}\s-[a-zA-Z]{0,3}i|\bcat\b[^\n|;&]{0,200}<<|\btee\b")
_ELSEWHERE = re.compile(r"\bcd\s+(?P<path>[/~$]\S*)")


def _shell_edits(command: Command, turn: Turn) -> Iterator[Edit]:
    """Yield the project's files that `sed -i` changed or that a here-document was written to."""
    if not _SHELL_EDIT.search(command.text[:4_000]) or _in_scratch(command.text):
        return
    bases = tuple(base for base in (turn.root, turn.cwd) if base)
    if any(not match["path"].startswith(bases) for match in _ELSEWHERE.finditer(command.text[:4_000])):
        return
    for call in shell.parse_calls(command.text[:20_000]):
        paths: tuple[str, ...] = ()
        if call.program in ("sed", "gsed") and any(
            re.match(r"-[a-zA-Z]{0,3}i|--in-place", word) for word in call.words
        ):
            paths = tuple(word for word in call.words[1:] if not word.startswith("-") and "." in word)
        elif call.program in ("cat", "tee") and call.text:
            paths = (*call.writes, *(word for word in call.words if call.program == "tee" and not word.startswith("-")))
        for path in dict.fromkeys(_inside(path, turn) for path in paths[:10]):
            if _is_project_path(path) and re.fullmatch(r"[\w./@+-]{1,200}", path):
                lines = [f"+{line}" for line in call.text.splitlines()]
                yield Edit(path, symbols.change_of_lines(lines) if lines else Change(), command.seq)


def path_in_project(body: ToolUsed, turn: Turn) -> str:
    """Return the file that a tool call names, relative to the project; "" if it names none."""
    path = body.input.get("file_path") or body.input.get("notebook_path")
    return _inside(path, turn) if isinstance(path, str) else ""


def _inside(path: str, turn: Turn) -> str:
    """Return a path relative to the project."""
    bases = [base.rstrip("/") + "/" for base in (turn.root, turn.cwd) if base]
    return injection_rules.neutralize_path(next((path[len(base) :] for base in bases if path.startswith(base)), path))


def _query_text(body: ToolUsed) -> str:
    for name in ("pattern", "query", "url", "prompt", "question", "q"):
        if isinstance(value := body.input.get(name), str) and value.strip():
            query = shorten(value, 80)
            return f"{body.name.removeprefix('mcp__')}: {query}" if body.name.startswith("mcp__") else query
    return body.name.removeprefix("mcp__") if body.name.startswith("mcp__") else ""


def _first_occurrences(items: Iterable[tuple[int, str]]) -> tuple[FoundText, ...]:
    first = {text: seq for seq, text in reversed(list(items)) if text}
    return tuple(sorted((FoundText(text, seq) for text, seq in first.items()), key=lambda item: item.seq))


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items in order, without empty ones and duplicates."""
    return tuple(dict.fromkeys(item for item in items if item))


def error_line(output: str) -> str:
    """Return the line that says what went wrong: a named exception, else the failed test, else a position in a file,
    else a line that resembles an error. Log lines are ignored."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _NOISE.match(line.strip())]
    if exceptions := [line for line in lines if _NAMED_ERROR.match(line)]:
        return shorten(exceptions[-1], 160)
    if test := _FAILED_TEST.search(output):
        return shorten(next(name for name in test.groups() if name), 160)
    for search in (_AT_LINE.search, _ERROR.search):
        if candidates := [line for line in lines if search(line)]:
            return shorten(candidates[0], 160)
    return shorten((lines or [""])[-1], 160)


def is_specific(error: str) -> bool:
    """Return whether an error line names something that could occur again."""
    return bool(_NAMED_ERROR.match(error) or _AT_LINE.search(error))


def passed_count(command: Command) -> str:
    """Return the number of passed tests as the output states it: `4 passed`."""
    match = _COUNTED.search(command.output)
    return shorten(match[0], 60) if match else ""
