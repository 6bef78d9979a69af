"""Prints settings, commands, routes and the schema into the pages, so that they can't drift. `--check` only compares."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from claude_mem.cli.listing import format_dry_run
from claude_mem.cli.main import build_parser
from claude_mem.config import (
    ENV_PREFIX,
    Config,
    format_toml,
    is_inherited_by_hook_worker,
    list_setting_names,
    setting_description,
)
from claude_mem.curate import refine_on_demand
from claude_mem.digest import modes
from claude_mem.digest.request import RequestOptions, build_request
from claude_mem.storage.sqlite.engine import Database, fetch_all
from claude_mem.worker.http.api import ROUTES

DOCS = Path(__file__).parent


def settings() -> Iterator[str]:
    yield "# Settings"
    yield "Defaults, then `config.toml` in the data directory, then `CLAUDE_MEM_<NAME>` in the environment."
    yield "`claude-mem config` shows every value, where it comes from and why. A value that makes no sense is named with its"
    yield "file and line; hooks and the worker then go on with the default."
    yield "\nWho types `claude-mem start`, `restart` or `serve` may set everything by the environment. A worker that starts by itself"
    yield "(from a hook, from an agent's tools, or for a command that needs one) has the environment of whichever project came first,"
    yield "and serves them all. So it takes what is marked with * from `config.toml` alone: where data goes, what is run, what is spent,"
    yield "what is kept and what is kept safe. `claude-mem doctor` names each such variable that the file does not agree with;"
    yield "`printenv CLAUDE_MEM_X | claude-mem config set x -` puts it there. An address, a proxy or a `claude_path` from the environment"
    yield "is not used, by whomever it was set, while a key for it (or `claude_env_file`) stands in the file."
    yield "\n| setting | default | environment | why |\n|---|---|---|---|"
    for name in list_setting_names():
        default = format_toml(getattr(Config(), name)).replace("|", "\\|")
        variable = f"{ENV_PREFIX}{name.upper()}"
        mark = "" if is_inherited_by_hook_worker(variable) else " *"
        yield f"| `{name}` | `{default}` | `{variable}`{mark} | {setting_description(name)} |"
    yield "\n`data_dir` can only be set by its variable: the hook reads no file."
    yield "\n`claude-mem config set NAME VALUE` checks a value and writes it; a project's own words are in [projects](projects.md)."


def commands() -> Iterator[str]:
    os.environ["COLUMNS"] = "100"  # argparse wraps at the terminal's width; a page has none
    parser = build_parser()
    yield "# Commands"
    yield "Exit codes: 0 success, 1 failure, 2 wrong usage. Results go to stdout, messages to stderr. Listings have `--json`: one object per line."
    yield f"\n```\n{parser.format_help().strip()}\n```"
    for name, command in _subcommands(parser):
        yield f"\n## claude-mem {name}\n\n```\n{command.format_help().strip()}\n```"


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from sorted(action.choices.items())


def routes() -> Iterator[str]:
    yield "# HTTP"
    yield "On 127.0.0.1, port and token in `worker.json`. A request needs `Authorization: Bearer <token>`, or the viewer's"
    yield "credential (`Authorization: Viewer …`), which `POST /open` gives for the code of a link that works once. Only the"
    yield "viewer's own files (no data is in them), `/healthz` and `/open` need neither. All need the exact Host, and no Origin"
    yield "but our own. With the viewer's credential, what changes something must have that Origin and be JSON, and what lets"
    yield "others in or reads files by their path is refused. JSON; times in milliseconds UTC; errors are"
    yield '`{"error", "hint"}` (and `field`, an invalid setting) with 400 (misused), 401 (no credential), 403 (host, origin, not for a browser), 404, 409 (not as'
    yield "things are), 413 (over 8 MB) or 415 (not JSON). `claude-mem routes --openapi` prints an OpenAPI document."

    yield "\n| path | methods | |\n|---|---|---|"
    for path, handlers in ROUTES.items():
        said = {(handler.__doc__ or "").split("\n")[0] for handler in handlers.values()} - {""}
        yield f"| `{path}` | {', '.join(sorted(handlers))} | {' '.join(sorted(said))} |"


def schema() -> Iterator[str]:
    yield "-- Printed from a migrated database, for reading. The truth is in src/claude_mem/storage/sqlite/migrations.\n"
    with tempfile.TemporaryDirectory() as folder:
        db = Database(Path(folder, "x.db"), backups=Path(folder, "backups"))
        found = db.read_now(
            lambda conn: fetch_all(conn, "select sql from sqlite_schema where sql is not null order by rowid")
        )
        db.close()
    for row in found:
        yield f"{row['sql']};\n"


def request() -> Iterator[str]:
    turns, project = refine_on_demand.read_transcript(DOCS / "sample.jsonl", Config())
    wanted = RequestOptions(mode=modes.load_mode(modes.DEFAULT_MODE, modes.BUILTIN_MODES))
    prepared = build_request(turns[-1], wanted, project=project, known_titles=(), fence="0123456789abcdef")
    yield "# What is sent to a model"
    yield "`claude-mem compress --dry-run` shows it for any turn, and sends nothing. For [a sample transcript](sample.jsonl):"
    yield "\n```\n$ claude-mem compress --dry-run docs/sample.jsonl\n"
    yield f"{format_dry_run(refine_on_demand.preview_request(turns[-1], prepared)).rstrip()}\n```"


PAGES = {
    "settings.md": settings,
    "commands.md": commands,
    "api.md": routes,
    "schema.sql": schema,
    "request.md": request,
}


def main() -> int:
    stale = []
    for name, page in PAGES.items():
        text = "\n".join(page()).rstrip() + "\n"
        path = DOCS / name
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run `make docs`")
    return 0


if __name__ == "__main__":
    main()
