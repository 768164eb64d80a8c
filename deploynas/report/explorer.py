"""The frontier under a slider: for every budget the best network, with its expected accuracy and latency per block.

Without scripts the section shows the shipped network. The script (`explorer.js`) chooses among the networks of the JSON
beside it, in which every text is ready to be shown: it computes nothing that this module or the report does not say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from html import escape

from deploynas.outcome import budget_words
from deploynas.report.document import ExpectedBlock, ExpectedNetwork, MeasuredPoint, ReportFile
from deploynas.report.drawing import chips, colour, facts, legend, measured_name, stages
from deploynas.report.latency_words import both_latencies, table_kind
from deploynas.report.numbers import count, interval, ms, percent
from deploynas.report.page import section
from deploynas.report.plot import Axis, Mark, Plot

FAR = 2.0  # times the slowest network: a budget beyond is not drawn
THUMB_PX = 18  # of the slider, as in the style sheet
FIXED = "fixed parts"

Cell = str | float | None


def explorer_section(report: ReportFile) -> str:
    """Empty if there is no frontier; of reports from before there were blocks, the plot alone."""
    if not report.frontier:
        return ""
    explorer = _Explorer(report)
    if not explorer.drawable:
        return section("Accuracy and latency", explorer.figure(), note=escape(explorer.note()))
    left = f"{explorer.slider()}{explorer.figure()}"
    right = f"{explorer.readout()}{explorer.drawing()}"
    return section(
        "The best network for every budget",
        f'<div class="explorer" id="explorer"><div>{left}</div><div>{right}</div></div>',
        explorer.data(),
        f'<p class="note">{escape(explorer.note())}</p>',
    )


@dataclass(frozen=True)
class _Explorer:
    report: ReportFile

    @cached_property
    def drawable(self) -> bool:
        return self.report.expected is not None and all(network.blocks for network in self.report.frontier)

    @cached_property
    def shipped(self) -> ExpectedNetwork:
        assert self.report.expected is not None
        return self.report.expected

    @cached_property
    def largest_ms(self) -> float:
        """Of all blocks of all networks: bars of different networks compare."""
        networks = [*self.report.frontier, self.shipped]
        return max((block.predicted_ms or 0.0 for network in networks for block in _rows(network)), default=0) or 1.0

    @cached_property
    def slowest_ms(self) -> float:
        return max(network.latency_ms for network in [*self.report.frontier, self.shipped])

    @cached_property
    def measured(self) -> dict[str, MeasuredPoint]:
        """By architecture; of one that was measured twice, the first."""
        return {point.architecture: point for point in reversed(self.report.measured)}

    # -- the plane of accuracy and latency --------------------------------------------------------

    @cached_property
    def plot(self) -> Plot:
        report, marks = self.report, self._marks()
        xs, budget = [mark.x for mark in marks], self.budget_ms
        if budget is not None and budget < FAR * max(xs):
            xs.append(budget)
        else:
            budget = None  # a line so far away would squeeze everything else; the tile above names it
        ys = [mark.y for mark in marks]
        chosen = None
        if self.drawable:
            chosen = (self.shipped.latency_ms, self.shipped.accuracy)
            xs.append(chosen[0])
            ys.append(chosen[1])
        return Plot(
            "frontier",
            f"One-shot accuracy against latency: {len(report.frontier)} predicted optima, "
            f"{len(report.measured)} measured networks",
            Axis.around(f"latency on {report.device.name}, {table_kind(report)}, ms", xs),
            Axis.around("one-shot accuracy, %", ys, factor=100),
            marks,
            line=[(p.latency_ms, p.accuracy) for p in report.frontier],
            vertical=(budget, f"budget {ms(budget)}") if budget is not None else None,
            chosen=chosen,
            width=520,
            height=330,
        )

    @property
    def budget_ms(self) -> float | None:
        """None if it is about another latency than those drawn here: a line would compare what does not compare."""
        device, earlier = self.report.device, self.report.shipped.timing is None
        comparable = earlier or (device.undisturbed and device.budget == "undisturbed")
        return self.report.budget_ms if comparable else None

    def _marks(self) -> list[Mark]:
        """Predicted optima, measured networks of the frontier, and what is shipped: all one-shot."""
        report = self.report
        marks = [
            Mark(
                p.latency_ms,
                p.accuracy,
                "predicted",
                (self._optimum(p), *facts(p.latency_ms, p.accuracy), *stages(p.architecture)),
                key=str(i),
            )
            for i, p in enumerate(report.frontier)
        ]
        for p in report.measured:
            if p.shipped:
                continue  # its mark follows
            predicted = f"predicted: {ms(p.predicted_ms)}, {percent(p.predicted_accuracy)}"
            lines = (measured_name(report, p), *facts(p.latency_ms, p.accuracy), predicted, *stages(p.architecture))
            marks.append(Mark(p.latency_ms, p.accuracy, "measured", lines))
        accuracy = self.measured_accuracy
        if accuracy is not None:
            latency_ms = report.predicted_file.latency_ms
            latencies = both_latencies(report, report.predicted_file)
            lines = ("Shipped, measured", latencies, f"one-shot accuracy {percent(accuracy)}")
            lines += stages(report.architecture)
            marks.append(Mark(latency_ms, accuracy, "shipped", lines, key="shipped", name="shipped"))
        return marks

    def _optimum(self, network: ExpectedNetwork) -> str:
        shipped = network.architecture == self.report.architecture
        return "Predicted optimum: the shipped network" if shipped else "Predicted optimum"

    @cached_property
    def measured_accuracy(self) -> float | None:
        """Of the shipped network, one-shot."""
        gain = self.report.gain
        found = gain.one_shot.of("found") if gain else None
        return found.mean if found else self.report.inherited_accuracy

    def figure(self) -> str:
        named = [("predicted", "predicted optimum")]
        if any(not point.shipped for point in self.report.measured):
            named.append(("measured", "measured"))
        if self.measured_accuracy is not None:
            named.append(("shipped", "shipped, measured"))
        return f"<figure>{self.plot.svg()}{legend(named)}</figure>"

    def note(self) -> str:
        said = (
            "Every hollow point is the most accurate network for its latency, by estimator and table; filled ones were "
            "measured on the device. All accuracies here are one-shot, of validation images: before fine-tuning. All "
            f"latencies of the plot: {table_kind(self.report)}."
        )
        if self.report.budget_ms is not None and self.budget_ms is None:
            said += f" The budget is about another ({budget_words(self.report.device.budget)}): it has no line there."
        trust = self.report.estimator_validation
        if trust and trust.kendall_tau is not None:
            said += (
                f" The estimator ranks {trust.networks} unseen networks with a Kendall tau of {trust.kendall_tau:.2f}."
            )
        return said

    # -- one network ------------------------------------------------------------------------------

    def slider(self) -> str:
        """It lies over the axis of the plot, so that the thumb is where the budget is."""
        first, last = self.report.frontier[0].latency_ms, self.report.frontier[-1].latency_ms
        left, right = (100 * self.plot.place(x, 0)[0] / self.plot.width for x in (first, last))
        place = f"margin-left:calc({left:.2f}% - {THUMB_PX / 2}px);width:calc({right - left:.2f}% + {THUMB_PX}px)"
        span = f'min="{first!r}" max="{last!r}" step="any" value="{min(max(self.shipped.latency_ms, first), last)!r}"'
        shown = self.texts(self.shipped)
        spoken = escape(f"{shown['latency']}, expected accuracy {shown['accuracy']}", quote=True)
        return (
            '<div class="slider" id="slider" hidden><div><label for="budget">Latency budget: '
            '<output id="budget-text" for="budget"></output></label>'
            '<button type="button" id="to-shipped">shipped network</button></div>'
            f'<input type="range" id="budget" {span} aria-valuetext="{spoken}" style="{place}"></div>'
        )

    def readout(self) -> str:
        """What the script fills in for another network; spoken when it changes."""
        shown = self.texts(self.shipped)
        names = (("accuracy", "expected one-shot accuracy"), ("latency", "predicted latency"), ("size", ""))
        parts = [
            f'<div><b id="network-{key}">{escape(str(shown[key]))}</b> <span class="soft">{escape(name)}</span></div>'
            for key, name in names
        ]
        return (
            '<div class="readout" id="readout" role="status" aria-live="polite">'
            f'<div class="tag" id="network-tag">{escape(str(shown["tag"]))}</div>{"".join(parts)}</div>'
        )

    def drawing(self) -> str:
        rows = max(len(_rows(network)) for network in [*self.report.frontier, self.shipped])
        shares, lines = [], []
        for block in _rows(self.shipped):
            of_stage, width = colour(block.name), self.width_of(block)
            shares.append(f'<i style="flex:{width:g};background:{of_stage}"></i>')
            lines.append(
                f'<div><span><span class="dot" style="background:{of_stage}"></span>{escape(block.name)}</span>'
                f'<span class="what">{chips(block.text, block.shape)}</span>'
                f'<span><span class="bar"><i style="width:{width:g}%;background:{of_stage}"></i></span></span>'
                f'<span class="number">{ms(block.predicted_ms)}</span></div>'
            )
        shares.append(f'<u style="flex:{self.rest_of(self.shipped):g}"></u>')
        return (
            f'<div class="drawing" style="min-height:{1.7 * rows + 3:.1f}rem">'
            f'<div class="ribbon" id="network-ribbon">{"".join(shares)}</div>'
            f'<div class="flow" id="network-blocks">{"".join(lines)}</div></div>'
        )

    def width_of(self, block: ExpectedBlock) -> float:
        return round(100 * (block.predicted_ms or 0.0) / self.largest_ms, 2)

    def rest_of(self, network: ExpectedNetwork) -> float:
        """What the slowest network takes longer, in the unit of the widths: ribbons of networks compare too."""
        return round(100 * (self.slowest_ms - network.latency_ms) / self.largest_ms, 2)

    # -- for the script ---------------------------------------------------------------------------

    def texts(self, network: ExpectedNetwork) -> dict[str, str]:
        """What is said about a network."""
        among = f", {interval(*network.interval)}" if network.interval else ""
        params, macs = count(network.params or 0), count(network.macs or 0)
        _, at, side = network.architecture.rpartition(" @")  # where the input size was decided
        return {
            "accuracy": percent(network.accuracy) + among,
            "latency": ms(network.latency_ms),
            "size": f"{params} parameters, {macs} MACs" + (f", images of {side}×{side}" if at else ""),
            "tag": self._tag(network),
        }

    def _tag(self, network: ExpectedNetwork) -> str:
        """Whether it was measured."""
        if network.architecture == self.report.architecture:
            accuracy = self.measured_accuracy
            judged = f", {percent(accuracy)} one-shot" if accuracy is not None else ""
            return f"shipped, measured: {both_latencies(self.report, self.report.predicted_file)}{judged}"
        point = self.measured.get(network.architecture)
        return f"measured: {ms(point.latency_ms)}, {percent(point.accuracy)} one-shot" if point else "not measured"

    def data(self) -> str:
        networks = [self._network(network) for network in self.report.frontier]
        document = {"networks": networks, "shipped": self._network(self.shipped)}
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        return f'<script type="application/json" id="frontier-data">{text}</script>'

    def _network(self, network: ExpectedNetwork) -> dict[str, Cell | list[list[Cell]]]:
        x, y = self.plot.place(network.latency_ms, network.accuracy)
        blocks: list[list[Cell]] = [
            [b.name, b.text, b.shape, b.predicted_ms, ms(b.predicted_ms), self.width_of(b), colour(b.name)]
            for b in _rows(network)
        ]
        return {
            "latency_ms": network.latency_ms,
            "x": x,
            "y": y,
            **self.texts(network),
            "rest": self.rest_of(network),
            "architecture": network.architecture,
            "blocks": blocks,
        }


def _rows(network: ExpectedNetwork) -> list[ExpectedBlock]:
    """What is drawn: the fixed parts, of which only the sum is known, then every searched block."""
    fixed = [block for block in network.blocks if block.predicted_ms is None]
    names = ", ".join(block.name for block in fixed)
    together = ExpectedBlock(name=FIXED, text=names, shape="", predicted_ms=network.fixed_ms)
    return [together, *(block for block in network.blocks if block.predicted_ms is not None)]
