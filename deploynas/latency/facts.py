"""What a machine says of itself before and after it measures, and whether it is the one that a device file means."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.latency.conditions import Conditions, conditions_here
from deploynas.latency.hardware import Hardware, free_memory_bytes, hardware, load_average, versions
from deploynas.latency.integer_sums import IntegerSums, integer_sums
from deploynas.latency.nvidia_smi import query
from deploynas.providers import PROVIDERS


class Facts(BaseModel):
    hardware: Hardware
    versions: dict[str, str]
    providers: list[str]  # of the runtime that is installed
    load_average: list[float]
    free_memory_bytes: int
    accelerator_free_bytes: int | None = None  # of the first GPU that says so
    conditions: Conditions = Conditions()  # a target with an earlier version tells none
    integer_sums: IntegerSums | None = None  # of the CPU provider; None: an earlier version

    def told(self, device: Device) -> dict[str, Any]:
        """What a result says of the provider that it was measured on."""
        environment = device.record.environment.get(device.precision, {})
        of_session = device.record.session_options.get(device.precision, {})
        defaults = {**device.provider_defaults(self.hardware.threads_of_all), **of_session}
        return {"provider": device.provider_name, "provider_defaults": {**defaults, **environment}}

    def provenance(self) -> dict[str, Any]:
        """What a result that is measured after this moment says of its machine."""
        return {
            "hardware": self.hardware.model_dump(),
            "versions": self.versions,
            "integer_sums": self.integer_sums,
            "load_before": self.load_average,
            "conditions_before": self.conditions.model_dump(exclude_defaults=True),
        }

    def provenance_until(self, after: Facts) -> dict[str, Any]:
        """The same of a result that was measured between two moments."""
        return {
            **self.provenance(),
            "load_after": after.load_average,
            "conditions_after": after.conditions.model_dump(exclude_defaults=True),
        }


def facts_here() -> Facts:
    """Of the machine that this process runs on."""
    return Facts(
        hardware=hardware(),
        versions=versions(),
        providers=installed_providers(),
        load_average=load_average(),
        free_memory_bytes=free_memory_bytes(),
        accelerator_free_bytes=_accelerator_free_bytes(),
        conditions=conditions_here(),
        integer_sums=integer_sums(),
    )


def require_hardware(device: Device, found: Hardware, machine: str = "this") -> None:
    """Refuse to measure on a machine that is not the one the device file describes."""
    expected, wrong = device.hardware, []
    if expected.machine and expected.machine != found.machine:
        wrong.append(f"machine `{expected.machine}`, {machine} is `{found.machine}`")
    names = f"{found.processor}, {found.computer}".removesuffix(", ")  # of boards, earlier versions knew one of the two
    if expected.processor_contains and expected.processor_contains.lower() not in names.lower():
        wrong.append(f"a processor with `{expected.processor_contains}` in its name, {machine} is `{names}`")
    if expected.min_cores and expected.min_cores > found.cores:
        wrong.append(f"at least {expected.min_cores} cores, {machine} has {found.cores}")
    lacking = lacking_instructions(device, device.precision, found)
    if lacking:
        raise InputError(f"device `{device.name}`: {lacking}", hint="`precision: fp32`, or another provider")
    if wrong:
        raise InputError(
            f"device `{device.name}` expects {'; '.join(wrong)}",
            hint="run this on that machine, or choose a device for this one (`deploynas devices`)"
            if device.host is None
            else f"correct `host` or `hardware` in the file of `{device.name}`",
        )


def lacking_instructions(device: Device, precision: str, found: Hardware) -> str | None:
    """Why the processor cannot compute in a precision; None if it can, or if nothing is known of what that needs."""
    needed = {str(one): names for one, names in device.record.instructions.items()}.get(precision, ())
    if not needed or set(needed) & set(found.instruction_sets):
        return None
    return (
        f"`{device.provider}` computes in {precision} where Linux lists `{'` or `'.join(needed)}` among the "
        f"instructions of the processor, and not on `{found.processor}` ({found.machine})"
    )


def require_runnable(device: Device, here: Facts) -> None:
    """Refuse a device that is not for this machine, or whose provider is not here."""
    require_hardware(device, here.hardware)
    require_provider(device, here.providers)


def _accelerator_free_bytes() -> int | None:
    told = query(["memory.free"])
    return int(told[0]["memory.free"]) << 20 if told and "memory.free" in told[0] else None


def installed_providers() -> list[str]:
    """Those that the runtime was built with or whose plug-in is there; whether they work is another question."""
    import onnxruntime

    built_in = onnxruntime.get_available_providers()
    return [*built_in, *(one.name for one in PROVIDERS.values() if one.plugin and find_spec(one.plugin))]


def require_provider(device: Device, available: Sequence[str], pip: str = "pip") -> None:
    """Fail early, and by name, when the device's provider is not there. `pip` installs packages on its machine."""
    device.require_precision()
    if device.provider_name in available or device.plugin:
        return
    install, installed = device.record.install(pip), f"installed: {', '.join(available)}"
    raise InputError(
        f"device `{device.name}` needs `{device.provider_name}`, which is not installed",
        hint=f"{install}; {installed}" if install else installed,
    )
