"""Unlike machines have unlike fingerprints, and a machine of which nothing new is known keeps the one it had."""

from __future__ import annotations

import json
import platform
import sys
from email.message import Message
from pathlib import Path

import psutil
import pytest
from machine_files import SYS_CPU, arm_cores, topology, written

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.latency.accelerators import Accelerator, accelerators, drivers
from deploynas.latency.facts import Facts, facts_here, require_hardware
from deploynas.latency.hardware import Hardware, hardware, hardware_of, versions
from deploynas.latency.installed_packages import versions_of
from deploynas.latency.processor_name import computer, processor, sysctl

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
A72, A76, A55 = ("0x41", "0xd08"), ("0x41", "0xd0b"), ("0x41", "0xd05")
X86 = {
    "proc/cpuinfo": "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n"
}
TWO_CPUS = topology({0: "0", 1: "1"})


@pytest.fixture(autouse=True)
def no_tool_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An `nvidia-smi` that is installed here has no say."""
    monkeypatch.setenv("PATH", str(tmp_path / "no-commands"))


@pytest.fixture
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def test_a_machine_without_news_keeps_the_fingerprint_of_its_stored_tables(tmp_path: Path, x86: None) -> None:
    recorded = json.loads((GOLDEN / "bench.base.json").read_text())["provenance"]["hardware"]
    found = hardware_of(written(tmp_path, {**X86, **TWO_CPUS}), [0, 1])
    assert found.fingerprint == recorded["fingerprint"] == "d06acb58749fad11"
    same = {key: recorded[key] for key in ("machine", "processor", "cores", "accelerators")}
    assert same == found.model_dump(include=set(same)) and content_hash(same) == found.fingerprint


def test_hardware_of_an_earlier_version_is_read_and_its_all_is_every_cpu() -> None:
    recorded = json.loads((GOLDEN / "bench.base.json").read_text())["provenance"]["hardware"]
    assert Hardware.model_validate(recorded).threads_of_all == recorded["cores"]


def test_two_threads_of_a_core_leave_the_fingerprint_alone(tmp_path: Path, x86: None) -> None:
    """What `threads: all` means is compared by itself."""
    apart = hardware_of(written(tmp_path / "apart", {**X86, **TWO_CPUS}), [0, 1])
    threads = hardware_of(written(tmp_path / "threads", {**X86, **topology({0: "0-1", 1: "0-1"})}), [0, 1])
    assert apart.fingerprint == threads.fingerprint
    assert (apart.threads_of_all, threads.threads_of_all) == (2, 1)


def test_a_quota_below_the_cores_is_another_machine(tmp_path: Path, x86: None) -> None:
    groups = {"proc/self/cgroup": "0::/", "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"}
    plain = hardware_of(written(tmp_path / "plain", {**X86, **TWO_CPUS}), [0, 1])
    found = {}
    for name, quota in (("tight", "150000"), ("loose", "200000")):
        files = {**X86, **TWO_CPUS, **groups, "sys/fs/cgroup/cpu.max": f"{quota} 100000"}
        found[name] = hardware_of(written(tmp_path / name, files), [0, 1])
    assert found["tight"].cpu_quota == 1.5 and found["tight"].fingerprint != plain.fingerprint
    assert found["loose"].cpu_quota is None and found["loose"].fingerprint == plain.fingerprint


def test_boards_of_the_same_cores_differ(tmp_path: Path, arm: None) -> None:
    cores = {**arm_cores(A72, A72, A72, A72), **topology({cpu: str(cpu) for cpu in range(4)})}
    tree = "proc/device-tree/model"
    pi = hardware_of(written(tmp_path / "pi", {**cores, tree: "Raspberry Pi 4 Model B Rev 1.4\0"}), [0, 1, 2, 3])
    other = hardware_of(written(tmp_path / "other", {**cores, tree: "Pine64 RockPro64\0"}), [0, 1, 2, 3])
    assert (pi.processor, pi.computer) == ("Cortex-A72", "Raspberry Pi 4 Model B Rev 1.4")
    assert pi.processor == other.processor and pi.fingerprint != other.fingerprint


def test_a_board_in_a_container_is_the_same_board(tmp_path: Path, arm: None) -> None:
    """Containers hide /sys/firmware, not /proc/cpuinfo."""
    name = "Raspberry Pi 5 Model B Rev 1.0"
    cores = {**arm_cores(A76, A76, rest=f"Revision\t: c04170\nModel\t\t: {name}\n"), **TWO_CPUS}
    outside = written(tmp_path / "outside", {**cores, "sys/firmware/devicetree/base/model": f"{name}\0"})
    inside = written(tmp_path / "inside", cores)
    assert computer(inside) == computer(outside) == name
    assert hardware_of(inside, [0, 1]).fingerprint == hardware_of(outside, [0, 1]).fingerprint


@pytest.mark.parametrize(
    "cores, name",
    [
        ([A76] * 4, "Cortex-A76"),
        ([A55] * 4 + [A76] * 4, "4x Cortex-A55 + 4x Cortex-A76"),
        ([("0x41", "0xd42")] * 6, "Cortex-A78AE"),
        ([("0x41", "0xd0c")] * 2, "Neoverse-N1"),
        ([("0x51", "0x001")] * 2, "Oryon"),
        ([("0x77", "0x123")] * 2, "implementer 0x77 part 0x123"),
    ],
)
def test_arm_cores_are_named(tmp_path: Path, cores: list, name: str) -> None:
    assert processor(written(tmp_path, arm_cores(*cores))) == name


def test_the_name_that_32_bit_kernels_give_every_processor_is_not_taken(tmp_path: Path) -> None:
    cpuinfo = "model name\t: ARMv7 Processor rev 3 (v7l)\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n"
    assert processor(written(tmp_path, {"proc/cpuinfo": cpuinfo})) == "Cortex-A72"


def test_what_sysctl_says_of_an_apple_chip(tmp_path: Path) -> None:
    tool = command(tmp_path / "sysctl", "printf 'Apple M2 Pro\\nMac14,9\\n'")
    assert sysctl(["machdep.cpu.brand_string", "hw.model"], tool) == ("Apple M2 Pro", "Mac14,9")
    assert sysctl(["hw.model"], str(tmp_path / "none")) == ("", "")


def command(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


needs_sh = pytest.mark.skipif(sys.platform == "win32", reason="the made-up commands are shell scripts")


def test_nvidia_gpus_by_their_drivers_own_files(tmp_path: Path) -> None:
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:"
    files = {
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA GeForce RTX 3080\nIRQ: 160",
        "proc/driver/nvidia/version": said,
    }
    root = written(tmp_path, files)
    assert accelerators(root) == [Accelerator("NVIDIA GeForce RTX 3080", on_chip=False)]
    assert drivers(root) == {"nvidia": "535.104.05"}
    opened = written(
        tmp_path / "open", {"proc/driver/nvidia/version": "NVIDIA UNIX Open Kernel Module for x86_64  545.23.08"}
    )
    assert drivers(opened) == {"nvidia": "545.23.08"}


@needs_sh
def test_a_gpu_inside_wsl_is_told_by_the_tool_of_windows(tmp_path: Path) -> None:
    root = written(tmp_path, {})
    command(
        root / "usr/lib/wsl/lib/nvidia-smi",
        'case "$1" in *driver_version*) echo 551.86;; *name*) echo "NVIDIA GeForce RTX 4070";; esac',
    )
    assert [one.name for one in accelerators(root)] == ["NVIDIA GeForce RTX 4070"]
    assert drivers(root) == {"nvidia": "551.86"}


@needs_sh
@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found'; exit 6", "exec sleep 60"])
def test_a_tool_that_fails_or_hangs_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr("deploynas.latency.nvidia_smi.TIMEOUT_S", 0.2)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command(tmp_path / "nvidia-smi", script)
    root = written(tmp_path / "root", {})
    assert accelerators(root) == [] and drivers(root) == {}


def pci(folder: str, maker: str, model: str, slot: str, revision: str = "0x00") -> dict[str, str | int]:
    uevent = f"DRIVER=some\nPCI_SLOT_NAME={slot}"
    device = f"{folder}/device"
    return {
        f"{device}/vendor": maker,
        f"{device}/device": model,
        f"{device}/revision": revision,
        f"{device}/uevent": uevent,
    }


def test_gpus_and_npus_that_linux_lists(tmp_path: Path, x86: None) -> None:
    files = {
        **pci("sys/class/drm/card0", "0x8086", "0x7d55", "0000:00:02.0", "0x08"),
        "sys/class/drm/card0-HDMI-A-1/status": "connected",
        **pci("sys/class/drm/card1", "0x1002", "0x744c", "0000:03:00.0", "0xc8"),
        **pci("sys/class/drm/card2", "0x1a03", "0x2000", "0000:04:00.0"),  # a server's display chip
        **pci("sys/class/drm/card3", "0x10de", "0x2206", "0000:05:00.0"),  # NVIDIA's have names
        **pci("sys/class/accel/accel0", "0x8086", "0x7d1d", "0000:00:0b.0", "0x04"),
        "sys/class/accel/accel1/device/uevent": "DRIVER=rocket\nOF_NAME=npu",
        "sys/module/amdgpu/version": "6.8.5",
    }
    root = written(tmp_path / "full", {**X86, **TWO_CPUS, **files})
    assert accelerators(root) == [
        Accelerator("Intel GPU 8086:7d55 rev 08", on_chip=True),
        Accelerator("AMD GPU 1002:744c rev c8", on_chip=False),
        Accelerator("Intel NPU 8086:7d1d rev 04", on_chip=True),
        Accelerator("NPU rocket", on_chip=True),
    ]
    assert drivers(root) == {"amdgpu": "6.8.5"}


def test_what_is_inside_the_processor_is_implied_by_its_name(tmp_path: Path, x86: None) -> None:
    plain = {**X86, **TWO_CPUS}
    inside = pci("sys/class/drm/card0", "0x8086", "0x7d55", "0000:00:02.0")
    card = pci("sys/class/drm/card0", "0x1002", "0x744c", "0000:03:00.0", "0xc8")
    other = pci("sys/class/drm/card0", "0x1002", "0x744c", "0000:03:00.0", "0xcc")  # the same number, more of the chip
    found = [
        hardware_of(written(tmp_path / str(i), {**plain, **files}), [0, 1])
        for i, files in enumerate(({}, inside, card, other))
    ]
    assert found[0].fingerprint == found[1].fingerprint
    assert found[1].on_chip == ["Intel GPU 8086:7d55 rev 00"]
    assert len({one.fingerprint for one in found}) == 3


def test_a_jetson_has_a_board_and_a_release(tmp_path: Path, arm: None) -> None:
    release = "# R36 (release), REVISION: 3.0, GCID: 36191598, BOARD: generic, EABI: aarch64, DATE: Mon May  6 17:34:21"
    name = "NVIDIA Jetson Orin Nano Developer Kit"
    files = {
        **arm_cores(*[("0x41", "0xd42")] * 6),
        **topology({cpu: str(cpu) for cpu in range(6)}),
        "proc/device-tree/model": f"{name}\0",
    }
    old = hardware_of(written(tmp_path / "old", {**files, "etc/nv_tegra_release": release}), list(range(6)))
    new = hardware_of(
        written(tmp_path / "new", {**files, "etc/nv_tegra_release": release.replace("3.0", "4.3")}), list(range(6))
    )
    assert old.computer == name and old.drivers == {"jetson-linux": "36.3.0"}
    assert new.drivers == {"jetson-linux": "36.4.3"} and new.fingerprint == old.fingerprint


def test_a_device_file_may_expect_the_core_or_the_board(tmp_path: Path, arm: None) -> None:
    cores = {**arm_cores(A76, A76), **TWO_CPUS, "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0"}
    found = hardware_of(written(tmp_path, cores), [0, 1])
    for expected in ("cortex-a76", "Raspberry Pi 5"):
        require_hardware(Device(name="pi", provider="cpu", hardware={"processor_contains": expected}), found)
    with pytest.raises(InputError, match=r"`Cortex-A72` in its name, this is `Cortex-A76, Raspberry Pi 5 Model B Rev"):
        require_hardware(Device(name="pi", provider="cpu", hardware={"processor_contains": "Cortex-A72"}), found)


def package(name: str, version: str) -> object:
    class Installed:
        metadata = Message()

    Installed.metadata["Name"] = name
    Installed.version = version  # type: ignore[attr-defined]
    return Installed()


def test_packages_that_providers_compute_with_are_versions() -> None:
    there = [
        ("onnxruntime-gpu", "1.24.1"),
        ("nvidia_cudnn_cu12", "9.1.0"),
        ("nvidia-cuda-runtime", "13.0.48"),
        ("tensorrt_cu12_libs", "10.9.0"),
        ("tensorrt", "10.9.0"),
        ("openvino", "2025.1.0"),
        ("openvino-telemetry", "2025.1"),
        ("onnxruntime-ep-openvino", "1.5.0"),
        ("onnxruntime", "1.24.1"),
        ("onnxruntime-extensions", "0.14"),
        ("torch", "2.5"),
        ("openvino", "2024.0.0"),  # further back on the path
    ]
    assert versions_of([package(*one) for one in there]) == {  # type: ignore[arg-type]
        "nvidia-cuda-runtime": "13.0.48",
        "nvidia-cudnn-cu12": "9.1.0",
        "onnxruntime-ep-openvino": "1.5.0",
        "onnxruntime-gpu": "1.24.1",
        "openvino": "2025.1.0",
        "tensorrt": "10.9.0",
    }
    assert {"deploynas", "onnxruntime", "onnx", "numpy", "python"} <= set(versions())


def test_facts_of_an_earlier_version_are_read() -> None:
    """A target that answers without conditions, boards, drivers and quotas."""
    now = facts_here().model_dump()
    known = ("machine", "processor", "cores", "memory_gib", "system", "accelerators", "fingerprint")
    earlier = {**now, "hardware": {key: now["hardware"][key] for key in known}}
    del earlier["conditions"]
    found = Facts.model_validate(earlier)
    assert found.conditions.clocks == [] and found.hardware.threads_of_all == hardware().cores


def test_facts_travel_as_json() -> None:
    facts = facts_here()
    assert Facts.model_validate(json.loads(json.dumps(facts.model_dump()))) == facts
    assert facts.provenance()["hardware"] == hardware().model_dump()


def test_memory_is_this_machines() -> None:
    assert hardware().memory_gib == round(psutil.virtual_memory().total / 2**30)


def test_cpus_of_a_tree_are_those_of_the_affinity(tmp_path: Path, x86: None) -> None:
    root = written(tmp_path, {**X86, **topology({cpu: str(cpu) for cpu in range(8)}), f"{SYS_CPU}/online": "0-7"})
    assert hardware_of(root, [2, 3, 4]).cores == 3 == hardware_of(root, [2, 3, 4]).physical_cores
