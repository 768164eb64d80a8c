"""The cores this process may compute on: what `threads: all` means, and which ones `cores` of a device file may name.

`all` is the number of physical cores, since two threads of one core share its arithmetic units, and never more than the
share of the processor that a container is allowed: a thread beyond it only waits.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from deploynas.errors import InputError
from deploynas.latency.kernel_files import listed, number_in, numbered, ranges, text_of

ROOT = Path("/")


def affinity() -> list[int] | None:
    """The CPUs that this process may use, by the system's numbers; None on systems that do not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    import psutil

    process = psutil.Process()
    return sorted(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else None  # Windows and FreeBSD tell


def threads_of_all(root: Path = ROOT, allowed: Collection[int] | None = None) -> int:
    """What `threads: all` means for this process. Cheap: asked again after `pin`, it answers for what is left."""
    allowed = affinity() if allowed is None else allowed
    return threads_within(physical_cores(root, allowed), cpu_quota(root))


def threads_within(cores: int, quota: float | None) -> int:
    return max(1, cores if quota is None else min(cores, int(quota)))


def physical_cores(root: Path = ROOT, allowed: Collection[int] | None = None) -> int:
    """Cores of which at least one thread is allowed to this process."""
    cpus = numbered(root / "sys/devices/system/cpu", "cpu")
    if not cpus and not (root / "proc").is_dir():
        return _counted_by_psutil(allowed)
    numbers = allowed or cpus or range(os.cpu_count() or 1)
    return len({_core(cpus.get(number), number) for number in numbers})


def _core(cpu: Path | None, number: int) -> tuple[str, ...]:
    """A name for the core that a CPU is a thread of; without any word about it, the CPU counts as a core.

    Not by /proc/cpuinfo: sandboxes that hide /sys give every CPU the same `core id` there.
    """
    if cpu is None:
        return ("cpu", str(number))
    topology = cpu / "topology"
    siblings = text_of(topology / "thread_siblings_list") or text_of(topology / "core_cpus_list")
    if siblings and number in listed(siblings):
        return ("threads", ranges(listed(siblings)))
    # ids of cores start anew in every package, and on some boards in every cluster
    places = [text_of(topology / name) for name in ("physical_package_id", "die_id", "cluster_id", "core_id")]
    if places[-1] is None:
        return ("cpu", str(number))
    return ("place", *(place or "" for place in places))


def _counted_by_psutil(allowed: Collection[int] | None) -> int:
    """On systems other than Linux."""
    import psutil

    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return min(cores, len(allowed)) if allowed else cores


def cpu_quota(root: Path = ROOT) -> float | None:
    """How many CPUs' worth of time the process's control groups allow it, the tightest of them; None: no limit."""
    limits = [limit for folder in _control_groups(root) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def _limit(group: Path) -> float | None:
    second_version = text_of(group / "cpu.max")
    if second_version is not None:
        quota, _, period = second_version.partition(" ")
        return int(quota) / int(period or 100_000) if quota.isdigit() else None  # `max`: none
    allowed, period_us = number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us")
    return allowed / period_us if allowed and allowed > 0 and period_us else None


def _control_groups(root: Path) -> list[Path]:
    """The folders of the process's own groups and of those around them, of either version of control groups."""
    folders: list[Path] = []
    places = _mounts(root)
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 2 if number == "0" and not controllers else 1
        if version == 1 and "cpu" not in controllers.split(","):
            continue
        for top, mounted in places[version]:
            # a container sees its own group as the top, and sometimes its path as the host has it
            inside = path[len(mounted.rstrip("/")) :] if path.startswith(mounted) else ""
            own = top.joinpath(*(part for part in inside.split("/") if part not in ("", "..")))
            folders += [own, *(parent for parent in own.parents if parent == top or top in parent.parents)]
    return list(dict.fromkeys(folders))


def _mounts(root: Path) -> dict[int, list[tuple[Path, str]]]:
    """By version: where the groups that limit the CPU are mounted, and which group is the top there."""
    found: dict[int, list[tuple[Path, str]]] = {1: [], 2: []}
    for line in (text_of(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(), after.split()
        if len(place) < 5 or len(kind) < 3:
            continue
        where = (root / place[4].lstrip("/"), place[3])
        if kind[0] == "cgroup2":
            found[2].append(where)
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            found[1].append(where)
    return found


def pin(cores: Sequence[int]) -> None:
    """Bind this process, and the threads it starts from now on, to cores by the system's numbers."""
    allowed = affinity()
    if allowed is None:
        raise InputError(
            "this system cannot bind a process to cores", hint="leave `cores` out of the device file for this machine"
        )
    missing = sorted(set(cores) - set(allowed))
    if missing or not cores:
        what = f"core {ranges(missing)} of `cores` is" if len(missing) == 1 else f"cores {ranges(missing)} are"
        raise InputError(
            f"{what} not there, or not for this process" if missing else "`cores` names no core",
            hint=f"it may use {ranges(allowed)} (as the system numbers them)",
        )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))
    else:
        import psutil

        psutil.Process().cpu_affinity(sorted(set(cores)))
