"""A network of which some parts are in 8 bits and some are not."""

from __future__ import annotations

import onnx
import pytest
from random_networks import random_images, random_weights, rms, run
from test_quantization import ranges_of

from deploynas import graph
from deploynas.graph import Form, OperatorForms
from deploynas.quantization import Quantization
from deploynas.space import Space


@pytest.fixture
def names(tiny: Space) -> list[str]:
    return [name for name, _ in tiny.parts(tiny.heaviest())]


def in_8_bits(model: onnx.ModelProto, names: list[str]) -> set[str]:
    """The parts whose weights are integers."""
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    integers = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    found = {name for name, kind in stored.items() if name.endswith("/weight") and kind in integers}
    return {part for part in names if any(name.startswith(f"{part}/") for name in found)}


def test_with_every_part_in_float_it_is_the_float_graph(tiny: Space, names: list[str]) -> None:
    parts = tiny.parts(tiny.heaviest())
    weights = random_weights(parts)
    for forms in (OperatorForms(), OperatorForms(gate="resize", dense="conv")):
        mixed = Form(None, "int8", in_float=frozenset(names), float_operators=forms)
        assert graph.chain(parts, weights, mixed) == graph.chain(parts, weights, Form(None, operators=forms))


def test_each_part_alone_and_all_but_each(tiny: Space, names: list[str]) -> None:
    parts = tiny.parts(tiny.heaviest())
    weights, x = random_weights(parts), random_images(parts, 8)
    ranges = ranges_of(parts, weights, x)
    float_forms = OperatorForms(gate="resize", dense="conv")

    def mixed(chosen: set[str]) -> onnx.ModelProto:
        form = Form(
            None, "int8", ranges=ranges, quantization=Quantization(weight_bits=7),
            operators=OperatorForms(hard_sigmoid="bias"),
            in_float=frozenset(names) - chosen, float_operators=float_forms,
        )  # fmt: skip
        model = graph.chain(parts, weights, form)
        onnx.checker.check_model(model, full_check=True)
        assert in_8_bits(model, names) == chosen
        return model

    exact = run(graph.chain(parts, weights, Form(None)).SerializeToString(), x)
    whole = run(mixed(set(names)).SerializeToString(), x, fused=False)
    for name in names:
        alone = run(mixed({name}).SerializeToString(), x, fused=False)
        # less is rounded than in all of them; the rest of one part's error is what the others might have cancelled
        assert 0 < rms(alone - exact) < 1.2 * rms(whole - exact), name
        for chosen in ({name}, set(names) - {name}):
            content = mixed(chosen).SerializeToString()
            meant, fused = run(content, x, fused=False), run(content, x)
            assert rms(fused - meant) <= 0.05 * rms(meant), (name, chosen)


def test_only_borders_are_converted(tiny: Space, names: list[str]) -> None:
    """A part in float rounds nothing; what it leaves is rounded once, where a part in 8 bits reads it."""
    parts = tiny.parts(tiny.heaviest())

    def rounded_by(in_float: set[str]) -> set[str]:
        model = graph.chain(parts, form=Form(None, "int8", in_float=frozenset(in_float)))
        return {node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}

    everything = rounded_by(set())
    assert rounded_by({names[0]}) == {name for name in everything if not name.startswith(("input", names[0]))} | {
        f"{names[0]}/conv/act"
    }
    middle = names[3]
    left = {name for name in everything if name.startswith(f"{middle}/")}
    assert everything - rounded_by({middle}) == left - rounded_by({middle}) and len(left & rounded_by({middle})) == 1
