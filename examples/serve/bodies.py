"""Reads the bodies of requests: never more of one than is allowed, never more of all together than there is room for,
and never for longer than a client that means it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from refusals import Refusal


@dataclass(frozen=True)
class BodyLimits:
    each: int = 10 << 20  # bytes
    together: int = 256 << 20
    time_s: float = 15.0


class Bodies:
    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self.held = 0  # bytes of all requests that are being read or answered

    @asynccontextmanager
    async def of(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The body, which counts as held until the request is answered."""
        held, most = _Held(self), min(most, self.limits.each)
        if int(request.headers.get("content-length", 0)) > most:
            raise _too_large(most)
        try:
            try:
                yield await asyncio.wait_for(self._read(request, most, held), self.limits.time_s)
            except asyncio.TimeoutError as error:
                raise Refusal(408, f"the body took longer than {self.limits.time_s:g} s", close=True) from error
        finally:
            self.held -= held.bytes

    async def _read(self, request: Request, most: int, held: _Held) -> bytes:
        content = bytearray()
        async for piece in request.stream():  # a length that was stated is not relied on
            content += piece
            if len(content) > most:
                raise _too_large(most)
            held.add(len(piece))
            if self.held > self.limits.together:
                raise Refusal(503, "too much is being received", close=True)
        if not content:
            raise Refusal(400, "the body is empty")
        return bytes(content)


class _Held:
    """What one request adds to the sum."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self.bytes = bodies, 0

    def add(self, count: int) -> None:
        self.bytes += count
        self._bodies.held += count


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"a body has at most {most} bytes here", close=True)
