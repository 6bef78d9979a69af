"""Which external sources are the team's own: the forge of this repository (`gh`, `glab`) and trackers behind MCP.

Reading the project's own pull requests, issues and checks is ordinary work. Their text may still be written by anyone:
it is never injected, but an agent that has read it may report in its own words (`digest/provenance.py`). The open web
(web pages, searches, documentation, browsers, other repositories) is treated more strictly, and so is any source that
cannot be classified.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from claude_mem.domain.records import ToolUsed
from claude_mem.domain.text import iter_strings
from claude_mem.privacy import phrases, shell
from claude_mem.privacy.shell import URL, Fetch, is_remote
from claude_mem.system.project_folders import normalize_remote

IDE_TOOL_PREFIX = "mcp__ide__"  # prefix of the editor's own tools, which report on the code
FORGES = ("gh", "glab")

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "sources.toml").read_text("utf-8"))
_WEB_SERVERS, _TRACKERS, _WEB_TOOLS, _SEARCH_TOOLS, _TEAM_THINGS, _WRITES, _READS = (
    frozenset(_FILE[name].split())
    for name in ("web_servers", "trackers", "web_tools", "search_tools", "team_things", "writes", "reads")
)


# --- the project's own repository ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProjectRepository:
    """The repository in which the work is done: its remotes (`host/owner/name`), or its name if no remote is known."""

    remotes: tuple[str, ...] = ()
    name: str = ""

    def owns(self, repository: str) -> bool:
        """Return whether `repository` is this one: `owner/name` with or without a host, a URL, or the placeholder that
        `gh` uses for the current repository."""
        parts = [part for part in normalize_remote(repository.strip("\"'")).casefold().split("/") if part]
        if parts[-2:] in (["{owner}", "{repo}"], [":owner", ":repo"]):
            return True
        if len(parts) < 2 or "$" in repository:
            return False
        if not self.remotes:
            return parts[-1] == self.name.casefold()
        return any(remote.casefold().split("/")[-len(parts) :] == parts for remote in self.remotes)


# --- classification of tool calls ------------------------------------------------------------------------------------


def is_team_source(tool: ToolUsed, place: ProjectRepository) -> bool:
    """Return whether everything that this call fetches comes from the team's own forge or tracker."""
    if tool.name == "Bash":
        fetches = list(shell.find_fetches(_command(tool)))
        return bool(fetches) and all(_is_own_forge(fetch, place) for fetch in fetches)
    return tool.name.startswith("mcp__") and _is_tracker(tool, place)


def may_be_team_source(tool: ToolUsed) -> bool:
    """Return whether `is_team_source` can be true of this call in any repository."""
    return tool.name == "Bash" or tool.name.startswith("mcp__")


def only_writes(tool: ToolUsed) -> bool:
    """Return whether a call only sends data, and its answer has no prose that was not in its input."""
    if tool.name == "Bash":
        fetches = list(shell.find_fetches(_command(tool)))
        sends = bool(fetches) and all(_sends(fetch) for fetch in fetches)
    else:
        tool_words = _words(_tool_part(tool.name))
        sends = bool(tool_words & _WRITES) and not tool_words & _READS
    if not sends:
        return False
    answer = "\n".join(phrases.output_texts(tool.output))
    return not phrases.has_foreign_prose(answer, "\n".join(iter_strings(tool.input)))


def _command(tool: ToolUsed) -> str:
    command = tool.input.get("command")
    return command if isinstance(command, str) else ""


# --- MCP servers -----------------------------------------------------------------------------------------------------


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}


def _tool_part(name: str) -> str:
    """Return the tool part of `mcp__server__tool`; everything after `mcp__` if no server is given."""
    _, _, rest = name.partition("mcp__")
    server, separator, tool = rest.partition("__")
    return tool if separator else server


def _is_tracker(tool: ToolUsed, place: ProjectRepository) -> bool:
    server_words, tool_words = _words(tool.name.removeprefix("mcp__").partition("__")[0]), _words(_tool_part(tool.name))
    if server_words & _WEB_SERVERS or tool_words & _WEB_TOOLS:
        return False
    if not server_words & _TRACKERS and tool_words & _SEARCH_TOOLS and not tool_words & _TEAM_THINGS:
        return False
    return _concerns_own_repository(tool.input, server_words, tool_words, place)


def _concerns_own_repository(
    tool_input: Mapping[str, Any], server_words: set[str], tool_words: set[str], place: ProjectRepository
) -> bool:
    """Return whether the input of a call refers to no other repository of the forge and to no other site."""
    owner, repo = tool_input.get("owner"), tool_input.get("repo") or tool_input.get("repository")
    if isinstance(repo, str) and repo and not place.owns(f"{owner}/{repo}" if isinstance(owner, str) else repo):
        return False
    if server_words & {"github", "gitlab"} and tool_words & {"search"} and not _names_own_repository(tool_input, place):
        return False
    project = tool_input.get("project_id")
    if isinstance(project, str) and "/" in project.replace("%2F", "/") and not place.owns(project.replace("%2F", "/")):
        return False
    urls = [item for item in tool_input.values() if isinstance(item, str) and URL.match(item) and is_remote(item)]
    return all(_is_own_url(url, server_words, place) for url in urls)


def _names_own_repository(tool_input: Mapping[str, Any], place: ProjectRepository) -> bool:
    repos = [repo for text in iter_strings(dict(tool_input)) for repo in re.findall(r"\brepo:([\w.-]+/[\w.-]+)", text)]
    return bool(repos) and all(map(place.owns, repos))


def _is_own_url(url: str, server_words: set[str], place: ProjectRepository) -> bool:
    """Return whether a URL belongs to the server (`https://linear.app/…` for `linear`); on a forge, to this
    repository."""
    host = (urlsplit(url).hostname or "").lower()
    if host in ("github.com", "gitlab.com") or server_words & {"github", "gitlab", "bitbucket", "gitea"}:
        return is_own_page(url, place)
    return any(word in host.split(".") for word in server_words if len(word) > 3)


def is_own_page(url: str, place: ProjectRepository) -> bool:
    """Return whether a URL is a page of this repository on its forge."""
    parts = urlsplit(url)
    path = [part for part in parts.path.split("/") if part]
    if parts.hostname == "api.github.com" and path[:1] == ["repos"]:
        return place.owns("/".join(path[1:3]))
    return len(path) >= 2 and place.owns(f"{parts.hostname}/{path[0]}/{path[1]}")


# --- gh and glab -----------------------------------------------------------------------------------------------------

_NOT_SAVED = re.compile(r"&?\d|/dev/(?:null|stdout|stderr|tty)")  # redirections that do not save output to a file
_OWN_TOPICS = ("api", "issue", "pr", "mr", "run", "ci", "pipeline", "release", "workflow", "label", "repo", "checks")
# Options that take a value.
_TAKES_VALUE = re.compile(
    r"-[XHfFqtpRLlaASsBbHjc]|--(?:method|header|field|raw-field|jq|template|preview|cache|input|repo|hostname|limit|label"
    r"|author|assignee|state|search|base|head|json|job|branch|user|workflow|milestone|app|attempt|per-page|page)"
)


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value) pairs; a positional argument has the option ""."""
    option = ""
    for word in words:
        if option:
            yield option, word
            option = ""
        elif word.startswith("--") and "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        elif word.startswith("-") and len(word) > 1:
            is_attached = not word.startswith("--") and len(word) > 2 and _TAKES_VALUE.fullmatch(word[:2])
            if is_attached:
                yield word[:2], word[2:].removeprefix("=")
            elif _TAKES_VALUE.fullmatch(word):
                option = word
            else:
                yield word, ""
        else:
            yield "", word


def _is_own_forge(fetch: Fetch, place: ProjectRepository) -> bool:
    """Return whether a call of `gh` or `glab` reads from this repository only and does not save its output."""
    call = fetch.call
    if call.program not in FORGES or fetch.takes_input_arguments or not all(map(_NOT_SAVED.fullmatch, call.writes)):
        return False
    options = list(_options(call.words))
    repos = [word for option, word in options if option in ("-R", "--repo")]
    repos += [word.partition("=")[2] for word in call.before if word.startswith("GH_REPO=")]
    if not all(map(place.owns, repos)) or any(option == "--hostname" or "repo:" in word for option, word in options):
        return False
    plain = [word for option, word in options if not option]
    if not plain or plain[0] not in _OWN_TOPICS:
        return False
    if not all(is_own_page(url, place) for word in plain[1:] for url in URL.findall(word)):
        return False
    if plain[0] == "api":
        return _is_own_endpoint(plain[1] if len(plain) > 1 else "", call.words, place)
    return plain[0] != "repo" or (plain[1:2] == ["view"] and all(map(place.owns, plain[2:3])))


def _is_own_endpoint(endpoint: str, words: Sequence[str], place: ProjectRepository) -> bool:
    if URL.match(endpoint):
        return is_own_page(endpoint, place)
    path = endpoint.strip("/").split("?")[0].split("/")
    if path[0] == "graphql":
        return _is_own_query(" ".join(words), place)
    if path[0] == "repos":
        return place.owns("/".join(path[1:3]))
    if path[0] == "projects":  # GitLab
        return path[1:2] in ([":id"], [":fullpath"]) or place.owns("/".join(path[1:2]).replace("%2F", "/"))
    return bool(path[0]) and path[0] not in _OPEN_ENDPOINTS and "$" not in endpoint


# GitHub endpoints that return content written by anyone in any repository.
_OPEN_ENDPOINTS = (
    "search", "gists", "events", "feeds", "notifications", "users", "orgs", "networks", "repositories", "advisories",
    "marketplace_listing", "projects", "groups",
)  # fmt: skip
_OWNER = re.compile(r"\bowner\s{0,3}[:=]\s{0,3}\\?[\"']?([\w.{}$-]+)")
_NAME = re.compile(r"\b(?:name|repo)\s{0,3}[:=]\s{0,3}\\?[\"']?([\w.{}$-]+)")


def _is_own_query(query: str, place: ProjectRepository) -> bool:
    """Return whether a GraphQL query names exactly this repository and does not search."""
    owners = {owner for owner in _OWNER.findall(query) if not owner.startswith("$")}
    names = {name for name in _NAME.findall(query) if not name.startswith("$")}
    if re.search(r"\bsearch\s{0,3}\(", query) or len(owners) != 1 or len(names) != 1:
        return False
    return place.owns(f"{owners.pop()}/{names.pop()}")


def _sends(fetch: Fetch) -> bool:
    """Return whether a call is `gh api` or `glab api` with a method or fields that change something."""
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
