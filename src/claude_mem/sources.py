"""Which sources from outside are the team's own: the forge of this repository (`gh`, `glab`) and trackers behind MCP.

Reading one's own pull requests, issues and checks is ordinary work. What stands there may be anyone's all the same: it
is never told, but an agent that has read it may report in its own words (`providers/trust.py`). The open web is another
matter: web pages, searches, documentation, browsers, other repositories. What can't be told apart counts as that.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from claude_mem import fetching, phrases
from claude_mem.fetching import URL, Fetch, is_remote
from claude_mem.projects import normal_remote
from claude_mem.records import ToolUsed
from claude_mem.text import strings

IDE = "mcp__ide__"  # what the editor itself says about the code
FORGES = ("gh", "glab")

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_FILE = tomllib.loads((Path(__file__).parent / "data" / "sources.toml").read_text("utf-8"))
_WEB_SERVERS, _TRACKERS, _WEB_TOOLS, _SEARCH_TOOLS, _TEAM_THINGS, _WRITES, _READS = (
    frozenset(_FILE[name].split())
    for name in ("web_servers", "trackers", "web_tools", "search_tools", "team_things", "writes", "reads")
)


# --- which repository is ours ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where the work is done: the remotes of the repository (`host/owner/name`), or what it is called if it has none
    that we know."""

    remotes: tuple[str, ...] = ()
    name: str = ""

    def owns(self, repository: str) -> bool:
        """`owner/name`, with or without its host, as an address, or as `gh` writes "this one"."""
        given = [part for part in normal_remote(repository.strip("\"'")).casefold().split("/") if part]
        if given[-2:] in (["{owner}", "{repo}"], [":owner", ":repo"]):
            return True
        if len(given) < 2 or "$" in repository:
            return False
        if not self.remotes:
            return given[-1] == self.name.casefold()
        return any(remote.casefold().split("/")[-len(given) :] == given for remote in self.remotes)


# --- asking ----------------------------------------------------------------------------------------------------------


def is_team(tool: ToolUsed, place: Place) -> bool:
    """Does everything that this call brings from outside come from the team's own forge or tracker?"""
    if tool.name == "Bash":
        found = list(fetching.fetches(_command(tool)))
        return bool(found) and all(_is_own_forge(fetch, place) for fetch in found)
    return tool.name.startswith("mcp__") and _is_tracker(tool, place)


def may_be_team(tool: ToolUsed) -> bool:
    """Wherever the work is done."""
    return tool.name == "Bash" or tool.name.startswith("mcp__")


def only_writes(tool: ToolUsed) -> bool:
    """Does it send something away, and answer with nothing that the agent has not said itself?"""
    if tool.name == "Bash":
        found = list(fetching.fetches(_command(tool)))
        sends = bool(found) and all(_sends(fetch) for fetch in found)
    else:
        said = _words(_tool_of(tool.name))
        sends = bool(said & _WRITES) and not said & _READS
    if not sends:
        return False
    answer = "\n".join(phrases.shown(tool.output))
    return not phrases.is_prose_of_others(answer, "\n".join(strings(tool.input)))


def _command(tool: ToolUsed) -> str:
    command = tool.input.get("command")
    return command if isinstance(command, str) else ""


# --- servers of tools ------------------------------------------------------------------------------------------------


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}


def _tool_of(name: str) -> str:
    """`mcp__server__tool` → `tool`; the whole if no server is named."""
    _, _, rest = name.partition("mcp__")
    server, found, tool = rest.partition("__")
    return tool if found else server


def _is_tracker(tool: ToolUsed, place: Place) -> bool:
    server, called = _words(tool.name.removeprefix("mcp__").partition("__")[0]), _words(_tool_of(tool.name))
    if server & _WEB_SERVERS or called & _WEB_TOOLS:
        return False
    if not server & _TRACKERS and called & _SEARCH_TOOLS and not called & _TEAM_THINGS:
        return False
    return _is_about_ours(tool.input, server, called, place)


def _is_about_ours(given: Mapping[str, Any], server: set[str], called: set[str], place: Place) -> bool:
    """Not another repository of the forge, nor an address elsewhere."""
    owner, repo = given.get("owner"), given.get("repo") or given.get("repository")
    if isinstance(repo, str) and repo and not place.owns(f"{owner}/{repo}" if isinstance(owner, str) else repo):
        return False
    if server & {"github", "gitlab"} and called & {"search"} and not _names_ours(given, place):
        return False
    project = given.get("project_id")
    if isinstance(project, str) and "/" in project.replace("%2F", "/") and not place.owns(project.replace("%2F", "/")):
        return False
    urls = [item for item in given.values() if isinstance(item, str) and URL.match(item) and is_remote(item)]
    return all(_is_own_address(url, server, place) for url in urls)


def _names_ours(given: Mapping[str, Any], place: Place) -> bool:
    named = [found for text in strings(dict(given)) for found in re.findall(r"\brepo:([\w.-]+/[\w.-]+)", text)]
    return bool(named) and all(map(place.owns, named))


def _is_own_address(url: str, server: set[str], place: Place) -> bool:
    """`https://linear.app/…` for the server `linear`; of a forge only this repository."""
    host = (urlsplit(url).hostname or "").lower()
    if host in ("github.com", "gitlab.com") or server & {"github", "gitlab", "bitbucket", "gitea"}:
        return owns_page(url, place)
    return any(word in host.split(".") for word in server if len(word) > 3)


def owns_page(url: str, place: Place) -> bool:
    """Is it a page of this repository on its forge?"""
    parts = urlsplit(url)
    path = [part for part in parts.path.split("/") if part]
    if parts.hostname == "api.github.com" and path[:1] == ["repos"]:
        return place.owns("/".join(path[1:3]))
    return len(path) >= 2 and place.owns(f"{parts.hostname}/{path[0]}/{path[1]}")


# --- gh and glab -----------------------------------------------------------------------------------------------------

_SHOWN = re.compile(r"&?\d|/dev/(?:null|stdout|stderr|tty)")  # where output may go that is not kept for later
_OWN_TOPICS = ("api", "issue", "pr", "mr", "run", "ci", "pipeline", "release", "workflow", "label", "repo", "checks")
# Options that have a value.
_VALUED = re.compile(
    r"-[XHfFqtpRLlaASsBbHjc]|--(?:method|header|field|raw-field|jq|template|preview|cache|input|repo|hostname|limit|label"
    r"|author|assignee|state|search|base|head|json|job|branch|user|workflow|milestone|app|attempt|per-page|page)"
)


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word with the option it is a value of; "" for one that stands by itself."""
    option = ""
    for word in words:
        if option:
            yield option, word
            option = ""
        elif word.startswith("--") and "=" in word:
            name, _, given = word.partition("=")
            yield name, given
        elif word.startswith("-") and len(word) > 1:
            attached = not word.startswith("--") and len(word) > 2 and _VALUED.fullmatch(word[:2])
            if attached:
                yield word[:2], word[2:].removeprefix("=")
            elif _VALUED.fullmatch(word):
                option = word
            else:
                yield word, ""
        else:
            yield "", word


def _is_own_forge(fetch: Fetch, place: Place) -> bool:
    """A call of `gh` or `glab` that reads in this repository, and shows what it reads."""
    call = fetch.call
    if call.program not in FORGES or fetch.handed or not all(map(_SHOWN.fullmatch, call.writes)):
        return False
    options = list(_options(call.words))
    named = [word for option, word in options if option in ("-R", "--repo")]
    named += [word.partition("=")[2] for word in call.before if word.startswith("GH_REPO=")]
    if not all(map(place.owns, named)) or any(option == "--hostname" or "repo:" in word for option, word in options):
        return False
    plain = [word for option, word in options if not option]
    if not plain or plain[0] not in _OWN_TOPICS:
        return False
    if not all(owns_page(url, place) for word in plain[1:] for url in URL.findall(word)):
        return False
    if plain[0] == "api":
        return _is_own_endpoint(plain[1] if len(plain) > 1 else "", call.words, place)
    return plain[0] != "repo" or (plain[1:2] == ["view"] and all(map(place.owns, plain[2:3])))


def _is_own_endpoint(endpoint: str, words: Sequence[str], place: Place) -> bool:
    if URL.match(endpoint):
        return owns_page(endpoint, place)
    path = endpoint.strip("/").split("?")[0].split("/")
    if path[0] == "graphql":
        return _is_own_query(" ".join(words), place)
    if path[0] == "repos":
        return place.owns("/".join(path[1:3]))
    if path[0] == "projects":  # of GitLab
        return path[1:2] in ([":id"], [":fullpath"]) or place.owns("/".join(path[1:2]).replace("%2F", "/"))
    return bool(path[0]) and path[0] not in _OPEN_ENDPOINTS and "$" not in endpoint


# Endpoints of GitHub that show what anyone writes anywhere.
_OPEN_ENDPOINTS = (
    "search", "gists", "events", "feeds", "notifications", "users", "orgs", "networks", "repositories", "advisories",
    "marketplace_listing", "projects", "groups",
)  # fmt: skip
_OWNER = re.compile(r"\bowner\s{0,3}[:=]\s{0,3}\\?[\"']?([\w.{}$-]+)")
_NAME = re.compile(r"\b(?:name|repo)\s{0,3}[:=]\s{0,3}\\?[\"']?([\w.{}$-]+)")


def _is_own_query(query: str, place: Place) -> bool:
    """One repository is asked for, by its name, and nothing is searched."""
    owners = {found for found in _OWNER.findall(query) if not found.startswith("$")}
    named = {found for found in _NAME.findall(query) if not found.startswith("$")}
    if re.search(r"\bsearch\s{0,3}\(", query) or len(owners) != 1 or len(named) != 1:
        return False
    return place.owns(f"{owners.pop()}/{named.pop()}")


def _sends(fetch: Fetch) -> bool:
    """`gh api` with a method or fields that change something."""
    if fetch.call.program not in FORGES:
        return False
    options = list(_options(fetch.call.words))
    plain = [word for option, word in options if not option]
    if plain[:1] != ["api"]:
        return False
    if plain[1:2] == ["graphql"]:
        return any(re.match(r"(?:query=)?\s*mutation\b", word) for _, word in options)
    methods = [word.upper() for option, word in options if option in ("-X", "--method")]
    fields = any(option in ("-f", "-F", "--field", "--raw-field", "--input") for option, _ in options)
    return methods[-1] in ("POST", "PUT", "PATCH", "DELETE") if methods else fields
