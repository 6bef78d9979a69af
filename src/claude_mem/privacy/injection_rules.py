"""Detection of prompt injection: text that reads like an instruction to an agent, gives dangerous advice, or imitates
the markup around injected memory.

It uses rules, not a model, because a model that reads the text can itself be manipulated. A rule is a chain of words
(`data/suspicion.toml`), each within a few characters of the previous one. The words of a text are looked up first: they
rule out nearly all chains. The others are searched in one pass per word, so the running time is linear in the length of
the text. The rules cover four languages, and the override rule ten more. The text is folded first, so that hidden
characters, accents, lookalike letters, small capitals, digits for letters, escapes and base64 do not disguise it.

Suspect text is not deleted: it is held until a person has reviewed it. A plain lie cannot be distinguished from a plain
fact by its words; origins cover that case.
"""

from __future__ import annotations

import base64
import html
import re
import tomllib
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath

from claude_mem.domain.text import strip_invisible
from claude_mem.domain.words import BETWEEN_WORDS

MAX_CHARS = 60_000  # characters that are examined, half of them from each end
MAX_BASE64_RUNS, MAX_BASE64_CHARS = 12, 4_000  # base64 runs that are decoded in one text, and the characters of each
DEFAULT_GAP = 40
MAX_BETWEEN_TAGS = 16  # characters between two tags that are only mentioned: "`<a>` and `</a>`"

# Descriptions of the rules for people.
RULE_DESCRIPTIONS = {
    "override": "It tells an agent to ignore its instructions.",
    "tags": "It imitates the markup of a system message, a tool result or injected memory.",
    "authority": "It claims to come from someone whose orders an agent must follow.",
    "memory": "It asks to be remembered or obeyed in later sessions.",
    "trigger": "It tells an agent what to say or do when it is asked about something later.",
    "secrecy": "It tells an agent to hide something from its user.",
    "procedure": "It advises running downloaded code or disabling a protection.",
    "exfiltration": "It would send data to another site, or loads an image from one.",
    "dependency": "It would install a package from a different registry.",
    "secrets": "It advises putting secrets where others can read them.",
    "hidden": "It contains text that people cannot see.",
    "split": "Several records together read like an instruction to an agent.",
    "burst": "An unusual number of memories came from the same source within ten minutes.",
}


@dataclass(frozen=True, slots=True)
class ChainWord:
    """A word of a chain.

    `whole`: no letter may come directly before it or (unless it is a stem) directly after it; this does not apply to
    scripts without spaces. `first`: it must begin a clause, as an instruction does.
    """

    text: str
    whole: bool
    stem: bool
    first: bool = False
    keys: frozenset[str] = frozenset()  # of every text with the word: see `_keys_of`


@dataclass(frozen=True, slots=True)
class WordChain:
    """Parts in a fixed order, each with alternative words; `gaps` are the maximum characters before each part."""

    parts: tuple[tuple[ChainWord, ...], ...]
    gaps: tuple[int, ...]
    # A text that contains the chain has one of these keys, one for each word of a part. Almost every text has none.
    rarest: frozenset[str] = frozenset()

    def narrowed(self, keys: Set[str]) -> WordChain | None:
        """Return the chain with the words that a text with these keys may contain; None if a part has none left."""
        parts = tuple(tuple(word for word in part if word.keys <= keys) for part in self.parts)
        return WordChain(parts, self.gaps) if all(parts) else None


def _load(name: str) -> dict[str, tuple[WordChain, ...]]:
    return {rule: tuple(map(_parse_chain, lines)) for rule, lines in _FILE[name].items()}


def _parse_chain(line: str) -> WordChain:
    """Parse a chain. A gap after the last part is the default of all parts; a gap after another part applies to it
    alone."""
    pieces = [part.partition(" @") for part in line.split(" > ")]
    usual = int(pieces[-1][2] or DEFAULT_GAP)
    parts = tuple(tuple(map(_parse_word, words.split("|"))) for words, _, _ in pieces)
    keys = [frozenset(max(word.keys, key=len) for word in words) for words in parts]
    rarest = min(keys, key=lambda part: (len(part), -min(map(len, part))))
    return WordChain(parts, tuple(int(gap or usual) for _, _, gap in pieces), rarest)


def _parse_word(source: str) -> ChainWord:
    bare = _unaccented(source.removeprefix("^"))
    text = bare.rstrip("*")
    stem = bare != text or not text[-1].isalnum() or text == "http"
    whole = text.isascii() and text[0].isalnum()
    keys = _keys_of_word(text, goes_on=stem or not whole)
    return ChainWord(text, whole=whole, stem=stem, first=source.startswith("^"), keys=keys)


ANY_KEY = ""  # the key of every text
STEM_CHARS = 4  # letters of a stem that are its key
_LETTERS = re.compile("[^\\W_\u2e80-\U0010ffff]+")  # see `_is_letter`


def _keys_of_word(text: str, *, goes_on: bool) -> frozenset[str]:
    """Return keys of every text that contains a word. `goes_on`: other letters may follow directly."""
    if not text.isascii():
        return frozenset(letter for letter in text if not letter.isascii())
    names = text.translate(BETWEEN_WORDS).split()
    if goes_on and text[-1].isalnum():
        stem = names.pop()
        names += [stem[:STEM_CHARS]] if len(stem) >= STEM_CHARS else []
    return frozenset(names or [ANY_KEY])


def _keys_of(folded: str) -> set[str]:
    """Return the keys of a folded text: its words, their first letters, and its letters outside ASCII."""
    if folded.isascii():
        words = set(folded.translate(BETWEEN_WORDS).split())
    else:
        words = {*_LETTERS.findall(folded), *"".join(_NOT_ASCII.findall(folded))}
    return {ANY_KEY, *words, *(word[:STEM_CHARS] for word in words)}


def _unaccented(text: str) -> str:
    """Return the text without accents and other combining marks."""
    return _NOT_ASCII.sub(_without_accents, text)


def _without_accents(run: re.Match[str]) -> str:
    split = unicodedata.normalize("NFKD", run[0])
    return "".join(letter for letter in split if not unicodedata.combining(letter))


_NOT_ASCII = re.compile("[^\x00-\x7f]+")


_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "suspicion.toml").read_text("utf-8"))


class ChainIndex:
    """The chains of a table, found by the keys of which every text with the chain has one."""

    def __init__(self, rules: Mapping[str, Sequence[WordChain]]) -> None:
        self._chains = [(name, chain) for name, chains in rules.items() for chain in chains]
        self._numbers: dict[str, list[int]] = {}
        for number, (_, chain) in enumerate(self._chains):
            for key in chain.rarest:
                self._numbers.setdefault(key, []).append(number)
        self._keys = frozenset(self._numbers)

    @property
    def chains(self) -> list[WordChain]:
        return [chain for _, chain in self._chains]

    def possible(self, keys: Set[str]) -> Iterator[tuple[str, list[WordChain]]]:
        """Yield each rule of which a text with these keys may match a chain, with those chains, in the table's order."""
        numbers = sorted({number for key in self._keys & keys for number in self._numbers[key]})
        narrowed = ((self._chains[number][0], self._chains[number][1].narrowed(keys)) for number in numbers)
        for name, pairs in groupby(narrowed, key=itemgetter(0)):
            if chains := [chain for _, chain in pairs if chain]:
                yield name, chains


_SPEAKS = _load("speaks")
_ADDRESSES_READER = ChainIndex(_SPEAKS)  # text that addresses its reader
_OVERRIDES = ChainIndex({"override": _SPEAKS["override"]})
_GIVES_ADVICE = ChainIndex(_load("advises"))  # advice, which matters only in text that would be injected

# Name, literals of which one occurs in every match, pattern. They are searched in folded text.
_SHAPES: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    (
        "tags",
        ("<", "&", "‹", "["),
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
        ("</", "human", "assistant"),
        re.compile(
            r"</\s{0,4}(?:observation|untrusted_context|hook_context|private|context|memory|document|data)\s{0,4}>"
            r"|^\s{0,8}(?:human|assistant)\s{0,2}:\s",
            re.M,
        ),
    ),
    (
        "procedure",
        ("curl", "wget", "iwr", "irm", "invoke-webrequest", "rm -rf"),
        re.compile(
            r"\b(?:curl|wget|iwr|irm|invoke-webrequest)\b[^|\n]{0,300}\|\s{0,4}(?:sudo\s{1,4}(?:-\w{1,4}\s{1,4})?)?"
            r"(?:(?:ba|z|da|k)?sh|python\d?|node|perl|ruby|iex)\b"
            r"|\b(?:ba)?sh\s{1,4}(?:-c\s{1,4}[\"']?\$\(|<\()\s{0,4}(?:curl|wget)\b"
            r"|\brm -rf (?:/|~|\$home)(?:\s|$)",
        ),
    ),
    ("exfiltration", ("![",), re.compile(r"!\[[^\]\n]{0,200}\]\(\s{0,4}<?(?:https?:)?//")),
    (
        "dependency",
        ("registry", "index-url", "find-links", "trusted-host", "pip config set", "goproxy=http"),
        re.compile(
            r"--(?:registry|index-url|extra-index-url|find-links|trusted-host)[ =]\S|\bnpm config set registry"
            r"|\bpip config set\b|\bgoproxy=http|\bregistry\s{0,2}=\s{0,2}http",
        ),
    ),
)
_MENTIONED = re.compile(
    r"`(?:</?[\w:-]{1,40}>|[\s.…|,/]){1,12}`"
    r"|<[\w:-]{1,40}>(?=\s{1,2}(?:xml |html )?(?:tags?|blocks?|elements?|markers?|sections?|wrappers?)\b)",
    re.I,
)
# Disabled protections. A warning not to disable them is not advice to do so.
_UNSAFE_LITERALS = (
    "unauthorized", "sslverify", "strict-ssl", "no-check-certificate", "verify", "stricthostkeychecking", "chmod",
)  # fmt: skip
_UNSAFE = re.compile(
    r"node_tls_reject_unauthorized\s{0,2}=\s{0,2}[\"']?0|http\.sslverify[ =]{1,3}false|strict-ssl[ =]{1,3}false"
    r"|--no-check-certificate|\bverify\s{0,2}=\s{0,2}false|stricthostkeychecking[ =]{1,3}no"
    r"|chmod (?:-r )?(?:0?777|a\+rwx)|\bgit \w{1,12}[^\n]{0,60}--no-verify"
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
_TAG_LETTERS = re.compile("[\U000e0020-\U000e007e]{8}")  # longer than the tag sequence of a flag emoji
_BIDI_OVERRIDE = re.compile("[\u202d\u202e]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")


_NAME = re.compile(r"[\w.@+~$%#=\[\](){}/-]{1,400}")
_ALLOWED_TO_USER = ("authority", "memory", "trigger")
# The words of these rules also occur in code (`newSession … runHooks`), so they are matched in sentences only, not in
# the parts of identifiers.
_SENTENCES_ONLY = ("memory", "trigger")


# --- checks ----------------------------------------------------------------------------------------------------------


def injection_rule(text: str, *, by_user: bool = False) -> str:
    """Return the name of the rule that forbids injecting a text; "" if none does. Requests and advice are allowed in
    text by the user."""
    return _first_rule(text, advice=True, allowed=_ALLOWED_TO_USER if by_user else ())


def addressing_rule(text: str) -> str:
    """Return the name of the rule by which a text that was only read addresses its reader; "" if none. Tags and advice
    do not count here, because files and web pages are full of both."""
    return _first_rule(text, advice=False)


def is_name(text: str) -> bool:
    """Return whether a text is an ordinary name. An attacker who can choose a name could put a sentence into it, or a
    part of one."""
    return bool(_NAME.fullmatch(text)) and not is_sentence(text) and not injection_rule(text)


MAX_NAME_WORDS = 8  # in the name of a file, a folder, a branch or a project
MAX_SPACED_WORDS = 4  # words separated by spaces in such a name
MAX_WIDE_LETTERS = 16  # letters of a script without spaces in such a name
_WIDE_LETTERS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


def is_sentence(name: str) -> bool:
    """Return whether a name is so long that it reads like a sentence. Each part of a path is checked separately."""
    return any(
        len(part.split()) > MAX_SPACED_WORDS
        or len(_SEPARATORS.sub(" ", part).split()) > MAX_NAME_WORDS
        or len(_WIDE_LETTERS.findall(part)) > MAX_WIDE_LETTERS
        for part in name.split("/")
    )


@lru_cache(maxsize=2_048)  # a turn names the same few files again and again
def neutralize_path(path: str) -> str:
    """Return the path with `…` for each part that reads like a sentence or an instruction; file extensions stay."""
    if not is_sentence(path) and not injection_rule(path):
        return path
    parts = [_only_extension(part) if is_sentence(part) or injection_rule(part) else part for part in path.split("/")]
    return "/".join(parts) if not injection_rule(" ".join(parts)) else "…"


def _only_extension(name: str) -> str:
    ending = PurePosixPath(name).suffix
    return f"…{ending}" if re.fullmatch(r"\.\w{1,8}", ending) else "…"


def imitation_rule(text: str) -> str:
    """Return "tags" if a model's answer imitates markup that neither the model nor claude-mem writes; else ""."""
    return "tags" if _SHAPES[0][2].search(_without_mentions(strip_invisible(text))) else ""


def _without_mentions(text: str) -> str:
    """Return the text without tags that are mentioned, not used: a code span that is only a tag, or "`<x>` tags". A
    pair of tags with words between them counts as used."""
    mentions = list(_MENTIONED.finditer(text)) if "<" in text else []
    previous_end = 0
    for mention in mentions:
        if "</" in mention[0] and previous_end and mention.start() - previous_end > MAX_BETWEEN_TAGS:
            return text
        previous_end = mention.end()
    return _MENTIONED.sub(" ", text) if mentions else text


def _first_rule(text: str, *, advice: bool, allowed: Sequence[str] = ()) -> str:
    text = text if len(text) <= MAX_CHARS else text[: MAX_CHARS // 2] + "\n" + text[-MAX_CHARS // 2 :]
    if is_hidden(text):
        return "hidden"
    folded = FoldedText(text)
    if _is_spelled_out(folded) or _is_override_in_digits(folded):
        return "hidden"
    for name, chains in _ADDRESSES_READER.possible(folded.keys):
        variants = folded.spoken if name in _SENTENCES_ONLY else (folded.with_spaces, folded.without_separators)
        if name not in allowed and any(_matches_chain(chain, text) for text in variants for chain in chains):
            return name
    if not advice:
        return ""
    lines = (folded.with_spaces, folded.with_lines)
    if allowed:
        return next((imitation for variant in lines if (imitation := imitation_rule(variant))), "")
    return next((found_rule for variant in lines if (found_rule := _advice_rule(variant, folded.keys))), "")


def _advice_rule(text: str, keys: Set[str]) -> str:
    dotted = text.replace("ı", "i")  # case folding keeps the Turkish letter
    without_mentions = _without_mentions(dotted)
    for name, literals, shape in _SHAPES:
        if _has_any(dotted, literals) and shape.search(without_mentions if name == "tags" else dotted):
            return name
    unsafe = _UNSAFE.finditer(dotted) if _has_any(dotted, _UNSAFE_LITERALS) else ()
    if any(not _WARNS.search(dotted, max(0, match.start() - 60), match.end() + 40) for match in unsafe):
        return "procedure"
    for name, chains in _GIVES_ADVICE.possible(keys):
        if any(_matches_chain(chain, text, negatable=name in _NEGATABLE) for chain in chains):
            return name
    return ""


def _has_any(text: str, literals: Iterable[str]) -> bool:
    return any(literal in text for literal in literals)


def is_hidden(text: str) -> bool:
    """Return whether a text has invisible letters, or letters displayed in a different order than stored."""
    if text.isascii():
        return False
    is_reordered = _BIDI_OVERRIDE.search(text) and not _RIGHT_TO_LEFT.search(text)
    return bool(is_reordered or _TAG_LETTERS.search(text) or len(_ZERO_WIDTH.findall(text)) >= 3)


def _is_spelled_out(folded: FoldedText) -> bool:
    """Return whether a text has words spelled out letter by letter, as in `i g n o r e  a l l`, to escape detection."""
    # A digit may stand before the first letter of a run or after its last one; all others are words by themselves.
    letters = [key for key in folded.keys if len(key) == 1]
    if len(letters) < MIN_SPELLED_LETTERS - 2 or sum(map(str.isalpha, letters)) < MIN_SPELLED_LETTERS - 2:
        return False
    runs = (run[0] for run in _SPACED_OUT.finditer(folded.with_spaces))
    return any(len({letter for letter in run if letter.isalpha()}) >= MIN_SPELLED_LETTERS for run in runs)


MAX_CACHED_CHARS = 600  # characters; shorter texts are cached
MIN_SPELLED_LETTERS = 8  # distinct letters in a spelled-out run


def _is_override_in_digits(folded: FoldedText) -> bool:
    """Return whether a text matches the override rule once digits are read as the letters they resemble."""
    disguised = " ".join([name for name in folded.names if _MAY_BE_LETTER.search(name)])
    if not disguised:
        return False
    keys = folded.keys | _keys_of(disguised.casefold().translate(_DIGIT_LETTERS))
    chains = [chain for _, chains in _OVERRIDES.possible(keys) for chain in chains]
    if not chains or len(_DIGIT_IN_WORD.findall(folded.with_spaces)) < MIN_DIGIT_WORDS:
        return False
    text = folded.with_spaces.translate(_DIGIT_LETTERS)
    return any(_matches_chain(chain, text) for chain in chains)


def _matches_chain(chain: WordChain, text: str, *, negatable: bool = False) -> bool:
    """Return whether all parts of a chain occur in order, each within its gap of the previous one."""
    present: list[list[ChainWord]] = []
    for part in chain.parts:
        present.append([word for word in part if word.text in text])
        if not present[-1]:
            return False
    ends: list[int] = []
    for number, words in enumerate(present):
        places = [place for word in words for place in _places(word, text)]
        if number == 0 and negatable:
            places = [place for place in places if not _NEGATED.search(text, max(0, place[0] - 24), place[0])]
        ends = sorted(end for begin, end in places if number == 0 or _near(ends, begin, chain.gaps[number]))
        if not ends:
            return False
    return True


def _near(ends: Sequence[int], begin: int, gap: int) -> bool:
    index = bisect_left(ends, begin - gap)
    return index < len(ends) and ends[index] <= begin


def _places(word: ChainWord, text: str) -> Iterator[tuple[int, int]]:
    begin = text.find(word.text)
    while begin >= 0:
        end = begin + len(word.text)
        starts_word = not word.whole or begin == 0 or not _is_letter(text[begin - 1])
        ends_word = not word.whole or word.stem or end == len(text) or not _is_letter(text[end])
        if starts_word and ends_word and (not word.first or _begins_clause(text, begin)):
            yield begin, end
        begin = text.find(word.text, end)


def _begins_clause(text: str, at: int) -> bool:
    """Return whether only punctuation, or a word that joins two clauses, comes before this position in its clause."""
    before = text[max(0, at - 40) : at].rstrip(" \"'`*_~#>([{“‘«")
    return not before or before[-1] in _CLAUSE_ENDS or bool(_JOINS.search(before))


def _is_letter(letter: str) -> bool:
    return letter.isalnum() and letter < "\u2e80"  # a Chinese character next to a Latin word is not part of that word


# --- folding ---------------------------------------------------------------------------------------------------------

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_DISGUISED = re.compile(r"[^\x20-\x7e\n\t]|&[#A-Za-z]|\\u[0-9a-fA-F]{4}|[A-Za-z0-9+/_-]{24}")
_SPACES = re.compile(r"[^\S\n]{2,}|\n+")
_BLANKS = re.compile(r"[^\S\n]{2,}")
_SEPARATORS = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
_CAMEL_CASE = re.compile(r"[a-z][A-Z]")
_MARKS = re.compile(r"[\W_]+")
_EMPHASIS = re.compile(r"[*`~]|(?<!\w)_|_(?!\w)")
_EMPHASIS_IN_WORD = re.compile(r"[*`~](?<=\w[*`~])[*`~]*+\w")
MIN_NAME_SEPARATORS = 3  # separators in a name that may be a sentence
NAME_SEPARATOR = "\n" * 64  # longer than any gap, so that no chain continues from one name to the next
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһԛԝмткнвАВЕКМНОРСТУХІЈЅαβεικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwmtkhbABEKMHOPCTYXIJSabeiknoptuxABEZHIKMNOPTYX",
)


_SMALL_CAPITALS = str.maketrans("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz")
_SMALL_CAPITAL = re.compile(f"[{''.join(map(chr, _SMALL_CAPITALS))}]")
# A word of Latin letters and of Greek or Cyrillic ones, which may look like them.
_MIXED_SCRIPTS = re.compile("[\u0370-\u052f](?:[A-Za-z]|(?<=[A-Za-z].))")
_DIGIT_LETTERS = str.maketrans("013457@$", "oieastas")  # digits and symbols used as letters: `1gn0r3`
_DIGIT_IN_WORD = re.compile(
    r"(?<![\w@$])(?=[\w@$]{0,20}[a-z])[a-z@$]{0,12}[013457@$][a-z013457@$]{1,20}(?![\w@$])", re.I
)
_MAY_BE_LETTER = re.compile("[013457@$]")
MIN_DIGIT_WORDS = 3  # words with digits as letters before a text is checked for this disguise
# Letters separated by single spaces or punctuation, at least as many as a short sentence has.
_SPACED_OUT = re.compile(r"(?<![^\W\d_])(?:[^\W\d_][ ._·-]{1,3}){12,400}[^\W\d_](?![^\W\d_])")


class FoldedText:
    """A text normalized for the search, in several variants. Most texts need none of them: their keys rule out every
    chain.
    """

    def __init__(self, text: str) -> None:
        self.bare = remove_disguises(text)

    @cached_property
    def names(self) -> dict[str, None]:
        """The distinct words with what is attached to them, in order."""
        return dict.fromkeys(self.bare.split())

    @cached_property
    def keys(self) -> set[str]:
        """The keys of all variants."""
        keys = _keys_of(self.bare.casefold())
        if parted := [name for name in self.names if _CAMEL_CASE.search(name)]:
            keys |= _keys_of(_SEPARATORS.sub(" ", " ".join(parted)).casefold())
        if _EMPHASIS_IN_WORD.search(self.bare):
            keys |= _keys_of(self._without_emphasis.casefold())
        return keys

    @cached_property
    def with_spaces(self) -> str:
        return _SPACES.sub(" ", self.bare).casefold()

    @cached_property
    def with_lines(self) -> str:
        return _SPACES.sub("\n", self.bare).casefold()

    @cached_property
    def without_separators(self) -> str:
        """The text with spaces for separators, also within names."""
        return _SEPARATORS.sub(" ", self.bare).casefold()

    @cached_property
    def spoken(self) -> tuple[str, ...]:
        """What reads as sentences: names are not split, unless one is a sentence by itself
        (`from_now_on_you_must.md`)."""
        names = (name for name in self.names if len(_MARKS.findall(name)) >= MIN_NAME_SEPARATORS)
        return (
            _SPACES.sub(" ", self._without_emphasis).casefold(),
            _BLANKS.sub(" ", self._without_emphasis).casefold(),
            (NAME_SEPARATOR + NAME_SEPARATOR.join(_MARKS.sub(" ", name) for name in names)).casefold(),
        )

    @cached_property
    def _without_emphasis(self) -> str:
        return _EMPHASIS.sub("", self.bare)


def remove_disguises(text: str) -> str:
    """Return the text without disguises (hidden characters, accents, lookalike letters, escapes), followed by the
    decoded content of its base64 runs."""
    return _without_disguises_cached(text) if len(text) <= MAX_CACHED_CHARS else _without_disguises(text)


@lru_cache(maxsize=4096)  # the sentences of a turn are compared repeatedly with each other and with what was read
def _without_disguises_cached(text: str) -> str:
    return _without_disguises(text)


def may_be_disguised(text: str) -> bool:
    """Return whether a text may contain disguised text: anything but plain ASCII without escapes and long runs."""
    return bool(_DISGUISED.search(text))


def _without_disguises(text: str) -> str:
    if not may_be_disguised(text):
        return text
    text = html.unescape(_ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), _ANSI.sub("", text)))
    bare = strip_invisible("\n".join([text, *_decode_base64(text)]))
    if bare.isascii():
        return bare
    bare = bare.translate(_SMALL_CAPITALS) if _SMALL_CAPITAL.search(bare) else bare
    return _unaccented(bare.translate(_LOOKALIKES) if _MIXED_SCRIPTS.search(bare) else bare)


def _decode_base64(text: str) -> Iterator[str]:
    """Yield the decoded text of base64 runs, at each of four offsets: preceding text may look like part of the run."""
    for match, _ in zip(_BASE64.finditer(text), range(MAX_BASE64_RUNS), strict=False):
        run = match[0][:MAX_BASE64_CHARS].replace("-", "+").replace("_", "/").rstrip("=")
        for offset in range(4):
            part = run[offset : len(run) - ((len(run) - offset) % 4 == 1)]  # a single letter encodes no whole byte
            raw = base64.b64decode(part + "=" * (-len(part) % 4))
            content = raw.decode("utf-8", "replace") if b" " in raw else ""
            if content and sum(map(str.isprintable, content)) - content.count("\ufffd") > 0.8 * len(content):
                yield content
