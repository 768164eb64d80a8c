from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploynas.blocks.geometry import make_divisible
from deploynas.blocks.inverted_residual import InvertedResidual
from deploynas.costs import RESOURCES, Costs, combine, part_costs, resource_table
from deploynas.errors import InputError
from deploynas.space import PRESETS, Architecture, Space, StageSpace

SPACES = {name: Space.load(name) for name in PRESETS}

# timm's published networks and their parameter counts, as its own models report them
HARDCORENAS_A = (
    "[['ds_r1_k3_s1_e1_c16_nre'], ['ir_r1_k5_s2_e3_c24_nre', 'ir_r1_k5_s1_e3_c24_nre_se0.25'],"
    "['ir_r1_k5_s2_e3_c40_nre', 'ir_r1_k5_s1_e6_c40_nre_se0.25'],"
    "['ir_r1_k5_s2_e6_c80_se0.25', 'ir_r1_k5_s1_e6_c80_se0.25'],"
    "['ir_r1_k5_s1_e6_c112_se0.25', 'ir_r1_k5_s1_e6_c112_se0.25'],"
    "['ir_r1_k5_s2_e6_c192_se0.25', 'ir_r1_k5_s1_e6_c192_se0.25'], ['cn_r1_k1_s1_c960']]"
)


def test_the_imagenet_preset_has_the_papers_size(imagenet: Space) -> None:
    assert imagenet.size() == (12**2 + 12**3 + 12**4) ** 5
    alpha, beta = imagenet.encode(imagenet.heaviest())
    assert (alpha.size, beta.size) == (240, 15)


def test_the_fashion_preset_leaves_a_real_choice() -> None:
    assert SPACES["fashion"].size() >= 10**8


def test_size_counts_what_enumeration_lists(tiny: Space) -> None:
    assert tiny.size() == len(set(tiny.enumerate())) == (4 + 16) * (2 + 8)


@pytest.mark.parametrize("name", PRESETS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_notation_and_encoding_invert(name: str, seed: int) -> None:
    space = SPACES[name]
    architecture = space.sample(np.random.default_rng(seed))
    assert Architecture.parse(str(architecture), space) == architecture
    assert space.decode(*space.encode(architecture)) == architecture
    if not isinstance(space, StageSpace):
        return  # what follows is timm's notation
    nested = [stage.split() for stage in str(architecture).split("|")]
    assert Architecture.parse(str(nested), space) == architecture
    searched = " | ".join(stage for stage in str(architecture).split(" | ") if stage.startswith("ir_"))
    assert Architecture.parse(searched, space) == architecture


def test_a_published_network_is_a_member(imagenet: Space) -> None:
    architecture = Architecture.parse(HARDCORENAS_A, imagenet)
    assert architecture.depths == (2, 2, 2, 2, 2)
    assert Costs.of(imagenet, architecture).params == 5_260_232


def test_a_repeat_stands_for_blocks_without_stride(tiny: Space) -> None:
    text = "ir_r2_k3_s1_e2_c8 | ir_r3_k5_s2_e2.5_c16"
    assert Architecture.parse(text, tiny).choices == ((2, 2), (1, 1, 1))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("ir_r1_k3_s1_e2_c8", "2 searched stages"),
        ("ir_r1_k7_s1_e2_c8 | ir_r1_k5_s2_e2.5_c16", "no configuration"),
        ("ir_r1_k3_s2_e2_c8 | ir_r1_k5_s2_e2.5_c16", "`s2`, but space"),
        ("ir_r1_k3_s1_e2_c8_nhs | ir_r1_k5_s2_e2.5_c16", "`nhs`, but space"),
        ("ir_r1_k3_s1_e2_c8 | ir_r2_k5_s2_e2.5_c16", "allowed: 1, 3"),
        ("xx_r1_k3_s1_e2_c8 | ir_r1_k5_s2_e2.5_c16", "starts with"),
        ("er_r1_k3_s1_e2_c8 | ir_r1_k5_s2_e2.5_c16", "no configuration"),
        ("ir_r1_k3_s1_e2_c8_zz | ir_r1_k5_s2_e2.5_c16", "`zz` is not understood"),
        ("[['ir_r1'", "not a list"),
        ("ir_r1_k3_s1_e2_c8 | ir_r1_k5_s2_e2.5_c16 | cn_r1_k1_s1_c960", "last convolution"),
    ],
)
def test_a_foreign_notation_says_what_is_wrong(text: str, said: str, tiny: Space) -> None:
    with pytest.raises(InputError, match=said):
        Architecture.parse(text, tiny)


def test_an_encoding_that_is_not_one_hot_is_refused(tiny: Space) -> None:
    alpha, beta = tiny.encode(tiny.smallest())
    with pytest.raises(InputError, match="not one-hot"):
        tiny.decode(alpha * 0.5, beta)
    with pytest.raises(InputError, match="shapes"):
        tiny.decode(alpha[1:], beta)


def test_blocks_beyond_the_depth_do_not_matter(tiny: Space) -> None:
    alpha, beta = tiny.encode(tiny.smallest())
    alpha[4:8] = [0, 0, 1, 0]  # second block of the first stage, whose depth is 1
    assert tiny.decode(alpha, beta) == tiny.smallest()


def test_equal_geometries_are_equal_blocks(imagenet: Space) -> None:
    distinct = {imagenet.block(s, b, c) for s in range(5) for b in range(4) for c in range(12)}
    assert len(distinct) == 5 * 2 * 12  # later blocks of a stage are alike


def test_a_space_describes_itself_completely() -> None:
    for space in SPACES.values():
        again = Space.from_description(space.describe())
        assert again == space and again.hash == space.hash
    assert len({space.hash for space in SPACES.values()}) == len(SPACES)


def test_all_mistakes_of_a_file_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "name: bad\ninput: {channels: 0, height: 28, width: 28}\nclasses: many\nstem: {out: 12}\n"
        "stages:\n  - {out: 16, stride: 3, activation: gelu, depths: [2, 1], ratios: [2], kernels: [4], se: [2]}\n"
        "head: {features: 64, colour: red}\n"
    )
    with pytest.raises(InputError) as raised:
        Space.load(path)
    message = raised.value.message
    for line, place in [
        (2, "input.channels"),
        (3, "classes"),
        (4, "stem.out"),
        (6, "stages[0].stride"),
        (6, "stages[0].activation"),
        (6, "stages[0].depths"),
        (6, "stages[0].kernels[0]"),
        (6, "stages[0].se[0]"),
        (7, "head.colour"),
    ]:
        assert f"bad.yaml:{line}: `{place}`" in message
    assert "9 mistakes" in message


@pytest.mark.parametrize("source", ["no-such-space", "missing.yaml"])
def test_a_missing_space_is_an_input_error(source: str) -> None:
    with pytest.raises(InputError):
        Space.load(source)


def test_widths_are_rounded_as_timm_does() -> None:
    assert [make_divisible(v) for v in (1, 8, 11, 12, 60, 84, 18)] == [8, 8, 16, 16, 64, 88, 24]


def test_costs_of_one_block_by_hand() -> None:
    block = InvertedResidual(8, 16, 8, kernel=3, stride=1, se_channels=8, activation="relu", height=4, width=4)
    costs = part_costs(block)
    weights = [8 * 16, 9 * 16, 16 * 8, 8 * 16, 16 * 8]  # expand, depthwise, squeeze, excite, project
    assert costs.params == sum(weights) + 2 * (16 + 16 + 8) + 8 + 16
    assert costs.size_bytes == 4 * (sum(weights) + 16 + 16 + 8 + 16 + 8)
    assert costs.macs == 16 * (8 * 16 + 9 * 16 + 16 * 8) + 8 * 16 + 16 * 8
    assert costs.peak_memory_bytes == 4 * 16 * (8 + 16 + 16)  # the shortcut, and the depthwise input and output


@pytest.mark.parametrize("resource", RESOURCES)
def test_resource_tables_add_up_to_the_whole(resource: str, imagenet: Space, rng: np.random.Generator) -> None:
    fixed, blocks = resource_table(imagenet, resource)
    architecture = imagenet.sample(rng)
    values = [fixed, *(blocks[s][b][c] for s, b, c in architecture.blocks())]
    together = max(values) if resource == "peak_memory_bytes" else sum(values)
    assert together == getattr(Costs.of(imagenet, architecture), resource)


def test_the_extremes_are_extreme(imagenet: Space, rng: np.random.Generator) -> None:
    low, high = (Costs.of(imagenet, a).macs for a in (imagenet.smallest(), imagenet.heaviest()))
    assert all(low <= Costs.of(imagenet, imagenet.sample(rng)).macs <= high for _ in range(50))
    assert combine(part_costs(imagenet.stem)).params == 27 * 32 + 64


def test_sampling_is_uniform_over_decisions(tiny: Space) -> None:
    rng = np.random.default_rng(1)
    depths = [tiny.sample(rng).depths[1] for _ in range(2000)]
    # binomial: 1000 +- 3.5 standard deviations
    assert abs(depths.count(3) - 1000) < 3.5 * math.sqrt(500)


def test_a_key_at_its_default_changes_no_hash_and_one_that_is_not_does(tmp_path: Path) -> None:
    def space(head: str, more: str = "") -> Space:
        path = tmp_path / "space.yaml"
        path.write_text(
            "name: x\ninput: {channels: 1, height: 8, width: 8}\nclasses: 2\nstem: {out: 8}\nstages:\n"
            "  - {out: 8, stride: 1, activation: relu, depths: [1], ratios: [2], kernels: [3]}\n"
            f"head: {{features: 16, {head}}}\n{more}"
        )
        return Space.load(path)

    plain = space("hidden: 12")
    assert plain.describe().keys() & {"head_hidden_bias", "norm_eps"} == set()
    assert space("hidden: 12, hidden_bias: true", "norm_eps: 0.00001").hash == plain.hash
    unbiased, other_norm = space("hidden: 12, hidden_bias: false"), space("hidden: 12", "norm_eps: 0.001")
    assert len({plain.hash, unbiased.hash, other_norm.hash}) == 3
    for one in (unbiased, other_norm):
        assert Space.from_description(one.describe()) == one
    costs = [Costs.of(one, one.smallest()) for one in (plain, unbiased)]
    assert costs[0].params - costs[1].params == 12
    assert costs[0].size_bytes - costs[1].size_bytes == 4 * 12
    with pytest.raises(InputError, match="have `hidden`"):
        space("hidden_bias: false")
