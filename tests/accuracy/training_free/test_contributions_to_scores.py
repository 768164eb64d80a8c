"""What single decisions add to a score: read off batches of many paths, or fitted to whole networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.func import functional_call, jvp

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.samples import Pass, Scores
from deploynas.accuracy.training_free.estimation import (
    TrainingFreeSettings,
    estimate_training_free,
    held_against_accuracy,
)
from deploynas.accuracy.training_free.initialisation import fixed_statistics, lecun
from deploynas.accuracy.training_free.multi_path import PATH_NUMBERS, derivative, measure_paths
from deploynas.accuracy.training_free.registry import TRAINING_FREE_SCORES
from deploynas.accuracy.training_free.score import ScoringBatch, load_score
from deploynas.accuracy.training_free.synflow import Synflow, made_positive
from deploynas.errors import InputError
from deploynas.search import search
from deploynas.search.problem import Limit
from deploynas.space import Space
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths


def source(space: Space, images: int = 6):
    return lambda number: ScoringBatch.random(
        images, (space.in_channels, space.height, space.width), space.classes, number
    )


def test_the_registry_and_the_readings_agree() -> None:
    image_by_image = {name for name in TRAINING_FREE_SCORES if load_score(name).reading == "multi-path"}
    assert image_by_image == set(PATH_NUMBERS)


def test_synflow_of_a_path_is_that_of_its_network(tiny: Space, rng: np.random.Generator) -> None:
    supernet, batch = lecun(Supernet(tiny), 3), source(tiny)(0)
    rows = tiny.decisions.draw(len(batch), rng)
    found = PATH_NUMBERS["synflow"](supernet, batch, as_paths(rows), 0)
    for number, architecture in zip(found, tiny.architectures(rows), strict=True):
        alone = Synflow().value(extract(supernet, architecture).eval(), batch)
        assert float(number) == pytest.approx(alone, rel=1e-6)


def test_a_derivative_along_a_direction_is_that_of_the_path_s_network(tiny: Space, rng: np.random.Generator) -> None:
    """J u of every image, with the weights and the part of u that its path uses."""
    supernet, batch = lecun(Supernet(tiny), 3), source(tiny)(0)
    paths = as_paths(tiny.decisions.draw(len(batch), rng))
    fixed_statistics(supernet, batch.images, paths)
    supernet = supernet.double()
    images = batch.images.double()
    towards = lecun(Supernet(tiny), 4).double()
    direction = {name: weight.detach() for name, weight in towards.named_parameters()}
    found = derivative(supernet, direction, images, paths)
    for i, architecture in enumerate(tiny.architectures(paths.numpy())):
        network, along = extract(supernet, architecture).eval().double(), extract(towards, architecture).double()
        weights = {name: own.detach() for name, own in network.named_parameters()}
        step = {name: own.detach() for name, own in along.named_parameters()}
        _, expected = jvp(
            lambda w, network=network, i=i: functional_call(network, w, (images[i : i + 1],)), (weights,), (step,)
        )
        assert torch.allclose(found[i], expected[0], rtol=1e-6, atol=1e-8)


def test_contributions_find_what_synflow_rewards(tiny: Space) -> None:
    """Exact numbers, so a few batches are enough: more blocks and channels are never worth less."""
    found = measure_paths(tiny, "synflow", source(tiny, 24), 6)
    depth, block = tiny.decisions.ragged(found.values)
    assert depth[1][1] > depth[1][0]
    widths = [config.factors()["expansion"] for config in tiny.stages[0].configs]
    worth = np.array(block[0][0])
    assert worth[np.array(widths) == 2].mean() > worth[np.array(widths) == 1].mean()


def test_a_score_of_whole_networks_is_not_read_image_by_image(tiny: Space) -> None:
    with pytest.raises(InputError, match="image by image"):
        measure_paths(tiny, "kappa", source(tiny), 2)


@pytest.mark.parametrize(("score", "passes"), [("trace", 3), ("grad", 20), ("kappa", 20)])
def test_the_estimator_ranks_and_the_search_says_no_accuracy(tiny: Space, tmp_path, score: str, passes: int) -> None:
    made = estimate_training_free(tiny, source(tiny), TrainingFreeSettings(score, passes))
    made.save(tmp_path / "e.json")
    estimator = load_estimator(tmp_path / "e.json")
    assert estimator.scale == "ordinal" and score in (estimator.ranked_by or "")
    (best,) = [search(tiny, estimator, [Limit("params", 1e9)])]
    assert best.optimal and best.scale == "ordinal" and best.accuracy is None
    assert best.score == max(estimator.predict(network) for network in tiny.enumerate())
    for asked in (lambda: estimator.expect(best.architecture), lambda: estimator.expected(best.score)):
        with pytest.raises(InputError, match="only ranks"):
            asked()


def test_the_same_seed_gives_the_same_estimate(tiny: Space) -> None:
    one, same, other = (
        estimate_training_free(tiny, source(tiny), TrainingFreeSettings("trace", 2, seed)).worth for seed in (0, 0, 1)
    )
    assert one.block == same.block and one.block != other.block


def test_against_accuracy_only_ranks_are_stated(tiny: Space, rng: np.random.Generator) -> None:
    made = estimate_training_free(tiny, source(tiny), TrainingFreeSettings("synflow", 2))
    rows = tiny.decisions.draw(30, rng)
    scores = np.array([made.predict(network) for network in tiny.architectures(rows)])
    ranks = scores.argsort().argsort()
    unseen = [
        Pass(rows[i : i + 1], Scores(np.arange(100) < 2 * rank, np.zeros(100, np.float32)))
        for i, rank in enumerate(ranks)
    ]
    validation = held_against_accuracy(made, unseen).validation
    assert validation is not None and validation.kendall_tau is not None and validation.kendall_tau > 0.9
    assert validation.mean_error is None and validation.pearson is None and validation.curve is None


@pytest.mark.parametrize(("score", "passes"), [("nwot", None), ("grad", 1), ("grad", 19)])
def test_what_cannot_be_asked(tiny: Space, score: str, passes: int | None) -> None:
    with pytest.raises(InputError):
        estimate_training_free(tiny, source(tiny), TrainingFreeSettings(score, passes))


def test_a_positive_network_is_a_copy(tiny: Space) -> None:
    supernet = lecun(Supernet(tiny), 0)
    made_positive(supernet)
    assert (supernet.conv_stem.weight < 0).any()
