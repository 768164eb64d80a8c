"""How the results of a search look to people: one network in full, several in a list, a frontier, cost
ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import print_table, say
from deploynas.cli.search_hnas import spent
from deploynas.cli.validation_words import ranking, say_groups, say_results
from deploynas.search.feasibility import show as cost_text

if TYPE_CHECKING:
    from deploynas.accuracy.estimator_file import EstimatorValidation
    from deploynas.errors import GateError
    from deploynas.search.feasibility import CostRange
    from deploynas.search.result_file import FrontierRecord, LimitRecord, NetworkRecord, SearchFile, SharingRecord

RESOURCES = ("params", "macs", "size_bytes", "peak_memory_bytes")


def show(document: SearchFile) -> None:
    if document.frontier:
        _show_frontier(document)
    elif len(document.networks) == 1:
        _show_network(document)
    elif document.networks:
        _show_ranking(document)
    if document.each:
        _show_sharing(document)
    _say_trust(document)


def _show_network(document: SearchFile) -> None:
    (network,) = document.networks
    limited = {use.name: use for use in network.limits}
    rows = [[_accuracy_title(network, document), _accuracy(network), "", ""]]
    if network.measured_accuracy is not None:
        rows.insert(0, ["accuracy, measured", _measured(network), "", ""])
    rows += [[name, cost_text(use.predicted), cost_text(use.budget), _error(use)] for name, use in limited.items()]
    rows += [[name, cost_text(getattr(network, name)), "", ""] for name in RESOURCES if name not in limited]
    print_table(["", "predicted", "budget", "error"], rows, title=_claim(network))
    click.echo(network.architecture)


def _show_ranking(document: SearchFile) -> None:
    networks = document.networks
    column, brief = _brief(document, networks)
    measured, timed = networks[0].measured_accuracy is not None, networks[0].measured_latency_ms is not None
    columns = ["#", *(["accuracy, measured"] if measured else []), _accuracy_title(networks[0], document)]
    columns += [*(["latency, measured"] if timed else []), *(use.name for use in networks[0].limits), column]
    rows = [
        [
            i + 1,
            *([_measured(network)] if measured else []),
            _accuracy(network),
            *([_timed(network)] if timed else []),
            *(cost_text(use.predicted) for use in network.limits),
            brief[i],
        ]
        for i, network in enumerate(networks)
    ]
    by_prediction = f"the {len(networks)} best by prediction, ordered by measurement"
    validated = f"the {len(networks)} best of those that were validated ({networks[0].solver})"
    title = (validated if document.hnas else by_prediction) if measured else _claim(networks[0])
    print_table(columns, rows, title=title)
    for i, network in enumerate(networks):
        click.echo(f"{i + 1}: {network.architecture}")


def _show_sharing(document: SearchFile) -> None:
    rows = []
    for record in document.each:
        own = next(use for use in record.own.limits if use.name == record.limit)
        rows.append(
            [
                record.limit,
                cost_text(own.budget),
                cost_text(own.predicted),
                _accuracy(record.own),
                _loss(record),
            ]
        )
    title = _accuracy_title(document.each[0].own, document)
    columns = ["device", "budget", "its own network", title, "loses by sharing"]
    print_table(columns, rows, title="One network each")
    if not document.networks:
        for record in document.each:
            click.echo(f"{record.limit}: {record.own.architecture}")


def _show_frontier(document: SearchFile) -> None:
    column, brief = _brief(document, document.frontier)
    rows = [[i + 1, f"{p.latency_ms:.4f}", _accuracy(p), brief[i]] for i, p in enumerate(document.frontier)]
    print_table(["#", "latency_ms", _accuracy_title(document.frontier[0], document), column], rows)
    say("the architectures: `--json`, or `--out FILE`, of which `finetune FILE --pick #` takes one")


def show_ranges(ranges: Sequence[CostRange]) -> None:
    rows = [
        [
            r.cost.name,
            cost_text(r.cost.budget),
            cost_text(r.smallest),
            cost_text(r.median),
            cost_text(r.heaviest),
            f"{100 * r.share_within:.1f} %",
            "yes" if r.smallest <= r.cost.budget else "no",
        ]
        for r in ranges
    ]
    columns = [
        "limit",
        "budget",
        "smallest",
        "median",
        "heaviest",
        "random networks within",
        "can be met alone",
    ]
    print_table(columns, rows)


def ranges_document(ranges: Sequence[CostRange], failure: GateError | None) -> dict[str, object]:
    return {
        "limits": [
            {
                "name": r.cost.name,
                "budget": r.cost.budget,
                "smallest": r.smallest,
                "median": r.median,
                "heaviest": r.heaviest,
                "share_within": r.share_within,
            }
            for r in ranges
        ],
        "feasible": failure is None,
        "reason": failure.message if failure else None,
    }


def _say_trust(document: SearchFile) -> None:
    """What an accuracy here is, and how far predictions can be trusted."""
    from deploynas.accuracy.estimator_file import EstimatorValidation

    given, results = document.estimator_validation, document.estimator_results
    validation = EstimatorValidation.model_validate(given) if given else None
    networks = [*document.networks, *(record.own for record in document.each)]
    records: list[NetworkRecord | FrontierRecord] = [*networks, *document.frontier]
    if any(record.accuracy is not None for record in records):
        what = "one-shot accuracy: with weights inherited from the supernet, before fine-tuning"
        say(f"{f'accuracy: {results.about}' if results and results.about else what}; (90 % interval)")
    if document.hnas:
        say(f"score: {document.ranked_by}; it only says which networks were validated")
        say(spent(document.hnas))
        _say_unprofiled(networks)
        return
    if document.ranked_by:
        _say_ranking(document.ranked_by, validation)
        _say_unprofiled(networks)
        return
    if results:
        say_results(results)
    if validation and validation.kendall_tau is not None:
        say(f"estimator: {ranking(validation)}")
        say_groups(validation, results)
    else:
        say("estimator: not validated, so its accuracies are for ranking")
    if validation and validation.frontier_mean_error is not None:
        error, se = validation.frontier_mean_error, validation.frontier_mean_error_se or 0.0
        say(
            f"where the search goes: expected - measured {100 * error:+.2f} ± {100 * se:.2f} points on "
            f"{validation.frontier_networks} networks that the estimator had not been told of"
        )
    _say_unprofiled(networks)


def _say_ranking(ranked_by: str, validation: EstimatorValidation | None) -> None:
    say(f"score: {ranked_by}; it only ranks, and says nothing about the accuracy to expect")
    if validation and validation.kendall_tau is not None:
        say(f"estimator: {ranking(validation)}")
    else:
        say("estimator: its ranking was not held against any accuracy")


def _say_unprofiled(networks: Sequence[NetworkRecord]) -> None:
    uses = [use for network in networks for use in network.limits]
    if any(use.unit == "ms" and use.relative_error is None for use in uses):
        say("latency: the table was not profiled, so its error is not known")


def _claim(network: NetworkRecord) -> str:
    if network.optimal:
        return f"proven optimal ({network.solver})"
    if network.gap is not None:
        return f"not proven optimal ({network.solver}): its score is at most {network.gap:.3g} below the best"
    return f"not proven optimal ({network.solver})"


def _brief(document: SearchFile, networks: Sequence[NetworkRecord | FrontierRecord]) -> tuple[str, list[str]]:
    """What a line has room for of every network, under the name of what that is."""
    from deploynas.space import Space

    space = Space.from_description(document.space)
    return f"{space.decisions.choice_word}s", [space.brief(space.architecture(own.choices)) for own in networks]


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:.2f} %"


def _accuracy_title(record: NetworkRecord | FrontierRecord, document: SearchFile) -> str:
    if record.accuracy is None:
        return "score, which only ranks"
    return "accuracy, expected" if document.estimator_results else "accuracy, one-shot"


def _accuracy(record: NetworkRecord | FrontierRecord) -> str:
    """With the interval, where it is known; a score that only ranks is not shown as per cent."""
    if record.accuracy is None:
        return f"{record.score:.6g}"
    if record.accuracy_interval is None:
        return _percent(record.accuracy)
    low, high = record.accuracy_interval
    return f"{100 * record.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _loss(record: SharingRecord) -> str:
    if record.loss is None:
        return "none fits all"
    return f"{record.loss:.6g}" if record.own.accuracy is None else f"{100 * record.loss:.2f} points"


def _measured(network: NetworkRecord) -> str:
    if network.measured_accuracy is None or network.measured_accuracy_se is None:
        return ""
    return f"{100 * network.measured_accuracy:.1f} % ± {100 * network.measured_accuracy_se:.2f}"


def _timed(network: NetworkRecord) -> str:
    if network.measured_latency_ms is None or network.measured_latency_error is None:
        return ""
    return f"{network.measured_latency_ms:.4g} ms ± {100 * network.measured_latency_error:.1f} %"


def _error(use: LimitRecord) -> str:
    return "" if use.relative_error is None else f"± {100 * use.relative_error:.1f} %"
