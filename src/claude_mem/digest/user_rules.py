"""Find the standing rules of a turn: what the user insists on, in the user's own words.

Rules come from the prompt, and from what the user said when rejecting a tool call. A rejected call arrives as the
output of a tool, so its words count as the user's only if no tool could have written them, and they are checked as
strictly as any output.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from claude_mem.domain.records import Draft, Fact, ObservationType, Prompted, ToolUsed, Turn
from claude_mem.domain.rules import RuleStatement, find_statements, is_quoted_from, normalize_rule
from claude_mem.privacy import phrases, trust

MAX_RULES = 5  # per turn; more are a document
KEY = "rule:"

_CLAUDE = re.compile(
    r"(?:The user doesn't want to (?:proceed with this tool use|take this action right now)\.|Permission for this tool use was"
    r" denied\. The tool use was rejected|The agent proposed a plan that was rejected by the user\.)"
)
_CLAUDE_WORDS = re.compile(r"(?:To tell you how to proceed, t|T)he user said:\s*(.*)", re.S)
_CLAUDE_NOTE = re.compile(r"\n\s{0,8}Note: The user's next message may contain .*+", re.S)
_CLARIFIES = "The user wants to clarify these questions."  # the client's words about a dialog, not the user's
_OPENCODE = re.compile(
    r"The user rejected permission to use this specific tool call(?: with the following feedback:\s*(.*)|\.?\s*\Z)",
    re.S,
)
_OTHERS = re.compile(
    r"(?:Exit code \d+\n)?\[Request interrupted by user|\[Operation Cancelled\] Reason: User"
    r"|[\w ]{0,40}(?:failed: )?(?:rejected|aborted|cancell?ed|declined|denied) by (?:the )?user\b"
)


def rules(turn: Turn) -> list[Draft]:
    """Return the standing rules that the user stated in a turn."""
    drafts: dict[str, Draft] = {}
    for seq, text in _texts(turn):
        for stated in find_statements(text):
            draft = _draft(stated, seq)
            drafts.setdefault(draft.key, draft)
    return list(drafts.values()) if len(drafts) <= MAX_RULES else []


def quoted_rule(turn: Turn, words: str) -> Draft | None:
    """Return a rule found by a model, if its words are the user's own in the turn and apply beyond one occasion."""
    for seq, text in _texts(turn):
        if is_quoted_from(words, text):
            return _draft(RuleStatement(words, words), seq)
    return None


def rejection(body: ToolUsed) -> str | None:
    """Return what the user said when rejecting or interrupting a tool call, "" if nothing; None for any other call."""
    text = _output(body)
    if not body.failed or not text:
        return None
    if _CLAUDE.match(text):
        words = _CLAUDE_WORDS.search(text)
        spoken = _CLAUDE_NOTE.sub("", words[1]).strip() if words else ""
        return "" if spoken.startswith(_CLARIFIES) else spoken
    if match := _OPENCODE.match(text):
        return (match[1] or "").strip()
    return "" if _OTHERS.match(text) else None


def rule_key(words: str) -> str:
    """Return the key of a rule. The same words have the same key in every session."""
    return KEY + hashlib.blake2b(normalize_rule(words).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _texts(turn: Turn) -> Iterator[tuple[int, str]]:
    """Yield each text of the user with its event."""
    if not any(isinstance(body, Prompted) for body in turn.bodies) and turn.seqs:
        yield turn.seqs[0], phrases.own_words(turn.prompt)  # the events were purged, the prompt was kept
    for seq, body in zip(turn.seqs, turn.bodies, strict=True):
        if isinstance(body, Prompted):
            yield seq, phrases.own_words(body.text)
        elif isinstance(body, ToolUsed) and _is_users(body, turn) and (words := rejection(body)):
            yield seq, words


def _is_users(body: ToolUsed, turn: Turn) -> bool:
    """Return whether the words of a rejected call can only be the user's. A tool server writes its own errors and a
    page its own text, and only Claude Code is known to prefix the output of a failed command with its exit code."""
    local = not body.name.startswith("mcp__") and trust.origin_of(body, cwd=turn.cwd or turn.root) in trust.TRUSTED
    return local and turn.host in ("", "claude")


def _output(body: ToolUsed) -> str:
    """Return the output if it is text, as hooks and transcripts report it."""
    blocks = body.output if isinstance(body.output, list) else [{"text": body.output}]
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str)).strip().removeprefix("Error: ")


def _draft(stated: RuleStatement, seq: int) -> Draft:
    return Draft(
        key=rule_key(stated.title),
        type=ObservationType.RULE,
        title=stated.title,
        narrative=stated.sentence,
        facts=(Fact(stated.sentence, (seq,)),),
        concepts=("pattern",),
    )
