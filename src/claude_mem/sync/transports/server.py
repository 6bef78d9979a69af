"""The server as transport: `/v1/spaces/…` with the token of this device.

The server is as little trusted as a folder: what it sends is limited in size and time, redirects are not followed, and
what it says is checked by type.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import httpx2 as httpx
import msgspec

from claude_mem.domain import frames
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.sync.errors import Conflict, Revoked, SpaceUnavailable
from claude_mem.sync.manifest import MAX_MANIFEST_BYTES, DeviceId
from claude_mem.sync.transports.base import MAX_DEVICES, MAX_PAGE_BYTES, MAX_PAGE_ENTRIES, check_device

CONNECT_SECONDS, SILENCE_SECONDS, CALL_SECONDS = 10.0, 30.0, 120.0
MAX_ANSWER_BYTES = MAX_PAGE_BYTES + (2 << 20)
MAX_UPLOAD_BYTES = 6 << 20  # below the server's limit of 8 MB
MESSAGE_CHARS = 300
FRAMES = "application/octet-stream"
T = TypeVar("T")


class Heads(msgspec.Struct):
    """The answer about the logs of a space."""

    heads: dict[DeviceId, Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]]


class _Head(msgspec.Struct):
    head: int = 0


class _Token(msgspec.Struct):
    token: str


class _Code(msgspec.Struct):
    code: str


class _Problem(msgspec.Struct):
    message: str = ""
    hint: str = ""


class Answer(msgspec.Struct):
    status: int
    headers: Mapping[str, str]
    body: bytes


class ServerTransport:
    def __init__(self, url: str, space: str, token: str) -> None:
        self.url = url.rstrip("/")
        self.name = f"the server {self.url}"
        self._path = f"/v1/spaces/{space}"
        self._token = token
        self._client: httpx.Client | None = None

    def read_manifest(self) -> tuple[bytes, str] | None:
        """Return the manifest and its ETag, or None if the server has none."""
        answer = self._send("GET", f"{self._path}/manifest", allowed=(200, 404), most=MAX_MANIFEST_BYTES)
        return (answer.body, answer.headers.get("etag", "")) if answer.status == 200 else None

    def write_manifest(self, body: bytes, *, expected: str | None) -> None:
        """Replace the manifest that has this ETag, or write the first one."""
        condition = {"If-None-Match": "*"} if expected is None else {"If-Match": expected}
        answer = self._send(
            "PUT", f"{self._path}/manifest", allowed=(200, 201, 204, 412), content=body, headers=condition
        )
        if answer.status == 412:
            raise Conflict("another machine changed the manifest at the same time")

    def heads(self) -> dict[str, int]:
        """Return the index of each device's last entry."""
        heads = self._decode(self._send("GET", f"{self._path}/heads"), Heads).heads
        return dict(sorted((device, head) for device, head in heads.items() if head)[:MAX_DEVICES])

    def read_entries(self, device: str, *, after: int, limit: int) -> list[bytes]:
        """Return the entries after an index; an empty one was erased with its member."""
        path = f"{self._path}/logs/{check_device(device)}?after={after}&limit={min(limit, MAX_PAGE_ENTRIES)}"
        try:
            return frames.decode(self._send("GET", path).body, allow_empty=True)[: min(limit, MAX_PAGE_ENTRIES)]
        except InvalidRequest as error:
            raise SpaceUnavailable(f"{self.name} sent entries that are not complete: {error}") from error

    def append_entries(self, device: str, *, after: int, entries: Sequence[bytes]) -> None:
        """Append entries, in requests that the server accepts."""
        for part in _in_parts(entries):
            path = f"{self._path}/logs/{check_device(device)}?after={after}"
            answer = self._send(
                "POST", path, allowed=(200, 204, 409), content=frames.encode(part), headers={"Content-Type": FRAMES}
            )
            if answer.status == 409:
                head = self._decode(answer, _Head).head
                raise Conflict(f"the server has other entries after entry {after:,}", head=head)
            after += len(part)

    def create_space(self, space: str) -> None:
        """Create the space at the server, which then knows its id but not its name."""
        self._send("POST", "/v1/spaces", allowed=(200, 201), json={"space": space, "kind": "personal"})

    def enrol(self, code: str, *, device: str, name: str) -> str:
        """Exchange a one-time code for this device's token."""
        fields = {"code": code, "device": device, "name": name}
        return self._decode(self._send("POST", "/v1/devices", allowed=(200, 201), json=fields), _Token).token

    def change_device(self, device: str, name: str) -> str:
        """Enrol this machine under another id, with a code that its present token gives it. Return the new token, which
        is used from now on."""
        code = self._decode(self._send("POST", "/v1/codes", allowed=(200, 201)), _Code).code
        self._token = self.enrol(code, device=device, name=name)
        return self._token

    def revoke_device(self, device: str) -> None:
        """Take a device's token away."""
        self._send("DELETE", f"/v1/devices/{check_device(device)}", allowed=(200, 204, 404))

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        allowed: Iterable[int] = (200,),
        most: int = MAX_ANSWER_BYTES,
        content: bytes | None = None,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        if self._client is None:
            timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
            self._client = httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False)
        authorization = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        options: dict[str, Any] = {"headers": {**authorization, **(headers or {})}}
        if content is not None:
            options["content"] = content
        if json is not None:
            options["json"] = json
        try:
            with self._client.stream(method, self.url + path, **options) as response:
                answer = Answer(response.status_code, response.headers, _read(response, most))
        except (httpx.RequestError, httpx.InvalidURL, httpx.StreamError, ValueError, OSError) as error:
            raise SpaceUnavailable(f"{self.name} does not answer: {error}", hint="check the network") from error
        if answer.status in allowed:
            return answer
        raise self._error(answer)

    def _error(self, answer: Answer) -> OperationFailed:
        try:
            problem = msgspec.json.decode(answer.body[: 1 << 16], type=_Problem)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            problem = _Problem()
        text = problem.message[:MESSAGE_CHARS] or f"HTTP {answer.status}"
        if answer.status == 401:
            hint = (
                "if it was not removed on purpose: ask for a one-time code, `claude-mem space leave`, then join again"
            )
            return Revoked(f"{self.name} refuses this machine: {text}", hint=hint)
        if answer.status == 429 or answer.status >= 500 or answer.status in range(300, 400):
            return SpaceUnavailable(f"{self.name} can't answer now: {text}", hint=problem.hint[:MESSAGE_CHARS])
        return OperationFailed(f"{self.name}: {text}", hint=problem.hint[:MESSAGE_CHARS])

    def _decode(self, answer: Answer, type_: type[T]) -> T:
        try:
            return msgspec.json.decode(answer.body, type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SpaceUnavailable(f"{self.name} sent something else than expected: {error}") from error


def _read(response: httpx.Response, most: int) -> bytes:
    """Return the body, of at most this size and within the time that a request may take."""
    body = bytearray()
    deadline = time.monotonic() + CALL_SECONDS
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > most:
            raise ValueError(f"the answer is larger than {most >> 10:,} KB")
        if time.monotonic() > deadline:
            raise ValueError(f"the answer took longer than {CALL_SECONDS:.0f} s")
    return bytes(body)


def _in_parts(entries: Sequence[bytes]) -> Iterable[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for entry in entries:
        if part and size + len(entry) > MAX_UPLOAD_BYTES:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry) + 4
    if part:
        yield part
