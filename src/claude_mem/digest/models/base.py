"""The interfaces of the compressor and of a model. Neither depends on the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from claude_mem.domain.records import Digest, Turn


class Compressor(Protocol):
    async def compress(self, turn: Turn) -> Digest:
        """Return what the turn did and what is worth remembering. Raises on failure; the job is then retried."""
        ...


class Verdict(StrEnum):
    """How a request to a model ended. The list is complete; `digest/refine.py` has one action for each."""

    OK = "ok"
    EMPTY = "empty"  # deliberate: the model found nothing worth remembering
    UNPARSEABLE = "unparseable"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMITED = "rate_limited"
    TOO_LONG = "too_long"
    TRANSIENT = "transient"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything the model is shown, and the limit of its answer."""

    system: str  # identical for every turn, so that the provider can cache it
    prompt: str
    fence: str  # delimits the turn; a reply that contains it only echoes the request
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the provider reported them. `input_tokens` includes tokens read from and written to its cache."""

    input_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None  # dollars, if the provider reports them


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request. Models do not raise: an error is a verdict with the provider's own message."""

    verdict: Verdict
    text: str = ""
    usage: Usage | None = None  # None: unknown; the ledger then books the reserved amount
    model: str = ""
    message: str = ""
    retry_seconds: float | None = None


OutgoingRecorder = Callable[[bytes], Awaitable[None]]
outgoing_recorder: ContextVar[OutgoingRecorder | None] = ContextVar("leaving", default=None)


async def record_outgoing(body: bytes) -> None:
    """Record the exact bytes of a request before it is sent. If this raises, the request must not be sent."""
    if (record := outgoing_recorder.get()) is not None:
        await record(body)


SessionCallback = Callable[[str], Awaitable[None]]  # receives the model's own session id as soon as it is known


class Model(Protocol):
    """A model that answers requests. `provider` and `model` are names for display and for the ledger."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
        """Send one request and return one answer within the model's own deadline. `resume` is the id of an earlier
        session to continue, for models that keep sessions. `on_session` receives the id of the session in use."""
        ...

    async def close(self) -> None: ...
