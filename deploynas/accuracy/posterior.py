"""Which choices a trained supernet believes in: a distribution of networks, fitted to its validation images.

Every decision has probabilities of its own, p = softmax(alpha) (5.6, 5.7). They maximise the evidence lower bound (5.4)

    E_{A ~ p}[log p(D|A)] - KL(p || uniform),     KL = sum over decisions of log K + sum_k p_k log p_k,

log p(D|A) being the log-likelihood of all validation images. A step draws one network by Gumbel noise and takes the
derivative of its log-likelihood by the weights of the options straight through the draw. Two ways to do that:

`softmax`  through softmax(alpha): right on average wherever log p(D|A) is linear in every single decision.
`gumbel`   through softmax(alpha + noise), as the thesis has it: it is biased even where decisions add up, by how much
           docs/ensembles.md derives.

The distribution is that of Adam's last step: a bound of thousands of images pulls hard, so it is as sharp as the steps
let it become, and not the end of the road. Nothing here needs torch: an oracle knows the supernet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Decisions
from deploynas.space.softmax import log_softmax, through_softmax

Through = Literal["softmax", "gumbel"]


class LikelihoodOracle(Protocol):
    """Knows the networks of a supernet by their choices."""

    steps_per_epoch: int

    def pull(self, row: np.ndarray, number: int) -> tuple[float, np.ndarray]:
        """log p(D|A) of the network of a row, from the images of a number; its derivative by every option's weight."""
        ...


@dataclass(frozen=True)
class PosteriorSettings:
    epochs: int = 20
    rate: float = 0.01  # of Adam
    through: Through = "softmax"
    temperature: float = 1.0  # of `gumbel`
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"a posterior takes at least one epoch, got {self.epochs}")
        if self.through not in ("softmax", "gumbel"):
            raise InputError(f"no derivative through `{self.through}`", hint="softmax or gumbel")


@dataclass(frozen=True)
class Posterior:
    """`log_p`: of every option of every decision, as a vector of decisions."""

    log_p: np.ndarray
    steps: int = 0  # 0: nothing was fitted, all are equal
    values: tuple[float, ...] = ()  # log p(D|A) of the networks that were drawn

    @property
    def p(self) -> np.ndarray:
        return np.exp(self.log_p)

    @classmethod
    def uniform(cls, decisions: Decisions) -> Posterior:
        return cls(np.concatenate([np.full(size, -np.log(size)) for size in decisions.sizes]))

    def evidence(self, decisions: Decisions) -> np.ndarray:
        """log of posterior by prior, of every option: what the images said for it.

        Added up over the decisions of a network that count, it is the log-likelihood of the network, up to a constant
        and as far as decisions are independent. The probability itself ranks nothing: a stage of more blocks divides
        its own among more networks.
        """
        return self.log_p + np.log(np.repeat(decisions.sizes, decisions.sizes))

    def log_evidence(self, decisions: Decisions, rows: np.ndarray) -> np.ndarray:
        """Of networks."""
        return decisions.active(rows) @ self.evidence(decisions)

    def sharpness(self, decisions: Decisions) -> float:
        """The mean, over decisions, of the probability of the likeliest option."""
        return float(np.mean([self.p[where].max() for where in decisions.slices]))


def fit_posterior(
    decisions: Decisions, oracle: LikelihoodOracle, settings: PosteriorSettings, on_progress: OnProgress = silent
) -> Posterior:
    rng = np.random.default_rng((settings.seed, 11))
    alpha, adam, values = np.zeros(len(decisions)), _Adam(len(decisions), settings.rate), list[float]()
    steps = settings.epochs * oracle.steps_per_epoch
    for step in range(steps):
        noisy = alpha + rng.gumbel(size=len(decisions))
        row = np.array([int(np.argmax(noisy[where])) for where in decisions.slices])
        value, by_option = oracle.pull(row, step)
        if settings.through == "softmax":
            gradient = through_softmax(decisions, alpha, by_option)
        else:
            gradient = through_softmax(decisions, noisy / settings.temperature, by_option) / settings.temperature
        alpha = alpha + adam.step(gradient - kl_to_uniform(decisions, alpha)[1])
        values.append(value)
        on_progress((step + 1) / steps, f"posterior: step {step + 1} of {steps}")
    return Posterior(log_softmax(decisions, alpha), steps, tuple(values))


def kl_to_uniform(decisions: Decisions, alpha: np.ndarray) -> tuple[float, np.ndarray]:
    """KL(softmax(alpha) || uniform), added up over decisions, and its derivative by alpha."""
    log_p = log_softmax(decisions, alpha)
    p, total, gradient = np.exp(log_p), 0.0, np.zeros(len(decisions))
    for where in decisions.slices:
        negative_entropy = float(p[where] @ log_p[where])
        total += float(np.log(where.stop - where.start)) + negative_entropy
        gradient[where] = p[where] * (log_p[where] - negative_entropy)
    return total, gradient


class _Adam:
    """Upwards."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.first, self.second = np.zeros(size), np.zeros(size)

    def step(self, gradient: np.ndarray) -> np.ndarray:
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean, square = self.first / (1 - 0.9**self.count), self.second / (1 - 0.999**self.count)
        return self.rate * mean / (np.sqrt(square) + 1e-8)
