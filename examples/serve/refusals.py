"""A request that is not answered with classes: a status, and a sentence for whoever sent it."""

from __future__ import annotations


class Refusal(Exception):
    def __init__(self, status: int, message: str, close: bool = False) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.close = close  # the rest of the body is not read, so nothing else can come over this connection

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Connection": "close"} if self.close else {}
        return headers | {"Retry-After": "1"} if self.status == 503 else headers
