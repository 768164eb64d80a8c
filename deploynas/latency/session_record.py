"""How the runtime is told to open a file on a device, in its own spelling: threads, provider, options.

Sessions that are measured are opened by it, and a bundle's manifest carries it, so that whoever serves the file can
open it in the same way without deploynas.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from deploynas.device import Device
from deploynas.latency.hardware import Hardware
from deploynas.providers import Provider

DEVICE_TYPE = "device_type"  # `CPU`, `GPU` or `NPU`: which of a plug-in's devices to use


class SessionRecord(BaseModel):
    provider: str  # by the runtime's name
    plugin: str | None = None  # the Python module that has the provider's library
    device_type: str | None = None  # of the plug-in's devices
    provider_options: dict[str, str] = {}
    environment: dict[str, str] = {}  # before the provider's library is loaded
    threads: int  # of one inference, whoever starts them
    intra_op_threads: int  # those of the session
    inter_op_threads: int = 1
    session_options: dict[str, str] = {}
    batch: int | None = None  # the only one that the provider compiles for; None: any
    cores: list[int] | None = None  # that the process stays on; None: it may use all
    warmup_s: float = 0.0  # of inferences, until the clock of the hardware has settled

    @classmethod
    def of(cls, device: Device, threads: int) -> SessionRecord:
        """`threads`: those of the device file, with `all` as a number."""
        record = device.record
        options = {**device.provider_defaults(threads), **device.provider_options}
        wanted = options.pop(DEVICE_TYPE, None) if record.plugin else None
        # a session's idle threads would spin beside whoever is timed next: 10.8 ms instead of 5.9 with 24 networks
        # loaded, 6.3 when they stop; a network timed alone takes the same either way
        entries = {"session.force_spinning_stop": "1"}
        wanted_entries = {**record.session_options.get(device.precision, {}), **device.session_options}
        entries |= {key: Provider(record.name).spelled(value) for key, value in wanted_entries.items()}
        warmup_s = device.effort.warmup_s
        return cls(
            provider=record.name,
            plugin=record.plugin,
            device_type=str(wanted).upper() if wanted else None,
            provider_options={key: record.spelled(value) for key, value in options.items()},
            environment=dict(record.environment.get(device.precision, {})),
            threads=threads,
            intra_op_threads=1 if record.own_threads else threads,
            session_options=entries,
            batch=device.batch if record.fixed_batch else None,
            cores=None if device.cores is None else list(device.cores),
            warmup_s=record.warmup_s if warmup_s is None else warmup_s,
        )


def as_measured(device: Device, provenance: dict[str, Any]) -> SessionRecord:
    """For a bundle, from where its file was measured. Without the folders of caches, which are a machine's own."""
    threads = device.threads
    if not isinstance(threads, int):
        found = Hardware.model_validate(provenance["hardware"])
        threads = len(device.cores) if device.cores else found.threads_of_all
    record = SessionRecord.of(device, threads)
    kept = {key: value for key, value in record.provider_options.items() if key not in device.record.cache_options}
    return record.model_copy(update={"provider_options": kept})
