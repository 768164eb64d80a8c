"""The Open Inference Protocol (KServe v2) over JSON, as far as a network with one input and one output needs it.

A tensor of FP32, flat or nested, whose shape is the network's; anything else is refused with a sentence that says what
was expected.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from network import ServedNetwork
from refusals import Refusal

DATATYPE = "FP32"
BYTES_A_NUMBER, BYTES_BESIDE = 32, 16_384  # of JSON: no reasonable way to write a float32 is longer
VERSION = "1"


@dataclass(frozen=True)
class Infer:
    images: np.ndarray
    id: str | None


def metadata(network: ServedNetwork) -> dict[str, Any]:
    batch = network.fixed_batch or -1
    return {
        "name": network.name,
        "versions": [VERSION],
        "platform": "onnx_onnxruntime",
        "inputs": [{"name": network.input_name, "datatype": DATATYPE, "shape": [batch, *network.shape]}],
        "outputs": [{"name": network.output_name, "datatype": DATATYPE, "shape": [batch, len(network.labels)]}],
    }


def largest_body(network: ServedNetwork, max_rows: int) -> int:
    """Bytes of a request with as many images as are allowed."""
    return BYTES_BESIDE + BYTES_A_NUMBER * max_rows * math.prod(network.shape)


def read(content: bytes, network: ServedNetwork, max_rows: int) -> Infer:
    request = _parsed(content)
    inputs, outputs, id_ = request.get("inputs"), request.get("outputs", []), request.get("id")
    if id_ is not None and not (isinstance(id_, str) and len(id_) <= 256):
        raise Refusal(400, "`id` must be a string of at most 256 characters")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refusal(400, f"`inputs` must be a list of one tensor, `{network.input_name}`")
    if not isinstance(outputs, list) or any(
        not isinstance(one, dict) or one.get("name") != network.output_name for one in outputs
    ):
        raise Refusal(400, f"`outputs` may only ask for `{network.output_name}`")
    return Infer(_tensor(inputs[0], network, max_rows), id_)


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        request = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is not JSON") from error
    if not isinstance(request, dict):
        raise Refusal(400, "the body must be a JSON object with `inputs`")
    return request


def _tensor(given: dict[str, Any], network: ServedNetwork, max_rows: int) -> np.ndarray:
    if given.get("name") != network.input_name:
        raise Refusal(400, f"the input is called `{network.input_name}`")
    if given.get("datatype") != DATATYPE:
        raise Refusal(400, f"`datatype` must be `{DATATYPE}`")
    shape = _shape(given.get("shape"), network, max_rows)
    try:
        values = np.asarray(given.get("data"))
    except (ValueError, OverflowError, RecursionError, TypeError) as error:  # ragged, or nested deeper than arrays go
        raise Refusal(400, "`data` is not a tensor of numbers") from error
    if values.dtype.kind not in "iuf":
        raise Refusal(400, "`data` must hold numbers alone")
    if values.shape not in ((math.prod(shape),), shape):
        raise Refusal(400, f"`data` must be flat, or nested as its shape {list(shape)} says")
    with np.errstate(over="ignore"):
        images = values.astype(np.float32).reshape(shape)
    if not np.isfinite(images).all():
        raise Refusal(400, "`data` holds a number that is not finite in float32")
    return images


def _shape(given: object, network: ServedNetwork, max_rows: int) -> tuple[int, ...]:
    sides = tuple(given) if isinstance(given, list) else ()
    if any(type(side) is not int for side in sides) or sides[1:] != network.shape or not 1 <= sides[0] <= max_rows:
        expected = ", ".join(map(str, network.shape))
        raise Refusal(400, f"`shape` must be [N, {expected}] with N from 1 to {max_rows}")
    return sides


def answer(logits: np.ndarray, network: ServedNetwork, id_: str | None) -> dict[str, Any]:
    tensor = {
        "name": network.output_name,
        "datatype": DATATYPE,
        "shape": list(logits.shape),
        "data": [float(value) for value in logits.ravel()],
    }
    named = {"id": id_} if id_ is not None else {}
    return {"model_name": network.name, "model_version": VERSION, **named, "outputs": [tensor]}
