"""save, pin, unpin, edit, forget: a person's own word about what is remembered."""

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
from pathlib import Path
from typing import Any

from claude_mem import hook, process
from claude_mem.cli import held, output, person
from claude_mem.cli.find import date as date_
from claude_mem.cli.move import mention_exports
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import CannotDo, Misuse, NotFound
from claude_mem.text import local

TEXTS = ("type", "title", "subtitle", "narrative")
LISTS = {"facts": "fact", "concepts": "concept"}
STAYS = "The summary of its turn and the raw events are rows of their own and stay."
DAYS = 30
MOST_SHOWN = 5
SECONDS, LOOK_SECONDS = 600.0, 0.1
SCOPES = ("session", "project", "before", "after", "source", "matching")


def add_commands(commands: Any) -> None:
    save_ = commands.add_parser(
        "save",
        help="remember something you say",
        epilog="Without TEXT, what is piped in is the note (`echo … | claude-mem save`); `-` waits for a slow pipe. A"
        " hook's payload on stdin, a JSON object with `session_id` or `hook_event_name`, is an agent's event.",
    )
    save_.add_argument("text", nargs="*", metavar="TEXT", help="any words; `-` reads them from stdin")
    save_.add_argument("--title", default="", metavar="T", help="default: its first sentence")
    save_.add_argument("--project", default="", metavar="P", help="default: the project of this folder")
    save_.add_argument(
        "--rule", action="store_true", help="a standing rule: shown first at every start (`Always …` is one by itself)"
    )
    save_.set_defaults(run=save)
    for name, run, help_ in (
        ("pin", pin, "tell these first at every start of a session"),
        ("unpin", unpin, "no longer tell these first"),
    ):
        pin_ = commands.add_parser(name, help=help_)
        pin_.add_argument("ids", nargs="+", type=_id, metavar="ID", help="of an observation, as in `claude-mem list`")
        pin_.set_defaults(run=run)
    _add_edit(commands)
    _add_forget(commands)


def _add_forget(commands: Any) -> None:
    forget_ = commands.add_parser(
        "forget",
        help="forget observations, or all that fits a scope; for 30 days that can be undone",
        epilog=f"What will go is shown first. Scopes add up: what goes fits all of them. By ID: {STAYS} What can't be"
        " recalled (what a provider was sent, snapshots, your own copies) is in docs/forgetting.md.",
    )
    forget_.add_argument(
        "ids", nargs="*", type=_id_or_deletion, metavar="ID", help="of an observation, as in `claude-mem list`"
    )
    forget_.add_argument("--session", default="", metavar="ID", help="a session, by its number or the agent's own id")
    forget_.add_argument("--project", default="", metavar="P", help="a project, by its name")
    forget_.add_argument("--before", type=date_, metavar="T", help="older: 2026-01-31, or with a time")
    forget_.add_argument("--after", type=date_, metavar="T", help="not older than that")
    forget_.add_argument(
        "--source",
        default="",
        metavar="S",
        help="an agent, `import`, `external`, a kind of trust, a file or an address",
    )
    forget_.add_argument("--matching", default="", metavar="TEXT", help="says this, in any case of letters")
    how = forget_.add_mutually_exclusive_group()
    how.add_argument("--now", action="store_true", help="erase for good, in every file and every backup of ours")
    how.add_argument("--undo", action="store_true", help="bring back observations by ID, or a whole forgetting (F3)")
    forget_.add_argument("--yes", action="store_true", help="never ask")
    forget_.add_argument("--json", action="store_true", help="one JSON object a line")
    forget_.set_defaults(run=forget)


def _add_edit(commands: Any) -> None:
    edit_ = commands.add_parser(
        "edit",
        help="correct an observation; from then on it is yours and no model changes it",
        epilog="Without options, on a terminal, $VISUAL or $EDITOR opens it.",
    )
    edit_.add_argument("id", type=_id, metavar="ID", help="of an observation, as in `claude-mem list`")
    for name in TEXTS:
        edit_.add_argument(f"--{name}", metavar="TEXT", help=f"its new {name}")
    edit_.add_argument("--fact", action="append", metavar="TEXT", help="a fact; those given replace all there are")
    edit_.add_argument("--concept", action="append", metavar="WORD", help="a concept; likewise")
    edit_.set_defaults(run=edit)


def _id_or_deletion(text: str) -> int | str:
    """An observation by its ID; or a whole forgetting, as in F3."""
    number = text[1:]
    is_deletion = text[:1] in ("F", "f") and number.isascii() and number.isdigit() and len(number) < 18
    return f"F{int(number)}" if is_deletion else _id(text)


def _id(text: str) -> int:
    number = text.removeprefix("#")
    if not number.isascii() or not number.isdigit() or not 0 < int(number[:19]) < 1 << 62:
        raise argparse.ArgumentTypeError(f"{text!r} is no observation; its ID is a whole number, as in 12")
    return int(number)


def _client() -> Client:
    return Client(process.start(load_forgiving().config.data_dir), by=person.speaker())


def _fetch_all(client: Client, ids: list[int]) -> list[dict[str, Any]]:
    """All of them, each once, or an error before anything is done."""
    items: list[dict[str, Any]] = client.post("/api/observations/batch", {"ids": list(dict.fromkeys(ids))})["items"]
    if missing := sorted(set(ids) - {item["id"] for item in items}):
        raise NotFound(
            f"no observation {', '.join(map(str, missing))}; nothing was changed",
            hint="`claude-mem list` or `claude-mem search` shows what there is",
        )
    held.warn(items)  # their titles are said
    return items


# --- save, pin -------------------------------------------------------------------------------------------------------


def save(options: argparse.Namespace) -> int:
    where = {"project": options.project} if options.project else {"cwd": str(Path.cwd())}
    body = {"text": _note_text(options.text, options.piped), "title": options.title, **where}
    note = _client().post("/api/memory/save", body | ({"type": "rule"} if options.rule else {}))
    label = f"rule {note['id']}" if note["type"] == "rule" else note["id"]
    output.line(f"saved as {label} in {note['project']}: {note['title']}")
    if note["held"]:
        output.say(f"it is told to no session before you approve it (`claude-mem open`, Quarantine): {note['held']}")
    return 0


def _note_text(words: list[str], piped: tuple[bytes, bool] | None) -> str:
    """The words, or else what was piped in. Only `-` waits for stdin to end: in a script it may never do so."""
    if words == ["-"]:
        text = sys.stdin.read() if sys.stdin else ""
    elif words or output.can_ask():
        text = " ".join(words)
    else:
        text = _decoded(*(piped or hook.read_stdin()))
    if not text.strip():
        raise Misuse("there is nothing to save", hint="claude-mem save what you want remembered")
    return text


def _decoded(raw: bytes, whole: bool) -> str:
    if raw.strip() and not whole:
        problem = f"stdin did not end within {hook.READ_SECONDS:g} s, or is larger than {hook.MAX_PAYLOAD >> 20} MB"
        raise Misuse(f"{problem}; nothing was saved", hint="`claude-mem save -` waits for its end")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Misuse("stdin is not text in UTF-8; nothing was saved", hint="convert it with iconv") from None
    if "\0" in text:
        raise Misuse("stdin is not text; nothing was saved", hint="a note is text in UTF-8")
    return text


def pin(options: argparse.Namespace) -> int:
    client = _client()
    for item in _fetch_all(client, options.ids):
        if item["pinned"]:
            output.line(f"{item['id']} was pinned already: {item['title']}")
        else:
            client.post(f"/api/observation/{item['id']}/pin")
            output.line(f"pinned {item['id']}: {item['title']}")
    return 0


def unpin(options: argparse.Namespace) -> int:
    client = _client()
    for item in _fetch_all(client, options.ids):
        if item["pinned"]:
            client.delete(f"/api/observation/{item['id']}/pin")
            output.line(f"unpinned {item['id']}: {item['title']}")
        else:
            output.line(f"{item['id']} was not pinned: {item['title']}")
    return 0


# --- forget ----------------------------------------------------------------------------------------------------------


def forget(options: argparse.Namespace) -> int:
    scope = {name: value for name in SCOPES if (value := getattr(options, name))}
    client, ids = _client(), list(dict.fromkeys(options.ids))
    deletion_ids = [id_ for id_ in ids if isinstance(id_, str)]
    if options.undo:
        if scope or not ids:
            raise Misuse("nothing says what to bring back", hint="claude-mem forget --undo F3, or the ID of one")
        return _undo_all(client, ids, as_json=options.json)
    if deletion_ids:
        raise Misuse(f"{deletion_ids[0]} is a forgetting", hint=f"claude-mem forget --undo {deletion_ids[0]}")
    if scope or not ids:
        return _forget_scope({**scope, "ids": ids}, options)
    return _forget_some(client, ids, options)


def _forget_some(client: Client, ids: list[int], options: argparse.Namespace) -> int:
    """Observations by their IDs: each can be brought back by itself."""
    items = _preview_each(client, ids, erase=options.now)
    for item in items:
        _show_preview(item)
    output.say(STAYS)
    pronoun = "it" if len(items) == 1 else "them"
    question = f"erase {pronoun} for good?" if options.now else f"forget {pronoun}? (for {DAYS} days you can undo it)"
    if not options.yes and not output.ask(question):
        output.say("nothing was forgotten (`--yes` does it without asking)")
        return 1
    for item in items:
        result = client.delete(f"/api/observation/{item['id']}{'?now=1' if options.now else ''}")
        _report({**item, **result}, f"{result['status']}: {item['id']}", as_json=options.json)
    if options.now:
        mention_exports(load_forgiving().config)
    else:
        output.say(f"`claude-mem forget --undo {' '.join(map(str, ids))}` brings {pronoun} back")
        if any(item["backups"] for item in items):
            output.say("backups made before still have it (`claude-mem backup --list`); `--now` rewrites them")
    return 0


def _forget_scope(scope: dict[str, Any], options: argparse.Namespace) -> int:
    client = Client(process.start(load_forgiving().config.data_dir), seconds=SECONDS)
    scope = {**scope, "now": options.now}
    preview = client.post("/api/forget/preview", scope)
    _show_scope(preview)
    if preview["empty"]:
        output.say("nothing fits that; nothing was forgotten")
        return 1
    question = "erase all of it for good?" if options.now else f"forget it? (for {DAYS} days you can undo it)"
    if not options.yes and not output.ask(question):
        output.say("nothing was forgotten (`--yes` does it without asking)")
        return 1
    job = _wait_for_job(client, client.post("/api/forget", scope))
    if options.json:
        output.json(job)
    else:
        _show_result(job)
    return 1 if job["error"] or job["left"] or job["copies"].get("failed") else 0


def _wait_for_job(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    with output.progress() as advance:
        while job["busy"]:
            advance(job["doing"] or "looking", job["done"], max(job["total"], 1))
            time.sleep(LOOK_SECONDS)
            job = client.get("/api/forget")
    return job


def _show_scope(preview: dict[str, Any]) -> None:
    parts = [f"{count:,} {name}" for name, count in preview["counts"].items() if count]
    output.say(f"goes: {', '.join(parts) or 'nothing'}")
    for item in preview["first"]:
        output.say(f"  {item['kind']:<11} {item['id']:>6}  {local(item['at']):%Y-%m-%d}  {item['title']}")
    if preview["made_again"]:
        output.say(f"{preview['made_again']:,} turns are digested again, from what is left of them")


def _show_result(job: dict[str, Any]) -> None:
    if job["error"]:
        output.error(job["error"], "what was begun is finished when the worker starts again")
        return
    name = f"F{job['number']}"
    if not job["erased"]:
        output.line(f"forgotten: {name}")
        output.say(
            f"`claude-mem forget --undo {name}` brings all of it back, until {local(job['undo_until']):%Y-%m-%d}"
        )
        return
    copies = ", ".join(f"{len(names)} {outcome}" for outcome, names in job["copies"].items())
    output.line(f"erased: {name}; backups: {copies or 'none'}")
    for path in job["left"]:
        output.say(f"still in {path}: {_why_left(path)}")
    for path in job["copies"].get("failed", ()):
        output.say(f"{path} could not be rewritten: `claude-mem logs` says why; delete it if it must go")
    mention_exports(load_forgiving().config)


def _why_left(path: str) -> str:
    if path.startswith("exports/"):
        return "an export is not changed; delete it if it must go"
    return _READ if path.endswith("-wal") else _NAMED


_NAMED = "it says so in a name or a path; forget that project or session, too"
_READ = "something reads the database and does not let go of it; the worker tries again by itself"


def _preview_each(client: Client, ids: list[int], *, erase: bool) -> list[dict[str, Any]]:
    """What would go with each of them, or an error before anything is done."""
    items, missing = [], []
    for obs_id in ids:
        try:
            items.append(client.get(f"/api/observation/{obs_id}/forget"))
        except NotFound:
            missing.append(obs_id)
    missing += [item["id"] for item in items if item["forgotten"] and not erase]
    if missing:
        raise NotFound(
            f"no observation {', '.join(map(str, sorted(missing)))}; nothing was changed",
            hint="`claude-mem list` or `claude-mem search` shows what there is; `--undo` brings forgotten ones back",
        )
    return items


def _show_preview(item: dict[str, Any]) -> None:
    goes, number = item["goes"], item["id"]
    output.say(f"{number:>6}  {local(item['created_at']):%Y-%m-%d}  {item['title']}")
    entries = sum(goes["index"].values())
    parts = [f"{entries} entries of the index"] if entries else []
    parts += [f"its line at the start of sessions in {folder}" for folder in goes["starts"]]
    parts += [f"{other}, which was merged into it" for other in goes["merged"]]
    if parts:
        output.say(f"        goes with it: {', '.join(parts)}")
    for copy in item["stays"][:MOST_SHOWN]:
        output.say(f"        stays: {copy['kind']} {copy['id']}, with {copy['shared']} of its {copy['words']} words")
    if more := len(item["stays"][MOST_SHOWN:]):
        output.say(f"        stay: {more} more like these")
    if item["into"]:
        output.say(f"        stays: observation {item['into']}, into which it was merged")


def _undo_all(client: Client, ids: list[int | str], *, as_json: bool) -> int:
    for id_ in ids:
        if isinstance(id_, int):
            _undo(client, [id_], as_json=as_json)
            continue
        result = client.post(f"/api/forget/{id_[1:]}/undo")
        parts = ", ".join(f"{count:,} × {kind}" for kind, count in result["counts"].items())
        _report(result, f"undone: {id_} ({parts or 'nothing was left'})", as_json=as_json)
    return 0


def _undo(client: Client, obs_ids: list[int], *, as_json: bool) -> int:
    for obs_id in obs_ids:
        result = client.post(f"/api/observation/{obs_id}/undo")
        others = [str(other) for other in result["ids"] if other != obs_id]
        more = f"; {', '.join(others)} came back with it" if others else ""
        title = result["observation"]["title"]
        _report({"id": obs_id, **result}, f"undone ({result['undone']}): {obs_id} {title}{more}", as_json=as_json)
    return 0


def _report(record: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        output.json(record)
    else:
        output.line(text)


# --- edit ------------------------------------------------------------------------------------------------------------


def edit(options: argparse.Namespace) -> int:
    changes = _changes_from_options(options)
    if not changes and not output.can_ask():
        raise Misuse("nothing says what to change", hint="--title, --narrative, …; on a terminal an editor opens")
    client = _client()
    (item,) = _fetch_all(client, [options.id])
    changes = changes or _edit_in_editor(item)
    if not changes:
        output.say("nothing was changed")
        return 0
    updated_row = client.patch(f"/api/observation/{item['id']}", changes)
    output.line(f"changed {', '.join(changes)} of {updated_row['id']}: {updated_row['title']}")
    return 0


def _changes_from_options(options: argparse.Namespace) -> dict[str, Any]:
    option_names = {**{name: name for name in TEXTS}, **LISTS}
    return {name: value for name, option in option_names.items() if (value := getattr(options, option)) is not None}


def _edit_in_editor(item: dict[str, Any]) -> dict[str, Any]:
    """What a person changed in the form. Text that can't be read is not thrown away."""
    folder = Path(tempfile.mkdtemp(prefix="claude-mem-"))  # a folder, so that the editor's own copies go with it
    path = folder / f"observation-{item['id']}.toml"
    path.write_text(form(item), "utf-8")
    while True:
        _open_editor(path)
        try:
            changes = changed(form(item), path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            output.error(f"the form can't be read: {error}", "mend the quotes")
            if not output.ask("edit it again?", default=True):
                raise CannotDo("nothing was changed", hint=f"what you wrote is in {path}") from error
        else:
            shutil.rmtree(folder, ignore_errors=True)
            return changes


def _open_editor(path: Path) -> None:
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        subprocess.run([*command, str(path)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(path.parent, ignore_errors=True)
        hint = "set EDITOR to one that is there, or use --title, --narrative, …"
        raise CannotDo(f"the editor {command[0]} failed; nothing was changed", hint=hint) from error


def form(item: dict[str, Any]) -> str:
    """An observation as TOML, for a person."""
    lines = [
        f"# Observation {item['id']} of {_quoted(item['project'])}. Change what is wrong, save, and close the editor.",
        "# What you leave as it is stays as it is.",
        *(f"{name} = {_quoted(item[name] or '')}" for name in TEXTS[:-1]),
        f"narrative = {_long(item['narrative'] or '')}",
    ]
    for name in LISTS:
        lines += [f"{name} = [", *(f"    {_quoted(part)}," for part in item[name]), "]"]
    return "\n".join(lines) + "\n"


def changed(before: str, after: str) -> dict[str, Any]:
    """What is different in the second form. The worker checks what it is sent."""
    old, new = (
        {name: part.strip() if isinstance(part, str) else part for name, part in tomllib.loads(text).items()}
        for text in (before, after)
    )
    return {name: part for name, part in new.items() if part != old.get(name)}


def _quoted(text: str) -> str:
    """JSON's strings are TOML's, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long(text: str) -> str:
    """Over several lines, as it is; if TOML can't have it as it is, quoted."""
    raw = f"'''\n{text}'''"
    try:
        return raw if tomllib.loads(f"x = {raw}")["x"] == text else _quoted(text)
    except tomllib.TOMLDecodeError:
        return _quoted(text)
