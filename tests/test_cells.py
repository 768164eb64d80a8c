"""A cell space: NAS-Bench-201 as it was published, and every cell of a small one against the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_spaces import CELLS, RAGGED_CELLS
from torch import Tensor

from deploynas import graph
from deploynas.costs import ADDITIVE, Costs, resource_table
from deploynas.errors import InputError
from deploynas.space import Architecture, CellSpace, Space

NASBENCH = Space.load("nasbench201")


def written(folder: Path, text: str) -> CellSpace:
    path = folder / "cells.yaml"
    path.write_text(text)
    space = Space.load(path)
    assert isinstance(space, CellSpace)
    return space


@pytest.fixture
def cells(tmp_path: Path) -> CellSpace:
    return written(tmp_path, CELLS)


@pytest.fixture
def ragged(tmp_path: Path) -> CellSpace:
    return written(tmp_path, RAGGED_CELLS)


# -- as published ------------------------------------------------------------------------------------


def test_there_are_as_many_cells_as_the_paper_says() -> None:
    assert NASBENCH.size() == 15_625
    assert [edge.name for edge in NASBENCH.edges] == ["edge0-1", "edge0-2", "edge1-2", "edge0-3", "edge1-3", "edge2-3"]


@pytest.mark.parametrize(
    ("operation", "params", "macs"),
    # by the benchmark's own count; of the classifier it counts the ten biases as operations too
    [("nor_conv_3x3", 1_531_546, 220_119_690), ("none", 73_306, 7_783_050), ("skip_connect", 73_306, 7_783_050)],
)
def test_costs_are_those_of_the_benchmark(operation: str, params: int, macs: int) -> None:
    text = f"|{operation}~0|+|{operation}~0|{operation}~1|+|{operation}~0|{operation}~1|{operation}~2|"
    costs = Costs.of(NASBENCH, Architecture.parse(text, NASBENCH))
    assert (costs.params, costs.macs + 10) == (params, macs)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_benchmarks_notation_is_read_and_written(seed: int) -> None:
    architecture = NASBENCH.sample(np.random.default_rng(seed))
    assert Architecture.parse(str(architecture), NASBENCH) == architecture
    assert str(architecture).count("~") == 6
    spaced = str(architecture).replace("+", " + ")
    assert Architecture.parse(spaced, NASBENCH) == architecture


def test_a_space_describes_itself_and_keeps_its_hash(cells: CellSpace, ragged: CellSpace) -> None:
    for space in (cells, ragged, NASBENCH):
        assert Space.from_description(space.describe()) == space
    assert NASBENCH.hash == "f5caae168e6c4b25"  # files that were made for it keep fitting


# -- files and notation that are wrong ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("|skip_connect~0|", "2 nodes behind its input, the notation has 1"),
        ("|skip_connect~0|+|none~0|", "node 2: .* edges from 0, 1 into it, the notation from 0"),
        ("|skip_connect~0|+|none~0|none~0|", "two edges from node 0"),
        ("|nor_conv_1x1~0|+|none~0|none~1|", "edge0-1: no operation `nor_conv_1x1`"),
        ("|skip~connect|+|none~0|none~1|", "no edge of a cell"),
        ("ir_r1_k3_s1_e2_c8 | ir_r1_k5_s2_e2.5_c16", "no edge of a cell"),
        ('{"ks": [3], "e": [3], "d": [2]}', "no edge of a cell"),
    ],
)
def test_a_foreign_notation_says_what_is_wrong(text: str, said: str, cells: CellSpace) -> None:
    with pytest.raises(InputError, match=said):
        Architecture.parse(text, cells)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("height: 8", "height: 9", "`height` that can be halved"),
        ("avg_pool_3x3]", "max_pool_3x3]", "`skip_connect`, `nor_conv_3x3`"),
        ("avg_pool_3x3]", "skip_connect]", "not repeat"),
        ("nodes: 3", "nodes: 3\nedges: [{source: 0, target: 2}]", "edge into every node"),
        ("nodes: 3", "nodes: 3\nedges: [{source: 2, target: 1}]", "to a later one"),
        ("nodes: 3", "nodes: 3\nhead: {features: 8}", "`head`"),
        ("kind: cell", "kind: graph", "no kind of space `graph`"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        written(tmp_path, CELLS.replace(old, new))


# -- graphs ------------------------------------------------------------------------------------------


class Definition:
    """What a network of cells computes, as its definition says, with weights by the names of the graph."""

    def __init__(self, space: CellSpace, seed: int) -> None:
        self.space, self.rng = space, np.random.default_rng(seed)
        self.weights: dict[str, np.ndarray] = {}

    def weight(self, name: str, *shape: int) -> Tensor:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        value = self.rng.normal(0, fan_in**-0.5, shape).astype(np.float32)
        return torch.from_numpy(self.weights.setdefault(name, value))

    def conv(self, name: str, x: Tensor, out: int, kernel: int, stride: int = 1, bias: bool = True) -> Tensor:
        weight = self.weight(f"{name}/weight", out, x.shape[1], kernel, kernel)
        b = self.weight(f"{name}/bias", out) if bias else None
        return F.conv2d(x, weight, b, stride, kernel // 2)

    def edge(self, name: str, operation: str, x: Tensor) -> Tensor:
        if operation == "none":
            return torch.zeros_like(x)
        if operation == "skip_connect":
            return x
        kernel = int(operation[-1])
        if operation.startswith("avg_pool"):
            return F.avg_pool2d(x, kernel, 1, kernel // 2, count_include_pad=False)
        return self.conv(f"{name}/conv", F.relu(x), x.shape[1], kernel)

    def logits(self, architecture: Architecture, x: Tensor) -> Tensor:
        space = self.space
        x = self.conv("stem/conv", x, space.stages[0].channels, 3, space.stem_stride)
        for s, stage in enumerate(space.stages):
            if s:
                name = f"stage{s + 1}/reduction"
                y = F.relu(self.conv(f"{name}/first", F.relu(x), stage.channels, 3, 2))
                y = self.conv(f"{name}/second", y, stage.channels, 3)
                x = y + self.conv(f"{name}/shortcut", F.avg_pool2d(x, 2), stage.channels, 1, bias=False)
            for k in range(stage.cells):
                nodes = [x, *(torch.zeros_like(x) for _ in range(space.nodes - 1))]
                for edge, o in zip(space.edges, architecture.choices[0], strict=True):
                    name = f"stage{s + 1}/cell{k + 1}/{edge.name}"
                    made = self.edge(name, edge.operations[o], nodes[edge.source])
                    nodes[edge.target] = nodes[edge.target] + made
                x = nodes[-1]
        channels = x.shape[1]
        scale, shift = self.weight("head/norm/weight", channels, 1, 1, 1), self.weight("head/norm/bias", channels)
        x = F.relu(x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)).mean((2, 3))
        classes = space.classes
        return F.linear(
            x, self.weight("head/classifier/weight", classes, channels), self.weight("head/classifier/bias", classes)
        )


def run(model: onnx.ModelProto, x: Tensor) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x.numpy()})[0]


def images(space: Space, count: int = 2) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(count, space.in_channels, space.height, space.width)


def compare(space: CellSpace, architecture: Architecture, seed: int = 0) -> np.ndarray:
    definition, x = Definition(space, seed), images(space)
    wanted = definition.logits(architecture, x).numpy()
    model = graph.network(space, architecture, definition.weights, batch=None)
    onnx.checker.check_model(model, full_check=True)
    found = run(model, x)
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-4, err_msg=str(architecture))
    return found


def test_every_cell_computes_what_its_definition_says(cells: CellSpace) -> None:
    assert cells.size() == 64
    alike = 0
    for architecture in cells.enumerate():
        found = compare(cells, architecture)
        connected = cells.connected(architecture)
        alike += not connected
        if not connected:  # the logits are there, and the same for every image
            np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert alike == 1 * (4 * 4 - 3 * 3)  # nothing on 0-2, and not something on both 0-1 and 1-2


def test_edges_may_be_missing_and_have_operations_of_their_own(ragged: CellSpace) -> None:
    assert ragged.size() == 3 * 2 * 1 * 5
    for architecture in ragged.enumerate():
        compare(ragged, architecture)


def test_the_real_network_computes_what_its_definition_says(rng: np.random.Generator) -> None:
    assert isinstance(NASBENCH, CellSpace)
    compare(NASBENCH, NASBENCH.heaviest())
    compare(NASBENCH, NASBENCH.sample(rng))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # 0-1 leads to node 1, from where nothing goes on
        ("|nor_conv_3x3~0|+|skip_connect~0|none~1|", []),
        # nothing reaches node 1, and a convolution makes its bias of that
        ("|none~0|+|skip_connect~0|nor_conv_3x3~1|", ["node1/zeros", "node1/relu", "edge1-2/conv", "edge1-2/add"]),
        # both convolutions read one ReLU
        (
            "|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|",
            ["node0/relu", "edge0-1/conv", "edge0-2/conv", "edge1-2/add"],
        ),
        ("|none~0|+|none~0|skip_connect~1|", ["node1/zeros"]),
        ("|none~0|+|none~0|none~1|", ["node2/zeros"]),
    ],
)
def test_only_what_reaches_the_output_is_written(text: str, names: list[str], cells: CellSpace) -> None:
    model = graph.network(cells, Architecture.parse(text, cells))
    inside = [node.name for node in model.graph.node if node.name.startswith("stage1/cell1/")]
    assert inside == [f"stage1/cell1/{name}" for name in names]


def test_eight_bits_compute_nearly_the_same_wherever_the_image_has_a_way(cells: CellSpace) -> None:
    """Every operation and a cell without a path too are graphs that the runtime takes."""
    for architecture in list(cells.enumerate())[::5]:
        model = graph.network(cells, architecture, batch=None, precision="int8")
        onnx.checker.check_model(model, full_check=True)
        assert np.isfinite(run(model, images(cells))).all()


# -- costs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ADDITIVE)
def test_a_table_of_costs_adds_up_edge_by_edge(resource: str, cells: CellSpace) -> None:
    """Exactly where every edge reaches the output; a bound where one does not, since that is not built."""
    fixed, table = resource_table(cells, resource)
    for architecture in cells.enumerate():
        total = fixed + sum(table[g][i][o] for g, i, o in architecture.blocks())
        built = getattr(Costs.of(cells, architecture), resource)
        cell = cells.cell(architecture, cells.stage_places[0][0])
        assert built == total if cell.live() == cell.present() else built <= total


def test_no_cell_needs_more_memory_than_the_fullest(cells: CellSpace) -> None:
    fixed, table = resource_table(cells, "peak_memory_bytes")
    peaks = [Costs.of(cells, architecture).peak_memory_bytes for architecture in cells.enumerate()]
    assert max(peaks) == fixed >= np.max(table)
    assert min(peaks) < fixed
