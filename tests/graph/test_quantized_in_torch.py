"""A network in torch that rounds as its 8-bit graph does: the same values everywhere, and gradients that train it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from random_networks import Parts, random_images, random_weights, rms, run
from test_quantization import EVERY
from tiny_spaces import CELLS, RAGGED_CELLS

from deploynas import graph
from deploynas.errors import InputError
from deploynas.export.calibration import activation_ranges
from deploynas.graph import Form, OperatorForms
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.space import PRESETS, Space
from deploynas.supernet import quantized_network
from deploynas.supernet.fake_quantization import LearnedRanges, rounded_values, rounded_weight, scale_and_zero
from deploynas.supernet.quantized_network import Computed, QuantizedNetwork

QUANTIZATIONS = {"for CPUs": FOR_CPUS, **EVERY}


def literally(content: bytes, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every value as integers, and the logits, without a single optimisation of the runtime: already its basic ones
    make integers of biases that are in float.
    """
    model = onnx.load_model_from_string(content)
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            kind = kinds[node.input[2]]
            model.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], kind, None))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {graph.INPUT: x}), strict=True))


class Case:
    """One network, its images and the ranges that they need."""

    def __init__(self, parts: Parts, images: int = 16) -> None:
        self.parts, self.weights, self.x = parts, random_weights(parts), random_images(parts, images)
        fp32 = graph.chain(parts, self.weights, Form(None))
        self.ranges = activation_ranges(fp32, lambda: [(self.x, np.zeros(images))], "mse")
        self.exact = run(fp32.SerializeToString(), self.x)

    def graph(self, quantization: Quantization, forms: OperatorForms) -> bytes:
        form = Form(None, "int8", ranges=self.ranges, quantization=quantization, operators=forms)
        return graph.chain(self.parts, self.weights, form).SerializeToString()

    def network(self, quantization: Quantization, forms: OperatorForms) -> QuantizedNetwork:
        biased = forms.hard_sigmoid == "bias"
        return QuantizedNetwork(self.parts, self.weights, self.ranges, quantization, biased_gates=biased)


CHOSEN = OperatorForms()


def differing(case: Case, quantization: Quantization, forms: OperatorForms = CHOSEN) -> tuple[int, int]:
    """How many of a network's values torch rounds to another integer than the graph, given the same values before.

    Each value is compared, then replaced by that of the graph: else one integer that a sum was halfway between would
    change every value after it. None may be off by more than one integer.
    """
    meant = literally(case.graph(quantization, forms), case.x)
    compared: list[tuple[int, int]] = []

    class Forced(quantized_network._Rounding):
        def _rounded(self, x: Computed, scale: torch.Tensor, zero: torch.Tensor) -> Computed:
            made = super()._rounded(x, scale, zero)
            integers = torch.from_numpy(meant[self.written_name(x)].astype(np.float32)).view_as(made.numbers)
            expected = (integers - zero) * scale
            off = ((made.numbers - expected) / scale).round().abs()
            assert off.max() <= 1, x.name
            compared.append((int(off.sum()), off.numel()))
            return replace(made, numbers=expected)

        def written_name(self, x: Computed) -> str:
            """The last value is renamed only after it was quantised."""
            return f"{x.name}/quantized"

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(quantized_network, "_Rounding", Forced)
        logits = case.network(quantization, forms)(torch.from_numpy(case.x)).numpy()
    np.testing.assert_allclose(logits, meant[graph.OUTPUT], rtol=0, atol=1e-5 * np.abs(logits).max())
    assert len(compared) > 3
    return sum(off for off, _ in compared), sum(count for _, count in compared)


def require_equal(case: Case, quantization: Quantization, forms: OperatorForms = CHOSEN) -> None:
    off, count = differing(case, quantization, forms)
    # a sum that is halfway between two integers, to the 7 digits of a float, may be rounded to either
    assert off <= 1 + 1e-4 * count, f"{off} of {count}"


@pytest.fixture(scope="module")
def case(tiny: Space) -> Case:
    return Case(tiny.parts(tiny.heaviest()))


@pytest.mark.parametrize("quantization", QUANTIZATIONS.values(), ids=QUANTIZATIONS)
def test_every_value_is_that_of_the_graph(quantization: Quantization, case: Case) -> None:
    require_equal(case, quantization)


@pytest.mark.parametrize("forms", [forms for _, forms in OperatorForms().alternatives()], ids=str)
def test_in_every_form_of_operators(forms: OperatorForms, case: Case) -> None:
    require_equal(case, FOR_CPUS, forms)
    require_equal(case, Quantization(bias="float", activations="int8"), forms)


@pytest.mark.parametrize("name", PRESETS)
def test_in_networks_of_every_space(name: str, rng: np.random.Generator) -> None:
    space = Space.load(name)
    require_equal(Case(space.parts(space.sample(rng)), images=2), FOR_CPUS)


@pytest.mark.parametrize("text", [CELLS, RAGGED_CELLS], ids=["cells", "ragged"])
def test_in_networks_of_cells(text: str, tmp_path: Path, rng: np.random.Generator) -> None:
    (tmp_path / "cells.yaml").write_text(text)
    space = Space.load(tmp_path / "cells.yaml")
    for architecture in (space.heaviest(), space.smallest(), space.sample(rng), space.sample(rng)):
        for quantization in (FOR_CPUS, EVERY["nothing in float"]):
            require_equal(Case(space.parts(architecture)), quantization)


@pytest.mark.parametrize("quantization", QUANTIZATIONS.values(), ids=QUANTIZATIONS)
def test_the_logits_are_those_of_the_graph(quantization: Quantization, case: Case) -> None:
    """Nothing replaced in between; what torch computes is far nearer to the graph than the graph is to fp32."""
    meant = literally(case.graph(quantization, CHOSEN), case.x)[graph.OUTPUT]
    with torch.no_grad():
        found = case.network(quantization, CHOSEN)(torch.from_numpy(case.x)).numpy()
    assert rms(found - meant) <= 0.05 * rms(meant - case.exact)


def test_rounding_hands_gradients_on_and_what_is_clipped_moves_the_edge() -> None:
    x = torch.tensor([-3.0, -0.4, 0.0, 0.3, 5.0], requires_grad=True)
    ranges = LearnedRanges({"x": (-1.0, 2.0)})
    low, high = ranges.edges()
    y = rounded_values(x, *(value.float() for value in scale_and_zero(low[0], high[0], FOR_CPUS)), FOR_CPUS.lowest)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 1, 1, 1, 0]
    step = 3 / 255
    np.testing.assert_allclose(y.detach(), [-1, *(step * np.round(np.array([-0.4, 0, 0.3]) / step)), 2], rtol=1e-6)
    # an edge that moves by d of itself moves what it clips by d of itself, and rounding errors by their share
    inside = sum(np.round(value / step) - value / step for value in (-0.4, 0.3)) / 255
    assert ranges.high_move.grad is not None and ranges.low_move.grad is not None
    np.testing.assert_allclose(ranges.high_move.grad, [2 * (1 + inside)], rtol=1e-4)
    np.testing.assert_allclose(ranges.low_move.grad, [-1 * (1 - inside)], rtol=1e-4)


def test_ranges_keep_zero_inside_however_far_they_move() -> None:
    ranges = LearnedRanges({"relu": (0.0, 6.0), "linear": (-2.0, 3.0), "nothing": (0.0, 0.0)})
    with torch.no_grad():
        ranges.low_move.fill_(-4.0)
        ranges.high_move.fill_(3.0)
    found = ranges.by_name()
    assert found["relu"] == (0.0, pytest.approx(6 * np.exp(3)))
    assert found["linear"] == (pytest.approx(-2 * np.exp(-4)), pytest.approx(3 * np.exp(3)))
    low, high = (edge.detach() for edge in ranges.edges())
    for quantization in QUANTIZATIONS.values():
        scale, zero = scale_and_zero(low, high, quantization)
        for i, (name, (at_least, at_most)) in enumerate(found.items()):
            expected = quantization.step(at_least, max(at_most, at_least + 1e-6))
            assert (float(scale[i]), float(zero[i])) == expected, name


def test_weights_of_7_bits_are_at_most_63_steps() -> None:
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    rounded, scale = rounded_weight(weight, EVERY["7-bit weights"])
    steps = (rounded / scale.view(-1, 1, 1, 1)).detach()
    assert steps.abs().flatten(1).amax(1).tolist() == pytest.approx([63] * 4)
    np.testing.assert_allclose(steps, steps.round(), atol=1e-4)
    rounded.sum().backward()
    assert weight.grad is not None and bool((weight.grad == 1).all())


def test_a_value_without_a_range_is_named(case: Case) -> None:
    ranges = {name: value for name, value in case.ranges.items() if name != "stem/conv"}
    network = QuantizedNetwork(case.parts, case.weights, ranges, FOR_CPUS)
    with pytest.raises(InputError, match="no range for `stem/conv`"):
        network(torch.from_numpy(case.x))


def test_it_learns_what_it_is_taught(case: Case) -> None:
    """Coarse integers lose something that training brings back: the distance to the network in fp32 falls."""
    coarse = Quantization(weight_bits=7, per_channel=False)
    network = QuantizedNetwork(case.parts, case.weights, case.ranges, coarse)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    x, exact = torch.from_numpy(case.x), torch.from_numpy(case.exact)
    losses = []
    for _ in range(40):
        loss = (network(x) - exact).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    assert all((value != case.weights[name]).any() for name, value in network.folded_weights().items())
    assert network.ranges.by_name() != dict(case.ranges)
