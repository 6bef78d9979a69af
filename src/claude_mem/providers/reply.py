"""Reads a model's answer about one turn, and takes what it can get.

Models forget a closing tag, wrap everything in a code fence, invent a child tag, or say in plain words that nobody is
logged in. Dropping such a reply loses a turn that was paid for, so whatever can be understood is kept, and only a reply
of which nothing can be understood is sent back. What the caller may rely on: `read` never raises, its time grows with
the reply and with nothing else, every text in its result has a known greatest length, and records that merely stood in
the material the model was shown do not come back as ours.

One rule carries most of it: a field that has its closing tag ends there, and every tag before it is text, so that a
narrative may speak of the `<title>` of a page; a field without one ends at the next tag that means something there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from html.entities import html5
from itertools import chain, islice

from claude_mem.privacy import strip
from claude_mem.providers.base import Request, Verdict
from claude_mem.records import Summary
from claude_mem.text import first_sentence, normal_title, plain, shorten, storable

REPLY_CHARS = 200_000
PROSE_CHARS = 2_000  # an error or a refusal is shorter; longer prose is a failed answer, whatever words it has in it
MESSAGE_CHARS = 300
TITLE_CHARS = 160
SUBTITLE_CHARS = 240
NARRATIVE_CHARS = 2_000
FACT_CHARS = 400
PART_CHARS = 1_200  # of a summary
SESSION_TITLE_CHARS = 100
SESSION_SUBTITLE_CHARS = 140
PATH_CHARS = 500
MAX_OBSERVATIONS = 8
MAX_FACTS = 12
MAX_CONCEPTS = 8
MAX_FILES = 30
MAX_LOOKED_AT = 1_000  # items of one list
MAX_TURNED_AWAY = 64  # each is compared with what the model was shown, so there must be an end to it
PLANTED_CHARS = (
    8_000  # of one record in the material: the word `<observation>` alone does not make all that follows one
)
TELLING_CHARS = 16  # a shorter title stands in other people's text by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One observation as the model told it. What shows it to be so is joined by the caller, who has the events."""

    type: str
    title: str = ""
    subtitle: str = ""
    narrative: str = ""
    facts: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What could be understood. `message` says why, when the verdict is neither OK nor EMPTY."""

    verdict: Verdict
    observations: tuple[Said, ...] = ()
    summary: Summary | None = None
    skipped: str = ""  # the reason the model gave for having no summary
    title: str = ""  # of the session
    subtitle: str = ""
    message: str = ""


def read(text: str, request: Request, *, types: Collection[str], concepts: Collection[str]) -> Read:
    """`types` and `concepts` are those of the mode, in its order: what the model was asked to choose from."""
    if not plain(text).strip():
        return _unparseable("the reply was empty")
    if request.fence and request.fence in text:
        return _unparseable("the reply repeats the request")
    text = _whole_tags(_without_hidden(_without_sections(text[:REPLY_CHARS])))
    tags = _tags(text)
    if not tags:
        return _prose(text)
    blocks = _Walk(text, tags).go()
    told = ((block, said) for block in blocks if (said := _said(block, types, concepts)))
    own, turned_away = _own(told, text, _planted(request))
    found = _found(text, blocks, own)
    if turned_away and found.verdict is not Verdict.OK:
        return _unparseable("the reply has only records that are not its own")
    return found


def _found(text: str, blocks: Sequence[_Block], told: tuple[Said, ...]) -> Read:
    summary = _summary([block for block in blocks if block.name == "summary"])
    session = [block for block in blocks if block.name == "session"]
    title = _one(session, "title", SESSION_TITLE_CHARS)
    if not (told or summary or title or any(_says_nothing(text, block) for block in blocks)):
        return _unparseable("the reply has tags, but nothing in them could be read")
    return Read(
        verdict=Verdict.OK if told or summary else Verdict.EMPTY,
        observations=told,
        summary=summary,
        skipped=next((reason for block in blocks if (reason := _reason(text, block))), ""),
        title=title,
        subtitle=_one(session, "subtitle", SESSION_SUBTITLE_CHARS),
    )


def _says_nothing(text: str, block: _Block) -> bool:
    """Is it one of the ways to tell that there is nothing to keep?"""
    if block.name == "observations":
        return not _clean(text[block.start : block.end])
    return block.name in ("skip_summary", "no_observations")


def _unparseable(message: str) -> Read:
    return Read(verdict=Verdict.UNPARSEABLE, message=message)


# --- before the tags -------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"<!--|<!\[CDATA\[")
_SECTION_ENDS = {"<!--": "-->", "<![CDATA[": "]]>"}
_HIDDEN = ("private", "claude-mem-context")
_HIDDEN_TAG = re.compile(rf"<(?P<close>/?)\s?(?P<name>{'|'.join(_HIDDEN)})(?![\w-])[^<>]*+>", re.I | re.A)


def _without_sections(text: str) -> str:
    """Comments go; what stands in CDATA is escaped, so that from here on there is one kind of text only."""
    kept: list[str] = []
    position = 0
    unclosed: set[str] = set()  # searched for once: looking to the end for each would take quadratic time
    while mark := _SECTION.search(text, position):
        kept.append(text[position : mark.start()])
        close = _SECTION_ENDS[mark[0]]
        end = -1 if close in unclosed else text.find(close, mark.end())
        if end < 0:
            unclosed.add(close)
            position = mark.end()
            continue
        if close == "]]>":
            kept.append(text[mark.end() : end].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
        position = end + len(close)
    return "".join([*kept, text[position:]])


def _without_hidden(text: str) -> str:
    """Private parts that are closed may lie across fields, so they go first. One that is not closed is left for the
    field it stands in, where it hides the rest: a mention of the tag must not cost the whole reply."""
    kept: list[str] = []
    position = 0
    for start, end in _hidden_spans(text):
        kept.append(text[position:start])
        position = end
    return "".join([*kept, text[position:]])


def _hidden_spans(text: str) -> list[tuple[int, int]]:
    """From each opening tag to the one that closes it, in their order, without those inside of another."""
    opened: dict[str, list[int]] = {name: [] for name in _HIDDEN}
    spans: list[tuple[int, int]] = []
    for tag in _HIDDEN_TAG.finditer(text):
        starts = opened[tag["name"].lower()]
        if not tag["close"]:
            starts.append(tag.start())
        elif starts:
            start = starts.pop()
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, tag.end()))
    return spans


def _whole_tags(text: str) -> str:
    """Without the tag that a reply broke off in."""
    last = text.rfind("<")
    return text[:last] if last >= 0 and re.fullmatch(r"</?[a-z_-]*", text[last:], re.I) else text


# --- tags and blocks -------------------------------------------------------------------------------------------------

_FILE_LISTS = ("files_read", "files_modified")
_ITEMS = {"fact": "facts", "concept": "concepts", "file": ""}  # "": of the list of files that was opened last
_OBSERVATION_FIELDS = frozenset(
    ("type", "title", "subtitle", "narrative", "facts", "concepts", *_FILE_LISTS, *_ITEMS),
)
_SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes", "outcome")
_OUTCOMES = frozenset(("done", "partly", "failed", "abandoned", "answered", "proposed"))
# The blocks, and which tags mean something in each. Outside of any, fields may still be an observation's.
_BLOCKS: dict[str, frozenset[str]] = {
    "": _OBSERVATION_FIELDS,
    "observation": _OBSERVATION_FIELDS,
    "observations": _OBSERVATION_FIELDS,
    "summary": frozenset(_SUMMARY_FIELDS),
    "session": frozenset(("title", "subtitle")),
    "skip_summary": frozenset(),
    "no_observations": frozenset(),
}
_NAMES = sorted({*_BLOCKS, *_OBSERVATION_FIELDS, *_SUMMARY_FIELDS} - {""})
_BY_LETTERS = {name.replace("_", ""): name for name in _NAMES}
_MISSPELT = "obs|obse?r?v[a-z]{1,6}n|oberv[a-z]{1,6}n"  # each of them means an observation
# Attributes end at the next bracket, so no character is looked at for more than the one tag before it.
_TAG = re.compile(
    rf"<(?P<close>/\s?)?(?P<name>{'|'.join(_NAMES).replace('_', '[_-]?')}|{_MISSPELT}|{'|'.join(_HIDDEN)})(?![\w.:-])"
    r"""(?P<attributes>(?:[^<>"']++|"[^"<]*+"|'[^'<]*+'|["'])*+)(?P<end>>?)""",
    re.I | re.A,
)
_ATTRIBUTE = re.compile(r"""(?<![\w-])([\w-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'/]++))""")


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    start: int
    end: int
    closing: bool
    alone: bool  # `<title/>`
    attributes: str


@dataclass(slots=True)
class _Block:
    """A run of fields, each as often as it was given. `until` is the place, among the tags, of the one that closes it;
    -1 if none does."""

    name: str
    start: int
    end: int
    until: int = -1
    attributes: dict[str, str] = field(default_factory=dict)
    file_list: str = ""
    fields: dict[str, list[str]] = field(default_factory=dict)


def _tags(text: str) -> list[_Tag]:
    return [tag for match in _TAG.finditer(text) if (tag := _tag(match))]


def _tag(match: re.Match[str]) -> _Tag | None:
    name = match["name"].lower()
    if name not in _HIDDEN:
        name = _BY_LETTERS.get(re.sub("[_-]", "", name), "observation")
    if not match["end"] and name != "skip_summary":  # whose reason may well have a bracket in it
        return None
    return _Tag(
        name=name,
        start=match.start(),
        end=match.end(),
        closing=bool(match["close"]),
        alone=match["attributes"].rstrip().endswith("/"),
        attributes=match["attributes"],
    )


def _closings(tags: Sequence[_Tag]) -> list[int]:
    """For each tag the place of the one that closes it: the next of its name, if that is a closing one; else -1."""
    found = [-1] * len(tags)
    following: dict[str, int] = {}
    for index in range(len(tags) - 1, -1, -1):
        tag = tags[index]
        if tag.alone:
            continue
        after = following.get(tag.name, -1)
        if not tag.closing and after >= 0 and tags[after].closing:
            found[index] = after
        following[tag.name] = index
    return found


class _Walk:
    """One way through all tags. `block` is the one we are in; `around` the observation that it stands in, if a model
    has put a summary there: we go on with that one afterwards."""

    def __init__(self, text: str, tags: Sequence[_Tag]) -> None:
        self.text, self.tags, self.closings = text, tags, _closings(tags)
        self.blocks: list[_Block] = []
        self.block = self.begin("", 0)
        self.around: _Block | None = None

    def go(self) -> list[_Block]:
        """All blocks in their order. What stands outside of any is one too, without a name."""
        index = 0
        while index < len(self.tags):
            tag = self.tags[index]
            if tag.name in _HIDDEN and not tag.closing:
                break  # it has no end, so nothing that follows is ours to show
            if tag.name in _BLOCKS:
                index = self.turn(index)
            elif tag.name in _BLOCKS[self.block.name] and not tag.closing and not tag.alone:
                index = self.take(index)
            else:
                index += 1
        return self.blocks

    def begin(self, name: str, start: int, until: int = -1, attributes: str = "") -> _Block:
        whole = name == "observation" and until >= 0
        end = self.tags[until].start if whole else len(self.text)
        self.blocks.append(_Block(name, start, end, until, _attributes(attributes)))
        return self.blocks[-1]

    def turn(self, index: int) -> int:
        """The tag of a block ends the block before it, and begins its own or none."""
        tag, before = self.tags[index], self.block
        inside = before.name == "observation" and index < before.until
        before.end = before.end if inside else min(before.end, tag.start)
        self.around = before if inside else self.around
        if self.around and index >= self.around.until:
            self.around = None
        if not tag.closing:
            self.block = self.begin(tag.name, tag.end, self.closings[index], tag.attributes)
        if tag.alone:
            self.block.end = tag.end
        if tag.closing or tag.alone:
            self.block = self.around or self.begin("", tag.end)
        return index + 1

    def take(self, index: int) -> int:
        """Put the field that begins here into the block; returns where to go on."""
        tag, block, closing = self.tags[index], self.block, self.closings[index]
        if closing < 0 and block.name in ("", "observations"):
            return index + 1  # outside of an observation, a tag by itself is a word in a sentence
        after = closing if closing >= 0 else self.next_known(index + 1)
        end = self.tags[after].start if after < len(self.tags) else len(self.text)
        value = self.text[tag.start if tag.name in _ITEMS else tag.end : end]
        name = _ITEMS.get(tag.name, tag.name) or block.file_list
        block.fields.setdefault(name, []).append(value if closing >= 0 else _without_fence(value))
        block.file_list = tag.name if tag.name in _FILE_LISTS else block.file_list
        return after

    def next_known(self, index: int) -> int:
        known = _BLOCKS[self.block.name]
        while index < len(self.tags) and self.tags[index].name not in known and self.tags[index].name not in _BLOCKS:
            index += 1
        return index


def _attributes(text: str) -> dict[str, str]:
    """The first of each name; nobody means more than a thousand characters."""
    found: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(text[:1000]):
        found.setdefault(name.lower(), "".join(values))
    return found


def _without_fence(text: str) -> str:
    """An unclosed field at the end of a fenced reply has the end of the fence in it."""
    text = text.rstrip()
    return text[:-3] if text.endswith("```") and text.count("```") % 2 else text


# --- fields ----------------------------------------------------------------------------------------------------------

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_NOTHING = frozenset(("", "-", "–", "—", "none", "n/a", "null", "nothing"))  # what is written where a field stays empty
_CHILD = re.compile(r"<(?P<close>/?)(?P<name>fact|concept|file|path|item|li|entry|bullet|point)(?![\w.:-])[^<>]*+>", re.I | re.A)  # fmt: skip
_LIST = re.compile(r"</?(?:ul|ol|list|items)(?![\w.:-])[^<>]*+>", re.I | re.A)
_BULLET = re.compile(r"\s*+(?:[-*+•–]|\d{1,2}[.)])\s++")


def _decoded(text: str) -> str:
    """Entities with their semicolon only: `&copy=1` in an address is not a copyright sign."""
    return _ENTITY.sub(lambda match: _character(match[0]), text)


def _character(entity: str) -> str:
    return unescape(entity) if entity[1] == "#" or entity[1:] in html5 else entity


def _clean(raw: str) -> str:
    text = plain(_decoded(raw).replace("\r\n", "\n").replace("\r", "\n"))
    text = strip(storable(text)).strip()  # after the decoding: else an encoded tag would come out whole
    return "" if text.strip(" .()").lower() in _NOTHING else text


def _line(raw: str, limit: int) -> str:
    return shorten(_clean(raw), limit)


def _paragraphs(raw: str, limit: int) -> str:
    """Lines stay lines, without the indentation that the XML gave them."""
    lines = [" ".join(line.split()) for line in _clean(raw).split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    return (cut[:space] if space > limit // 2 else cut).rstrip() + "…"


def _one(blocks: Iterable[_Block], name: str, limit: int, read_as: Callable[[str, int], str] = _line) -> str:
    """The first that says something; an attribute of that name counts when no child does."""
    children = (raw for block in blocks for raw in block.fields.get(name, ()))
    attributes = (block.attributes.get(name, "") for block in blocks)
    return next((text for raw in chain(children, attributes) if (text := read_as(raw, limit))), "")


def _items(block: _Block, name: str) -> Iterator[str]:
    """The items of all lists of that name. Facts are sentences, so a comma does not part them."""
    separators = "\n" if name == "facts" else "\n,"
    items = (item for raw in block.fields.get(name, ()) for item in _listed(raw, separators))
    for item in islice(items, MAX_LOOKED_AT):
        bullet = _BULLET.match(item)
        yield item[bullet.end() :] if bullet else item


def _distinct(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(islice(filter(None, dict.fromkeys(texts)), most))


def _listed(raw: str, separators: str) -> Iterator[str]:
    """Whether they are children, lines, bullets or a JSON array."""
    first = _CHILD.search(raw)
    if first is None:
        yield from _array(raw) or _lines(_LIST.sub("\n", raw), separators)
        return
    position, inside = 0, False
    for tag in _CHILD.finditer(raw):
        if tag["name"].lower() == first["name"].lower():  # another one in between is a word of the text
            yield from _child(raw[position : tag.start()], inside, separators)
            position, inside = tag.end(), not tag["close"] and not tag[0].endswith("/>")
    yield from _child(raw[position:], inside, separators)


def _child(piece: str, inside: bool, separators: str) -> Iterable[str]:
    if not inside:
        return _lines(_LIST.sub("\n", _CHILD.sub("\n", piece)), separators)
    lines = [line for line in piece.split("\n") if line.strip()]
    return _lines(piece, "\n") if all(map(_BULLET.match, lines)) else (piece,)


def _array(raw: str) -> list[str]:
    raw = raw.strip()
    if not (raw.startswith('["') and raw.endswith('"]')):
        return []
    try:
        return [item for item in json.loads(raw) if isinstance(item, str)]
    except (ValueError, RecursionError):
        return []


def _lines(text: str, separators: str) -> list[str]:
    """One item a line; where there are bullets, a line without one goes on with the item before it."""
    lines = [line for line in re.split(f"[{separators}]", text.replace("•", "\n• ")) if line.strip()]
    bulleted = any(map(_BULLET.match, lines))
    items: list[list[str]] = []
    for line in lines:
        if bulleted and items and not _BULLET.match(line):
            items[-1].append(line)
        else:
            items.append([line])
    return [" ".join(item) for item in items]


# --- observations ----------------------------------------------------------------------------------------------------


def _own(told: Iterable[tuple[_Block, Said]], text: str, planted: _Planted) -> tuple[tuple[Said, ...], int]:
    """The model's own observations, and how many were turned away: they answer something else, or are copies."""
    kept: list[Said] = []
    turned_away = 0
    for block, said in told:
        whole = " ".join(_field_words(text[block.start : block.end]))
        if _is_foreign(block) or planted.has(_words(said.title)) or planted.has(whole):
            turned_away += 1
        else:
            kept.append(said)
        if len(kept) == MAX_OBSERVATIONS or turned_away == MAX_TURNED_AWAY:
            break
    return tuple(kept), turned_away


def _said(block: _Block, types: Collection[str], concepts: Collection[str]) -> Said | None:
    if block.name not in ("", "observation", "observations"):
        return None
    title = _one([block], "title", TITLE_CHARS)
    narrative = _one([block], "narrative", NARRATIVE_CHARS, _paragraphs)
    facts = _distinct((_line(raw, FACT_CHARS) for raw in _items(block, "facts")), MAX_FACTS)
    if not (narrative or facts or (title and block.name == "observation")):
        return None  # outside of an observation, a title may be anyone's
    kind = _type(_one([block], "type", 80), types)
    return Said(
        type=kind,
        title=title or first_sentence(narrative or facts[0], TITLE_CHARS),
        subtitle=_one([block], "subtitle", SUBTITLE_CHARS),
        narrative=narrative,
        facts=facts,
        concepts=_concepts(block, {_letters(name): name for name in concepts if _letters(name) != _letters(kind)}),
        files_read=_distinct(map(_path, _items(block, "files_read")), MAX_FILES),
        files_modified=_distinct(map(_path, _items(block, "files_modified")), MAX_FILES),
    )


def _letters(name: str) -> str:
    """What `bug_fix`, `Bug-fix` and `bugfix` have in common."""
    return re.sub(r"[\W_]+", "", name.split(":", 1)[0]).lower()


def _type(name: str, types: Collection[str]) -> str:
    known = {_letters(each): each for each in types}
    default = "change" if "change" in types else next(iter(types), "change")
    return known.get(_letters(name), default)


def _concepts(block: _Block, known: Mapping[str, str]) -> tuple[str, ...]:
    return _distinct((known.get(_letters(_clean(raw)), "") for raw in _items(block, "concepts")), MAX_CONCEPTS)


def _path(raw: str) -> str:
    """A path is whole or worth nothing."""
    path = " ".join(_clean(raw).strip("`\"'").split())
    return path if len(path) <= PATH_CHARS else ""


def _is_foreign(block: _Block) -> bool:
    """Does it say that it answers another request? We give no names to ours; a small number only counts them."""
    given = [block.attributes.get(name, "").strip() for name in ("for", "request", "id")]
    return any(name and not re.fullmatch("[0-9]{1,2}", name) for name in given)


@dataclass(frozen=True, slots=True)
class _Planted:
    """The words of all observations in what the model was shown: a tool's output may have them in it, so that they
    are taken for the answer. Case, spacing and marks do not count, since the way into a request changes them."""

    fields: frozenset[str]
    words: str

    def has(self, words: str) -> bool:
        """As a whole field, or anywhere if it is too long to stand there by chance."""
        return words in self.fields or (len(words) >= TELLING_CHARS and f" {words} " in self.words)


def _planted(request: Request) -> _Planted:
    shown = _decoded(f"{request.system}\n{request.prompt}")
    shown = re.sub(r"\\u003c", "<", re.sub(r"\\u003e", ">", shown, flags=re.I), flags=re.I).replace("<\\/", "</")
    marks = [tag for tag in _tags(shown) if tag.name == "observation"]
    ends = [*(tag.start for tag in marks[1:]), len(shown)]
    fields: list[str] = []
    for mark, end in zip(marks, ends, strict=False):
        if not mark.closing:
            fields += _field_words(shown[mark.end : min(end, mark.end + PLANTED_CHARS)])
    return _Planted(frozenset(fields), f" {' '.join(fields)} ")


def _field_words(text: str) -> list[str]:
    """The words between the tags, without what is empty."""
    return [words for piece in _TAG.sub("\0", text).split("\0") if (words := _words(piece))]


def _words(text: str) -> str:
    return normal_title(re.sub(r"(?<!\\)\\++[nrt]", " ", _decoded(text)))


# --- the rest of the reply -------------------------------------------------------------------------------------------


def _summary(blocks: Sequence[_Block]) -> Summary | None:
    def part(name: str) -> str:
        return _one(blocks, name, PART_CHARS, _paragraphs)

    found = Summary(
        request=part("request"),
        investigated=part("investigated"),
        learned=part("learned"),
        completed=part("completed"),
        next_steps=part("next_steps"),
        notes=part("notes"),
    )
    return None if found == Summary() else replace(found, outcome=_outcome(_one(blocks, "outcome", SUBTITLE_CHARS)))


def _outcome(words: str) -> str:
    """Return the outcome that is named, and nothing for any other word: the first, since some models give a reason."""
    first = re.match(r"[^\W\d_]+", words.lower())
    return first[0] if first and first[0] in _OUTCOMES else ""


def _reason(text: str, block: _Block) -> str:
    """Why there is no summary: an attribute by our instructions, the text inside by some models."""
    if block.name != "skip_summary":
        return ""
    said_inside = text[block.start : block.end] if block.until >= 0 else ""
    return _line(block.attributes.get("reason", ""), SUBTITLE_CHARS) or _line(said_inside, SUBTITLE_CHARS)


# --- prose -----------------------------------------------------------------------------------------------------------

# A provider's error begins a sentence, follows "error:" or is a value in its JSON, and mostly ends one. The same words
# in the middle of a sentence are a model that talks about them: an alarm would stop all work until somebody looks.
_BEGINS = r"""(?:^[^\w\n]*|[.!?·∙|]\s+|\berror(?::|\ \d{3})[^a-z\n]{0,20}|["']:\s*["'])"""
_ENDS = r"(?=\s*(?:[^\w\s]|$)|\s+(?:provided|for|until|resets?|please|try)\b)"
_LOGIN = rf"""
      please\ (?:run|use)\ `?/login | authentication_error\b
    | (?: (?:invalid|incorrect)\ (?:(?:x-)?api[ -]key|bearer\ token) | failed\ to\ authenticate
        | (?:your\ )?api\ key\ (?:is\ |was\ |has\ been\ )?(?:not\ valid|invalid|missing|expired|revoked|disabled)
        | (?:your\ )?oauth\ (?:access\ )?(?:token|session)\ (?:has\ |is\ |was\ |has\ been\ )?(?:expired|revoked|invalid)
        | (?:you(?:'re|\ are)\ |claude(?:\ code)?\ is\ )?not\ (?:currently\ )?logged\ in ){_ENDS}"""
_LIMIT = rf"""
      you(?:'ve|\ have)?\ (?:hit|reached|exceeded|used\ up)\ your\ [^.\n]{{0,60}}?\b(?:limits?|quota|cap)\b
    | you(?:'re|\ are)\ out\ of\ (?:extra\ )?(?:usage|credits?)\b
    | your\ [\w' ]{{1,40}}\ has\ (?:hit|reached|exceeded)\ (?:its|the|your)\ [^.\n]{{0,60}}?\b(?:limits?|quota|cap)\b
    | this\ request\ would\ exceed\ your\ [^.\n]{{0,60}}?\blimits?\b | (?:your\ )?credit\ balance\ is\ too\ low
    | insufficient_quota\b | enforced_spend_limit_reached\b
    | (?: (?:(?:your|the|claude|ai|code|pro|max|api|account|monthly|weekly|daily|extra)\ ){{0,5}}
          (?:usage|rate|spend(?:ing)?|weekly|daily|monthly|session|opus|sonnet|haiku|key|\d{{1,2}}-?\ ?hours?)\ (?:limits?|cap)
          (?:\ (?:has\ been\ |was\ |is\ )?(?:reached|exceeded|hit))?
        | (?:your\ |api\ |usage\ |current\ )?quota\ (?:has\ been\ |was\ |is\ )?exceeded ){_ENDS}"""
_REFUSAL = r"""
      (?:(?:i'm\ |i\ am\ )?(?:very\ )?sorry|unfortunately|i\ apologi[sz]e)(?:\W+but)?\W+i(?:\ can't|\ cannot|\ can\ not|\ won't|'m\ |\ am\ |\ must)
    | i\ (?:can't|cannot|can\ not|could\ not|couldn't)\ (?:help|assist|comply|fulfil|do|provide|process|complete|produce|create|write
                      |continue|support|engage|share|generate|summari[sz]e|record|respond|answer|discuss|participate)
    | i(?:'m|\ am)\ (?:unable|not\ able)\ to\b | i\ (?:won't|will\ not|must\ decline|decline|refuse)\b"""
_PROSE = tuple(
    (verdict, re.compile(f"{_BEGINS}(?:{words})", re.I | re.M | re.X))
    for verdict, words in ((Verdict.AUTH, _LOGIN), (Verdict.QUOTA, _LIMIT), (Verdict.REFUSED, _REFUSAL))
)


def _prose(text: str) -> Read:
    """A reply without any of our tags. Who refuses, or can't be paid or let in, says so in few words and soon."""
    text = storable(plain(text)).strip()
    opening = text[:500].replace("’", "'") if len(text) <= PROSE_CHARS else ""
    for verdict, words in _PROSE:
        if words.search(opening):
            return Read(verdict=verdict, message=shorten(text, MESSAGE_CHARS))
    return _unparseable("the reply has none of the tags it was asked for")
