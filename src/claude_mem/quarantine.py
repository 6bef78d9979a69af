"""The reason why a record waits in the approval queue, as text for people."""

from __future__ import annotations

from claude_mem import origins, suspicion

_REASONS = {
    origins.EXTERNAL: "Based on external content{}, not yet approved.",
    origins.IMPORT: "Imported from a file that was marked as untrusted.",
    origins.TEAM: "Written by someone else on the team.",
    origins.SUSPECT: "Contains text that resembles a prompt injection.",
}
_BURST = "burst, "


def why(trust: str, detail: str = "") -> str:
    """Return why a record is held. `detail` is the source or the rule stored with the record."""
    if trust == origins.SUSPECT:
        return suspicion.WORDS.get(detail, _REASONS[trust])
    burst = f" {suspicion.WORDS['burst']}" if detail.startswith(_BURST) else ""
    sources = f" ({source})" if (source := detail.removeprefix(_BURST)) else ""
    default = f"It comes from “{trust}”, whose content is not injected without approval."
    return _REASONS.get(trust, default).replace("{}", sources) + burst
