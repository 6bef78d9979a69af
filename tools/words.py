"""Check the wording of the source: `python -m tools.words [FILE ...]`, by default all of `src` and `docs`.

Reports phrases of `words.toml` in comments, docstrings and Markdown, and variables or parameters in `src` that are
named by a bare participle. Exits 1 if anything is reported.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
PHRASES: dict[str, str] = LISTS["phrases"]
NAMES = frozenset(LISTS["names"]["words"])
PATTERN = re.compile(r"\b(?:" + "|".join(map(re.escape, PHRASES)) + r")\b", re.I)
# Pages that record history or are printed from elsewhere keep their wording.
SKIPPED = {"CHANGELOG.md", "proof.md", "schema.sql"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings of a Python file with their line numbers."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node, clean=False)):
            first = node.body[0].lineno
            yield from enumerate(text.split("\n"), first)


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield variables and parameters that are named by a bare participle.

    Fields of classes are left out: many are columns or JSON keys, whose names stored data and other programs rely on.
    """
    tree = ast.parse(source)
    fields = {
        id(statement.target)
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for statement in owner.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields
        if is_stored and isinstance(node, ast.Name) and node.id in NAMES:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in NAMES:
            yield node.lineno, node.arg


def problems(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    is_python = path.suffix == ".py"
    for line, part in prose(text) if is_python else enumerate(text.split("\n"), 1):
        for match in PATTERN.finditer(part):
            phrase = match[0].lower()
            yield f"{path.relative_to(ROOT)}:{line}: `{phrase}`: {PHRASES[phrase]}"
    if is_python and path.is_relative_to(ROOT / "src"):
        for line, name in vague_names(text):
            yield f"{path.relative_to(ROOT)}:{line}: `{name}` says what happened to the value, not what it is"


def checked_files() -> Iterator[Path]:
    for folder, suffix in (("src", "*.py"), ("tools", "*.py"), ("docs", "*.md")):
        yield from sorted((ROOT / folder).rglob(suffix))
    yield from sorted(ROOT.glob("*.md"))


def main(arguments: list[str]) -> int:
    named = [Path(name).resolve() for name in arguments]
    files = [file for path in named for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])] or list(
        checked_files()
    )
    reports = [line for path in files if path.name not in SKIPPED for line in problems(path)]
    for line in reports:
        print(line)
    return bool(reports)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
