"""Does a file with fewer bits than fp32 pay on the device? It ships if it is faster and as accurate as was asked.

Faster is what an interleaved measurement says with 95 % confidence, of whole files. Where the device's own precision
is smaller, or shipping was forced, the file ships whatever comes out, and what came out is said all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deploynas.device import Device
from deploynas.export.integer_file import Int8File
from deploynas.export.network_file import Bf16File, Fp16File, Fp32File
from deploynas.latency.bench import BenchResult
from deploynas.latency.ratio import Ratio
from deploynas.report.mixed_precision import MixedPrecisionRecord
from deploynas.report.verdict import Asked, VerdictRecord
from deploynas.timing import Timing

SmallerFile = Fp16File | Bf16File | Int8File


@dataclass(frozen=True)
class NetworkFiles:
    """The files of one network: fp32 always, the others where they were asked for and could be made."""

    fp32: Fp32File
    fp16: Fp16File | None = None
    bf16: Bf16File | None = None
    int8: Int8File | None = None
    mixed: Int8File | None = None  # 8 bits in some parts
    impossible: Mapping[str, str] = field(default_factory=dict)  # by precision that was asked for: why there is none
    assignments: MixedPrecisionRecord | None = None  # of 8 bits to parts, where that was asked for

    def by_precision(self) -> dict[str, Fp32File | SmallerFile]:
        """Fp32 first, which the others are compared with."""
        return {"fp32": self.fp32, **self.smaller()}

    def smaller(self) -> dict[str, SmallerFile]:
        every: dict[str, SmallerFile | None] = {
            "fp16": self.fp16,
            "bf16": self.bf16,
            "int8": self.int8,
            "mixed": self.mixed,
        }
        return {precision: file for precision, file in every.items() if file is not None}


@dataclass(frozen=True)
class TimedFiles:
    """Files of a network that were timed together; the one that a budget is about is the one to deploy."""

    benches: dict[str, BenchResult]  # by precision, of those that ship
    gated: str
    verdicts: tuple[VerdictRecord, ...] = ()

    @property
    def gated_bench(self) -> BenchResult:
        return self.benches[self.gated]

    @property
    def timing(self) -> Timing:
        found = self.gated_bench.timing
        assert found is not None, "it was measured just now"
        return found


@dataclass(frozen=True)
class Rule:
    """When files with fewer bits ship."""

    asked: Mapping[str, Asked]  # by precision
    max_accuracy_drop: float
    untrained: bool = False  # random weights have no accuracy to lose


def timed_files(
    files: NetworkFiles, benches: Mapping[str, BenchResult], ratios: Mapping[str, Ratio], device: Device, rule: Rule
) -> TimedFiles:
    """What ships of the files that were timed, and which of them is the one to deploy: the fastest that was asked for,
    unless the device has a precision of its own.
    """
    verdicts = [
        _verdict(precision, file, benches.get(precision), ratios.get(precision), rule)
        for precision, file in files.smaller().items()
    ]
    for precision, why in files.impossible.items():
        words = f"{precision} refused: {why}"
        verdicts.append(VerdictRecord(precision=precision, ships=False, asked=rule.asked[precision], words=words))
    refused = {verdict.precision for verdict in verdicts if not verdict.ships}
    shipped = {precision: bench for precision, bench in benches.items() if precision not in refused}
    gated: str = device.precision
    smaller = [verdict for verdict in verdicts if verdict.ships]
    if gated == "fp32" and smaller:
        gated = max(smaller, key=lambda verdict: verdict.faster or 0.0).precision
    return TimedFiles(shipped, gated, tuple(verdicts))


def _verdict(
    precision: str, file: SmallerFile, bench: BenchResult | None, ratio: Ratio | None, rule: Rule
) -> VerdictRecord:
    asked, lost = rule.asked[precision], file.lost
    faster = ratio is not None and ratio.verdict == "faster"
    accurate = rule.untrained or (lost is not None and lost.drop <= rule.max_accuracy_drop)
    pays = faster and accurate
    ships = pays or asked != "measured"
    speed = speed_words(ratio) if ratio else "the provider runs no other file to compare it with"
    if isinstance(file, Int8File) and not faster and file.processor.lacks:
        speed += f", on a processor without {file.processor.lacks}"
    if rule.untrained:
        reasons = [speed, "untrained, so nothing is known of its accuracy"]
    elif lost is None:
        reasons = [speed, f"its accuracy is not known: {file.unjudged}" if isinstance(file, Bf16File) else ""]
    else:
        reasons = [speed, lost.words(rule.max_accuracy_drop)]
    if not ships:  # what speaks for it is no reason
        reasons = [reason for reason, good in zip(reasons, (faster, accurate), strict=True) if not good]
    known = None if rule.untrained else lost
    how = {"measured": "ships", "force": "ships, forced", "device": "ships, as the device asks"}[asked]
    return VerdictRecord(
        precision=precision,
        ships=ships,
        asked=asked,
        words=f"{precision} {how if ships else 'refused'}: {', and '.join(reasons)}",
        faster=ratio.faster if ratio else None,
        faster_interval=ratio.interval if ratio else None,
        latency_ms=bench.measurement.latency_ms if bench else None,
        size_bytes=len(file.content),
        accuracy=known.accuracy if known else None,
        accuracy_drop=known.drop if known else None,
        accuracy_drop_interval=known.interval if known else None,
        max_accuracy_drop=None if rule.untrained else rule.max_accuracy_drop,
    )


def speed_words(ratio: Ratio) -> str:
    """Of the smaller file against fp32."""
    low, high = ratio.interval
    if ratio.verdict == "no difference":
        return f"it is no faster than fp32 here ({low:.2f} to {high:.2f} times as fast)"
    if ratio.verdict == "faster":
        return f"it is {ratio.faster:.2f} times faster than fp32 here ({low:.2f} to {high:.2f})"
    return f"it is {1 / ratio.faster:.2f} times slower than fp32 here ({1 / high:.2f} to {1 / low:.2f})"
