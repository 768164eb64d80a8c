"""NASI's network keeps its limits, and stands beside random ones."""

from __future__ import annotations

from pathlib import Path

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.training_free.nasi import NasiSettings
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.nasi import Nasi
from deploynas.search import search
from deploynas.search.problem import Limit, Problem
from deploynas.space import Space


def test_the_weights_are_a_ranking_and_the_budget_is_kept(files: Path, tmp_path: Path) -> None:
    space, table = Space.load(files / "mini.yaml"), LatencyTable.load(files / "table.json")
    nasi = Nasi(space, settings=NasiSettings(steps=2, networks=3))
    nasi.weigh(tmp_path / "nasi.json")
    estimator = load_estimator(tmp_path / "nasi.json")
    assert estimator.scale == "ordinal" and "nasi" in (estimator.ranked_by or "")
    limits = [Limit(table, 1.2)]
    found = search(space, estimator, limits)
    assert found.optimal and found.accuracy is None and table.predict(found.architecture) <= 1.2
    words = nasi.beside_random(found.architecture, Problem.build(space, estimator, limits))
    assert "of 2 random networks within the limits" in words
