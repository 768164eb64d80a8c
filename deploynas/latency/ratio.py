"""Which of two files is faster, when both were timed interleaved: how many times, how surely, and in words.

In one process both meet the same moments, and both have one layout of memory; so the ratio of their medians is taken
process by process, and the interval is Student's over the processes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel

from deploynas.latency.file_timing import TimedFile

TYPICAL = 0.25  # the quantile that is compared: below most disturbances, and of many samples


class Ratio(BaseModel):
    """How many times as fast as the first file another is."""

    base: str
    other: str
    faster: float  # 1.08: the other needs 1 / 1.08 of the time
    interval: tuple[float, float]  # 95 %
    verdict: Literal["faster", "slower", "no difference"]

    def words(self) -> str:
        low, high = self.interval
        if self.verdict == "no difference":
            most = max(abs(high - 1), abs(1 - low))
            return f"{self.other} against {self.base}: no difference larger than {100 * most:.1f} %"
        times = self.faster if self.verdict == "faster" else 1 / self.faster
        half = (high - low) / 2 * (times / self.faster)  # relative errors are the same either way
        digits = 3 if half < 0.01 else 2
        return f"{self.other} is {times:.{digits}f} ± {half:.{digits}f} times {self.verdict} than {self.base}"


def ratio_of(base_name: str, other_name: str, base: TimedFile, other: TimedFile) -> Ratio:
    logs = np.array([np.log(_typical(base, p) / _typical(other, p)) for p in sorted(set(base.processes))])
    middle, half = float(logs.mean()), _half_width(logs)
    low, high = float(np.exp(middle - half)), float(np.exp(middle + half))
    verdict: Literal["faster", "slower", "no difference"] = "no difference"
    if low > 1:
        verdict = "faster"
    elif high < 1:
        verdict = "slower"
    return Ratio(base=base_name, other=other_name, faster=float(np.exp(middle)), interval=(low, high), verdict=verdict)


def _typical(timed: TimedFile, process: int) -> float:
    times = timed.measurement.computed_ms()
    own = [times[v] for v, made_by in enumerate(timed.processes) if made_by == process]
    return float(np.quantile(np.concatenate(own), TYPICAL))


def _half_width(values: np.ndarray) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values)))
