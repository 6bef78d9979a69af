"""Print settings, commands, routes and the schema into the reference pages, and the viewer's types. `--check` only compares."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import typescript

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
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import fetch_all
from claude_mem.worker.http.api import ROUTES

DOCS = Path(__file__).parent


def settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "This page lists every setting with its default, its environment variable and its meaning.\n"
    yield "A value is taken from the environment variable, otherwise from `config.toml` in the data directory, otherwise from the"
    yield "default. `claude-mem config` shows every value and its source; `claude-mem config set NAME VALUE` checks a value and writes"
    yield "it to `config.toml`. An invalid value is reported with its file and line, and hooks and the worker use the default instead."
    yield "Settings of a single project are described in [projects](projects.md).\n"
    yield "If you start the worker yourself (`claude-mem start`, `restart` or `serve`), environment variables override every setting. A"
    yield "worker started by a hook, by an agent's tools or by a command that needs one inherits the environment of whichever project"
    yield "came first, but serves all projects. Such a worker reads the settings marked * only from `config.toml`: they determine where"
    yield "data is sent, which programs run, what is spent, and what is kept and protected. `claude-mem doctor` lists variables that"
    yield "differ from the file; `printenv CLAUDE_MEM_X | claude-mem config set x -` copies one into the file.\n"
    yield "While `config.toml` contains a key (or `claude_env_file`), the address, the proxy and the `claude_path` that receive the key"
    yield "are never taken from the environment. `data_dir` can only be set by its variable, because the hook reads no file."
    yield "\n| setting | default | environment | meaning |\n|---|---|---|---|"
    for name in list_setting_names():
        default = format_toml(getattr(Config(), name)).replace("|", "\\|")
        variable = f"{ENV_PREFIX}{name.upper()}"
        mark = "" if is_inherited_by_hook_worker(variable) else " *"
        yield f"| `{name}` | `{default}` | `{variable}`{mark} | {setting_description(name)} |"


def commands() -> Iterator[str]:
    os.environ["COLUMNS"] = "100"  # argparse wraps at the terminal's width; a page has none
    parser = build_parser()
    yield "# Commands\n"
    yield "This page contains the help text of every command.\n"
    yield "Exit codes: 0 success, 1 failure, 2 wrong usage. Results go to stdout, messages to stderr. Listings have `--json`: one object"
    yield "per line."
    yield f"\n```\n{parser.format_help().strip()}\n```"
    for name, command in _subcommands(parser):
        yield f"\n## claude-mem {name}\n\n```\n{command.format_help().strip()}\n```"


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from sorted(action.choices.items())


def routes() -> Iterator[str]:
    yield "# HTTP API\n"
    yield "This page lists the routes of the worker and the rules that apply to every request. `claude-mem routes --openapi` prints an"
    yield "OpenAPI document with parameters and responses.\n"
    yield "- **Address.** The worker listens on 127.0.0.1. `worker.json` contains the port and the token."
    yield "- **Credential.** A request needs `Authorization: Bearer <token>`, or the viewer's credential (`Authorization: Viewer …`), which"
    yield "  `POST /open` returns for the one-time code of a link. Only the viewer's own files (which contain no data), `/healthz` and"
    yield "  `/open` need neither."
    yield "- **Host and Origin.** Every request needs the exact Host, and no Origin other than our own. With the viewer's credential, a"
    yield "  request that changes something must have that Origin and be JSON. Requests that grant access to others or read files by"
    yield "  path are refused with the viewer's credential."
    yield "- **Format.** JSON; times are in milliseconds UTC."
    yield '- **Errors** are `{"error", "hint"}`, with `field` for an invalid setting. Status codes: 400 (invalid request), 401 (no'
    yield "  credential), 403 (Host, Origin, or not allowed for a browser), 404 (not found), 409 (conflicts with the current state), 413"
    yield "  (over 8 MB), 415 (not JSON)."
    yield "\n| path | methods | purpose |\n|---|---|---|"
    for path, handlers in ROUTES.items():
        purposes = {_first_paragraph(route.handler) for route in handlers.values()} - {""}
        yield f"| `{path}` | {', '.join(sorted(handlers))} | {' '.join(sorted(purposes))} |"


def _first_paragraph(handler: object) -> str:
    return " ".join((handler.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")


def schema() -> Iterator[str]:
    yield "-- Printed from a migrated database, for reading only. The schema is defined in src/claude_mem/storage/sqlite/migrations.\n"
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
    yield "# The request to a model\n"
    yield "This page shows the complete request that a provider receives for one turn, and the records composed without a model.\n"
    yield "`claude-mem compress --dry-run` prints this for any turn and sends nothing. For [a sample transcript](sample.jsonl):"
    yield "\n```\n$ claude-mem compress --dry-run docs/sample.jsonl\n"
    yield f"{format_dry_run(refine_on_demand.preview_request(turns[-1], prepared)).rstrip()}\n```"


def viewer_types() -> Iterator[str]:
    return typescript.declarations(ROUTES)


PAGES = {
    "settings.md": settings,
    "commands.md": commands,
    "api.md": routes,
    "schema.sql": schema,
    "request.md": request,
    "../tools/js/api.d.ts": viewer_types,
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
