"""One model, loaded on one device, ready to be timed.

The provider asked for is the provider that runs: one that is not installed, or that hands nodes back to the CPU,
is an error. Inputs and outputs are bound to the device's own memory once, so that copies are not timed.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.facts import require_provider
from deploynas.latency.hardware import hardware

# providers whose tensors live in memory of their own; the others work on the host's
_MEMORY = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
    "MIGraphXExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}
_NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}

Shapes = Mapping[str, tuple[int, ...]]
Values = Mapping[str, Sequence[float]]  # one number fills an input, several are its elements
CALLS_NS, LEAST_CALLS = 200_000_000, 15  # how long calls from Python are compared with bound ones
LEAST_WAIT_NS = 2000  # shorter than any switch to another program and back: the clocks' own noise


class Samples(NamedTuple):
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

        require_provider(device, onnxruntime.get_available_providers())
        self._session = _load(model, device, profile_prefix)
        memory = _MEMORY.get(device.provider_name, "cpu")
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
        alone = device.provider_name == "CPUExecutionProvider" and device.threads == 1
        self._waiting_is_others = alone and time.get_clock_info("thread_time").resolution <= 1e-6

    def run(self) -> None:
        """One inference, finished when this returns."""
        self._session.run_with_iobinding(self._binding)
        if not self._on_host:
            self._binding.synchronize_outputs()

    def time_ms(self, runs: int) -> Samples:
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
        return Samples(took, waited)

    def call_ms(self) -> float:
        """What `run` with arrays adds, from Python, to an inference whose input and output are bound.

        The median over pairs, one right after the other: whatever the machine does hits both.
        """
        feed, added = dict(self._arrays), []
        clock, until = time.perf_counter_ns, time.perf_counter_ns() + CALLS_NS
        while len(added) < LEAST_CALLS or clock() < until:
            start = clock()
            self.run()
            bound = clock()
            self._session.run(None, feed)
            added.append((clock() - bound) - (bound - start))
        return max(0.0, float(np.median(added)) / 1e6)

    def end_profiling(self) -> Path:
        return Path(self._session.end_profiling())


def _waited_ms(wall_ns: int, computed_ns: int) -> float:
    """How long others had the core. Virtual machines settle accounts late: one that leaves nothing is not believed."""
    waited = wall_ns - computed_ns
    return round(waited / 1e6, 5) if LEAST_WAIT_NS < waited < wall_ns else 0.0


def _load(model: bytes | Path, device: Device, profile_prefix: str | None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = hardware().cores if device.threads == "all" else device.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors reach us as exceptions
    if device.provider_name != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    # a session's idle threads would spin beside whoever is timed next: 10.8 ms instead of 5.9 with 24 networks loaded,
    # 6.3 when they stop; a network timed alone takes the same either way
    options.add_session_config_entry("session.force_spinning_stop", "1")
    for key, value in device.session_options.items():
        options.add_session_config_entry(key, _option(value))
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    choice = (device.provider_name, {key: _option(value) for key, value in device.provider_options.items()})
    try:
        with _as_file(model) as path:
            session = onnxruntime.InferenceSession(str(path), options, providers=[choice], enable_fallback=0)
    except Exception as error:  # the runtime raises its own private types, and plain RuntimeError
        reason = str(error).strip().splitlines()[0]
        if isinstance(model, Path):
            raise InputError(f"{model}: ONNX Runtime cannot load it on `{device.name}`: {reason}") from error
        raise DeployNASError(f"ONNX Runtime cannot load a graph on `{device.name}`: {reason}") from error
    used = session.get_providers()
    if used[0] != device.provider_name:
        raise DeployNASError(
            f"device `{device.name}` asks for `{device.provider_name}`, the runtime fell back to `{used[0]}`",
            hint="see the runtime's own message above; the provider's libraries may be missing",
        )
    return session


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


def make_inputs(signature: Any, batch: int, shapes: Shapes, values: Values) -> dict[str, np.ndarray]:
    """Random inputs, values aside; a free first dimension takes the batch, any other free one must be given."""
    rng = np.random.default_rng(0)
    known = {argument.name for argument in signature}
    unknown = sorted({*shapes, *values} - known)
    if unknown:
        raise InputError(f"the model has no input `{unknown[0]}`", hint=f"its inputs: {', '.join(sorted(known))}")
    inputs = {}
    for argument in signature:
        if argument.type not in _NUMPY_TYPES:
            raise InputError(f"input `{argument.name}` is a {argument.type}, which cannot be made up")
        kind = np.dtype(_NUMPY_TYPES[argument.type])
        if argument.name in values and argument.name not in shapes:
            inputs[argument.name] = _given(argument, values[argument.name], kind, batch)
            continue
        shape = shapes.get(argument.name) or _shape_at_batch(argument, batch)
        if argument.name in values:
            inputs[argument.name] = _filled(argument.name, values[argument.name], shape, kind)
        elif kind.kind == "f":
            inputs[argument.name] = rng.standard_normal(shape).astype(kind)
        else:
            # small whole numbers are valid as pixels, as masks and as indices
            inputs[argument.name] = rng.integers(0, 2, size=shape).astype(kind)
    return inputs


def _given(argument: Any, numbers: Sequence[float], kind: np.dtype, batch: int) -> np.ndarray:
    """An input whose elements are given: a free list of them is as long as they are many."""
    if not argument.shape and len(numbers) == 1:
        return np.asarray(numbers[0], kind)
    if len(argument.shape or []) == 1 and not isinstance(argument.shape[0], int):
        return np.asarray(numbers, kind)
    return _filled(argument.name, numbers, _shape_at_batch(argument, batch), kind)


def _filled(name: str, numbers: Sequence[float], shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    if len(numbers) not in (1, int(np.prod(shape))):
        raise InputError(f"input `{name}` has {int(np.prod(shape))} elements, {len(numbers)} are given")
    return np.ascontiguousarray(
        np.broadcast_to(np.asarray(numbers, kind), shape)
        if len(numbers) == 1
        else np.reshape(np.asarray(numbers, kind), shape)
    )


def _shape_at_batch(argument: Any, batch: int) -> tuple[int, ...]:
    first, *rest = argument.shape or [batch]
    if all(isinstance(size, int) and size > 0 for size in rest):
        if not isinstance(first, int) or first <= 0:
            return (batch, *rest)
        if rest and first != batch and batch != 1:
            raise InputError(
                f"input `{argument.name}` has a fixed batch of {first}, the device measures batches of {batch}",
                hint="export the model with a dynamic batch, or choose a device with its batch",
            )
        return tuple(argument.shape)
    printed = ",".join(str(size) for size in argument.shape)
    example = ",".join(str(size) if isinstance(size, int) and size > 0 else "224" for size in rest)
    raise InputError(
        f"input `{argument.name}` has a dynamic shape ({printed})",
        hint=f"give it, for example `--shape {argument.name}={batch},{example}`",
    )


def _option(value: str | int | float | bool) -> str:
    """Provider options are strings; the runtime spells booleans 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)
