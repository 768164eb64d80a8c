"""The machine that measures, behind one interface: this one, or the host that a device file names.

Everything that depends on the machine is asked of its target: facts about it, visits of a plan, and where the time goes
inside a model. Nobody else needs to know where the target is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.breakdown import Share, breakdown
from deploynas.latency.device_check import Checked
from deploynas.latency.facts import Facts, facts_here, require_runnable
from deploynas.latency.hardware import Hardware, hardware
from deploynas.latency.inputs import Shapes, Values
from deploynas.latency.ssh_target import OnWait, SshTarget
from deploynas.latency.worker import CheckRequest, MeasureRequest, Plan, Request, Visit
from deploynas.latency.worker_process import WorkerProcess, answer


def _ignored(words: str) -> None:
    pass


class Target(Protocol):
    @property
    def device(self) -> Device: ...

    def facts(self) -> Facts:
        """As they are now; an error if the machine is not the one that the device file means, or lacks the provider."""
        ...

    def hardware(self) -> Hardware:
        """Of the machine, whether or not it can run the device."""
        ...

    def visits(self, plan: Plan) -> Iterator[Visit]:
        """The visits of a plan, each as it is made, by a fresh process."""
        ...

    def breakdown(self, model: Path, shapes: Shapes | None = None, values: Values | None = None) -> list[Share]:
        """Where the time goes inside a model."""
        ...

    def check(self) -> Iterator[Checked]:
        """Whether it can run the device, question by question."""
        ...


def target_of(device: Device, on_wait: OnWait = _ignored) -> Target:
    """The machine of a device; `on_wait` hears when a connection to it is lost, and what happens next."""
    return LocalTarget(device) if device.host is None else SshTarget(device, on_wait)


@dataclass(frozen=True)
class LocalTarget:
    """This machine. Facts and breakdowns are made in this process, visits in processes of their own."""

    device: Device

    def facts(self) -> Facts:
        facts = facts_here()
        require_runnable(self.device, facts)
        return facts

    def hardware(self) -> Hardware:
        return hardware()

    def visits(self, plan: Plan) -> Iterator[Visit]:
        return map(Visit.model_validate, self._answers(MeasureRequest(plan=plan)))

    def check(self) -> Iterator[Checked]:
        for said in self._answers(CheckRequest(device=self.device.describe())):
            yield Checked.model_validate(said["checked"])

    def _answers(self, request: Request) -> Iterator[dict[str, Any]]:
        """Of a fresh process."""
        command = [sys.executable, "-m", "deploynas.latency.worker"]
        with WorkerProcess(command, request) as worker:
            for line in worker.lines():
                yield answer(line)
            code = worker.process.wait()
        if code != 0:
            raise DeployNASError(
                f"the measuring process ended with code {code}",
                hint="out of memory, or a crash of a provider's library? the same command goes on where it stopped",
            )

    def breakdown(self, model: Path, shapes: Shapes | None = None, values: Values | None = None) -> list[Share]:
        return breakdown(model, self.device, shapes, values)
