"""NASI: choices weighed by the gradient of an untrained network's own gradient (Shu et al. 2022, algorithm 6.1).

Maximise, over the weights alpha of all choices, the mean of R = Th - mu max(0, Th - nu) over networks that are drawn
from them, Th = |mean gradient of the loss|^2. The network of a step is the argmax of alpha + Gumbel noise, column by
column; its gradient is that of the softmax (straight through). Everything is taken at alpha = 0, so that
    alpha* = (1/T) sum_t G_t / max_{s <= t} |G_s|                                                    (6.13)
needs no iteration. nu is the mean of Th over random networks, before (`fixed`) or as they are drawn (`adaptive`).

The thesis takes the argmax of alpha*. Here alpha* is a score that separates by stage, so the exact search finds its
best network within any limits; without limits that is the argmax. Nothing here needs torch: an oracle knows the
network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Decisions
from deploynas.space.softmax import through_softmax

Nu = Literal["fixed", "adaptive"]


class ChoiceOracle(Protocol):
    """Knows an untrained network by its choices."""

    def value(self, row: np.ndarray, number: int) -> float:
        """Th of the network of a row, on the batch of a number."""
        ...

    def pull(self, row: np.ndarray, number: int) -> tuple[float, np.ndarray]:
        """Th, and its derivative by the weight of every option, as a vector."""
        ...


@dataclass(frozen=True)
class NasiSettings:
    steps: int = 50  # T
    mu: float = 1.0  # 2 where networks are rather large
    nu: Nu = "fixed"
    networks: int = 50  # random ones that nu starts from
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.networks < 1:
            raise InputError(f"NASI takes at least one step and one network, got {self.steps} and {self.networks}")
        if self.nu not in ("fixed", "adaptive"):
            raise InputError(f"no rule `{self.nu}` for nu", hint="fixed or adaptive")


@dataclass(frozen=True)
class Weighed:
    """The weights of all options, and what was seen on the way."""

    alpha: np.ndarray
    nu: float  # the last
    values: tuple[float, ...]  # Th of the networks that were drawn


def weigh_choices(
    decisions: Decisions, oracle: ChoiceOracle, settings: NasiSettings, on_progress: OnProgress = silent
) -> Weighed:
    rng = np.random.default_rng((settings.seed, 3))
    started = np.array([oracle.value(row, i) for i, row in enumerate(decisions.draw(settings.networks, rng))])
    # "a relatively large" start of the running mean: the largest of the same networks
    first = float(started.mean() if settings.nu == "fixed" else started.max())
    nu, largest, values = first, 0.0, list[float]()
    total = np.zeros(len(decisions))
    for step in range(settings.steps):
        if settings.nu == "adaptive":
            nu = (first + sum(values)) / (step + 1)  # (6.15)
        noise = rng.gumbel(size=len(decisions)) / settings.temperature
        row = np.array([int(np.argmax(noise[where])) for where in decisions.slices])
        value, by_option = oracle.pull(row, settings.networks + step)
        # straight through: the network is that of the argmax, the derivative that of the softmax
        gradient = through_softmax(decisions, noise, by_option) * (1 - settings.mu * (value > nu))
        largest = max(largest, float(np.linalg.norm(gradient)))
        total += gradient / largest if largest > 0 else 0.0
        values.append(value)
        on_progress((step + 1) / settings.steps, f"step {step + 1} of {settings.steps}")
    return Weighed(total / settings.steps, nu, tuple(values))
