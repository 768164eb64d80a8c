"""Numbers as people read them: always a unit, a dash where there is nothing."""

from __future__ import annotations

from decimal import Decimal

NOTHING = "–"


def ms(value: float | None) -> str:
    if value is None:
        return NOTHING
    digits = 1 if value >= 100 else 2 if value >= 10 else 3 if value >= 0.1 else 4
    return f"{value:.{digits}f} ms"


def among_ms(interval: tuple[float, float]) -> str:
    """ "0.126 to 0.131 ms"."""
    low, high = interval
    return f"{ms(low).removesuffix(' ms')} to {ms(high)}"


def percent(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{100 * value:.{digits}f} %"


def interval(low: float, high: float) -> str:
    """Of an accuracy, where 90 % of measurements should be."""
    return f"90 % interval {100 * low:.1f} to {100 * high:.1f} %"


def change(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.1f} %"


def count(value: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:g}"


def size(value: float) -> str:
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:g} B"


def how_many(number: int) -> str:
    """The size of a space: exact while it can be read, else with two digits. It may be too large for a float."""
    return str(number) if number <= 10**6 else f"about {Decimal(number):.1e}".replace("+", "")
