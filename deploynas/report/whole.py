"""Blocks add up: milliseconds of a block are its share of the whole file as it was measured undisturbed.

The shares are from the runtime's profiler, which costs time itself: its own milliseconds would add up to several times
the network.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploynas.report.document import BlockReport, ReportFile
from deploynas.report.numbers import NOTHING, ms

OUTSIDE = "outside blocks"  # nodes that the runtime runs before the first block
HAIR = 1e-6  # a share that rounding leaves over


@dataclass(frozen=True)
class Whole:
    """The shipped file: what its blocks are shares of, and what the table says of all of them."""

    latency_ms: float
    share: float | None  # of blocks and of what is outside them together: one; None if it was not profiled
    outside: float
    predicted_ms: float | None
    fixed_ms: float | None  # of that, parts that every network has; the table knows their sum only

    @classmethod
    def of(cls, report: ReportFile) -> Whole:
        timing = report.shipped.timing
        shares = [block.share for block in report.blocks if block.share is not None]
        rest = 1 - sum(shares)
        searched = sum(block.predicted_ms for block in report.blocks if block.predicted_ms is not None)
        return cls(
            latency_ms=timing.undisturbed.latency_ms if timing else report.shipped.latency_ms,
            share=1.0 if shares else None,
            outside=rest if shares and rest > HAIR else 0.0,
            predicted_ms=report.predicted_of_shipped,
            fixed_ms=None if report.predicted_of_shipped is None else report.predicted_of_shipped - searched,
        )

    @property
    def measured_ms(self) -> float | None:
        return None if self.share is None else self.latency_ms

    def of_it(self, block: BlockReport) -> float | None:
        return None if block.share is None else block.share * self.latency_ms

    def predicted(self) -> str:
        """The whole, and how much of it are fixed parts."""
        return NOTHING if self.predicted_ms is None else f"{ms(self.predicted_ms)}, fixed parts {ms(self.fixed_ms)}"


def block_note(report: ReportFile) -> str:
    """What the milliseconds are, and what the profiler did."""
    if Whole.of(report).share is None:
        return (
            "Blocks were not timed: on this provider the runtime's profiler sees launches, or one node for the whole "
            "graph. What the table says of each was measured alone."
        )
    said = "Milliseconds are shares of the file measured whole, undisturbed: they add up to it. "
    slower = report.profiler_slowdown
    if slower is None:
        return said + "The shares are the runtime's profiler's, with its own time still in them (an earlier version)."
    return said + (
        f"The runtime's profiler made it {slower:.1f} times slower; its figures give the shares, and what it costs at "
        "each node is taken out."
    )
