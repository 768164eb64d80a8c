"""In float16 a network is the same up to the rounding of float16, and looks the same from outside."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from random_networks import Parts, Weights, random_images, random_weights, rms, run

from deploynas import graph
from deploynas.errors import InputError
from deploynas.graph import Form, OperatorForms
from deploynas.space import PRESETS, Space

FORMS = [OperatorForms(), OperatorForms(gate="resize", dense="conv"), OperatorForms(dense="hidden-conv")]


def tolerance(parts: Parts, weights: Weights, x: np.ndarray) -> float:
    """How far the root mean square of logits may be off: asked of the fp32 network itself, since networks differ by a
    hundred times in what they make of a small change.

    Rounding to 11 bits is off by at most 2^-11 of a value. So weights that are moved by random shares up to that say
    what rounding them costs at most; values between operators are as many roundings again, and squares add up: sqrt(2).
    What remains to 2 is for the draw.
    """
    rng = np.random.default_rng(2)
    moved = {
        name: (value * (1 + rng.uniform(-1, 1, value.shape) * 2**-11)).astype(np.float32)
        for name, value in weights.items()
    }
    one, other = (run(graph.chain(parts, values, Form(None)).SerializeToString(), x) for values in (weights, moved))
    return 2 * rms(one - other)


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: value.type.tensor_type.elem_type for value in values}


@pytest.mark.parametrize("name", PRESETS)
def test_random_networks_compute_the_same_up_to_rounding(name: str, rng: np.random.Generator, capfd) -> None:
    space = Space.load(name)
    parts = space.parts(space.sample(rng))
    weights, x = random_weights(parts), random_images(parts, 2)
    exact = run(graph.chain(parts, weights, Form(None)).SerializeToString(), x)
    written = graph.chain(parts, weights, Form(None, "fp16"))
    onnx.checker.check_model(written, full_check=True)
    found = run(written.SerializeToString(), x)
    assert found.dtype == np.float32 and found.shape == exact.shape
    assert 0 < rms(found - exact) <= tolerance(parts, weights, x)
    assert capfd.readouterr() == ("", "")  # the runtime has nothing to warn about


@pytest.mark.parametrize("forms", FORMS, ids=str)
def test_also_where_every_operator_rounds(forms: OperatorForms, tiny: Space) -> None:
    """ONNX's reference computes in float16 what a CPU's runtime computes in float32 between conversions."""
    parts = tiny.parts(tiny.heaviest())
    weights, x = random_weights(parts), random_images(parts, 1)
    exact = run(graph.chain(parts, weights, Form(None)).SerializeToString(), x)
    written = graph.chain(parts, weights, Form(1, "fp16", operators=forms))
    (found,) = ReferenceEvaluator(written).run(None, {"input": x})
    assert 0 < rms(found - exact) <= tolerance(parts, weights, x)
    assert rms(run(written.SerializeToString(), x) - found) <= tolerance(parts, weights, x)


@pytest.mark.parametrize("opset", [graph.OPSET, 22])
@pytest.mark.parametrize("forms", FORMS, ids=str)
def test_only_the_border_is_float32(forms: OperatorForms, opset: int, imagenet: Space) -> None:
    parts = imagenet.parts(imagenet.heaviest())
    model = graph.chain(parts, form=Form(None, "fp16", opset, operators=forms))
    onnx.checker.check_model(model, full_check=True)
    kinds = Counter(node.op_type for node in model.graph.node)
    assert kinds["Cast"] == 2 and [model.graph.node[i].op_type for i in (0, -1)] == ["Cast", "Cast"]
    assert {name for name, kind in types_of(model).items() if kind != TensorProto.FLOAT16} == {"input", "logits"}
    others = {t.name.rpartition("/")[2] for t in model.graph.initializer if t.data_type != TensorProto.FLOAT16}
    assert others == ({"scales"} if forms.gate == "resize" else set())  # of `Resize`, which ONNX has in float32 only
    plain = graph.chain(parts, form=Form(None, opset=opset, operators=forms))
    assert len(model.graph.node) == len(plain.graph.node) + 2
    size, plain_size = (sum(len(t.raw_data) for t in m.graph.initializer) for m in (model, plain))
    scales = 16 * sum("scales" in t.name for t in plain.graph.initializer)
    assert 2 * (size - scales) == plain_size - scales


def test_the_activations_are_what_their_names_say() -> None:
    """One 1x1 network that passes its input straight into an activation, at every number that float16 has there."""
    from deploynas.graph.float16 import Float16Writer
    from deploynas.graph.writer import Tensor

    x = np.linspace(-6, 6, 121).astype(np.float16).astype(np.float32).reshape(1, 1, 1, 121)
    expected = {
        "relu": np.maximum(x, 0),
        "relu6": np.clip(x, 0, 6),
        "hard_sigmoid": np.clip(x / 6 + 0.5, 0, 1),
        "hard_swish": x * np.clip(x / 6 + 0.5, 0, 1),
        "swish": x / (1 + np.exp(-x)),
    }

    def identity(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.ones(shape, np.float32) if name.endswith("weight") else np.zeros(shape, np.float32)

    for activation, values in expected.items():
        writer, entering = Float16Writer(identity), Tensor("input", 1, 1, 121)
        leaving = writer.conv("conv", writer.begin(entering), 1, activation=activation)
        model = writer.model(entering, writer.finish(leaving, "logits"), 1, 17, {})
        # two roundings at most, each of half a step: 2^-11 of the value
        found = run(model, x)
        np.testing.assert_allclose(found, values, rtol=2 * 2**-11, atol=2**-11, err_msg=activation)


def test_weights_that_do_not_fit_are_named(tiny: Space) -> None:
    parts = tiny.parts(tiny.heaviest())
    weights, name = random_weights(parts), "stage2/block1/project/weight"

    def write(value: np.ndarray, name: str = name) -> onnx.ModelProto:
        return graph.chain(parts, {**weights, name: value}, Form(None, "fp16"))

    large = weights[name].copy()
    large.flat[3] = -65504.0  # the largest that there is
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in write(large).graph.initializer}
    assert stored[name].flat[3] == -65504.0 and stored[name].dtype == np.float16
    large.flat[3] = -65520.0  # halfway to the next, which there is not
    with pytest.raises(InputError, match=rf"weight `{name}` reaches 6\.552e\+04, more than float16 can hold \(65504\)"):
        write(large)
    half_of_least = np.full_like(large, 2.0**-25)  # ties go to the even one, zero
    with pytest.raises(InputError, match=f"weight `{name}` is nothing but zeros in float16"):
        write(half_of_least)
    half_of_least.flat[0] = 2.0**-24
    write(half_of_least)
    write(np.zeros_like(large))  # zeros that were zeros are no loss
    bias = name.replace("weight", "bias")
    write(np.full_like(weights[bias], 1e-9), bias)  # adds nothing to speak of in fp32 either
