"""What else has changed on a machine since a result was measured, for people who wonder why the latency has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from deploynas.latency.conditions import Conditions
from deploynas.latency.hardware import Hardware
from deploynas.latency.throttling import changed, throttled

SPELLED = {"onnxruntime": "ONNX Runtime"}
SAYS_LITTLE = ("python", "numpy", "onnx")  # none of them computes while a latency is measured
ON_CPU = ("CPUExecutionProvider", "XnnpackExecutionProvider")  # for which packages and drivers of others do nothing


def changes(then: Mapping[str, Any], now: Mapping[str, Any], threads: int | str = 1) -> list[str]:
    """Between the provenance records of two results of devices with these `threads`.

    Versions of packages and drivers, what `threads: all` means, settings of power and clocks. What earlier versions did
    not record is not compared.
    """
    found = software_changes(then, now)
    old, new = _hardware(then), _hardware(now)
    if threads == "all" and old and new and old.threads_of_all != new.threads_of_all:
        found.append(f"`threads: all` was {old.threads_of_all} threads, now {new.threads_of_all}")
    on_cpu = then.get("provider") in ON_CPU
    return found + changed(_conditions(then, "before", on_cpu), _conditions(now, "before", on_cpu))


def software_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Versions of packages and drivers alone, as far as the provider computes with them."""
    on_cpu = then.get("provider") in ON_CPU
    found = _versions(then.get("versions", {}), now.get("versions", {}), on_cpu)
    old, new = _hardware(then), _hardware(now)
    if old and new and not on_cpu:
        found += [f"driver {change}" for change in _versions(old.drivers, new.drivers)]
    return found


def slowed_down(provenance: Mapping[str, Any]) -> list[str]:
    """In what ways the machine held back, or was set differently, while a result was measured."""
    on_cpu = provenance.get("provider") in ON_CPU
    return throttled(_conditions(provenance, "before", on_cpu), _conditions(provenance, "after", on_cpu))


def _versions(then: Mapping[str, Any], now: Mapping[str, Any], on_cpu: bool = False) -> list[str]:
    return [
        f"{SPELLED.get(name, name)} was {version}, now {now.get(name, 'not there')}"
        for name, version in then.items()
        if name not in SAYS_LITTLE
        and version != now.get(name)
        and (not on_cpu or name.startswith(("onnxruntime", "deploynas")))
    ]


def _hardware(provenance: Mapping[str, Any]) -> Hardware | None:
    try:
        return Hardware.model_validate(provenance.get("hardware"))
    except ValidationError:
        return None


def _conditions(provenance: Mapping[str, Any], moment: Literal["before", "after"], on_cpu: bool) -> Conditions:
    try:
        found = Conditions.model_validate(provenance.get(f"conditions_{moment}") or {})
    except ValidationError:
        return Conditions()
    return found.model_copy(update={"gpus": []}) if on_cpu else found
