"""Widths within a budget: the exact choice against brute force, the threshold against its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deploynas.errors import GateError, InputError
from deploynas.latency.table import LatencyTable
from deploynas.search.widths import best_widths, by_threshold, ms_per_channel
from deploynas.space import Space, StageSpace
from deploynas.space.widths import chosen_widths, width_space, widths_of


@pytest.fixture
def space(tiny: Space) -> StageSpace:
    """Five blocks: twice two widths, one of three and two of five."""
    return width_space(tiny.heaviest())


def importance_for(space: StageSpace, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.exponential(size=own[-1]) for own in widths_of(space)]


def staircase(space: StageSpace, rng: np.random.Generator) -> LatencyTable:
    """Of steps that are no straight line, and sometimes fall."""
    return LatencyTable.from_arrays(
        space, 0.1, [[rng.uniform(0, 0.2, len(own)) + 0.02 * np.array(own)] for own in widths_of(space)]
    )


@pytest.mark.parametrize("seed", range(8))
def test_exact_widths_are_those_of_brute_force(space: StageSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    importance, table = importance_for(space, rng), staircase(space, rng)

    def worth(widths: tuple[int, ...]) -> float:
        return sum(np.sort(own)[::-1][:width].sum() for own, width in zip(importance, widths, strict=True))

    networks = [
        space.architecture([[c] for c in cs]) for cs in itertools.product(*map(range, map(len, widths_of(space))))
    ]
    latencies = np.array([table.predict(network) for network in networks])
    for budget in np.quantile(latencies, [0.01, 0.3, 0.7, 1.0]):
        found = best_widths(space, importance, table, float(budget))
        best = max(worth(chosen_widths(n)) for n, ms in zip(networks, latencies, strict=True) if ms <= budget)
        assert table.predict(found) <= budget
        assert worth(chosen_widths(found)) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_a_threshold_keeps_the_budget_and_no_later_one_would(space: StageSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    importance, table = importance_for(space, rng), staircase(space, rng)

    def nearest(kept: int, offered: tuple[int, ...]) -> int:
        return min(offered, key=lambda width: (abs(width - kept), width))

    def at(threshold: float) -> tuple[int, ...]:
        return tuple(
            nearest(int((own > threshold).sum()), offered)
            for own, offered in zip(importance, widths_of(space), strict=True)
        )

    every = np.concatenate([[-1.0], np.sort(np.concatenate(importance))])  # from all channels to none
    latency = {at(t): table.predict(_with(space, at(t))) for t in every}
    budget = float(np.median(list(latency.values())))
    first = next(at(t) for t in every if latency[at(t)] <= budget)
    assert chosen_widths(by_threshold(space, importance, table, budget)) == first


def _with(space: StageSpace, widths: tuple[int, ...]):
    return space.architecture([[own.index(width)] for own, width in zip(widths_of(space), widths, strict=True)])


def test_channels_that_matter_stay_and_those_that_do_not_go(space: StageSpace) -> None:
    importance = [np.full(own[-1], 1e-3) for own in widths_of(space)]
    importance[3][:16] = 1.0
    table = LatencyTable.from_arrays(space, 0.0, [[0.01 * np.array(own)] for own in widths_of(space)])
    for choose in (best_widths, by_threshold):
        assert chosen_widths(choose(space, importance, table, 0.481)) == (8, 8, 8, 16, 8)


def test_a_budget_out_of_reach_says_so(space: StageSpace, rng: np.random.Generator) -> None:
    importance, table = importance_for(space, rng), staircase(space, rng)
    for choose in (best_widths, by_threshold):
        with pytest.raises(GateError):
            choose(space, importance, table, 0.05)
    with pytest.raises(InputError, match="every expansion channel"):
        best_widths(space, [own[:-1] for own in importance], table, 1.0)


def test_what_a_channel_takes_is_the_slope_of_the_measured_steps(space: StageSpace) -> None:
    widths = widths_of(space)
    slopes = [0.5, 0.25, 0.0, 2.0, 1.0]
    steps = [[slope * np.array(own) + 3.0] for slope, own in zip(slopes, widths, strict=True)]
    assert ms_per_channel(space, steps) == pytest.approx(slopes)
    falling = [[-slope * np.array(own) + 99.0] for slope, own in zip(slopes, widths, strict=True)]
    assert ms_per_channel(space, falling) == [0.0] * 5
