"""Random networks within limits: never one over a budget, and as many as there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tiny_spaces import CELLS, MINI, SIZED

from deploynas.costs import Costs
from deploynas.errors import GateError
from deploynas.search.problem import Limit, Problem
from deploynas.search.random_networks import random_networks_within
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import ask

TEXTS = {"mini": MINI, "sized": SIZED, "cells": CELLS}


@pytest.fixture(scope="module", params=TEXTS)
def space(request, tmp_path_factory) -> Space:
    path = tmp_path_factory.mktemp("space") / "space.yaml"
    path.write_text(TEXTS[request.param])
    return Space.load(path)


class Alike:
    def __init__(self, space: Space) -> None:
        self.space = space

    def predict(self, architecture: Architecture) -> float:
        return 0.0


def problem(space: Space, **budgets: float) -> Problem:
    return Problem.build(space, ask(Alike(space)), [Limit(name, budget) for name, budget in budgets.items()])


def everything(space: Space) -> list[Architecture]:
    """Every network there is, by brute force."""
    groups = space.decisions.groups
    stages = [
        [
            choice
            for depth in group.depths
            for choice in itertools.product(*(range(len(own.options)) for own in group.choices[:depth]))
        ]
        for group in groups
    ]
    return [space.architecture(choices) for choices in itertools.product(*stages)]


def test_budgets_are_kept_however_tight(space: Space) -> None:
    whole = everything(space)
    macs = {one: Costs.of(space, one).macs for one in whole}
    for share in (0.0, 0.02, 0.5, 1.0):
        budget = float(np.sort(list(macs.values()))[int(share * (len(whole) - 1))])
        inside = {one for one in whole if macs[one] <= budget}
        found = random_networks_within(problem(space, macs=budget), 12)
        assert len(found) == len(set(found)) == min(12, len(inside))
        assert set(found) <= inside


def test_all_networks_if_there_are_fewer_than_are_wanted(space: Space) -> None:
    smallest = Costs.of(space, space.smallest())
    few = problem(space, macs=1.3 * smallest.macs, params=1.3 * smallest.params)
    inside = {one for one in everything(space) if few.allows(one)}
    assert set(random_networks_within(few, len(inside) + 5)) == inside


def test_without_limits_every_network_may_come(space: Space) -> None:
    found = random_networks_within(problem(space), 20, seed=1)
    assert len(set(found)) == 20
    assert found == random_networks_within(problem(space), 20, seed=1)
    assert found != random_networks_within(problem(space), 20, seed=2)


def test_limits_that_no_network_keeps_are_named(space: Space) -> None:
    with pytest.raises(GateError, match="params"):
        random_networks_within(problem(space, params=1.0), 5)
