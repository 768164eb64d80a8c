"""Does a table still hold, on this machine and this runtime? Some of its own networks, timed again."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.latency.facts import Facts
from deploynas.latency.machine_changes import changes
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.latency.target import target_of
from deploynas.progress import OnProgress, silent

NETWORKS = 8  # from the fastest to the slowest; enough to be aligned with each other
VISITS = 6  # to each of them by each of two processes

Verdict = Literal["holds", "does not hold", "inconclusive"]


class ThenAndNow(BaseModel):
    """One network of the table."""

    choices: list[list[int]]
    predicted_ms: float
    then_ms: float
    now_ms: float


class Verified(BaseModel):
    networks: list[ThenAndNow]
    change: float  # now over then, in the median, minus one
    uncertainty: float  # half-width of the 95 % interval of the change
    prediction_error: float  # of the table's predictions against now, in the mean
    threshold: float
    notes: list[str]  # what else has changed since
    verdict: Verdict


def verify(
    table: LatencyTable,
    *,
    device: Device | None = None,
    threshold: float = 0.05,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> Verified:
    """Time some of the table's validation networks again, on the device that it was profiled on.

    A table does not say how a machine elsewhere is reached; the `device` with its host does.
    """
    evidence = table.evidence
    if evidence is None:
        raise InputError("this table was not measured: there is nothing to compare with")
    device = device or evidence.device_here()
    if device.hash != evidence.device_hash:
        raise InputError(f"the table is of other settings (`{table.device_name}`) than `{device.name}`")
    known = sorted(evidence.validation.networks, key=lambda network: network.latency_ms)
    chosen = [known[i] for i in np.linspace(0, len(known) - 1, min(NETWORKS, len(known))).astype(int)]
    facts = target_of(device).facts()
    effort = device.effort.model_copy(update={"workers": 2, "visits": VISITS})
    architectures = [table.space.architecture(network.choices) for network in chosen]
    hurried = device.model_copy(update={"effort": effort})
    again = measure_networks(hurried, table.space, architectures, forms=table.forms, seed=seed, on_progress=on_progress)
    networks = [
        ThenAndNow(choices=then.choices, predicted_ms=then.predicted_ms, then_ms=then.latency_ms, now_ms=now.latency_ms)
        for then, now in zip(chosen, again, strict=True)
    ]
    logs = np.log([one.now_ms / one.then_ms for one in networks])
    change, uncertainty = float(np.expm1(np.median(logs))), _uncertainty(logs)
    return Verified(
        networks=networks,
        change=change,
        uncertainty=uncertainty,
        prediction_error=float(np.mean([abs(one.predicted_ms / one.now_ms - 1) for one in networks])),
        threshold=threshold,
        notes=_notes(evidence.provenance, facts, device),
        verdict=_verdict(change, uncertainty, threshold),
    )


def _verdict(change: float, uncertainty: float, threshold: float) -> Verdict:
    if abs(change) > threshold:
        return "does not hold" if uncertainty < abs(change) else "inconclusive"
    return "holds" if uncertainty <= threshold else "inconclusive"


def _uncertainty(logs: np.ndarray) -> float:
    """Student's, over the networks: of their mean, which the median is not far from."""
    from scipy.special import stdtrit

    if len(logs) < 2:
        return 99.0
    return float(stdtrit(len(logs) - 1, 0.975) * logs.std(ddof=1) / np.sqrt(len(logs)))


def _notes(provenance: dict[str, Any], facts: Facts, device: Device) -> list[str]:
    notes = []
    then = provenance.get("hardware", {})
    if then.get("fingerprint") != facts.hardware.fingerprint:
        notes.append(f"the table is of another machine ({then.get('processor')}), this is {facts.hardware.processor}")
    return [*notes, *changes(provenance, facts.provenance(), device.threads)]
