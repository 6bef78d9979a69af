"""The Anthropic Messages API. The system prompt is marked for caching, because it is the same for every turn."""

from __future__ import annotations

from typing import Any

from claude_mem.digest.models.base import Reply, Request, SessionCallback, Usage, Verdict
from claude_mem.digest.models.http import HttpClient, error_reply, find_key_problem
from claude_mem.domain.text import shorten

BASE_URL = "https://api.anthropic.com"
MODEL = "claude-haiku-4-5"
VERSION = "2023-06-01"
NAME_CHARS = 200
_STOP_VERDICTS = {
    "max_tokens": Verdict.TRUNCATED,
    "refusal": Verdict.REFUSED,
    "model_context_window_exceeded": Verdict.TOO_LONG,
}


class Anthropic:
    provider = "anthropic"

    def __init__(self, http: HttpClient, *, key: str, base_url: str = "", model: str = "") -> None:
        self.http = http
        self.key = key
        self.base_url = (base_url or BASE_URL).rstrip("/").removesuffix("/v1")
        self.model = model or MODEL

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:  # noqa: ARG002 -- stateless
        if problem := find_key_problem(self.key, "anthropic_api_key"):
            return error_reply(Verdict.AUTH, problem)
        headers = {"x-api-key": self.key, "anthropic-version": VERSION}
        answer = await self.http.ask(f"{self.base_url}/v1/messages", headers, self._body(request), key=self.key)
        return answer if isinstance(answer, Reply) else _parse_answer(answer, self.model)

    def _body(self, request: Request) -> dict[str, object]:
        return {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "system": [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": request.prompt}],
        }

    async def close(self) -> None:
        await self.http.close()


def _parse_answer(answer: dict[str, Any], model: str) -> Reply:
    blocks = answer.get("content")
    texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return Reply(
        verdict=_STOP_VERDICTS.get(str(answer.get("stop_reason")), Verdict.OK),
        text="\n".join(text for text in texts if isinstance(text, str)),
        usage=_usage(answer.get("usage")),
        model=shorten(str(answer.get("model") or model), NAME_CHARS),
        message=shorten(str(answer.get("stop_reason") or ""), NAME_CHARS),
    )


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict) or not token_count(usage.get("output_tokens")):
        return None  # no counts: the reserved amount stays booked
    cached, written = (
        token_count(usage.get("cache_read_input_tokens")),
        token_count(usage.get("cache_creation_input_tokens")),
    )
    return Usage(
        input_tokens=token_count(usage.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        written_tokens=written,
        output_tokens=token_count(usage.get("output_tokens")),
    )


def token_count(value: Any) -> int:
    """Return a token count from an answer; 0 for anything that is not a plausible count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else 0
