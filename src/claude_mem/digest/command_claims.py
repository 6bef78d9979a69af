"""Memories whose whole point is that a command fails here, or works.

Only a title that states it without a condition counts: "`make dist` fails when the cache is cold" is not disproved by a
`make dist` that works.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from claude_mem.digest.calls import command_keys

_FAILS = (
    r"(?:always |still )?fails|does(?: not|n'?t) work|can(?:not|'?t| not) work|never works|is broken|is not supported"
)
_WORKS = r"(?:now |again )?works(?: now| again)?|is fixed"
_CLAIM = re.compile(
    rf"(?:(?:note|gotcha|trap|warning|careful)[:,] *)?(?:here,? |in this (?:project|repository),? )?(?:the command )?"
    rf"`(?P<command>[^`\n]{{2,200}})` (?:(?P<fails>{_FAILS})|(?:{_WORKS}))\b"
    r"(?! *,? *(?:if|when|whenever|unless|until|without|with|on|for|only|in|after|before|as long)\b(?! this| here))",
    re.I,
)


@dataclass(frozen=True, slots=True)
class CommandClaim:
    """What a title says of a command. `key` names the command as `calls` do."""

    key: str
    fails: bool
    text: str


def find_claim(title: str) -> CommandClaim | None:
    """Return what a title says of a command; None if that is not its point, or depends on a condition."""
    match = _CLAIM.match(title.strip())
    key = _key(match["command"]) if match else ""
    return CommandClaim(key, bool(match["fails"]), title.strip()) if match and key else None


def _key(command: str) -> str:
    """Return the key of the one thing that distinguishes a command: its option or path, else all its words."""
    calls = command_keys(command)
    is_one_call = len({id(call) for call in calls.values()}) == 1
    if not is_one_call or not re.fullmatch(r"[\w./-]+(?: [^()]*)?", command):
        return ""
    plain = [key for key in calls if not any(word.startswith("-") or "/" in word for word in key.split(" ")[1:])]
    special = [key for key in calls if key not in plain]
    return special[0] if len(special) == 1 else "" if special else max(plain, key=len)
