"""How library code tells its caller how far it is: a fraction done and a few words. It never prints."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[float, str], None]


class Progress:
    """Remembers how far it is, for words in between that have no fraction of their own."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress, self._fraction = on_progress, 0.0

    def __call__(self, fraction: float, what: str) -> None:
        self._fraction = fraction
        self._on_progress(fraction, what)

    def waiting(self, words: str) -> None:
        self._on_progress(self._fraction, words)


def silent(fraction: float, what: str) -> None:
    """The default: nobody is watching."""
