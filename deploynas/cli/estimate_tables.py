"""How an estimator that was just made looks to people: what it was made from, and how it does on unseen networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploynas.cli.console import print_table

if TYPE_CHECKING:
    from deploynas.accuracy.estimation import Estimate
    from deploynas.accuracy.estimator_file import EstimatorValidation, GroupValidation, StoredEstimator
    from deploynas.accuracy.training_free.estimator import TrainingFreeEstimator

GROUP_COLUMNS = (
    "left out whole",
    "networks",
    "differ by, points",
    "Kendall tau",
    "mean error",
    "bias",
    "bias of the best tenth",
    "within 90 %",
)


def show(found: Estimate) -> None:
    about = found.estimator.provenance
    form = f", {about['form']}" if "form" in about else ""
    form += ", by input size" if about.get("by_size") else ""
    rows = [["method", f"{about['method']}{form}"], ["passes", f"{found.passes} of {about['images']} images"]]
    rows += fourier_rows(found.estimator)
    if found.largest_se is not None:
        rows.append(["largest standard error", f"{100 * found.largest_se:.3f} points"])
    validation = found.estimator.validation
    if validation:
        rows += validation_rows(validation)
    print_table(["estimate", ""], rows)


def show_training_free(estimator: TrainingFreeEstimator) -> None:
    """What was scored and how; of accuracy only how it ranks beside it, where that was measured."""
    from deploynas.accuracy.training_free.registry import WORDS

    about, validation = estimator.provenance, estimator.validation
    what = (
        f"batches of {about['images']} images, a path each" if estimator.reading == "multi-path" else "whole networks"
    )
    rows = [
        ["method", "training-free: it ranks, and knows no accuracy"],
        ["score", f"{estimator.score}: {WORDS[estimator.score]}"],
        ["read from", f"{about['passes']} {what}, nothing trained"],
        ["images", "random, with random labels" if about.get("data") == "random" else f"{about.get('data')}"],
    ]
    if validation is None:
        rows.append(["against accuracy", "not checked: `--supernet RUN` does"])
    else:
        rows += validation_rows(validation)
    print_table(["estimate", ""], rows)


def show_results(estimator: StoredEstimator) -> None:
    about, results, validation = estimator.provenance, estimator.results, estimator.validation
    assert results is not None and validation is not None, "made from results"
    form = f", {about['form']}" if "form" in about else ""
    rows = [
        ["method", f"{about['method']}{form}"],
        ["networks", f"{results.networks} of {results.rows} rows, {results.repeated} repeated"],
        *fourier_rows(estimator),
        *validation_rows(validation),
    ]
    print_table(["estimate", ""], rows)
    if validation.groups:
        print_table(GROUP_COLUMNS, [_group_row(group) for group in validation.groups])


def _group_row(group: GroupValidation) -> list[str]:
    def points(value: float | None, sign: str = "") -> str:
        return "" if value is None else f"{100 * value:{sign}.3f}"

    tau = "not defined" if group.kendall_tau is None else f"{group.kendall_tau:.3f}"
    coverage = "" if group.coverage is None else f"{100 * group.coverage:.0f} %"
    return [
        group.name,
        str(group.networks),
        points(group.measured_std),
        tau,
        points(group.mean_error),
        points(group.bias, "+"),
        points(group.top_bias, "+"),
        coverage,
    ]


def fourier_rows(estimator: StoredEstimator) -> list[list[str]]:
    """What a sparse form has kept, and what it does not speak of; nothing for other forms."""
    about = estimator.provenance
    if about.get("method") != "fourier":
        return []
    rows = [["terms", f"{about['terms']}, lambda {about['lasso']:.3g}{', refitted' if about['refitted'] else ''}"]]
    if about["below_threshold"]:
        rows.append(["left out, below the threshold", f"{about['below_threshold']} networks"])
    return rows


def validation_rows(validation: EstimatorValidation) -> list[list[str]]:
    def shown(value: float | None, interval: tuple[float, float] | None = None, scale: float = 1) -> str:
        if value is None:
            return "not defined"
        text = f"{scale * value:.3f}"
        return text if interval is None else f"{text} ({scale * interval[0]:.3f} to {scale * interval[1]:.3f})"

    v = validation
    rows = [
        [
            f"left out in turn, {v.folds} parts" if v.folds else "unseen networks",
            f"{v.networks}, accuracies differ by {100 * (v.measured_std or 0):.2f} points (std)",
        ],
        ["Kendall tau", shown(v.kendall_tau, v.kendall_tau_interval)],
        ["Spearman", shown(v.spearman, v.spearman_interval)],
    ]
    if v.mean_error is not None:  # else only ranks were compared
        rows.append(["Pearson", shown(v.pearson, v.pearson_interval)])
        rows.append(["mean error, points", shown(v.mean_error, v.mean_error_interval, 100)])
    if v.images is not None:
        halves = f"{shown(v.noise_ceiling)}, {shown(v.noise_ceiling_spearman)}"
        rows.append(["two halves of the images: tau, Spearman", halves])
    if v.top_bias is not None:
        rows.append([f"bias of the best {v.top_networks} by prediction, points", f"{100 * v.top_bias:+.3f}"])
    if v.coverage is not None:
        rows.append(["within their 90 % intervals", f"{100 * v.coverage:.0f} %"])
    for name, ablation in v.ablations.items():
        label = name.replace("_", " ") + " terms: tau, Spearman"
        rows.append([label, f"{shown(ablation.kendall_tau)}, {shown(ablation.spearman)}"])
    return rows
