"""Removal of `<private>…</private>` and of injected `<claude-mem-context>…</claude-mem-context>` from text.

The module fails closed: an opening tag that is never closed hides everything up to the end of the event, and so does
the 101st tag; a closing tag without an opening tag hides the text before it. The texts of one event (input and output
of a tool call: the lines of a patch, the blocks of an answer, the edits of a file) are read as one document, even if
one text ends in the middle of a tag. There is a single pass, so the running time is linear in the length of the text.
The hook strips private text before the first byte reaches the disk, and ingest strips it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from claude_mem.domain.text import iter_strings

MAX_TAGS = 100
_PRIVATE, _OURS = "private", "claude-mem-context"

# Characters that look like the letters of `private`: accented, full-width, circled, mathematical, and from other
# alphabets. The quick check in the hook uses the same table.
LOOKALIKES = {
    "p": "ṔṕṖṗƤƥРрΡρ",
    "r": "ŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟгГ",
    "i": "ÌÍÎÏìíîïĨĩĪīĬĭĮįİǏǐȈȉȊȋḬḭḮḯỈỉỊịІіЇїΙιΪϊΊί",
    "v": "ṼṽṾṿѴѵνΝ",
    "a": "ÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặАаӐӑӒӓΑαΆά",
    "t": "ŢţŤťȚțṪṫṬṭṮṯṰṱẗТтΤτ",
    "e": "ÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệЕеЁёЀѐΕεΈέ",
}
_ALPHABETS = (0xFF21, 0xFF41, 0x24B6, 0x24D0, *range(0x1D400, 0x1D6A4, 26))  # code points of the letter A or a


def _letter_class(letter: str) -> str:
    """Return a character class of a letter and its lookalikes; letters without lookalikes are returned unchanged."""
    if letter not in LOOKALIKES:
        return letter
    other_alphabets = "".join(chr(first + ord(letter) - ord("a")) for first in _ALPHABETS)
    return f"[{letter}{letter.upper()}{LOOKALIKES[letter]}{other_alphabets}]"


# A tag may be written in any case, with spaces and attributes. Its brackets may be full-width, HTML entities, or JSON
# escapes (text quoted in other text). Zero-width characters, terminal colour codes and combining marks may occur
# anywhere in it, because a reader does not see them. The possessive quantifiers prevent backtracking into spaces.
_ZERO_WIDTH = "\u00ad\u0300-\u036f\u200b-\u200f\u2060-\u2064\ufeff"
_COLOUR = r"(?:\x1b|\\u001b)\[[0-9;:]{0,24}[mK]"
_INVISIBLE = rf"(?:[{_ZERO_WIDTH}]|{_COLOUR}){{0,16}}+"
_SPACES = rf"(?:[\s{_ZERO_WIDTH}]|{_COLOUR}){{0,64}}+"
_NAMES = "|".join((_INVISIBLE.join(map(_letter_class, _PRIVATE)), _INVISIBLE.join(_OURS)))
_TAG = re.compile(
    rf"(?:[<\uff1c]|&lt;|&#0{{0,5}}60;|&#x0{{0,5}}3c;|\\u003c|\\uff1c|\\x3c|%3c){_SPACES}"
    rf"(?P<close>[/\uff0f]|\\/|\\u002f|%2f)?+{_SPACES}"
    # ASCII matching applies to the name only: otherwise `ı` would match `i`, which the hook's quick check ignores.
    # The plain spellings come first, in an atomic group, so that a longer word is examined only once.
    rf"(?P<name>(?a:(?>{_PRIVATE}|{_OURS}|{_NAMES})))(?![\w-])",
    re.IGNORECASE,
)
_LONGEST_HEAD = 64  # characters of a tag that is split between two texts
_TAG_END = re.compile(r"[>\uff1e]|\\uff1e|&gt;|&#0{0,5}62;|&#x0{0,5}3e;|\\u003e|\\x3e|%3e", re.IGNORECASE)


# Gemini adds the output of other hooks before a prompt, and mentioned files after it, before our hook receives it.
_ADDED_BEFORE = re.compile(r"(?:\s*<hook_context>.*?</hook_context>)+\s*", re.DOTALL)
_ADDED_AFTER = "--- Content from referenced files ---"


def strip_gemini_additions(prompt: str) -> str:
    """Return the user's own text from a prompt as Gemini reports it. Apply this before calling `hides_all`."""
    prefix = _ADDED_BEFORE.match(prompt)
    text, separator, _ = prompt[prefix.end() if prefix else 0 :].partition(_ADDED_AFTER)
    return text.removesuffix("\n") if separator else text


def strip_private(text: str) -> str:
    """Return the text without its hidden parts; the same object if it has none, as is almost always the case."""
    return text if _TAG.search(text) is None else _Document().cut(text)


def strip_private_json(value: Any) -> Any:
    """Return a JSON value without its hidden parts, including those in keys.

    All its texts form one document: a tag opened in one text hides the following texts until it is closed.
    """
    return _Document().copy(value) if _has_tag(value) else value


def _has_tag(value: Any) -> bool:
    """Return whether a value contains a tag, including a tag that is split between two texts."""
    return (
        _TAG.search(_SEPARATOR.join(iter_strings(value))) is not None
        or _TAG.search("".join(_values(value))) is not None
    )


def _values(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value in order, without its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item)


_SEPARATOR = "\x00"
# Fields of agents and of our records that hold the input and output of a tool call, in the order of one document.
_CALL_FIELDS = (
    "tool_input", "input", "tool_args", "arguments", "edits", "tool_info", "command", "tool_response", "tool_result",
    "tool_output", "output", "result_json", "result", "response", "error",
)  # fmt: skip


def strip_private_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a record without its hidden parts. The input and output of a tool call form one document; every other
    field is independent and a document of its own."""
    call = {name: fields[name] for name in _CALL_FIELDS if name in fields}
    document = _Document() if _has_tag(call) else None
    stripped_call = {name: document.copy(item) for name, item in call.items()} if document else call
    return {
        strip_private(str(name)): stripped_call[name] if name in stripped_call else strip_private_json(item)
        for name, item in fields.items()
    }


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


class _Document:
    """A sequence of related texts: an open tag hides text across their boundaries."""

    def __init__(self) -> None:
        self.hiding = ""  # name of the open tag
        self.depth = 0
        self.lost = False  # there were too many tags: everything that follows is hidden
        self.lists = 0  # nesting depth of lists around the current text
        self.places: list[tuple[Any, Any]] = []  # (container, key) of values copied since the outermost list began
        self.tail = ""  # end of the previous text: a tag may begin there

    @property
    def hides(self) -> bool:
        return bool(self.hiding) or self.lost

    def copy(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.cut(value)
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list):
            return self._list(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if is_number and self.hides else value

    def _dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        new: dict[str, Any] = {}
        for key, item in value.items():
            name = self._key(str(key))
            name = name or (f"{len(new)}" if name in new else "")  # two hidden keys must remain two keys
            if name == "type" and isinstance(item, str) and item in _STRUCTURAL_TYPES:
                new[name] = item  # without its type, the rest of the object could not be interpreted
            else:
                new[name] = self.copy(item)
                self._remember_place(new, name)
        return new

    def _key(self, key: str) -> str:
        return self.cut(key) if _TAG.search(key) else "" if self.hides and key not in _STRUCTURAL_KEYS else key

    def _list(self, value: list[Any]) -> list[Any]:
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
        if self.lists and not isinstance(parent[place], dict | list | bool | None):
            self.places.append((parent, place))

    def _hide_before(self) -> None:
        """Hide the values already copied from the current list: a stray closing tag means that the list began inside a
        hidden part."""
        for parent, place in self.places:
            parent[place] = "" if isinstance(parent[place], str) else None
        self.places.clear()

    def cut(self, text: str) -> str:
        """Return the visible part of the next text of this document."""
        if self.lost:
            return ""
        start, self.tail = self._split_tag_end(text), text[-_LONGEST_HEAD:]
        return self._cut(text[start:])

    def _split_tag_end(self, text: str) -> int:
        """Apply a tag that began at the end of the previous text, and return where it ends in this one."""
        begin = self.tail.rfind("<")
        if begin < 0 or not text:
            return 0
        tail = self.tail[begin:]
        tag = _TAG.match(tail + text[:_LONGEST_HEAD])
        if tag is None or tag.end() <= len(tail) or _TAG.match(tail):
            return 0
        self._cut(f"{tag[0]}>")
        end = _TAG_END.search(text, tag.end() - len(tail))
        return end.end() if end else len(text)

    def _cut(self, text: str) -> str:
        parts: list[str] = []
        position = tag_end = 0
        for count, tag in enumerate(_TAG.finditer(text), start=1):
            name = _OURS if tag["name"][0] in "cC" else _PRIVATE
            if self.hiding and name != self.hiding:
                continue
            if not self.hiding:
                parts.append(text[position : tag.start()])
            if count > MAX_TAGS:
                self.lost = True
                break
            if not tag["close"]:
                self.hiding, self.depth = name, self.depth + 1
                tag_end = tag_end if self.depth > 1 else tag.end()
            elif self.depth > 1:
                self.depth -= 1
            elif not _is_in_attribute(text, tag_end, tag):
                position = self._close(text, tag, parts)
                if position == len(text):
                    break  # also if the tag has no `>`: then no later tag has one either
        if not self.hides:
            parts.append(text[position:])
        return "".join(parts)

    def _close(self, text: str, tag: re.Match[str], parts: list[str]) -> int:
        """Close the current tag and return where visible text resumes: the end of the text if the tag has no `>`."""
        end = _TAG_END.search(text, tag.end())
        if end is None:
            return len(text)
        is_stray = not self.hiding and tag["name"][0] not in "cC"
        self.hiding, self.depth = "", 0
        if is_stray and not _is_quoted(text, tag.start(), end.end()):
            parts.clear()
            self._hide_before()
        return end.end()


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether a tag is enclosed in backticks, as in prose about tags."""
    return text[max(0, start - 1) : start] == "`" == text[end : end + 1]


_ATTRIBUTE = re.compile(r"=\s{0,8}([\"'])[^\"'<>]{0,200}\Z")
_ATTRIBUTE_END = re.compile(r"[^\"'\n]{0,200}([\"'])[^<>\n]{0,200}>")


def _is_in_attribute(text: str, opening_end: int, tag: re.Match[str]) -> bool:
    """Return whether a closing tag is part of an attribute of the opening tag: `<private note="until </private>">`."""
    if not opening_end or tag.start() - opening_end > 400 or _TAG_END.search(text, opening_end, tag.start()):
        return False
    before, after = _ATTRIBUTE.search(text, opening_end, tag.start()), _ATTRIBUTE_END.match(text, tag.end())
    return bool(before and after and before[1] == after[1])


def is_entirely_private(text: str) -> bool:
    """Return whether a text is not blank and entirely private."""
    return bool(text.strip()) and not strip_private(text).strip()
