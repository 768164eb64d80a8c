"""What holds for every kind of estimator in the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.bits import Bits
from deploynas.accuracy.estimator_file import (
    EstimatorFile,
    EstimatorValidation,
    StoredEstimator,
    estimator_class,
    load_estimator,
)
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.registry import ESTIMATORS
from deploynas.accuracy.relaxed import RelaxedEstimator
from deploynas.accuracy.training_free.estimator import TrainingFreeEstimator
from deploynas.errors import InputError
from deploynas.space.coefficients import Estimator

SPACE = dn.Space.load("fashion")
OTHER = dn.Space.load("imagenet")


def bilinear(rng: np.random.Generator) -> StoredEstimator:
    values = rng.normal(scale=0.01, size=len(SPACE.decisions))
    return dn.BilinearEstimator.from_arrays(SPACE, 0.6, *SPACE.decisions.ragged(values))


def quadratic(rng: np.random.Generator) -> StoredEstimator:
    size = len(SPACE.decisions)
    linear, pairs = rng.normal(scale=0.01, size=size), rng.normal(scale=0.001, size=(size, size))
    return dn.QuadraticEstimator.from_arrays(SPACE, 0.6, linear, pairs, residual_se=0.01)


def mlp(rng: np.random.Generator) -> StoredEstimator:
    seen = SPACE.architectures(SPACE.decisions.draw(60, rng))
    return dn.fit_mlp(SPACE, seen, rng.uniform(0.5, 0.7, len(seen)))


def indexed(rng: np.random.Generator) -> StoredEstimator:
    seen = SPACE.architectures(SPACE.decisions.draw(60, rng))
    return dn.fit_indexed(SPACE, seen, rng.uniform(0.5, 0.7, len(seen)), indices=2)


def fourier(rng: np.random.Generator) -> StoredEstimator:
    bits = list(Bits.of(SPACE.decisions).entries)
    entries = SPACE.decisions.encoded_at[bits]
    terms = sorted({tuple(sorted(rng.choice(entries, 2, replace=False).tolist())) for _ in range(12)})
    return FourierEstimator.from_terms(SPACE, 0.6, terms, rng.normal(scale=0.01, size=len(terms)), residual_se=0.01)


def training_free(rng: np.random.Generator) -> StoredEstimator:
    worth = bilinear(rng)
    assert isinstance(worth, dn.BilinearEstimator)
    return TrainingFreeEstimator(SPACE, "trace", "multi-path", worth)


def relaxed(rng: np.random.Generator) -> StoredEstimator:
    return RelaxedEstimator.from_alpha(SPACE, "rarts", rng.normal(size=len(SPACE.decisions)))


MADE: dict[str, Callable[[np.random.Generator], StoredEstimator]] = {
    "bilinear": bilinear,
    "quadratic": quadratic,
    "mlp": mlp,
    "indexed": indexed,
    "fourier": fourier,
    "training-free": training_free,
    "relaxed": relaxed,
}
NETWORKS = SPACE.architectures(SPACE.decisions.draw(40, np.random.default_rng(1)))
every_kind = pytest.mark.parametrize("kind", ESTIMATORS)


@lru_cache
def made(kind: str) -> StoredEstimator:
    """A new kind needs a line in `MADE`."""
    return replace(
        MADE[kind](np.random.default_rng(0)),
        validation=EstimatorValidation(networks=50, kendall_tau=0.8),
        provenance={"supernet": "abc"},
    )


@every_kind
def test_it_is_what_a_search_can_use(kind):
    estimator = made(kind)
    assert type(estimator) is estimator_class(kind)
    assert isinstance(estimator, Estimator)
    se = estimator.predict_se(NETWORKS[0])
    assert se is None or se >= 0


@every_kind
def test_its_file_says_what_it_says(kind, tmp_path):
    estimator = made(kind)
    estimator.save(tmp_path / "e.json")
    loaded = load_estimator(tmp_path / "e.json")
    assert type(loaded) is type(estimator)
    assert (loaded.space, loaded.validation, loaded.provenance) == (SPACE, estimator.validation, estimator.provenance)
    for network in NETWORKS:
        assert loaded.predict(network) == estimator.predict(network)
        assert loaded.predict_se(network) == estimator.predict_se(network)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "e.json").read_bytes()


@every_kind
def test_the_objective_scores_what_the_estimator_predicts(kind):
    estimator, objective = made(kind), made(kind).objective()
    assert objective.scale == estimator.scale
    for network in NETWORKS:
        assert objective.score(network) == pytest.approx(estimator.predict(network), abs=1e-12)


@every_kind
def test_another_space_is_refused(kind, tmp_path):
    with pytest.raises(InputError, match="belongs to space `imagenet`"):
        made(kind).predict(OTHER.smallest())
    with pytest.raises(InputError, match="another search space"):
        dn.search(OTHER, made(kind), [dn.Limit("params", 1e9)])
    made(kind).save(tmp_path / "e.json")
    data = json.loads((tmp_path / "e.json").read_text())
    (tmp_path / "e.json").write_text(json.dumps({**data, "space": OTHER.describe()}))
    with pytest.raises(InputError, match=r"e\.json: its estimator belongs to another search space"):
        load_estimator(tmp_path / "e.json")


@every_kind
def test_the_same_space_under_another_name_is_the_same(kind):
    renamed = replace(SPACE, name="mine")
    for network in NETWORKS[:5]:
        same = renamed.architecture(network.choices)
        assert made(kind).predict(same) == made(kind).predict(network)


@every_kind
def test_keys_of_later_versions_are_ignored(kind, tmp_path):
    made(kind).save(tmp_path / "e.json")
    data = json.loads((tmp_path / "e.json").read_text())
    data["validation"]["later"] = data["later"] = {"anything": [1]}
    (tmp_path / "e.json").write_text(json.dumps(data))
    loaded = load_estimator(tmp_path / "e.json")
    assert [loaded.predict(network) for network in NETWORKS] == [made(kind).predict(network) for network in NETWORKS]


@every_kind
def test_a_damaged_file_is_named(kind, tmp_path):
    made(kind).save(tmp_path / "e.json")
    data = json.loads((tmp_path / "e.json").read_text())
    own = {key: value for key, value in data.items() if key not in EstimatorFile.model_fields}
    coefficient = next(key for key, value in own.items() if isinstance(value, list))
    (tmp_path / "e.json").write_text(json.dumps({**data, coefficient: data[coefficient][:-1]}))
    with pytest.raises(InputError, match=r"e\.json: "):
        load_estimator(tmp_path / "e.json")


def test_the_names_are_known_without_numpy():
    code = "import sys, deploynas.accuracy.registry; assert not {'numpy', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
