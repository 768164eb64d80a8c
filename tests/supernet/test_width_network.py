"""Pruning by extraction: what is masked and what is cut away compute the same, gates fold, sorting changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from test_supernet import images_for, randomise

from deploynas.costs import Costs
from deploynas.errors import InputError
from deploynas.space import Architecture, Space, StageSpace
from deploynas.space.widths import chosen_widths, width_space, widths_of
from deploynas.supernet.extraction import extract, timm_model
from deploynas.supernet.network import Supernet
from deploynas.supernet.timm_network import as_our_network
from deploynas.supernet.width_network import Gates, gated_blocks, magnitudes, sort_by, width_network

# both kinds of block, with and without squeeze-and-excitation and shortcut, in one stage and in several
MIXED = """
name: mixed
input: {channels: 2, height: 12, width: 16}
classes: 5
stem: {out: 8, stride: 2, activation: relu6}
first: {out: 8, kernel: 3, stride: 1, activation: relu}
stages:
  - {out: 16, stride: 2, activation: swish, depths: [2], blocks: [{kind: er, ratios: [3], kernels: [3], se: [0.25]}]}
  - {out: 16, stride: 1, activation: hard_swish, depths: [3], ratios: [4], kernels: [5], se: [0.25]}
  - {out: 24, stride: 1, activation: relu, depths: [1], ratios: [2], kernels: [3], se: [0]}
head: {features: 24, hidden: 16, activation: hard_swish}
"""


@pytest.fixture
def network(tmp_path: Path) -> tuple[Architecture, torch.nn.Module]:
    (tmp_path / "mixed.yaml").write_text(MIXED)
    architecture = Space.load(tmp_path / "mixed.yaml").heaviest()
    return architecture, randomise(timm_model(architecture))


@pytest.fixture
def widths(network) -> tuple[StageSpace, Supernet]:
    architecture, model = network
    space = width_space(architecture)
    return space, width_network(model, space)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_the_heaviest_of_all_widths_is_the_network_itself(network, widths) -> None:
    architecture, model = network
    space, supernet = widths
    x = images_for(architecture.space, 4)
    with torch.no_grad():
        close(supernet(x), model(x))
        close(extract(supernet, space.heaviest()).eval()(x), model(x))
    assert Costs.of(space, space.heaviest()) == Costs.of(architecture.space, architecture)
    assert [own[-1] for own in widths_of(space)] == [24, 48, 64, 64, 64, 32]


def test_every_width_is_a_multiple_of_8_and_keeps_the_channels_of_squeeze_and_excitation(network, widths) -> None:
    space, _ = widths
    whole = [space.block(s, 0, len(stage.configs) - 1) for s, stage in enumerate(space.stages)]
    for s, stage in enumerate(space.stages):
        offered = [space.block(s, 0, c) for c in range(len(stage.configs))]
        assert [part.mid_channels for part in offered] == list(range(8, whole[s].mid_channels + 1, 8))
        assert {part.se_channels for part in offered} == {whole[s].se_channels}
        assert {part.residual for part in offered} == {whole[s].residual}


def test_few_widths_are_spread_and_include_both_ends(network) -> None:
    for own in widths_of(width_space(network[0], widths=3)):
        assert len(own) <= 3 and own[0] == 8 and all(width % 8 == 0 for width in own)
    assert [own[-1] for own in widths_of(width_space(network[0], widths=3))] == [24, 48, 64, 64, 64, 32]


def test_a_network_of_widths_reads_back_from_its_text_and_its_file(widths, rng, tmp_path) -> None:
    space, supernet = widths
    for _ in range(20):
        narrow = space.sample(rng)
        assert Architecture.parse(str(narrow), space) == narrow
    assert Space.from_description(space.describe()) == space
    supernet.save(tmp_path / "w_star.safetensors")
    x = images_for(space, 2)
    with torch.no_grad():
        close(Supernet.load(tmp_path / "w_star.safetensors")(x, narrow), supernet(x, narrow))


def test_sorting_changes_no_output_of_the_whole_network(network, widths) -> None:
    space, supernet = widths
    x = images_for(space, 4)
    with torch.no_grad():
        before = supernet(x)
        sort_by(supernet, [torch.rand(block.mid) for block in gated_blocks(supernet)])
        close(supernet(x), before)


def test_what_is_pruned_computes_what_is_masked(widths, rng) -> None:
    """Cut out of weights, depthwise kernels, squeeze-and-excitation and batch norm; against gates of zero."""
    space, supernet = widths
    sort_by(supernet, magnitudes(supernet))
    x = images_for(space, 4)
    for narrow in (space.smallest(), *(space.sample(rng) for _ in range(5))):
        gates = Gates(supernet)
        with torch.no_grad():
            for gate, width in zip(gates.values, chosen_widths(narrow), strict=True):
                gate[width:] = 0
            with gates.applied():
                masked = supernet(x)
            pruned = extract(supernet, narrow).eval()
            close(pruned(x), masked)
        assert sum(p.numel() for p in pruned.parameters()) == Costs.of(space, narrow).params


def test_a_gate_of_zero_removes_its_channel_wherever_it_stands(widths) -> None:
    """Not only the last channels: the same network as after putting that channel last and cutting it off."""
    space, supernet = widths
    x, gates = images_for(space, 4), Gates(supernet)
    dropped = [
        torch.randperm(block.mid, generator=torch.Generator().manual_seed(3))[:8] for block in gated_blocks(supernet)
    ]
    with torch.no_grad():
        for gate, channels in zip(gates.values, dropped, strict=True):
            gate[channels] = 0
        with gates.applied():
            masked = supernet(x)
        sort_by(supernet, [gate.clone() for gate in gates.values])
        narrower = space.architecture([[len(stage.configs) - 2] for stage in space.stages])
        close(extract(supernet, narrower).eval()(x), masked)


def test_folded_gates_compute_what_gates_do(widths) -> None:
    space, supernet = widths
    x, gates = images_for(space, 4), Gates(supernet)
    with torch.no_grad():
        for gate in gates.values:
            gate.copy_(2 * torch.rand(len(gate), generator=torch.Generator().manual_seed(5)) - 0.5)
        with gates.applied():
            gated = supernet(x)
        assert (supernet(x) - gated).abs().max() > 1e-3
        gates.fold()
        close(supernet(x), gated)


def test_a_gate_for_every_image(widths) -> None:
    space, supernet = widths
    x, gates = images_for(space, 3), Gates(supernet)
    own = [
        torch.rand(3, block.mid, generator=torch.Generator().manual_seed(i))
        for i, block in enumerate(gated_blocks(supernet))
    ]
    with torch.no_grad():
        with gates.applied(own):
            together = supernet(x)
        for i in range(3):
            with gates.applied([value[i] for value in own]):
                close(supernet(x[i : i + 1])[0], together[i])


def test_timms_own_networks_are_read_and_others_are_refused() -> None:
    options = {"num_classes": 4, "in_chans": 1}
    model = randomise(timm.create_model("mobilenetv3_large_100", **options))
    architecture, rebuilt = as_our_network(model, "mobilenetv3_large_100", 32, 32)
    assert len(architecture.depths) == 14 and widths_of(width_space(architecture))[0][-1] == 64
    x = torch.randn(2, 1, 32, 32)
    with torch.no_grad():
        close(rebuilt(x), model(x))
    for name in ("mobilenetv3_small_050", "tf_mobilenetv3_large_minimal_100", "resnet10t"):
        with pytest.raises(InputError, match="not made of blocks"):
            as_our_network(timm.create_model(name, **options), name, 32, 32)


def test_widths_need_one_input_size(sized: Space) -> None:
    with pytest.raises(InputError, match="leaves the input size open"):
        width_space(sized.heaviest())


def test_random_widths_cost_what_they_are(widths, rng: np.random.Generator) -> None:
    """MACs of a narrow inverted residual, by hand: 16 -> w -> 16 channels, 5x5, on 3x4 pixels."""
    space, _ = widths
    narrow = space.architecture([[0], [0], [1], [0], [0], [0]])
    wide = space.architecture([[0], [0], [3], [0], [0], [0]])
    pixels, se = 3 * 4, 16
    each = pixels * (16 + 25 + 16) + 2 * se  # for each expansion channel
    assert Costs.of(space, wide).macs - Costs.of(space, narrow).macs == 16 * each
