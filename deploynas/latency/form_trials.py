"""Which form of each operation is fastest on the device: whole networks, written each way, timed beside each other.

Every network is written in the default forms and, once for each alternative, with one operation in another form. A
*moment* visits all graphs of a network one after the other in random order, so what the machine does hits them alike; a
visit of an alternative and the visit of the default in the same moment are a pair. The ratio of an alternative is the
Hodges-Lehmann estimate over all pairs, with the interval of Wilcoxon's signed-rank test: neither minds the odd pair
that a disturbance tore apart. An alternative is kept if the whole interval is below 1 and the ratio saves
SMALLEST_GAIN; of several for one operation, the fastest. Operations are in different places of a network, so each is
judged alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deploynas import graph
from deploynas.graph import DEFAULT_FORMS, OperatorForms
from deploynas.latency.entries import network_entry
from deploynas.latency.form_choice import FormChoice, FormTrial
from deploynas.latency.table import computed
from deploynas.latency.worker import Entry, Visit
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.space import Architecture, Space

NETWORKS = 5
SMALLEST_GAIN = 0.005
CONFIDENCE = 0.95


def trial_entries(space: Space, precision: str, seed: int, quantization: Quantization = FOR_CPUS) -> list[Entry]:
    """Random networks of the space in all forms that differ for them, and that the device's 8-bit graphs can have."""
    plain = graph.Form(None, precision, quantization=quantization)
    alternatives = [
        (operation, forms)
        for operation, forms in DEFAULT_FORMS.alternatives()
        if precision != "int8" or forms.usable_with(quantization)
    ]
    rng = np.random.default_rng((seed, NETWORKS))
    networks: dict[Architecture, None] = {}
    while len(networks) < min(NETWORKS, space.size()):
        networks[space.sample(rng)] = None
    entries = []
    for i, architecture in enumerate(networks):
        moment, parts = f"form/{i}", space.parts(architecture)
        known, others = [graph.nodes(parts, plain)], []
        for operation, forms in alternatives:
            nodes = graph.nodes(parts, replace(plain, operators=forms))
            if nodes not in known:  # it makes a difference, and another one than those before
                known.append(nodes)
                others.append(network_entry(f"{moment}/{operation}={getattr(forms, operation)}", architecture, forms))
        if others:
            default = network_entry(f"{moment}/default", architecture)
            # as short as can be: more moments say more than more inferences in one
            together = {"moment": moment, "runs": 1}
            entries += [default.model_copy(update=together)]
            entries += [other.model_copy(update={**together, "optional": True}) for other in others]
    return entries


def choose(entries: Sequence[Entry], visits: Sequence[Visit]) -> FormChoice:
    """From all visits to the entries of `trial_entries`."""
    typical: dict[str, list[float]] = defaultdict(list)  # logarithms of milliseconds by entry, in the order of moments
    for one in sorted(visits, key=lambda visit: visit.worker):  # a resumed profile may have come back to a worker
        typical[one.entry].append(float(np.log(np.median(computed(one.samples_ms, one.waited_ms)))))
    trials = []
    for operation, forms in DEFAULT_FORMS.alternatives():
        own = [entry for entry in entries if entry.forms == forms]
        if own:  # some network has the operation
            pairs = [zip(typical[e.key], typical[f"{e.moment}/default"], strict=False) for e in own]
            log_ratios = np.array([log_ms - default for moments in pairs for log_ms, default in moments])
            trials.append(_judge(operation, str(getattr(forms, operation)), len(own), log_ratios))
    faster = [trial for trial in trials if trial.verdict == "faster"]
    # the fastest last: of several forms for one operation it stays
    kept = {trial.operation: trial.form for trial in sorted(faster, key=lambda trial: -(trial.ratio or 1.0))}
    return FormChoice(chosen=OperatorForms.model_validate(kept), trials=trials)


def _judge(operation: str, form: str, networks: int, log_ratios: np.ndarray) -> FormTrial:
    trial = FormTrial(operation=operation, form=form, networks=networks, pairs=len(log_ratios), verdict="cannot run")
    if not len(log_ratios):
        return trial
    centre, ends = signed_rank_interval(log_ratios)
    ratio, interval = float(np.exp(centre)), (float(np.exp(ends[0])), float(np.exp(ends[1]))) if ends else None
    faster = interval is not None and interval[1] < 1 and ratio <= 1 - SMALLEST_GAIN
    verdict = "faster" if faster else "not faster"
    return trial.model_copy(update={"ratio": ratio, "interval": interval, "verdict": verdict})


def signed_rank_interval(values: np.ndarray) -> tuple[float, tuple[float, float] | None]:
    """The median of all means of two values, and the interval that Wilcoxon's test does not reject."""
    i, j = np.triu_indices(len(values))
    means = np.sort((values[i] + values[j]) / 2)
    # how many subsets of the ranks 1..n have each sum: the statistic's distribution if the centre were the truth
    chance = np.ones(1)
    for rank in range(1, len(values) + 1):
        padded = np.pad(chance, (0, rank))
        chance = (padded + np.roll(padded, rank)) / 2
    outside = int(np.searchsorted(np.cumsum(chance), (1 - CONFIDENCE) / 2))
    interval = (float(means[outside - 1]), float(means[-outside])) if outside else None
    return float(np.median(means)), interval
