"""The check that every title must pass before it is shown: a reader who was not in the session must understand it.

A title is rejected for what it lacks, never for its language: it must name something beyond the vocabulary of chat and
status reports, end where a sentence can end, and have its own subject. The word lists are English because agents mostly
write English; in another language bad titles may pass, but no good title is lost.
"""

from __future__ import annotations

import re

MIN_WORDS = 2
MIN_WIDE_CHARS = 4  # characters of a script without spaces that count as two words

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_WORD = re.compile(rf"[{_WIDE}]+|[^\W_{_WIDE}][^\W{_WIDE}]*(?:['’](?:s|t|re|ve|ll|d|m)\b)?", re.I)
_WIDE_LETTER = re.compile(f"[{_WIDE}]")
_CODE = re.compile(r"`[^`]*`")
_PATH = re.compile(r"[/\\]|\w\.\w")

# Words of chat and status reports: a title that consists only of these names nothing.
_CHAT_WORDS = frozenset(
    """
    a about absolutely add added address addressed again agree ah ahead all alright also am an and any anything applied
    approved are aren't as at awesome be been both branch build builds but by bye call can change changed changes check
    checked checks ci clean clear code comment comments commit commits committed compile compiles complete completed
    completely confirm confirmed continue cool correct correctly could did do does doing done error errors every
    everything exactly excellent expected fail failed fails failures file files fine finish finished fix fixed fixes for
    from get go goes going good got great green happy has hasn't have haven't hello here hey hi i i'd i'll i'm i've
    implementation implemented in is isn't issue issues it it's its job just keep let let's lets lgtm lint linter
    linting locally look looks made main make me merge merged my nice no nope nothing now of off ok okay on one ones or
    our out pass passed passes passing perfect perfectly picture place please pr problem problems proceed properly push
    pushed question questions ready remaining replied retry review reviewed right run running runs see ship should show
    so sorry sounds staged start started status step still stuff succeed succeeded succeeds success successful
    successfully suite summary sure task tasks test tested tests thank thanks that that's the their them then there
    there's these they thing things this those three through to too try two typecheck understand understood unit up
    update updated us verification verified verify very wait want warning warnings was we we're we've well went were
    what with without work worked working works would yeah yep yes yet you you're you've your
    """.split()  # noqa: SIM905 -- a list literal of this many words would be unreadable
)
# A line that ends with one of these words is incomplete.
_INCOMPLETE_ENDINGS = frozenset(
    """
    a about against although among an and are as at because been between but by covering during for from had has have if
    including into is like needs nor of onto or our per so than that the their these through to toward towards unless until
    upon using versus via vs was were when where whether which while who whose will with within without your
    """.split()  # noqa: SIM905
)
_BEFORE_IN = ("log", "sign", "opt", "plug", "buil", "check", "step")  # "log in" is complete, "the basket is in" is not
_CHAT = re.compile(
    r"(?:perfect|great|excellent|good|nice|awesome|cool|done|ok|okay|yes|yep|yeah|no|nope|sure|thanks|sorry|alright"
    r"|right|hmm+|ah|oh|wow|got it|understood|exactly|absolutely|agreed|correct|confirmed)(?:[!.,;:…]|\s[–—-]|$)"
    r"|(?:good|great|nice) (?:catch|point|question|idea|news|call)\b|(?:i )?(?:got|see)(?: it)?[!.,]"
    r"|you(?:['’]re| are| were| raise)\b|i(?:['’]ll| will|['’]m| am) "
    r"|let(?: me| us|['’]s (?:see|check|look|verify|try|start|go|do|continue))\b"
    r"|(?:now|next|first|ok|okay),? (?:let|i|we|it|they|this|that)\b"
    r"|(?:but|and|or|also|however|then|otherwise|therefore|thus|so)\b|here(?:['’]s| is| are)\b"
    r"|(?:want me|would you|should i|shall i|do you|does (?:this|that)|is (?:this|that)|let me know)\b",
    re.I,
)
_PRONOUN = re.compile(  # not "IT", which is a department, and not "This class", which is a subject
    r"(?:[Ii]t|[Tt]hey|[Hh]e|[Ss]he)(?:['’](?:s|re|ll|d|ve))?\s"
    r"|[Tt]h(?:is|at|ese|ose)(?:['’](?:s|re|ll|d|ve)"
    r"|\s+(?:is|are|was|were|will|would|can|could|should|must|may|might|has|have|had|does|do|did|now|also|then|just|only"
    r"|all|and|which|means|makes|allows|ensures|fixe[sd]|add(?:s|ed)|removes|gives|lets|keeps|prevents|shows|confirms"
    r"|handles|avoids|requires|works|looks|seems|needs|happens|matches|covers|follows|uses|brings|cause[sd]|leads|led"
    r"|affects|breaks|explains|indicates|suggests|resolves|solves))\b"
)
_STATUS = re.compile(
    r"(?:verification: ?)?(?:all|both|every|\d+)\b[^.;:]{0,60}?\b(?:tests?|checks?|suites?)\b[^.;:]{0,40}?"
    r"\b(?:pass(?:es|ed|ing)?|succeed(?:s|ed)?|green|clean)\b",
    re.I,
)
_LABEL_ONLY = re.compile(r"(?:files?|location|path|line|function|module|package)s?\s*:", re.I)
_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"), ("“", "”"), ("«", "»"), ("「", "」"))


# "Edited `a.py`, `b.py` and 2 more": this says where something changed, but not what.
_WHERE_ONLY = re.compile(
    r"(?:Edited|Created) (?:`[^`]{1,120}`(?:, | and )?){1,4}(?:\d+ more)?(?:: (?:`[^`]{1,120}`(?:, )?){1,4})?"
)


def is_table_row(text: str) -> bool:
    """Return whether a line is a row of a table, cells separated by `|`, and not a sentence."""
    return bool(_TABLE_ROW.search(text))


_TABLE_ROW = re.compile(r"^\s*\||\|\s{0,9}:?-{3}|\|[^|`\n]{1,120}\|[^|`\n]{1,120}\|")


def is_presentable(title: str) -> bool:
    """Return whether a line is understandable on its own where titles are shown: lists, search results, the brief."""
    line = " ".join(title.split()).strip("*_# ")
    return (
        bool(line)
        and not line.startswith("<")
        and not is_table_row(line)
        and not _WHERE_ONLY.fullmatch(line)
        and _names_something(line)
        and _is_complete(line)
        and _has_subject(line)
    )


def _names_something(line: str) -> bool:
    """Return whether a line has enough words, one of which is neither chat vocabulary nor a number."""
    if (label := _LABEL_ONLY.match(line)) and not _is_prose(line[label.end() :]):
        return False
    words = _WORD.findall(line)
    wide = sum(len(word) for word in words if _WIDE_LETTER.match(word))
    if wide < MIN_WIDE_CHARS and sum(bool(_WORD.search(chunk)) for chunk in line.split()) < MIN_WORDS:
        return False
    specific = (word for word in words if not word.isdigit() and word.casefold().replace("’", "'") not in _CHAT_WORDS)
    return any(any(map(str.isalpha, word)) for word in specific)


def _is_prose(text: str) -> bool:
    """Return whether the text has words besides code and paths."""
    return any(_WORD.search(chunk) and not _PATH.search(chunk) for chunk in _CODE.sub(" ", text).split())


def _is_complete(line: str) -> bool:
    """Return whether the line ends where a sentence can end: no colon, ellipsis, open bracket or dangling word."""
    if line.endswith((":", "：", "…", "...", ",", "、", ";", "(", "—", "–", " -", "→")):
        return False
    if any(line.count(begin) > line.count(end) for begin, end in _PAIRS) or line.count("`") % 2 or line.count('"') % 2:
        return False
    if line.endswith((".", "!", "?", "。", "！", "？")):
        return True
    *before, last = line.lower().split()
    if last == "in":
        return bool(before) and before[-1].startswith(_BEFORE_IN)
    return last not in _INCOMPLETE_ENDINGS


def _has_subject(line: str) -> bool:
    """Return whether the line begins with its own subject: not with a reply, a test status or a pronoun."""
    return not (_CHAT.match(line) or _STATUS.match(line) or _PRONOUN.match(line))
