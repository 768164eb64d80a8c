"""NASI weighs choices as its formulas say, and its network keeps every limit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deploynas.accuracy.training_free.mixture import MixtureOracle
from deploynas.accuracy.training_free.nasi import NasiSettings, weigh_choices
from deploynas.accuracy.training_free.score import ScoringBatch
from deploynas.errors import InputError
from deploynas.space import Space
from deploynas.space.softmax import through_softmax


def source(space: Space):
    return lambda number: ScoringBatch.random(4, (space.in_channels, space.height, space.width), space.classes, number)


class Planted:
    """Th is a sum over options, so its derivative is the same everywhere."""

    def __init__(self, worth: np.ndarray, starts: np.ndarray) -> None:
        self.worth, self.starts = worth, starts

    def value(self, row: np.ndarray, number: int) -> float:
        return float(self.worth[self.starts[:-1] + row].sum())

    def pull(self, row: np.ndarray, number: int) -> tuple[float, np.ndarray]:
        return self.value(row, number), self.worth


def test_one_hot_weights_compute_the_network(tiny: Space, rng: np.random.Generator) -> None:
    oracle, images = MixtureOracle(tiny, source(tiny)), source(tiny)(5).images.double()
    rows = tiny.decisions.draw(5, rng)
    for row, one_hot, architecture in zip(rows, tiny.decisions.one_hot(rows), tiny.architectures(rows), strict=True):
        with torch.no_grad():
            expected = oracle.supernet(images, architecture)
            found = oracle.supernet.mixed(images, torch.from_numpy(one_hot))
        assert torch.allclose(found, expected, atol=1e-9)
        assert oracle.pull(row, 5)[0] == pytest.approx(oracle.value(row, 5), rel=1e-6)


def test_the_pull_is_the_derivative_and_leaves_the_weights_as_they_were(tiny: Space, rng: np.random.Generator) -> None:
    oracle = MixtureOracle(tiny, source(tiny))
    before = {name: tensor.clone() for name, tensor in oracle.supernet.state_dict().items()}
    row = tiny.decisions.draw(1, rng)[0]
    one_hot = torch.from_numpy(tiny.decisions.one_hot(row[None])[0])
    _, pull = oracle.at(one_hot, 3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in oracle.supernet.state_dict().items())
    assert np.abs(pull).max() > 0

    def moved(option: int, step: float) -> float:
        weights = one_hot.clone()
        weights[option] += step
        return oracle.at(weights, 3)[0]

    for option in range(0, len(one_hot), 3):
        expected = (moved(option, 1e-5) - moved(option, -1e-5)) / 2e-5
        assert pull[option] == pytest.approx(expected, rel=1e-3, abs=1e-3 * np.abs(pull).max())


def test_a_gradient_through_a_softmax_changes_no_sum(tiny: Space, rng: np.random.Generator) -> None:
    decisions = tiny.decisions
    gradient = through_softmax(decisions, rng.gumbel(size=len(decisions)), rng.normal(size=len(decisions)))
    for where in decisions.slices:
        assert gradient[where].sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("nu", ["fixed", "adaptive"])
def test_without_a_penalty_the_best_options_are_found(tiny: Space, nu) -> None:
    rng = np.random.default_rng(0)
    worth = rng.uniform(size=len(tiny.decisions))
    oracle = Planted(worth, tiny.decisions.starts)
    found = weigh_choices(tiny.decisions, oracle, NasiSettings(steps=200, mu=0.0, nu=nu))
    for where in tiny.decisions.slices:
        assert np.argmax(found.alpha[where]) == np.argmax(worth[where])


def test_the_penalty_turns_networks_back_that_are_above_nu(tiny: Space) -> None:
    """With mu = 2 the gradient's sign changes above nu; with mu = 1 it vanishes there."""
    oracle = Planted(np.ones(len(tiny.decisions)) + np.arange(len(tiny.decisions)), tiny.decisions.starts)
    norms = [
        float(np.abs(weigh_choices(tiny.decisions, oracle, NasiSettings(steps=40, mu=mu)).alpha).sum())
        for mu in (0.0, 1.0)
    ]
    assert 0 < norms[1] < norms[0]


def test_nu_is_the_mean_over_random_networks_or_runs_along(tiny: Space) -> None:
    oracle = Planted(np.random.default_rng(0).uniform(size=len(tiny.decisions)), tiny.decisions.starts)
    rng = np.random.default_rng((0, 3))
    values = [oracle.value(row, 0) for row in tiny.decisions.draw(50, rng)]
    assert weigh_choices(tiny.decisions, oracle, NasiSettings(steps=3)).nu == pytest.approx(np.mean(values))
    adaptive = weigh_choices(tiny.decisions, oracle, NasiSettings(steps=3, nu="adaptive"))
    assert adaptive.nu == pytest.approx((max(values) + sum(adaptive.values[:2])) / 3)


def test_an_open_input_size_is_refused(sized: Space) -> None:
    with pytest.raises(InputError, match="input size open"):
        MixtureOracle(sized, source(sized))
