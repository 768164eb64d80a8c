"""What holds for every training-free score, and what is proven about them."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

from deploynas.accuracy.training_free.gradients import mean_loss_gradient, tangent_kernel
from deploynas.accuracy.training_free.initialisation import fixed_statistics, lecun
from deploynas.accuracy.training_free.kappa import condition
from deploynas.accuracy.training_free.registry import (
    NASI,
    TRAINING_FREE_SCORES,
    WORDS,
    Reading,
    TrainingFreeScore,
)
from deploynas.accuracy.training_free.score import ScoringBatch, load_score
from deploynas.accuracy.training_free.synflow import made_positive
from deploynas.space import Space
from deploynas.supernet.extraction import timm_model

every_score = pytest.mark.parametrize("name", TRAINING_FREE_SCORES)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network_of(space: Space, seed: int, images: torch.Tensor) -> nn.Module:
    architecture = space.sample(np.random.default_rng(seed))
    return fixed_statistics(lecun(timm_model(architecture), seed), images)


def batch_of(space: Space, images: int = 6, seed: int = 0) -> ScoringBatch:
    return ScoringBatch.random(images, (space.in_channels, space.height, space.width), space.classes, seed)


def value(name: str, network: nn.Module, batch: ScoringBatch) -> float:
    return load_score(name).value(network, batch)


def test_every_score_has_words_and_a_type() -> None:
    assert {*TRAINING_FREE_SCORES, NASI} == set(WORDS)
    assert set(TRAINING_FREE_SCORES) == set(get_args(TrainingFreeScore))


@every_score
def test_it_is_a_finite_number_that_the_seed_decides_and_changes_nothing(name: str, tiny: Space) -> None:
    batch = batch_of(tiny)
    network = network_of(tiny, 1, batch.images)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    first = value(name, network, batch)
    assert math.isfinite(first) and first > 0
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())
    assert value(name, network_of(tiny, 1, batch.images), batch) == pytest.approx(first, rel=1e-6)
    assert value(name, network_of(tiny, 2, batch.images), batch) != pytest.approx(first, rel=1e-6)


@every_score
def test_more_is_better_on_the_scale_that_ranks(name: str) -> None:
    score = load_score(name)
    assert score.reading in get_args(Reading)
    better, worse = (1.5, 2.0) if name == "kappa" else (2.0, 1.5)
    assert score.rank(better) > score.rank(worse)


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_gradient_is_within_the_trace(tiny: Space, seed: int) -> None:
    """|p - onehot| <= sqrt(2) for softmax cross-entropy, whatever the labels."""
    batch = batch_of(tiny, seed=seed)
    network = network_of(tiny, seed, batch.images)
    trace = value("trace", network, batch)
    assert value("grad", network, batch) <= math.sqrt(2) * trace
    assert value("knas", network, batch) <= trace


def test_the_bound_of_the_mean_gradient_is_approached() -> None:
    """One image, surely classified wrongly: the gradient by the outputs has length sqrt(2), and the bound's constant
    cannot be smaller."""
    network = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[40.0], [-40.0]]))
    batch = ScoringBatch(torch.ones(1, 1), torch.tensor([1]))
    # both rows of the Jacobian have length 1, so the trace is sqrt(2) and the gradient (1, -1)
    assert value("trace", network, batch) == pytest.approx(math.sqrt(2))
    assert value("grad", network, batch) == pytest.approx(math.sqrt(2))


def test_the_trace_is_that_of_the_kernel_where_there_is_one_output(tiny: Space) -> None:
    network, images = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1)), torch.randn(4, 5)
    kernel = tangent_kernel(network, images)
    batch = ScoringBatch(images, torch.zeros(4, dtype=torch.long))
    assert value("trace", network, batch) == pytest.approx(math.sqrt(float(kernel.trace()) / 4), rel=1e-5)
    assert value("knas", network, batch) == pytest.approx(math.sqrt(abs(float(kernel.mean()))), rel=1e-5)
    assert value("kappa", network, batch) == pytest.approx(condition(kernel), rel=1e-6)


class Wide(nn.Module):
    """1' (W_1 + ... + W_L) x, of the thesis' theorem 7.4."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([layer(x) for layer in self.layers]).sum((0, 2))[:, None]


def test_a_wide_linear_network_learns_evenly() -> None:
    """Orthonormal inputs: the kernel is L n times the identity."""
    layers, width = 3, 8
    images = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))[0][:5]
    kernel = tangent_kernel(Wide(layers, width), images)
    assert torch.allclose(kernel, layers * width * torch.eye(5, dtype=torch.float64), atol=1e-4)
    assert condition(kernel) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_trace_times_trace_of_the_inverse(seed: int) -> None:
    """tr(A) tr(A^-1) <= m^2 kappa (lemma D.8)."""
    root = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    kernel = root @ root.T
    assert float(kernel.trace() * torch.linalg.inv(kernel).trace()) <= 36 * condition(kernel) * (1 + 1e-9)


def test_a_singular_kernel_has_the_largest_condition_and_not_infinity() -> None:
    assert condition(torch.ones(3, 3, dtype=torch.float64)) == 1e15


def test_the_trace_does_not_see_the_data() -> None:
    """Of unit length, in a wide network of ReLUs without biases: the limit depends on the inputs' length alone."""
    width, generator = 4096, torch.Generator().manual_seed(0)
    network = lecun(nn.Sequential(nn.Linear(20, width, False), nn.ReLU(), nn.Linear(width, 1, False)), 0)
    noise = torch.randn(8, 20, generator=generator)
    bright = torch.rand(8, 20, generator=generator)  # all positive, much alike
    found = [
        value("trace", network, ScoringBatch(x / x.norm(dim=1, keepdim=True), torch.zeros(8, dtype=torch.long)))
        for x in (noise, bright)
    ]
    assert found[0] == pytest.approx(found[1], rel=0.03)
    longer = value("trace", network, ScoringBatch(2 * bright, torch.zeros(8, dtype=torch.long)))
    assert longer > 1.5 * found[1]


def normalised() -> nn.Module:
    """Every weight is followed by batch norm, whose own parameters are constants here."""
    network = nn.Sequential(nn.Linear(6, 5, False), nn.BatchNorm1d(5, eps=1e-30, affine=False), nn.Tanh()).double()
    return network.append(nn.Linear(5, 3, False).double()).append(nn.BatchNorm1d(3, eps=1e-30, affine=False).double())


def test_under_batch_norm_the_signed_sum_of_snip_is_zero_and_its_own_is_not() -> None:
    torch.manual_seed(0)
    network, images = normalised().train(), torch.randn(16, 6, dtype=torch.float64)
    batch = ScoringBatch(images, torch.arange(16) % 3)
    gradient, weights = mean_loss_gradient(network, batch), dict(network.named_parameters())
    for name, own in gradient.items():  # each layer apart: no outcome depends on the scale of its weights
        assert float((weights[name].detach() * own).sum()) == pytest.approx(0, abs=1e-12)
    assert value("snip", network, batch) > 0.01


def test_grasp_is_no_evidence_of_its_own() -> None:
    """Under batch norm theta' H g = -|g|^2: differentiate theta' g(theta) = 0. So it is not among the scores."""
    assert "grasp" not in TRAINING_FREE_SCORES
    torch.manual_seed(0)
    network, images = normalised().train(), torch.randn(16, 6, dtype=torch.float64)
    weights = list(network.parameters())
    loss = nn.functional.cross_entropy(network(images), torch.arange(16) % 3)
    gradient = torch.autograd.grad(loss, weights, create_graph=True)
    along = sum((g * g.detach()).sum() for g in gradient)
    products = torch.autograd.grad(along, weights)  # H g
    grasp = sum(float((w * own).sum()) for w, own in zip(weights, products, strict=True))
    assert grasp == pytest.approx(-sum(float((g**2).sum()) for g in gradient), rel=1e-9)


def test_synflow_of_a_linear_chain_is_the_number_of_layers_times_its_output() -> None:
    """Euler: the output is homogeneous of degree 1 in every layer."""
    network = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Linear(5, 3, bias=False))
    output = float(made_positive(network)(torch.ones(1, 4, dtype=torch.float64)).detach().sum())
    batch = ScoringBatch(torch.randn(2, 4), torch.zeros(2, dtype=torch.long))
    assert value("synflow", network, batch) == pytest.approx(2 * output)
