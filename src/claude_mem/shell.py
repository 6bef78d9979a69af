"""A shell's command line, taken apart far enough to tell which program is given which words.

No shell is imitated: variables, aliases and loops stay as they are written, and what we can't take apart is read as far
as it goes. The time grows with the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count

# A separator, or a piece of a word: quoted, escaped or bare. A quote that is never closed is read in both ways: up to
# the end of the text, and as if it were not there.
_PIECE = re.compile(
    r"(?P<space>[ \t\r\f\v]+|\\\r?\n|(?<![^\s;&|()`])#[^\n]*+)|(?P<arrow>\d?(?:<<<|<<-?|[<>]{1,2}[|&]?)|&>{1,2})"
    r"|(?P<end>[;&|\n()`]+|\$\()|'(?P<plain>[^']*+)'|\"(?P<quoted>(?:[^\"\\]|\\.)*+)\"|\\(?P<escaped>.)"
    r"|(?P<bare>(?:[^\s\\;&|()`<>\"'$]|\$(?!\())++)|[\"'](?=(?P<open>.*+))|.",
    re.DOTALL,
)
_HERE = re.compile(r"(?<!<)(?P<arrow><<-?)[ \t]{0,4}(?P<quote>[\\\"']?)(?P<word>[A-Za-z_][\w.\-]{0,64})[\"']?")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_GIVEN = re.compile(r"\w{1,128}\+?=")
# They begin no command of their own, the program comes after them; and which of their options take a value.
_IN_FRONT = {
    **dict.fromkeys((
        "command", "builtin", "nohup", "setsid", "unbuffer", "torsocks", "busybox", "if", "elif", "while", "until",
        "then", "else", "do", "!", "{", "coproc",
    ), ""),
    "sudo": "CDghpRrTtUu", "doas": "Cu", "env": "Cu", "time": "fo", "exec": "a", "nice": "n", "ionice": "cnpPu",
    "stdbuf": "eio", "timeout": "ks", "gtimeout": "ks", "caffeinate": "tw", "proxychains": "f", "proxychains4": "f",
    "strace": "abeEIoOpPsSuUX", "npx": "p",
}  # fmt: skip
_XARGS = {**_IN_FRONT, "xargs": "adEILnPs"}
_LONG_WITH_VALUE = re.compile(r"--(?:user|group|chdir|unset|signal|kill-after|adjustment|package)\Z")
_OPTION = re.compile(r"-|\d+(?:\.\d+)?[smhd]?\Z")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One program and what it is given. `reads` and `writes` are files that the shell opens for it: `< a > b`."""

    program: str  # without its folder, but an address is whole; "" if there is none, only variables
    words: Words
    before: Words = ()  # what stands in front of it: variables, `sudo -u me`
    reads: Words = ()
    writes: Words = ()
    text: str = ""  # of a here-document


@dataclass(frozen=True, slots=True)
class _Text:
    """A here-document. Nothing is substituted in a plain one."""

    text: str
    plain: bool


@dataclass(slots=True)
class _Reading:
    """A call that is not yet read to its end."""

    texts: dict[str, _Text]
    words: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    handed: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    arrow: str = ""
    pieces: list[tuple[str, bool]] = field(default_factory=list)  # each with whether the shell looks into it

    def end_word(self) -> None:
        if not self.pieces:
            return
        word = "".join(piece for piece, _ in self.pieces)
        self.inner += _substituted("".join(piece for piece, live in self.pieces if live))
        if self.arrow.endswith("<<<"):
            self.handed.append(word)
        elif "<<" in self.arrow:
            self._hand(self.texts.pop(word, None))  # each only once, however often its number stands there
        else:
            (self.writes if ">" in self.arrow else self.reads if self.arrow else self.words).append(word)
        self.pieces, self.arrow = [], ""

    def _hand(self, text: _Text | None) -> None:
        if text:
            self.handed.append(text.text)
            self.inner += [] if text.plain else _substituted(text.text)

    def calls(self) -> Iterator[Call]:
        self.end_word()
        if self.words or self.handed or self.reads or self.writes:
            before, program, words = _apart(tuple(self.words))
            yield Call(program, words, before, tuple(self.reads), tuple(self.writes), "\n".join(self.handed))
        for inner in self.inner:
            yield from chain.from_iterable(_lines(inner, self.texts))


def calls(command: str) -> Iterator[Call]:
    """Every call of a command line, also those within `$(…)`."""
    return chain.from_iterable(lines(command))


def lines(command: str) -> Iterator[list[Call]]:
    """The same, by lines: what is handed to one call may reach the others beside it."""
    return _lines(*_without_texts(command))


def run_by_xargs(call: Call) -> Call:
    """What a call of `xargs` calls in turn."""
    before, program, words = _apart((call.program, *call.words), _XARGS)
    return Call(program, words, before)


def _lines(command: str, texts: dict[str, _Text]) -> Iterator[list[Call]]:
    line: list[Call] = []
    now = _Reading(texts)
    for piece in _PIECE.finditer(command):
        kind = piece.lastgroup
        if kind == "end":
            line += now.calls()
            now = _Reading(texts)
            if "\n" in piece[0]:
                yield line
                line = []
        elif kind in ("plain", "quoted", "escaped", "bare"):
            now.pieces.append((piece[kind], kind in ("quoted", "bare")))
        else:
            now.pieces += [(piece["open"], True)] if kind == "open" else []
            now.end_word()
            now.arrow = piece["arrow"] or now.arrow
    yield [*line, *now.calls()]


def _substituted(text: str) -> list[str]:
    """What stands in `$(…)` or between backticks. It holds at most one of the other kind, so this comes to an end."""
    if "$(" not in text and "`" not in text:
        return []
    bare = _ESCAPED.sub("", text)
    return [*(part.partition(")")[0] for part in bare.split("$(")[1:]), *bare.split("`")[1::2]]


def _apart(words: Words, in_front: Mapping[str, str] = _IN_FRONT) -> tuple[Words, str, Words]:
    """What is in front of the program, the program, and its words; all are its words if there is none."""
    at, with_value = 0, None  # the options with a value of what was last seen in front
    while at < len(words):
        word, name = words[at], _name(words[at])
        if name == "command" and words[at + 1 : at + 2] in (("-v",), ("-V",)):
            break  # only asks where it is
        if name in in_front:
            with_value = in_front[name]
        elif with_value is not None and _OPTION.match(word):
            at += _takes_value(word, with_value)
        elif not _GIVEN.match(word):
            return words[:at], name, words[at + 1 :]
        at += 1
    return (), "", words


def _name(word: str) -> str:
    return word if "://" in word else word.rstrip("/").rpartition("/")[2]


def _takes_value(option: str, with_value: str) -> bool:
    if option.startswith("--"):
        return _LONG_WITH_VALUE.match(option) is not None
    return option[:1] == "-" and option[-1] in with_value


def _without_texts(command: str) -> tuple[str, dict[str, _Text]]:
    """Here-documents are no part of the command: their quotes and lines mean nothing to it. Numbers stand for them."""
    if "<<" not in command:
        return command, {}
    kept: list[str] = []
    texts: dict[str, _Text] = {}
    numbers = count()
    rest = iter(command.split("\n"))
    for line in rest:
        kept.append(_HERE.sub(lambda mark: f"{mark['arrow']}{next(numbers)}", line))
        for mark in _HERE.finditer(line):
            text, after = _text(rest, mark["word"])
            texts[str(len(texts))] = _Text(text, plain=bool(mark["quote"]))
            kept += after
    return "\n".join(kept), texts


def _text(rest: Iterator[str], word: str) -> tuple[str, list[str]]:
    """Up to the line that begins with the word, and what stands after it there."""
    text: list[str] = []
    for line in rest:
        after = line.strip().removeprefix(word)
        if line.strip().startswith(word) and not after[:1].isalnum():
            return "\n".join(text), ["", after]
        text.append(line)
    return "\n".join(text), []
