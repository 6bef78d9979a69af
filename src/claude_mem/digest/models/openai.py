"""The OpenAI-compatible API, `POST /chat/completions`, which most servers support. Well-known servers have presets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from claude_mem.digest.models.anthropic import NAME_CHARS, token_count
from claude_mem.digest.models.base import Reply, Request, SessionCallback, Usage, Verdict
from claude_mem.digest.models.http import HttpClient, error_reply, find_key_problem
from claude_mem.domain.text import shorten

_STOP_VERDICTS = {"length": Verdict.TRUNCATED, "content_filter": Verdict.REFUSED}
_THINKING = re.compile(r"^\s*<think>.*?(?:</think>|\Z)", re.S)  # some local models print their reasoning first


@dataclass(frozen=True, slots=True)
class Preset:
    base_url: str
    model: str = ""  # empty: the model that the server has loaded
    needs_key: bool = True


PRESETS = {
    "openai": Preset("https://api.openai.com/v1", "gpt-5-mini"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "openai/gpt-5-mini"),
    "gemini": Preset("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-flash-latest"),
    "ollama": Preset("http://127.0.0.1:11434/v1", needs_key=False),
    "lmstudio": Preset("http://127.0.0.1:1234/v1", needs_key=False),
    "vllm": Preset("http://127.0.0.1:8000/v1", needs_key=False),
}


class OpenAI:
    def __init__(
        self, http: HttpClient, *, provider: str = "openai", key: str = "", base_url: str = "", model: str = ""
    ) -> None:
        preset = PRESETS[provider]
        self.http = http
        self.provider = provider
        self.key = key
        self.needs_key = preset.needs_key and not base_url
        self.base_url = (base_url or preset.base_url).rstrip("/")
        self.configured_model = model or ("" if base_url else preset.model)  # empty: ask the server
        self.model = self.configured_model

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:  # noqa: ARG002 -- stateless
        if (self.needs_key or self.key) and (problem_text := find_key_problem(self.key, "openai_api_key")):
            return error_reply(Verdict.AUTH, problem_text)
        if not self.model and (problem := await self._find_model()):
            return problem
        url = f"{self.base_url}/chat/completions"
        answer = await self.http.ask(url, self._headers(), self._body(request), key=self.key)
        if isinstance(answer, Reply):
            self.model = self.configured_model  # the server may load another model; ask again
            return answer
        return _parse_answer(answer, self.model)

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    async def _find_model(self) -> Reply | None:
        """Use the first model that the server lists: a local server usually has only one."""
        answer = await self.http.ask(f"{self.base_url}/models", self._headers(), key=self.key)
        if isinstance(answer, Reply):
            return answer
        data = answer.get("data")
        model_ids = [item.get("id") for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        if not model_ids or not isinstance(model_ids[0], str):
            return error_reply(Verdict.PERMANENT, f"{self.base_url} has no model loaded: load one, or set `model`")
        self.model = model_ids[0]
        return None

    def _body(self, request: Request) -> dict[str, object]:
        # OpenAI's newer models reject the older parameter name; most other servers know only the older one.
        limit = "max_completion_tokens" if "//api.openai.com" in self.base_url else "max_tokens"
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.prompt}]
        return {"model": self.model, limit: request.max_tokens, "messages": messages}

    async def close(self) -> None:
        await self.http.close()


def _parse_answer(answer: dict[str, Any], model: str) -> Reply:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    verdict = _STOP_VERDICTS.get(str(choice.get("finish_reason")), Verdict.OK)
    return Reply(
        verdict=Verdict.REFUSED if message.get("refusal") else verdict,
        text=_THINKING.sub("", _text(message.get("content"))),
        usage=_usage(answer.get("usage")),
        model=shorten(str(answer.get("model") or model), NAME_CHARS),
        message=shorten(str(message.get("refusal") or choice.get("finish_reason") or ""), NAME_CHARS),
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict) or not token_count(usage.get("completion_tokens")):
        return None  # no counts: the reserved amount stays booked
    details = usage.get("prompt_tokens_details")
    cost = usage.get("cost")
    return Usage(
        input_tokens=token_count(usage.get("prompt_tokens")),
        cached_tokens=token_count(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        output_tokens=token_count(usage.get("completion_tokens")),
        cost=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e6 else None,
    )
