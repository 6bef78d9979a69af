"""What a host is answered: text for the model and, when there is something to know, a line for the person.

Every host reads another form, and some drop an answer with one word too many in it. The hook itself needs this when no
worker lives, so nothing is imported that the interpreter does not have.
"""

import json

# Claude Code and Codex cut an answer at 10,000 characters; the envelope around the text needs some of them.
CONTEXT_CHARS = 9_500
NOD = b'{"continue": true, "suppressOutput": true}'
# A strict host drops a nod it does not understand; nothing is understood by all.
PLAIN_NOD = b"{}"
# What a host calls the events at which it takes text, where it does not use our words.
_NAMES = {"gemini": {"UserPromptSubmit": "BeforeAgent", "PostToolUseFailure": "AfterTool"}}
_FLAT = {"copilot": "additionalContext", "cursor": "additional_context"}
# Hosts that show the person nothing of an answer. What must be said is said by way of the model.
SHOWS_NOTHING = (*_FLAT, "opencode")


def nod(host: str) -> bytes:
    """Nothing to say."""
    return NOD if host == "claude" else PLAIN_NOD


def answer(host: str, event: str, context: str, *, notice: str = "") -> bytes:
    if not context and not notice:
        return nod(host)
    found: dict[str, object] = {"continue": True, "suppressOutput": True} if host == "claude" else {}
    if context and host in _FLAT:
        found[_FLAT[host]] = context
    elif context:
        name = _NAMES.get(host, {}).get(event, event)
        found["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
    if notice and host not in _FLAT:
        found["systemMessage"] = notice
    return json.dumps(found).encode() if found else nod(host)


def translated(host: str, given: bytes) -> bytes:
    """A start that lies ready on disk, in Claude Code's form, as this host wants it."""
    fields = json.loads(given)
    inner = fields.get("hookSpecificOutput") or {}
    return answer(host, "SessionStart", inner.get("additionalContext", ""), notice=fields.get("systemMessage", ""))


def with_warning(host: str, given: bytes, text: str) -> bytes:
    """Return a session start's answer in this host's form, with a warning that must reach the person."""
    try:
        fields = json.loads(given or b"{}")
    except ValueError:
        fields = {}
    inner = fields.get("hookSpecificOutput") or {}
    context = str(fields.get(_FLAT[host], "") if host in _FLAT else inner.get("additionalContext", ""))
    if host in SHOWS_NOTHING:
        return answer(host, "SessionStart", f"{context}\n\nTell the user: {text}".strip())
    notice = f"{text} {fields.get('systemMessage', '')}".strip()
    return answer(host, "SessionStart", context, notice=notice)
