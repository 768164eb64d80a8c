"""Fine-tuning: inherits, listens to its teacher, resumes bit for bit, refuses what does not fit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from deploynas.errors import InputError
from deploynas.progress import silent
from deploynas.provenance import NetworkLineage
from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import load_data
from deploynas.training.finetune import FineTuningTask, finetune
from deploynas.training.recipe import Recipe
from deploynas.training.sources import PixelImages
from deploynas.training.state import OtherSettings
from deploynas.training.teacher import load_teacher

DATA = "fashion-mini"


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.load("fashion", ["finetune.epochs=1", "finetune.batch=1000", "recalibration_images=200"])


@pytest.fixture
def supernet(space: Space, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    for name in ("w_h", "w_star"):
        Supernet(space).save(tmp_path / f"{name}.safetensors", {"fingerprint": name})
    return tmp_path / "w_star.safetensors"


def made(supernet: Path, architecture, recipe: Recipe, out: Path, on_progress=silent, **more):
    """Fine-tuned with w_h beside the supernet as the teacher, if the recipe wants one."""
    checkpoint = load_checkpoint(supernet)
    data = load_data(DATA, checkpoint.space)
    taught = recipe.finetune.distillation.weight > 0
    teacher = load_teacher(str(supernet.with_name("w_h.safetensors")), checkpoint.space, data) if taught else None
    task = FineTuningTask(checkpoint, architecture, data, recipe, teacher, **more)
    return finetune(task, out, on_progress=on_progress)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_without_learning_the_inherited_weights_come_back(supernet, space, recipe, tmp_path) -> None:
    still = recipe.changed(["finetune.lr=1e-30", "finetune.weight_decay=0", "finetune.ema_decay=0"])
    result = made(supernet, space.smallest(), still, tmp_path / "out", lineage=NetworkLineage(teacher="x"))
    found = load_checkpoint(result.path)
    inherited = dict(extract(Supernet.load(supernet), space.smallest()).named_parameters())
    for name, value in found.model.named_parameters():
        torch.testing.assert_close(value, inherited[name])
    assert found.architecture == space.smallest() and CheckpointRecord.of(found).lineage.teacher == "x"
    assert result.validation_accuracy == result.inherited_accuracy


def test_a_run_that_was_stopped_ends_with_the_same_bits(supernet, space, recipe, tmp_path) -> None:
    whole = made(supernet, space.heaviest(), recipe, tmp_path / "whole")

    def stop(fraction: float, what: str) -> None:
        if fraction >= 0.5:
            raise KeyboardInterrupt

    often = recipe.model_copy(update={"checkpoint_every_s": 0.0})
    with pytest.raises(KeyboardInterrupt):
        made(supernet, space.heaviest(), often, tmp_path / "parts", on_progress=stop)
    assert not (tmp_path / "parts" / "network.json").exists()
    parts = made(supernet, space.heaviest(), often, tmp_path / "parts")
    assert digest(parts.path) == digest(whole.path)
    assert made(supernet, space.heaviest(), often, tmp_path / "parts").resumed


def test_the_teacher_and_the_start_make_a_difference(supernet, space, recipe, tmp_path) -> None:
    alone = recipe.changed(["finetune.distillation.weight=0"])
    networks = {
        "taught": made(supernet, space.smallest(), recipe, tmp_path / "taught"),
        "alone": made(supernet, space.smallest(), alone, tmp_path / "alone"),
        "scratch": made(supernet, space.smallest(), recipe, tmp_path / "scratch", from_scratch=True),
    }
    assert len({digest(result.path) for result in networks.values()}) == 3
    assert networks["scratch"].inherited_accuracy is None
    assert CheckpointRecord.read(networks["alone"].path).teacher is None
    assert CheckpointRecord.read(networks["taught"].path).teacher.name == "w_h"


def test_any_timm_model_can_teach(space, tmp_path) -> None:
    model = timm.create_model("test_efficientnet", num_classes=10, in_chans=1)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    data = load_data(DATA, space)
    teacher = load_teacher(f"timm:test_efficientnet:{tmp_path / 'weights.safetensors'}", space, data)
    x = torch.randn(2, 1, 28, 28)
    torch.testing.assert_close(teacher(x), model.eval()(x))
    assert not any(p.requires_grad for p in teacher.parameters()) and not teacher.train().model.training


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ("timm:no_such_model", "timm has no model"),
        ("timm:test_efficientnet:nowhere.safetensors", "no such file"),
        ("nowhere.safetensors", "no such file"),
    ],
)
def test_a_teacher_that_cannot_be_had_is_named(teacher: str, message: str, space) -> None:
    with pytest.raises(InputError, match=message):
        load_teacher(teacher, space, load_data(DATA, space))


def test_another_normalisation_is_undone_for_the_teacher(space) -> None:
    from deploynas.training.teacher import _Renormalised

    data = load_data(DATA, space)
    pixels = torch.rand(2, 1, 4, 4)
    ours = (pixels - data.mean[0]) / data.std[0]
    seen = _Renormalised(torch.nn.Identity(), data, (0.25,), (0.5,))(ours)
    torch.testing.assert_close(seen, (pixels - 0.25) / 0.5)


def test_a_finished_network_that_was_changed_is_noticed(supernet, space, recipe, tmp_path) -> None:
    """Not reported as done; `--force`, and `run` by itself, make it again."""
    path = made(supernet, space.smallest(), recipe, tmp_path / "out").path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OtherSettings, match="was changed or removed since it was made") as raised:
        made(supernet, space.smallest(), recipe, tmp_path / "out")
    assert "put it back" in str(raised.value.hint) and "--force" in str(raised.value.hint)
    path.unlink()
    with pytest.raises(OtherSettings, match="was changed or removed"):
        made(supernet, space.smallest(), recipe, tmp_path / "out")


def test_images_that_change_halfway_are_noticed(supernet, space, recipe, tmp_path) -> None:
    """The same number of images with the same names and labels: only their content tells."""

    def stop(fraction: float, what: str) -> None:
        if fraction >= 0.5:
            raise KeyboardInterrupt

    often = recipe.model_copy(update={"checkpoint_every_s": 0.0})
    checkpoint, data = load_checkpoint(supernet), load_data(DATA, space)
    still = often.changed(["finetune.distillation.weight=0"])
    task = FineTuningTask(checkpoint, space.smallest(), data, still)
    with pytest.raises(KeyboardInterrupt):
        finetune(task, tmp_path / "out", on_progress=stop)
    images = data.train.images
    assert isinstance(images, PixelImages)
    pixels = images.pixels.clone()
    pixels[0, 0, 0, 0] ^= 1
    changed = replace(images, pixels=pixels)
    others = replace(
        data, train=replace(data.train, images=changed), validation=replace(data.validation, images=changed)
    )
    assert others.describe() == data.describe()
    with pytest.raises(OtherSettings, match="other settings or other images"):
        finetune(replace(task, data=others), tmp_path / "out")
