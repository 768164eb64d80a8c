"""Training a supernet into the folder of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploynas.files import content_hash
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.step import Inputs, record_done
from deploynas.progress import OnProgress, silent
from deploynas.space import Space
from deploynas.training.data import Data, load_data
from deploynas.training.distribution import first_writing_in
from deploynas.training.oneshot import TrainingResult, train_supernet
from deploynas.training.recipe import Recipe


@dataclass(frozen=True)
class TrainedRun(RunFolder):
    result: TrainingResult


def train(
    space: str | Space,
    data: str | Data,
    out: str | Path,
    recipe: str | Path | Recipe | None = None,
    force: bool = False,
    on_progress: OnProgress = silent,
) -> TrainedRun:
    """Train w_h and w* into the run folder `out`, or continue; other settings than those of before are refused."""
    space = Space.load(space) if isinstance(space, str) else space
    if not isinstance(recipe, Recipe):
        recipe = Recipe.for_space(space.name, recipe)
    loaded = load_data(data, space) if isinstance(data, str) else data
    step = TrainStep(RunFolder(Path(out)), space, loaded, recipe, force)
    with first_writing_in(step.run.path, "train"):
        result = train_supernet(space, loaded, step.run.supernet, recipe, force, on_progress)
        if result.first:
            record_done(step, step.run, step.inputs())
    return TrainedRun(step.run.path, result)


@dataclass(frozen=True)
class TrainStep:
    run: RunFolder
    space: Space
    data: Data
    recipe: Recipe
    force: bool = False
    name: str = "train"

    def inputs(self) -> Inputs:
        return {
            "space": self.space.hash,
            "data": self.data.content_hash,
            "recipe": content_hash(self.recipe.training_settings()),
        }

    def work(self, on_progress: OnProgress) -> None:
        # refuses a supernet of other settings: hours of training are not thrown away unless `--force` says so
        train_supernet(self.space, self.data, self.run.supernet, self.recipe, self.force, on_progress)

    def outputs(self) -> Sequence[Path]:
        weights = (self.run.w_h, self.run.w_star)
        return [*weights, *(path.with_suffix(".json") for path in weights)]
