"""OpenVINO for real, on the CPU: as the runtime that replaces the plain one, and as the plug-in beside it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from runtimes import installed, needs

import deploynas as dn
from deploynas import graph
from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.agreement import TOLERANCE, cpu_outputs, difference
from deploynas.latency.bench import Case, bench_together
from deploynas.latency.entry import Entry, build
from deploynas.latency.hardware import hardware
from deploynas.latency.session import Session
from deploynas.providers import Precision
from deploynas.space import Space

PLUGIN = installed("onnxruntime-openvino") is None
pytestmark = [
    needs("onnxruntime-openvino", "onnxruntime-ep-openvino"),
    pytest.mark.skipif(PLUGIN and "Intel" not in hardware().processor, reason="the plug-in is for Intel's hardware"),
]
NAME = "OpenVINOExecutionProvider"
# OpenVINO computes in fp32 where the processor has no bf16, and does not say so
has_bf16 = pytest.mark.skipif(
    not {"avx512_bf16", "amx_bf16"} & set(hardware().instruction_sets), reason="the processor has no bf16"
)


@pytest.fixture
def device(quick: Device) -> Device:
    return quick.model_copy(update={"provider": "openvino-plugin" if PLUGIN else "openvino"})


def written(space: Space, device: Device, folder: Path) -> Path:
    """The heaviest network, its ranges such that values fill them."""
    choices = [list(stage) for stage in space.heaviest().choices]
    model = build(Entry(key="one", kind="network", choices=choices), space, device, compared=True)
    assert isinstance(model, bytes)
    path = folder / f"{device.precision}.onnx"
    path.write_bytes(model)
    return path


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("batch", [1, 3])
def test_it_computes_what_the_cpu_does_and_all_of_it(
    precision: Precision, batch: int, device: Device, tiny: Space, tmp_path: Path
) -> None:
    device = device.model_copy(update={"precision": precision, "batch": batch})
    path = written(tiny, device, tmp_path)
    session = Session(path, device)
    assert list(session.placement()) == [NAME]
    found, expected = session.outputs()["logits"], cpu_outputs(path, session.fed, emulated=True)["logits"]
    assert found.shape == (batch, 3)
    assert difference(found, expected) <= TOLERANCE[precision]


def test_fp32_is_not_less_than_fp32(device: Device, tiny: Space, tmp_path: Path) -> None:
    """bf16, which processors that have it use by default, would be off by 1e-3 and more."""
    path = written(tiny, device, tmp_path)
    session = Session(path, device)
    assert difference(session.outputs()["logits"], cpu_outputs(path, session.fed)["logits"]) < 1e-5


@has_bf16
def test_bf16_is_bf16(device: Device, tiny: Space, tmp_path: Path) -> None:
    """The file of fp32, off by the rounding of 8 bits: one rounding alone is 2^-9 of a number or so."""
    half = device.model_copy(update={"precision": "bf16"})
    path = written(tiny, half, tmp_path)
    assert path.read_bytes() == written(tiny, device, tmp_path).read_bytes()
    session = Session(path, half)
    off = difference(session.outputs()["logits"], cpu_outputs(path, session.fed)["logits"])
    assert 2**-10 < off <= TOLERANCE["bf16"]
    assert list(session.placement()) == [NAME]
    session.require_agreement(path, whole=True)


@has_bf16
def test_bf16_and_fp32_are_timed_beside_each_other(device: Device, tiny: Space, tmp_path: Path) -> None:
    """One file, in sessions of one process that are told different things."""
    path = written(tiny, device, tmp_path)
    made = bench_together([Case(path), Case(path, precision="bf16")], device, runs=10).results
    assert [one.device.precision for one in made] == ["fp32", "bf16"] and made[0].model_sha256 == made[1].model_sha256
    told = [one.provenance["provider_defaults"]["load_config"] for one in made]
    assert '"f32"' in told[0] and '"bf16"' in told[1]


def test_bf16_that_is_not_computed_is_found_out(device: Device, tiny: Space, tmp_path: Path) -> None:
    """As where the processor has none: told fp32, whatever the device says."""
    fp32 = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32"}})
    half = device.model_copy(update={"precision": "bf16", "provider_options": {"load_config": fp32}})
    path = written(tiny, half, tmp_path)
    with pytest.raises(DeployNASError, match="is told to compute in bf16 and computes in fp32 here"):
        Session(path, half).require_agreement(path, whole=True)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads where Linux lists them")
@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_threads_work_as_the_device_says(threads: int, device: Device, imagenet: Space, tmp_path: Path) -> None:
    if threads > len(os.sched_getaffinity(0)):
        pytest.skip(f"fewer than {threads} cores")
    path = tmp_path / "large.onnx"
    onnx.save(graph.network(imagenet, imagenet.heaviest(), batch=None), path)
    session = Session(path, device.model_copy(update={"threads": threads}))
    session.run()
    before = _computed()
    for _ in range(60):
        session.run()
    after = _computed()
    assert sum(ticks > before.get(thread, 0) for thread, ticks in after.items()) == threads


def _computed() -> dict[str, int]:
    """Clock ticks that each thread of this process has computed for."""
    ticks = {}
    for thread in os.listdir("/proc/self/task"):
        words = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
        ticks[thread] = int(words[11]) + int(words[12])
    return ticks


def test_a_word_of_openvinos_own_that_it_does_not_know_is_an_error(device: Device, tiny: Space, tmp_path: Path) -> None:
    path = written(tiny, device, tmp_path)
    wrong = device.model_copy(update={"provider_options": {"load_config": '{"CPU": {"NONSENSE": "1"}}'}})
    with pytest.raises(DeployNASError, match="cannot load"):
        Session(path, wrong)


def test_a_node_it_cannot_run_is_named_or_refused(device: Device, tmp_path: Path) -> None:
    """A runtime of 1.24 or later tells which."""
    from onnx import TensorProto, helper

    square = np.eye(3, dtype=np.float32)
    nodes = [
        helper.make_node("Add", ["x", "square"], ["more"], name="more"),
        helper.make_node("Det", ["more"], ["y"], name="determinant"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 3])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    parts = helper.make_graph(nodes, "g", [given], [made], [onnx.numpy_helper.from_array(square, "square")])
    model = helper.make_model(parts, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = tmp_path / "determinant.onnx"
    onnx.save(model, path)
    with pytest.raises(DeployNASError, match="determinant"):
        Session(path, device)


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=has_bf16)])
def test_a_space_is_profiled(precision: Precision, device: Device, tiny: Space) -> None:
    table = dn.profile(device.model_copy(update={"precision": precision}), tiny)
    assert table.evidence is not None and table.evidence.provenance["provider"] == NAME
    assert table.predict(tiny.heaviest()) > 0
