"""Numbers as people read them: always a unit, a dash where there is nothing."""

from __future__ import annotations

NOTHING = "–"


def ms(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f} ms" if value >= 100 else f"{value:.2f} ms" if value >= 10 else f"{value:.3f} ms"


def percent(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{100 * value:.{digits}f} %"


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
