"""`deploynas estimate`: what every depth and every block configuration is worth, from a trained supernet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploynas.accuracy.registry import ESTIMANDS, ESTIMATION_METHODS, SAMPLINGS, SCORES
from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from deploynas.accuracy.estimation import Estimate, EstimationSettings
    from deploynas.accuracy.estimator_file import EstimatorValidation


def with_plan_options(passes: int | None = None, unseen: int = 200) -> Any:
    """The options that say what to estimate and how; `plan_of` reads them."""
    options = [
        click.option(
            "--method", type=click.Choice(ESTIMATION_METHODS), default="contributions", show_default=True,
            help="Measured contributions, or a form learned from whole networks.",
        ),
        click.option(
            "--sampling", type=click.Choice(SAMPLINGS), default="pooled", show_default=True,
            help="Of contributions: all from every image's own path, a path a batch, or a pass for each decision.",
        ),
        click.option(
            "--estimand", type=click.Choice(ESTIMANDS), default="projection", show_default=True,
            help="Of contributions: least squares, or eq. 3 as printed.",
        ),
        click.option(
            "--score", type=click.Choice(SCORES), default="accuracy", show_default=True, help="What is averaged."
        ),
        click.option(
            "--shrink/--no-shrink", default=True, show_default=True,
            help="Of contributions: take out noise by what all say together, or leave them unbiased.",
        ),
        click.option(
            "--passes", type=click.IntRange(min=1), default=passes, show_default=passes is not None, metavar="N",
            help="At most N visits of all validation images.",
        ),
        click.option(
            "--target-se", type=float, metavar="X", help="Stop when no standard error exceeds X (0.002: 0.2 points)."
        ),
        click.option(
            "--validate", "unseen", type=click.IntRange(min=0), default=unseen, show_default=True, metavar="N",
            help="Unseen sub-networks to validate on; 0: none.",
        ),
    ]  # fmt: skip

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def plan_of(options: dict[str, Any]) -> EstimationSettings:
    """What the options of `with_plan_options` ask for; takes them out of `options`."""
    from dataclasses import fields

    from deploynas.accuracy.estimation import EstimationSettings

    return EstimationSettings(**{field.name: options.pop(field.name) for field in fields(EstimationSettings)})


@click.command()
@click.option(
    "--supernet",
    "supernet_path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="RUN",
    help="Folder of a `train` run, or its w_star.safetensors.",
)
@click.option("--data", help="Data set.  [default: what the supernet was trained on]")
@click.option("--out", type=click.Path(path_type=Path), help="Estimator file.  [default: RUN/estimator.json]")
@with_plan_options()
@click.option("--samples", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Where passes are kept.  [default: RUN/samples]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the paths.")
@json_option
def command(
    supernet_path: Path,
    data: str | None,
    out: Path | None,
    folder: Path | None,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure or learn what every decision is worth, and validate it on unseen sub-networks.

    Passes are kept: the same command continues, and more passes refine what is there.
    """
    from deploynas import __version__
    from deploynas.accuracy.estimation import estimate
    from deploynas.accuracy.samples import Samples
    from deploynas.cli.supernet_input import open_one_shot
    from deploynas.files import now

    plan = plan_of(options)
    opened = open_one_shot(supernet_path, data)
    out = out or opened.run / "estimator.json"
    samples = Samples(opened.measure.supernet.space, opened.measure, opened.samples_folder(folder), seed)
    provenance = {"created": now(), "deploynas": __version__, "supernet": opened.about}
    with progress_bar("estimate") as on_progress:
        found = estimate(samples, plan, provenance, on_progress)
    found.estimator.save(out)
    if as_json:
        validation = found.estimator.validation
        print_json(
            {
                "estimator": str(out),
                **found.estimator.provenance,
                "validation": validation.model_dump() if validation else None,
            }
        )
    else:
        _show(found)
    if plan.target_se is not None and not found.reached(plan.target_se):
        say(
            f"the largest standard error is {found.largest_se:.5f} after {found.passes} passes, not "
            f"{plan.target_se:g}: more passes help as long as it falls, then only more images do"
        )
    say(f"wrote {out}; passes are kept in {samples.folder}")
    say(f"next: deploynas explain {out}")


def _show(found: Estimate) -> None:
    about = found.estimator.provenance
    rows = [["method", about["method"]], ["passes", f"{found.passes} of {about['images']} images"]]
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
