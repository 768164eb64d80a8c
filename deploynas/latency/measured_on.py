"""The provenance record of a measurement: on what machine, with which software, and how busy it was.

It is kept as it was written, with what other versions add; what commands look up in it is checked when it is read.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

from deploynas.latency.hardware import Hardware


class _LookedUp(BaseModel):
    """What is looked up; all but the hardware may be unknown to earlier versions."""

    hardware: Hardware
    versions: dict[str, Any] = {}
    provider: str | None = None
    date: str = ""
    duration_s: float | None = None
    elsewhere: bool = False
    load_before: list[float] = []
    load_after: list[float] = []


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    _LookedUp.model_validate(record)
    return record


MeasuredOn = Annotated[dict[str, Any], AfterValidator(_checked)]
