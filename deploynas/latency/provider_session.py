"""Opens models on a device's execution provider, and makes sure that it is this provider that runs them.

What each provider wants is in its record (`providers.py`). Here it is done: libraries loaded, a plug-in registered and
its devices added, threads, precision and caches set, a batch fixed for who compiles, and nodes that ended up on the CPU
refused.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.files import sha256_of
from deploynas.graph.writer import DYNAMIC
from deploynas.latency.placement import RECORD_PLACEMENT, nodes_left_to_cpu, placement_is_told
from deploynas.latency.processor_cores import threads_of_all
from deploynas.latency.session_record import DEVICE_TYPE, SessionRecord
from deploynas.providers import CPU, Provider


def open_session(model: Path, device: Device, profile_prefix: str | None = None) -> Any:
    """A session of the runtime; an error if anything but the device's provider would compute."""
    import onnxruntime

    record = device.record
    prepare_process(device)
    options = _session_options(device, profile_prefix)
    given = provider_options(device, model)
    try:
        if record.plugin:
            options.add_provider_for_devices(plugin_devices(device), given)
            session = onnxruntime.InferenceSession(str(model), options, enable_fallback=0)
        else:
            choice = (record.name, given)
            session = onnxruntime.InferenceSession(str(model), options, providers=[choice], enable_fallback=0)
    except DeployNASError:
        raise
    except Exception as error:  # the runtime raises its own private types, and plain RuntimeError
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeployNASError(f"ONNX Runtime cannot load a graph on `{device.name}`: {reason}") from error
    if record.name != CPU:
        _require_provider_runs(session, model, device)
    return session


def prepare_process(device: Device) -> None:
    """Before the first session on a device: what its libraries read from the environment, then the libraries."""
    record = device.record
    for name, value in record.environment.get(device.precision, {}).items():
        os.environ.setdefault(name, value)
    if record.library:
        _require_library(record)
    if record.plugin:
        _register(record.plugin, record.name)


def provider_options(device: Device, model: Path) -> dict[str, str]:
    """What the provider is told, in its own spelling: its record's for this precision, then the device file's."""
    record = device.record
    options = SessionRecord.of(device, thread_count(device)).provider_options
    if record.model_prefix_option and record.model_prefix_option not in options:
        # its own key has tensor names and no weights: models whose nodes are called alike would share an engine
        # bf16 is computed from the file of fp32
        apart = "-bf16" if device.precision == "bf16" else ""
        options[record.model_prefix_option] = f"deploynas-{sha256_of(model)[:24]}{apart}"
    return options


def thread_count(device: Device) -> int:
    """Of `threads: all`, those of this machine."""
    if device.cores is not None and device.threads == "all":
        return len(device.cores)
    return threads_of_all() if device.threads == "all" else int(device.threads)


def plugin_devices(device: Device) -> list[Any]:
    """The runtime's handles of the hardware that a plug-in offers, narrowed down by `device_type`."""
    import onnxruntime

    offered = [one for one in onnxruntime.get_ep_devices() if one.ep_name == device.provider_name]
    wanted = str(device.provider_options.get(DEVICE_TYPE, "")).upper()
    fitting = [one for one in offered if wanted in ("", one.device.type.name)]
    if not fitting:
        there = ", ".join(sorted({one.device.type.name for one in offered})) or "none"
        raise InputError(
            f"device `{device.name}`: `{device.provider_name}` finds no {wanted or 'device'} on this machine",
            hint=f"it offers: {there}; {device.record.only_on or 'its driver may be missing'}",
        )
    return fitting[:1]


def _session_options(device: Device, profile_prefix: str | None) -> Any:
    import onnxruntime

    told = SessionRecord.of(device, thread_count(device))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = told.intra_op_threads
    options.inter_op_num_threads = told.inter_op_threads
    options.log_severity_level = 3  # errors reach us as exceptions
    entries: dict[str, str] = {}
    if told.provider != CPU:
        if placement_is_told():
            entries[RECORD_PLACEMENT] = "1"
        if device.cpu_nodes == "none" or not placement_is_told():
            entries["session.disable_cpu_ep_fallback"] = "1"
    if told.batch is not None:
        options.add_free_dimension_override_by_name(DYNAMIC, told.batch)
    for key, value in {**entries, **told.session_options}.items():
        options.add_session_config_entry(key, value)
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    return options


def _require_provider_runs(session: Any, model: Path, device: Device) -> None:
    """Its name stands first in the session's list even where it runs no node."""
    name = device.provider_name
    if name not in session.get_providers():
        raise DeployNASError(
            f"device `{device.name}` asks for `{name}`, the runtime fell back to `{session.get_providers()[0]}`",
            hint=_libraries_hint(device.record),
        )
    left = nodes_left_to_cpu(session, model, allow_shapes=device.cpu_nodes == "shapes")
    if left:
        listed = ", ".join(f"{node.operator} `{node.name}`" for node in left[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        raise DeployNASError(
            f"device `{device.name}`: `{name}` hands {len(left)} node(s) back to the CPU: {listed}{more}",
            hint="another `precision` or `quantization`, or a newer provider; `deploynas devices --check` looks closer",
        )


def _libraries_hint(record: Provider) -> str:
    install = record.install()
    return "its libraries or its driver may be missing; `deploynas devices --check` looks" + (
        f"; it comes with {install}" if install else ""
    )


def _require_library(record: Provider) -> None:
    """That the runtime was built with a provider does not mean that the libraries of its vendor are there."""
    import onnxruntime

    _preload_libraries()
    path = Path(onnxruntime.__file__).parent / "capi" / str(record.library)
    if not path.exists():
        return  # another system calls it otherwise, and a session will tell
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise InputError(
            f"`{record.name}` needs libraries that cannot be loaded: {error}",
            hint=f"{record.install()}, and the driver of the hardware",
        ) from error


@cache
def _preload_libraries() -> None:
    """CUDA and cuDNN from the packages that bring them, where the runtime can; else they are the system's."""
    import onnxruntime

    preload = getattr(onnxruntime, "preload_dlls", None)  # 1.21 and later
    if preload:
        with redirect_stdout(StringIO()):  # it prints what it does not find, where answers and results go
            preload()


@cache
def _register(module: str, name: str) -> None:
    """A provider that comes as a library of its own has to be introduced, once a process."""
    import onnxruntime

    library = plugin_library(module)
    try:
        onnxruntime.register_execution_provider_library(name, library)
    except Exception as error:  # the runtime's own private types
        raise DeployNASError(f"ONNX Runtime cannot load the library of `{module}`: {str(error).strip()}") from error


def plugin_library(module: str) -> str:
    """Where a plug-in's module says that its library lies."""
    try:
        return str(importlib.import_module(module).get_library_path())
    except ImportError as error:
        raise InputError(f"the plug-in `{module}` is not installed", hint=f"its package brings it ({error})") from error
