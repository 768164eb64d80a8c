"""What a search has gained: who it is compared with, and what the images can tell about a difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_spaces import TINY

from deploynas.latency.table import LatencyTable
from deploynas.pipeline.gain import Rivals, judged
from deploynas.pipeline.rivals import CLOSE, random_networks, uniform_networks
from deploynas.space import Space


def table_of(space: Space, seed: int = 0) -> LatencyTable:
    rng = np.random.default_rng(seed)
    costs = [np.sort(rng.uniform(0.1, 0.5, (stage.max_depth, len(stage.configs)))) for stage in space.stages]
    return LatencyTable.from_arrays(space, 0.1, costs)


def test_a_uniform_network_has_one_configuration_and_one_step_of_depth() -> None:
    space = Space.load("imagenet")
    networks = uniform_networks(space)
    assert len(set(networks)) == len(networks) > 1
    for network in networks:
        assert len({network.config(s, b) for s, b, _ in network.blocks()}) == 1
        steps = {stage.depths.index(depth) for stage, depth in zip(space.stages, network.depths, strict=True)}
        assert len(steps) == 1
    assert {space.smallest(), space.heaviest()} <= set(networks)


def test_a_stage_that_lacks_a_configuration_takes_its_nearest(tmp_path: Path) -> None:
    """The first stage has kernel 3 alone and ratios 1 and 2; the second ratio 2.5 alone, kernels 3 and 5, no gates."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    space = Space.load(tmp_path / "tiny.yaml")
    for network in uniform_networks(space):
        assert all(len(set(choice)) == 1 for choice in network.choices)
        first, second = network.config(0, 0), network.config(1, 0)
        assert first.factors()["kernel"] == 3 and second.factors()["expansion"] == 2.5


def test_random_networks_have_the_latency_and_are_others() -> None:
    space = Space.load("fashion")
    table, found = table_of(space), space.sample(np.random.default_rng(3))
    drawn = random_networks(table, found, 12, np.random.default_rng(0))
    assert len(set(drawn)) == 12 and found not in drawn
    assert all(abs(table.predict(network) / table.predict(found) - 1) < CLOSE for network in drawn)


def test_where_no_random_network_has_the_latency_the_nearest_are_taken(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    space = Space.load(tmp_path / "tiny.yaml")
    table, found = table_of(space), space.smallest()
    drawn = random_networks(table, found, 5, np.random.default_rng(0))
    off = {network: abs(table.predict(network) / table.predict(found) - 1) for network in space.enumerate()}
    others = sorted(set(off) - {found}, key=off.__getitem__)
    assert set(drawn) == set(others[:5])


def test_without_a_table_only_the_heaviest_is_left_to_compare_with() -> None:
    space = Space.load("fashion")
    assert Rivals.of(space.smallest(), None, None).networks == (space.heaviest(),)
    assert Rivals.of(space.heaviest(), None, None).networks == ()


def test_uniform_rivals_are_within_the_latency_of_the_found_network() -> None:
    space = Space.load("fashion")
    table, found = table_of(space), space.sample(np.random.default_rng(3))
    rivals = Rivals.of(found, None, table)
    assert rivals.uniform and all(table.predict(n) <= 1.01 * table.predict(found) for n in rivals.uniform)


def test_differences_are_taken_on_each_image() -> None:
    found = np.array([[True, True, True, False]])
    random = np.array([[True, False, True, False], [False, True, False, False]])
    roles = {role.role: role for role in judged({"found": found, "random": random})}
    assert roles["found"].mean == 0.75 and roles["found"].difference is None
    assert roles["random"].mean == 0.375 and roles["random"].se == pytest.approx(np.std([0.5, 0.25], ddof=1) / 2**0.5)
    assert roles["random"].difference == 0.375
    same = {role.role: role for role in judged({"found": found, "uniform": found})}
    assert same["uniform"].difference == 0 and same["uniform"].interval == (0, 0) and same["uniform"].se is None


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Networks of differing worth on images of differing difficulty, drawn anew each time."""
    rng, held, trials = np.random.default_rng(0), 0, 400
    true = 0.03
    for _ in range(trials):
        hard = rng.uniform(-0.3, 0.3, 500)
        worth = 0.7 + rng.normal(scale=0.02, size=6)
        found = rng.random(500) < 0.7 + true + hard * 0.5
        others = rng.random((6, 500)) < (worth[:, None] + 0.5 * hard)
        (random,) = [role for role in judged({"found": found[None], "random": others}) if role.role == "random"]
        assert random.interval is not None
        held += random.interval[0] <= true <= random.interval[1]
    assert 0.93 <= held / trials <= 1.0  # the scatter among networks has some of the images' in it: a little wide
