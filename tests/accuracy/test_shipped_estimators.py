"""Estimators that ship: made from the data of this repository, for today's presets, and found by name everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.indexed_fit import fit_form
from deploynas.accuracy.results_table import ResultsFormat, ResultsTable
from deploynas.accuracy.shipped_estimators import FOLDER, SHIPPED, find_estimator
from deploynas.errors import InputError
from deploynas.files import sha256_of
from deploynas.space import Space

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
every_one = pytest.mark.parametrize("name", SHIPPED)


@every_one
def test_it_is_of_the_preset_as_it_is_today(name):
    estimator = dn.load_estimator(name)
    assert estimator.space == Space.load(SHIPPED[name].space)
    assert SHIPPED[name].path.stat().st_size < 1_000_000


@every_one
def test_its_file_says_where_it_came_from_and_how_right_it_is(name):
    estimator = dn.load_estimator(name)
    results, validation = estimator.results, estimator.validation
    assert results and validation
    assert results.about and results.source and results.licence
    assert validation.folds and validation.networks == results.networks and len(validation.groups) >= 2
    assert validation.kendall_tau and validation.mean_error and validation.coverage and validation.top_bias is not None


@every_one
def test_it_was_made_from_the_data_of_this_repository(name):
    """The same form fitted to the same file again predicts the same accuracies, or closely.

    A fit goes downhill from several starts, and how another processor rounds may end in another valley: what is left of
    that must be small beside what the estimator is known to be wrong by.
    """
    estimator = dn.load_estimator(name)
    results = estimator.results
    path = DATA / results.file
    assert sha256_of(path) == results.sha256
    table = ResultsTable.read(path, estimator.space, ResultsFormat(group=results.groups))
    assert (table.record.rows, table.record.networks) == (results.rows, results.networks)
    form, seed = estimator.provenance["form"], estimator.provenance["seed"]
    again = fit_form(table.space, table.architectures, table.accuracies, form, seed=seed)
    rows = table.space.decisions.draw(100, np.random.default_rng(0))
    apart = again.predict_rows(rows) - estimator.predict_rows(rows)
    assert np.sqrt(np.mean(apart**2)) < estimator.validation.mean_error / 2


def test_the_licence_travels_with_the_data():
    assert "Apache" in (DATA / "NOTICE").read_text() and "DyNAS-T" in (DATA / "NOTICE").read_text()
    assert dn.load_estimator("ofa-mbv3-imagenet").results.licence == "Apache-2.0"


def test_every_file_that_ships_has_a_name():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SHIPPED)


def test_a_name_means_what_ships_and_a_path_means_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ofa-mbv3-imagenet").write_text("a file of mine")
    (tmp_path / "mine").write_text("another")
    assert find_estimator("ofa-mbv3-imagenet") == SHIPPED["ofa-mbv3-imagenet"].path
    for path in (Path("mine"), Path("ofa-mbv3-imagenet.json"), tmp_path / "ofa-mbv3-imagenet"):
        assert find_estimator(path) == path
    with pytest.raises(InputError, match="no estimator `imagenet`") as raised:
        dn.load_estimator("imagenet")
    assert "ofa-mbv3-imagenet" in raised.value.hint
    assert dn.IndexedEstimator.load("ofa-mbv3-imagenet").space.name == "ofa-mbv3"
