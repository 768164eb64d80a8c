"""Several networks as one graph that answers with the mean of their class probabilities.

Its output is the logarithm of that mean, under the name and in the place of a network's logits: softmax of it is the
mean itself, so whatever serves one network serves the ensemble. The runtime computes the members one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deploynas.errors import InputError
from deploynas.graph.network import INPUT, OUTPUT

LEAST = 1e-30  # of a probability: its logarithm has to be a number


def averaged(members: Sequence[onnx.ModelProto], metadata: Mapping[str, str]) -> onnx.ModelProto:
    """Members have one input and one output of the same shapes; every name of theirs gets `memberN/` before it."""
    first = members[0]
    for other in members[1:]:
        if list(other.graph.input) != list(first.graph.input) or list(other.opset_import) != list(first.opset_import):
            raise InputError("members of an ensemble take the same images, in graphs of the same opset")
    nodes, weights, shapes, means = list[onnx.NodeProto](), list[onnx.TensorProto](), list[onnx.ValueInfoProto](), []
    for number, member in enumerate(members, start=1):
        own = onnx.ModelProto.FromString(member.SerializeToString())
        _prefix(own.graph, f"member{number}/")
        nodes += own.graph.node
        weights += own.graph.initializer
        shapes += own.graph.value_info
        means.append(f"member{number}/probabilities")
        nodes.append(helper.make_node("Softmax", [f"member{number}/{OUTPUT}"], [means[-1]], name=means[-1], axis=1))
    nodes += [
        helper.make_node("Mean", means, ["mean/probabilities"], name="mean/probabilities"),
        helper.make_node("Clip", ["mean/probabilities", "mean/least"], ["mean/positive"], name="mean/positive"),
        helper.make_node("Log", ["mean/positive"], [OUTPUT], name=OUTPUT),
    ]
    weights.append(numpy_helper.from_array(np.asarray(LEAST, np.float32), "mean/least"))
    graph = helper.make_graph(
        nodes, "deploynas", list(first.graph.input), list(first.graph.output), weights, value_info=shapes
    )
    model = helper.make_model(
        graph, opset_imports=first.opset_import, ir_version=first.ir_version, producer_name="deploynas"
    )
    helper.set_model_props(model, dict(metadata))
    return model


def _prefix(graph: onnx.GraphProto, prefix: str) -> None:
    """All names but that of the input, which members share; an empty name is an input left out."""

    def named(name: str) -> str:
        return name if name in ("", INPUT) else f"{prefix}{name}"

    for node in graph.node:
        node.name = f"{prefix}{node.name}"
        node.input[:] = [named(name) for name in node.input]
        node.output[:] = [named(name) for name in node.output]
    for value in [*graph.initializer, *graph.value_info]:
        value.name = named(value.name)
