"""The best networks of a search, measured: their accuracy in the supernet, and their latency on a device.

They are put into the order of the accuracies that were measured, since predictions rank less well among the very best.
"""

from __future__ import annotations

from collections.abc import Sequence

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.graph import DEFAULT_FORMS
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.latency.target import target_of
from deploynas.pipeline.measured_networks import MeasuredNetworks
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.search.result_file import SearchFile


def rerank(document: SearchFile, supernet: TrainedSupernet, on_progress: OnProgress = silent) -> None:
    """Order the networks by their one-shot accuracy, batch norm recalibrated for each."""
    document.the_space().require_hash(supernet.space.hash, f"{supernet.path}: its supernet")
    measured = MeasuredNetworks(supernet).measure(document.architectures(), on_progress)
    for record, network in zip(document.networks, measured, strict=True):
        record.measured_accuracy, record.measured_accuracy_se = network.accuracy, network.se
    document.networks.sort(key=lambda record: -(record.measured_accuracy or 0.0))
    document.provenance["reranked_with"] = supernet.identity


def time_networks(
    document: SearchFile, device: Device, tables: Sequence[LatencyTable], on_progress: OnProgress = silent
) -> None:
    """Write the latency of every network on the device beside what was predicted; in the forms of its table."""
    forms = next((t.forms for t in tables if t.evidence and t.evidence.device_hash == device.hash), DEFAULT_FORMS)
    space, networks = document.the_space(), document.architectures()
    timed = measure_networks(device, space, networks, forms=forms, on_progress=on_progress)
    for record, measurement in zip(document.networks, timed, strict=True):
        record.measured_latency_ms = measurement.latency_ms
        record.measured_latency_error = measurement.relative_error
    document.provenance["timed_on"] = {
        "device": device.name,
        "hardware": target_of(device).hardware().fingerprint,
        "forms": forms.model_dump(),
    }


def device_of(tables: Sequence[LatencyTable]) -> Device:
    """The device that the first table was measured on."""
    evidence = tables[0].evidence if tables else None
    if evidence is None:
        raise InputError(
            "nothing says on which device to measure latencies", hint="`--device NAME`, or a table from `profile`"
        )
    return evidence.device_here()


def differences(device: Device, tables: Sequence[LatencyTable]) -> str | None:
    """Why measurements on the device cannot be compared with the predictions of the first table; None: they can."""
    evidence = tables[0].evidence if tables else None
    if evidence is None:
        return None
    if evidence.device_hash != device.hash:
        return f"the table is of other settings (`{evidence.device.name}`) than `{device.name}`"
    made_on = evidence.provenance.get("hardware", {})
    if made_on.get("fingerprint") != target_of(device).hardware().fingerprint:
        where = f"on `{device.host}`" if device.host else "here"
        processor = made_on.get("processor", "unknown")
        return f"the table is of another machine ({processor}), latencies were measured {where}"
    return None
