"""Reads the agent's closing message: what it says was done, learned, decided, left open.

The message usually is a summary already, in markdown. Its own headings and lists say which part is which; where
there are none, the phrasing does. Greetings, praise and announcements ("Perfect!", "Let me …", "Here's the
summary:") say nothing in three months and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from claude_mem.text import shorten

PART_CHARS = 600

_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|^(```|~~~).*\Z", re.M | re.S)
# Of a line without spaces at its end.
_HEADING = re.compile(r"\s*(?:#{1,6}\s+(?P<marked>.+)|\*\*(?P<bold>[^*]{2,80}?):?\*\*:?(?:\s*\([^)]{1,80}\))?:?)$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>.+)")
_SPLIT = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`\"'(\[*_\d]|[a-z]+\()")

# Which part of the story a heading opens.
_HEADINGS = tuple(
    (part, re.compile(rf"\b(?:{words})", re.I))
    for part, words in (
        ("next", r"next|remaining|to.?do\b|follow.?up|left to|not (?:yet )?done|future|still (?:open|missing)|pending"),
        ("asked", r"questions?|need(?:s)? your|decide|which (?:one|option)"),
        ("learned", r"root cause|causes?\b|why\b|findings?|insights?|learned|discover|problem|issue|bug\b|how it works|"
                    r"explanation|analysis|background|key (?:points|files|insight)|what happened|timeline"),
    )
)  # fmt: skip

# Which part a sentence belongs to when no heading says so; the first that fits decides.
_SENTENCES = tuple(
    (part, re.compile(rf"(?:{words})", re.I))
    for part, words in (
        ("asked", r"\?\s*$|\bwould you like\b|\b(?:want|shall|should) (?:me|I|we) (?:to )?\w+|\blet me know\b"),
        ("next", r"^\W*next(?: up)?\s*[:,]|\bnext steps?\b|\bremaining\b|\bTODO\b|\bstill (?:needs?|has to|to do|missing|open)\b|\bnot yet\b|"
                 r"\bleft to do\b|\bfollow-?up\b|\byou (?:can|may|should|could|might) (?:now|want|also)\b"),
        ("decided", r"\binstead of\b|\brather than\b|\b(?:decided|chose|opted|prefer(?:red)?)\b|\btrade-?offs?\b|"
                    r"\bdeliberate(?:ly)?\b|\bintentional(?:ly)?\b|\b(?:rejected|ruled out)\b|\bby design\b"),
        ("learned", r"\bbecause\b|\bturn(?:s|ed) out\b|\broot cause\b|\bcaused by\b|\bthe (?:real |actual )?(?:problem|issue|bug|"
                    r"reason|cause|culprit) (?:is|was)\b|\bdue to\b|\bwhich (?:means|meant|is why)\b|\bthe reason\b|"
                    r"\bnot(?:e|ably)(?: that|:)"),
    )
)  # fmt: skip

_FILLER = re.compile(
    r"""(?ix)^\W*+(?:
        (?:done|perfect|great|excellent|good|nice|awesome|sure|ok(?:ay)?|yes|no|all\ set|all\ done|all\ fixed|ready|got\ it|absolutely|
           of\ course|fixed|updated|thanks|you'?re\ (?:absolutely\ )?(?:right|welcome)|interesting|i\ see|understood)\b[^a-z`]{0,6}$
      | (?:now\ )?let\ (?:me|us)\b | let's\b | i'?ll\b | i\ will\b | i'm\ (?:going|now)\b | now\ i\b | i\ (?:can\ )?(?:now\ )?(?:see|have|understand)\b
      | (?:good|great|excellent|nice|fair|interesting)\ (?:question|idea|point|catch|news|call|progress)\b
      | (?:all|both|the)?\ ?(?:unit\ |integration\ )?(?:tests?|lint\w*|checks?|build|everything)\b[^.]{0,60}\b(?:pass\w*|clean|green|succeed\w*|work(?:s|ing)?)\W*$
      | (?:tests|lint|build)\W | no\ (?:lint|issues|errors)\b[^.]{0,40}$
      | (?:here(?:'s|\ is|\ are)|this\ is|below\ is)\b[^.]{0,80}:?\W*$ | (?:in\ )?summary\W*$ | the\ output\ (?:will|now)\b
      | based\ on\b[^.]{0,60}:\W*$ | looking\ at\b[^.]{0,60}:\W*$
      | (?:what'?s|what\ is)\ (?:next|changed)\W*$ | (?:changes|result|before|after|example|usage|files?)\b[^a-z]{0,4}$
    )"""
)
_POINTING = re.compile(
    r"\W*(?:it|this|that|these|those|they|here|there|both|so|but|and|also|then|moving|fixed exactly)\b", re.I
)
_FIRST_PERSON = re.compile(r"^(?:(?:done|perfect|great|ok(?:ay)?|all (?:done|set|fixed)|updated|fixed|yes)[.!,:—-]+\s*)?"
                           r"(?:(?:I|We)(?:'ve| have)?(?: (?:also|now|just|successfully))? (?=\w+(?:ed|ilt|rote|et|ut|ade)\b))?", re.I)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """What a closing message says, sentence by sentence, each in one part."""

    lead: str = ""
    done: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


def read(text: str) -> Message:
    parts: dict[str, list[str]] = {"done": [], "learned": [], "decided": [], "asked": [], "next": []}
    prose: list[str] = []
    items: list[str] = []
    for under, sentence, is_item in _sentences(text):
        if is_filler(sentence):
            continue
        part = _part(under, sentence)
        parts[part].append(sentence)
        if part not in ("next", "asked"):
            (items if is_item else prose).append(sentence)
    return Message(lead=_lead(prose, items), **{name: tuple(found) for name, found in parts.items()})


def _lead(prose: list[str], items: list[str]) -> str:
    """The first sentence that can stand alone: it names something, does not point at what came before, and is not one
    of many in a list."""
    whole = [sentence for sentence in prose if len(sentence) >= 25 and " " in sentence]
    alone = [sentence for sentence in whole if not _POINTING.match(sentence) and not sentence.endswith(":")]
    named = [sentence for sentence in items if len(sentence) >= 25 and " " in sentence]
    return next(iter(alone or whole or named), "")


def _part(under: str, sentence: str) -> str:
    if under in ("next", "asked"):
        return under
    for part, words in _SENTENCES:
        if words.search(sentence):
            return part
    return under


def _sentences(text: str) -> Iterator[tuple[str, str, bool]]:
    """Each sentence, the part that the heading above it opens, and whether it stands in a list."""
    under = "done"
    paragraph: list[str] = []
    for line in [*(line.rstrip() for line in _FENCE.sub("", text).splitlines()), ""]:
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if heading or item or not line.strip() or line.lstrip().startswith(("|", ">", "---")):
            yield from ((under, sentence, False) for sentence in _split(" ".join(paragraph)))
            paragraph = []
        if heading:
            under = _under(plain(heading["marked"] or heading["bold"]))
        elif item:
            yield from ((under, sentence, True) for sentence in _split(item["text"]))
        elif line.strip() and not line.lstrip().startswith(("|", ">", "---")):
            paragraph.append(line.strip())


def _under(heading: str) -> str:
    return next((part for part, words in _HEADINGS if words.search(heading)), "done")


def _split(text: str) -> list[str]:
    return [sentence for piece in _SPLIT.split(plain(text)) if (sentence := piece.strip())]


def plain(text: str) -> str:
    """The words without the marks of markdown; code stays in its backticks."""
    text = re.sub(r"!?\[([^\]]{1,200})\]\([^)]{1,500}\)", r"\1", text)
    return " ".join(re.sub(r"\*\*|__|^#{1,6} |[✓✅✔☑🎉🚀✨]\ufe0f?", "", text).split())


def is_filler(sentence: str) -> bool:
    """Would nobody miss it in three months?"""
    return len(sentence) < 4 or bool(_FILLER.match(sentence))


def as_title(sentence: str, limit: int = 120) -> str:
    """A sentence as a heading: what was done, not who did it, and no colon or full stop at its end."""
    bare = _FIRST_PERSON.sub("", sentence, count=1).strip() or sentence
    bare = bare[:1].upper() + bare[1:]
    return shorten(bare, limit).rstrip(".:;, ")


def paragraph(sentences: tuple[str, ...], limit: int = PART_CHARS) -> str:
    """As much of these sentences as there is room for, whole ones."""
    kept: list[str] = []
    for sentence in sentences:
        if sum(map(len, kept)) + len(sentence) > limit:
            break
        kept.append(sentence)
    if not kept:
        return shorten(" ".join(sentences[:1]), limit)
    return " ".join(item if item[-1] in ".!?:;" else f"{item};" for item in kept).rstrip(";")
