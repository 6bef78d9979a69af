"""No one gets in without the token, under a name that is not ours, or from another page.

A web page can reach a loopback port: by DNS rebinding it may even look like the same origin and send no Origin
header at all. Then the Host header is the only one that still names the attacker. So all three are checked,
exactly, on every route and before any handler runs. Only the bare `/healthz` needs no token, and tells nothing.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = ("/healthz",)


class Guard:
    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self.app = app
        self.token = token.encode()
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope), scope["path"]) if scope["type"] == "http" else _refuse(403, "no")
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> JSONResponse | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return _refuse(403, "unknown host", "use http://127.0.0.1 and the port in worker.json")
        if any(origin not in self.origins for origin in headers.getlist("origin")):
            return _refuse(403, "foreign origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _refuse(403, "foreign origin")
        if path not in OPEN_PATHS and not self._has_token(headers):
            return _refuse(401, "no valid token", "send `Authorization: Bearer <token>`; worker.json has it")
        return None

    def _has_token(self, headers: Headers) -> bool:
        given = headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token)


def _refuse(status: int, error: str, hint: str = "") -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status_code=status)
