"""The latency table of a device as a file: measured once, and recognised when it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.latency.hardware import Hardware
from deploynas.latency.machine_changes import slowed_down
from deploynas.latency.profile import profile
from deploynas.latency.table import Evidence, LatencyTable
from deploynas.latency.target import target_of
from deploynas.one_writer import writing
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.step import Inputs
from deploynas.progress import OnProgress, silent
from deploynas.space import Space

WORRYING = 0.1  # mean relative error on networks that a table was not fitted on


def profile_to(
    path: Path, device: Device, space: Space, seed: int = 0, on_progress: OnProgress = silent
) -> LatencyTable:
    """Measure, or continue what was stopped, and write the table."""
    with writing(path, "profile"):
        journal = path.with_suffix(".partial.jsonl")
        table = profile(device, space, journal=journal, seed=seed, on_progress=on_progress)
        table.save(path)
        journal.unlink(missing_ok=True)
        return table


def existing_table(path: Path, device: Device, space: Space) -> LatencyTable:
    """The table that lies there, if it is of this device, space and machine; refused if not."""
    table = LatencyTable.load(path)
    evidence = table.evidence
    if evidence is None or (evidence.device_hash, table.space.hash) != (device.hash, space.hash):
        what = f"of another device or space ({table.device_name}, {table.space.name})"
    elif evidence.provenance["hardware"]["fingerprint"] != target_of(device).hardware().fingerprint:
        what = f"of another machine ({evidence.provenance['hardware']['processor']})"
    elif device.threads == "all" and _threads(evidence) != target_of(device).hardware().threads_of_all:
        what = f"of {_threads(evidence)} threads, which `threads: all` is no more"
    else:
        return table
    raise InputError(f"{path} holds the table {what}", hint="choose another `--out`, or overwrite it with `--force`")


def _threads(evidence: Evidence) -> int:
    """That `threads: all` was."""
    return Hardware.model_validate(evidence.provenance["hardware"]).threads_of_all


def doubt_about(table: LatencyTable, remedy: str) -> str | None:
    """A warning where a table is not to be trusted."""
    held_back = slowed_down(table.evidence.provenance) if table.evidence else []
    if held_back:
        return f"warning: {'; '.join(held_back)}; let it settle, then measure again: {remedy}"
    if table.mean_error is None or table.mean_error <= WORRYING:
        return None
    return (
        f"warning: the table is off by {100 * table.mean_error:.0f} % in the mean on whole networks it was not "
        f"fitted on; was the machine busy? {remedy}"
    )


@dataclass(frozen=True)
class ProfileStep:
    run: RunFolder
    device: Device
    space: Space

    @property
    def name(self) -> str:
        return f"profile.{self.device.name}"

    def inputs(self) -> Inputs:
        machine = target_of(self.device).hardware()
        threads = {"threads": str(machine.threads_of_all)} if self.device.threads == "all" else {}
        return {
            **threads,
            "device": self.device.hash,
            "effort": content_hash(self.device.effort.model_dump()),
            "space": self.space.hash,
            "hardware": machine.fingerprint,
        }

    def work(self, on_progress: OnProgress) -> None:
        profile_to(self.run.device(self.device.name).table, self.device, self.space, on_progress=on_progress)

    def outputs(self) -> Sequence[Path]:
        return [self.run.device(self.device.name).table]
