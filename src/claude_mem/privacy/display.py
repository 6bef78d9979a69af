"""Stored text made safe to show: one line, no tags, no links that can be followed, external text marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from claude_mem.domain.text import strip_invisible
from claude_mem.domain.validity import mark
from claude_mem.privacy import injection_rules
from claude_mem.privacy.trust import EXTERNAL_NOTE, held_closing_origin, is_held

_TAG_LIKE = re.compile(r"<(?=\s*[/!?a-zA-Z])")
_ESCAPED = re.compile(  # matches from the first backslash of a run only; trying each one would be quadratic
    r"(?:&lt;|&#0*60;?|&#x0*3c;?|%3c|(?<!\\)\\++(?:u003|x3)c)(?=(?:\s|%2f|/|\\)*+(?:private|claude-mem))", re.I
)
_OUR_NAMES = re.compile(r"claude-mem-context", re.I)
_PRIVATE = re.compile(r"‹(?=[\s/\\]*+private)", re.I)  # our own scanner reads look-alikes of `<` as well
_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)?")
_LINK = re.compile(r"\[([^\]\n]{1,200})\]\(\s{0,4}<?(?:[a-z]{2,10}:)?//[^)\n]{0,500}\)?", re.I)
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]{1,10}):(?=//)|\b(javascript|data|mailto):(?=\S)", re.I)


def safe_line(text: str) -> str:
    """Return a text as a single line without invisible characters or tags: `<` before a name becomes `‹`."""
    return neutralize_tags(" ".join(strip_invisible(text).split()))


def defuse_links(text: str) -> str:
    """Make a text safe for injection: like `safe_line`, and with links and images defused, so that showing the text
    loads nothing."""
    bare = _LINK.sub(r"\1", _IMAGE.sub(r"\1", " ".join(strip_invisible(text).split())))
    return safe_line(_ADDRESS.sub(lambda match: f"{match[1] or match[2]}[:]", bare))


def safe_name(text: str, *, instead: str = "") -> str:
    """Return the name of a project or file for injection, or `instead` if the name reads like a sentence: a name can
    carry an instruction."""
    return instead if injection_rules.is_sentence(text) or injection_rules.injection_rule(text) else defuse_links(text)


def neutralize_tags(text: str) -> str:
    """Return a text without tags and without anything our own scanner would read as one, in any encoding."""
    bare = _PRIVATE.sub("(", _ESCAPED.sub("‹", _TAG_LIKE.sub("‹", text)))
    return _OUR_NAMES.sub(lambda match: match[0].replace("-", " "), bare)


def trust_suffix(row: Mapping[str, Any]) -> str:
    """Return the marks of a memory as a suffix of its line: its trust if it is not injected, and its validity if it does
    not hold."""
    trust = f" ⟨{safe_line(row['trust'])}⟩" if is_held(row) else ""
    return trust + mark(row.get("validity") or "", row.get("superseded_by"))


def with_external_note(text: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Append a note if any row is external. The note stands outside the fence and is therefore captured: from then on
    the session counts as having read external text."""
    return f"{text}\n{EXTERNAL_NOTE}" if any(is_held(row) or held_closing_origin(row) for row in rows) else text
