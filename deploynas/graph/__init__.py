"""ONNX graphs of blocks and of whole networks, from the space alone or from given weights. No torch.

The graph that is profiled is the graph that is shipped: batch norm folded, node names that carry stage and
block (`stage3/block2/depthwise`), and operators in the form the runtime fuses best.
"""

from __future__ import annotations

from deploynas.graph.float16 import LARGEST_FLOAT16
from deploynas.graph.network import (
    INPUT,
    OUTPUT,
    PRECISIONS,
    Form,
    block,
    chain,
    chain_shapes,
    network,
    network_metadata,
    nodes,
    random_bytes,
    weight_shapes,
)
from deploynas.graph.operator_forms import DEFAULT_FORMS, OperatorForms
from deploynas.graph.writer import OPSET

__all__ = [
    "DEFAULT_FORMS",
    "INPUT",
    "LARGEST_FLOAT16",
    "OPSET",
    "OUTPUT",
    "PRECISIONS",
    "Form",
    "OperatorForms",
    "block",
    "chain",
    "chain_shapes",
    "network",
    "network_metadata",
    "nodes",
    "random_bytes",
    "weight_shapes",
]
