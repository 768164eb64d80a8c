"""`deploynas explain`: what the estimator teaches about design choices, about one network, or about two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli import explain_int8, explain_landscape
from deploynas.cli.console import json_option, print_json, print_table, say
from deploynas.cli.network_argument import NETWORK_HELP, read_network
from deploynas.cli.next_commands import search_command
from deploynas.cli.options import supernet_help
from deploynas.cli.validation_words import ranking, say_groups, say_results
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.accuracy.estimator_file import StoredEstimator
    from deploynas.accuracy.explanation_files import AtNetwork, NetworkComparisonFile, NetworkExpectation
    from deploynas.accuracy.insights import InsightsFile
    from deploynas.latency.table import LatencyTable


@click.command()
@click.argument("estimator_path", metavar="ESTIMATOR", type=click.Path(path_type=Path))
@click.argument("networks", metavar="[A B]", nargs=-1)
@click.option("--at", metavar="NETWORK", help=f"What single changes would bring to this network: {NETWORK_HELP}")
@click.option("--latency", type=click.Path(path_type=Path), metavar="TABLE", help="Show costs on this device too.")
@click.option(
    "--landscape", type=click.Path(path_type=Path), metavar="RUN",
    help=f"With `--at`: the loss around its weights in this supernet, beside others. {supernet_help}",
)  # fmt: skip
@click.option("--int8", is_flag=True, help="ESTIMATOR is a bundle of `export --int8 mixed`: what 8 bits cost, by part.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots.")
@json_option
def command(
    estimator_path: Path,
    networks: tuple[str, ...],
    at: str | None,
    latency: Path | None,
    landscape: Path | None,
    int8: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Explain an estimator: the worth of every design choice, beside its latency.

    ESTIMATOR is a file from `estimate`, or the name of one that ships, such as ofa-mbv3-imagenet.
    Depth per stage; expansion, kernel and squeeze-and-excitation per stage and per block, each averaged over
    everything else. A sentence is printed only where the standard errors allow it. With `--at`: what one more
    block, a larger kernel and so on would bring to one network; `--landscape` adds how the loss behaves around its
    weights. With two networks A and B: why A and not B. With `--int8` it is a bundle that is explained: which of its
    parts suffer from 8 bits, and what they save.
    """
    from deploynas.accuracy.estimator_file import load_estimator
    from deploynas.latency.table import LatencyTable

    if int8:
        if networks or at is not None or latency or landscape or html:
            raise InputError("`--int8` takes a bundle alone", hint="`deploynas explain bundles/cpu-1t --int8`")
        explain_int8.explain(estimator_path, as_json)
        return
    if len(networks) not in (0, 2):
        raise InputError(f"two networks are compared, got {len(networks)}", hint="`--at NETWORK` looks at one")
    if networks and (at is not None or html is not None):
        raise InputError("`--at` and `--html` are not for two networks")
    if landscape is not None and at is None:
        raise InputError("`--landscape` looks at one network", hint="`--at NETWORK`")
    estimator = load_estimator(estimator_path)
    table = LatencyTable.load(latency) if latency else None
    if table:
        estimator.space.require_hash(table.space.hash, f"{latency}: its table")
    if estimator.scale == "ordinal" and (networks or at is not None or html is not None):
        raise InputError(
            f"{estimator_path} only ranks networks, and has nothing to say in points of accuracy",
            hint="without `--at`, `--html` and networks it shows what every decision adds to the score",
        )
    if networks:
        _compare(estimator, networks, table, as_json)
    else:
        _insights(estimator, at, table, landscape, html, as_json)
    _say_trust(estimator)
    say(f"next: {search_command(estimator_path, estimator.space)}")


def _say_trust(estimator: StoredEstimator) -> None:
    """Of an estimator from elsewhere: what it was made from, and how right it is."""
    if estimator.ranked_by:
        say(f"score: {estimator.ranked_by}; it only ranks, and says nothing about accuracy")
    if estimator.results is None:
        return
    if estimator.results.about:
        say(f"accuracy: {estimator.results.about}")
    say_results(estimator.results)
    if estimator.validation and estimator.validation.kendall_tau is not None:
        say(f"estimator: {ranking(estimator.validation)}")
        say_groups(estimator.validation, estimator.results)


def _compare(estimator: StoredEstimator, networks: tuple[str, ...], table: LatencyTable | None, as_json: bool) -> None:
    from deploynas.accuracy.explanation_files import network_comparison_file

    first, second = (read_network(text, estimator.space) for text in networks)
    document = network_comparison_file(estimator, (first, second), table, table.device_name if table else None)
    if as_json:
        print_json(document.model_dump(by_alias=True))
    else:
        _show_comparison(document)


def _insights(
    estimator: StoredEstimator,
    at: str | None,
    table: LatencyTable | None,
    landscape: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    from deploynas.accuracy.explanation_files import at_network
    from deploynas.accuracy.insights import insights_file, insights_of, worth_here

    network = read_network(at, estimator.space) if at is not None else None
    device, block_ms = (table.device_name, table.option_ms()) if table else (None, None)
    if network is None:
        found = insights_of(estimator, block_ms)
        document = insights_file(estimator, found, device)
    else:
        found = insights_of(estimator, block_ms) if _has_insights(estimator) else []
        at_it, here = at_network(estimator, network, table), worth_here(estimator, found, network)
        document = insights_file(estimator, found, device, at_it, here)
        if landscape:
            document.landscape = explain_landscape.look(landscape, network, table)
    if as_json:
        print_json(document.model_dump(by_alias=True))
    elif document.at:
        _show_network(document.at)
    else:
        _show_insights(document)
    if not as_json:
        _show_findings(document, any(i.degrees is not None for i in found))
        if document.landscape:
            explain_landscape.show(document.landscape)
    if html:
        from deploynas.report.insights_page import page

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(document), encoding="utf-8")
        say(f"wrote {html}")


def _has_insights(estimator: StoredEstimator) -> bool:
    from deploynas.accuracy.bilinear import BilinearEstimator
    from deploynas.accuracy.indexed import IndexedEstimator

    return bool(estimator.comparisons) or isinstance(estimator, BilinearEstimator | IndexedEstimator)


def _show_insights(document: InsightsFile) -> None:
    if document.ranked_by:
        _show_ranking_insights(document)
        return
    costs = ["latency, ms", "points per ms"] if document.device else []
    rows = [
        [
            f"{i.aspect} {i.change}",
            i.place,
            _points(i.gain, i.gain_se),
            *([_number(i.cost_ms), _number(i.gain_per_ms, 100)] if costs else []),
        ]
        for i in document.insights
    ]
    print_table(["change", "where", "accuracy, points", *costs], rows, "Averages over all other choices")


def _show_ranking_insights(document: InsightsFile) -> None:
    """In the unit of a score that only ranks: signs and order are what there is to see."""
    rows = [
        [f"{i.aspect} {i.change}", i.place, f"{i.gain:+.3g}", *([_number(i.cost_ms)] if document.device else [])]
        for i in document.insights
    ]
    columns = ["change", "where", "score, which only ranks", *(["latency, ms"] if document.device else [])]
    print_table(columns, rows, "Averages over all other choices")


def _show_network(at: AtNetwork) -> None:
    costs = ["latency, ms", "points per ms"] if at.network.latency_ms is not None else []
    rows = [
        [
            c.what,
            c.place,
            _points(c.accuracy, c.accuracy_se),
            *([_signed(c.latency_ms), _number(c.accuracy_per_ms, 100)] if costs else []),
        ]
        for c in at.changes
    ]
    click.echo(_expected(at.network))
    print_table(["change", "where", "accuracy, points", *costs], rows)


def _show_findings(document: InsightsFile, testable: bool) -> None:
    for finding in document.findings:
        click.echo(finding)
    if document.ranked_by:
        say("nothing is put into words: a score that only ranks has no points of accuracy")
    elif document.results:
        say("nothing is put into words: the networks of a file of results were not drawn at random")
    elif not testable:
        say("nothing is put into words: the estimator's file holds no unbiased comparisons; `estimate` writes them")
    elif not document.findings:
        say("no finding is beyond its error bars; more passes of `estimate` narrow them")


def _show_comparison(document: NetworkComparisonFile) -> None:
    costs = document.latency_ms is not None
    rows = [
        [p.what, p.place, _points(p.accuracy, p.accuracy_se), *([_signed(p.latency_ms)] if costs else [])]
        for p in document.parts
    ]
    whole = _points(document.accuracy, document.accuracy_se)
    rows.append(["together", "", whole, *([_signed(document.latency_ms)] if costs else [])])
    columns = ["from B to A", "where", "accuracy, points", *(["latency, ms"] if costs else [])]
    click.echo(f"A: {_expected(document.network)}\nB: {_expected(document.other)}")
    print_table(columns, rows)
    say("each part is the mean over orders in which the decisions can be taken; the parts add up to the difference")


def _expected(network: NetworkExpectation) -> str:
    latency = "" if network.latency_ms is None else f", {network.latency_ms:.3g} ms"
    if network.accuracy is None:
        return f"{network.architecture}: expected accuracy not known, the estimator was not validated{latency}"
    error = "" if network.accuracy_se is None else f" ± {100 * network.accuracy_se:.2f}"
    return f"{network.architecture}: expected accuracy {100 * network.accuracy:.2f}{error} %{latency}"


def _points(gain: float, se: float | None) -> str:
    return f"{100 * gain:+.2f}" + (f" ± {100 * se:.2f}" if se is not None else "")


def _number(value: float | None, scale: float = 1) -> str:
    return "" if value is None else f"{scale * value:.3g}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3g}"
