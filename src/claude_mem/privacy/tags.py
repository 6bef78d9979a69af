"""Removal of `<private>…</private>` and of injected `<claude-mem-context>…</claude-mem-context>` from text.

The module fails closed: an opening tag that is never closed hides everything up to the end of the event, and so does
the 101st tag; a closing tag without an opening tag hides the text before it. The texts of one event (input and output
of a tool call: the lines of a patch, the blocks of an answer, the edits of a file) are read as one document, in two
ways: text by text, and joined without separators, because a tag may be split between any number of texts. A character
is visible only if both readings show it. The running time is linear in the length of the text.
The hook strips private text before the first byte reaches the disk, and ingest strips it again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, TypeVar, cast

from claude_mem.domain.text import iter_strings

T = TypeVar("T")

MAX_TAGS = 100
_PRIVATE, _OURS = "private", "claude-mem-context"

# Characters that look like the letters of `private`: accented, full-width, circled, mathematical, and from other
# alphabets. The quick check in the hook uses the same table.
LOOKALIKES = {
    "p": "ṔṕṖṗƤƥРрΡρᴘᵖₚℙϱⲢⲣᑭᏢꓑⱣᵽꝐꝑꝒꝓꝔꝕ",
    "r": "ŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟгГʀᴦᵣʳℝℛℜⲅꭇꭈᖇᏒꓣɌɍⱤɽꞦꞧ",
    "i": "ÌÍÎÏìíîïĨĩĪīĬĭĮįİǏǐȈȉȊȋḬḭḮḯỈỉỊịІіЇїΙιΪϊΊίıɪɩⁱᵢℹℐℑⅰⅠӀӏᎥꓲⲒⲓƗɨꞮ",
    "v": "ṼṽṾṿѴѵνΝᴠᵛᵥⅴⅤⱽᐯᏙꓦꝞꝟƲʋ∨",
    "a": "ÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặАаӐӑӒӓΑαΆάᴀᵃₐɑªᎪꓮꭺⲀⲁȺⱥ⍺",
    "t": "ŢţŤťȚțṪṫṬṭṮṯṰṱẗТтΤτᴛᵗₜᎢꓔⲦⲧŦŧȾⱦƬƭƮʈ",
    "e": "ÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệЕеЁёЀѐΕεΈέᴇᵉₑℯℇℰ℮ҽᎬꓰⲈⲉɆɇƐɛ",
}
_ALPHABETS = (
    0xFF21, 0xFF41, 0x249C, 0x24B6, 0x24D0, 0x1F110, 0x1F130, 0x1F150, 0x1F170, 0x1F1E6, *range(0x1D400, 0x1D6A4, 26),
)  # code points of the letter A or a  # fmt: skip


def _letter_class(letter: str) -> str:
    """Return a character class of a letter and its lookalikes; letters without lookalikes are returned unchanged."""
    if letter not in LOOKALIKES:
        return letter
    other_alphabets = "".join(chr(first + ord(letter) - ord("a")) for first in _ALPHABETS)
    return f"[{letter}{letter.upper()}{LOOKALIKES[letter]}{other_alphabets}]"


# A tag may be written in any case, with spaces and attributes. Its brackets may be full-width or other angle brackets,
# HTML entities, or escapes (text quoted in other text, several times). What a reader does not see may occur anywhere in
# it: invisible and control characters, terminal escape sequences, characters that were overstruck, line breaks.
# The possessive quantifiers prevent backtracking into spaces.
INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffd\ud800-\udfff\U000e0000-\U000e0fff"
)
_ESC = r"(?:\x1b|\\{1,4}(?:u001b|x1b|0?33|e))"
_SEQUENCE = (
    rf"(?:(?:{_ESC}\[|\x9b)[0-;=>?]{{0,48}}+[ -$'-/]{{0,4}}+[@-~]|{_ESC}\][^\x07\x1b\\]{{0,400}}+(?:\x07|\x1b\\)"
    rf"|{_ESC}[()*+][0-9A-Za-z])"
)
_UNSEEN = rf"(?:[^<>\x08\s]\x08|{_SEQUENCE}|[\s{INVISIBLE}]){{0,64}}+"
_NAMES = "|".join((_UNSEEN.join(map(_letter_class, _PRIVATE)), _UNSEEN.join(_OURS)))
_AMP, _BACKSLASH, _PERCENT = r"&(?:amp;){0,4}", r"\\{1,4}", "%(?:25){0,3}"
_LEFT_BRACKET = (
    rf"[<\uff1c\ufe64\u2039\u276e\u276c\u27e8\u2329\u3008]|{_AMP}(?:lt|#0{{0,9}}60|#x0{{0,9}}3c);?"
    rf"|{_BACKSLASH}(?:u\{{?0{{0,6}}3c\}}?|uff1c|x3c|0?74)|{_PERCENT}3c|=3c"
)
_RIGHT_BRACKET = (
    rf"[>\uff1e\ufe65\u203a\u276f\u276d\u27e9\u232a\u3009]|{_AMP}(?:gt|#0{{0,9}}62|#x0{{0,9}}3e);?"
    rf"|{_BACKSLASH}(?:u\{{?0{{0,6}}3e\}}?|uff1e|x3e|0?76)|{_PERCENT}3e|=3e"
)
_SLASH = rf"[/\uff0f]|{_AMP}(?:sol|#0{{0,9}}47|#x0{{0,9}}2f);?|{_BACKSLASH}(?:/|u\{{?0{{0,6}}2f\}}?|x2f|0?57)|{_PERCENT}2f|=2f"
_TAG = re.compile(
    rf"(?:{_LEFT_BRACKET}){_UNSEEN}(?P<close>{_SLASH})?+{_UNSEEN}"
    # ASCII matching applies to the name only: otherwise `ſ` would match `s`, which the hook's quick check ignores.
    # The plain spellings come first, in an atomic group, so that a longer word is examined only once.
    rf"(?P<name>(?a:(?>{_PRIVATE}|{_OURS}|{_NAMES})))(?![\w-])",
    re.IGNORECASE,
)
_TAG_END = re.compile(_RIGHT_BRACKET, re.IGNORECASE)


# Gemini adds the output of other hooks before a prompt, and mentioned files after it, before our hook receives it.
_ADDED_BEFORE = re.compile(r"(?:\s*<hook_context>.*?</hook_context>)+\s*", re.DOTALL)
_ADDED_AFTER = "--- Content from referenced files ---"


def strip_gemini_additions(prompt: str) -> str:
    """Return the user's own text from a prompt as Gemini reports it. Apply this before calling `is_entirely_private`."""
    prefix = _ADDED_BEFORE.match(prompt)
    text, separator, _ = prompt[prefix.end() if prefix else 0 :].partition(_ADDED_AFTER)
    return text.removesuffix("\n") if separator else text


def strip_private(text: str) -> str:
    """Return the text without its hidden parts; the same object if it has none, as is almost always the case."""
    return text if _TAG.search(text) is None else _Document().cut(text)


def strip_private_json(value: T) -> T:
    """Return a JSON value without its hidden parts, including those in keys.

    All its texts form one document: a tag opened in one text hides the following texts until it is closed.
    """
    document = _document(value)
    return cast(T, document.copy(value)) if document else value


def _document(value: Any) -> _Document | None:
    """Return a scanner for the texts of a value, None if they contain no tag, not even one that is split."""
    joined = "".join(_values(value))
    if _TAG.search("|".join(iter_strings(value))) or _TAG.search(joined):
        return _Document(joined)
    if not _TAG.search("".join(_values_and_keys(value))):
        return None
    document = _Document(joined)
    document.lost = True  # a tag that is split between keys and texts hides everything
    return document


def _values(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value in order, without its keys and the types of its objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if not _is_structural(key, item):
                yield from _values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item)


def _values_and_keys(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value in order, and those of its keys that a person may have written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if not _is_structural(key, item):
                if key not in _STRUCTURAL_KEYS:
                    yield str(key)
                yield from _values_and_keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _values_and_keys(item)


def _is_structural(key: Any, item: Any) -> bool:
    """Return whether a field is the type of its object; without it, the rest of the object cannot be interpreted."""
    return key in ("type", "cell_type") and isinstance(item, str) and item in _STRUCTURAL_TYPES


# Fields of agents and of our records that hold a tool call, in the order of one document; unknown ones come last.
_CALL_FIELDS = (
    "tool_name", "toolName", "name", "file_path", "tool_input", "toolInput", "input", "tool_args", "toolArgs", "args",
    "arguments", "edits", "tool_info", "command", "tool_response", "tool_result", "toolResult", "toolUseResult",
    "tool_output", "output", "result_json", "result", "resultDisplay", "response", "error",
)  # fmt: skip
# Fields that belong to no call: what a person or an agent says, and what identifies the event.
_SEPARATE_FIELDS = frozenset(
    ("prompt", "user_prompt", "last_assistant_message", "prompt_response", "message", "messages", "cwd", "type")
)
_IDENTIFYING = re.compile(
    r"(?:^|_)(?:id|uuid|path|roots|name|mode|type|status|model|version|source|reason|trigger|timestamp|at)$|(?:Id|Uuid|Path)$"
)


def strip_private_fields(fields: dict[str, Any]) -> dict[str, object]:
    """Return a record without its hidden parts. All fields of a tool call form one document; every other field is
    independent and a document of its own."""
    others = (name for name, item in fields.items() if isinstance(item, str | list | dict) and _may_be_of_call(name))
    call = {name: fields[name] for name in dict.fromkeys((*_CALL_FIELDS, *others)) if name in fields}
    document = _document(list(call.values()))
    stripped_call = document.copy_fields(call) if document else call
    return {
        strip_private(str(name)): stripped_call[name] if name in stripped_call else strip_private_json(item)
        for name, item in fields.items()
    }


def _may_be_of_call(name: str) -> bool:
    return name not in _SEPARATE_FIELDS and not _IDENTIFYING.search(name)


def strip_private_call(arguments: Any, output: Any) -> tuple[Any, Any]:
    """Return the input and the output of a tool call without their hidden parts."""
    fields = strip_private_fields({"tool_input": arguments, "tool_response": output})
    return fields["tool_input"], fields["tool_response"]


# Keys that agents and tools use for structure. In a hidden part, any other key may be text written by a person.
_STRUCTURAL_KEYS = frozenset({
    "type", "text", "content", "contents", "lines", "line", "stdout", "stderr", "output", "result", "results", "error",
    "message", "input", "file", "files", "file_path", "filePath", "path", "old_string", "new_string", "oldString",
    "newString", "old_str", "new_str", "edits", "cells", "source", "outputs", "data", "structuredPatch", "changes",
    "patch", "diff", "oldStart", "oldLines", "newStart", "newLines", "replace_all", "replaceAll", "command", "code",
    "description", "title", "metadata", "isError", "is_error", "interrupted", "isImage", "mode", "role", "parts",
    "cell_type", "cell_id", "name", "value", "blocks", "items", "args", "arguments", "response", "llmContent",
})  # fmt: skip
_STRUCTURAL_TYPES = frozenset(
    {"text", "image", "resource", "input_text", "output_text", "tool_result", "tool_use", "code", "markdown"}
)


_Spans = list[tuple[int, int]]


class _Scanner:
    """Reads the tags of one text after the other and remembers which tag is open."""

    def __init__(self) -> None:
        self.hiding = ""  # name of the open tag
        self.depth = 0
        self.lost = False  # there were too many tags: everything that follows is hidden

    def visible(self, text: str, start: int = 0, *, max_tags: int | None = None) -> _Spans:
        """Return the spans of the next text that are visible; everything before `start` is hidden."""
        spans: _Spans = []
        position, opening_end = start, 0
        end: re.Match[str] | None = None
        for count, tag in enumerate(_TAG.finditer(text, start), start=1):
            name = _OURS if tag["name"][0] in "cC" else _PRIVATE
            if self.hiding and name != self.hiding:
                continue
            if not self.hiding:
                spans.append((position, max(position, tag.start())))
            if max_tags is not None and count > max_tags:
                self.lost = True
                return spans
            if not tag["close"]:
                self.hiding, self.depth = name, self.depth + 1
                opening_end = opening_end if self.depth > 1 else tag.end()
            elif self.depth > 1:
                self.depth -= 1
            elif not _is_in_attribute(text, opening_end, tag):
                if end is None or end.start() < tag.end():  # otherwise the `>` found last is also the next one
                    end = _TAG_END.search(text, tag.end())
                if not self.hiding and name == _PRIVATE:
                    self._close_stray(text, tag, end, spans)
                if end is None:
                    return spans  # visible text does not resume, and no later tag has a `>` either
                position = end.end()
                self.hiding, self.depth = "", 0
        if not self.hiding:
            spans.append((position, len(text)))
        return spans

    def _close_stray(self, text: str, tag: re.Match[str], end: re.Match[str] | None, spans: _Spans) -> None:
        """Handle a closing tag without an opening tag; `spans` are the visible spans before it."""


class _Joined:
    """The texts of a document joined without separators, read in one pass and then handed out text by text."""

    def __init__(self, text: str) -> None:
        self.tags = deque(_TAG.finditer(text))
        self.spans = deque(_Scanner().visible(text))
        self.offset = 0  # where the next text begins

    @property
    def hides(self) -> bool:
        """Whether the end of the previous text and the beginning of the next one are in the same hidden part."""
        while self.spans and self.spans[0][1] < self.offset:
            self.spans.popleft()
        return not self.spans or self.spans[0][0] > self.offset

    def advance(self, length: int) -> tuple[_Spans, re.Match[str] | None, int]:
        """Return the visible spans of the next text, the tag that began in an earlier text and ends in this one, and
        where it ends in this text."""
        begin, self.offset = self.offset, self.offset + length
        while self.spans and self.spans[0][1] < begin:
            self.spans.popleft()
        spans = [
            (max(span_begin, begin) - begin, min(span_end, self.offset) - begin)
            for span_begin, span_end in takewhile(lambda span: span[0] < self.offset, self.spans)
        ]
        while self.tags and self.tags[0].end() <= begin:
            self.tags.popleft()
        is_split = bool(self.tags) and self.tags[0].start() < begin and self.tags[0].end() <= self.offset
        return (spans, self.tags[0], self.tags[0].end() - begin) if is_split else (spans, None, 0)

    @property
    def is_within_tag(self) -> bool:
        """Whether a tag begins before the end of the previous text and ends after it."""
        while self.tags and self.tags[0].end() <= self.offset:
            self.tags.popleft()
        return bool(self.tags) and self.tags[0].start() < self.offset


def _intersect(one: _Spans, other: _Spans) -> Iterator[tuple[int, int]]:
    """Yield the spans that both lists cover. Both are sorted, and the spans of each do not overlap."""
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            yield begin, end
        i, j = (i + 1, j) if one[i][1] <= other[j][1] else (i, j + 1)


class _Document(_Scanner):
    """A sequence of related texts: an open tag hides text across their boundaries."""

    def __init__(self, joined: str = "") -> None:
        super().__init__()
        self.joined = _Joined(joined)
        self.lists = 0  # nesting depth of lists around the current text
        self.places: list[tuple[Any, Any]] = []  # (container, key) of values that a stray closing tag hides

    @property
    def hides(self) -> bool:
        return bool(self.hiding) or self.lost or self.joined.hides

    def copy(self, value: Any) -> object:
        if isinstance(value, str):
            return self._copy_text(value)
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list):
            return self._list(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if is_number and self.hides else value

    def copy_fields(self, fields: dict[str, Any]) -> dict[str, object]:
        """Copy fields whose names are known and stay visible."""
        new: dict[str, Any] = {}
        for name, item in fields.items():
            new[name] = self.copy(item)
            self._remember_place(new, name)
        return new

    def _dict(self, value: dict[Any, Any]) -> dict[str, object]:
        new: dict[str, Any] = {}
        for key, item in value.items():
            name = self._key(str(key))
            name = name or (f"{len(new)}" if name in new else "")  # two hidden keys must remain two keys
            if _is_structural(key, item):
                new[name] = item
            else:
                new[name] = self.copy(item)
                self._remember_place(new, name)
        return new

    def _key(self, key: str) -> str:
        return self.cut(key) if _TAG.search(key) else "" if self.hides and key not in _STRUCTURAL_KEYS else key

    def _list(self, value: list[Any]) -> list[object]:
        if self.lists == 0:
            self.places.clear()
        self.lists += 1
        new: list[Any] = []
        for number, item in enumerate(value):
            new.append(self.copy(item))
            self._remember_place(new, number)
        self.lists -= 1
        return new

    def _remember_place(self, parent: Any, place: Any) -> None:
        """Remember a value of the current list, or a text that ends within a tag."""
        if (self.lists or self.joined.is_within_tag) and not isinstance(parent[place], dict | list | bool | None):
            self.places.append((parent, place))

    def _hide_before(self) -> None:
        """Hide the values already copied from the current list: a stray closing tag means that the list began inside a
        hidden part."""
        for parent, place in self.places:
            parent[place] = "" if isinstance(parent[place], str) else None
        self.places.clear()

    def _copy_text(self, text: str) -> str:
        """Return the part of the next text that is visible both in this text alone and in the joined texts."""
        joined_spans, split_tag, split_end = self.joined.advance(len(text))
        if self.lost:
            return ""
        if split_tag:
            self.visible(f"{split_tag[0]}>")
        spans = self.visible(text, split_end, max_tags=MAX_TAGS)
        return "".join(text[begin:end] for begin, end in _intersect(spans, joined_spans))

    def cut(self, text: str) -> str:
        """Return the visible part of a text that is not among the joined texts."""
        return "" if self.lost else "".join(text[begin:end] for begin, end in self.visible(text, max_tags=MAX_TAGS))

    def _close_stray(self, text: str, tag: re.Match[str], end: re.Match[str] | None, spans: _Spans) -> None:
        if end is None or not _is_quoted(text, tag.start(), end.end()):
            spans.clear()
            self._hide_before()


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether a tag is enclosed in backticks, as in prose about tags."""
    return text[max(0, start - 1) : start] == "`" == text[end : end + 1]


_ATTRIBUTE = re.compile(r"=\s{0,8}\\{0,3}([\"'])[^\"'<>]{0,200}\Z")
_ATTRIBUTE_END = re.compile(rf"[^\"'\n]{{0,200}}([\"'])[^<>\n]{{0,200}}(?:{_RIGHT_BRACKET})", re.IGNORECASE)


def _is_in_attribute(text: str, opening_end: int, tag: re.Match[str]) -> bool:
    """Return whether a closing tag is part of an attribute of the opening tag: `<private note="until </private>">`."""
    if not opening_end or tag.start() - opening_end > 400 or _TAG_END.search(text, opening_end, tag.start()):
        return False
    before, after = _ATTRIBUTE.search(text, opening_end, tag.start()), _ATTRIBUTE_END.match(text, tag.end())
    return bool(before and after and before[1] == after[1])


def is_entirely_private(text: str) -> bool:
    """Return whether a text is not blank and entirely private."""
    return bool(text.strip()) and not strip_private(text).strip()
