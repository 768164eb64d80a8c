"""The sparse estimator: bits of networks, and searches that are exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.bits import Bits
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.fourier_fit import FourierSettings, fit_fourier
from deploynas.accuracy.sparse_recovery import RecoverySettings
from deploynas.errors import InputError
from deploynas.search.evolution import Evolution
from deploynas.search.problem import Problem
from deploynas.space.coefficients import CoupledObjective, OpaqueObjective, SeparableObjective


def random_terms(space: dn.Space, count: int, rng: np.random.Generator, degree: int = 2) -> FourierEstimator:
    """With terms over any bits, those of choices that may not count and of depths too."""
    entries = space.decisions.encoded_at[list(Bits.of(space.decisions).entries)]
    drawn = [rng.choice(entries, rng.integers(1, degree + 1), replace=False) for _ in range(count)]
    terms = {tuple(sorted(term.tolist())) for term in drawn}
    return FourierEstimator.from_terms(space, 0.6, sorted(terms), rng.normal(scale=0.02, size=len(terms)))


def test_a_bit_says_that_an_option_is_taken_and_counts(small):
    bits = Bits.of(small.decisions)
    shallow = bits(small.rows([small.architecture([[3], [1]])]))[0]
    deep = bits(small.rows([small.architecture([[3, 0], [1, 0, 1]])]))[0]
    names = [(small.decisions.names[c], int(o)) for c, o in zip(bits.columns, bits.options, strict=True)]
    assert len(set(names)) == len(bits)
    on = {name for name, bit in zip(names, shallow, strict=True) if bit == 1}
    assert on == {("stage1/block1", 3), ("stage2/block1", 1)}  # nothing of the blocks that are not there
    on = {name for name, bit in zip(names, deep, strict=True) if bit == 1}
    blocks = {
        ("stage1/block1", 3),
        ("stage1/block2", 0),
        ("stage2/block1", 1),
        ("stage2/block2", 0),
        ("stage2/block3", 1),
    }
    assert on == blocks | {("depth of stage 1", 1), ("depth of stage 2", 1)}


def test_options_that_always_come_together_share_a_bit(small):
    """Of two depths the second has one, of one depth none; of two options that may not count, both."""
    per_column = np.bincount(Bits.of(small.decisions).columns, minlength=small.decisions.columns)
    assert per_column.tolist() == [1, 1, 4, 4, 1, 2, 2]
    cell = dn.Space.load("nasbench201")
    assert np.bincount(Bits.of(cell.decisions).columns).tolist() == [0, 5, 5, 5, 5, 5, 5]


def test_the_objective_has_the_predictions_of_all_networks(small):
    for seed in range(5):
        estimator = random_terms(small, 12, np.random.default_rng(seed))
        objective = estimator.objective()
        assert isinstance(objective, (CoupledObjective, SeparableObjective))
        for network in small.enumerate():
            assert objective.score(network) == pytest.approx(estimator.predict(network), abs=1e-12)


def test_terms_within_a_block_and_its_depth_separate_by_stage(small):
    decisions = small.decisions
    bits = Bits.of(decisions)
    entries = decisions.encoded_at[list(bits.entries)]
    depth = int(entries[bits.columns == 0][0])
    block = [int(e) for e in entries[bits.columns == decisions.column(0, 1)]]
    estimator = FourierEstimator.from_terms(small, 0.5, [sorted([block[0], depth]), [block[1]]], [0.1, 0.2])
    assert isinstance(estimator.objective(), SeparableObjective)


def test_terms_that_join_three_decisions_can_only_be_asked(small):
    estimator = random_terms(small, 20, np.random.default_rng(0), degree=3)
    assert estimator.degree == 3 and isinstance(estimator.objective(), OpaqueObjective)
    with pytest.raises(InputError, match="can only be asked"):
        dn.search(small, estimator, [dn.Limit("params", 1e9)])
    (found,) = Evolution(generations=15).solve(Problem.build(small, estimator, []))
    assert found.score == pytest.approx(max(estimator.predict(n) for n in small.enumerate()))


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_search_is_brute_force_with_and_without_a_latency_limit(small, seed):
    rng = np.random.default_rng(seed)
    estimator = random_terms(small, 10, rng)
    blocks = [[rng.uniform(0.1, 2, len(c.options)).tolist() for c in g.choices] for g in small.decisions.groups]
    table = dn.LatencyTable.from_arrays(small, 0.5, blocks)
    for budget in (1e6, 3.0):
        allowed = [n for n in small.enumerate() if table.predict(n) <= budget]
        best = max(estimator.predict(n) for n in allowed)
        found = dn.search(small, estimator, [dn.Limit(table, budget)])
        assert found.optimal and found.accuracy == pytest.approx(best, abs=1e-9)
        assert table.predict(found.architecture) <= budget


def test_a_fit_learns_a_planted_function_of_networks():
    space = dn.Space.load("fashion")
    truth = random_terms(space, 6, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    seen, unseen = ([space.sample(rng) for _ in range(n)] for n in (500, 50))
    found = fit_fourier(space, seen, [truth.predict(n) for n in seen])
    assert max(abs(found.predict(n) - truth.predict(n)) for n in unseen) < 0.01
    assert found.predict_se(unseen[0]) == found.residual_se < 0.01


def test_broken_networks_are_left_out_and_counted(small):
    rng = np.random.default_rng(0)
    truth = random_terms(small, 5, rng)
    seen = [small.sample(rng) for _ in range(200)]
    y = np.array([truth.predict(n) for n in seen])
    y[::20] = 0.0
    kept = fit_fourier(small, seen, y)
    assert (kept.provenance["below_threshold"], kept.provenance["networks"]) == (10, 190)
    ruined = fit_fourier(small, seen, y, FourierSettings(threshold="none"))
    errors = [np.mean([abs(e.predict(n) - truth.predict(n)) for n in small.enumerate()]) for e in (kept, ruined)]
    assert errors[0] < 0.2 * errors[1]


def test_too_few_networks_above_the_threshold_are_an_error(small, rng):
    seen = [small.sample(rng) for _ in range(30)]
    with pytest.raises(InputError, match="0 of 30 reach the threshold"):
        fit_fourier(small, seen, rng.uniform(0.1, 0.2, 30), FourierSettings(threshold=0.9))


def test_the_asked_number_of_terms_is_kept(small, rng):
    seen = [small.sample(rng) for _ in range(100)]
    y = np.array([random_terms(small, 10, np.random.default_rng(5)).predict(n) for n in seen])
    found = fit_fourier(small, seen, y, FourierSettings(RecoverySettings(terms=3)))
    assert len(found.terms) == 3


@pytest.mark.parametrize(
    "wrong", [{"terms": [[1, 0]]}, {"terms": [[]]}, {"terms": [[0, 10_000]]}, {"values": [np.nan]}]
)
def test_terms_that_mean_nothing_are_refused(small, wrong):
    arguments = {"terms": [[0, 1]], "values": [0.1], **wrong}
    with pytest.raises(InputError):
        FourierEstimator.from_terms(small, 0.5, **arguments)


def test_only_the_fit_needs_scikit_learn(small, tmp_path):
    import subprocess
    import sys

    random_terms(small, 6, np.random.default_rng(0)).save(tmp_path / "e.json")
    code = (
        "import sys; sys.modules['sklearn'] = None; import deploynas as dn\n"
        f"e = dn.load_estimator({str(tmp_path / 'e.json')!r})\n"
        "found = dn.search(e.space, e, [dn.Limit('params', 1e9)])\n"
        "assert found.optimal and 'torch' not in sys.modules; print(e.predict(found.architecture))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    best = max(dn.load_estimator(tmp_path / "e.json").predict(n) for n in small.enumerate())
    assert float(done.stdout) == pytest.approx(best)


def test_a_lack_of_fit_takes_the_place_of_the_held_out_error(small):
    from deploynas.accuracy.lack_of_fit import stating_lack_of_fit

    estimator = replace(random_terms(small, 4, np.random.default_rng(0)), residual_se=0.01)
    assert stating_lack_of_fit(estimator, 0.02).predict_se(small.smallest()) == 0.02
