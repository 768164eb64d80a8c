"""Qualcomm's provider for real, on the emulator of its tensor processor that the x86 package brings.

Outputs, placement and the way through a profile are those of a chip; latencies are not.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from runtimes import needs

import deploynas as dn
from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.agreement import TOLERANCE, cpu_outputs, difference, require_agreement
from deploynas.latency.entry import Entry, build
from deploynas.latency.session import Session
from deploynas.providers import Precision
from deploynas.quantization import FOR_CPUS
from deploynas.space import Space

pytestmark = needs("onnxruntime-qnn")
NAME = "QNNExecutionProvider"


@pytest.fixture
def device(quick: Device) -> Device:
    return quick.model_copy(update={"provider": "qnn", "precision": "int8"})


def written(space: Space, device: Device, folder: Path) -> Path:
    """The heaviest network, its ranges such that values fill them."""
    choices = [list(stage) for stage in space.heaviest().choices]
    model = build(Entry(key="one", kind="network", choices=choices), space, device, compared=True)
    assert isinstance(model, bytes)
    path = folder / f"{device.precision}.onnx"
    path.write_bytes(model)
    return path


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("batch", [1, 2])
def test_it_computes_what_the_cpu_does_and_all_of_it(
    precision: Precision, batch: int, device: Device, tiny: Space, tmp_path: Path
) -> None:
    """Also of a file that leaves the batch open, which the provider itself would leave to the CPU whole."""
    device = device.model_copy(update={"precision": precision, "batch": batch})
    path = written(tiny, device, tmp_path)
    session = Session(path, device)
    assert list(session.placement()) == [NAME]
    found, expected = session.outputs()["logits"], cpu_outputs(path, session.fed, emulated=True)["logits"]
    assert found.shape == (batch, 3)
    assert difference(found, expected) <= TOLERANCE[precision]


def test_an_8_bit_graph_for_cpus_is_another_network_here(device: Device, tmp_path: Path) -> None:
    """It reads tensors with two scales, of which this provider takes one."""
    as_for_cpus = FOR_CPUS.model_copy(update={"logits": "8-bit"})
    path = written(Space.load("fashion"), device.model_copy(update={"quantization": as_for_cpus}), tmp_path)
    session = Session(path, device)
    with pytest.raises(DeployNASError, match="computes something else than the CPU"):
        require_agreement(session.outputs(), session.fed, path, device)


def test_logits_in_float_would_be_left_to_the_cpu(device: Device, tiny: Space, tmp_path: Path) -> None:
    in_float = device.record.quantization.model_copy(update={"logits": "float"})
    path = written(tiny, device.model_copy(update={"quantization": in_float}), tmp_path)
    with pytest.raises(DeployNASError, match="head/classifier"):
        Session(path, device)


def test_fp32_is_refused_by_name(device: Device, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nprovider: qnn\nprecision: fp32\n")
    with pytest.raises(InputError, match="cannot run `precision: fp32`") as refused:
        Device.load(file)
    assert "fp16 and int8" in (refused.value.hint or "")


def test_a_space_is_profiled_whatever_the_library_prints(device: Device, tiny: Space) -> None:
    table = dn.profile(device, tiny)
    assert table.evidence is not None and table.evidence.provenance["provider"] == NAME
    assert table.predict(tiny.heaviest()) > 0


def test_the_shipped_device_is_what_is_tested_here() -> None:
    shipped = Device.load("qnn-htp")
    assert (shipped.provider, shipped.precision, shipped.batch) == ("qnn", "int8", 1)
