"""Memories from evidence alone: no model, no network, the same answer every time.

`evidence.py` gathers what the turn shows, `prose.py` reads what the agent said at its end; this module decides
what of it is worth keeping. Facts from evidence come first, words explain them. Routine work that left no trace
makes no observation.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from claude_mem import phrases, suspicion
from claude_mem.labels import unlabelled
from claude_mem.origins import EXTERNAL
from claude_mem.providers import prose, trust
from claude_mem.providers.evidence import Command, Commit, Edit, Evidence, Fix, count, error_line, gather, is_specific
from claude_mem.providers.prose import Message, as_title, paragraph
from claude_mem.providers.trust import Taint, Team
from claude_mem.records import Digest, Draft, Fact, Summary, Turn, Type
from claude_mem.text import clip, normal_title, shorten

MOST_FACTS = 12
MOST_FIXES = 3

# What the words of a request or a commit say about its kind; the first that fits decides.
_KINDS = tuple(
    (kind, re.compile(rf"\b(?:{words})\b", re.I))
    for kind, words in (
        (Type.BUGFIX, r"fix\w*|bug\w*|repair\w*|broken|crash\w*|regression|failing|hang\w*|wrong\w*|incorrect\w*"),
        (Type.REFACTOR, r"refactor\w*|renam\w*|clean ?up|simplif\w*|restructur\w*|extract\w*|mov(?:e|ed|ing)|dedup\w*|dead code"),
        (Type.FEATURE, r"feat|feature|add\w*|implement\w*|creat\w*|introduc\w*|support\w*|new|writ\w*|build|allow\w*"),
    )
)  # fmt: skip
# The user sets a rule or corrects the agent: worth more than most of what the agent says.
_CORRECTION = re.compile(
    r"^(?:no\b[,.!]|nope\b|actually\b|stop\b|wait\b|please don'?t\b|don'?t\b|do not\b|never\b|always\b|that'?s (?:wrong|not)\b|"
    r"not what\b|i (?:meant|said|don'?t want|prefer)\b|we (?:should(?:n't| not)?|always|never|don'?t|prefer)\b|use \w+ instead\b)",
    re.I,
)
_QUOTED = re.compile(r"'[^']*'?|\"[^\"]*\"?|<<.*", re.S)


class LocalCompressor:
    async def compress(self, turn: Turn) -> Digest:
        return await asyncio.to_thread(digest, turn)  # a long turn takes a while: nobody else waits for it


def digest(turn: Turn) -> Digest:
    found, said = gather(turn), Message()
    if found.message:
        said = prose.read(found.message)
    if taint := trust.of(turn):
        own, silent = _own(found, taint), Message()
        drafts = [*observe(turn, own, silent), *_held(turn, found, said, taint)]
        summary = summarise(turn, own, silent)
    elif team := trust.of_team(turn):
        own = _unrepeated(found, team)
        heard = prose.read(own.message) if own.message else Message()
        drafts = [*observe(turn, own, heard), *_reported(turn, found, own, heard)]
        drafts += _repeated(turn, found, said, heard, team)
        summary = summarise(turn, own, heard)
    else:
        drafts, summary = list(observe(turn, found, said)), summarise(turn, found, said)
    summary = replace(summary, closing=found.message, closing_trust=trust.of_closing(turn))
    weighed = trust.weigh_all(_without_repeats(_once(drafts), turn.known), turn)
    return Digest(trust.weigh_summary(summary, turn, weighed), tuple(weighed))


def _own(found: Evidence, taint: Taint) -> Evidence:
    """Without what came from outside or spoke to whoever read it, and without what anyone says of it: subagents, and the
    agent itself in a commit's message, in what it searched for and in what it quotes in a command."""
    return replace(
        found,
        searched=(),
        looked_up=(),
        reported=(),
        commands=tuple(_bare(command) for command in found.commands if command.seq not in taint.seqs),
        commits=tuple(replace(commit, subject="") for commit in found.commits if commit.seq not in taint.seqs),
        fixes=tuple(
            Fix(_bare(fix.failed), _bare(fix.passed))
            for fix in found.fixes
            if not taint.seqs & {fix.failed.seq, fix.passed.seq}
        ),
        unsolved=tuple(_bare(command) for command in found.unsolved if command.seq not in taint.seqs),
    )


def _unrepeated(found: Evidence, team: Team) -> Evidence:
    """Without what was read from the team's own sources and without what repeats it, whoever says it."""
    bare = _own(found, Taint(EXTERNAL, team.why, team.seqs))
    repeats = team.source.is_repeated_in
    return replace(
        bare,
        message=phrases.without_repeats(found.message, team.source),
        searched=tuple(item for item in found.searched if not repeats(item.text)),
        reported=tuple(replace(item, text=phrases.without_repeats(item.text, team.source)) for item in found.reported),
        commits=tuple(
            replace(commit, subject="" if repeats(commit.subject) else commit.subject)
            for commit in found.commits
            if commit.seq not in team.seqs
        ),
    )


def _reported(turn: Turn, found: Evidence, own: Evidence, heard: Message) -> Iterator[Draft]:
    """What the agent reports where nothing but such a source was looked at."""
    if not own.edits and not own.commits and _is_answer(replace(found, message=own.message), heard):
        yield _answer(turn, own, heard)


def _repeated(turn: Turn, found: Evidence, said: Message, heard: Message, team: Team) -> Iterator[Draft]:
    """What repeats it, where a record would say nothing without: to be found, and told once someone approves."""
    for commit in found.commits:
        if commit.seq in team.seqs or team.source.is_repeated_in(commit.subject):
            yield replace(_message(turn, found, commit), trust=EXTERNAL, why=team.why)
    if said.lead and not heard.lead:
        answer = replace(_answer(turn, found, said), key="said", files_modified=found.edited[:20])
        yield replace(answer, trust=EXTERNAL, why=team.why)


def _bare(command: Command) -> Command:
    """Without what it quotes or is handed as a text, where that is more than a word."""
    return replace(
        command, text=_QUOTED.sub(lambda found: "…" if re.search(r"\s", found[0]) else found[0], command.text)
    )


def _held(turn: Turn, found: Evidence, said: Message, taint: Taint) -> Iterator[Draft]:
    """What was said in such a turn, and what evidence it has left out: to be found, and told once someone approves."""
    for draft in observe(turn, found, Message()):
        if taint.seqs & {seq for fact in draft.facts for seq in fact.events}:
            yield replace(draft, trust=taint.trust, why=taint.why)
    for commit in found.commits:
        yield replace(_message(turn, found, commit), trust=taint.trust, why=taint.why)
    if said.lead:
        yield replace(
            _answer(turn, found, said), key="said", files_modified=found.edited[:20], trust=taint.trust, why=taint.why
        )


def _once(drafts: Iterable[Draft]) -> list[Draft]:
    """Of each key the first."""
    return list({draft.key: draft for draft in reversed(list(drafts))}.values())[::-1]


def _without_repeats(drafts: Iterable[Draft], known: frozenset[str]) -> Iterator[Draft]:
    """A session that runs into the same thing in turn after turn remembers it once."""
    seen = set(known)
    for draft in drafts:
        if (title := normal_title(draft.title)) not in seen:
            seen.add(title)
            yield draft


# --- the summary -----------------------------------------------------------------------------------------------------


def summarise(turn: Turn, found: Evidence, said: Message) -> Summary:
    return Summary(
        request=clip(turn.prompt.strip(), 600),
        investigated=_investigated(found),
        learned=_field("learned", said.learned),
        completed=_field("completed", (*said.done, *said.decided), 700) or _shown(found),
        next_steps=_field("next_steps", said.next),
        notes="\n".join(_notes(found, said)),
        files_read=found.files_read[:50],
        files_edited=found.edited[:50],
    )


def _field(name: str, sentences: Iterable[str], limit: int = prose.PART_CHARS) -> str:
    """Return sentences as a field of the summary, each without a label of its own: the field has one."""
    return paragraph(tuple(bare for sentence in sentences if (bare := unlabelled(name, sentence))), limit)


def _investigated(found: Evidence) -> str:
    parts = []
    if found.read:
        parts.append("read " + _paths(found.files_read, 8))
    if found.searched:
        parts.append("searched for " + _names([item.text for item in found.searched], 4))
    if found.looked_up:
        parts.append("looked up " + _names([item.text for item in found.looked_up], 4))
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _shown(found: Evidence) -> str:
    """What the tools show was done, when nobody said it."""
    parts = [" ".join(f"Committed {commit.id[:9]} {commit.subject}".split()) for commit in found.commits]
    if found.edited:
        parts.append("Edited " + _paths(found.edited, 8))
    return "; ".join(parts)


def _notes(found: Evidence, said: Message) -> Iterator[str]:
    yield from (f"`{shorten(c.key, 80)}` failed: {error_line(c.output)}" for c in found.unsolved[:3])
    yield from (f"Open question: {shorten(question, 200)}" for question in said.asked[:2])


def _paths(paths: Sequence[str], most: int) -> str:
    """Only those that are called as files are; the others are counted."""
    plain = [path for path in paths if suspicion.is_name(path)][:most]
    more = len(paths) - len(plain)
    return ", ".join(plain) + (
        f" and {more} more" if more and plain else f"{more} file{'s' * (more > 1)}" if more else ""
    )


def _names(items: Iterable[str], most: int) -> str:
    listed = list(items)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


# --- observations ----------------------------------------------------------------------------------------------------


def observe(turn: Turn, found: Evidence, said: Message) -> Iterator[Draft]:
    """What the evidence shows, each thing once, the most telling first."""
    start = 0
    for commit in found.commits:
        edits = [edit for edit in found.edits if start <= edit.seq <= commit.seq]
        yield _commit(turn, found, said, commit, edits)
        start = commit.seq
    if rest := [edit for edit in found.edits if edit.seq >= start]:
        yield _edits(turn, found, said, rest)
    yield from _fixes(found, said)
    if not found.edits and not found.commits and _is_answer(found, said):
        yield _answer(turn, found, said)
    if said.decided and (found.edits or found.commits or len(said.decided) > 1):
        yield _decision(turn, found, said)
    if _CORRECTION.search(turn.prompt.strip()[:200]) and len(turn.prompt) < 600:
        yield _correction(turn)
    last_edit = max((edit.seq for edit in found.edits), default=0)
    yield from (
        _still_fails(found, command) for command in found.unsolved[-1:] if found.edits and command.seq > last_edit
    )


def _commit(turn: Turn, found: Evidence, said: Message, commit: Commit, edits: list[Edit]) -> Draft:
    facts = [Fact(_named(commit), (commit.seq,))]
    facts += [Fact(commit.stat, (commit.seq,))] if commit.stat else []
    files = tuple(dict.fromkeys(edit.path for edit in edits or found.edits))[:20]
    return Draft(
        key=f"commit:{commit.id or _short_hash(commit.subject or str(commit.seq))}",
        type=_kind(commit.subject, turn.prompt),
        title=_subject(commit) or ": ".join(part for part in (_named(commit), _paths(files, 3)) if part),
        subtitle=shorten(turn.prompt, 140),
        narrative=paragraph((*said.done, *said.learned), 700),
        facts=tuple([*facts, *_work(found, edits)][:MOST_FACTS]),
        concepts=_concepts("what-changed", said),
        files_read=found.files_read[:20],
        files_modified=files,
        commit=commit.id,
    )


def _message(turn: Turn, found: Evidence, commit: Commit) -> Draft:
    """What a commit says of itself, where that is not told with it."""
    return Draft(
        key=f"message:{commit.id or _short_hash(commit.subject)}",
        type=_kind(commit.subject, turn.prompt),
        title=_subject(commit),
        subtitle=shorten(turn.prompt, 140),
        facts=(Fact(_named(commit), (commit.seq,)),),
        concepts=("what-changed",),
        files_modified=found.edited[:20],
    )


def _named(commit: Commit) -> str:
    return ": ".join(part for part in (f"Commit {commit.id[:9]}".strip(), commit.subject) if part)


def _subject(commit: Commit) -> str:
    return shorten(re.sub(r"^\w+(?:\([^)]*\))?!?: ", "", commit.subject), 120)


def _edits(turn: Turn, found: Evidence, said: Message, edits: list[Edit]) -> Draft:
    paths = tuple(dict.fromkeys(edit.path for edit in edits))
    title = as_title(said.lead) if said.lead else as_title(turn.prompt, 100)
    return Draft(
        key="edits",
        type=_kind(turn.prompt, said.lead),
        title=title or f"Edited {_paths(paths, 3)}",
        subtitle=shorten(turn.prompt, 140),
        narrative=paragraph((*said.done, *said.learned), 700),
        facts=tuple(list(_work(found, edits))[:MOST_FACTS]),
        concepts=_concepts("what-changed", said),
        files_read=found.files_read[:20],
        files_modified=paths[:20],
    )


def _work(found: Evidence, edits: list[Edit]) -> Iterator[Fact]:
    """What was changed where, what checks said, what was looked up."""
    for path in dict.fromkeys(edit.path for edit in edits):
        yield _file_fact(path, [edit for edit in edits if edit.path == path])
    for check in found.checks[:4]:
        if not check.failed:
            counted = count(check)
            yield Fact(f"`{shorten(check.key, 80)}` passes{f': {counted}' if counted else ''}", (check.seq,))
    for fix in found.fixes:
        if not _is_own_memory(fix):
            failed = f"`{shorten(fix.failed.key, 80)}` had failed: {error_line(fix.failed.output)}"
            yield Fact(failed.rstrip(": "), (fix.failed.seq, fix.passed.seq))
    yield from (Fact(f"Looked up {item.text}", (item.seq,)) for item in found.looked_up[:3])


def _file_fact(path: str, edits: list[Edit]) -> Fact:
    added = sum(edit.change.added_lines for edit in edits)
    removed = sum(edit.change.removed_lines for edit in edits)
    lines = f" (+{added} −{removed})" if added or removed else ""
    parts = []
    for verb in ("added", "removed", "changed"):
        names = tuple(dict.fromkeys(name for edit in edits for name in getattr(edit.change, verb)))
        if names:
            parts.append(f"{verb} {_names(names, 5)}")
    text = f"Edited {path}{lines}" + (f": {'; '.join(parts)}" if parts else "")
    return Fact(text, tuple(edit.seq for edit in edits))


def _fixes(found: Evidence, said: Message) -> Iterator[Draft]:
    for fix in [fix for fix in found.fixes if _is_own_memory(fix)][:MOST_FIXES]:
        yield _fix(found, said, fix)


def _is_own_memory(fix: Fix) -> bool:
    """A problem that could be met again; a formatter that complained is not one."""
    return not fix.failed.is_style and is_specific(error_line(fix.failed.output))


def _fix(found: Evidence, said: Message, fix: Fix) -> Draft:
    error, command = error_line(fix.failed.output), shorten(fix.failed.key, 80)
    between = [edit for edit in found.edits if fix.failed.seq < edit.seq < fix.passed.seq]
    paths = tuple(dict.fromkeys(edit.path for edit in between))
    how = f" after editing {_paths(paths, 4)}" if paths else ""
    return Draft(
        key=f"fix:{_short_hash(fix.failed.key)}",
        type=Type.BUGFIX,
        title=shorten(f"`{shorten(command, 50)}` failed ({error}), then passed", 160),
        narrative=f"`{command}` failed with: {error}. It passed{how}. {paragraph(said.learned, 400)}".strip(),
        facts=(
            Fact(f"Error: {error}", (fix.failed.seq,)),
            Fact(f"Passes again: {command}{how}", (fix.passed.seq, *(edit.seq for edit in between))),
        ),
        concepts=("problem-solution",),
        files_modified=paths[:20],
    )


def _is_answer(found: Evidence, said: Message) -> bool:
    """Something was looked into and something was said about it."""
    looked = found.read or found.searched or found.commands or found.looked_up or found.reported
    return bool(looked) and len(found.message) >= 160 and bool(said.lead)


def _answer(turn: Turn, found: Evidence, said: Message) -> Draft:
    facts = [Fact(shorten(sentence, 240), (found.message_seq,)) for sentence in said.learned[:4]]
    facts += [Fact(f"Reported: {shorten(prose.read(item.text).lead, 200)}", (item.seq,)) for item in found.reported[:3]]
    facts += [Fact(f"Looked up {item.text}", (item.seq,)) for item in found.looked_up[:3]]
    return Draft(
        key="answer",
        type=Type.DISCOVERY,
        title=as_title(said.lead),
        subtitle=shorten(turn.prompt, 140),
        narrative=paragraph((*said.done, *said.decided, *said.learned), 800),
        facts=tuple(fact for fact in facts if not fact.text.endswith(": ")),
        concepts=_concepts("how-it-works", said),
        files_read=found.files_read[:20],
    )


def _decision(turn: Turn, found: Evidence, said: Message) -> Draft:
    return Draft(
        key="decision",
        type=Type.DECISION,
        title=as_title(said.decided[0]),
        subtitle=shorten(turn.prompt, 140),
        narrative=paragraph(said.decided, 700),
        facts=tuple(Fact(shorten(sentence, 240), (found.message_seq,)) for sentence in said.decided[:4]),
        concepts=("trade-off",),
        files_modified=found.edited[:10],
    )


def _correction(turn: Turn) -> Draft:
    return Draft(
        key="correction",
        type=Type.DECISION,
        title=shorten(f"The user: {turn.prompt}", 140),
        narrative=clip(turn.prompt.strip(), 600),
        facts=(Fact(shorten(turn.prompt, 240), turn.seqs[:1]),),
        concepts=("pattern",),
    )


def _still_fails(found: Evidence, command: Command) -> Draft:
    error = error_line(command.output)
    return Draft(
        key=f"open:{_short_hash(command.key)}",
        type=Type.DISCOVERY,
        title=shorten(f"`{shorten(command.key, 70)}` still fails: {error}", 160),
        facts=(Fact(f"Error: {error}", (command.seq,)),),
        concepts=("gotcha",),
        files_modified=found.edited[:20],
    )


def _concepts(first: str, said: Message) -> tuple[str, ...]:
    more = (("why-it-exists", said.learned), ("trade-off", said.decided))
    return (first, *(concept for concept, sentences in more if sentences))


def _kind(*texts: str) -> str:
    for text in texts:
        for kind, words in _KINDS:
            if words.search(text):
                return kind
    return Type.CHANGE


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
