"""A request that is not answered with classes: a status, and a sentence for whoever sent it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.responses import JSONResponse

LINGER_S, LINGER_BYTES = 1.0, 4 << 20


class Refusal(Exception):
    def __init__(self, status: int, message: str, close: bool = False) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.close = close  # the rest of the body is not wanted, so nothing else can come over this connection

    @property
    def response(self) -> JSONResponse:
        headers = {"Retry-After": "1"} if self.status == 503 else {}
        if self.close:
            return LastResponse({"error": self.message}, self.status, headers | {"Connection": "close"})
        return JSONResponse({"error": self.message}, self.status, headers)


class LastResponse(JSONResponse):
    """Closes the connection, but not at once: a client that is still sending would lose the answer with it.

    What it sends meanwhile is thrown away, up to a limit in time and in bytes.
    """

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_discard(receive), LINGER_S)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    discarded = 0
    while discarded < LINGER_BYTES:
        message = await receive()
        discarded += len(message.get("body", b""))
        if not message.get("more_body", False):  # the end of the body, or of the connection
            return
