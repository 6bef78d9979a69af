"""Parses the command line and calls one function. Exit 0 done, 1 could not, 2 misused."""

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
    "context": "SessionStart: answer with what earlier sessions did",
    "new": "UserPromptSubmit: note what was asked, and answer with what is remembered about it",
    "save": "PostToolUse: note what was done",
    "fail": "PostToolUseFailure: note it, and answer with what solved the same error before",
    "file": "PreToolUse of a file: answer with what is known about it",
    "summary": "Stop, SubagentStop: a turn is over",
    "cleanup": "SessionEnd: the session is over",
    "compact": "PreCompact: the conversation is about to be compacted",
}

PEOPLE_RUN = ("context", "save")

EPILOG = """\
Hook commands (an agent runs them; each reads one JSON payload on stdin and always exits 0; `context` and `save` are
hooks only when nothing follows them and stdin has such a payload; the others, run with nothing on stdin, only explain
themselves):
""" + "\n".join(f"  {name:<10} {text}" for name, text in HOOKS.items())


def main(arguments: Sequence[str], *, piped: tuple[bytes, bool] | None = None) -> int:
    """Run one command; its exit code. `piped`: what `hook.read_stdin` has returned, if stdin was read already."""
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
        output.error(str(problem), "`claude-mem doctor` looks for the cause")
        return 1


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class Parser(argparse.ArgumentParser):
    """A parser whose messages, which repeat what was typed, pass the same filter as everything that is printed."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable(message), file)


def _explain_hook(name: str, *, help_requested: bool) -> int:
    """Describe a command that only agents run. Exit 0 also when no payload came: an agent takes another exit code of a
    hook as an order, such as to block the prompt."""
    print_line = output.line if help_requested else output.say
    print_line(f"`claude-mem {name}` is a hook: agents run it, with one JSON object on stdin.")
    print_line(f"{HOOKS[name]}.")
    if not help_requested:
        print_line("There was nothing on stdin, so nothing was done.")
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
        description="A memory for coding agents: what one session did, the next one knows.",
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
