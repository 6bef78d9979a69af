"""Cuts `<private>…</private>` and our own injected `<claude-mem-context>…</claude-mem-context>` out of text.

It fails closed: an opening tag that is never closed hides everything to the end of the event, and so does the
hundred-and-first tag; a closing tag that nothing opened hides what stands before it. The texts of one event (what a
tool was given and what it answered: the lines of a patch, the blocks of an answer, the edits of a file) are read as one
document, also where one text ends in the middle of a tag. It is one pass, so its time grows with the text and with
nothing else. The hook uses it before the first byte reaches the disk, and ingest uses it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from claude_mem.text import strings

MAX_TAGS = 100
_PRIVATE, _OURS = "private", "claude-mem-context"

# Letters that a reader takes for those of `private`: with accents, of full width, in circles, from a mathematician, of
# other alphabets. The hook's quick look knows the same ones.
LOOKALIKES = {
    "p": "ṔṕṖṗƤƥРрΡρ",
    "r": "ŔŕŖŗŘřȐȑȒȓṘṙṚṛṜṝṞṟгГ",
    "i": "ÌÍÎÏìíîïĨĩĪīĬĭĮįİǏǐȈȉȊȋḬḭḮḯỈỉỊịІіЇїΙιΪϊΊί",
    "v": "ṼṽṾṿѴѵνΝ",
    "a": "ÀÁÂÃÄÅàáâãäåĀāĂăĄąǍǎǞǟǠǡǺǻȀȁȂȃȦȧḀḁẠạẢảẤấẦầẨẩẪẫẬậẮắẰằẲẳẴẵẶặАаӐӑӒӓΑαΆά",
    "t": "ŢţŤťȚțṪṫṬṭṮṯṰṱẗТтΤτ",
    "e": "ÈÉÊËèéêëĒēĔĕĖėĘęĚěȄȅȆȇȨȩḔḕḖḗḘḙḚḛḜḝẸẹẺẻẼẽẾếỀềỂểỄễỆệЕеЁёЀѐΕεΈέ",
}
_ALPHABETS = (0xFF21, 0xFF41, 0x24B6, 0x24D0, *range(0x1D400, 0x1D6A4, 26))  # where each has its first letter


def _written(letter: str) -> str:
    """A class of all characters that stand for a letter of `private`; other letters stand for themselves."""
    if letter not in LOOKALIKES:
        return letter
    others = "".join(chr(first + ord(letter) - ord("a")) for first in _ALPHABETS)
    return f"[{letter}{letter.upper()}{LOOKALIKES[letter]}{others}]"


# A tag may come in any case, with spaces and attributes, and its brackets as HTML entities or JSON escapes (text of
# text), or of full width. What has no width may stand anywhere in it: nobody sees it; so may a terminal's colours, and
# marks above letters. The possessive quantifiers keep a run of spaces from being tried twice.
_UNSEEN = "\u00ad\u0300-\u036f\u200b-\u200f\u2060-\u2064\ufeff"
_COLOUR = r"(?:\x1b|\\u001b)\[[0-9;:]{0,24}[mK]"
_BETWEEN = rf"(?:[{_UNSEEN}]|{_COLOUR}){{0,16}}+"
_SPACES = rf"(?:[\s{_UNSEEN}]|{_COLOUR}){{0,64}}+"
_NAMES = "|".join((_BETWEEN.join(map(_written, _PRIVATE)), _BETWEEN.join(_OURS)))
_TAG = re.compile(
    rf"(?:[<\uff1c]|&lt;|&#0{{0,5}}60;|&#x0{{0,5}}3c;|\\u003c|\\uff1c|\\x3c|%3c){_SPACES}"
    rf"(?P<close>[/\uff0f]|\\/|\\u002f|%2f)?+{_SPACES}"
    # The name in ASCII: else `ı` would count as an `i`, which the hook's quick look does not know. The spaces not.
    # As it is usually written first, and then not another way: a name that goes on is looked at once.
    rf"(?P<name>(?a:(?>{_PRIVATE}|{_OURS}|{_NAMES})))(?![\w-])",
    re.IGNORECASE,
)
_LONGEST_HEAD = 64  # of a tag that runs over two texts
_TAG_END = re.compile(r"[>\uff1e]|\\uff1e|&gt;|&#0{0,5}62;|&#x0{0,5}3e;|\\u003e|\\x3e|%3e", re.IGNORECASE)


# What Gemini puts around a prompt before its hooks see it: what other hooks added, and files that were mentioned.
_ADDED_BEFORE = re.compile(r"(?:\s*<hook_context>.*?</hook_context>)+\s*", re.DOTALL)
_ADDED_AFTER = "--- Content from referenced files ---"


def said(prompt: str) -> str:
    """What the user said, of a prompt as Gemini tells it. To be cut before `hides_all` is asked."""
    added = _ADDED_BEFORE.match(prompt)
    rest, found, _ = prompt[added.end() if added else 0 :].partition(_ADDED_AFTER)
    return rest.removesuffix("\n") if found else rest


def strip(text: str) -> str:
    """The text without its hidden parts; the text itself if there are none."""
    return text if _TAG.search(text) is None else _Document().cut(text)  # as almost all are


def strip_all(value: Any) -> Any:
    """A JSON value without its hidden parts, keys included. All its texts are one document: a tag that one of them
    opens hides the following ones, until it is closed."""
    return _Document().copy(value) if _has_tag(value) else value


def _has_tag(value: Any) -> bool:
    """Whether a value has a tag in it, or one that begins in one text and ends in the next."""
    return _TAG.search(_SEAM.join(strings(value))) is not None or _TAG.search("".join(_values(value))) is not None


def _values(value: Any) -> Iterator[str]:
    """The texts of a value without its keys, in their order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item)


_SEAM = "\x00"
# What a tool was given and what it answered, in this order: one document, by the names that hosts and records have.
_CALL = (
    "tool_input", "input", "tool_args", "arguments", "edits", "tool_info", "command", "tool_response", "tool_result",
    "tool_output", "output", "result_json", "result", "response", "error",
)  # fmt: skip


def strip_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The same for a record. What a tool was given and what it answered are one document; every other field has
    nothing to do with the rest, and is a document by itself."""
    call = {name: fields[name] for name in _CALL if name in fields}
    document = _Document() if _has_tag(call) else None
    done = {name: document.copy(item) for name, item in call.items()} if document else call
    return {strip(str(name)): done[name] if name in done else strip_all(item) for name, item in fields.items()}


# Names that hosts and tools give to parts. In a hidden part every other key may be a person's word.
_KEYS = frozenset({
    "type", "text", "content", "contents", "lines", "line", "stdout", "stderr", "output", "result", "results", "error",
    "message", "input", "file", "files", "file_path", "filePath", "path", "old_string", "new_string", "oldString",
    "newString", "old_str", "new_str", "edits", "cells", "source", "outputs", "data", "structuredPatch", "changes",
    "patch", "diff", "oldStart", "oldLines", "newStart", "newLines", "replace_all", "replaceAll", "command", "code",
    "description", "title", "metadata", "isError", "is_error", "interrupted", "isImage", "mode", "role", "parts",
    "cell_type", "cell_id", "name", "value", "blocks", "items", "args", "arguments", "response", "llmContent",
})  # fmt: skip
_TYPES = frozenset(
    {"text", "image", "resource", "input_text", "output_text", "tool_result", "tool_use", "code", "markdown"}
)


class _Document:
    """Texts that belong together, in their order: what is hidden goes on from one to the next."""

    def __init__(self) -> None:
        self.hiding = ""  # the name of the tag that was opened
        self.depth = 0
        self.lost = False  # too many tags: nothing more is kept
        self.lists = 0  # how many lists the text stands in
        self.places: list[tuple[Any, Any]] = []  # of what was kept since the outermost of them began
        self.tail = ""  # the end of the text before: a tag may begin there

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
            name = name or (f"{len(new)}" if name in new else "")  # two that are hidden are still two
            if name == "type" and isinstance(item, str) and item in _TYPES:
                new[name] = item  # else nobody would know what the rest of it is
            else:
                new[name] = self.copy(item)
                self._note(new, name)
        return new

    def _key(self, key: str) -> str:
        return self.cut(key) if _TAG.search(key) else "" if self.hides and key not in _KEYS else key

    def _list(self, value: list[Any]) -> list[Any]:
        if self.lists == 0:
            self.places.clear()
        self.lists += 1
        new: list[Any] = []
        for number, item in enumerate(value):
            new.append(self.copy(item))
            self._note(new, number)
        self.lists -= 1
        return new

    def _note(self, parent: Any, place: Any) -> None:
        if self.lists and not isinstance(parent[place], dict | list | bool | None):
            self.places.append((parent, place))

    def _hide_before(self) -> None:
        """Nothing opened the tag that was closed: its list began within a hidden part."""
        for parent, place in self.places:
            parent[place] = "" if isinstance(parent[place], str) else None
        self.places.clear()

    def cut(self, text: str) -> str:
        """What is left of the next text."""
        if self.lost:
            return ""
        seam, self.tail = self._over_the_seam(text), text[-_LONGEST_HEAD:]
        return self._cut(text[seam:])

    def _over_the_seam(self, text: str) -> int:
        """Where a tag ends that began in the text before; it is opened or closed."""
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
        kept: list[str] = []
        position = opened = 0
        for count, tag in enumerate(_TAG.finditer(text), start=1):
            name = _OURS if tag["name"][0] in "cC" else _PRIVATE
            if self.hiding and name != self.hiding:
                continue
            if not self.hiding:
                kept.append(text[position : tag.start()])
            if count > MAX_TAGS:
                self.lost = True
                break
            if not tag["close"]:
                self.hiding, self.depth = name, self.depth + 1
                opened = opened if self.depth > 1 else tag.end()
            elif self.depth > 1:
                self.depth -= 1
            elif not _is_in_attribute(text, opened, tag):
                position = self._close(text, tag, kept)
                if position == len(text):
                    break  # also if the tag has no end: then no later one has
        if not self.hides:
            kept.append(text[position:])
        return "".join(kept)

    def _close(self, text: str, tag: re.Match[str], kept: list[str]) -> int:
        """Where what is kept goes on: nowhere in this text, if the tag does not end."""
        end = _TAG_END.search(text, tag.end())
        if end is None:
            return len(text)
        is_stray = not self.hiding and tag["name"][0] not in "cC"
        self.hiding, self.depth = "", 0
        if is_stray and not _is_quoted(text, tag.start(), end.end()):
            kept.clear()
            self._hide_before()
        return end.end()


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Whether a tag stands between backticks, as prose about tags has it."""
    return text[max(0, start - 1) : start] == "`" == text[end : end + 1]


_ATTRIBUTE = re.compile(r"=\s{0,8}([\"'])[^\"'<>]{0,200}\Z")
_ATTRIBUTE_END = re.compile(r"[^\"'\n]{0,200}([\"'])[^<>\n]{0,200}>")


def _is_in_attribute(text: str, opened: int, tag: re.Match[str]) -> bool:
    """Whether a closing tag is only quoted by the opening one: `<private note="until </private>">`."""
    if not opened or tag.start() - opened > 400 or _TAG_END.search(text, opened, tag.start()):
        return False
    before, after = _ATTRIBUTE.search(text, opened, tag.start()), _ATTRIBUTE_END.match(text, tag.end())
    return bool(before and after and before[1] == after[1])


def hides_all(text: str) -> bool:
    """Was there something to say, and all of it private?"""
    return bool(text.strip()) and not strip(text).strip()
