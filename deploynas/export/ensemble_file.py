"""An ensemble as one ONNX file, checked against its members' own files: the same images, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from deploynas.errors import DeployNASError
from deploynas.export.verification import ImageStream, check, open_session
from deploynas.graph.averaging import averaged
from deploynas.graph.network import INPUT

TOLERANCE = 1e-5  # of a probability: both files run the same operators, only the sum may be rounded otherwise


@dataclass(frozen=True)
class EnsembleFile:
    content: bytes
    images: int
    max_difference: float  # of a probability, from the mean of the members' files
    accuracy: float


def ensemble_file(members: Sequence[bytes], images: ImageStream, metadata: Mapping[str, str]) -> EnsembleFile:
    """One graph of all; raises unless it answers with the mean of their class probabilities."""
    content = averaged([onnx.ModelProto.FromString(one) for one in members], metadata).SerializeToString()
    check(content)
    whole, alone = open_session(content), [open_session(one) for one in members]
    difference, right, seen = 0.0, 0, 0
    for batch, labels in images():
        found = softmax(whole.run(None, {INPUT: batch})[0])
        expected = np.mean([softmax(one.run(None, {INPUT: batch})[0]) for one in alone], axis=0)
        difference = float(np.maximum(difference, np.abs(found - expected).max()))  # keeps NaN
        right += int((found.argmax(1) == labels).sum())
        seen += len(labels)
    if not difference <= TOLERANCE:
        raise DeployNASError(
            f"the ensemble's file and its members' mean differ by {difference:.2g} in a probability",
            hint="nothing was written; this is a bug of deploynas or of the runtime",
        )
    return EnsembleFile(content, seen, difference, right / max(1, seen))


def softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
