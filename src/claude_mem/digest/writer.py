"""Compose memories from evidence alone: no model, no network, deterministic.

The work of a turn becomes one record, composed from the request (`subjects.py`), the evidence (`evidence.py`), the
claims of the closing message (`markdown.py`) and the outcome (`open_steps.py`). `candidates.py` proposes titles, `ranking.py`
picks one, `classify.py` decides the type and whether the record is worth keeping.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from claude_mem.digest import (
    candidates,
    classify,
    composed,
    markdown,
    open_steps,
    prose,
    provenance,
    ranking,
    subjects,
    user_rules,
)
from claude_mem.digest.candidates import TitleCandidate
from claude_mem.digest.composed import lowered
from claude_mem.digest.evidence import (
    Command,
    Edit,
    Evidence,
    Fix,
    FoundText,
    error_line,
    gather_evidence,
    is_specific,
    passed_count,
)
from claude_mem.digest.markdown import Block, Statement
from claude_mem.digest.prose import content_words, names
from claude_mem.digest.provenance import Foreign, Taint
from claude_mem.digest.subjects import Story, find_request
from claude_mem.domain.records import Digest, Draft, Fact, Prompted, Summary, Turn
from claude_mem.domain.text import clip, clip_closing, normalize_title, shorten
from claude_mem.privacy import injection_rules, phrases
from claude_mem.privacy.trust import EXTERNAL

MAX_FACTS = 22
MAX_CLAIMS = 12  # facts taken from the closing message
MAX_REASONS = 3  # facts taken from the plan that was carried out
NARRATIVE_CHARS = 1_200
FIELD_CHARS = 1_500  # maximum length of a summary's field
LEAST_LEFT = 0.25  # share of the agent's words; with less, all of them become a separate record that waits for approval

_QUOTED = re.compile(r"'[^']*'?|\"[^\"]*\"?|<<.*", re.S)


class LocalCompressor:
    """The writer: composes records without a model. `foreign_text` is the setting of that name."""

    def __init__(self, foreign_text: str = provenance.BALANCED) -> None:
        self.foreign_text = foreign_text

    async def compress(self, turn: Turn) -> Digest:
        turn = replace(turn, foreign_text=self.foreign_text)
        return await asyncio.to_thread(compose_digest, turn)  # a long turn takes time and must not block the event loop


def compose_digest(turn: Turn) -> Digest:
    """Return the summary and the observations of a turn."""
    turn = provenance.with_origins(turn)
    stated = user_rules.rules(turn)
    evidence = _without_split_words(provenance.with_plain_errors(gather_evidence(turn), turn))
    foreign = provenance.find_foreign_text(turn)
    turn = replace(turn, prompt=phrases.own_words(turn.prompt))
    closing_trust = "agent"
    if taint := provenance.find_taint(turn):
        own = build_story(
            turn, replace(_without_claims(evidence, taint), message=provenance.grounded_message(evidence, turn, taint))
        )
        drafts, closing_trust = write_records(turn, own), taint.trust
        if not _tells_enough(own, evidence, drafts):
            drafts += _pending_records(turn, evidence, taint)
    elif foreign:
        own = build_story(turn, _unrepeated(evidence, foreign))
        drafts = write_records(turn, own)
        drafts += _repeated(turn, evidence, own, drafts, foreign)
        if foreign.seqs or own.evidence.message != evidence.message:
            closing_trust = EXTERNAL
    else:
        own = build_story(turn, evidence)
        drafts = write_records(turn, own)
    only_records = bool(evidence.commits) and all(map(classify.is_document, evidence.edited_paths))
    drafts = [*stated, *_without_repeats(drafts, turn.known_titles, only_records=only_records)]
    summary = replace(summarize(turn, own), closing=clip_closing(evidence.message), closing_trust=closing_trust)
    weighed = provenance.weigh_all(drafts, turn)
    return Digest(provenance.weigh_summary(summary, turn, weighed), tuple(weighed))


# --- which evidence may be shown ------------------------------------------------------------------------------------------


def _without_claims(evidence: Evidence, taint: Taint) -> Evidence:
    """Return the evidence without external and suspect events, and without claims by subagents or the agent itself:
    commit messages, search terms, plans and texts quoted in commands."""
    return replace(
        evidence,
        searches=(),
        lookups=(),
        reports=(),
        creations=(),
        tasks=(),
        plan="",
        answers=(),
        commands=tuple(_without_quotes(command) for command in evidence.commands if command.seq not in taint.seqs),
        commits=tuple(
            replace(commit, subject="", body="") for commit in evidence.commits if commit.seq not in taint.seqs
        ),
        fixes=tuple(
            Fix(_without_quotes(fix.failed), _without_quotes(fix.passed))
            for fix in evidence.fixes
            if not taint.seqs & {fix.failed.seq, fix.passed.seq}
        ),
        unsolved=tuple(_without_quotes(command) for command in evidence.unsolved if command.seq not in taint.seqs),
        moves=tuple(move for move in evidence.moves if move.seq not in taint.seqs),
    )


def _without_split_words(evidence: Evidence) -> Evidence:
    """Return the evidence without commit subjects if they read like instructions to an agent only when joined."""
    lines = [commit.subject for commit in evidence.commits if commit.subject]
    orders = (lines, lines[::-1]) if len(lines) > 1 else ()
    if not any(injection_rules.addressing_rule(" ".join(order)) for order in orders):
        return evidence
    return replace(evidence, commits=tuple(replace(commit, subject="", body="") for commit in evidence.commits))


def _unrepeated(evidence: Evidence, foreign: Foreign) -> Evidence:
    """Return the evidence without anything that repeats external text, and without events that read the team's own
    sources."""
    bare = _without_claims(evidence, Taint(EXTERNAL, foreign.why, foreign.seqs)) if foreign.seqs else evidence
    repeats = foreign.source.is_repeated_in
    commits = [commit for commit in evidence.commits if commit.seq not in foreign.seqs]
    split = len(commits) > 1 and foreign.source.is_split_over([commit.subject for commit in commits])
    return replace(
        bare,
        message=phrases.remove_repeats(evidence.message, foreign.source),
        searches=tuple(item for item in evidence.searches if not repeats(item.text)),
        reports=tuple(
            replace(item, text=phrases.remove_repeats(item.text, foreign.source)) for item in evidence.reports
        ),
        creations=tuple(item for item in evidence.creations if not repeats(item.text)),
        tasks=tuple(task for task in evidence.tasks if not repeats(task.subject)),
        plan="" if repeats(evidence.plan) else evidence.plan,
        answers=tuple(item for item in evidence.answers if not repeats(item.text)),
        commits=tuple(
            replace(commit, subject="", body="") if split or repeats(f"{commit.subject}\n{commit.body}") else commit
            for commit in commits
        ),
    )


def _without_quotes(command: Command) -> Command:
    """Return the command without quoted texts and here-documents of more than one word."""
    return replace(
        command, text=_QUOTED.sub(lambda match: "…" if re.search(r"\s", match[0]) else match[0], command.text)
    )


def _pending_records(turn: Turn, evidence: Evidence, taint: Taint) -> Iterator[Draft]:
    """Yield the record with all claims. It can be found by search, and is injected only after a person approves it."""
    for draft in write_records(turn, build_story(turn, evidence), always=True):
        yield replace(draft, key="said", trust=taint.trust, why=taint.why)


def _repeated(turn: Turn, evidence: Evidence, own: Story, drafts: Sequence[Draft], foreign: Foreign) -> list[Draft]:
    """Return the record that includes repeated external text, if little else was said. Otherwise the record without it
    is sufficient, and the complete closing message is available with the turn."""
    if _tells_enough(own, evidence, drafts):
        return []
    if own.evidence.message == evidence.message and own.evidence.commits == evidence.commits:
        return []
    visible_titles = {draft.title for draft in drafts}
    whole = [draft for draft in write_records(turn, build_story(turn, evidence)) if draft.title not in visible_titles]
    return [replace(draft, key="said", trust=EXTERNAL, why=foreign.why) for draft in whole]


def _tells_enough(own: Story, evidence: Evidence, drafts: Sequence[Draft]) -> bool:
    """Return whether at least a quarter of the agent's words remains in the visible record."""
    remaining = len(own.evidence.message.split())
    return bool(drafts) and remaining >= LEAST_LEFT * len(evidence.message.split()) > 0


def _without_repeats(drafts: Iterable[Draft], known_titles: frozenset[str], *, only_records: bool) -> Iterator[Draft]:
    """Drop drafts whose title an earlier turn of the session already has. If the turn only recorded earlier work, as a
    commit and a line of the changelog do, other words for the same count, too."""
    seen_titles = set(known_titles)
    for draft in drafts:
        title = normalize_title(draft.title)
        if title in seen_titles or (only_records and _is_told(title, seen_titles)):
            continue
        seen_titles.add(title)
        yield draft


SAME_WORK = 0.75  # share of the words of the shorter title


def _is_told(title: str, others: Iterable[str]) -> bool:
    words = content_words(title)
    sizes = ((len(words & other), min(len(words), len(other))) for other in map(content_words, others))
    return any(smaller >= 3 and shared >= SAME_WORK * smaller for shared, smaller in sizes)


# --- the record ------------------------------------------------------------------------------------------------------


def write_records(turn: Turn, story: Story, *, always: bool = False) -> list[Draft]:
    """Return the record of the turn's work, or nothing if there is nothing worth keeping. `always` keeps it anyway: a
    person will decide."""
    ranked = ranking.rank_candidates(candidates.candidates(story), story)
    ranked.sort(key=lambda pair: pair[1].source == "edited")  # names only the place, so it is the last resort
    best = _best(ranked)
    if best is None or not (always or classify.is_worth_keeping(story, best[1].title, best[0])):
        return []
    documents = all(map(classify.is_document, story.evidence.edited_paths))
    if best[1].source == "edited" and documents and story.evidence.commits and not always:
        return []  # the changelog of earlier work, of which nothing new is known
    return [_record(turn, story, _with_second(_finished(best[1], story), best[0], ranked))]


def _best(ranked: Iterable[tuple[float, TitleCandidate]]) -> tuple[float, TitleCandidate] | None:
    """Return the first candidate that stands alone; else the first that is not cut; else the first that is
    presentable."""
    presentable_pair = uncut_pair = None
    for pair in ranked:
        stands_alone = not pair[1].is_cut and _names_its_subject(pair[1].title) and not _is_piece(pair[1])
        stands_alone = stands_alone and not _is_echo(pair[1])
        if (
            pair[1].source == "edited"
            and uncut_pair
            and uncut_pair[1].statement
            and names(uncut_pair[1].statement.text)
        ):
            continue  # the place says less than the change itself
        if (not stands_alone and uncut_pair) or not is_presentable(pair[1]):
            continue
        if stands_alone:
            return pair
        presentable_pair = presentable_pair or pair
        uncut_pair = uncut_pair or (None if pair[1].is_cut else pair)
    return uncut_pair or presentable_pair


def _is_piece(candidate: TitleCandidate) -> bool:
    """Return whether the candidate is a single list item without the subject of its list."""
    bare = not (candidate.with_request or candidate.topical or candidate.sectioned or candidate.worked)
    if candidate.source == "row" and not candidate.worked:
        return "; " in candidate.title or bare
    return bare and candidate.source in ("item", "row", "lead", "heading", "contrast", "pair", "headline")


_HOPED = re.compile(r"(?i)(?:Ensured|Made sure|Checked|Verified|Tested|Confirmed|Used the)\b")


def _is_echo(candidate: TitleCandidate) -> bool:
    """Return whether the candidate only repeats what should be ensured or checked, and does not say what was done."""
    return candidate.source == "wish" and bool(_HOPED.match(candidate.title))


WHOLE_CHARS = 170  # maximum length of a title made of two statements
_SINGLE = ("prose", "item", "proposed", "row", "shown", "documented")
_CLOSE = 1.2  # maximum distance in score between the best and the second statement


def _with_second(best: TitleCandidate, rank: float, ranked: Iterable[tuple[float, TitleCandidate]]) -> TitleCandidate:
    """Return the title joined with the next best statement of the message, if both fit: one sentence seldom covers
    everything."""
    if best.source not in _SINGLE or best.title.endswith("?") or len(best.title) > WHOLE_CHARS - 35:
        return best
    best_words = content_words(best.title)
    for score, other in ranked:
        if score < rank - _CLOSE:
            break
        words = content_words(other.title)
        if (
            other.source in _SINGLE
            and other.statement != best.statement
            and (other.worked or other.source in ("prose", "proposed"))
            and not (other.placed or other.topical or other.with_request or other.sectioned or other.is_cut)
            and len(best.title) + len(other.title) + 2 <= WHOLE_CHARS
            and len(words) >= 3
            and 2 * len(words & best_words) <= min(len(words), len(best_words))
            and is_presentable(other)
            and not prose.is_pointing(other.title)
            and not prose.lacks_subject(other.title)
        ):
            return replace(best, title=f"{best.title}; {lowered(other.title)}")
    return best


def _finished(candidate: TitleCandidate, story: Story) -> TitleCandidate:
    """Return the title as it is shown: a plan with its file, and without a question before a change that needs none."""
    title, place = candidate.title, story.place
    if (
        candidate.source in ("plan", "planned", "replaced")
        and story.worked
        and not candidate.placed
        and place
        and len(title) < 115
    ):
        return (
            candidate if place.rsplit(".")[0] in title else replace(candidate, title=f"{title} ({place})", placed=True)
        )
    if candidate.source == "row" and not story.worked and not candidate.with_request and story.subject:
        whole = f"{story.subject} {title}"
        return replace(candidate, title=whole, with_request=True) if len(whole) <= WHOLE_CHARS else candidate
    own = title.removeprefix(story.subject).strip() if story.subject.endswith("?") else title
    if (
        candidate.with_request
        and story.worked
        and own != title
        and candidates.is_change(own)
        and len(content_words(own)) >= 4
    ):
        return replace(candidate, title=own, with_request=False)
    if candidate.with_request and own != title and _stands_without_question(own, story.subject):
        return replace(candidate, title=own, with_request=False)
    if story.worked and (cause := _CAUSE_ONLY.match(title)) and open_steps.unsolved_check(story) is None:
        return replace(candidate, title=f"Fixed bug: {lowered(title[cause.end() :])}")
    return _told_plainly(candidate, story)


def _stands_without_question(answer: str, question: str) -> bool:
    """Return whether an answer names its own subject and repeats what was asked about, so that its question adds little."""
    has_name = bool(names(answer[:25])) and len(content_words(answer)) >= 6 and not answer.startswith(("No: ", "#"))
    proposes = prose.to_past_tense(answer) != answer
    repeats = bool(content_words(answer) & content_words(question))
    return has_name and repeats and not proposes and not prose.is_pointing(answer) and not prose.lacks_subject(answer)


_CAUSE_ONLY = re.compile(r"(?:Problem|Root [Cc]ause|Issue|Bug|Cause): (?=\S)(?!.* now )")


def _told_plainly(candidate: TitleCandidate, story: Story) -> TitleCandidate:
    """Return the request instead of "Edited `a.py`" if nothing states what was done."""
    if candidate.source != "edited" or not story.request.is_wish or len(story.asked_words) < 2:
        return candidate
    wish = subjects.done_wish(prose.as_wish(story.request.text), story)
    if not wish:
        return candidate
    if prose.is_fragment(wish) or prose.is_pointing(wish) or prose.is_chat(wish) or _SPOKEN.search(wish):
        return candidate
    return replace(candidate, title=f"{wish} ({story.place})" if story.place else wish)


_SAYS_POINT = re.compile(
    r"(?i)(?:the (?:actual |real |core )?(?:issue|problem|bug|root cause) (?:is|was)|(?:problem|root cause|proposed fix): )"
)


def _names_its_subject(title: str) -> bool:
    """Return whether the title begins with a name or a clear subject, unlike "The function …" or "Both places …"."""
    if prose.lacks_subject(title):
        return False
    has_name = bool(names(title[:50])) or bool(_SAYS_POINT.match(title) and names(title))
    return has_name or not (prose.is_pointing(title) or subjects.VAGUE.search(title[:30]))


def build_story(turn: Turn, evidence: Evidence | None = None) -> Story:
    """Return the story of a turn, from all of its evidence or from the part that may be shown."""
    evidence = evidence or gather_evidence(turn)
    earlier = tuple(exchange.prompt[:1_000] for exchange in turn.previous[-3:])
    return Story(find_request(turn), evidence, markdown.read(evidence.message), turn.prompt, earlier)


_PRONOUN = re.compile(r"(?i)\W*(?:it|its|this|that|these|those|they|he|she|there|you|your|i|my|we)(?:'\w+)?\b")


_SPOKEN = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|[Yy]ou|[Yy]our|[Yy]ou're|[Ll]et's)\b")


# These point to the conversation, which the reader of a title does not have.
_TO_THE_CHAT = re.compile(
    r"(?i)\b(?:as )?we (?:discussed|said|mentioned|talked)\b|\b(?:discussed|mentioned) (?:earlier|above|before)\b|\b(?:our|your|the|my) earlier (?:discussion|question|message|analysis|conversation)\b"
    r"|\bmy (?:timeline|analysis|mistake|understanding|assumption|suggestion|changes?|fix|earlier)\b|\b(?:is|are|see|per) #\d{1,2}(?=\W|$)|(?<!\? )\b(?:yes|yeah|nope): |^(?:yes|no|correct|right|exactly)\b(?=[\s,]{0,2}[-–—,:!])"
)


_ADDRESS = re.compile(r"https?://\S+")


def _is_address(title: str) -> bool:
    """Return whether the title only states a location: "PR created: https://…"."""
    title = re.sub(r" \([^()]*\)$", "", title)  # the file that was added to the title
    bare = _ADDRESS.sub("", title)
    return bare != title and len(content_words(bare)) < 4 and not names(bare.replace("PR", ""))


def is_presentable(candidate: TitleCandidate) -> bool:
    """Return whether the title could stand alone at the start of the next session."""
    title = candidate.title
    return not (
        prose.is_chat(title)
        or candidate.is_fragment
        or (prose.is_status(title) and candidate.source not in ("commit", "plan"))
        or prose.is_offer(title)
        or _PRONOUN.match(title)
        or _SPOKEN.search(title)
        or _TO_THE_CHAT.search(title)
        or injection_rules.injection_rule(title)
        or _is_address(title)
    )


def _record(turn: Turn, story: Story, candidate: TitleCandidate) -> Draft:
    evidence = story.evidence
    claims = [fact for fact in _claims(story) if normalize_title(fact.text) != normalize_title(candidate.title)]
    facts = [*_most_telling(claims, MAX_CLAIMS), *_reasons(turn, story), *_tool_facts(story)]
    commit = candidates.main_commit(evidence.commits)
    return Draft(
        key="work" if story.worked else "answer",
        type=classify.record_type(story, candidate.title),
        title=candidate.title,
        subtitle=shorten(story.request.text if story.request.refers_back and story.request.text else turn.prompt, 140),
        narrative=_narrative(evidence.message),
        facts=tuple({fact.text: fact for fact in facts}.values())[:MAX_FACTS],
        concepts=_concepts(story),
        files_read=evidence.files_read[:20],
        files_modified=tuple(
            dict.fromkeys([*evidence.edited_paths, *(move.new or move.old for move in evidence.moves)])
        )[:20],
        commit=commit.id if commit else next((one.id for one in evidence.commits if one.id and not one.scratch), ""),
    )


def _claims(story: Story) -> Iterator[Fact]:
    """Yield the statements of the closing message that carry information, each complete in itself."""
    for one in story.statements:
        if one.kind == "heading" or prose.is_lead_in(one.text) or one.depth > 2 or open_steps.is_next(one):
            continue
        bare = prose.without_chat(one.text)
        whole = _whole(one, bare)
        if len(whole) >= 20 and not (prose.is_chat(bare) or prose.is_status(bare) or prose.is_offer(bare)):
            yield Fact(shorten(whole, 280), (story.evidence.message_seq,))


def _most_telling(facts: Sequence[Fact], most: int) -> list[Fact]:
    """Return the facts that name causes and things, in order, if there are too many."""
    if len(facts) <= most:
        return list(facts)

    def worth(number: int) -> float:
        text = facts[number].text
        return 2 * ranking.names_a_cause(text) + min(len(names(text)), 2) - number / len(facts)

    best = sorted(range(len(facts)), key=worth, reverse=True)[:most]
    return [facts[number] for number in sorted(best)]


_WHY_SECTION = re.compile(
    r"(?i)^\W*(?:context|background|problem\w*|motivation|root causes?\b.{0,40}|(?:the )?(?:bug|issue)|why\b.{0,30}|(?:key )?decisions?|constraints?|trade-?offs?|out of scope|non-goals?)\W*$"
)


def _reasons(turn: Turn, story: Story) -> Iterator[Fact]:
    """Yield why a plan was made: the sentences of its context, its root cause and its decisions."""
    if not story.request.plan or story.request.refers_back or not isinstance(turn.bodies[0], Prompted):
        return
    count = 0
    for one in markdown.read(story.prompt):
        telling = one.kind in ("prose", "item") and one.depth <= 1 and len(content_words(one.text)) >= 5
        if (
            telling
            and _WHY_SECTION.match(one.section)
            and not prose.is_lead_in(one.text)
            and not one.text.endswith("?")
        ):
            yield Fact(f"Why: {shorten(one.labelled, 270)}", (turn.seqs[0],))
            count += 1
            if count == MAX_REASONS:
                return


def _whole(one: Statement, bare: str) -> str:
    """Return a statement with its label, and a short one also with the sentence that introduces it."""
    text = f"{one.label}: {bare}" if one.label else bare
    if one.depth and one.lead and len(text) < 60 and not candidates.is_generic_lead(one.lead):
        return f"{one.lead.rstrip(':： ')}: {text}"
    return text


def _narrative(message: str) -> str:
    """Return the beginning of the closing message in whole blocks, without chat, offers and open steps."""
    blocks = [block for block in markdown.blocks(message) if not _is_talk(block) and not _is_next(block)]
    return _joined(blocks, NARRATIVE_CHARS)


def _is_next(block: Block) -> bool:
    return bool(_NEXT_BLOCK.match(block.section) or _NEXT_BLOCK.match(block.lead))


def _is_talk(block: Block) -> bool:
    line = prose.without_chat(" ".join(block.source.split()))
    return "\n" not in block.source and (
        prose.is_chat(line) or (prose.is_status(line) and len(line) < 90 and not names(line)) or prose.is_offer(line)
    )


def _joined(blocks: Sequence[Block], limit: int) -> str:
    """Join as many blocks as fit. A heading or lead-in is only kept with the block that follows it."""
    parts: list[str] = []
    for block in blocks:
        if parts and sum(map(len, parts)) + len(block.source) > limit:
            break
        parts.append(block.source)
    while parts and (parts[-1].startswith("#") or parts[-1].rstrip("*").endswith((":", "："))):
        parts.pop()
    return clip("\n\n".join(parts), limit)


def _concepts(story: Story) -> tuple[str, ...]:
    concepts = ["what-changed" if story.worked else "how-it-works"]
    if any(ranking.names_a_cause(one.labelled) for one in story.statements):
        concepts.append("why-it-exists")
    if any(_broken_before(story.evidence)):
        concepts.append("problem-solution")
    if open_steps.unsolved_check(story):
        concepts.append("gotcha")
    return tuple(concepts)


# --- what tools show -------------------------------------------------------------------------------------------------


def _tool_facts(story: Story) -> Iterator[Fact]:
    """Yield what was committed, changed and run, from the results of the tools."""
    evidence = story.evidence
    for commit in evidence.commits:
        if not commit.scratch:
            label = ": ".join(part for part in (f"Commit {commit.id[:9]}".strip(), commit.subject) if part)
            yield Fact(f"{label} ({commit.stat})" if commit.stat else label, (commit.seq,))
    for move in evidence.moves:
        yield Fact(f"Moved {move.old} to {move.new}" if move.new else f"Deleted {move.old}", (move.seq,))
    deleted_paths = {move.old for move in evidence.moves if not move.new}
    for path in evidence.edited_paths:
        if path not in deleted_paths:
            edits = [edit for edit in evidence.edits if edit.path == path]
            yield _file_fact(path, edits)
    yield from _change_facts(evidence)
    yield from (Fact(item.text, (item.seq,)) for item in evidence.creations[:3])
    yield from (Fact(f"Answered: {item.text}", (item.seq,)) for item in evidence.answers[:3])
    yield from _checked(evidence)
    yield from (Fact(f"Reported: {lead}", (item.seq,)) for item in evidence.reports[:3] if (lead := _lead(item)))
    yield from (Fact(f"Looked up {item.text}", (item.seq,)) for item in evidence.lookups[:3])


def _broken_before(evidence: Evidence) -> Iterator[Fix]:
    """Yield the checks that failed before the turn's first edit and passed in the end."""
    first_edit = min((edit.seq for edit in evidence.edits), default=0)
    for fix in evidence.fixes:
        telling = fix.failed.is_check or is_specific(error_line(fix.failed.output))
        if telling and not fix.failed.is_style and fix.failed.seq < first_edit < fix.passed.seq:
            yield fix


def _checked(evidence: Evidence) -> Iterator[Fact]:
    """Yield the results of the last checks, and the failures that existed before the turn changed anything."""
    for fix in _broken_before(evidence):
        failed = f"`{shorten(fix.failed.key, 80)}` failed before: {error_line(fix.failed.output)}"
        yield Fact(failed.rstrip(": "), (fix.failed.seq, fix.passed.seq))
    for check in evidence.checks[-4:]:
        if check.passed:
            test_count = passed_count(check)
            yield Fact(f"`{shorten(check.key, 80)}` passes{f': {test_count}' if test_count else ''}", (check.seq,))
        elif check.failed:
            yield Fact(f"`{shorten(check.key, 80)}` fails: {error_line(check.output)}".rstrip(": "), (check.seq,))


def _lead(item: FoundText) -> str:
    """Return the first statement of a subagent's report that carries information."""
    for one in markdown.read(item.text[:4_000]):
        bare = prose.without_chat(one.labelled)
        if one.kind != "heading" and len(bare) > 30 and not prose.is_chat(bare) and not prose.is_lead_in(bare):
            return shorten(bare, 200)
    return ""


MAX_CHANGES = 4


def _change_facts(evidence: Evidence) -> Iterator[Fact]:
    """Yield what small edits replaced, and what added definitions are for."""
    count = 0
    for edit in evidence.edits:
        title = composed.swapped_title([edit], [False])
        lines = [title] if title else list(composed.documented_in(edit))[:2]
        for line in lines if count < MAX_CHANGES else ():
            count += 1
            yield Fact(line, (edit.seq,))


def _file_fact(path: str, edits: list[Edit]) -> Fact:
    added = sum(edit.change.added_lines for edit in edits)
    removed = sum(edit.change.removed_lines for edit in edits)
    lines = f" (+{added} −{removed})" if added or removed else ""
    parts = []
    for verb in ("added", "removed", "changed"):
        symbols = tuple(dict.fromkeys(name for edit in edits for name in getattr(edit.change, verb)))
        if symbols:
            parts.append(f"{verb} {_names(symbols, 5)}")
    action = "Created" if edits[0].created else "Edited"
    return Fact(
        f"{action} {path}{lines}" + (f": {'; '.join(parts)}" if parts else ""), tuple(edit.seq for edit in edits)
    )


# --- the summary -----------------------------------------------------------------------------------------------------

_LEARNED_BLOCK = re.compile(
    r"(?i)\b(?:root cause|causes?\b|why\b|findings?|insights?|learned|discover|problem|issue|bug\b|how it works|explanation|analysis|background|"
    r"what (?:happened|was happening|was wrong)|timeline|because|turns? out|due to|the reason)"
)
_NEXT_BLOCK = re.compile(
    r"(?i)^\W*(?:next|remaining|to.?do\b|follow.?up|left to|not (?:yet )?done|future|still (?:open|missing)|pending|open questions?|questions?)"
)


def summarize(turn: Turn, story: Story) -> Summary:
    """Return the summary of the turn. Its fields are parts of the closing message, verbatim and in order."""
    evidence = story.evidence
    steps = open_steps.open_steps(story)
    outcome = open_steps.turn_outcome(story, steps)
    completed, learned = _parts(evidence.message, worked=story.worked)
    wish = story.request.text if story.request.refers_back and story.request.text else ""
    return Summary(
        request=clip(f"{wish} (“{turn.prompt.strip()}”)" if wish else turn.prompt.strip(), 600),
        investigated=_investigated(evidence),
        learned=_joined(learned, FIELD_CHARS),
        completed=_with_commits(_joined(completed, FIELD_CHARS), evidence) or _completed_from_tools(evidence),
        next_steps="\n".join(f"- {step}" for step in steps) if len(steps) > 1 else "".join(steps),
        files_read=evidence.files_read[:50],
        files_edited=evidence.edited_paths[:50],
        outcome=outcome,
    )


def _parts(message: str, *, worked: bool) -> tuple[list[Block], list[Block]]:
    """Divide the blocks of the message into completed and learned. Without any work, nothing counts as completed."""
    completed: list[Block] = []
    learned: list[Block] = []
    for block in markdown.blocks(message):
        if _is_talk(block) or _is_next(block):
            continue
        explains = _LEARNED_BLOCK.search(block.section or block.lead or block.source[:200])
        (learned if explains or not worked else completed).append(block)
    return completed, learned


def _investigated(evidence: Evidence) -> str:
    parts = []
    if evidence.first_reads:
        parts.append("read " + _paths(evidence.files_read, 8))
    if evidence.searches:
        parts.append("searched for " + _names([item.text for item in evidence.searches], 4))
    if evidence.lookups:
        parts.append("looked up " + _names([item.text for item in evidence.lookups], 4))
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _with_commits(text: str, evidence: Evidence) -> str:
    """Return the agent's account of the work, followed by the commits it does not mention."""
    own = [one for one in evidence.commits if not one.scratch and one.subject and one.subject not in text]
    lines = [f"Committed {one.id[:9]}: {one.subject}" for one in own]
    return "\n\n".join([text, *lines]) if text else ""


def _completed_from_tools(evidence: Evidence) -> str:
    """Return what the tools show was done, for a turn whose message does not say it."""
    parts = [" ".join(f"Committed {one.id[:9]} {one.subject}".split()) for one in evidence.commits if not one.scratch]
    if evidence.edited_paths:
        parts.append("Edited " + _paths(evidence.edited_paths, 8))
    return "; ".join(parts)


def _paths(paths: Sequence[str], most: int) -> str:
    """List the paths that look like file names, and count the others."""
    plain = [path for path in paths if injection_rules.is_name(path)][:most]
    more = len(paths) - len(plain)
    return ", ".join(plain) + (
        f" and {more} more" if more and plain else f"{more} file{'s' * (more > 1)}" if more else ""
    )


def _names(items: Iterable[str], most: int) -> str:
    all_items = list(items)
    more = len(all_items) - most
    return ", ".join(all_items[:most]) + (f" and {more} more" if more > 0 else "")
