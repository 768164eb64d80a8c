"""What conditions say to people: whether a machine held back while it was measured, what was set differently, and what
to mend before measuring."""

from __future__ import annotations

from deploynas.latency.conditions import GPU_LIMITS, Conditions, GpuConditions, UnitClock

NOTICEABLE = 0.05  # of the clock; turbo clocks are never quite the same twice
# these hold a GPU back; the others are somebody's settings
HELD_BACK = {GPU_LIMITS[bit] for bit in (0x4, 0x8, 0x20, 0x40, 0x80)}


def throttled(before: Conditions, after: Conditions) -> list[str]:
    """In what ways the machine held back, or was set differently, between two moments; empty if it tells of none."""
    found = []
    if before.throttle_count is not None and after.throttle_count is not None:
        times = after.throttle_count - before.throttle_count
        if times > 0:
            found.append(f"the processor throttled {_times(times)} while this was measured")
    found += [f"`{kind}` slows the machine down against heat" for kind in after.cooling or {}]
    found += _alarmed(before, after)
    for then, now in _pairs(before.clocks, after.clocks):
        found += _slower(then, now)
    for index, (gpu, later) in enumerate(zip(before.gpus, after.gpus, strict=False)):
        found += _held_back(f"GPU {index}", gpu, later)
    return found + changed(before, after)


def changed(then: Conditions, now: Conditions) -> list[str]:
    """What was set differently; what is not known of either moment is not compared."""
    found = []
    for old, new in _pairs(then.clocks, now.clocks):
        unit = old.unit
        found += _differs(f"the governor of {unit}", old.governor, new.governor)
        found += _differs(f"the energy preference of {unit}", old.preference, new.preference)
        found += _differs(f"the lowest clock that {unit} may have", _in_mhz(old.floor_mhz), _in_mhz(new.floor_mhz))
        found += _differs(f"the highest clock that {unit} may have", _in_mhz(old.limit_mhz), _in_mhz(new.limit_mhz))
    found += _differs("boosting the clock", _on_or_off(then.boost), _on_or_off(now.boost))
    found += _differs("the power mode", then.power_mode, now.power_mode)
    found += _differs("power", _source(then.on_battery), _source(now.on_battery))
    for index, (gpu, later) in enumerate(zip(then.gpus, now.gpus, strict=False)):
        found += _differs(f"the power limit of GPU {index}", _in_watts(gpu), _in_watts(later))
    return found


def doubts(now: Conditions) -> list[str]:
    """What should be mended before anything is measured, with how, where that is known."""
    found = []
    for clock in now.clocks:
        # where the processor chooses its clock itself, `powersave` is the usual name of that
        chooses = clock.driver in ("intel_pstate", "amd-pstate-epp")
        fixed = clock.floor_mhz is not None and clock.floor_mhz == clock.limit_mhz
        if clock.driver and clock.governor != "performance" and not chooses and not fixed:
            found.append(
                f"the governor of {clock.unit} is `{clock.governor}`, so their clock follows the load with a delay: "
                "`sudo cpupower frequency-set -g performance`"
            )
        if clock.limit_mhz and clock.max_mhz and clock.limit_mhz < (1 - NOTICEABLE) * clock.max_mhz:
            found.append(f"{clock.unit} may have {clock.limit_mhz} MHz at most, of {clock.max_mhz}")
    found += [
        f"`{kind}` slows the machine down against heat: let it cool, or cool it better" for kind in now.cooling or {}
    ]
    found += [f"the board's firmware reports: {alarm} (a weak power supply or heat)" for alarm in now.alarms or []]
    if now.on_battery:
        found.append("it runs on battery: plug it in")
    for index, gpu in enumerate(now.gpus):
        found += [f"GPU {index} is held back by {limit}" for limit in gpu.limits or [] if limit in HELD_BACK]
    return found


def _alarmed(before: Conditions, after: Conditions) -> list[str]:
    """Now, or since `before`; what had already happened by then may have ended by then."""
    known = set(before.past_alarms or [])
    new = [alarm for alarm in after.past_alarms or [] if alarm not in known]
    return [f"the board's firmware reports: {alarm}" for alarm in dict.fromkeys([*(after.alarms or []), *new])]


def _slower(before: UnitClock, after: UnitClock) -> list[str]:
    if before.limit_mhz != after.limit_mhz or not before.now_mhz or not after.now_mhz:
        return []  # what is allowed has changed: that is said elsewhere
    if after.now_mhz >= (1 - NOTICEABLE) * before.now_mhz:
        return []
    return [f"the clock fell from {before.now_mhz} to {after.now_mhz} MHz"]


def _held_back(name: str, before: GpuConditions, after: GpuConditions) -> list[str]:
    longer = {why: after.limited_ms.get(why, 0.0) - ms for why, ms in before.limited_ms.items()}
    found = [f"{name} was held back by {why} for {ms:.0f} ms" for why, ms in longer.items() if ms >= 1]
    told = {why for why, ms in longer.items() if ms >= 1}
    return found + [
        f"{name} is held back by {why}" for why in after.limits or [] if why in HELD_BACK and why not in told
    ]


def _pairs(before: list[UnitClock], after: list[UnitClock]) -> list[tuple[UnitClock, UnitClock]]:
    later = {clock.unit: clock for clock in after}
    return [(clock, later[clock.unit]) for clock in before if clock.unit in later]


def _differs(what: str, then: str | None, now: str | None) -> list[str]:
    return [f"{what} was {then}, now {now}"] if then is not None and now is not None and then != now else []


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _in_mhz(value: int | None) -> str | None:
    return None if value is None else f"{value} MHz"


def _in_watts(gpu: GpuConditions) -> str | None:
    return None if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W"


def _on_or_off(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _source(on_battery: bool | None) -> str | None:
    return None if on_battery is None else "from the battery" if on_battery else "from the mains"
