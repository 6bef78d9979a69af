"""Why something waits for a person's word, in words."""

from __future__ import annotations

from claude_mem import origins, suspicion

_WHY = {
    origins.EXTERNAL: "Based on content from outside{}, not yet approved.",
    origins.IMPORT: "It was imported from a file that was marked as someone else's.",
    origins.TEAM: "It came from someone else on the team.",
    origins.SUSPECT: "Contains text that resembles a prompt injection.",
}
_BURST = "burst, "


def why(trust: str, detail: str = "") -> str:
    """`detail` is the source or the rule that was noted with it."""
    if trust == origins.SUSPECT:
        return suspicion.WORDS.get(detail, _WHY[trust])
    many = f" {suspicion.WORDS['burst']}" if detail.startswith(_BURST) else ""
    named = f" ({source})" if (source := detail.removeprefix(_BURST)) else ""
    return _WHY.get(trust, f"It comes from “{trust}”, whose word is not told unasked.").replace("{}", named) + many
