"""Valid files of every format to start from, made through the product in some seconds, beside those of version 1."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "v1"
MINI = """
name: mini
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3, 5], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""
EFFORT = {
    "workers": 1, "visits": 2, "part_visits": 2, "warmup_runs": 0, "runs": 2, "min_visit_ms": 0.0,
    "correction_networks": 6, "validation_networks": 3, "max_relative_error": 1.0, "time_limit_s": 0.001,
}  # fmt: skip


def make(folder: Path) -> None:
    """One folder for each format."""
    import deploynas as dn

    (folder / "space.yaml").write_text(MINI)
    space = dn.Space.load(folder / "space.yaml")
    _measured(folder, space)
    _estimators(folder, space)
    _weights(folder, space)
    _data(folder)
    texts(folder)


def _measured(folder: Path, space) -> None:
    import onnx

    from deploynas import graph
    from deploynas.device import Device
    from deploynas.latency import file_timing
    from deploynas.latency.bench import bench
    from deploynas.latency.profile import profile

    device = Device.model_validate({"name": "quick", "provider": "cpu", "effort": EFFORT})
    profile(device, space).save(folder / "table.json")
    onnx.save(graph.network(space, space.smallest(), batch=None), folder / "model.onnx")
    shutil.copy(GOLDEN / "bundle" / "model.int8.onnx", folder / "model.int8.onnx")
    file_timing.PROCESSES, file_timing.VISITS = 2, 2
    result = bench(folder / "model.onnx", device, runs=10)
    (folder / "bench.json").write_text(json.dumps(result.model_dump(by_alias=True)))


def _estimators(folder: Path, space) -> None:
    import deploynas as dn

    rng = np.random.default_rng(0)
    seen = list(dict.fromkeys(space.architectures(space.decisions.draw(40, rng))))
    accuracies = rng.uniform(0.5, 0.7, len(seen))
    dn.fit_indexed(space, seen, accuracies, indices=2).save(folder / "estimator.indexed.json")
    dn.fit_mlp(space, seen, accuracies).save(folder / "estimator.mlp.json")
    lines = [
        f'"{one}",{accuracy:.4f},{1 + i % 3}' for i, (one, accuracy) in enumerate(zip(seen, accuracies, strict=True))
    ]
    (folder / "results.csv").write_text("\n".join(["architecture,accuracy,weight", *lines]) + "\n")
    (folder / "architectures.json").write_text(json.dumps([str(one) for one in seen[:6]]))


def _weights(folder: Path, space) -> None:
    import torch

    from deploynas.supernet.checkpoint import save_network
    from deploynas.supernet.extraction import timm_model
    from deploynas.supernet.network import Supernet

    Supernet(space).save(folder / "supernet.safetensors")
    small = space.smallest()
    model = timm_model(small)
    save_network(model, small, folder / "network.safetensors")
    # of Once-for-all's own files the smallest part that its reader looks into
    tensors = {name: tensor[:2] if tensor.ndim else tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": tensors}, folder / "weights.pth")
    torch.save({"state_dict": tensors}, folder / "weights-old.pth", _use_new_zipfile_serialization=False)


def _data(folder: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    for suffix in ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm"):
        Image.fromarray(pixels).save(folder / f"image.{suffix}")
    content = struct.pack(">4B3I", 0, 0, 8, 3, 2, 5, 5) + bytes(50)
    (folder / "images.idx").write_bytes(content)
    (folder / "images.idx.gz").write_bytes(gzip.compress(content))


def texts(folder: Path) -> None:
    """Forms of a network, and settings of a recipe, as people type them."""
    import deploynas as dn
    from deploynas.space.once_for_all import to_json

    spaces = [dn.Space.load(name) for name in ("ofa-mbv3", "nasbench201", "fashion-cell")]
    rng = np.random.default_rng(0)
    drawn = [one for space in spaces for one in space.architectures(space.decisions.draw(2, rng))]
    written = [str(one) for one in drawn] + [str([list(choice) for choice in one.choices]) for one in drawn]
    written += [to_json(one) for one in drawn[:2]]
    written += ["smallest", "[1, 0, 0, 3, 2]", f"{GOLDEN / 'search-result.one.json'}:1"]
    (folder / "texts.json").write_text(json.dumps(written))
    settings = ["w_h.epochs=3", "finetune.lr=0.1", "w_star.sandwich=true", "seed=7", "augmentation.auto_augment=null"]
    (folder / "settings.json").write_text(json.dumps(settings))
