"""Passes measured by several processes at once, one each: the first asks and keeps what was measured, the others serve.

Every process has the same supernet and images, so it does not matter who measures a pass: the result is that of one
process alone, bit for bit where all compute with as many threads. Only the first process reads and writes passes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from deploynas.accuracy.samples import Measure, Scores
from deploynas.training.distribution import Processes


class ProcessTeam:
    """The processes that `torchrun` started, as a `Team`."""

    def __init__(self, processes: Processes, measure: Measure) -> None:
        self.processes, self.measure = processes, measure

    @property
    def size(self) -> int:
        return self.processes.world

    def __call__(self, passes: Sequence[np.ndarray]) -> list[Scores]:
        """In the first process: hand out the passes, and gather how images scored."""
        content = io.BytesIO()
        np.savez(content, *passes)
        self.processes.share_bytes(content.getvalue())
        return self._measured(passes)

    def serve(self) -> None:
        """In the other processes: measure what the first one hands out, until it has no more."""
        while (content := self.processes.share_bytes(None)) is not None:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                self._measured([file[name] for name in file.files])

    def dismiss(self) -> None:
        self.processes.share_bytes(None)

    def _measured(self, passes: Sequence[np.ndarray]) -> list[Scores]:
        own, rank = np.zeros((2, len(passes), self.measure.images), dtype=np.int32), self.processes.rank
        if rank < len(passes):
            scores = self.measure(passes[rank])
            # the bits of the numbers travel as integers: adding zeros to them changes nothing
            own[0, rank], own[1, rank] = scores.right, scores.log_likelihood.astype(np.float32).view(np.int32)
        right, bits = self.processes.gather(own)
        return [Scores(r.astype(bool), b.view(np.float32)) for r, b in zip(right, bits, strict=True)]
