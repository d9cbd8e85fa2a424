"""Limits of the server: how many requests at once, how fast by one sender, how large.

In: every request before anything else sees it. Out: the request, or a problem that says which
limit it met. Beside it the headers that every answer carries, and a note of each access.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vcl_plugin.web.keys import digest_key
from vcl_plugin.web.problems import write_problem

MOST_AT_ONCE = 1000
BODY_BYTES = 1 << 20  # of any request that is no upload
ARRAY_BYTES = 1 << 27  # two arrays of descriptors of ten-hour films have 74 MB
BURST_SECONDS = 5.0
SENDERS = 10_000  # whose rate is remembered
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"private, no-cache",
}

Note = Callable[[Scope, int, float], None]


class TooLarge(Exception):
    """More bytes came than the request may have."""


class Pace:
    """How fast each sender is: a bucket that fills by `rate` a second and holds some seconds'."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, sender: str) -> bool:
        """Whether one more request of that sender is within its rate."""
        now, full = self.clock(), self.rate * BURST_SECONDS
        level, since = self._buckets.pop(sender, (full, now))
        level = min(full, level + (now - since) * self.rate)
        self._buckets[sender] = (max(0.0, level - 1.0), now)
        if len(self._buckets) > SENDERS:
            self._buckets.popitem(last=False)
        return level >= 1.0


class Limits:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, rate: float, upload_bytes: int, note: Note, at_once: int = MOST_AT_ONCE
    ) -> None:
        self.app = app
        self.pace = Pace(rate)
        self.upload_bytes = upload_bytes
        self.note = note
        self.at_once = at_once
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in HEADERS.items() if name not in present),
                ]
            await send(message)

        self.under_way += 1
        try:
            refusal = self._refuse(scope)
            if refusal is not None:
                await refusal(scope, receive, answer)
                return
            limited = _limit_body(receive, self._most_bytes(scope))
            try:
                await self.app(scope, limited, answer)
            except TooLarge:
                await self._too_large(scope)(scope, receive, answer)
        finally:
            self.under_way -= 1
            self.note(scope, status, time.monotonic() - started)

    def _refuse(self, scope: Scope) -> ASGIApp | None:
        if scope["path"] in ("/livez", "/readyz"):
            return None
        if self.under_way > self.at_once:
            return write_problem(
                503,
                code="too_busy",
                detail=f"{self.at_once} requests are under way; try again in a second",
                headers={"Retry-After": "1"},
            )
        if not self.pace.take(_name_sender(scope)):
            return write_problem(
                429,
                code="too_fast",
                detail=f"more than {self.pace.rate:g} requests a second; slow down",
                headers={"Retry-After": "1"},
            )
        length = _header(scope, b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self._most_bytes(scope)):
            return self._too_large(scope)
        return None

    def _most_bytes(self, scope: Scope) -> int:
        # A multipart body has its fields and borders beside the files.
        if scope["path"].startswith("/api/v1/uploads"):
            return self.upload_bytes + BODY_BYTES
        if scope["path"] == "/api/v1/comparisons/files":
            return ARRAY_BYTES + BODY_BYTES
        return BODY_BYTES

    def _too_large(self, scope: Scope) -> ASGIApp:
        return write_problem(
            413,
            code="body_too_large",
            detail=f"the body has more than the {self._most_bytes(scope)} bytes allowed here",
            headers={"Connection": "close"},
        )


def _limit_body(receive: Receive, most: int) -> Receive:
    """Bodies may come without saying their length first, so bytes are counted."""
    seen = 0

    async def receive_some() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise TooLarge
        return message

    return receive_some


def _name_sender(scope: Scope) -> str:
    """The key that is used, right or wrong, else the address; never the key itself."""
    key = _header(scope, b"authorization") or _header(scope, b"cookie")
    address: Any = scope.get("client") or ("", 0)
    return str(address[0]) if key is None else digest_key(key)


def _header(scope: Scope, name: bytes) -> str | None:
    found = next((value for each, value in scope["headers"] if each == name), None)
    return None if found is None else found.decode("latin-1")
