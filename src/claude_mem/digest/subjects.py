"""What a turn was about: its request, and the subject that an isolated sentence of the closing message lacks.

The request is the prompt in plain words, or what a short prompt refers to: "yes" accepts the offer at the end of the
previous answer, "2" picks an option of its list, "continue" continues the previous request. The subject of a pasted
plan is its heading. Pasted code and logs are ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from claude_mem.digest import markdown, prose
from claude_mem.digest.evidence import Evidence, plan_heading
from claude_mem.digest.markdown import Statement
from claude_mem.digest.prose import content_words, names
from claude_mem.domain.records import Exchange, Turn

PROMPT_CHARS = 6_000

_FENCE = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.M | re.S)
_PASTED = re.compile(r"^(?:[>│|+@$#❯%]|[-+]\s{2,}|\s{4,}|\t|at \S+\(|\[[\w:.-]+\]|\d{2,4}[-:/]\d{2}).*$", re.M)
_TAG = re.compile(r"<([a-zA-Z][\w-]{0,60})\b[^<>]{0,400}>.*?(?:</\1>|\Z)", re.S)
# A plan to carry out, not any text with headings.
_PLAN = re.compile(r"(?i)\bplan\b[^\n]{0,60}\n+#{1,3} |\A\s*#{1,3} |\bimplement\b[^\n]{0,80}\n+#{1,3} ")
_ADDRESS = re.compile(r"['\"(<]?https?://\S+")
_POLITE = re.compile(
    r"""(?ix)^(?:\W*(?:
        (?:ok(?:ay)?|yes|yeah|yep|sure|great|cool|nice|perfect|thanks|hm+|oh|ah|so|now|then|also|and|but|actually|please|hey|hi|alright|right|good|sorry|no)\b[\s,.:!-]*
      | (?:one|a)\ (?:last|final|more|other|small|quick)(?:\ (?:last|final|more|small|quick))?\ thing\b[\s,.:!-]*
      | (?:can|could|would|will|should)\ (?:you|we|i)\b(?:\ (?:please|also|now|just|then|maybe|again))*\s*
      | (?:let's|lets|let\ us)\b(?:\ (?:please|also|now|just|then|maybe|again|go\ ahead\ and))*\s*
      | (?:i|we)(?:'d|\ would)?\ (?:want|like|need|prefer)(?:\ you)?\ to\s* | (?:i|we)\ (?:think|guess)(?:\ (?:we|that|you))?(?:\ (?:should|need\ to|have\ to|can|could))?\s*
      | (?:you|we)\ (?:should|need\ to|have\ to|can|could|must)\s* | (?:please|just|also|now|maybe)\b\s* | do\ me\s* | help\ me\ (?:to\ )? | do\ you\ think\ (?:you|we)\ (?:can|could|should)\b\s*
    ))+"""
)
_QUESTION = re.compile(
    r"(?i)^\W*(?:what|why|how|where|when|which|who|is|are|does|do|did|was|were|has|have|isn't|aren't|doesn't|don't|explain|tell me|check|double check|see|look|show me|verify|review|investigate|find out|summari[sz]e|describe|understand)\b"
)
_PICK = re.compile(
    r"(?i)\W{0,4}(?:(?:option|approach|number|#|let's (?:do|go with)|do|go with|pick|choose|yeah|yes|ok)\W{0,4}){0,4}"
    r"(?P<picks>(?:\d{1,2}|[a-e])(?:\W{1,4}(?:and\b|\+|&|,)?\W{0,3}(?:\d{1,2}|[a-e])){0,4})\b[.):]?\W{0,4}(?P<rest>.*+)",
    re.S,
)
_GO_AHEAD = re.compile(
    r"(?i)^\W*(?:(?:yes|yeah|yep|y|ok(?:ay)?|sure|please|do|it|that|this|go|ahead|continue|proceed|lgtm|perfect|great|good|looks|sounds|let's|lets|implement|approved?|correct|right|exactly|both|all|them|fix|comm?it|push|now|then|and|its|it's|so|for|me|works?|agreed?|fine|cool|thanks|thank|you|done|next|go on|keep going|resume|try again|retry|again)\W*){1,8}$"
)


@dataclass(frozen=True, slots=True)
class UserRequest:
    """The request behind a turn."""

    text: str  # in plain words, one line, may be empty
    plan: str = ""  # the heading of a plan in the prompt
    is_question: bool = False
    refers_back: bool = False  # the prompt only refers to an earlier turn, where the text was found
    review: str = ""  # `Review of PR #88`, if one was asked for

    @property
    def is_wish(self) -> bool:
        """Whether something is to be done, not only answered."""
        return bool(self.text) and not self.is_question


def find_request(turn: Turn) -> UserRequest:
    """Return the request of a turn's prompt, or the request that a short prompt refers to."""
    return replace(_find_request(turn), review=_review(turn))


def _review(turn: Turn) -> str:
    """Return the pull request or branch under review, by its number in this prompt or a recent one."""
    if not re.search(r"(?i)\breview|\bpr\b|\bpull request|\bcomments?\b|\bfeedback\b|\bbugbot\b", turn.prompt[:600]):
        return ""
    for prompt in (turn.prompt, *(exchange.prompt for exchange in reversed(turn.previous))):
        if match := re.search(r"(?:/pull/|\bPR ?#?|\bpull request ?#?)(\d{1,6})\b", prompt[:PROMPT_CHARS], re.I):
            return f"Review of PR #{match[1]}"
    return ""


def _find_request(turn: Turn) -> UserRequest:
    wish = _wish(turn.prompt)
    if wish.text and not _is_pick(turn.prompt, turn.previous):
        return wish
    for exchange in reversed(turn.previous):
        if accepted := _accepted(turn.prompt, exchange):
            return UserRequest(accepted, refers_back=True)
        if (earlier := _wish(exchange.prompt)).text and not _PICK.match(exchange.prompt[:40]):
            return UserRequest(earlier.text, earlier.plan, earlier.is_question, refers_back=True)
    return UserRequest(wish.text, refers_back=True)


def plain_prompt(prompt: str) -> str:
    """Return the user's own words of a prompt: no pasted code, logs, quotations, tags or URLs."""
    bare = _ADDRESS.sub("", _TAG.sub(" ", _FENCE.sub("", prompt)))
    own_text = _PASTED.sub("", bare)
    return " ".join((own_text if own_text.strip() else bare).split())


def _wish(prompt: str) -> UserRequest:
    """Return what a prompt requests by itself; a mere go-ahead requests nothing."""
    prompt = prompt[:PROMPT_CHARS]
    if plan := plan_heading(prompt) if _PLAN.search(prompt[:300]) else "":
        return UserRequest(plan, plan=plan)
    text = plain_prompt(prompt)
    if not text or _GO_AHEAD.match(text):
        return UserRequest("")
    sentence = _telling(text)
    bare = _LABEL.sub("", _POLITE.sub("", sentence)).strip() or sentence
    is_question = bool(_QUESTION.match(bare)) or (sentence.rstrip().endswith("?") and not _POLITE.match(sentence))
    return UserRequest(bare.rstrip("?!. "), is_question=is_question)


MAX_SENTENCES = 6
_LABEL = re.compile(
    r"(?i)^(?:(?:one |another |different |genuine |quick |so |now )*question(?: first)?|q(?=:)|my point is|fyi)\b[\s,:–-]{1,4}"
)
# "Can you check?", "what do you think?": the subject is in another sentence.
_VAGUE_ASK = re.compile(
    r"(?i)^\W*(?:(?:can|could|would|will) (?:you|we) )?(?:please )?(?:(?:double )?check|fix|look|have a look|take a look|help|investigate|explain|see|try|verify|address|confirm|what do you think|thoughts|any ideas?|right|correct|ok|why|how|what happened|what's (?:up|wrong|going on))"
    r"(?: (?:it|this|that|these|those|them|into|at|again|why|me|with|please|here|for|fixing|all|the (?:issue|problem|error|comments?)))*\W*$"
)
# Statements of users about themselves: a request only if no other sentence is one.
_REMARK = re.compile(
    r"(?i)^\W*(?:i|i'm|i've|i'd|my|we|we're|you|it|it's|this|that|that's|there|they|sorry|thanks|ok|yes|no|hmm|so)\b"
)


def _telling(text: str) -> str:
    """Return the sentence of a prompt that states the request: the first that asks for something by name."""
    sentences = re.split(r"(?<=[.!?])\s+", text[:2_000], maxsplit=MAX_SENTENCES)[:MAX_SENTENCES]
    whole = [one for one in sentences if len(one) >= 15 and len(one.split()) >= 3 and not _VAGUE_ASK.match(one)]
    if not whole:
        return text if len(sentences[0]) < 15 else sentences[0]
    plain_wish = [one for one in whole if not _REMARK.match(_POLITE.sub("", one))]
    asking = [one for one in plain_wish if _POLITE.match(one) or _QUESTION.match(one) or one.endswith("?")]
    if _REMARK.match(_POLITE.sub("", whole[0])) or not whole[0][:1].isalnum():
        return next(iter([*asking, *plain_wish]), whole[0])
    return whole[0]


def _is_pick(prompt: str, previous: tuple[Exchange, ...]) -> bool:
    match = _PICK.match(prompt[:80])
    return bool(previous and match and len(match["rest"]) < 25)


def _accepted(prompt: str, exchange: Exchange) -> str:
    """Return what a short prompt accepts of the previous answer: an option of its list, or its offer."""
    if not exchange.closing:
        return ""
    statements = markdown.read(exchange.closing)
    if (match := _PICK.match(prompt[:80])) and (picks := re.findall(r"\d{1,2}|\b[a-e]\b", match["picks"], re.I)):
        options = [one for one in statements if one.number in {pick.lower() for pick in picks} and one.first]
        last = {option.number: option for option in options}  # the list closest to the end of the answer
        if last:
            options_text = " and ".join((option.label or option.text).rstrip("?") for option in last.values())
            more = match["rest"].strip(" ,.;:!").split("\n")[0][:80]
            return prose.as_title(f"{options_text}, {more}" if len(more.split()) > 1 else options_text)
    offers = [offer for one in statements[-6:] if (offer := offered_action(one.text))]
    return prose.as_title(offers[-1]) if offers else ""


_OFFERED = re.compile(
    r"(?i)\b(?:would you like me to|do you want me to|want me to|do you want to|shall i|should i|should we|would you like to|ready (?:for me )?to|i can)\s+(?P<what>[^?]{4,200})\?"
)


def offered_action(sentence: str) -> str:
    """Return what the agent offers to do in a sentence: `Want me to fix it that way?` → `fix it that way`."""
    match = _OFFERED.search(sentence)
    return match["what"].strip() if match else ""


# --- the story of a turn ---------------------------------------------------------------------------------------------


VAGUE = re.compile(r"(?i)\b(?:it|this|that|these|those|them|they|here|there|same|something|everything|stuff|things?)\b")
_ASKING = re.compile(
    r"(?i)^(?:(?:can|could) you )?(?:please )?(?:(?:double[- ]?|re)?check|verify|see|tell me|explain|help me understand|understand|show me|look|find out|investigate|describe|know|confirm)\b"
    r"(?: (?:me|us|again|fully|also|now|quickly|briefly|into|out|at|for))*(?: (?:if|whether|that)\b)?[\s,:]*"
)
_BROKEN = re.compile(
    r"(?i)\b(?:bugs?|errors?|fail(?:s|ed|ing|ure|ures)?|broken|wrong|incorrect\w*|doesn't|does not|didn't|isn't|not working|no longer|crash\w*|panic\w*|unexpected\w*|still (?:see|get|have|shows?)|stuck|hang\w*|missing|lacks?|never)\b"
)
# "check if …" names a condition, "ensure …" a goal: neither states what was done.
_LOOKED = re.compile(r"(?i)^(?:checked|verified|ensured|made sure|tested|confirmed|committed|pushed|merged)\b")
_PERSON = re.compile(r"(?i)^(?:i|i'm|i've|i'd|you|we|my|our|your|or|option|go with)\b")
_TAG_QUESTION = re.compile(r"(?i),? ?\b(?:yeah|right|or|no|correct|please|or not|is it|isn't it)$")

CHANGE_START = re.compile(
    r"(?i)^(?:\d+\.\s*)?(?:add|creat|implement|fix|remov|delet|renam|mov|extract|refactor|simplif|consolidat|replac|chang|updat|switch|improv|introduc|support|dropp?)\w*\b"
)
_TEST = re.compile(r"(?i)(?:^|[/_.-])(?:tests?|spec)(?:[/_.-]|$)|_test\.|\.test\.|\.spec\.|(?:^|/)test_")


@dataclass(frozen=True)
class Story:
    """Everything known about a turn when its record is written."""

    request: UserRequest
    evidence: Evidence
    statements: Sequence[Statement]
    prompt: str = ""
    earlier: tuple[str, ...] = ()  # prompts of the session before this one

    @cached_property
    def asked_words(self) -> frozenset[str]:
        """The content words of the request."""
        return content_words(self.request.text)

    @cached_property
    def work_words(self) -> frozenset[str]:
        """Words of the edited and committed things: files, symbols, subjects."""
        symbols = [name for edit in self.evidence.edits for name in (*edit.change.added, *edit.change.changed)]
        files = [PurePosixPath(edit.path).stem for edit in self.evidence.edits]
        return content_words(" ".join([*files, *symbols, *(commit.subject for commit in self.evidence.commits)]))

    @cached_property
    def message_words(self) -> frozenset[str]:
        """Words that the closing message uses more than once, and so is about."""
        word_counts: dict[str, int] = {}
        for statement in self.statements:
            for word in content_words(statement.labelled):
                word_counts[word] = word_counts.get(word, 0) + 1
        return frozenset(word for word, times in word_counts.items() if times > 1)

    @cached_property
    def said_words(self) -> frozenset[str]:
        """All content words of the closing message."""
        return frozenset[str]().union(*(content_words(one.labelled) for one in self.statements))

    @cached_property
    def name_counts(self) -> Counter[str]:
        """Number of statements of the closing message that mention each name."""
        return Counter(name for one in self.statements for name in names(f"{one.labelled} {one.section}"))

    @cached_property
    def edited_names(self) -> frozenset[str]:
        """The definitions and files that were edited."""
        edits = self.evidence.edits
        symbols = {name for edit in edits for name in (*edit.change.added, *edit.change.changed, *edit.change.removed)}
        return frozenset(symbols | {PurePosixPath(edit.path).name for edit in edits})

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """Possible topics of a sentence, each in a few words, the most certain first."""
        candidates = (topic_of(self), talked_about(self))
        return tuple(dict.fromkeys(topic for topic in candidates if topic))

    @cached_property
    def subject(self) -> str:
        return asked_subject(self)

    @cached_property
    def tells_everything(self) -> bool:
        """Whether the message sums up the session so far, not this turn only."""
        return any(one.kind == "heading" and _EVERYTHING.search(one.text) for one in self.statements[:4])

    @cached_property
    def first_claim(self) -> int:
        """Position of the first statement with information: not chat, a status, a heading or a lead-in."""
        for one in self.statements:
            bare = prose.without_chat(one.text)
            if (
                one.kind in ("prose", "item")
                and len(content_words(bare)) >= 3
                and not prose.is_chat(bare)
                and not prose.is_status(bare)
            ):
                return one.position
        return 0

    @cached_property
    def worked(self) -> bool:
        evidence = self.evidence
        if evidence.edits or evidence.commits or evidence.moves or evidence.creations:
            return not self.planned
        # A plan may be carried out where events do not show it, for example by a subagent; then the agent's statement counts.
        claims = [one.text for one in self.statements if one.kind != "heading"]
        changes = (CHANGE_START.match(prose.without_chat(claim)) or _NOW.search(claim) for claim in claims)
        return bool(self.request.plan) and any(changes)

    @cached_property
    def fault(self) -> str:
        """The sentence of the prompt that states a fault of something it names, as reviewers write them; "" if none."""
        return _fault(self.prompt)

    @cached_property
    def is_about_fault(self) -> bool:
        """Whether the prompt speaks of something that does not work."""
        return bool(_BROKEN.search(self.prompt[:2_000]))

    @cached_property
    def planned(self) -> bool:
        """Whether nothing but a plan was written."""
        evidence = self.evidence
        return bool(evidence.edits) and not evidence.commits and all(map(is_plan, evidence.edited_paths))

    @cached_property
    def place(self) -> str:
        """The file with most of the work, without its directories; "" if the work is spread out."""
        lines: dict[str, int] = {}
        for edit in self.evidence.edits:
            lines[edit.path] = lines.get(edit.path, 0) + edit.change.added_lines + edit.change.removed_lines + 1
        lines = {path: number for path, number in lines.items() if not is_test(path)} or lines
        if not lines:
            return ""
        path, most = max(lines.items(), key=lambda item: item[1])
        return PurePosixPath(path).name if len(lines) == 1 or most * 2 >= sum(lines.values()) else ""


_EVERYTHING = re.compile(
    r"(?i)\b(?:all (?:the )?changes|complete summary|final summary|entire session|this session|full summary)\b"
)
_FAULTY = re.compile(
    r"(?i)\b(?:bugs?|fail(?:s|ed|ing)?|broken|wrong|incorrect\w*|doesn't|does not|don't|isn't|aren't|not (?:used|called|working|handled|validated)|no longer|crash\w*|panics?|unexpected\w*|missing|lacks?|never|unused|dead code|duplicat\w*|race condition|inconsistent|performance issue|overwrit\w*|lost|leaks?|hangs?|can (?:break|lead|cause|fail)|could (?:break|lead|cause|fail|split|result)|only (?:used|called|calculated|set))\b"
)
_OWN_REMARK = re.compile(
    r"(?i)\b(?:i|i'm|i've|i'd|me|my|we|we're|we've|our|you|your|let's|please|can|could you|this|that|these|it|they|there)\b"
)
FAULT_CHARS = 170


def _fault(prompt: str) -> str:
    text = plain_prompt(prompt[:PROMPT_CHARS])
    for sentence in re.split(r"(?<=[.!?])[\s\"”]+|:\s+[\"“]|:\s*\n", text[:1_500])[:5]:
        line = sentence.strip(" \"“”'")
        begin = line[:28]
        if _FAULTY.search(line) and not (line.endswith("?") or _OWN_REMARK.match(line) or prose.is_pointing(line)):
            is_listed = line.count(" - ") > 1 or bool(re.search(r" \d$|: - ", line))
            is_claim = bool(names(line)) and len(content_words(line)) >= 5 and line[:1].isalnum() and not is_listed
            if is_claim and not re.search(r"(?i)\b(?:i|you|we)\b", begin) and len(line) <= 2 * FAULT_CHARS:
                return line.rstrip(".")
    return ""


_NOW = re.compile(r"(?i)\b(?:is|are) now (?:\w+ )?\w+ed\b")


def is_plan(path: str) -> bool:
    """Return whether the path is a file of the agent's own plans."""
    return bool(re.search(r"(?:^|/)(?:\.claude/)?plans?/[^/]+\.md$", path))


def is_test(path: str) -> bool:
    return bool(_TEST.search(path))


def asked_subject(story: Story) -> str:
    """Return the question or the request as the beginning of a title: an answer alone often lacks its subject."""
    request = story.request
    whole = _TAG_QUESTION.sub("", _ASKING.sub("", request.text) if request.is_question else request.text)
    whole = re.sub(r"(?i)\b(?:I|we) have (?=an?\b)", "one has ", whole)
    short = prose.fit_title(whole, 90).strip(" ,.;:-")
    if request.plan or len(content_words(short)) < 3 or VAGUE.search(short[:40]) or prose.is_fragment(short):
        return ""
    if short.count('"') % 2:
        return ""
    if len(content_words(whole)) > 2 * len(content_words(short)) or _PERSON.match(short):
        return ""
    short = short[:1].upper() + short[1:]
    if request.is_question:
        return f"{short}?" if _ASKS.match(short) else ""
    past_request = done_wish(short, story)
    if _LOOKED.match(past_request):
        return ""
    return f"{past_request or short}:" if story.worked and (past_request or _BROKEN.search(short)) else ""


# What the user asked for besides the change, or only thinks about: the past tense would claim that it was done.
_NOT_ONE_CHANGE = re.compile(
    r"(?i)\?|…|\b(?:or something|something (?:to|that|like)|find out|figure out|maybe|perhaps|like we (?:do|did)|i|i'd|i'm|we|you|your|my|me|our|instead of \"|would instead|should be something|and then)\b"
)
_POLITE_WORD = re.compile(r"(?i),?\s{1,2}(?:please|pls|thanks|thank you)\b")


_OR_SOMETHING = re.compile(r"(?i)\s{1,2}or (?:something|anything|so|similar|whatever)\b(?! else).{0,60}$")


def done_wish(wish: str, story: Story) -> str:
    """Return a request in the past tense if the evidence supports that it was done: one change, with a word that the
    commits, the edits or the closing message have, too. Otherwise ""."""
    wish = _OR_SOMETHING.sub("", _POLITE_WORD.sub("", wish)).strip()
    past_wish = prose.to_past_tense(wish)
    if past_wish == wish or _NOT_ONE_CHANGE.search(past_wish) or prose.has_open_verb(past_wish):
        return ""
    words = content_words(wish.partition(" ")[2])
    return past_wish if words & (story.work_words | story.said_words) else ""


_ASKS = re.compile(
    r"(?i)(?:what|why|how|where|when|which|who|whose|is|are|does|do|did|was|were|can|could|should|would|will|has|have|had|isn't|aren't|doesn't|don't|didn't)\b"
)
_TOPIC = re.compile(
    r"(?![0-9a-f/-]{6,}\Z|[0-9a-f]{8}-|Users/|home/|opt/|usr/|var/|/|https?:|e\.g|\d)[\w.@:#/-]+(?: [\w.-]+){0,2}(?:\(\))?"
)
_COMMON = frozenset(
    [
        "API",
        "CLI",
        "CI",
        "UI",
        "PR",
        "ID",
        "JSON",
        "YAML",
        "HTTP",
        "URL",
        "OK",
        "TODO",
        "README",
        "NOT",
        "AND",
        "OR",
        "DO",
        "MIT",
        "SQL",
        "HTML",
        "CSS",
        "e.g",
        "i.e",
        "true",
        "false",
        "nil",
        "null",
    ]
)


def topic_of(story: Story) -> str:
    """Return the topic of the request in a few words: the plan's heading, the pull request under review, else a name in
    the request that the answer mentions."""
    if story.request.plan:
        return prose.fit_title(story.request.plan, 60)
    if story.request.review:
        return story.request.review
    if _REVIEWED.search(story.request.text) and (branch := _reviewed_branch(story)):
        return f"Review of `{branch}`"
    spoken = story.message_words | story.work_words
    matching_names = [
        name for name in names(story.request.text) if len(name) > 2 and content_words(name) & spoken and _is_topic(name)
    ]
    return next((name for name in matching_names if len(name) <= 45), "")


_PLACE = re.compile(
    r"(?:[\w.-]+/)+[\w-]+|[a-z][\w-]*\.(?:io|com|org|net|dev|sh|ai|app)|(?:go|npm|bun|yarn|pnpm|git|make|mise|cargo|uv|python3?) [\w -]+"
)


def _is_topic(name: str) -> bool:
    """Return whether a name can stand before a sentence as its topic: no branch, folder, domain or command."""
    is_word = name.isalpha() and name.islower()
    return bool(_TOPIC.fullmatch(name)) and name not in _COMMON and not is_word and not _PLACE.fullmatch(name)


_REVIEWED = re.compile(r"(?i)\breview")
_BRANCH = re.compile(r"(?i)`(?P<before>[\w./-]{3,80})` branch\b|\bbranch:? `(?P<after>[\w./-]{3,80})`")


def _reviewed_branch(story: Story) -> str:
    for one in story.statements[:12]:
        if match := _BRANCH.search(one.labelled):
            return match["before"] or match["after"]
    return ""


def talked_about(story: Story) -> str:
    """Return the name that the message mentions most, if earlier prompts mention it, too, or it is mentioned often."""
    earlier = " ".join([story.prompt[:2_000], *story.earlier])
    counts = {name: count for name, count in story.name_counts.items() if 3 < len(name) <= 45 and _is_topic(name)}
    best = max(counts, key=lambda name: (counts[name] + 2 * (name in earlier), -len(name)), default="")
    if not best:
        return ""
    return best if counts[best] >= 4 or (counts[best] >= 2 and best in earlier) else ""


GENERIC_SECTION = re.compile(
    r"(?i)^(?:\W*(?:the|key|main|what|how|why|when|it|this|i|was|were|is|are|my|a|an|of|in|for|to|and|your|other|minor|important|critical|current|files?|changes?|changed|made|found|did|done|fix|fixed|fixes|summary|overview|details?|results?|tests?|testing|verification|notes?|"
    r"modified|new|committed|logic|scenario|applied|updated|user|experience|passed|checks?|pre-commit|complete|edge|cases?|quick|full|final|next|proposed|plan|revised|additional|remaining|analysis|background|context|problem|issues?|solution|root|cause|answer|short|conclusion|recommendations?|options?|usage|examples?|behavior|behaviour|implementation|findings?|works?|structure|flow|step|steps|\d+|before|after|strengths?|assessment|review|code|report|status|output|impact|benefits?|section|response)\b\W*)+$"
)


_LEADS_ON = re.compile(
    r"(?i)^(?:his|her|their|what|which|how|so|and|but|if|for|day|option|approach|pr \d)\b|\b(?:has|have|could|when|with|is|are)$"
)


def section_of(one: Statement) -> str:
    """Return the heading above a statement, if it names something."""
    bare = re.sub(
        r"(?i)^(?:summary(?: of (?:the |all )?)?|section \d+|step \d+|\d+\.?)\s*[:.)–-]?\s*", "", one.section
    ).strip()
    if not bare or len(bare) > 60 or GENERIC_SECTION.match(bare) or len(content_words(bare)) < 2 or bare.endswith("?"):
        return ""
    return "" if prose.is_pointing(bare) or prose.is_status(bare) or _LEADS_ON.search(bare) else bare


_PROPOSED_SECTION = re.compile(
    r"(?i)^\W*(?:(?:the|my|here's|here is|a|an|updated|revised|suggested|recommended|proposed|simple|simplest|better|cleaner|possible|potential|high-level)\s+){0,3}"
    r"(?:propos\w+|recommend\w+|suggest\w+|approach|design|plan|solution|fix|refactor\w*|implementation plan|changes needed|required changes|changes would be|(?:this|that|it) would (?:require|involve|mean)|we(?:'d| would) need to|what (?:needs to|would|should) change)\b.{0,40}$"
)


def is_proposing(section: str) -> bool:
    """Return whether what follows a heading or a lead-in is proposed."""
    return bool(_PROPOSED_SECTION.match(section.rstrip(":： ")))
