"""open: open the viewer in a browser.

The link contains a secret, and command lines are public: every user of the machine can list them. So the browser is
given the name of a private file that redirects to the link.
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

from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import NotFound, OperationFailed
from claude_mem.system import process
from claude_mem.system.spool import write_private
from claude_mem.worker.http.schemas.viewer import CREATE_LINK, SHOW_LINK, Link, LinkId, LinkRequest

OBSERVATION = "/observation/"
MAX_DIGITS = 19  # of an ID; longer numbers are searched for
LEFT_OVER_SECONDS = 300  # age of a file left by a command that was killed; its link has expired long before
LOOK_SECONDS = 0.2
# Not in any browser history: a refresh after 0 seconds replaces the page.
REDIRECT_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>claude-mem</title>
<p>Opening the viewer. If nothing happens, <a href="{link}" rel="noreferrer">click here</a>.</p>
"""


def add_commands(commands: Any) -> None:
    """Add `open`."""
    open_ = commands.add_parser(
        "open",
        help="open the viewer in a browser",
        epilog="The browser is logged in by a link that works once, within 30 seconds, and stays logged in until the"
        " worker stops, at most for 30 days. On a remote machine, use --print (that link works for one minute) and"
        " forward the port with `ssh -L 37777:127.0.0.1:37777`.",
    )
    open_.add_argument("what", nargs="*", metavar="WHAT", help="the ID of an observation, or words to search for")
    open_.add_argument("--print", dest="only_print", action="store_true", help="print the link instead of opening it")
    open_.set_defaults(run=open_viewer)


def open_viewer(options: argparse.Namespace) -> int:
    """Open the viewer in a browser, or print a link to it."""
    path = viewer_path(options.what)
    data_dir = load_lenient().config.data_dir
    worker = process.ensure_worker(data_dir)
    _check_exists(Client(worker), path)
    if options.only_print or not _has_screen():
        return _print_link(Client(worker), path)
    link = Client(worker).call(CREATE_LINK, LinkRequest(path))
    with _redirect_file(data_dir, link.url) as file:
        if not webbrowser.open(file.as_uri()):
            return _print_link(Client(worker), path)
        state = _wait(data_dir, link)
    if state == "waiting":
        text = f"no browser opened the link within {link.seconds} seconds"
        hint = "sandboxed browsers (snap, Flatpak) can't read the file; paste the link of `claude-mem open --print`"
        raise OperationFailed(text, hint=hint)
    if state == "misused":
        raise OperationFailed(
            "the link was used more than once, so all browsers were logged out", hint="run `claude-mem open` again"
        )
    output.info(f"opened http://127.0.0.1:{worker.port}{path}")
    return 0


def _print_link(client: Client, path: str) -> int:
    link = client.call(CREATE_LINK, LinkRequest(path, printed=True))
    output.line(link.url)
    output.info(f"the link works once, within {link.seconds} seconds")
    return 0


@contextmanager
def _redirect_file(data_dir: Path, link: str) -> Iterator[Path]:
    """Write a private file that redirects a browser to the link, and delete it afterwards."""
    for old in data_dir.glob("open-*.html"):
        with suppress(FileNotFoundError):  # two commands may clean up at the same time
            if old.lstat().st_mtime < time.time() - LEFT_OVER_SECONDS:
                old.unlink()
    file = data_dir / f"open-{secrets.token_hex(8)}.html"
    write_private(file, REDIRECT_PAGE.format(link=link).encode())
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _wait(data_dir: Path, link: Link) -> str:
    """Wait until the link is used, and return its state; "waiting" if it expired unused."""
    end = time.monotonic() + link.seconds
    while time.monotonic() < end:
        with suppress(OperationFailed):  # the token may be replaced at this moment
            state = Client.of(data_dir).call(SHOW_LINK, LinkId(link.id)).state
            if state in ("used", "misused"):
                return state
        time.sleep(LOOK_SECONDS)
    return "waiting"


def viewer_path(words: list[str]) -> str:
    """Return the viewer's path for an observation's ID, or for a search."""
    number = words[0].removeprefix("#") if len(words) == 1 else ""
    if number.isascii() and number.isdigit() and len(number) < MAX_DIGITS:
        return f"{OBSERVATION}{int(number)}"
    return "/search?" + urlencode({"q": " ".join(words)}) if words else "/"


def _check_exists(client: Client, path: str) -> None:
    """Raise if this is the page of an observation that does not exist. A forgotten observation still has a page."""
    if path.startswith(OBSERVATION):
        try:
            client.get(f"/api{path}/page")
        except NotFound:
            number = path.removeprefix(OBSERVATION)
            hint = "find IDs with `claude-mem list` or `claude-mem search`"
            raise NotFound(f"no observation {number}", hint=hint) from None


def _has_screen() -> bool:
    """Return whether a graphical browser can open. Otherwise a text browser would start, or nothing."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
