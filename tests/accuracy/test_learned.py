"""Learned forms recover what was planted, and hand themselves to the search."""

from __future__ import annotations

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.errors import InputError

SPACE = dn.Space.load("fashion")


def planted(seed: int = 0) -> dn.BilinearEstimator:
    rng = np.random.default_rng(seed)
    depth = [rng.normal(scale=0.02, size=len(s.depths)) for s in SPACE.stages]
    block = [rng.normal(scale=0.02, size=(s.max_depth, len(s.configs))) for s in SPACE.stages]
    return dn.BilinearEstimator.from_arrays(SPACE, 0.8, depth, block)


def networks(n: int, seed: int = 1) -> list[dn.Architecture]:
    rng = np.random.default_rng(seed)
    return [SPACE.sample(rng) for _ in range(n)]


def test_planted_contributions_are_recovered_exactly():
    truth, seen = planted(), networks(800)
    found = dn.fit_bilinear(SPACE, seen, [truth.predict(a) for a in seen])
    for architecture in networks(50, seed=2):
        assert found.predict(architecture) == pytest.approx(truth.predict(architecture), abs=1e-9)


def test_contributions_are_reported_as_deviations():
    truth, seen = planted(), networks(800)
    found = dn.fit_bilinear(SPACE, seen, [truth.predict(a) for a in seen])
    assert all(abs(sum(row)) < 1e-9 for row in found.depth)
    assert all(abs(sum(row)) < 1e-9 for stage in found.block for row in stage)
    # so the base is the mean over networks drawn uniformly
    drawn = [truth.predict(a) for a in networks(4000, seed=3)]
    assert found.base == pytest.approx(np.mean(drawn), abs=5 * np.std(drawn) / 4000**0.5)


def test_its_standard_errors_cover_the_truth():
    truth, noise = planted(), 0.01
    exact = dn.fit_bilinear(SPACE, networks(800), [truth.predict(a) for a in networks(800)])
    inside = []
    for seed in range(20):
        seen, rng = networks(600, seed=seed + 10), np.random.default_rng(seed)
        y = [truth.predict(a) + rng.normal(scale=noise) for a in seen]
        found = dn.fit_bilinear(SPACE, seen, y, seed=seed)
        for s, stage in enumerate(found.block):
            for b, row in enumerate(stage):
                off = np.abs(np.array(row) - exact.block[s][b])
                inside.append(off < 1.96 * np.array(found.errors.block[s][b]))
    # a truncated rank leaves out directions that carry little, so coverage may be a little short of 95 %
    assert 0.9 < np.concatenate(inside).mean() < 0.99


def test_the_frontier_of_a_learned_estimator_is_that_of_the_truth(small):
    """By brute force: learned from all 200 networks of a small space, it finds what the planted worths say is best."""
    rng, everything = np.random.default_rng(0), list(small.enumerate())
    truth = dn.BilinearEstimator.from_arrays(
        small, 0.8, *small.decisions.ragged(rng.normal(scale=0.02, size=len(small.decisions)))
    )
    table = dn.LatencyTable.from_arrays(small, 0.1, [rng.random((s.max_depth, len(s.configs))) for s in small.stages])
    found = dn.fit_bilinear(small, everything, [truth.predict(a) for a in everything])
    expected, best = [], -np.inf
    for architecture in sorted(everything, key=table.predict):  # no two are equally fast
        if truth.predict(architecture) > best:
            best = truth.predict(architecture)
            expected.append(architecture)
    points = dn.frontier(small, found, table)
    assert [point.architecture for point in points] == expected
    assert [point.accuracy for point in points] == pytest.approx([truth.predict(a) for a in expected], abs=1e-9)


def test_pairs_across_stages_are_learned():
    rng = np.random.default_rng(0)
    size = len(SPACE.decisions)
    alphas = SPACE.decisions.alphas
    pairs = np.zeros((size, size))
    pairs[:alphas, alphas:] = rng.normal(scale=0.01, size=(alphas, size - alphas))
    truth = QuadraticEstimator.from_arrays(SPACE, 0.5, rng.normal(scale=0.01, size=size), pairs)
    seen, unseen = networks(1500), networks(100, seed=2)
    y = [truth.predict(a) for a in seen]
    wanted = np.array([truth.predict(a) for a in unseen])
    bilinear = dn.fit_bilinear(SPACE, seen, y, couple_stages=True)
    separable = dn.fit_bilinear(SPACE, seen, y)
    errors = [np.abs([f.predict(a) for a in unseen] - wanted).mean() for f in (bilinear, separable)]
    assert errors[0] < 1e-6 < errors[1]


def test_the_quadratic_fit_contains_the_bilinear_one_and_keeps_an_honest_error():
    truth, seen, unseen = planted(), networks(1200), networks(200, seed=2)
    rng = np.random.default_rng(0)
    y = np.array([truth.predict(a) for a in seen]) + rng.normal(scale=0.01, size=len(seen))
    found = dn.fit_quadratic(SPACE, seen, y)
    off = np.array([found.predict(a) - truth.predict(a) for a in unseen])
    assert np.corrcoef([found.predict(a) for a in unseen], [truth.predict(a) for a in unseen])[0, 1] > 0.9
    # held-out error: of the prediction and of the measurement together
    assert found.residual_se == pytest.approx((off.std() ** 2 + 0.01**2) ** 0.5, rel=0.25)


def test_constant_accuracies_are_a_constant_estimator():
    found = dn.fit_bilinear(SPACE, networks(20), [0.7] * 20)
    assert found.predict(SPACE.heaviest()) == pytest.approx(0.7)


@pytest.mark.parametrize("fit", [dn.fit_bilinear, dn.fit_quadratic, dn.fit_mlp])
def test_what_cannot_be_fitted_is_refused(fit):
    with pytest.raises(InputError, match="at least 10"):
        fit(SPACE, networks(5), [0.5] * 5)
    with pytest.raises(InputError):
        fit(SPACE, networks(20), [0.5] * 19)
    with pytest.raises(InputError, match="finite"):
        fit(SPACE, networks(20), [float("nan")] * 20)


def test_the_perceptron_is_searched_by_evolution():
    truth, seen = planted(), networks(400)
    found = dn.fit_mlp(SPACE, seen, [truth.predict(a) for a in seen])
    rng = np.random.default_rng(0)
    table = dn.LatencyTable.from_arrays(SPACE, 0.1, [rng.random((s.max_depth, len(s.configs))) for s in SPACE.stages])
    from deploynas.search.evolution import Evolution
    from deploynas.search.problem import Limit, Problem

    (best,) = Evolution(generations=3).solve(Problem.build(SPACE, found, [Limit(table, 3.0)]))
    assert table.predict(best.architecture) <= 3.0
    assert best.score == pytest.approx(found.predict(best.architecture))


@pytest.mark.parametrize(
    "fit",
    [
        dn.fit_bilinear,
        lambda *given, **options: dn.fit_bilinear(*given, couple_stages=True, **options),
        dn.fit_quadratic,
        lambda *given, **options: dn.fit_indexed(*given, indices=1, **options),
    ],
    ids=["bilinear", "coupled", "quadratic", "indexed"],
)
def test_networks_that_weigh_nothing_do_not_count(fit):
    """One in five says something absurd, and weighs a millionth of the others."""
    truth, seen, unseen = planted(), networks(500), networks(50, seed=2)
    absurd = np.arange(len(seen)) % 5 == 0
    y = np.array([truth.predict(a) for a in seen])
    told = np.where(absurd, 0.1, y)
    weights = np.where(absurd, 1e-6, 1.0)

    def error(found):
        return np.mean([abs(found.predict(a) - truth.predict(a)) for a in unseen])

    honest = error(fit(SPACE, [a for a, out in zip(seen, absurd, strict=True) if not out], y[~absurd]))
    assert error(fit(SPACE, seen, told, weights=weights)) < 1.3 * honest + 1e-4
    assert error(fit(SPACE, seen, told)) > 0.05
    assert fit(SPACE, seen, y, weights=3 * np.ones(len(y))).predict(unseen[0]) == pytest.approx(
        fit(SPACE, seen, y).predict(unseen[0]), abs=1e-12
    )  # only how they compare matters


@pytest.mark.parametrize("weights", [[1.0], [0.0] * 60, [np.nan] * 60])
def test_weights_must_be_weights(weights):
    seen = networks(60)
    with pytest.raises(InputError, match="60 networks need as many weights"):
        dn.fit_bilinear(SPACE, seen, [0.5] * 60, weights=weights)
