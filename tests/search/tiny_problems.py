"""Tiny spaces, estimators and tables to search in: small enough that brute force can be the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.indexed import Index, IndexedEstimator, SizeDeviation
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.blocks.inverted_residual import InvertedResidualConfig
from deploynas.latency.table import LatencyTable
from deploynas.search.problem import Limit
from deploynas.space import Architecture, Space, Stage
from deploynas.space.link import Link

FASHION = Space.load("fashion")
CONFIGS = tuple(InvertedResidualConfig(ratio, kernel, 0.0) for ratio in (1.0, 3.0, 6.0) for kernel in (3, 5))


def tiny_space(shape: list[tuple[tuple[int, ...], int]], sizes: tuple[int, ...] = ()) -> Space:
    """A space of stages given as (depths, number of configurations), and of input sizes to choose from."""
    stages = tuple(Stage(8 * (s + 1), 1, "relu", depths, CONFIGS[:count]) for s, (depths, count) in enumerate(shape))
    return replace(FASHION, name="tiny", stages=stages, sizes=sizes)


def like_blocks(space: Space, draw) -> list:
    """A number for every option of every choice."""
    return [[[draw() for _ in choice.options] for choice in group.choices] for group in space.decisions.groups]


def like_depths(space: Space, draw) -> list:
    return [[draw() for _ in group.depths] for group in space.decisions.groups]


def random_index(space: Space, base: float, depth, block, by_size: bool = False) -> Index:
    """An index of drawn contributions; `by_size`: with others at every input size."""
    drawn = like_depths(space, depth), like_blocks(space, block)
    deviations = [SizeDeviation(like_depths(space, depth), like_blocks(space, block)) for _ in space.sizes]
    return Index.from_arrays(space, base, *drawn, by_size=deviations if by_size else ())


def random_table(space: Space, fixed, draw) -> LatencyTable:
    """With numbers of its own at every input size."""
    numbers = [(fixed(), like_blocks(at_size, draw)) for at_size in space.each_size()]
    if not space.sizes:
        return LatencyTable.from_arrays(space, *numbers[0])
    return LatencyTable.from_arrays(space, [own for own, _ in numbers], [blocks for _, blocks in numbers])


def brute_force(space: Space, estimator, limits: list[Limit]) -> list[tuple[float, Architecture]]:
    """Every network within all limits, best first."""
    from deploynas.costs import Costs

    def within(arch: Architecture, limit: Limit) -> bool:
        if isinstance(limit.of, str):
            return getattr(Costs.of(space, arch), limit.of) <= limit.budget
        return limit.of.predict(arch) <= limit.budget

    inside = [a for a in space.enumerate() if all(within(a, limit) for limit in limits)]
    return sorted(((estimator.predict(a), a) for a in inside), key=lambda found: -found[0])


def random_link(rng: np.random.Generator, indices: int) -> Link:
    units = int(rng.integers(0, 4))
    offsets = rng.normal(size=int(rng.integers(0, 3)))
    return Link(
        constant=float(rng.normal()),
        linear=rng.choice([0.0, 0.1, 1.0], size=indices),
        rise=rng.choice([0.0, 0.5, 2.0], size=units),
        steepness=rng.choice([0.0, 0.3, 1.0, 5.0], size=(units, indices)),
        shift=rng.normal(size=units),
        offsets=offsets,
        weights=np.full(len(offsets), 1 / max(1, len(offsets))),
    )


SHAPES = st.lists(
    st.tuples(st.sampled_from([(1,), (2,), (1, 2), (1, 3), (2, 3), (1, 2, 3)]), st.integers(1, 3)),
    min_size=1,
    max_size=3,
).filter(lambda shape: tiny_space(shape).size() <= 250)

# few values make ties; decimals make sums whose last bits depend on the order; floats are what is measured
LATENCIES = ([0.0, 1.0, 2.0], [0.0, 0.1, 0.2, 0.3, 0.7], None)
WORTHS = ([-1.0, 0.0, 1.0], [-0.02, 0.0, 0.01, 0.03], None)


@st.composite
def instances(draw, tables: int = 1, indices: int = 0, sizes: tuple[int, ...] = (), by_size: bool = False):
    """(space, estimator, tables) with ties, negative contributions, zero latencies, single-depth stages.

    Without indices the estimator is a plain sum; a link may be flat or saturate, which makes more ties. `by_size`: what
    decisions add to an index differs between input sizes.
    """
    space = tiny_space(draw(SHAPES), sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))  # one draw: hypothesis is slow at hundreds
    worths, latencies = draw(st.sampled_from(WORTHS)), draw(st.sampled_from(LATENCIES))

    def worth() -> float:
        return rng.choice(worths) if worths else rng.uniform(-0.1, 0.1)

    def latency() -> float:
        return rng.choice(latencies) if latencies else rng.uniform(0, 5)

    estimator: StoredEstimator
    if indices:
        sums = [random_index(space, 0.5, worth, worth, by_size) for _ in range(indices)]
        estimator = IndexedEstimator(space, tuple(sums), random_link(rng, indices))
    else:
        estimator = BilinearEstimator.from_arrays(space, 0.5, like_depths(space, worth), like_blocks(space, worth))
    return space, estimator, [random_table(space, latency, latency) for _ in range(tables)]


@st.composite
def budgets_of(draw, space: Space, table: LatencyTable) -> float:
    """Often exactly the latency of a network, which must then be within it; sometimes out of reach."""
    networks = list(space.enumerate())
    latency = table.predict(networks[draw(st.integers(0, len(networks) - 1))])
    return max(1e-6, latency * draw(st.sampled_from([1.0, 1.0, 1.0, 0.9, 1.1])))


def random_instance(space: Space, seed: int, tables: int = 1):
    rng = np.random.default_rng(seed)
    estimator = BilinearEstimator.from_arrays(
        space,
        0.6,
        like_depths(space, lambda: rng.normal(0, 0.01)),
        like_blocks(space, lambda: rng.normal(0, 0.005)),
    )
    made = [random_table(space, lambda: 1.0, lambda: rng.uniform(0.2, 1.2)) for _ in range(tables)]
    return estimator, made


def random_indexed(space: Space, seed: int, indices: int, by_size: bool = False) -> IndexedEstimator:
    """With a link that bends and rises everywhere."""
    rng = np.random.default_rng(seed)
    sums = [
        random_index(space, 0.0, lambda: rng.normal(0, 0.2), lambda: rng.normal(0, 0.1), by_size)
        for _ in range(indices)
    ]
    bends = np.eye(indices) + 0.2
    link = Link(0.6, np.full(indices, 0.02), np.full(indices, 0.1), bends, rng.normal(size=indices))
    return IndexedEstimator(space, tuple(sums), link)


def random_quadratic(space: Space, seed: int, pairs: int) -> QuadraticEstimator:
    rng = np.random.default_rng(seed)
    size = len(space.decisions)
    triples = [(*rng.integers(size, size=2).tolist(), rng.normal(0, 0.02)) for _ in range(pairs)]
    return QuadraticEstimator.from_arrays(space, 0.6, rng.normal(0, 0.01, size), triples)
