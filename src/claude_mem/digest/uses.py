"""What became of the items that a session was shown: read from the events of a turn, without a model.

An item counts as used if the session afterwards opened or edited one of its files, ran its command, asked for its record,
wrote its words, or left out a call that it warns of. What the agent was about to do anyway does not count: the file
whose opening triggered an injection, the command before which a line was said, and words of the user's own prompt.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from claude_mem.digest.calls import call_keys, find_mistake, parse_command
from claude_mem.digest.evidence import EDIT_TOOLS, READ_TOOLS, Command, gather_evidence
from claude_mem.domain import patches
from claude_mem.domain.records import Body, Prompted, Stopped, SubagentStopped, ToolUsed, Turn
from claude_mem.domain.rules import forbids_call
from claude_mem.domain.uses import ItemUse, ShownItem, Use
from claude_mem.domain.words import STOP_WORDS
from claude_mem.privacy.shell import Call

RUN = 4  # consecutive words that make a quotation
MAX_TEXT_CHARS = 40_000  # of one event
_WORD = re.compile(r"\w+")
# Names that hardly occur by chance: `in_backticks`, snake_case, camelCase, CONSTANT_CASE, --options.
_NAME = re.compile(r"`([A-Za-z_][\w.-]{4,60})(?:\(\))?`|\b(\w*[a-z][A-Z]\w+|[A-Za-z]\w*_\w{2,}|[A-Z]{2,}_\w+)\b")
_SHOWN = re.compile(r"claude-mem show((?:\s+(?:--?\w[\w-]*|[#A-Z]?\d+))+)")
_ID = re.compile(r"([#S]?)(\d{1,18})$")


@dataclass(slots=True)
class TurnActions:
    """What a turn did, with the times of each action."""

    opened: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    edited: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    calls: list[tuple[int, Call, bool]] = field(default_factory=list)  # and whether it certainly worked
    keys: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    fetched: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)  # of words that the agent wrote: when they were last written
    names: dict[str, int] = field(default_factory=dict)
    end: int = 0

    def add(self, later: TurnActions) -> None:
        """Add what a later turn did."""
        for own, other in ((self.opened, later.opened), (self.edited, later.edited), (self.keys, later.keys)):
            for name, times in other.items():
                own[name] += times
        self.calls += later.calls
        self.fetched |= later.fetched
        self.runs |= later.runs
        self.names |= later.names
        self.end = max(self.end, later.end)


def find_uses(actions: TurnActions, items: Sequence[ShownItem]) -> list[ItemUse]:
    """Return what became of these items in a turn: at least one entry for each that was shown before its end."""
    uses: list[ItemUse] = []
    for item in items:
        if item.at <= actions.end:
            by_kind = dict(_uses_of(item, actions)) or {Use.NONE: actions.end}
            uses += [ItemUse(item.injection_id, item.name, use, at) for use, at in by_kind.items()]
    return uses


def _uses_of(item: ShownItem, actions: TurnActions) -> Iterator[tuple[Use, int]]:
    if item.warned or item.rule:
        yield from _uses_of_warning(item, actions)
        return
    if at := _after(item, [actions.fetched.get(item.name, 0)]):
        yield Use.FETCHED, at
    for use, times in ((Use.OPENED, actions.opened), (Use.EDITED, actions.edited)):
        files = item.files - {item.about}
        if at := _after(item, [at for path in files for at in times.get(path, ())]):
            yield use, at
    if at := _after(item, [at for key in item.commands for at in actions.keys.get(key, ())]):
        yield Use.RAN, at
    if at := _quoted_at(item, actions):
        yield Use.QUOTED, at


def _after(item: ShownItem, times: Sequence[int]) -> int:
    """Return the first of these times that is not before the item was shown; 0 if there is none."""
    least = item.at + (item.trigger == "failure")  # the failure itself may have the same time
    return min((at for at in times if at >= least), default=0)


def _uses_of_warning(item: ShownItem, actions: TurnActions) -> Iterator[tuple[Use, int]]:
    """Yield what became of a line that says that a call fails here, or that the user forbids it.

    The command before which the line was said does not count: it runs in any case.
    """
    later = [entry for entry in actions.calls if entry[0] >= item.at]
    repeats = [(at, worked) for at, call, worked in later if _is_warned_of(item, call)]
    if item.trigger == "command" and repeats:
        own = repeats.pop(0)[0]
        later = [entry for entry in later if entry[0] > own]
    if item.warned and (worked_at := next((at for at, worked in repeats if worked), 0)):
        yield Use.CONTRADICTED, worked_at
    elif repeats:
        yield Use.REPEATED, repeats[0][0]
    instead = [at for at, call, _ in later if item.commands & call_keys(call).keys()]
    program = item.warned.partition(" ")[0]
    others = [at for at, call, _ in later if program and call.program == program and not _is_warned_of(item, call)]
    if not repeats and instead:
        yield Use.RAN, instead[0]
    if not repeats and (instead or others or (item.rule and later)):
        yield Use.AVOIDED, min([*instead, *others] or [later[0][0]])


def _is_warned_of(item: ShownItem, call: Call) -> bool:
    if item.rule:
        return forbids_call(item.rule, (call.program, *call.words))
    return item.warned in call_keys(call)


# --- quotations ------------------------------------------------------------------------------------------------------


def _quoted_at(item: ShownItem, actions: TurnActions) -> int:
    runs, names = _marks(item.text)
    times = [actions.runs.get(run, 0) for run in runs] + [actions.names.get(name, 0) for name in names]
    return _after(item, times)


@lru_cache(maxsize=4_096)  # an item is looked for in every turn, and in several sessions
def _marks(text: str) -> tuple[frozenset[str], frozenset[str]]:
    return word_runs(text), code_names(text)


def word_runs(text: str) -> frozenset[str]:
    """Return the runs of words by which a quotation is recognized. Runs of common words say nothing."""
    words = [word.lower() for word in _WORD.findall(text)]
    runs = (words[start : start + RUN] for start in range(len(words) - RUN + 1))
    return frozenset(
        " ".join(run) for run in runs if sum(word not in STOP_WORDS and not word.isdigit() for word in run) >= RUN - 1
    )


def code_names(text: str) -> frozenset[str]:
    """Return the names in a text that hardly occur by chance."""
    return frozenset(name for match in _NAME.finditer(text) for name in match.groups() if name and "/" not in name)


# --- reading a turn --------------------------------------------------------------------------------------------------


def read_actions(turn: Turn, times: Mapping[int, int]) -> TurnActions:
    """Return what a turn did. `times`: of its events, by `seq`."""
    actions = TurnActions(end=max([*(times.get(seq, 0) for seq in turn.seqs), turn.started_at]))
    evidence = gather_evidence(turn, symbols=False)
    for read in evidence.reads:
        actions.opened[read.text].append(times[read.seq])
    for edit in evidence.edits:
        actions.edited[edit.path].append(times[edit.seq])
    roots = tuple(f"{root.rstrip('/')}/" for root in (turn.root, turn.cwd) if root)
    for command in evidence.commands:
        _add_command(actions, command, times[command.seq], roots)
    prompts = " ".join(body.text for body in turn.bodies if isinstance(body, Prompted))
    own_runs, own_names = word_runs(prompts), code_names(prompts)
    for seq, body in zip(turn.seqs, turn.bodies, strict=True):
        if isinstance(body, ToolUsed) and not body.failed:
            actions.fetched |= dict.fromkeys(fetched_names(body), times[seq])
        text = written_text(body)[:MAX_TEXT_CHARS]
        actions.runs |= dict.fromkeys(word_runs(text) - own_runs, times[seq])
        actions.names |= dict.fromkeys(code_names(text) - own_names, times[seq])
    return actions


def _add_command(actions: TurnActions, command: Command, at: int, roots: tuple[str, ...]) -> None:
    worked = not command.failed and find_mistake(command) is None
    for call in parse_command(command.text):
        actions.calls.append((at, call, worked))
        for key in call_keys(call):
            actions.keys[key].append(at)
        if worked:
            for word in (*call.words, *call.reads):
                root = next((root for root in roots if word.startswith(root)), "")
                actions.opened[word.removeprefix(root).removeprefix("./")].append(at)


def written_text(body: Body) -> str:
    """Return the words that the agent wrote itself: messages, edits, commands and searches, never the output of a tool."""
    match body:
        case Stopped() | SubagentStopped():
            return body.message
        case ToolUsed(name=name, input=given) if name in (*EDIT_TOOLS, patches.PATCH_TOOL):
            edits = given.get("edits")
            parts = [given, *(edits if isinstance(edits, list) else ())]
            lines = [line[1:] for patch in patches.stored_patches(given) for line in patch.lines if line[:1] == "+"]
            names = ("new_string", "content", "new_source")
            return "\n".join(
                [str(part.get(name) or "") for part in parts if isinstance(part, dict) for name in names] + lines
            )
        case ToolUsed(name=name, input=given) if name not in READ_TOOLS:
            return "\n".join(str(given[key]) for key in ("command", "pattern", "query", "prompt") if given.get(key))
    return ""


def fetched_names(body: Body | None) -> Iterator[str]:
    """Yield the names of the memories that a tool call fetched in full."""
    if not isinstance(body, ToolUsed) or body.failed:
        return
    ids = body.input.get("ids")
    words = ids if body.name.endswith("get_observations") and isinstance(ids, list) else []
    command = body.input.get("command")
    if isinstance(command, str):
        words = [word for match in _SHOWN.finditer(command) for word in match[1].split()]
    for word in words:
        if match := _ID.match(str(word)):
            yield f"{'s' if match[1] == 'S' else 'o'}{match[2]}"
