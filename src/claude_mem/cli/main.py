"""Parse the command line and call one function. Exit codes: 0 success, 1 failure, 2 wrong usage."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from claude_mem import __version__, hook
from claude_mem.cli import output
from claude_mem.errors import MemError, Misuse
from claude_mem.log_format import LogFormatter
from claude_mem.text import printable

Run = Callable[[argparse.Namespace], int]

HOOKS = {
    "context": "SessionStart: reply with what earlier sessions did",
    "new": "UserPromptSubmit: record the prompt, and reply with related memories",
    "save": "PostToolUse: record the tool call",
    "fail": "PostToolUseFailure: record the error, and reply with what fixed it before",
    "file": "PreToolUse of a file: reply with what is known about the file",
    "summary": "Stop, SubagentStop: record the end of a turn",
    "cleanup": "SessionEnd: record the end of the session",
    "compact": "PreCompact: record that the conversation is about to be compacted",
}

PEOPLE_RUN = ("context", "save")

EPILOG = """\
examples:
  claude-mem install                    connect the coding agents on this machine
  claude-mem backfill                   import the sessions you already had
  claude-mem search why did the wal grow
  claude-mem save "Releases are cut from main"
  claude-mem open                       open the viewer in a browser
  claude-mem doctor                     check the installation

`claude-mem COMMAND --help` describes a command and its options.

hook commands:
  Agents run these. Each reads one JSON payload from stdin and always exits 0. `context` and `save` act as hooks only
  without arguments and with such a payload on stdin. The others print a description if stdin is empty.

""" + "\n".join(f"  {name:<10} {text}" for name, text in HOOKS.items())


def main(arguments: Sequence[str], *, piped: tuple[bytes, bool] | None = None) -> int:
    """Run one command and return its exit code. `piped`: the result of `hook.read_stdin`, if it was called."""
    if arguments and arguments[0] in hook.COMMANDS and arguments[0] not in PEOPLE_RUN:
        return _explain_hook(arguments[0], help_requested=not {"-h", "--help"}.isdisjoint(arguments))
    _log_to_stderr()
    parser = build_parser()
    options = parser.parse_args(arguments)
    options.piped = piped
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        run: Run = options.run
        return run(options)
    except MemError as problem:
        output.error(str(problem), problem.hint)
        return 2 if isinstance(problem, Misuse) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as problem:
        output.error(str(problem), "run `claude-mem doctor` to find the cause")
        return 1


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class Parser(argparse.ArgumentParser):
    """A parser whose messages, which quote the arguments, pass the same filter as all other output."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable(message), file)


def _explain_hook(name: str, *, help_requested: bool) -> int:
    """Describe a command that only agents run. Exit 0 even without a payload: agents act on any other exit code of a
    hook, for example by blocking the prompt."""
    print_line = output.line if help_requested else output.say
    print_line(f"`claude-mem {name}` is a hook: agents run it with one JSON object on stdin.")
    print_line(f"{HOOKS[name]}.")
    if not help_requested:
        print_line("stdin was empty, so nothing was done.")
    return 0


def build_parser() -> argparse.ArgumentParser:
    from claude_mem.cli import (
        audit,
        care,
        find,
        keep,
        look,
        move,
        past,
        project,
        reprocess,
        run,
        scrub,
        settings,
        setup,
        trust,
        view,
    )

    parser = Parser(
        prog="claude-mem",
        description="A memory for coding agents: each new session knows what earlier sessions did.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"claude-mem {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for family in (
        setup,
        past,
        reprocess,
        run,
        view,
        find,
        look,
        keep,
        trust,
        project,
        move,
        settings,
        audit,
        scrub,
        care,
    ):
        family.add_commands(commands)
    return parser
