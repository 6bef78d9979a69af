"""A shell's command line, taken apart far enough to tell which program is given which words.

No shell is imitated: variables, aliases and loops stay as they are written. One pass over the text, so that its time
grows with the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# A separator, or a piece of a word: quoted, escaped or bare. A quote that is never closed ends with the text.
_PIECE = re.compile(
    r"(?P<space>[ \t\r]+|\\\r?\n)|(?P<end>[;&|\n()]+)|(?P<arrow>[0-9&]?>{1,2}[|&]?|<{1,3}-?)|'(?P<plain>[^']*+)'?|"
    r'"(?P<quoted>(?:[^"\\]|\\.)*+)"?|\\(?P<escaped>.)|(?P<bare>[^\s\\;&|()<>"\']++|.)',
    re.DOTALL,
)
_HERE = re.compile(r"<<-?[ \t]{0,4}\\?[\"']?(?P<word>[A-Za-z_][\w.\-]{0,64})")
_INNER = re.compile(r"\$\(|`")
_GIVEN = re.compile(r"[A-Za-z_]\w{0,128}\+?=")
# They begin no command of their own: the program comes after them.
_BEFORE = frozenset({
    "sudo", "doas", "env", "time", "nice", "nohup", "command", "builtin", "exec", "stdbuf", "timeout", "npx", "if",
    "then", "elif", "else", "do", "while", "until", "!", "{", "}", "fi", "done",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One program and what it is given. `reads` and `writes` are files that the shell opens for it: `< a > b`."""

    program: str  # without its folder; "" if there are only variables
    words: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    text: str = ""  # of a here-document


@dataclass(slots=True)
class _Reading:
    """A call that is not yet read to its end."""

    words: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    arrow: str = ""
    pieces: list[str] = field(default_factory=list)

    def end_word(self, texts: Iterator[str]) -> None:
        if not self.pieces:
            return
        word = "".join(self.pieces)
        if self.arrow.startswith("<<"):
            self.texts.append(word if self.arrow == "<<<" else next(texts, ""))
        else:
            (self.writes if ">" in self.arrow else self.reads if self.arrow else self.words).append(word)
        self.pieces, self.arrow = [], ""


def calls(command: str) -> Iterator[Call]:
    """Every call of a command line, also those within `$(…)`."""
    command, found = _without_texts(command)
    texts = iter(found)
    now = _Reading()
    for piece in _PIECE.finditer(command):
        kind = piece.lastgroup
        if kind in ("space", "arrow", "end"):
            now.end_word(texts)
            now.arrow = piece["arrow"] or now.arrow
            if kind == "end":
                yield from _called(now)
                now = _Reading()
        else:
            now.pieces.append(piece[kind or 0])
    now.end_word(texts)
    yield from _called(now)


def _called(read: _Reading) -> Iterator[Call]:
    if not (read.words or read.texts or read.reads or read.writes):
        return
    words = [_INNER.split(word, maxsplit=1)[0] for word in read.words]
    at = next((at for at, word in enumerate(words) if not _comes_before(word)), len(words))
    program = words[at] if at < len(words) else next((word for word in reversed(words) if word in _BEFORE), "")
    given = words[at + 1 :] if at < len(words) else words
    name = program.rstrip("/").rpartition("/")[2]
    yield Call(name, tuple(given), tuple(read.reads), tuple(read.writes), "\n".join(read.texts))
    for word in (*read.words, *read.reads, *read.writes):
        for inner in _INNER.split(word)[1:]:
            yield from calls(inner)  # which holds no other


def _comes_before(word: str) -> bool:
    return word in _BEFORE or word.startswith("-") or _GIVEN.match(word) is not None


def _without_texts(command: str) -> tuple[str, list[str]]:
    """Here-documents are no part of the command: their quotes and lines mean nothing to it."""
    if "<<" not in command:
        return command, []
    kept: list[str] = []
    texts: list[list[str]] = []
    ends: list[str] = []
    for line in command.split("\n"):
        if not ends:
            kept.append(line)
            ends = [found["word"] for found in _HERE.finditer(line)]
            texts += [[] for _ in ends]
        elif after := _ended(line.strip(), ends[0]):
            kept.append(after)
            del ends[0]
        else:
            texts[-len(ends)].append(line)
    return "\n".join(kept), ["\n".join(lines) for lines in texts]


def _ended(line: str, word: str) -> str:
    """What stands after the word that ends it (at least a newline); "" if it goes on."""
    rest = line.removeprefix(word)
    return "" if not line.startswith(word) or rest[:1].isalnum() else f"\n{rest}"
