"""Our files against `torch.onnx.export` of the same networks, in fp32 and in 8 bits, one image and eight at a time.

    pip install onnxscript      # torch's newer exporter needs it
    python benchmarks/export.py [--runs 3] [--quick]

Six random networks of `imagenet`, six of `ofa-mbv3`, and timm's `hardcorenas_a`, all with random weights: a latency
does not depend on them. Ours are written in the forms that the device chooses for each space, precision and batch, by
the same trials as in a profile. Theirs: torch's newer exporter (`dynamo`) and its older one (TorchScript), each at the
newest operator set that it and ONNX Runtime's optimiser know, and the older one's file in 8 bits by ONNX Runtime's
`quantize_static` (QDQ, a scale per channel, the extremes of the same calibration images). The batch is free in every
file.

A run is one process per batch. A moment visits all files of a network one after the other in random order; the ratio of
two files is the Hodges-Lehmann estimate over moments, its interval that of Wilcoxon's signed-rank test.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import timm
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn

from deploynas import graph
from deploynas.device import Device
from deploynas.export.calibration import activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.export.verification import open_session
from deploynas.files import now, write_json
from deploynas.graph import OperatorForms
from deploynas.latency.entry import Entry
from deploynas.latency.form_choice import FormChoice
from deploynas.latency.form_trials import choose, signed_rank_interval, trial_entries
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.latency.measure import visit
from deploynas.latency.table import computed
from deploynas.latency.target import target_of
from deploynas.space import Architecture, Space
from deploynas.supernet.extraction import timm_model

RESULT = Path(__file__).parent / "results" / "export.json"
SPACES = ("imagenet", "ofa-mbv3")
NEWEST = {"newer exporter": 23, "older exporter": 20}  # operator sets; ONNX Runtime's optimiser knows both
PRECISIONS = ("fp32", "int8")
ROUNDS = {1: 24, 8: 6}  # moments of each network in a run, by batch
TRIAL_VISITS = {1: 18, 8: 9}
CALIBRATION_IMAGES = 16


@dataclass
class Network:
    name: str
    architecture: Architecture
    model: nn.Module
    files: dict[tuple[str, int], Path] = field(default_factory=dict)  # by who wrote it, in which precision, and batch
    about: dict[str, dict[str, float]] = field(default_factory=dict)  # seconds, bytes and differences by who wrote it

    @property
    def gated(self) -> bool:
        return any(getattr(part, "se_channels", 0) for _, part in self.parts)

    @property
    def space(self) -> Space:
        return self.architecture.space

    @property
    def parts(self) -> list:
        return list(self.space.parts(self.architecture))


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


def networks(count: int) -> Iterator[Network]:
    torch.manual_seed(0)
    for name in SPACES:
        space, rng = Space.load(name), np.random.default_rng(0)
        for i in range(count):
            architecture = space.sample(rng)
            yield Network(f"{name} {i + 1}", architecture, timm_model(architecture).eval())
    architecture = hardcorenas_a(Space.load("imagenet"))
    yield Network("hardcorenas_a", architecture, timm_model(architecture).eval())


# -- writing ---------------------------------------------------------------------------------------


def images(space: Space, count: int = CALIBRATION_IMAGES) -> np.ndarray:
    shape = (count, space.in_channels, space.height, space.width)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def torch_export(network: Network, way: str, path: Path) -> None:
    x = torch.from_numpy(images(network.space, 2))
    names: dict[str, Any] = {"input_names": ["input"], "output_names": ["logits"], "opset_version": NEWEST[way]}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if way == "newer exporter":
            free = ({0: torch.export.Dim("batch")},)
            torch.onnx.export(
                network.model, (x,), str(path), **names, dynamo=True, dynamic_shapes=free, external_data=False
            )
        else:
            axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
            torch.onnx.export(network.model, (x,), str(path), **names, dynamo=False, dynamic_axes=axes)


class Images(CalibrationDataReader):
    def __init__(self, space: Space) -> None:
        self.left = iter(images(space))

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self.left, None)
        return None if image is None else {"input": image[None]}


def quantise(network: Network, plain: Path, path: Path) -> None:
    """As ONNX Runtime's own guide has it: shapes inferred and the graph optimised first, then static QDQ."""
    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(str(plain), str(prepared))
    how = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_static(str(prepared), str(path), Images(network.space), quant_format=QuantFormat.QDQ, **how)


def write_theirs(network: Network, folder: Path) -> None:
    for way in NEWEST:
        path, start = folder / f"{network.name} {way}.onnx".replace(" ", "-"), time.perf_counter()
        torch_export(network, way, path)
        add(network, f"{way}, fp32", path, time.perf_counter() - start)
    plain = network.files["older exporter, fp32", 1]
    path, start = plain.with_suffix(".int8.onnx"), time.perf_counter()
    quantise(network, plain, path)
    add(network, "quantize_static, int8", path, time.perf_counter() - start)


def write_ours(network: Network, forms: dict[tuple[str, int], OperatorForms], folder: Path) -> None:
    """A file for every precision and batch, since forms are chosen for each."""
    weights, x = folded_weights(network.model, network.parts), images(network.space)
    plain = graph.chain(network.parts, weights, graph.Form(None))
    ranges = activation_ranges(plain, lambda: [(x, np.zeros(len(x)))], "minmax")
    for (precision, batch), chosen in forms.items():
        path, start = folder / f"{network.name} ours {precision} {batch}.onnx".replace(" ", "-"), time.perf_counter()
        form = graph.Form(None, precision, ranges=ranges if precision == "int8" else None, operators=chosen)
        path.write_bytes(graph.chain(network.parts, weights, form).SerializeToString())
        add(network, f"ours, {precision}", path, time.perf_counter() - start, [batch])


def add(network: Network, way: str, path: Path, seconds: float, batches: Sequence[int] = tuple(ROUNDS)) -> None:
    """A written file, with how far its logits are from torch's: the largest difference over the largest logit."""
    x = images(network.space, 2)
    with torch.no_grad():
        truth = network.model(torch.from_numpy(x)).numpy()
    content = path.read_bytes()
    logits = open_session(content).run(None, {onnx.load_from_string(content).graph.input[0].name: x})[0]
    network.about[way] = {
        "export_s": seconds,
        "size_bytes": len(content),
        "logit_difference": float(np.abs(logits - truth).max() / np.abs(truth).max()),
    }
    network.files |= {(way, batch): path for batch in batches}


# -- timing ----------------------------------------------------------------------------------------


def device_of(precision: str, batch: int) -> Device:
    loaded = Device.load("cpu-1t")
    return loaded.model_copy(update={"name": f"cpu-1t-{precision}-{batch}", "precision": precision, "batch": batch})


def chosen_forms(space: Space, precision: str, batch: int, visits: int) -> FormChoice:
    """As a profile chooses them."""
    entries, target = trial_entries(space, precision, seed=0), target_of(device_of(precision, batch))
    made = list(visit(target, space, entries, {entry.key: visits for entry in entries}, 0, 0))
    return choose(entries, made)


Times = dict[tuple[str, str], list[float]]  # logarithms of milliseconds of every moment, by network and way


def timed(every: Sequence[Network], batch: int, rounds: int, run: int) -> Times:
    entries, found = {}, defaultdict(list)
    for network in every:
        for (way, of), path in network.files.items():
            if of == batch:
                key = f"{network.name}/{way}"
                moment = {"moment": network.name, "runs": 1}
                entries[key] = Entry(key=key, kind="file", path=str(path.resolve()), **moment)
    target, space = target_of(device_of("fp32", batch)), every[0].space
    for one in visit(target, space, list(entries.values()), dict.fromkeys(entries, rounds), run, 0):
        name, way = one.entry.split("/")
        found[name, way].append(float(np.log(np.median(computed(one.samples_ms, one.waited_ms)))))
    return found


def compared(times: Sequence[Times], every: Sequence[Network], ours: str, theirs: str) -> dict[str, Any]:
    """Over all moments of these networks in the given runs."""
    pairs = np.concatenate(
        [np.subtract(run[network.name, ours], run[network.name, theirs]) for run in times for network in every]
    )
    centre, ends = signed_rank_interval(pairs)
    return {
        "ratio": float(np.exp(centre)),
        "interval": None if ends is None else [float(np.exp(end)) for end in ends],
        "pairs": len(pairs),
    }


def rows_of(every: Sequence[Network], runs: dict[int, list[Times]]) -> list[dict[str, Any]]:
    groups = {"with squeeze-and-excitation": [n for n in every if n.gated], "all": list(every)}
    for space in SPACES:
        groups[f"of {space}"] = [n for n in every if n.name.startswith(f"{space} ")]
    groups |= {n.name: [n] for n in every}
    against = [("ours, fp32", f"{way}, fp32") for way in NEWEST]
    against += [("ours, int8", "quantize_static, int8"), ("ours, int8", "ours, fp32")]
    rows = []
    for batch, times in runs.items():
        for ours, theirs in against:
            for name, members in groups.items():
                if members:
                    together = compared(times, members, ours, theirs)
                    each = [compared([run], members, ours, theirs)["ratio"] for run in times]
                    about = {"networks": name, "batch": batch, "file": ours, "against": theirs}
                    rows.append({**about, **together, "each_run": each})
    return rows


def show(rows: Sequence[dict[str, Any]], every: Sequence[Network]) -> None:
    print("| networks | batch | file | against | ratio (95 %) | each run |\n|---|---:|---|---|---:|---|")
    for row in rows:
        if row["networks"] not in {network.name for network in every} - {"hardcorenas_a"}:
            ends = "" if row["interval"] is None else " ({:.3f} to {:.3f})".format(*row["interval"])
            each = ", ".join(f"{ratio:.3f}" for ratio in row["each_run"])
            told = [row["networks"], row["batch"], row["file"], row["against"], f"{row['ratio']:.3f}{ends}", each]
            print("| " + " | ".join(map(str, told)) + " |")
    print("\n| file | largest difference of a logit, over the largest logit | export, s | size, KiB |")
    print("|---|---:|---:|---:|")
    for way in every[0].about:
        told = [network.about[way] for network in every]
        difference = max(one["logit_difference"] for one in told)
        seconds, size = (np.mean([one[key] for one in told]) for key in ("export_s", "size_bytes"))
        print(f"| {way} | {difference:.1e} | {seconds:.2f} | {size / 1024:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="Two networks, one image, few moments; nothing is stored.")
    options = parser.parse_args()
    started = time.monotonic()
    rounds = {1: 4} if options.quick else ROUNDS
    choices = {
        (space, precision, batch): chosen_forms(
            Space.load(space), precision, batch, 3 if options.quick else TRIAL_VISITS[batch]
        )
        for space in SPACES
        for precision in PRECISIONS
        for batch in rounds
    }
    for (space, precision, batch), choice in choices.items():
        tried = ", ".join(f"{t.operation}={t.form} {t.ratio:.3f} {t.verdict}" for t in choice.trials if t.ratio)
        print(f"forms for {space}, {precision}, batch {batch}: {choice.chosen} ({tried})", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        every = list(networks(1 if options.quick else 6))[: 2 if options.quick else None]
        for network in every:
            forms = {(p, b): choices[network.space.name, p, b].chosen for p in PRECISIONS for b in rounds}
            write_theirs(network, Path(folder))
            write_ours(network, forms, Path(folder))
            print(f"{network.name} written after {time.monotonic() - started:.0f} s", flush=True)
        runs = {batch: [timed(every, batch, rounds[batch], run) for run in range(options.runs)] for batch in rounds}
    rows = rows_of(every, runs)
    show(rows, every)
    print(f"\n{time.monotonic() - started:.0f} s")
    if not options.quick:
        write_json(
            RESULT,
            {
                "created": now(),
                "hardware": hardware().model_dump(),
                "versions": {**versions(), "torch": torch.__version__, "timm": timm.__version__},
                "load": load_average(),
                "opsets": {**NEWEST, "ours": graph.OPSET},
                "forms": [
                    {"space": space, "precision": precision, "batch": batch, **choice.model_dump()}
                    for (space, precision, batch), choice in choices.items()
                ],
                "rows": rows,
                "files": {network.name: network.about for network in every},
                "duration_s": round(time.monotonic() - started),
            },
        )


if __name__ == "__main__":
    main()
