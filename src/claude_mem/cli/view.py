"""open: the viewer, in a browser.

The link holds a secret, and command lines are public: every user of the machine can list them. So the browser is handed
the name of a private file that leads on to the link.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from claude_mem import process
from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import CannotDo, NotFound
from claude_mem.spool import write_private

OBSERVATION = "/observation/"
MOST_DIGITS = 19  # of a row's number; more is a word to search for
LEFT_OVER_SECONDS = 300  # a file of a command that was killed; its link ended long before
LOOK_SECONDS = 0.2
# Loaded from a file, so nothing of it is in any history: a refresh after 0 seconds takes the place of the page.
REDIRECT_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>claude-mem</title>
<p>The viewer opens. If it does not: <a href="{link}" rel="noreferrer">open it</a>.</p>
"""


def add_commands(commands: Any) -> None:
    open_ = commands.add_parser(
        "open",
        help="look at the memory in a browser: what is new, search, sessions, projects, cost, settings",
        epilog="The browser is handed a private file with a link that works once and within half a minute. It then"
        " stays logged in until the worker ends, 30 days at most. On a machine without a browser use --print (the link"
        " works for a minute), and `ssh -L 37777:127.0.0.1:37777` from the one that has it.",
    )
    open_.add_argument("what", nargs="*", metavar="WHAT", help="an observation's ID, or words to search for")
    open_.add_argument("--print", dest="only_print", action="store_true", help="print the link, open nothing")
    open_.set_defaults(run=open_viewer)


def open_viewer(options: argparse.Namespace) -> int:
    path = page_of(options.what)
    data_dir = load_forgiving().config.data_dir
    worker = process.start(data_dir)
    _check_exists(Client(worker), path)
    if options.only_print or not _has_screen():
        return _print_link(Client(worker), path)
    link = Client(worker).post("/api/open", {"path": path})
    with _redirect_file(data_dir, link["url"]) as file:
        if not webbrowser.open(file.as_uri()):
            return _print_link(Client(worker), path)
        state = _wait(data_dir, link)
    if state == "waiting":
        text = f"no browser came within {link['seconds']} seconds"
        hint = (
            "a browser in a sandbox (snap, Flatpak) can't read our file: `claude-mem open --print` has a link to paste"
        )
        raise CannotDo(text, hint=hint)
    if state == "misused":
        raise CannotDo("someone else has used the link, too; all browsers are locked out", hint="run it again")
    output.say(f"opened http://127.0.0.1:{worker.port}{path}")
    return 0


def _print_link(client: Client, path: str) -> int:
    link = client.post("/api/open", {"path": path, "printed": True})
    output.line(link["url"])
    output.say(f"it works once, within {link['seconds']} seconds")
    return 0


@contextmanager
def _redirect_file(data_dir: Path, link: str) -> Iterator[Path]:
    """A file that only we can read and that leads a browser to the link; gone afterwards."""
    for old in data_dir.glob("open-*.html"):
        with suppress(FileNotFoundError):  # two commands may tidy up at once
            if old.lstat().st_mtime < time.time() - LEFT_OVER_SECONDS:
                old.unlink()
    file = data_dir / f"open-{secrets.token_hex(8)}.html"
    write_private(file, REDIRECT_PAGE.format(link=link).encode())
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _wait(data_dir: Path, link: dict[str, Any]) -> str:
    """Return what became of the link, as soon as something did; "waiting" if nothing until it ended."""
    end = time.monotonic() + link["seconds"]
    while time.monotonic() < end:
        with suppress(CannotDo):  # the token is just being changed
            state = str(Client.of(data_dir).get(f"/api/open/{link['id']}")["state"])
            if state in ("used", "misused"):
                return state
        time.sleep(LOOK_SECONDS)
    return "waiting"


def page_of(words: list[str]) -> str:
    """An observation by its number, anything else by searching."""
    number = words[0].removeprefix("#") if len(words) == 1 else ""
    if number.isascii() and number.isdigit() and len(number) < MOST_DIGITS:
        return f"{OBSERVATION}{int(number)}"
    return "/search?" + urlencode({"q": " ".join(words)}) if words else "/"


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
