"""Both latencies of a shipped file and what became of the budget: the same words on every page and on the console.

*Undisturbed* is what the file takes when nobody else computes; *on this machine as it was* is what a clock saw. Neither
is shown without the other. Reports of earlier versions know less, and show what they know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deploynas.outcome import Outcome, budget_words, outcome_of, outcome_phrase
from deploynas.report.document import ReportFile, ShippedFile
from deploynas.report.numbers import NOTHING, among_ms, ms, percent, size
from deploynas.timing import HOW, Loading, Timing

UNDISTURBED = "undisturbed"
AS_IT_WAS = "on this machine as it was"


@dataclass(frozen=True)
class Held:
    """What became of the budget."""

    outcome: Outcome
    phrase: str  # "held undisturbed, missed by the clock"
    budget: str  # "0.149 ms (undisturbed)"


def undisturbed_ms(report: ReportFile, file: ShippedFile) -> float | None:
    """None in an earlier report of a device that left disturbances in."""
    if file.timing:
        return file.timing.undisturbed.latency_ms
    return file.latency_ms if report.device.undisturbed else None


def median_ms(file: ShippedFile) -> float | None:
    """As it was; None in an earlier report that does not say."""
    return file.timing.clock.p50_ms if file.timing else file.percentiles_ms.get("p50")


def table_kind(report: ReportFile) -> str:
    """The latency that tables of this device are of, and so predictions and all that is compared with them."""
    return UNDISTURBED if report.device.undisturbed else f"{report.device.statistic} as it was"


def held(report: ReportFile) -> Held | None:
    """None without a budget."""
    budget_ms, kind, timing = report.budget_ms, report.device.budget, report.shipped.timing
    if budget_ms is None:
        return None
    if timing is None:
        return _held_earlier(report, budget_ms)
    budget = f"{ms(budget_ms)} ({budget_words(kind)})"
    return Held(outcome_of(timing, budget_ms, kind), outcome_phrase(timing, budget_ms, kind), budget)


def _held_earlier(report: ReportFile, budget_ms: float) -> Held:
    """Of an earlier version: the budget was about the latency of tables, and the clock's median may be missing."""
    budget, median = f"{ms(budget_ms)} ({table_kind(report)})", median_ms(report.shipped)
    if report.shipped.latency_ms > budget_ms:
        return Held("missed", "missed", budget)
    if not report.device.undisturbed:
        return Held("held", "held by the clock", budget)
    if median is None:
        return Held("held undisturbed", "held undisturbed, by the clock not known", budget)
    if median > budget_ms:
        return Held("held undisturbed", "held undisturbed, missed by the clock", budget)
    return Held("held", "held by both", budget)


def both_latencies(report: ReportFile, file: ShippedFile) -> str:
    """ "undisturbed 0.128 ms, on this machine as it was 0.221 ms (median)"."""
    quiet, median = undisturbed_ms(report, file), median_ms(file)
    return f"{UNDISTURBED} {ms(quiet)}, {AS_IT_WAS} {ms(median)} (median)"


def undisturbed_words(report: ReportFile, file: ShippedFile) -> str:
    """With its interval."""
    quiet = undisturbed_ms(report, file)
    if file.timing:
        return f"{ms(quiet)}, 95 % interval {among_ms(file.timing.undisturbed.interval_ms)}"
    return f"{ms(quiet)} ± {percent(file.relative_error)}" if quiet is not None else NOTHING


def as_it_was_words(file: ShippedFile) -> str:
    """The median and what lies above it."""
    said = [f"{ms(median_ms(file))} (median)", *(f"{name} {ms(value)}" for name, value in slower(file))]
    return ", ".join(said)


def slower(file: ShippedFile) -> list[tuple[str, float]]:
    """The percentiles above the median, as it was."""
    if file.timing:
        return [("p90", file.timing.clock.p90_ms), ("p99", file.timing.clock.p99_ms)]
    return [(name, file.percentiles_ms[name]) for name in ("p90", "p95", "p99") if name in file.percentiles_ms]


def latency_rows(report: ReportFile) -> list[tuple[str, str, str, str]]:
    """Of the shipped file: what, predicted, measured, limit."""
    file, found = report.shipped, held(report)
    predicted = ms(report.predicted_of_shipped)
    if report.predicted_of_shipped is not None and report.table_error is not None:
        predicted += f" ± {percent(report.table_error)}"
    of_quiet = report.device.undisturbed  # what tables of this device are about
    rows = [
        (f"latency, {UNDISTURBED}", predicted if of_quiet else "", undisturbed_words(report, file), ""),
        (f"latency, {AS_IT_WAS}", "" if of_quiet else predicted, as_it_was_words(file), ""),
    ]
    return [*rows, ("budget", "", found.phrase, found.budget)] if found else rows


def measured_how(report: ReportFile) -> list[tuple[str, ...]]:
    """A row per fact, a column per file: both latencies in full, loading, memory, and how sure all of that is."""
    facts: list[tuple[str, Callable[[ShippedFile], str]]] = [
        (UNDISTURBED, lambda file: undisturbed_words(report, file)),
        (f"{AS_IT_WAS}: median (p50)", _median),
        *((name, _percentile(name)) for name in ("p90", "p95", "p99")),
        ("mean", _of_timing(lambda timing: ms(timing.clock.mean_ms))),
        (
            "spread: fastest to slowest tenth, over the median",
            _of_timing(lambda timing: percent(timing.clock.spread, 0)),
        ),
        ("inputs per second", _throughput),
        ("timed", _of_timing(_effort)),
        ("stability of the undisturbed latency", _of_timing(lambda timing: timing.stability)),
        ("`session.run` with arrays, from Python, adds", _of_loading(_call)),
        ("loading the session", _of_loading(lambda loading: ms(loading.load_ms))),
        ("first inference", _of_loading(lambda loading: ms(loading.first_ms))),
        ("peak memory of the process", _of_loading(lambda loading: size(loading.peak_memory_bytes))),
        ("of it for the model", _of_loading(lambda loading: size(loading.model_memory_bytes))),
    ]
    rows = [(name, *(said(file) for file in report.files)) for name, said in facts]
    return [row for row in rows if any(cell != NOTHING for cell in row[1:])]


def measured_columns(report: ReportFile) -> tuple[str, ...]:
    return ("", *(file.path for file in report.files))


def measured_notes(report: ReportFile) -> list[str]:
    """Sentences below the rows: how the undisturbed latency was found, and how often it was measured."""
    found: dict[str, list[str]] = {}
    for file in report.files:
        if file.timing:
            found.setdefault(file.timing.undisturbed.how, []).append(file.path)
    notes = []
    for how, paths in found.items():
        of_some = f" ({', '.join(paths)})" if len(found) > 1 else ""
        notes.append(f"Undisturbed{of_some} is {HOW[how]}.")
    if report.shipped.timing:
        notes.append("As it was: raw times of single inferences, whoever else used the machine.")
    return [*notes, f"{waited(report)}."] if report.waits else notes


def waited(report: ReportFile) -> str:
    """How often it was measured until the machine was quiet enough; empty if once."""
    if not report.waits:
        return ""
    times = "once" if len(report.waits) == 1 else f"{len(report.waits)} times"
    others = ", ".join(f"{wait.disturbance:.2f}" for wait in report.waits)
    return (
        f"Measured again {times}, since others were busy; the quietest measurement counts: the machine was "
        f"{report.shipped.disturbance:.2f} times slower than undisturbed ({others} in the others)"
    )


def served_words(report: ReportFile, file: ShippedFile) -> list[str]:
    """Lines for a file that is deployed: where, when, both latencies, and the budget if it is for this file."""
    device, found = report.device, held(report)
    where = f"{report.hardware.processor}, {device.provider}, {device.threads} thread(s), batch {device.batch}"
    lines = [
        f"measured with ONNX Runtime alone on {device.name} ({where}, {file.precision}), {report.created}",
        f"{UNDISTURBED}: {undisturbed_words(report, file)}",
        f"{AS_IT_WAS}: {as_it_was_words(file)}",
    ]
    if file.timing:
        lines[1] += f"; {HOW[file.timing.undisturbed.how]}"
        lines[2] += f", mean {ms(file.timing.clock.mean_ms)}; {_effort(file.timing)}"
    if found and file.precision == report.gated:
        lines.append(f"budget of {found.budget}: {found.phrase}")
    return [" ".join(line.split()) for line in lines]  # no name may break a line


def _of_timing(said: Callable[[Timing], str]) -> Callable[[ShippedFile], str]:
    return lambda file: said(file.timing) if file.timing else NOTHING


def _of_loading(said: Callable[[Loading], str]) -> Callable[[ShippedFile], str]:
    return lambda file: said(file.timing.loading) if file.timing and file.timing.loading else NOTHING


def _median(file: ShippedFile) -> str:
    interval = f", 95 % interval {among_ms(file.timing.clock.p50_interval_ms)}" if file.timing else ""
    return ms(median_ms(file)) + interval


def _percentile(name: str) -> Callable[[ShippedFile], str]:
    return lambda file: ms(dict(slower(file)).get(name))


def _throughput(file: ShippedFile) -> str:
    return f"{file.throughput_per_s:.0f}, from the {'mean' if file.timing else 'median'}"


def _effort(timing: Timing) -> str:
    clock = timing.clock
    return f"{clock.inferences} inferences in {clock.processes} processes, {clock.warmups} warm-up(s) before each group"


def _call(loading: Loading) -> str:
    return NOTHING if loading.call_ms is None else ms(loading.call_ms)


def outcome_class(outcome: Outcome) -> str:
    """As the style sheet calls it: three outcomes, three colours."""
    return {"held": "held", "held undisturbed": "held-undisturbed", "missed": "missed"}[outcome]
