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
from deploynas.supernet.fake_quantization import LearnedRanges, rounded_values, rounded_weight, step
from deploynas.supernet.quantized_network import QuantizedNetwork, Value

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
        def _rounded(self, x: Value, scale: torch.Tensor, zero: torch.Tensor) -> Value:
            made = super()._rounded(x, scale, zero)
            integers = torch.from_numpy(meant[self.written_name(x)].astype(np.float32)).view_as(made.numbers)
            expected = (integers - zero) * scale
            off = ((made.numbers - expected) / scale).round().abs()
            assert off.max() <= 1, x.name
            compared.append((int(off.sum()), off.numel()))
            return replace(made, numbers=expected)

        def written_name(self, x: Value) -> str:
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
