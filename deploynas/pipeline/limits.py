"""Budgets besides latency: what a device file allows becomes limits of a search, and gates of an export."""

from __future__ import annotations

from collections.abc import Iterable

from deploynas.costs import RESOURCES, Costs
from deploynas.device import Device
from deploynas.errors import GateError, InputError
from deploynas.search.problem import Limit
from deploynas.space import Architecture


def require_budget(budget_ms: float, where: str = "the budget") -> float:
    """A latency budget that can mean something."""
    if not 0 < budget_ms < float("inf"):
        raise InputError(f"{where} must be positive milliseconds, got {budget_ms:g}")
    return budget_ms


def split_budget(text: str) -> tuple[str, float | None]:
    """`cpu-1t:2.5` or `cpu-1t`."""
    name, colon, budget = text.rpartition(":")
    if not colon:
        return text, None
    try:
        return name, require_budget(float(budget), f"the budget of `{text}`")
    except ValueError:
        raise InputError(f"`{text}`: `{budget}` is not a budget in milliseconds", hint="like `cpu-1t:2.5`") from None


def device_limits(device: Device) -> list[Limit]:
    """What the device file allows, besides latency."""
    allowed = device.budgets.model_dump(include=set(RESOURCES), exclude_none=True)
    return [Limit(resource, value) for resource, value in allowed.items()]


def tightest(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """Of several limits of one resource, the smallest."""
    kept: dict[str, Limit] = {}
    for limit in limits:
        if limit.name not in kept or limit.budget < kept[limit.name].budget:
            kept[limit.name] = limit
    return tuple(kept.values())


def require_within(device: Device, architecture: Architecture) -> None:
    """Refuse a network that the device file does not allow."""
    costs = Costs.of(architecture.space, architecture)
    over = [
        f"{resource} {getattr(costs, resource):g}, allowed are {allowed:g}"
        for resource, allowed in device.budgets.model_dump(include=set(RESOURCES), exclude_none=True).items()
        if getattr(costs, resource) > allowed
    ]
    if over:
        raise GateError(
            f"the network is over the budgets of device `{device.name}`: {'; '.join(over)}",
            hint="search with these limits (`--max-params`, …), or change `budgets` in the device file",
        )
