"""A new classifier on the features of a supernet: the optimum of a convex problem, whoever looks for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from deploynas.errors import InputError
from deploynas.space import Space
from deploynas.supernet.network import Supernet
from deploynas.supernet.new_classes import for_classes, with_classes
from deploynas.supernet.paths import RandomPaths
from deploynas.training.batches import Batches
from deploynas.training.classifier import fit_classifier
from deploynas.training.data import Data, Subset
from deploynas.training.evaluation import accuracy
from deploynas.training.recipe import Augmentation
from deploynas.training.sources import PixelImages


def striped(classes: int, images: int = 60) -> Data:
    """Grey images whose class is the height of a bright stripe."""
    rng = np.random.default_rng(0)
    labels = np.arange(images) % classes
    pixels = rng.integers(0, 60, (images, 1, 28, 28), dtype=np.uint8)
    for image, label in enumerate(labels):
        pixels[image, 0, 5 * label : 5 * label + 4] += 150
    source = PixelImages.of(pixels, labels)
    parts = Subset(source, torch.arange(images - 15)), Subset(source, torch.arange(images - 15, images))
    return Data("stripes", tuple(map(str, range(classes))), *parts, None, (0.3,), (0.3,))


@pytest.fixture
def supernet(space: Space) -> Supernet:
    torch.manual_seed(0)
    return Supernet(space).eval()


@torch.no_grad()
def test_a_supernet_for_other_classes_keeps_everything_else(supernet: Supernet) -> None:
    renewed = for_classes(supernet, 3)
    assert renewed.space == with_classes(supernet.space, 3) and renewed.space.name == "mini-3-classes"
    ours, theirs = renewed.state_dict(), supernet.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs if not name.startswith("classifier"))
    assert not renewed(torch.randn(2, 1, 28, 28)).any()  # it has learned nothing yet
    assert with_classes(supernet.space, supernet.space.classes) is supernet.space


@torch.no_grad()
@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_the_classifier_that_scikit_learn_finds(classes: int, supernet: Supernet) -> None:
    data, renewed = striped(classes), for_classes(supernet, classes)
    batches = Batches(data, renewed.space, Augmentation())
    fit_classifier(renewed, batches, renewed.space.heaviest())
    assert accuracy(renewed, batches, data.validation) > 0.9  # on images that it has not seen

    (images, labels), *rest = batches.evaluation(data.train)
    assert not rest
    seen = []
    renewed.classifier.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double().numpy()))
    logits = renewed(images)
    features = seen[0]
    scaled = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000).fit(scaled, labels.numpy())
    if classes > 2:  # of two classes scikit-learn penalises one vector of weights, not two
        np.testing.assert_allclose(torch.softmax(logits, 1), theirs.predict_proba(scaled), atol=1e-3)
    assert (logits.argmax(1).numpy() == theirs.predict(scaled)).all()


def test_random_paths_are_repeatable_and_one_class_is_refused(supernet: Supernet) -> None:
    data = striped(3)
    batches = Batches(data, with_classes(supernet.space, 3), Augmentation())
    first, second = (for_classes(supernet, 3) for _ in range(2))
    for renewed in (first, second):
        fit_classifier(renewed, batches, RandomPaths(renewed.space, np.random.default_rng(0)))
    assert torch.equal(first.classifier.weight, second.classifier.weight)
    alone = for_classes(supernet, 1)
    with pytest.raises(InputError, match="at least two classes"):
        fit_classifier(alone, Batches(striped(1), alone.space, Augmentation()), alone.space.heaviest())
