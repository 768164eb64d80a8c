"""A checkpoint of Once-for-all's own classes computes here what it computes there, whichever way it is asked."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from ofa.imagenet_classification.elastic_nn.modules.dynamic_op import DynamicSeparableConv2d
from ofa.imagenet_classification.elastic_nn.networks import OFAResNets
from ofa_networks import (
    OFA_SPACES,
    Setting,
    macs,
    names_once,
    ofa_supernet,
    older_names,
    randomise,
    relative_difference,
)
from torch import nn

from deploynas import graph
from deploynas.costs import Costs
from deploynas.errors import InputError
from deploynas.export.fold import folded_weights
from deploynas.space import Architecture, Space
from deploynas.supernet.elastic import ElasticNorm
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet
from deploynas.supernet.once_for_all import read_once_for_all
from deploynas.supernet.paths import as_paths

CLOSE = 1e-4

Both = tuple[nn.Module, Supernet]


@pytest.fixture(scope="module", params=OFA_SPACES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Theirs, and ours out of the file that it was saved to."""
    theirs = randomise(ofa_supernet(request.param))
    path = tmp_path_factory.mktemp("ofa") / "checkpoint.pth"
    torch.save({"state_dict": older_names(theirs.state_dict())}, path)
    ours = read_once_for_all(path)
    assert ours.space == Space.load(request.param) and ours.space.name == request.param
    return theirs, ours


def small_images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def some_networks(space: Space, count: int = 3) -> list[Architecture]:
    rng = np.random.default_rng(0)
    return [space.smallest(), space.heaviest(), *(space.sample(rng) for _ in range(count))]


def require_same(ours: torch.Tensor | np.ndarray, theirs: torch.Tensor) -> None:
    """Logits, and how they differ between two images: most of a logit comes from biases, whatever the image."""
    ours = torch.as_tensor(ours)
    assert relative_difference(ours, theirs) < CLOSE
    if len(theirs) > 1:
        assert relative_difference(ours[0] - ours[1], theirs[0] - theirs[1]) < 100 * CLOSE


@torch.no_grad()
def test_sub_networks_compute_what_theirs_do(both: Both) -> None:
    theirs, ours = both
    images, answers = small_images(), []
    for architecture in some_networks(ours.space):
        Setting.of(architecture).apply(theirs)
        answers.append(theirs(images))
        require_same(ours(images, architecture), answers[-1])
        require_same(extract(ours, architecture)(images), theirs.get_active_subnet().eval()(images))
    assert relative_difference(answers[0], answers[1]) > 0.1  # the networks are not all alike


@torch.no_grad()
def test_a_batch_of_many_paths_gets_their_answers_too(both: Both) -> None:
    theirs, ours = both
    architectures = some_networks(ours.space)
    images = small_images(len(architectures))
    mixed = ours(images, as_paths(ours.space.rows(architectures)))
    for i, architecture in enumerate(architectures):
        Setting.of(architecture).apply(theirs)
        require_same(mixed[i : i + 1], theirs(images[i : i + 1]))


@torch.no_grad()
def test_the_onnx_file_computes_what_theirs_does(both: Both) -> None:
    theirs, ours = both
    space, images = ours.space, torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    architecture = space.sample(np.random.default_rng(5))
    weights = folded_weights(extract(ours, architecture), space.parts(architecture))
    content = graph.network(space, architecture, weights, batch=2).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    Setting.of(architecture).apply(theirs)
    require_same(session.run(None, {"input": images.numpy()})[0], theirs(images))


def test_parameters_and_multiplications_are_theirs(both: Both) -> None:
    theirs, ours = both
    space = ours.space
    for architecture in some_networks(space, 1):
        Setting.of(architecture).apply(theirs)
        alone = theirs.get_active_subnet()
        costs = Costs.of(space, architecture)
        assert costs.params == sum(parameter.numel() for parameter in alone.parameters())
        assert costs.macs == macs(alone, torch.zeros(1, space.in_channels, space.height, space.width))


def test_every_configuration_gets_the_statistics(both: Both) -> None:
    _, ours = both
    norms = [module for module in ours.modules() if isinstance(module, ElasticNorm)]
    assert any(len(norm.running_mean) > 1 for norm in norms)
    for norm in norms:
        for rows in (norm.running_mean, norm.running_var):
            assert torch.equal(rows, rows[:1].expand_as(rows)) and len(rows[0].unique()) > 1


# -- one space is enough for what follows ------------------------------------------------------------


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return dict(randomise(ofa_supernet("ofa-mbv3")).state_dict())


def read(tensors: object, folder: Path, **options: bool) -> Supernet:
    torch.save(tensors, folder / "checkpoint.pth", **options)
    return read_once_for_all(folder / "checkpoint.pth")


def test_both_generations_of_names_and_files_are_read(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    first = read({"state_dict": tensors}, tmp_path).state_dict()
    others = [
        read({"state_dict": older_names(tensors), "epoch": 3}, tmp_path),
        read(names_once(tensors), tmp_path),  # alone, without a dictionary around it
        read({"state_dict": older_names(names_once(tensors))}, tmp_path, _use_new_zipfile_serialization=False),
    ]
    for other in others:
        found = other.state_dict()
        assert found.keys() == first.keys() and all(torch.equal(found[name], value) for name, value in first.items())


@torch.no_grad()
def test_without_matrices_smaller_kernels_are_the_centre(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(DynamicSeparableConv2d, "KERNEL_TRANSFORM_MODE", None)
    theirs = randomise(ofa_supernet("ofa-mbv3", classes=7))
    ours = read({"state_dict": theirs.state_dict()}, tmp_path)
    assert ours.kernel_rule == "centre" and ours.space.classes == 7 and ours.space.name == "ofa-mbv3-7-classes"
    architecture = ours.space.sample(np.random.default_rng(1))
    Setting.of(architecture).apply(theirs)
    require_same(ours(small_images(), architecture), theirs(small_images()))


class RunsCode:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.witness),)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    path, witness = tmp_path / "evil.pth", tmp_path / "witness"
    torch.save({"state_dict": RunsCode(witness)}, path)
    with pytest.raises(InputError, match=r"`\w+\.mkdir` would have to be run"):
        read_once_for_all(path)
    path.write_bytes(pickle.dumps({"state_dict": RunsCode(witness)}))
    with pytest.raises(InputError, match=r"not a complete file|would have to be run"):
        read_once_for_all(path)
    assert not witness.exists()


def test_a_file_that_is_nearly_right_says_what_is_wrong(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    changed = dict(tensors)
    del changed["blocks.3.conv.depth_conv.conv.7to5_matrix"], changed["blocks.4.conv.point_linear.bn.bn.bias"]
    changed["blocks.21.conv.surprise"] = torch.zeros(2)
    changed["first_conv.conv.weight"] = torch.zeros(16, 1, 3, 3)
    with pytest.raises(InputError) as raised:
        read({"state_dict": changed}, tmp_path)
    for said in (
        "nearly a checkpoint of ofa_mbv3_d234_e346_k357_w1.0",
        "2 tensors are missing (`blocks.3.conv.depth_conv.conv.7to5_matrix`, `blocks.4.conv.point_linear.bn.bias`)",
        "1 tensor is unknown (`blocks.21.conv.surprise`)",
        "1 tensor is of another shape (`first_conv.conv.weight: 16x1x3x3 instead of 16x3x3x3`)",
    ):
        assert said in raised.value.message


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t: {**t, "first_conv.bn.weight": torch.full((16,), float("nan"))}, "not finite"),
        (lambda t: {**t, "blocks.0.mobile_inverted_conv.depth_conv.conv.weight": torch.zeros(1)}, "the same tensor"),
        (lambda t: {**t, "first_conv.conv.weight": "text"}, "not a tensor"),
        (lambda t: {"state_dict": None}, "no `state_dict`"),
        (lambda t: [1, 2], "no `state_dict`"),
        (lambda t: {}, "no `state_dict`"),
    ],
)
def test_what_is_no_supernet_is_refused(spoil, said: str, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read(spoil(tensors), tmp_path)


def test_another_family_is_named_as_such(tmp_path: Path) -> None:
    resnet = OFAResNets(depth_list=[0], expand_ratio_list=[0.2], width_mult_list=[0.65])
    with pytest.raises(InputError, match=r"not a MobileNet supernet of Once-for-all: .* unknown \(`input_stem\."):
        read({"state_dict": resnet.state_dict()}, tmp_path)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_file_that_was_cut_off_is_refused(zipped: bool, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pth"
    torch.save({"state_dict": tensors}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    for length in (0, 100, len(content) // 2, len(content) - 100):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match="not a complete file"):
            read_once_for_all(path)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_once_for_all(tmp_path / "nowhere.pth")
