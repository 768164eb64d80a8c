"""The exported file is the network: same logits as torch, same classes, everything about itself inside."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from deploynas.errors import DeployNASError, InputError
from deploynas.export.calibration import RANGE_RULES, Calibration, activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.export.integer_file import Int8Wishes, int8_file
from deploynas.export.metadata import Metadata, Preprocessing
from deploynas.export.network_file import Fp32File, TorchNetwork, fp32_file
from deploynas.export.verification import ImageStream, open_session, verify
from deploynas.graph import OperatorForms
from deploynas.provenance import DataRecord
from deploynas.space import Space
from deploynas.supernet.extraction import timm_model


def trained_looking(model: nn.Module, space: Space) -> nn.Module:
    """Batch norms with scales of their own and the statistics of some images, as training leaves them.

    Statistics that are only made up let activations explode, and with them the rounding of torch and the runtime alike.
    """
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in ((module.weight.data, 0.5, 1.5), (module.bias.data, -0.3, 0.3)):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)
            module.reset_running_stats()
            module.momentum = None  # the mean of all batches
    with torch.no_grad():
        model.train()(torch.randn(4, space.in_channels, space.height, space.width, generator=generator))
    return model.eval()


def images_of(space: Space, count: int = 30) -> ImageStream:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((count, space.in_channels, space.height, space.width)).astype(np.float32)
    y = rng.integers(space.classes, size=count)
    return lambda: [(x[:20], y[:20]), (x[20:], y[20:])]


def metadata_of(space: Space) -> Metadata:
    shape = {"channels": space.in_channels, "height": space.height, "width": space.width}
    how = Preprocessing(**shape, resize_shorter_side=None, mean=[0.5], std=[0.25])
    return Metadata(preprocessing=how, labels=[f"class {i}" for i in range(space.classes)], data=DataRecord(name="x"))


@pytest.fixture(scope="module")
def network(tiny: Space) -> TorchNetwork:
    torch.manual_seed(0)
    return TorchNetwork(trained_looking(timm_model(tiny.heaviest()), tiny), tiny.heaviest(), metadata_of(tiny))


@pytest.fixture(scope="module")
def exported(tiny: Space, network: TorchNetwork) -> Fp32File:
    return fp32_file(network, images_of(tiny))


@pytest.mark.parametrize("name", ["tiny", "fashion", "imagenet", "ofa-mbv3", "ofa-proxyless"])
def test_random_networks_compute_what_torch_does(name: str, tiny: Space, rng: np.random.Generator) -> None:
    space = tiny if name == "tiny" else Space.load(name)
    torch.manual_seed(0)
    architecture = space.sample(rng)
    model = trained_looking(timm_model(architecture), space)
    count = 30 if name in ("tiny", "fashion") else 2
    made = fp32_file(TorchNetwork(model, architecture, metadata_of(space)), images_of(space, count))
    assert made.verification.max_difference <= made.verification.tolerance
    assert made.verification.onnx_accuracy == made.verification.torch_accuracy
    assert made.verification.images == count


def test_a_file_says_how_to_use_it(tiny: Space, exported: Fp32File) -> None:
    model = onnx.load_model_from_string(exported.content)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties["labels"]) == ["class 0", "class 1", "class 2"]
    assert Preprocessing.model_validate_json(properties["preprocessing"]).mean == [0.5]
    assert json.loads(properties["provenance"])["data"]["name"] == "x"
    assert properties["architecture"] == str(tiny.heaviest())
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["input", "logits"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_each_precision_is_written_in_the_forms_that_were_chosen_for_it(
    tiny: Space, network: TorchNetwork, exported: Fp32File
) -> None:
    """Of the device's own precision they were measured; the other file has the default. The files say so."""
    forms, images = OperatorForms(gate="resize", dense="conv"), images_of(tiny)
    made = fp32_file(replace(network, forms={"fp32": forms}), images)
    small = int8_file(replace(network, forms={"fp32": forms}), made, images, Int8Wishes(Calibration(), images))
    operators, said = {}, {}
    for name, content in (("default", exported.content), ("fp32", made.content), ("int8", small.content)):
        model = onnx.load_model_from_string(content)
        operators[name] = {node.op_type for node in model.graph.node}
        said[name] = OperatorForms.model_validate_json({e.key: e.value for e in model.metadata_props}["forms"])
    assert [name for name in operators if "Resize" in operators[name]] == ["fp32"]
    assert said == {"default": OperatorForms(), "fp32": forms, "int8": OperatorForms()}
    assert made.verification.max_difference <= made.verification.tolerance


def test_the_operator_set_can_be_chosen(tiny: Space, network: TorchNetwork) -> None:
    made = fp32_file(replace(network, opset=21), images_of(tiny))
    assert onnx.load_model_from_string(made.content).opset_import[0].version == 21
    with pytest.raises(InputError, match="opset must be at least"):
        fp32_file(replace(network, opset=11), images_of(tiny))


@pytest.mark.parametrize("weight", ["stem/conv/weight", "stage2/block1/depthwise/bias", "head/classifier/bias"])
def test_a_file_that_computes_something_else_is_refused(
    weight: str, tiny: Space, network: TorchNetwork, exported: Fp32File
) -> None:
    model = onnx.load_model_from_string(exported.content)
    (tensor,) = [value for value in model.graph.initializer if value.name == weight]
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.flat[0] += 1.0
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, weight))
    with pytest.raises(DeployNASError, match="differ by"):
        verify(network.model, model.SerializeToString(), images_of(tiny))


def test_a_file_whose_logits_are_not_numbers_is_refused(tiny: Space, network: TorchNetwork, exported: Fp32File) -> None:
    model = onnx.load_model_from_string(exported.content)
    (tensor,) = [value for value in model.graph.initializer if value.name == "head/classifier/bias"]
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(3, np.nan, np.float32), tensor.name))
    with pytest.raises(DeployNASError, match="differ by nan"):
        verify(network.model, model.SerializeToString(), images_of(tiny))


def test_another_architecture_is_refused(tiny: Space) -> None:
    """Fewer blocks, and as many blocks of other widths: both are noticed, and named as what they are."""
    narrow = tiny.architecture([[0, 0], [0, 0, 0]])
    assert [len(choice) for choice in narrow.choices] == [len(choice) for choice in tiny.heaviest().choices]
    for other in (tiny.smallest(), narrow):
        with pytest.raises(InputError, match="the model is not a network of these parts"):
            folded_weights(timm_model(other), tiny.parts(tiny.heaviest()))


@pytest.mark.parametrize("method", RANGE_RULES)
def test_ranges_lie_within_the_values_and_keep_zero(method: str, tiny: Space, exported: Fp32File) -> None:
    model = onnx.load_model_from_string(exported.content)
    widest = activation_ranges(model, images_of(tiny), "minmax")
    for name, (low, high) in activation_ranges(model, images_of(tiny), method).items():
        assert widest[name][0] <= low <= 0 <= high <= widest[name][1] * (1 + 1e-6)
        assert low < high


def test_least_squares_cuts_off_what_costs_more_than_it_brings() -> None:
    """One value of a million far out: keeping it would make every step coarser, so it is clipped."""
    from deploynas.export.calibration import BINS, _least_squares

    counts = np.zeros(BINS)
    counts[: BINS // 20] = 1e6
    counts[-1] = 1.0
    low, high = _least_squares(counts, 0.0, 100.0)
    assert low == 0.0 and 5.0 <= high < 20.0


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("method", RANGE_RULES)
def test_eight_bits_follow_fp32(
    method: str, per_channel: bool, tiny: Space, network: TorchNetwork, exported: Fp32File
) -> None:
    images, how = images_of(tiny), Calibration(method, 1.0, per_channel)
    made = int8_file(network, exported, images, Int8Wishes(how, images))
    x = np.concatenate([batch for batch, _ in images()])
    # integer operators of processors without VNNI saturate, which is not the file's doing
    fp32, int8 = (
        open_session(content, as_written=True).run(None, {"input": x})[0]
        for content in (exported.content, made.content)
    )
    assert np.corrcoef(fp32.ravel(), int8.ravel())[0, 1] > 0.97
    assert made.lost.drop == pytest.approx(exported.verification.onnx_accuracy - made.accuracy)
    assert made.calibration_images == 30


def test_ranges_that_collapse_do_not_overflow(tiny: Space, network: TorchNetwork, exported: Fp32File) -> None:
    """Calibrated on black images, scales are tiny and biases huge in units of them: they saturate."""
    black = np.zeros((4, tiny.in_channels, tiny.height, tiny.width), np.float32)
    how, images = Calibration("minmax", 1.0), images_of(tiny)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        int8_file(network, exported, images, Int8Wishes(how, lambda: [(black, np.zeros(4))]))
