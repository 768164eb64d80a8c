"""Planted sparse functions of bits, and what recovers them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deploynas.accuracy.abnormal import normal, threshold_of
from deploynas.accuracy.parities import Polynomial, SamplingMatrix
from deploynas.accuracy.sparse_recovery import Measured, RecoverySettings, recover
from deploynas.errors import InputError


def drawn_bits(networks: int, bits: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.array([-1, 1], dtype=np.int8), (networks, bits))


def planted(bits: int, terms: int, seed: int, degree: int = 2) -> Polynomial:
    rng = np.random.default_rng(seed)
    found: set[tuple[int, ...]] = set()
    while len(found) < terms:
        found.add(tuple(sorted(rng.choice(bits, rng.integers(1, degree + 1), replace=False).tolist())))
    values = rng.choice([-1.0, 1.0], terms) * rng.uniform(0.2, 1.0, terms)
    return Polynomial(0.5, tuple(sorted(found)), tuple(values.tolist()))


def by_term(polynomial: Polynomial) -> dict[tuple[int, ...], float]:
    return dict(zip(polynomial.terms, polynomial.values, strict=True))


def sampled(truth: Polynomial, bits: np.ndarray, noise: float = 0.0) -> Measured:
    y = truth(bits) + noise * np.random.default_rng(9).normal(size=len(bits))
    return Measured(bits, y, np.ones(len(bits)))


def test_the_papers_size_is_recovered_with_support_and_sign():
    """n = 196, s = 14, m = 3,000, lambda = 10, no refit; Lasso shrinks every coefficient by about lambda / (2 m)."""
    truth = planted(196, 14, seed=0)
    bits = drawn_bits(3000, 196, np.random.default_rng(1))
    settings = RecoverySettings(lasso=10.0, terms=14, refit=False)
    found, told = by_term(recover(sampled(truth, bits), settings).polynomial), by_term(truth)
    assert found.keys() == told.keys()
    assert all(found[term] * told[term] > 0 for term in told)
    shrunk = [abs(told[term]) - abs(found[term]) for term in told]
    assert np.mean(shrunk) == pytest.approx(10 / 6000, rel=0.3)


@pytest.mark.parametrize(("bits", "terms", "networks", "degree"), [(60, 8, 400, 2), (40, 5, 200, 1), (18, 4, 300, 3)])
def test_planted_functions_are_recovered_exactly_without_being_told_lambda_or_s(bits, terms, networks, degree):
    truth = planted(bits, terms, seed=3, degree=degree)
    seen = drawn_bits(networks, bits, np.random.default_rng(4))
    found = recover(sampled(truth, seen), RecoverySettings(degree=degree))
    assert by_term(found.polynomial) == pytest.approx(by_term(truth), abs=1e-9)
    assert found.held_out_error < 1e-6


def test_noise_is_what_is_left_of_the_error_on_networks_left_out():
    truth, noise = planted(40, 6, seed=5), 0.2
    found = recover(sampled(truth, drawn_bits(1000, 40, np.random.default_rng(6)), noise), RecoverySettings())
    assert set(truth.terms) <= set(found.polynomial.terms)
    assert found.held_out_error == pytest.approx(noise, rel=0.15)


def test_the_solution_is_that_of_the_papers_objective():
    """Slopes of sum (y - A u)^2 + lambda |u|: zero where u is not, at most lambda elsewhere. No 1 / (2 m) anywhere."""
    bits = drawn_bits(120, 15, np.random.default_rng(7))
    measured, own = sampled(planted(15, 5, seed=8), bits, noise=0.3), 20.0
    found = recover(measured, RecoverySettings(lasso=own, refit=False)).polynomial
    kept = by_term(found)
    residual = measured.y - found(bits)
    assert residual.sum() == pytest.approx(0.0, abs=1e-9)  # the constant is not penalised
    for size in (1, 2):
        for term in itertools.combinations(range(15), size):
            slope = 2 * float(bits[:, list(term)].prod(axis=1) @ residual)
            if term in kept:
                assert slope == pytest.approx(np.sign(kept[term]) * own, rel=1e-2)
            else:
                assert abs(slope) <= own * 1.01


def test_a_weight_of_two_is_a_network_twice():
    rng = np.random.default_rng(2)
    bits, settings = drawn_bits(60, 8, rng), RecoverySettings(lasso=4.0, refit=False)
    y, twice = rng.normal(size=60), np.arange(60) < 20
    weighed = recover(Measured(bits, y, np.where(twice, 2.0, 1.0)), settings).polynomial
    repeated = recover(
        Measured(np.concatenate([bits, bits[twice]]), np.concatenate([y, y[twice]]), np.ones(80)), settings
    ).polynomial
    assert weighed(bits) == pytest.approx(repeated(bits), abs=1e-4)


def test_all_columns_at_once_have_the_products_of_the_columns_one_by_one():
    rng = np.random.default_rng(0)
    bits, r = drawn_bits(30, 7, rng), rng.normal(size=30)
    for degree in (1, 2, 3):
        matrix = SamplingMatrix(bits, degree, np.array([0, 0, 1, 2, 2, 2, 3]))
        columns = matrix.columns(np.arange(len(matrix)))
        assert matrix.products(r) == pytest.approx(columns.T @ r)
        terms = [matrix.term(number) for number in range(len(matrix))]
        assert len(set(terms)) == len(terms) and (0, 1) not in terms and (3, 4) not in terms
    assert len(SamplingMatrix(bits, 2)) == 7 + 21
    assert len(SamplingMatrix(bits, 2, np.array([0, 0, 1, 2, 2, 2, 3]))) == 7 + 21 - 1 - 3


@pytest.mark.parametrize("wrong", [{"degree": 0}, {"degree": 4}, {"lasso": 0.0}, {"terms": 0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        RecoverySettings(**wrong)


# -- the threshold ----------------------------------------------------------------------------------------


def test_the_threshold_drops_planted_broken_networks_and_nothing_else():
    rng = np.random.default_rng(0)
    clean = rng.normal(0.85, 0.03, 2000)
    assert normal(clean, "auto").all()
    broken = rng.permutation(np.concatenate([clean, np.full(80, 0.1)]))
    assert (normal(broken, "auto") == (broken > 0.1)).all()
    assert normal(np.append(clean, 0.1), "none").all()
    assert (normal(broken, 0.8) == (broken >= 0.8)).all()


def test_accuracies_that_are_all_alike_have_no_threshold():
    assert threshold_of(np.full(20, 0.7), "auto") == -np.inf
    with pytest.raises(InputError, match="a number, `auto` or `none`"):
        threshold_of(np.ones(3), "median")  # type: ignore[arg-type]
