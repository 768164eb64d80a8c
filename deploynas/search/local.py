"""Small changes to a network that pay: used to spend what a rounded solution leaves of its budgets.

A move changes one block's configuration or one stage's depth; two moves in different places may be made
together, one to free room and one to use it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.search.networks import Evaluator, Networks, join

MAX_STEPS = 50


@dataclass(frozen=True)
class _Moves:
    """All moves of one network; the first does nothing."""

    stage: np.ndarray
    block: np.ndarray  # -1: the move changes the depth
    option: np.ndarray
    gain: np.ndarray
    costs: np.ndarray  # [limit][move]


def improve(evaluator: Evaluator, networks: Networks, count: int) -> Networks:
    """The `count` best of the networks (all within the limits), each moved until no pair of moves pays."""
    best = np.argsort(-evaluator.scores(networks), kind="stable")[:count]
    return join(networks[:0], *(_climb(evaluator, networks[best[i : i + 1]]) for i in range(len(best))))


def _climb(evaluator: Evaluator, network: Networks) -> Networks:
    """`network` holds one."""
    for _ in range(MAX_STEPS):
        better = _best_pair(evaluator, network)
        # checked exactly: the differences above were summed in another order
        if better is None or not evaluator.within(better)[0]:
            break
        if evaluator.scores(better)[0] <= evaluator.scores(network)[0]:
            break
        network = better
    return network


def _best_pair(evaluator: Evaluator, network: Networks) -> Networks | None:
    moves = _moves(evaluator, network)
    left = np.array([c.budget for c in evaluator.problem.costs])[evaluator.additive]
    left = left - evaluator.costs(network)[evaluator.additive, 0]
    gain = np.add.outer(moves.gain, moves.gain)
    fits = np.ones_like(gain, dtype=bool)
    for costs, room in zip(moves.costs, left, strict=True):
        fits &= np.add.outer(costs, costs) <= room
    # moves meet when they change the same block, or when one changes the depth of the other's stage
    same_stage = np.equal.outer(moves.stage, moves.stage)
    depth = moves.block < 0
    meet = same_stage & (np.equal.outer(moves.block, moves.block) | np.logical_or.outer(depth, depth))
    meet[0], meet[:, 0] = False, False
    gain[~fits | meet] = -np.inf
    first, second = np.unravel_index(gain.argmax(), gain.shape)
    if not gain[first, second] > 0:
        return None
    configs, depths = network.configs.copy(), network.depths.copy()
    for move in (first, second):
        if move == 0:
            continue
        if moves.block[move] < 0:
            depths[0, moves.stage[move]] = moves.option[move]
        else:
            configs[0, moves.stage[move], moves.block[move]] = moves.option[move]
    return Networks(configs, depths)


def _moves(evaluator: Evaluator, network: Networks) -> _Moves:
    configs, depths = network.configs[0], network.depths[0]
    stages = np.arange(evaluator.stages)
    part = evaluator.takes_part[stages, depths]  # [stage][block]
    value = evaluator.value[stages, depths]  # [stage][block][configuration]
    tables = evaluator.block_cost[evaluator.additive]
    now = np.take_along_axis(value, configs[..., None], axis=2)
    cost_now = np.take_along_axis(tables, configs[None, ..., None], axis=3)
    useful = evaluator.allowed & ~_dominated(value, tables, evaluator.allowed)
    s, b, c = np.nonzero(part[..., None] & useful)
    gain, costs = (value - now)[s, b, c], (tables - cost_now)[:, s, b, c]
    # depths: the blocks beyond keep the configurations they have in the arrays
    worth = evaluator.bonus + np.take_along_axis(evaluator.value, configs[:, None, :, None], axis=3)[..., 0].sum(axis=2)
    spent = (cost_now[..., 0][:, :, None, :] * evaluator.takes_part).sum(axis=3)  # [limit][stage][depth]
    allowed = np.take_along_axis(evaluator.allowed, configs[..., None], axis=2)[..., 0]
    usable = evaluator.usable_exit & (allowed[:, None, :] | ~evaluator.takes_part).all(axis=2)
    ds, di = np.nonzero(usable)
    depth_gain = worth[ds, di] - worth[ds, depths[ds]]
    depth_cost = spent[:, ds, di] - spent[:, ds, depths[ds]]
    nothing = np.zeros(1)
    return _Moves(
        np.concatenate([[-1], s, ds]),
        np.concatenate([[-1], b, np.full(len(ds), -1)]),
        np.concatenate([[0], c, di]),
        np.concatenate([nothing, gain, depth_gain]),
        np.concatenate([np.zeros((len(tables), 1)), costs, depth_cost], axis=1),
    )


def _dominated(value: np.ndarray, tables: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """[stage][block][configuration]: whether another of the block is worth no less and costs no more."""
    # [...][this][other]
    no_worse = (value[..., None, :] >= value[..., None]) & allowed[..., None, :]
    no_worse &= (tables[..., None, :] <= tables[..., None]).all(axis=0)
    mutual = no_worse & no_worse.swapaxes(-1, -2)  # of equals the first stays
    later = np.tri(value.shape[-1], k=-1, dtype=bool)
    return np.asarray((no_worse & (~mutual | later)).any(axis=-1))
