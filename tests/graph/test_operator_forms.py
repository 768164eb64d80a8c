"""Forms of one operation compute the same from the same weights; the runtime makes of them what they are there for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from deploynas import graph
from deploynas.graph import Form, OperatorForms
from deploynas.space import Space

FORMS = [
    *(forms for _, forms in OperatorForms().alternatives()),
    OperatorForms(gate="resize", dense="conv", hard_sigmoid="bias"),
]


@pytest.fixture(scope="module")
def space() -> Space:
    """With squeeze-and-excitation and a hidden layer in the head."""
    return Space.load("imagenet")


def weights_of(space: Space, architecture) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in graph.weight_shapes(space, architecture).items()
    }


def run(content: bytes, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x})[0]


@pytest.mark.parametrize("opset", [graph.OPSET, 22])
@pytest.mark.parametrize("forms", FORMS, ids=str)
def test_every_form_computes_the_same_from_the_same_weights(forms: OperatorForms, opset: int, space: Space) -> None:
    architecture = space.sample(np.random.default_rng(3))
    weights, parts = weights_of(space, architecture), space.parts(architecture)
    x = np.random.default_rng(1).standard_normal((3, space.in_channels, space.height, space.width)).astype(np.float32)
    plain = run(graph.chain(parts, weights, Form(None, opset=opset)).SerializeToString(), x)
    written = graph.chain(parts, weights, Form(None, opset=opset, operators=forms))
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_allclose(run(written.SerializeToString(), x), plain, rtol=1e-4, atol=1e-5 * np.abs(plain).max())


@pytest.mark.parametrize("forms", FORMS, ids=str)
def test_in_8_bits_ranges_of_the_default_forms_serve_all(forms: OperatorForms, space: Space) -> None:
    """A gate that is repeated, or a product as a convolution, gives equal integers; a bias rounds once less."""
    from deploynas.export.calibration import activation_ranges

    architecture = space.sample(np.random.default_rng(3))
    weights, parts = weights_of(space, architecture), space.parts(architecture)
    x = np.random.default_rng(1).standard_normal((2, space.in_channels, space.height, space.width)).astype(np.float32)
    ranges = activation_ranges(graph.chain(parts, weights, Form(None)), lambda: [(x, np.zeros(2))], "minmax")
    exact, plain, other = (
        run(graph.chain(parts, weights, form).SerializeToString(), x)
        for form in (
            Form(None),
            Form(None, "int8", ranges=ranges),
            Form(None, "int8", ranges=ranges, operators=forms),
        )
    )
    if forms.hard_sigmoid == "add":
        np.testing.assert_allclose(other, plain, atol=1e-3 * np.abs(plain).max())
    assert np.abs(other - exact).mean() <= 1.05 * np.abs(plain - exact).mean()


def operators_after_optimisation(content: bytes, folder: Path) -> Counter[str]:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    optimised = onnx.load(folder / "optimised.onnx", load_external_data=False)
    return Counter(node.op_type for node in optimised.graph.node)


@pytest.mark.parametrize("batch", [None, 1])
def test_a_resized_gate_stays_in_the_blocked_layout(batch: int | None, space: Space, tmp_path: Path) -> None:
    """Also with a free batch, which shape inference loses in `Resize`: the model states it."""
    parts = space.parts(space.heaviest())
    product = operators_after_optimisation(graph.random_bytes(parts, Form(batch)), tmp_path)
    if "ReorderOutput" not in product:
        pytest.skip("this processor has no blocked layout")
    blocks = product["ReorderInput"]  # one before the projection of every block with a gate
    resized = OperatorForms(gate="resize")
    kept = operators_after_optimisation(graph.random_bytes(parts, Form(batch, operators=resized)), tmp_path)
    assert blocks > 1 and kept["Upsample"] == blocks
    assert kept["ReorderInput"] == 0 and kept["ReorderOutput"] == 1 and kept["Add"] == 0


def test_weights_have_the_same_names_and_shapes_whatever_the_form(space: Space) -> None:
    """A convolution's weight is the matrix that was given, with two axes more."""
    architecture = space.smallest()
    weights, parts = weights_of(space, architecture), space.parts(architecture)
    written = graph.chain(parts, weights, Form(None, operators=OperatorForms(dense="conv")))
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in written.graph.initializer}
    for layer in ("head/hidden/weight", "head/classifier/weight"):
        assert stored[layer].shape == (*weights[layer].shape, 1, 1)
    assert set(stored) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(stored[name].reshape(value.shape), value)


@pytest.mark.parametrize("forms", [OperatorForms(gate="resize", hard_sigmoid="bias", dense="hidden-conv")], ids=str)
def test_what_a_network_does_not_have_makes_no_difference(forms: OperatorForms) -> None:
    """Without squeeze-and-excitation and without a hidden layer all these forms are one graph."""
    plain = Space.load("ofa-proxyless")
    parts = plain.parts(plain.smallest())
    assert graph.nodes(parts, Form(operators=forms)) == graph.nodes(parts)


def test_alternatives_differ_in_one_operation_each() -> None:
    for name, forms in OperatorForms().alternatives():
        changed = [field for field, value in forms if value != getattr(OperatorForms(), field)]
        assert changed == [name]
