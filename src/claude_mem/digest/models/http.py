"""One HTTP request to a model, and the classification of its errors. Shared by both API dialects.

Nothing is taken from the environment: no proxy, no `.netrc`, no certificate paths other than the system's. The whole
exchange has a deadline, and the size of an answer is limited.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2 as httpx
import msgspec

from claude_mem.digest.models.base import Reply, Usage, Verdict, record_outgoing
from claude_mem.domain.text import shorten
from claude_mem.privacy.secrets import redact

CALL_SECONDS = 60.0  # for the whole exchange
CONNECT_SECONDS, SILENCE_SECONDS = 10.0, 30.0
MAX_ANSWER = 4 << 20
MESSAGE_CHARS = 300
LONGEST_WAIT, USUAL_WAIT = 3600.0, 60.0

_QUOTA = re.compile(
    r"credit|quota|billing|spend|payment|usage limit|weekly limit|monthly limit|key limit|insufficient_(?:quota|funds)|balance",
    re.I,
)
_TOO_LONG = re.compile(
    r"too long|too large|context.{0,12}(?:length|window|size)|maximum.{0,20}tokens|exceed.{0,30}(?:context|tokens)|reduce the length",
    re.I,
)


_AUTH = re.compile(r"api.?key|authenticat|unauthori[sz]ed|permission", re.I)

# Everything httpx and the layers below it raise: DNS, connection and protocol errors, an unknown content encoding.
_FAILURES = (
    httpx.RequestError,
    httpx.InvalidURL,
    httpx.StreamError,
    ValueError,
    OverflowError,
    OSError,
    ExceptionGroup,
)


class HttpClient:
    """An HTTP client that is created at the first request and reused. An idle worker saves the 20 MB it takes."""

    def __init__(
        self, *, proxy: str = "", seconds: float = CALL_SECONDS, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self.proxy = proxy
        self.seconds = seconds
        self.timeout = httpx.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds))
        self.client: httpx.AsyncClient | None = None

    async def ask(
        self, url: str, headers: Mapping[str, str], body: Any = None, *, key: str = ""
    ) -> dict[str, object] | Reply:
        """Return the decoded answer (POST with a body, else GET), or an error reply without the key in its message."""
        answer = await self._ask(url, headers, body)
        if len(key) >= 8 and isinstance(answer, Reply):
            return replace(answer, message=answer.message.replace(key, "[key]"))
        return answer

    async def _ask(self, url: str, headers: Mapping[str, str], body: Any) -> dict[str, object] | Reply:
        try:
            async with asyncio.timeout(self.seconds):
                status, answered, raw = await self._exchange(url, headers, body)
        except TimeoutError:
            return error_reply(Verdict.TRANSIENT, f"no answer within {self.seconds:g} seconds")
        except (httpx.ProxyError, httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            # The error text is left out: it may contain a proxy password.
            return _unsent_reply(
                f"the request could not be sent ({type(error).__name__}): check the base URL and `proxy`"
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return _unsent_reply(f"no connection: {_describe(error)}")
        except httpx.TimeoutException:
            return error_reply(Verdict.TRANSIENT, f"no data received for {self.timeout.read:g} seconds")
        except _FAILURES as error:
            return error_reply(Verdict.TRANSIENT, _describe(error))
        return _decode(raw) if status == 200 else classify_response(status, answered, raw)

    async def _exchange(self, url: str, headers: Mapping[str, str], body: Any) -> tuple[int, Mapping[str, str], bytes]:
        if self.client is None:
            self.client = httpx.AsyncClient(
                trust_env=False, follow_redirects=False, timeout=self.timeout, proxy=self.proxy or None
            )
        content = msgspec.json.encode(body) if body is not None else None
        all_headers = {"content-type": "application/json", "user-agent": "claude-mem", **headers}
        method = "POST" if body is not None else "GET"
        await record_outgoing(content or b"")
        async with self.client.stream(method, url, headers=all_headers, content=content) as response:
            raw = bytearray()
            async for piece in response.aiter_bytes():
                raw += piece
                if len(raw) > MAX_ANSWER:
                    raise ValueError("the answer is too large")
            return response.status_code, response.headers, bytes(raw)

    async def close(self) -> None:
        if self.client is not None:
            await self.client.aclose()
            self.client = None


def find_key_problem(key: str, setting: str) -> str:
    """Return why a value cannot be a key; empty if it can.

    Checked before use: httpx would quote a key with a stray line break in its error message.
    """
    if not key:
        return f"there is no key: set `{setting}` (if it names a file, check that the file is readable)"
    if not (key.isascii() and key.isprintable() and " " not in key):
        return f"`{setting}` contains characters that are not valid in a key: paste the key again"
    return ""


def _unsent_reply(message: str) -> Reply:
    """Return a reply for a request that was never sent and therefore cost nothing."""
    return replace(error_reply(Verdict.TRANSIENT, message), usage=Usage())


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def error_reply(verdict: Verdict, message: str, *, wait_seconds: float | None = None) -> Reply:
    """Return an error reply with the provider's message, redacted: it may contain a key."""
    return Reply(verdict=verdict, message=shorten(redact(message), MESSAGE_CHARS), retry_seconds=wait_seconds)


def _decode(raw: bytes) -> dict[str, object] | Reply:
    if not raw.strip():
        return error_reply(Verdict.UNPARSEABLE, "the answer was empty")
    try:
        answer = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return error_reply(Verdict.TRANSIENT, f"the answer is not JSON: {raw[:80].decode('utf-8', 'replace')}")
    if not isinstance(answer, dict):
        return error_reply(Verdict.TRANSIENT, "the answer is not a JSON object")
    if answer.get("error"):  # some routers answer 200 with the error in the body
        return classify_response(_status_of_error(answer["error"]), {}, raw)
    return answer


def _status_of_error(error: Any) -> int:
    """Return the HTTP status that an error inside an answer corresponds to: by its code, else by its text."""
    code = str(error.get("code") or "") if isinstance(error, dict) else ""
    if code.isdecimal() and 400 <= int(code) < 600:
        return int(code)
    words = _error_text(msgspec.json.encode({"error": error}))
    if _QUOTA.search(words):
        return 402
    if _AUTH.search(words):
        return 401
    return 413 if _TOO_LONG.search(words) else 500


def classify_response(status: int, headers: Mapping[str, str], raw: bytes) -> Reply:
    """Return the reply for an HTTP error."""
    words = _error_text(raw)
    message = f"HTTP {status}: {words}" if words else f"HTTP {status}"
    verdict, wait = _verdict_for(status, words), parse_retry_after(headers.get("retry-after"), now=time.time())
    if wait is None and verdict is Verdict.RATE_LIMITED:
        wait = USUAL_WAIT
    return error_reply(verdict, message, wait_seconds=wait)


def _verdict_for(status: int, words: str) -> Verdict:
    is_quota = bool(_QUOTA.search(words))
    if status in (402,) or (status in (400, 403, 429) and is_quota):
        return Verdict.QUOTA
    if status in (401, 403, 407):
        return Verdict.AUTH
    if status == 429:
        return Verdict.RATE_LIMITED
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(words)):
        return Verdict.TOO_LONG
    if status in (408, 409, 425) or status >= 500:
        return Verdict.TRANSIENT
    return Verdict.PERMANENT


def _error_text(raw: bytes) -> str:
    """Extract the provider's message from an error body of any shape."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return shorten(raw[:2000].decode("utf-8", "replace"), MESSAGE_CHARS)
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        parts = [error.get(name) for name in ("type", "code", "message", "detail")]
        return " ".join(str(item) for item in parts if item and isinstance(item, str | int))
    return error if isinstance(error, str) else ""


def parse_retry_after(retry_after: str | None, *, now: float) -> float | None:
    """Parse `retry-after`, which is seconds or a date; None if it is invalid. The result is capped at one hour."""
    if not retry_after:
        return None
    if re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", retry_after.strip()):
        wait = float(retry_after)
    else:
        try:
            wait = parsedate_to_datetime(retry_after).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(wait, 1.0), LONGEST_WAIT)
