"""Whole networks of a supernet and their one-shot accuracies, kept in a file so that each is measured once.

One-shot: with inherited weights, batch-norm statistics recomputed for the network alone. That is what fine-tuning
starts from. The file lies with the other samples of the supernet, in a folder that is named for its weights and
validation images, so neither another supernet nor other images are ever confused with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from deploynas.accuracy.refinement import MeasuredNetwork
from deploynas.files import parse_json, write_json
from deploynas.one_writer import writing_in
from deploynas.pipeline.sampled_images import require_same_images
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture
from deploynas.space.decisions import Choices

FILE = "networks.json"


class MeasuredRecord(BaseModel):
    choices: list[list[int]]
    accuracy: float  # 0..1
    accuracy_se: float  # of the validation images


class MeasuredNetworksFile(BaseModel):
    schema_: Literal["deploynas/measured-networks"] = Field(default="deploynas/measured-networks", alias="schema")
    schema_version: int = 1
    space_hash: str
    supernet: dict[str, str | None]  # weights and images that they were measured with
    networks: list[MeasuredRecord] = []


class MeasuredNetworks:
    """Measures a network when it is first asked for, and remembers it."""

    def __init__(self, supernet: TrainedSupernet) -> None:
        self.supernet, self.path = supernet, supernet.samples_folder() / FILE
        self._known: dict[Choices, MeasuredRecord] = {}
        if self.path.exists():
            file = parse_json(self.path, MeasuredNetworksFile)
            supernet.space.require_hash(file.space_hash, f"{self.path}: its networks")
            self._known = {_key(record.choices): record for record in file.networks}

    def measure(self, architectures: Sequence[Architecture], on_progress: OnProgress = silent) -> list[MeasuredNetwork]:
        """In the order given; written down one by one, so that a stopped command has lost nothing."""
        with writing_in(self.path.parent, "search --refine"):
            require_same_images(self.path.parent, self.supernet.data)
            return self._measured(architectures, on_progress)

    def _measured(self, architectures: Sequence[Architecture], on_progress: OnProgress) -> list[MeasuredNetwork]:
        found = []
        for i, architecture in enumerate(architectures):
            record = self._known.get(architecture.choices) or self._measure(architecture)
            found.append(MeasuredNetwork(architecture, record.accuracy, record.accuracy_se))
            on_progress((i + 1) / len(architectures), f"network {i + 1} of {len(architectures)}")
        return found

    def _measure(self, architecture: Architecture) -> MeasuredRecord:
        accuracy, se = self.supernet.accuracy_alone(architecture)
        choices = [list(choice) for choice in architecture.choices]
        record = MeasuredRecord(choices=choices, accuracy=accuracy, accuracy_se=se)
        self._known[architecture.choices] = record
        file = MeasuredNetworksFile(
            space_hash=self.supernet.space.hash, supernet=self.supernet.identity, networks=list(self._known.values())
        )
        write_json(self.path, file.model_dump(by_alias=True))
        return record


def _key(choices: Sequence[Sequence[int]]) -> Choices:
    return tuple(tuple(choice) for choice in choices)
