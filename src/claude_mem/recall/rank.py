"""Search: finds the memory about a query, best first, and explains the ranking.

Several rankings complement each other: words find what is named, vectors what is meant, and exact signals (a file, an
error, a commit) what cannot be a coincidence. Each ranking is scaled to 0…1 over everything in scope, then they are
added. A sum preserves *how much* better the best one is, which rank fusion discards (77 against 74 % on public data).

Turns are ranked; the most informative item of each turn is shown. A turn is found by any of its texts, so one piece of
work takes one place in the list. Recency and trust only adjust the score: no item becomes unfindable by its age.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from claude_mem.digest.modes import ICONS
from claude_mem.domain import ids, words
from claude_mem.domain.errors import NotFound
from claude_mem.domain.memory_items import GroupItem, MemoryItem
from claude_mem.domain.text import estimate_tokens, make_storable, shorten
from claude_mem.privacy.display import safe_line, trust_suffix, with_external_note
from claude_mem.recall.embed import Embedder
from claude_mem.recall.matrix import Indexer
from claude_mem.recall.models import StaticEmbedder
from claude_mem.recall.nearness import Nearness
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.records import (
    ID_PREFIXES,
    PASSAGES_PER_DOCUMENT,
    STATE_FIELDS,
    SearchFilter,
    SignalMatch,
    TimelinePoint,
    WordScores,
)


@dataclass(frozen=True, slots=True)
class MeaningWeights:
    """How much meaning counts beside words, and how much a short turn borrows from its neighbours."""

    share: float
    near_share: float


# One set of weights for an encoder and one for the built-in embedding, chosen on two projects and a fifth of the public
# data (bench/results/recall.md); similar values work as well.
ENCODER_WEIGHTS = MeaningWeights(share=0.65, near_share=0.3)
BUILT_IN_WEIGHTS = MeaningWeights(share=0.58, near_share=1.0)
SESSION_SHARE = 0.5  # share of a session's best score that its other turns get: related work is contiguous
SIGNAL_WEIGHTS = {"commit": 0.5, "error": 0.4, "edited": 0.25, "read": 0.1, "command": 0.3, "branch": 0.2}
RECENCY_BONUS, CONFIRMED_BONUS = 0.02, 0.02
HALF_LIFE_MS = 30 * 86_400_000
# Below this an item is unrelated to the query: it shares no significant word and is no closer in meaning than texts
# about other subjects. An injection, which the user did not request, has a higher threshold.
FLOOR = 0.05
PROMPT_FLOOR = 0.45
FILES_FLOOR = 0.25  # lower: predicting files needs less evidence than injecting text
MAX_CANDIDATES = 500
GROUPED_HITS, HITS_PER_GROUP = 200, 3
SNIPPET, SNIPPET_BEFORE = 240, 60
MAX_PROMPT_CHARS = 4_000  # characters: the beginning of a pasted log says as much as the whole
KIND_BONUS = {"observation": 0.5, "summary": 0.2, "prompt": 0.1, "turn": 0.0}

# Possessive and anchored at word starts: with backtracking, a pasted key of 20,000 letters took most of a minute.
_BRANCH = re.compile(r"(?<![\w.])[\w.]++(?:[-/][\w.]++)+")
_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    text: str
    where: SearchFilter = field(default_factory=SearchFilter)
    limit: int = 20
    offset: int = 0
    order: str = "relevance"  # or "date_desc", "date_asc"
    floor: float = FLOOR


@dataclass(slots=True)
class SearchCandidate:
    """A turn, or a memory saved by hand, with its score in each ranking."""

    group: int
    thread: int = 0
    words: float = 0.0
    meaning: float = 0.0
    exact: float = 0.0
    score: float = 0.0
    evidence: float = 0.0  # absolute: whether the item is related to the query at all
    term_bits: int = 0  # bit set of the matched words
    signals: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SearchEvidence:
    """The results of the rankings that are computed in the database."""

    words: WordScores
    groups: Mapping[int, float]  # the best word score of each group
    signals: Sequence[SignalMatch]
    scope: Sequence[int] | None  # ids of the documents in scope, if the filter has more than projects


_SHOWN_COLUMNS = (
    "content_session_id", "host", "project", "prompt_number", "type", "created_at", "files", "tokens",
    "session_id", "project_id", "trust", "verdict", "superseded_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hit:
    id: int
    kind: str
    title: str
    score: float
    row: MemoryItem
    explanation: dict[str, Any]

    def as_item(self, *, explain: bool = False) -> MemoryItem:
        """Return the hit as the API, the CLI and the tools show it."""
        row: Mapping[str, object] = self.row
        item: dict[str, object] = {"id": self.id, "kind": self.kind, "title": self.title, "score": round(self.score, 4)}
        item |= {name: row[name] for name in _SHOWN_COLUMNS}
        item |= {name: row[name] for name in STATE_FIELDS if name in row}
        if explain:
            text = snippet(self.row["body"] or "", self.explanation["terms"])
            item |= {"explain": self.explanation, "snippet": text}
        return cast(MemoryItem, item)


def snippet(body: str, terms: Sequence[str]) -> str:
    """Return about two lines of the text around the first of the words."""
    text = " ".join(body.split())
    places = [match.start() for term in terms if (match := re.search(rf"\b{re.escape(term)}", text, re.IGNORECASE))]
    begin = max(0, min(places, default=0) - SNIPPET_BEFORE)
    begin = text.find(" ", begin) + 1 if begin else 0
    return ("… " if begin else "") + shorten(text[begin:], SNIPPET)


# --- searching -------------------------------------------------------------------------------------------------------


async def find_hits(db: Database, indexer: Indexer, question: SearchQuery) -> list[Hit]:
    """Return the hits of one page, best first. Every text is a valid query; an empty one lists by date."""
    if not make_storable(question.text).strip():
        return await _newest(db, question)
    evidence, ranked = await rank_candidates(db, indexer, question)
    page = ranked[question.offset : question.offset + question.limit]
    if question.order != "relevance":
        page = ranked[: max(100, question.offset + question.limit)]
    hits = await db.read(_hits, page, evidence, question.where)
    if question.order != "relevance":
        hits.sort(key=lambda hit: hit.row["created_at"], reverse=question.order == "date_desc")
        hits = hits[question.offset : question.offset + question.limit]
    return hits


async def find_marked_hits(db: Database, indexer: Indexer, question: SearchQuery) -> list[Hit]:
    """Like `find_hits`, for people and agents who search: each observation with its validity."""
    hits = await find_hits(db, indexer, question)
    rows = await db.read(lambda tx: tx.memory.add_states([hit.row for hit in hits]))
    return [replace(hit, row=row) for hit, row in zip(hits, rows, strict=True)]


async def rank_candidates(
    db: Database, indexer: Indexer, question: SearchQuery
) -> tuple[SearchEvidence, list[SearchCandidate]]:
    """Return the evidence of a search, and the candidates that it ranks, best first."""
    text = make_storable(question.text)
    read = db.read(gather_evidence, text, question.where, with_scope=indexer.ready)
    evidence, vector = await asyncio.gather(read, indexer.embed_query(text))
    matrix, embedder = indexer.matrix, indexer.embedder
    if vector is None or matrix is None or embedder is None:
        return evidence, fuse_rankings(evidence, None, floor=question.floor)
    weights = meaning_weights(embedder)
    near = await asyncio.to_thread(
        matrix.nearest,
        vector,
        project_ids=question.where.project_ids,
        document_ids=evidence.scope,
        also_groups=list(evidence.groups),
        near_share=weights.near_share,
    )
    ranked = fuse_rankings(evidence, near, floor=question.floor, scale=embedder.scale, meaning_share=weights.share)
    return evidence, ranked


def meaning_weights(embedder: Embedder) -> MeaningWeights:
    """Return the weights for the vectors of this embedder."""
    return BUILT_IN_WEIGHTS if isinstance(embedder, StaticEmbedder) else ENCODER_WEIGHTS


def gather_evidence(tx: Transaction, text: str, where: SearchFilter, *, with_scope: bool) -> SearchEvidence:
    """Search by words and by exact signals."""
    word_scores = tx.search.score_by_words(words.search_terms(text), where)
    document_ids = tx.search.list_documents_in_scope(where) if with_scope and not where.only_projects else None
    best_scores = word_scores.by_group()
    groups = {
        group: best_scores[group]
        for group in sorted(best_scores, key=lambda group: -best_scores[group])[:MAX_CANDIDATES]
    }
    return SearchEvidence(word_scores, groups, _signals(tx, text, where), document_ids)


def _signals(tx: Transaction, text: str, where: SearchFilter) -> list[SignalMatch]:
    rows: list[SignalMatch] = []
    if paths := words.find_paths(text)[:20]:
        files = tx.search.find_paths_by_suffix(paths)
        rows += tx.search.find_by_signal(where, kinds=("edited", "read"), values=files)
    if commits := _COMMIT.findall(text.lower())[:5]:
        rows += tx.search.find_by_signal(where, kinds=("commit",), values=tx.search.find_commits_by_prefix(commits))
    if branches := _BRANCH.findall(text)[:20]:
        rows += tx.search.find_by_signal(where, kinds=("branch",), values=branches)
    lines = [line.strip() for line in text.splitlines() if line.strip()][:20]
    rows += tx.search.find_by_signal(where, kinds=("error",), values=[words.error_signature(line) for line in lines])
    return rows + tx.search.find_by_signal(where, kinds=("command",), values=[*lines, *re.findall(r"`([^`]+)`", text)])


# --- combining the rankings (pure functions) -------------------------------------------------------------------------


def fuse_rankings(
    evidence: SearchEvidence,
    near: Nearness | None,
    *,
    floor: float,
    scale: tuple[float, float] = (0.0, 1.0),
    meaning_share: float = ENCODER_WEIGHTS.share,
) -> list[SearchCandidate]:
    """Combine the rankings; return the candidates above the floor, best first."""
    candidates: dict[int, SearchCandidate] = {}
    _add_words(candidates, evidence, share=1 - meaning_share if near else 1.0)
    _add_meaning(candidates, near, scale, share=meaning_share)
    _add_signals(candidates, evidence.signals)
    for candidate in candidates.values():
        candidate.score = candidate.words + candidate.meaning + candidate.exact
    _lend_session_scores(candidates)
    relevant = [candidate for candidate in candidates.values() if candidate.evidence >= floor]
    return sorted(relevant, key=lambda candidate: (-candidate.score, candidate.group))


def _add_words(candidates: dict[int, SearchCandidate], evidence: SearchEvidence, *, share: float) -> None:
    scored = evidence.words
    max_score = max(evidence.groups.values(), default=0.0) or 1.0
    for group, score in evidence.groups.items():
        candidates[group] = SearchCandidate(group, words=share * score / max_score)
    for match in scored.matches.values():
        if candidate := candidates.get(match.group):
            candidate.thread = match.thread
            candidate.term_bits |= match.terms
    for candidate in candidates.values():
        candidate.evidence = scored.weight(candidate.term_bits)


def _add_meaning(
    candidates: dict[int, SearchCandidate], near: Nearness | None, scale: tuple[float, float], *, share: float
) -> None:
    if near is None:
        return
    unrelated, related = scale
    for group, score in near.scores.items():
        candidate = candidates.setdefault(group, SearchCandidate(group))
        candidate.thread = near.threads[group]
        candidate.meaning = share * score
        candidate.evidence = max(candidate.evidence, (near.raw[group] - unrelated) / (related - unrelated))


def _add_signals(candidates: dict[int, SearchCandidate], signals: Sequence[SignalMatch]) -> None:
    for row in signals:
        candidate = candidates.setdefault(row.group, SearchCandidate(row.group))
        candidate.thread = row.thread
        candidate.exact = max(candidate.exact, SIGNAL_WEIGHTS[row.kind])
        candidate.evidence = 1.0
        candidate.signals.add(f"{row.kind} {row.value}")


def _lend_session_scores(candidates: Mapping[int, SearchCandidate]) -> None:
    """Raise the other turns of a good hit's session, which is probably the right one, above equals from elsewhere."""
    best: defaultdict[int, float] = defaultdict(float)
    for candidate in candidates.values():
        best[candidate.thread] = max(best[candidate.thread], candidate.score)
    for candidate in candidates.values():
        candidate.score = (candidate.score + SESSION_SHARE * best[candidate.thread]) / (1 + SESSION_SHARE)


# --- grouping ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HitGroup:
    """The hits of one session or of one file, best first."""

    key: str  # the path of the file, or the agent's own id of the session
    score: float
    hits: list[Hit]

    @property
    def best(self) -> list[Hit]:
        """The hits that are shown."""
        return self.hits[:HITS_PER_GROUP]

    def as_item(self, by: str, *, explain: bool = False) -> GroupItem:
        """Return the group as the API and the CLI show it."""
        return GroupItem(
            group=by,
            key=self.key,
            project=self.hits[0].row["project"],
            score=round(self.score, 4),
            count=len(self.hits),
            created_at=max(hit.row["created_at"] for hit in self.hits),
            items=[hit.as_item(explain=explain) for hit in self.best],
        )


async def find_groups(db: Database, indexer: Indexer, question: SearchQuery, by: str) -> list[HitGroup]:
    """Return one page of sessions or files, by the hits that belong to them."""
    hits = await find_marked_hits(db, indexer, replace(question, limit=GROUPED_HITS, offset=0))
    return group_hits(hits, by, order=question.order)[question.offset : question.offset + question.limit]


def group_hits(hits: Sequence[Hit], by: str, *, order: str = "relevance") -> list[HitGroup]:
    """Group hits by `session` or `file`. A group scores as its best hits do, so that a file that much of the right work
    touched comes before one that was touched once; a hit that touched many files says less about each."""
    grouped: defaultdict[tuple[int, str], list[Hit]] = defaultdict(list)
    for hit in hits:
        keys = [hit.row["content_session_id"]] if by == "session" else hit.row["files"]
        for key in dict.fromkeys(keys):
            if key:
                grouped[hit.row["project_id"], key].append(hit)
    groups = [HitGroup(key, _group_score(members, by), members) for (_, key), members in grouped.items()]
    if order == "relevance":
        return sorted(groups, key=lambda group: -group.score)
    return groups  # the hits are in order of time, and so are the groups


def _group_score(hits: Sequence[Hit], by: str) -> float:
    if by == "session":
        return hits[0].score
    return sum(hit.score / math.sqrt(len(hit.row["files"])) for hit in hits[:HITS_PER_GROUP])


# --- building hits ---------------------------------------------------------------------------------------------------


def _hits(tx: Transaction, page: Sequence[SearchCandidate], evidence: SearchEvidence, where: SearchFilter) -> list[Hit]:
    """Return the most informative item of each candidate as a hit."""
    texts = tx.search.list_turn_documents([candidate.group for candidate in page], where)
    document_scores: dict[int, float] = {}
    for passage, match in evidence.words.matches.items():
        document = passage // PASSAGES_PER_DOCUMENT
        document_scores[document] = max(match.score, document_scores.get(document, 0.0))
    max_score = max(document_scores.values(), default=0.0) or 1.0
    selected: list[tuple[SearchCandidate, int]] = []
    for candidate in page:
        documents = texts.get(candidate.group) or ([(-candidate.group, "observation")] if candidate.group < 0 else [])
        if documents:
            best = max(
                documents,
                key=lambda pair: (document_scores.get(pair[0], 0.0) / max_score + KIND_BONUS[pair[1]], -pair[0]),
            )
            selected.append((candidate, best[0]))
    rows = tx.search.load_hits([document_id for _, document_id in selected])
    now = ids.now_ms()
    hits = [
        _hit(candidate, rows[document_id], now, terms=evidence.words.matched_terms(candidate.term_bits))
        for candidate, document_id in selected
        if document_id in rows
    ]
    return sorted(hits, key=lambda hit: -hit.score)


def _hit(candidate: SearchCandidate, row: MemoryItem, now: int, *, terms: Sequence[str] = ()) -> Hit:
    recency = RECENCY_BONUS * 0.5 ** (max(0, now - row["created_at"]) / HALF_LIFE_MS)
    confirmed = CONFIRMED_BONUS if row["trust"] == "user" else 0.0
    explanation = {
        "words": round(candidate.words, 4),
        "meaning": round(candidate.meaning, 4),
        "exact": round(candidate.exact, 4),
        "recency": round(recency, 4),
        "confirmed": round(confirmed, 4),
        "evidence": round(candidate.evidence, 4),
        "terms": sorted(terms),
        "signals": sorted(candidate.signals),
    }
    score = candidate.score * (1 + recency + confirmed)
    return Hit(row["id"], row["kind"], hit_title(row), score, row, explanation)


def hit_title(row: MemoryItem) -> str:
    """Return the title under which a hit is shown."""
    return shorten(row["title"] or row["body"] or "Untitled", 140)


async def _newest(db: Database, question: SearchQuery) -> list[Hit]:
    """List by date, for a query without words."""
    oldest = question.order == "date_asc"
    document_ids = await db.read(
        lambda tx: tx.search.list_documents_by_date(
            question.where, limit=question.limit, offset=question.offset, oldest_first=oldest
        )
    )
    rows = await db.read(lambda tx: tx.search.load_hits(document_ids))
    return [
        _hit(SearchCandidate(0), rows[document_id], ids.now_ms()) for document_id in document_ids if document_id in rows
    ]


# --- at a prompt -----------------------------------------------------------------------------------------------------

# How much each view of `likely_files` counts. Fitted by `bench/files_to_come.py`: do not edit them by hand.
FILE_WEIGHTS = {
    "similar sessions": 0.59,
    "similar turns": 0.6,
    "recent": 0.43,
    "last": 0.45,
    "edited with likely": 0.38,
    "edited with named": 0.5,
    "same name": 0.44,
    "beside named": 0.53,
    "path words": 0.48,
    "branch": 0.49,
    "branch words": 0.52,
}


async def find_for_prompt(
    db: Database, indexer: Indexer, prompt: str, where: SearchFilter, *, items: int
) -> tuple[list[Hit], list[SearchCandidate]]:
    """Return the hits for a prompt, and all turns that the prompt was compared with, best first."""
    text = prompt[:MAX_PROMPT_CHARS]
    evidence, ranked = await rank_candidates(db, indexer, SearchQuery(text=text, where=where, floor=0.0))
    ranked = [candidate for candidate in ranked if candidate.thread != where.exclude_session_id]
    relevant = [candidate for candidate in ranked if candidate.evidence >= PROMPT_FLOOR]
    return await db.read(_hits, relevant[:items], evidence, replace(where, injectable_only=True)), ranked


# --- formatting ------------------------------------------------------------------------------------------------------


def format_hits(hits: Sequence[Hit]) -> str:
    """Format hits for people and agents: one line each, with the tokens it costs to read."""
    if not hits:
        return "Nothing is remembered about that.\n"
    lines = [
        f"{_line(hit)}{trust_suffix(hit.row)} ({hit.row['tokens'] or estimate_tokens(hit.row['body'])} tokens)"
        for hit in hits
    ]
    return with_external_note("\n".join(lines), [hit.row for hit in hits]) + "\n"


def format_groups(groups: Sequence[HitGroup]) -> str:
    """Format groups for people and agents: the file or session on a line, its best hits below it."""
    if not groups:
        return "Nothing is remembered about that.\n"
    lines = []
    for group in groups:
        lines.append(f"{safe_line(group.key)} ({len(group.hits)})")
        lines += [f"  {_line(hit)}{trust_suffix(hit.row)}" for hit in group.best]
    return with_external_note("\n".join(lines), [hit.row for group in groups for hit in group.best]) + "\n"


def _line(hit: Hit) -> str:
    icon = ICONS.get(hit.row["type"] or "", "·")
    mark = {"observation": "", "summary": "S", "prompt": "P", "turn": "T"}[hit.kind]
    return f"{mark}{hit.id} {icon} {safe_line(hit.title)}"


# --- the center of a timeline ----------------------------------------------------------------------------------------


async def find_center(
    db: Database, indexer: Indexer, *, anchor: str, query: str, project_ids: list[int] | None
) -> TimelinePoint:
    """Return the point that `anchor` names, or else the best hit of `query`. Raise `NotFound` if there is none."""
    if anchor.strip():
        return await db.read(lambda tx: tx.memory.parse_timeline_point(anchor))
    await indexer.catch_up()
    where = SearchFilter(project_ids=tuple(project_ids) if project_ids is not None else None, kinds=tuple(ID_PREFIXES))
    hits = await find_hits(db, indexer, SearchQuery(text=query, where=where, limit=1))
    if not query.strip() or not hits:
        raise NotFound("nothing matches the query", hint="name an anchor (ID, S12, date) or use other words")
    return await db.read(lambda tx: tx.memory.get_timeline_point(hits[0].kind, hits[0].id))
