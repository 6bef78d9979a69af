"""Settings of a node: defaults, then `CLAUDE_MEM_SERVER_*` variables, then options of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from claude_mem.domain.errors import InvalidSetting

PREFIX = "CLAUDE_MEM_SERVER_"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a node needs to know. TLS and host names are the load balancer's."""

    dsn: str = ""  # of the role claude_mem_app; other commands: of the operator or the owner
    host: str = "127.0.0.1"
    port: int = 8787
    pool_size: int = 8  # connections to PostgreSQL
    pool_wait_seconds: float = 5  # for a free connection, before a request is answered with 503
    requests_per_organisation: int = 4  # worked on at the same time; half of the pool by default
    waiting_per_organisation: int = 32  # further requests that wait for a turn, before one is answered with 429
    body_megabytes: int = 64  # memory for request bodies of all requests together
    body_seconds: float = 30  # for a client to send its body
    connections: int = 1000
    code_minutes: int = 15  # how long an enrolment code is valid
    metrics_token: str = ""  # if set, `/metrics` needs it as a bearer token


def load(environment: Mapping[str, str], **options: object) -> ServerSettings:
    """Return the settings. `options` that are None were not given."""
    values: dict[str, object] = {}
    for field in fields(ServerSettings):
        name = f"{PREFIX}{field.name.upper()}"
        if (option := options.get(field.name)) is not None:
            values[field.name] = option
        elif (text := environment.get(name)) is not None:
            values[field.name] = _parse(name, text, type(field.default))
    return ServerSettings(**values)  # type: ignore[arg-type]


def _parse(name: str, text: str, kind: type) -> object:
    try:
        value = kind(text)
    except ValueError as error:
        raise InvalidSetting(f"{name} must be a number, not {text!r}", name=name) from error
    if kind is not str and value < 0:
        raise InvalidSetting(f"{name} must not be negative", name=name)
    return value
