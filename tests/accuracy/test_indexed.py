"""Indexed estimators: links that never fall, planted truths that are recovered, files that come back the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from planted import SPACE, accuracies, bent, both_needed, error, index, networks, planted

import deploynas as dn
from deploynas.accuracy.index_model import Gaussian, Prior, Shape, _State, _variances
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed, fit_indexed_samples
from deploynas.accuracy.samples import Samples, Scores
from deploynas.accuracy.validation import kendall
from deploynas.errors import InputError
from deploynas.space.link import Link, monotone_tanh

# -- the link -------------------------------------------------------------------------------------


def test_the_tangent_never_falls_by_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=20_000) * 3, rng.normal(size=2_000) * 1e-8, [0.0, -25.0, 25.0, 1e300, -1e300]])
    steps = [x]
    for _ in range(6):
        steps.append(np.nextafter(steps[-1], np.inf))
    values = np.stack([monotone_tanh(step) for step in steps])
    assert np.all(np.diff(values, axis=0) >= 0)
    assert np.all(np.diff(monotone_tanh(np.sort(np.concatenate(steps)))) >= 0)
    assert np.abs(monotone_tanh(x) - np.tanh(x)).max() < 1e-13


def test_one_network_gets_the_same_number_as_among_many() -> None:
    u = np.random.default_rng(0).normal(size=(1001, 2))
    link = both_needed()
    assert np.array_equal(link(u), [link(row[None])[0] for row in u])


def test_slopes_are_those_of_small_steps() -> None:
    rng = np.random.default_rng(1)
    u = rng.normal(size=(50, 2))
    offsets = np.array([-1.0, 0.5])
    inner = both_needed()
    mean = Link(-0.5, inner.linear, 10 * inner.rise, inner.steepness, inner.shift, offsets, np.array([0.25, 0.75]))
    for link in (inner, mean):
        for i, step in enumerate(1e-6 * np.eye(2)):
            assert np.allclose((link(u + step) - link(u - step)) / 2e-6, link.slopes(u)[:, i], atol=1e-8)


def test_the_gradient_is_that_of_small_steps_of_the_parameters() -> None:
    u, inner = np.random.default_rng(1).normal(size=(20, 2)), both_needed()
    assert inner.steepness is not None
    shift = np.array([0.5, 0.3])
    offsets, weights = np.array([-1.0, 0.5]), np.array([0.25, 0.75])
    steepness = inner.steepness + 0.2
    link = Link(-0.5, inner.linear, 10 * inner.rise, steepness, shift, offsets, weights)

    def moved(step: np.ndarray) -> Link:
        constant, linear, rise, steep, shifted = np.split(step, np.cumsum([1, 2, 2, 4]))
        return Link(
            link.constant + float(constant[0]),
            link.linear * np.exp(linear),
            link.rise * np.exp(rise),
            steepness * np.exp(steep.reshape(2, 2)),
            shift + shifted,
            offsets,
            weights,
        )

    for p, step in enumerate(1e-6 * np.eye(link.parameters)):
        assert np.allclose((moved(step)(u) - moved(-step)(u)) / 2e-6, link.gradient(u)[:, p], atol=1e-8)


def test_many_networks_are_predicted_as_one_is() -> None:
    estimator, nets = planted(both_needed()), networks(30, seed=4)
    assert np.allclose(estimator.predict_rows(SPACE.rows(nets)), accuracies(estimator, nets), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"linear": np.array([-0.1])}, "negative"),
        ({"rise": np.array([-1.0])}, "negative"),
        ({"steepness": np.array([[-1.0]])}, "negative"),
        ({"shift": np.array([np.nan])}, "finite"),
        ({"steepness": np.array([[1.0, 1.0]])}, "fit each other"),
        ({"offsets": np.array([0.0]), "weights": np.array([0.5])}, "sum to 1"),
    ],
)
def test_a_link_that_may_fall_is_refused(change: dict[str, np.ndarray], message: str) -> None:
    good = bent()
    parts = {"linear": good.linear, "rise": good.rise, "steepness": good.steepness, "shift": good.shift, **change}
    with pytest.raises(InputError, match=message):
        Link(0.0, **parts)  # type: ignore[arg-type]


# -- fits from whole networks ---------------------------------------------------------------------


def test_a_planted_index_and_link_are_recovered() -> None:
    truth, seen = planted(bent()), networks(400, seed=1)
    y = accuracies(truth, seen)
    found = fit_indexed(SPACE, seen, y, indices=1)
    assert error(found, truth) < 0.05 * y.std()


def test_two_planted_indices_are_recovered_where_one_does_not_do() -> None:
    truth, seen = planted(both_needed(), seed=3), networks(600, seed=1)
    y = accuracies(truth, seen) + np.random.default_rng(0).normal(scale=0.002, size=600)
    one, two = (fit_indexed(SPACE, seen, y, indices=r) for r in (1, 2))
    assert error(two, truth) < 0.5 * error(one, truth)
    assert error(two, truth) < 0.1 * y.std()


def test_the_form_is_picked_by_networks_held_out() -> None:
    seen, rng = networks(600, seed=1), np.random.default_rng(0)
    straight = Link(0.7, np.array([0.02]))
    for link, count, form in (
        (straight, 60, "additive"),
        (bent(), 300, "one index"),
        (both_needed(), 600, "two indices"),
    ):
        truth = planted(link, seed=3)
        y = accuracies(truth, seen[:count])
        y = y + rng.normal(scale=(0.3 if form == "additive" else 0.03) * y.std(), size=count)
        assert fit_indexed(SPACE, seen[:count], y).provenance["form"] == form


def test_a_standard_error_is_the_scatter_of_the_refits_and_the_lack_of_fit() -> None:
    noise, rng = 0.01, np.random.default_rng(0)
    seen = networks(250, seed=0)
    y = accuracies(planted(bent(), seed=5), seen) + rng.normal(scale=noise, size=250)
    found = fit_indexed(SPACE, seen, y, indices=1)
    assert found.lack_of_fit is not None
    for architecture in networks(10, seed=99):
        refits = found.draws(SPACE.rows([architecture]))[:, 0]
        expected = np.hypot(np.std(refits, ddof=1), found.lack_of_fit)
        assert found.predict_se(architecture) == pytest.approx(expected)
    # the fit takes fewer than 170 parameters, so 80 networks or more tell the noise: four standard errors of a
    # standard deviation from 80 are a third of it
    assert found.lack_of_fit == pytest.approx(noise, rel=0.33)
    assert replace(found, refits=()).predict_se(seen[0]) is None


def test_wrong_numbers_of_indices_and_networks_are_refused() -> None:
    seen = networks(20, seed=1)
    with pytest.raises(InputError, match="1 or 2 indices"):
        fit_indexed(SPACE, seen, np.linspace(0, 1, 20), indices=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="as many accuracies"):
        fit_indexed(SPACE, seen, np.linspace(0, 1, 19))


def test_a_variance_that_rounding_leaves_nothing_of_stays_as_it_is() -> None:
    """Two indices that are nearly the same leave the curvature nearly singular, and its inverse a little wrong."""
    shape, kinds = Shape(1, 0, 2), np.stack([np.diag([1.0, 0.0]), np.diag([0.0, 1.0])])
    state = _State(
        shape, np.array([0.5, 0.5, 0.0, 0.0]), np.array([[1.0, 1.0]]), Gaussian(np.zeros(1), 1.0, np.ones(1)), 0.0
    )
    expected = Prior(np.zeros(4), np.eye(4))
    inverse = np.diag([0.75, 1.0 + 1e-9, 1.0, 1.0])  # of the second weight, more is unknown afterwards than before
    # seen 0.25, expected 1 - 0.75: as many; and of the other kind nothing can be said
    assert _variances(state, expected, inverse, kinds) == pytest.approx(np.array([[1.0, 1.0]]))
    assert _variances(state, expected, np.diag([0.0, 0.75, 1.0, 1.0]), kinds) == pytest.approx(np.array([[0.5, 1.0]]))


# -- fits from images -----------------------------------------------------------------------------


@dataclass
class Images:
    """Images of differing difficulty: right with log odds of the network's own worth and the image's."""

    truth: IndexedEstimator
    difficulty: np.ndarray
    rng: np.random.Generator

    @property
    def images(self) -> int:
        return len(self.difficulty)

    def __call__(self, paths: np.ndarray) -> Scores:
        worth = np.array([self.truth.predict(network) for network in SPACE.architectures(paths)])
        chance = 1 / (1 + np.exp(-worth - self.difficulty))
        return Scores(self.rng.random(self.images) < chance, np.zeros(self.images, dtype=np.float32))

    def accuracy(self, architecture: dn.Architecture) -> float:
        return float((1 / (1 + np.exp(-self.truth.predict(architecture) - self.difficulty))).mean())


def test_images_on_their_own_paths_tell_the_accuracy_of_networks() -> None:
    rng = np.random.default_rng(0)
    link = Link(0.0, np.array([0.2]), np.array([1.5]), np.array([[1.0]]), np.array([0.5]))
    images = Images(planted(link, seed=7), rng.normal(scale=1.5, size=600), rng)
    samples = Samples(SPACE, images)
    found = fit_indexed_samples(SPACE, [samples.get("image", i) for i in range(16)], indices=1)
    unseen = networks(100, seed=99)
    measured, predicted = np.array([images.accuracy(a) for a in unseen]), accuracies(found, unseen)
    assert kendall(predicted, measured) > 0.85
    assert abs((predicted - measured).mean()) < 0.01
    assert np.abs(predicted - measured).mean() < 0.25 * measured.std()
    assert all(found.predict_se(a) > 0 for a in unseen)


# -- use ------------------------------------------------------------------------------------------


def test_the_search_finds_the_very_numbers_that_are_predicted() -> None:
    rng = np.random.default_rng(0)
    truth = planted(both_needed())
    blocks = [rng.uniform(0.1, 1, size=(s.max_depth, len(s.configs))) for s in SPACE.stages]
    table = dn.LatencyTable.from_arrays(SPACE, 0.5, blocks)
    front = dn.frontier(SPACE, truth, table)
    assert len(front) > 10
    for point in front:
        assert truth.predict(point.architecture) == point.accuracy
        assert table.predict(point.architecture) == point.latency_ms
    # nothing drawn at random beats it
    for architecture in networks(500, seed=4):
        best = front.best(table.predict(architecture))
        assert best is not None and truth.predict(architecture) <= best.accuracy


def test_what_a_change_is_worth_depends_on_the_network() -> None:
    flat = IndexedEstimator(SPACE, (index(0),), bent(at=-3.0))
    nets = sorted(networks(300, seed=1), key=flat.predict)

    def swapped(architecture: dn.Architecture) -> dn.Architecture:
        (_, *rest), *stages = architecture.choices
        better = int(np.argmax(flat.indices[0].block[0][0]))
        return SPACE.architecture([(better, *rest), *stages])

    worst, best = nets[0], nets[-1]
    gain = flat.indices[0].total(swapped(worst)) - flat.indices[0].total(worst)
    assert flat.worth_at(worst, swapped(worst)) == flat.predict(swapped(worst)) - flat.predict(worst)
    depth, block = flat.contributions_at(worst)
    slope = flat.link.slopes(np.array([flat.indices_of(worst)]))[0, 0]
    assert block[1][2][3] == pytest.approx(slope * flat.indices[0].block[1][2][3])
    assert depth[0][1] == pytest.approx(slope * flat.indices[0].depth[0][1])
    at_best = flat.link.slopes(np.array([flat.indices_of(best)]))[0, 0]
    assert gain >= 0
    assert at_best < slope


def test_a_file_comes_back_the_same(tmp_path: Path) -> None:
    seen = networks(80, seed=1)
    found = fit_indexed(SPACE, seen, accuracies(planted(both_needed()), seen), indices=2)
    found.save(tmp_path / "estimator.json")
    again = IndexedEstimator.load(tmp_path / "estimator.json")
    assert again.provenance == found.provenance
    for architecture in networks(20, seed=2):
        assert again.predict(architecture) == found.predict(architecture)
        assert again.predict_se(architecture) == found.predict_se(architecture)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("linear", [-1.0], "negative"),
        ("linear", [1.0, 1.0], "fit each other"),
        ("shift", [0.0, 1.0], "fit each other"),
        ("constant", "high", "constant"),
    ],
)
def test_a_damaged_file_is_refused(key: str, value: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "estimator.json"
    planted(bent()).save(path)
    document = json.loads(path.read_text())
    document["link"][key] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        IndexedEstimator.load(path)
