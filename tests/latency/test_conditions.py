"""Clocks, heat and power as machines of files tell them, and what people are told of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from machine_files import SYS_CPU, clocks, running_on, topology, written

from deploynas.latency.conditions import Conditions, GpuConditions, UnitClock, conditions_here
from deploynas.latency.machine_changes import changes, slowed_down
from deploynas.latency.throttling import changed, doubts, throttled


@pytest.fixture(autouse=True)
def no_tool_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "no-commands"))


def at(root: Path, files: dict[str, str | int], allowed: range = range(8)) -> Conditions:
    return conditions_here(written(root, files), allowed, busy_s=0)


def test_a_machine_that_tells_nothing_has_no_conditions(tmp_path: Path) -> None:
    assert at(tmp_path, {}) == Conditions()
    assert Conditions().model_dump(exclude_defaults=True) == {}
    assert throttled(Conditions(), Conditions()) == changed(Conditions(), Conditions()) == doubts(Conditions()) == []


def test_cores_that_can_run_equally_fast_are_one_clock(tmp_path: Path) -> None:
    found = at(tmp_path, {**clocks(range(4), 408, 1800, 600), **clocks(range(4, 8), 408, 2400, 2208), **running_on(5)})
    little, big = found.clocks
    assert (little.unit, little.min_mhz, little.max_mhz, little.limit_mhz) == ("cores 0-3", 408, 1800, 1800)
    assert (big.unit, big.max_mhz, big.governor, big.driver) == ("cores 4-7", 2400, "schedutil", "cpufreq-dt")
    # an idle core's clock says nothing
    assert big.now_mhz == 2208 and little.now_mhz is None


def test_only_cores_of_the_affinity_count(tmp_path: Path) -> None:
    files = {**clocks(range(4), 408, 1800, 600), **clocks(range(4, 8), 408, 2400, 2208)}
    assert [clock.unit for clock in at(tmp_path, files, range(4, 6)).clocks] == ["cores 4-5"]


def test_a_clock_that_fell_while_computing_is_told(tmp_path: Path) -> None:
    files = {**clocks(range(4), 600, 2400, 2400), **running_on(0)}
    before = at(tmp_path, files)
    after = at(tmp_path, {**clocks(range(4), 600, 2400, 1500), **running_on(2)})
    assert throttled(before, after) == ["the clock fell from 2400 to 1500 MHz"]
    assert throttled(after, before) == []
    slightly = at(tmp_path, {**clocks(range(4), 600, 2400, 2300), **running_on(1)})
    assert throttled(before, slightly) == []


def test_a_limit_that_heat_has_lowered_is_told_once(tmp_path: Path) -> None:
    before = at(tmp_path, {**clocks(range(4), 600, 2400, 2400), **running_on(0)})
    hot = {
        **clocks(range(4), 600, 2400, 1500),
        f"{SYS_CPU}/cpu2/cpufreq/scaling_max_freq": 1_500_000,
        "sys/class/thermal/cooling_device0/type": "cpufreq-cpu0",
        "sys/class/thermal/cooling_device0/cur_state": 3,
        "sys/class/thermal/cooling_device1/type": "pwm-fan",
        "sys/class/thermal/cooling_device1/cur_state": 4,
    }
    after = at(tmp_path, hot)
    assert after.cooling == {"cpufreq-cpu0": 3}
    assert throttled(before, after) == [
        "`cpufreq-cpu0` slows the machine down against heat",
        "the highest clock that cores 0-3 may have was 2400 MHz, now 1500 MHz",
    ]
    cooled = at(tmp_path, {"sys/class/thermal/cooling_device0/cur_state": 0})
    assert cooled.cooling == {}


def test_throttling_events_are_counted_once_by_core_and_by_package(tmp_path: Path) -> None:
    def counted(core: int, package: int) -> dict[str, str | int]:
        """Two cores of two threads: both threads count the events of their core, all count those of the package."""
        events = {
            f"{SYS_CPU}/cpu{cpu}/thermal_throttle/core_throttle_count": core if cpu in (0, 2) else 3 for cpu in range(4)
        }
        whole = {f"{SYS_CPU}/cpu{cpu}/thermal_throttle/package_throttle_count": package for cpu in range(4)}
        return {**topology({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}), **events, **whole}

    before, after = at(tmp_path, counted(10, 5)), at(tmp_path, counted(20, 7))
    assert (before.throttle_count, after.throttle_count) == (10 + 3 + 5, 20 + 3 + 7)
    assert throttled(before, after) == ["the processor throttled 12 times while this was measured"]
    assert throttled(after, at(tmp_path, counted(21, 7))) == ["the processor throttled once while this was measured"]


@pytest.mark.parametrize("firmware", ["soc/soc:firmware", "soc@107c000000/soc@107c000000:firmware"])
def test_alarms_of_a_raspberry_pi(tmp_path: Path, firmware: str) -> None:
    file = f"sys/devices/platform/{firmware}/get_throttled"
    quiet = at(tmp_path, {file: "0"})
    assert quiet.alarms == quiet.past_alarms == []
    booted = at(tmp_path, {file: "10000"})  # under-voltage while it started, not since
    assert (booted.alarms, booted.past_alarms) == ([], ["under-voltage"])
    hot = at(tmp_path, {file: "50004"})
    assert hot.alarms == ["throttled"] and hot.past_alarms == ["under-voltage", "throttled"]
    assert throttled(quiet, booted) == ["the board's firmware reports: under-voltage"]
    assert throttled(booted, booted) == []
    assert throttled(booted, hot) == ["the board's firmware reports: throttled"]


def test_power_modes_of_a_jetson(tmp_path: Path) -> None:
    modes = "< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >"
    catalogue = f"{modes}\n< PM_CONFIG DEFAULT=0 >"
    default = at(tmp_path, {"etc/nvpmodel.conf": catalogue})
    chosen = at(tmp_path, {"var/lib/nvpmodel/status": "pmode:0002"})
    assert (default.power_mode, chosen.power_mode) == ("15W", "MAXN_SUPER")
    assert changed(default, chosen) == ["the power mode was 15W, now MAXN_SUPER"]
    assert at(tmp_path, {"var/lib/nvpmodel/status": "pmode:0007"}).power_mode == "mode 7"


def test_power_of_a_laptop(tmp_path: Path) -> None:
    supply = "sys/class/power_supply"
    mouse = {f"{supply}/hid/type": "Battery", f"{supply}/hid/scope": "Device", f"{supply}/hid/status": "Discharging"}
    assert at(tmp_path / "desktop", mouse).on_battery is None
    battery = {f"{supply}/BAT0/type": "Battery", f"{supply}/AC/type": "Mains"}
    plugged = {f"{supply}/BAT0/status": "Charging", f"{supply}/AC/online": 1}
    away = {f"{supply}/BAT0/status": "Discharging", f"{supply}/AC/online": 0}
    profile = "sys/firmware/acpi/platform_profile"
    before = at(tmp_path, {**mouse, **battery, **plugged, profile: "performance"})
    after = at(tmp_path, {**away, profile: "balanced"})
    assert (before.on_battery, after.on_battery) == (False, True)
    assert throttled(before, after) == [
        "the power mode was performance, now balanced",
        "power was from the mains, now from the battery",
    ]
    assert "it runs on battery: plug it in" in doubts(after)


def test_boost_and_heat(tmp_path: Path) -> None:
    intel = at(tmp_path / "intel", {f"{SYS_CPU}/intel_pstate/no_turbo": 1})
    amd = at(
        tmp_path / "amd",
        {
            f"{SYS_CPU}/cpufreq/boost": 1,
            "sys/class/hwmon/hwmon2/name": "k10temp",
            "sys/class/hwmon/hwmon2/temp1_input": 61500,
            "sys/class/hwmon/hwmon1/name": "nvme",
            "sys/class/hwmon/hwmon1/temp1_input": 70000,
        },
    )
    assert (intel.boost, amd.boost, amd.temperature_c) == (False, True, 61.5)
    zones = {
        "sys/class/thermal/thermal_zone0/temp": 45200,
        "sys/class/thermal/thermal_zone1/temp": 255000,
        "sys/class/thermal/thermal_zone2/temp": -128000,
        "sys/class/thermal/thermal_zone10/temp": 52750,
    }
    assert at(tmp_path / "board", zones).temperature_c == 52.75


def test_what_to_mend_before_measuring(tmp_path: Path) -> None:
    lazy = at(tmp_path / "lazy", clocks(range(2), 600, 1500, 600, "ondemand"))
    assert doubts(lazy) == [
        "the governor of cores 0-1 is `ondemand`, so their clock follows the load with a delay: "
        "`sudo cpupower frequency-set -g performance`"
    ]
    assert doubts(at(tmp_path / "steady", clocks(range(2), 600, 1500, 1500, "performance"))) == []
    own = UnitClock(unit="cores 0-1", driver="intel_pstate", governor="powersave", max_mhz=4000, limit_mhz=4000)
    assert doubts(Conditions(clocks=[own])) == []
    capped = own.model_copy(update={"limit_mhz": 2000})
    assert doubts(Conditions(clocks=[capped])) == ["cores 0-1 may have 2000 MHz at most, of 4000"]


SMI = """#!/bin/sh
case "$1" in
  *counters*) {counters} ;;
  *) echo "{plain}" ;;
esac
"""


def gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, plain: str, counters: str | None) -> GpuConditions:
    folder.mkdir(exist_ok=True)
    tool = folder / "nvidia-smi"
    refusal = "echo 'Field \"clocks_event_reasons_counters.sw_power_cap\" is not a valid field to query.'; exit 2"
    tool.write_text(SMI.format(plain=plain, counters=refusal if counters is None else f'echo "{plain}, {counters}"'))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    (found,) = conditions_here(folder / "root", [0], busy_s=0).gpus
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up tool is a shell script")
def test_gpus_tell_by_counters_where_the_driver_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, hot = "210, 1980, 41, 0x0000000000000001, P8, 320.00", "1400, 1980, 84, 0x0000000000000020, P2, 250.00"
    old = gpu(tmp_path, monkeypatch, idle, None)
    assert old == GpuConditions(
        clock_mhz=210, max_clock_mhz=1980, temperature_c=41, state="P8", power_limit_w=320, limits=[], limited_ms={}
    )
    before = gpu(tmp_path, monkeypatch, idle, "0, 1000, 0, 0")
    after = gpu(tmp_path, monkeypatch, hot, "0, 341000, 0, 0")
    assert after.limits == ["heat"]
    assert throttled(Conditions(gpus=[before]), Conditions(gpus=[after])) == [
        "GPU 0 was held back by heat for 340 ms",
        "the power limit of GPU 0 was 320 W, now 250 W",
    ]
    uncounted = gpu(tmp_path, monkeypatch, hot, None)
    assert "GPU 0 is held back by heat" in throttled(Conditions(gpus=[old]), Conditions(gpus=[uncounted]))
    unknown = gpu(tmp_path, monkeypatch, "[N/A], 1980, [Not Supported], [N/A], P0, [N/A]", None)
    assert unknown == GpuConditions(max_clock_mhz=1980, state="P0")


def test_changes_between_two_results() -> None:
    machine = {
        "machine": "x86_64",
        "processor": "a",
        "cores": 8,
        "memory_gib": 8,
        "system": "Linux",
        "accelerators": [],
    }

    def result(versions: dict, clock: UnitClock, provider: str = "CUDAExecutionProvider", **hardware: object) -> dict:
        conditions = Conditions(clocks=[clock]).model_dump(exclude_defaults=True)
        return {
            "provider": provider,
            "versions": versions,
            "hardware": {**machine, "fingerprint": "f", **hardware},
            "conditions_before": conditions,
        }

    steady, lazy = (
        UnitClock(unit="cores 0-7", governor="performance"),
        UnitClock(unit="cores 0-7", governor="powersave"),
    )
    old = {"onnxruntime": "1.23.0", "nvidia-cudnn-cu12": "9.1.0", "tensorrt": "10.1", "numpy": "1.26", "onnx": "1.16"}
    new = {"onnxruntime": "1.24.1", "nvidia-cudnn-cu12": "9.5.0", "numpy": "2.0", "onnx": "1.17"}
    before = result(old, steady, drivers={"nvidia": "535.104.05"})
    after = result(new, lazy, drivers={"nvidia": "550.54.14"}, physical_cores=4)
    assert changes(before, after, "all") == [
        "ONNX Runtime was 1.23.0, now 1.24.1",
        "nvidia-cudnn-cu12 was 9.1.0, now 9.5.0",
        "tensorrt was 10.1, now not there",
        "driver nvidia was 535.104.05, now 550.54.14",
        "`threads: all` was 8 threads, now 4",
        "the governor of cores 0-7 was performance, now powersave",
    ]
    assert "`threads: all` was 8 threads, now 4" not in changes(before, after, 4)
    on_cpu = "CPUExecutionProvider"
    assert changes(result(old, steady, on_cpu), result(new, steady, on_cpu)) == ["ONNX Runtime was 1.23.0, now 1.24.1"]
    assert changes({"versions": {}}, after) == changes({}, {}) == []


def test_what_a_result_says_of_the_time_it_was_measured_in() -> None:
    cool, hot = GpuConditions(limits=[]), GpuConditions(limits=["heat"])
    clock = UnitClock(unit="cores 0-3", now_mhz=2400)

    def record(provider: str) -> dict:
        before = Conditions(clocks=[clock], gpus=[cool], throttle_count=3)
        after = Conditions(clocks=[clock], gpus=[hot], throttle_count=3)
        return {
            "provider": provider,
            "conditions_before": before.model_dump(exclude_defaults=True),
            "conditions_after": after.model_dump(exclude_defaults=True),
        }

    assert slowed_down(record("CUDAExecutionProvider")) == ["GPU 0 is held back by heat"]
    assert slowed_down(record("CPUExecutionProvider")) == []  # the GPU was somebody else's
    assert slowed_down({"load_before": [0.1, 0.1, 0.1]}) == []


def test_the_gpu_of_a_board_and_clocks_that_are_held(tmp_path: Path) -> None:
    """As `jetson_clocks` does: the lowest clock is the highest."""
    folder = "sys/class/devfreq/17000000.gpu"
    free = {
        f"{folder}/available_frequencies": "306000000 612000000 1020000000",
        f"{folder}/min_freq": 306_000_000,
        f"{folder}/max_freq": 1_020_000_000,
        f"{folder}/governor": "nvhost_podgov",
        f"{SYS_CPU}/cpu0/cpufreq/scaling_min_freq": 600_000,
    }
    before = at(tmp_path, {**clocks(range(1), 600, 1500, 600), **free})
    assert before.clocks[1] == UnitClock(
        unit="17000000.gpu", min_mhz=306, max_mhz=1020, floor_mhz=306, limit_mhz=1020, governor="nvhost_podgov"
    )
    held = {f"{folder}/min_freq": 1_020_000_000, f"{SYS_CPU}/cpu0/cpufreq/scaling_min_freq": 1_500_000}
    after = at(tmp_path, held)
    assert changed(before, after) == [
        "the lowest clock that cores 0 may have was 600 MHz, now 1500 MHz",
        "the lowest clock that 17000000.gpu may have was 306 MHz, now 1020 MHz",
    ]
    assert len(doubts(before)) == 1 and doubts(after) == []
    slower = at(tmp_path, {f"{folder}/max_freq": 612_000_000})
    assert doubts(slower) == ["17000000.gpu may have 612 MHz at most, of 1020"]


@pytest.mark.skipif(sys.platform == "win32", reason="the made-up tool is a shell script")
def test_other_kernels_leave_it_to_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "vcgencmd"
    tool.write_text("#!/bin/sh\n[ $1 = get_throttled ] && echo throttled=0x50001\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = at(tmp_path / "root", {})
    assert found.alarms == ["under-voltage"] and found.past_alarms == ["under-voltage", "throttled"]
