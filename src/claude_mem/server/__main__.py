"""The `claude-mem-server` command."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Run the command line, or say which extra is missing."""
    if importlib.util.find_spec("psycopg") is None or importlib.util.find_spec("psycopg_pool") is None:
        sys.exit("error: the server's libraries are not installed\nhint:  pip install 'claude-mem-py[server]'")
    from claude_mem.server.cli import main as run_command

    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
