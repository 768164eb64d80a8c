"""A run small enough for tests: an untrained supernet of a tiny space, its table and its estimator, as files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from shipping import FAST, Outcome
from tiny_spaces import MINI

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.cli import main
from deploynas.latency import file_timing
from deploynas.latency.table import LatencyTable
from deploynas.space import Space
from deploynas.supernet.network import Supernet
from deploynas.training import sources
from deploynas.training.data import load_data

EMBEDDED = sources.fashion_mini
DEVICE = """
name: quick
provider: cpu
effort: {workers: 1, visits: 2, part_visits: 2, warmup_runs: 0, runs: 2, min_visit_ms: 0.0, correction_networks: 4,
         validation_networks: 2, max_relative_error: 1.0, time_limit_s: 0.1}
"""


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def few_images() -> sources.Source:
    """The embedded images, as many as are needed where nothing depends on what is learned."""
    whole = EMBEDDED()
    parts = (whole.train, whole.validation, whole.test)
    train, validation, test = (
        sources.PixelImages(part.pixels[:count], part.labels[:count])
        for part, count in zip(parts, (1000, 400, 500), strict=True)
        if isinstance(part, sources.PixelImages)
    )
    return replace(whole, train=train, validation=validation, test=test)


@pytest.fixture(scope="module", autouse=True)
def smaller() -> Iterator[None]:
    """Fewer images, and files timed less often than users are promised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "fashion_mini", few_images)  # `files` exist before, so they do this for themselves
        patch.setattr(file_timing, "PROCESSES", 2)
        patch.setattr(file_timing, "VISITS", 4)
        yield


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "mini.yaml").write_text(MINI)
    (folder / "quick.yaml").write_text(DEVICE)
    space, rng = Space.load(folder / "mini.yaml"), np.random.default_rng(0)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "fashion_mini", few_images)
        data = load_data("fashion-mini", space).describe()
    about = {"data": data.model_dump(), "fingerprint": "made for tests"}
    for name in ("w_h", "w_star"):
        Supernet(space).save(folder / f"{name}.safetensors", about)
    shapes = [(s.max_depth, len(s.configs)) for s in space.stages]
    worth = [np.sort(rng.uniform(0, 0.05, shape)) for shape in shapes]
    BilinearEstimator.from_arrays(space, 0.5, [[0.0, 0.1] for _ in shapes], worth).save(folder / "estimator.json")
    costs = [np.sort(rng.uniform(0.1, 0.5, shape)) for shape in shapes]
    LatencyTable.from_arrays(space, 0.1, costs).save(folder / "table.json")
    return folder


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for path in files.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def fine_tuned(deploynas):
    found = deploynas("search", "--estimator", "estimator.json", "--latency", "table.json:1.2", "--out", "found.json")
    assert found.code == 0, found.err
    done = deploynas("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST)
    assert done.code == 0, done.err
    return deploynas
