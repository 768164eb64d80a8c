"""The posterior of a trained supernet's choices, fitted once and kept with its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from deploynas.accuracy.posterior import Posterior, PosteriorSettings, fit_posterior
from deploynas.accuracy.supernet_likelihood import SupernetLikelihood
from deploynas.files import content_hash, parse_json, write_json
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.training.data import Subset

if TYPE_CHECKING:
    from torch import Tensor


class PosteriorFile(BaseModel):
    schema_: Literal["deploynas/posterior"] = Field(default="deploynas/posterior", alias="schema")
    schema_version: int = 1
    space_hash: str
    supernet: dict[str, str | None]  # weights and images that it was fitted to
    settings: dict[str, Any]
    steps: int
    log_p: list[float]  # of every option of every decision, in the order of a vector of decisions
    values: list[float]  # log p(D|A) of the networks that were drawn


def posterior_of(supernet: TrainedSupernet, settings: PosteriorSettings, on_progress: OnProgress = silent) -> Posterior:
    path = supernet.samples_folder() / f"posterior-{content_hash(asdict(settings))}.json"
    if path.exists():
        file = parse_json(path, PosteriorFile)
        supernet.space.require_hash(file.space_hash, f"{path}: its choices")
        return Posterior(np.array(file.log_p), file.steps, tuple(file.values))
    found = fit_posterior(supernet.space.decisions, _likelihood(supernet, settings.seed), settings, on_progress)
    file = PosteriorFile(
        space_hash=supernet.space.hash,
        supernet=supernet.identity,
        settings=asdict(settings),
        steps=found.steps,
        log_p=found.log_p.tolist(),
        values=list(found.values),
    )
    write_json(path, file.model_dump(by_alias=True))
    return found


def _likelihood(supernet: TrainedSupernet, seed: int) -> SupernetLikelihood:
    validation, batches = supernet.data.validation, supernet.batches
    network = supernet.one_shot.supernets[0]

    def batch_of(positions: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        return batches.evaluation(Subset(validation.images, validation.rows[positions]))

    return SupernetLikelihood(network, len(validation), batch_of, seed=seed)
