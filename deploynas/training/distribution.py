"""One process or many: what `torchrun` started, and the few things the processes tell each other.

gloo on CPUs, nccl on GPUs. Only the first process reads and writes files; what it read travels to the
others as bytes, so hosts need no shared disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from deploynas.errors import InputError
from deploynas.one_writer import writing_in
from deploynas.training.batches import BatchShare


@dataclass(frozen=True)
class Processes:
    """Who we are among the processes of this run, and the device that is ours."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def share(self) -> BatchShare:
        return BatchShare(self.rank, self.world)

    def require_batch(self, batch: int, what: str) -> None:
        if batch % self.world or batch // self.world < 2:
            raise InputError(
                f"`{what}.batch` is {batch}, which {self.world} processes cannot share equally",
                hint=f"--set {what}.batch={max(2, round(batch / self.world)) * self.world}",
            )

    def wrap(self, model: nn.Module, some_unused: bool) -> nn.Module:
        """Averages gradients over processes; `some_unused` if a step may not reach all weights."""
        if self.world == 1:
            return model
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, find_unused_parameters=some_unused)

    def total(self, *values: float) -> list[float]:
        """Sums over all processes."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def gather(self, numbers: np.ndarray) -> np.ndarray:
        """Integers of all processes, added up: exact, so each may fill in its own part and leave zeros elsewhere."""
        if self.world == 1:
            return numbers
        tensor = torch.from_numpy(numbers).to(self.device)
        dist.all_reduce(tensor)
        return tensor.cpu().numpy()

    def share_module(self, module: nn.Module) -> None:
        """Everyone gets the first process's weights and statistics."""
        if self.world > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, 0)

    def share_bytes(self, content: bytes | None) -> bytes | None:
        """Everyone gets the first process's bytes (None travels too)."""
        if self.world == 1:
            return content
        size = torch.tensor([-1 if content is None else len(content)], device=self.device)
        dist.broadcast(size, 0)
        if int(size) < 0:
            return None
        received = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        if self.first and content:
            received.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        dist.broadcast(received, 0)
        return received.cpu().numpy().tobytes()


def first_writing_in(folder: Path, command: str) -> AbstractContextManager[None]:
    """See `writing_in`: only the first of the processes that `torchrun` started writes, and it speaks for all."""
    return writing_in(folder, command) if os.environ.get("RANK", "0") == "0" else nullcontext()


@contextmanager
def processes() -> Iterator[Processes]:
    """Join the processes that `torchrun` started, or be alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    if world == 1:
        yield Processes(0, 1, torch.device("cuda", 0) if cuda else torch.device("cpu"))
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Processes(dist.get_rank(), world, device)
    finally:
        dist.destroy_process_group()
