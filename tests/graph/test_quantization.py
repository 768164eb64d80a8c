"""Every way of writing 8 bits computes the same network, and is what the providers that want it need."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx
import pytest
from pydantic import ValidationError
from random_networks import Parts, random_images, random_weights, rms, run

from deploynas import graph
from deploynas.errors import InputError
from deploynas.export.calibration import activation_ranges
from deploynas.graph import Form, OperatorForms
from deploynas.graph.quantized import Ranges
from deploynas.quantization import Quantization
from deploynas.space import PRESETS, Space

OPERATOR = Quantization(hard_activations="operator")
SYMMETRIC = Quantization(activations="int8", symmetric=True, bias="float", hard_activations="operator")
EVERY = {
    "operator": OPERATOR,
    "symmetric": SYMMETRIC,
    "symmetric uint8": Quantization(symmetric=True, hard_activations="operator"),
    "int8": Quantization(activations="int8"),
    "float bias": Quantization(bias="float"),
    "7-bit weights": Quantization(weight_bits=7),
    "uint8 weights": Quantization(weights="uint8"),
    "8-bit logits": Quantization(logits="8-bit"),
    "nothing in float": Quantization(hard_activations="operator", logits="8-bit", per_channel=False),
}
every_quantization = pytest.mark.parametrize("quantization", EVERY.values(), ids=EVERY)


def ranges_of(parts: Parts, weights: dict[str, np.ndarray], x: np.ndarray) -> Ranges:
    return activation_ranges(graph.chain(parts, weights, Form(None)), lambda: [(x, np.zeros(len(x)))], "minmax")


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def scales_of(model: onnx.ModelProto) -> dict[str, set[tuple]]:
    """By name of each array of integers: all scales and zero points that it is made or read with."""
    stored, found = constants(model), defaultdict(set)
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            integers = node.output[0] if node.op_type == "QuantizeLinear" else node.input[0]
            scale, zero = (stored[name] for name in node.input[1:])
            found[integers].add((scale.tobytes(), zero.tobytes(), str(zero.dtype)))
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_with_operators_every_tensor_has_one_scale(name: str, rng: np.random.Generator) -> None:
    space = Space.load(name)
    sampled, heaviest = space.parts(space.sample(rng)), space.parts(space.heaviest())
    forms = [OperatorForms(), *(forms for _, forms in OperatorForms().alternatives())]
    written = [
        (sampled, Form(None, "int8", operators=f, quantization=OPERATOR)) for f in forms if f.usable_with(OPERATOR)
    ]
    written += [(heaviest, Form(None, "int8", quantization=q)) for q in (SYMMETRIC, EVERY["nothing in float"])]
    assert len(written) == len(forms) + 1  # all but the bias as a hard sigmoid
    for parts, form in written:
        scales = scales_of(graph.chain(parts, form=form))
        assert scales and all(len(each) == 1 for each in scales.values()), form


def test_as_an_addition_a_tensor_has_two(tiny: Space) -> None:
    """What a runtime with one scale a tensor gets wrong, and why the other way of writing it is there."""
    model = graph.chain(tiny.parts(tiny.heaviest()), form=Form(None, "int8"))
    hard_swish = [node.name for node in graph.nodes(tiny.parts(tiny.heaviest())) if node.op_type == "HardSwish"]
    twice = {name for name, scales in scales_of(model).items() if len(scales) == 2}
    assert {name.removesuffix("/act") + "/quantized" for name in hard_swish} <= twice


@pytest.mark.parametrize("name", PRESETS)
def test_operators_follow_fp32_as_well_as_additions(name: str, rng: np.random.Generator) -> None:
    space = Space.load(name)
    parts = space.parts(space.sample(rng))
    weights, x = random_weights(parts), random_images(parts, 2)
    ranges = ranges_of(parts, weights, x)
    exact, add, operator = (
        run(graph.chain(parts, weights, form).SerializeToString(), x, fused=False)
        for form in (
            Form(None),
            Form(None, "int8", ranges=ranges),
            Form(None, "int8", ranges=ranges, quantization=OPERATOR),
        )
    )
    # a gate in steps of 1/255 is one rounding more than the operator has
    assert rms(operator - exact) <= 1.1 * rms(add - exact)


@every_quantization
def test_every_quantization_is_valid_and_follows_fp32(quantization: Quantization, tiny: Space, capfd) -> None:
    parts = tiny.parts(tiny.heaviest())
    weights, x = random_weights(parts), random_images(parts, 16)
    ranges = ranges_of(parts, weights, x)
    exact = run(graph.chain(parts, weights, Form(None)).SerializeToString(), x)
    for opset in (graph.OPSET, 22):
        model = graph.chain(parts, weights, Form(None, "int8", opset, ranges, quantization))
        onnx.checker.check_model(model, full_check=True)
        found = run(model.SerializeToString(), x, fused=False)
        run(model.SerializeToString(), x)
        assert np.corrcoef(found.ravel(), exact.ravel())[0, 1] > 0.98
    assert capfd.readouterr() == ("", "")  # the runtime has nothing to warn about


def test_symmetric_activations_have_zero_in_the_middle(tiny: Space) -> None:
    parts = tiny.parts(tiny.heaviest())
    weights, x = random_weights(parts), random_images(parts, 4)
    ranges = ranges_of(parts, weights, x)
    for quantization, middle in ((SYMMETRIC, np.int8(0)), (EVERY["symmetric uint8"], np.uint8(128))):
        model = graph.chain(parts, weights, Form(None, "int8", ranges=ranges, quantization=quantization))
        stored, checked = constants(model), 0
        for node in model.graph.node:
            if node.op_type != "QuantizeLinear":
                continue
            value, scale, zero = node.input[0], *(stored[name] for name in node.input[1:])
            assert zero.dtype == middle.dtype and zero == middle
            if value in ranges and "gate" not in value and not value.endswith("se/expand/act"):
                low, high = ranges[value]
                assert scale == np.float32(max(-low, high) / 127)
                checked += 1
        assert checked > 10


def test_signed_activations_are_unsigned_ones_moved_by_128(tiny: Space) -> None:
    parts = tiny.parts(tiny.heaviest())
    unsigned, signed = (
        constants(graph.chain(parts, form=Form(None, "int8", quantization=quantization)))
        for quantization in (Quantization(), EVERY["int8"])
    )
    zeros = [name for name, value in unsigned.items() if value.dtype == np.uint8]
    assert unsigned.keys() == signed.keys() and len(zeros) > 10
    for name, value in unsigned.items():
        moved = (value.astype(int) - 128).astype(np.int8) if name in zeros else value
        np.testing.assert_array_equal(signed[name], moved)
        assert signed[name].dtype == moved.dtype


def test_weights_of_7_bits_do_not_saturate_anywhere(tiny: Space) -> None:
    """With them the fused integer operators of every processor compute what the graph says."""
    parts = tiny.parts(tiny.heaviest())
    weights, x = random_weights(parts), random_images(parts, 16)
    form = Form(None, "int8", ranges=ranges_of(parts, weights, x), quantization=EVERY["7-bit weights"])
    model = graph.chain(parts, weights, form)
    for name, value in constants(model).items():
        if name in weights and name.endswith("/weight"):
            assert value.dtype == np.int8 and np.abs(value.reshape(len(value), -1)).max(axis=1).tolist() == [63] * len(
                value
            )
    integer, meant = (run(model.SerializeToString(), x, fused=fused) for fused in (True, False))
    # an integer that lies halfway may be rounded either way
    assert rms(integer - meant) <= 0.05 * rms(meant)


def test_unsigned_weights_are_signed_ones_moved_by_128(tiny: Space) -> None:
    """The same network, in kernels that sum in 32 bits on every processor."""
    parts = tiny.parts(tiny.heaviest())
    weights, x = random_weights(parts), random_images(parts, 16)
    ranges = ranges_of(parts, weights, x)
    signed, unsigned = (
        graph.chain(parts, weights, Form(None, "int8", ranges=ranges, quantization=quantization))
        for quantization in (Quantization(), EVERY["uint8 weights"])
    )
    before, after = constants(signed), constants(unsigned)
    assert before.keys() == after.keys()
    for name in weights:
        if name.endswith("/weight"):
            np.testing.assert_array_equal(after[name], before[name].astype(int) + 128)
            assert after[name].dtype == np.uint8 and set(after[f"{name}/zero"]) == {128}
    meant = run(signed.SerializeToString(), x, fused=False)
    np.testing.assert_array_equal(run(unsigned.SerializeToString(), x, fused=False), meant)
    # an integer that lies halfway may be rounded either way
    assert rms(run(unsigned.SerializeToString(), x) - meant) <= 0.05 * rms(meant)


def test_a_bias_in_float_is_the_bias(tiny: Space) -> None:
    parts = tiny.parts(tiny.heaviest())
    weights = random_weights(parts)
    for forms in (OperatorForms(), OperatorForms(hard_sigmoid="bias")):
        form = Form(None, "int8", quantization=EVERY["float bias"], operators=forms)
        model = graph.chain(parts, weights, form)
        stored = constants(model)
        read = {node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
        biases = [name for name in weights if name.endswith("/bias")]
        assert not read & set(biases)
        gates = 3.0 if forms.hard_sigmoid == "bias" else 0.0  # x + 3 saturates where the hard sigmoid does
        for name in biases:
            moved = gates if name.endswith("se/expand/bias") else 0.0
            np.testing.assert_array_equal(stored[name], weights[name] + np.float32(moved))


def test_with_8_bit_logits_nothing_is_left_in_float(tiny: Space) -> None:
    """Every operator reads integers, and what it leaves is made integers; the model's border is float32."""
    model = graph.chain(tiny.parts(tiny.heaviest()), form=Form(None, "int8", quantization=EVERY["nothing in float"]))
    made_by = {node.output[0]: node.op_type for node in model.graph.node}
    read_by = defaultdict(set)
    for node in model.graph.node:
        for name in node.input:
            read_by[name].add(node.op_type)
    clipped = ("Relu", "Clip")  # part of the operator before them
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            continue
        if node.op_type not in clipped:
            assert {made_by[name] for name in node.input if name in made_by} == {"DequantizeLinear"}, node.name
        assert read_by[node.output[0]] <= {"QuantizeLinear", *clipped}, node.name
    assert made_by["logits"] == "DequantizeLinear"
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    assert kinds == dict.fromkeys(("input", "logits"), onnx.TensorProto.FLOAT)


def test_what_cannot_be_is_refused_with_the_reason(tiny: Space) -> None:
    with pytest.raises(ValidationError, match="`symmetric: true` needs `hard_activations: operator`"):
        Quantization(symmetric=True)
    with pytest.raises(ValidationError):
        Quantization.model_validate({"activation": "int8"})
    bias = OperatorForms(hard_sigmoid="bias")
    assert bias.usable_with(Quantization()) and not bias.usable_with(OPERATOR)
    with pytest.raises(InputError, match="read one tensor with two scales"):
        Form(None, "int8", quantization=OPERATOR, operators=bias)
    Form(None, "fp16", quantization=OPERATOR, operators=bias)  # where it makes no difference
