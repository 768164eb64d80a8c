"""What training in 8 bits is worth: fp32, 8 bits as calibrated, and 8 bits as trained, on the same images.

    python benchmarks/quantized_training.py NETWORK [NETWORK ...] [--supernet RUN] [--seeds 3] [--set int8.epochs=2]

NETWORK is the folder that `deploynas finetune` wrote. Each network is written in several quantisations, calibrated by
every rule and trained from the default one, and judged twice: as the graph says (computed in float between
conversions), and by this machine's integer operators. A difference comes with its standard error over the images, and
over seeds where there are several. `compared` does the same for other scripts. Prints Markdown, and writes
`benchmarks/results/quantized_training.json`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deploynas.export.calibration import RANGE_RULES, Calibration
from deploynas.export.integer_file import Int8Wishes, int8_file
from deploynas.export.network_file import Fp32File, TorchNetwork, fp32_file
from deploynas.export.verification import judged
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, versions
from deploynas.pipeline.export import ExportOptions, open_network
from deploynas.pipeline.exported import metadata_of
from deploynas.pipeline.finetune_int8 import Int8Options, finetune_int8
from deploynas.pipeline.images import calibration_subset, stream
from deploynas.quantization import Quantization
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.trained_quantization import TrainedQuantization
from deploynas.training.batches import Batches
from deploynas.training.data import Data
from deploynas.training.recipe import Augmentation

RESULT = Path(__file__).parent / "results" / "quantized_training.json"
QUANTIZATIONS = {
    "8 bits": Quantization(),
    "7-bit weights": Quantization(weight_bits=7),
    "7-bit weights, one scale": Quantization(weight_bits=7, per_channel=False),
    "symmetric, one scale": Quantization(symmetric=True, per_channel=False, hard_activations="operator"),
}
FP32 = "fp32"


@dataclass(frozen=True)
class Judged:
    """Which images of each part a file classifies correctly, as it is written and by integer operators."""

    quantization: str
    how: str  # fp32, a rule of calibration, or `trained`
    seed: int
    as_written: Mapping[str, np.ndarray]  # by part of the data
    integer: Mapping[str, np.ndarray]

    def accuracies(self) -> dict[str, dict[str, float]]:
        both = {"as_written": self.as_written, "integer": self.integer}
        return {name: {part: float(right.mean()) for part, right in found.items()} for name, found in both.items()}


class QuantizedFiles:
    """Writes and judges the files of one network."""

    def __init__(self, network: Path, data: str | Data | None = None) -> None:
        given = open_network(network, ExportOptions(data=data))
        checkpoint = load_checkpoint(given.path)
        assert checkpoint.architecture is not None
        batches = Batches(given.data, given.space, Augmentation()).at_the_size_of(checkpoint.architecture)
        parts = {"validation": given.data.validation, **({"test": given.data.test} if given.data.test else {})}
        self.images = {part: stream(batches, subset) for part, subset in parts.items()}
        self.calibration = stream(batches, calibration_subset(given.data, Calibration().share))
        self.network = TorchNetwork(checkpoint.model, checkpoint.architecture, metadata_of(checkpoint, batches))
        self.fp32: Fp32File = fp32_file(self.network, self.images["validation"])

    def judged_fp32(self) -> Judged:
        right = self._right(self.fp32.content, as_written=True)
        return Judged(FP32, FP32, 0, right, right)

    def judged(
        self,
        name: str,
        quantization: Quantization,
        rule: Calibration,
        trained: TrainedQuantization | None = None,
        seed: int = 0,
    ) -> Judged:
        how = Int8Wishes(rule, self.calibration, quantization, trained=trained)
        made = int8_file(self.network, self.fp32, self.images["validation"], how)
        assert (made.trained is None) == (trained is None), made.not_trained
        what = "trained" if trained else rule.method
        written, integer = (self._right(made.content, as_written) for as_written in (True, False))
        return Judged(name, what, seed, written, integer)

    def _right(self, content: bytes, as_written: bool) -> dict[str, np.ndarray]:
        return {part: judged(content, images, as_written).correct for part, images in self.images.items()}


def compared(
    network: Path, quantizations: Mapping[str, Quantization], options: Int8Options, seeds: int = 1
) -> Iterator[Judged]:
    """A network in fp32, then in each quantisation: calibrated by every rule, and trained with every seed."""
    files = QuantizedFiles(network, options.data)
    yield files.judged_fp32()
    for name, quantization in quantizations.items():
        for rule in RANGE_RULES:
            yield files.judged(name, quantization, Calibration(rule))
        for seed in range(seeds):
            trained = _trained(network, quantization, options, seed)
            yield files.judged(name, quantization, Calibration(), trained, seed)


def _trained(network: Path, quantization: Quantization, options: Int8Options, seed: int) -> TrainedQuantization:
    """In a copy of the folder: what lies beside the network stays."""
    seeded = Int8Options(**{**vars(options), "changes": (*options.changes, f"seed={seed}")})
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "network"
        shutil.copytree(network, copied, ignore=shutil.ignore_patterns("*.int8.*", "state*"))
        finetune_int8(copied, quantization, seeded)
        found = TrainedQuantization.beside(copied / "network.safetensors")
        assert found is not None
        return found


@dataclass(frozen=True)
class Difference:
    """Points of accuracy, and their standard error over images and seeds."""

    points: float
    se: float


def difference(some: list[np.ndarray], others: list[np.ndarray]) -> Difference:
    """Of the mean of some files over the mean of others, image by image."""
    mean, reference = np.mean(some, axis=0), np.mean(others, axis=0)
    each = mean - reference
    variance = each.var(ddof=1) / len(each)
    if len(some) > 1:
        variance += np.var([right.mean() for right in some], ddof=1) / len(some)
    return Difference(100 * float(each.mean()), 100 * float(variance**0.5))


def table(found: list[Judged]) -> list[dict[str, object]]:
    """A row for each quantisation and way, with differences from the rule that is the default; printed too."""
    parts, rows = list(found[0].integer), list[dict[str, object]]()
    heads = [f"{part}, {way}" for part in parts for way in ("as written", "integers")]
    print(f"\n| | {' | '.join(heads)} | {parts[-1]}, integers: more than `mse` |")
    print(f"|---|{'---:|' * (len(heads) + 1)}", flush=True)
    for quantization, how in dict.fromkeys((one.quantization, one.how) for one in found):
        own = [one for one in found if (one.quantization, one.how) == (quantization, how)]
        cells = [
            f"{100 * np.mean([side[part].mean() for side in sides]):.2f}"
            for part in parts
            for sides in ([one.as_written for one in own], [one.integer for one in own])
        ]
        reference = [one for one in found if (one.quantization, one.how) == (quantization, Calibration().method)]
        more = difference(*([one.integer[parts[-1]] for one in side] for side in (own, reference or own)))
        shown = f"{more.points:+.2f} ± {more.se:.2f}" if reference and own != reference else ""
        print(f"| {quantization}{f', {how}' if how != FP32 else ''} | {' | '.join(cells)} | {shown} |", flush=True)
        runs = [{"seed": one.seed, **one.accuracies()} for one in own]
        rows.append({"quantization": quantization, "how": how, "runs": runs, "more_than_default": asdict(more)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", type=Path, nargs="+")
    parser.add_argument("--supernet", type=Path, help="whose w_h teaches, if the network does not say")
    parser.add_argument("--teacher")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--only", nargs="+", choices=QUANTIZATIONS, default=list(QUANTIZATIONS))
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    options = Int8Options(changes=tuple(asked.changes), teacher=asked.teacher, supernet=asked.supernet)
    document: dict[str, object] = {
        "created": now(),
        "hardware": hardware().model_dump(),
        "versions": versions(),
        "seeds": asked.seeds,
        "changes": asked.changes,
    }
    networks = document["networks"] = list[dict[str, object]]()
    for network in asked.networks:
        chosen = {name: QUANTIZATIONS[name] for name in asked.only}
        found = list(compared(network, chosen, options, asked.seeds))
        architecture = str(load_checkpoint(network / "network.safetensors").architecture)
        images = {part: len(right) for part, right in found[0].integer.items()}
        print(f"\n{architecture}", flush=True)
        networks.append({"architecture": architecture, "images": images, "rows": table(found)})
        write_json(asked.out, document)


if __name__ == "__main__":
    main()
