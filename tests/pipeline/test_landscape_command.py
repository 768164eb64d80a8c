"""`explain --landscape`, from the command line to the page."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from deploynas.accuracy.landscape import LandscapeSettings
from deploynas.cli import main
from deploynas.pipeline import landscape


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for name in ("table.json", "estimator.json", "w_star.safetensors", "w_star.json"):
        shutil.copy(files / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    few = partial(LandscapeSettings, points=3, pairs=2, images=20, gradients=5)
    monkeypatch.setattr(landscape, "LandscapeSettings", few)
    monkeypatch.setattr(landscape, "RIVALS", 2)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


AT = ["explain", "estimator.json", "--at", "smallest", "--latency", "table.json"]


def test_a_network_stands_beside_random_ones_and_the_heaviest(deploynas) -> None:
    code, out, err = deploynas(*AT, "--landscape", "w_star.safetensors", "--html", "page.html")
    assert code == 0, err
    assert "gradient variance" in out and "the loss around its weights rises" in out and "inherited" in err
    page = Path("page.html").read_text()
    assert page.count("<figure>") == 4 and page.count('fill="#dc2626"') == 4 and "Around the weights" in page
    code, out, _ = deploynas(*AT, "--landscape", "w_star.safetensors", "--json")
    told = json.loads(out)["landscape"]
    assert code == 0 and [one["role"] for one in told["networks"]] == ["the network", "random", "random", "heaviest"]
    assert told["images"] == 20 and all(sentence in page for sentence in told["findings"])


def test_it_looks_at_one_network(deploynas) -> None:
    code, _, err = deploynas("explain", "estimator.json", "--landscape", "w_star.safetensors")
    assert code == 2 and "`--landscape` looks at one network" in err
