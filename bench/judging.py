"""Blind judging of the memories, in three steps, so that a round can be repeated and its figures checked.

    python bench/judging.py draw FOLDER [--turns 64] [--seed 1]   write FOLDER/NN/turn.md for turns never used before
    python bench/judging.py records FOLDER [--as NAME]            write FOLDER/NN/NAME.json: what the local writer makes of them
    python bench/judging.py collect FOLDER [--as NAME]            print the table of the judges' scores, per project

    python bench/judging.py brief-pages FOLDER [--from BRIEFS]    write the pages for judges of briefs (`briefs.py`)
    python bench/judging.py brief-collect FOLDER [--json FILE]    print the figures of the briefs, per judge and project

Between the steps judges who have not seen the system write `references.json` from `turn.md` alone, and only then open
`NAME.json` and write `NAME-scores.json`, by the rubric of the data set (`memories/RUBRIC.md`).

Only sessions are drawn whose id is in the quarter that nobody may tune on (`is_held_out`), and of those only turns without
a label. Turns of earlier rounds fill up what is missing: they were scored then, but nothing was trained on them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import briefs
import turns
from memories import as_scored

from claude_mem.digest.writer import compose_digest
from claude_mem.domain.records import Prompted, Stopped, ToolUsed, Turn

HERE = Path(__file__).parent
INPUT_CHARS, OUTPUT_CHARS, PREVIOUS_CHARS = 900, 700, 1_500
TURN_CHARS = 60_000
HIDDEN = ("external", "suspect")  # held back until a person approves; nobody is shown them
SCORES = ("useful", "useless", "standalone", "type", "true")
TURN_SCORES = ("title_coverage", "coverage", "open_ok", "missed", "noise")
Key = tuple[str, str, int]


def is_held_out(session: str) -> bool:
    """Return whether a session belongs to the quarter that is kept for judging."""
    return hashlib.sha256(session.encode()).hexdigest()[0] in "0123"


def labelled() -> set[Key]:
    """Return the turns that weights are trained on: those with labels or reference memories."""
    rows = [json.loads(line) for line in (HERE / "labels.jsonl").read_text("utf-8").splitlines()]
    known = {(row["project"], row["session"], row["number"]) for row in rows}
    references = (turns.DATA / "memories" / "dev.jsonl").read_text("utf-8").splitlines()
    return known | {("sessions", row["session"], row["number"]) for row in map(json.loads, references)}


def judged() -> set[Key]:
    """Return the turns of earlier rounds."""
    rounds = json.loads((HERE / "results" / "judges.json").read_text("utf-8"))["rounds"]
    return {(row["project"], row["session"], row["number"]) for rows in rounds.values() for row in rows}


def draw(folder: Path, count: int, seed: int) -> None:
    """Write the turns of a new round, half of them from each project, in random order."""
    dice, trained_on, seen, chosen = random.Random(seed), labelled(), judged(), list[tuple[Key, Turn]]()
    for project in turns.PROJECTS:
        held_out = [
            ((project, session, turn.number), turn)
            for session, all_ in turns.sessions(project)
            if is_held_out(session)
            for turn in all_
            if (project, session, turn.number) not in trained_on and turn.prompt.strip()
        ]
        dice.shuffle(held_out)
        chosen += sorted(held_out, key=lambda item: item[0] in seen)[: count // 2]
    dice.shuffle(chosen)
    for number, ((project, session, position), turn) in enumerate(chosen):
        place = folder / f"{number:02}"
        place.mkdir(parents=True)
        (place / "turn.md").write_text(rendered(turn), "utf-8")
        key = {"project": project, "session": session, "number": position}
        (place / "key.json").write_text(json.dumps(key), "utf-8")
    print(f"{len(chosen)} turns in {folder}, {sum(key in seen for key, _ in chosen)} of them in an earlier round")


def rendered(turn: Turn) -> str:
    """Return a turn as a judge reads it: what came before, the prompt, every call with its result, the closing message."""
    parts = [f"# Turn {turn.number} of a session"]
    for exchange in turn.previous[-2:]:
        parts += ["## BEFORE, THE USER", _cut(exchange.prompt, PREVIOUS_CHARS)]
        parts += ["## BEFORE, THE AGENT", _cut(exchange.closing, PREVIOUS_CHARS)]
    parts += ["## PROMPT", turn.prompt, "## WHAT THE AGENT DID"]
    parts += [_call(body) for body in turn.bodies if isinstance(body, ToolUsed)]
    parts += ["## FURTHER PROMPTS: " + body.text for body in turn.bodies[1:] if isinstance(body, Prompted)]
    parts += ["## CLOSING MESSAGE", *(body.message for body in turn.bodies if isinstance(body, Stopped))]
    return _cut("\n\n".join(parts), TURN_CHARS) + "\n"


def _call(body: ToolUsed) -> str:
    output = body.output if isinstance(body.output, str) else json.dumps(body.output, ensure_ascii=False, default=str)
    given = json.dumps(body.input, ensure_ascii=False, default=str)
    mark = " FAILED" if body.failed else ""
    return f"- {body.name}{mark} {_cut(given, INPUT_CHARS)}\n  → {_cut(output, OUTPUT_CHARS)}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} …[{len(text) - most} characters]… {text[-(most // 3) :]}"


def places(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the folders of a round with the keys of their turns."""
    return [(path.parent, json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*/key.json"))]


def records(folder: Path, name: str) -> None:
    """Write what the local writer makes of each turn of a round."""
    known = {project: dict(turns.sessions(project)) for project in turns.PROJECTS}
    for place, key in places(folder):
        made = compose_digest(known[key["project"]][key["session"]][key["number"] - 1])
        shown = as_scored(made)
        believed = [draft.trust not in HIDDEN for draft in made.observations]
        shown["observations"] = [one for one, ok in zip(shown["observations"], believed, strict=True) if ok]
        del shown["summary"]["closing"]  # judged is what is derived from it
        shown["summary"]["outcome"] = made.summary.outcome if made.summary else ""
        (place / f"{name}.json").write_text(json.dumps(shown, ensure_ascii=False, indent=1), "utf-8")


def collect(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the scores of a round with the keys of their turns, and print the table."""
    rows = [
        {**key, **json.loads((place / f"{name}-scores.json").read_text("utf-8"))}
        for place, key in places(folder)
        if (place / f"{name}-scores.json").is_file()
    ]
    groups = {**{each: [row for row in rows if row["project"] == each] for each in turns.PROJECTS}, "both": rows}
    table = {group: _figures(of) for group, of in groups.items()}
    for figure in (*SCORES, *TURN_SCORES):
        print(f"{figure:16}", *(f"{group} {table[group].get(figure, float('nan')):.2f}" for group in groups), sep="  ")
    print(
        *(f"{group}: {len(of)} turns, {sum(len(row['scores']) for row in of)} records" for group, of in groups.items())
    )
    return rows


def _figures(rows: list[dict[str, Any]]) -> dict[str, float]:
    scores = [one for row in rows for one in row["scores"]]
    if not scores:
        return {}
    share = {
        "useful": [one["useful"] == 2 for one in scores],
        "useless": [one["useful"] == 0 for one in scores],
        "standalone": [one["standalone"] for one in scores],
        "type": [one["type_ok"] for one in scores],
        "true": [one["true"] for one in scores],
        **{each: [row[each] for row in rows if row.get(each) is not None] for each in TURN_SCORES},
    }
    return {each: statistics.fmean(values) for each, values in share.items() if values}


# --- briefs ----------------------------------------------------------------------------------------------------------

INSTRUCTIONS = """# How to judge the briefs

Each folder has the start brief of one session of a real project: half a page that a coding agent, or a new colleague, gets
before the first request, made from the sessions before. `brief.md` is the brief, its lines numbered. `sessions.md` is the
evidence: the turn behind each line, what was asked in the sessions before, and the session that was given the brief.

Read the brief first and imagine that you begin to work on the project now, without knowing what you will be asked. Then
open `sessions.md`. For every numbered line answer:

- `useful`: 1 if you would want this line now: it tells you what was done, decided, demanded or left open, about a thing
  that you can recognize, and it can be understood without having been there. 0 if it is chat, a fragment, a detail that
  nobody needs any more, a repetition of another line, or unclear about what it speaks of. There is no half.
- `false`: 1 if the line says something that the evidence contradicts: it was not done, it is not open, it was taken back
  within what you can see, or the line distorts what was said. Wrong only in the sign of its type (●◆↻✓○): 0, but say so in
  `why`. If the evidence is silent: 0.
- `why`: a few words wherever `useful` is 0 or `false` is 1.

Judge each line alone and be severe. Copy `form.json` to `answers-NAME.json` in the same folder (NAME is your name or
number), fill in `useful`, `false`, `why`, and in `missing` the one line that you would have wanted most and did not get, or
"". Do not change `text`. Do not look at other judges' answers.
"""


def brief_pages(folder: Path, source: Path) -> None:
    """Write for each brief a folder with its numbered lines, the evidence, and the form for the answers."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "INSTRUCTIONS.md").write_text(INSTRUCTIONS, "utf-8")
    names = [path for path in sorted(source.glob("*.md")) if not path.stem.endswith("-sessions")]
    for path in names:
        place = folder / path.stem
        place.mkdir(exist_ok=True)
        text = path.read_text("utf-8")
        judged = list(briefs.judged_lines(text))
        numbers = {line: number for number, line in enumerate(judged, 1)}
        shown = [f"[{numbers[line]}] {line}" if line in numbers else line for line in text.splitlines()]
        (place / "brief.md").write_text("\n".join(shown) + "\n", "utf-8")
        (place / "sessions.md").write_text(path.with_stem(f"{path.stem}-sessions").read_text("utf-8"), "utf-8")
        lines = [
            {"line": n, "text": line, "useful": None, "false": None, "why": ""} for n, line in enumerate(judged, 1)
        ]
        form = {"brief": path.stem, "lines": lines, "missing": ""}
        (place / "form.json").write_text(json.dumps(form, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(f"{len(names)} briefs in {folder}")


def brief_collect(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the answers per judge, and print the share of useful lines, the false ones, and how far judges agree."""
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/answers-*.json")):
        judge = path.stem.removeprefix("answers-")
        answers.setdefault(judge, {})[path.parent.name] = json.loads(path.read_text("utf-8"))
    for judge, by_brief in answers.items():
        for project in briefs.PROJECTS:
            of = [line for name, one in by_brief.items() if name.startswith(project) for line in one["lines"]]
            useful, wrong = sum(line["useful"] == 1 for line in of), sum(line["false"] == 1 for line in of)
            print(f"{judge}: {project} {len(of)} lines, useful {useful / max(1, len(of)):.2f}, false {wrong}")
    pairs = [
        (one["useful"], other["useful"])
        for first, second in itertools.combinations(answers.values(), 2)
        for name in first.keys() & second.keys()
        for one, other in zip(first[name]["lines"], second[name]["lines"], strict=True)
    ]
    if pairs:
        print(
            f"agreement on useful: {statistics.fmean(one == other for one, other in pairs):.2f} of {len(pairs)} lines"
        )
    # The lines are other people's words: only the verdicts are kept.
    return {
        judge: [
            {
                "brief": name,
                "useful": [line["useful"] for line in one["lines"]],
                "false": [line["false"] for line in one["lines"]],
            }
            for name, one in sorted(by_brief.items())
        ]
        for judge, by_brief in answers.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("draw", "records", "collect", "brief-pages", "brief-collect"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--turns", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--as", dest="name", default="rules")
    parser.add_argument("--from", dest="source", type=Path, default=briefs.OUT, help="with brief-pages: the briefs")
    parser.add_argument("--json", type=Path, help="with collect and brief-collect: write the verdicts there")
    args = parser.parse_args()
    if why := turns.missing():
        sys.exit(why)
    match args.step:
        case "draw":
            draw(args.folder, args.turns, args.seed)
        case "records":
            records(args.folder, args.name)
        case "collect":
            rows = collect(args.folder, args.name)
            if args.json:
                args.json.write_text(json.dumps(rows), "utf-8")
        case "brief-pages":
            brief_pages(args.folder, args.source)
        case "brief-collect":
            verdicts = brief_collect(args.folder)
            if args.json:
                args.json.write_text(json.dumps(verdicts), "utf-8")


if __name__ == "__main__":
    main()
