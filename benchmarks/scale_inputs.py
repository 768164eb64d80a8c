"""Inputs of any size for `scale.py`, made through the product's own classes: spaces, tables, reports and folders."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import deploynas as dn
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.indexed import Index, IndexedEstimator
from deploynas.blocks.inverted_residual import InvertedResidualConfig
from deploynas.costs import Costs
from deploynas.device import Device
from deploynas.latency.table import Correction, Evidence, LatencyTable, Measurement, NetworkMeasurement, Validation
from deploynas.report.document import ReportFile
from deploynas.space import Architecture, Space, Stage
from deploynas.space.link import Link

BLOCKS, PLACES = 4, 40  # blocks of a stage; of a space whose table is long
VISITS, RUNS = 8, 2  # of every entry of a table
TENTH = 0.1  # how far the worth of a configuration is from proportional to its latency

STAGE = (
    "  - {out: %d, stride: %d, activation: relu, depths: [1, 2, 3, 4], "
    "ratios: [1, 3, 6], kernels: [3, 5], se: [0, 0.25]}"
)
SPACE = """name: scale
input: {channels: 3, height: 224, width: 224}
classes: 10
stem: {out: 16, stride: 2, activation: relu}
stages:
%s
head: {features: 64, activation: hard_swish}
"""


# -- spaces ------------------------------------------------------------------------------------------


def write_space(folder: Path, stages: int) -> Path:
    lines = [STAGE % (16 + 8 * s, 2 if s < 4 else 1) for s in range(stages)]
    (folder / "space.yaml").write_text(SPACE % "\n".join(lines))
    return folder / "space.yaml"


def configs(count: int) -> tuple[InvertedResidualConfig, ...]:
    """As many different ones as are asked for, whatever that takes."""
    kernels, squeezes = (3, 5, 7), (0.0, 0.25)
    ratios = ((50 + i) / 50 for i in itertools.count())  # two digits: notation writes six at most
    every = (InvertedResidualConfig(ratio, k, se) for ratio in ratios for k in kernels for se in squeezes)
    return tuple(itertools.islice(every, count))


def space_of(stages: int, blocks: int = BLOCKS, options: int = 12, classes: int = 10) -> Space:
    depths = tuple(range(1, blocks + 1))
    made = tuple(Stage(16 + 8 * s, 2 if s < 4 else 1, "relu", depths, configs(options)) for s in range(stages))
    changed: dict[str, Any] = {"name": "scale", "height": 224, "width": 224, "classes": classes, "stages": made}
    return replace(Space.load("fashion"), **changed)


def wide_space(width: int) -> Space:
    """Six stages that all are so wide: the heaviest network has 450 parameters for every pair of channels."""
    depths, options = (1, 2, 3, 4), configs(12)
    made = tuple(
        Stage(width, 2, "relu", depths, tuple(replace(c, ratio=6 * c.ratio) for c in options)) for _ in range(6)
    )
    changed: dict[str, Any] = {"name": "wide", "height": 224, "width": 224, "stem_channels": width, "stages": made}
    return replace(Space.load("fashion"), **changed)


# -- estimators and tables ---------------------------------------------------------------------------


def latencies(space: Space) -> LatencyTable:
    """Real numbers without any structure."""
    return LatencyTable.from_arrays(space, 1.0, _milliseconds(space))


def separable(space: Space, off: float = TENTH, seed: int = 1) -> BilinearEstimator:
    """Worth follows latency, up to `off` of it: the closer, the more networks no other beats."""
    return BilinearEstimator.from_arrays(space, 0.5, _no_depths(space), _worth(space, off, seed))


def indexed(space: Space) -> IndexedEstimator:
    """Two sums behind a link that saturates."""
    sums = [Index.from_arrays(space, 0.1, _no_depths(space), _worth(space, TENTH, seed)) for seed in (1, 2)]
    units = {"rise": np.array([0.3]), "steepness": np.array([[2.0, 1.0]]), "shift": np.array([0.0])}
    return IndexedEstimator(space, tuple(sums), Link(0.1, np.array([0.05, 0.1]), **units))


def middle_ms(space: Space, table: LatencyTable) -> float:
    """A budget with as much below as above it, about."""
    return float(np.mean([table.predict(space.smallest()), table.predict(space.heaviest())]))


def _milliseconds(space: Space) -> list[list[list[float]]]:
    rng = np.random.default_rng(0)
    return [
        [rng.uniform(0.1, 1.0, len(choice.options)).tolist() for choice in group.choices]
        for group in space.decisions.groups
    ]


def _worth(space: Space, off: float, seed: int) -> list[list[list[float]]]:
    rng = np.random.default_rng(seed)
    return [
        [(0.001 * np.array(row) * rng.uniform(1 - off, 1 + off, len(row))).tolist() for row in rows]
        for rows in _milliseconds(space)
    ]


def _no_depths(space: Space) -> list[list[float]]:
    return [[0.0] * len(group.depths) for group in space.decisions.groups]


def long_table(entries: int) -> LatencyTable:
    return latencies(space_of(PLACES // BLOCKS, options=entries // PLACES))


def measured_table(entries: int, seed: int = 0) -> LatencyTable:
    """As `profile` leaves one behind: with samples of every entry and of fifty networks."""
    table, rng = long_table(entries), np.random.default_rng(seed)
    space, device = table.space, Device.load("cpu-1t")
    groups = enumerate(zip(space.decisions.groups, table.block_ms, strict=True))
    parts = [
        Measurement(name=f"{choice.name}/{option.label}", **_measured(latency, rng))
        for _, (group, rows) in groups
        for choice, row in zip(group.choices, rows, strict=True)
        for option, latency in zip(choice.options, row, strict=True)
    ]
    networks = [_network(table, rng) for _ in range(50)]
    evidence = Evidence(
        device=device.describe(),
        device_hash=device.hash,
        parts=parts,
        correction=Correction(method="sum", coefficients={}, held_out_error={"sum": 0.0}, networks=networks[:30]),
        validation=Validation.of(networks[30:]),
        provenance={"hardware": {"processor": "made up", "cores": 1, "fingerprint": "0"}, "versions": {}},
    )
    return replace(table, evidence=evidence)


def _measured(latency_ms: float, rng: np.random.Generator) -> dict[str, Any]:
    samples = (latency_ms * rng.normal(1.0, 0.01, (VISITS, RUNS))).tolist()
    return {"latency_ms": latency_ms, "relative_error": 0.01, "stable": True, "samples_ms": samples}


def _network(table: LatencyTable, rng: np.random.Generator) -> NetworkMeasurement:
    network = table.space.sample(rng)
    predicted_ms, choices = table.predict(network), [list(stage) for stage in network.choices]
    told = _measured(predicted_ms, rng)
    return NetworkMeasurement(name=f"network {choices}", choices=choices, predicted_ms=predicted_ms, **told)


# -- reports -----------------------------------------------------------------------------------------


def report_of(space: Space, networks: int, classes: int = 10, name: str = "scale") -> ReportFile:
    """With a frontier of so many networks."""
    from deploynas.pipeline.network_blocks import expected_network

    estimator, table = separable(space), latencies(space)
    found = dn.frontier(space, estimator, table)
    positions = np.linspace(0, len(found) - 1, networks).astype(int)
    frontier = [expected_network(found[int(i)].architecture, estimator, table) for i in positions]
    shipped = frontier[networks // 2]
    costs = Costs.of(space, Architecture.parse(shipped.architecture, space))
    told = {"relative_error": 0.01, "stable": True, "percentiles_ms": {"p95": 1.1}, "throughput_per_s": 1000.0}
    file = {
        "path": "model.onnx",
        "precision": "fp32",
        "size_bytes": costs.size_bytes,
        "accuracy": 0.5,
        "latency_ms": 1.0,
    }
    return ReportFile.model_validate(
        {
            "title": f"{name} on a made-up device",
            "created": "2030-01-01T00:00:00Z",
            "space": space.name,
            "space_size": str(space.size()),
            "device": {"name": name, "provider": "cpu"},
            "hardware": {},
            "data": {"name": "made up", "classes": [f"class number {i}" for i in range(classes)]},
            "architecture": shipped.architecture,
            "choices": [],
            "budget_ms": None,
            "gated": "fp32",
            "params": costs.params,
            "macs": costs.macs,
            "peak_memory_bytes": costs.peak_memory_bytes,
            "predicted_ms": shipped.latency_ms,
            "table_error": 0.01,
            "predicted_accuracy": shipped.accuracy,
            "predicted_accuracy_se": None,
            "inherited_accuracy": None,
            "test_accuracy": None,
            "files": [file | told],
            "blocks": [],
            "expected": shipped,
            "frontier": frontier,
            "verification": {"tolerance": 1e-4, "max_difference": 1e-6, "images": 10},
        }
    )


# -- folders -----------------------------------------------------------------------------------------


def reports_folder(folder: Path, bundles: int) -> None:
    """One report under so many names: to whoever reads them they are as many, and the disk holds one."""
    report_of(space_of(5), 16).save(folder / "report.json")
    for i in range(bundles):
        (folder / f"device-{i}").mkdir()
        os.link(folder / "report.json", folder / f"device-{i}" / "report.json")


def devices_folder(folder: Path, devices: int) -> list[str]:
    names = [f"board-{i}" for i in range(devices)]
    (folder / "devices").mkdir()
    for name in names:
        (folder / "devices" / f"{name}.yaml").write_text(f"name: {name}\nprovider: cpu\nschema: deploynas/device\n")
    return names


def labelled_file(folder: Path, classes: int) -> tuple[Path, Path]:
    """An ONNX file that says what its classes are called, and an image."""
    from PIL import Image

    from deploynas.export.metadata import Metadata, Preprocessing

    space = replace(Space.load("fashion"), classes=classes)
    how = Preprocessing(channels=1, height=28, width=28, resize_shorter_side=None, mean=[0.5], std=[0.5])
    told = Metadata(preprocessing=how, labels=[f"class number {i}" for i in range(classes)])
    graph = dn.graph.network(space, space.smallest(), metadata=told.props("fp32"))
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    Image.new("L", (28, 28)).save(folder / "image.png")
    return folder / "model.onnx", folder / "image.png"
