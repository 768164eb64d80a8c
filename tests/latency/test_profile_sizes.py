"""One table for all input sizes: every geometry is measured once, and every network predicted at its own size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deploynas as dn
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.latency.entries import part_entries
from deploynas.latency.entry import build
from deploynas.latency.table import LatencyTable
from deploynas.space import Space


@pytest.fixture(scope="module")
def table(sized: Space, quick: Device) -> LatencyTable:
    return dn.profile(quick, sized)


def test_parts_of_every_size_are_measured(table: LatencyTable, sized: Space) -> None:
    assert table.evidence is not None
    names = [part.name for part in table.evidence.parts]
    assert len(names) == len(set(names)) == sum(len(part_entries(at_size)) for at_size in sized.each_size())
    assert {name.split("/")[0] for name in names} == {"16", "20", "28"}


def test_equal_geometries_of_two_sizes_are_measured_once(sized: Space) -> None:
    """27 and 28 pixels are 14 behind a stem of stride 2: all blocks are alike, and only the stem is not."""
    neighbours = replace(sized, sizes=(27, 28))
    one, both = part_entries(sized.at(28)), part_entries(neighbours)
    assert [entry.key for entry in both.values() if entry.size == 28] == ["28/stem"]
    assert len(both) == len(one) + 1


def test_a_worker_builds_the_part_at_its_size(sized: Space, quick: Device) -> None:
    import onnx

    for part, entry in part_entries(sized).items():
        model = onnx.ModelProto.FromString(build(entry, sized, quick))
        sides = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim][1:]  # the batch is free
        assert sides == [part.in_channels, part.height, part.width]


def test_the_table_survives_its_file(table: LatencyTable, sized: Space, tmp_path: Path) -> None:
    table.save(tmp_path / "table.json")
    read = LatencyTable.load(tmp_path / "table.json")
    rng = np.random.default_rng(0)
    networks = [sized.sample(rng) for _ in range(20)]
    assert [read.predict(network) for network in networks] == [table.predict(network) for network in networks]
    rows = read.predict_rows(sized.rows(networks))
    np.testing.assert_allclose(rows, [table.predict(network) for network in networks])
    document = json.loads((tmp_path / "table.json").read_text())
    assert [own["size"] for own in document["sizes"]] == [16, 20, 28]
    assert "fixed_ms" not in document and "block_ms" not in document
    document["sizes"].pop()
    (tmp_path / "cut.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"cut\.json: a table of space `sized` has `sizes` 16, 20, 28"):
        LatencyTable.load(tmp_path / "cut.json")


def test_what_an_option_takes_on_average_is_the_mean_over_all_networks(sized: Space) -> None:
    rng = np.random.default_rng(1)
    shapes = [(stage.max_depth, len(stage.configs)) for stage in sized.stages]
    table = LatencyTable.from_arrays(
        sized, [1.0, 2.0, 3.0], [[rng.uniform(0.1, 1, shape).tolist() for shape in shapes] for _ in sized.sizes]
    )
    rows = sized.decisions.draw(200_000, rng)
    latencies = table.predict_rows(rows)
    *_, ((small, middle, large),) = table.option_ms()
    for i, expected in enumerate((small, middle, large)):
        assert latencies[rows[:, -1] == i].mean() == pytest.approx(expected, rel=0.005)


def test_arrays_must_have_an_entry_for_every_size(sized: Space) -> None:
    with pytest.raises(InputError, match="each of 3 input sizes"):
        LatencyTable.from_arrays(sized, 1.0, [])
    with pytest.raises(InputError, match="fixed_ms must be finite"):
        LatencyTable.from_arrays(sized.at(20), [1.0], [])
