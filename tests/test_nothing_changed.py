"""Answers to stored questions, bit for bit: hashes, costs, what every solver finds, ONNX graphs, notation.

`golden/answers.json` was computed once; `bcfw` and `evolution` answered again when they learned to return as many
different networks as are asked for, each time at least as well as before. A reordering of sums, of random draws or of
tie-breaks shows here, and so does a node that got another name. Floats are stored as `float.hex`; long answers by the
SHA-256 of their canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import deploynas as dn
from deploynas.costs import resource_table
from deploynas.quantization import Quantization
from deploynas.search.problem import Problem
from deploynas.search.solver import load_solver

GOLDEN = Path(__file__).parent / "golden"
ANSWERS = json.loads((GOLDEN / "answers.json").read_text())
RESOURCES = ("params", "macs", "size_bytes", "peak_memory_bytes")
PRESETS = ("imagenet",)
FILES = {
    "fashion": GOLDEN / "spaces" / "first-fashion.yaml",  # the preset of that name as it was when answers were stored
    "ofa-mbv3": GOLDEN / "spaces" / "first-ofa-mbv3.yaml",  # the same
    "ragged-small": GOLDEN / "spaces" / "ragged-small.yaml",
    "ragged-large": GOLDEN / "spaces" / "ragged-large.yaml",
    "golden": GOLDEN / "v1" / "space.full.yaml",
}
SPACES = (*PRESETS, *FILES)
SMALL = ("ragged-small", "ragged-large", "golden")


@cache
def space_of(name: str) -> dn.Space:
    return dn.Space.load(FILES.get(name, name))


def digest(answer: Any) -> str:
    canonical = json.dumps(answer, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def listed(architecture: dn.Architecture) -> list[list[int]]:
    return [list(stage) for stage in architecture.choices]


# -- the space -------------------------------------------------------------------------------------


def space_answer(name: str) -> dict[str, Any]:
    space = space_of(name)
    costs = {resource: resource_table(space, resource) for resource in RESOURCES}
    return {
        "hash": space.hash,
        "size": space.size(),
        "smallest": listed(space.smallest()),
        "heaviest": listed(space.heaviest()),
        "costs": {
            resource: digest([fixed.hex(), [[[cost.hex() for cost in row] for row in stage] for stage in blocks]])
            for resource, (fixed, blocks) in costs.items()
        },
    }


@pytest.mark.parametrize("name", SPACES)
def test_spaces(name: str) -> None:
    assert space_answer(name) == ANSWERS["spaces"][name]


def notation_answer(name: str) -> list[str]:
    return [str(space_of(name).architecture(choices)) for choices in ANSWERS["architectures"][name]]


@pytest.mark.parametrize("name", SPACES)
def test_notation(name: str) -> None:
    texts = notation_answer(name)
    assert texts == ANSWERS["notation"][name]
    parsed = [dn.Architecture.parse(text, space_of(name)) for text in texts]
    assert [listed(architecture) for architecture in parsed] == ANSWERS["architectures"][name]


def encoding_answer(name: str) -> list[str]:
    space = space_of(name)
    vectors = [space.encode(space.architecture(choices)) for choices in ANSWERS["architectures"][name]]
    return [digest([alpha.tolist(), beta.tolist()]) for alpha, beta in vectors]


@pytest.mark.parametrize("name", SPACES)
def test_encodings(name: str) -> None:
    assert encoding_answer(name) == ANSWERS["encodings"][name]


# -- solvers ---------------------------------------------------------------------------------------

VALUES = {  # few values make ties; decimals make sums whose last bits depend on their order
    "any": (None, None),
    "ties": ((-1.0, 0.0, 1.0), (0.0, 1.0, 2.0)),
    "decimals": ((-0.02, 0.0, 0.01, 0.03), (0.1, 0.2, 0.3, 0.7)),
}


@dataclass(frozen=True)
class Instance:
    """A space with an estimator and three latency tables."""

    space: dn.Space
    estimator: dn.BilinearEstimator
    tables: tuple[dn.LatencyTable, ...]

    @property
    def table(self) -> dn.LatencyTable:
        return self.tables[0]

    def limit(self, share: float, table: int = 0) -> dn.Limit:
        """A budget so far along the frontier of that table."""
        points = dn.frontier(self.space, self.estimator, self.tables[table])
        low, high = float(points.latencies_ms[0]), float(points.latencies_ms[-1])
        return dn.Limit(self.tables[table], low + share * (high - low))

    def resource_limit(self, resource: str, share: float) -> dn.Limit:
        costs = (dn.Costs.of(self.space, a) for a in (self.space.smallest(), self.space.heaviest()))
        low, high = (getattr(cost, resource) for cost in costs)
        return dn.Limit(resource, low + share * (high - low))


@cache
def instance(name: str, kind: str, seed: int) -> Instance:
    space, rng = space_of(name), np.random.default_rng(seed)
    worths, latencies = VALUES[kind]

    def draw(values: tuple[float, ...] | None, low: float, high: float) -> float:
        position = float(rng.random())  # nothing but `random`: its stream is the one most sure to stay
        return low + position * (high - low) if values is None else values[int(position * len(values))]

    def blocks(values: tuple[float, ...] | None, low: float, high: float) -> list:
        return [[[draw(values, low, high) for _ in s.configs] for _ in range(s.max_depth)] for s in space.stages]

    depths = [[draw(worths, -0.02, 0.02) for _ in stage.depths] for stage in space.stages]
    estimator = dn.BilinearEstimator.from_arrays(space, 0.6, depths, blocks(worths, -0.01, 0.01))
    tables = tuple(dn.LatencyTable.from_arrays(space, 1.0, blocks(latencies, 0.2, 1.2)) for _ in range(3))
    return Instance(space, estimator, tables)


Question = Callable[[Instance], Any]


def described(results: Sequence[Any]) -> list:
    return [
        [r.accuracy.hex(), [use.predicted.hex() for use in r.limits], listed(r.architecture), r.optimal]
        for r in results
    ]


def short(results: list) -> dict[str, Any]:
    """The first and the last to look at, all of them by their digest."""
    return {"count": len(results), "first": results[0], "last": results[-1], "all": digest(results)}


def frontier(i: Instance) -> dict[str, Any]:
    points = dn.frontier(i.space, i.estimator, i.table)
    return short([[p.latency_ms.hex(), p.accuracy.hex(), listed(p.architecture)] for p in points])


def exact(*shares: float, top: int | None = None) -> Question:
    """Each share a budget of its own; with `top` the so many best."""
    if top is not None:
        [share] = shares
        return lambda i: short(described(dn.search(i.space, i.estimator, [i.limit(share)], top=top)))
    return lambda i: described([dn.search(i.space, i.estimator, [i.limit(share)]) for share in shares])


def three_limits(i: Instance) -> list:
    limits = [i.limit(0.6, 0), i.limit(0.7, 1), i.limit(0.8, 2)]
    return described([dn.search(i.space, i.estimator, limits)])


def three_limits_top(i: Instance) -> list:
    limits = [i.limit(0.6, 0), i.limit(0.7, 1), i.limit(0.8, 2)]
    return described(dn.search(i.space, i.estimator, limits, top=3))


def resources(i: Instance) -> list:
    limits = [i.limit(0.8), i.resource_limit("params", 0.5), i.resource_limit("peak_memory_bytes", 0.5)]
    return described([dn.search(i.space, i.estimator, limits)])


def memory_alone(i: Instance) -> list:
    limits = [i.limit(0.7), i.resource_limit("peak_memory_bytes", 0.3)]
    return described(dn.search(i.space, i.estimator, limits, top=5))


def by(solver: str, share: float, top: int = 1) -> Question:
    return lambda i: described(dn.search(i.space, i.estimator, [i.limit(share)], solver, top=top))


def bcfw_three_limits(i: Instance) -> list:
    limits = [i.limit(0.6, 0), i.limit(0.7, 1), i.resource_limit("params", 0.6)]
    return described([dn.search(i.space, i.estimator, limits, "bcfw", seed=3)])


def evolution(seed: int) -> Question:
    """The paper's settings, but fewer generations."""

    def ask(i: Instance) -> list:
        solver: Any = replace(load_solver("evolution", seed), generations=40)  # type: ignore[type-var]
        problem = Problem.build(i.space, i.estimator, [i.limit(0.5), i.resource_limit("params", 0.6)])
        return [[s.score.hex(), listed(s.architecture)] for s in solver.solve(problem, 3)]

    return ask


def coupled(i: Instance) -> list:
    """An estimator with products across stages, and what the integer form finds."""
    rng = np.random.default_rng(11)
    size = sum(vector.size for vector in i.space.encode(i.space.smallest()))
    linear = 0.02 * (rng.random(size) - 0.5)
    ends = (rng.random((30, 2)) * size).astype(int).tolist()
    pairs = [(a, b, 0.04 * (float(rng.random()) - 0.5)) for a, b in ends]
    estimator = dn.QuadraticEstimator.from_arrays(i.space, 0.6, linear, pairs)
    found = dn.search(i.space, estimator, [i.limit(0.5)], "milp", top=2)
    return [[round(r.accuracy, 12), listed(r.architecture), r.optimal] for r in found]


PROBLEMS: dict[str, tuple[tuple[str, str, int], dict[str, Question]]] = {
    "fashion": (
        ("fashion", "any", 0),
        {
            "frontier": frontier,
            "exact": exact(0.1, 0.4, 0.8),
            "top 20": exact(0.5, top=20),
            "three limits": three_limits,
            "resources": resources,
            "milp": by("milp", 0.4),
            "bcfw": by("bcfw", 0.4, top=3),
            "evolution": evolution(0),
        },
    ),
    "fashion, ties": (
        ("fashion", "ties", 1),
        {"frontier": frontier, "exact": exact(0.2, 0.6), "top 20": exact(0.3, top=20), "bcfw": by("bcfw", 0.6)},
    ),
    "fashion, decimals": (
        ("fashion", "decimals", 2),
        {"frontier": frontier, "top 20": exact(0.6, top=20), "evolution": evolution(5)},
    ),
    "imagenet": (
        ("imagenet", "any", 3),
        {
            "frontier": frontier,
            "exact": exact(0.05, 0.3, 0.6),
            "top 20": exact(0.4, top=20),
            "milp": by("milp", 0.3),
            "bcfw": by("bcfw", 0.3, top=3),
            "bcfw, three limits": bcfw_three_limits,
            "evolution": evolution(1),
        },
    ),
    "imagenet, several limits": (
        ("imagenet", "any", 4),
        {"three limits": three_limits, "resources": resources, "memory alone": memory_alone},
    ),
    "imagenet, decimals": (("imagenet", "decimals", 5), {"frontier": frontier, "top 20": exact(0.5, top=20)}),
    "ragged-small": (
        ("ragged-small", "any", 6),
        {
            "frontier": frontier,
            "top 20": exact(0.5, top=20),
            "three limits": three_limits_top,
            "resources": resources,
            "milp": by("milp", 0.5, top=3),
            "best-of": by("best-of", 0.5, top=3),
            "coupled": coupled,
        },
    ),
    "ragged-small, ties": (
        ("ragged-small", "ties", 7),
        {"frontier": frontier, "exact": exact(0.2, 0.5, 0.9), "top 20": exact(0.5, top=20)},
    ),
    "ragged-small, decimals": (("ragged-small", "decimals", 8), {"frontier": frontier, "bcfw": by("bcfw", 0.5, top=5)}),
    "ragged-large": (
        ("ragged-large", "any", 9),
        {
            "frontier": frontier,
            "exact": exact(0.1, 0.5, 0.9),
            "three limits": three_limits_top,
            "memory alone": memory_alone,
            "milp": by("milp", 0.5),
            "bcfw, three limits": bcfw_three_limits,
            "evolution": evolution(2),
        },
    ),
    "ragged-large, ties": (("ragged-large", "ties", 10), {"frontier": frontier, "top 20": exact(0.4, top=20)}),
    "ragged-large, decimals": (
        ("ragged-large", "decimals", 11),
        {"frontier": frontier, "exact": exact(0.3, 0.7), "evolution": evolution(4)},
    ),
}


def solver_answer(problem: str, question: str) -> Any:
    about, questions = PROBLEMS[problem]
    return questions[question](instance(*about))


@pytest.mark.parametrize(("problem", "question"), [(p, q) for p, (_, questions) in PROBLEMS.items() for q in questions])
def test_solvers(problem: str, question: str) -> None:
    assert solver_answer(problem, question) == ANSWERS["solvers"][problem][question]


# -- ONNX graphs -----------------------------------------------------------------------------------


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers between -1 and 1 that depend on the name alone and are exact on any machine."""
    numbers = (np.arange(int(np.prod(shape)), dtype=np.int64) * 48271 + zlib.crc32(name.encode())) % 2049
    return ((numbers - 1024) / 1024).astype(np.float32).reshape(shape)


def structure(model: onnx.ModelProto, *, with_bytes: bool) -> dict[str, Any]:
    """All that makes a model what it is, whatever the order of its initializers."""

    def attribute(item: onnx.AttributeProto) -> list:
        value = helper.get_attribute_value(item)
        value = list(value) if not isinstance(value, (int, float, bytes)) else value
        return [item.name, item.type, value.hex() if isinstance(value, (float, bytes)) else value]

    def tensor(item: onnx.TensorProto) -> list:
        array = numpy_helper.to_array(item)
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() if with_bytes else None
        return [item.name, str(array.dtype), list(array.shape), content]

    def value(item: onnx.ValueInfoProto) -> list:
        kind = item.type.tensor_type
        return [item.name, kind.elem_type, [d.dim_param or d.dim_value for d in kind.shape.dim]]

    graph = model.graph
    return {
        "nodes": [
            [n.op_type, n.domain, n.name, list(n.input), list(n.output), sorted(map(attribute, n.attribute))]
            for n in graph.node
        ],
        "initializers": sorted(map(tensor, graph.initializer)),
        "inputs": list(map(value, graph.input)),
        "outputs": list(map(value, graph.output)),
        "opset": [[entry.domain, entry.version] for entry in model.opset_import],
        "ir_version": model.ir_version,
        "metadata": sorted([entry.key, entry.value] for entry in model.metadata_props),
    }


FORMS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "int8": {"precision": "int8"},
    "fp32, any batch, opset 21": {"batch": None, "opset": 21},
    "int8, one scale, batch 4": {"precision": "int8", "quantization": Quantization(per_channel=False), "batch": 4},
    "int8, calibrated": {"precision": "int8"},
}


def network_answer(name: str, number: int, form: str) -> str:
    space = space_of(name)
    architecture = space.architecture(ANSWERS["architectures"][name][number])
    weights = {n: weight(n, shape) for n, shape in dn.graph.weight_shapes(space, architecture).items()}
    options = dict(FORMS[form])
    if form == "int8, calibrated":
        # any value of the fp32 graph may be asked for; its range differs from that of its neighbours
        plain = dn.graph.network(space, architecture, weights)
        values = [dn.graph.INPUT, *(node.name for node in plain.graph.node), dn.graph.OUTPUT]
        options["ranges"] = {value: (-1.0 - i % 7 / 8, 2.0 + i % 5 / 4) for i, value in enumerate(values)}
    about = dn.graph.network_metadata(space, architecture)
    model = dn.graph.chain(space.parts(architecture), weights, dn.graph.Form(**options), about)
    return digest(structure(model, with_bytes=True))


# all forms where the space is small, the usual two elsewhere
NETWORKS = [
    (name, number, form)
    for name in SPACES
    for number in range(2)
    for form in (list(FORMS) if name in SMALL else ["fp32", "int8"])
]


@pytest.mark.parametrize(("name", "number", "form"), NETWORKS)
def test_network_graphs(name: str, number: int, form: str) -> None:
    assert network_answer(name, number, form) == ANSWERS["networks"][name][number][form]


def block_answer(name: str, precision: str) -> str:
    """The first and the last configuration of the first and the last block of every stage.

    Weights are the noise that profiling takes, and which noise that is does not matter.
    """
    space = space_of(name)
    places = [
        (s, b, c)
        for s, stage in enumerate(space.stages)
        for b in sorted({0, stage.max_depth - 1})
        for c in sorted({0, len(stage.configs) - 1})
    ]
    models = [dn.graph.block(space, *place, precision=precision) for place in places]
    return digest([structure(model, with_bytes=False) for model in models])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", SPACES)
def test_block_graphs(name: str, precision: str) -> None:
    assert block_answer(name, precision) == ANSWERS["blocks"][name][precision]
