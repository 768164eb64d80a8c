"""What the processor and its computer call themselves, so that unlike machines have unlike names.

Arm cores give numbers of who designed them and which design it is (MIDR: implementer and part), which /proc/cpuinfo
repeats; boards give their name in the device tree.
"""

from __future__ import annotations

import platform
import sys
from collections import Counter
from pathlib import Path

from deploynas.latency.command_output import output_of
from deploynas.latency.kernel_files import text_of

ROOT = Path("/")
SYSCTL_S = 2.0
# the common ones of Linux' arch/arm64/include/asm/cputype.h and of util-linux; others keep their numbers
DESIGNS = {
    0x41: {
        0xB76: "ARM1176",
        0xC05: "Cortex-A5",
        0xC07: "Cortex-A7",
        0xC08: "Cortex-A8",
        0xC09: "Cortex-A9",
        0xC0E: "Cortex-A17",
        0xC0F: "Cortex-A15",
        0xD01: "Cortex-A32",
        0xD02: "Cortex-A34",
        0xD03: "Cortex-A53",
        0xD04: "Cortex-A35",
        0xD05: "Cortex-A55",
        0xD07: "Cortex-A57",
        0xD08: "Cortex-A72",
        0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77",
        0xD0E: "Cortex-A76AE",
        0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE",
        0xD44: "Cortex-X1",
        0xD46: "Cortex-A510",
        0xD47: "Cortex-A710",
        0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2",
        0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C",
        0xD4D: "Cortex-A715",
        0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520",
        0xD81: "Cortex-A720",
        0xD82: "Cortex-X4",
        0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925",
        0xD87: "Cortex-A725",
        0xD8E: "Neoverse-N3",
    },
    0x46: {0x001: "A64FX"},
    0x48: {0xD01: "Kunpeng-920"},
    0x4E: {0x003: "Denver 2", 0x004: "Carmel"},
    0x51: {
        0x001: "Oryon",
        0x800: "Kryo 2xx Gold",
        0x801: "Kryo 2xx Silver",
        0x802: "Kryo 3xx Gold",
        0x803: "Kryo 3xx Silver",
        0x804: "Kryo 4xx Gold",
        0x805: "Kryo 4xx Silver",
    },
    0x61: {0x022: "Icestorm M1", 0x023: "Firestorm M1", 0x032: "Blizzard M2", 0x033: "Avalanche M2"},
    0xC0: {0xAC3: "AmpereOne", 0xAC4: "AmpereOne A"},
}


def processor(root: Path = ROOT) -> str:
    """Its own name; `platform.processor()` is empty or says the family only on most systems."""
    cpuinfo = text_of(root / "proc/cpuinfo")
    if cpuinfo:
        named = _arm_cores(cpuinfo) or next(
            (said for key in ("model name", "uarch", "Model", "Hardware") if (said := _first(cpuinfo, key))), None
        )
        if named:
            return named
    return _told_by_macos()[0] or _told_by_windows() or platform.processor() or platform.machine()


def computer(root: Path = ROOT) -> str:
    """What the processor sits in, where that has a name of its own: `Raspberry Pi 5 Model B Rev 1.0`, `Mac14,9`."""
    for place in ("proc/device-tree/model", "sys/firmware/devicetree/base/model"):
        if named := text_of(root / place):
            return named
    cpuinfo = text_of(root / "proc/cpuinfo")
    if cpuinfo and _arm_cores(cpuinfo):  # containers hide the device tree, but not these
        said = _first(cpuinfo, "Model") or _first(cpuinfo, "Hardware") or text_of(root / "sys/devices/soc0/machine")
        return said or ""
    return "" if cpuinfo else _told_by_macos()[1]


def _first(cpuinfo: str, key: str) -> str | None:
    for line in cpuinfo.splitlines():
        if line.startswith(key) and ":" in line:
            return line.split(":", 1)[1].strip() or None
    return None


def _arm_cores(cpuinfo: str) -> str | None:
    """`Cortex-A76`, or `4x Cortex-A55 + 4x Cortex-A76` where they differ; None if these are no Arm cores."""
    found: Counter[str] = Counter()
    implementer = ""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        match key.strip():
            case "CPU implementer":
                implementer = value.strip()
            case "CPU part":
                found[_design(implementer, value.strip())] += 1
    if len(found) < 2:
        return next(iter(found), None)
    return " + ".join(f"{count}x {name}" for name, count in sorted(found.items()))


def _design(implementer: str, part: str) -> str:
    try:
        return DESIGNS[int(implementer, 16)][int(part, 16)]
    except (KeyError, ValueError):
        return f"implementer {implementer} part {part}"


def _told_by_macos() -> tuple[str, str]:
    """The chip and the model of the computer."""
    if sys.platform != "darwin":
        return "", ""
    return sysctl(["machdep.cpu.brand_string", "hw.model"])


def sysctl(names: list[str], command: str = "sysctl") -> tuple[str, str]:
    lines = [*(output_of([command, "-n", *names], SYSCTL_S) or "").splitlines(), "", ""]
    return lines[0].strip(), lines[1].strip()


def _told_by_windows() -> str:
    """`platform.processor()` is `Intel64 Family 6 …` there, which many processors share."""
    if sys.platform != "win32":
        return ""
    import winreg

    place = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except OSError:
        return ""
