"""Claims of the source text that are wrong as printed, each with the smallest example that says so.

None of them is used anywhere; this is what keeps them out.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch


def test_the_bound_of_the_trace_needs_the_square_of_the_lipschitz_constant() -> None:
    """(6.6) has gamma^-1. For f = theta and the loss gamma f the gradient is gamma and the kernel 1."""
    gamma = 2.0
    theta = torch.tensor(1.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(gamma * theta, theta)
    kernel = 1.0
    assert float(gradient) ** 2 / gamma > kernel  # as printed
    assert float(gradient) ** 2 / gamma**2 <= kernel


@pytest.mark.parametrize("t", [0.25, 0.5, 1.0, 3.0])
def test_the_training_error_of_corollary_7_2_needs_a_smaller_exponent(t: float) -> None:
    """Jensen turns round for convex powers: of the mean factor only the power min(1, 2t) bounds the mean power."""
    factors = np.array([0.1, 0.9])  # 1 - eta lambda / m, all in (0, 1)
    error = 0.5 * (factors ** (2 * t)).sum()
    printed, right = (0.5 * 2 * factors.mean() ** power for power in (2 * t, min(1.0, 2 * t)))
    assert error <= right + 1e-12
    assert (error > printed + 1e-12) == (2 * t > 1)


def test_later_nodes_of_a_narrow_cell_move_with_the_first_weight() -> None:
    """Theorem 4.3 bounds how fast the narrow cell's gradient by W_i changes through that of the wide cell alone.

    Two scalar nodes, output y_2^2 / 2. Wide: y_2 = W_2 x, so the gradient by W_1 is constantly 0, with constant L = 0.
    Narrow: y_2 = W_2 W_1 x, whose gradient by W_1 is W_2^2 W_1 and does change.
    """

    def gradient(w1: float, narrow: bool) -> float:
        first, second = torch.tensor(w1, requires_grad=True), torch.tensor(3.0)
        output = (second * first if narrow else second + 0 * first) ** 2 / 2
        return float(torch.autograd.grad(output, first)[0])

    assert gradient(2.0, narrow=False) - gradient(1.0, narrow=False) == 0
    assert gradient(2.0, narrow=True) - gradient(1.0, narrow=True) == pytest.approx(9.0)


@pytest.mark.parametrize("layers", [1, 3, 5])
def test_the_trace_of_a_deep_network_moves_with_its_depth(layers: int) -> None:
    """Lemma D.9 drops the factor L that proposition 6.2 has for it.

    A linear network in the kernel's parametrisation, f = w_L' W .. W x / sqrt(n_0 ...): every layer adds |x|^2 / n_0.
    At inputs of length 1 and 0 the mean traces are L / n_0 and 0, and the two point distributions are Z = 2 apart.
    """
    inputs, width, z = 4, 400, 2.0
    generator = torch.Generator().manual_seed(0)
    sizes = [inputs, *[width] * (layers - 1), 1]
    weights = [torch.randn(out, into, generator=generator).requires_grad_() for into, out in itertools.pairwise(sizes)]

    def trace(x: torch.Tensor) -> float:
        for weight in weights:
            x = weight @ x / math.sqrt(weight.shape[1])
        return sum(float((g**2).sum()) for g in torch.autograd.grad(x.sum(), weights))

    unit = torch.eye(inputs)[0]
    apart = np.mean([trace(torch.roll(unit, i)) for i in range(inputs)]) - trace(torch.zeros(inputs))
    assert apart == pytest.approx(layers / inputs, rel=0.15)
    assert apart <= layers * z / inputs
    assert (apart > z / inputs) == (layers > 2)  # as printed
