"""The `claude-mem` command. Hook commands go straight to the hook: they must not pay for the rest."""

from __future__ import annotations

import os
import sys

from claude_mem import hook

# A person says these too. An agent says nothing after them, and hands over a payload.
SHARED = ("context", "save")


def main() -> None:
    if _is_hook(sys.argv[1:], terminal=os.isatty(0)):
        hook.main(sys.argv)
    from claude_mem.cli.main import main as command_line

    sys.exit(command_line(sys.argv[1:]))


def _is_hook(arguments: list[str], *, terminal: bool) -> bool:
    if not arguments or arguments[0] not in hook.COMMANDS or {"-h", "--help"} & set(arguments[1:]):
        return False
    return arguments[0] not in SHARED or not (terminal or arguments[1:])


if __name__ == "__main__":
    main()
