"""Every way to write decisions down says the same network, and the sampler is uniform."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploynas.errors import InputError
from deploynas.space import Choice, Decisions, Group, Option, Space


def choices_named(group: int, sizes: list[int]) -> tuple[Choice, ...]:
    return tuple(
        Choice(f"choice {group}.{i}", tuple(Option(f"option {o}", (("level", float(o)),)) for o in range(size)))
        for i, size in enumerate(sizes)
    )


@st.composite
def layouts(draw) -> Decisions:
    """Groups of one to three choices, not all of the same size, some with a single depth."""
    groups = []
    for g in range(draw(st.integers(1, 3))):
        sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        shallower = draw(st.lists(st.integers(1, len(sizes)), unique=True))
        groups.append(Group(f"group {g}", tuple(sorted({*shallower, len(sizes)})), choices_named(g, sizes)))
    return Decisions(tuple(groups))


CELL = Decisions(
    (Group("cell", (2,), choices_named(0, [2, 3])), Group("size", (1,), choices_named(1, [4]))), "group", "edge"
)


def test_the_layout_by_hand():
    """Two stages: depths 1 or 2 of blocks with 3 options, and depths 1 or 3 of blocks with 2."""
    groups = Group("a", (1, 2), choices_named(0, [3, 3])), Group("b", (1, 3), choices_named(1, [2, 2, 2]))
    decisions = Decisions(groups)
    assert decisions.sizes == (2, 2, 3, 3, 2, 2, 2)
    assert decisions.starts.tolist() == [0, 2, 4, 7, 10, 12, 14, 16]
    assert (len(decisions), decisions.columns, decisions.alphas) == (16, 7, 12)
    assert decisions.places == ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2))
    assert decisions.home == (0, 1, 0, 1, 1)
    assert [decisions.column(g, i) for g, i in decisions.places] == [2, 3, 4, 5, 6]
    assert decisions.names[1] == "depth of b" and decisions.names[3] == "choice 0.1"
    row = np.array([[0, 1, 2, 1, 0, 1, 1]], dtype=decisions.dtype)  # the second choice of `a` does not count
    assert decisions.counts(row).tolist() == [[True, True, True, False, True, True, True]]
    assert decisions.canonical(row).tolist() == [[0, 1, 2, 0, 0, 1, 1]]
    assert decisions.choices_of(row[0]) == ((2,), (0, 1, 1))
    assert np.flatnonzero(decisions.one_hot(row)[0]).tolist() == [0, 3, 6, 7, 10, 13, 15]
    assert np.flatnonzero(decisions.active(row)[0]).tolist() == [0, 3, 6, 10, 13, 15]
    assert decisions.entries(row).tolist() == [[2, 3, 6, 9, 11, 12, 15]]  # alpha first, then beta
    assert decisions.combinations() == (3 + 9) * (2 + 8)


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_every_network_survives_every_way_to_write_it(decisions):
    networks = list(decisions.enumerate())
    assert len(set(networks)) == len(networks) == decisions.combinations()
    rows = decisions.rows(networks)
    decisions.require_rows(rows)
    assert [decisions.choices_of(row) for row in rows] == networks
    assert (decisions.canonical(rows) == rows).all()
    vectors = decisions.one_hot(rows)
    assert (np.add.reduceat(vectors, decisions.starts[:-1], axis=1) == 1).all()
    assert all((decisions.row_of(vector) == row).all() for vector, row in zip(vectors, rows, strict=True))
    encoded = vectors[:, decisions.encoding]
    assert (encoded[:, decisions.encoded_at] == vectors).all()
    assert all(
        set(np.flatnonzero(x)) == set(entries) for x, entries in zip(encoded, decisions.entries(rows), strict=True)
    )
    depth, choice = decisions.ragged(np.arange(len(decisions)))
    assert (decisions.flat(depth, choice) == np.arange(len(decisions))).all()
    for choices in networks:
        decisions.require_choices(choices)


@settings(max_examples=200, deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1))
def test_what_does_not_count_changes_nothing(decisions, seed):
    rows = decisions.draw(20, np.random.default_rng(seed))
    decisions.require_rows(rows)
    assert rows.dtype == decisions.dtype
    counts = decisions.counts(rows)
    for row, mask in zip(rows, counts, strict=True):
        expected = [True] * len(decisions.groups)
        for group, depth in zip(decisions.groups, row, strict=False):
            expected += [i < group.depths[depth] for i in range(len(group.choices))]
        assert mask.tolist() == expected
    other = np.where(counts, rows, decisions.draw(20, np.random.default_rng(seed + 1)))
    assert (decisions.canonical(other) == decisions.canonical(rows)).all()
    assert (decisions.one_hot(other) == decisions.one_hot(rows)).all()
    assert (decisions.active(rows).sum(axis=1) == counts.sum(axis=1)).all()
    assert [decisions.choices_of(row) for row in other] == [decisions.choices_of(row) for row in rows]


@pytest.mark.parametrize("decisions", [CELL, Space.load("imagenet").decisions], ids=["cell", "imagenet"])
def test_the_sampler_is_uniform_and_independent(decisions):
    n = 20_000
    x = decisions.draw(n, np.random.default_rng(0))
    for column, size in enumerate(decisions.sizes):
        shares = np.bincount(x[:, column], minlength=size) / n
        assert np.abs(shares - 1 / size).max() < 4.5 * (1 / size / n) ** 0.5
    for a, b in itertools.pairwise(range(decisions.columns)):
        together = np.zeros((decisions.sizes[a], decisions.sizes[b]))
        np.add.at(together, (x[:, a], x[:, b]), 1 / n)
        assert np.abs(together - 1 / together.size).max() < 5 * (1 / together.size / n) ** 0.5


def test_a_space_draws_rows_and_samples_from_the_same_stream():
    space = Space.load("fashion")
    (drawn,) = space.architectures(space.decisions.draw(1, np.random.default_rng(3)))
    assert space.sample(np.random.default_rng(3)) == drawn


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_space_writes_its_architectures_as_rows_and_as_encodings(seed):
    space = Space.load("imagenet")
    architectures = space.architectures(space.decisions.draw(3, np.random.default_rng(seed)))
    assert space.architectures(space.rows(architectures)) == architectures
    for architecture in architectures:
        alpha, beta = space.encode(architecture)
        assert (len(alpha), len(beta)) == (5 * 4 * 12, 5 * 3)
        assert space.decode(alpha, beta) == architecture
    with pytest.raises(InputError, match="belongs to space"):
        space.rows([Space.load("fashion").smallest()])


def test_a_space_tells_what_its_options_are():
    space = Space.load("imagenet")
    group = space.decisions.groups[2]
    assert (group.name, group.depths) == ("stage 3", space.stages[2].depths)
    assert group.choices[1].name == "stage3/block2"
    for option, config in zip(group.choices[1].options, space.stages[2].configs, strict=True):
        assert option.label == str(config)
        assert dict(option.factors) == {"expansion": config.ratio, "kernel": config.kernel, "se": config.se}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, 3), dtype=int), r"shape \(networks, 5\)"),
        (np.zeros(5, dtype=int), "integers of shape"),
        (np.zeros((2, 5)), "integers of shape"),
        (np.array([[0, 0, 0, 0, 4]]), r"option 4 of the choice 1\.0, which does not have it"),
        (np.array([[0, 0, 0, -1, 0]]), r"option -1 of the choice 0\.1"),
        (np.array([[1, 0, 0, 0, 0]]), "option 1 of the depth of cell"),
    ],
)
def test_rows_that_are_none_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        CELL.require_rows(rows)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([[0, 0]], "a network has 1 groups, expected 2"),
        ([[0], [0]], "cell has depth 1, allowed: 2"),
        ([[0, 3], [0]], r"choice 0\.1 has no option 3 \(0 to 2\)"),
    ],
)
def test_choices_that_are_no_network_are_refused(choices, message):
    with pytest.raises(InputError, match=message):
        CELL.require_choices(choices)


@pytest.mark.parametrize("depths", [(), (2, 1), (1, 1, 2), (1,), (1, 3)])
def test_depths_that_do_not_rise_to_the_number_of_choices_are_refused(depths):
    with pytest.raises(InputError, match="depths must rise"):
        Group("cell", depths, choices_named(0, [2, 2]))


def test_an_encoding_that_is_not_one_hot_names_the_decision():
    vector = CELL.one_hot(CELL.rows([((1, 2), (3,))]))[0]
    vector[CELL.slices[3]] = 0.5
    with pytest.raises(InputError, match=r"choice 0\.1 is not one-hot"):
        CELL.row_of(vector)
