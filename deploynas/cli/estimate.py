"""`deploynas estimate`: what every depth and every block configuration is worth, from a trained supernet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.cli.next_commands import search_command
from deploynas.cli.options import estimation_of, out_option, supernet_help, with_estimation_options

if TYPE_CHECKING:
    from deploynas.accuracy.estimation import Estimate
    from deploynas.accuracy.estimator_file import EstimatorValidation


@click.command("estimate")
@click.option("--supernet", "source", type=click.Path(path_type=Path), required=True, metavar="RUN", help=supernet_help)
@click.option("--data", help="Data set.  [default: what the supernet was trained on]")
@out_option("Estimator file.  [default: RUN/estimator.json]")
@with_estimation_options()
@click.option("--samples", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Where passes are kept.  [default: RUN/samples]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the paths.")
@json_option
def command(
    source: Path, data: str | None, out: Path | None, folder: Path | None, seed: int, as_json: bool, **options: object
) -> None:
    """Measure or learn what every decision is worth, and validate it on unseen sub-networks.

    Passes are kept: the same command continues, and more passes refine what is there. On several processes:
    `torchrun --nproc-per-node 2 -m deploynas estimate …`
    """
    from deploynas.pipeline.estimate import KeptPasses, estimate_together

    settings, kept = estimation_of(options), KeptPasses(folder, seed)
    if os.environ.get("RANK", "0") != "0":
        estimate_together(source, data, settings, out, kept)
        return
    with progress_bar("estimate") as on_progress:
        saved = estimate_together(source, data, settings, out, kept, on_progress)
    assert saved is not None, "the first process has the estimate"
    found, estimator = saved.estimate, saved.estimate.estimator
    if as_json:
        validation = estimator.validation.model_dump() if estimator.validation else None
        print_json({"estimator": str(saved.path), **estimator.provenance, "validation": validation})
    else:
        _show(found)
    if settings.target_se is not None and not found.reached(settings.target_se):
        say(
            f"the largest standard error is {found.largest_se:.5f} after {found.passes} passes, not "
            f"{settings.target_se:g}: more passes help as long as it falls, then only more images do"
        )
    say(f"wrote {saved.path}; passes are kept in {saved.samples}")
    explained = settings.method in ("indexed", "contributions", "bilinear")
    say(f"next: {f'deploynas explain {saved.path}' if explained else search_command(saved.path, estimator.space)}")


def _show(found: Estimate) -> None:
    about = found.estimator.provenance
    form = f", {about['form']}" if "form" in about else ""
    form += ", by input size" if about.get("by_size") else ""
    rows = [["method", f"{about['method']}{form}"], ["passes", f"{found.passes} of {about['images']} images"]]
    if found.largest_se is not None:
        rows.append(["largest standard error", f"{100 * found.largest_se:.3f} points"])
    validation = found.estimator.validation
    if validation:
        rows += validation_rows(validation)
    print_table(["estimate", ""], rows)


def validation_rows(validation: EstimatorValidation) -> list[list[str]]:
    def shown(value: float | None, interval: tuple[float, float] | None = None, scale: float = 1) -> str:
        if value is None:
            return "not defined"
        text = f"{scale * value:.3f}"
        return text if interval is None else f"{text} ({scale * interval[0]:.3f} to {scale * interval[1]:.3f})"

    v = validation
    rows = [
        ["unseen networks", f"{v.networks}, accuracies differ by {100 * (v.measured_std or 0):.2f} points (std)"],
        ["Kendall tau", shown(v.kendall_tau, v.kendall_tau_interval)],
        ["Spearman", shown(v.spearman, v.spearman_interval)],
        ["Pearson", shown(v.pearson, v.pearson_interval)],
        ["mean error, points", shown(v.mean_error, v.mean_error_interval, 100)],
        ["two halves of the images: tau, Spearman", f"{shown(v.noise_ceiling)}, {shown(v.noise_ceiling_spearman)}"],
    ]
    for name, ablation in v.ablations.items():
        label = name.replace("_", " ") + " terms: tau, Spearman"
        rows.append([label, f"{shown(ablation.kendall_tau)}, {shown(ablation.spearman)}"])
    return rows
