"""What the processor does with integers, and which weights follow from it."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

from deploynas.device import Device
from deploynas.export import predict
from deploynas.graph import INPUT
from deploynas.latency.facts import facts_here
from deploynas.latency.instruction_sets import instruction_sets
from deploynas.latency.integer_sums import CHANNELS, integer_sums, probe
from deploynas.latency.weight_types import weight_types
from deploynas.quantization import Quantization


def test_the_probe_asks_for_the_largest_sums() -> None:
    """Largest inputs and weights, and the right answer where operators are in float."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(probe(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {INPUT: np.ones((1, CHANNELS, 4, 4), np.float32)})[0]
    np.testing.assert_allclose(found, CHANNELS, rtol=1e-5)


def test_processors_with_integer_dot_products_sum_exactly() -> None:
    """`vpdpbusd` sums in 32 bits; without it the answer depends on the kernels that the runtime has."""
    known = set(instruction_sets())
    if known & {"avx512_vnni", "avx_vnni"}:
        assert integer_sums() == "exact"
    assert facts_here().integer_sums == integer_sums()
    assert facts_here().hardware.instruction_sets == instruction_sets()


def test_instruction_sets_are_read_from_what_linux_says(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    told = tmp_path / "proc" / "cpuinfo"
    told.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512_vnni sse\n")
    assert instruction_sets(tmp_path) == ["avx2", "avx512_vnni"]
    told.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")
    assert instruction_sets(tmp_path) == ["asimd", "asimddp", "i8mm"]
    told.unlink()
    assert instruction_sets(tmp_path) == []


@pytest.mark.parametrize("sums", ["exact", "saturating", None])
def test_weights_suit_the_processor_unless_the_device_file_says_otherwise(sums: str | None) -> None:
    facts, device = facts_here().model_copy(update={"integer_sums": sums}), Device.load("cpu-1t")
    found = weight_types(device, facts)
    if sums == "saturating":
        assert [(one.weight_bits, one.weights) for one in found] == [(7, "int8"), (8, "uint8")]
        assert all(one.sums_exactly for one in found)
    else:
        assert found == (Quantization(),)
    said = device.model_copy(update={"quantization": Quantization(activations="int8")})
    assert weight_types(said, facts) == (said.quantization,)
    elsewhere = Device.load("qnn-htp")
    assert weight_types(elsewhere, facts) == (elsewhere.quantized,)


def test_a_bundle_asks_the_processor_it_finds_itself_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert zlib.decompress(base64.b64decode(predict.LARGEST_SUMS)) == probe()
    assert predict.integer_sums() == integer_sums()
    verified = {"sums": "exact", "instruction_sets": ["avx2", "avx_vnni"], "any_processor": False}
    for here, everywhere, warned in (
        ("exact", False, False),
        ("saturating", False, True),
        ("saturating", True, False),
    ):
        monkeypatch.setattr(predict, "integer_sums", lambda here=here: here)
        notes = predict.integer_notes({**verified, "any_processor": everywhere})
        assert bool(notes) == warned and all("avx2, avx_vnni" in note for note in notes)
    assert predict.integer_notes({}) == []  # a file in float, or of an earlier version
