from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from deploynas import graph
from deploynas.costs import Costs
from deploynas.errors import InputError
from deploynas.space import PRESETS, Space


def run(model: onnx.ModelProto | bytes, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x})[0]


def images(space: Space, count: int) -> np.ndarray:
    shape = (count, space.in_channels, space.height, space.width)
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", PRESETS)
def test_whole_networks_are_valid_and_run(name: str, precision: str, rng: np.random.Generator, capfd) -> None:
    space = Space.load(name)
    model = graph.network(space, space.sample(rng), batch=None, precision=precision)
    onnx.checker.check_model(model, full_check=True)
    output = run(model, images(space, 2))
    assert output.shape == (2, space.classes) and np.isfinite(output).all()
    assert capfd.readouterr() == ("", "")  # the runtime has nothing to warn about


def test_every_block_of_a_space_is_a_valid_graph(tiny: Space) -> None:
    for s, stage in enumerate(tiny.stages):
        for b in range(stage.max_depth):
            for c in range(len(stage.configs)):
                for precision in graph.PRECISIONS:
                    model = graph.block(tiny, s, b, c, precision=precision)
                    onnx.checker.check_model(model, full_check=True)
                    geometry = tiny.block(s, b, c)
                    x = np.ones((1, geometry.in_channels, geometry.height, geometry.width), np.float32)
                    assert run(model, x).shape[1] == geometry.out_channels


def test_a_batch_is_computed_image_by_image(tiny: Space, rng: np.random.Generator) -> None:
    architecture = tiny.sample(rng)
    x = images(tiny, 4)
    together = run(graph.network(tiny, architecture, batch=None), x)
    alone = np.concatenate([run(graph.network(tiny, architecture, batch=1), image[None]) for image in x])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_given_weights_are_used_and_checked(tiny: Space, rng: np.random.Generator) -> None:
    architecture = tiny.heaviest()
    shapes = graph.weight_shapes(tiny, architecture)
    weights = {name: rng.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}
    weights["head/classifier/weight"][:] = 0
    output = run(graph.network(tiny, architecture, weights), images(tiny, 1))
    np.testing.assert_array_equal(output[0], weights["head/classifier/bias"])
    with pytest.raises(InputError, match="must have shape"):
        graph.network(tiny, architecture, {**weights, "stem/conv/bias": np.zeros(3)})
    del weights["stem/conv/bias"]
    with pytest.raises(InputError, match="no `stem/conv/bias`"):
        graph.network(tiny, architecture, weights)


def test_weight_bytes_are_those_of_the_file(imagenet: Space, rng: np.random.Generator) -> None:
    architecture = imagenet.sample(rng)
    shapes = graph.weight_shapes(imagenet, architecture)
    assert Costs.of(imagenet, architecture).size_bytes == 4 * sum(int(np.prod(shape)) for shape in shapes.values())


def test_the_activations_are_what_their_names_say(tiny: Space) -> None:
    """One 1x1 network that passes its input straight into an activation."""
    from deploynas.graph.quantized import QuantizedWriter
    from deploynas.graph.writer import GraphWriter, Tensor

    x = np.linspace(-6, 6, 121, dtype=np.float32).reshape(1, 1, 1, 121)
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
        for writer, tolerance in ((GraphWriter(identity), 1e-5), (QuantizedWriter(identity), 0.1)):
            entering = Tensor("input", 1, 1, 121)
            leaving = writer.conv("conv", entering, 1, activation=activation)
            model = writer.model(entering, writer.finish(leaving, "logits"), 1, 17, {})
            onnx.checker.check_model(model, full_check=True)
            np.testing.assert_allclose(run(model, x), values, atol=tolerance, err_msg=activation)


def test_int8_with_measured_ranges_follows_fp32(tiny: Space, rng: np.random.Generator) -> None:
    architecture = tiny.heaviest()
    model = graph.network(tiny, architecture, batch=None)
    x = images(tiny, 16)
    every = onnx.ModelProto()
    every.CopyFrom(model)
    for node in model.graph.node[:-1]:
        every.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(every.SerializeToString(), providers=["CPUExecutionProvider"])
    values = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"input": x}), strict=True))
    ranges = {name: (float(v.min()), float(v.max())) for name, v in values.items()} | {
        "input": (float(x.min()), float(x.max()))
    }
    quantised = graph.chain(tiny.parts(architecture), form=graph.Form(None, "int8", ranges=ranges))
    fp32, int8 = values["logits"], run(quantised, x)
    assert np.corrcoef(fp32.ravel(), int8.ravel())[0, 1] > 0.99
    with pytest.raises(InputError, match="no range for"):
        graph.chain(tiny.parts(architecture), form=graph.Form(1, "int8", ranges={"input": (-1.0, 1.0)}))


def test_node_names_carry_stage_and_block(imagenet: Space) -> None:
    names = {node.name for node in graph.network(imagenet, imagenet.heaviest()).graph.node}
    assert {"stem/conv", "first/depthwise", "stage3/block2/depthwise", "stage5/block4/se/scale"} <= names


def test_older_runtimes_can_read_the_file(tiny: Space) -> None:
    model = graph.network(tiny, tiny.smallest())
    assert (model.opset_import[0].version, model.ir_version) == (17, 8)
    newer = graph.chain(tiny.parts(tiny.smallest()), form=graph.Form(opset=21))
    onnx.checker.check_model(newer, full_check=True)
    assert newer.ir_version == 10


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"opset": 9}, {"precision": "int4"}])
def test_impossible_requests_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        graph.Form(**wrong)


@pytest.mark.parametrize("precision", graph.PRECISIONS)
def test_bytes_with_random_weights_are_the_same_model(tiny: Space, precision: str) -> None:
    architecture = tiny.heaviest()
    content = graph.random_bytes(tiny.parts(architecture), graph.Form(precision=precision))
    onnx.checker.check_model(content, full_check=True)
    parsed, message = onnx.ModelProto.FromString(content), graph.network(tiny, architecture, precision=precision)
    assert parsed.graph == message.graph
    np.testing.assert_array_equal(run(content, images(tiny, 1)), run(message, images(tiny, 1)))
