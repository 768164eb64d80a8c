"""The presets of Once-for-all's spaces say what its own package builds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ofa_networks import OFA_SPACES, Setting, macs, ofa_supernet

from deploynas.costs import Costs
from deploynas.space import Space


@pytest.mark.parametrize("name", OFA_SPACES)
def test_parameters_and_multiplications_are_theirs(name: str) -> None:
    space, rng, theirs = Space.load(name), np.random.default_rng(0), ofa_supernet(name)
    for architecture in [space.smallest(), space.heaviest(), space.sample(rng)]:
        Setting.of(architecture).apply(theirs)
        alone = theirs.get_active_subnet()
        costs = Costs.of(space, architecture)
        assert costs.params == sum(parameter.numel() for parameter in alone.parameters())
        assert costs.macs == macs(alone, torch.zeros(1, space.in_channels, space.height, space.width))
