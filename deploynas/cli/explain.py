"""`deploynas explain`: what the estimator teaches about depth, width, kernels and squeeze-and-excitation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, say
from deploynas.cli.next_commands import search_command
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.accuracy.bilinear import BilinearEstimator


@click.command()
@click.argument("estimator_path", metavar="ESTIMATOR", type=click.Path(path_type=Path))
@click.option("--latency", type=click.Path(path_type=Path), metavar="TABLE", help="Show costs on this device too.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots.")
@json_option
def command(estimator_path: Path, latency: Path | None, html: Path | None, as_json: bool) -> None:
    """Explain an estimator: the worth of every design choice, beside its latency.

    Depth per stage; expansion, kernel and squeeze-and-excitation per stage and per block, each averaged over
    everything else. A sentence is printed only where the standard errors allow it.
    """
    from deploynas.accuracy.insights import insights_file, insights_of
    from deploynas.latency.table import LatencyTable

    estimator = _explained(estimator_path)
    table = LatencyTable.load(latency) if latency else None
    if table:
        estimator.space.require_hash(table.space.hash, f"{latency}: its table")
    insights = insights_of(estimator, table.block_ms if table else None)
    document = insights_file(estimator, insights, table.device_name if table else None)
    if as_json:
        print_json(document.model_dump(by_alias=True))
    else:
        rows = [
            [
                f"{i.aspect} {i.change}",
                i.place,
                f"{100 * i.gain:+.2f}" + (f" ± {100 * i.gain_se:.2f}" if i.gain_se is not None else ""),
                *([] if table is None else [_number(i.cost_ms), _number(i.gain_per_ms, 100)]),
            ]
            for i in insights
        ]
        costs = [] if table is None else ["latency, ms", "points per ms"]
        print_table(["change", "where", "accuracy, points", *costs], rows)
        for finding in document.findings:
            click.echo(finding)
        if not document.findings:
            say("no finding is beyond its error bars; more passes of `estimate` narrow them")
    if html:
        from deploynas.report.insights_page import page

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(document), encoding="utf-8")
        say(f"wrote {html}")
    say(f"next: {search_command(estimator_path, estimator.space)}")


def _explained(path: Path) -> BilinearEstimator:
    """The estimator, if single decisions have a worth of their own in it."""
    from deploynas.accuracy.bilinear import BilinearEstimator
    from deploynas.accuracy.estimator_file import load_estimator
    from deploynas.accuracy.indexed import IndexedEstimator

    estimator = load_estimator(path)
    if isinstance(estimator, BilinearEstimator):
        return estimator
    if isinstance(estimator, IndexedEstimator):
        raise InputError(
            f"{path}: behind a link, what a decision is worth depends on the rest of the network",
            hint="in Python: `IndexedEstimator.load(path).contributions_at(network)`, or `worth_at` of two networks",
        )
    raise InputError(
        f"{path} has no contributions of single decisions to explain",
        hint="`deploynas estimate --method contributions`, or `bilinear`",
    )


def _number(value: float | None, scale: float = 1) -> str:
    return "" if value is None else f"{scale * value:.3g}"
