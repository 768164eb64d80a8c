"""Budgets of a device file: limits of a search, gates of an export, refused when they mean nothing."""

from __future__ import annotations

import pytest

from deploynas.costs import Costs
from deploynas.device import Budgets, Device
from deploynas.errors import GateError, InputError
from deploynas.pipeline.limits import device_limits, require_within, split_budget, tightest
from deploynas.search.problem import Limit
from deploynas.space import Space


def test_of_two_limits_the_tighter_counts(quick: Device) -> None:
    device = quick.model_copy(update={"budgets": Budgets(params=100.0, macs=5e6)})
    merged = tightest([Limit("params", 200), Limit("macs", 1e6), *device_limits(device)])
    assert {limit.name: limit.budget for limit in merged} == {"params": 100, "macs": 1e6}


@pytest.mark.parametrize("resource", ["params", "macs", "size_bytes", "peak_memory_bytes"])
def test_every_budget_is_a_gate(resource: str, quick: Device, tiny: Space) -> None:
    network = tiny.heaviest()
    cost = getattr(Costs.of(tiny, network), resource)
    require_within(quick.model_copy(update={"budgets": Budgets(**{resource: float(cost)})}), network)
    with pytest.raises(GateError, match=resource) as refused:
        require_within(quick.model_copy(update={"budgets": Budgets(**{resource: cost - 1.0})}), network)
    assert refused.value.exit_code == 3


def test_a_budget_follows_a_colon_and_must_mean_something() -> None:
    assert split_budget("cpu-1t:2.5") == ("cpu-1t", 2.5) and split_budget("cpu-1t") == ("cpu-1t", None)
    for wrong in ("cpu-1t:0", "cpu-1t:-1", "cpu-1t:nan", "cpu-1t:inf", "cpu-1t:soon"):
        with pytest.raises(InputError):
            split_budget(wrong)
