"""A space that leaves its input size open: what is decided, what it builds, and how it is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_spaces import SIZED

from deploynas import graph
from deploynas.costs import Costs
from deploynas.errors import InputError
from deploynas.space import Architecture, Space


def load(tmp_path: Path, text: str) -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return Space.load(path)


def with_input(text: str) -> str:
    return SIZED.replace("input: {channels: 1, sizes: [16, 20, 28]}", f"input: {{channels: 1, {text}}}")


def test_the_size_is_one_more_choice(sized: Space) -> None:
    one = sized.at(28)
    assert sized.size() == 3 * one.size() == len(set(sized.enumerate()))
    assert len(sized.decisions) == len(one.decisions) + 1 + 3  # its only depth, and its options
    assert (sized.height, sized.width) == (28, 28)
    assert sized.smallest().size_index == 0 and sized.heaviest().size_index == 2


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_notation_and_encoding_invert(sized: Space, seed: int) -> None:
    architecture = sized.sample(np.random.default_rng(seed))
    assert Architecture.parse(str(architecture), sized) == architecture
    assert sized.decode(*sized.encode(architecture)) == architecture
    blocks, size = str(architecture).split(" @")
    assert int(size) == sized.sizes[architecture.size_index] and str(architecture.at_its_size) == blocks


def test_a_network_builds_what_it_builds_in_the_space_of_its_size(sized: Space) -> None:
    for size in sized.sizes:
        network = sized.architecture([[0, 5], [1], [sized.sizes.index(size)]])
        alone = sized.at(size).architecture([[0, 5], [1]])
        assert network.at_its_size == alone
        assert sized.parts(network) == sized.at(size).parts(alone)
        assert Costs.of(sized, network) == Costs.of(sized.at(size), alone)
        shape = graph.network(sized, network).graph.input[0].type.tensor_type.shape
        assert [dim.dim_value for dim in shape.dim] == [1, 1, size, size]


def test_a_space_of_a_size_is_the_space_that_says_so(sized: Space, tmp_path: Path) -> None:
    said = load(tmp_path, with_input("height: 20, width: 20"))
    assert said == sized.at(20) and said.hash == sized.at(20).hash
    assert load(tmp_path, with_input("sizes: [20]")).hash == said.hash  # nothing to choose
    assert "sizes" not in said.describe()


def test_a_description_survives(sized: Space) -> None:
    assert Space.from_description(sized.describe()) == sized
    assert Space.from_description(sized.describe()).hash == sized.hash
    assert replace(sized, sizes=(16, 28)).hash != sized.hash


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sizes: [28, 20]", "rising"),
        ("sizes: []", "at least 1"),
        ("sizes: [4, 28]", "greater than or equal to 8"),
        ("sizes: [20, 28], height: 28", "not both"),
        ("height: 28", "`height` and `width`, or `sizes`"),
        ("sizes: [20.5, 28]", "integer"),
    ],
)
def test_a_wrong_input_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(tmp_path, with_input(text))


def test_a_network_must_say_its_size_where_that_is_open(sized: Space) -> None:
    text = "ir_k3_e1_c8 | ir_k3_e1_c16"
    with pytest.raises(InputError, match="leaves the input size open"):
        Architecture.parse(text, sized)
    with pytest.raises(InputError, match="no input size"):
        Architecture.parse(f"{text} @24", sized)
    assert Architecture.parse(f"{text} @20", sized).size_index == 1


def test_a_network_may_say_the_only_size(sized: Space) -> None:
    text, space = "ir_k3_e1_c8 | ir_k3_e1_c16", sized.at(20)
    assert Architecture.parse(f"{text} @20", space) == Architecture.parse(text, space)
    with pytest.raises(InputError, match="no input size"):
        Architecture.parse(f"{text} @28", space)
    with pytest.raises(InputError, match="has no input size 24"):
        sized.at(24)
