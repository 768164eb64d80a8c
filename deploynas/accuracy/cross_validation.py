"""Parts of a table of networks left out in turn, each predicted by a fit to all the others.

Parts are drawn, or they are groups that the table names. Networks that come out of one search resemble each other, and
a fit that saw some of them does well on the rest; a fit without any of them does as well as it will on a new search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from deploynas.accuracy.estimator_file import EstimatorValidation, GroupValidation, StoredEstimator
from deploynas.accuracy.expectation import SHARE
from deploynas.accuracy.lack_of_fit import lack_of_fit, scatter
from deploynas.accuracy.results_table import ResultsTable
from deploynas.accuracy.validation import judge, kendall, mean_error
from deploynas.progress import OnProgress, silent

FOLDS = 5
TOP = 0.1  # of the networks, those with the highest predictions

Fit = Callable[[np.ndarray], StoredEstimator]  # to the networks of a table that a mask names


@dataclass(frozen=True)
class LeftOut:
    """Networks that a fit did not see, and what it said about them."""

    predicted: np.ndarray
    measured: np.ndarray
    explained: np.ndarray  # variances of the errors that the fit, and the noise of measurements, account for

    @property
    def errors(self) -> np.ndarray:
        return self.predicted - self.measured

    @property
    def top(self) -> np.ndarray:
        """The positions of those with the highest predictions."""
        count = max(1, round(TOP * len(self.predicted)))
        return np.argsort(-self.predicted, kind="stable")[:count]

    def within(self, deviation: float, share: float = SHARE) -> np.ndarray:
        """Whether each is inside its interval, if the lack of fit has this standard deviation."""
        half = NormalDist().inv_cdf(0.5 + share / 2) * np.sqrt(self.explained + deviation**2)
        return np.abs(self.errors) <= half

    @classmethod
    def joined(cls, parts: Sequence[LeftOut]) -> LeftOut:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__))


def drawn_parts(networks: int, seed: int) -> list[np.ndarray]:
    """Masks of random parts of equal size."""
    part = np.random.default_rng(seed).permutation(networks) % FOLDS
    return [part == number for number in range(FOLDS)]


def leave_out(
    table: ResultsTable, fit: Fit, parts: Sequence[np.ndarray], on_progress: OnProgress = silent
) -> list[LeftOut]:
    """One fit for every part, which sees only networks that are not of it."""
    found = []
    for number, part in enumerate(parts):
        networks = [a for a, out in zip(table.architectures, part, strict=True) if out]
        estimator = fit(~part)
        noise = 0.0 if table.standard_errors is None else table.standard_errors[part] ** 2
        predicted = np.array([estimator.predict(network) for network in networks])
        found.append(LeftOut(predicted, table.accuracies[part], scatter(estimator, networks) + noise))
        on_progress((number + 1) / len(parts), f"left out {number + 1} of {len(parts)}")
    return found


def lack_of_fit_of(parts: Sequence[LeftOut]) -> float:
    joined = LeftOut.joined(parts)
    return lack_of_fit(joined.errors, joined.explained)


def held(parts: Sequence[LeftOut]) -> list[np.ndarray]:
    """Whether the networks of each part are inside their intervals, the lack of fit being that of the other parts."""
    return [
        part.within(lack_of_fit_of([other for other in parts if other is not part]) if len(parts) > 1 else 0.0)
        for part in parts
    ]


def validation_of(parts: Sequence[LeftOut], groups: Mapping[str, LeftOut], seed: int = 0) -> EstimatorValidation:
    """`parts` were drawn and have every network once; `groups` are those of the table, if it has some."""
    every = LeftOut.joined(parts)
    found = judge(every.predicted, every.measured, np.random.default_rng(seed))
    inside = held(list(groups.values()))
    return found.model_copy(
        update={
            "folds": len(parts),
            "bias": float(every.errors.mean()),
            "top_networks": len(every.top),
            "top_bias": float(every.errors[every.top].mean()),
            "coverage": float(np.concatenate(held(parts)).mean()),
            "groups": [_of_group(name, part, own) for (name, part), own in zip(groups.items(), inside, strict=True)],
        }
    )


def _of_group(name: str, part: LeftOut, inside: np.ndarray) -> GroupValidation:
    return GroupValidation(
        name=name,
        networks=len(part.measured),
        measured_std=float(part.measured.std(ddof=1)) if len(part.measured) > 1 else None,
        kendall_tau=kendall(part.predicted, part.measured),
        mean_error=mean_error(part.predicted, part.measured),
        bias=float(part.errors.mean()),
        top_networks=len(part.top),
        top_bias=float(part.errors[part.top].mean()),
        coverage=float(inside.mean()),
    )
