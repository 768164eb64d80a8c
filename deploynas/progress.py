"""How library code tells its caller how far it is: a fraction done and a few words. It never prints."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[float, str], None]


def silent(fraction: float, what: str) -> None:
    """The default: nobody is watching."""
