"""Find the open steps at the end of a turn, and the outcome of the turn.

Evidence comes first: unfinished tasks, a check that fails at the end, a rejected call. Then the closing message: what
it announces, asks or offers. A wrong open step does harm, because every later session is shown it, so doubtful ones are
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from claude_mem.digest import prose
from claude_mem.digest.evidence import Command, error_line, unique
from claude_mem.digest.markdown import Statement
from claude_mem.digest.prose import content_words, names
from claude_mem.digest.subjects import Story, is_proposing, offered_action
from claude_mem.domain.text import shorten, strip_labels

MAX_STEPS = 4
STEP_CHARS = 200

_NEXT = re.compile(
    r"(?i)^\W*(?:(?:suggested |recommended |possible |potential |optional )?(?:next|remaining|follow.?up|outstanding|pending|open|unresolved|still|left|missing|future)\b(?: (?:steps?|work|tasks?|items?|questions?|issues?|actions?|to do|open|needed|missing|todo|improvements?|things?|up))?|to.?do|what'?s (?:next|left|missing)|not (?:yet )?(?:done|implemented|covered|addressed)|action items?|(?:approve with )?required changes|(?:must|should)[- ]fix|you(?:'ll)? (?:still )?need to|before (?:merging|release|you))\b[^.]{0,40}$"
)
_STILL = re.compile(
    r"(?i)\b(?:still (?:needs?|has to|have to|to be|missing|open|fails?|failing|unsafe|broken|0\b|not\b|documents|uses the old)|not yet (?:implemented|done|supported|handled|tested|wired|committed|pushed)|isn't yet|remains? to be|left to do|needs? to be (?:done|added|updated|fixed|set|configured)|(?:you'll|you will|you) (?:still )?need to|remember to|don't forget to|make sure to (?:add|set|configure)|TODO|follow-up (?:PR|issue|task)|has not been (?:tested|verified|committed))\b"
)
_TRIVIAL = re.compile(
    r"(?i)\b(?:let me know|anything else|any (?:other )?(?:questions|changes|feedback)|sound good|does (?:that|this)\b.{0,20}\b(?:make sense|look|sound|help|match|work|capture|seem)|make sense|is (?:that|this) (?:what|ok|okay|right|clear)|look (?:good|right)|do(?:es)? (?:that|this|it|the \w+)\b.{0,40}\b(?:feel|right|reasonable)|what(?:'s| is) your (?:instinct|take|preference|view)|thoughts|what do you think|what would you like|how would you like to proceed|ready (?:for|to) (?:review|test))\b"
)
_DONE = re.compile(r"(?i)^\W*(?:done|completed|fixed|added|implemented|updated|removed|✓|✅|✔)")
_PROPOSES = re.compile(
    r"(?i)\b(?:recommend\w*|propos\w*|suggest\w*|my (?:take|recommendation|suggestion)|we (?:could|should|can)|i(?:'d| would)(?: (?:suggest|recommend|go|do|say|propose))|could be|option \w|approach \w|should|the (?:real |proper |cleanest |best |simplest |right )?(?:fix|solution|approach) (?:is|would|could)|plan|design|would (?:need|be|require|make))\b"
)


def open_steps(story: Story) -> list[str]:
    """Return the open steps, each complete in itself, the most certain first."""
    failing = unsolved_check(story)
    steps = [
        *_unfinished(story),
        *([f"`{shorten(failing.key, 80)}` fails: {error_line(failing.output)}"] if failing else []),
        *_announced(story.statements),
        *_awaited(story),
        *_left_to_person(story),
        *_unchecked(story),
        *_undone(story),
    ]
    steps = steps or list(_unfixed(story))
    distinct_steps: list[str] = []
    for step in steps:
        words = content_words(step)
        if words and not any(
            len(words & content_words(other)) > 0.6 * min(len(words), len(content_words(other)))
            for other in distinct_steps
        ):
            distinct_steps.append(step)
    return distinct_steps[:MAX_STEPS]


def _unfinished(story: Story) -> Iterator[str]:
    tasks = story.evidence.tasks
    if any(task.is_done for task in tasks) and not all(task.is_done for task in tasks):
        yield from (shorten(task.subject, STEP_CHARS) for task in tasks if not task.is_done)
    for one in story.statements:
        if one.is_done is False:
            yield prose.as_title(strip_labels("next_steps", one.labelled), STEP_CHARS)


def unsolved_check(story: Story) -> Command | None:
    """Return the check that fails at the end of the turn: it ran after the last edit and was not seen to pass since."""
    evidence = story.evidence
    last_edit = max((edit.seq for edit in evidence.edits), default=0)
    failing = [command for command in evidence.unsolved if command.is_check and command.seq > last_edit]
    later = {command.seq for command in evidence.commands if command.is_check and command.passed}
    failing = [command for command in failing if not any(seq > command.seq for seq in later)]
    return failing[-1] if failing else None


def _unchecked(story: Story) -> Iterator[str]:
    """Yield what the plan asks a person to try or to inspect, if nothing says that it was done and a check fails: a
    plan's own list alone does not say that anything is open."""
    if story.request.plan and not story.request.refers_back and story.worked and unsolved_check(story):
        evidence = story.evidence
        lookups = [item.text for item in evidence.lookups]
        yield from untried(story.prompt, story.statements, evidence.commands, lookups)


_STOPPED = re.compile(r"(?i)\s*(?:Operation stopped|\[Request interrupted|<)")


def _undone(story: Story) -> Iterator[str]:
    """Yield the request of a turn that ended without an answer and without any work."""
    telling = [word for word in story.asked_words - _GENERIC if not word.isdigit() and not _STOPPED.match(story.prompt)]
    wished = story.request.is_wish and not story.request.refers_back and len(telling) >= 3
    if (
        wished and not story.evidence.message_seq and not story.worked
    ):  # a message that waits for approval was an answer, too
        wish = prose.as_wish(story.request.text, STEP_CHARS)
        if prose.to_past_tense(wish) != wish:  # a remark or a pasted error asks for nothing
            yield f"{wish} (asked, not done)"


_ASKED_WHY = re.compile(
    r"(?i)\b(?:why|bug|wrong|broken|fail\w*|error|not working|doesn't|don't see|isn't|still|hang\w*|stuck|crash\w*)\b"
)


def _unfixed(story: Story) -> Iterator[str]:
    """Yield the cause of a fault that an answer found, if nothing was changed."""
    if story.worked or story.evidence.edits or not _ASKED_WHY.search(story.prompt[:2_000]):
        return
    for one in story.statements:
        is_cause = re.match(r"(?i)(?:the )?root cause", one.label or one.section) or re.search(
            r"(?i)root cause", one.text
        )
        if is_cause and one.kind != "heading" and names(one.labelled) and not prose.is_lead_in(one.text):
            text = prose.as_title(one.text, 150)
            if not (prose.is_pointing(text) or prose.is_offer(text)) or re.match(r"(?i)the root cause", text):
                yield f"Not fixed yet: {text}"
                return


def is_next(one: Statement) -> bool:
    """Return whether the statement is in a section about remaining work."""
    return bool(_NEXT.match(one.lead.rstrip(":： ") or one.section))


def _announced(statements: Sequence[Statement]) -> Iterator[str]:
    """Yield the items announced as next, and the sentences that state that something is not done yet."""
    for one in statements:
        if one.kind == "heading" or prose.is_lead_in(one.text) or _DONE.match(one.text) or prose.is_chat(one.text):
            continue
        if (bare := strip_labels("next_steps", one.labelled)) != one.labelled:
            yield prose.as_title(bare, STEP_CHARS)
        elif one.first and is_next(one):
            yield prose.as_title(one.labelled, STEP_CHARS)
        elif (
            not one.depth
            and _STILL.search(one.text)
            and not prose.is_offer(one.text)
            and not prose.is_pointing(one.text)
        ):
            yield prose.as_title(one.text, STEP_CHARS)


def offered(story: Story) -> str:
    """Return the last thing that the agent offers to do, with its subject, if it is specific."""
    offers = [
        (one, offer)
        for one in story.statements
        if (offer := offered_action(one.text)) and not _TRIVIAL.search(one.text)
    ]
    for one, offer in offers[-1:]:
        whole = _resolved(offer, one, story)
        if len(content_words(whole) - _GENERIC) >= 3 and names(whole):
            return whole
    return ""


def _awaited(story: Story) -> Iterator[str]:
    """Yield what the agent offers or asks at the end, with its subject."""
    statements = story.statements
    if options := _options(statements):
        yield f"Decide: {shorten('; '.join(options), STEP_CHARS)}"
        return
    offers = [
        (one, offer) for one in statements if (offer := offered_action(one.text)) and not _TRIVIAL.search(one.text)
    ]
    for one, offer in offers[-1:]:
        whole = _resolved(offer, one, story)
        if len(content_words(whole) - _GENERIC) >= 2 or re.match(r"(?i)commit\b", whole):
            yield f"{prose.as_title(whole, STEP_CHARS)} (awaiting go-ahead)"
    if not offers and (proposal := _unapproved(story)):
        yield proposal
        return
    questions = [one.text for one in statements[-4:] if _is_question(one.text)]
    if not offers and questions:
        yield f"Question: {shorten(questions[-1], STEP_CHARS)}"


_APPROVAL = re.compile(
    r"(?i)\b(?:thoughts|sound (?:good|right|reasonable)|(?:does|do) (?:this|that|the|it)\b.{0,50}\b(?:capture|make sense|look|feel|sound|work|match|align|seem)|ok with (?:this|that)|agree|any (?:preferences|changes|adjustments|concerns)|what do you think)\b.{0,60}\?$"
)


def _unapproved(story: Story) -> str:
    """Return the proposal that an answer ends with by asking whether the user agrees."""
    statements = story.statements
    asking = next((one for one in reversed(statements[-3:]) if _APPROVAL.search(one.text)), None)
    if asking is None or story.worked:
        return ""
    proposed = [
        one for one in statements if one.position < asking.position and one.first and one.depth <= 1 and _is_step(one)
    ]
    if not proposed:
        return ""
    steps = [
        prose.as_title(one.label if len(content_words(one.label)) >= 2 and not names(one.label) else one.labelled, 80)
        for one in proposed
    ]
    return f"Approve or change the proposal: {shorten('; '.join(dict.fromkeys(steps[:5])), STEP_CHARS)}"


_STEP_LABEL = re.compile(r"(?i)^(?:pr|phase|step|part|section|stage) ?\d")


def _is_step(one: Statement) -> bool:
    """Return whether a statement is a step or a part of something proposed."""
    if prose.is_chat(one.text) or one.kind == "heading" or (prose.is_lead_in(one.text) and not one.label):
        return False
    return is_proposing(one.lead or one.section) or bool(_STEP_LABEL.match(one.label or one.text))


_PASSING = re.compile(r"(?i)^\W*(?:or|any|and|but|is there|did you|have you|are you|why|ready)\b")


def _is_question(sentence: str) -> bool:
    """Return whether the question can be understood later."""
    telling = len(content_words(sentence)) >= (3 if names(sentence) else 4) and not _PASSING.match(sentence)
    return sentence.endswith("?") and telling and bool(names(sentence)) and not _TRIVIAL.search(sentence)


def _options(statements: Sequence[Statement]) -> list[str]:
    """Return the options of the last list from which the agent asks the user to choose."""
    options: list[Statement] = []
    for one in statements:
        if one.depth != 1 or not one.first:
            continue
        asks = _ASKS.search(one.lead) or (one.text.endswith("?") and not one.lead.endswith("."))
        if asks or re.match(r"(?i)option \w", one.label):
            options = [*options, one] if options and options[-1].lead == one.lead else [one]
    is_asking = any(one.text.endswith("?") or _ASKS.search(one.text) for one in statements[-6:])
    return (
        [prose.as_title(one.label if len(one.label) > 8 else one.labelled, 90).rstrip("?") for one in options][:4]
        if is_asking and len(options) > 1
        else []
    )


_ASKS = re.compile(
    r"(?i)\b(?:would you (?:like|prefer|rather)|do you (?:want|prefer)|should (?:i|we)|shall (?:i|we)|which (?:one|option|do|would|approach)|your (?:call|choice|preference)|a few options|options?(?: are)?:?$)\b|\boptions:$"
)
_BEST = re.compile(
    r"(?i)\b(?:(?:real|proper|cleanest|cleaner|best|simplest|right|better) (?:fix|solution|approach|design|way)|recommend\w*|i'd suggest|the approach would be|proposed|proposal|should (?:generate|be|use|return|call|update))\b"
)
_FOUND = re.compile(
    r"(?i)\b(?:(?:cleanest|simplest|best|right|proper) (?:fix|solution) (?:is|would)|the fix (?:is|should be|would be)|root cause (?:is|was)|the (?:actual )?bug (?:is|was)|the (?:actual )?(?:problem|issue) (?:is|was):?)\b"
)
_GENERIC = frozenset(
    content_words(
        "implement fix do make apply add update proceed go ahead change improve address approach way feature improvement solution option "
        "design plan idea refactoring file documentation check look run help write create start instead first next now one both either leave those these them any some all rest"
    )
)


def _resolved(offer: str, asking: Statement, story: Story) -> str:
    """Return the offer with its subject: "fix it that way" alone is meaningless later."""
    first = _OTHERWISE.split(offer, maxsplit=1)[0]  # drop alternatives such as "or is it fine as it is"
    offer = first if _DO_THAT.match(offer) or len(content_words(first) - _GENERIC) > 2 else offer
    if _DO_THAT.match(offer) and (what := _right_before(asking, story)):
        return what
    if (match := _THIS.search(offer)) and (subject := _last_naming(match["what"], asking, story)):
        return f"{offer}: {subject}"
    if len(content_words(offer) - _GENERIC) >= 2:
        points = bool(_POINTS.search(offer)) and not names(offer)
        about = _sentence_before(asking, story) if points else ""
        return f"{offer}: {about}" if about else offer
    if what := _best_proposal(offer, asking, story):
        number = _NUMBERED_OPTION.match(what)  # "implement option B: Option B: …" says it twice
        return what if number and number[0].strip(": ").lower() in offer.lower() else f"{offer}: {what}"
    if after := _right_after(asking, story):
        return f"{offer}: {after}"
    labelled_items = [
        one
        for one in story.statements
        if one.label and one.first and one.position < asking.position and len(content_words(one.label)) >= 2
    ]
    if (
        not re.match(r"(?i)(?:commit|push|merge)\b", offer)
        and re.search(r"(?i)\b(?:all|any|some|these|those|them|which|both)\b", offer)
        and len(labelled_items) > 1
    ):
        return f"{offer}: {'; '.join(prose.as_title(one.labelled, 60) for one in labelled_items[:3])}"
    return offer


_POINTS = re.compile(r"(?i)\b(?:it|this|that|these|those|them)\b(?! (?:way|the)\b)")
_NUMBERED_OPTION = re.compile(r"(?i)(?:option|approach|solution) \w{1,2}\b:? ?")


def _best_proposal(offer: str, asking: Statement, story: Story) -> str:
    """Return the sentence that a generic offer such as "implement this fix" most likely refers to."""
    if not _FIX.search(offer) and (what := _right_before(asking, story)):
        return what
    telling = [one for one in story.statements if len(content_words(one.text)) > 3 and not one.text.endswith("?")]
    for pattern in (_FOUND, _BEST, _PROPOSES) if _FIX.search(offer) else (_BEST, _PROPOSES):
        proposed = [
            one for one in telling if pattern.search(f"{one.lead} {one.labelled}" if pattern is _BEST else one.labelled)
        ]
        before = [one for one in proposed if one.position < asking.position]
        naming = (
            [one for one in before if names(one.labelled)] or [one for one in proposed if names(one.labelled)] or before
        )
        if naming:
            return prose.as_title(naming[-1 if pattern is _PROPOSES else 0].labelled, 130)
    return ""


_FIX = re.compile(r"(?i)\bfix(?:es)?\b")


def _sentence_before(asking: Statement, story: Story) -> str:
    """Return the last sentence before an offer that names something: what "it" in the offer refers to."""
    before = [
        one for one in story.statements if 0 < asking.position - one.position <= 3 and one.kind in ("prose", "item")
    ]
    naming = [
        one for one in before if names(one.text) and not one.text.endswith("?") and not prose.is_lead_in(one.text)
    ]
    return prose.as_title(naming[-1].text, 130) if naming else ""


_DO_THAT = re.compile(r"(?i)(?:do|implement|make|apply|try|go with) (?:that|this|it)(?=,|$| now\b| instead\b| first\b)")
_OTHERWISE = re.compile(r",? or (?:is|are|would|do|does|should|shall|was) ")
_THIS = re.compile(r"(?i)\b(?:this|that|these|those) (?P<what>[a-z]{4,20})\b")


def _right_before(asking: Statement, story: Story) -> str:
    """Return the statement before an offer to "do that", if it names the action."""
    before = [one for one in story.statements if one.position < asking.position][-1:]
    return next((prose.as_title(one.labelled, 150) for one in before if _names_what(one)), "")


def _right_after(asking: Statement, story: Story) -> str:
    """Return the first step of the approach that is described after an offer."""
    later = [one for one in story.statements if one.position > asking.position]
    items = [one for one in later if one.depth and one.first and is_proposing(one.lead)]
    if not items:
        return ""
    first, below = items[0], [one for one in later if one.lead and one.lead == items[0].text]
    whole = f"{first.labelled} {below[0].text}" if below and prose.is_lead_in(first.text) else first.labelled
    return prose.as_title(whole.rstrip(": "), 150)


_WOULD = re.compile(r"(?i)\b(?:would|could|should|needs? to)\b")


def _names_what(one: Statement) -> bool:
    """Return whether the text names the action."""
    bare = prose.without_chat(one.text)
    proposes = bool(_WOULD.search(bare)) or prose.to_past_tense(bare) != bare
    return bool(names(bare)) and proposes and not bare.endswith("?") and not prose.is_pointing(bare)


def _last_naming(noun: str, asking: Statement, story: Story) -> str:
    """Return the last statement before an offer that names what the offer refers to: "this comment"."""
    words = content_words(noun) - _GENERIC
    for one in reversed(story.statements):
        if one.position < asking.position and words & content_words(one.labelled) and names(one.labelled):
            return prose.as_title(one.labelled.rstrip(": "), 110)
    return ""


_SETUP = re.compile(
    r"(?i)\b(?:must|need(?:s)? to|has to|have to) be (?:configured|set(?: up)?|added|created|granted|installed)\b|\brequired (?:\w+ ){0,2}(?:secrets|env(?:ironment)? variables|permissions|credentials)\b|\byou(?:'ll| will)? need to (?:add|set|configure|create) (?:the|these|this|following)\b"
)
_FOR_NOW = re.compile(
    r"(?i)\b(?:placeholder|stub(?:bed)?|hard-?coded|mock(?:ed)?|dummy)\b.{0,60}\bfor now\b|\bfor now\b.{0,40}\b(?:placeholder|stub|hard-?coded|dummy)\b"
)
_ANOTHER_TRY = re.compile(
    r"(?i)^(?:please |now )?(?:give|try|run|test|rebuild|restart)\b.{4,200}\bshould (?:now|no longer)\b"
)


def _left_to_person(story: Story) -> Iterator[str]:
    """Yield what was prepared for the user to set up or try, and temporary placeholders."""
    for index, one in enumerate(story.statements):
        if prose.is_lead_in(one.text) or one.kind == "heading":
            lead = f"{one.label} {one.text}" if one.label and one.label not in one.text else one.text
            if _SETUP.search(lead) and story.worked:
                yield _with_listed(lead, story.statements[index + 1 :])
        elif _FOR_NOW.search(one.text) and story.worked:
            yield f"Only a stand-in yet: {prose.as_title(one.labelled, 150)}"
        elif _ANOTHER_TRY.match(one.text) and story.worked and names(one.text):
            yield f"Not confirmed yet: {prose.as_title(one.text, 150)}"


def _with_listed(text: str, later: Sequence[Statement]) -> str:
    """Return a lead-in with the first few names of its list."""
    items = [one for one in later if one.first and one.depth and one.lead.rstrip(": ") in text]
    item_names = [one.label or one.text for one in items][:8]
    more = f" and {len(item_names) - 3} more" if len(item_names) > 3 else ""
    start = prose.as_title(text.rstrip(": "), 110)
    return f"{start}: {', '.join(prose.fit_title(item, 30) for item in item_names[:3])}{more}" if item_names else start


def turn_outcome(story: Story, steps: Sequence[str]) -> str:
    """Return the outcome of the turn: done, partly, failed, abandoned, answered or proposed."""
    evidence = story.evidence
    answered = bool(story.statements or evidence.message_seq)  # a message that waits for approval is an answer, too
    if not answered and not story.worked and evidence.rejections:
        return "abandoned"
    if story.planned:
        return "proposed"
    if story.worked:
        if unsolved_check(story) and not _FAILS_ON_PURPOSE.search(story.prompt[:2_000]):
            return (
                "failed" if not any(command.is_check and command.passed for command in evidence.commands) else "partly"
            )
        unfinished = any(task.is_done for task in evidence.tasks) and not all(task.is_done for task in evidence.tasks)
        return "partly" if unfinished or _is_broken_off(story) else "done"
    if not answered:
        return "abandoned" if evidence.rejections else ""
    if not story.statements:
        return "answered"
    return "proposed" if is_proposal(story, steps) else "answered"


# A test that is to fail before the code is written.
_FAILS_ON_PURPOSE = re.compile(
    r"(?i)\bfailing (?:unit |integration |e2e )?tests?\b|\btests? (?:that|which|should|must|to) (?:\w+ )?fails?\b|\b(?:fail|red) first\b|\btests? first\b|\btdd\b"
)
_FAILED_AT = re.compile(r"(?i)^\W*+(?:\S++ ){0,6}?(?:failed|fails|still failing)\b(?! (?:test|if|when|before|first))")
_MISSING = re.compile(
    r"(?i)\b(?:missing|(?:not|aren't|isn't|weren't) (?:yet )?(?:set|configured|added|there|available)|need(?:s|ed)? to (?:be )?(?:add|set|configur|creat)\w*)\b"
)


def _is_broken_off(story: Story) -> bool:
    """Return whether the message reports a step that failed because something is missing that only a person can add."""
    failed = [one for one in story.statements if _FAILED_AT.match(one.text) or _FAILED_AT.match(one.labelled)]
    return any(_MISSING.search(one.labelled) for one in failed) or (
        bool(failed) and any(_SETUP.search(one.text) for one in story.statements)
    )


def is_proposal(story: Story, steps: Sequence[str]) -> bool:
    """Return whether something was proposed that the user has not agreed to yet."""
    proposing = sum(bool(_PROPOSES.search(one.labelled)) for one in story.statements)
    return bool(steps) and proposing >= 2 and not story.worked


# --- checks of a plan ------------------------------------------------------------------------------------------------
#
# A plan lists checks that are left to a person under a heading like "Verification", between commands that the agent runs
# itself. A check that no one made is an open step: the next session cannot know otherwise that the work was never tried.


PROMPT_CHARS = 40_000
CHECK_CHARS = 280
MAX_CHECKS = 2

_HEADING = re.compile(r"^(?P<marks>#{1,4}) +(?P<text>\S.{0,160})$", re.M)
_VERIFICATION = re.compile(r"(?i)\b(?:verif\w*|testing|test plan|test strategy|manual|validation)\b")
_ITEM = re.compile(r"^(?P<indent>[ \t]{0,12})(?:[-*]|\d{1,3}\.)[ \t]{1,4}(?:\[ \] )?(?P<text>\S.{3,500})$")

_BY_HAND = re.compile(
    r"(?i)\bmanual(?:ly)?\b|\bvisual(?:ly)?\b|\bby hand\b|\bin (?:the |a )?browser\b|\bdev(?:elopment)? server\b|\b(?:bun|npm|yarn|pnpm) (?:run )?(?:dev|start)\b"
    r"|\bclick(?:s|ing)?\b|\bnavigate\b|\bvisit\b|\bopen (?:the |a |an )?(?:\w+ ){0,3}(?:browser|app|page|tab|modal|dialog|site|ui)\b|\bui\b|\btoggle\b|\bbadges?\b|\bmodals?\b|\bbutton\b|\bdropdown\b|\bbanner\b"
    r"|\bselect (?:the |a |an |some |different |[\"'>])|\brefresh (?:the )?page\b|\bon (?:a|an|the) (?:real|sample|live|staging|production|github)\b|\breal (?:run|data|evaluation|device|world)\b|\brun (?:a|an|the) real\b|\ba/b test\b|\bend[- ]to[- ]end by\b"
)
# What the agent runs or reads itself.
_AUTOMATIC = re.compile(
    r"(?i)^\W*(?:\*\*)?(?:run |re-?run |ensure |execute )?(?:the )?(?:all |existing |full )?(?:unit |integration |e2e |frontend |backend )?(?:`[^`]*\b(?:test|lint|typecheck|tsc|build|fmt|format|vet|check)\b[^`]*`|tests?\b|lint\w*\b|type.?check\w*\b|build\b)|^\W*(?:read|review the diff)\b"
)
_TRIED = re.compile(
    r"(?i)\bmanual(?:ly)? (?:verif|test|check)\w*|\bverified (?:in|by hand|manually|visually)|\bvisually (?:verified|checked|confirmed)|\bscreenshots?\b"
)
_DRIVEN = re.compile(r"(?i)playwright|puppeteer|browser|chrome|selenium")
_OWN_LABEL = re.compile(
    r"(?i)^\W*(?:manual(?:ly)?(?: (?:test\w*|check\w*|verif\w*|review\w*|qa))?|(?:test|check|verify) manually)\s{0,2}[:–—-][\s–—-]{0,3}"
)

_STARTS_ONLY = re.compile(r"(?i)^(?:start|run|launch) (?:the )?(?:dev(?:elopment)? server\b.{0,30}|`[^`]{3,40}`)\W*$")
_READS_ONLY = re.compile(r"(?i)^(?:read|review|skim)\b")


@dataclass
class _Check:
    """An item of the list of checks, with the items below it."""

    text: str
    indent: int
    below: list[str] = field(default_factory=list)

    @property
    def is_by_hand(self) -> bool:
        if _READS_ONLY.match(_OWN_LABEL.sub("", self.text)):
            return False
        if _AUTOMATIC.match(self.text) and not _BY_HAND.search(self.text):
            return False
        return any(_BY_HAND.search(line) for line in (self.text, *self.below))

    @property
    def is_labelled(self) -> bool:
        return bool(_OWN_LABEL.match(self.text))


def untried(
    prompt: str, statements: Iterable[Statement], commands: Sequence[Command], lookups: Iterable[str]
) -> Iterator[str]:
    """Yield the checks of the prompt's plan that were not made, each as one line; consecutive steps are one check."""
    if any(_TRIED.search(one.text) for one in statements) or any(_DRIVEN.search(text) for text in lookups):
        return
    groups: list[list[_Check]] = []
    open_group = False
    for check in _checks(prompt[:PROMPT_CHARS]):
        if not check.is_by_hand or _was_run(check.text, commands):
            open_group = open_group and not _AUTOMATIC.match(check.text) and not check.is_labelled
            if open_group:
                groups[-1].append(check)
            continue
        if open_group and not check.is_labelled:
            groups[-1].append(check)
        else:
            groups.append([check])
        open_group = not check.is_labelled
    for group in groups[:MAX_CHECKS]:
        yield f"Not tried by hand yet: {_as_line(group)}"


def _checks(prompt: str) -> Iterator[_Check]:
    """Yield the checks listed under the headings about verification, and those that say "manual" elsewhere."""
    for is_about_checks, body in _sections(prompt):
        check: _Check | None = None
        for line in body.splitlines():
            if match := _ITEM.match(line):
                text, indent = match["text"].replace("**", ""), len(match["indent"].expandtabs(4))
                if check is not None and indent > check.indent:
                    check.below.append(text)
                    continue
                if check is not None:
                    yield check
                check = _Check(text, indent) if is_about_checks or bool(_MANUAL.search(text)) else None
        if check is not None:
            yield check


_MANUAL = re.compile(
    r"(?i)\bmanual(?:ly)?\b\W{0,4}(?:visual )?(?:test|verif|check|confirm|try)|\b(?:test|verif|check|confirm)\w*\b.{0,40}\bmanually\b"
)


def _sections(prompt: str) -> Iterator[tuple[bool, str]]:
    """Yield the sections of a plan, and whether each is about verification. A heading below such a one belongs to it."""
    headings = list(_HEADING.finditer(prompt))
    depth = 0  # of the heading about verification, while below it
    for number, heading in enumerate(headings):
        level = len(heading["marks"])
        if depth and level <= depth:
            depth = 0
        if not depth and _VERIFICATION.search(heading["text"]):
            depth = level
        end = headings[number + 1].start() if number + 1 < len(headings) else len(prompt)
        yield bool(depth), prompt[heading.end() : end]


def _was_run(line: str, commands: Sequence[Command]) -> bool:
    """Return whether a command named in the line was run."""
    texts = [command.text for command in commands]
    return any(name in text for name in re.findall(r"`([^`]{4,80})`", line) for text in texts if " " in name)


def _as_line(group: Sequence[_Check]) -> str:
    """Return consecutive checks as one line: as many whole parts as fit."""
    parts: list[str] = []
    group = [check for check in group if check.below or not _STARTS_ONLY.match(check.text)] or group
    for check in group:
        text = _OWN_LABEL.sub("", check.text).rstrip(" .;")
        leads_on = text.endswith((":", "-", "—", "–")) or (bool(check.below) and len(text) < 60)
        if leads_on and check.below:
            parts.append(f"{text.rstrip(' :–—-')}: {check.below[0].rstrip(' .;')}")
            parts += [line.rstrip(" .;") for line in check.below[1:]]
        else:
            parts += [text.rstrip(":"), *(line.rstrip(" .;") for line in check.below)]
    line = prose.as_title(parts[0], CHECK_CHARS)
    for part in unique(parts[1:]):
        longer = f"{line}; {part}"
        if len(longer) > CHECK_CHARS:
            break
        line = longer
    return line
