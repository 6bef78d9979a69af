"""The `claude-mem` command. Hook commands go straight to the hook: they must not pay for the rest."""

from __future__ import annotations

import sys

from claude_mem import hook


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in hook.COMMANDS and not {"-h", "--help"} & set(sys.argv[2:]):
        hook.main(sys.argv)
    from claude_mem.cli.main import main as command_line

    sys.exit(command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
