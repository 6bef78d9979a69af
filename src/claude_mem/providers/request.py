"""Turn → the one request that is sent for it: bounded, every event shown once, what is left out said so.

The words are in `data/prompts/` and in the mode. The system part depends on settings only, so that a provider's cache
holds it; the turn stands between two fence lines, as data.
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

from claude_mem import patches, suspicion
from claude_mem.modes import Mode
from claude_mem.providers.base import Request
from claude_mem.providers.evidence import gather, output_text
from claude_mem.providers.prose import fit as cut_line
from claude_mem.records import Stopped, SubagentStopped, ToolUsed, Turn
from claude_mem.text import clip, plain, shorten, storable, tokens_at_most
from claude_mem.titles import is_presentable

PROMPTS = Path(__file__).parents[1] / "data" / "prompts"
VERBOSITY = {
    "minimal": "Keep only what would be missed: at most one observation, two facts, one sentence of narrative.",
    "normal": "Usually one observation, rarely more than two; a short narrative; two to six facts that could not be guessed.",
    "verbose": "Every result worth finding again: up to six observations with full facts and narrative.",
}
STRICT = "\nYour last answer could not be read. Begin with `<observation>`, `<summary>` or `<skip_summary`. XML only."
MOST_KNOWN = 30
LEAST_TOKENS = 4_000  # in less, the instructions leave no room for a turn
LEAST_ENTRY = 60  # characters: less says nothing about an event
BYTES_PER_TOKEN = 3  # as in `tokens_at_most`
PASSED_BYTES = 1_500  # of what a test, a build or a commit printed that passed: the rest says so again
KNOWN_CHARS = 120
BRIEF_BYTES = 400  # of what a tool answered, if nothing went wrong and there is not room for everything
ARROW = "\n→ "
ARROW_BYTES = len(ARROW.encode())
SHORT_PROMPT = 80  # characters: what is shorter rarely says by itself what it is about
TERSE_PROMPT = 20  # of the turn before: then it is no more than an answer, too
LONG_PROMPT = 400  # what is longer says it, even if it points back somewhere

_EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit", patches.TOOL)
_ROUTINE = re.compile(
    r"\b(?:tests?|pytest|jest|vitest|lint|fmt|format|typecheck|tsc|mypy|build|compile|install|commit|push|check)\b"
)
_TASKS = ("TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet")
MOST_TASKS = 20
# How a tool was to go about it, not what it did.
_MANNER = frozenset(
    "replace_all offset limit output_mode timeout head_limit multiline run_in_background activeForm -A -B -C -n -i".split()  # noqa: SIM905
)
_POINTS_BACK = re.compile(
    r"\b(?:issue|option|point|item|step|number|finding|phase|suggestion|question|choice)s?\s*#?\d"
    r"|\b(?:the|your|that|this) (?:first|second|third|last|latter|former|above|other|plan|proposal|suggestion|approach|idea|list)\b"
    r"|\b(?:as|like|what) you (?:said|suggested|proposed|listed)\b|\b(?:all of (?:them|it)|both of (?:them|those)|those|these|the rest)\b"
    r"|^(?:yes|no|ok(?:ay)?|sure|go (?:on|ahead)|continue|proceed|do (?:it|that|so)|same|instead|also|then|again)\b",
    re.I,
)
# Which input fields of a tool tell what it did, in the order they are shown.
_TELLING = (
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
class Wanted:
    """How a request is to be made, as far as settings decide it."""

    mode: Mode
    verbosity: str = "normal"
    language: str = ""
    request_tokens: int = 8_000

    @property
    def reply_tokens(self) -> int:
        """A quarter for the answer; the request and its answer together stay under the cap."""
        return self.request_tokens // 4


def build(
    turn: Turn, wanted: Wanted, *, project: str, known: Sequence[str], strict: bool = False, fence: str = ""
) -> Request:
    fence = fence or secrets.token_hex(8)
    system = _system(wanted)
    room = (wanted.request_tokens - wanted.reply_tokens - tokens_at_most(system)) * BYTES_PER_TOKEN
    return Request(
        system=system,
        prompt=_prompt(turn, project, known, fence=fence, room=room, strict=strict),
        fence=fence,
        max_tokens=wanted.reply_tokens,
    )


def size(request: Request) -> int:
    """What the request may cost at most, its answer included."""
    return tokens_at_most(request.system) + tokens_at_most(request.prompt) + request.max_tokens


def _system(wanted: Wanted) -> str:
    mode = wanted.mode
    return _template("system").substitute(
        **mode.texts,
        verbosity=VERBOSITY[wanted.verbosity],
        language=wanted.language or "English",
        types=", ".join(mode.types),
        concepts=", ".join(mode.concepts),
        type_lines="\n".join(f"- {name}: {kind.means}" for name, kind in mode.types.items()),
        concept_lines="\n".join(f"- {name}: {means}" for name, means in mode.concepts.items()),
    )


def _template(name: str) -> Template:
    return Template((PROMPTS / f"{name}.md").read_text("utf-8"))


# --- the turn --------------------------------------------------------------------------------------------------------


def _prompt(turn: Turn, project: str, known: Sequence[str], *, fence: str, room: int, strict: bool) -> str:
    """The parts get what they need up to their share; the events get what is left."""
    before = fit(_safe(_before(turn), fence), room // 8)
    asked = fit(_safe(turn.prompt, fence), room // 6)
    said = fit(_safe(_closing(turn), fence), room // 4)
    titles = _safe(_known(known, room // 8), fence)
    frame = _template("turn")
    fixed = {
        "project": _named(project, fence), "number": turn.number, "known": titles, "fence": fence,
        "before": f"[the turn before]\n{before}\n\n" if before else "",
        "prompt": asked, "closing": said or "(nothing)", "strict": STRICT if strict else "",
    }  # fmt: skip
    left = room - _bytes(frame.substitute(**fixed, events=""))
    entries = [
        replace(entry, text=_safe(entry.text, fence), answer=_safe(entry.answer, fence)) for entry in _entries(turn)
    ]
    return frame.substitute(**fixed, events="\n".join(condense(entries, left)) or "(no tools were used)")


def _safe(text: str, fence: str) -> str:
    """The record can't end its own fence, and nothing in it is invisible."""
    return plain(storable(text)).replace(fence, "").strip()


def _named(project: str, fence: str) -> str:
    """Whoever may give names could say something by them: a folder's is anyone's, and so is a repository's own file."""
    return "this project" if suspicion.rule(project) else shorten(_safe(project, fence), 80)


def _known(titles: Sequence[str], room: int) -> str:
    """Return what is remembered already, one whole line each, the newest first; as many as there is room for."""
    shown: dict[str, None] = {}
    for title in titles:
        line = cut_line(" ".join(plain(title).split()), KNOWN_CHARS)
        if not is_presentable(line) or line in shown:
            continue
        room -= _bytes(line) + 3
        if room < 0 or len(shown) == MOST_KNOWN:
            break
        shown[line] = None
    return "\n".join(f"- {line}" for line in shown) or "(nothing yet)"


def points_back(prompt: str, *, short: int = SHORT_PROMPT) -> bool:
    """Return whether a prompt can't be understood without what was said before it: "yes", "1", "fix issue 2"."""
    prompt = " ".join(prompt.split())
    return len(prompt) <= short or (len(prompt) <= LONG_PROMPT and bool(_POINTS_BACK.search(prompt)))


def _before(turn: Turn) -> str:
    """Return the turn that the prompt answers; and if that one points back as well, the one before it."""
    count = int(points_back(turn.prompt))
    if count and turn.previous and points_back(turn.previous[-1].prompt, short=TERSE_PROMPT):
        count = 2  # "yes" after "1"
    chosen = turn.previous[-count:] if count else ()
    return "\n".join(f"user: {each.prompt}\nagent, at the end: {each.closing or '(nothing)'}" for each in chosen)


def _closing(turn: Turn) -> str:
    return next((body.message for body in reversed(turn.bodies) if isinstance(body, Stopped) and body.message), "")


@dataclass(frozen=True, slots=True)
class Entry:
    """One event as the model sees it. The heavier, the more room it gets when there is little. `answer` is what the tool
    answered, where that gives way first: it was read, or it passed."""

    text: str
    weight: int
    answer: str = ""

    @property
    def size(self) -> int:
        return _bytes(self.text) + 1 + (_bytes(self.answer) + ARROW_BYTES if self.answer else 0)

    @property
    def least(self) -> int:
        """What it needs before anything gives way to it."""
        return min(self.size, _bytes(self.text) + 1 + BRIEF_BYTES)

    def within(self, room: int) -> str:
        answer = fit(self.answer, room - _bytes(self.text) - ARROW_BYTES)
        return f"{self.text}{ARROW}{answer}" if answer else fit(self.text, room)


def _entries(turn: Turn) -> Iterator[Entry]:
    number = 0
    for body in turn.bodies:
        if isinstance(body, ToolUsed) and body.name in _TASKS and not body.failed:
            continue  # what became of them is told at the end
        if isinstance(body, ToolUsed) and (body.input or body.output or body.failed):
            number += 1
            yield _entry(number, body, turn.root)
        elif isinstance(body, SubagentStopped) and body.message:
            number += 1
            yield Entry(f"{number}. a subagent reported: {body.message}", 2)
    if tasks := gather(turn).tasks:
        lines = (f"- {'done' if task.done else 'open'}: {shorten(task.subject, 160)}" for task in tasks[:MOST_TASKS])
        yield Entry("\n".join(("the agent's task list, as the turn left it:", *lines)), 4)


def _weight(body: ToolUsed) -> int:
    if body.failed or body.name in _EDITS:
        return 4
    return 2 if body.name in ("Bash", "Task", "Agent", "WebFetch", "WebSearch") else 1


def _entry(number: int, body: ToolUsed, root: str) -> Entry:
    given = " ".join(_given(body.input, root))
    answer = output_text(body.output).strip()
    head = f"{number}. {body.name}{' (failed)' if body.failed else ''}: {given}"
    if body.name in _EDITS and not body.failed:
        answer = ""  # the file that it was told to write
    if body.name == "Bash" and not body.failed and _ROUTINE.search(given):
        answer = fit(answer, PASSED_BYTES)
    if body.failed and answer:
        head, answer = f"{head}{ARROW}{answer}", ""
    return Entry(head, _weight(body), answer)


def _given(given: dict[str, Any], root: str) -> Iterator[str]:
    """What the tool was told, as plain text: never JSON inside JSON."""
    for name in _TELLING:
        if isinstance(found := given.get(name), str) and found.strip():
            yield found.removeprefix(root.rstrip("/") + "/") if root else found
    edits = given.get("edits")
    for edit in edits if isinstance(edits, list) else (given,):
        if isinstance(edit, dict) and isinstance(new := edit.get("new_string"), str):
            yield "\n" + _diff(str(edit.get("old_string") or ""), new)
    for patch in patches.changes(given) if "changes" in given else ():
        where = " → ".join(reversed(patch.paths))
        yield "\n".join((f"\n{patch.kind} {where}", *patch.lines))
    for name, found in given.items():
        if (
            name not in (*_TELLING, "edits", "old_string", "new_string", *_MANNER)
            and isinstance(found, str | int)
            and found != ""
        ):
            yield f"{name}={found}"


def _diff(old: str, new: str) -> str:
    """Which lines went and which came. A set each: an edit may have thousands."""
    removed, added = old.splitlines(), new.splitlines()
    before, after = set(removed), set(added)
    gone = [f"- {line}" for line in removed if line not in after]
    return "\n".join([*gone, *(f"+ {line}" for line in added if line not in before)])


# --- making it fit ---------------------------------------------------------------------------------------------------


def condense(entries: Sequence[Entry], room: int) -> list[str]:
    """All entries within `room` bytes: short ones whole, long ones by head and tail, and if they are too many, the
    lightest ones from the middle left out with their number. What was read and what merely passed gets what edits and
    failures leave over."""
    kept = _choose(entries, room)
    gaps = _gaps([index for index, _ in kept], len(entries))
    chosen = [entry for _, entry in kept]
    room -= sum(_bytes(gap) + 1 for gap in gaps)
    rooms = _rooms([(entry.least, entry.weight) for entry in chosen], room)
    more = _rooms([(entry.size - entry.least, entry.weight) for entry in chosen], room - sum(rooms))
    return _weave(gaps, [entry.within(sum(own) - 1) for entry, *own in zip(chosen, rooms, more, strict=True)])


def _weave(gaps: Sequence[str], shown: Sequence[str]) -> list[str]:
    woven = [line for pair in zip(gaps, [*shown, ""], strict=True) for line in pair]
    return [line for line in woven if line]


def _choose(entries: Sequence[Entry], room: int) -> list[tuple[int, Entry]]:
    """As many as can each have a few words, the heaviest first and among equals those near the ends."""
    most = max(room // (2 * LEAST_ENTRY), 0)
    middle = len(entries) / 2
    best = sorted(enumerate(entries), key=lambda item: (-item[1].weight, -abs(item[0] - middle)))[:most]
    return sorted(best, key=lambda item: item[0])


def _gaps(kept: Sequence[int], count: int) -> list[str]:
    """What is missing before each that is kept, and after the last."""
    edges = [-1, *kept, count]
    missing = [after - before - 1 for before, after in pairwise(edges)]
    return [f"… {number} events left out …" if number else "" for number in missing]


def _rooms(sizes: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Room for each by its size and weight, when those who need less leave the rest to the others."""
    waiting = sorted(sizes, key=lambda item: item[0] / item[1])
    weights, share = sum(weight for _, weight in waiting), float("inf")
    for need, weight in waiting:
        if need / weight > room / weights:
            share = max(room / weights, 0)
            break
        room -= need
        weights -= weight
    return [int(min(need, share * weight)) for need, weight in sizes]


def fit(text: str, room: int) -> str:
    """At most `room` bytes, head and tail kept and the gap marked; nothing if even the mark has no room."""
    if _bytes(text) <= room:
        return text
    if room < 45:
        return ""
    limit = (room - 40) * len(text) // max(_bytes(text), 1)
    clipped = clip(text, limit)
    while _bytes(clipped) > room and limit > 8:  # the wide characters may sit at the ends
        limit = limit * 3 // 4
        clipped = clip(text, limit)
    return clipped if _bytes(clipped) <= room else ""


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
