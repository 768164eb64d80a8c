"""What is expected of a cost is its mean over networks, and its gradient is the one that autograd finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deploynas.latency.table import LatencyTable
from deploynas.search.expected_cost import CostPenalty, ExpectedCost
from deploynas.search.problem import resource_cost
from deploynas.space import Space
from deploynas.space.softmax import softmax


def table(space: Space) -> LatencyTable:
    rng = np.random.default_rng(0)
    shapes = [[len(choice.options) for choice in group.choices] for group in space.decisions.groups]
    return LatencyTable.from_arrays(space, 0.3, [[rng.uniform(size=n).tolist() for n in rows] for rows in shapes])


def as_autograd_has_it(space: Space, block_ms: LatencyTable, logits: torch.Tensor) -> torch.Tensor:
    """Milliseconds, from the table's own numbers and with no code of ours but the layout of a vector."""
    decisions = space.decisions
    p = [logits[where].softmax(0) for where in decisions.slices]
    total = torch.tensor(block_ms.fixed_ms, dtype=torch.float64)
    for s, group in enumerate(decisions.groups):
        for i, depth in enumerate(group.depths):
            for b in range(depth):
                row = torch.tensor(block_ms.block_ms[s][b], dtype=torch.float64)
                total = total + p[s][i] * (p[decisions.column(s, b)] @ row)
    return total


def test_it_is_the_mean_over_all_networks(tiny: Space, rng: np.random.Generator) -> None:
    decisions, own = tiny.decisions, table(tiny)
    p = softmax(decisions, rng.normal(size=len(decisions)))
    mean = total = 0.0
    for choices in decisions.enumerate():
        row = np.array(decisions.row(choices))
        counts = decisions.counts(row[None])[0]
        chance = float(np.prod(p[(decisions.starts[:-1] + row)[counts]]))
        mean += chance * own.predict(tiny.architecture(choices))
        total += chance
    assert total == pytest.approx(1)
    assert ExpectedCost(decisions, own.cost())(p) == pytest.approx(mean, rel=1e-12)


def test_of_a_single_network_it_is_what_the_table_predicts(tiny: Space, rng: np.random.Generator) -> None:
    own, rows = table(tiny), tiny.decisions.draw(20, rng)
    for one_hot, architecture in zip(tiny.decisions.one_hot(rows), tiny.architectures(rows), strict=True):
        expected = ExpectedCost(tiny.decisions, own.cost())(one_hot)
        assert expected == pytest.approx(own.predict(architecture), rel=1e-12)


def test_the_gradient_is_the_one_of_autograd(tiny: Space, rng: np.random.Generator) -> None:
    own, logits = table(tiny), rng.normal(size=len(tiny.decisions))
    tensor = torch.tensor(logits, requires_grad=True)
    latency = as_autograd_has_it(tiny, own, tensor)
    uniform = float(as_autograd_has_it(tiny, own, torch.zeros(len(logits), dtype=torch.float64)))
    (expected,) = torch.autograd.grad(latency / uniform, tensor)
    penalty = CostPenalty.of(tiny.decisions, [own.cost()])
    assert penalty(logits) == pytest.approx(float(latency.detach()) / uniform, rel=1e-12)
    np.testing.assert_allclose(penalty.gradient(logits), expected.numpy(), rtol=1e-10, atol=1e-15)


def test_several_costs_add_up_and_each_begins_at_one(tiny: Space) -> None:
    costs = [table(tiny).cost(), resource_cost(tiny, "params")]
    zeros = np.zeros(len(tiny.decisions))
    both = CostPenalty.of(tiny.decisions, costs)
    assert both(zeros) == pytest.approx(2)
    alone = [CostPenalty.of(tiny.decisions, [cost]).gradient(zeros) for cost in costs]
    np.testing.assert_allclose(both.gradient(zeros), sum(alone), atol=1e-15)
    assert both.content_hash != CostPenalty.of(tiny.decisions, costs[:1]).content_hash


def test_what_costs_nothing_has_no_say(tiny: Space) -> None:
    free = LatencyTable.from_arrays(tiny, 0.0, [[[0.0] * len(row) for row in stage] for stage in table(tiny).block_ms])
    penalty = CostPenalty.of(tiny.decisions, [free.cost()])
    assert not penalty.gradient(np.zeros(len(tiny.decisions))).any()
