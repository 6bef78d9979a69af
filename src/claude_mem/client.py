"""Client of the worker's HTTP API, used by the command line and other programs of this package."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from claude_mem.domain.errors import (
    ClaudeMemError,
    InvalidRequest,
    NotFound,
    OperationFailed,
    UnknownAnswer,
    WorkerNotRunning,
)
from claude_mem.privacy.trust import ACTOR_HEADER, USER
from claude_mem.system import process
from claude_mem.system.process import WorkerInfo
from claude_mem.worker.http.endpoints import A, Endpoint, Q, encode_request

TIMEOUT_SECONDS = 10.0
_ERRORS = {400: InvalidRequest, 404: NotFound}


class Client:
    def __init__(self, worker: WorkerInfo, *, seconds: float = TIMEOUT_SECONDS, by: str = USER) -> None:
        self.worker = worker
        self.seconds = seconds
        self.by = by  # on whose behalf requests are sent

    @classmethod
    def of(cls, data_dir: Path, *, seconds: float = TIMEOUT_SECONDS) -> Client:
        """Return a client for the worker of this data directory, or raise `WorkerNotRunning`."""
        worker = process.running_worker(data_dir)
        if worker is None:
            raise WorkerNotRunning("the worker is not running", hint="start it with `claude-mem start`")
        return cls(worker, seconds=seconds)

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request and return the decoded answer."""
        params = {name: item for name, item in query.items() if item not in (None, "")}
        return self._ask("GET", f"{path}?{urlencode(params)}" if params else path)

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request and return the decoded answer."""
        return self._ask("POST", path, msgspec.json.encode(body if body is not None else {}))

    def patch(self, path: str, body: Any) -> Any:
        """Send a PATCH request and return the decoded answer."""
        return self._ask("PATCH", path, msgspec.json.encode(body))

    def delete(self, path: str) -> Any:
        """Send a DELETE request and return the decoded answer."""
        return self._ask("DELETE", path)

    def call(self, endpoint: Endpoint[Q, A], request: Q) -> A:
        """Send a request and return the answer as a record."""
        address, fields = encode_request(endpoint, request)
        body = msgspec.json.encode(fields) if endpoint.method in ("POST", "PATCH") else None
        _, raw = self._send(endpoint.method, address, body)
        try:
            return msgspec.json.decode(raw, type=endpoint.answer)
        except msgspec.ValidationError as error:
            hint = "the worker may run another version; restart it with `claude-mem restart`"
            raise UnknownAnswer(f"cannot read the worker's answer to {endpoint.name}: {error}", hint=hint) from error

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """Yield a long answer line by line as it arrives."""
        params = {name: item for name, item in query.items() if item not in (None, "")}
        connection = http.client.HTTPConnection("127.0.0.1", self.worker.port, timeout=self.seconds)
        try:
            connection.request("GET", f"{path}?{urlencode(params)}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _error(answer.status, answer.read())
            yield from answer
        except (OSError, http.client.HTTPException) as error:
            hint = "see `claude-mem logs` for the cause"
            raise WorkerNotRunning(f"the worker closed the connection ({error})", hint=hint) from error
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.worker.token}",
            "Content-Type": "application/json",
            ACTOR_HEADER: self.by,
        }

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        content_type, raw = self._send(method, path, body)
        return (
            msgspec.json.decode(raw) if content_type.startswith("application/json") else raw.decode("utf-8", "replace")
        )

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[str, bytes]:
        """Return the type and the content of the answer; raise the error that it describes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.worker.port, timeout=self.seconds)
        try:
            connection.request(method, path, body, self._headers())
            answer = connection.getresponse()
            raw, status = answer.read(), answer.status
        except (OSError, http.client.HTTPException) as error:  # also if it exits while answering
            raise WorkerNotRunning(
                f"the worker does not answer ({error})", hint="restart it with `claude-mem restart`"
            ) from error
        finally:
            connection.close()
        content_type = answer.getheader("content-type") or ""
        if status >= 400 and content_type.startswith("application/json"):
            raise _error(status, raw)
        return content_type, raw


def _error(status: int, raw: bytes) -> ClaudeMemError:
    """Return the error that an answer describes."""
    body = msgspec.json.decode(raw)
    kind: type[ClaudeMemError] = _ERRORS.get(status, OperationFailed)
    return kind(body.get("error", f"HTTP {status}"), hint=body.get("hint", ""))
