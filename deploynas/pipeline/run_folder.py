"""The folder of a run: the one place that knows its layout, whichever command made it.

supernet/   w_h and w_star (safetensors + JSON), metrics.jsonl, and the state of training while it runs
space.yaml                          of an imported supernet whose space is none of the presets
estimator.json, samples/            what decisions are worth, and the passes it was learned from
relaxed/                            relaxed searches, a folder for each gamma that was tried
devices/DEVICE/                     table.json, estimator.json (refined), search.json, networks/ (fine-tuned)
bundles/DEVICE/                     what is handed over
steps/                              what each step of `run` was made from
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SUPERNET, W_STAR = "supernet", "w_star.safetensors"


@dataclass(frozen=True)
class DeviceFolder:
    """What a run keeps for one device."""

    path: Path

    @property
    def table(self) -> Path:
        return self.path / "table.json"

    @property
    def estimator(self) -> Path:
        """That of the run, refined where the search for this device goes."""
        return self.path / "estimator.json"

    @property
    def search(self) -> Path:
        return self.path / "search.json"

    @property
    def networks(self) -> Path:
        return self.path / "networks"


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @classmethod
    def of_space(cls, space_name: str) -> RunFolder:
        """Where commands look when they are told nothing else."""
        return cls(Path("runs") / space_name)

    @classmethod
    def around(cls, w_star: Path) -> RunFolder:
        """The run that a supernet belongs to; weights that lie elsewhere are a run of their own folder."""
        folder = w_star.parent
        return cls(folder.parent if folder.name == SUPERNET else folder)

    @classmethod
    def with_estimator(cls, estimator: Path, space_name: str) -> RunFolder | None:
        """The run that an estimator lies in, refined for a device or not, else that of the space; None: no supernet."""
        within = [estimator.parent, *estimator.parents[2:3]]
        runs = [*(cls(folder) for folder in within), cls.of_space(space_name)]
        return next((run for run in runs if run.w_star.exists()), None)

    @property
    def supernet(self) -> Path:
        return self.path / SUPERNET

    @property
    def w_star(self) -> Path:
        return self.supernet / W_STAR

    @property
    def w_h(self) -> Path:
        return self.supernet / "w_h.safetensors"

    @property
    def space_file(self) -> Path:
        return self.path / "space.yaml"

    @property
    def estimator(self) -> Path:
        return self.path / "estimator.json"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def relaxed(self) -> Path:
        return self.path / "relaxed"

    @property
    def steps(self) -> Path:
        return self.path / "steps"

    @property
    def bundles(self) -> Path:
        return self.path / "bundles"

    def device(self, name: str) -> DeviceFolder:
        return DeviceFolder(self.path / "devices" / name)

    def bundle(self, device_name: str) -> Path:
        return self.bundles / device_name
