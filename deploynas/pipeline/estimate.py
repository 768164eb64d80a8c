"""From the supernet of a run to its estimator; passes over the validation images are kept and reused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from deploynas import __version__
from deploynas.accuracy.estimation import Estimate, EstimationSettings
from deploynas.accuracy.estimation import estimate as estimate_from
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.samples import Samples, Team
from deploynas.files import content_hash, now
from deploynas.one_writer import writing_in
from deploynas.pipeline.process_team import ProcessTeam
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.sampled_images import require_same_images
from deploynas.pipeline.step import Inputs
from deploynas.pipeline.supernet import TrainedSupernet, open_supernet
from deploynas.progress import OnProgress, silent
from deploynas.training.data import Data
from deploynas.training.distribution import processes


@dataclass(frozen=True)
class KeptPasses:
    """Where passes are kept, the seed of the paths in them, and who helps to measure them."""

    folder: Path | None = None  # None: `samples/` of the run
    seed: int = 0
    team: Team | None = None


@dataclass(frozen=True)
class SavedEstimate:
    estimate: Estimate
    path: Path
    samples: Path


def estimate(
    run: str | Path | RunFolder,
    settings: EstimationSettings | None = None,
    data: str | Data | None = None,
    out: str | Path | None = None,
    on_progress: OnProgress = silent,
) -> StoredEstimator:
    """What every decision is worth in the run's supernet; written to `out`, by default `estimator.json` of the run."""
    supernet = open_supernet(run, data)
    path = Path(out) if out else None
    return estimate_supernet(
        supernet, settings or EstimationSettings(), path, KeptPasses(), on_progress
    ).estimate.estimator


def estimate_together(
    source: Path,
    data: str | None,
    settings: EstimationSettings,
    out: Path | None,
    passes: KeptPasses,
    on_progress: OnProgress = silent,
) -> SavedEstimate | None:
    """As `estimate`, its passes shared among the processes that `torchrun` started; None in all but the first."""
    with processes() as here:
        supernet = open_supernet(source, data)
        if here.world == 1:
            return estimate_supernet(supernet, settings, out, passes, on_progress)
        team = ProcessTeam(here, supernet.one_shot)
        if not here.first:
            team.serve()
            return None
        try:
            return estimate_supernet(supernet, settings, out, replace(passes, team=team), on_progress)
        finally:
            team.dismiss()


def estimate_supernet(
    supernet: TrainedSupernet,
    settings: EstimationSettings,
    out: Path | None = None,
    passes: KeptPasses | None = None,
    on_progress: OnProgress = silent,
) -> SavedEstimate:
    passes, run = passes or KeptPasses(), RunFolder.around(supernet.path)
    path, folder = out or run.estimator, supernet.samples_folder(passes.folder)
    # an estimator that goes elsewhere leaves the run to others, its passes do not
    with writing_in(run.path, "estimate") if path == run.estimator else nullcontext(), writing_in(folder, "estimate"):
        return _estimated(supernet, settings, path, folder, passes, on_progress)


def _estimated(
    supernet: TrainedSupernet,
    settings: EstimationSettings,
    path: Path,
    folder: Path,
    passes: KeptPasses,
    on_progress: OnProgress,
) -> SavedEstimate:
    require_same_images(folder, supernet.data)
    one_shot = supernet.one_shot
    samples = Samples(one_shot.space, one_shot, folder, passes.seed, passes.team)
    provenance = {
        "created": now(),
        "deploynas": __version__,
        "supernet": supernet.identity,
        "asked": settings.describe(),
    }
    found = estimate_from(samples, settings, provenance, on_progress)
    found.estimator.save(path)
    return SavedEstimate(found, path, folder)


@dataclass(frozen=True)
class EstimateStep:
    run: RunFolder
    supernet: TrainedSupernet
    settings: EstimationSettings
    name: str = "estimate"

    def inputs(self) -> Inputs:
        return {
            "supernet": self.supernet.checkpoint.weights_sha256,
            "data": self.supernet.data.content_hash,
            "settings": content_hash(self.settings.describe()),
        }

    def work(self, on_progress: OnProgress) -> None:
        estimate_supernet(self.supernet, self.settings, self.run.estimator, KeptPasses(), on_progress)

    def outputs(self) -> Sequence[Path]:
        return [self.run.estimator]
