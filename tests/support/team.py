"""Organisations, members and machines of a team server, as tests need them: through the command line's functions and HTTP."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import httpx2

from claude_mem.domain import frames
from claude_mem.server import tokens
from claude_mem.storage.postgres import people
from claude_mem.storage.postgres.engine import TeamDatabase, TeamTransaction
from tests.support import waiting

T = TypeVar("T")
STRANGE = "cmt_" + "0" * 32 + "_" + "0" * 16 + "_" + "A" * 43


def new_device() -> str:
    return secrets.token_hex(8)


def new_space() -> str:
    return secrets.token_hex(16)


def run(dsn: str, org_id: UUID, work: Callable[[TeamTransaction], Awaitable[T]], *, wait_seconds: float = 30) -> T:
    """Run a function of `storage.postgres` as the role of the DSN."""

    async def inside() -> T:
        db = TeamDatabase(dsn, max_size=1, wait_seconds=wait_seconds)
        await db.open()
        try:
            return await db.run(org_id, work, is_idempotent=False)
        finally:
            await db.close()

    return asyncio.run(inside())


def enrol(url: str, code: str, device: str = "", **more: object) -> httpx2.Response:
    body = {"code": code, "device": device or new_device(), **more}
    return httpx2.post(f"{url}/v1/devices", json=body, timeout=waiting.SECONDS)


@dataclass
class Machine:
    """A device that has enrolled, with its token."""

    url: str
    org_id: UUID
    member_id: UUID
    device: str
    token: str

    def call(self, method: str, path: str, /, *, url: str = "", **options: Any) -> httpx2.Response:
        options.setdefault("timeout", waiting.SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return httpx2.request(method, f"{url or self.url}/v1{path}", headers=headers, **options)

    def create_space(self, kind: str = "personal") -> str:
        space = new_space()
        answer = self.call("POST", "/spaces", json={"space": space, "kind": kind})
        assert answer.status_code == 201, answer.text
        return space

    def append(self, space: str, after: int, bodies: Sequence[bytes], **options: Any) -> httpx2.Response:
        path = f"/spaces/{space}/logs/{options.pop('device', self.device)}?after={after}"
        return self.call("POST", path, content=frames.encode(bodies), **options)

    def read(self, space: str, device: str, after: int = 0, limit: int = 1000) -> list[bytes]:
        answer = self.call("GET", f"/spaces/{space}/logs/{device}?after={after}&limit={limit}")
        assert answer.status_code == 200, answer.text
        return frames.decode(answer.content)

    def heads(self, space: str) -> dict[str, int]:
        heads: dict[str, int] = self.call("GET", f"/spaces/{space}/heads").json()["heads"]
        return heads


@dataclass
class Team:
    """An organisation on a node."""

    url: str
    operator: str  # DSN of the operator's role
    org_id: UUID

    @classmethod
    def create(cls, url: str, operator: str, name: str = "Acme") -> Team:
        async def create() -> UUID:
            db = TeamDatabase(operator, max_size=1, wait_seconds=30)
            await db.open()
            try:
                return await people.create_organisation(db, name)
            finally:
                await db.close()

        return cls(url, operator, asyncio.run(create()))

    def run(self, work: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        return run(self.operator, self.org_id, lambda tx: work(tx, *args, **options))

    def add_member(self, name: str, role: people.Role = "writer") -> UUID:
        return self.run(people.add_member, name, role)

    def code(self, member_id: UUID, seconds: int = 600) -> str:
        code = tokens.new_code(self.org_id)
        self.run(partial(people.create_code, seconds=seconds), member_id, tokens.hash_secret(code))
        return code

    def enrol(self, member_id: UUID, device: str = "") -> Machine:
        device = device or new_device()
        answer = enrol(self.url, self.code(member_id), device, name="laptop")
        assert answer.status_code == 201, answer.text
        return Machine(self.url, self.org_id, member_id, device, answer.json()["token"])

    def machine(self, name: str = "ada", role: people.Role = "writer") -> Machine:
        """A new member with one machine."""
        return self.enrol(self.add_member(name, role))
