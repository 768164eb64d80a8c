from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import deploynas as dn
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.latency.entry import build
from deploynas.latency.facts import facts_here
from deploynas.latency.table import LatencyTable
from deploynas.latency.target import target_of
from deploynas.space import Space


@pytest.fixture(scope="module")
def table(tiny: Space, quick: Device) -> LatencyTable:
    return dn.profile(quick, tiny)


def test_a_profile_measures_every_distinct_part_once(table: LatencyTable, tiny: Space) -> None:
    evidence = table.evidence
    assert evidence is not None
    names = [part.name for part in evidence.parts]
    assert names[:3] == ["stem", "first", "head"] and len(names) == len(set(names))
    # stage 1 keeps its width and stride, so its blocks are alike; stage 2 has a first block of its own
    assert len(names) == 3 + 4 + 2 * 2
    assert all(
        len(part.samples_ms) == 2 and all(len(visit) == 2 for visit in part.samples_ms) for part in evidence.parts
    )


def test_validation_networks_are_not_among_the_fitted(table: LatencyTable) -> None:
    evidence = table.evidence
    assert evidence is not None
    fitted = {str(network.choices) for network in evidence.correction.networks}
    held_out = {str(network.choices) for network in evidence.validation.networks}
    assert len(fitted) == 6 and len(held_out) == 3 and not fitted & held_out


def test_stored_predictions_are_the_tables_own(table: LatencyTable, tiny: Space) -> None:
    assert table.evidence is not None
    for network in table.evidence.validation.networks:
        assert network.predicted_ms == pytest.approx(table.predict(tiny.architecture(network.choices)))


def test_provenance_says_where_and_with_what(table: LatencyTable) -> None:
    assert table.evidence is not None
    provenance = table.evidence.provenance
    assert {"hardware", "versions", "provider", "load_before", "load_after", "date", "seed"} <= set(provenance)
    assert provenance["provider"] == "CPUExecutionProvider"


def test_a_table_survives_its_file(table: LatencyTable, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    assert LatencyTable.load(path) == table


def test_an_int8_device_is_profiled_in_int8(tiny: Space, quick: Device, monkeypatch) -> None:
    """Every graph that would be timed computes in 8 bits, and none of an fp32 device does."""
    from deploynas.latency.profile import _Work

    for precision in ("int8", "fp32"):
        device = quick.model_copy(update={"precision": precision})
        entries = _Work.plan(target_of(device), facts_here(), tiny, seed=0).entries
        assert {"part", "block", "network"} == {entry.kind for entry in entries}
        for entry in entries:
            model = onnx.load_model_from_string(build(entry, tiny, device))
            types = {tensor.data_type for tensor in model.graph.initializer}
            assert (onnx.TensorProto.INT8 in types) == (precision == "int8"), entry.key


def test_a_table_of_arrays_predicts_by_adding_up(tiny: Space) -> None:
    blocks = [
        [[10.0 * s + b + 0.1 * c for c in range(len(st.configs))] for b in range(st.max_depth)]
        for s, st in enumerate(tiny.stages)
    ]
    table = LatencyTable.from_arrays(tiny, 5.0, blocks)
    architecture = tiny.architecture([[3, 1], [1]])
    assert table.predict(architecture) == pytest.approx(5 + 0.3 + 1.1 + 10.1)


@pytest.mark.parametrize(
    ("fixed", "change", "said"),
    [
        (float("nan"), None, "fixed_ms"),
        (-1.0, None, "fixed_ms"),
        (1.0, lambda b: b[:-1], "stages"),
        (1.0, lambda b: [b[0][:-1], b[1]], "blocks"),
        (1.0, lambda b: [[[-1.0] * 4, b[0][1]], b[1]], "at least 0"),
        (1.0, lambda b: [[[float("inf")] * 4, b[0][1]], b[1]], "finite"),
    ],
)
def test_impossible_arrays_are_refused(fixed: float, change, said: str, tiny: Space) -> None:
    blocks = [[[1.0] * len(stage.configs) for _ in range(stage.max_depth)] for stage in tiny.stages]
    with pytest.raises(InputError, match=said):
        LatencyTable.from_arrays(tiny, fixed, change(blocks) if change else blocks)


def _damage(path: Path, **changes: object) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: p.write_text(p.read_text()[:500]), "not a complete JSON document"),
        (lambda p: p.write_text("{}"), "expected a file of schema"),
        (lambda p: p.write_text("[1, 2]"), "a list"),
        (lambda p: p.write_bytes(b"\xff\xfe\x00"), "not a text file"),
        (lambda p: _damage(p, schema_version=99), "newer deploynas"),
        (lambda p: _damage(p, schema_version="1"), "positive integer"),
        (lambda p: _damage(p, fixed_ms="fast"), "damaged: `fixed_ms`"),
        (lambda p: _damage(p, space_hash="0" * 16), "another search space"),
        (lambda p: _damage(p, block_ms=[]), "stages"),
        (lambda p: p.unlink(), "no such file"),
    ],
)
def test_a_damaged_table_is_refused(damage, said: str, table: LatencyTable, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    damage(path)
    with pytest.raises(InputError, match=said):
        LatencyTable.load(path)


def test_unknown_keys_of_a_generated_file_are_ignored(table: LatencyTable, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table.save(path)
    _damage(path, from_the_future=1)
    assert LatencyTable.load(path) == table


def test_a_kill_loses_at_most_one_visit_and_the_same_call_goes_on(tiny: Space, quick: Device, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    slow = quick.model_copy(update={"effort": quick.effort.model_copy(update={"visits": 40, "part_visits": 40})})
    script = (
        "import deploynas as dn, json, sys\n"
        "from deploynas.device import Device\n"
        "device = Device.model_validate(json.loads(sys.argv[1]))\n"
        "space = dn.Space.from_description(json.loads(sys.argv[2]))\n"
        "dn.profile(device, space, journal=sys.argv[3])\n"
    )
    call = [sys.executable, "-c", script, json.dumps(slow.describe()), json.dumps(tiny.describe()), str(journal)]
    process = subprocess.Popen(call, start_new_session=True)
    while not journal.exists() or journal.read_text().count("\n") < 20:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = journal.read_text()
    kept = before[: before.rindex("\n") + 1]
    journal.write_text(before + '{"entry": "stem", "samp')  # and a line cut in the middle
    table = dn.profile(slow, tiny, journal=journal)
    assert journal.read_text().startswith(kept)
    assert table.evidence is not None and table.evidence.provenance["resumed"]
    assert all(len(part.samples_ms) == 40 for part in table.evidence.parts)


def test_a_journal_of_other_settings_is_not_continued(tiny: Space, quick: Device, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    dn.profile(quick, tiny, journal=journal, seed=1)
    table = dn.profile(quick, tiny, journal=journal, seed=2)
    assert table.evidence is not None and not table.evidence.provenance["resumed"]


def test_unstable_entries_are_measured_again_then_marked(tiny: Space, quick: Device, monkeypatch) -> None:
    """A clock that stands still until the first repeat is over: planned visits, one repeat, then the time is up."""
    from deploynas.latency import profile as module

    repeats = []
    real, effort = module._visit, quick.effort.model_copy(update={"max_relative_error": 1e-9, "time_limit_s": 100.0})

    def visit(work, journal, entries, missing, worker):
        if not entries[0].moment:  # the trials of forms come before the table
            repeats.append(worker)
        yield from real(work, journal, entries, missing, worker)

    monkeypatch.setattr(module, "_visit", visit)
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0 if len(repeats) < 3 else 200.0)
    table = dn.profile(quick.model_copy(update={"effort": effort}), tiny)
    assert table.evidence is not None and repeats == [0, 1, 2]
    for part in table.evidence.parts:
        # two planned visits, two of the whole repeat; the second repeat is stopped after its first visit
        assert len(part.samples_ms) in (4, 5)
        assert part.stable == (part.relative_error <= 1e-9)
    assert not any(part.stable for part in table.evidence.parts)


def test_networks_too_large_for_memory_are_measured_in_groups(tiny: Space, quick: Device) -> None:
    from deploynas.latency import profile as module
    from deploynas.latency.loading_groups import HOST_SHARE, need_of

    work = module._Work.plan(target_of(quick), facts_here(), tiny, seed=0)
    for entries in (work.entries, work.trials):
        free = sum(need_of(entry, tiny, quick).host for entry in entries) / HOST_SHARE / 2  # room for half of them
        facts = work.facts.model_copy(update={"free_memory_bytes": int(free)})
        groups = module._groups(replace(work, facts=facts), entries, worker=0)
        assert len(groups) > 1
        assert sorted(e.key for group in groups for e in group) == sorted(e.key for e in entries)
        moments = [{e.moment for e in group if e.moment} for group in groups]
        assert sum(map(len, moments)) == len(set().union(*moments))  # none is torn apart
