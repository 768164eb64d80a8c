"""The loss around weights and the variance of gradients, where both are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from deploynas.accuracy.landscape import LandscapeSettings, _direction, _variances, surroundings
from deploynas.accuracy.landscape_record import HEAVIEST, OURS, RANDOM, NetworkLandscape, findings_of
from deploynas.report.landscape import picture

SETTINGS = LandscapeSettings(points=3, pairs=2, images=20, gradients=20)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(20, 4, generator=generator), torch.randint(3, (20,), generator=generator)


def linear(scale: float = 1.0) -> nn.Module:
    torch.manual_seed(1)
    network = nn.Linear(4, 3)
    with torch.no_grad():
        network.weight.mul_(scale)
    return network


def test_the_middle_is_the_loss_itself_and_the_network_stays_as_it_was(batch) -> None:
    network = linear()
    before = [weight.clone() for weight in network.parameters()]
    found = surroundings(network, [(batch[0][:7], batch[1][:7]), (batch[0][7:], batch[1][7:])], SETTINGS)
    expected = nn.functional.cross_entropy(network(batch[0]), batch[1]).item()
    assert found.contour.shape == (3, 3) and found.contour[1, 1] == pytest.approx(expected, rel=1e-6)
    assert all(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_filters_of_a_direction_are_as_long_as_the_networks_and_biases_stay() -> None:
    weight = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    direction = _direction(weight, torch.Generator().manual_seed(1))
    assert direction.flatten(1).norm(dim=1).tolist() == pytest.approx(weight.flatten(1).norm(dim=1).tolist(), rel=1e-5)
    assert not _direction(torch.ones(5), torch.Generator()).any()


def test_larger_weights_that_mean_the_same_look_the_same(batch) -> None:
    """Two ReLU layers, one multiplied and the other divided by ten: the same function, the same landscape."""

    def layers(scale: float) -> nn.Module:
        torch.manual_seed(2)
        network = nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))
        with torch.no_grad():
            network[0].weight.mul_(scale)
            network[2].weight.div_(scale)
        return network

    one, ten = (surroundings(layers(scale), [batch], SETTINGS) for scale in (1.0, 10.0))
    assert ten.contour == pytest.approx(one.contour, rel=1e-4)
    assert ten.rises == pytest.approx(one.rises, rel=1e-3)


def test_the_variance_of_gradients_is_by_its_definition(batch) -> None:
    network = linear()
    x, y = batch
    # of softmax regression: (p - onehot) x' for the weights, p - onehot for the biases
    apart = (network(x).softmax(1) - nn.functional.one_hot(y, 3)).detach()
    gradients = torch.cat([(apart[:, :, None] * x[:, None, :]).flatten(1), apart], dim=1).double().numpy()
    assert _variances(network, x, y).mean() == pytest.approx(gradients.var(axis=0, ddof=1).sum(), rel=1e-5)


def network(role: str, rise: float, variance: float) -> NetworkLandscape:
    contour = [[1.0, 2.0, 1.0], [0.5, 0.1, 0.5], [1.0, 2.0, 3.0]]
    return NetworkLandscape(role=role, architecture=role, contour=contour, rise=rise, rise_se=0.1,
                            gradient_variance=variance, gradient_variance_se=1.0)  # fmt: skip


def test_a_sentence_says_no_more_than_its_figures() -> None:
    networks = [
        network(OURS, 1.0, 5.0),
        network(RANDOM, 2.0, 5.5),
        network(RANDOM, 2.2, 6.0),
        network(HEAVIEST, 0.2, 40),
    ]
    gentle, steep, unknown, less = findings_of(networks)
    assert gentle.startswith("the loss around its weights rises more gently than around those of random networks")
    assert steep.startswith("the loss around its weights rises more steeply than around those of the heaviest")
    assert "cannot be told" in unknown and less.startswith("its gradients differ less")
    assert len(findings_of(networks[:3])) == 2


def test_the_picture_has_a_cell_for_every_point_and_the_extremes_of_its_scale() -> None:
    svg = picture(network(OURS, 1.0, 5.0), 0.1, 3.0)
    assert svg.count("<rect") == 9 and "#eff6ff" in svg and "#1e3a8a" in svg
    assert np.char.count(svg, "<text") == 3
