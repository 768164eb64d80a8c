"""The latency table of cells: every geometry of an operation once, an entry the sum over all cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_spaces import CELLS

import deploynas as dn
from deploynas.device import Device
from deploynas.latency.correction import IsolatedTable
from deploynas.latency.entries import part_entries
from deploynas.latency.profile import _isolated_tables
from deploynas.latency.table import LatencyTable
from deploynas.space import Architecture, CellSpace, Space

NONE, SKIP, CONV, POOL = range(4)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> CellSpace:
    """One cell of 2 channels, two of 4."""
    path = tmp_path_factory.mktemp("cells") / "cells.yaml"
    path.write_text(CELLS)
    space = Space.load(path)
    assert isinstance(space, CellSpace)
    return space


def isolated(space: CellSpace) -> IsolatedTable:
    """As if the n-th part that is measured took 2 ** n ms: every sum says what is in it."""
    latencies = {entry.key: 2.0**n for n, entry in enumerate(part_entries(space).values())}
    (table,) = _isolated_tables(space, latencies)
    return table


def test_an_entry_is_its_operation_in_all_cells(cells: CellSpace) -> None:
    names = [entry.key for entry in part_entries(cells).values()]
    assert names == [
        *("stem", "stage2/reduction", "head"),
        *("edge0-1/skip_connect", "edge0-1/skip_connect/2"),
        *("edge0-1/nor_conv_3x3", "edge0-1/nor_conv_3x3/2"),
        *("edge0-1/avg_pool_3x3", "edge0-1/avg_pool_3x3/2"),
    ]
    table = isolated(cells)
    assert table.fixed_ms == 2**0 + 2**1 + 2**2
    one_edge = (0.0, 2.0**3 + 2 * 2.0**4, 2.0**5 + 2 * 2.0**6, 2.0**7 + 2 * 2.0**8)
    assert table.block_ms == ((one_edge,) * 3,)


def test_a_correction_is_fitted_on_what_networks_have(cells: CellSpace) -> None:
    """Where edge 1-2 is not there, neither is what leads to it."""
    table = isolated(cells)
    leads_nowhere = Architecture.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|", cells)
    without_it = Architecture.parse("|none~0|+|skip_connect~0|none~1|", cells)
    assert table.terms(leads_nowhere) == table.terms(without_it)
    assert table.terms(without_it)["scale"] == table.fixed_ms + table.block_ms[0][1][SKIP]
    assert table.terms(without_it)["per_block"] == 3  # a skip in each of three cells
    whole = table.terms(cells.heaviest())
    assert whole["scale"] == table.fixed_ms + 3 * table.block_ms[0][0][CONV] and whole["per_block"] == 9


def test_a_profile_makes_a_table_of_edges(cells: CellSpace, quick: Device, tmp_path: Path) -> None:
    table = dn.profile(quick, cells)
    table.save(tmp_path / "table.json")
    table = LatencyTable.load(tmp_path / "table.json")
    assert table.space == cells and len(table.block_ms[0]) == 3
    assert table.evidence is not None and len(table.evidence.validation.networks) == 3
    for edge in table.block_ms[0]:
        assert edge[NONE] == 0 and all(ms >= 0 for ms in edge)
    architecture = Architecture.parse("|nor_conv_3x3~0|+|avg_pool_3x3~0|skip_connect~1|", cells)
    wanted = table.fixed_ms + table.block_ms[0][0][CONV] + table.block_ms[0][1][POOL] + table.block_ms[0][2][SKIP]
    assert table.predict(architecture) == pytest.approx(wanted)
    assert table.predict_rows(cells.rows([architecture]))[0] == pytest.approx(wanted)
