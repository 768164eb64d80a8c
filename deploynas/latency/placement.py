"""Which provider runs which node of a loaded model. The list of a session's providers says nothing about that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploynas.providers import CPU

RECORD_PLACEMENT = "session.record_ep_graph_assignment_info"  # of sessions; ONNX Runtime 1.24 and later
SHAPE_OPERATORS = ("Shape", "Size")  # whose results are shapes, whatever inference knows


@dataclass(frozen=True)
class PlacedNode:
    name: str
    operator: str
    provider: str


def placement_is_told() -> bool:
    """Whether this runtime can be asked."""
    import onnxruntime

    return callable(getattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info", None))


def placed_nodes(session: Any) -> list[PlacedNode]:
    """Every node of the graph, after basic optimisation, of a session that was opened with `RECORD_PLACEMENT`."""
    return [
        PlacedNode(node.name, node.op_type, part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


def placement_counts(session: Any) -> dict[str, int]:
    """How many nodes each provider runs; empty where it was not recorded."""
    if not placement_is_told():
        return {}
    try:
        session.get_session_options().get_session_config_entry(RECORD_PLACEMENT)
    except RuntimeError:  # how the runtime says that it was not asked for
        return {}
    return dict(Counter(node.provider for node in placed_nodes(session)))


def nodes_left_to_cpu(session: Any, model: Path, allow_shapes: bool) -> list[PlacedNode]:
    """Nodes that the CPU runs in place of the provider; without those that compute shapes, if these are allowed.

    The runtime places computations of shapes on the CPU on purpose: they are a few integers that it needs there.
    A runtime that cannot be asked has refused such models when it loaded them.
    """
    if not placement_is_told():
        return []
    left = [node for node in placed_nodes(session) if node.provider == CPU]
    if not left or not allow_shapes:
        return left
    shapes = shape_nodes(model)
    return [node for node in left if not shapes.get(node.name, node.operator in SHAPE_OPERATORS)]


def shape_nodes(model: Path) -> Mapping[str, bool]:
    """Of every named node, whether all it makes are lists of integers or single ones."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(onnx.load(str(model), load_external_data=False))
    integers = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    small = {
        value.name
        for value in inferred.graph.value_info
        if value.type.tensor_type.elem_type in integers
        and value.type.tensor_type.HasField("shape")
        and len(value.type.tensor_type.shape.dim) <= 1
    }
    return {
        node.name: node.op_type in SHAPE_OPERATORS or all(name in small for name in node.output)
        for node in inferred.graph.node
        if node.name
    }
