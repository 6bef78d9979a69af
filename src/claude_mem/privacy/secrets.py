"""Redaction: text that looks like a secret is replaced before anything is stored.

Literals are checked first: a rule is tried only where its literal occurs, and every pattern has bounded repeats after
that literal, so the running time is linear in the length of the text. Encoded text (base64, percent-encoding) is
decoded and checked too. The texts of one event are redacted as one document, so that a key whose lines are separate
texts is removed from each of them. `secret_names.py` finds values that are identified by their name. The rules are our
own because no Python library covers these cases: `bench/secret_rules.py` compares them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

from claude_mem.domain.text import map_strings
from claude_mem.privacy import secret_context, secret_grades, secret_names, secret_rules, secret_score, secret_words
from claude_mem.privacy.secret_names import Edit
from claude_mem.privacy.secret_rules import (
    IDIOM_RULES,
    LINE_RULES,
    SECRET_PRINTING_COMMANDS,
    SECRET_TAKING_COMMANDS,
    TEXT_RULES,
    TOKEN_RULES,
    Literals,
    Rule,
    is_certainly_random,
    is_hex_or_uuid,
    is_random,
    is_trivial,
    matches_in_lines,
)

_MIN_REPEATED, _MAX_REPEATED = (
    12,
    512,
)  # a random secret of this length is redacted wherever it occurs in the same event
_REPEATED = re.compile(r"(?<![^\s\"'`,;:=(){}\[\]<>|\\])[^\s\"'`,;:=(){}\[\]<>|\\]{12,512}+")
_MIN_LENGTH = 9  # the shortest text that any rule matches: `://:abc@x`. Most strings of a tool call are shorter
_LONG_WORD = re.compile(r"(?<![A-Za-z0-9+/_\-.~])[A-Za-z0-9+/_\-.~]{20,}+")

# Text that may be encoded. A match must not follow a character of its own class; otherwise every suffix of a run would
# be tried again.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_\-=%])[A-Za-z0-9+/_\-]{20,65536}+(?:\r?\n[ \t+]{0,9}+[A-Za-z0-9+/]{40,1024}+){0,256}+"
    r"(?:\r?\n[ \t+]{0,9}+[A-Za-z0-9+/]{1,1024}+(?==))?={0,2}"
)
_PERCENT = re.compile(r"(?<![\w.~%+*\-])[\w.~+*\-]{0,512}+(?:%[0-9A-Fa-f]{2}[\w.~+*\-]{0,512}+){1,4096}+")
_IS_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_TEXT = re.compile(rb"[^\t\n\r -~\x80-\xff]")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_URLSAFE = str.maketrans("-_", "+/")
_MAX_DEPTH = 2  # base64 in base64


_VENDOR_MARK = "[redacted vendor-token]"

_own_secrets: set[str] = set()
_COLOUR_STARTS = ("\x1b[", "1b[", "033[", "\\e[")  # raw, or escaped when quoted in other text
_COLOUR = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033|\\e)\[[0-9;]{0,16}[mK]")


def add_known_secret(secret: str) -> None:
    """Redact this literal secret everywhere from now on. For secrets of claude-mem itself, which no rule recognizes."""
    if len(secret) >= _MIN_LENGTH:
        _own_secrets.add(secret)


class _EditableText:
    """A text being edited, with the offsets of its parts, which are adjusted as the text changes."""

    def __init__(self, text: str, bounds: list[int] | None = None) -> None:
        self.text, self.bounds = text, bounds or []
        self.removed: set[str] = set()

    def edit(self, edits: Iterable[Edit]) -> None:
        """Apply edits, which must be sorted. An offset inside a replaced part moves to the end of the replacement."""
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
            self.removed.add(self.text[start:end])
            shift += len(new) - (end - start)
            position = end
        if parts:
            self.text = "".join([*parts, self.text[position:]])
            self.bounds = [*bounds, *(bound + shift for bound in self.bounds[at:])]

    def sub(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str | None]) -> None:
        """Replace the matches of a pattern, except those for which `replace` returns None."""
        self.edit(
            (match.start(), match.end(), new)
            for match in pattern.finditer(self.text)
            if (new := replace(match)) is not None
        )

    def copy(self) -> _EditableText:
        copy = _EditableText(self.text, list(self.bounds))
        copy.removed = self.removed
        return copy


def redact(text: str) -> str:
    """Return a text without secrets."""
    draft = _EditableText(text)
    _clean(draft)
    return draft.text


def _clean(draft: _EditableText) -> None:
    for secret in _own_secrets:
        if secret in draft.text:
            draft.sub(re.compile(re.escape(secret)), lambda _: "[redacted]")
    _apply_rules(draft, _MAX_DEPTH)
    if any(begin in draft.text for begin in _COLOUR_STARTS):
        _clean_without_colours(draft)
    if repeated := {value.rstrip("=") for value in draft.removed if _is_unique(value)}:
        draft.sub(_REPEATED, lambda word: "[redacted]" if word[0] in repeated else None)


def _is_unique(value: str) -> bool:
    """Return whether a value can mean nothing else than the secret that it was elsewhere."""
    if not _MIN_REPEATED <= len(value) <= _MAX_REPEATED:
        return False
    return secret_grades.grade(value) >= secret_grades.RANDOM and any(map(str.isdigit, value))


def _clean_without_colours(draft: _EditableText) -> None:
    plain = draft.copy()
    plain.sub(_COLOUR, lambda _: "")
    text = plain.text
    _apply_rules(plain, _MAX_DEPTH)  # a colour may begin in the middle of a secret
    if plain.text != text:
        draft.text, draft.bounds = plain.text, plain.bounds


def _apply_rules(draft: _EditableText, depth: int) -> None:
    if len(draft.text) < _MIN_LENGTH:
        return
    _redact_key_ends(draft)
    literals = Literals(draft.text)
    _apply(literals.select(secret_rules.TEXT_INDEX, TEXT_RULES), draft)
    _apply_by_line(literals.select(secret_rules.LINE_INDEX, LINE_RULES), draft)
    long_words = _LONG_WORD.findall(draft.text)
    if words := "\n".join(long_words):
        _apply([rule for rule in TOKEN_RULES if rule[1] in words], draft)
        if any(map(secret_grades.is_prefixed_token, long_words)):
            draft.sub(_LONG_WORD, lambda word: _VENDOR_MARK if secret_grades.is_prefixed_token(word[0]) else None)
    draft.edit(
        (start, end, f"[redacted {name}]") for start, end, name in sorted(secret_rules.user_rule_spans(draft.text))
    )
    draft.edit(_tighten(draft.text, secret_names.named_value_edits(draft.text)))
    draft.edit(sorted(command_edits(draft.text, literals)))
    unsure: list[tuple[int, int]] = []
    edits = list(secret_context.context_edits(draft.text, literals, unsure))
    draft.edit(sorted([*edits, *secret_score.score_edits(draft.text, unsure, literals)]))
    draft.edit(secret_words.word_edits(draft.text, literals))
    _apply_by_line(literals.select(secret_rules.IDIOM_INDEX, IDIOM_RULES), draft)
    if depth:
        _redact_encoded(draft, words, depth)


def _tighten(text: str, edits: list[Edit]) -> Iterator[Edit]:
    """Shrink edits to the part that changes: without the name and the separator before the value."""
    for start, end, new in edits:
        same = new.find("[redacted")
        same = same if same > 0 and text.startswith(new[:same], start) else 0
        yield start + same, end, new[same:]


def _apply(rules: Iterable[Rule], draft: _EditableText) -> None:
    for name, _, pattern in rules:
        draft.edit(
            (match.start() + len(keep), match.end(), mark)
            for match in pattern.finditer(draft.text)
            for keep, mark in _replacements(name, match)
        )


def _apply_by_line(rules: Iterable[Rule], draft: _EditableText) -> None:
    """Apply rules whose matches lie within one line: only lines that contain the literal are searched."""
    for name, literal, pattern in rules:
        draft.edit(
            (match.start() + len(keep), match.end(), mark)
            for match in secret_rules.matches_in_lines(pattern, literal, draft.text)
            for keep, mark in _replacements(name, match)
        )


def _replacements(name: str, match: re.Match[str]) -> Iterator[tuple[str, str]]:
    """Yield the prefix of a match to keep and the marker that replaces the rest; nothing if the match is no secret.

    Named groups of a rule: `keep` is not part of the secret, `word` may turn out to be trivial, `value` must look
    random, `password` must not look like a word or a name, `chosen` may be words (`secret_words.is_chosen`).
    """
    groups = match.groupdict("")
    word, keep, value = groups.get("word", ""), groups.get("keep", ""), groups.get("value", "")
    if match[0].startswith("[redacted", len(keep)):
        return
    if human := groups.get("chosen", ""):
        is_harmless = not secret_words.is_chosen(human) or secret_words.is_in_test(match.string, *match.span())
    elif password := groups.get("password", ""):
        is_harmless = secret_grades.grade(password) < secret_grades.PASSPHRASE
    elif value:
        is_made_up = is_random(value) or secret_grades.grade(value) >= secret_grades.SYMBOLS
        is_harmless = not is_made_up or (is_hex_or_uuid(value) and name != "named")
    else:
        is_harmless = is_trivial(word) if word else _is_example(match[0])
    if not is_harmless:
        yield keep, "[redacted]" if name == "named" else f"[redacted {name}]"


def _is_example(token: str) -> bool:
    """Return whether a token is an example: `ghp_xxxxxxxx…`, `-your-` inside, or a name that ends in `EXAMPLE`."""
    return len(set(token[-16:])) <= 2 or token.removesuffix("KEY").endswith("EXAMPLE") or "-your-" in token


# --- private keys of which only the end is present -------------------------------------------------------------------

_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(
    r"(?:[ \t+\-|>\"',]|[0-9]{1,6}(?:\t|\u2192|: ?)|\\[nr]){0,64}+(?P<key>[A-Za-z0-9+/=]{1,128})"
    r"(?:\\[nr]|[\"',+ \t\r]){0,16}\Z"
)
_MAX_KEY_LINES = 200


def _redact_key_ends(draft: _EditableText) -> None:
    """Redact the lines before the end of a private key whose beginning is missing: `tail`, or a file read in pages."""
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
    """Return where the lines of the key that ends at `end` begin; `end` if there are none."""
    start, line_end = end, text.rfind("\n", after, end)
    if text[line_end + 1 : end].strip(" \t+-|>\"'0123456789:\u2192") and "\\n" not in text[line_end + 1 : end]:
        return end  # code that only mentions the marker line
    for _ in range(_MAX_KEY_LINES):
        if line_end < after:
            break
        line_start = text.rfind("\n", after, line_end) + 1 or after
        line = text[max(line_start, line_end - 200) : line_end]
        if line != "\x00":  # the boundary between two texts
            match = _KEY_LINE.match(line)
            if match is None or len(match["key"]) < (4 if start == end else 40):
                break
            start = line_start
        line_end = line_start - 1
    return start


# --- JSON ------------------------------------------------------------------------------------------------------------

_TEXT_BOUNDARY = "\n\x00\n"  # between unrelated texts: only a private key may continue across it


def redact_json(value: Any) -> object:
    """Return a JSON value without secrets: in single texts, across consecutive texts, and under keys that name one."""
    return redact_named_values(_redact_texts(value))


def redact_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Redact a record. Its `type` stays, and no field is lost if a secret spans several fields."""
    others = redact_json({name: item for name, item in fields.items() if name != "type"})
    return {**fields, **cast(dict[str, Any], others)}


def redact_lines(texts: list[str]) -> list[str]:
    """Redact texts as the lines of one text. Return the same number; lines inside a longer secret become empty."""
    return _redact_runs([texts])[0] if texts else texts


def _redact_texts(value: Any) -> object:
    if isinstance(value, str):
        return redact(value)
    holder = [_copy(value)]
    runs = [run for run in _runs(holder) if run]
    texts = [[container[place] for container, place in run] for run in runs]
    for run, new in zip(runs, _redact_runs(texts), strict=True):
        for (container, place), text in zip(run, new, strict=True):
            container[place] = text
    return holder[0]


def _copy(value: Any) -> object:
    """Return a copy of nested dicts and lists with redacted keys."""
    if isinstance(value, dict):
        return {_redact_key(str(key)): _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _redact_key(key: str) -> str:
    return key if len(key) < _MIN_LENGTH or (key.isidentifier() and len(key) < 20) else redact(key)


Place = tuple[Any, Any]  # a container, and the key or index of a text in it


def _runs(value: Any) -> Iterator[list[Place]]:
    """Yield the places of all texts, grouped into runs.

    Consecutive texts of a list may be the lines of one text: a patch, a notebook cell, the blocks of an answer. So the
    texts of a list form one run, and so do the texts that the objects of a list have under the same key.
    """
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
    document = _TEXT_BOUNDARY.join("\n".join(run) for run in runs)
    draft = _EditableText(document, list(_bounds(runs)))
    _clean(draft)
    if draft.text == document:
        return runs
    ends = iter(draft.bounds)
    return [[draft.text[next(ends) : next(ends)] for _ in run] for run in runs]


def _bounds(runs: list[list[str]]) -> Iterator[int]:
    """Yield the start and end offset of each text in the joined document."""
    at = 0
    for run in runs:
        for text in run:
            yield at
            at += len(text)
            yield at
            at += 1
        at += len(_TEXT_BOUNDARY) - 1


_NAME_KEYS = ("name", "key", "variable", "parameterkey", "id", "keyname")
_VALUE_KEYS = ("value", "parametervalue", "result")
_GENERIC_KEYS = ("instances", "attributes", "data", "value", "values", "result")  # they say nothing of the content
_PRIVATE_JWK_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "k")
_COLUMNS, _ROWS = ("columns", "headers", "fields", "header"), ("rows", "data", "values", "records")


def redact_named_values(value: Any, outer: str = "") -> object:
    """Redact JSON values whose key names a secret, as in `{"password": "…"}`, where no single line has both.

    `outer` is the key of the enclosing object; it names the object's `value`.
    """
    if isinstance(value, dict):
        names = [name for key, name in value.items() if str(key).lower() in _NAME_KEYS and isinstance(name, str)]
        sibling_name = "password" if value.get("type") == "random_password" else (names or [outer])[0]
        new = {
            key: _redact_under(_effective_name(str(key), sibling_name, outer), item, sibling_name)
            for key, item in value.items()
        }
        if "username" in new and isinstance(key := new.get("key"), str) and is_hex_or_uuid(key) and len(key) >= 32:
            new["key"] = "[redacted]"
        return _redact_table(_redact_jwk(new) if "kty" in new else new)
    if isinstance(value, list):
        return [redact_named_values(item, outer) for item in value]
    return value


def _effective_name(key: str, sibling_name: str, outer: str) -> str:
    """Return the name that applies to a value: `DB_PASSWORD` in `{"name": "DB_PASSWORD", "value": "…"}`, `db_password`
    in `{"db_password": {"value": "…"}}`, and `github-oauth` in `{"github-oauth": {"github.com": "…"}}`."""
    if sibling_name and key.lower() in _VALUE_KEYS:
        return sibling_name
    return outer if outer and "." in key else key


def _redact_under(key: str, item: Any, outer: str) -> object:
    name = key[-64:]
    if isinstance(item, str):
        is_secret = (
            secret_names.is_named_secret(name, item)
            or secret_context.is_named_secret(name, item)
            or secret_words.is_named_password(name, item)
        )
        return "[redacted]" if is_secret else item
    return redact_named_values(item, outer if name.lower() in _GENERIC_KEYS else name)


def _redact_jwk(value: dict[Any, Any]) -> dict[Any, Any]:
    """Return a JSON Web Key without its private members."""
    return {
        key: "[redacted private-key]"
        if key in _PRIVATE_JWK_MEMBERS and isinstance(item, str) and len(item) >= 20
        else item
        for key, item in value.items()
    }


def _redact_table(value: dict[Any, Any]) -> dict[Any, Any]:
    """Redact the cells of a table by the column names given next to its rows."""
    names = next((value[key] for key in _COLUMNS if isinstance(value.get(key), list)), None)
    rows = next((key for key in _ROWS if isinstance(value.get(key), list)), None)
    if not names or rows is None:
        return value
    return {**value, rows: [_redact_cells(row, names) if isinstance(row, list) else row for row in value[rows]]}


def _redact_cells(row: list[Any], names: list[Any]) -> list[object]:
    cells = [_redact_under(str(name), cell, "") for cell, name in zip(row, names, strict=False)]
    return [*cells, *row[len(names) :]]


# --- encoded text ----------------------------------------------------------------------------------------------------


def _redact_encoded(draft: _EditableText, words: str, depth: int) -> None:
    """Redact secrets in base64, if a long word may be base64 of text, and in percent-encoded text."""
    if any(_begins_text(match[0]) or _begins_text(match[0][1:]) for match in _BASE64.finditer(words)):
        draft.sub(_BASE64, lambda match: _redact_base64(match, depth))
    if "%" in draft.text and _IS_PERCENT.search(draft.text):
        draft.edit(list(_percent_edits(draft.text, depth)))


def _percent_edits(text: str, depth: int) -> Iterator[Edit]:
    at = 0
    for line in text.split("\n"):
        for match in _PERCENT.finditer(line) if "%" in line else ():
            if _has_secret(unquote(match[0], errors="replace"), depth):
                yield at + match.start(), at + match.end(), "[redacted url-encoded]"
        at += len(line) + 1


def _has_secret(text: str, depth: int) -> bool:
    draft = _EditableText(text)
    _apply_rules(draft, depth - 1)
    return draft.text != text


def _begins_text(run: str) -> bool:
    """Return whether a run may be base64 of text. The first bytes rule out nearly all hashes, names and images."""
    plain = _decoded(run[:32])
    return bool(plain) and plain[:6].isascii() and _NOT_TEXT.search(plain) is None


def _redact_base64(match: re.Match[str], depth: int) -> str | None:
    after_escape = match[0][0] in "nrt" and match.string.startswith("\\", match.start() - 1) and match.start() > 0
    first = match[0][:1] if after_escape else ""  # the `n` of `\\n` is not part of the run
    run = match[0].removeprefix(first)
    if not _begins_text(run):
        return None
    text = _decoded(run).decode("utf-8", "replace")
    return f"{first}[redacted base64]" if _has_secret(text, depth) else None


def _decoded(run: str) -> bytes:
    letters = _NOT_BASE64.sub("", run.translate(_URLSAFE))
    try:
        return base64.b64decode(letters[: len(letters) // 4 * 4] + _padded_tail(letters), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _padded_tail(letters: str) -> str:
    """Return the incomplete last group with padding, without which it would not be decoded."""
    rest = letters[len(letters) // 4 * 4 :]
    return rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""


# --- shell commands that take or print a secret ----------------------------------------------------------------------


_ARGUMENT = re.compile(r"(?<![^\s\"'=:%])[^\s\"'`,;(){}\[\]<>|\\=:%][^\s\"'`;(){}\[\]<>|\\]{7,511}")
_LINE_END = re.compile(r"(?<!\\)\n|\\n|[|;&]\s|\x00")
_MAX_LINE = 600


def command_edits(text: str, literals: Literals) -> Iterator[Edit]:
    """Yield edits that redact random arguments of commands that take a secret (`cargo login …`) and secrets that
    commands printed in a copied terminal."""
    for literal, pattern, plain in literals.select(secret_rules.COMMAND_INDEX, SECRET_TAKING_COMMANDS):
        for command in matches_in_lines(pattern, literal, text):
            end = _LINE_END.search(text, command.end(), command.end() + _MAX_LINE)
            stop = end.start() if end else min(len(text), command.end() + _MAX_LINE)
            for word in _ARGUMENT.finditer(text, command.end(), stop):
                if _is_secret_argument(word[0], plain=plain) and not secret_context.is_user(text, word.start()):
                    yield word.start(), word.end(), "[redacted]"
    yield from _terminal_edits(text)


# A copied terminal: a prompt and a command.
_PROMPT = re.compile(r"(?:\A|\n)[\w.@~:/\-]{0,64} ?\$ (?P<command>[^\n]{1,400})")
_MAX_PRINTED = 4_096
_ONLY_WORD = re.compile(r"\n(?P<word>[^\s\"\[\]]{8,512})(?=\r?\n|\Z)")


def _terminal_edits(text: str) -> Iterator[Edit]:
    """Yield edits that redact secrets which a command printed in a copied terminal: `$ pass show mail`."""
    if "$ " not in text:
        return
    for prompt in _PROMPT.finditer(text):
        printed = _ONLY_WORD.match(text, prompt.end())
        if printed and _is_printed_secret(printed["word"]) and any(_matching_printers(prompt["command"])):
            yield printed.start("word"), printed.end("word"), "[redacted]"
        elif any(every for (every,) in _matching_printers(prompt["command"])):
            yield from _printed_edits(text, prompt.end())


def _printed_edits(text: str, start: int) -> Iterator[Edit]:
    """Yield edits that redact the random words between a command and the next prompt."""
    prompt = _PROMPT.search(text, start, start + _MAX_PRINTED)
    for word in _OUTPUT_WORD.finditer(text, start, prompt.start() if prompt else start + _MAX_PRINTED):
        if is_random(word[0]):
            yield word.start(), word.end(), "[redacted]"


def _matching_printers(command: str) -> Iterator[tuple[bool]]:
    """Yield, for every rule that matches a secret-printing command, whether the command may print several secrets."""
    return (
        (every,)
        for literal, pattern, every in SECRET_PRINTING_COMMANDS
        if literal in command and pattern.search(command)
    )


def _is_printed_secret(word: str) -> bool:
    return (
        is_random(word)
        or secret_grades.grade(word) >= 1.5
        or (is_hex_or_uuid(word) and "-" not in word and len(word) >= 16)
        or (secret_words.is_chosen(word) and secret_words.is_structured(word))
    )


def _is_secret_argument(word: str, *, plain: bool) -> bool:
    """Return whether an argument is a secret. `plain`: the command also takes hexadecimal keys."""
    if is_hex_or_uuid(word):
        return plain and len(word) >= 20
    if word.startswith(("~/", "./")):
        return False
    return is_certainly_random(word) or (plain and secret_grades.grade(word) >= secret_grades.PASSPHRASE)


_OUTPUT_WORD = re.compile(r"[^\s\"'`,;:(){}\[\]<>]{8,4096}")


def redact_printed_secrets(commands: Iterable[str], output: Any) -> object:
    """Return the output of commands without the secrets they print: `vault kv get -field=password …`."""
    commands = list(commands)
    prints_several = [every for command in commands for (every,) in _matching_printers(command)]
    if not prints_several and isinstance(output, dict | str):
        return map_strings(output, partial(_redact_single_word, commands=commands))
    return map_strings(output, partial(_redact_output, every=any(prints_several))) if prints_several else output


def _redact_single_word(text: str, *, commands: list[str]) -> str:
    """Redact an output that is a single random word if one of the commands speaks of a secret."""
    word = text.strip()
    if not 6 <= len(word) <= 4096 or not any(secret_context.is_shown_secret(command, word) for command in commands):
        return text
    return text.replace(word, "[redacted]")


def _redact_output(text: str, *, every: bool) -> str:
    """Redact all random-looking words if `every`; otherwise only an output that consists of a single such word."""
    if every:
        return _OUTPUT_WORD.sub(lambda word: "[redacted]" if is_random(word[0]) else word[0], text)
    word = text.strip()
    return text.replace(word, "[redacted]") if _is_printed_secret(word) else text
