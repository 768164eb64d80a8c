"""Is the file the network? Every export is checked three ways, and a failure is fatal.

The ONNX checker with shape inference; logits of torch against those of ONNX Runtime at several batch sizes; and the
top-1 class of every validation image. Two classes that torch itself cannot tell apart beyond rounding (their logits
closer than twice the tolerance) may swap: such ties are counted and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from deploynas.errors import DeployNASError

# batches of (normalised images, labels), the same every time it is called
ImageStream = Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]

BATCHES = (1, 3, 8)
RELATIVE_TOLERANCE = 1e-4  # of the largest logit; rounding alone stays below a tenth of it


@dataclass(frozen=True)
class Verification:
    """What was compared, and how far apart it was."""

    batches: tuple[int, ...]
    tolerance: float  # of logits, absolute
    max_difference: float
    images: int
    torch_accuracy: float
    onnx_accuracy: float
    correct: np.ndarray  # which images the file classifies correctly
    ties: int  # images whose top classes differ, and which torch cannot tell apart beyond the tolerance


@dataclass(frozen=True)
class Judged:
    """What a network makes of images, and what they are."""

    logits: np.ndarray
    labels: np.ndarray

    def first(self, count: int) -> Judged:
        return Judged(self.logits[:count], self.labels[:count])

    @property
    def predicted(self) -> np.ndarray:
        return self.logits.argmax(axis=1)

    @property
    def correct(self) -> np.ndarray:
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())


def verify(model: nn.Module, content: bytes, images: ImageStream) -> Verification:
    """Raise unless the ONNX file computes what the torch model does."""
    check(content)
    session = open_session(content)
    tolerance, difference = _compare_batches(model, session, images)
    ours, theirs = judged_by(lambda x: session.run(None, {"input": x})[0], images), judged_by(_torch(model), images)
    differ = ours.predicted != theirs.predicted
    top_two = np.sort(theirs.logits, axis=1)[:, -2:]
    real = differ & (top_two[:, 1] - top_two[:, 0] > 2 * tolerance)
    if real.any():
        raise DeployNASError(
            f"the exported network classifies {int(real.sum())} of {len(differ)} validation images differently "
            f"(accuracy {ours.accuracy:.4f}, torch {theirs.accuracy:.4f})",
            hint="nothing was written; this is a bug of deploynas or of the runtime",
        )
    return Verification(
        BATCHES,
        tolerance,
        difference,
        len(differ),
        theirs.accuracy,
        ours.accuracy,
        ours.correct,
        int(differ.sum()),
    )


def check(content: bytes) -> None:
    """The full checker, shapes and types inferred and compared."""
    try:
        onnx.checker.check_model(content, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise DeployNASError(f"the exported graph is not valid ONNX: {error}", hint="nothing was written") from error


def open_session(content: bytes, as_written: bool = False) -> Any:
    """On the CPU. `as_written`: operators are not fused, so that 8 bits are computed in float between conversions; CPUs
    without integer dot products (VNNI) saturate inside fused operators, and so compute something else.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def judged(content: bytes, images: ImageStream, as_written: bool = False, most: int | None = None) -> Judged:
    """What a file makes of images on the CPU, or of the first of them."""
    session = open_session(content, as_written)
    return judged_by(lambda x: session.run(None, {"input": x})[0], images if most is None else at_most(images, most))


def _compare_batches(model: nn.Module, session: Any, images: ImageStream) -> tuple[float, float]:
    pool = _first(images, max(BATCHES))
    forward = _torch(model)
    scale = difference = 0.0
    for batch in BATCHES:
        x = np.resize(pool, (batch, *pool.shape[1:]))  # goes round again if there are fewer
        expected, found = forward(x), session.run(None, {"input": x})[0]
        scale = max(scale, float(np.abs(expected).max()))
        difference = float(np.maximum(difference, np.abs(expected - found).max()))  # keeps NaN
    tolerance = RELATIVE_TOLERANCE * max(1.0, scale)
    if not difference <= tolerance:  # also catches NaN
        raise DeployNASError(
            f"torch and ONNX Runtime differ by {difference:.2g} in a logit, more than {tolerance:.2g}",
            hint="nothing was written; this is a bug of deploynas or of the runtime",
        )
    return tolerance, difference


def _first(images: ImageStream, count: int) -> np.ndarray:
    """The first images of a stream; fewer if it has fewer."""
    taken: list[np.ndarray] = []
    for x, _ in images():
        taken.append(x[:count])
        count -= len(taken[-1])
        if count <= 0:
            break
    if not taken:
        raise DeployNASError("there are no validation images to verify the export with")
    return np.concatenate(taken)


def _torch(model: nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    model = model.eval()
    device = next(model.parameters()).device

    def forward(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(x).to(device)).float().cpu().numpy()

    return forward


def at_most(images: ImageStream, count: int) -> ImageStream:
    def first() -> Iterable[tuple[np.ndarray, np.ndarray]]:
        left = count
        for x, y in images():
            yield x[:left], y[:left]
            left -= len(y)
            if left <= 0:
                return

    return first


def judged_by(forward: Callable[[np.ndarray], np.ndarray], images: ImageStream) -> Judged:
    """What whoever makes logits of images makes of these."""
    logits, labels = [], []
    for x, y in images():
        logits.append(forward(np.ascontiguousarray(x)))
        labels.append(y)
    return Judged(np.concatenate(logits), np.concatenate(labels))
