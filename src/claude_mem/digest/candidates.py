"""Proposes titles for a record: from commits, the plan, the request, the edits, and statements of the closing message.

Each candidate is repaired before it is ranked: leading chat is removed, a lead-in is joined with its first items, and
a missing subject (the file, the thing that was asked about) is added. `ranking.py` picks the best by learned weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from claude_mem.digest import composed, open_steps, prose, subjects
from claude_mem.digest.composed import lowered
from claude_mem.digest.evidence import Commit
from claude_mem.digest.markdown import Statement
from claude_mem.digest.prose import content_words, names
from claude_mem.digest.subjects import CHANGE_START, Story, is_proposing, is_test

MAX_STATEMENTS = 60
MAX_LABELS = 6
SHORT_PLAN = 5  # a plan's heading with at most this many content words is vague


@dataclass(frozen=True, slots=True)
class TitleCandidate:
    """A possible title, and its source."""

    title: str
    source: str  # commit | plan | wish | task | heading | prose | item | row | list | made | moved | edited
    statement: Statement | None = None
    placed: bool = False  # the file was added
    topical: bool = False  # what was asked about was added
    with_request: bool = False  # the question or the request was added
    sectioned: bool = False  # the heading above it was added
    worked: bool = False  # the turn changed something
    commit: Commit | None = None

    @property
    def is_fragment(self) -> bool:
        """Return whether the title ends in the middle of a sentence. After a full stop any word may be the last."""
        one = self.statement
        whole = one.text.rstrip(" .!。") if one is not None and one.text.endswith((".", "!", "。")) else ""
        title = self.title.rpartition(" (")[0] if self.placed and self.title.endswith(")") else self.title
        ended = bool(whole) and title.endswith(whole[-12:])
        return title.count("`") % 2 == 1 if ended else prose.is_fragment(title)

    @property
    def is_cut(self) -> bool:
        """Return whether the title lacks the end of the sentence it was made from."""
        if self.statement is None:
            return False
        whole, last = content_words(self.statement.text), content_words(self.title)
        return self.source in ("prose", "item", "row", "lead") and len(whole - last) > max(2, 0.3 * len(whole))


def candidates(story: Story) -> list[TitleCandidate]:
    """Return every possible title of the turn's record, repaired and without duplicates."""
    plain = [*_from_evidence(story), *_from_wish(story), *_from_message(story)]
    unique: dict[str, TitleCandidate] = {}
    for candidate in plain:
        for variant in (candidate, *_completed(candidate, story)):
            if len(variant.title) >= 12 and not variant.is_fragment:
                if variant.source in ("planned", "replaced"):  # the plan, in the agent's words
                    unique.pop(variant.title, None)
                unique.setdefault(variant.title, replace(variant, worked=story.worked))
    return list(unique.values())


_GENERIC_COMMIT = re.compile(
    r"(?i)^(?:(?:style|chore|ci|build)\b.*|(?:address|apply|fix|more|pr|code)? ?(?:review|lint\w*|feedback|comments?|nits?|typos?|wip|updates?|changes|cleanup|formatting|gofmt)\b.*|initial commit|wip|update|fix|merge\b.*)$"
)


def main_commit(commits: Sequence[Commit]) -> Commit | None:
    """Return the commit with the most changed lines, among those with a meaningful subject; none of a scratch
    repository."""
    real = [commit for commit in commits if not commit.scratch and commit.subject]
    telling = [commit for commit in real if not _GENERIC_COMMIT.match(commit.subject)]
    return max(telling, key=lambda commit: (commit.lines, len(commit.subject)), default=None)


_SAYS_WHAT_HOLDS = re.compile(r"(?i)(?:only|never|always|no longer|don't|do not|correctly|properly|also)\b")


def commit_title(commit: Commit) -> str:
    """Return a commit's subject without its type; the scope is kept."""
    match = re.match(r"^(?P<type>\w+)(?:\((?P<scope>[^)]{1,40})\))?!?: (?P<rest>.+)$", commit.subject)
    if not match:
        return prose.to_past_tense(prose.as_title(commit.subject))
    rest, scope = prose.to_past_tense(match["rest"]), match["scope"] or ""
    if match["type"] == "fix" and rest == match["rest"]:
        if _SAYS_WHAT_HOLDS.match(rest):
            title = f"Fixed: {lowered(prose.as_title(rest))}"
            return f"{title} ({scope})" if scope else title
        rest = f"Fixed {rest}"
    return prose.as_title(f"{scope}: {rest}" if scope and scope.lower() not in rest.lower() else rest)


def _from_evidence(story: Story) -> Iterator[TitleCandidate]:
    evidence = story.evidence
    if commit := main_commit(evidence.commits):
        yield TitleCandidate(commit_title(commit), "commit", commit=commit)
    plan = story.request.plan or evidence.plan
    if story.planned:
        own = (
            story.request.is_wish
            and not story.request.refers_back
            and not subjects.VAGUE.search(story.request.text[:40])
        )
        wish = plan or (story.request.text if own else "")
        line = prose.as_wish(wish.rstrip("?"))
        start = "Planned" if plan or prose.to_past_tense(line) != line else "Plan made for"
        yield from [TitleCandidate(f"{start}: {line}", "plan")] if len(content_words(wish)) >= 3 else []
    elif plan:
        yield from _of_plan(plan, story)
    for creation in evidence.creations:
        if ":" in creation.text:
            yield TitleCandidate(prose.as_title(creation.text), "made")
    if evidence.moves:
        yield TitleCandidate(composed.moved_title(evidence), "moved")
    if evidence.edits:
        if (added := composed.added_title(evidence)) and all(is_test(path) for path in evidence.edited_paths):
            yield TitleCandidate(added, "added")
        if not story.planned:
            yield from _composed(story)
            yield TitleCandidate(composed.edited_title(evidence), "edited")


def _of_plan(plan: str, story: Story) -> Iterator[TitleCandidate]:
    """Yield a plan's heading, in the past tense if it was carried out; a short heading with the labels of the work."""
    if not story.worked:
        yield TitleCandidate(prose.as_title(plan), "plan")
        return
    heading = _carried_out(plan)
    labelled = _with_labels(heading.removeprefix("Implemented: "), story) if story.request.plan else ""
    yield TitleCandidate(labelled or heading, "plan")


def _carried_out(plan: str) -> str:
    """Return a plan's heading in the past tense; a heading without a verb is "Implemented: …"."""
    line = prose.as_title(plan)
    past_line = prose.to_past_tense(line)
    if _FEATURE.match(line) and len(line) <= 110:
        return f"Implemented: {line}"
    bare = past_line == line and not _DONE_START.match(line) and len(line) <= 110
    return f"Implemented: {line}" if bare else past_line


# Headings that name a feature for users rather than a change.
_FEATURE = re.compile(r"(?:Upload|Download|Import|Compare|Search|Browse|Select|View|Evaluate|Analyze) ")


def _is_telling_label(label: str) -> bool:
    """Return whether a label describes the work in words, unlike "`cart.py`" or "Line 733"."""
    return len(content_words(label)) >= 2 and not names(label) and not re.search(r"\d", label)


def _with_labels(heading: str, story: Story) -> str:
    """Return a plan's short heading with the labels of the work: "Improved the prompt: deduplication, role line"."""
    items = [one for one in story.statements if one.label and one.first and one.depth == 1 and one.kind == "item"]
    telling = [one.label for one in items if _is_telling_label(one.label)]
    if len(content_words(heading)) > SHORT_PLAN or not 2 <= len(telling) == len(items) <= MAX_LABELS:
        return ""
    title = heading
    for number, label in enumerate(telling):
        longer = f"{title}{', ' if number else ': '}{label}"
        if len(longer) > prose.TITLE_CHARS:
            break
        title = longer
    return title if title != heading else ""


_DONE_START = re.compile(
    r"[A-Z][a-z-]+(?:ed|ing)\b|(?:Group|Show|Made|Built|Wrote|Set|Put|Kept|Split|Hid|Sent|Cut|Let|Give|Run|Always)\b|[\w ]{1,40}: "
)


def _is_spoken_of(title: str, story: Story) -> bool:
    """Return whether the request or the message names what a title says was removed, or speaks of removing."""
    words = f"{story.prompt[:2_000]} {story.request.text} {story.evidence.message[:4_000]}"
    return bool(_REMOVES.search(words)) or any(name in words for name in names(title)[:3])


_REMOVES = re.compile(r"(?i)\b(?:remov|delet|drop|unused|dead code|clean(?:ed|ing)? up|get rid)\w*\b")


def _composed(story: Story) -> Iterator[TitleCandidate]:
    evidence = story.evidence
    if title := composed.swapped_title(evidence.edits, [is_test(edit.path) for edit in evidence.edits]):
        yield TitleCandidate(title, "swapped")
    if title := composed.relocated_title(evidence):
        yield TitleCandidate(title, "relocated")
    elif (title := composed.removed_title(evidence)) and _is_spoken_of(title, story):
        yield TitleCandidate(title, "removed")
    if title := composed.faults_title(story.statements):
        yield TitleCandidate(title, "faults")
    for title in composed.documented_titles(evidence):
        yield TitleCandidate(title, "documented")
    for title in composed.joined_titles(story.statements, evidence):
        yield TitleCandidate(title, "joined")


def _from_wish(story: Story) -> Iterator[TitleCandidate]:
    request = story.request
    if (fault := story.fault) and story.worked and not request.plan and open_steps.unsolved_check(story) is None:
        yield TitleCandidate(f"Fixed bug: {lowered(prose.as_wish(fault, 150))}", "fault")
    wish = prose.as_wish(request.text)
    past_wish = subjects.done_wish(wish, story)
    if len(content_words(request.text) - content_words(wish)) > 2:
        return
    telling = len(content_words(past_wish)) >= 4 and (names(past_wish) or not subjects.VAGUE.search(past_wish))
    if past_wish and telling and (not request.plan if story.worked else _did(story)):
        yield TitleCandidate(past_wish, "wish")
    if len(story.evidence.tasks) == 1 and story.evidence.tasks[0].is_done:
        yield TitleCandidate(prose.to_past_tense(prose.as_title(story.evidence.tasks[0].subject)), "task")


_SAYS_DONE = re.compile(
    r"(?i)^\W*(?:all )?(?:done|pushed|rebased|merged|renamed|moved|deleted|removed|created|closed|updated)\b"
)


def _did(story: Story) -> bool:
    """Return whether commands did what was asked, as the answer's first word says: a rebase leaves no edit."""
    first = story.statements[0].text if story.statements else ""
    did = any(not command.failed and not command.is_check for command in story.evidence.commands)
    return did and story.request.is_wish and not story.request.refers_back and bool(_SAYS_DONE.match(first))


_GENERIC_LEAD = re.compile(
    r"(?i)^(?:the |key |all |main |summary of |list of |some |a few |two |three |four |several |additional |new |other |related |remaining )*(?:changes?|files?|tests?|options?|fix(?:es)?|updates?|modifications?|details?|notes?|"
    r"added|removed|updated|modified|created|deleted|result|results|benefits?|features?|functions?|coverage|scenarios?|cases|steps|usage|summary|locations?|implementation|strengths?|issues?|findings?|insights?|root causes?|kept|the (?:full picture|solution|fix|problem|flow|result)|full picture|recommendations?|suggestions?|minor observations?|observations?|what's preserved|preserved|problem|solution|flow|frontend|backend|code|docs?|how it works|what (?:was|changed|it)|before|after)\b"
    r"(?: (?:made|modified|changed|files?|added|created|updated|summary|found|fixed|coverage|to|from|includes?|covers?|covering|in|are|is|that|were|was|now|i|we|done|will|look|like|of|the|test|new|so|far|this|does|and|by|following|follows|as|here|below))*$"
)
_CAUSE_LABEL = re.compile(r"(?i)^(?:the )?(?:root cause|cause|problem|issue|bug|what was (?:wrong|happening)|why)\b")
_FIX_LABEL = re.compile(
    r"(?i)^(?:the )?(?:fix|solution|change|resolution|what (?:i|was) (?:changed|fixed|did)|bug fixed)\b"
)


def _cause_and_fix(story: Story) -> Iterator[TitleCandidate]:
    """Join the sentence labelled as the cause with the sentence labelled as the fix."""
    labelled = [one for one in story.statements if one.first and (one.label or one.section)]
    cause = next((one for one in labelled if _CAUSE_LABEL.match(one.label or one.section)), None)
    fix = next(
        (one for one in labelled if _FIX_LABEL.match(one.label or one.section) and not prose.is_lead_in(one.text)), None
    )
    if cause and fix and cause is not fix:
        first, second = prose.as_title(cause.text, 75), prose.as_title(fix.text, 65)
        if not prose.is_chat(first) and not prose.is_chat(second):
            yield TitleCandidate(f"{first}; {lowered(second)}", "cause and fix", cause)


def _cause_found(story: Story) -> Iterator[TitleCandidate]:
    """Return the cause that an answer names under its heading or label."""
    if story.worked:
        return
    for one in story.statements:
        of_cause = _ROOT_CAUSE.match(one.label) or (_ROOT_CAUSE.match(one.section) and one.kind != "heading")
        of_cause = of_cause and (
            story.is_about_fault or not re.match(r"(?i)(?:the )?problem", one.label or one.section)
        )
        if of_cause and not prose.is_chat(one.text) and says_something(one):
            text = prose.as_title(one.text, 135)
            if prose.is_lead_in(one.text):
                briefs = [_brief(item) for item in story.statements if item.lead == one.text and item.first][:2]
                text = f"{prose.as_title(one.text.rstrip(': '), 80)}: {', '.join(briefs)}" if all(briefs) else ""
            bare = len(content_words(text)) < 4 or bool(_BY_NUMBER.search(text)) or prose.lacks_subject(text)
            if (
                text
                and not (bare or prose.is_pointing(text))
                and 2 * len(content_words(text)) > len(content_words(one.text))
            ):
                start = text if re.match(r"(?i)root cause\b", text) else f"Root cause: {lowered(text)}"
                yield TitleCandidate(start, "cause", one)
            return


_ROOT_CAUSE = re.compile(
    r"(?i)^(?:the )?(?:actual |real |likely |probable )?(?:root cause|cause|bug|problem)s?\b.{0,12}$"
)


def _headlines(story: Story) -> Iterator[TitleCandidate]:
    """Yield the heading that names the piece of work, alone and with a claim that says what became of it."""
    one = composed.headline(story.statements)
    if one is None or story.request.plan:
        return
    heading = composed.headline_text(one)
    if not story.worked and CHANGE_START.match(heading):
        return
    if story.worked or _VERB.search(heading):
        yield TitleCandidate(heading, "headline", one)
    heading_words = content_words(heading)
    joined = 0
    for other in story.statements[one.position : one.position + (25 if story.worked else 4)]:
        claim = prose.as_title(other.text, 120)
        words = content_words(claim)
        is_claim = other.kind in ("prose", "item") and other.first and not prose.is_lead_in(other.text)
        if (
            is_claim
            and len(words - heading_words) >= 3
            and not (prose.is_chat(claim) or prose.is_status(claim) or prose.is_offer(claim) or is_option(other))
            and not (_POOR_START.match(claim) or prose.lacks_subject(claim) or is_past_state(other, story))
            and len(heading) + len(claim) <= WHOLE_CHARS
        ):
            joined += 1
            yield TitleCandidate(f"{heading}: {lowered(claim)}", "headed", other)
            if joined == MAX_HEADED:
                return


WHOLE_CHARS = 175  # maximum length of a title made of a heading and a claim
MAX_HEADED = 4


def _proposal(story: Story) -> Iterator[TitleCandidate]:
    """Yield what an answer proposes: the steps listed under "Approach" or "My recommendation"."""
    if story.worked:
        return
    steps: list[str] = []
    first: Statement | None = None
    for index, one in enumerate(story.statements[:MAX_STATEMENTS]):
        proposing = is_proposing(one.lead) or is_proposing(one.section)
        if not proposing or not one.first or one.kind == "heading" or one.depth > 1:
            continue
        line = _as_step(one, story.statements[index + 1 :])
        if line and line not in steps:
            steps.append(line)
            first = first or one
    if offer := _offered(story):
        yield TitleCandidate(f"Proposed: {offer}", "offered", story.statements[-1])
    if steps:
        yield TitleCandidate(f"Proposed: {composed.join_with('; ', steps[:4], 165)}", "proposed", first)
        if len(steps) > 1:
            yield TitleCandidate(f"Proposed: {steps[0]}", "proposed", first)


_YES_NO = re.compile(
    r"(?i)^(?:is|are|does|do|did|was|were|can|could|should|would|will|has|have|isn't|aren't|doesn't|don't|didn't)\b"
)
_POLAR = re.compile(
    r"(?i)^\W*(?:(?:good|great|excellent|fair) (?:question|point|catch)\W+|(?:looking at|based on|from) [^,]{3,60}, |i'd say |i think |actually,? |ah,? |currently,? |right now,? |at the moment,? )*(?P<polar>yes|no|yeah|nope|not (?:really|quite|yet|exactly|currently)|partially|correct|exactly)\b[\s,.!:;–—-]*(?P<rest>.*)$",
    re.S,
)
VERDICT_POSITION = 3


def _verdict(story: Story) -> Iterator[TitleCandidate]:
    """Yield a question that is answered with no, with its reason, which alone leaves open what was asked; or what
    confirms a question that is answered with yes."""
    if story.worked or not story.subject.endswith("?") or not _YES_NO.match(story.subject):
        return
    for one in story.statements:
        if one.position > VERDICT_POSITION:
            return
        match = _POLAR.match(one.text)
        if match:
            polar = {"yeah": "Yes", "exactly": "Yes", "correct": "Yes", "nope": "No"}.get(match["polar"].lower())
            polar = polar or match["polar"].capitalize()
            rest = prose.as_title(match["rest"], 110) if len(content_words(match["rest"])) >= 2 else ""
            later = story.statements[one.position : one.position + 3]
            reasons = [rest] if rest else [prose.as_title(other.text, 110) for other in later if _is_reason(other)]
            for reason in [reason for reason in reasons if _explains_answer(reason)][:2]:
                title = f"{story.subject} {polar}: {lowered(reason)}"
                if polar == "Yes":  # the reason says it; the word alone is chat
                    yield from [TitleCandidate(reason, "verdict", one)] if names(reason) else []
                elif len(title) <= WHOLE_CHARS:
                    yield TitleCandidate(title, "verdict", one, with_request=True)
            return


def _explains_answer(reason: str) -> bool:
    """Return whether what follows "yes" or "no" says something, unlike "an easy fix!"."""
    return len(content_words(reason)) >= (3 if names(reason) else 4) and not prose.is_fragment(reason)


def _is_reason(one: Statement) -> bool:
    stated = one.kind in ("prose", "item") and not prose.is_lead_in(one.text) and len(content_words(one.text)) >= 3
    return stated and not (prose.is_chat(one.text) or prose.is_offer(one.text) or is_option(one))


_ROUTINE_OFFER = re.compile(
    r"(?i)(?:commit|push|merge|run|show|proceed|continue|start|create (?:a|an) (?:pr|issue|ticket)|explain|look|check)\b"
)


def _as_step(one: Statement, later: Sequence[Statement]) -> str:
    """Return a proposed step without its explanation: its label or its sentence, if it begins with a verb."""
    whole_item = one.labelled if one.label and not prose.is_lead_in(one.text) else ""
    for text in (one.label if names(one.label) else whole_item, one.label, one.text):
        whole = _with_continuation(text, later) if prose.is_lead_in(text) else text
        bare = prose.as_wish(_STEP_NUMBER.sub("", prose.without_chat(whole)), 120)
        is_action = prose.to_past_tense(bare) != bare and not _BY_NUMBER.search(bare)
        if is_action and len(content_words(bare)) >= 3 and not prose.is_fragment(bare):
            return lowered(bare)
    return ""


_STEP_NUMBER = re.compile(r"(?i)^(?:(?:step|phase|pr|part) )?\d{1,2}\s{0,2}[:.)–—-]\s{0,3}")
_CONTINUES = re.compile(r"(?i)\b(?:to|that|which|by|with|from|for|including|when|if|is|are|was|were)$")


def _with_continuation(lead: str, later: Sequence[Statement]) -> str:
    """Join a lead-in that ends in the middle of its sentence ("Changed `f` to:") with the items that complete it."""
    start = lead.rstrip(": ")
    if not _CONTINUES.search(start):
        return ""
    items = [one for one in later if one.first and one.lead and one.lead.rstrip(":： ") in start][:3]
    briefs = [lowered(brief) for item in items if (brief := _brief(item))]
    return f"{start} {', '.join(briefs)}" if briefs else ""


# Sentences that introduce something or address the user: never a title by themselves.
_POOR_START = re.compile(
    r"(?i)^\W*(?:but|and|or|looking|before i|why this|at \d|you (?:can|could|may|should|might|will)|we'd|i'd|i'm|i was|let's|for example|for instance|e\.g|replace `|try|note|remember|feel|given|option \w\b|what's|what (?:was|is|are)|how|why|which|where|here|sure|also, )\b"
)


def is_change(title: str) -> bool:
    """Return whether the title begins with a change: "Added …", "Removed …"."""
    return bool(CHANGE_START.match(title))


_OPTION = re.compile(
    r"(?i)\b(?:options?|alternatives?|choices?|approaches|possible (?:fixes|solutions|improvements)|ideas|would you|do you want|should (?:i|we)|shall (?:i|we)|which|could either|a few (?:ideas|ways)|suggestions?|what typically|prefer)\b"
)


def is_option(one: Statement) -> bool:
    """Return whether the statement is one of several options that the agent offers."""
    in_option_list = one.depth > 0 and bool(_OPTION.search(one.lead) or (not one.lead and _OPTION.search(one.section)))
    after_question = one.depth > 0 and one.lead.endswith("?")
    has_option_label = bool(re.match(r"(?i)(?:(?:option|approach|alternative) \w|pros|cons)\b", one.label or one.text))
    return in_option_list or after_question or has_option_label or one.text.endswith("?")


_VERB = re.compile(
    r"(?i)\b(?:is|are|was|were|has|have|had|will|would|can|does|did|now|needs?|uses?|returns?|shows?|reads?|writes?|stores?|calls?|runs?|works?|means?|contains?|creates?|happens?|includes?|supports?|\w{2,}(?:ed|es| built|wrote))\b"
)


def is_telling_lead(lead: str) -> bool:
    """Return whether a lead-in is meaningful without its list, unlike "To test it locally:" or "If two calls run at
    once:"."""
    lead = prose.as_title(lead.rstrip(":： "))
    if not _VERB.search(lead):
        return False
    unfinished = re.match(r"(?i)(?:to|if|when|once|for|in|with|on|after|before|since|because|by|from|while|as)\b", lead)
    return not unfinished and not is_generic_lead(lead) and len(content_words(lead)) >= 3


def says_something(one: Statement) -> bool:
    """Return whether the title has enough words to be a claim: more than "Plan opened" or "Two options"."""
    whole = f"{one.label} {prose.without_chat(one.text)}"
    return len(content_words(whole)) >= (3 if names(whole) else 4)


def is_generic_lead(lead: str) -> bool:
    """Return whether a lead-in is meaningless by itself: "Changes made:", "Files modified:"."""
    bare = prose.without_chat(lead).rstrip(": ")
    return prose.is_chat(bare) or bool(_GENERIC_LEAD.match(bare) or _POOR_START.match(bare))


def _from_message(story: Story) -> Iterator[TitleCandidate]:
    statements = story.statements[:MAX_STATEMENTS]
    yield from _cause_and_fix(story)
    yield from _cause_found(story)
    yield from _headlines(story)
    yield from _choice(story)
    yield from _proposal(story)
    yield from _verdict(story)
    yield from _from_answer(story)
    under_option = False
    for index, one in enumerate(statements):
        bare = prose.without_chat(one.text)
        proposed = list(_proposed(one, story))
        yield from proposed
        under_option = is_option(one) or (under_option and one.depth > 0)
        if under_option or proposed or is_past_state(one, story):
            continue
        if one.shown_line:
            yield from _showing(one, story)
        yield from _of_place(one, story)
        if prose.is_lead_in(bare) or (one.kind == "heading" and _followed_by_list(statements, index)):
            yield from _with_items(statements, index)
        if prose.is_lead_in(bare) and is_telling_lead(bare):
            whole = f"{one.label}: {one.text}" if one.label else one.text
            yield TitleCandidate(
                prose.as_title(whole), "lead" if not one.label or _followed_by_list(statements, index) else "prose", one
            )
        if story.worked or one.kind == "prose":
            yield from _contrast(statements, index)
            yield from _pair(statements, index)
        if _POOR_START.match(bare):
            continue
        if one.kind == "heading":
            if CHANGE_START.match(one.text) or (names(one.text) and len(content_words(one.text)) >= 4):
                yield TitleCandidate(
                    prose.as_title(re.sub(r"(?i)^(?:summary|section \d+|\d+\.)\s*[:.-]\s*", "", one.text)),
                    "heading",
                    one,
                )
        elif not prose.is_lead_in(bare) and not prose.is_chat(bare) and says_something(one):
            text = one.text if one.kind != "row" else _row_claim(one)
            if text and one.label:
                yield TitleCandidate(prose.as_title(f"{one.label}: {text}"), one.kind, one)
            if text:
                yield TitleCandidate(prose.as_title(text), one.kind, one)


_TELLING_COLUMN = re.compile(
    r"(?i)\W*(?:fix|change[sd]?|what|description|purpose|reason|why|result|behaviou?r|meaning|does|effect|cause|problem|issue|finding|solution|action|explanation|notes?|details?|after|now)\b"
)


def _row_claim(one: Statement) -> str:
    """Return the cell of a row that states something about its label: cells without their columns are no sentence."""
    if len(one.cells) == 1:
        return one.text
    telling = (cell for head, cell in one.cells if _TELLING_COLUMN.match(head) and len(content_words(cell)) >= 3)
    return next(telling, "")


_PAST_STATE = re.compile(
    r"(?i)^\W*(?:before\b|previous(?:ly)?\b|old (?:behaviou?r|flow|code|way|output)\b|(?:the )?current(?:ly)? (?:behaviou?r|flow|state|problem)\b|was:?$|used to\b)"
)


_CURRENT = re.compile(r"(?i)^\W*(?:the )?current(?:ly)? (?:behaviou?r|flow)\b")


def is_past_state(one: Statement, story: Story) -> bool:
    """Return whether the statement describes the state before the change. If nothing was changed, the current behaviour
    is the answer."""
    if not story.worked and story.request.is_question and (_CURRENT.match(one.label) or _CURRENT.match(one.section)):
        return False
    return bool(
        _PAST_STATE.match(one.label) or _PAST_STATE.match(one.section) or re.match(r"(?i)before\W{0,3}$", one.lead)
    )


_UNTELLING = re.compile(r"[`{}<>│├└|]|\*\*|^(?:[-*#+]|\d{1,2}[.:)])|[:,]$")


_NOW_IT = re.compile(
    r"(?i)^(?:now,? (?:it|this)|(?:it|this)(?: now| also| will now)?|(?:the|this) (?:code|function|method|command|fix|change|implementation) now) (?P<does>(?!is\b|was\b|has\b|looks\b|seems\b|works\b|means\b|appears\b|compiles\b|builds\b|passes\b)[a-z-]{2,20}s\s.{12,})$",
    re.S,
)


def _of_place(one: Statement, story: Story) -> Iterator[TitleCandidate]:
    """Yield "It now uses X" with the only edited file as its subject."""
    sources = [path for path in story.evidence.edited_paths if not subjects.is_test(path)]
    match = _NOW_IT.match(prose.without_chat(one.text)) if story.worked and len(sources) == 1 else None
    if match and one.position <= VARIED_STATEMENTS and not prose.is_lead_in(one.text):
        does = prose.as_title(match["does"], 120)
        yield TitleCandidate(f"`{story.place}` now {lowered(does)}", "subjected", one, placed=True)


def _showing(one: Statement, story: Story) -> Iterator[TitleCandidate]:
    """Join a lead-in with the line that it shows: `The message now reads: "…"`."""
    start = prose.as_title(one.text.rstrip(":： "), 110)
    enough = len(content_words(start)) >= (1 if story.worked else 2)
    if enough and not prose.is_chat(start) and not _UNTELLING.search(one.shown_line):
        shown_line = prose.fit_title(one.shown_line, max(60, 170 - len(start)))
        if len(shown_line) >= 0.6 * min(len(one.shown_line), 60) and len(start) + len(shown_line) <= WHOLE_CHARS:
            yield TitleCandidate(f"{start}: `{shown_line}`", "shown", one)


_TOLD_CHARS = 185
_TELLING = re.compile(
    r"(?i)\b(?:because|root cause|the (?:bug|issue|problem|reason|answer|difference|fix) (?:is|was)|turns out|instead of|no longer|only|never|doesn't|isn't|won't|means|must|requires?|race condition)\b"
)


def _from_answer(story: Story) -> Iterator[TitleCandidate]:
    """Yield the beginning of an answer: its question, its first claim, and the next or the most informative one."""
    claims = [] if story.worked else list(_answer_claims(story))
    if not claims:
        return
    (first, one), later = claims[0], claims[1:8]
    telling = [claim for claim in later if claim[1].label or _TELLING.search(claim[0])]
    plain = TitleCandidate(first, "told", one)
    starts = [plain]
    if story.subject:
        starts.append(replace(plain, title=f"{story.subject} {first}", with_request=True))
    for topic in story.topics[:1]:
        if not content_words(topic) & content_words(first):
            starts.append(replace(plain, title=f"{topic}: {_BACK.sub('', first)}", topical=True))
    for second, _ in dict.fromkeys([*later[:1], *telling[:2]]):
        words = content_words(second)
        if 2 * len(words & content_words(first)) <= len(words):
            for start in starts:
                whole = f"{start.title}; {lowered(second)}"
                if len(whole) <= _TOLD_CHARS:
                    yield replace(start, title=whole)


# The number refers to a list in this conversation.
_BY_NUMBER = re.compile(r"(?i)\b(?:option|approach|step|test|scenario|problem|issue)s? #?(?:\d{1,2}|[A-E])\b")


def _answer_claims(story: Story) -> Iterator[tuple[str, Statement]]:
    """Yield the claims of an answer as titles: no chat, offers, questions or options."""
    for one in story.statements[:MAX_STATEMENTS]:
        bare = prose.without_chat(one.text)
        if (
            one.kind != "prose"
            or is_option(one)
            or is_past_state(one, story)
            or prose.is_lead_in(bare)
            or not says_something(one)
        ):
            continue
        if prose.is_chat(bare) or prose.is_status(bare) or prose.is_offer(bare) or _POOR_START.match(bare):
            continue
        if _BY_NUMBER.search(bare):
            continue
        title = prose.as_title(f"{one.label}: {bare}" if names(one.label) else bare, 130)
        if not TitleCandidate(title, "prose", one).is_cut and not prose.is_fragment(title):
            yield title, one


def _choice(story: Story) -> Iterator[TitleCandidate]:
    """Return the question that the answer ends with, and its options."""
    options: dict[str, list[Statement]] = {}
    for one in story.statements:
        if one.depth == 1 and one.first and is_option(one):
            options.setdefault(one.lead, []).append(one)
    if story.worked or not options:
        return
    lead, items = list(options.items())[-1]
    briefs = [brief for item in items if (brief := _brief(item).rstrip("?"))]
    question = prose.without_chat(lead)
    telling = len(content_words(question)) >= (2 if names(question) else 3) and not subjects.VAGUE.search(question)
    if len(briefs) < 2 or len(question) > 110 or not question.endswith("?") or not telling:
        return
    title = f"To decide: {question} {', '.join(briefs[:4])}"
    yield TitleCandidate(prose.fit_title(title, 170), "choice", items[0])


_RECOMMENDED = re.compile(
    r"""(?ix)(?:\b(?:the|a|my|an)\ (?:real|proper|cleanest|cleaner|best|simplest|simpler|right|better|only|minimal|recommended|proposed)?\ ?(?:fix|solution|approach|option|recommendation|suggestion|design|change)
      \ (?:is|would\ be|should\ be|could\ be)(?:\ to\b|\ just\ to\b)?
      | \b(?:i'd|i\ would)\ (?:(?:recommend|suggest|propose|say|lean\ toward|go\ with|just)\ (?:to\ |just\ |that\ we\ |we\ )?)?(?=[a-z`])
      | \bi\ (?:recommend|suggest|propose)(?:\ (?:to|just|that\ we|we))?
      | \bwe\ (?:should|could|can)(?![\w'’])(?:\ (?:just|also|simply|instead))?
    )[:\s]?\s{0,2}(?P<what>(?!(?:option|approach|be|have|like|love|need|want|rather|expect|think|argue)\b)\S.{14,200})"""
)


def _proposed(one: Statement, story: Story) -> Iterator[TitleCandidate]:
    """Return the recommendation of an answer as a proposal: the user has not agreed to it yet."""
    match = (
        None
        if story.worked or one.kind == "heading" or one.text.endswith(("?", ":"))
        else _RECOMMENDED.search(one.text)
    )
    if match and (what := _action(match["what"])):
        yield TitleCandidate(f"Proposed: {what}", "proposed", one)


_HEDGE = re.compile(r"(?i)^(?:(?:just|only|simply|simple|at minimum|to|also|instead|probably|either)\W+)+")


_NO_VERB = re.compile(
    r"(?i)(?:the|a|an|it|this|that|these|those|there|very|more|most|no|not|n't|at|in|on|for|with|if|when|as|so|and|or|my|our|your|be|is|are|\w+ly|\w+ing)\b|['’]"
)


def _action(text: str, *, known_verb: bool = False) -> str:
    """Return a proposed action without hedges; "" if the text does not begin with a verb or refers to a list."""
    bare = prose.as_wish(_HEDGE.sub("", text.strip()), 140)
    is_action = prose.to_past_tense(bare) != bare or not (known_verb or _NO_VERB.match(bare))
    vague = _BY_NUMBER.search(bare) or subjects.VAGUE.search(bare[:18]) or prose.is_fragment(bare)
    return lowered(bare) if is_action and len(content_words(bare)) >= 3 and not vague else ""


def _offered(story: Story) -> str:
    """Return what the agent offers to do at the end of an answer."""
    offer = open_steps.offered(story)
    if not offer or _ROUTINE_OFFER.match(offer) or re.search(r",? or ", offer[:120]):
        return ""
    head, _, rest = offer.partition(": ")
    match = _RECOMMENDED.search(rest)
    return _action(match["what"] if match else rest or head, known_verb=True)


def _contrast(statements: Sequence[Statement], index: int) -> Iterator[TitleCandidate]:
    """Join two consecutive labelled statements with similar labels: `Auto-commit: …; Manual-commit: …`."""
    pair = statements[index : index + 2]
    if len(pair) < 2 or not all(one.label and one.first and not prose.is_lead_in(one.text) for one in pair):
        pair = [one for one in statements[index : index + 6] if one.label and one.first][:2]
        if len(pair) < 2 or pair[0] is not statements[index] or pair[0].depth:
            return
    first, second = pair
    if (
        first.kind != second.kind
        or first.section != second.section
        or prose.is_chat(first.text)
        or prose.is_lead_in(second.text)
    ):
        return
    parts = [prose.as_title(f"{one.label}: {one.text}") for one in pair]
    if sum(map(len, parts)) <= 170:
        yield TitleCandidate("; ".join(parts), "contrast", first)


def _pair(statements: Sequence[Statement], index: int) -> Iterator[TitleCandidate]:
    """Join two consecutive sentences of one paragraph: a finding and its consequence."""
    pair = statements[index : index + 2]
    if len(pair) < 2 or pair[1].first or pair[0].kind != pair[1].kind or pair[0].kind not in ("prose", "item"):
        return
    parts = [prose.as_title(one.labelled) for one in pair]
    if sum(map(len, parts)) > 160:
        return
    claims = [prose.without_chat(one.text) for one in pair]
    if all(len(content_words(part)) >= 3 for part in parts) and not any(
        prose.is_chat(claim) or prose.is_status(claim) or prose.is_offer(claim) or prose.is_lead_in(claim)
        for claim in claims
    ):
        yield TitleCandidate(
            f"{parts[0]}; {lowered(parts[1])}",
            "pair",
            pair[0],
        )


def _followed_by_list(statements: Sequence[Statement], index: int) -> bool:
    return index + 1 < len(statements) and statements[index + 1].depth > 0


def _with_items(statements: Sequence[Statement], index: int) -> Iterator[TitleCandidate]:
    """Join a lead-in or a heading with the labels or beginnings of the items it introduces."""
    lead = statements[index]
    items = []
    for one in statements[index + 1 :]:
        if one.depth == 0:
            break
        if one.first and one.depth == statements[index + 1].depth:
            items.append(one)
    briefs = [_brief(item) for item in items]
    if any(item.kind == "row" and len(item.label.strip("`")) < 8 for item in items):
        return  # cells such as "true" or "Yes" name nothing without their row
    filled_briefs = [brief for brief in briefs if brief]
    if len(set(filled_briefs)) < len(filled_briefs) or any(len(brief) < 3 for brief in filled_briefs[:3]):
        return
    if not all(briefs[:2]) or not briefs or is_generic_lead(lead.text):
        return
    whole = lead.text.rstrip(": ")
    start = prose.as_title(whole, 100)
    if (len(content_words(start)) < 2 and not names(start)) or 2 * len(content_words(start)) < len(
        content_words(whole)
    ):
        return
    if _CUT_LEAD.search(start) and not _CONTINUES.search(whole):
        return
    title, item_count = start, 0
    goes_on = bool(_CONTINUES.search(whole)) and start.endswith(whole[-3:])
    for brief in map(lowered, briefs) if goes_on else briefs:
        longer = f"{title}{', ' if item_count else ' ' if goes_on else ': '}{brief}"
        if not brief or len(longer) > prose.TITLE_CHARS:
            break
        title, item_count = longer, item_count + 1
    if item_count and (item_count > 1 or len(briefs) == 1):
        more = f" and {len(briefs) - item_count} more" if len(briefs) > item_count else ""
        yield TitleCandidate(f"{title}{more}", "list", lead)


_CUT_LEAD = re.compile(r"(?i)\b(?:during|because|after|before|while|unless|until|whether|how|what)$")


def _brief(item: Statement) -> str:
    """Return a list item in a few words: its label, the whole item if short, or its first clause; never a fragment."""
    text = prose.without_parentheses(item.label or item.text).rstrip(".:; ")
    if len(text) <= 60:
        return text
    clause = re.split(r"[;:(—–]| - |, (?:which|so|because|but)\b", text, maxsplit=1)[0].strip()
    return clause if 8 <= len(clause) <= 60 and not prose.is_fragment(clause) else ""


_STATED = ("prose", "lead", "item", "list", "cause and fix", "row", "pair", "shown", "proposed", "contrast")
_BACK = re.compile(r"(?i)^(?:it|this|they|these|that)(?:'s| is| are)? ")
_OWN = ("edited", "moved", "made", "added", "swapped", "documented", "removed", "relocated")  # these name their subject
VARIED_STATEMENTS = 25


def _completed(candidate: TitleCandidate, story: Story) -> Iterator[TitleCandidate]:
    """Yield the title with the subject it lacks: the file, the topic of the request, the heading above it."""
    title, source, one = candidate.title, candidate.source, candidate.statement
    if source in _OWN or title.startswith("Proposed: ") or (one is not None and one.position > VARIED_STATEMENTS):
        return
    if story.request.plan and story.evidence.edits and source in ("prose", "lead", "item", "list", "cause and fix"):
        yield from _explained(candidate, _carried_out(story.request.plan).removeprefix("Implemented: "), story)
        return
    place = story.place
    lacks_place = bool(place) and place.rsplit(".")[0] not in title and not _NAMES_FILE.search(title)
    placed = f"{title} ({place})" if lacks_place and len(title) < 115 else ""
    if placed:
        yield replace(candidate, title=placed, placed=True)
    if source in _STATED:
        yield from _introduced(candidate, story)


_NAMES_FILE = re.compile(r"\w\.[A-Za-z]{1,5}`|\w/[\w.-]+\.[A-Za-z]{1,5}\b")
_EXPLAINS = re.compile(
    r"(?i)\b(?:because|root cause|caused by|due to|so that|so (?:the|a|when|it|they)|instead of|rather than|no longer|(?:was|were) (?:missing|never|not|only|being)|from \S+ to|only when|always)\b"
)
_IMPROVED = re.compile(r"(?:Improved|Enhanced|Refined|Updated|Cleaned|Reworked|Optimized|Fixed)\b")
SAYS_THE_SAME = 0.7  # share of the plan's words in a sentence that can replace the plan's heading


_FILE_LABEL = re.compile(r"^(?:`[^`\s]{1,120}\.\w{1,5}`|[\w./-]{1,120}\.\w{1,5}): (?=[A-Z])")


def _explained(candidate: TitleCandidate, heading: str, story: Story) -> Iterator[TitleCandidate]:
    """Yield a plan's heading joined with the cause or effect that a statement adds, or the statement alone if it says
    everything the heading says and more. A heading with a step, a side fix or its own words again is worse than the
    heading alone."""
    title = _FILE_LABEL.sub("", candidate.title)
    plan_words, title_words = content_words(heading), content_words(title)
    shared, new = plan_words & title_words, title_words - plan_words
    if (
        candidate.source == "list"
        or candidate.is_cut
        or prose.is_status(title)
        or prose.lacks_subject(title)
        or _BACK.match(title)
    ):
        return
    if len(shared) >= max(3, SAYS_THE_SAME * len(plan_words)):
        if len(new) >= 2 and candidate.source == "prose" and not re.match(r"(?i)implemented the plan\b", title):
            yield TitleCandidate(title, "replaced", candidate.statement)
        return
    whole = f"{heading}: {title}"
    adds = len(new) >= 3 and 2 * len(shared) <= len(title_words)
    effect = len(plan_words) <= SHORT_PLAN + 1 and re.search(r"\bnow\b", title)
    explains = bool(shared and (_EXPLAINS.search(title) or effect))
    first = candidate.statement is not None and candidate.statement.position == story.first_claim
    vague = len(plan_words) <= SHORT_PLAN and bool(_IMPROVED.match(heading)) and first
    if adds and len(whole) <= 170 and (explains or (vague and len(shared) >= 2 and is_change(title))):
        yield TitleCandidate(whole, "planned", candidate.statement)


def _introduced(candidate: TitleCandidate, story: Story) -> Iterator[TitleCandidate]:
    """Yield the title after its subject: the question or request, a topic, or its heading."""
    title, one = candidate.title, candidate.statement
    title_words = content_words(title)
    answers = one is not None and one.position == story.first_claim  # in later statements "it" is ambiguous
    points = bool(re.match(r"(?i)(?:this|that|these|those) (?!is\b|are\b)", title)) and not answers
    if story.subject and not (candidate.is_cut or points or candidate.source == "row"):
        whole, subject_words = f"{story.subject} {title}", content_words(story.subject)
        if len(whole) <= 175 and len(title_words - subject_words) >= 2 and len(subject_words - title_words) >= 2:
            yield replace(candidate, title=whole, with_request=True)
    bare = _BACK.sub("", title)
    for topic in story.topics if (bare == title or answers) and not is_change(bare) else ():
        whole = f"{topic}: {bare}"
        if not content_words(topic) & title_words and len(whole) <= 150:
            yield replace(candidate, title=whole, topical=True)
    section = subjects.section_of(one) if one and one.kind != "heading" else ""
    if section and bare == title and len(section) + len(bare) <= 150 and len(content_words(section) - title_words) >= 2:
        yield replace(candidate, title=f"{section}: {bare}", sectioned=True)
