"""Composes hook answers: context for the model and, if needed, a notice for the user.

Each agent expects another format, and some reject an answer with unknown fields. The hook uses this module when no
worker runs, so it imports only the standard library.
"""

import json

# Claude Code and Codex truncate an answer at 10,000 characters, including the JSON around the text.
CONTEXT_CHARS = 9_500
EMPTY_ANSWER = b'{"continue": true, "suppressOutput": true}'
# Some agents reject fields they do not know; every agent accepts an empty object.
PLAIN_EMPTY_ANSWER = b"{}"
# Names of events that accept context, for agents that do not use Claude Code's names.
_EVENT_NAMES = {"gemini": {"UserPromptSubmit": "BeforeAgent", "PostToolUseFailure": "AfterTool"}}
_FLAT_CONTEXT_FIELD = {"copilot": "additionalContext", "cursor": "additional_context"}
# Agents that show the user nothing of an answer. Warnings are passed to the model, which is asked to repeat them.
HIDES_NOTICES = (*_FLAT_CONTEXT_FIELD, "opencode")


def empty_answer(host: str) -> bytes:
    """Return the answer without context or notice."""
    return EMPTY_ANSWER if host == "claude" else PLAIN_EMPTY_ANSWER


def compose_answer(host: str, event: str, context: str, *, notice: str = "") -> bytes:
    """Return the answer that an agent's hook prints to inject a text."""
    context, notice = visible_text(context), visible_text(notice)
    if not context and not notice:
        return empty_answer(host)
    fields: dict[str, object] = {"continue": True, "suppressOutput": True} if host == "claude" else {}
    if context and host in _FLAT_CONTEXT_FIELD:
        fields[_FLAT_CONTEXT_FIELD[host]] = context
    elif context:
        name = _EVENT_NAMES.get(host, {}).get(event, event)
        fields["hookSpecificOutput"] = {"hookEventName": name, "additionalContext": context}
    if notice and host not in _FLAT_CONTEXT_FIELD:
        fields["systemMessage"] = notice
    return json.dumps(fields).encode() if fields else empty_answer(host)


def visible_text(text: str) -> str:
    """Return a text without characters that control a terminal, or hide or reverse text: agents print what they get."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        character if character == "\n" or character.isprintable() else " " if character.isspace() else ""
        for character in text
    )


def translate_answer(host: str, stored: bytes) -> bytes:
    """Convert a stored brief from Claude Code's format to that of another agent."""
    fields = json.loads(stored)
    inner = fields.get("hookSpecificOutput") or {}
    return compose_answer(
        host, "SessionStart", inner.get("additionalContext", ""), notice=fields.get("systemMessage", "")
    )


def add_warning(host: str, stored: bytes, warning: str) -> bytes:
    """Return the answer at session start in this agent's format, with a warning that must reach the user."""
    try:
        fields = json.loads(stored or b"{}")
    except ValueError:
        fields = {}
    inner = fields.get("hookSpecificOutput") or {}
    context = str(
        fields.get(_FLAT_CONTEXT_FIELD[host], "") if host in _FLAT_CONTEXT_FIELD else inner.get("additionalContext", "")
    )
    if host in HIDES_NOTICES:
        return compose_answer(host, "SessionStart", f"{context}\n\nTell the user: {warning}".strip())
    notice = f"{warning} {fields.get('systemMessage', '')}".strip()
    return compose_answer(host, "SessionStart", context, notice=notice)
