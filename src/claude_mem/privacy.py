"""Cuts `<private>…</private>` and our own injected `<claude-mem-context>…</claude-mem-context>` out of text.

It fails closed: an opening tag that is never closed hides everything to the end of the field, and so does the
hundred-and-first tag. It is one pass, so its time grows with the text and with nothing else. The hook uses it before
the first byte reaches the disk, and ingest uses it again.
"""

from __future__ import annotations

import re
from typing import Any

from claude_mem.text import map_strings

MAX_TAGS = 100

# A tag may come in any case, with spaces and attributes, and its brackets as HTML entities or JSON escapes (text of
# text), or of full width. What has no width may stand anywhere in it: nobody sees it. The possessive quantifiers keep
# a run of spaces from being tried twice.
_UNSEEN = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_NAMES = "|".join(f"[{_UNSEEN}]{{0,8}}+".join(name) for name in ("private", "claude-mem-context"))
_TAG = re.compile(
    rf"(?:[<\uff1c]|&lt;|&#0{{0,5}}60;|&#x0{{0,5}}3c;|\\u003c|\\uff1c|\\x3c|%3c)[\s{_UNSEEN}]{{0,64}}+"
    rf"(?P<close>[/\uff0f]|\\/|\\u002f|%2f)?+[\s{_UNSEEN}]{{0,64}}+"
    # The name in ASCII: else `ı` would count as an `i`, which the hook's quick look does not know. The spaces not.
    rf"(?P<name>(?a:{_NAMES}))(?![\w-])",
    re.IGNORECASE,
)
_TAG_END = re.compile(r"[>\uff1e]|\\uff1e|&gt;|&#0{0,5}62;|&#x0{0,5}3e;|\\u003e|\\x3e|%3e", re.IGNORECASE)


# What Gemini puts around a prompt before its hooks see it: what other hooks added, and files that were mentioned.
_ADDED_BEFORE = re.compile(r"(?:\s*<hook_context>.*?</hook_context>)+\s*", re.DOTALL)
_ADDED_AFTER = "--- Content from referenced files ---"


def said(prompt: str) -> str:
    """What the user said, of a prompt as Gemini tells it. To be cut before `hides_all` is asked."""
    added = _ADDED_BEFORE.match(prompt)
    rest, found, _ = prompt[added.end() if added else 0 :].partition(_ADDED_AFTER)
    return rest.removesuffix("\n") if found else rest


def strip(text: str) -> str:
    """The text without its hidden parts; the text itself if there are none."""
    if _TAG.search(text) is None:
        return text  # as almost all are
    kept: list[str] = []
    position = depth = 0
    hiding = ""
    for count, tag in enumerate(_TAG.finditer(text), start=1):
        name, closing = _name(tag), tag["close"]
        if hiding and name != hiding:
            continue
        if not hiding:
            kept.append(text[position : tag.start()])
        if count > MAX_TAGS:
            return "".join(kept)
        if not closing:
            hiding, depth = name, depth + 1
            continue
        depth = max(depth - 1, 0)
        if depth == 0:
            end = _TAG_END.search(text, tag.end())
            if end is None:
                return "".join(kept)
            hiding, position = "", end.end()
    if not hiding:
        kept.append(text[position:])
    return "".join(kept)


def _name(tag: re.Match[str]) -> str:
    return "".join(letter for letter in tag["name"].lower() if letter.isascii())


def strip_all(value: Any) -> Any:
    """The same for every string in a JSON value, keys included."""
    return map_strings(value, strip)


def hides_all(text: str) -> bool:
    """Was there something to say, and all of it private?"""
    return bool(text.strip()) and not strip(text).strip()
