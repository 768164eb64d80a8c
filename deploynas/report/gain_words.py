"""What a search has gained, in words and rows: the same for the page, for Markdown and for the console.

One-shot and fine-tuned accuracies never share a sentence or a row: the first are of weights that a network inherits
from the supernet, and fine-tuning adds points to all of them.
"""

from __future__ import annotations

from deploynas.report.document import ReportFile
from deploynas.report.gain import GainRecord, Judgement, Role, RoleAccuracy
from deploynas.report.latency_words import table_kind
from deploynas.report.numbers import ms, percent

ONE_SHOT = (
    "One-shot: with the weights that a network inherits from the supernet, batch norm recalibrated, not trained "
    "further. It tells networks apart; fine-tuning raises all of them."
)
NAMES: dict[Role, str] = {
    "found": "found network (shipped)",
    "heaviest": "heaviest network",
    "uniform": "best uniform network within its latency",
    "random": "random networks of its latency",
}


def headline(report: ReportFile) -> str:
    """The network's accuracy and speed beside the others', all of one kind; empty if nothing was compared."""
    gain = report.gain
    if gain is None:
        return ""
    judgement = gain.fine_tuned or gain.one_shot
    found = judgement.of("found")
    assert found is not None
    images = f"{judgement.weights}, {judgement.images} {judgement.part} images"
    said = [f"{percent(found.mean, 1)} ({images})"]
    heaviest, random = judgement.of("heaviest"), judgement.of("random")
    if heaviest:
        said[0] += f", {_speed(gain)} at {percent(heaviest.mean, 1)}"
    if random:
        said.append(f"{_count(random)} of its latency: {_accuracy(random, 1)}")
    return "; ".join(said)


def verdict(report: ReportFile) -> str:
    """Whether searching was worth it, as far as the images can tell; empty if nothing was compared with chance."""
    judgement = report.gain and (report.gain.fine_tuned or report.gain.one_shot)
    random = judgement.of("random") if judgement else None
    if random is None or random.difference is None or random.interval is None:
        return ""
    low, high = random.interval
    points = f"{100 * random.difference:+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})"
    if low > 0:
        return f"Searching was worth {points} against random networks of the same latency"
    if high < 0:
        return f"Random networks of the same latency are better: {points} for the found one"
    return f"No difference from random networks of the same latency can be told: {points}"


def scale_words(report: ReportFile) -> str:
    """What was done to latencies that were measured beside the shipped network; empty if nothing was."""
    scale = report.joint_scale
    if scale is None:
        return ""
    file_ms, precision = report.predicted_file.latency_ms, report.device.precision
    file = "the shipped file" if report.predicted_file is report.shipped else f"the {precision} file"
    return (
        f"Latencies ({table_kind(report)}) of networks that were timed together are on the scale of {file}: "
        f"beside the others the shipped network took {ms(file_ms / scale)}, as the file {ms(file_ms)}, so all are "
        f"multiplied by {scale:.3f}"
    )


def gain_columns(judgement: Judgement) -> tuple[str, ...]:
    kind = f"{judgement.weights}, {judgement.images} {judgement.part} images"
    return kind, "latency", "accuracy", "found is ahead by, points (95 % interval)"


def gain_rows(gain: GainRecord, judgement: Judgement) -> list[tuple[str, ...]]:
    """One row per role: who, measured latency, accuracy, how far the found network is ahead."""
    rows: list[tuple[str, ...]] = []
    for role in judgement.roles:
        latencies = [network.latency_ms for network in gain.of(role.role)][: len(role.accuracies)]
        name = NAMES[role.role] if role.role != "random" else f"{_count(role)} of its latency"
        if role.role != "found" and [n.architecture for n in gain.of(role.role)] == [gain.found.architecture]:
            name += ": the shipped one itself"
        latency = ms(max(latencies))
        if len(latencies) > 1:
            latency = f"{ms(min(latencies)).removesuffix(' ms')} to {latency}"
        rows.append((name, latency, _accuracy(role, 2), _ahead(role)))
    return rows


def _speed(gain: GainRecord) -> str:
    ratio = gain.of("heaviest")[0].latency_ms / gain.found.latency_ms
    return f"{ratio:.2g} times faster than the heaviest network" if ratio >= 1.05 else "as fast as the heaviest network"


def _count(role: RoleAccuracy) -> str:
    count = len(role.accuracies)
    return f"{count} random network{'s' if count > 1 else ''}"


def _accuracy(role: RoleAccuracy, digits: int) -> str:
    if role.se is None:
        return percent(role.mean, digits)
    return f"{100 * role.mean:.{digits}f} ± {100 * role.se:.{digits}f} %"


def _ahead(role: RoleAccuracy) -> str:
    if role.difference is None or role.interval is None:
        return ""
    low, high = role.interval
    return f"{100 * role.difference:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
