"""What `threads: all` means on machines that are not here, and which cores a process can be bound to."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from machine_files import SYS_CPU, topology, written

from deploynas.errors import InputError
from deploynas.latency import processor_cores
from deploynas.latency.hardware import hardware_of
from deploynas.latency.kernel_files import listed, ranges
from deploynas.latency.processor_cores import affinity, cpu_quota, physical_cores, pin, threads_of_all

FOUR_CORES_OF_TWO = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "33 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"


def test_lists_of_cpus_are_read_and_written_as_the_kernel_does() -> None:
    assert listed("0-3,8") == [0, 1, 2, 3, 8] and listed("5") == [5] and listed("") == []
    assert ranges([8, 2, 1, 0, 3]) == "0-3,8" and ranges([]) == ""


def test_two_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    root = written(tmp_path, topology(FOUR_CORES_OF_TWO))
    assert physical_cores(root, range(8)) == 4 == threads_of_all(root, range(8))


def test_an_affinity_of_two_siblings_is_one_core(tmp_path: Path) -> None:
    root = written(tmp_path, topology(FOUR_CORES_OF_TWO))
    assert threads_of_all(root, [1, 5]) == 1
    assert threads_of_all(root, [1, 2, 5]) == 2


def test_ids_of_cores_start_anew_in_every_cluster_and_package(tmp_path: Path) -> None:
    """Kernels that list no siblings: a board of 4 + 4 cores, and a server of two sockets with two threads a core."""
    board = {
        f"{SYS_CPU}/cpu{cpu}/topology/{name}": value
        for cpu in range(8)
        for name, value in (("physical_package_id", -1), ("cluster_id", cpu // 4), ("core_id", cpu % 4))
    }
    assert physical_cores(written(tmp_path / "board", board), range(8)) == 8
    server = {
        f"{SYS_CPU}/cpu{cpu}/topology/{name}": value
        for cpu in range(8)
        for name, value in (("physical_package_id", cpu % 2), ("core_id", cpu // 4))
    }
    assert physical_cores(written(tmp_path / "server", server), range(8)) == 4


def test_big_and_little_cores_all_count(tmp_path: Path) -> None:
    root = written(tmp_path, topology({cpu: str(cpu) for cpu in range(8)}))
    assert threads_of_all(root, range(8)) == 8


def test_a_container_without_topology_has_as_many_cores_as_cpus(tmp_path: Path) -> None:
    hidden = written(tmp_path / "hidden", {"proc/cpuinfo": "processor : 0\ncore id : 0\n\nprocessor : 1\ncore id : 0"})
    assert physical_cores(hidden, range(2)) == 2
    bare = written(tmp_path / "bare", {f"{SYS_CPU}/cpu{cpu}/online": 1 for cpu in range(3)})
    assert physical_cores(bare, range(3)) == 3


def test_where_there_is_no_proc_psutil_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 8 if logical else 4)
    assert physical_cores(tmp_path / "macos", None) == 4
    assert physical_cores(tmp_path / "windows", [0, 1]) == 2


@pytest.mark.parametrize(
    "files, quota",
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "200000 100000", "a/cpu.max": "max 100000", "a/b/cpu.max": "300000 100000"}, 2.0),
        ({"a/b/cpu.max": "50000 100000"}, 0.5),
        ({"c/cpu.max": "50000 100000"}, None),  # another group's
        ({}, None),
    ],
)
def test_the_quota_is_the_tightest_from_the_own_group_up(tmp_path: Path, files: dict, quota: float | None) -> None:
    groups = {f"sys/fs/cgroup/{path}": text for path, text in files.items()}
    root = written(tmp_path, {"proc/self/cgroup": "0::/a/b", "proc/self/mountinfo": V2, **groups})
    assert cpu_quota(root) == quota


def test_quotas_of_the_first_version(tmp_path: Path) -> None:
    cgroup = "3:cpuset:/\n2:cpu,cpuacct:/box\n0::/"
    here = "sys/fs/cgroup/cpu,cpuacct"
    limits = {f"{here}/cpu.cfs_quota_us": -1, f"{here}/cpu.cfs_period_us": 100_000}
    root = written(tmp_path, {"proc/self/cgroup": cgroup, "proc/self/mountinfo": V1, **limits})
    assert cpu_quota(root) is None
    written(root, {f"{here}/box/cpu.cfs_quota_us": 250_000, f"{here}/box/cpu.cfs_period_us": 100_000})
    assert cpu_quota(root) == 2.5


@pytest.mark.parametrize("path", ["/docker/abc", "/docker/abc/inner", "/", "/../other"])
def test_a_container_that_sees_its_path_as_the_host_does(tmp_path: Path, path: str) -> None:
    """Its own group is what is mounted, whatever the group is called outside."""
    mount = "33 23 0:29 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw"
    files = {"proc/self/cgroup": f"0::{path}", "proc/self/mountinfo": mount, "sys/fs/cgroup/cpu.max": "150000 100000"}
    assert cpu_quota(written(tmp_path, files)) == 1.5


@pytest.mark.parametrize("quota, threads", [("150000", 1), ("50000", 1), ("300000", 3), ("800000", 4), ("max", 4)])
def test_all_is_what_cores_and_quota_allow_and_never_less_than_one(tmp_path: Path, quota: str, threads: int) -> None:
    groups = {
        "proc/self/cgroup": "0::/",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/cpu.max": f"{quota} 100000",
    }
    root = written(tmp_path, {**topology(FOUR_CORES_OF_TWO), **groups})
    assert threads_of_all(root, range(8)) == threads == hardware_of(root, list(range(8))).threads_of_all


def test_this_machine_has_an_answer() -> None:
    allowed = affinity()
    assert 1 <= threads_of_all() <= (len(allowed) if allowed else os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot bind")
def test_a_process_is_bound_to_the_cores_it_names() -> None:
    allowed = affinity()
    try:
        pin([allowed[-1]])
        assert os.sched_getaffinity(0) == {allowed[-1]}
        assert threads_of_all() == 1
        with pytest.raises(InputError, match="cores 5000-5001 are not there, or not for this process") as raised:
            pin([allowed[-1], 5000, 5001])
        assert raised.value.hint == f"it may use {allowed[-1]} (as the system numbers them)"
        assert os.sched_getaffinity(0) == {allowed[-1]}
    finally:
        os.sched_setaffinity(0, allowed)
    with pytest.raises(InputError, match="names no core"):
        pin([])


def test_a_system_that_cannot_bind_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_cores, "affinity", lambda: None)
    with pytest.raises(InputError, match="this system cannot bind a process to cores"):
        pin([0])


def test_windows_is_asked_through_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has no `sched_getaffinity`."""
    bound: list[list[int]] = []

    class Process:
        def cpu_affinity(self, cores: list[int] | None = None) -> list[int]:
            bound.extend([cores] if cores is not None else [])
            return [0, 1, 2, 3]

    monkeypatch.setattr(psutil, "Process", Process)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert affinity() == [0, 1, 2, 3]
    pin([3, 2, 3])
    assert bound == [[2, 3]]
