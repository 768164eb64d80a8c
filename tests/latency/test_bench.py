from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from timings import timing

from deploynas import graph
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import write_json
from deploynas.latency.bench import BenchResult, bench
from deploynas.latency.comparison import compare
from deploynas.latency.measure import measurements
from deploynas.latency.table import Measurement
from deploynas.latency.worker import Visit
from deploynas.space import Space


@pytest.fixture(scope="module")
def network_path(tiny: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "network.onnx"
    onnx.save(graph.network(tiny, tiny.heaviest(), batch=None), path)
    return path


@pytest.fixture(scope="module")
def result(network_path: Path, quick: Device) -> BenchResult:
    return bench(network_path, quick, runs=60)


def test_percentiles_rise_and_all_runs_are_kept(result: BenchResult) -> None:
    values = list(result.percentiles_ms.values())
    assert values == sorted(values)
    assert sum(len(visit) for visit in result.measurement.samples_ms) >= 60
    assert result.throughput_per_s == pytest.approx(1000 / result.mean_ms)


def test_our_networks_are_broken_down_by_block(result: BenchResult, tiny: Space) -> None:
    names = [share.name for share in result.breakdown]
    assert [n for n in names if n != "input"] == [name for name, _ in tiny.parts(tiny.heaviest())]
    assert sum(share.share for share in result.breakdown) == pytest.approx(1)


def test_foreign_models_are_broken_down_by_operator(tmp_path: Path, quick: Device) -> None:
    path = tmp_path / "foreign.onnx"
    x = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", "m"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Cast", ["tokens"], ["f"], to=TensorProto.FLOAT), helper.make_node("Exp", ["f"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    with pytest.raises(InputError) as raised:
        bench(path, quick, runs=30)
    assert "--shape tokens=1,224" in (raised.value.hint or "")
    result = bench(path, quick, shapes={"tokens": (2, 5)}, runs=30)
    assert {share.name for share in result.breakdown} == {"Cast", "Exp"}


def test_a_fixed_batch_must_be_the_devices(tiny: Space, quick: Device, tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    onnx.save(graph.network(tiny, tiny.smallest(), batch=2), path)
    with pytest.raises(InputError, match="fixed batch of 2"):
        bench(path, quick.model_copy(update={"batch": 8}), runs=30)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x01\x12\x04text"])
def test_what_is_not_a_model_is_an_input_error(content: bytes, tmp_path: Path, quick: Device) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not an ONNX model"):
        bench(path, quick)


def _written(
    result: BenchResult,
    path: Path,
    factor: float,
    noise: float = 0.01,
    hardware: str | None = None,
    **changes: object,
) -> Path:
    """The same bench result with made-up samples, `factor` times as slow as 10 ms; by default of another file."""
    rng = np.random.default_rng(0)
    visits = [[10 * factor * float(1 + noise * abs(rng.standard_normal()))] * 4 for _ in range(20)]
    device = result.device
    made = measurements([Visit(entry="m", samples_ms=samples) for samples in visits], device, references=())
    changed = result.model_copy(
        update={"measurement": made["m"], "timing": None, "processes": [], "model_sha256": path.stem, **changes}
    )
    if hardware:
        changed.provenance["hardware"] = {**result.provenance["hardware"], "fingerprint": hardware}
    write_json(path, changed.model_dump(by_alias=True))
    return path


@pytest.mark.parametrize(
    ("factor", "noise", "verdict"),
    [
        (1.0, 0.01, "same"),
        (1.04, 0.01, "same"),
        (1.3, 0.01, "slower"),
        (0.7, 0.01, "faster"),
        (1.12, 1.0, "inconclusive"),  # 12 % slower, and visits that differ by 100 %
    ],
)
def test_only_a_large_and_significant_slowdown_is_slower(
    factor: float, noise: float, verdict: str, result: BenchResult, tmp_path: Path
) -> None:
    base = _written(result, tmp_path / "base.json", 1.0, noise)
    new = _written(result, tmp_path / "new.json", factor, noise)
    comparison = compare(base, new)
    assert comparison.verdict == verdict
    assert f"**{verdict}**" in comparison.markdown()


@pytest.mark.parametrize("noise", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("factor", [1.02, 1.116, 1.4])
def test_one_rule_both_ways(factor: float, noise: float, result: BenchResult, tmp_path: Path) -> None:
    one = _written(result, tmp_path / "one.json", 1.0, noise)
    other = _written(result, tmp_path / "other.json", factor, noise)
    there, back = compare(one, other), compare(other, one)
    mirrored = {"slower": "faster", "faster": "slower"}
    assert back.verdict == mirrored.get(there.verdict, there.verdict)


def test_a_file_that_has_not_changed_has_not_become_slower(result: BenchResult, tmp_path: Path) -> None:
    base = _written(result, tmp_path / "base.json", 1.0, model_sha256="a")
    new = _written(result, tmp_path / "new.json", 1.3, model_sha256="a")
    found = compare(base, new)
    assert found.verdict == "inconclusive"
    assert "the same file" in found.reasons[0]
    assert found.reasons[0] in found.markdown()


def test_what_is_not_stable_proves_nothing(result: BenchResult, tmp_path: Path) -> None:
    base, new = (_written(result, tmp_path / f"{name}.json", ms) for name, ms in (("base", 1.0), ("new", 1.3)))
    document = json.loads(new.read_text())
    document["measurement"]["stable"] = False
    write_json(new, document)
    found = compare(base, new)
    assert found.verdict == "inconclusive"
    assert "NEW is not stable" in found.reasons[0]


def test_machines_disturbed_more_differently_than_the_change_is_large_prove_nothing(
    result: BenchResult, tmp_path: Path
) -> None:
    quiet, busy = timing(10, 10), timing(13, 26)
    base = _written(result, tmp_path / "base.json", 1.0, timing=quiet)
    new = _written(result, tmp_path / "new.json", 1.3, timing=busy)
    assert "quiet moment" in compare(base, new).reasons[0]
    alike = _written(result, tmp_path / "alike.json", 1.3, timing=timing(13, 14))
    assert compare(base, alike).verdict == "slower"


def test_different_hardware_is_compared_only_on_request(result: BenchResult, tmp_path: Path) -> None:
    base = _written(result, tmp_path / "base.json", 1.0)
    new = _written(result.model_copy(deep=True), tmp_path / "new.json", 1.0, hardware="other")
    with pytest.raises(InputError, match="different hardware"):
        compare(base, new)
    assert compare(base, new, any_hardware=True).verdict == "same"


def test_a_driver_that_has_changed_is_named_and_may_slow_a_file_down(result: BenchResult, tmp_path: Path) -> None:
    """It is not another machine; and a change of the same file is not put down to the machine."""

    def of(driver: str) -> BenchResult:
        hardware = {**result.provenance["hardware"], "drivers": {"nvidia": driver}}
        provenance = {**result.provenance, "provider": "CUDAExecutionProvider", "hardware": hardware}
        return result.model_copy(update={"provenance": provenance})

    same = {"model_sha256": "the same"}
    base = _written(of("535.104.05"), tmp_path / "base.json", 1.0, **same)
    kept = compare(base, _written(of("535.104.05"), tmp_path / "kept.json", 1.3, **same))
    assert kept.verdict == "inconclusive" and "the machine has changed" in kept.reasons[0]
    found = compare(base, _written(of("550.54.14"), tmp_path / "new.json", 1.3, **same))
    assert found.same_hardware and found.verdict == "slower"
    assert "driver nvidia was 535.104.05, now 550.54.14" in found.notes


def test_false_alarms_are_rare_over_many_entries() -> None:
    """Holm over 50 entries without any change: the chance of one false alarm stays below 5 %."""
    from deploynas.latency.comparison import _rows, _Side

    rng = np.random.default_rng(0)

    def side() -> _Side:
        entries = {}
        for i in range(50):
            visits = [[float(v)] for v in 1 + 0.2 * abs(rng.standard_normal(10))]
            value = float(np.quantile(np.concatenate(visits), 0.2))
            entries[str(i)] = Measurement(
                name=str(i),
                latency_ms=value,
                relative_error=0.01,
                stable=True,
                samples_ms=visits,
                slowdown=[1.0] * len(visits),
            )
        return _Side(kind="table", entries=entries, statistic="p20", device_hash="", hardware={})

    alarms = 0
    for _ in range(20):
        before, after = side(), side()
        alarms += any(row.p_value < 0.05 for row in _rows(before, after, list(before.entries), 0.1))
    assert alarms <= 4  # 20 trials at 5 %: more than 4 would have a chance below 0.3 %


def test_a_device_may_keep_the_slowdowns_in() -> None:
    """One entry of interest beside six references, which are half as fast in the second half of the time."""
    made = []
    for moment in range(20):
        slow = 2.0 if moment >= 10 else 1.0
        made += [Visit(entry=f"reference/{r}", samples_ms=[slow * (1 + r)] * 4) for r in range(6)]
        made.append(Visit(entry="network", samples_ms=[slow * 10.0] * 4))
    device = Device(name="shared", provider="cpu")
    references = {f"reference/{r}" for r in range(6)}
    clean = measurements(made, device, references)["network"]
    assert clean.latency_ms == pytest.approx(10.0)
    assert max(clean.slowdown) == pytest.approx(2.0)
    as_it_was = measurements(made, device.model_copy(update={"undisturbed": False}), references)["network"]
    assert as_it_was.latency_ms == pytest.approx(15.0)
    assert set(as_it_was.slowdown) == {1.0}
