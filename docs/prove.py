"""Write the figures that `make proof` measured into `proof.md`: every promise, its figure, how to see it again.

`--keep`: only some suites were run. The figures of the others stay as the page has them, each suite with its date.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FOUND = DOCS.parent / "build" / "proof"
RESULTS = DOCS.parent / "bench" / "results"
# The suites in the order of what they promise; one that is not named here comes last, under its own name.
TITLES = {
    "kills": "No event is lost or stored twice, whichever process is killed",
    "powerloss": "A power cut loses nothing that was acknowledged",
    "io_errors": "A disk that fails, fills up or becomes read-only",
    "disk": "Real disks that fill up or become read-only under a worker",
    "processes": "Exactly one worker, whatever is stale; when it stops, everything stops",
    "clock": "Clocks that jump",
    "upgrades": "Upgrades",
    "damage": "A damaged database is detected, quarantined and replaced",
    "keeping": "Proven backups, and retention",
    "room": "Disk space",
    "small_files": "Damage to small files",
    "soak": "A heavy day in ten minutes",
    "crowd": "A hundred sessions at once",
    "large_transcripts": "Large and hostile transcripts",
    "faults": "Providers that fail",
    "spending": "Spending",
    "conformance": "Credentials: which key is used",
    "claude": "claude-mem does not observe itself",
    "bench": "Cost to the user (from `make bench`)",
    "port": "The port: access",
    "wire": "The port: malformed requests, and the five clients",
    "box": "Other users of the machine",
    "hostile_backups": "Backups from other people",
    "hostile_imports": "Imports from other people",
    "schema": "The API conforms to its OpenAPI document",
    "fuzz": "Generated inputs",
    "fuzz_atheris": "Inputs found by coverage",
    "secrets": "Secrets",
    "secret_shapes": "Secrets in the formats of many tools",
    "scrub": "Secrets stored before a rule existed",
    "poison": "External text gives no instructions",
    "foreign": "External text shown by local tools",
    "forget": "Forgotten data is gone",
    "audit": "The audit log",
    "git_files": "False `.git` folders",
    "repositories": "Copies, moves and remotes of repositories",
    "environment": "What the environment and the working folder can choose",
    "ownership": "Transcripts of other sessions",
    "egress": "Network connections",
    "hook_fuzz": "Hooks: odd inputs, odd environments",
    "bad_input": "Malformed input and failing surroundings",
    "patterns": "No regular expression blows up",
    "search": "Any string is a valid query",
    "projects": "Projects are never confused",
    "paths": "External paths lead nowhere",
    "terminal": "Stored text on a terminal",
    "privacy": "Private text",
    "visits": "How a browser logs in",
    "context": "Size of injections",
    "xss": "The viewer",
}
NOT_COVERED = """\
- The figures come from one machine: two cores of a virtual machine with a fast virtual disk. Times depend on it; counts do not.
- Power loss is simulated at the level of files (only synced data survives, sectors are torn). Whether a drive honours a
  sync cannot be tested here. Nothing was run on macOS or Windows.
- The prompt-injection suite uses no real model. An obedient scripted model is the worst case for what is stored, not
  for what an agent then does with it.
- What was sent to a provider cannot be recalled. File system snapshots and your own copies are out of reach.
- A day of load is compressed into ten minutes; leaks that depend on calendar time would not show."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    name: str
    promise: str
    figure: str
    why: str = ""


def main() -> int:
    given = tomllib.loads((DOCS / "goals.toml").read_text("utf-8"))
    parts = {part["title"]: [Goal(name, **about) for name, about in part["goals"].items()] for part in given["part"]}
    found = {path.stem: _records(path) for path in sorted(FOUND.glob("*.json"))}
    keep = "--keep" in sys.argv[1:]
    if not found and not keep:
        sys.exit(f"{FOUND} holds no figures; `make proof` makes them")
    found["bench"] = [_benched(**figure) for figure in given["figure"]]
    if keep:
        found = {**_kept((DOCS / "proof.md").read_text("utf-8")), **found}
    (DOCS / "proof.md").write_text("\n".join(_page(parts, found)) + "\n", "utf-8")
    every = [record for records in found.values() for record in records]
    short = [goal for goals in parts.values() for goal in goals if _state(goal, every) != "reached"]
    unexplained = [goal.name for goal in short if not goal.why]
    sys.stdout.write(
        f"docs/proof.md: {len(every)} figures; goals not reached: {[goal.name for goal in short] or 'none'}\n"
    )
    if unexplained:
        sys.stdout.write(f"nobody says why of {', '.join(unexplained)}\n")
    return int(bool(unexplained))


# --- what was measured -----------------------------------------------------------------------------------------------


def _records(path: Path) -> list[Record]:
    """The last of each name, for a suite may have been run again; but those that are tallied are added up."""
    kept: dict[str, Record] = {}
    for record in map(json.loads, path.read_text("utf-8").splitlines()):
        if record.get("tally") and (before := kept.get(record["name"])):
            record["measured"] += before["measured"]
            record["ok"] &= before["ok"]
        kept[record["name"]] = record
    return list(kept.values())


def _benched(of: str, file: str, name: str, most: float | None = None, least: float | None = None) -> Record:
    told = json.loads((RESULTS / f"{file}.json").read_text("utf-8"))
    figure = next((figure for figure in told["figures"] if figure["name"] == name), None)
    if figure is None:
        sys.exit(f"bench/results/{file}.json has no figure {name!r}; `make bench` makes it")
    ok = figure["value"] >= least if least is not None else most is not None and figure["value"] <= most
    return {
        "name": name, "of": of.split(), "goal": f"≤ {most:g}" if least is None else f"≥ {least:g}", "ok": ok,
        "measured": figure["value"], "unit": figure["unit"], "note": "", "command": "make bench", "date": told["date"][:10],
    }  # fmt: skip


def _kept(page: str) -> dict[str, list[Record]]:
    """The figures of each suite as the page has them, with the last date that the suite, or else the page, names."""
    suites = {title: suite for suite, title in TITLES.items()}
    latest = re.findall(r"\d{4}-\d\d-\d\d", page)[-1]
    kept: dict[str, list[Record]] = {}
    for section in page.partition("\n# The figures")[2].split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title not in suites:
            continue
        date = (re.findall(r"^Measured ([\d-]+)", text, re.M) or [latest])[-1]
        command = (re.findall(r"^`(.+)`", text, re.M) or ["make proof"])[-1]
        rows = [re.split(r" (?<!\\)\| ?", line[2:]) for line in text.splitlines() if re.match(r"\| [A-Z]\d", line)]
        kept[suites[title]] = [_kept_record(row, command=command, date=date) for row in rows]
    return kept


def _kept_record(row: list[str], **about: str) -> Record:
    of, name, goal, measured, remark = (cell.replace("\\|", "|") for cell in row[:5])
    return {
        "name": name, "of": of.split(), "goal": goal, "measured": measured, "unit": "", "ok": "**missed**" not in remark,
        "note": remark.replace("**missed**", "").strip(), "kept": True, **about,
    }  # fmt: skip


def _state(goal: Goal, every: list[Record]) -> str:
    about = [record for record in every if goal.name in record["of"]]
    if not about:
        return "not measured"
    return "reached" if all(record["ok"] for record in about) and not goal.why else "in part"


# --- the page --------------------------------------------------------------------------------------------------------


def _page(parts: dict[str, list[Goal]], found: dict[str, list[Record]]) -> Iterator[str]:
    every = [record for records in found.values() for record in records]
    missed = [record for record in every if not record["ok"]]
    dates = sorted({record["date"] for record in every})
    yield "# Proof"
    yield ""
    yield "This page lists every promise, the goal that was set before it was implemented, and the measured result. `make proof` runs every"
    yield "suite named here and writes this page. It fails if a test fails, or if a goal is missed without a stated reason."
    yield f"{len(every)} figures, {len(missed)} missed; measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."
    for title, goals in parts.items():
        yield f"\n## {title}\n\n| | promise | goal | result |\n|---|---|---|---|"
        for goal in goals:
            yield f"| {goal.name} | {_cell(goal.promise)} | {_cell(goal.figure)} | {_verdict(goal, every)} |"
    yield "\n# The figures"
    for suite in sorted(found, key=_order):
        yield f"\n## {TITLES.get(suite, suite.replace('_', ' '))}\n"
        yield "| promise | figure | goal | measured | remark |\n|---|---|---|--:|---|"
        for record in found[suite]:
            yield (
                f"| {' '.join(record['of'])} | {_cell(record['name'])} | {_cell(record['goal'])} | {_measured(record)} |"
                f" {_remark(record)} |"
            )
        for command in dict.fromkeys(record["command"] for record in found[suite]):
            yield f"\n`{command}`"
        if found[suite]:
            kept = "; kept from the page before: the suite was not run again" if "kept" in found[suite][0] else ""
            yield f"\nMeasured {max(record['date'] for record in found[suite])}{kept}."
    yield f"\n## Limits\n\n{NOT_COVERED}"


def _order(suite: str) -> tuple[int, str]:
    return (list(TITLES).index(suite) if suite in TITLES else len(TITLES), suite)


def _verdict(goal: Goal, every: list[Record]) -> str:
    state = _state(goal, every)
    if state == "reached":
        return state
    short = [
        f"{record['name']}: {_measured(record)}" for record in every if goal.name in record["of"] and not record["ok"]
    ]
    reasons = "; ".join([*map(_cell, short), *([_cell(goal.why)] if goal.why else [])])
    return f"**{state}**" + (f": {reasons}" if reasons else "")


def _measured(record: Record) -> str:
    return f"{_shown(record['measured'])} {_cell(record['unit'])}".strip()


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return _shown(len(set(value)))  # names that were tallied: how many different ones
    if isinstance(value, dict):
        return ", ".join(f"{_shown(each)} {name}" for name, each in value.items())
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else _cell(value)


def _remark(record: Record) -> str:
    return " ".join(part for part in ("" if record["ok"] else "**missed**", _cell(record["note"])) if part)


def _cell(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
