"""Which sub-network every image of a batch is trained along."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deploynas.space import Architecture, Space
from deploynas.training.batches import BatchShare
from deploynas.training.objectives import OneShotPaths
from deploynas.training.recipe import Recipe

BATCH = 40


class _Listening(nn.Module):
    """Answers nothing useful, and remembers which paths it was asked for."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes, self.asked = classes, list[Tensor | Architecture]()

    def forward(self, images: Tensor, paths: Tensor | Architecture) -> Tensor:
        self.asked.append(paths)
        return torch.zeros(len(images), self.classes)


def asked(space: Space, changes: list[str], share: BatchShare, steps: int = 1) -> list[Tensor | Architecture]:
    schedule = Recipe.load("fashion", [f"w_star.batch={BATCH}", "w_star.distillation=null", *changes]).w_star
    model = _Listening(space.classes)
    objective = OneShotPaths(space, schedule, 0, share)
    own = BATCH // share.world
    for step in range(steps):
        objective(model, torch.zeros(own, 1, 28, 28), torch.zeros(own, dtype=torch.long), step)
    return model.asked


def count(space: Space, paths: np.ndarray, network: Architecture) -> int:
    return sum(found == network for found in space.architectures(paths))


def test_a_sandwich_has_its_share_of_the_heaviest_and_of_the_smallest() -> None:
    space = Space.load("fashion")
    (paths,) = asked(space, ["w_star.sandwich=0.2"], BatchShare())
    assert isinstance(paths, Tensor)
    assert count(space, paths.numpy(), space.heaviest()) == count(space, paths.numpy(), space.smallest()) == 8


def test_the_other_paths_are_those_that_are_drawn_without_a_sandwich() -> None:
    space = Space.load("fashion")
    (plain,) = asked(space, ["w_star.sandwich=0"], BatchShare())
    (filled,) = asked(space, ["w_star.sandwich=0.2"], BatchShare())
    assert isinstance(plain, Tensor) and isinstance(filled, Tensor)
    ends = {space.heaviest(), space.smallest()}
    others = [i for i, network in enumerate(space.architectures(filled.numpy())) if network not in ends]
    assert len(others) == BATCH - 16
    assert torch.equal(plain[others], filled[others])


def test_processes_share_one_sandwich() -> None:
    space = Space.load("fashion")
    (whole,) = asked(space, ["w_star.sandwich=0.2"], BatchShare())
    halves = [asked(space, ["w_star.sandwich=0.2"], BatchShare(rank, 2))[0] for rank in range(2)]
    assert isinstance(whole, Tensor)
    assert torch.equal(torch.cat([half for half in halves if isinstance(half, Tensor)]), whole)


def test_with_one_path_per_batch_the_shares_are_of_batches() -> None:
    space, steps = Space.load("fashion"), 400
    networks = Counter(asked(space, ["w_star.paths=single", "w_star.sandwich=0.25"], BatchShare(), steps))
    for end in (space.heaviest(), space.smallest()):
        # binomial: 100 expected, standard deviation 8.7
        assert networks[end] == pytest.approx(steps / 4, abs=35)


def test_a_recipe_without_a_sandwich_describes_itself_as_before() -> None:
    recipe = Recipe.load("fashion", ["w_star.sandwich=0"])
    w_star = recipe.training_settings()["w_star"]
    assert isinstance(w_star, dict) and "sandwich" not in w_star
    assert recipe.changed(["w_star.sandwich=0.1"]).training_settings() != recipe.training_settings()
