"""Our export against `torch.onnx.export` of the same network, fp32 against int8, and timm's networks beside ours.

    python benchmarks/export.py [--device cpu-1t] [--bundle BUNDLE]

One run, all files timed interleaved in fresh processes. Weights are random: a latency does not depend on them. With
`--bundle`, the models of a bundle are timed in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch
from torch import nn

from deploynas import graph
from deploynas.device import Device
from deploynas.export.calibration import activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.latency.measure import measure_entries
from deploynas.latency.worker import Entry
from deploynas.space import Architecture, Space
from deploynas.space.notation import to_arch_def
from deploynas.supernet.extraction import timm_model

RESULT = Path(__file__).parent / "results" / "export.json"
TIMM = ("hardcorenas_a", "mobilenetv3_large_100", "efficientnet_b0")


def hardcorenas_a(space: Space) -> Architecture:
    """timm's published network, which is a member of the `imagenet` space; read off timm's own model."""
    model = timm.create_model("hardcorenas_a")
    choices = []
    for s, stage in enumerate(space.stages):
        blocks = model.blocks[s + 1]
        geometries = [[space.block(s, b, c) for c in range(len(stage.configs))] for b in range(len(blocks))]
        choices.append(
            [
                next(
                    c
                    for c, g in enumerate(options)
                    if g.mid_channels == block.conv_pw.out_channels
                    and g.kernel == block.conv_dw.kernel_size[0]
                    and bool(g.se_channels) == (not isinstance(block.se, nn.Identity))
                )
                for block, options in zip(blocks, geometries, strict=True)
            ]
        )
    return space.architecture(choices)


def torch_export(model: nn.Module, space: Space, path: Path) -> float:
    """Seconds. The TorchScript exporter: it needs nothing but torch, and folds batch norm as ours does."""
    x = torch.zeros(1, space.in_channels, space.height, space.width)
    start = time.perf_counter()
    torch.onnx.export(model.eval(), (x,), str(path), input_names=["input"], output_names=["logits"], dynamo=False)
    return time.perf_counter() - start


def our_export(model: nn.Module, architecture: Architecture, path: Path, precision: str = "fp32") -> float:
    space = architecture.space
    start = time.perf_counter()
    weights = folded_weights(model.eval(), space.parts(architecture))
    ranges = None
    if precision == "int8":
        rng = np.random.default_rng(0)
        x = rng.standard_normal((16, space.in_channels, space.height, space.width)).astype(np.float32)
        plain = graph.network(space, architecture, weights, batch=None)
        ranges = activation_ranges(plain, lambda: [(x, np.zeros(16))], "minmax")
    written = graph.chain(space.parts(architecture), weights, graph.Form(None, precision, ranges=ranges))
    path.write_bytes(written.SerializeToString())
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--bundle", type=Path)
    options = parser.parse_args()
    device, rows = Device.load(options.device), []
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        for space_name in ("fashion", "imagenet"):
            space = Space.load(space_name)
            name = "a random network of fashion" if space_name == "fashion" else "hardcorenas_a"
            architecture = space.sample(np.random.default_rng(0)) if space_name == "fashion" else hardcorenas_a(space)
            assert to_arch_def(architecture)
            model = timm_model(architecture)
            ways = {
                "torch.onnx.export": lambda path, m=model, s=space: torch_export(m, s, path),
                "ours": lambda path, m=model, a=architecture: our_export(m, a, path),
                "ours, int8": lambda path, m=model, a=architecture: our_export(m, a, path, "int8"),
            }
            for way, export in ways.items():
                path = folder / f"{len(rows)}.onnx"
                rows.append({"network": name, "way": way, "export_s": export(path), "path": path})
        imagenet = Space.load("imagenet")
        for name in TIMM[1:]:
            path = folder / f"{len(rows)}.onnx"
            seconds = torch_export(timm.create_model(name), imagenet, path)
            rows.append({"network": name, "way": "torch.onnx.export", "export_s": seconds, "path": path})
        for path in sorted(options.bundle.glob("model*.onnx")) if options.bundle else []:
            rows.append({"network": f"shipped {path.name}", "way": "ours", "export_s": None, "path": path})
        entries = [Entry(key=str(i), kind="file", path=str(row["path"].resolve())) for i, row in enumerate(rows)]
        # ratios near 1 need many visits
        patient = device.model_copy(update={"effort": device.effort.model_copy(update={"visits": 40})})
        for row, measured in zip(rows, measure_entries(patient, entries), strict=True):
            size = sum(p.stat().st_size for p in row["path"].parent.glob(row["path"].name + "*"))
            row |= {"latency_ms": measured.latency_ms, "relative_error": measured.relative_error, "size_bytes": size}
            row["path"] = row["path"].name
    print(
        "| network | written by | latency, ms | against torch | export, s | size, KiB |\n|---|---|---:|---:|---:|---:|"
    )
    base = {row["network"]: row["latency_ms"] for row in rows if row["way"] == "torch.onnx.export"}
    for row in rows:
        row["ratio"] = row["latency_ms"] / base[row["network"]] if row["network"] in base else None
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        seconds = "" if row["export_s"] is None else f"{row['export_s']:.3f}"
        latency = f"{row['latency_ms']:.4f} ± {100 * row['relative_error']:.1f} %"
        print(f"| {row['network']} | {row['way']} | {latency} | {ratio} | {seconds} | {row['size_bytes'] / 1024:.0f} |")
    about = {
        "created": now(),
        "hardware": hardware().model_dump(),
        "versions": {**versions(), "torch": torch.__version__},
    }
    write_json(RESULT, {**about, "device": device.describe(), "load": load_average(), "rows": rows})


if __name__ == "__main__":
    main()
