"""CoNAS as a search: rounds that decide everything, on functions whose best network is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.bits import Bits
from deploynas.accuracy.conas import PUBLISHED, ConasSettings, conas
from deploynas.accuracy.elimination import Factor, as_good, maximise
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.fourier_fit import FourierSettings
from deploynas.accuracy.parities import Polynomial
from deploynas.accuracy.restriction import Restriction
from deploynas.accuracy.sparse_recovery import RecoverySettings
from deploynas.errors import InputError

CELL = dn.Space.load("nasbench201")


def cell_function(seed: int, terms: int = 10) -> FourierEstimator:
    rng = np.random.default_rng(seed)
    entries = CELL.decisions.encoded_at[list(Bits.of(CELL.decisions).entries)]
    columns = Bits.of(CELL.decisions).columns
    found: set[tuple[int, ...]] = set()
    while len(found) < terms:
        a, b = rng.choice(len(entries), 2, replace=False)
        if columns[a] != columns[b]:
            found.add(tuple(sorted((int(entries[a]), int(entries[b])))))
    return FourierEstimator.from_terms(CELL, 0.8, sorted(found), rng.normal(scale=0.02, size=terms))


@pytest.mark.parametrize("seed", range(20))
def test_elimination_finds_what_brute_force_finds(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, 6).tolist()
    factors = []
    for _ in range(7):
        variables = tuple(int(v) for v in rng.choice(6, rng.integers(1, 4), replace=False))
        factors.append(Factor(variables, rng.normal(size=[sizes[v] for v in variables])))

    def total(chosen) -> float:
        return sum(float(f.table[tuple(chosen[v] for v in f.variables)]) for f in factors)

    best = max(map(total, itertools.product(*map(range, sizes))))
    assert total(maximise(factors, sizes)) == pytest.approx(best)


def test_options_that_no_factor_tells_apart_are_as_good():
    factors = [Factor((0, 1), np.array([[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]))]
    assert maximise(factors, [3, 2]).tolist() == [1, 1]
    assert as_good(factors, 0, 1, 3).tolist() == [1, 2]
    assert as_good(factors, 1, 1, 2).tolist() == [1]


def test_too_entangled_terms_are_refused_with_a_way_out():
    sizes = [12] * 8
    pairs = [Factor((a, b), np.zeros((12, 12))) for a, b in itertools.combinations(range(8), 2)]
    with pytest.raises(InputError, match="tie too many decisions"):
        maximise(pairs, sizes)


@pytest.mark.parametrize("seed", range(3))
def test_narrowing_keeps_the_best_networks_and_no_others(small, seed):
    """In a space with depths: what is left all has the largest value of the polynomial."""
    rng = np.random.default_rng(seed)
    bits = Bits.of(small.decisions)
    terms = {tuple(sorted(rng.choice(len(bits), rng.integers(1, 3), replace=False).tolist())) for _ in range(6)}
    polynomial = Polynomial(0.0, tuple(sorted(terms)), tuple(rng.normal(size=len(terms)).tolist()))
    left = Restriction.nothing(small.decisions).narrowed(bits, polynomial)
    values = polynomial(bits(left.every()))
    everything = small.rows(list(small.enumerate()))
    assert values == pytest.approx(polynomial(bits(everything)).max())


def test_rounds_decide_everything_and_on_the_best_network():
    truth = cell_function(0)
    every = CELL.rows(list(CELL.enumerate()))
    asked: list[int] = []

    def measure(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return truth.predict_rows(rows)

    decided = conas(CELL, measure, ConasSettings(measurements=200))
    assert decided.rounds[-1].left.combinations == 1
    assert truth.predict(decided.architecture) == pytest.approx(truth.predict_rows(every).max())
    assert sum(asked) == len(decided.rows) == len(decided.values)
    sizes = [own.left.combinations for own in decided.rounds]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) < 8


def test_networks_of_a_round_are_those_that_the_last_one_left():
    decided = conas(CELL, cell_function(1).predict_rows, ConasSettings(measurements=100))
    left = Restriction.nothing(CELL.decisions)
    for own in decided.rounds:
        for column, options in enumerate(left.options):
            assert set(own.rows[:, column].tolist()) <= set(options.tolist())
        left = own.left


def test_noise_alone_is_decided_too(rng):
    """Nothing to recover: each round still fixes something, if only the best that it has seen."""
    decided = conas(CELL, lambda rows: rng.normal(size=len(rows)), ConasSettings(measurements=40, seed=3))
    assert decided.rounds[-1].left.combinations == 1
    same = conas(CELL, lambda rows: np.full(len(rows), 0.5), ConasSettings(measurements=40))
    assert len(same.rounds) == 1


@pytest.mark.parametrize("sampling", ["uniform", "bernoulli"])
def test_as_published_bits_are_decided_one_by_one(sampling):
    """With losses in nats; an edge takes one of the operations whose bits are best."""
    truth = cell_function(2)

    def negative_loss(rows: np.ndarray) -> np.ndarray:
        return np.log(truth.predict_rows(rows))

    fourier = FourierSettings(RecoverySettings(lasso=1.0, terms=14, refit=False), PUBLISHED.threshold)
    settings = ConasSettings(measurements=300, fourier=fourier, sampling=sampling, decide="published", rounds=2)
    decided = conas(CELL, negative_loss, settings)
    every = truth.predict_rows(CELL.rows(list(CELL.enumerate())))
    assert truth.predict(decided.architecture) > np.median(every)


def test_bernoulli_draws_one_of_the_options_whose_bits_are_one(rng):
    bits = Bits.of(CELL.decisions)
    drawn, rows = Restriction.nothing(CELL.decisions).draw_bits(bits, 2000, 0.5, rng)
    assert drawn.mean() == pytest.approx(0.0, abs=0.02)
    for column in range(1, 7):
        own = drawn[:, bits.columns == column] == 1
        taken = own[np.arange(len(rows)), rows[:, column]]
        assert (taken == own.any(axis=1)).all()
        assert (own.sum(axis=1) == 0).mean() == pytest.approx(0.5**5, abs=0.02)


def test_a_space_that_is_small_enough_is_measured_whole(small):
    asked: list[np.ndarray] = []

    def measure(rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return rows.sum(axis=1).astype(float)

    decided = conas(small, measure, ConasSettings(measurements=10_000))
    assert len(asked) == 1 and len(asked[0]) == small.size()
    assert decided.architecture == small.architecture([[3, 3], [1, 1, 1]])


def test_combinations_count_what_is_open():
    nothing = Restriction.nothing(CELL.decisions)
    assert nothing.combinations == 5**6 == math.prod([5] * 6) and nothing.decided == 1  # the only depth


@pytest.mark.parametrize("wrong", [{"measurements": 5}, {"rounds": 0}, {"probability": 1.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        ConasSettings(**wrong)
