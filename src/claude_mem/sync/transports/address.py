"""Where a space is exchanged: the URL that is stored, and the transport that it stands for."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from claude_mem.domain.errors import InvalidRequest
from claude_mem.sync.keys import FOLDER, SpaceKeys
from claude_mem.sync.transports.base import Transport

MAX_URL_CHARS = 2_000
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
HINT = "use a folder, a git remote (git@host:path.git, git+https://…) or the server's https:// address"
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!/)[^\s]+")


def normalize(text: str, *, base: Path) -> str:
    """Return the URL of what a person typed, or raise `InvalidRequest`. `base`: for relative paths."""
    if not text or len(text) > MAX_URL_CHARS or any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise InvalidRequest("the address of the space is empty, too long or contains control characters", hint=HINT)
    if _SCP.fullmatch(text):
        user_host, _, path = text.partition(":")
        return _check(f"git+ssh://{user_host}/{path}")
    if text.startswith("ssh://") or (text.startswith("https://") and text.endswith(".git")):
        return _check(f"git+{text}")
    if "://" in text:
        return _check(text)
    folder = base / Path(text).expanduser()
    is_git = (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir())
    return _check(f"{'git+' if is_git else ''}file://{quote(str(folder))}")


def _check(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, password = parts.hostname or "", parts.password
    except ValueError as error:
        raise InvalidRequest(f"{url} is not a valid address: {error}", hint=HINT) from error
    scheme = parts.scheme.removeprefix("git+")
    is_git = parts.scheme.startswith("git+")
    if scheme not in ("file", "http", "https", *(["ssh"] if is_git else [])):
        raise InvalidRequest(f"{parts.scheme}:// is not a transport of spaces", hint=HINT)
    if scheme == "file" and (host or not unquote(parts.path).startswith("/")):
        raise InvalidRequest(f"{url} is not the absolute path of a folder on this machine", hint="file:///…")
    if scheme != "file" and (not host or host.startswith("-")):
        raise InvalidRequest(f"{url} has no valid host", hint=HINT)
    if scheme == "http" and host not in LOCAL_HOSTS:
        raise InvalidRequest("http:// is only accepted for this machine", hint="use https://")
    if password:
        raise InvalidRequest("the address contains a password", hint="leave it out; git asks its credential helper")
    return url


def open_transport(url: str, data_dir: Path, keys: SpaceKeys) -> Transport:
    """Return the transport of a normalized URL. Nothing is opened or sent yet."""
    return open_for(url, data_dir, keys.space, keys.token)


def open_for(url: str, data_dir: Path, space: str, token: str = "") -> Transport:
    """Return the transport of a space whose keys are not here yet."""
    parts = urlsplit(_check(url))
    if parts.scheme == "file":
        from claude_mem.sync.transports.folder import FolderTransport

        return FolderTransport(Path(unquote(parts.path)), space)
    if parts.scheme.startswith("git+"):
        from claude_mem.sync.transports.git import GitTransport

        address = unquote(parts.path) if parts.scheme == "git+file" else url.removeprefix("git+")
        return GitTransport(data_dir / FOLDER / space / "git", address, space)
    from claude_mem.sync.transports.server import ServerTransport

    return ServerTransport(url, space, token)
