"""A relaxed search learns from two halves of the images, and resumes bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deploynas.errors import DeployNASError, InputError
from deploynas.space import Space
from deploynas.training.data import Data, Subset, load_data
from deploynas.training.metrics import read
from deploynas.training.relaxed import AlphaFile, RelaxedSettings, RelaxedTask, halves, relax
from deploynas.training.relaxed_updates import RULES, UpdateSettings, updates_for
from deploynas.training.untrained import untrained_supernet


@pytest.fixture
def few(space: Space) -> Data:
    """129 images: 65 and 64."""
    data = load_data("fashion-mini", space)
    return replace(data, train=Subset(data.train.images, data.train.rows[:129]))


def task(space: Space, data: Data, updates: UpdateSettings | None = None, **settings: int) -> RelaxedTask:
    chosen = RelaxedSettings(updates or updates_for("rarts"), **{"epochs": 3, "batch": 32, **settings})
    zeros = np.zeros(len(space.decisions))
    return RelaxedTask(
        untrained_supernet(space), "drawn", data, chosen, lambda alpha: zeros, "nothing", checkpoint_every_s=0
    )


def test_the_halves_are_all_images_and_share_none(few: Data) -> None:
    first, second = halves(few, 0)
    assert (len(first), len(second)) == (65, 64)
    assert set(first.rows.tolist()) | set(second.rows.tolist()) == set(few.train.rows.tolist())
    assert not set(first.rows.tolist()) & set(second.rows.tolist())
    assert not torch.equal(halves(few, 1)[1].rows, second.rows)
    with pytest.raises(InputError, match="too few"):
        halves(replace(few, train=Subset(few.train.images, few.train.rows[:3])), 0)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns_and_repeats(space: Space, few: Data, tmp_path: Path, rule) -> None:
    own = task(space, few, updates_for(rule))
    found = relax(own, tmp_path / "one")
    alpha = np.array(found.alpha)
    assert found.steps == 3 * 2 and np.abs(alpha).max() > 0
    for where in space.decisions.slices:  # a softmax pulls no sum
        assert alpha[where].sum() == pytest.approx(0, abs=1e-5)
    assert relax(task(space, few, updates_for(rule)), tmp_path / "two") == found
    assert relax(own, tmp_path / "one") == found  # finished: read, not searched again
    assert not list((tmp_path / "one").glob("state*"))
    assert relax(task(space, few, updates_for(rule), seed=1), tmp_path / "other").alpha != found.alpha


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("rule", ["rarts", "milenas"])
@pytest.mark.parametrize("step", [1, 4])
def test_a_search_that_dies_after_any_step_resumes_to_the_same_bits(
    space: Space, few: Data, tmp_path: Path, rule, step: int
) -> None:
    expected = relax(task(space, few, updates_for(rule)), tmp_path / "whole")
    seen = 0

    def die(fraction: float, what: str) -> None:
        nonlocal seen
        seen += 1
        if seen == step + 1:  # what the step before it did is saved
            raise _Killed

    with pytest.raises(_Killed):
        relax(task(space, few, updates_for(rule)), tmp_path / "killed", die)
    assert (tmp_path / "killed" / "state.json").exists() and not (tmp_path / "killed" / "alpha.json").exists()
    assert relax(task(space, few, updates_for(rule)), tmp_path / "killed") == expected
    logs = [read(tmp_path / name / "metrics.jsonl") for name in ("whole", "killed")]
    assert logs[0] == logs[1]


def test_a_penalty_moves_alpha_away_from_what_costs(space: Space, few: Data, tmp_path: Path) -> None:
    cost = np.zeros(len(space.decisions))
    dear = space.decisions.starts[:-1]
    cost[dear] = 1.0
    for gamma, folder in ((0.0, "free"), (5.0, "paid")):
        own = task(space, few, replace(updates_for("rarts"), gamma=gamma))
        relax(replace(own, penalty=lambda alpha: cost), tmp_path / folder)
    free, paid = (np.array(_alpha(tmp_path / name).alpha)[dear] for name in ("free", "paid"))
    assert (paid < free - 1).all()


def _alpha(folder: Path) -> AlphaFile:
    return AlphaFile.model_validate_json((folder / "alpha.json").read_text())


def test_a_folder_of_other_settings_is_refused(space: Space, few: Data, tmp_path: Path) -> None:
    relax(task(space, few), tmp_path)
    with pytest.raises(InputError, match="other settings"):
        relax(task(space, few, seed=1), tmp_path)


def test_a_loss_that_explodes_is_named(space: Space, few: Data, tmp_path: Path) -> None:
    with pytest.raises(DeployNASError, match="the loss of the relaxed search became nan"):
        relax(task(space, few, replace(updates_for("rarts"), eta_w=1e30, eta_u=1e30)), tmp_path)


def test_an_open_input_size_is_refused(sized: Space, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="input size open"):
        relax(task(sized, load_data("fashion-mini", sized)), tmp_path)
