"""Lists of prefixes keep of earlier ones where they came from, and nothing else: memory for a million networks."""

from __future__ import annotations

import numpy as np

from deploynas.search.merging import Layer, end_stage, extend
from deploynas.search.trail import Trail

BLOCKS, CONFIGS = 6, 5


def merged(blocks: int = BLOCKS) -> tuple[Layer, np.ndarray, np.ndarray]:
    """Worth rises with cost, so nearly every network is one that no other beats."""
    rng = np.random.default_rng(0)
    cost = rng.uniform(0.1, 1.0, (blocks, CONFIGS))
    value = cost * rng.uniform(0.999, 1.001, cost.shape)
    layer = Layer(np.zeros(1), np.zeros(1))
    for b in range(blocks):
        layer = end_stage([(extend(layer, cost[b], value[b], np.arange(CONFIGS)), 0.0)])
    return layer, cost, value


def trails(last: Trail) -> list[Trail]:
    return [last, *(trail for parent in last.parents for trail in trails(parent))]


def test_every_entry_leads_back_to_choices_that_cost_and_are_worth_what_it_says() -> None:
    layer, cost, value = merged()
    assert len(layer.cost) > 256  # more than a byte can count
    for i in range(len(layer.cost)):
        options = [option for (option,) in layer.choices(i)]
        own_cost = own_value = 0.0
        for b, option in enumerate(options):
            own_cost, own_value = cost[b, option] + own_cost, value[b, option] + own_value
        assert (layer.cost[i], layer.value[i]) == (own_cost, own_value)


def test_what_is_kept_of_earlier_prefixes_is_a_few_bytes_each() -> None:
    layer, _, _ = merged()
    behind = trails(layer.trail)
    assert len(behind) == 2 * BLOCKS + 1
    for trail in behind:
        arrays = [a for a in (trail.source, trail.index, trail.config) if a is not None]
        assert all(a.dtype.itemsize <= 2 for a in arrays)  # there are fewer than 65536 prefixes in any list
        assert not arrays or sum(a.nbytes for a in arrays) <= 3 * len(arrays[0])
