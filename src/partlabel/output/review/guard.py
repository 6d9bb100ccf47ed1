"""Who may use the page: only those who have the address with its token, from the page itself.

Every request is checked before anything else sees it:

* the ``Host`` header must be one of the page's own names, so that a foreign name that was made to
  point here (DNS rebinding) gets nothing
* a cookie, which the address with the token sets, is needed for everything
* a request from another site is refused, and one that changes something must carry a header that
  another site cannot send (CSRF)
* what is too large is refused

Every answer forbids the browser to load or run anything from elsewhere, or to show it in a frame.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

HEADER = "x-partlabel"
"""A request that changes something must have this header, with the value ``review``."""

MOST_BYTES = 25_000_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_REFUSED = (
    "This page needs the address that `partlabel review` printed in the terminal, with its token. "
    "It changes each time the command is started."
)


class TooLargeError(Exception):
    """A request has a body of more bytes than are accepted."""


class Guard:
    """Refuses what does not come from the page, and sets the headers of all answers.

    Args:
        app: what answers the other requests.
        token: the token in the address.
        hosts: the values of the ``Host`` header that are the page's own, with the port.
        name: of the cookie; cookies of all ports of a host are one set.
    """

    def __init__(self, app: App, token: str, hosts: Sequence[str], name: str) -> None:
        self.app, self.token, self.hosts, self.name = app, token, frozenset(hosts), name
        self._secret = secrets.token_urlsafe(32)  # the cookie; the token itself is not kept there

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no other protocol is used
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        status, text, more = self._check(scope, headers)
        if status is not None:
            await _answer(send, status, text, more)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BYTES:
                raise TooLargeError
            return message

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
                if not any(name == b"cache-control" for name, _ in message["headers"]):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            await self.app(scope, counted, guarded)
        except TooLargeError:
            await _answer(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too large")

    def _check(
        self, scope: MutableMapping[str, Any], headers: dict[str, str]
    ) -> tuple[HTTPStatus | None, str, list[tuple[bytes, bytes]]]:
        """The answer to a request that is not passed on; no status for one that is."""
        nothing: list[tuple[bytes, bytes]] = []
        if headers.get("host", "").lower() not in self.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "There is no such host here.", nothing
        method, path = scope["method"], scope["path"]
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if path == "/" and method == "GET" and tokens:
            if not hmac.compare_digest(tokens[0].encode(), self.token.encode()):
                return HTTPStatus.FORBIDDEN, _REFUSED, nothing
            cookie = f"{self.name}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
            to = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
            return HTTPStatus.SEE_OTHER, "", to
        if not self._has_cookie(headers.get("cookie", "")):
            return HTTPStatus.FORBIDDEN, _REFUSED, nothing
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        foreign = origin is not None and origin.lower() not in {f"http://{h}" for h in self.hosts}
        is_visit = method == "GET" and path == "/"
        if foreign or (site not in ("same-origin", "none") and not is_visit):
            return HTTPStatus.FORBIDDEN, "Requests of other sites are refused.", nothing
        if method not in ("GET", "HEAD") and headers.get(HEADER) != "review":
            return HTTPStatus.FORBIDDEN, f"The header {HEADER} is missing.", nothing
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too large", nothing
        return None, "", nothing

    def _has_cookie(self, text: str) -> bool:
        for part in text.split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.name and hmac.compare_digest(value.encode(), self._secret.encode()):
                return True
        return False


async def _answer(
    send: Send, status: HTTPStatus, text: str, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    body = f"{text}\n".encode() if text else b""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *_HEADERS,
        *more,
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
