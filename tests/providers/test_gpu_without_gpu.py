"""The runtime for NVIDIA's GPUs where there is none: it says that it has the provider, and must not be believed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
from runtimes import needs

import deploynas as dn
from deploynas.device import Device
from deploynas.space import Space

pytestmark = [
    needs("onnxruntime-gpu"),
    pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a GPU"),
]
DEVICES = pytest.mark.parametrize("device", ["cuda-batch1-fp16", "tensorrt-batch1-fp16"])


def deploynas(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "deploynas", *words], capture_output=True, text=True, timeout=100)


def test_the_runtime_claims_what_it_cannot_do() -> None:
    assert {"CUDAExecutionProvider", "TensorrtExecutionProvider"} <= set(onnxruntime.get_available_providers())


@DEVICES
def test_a_check_names_the_missing_library_and_the_command(device: str) -> None:
    found = deploynas("devices", "--check", device, "--json")
    assert found.returncode == 3, found.stderr
    answers = json.loads(found.stdout)["checks"]  # nothing that a library prints is among them
    assert [answer["outcome"] for answer in answers] == ["failed"]
    assert "cannot open shared object file" in answers[0]["found"] and "libcu" in answers[0]["found"]
    assert 'pip install "onnxruntime-gpu[cuda,cudnn]"' in answers[0]["hint"]
    assert "Traceback" not in found.stderr


@DEVICES
def test_nothing_is_measured_on_the_cpu_instead(device: str, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    found = deploynas("profile", "--device", device, "--space", "fashion", "--out", str(table))
    assert found.returncode != 0 and not table.exists()
    last = found.stderr[found.stderr.rindex("error:") :]
    assert "cannot open shared object file" in last and "onnxruntime-gpu[cuda,cudnn]" in last
    assert "Traceback" not in found.stderr


def test_its_cpu_is_a_cpu(tiny: Space, quick: Device) -> None:
    assert dn.profile(quick, tiny).predict(tiny.heaviest()) > 0
