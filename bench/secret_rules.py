"""Our rules for secrets beside a library's, on the tests' corpus: what is found, what is changed for nothing, how long.

    python bench/secret_rules.py                      # ours
    python bench/secret_rules.py measure FILE.jsonl [--list]   # ours, on the texts of a file
    pip install detect-secrets credsweeper       # in another environment, then the first command: theirs too

A line of FILE.jsonl is `{"text": "…" or ["block", …], "secrets": ["…"], "innocent": false}`. Every text goes through an event as
the output of a command. A secret is missed if any piece of it is left; an innocent text is altered if one character differs.

What is compared are texts in, texts out: whatever a library calls a secret is taken out of the text. A text of code is
this program's own source.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from claude_mem.capture import sanitize  # noqa: E402
from claude_mem.config import Config  # noqa: E402
from claude_mem.domain.records import Event, ToolUsed  # noqa: E402
from claude_mem.privacy.secrets import redact  # noqa: E402
from tests.support import secret_corpus  # noqa: E402

Redact = Callable[[str], str]


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]), show="--list" in sys.argv)
        return
    for name, change in rivals():
        print(json.dumps({"rules": name, **figures(change)}))


def measure(path: Path, *, show: bool) -> None:
    """Print recall and altered innocent texts of a file; with `show`, also the misses and the alterations."""
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    missed, altered = [], []
    for case in cases:
        kept = cleaned(case["text"])
        if case["innocent"]:
            altered += [(case["text"], kept)] * (kept != case["text"])
        else:
            left = json.dumps(kept, ensure_ascii=False)
            pieces = [piece for secret in case["secrets"] for piece in secret_corpus.pieces(secret)]
            missed += [(case["text"], kept)] * any(piece in left for piece in pieces)
    innocent = sum(case["innocent"] for case in cases)
    for title, texts in (("missed", missed), ("altered", altered)):
        for before, after in texts if show else ():
            print(f"--- {title}\n{before}\n--- left\n{after}")
    secret = len(cases) - innocent
    print(f"recall {percent(secret - len(missed), secret)} % ({len(missed)} of {secret} missed)")
    print(f"innocent altered {percent(len(altered), innocent)} % ({len(altered)} of {innocent})")


def cleaned(text: str | list[str]) -> Any:
    """Return what is stored of the output of a command: a text, or the texts of its blocks."""
    body = ToolUsed("Bash", {"command": "make"}, {"stdout": text} if isinstance(text, str) else {"content": text})
    event = Event(id="e1", host="claude", content_session_id="s1", at=0, body=body)
    output: Any = sanitize.clean_event(event, Config()).body
    return output.output["stdout" if isinstance(text, str) else "content"]


def figures(change: Redact) -> dict[str, float]:
    known, named = secret_corpus.positives(), list(secret_corpus.assignments())
    innocent, code = [text for _, text in secret_corpus.negatives()], own_source()
    begin = time.process_time()
    changed = sum(change(text) != text for text in code)
    took = time.process_time() - begin
    return {
        "known_formats_percent": percent(sum(not case.leaks(change(case.text)) for case in known), len(known)),
        "key_value_percent": percent(sum(not case.leaks(change(case.text)) for case in named), len(named)),
        "innocent_changed_percent": percent(sum(change(text) != text for text in innocent), len(innocent)),
        "source_files_changed_percent": percent(changed, len(code)),
        "ms_per_mb": round(took * 1e9 / sum(map(len, code))),
    }


def percent(part: int, whole: int) -> float:
    return round(100 * part / max(whole, 1), 1)


def own_source() -> list[str]:
    return [path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]


def rivals() -> Iterator[tuple[str, Redact]]:
    yield "ours", redact
    if importlib.util.find_spec("detect_secrets"):
        yield "detect-secrets, files", _detect_files
        yield "detect-secrets, lines", _detect_lines
    if importlib.util.find_spec("credsweeper"):
        yield "credsweeper", _credsweeper()


def _detect_files(text: str) -> str:
    """As its command does it: with its filters against false alarms."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file, default_settings():
        file.write(text)
        file.flush()
        return _without(text, {found.secret_value for found in scan_file(file.name)})


def _detect_lines(text: str) -> str:
    """As it is used on a single line: eager."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    with default_settings():
        return "\n".join(_without(line, {found.secret_value for found in scan_line(line)}) for line in text.split("\n"))


def _credsweeper() -> Redact:
    from credsweeper.app import CredSweeper
    from credsweeper.file_handler.string_content_provider import StringContentProvider

    sweeper = CredSweeper()

    def change(text: str) -> str:
        found = sweeper.file_scan(StringContentProvider(text.split("\n")))
        return _without(text, {line.value for candidate in found for line in candidate.line_data_list})

    return change


def _without(text: str, secrets: set[str | None]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[redacted]") if secret else text
    return text


if __name__ == "__main__":
    main()
