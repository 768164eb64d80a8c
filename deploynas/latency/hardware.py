"""What machine this is and how busy: the fingerprint that tells whether two results may be compared."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

from deploynas.files import content_hash
from deploynas.latency.accelerators import accelerators, drivers
from deploynas.latency.installed_packages import provider_packages
from deploynas.latency.instruction_sets import instruction_sets
from deploynas.latency.processor_cores import affinity, cpu_quota, physical_cores, threads_within
from deploynas.latency.processor_name import computer, processor


class Hardware(BaseModel):
    """A machine by what its speed depends on. Equal `fingerprint`: results may be compared.

    Versions of drivers are recorded, but not in the fingerprint: like those of the runtime they change on one and the
    same machine, and what that changed is what two results are compared for.
    """

    machine: str
    processor: str
    cores: int  # that the process may use, as the system counts: several of them may be threads of one
    memory_gib: int
    system: str
    accelerators: list[str]
    fingerprint: str
    # in files of earlier versions all of these are as if nothing were known
    computer: str = ""  # what the processor sits in, where that has a name: a board, a Mac
    physical_cores: int | None = None  # of those that the process may use
    cpu_quota: float | None = None  # CPUs' worth of time, where a container is allowed less than `cores`
    on_chip: list[str] = []  # GPUs and NPUs that are part of the processor
    drivers: dict[str, str] = {}
    instruction_sets: list[str] = []  # for integers and short floats, as the system names them

    @property
    def threads_of_all(self) -> int:
        """What `threads: all` means on it; to earlier versions it meant `cores`."""
        return self.cores if self.physical_cores is None else threads_within(self.physical_cores, self.cpu_quota)


@lru_cache(maxsize=1)
def hardware() -> Hardware:
    """Of this machine, as it was when first asked."""
    return hardware_of(Path("/"), affinity())


def hardware_of(root: Path, allowed: list[int] | None) -> Hardware:
    """Of the machine whose files are below `root`, to a process that may use these CPUs."""
    import psutil

    cores = len(allowed) if allowed else os.cpu_count() or 1
    quota = cpu_quota(root)
    found = accelerators(root)
    named = Hardware(
        machine=platform.machine(),
        processor=processor(root),
        cores=cores,
        memory_gib=round(psutil.virtual_memory().total / 2**30),
        system=platform.system(),
        accelerators=[one.name for one in found if not one.on_chip],
        fingerprint="",
        computer=computer(root),
        physical_cores=physical_cores(root, allowed),
        cpu_quota=None if quota is None or quota >= cores else round(quota, 3),
        on_chip=[one.name for one in found if one.on_chip],
        drivers=drivers(root),
        instruction_sets=instruction_sets(root),
    )
    return named.model_copy(update={"fingerprint": _fingerprint(named)})


def _fingerprint(found: Hardware) -> str:
    what_speed_depends_on = found.model_dump(include={"machine", "processor", "cores", "accelerators"})
    # absent where there is none: machines without them keep the fingerprint that their tables carry
    unusual = found.model_dump(include={"computer", "cpu_quota"}, exclude_defaults=True)
    return content_hash({**what_speed_depends_on, **unusual})


def load_average() -> list[float]:
    """Runnable processes over the last 1, 5 and 15 minutes."""
    import psutil

    return [round(value, 2) for value in psutil.getloadavg()]


def free_memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def versions() -> dict[str, str]:
    """Of what measures, and of the packages that providers compute with, where there are any."""
    import numpy
    import onnx
    import onnxruntime

    import deploynas

    return {
        "deploynas": deploynas.__version__,
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        **provider_packages(),
    }
