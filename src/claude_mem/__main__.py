"""The `claude-mem` command. A hook's payload goes straight to the hook, which must not pay for the rest."""

from __future__ import annotations

import os
import sys

from claude_mem import hook

# A person runs these too. They are hooks only when nothing follows them and stdin holds a hook's payload.
SHARED = ("context", "save")
PAYLOAD_FIELDS = ("session_id", "hook_event_name")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def main() -> None:
    arguments = sys.argv[1:]
    piped = None
    if _may_be_hook(arguments, terminal=os.isatty(0)):
        piped = hook.read_stdin()
        if _is_event(arguments[0], piped[0]):
            hook.main(sys.argv, piped)
    from claude_mem.cli.main import main as command_line

    sys.exit(command_line(arguments, piped=piped))


def _may_be_hook(arguments: list[str], *, terminal: bool) -> bool:
    if terminal or not arguments or arguments[0] not in hook.COMMANDS or {"-h", "--help"} & set(arguments[1:]):
        return False
    return arguments[0] not in SHARED or not arguments[1:]


def _is_event(command: str, payload: bytes) -> bool:
    """Whether an agent's event is on stdin. For the commands that only agents run, anything but silence is one: what
    can't be read is set aside and counted."""
    return _is_payload(payload) if command in SHARED else bool(payload.strip())


def _is_payload(text: bytes) -> bool:
    """Whether this is a JSON object with the fields of a hook's payload, or what is left of one."""
    text = text.removeprefix(BYTE_ORDER_MARK).lstrip()
    named = [f'"{name}"'.encode() in text for name in PAYLOAD_FIELDS]
    if not text.startswith(b"{") or not any(named):
        return False
    if all(named):
        return True  # as every agent sends it; importing `json` would cost a third of what the hook costs
    import json

    try:
        return not json.loads(text).keys().isdisjoint(PAYLOAD_FIELDS)
    except (ValueError, RecursionError):
        return True  # cut or garbled on its way: the hook sets it aside and counts it


if __name__ == "__main__":
    main()
