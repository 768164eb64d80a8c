"""The oldest ONNX Runtime that `pyproject.toml` allows, and the oldest of everything else that a target needs."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from runtimes import oldest_runtime

import deploynas as dn
from deploynas import graph
from deploynas.device import Device
from deploynas.latency.agreement import TOLERANCE, cpu_outputs, difference
from deploynas.latency.bench import bench
from deploynas.latency.device_check import check_device
from deploynas.latency.session import Session
from deploynas.space import Space

HERE, OLDEST = ".".join(onnxruntime.__version__.split(".")[:2]), oldest_runtime()
pytestmark = pytest.mark.skipif(
    HERE != OLDEST, reason=f"needs onnxruntime {OLDEST}, the oldest allowed, which `.ci/providers` installs"
)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_every_part_of_a_space_is_profiled(precision: str, tiny: Space, quick: Device) -> None:
    table = dn.profile(quick.model_copy(update={"precision": precision}), tiny)
    assert table.evidence is not None
    assert len(table.evidence.parts) == 3 + 4 + 2 * 2  # fixed ones, configurations of stage 1, two places in stage 2
    assert table.predict(tiny.heaviest()) > 0


def test_a_file_is_timed_and_taken_apart(tiny: Space, quick: Device, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    onnx.save(graph.network(tiny, tiny.heaviest(), batch=None), path)
    found = bench(path, quick, runs=30)
    names = [share.name for share in found.breakdown if share.name != "input"]
    assert names == [name for name, _ in tiny.parts(tiny.heaviest())]


def test_what_is_timed_still_has_its_inputs(tiny: Space, tmp_path: Path) -> None:
    """A binding of this runtime keeps neither value nor array alive."""
    path = tmp_path / "network.onnx"
    onnx.save(graph.network(tiny, tiny.heaviest(), batch=None), path)
    session = Session(path, Device(name="large", provider="cpu", batch=64))
    gc.collect()
    litter = [np.full(array.shape, 1e9, np.float32) for array in session.fed.values() for _ in range(20)]
    found = session.outputs()["logits"]
    assert difference(found, cpu_outputs(path, session.fed)["logits"]) <= TOLERANCE["fp32"] and len(litter) == 20


def test_a_device_is_checked_without_asking_where_nodes_run(quick: Device) -> None:
    answers = {one.name: one for one in check_device(quick)}
    assert {"fp32", "fp16", "int8"} <= set(answers)
    assert answers["fp32"].outcome == answers["fp16"].outcome == "ok"
