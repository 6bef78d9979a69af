"""Find what a turn was asked to do: the prompt in plain words, or what a short prompt refers to.

"yes" accepts the offer at the end of the previous answer, "2" picks an option of its list, "continue" continues the
previous request. The subject of a pasted plan is its heading. Pasted code and logs are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from claude_mem.providers import markdown, prose
from claude_mem.providers.evidence import plan_heading
from claude_mem.records import Exchange, Turn

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
class Asked:
    """The request behind a turn."""

    text: str  # in plain words, one line, may be empty
    plan: str = ""  # the heading of a plan in the prompt
    is_question: bool = False
    pointed: bool = False  # the prompt only refers to an earlier turn, where the text was found
    review: str = ""  # `Review of PR #88`, if one was asked for

    @property
    def is_wish(self) -> bool:
        return bool(self.text) and not self.is_question


def asked(turn: Turn) -> Asked:
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


def _find_request(turn: Turn) -> Asked:
    wish = _wish(turn.prompt)
    if wish.text and not _is_pick(turn.prompt, turn.previous):
        return wish
    for exchange in reversed(turn.previous):
        if accepted := _accepted(turn.prompt, exchange):
            return Asked(accepted, pointed=True)
        if (earlier := _wish(exchange.prompt)).text and not _PICK.match(exchange.prompt[:40]):
            return Asked(earlier.text, earlier.plan, earlier.is_question, pointed=True)
    return Asked(wish.text, pointed=True)


def plain(prompt: str) -> str:
    """Return the user's own words of a prompt: no pasted code, logs, quotations, tags or URLs."""
    bare = _ADDRESS.sub("", _TAG.sub(" ", _FENCE.sub("", prompt)))
    own_text = _PASTED.sub("", bare)
    return " ".join((own_text if own_text.strip() else bare).split())


def _wish(prompt: str) -> Asked:
    """Return what a prompt requests by itself; a mere go-ahead requests nothing."""
    prompt = prompt[:PROMPT_CHARS]
    if plan := plan_heading(prompt) if _PLAN.search(prompt[:300]) else "":
        return Asked(plan, plan=plan)
    text = plain(prompt)
    if not text or _GO_AHEAD.match(text):
        return Asked("")
    sentence = _telling(text)
    bare = _LABEL.sub("", _POLITE.sub("", sentence)).strip() or sentence
    is_question = bool(_QUESTION.match(bare)) or (sentence.rstrip().endswith("?") and not _POLITE.match(sentence))
    return Asked(bare.rstrip("?!. "), is_question=is_question)


MOST_SENTENCES = 6
_LABEL = re.compile(
    r"(?i)^(?:(?:one |another |different |genuine |quick |so |now )*question(?: first)?|my point is|fyi)\b[\s,:–-]{1,4}"
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
    sentences = re.split(r"(?<=[.!?])\s+", text[:2_000], maxsplit=MOST_SENTENCES)[:MOST_SENTENCES]
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
    offers = [offer for one in statements[-6:] if (offer := offered(one.text))]
    return prose.as_title(offers[-1]) if offers else ""


_OFFERED = re.compile(
    r"(?i)\b(?:would you like me to|do you want me to|want me to|do you want to|shall i|should i|should we|would you like to|ready (?:for me )?to|i can)\s+(?P<what>[^?]{4,200})\?"
)


def offered(sentence: str) -> str:
    """Return what the agent offers to do in a sentence: `Want me to fix it that way?` → `fix it that way`."""
    match = _OFFERED.search(sentence)
    return match["what"].strip() if match else ""
