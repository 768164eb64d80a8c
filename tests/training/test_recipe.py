"""Recipes are checked as a whole, and every value can be changed by name."""

from __future__ import annotations

import pytest

from deploynas.errors import InputError
from deploynas.training.recipe import PRESETS, Recipe


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    assert Recipe.load(name).w_star.paths == "multi"


def test_the_imagenet_recipe_is_the_papers():
    recipe = Recipe.load("imagenet")
    for schedule, epochs in ((recipe.w_h, 250), (recipe.w_star, 100)):
        assert (schedule.epochs, schedule.lr, schedule.momentum) == (epochs, 0.1, 0.9)
        assert (schedule.weight_decay, schedule.label_smoothing) == (1e-4, 0.1)
        assert (schedule.optimizer, schedule.scheduler) == ("sgd", "cosine")
    assert recipe.augmentation.auto_augment and recipe.augmentation.random_erasing


def test_values_can_be_changed_by_name():
    recipe = Recipe.load("fashion", ["w_h.epochs=3", "w_star.distillation=null", "augmentation.flip=0.25"])
    assert (recipe.w_h.epochs, recipe.w_star.distillation, recipe.augmentation.flip) == (3, None, 0.25)
    again = recipe.changed(["w_star.distillation.weight=0.3"])
    assert again.w_star.distillation.weight == 0.3


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(InputError) as error:
        Recipe.load("fashion", ["w_h.epochs=0", "w_h.speed=9", "precision=int8"])
    assert all(key in error.value.message for key in ("w_h.epochs", "w_h.speed", "precision"))


@pytest.mark.parametrize("change", ["w_h.epochs", "seed.x=1", "w_h=3"])
def test_a_malformed_change_is_refused(change):
    with pytest.raises(InputError):
        Recipe.load("fashion", [change])


def test_an_unknown_recipe_names_the_known_ones():
    with pytest.raises(InputError) as error:
        Recipe.load("imgnet")
    assert "imagenet" in error.value.hint
