"""A machine elsewhere as a target: the same requests to the same worker as here, through `ssh`.

Parts and networks of a space are built there from the plan; only ONNX files travel, each once. A connection that is
lost costs the visit in hand: what is missing is asked for again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from deploynas import __version__
from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.breakdown import Share
from deploynas.latency.device_check import Checked
from deploynas.latency.entry import Entry
from deploynas.latency.facts import Facts, require_hardware, require_provider
from deploynas.latency.hardware import Hardware
from deploynas.latency.inputs import Shapes, Values
from deploynas.latency.ssh import SILENCE_S, Host, LostConnection
from deploynas.latency.worker import (
    BreakdownRequest,
    CheckRequest,
    FactsRequest,
    MeasureRequest,
    Plan,
    StoreRequest,
    Visit,
)

Result = TypeVar("Result")
OnWait = Callable[[str], None]

# before each further attempt, as long as none has brought a visit; a small board has restarted meanwhile
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0)
_met: dict[Host, Hardware] = {}  # those that have answered this process, with the right version


@dataclass(frozen=True)
class SshTarget:
    device: Device
    on_wait: OnWait
    _stored: dict[str, str] = field(default_factory=dict)  # where a model lies there, by its SHA-256

    @property
    def host(self) -> Host:
        return Host.of(self.device)

    def facts(self) -> Facts:
        facts = self._facts()
        require_hardware(self.device, facts.hardware, f"`{self.host.name}`")
        require_provider(self.device, facts.providers, self.host.pip)
        return facts

    def hardware(self) -> Hardware:
        return _met.get(self.host) or self._facts().hardware

    def visits(self, plan: Plan) -> Iterator[Visit]:
        self._meet()
        paths = {entry.path: self._store(Path(entry.path)) for entry in plan.entries if entry.path}
        entries = [_moved(entry, paths) for entry in plan.entries]
        left, patience = dict(plan.visits), _Patience(self.host, self.on_wait)
        while any(left.values()):
            wanted = [entry for entry in entries if left[entry.key]]
            visits = {entry.key: left[entry.key] for entry in wanted}
            missing = plan.model_copy(update={"entries": wanted, "visits": visits})
            try:
                with _named(paths), self.host.worker(MeasureRequest(plan=missing, silence_s=SILENCE_S)) as worker:
                    for said in worker.answers():
                        visit = Visit.model_validate(said)
                        left[visit.entry] -= 1
                        patience.rewarded()
                        yield visit
                return
            except LostConnection as lost:
                patience.wait(lost)

    def breakdown(self, model: Path, shapes: Shapes | None = None, values: Values | None = None) -> list[Share]:
        self._meet()
        there = self._store(model)
        request = BreakdownRequest(
            device=self.device.describe(),
            model=there,
            shapes=dict(shapes or {}),
            values={name: list(numbers) for name, numbers in (values or {}).items()},
            silence_s=SILENCE_S,
        )

        def once() -> list[Share]:
            with self.host.worker(request) as worker:
                said = worker.answer()
            return [Share.model_validate(share) for share in said["breakdown"]]

        with _named({str(model): there}):
            return self._persistently(once)

    def check(self) -> Iterator[Checked]:
        self._meet()
        request = CheckRequest(device=self.device.describe(), silence_s=SILENCE_S)

        def once() -> list[Checked]:
            with self.host.worker(request) as worker:
                return [Checked.model_validate(said["checked"]) for said in worker.answers()]

        yield from self._persistently(once)

    def _meet(self) -> None:
        """Before anything is measured there: is it the right machine, with the right version?"""
        if self.host not in _met:
            self.facts()

    def _facts(self) -> Facts:
        def once() -> dict:
            with self.host.worker(FactsRequest(), beating=False) as worker:
                worker.process.finish()
                return worker.answer()["facts"]

        # who has never answered may not exist: the first failure says so
        said = self._persistently(once) if self.host in _met else once()
        version = said["versions"]["deploynas"]
        if version != __version__:
            raise InputError(
                f"`{self.host.name}` has deploynas {version}, here it is {__version__}; they must be equal",
                hint=self.host.install,
            )
        facts = Facts.model_validate(said)
        _met[self.host] = facts.hardware
        return facts

    def _store(self, model: Path) -> str:
        """Where the model lies on the target; it is sent unless it is there."""
        content = _in_one_file(model)
        sha256 = hashlib.sha256(content).hexdigest()

        def once() -> str:
            where = ""
            with self.host.worker(StoreRequest(sha256=sha256, size_bytes=len(content)), beating=False) as worker:
                for said in worker.answers():
                    if "send" in said:
                        worker.process.send(content)
                    else:
                        where = said["stored"]
            return where

        if sha256 not in self._stored:
            self._stored[sha256] = self._persistently(once)
        return self._stored[sha256]

    def _persistently(self, once: Callable[[], Result]) -> Result:
        patience = _Patience(self.host, self.on_wait)
        while True:
            try:
                return once()
            except LostConnection as lost:
                patience.wait(lost)


@dataclass
class _Patience:
    """Waits longer after each attempt that brought nothing, and gives up after the last."""

    host: Host
    on_wait: OnWait
    fruitless: int = 0

    def rewarded(self) -> None:
        self.fruitless = 0

    def wait(self, lost: LostConnection) -> None:
        if self.fruitless == len(PAUSES_S):
            raise DeployNASError(
                f"{lost.message} ({self.fruitless + 1} attempts)", hint="the same command resumes where it stopped"
            ) from lost
        pause = PAUSES_S[self.fruitless]
        self.fruitless += 1
        self.on_wait(f"{lost.message}; attempt {self.fruitless + 1} of {len(PAUSES_S) + 1} in {pause:g} s")
        time.sleep(pause)


def _in_one_file(model: Path) -> bytes:
    """The content of a model; refused if it needs other files beside it."""
    import onnx
    from onnx.external_data_helper import uses_external_data

    content = model.read_bytes()
    parsed = onnx.load_model_from_string(content)
    if any(uses_external_data(tensor) for tensor in parsed.graph.initializer):
        raise InputError(
            f"{model}: keeps weights in a file beside it, and only a model in one file can be sent to another machine",
            hint=f"""python -c "import onnx; onnx.save(onnx.load('{model}'), 'one-file.onnx')\"""",
        )
    return content


def _moved(entry: Entry, paths: Mapping[str, str]) -> Entry:
    return entry.model_copy(update={"path": paths[entry.path]}) if entry.path else entry


@contextmanager
def _named(paths: Mapping[str, str]) -> Iterator[None]:
    """Errors name a model as it is called here, not where it lies there."""
    try:
        yield
    except DeployNASError as error:
        for here, there in paths.items():
            error.message = error.message.replace(there, here)
        raise
