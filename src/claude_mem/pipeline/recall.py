"""Question → what is remembered about it, best first, and why.

Several rankings see different things: words what is named, vectors what is meant, exact signals (a file, an error, a
commit) what can't be a coincidence. Each is brought to 0…1 over everything in scope, then they are added: a sum keeps
*how much* better the best one is, which counting ranks throws away (77 against 74 % on public data).

What is ranked are turns; what is shown is the item that says most about it. A turn is found by any of its texts, so one
piece of work takes one place in the list. Recency and trust nudge, they never cut: there is no date beyond which
something can't be found.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from claude_mem import ids, words
from claude_mem.pipeline.context import ICONS, held_mark, noted, safe
from claude_mem.pipeline.index import Indexer, Near
from claude_mem.store import search
from claude_mem.store.database import Connection, Database, Row
from claude_mem.store.search import Filter, WordScores
from claude_mem.text import shorten, storable, tokens

# One set for everything, chosen on the development sets (bench/results/recall.md); neighbouring values do as well.
WORDS, MEANING = 0.35, 0.65
SESSION = 0.5  # what a session's best turn lends to its other turns: work comes in stretches
EXACT = {"commit": 0.5, "error": 0.4, "edited": 0.25, "read": 0.1, "command": 0.3, "branch": 0.2}
RECENT, CONFIRMED = 0.02, 0.02
HALF_LIFE_MS = 30 * 86_400_000
# Below this a thing has nothing to do with the question: no word in common that tells anything, and no closer in
# meaning than texts about something else. What is said unasked has to clear more.
FLOOR = 0.05
PROMPT_FLOOR = 0.45
FILES_FLOOR = 0.25  # where the work will be can be told from less than what there is to say about it
MOST_CANDIDATES = 500
SNIPPET, SNIPPET_BEFORE = 240, 60
MOST_PROMPT = 4_000  # characters: a pasted log says no more about what is meant than its beginning
PREFERRED = {"observation": 0.5, "summary": 0.2, "prompt": 0.1, "turn": 0.0}

Key = TypeVar("Key", int, str)

# From the beginning of a word, and never back: a pasted key of 20,000 letters took most of a minute.
_BRANCH = re.compile(r"(?<![\w.])[\w.]++(?:[-/][\w.]++)+")
_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    where: Filter = field(default_factory=Filter)
    limit: int = 20
    offset: int = 0
    order: str = "relevance"  # or "date_desc", "date_asc"
    floor: float = FLOOR


@dataclass(slots=True)
class Candidate:
    """A turn, or something saved by hand, and what each arm says of it."""

    group: int
    thread: int = 0
    words: float = 0.0
    meaning: float = 0.0
    exact: float = 0.0
    score: float = 0.0
    evidence: float = 0.0  # not relative to the others: is it about the question at all?
    matched: int = 0  # the words, a bit each
    signals: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the arms in the database found."""

    words: WordScores
    groups: Mapping[int, float]  # by group, the best of them
    signals: Sequence[Row]
    scope: Sequence[int] | None  # the documents in scope, where a project alone does not tell


@dataclass(frozen=True, slots=True)
class Hit:
    id: int
    kind: str
    title: str
    score: float
    row: Row
    why: dict[str, Any]

    def as_item(self, *, explain: bool = False) -> Row:
        """As every surface shows it."""
        named = ("content_session_id", "host", "project", "prompt_number", "type", "created_at", "files", "tokens")
        item = {"id": self.id, "kind": self.kind, "title": self.title, "score": round(self.score, 4)}
        marks = ("session_id", "project_id", "trust", "verdict", "superseded_by")
        item |= {name: self.row[name] for name in (*named, *marks)}
        if not explain:
            return item
        return item | {"explain": self.why, "snippet": snippet(self.row["body"] or "", self.why["terms"])}


def snippet(body: str, terms: Sequence[str]) -> str:
    """About two lines of the text, around the first place that has one of the words."""
    text = " ".join(body.split())
    places = [match.start() for term in terms if (match := re.search(rf"\b{re.escape(term)}", text, re.IGNORECASE))]
    begin = max(0, min(places, default=0) - SNIPPET_BEFORE)
    begin = text.find(" ", begin) + 1 if begin else 0
    return ("… " if begin else "") + shorten(text[begin:], SNIPPET)


# --- searching -------------------------------------------------------------------------------------------------------


async def find(db: Database, indexer: Indexer, question: Question) -> list[Hit]:
    """The hits of one page, best first; any text is a question, and none is an error."""
    if not storable(question.text).strip():
        return await _newest(db, question)
    evidence, ranked = await rank(db, indexer, question)
    page = ranked[question.offset : question.offset + question.limit]
    if question.order != "relevance":
        page = ranked[: max(100, question.offset + question.limit)]
    hits = await db.read(_hits, page, evidence, question.where)
    if question.order != "relevance":
        hits.sort(key=lambda hit: hit.row["created_at"], reverse=question.order == "date_desc")
        hits = hits[question.offset : question.offset + question.limit]
    return hits


async def rank(db: Database, indexer: Indexer, question: Question) -> tuple[Evidence, list[Candidate]]:
    text = storable(question.text)
    read = db.read(gather, text, question.where, scope=indexer.ready)
    evidence, vector = await asyncio.gather(read, indexer.question(text))
    matrix, embedder = indexer.matrix, indexer.embedder
    if vector is None or matrix is None or embedder is None:
        return evidence, fuse(evidence, None, floor=question.floor)
    near = await asyncio.to_thread(
        matrix.near,
        vector,
        project_ids=question.where.project_ids,
        document_ids=evidence.scope,
        also=list(evidence.groups),
    )
    return evidence, fuse(evidence, near, floor=question.floor, scale=embedder.scale)


def gather(conn: Connection, text: str, where: Filter, *, scope: bool) -> Evidence:
    """What words and exact signals find."""
    found = search.by_words(conn, words.terms(text), where)
    listed = search.in_scope(conn, where) if scope and not where.only_projects else None
    best = found.by_group()
    groups = {group: best[group] for group in sorted(best, key=lambda group: -best[group])[:MOST_CANDIDATES]}
    return Evidence(found, groups, _signals(conn, text, where), listed)


def _signals(conn: Connection, text: str, where: Filter) -> list[Row]:
    found: list[Row] = []
    if named := words.paths(text)[:20]:
        files = search.paths_like(conn, named)
        found += search.by_signal(conn, where, kinds=("edited", "read"), values=files)
    if commits := _COMMIT.findall(text.lower())[:5]:
        found += search.by_signal(conn, where, kinds=("commit",), values=search.commits_like(conn, commits))
    if branches := _BRANCH.findall(text)[:20]:
        found += search.by_signal(conn, where, kinds=("branch",), values=branches)
    lines = [line.strip() for line in text.splitlines() if line.strip()][:20]
    found += search.by_signal(conn, where, kinds=("error",), values=[words.signature(line) for line in lines])
    return found + search.by_signal(conn, where, kinds=("command",), values=[*lines, *re.findall(r"`([^`]+)`", text)])


# --- fusing: pure ----------------------------------------------------------------------------------------------------


def fuse(
    evidence: Evidence, near: Near | None, *, floor: float, scale: tuple[float, float] = (0.0, 1.0)
) -> list[Candidate]:
    """The candidates above the floor, best first."""
    found: dict[int, Candidate] = {}
    _add_words(found, evidence, share=WORDS if near else 1.0)
    _add_meaning(found, near, scale)
    _add_signals(found, evidence.signals)
    for candidate in found.values():
        candidate.score = candidate.words + candidate.meaning + candidate.exact
    _lend(found)
    kept = [candidate for candidate in found.values() if candidate.evidence >= floor]
    return sorted(kept, key=lambda candidate: (-candidate.score, candidate.group))


def _add_words(found: dict[int, Candidate], evidence: Evidence, *, share: float) -> None:
    scored = evidence.words
    most = max(evidence.groups.values(), default=0.0) or 1.0
    for group, score in evidence.groups.items():
        found[group] = Candidate(group, words=share * score / most)
    for match in scored.matches.values():
        if candidate := found.get(match.group):
            candidate.thread = match.thread
            candidate.matched |= match.terms
    for candidate in found.values():
        candidate.evidence = scored.weight(candidate.matched)


def _add_meaning(found: dict[int, Candidate], near: Near | None, scale: tuple[float, float]) -> None:
    if near is None:
        return
    unrelated, related = scale
    for group, score in near.scores.items():
        candidate = found.setdefault(group, Candidate(group))
        candidate.thread = near.threads[group]
        candidate.meaning = MEANING * score
        candidate.evidence = max(candidate.evidence, (near.raw[group] - unrelated) / (related - unrelated))


def _add_signals(found: dict[int, Candidate], signals: Sequence[Row]) -> None:
    for row in signals:
        candidate = found.setdefault(row["group"], Candidate(row["group"]))
        candidate.thread = row["thread"]
        candidate.exact = max(candidate.exact, EXACT[row["kind"]])
        candidate.evidence = 1.0
        candidate.signals.add(f"{row['kind']} {row['value']}")


def _lend(found: Mapping[int, Candidate]) -> None:
    """The session of a good hit is probably the right one: its other turns come before equals from elsewhere."""
    best: defaultdict[int, float] = defaultdict(float)
    for candidate in found.values():
        best[candidate.thread] = max(best[candidate.thread], candidate.score)
    for candidate in found.values():
        candidate.score = (candidate.score + SESSION * best[candidate.thread]) / (1 + SESSION)


# --- showing ---------------------------------------------------------------------------------------------------------


def _hits(conn: Connection, page: Sequence[Candidate], evidence: Evidence, where: Filter) -> list[Hit]:
    """Of each candidate the item that says most."""
    texts = search.siblings(conn, [candidate.group for candidate in page], where)
    own: dict[int, float] = {}
    for passage, match in evidence.words.matches.items():
        document = passage // search.PASSAGES
        own[document] = max(match.score, own.get(document, 0.0))
    most = max(own.values(), default=0.0) or 1.0
    chosen: list[tuple[Candidate, int]] = []
    for candidate in page:
        of_it = texts.get(candidate.group) or ([(-candidate.group, "observation")] if candidate.group < 0 else [])
        if of_it:
            best = max(of_it, key=lambda pair: (own.get(pair[0], 0.0) / most + PREFERRED[pair[1]], -pair[0]))
            chosen.append((candidate, best[0]))
    rows = search.show(conn, [document_id for _, document_id in chosen])
    now = ids.now()
    hits = [
        _hit(candidate, rows[document_id], now, terms=evidence.words.named(candidate.matched))
        for candidate, document_id in chosen
        if document_id in rows
    ]
    return sorted(hits, key=lambda hit: -hit.score)


def _hit(candidate: Candidate, row: Row, now: int, *, terms: Sequence[str] = ()) -> Hit:
    recent = RECENT * 0.5 ** (max(0, now - row["created_at"]) / HALF_LIFE_MS)
    confirmed = CONFIRMED if row["trust"] == "user" else 0.0
    why = {
        "words": round(candidate.words, 4),
        "meaning": round(candidate.meaning, 4),
        "exact": round(candidate.exact, 4),
        "recency": round(recent, 4),
        "confirmed": round(confirmed, 4),
        "evidence": round(candidate.evidence, 4),
        "terms": sorted(terms),
        "signals": sorted(candidate.signals),
    }
    score = candidate.score * (1 + recent + confirmed)
    return Hit(row["id"], row["kind"], title_of(row), score, row, why)


def title_of(row: Row) -> str:
    return shorten(row["title"] or row["body"] or "Untitled", 140)


async def _newest(db: Database, question: Question) -> list[Hit]:
    """Without words, what there is by date."""
    oldest = question.order == "date_asc"
    listed = await db.read(
        search.newest, question.where, limit=question.limit, offset=question.offset, oldest_first=oldest
    )
    rows = await db.read(search.show, listed)
    return [_hit(Candidate(0), rows[document_id], ids.now()) for document_id in listed if document_id in rows]


# --- which files a prompt will concern -------------------------------------------------------------------------------

FILES_TURNS, FILES_SESSIONS, FILES_MEMORY = 40, 10, 1_500
READ_SHARE = 0.5  # a file that was only read, against one that was edited
BY_SESSION, BY_TURN, BY_FILE, BY_PATH = 1.0, 1.0, 1.0, 0.2
FILE_TURNS = 3  # a file is about what the best of the turns that touched it are about


async def files_of(
    db: Database, prompt: str, ranked: Sequence[Candidate], where: Filter, *, limit: int = 10
) -> list[str]:
    """The repository files that a prompt will probably concern, the likeliest first; not those it names itself."""
    if max((candidate.evidence for candidate in ranked), default=0.0) < FILES_FLOOR:
        return []
    touched = await db.read(search.touched, where, most_turns=FILES_MEMORY)
    return await asyncio.to_thread(_likeliest, prompt[:MOST_PROMPT], ranked, touched, limit)


def _likeliest(prompt: str, ranked: Sequence[Candidate], touched: Sequence[Row], limit: int) -> list[str]:
    scores = likely_files(prompt, ranked, touched)
    given = words.paths(prompt)
    named = [path for path in scores if any(path == name or path.endswith("/" + name) for name in given)]
    return sorted(scores.keys() - set(named), key=lambda path: (-scores[path], path))[:limit]


async def about(
    db: Database, indexer: Indexer, prompt: str, where: Filter, *, items: int, files: int
) -> tuple[list[Hit], list[str]]:
    """What to say at a prompt, ranked once: what is remembered about it, and where the work will probably be."""
    text = prompt[:MOST_PROMPT]
    evidence, ranked = await rank(db, indexer, Question(text=text, where=where, floor=0.0))
    ranked = [candidate for candidate in ranked if candidate.thread != where.but_session]
    telling = [candidate for candidate in ranked if candidate.evidence >= PROMPT_FLOOR]
    hits = await db.read(_hits, telling[:items], evidence, replace(where, unasked=True))
    return hits, await files_of(db, text, ranked, where, limit=files)


def likely_files(prompt: str, ranked: Sequence[Candidate], touched: Sequence[Row]) -> dict[str, float]:
    """Four views, added: what similar sessions touched, what similar turns touched, which files were touched whenever
    such words were said, and whose path has the prompt's words. How often or how lately a file was worked on is not
    among them: it made the list worse (bench/results/recall.md says on what)."""
    close = _relative({candidate.group: candidate.score for candidate in ranked})
    said = _relative({candidate.group: candidate.words for candidate in ranked})
    paths = list(dict.fromkeys(row["value"] for row in touched))
    total: defaultdict[str, float] = defaultdict(float)
    for weight, view in (
        (BY_SESSION, _files_of_sessions(close, touched, _by_session(touched))),
        (BY_TURN, _files_of_turns(close, touched)),
        (BY_FILE, _files_by_words(said, touched)),
        (BY_PATH, _named_by(prompt, paths)),
    ):
        for path, score in _relative(view).items():
            total[path] += weight * score
    return dict(total)


def _relative(scores: Mapping[Key, float]) -> dict[Key, float]:
    """To the best of them."""
    most = max(scores.values(), default=0.0) or 1.0
    return {key: score / most for key, score in scores.items()}


def _by_session(touched: Sequence[Row]) -> dict[int, dict[str, float]]:
    """Each session's files, and how much it had to do with them; sessions in the order they were last at work."""
    files: dict[int, dict[str, float]] = {}
    edits: defaultdict[tuple[int, str], int] = defaultdict(int)
    for row in touched:
        of_session = files.setdefault(row["session_id"], {})
        if row["kind"] == "edited":
            edits[row["session_id"], row["value"]] += row["times"]
            of_session[row["value"]] = 1 + 0.3 * math.log1p(edits[row["session_id"], row["value"]])
        else:
            of_session.setdefault(row["value"], READ_SHARE)
    return files


def _files_of_turns(close: Mapping[int, float], touched: Sequence[Row]) -> dict[str, float]:
    best = set(sorted(close, key=lambda turn: -close[turn])[:FILES_TURNS])
    found: defaultdict[str, float] = defaultdict(float)
    for row in touched:
        if row["turn_id"] in best:
            found[row["value"]] += close[row["turn_id"]] ** 5 * (1.0 if row["kind"] == "edited" else READ_SHARE)
    return found


def _files_of_sessions(
    close: Mapping[int, float], touched: Sequence[Row], files: Mapping[int, Mapping[str, float]]
) -> dict[str, float]:
    """A session's first prompt rarely names what the whole session will touch; whole sessions tell more than turns."""
    nearest: defaultdict[int, float] = defaultdict(float)
    for row in touched:
        nearest[row["session_id"]] = max(nearest[row["session_id"]], close.get(row["turn_id"], 0.0))
    found: defaultdict[str, float] = defaultdict(float)
    for session in sorted(nearest, key=lambda session: -nearest[session])[:FILES_SESSIONS]:
        for path, share in files[session].items():
            found[path] += share * nearest[session] ** 5
    return found


def _files_by_words(said: Mapping[int, float], touched: Sequence[Row]) -> dict[str, float]:
    turns: defaultdict[str, list[float]] = defaultdict(list)
    for row in touched:
        turns[row["value"]].append(said.get(row["turn_id"], 0.0) * (1.0 if row["kind"] == "edited" else READ_SHARE))
    return {path: sum(sorted(scores)[-FILE_TURNS:]) for path, scores in turns.items()}


def _named_by(prompt: str, paths: Sequence[str]) -> dict[str, float]:
    asked = set(words.terms(prompt))
    parts = {path: set(words.terms(path)) for path in paths}
    common: defaultdict[str, int] = defaultdict(int)
    for found in parts.values():
        for part in found:
            common[part] += 1
    return {
        path: sum(math.log(1 + len(parts) / common[part]) for part in found & asked) for path, found in parts.items()
    }


# --- as text ---------------------------------------------------------------------------------------------------------


def listing(hits: Sequence[Hit]) -> str:
    """For people and agents: one line a hit, what it is and what reading it costs."""
    if not hits:
        return "Nothing is remembered about that.\n"
    lines = [f"{_line(hit)}{held_mark(hit.row)} ({_cost(hit)} tokens)" for hit in hits]
    return noted("\n".join(lines), [hit.row for hit in hits]) + "\n"


def _cost(hit: Hit) -> int:
    return hit.row["tokens"] or tokens(hit.row["body"])


def _line(hit: Hit) -> str:
    icon = ICONS.get(hit.row["type"] or "", "·")
    mark = {"observation": "", "summary": "S", "prompt": "P", "turn": "T"}[hit.kind]
    return f"{mark}{hit.id} {icon} {safe(hit.title)}"
