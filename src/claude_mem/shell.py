"""A parser for shell command lines that finds out which program is called with which arguments.

It does not emulate a shell: variables, aliases and loops are left as written, and text that cannot be parsed is read as
far as possible. The running time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count

# A separator, or a piece of a word: quoted, escaped or bare. A quote that is never closed is read both ways: as
# extending to the end of the text, and as if it were absent.
_PIECE = re.compile(
    r"(?P<space>[ \t\r\f\v]+|\\\r?\n|(?<![^\s;&|()`])#[^\n]*+)|(?P<arrow>\d?(?:<<<|<<-?|[<>]{1,2}[|&]?)|&>{1,2})"
    r"|(?P<end>[;&|\n()`]+|\$\()|'(?P<plain>[^']*+)'|\"(?P<quoted>(?:[^\"\\]|\\.)*+)\"|\\(?P<escaped>.)"
    r"|(?P<bare>(?:[^\s\\;&|()`<>\"'$]|\$(?!\())++)|[\"'](?=(?P<open>.*+))|.",
    re.DOTALL,
)
_HERE = re.compile(r"(?<!<)(?P<arrow><<-?)[ \t]{0,4}(?P<quote>[\\\"']?)(?P<word>[A-Za-z_][\w.\-]{0,64})[\"']?")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w{1,128}\+?=")
# Words that precede the actual program, each with its one-letter options that take a value.
_PREFIXES = {
    **dict.fromkeys((
        "command", "builtin", "nohup", "setsid", "unbuffer", "torsocks", "busybox", "if", "elif", "while", "until",
        "then", "else", "do", "!", "{", "coproc",
    ), ""),
    "sudo": "CDghpRrTtUu", "doas": "Cu", "env": "Cu", "time": "fo", "exec": "a", "nice": "n", "ionice": "cnpPu",
    "stdbuf": "eio", "timeout": "ks", "gtimeout": "ks", "caffeinate": "tw", "proxychains": "f", "proxychains4": "f",
    "strace": "abeEIoOpPsSuUX", "npx": "p",
}  # fmt: skip
_XARGS_PREFIXES = {**_PREFIXES, "xargs": "adEILnPs"}
_LONG_WITH_VALUE = re.compile(r"--(?:user|group|chdir|unset|signal|kill-after|adjustment|package)\Z")
_OPTION = re.compile(r"-|\d+(?:\.\d+)?[smhd]?\Z")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One program with its arguments. `reads` and `writes` are files that the shell opens for it: `< a > b`."""

    program: str  # without its directory, except for a URL; "" if there is no program, only variables
    words: Words
    before: Words = ()  # words before the program: variables, `sudo -u me`
    reads: Words = ()
    writes: Words = ()
    text: str = ""  # content of here-documents and here-strings


@dataclass(frozen=True, slots=True)
class _HereDocument:
    """A here-document. `plain`: its delimiter is quoted, so nothing is substituted in it."""

    text: str
    plain: bool


@dataclass(slots=True)
class _CallParser:
    """A call that is still being parsed."""

    texts: dict[str, _HereDocument]
    words: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    input_texts: list[str] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)
    arrow: str = ""
    pieces: list[tuple[str, bool]] = field(default_factory=list)  # text, and whether the shell substitutes in it

    def end_word(self) -> None:
        if not self.pieces:
            return
        word = "".join(piece for piece, _ in self.pieces)
        self.substitutions += _substitutions("".join(piece for piece, live in self.pieces if live))
        if self.arrow.endswith("<<<"):
            self.input_texts.append(word)
        elif "<<" in self.arrow:
            self._add_text(self.texts.pop(word, None))  # used only once, even if its number occurs several times
        else:
            (self.writes if ">" in self.arrow else self.reads if self.arrow else self.words).append(word)
        self.pieces, self.arrow = [], ""

    def _add_text(self, text: _HereDocument | None) -> None:
        if text:
            self.input_texts.append(text.text)
            self.substitutions += [] if text.plain else _substitutions(text.text)

    def finish(self) -> Iterator[Call]:
        self.end_word()
        if self.words or self.input_texts or self.reads or self.writes:
            before, program, words = _split_call(tuple(self.words))
            yield Call(program, words, before, tuple(self.reads), tuple(self.writes), "\n".join(self.input_texts))
        for inner in self.substitutions:
            yield from chain.from_iterable(_lines(inner, self.texts))


def calls(command: str) -> Iterator[Call]:
    """Yield every call of a command line, including those within `$(…)`."""
    return chain.from_iterable(lines(command))


def lines(command: str) -> Iterator[list[Call]]:
    """Yield the calls of a command line grouped by line: text passed to one call may reach the others in its line."""
    return _lines(*_extract_here_documents(command))


def run_by_xargs(call: Call) -> Call:
    """Return the call that a call of `xargs` runs."""
    before, program, words = _split_call((call.program, *call.words), _XARGS_PREFIXES)
    return Call(program, words, before)


def _lines(command: str, texts: dict[str, _HereDocument]) -> Iterator[list[Call]]:
    line: list[Call] = []
    parser = _CallParser(texts)
    for piece in _PIECE.finditer(command):
        kind = piece.lastgroup
        if kind == "end":
            line += parser.finish()
            parser = _CallParser(texts)
            if "\n" in piece[0]:
                yield line
                line = []
        elif kind in ("plain", "quoted", "escaped", "bare"):
            parser.pieces.append((piece[kind], kind in ("quoted", "bare")))
        else:
            parser.pieces += [(piece["open"], True)] if kind == "open" else []
            parser.end_word()
            parser.arrow = piece["arrow"] or parser.arrow
    yield [*line, *parser.finish()]


def _substitutions(text: str) -> list[str]:
    """Return the commands in `$(…)` and between backticks. Each contains at most one of the other kind, so this
    terminates."""
    if "$(" not in text and "`" not in text:
        return []
    bare = _ESCAPED.sub("", text)
    return [*(part.partition(")")[0] for part in bare.split("$(")[1:]), *bare.split("`")[1::2]]


def _split_call(words: Words, prefixes: Mapping[str, str] = _PREFIXES) -> tuple[Words, str, Words]:
    """Split words into those before the program, the program, and its arguments; without a program, all words are
    arguments."""
    at, with_value = 0, None  # `with_value`: the options of the last preceding word that take a value
    while at < len(words):
        word, name = words[at], _program_name(words[at])
        if name == "command" and words[at + 1 : at + 2] in (("-v",), ("-V",)):
            break  # only looks up where the program is
        if name in prefixes:
            with_value = prefixes[name]
        elif with_value is not None and _OPTION.match(word):
            at += _takes_value(word, with_value)
        elif not _ASSIGNMENT.match(word):
            return words[:at], name, words[at + 1 :]
        at += 1
    return (), "", words


def _program_name(word: str) -> str:
    return word if "://" in word else word.rstrip("/").rpartition("/")[2]


def _takes_value(option: str, with_value: str) -> bool:
    if option.startswith("--"):
        return _LONG_WITH_VALUE.match(option) is not None
    return option[:1] == "-" and option[-1] in with_value


def _extract_here_documents(command: str) -> tuple[str, dict[str, _HereDocument]]:
    """Replace here-documents by numbers: their quotes and lines must not be parsed as part of the command."""
    if "<<" not in command:
        return command, {}
    new_lines: list[str] = []
    texts: dict[str, _HereDocument] = {}
    numbers = count()
    remaining = iter(command.split("\n"))
    for line in remaining:
        new_lines.append(_HERE.sub(lambda mark: f"{mark['arrow']}{next(numbers)}", line))
        for mark in _HERE.finditer(line):
            text, after = _read_here_document(remaining, mark["word"])
            texts[str(len(texts))] = _HereDocument(text, plain=bool(mark["quote"]))
            new_lines += after
    return "\n".join(new_lines), texts


def _read_here_document(remaining: Iterator[str], delimiter: str) -> tuple[str, list[str]]:
    """Return the lines up to the one that begins with the delimiter, and the rest of that line."""
    text: list[str] = []
    for line in remaining:
        after = line.strip().removeprefix(delimiter)
        if line.strip().startswith(delimiter) and not after[:1].isalnum():
            return "\n".join(text), ["", after]
        text.append(line)
    return "\n".join(text), []
