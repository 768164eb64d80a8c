"""Files of results: what is read from them, and how everything that is wrong with one is named by line."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploynas.accuracy.results_table import ResultsFormat, ResultsTable
from deploynas.errors import InputError
from deploynas.space import Space
from deploynas.space.once_for_all import to_json

SPACE = Space.load("ofa-mbv3")
NETWORKS = SPACE.architectures(SPACE.decisions.draw(30, np.random.default_rng(0)))
A, B, C = (to_json(network) for network in NETWORKS[:3])


@pytest.fixture
def write(tmp_path: Path):
    def to_file(columns: list[str], *rows: list[object]) -> Path:
        path = tmp_path / "results.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *rows])
        return path

    return to_file


def test_every_notation_names_the_same_networks(write):
    """Each cell in a form of its own."""
    first, second, third, fourth = NETWORKS[:4]
    path = write(
        ["architecture", "accuracy"],
        [str(first), 0.71],
        [to_json(second), 0.72],
        [str([list(stage) for stage in third.choices]), 0.73],
        [str(SPACE.rows([fourth])[0].tolist()), 0.74],
    )
    table = ResultsTable.read(path, SPACE)
    assert table.architectures == (first, second, third, fourth)
    assert table.accuracies.tolist() == [0.71, 0.72, 0.73, 0.74]
    assert table.weights is None and table.standard_errors is None and table.masks() == {}
    assert (table.record.file, table.record.rows, table.record.networks) == ("results.csv", 4, 4)
    assert table.record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("column", "cells", "unit"),
    [
        ("top1_percent", ["75.5", "0.9"], None),  # the name decides
        ("top1", ["75.5", "1.01"], None),  # all above 1
        ("Accuracy", ["0.755", "1"], None),  # all at most 1
        ("acc", ["75.5", "0.9"], "percent"),
        ("acc", ["0.755", "0.009"], "fraction"),
    ],
)
def test_the_unit_follows_a_rule(write, column, cells, unit):
    table = ResultsTable.read(write(["arch", column], [A, cells[0]], [B, cells[1]]), SPACE, ResultsFormat(unit=unit))
    assert table.accuracies[0] == pytest.approx(0.755)


def test_a_mixture_of_units_is_not_guessed(write):
    path = write(["arch", "top1"], [A, 0.755], [B, 75.5])
    with pytest.raises(InputError, match=r"values up to 1 \(line 2: 0.755\) and above 1 \(line 3: 75.5\)") as raised:
        ResultsTable.read(path, SPACE)
    assert raised.value.hint == "`--percent` or `--fraction` says which"


def test_repeated_networks_are_averaged(write):
    columns = ["architecture", "accuracy", "weight", "search"]
    path = write(columns, [A, 0.750, 1, "x"], [B, 0.7, 1, "x+y"], [A, 0.754, 3, "z"])
    table = ResultsTable.read(path, SPACE, ResultsFormat(group="search"))
    assert len(table) == 2 and (table.record.rows, table.record.repeated) == (3, 1)
    assert table.accuracies[0] == pytest.approx((0.750 + 3 * 0.754) / 4)
    assert table.weights is not None and table.weights.tolist() == [4, 1]
    assert {name: mask.tolist() for name, mask in table.masks().items()} == {
        "x": [True, True],
        "y": [False, True],
        "z": [True, False],
    }


def test_standard_errors_average_by_inverse_variance(write):
    path = write(["architecture", "top1_percent", "standard_error"], [A, 75.0, 0.1], [A, 75.3, 0.2])
    table = ResultsTable.read(path, SPACE)
    assert table.accuracies[0] == pytest.approx((75.0 / 0.01 + 75.3 / 0.04) / (1 / 0.01 + 1 / 0.04) / 100)
    assert table.standard_errors is not None
    assert table.standard_errors[0] == pytest.approx((1 / 0.01 + 1 / 0.04) ** -0.5 / 100)


@pytest.mark.parametrize(
    ("columns", "first", "second", "tolerance", "contradicts"),
    [
        (["accuracy"], [0.750], [0.754], 0.005, False),
        (["accuracy"], [0.750], [0.756], 0.005, True),
        (["accuracy"], [0.750], [0.756], 0.01, False),
        # four standard errors of the difference: 4 * hypot(0.003, 0.004) = 0.02, whatever the tolerance
        (["accuracy", "standard_error"], [0.750, 0.003], [0.769, 0.004], 0.0, False),
        (["accuracy", "standard_error"], [0.750, 0.003], [0.771, 0.004], 1.0, True),
    ],
)
def test_accuracies_of_one_network_must_agree(write, columns, first, second, tolerance, contradicts):
    path = write(["architecture", *columns], [A, *first], [B, *first], [A, *second])
    if not contradicts:
        assert len(ResultsTable.read(path, SPACE, ResultsFormat(tolerance=tolerance))) == 2
        return
    with pytest.raises(InputError, match=r"results\.csv:4: contradicts line 2, the same network: 75 % there"):
        ResultsTable.read(path, SPACE, ResultsFormat(tolerance=tolerance))


def test_all_mistakes_are_named_at_once(write):
    """Lines are counted as an editor does, also where a cell in quotes goes over several."""
    over_lines = to_json(NETWORKS[4]).replace(", ", ",\n", 2)
    path = write(
        ["architecture", "accuracy", "weight", "search"],
        [over_lines, 0.75, 1, "x"],  # lines 2 to 4
        [A, "good", 1, "x"],
        [B, 0.7, 0, "x"],
        ['{"ks": [3]}', 0.7, 1, "x"],
        [C, 0.7, 1, "x+"],
        [A, 1.7, 1, "x"],
        [A, float("nan"), 1, "x"],
    )
    with pytest.raises(InputError) as raised:
        ResultsTable.read(path, SPACE, ResultsFormat(group="search", unit="fraction"))
    message = raised.value.message
    assert "has 6 mistakes" in message
    for line, said in [
        (5, "`accuracy` must be a number, got `good`"),
        (6, "`weight` must be a number above 0, got `0`"),
        (7, "not a network of space `ofa-mbv3`: Once-for-all's JSON: no `e`, `d`"),
        (8, "`search` must name a group"),
        (9, "`accuracy` 1.7 is not a fraction (0 to 1)"),
        (10, "`accuracy` must be a number, got `nan`"),
    ]:
        assert f"results.csv:{line}: {said}" in message


def test_many_mistakes_are_counted(write):
    path = write(["architecture", "accuracy"], *([f"[[{i}]]", 0.5] for i in range(37)))
    with pytest.raises(InputError, match="has 37 mistakes") as raised:
        ResultsTable.read(path, SPACE)
    assert raised.value.message.count("results.csv:") == 10 and raised.value.message.endswith("and 27 more")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"architecture,accuracy\n", "no line after the names"),
        (b"architecture;accuracy\n[];1\n", "one column"),
        (b"architecture,accuracy,accuracy\n", "several columns are named `accuracy`"),
        (b"architecture,top1,accuracy\na,1,1\n", "has the columns `top1` and `accuracy`"),
        (b"net,accuracy\na,1\n", "no column `architecture`"),
        (b"architecture,flops\na,1\n", "no column `accuracy`"),
        (b"architecture,accuracy\na\n", "results.csv:2: 1 cells, but the first line names 2 columns"),
        (b'architecture,accuracy\n"{""d"": 1}" x,1\n', "results.csv:2: not valid CSV"),
        (b'architecture,accuracy\na,1\n"b,1\n', "results.csv:3: not valid CSV"),
        (b"architecture,accuracy\n\xff\xfe,1\n", "results.csv:2: not UTF-8"),
    ],
)
def test_a_file_that_is_no_table_says_why(tmp_path, content, said):
    path = tmp_path / "results.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        ResultsTable.read(path, SPACE)
    assert said in raised.value.message


def test_a_file_from_a_spreadsheet_is_read(tmp_path):
    """With a byte order mark, carriage returns, empty lines and spaces around cells."""
    path = tmp_path / "results.csv"
    written = A.replace('"', '""')
    path.write_bytes(f'\ufeffArchitecture, Accuracy\r\n\r\n"{written}", 0.75 \r\n'.encode())
    assert ResultsTable.read(path, SPACE).accuracies.tolist() == [0.75]


@pytest.mark.parametrize("missing", [{"architectures": "x"}, {"group": "x"}, {"standard_error": "x"}])
def test_a_column_that_is_asked_for_must_be_there(write, missing):
    with pytest.raises(InputError, match="has no column `x`"):
        ResultsTable.read(write(["architecture", "accuracy"], [A, 0.7]), SPACE, ResultsFormat(**missing))


@given(st.text(alphabet='",\n\r[]{}ksed:0123456789.x+ \ufeff', max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_leads_to_anything_but_an_input_error(tmp_path, text):
    path = tmp_path / "results.csv"
    path.write_text("architecture,accuracy\n" + text, newline="")
    with pytest.raises(InputError):
        ResultsTable.read(path, SPACE)
