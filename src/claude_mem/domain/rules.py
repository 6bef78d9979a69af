"""Standing rules of the user: which sentences state one, which rules say the same, and which replaces an earlier one.

A rule is injected at the start of every session, so a false one costs more than a missed one. A sentence counts only if
its own words are general ("always", "from now on", "we use … here"), and not if they refer to one occasion ("yet",
"this file") or to something that the sentence does not name ("do that"). Quotes, code, tags, logs and pasted documents
are not the user's own words. English only; the same text always gives the same rules. The words and patterns are in
`data/rules.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from claude_mem.domain.text import strip_invisible

_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "rules.toml").read_text("utf-8"))
_NAME = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class RuleShape:
    """A form in which rules are stated; `kind` selects the further conditions for a sentence of this form."""

    kind: str
    pattern: re.Pattern[str]
    example: str


def _expand(text: str) -> str:
    """Return a pattern with its named parts expanded and line breaks removed."""
    return _NAME.sub(lambda part: _expand(_FILE["parts"][part[1]]), text.replace("\n", ""))


def compile_part(name: str) -> re.Pattern[str]:
    """Compile a named part of `data/rules.toml`."""
    return re.compile(_expand(_FILE["parts"][name]), re.I)


WORDS = {name: frozenset(words.split()) for name, words in _FILE["words"].items()}
SHAPES = tuple(
    RuleShape(item["kind"], re.compile(_expand(item["pattern"]), re.I), item["example"]) for item in _FILE["patterns"]
)


# --- comparing rules -------------------------------------------------------------------------------------------------


# The decision is based on the words of the rules only: it is not known here that pnpm and npm are both package
# managers, but "use pnpm instead of npm" rejects what "we use npm here" chose. If in doubt, both rules stay in force.

MIN_SUBJECT_WORDS = 2  # of what two statements give different values to
MIN_SIMILARITY = 0.6  # share of common words if one rule has all the words of the other

_HERE, _FROM_NOW_ON = compile_part("here"), compile_part("from_now_on")
_WORD = re.compile(r"(?<![\w.#+/@-])[.#+/@-]{0,8}\w++(?:[.#+/@-]{1,8}\w++)*+")
_REJECTS = re.compile(r",? (?:and )?(?:not|instead of|rather than|over|no longer|never)\s+", re.I)
_USES = re.compile(r"\b(?:use|uses|using|prefer)\b\s*", re.I)
_FORBIDS = re.compile(r"\b(?:never|don'?t|do not|stop|avoid|no longer|must not|mustn'?t|should not|shouldn'?t)\b", re.I)
# A name as in code, and one word as its value: "`log_level` is debug".
_NAMED_SETTING = re.compile(
    r"(?:the |our )?(?:default |setting |option )*`?(?P<name>(?<=`)[\w.-]++|(?=\w\w*?[_.]\w)\w[\w.]*+)`?"
    r" *(?:is set to|is now|is|=|:|defaults to|must be|should be|stays) *`?[^\s`]+`?[.!]?$",
    re.I,
)
# A number, version or path at the end: "the staging server listens on port 8080".
_VALUE_AT_END = re.compile(
    r"(?P<subject>.+?) (?:is|are|at|to|in|under|on|on port|is on port|at port|needs|requires|version|=|:)"
    r" `?(?=[^\s`\d/]*+[\d/])[^\s`]++`?[.!]?$",
    re.I,
)
_SCOPE = re.compile(r"\b(?:for|in|when|whenever|before|after|with|on|as|to|while|if|unless|here|everywhere)\b", re.I)


def normalize_rule(text: str) -> str:
    """Return the normalized words of a rule, without courtesies. Rules that say the same give the same result."""
    return " ".join(word for word in _words(text) if word not in WORDS["courtesies"])


@dataclass(frozen=True, slots=True)
class Statement:
    """A rule or a decision with its author's authority: a user's word is not superseded by an agent's."""

    id: int
    text: str
    authority: int = 0


def find_superseded(statements: Sequence[Statement]) -> dict[int, int]:
    """Return, for statements in the order they were made, the id of each replaced one and of the next one that replaces
    it."""
    topics = [_topic(statement.text) for statement in statements]
    replaced_by: dict[int, int] = {}
    for place, (old, topic) in enumerate(zip(statements, topics, strict=True)):
        later = zip(statements[place + 1 :], topics[place + 1 :], strict=True)
        successor = (new.id for new, its in later if new.authority >= old.authority and _replaces(its, topic))
        if (new_id := next(successor, None)) is not None:
            replaced_by[old.id] = new_id
    return replaced_by


def _replaces(new: _Topic, old: _Topic) -> bool:
    """Return whether a later rule replaces an earlier one: both are about the same thing by their words, or one chooses
    what the other rejects."""
    shared_words = new.words & old.words
    if new.words == old.words:
        return bool(shared_words)
    is_reversed = (old.choice and old.choice == new.rejected) or (new.choice and new.choice == old.rejected)
    if is_reversed and new.scope <= old.scope:
        return True
    if new.setting and new.setting == old.setting:
        return True
    contains = shared_words in (new.words, old.words)
    return contains and len(shared_words) / len(new.words | old.words) >= MIN_SIMILARITY


@dataclass(frozen=True, slots=True)
class _Topic:
    """The content words of a rule; if the rule states a choice, also what to use, what not to use, and for what; if it
    states the value of a setting, also the setting."""

    words: frozenset[str]
    choice: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()
    scope: frozenset[str] = frozenset()
    setting: frozenset[str] = frozenset()


def _topic(text: str) -> _Topic:
    words, use, setting = _content(text), _USES.search(text), _setting(text)
    if use is None:
        return _Topic(words, setting=setting)
    options = [_SCOPE.split(option, maxsplit=1) for option in _REJECTS.split(text[use.end() :])]
    first_option, *rejected_options = (_content(option[0]) for option in options)
    scope = _content(" ".join(option[1] for option in options if len(option) > 1))
    if _FORBIDS.search(text[: use.start()]):
        return _Topic(words, rejected=first_option, scope=scope)
    return _Topic(words, choice=first_option, rejected=frozenset[str]().union(*rejected_options), scope=scope)


def _setting(text: str) -> frozenset[str]:
    """Return the words of what a statement gives a value to; nothing if it gives none."""
    if name := _NAMED_SETTING.match(text.strip()):
        return frozenset({name["name"].lower()})
    value = _VALUE_AT_END.match(text.strip())
    words = _content(value["subject"]) if value else frozenset()
    return words if len(words) >= MIN_SUBJECT_WORDS else frozenset()


def _content(text: str) -> frozenset[str]:
    return frozenset(_root(word) for word in _words(text) if word not in WORDS["function_words"])


def _words(text: str) -> list[str]:
    """Return the words of a rule, without those that only say where it applies and since when."""
    text = text.lower().replace("’", "'")
    return _WORD.findall(_HERE.sub(" ", _FROM_NOW_ON.sub(" ", text)).replace("'", ""))


def _root(word: str) -> str:
    """Return a word without the endings in which two wordings of the same rule most often differ."""
    bare = re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 and word.isalpha() else word
    return re.sub(r"([bdgklmnprt])\1$|e$", r"\1", bare) if len(bare) > 3 else bare


# --- finding rules in a text -----------------------------------------------------------------------------------------


TITLE_CHARS = 140
MAX_CHARS = 8_000  # characters of a text that are examined
DOCUMENT_CHARS, DOCUMENT_LINES = 1_500, 25  # a longer text is a document: only its first paragraph is the user's own
SENTENCE_CHARS = 400
MIN_TASK_WORDS = 3  # words of a sentence that counts as a task; shorter ones are "no", "stop" or "wrong again"


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """A rule as it was stated: a one-line title, and the complete sentence."""

    title: str
    sentence: str


def find_statements(text: str) -> list[RuleStatement]:
    """Return the standing rules that a text states, in order, each once."""
    sentences = list(_sentences(text))
    results = [_statement(sentence, alone=True) for sentence in sentences]
    others = [sentence for sentence, result in zip(sentences, results, strict=True) if not result]
    if any(len(sentence.split()) >= MIN_TASK_WORDS for sentence in others):  # a task: the other sentences belong to it
        results = [_statement(sentence, alone=False) for sentence in sentences]
    return list({normalize_rule(result.title): result for result in results if result}.values())


def is_all_rules(text: str) -> bool:
    """Return whether a text consists only of standing rules."""
    results = [_statement(sentence, alone=True) for sentence in _sentences(text) if sentence]
    return bool(results) and all(results)


def is_quoted_from(words: str, text: str) -> bool:
    """Return whether words are the user's own in a text and refer to more than one occasion."""
    own = " ".join(normalize_rule(line) for line in _own_lines(text))
    return bool(normalize_rule(words)) and normalize_rule(words) in own and not _OCCASION.search(_masked(words))


# --- the user's own words --------------------------------------------------------------------------------------------

_FENCED = re.compile(r"(?:```|~~~).*?(?:```|~~~|\Z)", re.S)
_TAGGED = re.compile(r"<([a-zA-Z][\w-]{1,40})\b[^<>\n]{0,200}>(?:(?!</).){0,600}+</\1\s{0,4}>", re.S)
_OPEN_TAG = re.compile(r"^[ \t]{0,40}<[a-zA-Z][\w-]{1,40}\b[^<>\n]{0,200}>.*+", re.S | re.M)
_HEADING = re.compile(r"^#{1,6} \S", re.M)
_PASTED, _INTRODUCES, _LISTS_RULES = compile_part("pasted"), compile_part("introduces"), compile_part("lists_rules")
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+")
_QUOTED = re.compile(
    r"`[^`\n]{0,500}`|\"[^\"\n]{0,500}\"|“[^“”\n]{0,500}”|«[^«»\n]{0,500}»|(?<![\w])'[^'\n]{2,300}'(?!\w)|https?://\S++"
)


def _own_lines(text: str) -> Iterator[str]:
    """Yield the lines that the user wrote: no code, tags, quotes, output or pasted documents."""
    text = strip_invisible(text[:MAX_CHARS].replace("\r\n", "\n")).replace("’", "'")
    text = _OPEN_TAG.sub("", _TAGGED.sub("\n", _FENCED.sub("\n", text)))
    lines = text.rstrip().strip("\n").split("\n")
    if len(lines) == 1:
        lines = [lines[0].removeprefix("# ")]  # in a one-line prompt, `# ` marks a note for the agent, not a heading
    elif len(text) > DOCUMENT_CHARS or len(lines) > DOCUMENT_LINES or _HEADING.search(text):
        lines = _first_paragraph(lines)
    is_diff = any(line.startswith(("@@ ", "+++ ", "--- ", "diff --git")) for line in lines)
    plain_lines = [line for line in lines if line.strip() and not _BULLET.match(line)]
    if plain_lines and not any(map(_LISTS_RULES.search, plain_lines)):
        lines = [line for line in lines if not _BULLET.match(line)]  # the list items of a task
    for line in lines:
        if _INTRODUCES.search(line):
            return
        if not _PASTED.match(line) and not (is_diff and line.startswith(("-", "+"))):
            yield _BULLET.sub("", line).strip().strip("*").strip()


def _first_paragraph(lines: Sequence[str]) -> list[str]:
    """Return the lines above the first blank line or heading; none if they are so long that they belong to the
    document."""
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _HEADING.match(line):
            break
        paragraph.append(line)
    return paragraph if sum(map(len, paragraph)) <= DOCUMENT_CHARS // 2 else []


_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<!\.\.)[)\"']*\s+")


def _sentences(text: str) -> Iterator[str]:
    for line in _own_lines(text):
        masked, start = _masked(line), 0
        for end in _SENTENCE_END.finditer(masked):
            yield line[start : end.end()].strip()
            start = end.end()
        yield line[start:].strip()


def _masked(text: str) -> str:
    """Return the text with its quotations replaced by filler of the same length, so that offsets stay valid."""
    return _QUOTED.sub(lambda quote: "¤" * len(quote[0]), text)


# --- recognition of rules --------------------------------------------------------------------------------------------

_OPENING, _CONDITION, _GENERAL = compile_part("opening"), compile_part("condition"), compile_part("general")
_OCCASION, _REMARK, _HERE_WORD = compile_part("occasion"), compile_part("remark"), compile_part("here")
_REFERS_BACK = re.compile(r"\s+(?:it|this|that|them|these|those)\b(?! (?:repo|project|codebase))", re.I)
_ONE_THING = re.compile(rf"\W+{compile_part('definite').pattern}", re.I)
_STATEMENT_KINDS = ("habit",)  # kinds that may follow other words in a sentence; a command there belongs to the task


def _statement(sentence: str, *, alone: bool) -> RuleStatement | None:
    """Return the rule that a sentence states; None if it states none. `alone`: the text has no task that the sentence
    could be a part of."""
    if not 8 <= len(sentence) <= SENTENCE_CHARS:
        return None
    masked = _masked(sentence)
    if _OCCASION.search(_HERE_WORD.sub(lambda here: "¤" * len(here[0]), masked)):
        return None
    for start, end, first in _clauses(masked):
        if _REMARK.search(masked, 0, end):  # a remark after the rule does not matter
            continue
        begin = start + _skip_openings(masked[start:end])
        clause = masked[begin:end]
        is_request = re.search(r"\b(?:can|could|would|will) (?:you|u)\b", masked[start:begin], re.I)
        if "?" in clause and not is_request:
            continue
        if _states_rule(clause, first=first, alone=alone):
            title = _title(sentence[begin:end])
            return RuleStatement(title, sentence) if title else None
    return None


def _clauses(masked: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the start and end of each clause, and whether a command may begin there."""
    ends = [
        (mark.start(), mark.end())
        for mark in re.finditer(r";\s|\s[-–—]{1,3}\s|,\s+but\s+(?=i\b|not sure\b|maybe\b)", masked, re.I)
    ]
    starts = [0, *(end for _, end in ends)]
    for start, end in zip(starts, [*(begin for begin, _ in ends), len(masked)], strict=True):
        yield start, end, True
        for comma in re.finditer(r"(?:,|:|\band\b|\bbut\b|\bbecause\b|\bsince\b|\bas\b)\s+(?=we\b)", masked[start:end]):
            yield start + comma.end(), end, False


def _skip_openings(clause: str) -> int:
    at = 0
    while (opening := _OPENING.match(clause, at)) and opening.end() > at:
        at = opening.end()
    return at


def _states_rule(clause: str, *, first: bool, alone: bool) -> bool:
    condition = _CONDITION.match(clause) if first else None
    starts = [0, condition.end()] if condition else [0]
    return any(
        (match := shape.pattern.match(clause, start))
        and (first or shape.kind in _STATEMENT_KINDS)
        and _is_general(shape.kind, match, clause, alone=alone)
        for start in starts
        for shape in SHAPES
    )


def _is_general(kind: str, match: re.Match[str], clause: str, *, alone: bool) -> bool:
    """Return whether a clause of this kind applies beyond the current task."""
    verb = (match["verb"] or "").lower() if "verb" in match.re.groupindex else ""
    after = clause[match.end("verb") :] if verb else ""
    if verb and (not _may_be_command_verb(verb, gerund=kind in ("stop", "permission")) or _REFERS_BACK.match(after)):
        return False
    is_marked = bool(_GENERAL.search(clause))
    match kind:
        case "command":
            working = verb in WORDS["work"] | WORDS["work_or_program"] or after.startswith(" me ")
            return is_marked or working or (alone and verb not in WORDS["program"])
        case "subject":
            return _is_binding_subject(match["subject"].lower(), verb, alone=alone)
        case "habit":
            return verb not in WORDS["states"]
        case "forbidden" | "order":
            return is_marked and verb not in WORDS["program"] and (kind == "forbidden" or "?" not in clause)
        case "alone":
            return alone or is_marked
        case "stop":
            return is_marked or verb not in WORDS["ongoing"]
        case "permission":
            return not _ONE_THING.match(after)
    return True


def _may_be_command_verb(verb: str, *, gerund: bool) -> bool:
    """Return whether a word may be the verb of a command, unlike in "always fails", "never tested", "always the
    same"."""
    if verb in WORDS["not_verbs"]:
        return False
    if gerund:
        return True
    inflected = re.search(r"(?:[^s]s|[^e]ed|ing)$", verb)
    return not inflected or verb in ("focus", "bring", "ping", "embed", "string", "discuss", "bias", "canvas")


def _is_binding_subject(subject: str, verb: str, *, alone: bool) -> bool:
    """Return whether the subject of a rule is the people and agents who work here, or a kind of thing they work with,
    and not a single thing that is being built."""
    if subject in ("you", "everyone", "agent", "agents", "claude"):
        return True
    if subject == "we":
        return alone or verb in WORDS["work"]
    words = subject.split()
    return words[0] not in WORDS["pointing"] and words[-1] in WORDS["kinds"]


# --- titles ----------------------------------------------------------------------------------------------------------

_CUT = re.compile(r"(?:;|,? (?:because|since|so that|as otherwise|otherwise)|\s\(|\s[-–—]{1,3}|,)\s", re.I)
_CONTINUES = re.compile(
    r"(?:unless|except|if|when|but|and|or|not|only|instead|for|in|with|without|before|after)\b", re.I
)


def _title(words: str) -> str:
    """Return a rule as one line of at most `TITLE_CHARS`; "" if it cannot be shortened without changing its meaning."""
    line = " ".join(words.split()).strip(" ,;:-–—*_").rstrip(".!?")
    line = line[:1].upper() + line[1:] if re.match(r"[a-z']+\b", line) else line
    if len(line) <= TITLE_CHARS:
        return line
    cuts = [cut.start() for cut in _CUT.finditer(line[: TITLE_CHARS - 1]) if not _CONTINUES.match(line[cut.end() :])]
    whole = [
        cut
        for cut in cuts
        if cut >= 20 and line[:cut].count("`") % 2 == 0 and line[:cut].count("(") <= line[:cut].count(")")
    ]
    return line[: whole[-1]].rstrip(" ,;:") + "…" if whole else ""


# --- rules that forbid a command -------------------------------------------------------------------------------------
#
# "never run `npm`", "use pnpm, not npm", "don't push without asking": the words after the prohibition must be the words
# with which the call begins, up to the first word that only connects.


_PHRASE = r"(?P<phrase>`[^`\n]{1,80}`|[^`,.;:!?()\n]{1,80})"
_FORBIDS_CALL = (
    re.compile(
        r"\b(?:never|don['’]?t|do not|stop|avoid|must not|mustn['’]?t|should not|shouldn['’]?t|no longer)\s+"
        r"(?:ever\s+|please\s+)?"
        rf"(?:(?:run|use|call|execute|invoke|try|start)(?:n?ing)?\s+)?{_PHRASE}",
        re.I,
    ),
    re.compile(rf"\b(?:instead of|rather than)\s+(?:(?:run|us|call)(?:n?ing|e)?\s+)?{_PHRASE}", re.I),
    re.compile(rf"\b(?:use|run|prefer)\b[^.;\n]{{1,80}}?(?:, (?:and )?not|,? never| over)\s+{_PHRASE}", re.I),
)
_END = re.compile(
    r"\s(?:without|before|after|unless|until|if|when|while|because|as|and|or|but|instead|for|from|in)\s.*", re.S
)
_CONNECTS = (
    "a",
    "an",
    "the",
    "to",
    "on",
    "into",
    "of",
    "at",
    "with",
    "any",
    "anymore",
    "again",
    "here",
    "directly",
    "it",
)
_GIT_VERBS = ("commit", "push", "merge", "rebase", "amend", "stash", "reset", "checkout", "tag", "pull")


def forbids_call(rule: str, words: Sequence[str]) -> bool:
    """Return whether a rule forbids a call, given as its program and arguments."""
    return any(_is_meant(phrase, words) for phrase in _phrases(rule))


def _phrases(rule: str) -> Iterator[list[str]]:
    for pattern in _FORBIDS_CALL:
        for match in pattern.finditer(rule[:1_000]):
            text = match["phrase"]
            phrase = (text.strip("`") if text.startswith("`") else _END.sub("", f"{text} ")).lower().split()
            if phrase and phrase[0] in _GIT_VERBS:
                phrase = ["git", *phrase]
            if phrase:
                yield [word.strip("\"'“”‘’") for word in phrase]


def _is_meant(phrase: Sequence[str], words: Sequence[str]) -> bool:
    called = [word.lower() for word in words]
    size = next((place for place, word in enumerate(phrase) if word in _CONNECTS), len(phrase))
    lead = [word for word in phrase[:size] if not word.startswith("-")]
    plain = [word for word in called if not word.startswith("-")]
    rest = [word for word in (*phrase[:size], *phrase[size:]) if word.startswith("-")]
    rest += [word for word in phrase[size:] if word not in _CONNECTS and not word.startswith("-")]
    return bool(lead) and plain[: len(lead)] == lead and all(word in called for word in rest)
