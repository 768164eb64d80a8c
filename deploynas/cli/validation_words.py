"""How well an estimator does on networks that it has not seen, in the words that several commands print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deploynas.cli.console import say

if TYPE_CHECKING:
    from deploynas.accuracy.estimator_file import EstimatorValidation, GroupValidation
    from deploynas.provenance import ResultsRecord


def ranking(validation: EstimatorValidation) -> str:
    """Kendall tau with what else was validated; files from elsewhere may have less."""
    v, others = validation, list[str]()
    tau = f"Kendall tau {v.kendall_tau:.2f}"
    if v.kendall_tau_interval:
        tau += f" ({v.kendall_tau_interval[0]:.2f} to {v.kendall_tau_interval[1]:.2f})"
    if v.spearman is not None:
        others.append(f"Spearman {v.spearman:.2f}")
    if v.mean_error is not None:
        others.append(f"mean error {100 * v.mean_error:.2f} points")
    if v.noise_ceiling is not None:
        others.append(f"two halves of the images agree to tau {v.noise_ceiling:.2f}")
    seen = f"{v.networks} networks, left out in turn" if v.folds else f"{v.networks} unseen networks"
    return f"{', '.join([tau, *others])} on {seen}"


def groups_in_words(groups: Sequence[GroupValidation]) -> str:
    """From the worst group to the best, each predicted by a fit that saw none of it."""
    taus = [group.kendall_tau for group in groups if group.kendall_tau is not None]
    ranked = f"tau {min(taus):.2f} to {max(taus):.2f}, " if taus else ""
    errors, tops = [100 * g.mean_error for g in groups], [100 * g.top_bias for g in groups]
    networks = sum(group.networks for group in groups)
    inside = sum(group.coverage * group.networks for group in groups if group.coverage is not None)
    return (
        f"{ranked}mean error {min(errors):.2f} to {max(errors):.2f} points; best tenth by prediction "
        f"{min(tops):+.2f} to {max(tops):+.2f} points off; {100 * inside / networks:.0f} % within 90 % intervals"
    )


def say_groups(validation: EstimatorValidation, results: ResultsRecord | None) -> None:
    if validation.groups:
        column = f" of `{results.groups}`" if results and results.groups else ""
        say(f"each of {len(validation.groups)} groups{column} left out whole: {groups_in_words(validation.groups)}")


def say_results(results: ResultsRecord) -> None:
    """What the estimator was made from, and whose that is."""
    say(f"made from {results.words()}")
