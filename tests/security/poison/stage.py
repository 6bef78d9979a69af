"""Where a payload is played: it is read by an agent in a project of its own, and then new sessions begin there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem.agents.payload import Trigger
from claude_mem.digest.models.base import Reply, Request, SessionCallback, Verdict
from claude_mem.privacy import tags
from claude_mem.system import project_folders
from tests.support.refining import Place

ASKED = "Fix the rounding of the totals in the basket, please"
ABOUT_ALL = (
    "How do we deploy, publish releases, install packages, run the tests and fix uploads of totals in this project?"
)
ERROR = "E   decimal.DecimalError: quantize result has too many digits"
_TAG = re.compile(r"<(?=\s*[/!?a-zA-Z])")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")

Spool = Callable[..., Any]


def file_name(text: str) -> str:
    """As a file can be called: anything goes but a slash."""
    return " ".join(text.replace("/", "-").split())[:150]


def branch_name(text: str) -> str:
    """As git takes it."""
    return re.sub(r"[\s~^:?*\[\]\\\x00-\x20\x7f]+", "-", text).replace("..", ".").strip("-./")[:150]


def _web(spool: Spool, part: str, _: Path) -> None:
    given = {"url": "https://docs.example.org/rounding", "prompt": "How is it rounded?"}
    spool("PostToolUse", tool_name="WebFetch", tool_input=given, tool_response={"result": part, "code": 200})


def _mcp(spool: Spool, part: str, _: Path) -> None:
    answer = [{"type": "text", "text": part}]
    spool("PostToolUse", tool_name="mcp__tracker__get_issue", tool_input={"id": 7}, tool_response=answer)


def _gh(spool: Spool, part: str, _: Path) -> None:
    """An issue of this very repository; anyone may have written it."""
    said = {"stdout": json.dumps({"title": "Totals", "body": f"## What we know\n\n{part}"}), "stderr": ""}
    run = {"tool_name": "Bash", "tool_input": {"command": "gh issue view 7 --json title,body"}}
    spool("PostToolUse", **run, tool_response=said)


def _gh_answer(spool: Spool, part: str, _: Path) -> None:
    """A call that writes, whose answer has the words of others."""
    run = {"tool_name": "Bash", "tool_input": {"command": "gh api repos/{owner}/{repo}/issues/7/comments -f body=Done"}}
    spool("PostToolUse", **run, tool_response={"stdout": json.dumps({"body": "Done", "quoted": part})})


def _tracker_answer(spool: Spool, part: str, _: Path) -> None:
    answer = [{"type": "text", "text": json.dumps({"state": "Done", "description": part})}]
    given = {"id": "SHOP-7", "state": "Done"}
    spool("PostToolUse", tool_name="mcp__linear__update_issue", tool_input=given, tool_response=answer)


def _file(spool: Spool, part: str, folder: Path) -> None:
    given = {"file_path": str(folder / "docs/totals.md")}
    spool("PostToolUse", tool_name="Read", tool_input=given, tool_response=part)


def _command(spool: Spool, part: str, _: Path) -> None:
    spool("PostToolUse", tool_name="Bash", tool_input={"command": "cat build.log"}, tool_response={"stdout": part})


def _commit(spool: Spool, part: str, _: Path) -> None:
    line = " ".join(part.split())
    number = hashlib.sha256(part.encode()).hexdigest()[:7]
    said = {"stdout": f"[main {number}] {line}\n 1 file changed, 2 insertions(+)"}
    spool("PostToolUse", tool_name="Bash", tool_input={"command": f"git commit -m '{line}'"}, tool_response=said)


def _page_and_commit(spool: Spool, part: str, folder: Path) -> None:
    """The page says how to call it, and the agent does."""
    _web(spool, f"Please use this commit message: {part}", folder)
    _commit(spool, part, folder)


def _issue_and_commit(spool: Spool, part: str, folder: Path) -> None:
    _gh(spool, part, folder)
    _commit(spool, part, folder)


def _tracker_and_commit(spool: Spool, part: str, folder: Path) -> None:
    _mcp(spool, part, folder)
    _commit(spool, part, folder)


def _branch(spool: Spool, part: str, _: Path) -> None:
    command = f"git checkout -b '{branch_name(part)}' && git commit -am 'Round totals once'"
    said = {"stdout": f"[{branch_name(part)} 1a2b3c4] Round totals once\n 1 file changed"}
    spool("PostToolUse", tool_name="Bash", tool_input={"command": command}, tool_response=said)


def _named(spool: Spool, part: str, folder: Path) -> None:
    edit = {"file_path": str(folder / "src" / f"{file_name(part)}.py"), "old_string": "a", "new_string": "totals = 1"}
    spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={})


def _error(spool: Spool, part: str, _: Path) -> None:
    line = " ".join(part.split())
    run = {"tool_name": "Bash", "tool_input": {"command": "pytest -q tests/test_totals.py"}}
    spool("PostToolUseFailure", **run, error=f"E   ValueError: {line}")
    spool("PostToolUse", **run, tool_response={"stdout": "4 passed"})


CARRIERS = {
    "web": _web, "mcp": _mcp, "file": _file, "command": _command, "commit": _commit, "branch": _branch,
    "file name": _named, "error": _error, "page, then commit": _page_and_commit, "gh": _gh, "gh's answer": _gh_answer,
    "a tracker's answer": _tracker_answer, "gh, then commit": _issue_and_commit,
    "mcp, then commit": _tracker_and_commit,
}  # fmt: skip
TEAM = ("mcp", "gh", "gh's answer", "a tracker's answer", "gh, then commit", "mcp, then commit")
OUTSIDE = ("web", "page, then commit", *TEAM)


@dataclass(frozen=True, slots=True)
class Scene:
    """One text, one way in. `by_model`: a model obeys; else the agent itself does."""

    name: str
    parts: tuple[str, ...]
    said: tuple[str, ...]
    carrier: str
    by_model: bool


class Obedient:
    """A model that writes whatever the text tells it to, into every field there is."""

    provider, model = "fake", "obedient-1"

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.said = {scene.name: scene.said for scene in scenes if scene.by_model}
        self.asked = 0

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
        self.asked += 1
        found = re.search(r"scene\d{4}", request.prompt)
        said = self.said.get(found[0] if found else "")
        text = obeyed(said) if said else "<skip_summary reason='nothing'/>"
        return Reply(verdict=Verdict.OK, text=text, model=self.model)

    async def close(self) -> None:
        pass


def obeyed(said: Sequence[str]) -> str:
    one = " ".join(said)
    each = "".join(
        f"<observation><type>discovery</type><title>{part}</title><facts><fact>{part}</fact></facts>"
        f"<narrative>About totals: {part}</narrative></observation>"
        for part in said
    )
    summary = f"<summary><request>{ASKED}</request><learned>{one}</learned><completed>{one}</completed><next_steps>{one}</next_steps></summary>"
    return f"{each}{summary}<session><title>{one}</title><subtitle>{one}</subtitle></session>"


def play(here: Place, scene: Scene) -> None:
    """A session in which the text is read, in the middle of ordinary work."""
    folder = here.lab.folder / scene.name
    (folder / ".git").mkdir(parents=True)
    here.lab.project = folder

    def spool(event: str, **fields: Any) -> None:
        here.lab.spool(event, session_id=f"{scene.name}-a", **fields)

    edit = {"file_path": str(folder / "src/basket.py"), "old_string": "round(x)", "new_string": "def total(): ..."}
    run = {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}}
    spool("UserPromptSubmit", prompt=ASKED)
    for part in scene.parts:
        CARRIERS[scene.carrier](spool, part, folder)
    spool("PostToolUseFailure", **run, error=ERROR)
    spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={})
    spool("PostToolUse", **run, tool_response={"stdout": "4 passed"})
    closing = "Totals of the basket are rounded once, at the end, because each line added a cent."
    spool("Stop", last_assistant_message=closing if scene.by_model else f"{' '.join(scene.said)}\n\n{closing}")


async def told(here: Place, scene: Scene) -> list[str]:
    """Everything that new sessions of that project are told without asking for it."""
    service, folder = here.service, here.lab.folder / scene.name
    project = project_folders.identify_project(str(folder), excluded=())
    texts = [
        (await service.context_service.start_context(project, host="claude", content_session_id=f"{scene.name}-{n}", source=source))[0].text
        for n, source in enumerate(("startup", "resume"))
    ]  # fmt: skip
    error = f"E   ValueError: {' '.join(' '.join(scene.parts).split())}"
    for number, (event, text) in enumerate((
        ("UserPromptSubmit", ASKED),
        ("UserPromptSubmit", ABOUT_ALL),
        ("UserPromptSubmit", " ".join(scene.said)[:400]),
        ("PreToolUse", str(folder / "src/basket.py")),
        ("PreToolUse", str(folder / "docs/totals.md")),
        ("PreToolUse", str(folder / "src" / f"{file_name(scene.parts[0])}.py")),
        ("PostToolUseFailure", ERROR),
        ("PostToolUseFailure", error),
    )):  # fmt: skip
        who: Any = {"host": "claude", "content_session_id": f"{scene.name}-m{number}", "cwd": str(folder)}
        service.context_service.injection_cache.get("claude", f"{scene.name}-m{number}").injected_ids.add(
            "start"
        )  # as if the start had told nothing
        texts.append((await service.context_service.inject(Trigger(**who, event=event, text=text))).text)
    return [text for text in texts if text]


def broken_out(text: str) -> str:
    """How a text leaves its fence; "" if it does not."""
    if tags.strip_private(text).strip() or text.count("claude-mem-context") != 2:
        return "fence"
    inside = text.removeprefix("<claude-mem-context>").removesuffix("</claude-mem-context>")
    for problem, found in (("tag", _TAG), ("unseen", _UNSEEN), ("address", re.compile("://"))):
        if found.search(inside):
            return problem
    return ""
