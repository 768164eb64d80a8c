"""One model, loaded on one device, ready to be timed.

Inputs and outputs are bound to the device's own memory once, so that copies are not timed.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.agreement import require_agreement
from deploynas.latency.inputs import Shapes, Values, make_inputs
from deploynas.latency.placement import placement_counts
from deploynas.latency.provider_session import open_session
from deploynas.providers import CPU

CALLS_NS, LEAST_CALLS = 200_000_000, 15  # how long calls from Python are compared with bound ones
LEAST_WAIT_NS = 2000  # shorter than any switch to another program and back: the clocks' own noise


class TimedRuns(NamedTuple):
    """Milliseconds of each inference, and for how many of them other programs had the core; zeros if not known."""

    took_ms: list[float]
    waited_ms: list[float]


class Session:
    """A loaded model with bound input and output."""

    def __init__(
        self,
        model: bytes | Path,
        device: Device,
        shapes: Shapes | None = None,
        values: Values | None = None,
        profile_prefix: str | None = None,
    ) -> None:
        import onnxruntime

        with _as_file(model) as path:
            self._session = _opened(path, isinstance(model, Path), device, profile_prefix)
        self._device, record = device, device.record
        memory = "cpu" if record.memory == "host" else record.memory
        device_id = int(device.provider_options.get("device_id", 0)) if memory != "cpu" else 0
        self._binding = self._session.io_binding()
        inputs = make_inputs(self._session.get_inputs(), device.batch, shapes or {}, values or {})
        # on the CPU the runtime does not copy, and before 1.30 its binding keeps neither array nor value alive
        self._arrays = inputs
        self._inputs = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(value, memory, device_id) for name, value in inputs.items()
        }
        for name, held in self._inputs.items():
            self._binding.bind_ortvalue_input(name, held)
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name, memory, device_id)
        self._on_host = memory == "cpu"
        # one thread that only computes waits for nobody but whoever has its core; several wait for each other
        alone = record.name == CPU and device.threads == 1
        self._waiting_is_others = alone and time.get_clock_info("thread_time").resolution <= 1e-6

    def run(self) -> None:
        """One inference, finished when this returns."""
        self._session.run_with_iobinding(self._binding)
        if not self._on_host:
            self._binding.synchronize_outputs()

    def time_ms(self, runs: int) -> TimedRuns:
        """Time each of a number of inferences."""
        clock, run = time.perf_counter_ns, self.run
        computing = time.thread_time_ns if self._waiting_is_others else clock
        took, waited = [], []
        collecting = gc.isenabled()
        gc.disable()  # a collection in the middle of a sample would be timed
        try:
            for _ in range(runs):
                computed, start = computing(), clock()
                run()
                wall = clock() - start
                computed = computing() - computed
                took.append(round(wall / 1e6, 5))
                waited.append(_waited_ms(wall, computed))
        finally:
            if collecting:
                gc.enable()
        return TimedRuns(took, waited)

    def call_ms(self) -> float:
        """What `run` with arrays adds, from Python, to an inference whose input and output are bound.

        The median over pairs, one right after the other: whatever the machine does hits both.
        """
        added: list[int] = []
        feed = dict(self._arrays)
        clock, until = time.perf_counter_ns, time.perf_counter_ns() + CALLS_NS
        while len(added) < LEAST_CALLS or clock() < until:
            start = clock()
            self.run()
            bound = clock()
            self._session.run(None, feed)
            added.append((clock() - bound) - (bound - start))
        return max(0.0, float(np.median(added)) / 1e6)

    def require_agreement(self, model: bytes | Path, whole: bool = False) -> None:
        """Raise unless this provider computes what the CPU does, of the same inputs. `whole`: of a whole network."""
        with _as_file(model) as path:
            require_agreement(self.outputs(), self._arrays, path, self._device, whole)

    @property
    def fed(self) -> dict[str, np.ndarray]:
        """The inputs of every inference."""
        return dict(self._arrays)

    def placement(self) -> dict[str, int]:
        """How many nodes each provider runs; empty where the runtime cannot tell."""
        return placement_counts(self._session)

    def outputs(self) -> dict[str, np.ndarray]:
        """What an inference of its inputs makes."""
        self.run()
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, self._binding.copy_outputs_to_cpu(), strict=True))

    def end_profiling(self) -> Path:
        return Path(self._session.end_profiling())


def _waited_ms(wall_ns: int, computed_ns: int) -> float:
    """How long others had the core. Virtual machines settle accounts late: one that leaves nothing is not believed."""
    waited = wall_ns - computed_ns
    return round(waited / 1e6, 5) if LEAST_WAIT_NS < waited < wall_ns else 0.0


def _opened(path: Path, named: bool, device: Device, profile_prefix: str | None) -> Any:
    """Errors name the file of a user, and none of ours."""
    try:
        return open_session(path, device, profile_prefix)
    except InputError:
        raise
    except DeployNASError as error:
        if not named:
            raise
        raise InputError(f"{path}: {error.message}", error.hint) from error


@contextmanager
def _as_file(model: bytes | Path) -> Iterator[Path]:
    """Models are loaded from files: the runtime's wrapper keeps bytes for as long as it lives, weights and all."""
    if isinstance(model, Path):
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        yield path
