"""Estimators keep what they are given, through a file and back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.bilinear import StandardErrors
from deploynas.accuracy.estimator_file import EstimatorValidation, load_estimator
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.errors import InputError

SPACE = dn.Space.load("fashion")


def bilinear(seed: int = 0, **extra) -> dn.BilinearEstimator:
    rng = np.random.default_rng(seed)
    depth = [rng.normal(size=len(s.depths)) for s in SPACE.stages]
    block = [rng.normal(size=(s.max_depth, len(s.configs))) for s in SPACE.stages]
    return dn.BilinearEstimator.from_arrays(SPACE, 0.5, depth, block, **extra)


def test_a_prediction_is_the_formula_of_eq_3():
    estimator = bilinear()
    architecture = SPACE.architecture([[1], [5, 5, 3], [2, 4]])
    expected = 0.5 + estimator.depth[0][0] + estimator.depth[1][2] + estimator.depth[2][1]
    expected += estimator.block[0][0][1]
    expected += estimator.block[1][0][5] + estimator.block[1][1][5] + estimator.block[1][2][3]
    expected += estimator.block[2][0][2] + estimator.block[2][1][4]
    assert estimator.predict(architecture) == pytest.approx(expected)


def test_a_bilinear_estimator_survives_its_file(tmp_path):
    depth_se = [[0.1] * len(s.depths) for s in SPACE.stages]
    block_se = [[[0.2] * len(s.configs)] * s.max_depth for s in SPACE.stages]
    validation = EstimatorValidation(networks=200, kendall_tau=0.8, noise_ceiling=0.9)
    estimator = replace(
        bilinear(errors=StandardErrors.checked(SPACE, 0.1, depth_se, block_se)),
        validation=validation,
        provenance={"supernet": "abc"},
    )
    estimator.save(tmp_path / "e.json")
    assert load_estimator(tmp_path / "e.json") == estimator
    assert estimator.predict_se(SPACE.smallest()) == pytest.approx((0.01 + 3 * 0.01 + 3 * 0.04) ** 0.5)


def test_a_quadratic_estimator_survives_its_file_and_predicts_its_form(tmp_path):
    rng = np.random.default_rng(0)
    size = len(SPACE.decisions)
    linear, matrix = rng.normal(size=size), rng.normal(size=(size, size))
    estimator = QuadraticEstimator.from_arrays(SPACE, 0.5, linear, matrix, residual_se=0.01)
    estimator.save(tmp_path / "q.json")
    loaded = load_estimator(tmp_path / "q.json")
    assert loaded == estimator
    architecture = SPACE.sample(rng)
    x = np.concatenate(SPACE.encode(architecture))
    assert loaded.predict(architecture) == pytest.approx(0.5 + linear @ x + x @ matrix @ x)
    assert loaded.predict_se(architecture) == 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "oracle"}, "no estimator of kind 'oracle'"),
        ({"schema": "deploynas/other"}, "expected a file of schema"),
        ({"schema_version": 99}, "newer"),
        ({"space_hash": "0" * 16}, "another search space"),
        ({"block": [[[0.0]]]}, "block has 1 stages"),
        ({"base": "high"}, "damaged: `base`"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, change, message):
    bilinear().save(tmp_path / "e.json")
    data = json.loads((tmp_path / "e.json").read_text())
    (tmp_path / "e.json").write_text(json.dumps({**data, **change}))
    with pytest.raises(InputError, match=message):
        load_estimator(tmp_path / "e.json")


def test_standard_errors_come_for_all_coefficients_or_none(tmp_path):
    bilinear().save(tmp_path / "e.json")
    data = json.loads((tmp_path / "e.json").read_text())
    data["depth_se"] = [[0.1] * len(s.depths) for s in SPACE.stages]
    (tmp_path / "e.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="for depths and blocks"):
        load_estimator(tmp_path / "e.json")


@pytest.mark.parametrize("pairs", [[(0, 10_000, 1.0)], np.zeros((3, 3)), [(0, 1, float("nan"))]])
def test_pairs_that_do_not_fit_are_refused(pairs):
    with pytest.raises(InputError):
        QuadraticEstimator.from_arrays(SPACE, 0.5, np.zeros(len(SPACE.decisions)), pairs)
