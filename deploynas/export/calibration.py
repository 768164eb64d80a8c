"""The ranges that 8-bit activations get, from real images run through the fp32 graph.

Every intermediate value is recorded twice: its extremes, then a histogram between them. `minmax` takes the extremes,
`percentile` cuts off a share of the values on each side, `mse` moves both ends inwards as long as the expected squared
error of rounding and clipping together falls. Zero always stays inside, since padding is zero. No rule is best for
every network, so `measured` tries them, and takes the one whose network stays nearest to fp32 on the same images
(`integer_file.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import onnx

from deploynas.errors import InputError
from deploynas.export.verification import ImageStream
from deploynas.graph import INPUT
from deploynas.latency.every_value import Ranges, every_value

RangeRule = Literal["measured", "minmax", "percentile", "mse"]
RANGE_RULES: tuple[RangeRule, ...] = get_args(RangeRule)
BINS = 2048
LEVELS = 255
TAIL = 1e-4  # `percentile`: the share of values cut off on each side
TAILS = (1e-3, 1e-4, 1e-5)  # that `measured` tries


@dataclass(frozen=True)
class Calibration:
    """How ranges and scales are chosen. `share` is the fraction of the training images that is looked at."""

    method: RangeRule = "measured"
    share: float = 0.05
    # weights: a scale for each output channel where the device's `quantization` has that too; false: one for all
    per_channel: bool = True
    correct_biases: bool = True  # for what rounding weights adds to the mean
    tail: float = TAIL  # of `percentile`

    def __post_init__(self) -> None:
        if self.method not in RANGE_RULES:
            raise InputError(f"no calibration method `{self.method}`", hint=f"one of {', '.join(RANGE_RULES)}")
        if not 0 < self.share <= 1:
            raise InputError(f"the share of calibration images must be above 0 and at most 1, got {self.share}")


@dataclass(frozen=True)
class ValueHistograms:
    """Every value of a graph over some images, by name: its extremes, and counts between them."""

    extremes: Ranges
    counts: dict[str, np.ndarray]

    @classmethod
    def of(cls, fp32: onnx.ModelProto, images: ImageStream) -> ValueHistograms:
        extremes = value_extremes(fp32, images)
        counts = {name: np.zeros(BINS) for name in extremes}
        session, names = every_value(fp32)
        for values in _values(session, names, images):
            for name, value in values.items():
                counts[name] += _histogram(value, *extremes[name])
        return cls(extremes, counts)

    def ranges(self, how: Calibration) -> Ranges:
        """(low, high) of every value, by one of the rules."""
        match how.method:
            case "minmax":
                return self.extremes
            case "percentile":
                return {name: _percentile(self.counts[name], how.tail, *ends) for name, ends in self.extremes.items()}
            case "mse":
                return {name: _least_squares(self.counts[name], *ends) for name, ends in self.extremes.items()}
            case _:
                raise InputError(f"`{how.method}` is no rule for ranges: it tries the others")

    @staticmethod
    def rules(how: Calibration) -> list[Calibration]:
        """The one that is asked for, or those that `measured` tries."""
        if how.method != "measured":
            return [how]
        cut = [replace(how, method="percentile", tail=tail) for tail in TAILS]
        return [replace(how, method="minmax"), *cut, replace(how, method="mse")]


def value_extremes(fp32: onnx.ModelProto, images: ImageStream) -> Ranges:
    """(low, high) of every value of the graph, by name; zero is inside."""
    session, names = every_value(fp32)
    low = dict.fromkeys(names, np.inf)
    high = dict.fromkeys(names, -np.inf)
    for values in _values(session, names, images):
        for name, value in values.items():
            low[name] = min(low[name], float(value.min()))
            high[name] = max(high[name], float(value.max()))
    if not all(np.isfinite(low[name]) and np.isfinite(high[name]) for name in names):
        raise InputError("calibration found values that are not finite, or no images at all")
    return {name: (min(low[name], 0.0), max(high[name], 0.0)) for name in names}


def activation_ranges(fp32: onnx.ModelProto, images: ImageStream, method: RangeRule) -> Ranges:
    """(low, high) of every value of the graph, by name and by a rule."""
    if method == "minmax":
        return value_extremes(fp32, images)
    return ValueHistograms.of(fp32, images).ranges(Calibration(method))


def _values(session: Any, names: list[str], images: ImageStream) -> Iterator[dict[str, np.ndarray]]:
    for batch, _ in images():
        for start in range(0, len(batch), 64):  # all values of a large batch at once would fill the memory
            x = np.ascontiguousarray(batch[start : start + 64])
            yield dict(zip(names, [x, *session.run(names[1:], {INPUT: x})], strict=True))


def _histogram(value: np.ndarray, low: float, high: float) -> np.ndarray:
    if high <= low:
        return np.zeros(BINS)
    place = ((value.ravel() - low) * (BINS / (high - low))).astype(np.int32)
    return np.bincount(np.minimum(place, BINS - 1), minlength=BINS)[:BINS]


def _percentile(counts: np.ndarray, tail: float, low: float, high: float) -> tuple[float, float]:
    edges = np.linspace(low, high, BINS + 1)
    below = np.cumsum(counts) / max(1.0, counts.sum())
    first = int(np.searchsorted(below, tail))
    last = int(np.searchsorted(below, 1 - tail))
    return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, BINS)]))


def _least_squares(counts: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Both ends moved in by steps of 1 %, greedily, while the expected squared error falls."""
    centres = low + (np.arange(BINS) + 0.5) * (high - low) / BINS

    def error(a: float, b: float) -> float:
        clipped = np.clip(centres, a, b) - centres
        # a uniform rounding error has variance step^2 / 12, for the values inside
        inside = counts[clipped == 0].sum()
        return float((counts * clipped**2).sum() + inside * ((b - a) / LEVELS) ** 2 / 12)

    best, step = error(low, high), (high - low) / 100
    moved = True
    while moved:
        moved = False
        for a, b in ((min(0.0, low + step), high), (low, max(0.0, high - step))):
            if (a, b) != (low, high) and b - a > step and error(a, b) < best:
                low, high, best, moved = a, b, error(a, b), True
                break
    return low, high
