"""Replaces what looks like a secret before it is stored anywhere.

Literal first: a rule is tried only where its literal occurs, and every pattern has bounded repeats behind that
literal, so the time grows with the text alone. What is wrapped (base64, percent signs) is unwrapped and looked at too.
The texts of one event are redacted as one document, so that a key whose lines are several texts is found, and is cut
out of each of them.

The rules are data (`data/secrets.toml`, read by `secret_rules.py`); `secret_names.py` finds what a name gives away.
Our own rules, because no library in Python does it: `bench/secret_rules.py` compares, docs/secrets.md has the figures.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from claude_mem import secret_commands, secret_names, secret_rules
from claude_mem.secret_names import Edit
from claude_mem.secret_rules import IDIOMS, LINES, PLACES, TOKENS, Rule
from claude_mem.secret_values import is_random, is_trivial, is_uniform

_SHORTEST = 9  # no rule fits less: `://:abc@x`. Most strings of a tool call are as short as that
_LONG = re.compile(r"(?<![A-Za-z0-9+/_\-.~])[A-Za-z0-9+/_\-.~]{20,}+")

# What may be something else in another writing. Not after a sign of its own kind, or it would be read again from each.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_\-=%])[A-Za-z0-9+/_\-]{20,65536}+(?:\r?\n[ \t+]{0,9}+[A-Za-z0-9+/]{40,1024}+){0,256}+"
    r"(?:\r?\n[ \t+]{0,9}+[A-Za-z0-9+/]{1,1024}+(?==))?={0,2}"
)
_PERCENT = re.compile(r"(?<![\w.~%+*\-])[\w.~+*\-]{0,512}+(?:%[0-9A-Fa-f]{2}[\w.~+*\-]{0,512}+){1,4096}+")
_IS_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_TEXT = re.compile(rb"[^\t\n\r -~\x80-\xff]")
_UNFOLD = re.compile(r"[^A-Za-z0-9+/]")
_URLSAFE = str.maketrans("-_", "+/")
_DEEPEST = 2  # base64 in base64


_OURS: set[str] = set()
_COLOURS = ("\x1b[", "1b[", "033[", "\\e[")  # as it is, or escaped: text of text
_COLOUR = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,16}[mK]")


def know(secret: str) -> None:
    """A secret of our own, which no rule could know by its looks: from now on it is replaced wherever it stands."""
    if len(secret) >= _SHORTEST:
        _OURS.add(secret)


class _Draft:
    """A text under correction, and the places where its parts begin and end: they move as the text is changed."""

    def __init__(self, text: str, bounds: list[int] | None = None) -> None:
        self.text, self.bounds = text, bounds or []

    def edit(self, edits: Iterable[Edit]) -> None:
        """Replace parts of the text, given in their order. A bound within a part moves behind what replaces it."""
        parts: list[str] = []
        bounds: list[int] = []
        position = at = shift = 0
        for start, end, new in edits:
            if start < position:
                continue
            while at < len(self.bounds) and self.bounds[at] < end:
                bound = self.bounds[at]
                bounds.append(bound + shift if bound <= start else start + shift + len(new))
                at += 1
            parts += (self.text[position:start], new)
            shift += len(new) - (end - start)
            position = end
        if parts:
            self.text = "".join([*parts, self.text[position:]])
            self.bounds = [*bounds, *(bound + shift for bound in self.bounds[at:])]

    def sub(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str | None]) -> None:
        """Replace what a pattern fits, unless `replace` returns nothing."""
        self.edit(
            (match.start(), match.end(), new)
            for match in pattern.finditer(self.text)
            if (new := replace(match)) is not None
        )

    def copy(self) -> _Draft:
        return _Draft(self.text, list(self.bounds))


def redact(text: str) -> str:
    """Return a text without secrets."""
    draft = _Draft(text)
    _clean(draft)
    return draft.text


def _clean(draft: _Draft) -> None:
    for secret in _OURS:
        if secret in draft.text:
            draft.sub(re.compile(re.escape(secret)), lambda _: "[redacted]")
    _redact(draft, _DEEPEST)
    if not any(begin in draft.text for begin in _COLOURS):
        return
    plain = draft.copy()
    plain.sub(_COLOUR, lambda _: "")
    text = plain.text
    _redact(plain, _DEEPEST)  # a colour may begin in the middle of a secret
    if plain.text != text:
        draft.text, draft.bounds = plain.text, plain.bounds


def _redact(draft: _Draft, deep: int) -> None:
    if len(draft.text) < _SHORTEST:
        return
    _cut_ends_of_keys(draft)
    _apply(PLACES, draft, among=draft.text)
    _apply_by_line(LINES, draft)
    if words := "\n".join(_LONG.findall(draft.text)):
        _apply(TOKENS, draft, among=words)
    draft.edit((start, end, f"[redacted {name}]") for start, end, name in sorted(secret_rules.own_spans(draft.text)))
    draft.edit(_tightened(draft.text, secret_names.edits(draft.text)))
    draft.edit(sorted(secret_commands.edits(draft.text)))
    _apply_by_line(IDIOMS, draft)
    if deep:
        _unwrap(draft, words, deep)


def _tightened(text: str, edits: list[Edit]) -> Iterator[Edit]:
    """The same edits without what they leave as it is: the name and what stands between it and its value."""
    for start, end, new in edits:
        same = new.find("[redacted")
        same = same if same > 0 and text.startswith(new[:same], start) else 0
        yield start + same, end, new[same:]


def _apply(rules: tuple[Rule, ...], draft: _Draft, *, among: str) -> None:
    for name, literal, pattern in rules:
        if literal in among:
            draft.edit(
                (match.start() + len(keep), match.end(), mark)
                for match in pattern.finditer(draft.text)
                for keep, mark in _known(name, match)
            )


def _apply_by_line(rules: tuple[Rule, ...], draft: _Draft) -> None:
    """The same for rules whose matches stand in one line: only lines that have the literal are looked at."""
    for name, literal, pattern in rules:
        if literal in draft.text:
            draft.edit(
                (match.start() + len(keep), match.end(), mark)
                for match in secret_rules.in_lines(pattern, literal, draft.text)
                for keep, mark in _known(name, match)
            )


def _known(name: str, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """What stays of a match, and the mark for the rest; nothing if it is no secret. A group `word` is what may be none
    after all, a group `keep` what is none, a group `value` what must look random."""
    groups = match.groupdict("")
    word, keep, value = groups.get("word", ""), groups.get("keep", ""), groups.get("value", "")
    if match[0].startswith("[redacted", len(keep)):
        return
    if value:
        no_secret = not is_random(value) or (is_uniform(value) and name != "named")
    else:
        no_secret = is_trivial(word) if word else _is_made_up(match[0])
    if not no_secret:
        yield keep, "[redacted]" if name == "named" else f"[redacted {name}]"


def _is_made_up(token: str) -> bool:
    """An example in a text: `ghp_xxxxxxxx…`, or one that says so at its end."""
    return len(set(token[-16:])) <= 2 or token.removesuffix("KEY").endswith("EXAMPLE") or "-your-" in token


# --- keys of which only the end is there -----------------------------------------------------------------------------

_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(
    r"(?:[ \t+\-|>\"',]|[0-9]{1,6}(?:\t|\u2192|: ?)|\\[nr]){0,64}+(?P<key>[A-Za-z0-9+/=]{1,128})"
    r"(?:\\[nr]|[\"',+ \t\r]){0,16}\Z"
)
_MOST_KEY_LINES = 200


def _cut_ends_of_keys(draft: _Draft) -> None:
    """Cut the lines before the end of a private key whose beginning is missing: `tail`, a file read by pages."""
    if "-----END " not in draft.text:
        return
    edits: list[Edit] = []
    after = 0
    for end in _KEY_END.finditer(draft.text):
        begin = draft.text.rfind("-----BEGIN ", after, end.start())
        start = end.start() if begin >= 0 else _key_start(draft.text, after, end.start())
        if start < end.start():
            edits.append((start, end.end(), "[redacted private-key]"))
        after = end.end()
    draft.edit(edits)


def _key_start(text: str, after: int, end: int) -> int:
    """Where the lines of a key begin that stand before `end`; `end` if there are none."""
    start, line_end = end, text.rfind("\n", after, end)
    if text[line_end + 1 : end].strip(" \t+-|>\"'0123456789:\u2192") and "\\n" not in text[line_end + 1 : end]:
        return end  # code that only names the line
    for _ in range(_MOST_KEY_LINES):
        if line_end < after:
            break
        line_start = text.rfind("\n", after, line_end) + 1 or after
        line = text[max(line_start, line_end - 200) : line_end]
        if line != "\x00":  # where one text ends and the next begins
            match = _KEY_LINE.match(line)
            if match is None or len(match["key"]) < (4 if start == end else 40):
                break
            start = line_start
        line_end = line_start - 1
    return start


# --- JSON ------------------------------------------------------------------------------------------------------------

_APART = "\n\x00\n"  # between texts that have nothing to do with each other: only a private key goes on behind it


def redact_all(value: Any) -> Any:
    """Return a JSON value without secrets: none in a text, in all its texts taken together, or under a key that names
    one."""
    return redact_named(_redact_texts(value))


def redact_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The same for a record: its type stays, and so do the fields that a secret in another field runs over."""
    return {**fields, **redact_all({name: item for name, item in fields.items() if name != "type"})}


def redact_lines(texts: list[str]) -> list[str]:
    """Redact texts as if they were the lines of one. Return as many; those that a longer secret covered are empty."""
    return _redact_runs([texts])[0] if texts else texts


def _redact_texts(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    holder = [_copy(value)]
    runs = [run for run in _runs(holder) if run]
    texts = [[container[place] for container, place in run] for run in runs]
    for run, new in zip(runs, _redact_runs(texts), strict=True):
        for (container, place), text in zip(run, new, strict=True):
            container[place] = text
    return holder[0]


def _copy(value: Any) -> Any:
    """A copy of its dicts and lists, with keys redacted."""
    if isinstance(value, dict):
        return {_redact_key(str(key)): _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _redact_key(key: str) -> str:
    return key if len(key) < _SHORTEST or (key.isidentifier() and len(key) < 20) else redact(key)


Place = tuple[Any, Any]  # a container, and where in it the text stands


def _runs(value: Any) -> Iterator[list[Place]]:
    """The places of all texts. Texts that follow each other in a list may be the lines of one: of a patch, a cell,
    blocks of an answer. So those of a list are one run, and so are those that its objects have under the same key."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str):
                yield [(value, key)]
            else:
                yield from _runs(item)
    elif isinstance(value, list):
        runs: dict[Any, list[Place]] = {}
        for number, item in enumerate(value):
            if isinstance(item, str):
                runs.setdefault(None, []).append((value, number))
            elif isinstance(item, dict):
                for key, part in item.items():
                    if isinstance(part, str):
                        runs.setdefault(key, []).append((item, key))
        yield from runs.values()
        for item in value:
            parts = [part for part in item.values() if not isinstance(part, str)] if isinstance(item, dict) else [item]
            for part in parts:
                yield from _runs(part)


def _redact_runs(runs: list[list[str]]) -> list[list[str]]:
    """Redact the texts of an event as one document."""
    whole = _APART.join("\n".join(run) for run in runs)
    draft = _Draft(whole, list(_bounds(runs)))
    _clean(draft)
    if draft.text == whole:
        return runs
    ends = iter(draft.bounds)
    return [[draft.text[next(ends) : next(ends)] for _ in run] for run in runs]


def _bounds(runs: list[list[str]]) -> Iterator[int]:
    """Where each text begins and ends."""
    at = 0
    for run in runs:
        for text in run:
            yield at
            at += len(text)
            yield at
            at += 1
        at += len(_APART) - 1


_KEYS = ("name", "key", "variable", "parameterkey", "id", "keyname")
_VALUES = ("value", "parametervalue", "result")
_INNER = ("instances", "attributes", "data", "value", "values", "result")  # they don't say what they hold
_JWK = ("d", "p", "q", "dp", "dq", "qi", "k")
_COLUMNS, _ROWS = ("columns", "headers", "fields", "header"), ("rows", "data", "values", "records")


def redact_named(value: Any, outer: str = "") -> Any:
    """JSON in which a key says what its value is: `{"password": "…"}` holds no line that says both.

    `outer`: the name under which an object stands, which says what its `value` is."""
    if isinstance(value, dict):
        named = [name for key, name in value.items() if str(key).lower() in _KEYS and isinstance(name, str)]
        beside = "password" if value.get("type") == "random_password" else (named or [outer])[0]
        new = {key: _under(_name_of(str(key), beside, outer), item, beside) for key, item in value.items()}
        if "username" in new and isinstance(key := new.get("key"), str) and is_uniform(key) and len(key) >= 32:
            new["key"] = "[redacted]"
        return _without_columns(_without_private_jwk(new) if "kty" in new else new)
    if isinstance(value, list):
        return [redact_named(item, outer) for item in value]
    return value


def _name_of(key: str, beside: str, outer: str) -> str:
    """What a value is called: `{"name": "DB_PASSWORD", "value": "…"}`, `{"db_password": {"value": "…"}}`, and
    `{"github-oauth": {"github.com": "…"}}`."""
    if beside and key.lower() in _VALUES:
        return beside
    return outer if outer and "." in key else key


def _under(key: str, item: Any, outer: str) -> Any:
    name = key[-64:]
    if isinstance(item, str):
        return "[redacted]" if secret_names.names_secret(name, item) else item
    return redact_named(item, outer if name.lower() in _INNER else name)


def _without_private_jwk(value: dict[Any, Any]) -> dict[Any, Any]:
    """A key as JSON without its private members."""
    return {
        key: "[redacted private-key]" if key in _JWK and isinstance(item, str) and len(item) >= 20 else item
        for key, item in value.items()
    }


def _without_columns(value: dict[Any, Any]) -> dict[Any, Any]:
    """A table whose columns are named beside its rows."""
    names = next((value[key] for key in _COLUMNS if isinstance(value.get(key), list)), None)
    rows = next((key for key in _ROWS if isinstance(value.get(key), list)), None)
    if not names or rows is None:
        return value
    return {**value, rows: [_named_cells(row, names) if isinstance(row, list) else row for row in value[rows]]}


def _named_cells(row: list[Any], names: list[Any]) -> list[Any]:
    named = [_under(str(name), cell, "") for cell, name in zip(row, names, strict=False)]
    return [*named, *row[len(names) :]]


# --- what is wrapped -------------------------------------------------------------------------------------------------


def _unwrap(draft: _Draft, words: str, deep: int) -> None:
    """Looked at where there is a long word that may be base64 of text, and in lines with percent signs."""
    if any(_begins_text(found[0]) or _begins_text(found[0][1:]) for found in _BASE64.finditer(words)):
        draft.sub(_BASE64, lambda found: _in_base64(found, deep))
    if "%" in draft.text and _IS_PERCENT.search(draft.text):
        draft.edit(list(_percent_edits(draft.text, deep)))


def _percent_edits(text: str, deep: int) -> Iterator[Edit]:
    at = 0
    for line in text.split("\n"):
        for found in _PERCENT.finditer(line) if "%" in line else ():
            if _is_changed(unquote(found[0], errors="replace"), deep):
                yield at + found.start(), at + found.end(), "[redacted url-encoded]"
        at += len(line) + 1


def _is_changed(text: str, deep: int) -> bool:
    draft = _Draft(text)
    _redact(draft, deep - 1)
    return draft.text != text


def _begins_text(run: str) -> bool:
    """The first bytes tell almost always that it is none: of hashes, names and pictures."""
    plain = _decoded(run[:32])
    return bool(plain) and plain[:6].isascii() and _NOT_TEXT.search(plain) is None


def _in_base64(found: re.Match[str], deep: int) -> str | None:
    after_escape = found[0][0] in "nrt" and found.string.startswith("\\", found.start() - 1) and found.start() > 0
    first = found[0][:1] if after_escape else ""  # the `n` of `\\n` is none of it
    run = found[0].removeprefix(first)
    if not _begins_text(run):
        return None
    text = _decoded(run).decode("utf-8", "replace")
    return f"{first}[redacted base64]" if _is_changed(text, deep) else None


def _decoded(run: str) -> bytes:
    letters = _UNFOLD.sub("", run.translate(_URLSAFE))
    try:
        return base64.b64decode(letters[: len(letters) // 4 * 4] + _padded(letters), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _padded(letters: str) -> str:
    """The last letters, if they are not four: without padding they would not be read."""
    rest = letters[len(letters) // 4 * 4 :]
    return rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""
