"""save, pin, unpin, edit, forget: change the memory by hand."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import hook
from claude_mem.cli import output, provenance
from claude_mem.cli.search import parse_date
from claude_mem.cli.transfer import remind_of_exports
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.reports import DeletionProgress
from claude_mem.domain.text import local_time
from claude_mem.system import process
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.schemas.deletion import (
    PREVIEW_DELETION,
    SHOW_DELETION,
    START_DELETION,
    UNDO_DELETION,
    DeletionPreview,
    DeletionRequest,
)
from claude_mem.worker.http.schemas.observations import (
    FORGET_OBSERVATION,
    GET_OBSERVATIONS,
    PIN,
    PREVIEW_FORGETTING,
    SAVE_MEMORY,
    UNDO,
    UNPIN,
    DeletionOfOne,
    ForgetObservation,
    Ids,
    SaveMemory,
)

TEXTS = ("type", "title", "subtitle", "narrative")
LISTS = {"facts": "fact", "concepts": "concept"}
KEPT_NOTE = "Deleting by ID keeps the turn's summary and raw events, which are separate records."
UNDO_DAYS = 30
MAX_SHOWN = 5
SECONDS, LOOK_SECONDS = 600.0, 0.1
SCOPES = ("session", "project", "before", "after", "source", "matching")


def add_commands(commands: Any) -> None:
    """Add `save`, `pin`, `unpin`, `edit` and `forget`."""
    save_ = commands.add_parser(
        "save",
        help="save a note",
        epilog="Without TEXT, the note is read from a pipe (`echo … | claude-mem save`); `-` waits for a slow pipe. A"
        " JSON object with `session_id` or `hook_event_name` on stdin is a hook payload and recorded as an event.",
    )
    save_.add_argument("text", nargs="*", metavar="TEXT", help="the note; `-` reads it from stdin")
    save_.add_argument("--title", default="", metavar="T", help="title (default: the first sentence)")
    save_.add_argument("--project", default="", metavar="P", help="project (default: the current directory's)")
    save_.add_argument(
        "--rule", action="store_true", help="save as a rule, shown first in new sessions (implied by `Always …`)"
    )
    save_.set_defaults(run=save)
    for name, run, help_ in (
        ("pin", pin, "always show these observations first in new sessions"),
        ("unpin", unpin, "undo `pin`"),
    ):
        pin_ = commands.add_parser(name, help=help_)
        pin_.add_argument("ids", nargs="+", type=_id, metavar="ID", help="observation ID, as in `claude-mem list`")
        pin_.set_defaults(run=run)
    _add_edit(commands)
    _add_forget(commands)


def _add_forget(commands: Any) -> None:
    forget_ = commands.add_parser(
        "forget",
        help="delete observations, or everything in a scope; undo within 30 days",
        epilog="A preview is shown first. With several scope options, only records that match all of them are deleted."
        f" {KEPT_NOTE} docs/forgetting.md lists what can't be deleted: data sent to a provider, file system snapshots,"
        " your own copies.",
    )
    forget_.add_argument(
        "ids", nargs="*", type=_id_or_deletion, metavar="ID", help="observation ID, as in `claude-mem list`"
    )
    forget_.add_argument("--session", default="", metavar="ID", help="a session, by number or by the agent's id")
    forget_.add_argument("--project", default="", metavar="P", help="a project, by name")
    forget_.add_argument("--before", type=parse_date, metavar="T", help="older than: 2026-01-31 or 2026-01-31T14:00")
    forget_.add_argument("--after", type=parse_date, metavar="T", help="from this date or time on")
    forget_.add_argument(
        "--source",
        default="",
        metavar="S",
        help="an agent, `import`, `external`, a trust level, a file or a URL",
    )
    forget_.add_argument("--matching", default="", metavar="TEXT", help="containing this text, ignoring case")
    how = forget_.add_mutually_exclusive_group()
    how.add_argument("--now", action="store_true", help="erase permanently, from every file and backup of claude-mem")
    how.add_argument("--undo", action="store_true", help="restore observations by ID, or a whole deletion (F3)")
    forget_.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    forget_.add_argument("--json", action="store_true", help="print one JSON object per line")
    forget_.set_defaults(run=forget)


def _add_edit(commands: Any) -> None:
    edit_ = commands.add_parser(
        "edit",
        help="correct an observation",
        epilog="Without options, the observation opens in $VISUAL or $EDITOR. An edited observation is never changed by"
        " a model again.",
    )
    edit_.add_argument("id", type=_id, metavar="ID", help="observation ID, as in `claude-mem list`")
    for name in TEXTS:
        edit_.add_argument(f"--{name}", metavar="TEXT", help=f"new {name}")
    edit_.add_argument("--fact", action="append", metavar="TEXT", help="new fact; replaces all facts; may be repeated")
    edit_.add_argument(
        "--concept", action="append", metavar="WORD", help="new concept; replaces all concepts; may be repeated"
    )
    edit_.set_defaults(run=edit)


def _id_or_deletion(text: str) -> int | str:
    """Parse the ID of an observation or of a deletion, as in F3."""
    number = text[1:]
    is_deletion = text[:1] in ("F", "f") and number.isascii() and number.isdigit() and len(number) < 18
    return f"F{int(number)}" if is_deletion else _id(text)


def _id(text: str) -> int:
    number = text.removeprefix("#")
    if not number.isascii() or not number.isdigit() or not 0 < int(number[:19]) < 1 << 62:
        raise argparse.ArgumentTypeError(f"invalid observation ID {text!r}; use a number, such as 12")
    return int(number)


def _client() -> Client:
    return Client(process.ensure_worker(load_lenient().config.data_dir), by=provenance.detect_actor())


def _fetch_all(client: Client, ids: list[int]) -> list[MemoryItem]:
    """Return all these observations, each once, or raise before anything is changed."""
    items = client.call(GET_OBSERVATIONS, Ids(list(dict.fromkeys(ids)))).items
    if missing := sorted(set(ids) - {item["id"] for item in items}):
        raise NotFound(
            f"no observation {', '.join(map(str, missing))}; nothing was changed",
            hint="find IDs with `claude-mem list` or `claude-mem search`",
        )
    provenance.warn_if_held(items)  # their titles are printed
    return items


# --- save, pin -------------------------------------------------------------------------------------------------------


def save(options: argparse.Namespace) -> int:
    """Save a note, given as arguments or on stdin."""
    request = SaveMemory(
        _note_text(options.text, options.piped),
        title=options.title,
        project=options.project,
        cwd="" if options.project else str(Path.cwd()),
        type="rule" if options.rule else "",
    )
    note = _client().call(SAVE_MEMORY, request)
    label = f"rule {note.id}" if note.type == "rule" else note.id
    output.line(f"saved as {label} in {note.project}: {note.title}")
    if note.held:
        output.info(f"not shown to sessions until you approve it (`claude-mem open`, Quarantine): {note.held}")
    return 0


def _note_text(words: list[str], piped: tuple[bytes, bool] | None) -> str:
    """Return the arguments as text, or else the piped input. Only `-` waits until stdin ends, which it may never do."""
    if words == ["-"]:
        text = sys.stdin.read() if sys.stdin else ""
    elif words or output.can_ask():
        text = " ".join(words)
    else:
        text = _decoded(*(piped or hook.read_stdin()))
    if not text.strip():
        raise InvalidRequest("nothing to save", hint="usage: claude-mem save TEXT")
    return text


def _decoded(raw: bytes, whole: bool) -> str:
    if raw.strip() and not whole:
        problem = (
            f"stdin did not end within {hook.READ_SECONDS:g} s, or is larger than {hook.MAX_PAYLOAD_BYTES >> 20} MB"
        )
        raise InvalidRequest(f"{problem}; nothing was saved", hint="use `claude-mem save -` to wait for the end")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest("stdin is not UTF-8 text; nothing was saved", hint="convert it with iconv") from None
    if "\0" in text:
        raise InvalidRequest("stdin contains binary data; nothing was saved", hint="a note must be UTF-8 text")
    return text


def pin(options: argparse.Namespace) -> int:
    """Pin observations, so that they are shown first in new sessions."""
    client = _client()
    for item in _fetch_all(client, options.ids):
        if item["pinned"]:
            output.line(f"{item['id']} is already pinned: {item['title']}")
        else:
            client.call(PIN, ById(item["id"]))
            output.line(f"pinned {item['id']}: {item['title']}")
    return 0


def unpin(options: argparse.Namespace) -> int:
    """Undo `pin`."""
    client = _client()
    for item in _fetch_all(client, options.ids):
        if item["pinned"]:
            client.call(UNPIN, ById(item["id"]))
            output.line(f"unpinned {item['id']}: {item['title']}")
        else:
            output.line(f"{item['id']} is not pinned: {item['title']}")
    return 0


# --- forget ----------------------------------------------------------------------------------------------------------


def forget(options: argparse.Namespace) -> int:
    """Delete observations by id or by scope, or undo a deletion."""
    scope = {name: value for name in SCOPES if (value := getattr(options, name))}
    client, ids = _client(), list(dict.fromkeys(options.ids))
    deletion_ids = [id_ for id_ in ids if isinstance(id_, str)]
    if options.undo:
        if scope or not ids:
            raise InvalidRequest("`--undo` needs IDs, and no scope", hint="usage: claude-mem forget --undo ID|F3 …")
        return _undo_all(client, ids, as_json=options.json)
    if deletion_ids:
        raise InvalidRequest(
            f"{deletion_ids[0]} is the ID of an earlier `forget`, not of an observation",
            hint=f"to restore it, run `claude-mem forget --undo {deletion_ids[0]}`",
        )
    if scope or not ids:
        return _forget_scope({**scope, "ids": ids}, options)
    return _forget_some(client, ids, options)


def _forget_some(client: Client, ids: list[int], options: argparse.Namespace) -> int:
    """Delete observations by ID: each can be restored individually."""
    items = _preview_each(client, ids, erase=options.now)
    for item in items:
        _show_preview(item)
    output.info(KEPT_NOTE)
    pronoun = "it" if len(items) == 1 else "them"
    question = f"Erase {pronoun} permanently?" if options.now else f"Forget {pronoun}? (undo within {UNDO_DAYS} days)"
    if not options.yes and not output.ask(question):
        output.info("nothing was deleted (use `--yes` to skip the question)")
        return 1
    for item in items:
        result = client.call(FORGET_OBSERVATION, ForgetObservation(item.id, now=int(options.now)))
        record = {**msgspec.structs.asdict(item), **msgspec.to_builtins(result)}
        _report(record, f"{result.status}: {item.id}", as_json=options.json)
    if options.now:
        remind_of_exports(load_lenient().config)
    else:
        output.info(f"to restore {pronoun}, run `claude-mem forget --undo {' '.join(map(str, ids))}`")
        if any(item.backups for item in items):
            output.info(f"earlier backups still contain {pronoun} (`claude-mem backup --list`); `--now` rewrites them")
    return 0


def _forget_scope(scope: dict[str, Any], options: argparse.Namespace) -> int:
    client = Client(process.ensure_worker(load_lenient().config.data_dir), seconds=SECONDS)
    request = DeletionRequest(**scope, now=options.now)
    preview = client.call(PREVIEW_DELETION, request)
    _show_scope(preview)
    if preview.empty:
        output.info("nothing matches; nothing was deleted")
        return 1
    question = (
        "Erase all of this permanently?" if options.now else f"Forget all of this? (undo within {UNDO_DAYS} days)"
    )
    if not options.yes and not output.ask(question):
        output.info("nothing was deleted (use `--yes` to skip the question)")
        return 1
    job = _wait_for_job(client, client.call(START_DELETION, request))
    if options.json:
        output.json(job)
    else:
        _show_result(job)
    return 1 if job.error or job.left or job.copies.get("failed") else 0


def _wait_for_job(client: Client, job: DeletionProgress) -> DeletionProgress:
    with output.progress() as advance:
        while job.busy:
            advance(job.doing or "searching", job.done, max(job.total, 1))
            time.sleep(LOOK_SECONDS)
            job = client.call(SHOW_DELETION, NoFields())
    return job


def _show_scope(preview: DeletionPreview) -> None:
    parts = [f"{count:,} {name}" for name, count in preview.counts.items() if count]
    output.info(f"to be deleted: {', '.join(parts) or 'nothing'}")
    for item in preview.first:
        output.info(f"  {item.kind:<11} {item.id:>6}  {local_time(item.at):%Y-%m-%d}  {item.title}")
    if preview.made_again:
        output.info(f"{preview.made_again:,} turns will be summarized again from their remaining events")


def _show_result(job: DeletionProgress) -> None:
    if job.error:
        output.error(job.error, "the deletion is completed when the worker starts again")
        return
    name = f"F{job.number}"
    if not job.erased:
        output.line(f"forgotten: {name}")
        output.info(
            f"to restore it, run `claude-mem forget --undo {name}` (until {local_time(job.undo_until or 0):%Y-%m-%d})"
        )
        return
    copies = ", ".join(f"{len(names)} {outcome}" for outcome, names in job.copies.items())
    output.line(f"erased: {name}; backups: {copies or 'none'}")
    for path in job.left:
        output.info(f"still in {path}: {_why_left(path)}")
    for path in job.copies.get("failed", ()):
        output.info(f"{path} could not be rewritten (see `claude-mem logs`); delete it if it must not remain")
    remind_of_exports(load_lenient().config)


def _why_left(path: str) -> str:
    if path.startswith("exports/"):
        return "exports are not changed; delete it if it must not remain"
    return _READ if path.endswith("-wal") else _NAMED


_NAMED = "the text is part of a name or a path; forget that project or session, too"
_READ = "another program keeps the database open; the worker retries automatically"


def _preview_each(client: Client, ids: list[int], *, erase: bool) -> list[DeletionOfOne]:
    """Return the preview of each deletion, or raise before anything is deleted."""
    items, missing = [], []
    for obs_id in ids:
        try:
            items.append(client.call(PREVIEW_FORGETTING, ById(obs_id)))
        except NotFound:
            missing.append(obs_id)
    missing += [item.id for item in items if item.forgotten and not erase]
    if missing:
        raise NotFound(
            f"no observation {', '.join(map(str, sorted(missing)))}; nothing was changed",
            hint="find IDs with `claude-mem list` or `claude-mem search`; `--undo` restores forgotten observations",
        )
    return items


def _show_preview(item: DeletionOfOne) -> None:
    goes, number = item.goes, item.id
    output.info(f"{number:>6}  {local_time(item.created_at):%Y-%m-%d}  {item.title}")
    index = goes.index
    entries = index["documents"] + index["passages"] + index["signals"] + index["vectors"]
    parts = [f"{entries} index entries"] if entries else []
    parts += [f"its line in the session start of {folder}" for folder in goes.starts]
    parts += [f"{other}, which was merged into it" for other in goes.merged]
    if parts:
        output.info(f"        deletes: {', '.join(parts)}")
    for copy in item.stays[:MAX_SHOWN]:
        output.info(
            f"        keeps: {copy['kind']} {copy['id']}, which shares {copy['shared']} of {copy['words']} words"
        )
    if more := len(item.stays[MAX_SHOWN:]):
        output.info(f"        keeps: {more} more similar records")
    if item.into:
        output.info(f"        keeps: observation {item.into}, into which it was merged")


def _undo_all(client: Client, ids: list[int | str], *, as_json: bool) -> int:
    for id_ in ids:
        if isinstance(id_, int):
            _undo(client, [id_], as_json=as_json)
            continue
        result = client.call(UNDO_DELETION, ById(int(id_[1:])))
        parts = ", ".join(f"{count:,} × {kind}" for kind, count in result.counts.items())
        _report(result, f"restored: {id_} ({parts or 'nothing was left'})", as_json=as_json)
    return 0


def _undo(client: Client, obs_ids: list[int], *, as_json: bool) -> int:
    for obs_id in obs_ids:
        result = client.call(UNDO, ById(obs_id))
        others = [str(other) for other in result.ids if other != obs_id]
        more = f"; {', '.join(others)} restored with it" if others else ""
        title = result.observation["title"]
        _report(
            {"id": obs_id, **msgspec.structs.asdict(result)},
            f"undone ({result.undone}): {obs_id} {title}{more}",
            as_json=as_json,
        )
    return 0


def _report(record: object, text: str, *, as_json: bool) -> None:
    if as_json:
        output.json(record)
    else:
        output.line(text)


# --- edit ------------------------------------------------------------------------------------------------------------


def edit(options: argparse.Namespace) -> int:
    """Change the fields of an observation, by options or in the user's editor."""
    option_names = {**{name: name for name in TEXTS}, **LISTS}
    changes = {name: value for name, option in option_names.items() if (value := getattr(options, option)) is not None}
    if not changes and not output.can_ask():
        raise InvalidRequest(
            "nothing to change", hint="give --title, --narrative, …; on a terminal, an editor opens instead"
        )
    client = _client()
    (item,) = _fetch_all(client, [options.id])
    changes = changes or edit_in_editor(item)
    if not changes:
        output.info("nothing was changed")
        return 0
    updated_row = client.patch(f"/api/observation/{item['id']}", changes)
    output.line(f"changed {', '.join(changes)} of {updated_row['id']}: {updated_row['title']}")
    return 0


def edit_in_editor(item: MemoryItem) -> dict[str, object]:
    """Let the user edit the form and return the changes. A form that can't be parsed is kept."""
    folder = Path(tempfile.mkdtemp(prefix="claude-mem-"))  # a directory, so that the editor's backup files go with it
    path = folder / f"observation-{item['id']}.toml"
    path.write_text(format_form(item), "utf-8")
    while True:
        _open_editor(path)
        try:
            changes = changed_fields(format_form(item), path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            output.error(f"the form is not valid TOML: {error}", "check the quotes")
            if not output.ask("Edit it again?", default=True):
                raise OperationFailed("nothing was changed", hint=f"your text is in {path}") from error
        else:
            shutil.rmtree(folder, ignore_errors=True)
            return changes


def _open_editor(path: Path) -> None:
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        subprocess.run([*command, str(path)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(path.parent, ignore_errors=True)
        hint = "set EDITOR to another editor, or use --title, --narrative, …"
        raise OperationFailed(f"the editor {command[0]} failed; nothing was changed", hint=hint) from error


def format_form(item: MemoryItem) -> str:
    """Format an observation as TOML for editing."""
    fields: Mapping[str, Any] = item
    lines = [
        f"# Observation {item['id']} of {_quoted(item['project'])}. Correct it, save the file and close the editor.",
        "# Fields that you do not edit stay unchanged.",
        *(f"{name} = {_quoted(fields[name] or '')}" for name in TEXTS[:-1]),
        f"narrative = {_long(item['narrative'] or '')}",
    ]
    for name in LISTS:
        lines += [f"{name} = [", *(f"    {_quoted(part)}," for part in fields[name]), "]"]
    return "\n".join(lines) + "\n"


def changed_fields(before: str, after: str) -> dict[str, object]:
    """Return the fields that differ in the second form. The worker validates them."""
    old, new = (
        {name: part.strip() if isinstance(part, str) else part for name, part in tomllib.loads(text).items()}
        for text in (before, after)
    )
    return {name: part for name, part in new.items() if part != old.get(name)}


def _quoted(text: str) -> str:
    """Quote a string. JSON strings are valid in TOML, except for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long(text: str) -> str:
    """Format a text as a multi-line literal, or quoted if TOML can't represent it as a literal."""
    raw = f"'''\n{text}'''"
    try:
        return raw if tomllib.loads(f"x = {raw}")["x"] == text else _quoted(text)
    except tomllib.TOMLDecodeError:
        return _quoted(text)
