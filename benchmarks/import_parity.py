"""Imported supernets against Once-for-all's own code: logits, ONNX files, parameters and multiplications.

    python benchmarks/import_parity.py [--networks 50]

Checkpoints are random (those of its authors are not needed for this, and not ours to give away): made by the classes of
its package `ofa`, statistics of batch norm and kernel matrices included, saved with the names of the public files, and
imported. Then random sub-networks are run by both, at 224 x 224 pixels. A difference is the largest one of two logits
over the largest logit; "between images" is the same for what differs between two images, which biases have no part in.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from deploynas import graph
from deploynas.costs import Costs
from deploynas.export.fold import folded_weights
from deploynas.files import now, write_json
from deploynas.latency.hardware import versions
from deploynas.space import Architecture, Space
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet
from deploynas.supernet.once_for_all import PUBLIC, read_once_for_all

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from ofa_networks import Setting, macs, ofa_supernet, older_names, randomise, relative_difference

RESULT = Path(__file__).parent / "results" / "import_parity.json"


@dataclass(frozen=True)
class Differences:
    """Of one sub-network, or the largest of several."""

    supernet: float  # our supernet against theirs
    supernet_between_images: float
    extracted: float  # our timm model against their `get_active_subnet`
    onnx: float  # the exported file in ONNX Runtime against theirs
    onnx_between_images: float


def onnx_logits(model: nn.Module, architecture: Architecture, images: Tensor) -> Tensor:
    space = architecture.space
    weights = folded_weights(model, space.parts(architecture))
    content = graph.network(space, architecture, weights, batch=len(images)).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {graph.INPUT: images.numpy()})[0])


@torch.no_grad()
def compare(theirs: nn.Module, ours: Supernet, architecture: Architecture, images: Tensor) -> Differences:
    Setting.of(architecture).apply(theirs)
    expected, alone = theirs(images), theirs.get_active_subnet().eval()(images)
    network = extract(ours, architecture)
    found, exported = ours(images, architecture), onnx_logits(network, architecture, images)
    return Differences(
        supernet=relative_difference(found, expected),
        supernet_between_images=relative_difference(found[0] - found[1], expected[0] - expected[1]),
        extracted=relative_difference(network(images), alone),
        onnx=relative_difference(exported, expected),
        onnx_between_images=relative_difference(exported[0] - exported[1], expected[0] - expected[1]),
    )


def same_costs(theirs: nn.Module, architecture: Architecture, images: Tensor) -> bool:
    Setting.of(architecture).apply(theirs)
    alone, costs = theirs.get_active_subnet(), Costs.of(architecture.space, architecture)
    return (costs.params, costs.macs) == (sum(p.numel() for p in alone.parameters()), macs(alone, images))


def parity(name: str, networks: int, folder: Path) -> dict[str, object]:
    """One row of the table."""
    space, rng = Space.load(name), np.random.default_rng(0)
    theirs = randomise(ofa_supernet(name))
    path = folder / f"{PUBLIC[name]}.pth"
    torch.save({"state_dict": older_names(theirs.state_dict())}, path)
    ours = read_once_for_all(path)
    assert ours.space == space
    images = torch.randn(2, 3, space.height, space.width, generator=torch.Generator().manual_seed(1))
    drawn = [space.sample(rng) for _ in range(networks)]
    found = [compare(theirs, ours, architecture, images) for architecture in drawn]
    largest = {field.name: max(getattr(one, field.name) for one in found) for field in fields(Differences)}
    equal = sum(same_costs(theirs, architecture, images) for architecture in drawn)
    return {
        "space": name,
        "networks": networks,
        "equal_costs": equal,
        "largest": largest,
        "each": [*map(asdict, found)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [parity(name, options.networks, Path(folder)) for name in PUBLIC]
    print("| space | networks | equal costs | supernet | between images | timm model | ONNX | between images |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        shown = " | ".join(f"{value:.1e}" for value in row["largest"].values())  # type: ignore[attr-defined]
        print(f"| {row['space']} | {row['networks']} | {row['equal_costs']} | {shown} |")
    about = {"created": now(), "versions": {**versions(), "torch": torch.__version__}}
    write_json(RESULT, {**about, "rows": rows})


if __name__ == "__main__":
    main()
