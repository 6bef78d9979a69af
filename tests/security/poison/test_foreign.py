"""What strangers wrote and a local tool showed is not told to later sessions: a tenth at most where the agent repeats it,
nothing where it does not. The other side of it, what is held of ordinary work, is counted by `bench/alarms.py`.

The short version plays each way in once; `make proof` plays all forms in several languages.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from claude_mem.agents.payload import Trigger
from claude_mem.system import project_folders
from tests.security.poison.carriers import CARRIERS, PASTED, Attack, attacks, is_held_out
from tests.security.poison.stage import ABOUT_ALL, ASKED, ERROR
from tests.support import proof
from tests.support.refining import Place, place

pytestmark = pytest.mark.timeout(1_800 if proof.long() else 600)

COMMAND = "make proof (tests/security/poison)"
MOST_TOLD_PERCENT = 10
CLOSING = "Totals of the basket are rounded once, at the end, because each line added a cent."


def play(here: Place, attack: Attack) -> None:
    folder = here.lab.folder / f"shop{attack.number}"
    (folder / ".git").mkdir(parents=True)
    here.lab.project = folder

    def spool(event: str, **fields: Any) -> None:
        here.lab.spool(event, session_id=f"s{attack.number}", **fields)

    issue = f"{ASKED}. Here is the issue:\n\nTotals are wrong.\n{attack.text}\n"
    spool("UserPromptSubmit", prompt=issue if attack.carrier == PASTED else ASKED)
    if attack.carrier != PASTED:
        CARRIERS[attack.carrier](spool, attack.text, folder)
    edit = {"file_path": str(folder / "src/basket.py"), "old_string": "round(x)", "new_string": "def total(): ..."}
    run = {"tool_name": "Bash", "tool_input": {"command": "npm test"}}
    spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={})
    if attack.carrier == "split over three commits" and attack.repeated:
        _commit_in_parts(spool, attack.repeated)
        spool("Stop", last_assistant_message=CLOSING)
        return
    spool("PostToolUse", **run, tool_response={"stdout": "4 passed"})
    spool("Stop", last_assistant_message=f"{CLOSING}\n\n{attack.repeated}".strip())


def _commit_in_parts(spool: Any, text: str) -> None:
    words = text.split() if " " in text else [text[at : at + 6] for at in range(0, len(text), 6)]
    size = -(-len(words) // 3)
    for at in range(0, len(words), size):
        part = " ".join(words[at : at + size]).replace("'", "")
        said = {"stdout": f"[main 1a2b3c{at % 10}] {part}\n 1 file changed, 2 insertions(+)"}
        spool("PostToolUse", tool_name="Bash", tool_input={"command": f"git commit -m '{part}'"}, tool_response=said)


async def told(here: Place, attack: Attack) -> list[str]:
    """Everything that new sessions of that project are told unasked."""
    service, folder = here.service, here.lab.folder / f"shop{attack.number}"
    project = project_folders.identify_project(str(folder), excluded=())
    start, _ = await service.context_service.start_context(
        project, host="claude", content_session_id=f"n{attack.number}", source="startup"
    )
    texts = [start.text]
    for number, (event, text) in enumerate((
        ("UserPromptSubmit", ABOUT_ALL),
        ("UserPromptSubmit", (attack.repeated or attack.text)[:400]),
        ("PreToolUse", str(folder / "src/basket.py")),
        ("PostToolUseFailure", ERROR),
        ("PostToolUseFailure", f"RuntimeError: {attack.text}"),
    )):  # fmt: skip
        session = f"m{attack.number}-{number}"
        service.context_service.injection_cache.get("claude", session).injected_ids.add(
            "start"
        )  # as if the start had told nothing
        moment = Trigger(host="claude", content_session_id=session, cwd=str(folder), event=event, text=text)
        texts.append((await service.context_service.inject(moment)).text)
    return [text for text in texts if text]


async def leaks(folder: Path, played: list[Attack], **settings: str) -> list[Attack]:
    """Return the attacks whose sentinel was told. Each project is told something, or this proves nothing."""
    async with place(folder, settings=settings) as here:
        for attack in played:
            play(here, attack)
        await here.digest()
        await here.service.indexer.catch_up()
        seen = {attack: await told(here, attack) for attack in played}
    assert all(any("otals" in text for text in texts) for texts in seen.values())
    return [attack for attack, texts in seen.items() if any(attack.sentinel in text for text in texts)]


def _percent(part: int, whole: int) -> float:
    return round(100 * part / (whole or 1), 1)


def test_what_local_tools_show_of_strangers_is_not_told(tmp_path: Path) -> None:
    played = attacks(every=proof.long())
    through = asyncio.run(leaks(tmp_path, played))
    repeated = [attack for attack in played if attack.repeated]
    for name, some in (
        ("tuned", [attack for attack in repeated if not is_held_out(attack.carrier)]),
        ("held out", [attack for attack in repeated if is_held_out(attack.carrier)]),
    ):
        share = _percent(sum(attack in through for attack in some), len(some))
        proof.record(
            f"strangers' text that the agent repeats, told ({name} ways in)", of="S13", goal="≤ 10 %", measured=share,
            unit="%", ok=share <= MOST_TOLD_PERCENT, note=f"{len(some)} attacks", command=COMMAND,
        )  # fmt: skip
        assert share <= MOST_TOLD_PERCENT, [(one.carrier, one.language, one.form) for one in through]
    silent = [attack for attack in through if not attack.repeated]
    proof.record(
        "strangers' text that the agent does not repeat, told", of="S13", goal="0", measured=len(silent),
        ok=not silent, note=f"{len(played) - len(repeated)} attacks", command=COMMAND,
    )  # fmt: skip
    assert not silent
    for form, count in Counter(attack.form for attack in through).items():
        whole = sum(attack.form == form for attack in played)
        proof.record(
            f"strangers' text told, {form}", of="S13", goal="", measured=_percent(count, whole), unit="%", ok=True,
            note=f"{whole} attacks", command=COMMAND,
        )  # fmt: skip


def test_without_the_comparison_strangers_text_is_told(tmp_path: Path) -> None:
    played = [one for one in attacks(every=False) if one.form == "verbatim"][:8]
    assert len(asyncio.run(leaks(tmp_path, played, foreign_text="open"))) > len(played) // 2
