"""Gates: the proximal operator is exact, importance is the squared gradient of each image, penalties act as weighed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from deploynas.space import Space, StageSpace
from deploynas.space.widths import width_space
from deploynas.supernet.extraction import timm_model
from deploynas.supernet.network import Supernet
from deploynas.supernet.width_network import Gates, gated_blocks, width_network
from deploynas.training.batches import Batches
from deploynas.training.data import Subset
from deploynas.training.gates import SHRUNK, GateSchedule, channel_importance, learn_gates, soft_threshold
from deploynas.training.recipe import Augmentation
from deploynas.training.untrained import random_data

IMAGES = 8


@pytest.fixture
def widths(space: Space) -> tuple[StageSpace, Supernet]:
    torch.manual_seed(0)
    model = timm_model(space.heaviest())
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, 0, 0.3)
    own = width_space(space.heaviest())
    return own, width_network(model, own)


@pytest.fixture
def batches(space: Space) -> Batches:
    """As many images as a batch has, none of them changed."""
    data = random_data(space)
    few = Subset(data.train.images, data.train.rows[:IMAGES])
    return Batches(replace(data, train=few), space, Augmentation(flip=0.0))


@given(st.floats(-3, 3), st.floats(0, 2))
def test_the_soft_threshold_minimises_what_it_should(value: float, by: float) -> None:
    def objective(z: float) -> float:
        return (z - value) ** 2 / 2 + by * abs(z)

    found = float(soft_threshold(torch.tensor(value, dtype=torch.float64), by))
    assert all(objective(found) <= objective(z) + 1e-12 for z in (*np.linspace(-4, 4, 161), value, 0.0))
    if abs(value) <= by:
        assert found == 0.0  # a true zero, which no subgradient step makes


def test_importance_is_the_mean_squared_gradient_of_single_images(widths, batches) -> None:
    _, supernet = widths
    found = channel_importance(Gates(supernet), batches, GateSchedule(batch=IMAGES))
    images, labels = next(iter(batches.evaluation(batches.data.train)))
    expected = [torch.zeros(block.mid) for block in gated_blocks(supernet)]
    for image, label in zip(images, labels, strict=True):
        gates = Gates(supernet)
        with gates.applied() as network:
            loss = F.cross_entropy(network(image[None]), label[None])
        for total, gradient in zip(expected, torch.autograd.grad(loss, list(gates.values)), strict=True):
            total += gradient.square() / IMAGES
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-3, atol=1e-3 * float(other.max()))


def test_a_channel_that_nothing_depends_on_is_worth_nothing_and_its_gate_goes(widths, batches) -> None:
    _, supernet = widths
    block = gated_blocks(supernet)[0]
    with torch.no_grad():
        block.conv_pwl.weight[:, 3] = 0
        if block.se is not None:
            block.se.conv_reduce.weight[:, 3] = 0
    schedule = GateSchedule(epochs=10, batch=IMAGES)
    assert channel_importance(Gates(supernet), batches, schedule)[0][3] == 0
    gates = Gates(supernet)
    lived = learn_gates(gates, batches, schedule)
    assert all(((value >= 0) & (value <= 1)).all() for value in gates.values)
    assert gates.values[0][3] == 0
    steps = [max(0.0, 1 - SHRUNK * step / 10) for step in range(1, 11)]
    assert float(lived[0][3]) == pytest.approx(sum(steps) / 10, rel=1e-5)


def test_without_a_loss_gates_shrink_as_their_weights_say(widths, batches) -> None:
    """Nothing depends on any gate: g = max(0, 1 - 1.5 w), with w one in the mean of all channels."""
    _, supernet = widths
    with torch.no_grad():
        supernet.classifier.weight.zero_()
    channels = [block.mid for block in gated_blocks(supernet)]
    weights = [float(i + 1) for i in range(len(channels))]
    mean = sum(w * n for w, n in zip(weights, channels, strict=True)) / sum(channels)
    gates = Gates(supernet)
    learn_gates(gates, batches, GateSchedule(epochs=6, batch=IMAGES), weights)
    for value, weight in zip(gates.values, weights, strict=True):
        expected = max(0.0, 1 - SHRUNK * weight / mean)
        torch.testing.assert_close(value.detach(), torch.full_like(value, expected), rtol=1e-5, atol=1e-5)


def test_learning_ends_when_enough_gates_are_closed(widths, batches) -> None:
    _, supernet = widths
    with torch.no_grad():
        supernet.classifier.weight.zero_()
    gates, seen = Gates(supernet), list[list[int]]()

    def enough(left: list[int]) -> bool:
        seen.append(left)
        return sum(left) < sum(len(value) for value in gates.values)

    weights = [3.0] + [1.0] * (len(gates.values) - 1)  # the first layer's close first
    ranked = learn_gates(gates, batches, GateSchedule(epochs=50, batch=IMAGES), weights, enough)
    assert len(seen) < 50 and seen[-1] == [0, *(len(value) for value in gates.values[1:])]
    assert min(float(own.min()) for own in ranked[1:]) > 1 > float(ranked[0].max())  # open ones rank first


def test_weights_of_zero_for_every_layer_mean_none(widths, batches) -> None:
    _, supernet = widths
    schedule = GateSchedule(epochs=2, batch=IMAGES)
    flat = [0.0] * len(gated_blocks(supernet))
    plain, found = Gates(supernet), Gates(supernet)
    learn_gates(plain, batches, schedule)
    learn_gates(found, batches, schedule, flat)
    assert all(torch.equal(a, b) for a, b in zip(found.values, plain.values, strict=True))


def test_the_weights_of_the_network_stand_still(widths, batches) -> None:
    _, supernet = widths
    before = {name: value.clone() for name, value in supernet.state_dict().items()}
    learn_gates(Gates(supernet), batches, GateSchedule(epochs=2, batch=IMAGES))
    assert all(torch.equal(value, before[name]) for name, value in supernet.state_dict().items())
