"""The accuracy of a shipped file in words: a figure, or that its network was never trained."""

from __future__ import annotations

from deploynas.report.document import ReportFile, ShippedFile
from deploynas.report.numbers import percent

UNTRAINED = "untrained"
UNTRAINED_MEANS = (
    "the network is untrained: its weights are random, it classifies nothing; its latency and size are those that it "
    "will have when it is trained"
)


def accuracy_words(report: ReportFile, file: ShippedFile) -> str:
    return UNTRAINED if report.untrained else percent(file.accuracy)
