"""No pattern of ours blows up, whatever it is given.

The patterns are found here: every one that a module holds, and every one that stands in a call. The texts are made of
the pattern's own parts: what it repeats, again and again, after what has to stand before it and before what does not
fit. `make test` takes a quick look at a short text and measures only what was slow; `make proof` measures long ones.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import claude_mem
from claude_mem.privacy import files
from tests.security.test_secrets import milliseconds_for_a_megabyte
from tests.support import proof
from tests.support.growth import LIMIT, growth, seconds

# The parts of a pattern, as Python itself reads them.
from re import _constants as sre, _parser  # type: ignore[attr-defined]  # isort: skip

SOURCE = Path(claude_mem.__file__).parent
USES = ("search", "match", "fullmatch", "sub", "split", "findall", "finditer")
# Calls whose pattern is put together there and then: why it can't be hostile, or how it is tried below.
MADE_UP = {
    "config.py: _line_of": "one of our own names, escaped",
    "privacy/files.py: _combined_patterns": "globs, tried below",
    "privacy/files.py: _glob_pattern": "globs, tried below",
    "inject/select.py: _patterns": "patterns of data/lines.toml, which the module holds",
    "recall/rank.py: snippet": "a word, escaped",
    "digest/reply.py: _lines": "one class of signs",
    "privacy/secrets.py: _clean": "a secret of our own, escaped",
    "privacy/secret_rules.py: _rules": "a table, which the module holds",
    "privacy/secret_rules.py: compile_user_pattern": "a user's pattern, which sees a few hundred characters at a time",
    "curate/instruction_files.py: _removed_symbol": "a name, escaped",
    "curate/instruction_files.py: _finding": "a name, escaped",
    "domain/statements.py: is_entry_for": "a name, escaped",
    "domain/rules.py: compile_part": "parts of the patterns in data/rules.toml, which the module holds",
}
SIZES = (2_000, 10_000) if proof.long() else (2_000,)
EVERY = 1 if proof.long() else 5  # each text that is made, or some of them
# CPU seconds above which a pattern is measured again on a longer text: a third of what a quadratic pattern takes on this
# machine. A linear pattern takes less than a tenth of it.
SUSPECT = min(seconds(re.compile(r"\\+n").search, "\\" * SIZES[0]) for _ in range(9)) / 3
RUNS = "a1 \n\t-_./<>\"'=:@A\\%#$*[(é\0"
# What has been used against others, and what our own marks invite.
SHAPES = (
    "<private>", "</private>", "<private", "eyJ", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "<claude-mem-context>", "&lt;",
    "<observation>", "<title>", "<!--", "<![CDATA[", "```\n", "[a](", "![", "](", "https://", "://a:b@", "git commit -m ", "a/b/",
    "error: ", "*** Add File: ", "\x1b[31m", "\\u003c", "%3C", "1 passed ", "  \n", "a.b:1: ", "- ", "# ", "password=", "token ",
    "[main 1234567] x\n", "E   a", "http://a.b/c?d=", "a=b&", "{\"a\":", "''", "aA1", "ab ",
)  # fmt: skip
Pattern = re.Pattern[Any]
Unit = tuple[str, str, str]  # what a text begins with, what comes again and again, what it ends with


# --- finding them ----------------------------------------------------------------------------------------------------


def held() -> dict[str, tuple[Pattern, str]]:
    """By name: every pattern that a module holds, alone or in a table, and how it is used."""
    found: dict[str, tuple[Pattern, str]] = {}
    for each in pkgutil.walk_packages(claude_mem.__path__, "claude_mem."):
        if each.name.endswith(("__main__", "launch")):
            continue  # they do something when they are imported, and hold nothing
        module = importlib.import_module(each.name)
        for name, value in vars(module).items():
            for number, pattern in enumerate(_patterns(value)):
                place = each.name.removeprefix("claude_mem.")
                path = f"{place.replace('.', '/')}.py"
                uses = USED.get((path, name), set()) | USED.get(("", name), set())
                for use in sorted(uses) or ["finditer"]:  # in a table: then it is called by another name
                    key = f"{place}.{name}[{number}].{use}"
                    found.setdefault(key, (pattern, use))
    return found


def _patterns(value: Any) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from (pattern for item in value.values() for pattern in _patterns(item))
    elif isinstance(value, tuple | list):
        yield from (pattern for item in value for pattern in _patterns(item))


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text("utf-8"))


TREES = list(trees())


def used() -> dict[tuple[str, str], set[str]]:
    """By file and name: what is done with it. Where another file does it, the file is not said."""
    found: dict[tuple[str, str], set[str]] = {}
    for path, tree in TREES:
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in USES):
            if isinstance(node.value, ast.Name):
                found.setdefault((str(path), node.value.id), set()).add(node.attr)
            elif isinstance(node.value, ast.Attribute):
                found.setdefault(("", node.value.attr), set()).add(node.attr)
    return found


USED = used()


def in_calls() -> tuple[dict[str, tuple[Pattern, str]], set[str]]:
    """Patterns that stand in a call, `re.sub(r"…", …)`; and the calls whose pattern is not simply there to be read."""
    found, unread = dict[str, tuple[Pattern, str]](), set[str]()
    for path, tree in TREES:
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                name = ast.unparse(call.func)
                if not re.fullmatch(r"re\.[a-z]+", name) or name == "re.escape":
                    continue
                given = call.args[0]
                if isinstance(given, ast.Constant) and name != "re.compile":
                    flags = _flags(call, 3 if name in ("re.sub", "re.split") else 2)
                    found[f"{path}:{call.lineno}.{name[3:]}"] = re.compile(given.value, flags), name[3:]
                else:
                    unread.add(f"{path}: {function.name}")
    return found, unread


def _flags(call: ast.Call, place: int) -> int:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    given = [*named, *(call.args[place:] if not named else [])]
    flags = re.NOFLAG
    for name in re.findall(r"re\.([A-Z]+)", " ".join(map(ast.unparse, given))):
        flags |= re.RegexFlag[name]
    return flags


def globs() -> dict[str, tuple[Pattern, str]]:
    """What is made of the names of files that are withheld."""
    each = {f"withheld {rule}": (files._glob_pattern(rule), "match") for rule in files.WITHHELD_FILES}
    return each | {
        f"withheld, all {at}": (every, "match")
        for at, every in enumerate(files._combined_patterns(files.WITHHELD_FILES))
    }


def all_of_them() -> dict[str, tuple[Pattern, str]]:
    """Each once: of the beginnings of tokens, which differ in their letters only, a few."""
    known: dict[tuple[Any, int, str], str] = {}
    every = {**held(), **in_calls()[0], **globs()}
    for name, (pattern, use) in every.items():
        known.setdefault((pattern.pattern, pattern.flags, use), name)
    tokens = [name for name in known.values() if name.startswith("secret_rules.TOKENS")]
    return {name: every[name] for name in known.values() if name not in tokens[:-40:1] or name in tokens[::5]}


# --- texts that are made for a pattern ---------------------------------------------------------------------------------


def fits(items: list[Any], sign: str) -> bool:
    """Is it in the class?"""
    known: dict[Any, Callable[[str], bool]] = {
        sre.CATEGORY_DIGIT: str.isdigit,
        sre.CATEGORY_NOT_DIGIT: lambda sign: not sign.isdigit(),
        sre.CATEGORY_SPACE: str.isspace,
        sre.CATEGORY_NOT_SPACE: lambda sign: not sign.isspace(),
        sre.CATEGORY_WORD: lambda sign: sign.isalnum() or sign == "_",
        sre.CATEGORY_NOT_WORD: lambda sign: not (sign.isalnum() or sign == "_"),
    }
    is_in = False
    for kind, value in items:
        if kind is sre.LITERAL:
            is_in |= ord(sign) == value
        elif kind is sre.RANGE:
            is_in |= value[0] <= ord(sign) <= value[1]
        elif kind is sre.CATEGORY:
            is_in |= known[value](sign)
    return is_in != any(kind is sre.NEGATE for kind, _ in items)


def of_class(items: list[Any]) -> list[str]:
    """Some of its signs, different ones."""
    first = [
        chr(value if kind is sre.LITERAL else value[0]) for kind, value in items if kind in (sre.LITERAL, sre.RANGE)
    ]
    return [sign for sign in dict.fromkeys((*"a1 ", *first[:4], *RUNS, "漢")) if fits(items, sign)][:6] or ["a"]


def samples(parts: Any) -> list[str]:
    """Some texts that fit, or nearly: a part that looks around is taken to be content."""
    texts = [""]
    for kind, value in parts:
        pieces = _pieces(kind, value)
        texts = [text + pieces[number % len(pieces)] for number, text in enumerate(texts * max(1, len(pieces)))][:4]
    return list(dict.fromkeys(texts))


def _pieces(kind: Any, value: Any) -> list[str]:
    if kind is sre.LITERAL:
        return [chr(value)]
    if kind in (sre.NOT_LITERAL, sre.ANY):
        return ["a"]
    if kind is sre.IN:
        return of_class(value)[:2]
    if kind is sre.BRANCH:
        return [text for branch in value[1] for text in samples(branch)[:1]][:4]
    if kind in REPEATS:
        return [text * max(1, value[0]) for text in samples(value[2])]
    if kind is sre.SUBPATTERN:
        return samples(value[3])
    return samples(value) if kind is sre.ATOMIC_GROUP else [""]


REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def pumps(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Each thing that is repeated, with what has to stand before it."""
    for kind, value in parts:
        if kind in REPEATS:
            inner = value[2]
            is_class = len(inner) == 1 and inner[0][0] is sre.IN
            runs = of_class(inner[0][1]) if is_class else samples(inner)
            yield from ((before, run) for run in runs if run)
            yield from pumps(inner, before)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from pumps(branch, before)
        elif kind is sre.SUBPATTERN:
            yield from pumps(value[3], before)
        elif kind is sre.ATOMIC_GROUP:
            yield from pumps(value, before)
        before += _pieces(kind, value)[0]


def units(pattern: Pattern) -> Iterator[Unit]:
    parts = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    for before, run in pumps(parts):
        yield "", run, ""
        yield before, run, "\0"
        yield before, run, "\n!"
        yield "", before + run * 3, ""
        yield "", before, ""
    for whole in samples(parts):
        yield "", whole, ""
        yield "", whole[:-1], ""
        yield "", f"{whole} ", ""
        yield "", f"{whole}\n", ""
    for shape in (*SHAPES, *RUNS):
        yield "", shape, ""


def text_of(unit: Unit, size: int) -> str:
    begin, again, end = unit
    return begin + again * (size // len(again)) + end


def hostile(pattern: Pattern) -> list[Unit]:
    return [unit for unit in dict.fromkeys(units(pattern)) if unit[1]]


# --- time ------------------------------------------------------------------------------------------------------------


def worker(pattern: Pattern, use: str) -> Callable[[str], object]:
    """Use it as it is used; of those that go through a whole text, to its end."""
    work: Callable[[Any], object] = getattr(pattern, use)
    if use == "sub":
        work = partial(pattern.sub, "" if isinstance(pattern.pattern, str) else b"")
    if use == "finditer":
        work = lambda text: deque(pattern.finditer(text), maxlen=0)  # noqa: E731
    return work if isinstance(pattern.pattern, str) else lambda text: work(text.encode("utf-8", "replace"))


def grown(work: Callable[[str], object], unit: Unit) -> float:
    """How much longer twice the text takes; nothing, if it takes next to none. What is slow is seen in a short text
    already; what is a little slow, in a long one."""
    for size in SIZES:
        text = text_of(unit, size)
        if min(seconds(work, text), seconds(work, text)) >= SUSPECT:
            return growth(work, text, text_of(unit, 2 * size))
    return 0.0


def test_every_pattern_can_be_found() -> None:
    found, unread = in_calls()
    assert unread == set(MADE_UP), "a pattern that is put together in a call: say why it can do no harm"
    assert len(found) > 30
    names = set(held())
    assert len(names) > 100
    assert {
        "privacy.tags._TAG[0].finditer",
        "privacy.tags._TAG_END[0].search",
        "domain.text._UNSTORABLE[0].sub",
    } <= names
    assert not [path for path, tree in TREES for node in ast.walk(tree) if _is_hidden(node)], "`import re`, plainly"


def _is_hidden(node: ast.AST) -> bool:
    """`from re import sub` would escape us, and so would another name for it."""
    if isinstance(node, ast.ImportFrom):
        return node.module in ("re", "regex")
    return isinstance(node, ast.Import) and any(name.name == "re" and name.asname for name in node.names)


@pytest.mark.parametrize(
    ("bad", "use"),
    [(r"<!--.*?-->", "finditer"), (r"a*b?a*c", "match"), (r"\\+n", "sub")],
)
def test_a_pattern_that_blows_up_would_be_noticed(bad: str, use: str) -> None:
    pattern = re.compile(bad)
    assert any(grown(worker(pattern, use), unit) > LIMIT for unit in hostile(pattern))


def test_no_pattern_takes_more_than_twice_the_time_for_twice_the_text() -> None:
    every, count, times = all_of_them(), 0, dict[tuple[str, str], float]()
    for name, (pattern, use) in every.items():
        work = worker(pattern, use)
        for unit in hostile(pattern)[count % EVERY :: EVERY]:
            times[name, text_of(unit, 40)[:40]] = grown(work, unit)
            count += 1
    worst = max(times, key=lambda at: times[at])
    about = f"{len(every)} patterns, {count:,} hostile texts of {SIZES[-1]:,} characters, 40 shapes and those of its own parts for each; the worst: {worst}"
    proof.record(
        "every pattern's time for twice the text", of="I4", goal="≤ 2.5 ×", measured=round(times[worst], 2), unit="×",
        ok=times[worst] <= 2.5, note=about,
    )  # fmt: skip
    assert {at: grew for at, grew in times.items() if grew > LIMIT} == {}


@pytest.mark.skipif(not proof.long(), reason="a figure, not a limit: only `make proof` measures it")
def test_how_long_a_megabyte_takes() -> None:
    """On text as it usually is, and on the worst that we could make up. Figures, not limits: see docs/goals.toml."""
    every = all_of_them()
    usual = {name: milliseconds_for_a_megabyte(worker(*given)) for name, given in every.items()}
    slow = sorted((name for name, took in usual.items() if took > 50), key=lambda name: -usual[name])
    proof.record(
        "the slowest pattern on ordinary text", of="I4", goal="–", measured=max(usual.values()), unit="ms/MB", ok=True,
        note=f"{len(slow)} of {len(every)} patterns take more than 50: {', '.join(slow)}",
    )  # fmt: skip
    hard = {
        (name, unit[1][:20]): 1e9 * seconds(worker(*given), text_of(unit, SIZES[0])) / SIZES[0]
        for name, given in every.items()
        for unit in hostile(given[0])
    }
    worst = max(hard, key=lambda at: hard[at])
    proof.record(
        "the slowest pattern on the most hostile text", of="I4", goal="–", measured=round(hard[worst]), unit="ms/MB",
        ok=True, note=f"{len(hard):,} texts, {sum(took > 50 for took in hard.values()):,} of them over 50 ms/MB; {worst}",
    )  # fmt: skip
