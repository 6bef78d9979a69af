"""Detection of repeated and of pasted text: which words are a person's own, and which come from elsewhere.

Two texts that share a run of five words have a common source, so a sentence counts as repeated if such a run occurs in
the source and not in text that was known before. A shorter sentence counts if it is repeated as a whole; a reworded one
if most of its words occur in one sentence of the source, or if it has a name that only the source has. A thoroughly
reworded sentence is not detected: that is the limit of comparing words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from claude_mem.domain.words import BETWEEN_WORDS, STOP_WORDS
from claude_mem.privacy import injection_rules

RUN_WORDS = 5  # consecutive words that count as repeated
LONG_RUN_WORDS = 7  # the same for texts that are mostly our own
MIN_WORDS = 3  # the fewest words that are compared
MIN_SHARE = 0.66  # share of a sentence's content words that must occur in one sentence of the source
MAX_CHARS = 400_000  # characters; a longer text is not compared and counts as someone else's

# In a script without spaces each letter counts as a word.
_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f"
_WORD = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+")
_PUNCTUATION = "`'\"()[]{}<>,;:.!?*"
_ESCAPED = re.compile(r"\\[nrtbf\"\\/]")
_SENTENCES = re.compile(r"[.!?。！？]{1,8}(?=\s|$)|[\n\r|]+|(?<=[。！？])")
_NAME = re.compile(r"[A-Za-z0-9][\w.@:/-]*[A-Za-z0-9]")
_TICKET = re.compile(r"[a-z]{2,6}-\d{1,6}|[0-9a-f]{7,40}")
_PROSE = re.compile(
    rf"(?<![^\W\d_])[^\W\d_]{{2,}}+(?:[ ,;:'’()\n-]{{1,3}}+[^\W\d_]{{2,}}+){{{MIN_WORDS - 1},}}"
    rf"|[{_WIDE}]{{4,}}|(?![\x00-\x7f])[^\W\d_]{{12,}}"
)
# A value of an answer in JSON, or a whole line of plain text.
_VALUE = re.compile(r'"((?:[^"\\\n]|\\.){10,2000}+)"|^([^"\n]{10,2000}+)$', re.MULTILINE)
_STATED = re.compile(r"[^\W\d_]{3,}")
_ENDINGS = re.compile(r"(?:ings?|ed|es|s|ly)$")


def output_texts(output: Any) -> Iterator[str]:
    """Yield the texts of a tool's output; keys are included only if they have several words."""
    if isinstance(output, str):
        yield output
    elif isinstance(output, dict):
        for key, item in output.items():
            yield from (str(key),) if len(folded_words(str(key))) >= MIN_WORDS else ()
            yield from output_texts(item)
    elif isinstance(output, list):
        for item in output:
            yield from output_texts(item)


def folded_words(text: str) -> list[str]:
    """Return the words of a text in the form in which they are compared."""
    return _words(_folded(text))


def sentence_words(text: str) -> list[str]:
    """Return the words of a written sentence. A path counts as one word here, because naming a file does not repeat
    it."""
    return _sentence_words(_folded(text))


def _folded(text: str) -> str:
    bare = _ESCAPED.sub(" ", text) if "\\" in text else text
    return injection_rules.remove_disguises(bare).casefold()


def _words(folded: str) -> list[str]:
    return folded.translate(BETWEEN_WORDS).split() if folded.isascii() else _WORD.findall(folded)


def _sentence_words(folded: str) -> list[str]:
    if "/" not in folded:
        return _words(folded)
    row: list[str] = []
    for chunk in folded.split():
        row += [chunk] if "/" in chunk.strip(_PUNCTUATION) else _words(chunk)
    return row


def _distinctive_names(folded: str) -> set[str]:
    """Return the distinctive names in a text: letters combined with digits or punctuation."""
    return set(filter(_is_distinctive, set(_NAME.findall(folded))))


def _is_distinctive(name: str) -> bool:
    """Return whether a name is distinctive: `zq73`, `left_basket`, `x.example`; not `2.1`, `12:30`, `e.g`, a path, a
    ticket number or a commit hash."""
    if "/" in name:
        return "://" in name or name.startswith("//")
    if name.isalpha() or _TICKET.fullmatch(name):
        return False
    is_mixed = any(map(str.isalpha, name)) and any(map(str.isdigit, name))
    return len(name) >= 4 and (is_mixed or bool(re.search(r"\w[_.@]\w", name)))


def _content_words(sentence: Iterable[str]) -> set[str]:
    """Return the content words of a sentence: without stop words and without inflectional endings."""
    return {_stem(word) if len(word) > 4 else word for word in sentence if word not in STOP_WORDS}


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    return _ENDINGS.sub("", word)


def has_foreign_prose(text: str, own: str) -> bool:
    """Return whether a text has prose that is not in `own`. Ids, dates, names and states alone are not prose."""
    if len(text) > MAX_CHARS:
        return True
    own_text = _joined(folded_words(own))
    for prose in _PROSE.finditer(_folded(text)):
        row = folded_words(prose[0])
        size = min(len(row), RUN_WORDS)
        runs = (row[at : at + size] for at in range(len(row) - size + 1))
        if any(_joined(run) not in own_text for run in runs):
            return True
    return any(
        _is_statement(value) and _joined(folded_words(value)) not in own_text
        for value in (match[1] or match[2] for match in _VALUE.finditer(text))
    )


def _is_statement(value: str) -> bool:
    """Return whether a value says something although it is no prose, as a line of a test report does."""
    return len(value.split()) >= MIN_WORDS and len(_STATED.findall(value)) >= 2  # a date and a time state nothing


def without_echoes(texts: Iterable[str], own: str) -> Iterator[str]:
    """Yield each text of an answer without the sentences that only repeat `own`, the text it answers."""
    own_words = folded_words(own)
    own_text, vocabulary = _joined(own_words), set(own_words)
    for text in texts:
        is_plain = not injection_rules.may_be_disguised(text)
        new = [
            sentence
            for sentence in _sentences_of(text)
            if not _only_repeats(sentence, own_text, vocabulary, is_plain=is_plain)
        ]
        yield "\n".join(new)


def _only_repeats(sentence: str, own_text: str, vocabulary: set[str], *, is_plain: bool) -> bool:
    first = _WORD.search(sentence) if is_plain else None
    if first and first[0].casefold() not in vocabulary:
        return False  # true of most sentences; folding each of them would be slow
    return _joined(folded_words(sentence)) in own_text


# Words that identify the language of a sentence. Languages with their own script need none.
_FUNCTION_WORDS = {
    "en": "the of and is are was to in that this which with has have been through before it on for by not as",
    "de": "der die das und ist nicht werden wird mit dieses diese über vor muss jedem den dem von zu auf für ein eine",
    "fr": "le la les des de et est sont par qui une un avant dans cette pour chaque doit pas sur du",
    "es": "el la las los de y es se que una un antes mediante cada esta debe por con del para no",
    "pt": "o a os as de e são por que uma um antes cada desta precisa para com não do da",
    "it": "il la le gli di e è sono che una un prima tramite ogni questo deve per con non del della",
    "nl": "de het een en is zijn van voor met dit moet elke niet door op te worden",
    "pl": "i w na z do jest są przez przed każdym nie się które tego tej być",
    "tr": "bu ve ile için bir her önce olarak olan değil gerekir kadar",
}
_LANGUAGES_OF_WORD: defaultdict[str, list[str]] = defaultdict(list)
for _code, _text in _FUNCTION_WORDS.items():
    for _word in dict.fromkeys(injection_rules.remove_disguises(_text).casefold().split()):
        _LANGUAGES_OF_WORD[_word].append(_code)
_SCRIPTS = (
    ("ru", re.compile("[\u0400-\u04ff]")), ("ar", re.compile("[\u0600-\u06ff]")), ("hi", re.compile("[\u0900-\u097f]")),
    ("ja", re.compile("[\u3040-\u30ff]")), ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("zh", re.compile("[\u3400-\u9fff]")), ("he", re.compile("[\u0590-\u05ff]")), ("th", re.compile("[\u0e00-\u0e7f]")),
    ("el", re.compile("[\u0370-\u03ff]")),
)  # fmt: skip
MIN_LETTERS = 4  # letters of a script in a sentence, or of a word that two languages share
MIN_FUNCTION_WORDS = 2


def guess_language(row: Iterable[str]) -> str:
    """Guess the language of a sentence from its words; "" if it is unclear."""
    row = list(row)
    text = " ".join(row)
    if not text.isascii():
        for name, script in _SCRIPTS:
            if len(script.findall(text)) >= MIN_LETTERS:
                return name
    counts = Counter(code for word in row for code in _LANGUAGES_OF_WORD.get(word, ()))
    best = max(_FUNCTION_WORDS, key=lambda code: counts[code])
    return best if counts[best] >= MIN_FUNCTION_WORDS else ""


def _latin_words(row: Iterable[str]) -> set[str]:
    return {
        word
        for word in row
        if len(word) >= MIN_LETTERS and word.isascii() and word.isalnum() and word not in STOP_WORDS
    }


@dataclass(frozen=True, slots=True)
class AnalyzedText:
    """One analyzed text: its words, its distinctive names, and the content words of each sentence.

    `strange` maps a language other than English to the Latin-script words of its sentences: if such a word occurs in a
    sentence of yet another language, it is a name that was carried over by a translation.
    """

    row: tuple[str, ...]
    distinct_names: frozenset[str]
    content: tuple[frozenset[str], ...]
    strange: Mapping[str, frozenset[str]]


@lru_cache(maxsize=64)
def analyze(text: str) -> AnalyzedText:
    """Analyze a text. Cached, because text that was read is compared with every later turn of its session."""
    folded, sentences = _folded(text), _sentences_of(text)
    if injection_rules.may_be_disguised(text):
        rows, words = [folded_words(sentence) for sentence in sentences], _words(folded)
    else:
        rows = [_words(sentence.casefold()) for sentence in sentences]
        words = [word for row in rows for word in row]
    strange: dict[str, frozenset[str]] = {}
    for row in rows:
        if (language_code := guess_language(row)) not in ("", "en"):
            strange[language_code] = strange.get(language_code, frozenset()) | _latin_words(row)
    content = tuple(frozenset(_content_words(row)) for row in rows)
    return AnalyzedText(tuple(words), frozenset(_distinctive_names(folded)), content, strange)


class _KnownText:
    """A text that was known before, analyzed as far as needed."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def folded(self) -> str:
        return _folded(self._text)

    @cached_property
    def row(self) -> list[str]:
        return _words(self.folded)

    @cached_property
    def joined(self) -> str:
        return _joined(self.row)

    @cached_property
    def content(self) -> set[str]:
        return _content_words(self.row)

    def has_name(self, name: str) -> bool:
        at = self.folded.find(name)
        while at >= 0:
            end = self.folded.find("\n", at)
            line = self.folded[self.folded.rfind("\n", 0, at) + 1 : end if end >= 0 else None]
            if name in _NAME.findall(line):
                return True
            at = self.folded.find(name, end) if end >= 0 else -1
        return False


class KnownTexts:
    """Texts that were known before and may be repeated, and further texts whose names may be. They are analyzed only
    when a repetition is found, one after the other until it is explained."""

    def __init__(self, texts: Iterable[str], more_names: Iterable[str]) -> None:
        self._all_texts, self._all_more = texts, more_names

    @cached_property
    def _texts(self) -> list[_KnownText]:
        return list(map(_KnownText, self._all_texts))

    @cached_property
    def _with_names(self) -> list[_KnownText]:
        return [*self._texts, *map(_KnownText, self._all_more)]

    def has_run(self, row: Sequence[str]) -> bool:
        """Return whether these consecutive words occur in a known text."""
        run = _joined(row)
        return any(run in text.joined for text in self._texts)

    def has_name(self, name: str) -> bool:
        return any(text.has_name(name) for text in self._with_names)

    def has_word(self, word: str) -> bool:
        """Return whether a known text, or a text whose names are known, has this word."""
        return any(_joined([word]) in text.joined for text in self._with_names)

    def has_content_word(self, word: str) -> bool:
        return any(word in text.content for text in self._texts)


class ReadTexts:
    """Texts that were read, against which sentences are checked for repetition.

    `known_texts` were known independently and may be repeated. Of `weak` texts, which are mostly our own, only runs of
    words count, and names that do not look like identifiers.
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        known_texts: Iterable[str] = (),
        known_names: Iterable[str] = (),
        weak: Iterable[str] = (),
        is_ours: Callable[[str], bool] = lambda _: False,
    ) -> None:
        strong, light = [analyze(text) for text in texts], [analyze(text) for text in weak]
        row = [
            word for analyzed in strong for word in analyzed.row
        ]  # joined, because a sentence may be split over several texts
        light_row = [word for analyzed in light for word in analyzed.row]
        self._text, self._light_text = _joined(row), _joined(light_row)
        self._known = KnownTexts(known_texts, known_names)
        self._runs = {*_runs(row), *_runs(light_row, LONG_RUN_WORDS)}
        self._names = set().union(*(analyzed.distinct_names for analyzed in strong))
        self._names |= {name for analyzed in light for name in analyzed.distinct_names if _is_no_identifier(name)}
        self._names = {name for name in self._names if not is_ours(name)}
        self._strange: dict[str, set[str]] = {}
        for analyzed in (*strong, *light):
            for language_code, latin_words in analyzed.strange.items():
                self._strange.setdefault(language_code, set()).update(latin_words)
        self._sentences = [content_words for analyzed in strong for content_words in analyzed.content]
        self._where: defaultdict[str, list[int]] = defaultdict(list)
        for number, content_words in enumerate(self._sentences):
            for word in content_words:
                self._where[word].append(number)

    def is_repeated_in(self, text: str) -> bool:
        """Return whether any sentence of the text repeats what was read."""
        return any(map(self.is_repeated, _sentences_of(text)))

    def is_repeated(self, sentence: str) -> bool:
        folded = _folded(sentence)
        row = _sentence_words(folded)
        if self._has_name_in(folded) or self._has_run(row):
            return True
        whole = _joined(row)
        shorter = (MIN_WORDS <= len(row) < RUN_WORDS and whole in self._text) or (
            RUN_WORDS <= len(row) < LONG_RUN_WORDS and whole in self._light_text
        )
        if shorter and not self._known.has_run(row):
            return True
        return self._is_reworded(_content_words(row)) or self._is_translated(row)

    def _is_translated(self, row: list[str]) -> bool:
        """Return whether a sentence shares a previously unknown word with sentences in another language."""
        if not self._strange or not (language_code := guess_language(row)):
            return False
        other_words: set[str] = set().union(*(latin for name, latin in self._strange.items() if name != language_code))
        shared_words = _latin_words(row) & other_words
        return not all(map(self._known.has_word, shared_words))

    def _has_name_in(self, folded: str) -> bool:
        """Return whether the text has a name that occurs only in what was read."""
        return any(name in self._names and not self._known.has_name(name) for name in _distinctive_names(folded))

    def _has_run(self, row: list[str]) -> bool:
        runs = (run for size in (RUN_WORDS, LONG_RUN_WORDS) for run in _runs(row, size))
        return any(run in self._runs and not self._known.has_run(run) for run in runs)

    def is_split_over(self, texts: Iterable[str]) -> bool:
        """Return whether several texts together repeat a run of words that none of them repeats alone."""
        rows = [sentence_words(text) for text in texts]
        return any(self._has_run([word for row in order for word in row]) for order in (rows, rows[::-1]))

    def _is_reworded(self, content_words: set[str]) -> bool:
        """Return whether most of a sentence's content words occur in one sentence of the source, at least one of them
        previously unknown."""
        if len(content_words) < MIN_WORDS or not content_words & self._where.keys():
            return False
        shared_counts = Counter(number for word in content_words for number in self._where.get(word, ()))
        for number, count in shared_counts.most_common():
            if count < MIN_SHARE * len(content_words):
                return False
            if not all(map(self._known.has_content_word, content_words & self._sentences[number])):
                return True
        return False


def _is_no_identifier(name: str) -> bool:
    """Return whether a name does not look like an identifier: a URL, a host, or letters and digits in one word."""
    return "://" in name or bool(re.search(r"[a-z]\.[a-z]{2,}$", name)) or (name.isalnum() and not name.isdigit())


def _runs(row: list[str], size: int = RUN_WORDS) -> Iterator[tuple[str, ...]]:
    return zip(*(row[start:] for start in range(size)), strict=False)


def _joined(row: Sequence[str]) -> str:
    return f" {' '.join(row)} "


def _sentences_of(text: str) -> list[str]:
    return [piece for piece in _SENTENCES.split(_ESCAPED.sub("\n", text)) if piece and piece.strip()]


def remove_repeats(text: str, source: ReadTexts) -> str:
    """Return the text without the sentences that repeat the source. The number of lines stays the same."""
    return "\n".join(_without_repeats_in_line(line, source) for line in text.split("\n"))


_AFTER_SENTENCE = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？])")


def split_sentences(line: str) -> list[str]:
    """Split a line into sentences, each with the space before it."""
    return _AFTER_SENTENCE.split(line)


def _without_repeats_in_line(line: str, source: ReadTexts) -> str:
    if not line.strip() or _BARE_MARKER.match(line):
        return line
    rest = "".join(sentence for sentence in split_sentences(line) if not source.is_repeated(sentence))
    return "" if _BARE_MARKER.match(rest) else rest


# A list item without its text: "2." or "-".
_BARE_MARKER = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s*$")


# --- text pasted into a prompt ---------------------------------------------------------------------------------------


# Pasted text (an issue, a log, a quotation) was written by someone else, so it is not a request and becomes neither a
# title nor a rule. If nothing indicates pasted text, the whole prompt counts as the user's own words.

MAX_OWN_QUOTE_CHARS = 60  # characters; a longer text in quotation marks counts as pasted
ELLIPSIS = "…"

_FENCED = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.M | re.S)
_CITED = re.compile(r"^[ \t]{0,3}>.*$", re.M)
_QUOTED = re.compile(rf"[\"“«][^\"”»\n]{{{MAX_OWN_QUOTE_CHARS},4000}}[\"”»]")
# "Here is the issue:" and the like at the end of a line; the text after it is pasted.
_INTRODUCED = re.compile(
    r"\b(?:issues?|tickets?|bug reports?|reports?|e-?mails?|messages?|comments?|reviews?|threads?|slack|posts?|logs?"
    r"|output|errors?|traceback|stack ?trace|descriptions?|changelog|readme|says?|said|wrote|writes|reads|pasted?"
    r"|quote[ds]?|feedback|article|page|docs?|response|answer)\b[^\n:]{0,80}:[ \t]{0,4}\n",
    re.I,
)
# The beginning of a document that people paste: an issue with its sections, an e-mail.
_HEAD = re.compile(
    r"^[ \t#*]{0,6}(?:(?:issue|bug|ticket|pr|pull request)\b[ \t]{0,2}[#:]|(?:title|subject|from|description|summary"
    r"|steps to reproduce|expected (?:behaviou?r|result)|actual (?:behaviou?r|result)|environment|reported by|labels)\b"
    r"[*]{0,2}[ \t]{0,2}(?::|$))",
    re.I | re.M,
)
# What an agent sends after the user approved its plan. The plan is the user's instruction, and its sentences often end in
# a colon ("the report has two sections:"), so in a plan only the explicit introduction of another person's text counts.
_APPROVED_PLAN = re.compile(r"\s*Implement the following plan:\s*\n#{1,3} \S")
_INTRODUCED_IN_PLAN = re.compile(
    r"\b(?:(?:following|this|original|linked|reported|pasted|customer'?s?|user'?s?) (?:issues?|tickets?|bug reports?|reports?|comments?|messages?"
    r"|reviews?|posts?|threads?|log|text|page)|e-?mails?|slack|said|says|wrote|writes|reads|pasted?|quote[ds]?|feedback"
    r"|article)\b[^\n:]{0,80}:[ \t]{0,4}\n",
    re.I,
)
_SUMMARY_HEADING = re.compile(r"^[ \t]{0,3}#{1,6} +(?:summary|description|environment)[ \t]*$", re.I | re.M)


def own_words(prompt: str) -> str:
    """Return the user's own words of a prompt; the whole prompt if no pasted text is recognized or nothing is left."""
    bare = _QUOTED.sub(f"“{ELLIPSIS}”", _CITED.sub("", _FENCED.sub("", prompt)))
    is_plan = bool(_APPROVED_PLAN.match(prompt))
    ends: list[int] = []
    introduced = _INTRODUCED_IN_PLAN if is_plan else _INTRODUCED
    if (introduction := introduced.search(bare)) and bare[introduction.end() :].strip():
        ends.append(introduction.end())
    heads = (head for head in _HEAD.finditer(bare) if not (is_plan and _SUMMARY_HEADING.match(bare, head.start())))
    if (head := next(heads, None)) and head.start():
        ends.append(head.start())
    own = bare[: min(ends)] if ends else bare
    return own.strip() if re.search(r"\w", own) else prompt


def pasted_lines(prompt: str) -> tuple[str, ...]:
    """Return the lines of a prompt that are not the user's own words."""
    own = own_words(prompt)
    if own == prompt.strip():
        return ()
    own_lines = set(own.splitlines())
    return tuple(line for line in prompt.splitlines() if line.strip() and line not in own_lines)
