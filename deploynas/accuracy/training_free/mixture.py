"""An untrained supernet whose blocks are weighted sums of all their configurations: what NASI asks about its choices.

With one-hot weights it computes what the network of these choices computes; unlike that network it has a derivative by
the weight of every option, those that are not taken included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.accuracy.training_free.initialisation import fixed_statistics, lecun
from deploynas.accuracy.training_free.multi_path import BatchSource
from deploynas.accuracy.training_free.score import ScoringBatch
from deploynas.errors import InputError
from deploynas.space import Space
from deploynas.space.structure import of_stages
from deploynas.supernet.paths import as_paths
from deploynas.supernet.stage_network import StageSupernet

STEP = 1e-5  # how far the supernet's weights move, as a length


class MixtureOracle:
    """|mean gradient of the loss|^2 of networks of a space with shared random weights, and its derivatives."""

    def __init__(self, space: Space, source: BatchSource, seed: int = 0) -> None:
        if space.sizes:
            raise InputError(
                f"space `{space.name}` leaves the input size open, which no weights of choices can mix",
                hint="copy its YAML file and give `input` one size",
            )
        self.space, self.source = space, source
        self.supernet = StageSupernet(of_stages(space))
        lecun(self.supernet, seed)
        batch = source(0)
        rows = space.decisions.draw(len(batch), np.random.default_rng((seed, 4)))
        fixed_statistics(self.supernet, batch.images, as_paths(rows)).double()  # differences are taken below

    def value(self, row: np.ndarray, number: int) -> float:
        (architecture,) = self.space.architectures(row[None])
        batch = self._batch(number)
        return self._squared(self._gradient(self.supernet(batch.images, architecture), batch))

    def pull(self, row: np.ndarray, number: int) -> tuple[float, np.ndarray]:
        decisions = self.space.decisions
        weights = torch.zeros(len(decisions), dtype=torch.float64)
        weights[decisions.starts[:-1] + row] = 1.0
        return self.at(weights, number)

    def at(self, weights: Tensor, number: int) -> tuple[float, np.ndarray]:
        """At any weights of the options.

        With v the gradient g by the supernet's weights, held fixed: d|g|^2/dh = 2 v'(dg/dh), and since derivatives may
        be taken in either order, that is twice how the gradient by h changes as the supernet's weights move along v. So
        two gradients and a difference do, where a second derivative of every layer would be needed otherwise.
        """
        batch = self._batch(number)
        along = self._gradient(mixed(self.supernet, batch.images, weights), batch)
        value = self._squared(along)
        if value == 0:
            return 0.0, np.zeros(len(weights))
        step = STEP / value**0.5
        ahead, back = (self._by_options(weights, along, sign * step, batch) for sign in (1, -1))
        return value, ((ahead - back) / step).numpy()

    def _batch(self, number: int) -> ScoringBatch:
        batch = self.source(number)
        return ScoringBatch(batch.images.double(), batch.labels)

    def _gradient(self, logits: Tensor, batch: ScoringBatch) -> list[Tensor | None]:
        loss = nn.functional.cross_entropy(logits, batch.labels)
        return list(torch.autograd.grad(loss, list(self.supernet.parameters()), allow_unused=True))

    def _squared(self, gradient: list[Tensor | None]) -> float:
        return sum(float((own**2).sum()) for own in gradient if own is not None)

    def _by_options(self, weights: Tensor, along: list[Tensor | None], step: float, batch: ScoringBatch) -> Tensor:
        """The gradient of the loss by the options' weights, with the supernet's weights moved."""
        options = weights.detach().clone().requires_grad_()
        with _moved(list(self.supernet.parameters()), along, step):
            logits = mixed(self.supernet, batch.images, options)
            loss = nn.functional.cross_entropy(logits, batch.labels)
            (found,) = torch.autograd.grad(loss, options)
        return found


@contextmanager
def _moved(weights: list[nn.Parameter], along: list[Tensor | None], step: float) -> Iterator[None]:
    kept = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight, own in zip(weights, along, strict=True):
            if own is not None:
                weight.add_(own, alpha=step)
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, own in zip(weights, kept, strict=True):
                weight.copy_(own)


def mixed(supernet: StageSupernet, images: Tensor, weights: Tensor) -> Tensor:
    """Logits, every block the sum of its configurations by the weights of a vector of decisions, every stage that of
    its depths.

    What has no weight adds nothing, so no derivative goes through it; its own weight's derivative needs what it would
    have added, and no more.
    """
    stages, decisions = of_stages(supernet.space).stages, supernet.space.decisions
    given = [weight != 0 for weight in weights.tolist()]
    x = supernet.enter(images)
    for s, stage in enumerate(supernet.stages):
        ends = []
        for b, block in enumerate(stage):
            where = decisions.slices[decisions.column(s, b)]
            x = _mixture(weights[where], [partial(block, x, c) for c in range(where.stop - where.start)], given[where])
            if b + 1 in stages[s].depths:
                ends.append(x)
        x = _mixture(weights[decisions.slices[s]], [partial(_same, end) for end in ends], given[decisions.slices[s]])
    return supernet.leave(x)


def _mixture(weights: Tensor, options: Sequence[Callable[[], Tensor]], given: Sequence[bool]) -> Tensor:
    made = []
    for option, counts in zip(options, given, strict=True):
        with torch.set_grad_enabled(counts and torch.is_grad_enabled()):
            made.append(option() if counts else option().detach())
    return torch.stack([weight * own for weight, own in zip(weights, made, strict=True)]).sum(0)


def _same(x: Tensor) -> Tensor:
    return x
