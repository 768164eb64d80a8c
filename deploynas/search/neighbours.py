"""k distinct networks from a solver that found fewer: the networks one decision away from the best ones.

A heuristic ends in a few good networks, some of them found again and again. The next best are mostly theirs with one
block changed or one stage deeper or shallower, so the best k are exchanged for better neighbours until none is left.
Where limits are so tight that this does not reach k networks, the integer form lists what else is within them: fewer
are returned only if there are fewer.
"""

from __future__ import annotations

import numpy as np

from deploynas.search.integer_form import networks_within
from deploynas.search.networks import Evaluator, Networks, join


def best_nearby(evaluator: Evaluator, found: Networks, count: int) -> Networks:
    """The `count` best of the networks (all within the limits) and of what is near them, or near those, best first."""
    best, expanded = _ranked(evaluator, found, count), set[bytes]()
    while True:
        fresh = np.array([key not in expanded for key in _keys(evaluator, best)], dtype=bool)
        if not fresh.any():
            break
        expanded |= set(_keys(evaluator, best[fresh]))
        near = [_neighbours(evaluator, best[i : i + 1]) for i in np.flatnonzero(fresh)]
        # known ones come first, and so stay where scores are equal: every exchange is a gain, so this ends
        best = _ranked(evaluator, join(best, *(n[evaluator.within(n)] for n in near)), count)
    if len(best) == count:
        return best
    rows = evaluator.problem.space.rows(networks_within(evaluator.problem, count))
    return _ranked(evaluator, join(best, Networks.from_rows(evaluator.decisions, rows)), count)


def _ranked(evaluator: Evaluator, networks: Networks, count: int) -> Networks:
    """The best, best first, each network once."""
    order = np.sort(evaluator.distinct(networks))
    return networks[order[np.argsort(-evaluator.scores(networks[order]), kind="stable")][:count]]


def _keys(evaluator: Evaluator, networks: Networks) -> list[bytes]:
    return [row.tobytes() for row in evaluator.canonical_rows(networks)]


def _neighbours(evaluator: Evaluator, network: Networks) -> Networks:
    """All networks that differ from the one in `network` by one block, or by a depth and the blocks that it adds."""
    configs, depths = network.configs[0], network.depths[0]
    part = evaluator.takes_part[np.arange(evaluator.stages), depths]
    stage, block, option = np.nonzero(part[..., None] & evaluator.allowed)
    changed = Networks(np.tile(configs, (len(stage), 1, 1)), np.tile(depths, (len(stage), 1)))
    changed.configs[np.arange(len(stage)), stage, block] = option
    stage, exit_ = np.nonzero(evaluator.usable_exit)
    stage, exit_ = np.repeat(stage, evaluator.options), np.repeat(exit_, evaluator.options)
    moved = Networks(np.tile(configs, (len(stage), 1, 1)), np.tile(depths, (len(stage), 1)))
    n, option = np.arange(len(stage)), np.tile(np.arange(evaluator.options), len(stage) // evaluator.options)
    moved.depths[n, stage] = exit_
    # blocks that are new all get the same option, or their first where they may not have it
    allowed = evaluator.allowed[stage, :, option]
    new = np.where(allowed, option[:, None], evaluator.allowed.argmax(axis=2)[stage])
    moved.configs[n, stage] = np.where(part[stage], moved.configs[n, stage], new)
    return join(changed, moved)
