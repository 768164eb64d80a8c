"""Options that several commands share, and how what they say is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from deploynas.accuracy.registry import ESTIMANDS, ESTIMATION_METHODS, SAMPLINGS, SCORES, TRAINING_FREE
from deploynas.accuracy.training_free.registry import DEFAULT_SCORE, TRAINING_FREE_SCORES

if TYPE_CHECKING:
    from deploynas.accuracy.estimation import EstimationSettings
    from deploynas.pipeline.exported import Wishes
    from deploynas.pipeline.goal import Goal
    from deploynas.search.problem import Limit

Command = TypeVar("Command", bound=Callable)
Option = Callable[[Command], Command]
Values = Mapping[str, object]

RESOURCE_OPTIONS = {
    "max_params": "params",
    "max_macs": "macs",
    "max_size_bytes": "size_bytes",
    "max_peak_memory_bytes": "peak_memory_bytes",
}


def out_option(help: str, folder: bool = False, default: Path | None = None) -> Option:
    """`-o`, `--out`: where the result goes."""
    kind = click.Path(file_okay=not folder, path_type=Path)
    return click.option("-o", "--out", type=kind, default=default, show_default=default is not None, help=help)


DEFAULT_DEVICE = "cpu-1t"
device_option = click.option(
    "--device", "device_name", default=DEFAULT_DEVICE, show_default=True, help="Name in devices/, or a YAML file."
)
devices_option = click.option(
    "--device",
    "device_names",
    multiple=True,
    help=f"Name in devices/, or a YAML file; repeatable.  [default: {DEFAULT_DEVICE}]",
)
supernet_help = "Folder of a run, a folder that holds w_star, or w_star.safetensors."


def with_options(*options: Option) -> Option:
    """All of them, in this order in the help."""

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


with_recipe_options = with_options(
    click.option("--recipe", "recipe_name", help="Preset or YAML file.  [default: what suits the space]"),
    click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change the recipe: w_h.epochs=3."),
    click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Shorthand for --set seed=…"),
)


def recipe_changes(changes: tuple[str, ...], seed: int | None) -> list[str]:
    return [*changes, *([f"seed={seed}"] if seed is not None else [])]


def with_estimation_options(passes: int | None = None, unseen: int = 200, training_free: bool = False) -> Option:
    """What to estimate and how; `estimation_of` reads them."""
    methods = [*ESTIMATION_METHODS, *([TRAINING_FREE] if training_free else [])]
    scores = [*SCORES, *(TRAINING_FREE_SCORES if training_free else [])]
    ranking = " Or a ranking without anything trained." if training_free else ""
    ranked_by = f" `{TRAINING_FREE}` has its own, by default {DEFAULT_SCORE}." if training_free else ""
    return with_options(
        click.option(
            "--method", type=click.Choice(methods), default="indexed", show_default=True,
            help="Sums behind a link, contributions from the same passes, or a form learned from whole networks."
            + ranking,
        ),
        click.option(
            "--sampling", type=click.Choice(SAMPLINGS), default="pooled", show_default=True,
            help="Of contributions: all from every image's own path, one path per batch, or one pass per decision.",
        ),
        click.option(
            "--estimand", type=click.Choice(ESTIMANDS), default="projection", show_default=True,
            help="Of contributions: least squares, or eq. 3 as printed.",
        ),
        click.option(
            "--score", type=click.Choice(scores), default="accuracy", show_default=True,
            help=f"What is averaged.{ranked_by}",
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
    )  # fmt: skip


def estimation_of(options: Values) -> EstimationSettings:
    """What the options of `with_estimation_options` ask for; a form has settings of its own, see `fourier_options`."""
    from dataclasses import fields

    from deploynas.accuracy.estimation import EstimationSettings

    names = [field.name for field in fields(EstimationSettings) if field.name in options]
    return EstimationSettings(**{name: options[name] for name in names})  # type: ignore[arg-type]


with_resource_options = with_options(
    click.option("--max-params", type=float, help="At most this many parameters."),
    click.option("--max-macs", type=float, help="At most this many multiply-accumulates."),
    click.option("--max-size-bytes", type=float, help="At most this many bytes of fp32 weights."),
    click.option("--max-peak-memory-bytes", type=float, help="At most this many bytes of activations at once."),
)


def resources_of(options: Values) -> list[Limit]:
    """What the options of `with_resource_options` ask for."""
    from deploynas.search.problem import Limit

    asked = {resource: options[option] for option, resource in RESOURCE_OPTIONS.items()}
    return [Limit(resource, value) for resource, value in asked.items() if isinstance(value, float)]


with_goal_options = with_options(
    click.option(
        "--max-latency-ms", type=float, metavar="MS", help="The most accurate network within this predicted latency."
    ),
    click.option(
        "--min-accuracy", type=float, metavar="X",
        help="The fastest network that is expected to reach this one-shot accuracy (0.77: 77 %).",
    ),
    click.option(
        "--within", type=float, metavar="POINTS",
        help="The fastest network within so many points of the best.  [default, without any of these: 1.0]",
    ),
)  # fmt: skip


def goal_of(options: Values) -> Goal | None:
    """What the options of `with_goal_options` ask for: one of them, or none."""
    from deploynas.pipeline.goal import one_goal

    asked = (options[name] for name in ("max_latency_ms", "min_accuracy", "within"))
    return one_goal(*(value if isinstance(value, float) else None for value in asked))


with_bundle_options = with_options(
    click.option(
        "--int8", type=click.Choice(["measured", "force", "mixed"]), is_flag=False, flag_value="measured",
        help="An 8-bit file, calibrated with training images, if it is measured to be faster and accurate enough; "
             "`force`: whatever is measured; `mixed`: 8 bits in the parts of the network where they pay.",
    ),
    click.option(
        "--fp16", type=click.Choice(["measured", "force"]), is_flag=False, flag_value="measured",
        help="The same in float16.",
    ),
    click.option(
        "--bf16", type=click.Choice(["measured", "force"]), is_flag=False, flag_value="measured",
        help="The same in bf16: the fp32 file, which the device's provider is told to compute in bf16.",
    ),
    click.option(
        "--calibration-share", type=click.FloatRange(0, 1, min_open=True), default=0.05, show_default=True,
        help="Fraction of the training images that 8-bit ranges come from.",
    ),
    click.option(
        "--calibration-method", type=click.Choice(["measured", "minmax", "percentile", "mse"]), default="measured",
        show_default=True, help="How 8-bit ranges are chosen; `measured`: by the rule that stays nearest to fp32.",
    ),
    click.option("--per-channel/--per-tensor", default=True, show_default=True, help="Scales of 8-bit weights."),
    click.option(
        "--max-accuracy-drop", type=click.FloatRange(0, 1), default=0.01, show_default=True,
        help="Refuse an fp16, bf16 or 8-bit file that loses more (a fraction: 0.01 is one point).",
    ),
    click.option("--opset", type=int, default=17, show_default=True, help="ONNX operator set."),
    click.option("--triton", is_flag=True, help="Add a Triton model repository."),
    click.option(
        "--ort-package", is_flag=True,
        help="Add ONNX Runtime's model package: each file with the session options that were measured.",
    ),
    click.option("--license", metavar="SPDX", help="Of the model, for its card: Apache-2.0, CC-BY-4.0, …"),
    click.option("--base-model", metavar="ID", help="The model on a hub that it was made from, for its card."),
    click.option(
        "--sign", type=click.Path(dir_okay=False), metavar="KEY",
        help="Sign the bundle with a private key (PEM, elliptic curve, no password).",
    ),
    click.option(
        "--rounds", type=click.IntRange(1, 20), default=3, show_default=True,
        help="Networks to try at most until one is within the budget.",
    ),
    click.option(
        "--compare", type=click.IntRange(0, 8), default=0, show_default=True, metavar="K",
        help="Also fine-tune K random networks of the same latency, the best uniform one and the heaviest.",
    ),
    click.option(
        "--patience", "patience_s", type=click.FloatRange(0, 86_400), default=30.0, show_default=True, metavar="S",
        help="Wait up to S seconds for a quieter moment when a busy machine misses the budget.",
    ),
    click.option(
        "--strict", is_flag=True,
        help="Exit code 3 also for a budget that is held undisturbed but missed on the machine as it was.",
    ),
)  # fmt: skip


def wishes_of(options: Values) -> Wishes:
    """What the options of `with_bundle_options` ask for."""
    from deploynas.export.calibration import Calibration
    from deploynas.export.signature import require_signer
    from deploynas.pipeline.exported import Wishes
    from deploynas.report.publication import Publication

    if options["sign"]:
        require_signer(options["sign"])  # type: ignore[arg-type]
    said = Publication.of(options["license"], options["base_model"])  # type: ignore[arg-type]
    how = ("calibration_method", "calibration_share", "per_channel")
    calibration = Calibration(*(options[name] for name in how))  # type: ignore[arg-type]
    names = (
        "int8",
        "fp16",
        "bf16",
        "max_accuracy_drop",
        "opset",
        "triton",
        "rounds",
        "compare",
        "patience_s",
        "ort_package",
        "sign",
    )
    return Wishes(calibration=calibration, publication=said, **{name: options[name] for name in names})  # type: ignore[arg-type]
