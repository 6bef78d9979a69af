"""Pairs of a memory and a later commit, written for readers who do not know our verdict, and the readers' scores.

    python bench/living_pairs.py draw --out FOLDER --key FILE [--pairs 300] [--links 100] [--seed 17] [--without KEY]
    python bench/living_pairs.py score --key FILE READER READER [READER ...]

`draw` writes a page for each pair (`pair-001.md`: what the memory says, the lines its session wrote, and how their files
differ between the first commit that has them and a later one) and for each link from a memory to its successor
(`link-001.md`). Of each verdict of ours a fixed share is drawn, as far as there are so many, and of each observation one
pair before a second. `--without` leaves out the pairs of an earlier key, and prefers observations that it does not have.
No page says what was predicted: that is in the key, which readers must not see. `README.md` in the folder tells them
what to do.

`score` compares what readers wrote (one line a page: `pair-001 outdated`) with the key: precision, recall, agreement.
Precision and recall are weighted by how many pairs of each kind there are in all. The pages are other people's words
and code: they are never committed.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import living
import turns
from living import Case, History

from claude_mem.digest.line_anchors import TurnLines, collect_lines
from claude_mem.domain import anchors
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one
from claude_mem.storage.sqlite.journal.turns import load_turn

HORIZON_DAYS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 30)
SHARES = {"outdated": 0.4, "superseded": 0.05, "reworked": 0.15, "partly": 0.2, "current": 0.2}  # of the pairs drawn
PAIR_VERDICTS = ("current", "partly", "outdated", "unclear")
PROJECT_SHARES = {"sessions": 2 / 3, "evaluator": 1 / 3}  # of the pairs; the second has few memories that are outdated
LINK_VERDICTS = ("right", "wrong", "unclear")
FILES, WRITTEN_LINES, DIFF_LINES = 4, 40, 120
README = """# What to do

Read each page alone and write one line for it into a text file: its name and a verdict, such as `pair-001 outdated`.
Judge only by what the page shows. Do not look at the repository, and do not talk to other readers.

`pair-NNN`: a memory, and code from the time of its session and later. Would you still give this memory to a colleague
who works on the later code?

- `current`: what it says still holds. Changes elsewhere in the file do not matter.
- `partly`: the main point holds, but something that it says does not.
- `outdated`: the main point no longer holds: what it describes was replaced, removed or works in another way.
- `unclear`: the page does not tell.

`link-NNN`: a memory, and a later one that is said to have replaced it.

- `right`: who knows the later memory no longer needs the earlier one, or would be misled by it: what it describes was
  replaced, removed or redone.
- `wrong`: the earlier memory still says something that holds and that the later one does not say.
- `unclear`: the page does not tell.
"""


# --- draw ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """A page for readers, and what the key says of it."""

    text: str
    key: dict[str, Any]


def draw(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(options.without.read_text("utf-8"))["pages"].values() if options.without else ()
    options.seen = {(page["project"], page["observation"], page["commit"]) for page in earlier if "commit" in page}
    (options.out / "README.md").write_text(README, "utf-8")
    chance = random.Random(options.seed)
    pairs: list[Page] = []
    links: list[Page] = []
    sizes: Counter[str] = Counter()
    for project, share in PROJECT_SHARES.items():
        new_pairs, new_links, counts = _draw_project(project, options, chance, round(options.pairs * share))
        pairs, links = pairs + new_pairs, links + new_links
        sizes.update(counts)
    chance.shuffle(pairs)
    chance.shuffle(links)
    key = {
        **_write_pages(options.out, "pair", pairs),
        **_write_pages(options.out, "link", links[: options.links]),
    }
    options.key.write_text(json.dumps({"sizes": sizes, "pages": key}, indent=1) + "\n", "utf-8")
    print(f"{len(pairs)} pairs, {min(len(links), options.links)} of {len(links)} links; in all {dict(sizes)}")
    return 0


def _write_pages(folder: Path, kind: str, pages: Sequence[Page]) -> dict[str, Any]:
    key = {}
    for number, page in enumerate(pages, 1):
        name = f"{kind}-{number:03}"
        (folder / f"{name}.md").write_text(f"# {name}\n\n{page.text}\n", "utf-8")
        key[name] = page.key
    return key


def _draw_project(
    project: str, options: argparse.Namespace, chance: random.Random, count: int
) -> tuple[list[Page], list[Page], Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        history = History(living.unpack_history(options.data / living.HISTORIES[project], Path(folder)))
        for name in ("data", "tree"):
            Path(folder, name).mkdir(mode=0o700)
        service = asyncio.run(living.ingest(options.data / project, Path(folder, "data")))
        try:
            tree = Path(folder, "tree")
            seen = {(row_id, commit) for name, row_id, commit in options.seen if name == project}
            return service.db.read_now(
                _draw_stored, history, tree, project=project, chance=chance, count=count, seen=seen
            )
        finally:
            service.close()


def _draw_stored(
    conn: Connection,
    history: History,
    tree: Path,
    *,
    project: str,
    chance: random.Random,
    count: int,
    seen: set[tuple[int, str]],
) -> tuple[list[Page], list[Page], Counter[str]]:
    cases = living.collect_cases(conn, history, tree, HORIZON_DAYS)
    cases = list({(case.work.id, case.commit): case for case in cases}.values())
    by_kind: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_kind[_kind(case)].append(case)
    chosen: list[Case] = []
    for kind, share in zip(SHARES, accumulate(SHARES.values()), strict=True):  # what is missing comes from the next
        due = round(count * share) - len(chosen)
        chosen += _choose([case for case in by_kind[kind] if _name(case) not in seen], due, chance, seen=seen)
    pairs = [_pair_page(conn, history, case, project, seen) for case in chosen]
    rows = fetch_all(
        conn, "select id, superseded_by from observations where superseded_by is not null and type != 'rule'"
    )
    links = [_link_page(conn, row["id"], row["superseded_by"], project) for row in rows]
    return pairs, links, Counter({f"{project} {kind}": len(group) for kind, group in by_kind.items()})


def _name(case: Case) -> tuple[int, str]:
    return case.work.id, case.commit


def _kind(case: Case) -> str:
    if case.state in anchors.STALE:
        return "outdated"
    if case.flags[living.LINKS]:
        return "superseded"
    return case.state if case.state in SHARES else "current"


def _choose(cases: Sequence[Case], count: int, chance: random.Random, *, seen: set[tuple[int, str]]) -> list[Case]:
    """Return some of the cases, one of each observation before a second one of any, and before those of observations
    that were seen."""
    shuffled = chance.sample(list(cases), len(cases))
    turn = Counter({row_id: 1 for row_id, _ in seen})
    ranked: list[tuple[int, Case]] = []
    for case in shuffled:
        ranked.append((turn[case.work.id], case))
        turn[case.work.id] += 1
    return [case for _, case in sorted(ranked, key=lambda item: item[0])[:count]]


def _pair_page(conn: Connection, history: History, case: Case, project: str, seen: set[tuple[int, str]]) -> Page:
    commit_index = next(index for index, commit in enumerate(history.commits) if commit.id == case.commit)
    lines = _turn_lines(conn, case.work.id)
    parts = [_memory(conn, case.work.id, lines), f"## {case.days} days later: how the files changed\n"]
    largest = sorted(case.work.lines, key=lambda path: -len(case.work.lines[path]))[:FILES]
    parts += [_file_part(history, case, path, commit_index) for path in largest]
    about = {"project": project, "observation": case.work.id, "commit": case.commit, "days": case.days}
    verdict = {"kind": _kind(case), "state": case.state, "reference": case.survival.is_outdated}
    is_new = case.work.id not in {row_id for row_id, _ in seen}
    return Page("\n\n".join(parts), {**about, **verdict, "new": is_new})


def _turn_lines(conn: Connection, observation_id: int) -> TurnLines:
    row = fetch_one(conn, "select turn_id from observations where id = ?", (observation_id,))
    turn = load_turn(conn, row["turn_id"], with_earlier=False) if row and row["turn_id"] else None
    return collect_lines(turn) if turn else TurnLines({})


def _memory(conn: Connection, observation_id: int, lines: TurnLines, head: str = "The memory") -> str:
    row = fetch_one(conn, "select * from observations where id = ?", (observation_id,))
    assert row is not None
    paths = [path for path in json.loads(row["files_modified"]) if path in lines.files][:FILES]
    written = [_fence(path, [f"+{line}" for line in lines.files[path].added], WRITTEN_LINES) for path in paths]
    return "\n\n".join((f"## {head}\n\n{_text(row)}", "### What its session wrote", *written))


def _text(row: Row) -> str:
    facts = [fact if isinstance(fact, str) else fact.get("text", "") for fact in json.loads(row["facts"] or "[]")]
    lines = [f"**{row['title']}** ({row['type']})", row["narrative"] or "", *(f"- {fact}" for fact in facts)]
    return "\n".join(line for line in lines if line) + f"\n\nFiles: {', '.join(json.loads(row['files_modified']))}"


def _file_part(history: History, case: Case, path: str, until: int) -> str:
    """Return how a file differs between the first commit that has most of the session's lines and a later one."""
    before, name = _first_version(history, case, path, until)
    if before is None:
        return f"### {path}\n\nMost of what the session wrote here is in no commit of the default branch."
    blob = history.commits[until].files.get(name, "")
    title = path if name == path else f"{path}, now {name}"
    if not blob:
        name, count = _find_lines(history, case.work.lines[path], until)
        if not count:
            return f"### {path}\n\nThe file no longer exists, and no other has its lines."
        title = f"{path} no longer exists; compared with {name}, which has {count} of the session's lines"
        blob = history.commits[until].files[name]
    old, new = (history.content(part).decode("utf-8", "replace").splitlines() for part in (before, blob))
    diff = list(difflib.unified_diff(old, new, "then", "later", lineterm="", n=4))
    if not diff:
        return f"### {title}\n\nThe file has not changed."
    return _fence(title, _relevant_first(diff, case.work.lines[path]), DIFF_LINES)


def _find_lines(history: History, lines: frozenset[bytes], until: int) -> tuple[str, int]:
    """Return the file of a commit that has most of these lines, and how many."""
    counts = {name: len(lines & history.hashes(blob)) for name, blob in history.commits[until].files.items()}
    best = max(counts, key=lambda name: counts[name], default="")
    return best, counts.get(best, 0)


def _relevant_first(diff: Sequence[str], lines: frozenset[bytes]) -> list[str]:
    """Return a difference with the parts first that show what became of these lines: the end may be cut off."""
    starts = [number for number, line in enumerate(diff) if line.startswith("@@")]
    parts = [diff[start:end] for start, end in zip(starts, [*starts[1:], len(diff)], strict=True)]

    def count(part: Sequence[str]) -> int:
        return sum(anchors.hash_line(line[1:]) in lines for line in part if line[:1] in ("-", " "))

    ordered = sorted(parts, key=lambda part: -count(part))
    return [*diff[: starts[0]], *(line for part in ordered for line in part)]


def _first_version(history: History, case: Case, path: str, until: int) -> tuple[str | None, str]:
    """Return the blob of the first commit that has most of the session's lines in a file, and the file's name later."""
    lines, name, first = case.work.lines[path], path, None
    for commit in history.commits[history.newest_index(case.work.started_at) + 1 : until + 1]:
        name = commit.renames.get(name, name)
        blob = commit.files.get(name, "")
        if first is None and blob and lines:
            present = history.hashes(blob)
            if sum(line in present for line in lines) * 2 >= len(lines):
                first = blob
    return first, name


def _fence(title: str, lines: Sequence[str], most: int) -> str:
    more = [f"… {len(lines) - most} more lines"] if len(lines) > most else []
    shown = [line[:200].replace("```", "'''") for line in lines[:most]]
    return "\n".join((f"### {title}", "", "```diff", *shown, *more, "```"))


def _link_page(conn: Connection, earlier: int, later: int, project: str) -> Page:
    lines = _turn_lines(conn, later)
    row = fetch_one(conn, "select files_modified from observations where id = ?", (earlier,))
    assert row is not None
    parts = [_memory(conn, earlier, _turn_lines(conn, earlier), "The earlier memory"), _later(conn, later)]
    for path in [path for path in json.loads(row["files_modified"]) if path in lines.files][:FILES]:
        file = lines.files[path]
        change = [*(f"-{line}" for line in file.removed), *(f"+{line}" for line in file.added)]
        parts.append(_fence(f"Later removed from and added to {path}", change, DIFF_LINES))
    return Page("\n\n".join(parts), {"project": project, "observation": earlier, "successor": later})


def _later(conn: Connection, observation_id: int) -> str:
    row = fetch_one(conn, "select * from observations where id = ?", (observation_id,))
    assert row is not None
    return f"## The later memory\n\n{_text(row)}"


# --- score -----------------------------------------------------------------------------------------------------------


def score(options: argparse.Namespace) -> int:
    key = json.loads(options.key.read_text("utf-8"))
    readers = {path.stem: read_verdicts(path, key["pages"]) for path in options.readers}
    for name, verdicts in readers.items():
        print(f"{name}: {len(verdicts)} pages")
        _print_pairs(name, verdicts, key)
        _print_links(name, verdicts)
    for (first, one), (second, other) in combinations(readers.items(), 2):
        both = one.keys() & other.keys()
        agreed = {page: one[page] for page in both if one[page] == other[page]}
        print(f"{first} and {second}: {len(both)} pages")
        for kind in ("pair", "link"):
            judged = [(one[page], other[page]) for page in both if page.startswith(kind)]
            _print_agreement(kind, judged)
        _print_pairs("agreed", agreed, key)
        _print_links("agreed", agreed)
    return 0


def read_verdicts(path: Path, pages: Iterable[str]) -> dict[str, str]:
    """Return a reader's verdicts by page. Lines that name no page or no verdict are reported and skipped."""
    known = set(pages)
    verdicts: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        words = line.strip().lower().replace(":", " ").split()
        allowed = PAIR_VERDICTS if words and words[0].startswith("pair") else LINK_VERDICTS
        if len(words) >= 2 and words[0] in known and words[1] in allowed:
            verdicts[words[0]] = words[1]
        elif words:
            print(f"{path.name}: skipped: {line[:80]}", file=sys.stderr)
    return verdicts


def _print_pairs(name: str, verdicts: dict[str, str], key: dict[str, Any]) -> None:
    for project in (*living.HISTORIES, "both"):
        pages = {
            page: about
            for page, about in key["pages"].items()
            if page.startswith("pair") and project in (about["project"], "both") and page in verdicts
            if verdicts[page] != "unclear"
        }
        new = {page: about for page, about in pages.items() if about["new"]}
        for label, some, flagged, positive in (
            ("outdated or gone, point lost", pages, {"outdated"}, {"outdated"}),
            ("the same, observations never read before", new, {"outdated"}, {"outdated"}),
            ("outdated, gone or superseded, point lost", pages, {"outdated", "superseded"}, {"outdated"}),
            ("outdated or gone, something wrong", pages, {"outdated"}, {"outdated", "partly"}),
            ("and changed in part or reworked", pages, {"outdated", "partly", "reworked"}, {"outdated", "partly"}),
        ):
            judged = [
                (about["kind"] in flagged, verdicts[page] in positive, f"{about['project']} {about['kind']}")
                for page, about in some.items()
            ]
            shown = ", ".join(f"{what} {value}" for what, value in weighted_score(judged, key["sizes"]).items())
            print(f"  {name}, {project}, {label}: {len(judged)} pairs: {shown}")
        table = Counter((about["kind"], verdicts[page]) for page, about in pages.items())
        print(f"  {name}, {project}, read as:", {" ".join(pair): count for pair, count in sorted(table.items())})


def weighted_score(judged: Sequence[tuple[bool, bool, str]], sizes: dict[str, int]) -> dict[str, float | None]:
    """Return precision, recall and the share held back, from (predicted, read, kind) weighted by the kinds' sizes."""
    drawn = Counter(kind for _, _, kind in judged)
    total: defaultdict[tuple[bool, bool], float] = defaultdict(float)
    for predicted, read, kind in judged:
        total[predicted, read] += sizes[kind] / drawn[kind]
    right, false = total[True, True], total[True, False]
    missed, passed = total[False, True], total[False, False]
    return {
        "precision": _ratio(right, right + false),
        "recall": _ratio(right, right + missed),
        "current held back": _ratio(false, false + passed),
    }


def _print_links(name: str, verdicts: dict[str, str]) -> None:
    counts = Counter(verdict for page, verdict in verdicts.items() if page.startswith("link"))
    clear = counts["right"] + counts["wrong"]
    print(f"  {name}: {dict(counts)} links, right {_ratio(counts['right'], clear)}")


def _print_agreement(kind: str, judged: Sequence[tuple[str, str]]) -> None:
    same = _ratio(sum(one == other for one, other in judged), len(judged))
    print(f"  {kind}s: {len(judged)}, agreement {same}, kappa {kappa(judged)}")
    if kind == "pair":
        binary = [(str(one == "outdated"), str(other == "outdated")) for one, other in judged]
        print(f"  {kind}s, outdated or not: kappa {kappa(binary)}")


def kappa(judged: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of two readers: their agreement beyond chance."""
    if not judged:
        return None
    count = len(judged)
    agreed = sum(one == other for one, other in judged) / count
    first, second = Counter(one for one, _ in judged), Counter(other for _, other in judged)
    chance = sum(first[verdict] * second[verdict] for verdict in first) / count**2
    return 1.0 if chance == 1 else round((agreed - chance) / (1 - chance), 3)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Pairs of memories and commits for blind readers.")
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("draw", help="write pages for readers")
    drawing.add_argument("--data", type=Path, default=turns.DATA, help="where the sessions and histories are")
    drawing.add_argument("--out", type=Path, required=True, help="the folder for the pages")
    drawing.add_argument("--key", type=Path, required=True, help="the file for our verdicts")
    drawing.add_argument("--pairs", type=int, default=300)
    drawing.add_argument("--links", type=int, default=100)
    drawing.add_argument("--seed", type=int, default=17)
    drawing.add_argument("--without", type=Path, help="the key of pairs that must not be drawn again")
    drawing.set_defaults(run=draw)
    scoring = commands.add_parser("score", help="compare readers' verdicts with the key")
    scoring.add_argument("--key", type=Path, required=True)
    scoring.add_argument("readers", type=Path, nargs="+", help="one file of each reader")
    scoring.set_defaults(run=score)
    options = parser.parse_args()
    result: int = options.run(options)
    return result


if __name__ == "__main__":
    sys.exit(main())
