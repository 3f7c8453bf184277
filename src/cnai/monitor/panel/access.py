"""Who may look: people of this machine, and those who have the token."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cnai.core.errors import SpecError

COOKIE = "cnai_panel"
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Access:
    """The rule of one server.

    Attributes:
        token: What a visitor must have; None = only this machine is served, and no token needed.
    """

    token: str | None = None

    @classmethod
    def of(cls, host: str, token: str | None) -> Access:
        """Return the rule for a host to listen on.

        Raises:
            SpecError: Other machines could reach the host, and there is no token.
        """
        if token is None and not is_loopback(host):
            raise SpecError(
                f"other machines can reach `{host}`, and there is no token",
                where="--host",
                hint="set CNAI_MONITOR_TOKEN to a long random text, or listen on 127.0.0.1",
            )
        if token is not None and len(token) < 16:
            raise SpecError(
                f"a token of {len(token)} characters can be guessed",
                where="CNAI_MONITOR_TOKEN",
                hint="take 16 characters or more, for instance those of `openssl rand -hex 16`",
            )
        return cls(token)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets requests through to an application when they may see it.

    Without a token the name in the request must be one of this machine, so that a foreign web page
    cannot read the panel under a name of its own that points here. With one, it is taken from
    `Authorization: Bearer`, from the cookie, or once from `?token=`, which sets the cookie.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._token = access.token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._judge(Request(scope))
        await (answer or self._app)(scope, receive, send)

    def _judge(self, request: Request) -> Response | None:
        if self._token is None:
            local = request.url.hostname in _LOCAL_NAMES
            return None if local else _refused("ask under the name 127.0.0.1 or localhost", 403)
        asked = request.query_params.get("token")
        if asked is not None and request.method == "GET" and self._fits(asked):
            welcome = RedirectResponse(request.url.path, status_code=303)
            welcome.set_cookie(COOKIE, asked, httponly=True, samesite="strict")
            return welcome
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")
        return None if self._fits(given) else _refused("open the address with ?token=TOKEN", 401)

    def _fits(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(given.encode(), self._token.encode())


def _refused(hint: str, status: int) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return PlainTextResponse(f"not allowed; hint: {hint}\n", status_code=status, headers=headers)
