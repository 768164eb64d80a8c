"""What single changes of a network are worth: differences of whole networks, by brute force the same."""

from __future__ import annotations

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.changes import single_changes
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.latency.table import LatencyTable

SPACE = dn.Space.load("fashion")
RNG = np.random.default_rng(0)


def bilinear() -> StoredEstimator:
    return dn.BilinearEstimator.from_arrays(
        SPACE, 0.6, *SPACE.decisions.ragged(RNG.normal(scale=0.01, size=len(SPACE.decisions)))
    )


def indexed() -> StoredEstimator:
    seen = SPACE.architectures(SPACE.decisions.draw(60, RNG))
    return dn.fit_indexed(SPACE, seen, RNG.uniform(0.5, 0.7, len(seen)), indices=2)


TABLE = LatencyTable.from_arrays(
    SPACE, 0.1, [RNG.uniform(0.1, 0.5, (stage.max_depth, len(stage.configs))) for stage in SPACE.stages]
)


@pytest.mark.parametrize("make", [bilinear, indexed])
def test_a_change_is_the_difference_of_two_whole_networks(make):
    estimator = make()
    for architecture in SPACE.architectures(SPACE.decisions.draw(10, RNG)):
        changes = single_changes(estimator, architecture, TABLE)
        assert changes
        for change in changes:
            before, after = estimator.expect(architecture).accuracy, estimator.expect(change.architecture).accuracy
            assert change.accuracy == pytest.approx(after - before)
            assert change.latency_ms == pytest.approx(TABLE.predict(change.architecture) - TABLE.predict(architecture))
        assert [c.accuracy for c in changes] == sorted((c.accuracy for c in changes), reverse=True)


def test_every_change_is_another_network_in_one_stage_and_none_comes_twice():
    estimator = bilinear()
    for architecture in SPACE.architectures(SPACE.decisions.draw(30, RNG)):
        made = [change.architecture for change in single_changes(estimator, architecture)]
        assert len({network.choices for network in made}) == len(made)
        for network in made:
            pairs = zip(network.choices, architecture.choices, strict=True)
            assert sum(own != before for own, before in pairs) == 1


def test_the_smallest_network_can_only_grow_and_the_heaviest_only_shrink():
    estimator = bilinear()
    for network, sign in ((SPACE.smallest(), 1), (SPACE.heaviest(), -1)):
        costs = dn.Costs.of(SPACE, network)
        for change in single_changes(estimator, network):
            assert sign * (dn.Costs.of(SPACE, change.architecture).macs - costs.macs) > 0
            assert change.latency_ms is None and change.accuracy_per_ms is None


def test_an_added_block_repeats_the_last_one():
    network = SPACE.smallest()
    deeper = [c for c in single_changes(bilinear(), network, TABLE) if c.what.startswith("depth")]
    assert {change.place for change in deeper} == {f"stage {s + 1}" for s in range(len(SPACE.stages))}
    for change in deeper:
        s = int(change.place.split()[1]) - 1
        own = change.architecture.choices[s]
        assert len(own) > len(network.choices[s]) and set(own) == set(network.choices[s])
        assert change.latency_ms is not None and change.latency_ms > 0
        assert change.accuracy_per_ms == pytest.approx(change.accuracy / change.latency_ms)
