"""`explain --landscape`: the loss around the weights of a network and of others, as a table and sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import print_table, progress_bar, say

if TYPE_CHECKING:
    from deploynas.accuracy.landscape_record import Landscape
    from deploynas.latency.table import LatencyTable
    from deploynas.space import Architecture


def look(run: Path, network: Architecture, table: LatencyTable | None) -> Landscape:
    from deploynas.pipeline.landscape import landscape_of
    from deploynas.pipeline.supernet import open_supernet

    supernet = open_supernet(run)
    supernet.space.require_hash(network.space.hash, "the network")
    with progress_bar("landscape") as on_progress:
        return landscape_of(supernet, network, table, on_progress=on_progress)


def show(landscape: Landscape) -> None:
    rows = [
        [
            one.role,
            f"{one.contour[len(one.contour) // 2][len(one.contour) // 2]:.3f}",
            f"{one.rise:.3g} ± {one.rise_se:.2g}",
            f"{one.gradient_variance:.3g} ± {one.gradient_variance_se:.2g}",
        ]
        for one in landscape.networks
    ]
    columns = ["", "loss at its weights", f"rises by, {landscape.reach / 2:g} filter lengths away", "gradient variance"]
    print_table(columns, rows)
    for finding in landscape.findings:
        click.echo(finding)
    say(
        f"weights inherited from the supernet; the loss of {landscape.images} validation images, {landscape.pairs} "
        f"pairs of random directions; gradients of {landscape.gradients} images; ± is one standard error"
    )
