"""The best networks of a search, measured in the supernet and put into the order of what was measured."""

from __future__ import annotations

from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.search.result_file import SearchFile


def rerank(document: SearchFile, supernet: TrainedSupernet, on_progress: OnProgress = silent) -> None:
    """Order the networks by their one-shot accuracy, batch norm recalibrated for each."""
    document.the_space().require_hash(supernet.space.hash, f"{supernet.path}: its supernet")
    for i, (record, architecture) in enumerate(zip(document.networks, document.architectures(), strict=True)):
        record.measured_accuracy, record.measured_accuracy_se = supernet.accuracy_alone(architecture)
        on_progress((i + 1) / len(document.networks), f"network {i + 1}")
    document.networks.sort(key=lambda record: -(record.measured_accuracy or 0.0))
    document.provenance["reranked_with"] = supernet.identity
