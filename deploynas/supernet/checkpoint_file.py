"""The files of a checkpoint: weights in safetensors, and beside them a JSON file that says what they are.

`name.safetensors` holds tensors only. `name.json` (schema `deploynas/checkpoint`) holds the space, the architecture of
a single sub-network, what the caller wants remembered, and the SHA-256 of the weights, so that two files that do not
belong together are noticed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from deploynas import __version__
from deploynas.errors import InputError
from deploynas.files import now, parse_json, write_bytes, write_json
from deploynas.space import Architecture, Space
from deploynas.supernet.kernels import KernelRule


class CheckpointFile(BaseModel):
    schema_: Literal["deploynas/checkpoint"] = Field(default="deploynas/checkpoint", alias="schema")
    schema_version: int = 1
    kind: Literal["supernet", "network"]
    space: dict[str, Any]
    space_hash: str
    architecture: list[list[int]] | None = None
    kernel_rule: KernelRule = "centre"  # of a supernet: how smaller kernels come out of the largest
    weights_sha256: str
    about: dict[str, Any] = {}  # data, recipe, accuracy: whatever made it
    deploynas: str = ""
    created: str = ""


@dataclass(frozen=True)
class Saved:
    """What a checkpoint's files hold."""

    path: Path
    file: CheckpointFile
    space: Space
    architecture: Architecture | None  # None: a supernet
    tensors: dict[str, Tensor]

    def fill(self, model: nn.Module) -> nn.Module:
        """Give the weights to the network that they are of; in evaluation mode."""
        try:
            model.load_state_dict(self.tensors)
        except RuntimeError as error:
            raise InputError(
                f"{self.path}: its tensors are not those of the network that {self.path.stem}.json describes"
            ) from error
        return model.eval()


def write_checkpoint(
    path: Path,
    model: nn.Module,
    space: Space,
    architecture: Architecture | None,
    about: dict[str, Any] | None,
    kernel_rule: KernelRule = "centre",
) -> None:
    """Write `path` (ending in .safetensors) and its JSON sidecar."""
    sha256 = write_tensors(path.with_suffix(".safetensors"), model.state_dict())
    file = CheckpointFile(
        kind="supernet" if architecture is None else "network",
        space=space.describe(),
        space_hash=space.hash,
        architecture=[list(choice) for choice in architecture.choices] if architecture else None,
        kernel_rule=kernel_rule,
        weights_sha256=sha256,
        about=about or {},
        deploynas=__version__,
        created=now(),
    )
    write_json(path.with_suffix(".json"), file.model_dump(by_alias=True))


def read_checkpoint(path: Path) -> Saved:
    file = parse_json(path.with_suffix(".json"), CheckpointFile)
    space = Space.from_description(file.space)
    space.require_hash(file.space_hash, f"{path}: it")
    architecture = space.architecture(file.architecture) if file.architecture is not None else None
    return Saved(path, file, space, architecture, read_tensors(path.with_suffix(".safetensors"), file.weights_sha256))


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> str:
    """Write all of the tensors or nothing; return the SHA-256 of the file."""
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    try:
        return load(read_bytes_checked(path, sha256, path.with_suffix(".json").name))
    except SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file ({error})") from error


def read_bytes_checked(path: Path, sha256: str, described_by: str) -> bytes:
    """The content of a file, if it is still the one that was described."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(
            f"{path}: not the weights that {described_by} describes (SHA-256 differs)",
            hint="the two files are from different runs, or one was cut off; copy both again",
        )
    return content
