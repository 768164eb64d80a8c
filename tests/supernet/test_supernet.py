"""The supernet computes what its sub-networks compute, whichever way it is asked."""

from __future__ import annotations

import copy
from typing import get_args

import numpy as np
import pytest
import timm
import torch
from torch import nn

from deploynas.costs import Costs
from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.supernet.batch_norm import recalibrate
from deploynas.supernet.checkpoint import load_checkpoint, save_network
from deploynas.supernet.extraction import extract, insert, timm_model
from deploynas.supernet.kernels import KernelRule
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths

TINY = """
schema: deploynas/space
schema_version: 1
name: tiny
input: {channels: 2, height: 12, width: 16}
classes: 5
stem: {out: 8, stride: STEM, activation: relu6}
FIRST
stages:
  - {out: 8, stride: 1, activation: relu, depths: [1, 3],
     ratios: [0.5, 1, 3], kernels: [7, 3, 5], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: swish, depths: [2], ratios: [2, 4], kernels: [3], se: [0.25, 0.5]}
head: {features: 24, HIDDEN activation: hard_swish}
"""


def tiny_space(tmp_path, stem=2, first=True, hidden="hidden: 20,") -> Space:
    text = TINY.replace("STEM", str(stem))
    text = text.replace("FIRST", "first: {out: 8, kernel: 5, stride: 1, activation: relu}" if first else "")
    path = tmp_path / "tiny.yaml"
    path.write_text(text.replace("HIDDEN", hidden))
    return Space.load(path)


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights and statistics away from their initial zeros and ones, where mistakes could hide."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            noise = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(noise + 0.5 if "running_var" in name else tensor + 0.3 * (noise - 0.5))
    return model.eval()


def images_for(space: Space, n: int) -> torch.Tensor:
    return torch.randn(n, space.in_channels, space.height, space.width, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=["fashion", "odd", "odd-plain", "odd-unbiased", "odd-matrices"])
def supernet(request, tmp_path_factory) -> Supernet:
    if request.param == "fashion":
        space = Space.load("fashion")
    else:
        plain = request.param == "odd-plain"
        hidden = {"odd": "hidden: 20,", "odd-plain": "", "odd-unbiased": "hidden: 20, hidden_bias: false,"}
        folder = tmp_path_factory.mktemp("space")
        space = tiny_space(
            folder, stem=1 if plain else 2, first=not plain, hidden=hidden.get(request.param, "hidden: 20,")
        )
    return randomise(Supernet(space, "matrices" if request.param == "odd-matrices" else "centre"))


@torch.no_grad()
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_each_image_of_a_multi_path_batch_gets_its_own_sub_network(supernet, memory_format):
    space = supernet.space
    images = images_for(space, 24).contiguous(memory_format=memory_format)
    rows = space.decisions.draw(24, np.random.default_rng(2))
    mixed = supernet(images, as_paths(rows))
    for i, architecture in enumerate(space.architectures(rows)):
        alone = supernet(images[i : i + 1], architecture)
        torch.testing.assert_close(mixed[i : i + 1], alone, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_an_extracted_timm_model_computes_what_the_supernet_does(supernet):
    space, rng = supernet.space, np.random.default_rng(3)
    images = images_for(space, 4)
    for architecture in [space.smallest(), space.heaviest(), *(space.sample(rng) for _ in range(6))]:
        model = extract(supernet, architecture)
        torch.testing.assert_close(model(images), supernet(images, architecture), rtol=1e-4, atol=1e-5)
        assert sum(p.numel() for p in model.parameters()) == Costs.of(space, architecture).params


@torch.no_grad()
def test_insert_is_the_inverse_of_extract(supernet):
    space = supernet.space
    architecture = space.sample(np.random.default_rng(4))
    model = randomise(timm_model(architecture), seed=5)
    other = randomise(Supernet(space), seed=6)  # whatever the rule of the one that it was taken from
    insert(other, architecture, model)
    images = images_for(space, 3)
    torch.testing.assert_close(other(images, architecture), model(images), rtol=1e-4, atol=1e-5)
    wrong = space.smallest() if architecture != space.smallest() else space.heaviest()
    with pytest.raises(InputError, match="is not this architecture"):
        insert(other, wrong, model)


@torch.no_grad()
@pytest.mark.parametrize("letter", "abcdef")
def test_timms_hardcorenas_models_are_sub_networks(letter):
    from timm.models import hardcorenas

    space = Space.load("imagenet")
    theirs = randomise(timm.create_model(f"hardcorenas_{letter}"))
    architecture = Architecture.parse(str(_arch_def(hardcorenas, letter)), space)
    ours = timm_model(architecture)
    shapes = {name: tensor.shape for name, tensor in theirs.state_dict().items()}
    assert {name: tensor.shape for name, tensor in ours.state_dict().items()} == shapes
    supernet = Supernet(space).eval().double()  # in double, what differs is structure and not rounding
    theirs.double()
    insert(supernet, architecture, theirs)
    images = images_for(space, 1)[:, :, :64, :64].double()
    expected = theirs(images)
    torch.testing.assert_close(supernet(images, architecture), expected)
    torch.testing.assert_close(extract(supernet, architecture).double()(images), expected, rtol=1e-4, atol=1e-4)


def _arch_def(module, letter: str) -> list[list[str]]:
    """The notation that timm's own function hands to its builder."""
    seen = {}
    original = module.decode_arch_def
    module.decode_arch_def = lambda arch_def: seen.setdefault("arch", arch_def) and original(arch_def)
    try:
        timm.create_model(f"hardcorenas_{letter}")
    finally:
        module.decode_arch_def = original
    return seen["arch"]


@pytest.mark.parametrize("kernels", get_args(KernelRule))
def test_gradients_of_a_mixed_batch_are_the_sum_of_its_sub_networks(kernels, tmp_path):
    """In evaluation mode images do not see each other, so gradients must add up exactly."""
    supernet = randomise(Supernet(tiny_space(tmp_path), kernels)).double()
    space = supernet.space
    images, rows = images_for(space, 10).double(), space.decisions.draw(10, np.random.default_rng(7))

    def gradients(run) -> list[torch.Tensor]:
        supernet.zero_grad()
        run()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in supernet.parameters()]

    mixed = gradients(lambda: supernet(images, as_paths(rows)).square().sum().backward())

    def one_by_one() -> None:
        for i, architecture in enumerate(space.architectures(rows)):
            supernet(images[i : i + 1], architecture).square().sum().backward()

    for a, b in zip(mixed, gradients(one_by_one), strict=True):
        torch.testing.assert_close(a, b)
    learned = [
        gradient for (name, _), gradient in zip(supernet.named_parameters(), mixed, strict=True) if ".from" in name
    ]
    assert len(learned) == (0 if kernels == "centre" else 2 * 3)  # 7 to 5 and 5 to 3, in the blocks of the first stage
    assert all(gradient.abs().max() > 0 for gradient in learned)


@torch.no_grad()
def test_matrices_make_smaller_kernels_and_sorting_leaves_them_alone(tmp_path):
    """Against Once-for-all's rule written out: centre, flatten, times the matrix, step by step."""
    supernet = randomise(Supernet(tiny_space(tmp_path), "matrices"))
    block = supernet.stages[0][0]
    largest = block.conv_dw.weight
    to5, to3 = block.matrices.matrix(7, 5), block.matrices.matrix(5, 3)
    five = (largest[:, 0, 1:6, 1:6].reshape(-1, 25) @ to5.T).reshape(-1, 5, 5)
    three = (five[:, 1:4, 1:4].reshape(-1, 9) @ to3.T).reshape(-1, 3, 3)
    for kernel, expected in ((7, largest[:, 0]), (5, five), (3, three)):
        torch.testing.assert_close(block.of_size(largest, kernel)[:, 0], expected)
    before = {name: value.clone() for name, value in supernet.state_dict().items() if "matrices" in name}
    kernels = block.of_size(largest, 3)[:, 0].clone()
    supernet.sort_channels()
    assert all(torch.equal(supernet.state_dict()[name], value) for name, value in before.items())
    sorted_kernels = block.of_size(block.conv_dw.weight, 3)[:, 0]
    assert not torch.equal(sorted_kernels, kernels)
    torch.testing.assert_close(sorted_kernels.flatten(1).sum(1).sort().values, kernels.flatten(1).sum(1).sort().values)


@torch.no_grad()
def test_new_matrices_take_the_centre(tmp_path):
    space = tiny_space(tmp_path)
    plain, learned = randomise(Supernet(space)), Supernet(space, "matrices").eval()
    learned.load_state_dict(plain.state_dict(), strict=False)
    rows = as_paths(space.decisions.draw(8, np.random.default_rng(0)))
    images = images_for(space, 8)
    torch.testing.assert_close(learned(images, rows), plain(images, rows))


@torch.no_grad()
def test_a_kernel_that_is_computed_cannot_be_written(tmp_path):
    supernet = randomise(Supernet(tiny_space(tmp_path), "matrices"))
    before = {name: value.clone() for name, value in supernet.state_dict().items()}
    smallest, heaviest = supernet.space.smallest(), supernet.space.heaviest()
    with pytest.raises(InputError, match="computed from larger ones"):
        insert(supernet, smallest, timm_model(smallest))
    assert all(torch.equal(supernet.state_dict()[name], value) for name, value in before.items())
    model = randomise(timm_model(heaviest), seed=5)
    insert(supernet, heaviest, model)  # the largest kernels are the weights themselves
    images = images_for(supernet.space, 2)
    torch.testing.assert_close(supernet(images), model(images), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_sorting_channels_changes_nothing_but_their_order(supernet):
    """The heaviest network computes the same, and what each block keeps first is what matters most."""
    space = supernet.space
    ordered = copy.deepcopy(supernet)
    ordered.sort_channels()
    images = images_for(space, 3)
    torch.testing.assert_close(ordered(images), supernet(images), rtol=1e-4, atol=1e-5)
    for block in (block for stage in ordered.stages for block in stage):
        importance = block.conv_pwl.weight.abs().sum((0, 2, 3)) * block.bn2.weight.abs()
        assert (importance.diff() <= 0).all()


def test_training_updates_only_the_statistics_of_configurations_that_took_part(tmp_path):
    supernet = Supernet(tiny_space(tmp_path)).train()
    architecture = supernet.space.heaviest()
    supernet(images_for(supernet.space, 4), as_paths(supernet.space.rows([architecture] * 4)))
    for s, b, c in architecture.blocks():
        norm = supernet.stages[s][b].bn3
        changed = (norm.running_var != 1).any(dim=1)
        assert changed.nonzero().flatten().tolist() == [supernet.stages[s][b].output_row[c]]


@torch.no_grad()
def test_recalibrated_statistics_are_the_exact_moments_of_all_batches(tmp_path):
    """Checked at the first normalisation, whose input does not depend on any other."""
    supernet = randomise(Supernet(tiny_space(tmp_path)))
    batches = [images_for(supernet.space, n) * n for n in (3, 5, 9)]
    heaviest = supernet.space.heaviest()
    recalibrate(supernet, [(images, heaviest) for images in batches])
    features = torch.cat([supernet.conv_stem(images) for images in batches]).double()
    torch.testing.assert_close(supernet.bn1.running_mean.double(), features.mean((0, 2, 3)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(supernet.bn1.running_var.double(), features.var((0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert not supernet.training


@torch.no_grad()
def test_recalibrating_on_one_batch_reproduces_its_training_mode_output(tmp_path):
    """The same moments, unbiased instead of biased: the difference is of the order of one over the count."""
    supernet = randomise(Supernet(tiny_space(tmp_path)))
    architecture = supernet.space.sample(np.random.default_rng(0))
    images = images_for(supernet.space, 256)
    recalibrate(supernet, [(images, architecture)])
    evaluated = supernet(images, architecture)
    trained = supernet.train()(images, architecture)
    torch.testing.assert_close(evaluated, trained, rtol=1e-2, atol=1e-2)


def test_wrong_paths_are_refused(supernet):
    space, images = supernet.space, images_for(supernet.space, 2)
    paths = as_paths(space.decisions.draw(3, np.random.default_rng(0)))
    with pytest.raises(InputError, match="2 images need as many paths, got 3"):
        supernet(images, paths)
    with pytest.raises(InputError, match="integers of shape"):
        supernet(images, paths[:2, 1:])
    paths[0, 0] = 99
    with pytest.raises(InputError, match="does not have"):
        supernet(images, paths[:2])


def test_checkpoints_come_back_bit_for_bit(supernet, tmp_path):
    images = images_for(supernet.space, 2)
    supernet.save(tmp_path / "w.safetensors", about={"data": "none"})
    loaded = Supernet.load(tmp_path / "w.safetensors")
    assert torch.equal(loaded(images), supernet(images)) and loaded.kernel_rule == supernet.kernel_rule
    assert load_checkpoint(tmp_path / "w.safetensors").model.kernel_rule == supernet.kernel_rule
    architecture = supernet.space.sample(np.random.default_rng(1))
    model = extract(supernet, architecture)
    save_network(model, architecture, tmp_path / "n.safetensors")
    checkpoint = load_checkpoint(tmp_path / "n.safetensors")
    assert checkpoint.architecture == architecture
    assert torch.equal(checkpoint.model(images), model(images))
    with pytest.raises(InputError, match="expected a supernet"):
        Supernet.load(tmp_path / "n.safetensors")


def test_weights_and_sidecar_of_different_runs_are_noticed(supernet, tmp_path):
    supernet.save(tmp_path / "a.safetensors")
    randomise(Supernet(supernet.space), seed=9).save(tmp_path / "b.safetensors")
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="SHA-256 differs"):
        Supernet.load(tmp_path / "a.safetensors")


def test_strides_that_timm_would_turn_into_dilation_are_refused(tmp_path):
    path = tmp_path / "deep.yaml"
    stage = "  - {out: 8, stride: 2, activation: relu, depths: [1], ratios: [1], kernels: [3]}\n"
    head = "head: {features: 24, activation: relu}"
    text = TINY.replace("STEM", "1").replace("FIRST", "")
    path.write_text(text[: text.index("stages:")] + "stages:\n" + 5 * stage + head)
    with pytest.raises(InputError, match="dilation"):
        timm_model(Space.load(path).heaviest())
