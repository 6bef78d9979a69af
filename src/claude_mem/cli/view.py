"""open: the viewer, in a browser."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from typing import Any
from urllib.parse import urlencode

from claude_mem import process
from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import NotFound

OBSERVATION = "/observation/"
MOST_DIGITS = 19  # of a row's number; more is a word to search for


def add_commands(commands: Any) -> None:
    open_ = commands.add_parser(
        "open",
        help="look at the memory in a browser: what is new, search, sessions, projects, cost, settings",
        epilog="The link that is opened works once and within five minutes; the browser keeps a cookie for 30 days. On"
        " a machine without a browser use --print, and `ssh -L 37777:127.0.0.1:37777` from the one that has it.",
    )
    open_.add_argument("what", nargs="*", metavar="WHAT", help="an observation's ID, or words to search for")
    open_.add_argument("--print", dest="only_print", action="store_true", help="print the link, open nothing")
    open_.set_defaults(run=open_viewer)


def open_viewer(options: argparse.Namespace) -> int:
    path = page_of(options.what)
    worker = process.start(load_forgiving().config.data_dir)
    _check_exists(Client(worker), path)
    link = Client(worker).post("/api/open", {"path": path})["url"]
    if options.only_print or not _has_screen() or not webbrowser.open(link):
        output.line(link)
        output.say("it works once, within five minutes")
        return 0
    output.say(f"opened http://127.0.0.1:{worker.port}{path}")
    return 0


def page_of(what: list[str]) -> str:
    """An observation by its number, anything else by searching."""
    number = what[0].removeprefix("#") if len(what) == 1 else ""
    if number.isascii() and number.isdigit() and len(number) < MOST_DIGITS:
        return f"{OBSERVATION}{int(number)}"
    return "/search?" + urlencode({"q": " ".join(what)}) if what else "/"


def _check_exists(client: Client, path: str) -> None:
    """An error if this is the page of an observation that does not exist. A forgotten one still has a page."""
    if path.startswith(OBSERVATION):
        try:
            client.get(f"/api{path}/page")
        except NotFound:
            number = path.removeprefix(OBSERVATION)
            hint = "`claude-mem list` or `claude-mem search` shows what there is"
            raise NotFound(f"there is no observation {number}", hint=hint) from None


def _has_screen() -> bool:
    """Without one, a browser in the terminal would start, or nothing."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
