"""Parse the command line and call one function. Exit codes: 0 success, 1 failure, 2 wrong usage."""

from __future__ import annotations

import argparse
import difflib
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from claude_mem import __version__, hook
from claude_mem.cli import output
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest
from claude_mem.domain.text import make_printable
from claude_mem.system.log_format import LogFormatter

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

ALSO_FOR_PEOPLE = ("context", "save")

GROUPS = {
    "set up": ("install", "uninstall", "backfill", "config", "model"),
    "find and read": ("search", "list", "show", "why", "timeline", "context", "worth", "cost", "open"),
    "add and correct": ("save", "pin", "unpin", "edit", "forget", "review", "trust", "project"),
    "move and back up": ("space", "import", "export", "backup", "restore"),
    "check and maintain": ("doctor", "audit", "scrub", "reindex", "reprocess", "compress"),
    "control the worker": (
        "start", "stop", "restart", "status", "logs", "retry", "serve", "drain", "token", "routes",
    ),
}  # fmt: skip

COMMAND_NAMES = [name for names in GROUPS.values() for name in names]

EXAMPLES = """\
examples:
  claude-mem install                           connect your agents
  claude-mem backfill                          import the sessions you already had
  claude-mem search why did the wal grow       find a memory
  claude-mem save "Releases are cut from main"
  claude-mem open                              open the viewer

`claude-mem COMMAND --help` describes a command and its options."""

HOOK_HELP = """\
hook commands:
  Agents run these. Each reads one JSON payload from stdin and always exits 0. `context` and `save` act as hooks only
  without arguments and with such a payload on stdin. The others print a description if stdin is empty.
"""


def main(arguments: Sequence[str], *, piped: tuple[bytes, bool] | None = None) -> int:
    """Run one command and return its exit code. `piped`: the result of `hook.read_stdin`, if it was called."""
    if arguments and arguments[0] in hook.COMMANDS and arguments[0] not in ALSO_FOR_PEOPLE:
        return _explain_hook(arguments[0], help_requested=not {"-h", "--help"}.isdisjoint(arguments))
    _log_to_stderr()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMAND_NAMES:
        return _reject_unknown_command(arguments[0])
    parser = build_parser()
    options = parser.parse_args(arguments)
    options.piped = piped
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        run: Run = options.run
        return run(options)
    except ClaudeMemError as problem:
        output.error(str(problem), problem.hint)
        return 2 if isinstance(problem, InvalidRequest) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as problem:
        output.error(str(problem), "run `claude-mem doctor` to find the cause")
        return 1


def _reject_unknown_command(name: str) -> int:
    similar = difflib.get_close_matches(name, COMMAND_NAMES, n=1)
    hint = f"did you mean `claude-mem {similar[0]}`?" if similar else "`claude-mem --help` lists all commands"
    output.error(f"unknown command {name!r}", hint)
    return 2


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class Parser(argparse.ArgumentParser):
    """A parser whose messages, which quote the arguments, pass the same filter as all other output."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(make_printable(message), file)


def _explain_hook(name: str, *, help_requested: bool) -> int:
    """Describe a command that only agents run. Exit 0 even without a payload: agents act on any other exit code of a
    hook, for example by blocking the prompt."""
    print_line = output.line if help_requested else output.info
    print_line(f"`claude-mem {name}` is a hook: agents run it with one JSON object on stdin.")
    print_line(f"{HOOKS[name]}.")
    if not help_requested:
        print_line("stdin was empty, so nothing was done.")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    from claude_mem.cli import (
        audit,
        backfill,
        config,
        doctor,
        install,
        listing,
        observations,
        projects,
        reprocess,
        review,
        scrub,
        search,
        space,
        transfer,
        viewer,
        worker,
        worth,
    )

    parser = Parser(
        prog="claude-mem",
        usage="claude-mem [-h] [--version] COMMAND ...",
        description="A memory for coding agents: each new session knows what earlier sessions did.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"claude-mem {__version__}")
    commands = Commands(parser.add_subparsers(prog="claude-mem", metavar="COMMAND", help=argparse.SUPPRESS))
    families = (
        install, backfill, reprocess, worker, viewer, search, listing, observations, review, projects, space, transfer,
        config, audit, scrub, doctor, worth,
    )  # fmt: skip
    for family in families:
        family.add_commands(commands)
    parser.epilog = _overview(commands.help_lines)
    return parser


class Commands:
    """Adds commands to the parser. The one-line help of a command is also the description on its own help page."""

    def __init__(self, subparsers: Any) -> None:
        self._subparsers = subparsers
        self.help_lines: dict[str, str] = {}

    def add_parser(self, name: str, *, help: str, **options: Any) -> object:
        self.help_lines[name] = help
        return self._subparsers.add_parser(name, help=help, description=f"{help[:1].upper()}{help[1:]}.", **options)


def _overview(help_lines: dict[str, str]) -> str:
    """Format all commands by group, examples and hook commands."""
    parts = [
        "\n".join([f"{group}:", *(f"  {name:<10} {help_lines[name]}" for name in names)])
        for group, names in GROUPS.items()
    ]
    hooks = "\n".join([HOOK_HELP, *(f"  {name:<10} {text}" for name, text in HOOKS.items())])
    return "\n\n".join([*parts, EXAMPLES, hooks])
