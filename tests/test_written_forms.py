"""Once-for-all's JSON and plain numbers name the networks that timm's notation names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploynas.errors import InputError
from deploynas.space import PRESETS, Architecture, Space
from deploynas.space.once_for_all import to_json

OFA = Space.load("ofa-mbv3")
IMAGENET = Space.load("imagenet")
# two blocks in every stage, then three in the last
WRITTEN = {"ks": [3, 7, 0, 0] * 4 + [5, 5, 3, 0], "e": [3, 6, 0, 0] * 4 + [4, 4, 6, 0], "d": [2, 2, 2, 2, 3]}


def written(**changes: object) -> str:
    return json.dumps({**WRITTEN, **changes})


def test_kernels_and_ratios_are_those_of_the_blocks() -> None:
    network = Architecture.parse(written(), OFA)
    assert network.depths == (2, 2, 2, 2, 3)
    assert [(c.ratio, c.kernel) for c in (network.config(4, b) for b in range(3))] == [(4, 5), (4, 5), (6, 3)]
    assert str(network).startswith("ds_r1_k3_s1_e1_c16_nre | ir_r1_k3_s2_e3_c24_nre ir_r1_k7_s1_e6_c24_nre | ")


@pytest.mark.parametrize(("name", "blocks"), [("ofa-mbv3", 20), ("ofa-mbv3-w1.2", 20), ("ofa-proxyless", 21)])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_what_is_written_is_read_back(name: str, blocks: int, seed: int) -> None:
    space = Space.load(name)
    network = space.sample(np.random.default_rng(seed))
    given_back = json.loads(to_json(network))
    assert len(given_back["ks"]) == len(given_back["e"]) == blocks
    assert Architecture.parse(json.dumps(given_back), space) == network
    assert Architecture.parse(str(given_back), space) == network  # as Python prints it


def test_a_stage_without_a_choice_of_depth_takes_any_depth_that_is_written() -> None:
    """Once-for-all draws a depth for the last stage of ProxylessNAS too, which has one block."""
    space = Space.load("ofa-proxyless")
    network = space.smallest()
    drawn = json.loads(to_json(network))
    assert Architecture.parse(json.dumps({**drawn, "d": [*drawn["d"][:-1], 4]}), space) == network


@pytest.mark.parametrize("name", PRESETS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_choices_and_rows_are_read_in_every_space(name: str, seed: int) -> None:
    space = Space.load(name)
    network = space.sample(np.random.default_rng(seed))
    assert Architecture.parse(str([list(stage) for stage in network.choices]), space) == network
    assert Architecture.parse(str(space.rows([network])[0].tolist()), space) == network


def test_blocks_beyond_the_depth_do_not_count() -> None:
    kernels = [*WRITTEN["ks"][:2], 99, 5, *WRITTEN["ks"][4:]]
    assert Architecture.parse(written(ks=kernels), OFA) == Architecture.parse(written(), OFA)


@pytest.mark.parametrize("extra", [{"r": 224}, {"r": [224]}, {"wid": None}, {"r": None, "wid": None}])
def test_size_and_width_may_be_there(extra: dict[str, object]) -> None:
    assert Architecture.parse(written(**extra), OFA) == Architecture.parse(written(), OFA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not Once-for-all's JSON"),
        ('{"ks": [3], "e": [3]}', "no `d`"),
        (written(colour=1), "unknown `colour`"),
        (written(r=192), "`r` 192, but space `ofa-mbv3` has 224"),
        (written(wid=1.2), "one width"),
        (written(d=[2, 2, 2, 2]), "`d` has 4 entries, space `ofa-mbv3` has 5"),
        (written(d=[2, 2, 2, 2, 5]), "stage 5: depth 5"),
        (written(ks=[3]), "`ks` has 1 entries"),
        (written(e=[3, True] * 10), "must be a list of numbers"),
        (written(ks=[9, *WRITTEN["ks"][1:]]), "stage 1, block 1: no configuration e3_k9"),
        (str([[0, 0]] * 4), "has 4 stages, expected 5"),
        (str([[0, 0]] * 4 + [[0, 9]]), "no option 9"),
        (str([0] * 24), "of shape"),
        (str([0] * 24 + [9]), "option 9"),
        (str([0] * 24 + [10**30]), "a list of stages"),
    ],
)
def test_a_network_outside_the_space_says_where(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Architecture.parse(text, OFA)


def test_a_space_with_more_choices_than_kernel_and_ratio_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot tell `e3_k3` from `e3_k3_se0\.25` in stage 1 of space `imagenet`"):
        Architecture.parse(written(), IMAGENET)
