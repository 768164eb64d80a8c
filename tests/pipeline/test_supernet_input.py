"""A supernet is named in one way everywhere, and w_h is not taken for w*."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deploynas.errors import InputError
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.supernet import find_supernet, open_supernet
from deploynas.space import Space
from deploynas.supernet.network import Supernet

NAMES = ("w_h.safetensors", "w_h.json", "w_star.safetensors", "w_star.json")


@pytest.fixture
def run(files: Path, tmp_path: Path) -> RunFolder:
    """The layout that `train` and `run` leave."""
    folder = RunFolder(tmp_path / "run")
    folder.supernet.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(files / name, folder.supernet / name)
    return folder


def test_a_run_a_folder_and_the_file_mean_the_same(run: RunFolder) -> None:
    for source in (run, run.path, str(run.path), run.supernet, run.w_star, run.w_star.with_suffix(".json")):
        assert find_supernet(source) == run.w_star
    assert RunFolder.around(find_supernet(run.supernet)) == run


def test_where_there_is_none_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "nowhere.safetensors"):
        with pytest.raises(InputError) as refused:
            find_supernet(source)
        assert "deploynas train" in (refused.value.hint or "")


def test_w_h_is_refused_by_what_it_says_it_is(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is w_h"):  # an older file, known by its name
        find_supernet(run.w_h)
    space = Space.load("fashion")
    Supernet(space).save(tmp_path / "renamed.safetensors", {"role": "w_h"})
    with pytest.raises(InputError, match="is w_h"):
        open_supernet(tmp_path / "renamed.safetensors")
    about = json.loads(run.w_star.with_suffix(".json").read_text())
    about["about"]["subnetworks"] = {"networks": 2, "mean": 0.5, "std": 0.1, "lowest": 0.4, "highest": 0.6}
    (run.supernet / "w_h.json").write_text(json.dumps(about))
    assert find_supernet(run.w_h) == run.w_h  # measured sub-networks: w*, whatever the file is called
