"""Refinement: predictions become right where the search goes, and say how right they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import SPACE, accuracies, both_needed, networks, planted

from deploynas.accuracy.estimator_file import Curve, EstimatorValidation, StoredEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed
from deploynas.accuracy.learned import fit_bilinear, fit_quadratic
from deploynas.accuracy.refinement import MeasuredNetwork, refine
from deploynas.errors import InputError
from deploynas.search.frontier import Frontier, problem_frontier
from deploynas.search.problem import Problem, resource_cost

TRUTH = planted(both_needed(), seed=33)


def frontier_of(estimator: StoredEstimator) -> Frontier:
    return problem_frontier(Problem(SPACE, estimator.objective(), (resource_cost(SPACE, "macs"),)))


def fitted(kind: str) -> StoredEstimator:
    seen = networks(120, seed=3)
    y = accuracies(TRUTH, seen) + np.random.default_rng(3).normal(scale=0.004, size=120)
    return fit_bilinear(SPACE, seen, y) if kind == "additive" else fit_indexed(SPACE, seen, y, indices=1)


def new_networks(estimator: StoredEstimator, known: list[MeasuredNetwork]) -> list[MeasuredNetwork]:
    before = {network.architecture for network in known}
    fresh = [p.architecture for p in frontier_of(estimator).thin(60) if p.architecture not in before]
    chosen = [fresh[i] for i in np.unique(np.linspace(0, len(fresh) - 1, 8).astype(int))]
    return [MeasuredNetwork(network, TRUTH.predict(network), 0.005) for network in chosen]


@pytest.mark.parametrize("kind", ["additive", "one index"])
def test_errors_vanish_on_networks_of_the_frontier_that_were_not_measured(kind: str) -> None:
    start = fitted(kind)
    estimator, known, errors, held = start, list[MeasuredNetwork](), [], []
    for _ in range(4):
        fresh = new_networks(estimator, known)
        found = [estimator.expect(network.architecture) for network in fresh]
        error = np.array([e.accuracy for e in found]) - [network.accuracy for network in fresh]
        errors.append(float(np.sqrt((error**2).mean())))
        held += [np.abs(error) <= [1.645 * (e.se or 0) for e in found]] if known else []
        known += fresh
        estimator = refine(start, known)
    assert errors[-1] < 0.005 < 0.01 < errors[0]
    assert np.concatenate(held).mean() >= 0.8


def test_what_was_measured_is_nearly_what_is_expected() -> None:
    start = fitted("additive")
    known = new_networks(start, [])
    refined = refine(start, known)
    rows = SPACE.rows([network.architecture for network in known])
    measured = np.array([network.accuracy for network in known])
    before = np.array([start.predict(network.architecture) for network in known])
    assert np.abs(refined.predict_rows(rows) - measured).mean() < 0.2 * np.abs(before - measured).mean()


def test_nothing_measured_changes_nothing() -> None:
    start, nets = fitted("one index"), networks(5, seed=8)
    assert [refine(start, []).predict(n) for n in nets] == [start.predict(n) for n in nets]


def test_a_refined_estimator_forgets_the_curve_of_before_and_comes_back_from_its_file(tmp_path: Path) -> None:
    curve = Curve(predicted=[0.0, 1.0], measured=[0.1, 0.2])
    start = replace(fitted("additive"), validation=EstimatorValidation(networks=50, kendall_tau=0.8, curve=curve))
    refined = refine(start, new_networks(start, []))
    assert refined.validation is not None and refined.validation.curve is None
    assert refined.validation.kendall_tau == 0.8
    refined.save(tmp_path / "estimator.json")
    again, network = IndexedEstimator.load(tmp_path / "estimator.json"), networks(1, seed=5)[0]
    assert again.expect(network) == refined.expect(network)


def test_forms_without_contributions_are_refused() -> None:
    seen = networks(60, seed=1)
    with pytest.raises(InputError, match="can be refined"):
        refine(fit_quadratic(SPACE, seen, accuracies(TRUTH, seen)), [])
