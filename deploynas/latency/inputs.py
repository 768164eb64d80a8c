"""What a model is fed while it is timed: random numbers of the right shapes, unless values are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploynas.errors import InputError

_NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}

Shapes = Mapping[str, tuple[int, ...]]
Values = Mapping[str, Sequence[float]]  # one number fills an input, several are its elements


def make_inputs(signature: Any, batch: int, shapes: Shapes, values: Values) -> dict[str, np.ndarray]:
    """Random inputs, values aside; a free first dimension takes the batch, any other free one must be given."""
    rng = np.random.default_rng(0)
    known = {argument.name for argument in signature}
    unknown = sorted({*shapes, *values} - known)
    if unknown:
        raise InputError(f"the model has no input `{unknown[0]}`", hint=f"its inputs: {', '.join(sorted(known))}")
    inputs = {}
    for argument in signature:
        if argument.type not in _NUMPY_TYPES:
            raise InputError(f"input `{argument.name}` is a {argument.type}, which cannot be made up")
        kind = np.dtype(_NUMPY_TYPES[argument.type])
        if argument.name in values and argument.name not in shapes:
            inputs[argument.name] = _given(argument, values[argument.name], kind, batch)
            continue
        shape = shapes.get(argument.name) or _shape_at_batch(argument, batch)
        if argument.name in values:
            inputs[argument.name] = _filled(argument.name, values[argument.name], shape, kind)
        elif kind.kind == "f":
            inputs[argument.name] = rng.standard_normal(shape).astype(kind)
        else:
            # small whole numbers are valid as pixels, as masks and as indices
            inputs[argument.name] = rng.integers(0, 2, size=shape).astype(kind)
    return inputs


def _given(argument: Any, numbers: Sequence[float], kind: np.dtype, batch: int) -> np.ndarray:
    """An input whose elements are given: a free list of them is as long as they are many."""
    if not argument.shape and len(numbers) == 1:
        return np.asarray(numbers[0], kind)
    if len(argument.shape or []) == 1 and not isinstance(argument.shape[0], int):
        return np.asarray(numbers, kind)
    return _filled(argument.name, numbers, _shape_at_batch(argument, batch), kind)


def _filled(name: str, numbers: Sequence[float], shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    if len(numbers) not in (1, int(np.prod(shape))):
        raise InputError(f"input `{name}` has {int(np.prod(shape))} elements, {len(numbers)} are given")
    return np.ascontiguousarray(
        np.broadcast_to(np.asarray(numbers, kind), shape)
        if len(numbers) == 1
        else np.reshape(np.asarray(numbers, kind), shape)
    )


def _shape_at_batch(argument: Any, batch: int) -> tuple[int, ...]:
    first, *rest = argument.shape or [batch]
    if all(isinstance(size, int) and size > 0 for size in rest):
        if not isinstance(first, int) or first <= 0:
            return (batch, *rest)
        if rest and first != batch and batch != 1:
            raise InputError(
                f"input `{argument.name}` has a fixed batch of {first}, the device measures batches of {batch}",
                hint="export the model with a dynamic batch, or choose a device with its batch",
            )
        return tuple(argument.shape)
    printed = ",".join(str(size) for size in argument.shape)
    example = ",".join(str(size) if isinstance(size, int) and size > 0 else "224" for size in rest)
    raise InputError(
        f"input `{argument.name}` has a dynamic shape ({printed})",
        hint=f"give it, for example `--shape {argument.name}={batch},{example}`",
    )
