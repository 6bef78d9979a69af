"""The model path without a model: write the requests of real turns to a folder, and read a folder of answers back.

    python bench/model_path.py render FOLDER [TURN ...] [--project cli|evaluator] [--count 25] [--seed 1]
    python bench/model_path.py merge FOLDER

A TURN is `SESSION:NUMBER`; without any, so many turns are drawn at random, none of a session that is held out (its id's
SHA-256 begins with 0 to 3) unless `--held-out` asks for those alone. `render` writes each request as `NAME.request.md`, exactly as it
would be sent, with the titles that the local writer made of the session's earlier turns as known. Whoever plays the
model (a person, or any model) puts the answer beside it as `NAME.reply.xml`. `merge` reads each answer as the worker
does, joins it with the evidence, and writes what would be remembered as `NAME.memory.md`; it prints the verdicts.
The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`), and nothing that is written
here is ever committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import turns as data

from claude_mem.digest import modes, refine, request, writer
from claude_mem.digest.models.base import Reply, Request, Usage, Verdict
from claude_mem.digest.models.fake import FakeModel
from claude_mem.digest.reply import ParsedReply, parse_reply
from claude_mem.domain.records import Digest, Turn
from claude_mem.privacy.trust import is_held

NAMES = {"cli": "sessions", "evaluator": "evaluator"}
MODE = modes.load_mode(modes.DEFAULT_MODE, modes.BUILTIN_MODES)
REQUEST_TOKENS = 8_000
FENCE = "0123456789abcdef"  # the same each time, so that two renderings can be compared
HELD_OUT = tuple("0123")
MOST_KNOWN = 3 * request.MAX_KNOWN_TITLES
END = "\n\n--- the turn ---\n\n"

Picked = tuple[str, str, Turn, list[str]]  # project, session, turn, what is known before it


def main() -> int:
    options = _options()
    if why := data.missing():
        print(why, file=sys.stderr)
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    return _render(options) if options.command == "render" else _merge(options.folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write requests of real turns, and read answers to them.")
    parser.add_argument("command", choices=["render", "merge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("turns", nargs="*", help="SESSION:NUMBER; the beginning of a session's id is enough")
    parser.add_argument("--project", choices=list(NAMES), help="draw turns of this project only")
    parser.add_argument("--count", type=int, default=25, help="turns to draw of each project (default: 25)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", action="store_true", help="draw from the sessions that are held out")
    return parser.parse_args()


# --- writing requests ------------------------------------------------------------------------------------------------


def _render(options: argparse.Namespace) -> int:
    for project in [options.project] if options.project else list(NAMES):
        for picked in _drawn(list(_all(project)), options):
            _write(options.folder, picked)
    return 0


def _all(project: str) -> Iterator[Picked]:
    for session, turns in data.sessions(NAMES[project]):
        known: list[str] = []
        for turn in turns:
            yield project, session, turn, known[::-1][:MOST_KNOWN]
            known += [draft.title for draft in writer.compose_digest(turn).observations if draft.title]


def _drawn(everything: Sequence[Picked], options: argparse.Namespace) -> list[Picked]:
    if options.turns:
        named = [name.rpartition(":") for name in options.turns]
        return [item for item in everything for own, _, number in named if _is(item, own, number)]
    fitting = [item for item in everything if _is_held_out(item[1]) == options.held_out and _has_work(item[2])]
    return random.Random(options.seed).sample(fitting, min(options.count, len(fitting)))


def _is(item: Picked, session: str, number: str) -> bool:
    return item[1].startswith(session) and str(item[2].number) == number


def _is_held_out(session: str) -> bool:
    return hashlib.sha256(session.encode()).hexdigest().startswith(HELD_OUT)


def _has_work(turn: Turn) -> bool:
    """Return whether a model would be asked about it: there is an answer, or a tool was used."""
    return len(turn.bodies) > 1


def _write(folder: Path, picked: Picked) -> None:
    project, session, turn, known = picked
    name = f"{project}-{session[:8]}-{turn.number:02}"
    made = _request(turn, project, known)
    folder.joinpath(f"{name}.request.md").write_text(f"{made.system}{END}{made.prompt}\n", "utf-8")
    about = {"project": project, "session": session, "number": turn.number, "known": known}
    folder.joinpath(f"{name}.json").write_text(json.dumps(about), "utf-8")
    print(f"{name}: {request.max_total_tokens(made):,} tokens at most")


def _request(turn: Turn, project: str, known: Sequence[str]) -> Request:
    wanted = request.RequestOptions(mode=MODE, request_tokens=REQUEST_TOKENS)
    return request.build_request(turn, wanted, project=project, known_titles=known, fence=FENCE)


# --- reading answers -------------------------------------------------------------------------------------------------


def _merge(folder: Path) -> int:
    answered = {path.name.removesuffix(".reply.xml"): path for path in sorted(folder.glob("*.reply.xml"))}
    about = {name: json.loads(folder.joinpath(f"{name}.json").read_text("utf-8")) for name in answered}
    for project, source in NAMES.items():
        mine = {(item["session"], item["number"]): name for name, item in about.items() if item["project"] == project}
        sessions = {session for session, _ in mine}
        for session, turns in data.sessions(source) if mine else ():
            for turn in turns if session in sessions else ():
                if name := mine.get((session, turn.number)):
                    _digest(folder, name, turn, about[name]["known"], answered[name].read_text("utf-8"))
    return 0


def _digest(folder: Path, name: str, turn: Turn, known: Sequence[str], reply: str) -> None:
    sent = _request(turn, name.partition("-")[0], known)
    answer = parse_reply(reply, sent, types=tuple(MODE.types), concepts=tuple(MODE.concepts))
    asked = refine.ModelExchange(
        request=sent,
        model=FakeModel(reply),
        verdict=answer.verdict,
        reply=Reply(verdict=Verdict.OK, text=reply),
        parsed=answer,
        memory_session_id="",
        usage=Usage(),
        cost=0,
    )
    made = refine.merge_exchange(turn, asked)
    if made is None:
        print(f"{name}: {answer.verdict}: {answer.message}")
        return
    folder.joinpath(f"{name}.memory.md").write_text("\n".join(_text(made, answer)) + "\n", "utf-8")
    print(f"{name}: {answer.verdict}, {len(answer.observations)} told, {len(made.observations)} kept {answer.message}")


def _text(made: Digest, answer: ParsedReply) -> Iterator[str]:
    for draft in made.observations:
        yield f"- [{draft.type}] {draft.title}{' (held back)' if is_held({'trust': draft.trust, 'verdict': ''}) else ''}"
        yield from (f"  {part}" for part in (draft.subtitle, draft.narrative) if part)
        yield from (f"  - {fact.text}" for fact in draft.facts)
    if answer.skipped:
        yield f"skipped: {answer.skipped}"
    if (summary := made.summary) is not None:
        fields = ("request", "learned", "completed", "next_steps", "notes", "outcome")
        yield from (f"{field}: {value}" for field in fields if (value := getattr(summary, field)))


if __name__ == "__main__":
    sys.exit(main())
