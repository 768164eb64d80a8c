"""Machines made of files: what Linux would say in /proc and /sys of a board, a laptop or a container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SYS_CPU = "sys/devices/system/cpu"


def written(root: Path, files: Mapping[str, str | int]) -> Path:
    """Files below `root`, each as the kernel writes them, with a newline at the end."""
    (root / "proc").mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return root


def topology(siblings: Mapping[int, str], packages: Mapping[int, int] | None = None) -> dict[str, str | int]:
    """CPUs, each with the list of threads of its core."""
    files: dict[str, str | int] = {}
    for cpu, threads in siblings.items():
        files[f"{SYS_CPU}/cpu{cpu}/topology/thread_siblings_list"] = threads
        files[f"{SYS_CPU}/cpu{cpu}/topology/physical_package_id"] = (packages or {}).get(cpu, 0)
    return files


def clocks(
    cpus: range, least_mhz: int, most_mhz: int, now_mhz: int, governor: str = "schedutil"
) -> dict[str, str | int]:
    """What cpufreq says of cores that can run equally fast."""
    files: dict[str, str | int] = {}
    for cpu in cpus:
        folder = f"{SYS_CPU}/cpu{cpu}/cpufreq"
        files |= {
            f"{folder}/cpuinfo_min_freq": 1000 * least_mhz,
            f"{folder}/cpuinfo_max_freq": 1000 * most_mhz,
            f"{folder}/scaling_max_freq": 1000 * most_mhz,
            f"{folder}/scaling_cur_freq": 1000 * now_mhz,
            f"{folder}/scaling_governor": governor,
            f"{folder}/scaling_driver": "cpufreq-dt",
        }
    return files


def running_on(cpu: int) -> dict[str, str | int]:
    """`/proc/self/stat` of a process that was last on a CPU, under a name that tries to break its fields."""
    return {"proc/self/stat": " ".join(["42", "(py) 3 (x)", "R", *["0"] * 35, str(cpu), "0", "0"])}


def arm_cores(*designs: tuple[str, str], rest: str = "") -> dict[str, str | int]:
    """`/proc/cpuinfo` of Arm cores: implementer and part of each."""
    blocks = [
        f"processor\t: {cpu}\nBogoMIPS\t: 108.00\nCPU implementer\t: {maker}\nCPU architecture: 8\nCPU part\t: {part}\n"
        for cpu, (maker, part) in enumerate(designs)
    ]
    return {"proc/cpuinfo": "\n".join([*blocks, rest])}
