"""Builds the request for a turn. Its size is bounded, each event appears at most once, and omissions are stated.

The texts are in `data/prompts/` and in the mode. The system prompt depends on settings only, so that the provider can
cache it; the turn is placed between two fence lines, as data.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

from claude_mem.digest.evidence import gather_evidence, output_text
from claude_mem.digest.models.base import Request
from claude_mem.digest.modes import Mode
from claude_mem.digest.prose import fit_title
from claude_mem.digest.titles import is_presentable
from claude_mem.domain import patches
from claude_mem.domain.records import Stopped, SubagentStopped, ToolUsed, Turn
from claude_mem.domain.text import clip, estimate_tokens_high, make_storable, shorten, strip_invisible
from claude_mem.privacy import injection_rules

PROMPTS = Path(__file__).parents[1] / "data" / "prompts"
VERBOSITY = {
    "minimal": "Keep only what would be missed: at most one observation, two facts, one sentence of narrative.",
    "normal": "Usually one observation, rarely more than two; a short narrative; two to six facts that could not be guessed.",
    "verbose": "Every result worth finding again: up to six observations with full facts and narrative.",
}
STRICT = "\nYour last answer could not be parsed. Begin with `<observation>`, `<summary>` or `<skip_summary`. XML only."
MAX_KNOWN_TITLES = 30
MIN_REQUEST_TOKENS = 4_000  # with fewer, the instructions leave no room for a turn
MIN_ENTRY_CHARS = 60  # characters: a shorter entry carries no information
BYTES_PER_TOKEN = 3  # as in `estimate_tokens_high`
SUCCESS_OUTPUT_BYTES = 1_500  # of the output of a test, build or commit that passed: more adds nothing
KNOWN_CHARS = 120
BRIEF_BYTES = 400  # of the output of a successful tool call, when there is not room for everything
ARROW = "\n→ "
ARROW_BYTES = len(ARROW.encode())
SHORT_PROMPT = 80  # characters: a shorter prompt rarely states its subject
TERSE_PROMPT = 20  # if the previous prompt is this short, it is also only an answer
LONG_PROMPT = 400  # a longer prompt states its subject, even if it refers back

_EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit", patches.PATCH_TOOL)
_ROUTINE = re.compile(
    r"\b(?:tests?|pytest|jest|vitest|lint|fmt|format|typecheck|tsc|mypy|build|compile|install|commit|push|check)\b"
)
_TASKS = ("TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet")
MAX_TASKS = 20
# Input fields that say how a tool should work, not what it did.
_MINOR_FIELDS = frozenset(
    "replace_all offset limit output_mode timeout head_limit multiline run_in_background activeForm -A -B -C -n -i".split()  # noqa: SIM905
)
_POINTS_BACK = re.compile(
    r"\b(?:issue|option|point|item|step|number|finding|phase|suggestion|question|choice)s?\s*#?\d"
    r"|\b(?:the|your|that|this) (?:first|second|third|last|latter|former|above|other|plan|proposal|suggestion|approach|idea|list)\b"
    r"|\b(?:as|like|what) you (?:said|suggested|proposed|listed)\b|\b(?:all of (?:them|it)|both of (?:them|those)|those|these|the rest)\b"
    r"|^(?:yes|no|ok(?:ay)?|sure|go (?:on|ahead)|continue|proceed|do (?:it|that|so)|same|instead|also|then|again)\b",
    re.I,
)
# Input fields that say what a tool did, in display order.
_MAIN_FIELDS = (
    "command",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
    "content",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The settings that determine a request."""

    mode: Mode
    verbosity: str = "normal"
    language: str = ""
    request_tokens: int = 8_000

    @property
    def reply_tokens(self) -> int:
        """A quarter of the cap, which covers the request and its answer together."""
        return self.request_tokens // 4


def build_request(
    turn: Turn,
    options: RequestOptions,
    *,
    project: str,
    known_titles: Sequence[str],
    strict: bool = False,
    fence: str = "",
) -> Request:
    """Build the request for a turn. `strict` adds a reminder of the format after an answer that could not be parsed."""
    fence = fence or secrets.token_hex(8)
    system = _system(options)
    room = (options.request_tokens - options.reply_tokens - estimate_tokens_high(system)) * BYTES_PER_TOKEN
    return Request(
        system=system,
        prompt=_prompt(turn, project, known_titles, fence=fence, room=room, strict=strict),
        fence=fence,
        max_tokens=options.reply_tokens,
    )


def max_total_tokens(request: Request) -> int:
    """Return the maximum number of tokens of the request and its answer."""
    return estimate_tokens_high(request.system) + estimate_tokens_high(request.prompt) + request.max_tokens


def _system(options: RequestOptions) -> str:
    mode = options.mode
    return _template("system").substitute(
        **mode.texts,
        verbosity=VERBOSITY[options.verbosity],
        language=options.language or "English",
        types=", ".join(mode.types),
        concepts=", ".join(mode.concepts),
        type_lines="\n".join(f"- {name}: {kind.means}" for name, kind in mode.types.items()),
        concept_lines="\n".join(f"- {name}: {means}" for name, means in mode.concepts.items()),
    )


def _template(name: str) -> Template:
    return Template((PROMPTS / f"{name}.md").read_text("utf-8"))


# --- the turn --------------------------------------------------------------------------------------------------------


def _prompt(turn: Turn, project: str, known_titles: Sequence[str], *, fence: str, room: int, strict: bool) -> str:
    """Fill the template. Each part gets what it needs up to its share of `room`; the events get the rest."""
    before = fit_bytes(_safe(_before(turn), fence), room // 8)
    user_prompt = fit_bytes(_safe(turn.prompt, fence), room // 6)
    closing = fit_bytes(_safe(_closing(turn), fence), room // 4)
    titles = _safe(_known_list(known_titles, room // 8), fence)
    frame = _template("turn")
    fixed = {
        "project": _project_name(project, fence), "number": turn.number, "known": titles, "fence": fence,
        "before": f"[the turn before]\n{before}\n\n" if before else "",
        "prompt": user_prompt, "closing": closing or "(nothing)", "strict": STRICT if strict else "",
    }  # fmt: skip
    events_room = room - _bytes(frame.substitute(**fixed, events=""))
    entries = [
        replace(entry, text=_safe(entry.text, fence), answer=_safe(entry.answer, fence)) for entry in _entries(turn)
    ]
    return frame.substitute(**fixed, events="\n".join(condense_entries(entries, events_room)) or "(no tools were used)")


def _safe(text: str, fence: str) -> str:
    """Remove the fence and invisible characters, so that the text cannot close its own fence."""
    return strip_invisible(make_storable(text)).replace(fence, "").strip()


def _project_name(project: str, fence: str) -> str:
    """Return the project's name, or a neutral one if it reads like an instruction: folder names and repository files
    are not under the user's control."""
    return "this project" if injection_rules.injection_rule(project) else shorten(_safe(project, fence), 80)


def _known_list(titles: Sequence[str], room: int) -> str:
    """Return the titles already remembered, one per line, newest first, as many as fit."""
    lines: dict[str, None] = {}
    for title in titles:
        line = fit_title(" ".join(strip_invisible(title).split()), KNOWN_CHARS)
        if not is_presentable(line) or line in lines:
            continue
        room -= _bytes(line) + 3
        if room < 0 or len(lines) == MAX_KNOWN_TITLES:
            break
        lines[line] = None
    return "\n".join(f"- {line}" for line in lines) or "(nothing yet)"


def points_back(prompt: str, *, short: int = SHORT_PROMPT) -> bool:
    """Return whether a prompt cannot be understood without the turn before it: "yes", "1", "fix issue 2"."""
    prompt = " ".join(prompt.split())
    return len(prompt) <= short or (len(prompt) <= LONG_PROMPT and bool(_POINTS_BACK.search(prompt)))


def _before(turn: Turn) -> str:
    """Return the turn that the prompt answers and, if that one also points back, the one before it."""
    count = int(points_back(turn.prompt))
    if count and turn.previous and points_back(turn.previous[-1].prompt, short=TERSE_PROMPT):
        count = 2  # "yes" after "1"
    earlier_turns = turn.previous[-count:] if count else ()
    return "\n".join(
        f"user: {earlier.prompt}\nagent, at the end: {earlier.closing or '(nothing)'}" for earlier in earlier_turns
    )


def _closing(turn: Turn) -> str:
    return next((body.message for body in reversed(turn.bodies) if isinstance(body, Stopped) and body.message), "")


@dataclass(frozen=True, slots=True)
class EventEntry:
    """One event as the model sees it.

    An entry with more weight gets more room when room is scarce. `answer` is the tool's output where it is shortened
    before `text`: the tool only read something, or it succeeded.
    """

    text: str
    weight: int
    answer: str = ""

    @property
    def byte_size(self) -> int:
        return _bytes(self.text) + 1 + (_bytes(self.answer) + ARROW_BYTES if self.answer else 0)

    @property
    def min_size(self) -> int:
        """The bytes it gets before any entry gets more."""
        return min(self.byte_size, _bytes(self.text) + 1 + BRIEF_BYTES)

    def text_within(self, room: int) -> str:
        answer = fit_bytes(self.answer, room - _bytes(self.text) - ARROW_BYTES)
        return f"{self.text}{ARROW}{answer}" if answer else fit_bytes(self.text, room)


def _entries(turn: Turn) -> Iterator[EventEntry]:
    number = 0
    for body in turn.bodies:
        if isinstance(body, ToolUsed) and body.name in _TASKS and not body.failed:
            continue  # the task list is shown once, at the end
        if isinstance(body, ToolUsed) and (body.input or body.output or body.failed):
            number += 1
            yield _entry(number, body, turn.root)
        elif isinstance(body, SubagentStopped) and body.message:
            number += 1
            yield EventEntry(f"{number}. a subagent reported: {body.message}", 2)
    if tasks := gather_evidence(turn).tasks:
        lines = (f"- {'done' if task.is_done else 'open'}: {shorten(task.subject, 160)}" for task in tasks[:MAX_TASKS])
        yield EventEntry("\n".join(("the agent's task list, as the turn left it:", *lines)), 4)


def _weight(body: ToolUsed) -> int:
    if body.failed or body.name in _EDITS:
        return 4
    return 2 if body.name in ("Bash", "Task", "Agent", "WebFetch", "WebSearch") else 1


def _entry(number: int, body: ToolUsed, root: str) -> EventEntry:
    input_text = " ".join(_input_parts(body.input, root))
    answer = output_text(body.output).strip()
    head = f"{number}. {body.name}{' (failed)' if body.failed else ''}: {input_text}"
    if body.name in _EDITS and not body.failed:
        answer = ""  # it repeats the file content that is in the input
    if body.name == "Bash" and not body.failed and _ROUTINE.search(input_text):
        answer = fit_bytes(answer, SUCCESS_OUTPUT_BYTES)
    if body.failed and answer:
        head, answer = f"{head}{ARROW}{answer}", ""
    return EventEntry(head, _weight(body), answer)


def _input_parts(tool_input: dict[str, Any], root: str) -> Iterator[str]:
    """Yield the tool's input as plain text, never as JSON inside JSON."""
    for name in _MAIN_FIELDS:
        if isinstance(value := tool_input.get(name), str) and value.strip():
            yield value.removeprefix(root.rstrip("/") + "/") if root else value
    edits = tool_input.get("edits")
    for edit in edits if isinstance(edits, list) else (tool_input,):
        if isinstance(edit, dict) and isinstance(new := edit.get("new_string"), str):
            yield "\n" + _diff(str(edit.get("old_string") or ""), new)
    for patch in patches.stored_patches(tool_input) if "changes" in tool_input else ():
        path = " → ".join(reversed(patch.paths))
        yield "\n".join((f"\n{patch.kind} {path}", *patch.lines))
    for name, value in tool_input.items():
        if (
            name not in (*_MAIN_FIELDS, "edits", "old_string", "new_string", *_MINOR_FIELDS)
            and isinstance(value, str | int)
            and value != ""
        ):
            yield f"{name}={value}"


def _diff(old: str, new: str) -> str:
    """Return the removed and added lines. Compares sets, because an edit may have thousands of lines."""
    removed, added = old.splitlines(), new.splitlines()
    before, after = set(removed), set(added)
    removed_lines = [f"- {line}" for line in removed if line not in after]
    return "\n".join([*removed_lines, *(f"+ {line}" for line in added if line not in before)])


# --- fitting into the limit ------------------------------------------------------------------------------------------


def condense_entries(entries: Sequence[EventEntry], room: int) -> list[str]:
    """Return the texts of all entries within `room` bytes.

    Short entries are complete, long ones have head and tail. If there are too many, the lightest ones in the middle are
    replaced by their count. Output of reads and of successful commands gets what edits and failures leave over.
    """
    numbered_entries = _select(entries, room)
    gaps = _gaps([index for index, _ in numbered_entries], len(entries))
    selected = [entry for _, entry in numbered_entries]
    room -= sum(_bytes(gap) + 1 for gap in gaps)
    rooms = _allocate([(entry.min_size, entry.weight) for entry in selected], room)
    extra_rooms = _allocate([(entry.byte_size - entry.min_size, entry.weight) for entry in selected], room - sum(rooms))
    texts = [entry.text_within(sum(own) - 1) for entry, *own in zip(selected, rooms, extra_rooms, strict=True)]
    return [line for pair in zip(gaps, [*texts, ""], strict=True) for line in pair if line]


def _select(entries: Sequence[EventEntry], room: int) -> list[tuple[int, EventEntry]]:
    """Select as many entries as can have a few words each: the heaviest, and among equals those near the ends."""
    most = max(room // (2 * MIN_ENTRY_CHARS), 0)
    middle = len(entries) / 2
    best = sorted(enumerate(entries), key=lambda item: (-item[1].weight, -abs(item[0] - middle)))[:most]
    return sorted(best, key=lambda item: item[0])


def _gaps(indexes: Sequence[int], count: int) -> list[str]:
    """Return the marker for the entries omitted before each index and after the last; "" if there are none."""
    edges = [-1, *indexes, count]
    missing = [after - before - 1 for before, after in pairwise(edges)]
    return [f"… {number} events left out …" if number else "" for number in missing]


def _allocate(sizes: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Divide `room` by size and weight; entries that need less than their share leave the rest to the others."""
    waiting = sorted(sizes, key=lambda item: item[0] / item[1])
    weights, share = sum(weight for _, weight in waiting), float("inf")
    for need, weight in waiting:
        if need / weight > room / weights:
            share = max(room / weights, 0)
            break
        room -= need
        weights -= weight
    return [int(min(need, share * weight)) for need, weight in sizes]


def fit_bytes(text: str, room: int) -> str:
    """Shorten to at most `room` bytes: head and tail with a marked gap, or "" if even the marker does not fit."""
    if _bytes(text) <= room:
        return text
    if room < 45:
        return ""
    limit = (room - 40) * len(text) // max(_bytes(text), 1)
    clipped = clip(text, limit)
    while _bytes(clipped) > room and limit > 8:  # multi-byte characters may be concentrated at the ends
        limit = limit * 3 // 4
        clipped = clip(text, limit)
    return clipped if _bytes(clipped) <= room else ""


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
