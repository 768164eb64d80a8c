"""What changes on a machine from hour to hour and makes results incomparable: clocks, heat, throttling, power.

Everything may be unknown: a virtual machine shows none of it. What it means that two of them differ: `throttling.py`.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel

from deploynas.latency import nvidia_smi
from deploynas.latency.command_output import output_of
from deploynas.latency.kernel_files import number_in, numbered, ranges, text_of
from deploynas.latency.processor_cores import affinity

ROOT = Path("/")
BUSY_S = 0.05  # governors raise the clock within milliseconds to tens of them; an idle core's clock says nothing
VCGENCMD_S = 2.0
PLAUSIBLE_C = (0.0, 150.0)  # a sensor that nothing is connected to says -128 or 255
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
SLOWS_DOWN = re.compile(r"cpufreq|devfreq|Processor")  # cooling by computing less; the others are fans and chargers

# the bits of a Raspberry Pi's `get_throttled`; the same 16 higher: at some time since it started
ALARMS = {0: "under-voltage", 1: "the clock is capped", 2: "throttled", 3: "the soft temperature limit is reached"}
# NVML's nvmlClocksEventReasons; 0x1 is an idle GPU
GPU_LIMITS = {
    0x2: "clocks that somebody has set",
    0x4: "its power limit",
    0x8: "the hardware's slowdown",
    0x10: "the slowest GPU of its group",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "the power supply's brake",
    0x100: "its display's clocks",
}
GPU_FIELDS = (
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
    "pstate",
    "power.limit",
)
# in microseconds; older drivers do not know them
GPU_COUNTERS = {
    "clocks_event_reasons_counters.sw_power_cap": 0x4,
    "clocks_event_reasons_counters.sw_thermal_slowdown": 0x20,
    "clocks_event_reasons_counters.hw_thermal_slowdown": 0x40,
    "clocks_event_reasons_counters.hw_power_brake_slowdown": 0x80,
}


class UnitClock(BaseModel):
    """Of cores that can run equally fast, or of another unit of a board: its GPU, its NPU, its memory."""

    unit: str  # `cores 0-3`, by the system's numbers, or its name in /sys/class/devfreq: `17000000.gpu`
    now_mhz: int | None = None  # of a core that computes; None for cores that this process was not on
    min_mhz: int | None = None  # that it can
    max_mhz: int | None = None
    floor_mhz: int | None = None  # below which it may not be now
    limit_mhz: int | None = None  # and above which
    driver: str | None = None
    governor: str | None = None
    preference: str | None = None  # between speed and energy, where the processor chooses the clock itself


class GpuConditions(BaseModel):
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    temperature_c: float | None = None
    state: str | None = None  # P0 is the fastest
    power_limit_w: float | None = None
    limits: list[str] | None = None  # what holds its clock down now
    limited_ms: dict[str, float] = {}  # for how long each of them has, since the driver was loaded


class Conditions(BaseModel):
    """At one moment; None where it is not known."""

    clocks: list[UnitClock] = []
    boost: bool | None = None  # whether clocks above the nominal one are allowed
    temperature_c: float | None = None  # the hottest sensor
    throttle_count: int | None = None  # since the machine was started
    cooling: dict[str, int] | None = None  # what slows it down against heat now, and how much
    alarms: list[str] | None = None  # of the board's firmware, now
    past_alarms: list[str] | None = None  # since the machine was started
    power_mode: str | None = None
    on_battery: bool | None = None
    gpus: list[GpuConditions] = []


def conditions_here(root: Path = ROOT, allowed: Collection[int] | None = None, busy_s: float = BUSY_S) -> Conditions:
    """Of this machine now. Computes for `busy_s` where there are clocks to be seen."""
    allowed = affinity() if allowed is None else allowed
    alarms, past = _alarms(root)
    return Conditions(
        clocks=[*_core_clocks(root, allowed, busy_s), *_unit_clocks(root)],
        boost=_boost(root),
        temperature_c=_temperature(root),
        throttle_count=_throttle_count(root),
        cooling=_cooling(root),
        alarms=alarms,
        past_alarms=past,
        power_mode=_power_mode(root),
        on_battery=_on_battery(root),
        gpus=_gpus(root),
    )


def _core_clocks(root: Path, allowed: Collection[int] | None, busy_s: float) -> list[UnitClock]:
    cpus = numbered(root / "sys/devices/system/cpu", "cpu")
    scaled = {
        number: path / "cpufreq"
        for number, path in cpus.items()
        if (path / "cpufreq").is_dir() and (allowed is None or number in allowed)
    }
    if not scaled:
        return []
    here = _compute(root, busy_s)
    now = number_in(scaled[here] / "scaling_cur_freq") if here in scaled else None
    alike: dict[tuple[int | None, int | None], list[int]] = {}
    for number, folder in scaled.items():
        alike.setdefault((_mhz(folder / "cpuinfo_min_freq"), _mhz(folder / "cpuinfo_max_freq")), []).append(number)
    clocks = []
    for (least, most), numbers in alike.items():
        folders = [scaled[number] for number in numbers]
        floors, limits = (
            [mhz for folder in folders if (mhz := _mhz(folder / name)) is not None]
            for name in ("scaling_min_freq", "scaling_max_freq")
        )
        clocks.append(
            UnitClock(
                unit=f"cores {ranges(numbers)}",
                now_mhz=round(now / 1000) if now and here in numbers else None,
                min_mhz=least,
                max_mhz=most,
                floor_mhz=min(floors, default=None),
                limit_mhz=min(limits, default=None),
                driver=_all_said(folders, "scaling_driver"),
                governor=_all_said(folders, "scaling_governor"),
                preference=_all_said(folders, "energy_performance_preference"),
            )
        )
    return clocks


def _unit_clocks(root: Path) -> list[UnitClock]:
    """What is beside the cores of a board; in hertz, where cores have kilohertz."""
    clocks = []
    for folder in sorted((root / "sys/class/devfreq").glob("*")):
        can = [round(int(hz) / 1e6) for hz in (text_of(folder / "available_frequencies") or "").split() if hz.isdigit()]
        floor, limit = (number_in(folder / name) for name in ("min_freq", "max_freq"))
        clocks.append(
            UnitClock(
                unit=folder.name,
                min_mhz=min(can, default=None),
                max_mhz=max(can, default=None),
                floor_mhz=None if floor is None else round(floor / 1e6),
                limit_mhz=None if limit is None else round(limit / 1e6),
                governor=text_of(folder / "governor"),
            )
        )
    return clocks


def _compute(root: Path, busy_s: float) -> int | None:
    """Which core this process is on after it has computed for a while."""
    end = time.perf_counter() + busy_s
    while time.perf_counter() < end:
        pass
    # the 39th field; the second is the name of the program, in parentheses, and may contain anything
    fields = (text_of(root / "proc/self/stat") or "").rpartition(")")[2].split()
    return int(fields[36]) if len(fields) > 36 else None


def _mhz(path: Path) -> int | None:
    khz = number_in(path)
    return None if khz is None else round(khz / 1000)


def _all_said(folders: list[Path], name: str) -> str | None:
    return " + ".join(sorted({said for folder in folders if (said := text_of(folder / name))})) or None


def _boost(root: Path) -> bool | None:
    cpu = root / "sys/devices/system/cpu"
    off, on = number_in(cpu / "intel_pstate/no_turbo"), number_in(cpu / "cpufreq/boost")
    if off is not None:
        return off == 0
    return None if on is None else on == 1


def _temperature(root: Path) -> float | None:
    files = [path / "temp" for path in numbered(root / "sys/class/thermal", "thermal_zone").values()]
    for folder in numbered(root / "sys/class/hwmon", "hwmon").values():
        if text_of(folder / "name") in CPU_SENSORS:
            files += sorted(folder.glob("temp*_input"))
    found = [millidegrees / 1000 for path in files if (millidegrees := number_in(path)) is not None]
    least, most = PLAUSIBLE_C
    return max((celsius for celsius in found if least < celsius < most), default=None)


def _throttle_count(root: Path) -> int | None:
    """Each core's and each package's own; the threads of a core and the cores of a package count the same events."""
    counts: dict[str, int] = {}
    for number, cpu in numbered(root / "sys/devices/system/cpu", "cpu").items():
        whose = {
            "core": text_of(cpu / "topology/thread_siblings_list") or str(number),
            "package": text_of(cpu / "topology/physical_package_id") or "",
        }
        for what, which in whose.items():
            count = number_in(cpu / f"thermal_throttle/{what}_throttle_count")
            if count is not None:
                counts[f"{what} {which}"] = max(count, counts.get(f"{what} {which}", 0))
    return sum(counts.values()) if counts else None


def _cooling(root: Path) -> dict[str, int] | None:
    """Cooling devices that slow the machine down, those that do nothing now left out; None if there are none at all."""
    states: dict[str, int] = {}
    for folder in numbered(root / "sys/class/thermal", "cooling_device").values():
        kind, state = text_of(folder / "type"), number_in(folder / "cur_state")
        if kind and state is not None and SLOWS_DOWN.search(kind):
            states[kind] = max(state, states.get(kind, 0))
    return {kind: state for kind, state in states.items() if state > 0} if states else None


def _alarms(root: Path) -> tuple[list[str] | None, list[str] | None]:
    """Those of a Raspberry Pi's firmware: now, and at any time since it was started."""
    files = sorted((root / "sys/devices/platform").glob("soc*/*firmware/get_throttled"))
    said = next(filter(None, map(text_of, files)), None) or _told_by_vcgencmd()
    try:
        bits = int(said or "", 16)
    except ValueError:
        return None, None
    now = [words for bit, words in ALARMS.items() if bits >> bit & 1]
    return now, [words for bit, words in ALARMS.items() if bits >> bit + 16 & 1]


def _told_by_vcgencmd() -> str | None:
    """`throttled=0x50000`; kernels that are not the board's own have no file that says it."""
    command = shutil.which("vcgencmd")
    said = output_of([command, "get_throttled"], VCGENCMD_S) if command else None
    return said.strip().rpartition("=")[2] if said else None


def _power_mode(root: Path) -> str | None:
    """A Jetson's, by name; else the profile that a laptop's firmware keeps."""
    catalogue = text_of(root / "etc/nvpmodel.conf")
    if catalogue is None:
        return text_of(root / "sys/firmware/acpi/platform_profile")
    chosen = re.match(r"pmode:(\d+)", text_of(root / "var/lib/nvpmodel/status") or "") or re.search(
        r"^< *PM_CONFIG +DEFAULT=(\d+)", catalogue, flags=re.MULTILINE
    )
    if chosen is None:
        return None
    number = int(chosen[1])
    name = re.search(rf"^< *POWER_MODEL +ID={number} +NAME=(\S+)", catalogue, flags=re.MULTILINE)
    return name[1] if name else f"mode {number}"


def _on_battery(root: Path) -> bool | None:
    """None where there is no battery; the batteries of mice and keyboards have the scope of a device."""
    supplies = list((root / "sys/class/power_supply").glob("*"))
    batteries = [
        supply for supply in supplies if text_of(supply / "type") == "Battery" and text_of(supply / "scope") != "Device"
    ]
    if not batteries:
        return None
    if any(text_of(supply / "type") == "Mains" and number_in(supply / "online") == 1 for supply in supplies):
        return False
    return any(text_of(battery / "status") == "Discharging" for battery in batteries)


def _gpus(root: Path) -> list[GpuConditions]:
    rows = nvidia_smi.query([*GPU_FIELDS, *GPU_COUNTERS], root) or nvidia_smi.query(GPU_FIELDS, root)
    return [_gpu(row) for row in rows]


def _gpu(said: dict[str, str]) -> GpuConditions:
    def number(name: str) -> float | None:
        try:
            return float(said[name])
        except (KeyError, ValueError):
            return None

    active = said.get("clocks_throttle_reasons.active", "")
    reasons = int(active, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", active) else None
    counted = {GPU_LIMITS[bit]: number(name) for name, bit in GPU_COUNTERS.items()}
    return GpuConditions(
        clock_mhz=number("clocks.sm"),
        max_clock_mhz=number("clocks.max.sm"),
        temperature_c=number("temperature.gpu"),
        state=said.get("pstate"),
        power_limit_w=number("power.limit"),
        limits=None if reasons is None else [words for bit, words in GPU_LIMITS.items() if reasons & bit],
        limited_ms={words: us / 1000 for words, us in counted.items() if us is not None},
    )
