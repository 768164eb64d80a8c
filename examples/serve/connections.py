"""uvicorn with what it leaves open: a time limit for headers, an answer to half a request, and a stop that exits 0.

A client that sends its headers byte by byte, or none at all, would hold a connection for ever; one that ends in the
middle of its body would get no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    headers_s = 10.0
    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            # headers and body are two writes, and the second would wait 40 ms for the client's delayed acknowledgement;
            # asyncio does this only for listening sockets that were made by itself
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_headers_due()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client will send no more. `True` keeps the other direction open for an answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.transport.is_closing():
            return None
        if self.conn.their_state is h11.SEND_BODY and not cycle.response_started:
            self.conn.receive_data(b"")  # the end in the middle of a body: 400
            self.handle_events()
            return None
        cycle.keep_alive = False
        return True

    def _expect_headers(self) -> None:
        """Between requests, uvicorn's own limit for idle connections holds until the first byte of the next one."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._unset_headers_due()
        elif self._headers_due is None and self.timeout_keep_alive_task is None:
            self._headers_due = self.loop.call_later(self.headers_s, self._give_up)

    def _unset_headers_due(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _give_up(self) -> None:
        self._headers_due = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.abort()


class GracefulServer(uvicorn.Server):
    """On SIGTERM or SIGINT: `on_stop` at once, then after `drain_s` no new connections, what is in flight is answered.

    uvicorn itself raises the signal again at the end, so that a clean stop looks like a kill. A second signal ends it.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None], drain_s: float = 0.0) -> None:
        super().__init__(config)
        self._on_stop, self._drain_s, self._asked = on_stop, drain_s, False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        signals = (signal.SIGINT, signal.SIGTERM)
        loop = asyncio.get_running_loop()

        def asked(*_: object) -> None:
            loop.call_soon_threadsafe(self._stop)

        before = {one: signal.signal(one, asked) for one in signals}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _stop(self) -> None:
        if self._asked:
            self.force_exit = self.should_exit = True
            return
        self._asked = True
        self._on_stop()
        asyncio.get_running_loop().call_later(self._drain_s, self._close)

    def end_unless(self, good: bool) -> None:
        if not good:
            self.should_exit = True

    def _close(self) -> None:
        self.should_exit = True
