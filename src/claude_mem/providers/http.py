"""One HTTP request to a model, and what its failure means. Both dialects share it.

Nothing is taken from the environment: no proxy, no `.netrc`, no certificate paths but the system's. The whole exchange has
a deadline, and an answer has a size it can't exceed.
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

from claude_mem.providers.base import Reply, Usage, Verdict, leaves
from claude_mem.redact import redact
from claude_mem.text import shorten

CALL_SECONDS = 60.0  # in all
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

# What the library and what is under it raise: no address, no connection, no HTTP, a body in no known encoding.
_FAILURES = (
    httpx.RequestError,
    httpx.InvalidURL,
    httpx.StreamError,
    ValueError,
    OverflowError,
    OSError,
    ExceptionGroup,
)


class Http:
    """A client that is made at the first request and kept: connections are worth keeping, an idle worker is not
    worth 20 MB."""

    def __init__(
        self, *, proxy: str = "", seconds: float = CALL_SECONDS, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self.proxy = proxy
        self.seconds = seconds
        self.timeout = httpx.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds))
        self.client: httpx.AsyncClient | None = None

    async def ask(
        self, url: str, headers: Mapping[str, str], body: Any = None, *, key: str = ""
    ) -> dict[str, Any] | Reply:
        """The decoded answer (POST with a body, else GET), or what went wrong. The key may stand in no message."""
        answer = await self._ask(url, headers, body)
        if len(key) >= 8 and isinstance(answer, Reply):
            return replace(answer, message=answer.message.replace(key, "[key]"))
        return answer

    async def _ask(self, url: str, headers: Mapping[str, str], body: Any) -> dict[str, Any] | Reply:
        try:
            async with asyncio.timeout(self.seconds):
                status, answered, raw = await self._exchange(url, headers, body)
        except TimeoutError:
            return failed(Verdict.TRANSIENT, f"no answer within {self.seconds:g} seconds")
        except (httpx.ProxyError, httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            # Its words may have a password in them.
            return _unsent(f"the request could not be made ({type(error).__name__}): check the address and `proxy`")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return _unsent(f"no connection: {_said(error)}")
        except httpx.TimeoutException:
            return failed(Verdict.TRANSIENT, f"nothing came for {self.timeout.read:g} seconds")
        except _FAILURES as error:
            return failed(Verdict.TRANSIENT, _said(error))
        return _decoded(raw) if status == 200 else classify(status, answered, raw)

    async def _exchange(self, url: str, headers: Mapping[str, str], body: Any) -> tuple[int, Mapping[str, str], bytes]:
        if self.client is None:
            self.client = httpx.AsyncClient(
                trust_env=False, follow_redirects=False, timeout=self.timeout, proxy=self.proxy or None
            )
        content = msgspec.json.encode(body) if body is not None else None
        sent = {"content-type": "application/json", "user-agent": "claude-mem", **headers}
        method = "POST" if body is not None else "GET"
        await leaves(content or b"")
        async with self.client.stream(method, url, headers=sent, content=content) as response:
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


def key_problem(key: str, setting: str) -> str:
    """Why this can't be a key; a stray line break in it would end up in an error message, with the rest of it."""
    if not key:
        return f"there is no key: set `{setting}` (if it names a file, that can't be read)"
    if not (key.isascii() and key.isprintable() and " " not in key):
        return f"`{setting}` has characters in it that no key has"
    return ""


def _unsent(message: str) -> Reply:
    """Nothing left the machine, so nothing was billed."""
    return replace(failed(Verdict.TRANSIENT, message), usage=Usage())


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def failed(verdict: Verdict, message: str, *, retry_seconds: float | None = None) -> Reply:
    """Providers' words are carried on, but not a key that stands in them."""
    return Reply(verdict=verdict, message=shorten(redact(message), MESSAGE_CHARS), retry_seconds=retry_seconds)


def _decoded(raw: bytes) -> dict[str, Any] | Reply:
    if not raw.strip():
        return failed(Verdict.UNPARSEABLE, "the answer was empty")
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return failed(Verdict.TRANSIENT, f"the answer is not JSON: {raw[:80].decode('utf-8', 'replace')}")
    if not isinstance(found, dict):
        return failed(Verdict.TRANSIENT, "the answer is not a JSON object")
    if found.get("error"):  # some routers answer 200 and tell the error inside
        return classify(_status(found["error"]), {}, raw)
    return found


def _status(error: Any) -> int:
    """The status that an error inside an answer stands for: by its number, else by its words."""
    code = str(error.get("code") or "") if isinstance(error, dict) else ""
    if code.isdecimal() and 400 <= int(code) < 600:
        return int(code)
    words = _words(msgspec.json.encode({"error": error}))
    if _QUOTA.search(words):
        return 402
    if _AUTH.search(words):
        return 401
    return 413 if _TOO_LONG.search(words) else 500


def classify(status: int, headers: Mapping[str, str], raw: bytes) -> Reply:
    """What a refusal means for us."""
    words = _words(raw)
    message = f"HTTP {status}: {words}" if words else f"HTTP {status}"
    verdict, wait = _verdict(status, words), retry_seconds(headers.get("retry-after"), now=time.time())
    if wait is None and verdict is Verdict.RATE_LIMITED:
        wait = USUAL_WAIT
    return failed(verdict, message, retry_seconds=wait)


def _verdict(status: int, words: str) -> Verdict:
    spent = bool(_QUOTA.search(words))
    if status in (402,) or (status in (400, 403, 429) and spent):
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


def _words(raw: bytes) -> str:
    """The provider's own words out of an error body of any shape."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return shorten(raw[:2000].decode("utf-8", "replace"), MESSAGE_CHARS)
    error = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(error, dict):
        said = [error.get(name) for name in ("type", "code", "message", "detail")]
        return " ".join(str(item) for item in said if item and isinstance(item, str | int))
    return error if isinstance(error, str) else ""


def retry_seconds(given: str | None, *, now: float) -> float | None:
    """What `retry-after` asks for: seconds or a date. Nonsense is nothing, and nobody can make us wait for a day."""
    if not given:
        return None
    if re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", given.strip()):
        wait = float(given)
    else:
        try:
            wait = parsedate_to_datetime(given).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(wait, 1.0), LONGEST_WAIT)
