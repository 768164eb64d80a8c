"""Differences of networks: parts that add up, whatever the order; errors that are those of the difference itself."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.at_network import worth_at
from deploynas.accuracy.averages import average_worth
from deploynas.accuracy.bilinear import StandardErrors
from deploynas.accuracy.comparisons import comparisons_of
from deploynas.accuracy.differences import difference
from deploynas.accuracy.estimator_file import Curve, EstimatorValidation, StoredEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.insights import claims_of, insights_of
from deploynas.accuracy.network_comparison import compare_networks
from deploynas.latency.table import LatencyTable
from deploynas.space import Architecture, Space

SPACE = dn.Space.load(Path(__file__).parents[1] / "golden" / "spaces" / "first-fashion.yaml")
RNG = np.random.default_rng(0)
TABLE = LatencyTable.from_arrays(
    SPACE, 0.1, [RNG.uniform(0.1, 0.5, (stage.max_depth, len(stage.configs))) for stage in SPACE.stages]
)
FITTED: dict[int, IndexedEstimator] = {}


def bilinear() -> dn.BilinearEstimator:
    values = SPACE.decisions.ragged(np.random.default_rng(1).normal(scale=0.01, size=len(SPACE.decisions)))
    errors = StandardErrors.checked(SPACE, 0.01, *SPACE.decisions.ragged(np.full(len(SPACE.decisions), 0.002)))
    return dn.BilinearEstimator.from_arrays(SPACE, 0.6, *values, errors)


def indexed() -> IndexedEstimator:
    if not FITTED:
        rng = np.random.default_rng(2)
        seen = SPACE.architectures(SPACE.decisions.draw(120, rng))
        accuracies = [0.5 + 0.4 * np.tanh(dn.Costs.of(SPACE, a).params / 4e4) for a in seen]
        FITTED[1] = dn.fit_indexed(SPACE, seen, np.array(accuracies) + rng.normal(scale=0.003, size=120), indices=1)
    return FITTED[1]


every_kind = pytest.mark.parametrize("make", [bilinear, indexed])


@every_kind
def test_parts_add_up_to_the_whole(make) -> None:
    estimator: StoredEstimator = make()
    for after, before in zip(*(SPACE.architectures(SPACE.decisions.draw(4, RNG)) for _ in range(2)), strict=True):
        found = compare_networks(estimator, after, before, TABLE)
        whole = estimator.expect(after).accuracy - estimator.expect(before).accuracy
        assert found.accuracy.accuracy == pytest.approx(whole)
        assert sum(part.accuracy.accuracy for part in found.parts) == pytest.approx(whole)
        slower = TABLE.predict(after) - TABLE.predict(before)
        assert found.latency_ms == pytest.approx(slower)
        assert sum(part.latency_ms or 0 for part in found.parts) == pytest.approx(slower)


def test_a_part_is_the_mean_over_all_orders() -> None:
    """Three decisions, by brute force over their six orders."""
    estimator, before = indexed(), SPACE.smallest()
    heavy = SPACE.heaviest().choices
    after = SPACE.architecture([heavy[0][:1], heavy[1][:1], heavy[2][:1]])
    added = np.zeros(3)
    for order in itertools.permutations(range(3)):
        choices = list(before.choices)
        for s in order:
            start = estimator.predict(SPACE.architecture(choices))
            choices[s] = after.choices[s]
            added[s] += estimator.predict(SPACE.architecture(choices)) - start
    found = compare_networks(estimator, after, before)
    parts = {part.place: part.accuracy.accuracy for part in found.parts}
    assert [parts[f"stage{s + 1}/block1"] for s in range(3)] == pytest.approx(added / 6)
    assert found.latency_ms is None and found.parts[0].what == "expansion 0.5 → 4, kernel 1 → 5, se none → 0.25"


def test_blocks_come_and_go_with_their_depth() -> None:
    smallest, heaviest = SPACE.smallest(), SPACE.heaviest()
    grown = SPACE.architecture(
        [smallest.choices[0], smallest.choices[1] + heaviest.choices[1][1:], smallest.choices[2]]
    )
    for after, before, what in ((grown, smallest, "depth 1 → 3"), (smallest, grown, "depth 3 → 1")):
        (part,) = compare_networks(bilinear(), after, before, TABLE).parts
        assert (part.place, part.what) == ("stage 2", what)
        assert part.latency_ms == pytest.approx(TABLE.predict(after) - TABLE.predict(before))


@every_kind
def test_a_network_is_no_different_from_itself(make) -> None:
    network = SPACE.sample(RNG)
    found = compare_networks(make(), network, network, TABLE)
    assert found.parts == () and (found.accuracy.accuracy, found.latency_ms) == (0, 0)
    assert found.accuracy.se == 0


def test_errors_are_of_what_differs() -> None:
    """Of contributions: two means of twelve that vary by 0.002 from their common mean."""
    before = SPACE.smallest()
    after = SPACE.architecture([[before.choices[0][0] + 1], *before.choices[1:]])
    estimator = bilinear()
    assert difference(estimator, after, before).se == pytest.approx(0.002 * (2 * 12 / 11) ** 0.5)
    assert estimator.predict_se(after) > difference(estimator, after, before).se
    linked = indexed()
    draws = linked.draws(SPACE.rows([after, before]))
    assert difference(linked, after, before).se == pytest.approx((draws[:, 0] - draws[:, 1]).std(ddof=1))
    assert (
        difference(dn.BilinearEstimator.from_arrays(SPACE, 0.6, estimator.depth, estimator.block), after, before).se
        is None
    )


def test_where_a_curve_says_what_to_expect_errors_shrink_with_it() -> None:
    plain = bilinear()
    after, before = SPACE.heaviest(), SPACE.smallest()
    curve = Curve(predicted=[0.0, 1.0], measured=[0.3, 0.8])
    curved = replace(plain, validation=EstimatorValidation(networks=0, curve=curve))
    one, half = difference(plain, after, before), difference(curved, after, before)
    assert (half.accuracy, half.se) == (pytest.approx(one.accuracy / 2), pytest.approx(one.se / 2))


def changed_by_hand(network: Architecture, s: int, b: int, se: float) -> Architecture:
    own = network.config(s, b)
    configs = SPACE.stages[s].configs
    (c,) = [i for i, config in enumerate(configs) if config.factors() == {**own.factors(), "se": se}]
    stage = [*network.choices[s][:b], c, *network.choices[s][b + 1 :]]
    return SPACE.architecture([*network.choices[:s], stage, *network.choices[s + 1 :]])


@every_kind
def test_what_a_comparison_is_worth_at_a_network(make) -> None:
    """The mean over the blocks that are there of the change made in one of them."""
    estimator: StoredEstimator = make()
    comparisons = {c.key: c for c in comparisons_of(SPACE.decisions)}
    network = SPACE.sample(np.random.default_rng(5))
    for s, own in enumerate(network.choices):
        gains = [
            estimator.predict(changed_by_hand(network, s, b, 0.25))
            - estimator.predict(changed_by_hand(network, s, b, 0))
            for b in range(len(own))
        ]
        found = worth_at(estimator, comparisons["se", "none → 0.25", f"stage {s + 1}"], network)
        assert found is not None and found.accuracy == pytest.approx(np.mean(gains))
    assert worth_at(estimator, comparisons["se", "none → 0.25", "block 3"], SPACE.smallest()) is None
    deeper = worth_at(estimator, comparisons["depth", "1 → 3", "stage 1"], SPACE.smallest())
    first = SPACE.smallest().choices
    grown = SPACE.architecture([first[0] * 3, *first[1:]])
    wanted = estimator.predict(grown) - estimator.predict(SPACE.smallest())
    assert deeper is not None and deeper.accuracy == pytest.approx(wanted)


def test_averages_behind_a_link_are_those_over_all_networks(small: Space) -> None:
    """By enumeration of a space that is small enough; 200 random networks are near it."""
    rng = np.random.default_rng(3)
    seen = small.architectures(small.decisions.draw(60, rng))
    accuracies = [0.5 + 0.3 * np.tanh(dn.Costs.of(small, a).params / 2000) for a in seen]
    estimator = dn.fit_indexed(small, seen, accuracies, indices=1)
    rows = np.array(list(itertools.product(*(range(size) for size in small.decisions.sizes))))
    y, worth = estimator.predict_rows(rows), average_worth(estimator)
    for comparison in comparisons_of(small.decisions):
        wanted = 0.0
        for column, weights in comparison.terms:
            counts = small.decisions.counts(rows)[:, column]
            means = [y[counts & (rows[:, column] == option)].mean() for option in range(len(weights))]
            wanted += weights @ np.array(means) / len(comparison.terms)
        gain, se = worth.compare(comparison.weights)
        assert gain == pytest.approx(wanted, abs=0.15 * abs(wanted) + 1e-4) and se is not None
    assert claims_of(insights_of(estimator)) == []  # the fit leans towards what other places say
