"""Builds search documents from observations, summaries, prompts and turns.

A turn's text is the prompt, the closing message and the *input* of its tools: paths, commands, patterns, edits. Tool
output is left out: it is nine tenths of the bytes and makes the right turn harder to find (measured).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from claude_mem.digest.calls import record_calls
from claude_mem.digest.evidence import Evidence, error_line, gather_evidence
from claude_mem.domain import patches, words
from claude_mem.domain.memory_items import DocumentSource, SavedNeighbour
from claude_mem.domain.records import Stopped, ToolUsed, Turn
from claude_mem.domain.text import local_time
from claude_mem.privacy import injection_rules, trust
from claude_mem.storage.base import Transaction
from claude_mem.storage.records import Document, Passage
from claude_mem.system.failpoints import failpoint

log = logging.getLogger(__name__)

NEAR_PROMPT, NEAR_CLOSING, OWN_PROMPT = 400, 300, 600  # characters used from neighbours and from the own prompt
LONG_NARRATIVE_CHARS = 500
# The embedding models read 512 tokens, about WHOLE characters. A longer text is split, and then small parts work best.
WHOLE, PART, HEAD = 2_000, 500, 60
_SENTENCE = re.compile(r"(?<=[.!?:])\s+")
_BRANCH_SWITCH = re.compile(r"\bgit (?:checkout -[bB]|switch(?: -[cC])?) ([\w./-]{4,100})")
FRAGMENT, TOOL_TEXT = 300, 6_000

Signals = tuple[tuple[str, str, int], ...]


def refresh_documents(tx: Transaction, *, limit: int) -> int:
    """Index pending rows, newest first. Returns their number. Runs in one transaction, so the index is consistent."""
    pending = tx.search.list_index_queue(limit=limit)
    for kind, row_id in pending:
        try:
            with tx.savepoint():
                _refresh(tx, kind, row_id)
        except (ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError):
            log.exception("%s %s could not be indexed", kind, row_id)  # one bad row must not block the others
        tx.search.remove_from_index_queue(kind, row_id)
        failpoint("index.words")
    return len(pending)


def _refresh(tx: Transaction, kind: str, row_id: int) -> None:
    row = tx.search.get_document_source(kind, row_id)
    if row is None:
        tx.search.delete_document(kind, row_id)
    elif kind == "turn":
        _refresh_turn(tx, row)
    elif document := _DOCUMENT_BUILDERS[kind](tx, row):
        tx.search.upsert_document(document)
        if document.turn_id is None:
            for neighbour in tx.search.list_neighbour_saves(row):
                tx.search.set_saved_surroundings(neighbour["id"], _around_saved(tx, neighbour))
    else:
        tx.search.delete_document(kind, row_id)


def _refresh_turn(tx: Transaction, row: DocumentSource) -> None:
    turn = tx.journal.load_turn(row["id"], with_earlier=False)
    if turn is not None and turn.bodies:  # otherwise its events were purged: the existing document stays
        if document := document_of_turn(
            row, turn, around=_around(tx, row["id"]), derived_trust=tx.search.list_turn_trust_levels(row["id"])
        ):
            tx.search.upsert_document(document)
            tx.journal.replace_call_records(row["id"], record_calls(turn))
        else:
            tx.search.delete_document("turn", row["id"])
    for neighbour_id, _, _ in tx.search.list_neighbour_turns(row["id"]):
        tx.search.set_turn_surroundings(neighbour_id, _around(tx, neighbour_id))


def _around(tx: Transaction, turn_id: int | None) -> str:
    if turn_id is None:
        return ""
    return " ".join(
        f"{prompt[:NEAR_PROMPT]} {closing[:NEAR_CLOSING]}"
        for _, prompt, closing in tx.search.list_neighbour_turns(turn_id)
    )


def _around_saved(tx: Transaction, row: DocumentSource | SavedNeighbour) -> str:
    """Return the neighbours of a memory saved by hand; "" for a long one, which needs no context."""
    if len(row["narrative"] or "") > LONG_NARRATIVE_CHARS:
        return ""
    neighbours = tx.search.list_neighbour_saves(row)
    return " ".join(f"{neighbour['title']} {(neighbour['narrative'] or '')[:NEAR_CLOSING]}" for neighbour in neighbours)


# --- one builder per kind --------------------------------------------------------------------------------------------


def _observation_document(tx: Transaction, row: DocumentSource) -> Document:
    around = _around_saved(tx, row) if row["turn_id"] is None else row["prompt"][:OWN_PROMPT]
    facts = msgspec.json.decode(row["facts"], type=list[str])
    files = [("edited", path, 1) for path in msgspec.json.decode(row["files_modified"], type=list[str])]
    files += [("read", path, 1) for path in msgspec.json.decode(row["files_read"], type=list[str])]
    error_texts = [fact.removeprefix("Error: ") for fact in facts if fact.startswith("Error: ")]
    error_texts += [error for fact in facts if (error := fact.partition("` failed before: ")[2])]
    errors = [("error", words.error_signature(error), 1) for error in error_texts]
    commits = [("commit", row["commit_id"], 1)] if row["commit_id"] else []
    narrative = (row["narrative"] or "").removeprefix(row["title"] or "")  # a saved note often begins with its title
    body = "\n".join(part for part in (row["subtitle"], narrative, *facts) if part)
    more = " ".join([*msgspec.json.decode(row["concepts"], type=list[str]), *(path for _, path, _ in files)])
    signals = (*files, *errors, *commits)
    return _make_document("observation", row, row["title"] or "", body, more=more, around=around, signals=signals)


def _summary_document(tx: Transaction, row: DocumentSource) -> Document | None:
    texts = (row["completed"], row["learned"], row["investigated"], row["next_steps"], row["notes"])
    parts = [text for text in texts if text]
    if not parts:
        return None  # the document would only repeat the prompt
    files = [("edited", path, 1) for path in msgspec.json.decode(row["files_edited"], type=list[str])]
    files += [("read", path, 1) for path in msgspec.json.decode(row["files_read"], type=list[str])]
    title = (row["request"] or "")[:200]
    return _make_document(
        "summary", row, title, "\n".join(parts), around=_around(tx, row["turn_id"]), signals=tuple(files)
    )


def _prompt_document(tx: Transaction, row: DocumentSource) -> Document:
    return _make_document("prompt", row, "", row["text"], around=_around(tx, row["turn_id"]))


_DOCUMENT_BUILDERS = {"observation": _observation_document, "summary": _summary_document, "prompt": _prompt_document}


def document_of_turn(
    row: DocumentSource, turn: Turn, *, around: str, derived_trust: Sequence[str] = ()
) -> Document | None:
    """Build the document of a turn; None if the turn has only a prompt. `derived_trust`: the trust of its records."""
    evidence = gather_evidence(turn)
    tools = tool_text([body for body in turn.bodies if isinstance(body, ToolUsed)], root=turn.root)
    closing = next((body.message for body in reversed(turn.bodies) if isinstance(body, Stopped) and body.message), "")
    if not tools and not closing:
        return None
    document_row: DocumentSource = {**row, "turn_id": row["id"], "created_at": row["last_at"]}
    signals, trust = tuple(_signals(evidence)), _trust([*turn.origins, *derived_trust], closing)
    return _make_document(
        "turn", document_row, turn.prompt, closing, more=tools, around=around, signals=signals, trust=trust
    )


def _trust(levels: Sequence[str], closing: str) -> str:
    """Return the lowest trust of the texts read in a turn, its closing message and its records; "" if trusted.

    The trust of the records counts because digesting examined the turn more closely.
    """
    lowest = trust.least_trusted([*levels, *([trust.SUSPECT] if injection_rules.injection_rule(closing) else [])])
    return "" if lowest in trust.TRUSTED else lowest


def _signals(evidence: Evidence) -> Iterator[tuple[str, str, int]]:
    edited = Counter(edit.path for edit in evidence.edits)
    yield from (("edited", path, times) for path, times in edited.items())
    yield from (("read", path, 1) for path in evidence.files_read if path not in edited)
    yield from (("commit", commit.id, 1) for commit in evidence.commits if commit.id)
    yield from (("branch", branch, 1) for branch in sorted(_branches(evidence)))
    for command in evidence.commands:
        yield "command", command.key[:FRAGMENT], 1
        if command.failed and (error := error_line(command.output)):
            yield "error", words.error_signature(error), 1


def _branches(evidence: Evidence) -> set[str]:
    """Return the branches with a distinctive name: `main` would match everything."""
    branches = {commit.branch for commit in evidence.commits}
    branches |= {match[1] for command in evidence.commands for match in _BRANCH_SWITCH.finditer(command.text)}
    return {branch for branch in branches if len(branch) > 3 and re.search(r"[-/_\d]", branch)}


def _make_document(
    kind: str,
    row: DocumentSource,
    title: str,
    body: str,
    *,
    around: str,
    more: str = "",
    signals: Signals = (),
    trust: str = "",
) -> Document:
    return Document(
        kind=kind,
        row_id=row["id"],
        project_id=row["project_id"],
        session_id=row["session_id"],
        turn_id=row["turn_id"],
        created_at=row["created_at"],
        passages=tuple(_passages(kind, title, body, more, format_day(row["created_at"]))),
        around=around,
        signals=(*(signal for signal in signals if signal[1]), *_file_names(signals)),
        trust=trust,
    )


def _file_names(signals: Signals) -> Iterator[tuple[str, str, int]]:
    """Yield the file names without folders: people rarely write the full path."""
    names = {path.rpartition("/")[2] for kind, path, _ in signals if kind in ("edited", "read")}
    yield from (("name", name, 1) for name in sorted(names) if name)


def _passages(kind: str, title: str, body: str, more: str, when: str) -> Iterator[Passage]:
    """Yield one passage, or the parts of a long text, each with the text's heading or, without one, its title."""
    parts = [body]
    if kind != "turn" and len(title) + len(body) > WHOLE:
        parts = split_text(body)
    heading = first if len(first := body.partition("\n")[0]) <= HEAD else ""
    for number, part in enumerate(parts):
        head = heading or title if number else title
        yield Passage(head, part, f"{when} {more} {words.split_identifiers(f'{head} {part} {more}')}")


def split_text(text: str, size: int = PART) -> list[str]:
    """Split into parts of about `size` characters, between lines; only a long line is split between sentences."""
    parts, current = [], ""
    for piece in _pieces(text, size):
        if current and len(current) + len(piece) > size:
            parts.append(current)
            current = ""
        current = f"{current}\n{piece}".strip()
    return [*parts, current] if current else parts


def _pieces(text: str, size: int) -> Iterator[str]:
    for line in text.splitlines():
        for sentence in [line] if len(line) <= size else _SENTENCE.split(line):
            yield from (sentence[i : i + size] for i in range(0, len(sentence), size))


def format_day(milliseconds: int) -> str:
    """Format the date the way people write it in a query: "in May", not a number."""
    when = local_time(milliseconds)
    return f"{when.day} {when:%B %Y}"


# --- tool inputs -----------------------------------------------------------------------------------------------------


def tool_text(tools: Sequence[ToolUsed], *, root: str) -> str:
    """Return the inputs of the tools, without duplicates, limited in length."""
    parts: dict[str, None] = {}
    for tool in tools:
        for part in _input_parts(tool):
            parts.setdefault(part.removeprefix(root.rstrip("/") + "/") if root else part)
    return "\n".join(part for part in parts if part.strip())[:TOOL_TEXT]


def _input_parts(tool: ToolUsed) -> Iterator[str]:
    fields = {name: value for name, value in tool.input.items() if isinstance(value, str)}
    yield fields.get("file_path") or fields.get("notebook_path") or fields.get("path") or ""
    match tool.name:
        case "Bash":
            yield fields.get("command", "")[:FRAGMENT]
            yield fields.get("description", "")[:100]
        case "Grep" | "Glob":
            yield fields.get("pattern", "")[:FRAGMENT]
        case "Edit" | "MultiEdit" | "Write" | "NotebookEdit":
            yield (fields.get("new_string") or fields.get("content") or fields.get("new_source") or "")[:FRAGMENT]
            yield fields.get("old_string", "")[: FRAGMENT // 2]
        case patches.PATCH_TOOL:
            for patch in patches.stored_patches(tool.input):
                yield from patch.paths
                yield "\n".join(line[1:] for line in patch.lines if line.startswith("+"))[:FRAGMENT]
        case "Read":
            return
        case _:
            yield " ".join(value for name, value in fields.items() if name not in ("file_path", "path"))[:FRAGMENT]
