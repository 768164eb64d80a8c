"""How a run of many steps tells its caller what it is doing. Library code never prints."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from deploynas.progress import OnProgress, silent


class Watcher(Protocol):
    def step(self, title: str) -> AbstractContextManager[OnProgress]:
        """A step begins; it ends with the context."""
        ...

    def note(self, message: str) -> None:
        """Something worth a line."""
        ...


class Unwatched:
    """Nobody is watching."""

    def step(self, title: str) -> AbstractContextManager[OnProgress]:
        return nullcontext(silent)

    def note(self, message: str) -> None:
        pass
