"""Print figures about Python packages side by side: `python -m tools.figures src/claude_mem PATH_OR_NAME ...`.

They show where to look and decide nothing: a count can be improved without improving the code.
"""

from __future__ import annotations

import ast
import importlib.util
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.words import NAMES, PATTERN, prose

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Counts:
    lines: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    private: int = 0
    public: int = 0
    documented: int = 0
    untyped_returns: int = 0
    identifiers: int = 0
    vague: int = 0
    words: int = 0
    phrases: int = 0
    imports: dict[str, set[str]] = field(default_factory=dict)


def read(root: Path) -> Counts:
    counts = Counts()
    files = {module_name(root, path): path for path in sorted(root.rglob("*.py"))}
    for module, path in files.items():
        source = path.read_text("utf-8", "replace")
        tree = ast.parse(source)
        counts.lines.append(source.count("\n"))
        for _, text in prose(source):
            counts.words += len(text.split())
            counts.phrases += len(PATTERN.findall(text))
        for node in ast.walk(tree):
            count_node(counts, node)
        counts.imports[module] = {name for name in imported(tree, module, path) if name in files and name != module}
    return counts


def module_name(root: Path, path: Path) -> str:
    parts = [root.name, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def count_node(counts: Counts, node: ast.AST) -> None:
    if isinstance(node, FUNCTIONS):
        counts.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
        is_private = node.name.startswith("_")
        is_special = node.name.startswith("__")
        counts.private += is_private and not is_special
        counts.public += not is_private
        counts.documented += not is_private and bool(ast.get_docstring(node))
        returns = ast.unparse(node.returns) if node.returns else ""
        counts.untyped_returns += any(
            word in returns.replace("[", " ").replace("]", " ").split() for word in ("Any", "Row")
        )
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        counts.identifiers += 1
        counts.vague += node.id in NAMES
    elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
        counts.identifiers += 1
        counts.vague += node.arg in NAMES


def imported(tree: ast.Module, module: str, path: Path) -> Iterator[str]:
    """Yield the absolute names that a module imports, lazily imported ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, *([node.module] if node.module else [])])
            for alias in node.names:
                yield base
                yield f"{base}.{alias.name}"


def modules_on_cycles(graph: dict[str, set[str]]) -> int:
    """Count modules that can reach themselves through imports, package files left out."""
    packages = {name for name in graph if any(other.startswith(name + ".") for other in graph)}
    edges = {name: targets - packages for name, targets in graph.items() if name not in packages}

    def reaches_itself(start: str) -> bool:
        visited: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            name = waiting.pop()
            if name == start:
                return True
            if name not in visited:
                visited.add(name)
                waiting += edges.get(name, ())
        return False

    return sum(map(reaches_itself, edges))


def table(counts: Counts) -> dict[str, float]:
    functions = len(counts.functions)
    return {
        "modules": len(counts.lines),
        "lines": sum(counts.lines),
        "lines per module, median": statistics.median(counts.lines),
        "functions": functions,
        "lines per function, median": statistics.median(counts.functions),
        "functions over 50 lines, %": round(100 * sum(size > 50 for size in counts.functions) / functions, 1),
        "private functions, %": round(100 * counts.private / functions, 1),
        "public functions with a docstring, %": round(100 * counts.documented / max(1, counts.public)),
        "functions returning Any or Row": counts.untyped_returns,
        "identifiers that are bare participles, %": round(100 * counts.vague / max(1, counts.identifiers), 2),
        "rejected phrases per 10,000 words": round(10_000 * counts.phrases / max(1, counts.words), 1),
        "modules on an import cycle": modules_on_cycles(counts.imports),
    }


def locate(name: str) -> Path:
    if Path(name).is_dir():
        return Path(name)
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{name}: neither a folder nor an installed package")
    return Path(spec.origin).parent


def main(names: list[str]) -> None:
    columns = {(root := locate(name)).name: table(read(root)) for name in names or ["src/claude_mem"]}
    print("| | " + " | ".join(columns) + " |")
    print("|---|" + "--:|" * len(columns))
    for row in next(iter(columns.values())):
        print(f"| {row} | " + " | ".join(f"{column[row]:,}" for column in columns.values()) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
