"""What single networks of a supernet say about images: class probabilities, asked once and kept.

One-shot: with inherited weights, batch-norm statistics recomputed for the network alone. The files lie with the other
samples of the supernet, in a folder that is named for its weights and validation images.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from deploynas.accuracy.oneshot import class_probabilities
from deploynas.accuracy.samples import DAMAGED
from deploynas.errors import InputError
from deploynas.files import write_bytes
from deploynas.pipeline.supernet import BATCH, TrainedSupernet
from deploynas.space import Architecture
from deploynas.training.data import Subset

if TYPE_CHECKING:
    from torch import Tensor

Images = Literal["validation", "test"]


class NetworkPredictions:
    def __init__(self, supernet: TrainedSupernet) -> None:
        self.supernet = supernet
        self._folder = supernet.samples_folder() / "predictions"

    @property
    def judged_on(self) -> Images:
        """Images that nothing was chosen by, where there are any."""
        return "test" if self.supernet.data.test else "validation"

    def of(self, architecture: Architecture, images: Images = "validation") -> np.ndarray:
        """(images, classes)."""
        row = self.supernet.space.rows([architecture])[0]
        path = self._folder / f"{images}-{zlib.crc32(row.tobytes()):08x}.npz"
        if path.exists():
            try:
                with np.load(path, allow_pickle=False) as file:
                    if np.array_equal(file["row"], row):
                        return file["probabilities"]
            except DAMAGED as error:
                raise InputError(f"{path}: not a complete file of predictions", hint="delete it") from error
        found, _ = class_probabilities(self.supernet.cut_out(architecture), self._stream(images))
        content = io.BytesIO()
        np.savez(content, row=row, probabilities=found)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content.getvalue())
        return found

    def labels(self, images: Images = "validation") -> np.ndarray:
        return self._labels[images]

    @cached_property
    def _labels(self) -> dict[str, np.ndarray]:
        data = self.supernet.data
        subsets = {"validation": data.validation, **({"test": data.test} if data.test else {})}
        return {name: subset.images.labels[subset.rows].numpy() for name, subset in subsets.items()}

    def _stream(self, images: Images) -> Iterator[tuple[Tensor, Tensor]]:
        return self.supernet.batches.evaluation(self._subset(images), BATCH)

    def _subset(self, images: Images) -> Subset:
        data = self.supernet.data
        found = data.test if images == "test" else data.validation
        assert found is not None, "only where there are such images"
        return found
