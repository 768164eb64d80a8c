"""A real bundle of a tiny network with random weights, exported and measured as any other."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import deploynas as dn
from deploynas.device import Device
from deploynas.export.bundle import refresh_manifest
from deploynas.latency import file_timing
from deploynas.provenance import NetworkLineage
from deploynas.space import Space
from deploynas.training.untrained import RANDOM, data_or_random, write_untrained


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, tiny: Space, quick: Device) -> Path:
    """Images are resized to a shorter side and cropped, as photographs are; the network takes grey ones of 12 x 16."""
    folder = tmp_path_factory.mktemp("served")
    network = write_untrained(tiny.smallest(), data_or_random(RANDOM, tiny), folder / "network", NetworkLineage())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_timing, "PROCESSES", 2)
        patch.setattr(file_timing, "VISITS", 4)
        made = dn.export(network, quick, folder / "bundle", max_latency_ms=1000.0).folder
    model = onnx.load(made / "model.onnx")
    for prop in model.metadata_props:
        if prop.key == "preprocessing":
            prop.value = json.dumps({**json.loads(prop.value), "resize_shorter_side": 20})
    onnx.save(model, made / "model.onnx")
    refresh_manifest(made)
    return made
