"""The Messages API. The system part is marked for the provider's cache: it is the same for every turn."""

from __future__ import annotations

from typing import Any

from claude_mem.providers.base import Captured, Reply, Request, Usage, Verdict
from claude_mem.providers.http import Http, failed, key_problem
from claude_mem.text import shorten

BASE_URL = "https://api.anthropic.com"
MODEL = "claude-haiku-4-5"
VERSION = "2023-06-01"
NAME_CHARS = 200
_STOPPED = {
    "max_tokens": Verdict.TRUNCATED,
    "refusal": Verdict.REFUSED,
    "model_context_window_exceeded": Verdict.TOO_LONG,
}


class Anthropic:
    provider = "anthropic"

    def __init__(self, http: Http, *, key: str, base_url: str = "", model: str = "") -> None:
        self.http = http
        self.key = key
        self.base_url = (base_url or BASE_URL).rstrip("/").removesuffix("/v1")
        self.model = model or MODEL

    async def ask(self, request: Request, *, resume: str = "", captured: Captured) -> Reply:  # noqa: ARG002 -- stateless
        if problem := key_problem(self.key, "anthropic_api_key"):
            return failed(Verdict.AUTH, problem)
        headers = {"x-api-key": self.key, "anthropic-version": VERSION}
        answer = await self.http.ask(f"{self.base_url}/v1/messages", headers, self._body(request), key=self.key)
        return answer if isinstance(answer, Reply) else _read(answer, self.model)

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "system": [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": request.prompt}],
        }

    async def close(self) -> None:
        await self.http.close()


def _read(answer: dict[str, Any], model: str) -> Reply:
    blocks = answer.get("content")
    said = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return Reply(
        verdict=_STOPPED.get(str(answer.get("stop_reason")), Verdict.OK),
        text="\n".join(text for text in said if isinstance(text, str)),
        usage=_usage(answer.get("usage")),
        model=shorten(str(answer.get("model") or model), NAME_CHARS),
        message=shorten(str(answer.get("stop_reason") or ""), NAME_CHARS),
    )


def _usage(given: Any) -> Usage | None:
    if not isinstance(given, dict) or not count(given.get("output_tokens")):
        return None  # no figures: what was reserved stays booked
    cached, written = count(given.get("cache_read_input_tokens")), count(given.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=count(given.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        written_tokens=written,
        output_tokens=count(given.get("output_tokens")),
    )


def count(given: Any) -> int:
    """A number of tokens, whatever was sent in its place."""
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 40 else 0
