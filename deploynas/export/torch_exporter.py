"""A network that is not made of our kinds of block as an ONNX file: by torch's own exporter, verified as ours are."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deploynas.export.network_file import Fp32File
from deploynas.export.verification import ImageStream, verify
from deploynas.graph import OPSET


def exported_by_torch(
    model: nn.Module, shape: tuple[int, int, int], images: ImageStream, opset: int = OPSET
) -> Fp32File:
    """With a free batch size; raises unless it computes what torch does."""
    model = model.eval()
    axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
    options: dict[str, Any] = {"input_names": ["input"], "output_names": ["logits"], "dynamic_axes": axes}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False  # the newer exporter needs a package of its own
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of the tracer, about shapes that are constant here
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, (torch.zeros(1, *shape),), str(path), opset_version=opset, **options)
        content = path.read_bytes()
    return Fp32File(content, verify(model, content, images))
