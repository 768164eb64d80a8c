"""Fine-tuning a network of a run's supernet, and finding the network that a search result means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploynas.files import content_hash
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.step import Inputs
from deploynas.pipeline.supernet import TrainedSupernet, open_supernet
from deploynas.progress import OnProgress, silent
from deploynas.provenance import NetworkLineage, origin
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture
from deploynas.training.data import Data
from deploynas.training.finetune import NETWORK, FinetuneResult, FineTuningTask
from deploynas.training.finetune import finetune as finetune_task
from deploynas.training.recipe import Recipe
from deploynas.training.state import OtherSettings
from deploynas.training.teacher import teacher_hash


@dataclass(frozen=True)
class FineTuneOptions:
    recipe: Recipe | None = None  # None: the preset that suits the space
    teacher: str | None = None  # None: w_h beside the supernet
    from_scratch: bool = False  # random weights, for comparison
    search: Path | None = None  # the search result that the network comes from
    force: bool = False


def finetune(
    run: str | Path | RunFolder,
    architecture: str | Architecture,
    data: str | Data | None = None,
    out: str | Path | None = None,
    options: FineTuneOptions | None = None,
    on_progress: OnProgress = silent,
) -> FinetuneResult:
    """Fine-tune a sub-network of the run's supernet, or continue; by default on the supernet's data, beside it."""
    supernet, options = open_supernet(run, data), options or FineTuneOptions()
    if isinstance(architecture, str):
        architecture = Architecture.parse(architecture, supernet.space)
    around = RunFolder.around(supernet.path)
    folder = Path(out) if out else around.path / "networks" / content_hash(architecture.choices)
    task = fine_tuning_task(supernet, architecture, options)
    return finetune_task(task, folder, options.force, on_progress)


def fine_tuning_task(supernet: TrainedSupernet, architecture: Architecture, options: FineTuneOptions) -> FineTuningTask:
    recipe = options.recipe or Recipe.for_space(supernet.space.name, None)
    taught = recipe.finetune.distillation.weight > 0
    imported = supernet.record.imported
    return FineTuningTask(
        supernet.checkpoint,
        architecture,
        supernet.data,
        recipe,
        supernet.teacher(options.teacher) if taught else None,
        options.from_scratch,
        NetworkLineage(
            search=origin(options.search),
            supernet=origin(supernet.path),
            imported=imported.file if imported else None,
            teacher=options.teacher,
        ),
    )


def supernet_of(path: Path) -> Path:
    """Where the supernet of a search result is looked for: the run that its estimator lies in, else runs/SPACE."""
    file = SearchFile.load(path)
    name = file.the_space().name
    around = RunFolder.with_estimator(Path(file.estimator.path), name) if file.estimator else None
    return (around or RunFolder.of_space(name)).path


@dataclass(frozen=True)
class FinetuneStep:
    """One network of one device, in a folder that is named for everything that decides its weights."""

    run: RunFolder
    device_name: str
    supernet: TrainedSupernet
    architecture: Architecture
    options: FineTuneOptions = field(default_factory=FineTuneOptions)

    @property
    def name(self) -> str:
        return f"finetune.{self.device_name}.{content_hash(self.inputs())}"

    @property
    def folder(self) -> Path:
        return self.run.device(self.device_name).networks / content_hash(self.inputs())

    @property
    def network(self) -> Path:
        return self.folder / f"{NETWORK}.safetensors"

    def inputs(self) -> Inputs:
        return {
            "architecture": content_hash([self.architecture.space.hash, self.architecture.choices]),
            **finetuning_inputs(self.supernet, self.options),
        }

    def work(self, on_progress: OnProgress) -> None:
        task = fine_tuning_task(self.supernet, self.architecture, self.options)
        try:
            finetune_task(task, self.folder, self.options.force, on_progress)
        except OtherSettings:
            finetune_task(task, self.folder, True, on_progress)

    def outputs(self) -> Sequence[Path]:
        return [self.network, self.network.with_suffix(".json")]


def finetuning_inputs(supernet: TrainedSupernet, options: FineTuneOptions) -> Inputs:
    """What decides how any network of the supernet comes out of fine-tuning."""
    recipe = options.recipe or Recipe.for_space(supernet.space.name, None)
    taught = recipe.finetune.distillation.weight > 0
    return {
        "supernet": supernet.checkpoint.weights_sha256,
        "data": supernet.data.content_hash,
        "recipe": content_hash(recipe.finetune_settings()),
        "teacher": teacher_hash(supernet.teacher_text(options.teacher)) if taught else "nobody",
    }
