"""From validation passes to a validated estimator: which passes each method takes, and when they are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from deploynas.accuracy.compared import compared, compared_networks
from deploynas.accuracy.contributions import Contributions, grouped, per_decision, pooled
from deploynas.accuracy.curve import measure_curve
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.fourier_fit import FourierSettings
from deploynas.accuracy.fourier_rounds import measure_in_rounds
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed_samples
from deploynas.accuracy.learned import MIN_NETWORKS
from deploynas.accuracy.learned_forms import fit_learned
from deploynas.accuracy.registry import (
    ESTIMANDS,
    ESTIMATION_METHODS,
    SAMPLINGS,
    SCORES,
    Estimand,
    Method,
    Sampling,
    Score,
    require_known,
)
from deploynas.accuracy.samples import Pass, Samples, means
from deploynas.accuracy.shrinkage import shrunk
from deploynas.accuracy.validation import validate
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Decisions, Space

POOLED_PASSES, SINGLE_PATH_PASSES, NETWORKS = 32, 128, 500  # when nothing is asked for
MAX_PASSES = 512  # towards a standard error that may be out of reach
REFIT_GROWTH = 1.25  # passes between two looks at the standard error


@dataclass(frozen=True)
class EstimationSettings:
    """What to estimate and how. A pass is one visit of all validation images."""

    method: Method = ESTIMATION_METHODS[0]
    sampling: Sampling = SAMPLINGS[0]
    estimand: Estimand = ESTIMANDS[0]
    score: Score = SCORES[0]
    shrink: bool = True  # contributions: less noise, at the price of a bias towards what the others say
    passes: int | None = None  # at most; None: as many as the method usually takes
    target_se: float | None = None  # stop when no contribution has a larger standard error (of accuracy, 0..1)
    unseen: int = 200  # networks to validate on; 0: do not
    fourier: FourierSettings | None = None  # of the method of this name; None: its defaults
    fourier_rounds: int | None = None  # of `fourier`: narrow the space down so often; None: networks of the whole space

    def __post_init__(self) -> None:
        require_known("method", self.method, ESTIMATION_METHODS)
        require_known("sampling", self.sampling, SAMPLINGS)
        require_known("estimand", self.estimand, ESTIMANDS)
        require_known("score", self.score, SCORES)
        if self.passes is not None and self.passes < 1:
            raise InputError(f"passes must be at least 1, got {self.passes}")
        if self.target_se is not None and not 0 < self.target_se < 1:
            raise InputError(f"a target standard error is a fraction of accuracy, 0..1, got {self.target_se}")
        if self.target_se is not None and self.method != "contributions":
            raise InputError(
                "only contributions are measured until a standard error is reached", hint="`--method contributions`"
            )
        if self.method == "indexed" and (self.sampling, self.score) != ("pooled", "accuracy"):
            raise InputError(
                f"`indexed` reads right and wrong answers of pooled passes, not `{self.sampling}`, `{self.score}`",
                hint="`--method contributions`, or leave `--sampling` and `--score` out",
            )
        if self.method != "fourier" and (self.fourier is not None or self.fourier_rounds is not None):
            raise InputError(f"`{self.method}` recovers no sparse polynomial", hint="`--method fourier`")
        if (
            self.fourier_rounds
            and self.score != "accuracy"
            and self.fourier
            and isinstance(self.fourier.threshold, float)
        ):
            raise InputError(
                f"a threshold is an accuracy, and the rounds would look at the {self.score}",
                hint="`--threshold auto` or `none`",
            )
        if self.unseen != 0 and self.unseen < MIN_NETWORKS:
            raise InputError(f"validation takes at least {MIN_NETWORKS} networks, or 0, got {self.unseen}")

    def describe(self) -> dict[str, Any]:
        """As plain data, for files and for "already done"; without what only another method has."""
        own = {"fourier": self.fourier, "fourier_rounds": self.fourier_rounds}
        return {key: value for key, value in asdict(self).items() if own.get(key, self) is not None}


@dataclass(frozen=True)
class Estimate:
    estimator: StoredEstimator
    passes: int
    largest_se: float | None  # of a contribution

    def reached(self, target_se: float) -> bool:
        return self.largest_se is not None and self.largest_se <= target_se


def estimate(
    samples: Samples,
    settings: EstimationSettings,
    provenance: dict[str, Any] | None = None,
    on_progress: OnProgress = silent,
) -> Estimate:
    """Take the passes that the settings ask for, fit, and validate on networks that had no part in it."""
    share = 0.6 if settings.unseen else 1.0
    made = _fitted(samples, settings, lambda fraction, what: on_progress(share * fraction, what))
    about = {
        **made.estimator.provenance,
        **(provenance or {}),
        "method": settings.method,
        "score": settings.score,
        "passes": made.passes,
        "images": samples.measure.images,
        "seed": samples.seed,
    }
    if settings.method == "contributions":
        about |= {
            "sampling": settings.sampling,
            "estimand": settings.estimand,
            "shrunk": settings.shrink,
            "largest_se": made.largest_se,
        }
    estimator = replace(made.estimator, provenance=about)
    if settings.unseen:
        estimator = _validated(estimator, samples, settings.unseen, lambda f, what: on_progress(0.6 + 0.4 * f, what))
    return replace(made, estimator=estimator)


def _fitted(samples: Samples, settings: EstimationSettings, on_progress: OnProgress) -> Estimate:
    space = samples.space
    if settings.method == "contributions":
        found, passes = measure_contributions(samples, settings, on_progress)
        kept = shrunk(found, settings.estimand) if settings.shrink else found
        return Estimate(replace(kept.estimator(), comparisons=compared(found)), passes, found.largest_error)
    if settings.method == "indexed":
        passes = settings.passes or POOLED_PASSES
        taken = _take(samples, "image", range(passes), on_progress)
        comparisons = compared(pooled(space, taken, "accuracy", "projection"))
        return Estimate(replace(fit_indexed_samples(space, taken), comparisons=comparisons), passes, None)
    passes = settings.passes or NETWORKS
    if settings.fourier_rounds is not None:
        return _in_rounds(samples, settings, settings.fourier_rounds, passes, on_progress)
    taken = _take(samples, "network", range(passes), on_progress)
    comparisons = compared_networks(space, np.stack([p.paths[0] for p in taken]), means(taken, "accuracy"))
    return Estimate(replace(learn(space, taken, settings), comparisons=comparisons), passes, None)


def _in_rounds(
    samples: Samples, settings: EstimationSettings, rounds: int, passes: int, on_progress: OnProgress
) -> Estimate:
    """A fit to the networks of all rounds, which knows most about where they led."""
    fourier = settings.fourier or FourierSettings()
    found = measure_in_rounds(samples, fourier, rounds, passes, settings.score, on_progress)
    estimator = learn(samples.space, found.passes, settings)
    about = {
        "decided": str(found.decided.architecture),
        "rounds": [{"networks": len(own.values), "decided": own.left.decided} for own in found.decided.rounds],
    }
    # what design choices are worth takes networks of the whole space, which the later rounds do not draw from
    estimator = replace(estimator, provenance={**estimator.provenance, **about})
    return Estimate(estimator, len(found.passes), None)


def _validated(estimator: StoredEstimator, samples: Samples, unseen: int, on_progress: OnProgress) -> StoredEstimator:
    networks = _take(samples, "unseen", range(unseen), lambda f, what: on_progress(0.9 * f, what))
    validation = validate(estimator, networks)
    if isinstance(estimator, IndexedEstimator):  # its link saturates as accuracy does
        return replace(with_lack_of_fit(estimator, networks), validation=validation)
    curve = measure_curve(estimator, samples, networks, lambda f, what: on_progress(0.9 + 0.1 * f, what))
    return replace(estimator, validation=validation.model_copy(update={"curve": curve}))


def with_lack_of_fit(estimator: IndexedEstimator, unseen: Sequence[Pass]) -> IndexedEstimator:
    """What the scatter of the refits does not explain of the errors on unseen networks.

    All were judged on the same images, so what the refits have in common, the level of these images, explains nothing.
    """
    rows = np.stack([p.paths[0] for p in unseen])
    draws = estimator.draws(rows)
    scatter = (draws - draws.mean(axis=1, keepdims=True)).var(axis=0, ddof=1)
    errors = estimator.predict_rows(rows) - means(unseen, "accuracy")
    return replace(estimator, lack_of_fit=float(np.maximum((errors**2 - scatter).mean(), 0.0)) ** 0.5)


def measure_contributions(
    samples: Samples, settings: EstimationSettings, on_progress: OnProgress = silent
) -> tuple[Contributions, int]:
    """The contributions, and how many passes they took."""
    kind, step, usual = _passes_of(settings, samples.space.decisions)
    most = settings.passes or (max(usual, MAX_PASSES) if settings.target_se else usual)
    if most < step:
        raise InputError(
            f"`per-decision` takes {step} passes, one for each option and one free; {most} were allowed",
            hint="`--sampling pooled` reads all decisions off every pass",
        )
    most = most // step * step
    count, look, passes = 0, step if settings.target_se else most, []
    while True:
        passes += _take(samples, kind, range(count, look), on_progress, most)
        count = look
        found = contributions_of(samples, settings, passes)
        if count == most or (settings.target_se is not None and found.largest_error <= settings.target_se):
            on_progress(1.0, f"{count} passes")
            return found, count
        look = min(most, max(count + step, int(count * REFIT_GROWTH) // step * step))


def contributions_of(samples: Samples, settings: EstimationSettings, passes: Sequence[Pass]) -> Contributions:
    """Fit passes that the settings' sampling drew: unbiased, before any shrinking."""
    space, estimand = samples.space, settings.estimand

    def fit(score: Score) -> Contributions:
        if settings.sampling == "pooled":
            return pooled(space, passes, score, estimand)
        if settings.sampling == "single-path":
            return grouped(space, passes, score, estimand, samples.batch)
        if settings.sampling == "per-decision":
            return per_decision(space, passes, score, estimand)
        raise AssertionError(settings.sampling)

    accuracy = fit("accuracy")
    return accuracy if settings.score == "accuracy" else fit(settings.score).in_accuracy(accuracy)


def learn(space: Space, networks: Sequence[Pass], settings: EstimationSettings) -> StoredEstimator:
    """Fit the settings' learned form to networks that were measured."""
    architectures = space.architectures(np.stack([p.paths[0] for p in networks]))
    y = means(networks, "accuracy")
    if settings.score != "accuracy":  # on the scale of accuracy
        score = means(networks, settings.score)
        y = np.polyval(np.polyfit(score, y, 1), score)
    return fit_learned(settings.method, space, architectures, y, fourier=settings.fourier)


def _passes_of(settings: EstimationSettings, decisions: Decisions) -> tuple[str, int, int]:
    """Kind of pass, how many make sense at once, and how many are usual."""
    if settings.sampling == "per-decision":
        length = 1 + len(decisions)
        return f"decision-{settings.estimand}", length, length
    if settings.sampling == "single-path":
        return "batch", 1, SINGLE_PATH_PASSES
    if settings.sampling == "pooled":
        return "image", 1, POOLED_PASSES
    raise AssertionError(settings.sampling)


def _take(samples: Samples, kind: str, numbers: range, on_progress: OnProgress, most: int | None = None) -> list[Pass]:
    taken = []
    for number in numbers:
        taken.append(samples.get(kind, number, numbers.stop))
        on_progress((number + 1) / (most or len(numbers)), f"{kind} pass {number + 1}")
    return taken
