"""`deploynas import`: a supernet that others have trained, as the supernet of a run.

(`import` is a word of Python's; commands are loaded by name, so that the file can have it too.)
"""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say, seconds_since_start
from deploynas.cli.options import out_option

if TYPE_CHECKING:
    from deploynas.pipeline.import_ofa import ImportedRun


@click.command("import")
@click.argument("format_", metavar="ofa", type=click.Choice(["ofa"]))
@click.argument("file", metavar="FILE.pth", type=click.Path(path_type=Path))
@out_option("Folder of the run.", folder=True, default=Path("runs/ofa"))
@click.option("--data", help="Images to measure batch norm on, as for `train`: folder:DIR, …  [default: none]")
@click.option("--force", is_flag=True, help="Replace the supernet that is in the folder.")
@json_option
def command(format_: str, file: Path, out: Path, data: str | None, force: bool, as_json: bool) -> None:
    """Make a run of a public supernet, without training.

    `ofa` reads Once-for-all's MobileNet checkpoints: ofa_mbv3_d234_e346_k357_w1.0, the same at w1.2, and
    ofa_proxyless_d234_e346_k357_w1.3. Nothing in the file is run.
    """
    from deploynas.pipeline.import_ofa import import_ofa

    with progress_bar(f"import {file.name}") as on_progress:
        run = import_ofa(file, out, data, force, on_progress)
    if as_json:
        _print_document(run)
    else:
        _print_rows(run)
    say("already imported; --force starts over" if run.resumed else f"imported in {seconds_since_start():.0f} s")
    say(f"wrote {run.w_h}, {run.w_star}" + (f", {run.space_file}" if run.space_file.exists() else ""))
    if not run.imported.recalibrated:
        say(
            "warning: no images were given, so statistics of batch norm are those of the file, which are of no "
            "sub-network in particular: accuracies mean little until they are measured on images; the same command "
            "with `--data folder:DIR` does it"
        )
    say(f"next: {_next_command(run)}")


def _print_document(run: ImportedRun) -> None:
    imported = run.imported
    print_json(
        {
            "run": str(run.path),
            "file": imported.file.path,
            "sha256": imported.file.sha256,
            "space": run.space.name,
            "space_hash": run.space.hash,
            "classes": run.space.classes,
            "kernel_rule": run.kernel_rule,
            "recalibrated": imported.recalibrated,
            "new_classifier": imported.new_classifier,
            "checked_images": imported.checked_images,
            "heaviest_accuracy": run.w_h_record.validation_accuracy,
            "random_path_accuracy": run.w_star_record.validation_accuracy,
            "seconds": round(seconds_since_start(), 1),
        }
    )


def _print_rows(run: ImportedRun) -> None:
    imported = run.imported
    kernels = {"centre": "the centre of the largest", "matrices": "made by matrices from the largest"}
    rows = [
        ("space", f"{run.space.name} ({run.space.size():.2g} networks)"),
        ("classes", f"{run.space.classes}, {'a new classifier' if imported.new_classifier else 'as in the file'}"),
        ("smaller kernels", kernels[run.kernel_rule]),
        ("batch norm", "measured on the data" if imported.recalibrated else "as in the file"),
    ]
    if run.w_h_record.validation_accuracy is not None and run.w_star_record.validation_accuracy is not None:
        images = f"on {imported.checked_images} validation images"
        rows += [
            (f"heaviest network, {images}", f"{100 * run.w_h_record.validation_accuracy:.2f} %"),
            (f"random sub-networks, one per image, {images}", f"{100 * run.w_star_record.validation_accuracy:.2f} %"),
        ]
    print_table(("imported", ""), rows)


def _next_command(run: ImportedRun) -> str:
    """What decisions are worth, where there are images to ask; else what they cost."""
    if run.imported.recalibrated:
        return join(["deploynas", "estimate", "--supernet", str(run.path)])
    space = str(run.space_file) if run.space_file.exists() else run.space.name
    return join(["deploynas", "profile", "--space", space])
