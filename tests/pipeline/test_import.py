"""`deploynas import ofa`: a public supernet becomes a run that every later command takes like a trained one.

Images are 32 pixels wide and few: the networks see them at 224, so every one of them costs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from ofa_networks import ofa_supernet, older_names, randomise
from PIL import Image

import deploynas as dn
from deploynas.cli import main
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import read_yaml, sha256_of
from deploynas.pipeline.export import ExportOptions, open_network
from deploynas.pipeline.exported import Wishes, export_network
from deploynas.pipeline.import_ofa import imported_into
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.supernet import open_supernet
from deploynas.provenance import Origin
from deploynas.space.schema import SpaceFile
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.elastic import ElasticNorm
from deploynas.supernet.network import Supernet
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import IMAGENET_MEAN, IMAGENET_STD, Data, Subset
from deploynas.training.recipe import Augmentation
from deploynas.training.sources import PixelImages

CHECKPOINT = "ofa_mbv3_d234_e346_k357_w1.0.pth"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, and images of two classes that are easy to tell apart."""
    folder = tmp_path_factory.mktemp("public")
    torch.save({"state_dict": older_names(randomise(ofa_supernet("ofa-mbv3")).state_dict())}, folder / CHECKPOINT)
    rng = np.random.default_rng(0)
    for name, shade in (("dark", 40), ("light", 200)):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(5):
            pixels = np.clip(shade + rng.normal(0, 20, (32, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{i}.png")
    return folder


@pytest.fixture
def deploynas(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


def norms_of(path: Path) -> list[ElasticNorm]:
    model = load_checkpoint(path).model
    return [module for module in model.modules() if isinstance(module, ElasticNorm)]


def test_without_images_the_file_becomes_a_run_and_a_warning_says_what_that_means(deploynas, folder: Path) -> None:
    done = deploynas("import", "ofa", CHECKPOINT, "--out", "runs/plain")
    assert done.code == 0, done.err
    assert "warning: no images were given" in done.err and "next: deploynas profile --space ofa-mbv3" in done.err
    run, space = RunFolder(folder / "runs" / "plain"), dn.Space.load("ofa-mbv3")
    for path, role in ((run.w_h, "w_h"), (run.w_star, "w_star")):
        saved = load_checkpoint(path)
        assert isinstance(saved.model, Supernet) and saved.space == space and saved.model.kernel_rule == "matrices"
        record = CheckpointRecord.of(saved)
        assert record.role == role and record.data is None and record.imported is not None
        assert record.imported.file.path == CHECKPOINT  # its name, not where it lay
        assert record.imported.file.sha256 == sha256_of(folder / CHECKPOINT)
        assert not record.imported.recalibrated and not record.imported.new_classifier
        assert str(folder) not in path.with_suffix(".json").read_text()
    assert not run.space_file.exists()  # it is the preset

    assert "already imported" in deploynas("import", "ofa", CHECKPOINT, "--out", "runs/plain").err
    assert imported_into(run, space) == CHECKPOINT and imported_into(RunFolder(folder), space) is None
    with pytest.raises(InputError, match="another search space"):
        imported_into(run, dn.Space.load("fashion"))
    with pytest.raises(InputError, match="does not say what it was trained on"):
        open_supernet(run)
    with pytest.raises(InputError, match="has 2 classes, the imported supernet 1000") as raised:
        open_supernet(run, "folder:images")
    assert f"deploynas import ofa {CHECKPOINT}" in (raised.value.hint or "")


@pytest.fixture(scope="module")
def imported(folder: Path) -> RunFolder:
    return dn.import_ofa(folder / CHECKPOINT, folder / "runs" / "own", f"folder:{folder / 'images'}")


def test_images_of_other_classes_make_a_space_of_their_own(imported: RunFolder, folder: Path) -> None:
    space = dn.Space.load(imported.space_file)
    assert (space.name, space.classes) == ("ofa-mbv3-2-classes", 2)
    assert read_yaml(imported.space_file, SpaceFile).classes == 2
    for path in (imported.w_h, imported.w_star):
        saved = load_checkpoint(path)
        record = CheckpointRecord.of(saved)
        assert saved.space == space and record.imported is not None and record.data is not None
        assert record.imported.recalibrated and record.imported.new_classifier
        assert (record.data.classes, record.data.train_images, record.data.validation_images) == (
            ["dark", "light"],
            8,
            2,
        )
        assert record.imported.checked_images == 2
        # data are remembered: relative to the run, so that nobody's folders are in it
        assert record.data_place and not Path(record.data_place).is_absolute()
    assert CheckpointRecord.read(imported.w_h).validation_accuracy == 1.0  # the shades are easy to tell apart
    with pytest.raises(InputError, match="another search space"):
        imported_into(imported, dn.Space.load("ofa-mbv3"))


def test_statistics_are_measured_along_the_paths_that_will_be_taken(imported: RunFolder, folder: Path) -> None:
    """In w_h those of the heaviest network, in w* those of every configuration."""
    rows = {path: norms_of(path) for path in (imported.w_h, imported.w_star)}
    heaviest, one_shot = rows[imported.w_h], rows[imported.w_star]
    several = [i for i, norm in enumerate(heaviest) if len(norm.running_mean) == 3]
    assert several
    for i in several:
        # of three kernels, or of three widths, the heaviest network has the last; the others are as in the file
        assert torch.equal(heaviest[i].running_mean[0], heaviest[i].running_mean[1])
        assert not torch.equal(heaviest[i].running_mean[1], heaviest[i].running_mean[2])
    measured = [len(norm.running_mean.unique(dim=0)) for norm in one_shot]
    assert np.mean([measured[i] == 3 for i in several]) > 0.8  # with eight images, not every path is met


def test_what_was_measured_is_kept_and_other_files_are_refused(imported: RunFolder, folder: Path) -> None:
    before = sha256_of(imported.w_star)
    assert dn.import_ofa(folder / CHECKPOINT, imported.path).resumed
    other = folder / "other.pth"
    torch.save(randomise(ofa_supernet("ofa-mbv3", classes=4), seed=3).state_dict(), other)
    with pytest.raises(InputError, match=f"holds a supernet that was imported from {re.escape(CHECKPOINT)}"):
        dn.import_ofa(other, imported.path)
    trained = RunFolder(folder / "runs" / "trained")
    Supernet(dn.Space.load("fashion")).save(trained.w_star, {"role": "w_star"})
    with pytest.raises(InputError, match="holds a supernet that was trained here"):
        dn.import_ofa(other, trained.path)
    assert sha256_of(imported.w_star) == before
    replaced = dn.import_ofa(other, trained.path, force=True)
    assert replaced.space.classes == 4 and load_checkpoint(trained.w_star).space == replaced.space


def test_other_images_than_those_of_the_import_are_refused(imported: RunFolder, folder: Path) -> None:
    fewer = folder / "fewer"
    for name in ("dark", "light"):
        (fewer / name).mkdir(parents=True)
        for i in range(3):
            (fewer / name / f"{i}.png").write_bytes((folder / "images" / name / f"{i}.png").read_bytes())
    with pytest.raises(InputError, match="not the data that the supernet was imported with") as raised:
        open_supernet(imported, f"folder:{fewer}")
    assert f"deploynas import ofa {CHECKPOINT}" in (raised.value.hint or "")


def test_from_an_imported_supernet_to_a_model_file(deploynas, imported: RunFolder, folder: Path, quick: Device) -> None:
    """The smallest network, taught by the heaviest: what the commands do with a run that was trained here."""
    space = dn.Space.load(imported.space_file)
    worth = [np.zeros((stage.max_depth, len(stage.configs))) for stage in space.stages]
    depths = [[0.0] * len(stage.depths) for stage in space.stages]
    dn.BilinearEstimator.from_arrays(space, 0.5, depths, worth).save(imported.estimator)
    limit = str(dn.Costs.of(space, space.smallest()).macs)
    question = ("--estimator", "runs/own/estimator.json", "--max-macs", limit, "--top", "2", "--rerank", "runs/own")
    quickly = ("--set", "finetune.epochs=1", "--set", "finetune.batch=4", "--set", "workers=0")
    for arguments in (("search", *question, "--out", "found.json"), ("finetune", "found.json", *quickly)):
        done = deploynas(*arguments)
        assert done.code == 0, done.err
    opened = open_network("found", ExportOptions())
    record = CheckpointRecord.read(opened.path)
    assert record.teacher and record.teacher.name == "w_h" and record.inherited_accuracy is not None
    # a report of the whole bundle would time and judge other networks too, which takes minutes at this size
    batches = Batches(opened.data, opened.space, Augmentation())
    made = export_network(opened.path, batches, quick, folder, Wishes(runs=2))
    assert made.files.fp32.verification.max_difference <= made.files.fp32.verification.tolerance
    lineage = opened.sources.lineage(opened.path, record.lineage, None)
    assert lineage["imported"] == Origin(path=CHECKPOINT, sha256=sha256_of(folder / CHECKPOINT))
    assert lineage["supernet"] is not None and lineage["supernet"].sha256 == sha256_of(imported.w_star)


def test_a_run_without_images_gets_its_statistics_when_images_are_given(folder: Path) -> None:
    four = folder / "four.pth"
    torch.save(randomise(ofa_supernet("ofa-mbv3", classes=2)).state_dict(), four)
    run = dn.import_ofa(four, folder / "runs" / "later")
    supernet = open_supernet(run, f"folder:{folder / 'images'}")
    of_file = [norm.running_mean.clone() for norm in norms_of(run.w_star)]
    measured = [m for m in supernet.one_shot.supernets[0].modules() if isinstance(m, ElasticNorm)]
    assert all(not torch.equal(norm.running_mean, mean) for norm, mean in zip(measured, of_file, strict=True))
    teacher = [m for m in supernet.teacher(None).modules() if isinstance(m, ElasticNorm)]
    assert all(not torch.equal(norm.running_mean, mean) for norm, mean in zip(teacher, of_file, strict=True))


def test_images_are_normalised_as_the_checkpoint_was_trained(folder: Path) -> None:
    """Pixels in memory have a mean and deviation of their own, which trained supernets use; an imported one has its."""
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3, 224, 224), dtype=np.uint8)
    images = PixelImages.of(pixels, np.array([0, 1, 0, 1]))
    halves = Subset(images, torch.tensor([0, 1])), Subset(images, torch.tensor([2, 3]))
    data = Data("pixels", ("a", "b"), *halves, None, (0.5, 0.5, 0.5), (0.3, 0.3, 0.3))
    checkpoint = folder / "two.pth"
    torch.save(randomise(ofa_supernet("ofa-mbv3", classes=2)).state_dict(), checkpoint)
    run = dn.import_ofa(checkpoint, folder / "runs" / "pixels")
    opened = open_supernet(run, data)
    assert (opened.data.mean, opened.data.std) == (IMAGENET_MEAN, IMAGENET_STD)


def test_the_command_prints_one_document(deploynas, folder: Path) -> None:
    done = deploynas("import", "ofa", CHECKPOINT, "--out", "runs/json", "--json")
    document = json.loads(done.out)
    assert document["space"] == "ofa-mbv3" and document["classes"] == 1000 and document["kernel_rule"] == "matrices"
    assert document["heaviest_accuracy"] is None and document["recalibrated"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ofa", "missing.pth"], "no such file"),
        (["ofa", "cut.pth"], "not a complete file"),
        (["ofa", CHECKPOINT, "--data", "folder:nowhere"], "nowhere: no such folder"),
        (["ofa", CHECKPOINT, "--data", "fashion-mini"], "does not fit space `ofa-mbv3`"),
        (["ofa"], "needs the checkpoint"),
        (["keras", CHECKPOINT], "is not"),
    ],
)
def test_a_mistake_is_one_paragraph_and_nothing_is_written(deploynas, folder: Path, arguments, said: str) -> None:
    (folder / "cut.pth").write_bytes((folder / CHECKPOINT).read_bytes()[:1000])
    done = deploynas("import", *arguments, "--out", "runs/nothing")
    assert done.code == 2 and said in done.err and "Traceback" not in done.err and not done.out
    assert done.err.startswith("error: ") and not (folder / "runs" / "nothing").exists()
