"""HNAS on planted pools, where accuracy is a known function of the scores and so the right mu and nu are known."""

from __future__ import annotations

import numpy as np
import pytest

from deploynas.accuracy.training_free.hnas import HnasOutcome, HnasSettings, Points, PoolScores, choose
from deploynas.errors import InputError

POOL = 80


def drawn_pool(seed: int) -> PoolScores:
    rng = np.random.default_rng(seed)
    return PoolScores(np.exp(rng.normal(5.0, 1.0, POOL)), rng.uniform(2.0, 10.0, POOL))


class Truth:
    """Accuracies that fall with the objective at one pair of numbers; counts how often it is asked."""

    def __init__(self, pool: PoolScores, mu: float, nu: float) -> None:
        worth = pool.objective(mu, nu)
        self.accuracies, self.asked = 0.9 - 0.3 * (worth - worth.min()) / np.ptp(worth), list[int]()

    def __call__(self, number: int) -> float:
        self.asked.append(number)
        return float(self.accuracies[number])

    @property
    def best(self) -> int:
        return int(np.argmax(self.accuracies))


def test_the_objective_on_numbers_by_hand() -> None:
    """4/2 + 0.5 (4 - 5)^2 = 2.5 and 9/3 + 0.5 (9 - 5)^2 = 11; with mu = 0 the ratios 2 and 3; nu = 9 turns it round."""
    pool = PoolScores(np.array([4.0, 9.0]), np.array([2.0, 3.0]))
    assert pool.objective(0.5, 5.0).tolist() == [2.5, 11.0]
    assert pool.objective(0.0, 5.0).tolist() == [2.0, 3.0]
    assert pool.objective(1.0, 9.0).tolist() == [27.0, 3.0]
    assert (pool.best(0.5, 5.0), pool.best(1.0, 9.0)) == (0, 1)


def test_the_points_reach_from_kappa_alone_to_every_size_of_the_metric() -> None:
    pool = drawn_pool(0)
    points = Points.of(pool)
    assert np.argmin(pool.ratio) in points.network[points.mu == points.mu.min()]
    most = points.mu == points.mu.max()
    (small,) = points.network[most & (points.nu == points.nu.min())]
    (large,) = points.network[most & (points.nu == points.nu.max())]
    assert pool.metric[small] < np.quantile(pool.metric, 0.1) and pool.metric[large] > np.quantile(pool.metric, 0.9)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_network_of_the_pool_is_found_with_few_validations(seed: int) -> None:
    """The truth lies between the points: mu where both terms count, nu in the middle of M^2."""
    pool = drawn_pool(seed)
    truth = Truth(pool, mu=0.03, nu=float(np.quantile(pool.squares, 0.4)))
    settings = HnasSettings(validations=POOL // 5, seed=seed)
    found = choose(pool, truth, settings)
    best = found.ranked[0]
    assert best.network == truth.best
    assert pool.best(best.mu, best.nu) == truth.best
    assert len(found.proposals) <= POOL // 5


def test_every_network_is_validated_once_and_all_are_counted() -> None:
    pool = drawn_pool(1)
    truth = Truth(pool, 0.03, 30.0)
    found = choose(pool, truth, HnasSettings(validations=12))
    proposed, random = ([one.network for one in kind] for kind in (found.proposals, found.random))
    assert len(proposed) == len(set(proposed)) == 12 == len(random) == len(set(random))
    assert truth.asked[:12] == proposed and len(truth.asked) == len(set(truth.asked)) == found.validated
    assert set(truth.asked) == {*proposed, *random}
    assert all(one.accuracy == truth.accuracies[one.network] for one in (*found.proposals, *found.random))
    assert [one.accuracy for one in found.ranked] == sorted((one.accuracy for one in found.proposals), reverse=True)


def test_no_validation_is_spent_where_no_numbers_lead_elsewhere() -> None:
    """Of networks with one M all numbers lead to the one with the smallest kappa."""
    pool = PoolScores(np.array([9.0, 4.0, 25.0]), np.full(3, 2.0))
    truth = Truth(pool, 1.0, 1.0)
    found = choose(pool, truth, HnasSettings(validations=3))
    assert [one.network for one in found.proposals] == [1] and len(found.random) == 1


def test_kernels_that_are_singular_do_not_hide_the_others() -> None:
    pool = drawn_pool(2)
    kappa = np.where(np.arange(POOL) % 3 == 0, 1e15, pool.kappa)
    truth = Truth(drawn_pool(2), 0.03, 30.0)
    found = choose(PoolScores(kappa, pool.metric), truth, HnasSettings(validations=12))
    whole = [number for number in range(POOL) if number % 3]
    assert found.ranked[0].accuracy >= np.sort(truth.accuracies[whole])[-2]


def test_the_same_seed_gives_the_same_answer_and_another_does_not() -> None:
    pool = drawn_pool(3)

    def found(seed: int) -> HnasOutcome:
        return choose(pool, Truth(pool, 0.03, 30.0), HnasSettings(validations=6, seed=seed))

    assert found(0) == found(0)
    assert found(0) != found(1)


def test_equal_accuracies_are_no_trouble() -> None:
    found = choose(drawn_pool(4), lambda number: 0.5, HnasSettings(validations=6))
    assert len(found.proposals) == 6


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"metric": "kappa"}, "no score for HNAS `kappa`"),
        ({"metric": "synflow"}, "no score for HNAS"),
        ({"pool": 1}, "at least 2 networks"),
        ({"validations": 0}, "at least one validation"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict, why: str) -> None:
    with pytest.raises(InputError, match=why):
        HnasSettings(**wrong)
