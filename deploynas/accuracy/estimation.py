"""From validation passes to a validated estimator: which passes each method takes, and when they are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.contributions import Contributions, grouped, per_decision, pooled
from deploynas.accuracy.curve import measure_curve
from deploynas.accuracy.decisions import ESTIMANDS, Decisions, Estimand
from deploynas.accuracy.learned import MIN_NETWORKS, fit_bilinear, fit_quadratic
from deploynas.accuracy.mlp import MLPEstimator, fit_mlp
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.accuracy.samples import SCORES, Pass, Samples, Score, means
from deploynas.accuracy.shrinkage import shrunk
from deploynas.accuracy.validation import validate
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent

Method = Literal["contributions", "separable", "bilinear", "quadratic", "mlp"]
Sampling = Literal["pooled", "single-path", "per-decision"]
METHODS: tuple[Method, ...] = ("contributions", "separable", "bilinear", "quadratic", "mlp")
SAMPLINGS: tuple[Sampling, ...] = ("pooled", "single-path", "per-decision")
AnyEstimator = BilinearEstimator | QuadraticEstimator | MLPEstimator

POOLED_PASSES, SINGLE_PATH_PASSES, NETWORKS = 32, 128, 500  # when nothing is asked for
MAX_PASSES = 512  # towards a standard error that may be out of reach
REFIT_GROWTH = 1.25  # passes between two looks at the standard error


@dataclass(frozen=True)
class Plan:
    """What to estimate and how. A pass is one visit of all validation images."""

    method: Method = "contributions"
    sampling: Sampling = "pooled"
    estimand: Estimand = ESTIMANDS[0]
    score: Score = SCORES[0]
    shrink: bool = True  # contributions: less noise, at the price of a bias towards what the others say
    passes: int | None = None  # at most; None: as many as the method usually takes
    target_se: float | None = None  # stop when no contribution has a larger standard error (of accuracy, 0..1)
    unseen: int = 200  # networks to validate on; 0: do not

    def __post_init__(self) -> None:
        if self.passes is not None and self.passes < 1:
            raise InputError(f"passes must be at least 1, got {self.passes}")
        if self.target_se is not None and not 0 < self.target_se < 1:
            raise InputError(f"a target standard error is a fraction of accuracy, 0..1, got {self.target_se}")
        if self.target_se is not None and self.method != "contributions":
            raise InputError("only contributions are measured until a standard error is reached")
        if self.unseen != 0 and self.unseen < MIN_NETWORKS:
            raise InputError(f"validation takes at least {MIN_NETWORKS} networks, or 0, got {self.unseen}")


@dataclass(frozen=True)
class Estimate:
    estimator: AnyEstimator
    passes: int
    largest_se: float | None  # of a contribution

    def reached(self, target_se: float) -> bool:
        return self.largest_se is not None and self.largest_se <= target_se


def estimate(
    samples: Samples, plan: Plan, provenance: dict[str, Any] | None = None, on_progress: OnProgress = silent
) -> Estimate:
    """Take the passes that the plan needs, fit, and validate on networks that had no part in it."""
    share = 0.6 if plan.unseen else 1.0

    def fitting(fraction: float, what: str) -> None:
        on_progress(share * fraction, what)

    if plan.method == "contributions":
        found, passes = measure_contributions(samples, plan, fitting)
        largest: float | None = found.largest_error
        estimator: AnyEstimator = (shrunk(found, plan.estimand) if plan.shrink else found).estimator()
    else:
        passes, largest = plan.passes or NETWORKS, None
        estimator = learn(samples.decisions, _take(samples, "network", range(passes), fitting), plan)
    about = {
        **(provenance or {}),
        "method": plan.method,
        "score": plan.score,
        "passes": passes,
        "images": samples.measure.images,
        "seed": samples.seed,
    }
    if plan.method == "contributions":
        about |= {"sampling": plan.sampling, "estimand": plan.estimand, "shrunk": plan.shrink, "largest_se": largest}
    estimator = replace(estimator, provenance=about)
    if plan.unseen:
        unseen = _take(samples, "unseen", range(plan.unseen), lambda f, what: on_progress(share + 0.35 * f, what))
        curve = measure_curve(estimator, samples, unseen, lambda f, what: on_progress(share + 0.35 + 0.05 * f, what))
        estimator = replace(estimator, validation=validate(estimator, unseen).model_copy(update={"curve": curve}))
    return Estimate(estimator, passes, largest)


def measure_contributions(samples: Samples, plan: Plan, on_progress: OnProgress = silent) -> tuple[Contributions, int]:
    """The contributions, and how many passes they took."""
    kind, step, usual = _passes_of(plan, samples.decisions)
    most = plan.passes or (max(usual, MAX_PASSES) if plan.target_se else usual)
    if most < step:
        raise InputError(
            f"`per-decision` takes {step} passes, one a decision and one free; {most} were allowed",
            hint="`--sampling pooled` reads all decisions off every pass",
        )
    most = most // step * step
    count, look, passes = 0, step if plan.target_se else most, []
    while True:
        passes += _take(samples, kind, range(count, look), on_progress, most)
        count = look
        found = contributions_of(samples, plan, passes)
        if count == most or (plan.target_se is not None and found.largest_error <= plan.target_se):
            on_progress(1.0, f"{count} passes")
            return found, count
        look = min(most, max(count + step, int(count * REFIT_GROWTH) // step * step))


def contributions_of(samples: Samples, plan: Plan, passes: Sequence[Pass]) -> Contributions:
    """Fit passes that the plan's sampling drew: unbiased, before any shrinking."""
    fits: dict[Sampling, Callable[[Score], Contributions]] = {
        "pooled": lambda score: pooled(samples.decisions, passes, score, plan.estimand),
        "single-path": lambda score: grouped(samples.decisions, passes, score, plan.estimand, samples.batch),
        "per-decision": lambda score: per_decision(samples.decisions, passes, score, plan.estimand),
    }
    fit = fits[plan.sampling]
    accuracy = fit("accuracy")
    return accuracy if plan.score == "accuracy" else fit(plan.score).in_accuracy(accuracy)


def learn(decisions: Decisions, networks: Sequence[Pass], plan: Plan) -> AnyEstimator:
    """Fit the plan's learned form to networks that were measured."""
    architectures = [decisions.architecture_of(p.paths[0]) for p in networks]
    y = means(networks, "accuracy")
    if plan.score == "log-likelihood":  # on the scale of accuracy
        likelihood = means(networks, plan.score)
        y = np.polyval(np.polyfit(likelihood, y, 1), likelihood)
    space = decisions.space
    if plan.method == "separable":
        return fit_bilinear(space, architectures, y)
    if plan.method == "bilinear":
        return fit_bilinear(space, architectures, y, couple_stages=True)
    if plan.method == "quadratic":
        return fit_quadratic(space, architectures, y)
    return fit_mlp(space, architectures, y)


def _passes_of(plan: Plan, decisions: Decisions) -> tuple[str, int, int]:
    """Kind of pass, how many make sense at once, and how many are usual."""
    if plan.sampling == "per-decision":
        length = 1 + len(decisions)
        return f"decision-{plan.estimand}", length, length
    if plan.sampling == "single-path":
        return "batch", 1, SINGLE_PATH_PASSES
    return "image", 1, POOLED_PASSES


def _take(samples: Samples, kind: str, numbers: range, on_progress: OnProgress, most: int | None = None) -> list[Pass]:
    taken = []
    for number in numbers:
        taken.append(samples.get(kind, number))
        on_progress((number + 1) / (most or len(numbers)), f"{kind} pass {number + 1}")
    return taken
