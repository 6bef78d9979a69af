"""Does a text read like an instruction to an agent, like dangerous advice, or like an attempt to leave its fence?

Rules, no model: a judge that reads can be talked to. A rule is a chain of words (`data/suspicion.toml`), each within a
few characters of the one before; looking for them takes one pass a word, so the time grows with the text and with
nothing else. Four languages, and the override in ten more. Before that the text is folded: hidden characters, accents,
look-alike letters, small capitals, figures for letters, escapes and base64 are no disguise.

What is found is not deleted: it is held until a person has looked at it. The words of a plain lie can't be told from
those of a plain fact; that is what origins are for.
"""

from __future__ import annotations

import base64
import html
import re
import tomllib
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from claude_mem.text import plain

MOST = 60_000  # characters that are looked at, half of them from each end
RUNS, RUN = 12, 4_000  # of base64 in one text, and how much of each
GAP = 40
MOST_BETWEEN = 16  # characters between two tags of which one only speaks: "`<a>` and `</a>`"

# What each rule is called, in words for people.
WORDS = {
    "override": "It tells an agent to ignore its instructions.",
    "tags": "It imitates the marks of a system, a tool or of memory itself.",
    "authority": "It claims to speak for someone whose orders an agent has to follow.",
    "memory": "It asks to be remembered, or to be obeyed in later sessions.",
    "trigger": "It tells an agent what to say or do when it is asked about something later.",
    "secrecy": "It tells an agent to keep something from its user.",
    "procedure": "It advises to run code from elsewhere or to switch protections off.",
    "exfiltration": "It would send something away, or loads an image from elsewhere.",
    "dependency": "It would take a package from another place.",
    "secrets": "It advises to put secrets where others can read them.",
    "hidden": "It has text in it that people can't see.",
    "split": "Several records together read like an instruction to an agent.",
    "burst": "An unusual number of memories came from the same source within ten minutes.",
}


@dataclass(frozen=True, slots=True)
class Word:
    """`whole`: no other letter may stand right before it, or (unless it is a stem) right after it. A script without
    spaces has no such words. `first`: it begins a clause, as an instruction does and the end of a sentence does not."""

    text: str
    whole: bool
    stem: bool
    first: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """Words in this order, of each part any one; `gaps` are the most characters between a part and the one before."""

    parts: tuple[tuple[Word, ...], ...]
    gaps: tuple[int, ...]
    rarest: tuple[
        str, ...
    ]  # the words of its smallest part: almost always none is there, and nothing more is looked for


def _load(name: str) -> dict[str, tuple[Chain, ...]]:
    return {rule: tuple(map(_chain, lines)) for rule, lines in _FILE[name].items()}


def _chain(line: str) -> Chain:
    """A gap at the end of a chain is that of all its parts; one at a part before is of that part alone."""
    pieces = [part.partition(" @") for part in line.split(" > ")]
    usual = int(pieces[-1][2] or GAP)
    parts = tuple(tuple(map(_word, words.split("|"))) for words, _, _ in pieces)
    rarest = min(parts, key=lambda words: (len(words), -min(len(word.text) for word in words)))
    return Chain(parts, tuple(int(gap or usual) for _, _, gap in pieces), tuple(word.text for word in rarest))


def _word(given: str) -> Word:
    bare = _unaccented(given.removeprefix("^"))
    text = bare.rstrip("*")
    stem = bare != text or not text[-1].isalnum() or text == "http"
    return Word(text, whole=text.isascii() and text[0].isalnum(), stem=stem, first=given.startswith("^"))


def _unaccented(text: str) -> str:
    """The text as letters alone: accents, and the parts that compose a letter, count for nothing."""
    return _NOT_ASCII.sub(_without_accents, text)


def _without_accents(run: re.Match[str]) -> str:
    split = unicodedata.normalize("NFKD", run[0])
    return "".join(letter for letter in split if not unicodedata.combining(letter))


_NOT_ASCII = re.compile("[^\x00-\x7f]+")


_FILE = tomllib.loads((Path(__file__).parent / "data" / "suspicion.toml").read_text("utf-8"))
_SPEAKS = _load("speaks")  # to whoever reads it
_ADVISES = _load("advises")  # this matters only in words that would be told

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "tags",
        re.compile(
            r"(?:<|&lt;|‹)\s{0,4}/?\s{0,4}(?:system[-_ ]?reminder|system|claude-mem[\w-]{0,20}"
            r"|tool_(?:result|use|response)s?|function_(?:result|call)s?|antml:\w{1,30}|assistant|instructions"
            r"|important_instructions)\b[^<>\n]{0,100}(?:>|&gt;)"
            r"|<\|(?:im_start|im_end|system|user|assistant|endoftext|end)|\[/?inst\]|<</?sys>>",
            re.I,
        ),
    ),
    (
        "tags",
        re.compile(
            r"</\s{0,4}(?:observation|untrusted_context|hook_context|private|context|memory|document|data)\s{0,4}>"
            r"|^\s{0,8}(?:human|assistant)\s{0,2}:\s",
            re.I | re.M,
        ),
    ),
    (
        "procedure",
        re.compile(
            r"\b(?:curl|wget|iwr|irm|invoke-webrequest)\b[^|\n]{0,300}\|\s{0,4}(?:sudo\s{1,4}(?:-\w{1,4}\s{1,4})?)?"
            r"(?:(?:ba|z|da|k)?sh|python\d?|node|perl|ruby|iex)\b"
            r"|\b(?:ba)?sh\s{1,4}(?:-c\s{1,4}[\"']?\$\(|<\()\s{0,4}(?:curl|wget)\b"
            r"|\brm -rf (?:/|~|\$home)(?:\s|$)",
            re.I,
        ),
    ),
    ("exfiltration", re.compile(r"!\[[^\]\n]{0,200}\]\(\s{0,4}<?(?:https?:)?//", re.I)),
    (
        "dependency",
        re.compile(
            r"--(?:registry|index-url|extra-index-url|find-links|trusted-host)[ =]\S|\bnpm config set registry"
            r"|\bpip config set\b|\bgoproxy=http|\bregistry\s{0,2}=\s{0,2}http",
            re.I,
        ),
    ),
)
_MENTIONED = re.compile(
    r"`(?:</?[\w:-]{1,40}>|[\s.…|,/]){1,12}`"
    r"|<[\w:-]{1,40}>(?=\s{1,2}(?:xml |html )?(?:tags?|blocks?|elements?|markers?|sections?|wrappers?)\b)",
    re.I,
)
# Protections that are switched off; to say that one should not is no advice to do so.
_UNSAFE = re.compile(
    r"node_tls_reject_unauthorized\s{0,2}=\s{0,2}[\"']?0|http\.sslverify[ =]{1,3}false|strict-ssl[ =]{1,3}false"
    r"|--no-check-certificate|\bverify\s{0,2}=\s{0,2}false|stricthostkeychecking[ =]{1,3}no"
    r"|chmod (?:-r )?(?:0?777|a\+rwx)|\bgit \w{1,12}[^\n]{0,60}--no-verify",
    re.I,
)
_WARNS = re.compile(
    r"\b(?:never|not|don't|avoid\w*|remov\w+|without|stop\w*|forbid\w*|refus\w+|vulnerab\w*|unsafe|insecure|instead of"
    r"|because|warn\w*|disabled?|found|reject\w*|no longer|replac\w+)\b",
    re.I,
)
_NEGATED = re.compile(
    r"\b(?:never|not|don't|avoid|nicht|nie|niemals|kein\w?|jamais|ne|pas)\b|不要|切勿|禁止|不得|勿", re.I
)
_NEGATABLE = ("secrets", "exfiltration")

_CLAUSE_ENDS = ".!?:;,\n—–-…|/\\)]}>"
_JOINS = re.compile(r"(?:^|[^\w'])(?:and|so|then|please|but|also|that|und|et|dann|alors)$")

_ZERO_WIDTH = re.compile("(?<=[A-Za-z ])[\u200b-\u200d\u2060-\u2064\ufeff]{1,8}(?=[A-Za-z ])")
_TAG_LETTERS = re.compile("[\U000e0020-\U000e007e]{8}")  # more than the flag of a country has
_TURNED = re.compile("[\u202d\u202e]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")


_NAME = re.compile(r"[\w.@+~$%#=\[\](){}/-]{1,400}")
_OF_USER = ("authority", "memory", "trigger")
# Their words are also those of code (`newSession … runHooks`): only sentences count, not what names are made of.
_OF_SENTENCES = ("memory", "trigger")


# --- asking ----------------------------------------------------------------------------------------------------------


def rule(text: str, *, by_user: bool = False) -> str:
    """The rule by which a text must not be told unasked; "" if none. Wishes and advice are the user's to give."""
    return _first(text, advice=True, but=_OF_USER if by_user else ())


def addresses(text: str) -> str:
    """The rule by which a text that was only read speaks to whoever reads it. Tags and advice count for nothing here:
    files and pages are full of both."""
    return _first(text, advice=False)


def is_name(text: str) -> bool:
    """Is it called as files are? Whoever may give names could write a sentence, or a part of one."""
    return bool(_NAME.fullmatch(text)) and not is_sentence(text) and not rule(text)


MOST_WORDS = 8  # in the name of a file, a folder, a branch or a project
MOST_SPACED = 4  # the same with spaces between them
MOST_WIDE = 16  # letters of a script without spaces
_WIDE_LETTERS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


def is_sentence(name: str) -> bool:
    """Does a name say more than names do? Each part of a path counts by itself."""
    return any(
        len(part.split()) > MOST_SPACED
        or len(_SEPARATORS.sub(" ", part).split()) > MOST_WORDS
        or len(_WIDE_LETTERS.findall(part)) > MOST_WIDE
        for part in name.split("/")
    )


@lru_cache(maxsize=2_048)  # a turn names the same few files again and again
def neutral(path: str) -> str:
    """The path with `…` in place of each part that reads like a sentence or an instruction; its ending stays."""
    if not is_sentence(path) and not rule(path):
        return path
    parts = [_without_stem(part) if is_sentence(part) or rule(part) else part for part in path.split("/")]
    return "/".join(parts) if not rule(" ".join(parts)) else "…"


def _without_stem(name: str) -> str:
    ending = PurePosixPath(name).suffix
    return f"…{ending}" if re.fullmatch(r"\.\w{1,8}", ending) else "…"


def imitates(text: str) -> str:
    """Does a model's answer have marks in it that are neither its own nor ours?"""
    return "tags" if _SHAPES[0][1].search(_without_mentions(plain(text))) else ""


def _without_mentions(text: str) -> str:
    """The text without tags that are spoken of, not used: one that is all of a piece of code, or "`<x>` tags". A pair
    with words between its tags is used."""
    mentions = list(_MENTIONED.finditer(text)) if "<" in text else []
    opened = 0
    for mention in mentions:
        if "</" in mention[0] and opened and mention.start() - opened > MOST_BETWEEN:
            return text
        opened = mention.end()
    return _MENTIONED.sub(" ", text) if mentions else text


def _first(text: str, *, advice: bool, but: Sequence[str] = ()) -> str:
    text = text if len(text) <= MOST else text[: MOST // 2] + "\n" + text[-MOST // 2 :]
    if is_hidden(text):
        return "hidden"
    shown = _folded(text)
    if _is_spelled_out(shown.spaced) or _is_in_figures(shown.spaced):
        return "hidden"
    for name in (name for name in _SPEAKS if name not in but):
        variants = shown.spoken if name in _OF_SENTENCES else (shown.spaced, shown.parted)
        if any(_has(variant, name, _SPEAKS) for variant in variants):
            return name
    lines = (shown.spaced, shown.lined)
    if but:
        return next((imitation for variant in lines if (imitation := imitates(variant))), "")
    return next((found for variant in lines if (found := _advice(variant))), "") if advice else ""


def _advice(text: str) -> str:
    shown = _without_mentions(text)
    for name, shape in _SHAPES:
        if shape.search(shown if name == "tags" else text):
            return name
    if any(not _WARNS.search(text, max(0, found.start() - 60), found.end() + 40) for found in _UNSAFE.finditer(text)):
        return "procedure"
    return next((name for name in _ADVISES if _has(text, name, _ADVISES)), "")


def is_hidden(text: str) -> bool:
    """Letters that no one sees, or that are shown in another order than they stand."""
    if text.isascii():
        return False
    turned = _TURNED.search(text) and not _RIGHT_TO_LEFT.search(text)
    return bool(turned or _TAG_LETTERS.search(text) or len(_ZERO_WIDTH.findall(text)) >= 3)


def _is_spelled_out(text: str) -> bool:
    """`i g n o r e  a l l`: no one writes a sentence so who wants it to be found."""
    runs = (run[0] for run in _SPACED_OUT.finditer(text))
    return any(len({letter for letter in run if letter.isalpha()}) >= LEAST_LETTERS for run in runs)


SENTENCE = 600  # characters
LEAST_LETTERS = 8  # different ones, in letters that are spelled out


def _is_in_figures(text: str) -> bool:
    """Is it an override once figures are read as the letters that they look like?"""
    if len(_FIGURE_IN_WORD.findall(text)) < LEAST_FIGURES:
        return False
    return _has(text.translate(_FIGURES), "override", _SPEAKS)


def _has(text: str, name: str, rules: dict[str, tuple[Chain, ...]]) -> bool:
    return any(_fits(chain, text, negatable=name in _NEGATABLE) for chain in rules[name])


def _fits(chain: Chain, text: str, *, negatable: bool) -> bool:
    """Every part in its order, each near the one before."""
    for word in chain.rarest:
        if word in text:
            break
    else:
        return False
    there: list[list[Word]] = []
    for part in chain.parts:
        there.append([word for word in part if word.text in text])
        if not there[-1]:
            return False
    ends: list[int] = []
    for number, words in enumerate(there):
        found = [place for word in words for place in _places(word, text)]
        if number == 0 and negatable:
            found = [place for place in found if not _NEGATED.search(text, max(0, place[0] - 24), place[0])]
        ends = sorted(end for begin, end in found if number == 0 or _near(ends, begin, chain.gaps[number]))
        if not ends:
            return False
    return True


def _near(ends: Sequence[int], begin: int, gap: int) -> bool:
    index = bisect_left(ends, begin - gap)
    return index < len(ends) and ends[index] <= begin


def _places(word: Word, text: str) -> Iterator[tuple[int, int]]:
    begin = text.find(word.text)
    while begin >= 0:
        end = begin + len(word.text)
        left = not word.whole or begin == 0 or not _is_letter(text[begin - 1])
        right = not word.whole or word.stem or end == len(text) or not _is_letter(text[end])
        if left and right and (not word.first or _begins_clause(text, begin)):
            yield begin, end
        begin = text.find(word.text, end)


def _begins_clause(text: str, at: int) -> bool:
    """Is nothing before it in its clause but marks, or a word that joins two clauses?"""
    before = text[max(0, at - 40) : at].rstrip(" \"'`*_~#>([{“‘«")
    return not before or before[-1] in _CLAUSE_ENDS or bool(_JOINS.search(before))


def _is_letter(letter: str) -> bool:
    return letter.isalnum() and letter < "\u2e80"  # a Chinese character next to a Latin word is no part of it


# --- folding ---------------------------------------------------------------------------------------------------------

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_DISGUISED = re.compile(r"[^\x20-\x7e\n\t]|&[#A-Za-z]|\\u[0-9a-fA-F]{4}|[A-Za-z0-9+/_-]{24}")
_SPACES = re.compile(r"[^\S\n]{2,}|\n+")
_BLANKS = re.compile(r"[^\S\n]{2,}")
_SEPARATORS = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
_MARKS = re.compile(r"[\W_]+")
_EMPHASIS = re.compile(r"[*`~]|(?<!\w)_|_(?!\w)")
LEAST_MARKS = 3  # in a name that may be a sentence
BETWEEN = "\n" * 64  # more than any gap: no chain goes on from one name to the next
_ALIKE = str.maketrans(
    "аеорсухіјѕԁһԛԝмткнвАВЕКМНОРСТУХІЈЅαβεικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwmtkhbABEKMHOPCTYXIJSabeiknoptuxABEZHIKMNOPTYX",
)


_SMALL_CAPITALS = str.maketrans("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz")
_FIGURES = str.maketrans("013457@$", "oieastas")  # in place of letters: `1gn0r3`
_FIGURE_IN_WORD = re.compile(
    r"(?<![\w@$])(?=[\w@$]{0,20}[a-z])[a-z@$]{0,12}[013457@$][a-z013457@$]{1,20}(?![\w@$])", re.I
)
LEAST_FIGURES = 3  # words with figures in place of letters, in a text that may be disguised so
# Letters with a space or a mark between each two: as many as a sentence has.
_SPACED_OUT = re.compile(r"(?<![^\W\d_])(?:[^\W\d_][ ._·-]{1,3}){12,400}[^\W\d_](?![^\W\d_])")


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as its words are looked for. `lined` keeps the ends of lines, `parted` takes every mark between words for
    a space, also within a name; `spoken` is what reads as sentences: names of code are not taken apart in it, unless
    one of them is a sentence by itself (`from_now_on_you_must.md`)."""

    spaced: str
    lined: str
    parted: str
    spoken: tuple[str, ...]


def _folded(text: str) -> Folded:
    bare = bare_text(text)
    unmarked = _EMPHASIS.sub("", bare)
    names = [_MARKS.sub(" ", name) for name in bare.split() if len(_MARKS.findall(name)) >= LEAST_MARKS]
    return Folded(
        spaced=_SPACES.sub(" ", bare).casefold(),
        lined=_SPACES.sub("\n", bare).casefold(),
        parted=_SEPARATORS.sub(" ", bare).casefold(),
        spoken=(
            _SPACES.sub(" ", unmarked).casefold(),
            _BLANKS.sub(" ", unmarked).casefold(),
            (BETWEEN + BETWEEN.join(names)).casefold(),
        ),
    )


def bare_text(text: str) -> str:
    """The text without disguises: hidden characters, accents, look-alike letters, escapes; what stands in it as base64
    comes after it."""
    return _bare_sentence(text) if len(text) <= SENTENCE else _bare(text)


@lru_cache(maxsize=4096)  # a turn's sentences are compared with each other and with what was read, again and again
def _bare_sentence(text: str) -> str:
    return _bare(text)


def may_be_disguised(text: str) -> bool:
    """Could there be more in a text than its letters say? Not in plain ASCII without escapes and long runs."""
    return bool(_DISGUISED.search(text))


def _bare(text: str) -> str:
    if not may_be_disguised(text):
        return text
    text = html.unescape(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), _ANSI.sub("", text)))
    bare = plain("\n".join([text, *_decoded(text)]))
    if bare.isascii():
        return bare
    bare = bare.translate(_SMALL_CAPITALS)
    return _unaccented(bare.translate(_ALIKE) if _mixed(bare) else bare)


def _mixed(text: str) -> bool:
    """Latin letters and others that look like them in one word."""
    return bool(re.search("[A-Za-z][\u0370-\u04ff\u0500-\u052f]|[\u0370-\u04ff\u0500-\u052f][A-Za-z]", text))


def _decoded(text: str) -> Iterator[str]:
    """What stands in it as base64, wherever that begins: what comes before may look like a part of it."""
    for found, _ in zip(_BASE64.finditer(text), range(RUNS), strict=False):
        run = found[0][:RUN].replace("-", "+").replace("_", "/").rstrip("=")
        for skipped in range(4):
            part = run[skipped : len(run) - ((len(run) - skipped) % 4 == 1)]  # a single letter says nothing
            raw = base64.b64decode(part + "=" * (-len(part) % 4))
            said = raw.decode("utf-8", "replace")
            if " " in said and sum(map(str.isprintable, said)) - said.count("\ufffd") > 0.8 * len(said):
                yield said
