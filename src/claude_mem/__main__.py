"""The `claude-mem` command. A hook's payload is passed directly to the hook, without importing the command line."""

from __future__ import annotations

import os
import sys

from claude_mem import hook

# Users run these commands too. They are hooks only without arguments and with a hook's payload on stdin.
SHARED_COMMANDS = ("context", "save")
PAYLOAD_FIELDS = ("session_id", "hook_event_name")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def main() -> None:
    """Run the hook if stdin has a hook's payload, otherwise the command line."""
    arguments = sys.argv[1:]
    piped = None
    if _may_be_hook(arguments, terminal=os.isatty(0)):
        piped = hook.read_stdin()
        if _is_event(arguments[0], piped[0]):
            hook.main(sys.argv, piped)
    from claude_mem.cli.main import main as run_command

    sys.exit(run_command(arguments, piped=piped))


def _may_be_hook(arguments: list[str], *, terminal: bool) -> bool:
    if terminal or not arguments or arguments[0] not in hook.COMMANDS or {"-h", "--help"} & set(arguments[1:]):
        return False
    return arguments[0] not in SHARED_COMMANDS or not arguments[1:]


def _is_event(command: str, payload: bytes) -> bool:
    """Return whether stdin holds an agent's event.

    For commands that only agents run, any input counts: an unreadable event is set aside and counted.
    """
    return _is_payload(payload) if command in SHARED_COMMANDS else bool(payload.strip())


def _is_payload(text: bytes) -> bool:
    """Return whether this is a JSON object with the fields of a hook's payload, or a fragment of one."""
    text = text.removeprefix(BYTE_ORDER_MARK).lstrip()
    has_field = [f'"{name}"'.encode() in text for name in PAYLOAD_FIELDS]
    if not text.startswith(b"{") or not any(has_field):
        return False
    if all(has_field):
        return True  # the usual case; importing `json` would take a third of the hook's time
    import json

    try:
        return not json.loads(text).keys().isdisjoint(PAYLOAD_FIELDS)
    except (ValueError, RecursionError):
        return True  # truncated or garbled: the event is set aside and counted


if __name__ == "__main__":
    main()
