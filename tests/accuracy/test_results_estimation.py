"""Estimators from tables of measured networks: right about what was planted, and honest about what they leave out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.cross_validation import LeftOut, drawn_parts, held, lack_of_fit_of, leave_out
from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.accuracy.registry import RESULTS_METHODS
from deploynas.accuracy.results_estimation import ResultsSettings, estimate_from_table
from deploynas.accuracy.results_table import ResultsTable
from deploynas.errors import InputError
from deploynas.provenance import Credits, ResultsRecord

NOISE = 0.004


@pytest.fixture(scope="module")
def truth(small) -> dn.BilinearEstimator:
    values = np.random.default_rng(0).normal(scale=0.02, size=len(small.decisions))
    return dn.BilinearEstimator.from_arrays(small, 0.7, *small.decisions.ragged(values))


@pytest.fixture(scope="module")
def table(small, truth) -> ResultsTable:
    """150 of the 200 networks, in three groups that share some, measured with noise."""
    rng = np.random.default_rng(1)
    every = list(small.enumerate())
    networks = tuple(every[i] for i in rng.permutation(len(every))[:150])
    y = np.array([truth.predict(network) for network in networks]) + rng.normal(scale=NOISE, size=150)
    groups = tuple(frozenset({"abc"[i % 3], *("a" if i % 10 == 0 else "")}) for i in range(150))
    record = ResultsRecord(file="t.csv", sha256="0" * 64, rows=150, networks=150, groups="search")
    return ResultsTable(small, networks, y, record, groups=groups)


@pytest.fixture(scope="module")
def made(table) -> StoredEstimator:
    credits = Credits(about="a planted truth", source="this test", licence="CC0-1.0")
    return estimate_from_table(table, ResultsSettings(credits=credits))


def test_a_planted_truth_is_found_and_what_is_said_about_errors_holds(made, truth, table, small):
    unseen = [network for network in small.enumerate() if network not in set(table.architectures)]
    errors = np.array([made.predict(network) - truth.predict(network) for network in unseen])
    assert np.abs(errors).mean() < NOISE  # less than single measurements err
    validation = made.validation
    assert validation.networks == 150 and validation.folds == 5
    # noise is all that a fit cannot know, so networks left out err by little more
    assert NOISE * (2 / np.pi) ** 0.5 == pytest.approx(validation.mean_error, rel=0.25)
    assert made.lack_of_fit == pytest.approx(NOISE, rel=0.25)
    assert 0.82 <= validation.coverage <= 0.97 and abs(validation.bias) < NOISE / 2
    assert validation.top_networks == 15


def test_groups_are_left_out_whole_and_stated_one_by_one(made, table):
    assert [group.name for group in made.validation.groups] == ["a", "b", "c"]
    assert [group.networks for group in made.validation.groups] == [int(m.sum()) for m in table.masks().values()]
    for group in made.validation.groups:
        assert group.kendall_tau > 0.8 and group.mean_error < 2 * NOISE
        assert group.top_networks == round(0.1 * group.networks)
        assert 0.75 <= group.coverage <= 1


def test_it_remembers_what_it_was_made_from(made, tmp_path):
    made.save(tmp_path / "e.json")
    loaded = load_estimator(tmp_path / "e.json")
    assert loaded.results == made.results and loaded.validation == made.validation
    assert loaded.results.licence == "CC0-1.0" and loaded.results.words().endswith("this test; CC0-1.0")
    assert loaded.comparisons == ()  # which would be tested as if networks had been drawn at random


def test_no_network_of_a_group_has_a_part_in_the_fit_that_is_judged_on_it(table, truth):
    seen = []

    def fit(mask: np.ndarray) -> StoredEstimator:
        seen.append(mask)
        return truth

    masks = table.masks()
    assert masks["a"].sum() > 50, "some are of two groups"
    left_out = leave_out(table, fit, list(masks.values()))
    for mask, part, inside in zip(masks.values(), left_out, seen, strict=True):
        assert not (mask & inside).any() and (mask | inside).all()
        assert np.array_equal(part.measured, table.accuracies[mask])
    parts = drawn_parts(len(table), seed=0)
    assert np.array_equal(np.sum(parts, axis=0), np.ones(len(table)))


def test_the_lack_of_fit_is_what_is_not_explained():
    errors = np.array([0.3, -0.3, 0.5, -0.5])
    part = LeftOut(errors, np.zeros(4), np.full(4, 0.08))
    assert lack_of_fit_of([part]) == pytest.approx(0.3)  # 0.17 - 0.08 = 0.09
    assert lack_of_fit_of([replace(part, explained=np.ones(4))]) == 0.0
    assert part.top.tolist() == [2]
    # half-widths are 1.645 * sqrt(0.08 + lack of fit^2); the other part says 0.3, which holds 0.5 as well
    small = LeftOut(errors / 10, np.zeros(4), np.zeros(4))
    inside = held([part, small])
    assert inside[1].all() and inside[0].tolist() == [True, True, False, False]


def test_standard_errors_tell_whom_to_believe(table, truth):
    """Half of the measurements are bad, and say so: the estimator hardly differs from one without them."""
    rng = np.random.default_rng(3)
    bad = np.arange(len(table)) % 2 == 0
    y = table.accuracies + np.where(bad, rng.normal(scale=0.05, size=len(table)), 0.0)
    stated = replace(table, accuracies=y, standard_errors=np.where(bad, 0.05, 0.004), groups=())
    silent = replace(stated, standard_errors=None)

    def error(given: ResultsTable) -> float:
        found = estimate_from_table(given, ResultsSettings(method="bilinear"))
        return float(np.mean([abs(found.predict(a) - truth.predict(a)) for a in table.architectures]))

    assert error(stated) < 0.6 * error(silent)
    found = estimate_from_table(stated, ResultsSettings(method="bilinear"))
    assert found.validation.coverage > 0.8  # intervals of measured accuracies, their own noise counted


@pytest.mark.parametrize("method", RESULTS_METHODS)
def test_every_method_states_intervals_that_hold(table, method):
    found = estimate_from_table(table, ResultsSettings(method=method))
    assert found.provenance["method"] == method and 0.75 <= found.validation.coverage <= 1
    errors = [abs(found.predict(a) - y) for a, y in zip(table.architectures, table.accuracies, strict=True)]
    inside = [e <= 1.645 * found.predict_se(a) for a, e in zip(table.architectures, errors, strict=True)]
    assert np.mean(inside) > 0.8


def test_an_mlp_has_no_use_for_weights(table):
    with pytest.raises(InputError, match="weighs all networks alike"):
        estimate_from_table(replace(table, weights=np.ones(len(table))), ResultsSettings(method="mlp"))


def part(table: ResultsTable, count: int) -> ResultsTable:
    return replace(
        table,
        architectures=table.architectures[:count],
        accuracies=table.accuracies[:count],
        groups=table.groups[:count],
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: part(t, 19), "has 19 different networks"),
        (lambda t: replace(t, accuracies=np.full(len(t), 0.5)), "nothing to learn"),
        (lambda t: replace(t, groups=(frozenset("a"),) * len(t)), "names 1 groups"),
        (lambda t: replace(t, groups=tuple(frozenset({str(i)}) for i in range(len(t)))), "names 150 groups"),
        (
            lambda t: replace(t, groups=tuple(frozenset("b" if i < 5 else "a") for i in range(len(t)))),
            "without the networks of group `a` 5 are left",
        ),
    ],
)
def test_too_little_to_validate_is_said(table, change, said):
    with pytest.raises(InputError, match=said):
        estimate_from_table(change(table), ResultsSettings())
