"""8 bits against fp32 and against ONNX Runtime's own quantiser: accuracy, latency, size; kernels against emulation.

    python benchmarks/int8.py FOLDER --part trained ours [--networks hardcorenas_a lite0] [--cifar UNPACKED]
    python benchmarks/int8.py FOLDER --part kernels          # and once more as on a processor without VNNI:
    env $(cat PATCHED/environment) python benchmarks/int8.py FOLDER --part kernels
    python benchmarks/int8.py FOLDER --part mixed verdict

`FOLDER` is what `int8_networks.py` filled; `PATCHED` is what `without_vnni/patch.py` made. Accuracies are of the 10,000
test images, calibration takes 1,000 training images, the same for everybody. `trained`: an epoch of 10,000 training
images in 7 bits, whose file `ours` compares too. `ours`: every file timed in one run,
interleaved. `kernels`: what integer kernels make of a file beside its emulation in float. `mixed`: which parts are in 8
bits; the exact frontier beside brute force, and ten random assignments, predicted and measured. Prints Markdown, and
writes `benchmarks/results/int8.json`, part by part.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from equal_channels import with_equal_channels
from int8_networks import SPACES, data_of

import deploynas as dn
from deploynas.device import Device
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.calibration import TAILS, Calibration
from deploynas.export.integer_file import Int8Wishes, IntegerSource
from deploynas.export.kernel_check import KernelCheck
from deploynas.export.metadata import Metadata
from deploynas.export.network_file import Fp32File, TorchNetwork, fp32_file
from deploynas.export.verification import ImageStream, Judged, judged
from deploynas.files import now, write_json
from deploynas.latency.bench import Case, bench_together
from deploynas.latency.hardware import hardware, versions
from deploynas.latency.integer_sums import integer_sums
from deploynas.pipeline.finetune_int8 import Int8Options, finetune_int8
from deploynas.pipeline.images import preprocessing, stream
from deploynas.pipeline.mixed_precision import MixedGoal, MixedSearch
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.search.chain_frontier import ChainLink, chain_frontier
from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.trained_quantization import TrainedQuantization
from deploynas.training.batches import Batches
from deploynas.training.data import Data, Subset
from deploynas.training.finetune import NETWORK
from deploynas.training.recipe import Augmentation, Recipe

RESULT = Path(__file__).parent / "results" / "int8.json"
CALIBRATION_IMAGES = 1000
EMULATED_IMAGES = 2000
TRAINING_IMAGES = 10_000


@dataclass(frozen=True)
class Subject:
    """A trained network with its images."""

    name: str
    folder: Path
    data: Data

    @property
    def path(self) -> Path:
        return self.folder / self.name / f"{NETWORK}.safetensors"

    @cached_property
    def network(self) -> TorchNetwork:
        checkpoint = load_checkpoint(self.path)
        assert checkpoint.architecture is not None
        about = Metadata(preprocessing=preprocessing(self.data, checkpoint.space), labels=list(self.data.classes))
        return TorchNetwork(checkpoint.model, checkpoint.architecture, about)

    @cached_property
    def batches(self) -> Batches:
        return Batches(self.data, self.network.architecture.space, Augmentation())

    def images(self, part: Subset | None, most: int | None = None) -> ImageStream:
        assert part is not None
        return stream(self.batches, part if most is None else Subset(part.images, part.rows[:most]))

    @property
    def calibration(self) -> ImageStream:
        return self.images(self.data.train, CALIBRATION_IMAGES)

    @property
    def test(self) -> ImageStream:
        return self.images(self.data.test)

    @cached_property
    def fp32(self) -> Fp32File:
        return fp32_file(self.network, self.images(self.data.validation))

    def source(self, calibration: Calibration, quantization: Quantization = FOR_CPUS) -> IntegerSource:
        return IntegerSource.of(self.network, Int8Wishes(calibration, self.calibration, quantization))


WAYS = {
    "int8 weights": Quantization(),
    "7-bit weights": Quantization(weight_bits=7),
    "uint8 weights": Quantization(weights="uint8"),
}
METHODS = {
    "minmax": Calibration("minmax", correct_biases=False),
    "minmax, biases": Calibration("minmax"),
    **{f"percentile {tail:g}, biases": Calibration("percentile", tail=tail) for tail in TAILS},
    "mse": Calibration("mse", correct_biases=False),
    "mse, biases": Calibration("mse"),
}


def files(subject: Subject) -> Iterator[tuple[str, bytes]]:
    """Everything that is compared."""
    yield "fp32", subject.fp32.content
    yield "onnxruntime.quantization, defaults", runtime_default(subject.fp32.content, subject.calibration)
    for name, calibration in METHODS.items():
        yield name, subject.source(calibration).content()
    yield "mse, biases, equal channels", with_equal_channels(subject.source(METHODS["mse, biases"])).content()
    best = subject.source(Calibration())
    print(f"as shipped: {best.how.calibration}", flush=True)
    for name, types in WAYS.items():
        yield f"as shipped, {name}", best.with_types(types).content()
    trained = TrainedQuantization.beside(subject.path)
    if trained:
        how = Int8Wishes(Calibration(), subject.calibration, trained.quantization, trained=trained)
        yield "trained in 8 bits, 7-bit weights", IntegerSource.of(subject.network, how).content()


def runtime_default(fp32: bytes, images: ImageStream) -> bytes:
    """Static quantisation with nothing but its defaults, and the same calibration images."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = ({"input": x[i : i + 50]} for x, _ in images() for i in range(0, len(x), 50))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        before.write_bytes(fp32)
        quantize_static(str(before), str(after), Reader())
        return after.read_bytes()


def ours(subject: Subject, device: Device) -> list[dict[str, Any]]:
    """Accuracy by the kernels here and by emulation, latency and size, one run."""
    every = dict(files(subject))
    exact = judged(every["fp32"], subject.test)
    ms = times(every, device)
    rows = []
    for name, content in every.items():
        found = judged(content, subject.test)
        lost = AccuracyDrop.between(exact.correct, found.correct)
        row = {
            "file": name, "accuracy": lost.accuracy, "lost": lost.drop, "lost_se": lost.se, **ms[name],
            "size_bytes": len(content),
        }  # fmt: skip
        if name != "fp32":
            row["emulated"] = emulation(content, subject, found)
        rows.append(row)
        print(f"| {name} | {100 * lost.accuracy:.2f} | {100 * lost.drop:+.2f} ± {100 * lost.se:.2f} | "
              f"{row['ms']:.4f} | {row['faster']:.2f} | {len(content) / 1e6:.2f} |", flush=True)  # fmt: skip
    return rows


def times(every: dict[str, bytes], device: Device) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.onnx" for i in range(len(every))]
        for path, content in zip(paths, every.values(), strict=True):
            path.write_bytes(content)
        made = bench_together([Case(path) for path in paths], device)
    first = {"faster": 1.0, "interval": (1.0, 1.0)}
    ratios = [first, *({"faster": r.faster, "interval": r.interval} for r in made.ratios)]
    return {
        name: {"ms": one.measurement.latency_ms, **ratio}
        for name, one, ratio in zip(every, made.results, ratios, strict=True)
    }


def emulation(content: bytes, subject: Subject, kernels: Judged) -> dict[str, float]:
    emulated = judged(content, subject.test, as_written=True, most=EMULATED_IMAGES)
    return vars(KernelCheck.between(kernels, emulated))


def kernels(subject: Subject, device: Device) -> list[dict[str, Any]]:
    """Each way to write weights, as shipped otherwise; and the runtime's own switch for such processors."""
    source, ways = subject.source(Calibration()), WAYS
    every = {"fp32": subject.fp32.content} | {name: source.with_types(one).content() for name, one in ways.items()}
    switched = device.model_copy(update={"session_options": {"session.x64quantprecision": "1"}})
    ms = times(every, device)
    rows = [
        {"weights": name, **emulation(every[name], subject, judged(every[name], subject.test)), **ms[name]}
        for name in ways
    ]
    rows.append(
        {
            "weights": "int8 weights, session.x64quantprecision",
            **times({k: every[k] for k in ("fp32", "int8 weights")}, switched)["int8 weights"],
        }
    )
    for row in rows:
        print(row, flush=True)
    return rows


def mixed(subject: Subject, device: Device) -> dict[str, Any]:
    """As `export --int8 mixed` does it; the frontier beside all assignments there are; ten random ones, measured."""
    validation = subject.images(subject.data.validation)
    images = subject.calibration, validation
    goal = MixedGoal(max_accuracy_drop=0.001)
    search = MixedSearch(subject.source(Calibration()), device, *images, subject.fp32.content, goal)
    known = search.learn()
    frontier = chain_frontier(known.links())
    rng = np.random.default_rng(0)
    drawn = [tuple(bool(bit) for bit in rng.integers(0, 2, len(search.names))) for _ in range(10)]
    exact, rows = judged(subject.fp32.content, validation), []
    fp32_ms, *ms = search.time([(False,) * len(search.names), *drawn])
    for assignment, took in zip(drawn, ms, strict=True):
        seen = judged(search.source.content(search.in_float(assignment)), validation)
        lost = AccuracyDrop.between(exact.correct, seen.correct)
        divergence = sum(one.divergence for one, integer in zip(known.alone, assignment, strict=True) if integer)
        rows.append({
            "in_8_bits": [name for name, integer in zip(search.names, assignment, strict=True) if integer],
            "predicted_ms": known.costs.predict(assignment), "measured_ms": took,
            "predicted_drop": known.drop_per_nat * divergence, "measured_drop": lost.drop, "measured_se": lost.se,
        })  # fmt: skip
        print(rows[-1], flush=True)
    errors = [row["predicted_ms"] / row["measured_ms"] - 1 for row in rows]
    print(
        f"latency off by {100 * np.mean(np.abs(errors)):.2f} % on average, at most {100 * np.max(np.abs(errors)):.2f} %"
    )
    return {
        "record": search.choose().record.model_dump(), "frontier": len(frontier), "fp32_ms": fp32_ms,
        "brute_force_agrees": [(p.cost, p.loss) for p in frontier] == brute_force(known.links()), "random": rows,
    }  # fmt: skip


def brute_force(links: Sequence[ChainLink]) -> list[tuple[float, float]]:
    """The costs and losses that no other assignment beats, by looking at all of them."""
    every = []
    for options in itertools.product((0, 1), repeat=len(links)):
        before, cost, loss = 0, 0.0, 0.0
        for link, option in zip(links, options, strict=True):
            cost += link.cost[option] + link.entering[before][option]
            loss += link.loss[option]
            before = option
        every.append((cost, loss))
    found: list[tuple[float, float]] = []
    for cost, loss in sorted(every):
        if not found or loss < found[-1][1]:
            found.append((cost, loss))
    return found


def trained(subject: Subject, device: Device) -> dict[str, Any]:
    """An epoch of some training images in 7 bits, the network itself teaching."""
    train = subject.data.train
    some = replace(subject.data, train=Subset(train.images, train.rows[:TRAINING_IMAGES]))
    changes = ("int8.epochs=1", "finetune.batch=64", "seed=0")
    options = Int8Options(Recipe.load("fashion"), changes, teacher=str(subject.path), data=some, force=True)
    found = finetune_int8(subject.path, Quantization(weight_bits=7), options)
    print(found, flush=True)
    return {"images": TRAINING_IMAGES, "validation_accuracy": found.validation_accuracy}


def verdict(subject: Subject, device: Device) -> list[dict[str, Any]]:
    """What `export --int8` decides by, beside a plain loop around both files; also of a network too small for it."""
    rows = []
    own = subject.name, subject.fp32.content, subject.source(Calibration()).content()
    for name, fp32, int8 in (own, tiny()):
        said = times({"fp32": fp32, "int8": int8}, device)["int8"]
        loop = plain_loop(fp32, int8)
        rows.append({"network": name, "faster": said["faster"], "interval": said["interval"], "plain_loop": loop})
        print(rows[-1], flush=True)
    return rows


def tiny() -> tuple[str, bytes, bytes]:
    space = Space.load("fashion")
    fp32, int8 = (dn.graph.network(space, space.smallest(), batch=None, precision=one) for one in ("fp32", "int8"))
    return "fashion, smallest, random weights", fp32.SerializeToString(), int8.SerializeToString()


def plain_loop(fp32: bytes, int8: bytes) -> float:
    """How many times as fast, by medians of turns taken in one process, without any code of ours."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [onnxruntime.InferenceSession(one, options, providers=["CPUExecutionProvider"]) for one in (fp32, int8)]
    shape = [1, *sessions[0].get_inputs()[0].shape[1:]]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    taken: list[list[float]] = [[], []]
    for _ in range(300):
        for session, own in zip(sessions, taken, strict=True):
            for _ in range(5):
                begun = perf_counter()
                session.run(None, {"input": x})
                own.append(perf_counter() - begun)
    return float(np.median(taken[0]) / np.median(taken[1]))


PARTS: dict[str, Callable[[Subject, Device], Any]] = {
    "trained": trained,
    "ours": ours,
    "kernels": kernels,
    "mixed": mixed,
    "verdict": verdict,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--networks", nargs="+", choices=list(SPACES), default=list(SPACES))
    parser.add_argument("--cifar", type=Path)
    options = parser.parse_args()
    device = Device.load("cpu-1t")
    for name in options.networks:
        subject = Subject(name, options.folder, data_of(name, options.cifar))
        for part in options.part:
            key = f"{part}, sums that saturate" if part == "kernels" and integer_sums() == "saturating" else part
            print(f"\n{name}, {key}\n", flush=True)
            keep(name, key, PARTS[part](subject, device))


def keep(network: str, part: str, found: Any) -> None:
    stored = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    about = {"date": now(), "hardware": hardware().model_dump(), "versions": versions(), "found": found}
    stored.setdefault(network, {})[part] = about
    write_json(RESULT, stored)


if __name__ == "__main__":
    main()
