"""8 bits on processors that sum exactly and on those that do not; which parts, by what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
import torch

from deploynas.device import Device
from deploynas.export.calibration import Calibration
from deploynas.export.integer_file import Int8File, Int8Wishes, IntegerSource
from deploynas.export.metadata import Metadata, Preprocessing, Processor
from deploynas.export.network_file import Fp32File, TorchNetwork, fp32_file
from deploynas.export.verification import ImageStream
from deploynas.latency.facts import Facts, facts_here
from deploynas.latency.precision_costs import Assignment, PrecisionCosts
from deploynas.pipeline import eight_bits
from deploynas.pipeline.eight_bits import EightBits
from deploynas.pipeline.mixed_precision import MixedChoice, MixedGoal, MixedSearch
from deploynas.space import Space
from deploynas.supernet.extraction import timm_model


@dataclass(frozen=True)
class Machine:
    """A target of which only facts are asked."""

    told: Facts

    def facts(self) -> Facts:
        return self.told


@pytest.fixture(scope="module")
def network(tiny: Space) -> TorchNetwork:
    torch.manual_seed(0)
    how = Preprocessing(
        channels=tiny.in_channels, height=tiny.height, width=tiny.width, resize_shorter_side=None, mean=[0.5], std=[0.2]
    )
    model = timm_model(tiny.heaviest()).train()
    model(torch.randn(16, tiny.in_channels, tiny.height, tiny.width))  # batch norm has seen something
    return TorchNetwork(model.eval(), tiny.heaviest(), Metadata(preprocessing=how, labels=["a", "b", "c"]))


@pytest.fixture(scope="module")
def images(tiny: Space) -> ImageStream:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, tiny.in_channels, tiny.height, tiny.width)).astype(np.float32)
    return lambda: [(x, np.zeros(64, int))]


@pytest.fixture(scope="module")
def fp32(network: TorchNetwork, images: ImageStream) -> Fp32File:
    return fp32_file(network, images)


def props_of(file: Int8File) -> dict[str, str]:
    return {p.key: p.value for p in onnx.ModelProto.FromString(file.content).metadata_props}


@pytest.mark.parametrize("faster", [0, 1])
def test_where_sums_saturate_the_faster_of_two_right_files_is_taken(
    faster: int, network: TorchNetwork, fp32: Fp32File, images: ImageStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_here().model_copy(update={"integer_sums": "saturating"})
    timed: list[Sequence[bytes]] = []

    def fastest(contents: Sequence[bytes], device: Device) -> int:
        timed.append(contents)
        return faster

    monkeypatch.setattr(eight_bits, "target_of", lambda device: Machine(facts))
    monkeypatch.setattr(eight_bits, "_fastest", fastest)
    made = EightBits(network, fp32, images, images, Calibration("minmax"), Device.load("cpu-1t"), 1.0).whole()
    assert [len(contents) for contents in timed] == [2]
    assert (made.quantization.weight_bits, made.quantization.weights) == [(7, "int8"), (8, "uint8")][faster]
    told = json.loads(props_of(made)["integers"])
    assert told["any_processor"] and told["sums"] == "saturating"
    assert made.kernels is not None and made.kernels.images == 64
    # kernels may round halves otherwise, and nothing more
    assert made.kernels.max_difference <= 0.1 * made.kernels.largest_logit


def test_where_sums_are_exact_nothing_is_timed_and_the_file_says_where_it_holds(
    network: TorchNetwork, fp32: Fp32File, images: ImageStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_here().model_copy(update={"integer_sums": "exact"})
    monkeypatch.setattr(eight_bits, "target_of", lambda device: Machine(facts))
    made = EightBits(network, fp32, images, images, Calibration("minmax"), Device.load("cpu-1t"), 1.0).whole()
    told = json.loads(props_of(made)["integers"])
    assert not told["any_processor"] and told["instruction_sets"] == facts.hardware.instruction_sets
    elsewhere = Device.load("cpu-1t").model_copy(update={"host": "board"})
    made = EightBits(network, fp32, images, images, Calibration("minmax"), elsewhere, 1.0).whole()
    assert made.kernels is None  # of another machine, which this one's kernels say nothing about


COSTS = PrecisionCosts(1.0, np.array([0.1] * 8), np.array([0.05] * 7), np.array([0.05] * 7), 0.0)


def choose(
    goal: MixedGoal, network: TorchNetwork, fp32: Fp32File, images: ImageStream, monkeypatch: pytest.MonkeyPatch
) -> MixedChoice:
    """On a device that takes exactly what `COSTS` says."""

    def time(self: MixedSearch, assignments: Sequence[Assignment], on_progress: object = None) -> list[float]:
        return [COSTS.predict(assignment) for assignment in assignments]

    monkeypatch.setattr(MixedSearch, "time", time)
    source = IntegerSource.of(network, Int8Wishes(Calibration("minmax"), images))
    assert len(network.parts) == len(COSTS.gain_ms)
    return MixedSearch(source, Device.load("cpu-1t"), images, images, fp32.content, goal).choose()


def test_without_a_budget_the_fastest_that_loses_little_enough(
    network: TorchNetwork, fp32: Fp32File, images: ImageStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = choose(MixedGoal(1.0), network, fp32, images, monkeypatch)
    assert found.in_float == ()  # anything may be lost, and every part saves
    assert found.record.frontier[-1].measured_ms == pytest.approx(0.2)
    assert [part.gain_ms for part in found.record.parts] == pytest.approx([0.1] * 8, abs=0.01)
    alone = [part.gain_alone_ms for part in found.record.parts]
    assert alone == pytest.approx([0.05, *[0.0] * 6, 0.05], abs=1e-9)  # two borders, but for the first and the last
    nothing = choose(MixedGoal(-1.0), network, fp32, images, monkeypatch)
    assert len(nothing.in_float) == 8  # nothing loses that little, and fp32 is always there


def test_within_a_budget_the_least_loss(
    network: TorchNetwork, fp32: Fp32File, images: ImageStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = choose(MixedGoal(1.0, budget_ms=2.0), network, fp32, images, monkeypatch)
    assert len(found.in_float) == 8  # fp32 keeps it
    tight = choose(MixedGoal(1.0, budget_ms=0.7), network, fp32, images, monkeypatch)
    chosen = next(point for point in tight.record.frontier if point.chosen)
    assert chosen.measured_ms is not None and chosen.measured_ms <= 0.7
    slower = [
        p for p in tight.record.frontier if p.measured_ms is not None and p.predicted_drop < chosen.predicted_drop
    ]
    assert all(point.measured_ms > 0.7 for point in slower)
    impossible = choose(MixedGoal(1.0, budget_ms=0.1), network, fp32, images, monkeypatch)
    assert impossible.in_float == ()  # the fastest there is; whether it ships is for the budget to say


def test_a_processor_says_what_it_lacks() -> None:
    lacking = {
        ("x86_64", ("avx2",)): "VNNI",
        ("x86_64", ("avx2", "avx_vnni")): None,
        ("aarch64", ("asimd",)): "dot products",
        ("aarch64", ("asimd", "asimddp")): None,
        ("x86_64", ()): None,  # a system that does not tell
        ("riscv64", ("v",)): None,
    }
    for (machine, sets), name in lacking.items():
        assert Processor(machine=machine, instruction_sets=list(sets)).lacks == name
