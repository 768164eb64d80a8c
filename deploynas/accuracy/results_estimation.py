"""From a table of measured networks to a validated estimator.

The form is fitted to all networks, each weighing weight / (standard error^2 + v), where v is the variance of the lack
of fit as a first cross-validation, without standard errors, sees it; where there are none, a network weighs its weight
alone. Then networks are left out in turn, drawn ones and, where the table names groups, whole groups: that is the
validation, and the lack of fit that standard errors of predictions contain.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from deploynas.accuracy.abnormal import normal
from deploynas.accuracy.cross_validation import FOLDS, drawn_parts, lack_of_fit_of, leave_out, validation_of
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.fourier_fit import FourierSettings, as_picked
from deploynas.accuracy.indexed_fit import Form, fit_form, fit_indexed
from deploynas.accuracy.lack_of_fit import stating_lack_of_fit
from deploynas.accuracy.learned import MIN_NETWORKS
from deploynas.accuracy.learned_forms import fit_learned
from deploynas.accuracy.registry import RESULTS_METHODS, ResultsMethod, require_known
from deploynas.accuracy.results_table import ResultsFormat, ResultsTable
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.provenance import Credits

FEWEST_NETWORKS = 2 * MIN_NETWORKS  # so that a fit without some of them still has enough
MOST_GROUPS = 50  # each is a fit


@dataclass(frozen=True)
class ResultsSettings:
    """How to read a file of results, what to make of it, and whose it is."""

    method: ResultsMethod = RESULTS_METHODS[0]
    format: ResultsFormat = field(default_factory=ResultsFormat)
    credits: Credits = field(default_factory=Credits)
    seed: int = 0  # of the parts that are drawn, and of refits
    fourier: FourierSettings | None = None  # of the method of this name; None: its defaults

    def __post_init__(self) -> None:
        require_known("method", self.method, RESULTS_METHODS)


def estimate_from_table(
    table: ResultsTable, settings: ResultsSettings, on_progress: OnProgress = silent
) -> StoredEstimator:
    """Fitted to all networks of the table, and validated by fits that each lack some of them.

    A sparse form says nothing of networks below its threshold, so they take part in neither.
    """
    below = 0
    if settings.method == "fourier":
        works = normal(table.accuracies, (settings.fourier or FourierSettings()).threshold)
        table, below = table.only(works), int((~works).sum())
    _require_enough(table)
    groups = table.masks()
    fitting = _Fitting.of(table, settings, _part_of(on_progress, 0.0, 0.3))
    estimator = fitting.whole()
    drawn_share = 0.4 + 0.6 * FOLDS / (FOLDS + len(groups))
    fits = fitting.like(estimator)
    parts = drawn_parts(len(table), settings.seed)
    drawn = leave_out(table, fits.to, parts, _part_of(on_progress, 0.4, drawn_share))
    grouped = leave_out(table, fits.to, list(groups.values()), _part_of(on_progress, drawn_share, 1.0))
    return replace(
        stating_lack_of_fit(estimator, lack_of_fit_of(grouped or drawn)),
        validation=validation_of(drawn, dict(zip(groups, grouped, strict=True)), settings.seed),
        comparisons=(),  # which are right about networks that were drawn at random, as these were not
        results=table.record.model_copy(update=settings.credits.model_dump()),
        provenance={
            **estimator.provenance,
            **({"below_threshold": below} if settings.method == "fourier" else {}),
            "method": settings.method,
            "seed": settings.seed,
        },
    )


@dataclass(frozen=True)
class _Fitting:
    """Fits of one method to networks of one table."""

    table: ResultsTable
    settings: ResultsSettings
    weights: np.ndarray | None
    form: Form | None = None  # of `indexed`, once it is picked

    @classmethod
    def of(cls, table: ResultsTable, settings: ResultsSettings, on_progress: OnProgress) -> _Fitting:
        plain = cls(table, settings, table.weights)
        if table.standard_errors is None:
            return plain
        first = plain.like(plain.whole())
        left_out = leave_out(table, first.to, drawn_parts(len(table), settings.seed), on_progress)
        variances = table.standard_errors**2 + lack_of_fit_of(left_out) ** 2
        return cls(table, settings, (1.0 if table.weights is None else table.weights) / variances)

    def like(self, estimator: StoredEstimator) -> _Fitting:
        """Fits with what this one has picked, so that each of many does not pick again."""
        if isinstance(estimator, FourierEstimator):
            fourier = as_picked(self.settings.fourier or FourierSettings(), estimator)
            return replace(self, settings=replace(self.settings, fourier=fourier))
        return replace(self, form=estimator.provenance.get("form"))

    def whole(self) -> StoredEstimator:
        return self.to(np.ones(len(self.table), dtype=bool))

    def to(self, mask: np.ndarray) -> StoredEstimator:
        """To the networks of a mask; without a form, the one that predicts best what is left out in turn."""
        table, settings = self.table, self.settings
        networks = [a for a, inside in zip(table.architectures, mask, strict=True) if inside]
        y, weights = table.accuracies[mask], None if self.weights is None else self.weights[mask]
        if settings.method != "indexed":
            return fit_learned(settings.method, table.space, networks, y, weights, settings.fourier)
        if self.form is not None:
            return fit_form(table.space, networks, y, self.form, weights, settings.seed)
        parts = [group[mask] for group in table.masks().values() if group[mask].any()]
        return fit_indexed(table.space, networks, y, weights=weights, parts=parts, seed=settings.seed)


def _require_enough(table: ResultsTable) -> None:
    name, networks, groups = table.record.file, len(table), table.masks()
    if networks < FEWEST_NETWORKS:
        raise InputError(
            f"{name} has {networks} different networks of space `{table.space.name}`; a validated estimator takes "
            f"{FEWEST_NETWORKS} at least"
        )
    if len(set(table.accuracies.tolist())) == 1:
        raise InputError(f"{name}: all networks have the same accuracy, so there is nothing to learn")
    column = table.record.groups
    if groups and not 2 <= len(groups) <= MOST_GROUPS:
        raise InputError(
            f"{name}: column `{column}` names {len(groups)} groups; 2 to {MOST_GROUPS} can be left out in turn",
            hint="leave out `--group`, or name groups that networks have in common",
        )
    for group, mask in groups.items():
        if networks - mask.sum() < MIN_NETWORKS:
            raise InputError(
                f"{name}: without the networks of group `{group}` {networks - mask.sum()} are left; a fit takes "
                f"{MIN_NETWORKS} at least"
            )


def _part_of(on_progress: OnProgress, start: float, end: float) -> OnProgress:
    return lambda fraction, what: on_progress(start + (end - start) * fraction, what)
