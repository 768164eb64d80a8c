"""Where training stands, on disk: everything that makes the next step what it would have been.

Tensors (weights, their average, optimizer) go to `state-STEP.safetensors`; then `state.json`, which names
that file, is renamed into place; then the previous tensors are deleted. Whatever moment the process dies
at, state.json names complete tensors. Random states need no saving: every step draws from seeds of its own
(see batches).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, Field
from safetensors.torch import load
from torch import Tensor, nn
from torch.optim import Optimizer

from deploynas.errors import InputError
from deploynas.files import parse_json, write_json
from deploynas.inside_path import InsidePath, within
from deploynas.supernet.checkpoint_file import read_bytes_checked, write_tensors

POINTER = "state.json"


class OtherSettings(InputError):
    """A folder holds the work of a run with other settings."""

    def __init__(self, message: str) -> None:
        hint = "repeat the command it was started with, give another --out, or start over with --force"
        super().__init__(message, hint)


class StateFile(BaseModel):
    schema_: Literal["deploynas/training-state"] = Field(default="deploynas/training-state", alias="schema")
    schema_version: int = 1
    phase: str
    fingerprint: str  # of everything that decides the outcome: a state of another run is refused
    step: int
    epoch_totals: list[float]  # loss, correct, images since the epoch began
    optimizer_groups: list[dict[str, Any]]
    scaler: dict[str, Any]
    tensors: InsidePath
    sha256: str


class Trainee:
    """What training changes: weights, their moving average, optimizer, and the scale of mixed precision."""

    def __init__(
        self, model: nn.Module, average: nn.Module | None, optimizer: Optimizer, scaler: torch.amp.GradScaler
    ) -> None:
        self.model, self.average, self.optimizer, self.scaler = model, average, optimizer, scaler

    def tensors(self) -> dict[str, Tensor]:
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.state_dict().items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if value is not None:
                    tensors[f"optimizer/{index}/{name}"] = torch.as_tensor(value)
        return tensors

    def groups(self) -> list[dict[str, Any]]:
        return self.optimizer.state_dict()["param_groups"]

    def restore(self, file: StateFile, tensors: dict[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        self.model.load_state_dict(part("model/"))
        if self.average is not None:
            self.average.load_state_dict(part("average/"))
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in part("optimizer/").items():
            index, key = name.split("/", 1)
            state.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({"state": state, "param_groups": file.optimizer_groups})
        self.scaler.load_state_dict(file.scaler)


def save_state(
    folder: Path, phase: str, fingerprint: str, step: int, epoch_totals: list[float], trainee: Trainee
) -> bool:
    """Write the state after `step` steps. False, and nothing written, if a weight is not finite."""
    tensors = trainee.tensors()
    if not all(bool(t.isfinite().all()) for n, t in tensors.items() if n.startswith("model/")):
        return False
    path = folder / f"state-{phase}-{step}.safetensors"
    sha256 = write_tensors(path, tensors)
    file = StateFile(
        phase=phase,
        fingerprint=fingerprint,
        step=step,
        epoch_totals=epoch_totals,
        optimizer_groups=trainee.groups(),
        scaler=trainee.scaler.state_dict(),
        tensors=path.name,
        sha256=sha256,
    )
    write_json(folder / POINTER, file.model_dump(by_alias=True))
    for old in folder.glob("state-*.safetensors"):
        if old.name != path.name:
            old.unlink(missing_ok=True)
    return True


def read_state(folder: Path) -> tuple[StateFile, bytes] | None:
    """What was saved last, or None."""
    if not (folder / POINTER).exists():
        return None
    file = parse_json(folder / POINTER, StateFile)
    return file, read_bytes_checked(within(folder, file.tensors), file.sha256, POINTER)


def parse_state(description: bytes, content: bytes) -> tuple[StateFile, dict[str, Tensor]]:
    """The same from bytes that came from another process."""
    return StateFile.model_validate_json(description), load(content)


def remove_state(folder: Path) -> None:
    (folder / POINTER).unlink(missing_ok=True)
    for old in folder.glob("state-*.safetensors"):
        old.unlink(missing_ok=True)


def require_same_run(file: StateFile, fingerprint: str, folder: Path) -> None:
    if file.fingerprint != fingerprint:
        raise OtherSettings(
            f"{folder} holds a run with other settings, stopped in phase {file.phase} at step {file.step}"
        )
