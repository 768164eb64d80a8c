"""The surroundings of a network's weights beside those of random networks and of the heaviest, in one supernet.

Random networks have the latency of the network in question where a table says what that is; else any. All have weights
inherited from the supernet, with batch-norm statistics of their own, and see the same validation images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.accuracy.landscape import LandscapeSettings, surroundings
from deploynas.accuracy.landscape_record import HEAVIEST, OURS, RANDOM, Landscape, NetworkLandscape, findings_of
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.rivals import random_networks
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture
from deploynas.training.data import Subset

RIVALS = 4


def landscape_of(
    supernet: TrainedSupernet,
    network: Architecture,
    table: LatencyTable | None = None,
    settings: LandscapeSettings | None = None,
    on_progress: OnProgress = silent,
) -> Landscape:
    settings = settings or LandscapeSettings()
    wanted = _networks(supernet, network, table, settings.seed)
    made = []
    for number, (role, one) in enumerate(wanted):
        on_progress(number / len(wanted), f"around network {number + 1} of {len(wanted)} ({role})")
        made.append(_around(supernet, role, one, settings))
    return Landscape(
        reach=settings.reach,
        pairs=settings.pairs,
        images=min(settings.images, len(supernet.data.validation)),
        gradients=min(settings.gradients, len(supernet.data.validation)),
        networks=made,
        findings=findings_of(made),
    )


def _networks(
    supernet: TrainedSupernet, network: Architecture, table: LatencyTable | None, seed: int
) -> Sequence[tuple[str, Architecture]]:
    rng, heaviest = np.random.default_rng((seed, 23)), supernet.space.heaviest()
    if table:
        rivals = random_networks(table, network, RIVALS, rng)
    else:
        drawn = supernet.space.architectures(supernet.space.decisions.draw(10 * RIVALS, rng))
        rivals = [one for one in dict.fromkeys(drawn) if one != network][:RIVALS]
    found = [(OURS, network), *((RANDOM, one) for one in rivals)]
    return found if network == heaviest else [*found, (HEAVIEST, heaviest)]


def _around(
    supernet: TrainedSupernet, role: str, network: Architecture, settings: LandscapeSettings
) -> NetworkLandscape:
    validation = supernet.data.validation
    # spread over the images, whatever order they are in
    positions = np.linspace(0, len(validation) - 1, min(settings.images, len(validation))).astype(int)
    positions = np.random.default_rng((settings.seed, 29)).permutation(positions)
    subset = Subset(validation.images, validation.rows[positions])
    found = surroundings(supernet.cut_out(network), supernet.batches.evaluation(subset), settings)
    return NetworkLandscape(
        role=role,
        architecture=str(network),
        contour=[[float(value) for value in row] for row in found.contour],
        rise=float(found.rises.mean()),
        rise_se=float(found.rises.std(ddof=1) / len(found.rises) ** 0.5),
        gradient_variance=float(found.variances.mean()),
        gradient_variance_se=float(found.variances.std(ddof=1) / len(found.variances) ** 0.5),
    )
