"""Files with fewer bits than fp32: in float16, and in 8 bits as other providers than the CPU want them."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from test_network_file import images_of, metadata_of, trained_looking

from deploynas.errors import GateError, InputError
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.calibration import Calibration
from deploynas.export.integer_file import Int8Wishes, int8_file
from deploynas.export.network_file import Fp32File, TorchNetwork, fp16_file, fp32_file
from deploynas.export.verification import open_session
from deploynas.graph import OperatorForms
from deploynas.quantization import Quantization
from deploynas.space import Space
from deploynas.supernet.extraction import timm_model

TENSORRT_LIKE = Quantization(activations="int8", symmetric=True, bias="float", hard_activations="operator")


@pytest.fixture(scope="module")
def network(tiny: Space) -> TorchNetwork:
    torch.manual_seed(0)
    return TorchNetwork(trained_looking(timm_model(tiny.heaviest()), tiny), tiny.heaviest(), metadata_of(tiny))


@pytest.fixture(scope="module")
def exported(tiny: Space, network: TorchNetwork) -> Fp32File:
    return fp32_file(network, images_of(tiny))


def logits_of(content: bytes, space: Space) -> np.ndarray:
    x = np.concatenate([batch for batch, _ in images_of(space)()])
    return open_session(content, as_written=True).run(None, {"input": x})[0]


def props_of(content: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load_model_from_string(content).metadata_props}


def test_float16_is_the_network_at_half_the_size(tiny: Space, network: TorchNetwork, exported: Fp32File) -> None:
    forms = OperatorForms(gate="resize", dense="conv")
    made = fp16_file(replace(network, forms={"fp16": forms}), exported, images_of(tiny))
    fp32, fp16 = (logits_of(content, tiny) for content in (exported.content, made.content))
    # a step of float16 at the largest logit, for each of the 40 or so values on the way that are rounded
    assert 0 < np.abs(fp32 - fp16).max() <= 40 * 2**-11 * np.abs(fp32).max()
    assert made.lost.drop == pytest.approx(exported.accuracy - made.accuracy)
    weights = sum(
        tensor.ByteSize() for tensor in onnx.load_model_from_string(made.content).graph.initializer if tensor.dims
    )
    assert len(made.content) < len(exported.content) and weights < 0.6 * len(exported.content)
    said = props_of(made.content)
    assert said["precision"] == "fp16" and OperatorForms.model_validate_json(said["forms"]) == forms
    assert json.loads(said["labels"]) == json.loads(props_of(exported.content)["labels"])


def test_what_is_lost_is_counted_image_by_image() -> None:
    """Of ten images the fp32 file has eight; the other misses two of them, and has one that fp32 has not."""
    fp32, other = np.arange(10) < 8, np.isin(np.arange(10), [0, 1, 2, 3, 4, 5, 8])
    lost = AccuracyDrop.between(fp32, other)
    assert (lost.accuracy, lost.drop) == (pytest.approx(0.7), pytest.approx(0.1))
    # +1 twice, -1 once, 0 seven times: squares 3 less 10 * 0.1^2, over 9, over 10
    assert lost.se == pytest.approx(np.sqrt((3 - 0.1) / 9 / 10))
    lost.require("int8", 0.1, "none")
    with pytest.raises(GateError, match=r"in fp16 the network loses 10\.00 points") as caught:
        lost.require("fp16", 0.09, "none")
    assert caught.value.exit_code == 3
    assert "more than the 9 that are allowed" in lost.words(0.09) and "of the 11 that" in lost.words(0.11)
    assert AccuracyDrop.between(other, fp32).words(0.0) == "it is 10.00 points more accurate"


def test_values_that_float16_cannot_hold_are_refused(tiny: Space, network: TorchNetwork) -> None:
    """Also where the runtime here would compute in fp32 all the same, and so notice nothing."""
    large = deepcopy(network.model)
    with torch.no_grad():
        large.classifier.weight *= 60000 / large.classifier.weight.abs().max()
    louder = replace(network, model=large)
    fp32 = fp32_file(louder, images_of(tiny))
    assert np.abs(logits_of(fp32.content, tiny)).max() > 65504
    with pytest.raises(GateError, match=r"`logits` reaches .* on the validation images, more than fp16 can hold"):
        fp16_file(louder, fp32, images_of(tiny))
    with torch.no_grad():
        large.classifier.weight *= 2
    with pytest.raises(InputError, match="weight `head/classifier/weight` reaches"):
        fp16_file(louder, fp32, images_of(tiny))


@pytest.mark.parametrize(
    "quantization",
    [Quantization(hard_activations="operator", logits="8-bit"), TENSORRT_LIKE, Quantization(activations="int8")],
    ids=["operator", "symmetric", "int8"],
)
def test_other_providers_8_bits_are_verified_on_the_cpu(
    quantization: Quantization, tiny: Space, network: TorchNetwork, exported: Fp32File
) -> None:
    images = images_of(tiny)
    how = Int8Wishes(Calibration("minmax", 1.0), images, quantization, on_cpu=False)
    made = int8_file(network, exported, images, how)
    fp32, int8 = (logits_of(content, tiny) for content in (exported.content, made.content))
    assert np.corrcoef(fp32.ravel(), int8.ravel())[0, 1] > 0.97
    assert made.quantization == quantization
    assert Quantization.model_validate_json(props_of(made.content)["quantization"]) == quantization
    labels = np.concatenate([y for _, y in images()])
    assert (
        made.accuracy == (int8.argmax(axis=1) == labels).mean()
    )  # of what the graph says, not of what a CPU makes of it


@pytest.mark.parametrize(("device", "user"), [(True, True), (True, False), (False, True), (False, False)])
def test_scales_are_per_channel_where_the_device_and_the_user_want_it(
    device: bool, user: bool, tiny: Space, network: TorchNetwork, exported: Fp32File
) -> None:
    images, how = images_of(tiny), Calibration("minmax", 1.0, per_channel=user)
    made = int8_file(network, exported, images, Int8Wishes(how, images, Quantization(per_channel=device)))
    both = device and user
    assert made.calibration.per_channel == made.quantization.per_channel == both
    assert json.loads(props_of(made.content)["provenance"])["calibration"]["per_channel"] == both
    model = onnx.load_model_from_string(made.content)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert (len(np.unique(stored["stem/conv/weight/scale"])) > 1) == both
